"""How large should blocks of the vocabulary head be? Time of one forward and backward, by size.

First by a block's elements, for `score_tokens`; then by the rows whose logits are kept, for `score_alike`.

python -m benchmarks.blocks --size 770 256 32000      tokens, hidden size, vocabulary
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

from benchmarks.measure import now
from benchmarks.turns import DEVICES
from plaudit.tensors import logprobs
from plaudit.tensors.logprobs import TokenScores, score_tokens, score_tokens_equally_weighted

Size = tuple[int, int, int]
"""Tokens, hidden size, vocabulary."""


def seconds(
    score: Callable[..., TokenScores], size: Size, device: str, rounds: int = 5
) -> tuple[float, float]:
    """Median seconds of forward and of backward."""
    tokens, hidden, vocabulary = size
    torch.manual_seed(0)
    hidden_MH = torch.randn(tokens, hidden, device=device, requires_grad=True)
    weight_VH = (torch.randn(vocabulary, hidden, device=device) * 0.02).requires_grad_()
    target_M = torch.randint(vocabulary, (tokens,), device=device)
    forward: list[float] = []
    backward: list[float] = []
    for _ in range(rounds + 1):
        began = now(device)
        loss = -score(hidden_MH, weight_VH, target_M).logp_M.mean()
        middle = now(device)
        loss.backward()
        forward.append(middle - began)
        backward.append(now(device) - middle)
    return statistics.median(forward[1:]), statistics.median(backward[1:])


def main(size: Size, device: str) -> None:
    """Print a line for each size."""
    tokens, hidden, vocabulary = size
    print(f"{tokens} tokens, {hidden} hidden, {vocabulary} words, {torch.get_num_threads()} threads")
    print("score_tokens, block (KiB)  forward (s)  backward (s)")
    usual = dict(logprobs.LOGITS_AT_ONCE)
    for power in range(17, 25) if device == "cpu" else range(22, 30):
        logprobs.LOGITS_AT_ONCE[device] = 2**power
        forward, backward = seconds(score_tokens, size, device)
        print(f"{2**power * 4 // 1024:25}  {forward:11.3f}  {backward:12.3f}")
    logprobs.LOGITS_AT_ONCE.update(usual)
    print("score_alike, rows kept     forward (s)  backward (s)")
    for rows in (64, 128, 256, 512):
        logprobs.RETAINED_ROWS_AT_ONCE = rows
        forward, backward = seconds(score_tokens_equally_weighted, size, device)
        print(f"{min(rows, hidden):25}  {forward:11.3f}  {backward:12.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="time the vocabulary head by the size of its blocks")
    parser.add_argument(
        "--size", nargs=3, type=int, default=[770, 256, 32_000], help="tokens hidden vocabulary"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    given = parser.parse_args()
    main((given.size[0], given.size[1], given.size[2]), given.device)
