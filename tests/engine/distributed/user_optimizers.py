"""A user's own optimisers, with which a rank ends early.

``--optimizer.name tests.engine.distributed.user_optimizers:raising``, for example;
``TOY_STOP=1:3`` in the environment names the rank and the step; without it, and when torchrun has
started the ranks again, they are plain AdamW.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

Groups = Iterable[dict[str, Any]]


def _kill(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _raise() -> None:
    raise ArithmeticError("the moon is in the wrong phase")


class Ending(torch.optim.AdamW):
    """AdamW that ends in some way before its n-th step of this process, on one rank."""

    def __init__(self, groups: Groups, lr: float, end: Callable[[], None]) -> None:
        super().__init__(groups, lr=lr)
        self._end = end
        self._taken = 0

    def step(self, closure: Any = None) -> Any:
        self._taken += 1
        rank, starts = os.environ.get("RANK", "0"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if os.environ.get("TOY_STOP") == f"{rank}:{self._taken}" and starts == "0":
            print(f"the end begins at {time.time()}", flush=True)
            self._end()
        return super().step(closure)


def terminated(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Ending(groups, lr, _kill(signal.SIGTERM))


def killed(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Ending(groups, lr, _kill(signal.SIGKILL))


def raising(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Ending(groups, lr, _raise)


def hanging(groups: Groups, lr: float) -> torch.optim.Optimizer:
    return Ending(groups, lr, lambda: time.sleep(1000))


def unhurried(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Long enough a run to be stopped from outside."""
    optimizer = Ending(groups, lr, _raise)
    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.1))
    return optimizer
