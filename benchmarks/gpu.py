"""plaudit on one GPU, part by part; on a CPU all of it runs with ``--shape tiny``, as it does by default.

    env       what the machine can do: products, memory, kernels
    cliff     whether new lengths of rows cost plans of kernels
    train     steps of SFT, DPO and GRPO: time, MFU, memory, synchronisations, kernels
    decode    answers drawn by many rows at once, beside transformers' generate
    head      the vocabulary head beside its three products and beside other libraries' heads
    sync      what weights on their way to servers weigh and take, whole and as changes
    bits      whether two runs, and a run that is killed, end with the same bits
    plan      what plaudit plan says beside what plaudit train takes
    peers     TRL on the same folders, in its own environment
    table     the section of RESULTS.md from figures that were collected with --figures

python -m benchmarks.gpu train --device cuda --shape 1.5b --seconds 60 --figures figures.jsonl

Weights are random. A part ends by its clock, and prints a line of JSON for each figure. What is measured goes
the way of `plaudit train`: a command's words are parsed, the run is prepared and moved as it is there.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_peers import (
    MEASURED,
    NOT_MEASURED,
    HeadInputs,
    generated,
    head_figures,
    other_heads,
    section,
    trl_figures,
)
from benchmarks.measure import (
    Figure,
    Synchronisations,
    attention_seconds,
    compiled_graphs,
    median_seconds,
    now,
    profiled,
    stream_rate,
    typical,
)
from benchmarks.planning import compared
from benchmarks.serving import deliveries
from benchmarks.table import machine, save_section
from benchmarks.turns import DEVICES, ROOT
from benchmarks.work import (
    GPU_LOADS,
    GPU_SHAPES,
    LONGEST,
    PAIRS,
    PROMPTS,
    REFERENCE,
    TINY_LOADS,
    Load,
    write_gpu_work,
)
from plaudit.cli.main import main as command_line, parser_of
from plaudit.cli.parser import read_config
from plaudit.config import all_settings
from plaudit.engine.distributed import process_group
from plaudit.engine.loop import BatchOrder, TrainingJob
from plaudit.engine.metrics import matmul_rate, measure_memory, values_of
from plaudit.engine.sinks.files import read_reports
from plaudit.engine.step import Stepper, take_step
from plaudit.engine.step_report import Number
from plaudit.methods.config import RunConfig
from plaudit.methods.named_runs import prepare_run
from plaudit.methods.registry import config_type
from plaudit.methods.run import start_run
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tensors.logprobs import score_tokens, score_tokens_equally_weighted
from plaudit.tokens.encode import make_encoder

TITLE = "One GPU"
GIB = 1024**3
"""Bytes."""
RATE = 1e-6
"""The learning rate: steps move weights, and random weights stay what they are."""
DETERMINISTIC = ("--deterministic",)
"""With which two runs have to end alike."""
MOST_STEPS = 60
"""Of a method: a median needs no more."""
NOTES = ("attention:", "compiled:", "sampling")
"""How the notes of a run begin that say which ways were found fast and right here."""
FILES = {"sft": ("--data", "rows.jsonl"), "dpo": ("--data", PAIRS), "grpo": ("--prompts", PROMPTS)}
"""The option and the file with what a method learns from."""
DECODED = {True: (8, (2, 6), (1, 4)), False: (384, (64, 192), (1, 4, 16, 64, 256))}
"""Of tiny and of the others: tokens of a prompt, two lengths of answers, and numbers of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One call of this benchmark.

    Example: ``Bench(given=parser().parse_args(["env"]), work=Path("work"), runs=Path("runs"))``
    """

    given: argparse.Namespace
    """What the command line says."""
    work: Path
    """The folder with model and rows."""
    runs: Path
    """Where runs write, each into a folder of its own."""

    @property
    def device(self) -> str:
        """Where it computes."""
        return self.given.device

    @property
    def on_gpu(self) -> bool:
        """Whether that is a GPU."""
        return self.device != "cpu"

    @property
    def loads(self) -> Mapping[str, Load]:
        """What steps work on."""
        return TINY_LOADS if self.given.shape == "tiny" else GPU_LOADS

    def words(self, method: str) -> list[str]:
        """The command of a method behind ``plaudit train``, without its folder."""
        load, (option, file) = self.loads[method], FILES[method]
        words = [method, "--model", str(self.work / "model"), option, str(self.work / file)]
        words += ["--held-out", "0", "--sample.rows", "0", "--device", self.device]
        words += ["--batch-size", str(load.batch), "--learning-rate", str(RATE)]
        words += ["--max-length", str(LONGEST), "--memory.tokens-at-once", str(self.given.tokens)]
        if method == "dpo":
            words += ["--reference.kind", "live", "--reference.model", str(self.work / REFERENCE)]
        if method == "grpo":
            words += ["--reward", "benchmarks.work:sevens", "--group-size", str(load.answers)]
            words += ["--draw.max-tokens", str(load.rows.completion), "--draw.flat-rounds", "0"]
        return [*words, *self.given.more]

    def figure(self, name: str, value: float | str | dict[str, float], unit: str = "") -> None:
        """Report a figure of this part and shape."""
        self.report(Figure(part=self.given.part, name=name, value=value, unit=unit))

    def report(self, figure: Figure) -> None:
        """Print a figure, with the shape in its name, and collect it where that was asked for."""
        figure = replace(figure, name=f"{self.given.shape}, {figure.name}")
        print(figure.line(), flush=True)
        if self.given.figures is not None:
            with self.given.figures.open("a", encoding="utf-8") as file:
                file.write(f"{figure.line()}\n")

    def attempt(self, name: str, call: Callable[[], object]) -> None:
        """Measure something; too little memory is a figure too, and the next thing begins with all of it.

        A call and not a block: what a block has bound would still be in memory.
        """
        try:
            call()
        except torch.OutOfMemoryError as error:
            self.figure(name, f"out of memory: {str(error)[:80]}")
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step cost; of GRPO, a round.

    Example: ``Step(draw=0.0, move=0.41, tokens=24_000, rows=32, flops=2.2e14)``
    """

    draw: float
    """Seconds until its micro-batches were there: of GRPO, drawing and scoring answers."""
    move: float
    """Seconds from there to moved weights."""
    tokens: int
    """That were computed, each prompt once."""
    rows: int
    """Rows, or answers, that were learnt from."""
    flops: float
    """Operations that are needed."""

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.draw + self.move


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that is ready to take steps.

    Example: ``with prepared(bench, "sft") as run: run.step(1)``
    """

    job: TrainingJob[Any]
    """What it trains."""
    stepper: Stepper[Any]
    """What takes its steps."""
    order: BatchOrder
    """Which rows make up a batch."""
    notes: Sequence[str]
    """What was decided while it was prepared."""
    device: str
    """Where it computes."""

    def microbatches(self, update: int, rows_of: int) -> Sequence[Any]:
        """Those of an update, on the rows of a step; of GRPO this draws and scores answers."""
        return self.job.microbatches_of_step(update, self.order.batch_rows(rows_of))

    def move(self, update: int, microbatches: Sequence[Any]) -> Mapping[str, Number]:
        """Learn from these; the figures of the step."""
        outcome = take_step(self.stepper, microbatches, RATE)
        assert outcome.fault is None, outcome.fault
        figures = values_of(outcome.metrics)
        for part in self.job.state.values():
            part.after_step(update, figures)
        return figures

    def step(self, number: int, *, rows_of: int | None = None) -> Step:
        """Take a step, on the rows of its own number or of another's."""
        updates = self.job.updates_per_batch
        draw, move, flops, tokens, learnt = 0.0, 0.0, 0.0, 0, 0
        for update in range((number - 1) * updates + 1, number * updates + 1):
            started = now(self.device)
            microbatches = self.microbatches(update, rows_of or number)
            ready = now(self.device)
            figures = self.move(update, microbatches)
            draw, move = draw + ready - started, move + now(self.device) - ready
            flops += self.job.flops(microbatches)
            tokens, learnt = tokens + int(figures["tokens"]), learnt + int(figures["rows"])
        return Step(draw=draw, move=move, tokens=tokens, rows=learnt, flops=flops)

    def steps(self, seconds: float, *, first: int = 1, rows_of: int | None = None) -> list[Step]:
        """Steps for some seconds, at least three, on new rows each time or on those of another's number."""
        steps: list[Step] = []
        until = time.perf_counter() + seconds
        while len(steps) < 3 or (len(steps) < MOST_STEPS and time.perf_counter() < until):
            steps.append(self.step(first + len(steps), rows_of=rows_of))
        return steps


