"""One model on one file: what is counted, what is left out and said, and what goes to the files."""

import json

import pytest

from plaudit.data.records import Comparison, Ranking
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData, evaluate_reward, read_reward_data
from plaudit.evaluation.reward_models.result import short_names
from plaudit.evaluation.stats import Resampling
from plaudit.files.atomic import make_output_folder
from plaudit.rewards.base import FunctionReward
from plaudit.runs.report.reward_models.page import write_reward_evaluations

DRAWS = Resampling(times=50)
SCORES = {"great": 3.0, "good": 2.0, "fair": 1.0, "bad": 0.0, "mute": None}
KNOWN = FunctionReward(name="known", function=lambda prompt, answer: SCORES[str(answer)])


def compared(prompt: str, chosen: str, rejected: str, **more) -> Comparison:
    return Comparison(prompt=prompt, chosen=chosen, rejected=rejected, origin=f"f:{prompt}", **more)


ROWS = [
    compared("1", "great", "bad", category="a", annotator="ada"),
    compared("2", "bad", "great", category="a", annotator="bob"),
    compared("2", "fair", "great", category="a", annotator="bob"),
    compared("3", "fair", "good", category="b", probability=0.9),
    compared("4", "good", "mute", category="b"),
    compared("5", "good", "bad", strength=0.0),
    Ranking(prompt="6", completions=("good", "fair", "mute"), ranks=(1.0, 2.0, 3.0), origin="f:6"),
]


def found(rows=ROWS, **more):
    return evaluate_reward(KNOWN, RewardEvaluationData(name="f", records=rows, **more), DRAWS).evaluation


def test_answers_without_verdict_are_counted_and_in_no_figure():
    one = found()
    assert (one.pairs, one.prompts, one.missing) == (9, 6, 3)
    assert (one.accuracy.value, one.accuracy.n) == (2 / 5, 5)
    assert one.ties.pairs == 1
    assert sum(part.accuracy.n for part in one.categories) == 4
    assert one.notes == (
        "3 of 9 pairs have no verdict, and are in no figure",
        "1 pairs have a soft label; accuracy counts the likelier side as right",
    )


def test_a_reward_that_knows_why_it_has_no_verdict_is_quoted():
    class Explaining:
        name = "explaining"

        @property
        def refused(self):
            return {"longer than 8 tokens": 2}

        def scores(self, tasks):
            return KNOWN.scores(tasks)

    one = evaluate_reward(Explaining(), RewardEvaluationData(name="f", records=ROWS), DRAWS).evaluation
    assert one.notes[0].endswith("in no figure (2 × longer than 8 tokens)")


def test_the_surest_mistakes_come_first_one_a_prompt():
    mistakes = [(m.prompt, m.preferred, m.other, m.margin) for m in found().mistakes]
    assert mistakes == [("2", "bad", "great", -3.0), ("3", "fair", "good", -1.0)]


def test_equal_rewards_are_counted():
    same = FunctionReward(name="same", function=lambda prompt, answer: 1.0)
    one = evaluate_reward(same, RewardEvaluationData(name="f", records=ROWS), DRAWS).evaluation
    assert (one.equal, one.accuracy.value) == (8, 0.5)


def test_files_hold_every_pair_and_only_finite_numbers(tmp_path):
    both = [
        evaluate_reward(reward, RewardEvaluationData(name="f", records=ROWS), DRAWS)
        for reward in (KNOWN, FunctionReward(name="one", function=lambda prompt, answer: 1.0))
    ]
    write_reward_evaluations(both, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text("utf-8").splitlines()]
    assert [line["origin"] for line in lines] == [*(f"f:{n}" for n in (1, 2, 2, 3, 4, 5, 6, 6, 6))]
    assert lines[4]["rewards"] == {"known": [2.0, None], "one": [1.0, 1.0]}
    assert lines[3]["chance"] == 0.9
    text = (tmp_path / "summary.json").read_text("utf-8")
    assert "NaN" not in text
    assert [one["model"] for one in json.loads(text)["evaluations"]] == ["known", "one"]
    assert json.loads(json.dumps(both[0].evaluation.as_json())) == json.loads(text)["evaluations"][0]


def test_a_place_that_takes_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="no folder can be made there"):
        make_output_folder(tmp_path / "file" / "out")


def test_some_rows_are_drawn_by_chance_in_the_order_of_the_file(tmp_path):
    rows = [compared(f"{n}", "good", "bad") for n in range(100)]
    path = write_records(rows, tmp_path / "f.jsonl").path
    evidence, notes = read_reward_data(path, n=10, seed=1)
    places = [int(str(record.prompt)) for record in evidence.records]
    assert places == sorted(places)
    assert len(set(places)) == 10
    assert places != list(range(10))
    assert notes[-1] == "f.jsonl: 10 of 100 records, drawn by chance"
    assert read_reward_data(path, n=10, seed=2)[0].records != evidence.records
    assert len(read_reward_data(path, n=1000)[0].records) == 100


def test_nothing_to_evaluate_on_is_refused():
    with pytest.raises(UserError, match="no comparison and no ranking"):
        found([])
    with pytest.raises(UserError, match="all of its 1 pairs are ties"):
        found([ROWS[5]])
    with pytest.raises(UserError, match="known gives no verdict on any pair of f in which"):
        found([ROWS[4], ROWS[5]])


def test_models_are_told_apart_by_what_they_do_not_share():
    from dataclasses import replace

    named = [replace(found(), model=name) for name in ("runs/one/model", "runs/two/model")]
    assert short_names(named) == ("one/model", "two/model")
    assert short_names(named[:1]) == ("runs/one/model",)
