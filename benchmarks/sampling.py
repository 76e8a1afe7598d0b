"""plaudit's sampler against transformers' ``generate``: the same model, prompts and settings, in turn.

python -m benchmarks.sampling            prints a table for each shape
python -m benchmarks.sampling --save     and keeps them in RESULTS.md
python -m benchmarks.sampling --uneven   four times as many answers, of very different lengths
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.measure import MIB
from benchmarks.table import machine, markdown, save_section
from benchmarks.turns import DEVICES
from benchmarks.work import SHAPES, Shape, model_of, tokenizer_of
from plaudit.engine.metrics import matmul_rate
from plaudit.models.load import device_of, load_model, precision
from plaudit.rollouts.local import MAX_BATCH_SIZE, LocalSampler
from plaudit.rollouts.sampler import SamplingSettings

ROOT = Path(__file__).resolve().parents[1]
TITLE = "Sampling against transformers' generate"
UNEVEN_TITLE = f"{TITLE}, answers of uneven length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be answered.

    Example: ``Workload(prompts=8, answers=8, prompt=128, completion=64)``
    """

    prompts: int = 8
    """How many prompts."""
    answers: int = 8
    """Answers to each."""
    prompt: int = 128
    """Tokens of a prompt."""
    completion: int = 64
    """Tokens of an answer, unless it ends before."""
    uneven: bool = False
    """Whether each answer has a length of its own, a fourth of that on average, and no more than that."""

    def lengths(self) -> list[int]:
        """The room of each answer, those to a prompt one after another."""
        generator, count = random.Random(1), self.prompts * self.answers
        if not self.uneven:
            return [self.completion] * count
        drawn = (generator.expovariate(4 / self.completion) for _ in range(count))
        return [max(1, min(self.completion, round(length))) for length in drawn]

    def words(self, shape: Shape) -> list[str]:
        """The prompts, a token for each word."""
        generator = random.Random(0)
        return [
            " ".join(f"w{generator.randrange(shape.vocabulary - 3)}" for _ in range(self.prompt))
            for _ in range(self.prompts)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one process reports.

    Example: ``Measured(seconds=(2.1, 1.9), tokens=4090, greedy=((5, 9), …), mib=310.0, rate=1.4e11)``
    """

    seconds: tuple[float, ...]
    """Of each time, the first one left out."""
    tokens: int
    """That were drawn each time."""
    greedy: tuple[tuple[int, ...], ...]
    """The likeliest answer to each prompt, as tokens."""
    mib: float
    """The most that was resident, above what was resident before the first time."""
    rate: float
    """Floating-point operations a second of a large product in this process."""


def ours(
    folder: Path, workload: Workload, words: Sequence[str], device: str
) -> Callable[[int, bool], list[list[int]]]:
    """A function of a seed, and whether to be greedy, that gives all answers as tokens."""
    sampler = LocalSampler(folder, device=device)

    def answer(seed: int, greedy: bool) -> list[list[int]]:
        settings = SamplingSettings(temperature=0 if greedy else 1, max_tokens=workload.completion, seed=seed)
        prompts = [sampler.encode(text) for text in words]
        requests = sampler.requests_for(prompts, settings, 1 if greedy else workload.answers)
        if not greedy:
            requests = [
                replace(request, max_new_tokens=length)
                for request, length in zip(requests, workload.lengths(), strict=True)
            ]
        return [list(rollout.ids) for rollout in sampler.generate_requests(requests, settings)]

    return answer


def theirs(
    folder: Path, workload: Workload, words: Sequence[str], device: str
) -> Callable[[int, bool], list[list[int]]]:
    """The same from ``generate``."""
    where = device_of(device)
    # As our sampler loads it: in bfloat16 on a GPU that has it.
    model: Any = load_model(folder, dtype=precision("auto", where).products, device=where)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(list(words), return_tensors="pt", add_special_tokens=False).input_ids.to(where)

    def answer(seed: int, greedy: bool) -> list[list[int]]:
        torch.manual_seed(seed)
        each = 1 if greedy else workload.answers
        # Answers that it ends itself: it has one length for all.
        room = [workload.completion] * len(ids) if greedy else workload.lengths()
        batch = MAX_BATCH_SIZE[where.type] // workload.answers
        return [
            made
            for first in range(0, len(ids), batch)
            for made in _generated(model, ids[first : first + batch], room[first * each :], each, greedy)
        ]

    return answer


def _generated(
    model: Any, ids: torch.Tensor, room: Sequence[int], each: int, greedy: bool
) -> list[list[int]]:
    """So many answers to each prompt of one batch, each ended where it has no room left."""
    room_N = torch.tensor(room[: len(ids) * each], device=ids.device)

    def ended(ids_NL: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return ids_NL.shape[1] - ids.shape[1] >= room_N

    how: Mapping[str, object] = (
        {"do_sample": False} if greedy else {"do_sample": True, "top_k": 0, "temperature": 1.0}
    )
    with torch.inference_mode():
        made = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=int(room_N.max()),
            num_return_sequences=each,
            pad_token_id=0,
            stopping_criteria=[ended],
            **how,
        )[:, ids.shape[1] :]
    return [[token for token in row if token != 0] for row in made.tolist()]


SIDES = {"plaudit": ours, "generate": theirs}
"""Who answers."""
UNEVEN = Workload(prompts=32, completion=128, uneven=True)
"""Answers of which most are short and some are long."""


def measured_side(
    side: str, folder: Path, shape: Shape, workload: Workload, times: int, device: str = "cpu"
) -> Measured:
    """In this process: some times, and once greedily."""
    answer = SIDES[side](folder, workload, workload.words(shape), device)
    greedy = answer(0, True)
    before = _most_memory(device)
    seconds, tokens = list[float](), list[int]()
    for seed in range(times + 1):
        began = time.perf_counter()
        tokens.append(sum(map(len, answer(seed, False))))
        seconds.append(time.perf_counter() - began)
    return Measured(
        seconds=tuple(seconds[1:]),
        tokens=round(statistics.fmean(tokens[1:])),
        greedy=tuple(map(tuple, greedy)),
        mib=_most_memory(device) - before,
        rate=matmul_rate(device, precision("auto", device_of(device)).products),
    )


def _most_memory(device: str) -> float:
    """The most so far, in MiB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def compare(shape: str, workload: Workload, given: argparse.Namespace) -> str:
    """Both sides in turn, each in a process of its own; a table with the limit of the machine."""
    found: dict[str, list[Measured]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_of(SHAPES[shape]).save_pretrained(folder)
        model_of(SHAPES[shape]).save_pretrained(folder)
        for _ in range(given.rounds):
            for side in SIDES:
                found[side].append(_in_its_own_process(side, folder, shape, given))
                print(".", end="", file=sys.stderr, flush=True)
    mine, other = found["plaudit"], found["generate"]
    alike = sum(a == b for a, b in zip(mine[0].greedy, other[0].greedy, strict=True))
    limit = _needed(SHAPES[shape], workload) / max(own.rate for own in mine)
    rows = [(side, *_cells(measured, _seconds(mine))) for side, measured in found.items()]
    rows.append(
        (
            "the products alone, at the matrix-product rate",
            f"{limit:.2f}",
            "",
            f"{limit / _seconds(mine):.2f} ×",
            "",
        )
    )
    head = ("side", "s", "tokens / s", "slower than ours", "MiB on top")
    of_lengths, up_to = (", answers of uneven length", "up to ") if workload.uneven else ("", "")
    return (
        f"### {shape}{of_lengths}\n\n{workload.prompts} prompts of {workload.prompt} tokens, "
        f"{workload.answers} answers of {up_to}{workload.completion} each, temperature 1, {given.threads} "
        f"threads. Greedy answers are the same token for token to {alike} of {workload.prompts} prompts."
        f"\n\n{markdown(head, rows)}"
    )


def _in_its_own_process(side: str, folder: str, shape: str, given: argparse.Namespace) -> Measured:
    words = [sys.executable, "-m", "benchmarks.sampling", "--side", side, "--folder", folder]
    words += ["--shapes", shape, "--times", str(given.times), "--threads", str(given.threads)]
    words += ["--device", given.device, *["--uneven"] * given.uneven]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr.strip()[-2000:]}")
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    facts |= {"seconds": tuple(facts["seconds"]), "greedy": tuple(map(tuple, facts["greedy"]))}
    return Measured(**facts)


def _seconds(measured: Sequence[Measured]) -> float:
    return statistics.median(second for report in measured for second in report.seconds)


def _cells(measured: Sequence[Measured], ours: float) -> tuple[str, ...]:
    mine = _seconds(measured)
    return (
        f"{mine:.2f}",
        f"{measured[0].tokens / mine:,.0f}",
        f"{mine / ours:.2f} ×",
        f"{statistics.median(report.mib for report in measured):.0f}",
    )


def _needed(shape: Shape, workload: Workload) -> float:
    """Operations: each prompt once through the layers, every drawn token through layers and head."""
    head = shape.hidden * shape.vocabulary
    lengths = workload.lengths()
    drawn = sum(lengths)
    positions = sum(length * (workload.prompt + length / 2) for length in lengths)
    pairs = positions + workload.prompts * workload.prompt**2 / 2
    return (
        2 * shape.body * (workload.prompts * workload.prompt + drawn)
        + 2 * head * drawn
        + 4 * shape.layers * shape.hidden * pairs
    )


def main() -> None:
    """From the command line: python -m benchmarks.sampling [--shapes mid smol] [--save]."""
    parser = argparse.ArgumentParser(description="compare plaudit's sampler with transformers' generate")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["mid", "smol"])
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--times", type=int, default=3, help="times in each process; one more is not counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--uneven", action="store_true", help="answers of very different lengths")
    parser.add_argument("--save", action="store_true", help="keep the tables in RESULTS.md")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    workload = UNEVEN if given.uneven else Workload()
    if given.side:
        torch.set_num_threads(given.threads)
        [shape] = given.shapes
        where = (given.side, given.folder, SHAPES[shape])
        print(json.dumps(asdict(measured_side(*where, workload, given.times, given.device))))
        return
    sections: list[str] = []
    for shape in given.shapes:
        sections.append(compare(shape, workload, given))
        print(f"\n{sections[-1]}\n", flush=True)
        if given.save:
            _save(given, sections)


def _save(given: argparse.Namespace, sections: Sequence[str]) -> None:
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    command = (
        f"`python -m benchmarks.sampling --shapes {' '.join(given.shapes)} --rounds {given.rounds} "
        f"--times {given.times} --threads {given.threads} --device {given.device}"
        f"{' --uneven' * given.uneven}`"
    )
    title = UNEVEN_TITLE if given.uneven else TITLE
    save_section(title, "\n\n".join([f"{machine(given.device)}. {versions}.", command, *sections]))


if __name__ == "__main__":
    main()
