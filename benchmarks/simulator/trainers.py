"""How long trainers take over a piece of a round.

Its answers are dealt to the copies of the model, and each move ends with the copy that has most to do. A copy
is divided in two ways: GPUs that share each sequence (tensor, context or sequence parallel), and stages that
sequences pass one after the other: a pipeline of p stages takes m + p − 1 turns over m micro-batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.simulator.servers import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """GPUs that learn, and how the model lies on them.

    Example: ``Trainers(gpus=64, shared=4, moves=16)``
    """

    gpus: int
    shared: int = 1
    """GPUs that share a sequence."""
    stages: int = 1
    moves: int = 1
    """Optimiser steps of a round."""
    pack: float = 0.0
    """Tokens of a micro-batch of packed sequences; 0 where each stays with the copy that it was dealt to."""

    def gpu_tokens(self, lengths_N: Lengths, prompt: float, pieces: int = 1) -> float:
        """Tokens that the busiest GPU computes, turns in which it waits for other stages included."""
        copies = max(1, self.gpus // (self.shared * self.stages))
        moves = max(1, self.moves // pieces)
        return sum(self._move(share_N + prompt, copies) for share_N in np.array_split(lengths_N, moves))

    def _move(self, tokens_N: Lengths, copies: int) -> float:
        if not self.pack:
            return float(max(tokens_N[copy::copies].sum() for copy in range(copies))) / self.shared
        micro_batches = math.ceil(float(tokens_N.sum()) / (self.pack * copies))
        return self.pack * (micro_batches + self.stages - 1) / (self.shared * self.stages)
