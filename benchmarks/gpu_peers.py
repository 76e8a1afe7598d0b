"""What plaudit on a GPU is held against: the vocabulary heads of other libraries, and published figures.

python -m benchmarks.gpu_peers --rows 4096 --hidden 1536 --vocabulary 151936 --device cuda

runs the heads in an environment that has torch, those of liger-kernel and cut-cross-entropy where they are
installed. `benchmarks.gpu head` starts it in the peers' environment and measures plaudit's own head alike.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.measure import MIB, Figure, median_seconds, typical
from benchmarks.table import markdown
from benchmarks.turns import PEER, ROOT, report_of

Head = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From states ``[M, H]``, weight ``[V, H]`` and targets ``[M]`` to the mean loss of the targets."""
STEPS = 8
"""Of a run of TRL's."""
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "sft": ("gpu", "gpu-padding-free", "gpu-small"),
    "dpo": ("gpu", "gpu-small"),
    "grpo": ("gpu",),
}
"""By which of its settings each of TRL's trainers is run."""
EXACT_ROWS = 256
"""Rows that are computed in float64 as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadInputs:
    """What every head is given.

    Example: ``HeadInputs.random(rows=4096, hidden=1536, vocabulary=151_936, device="cuda")``
    """

    hidden: Tensor
    """States ``[M, H]`` of a size that makes logits of about 2."""
    weight: Tensor
    """``[V, H]``."""
    target: Tensor
    """``[M]``."""

    @staticmethod
    def random(*, rows: int, hidden: int, vocabulary: int, device: str) -> HeadInputs:
        """The same numbers in every process on one device; bfloat16 on a GPU, float32 on a CPU."""
        generator = torch.Generator(device).manual_seed(0)
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        state = torch.randn(rows, hidden, generator=generator, device=device)
        weight = torch.randn(vocabulary, hidden, generator=generator, device=device)
        return HeadInputs(
            hidden=state.to(dtype).requires_grad_(),
            weight=weight.mul_(2 * hidden**-0.5).to(dtype).requires_grad_(),
            target=torch.randint(vocabulary, (rows,), generator=generator, device=device),
        )

    def first(self, rows: int, dtype: torch.dtype) -> HeadInputs:
        """The first rows, in other numbers."""
        return HeadInputs(
            hidden=self.hidden.detach()[:rows].to(dtype).requires_grad_(),
            weight=self.weight.detach().to(dtype).requires_grad_(),
            target=self.target[:rows],
        )

    def gradients(self, head: Head) -> tuple[Tensor, Tensor]:
        """The loss, and its gradient by the states; the weight's is made too, and dropped."""
        loss = head(self.hidden, self.weight, self.target)
        loss.backward()
        assert self.hidden.grad is not None
        gradient = self.hidden.grad
        self.hidden.grad = self.weight.grad = None
        return loss.detach(), gradient

    def products(self) -> None:
        """What a head has to multiply, forward and backward, where logits are made once."""
        hidden, weight = self.hidden.detach(), self.weight.detach()
        logits = hidden @ weight.T
        _ = logits @ weight, logits.T @ hidden


def plain(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """All logits at once, in float32: what transformers does."""
    logits = hidden @ weight.T
    return functional.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), target)


def liger(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Liger's fused linear cross-entropy."""
    module: Any = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")
    return module.LigerFusedLinearCrossEntropyLoss()(weight, hidden, target)


def cut_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Apple's cut cross-entropy."""
    module: Any = importlib.import_module("cut_cross_entropy")
    return module.linear_cross_entropy(hidden, weight, target)


HEADS: Mapping[str, tuple[str, Head]] = {
    "torch, all logits": ("torch", plain),
    "liger-kernel": ("liger_kernel", liger),
    "cut-cross-entropy": ("cut_cross_entropy", cut_cross_entropy),
}
"""Other heads by name, each with the module that it needs."""


def generated(model: Any, cache: str, prompts: Sequence[Sequence[int]], tokens: int) -> None:
    """Answers by transformers itself."""
    ids = torch.tensor(prompts, device=model.device)
    lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0}
    more = {"cache_implementation": "static"} if cache == "static" else {}
    with torch.inference_mode():
        mask = torch.ones_like(ids)
        model.generate(input_ids=ids, attention_mask=mask, do_sample=True, top_k=0, **lengths, **more)


