"""What a step is made of, on a few of the user's own rows: gradients that add up, and reach every weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.checking import weights_kept
from plaudit.checks.few import Trial, divided, tokens_of, trial
from plaudit.checks.subject import Lesson, Subject
from plaudit.training.metrics import values_of
from plaudit.training.optimizer import make_optimizer
from plaudit.training.parallel import alone, several
from plaudit.training.step import Machine, Outcome, take_step

Gradients = Sequence[Tensor | None]
"""Of every weight that learns; None where no gradient came."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
"""How far, relative to its size, rounding may take a gradient that was added up in another order."""
COARSE = 0.1
"""The same in half precision."""
NAMED = 3
"""Weights that are named where many are meant."""
NO_GRADIENT = "the gradient of these rows is 0, so there is nothing to compare"
"""Why parts cannot be compared with the whole."""


class Recorder(torch.optim.Optimizer):
    """An optimiser that moves nothing and keeps the gradients that it is given.

    Example: ``Recorder(trained(lesson)).given``
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Of these."""
        super().__init__([*parameters], {"lr": 0.0})
        self.given: Gradients = ()

    def step(self, closure: Any = None) -> Any:
        """Keep them."""
        del closure
        self.given = _copied(self.param_groups[0]["params"])


def micro_batches(subject: Subject) -> Result:
    """The gradient of a batch is that of its rows, and of any other pieces of it, added up."""
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    ways = {"row by row": tried.rows}
    half = max(1, -(-sum(map(tokens_of, tried.batch)) // 2))
    pieces = [divided(piece, 1, half) for piece in tried.batch]
    in_two = [*chain.from_iterable(chain.from_iterable(own for own in pieces if own is not None))]
    if len(in_two) > len(tried.batch):
        ways[f"in {len(in_two)} pieces"] = in_two
    return _compared(tried, ways, subject)


def ranks(subject: Subject) -> Result:
    """The shares of two ranks add up to the whole, and one without rows adds nothing."""
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    dealt = [divided(piece, 2, tokens_of(piece)) for piece in tried.batch]
    idle = divided(tried.rows[0], 2, tokens_of(tried.rows[0]))
    if idle is None or any(own is None for own in dealt):
        return not_applicable("the loss compares the sorted batch, which is dealt as a whole")
    shares = [*chain.from_iterable(chain.from_iterable(own for own in dealt if own is not None))]
    seen = _compared(tried, {f"dealt over two ranks in {len(shares)} pieces": shares}, subject)
    if seen.holds is not True:
        return seen
    with _in_evaluation(tried.lesson):
        _differentiate(tried.lesson, idle[1])
    added = _size([weight.grad for weight in trained(tried.lesson)])
    if added != 0:
        return failed(f"a rank without rows adds a gradient of size {added:.2g} where it should add nothing")
    return passed(f"{seen.saw}; a rank without rows adds nothing")


def accumulation(subject: Subject) -> Result:
    """What reaches the optimiser of a step in several pieces is what reaches it of one."""
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    with _in_evaluation(tried.lesson):
        whole, one = _given(tried.lesson, tried.batch)
        parts, many = _given(tried.lesson, tried.rows)
    if not _size(whole):
        return not_applicable(NO_GRADIENT)
    off = _apart(whole, parts) / _size(whole)
    norms = abs(one.gradient_norm - many.gradient_norm) / one.gradient_norm
    loss, other = (float(values_of(outcome.metrics)["loss"]) for outcome in (one, many))
    losses = abs(loss - other) / max(1.0, abs(loss))
    saw = (
        f"a step of {tried.what} in {len(tried.rows)} pieces and in {len(tried.batch)}: what the optimiser "
        f"is given differs by {off:.1g} of its size, the norm before clipping by {norms:.1g}, the reported "
        f"loss by {losses:.1g}"
    )
    return passed(saw) if max(off, norms, losses) <= _allowed(subject) else failed(saw)


def all_learn(subject: Subject) -> Result:
    """Every weight that may learn gets a gradient: at the first step, or once others have moved."""
    if subject.adapted:
        return not_applicable("only adapters learn: see adapters")
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    lesson = tried.lesson
    _differentiate(lesson, tried.batch)
    names = {name for name, weight in lesson.module.named_parameters() if weight.requires_grad}
    left = names - _reached(lesson.module)
    if left and left != names:
        # What stands behind a head of zeros learns once the head has moved.
        with weights_kept(lesson.module):
            take_step(machine(lesson), tried.batch, lesson.rate)
            _differentiate(lesson, tried.batch)
            left -= _reached(lesson.module)
    if left:
        shown = ", ".join(sorted(left)[:NAMED]) + (" …" if len(left) > NAMED else "")
        return failed(f"{len(left)} of {len(names)} weights get no gradient of {tried.what}: {shown}")
    frozen = sum(not weight.requires_grad for weight in lesson.module.parameters())
    beside = f", {frozen} are frozen" if frozen else ""
    return passed(f"{tried.what}: a gradient reaches all {len(names)} weights that learn{beside}")


def ready(subject: Subject) -> Trial | Result:
    """A step to try, or why there is none."""
    if several():
        return not_applicable("several processes learn together; look with one, without torchrun")
    tried = trial(subject)
    if tried is None or not tried.batch:
        return not_applicable("nothing is learnt here")
    return tried


def machine(lesson: Lesson, optimizer: torch.optim.Optimizer | None = None) -> Machine[Any]:
    """What takes the steps of this lesson; without another one by an optimiser of the run's own kind."""
    device = next(lesson.module.parameters()).device
    return Machine(
        module=lesson.module,
        optimizer=optimizer or make_optimizer(lesson.module, lesson.rate, lesson.optimizer),
        objective=lesson.objective,
        alone=lesson.alone,
        clip=lesson.optimizer.clip,
        ranks=alone(device),
    )


def trained(lesson: Lesson) -> list[nn.Parameter]:
    """The weights that learn."""
    return [weight for weight in lesson.module.parameters() if weight.requires_grad]


def _given(lesson: Lesson, pieces: Sequence[Any]) -> tuple[Gradients, Outcome]:
    recorder = Recorder(trained(lesson))
    outcome = take_step(machine(lesson, recorder), pieces, 0.0)
    return recorder.given, outcome


def _compared(tried: Trial, ways: Mapping[str, Sequence[Any]], subject: Subject) -> Result:
    """The gradient of the batch beside that of the same rows in other pieces."""
    lesson, off = tried.lesson, dict[str, float]()
    with _in_evaluation(lesson):
        _differentiate(lesson, tried.batch)
        whole = _copied(trained(lesson))
        if not _size(whole):
            return not_applicable(NO_GRADIENT)
        for words, pieces in ways.items():
            _differentiate(lesson, pieces)
            off[words] = _apart(whole, [weight.grad for weight in trained(lesson)]) / _size(whole)
    figures = ", ".join(f"{words} {error:.1g}" for words, error in off.items())
    saw = f"the gradient of {tried.what} against the sum of its parts, relative error: {figures}"
    return passed(saw) if max(off.values()) <= _allowed(subject) else failed(saw)


def _differentiate(lesson: Lesson, pieces: Sequence[Any]) -> None:
    lesson.module.zero_grad(set_to_none=True)
    for piece in pieces:
        lesson.objective(piece).loss.backward()


@contextmanager
def _in_evaluation(lesson: Lesson) -> Iterator[None]:
    """Without chance, which is for another check."""
    modes = {inner: inner.training for inner in lesson.module.modules()}
    lesson.module.eval()
    try:
        yield
    finally:
        for inner, training in modes.items():
            inner.training = training


def _allowed(subject: Subject) -> float:
    model = subject.policy or subject.scorer
    assert model is not None, "a model that learns"
    with subject.products():
        device = model.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) not in ROUNDING
    return COARSE if half else ROUNDING.get(model.base.dtype, COARSE)


def _copied(weights: Iterable[nn.Parameter]) -> Gradients:
    return [None if weight.grad is None else weight.grad.detach().clone() for weight in weights]


def _size(gradients: Gradients) -> float:
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients if one is not None]
    return float(torch.stack(norms).square().sum().sqrt()) if norms else 0.0


