"""What a step is made of, on a few of the user's own rows: gradients that add up, and reach every weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.engine.distributed import is_distributed, single_process
from plaudit.engine.loop import TrainingJob
from plaudit.engine.metrics import values_of
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.step import StepOutcome, Stepper, take_step
from plaudit.preflight.check import Check, Result, failed, not_applicable, passed, preserve_weights
from plaudit.preflight.samples import TrialStep, make_trial_step
from plaudit.preflight.subject import PreflightSubject

Gradients = Sequence[Tensor | None]
"""Of every weight that learns; None where no gradient came."""
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
"""How far, relative to its size, rounding may take a gradient that was added up in another order."""
HALF_PRECISION_ROUNDING = 0.1
"""The same tolerance in half precision."""
MAX_NAMED_WEIGHTS = 3
"""How many weights a message names."""
NO_GRADIENT = "the gradient of these rows is 0, so there is nothing to compare"
"""Why parts cannot be compared with the whole."""


class GradientRecorder(torch.optim.Optimizer):
    """An optimiser that changes no weight and records the gradients that it receives.

    Example: ``GradientRecorder(trained_parameters(job)).gradients``
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Record the gradients of these parameters."""
        super().__init__([*parameters], {"lr": 0.0})
        self.gradients: Gradients = ()

    def step(self, closure: Any = None) -> Any:
        """Copy the gradients in place of an update."""
        del closure
        self.gradients = _copied_gradients(self.param_groups[0]["params"])


def check_microbatches(subject: PreflightSubject) -> Result:
    """The gradient of a batch is that of its rows, and of any other pieces of it, added up."""
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    ways = {"row by row": trial.rows}
    half = max(1, -(-sum(microbatch.tokens for microbatch in trial.batch) // 2))
    halves = [microbatch.shares(1, half) for microbatch in trial.batch]
    in_two = [
        *chain.from_iterable(
            chain.from_iterable(shares_of_ranks for shares_of_ranks in halves if shares_of_ranks is not None)
        )
    ]
    if len(in_two) > len(trial.batch):
        ways[f"in {len(in_two)} pieces"] = in_two
    return _compare_gradients(trial, ways, subject)


def check_ranks(subject: PreflightSubject) -> Result:
    """The shares of two ranks add up to the whole, and one without rows adds nothing."""
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    dealt = [microbatch.shares(2, microbatch.tokens) for microbatch in trial.batch]
    idle = trial.rows[0].shares(2, trial.rows[0].tokens)
    if idle is None or any(shares_of_ranks is None for shares_of_ranks in dealt):
        return not_applicable("the loss compares the sorted batch, which is dealt as a whole")
    shares = [
        *chain.from_iterable(
            chain.from_iterable(shares_of_ranks for shares_of_ranks in dealt if shares_of_ranks is not None)
        )
    ]
    result = _compare_gradients(trial, {f"dealt over two ranks in {len(shares)} pieces": shares}, subject)
    if result.holds is not True:
        return result
    with _eval_mode(trial.job):
        _differentiate(trial.job, idle[1])
    added = _gradient_norm([weight.grad for weight in trained_parameters(trial.job)])
    if added != 0:
        return failed(f"a rank without rows adds a gradient of size {added:.2g} where it should add nothing")
    return passed(f"{result.details}; a rank without rows adds nothing")


def check_accumulation(subject: PreflightSubject) -> Result:
    """What reaches the optimiser of a step in several pieces is what reaches it of one."""
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    with _eval_mode(trial.job):
        whole, one = _recorded_gradients(trial.job, trial.batch)
        parts, outcome_in_parts = _recorded_gradients(trial.job, trial.rows)
    if not _gradient_norm(whole):
        return not_applicable(NO_GRADIENT)
    error = _difference_norm(whole, parts) / _gradient_norm(whole)
    norms = abs(one.gradient_norm - outcome_in_parts.gradient_norm) / one.gradient_norm
    loss, other = (float(values_of(outcome.metrics)["loss"]) for outcome in (one, outcome_in_parts))
    losses = abs(loss - other) / max(1.0, abs(loss))
    details = (
        f"a step of {trial.description} in {len(trial.rows)} pieces and in {len(trial.batch)}: what the "
        "optimiser "
        f"is given differs by {error:.1g} of its size, the norm before clipping by {norms:.1g}, the reported "
        f"loss by {losses:.1g}"
    )
    return passed(details) if max(error, norms, losses) <= _relative_tolerance(subject) else failed(details)


def check_all_weights_learn(subject: PreflightSubject) -> Result:
    """Every weight that may learn gets a gradient: at the first step, or once others have moved."""
    if subject.adapted:
        return not_applicable("only adapters learn: see adapters")
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    job = trial.job
    _differentiate(job, trial.batch)
    names = {name for name, weight in job.module.named_parameters() if weight.requires_grad}
    unreached = names - _weights_with_gradient(job.module)
    if unreached and unreached != names:
        # What stands behind a head of zeros learns once the head has moved.
        with preserve_weights(job.module):
            take_step(trial_stepper(job), trial.batch, job.learning_rate)
            _differentiate(job, trial.batch)
            unreached -= _weights_with_gradient(job.module)
    if unreached:
        named = ", ".join(sorted(unreached)[:MAX_NAMED_WEIGHTS]) + (
            " …" if len(unreached) > MAX_NAMED_WEIGHTS else ""
        )
        return failed(
            f"{len(unreached)} of {len(names)} weights get no gradient of {trial.description}: {named}"
        )
    frozen = sum(not weight.requires_grad for weight in job.module.parameters())
    frozen_note = f", {frozen} are frozen" if frozen else ""
    return passed(f"{trial.description}: a gradient reaches all {len(names)} weights that learn{frozen_note}")


def trial_step_or_reason(subject: PreflightSubject) -> TrialStep | Result:
    """The trial step, or a not-applicable result that says why there is none."""
    if is_distributed():
        return not_applicable("several processes learn together; look with one, without torchrun")
    trial = make_trial_step(subject)
    if trial is None or not trial.batch:
        return not_applicable("nothing is learnt here")
    return trial


def trial_stepper(job: TrainingJob[Any], optimizer: torch.optim.Optimizer | None = None) -> Stepper[Any]:
    """The stepper that takes steps of this job, by default with an optimiser of the run's own kind."""
    device = next(job.module.parameters()).device
    return Stepper(
        module=job.module,
        optimizer=optimizer or make_optimizer(job.module, job.learning_rate, job.optimizer),
        objective=job.objective,
        clip=job.optimizer.clip,
        ranks=single_process(device),
    )