@contextmanager
def prepared(bench: Bench, method: str, more: Sequence[str] = ()) -> Iterator[PreparedRun]:
    """The run of a method's command, as `plaudit train` prepares it; nothing is written."""
    words = ["train", *bench.words(method), *more, "--out", str(bench.runs / "unwritten")]
    arguments = parser_of(words[:1]).parse_args(words)
    config: RunConfig = read_config(arguments.config_type, arguments)
    with process_group(config.device) as ranks:
        run = start_run(config, ranks, method)
        with run.resources:
            job, _ = prepare_run(config, run)
            order = BatchOrder(rows=job.rows, batch_size=config.batch_size, seed=config.seed)
            stepper = job.stepper(ranks)
            yield PreparedRun(job=job, stepper=stepper, order=order, notes=run.notes, device=bench.device)


def env(bench: Bench) -> None:
    """Versions, and the ceilings that shares are of."""
    products = precision("auto", device_of(bench.device)).products
    bench.figure("machine", machine(bench.device))
    bench.figure("torch", torch.__version__)
    bench.figure("products", matmul_rate(bench.device, products) / 1e12, f"TF/s in {products}")
    bench.figure("memory read and written", stream_rate(bench.device) / 1e12, "TB/s")
    if bench.on_gpu:
        bench.figure("memory", torch.cuda.mem_get_info()[1] / GIB, "GiB")
        bench.figure("cuDNN", str(torch.backends.cudnn.version()))


