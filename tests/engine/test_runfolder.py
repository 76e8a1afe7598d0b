"""A run folder is made, found again, and refused when it is something else or no longer the same run."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from plaudit.engine.run_folder import RunFolder, open_run_folder
from plaudit.errors import UserError
from plaudit.files import atomic

CONFIG = {
    "model": "m",
    "steps": 100,
    "lr": 1e-05,
    "data": {"file": "a.jsonl", "workers": 2},
    "betas": (0.9, 0.95),
}


def opened(path: Path, config: dict[str, Any], may_change: frozenset[str] = frozenset()) -> RunFolder:
    with open_run_folder(path, config=config, may_change=may_change) as run:
        return run


def begun(path: Path, config: dict[str, Any]) -> RunFolder:
    run = opened(path, config)
    (run.checkpoints / "step-00000001").mkdir()
    return run


def refusal(path: Path, config: dict[str, Any], may_change: frozenset[str] = frozenset()) -> str:
    with pytest.raises(UserError) as caught:
        opened(path, config, may_change)
    return str(caught.value)


def test_a_new_run_gets_its_folder_with_the_config(tmp_path: Path) -> None:
    run = opened(tmp_path / "runs" / "first", CONFIG)
    assert (run.resumed, run.notes) == (False, ())
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "config.yaml", "lock"]
    assert yaml.safe_load(run.config.read_text()) == {**CONFIG, "betas": [0.9, 0.95]}
    names = {run.lineage, run.summary, run.model}
    assert {path.name for path in names} == {"lineage.json", "summary.json", "model"}


def test_the_same_config_goes_on(tmp_path: Path) -> None:
    begun(tmp_path, CONFIG)
    before = (tmp_path / "config.yaml").stat().st_mtime_ns
    run = opened(tmp_path, CONFIG)
    assert (run.resumed, run.notes) == (True, ())
    assert run.config.stat().st_mtime_ns == before


def test_a_key_that_is_not_a_number_equals_itself(tmp_path: Path) -> None:
    begun(tmp_path, {"floor": math.nan, "cap": math.inf})
    assert opened(tmp_path, {"floor": math.nan, "cap": math.inf}).resumed


def test_each_changed_key_is_named_with_both_values(tmp_path: Path) -> None:
    begun(tmp_path, CONFIG)
    changed = {**CONFIG, "lr": 2e-05, "steps": 200, "data": {"file": "b.jsonl"}, "seed": True}
    message = refusal(tmp_path, changed, frozenset({"steps", "save_every"}))
    assert message.splitlines() == [
        f"{tmp_path / 'config.yaml'}: the config no longer matches the run in this folder (then → now):",
        "  lr: 1e-05 → 2e-05",
        "  data.file: 'a.jsonl' → 'b.jsonl'",
        "  data.workers: 2 → (not set)",
        "  seed: (not set) → True",
        "May change when a run goes on: save_every, steps.",
        "To go on: restore the values above, or start another run with `--out` elsewhere.",
    ]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["steps"] == 100


def test_a_metric_that_was_called_otherwise_is_the_same_setting(tmp_path: Path) -> None:
    begun(tmp_path, {"keep": {"best": "held_out/error"}})
    assert opened(tmp_path, {"keep": {"best": "held_out/mae"}}).resumed


def test_a_setting_that_did_not_exist_yet_was_at_its_default(tmp_path: Path) -> None:
    run = begun(tmp_path, CONFIG)
    run.summary.write_text("{}")
    newer, defaults = {**CONFIG, "draw": {"growth": ()}}, {"draw.growth": [], "steps": 7}
    with open_run_folder(tmp_path, config=newer, defaults=defaults) as run:
        assert (run.resumed, run.notes, run.summary.exists()) == (True, (), True)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"lr": 1e-05}))
    newer = {"lr": 1e-05, "draw": {"growth": ("5:9",)}}
    with (
        pytest.raises(UserError, match=r"draw.growth: \[\] → \['5:9'\]"),
        open_run_folder(tmp_path, config=newer, defaults=defaults),
    ):
        pass


def test_true_is_not_one(tmp_path: Path) -> None:
    begun(tmp_path, {"clip": 1})
    assert "clip: 1 → True" in refusal(tmp_path, {"clip": True})


@pytest.mark.parametrize("result", ["checkpoints/step-00000001", "model", "adapter", "summary.json"])
def test_only_a_run_with_something_to_lose_is_held_to_its_config(tmp_path: Path, result: str) -> None:
    opened(tmp_path, CONFIG)
    run = opened(tmp_path, {**CONFIG, "steps": 200})
    assert (run.resumed, run.notes) == (False, ())
    assert yaml.safe_load(run.config.read_text())["steps"] == 200
    (tmp_path / result).mkdir()
    assert "steps: 200 → 100" in refusal(tmp_path, CONFIG)


def test_a_summary_does_not_vouch_for_a_result_of_other_settings(tmp_path: Path) -> None:
    run = begun(tmp_path, CONFIG)
    run.summary.write_text("{}")
    opened(tmp_path, CONFIG)
    assert run.summary.exists()
    opened(tmp_path, {**CONFIG, "steps": 200}, frozenset({"steps"}))
    assert not run.summary.exists()


@pytest.mark.parametrize("allowed", ["data.workers", "data"])
def test_a_key_that_may_change_is_brought_up_to_date_and_said(tmp_path: Path, allowed: str) -> None:
    begun(tmp_path, CONFIG)
    run = opened(tmp_path, {**CONFIG, "data": {"file": "a.jsonl", "workers": 4}}, frozenset({allowed}))
    assert run.notes == (f"{run.config}: changed for the rest of the run: data.workers: 2 → 4",)
    assert yaml.safe_load(run.config.read_text())["data"]["workers"] == 4


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    assert "run: could not be written: a file of this name is in the way" in refusal(tmp_path / "run", CONFIG)
    assert "inner: could not be written: a part of this path is a file" in refusal(
        tmp_path / "run/inner", CONFIG
    )


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"- 1\n", b""])
def test_a_config_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    begun(tmp_path, CONFIG)
    (tmp_path / "config.yaml").write_bytes(content)
    assert refusal(tmp_path, CONFIG).startswith(f"{tmp_path / 'config.yaml'}: ")


def test_a_config_that_is_not_plain_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain data"):
        opened(tmp_path / "run", {"model": object()})
    assert not (tmp_path / "run").exists()


def test_what_a_killed_run_left_half_written_is_removed_and_said(tmp_path: Path) -> None:
    opened(tmp_path, CONFIG)
    (tmp_path / "checkpoints" / ".step-00000002.0a1b2c3d.partial").mkdir()
    (tmp_path / ".summary.json.0a1b2c3d.partial").write_text("{")
    (tmp_path / ".model.replaced").mkdir()
    run = opened(tmp_path, CONFIG)
    assert [note.partition(": ")[0] for note in run.notes] == [
        str(tmp_path / "model"),
        str(tmp_path / ".summary.json.0a1b2c3d.partial"),
        str(tmp_path / "checkpoints" / ".step-00000002.0a1b2c3d.partial"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "config.yaml", "lock", "model"]
    assert list(run.checkpoints.iterdir()) == []


def test_a_run_killed_before_its_config_was_written_starts_anew(tmp_path: Path) -> None:
    opened(tmp_path, CONFIG)
    (tmp_path / "config.yaml").rename(tmp_path / ".config.yaml.0a1b2c3d.partial")
    run = opened(tmp_path, {"other": 1})
    assert not run.resumed
    assert yaml.safe_load(run.config.read_text()) == {"other": 1}


def fill_and_fail(target: Path, fault: Exception) -> None:
    with atomic.atomic_folder(target) as partial:
        (partial / "config.json").write_text("2")
        raise fault


def test_a_fault_while_a_folder_is_filled_leaves_the_old_one(tmp_path: Path) -> None:
    with atomic.atomic_folder(tmp_path / "model") as partial:
        (partial / "config.json").write_text("1")
    with pytest.raises(ZeroDivisionError):
        fill_and_fail(tmp_path / "model", ZeroDivisionError())
    assert (tmp_path / "model" / "config.json").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_fault_of_another_folder_is_not_blamed_on_the_run(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "secret"
    (tmp_path / "runs").mkdir()
    with pytest.raises(PermissionError, match="secret"):
        fill_and_fail(tmp_path / "runs" / "model", PermissionError(13, "Permission denied", str(elsewhere)))


def test_the_name_of_an_atomic_file_is_forced_to_the_disk(tmp_path, monkeypatch):
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        atomic, "sync_folder", lambda path: synced.append((path, (path / "scores.jsonl").exists()))
    )
    with atomic.AtomicFile(tmp_path / "scores.jsonl") as file:
        file.stream.write(b"{}")
    assert synced == [(tmp_path, True)]


def test_a_new_folder_that_another_writer_takes_for_an_abandoned_one_is_made_again(tmp_path, monkeypatch):
    honest, others = os.open, [os.rmdir]

    def late(path: Any, *rest: int) -> int:
        if others and str(path).endswith(".partial"):
            others.pop()(path)
        return honest(path, *rest)

    monkeypatch.setattr(os, "open", late)
    with atomic.atomic_folder(tmp_path / "model") as partial:
        (partial / "file").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
