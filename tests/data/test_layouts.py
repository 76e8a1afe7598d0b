"""Each layout is known by its schema alone and gives the records that it means."""

from __future__ import annotations

import copy

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.formats.registry import FORMATS, format_named
from plaudit.data.read import read_records
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Ranking,
    Rating,
    Steps,
    assistant_turn,
    user_turn,
)
from tests.data.rows import (
    AXES,
    CORK,
    HELPSTEER2,
    HELPSTEER3,
    HH,
    NECTAR,
    OASST,
    PRM800K,
    REWARDBENCH,
    REWARDBENCH2,
    SHP,
    STONE,
    SUMMARIES,
    ULTRAFEEDBACK,
    USER,
)

Q = user_turn("What sinks?")
ORIGIN = "rows:1"


def records(row: dict, **options):
    return read_records([row], options=ReadOptions(**options)).records


DETECTED = [
    (
        "trl-text",
        {"text": "Stones sink."},
        Demonstration(prompt="", completion="Stones sink.", origin=ORIGIN),
    ),
    (
        "trl-messages",
        {"messages": [USER, *STONE]},
        Demonstration(prompt=Q, completion=assistant_turn("A stone."), origin=ORIGIN),
    ),
    (
        "trl-prompt",
        {"prompt": "2 + 2?", "answer": 4, "level": "easy"},
        Prompt(prompt="2 + 2?", answer="4", metadata={"level": "easy"}, origin=ORIGIN),
    ),
    ("trl-prompt", {"prompt": [USER]}, Prompt(prompt=Q, origin=ORIGIN)),
    (
        "trl-prompt-completion",
        {"prompt": "", "completion": "Stones sink."},
        Demonstration(prompt="", completion="Stones sink.", origin=ORIGIN),
    ),
    (
        "trl-prompt-completion",
        {"prompt": [USER], "completion": STONE},
        Demonstration(prompt=Q, completion=assistant_turn("A stone."), origin=ORIGIN),
    ),
    (
        "trl-preference",
        {"prompt": "What sinks?", "chosen": " A stone.", "rejected": " A cork.", "margin": 0.5},
        Comparison(prompt="What sinks?", chosen=" A stone.", rejected=" A cork.", margin=0.5, origin=ORIGIN),
    ),
    (
        "trl-preference",
        {"prompt": [USER], "chosen": STONE, "rejected": CORK},
        Comparison(
            prompt=Q, chosen=assistant_turn("A stone."), rejected=assistant_turn("A cork."), origin=ORIGIN
        ),
    ),
    (
        "trl-preference-implicit",
        {"chosen": "What sinks? A stone.", "rejected": "What sinks? A stick."},
        Comparison(prompt="What sinks? A", chosen=" stone.", rejected=" stick.", origin=ORIGIN),
    ),
    (
        "trl-preference-implicit",
        {"chosen": [USER, *STONE], "rejected": [USER, *CORK]},
        Comparison(
            prompt=Q, chosen=assistant_turn("A stone."), rejected=assistant_turn("A cork."), origin=ORIGIN
        ),
    ),
    (
        "trl-unpaired",
        {"prompt": "What sinks?", "completion": " A stone.", "label": True},
        Rating(prompt="What sinks?", completion=" A stone.", score=1.0, thumb=True, origin=ORIGIN),
    ),
    (
        "trl-stepwise",
        {"prompt": "2x = 6", "completions": ["Halve.", "x = 4."], "labels": [True, False]},
        Steps(prompt="2x = 6", steps=("Halve.", "x = 4."), labels=(1.0, 0.0), origin=ORIGIN),
    ),
    (
        "hh-rlhf",
        HH,
        Comparison(
            prompt=(*Q, *assistant_turn("Many things."), *user_turn("One?")),
            chosen=assistant_turn("A stone."),
            rejected=assistant_turn("A cork."),
            origin=ORIGIN,
        ),
    ),
    (
        "shp",
        SHP,
        Comparison(
            prompt="What sinks?",
            chosen="A stone.",
            rejected="A cork.",
            strength=5.0,
            category="askphysics_train",
            origin=ORIGIN,
        ),
    ),
    (
        "nectar",
        NECTAR,
        Ranking(
            prompt=Q,
            completions=tuple(assistant_turn(said) for said in ("A cork.", "A stone.", "An anchor.")),
            ranks=(3.0, 1.0, 2.0),
            category="made",
            origin=ORIGIN,
        ),
    ),
    (
        "summarize-comparisons",
        SUMMARIES,
        Comparison(
            prompt="SUBREDDIT: r/lakes\nTITLE: Lost a stone\nPOST: I dropped it.\nTL;DR:",
            chosen=" Dropped a stone.",
            rejected=" Dropped a cork.",
            strength=8.0,
            annotator="w7",
            category="lakes",
            origin=ORIGIN,
        ),
    ),
    (
        "helpsteer3",
        HELPSTEER3,
        Comparison(
            prompt=Q,
            chosen=assistant_turn("A stone."),
            rejected=assistant_turn("A cork."),
            strength=2.0,
            category="general",
            origin=ORIGIN,
        ),
    ),
    (
        "rewardbench",
        REWARDBENCH,
        Comparison(
            prompt="What sinks?",
            chosen="A stone.",
            rejected="A cork.",
            category="alpacaeval-easy",
            origin=ORIGIN,
        ),
    ),
    (
        "rewardbench2",
        REWARDBENCH2,
        Ranking(
            prompt="Name a thing that sinks.",
            completions=("A stone.", "An anchor.", "A cork.", "A boat.", "Foam."),
            ranks=(1.0, 1.0, 3.0, 3.0, 3.0),
            category="Ties",
            origin=ORIGIN,
        ),
    ),
]