def _apart(one: Gradients, other: Gradients) -> float:
    """The size of the difference, in which no gradient counts as 0."""
    pairs = zip(one, other, strict=True)
    return _size([a if b is None else (b if a is None else a - b) for a, b in pairs])


def _reached(module: nn.Module) -> set[str]:
    """Those with a gradient; that of a bias may be 0, since it cancels where two answers are compared."""
    return {
        name
        for name, weight in module.named_parameters()
        if weight.grad is not None and (name.endswith("bias") or bool(weight.grad.any()))
    }


CHECKS = (
    Check(
        name="micro-batches",
        proves="The gradient of a batch is the sum of the gradients of its rows, and of any other pieces "
        "that it may be divided into.",
        matters="A loss that is divided by what is in the piece, and not in the batch, makes the gradient "
        "depend on how much memory there is: rows count differently, or the step is several times too "
        "large or too small. Every trainer of TRL had it (TRL#2617), and ms-swift had it this year "
        "(ms-swift#10117, a quarter of the gradient at four pieces).",
        mend="A loss of your own must add up over pieces: divide by the counts that a piece carries, which "
        "are those of the whole batch. Without a loss of your own, report this.",
        look=micro_batches,
    ),
    Check(
        name="accumulation",
        proves="A step that is taken in several pieces hands the optimiser the same gradient, after "
        "clipping, and reports the same loss, as a step that is taken in one.",
        matters="Whoever has little memory takes a step in pieces, and expects the same run. Where the sum "
        "is divided once more, or clipped piece by piece, it is another run with the same settings: "
        "TRL#2617, TRL#6024, ms-swift#10117.",
        mend="See micro-batches first. If only this check fails, the step itself is wrong: report it.",
        look=accumulation,
    ),
    Check(
        name="ranks",
        proves="What two ranks would compute of a batch adds up to the gradient of the whole batch, and a "
        "rank without rows adds nothing. Both shares are computed one after another in this process; that "
        "processes really add them up is not looked at.",
        matters="With losses that are averaged on each rank, rows on a rank with few others count more, and "
        "a run on two GPUs learns something else than on one. A rank that has no row must still compute "
        "something, of which nothing may be learnt: TRL#2617, TRL#4104.",
        mend="A loss of your own must divide by the counts that a piece carries, and must give 0 for rows "
        "that do not count. Until it does, train with one process.",
        look=ranks,
    ),
    Check(
        name="all-learn",
        proves="Every weight that may learn gets a gradient from a few rows, at the latest once others have "
        "moved.",
        matters="A layer that is cut off from the loss stays what it was, and nothing says so: the loss "
        "falls all the same, since the other layers learn. Recomputed layers and models that are partly "
        "frozen have done that: pytorch#112397, transformers#21381.",
        mend="Look at the weights that are named. Those that should stay as they are must be frozen "
        "(requires_grad False); those that should learn are detached somewhere in the model's code: try "
        "without --memory.checkpointing.",
        look=all_learn,
    ),
)
"""Checks of gradients."""
