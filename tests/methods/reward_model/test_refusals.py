"""What no reward can be learnt from is refused by the command: where, why, and what to do; exit code 2."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from tests.engine.toy import Toy, write_rows
from tests.methods.reward_model.rows import Row, command, judged, make_files

PAIRS, RATINGS = judged("comparisons", 12), judged("ratings", 12)
TIES = [{**row, "probability": 0.5} for row in PAIRS]
ALONE = {"kind": "ranking", "prompt": "1 a cat?", "completions": [" dogs."], "ranks": [1]}


def aspects(*names: str | None) -> list[Row]:
    return [{**row, **({"aspect": name} if name else {})} for row in RATINGS for name in names]


BAD_ROWS: dict[str, tuple[list[Row], tuple[object, ...], str]] = {
    "prompts": (
        [{"kind": "prompt", "prompt": "1 a cat?"}] * 3,
        (),
        "data.jsonl:1: this row is a prompt: nobody judged its answer. A reward is learnt from comparisons",
    ),
    "demonstrations": (
        [{"prompt": "1 a cat?", "completion": " dogs."}] * 3,
        (),
        "data.jsonl:1: this row is a demonstration: nobody judged its answer",
    ),
    "all ties": (
        TIES,
        (),
        "10 comparisons to train on, say the same: each is a tie, so there is nothing to learn from them; "
        "give rows that tell answers apart",
    ),
    "tied rankings": (
        [{**row, "ranks": [1] * len(row["ranks"])} for row in judged("rankings", 12)],
        (),
        "rankings to train on, say the same: in each all answers are tied",
    ),
    "mixed kinds": (
        [*PAIRS, *RATINGS],
        (),
        "data.jsonl:13: the rows are 12 comparisons and 12 ratings, and each kind has its own loss: choose",
    ),
    "thumbs among ratings": ([*RATINGS, *judged("thumbs", 3)], (), "12 ratings and 3 thumbs"),
    "a ranking of one": (
        [*judged("rankings", 12), ALONE],
        (),
        "data.jsonl:13: field completions: expected two answers or more, found 1",
    ),
    "one value": (
        [{**row, "score": 4} for row in RATINGS],
        (),
        "ratings to train on, say the same: they are one number",
    ),
    "thumbs up alone": ([{**row, "score": 1} for row in judged("thumbs", 12)], (), "they all point one way"),
    "right steps alone": (
        [{**row, "labels": [1.0] * len(row["labels"])} for row in judged("steps", 12)],
        (),
        "every step has the same label",
    ),
    "several aspects": (
        aspects("honesty", "helpfulness", None),
        (),
        "the ratings are of helpfulness, honesty, the answer as a whole: choose one with --reward.aspect",
    ),
    "an aspect that nobody rated": (
        aspects("honesty", "helpfulness"),
        ("--reward.aspect", "brevity"),
        "reward.aspect: no rating is of 'brevity'; there are helpfulness, honesty",
    ),
    "an aspect of comparisons": (PAIRS, ("--reward.aspect", "brevity"), "there are none"),
    "none of the wanted kind": (
        PAIRS,
        ("--reward.rows", "ratings"),
        "reward.rows: none of the 12 rows are ratings; they are comparisons",
    ),
    "a tie that cannot be": (
        [*PAIRS, {**PAIRS[0], "probability": 0.5}],
        ("--reward.loss", "davidson", "--reward.tie-probability", 0),
        "data.jsonl:13: this row is a tie, which --reward.tie-probability 0 calls impossible",
    ),
    "no strength": (
        [{name: value for name, value in row.items() if name != "strength"} for row in PAIRS],
        ("--reward.margin", "small"),
        "data.jsonl:1: no strength to make a margin of; leave out --reward.margin, or give strengths",
    ),
    "a strength out of range": (
        [{**PAIRS[0], "strength": 7}, *PAIRS[1:]],
        ("--reward.margin", "large"),
        "data.jsonl:1: strength 7.0 has no margin: map your scale to 0 (unsure) … 3 (clearly better)",
    ),
    "a chance of 2": (
        [*PAIRS, {**PAIRS[0], "probability": 2}],
        (),
        "data.jsonl:13: field probability: expected",
    ),
    "a label of 2": (
        [{**row, "labels": [2.0] * len(row["labels"])} for row in judged("steps", 3)],
        (),
        "data.jsonl:1: a label of 2.0; it is a number from 0 to 1",
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, dict[str, Path]]:
    return make_files(tmp_path_factory.mktemp("toy"), rows=12)


@pytest.fixture(scope="module")
def learnt(files: tuple[Toy, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy, data = files
    out = tmp_path_factory.mktemp("learnt") / "run"
    assert main([*map(str, command(toy.model, data["comparisons"], out, "--steps", 1))]) == 0
    return out / "model"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(arguments: list[object]) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments)]) == 2
        return capsys.readouterr().err

    return say


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", BAD_ROWS)
def test_rows_that_teach_nothing_are_refused(files, refused, tmp_path, what):
    rows, more, why = BAD_ROWS[what]
    data, out = write_rows(tmp_path / "data.jsonl", rows), tmp_path / "run"
    said = refused(command(files[0].model, data, out, *more))
    assert why in said
    assert said.count("plaudit: ") == 1
    assert not (out / "model").exists()


SETTINGS = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))
"""By what is wrong: which rows, with which options, and what is said."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", SETTINGS)
def test_settings_that_nothing_would_read_are_refused(files, refused, tmp_path, what):
    toy, data = files
    kind, more, why = SETTINGS[what]
    out = tmp_path / "run"
    assert why in refused(command(toy.model, data[kind], out, *more))
    assert not (out / "model").exists()


def test_held_out_rows_are_of_the_same_kind(files, refused, tmp_path):
    toy, data = files
    said = refused(command(toy.model, data["comparisons"], tmp_path / "run", "--held-out", data["ratings"]))
    assert "the rows are comparisons and the held-out ones ratings: hold out rows of the same kind" in said


def test_only_demonstrations_can_be_brought_to_zero(files, refused, tmp_path):
    toy, data = files
    more = ("--reward.normalise", data["comparisons"])
    said = refused(command(toy.model, data["comparisons"], tmp_path / "run", *more))
    assert "comparisons.jsonl:1: this row is a comparison, and reward.normalise learns from demonstr" in said


def test_a_first_stage_before_a_reward_model_is_refused(files, learnt, refused, tmp_path):
    pairs, out = files[1]["comparisons"], tmp_path / "run"
    said = refused(command(learnt, pairs, out, "--pretraining.data", pairs))
    assert f"{learnt}: a reward model needs no first stage; leave out --pretraining.data" in said
    assert not out.exists()


def test_a_first_stage_does_not_begin_in_a_folder_that_holds_something_else(files, refused, tmp_path):
    pairs = files[1]["comparisons"]
    (tmp_path / "letters.txt").write_text("Dear plaudit")
    said = refused(command(files[0].model, pairs, tmp_path, "--pretraining.data", pairs))
    assert "this folder is not a run" in said
    assert not (tmp_path / "pretraining").exists()
