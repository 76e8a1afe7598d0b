"""Checks of what a step is made of and what it does to weights, on a few of the user's own rows.

Gradients add up over micro-batches and ranks and reach every weight, a few rows can be learnt by heart, and a
checkpoint resumes. Afterwards the weights are what they were.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.engine.checkpoint import save as checkpoints, state
from plaudit.engine.checkpoint.state import expected_shapes, load_snapshot, snapshot
from plaudit.engine.distributed import is_distributed, single_process
from plaudit.engine.loop import TrainingJob
from plaudit.engine.metrics import values_of
from plaudit.engine.optimizer import make_optimizer, trained_parameters
from plaudit.engine.step import StepOutcome, Stepper, take_step
from plaudit.models.backbone import language_of
from plaudit.preflight.check import (
    Check,
    NotApplicableError,
    PreflightSubject,
    Result,
    failed,
    not_applicable,
    passed,
    warned,
)
from plaudit.preflight.samples import LOW_TEMPERATURE, TrialStep, likelihood_step, make_trial_step

Gradients = Sequence[Tensor | None]
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-3}
"""How far, relative to its size, rounding may take a gradient that was added up in another order."""
HALF_PRECISION_ROUNDING = 0.1
MAX_NAMED_WEIGHTS = 3
NO_GRADIENT = "the gradient of these rows is 0, so there is nothing to compare"


class GradientRecorder(torch.optim.Optimizer):
    """An optimiser that changes no weight and records the gradients that it receives."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__([*parameters], {"lr": 0.0})
        self.gradients: Gradients = ()

    def step(self, closure: Any = None) -> Any:
        self.gradients = _copied_gradients(self.param_groups[0]["params"])


@contextmanager
def preserve_weights(module: nn.Module) -> Iterator[Mapping[str, Tensor]]:
    """Yields a copy of weights and buffers and restores them on exit: for checks that take a step."""
    # Cloned: the tensors of a state_dict are the weights themselves and would move along.
    original = {name: value.detach().clone() for name, value in module.state_dict().items()}
    try:
        yield original
    finally:
        module.load_state_dict(original)