def cliff(bench: Bench) -> None:
    """torch's attention on ever new lengths, then our steps on new rows beside the same rows again."""
    for cudnn in (True, False) if bench.on_gpu else (False,):
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        for masked in (False, True):
            what = f"{'masked' if masked else 'plain'}, cuDNN {'on' if cudnn else 'off'}"
            taken = typical([attention_seconds(bench.device, 301 + 7 * n, masked) for n in range(12)])
            bench.figure(f"attention of a new length, {what}", 1e3 * taken, "ms")
    bench.attempt("steps", lambda: _rows_again(bench))


def _rows_again(bench: Bench) -> None:
    with prepared(bench, "sft") as run:
        fresh = typical([step.move for step in run.steps(bench.given.seconds / 2)])
        again = typical([step.move for step in run.steps(bench.given.seconds / 2, rows_of=1)])
        bench.figure("a step on new rows", fresh, "s")
        bench.figure("the same rows again", again, "s")


def train(bench: Bench) -> None:
    """Each method, and again compiled where that is asked for."""
    for method in bench.given.methods:
        for more in ((), compile_words(method)) if bench.given.compile else ((),):
            name = f"{method}{' compiled' * bool(more)}"
            bench.attempt(name, partial(_train, bench, method, more, name))


def compile_words(method: str) -> tuple[str, ...]:
    """The option that compiles layers, whichever group it stands in."""
    settings = all_settings(config_type(method))
    found = next((setting.option for setting in settings if setting.path[-1] == "compile"), None)
    if found is None:
        raise SystemExit("--compile: this version has no setting that compiles; leave it out")
    return (found,)


def _train(bench: Bench, method: str, more: Sequence[str], name: str) -> None:
    started = now(bench.device)
    with prepared(bench, method, more) as run:
        bench.figure(f"{name}, ready to learn after", now(bench.device) - started, "s")
        for note in run.notes:
            if note.startswith(NOTES):
                bench.figure(f"{name}, {note.partition(' ')[0].rstrip(':')}", note)
        bench.figure(f"{name}, first step", run.step(1).seconds, "s")
        graphs = compiled_graphs()
        steps = run.steps(bench.given.seconds, first=2)
        _step_figures(bench, name, steps)
        _waits(bench, name, run, len(steps) + 2, graphs)