def head_figures(name: str, head: Head, inputs: HeadInputs, seconds: float) -> Iterator[Figure]:
    """Time and memory of a head forward and backward, and how far it is from the exact numbers."""
    device = inputs.hidden.device
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        taken = median_seconds(lambda: inputs.gradients(head), device.type, seconds)
        yield Figure(part="head", name=f"{name}, forward and backward", value=1e3 * taken, unit="ms")
        if device.type == "cuda":
            peak = (torch.cuda.max_memory_allocated() - before) / MIB
            yield Figure(part="head", name=f"{name}, memory on top", value=peak, unit="MiB")
        for what, error in zip(("loss", "gradient"), errors_of(head, inputs), strict=True):
            yield Figure(part="head", name=f"{name}, error of the {what}", value=error, unit="of 1")
    except torch.OutOfMemoryError as error:
        yield Figure(part="head", name=name, value=f"out of memory: {str(error)[:80]}")


def errors_of(head: Head, inputs: HeadInputs) -> tuple[float, float]:
    """The relative errors of loss and gradient against float64, from the very same rounded inputs."""
    loss, gradient = inputs.first(EXACT_ROWS, inputs.hidden.dtype).gradients(head)
    exact_loss, exact_gradient = inputs.first(EXACT_ROWS, torch.float64).gradients(plain)
    difference = torch.linalg.vector_norm(gradient.double() - exact_gradient)
    relative = difference / torch.linalg.vector_norm(exact_gradient)
    return float((loss.double() - exact_loss).abs() / exact_loss), float(relative)


def other_heads(sizes: Mapping[str, int], device: str, seconds: float) -> Iterator[Figure]:
    """The figures of `HEADS`, from a process in the peers' environment; without one, in this one."""
    program = PEER if PEER.exists() else Path(sys.executable)
    words = [f"--{name}={size}" for name, size in sizes.items()]
    words += [f"--seconds={seconds}", f"--device={device}"]
    command = [str(program), "-m", "benchmarks.gpu_peers", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()[-2000:]}")
    for line in done.stdout.splitlines():
        yield Figure(**json.loads(line))


PUBLISHED: tuple[tuple[str, str, str], ...] = (
    ("prime-rl", "SFT of Qwen3-0.6B, 8k context, one H100", "26.0k tokens / s, MFU 16.8 %"),
    ("prime-rl", "SFT of Qwen3-0.6B, 16k context, one H100", "MFU 23.7 %"),
    ("prime-rl", "SFT of Qwen3-4B, 16k context, eight H200", "6.6k tokens / s a GPU, MFU 28.4 %"),
    ("prime-rl", "RL of Qwen3-4B, 16k and 65k context", "MFU 14.7 % and 36.1 %"),
    ("torchtitan", "Llama-3.1-8B, 8k context, eight H100", "5,762 tokens / s a GPU, 33 % of 989 TF/s"),
    ("torchtitan", "the same, compiled", "6,667 tokens / s a GPU, 39 % of 989 TF/s"),
    ("torchtitan", "the same, compiled, in fp8", "8,532 tokens / s a GPU"),
)
"""Who published which figure of what; on other machines and rows than ours."""


CALLS = (
    ("env", "--seconds 10"),
    ("cliff", "--shape 1.5b"),
    ("train", "--shape 1.5b --compile"),
    ("train", "--shape 0.6b"),
    ("train", "--shape 7b --more --memory.checkpointing --optimizer.state bfloat16"),
    ("decode", "--shape 1.5b --seconds 240"),
    ("decode", "--shape 7b --seconds 240"),
    ("head", "--shape 1.5b"),
    ("bits", "--shape 0.6b"),
    ("plan", "--shape 1.5b"),
    ("peers", "--shape 0.6b"),
    ("peers", "--shape 1.5b"),
)
"""What is to be measured on a GPU; each is a call of its own."""


def section(figures: Sequence[Figure], about: str) -> str:
    """The section of RESULTS.md: how it is measured, what was, and what others have published."""
    calls = "\n".join(f"python -m benchmarks.gpu {part} --device cuda {rest}" for part, rest in CALLS)
    how = (
        "With `--figures FILE` before `--more` each call adds its figures to a file, and `python -m "
        "benchmarks.gpu table --figures FILE --save` writes this section."
        f"\n\n```text\n{calls}\n```"
    )
    parts = [
        f"### {part}\n\n{_figure_table([figure for figure in figures if figure.part == part])}"
        for part in dict.fromkeys(figure.part for figure in figures)
    ]
    others = (
        "### What others have published\n\nThe authors' own figures, on their machines, models and rows: "
        "they say what is usual and are no comparison. Tokens are those of training; MFU is as they count it."
        f"\n\n{markdown(('who', 'what', 'figure'), PUBLISHED)}"
    )
    return "\n\n".join([about, how, *parts, others])


NOT_MEASURED = (
    "**Nothing was measured on a GPU yet.** Tests run every part on a CPU with a tiny model. Speed and "
    "memory on a GPU, TRL's on the same one, and the heads of liger-kernel and cut-cross-entropy wait for a "
    "machine that has one."
)
"""What stands in RESULTS.md until there are figures."""

