"""Run by the peer's own Python: what its reward trainer's loss and gradient are for given scores.

Reads ``[[chosen scores, rejected scores, margins or null, centring or null], …]`` and prints
``[[loss, gradient by chosen, gradient by rejected], …]``.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace


def main() -> None:
    import torch
    from accelerate import Accelerator
    from trl import RewardTrainer

    class Scores(torch.nn.Module):
        def __init__(self, scores):
            super().__init__()
            self.scores = torch.nn.Parameter(torch.tensor(scores, dtype=torch.float64)[:, None])

        def forward(self, **_):
            return SimpleNamespace(logits=self.scores)

    answers = []
    for chosen, rejected, margin, weight in json.load(sys.stdin):
        trainer = object.__new__(RewardTrainer)
        trainer.model = Scores([*chosen, *rejected]).eval()
        trainer.args = SimpleNamespace(center_rewards_coefficient=weight)
        trainer.accelerator = Accelerator(cpu=True)
        trainer._metrics, trainer._total_train_tokens = {"eval": defaultdict(list)}, 0
        inputs = {} if margin is None else {"margin": torch.tensor(margin, dtype=torch.float64)}
        loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()
        grad = trainer.model.scores.grad[:, 0].tolist()
        answers.append([loss.item(), grad[: len(chosen)], grad[len(chosen) :]])
    print("ANSWERS" + json.dumps(answers))


if __name__ == "__main__":
    main()
