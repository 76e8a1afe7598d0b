"""Studies on a pretrained model and on prompts and problems that others made; docs/real-model.md tells them.

    python -m benchmarks.real --out lab --seeds 3                   # from the hub
    python -m benchmarks.real --out lab --seeds 3 --sources DIR     # or from DIR, what lies there

`DIR/HuggingFaceTB/SmolLM2-135M-Instruct` is a model's folder, `DIR/google/IFEval` one with a file of rows.
Begun again, a study goes on. Intervals are 95 %, over prompts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.read import read_records
from plaudit.data.records import Prompt, Task, plain_text
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files import hub
from plaudit.rewards.verifiable.instructions import InstructionReward, InstructionVerdicts

CONFIGS = Path(__file__).parents[1] / "examples" / "pipelines" / "smollm2"
Held = Callable[[InstructionVerdicts], Sequence[bool]]
"""What is counted of an answer: whether all of its instructions hold, or each of some kinds."""


def instructions(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO by checkable instructions: IFEval before and after, and kinds that no prompt of training had."""
    document = yaml.safe_load((CONFIGS / "instructions.yaml").read_text("utf-8"))
    unseen = frozenset(next(iter(document["stages"]))["prompts"]["without"])
    counted: Mapping[str, Held] = {
        "prompt level, strict": lambda held: [all(strict for _, strict, _ in held)],
        "kinds that were rewarded": lambda held: [strict for kind, strict, _ in held if kind not in unseen],
        "kinds that were held out": lambda held: [strict for kind, strict, _ in held if kind in unseen],
    }
    yield "seed", "IFEval", "before, %", "after, %", "difference, points"
    for seed in range(lab.seeds or 1):
        folder, _ = lab.piped("instructions", seed, document, changes)
        stages = folder / "stages"
        queried = {
            plain_text(row.prompt): row for row in _prompts(hub.local_path("google/IFEval", "dataset"))
        }
        trained = {plain_text(row.prompt) for row in _prompts(stages / "prompts" / "rows.jsonl")}
        assert not trained & queried.keys(), "prompts of the test were trained on"
        before, after = _verdicts(stages / "ifeval" / "answers.jsonl", queried)
        for name, held in counted.items():
            yield str(seed), name, *_compared(before, after, held)


def _prompts(path: Path) -> Iterator[Prompt]:
    return (row for row in read_records(path).records if isinstance(row, Prompt))


def _verdicts(path: Path, queried: Mapping[str, Prompt]) -> list[Mapping[str, InstructionVerdicts]]:
    """Of each policy, in the order of the file, what holds of its answer to each prompt."""
    tasks: dict[str, list[Task]] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        facts = queried[row["prompt"]].metadata
        task = Task(prompt=row["prompt"], answers=(row["text"],), ended=(True,), metadata=facts)
        tasks.setdefault(row["policy"], []).append(task)
    checkers = InstructionReward()
    return [
        {
            plain_text(task.prompt): verdict
            for task, (verdict,) in zip(row, checkers.verdicts(row), strict=True)
            if verdict is not None
        }
        for row in tasks.values()
    ]


def _compared(
    before: Mapping[str, InstructionVerdicts], after: Mapping[str, InstructionVerdicts], held: Held
) -> tuple[str, str, str]:
    """Both shares and their difference, instruction by instruction, with prompts drawn anew."""
    pairs = [
        (at, *both)
        for at, prompt in enumerate(sorted(before.keys() & after.keys()))
        for both in zip(held(before[prompt]), held(after[prompt]), strict=True)
    ]
    prompt_B, before_B, after_B = np.array(pairs, dtype=float).T
    at_B, resampling = prompt_B.astype(int), Resampling()
    first, second = (bootstrap_mean(held_B, at_B, resampling) for held_B in (before_B, after_B))
    difference = bootstrap_mean(after_B - before_B, at_B, resampling, share=False)
    return _text(first), _text(second), _text(difference, sign="+")


def _text(estimate: Estimate, sign: str = "") -> str:
    assert estimate.low is not None
    assert estimate.high is not None
    value, low, high = (f"{100 * end:{sign}.1f}" for end in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})"


if __name__ == "__main__":
    run_studies(__doc__, {"instructions": instructions})
