"""Run alone: how far memory rises for log-probs in blocks, and for all logits at once."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from plaudit.tensors import logprobs
from plaudit.tensors.logprobs import PLAIN
from tests.tensors.naive import Case, blocked_scores, case, naive_scores

TOKENS, VOCABULARY = 2048, 20_000
MIB = 2**20


def peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def rise(scores: Callable[[Case], tuple[Tensor, Tensor]], given: Case) -> float:
    """MiB that one forward and backward pass adds to the peak."""
    before = peak()
    logp_M, entropy_M = scores(given)
    torch.autograd.grad(logp_M.sum() + entropy_M.sum(), given.leaves)
    return (peak() - before) / MIB


def main() -> None:
    # With blocks of the size that is measured: libraries of products allocate their own buffers by it, once.
    logprobs.MAX_CACHED_LOGITS = 0
    small = case(tokens=logprobs.TOKENS_AT_ONCE, vocabulary=1024, hidden=16, dtype=torch.float32)
    rise(lambda one: blocked_scores(one, PLAIN), small)
    given = case(tokens=TOKENS, vocabulary=VOCABULARY, hidden=16, dtype=torch.float32)
    blocked = rise(lambda one: blocked_scores(one, PLAIN), given)
    naive = rise(lambda one: naive_scores(one, PLAIN), given)
    print(json.dumps({"blocked": blocked, "naive": naive, "logits": TOKENS * VOCABULARY * 4 / MIB}))


if __name__ == "__main__":
    main()