def _step_figures(bench: Bench, name: str, steps: Sequence[Step]) -> None:
    memory = measure_memory(bench.device).reported / 1024
    move, seconds = (typical([getattr(step, what) for step in steps]) for what in ("move", "seconds"))
    rate = matmul_rate(bench.device, precision("auto", device_of(bench.device)).products)
    bench.figure(f"{name}, typical step", seconds, "s")
    if typical([step.draw for step in steps]) > 0.1 * seconds:
        bench.figure(f"{name}, of it drawing", seconds - move, "s")
    bench.figure(f"{name}, trained", typical([step.tokens / step.move for step in steps]), "tokens / s")
    bench.figure(f"{name}, whole steps", typical([step.rows / step.seconds for step in steps]), "rows / s")
    bench.figure(f"{name}, MFU", typical([step.flops / step.move / rate for step in steps]), "of products")
    bench.figure(f"{name}, peak of {'the GPU' if bench.on_gpu else 'the process'}", memory, "GiB")


def _waits(bench: Bench, name: str, run: PreparedRun, number: int, graphs: int) -> None:
    """What an update waits for, and what it launches."""
    update = (number - 1) * run.job.updates_per_batch + 1
    if bench.on_gpu:
        microbatches = run.microbatches(update, number)
        with Synchronisations() as waits:
            run.move(update, microbatches)
        count = waits.by_line.total() / len(microbatches)
        bench.figure(f"{name}, synchronisations", count, "a micro-batch")
        bench.figure(f"{name}, synchronisations by line", dict(waits.by_line.most_common(8)))
    microbatches = run.microbatches(update, number + 1)
    kernels = profiled(lambda: run.move(update, microbatches), bench.device)
    plans = compiled_graphs() - graphs + kernels.cudnn_attentions
    bench.figure(f"{name}, kernel plans after step 1", plans, "graphs and cuDNN plans")
    bench.figure(f"{name}, launches", kernels.launches / len(microbatches), "a micro-batch")
    bench.figure(f"{name}, kernels of an update", kernels.busy / 1e3, "s")
    bench.figure(f"{name}, longest kernels", kernels.milliseconds, "ms")


def decode(bench: Bench) -> None:
    """Seconds a token at several numbers of rows: as a folder, as in a run, and by transformers."""
    for name, side in (("as a folder", _folder), ("in a run", _policy), ("generate", _generate)):
        bench.attempt(name, partial(side, bench))


def _folder(bench: Bench) -> None:
    _drawn_by(bench, "as a folder", LocalSampler(bench.work / "model", device=bench.device))


def _policy(bench: Bench) -> None:
    target = device_of(bench.device)
    numbers = precision("auto", target)
    policy = Policy(load_model(bench.work / "model", dtype=numbers.weights, device=target))
    if numbers.mixed:
        policy.compute_in(numbers.products)
    _drawn_by(bench, "in a run", LocalSampler.from_policy(policy, make_encoder(bench.work / "model")))


def _drawn_by(bench: Bench, name: str, sampler: LocalSampler) -> None:
    bench.figure(f"{name}, slower than it can be", sampler.fallback_reason or "no")
    _decoded(bench, name, partial(_drawn, sampler))


def _drawn(sampler: LocalSampler, prompts: Sequence[Sequence[int]], tokens: int) -> None:
    sampler.generate([tuple(prompt) for prompt in prompts], SamplingSettings(max_tokens=tokens))


def _generate(bench: Bench) -> None:
    target = device_of(bench.device)
    model = load_model(bench.work / "model", dtype=precision("auto", target).products, device=target)
    for cache in ("dynamic", "static"):
        _decoded(bench, f"generate, {cache} cache", partial(generated, model, cache))


Answer = Callable[[Sequence[Sequence[int]], int], None]
"""Answers prompts by so many tokens each."""


