"""Each layout is known by its schema alone and gives the records that it means."""

from __future__ import annotations

import copy

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.formats.registry import FORMATS, format_named
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Ranking,
    Rating,
    Steps,
    assistant_turn,
    plain_text,
    user_turn,
)
from plaudit.errors import UserError
from plaudit.rewards.verifiable.code import CodeReward
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
from tests.rewards.sandbox.confined import sandbox

Q = user_turn("What sinks?")
SINKS, FLOATS = assistant_turn("A stone."), assistant_turn("A cork.")
BRIEF = Message(role="system", content="Be brief.")
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
        "alpaca",
        {"instruction": "What sinks?", "input": "", "output": "A stone.", "system": "Be brief."},
        Demonstration(prompt=(BRIEF, *Q), completion=SINKS, origin=ORIGIN),
    ),
    (
        "alpaca-preference",
        {"instruction": "What", "input": "sinks?", "chosen": "A stone.", "rejected": "A cork."},
        Comparison(prompt=user_turn("What\n\nsinks?"), chosen=SINKS, rejected=FLOATS, origin=ORIGIN),
    ),
    (
        "dolly",
        {"instruction": "What sinks?", "context": "", "response": "A stone.", "category": "open_qa"},
        Demonstration(prompt=Q, completion=SINKS, category="open_qa", origin=ORIGIN),
    ),
    (
        "orca-pairs",
        {"system": "Be brief.", "question": "What sinks?", "chosen": "A stone.", "rejected": "A cork."},
        Comparison(prompt=(BRIEF, *Q), chosen=SINKS, rejected=FLOATS, origin=ORIGIN),
    ),
    (
        "gsm8k",
        {"question": "2 + 2?", "answer": "2 + 2 is <<2+2=4>>4.\n#### 4"},
        Demonstration(
            prompt=user_turn("2 + 2?"),
            completion=assistant_turn("2 + 2 is <<2+2=4>>4.\n#### 4"),
            answer="4",
            origin=ORIGIN,
        ),
    ),
    (
        "math",
        {
            "problem": "Half of 1?",
            "level": "Level 1",
            "type": "Algebra",
            "solution": "Not \\boxed{2}: $\\boxed{\\frac{1}{2}}$.",
        },
        Demonstration(
            prompt=user_turn("Half of 1?"),
            completion=assistant_turn("Not \\boxed{2}: $\\boxed{\\frac{1}{2}}$."),
            answer="\\frac{1}{2}",
            category="Algebra",
            origin=ORIGIN,
        ),
    ),
    (
        "verl",
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": "What sinks?"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b"},
        },
        Prompt(
            prompt=Q,
            answer="34",
            metadata={"data_source": "math_dapo", "ability": "MATH", "extra_info": {"index": "9a9b"}},
            origin=ORIGIN,
        ),
    ),
    (
        "apps",
        {
            "problem_id": 7,
            "question": "Double it.",
            "solutions": '["print(2 * int(input()))"]',
            "input_output": '{"inputs": ["2\\n", ["3", "4"]], "outputs": ["4\\n", ["6"]]}',
            "difficulty": "interview",
            "url": "https://example.org/7",
            "starter_code": "",
        },
        Prompt(
            prompt=user_turn("Double it."),
            metadata={
                "tests": [{"input": "2\n", "output": "4\n"}, {"input": "3\n4", "output": "6"}],
                "difficulty": "interview",
            },
            origin=ORIGIN,
        ),
    ),
    (
        "code-contests",
        {
            "name": "7_A. Double",
            "description": "Double it.",
            "public_tests": {"input": ["2\n"], "output": ["4\n"]},
            "private_tests": {"input": ["3\n"], "output": ["6\n"]},
            "generated_tests": {"input": [], "output": []},
            "solutions": {"language": [3], "solution": ["print(2 * int(input()))"]},
        },
        Prompt(
            prompt=user_turn("Double it."),
            metadata={
                "tests": [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "6\n"}],
                "name": "7_A. Double",
            },
            origin=ORIGIN,
        ),
    ),
    (
        "sharegpt",
        {
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": "What sinks?"},
                {"from": "gpt", "value": "A stone."},
            ]
        },
        Demonstration(prompt=(BRIEF, *Q), completion=SINKS, origin=ORIGIN),
    ),
    (
        "sharegpt",
        {"conversations": [USER, *STONE]},
        Demonstration(prompt=Q, completion=SINKS, origin=ORIGIN),
    ),
    (
        "sharegpt-preference",
        {
            "conversations": [{"from": "human", "value": "What sinks?"}],
            "chosen": {"from": "gpt", "value": "A stone."},
            "rejected": {"from": "gpt", "value": "A cork."},
        },
        Comparison(prompt=Q, chosen=SINKS, rejected=FLOATS, origin=ORIGIN),
    ),
    (
        "hh-red-team",
        {
            "transcript": "\n\nHuman: What sinks?\n\nAssistant: A stone.",
            "rating": 3.0,
            "min_harmlessness_score_transcript": 0.4,
            "task_description": "Ask about stones.",
            "task_description_harm_type": "none",
        },
        Rating(prompt=Q, completion=SINKS, score=1.0, aspect="harmlessness", category="none", origin=ORIGIN),
    ),
    (
        "arena",
        {
            "model_a": "m",
            "model_b": "n",
            "winner": "model_b",
            "conversation_a": [USER, *CORK],
            "conversation_b": [USER, *STONE],
            "judge": "arena_user_7",
            "language": "English",
        },
        Comparison(
            prompt=Q,
            chosen=SINKS,
            rejected=FLOATS,
            annotator="arena_user_7",
            category="English",
            origin=ORIGIN,
        ),
    ),
    (
        "arena-columns",
        {
            "model_a": "m",
            "prompt": '["What sinks?"]',
            "response_a": '["A stone."]',
            "response_b": '["A cork."]',
            "winner_model_a": 0,
            "winner_model_b": 0,
            "winner_tie": 1,
        },
        Comparison(prompt=Q, chosen=SINKS, rejected=FLOATS, probability=0.5, origin=ORIGIN),
    ),
    (
        "argilla",
        {
            "fields": {"prompt": "What sinks?", "response1": "A cork.", "response2": "A stone."},
            "responses": {"better": [{"value": "response2", "user_id": "ada"}]},
            "metadata": {},
        },
        Comparison(
            prompt="What sinks?", chosen="A stone.", rejected="A cork.", annotator="ada", origin=ORIGIN
        ),
    ),
    (
        "ranked",
        {"prompt": "What sinks?", "completions": ["A cork.", "A stone."], "ranks": [2, 1]},
        Ranking(prompt="What sinks?", completions=("A cork.", "A stone."), ranks=(2, 1), origin=ORIGIN),
    ),
    (
        "trl-messages",
        {"messages": [{"role": "developer", "content": "Be brief."}, USER, *STONE]},
        Demonstration(prompt=(BRIEF, *Q), completion=SINKS, origin=ORIGIN),
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
    elsewhere = {"label-studio", "label-studio-min", "argilla-flat", "arena-log"}
    elsewhere |= {"plaudit", "ultrafeedback", "summarize-axes", "prm800k", "helpsteer2", "oasst"}
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


def test_arena_ties_are_dropped_when_asked():
    vote = {"winner": "tie (bothbad)", "conversation_a": [USER, *CORK], "conversation_b": [USER, *STONE]}
    assert records(vote)[0].probability == 0.5
    reading = read_records([vote, {**vote, "winner": "model_a"}], options=ReadOptions(ties="drop"))
    assert (reading.left_out, len(reading.records)) == ({"ties": 1}, 1)


def test_alpaca_history_comes_before_the_instruction():
    row = {"instruction": "And now?", "output": "A cork.", "history": [["What sinks?", "A stone."]]}
    assert records(row)[0].prompt == (*Q, *SINKS, *user_turn("And now?"))


@pytest.mark.parametrize(
    ("start", "right"),
    [
        ("def double(x):\n\t", "def double(x): return 2 * x"),
        ("class Solution:\n    def double(", "class Solution:\n  def double(self, x): return 2 * x"),
    ],
)
@pytest.mark.parametrize("outputs", ["[[4], [6]]", "[4, 6]"])
def test_a_function_that_apps_asks_for_is_tested_by_its_results(start, right, outputs):
    cases = f'{{"fn_name": "double", "inputs": [[2], [3]], "outputs": {outputs}}}'
    (prompt,) = records({"question": "Double it.", "input_output": cases, "starter_code": start})
    assert start.strip() in plain_text(prompt.prompt)
    reward = CodeReward(sandbox=sandbox(), workers=1)
    answers = tuple(f"```python\n{code}\n```" for code in (right, right.replace("2 *", "3 *")))
    task = Task(prompt="?", answers=answers, ended=(True, True), metadata=prompt.metadata)
    assert reward.scores([task]) == ((1.0, 0.0),)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"problem": " ", "solution": "4"}, "field problem: expected a question"),
        (
            {"question": "Double it.", "input_output": {"inputs": ["2"], "outputs": []}},
            "field input_output: expected 1 of both, found 0 outputs",
        ),
        (
            {"description": "Double it.", "public_tests": {"input": [], "output": []}},
            "field public_tests: expected one test or more, found none",
        ),
    ],
)
def test_problems_that_cannot_be_checked_are_bad_rows(row, says):
    with pytest.raises(UserError, match=says):
        read_records([row])


@pytest.mark.parametrize("rule", [{"style": "rule"}, {"ground_truth": {"size": 4}}, {"ground_truth": None}])
def test_a_rule_without_an_answer_stays_metadata(rule):
    (prompt,) = records({"prompt": "2 + 2?", "reward_model": rule})
    assert (prompt.answer, prompt.metadata) == (None, {"reward_model": rule})
