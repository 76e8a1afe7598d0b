"""Optimisers of a user's own, for ``--optimizer.name tests.engine.toy_optimizers:NAME``."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

Groups = Iterable[dict[str, Any]]


class Counting(torch.optim.Optimizer):
    """Remembers tensors, numbers and tuples, for each weight and for each group; all of them matter."""

    def __init__(self, groups: Groups, lr: float) -> None:
        super().__init__(groups, {"lr": lr, "pull": 1.0, "pair": (1, 0.5), "total": torch.zeros(())})

    def step(self, closure: Callable[[], float] | None = None) -> None:
        assert closure is None
        for group in self.param_groups:
            group["pull"] *= 0.9
            group["pair"] = (group["pair"][0] + 1, group["pair"][1] / 2)
            for parameter in group["params"]:
                state = self.state[parameter]
                state["count"] = state.get("count", 0) + 1
                state["sum"] = state.get("sum", torch.zeros_like(parameter)) + parameter.grad
                group["total"] = group["total"] + parameter.grad.mean()
                push = state["sum"] * group["pull"] / state["count"] + group["total"] / group["pair"][0]
                parameter.data -= group["lr"] * (push + group["pair"][1])


class Forgetful(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["past"] = {"steps": [object()]}
        return super().step(closure)


class Announced(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        print("a step is taken", flush=True)
        return super().step(closure)


class Slow(Announced):
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        time.sleep(60)


def counting(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Counting(groups, lr=lr)


def forgetful(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Forgetful(groups, lr=lr)


def announced(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Announced(groups, lr=lr)


def slow(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Slow(groups, lr=lr)


def nothing(groups: Groups, lr: float) -> None:
    """Somebody forgot the return."""