def _decoded(bench: Bench, name: str, answer: Answer) -> None:
    """Seconds of a token are those by which the longer answers take longer: prompts are read in both.

    The most rows come first, and what the clock leaves no time for is left out.
    """
    prompt, (short, long), numbers = DECODED[bench.given.shape == "tiny"]
    rate = stream_rate(bench.device)
    generator = torch.Generator().manual_seed(0)
    until = time.perf_counter() + bench.given.seconds / 4
    for rows in sorted(numbers, reverse=True):
        if time.perf_counter() > until:
            break
        size = (rows, prompt)
        prompts = torch.randint(3, GPU_SHAPES[bench.given.shape].vocabulary, size, generator=generator)
        limit = bench.given.seconds / (8 * len(numbers))
        call = partial(answer, prompts.tolist())
        taken = [median_seconds(partial(call, length), bench.device, limit) for length in (short, long)]
        each = max(taken[1] - taken[0], 1e-9) / (long - short)
        floor = bytes_read(bench, rows, prompt + (short + long) / 2) / rate
        bench.figure(f"{name}, {rows} rows", rows / each, "tokens / s")
        bench.figure(f"{name}, {rows} rows, share of the bandwidth floor", floor / each, "of 1")


def bytes_read(bench: Bench, rows: int, context: float) -> float:
    """What a token of every row has to read at least: all weights once, and each row's keys and values."""
    size = precision("auto", device_of(bench.device)).products.itemsize
    return size * GPU_SHAPES[bench.given.shape].numbers_read(rows, context)


def head(bench: Bench) -> None:
    """Ours by both ways, its three products alone, and the others in the peers' environment."""
    shape = GPU_SHAPES[bench.given.shape]
    rows = 64 if bench.given.shape == "tiny" else 4096
    sizes = {"rows": rows, "hidden": shape.hidden, "vocabulary": shape.vocabulary}
    inputs = HeadInputs.random(**sizes, device=bench.device)
    seconds = bench.given.seconds / 8
    taken = median_seconds(inputs.products, bench.device, seconds)
    bench.figure("the three products", 1e3 * taken, "ms")
    ours = {"plaudit": score_tokens, "plaudit, tokens that count the same": score_tokens_equally_weighted}
    for name, score in ours.items():
        for figure in head_figures(name, partial(_loss, score), inputs, seconds):
            bench.report(figure)
    del inputs
    for figure in other_heads(sizes, bench.device, seconds):
        bench.report(figure)


def _loss(score: Callable[..., Any], *given: Any) -> torch.Tensor:
    return -score(*given).logp_M.mean()


def sync(bench: Bench) -> None:
    """Deliveries of the weights after steps of Adam, as a server reads them from memory."""
    target = device_of(bench.device)
    dtype = precision("auto", target).products
    for number, delivered in enumerate(deliveries(bench.work / "model", dtype, device=target)):
        for name, value in vars(delivered).items():
            bench.figure(f"delivery {number}, {name}", value, "MiB" if name == "mib" else "s")


def bits(bench: Bench) -> None:
    """Ten steps twice, as they are and with --deterministic; then killed after a step, and gone on with."""
    until = time.perf_counter() + bench.given.seconds
    whole = ""
    for more in ((), DETERMINISTIC):
        name = "deterministic" if more else "as it is"
        whole, again = (_trained(bench, f"{name}-{copy}", more) for copy in range(2))
        seconds = [report.timing["seconds"] for report in read_reports(bench.runs / f"{name}-1")]
        bench.figure(f"{name}, typical step", typical(seconds), "s")
        bench.figure(f"{name}, two runs end alike", str(whole == again))
    for place in bench.given.kills:
        if time.perf_counter() < until:
            killed = _kill_after(bench, f"killed-{place}", place)
            alike = _trained(bench, f"killed-{place}", DETERMINISTIC) == whole
            bench.figure(f"killed after step {place}, ends alike", str(alike) if killed else "ended before")


def _run_words(bench: Bench, name: str, more: Sequence[str]) -> list[str]:
    method = bench.given.methods[0]
    steps = ["--steps", "10", "--save-every", "2", "--out", str(bench.runs / name)]
    return ["train", *bench.words(method), *steps, *more]


