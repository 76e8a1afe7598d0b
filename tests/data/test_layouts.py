"""Each layout is known by its schema alone and gives the records that it means."""

import copy
from pathlib import Path

import pytest
import yaml

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.formats.registry import FORMATS, format_named
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import Ranking, assistant_turn, plain_text, record_to_dict, user_turn
from plaudit.errors import UserError
from plaudit.rewards.verifiable.code import CodeReward
from tests.data.rows import AXES, CORK, HELPSTEER2, HELPSTEER3, OASST, PRM800K, STONE, ULTRAFEEDBACK, USER
from tests.rewards.sandbox.confined import sandbox

Q = user_turn("What sinks?")
SINKS, FLOATS = assistant_turn("A stone."), assistant_turn("A cork.")
ORIGIN = "rows:1"


def records(row: dict, **options):
    return read_records([row], options=ReadOptions(**options)).records


SAMPLES = yaml.safe_load(Path(__file__).with_name("layouts.yaml").read_text("utf-8"))


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample["layout"] for sample in SAMPLES])
def test_a_row_is_known_by_its_schema_and_gives_its_record(sample):
    reading, layout = read_records([sample["row"]]), sample["layout"]
    records = [record_to_dict(record) for record in reading.records]
    assert (reading.format_name, records) == (layout, [{**sample["record"], "origin": ORIGIN}])
    title = format_named(layout).title
    assert reading.format_sentence.startswith(f"rows: read as {title} ({layout}), because ")


def test_every_layout_has_a_row_in_these_tests():
    elsewhere = {"label-studio", "label-studio-min", "argilla-flat", "arena-log"}
    elsewhere |= {"plaudit", "ultrafeedback", "summarize-axes", "prm800k", "helpsteer2"}
    elsewhere |= {"oasst", "oasst-flat"}
    assert {sample["layout"] for sample in SAMPLES} | elsewhere == {layout.name for layout in FORMATS}


def test_ultrafeedback_reads_the_ratings_and_never_the_overall_score():
    ranking, *ratings = records(ULTRAFEEDBACK)
    completions = ("A cork.", "A stone.")
    assert ranking == Ranking(
        prompt="What sinks?", completions=completions, ranks=(2.0, 1.0), category="made", origin=ORIGIN
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
    reading = read_records([ULTRAFEEDBACK], kinds=["ranking"])
    assert dict(reading.counts) == {"ranking": 1}


def test_helpsteer2_gives_five_ratings():
    scores = {rating.aspect: rating.score for rating in records(HELPSTEER2)}
    assert scores == {"helpfulness": 4, "correctness": 4, "coherence": 3, "complexity": 1, "verbosity": 0}


def test_axis_evaluations_leave_out_the_axis_that_nobody_rated():
    ratings = records(AXES)
    assert [(r.aspect, r.score) for r in ratings] == [("overall", 6), ("accuracy", 7), ("coverage", 5)]
    assert ratings[0].prompt == "A stone sank.\n\nTL;DR:"
    assert {(r.annotator, r.category) for r in ratings} == {("w7", "news")}


def test_helpsteer3_may_prefer_the_second_response_and_a_tie_is_no_preference():
    (pair,) = records({**HELPSTEER3, "overall_preference": 3})
    assert (pair.chosen, pair.strength) == (FLOATS, 3.0)
    tied = {**HELPSTEER3, "overall_preference": 0}
    (pair,) = records(tied)
    assert (pair.probability, pair.strength) == (0.5, 0.0)
    assert pair.chosen != pair.rejected
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


def flat(message, parent=None):
    """The messages of a tree, each as a row of its own."""
    replies = message.get("replies", ())
    row = {"message_id": message["text"], "message_tree_id": "t", "parent_id": parent, **message}
    return [row, *(found for reply in replies for found in flat(reply, row["message_id"]))]


FLAT = flat({**OASST["prompt"]})


@pytest.mark.parametrize("rows", [[OASST], FLAT, [*FLAT[1:], FLAT[0]]])
def test_oasst_ranks_every_turn_with_two_ranked_answers(rows):
    first, second = read_records(rows).records
    assert first.prompt == Q
    assert first.completions == (FLOATS, SINKS)
    assert first.ranks == (2.0, 1.0)
    assert second.prompt == (*Q, *SINKS, *user_turn("Why?"))
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
