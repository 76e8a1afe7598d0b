"""What a user can get wrong about a run, each with a message that says what, where and what to do."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.engine.toy import Toy, demonstrations, make_model, write_rows
from tests.engine.toy_command import Command, Done, outcome, plaudit, sft

SHORT = ("--steps", 3, "--sample.rows", 0)


@pytest.fixture(scope="module")
def finished(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert run(toy, out).code == 0
    return out


def run(toy: Toy, out: Path, *more: object) -> Done:
    return plaudit(*sft(toy, out, *SHORT, *more))


def refused(done: Done, *words: str) -> None:
    assert done.code == 2, done
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.one_in(25)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", 0), "steps must be at least 1, not 0"),
        (("--epochs", -1), "epochs must be a number above 0, not -1.0"),
        (("--epochs", "inf"), "epochs must be a number above 0, not inf"),
        (("--epochs", "nan"), "--epochs: expected a number, got 'nan'"),
        (("--learning-rate", 0), "learning_rate must be a number above 0, not 0.0"),
        (("--batch-size", 0), "batch_size must be at least 1, not 0"),
        (("--lerning-rate", 1), "unknown option --lerning-rate; did you mean --learning-rate?"),
        (("--optimizer.clp", 1), "unknown option --optimizer.clp; did you mean --optimizer.clip?"),
        (("--safety.on-nonfinite", "rase"), "one of raise, skip, rollback, got 'rase'; did you mean raise?"),
        (("--safety.skip-limit", -1), "safety.skip_limit must be at least 0, not -1"),
        (("--sample.tokens", 0), "sample.tokens must be at least 1"),
        (("--sample.rows", -1), "sample.rows must be at least 0"),
        (("--held-out", 1.5), "held_out is a share from 0 to below 1, or a file, not 1.5"),
        (("--held-out", "no.jsonl"), "no.jsonl: there is no such file. Check the name"),
        (("--keep.use-best", "--held-out", 0), "keep.use_best needs held-out rows: set --held-out to"),
        (("--keep.best", "held_out/los"), "'held_out/los' is not one of held_out/loss, held_out/token_ac"),
        (("--keep.best", "held_out/los"), "did you mean held_out/loss?"),
        (("--optimizer.name", "adam"), "'adam' is not one of adamw, sgd nor of the form package.module:fu"),
        (("--optimizer.name", "nope:f"), "optimizer.name: 'nope:f' cannot be imported: No module named"),
        (("--optimizer.name", "tests.engine.toy:WORDS"), "is a tuple, and a function is needed"),
        (("--optimizer.name", "tests.engine.toy:write_rows"), "f(parameter groups, lr=…): missing a requi"),
        (("--optimizer.name", "tests.engine.toy_optimizers:nothing"), "gave a NoneType, not a torch.opt"),
        (("--optimizer.name", "tests.engine.toy_optimizers:forgetful"), "remembers a dict as 'past'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(toy, tmp_path, options, words):
    refused(run(toy, tmp_path / "run", *options), words)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.slow
def test_bad_rows_above_the_threshold_can_be_let_through_in_the_same_folder(toy: Toy, tmp_path: Path) -> None:
    mixed = write_rows(tmp_path / "mixed.jsonl", [*demonstrations(20), {"prompt": "a", "completion": 3}])
    first = run(replace(toy, data=mixed), tmp_path / "run")
    refused(first, "mixed.jsonl: 1 of 21 rows are bad (4.8%)", "mixed.jsonl:21: field completion: expected")
    assert len((tmp_path / "run" / "quarantine-data.jsonl").read_text().splitlines()) == 1
    done = run(replace(toy, data=mixed), tmp_path / "run", "--rows.threshold", 0.05)
    assert done.code == 0
    assert "1 of 21 rows are bad and were put into" in done.err


@pytest.mark.slow
def test_data_and_held_out_rows_of_one_name_are_put_aside_apart(toy: Toy, tmp_path: Path) -> None:
    bad = [*demonstrations(3), {"prompt": "a", "completion": 3}]
    data, held = (write_rows(tmp_path / name / "rows.jsonl", bad) for name in ("data", "held"))
    done = run(replace(toy, data=data), tmp_path / "run", "--held-out", held, "--rows.threshold", 0.5)
    assert done.code == 0
    assert sorted(path.name for path in (tmp_path / "run").glob("quarantine*")) == [
        "quarantine-data.jsonl",
        "quarantine-held-out.jsonl",
    ]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"prompt": "a", "chosen": "b", "rejected": "c"}],
            "rows.jsonl:1: this row is a comparison, and sft",
        ),
        ([{"prompt": "a", "chosen": "b", "rejected": "c"}], "plaudit train preferred"),
        ([{"prompt": "a"}] * 3, "this row is a prompt, and sft learns from demonstrations; every row needs"),
        ([{"prompt": "a", "completion": 3}] * 3, "rows.jsonl: no known layout; the rows have the fields"),
        ([{"prompt": "a", "completion": "cat " * 300}], "an answer of 302 tokens does not fit in 250"),
        ([], "rows.jsonl: the file is empty"),
    ],
)
def test_rows_that_cannot_be_learnt_are_named(toy, tmp_path, rows, words):
    data = write_rows(tmp_path / "rows.jsonl", rows)
    refused(run(replace(toy, data=data), tmp_path / "run", "--max-length", 250), words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("long_rows", "advice"), [(2, "leave them out with --rows.threshold 0.5"), (4, "Mend")]
)
def test_advice_about_refused_rows_can_help(toy: Toy, tmp_path: Path, long_rows: int, advice: str) -> None:
    rows = [*[{"prompt": "a", "completion": "cat " * 300}] * long_rows, *demonstrations(4 - long_rows)]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    done = run(replace(toy, data=data), tmp_path / "run", "--max-length", 250, "--held-out", 0)
    refused(done, f"{long_rows} of 4 rows cannot be trained", advice)
    assert (long_rows < 4) == ("--rows.threshold 0.5" in done.err)
    assert "without them no row would be left" in done.err or long_rows < 4
    if long_rows < 4:
        options = ("--max-length", 250, "--held-out", 0, "--rows.threshold", 0.5)
        assert run(replace(toy, data=data), tmp_path / "run", *options).code == 0


def test_an_empty_held_out_file_is_named(toy: Toy, tmp_path: Path) -> None:
    empty = write_rows(tmp_path / "empty.jsonl", [])
    refused(run(toy, tmp_path / "run", "--held-out", empty), "empty.jsonl: the file is empty")


@pytest.mark.slow
def test_a_held_out_prompt_that_is_also_trained_is_told(toy: Toy, tmp_path: Path) -> None:
    rows = demonstrations(4)
    held = write_rows(tmp_path / "held.jsonl", [rows[1], {**rows[2], "prompt": "something else: "}])
    data = write_rows(tmp_path / "data.jsonl", rows)
    done = run(replace(toy, data=data), tmp_path / "run", "--held-out", held)
    assert done.code == 0, done.err
    assert f"1 of 2 rows in {held} have a prompt that is also trained" in done.err


def test_the_best_of_one_row_cannot_be_chosen(toy: Toy, tmp_path: Path) -> None:
    one = write_rows(tmp_path / "one.jsonl", demonstrations(1))
    done = run(replace(toy, data=one), tmp_path / "run", "--keep.use-best")
    refused(done, "keep.use_best needs held-out rows, and none is left")


@pytest.mark.slow
def test_each_key_that_no_longer_matches_is_named(toy: Toy, finished: Path) -> None:
    done = run(toy, finished, "--batch-size", 5, "--optimizer.clip", 0.5, "--keep.best-is", "highest")
    refused(
        done,
        f"{finished / 'config.yaml'}: the config no longer matches the run in this folder (then → now):\n"
        "  batch_size: 4 → 5\n"
        "  optimizer.clip: 1.0 → 0.5\n"
        "  keep.best_is: 'lowest' → 'highest'\n"
        "May change when a run goes on: allow, check, device, keep.last, keep.use_best, memory, ",
        "This run is finished and takes no further steps: ",
        f"start another run with `--model {finished / 'model'}` and `--out` elsewhere",
    )


@pytest.mark.slow
def test_a_run_that_was_refused_is_not_called_unfinished(toy: Toy, tmp_path: Path) -> None:
    refused(plaudit("train", "reward", *sft(toy, tmp_path / "run", *SHORT)[2:]), "nobody judged its answer")
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    for command in (
        ("eval", "reward", tmp_path / "run", "--data", pairs),
        ("eval", "policy", tmp_path / "run", "--prompts", pairs, "--judge", "length:1-9"),
        ("sample", "--model", tmp_path / "run", "--prompt", "a"),
    ):
        refused(
            plaudit(*command),
            f"{tmp_path / 'run'}: this run has learnt nothing yet: it was refused, or ended before its first",
        )


@pytest.mark.slow
def test_edited_rows_and_another_base_model_are_found(toy: Toy, tmp_path: Path) -> None:
    mine = Toy(model=tmp_path / "base", data=tmp_path / "rows.jsonl")
    shutil.copytree(toy.model, mine.model)
    shutil.copy(toy.data, mine.data)
    assert run(mine, tmp_path / "run").code == 0
    mine.data.write_text(mine.data.read_text("utf-8").replace("cat", "dog"), "utf-8")
    make_model(mine.model, seed=1)
    done = run(mine, tmp_path / "run")
    refused(
        done,
        "what the run was started with has changed since (then → now):",
        f"  data: {mine.data}: ",
        "  model: ",
        "… → ",
        "To go on: restore it, or start another run",
    )
    assert "tokenizer" not in done.err


def test_a_finished_run_says_so_and_does_nothing(toy: Toy, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.name != "lock"}
    done = run(toy, finished)
    assert (done.code, done.out) == (0, "")
    assert done.err == (
        f"note: {finished}: this run is finished; nothing was done. Another run needs another --out\n"
    )
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.name != "lock"}


@pytest.mark.slow
def test_a_model_that_was_deleted_is_written_again(toy: Toy, tmp_path: Path) -> None:
    assert run(toy, tmp_path).code == 0
    before = outcome(tmp_path)
    shutil.rmtree(tmp_path / "model")
    assert run(toy, tmp_path).code == 0
    assert outcome(tmp_path) == before


@pytest.mark.slow
def test_the_best_checkpoint_becomes_the_model_also_when_asked_for_later(toy: Toy, tmp_path: Path) -> None:
    """Where a high loss is good, the first look is the best one and the last weights are not."""
    options = ("--steps", 6, "--evaluate-every", 2, "--keep.best-is", "highest")
    assert run(toy, tmp_path, *options).code == 0
    last = outcome(tmp_path).weights
    assert run(toy, tmp_path, *options, "--keep.use-best").code == 0
    best = outcome(tmp_path).weights
    assert best != last
    assert tensors(tmp_path / "model") == tensors(tmp_path / "checkpoints" / "step-00000002") != {}
    assert run(toy, tmp_path, *options).code == 0
    assert outcome(tmp_path).weights == last


@pytest.mark.slow
def test_a_run_is_repeated_from_its_own_config(toy: Toy, tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert run(toy, first, "--optimizer.beta2", 0.95).code == 0
    printed = plaudit("train", "sft", "--config", first / "config.yaml", "--print-config")
    again = plaudit("train", "sft", "--config", first / "config.yaml", "--out", tmp_path / "again")
    assert printed.out == (first / "config.yaml").read_text("utf-8")
    assert yaml.safe_load(printed.out)["optimizer"]["beta2"] == 0.95
    assert again.code == 0
    assert outcome(tmp_path / "again") == outcome(first)


def test_two_runs_in_one_folder(toy: Toy, tmp_path: Path) -> None:
    slow = sft(toy, tmp_path, *SHORT, "--optimizer.name", "tests.engine.toy_optimizers:slow")
    first = Command(slow)
    first.until_said("a step is taken")
    second = plaudit(*slow)
    first.kill_when(lambda: True)
    refused(second, f"{tmp_path}: another run is using this folder (process ", "or choose another folder")


def test_a_folder_of_something_else_is_left_alone(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    refused(run(toy, tmp_path), "this folder is not a run (it has no config.yaml) and is not empty: thesis")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def tensors(folder: Path) -> dict[str, bytes]:
    from safetensors.numpy import load_file

    found = load_file(folder / "model.safetensors")
    return {name.removeprefix("model.model.").removeprefix("model."): found[name].tobytes() for name in found}
