"""Releases that this version was never tried with are named: at a run's start, beneath an error."""

import json
import re
from pathlib import Path

import pytest
import torch
import transformers

import plaudit
from plaudit.errors import UserError
from plaudit.releases import TRIED, untried_releases, untried_releases_named
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.run import ProgressReporter, StageSelection, run_pipeline
from tests.engine.toy import make_model

NEWER = (
    f"transformers {transformers.__version__} is newer than 4.0, "
    f"with which plaudit {plaudit.__version__} was tried"
)


@pytest.fixture
def older_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this version had been tried with an old transformers, and with this torch built otherwise."""
    torch_release = torch.__version__.partition("+")[0]
    monkeypatch.setattr("plaudit.releases.TRIED", {"torch": torch_release, "transformers": "4.0"})


def test_what_was_tried_is_what_the_tests_are_run_with():
    constraints = Path(__file__).parents[1].joinpath("constraints.txt").read_text("utf-8")
    assert dict(TRIED) == {name: re.search(rf"^{name}==(\S+)$", constraints, re.M)[1] for name in TRIED}  # pyright: ignore[reportOptionalSubscript]


def test_releases_up_to_the_tried_ones_are_no_news(monkeypatch):
    monkeypatch.setattr("plaudit.releases.TRIED", {"torch": "99.0", "no-such-library": "1.0"})
    assert untried_releases() == ()


@pytest.mark.usefixtures("older_trial")
def test_a_run_says_so_at_its_start_and_in_its_lineage(tmp_path, capsys):
    make_model(tmp_path / "base")
    rows = [{"prompt": f"{n}", "completion": "a word"} for n in range(6)]
    files = {"model": tmp_path / "base", "out": tmp_path / "run"}
    run = plaudit.train("sft", **files, data=rows, steps=1, device="cpu")
    assert NEWER in capsys.readouterr().err
    assert json.loads((run.folder / "lineage.json").read_text())["untried"] == [NEWER]


@pytest.mark.usefixtures("older_trial")
def test_a_pipeline_says_so_before_its_first_stage(tmp_path):
    config = tmp_path / "rows.yaml"
    config.write_text("stages:\n  - rows: {do: world-rows, make: prompts, n: 4}\n")
    said: list[str] = []
    run_pipeline(
        read_pipeline(config), tmp_path / "out", StageSelection(), ProgressReporter(message=said.append)
    )
    assert said[0] == f"note: {NEWER}"


@pytest.mark.usefixtures("older_trial")
def test_an_unexpected_error_says_so_and_a_users_own_does_not():
    with pytest.raises(ZeroDivisionError) as caught, untried_releases_named(), untried_releases_named():
        _ = 1 / 0
    assert caught.value.__notes__ == [NEWER]
    with pytest.raises(UserError) as refused, untried_releases_named():
        raise UserError("rows.jsonl, row 3: no prompt")
    assert not hasattr(refused.value, "__notes__")