def check_microbatches(subject: PreflightSubject) -> Result:
    """The gradient of a batch is that of its rows, and of any other pieces of it, added up."""
    trial = _summed_trial_step(subject)
    ways = {"row by row": trial.rows}
    half = max(1, -(-sum(microbatch.tokens for microbatch in trial.batch) // 2))
    halves = [microbatch.shares(1, half) for microbatch in trial.batch]
    in_two = [piece for ranks in halves if ranks is not None for rank in ranks for piece in rank]
    if len(in_two) > len(trial.batch):
        ways[f"in {len(in_two)} pieces"] = in_two
    return _compare_gradients(trial, ways, subject)


def check_ranks(subject: PreflightSubject) -> Result:
    """The shares of two ranks add up to the whole, and one without rows adds nothing."""
    trial = _summed_trial_step(subject)
    dealt = [microbatch.shares(2, microbatch.tokens) for microbatch in trial.batch]
    # One row dealt to two ranks leaves the second idle.
    idle = trial.rows[0].shares(2, trial.rows[0].tokens)
    if idle is None or any(shares_of_ranks is None for shares_of_ranks in dealt):
        return not_applicable("the loss compares the sorted batch, which is dealt as a whole")
    shares = [piece for ranks in dealt if ranks is not None for rank in ranks for piece in rank]
    result = _compare_gradients(trial, {f"dealt over two ranks in {len(shares)} pieces": shares}, subject)
    if result.holds is not True:
        return result
    _differentiate(trial.job, idle[1])
    added = _gradient_norm([weight.grad for weight in trained_parameters(trial.job.module).values()])
    if added != 0:
        return failed(f"a rank without rows adds a gradient of size {added:.2g} where it should add nothing")
    return passed(f"{result.details}; a rank without rows adds nothing")


def check_accumulation(subject: PreflightSubject) -> Result:
    """What reaches the optimiser of a step in several pieces is what reaches it of one."""
    trial = _summed_trial_step(subject)
    whole, item = _recorded_gradients(trial.job, trial.batch)
    parts, outcome_in_parts = _recorded_gradients(trial.job, trial.rows)
    if not _gradient_norm(whole):
        return not_applicable(NO_GRADIENT)
    error = _difference_norm(whole, parts) / _gradient_norm(whole)
    norms = abs(item.gradient_norm - outcome_in_parts.gradient_norm) / item.gradient_norm
    loss, other = (float(values_of(outcome.metrics)["loss"]) for outcome in (item, outcome_in_parts))
    # Relative, yet absolute near 0, where the loss of a policy gradient often lies.
    losses = abs(loss - other) / max(1.0, abs(loss))
    details = (
        f"a step of {trial.description} in {len(trial.rows)} pieces and in {len(trial.batch)}: what the "
        f"optimiser is given differs by {error:.1g} of its size, the norm before clipping by {norms:.1g}, "
        f"the reported loss by {losses:.1g}"
    )
    return passed(details) if max(error, norms, losses) <= _relative_tolerance(subject) else failed(details)


def _summed_trial_step(subject: PreflightSubject) -> TrialStep:
    if subject.trial is not None and subject.sampling.temperature < LOW_TEMPERATURE:
        raise NotApplicableError(
            f"at the temperature {subject.sampling.temperature:g} the drawn tokens are certain, and their "
            "gradient is rounding (see sampler-logps)"
        )
    trial = _trial_step(subject)
    # Dropout would disturb the comparison; `preserve_state` ends this mode with the check.
    trial.job.module.eval()
    return trial


def check_all_weights_learn(subject: PreflightSubject) -> Result:
    """Every weight that may learn gets a gradient: at the first step, or once others have moved."""
    if subject.adapted:
        return not_applicable("only adapters learn: see adapters")
    trial = _trial_step(subject)
    job = trial.job
    _differentiate(job, trial.batch)
    names = set(trained_parameters(job.module))
    unreached = names - _weights_with_gradient(job.module)
    # Where nothing at all has a gradient, a step would move nothing either.
    if unreached and unreached != names:
        # What stands behind a head of zeros learns once the head has moved.
        with preserve_weights(job.module):
            take_step(trial_stepper(job), trial.batch, job.learning_rate)
            _differentiate(job, trial.batch)
            unreached -= _weights_with_gradient(job.module)
    # A tower's last layers may be read by nobody: LLaVA reads the one before the last.
    seeing = _seeing_weights(job.module)
    unread = unreached & seeing if seeing - unreached else set[str]()
    if unreached := unreached - unread:
        return failed(
            f"{len(unreached)} of {len(names)} weights get no gradient of {trial.description}: "
            f"{_abbreviated_names(unreached)}"
        )
    frozen = sum(not weight.requires_grad for weight in job.module.parameters())
    frozen_note = f", {frozen} are frozen" if frozen else ""
    unread_note = f" but {len(unread)} of the tower that nothing reads" if unread else ""
    reached = f"a gradient reaches all {len(names)} weights that learn{unread_note}{frozen_note}"
    return passed(f"{trial.description}: {reached}")


def _seeing_weights(module: nn.Module) -> set[str]:
    """The weights of a tower for pictures, by name; none of a model of words."""
    base: Any = getattr(module, "base", None)
    if getattr(getattr(base, "config", None), "vision_config", None) is None:
        return set()
    language = {id(weight) for weight in language_of(base).parameters()}
    return {name for name, weight in module.named_parameters() if id(weight) not in language}


def _trial_step(subject: PreflightSubject) -> TrialStep:
    if is_distributed():
        raise NotApplicableError("several processes learn together; look with one, without torchrun")
    trial = make_trial_step(subject)
    if trial is None or not trial.batch:
        raise NotApplicableError("nothing is learnt here")
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


def _recorded_gradients(job: TrainingJob[Any], microbatches: Sequence[Any]) -> tuple[Gradients, StepOutcome]:
    recorder = GradientRecorder(trained_parameters(job.module).values())
    # Before they are read: the step is what records them.
    outcome = take_step(trial_stepper(job, recorder), microbatches, 0.0)
    return recorder.gradients, outcome


def _compare_gradients(
    trial: TrialStep, ways: Mapping[str, Sequence[Any]], subject: PreflightSubject
) -> Result:
    job, errors = trial.job, dict[str, float]()
    _differentiate(job, trial.batch)
    whole = _copied_gradients(trained_parameters(job.module).values())
    if not _gradient_norm(whole):
        return not_applicable(NO_GRADIENT)
    for words, microbatches in ways.items():
        _differentiate(job, microbatches)
        parts = [weight.grad for weight in trained_parameters(job.module).values()]
        errors[words] = _difference_norm(whole, parts) / _gradient_norm(whole)
    figures = ", ".join(f"{words} {error:.1g}" for words, error in errors.items())
    details = f"the gradient of {trial.description} against the sum of its parts, relative error: {figures}"
    return passed(details) if max(errors.values()) <= _relative_tolerance(subject) else failed(details)


def _differentiate(job: TrainingJob[Any], microbatches: Sequence[Any]) -> None:
    job.module.zero_grad(set_to_none=True)
    for microbatch in microbatches:
        # Nothing is divided by the number of pieces: a loss carries the counts of the whole batch already.
        result = job.objective(microbatch)
        result.refuse_failed_checks()
        result.loss.backward()


def _relative_tolerance(subject: PreflightSubject) -> float:
    model = subject.policy or subject.scorer
    assert model is not None, "a model that learns"
    return ROUNDING.get(model.backbone.compute_dtype, HALF_PRECISION_ROUNDING)


def _copied_gradients(weights: Iterable[nn.Parameter]) -> Gradients:
    return [None if weight.grad is None else weight.grad.detach().clone() for weight in weights]


def _gradient_norm(gradients: Gradients) -> float:
    # In float64, or the squares of many small half-precision numbers would be lost in the sum.
    norms = [
        torch.linalg.vector_norm(gradient, dtype=torch.float64)
        for gradient in gradients
        if gradient is not None
    ]
    return float(torch.stack(norms).square().sum().sqrt()) if norms else 0.0


def _difference_norm(gradients: Gradients, other: Gradients) -> float:
    pairs = zip(gradients, other, strict=True)
    return _gradient_norm([a if b is None else (b if a is None else a - b) for a, b in pairs])


def _weights_with_gradient(module: nn.Module) -> set[str]:
    """The gradient of a bias may be 0, since it cancels between two answers."""
    return {
        name
        for name, weight in module.named_parameters()
        if weight.grad is not None and (name.endswith("bias") or bool(weight.grad.any()))
    }


GRADIENT_CHECKS = (
    Check(name="micro-batches", run=check_microbatches),
    Check(name="accumulation", run=check_accumulation),
    Check(name="ranks", run=check_ranks),
    Check(name="gradient-flow", run=check_all_weights_learn),
)


RELATIVE_UPDATES = (0.01, 0.1, 0.001)
"""How much of their size weights move in the first step that is tried, one try after another."""
OVERFIT_STEPS = 10
MIN_ADAPTER_RATE = 1e-6
"""In a step of Adam the half of an adapter that begins as 0 moves by about the rate."""
CLEAR_DECREASE = 0.02
"""The relative decrease of the loss from which it counts as learnt."""
MAX_CHECKPOINT_BYTES = 64 * 2**20
"""Of the weights in the trial checkpoint; in a larger model the largest weights are frozen."""


def check_overfits(subject: PreflightSubject) -> Result:
    """The loss of a few rows falls when only they are learnt."""
    trial = _trial_step(subject)
    # A policy gradient's loss need not fall; likelihood under the same policy does.
    if subject.trial is not None and (trial := likelihood_step(subject)) is None:
        return not_applicable("no prompt to learn")
    with preserve_weights(trial.job.module) as original:
        first = _relative_update(trial, original)
    if isinstance(first, Result):
        return first
    attempts: list[str] = []
    for share in RELATIVE_UPDATES:
        with preserve_weights(trial.job.module):
            # A first step is about proportional to its rate, so this one moves weights by the wanted share.
            stepper, losses = trial_stepper(trial.job), list[float]()
            for _ in range(OVERFIT_STEPS + 1):
                outcome = take_step(stepper, trial.batch, trial.job.learning_rate * share / first)
                losses.append(float(values_of(outcome.metrics)["loss"]))
                if outcome.fault is not None or _has_decreased(losses):
                    break
        change = f"from {losses[0]:.4g} to {losses[-1]:.4g} (steps: {len(losses) - 1})"
        if _has_decreased(losses):
            return passed(f"{trial.description}: the loss falls {change}")
        attempts.append(change)
    return failed(f"{trial.description}: the loss does not fall at any rate: {'; '.join(attempts)}")


def check_adapters(subject: PreflightSubject) -> Result:
    """A step moves the adapters, and nothing of the model beneath them."""
    model = subject.policy or subject.scorer
    if not subject.adapted or model is None:
        return not_applicable("all weights learn: see gradient-flow")
    trial = _trial_step(subject)
    weights = dict(model.named_parameters())
    with preserve_weights(trial.job.module):
        before = {name: _tensor_digest(weight) for name, weight in weights.items()}
        stepper = trial_stepper(trial.job)
        # An adapter begins as 0 · A, so A learns once 0 has moved.
        for _ in range(2):
            take_step(stepper, trial.batch, trial.job.learning_rate)
        changed = {name for name, weight in weights.items() if _tensor_digest(weight) != before[name]}
    adapter_names = {name for name in weights if "lora_" in name}
    base_names = {name for name in weights if name not in adapter_names and "modules_to_save" not in name}
    # Of experts only those learn that a token is sent to.
    unchanged = {name for name in adapter_names - changed if "expert" not in name}
    if base_names & changed:
        return failed(
            f"{len(base_names & changed)} weights beneath the adapters moved: "
            f"{_abbreviated_names(base_names & changed)}"
        )
    if unchanged or not adapter_names:
        return failed(
            f"{len(unchanged)} of {len(adapter_names)} adapters did not move in two steps: "
            f"{_abbreviated_names(unchanged)}"
        )
    details = (
        f"{trial.description}: {len(adapter_names & changed)} adapters moved in two steps, "
        f"{len(base_names)} weights beneath did not"
    )
    rate = trial.job.learning_rate
    if rate < MIN_ADAPTER_RATE and trial.job.optimizer.name != "sgd":
        return warned(
            f"{details}; at the rate {rate:g} a thousand steps leave them near the 0 that they begin with: "
            "adapters usually want 1e-5 to 1e-3"
        )
    return passed(details)


def check_checkpoint_resume(subject: PreflightSubject) -> Result:
    """A step after a stop is, bit for bit, the step without one."""
    trial = _trial_step(subject)
    with (
        _freeze_largest_weights(trial.job) as freeze_note,
        tempfile.TemporaryDirectory(prefix="plaudit-check-") as folder,
    ):
        uninterrupted, checkpoint_bytes = _digests_after_two_steps(trial, Path(folder), resumed=False)
        resumed, _ = _digests_after_two_steps(trial, Path(folder), resumed=True)
    differing = [name for name, digest in uninterrupted.items() if resumed.get(name) != digest]
    differing += [name for name in resumed if name not in uninterrupted]
    if differing:
        return failed(
            f"{len(differing)} of {len(uninterrupted)} tensors are others after a stop than without one: "
            f"{_abbreviated_names(differing)}"
        )
    return passed(
        f"{trial.description}: a step after a checkpoint of {checkpoint_bytes / 2**20:.1f} MiB was read "
        f"gives the same weights and optimiser, {len(uninterrupted)} tensors, bit for bit{freeze_note}"
    )


@contextmanager
def _freeze_largest_weights(job: TrainingJob[Any]) -> Iterator[str]:
    """While this lasts only so many weights learn that a checkpoint is quickly written; says how many."""
    learning = sorted(trained_parameters(job.module).values(), key=lambda weight: weight.numel())
    ends = accumulate(weight.nbytes for weight in learning)
    beyond = [weight for weight, end in zip(learning, ends, strict=True) if end > MAX_CHECKPOINT_BYTES]
    # The smallest learns in any case: a checkpoint of nothing would prove nothing.
    left_out = beyond if len(beyond) < len(learning) else beyond[1:]
    for weight in left_out:
        weight.requires_grad_(False)
    try:
        yield f"; of {len(learning)} weights the {len(left_out)} largest were held still" if left_out else ""
    finally:
        for weight in left_out:
            weight.requires_grad_(True)


def _relative_update(trial: TrialStep, original: Mapping[str, Tensor]) -> float | Result:
    job = trial.job
    outcome = take_step(trial_stepper(job), trial.batch, job.learning_rate)
    if outcome.fault is not None:
        return failed(outcome.fault.message(1))
    if outcome.gradient_norm == 0:
        return not_applicable("the gradient of these rows is 0: there is nothing to learn from them")
    learning = trained_parameters(job.module)
    size = _gradient_norm([original[name] for name in learning])
    change = _gradient_norm([item.detach() - original[name] for name, item in learning.items()])
    return change / size if change else failed(f"a step at the rate {job.learning_rate:g} moves no weight")


def _has_decreased(losses: list[float]) -> bool:
    return losses[0] - losses[-1] > CLEAR_DECREASE * abs(losses[0])


def _digests_after_two_steps(
    trial: TrialStep, folder: Path, *, resumed: bool
) -> tuple[dict[str, bytes], int]:
    """Digests after a step, a checkpoint and another step, and the bytes of the checkpoint.
    ``resumed`` begins at the checkpoint that lies there, with an optimiser made anew."""
    job = trial.job
    with preserve_weights(job.module):
        stepper, size = trial_stepper(job), 0
        if resumed:
            loaded = checkpoints.load_latest_checkpoint(folder, expected=expected_shapes(job.module))
            assert loaded is not None, "it was just written"
            load_snapshot(loaded.state, job.module, stepper.optimizer, stepper.ranks)
            # Before the step, so that two copies of the optimiser's state are not held at once.
            del loaded
        else:
            take_step(stepper, trial.batch, job.learning_rate)
            size = checkpoints.save_checkpoint(folder, snapshot(stepper, {}, step=1, facts={})).bytes
        take_step(stepper, trial.batch, job.learning_rate)
        return _state_digests(stepper), size


def _state_digests(stepper: Stepper[Any]) -> dict[str, bytes]:
    memory = state.read_optimizer_state(stepper.module, stepper.optimizer)
    tensors = {**trained_parameters(stepper.module), **memory.tensors}
    facts = {name: repr(value).encode() for name, value in memory.facts.items()}
    return {name: _tensor_digest(value) for name, value in tensors.items()} | facts


def _tensor_digest(tensor: Tensor) -> bytes:
    # Bits and not values: NaN differs from NaN and -0.0 equals 0.0; besides, NumPy has no bfloat16.
    plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    bits: Any = plain.numpy()
    return hashlib.blake2b(bits, digest_size=16).digest()


def _abbreviated_names(names: Any) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:MAX_NAMED_WEIGHTS]) + (" …" if len(ordered) > MAX_NAMED_WEIGHTS else "")


CHECKS = (
    Check(name="overfits", run=check_overfits),
    Check(name="adapters", run=check_adapters),
    Check(name="checkpoint", run=check_checkpoint_resume),
)
