"""Ways to break what a step does, each through the job of a real run."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.engine.loop import TrainingJob
from plaudit.engine.metrics import mean_metric
from plaudit.engine.settings import OptimizerSettings
from plaudit.engine.step import ObjectiveResult
from plaudit.methods.supervised.objective import SupervisedMicrobatch
from plaudit.models.backbone import without_head
from plaudit.preflight.check import PreflightSubject


class Idle(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        del closure


class Forgetful(torch.optim.SGD):
    """An optimiser that knows by itself how many steps it has taken, and tells no checkpoint."""

    taken = 0

    def step(self, closure: Any = None) -> None:
        self.taken += 1
        for group in self.param_groups:
            group["lr"] /= self.taken
        super().step(closure)


def idle(groups: Iterable[Any], *, lr: float) -> torch.optim.Optimizer:
    return Idle(groups, lr=lr)


def forgetful(groups: Iterable[Any], *, lr: float) -> torch.optim.Optimizer:
    return Forgetful(groups, lr=lr)


def dividing_by_the_piece(subject: PreflightSubject) -> PreflightSubject:
    """A loss that is divided by the tokens of its piece, not by those of the batch."""

    def own(piece: SupervisedMicrobatch) -> SupervisedMicrobatch:
        return replace(piece, total_tokens=max(1, sum(one.trained_tokens for one in piece.examples)))

    job = _job(subject)
    return _learning(subject, lambda piece: job.objective(own(piece)))


def dividing_by_the_rows(subject: PreflightSubject) -> PreflightSubject:
    """A loss of pairs that is divided by the rows of its piece, not by those of the batch."""
    job = _job(subject)
    return _learning(subject, lambda piece: job.objective(replace(piece, total_rows=len(piece.judged))))


def dividing_by_the_groups(subject: PreflightSubject) -> PreflightSubject:
    """A loss of groups that is divided by the tokens of its piece, not by those of the minibatch."""
    job = _job(subject)

    def own(piece: Any) -> Any:
        return replace(piece, counts=piece.round.loss_counts([place.group for place in piece.groups]))

    return _learning(subject, lambda piece: job.objective(own(piece)))


def reporting_by_the_piece(subject: PreflightSubject) -> PreflightSubject:
    """What is reported is the mean of the pieces' shares of the loss, not their sum."""
    job = _job(subject)

    def objective(piece: Any) -> ObjectiveResult:
        terms = job.objective(piece)
        rest = [one for one in terms.metrics if one.name != "loss"]
        return replace(terms, metrics=(mean_metric("loss", float(terms.loss.detach()), 1), *rest))

    return _learning(subject, objective)


def teaching_without_rows(subject: PreflightSubject) -> PreflightSubject:
    """A rank without rows pulls weights towards 0."""
    job = _job(subject)

    def objective(piece: SupervisedMicrobatch) -> ObjectiveResult:
        terms = job.objective(piece)
        if any(example.trained_tokens for example in piece.examples):
            return terms
        weights = [one for one in job.module.parameters() if one.requires_grad]
        pull: Tensor = torch.stack([one.square().sum() for one in weights]).sum()
        return replace(terms, loss=terms.loss + 0.01 * pull)

    return _learning(subject, objective)


def cut_off(subject: PreflightSubject) -> PreflightSubject:
    def detach(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.detach()

    _layers(subject)[0].mlp.register_forward_hook(detach)
    return subject


def uphill(subject: PreflightSubject) -> PreflightSubject:
    job = _job(subject)

    def objective(piece: Any) -> ObjectiveResult:
        terms = job.objective(piece)
        return replace(terms, loss=-terms.loss)

    return _learning(subject, objective)


def moving_nothing(subject: PreflightSubject) -> PreflightSubject:
    """An optimiser of one's own that does nothing."""
    return _moving(subject, "idle")


def forgetting(subject: PreflightSubject) -> PreflightSubject:
    """An optimiser of one's own whose memory is in no checkpoint."""
    return _moving(subject, "forgetful")


def learning_beneath(subject: PreflightSubject) -> PreflightSubject:
    _layers(subject)[0].input_layernorm.weight.requires_grad_(True)
    return subject


def adapters_held(subject: PreflightSubject) -> PreflightSubject:
    """Adapters of one layer that do not learn."""
    for name, weight in _layers(subject)[1].named_parameters():
        if "lora_" in name:
            weight.requires_grad_(False)
    return subject


def _job(subject: PreflightSubject) -> TrainingJob[Any]:
    assert subject.job is not None
    return subject.job


def _learning(subject: PreflightSubject, objective: Callable[[Any], ObjectiveResult]) -> PreflightSubject:
    return replace(subject, job=replace(_job(subject), objective=objective))


def _moving(subject: PreflightSubject, name: str) -> PreflightSubject:
    optimizer = OptimizerSettings(name=f"{__name__}:{name}", clip=1.0)
    return replace(subject, job=replace(_job(subject), optimizer=optimizer))


def _layers(subject: PreflightSubject) -> Any:
    model = subject.policy or subject.scorer
    assert model is not None
    return without_head(model.base).layers
