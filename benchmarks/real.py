"""Studies on a pretrained model and on prompts and problems that others made; docs/real-model.md tells them.

    python -m benchmarks.real --out lab --seeds 3                   # from the hub
    python -m benchmarks.real --out lab --seeds 3 --sources DIR     # or from DIR, what lies there

`DIR/HuggingFaceTB/SmolLM2-135M-Instruct` is a model's folder, `DIR/google/IFEval` one with a file of rows.
Begun again, a study goes on. Intervals are 95 %, over prompts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

import numpy as np
import yaml

from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from benchmarks.turns import PEER, ROOT
from plaudit.data.read import read_records
from plaudit.data.records import Prompt, Task, plain_text
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files import hub
from plaudit.rewards.registry import resolve_reward
from plaudit.rewards.verifiable.instructions import InstructionReward, InstructionVerdicts

CONFIGS = ROOT / "examples" / "pipelines" / "smollm2"
PEER_ROUNDS = 20
"""Of GRPO, on either side."""
Held = Callable[[InstructionVerdicts], Sequence[bool]]
"""What is counted of an answer: whether all of its instructions hold, or each of some kinds."""


def instructions(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO by checkable instructions: IFEval before and after, and kinds that no prompt of training had."""
    document = document_of("instructions")
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


def sums(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO by the number, on sums and differences of two-digit numbers: what is right of eight answers."""
    yield from _answered(lab, "sums", changes, {"additions": " + ", "differences": " - "})


def own_answers(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """Rejection sampling, pairs and thumbs of the model's own answers, as many as GRPO draws."""
    yield from _answered(lab, "own-answers", changes)


def next_to_trl(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO on sums beside TRL's, both in float32 with TRL's schedule: time, memory, and what each learnt."""
    yield "seed", "side", "s / step", "MiB", "reward, steps 1–5", "the last 5", "right, %", "one of 8, %"
    schedule = {"schedule": "linear", "warmup": 0, "floor": 0}
    same = [f"grpo.optimizer.{name}={value}" for name, value in schedule.items()]
    same += ["grpo.dtype=float32", f"grpo.rounds={PEER_ROUNDS}"]
    document = document_of("sums")
    for seed in range(lab.seeds or 1):
        peer = _peer_model(lab, seed)
        document["stages"][-1]["sums"]["policies"] = ["$model", "$grpo", str(peer)]
        folder, _ = lab.piped("next-to-trl", seed, document, [*same, *changes])
        stages = folder / "stages"
        _, *shares = [[row["value"] for row in policy["passes"]] for policy in _policies(folder)]
        runs = {"plaudit": stages / "grpo" / "run", "TRL 1.16": peer.parent}
        for (side, run), right in zip(runs.items(), shares, strict=True):
            steps = [*map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())]
            costs = [step.get("timing", step) for step in steps]
            seconds = median(cost["seconds"] for cost in costs[1:])
            memory = max(cost["memory_mib"] for cost in costs)
            first, last = (fmean(step["reward"] for step in part) for part in (steps[:5], steps[-5:]))
            cells = f"{seconds:.1f}", f"{memory:,.0f}", f"{first:.2f}", f"{last:.2f}"
            yield str(seed), side, *cells, *(_text(Estimate(**share)) for share in right)


def _peer_model(lab: Lab, seed: int) -> Path:
    """What TRL makes of the same model and problems, in the environment of ``make bench-peer``."""
    out = lab.folder / "next-to-trl" / f"trl-{seed}"
    if not (out / "model").exists():
        shutil.rmtree(out, ignore_errors=True)
        model = hub.local_path("HuggingFaceTB/SmolLM2-135M-Instruct", "model").absolute()
        words = [model, CONFIGS / "sums-train.jsonl", out, "--steps", str(PEER_ROUNDS), "--seed", str(seed)]
        subprocess.run([PEER, "-m", "benchmarks.peer_real", *words], cwd=ROOT, check=True)
    return out / "model"


def _policies(folder: Path) -> list[Any]:
    return json.loads((folder / "stages" / "sums" / "policies.json").read_text("utf-8"))["policies"]


def _answered(
    lab: Lab, name: str, changes: Sequence[str], parts: Mapping[str, str] = MappingProxyType({})
) -> Table:
    """How each policy of a pipeline answers what no one was trained on; ``parts`` are known by a word."""
    head = ("seed", "policy", "right, %", "one of 8, %", "ended, %", "tokens", "nats from the start")
    yield *head, *(f"{part}, %" for part in parts), "a number alone, %"
    document = document_of(name)
    for seed in range(lab.seeds or 1):
        folder, _ = lab.piped(name, seed, document, changes)
        for policy in _policies(folder):
            passed = [Estimate(**row["value"]) for row in policy["passes"]]
            ended, length, kl = (Estimate(**policy[at]) for at in ("finished", "length", "kl"))
            shares = map(_text, (*passed, ended))
            cells = (*shares, f"{length.value:.1f}", f"{kl.value:.1f}")
            yield str(seed), policy["name"], *cells, *_counted(folder, policy["name"], parts.values())


def _counted(folder: Path, policy: str, parts: Iterable[str]) -> Iterator[str]:
    """Of a policy's answers the share right in each part, and of all the share that is a number alone."""
    rows = read_records(CONFIGS / "sums-test.jsonl").records
    truth = {plain_text(row.prompt): row.answer for row in rows if isinstance(row, Prompt)}
    lines = (folder / "stages" / "sums" / "answers.jsonl").read_text("utf-8").splitlines()
    answers = [row for row in map(json.loads, lines) if row["policy"] == policy]
    queries = [
        Task(
            prompt=row["prompt"],
            answers=(row["text"],),
            ended=(row["ended"],),
            reference_answer=truth[row["prompt"]],
        )
        for row in answers
    ]
    scores = [score for (score,) in resolve_reward("number").scores(queries)]
    for part in parts:
        found = [score or 0.0 for score, row in zip(scores, answers, strict=True) if part in row["prompt"]]
        yield f"{100 * fmean(found):.1f}" if found else "–"
    single = [bool(re.fullmatch(r"-?\d+\.?", row["text"].strip())) for row in answers]
    yield f"{100 * fmean(single):.1f}"


def document_of(name: str) -> Any:
    """A config that is shipped; its files lie beside it, wherever the hub's may."""
    text = (CONFIGS / f"{name}.yaml").read_text("utf-8")
    return yaml.safe_load(text.replace("examples/pipelines/smollm2", str(CONFIGS)))


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


STUDIES = {"instructions": instructions, "sums": sums, "own-answers": own_answers, "next-to-trl": next_to_trl}

if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
