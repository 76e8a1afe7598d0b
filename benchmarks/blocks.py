"""How large should a block of logits be? Time of one forward and backward of the vocabulary head, by size.

usage: python benchmarks/blocks.py [TOKENS HIDDEN VOCABULARY]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from plaudit.tensors import blocks
from plaudit.tensors.logprobs import score_tokens


def seconds(tokens: int, hidden: int, vocabulary: int, rounds: int = 5) -> tuple[float, float]:
    """Median seconds of forward and of backward."""
    torch.manual_seed(0)
    hidden_MH = torch.randn(tokens, hidden, requires_grad=True)
    weight_VH = (torch.randn(vocabulary, hidden) * 0.02).requires_grad_()
    target_M = torch.randint(vocabulary, (tokens,))
    forward: list[float] = []
    backward: list[float] = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        loss = -score_tokens(hidden_MH, weight_VH, target_M).logp_M.mean()
        middle = time.perf_counter()
        loss.backward()
        forward.append(middle - began)
        backward.append(time.perf_counter() - middle)
    return statistics.median(forward[1:]), statistics.median(backward[1:])


def main(tokens: int, hidden: int, vocabulary: int) -> None:
    """Print a line for each size."""
    print(f"{tokens} tokens, {hidden} hidden, {vocabulary} words, {torch.get_num_threads()} threads")
    print("block (KiB)  forward (s)  backward (s)")
    for power in range(17, 25):
        blocks.LOGITS_AT_ONCE["cpu"] = 2**power
        forward, backward = seconds(tokens, hidden, vocabulary)
        print(f"{2**power * 4 // 1024:11}  {forward:11.3f}  {backward:12.3f}")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given or [770, 256, 32_000]))
