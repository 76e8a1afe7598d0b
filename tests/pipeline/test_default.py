"""The pipeline that comes with plaudit: small in every test run, whole where there is time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.pipeline.read import DEFAULT_CONFIG
from tests.pipeline.places import seal, well

SMALL = {
    "demonstrations.n": 48,
    "prompts.n": 64,
    "sft.held-out": 0,
    "comparisons.n": 48,
    "reward.steps": 2,
    "dpo.steps": 2,
    "grpo.rounds": 1,
    "ppo.rounds": 1,
    "ppo.batch-size": 16,
    "fresh.n": 24,
    "reward-judged.world": "false",
    "evaluation.n": 24,
    "evaluation.bootstrap": 50,
}


def table(out: Path) -> dict[str, dict[str, Any]]:
    told = json.loads((out / "summary.json").read_text("utf-8"))
    return {row["policy"]: row for row in told["table"]}


@pytest.mark.slow
def test_a_small_one_goes_from_rows_to_the_report(device: torch.device, tmp_path: Path) -> None:
    out = tmp_path / "out"
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    went = well(DEFAULT_CONFIG, out, "--jobs", 1, "--device", device.type, *changes)
    found = table(out)
    assert list(found) == ["base", "sft", "dpo", "grpo", "ppo"]
    assert found["sft"]["kl"]["value"] == 0
    assert found["sft"]["win_rate"] is None
    assert {row["judge"] for name, row in found.items() if name != "sft"} == {"gold"}
    assert f"The report: {out / 'report.html'}" in went.out
    assert all(name in went.out for name in found)
    assert [look["verdict"] for look in seal(out, "sft")["checks"]]
    page = (out / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "ppo" in page


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_one_makes_better_policies(tmp_path: Path) -> None:
    """Intervals above one half, on prompts that nothing was trained on; see docs/run.md for the figures."""
    out = tmp_path / "out"
    well(DEFAULT_CONFIG, out)
    found = table(out)
    assert found["base"]["gold"]["high"] < found["sft"]["gold"]["value"]
    for name in ("dpo", "grpo", "ppo"):
        assert found[name]["win_rate_decided"]["low"] > 0.5
        assert found[name]["gold"]["value"] > found["sft"]["gold"]["value"]
        assert 0 < found[name]["kl"]["value"] < 1