MEASURED = (
    "Measured on 2026-11-26 on one NVIDIA H200 (139.8 GiB, driver 580.159) with Python 3.12.3, torch "
    "2.11.0 for CUDA 13.0 and transformers 5.23.0. Weights are random; shares of products are of "
    "`plaudit.engine.metrics.matmul_rate` on the same card. There were fifteen minutes in all, so each "
    "figure is of one short run of some steps; it was not repeated. *Kernels of an update* are the "
    "seconds in which a kernel ran, where a profiler looked on: as long as the update, the GPU waits for "
    "nobody. Answers of 32 and 96 tokens were drawn behind prompts of 384. What was *said* of peaks was "
    "said by `plaudit plan --gpu h200` on a machine without a GPU. DPO of 0.6B was measured before its "
    "six waits a micro-batch were gone.\n\n"
    "**A second quarter of an hour** on such a card on the same day, with transformers 5.17.0 and otherwise "
    "the same versions, in two sittings. In the first, 15 of the machine's 16 cores were busy with other "
    "work: of it are *cliff* and GRPO without *transformers' cache* in its name. In the second the "
    "machine was free: of it are *sft again* and *sft compiled*, which ran one after the other in one "
    "process, and drawing by 256 rows, answers of 16 and 80 tokens. *Sft compiled* was ready so soon "
    "because its programs lay in torch's cache; without it, and beside tests that compiled as well, it "
    "took 27.5 s. Rounds of GRPO drew 128 answers of at most 256 tokens; GRPO of 0.6B was cut off before "
    "its waits and kernels were counted.\n\n"
    "**Not measured yet:** steps on new lengths of rows beside the same rows (of torch's attention alone "
    "they are below); drawing by one row (by 256 the clock had run out); where the time of drawing goes on "
    "the GPU, and why 0.6B draws at half the rate of 1.5B; runs of 0.6B that are killed (ten deterministic "
    "steps took 52 s with start and end, and the kill was not reached; those of the tests, which are small, "
    "end with the same bits); DPO of 0.6B once more; 7B; the time that plans say; TRL, and the heads of "
    "liger-kernel and cut-cross-entropy; all of it with torch 2.13, whose FlashAttention reads pages itself "
    "while answers are drawn, and knows heads that share their keys. GRPO that drew by transformers' cache "
    "was a fault, mended since: in a run that learns, float32 weights held the sampler to float32's "
    "precision."
)
"""What stands above the figures: where they come from, and what is still open."""
FIGURES = Path(__file__).with_name("gpu_figures.jsonl")
"""The figures of the section in RESULTS.md."""


def _figure_table(figures: Sequence[Figure]) -> str:
    return markdown(("what", "value", "unit"), [(f.name, _cell(f.value), f.unit) for f in figures])


def _cell(value: float | str | dict[str, float]) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name} {_cell(number)}" for name, number in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def trl_figures(method: str, words: Sequence[str], work: Path) -> Iterator[Figure]:
    """What TRL's trainer of a method takes on a folder, in its own environment, by its best settings."""
    if not PEER.exists():
        missing = "the environment is missing; make it with: make bench-peer"
        yield Figure(part="peers", name=f"TRL, {method}", value=missing)
        return
    module, option = ("peer_policy", "--method") if method == "grpo" else ("peer_trl", "--task")
    command = [str(PEER), "-m", f"benchmarks.{module}", option, method, *words, "--dtype", "bfloat16"]
    for variant in VARIANTS[method]:
        outcome = report_of([*command, "--variant", variant, "--steps", str(STEPS), str(work)])
        if isinstance(outcome, str):
            yield Figure(part="peers", name=f"TRL, {method}, {variant}", value=f"did not run: {outcome}")
            continue
        name = f"{outcome.who}, {method} ({variant}; with {', '.join(outcome.versions)})"
        late = typical(outcome.seconds)
        yield Figure(part="peers", name=f"{name}, typical step", value=late, unit="s")
        yield Figure(part="peers", name=f"{name}, whole steps", value=outcome.batch / late, unit="rows / s")
        yield Figure(part="peers", name=f"{name}, peak", value=outcome.peak_mib / 1024, unit="GiB")


def main() -> None:
    """From the command line: .peers/trl/bin/python -m benchmarks.gpu_peers --device cuda."""
    parser = argparse.ArgumentParser(description="time other libraries' vocabulary heads")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each head")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    sizes = {name: getattr(given, name) for name in ("rows", "hidden", "vocabulary")}
    inputs = HeadInputs.random(**sizes, device=given.device)
    for name, (module, head) in HEADS.items():
        if find_spec(module) is None:
            print(Figure(part="head", name=name, value="not installed").line(), flush=True)
            continue
        for figure in head_figures(name, head, inputs, given.seconds):
            print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
