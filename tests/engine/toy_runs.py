"""Run folders with plausible figures, written as a trainer writes them: through the sinks."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.engine import run_folder
from plaudit.engine.run_folder import Lineage
from plaudit.engine.sinks.base import RunStart, Sample, summarise
from plaudit.engine.sinks.files import JsonlSink, read_notes, read_reports
from plaudit.engine.step_report import Number, StepReport
from plaudit.files import atomic

CONFIG = """\
model: models/base
data: data/support.jsonl
out: runs/first
epochs: 4.0
batch_size: 8
learning_rate: 2.0e-05
optimizer:
  schedule: cosine
  warmup: 0.03
"""

ORIGIN = Lineage(
    data={"data/support.jsonl": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    model="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    template="fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9",
    tokenizer="baa5a0964d3320fbc0c6a922140453c8513ea24ab8fd0577034804a967248096",
    seed=7,
    code={"plaudit": "0.1.0", "commit": "f856f57dabd2b3f2d5c98cc842c0ff85b998ceff", "changed": True},
    libraries={"torch": "2.13.0", "transformers": "5.23.0", "tokenizers": "0.23.1", "safetensors": "0.8.0"},
    machine={"python": "3.11.7", "platform": "Linux-6.1-x86_64", "processor": "AVX512", "threads": 2},
)

PAIR = (
    Sample(
        prompt="How do I reset my password?",
        completion="Open Settings, choose Security, then Reset password. A link comes by e-mail.",
        expected="Open Settings, choose Security, then Reset password. The link is good for a day.",
    ),
    Sample(prompt="Name a fruit.", completion="A pear.", expected="A pear."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRun:
    steps: int = 100
    """How many steps the run has."""
    done: int | None = None
    """How many were taken before it broke off; None for all, with a summary."""
    evaluate_every: int = 10
    """Steps between held-out figures; 0 for none."""
    spoilt: Callable[[int, dict[str, Number]], dict[str, Number]] = lambda step, values: values
    notes: Sequence[str] = ()
    """What the run remarks before its first step."""


def write_run(folder: Path, run: ToyRun) -> Path:
    atomic.make_folder(folder)
    atomic.write_text(folder / "config.yaml", CONFIG)
    run_folder.write_lineage(folder / "lineage.json", ORIGIN)
    sink = JsonlSink(folder)
    sink.open(RunStart(name=folder.name, steps=run.steps))
    for note in run.notes:
        sink.note(note)
    chance = random.Random(0)
    done = run.steps if run.done is None else run.done
    for step in range(1, done + 1):
        sink.log(report(step, run, chance))
        if run.steps <= 1000 and (step % 25 == 0 or step == run.steps):
            sink.sample(step, answers(step))
    if run.done is not None:
        sink.close(None)
        return folder
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    sink.close(summarise(read_reports(folder), read_notes(folder)) if run.steps <= 1000 else summarise([]))
    return folder


def answers(step: int) -> list[Sample]:
    """What a model that learns would say: the more of the right answer, the later."""
    if step >= 75:
        return list(PAIR)
    weaker = ("I", "I am not sure", "I am not sure what you mean. I am not sure what you mean. I am not sure")
    return [Sample(prompt=row.prompt, completion=weaker[step // 25], expected=row.expected) for row in PAIR]


def report(step: int, run: ToyRun, chance: random.Random) -> StepReport:
    """Figures as a run of this length would give them."""
    progress = step / run.steps
    loss = 1.75 + 1.45 * math.exp(-4 * progress) + chance.gauss(0, 0.05)
    values: dict[str, Number] = {
        "loss": loss,
        "token_accuracy": min(0.99, 0.86 - 0.13 * loss + chance.gauss(0, 0.01)),
        "length_mean": 41 + chance.gauss(0, 2),
        "length_max": 90 + chance.randrange(30),
        "tokens": 2048,
        "rows": 8,
        "grad_norm": 0.6 + 2.5 * math.exp(-8 * progress) + abs(chance.gauss(0, 0.1)),
        "learning_rate": 2e-5 * min(1.0, progress / 0.03) * (0.55 + 0.45 * math.cos(math.pi * progress)),
    }
    if run.evaluate_every and (step % run.evaluate_every == 0 or step == run.steps):
        held_out = 1.84 + 1.35 * math.exp(-4 * progress)
        values |= {"held_out/loss": held_out, "held_out/token_accuracy": 0.85 - 0.13 * held_out}
        values["held_out/perplexity"] = math.exp(held_out)
    seconds = 0.8 + abs(chance.gauss(0, 0.04))
    timing = {"seconds": seconds, "tokens_per_second": 2048 / seconds, "memory_mib": 812.0, "mfu": 0.41}
    return StepReport(
        step=step, steps=run.steps, epoch=4 * progress, values=run.spoilt(step, values), timing=timing
    )