def _trained(bench: Bench, name: str, more: Sequence[str]) -> str:
    """The hash of weights and moments of a run's last step; a run that has begun goes on where it stopped.

    Of the checkpoint and not of ``model``, whose weights are rounded to the 16 bits of the folder.
    """
    with redirect_stdout(sys.stderr):
        assert command_line(_run_words(bench, name, more)) == 0
    checkpoint = bench.runs / name / "checkpoints" / "step-00000010"
    files = [checkpoint / f"{part}.safetensors" for part in ("model", "optimizer")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _kill_after(bench: Bench, name: str, step: int) -> bool:
    """Start a run in a process of its own, and kill it once it reports this step; whether it came to that."""
    words = _run_words(bench, name, DETERMINISTIC)
    child = subprocess.Popen(
        [sys.executable, "-m", "plaudit", *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": str(bench.given.threads)},
        stdout=subprocess.DEVNULL,
    )
    reports = bench.runs / name / "metrics.jsonl"
    while child.poll() is None:
        if reports.exists() and reports.read_text(encoding="utf-8").count("\n") >= step:
            child.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    return child.returncode == -signal.SIGKILL


def plan(bench: Bench) -> None:
    """Each method's plan, then its run."""
    more = () if bench.given.gpu is None else ("--gpu", bench.given.gpu)
    for method in bench.given.methods:
        with tempfile.TemporaryDirectory() as folder:
            command = [*bench.words(method), "--steps", "10"]
            found = compared(method, command, Path(folder), more)
        bench.figure(f"{method}, peak said", found.planned_mib, "MiB")
        bench.figure(f"{method}, peak taken", found.took_mib, "MiB")
        if not math.isnan(found.planned_seconds):
            bench.figure(f"{method}, time said", found.planned_seconds, "s")
        bench.figure(f"{method}, time taken", found.took_seconds, "s")


def peers(bench: Bench) -> None:
    """TRL's best settings on the same folders and device."""
    for method in bench.given.methods:
        load = bench.loads[method]
        words = ["--batch", str(load.batch), "--device", bench.device]
        if method == "grpo":
            words += ["--answers", str(load.answers), "--completion", str(load.rows.completion)]
        for figure in trl_figures(method, words, bench.work):
            bench.report(figure)


def table(bench: Bench) -> None:
    """Print the section of collected figures, and keep it."""
    path = bench.given.figures
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    figures = [Figure(**json.loads(line)) for line in lines]
    text = section(figures, MEASURED if figures else NOT_MEASURED)
    print(text)
    if bench.given.save:
        save_section(TITLE, text)


_PARTS = (env, cliff, train, decode, head, sync, bits, plan, peers, table)
PARTS: Mapping[str, Callable[[Bench], None]] = {function.__name__: function for function in _PARTS}
"""What can be asked for."""
WITHOUT_WORK = ("env", "head", "table")
"""Parts that need no folder with model and rows."""


def run(given: argparse.Namespace) -> None:
    """One part, on a folder that is made for it or lies there already."""
    torch.set_num_threads(given.threads)
    # cuBLAS reads it when it is first used: without it no run can be deterministic.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(temporary)
        bench = Bench(given=given, work=given.work or runs / "work", runs=runs)
        if given.part not in WITHOUT_WORK and not (bench.work / "model").exists():
            write_gpu_work(bench.work, GPU_SHAPES[given.shape], bench.loads, bench.device)
        PARTS[given.part](bench)


def parser() -> argparse.ArgumentParser:
    """What the command line can say."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("part", choices=PARTS, help="what to measure")
    made.add_argument("--shape", choices=GPU_SHAPES, default="tiny")
    made.add_argument("--device", choices=DEVICES, default="cpu")
    made.add_argument("--seconds", type=float, default=60.0, help="the clock of a part or of a method in it")
    made.add_argument("--methods", nargs="+", choices=FILES, default=[*FILES])
    made.add_argument("--tokens", type=int, default=16_384, help="tokens of a micro-batch")
    made.add_argument("--compile", action="store_true", help="train: each method compiled too")
    made.add_argument("--kills", nargs="*", type=int, default=[1, 3, 5, 7, 9], help="bits: after which steps")
    made.add_argument("--gpu", help="plan: the GPU that is planned for (plaudit plan --gpu)")
    made.add_argument("--work", type=Path, help="a folder that keeps model and rows for the next call")
    made.add_argument("--figures", type=Path, help="a file that figures are added to, or read from")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--save", action="store_true", help="table: keep it in RESULTS.md")
    made.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="settings of plaudit train")
    return made


if __name__ == "__main__":
    run(parser().parse_args())
