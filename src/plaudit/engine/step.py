"""One optimiser step, the same for every trainer: accumulate micro-batches, check, clip, update.

A batch comes in micro-batches; each one's loss is already divided by the count of the whole batch over all
ranks, so gradients simply add up. Nothing moves unless every number is finite.
"""

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count, islice
from types import FrameType
from typing import Any, Generic, Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plaudit.engine.distributed import AgreedStopError, Ranks, full_tensor
from plaudit.engine.metrics import Metric, merge_metrics, read_metrics
from plaudit.engine.optimizer import set_learning_rate, trained_parameters
from plaudit.errors import UserError
from plaudit.tokens.microbatch import MicrobatchT

InterruptCheck = Callable[[], None]
"""Called during evaluation and sampling; raises when a signal has asked the run to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheck:
    """Something that must hold before weights change, found on the device and read when the step ends.

    Example: ``StepCheck(value=log_ratio_NT.abs().max(), limit=1e-4, error=lambda value: UserError(…))``
    """

    value: Tensor
    """A tensor of one number, still on the device."""
    limit: float
    """The largest that it may be; what is not a number fails as well."""
    error: Callable[[float], UserError]
    """The refusal, from the value that was read."""
    higher_limit: Callable[[], float] | None = None
    """What it may be after all, where that takes a pass to find: asked only beyond the limit."""

    def refuse(self, value: float) -> None:
        """Raise when the value that was read is too large."""
        # Written as "not ≤" so that NaN, which compares False with everything, is refused too.
        if not value <= self.limit and not (self.higher_limit and value <= self.higher_limit()):
            raise self.error(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    """Loss and metrics of one micro-batch.

    Example: ``ObjectiveResult(loss=…, loss_N=…, origin_N=("a.jsonl:3",), metrics=(mean("loss", 61.5, 24),))``
    """

    loss: Float[Tensor, ""]
    """To be differentiated; divided by global counts, so that micro-batches and ranks add up."""
    loss_N: Float[Tensor, " N"]
    """Each completion's own share, detached: it tells which rows went wrong."""
    origin_N: tuple[str, ...]
    """File and row of each completion."""
    metrics: tuple[Metric, ...]
    """What to report, as sums with their weights."""
    checks: tuple[StepCheck, ...] = ()
    """What must hold before weights change."""

    def refuse_failed_checks(self) -> None:
        """Read the checks now and raise for one that fails: for callers that take no step."""
        for check in self.checks:
            check.refuse(float(check.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteFault:
    """A loss or gradient that was not finite; no weight was changed."""

    quantity: str
    """loss, gradient, or gradient of these rows together."""
    rows: tuple[str, ...]

    def message(self, step: int) -> str:
        row_names = ", ".join(self.rows[:5])
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return (
            f"step {step}: the {self.quantity} ({row_names}{more}) is not a finite number; no weight "
            "was changed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    metrics: tuple[Metric, ...]
    """The micro-batches' metrics, added up over them and over ranks."""
    gradient_norm: float
    fault: NonFiniteFault | None
    """Why no weight was changed; None when the step was taken."""


class Gradients(Protocol):
    """Where gradients are kept: with each weight, or where an engine such as DeepSpeed has them."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a micro-batch."""
        ...

    def norm(self, part: nn.Module) -> Tensor:
        """The Euclidean norm of a part's gradients together, over all ranks."""
        ...

    def scale(self, part: nn.Module, factor: float) -> None:
        """Multiply all gradients of a part."""
        ...


class WeightGradients:
    """Gradients that lie with their weights, as autograd leaves them."""

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def norm(self, part: nn.Module) -> Tensor:
        return _gradient_norm(trained_parameters(part).values())

    def scale(self, part: nn.Module, factor: float) -> None:
        for parameter in trained_parameters(part).values():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepper(Generic[MicrobatchT]):
    """What takes optimiser steps: all that stays the same from one to the next.

    Example: ``Stepper(module=policy, optimizer=…, objective=…, clip=1.0, ranks=single_process())``
    """

    module: nn.Module
    """The module that is trained."""
    optimizer: torch.optim.Optimizer
    """The optimiser of its weights."""
    objective: Callable[[MicrobatchT], ObjectiveResult]
    """From a micro-batch to its loss; it knows the counts of the batch at hand."""
    clip: float
    """Largest gradient norm; 0 for none."""
    ranks: Ranks
    """This process among its peers."""
    on_microbatch: Callable[[], None] = lambda: None
    """Called before each micro-batch, with several ranks before the first of a step: the place to stop it."""
    clip_groups: tuple[nn.Module, ...] = ()
    """Parts of the module whose gradients are clipped each by itself; none: the module as one."""
    update_fn: Callable[[Sequence[MicrobatchT]], Sequence[Metric]] | None = None
    """Moves weights by their gradients in a way of its own, and takes those gradients away; with figures."""
    gradients: Gradients = field(default_factory=WeightGradients)
    """Where gradients are kept."""
    session: Callable[[], AbstractContextManager[None]] = nullcontext
    """Within this steps may be taken; afterwards the module is whole again, whatever kept its weights."""


class GrowingBatch(Sequence[MicrobatchT]):
    """Micro-batches that come while the ones before them are learnt from.
    How much there is in all shows behind the last one. So each loss is divided by the most that there may be,
    and who makes them says at the end by what the sum has to be multiplied."""

    def __init__(self, make: "Callable[[GrowingBatch[MicrobatchT]], Iterator[MicrobatchT]]") -> None:
        """``make`` is given this batch, whose factor and metrics it sets at its end."""
        self._coming = make(self)
        self._here: list[MicrobatchT] = []
        self.factor = 1.0
        self.metrics: tuple[Metric, ...] = ()
        """Those of the whole batch."""

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[MicrobatchT]:
        for place in count():
            if place == len(self._here):
                self._here.extend(islice(self._coming, 1))
            if place == len(self._here):
                return
            yield self._here[place]

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def completed(self, metrics: Sequence[Metric]) -> list[Metric]:
        """The metrics of all micro-batches, with the losses as they are now and those of the whole."""
        scaled = (
            replace(metric, total=metric.total * self.factor) if metric.name == "loss" else metric
            for metric in metrics
        )
        return [*scaled, *self.metrics]


def take_step(stepper: Stepper[MicrobatchT], microbatches: Sequence[MicrobatchT], rate: float) -> StepOutcome:
    """Accumulate, check, clip and step; every rank must bring the same number of micro-batches."""
    # None rather than 0: a weight that no token reached keeps no gradient, and AdamW leaves it alone.
    stepper.optimizer.zero_grad(set_to_none=True)
    unread: list[_UnreadResult] = []
    for number, microbatch in enumerate(microbatches):
        # Ranks agree on whether to stop, and waiting for one another at each micro-batch would cost more.
        if number == 0 or stepper.ranks.world_size == 1:
            # May raise: the half-summed gradients are dropped with the step, and no weight has moved yet.
            stepper.on_microbatch()
        result = stepper.objective(microbatch)
        # Only what the host reads later survives: keeping `result` would keep its whole graph in memory.
        unread.append(_UnreadResult.of(result))
        stepper.gradients.backward(result.loss)
    if isinstance(microbatches, GrowingBatch):
        stepper.gradients.scale(stepper.module, microbatches.factor)
    # One exchange a step and not one a micro-batch; a sum, since every loss divides by global counts.
    stepper.ranks.sum_gradients(trained_parameters(stepper.module).values())
    read = _read_step(stepper, unread)
    metrics = read.metrics
    if isinstance(microbatches, GrowingBatch):
        metrics = microbatches.completed(metrics)
    # All ranks ask, also those whose own rows are fine: a rank that stepped alone would drift from its peers.
    rows = stepper.ranks.all_gather_strings(read.non_finite_rows)
    fault = NonFiniteFault(quantity="loss", rows=tuple(dict.fromkeys(rows))) if rows else None
    # After the sum over ranks the norm is the same number everywhere, so all ranks take this branch together.
    if fault is None and not math.isfinite(read.norm):
        fault = _gradient_fault(
            stepper, microbatches, [origin for result in unread for origin in result.origins]
        )
    if fault is None:
        if stepper.update_fn is not None:
            metrics += stepper.update_fn(microbatches)
        _clip_gradients(stepper, read.part_norms or [read.norm])
        set_learning_rate(stepper.optimizer, rate)
        stepper.optimizer.step()
    stepper.optimizer.zero_grad(set_to_none=True)
    # After a fault as well: a step that is left out still reports what it saw.
    merged = merge_over_ranks(metrics, stepper.ranks)
    return StepOutcome(metrics=merged, gradient_norm=read.norm, fault=fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnreadResult:
    """What is left of a micro-batch after its backward pass: without the loss its graph is freed."""

    origins: tuple[str, ...]
    finite_N: Tensor
    metrics: tuple[Metric, ...]
    checks: tuple[StepCheck, ...]

    @classmethod
    def of(cls, result: ObjectiveResult) -> "_UnreadResult":
        finite_N = result.loss_N.isfinite()
        return cls(origins=result.origin_N, finite_N=finite_N, metrics=result.metrics, checks=result.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepNumbers:
    metrics: list[Metric]
    norm: float
    part_norms: list[float]
    non_finite_rows: list[str]


def _read_step(stepper: Stepper[Any], unread: Sequence[_UnreadResult]) -> _StepNumbers:
    """The one moment of a step at which the host waits for the device; rows are asked for after a fault."""
    norms = [stepper.gradients.norm(part) for part in (stepper.module, *stepper.clip_groups)]
    checks = [check for result in unread for check in result.checks]
    # One flag a micro-batch crosses to the host; the row-wise flags stay on the device until one is False.
    finite = [result.finite_N.all() for result in unread]
    metrics, numbers = read_metrics(
        [metric for result in unread for metric in result.metrics],
        *norms,
        *finite,
        *(check.value for check in checks),
    )
    # Numbers come back in the order in which they were handed over: norms, finite flags, checks.
    others = iter(numbers)
    norm, *part_norms = (float(next(others)) for _ in norms)
    faulty = [result for result in unread if not next(others)]
    for check in checks:
        check.refuse(float(next(others)))
    rows = [
        origin
        for result in faulty
        for origin, finite in zip(result.origins, result.finite_N.tolist(), strict=True)
        if not finite
    ]
    return _StepNumbers(metrics=metrics, norm=norm, part_norms=part_norms, non_finite_rows=rows)


def _gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    grads = [p.grad for p in parameters if p.grad is not None]
    shards = [grad for grad in grads if isinstance(grad, DTensor)]
    whole = [grad for grad in grads if not isinstance(grad, DTensor)]
    # Of shards this is a DTensor of partial norms; its full value is the norm over all ranks.
    norms = [full_tensor(torch.nn.utils.get_total_norm(part)) for part in (shards, whole) if part]
    return norms[0] if len(norms) == 1 else torch.nn.utils.get_total_norm(norms)


def merge_over_ranks(metrics: Sequence[Metric], ranks: Ranks) -> tuple[Metric, ...]:
    """The same metric of all micro-batches and ranks as one; ranks report the same names in one order."""
    local = merge_metrics(metrics)
    if ranks.rows.world_size == 1:
        return local
    rows = ranks.rows.all_gather([float(x) for metric in local for x in (metric.total, metric.weight)])
    return merge_metrics(
        # Ranks exchange float64; a count such as `rows` should still print as 8 and not as 8.0.
        replace(
            metric,
            total=int(total) if isinstance(metric.total, int) and total.is_integer() else total,
            weight=weight,
        )
        for row in rows
        for metric, total, weight in zip(local, row[::2], row[1::2], strict=True)
    )


def held_out_evaluator(
    objective: Callable[[MicrobatchT], ObjectiveResult],
    microbatches: Sequence[MicrobatchT],
    ranks: Ranks,
    names: Mapping[str, str],
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """The objective's figures over all micro-batches and ranks; ``names`` says which, and as what."""

    def evaluate(check_interrupt: InterruptCheck) -> tuple[Metric, ...]:
        metrics: list[Metric] = []
        with torch.no_grad():
            for microbatch in microbatches:
                check_interrupt()
                metrics += objective(microbatch).metrics
        merged = merge_over_ranks(metrics, ranks)
        return tuple(replace(metric, name=names[metric.name]) for metric in merged if metric.name in names)

    return evaluate


def _gradient_fault(
    stepper: Stepper[MicrobatchT], microbatches: Sequence[MicrobatchT], origins: Sequence[str]
) -> NonFiniteFault:
    """The rows to blame; all of the batch when each alone is well, or weights are divided over ranks."""
    rows = stepper.ranks.all_gather_strings(_non_finite_gradient_rows(stepper, microbatches))
    if rows:
        return NonFiniteFault(quantity="gradient", rows=tuple(dict.fromkeys(rows)))
    origins_of_all = tuple(dict.fromkeys(stepper.ranks.all_gather_strings(origins)))
    return NonFiniteFault(quantity="gradient of these rows together", rows=origins_of_all)


def _non_finite_gradient_rows(
    stepper: Stepper[MicrobatchT], microbatches: Sequence[MicrobatchT]
) -> list[str]:
    """The rows whose own gradient is not finite; none is looked for in sharded weights."""
    # A finite loss can have an infinite gradient (√0, an overflow
    # on the way back): rows are tried one by one.
    trained = trained_parameters(stepper.module).values()
    single_rows = cast("list[MicrobatchT]", [row for microbatch in microbatches for row in microbatch.rows()])
    # A backward pass through shards is a collective, and ranks have different numbers of rows: it would hang.
    is_collective = not isinstance(stepper.gradients, WeightGradients)
    sharded = is_collective or any(isinstance(p, DTensor) for p in trained)
    rows: list[str] = []
    for row in [] if sharded else single_rows:
        stepper.optimizer.zero_grad(set_to_none=True)
        result = stepper.objective(row)
        result.loss.backward()
        if not math.isfinite(_gradient_norm(trained)):
            rows += result.origin_N
    return rows


def _clip_gradients(stepper: Stepper[Any], norms: Sequence[float]) -> None:
    """Scale gradients down to the largest norm, of each part that stands apart or of all together."""
    for part, norm in zip(stepper.clip_groups or (stepper.module,), norms, strict=True):
        # Each part by its own norm: a critic with large gradients must not shrink the policy's step.
        if 0 < stepper.clip < norm:
            stepper.gradients.scale(part, stepper.clip / norm)


class InterruptedRunError(AgreedStopError):
    """A signal asked the run to stop; ``signum`` says which."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class SignalListener:
    """Remembers a signal until the training loop reaches a point where it can stop."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._signum = 0

    def raise_if_interrupted(self) -> None:
        """Raise `InterruptedRunError` when any rank has received a signal; called between micro-batches."""
        # The scheduler may signal one rank only; all agree here, or the
        # others would wait in the next collective.
        signum = int(max(row[0] for row in self._ranks.all_gather([float(self._signum)])))
        if signum:
            raise InterruptedRunError(signum)

    def handle_signal(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: remember the signal; a second Ctrl-C stops at once."""
        del frame
        if self._signum and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if self._ranks.is_first and not self._signum:
            name = signal.Signals(signum).name
            message = f"plaudit: {name}: saving as soon as it can be, then stopping; Ctrl-C stops at once\n"
            # A handler may run in the middle of a print, where another print would fail.
            os.write(2, message.encode())
        # Nothing is saved in a handler: it may run between any two bytecodes, in the middle of an update.
        self._signum = signum


@contextmanager
def listen_for_signals(ranks: Ranks) -> Iterator[SignalListener]:
    # The earlier handlers come back afterwards: pytest and notebooks keep theirs for Ctrl-C.
    listener = SignalListener(ranks)
    previous_handlers = {
        signum: signal.signal(signum, listener.handle_signal) for signum in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield listener
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
