"""Preference runs on a GPU learn what they learn on a CPU."""

import json
from pathlib import Path

import pytest

from plaudit.cli.main import main
from tests.methods.reward_model.rows import make_files
from tests.models.digits import every_digit

pytestmark = pytest.mark.gpu


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", ["dpo", "kto", "bco-pair", "aot-unpaired", "tr-dpo", "wpo", "orpo"])
def test_a_gpu_learns_what_a_cpu_learns(name: str, tmp_path: Path) -> None:
    toy, files = make_files(tmp_path, rows=24)
    rows = "thumbs" if name == "kto" else "rankings" if name == "dpo" else "comparisons"
    said = ["--steps", "4", "--batch-size", "4", "--learning-rate", "0.01", "--sample.rows", "0"]
    if name == "aot-unpaired":
        said += ["--rows.threshold", "1"]
    for device in ("cpu", "cuda"):
        words = ["train", name, "--model", toy.model, "--data", files[rows], "--out", tmp_path / device]
        words += [*said, "--device", device, "--dtype", "float64"]
        if name != "orpo":  # It has no reference.
            words += ["--reference.cache", tmp_path / f"cache-{device}"]
        with every_digit():
            assert main([str(word) for word in words]) == 0
    assert losses(tmp_path / "cuda") == pytest.approx(losses(tmp_path / "cpu"), abs=1e-8)