def trained_parameters(job: TrainingJob[Any]) -> list[nn.Parameter]:
    """The parameters that require a gradient."""
    return [weight for weight in job.module.parameters() if weight.requires_grad]


def _recorded_gradients(job: TrainingJob[Any], microbatches: Sequence[Any]) -> tuple[Gradients, StepOutcome]:
    recorder = GradientRecorder(trained_parameters(job))
    outcome = take_step(trial_stepper(job, recorder), microbatches, 0.0)
    return recorder.gradients, outcome


def _compare_gradients(
    trial: TrialStep, ways: Mapping[str, Sequence[Any]], subject: PreflightSubject
) -> Result:
    """The gradient of the batch beside that of the same rows in other pieces."""
    job, errors = trial.job, dict[str, float]()
    with _eval_mode(job):
        _differentiate(job, trial.batch)
        whole = _copied_gradients(trained_parameters(job))
        if not _gradient_norm(whole):
            return not_applicable(NO_GRADIENT)
        for words, microbatches in ways.items():
            _differentiate(job, microbatches)
            errors[words] = _difference_norm(
                whole, [weight.grad for weight in trained_parameters(job)]
            ) / _gradient_norm(whole)
    figures = ", ".join(f"{words} {error:.1g}" for words, error in errors.items())
    details = f"the gradient of {trial.description} against the sum of its parts, relative error: {figures}"
    return passed(details) if max(errors.values()) <= _relative_tolerance(subject) else failed(details)


def _differentiate(job: TrainingJob[Any], microbatches: Sequence[Any]) -> None:
    job.module.zero_grad(set_to_none=True)
    for microbatch in microbatches:
        result = job.objective(microbatch)
        result.refuse_failed_checks()
        result.loss.backward()


@contextmanager
def _eval_mode(job: TrainingJob[Any]) -> Iterator[None]:
    """Evaluation mode while this lasts, so that dropout does not disturb the comparison."""
    modes = {inner: inner.training for inner in job.module.modules()}
    job.module.eval()
    try:
        yield
    finally:
        for inner, training in modes.items():
            inner.training = training


def _relative_tolerance(subject: PreflightSubject) -> float:
    model = subject.policy or subject.scorer
    assert model is not None, "a model that learns"
    with subject.products():
        device = model.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) not in ROUNDING
    return HALF_PRECISION_ROUNDING if half else ROUNDING.get(model.base.dtype, HALF_PRECISION_ROUNDING)


def _copied_gradients(weights: Iterable[nn.Parameter]) -> Gradients:
    return [None if weight.grad is None else weight.grad.detach().clone() for weight in weights]


def _gradient_norm(gradients: Gradients) -> float:
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients if one is not None]
    return float(torch.stack(norms).square().sum().sqrt()) if norms else 0.0


def _difference_norm(one: Gradients, other: Gradients) -> float:
    """The norm of the difference of two gradients; a missing gradient counts as 0."""
    pairs = zip(one, other, strict=True)
    return _gradient_norm([a if b is None else (b if a is None else a - b) for a, b in pairs])


def _weights_with_gradient(module: nn.Module) -> set[str]:
    """Names of weights that have a gradient; that of a bias may be 0, since it cancels between two
    answers.
    """
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
        run=check_microbatches,
    ),
    Check(
        name="accumulation",
        proves="A step that is taken in several pieces hands the optimiser the same gradient, after "
        "clipping, and reports the same loss, as a step that is taken in one.",
        matters="Whoever has little memory takes a step in pieces, and expects the same run. Where the sum "
        "is divided once more, or clipped piece by piece, it is another run with the same settings: "
        "TRL#2617, TRL#6024, ms-swift#10117.",
        mend="See micro-batches first. If only this check fails, the step itself is wrong: report it.",
        run=check_accumulation,
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
        run=check_ranks,
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
        run=check_all_weights_learn,
    ),
)
"""Checks of gradients."""