@pytest.mark.parametrize(("layout", "row", "record"), DETECTED)
def test_a_row_is_known_by_its_schema_and_gives_its_record(layout, row, record):
    reading = read_records([row])
    assert (reading.format_name, reading.records) == (layout, (record,))
    assert reading.format_sentence.startswith(
        f"rows: read as {format_named(layout).title} ({layout}), because "
    )


def test_every_layout_has_a_row_in_these_tests():
    elsewhere = {"plaudit", "ultrafeedback", "summarize-axes", "prm800k", "helpsteer2", "oasst"}
    assert {name for name, _, _ in DETECTED} | elsewhere == {layout.name for layout in FORMATS}


def test_ultrafeedback_reads_the_ratings_and_never_the_overall_score():
    ranking, *ratings = records(ULTRAFEEDBACK)
    assert ranking == Ranking(
        prompt="What sinks?",
        completions=("A cork.", "A stone."),
        ranks=(2.0, 1.0),
        category="made",
        origin=ORIGIN,
    )
    assert {rating.category for rating in ratings} == {"made"}
    assert [(r.completion, r.aspect, r.score) for r in ratings] == [
        ("A cork.", "instruction_following", 1.0),
        ("A cork.", "honesty", 2.0),
        ("A cork.", "truthfulness", 1.0),
        ("A cork.", "helpfulness", 1.0),
        ("A stone.", "instruction_following", 5.0),
        ("A stone.", "honesty", 5.0),
        ("A stone.", "helpfulness", 4.0),
    ]


def test_ultrafeedback_can_be_asked_for_its_rankings_only():
    reading = read_records([ULTRAFEEDBACK], kinds=["ranking"])
    assert dict(reading.counts) == {"ranking": 1}


def test_helpsteer2_gives_five_ratings():
    scores = {rating.aspect: rating.score for rating in records(HELPSTEER2)}
    assert scores == {
        "helpfulness": 4,
        "correctness": 4,
        "coherence": 3,
        "complexity": 1,
        "verbosity": 0,
    }


def test_axis_evaluations_leave_out_the_axis_that_nobody_rated():
    ratings = records(AXES)
    assert [(r.aspect, r.score) for r in ratings] == [("overall", 6), ("accuracy", 7), ("coverage", 5)]
    assert ratings[0].prompt == "A stone sank.\n\nTL;DR:"
    assert {(r.annotator, r.category) for r in ratings} == {("w7", "news")}


def test_helpsteer3_positive_prefers_the_second_response():
    (pair,) = records({**HELPSTEER3, "overall_preference": 3})
    assert (pair.chosen, pair.strength) == (assistant_turn("A cork."), 3.0)


def test_a_tie_is_never_a_preference():
    (pair,) = records({**HELPSTEER3, "overall_preference": 0})
    assert (pair.probability, pair.strength) == (0.5, 0.0)
    assert pair.chosen != pair.rejected


def test_a_dropped_tie_is_counted():
    tied = {**HELPSTEER3, "overall_preference": 0}
    reading = read_records([tied, HELPSTEER3], options=ReadOptions(ties="drop"))
    assert (len(reading.records), dict(reading.left_out)) == (1, {"ties": 1})


@pytest.mark.parametrize("neutral", [0.5, 1.0, 0.0])
def test_prm800k_shows_its_neutral_steps(neutral):
    side, wrong, followed = records(PRM800K, neutral=neutral)
    assert (side.steps, side.labels) == (("Double it.",), (0.0,))
    assert wrong.steps == ("Look at 2x = 6.", "Divide by 2.", "x = 4.")
    assert wrong.labels == (neutral, 1.0, 0.0)
    assert (followed.steps, followed.labels) == (wrong.steps[:2], (neutral, 1.0))
    assert {step.annotator for step in (side, wrong, followed)} == {"l1"}


def test_a_prm800k_problem_without_steps_is_left_out_by_name():
    given_up = copy.deepcopy(PRM800K)
    given_up["label"]["steps"] = [{"completions": None, "human_completion": None, "chosen_completion": None}]
    reading = read_records([PRM800K, given_up])
    assert dict(reading.left_out) == {"problems without a labelled step": 1}


def test_oasst_ranks_every_turn_with_two_ranked_answers():
    first, second = records(OASST)
    assert first.prompt == Q
    assert first.completions == (assistant_turn("A cork."), assistant_turn("A stone."))
    assert first.ranks == (2.0, 1.0)
    assert second.prompt == (*Q, *assistant_turn("A stone."), *user_turn("Why?"))
    assert second.completions == (assistant_turn("It is dense."), assistant_turn("It is sad."))
