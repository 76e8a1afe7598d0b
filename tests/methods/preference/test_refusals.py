"""What no preference can be learnt from is refused by the command: where, why, what to do; exit code 2."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from plaudit.cli.main import main
from tests.engine.toy import Toy, make_model, write_rows
from tests.methods.preference.test_runs import command
from tests.methods.reward_model.rows import Row, command as reward_command, judged, make_files

PAIRS, THUMBS = (judged(kind, 12) for kind in ("comparisons", "thumbs"))
CERTAIN = [row for row in judged("comparisons", 20) if "probability" not in row]
RANKINGS, RATINGS, STEPS = (judged(kind, 12) for kind in ("rankings", "ratings", "steps"))
PROMPTS: list[Row] = [{"kind": "prompt", "prompt": f"{n} a cat?"} for n in range(12)]
SHOWN: list[Row] = [{"prompt": f"{n} a cat?", "completion": " dogs."} for n in range(12)]
ONE_PROMPT = [{**row, "prompt": "1 a cat?"} for row in THUMBS]


def with_first(**changed: object) -> list[Row]:
    """The first of twelve comparisons is another one."""
    return [{**PAIRS[0], **changed}, *PAIRS[1:]]


Case = tuple[str, Sequence[Row], tuple[object, ...], tuple[str, ...]]
"""An algorithm, its rows, its settings, and what is said."""
ROWS: dict[str, Case] = {
    "thumbs for pairs": (
        "dpo",
        THUMBS,
        (),
        ("data.jsonl:1: this row is a thumb of one answer, and dpo learns from two", "Use kto or bco"),
    ),
    "ratings for pairs": ("ipo", RATINGS, (), ("data.jsonl:1: this row is a rating of one answer, and ipo",)),
    "a thumb among pairs": ("dpo", [*PAIRS, THUMBS[0]], (), ("data.jsonl:13: this row is a thumb",)),
    "demonstrations for pairs": ("dpo", SHOWN, (), ("data.jsonl:1: this row is a demonstrat", "train sft")),
    "prompts for pairs": ("dpo", PROMPTS, (), ("data.jsonl:1: this row is a prompt without answers",)),
    "steps for pairs": ("dpo", STEPS, (), ("data.jsonl:1: this row is a solution with", "train reward")),
    "ratings for thumbs": ("kto", RATINGS, (), ("data.jsonl:1: this row is a rating on a scale", "true or")),
    "rankings for thumbs": ("bco", RANKINGS, (), ("data.jsonl:1: this row is a ranking, and bco", "use dpo")),
    "demonstrations for thumbs": ("kto", SHOWN, (), ("data.jsonl:1: this row is a demonstration",)),
    "prompts for thumbs": ("bco", PROMPTS, (), ("data.jsonl:1: this row is a prompt without answers",)),
    "steps for thumbs": ("kto", STEPS, (), ("data.jsonl:1: this row is a solution with labelled steps",)),
    "the same answer twice": (
        "dpo",
        with_first(chosen=" dogs.", rejected=" dogs."),
        (),
        ("data.jsonl:1: field chosen", "same"),
    ),
    "the same answer twice in a ranking": (
        "dpo",
        [{**RANKINGS[0], "completions": [" a.", " a."], "ranks": [1, 2]}, *RANKINGS[1:]],
        (),
        ("data.jsonl:1: two answers are the same tokens",),
    ),
    "answers that do not fit": (
        "dpo",
        with_first(chosen=" dogs" * 90),
        ("--max-length", 64),
        ("data.jsonl:1", "does not fit in 64 beside its prompt"),
    ),
    "soft labels for sorted batches": (
        "aot",
        with_first(probability=0.8),
        (),
        ("data.jsonl:1: the label is 0.8", "a label is certain", "or use dpo"),
    ),
    "ties alone": (
        "dpo",
        [{**row, "probability": 0.5} for row in PAIRS],
        ("--rows.ties", "drop"),
        ("data.jsonl",),
    ),
    "one prompt alone": ("kto", ONE_PROMPT, (), ("all rows have the same prompt", "use apo-zero-unpaired")),
    "more parts than prompts": ("dpo", CERTAIN, ("--stages.parts", 99), ("stages.parts: 99 parts of",)),
}
SETTINGS: dict[str, tuple[str, list[object], list[str]]] = yaml.safe_load(
    Path(__file__).with_name("refusals.yaml").read_text("utf-8")
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, dict[str, Path]]:
    toy, found = make_files(tmp_path_factory.mktemp("toy"), rows=12)
    return toy, {**found, "certain": write_rows(toy.data.with_name("certain.jsonl"), CERTAIN)}


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(arguments: Sequence[object]) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments)]) == 2
        out = Path(str(arguments[arguments.index("--out") + 1]))
        assert not [*out.rglob("step-*")]
        assert not (out / "model").exists()
        return capsys.readouterr().err

    return say


@pytest.mark.one_in(6)
@pytest.mark.parametrize("what", ROWS)
def test_rows_that_hold_no_preference_are_refused(files, refused, tmp_path, what):
    name, rows, more, why = ROWS[what]
    data = write_rows(tmp_path / "data.jsonl", rows)
    said = refused(command(name, files[0], data, tmp_path / "run", *more))
    assert said.startswith("plaudit: ")
    for words in why:
        assert words in said


@pytest.mark.one_in(4)
@pytest.mark.parametrize("what", SETTINGS)
def test_settings_that_have_no_meaning_are_refused(files, refused, tmp_path, what):
    name, more, why = SETTINGS[what]
    toy, found = files
    data = found["thumbs" if name == "kto" else "certain"]
    said = refused(command(name, toy, data, tmp_path / "run", *more))
    for words in why:
        assert words in said


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("aot", (), "2 ties left out: aot sorts pairs by which answer is better"),
        ("aot-unpaired", (), "2 ties left out: aot-unpaired sorts pairs"),
        ("dpo", ("--rows.ties", "drop"), "2 rows left out: ties"),
        ("kto", ("--rows.ties", "drop"), "2 rows left out: ties"),
    ],
)
def test_a_few_ties_are_left_out_and_counted_and_no_bad_rows(files, tmp_path, capsys, name, more, words):
    """As if they had never been there: the same weights as from the rows without them."""
    tied = [{**CERTAIN[0], "probability": 0.5}, {**CERTAIN[1], "probability": 0.5}]
    with_ties = write_rows(tmp_path / "with.jsonl", [*CERTAIN, *tied])
    without = write_rows(tmp_path / "without.jsonl", CERTAIN)
    made: list[bytes] = []
    for data, out, settings in ((with_ties, "some", more), (without, "none", ())):
        words_of_run = command(name, files[0], data, tmp_path / out, "--steps", 2, *settings)
        assert main([*map(str, words_of_run)]) == 0
        made.append((tmp_path / out / "model" / "model.safetensors").read_bytes())
        assert (words in capsys.readouterr().err) == (data is with_ties)
        assert not (tmp_path / out / "refused-data.jsonl").exists()
    assert made[0] == made[1]


def test_an_algorithm_that_nobody_knows_is_refused_with_the_nearest(files, refused, tmp_path):
    toy, found = files
    words = command("dpo", toy, found["certain"], tmp_path / "run")
    assert "did you mean dpo?" in refused(["train", "dpoo", *words[2:]])


def other_tokenizer(toy: Toy, folder: Path) -> Path:
    """The same model, two of whose tokens have changed places."""
    make_model(folder, seed=1)
    vocabulary: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    words = vocabulary["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return folder


@pytest.mark.parametrize("kind", ["precomputed", "live", "average"])
def test_a_reference_with_another_tokenizer_is_refused(files, refused, tmp_path, kind):
    toy, found = files
    other = other_tokenizer(toy, tmp_path / "other")
    own = ("--reference.kind", kind, "--reference.model", other)
    said = refused(command("dpo", toy, found["certain"], tmp_path / "run", *own))
    assert f"reference.model {other}: its tokenizer is another one (" in said
    assert "Take a reference of the policy's own family" in said


def test_a_reward_model_is_neither_policy_nor_reference(files, refused, tmp_path):
    toy, found = files
    trained = tmp_path / "reward"
    assert main([*map(str, reward_command(toy.model, found["comparisons"], trained, "--steps", 1))]) == 0
    reward = trained / "model"
    as_policy = command("dpo", Toy(model=reward, data=toy.data), found["certain"], tmp_path / "run")
    as_reference = command("dpo", toy, found["certain"], tmp_path / "other", "--reference.model", reward)
    for words in (as_policy, as_reference):
        said = refused(words)
        assert f"{reward}: this is a reward model" in said
        assert "give the folder of a language model" in said
