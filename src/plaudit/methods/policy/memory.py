"""What a policy run remembers of prompts from round to round: how they are passed, and groups to replay."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.methods.policy.collect import ScoredGroup, group_as_json, group_from_json
from plaudit.tokens.prompts import EncodedPrompt

MIN_PROMPT_WEIGHT = 0.05
"""The smallest sampling weight, so that prompts that always or never pass are sampled now and then."""


class PassRateCurriculum:
    """Samples prompts in favour of those that are passed sometimes, since their completions differ in reward.

    A prompt with pass rate p is drawn in proportion to 4p(1 − p), a new one as if p were a half.
    """

    def __init__(self, prompts: Sequence[EncodedPrompt], *, pass_score: int | float, seed: int) -> None:
        """An answer passes whose score is at least ``pass_score``."""
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._pass_score, self._seed = pass_score, seed
        self._pass_rates = torch.full((len(prompts),), torch.nan, dtype=torch.float64)

    def sample_prompts(self, round_number: int, size: int) -> list[int]:
        pass_rates = self._pass_rates.nan_to_num(0.5)
        # 4p(1 − p) is the variance of a pass, scaled to 1 at p = ½, where answers differ most.
        weight = (4 * pass_rates * (1 - pass_rates)).clamp(min=MIN_PROMPT_WEIGHT)
        generator = torch.Generator().manual_seed(
            # 62 bits fit into a signed 64-bit seed.
            random.Random(f"{self._seed}/{round_number}/prompts").getrandbits(62)
        )
        # The largest u^(1/w) are a draw without putting back, in proportion to w.
        key = torch.rand(len(weight), generator=generator, dtype=torch.float64).log() / weight
        return key.topk(min(size, len(weight))).indices.tolist()

    def record_scores(self, groups: Sequence[ScoredGroup]) -> None:
        for group in groups:
            scores = [score for score in group.scores if score is not None]
            if scores:
                passed = sum(score >= self._pass_score for score in scores)
                self._pass_rates[self._row[group.prompt.id]] = passed / len(scores)

    def tensors(self) -> Mapping[str, Tensor]:
        return {"rate": self._pass_rates.clone()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._pass_rates = tensors["rate"].clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedGroup:
    round_number: int
    row: int
    group: ScoredGroup


class ReplayBuffer:
    """Replays groups of the last rounds as a share of every round."""

    def __init__(
        self, prompts: Sequence[EncodedPrompt], *, share: int | float, window: int, seed: int
    ) -> None:
        """``share`` of a round's groups are old ones, of at most ``window`` rounds ago."""
        self._prompts = prompts
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._share, self._window, self._seed = share, window, seed
        self._groups: list[ReplayedGroup] = []

    def sample_groups(self, groups: Sequence[ScoredGroup], round_number: int) -> tuple[ScoredGroup, ...]:
        """Groups to replay with these new ones, which are stored in turn."""
        recent = [entry for entry in self._groups if round_number - entry.round_number <= self._window]
        # `share` is of the whole round: of n new groups the whole has n / (1 − share).
        replay_count = round(self._share / (1 - self._share) * len(groups))
        rng = random.Random(f"{self._seed}/{round_number}/again")
        replayed = rng.sample(recent, min(replay_count, len(recent)))
        new = [
            ReplayedGroup(round_number=round_number, row=self._row[group.prompt.id], group=group)
            for group in groups
        ]
        # Stored after the draw, so that no round replays its own groups.
        self._groups = [*recent, *new]
        return tuple(entry.group for entry in replayed)

    def tensors(self) -> Mapping[str, Tensor]:
        rows = [
            [entry.round_number, entry.row, group_as_json(entry.row, entry.group)] for entry in self._groups
        ]
        return {"kept": torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        rows = json.loads(bytes(tensors["kept"].tolist()))
        self._groups = [
            ReplayedGroup(round_number=round_number, row=row, group=group_from_json(text, self._prompts)[1])
            for round_number, row, text in rows
        ]
