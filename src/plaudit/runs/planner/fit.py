"""Whether a run fits into the memory of its GPU, and what would; asked when a run begins. Quick to import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.preflight.check import Result, failed, not_applicable, passed

if TYPE_CHECKING:
    from plaudit.runs.planner.cost import RunCost


def estimate_fit(method: str, config: Any, ranks: Ranks) -> tuple[Result, bool]:
    """Whether a run fits the GPU of this process, if it has one, and whether only with layers recomputed."""
    memory = gpu_memory(ranks.device)
    if memory is None:
        return not_applicable("the run computes on no GPU"), False
    # Not before: a run on a CPU would wait for modules that it never asks.
    from plaudit.runs.planner.cost import plan_on
    from plaudit.runs.planner.machine import Machine

    if not _has_plan(method, config):
        return not_applicable(f"plaudit plan does not know runs of {method}"), False
    machine = Machine(memory=memory, device_kind="cuda", ranks=ranks.world_size)
    try:
        cost = plan_on(method, config, machine)
        if not cost.fits and ranks.is_first:
            # Each is planned anew, which can take a minute.
            print(
                "plaudit: too large for the GPU; looking for settings that fit …", file=sys.stderr, flush=True
            )
        return fit_of(cost), cost.request.config.memory.checkpointing is True
    # The run meets the fault of a row or a folder itself, and says where it is. A model whose code looks at
    # numbers cannot be computed without any; it can be trained all the same.
    except (UserError, RuntimeError) as error:
        return not_applicable(f"it cannot be planned: {str(error).strip().partition(chr(10))[0]}"), False


def gpu_memory(device: torch.device) -> int | None:
    """The bytes of a GPU, whoever holds them; None for what is no GPU."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None


def fit_of(cost: RunCost) -> Result:
    words = shortage(cost)
    return passed(_comparison(cost)) if words is None else failed(words)


def shortage(cost: RunCost) -> str | None:
    """By how much a run is too large, and the nearest settings that fit; None where it fits."""
    if cost.fits:
        return None
    from plaudit.runs.planner.render import SUGGESTIONS_FOLLOW, suggestion_sentences
    from plaudit.runs.planner.suggestions import smallest_suggestion, suggest

    suggestions = suggest(cost)
    smallest = None if suggestions else smallest_suggestion(cost)
    lines = suggestion_sentences(suggestions, smallest, cost.request.machine.memory)
    return "\n    ".join((_comparison(cost), *((SUGGESTIONS_FOLLOW,) if suggestions else ()), *lines))


def _comparison(cost: RunCost) -> str:
    from plaudit.runs.planner.machine import format_bytes

    peak, memory = format_bytes(cost.memory.peak), format_bytes(cost.request.machine.memory)
    processes = " in each process" if cost.schedule.ranks > 1 else ""
    return f"about {peak} at the peak{processes}, and the GPU has {memory}"


def _has_plan(method: str, config: Any) -> bool:
    from plaudit.methods.named_runs import METHODS_WITHOUT_TABLE

    # The config of an algorithm of a table, or of the user's own, holds its settings; a record that was given
    # in Python under a name of its own cannot be made again from them.
    return method in METHODS_WITHOUT_TABLE or hasattr(config, "setting_names")
