"""What a step minimises: captioned pictures, pairs, thumbs, and rounds of drawn pictures with their rewards.

The noise of a step follows from the seed and the step's number: a run that is taken up draws the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from examples.diffusion.config import DdpoConfig, DiffusionConfig, DpoConfig, KtoConfig
from examples.diffusion.data import PictureRow, pixels_of
from examples.diffusion.formulas import diffusion_dpo, error_logps, pick_loss, step_logp
from examples.diffusion.models import Drawer, PreferenceModel, density, drawn, seeded
from plaudit.advantages.group import z_score
from plaudit.engine.loop import BatchRows, row_batches
from plaudit.engine.metrics import mean_metric, sum_metric
from plaudit.engine.step import ObjectiveResult
from plaudit.engine.step_report import Number
from plaudit.losses.policy import clipped
from plaudit.losses.preference import CompletionLogps
from plaudit.losses.unpaired import kto

Reward = Callable[[Sequence[str], Tensor], Sequence[float]]
"""From captions and pictures (N 3 H W, bytes) to how good each is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureBatch:
    """Rows of a step that go through the model at once. Example: see `picture_batches`."""

    origins: tuple[str, ...]
    captions: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    """A row for each caption: ``pixels`` (B K 3 H W) with ``label``, ``level`` and ``seed`` of the noise, or
    steps of drawing."""
    total: int
    """Rows of the whole step, by which losses are divided."""
    baseline: float = 0.0
    """KTO's z₀."""

    @property
    def tokens(self) -> int:
        """How many pictures go through the model."""
        return self.tensors["pixels"].shape[:2].numel() if "pixels" in self.tensors else len(self.captions)

    def rows(self) -> "Sequence[PictureBatch]":
        """Each row by itself, as part of the same step."""
        return self.split(0)

    def shares(self, ranks: int, budget: int) -> None:
        """One process trains."""

    def split(self, most: int) -> "list[PictureBatch]":
        """In pieces of at most so many pictures, or of one row."""
        rows = max(1, most * len(self.captions) // self.tokens)
        parts = [slice(at, at + rows) for at in range(0, len(self.captions), rows)]
        return [
            replace(
                self,
                origins=self.origins[part],
                captions=self.captions[part],
                tensors={name: tensor[part] for name, tensor in self.tensors.items()},
            )
            for part in parts
        ]


def picture_batches(
    rows: Sequence[PictureRow], config: DiffusionConfig, model: Drawer | PreferenceModel
) -> Callable[[int, BatchRows], Iterator[Sequence[PictureBatch]]]:
    """The steps that learn from rows with pictures."""
    levels = 1 if isinstance(model, PreferenceModel) else len(model.levels.alpha_T)

    def pixels(row: PictureRow) -> Tensor:
        return torch.stack([pixels_of(source, model.size) for source in row.pictures])

    def batch(step: int, numbers: Sequence[int]) -> list[PictureBatch]:
        chosen, size = [rows[number] for number in numbers], (len(numbers),)
        generator = seeded(f"noise {config.seed} {step}")
        drops = torch.rand(size, generator=generator) < getattr(config, "drop_captions", 0.0)
        tensors = {
            "pixels": torch.stack([pixels(row) for row in chosen]),
            "label": torch.tensor([row.label for row in chosen]),
            "level": torch.randint(levels, size, generator=generator),
            "seed": torch.randint(2**62, size, generator=generator),
        }
        captions = tuple("" if drop else row.caption for drop, row in zip(drops, chosen, strict=True))
        origins = tuple(row.origin for row in chosen)
        whole = PictureBatch(origins=origins, captions=captions, tensors=tensors, total=len(chosen))
        return whole.split(config.at_once)

    return row_batches(batch)


def errors(model: Drawer, batch: PictureBatch) -> Float[Tensor, "B K"]:
    """The mean squared error of each picture of each row, at the row's level and with the row's noise."""
    device, (rows, each) = next(model.parameters()).device, batch.tensors["pixels"].shape[:2]
    clean = model.encoded(batch.tensors["pixels"].to(device).flatten(0, 1))
    generators = [torch.Generator().manual_seed(seed) for seed in batch.tensors["seed"].tolist()]
    noises = torch.stack([torch.randn(model.shape, generator=x) for x in generators])
    # The pictures of a pair share level and noise: all that differs is the picture.
    noise = noises.to(clean).repeat_interleave(each, 0)
    level_N = batch.tensors["level"].to(device).repeat_interleave(each)
    captions = [caption for caption in batch.captions for _ in range(each)]
    error = model(model.levels.noisy(clean, noise, level_N), level_N, captions)
    error = error - model.levels.target(clean, noise, level_N)
    return error.square().flatten(1).mean(1).view(rows, each)


def _result(batch: PictureBatch, loss_B: Tensor, **figures: Tensor) -> ObjectiveResult:
    """The step's share of these rows, and figures as means over rows."""
    means = {name: (x.detach().double().sum(), x.numel()) for name, x in {"loss": loss_B, **figures}.items()}
    counts = (sum_metric("tokens", batch.tokens), sum_metric("rows", len(batch.captions)))
    return ObjectiveResult(
        loss=loss_B.sum() / batch.total,
        loss_N=loss_B.detach(),
        origin_N=batch.origins,
        metrics=(*(mean_metric(name, *mean) for name, mean in means.items()), *counts),
    )


def sft_step(batch: PictureBatch, model: Drawer) -> ObjectiveResult:
    """The mean squared error of what the model says."""
    return _result(batch, errors(model, batch)[:, 0])


def _ratios(batch: PictureBatch, model: Drawer, reference: Drawer) -> list[CompletionLogps]:
    """Errors as log-probs, of the first picture of each row and of the second, if there is one."""
    with torch.no_grad():
        reference_BK = errors(reference, batch)
    return [error_logps(*pair) for pair in zip(errors(model, batch).T, reference_BK.T, strict=True)]


def dpo_step(batch: PictureBatch, model: Drawer, reference: Drawer, config: DpoConfig) -> ObjectiveResult:
    """Diffusion-DPO; rewards are β Δ, of which the gap decides."""
    chosen, rejected = _ratios(batch, model, reference)
    loss_B = diffusion_dpo(chosen, rejected, beta=config.beta)
    good_B, bad_B = config.beta * chosen.delta_B, config.beta * rejected.delta_B
    figures = {"margin": good_B - bad_B, "reward_chosen": good_B, "reward_rejected": bad_B}
    return _result(batch, loss_B, accuracy=(good_B > bad_B).float(), **figures)


def kto_step(batch: PictureBatch, model: Drawer, reference: Drawer, config: KtoConfig) -> ObjectiveResult:
    """Diffusion-KTO (Li et al. 2024, arXiv:2404.04465): KTO's value of each picture's Δ from z₀ on."""
    [thumbs] = _ratios(batch, model, reference)
    label_B, reward_B = batch.tensors["label"].to(thumbs.delta_B), config.beta * thumbs.delta_B
    weights = {"desirable": config.desirable, "undesirable": config.undesirable}
    loss_B = kto(thumbs, label_B, beta=config.beta, baseline=batch.baseline, **weights)
    figures = {"reward_chosen": reward_B[label_B == 1], "reward_rejected": reward_B[label_B == 0]}
    return _result(batch, loss_B, baseline=torch.full_like(loss_B, batch.baseline), **figures)


def with_baseline(batches: Any, model: Drawer, reference: Drawer) -> Any:
    """The same steps with KTO's z₀: the mean Δ of the whole step, at least 0, by the weights before it."""

    def based(first: int, batch_rows: BatchRows) -> Iterator[Sequence[PictureBatch]]:
        for pieces in batches(first, batch_rows):
            with torch.no_grad():
                delta_N = torch.cat([_ratios(piece, model, reference)[0].delta_B for piece in pieces])
            yield [replace(piece, baseline=max(0.0, delta_N.mean().item())) for piece in pieces]

    return based


def pick_step(batch: PictureBatch, model: PreferenceModel) -> ObjectiveResult:
    """The preference between two pictures, ties among them."""
    pixels, label_B = (batch.tensors[name].to(model.scale.device) for name in ("pixels", "label"))
    score_B2 = torch.stack([model(batch.captions, pixels[:, n]) for n in (0, 1)], 1)
    decided = (score_B2[:, 0] - score_B2[:, 1])[label_B > 0.5]
    return _result(batch, pick_loss(score_B2, label_B), accuracy=(decided > 0).float(), margin=decided)


class Rounds:
    """DDPO: pictures of captions are drawn and rewarded, and every step of drawing is an action.

    Black et al. 2023, arXiv:2305.13301. A round is learnt from in several updates, each from other pictures,
    and is a part of checkpoints, for it cannot be drawn again once the weights have moved.
    """

    def __init__(self, model: Drawer, rows: Sequence[PictureRow], config: DdpoConfig, reward: Reward) -> None:
        self._model, self._rows, self._config, self._reward = model, rows, config, reward
        self._round: Mapping[str, Tensor] = {}

    def batches(self, first: int, batch_rows: BatchRows) -> Iterator[list[PictureBatch]]:
        """The updates from step ``first`` on, which may be within a round."""
        for step in count(first):
            number, update = divmod(step - 1, self._config.updates)
            if not self._round or int(self._round["number"]) != number:
                self._round = self._draw(number, batch_rows(number + 1))
            yield self._update(update)

    def _draw(self, number: int, rows: Sequence[int]) -> dict[str, Tensor]:
        config, model, pieces = self._config, self._model, list[dict[str, Tensor]]()
        row_N = torch.tensor(rows).repeat_interleave(config.group_size)
        for at in range(0, len(row_N), config.at_once):
            captions = [self._rows[row].caption for row in row_N[at : at + config.at_once].tolist()]
            seeds = [f"round {config.seed} {number} {at + place}" for place in range(len(captions))]
            *steps, last = drawn(model, captions, seeds, config)
            stacked = (torch.stack(parts, 1).cpu() for parts in zip(*steps, strict=True))
            piece = dict(zip(("levels", "before", "after", "logp"), stacked, strict=True))
            scores = self._reward(captions, model.decoded(last[2]).cpu())
            pieces.append({**piece, "reward": torch.tensor([*map(float, scores)])})
        whole = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        whole |= {"row": row_N, "advantage": z_score(whole["reward"], row_N)}
        order = torch.randperm(len(row_N), generator=seeded(f"order {config.seed} {number}"))
        return {"number": torch.tensor(number), **{name: x[order] for name, x in whole.items()}}

    def _update(self, update: int) -> list[PictureBatch]:
        steps = self._config.draw_steps - 1
        mine = torch.arange(len(self._round["row"])).tensor_split(self._config.updates)[update]
        part = {name: x[mine] for name, x in self._round.items() if name != "number"}
        # A row is a picture and one step of drawing it.
        of_pictures = ("row", "advantage", "reward")
        each = {
            n: x.repeat_interleave(steps) if n in of_pictures else x.flatten(0, 1) for n, x in part.items()
        }
        rows = [self._rows[row] for row in each["row"].tolist()]
        origins, captions = tuple(row.origin for row in rows), tuple(row.caption for row in rows)
        whole = PictureBatch(origins=origins, captions=captions, tensors=each, total=len(rows))
        return whole.split(self._config.at_once)

    def step(self, batch: PictureBatch) -> ObjectiveResult:
        """PPO's clipped surrogate of each step's density, with the guidance that it was drawn with."""
        config, device = self._config, next(self._model.parameters()).device
        at = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        mean, std = density(self._model, at["before"], at["levels"], batch.captions, config)
        log_ratio_N = step_logp(at["after"], mean, std) - at["logp"]
        ratio_N, advantage_N1 = log_ratio_N.exp(), at["advantage"][:, None]
        loss_N = clipped(ratio_N[:, None], advantage_N1, low=config.clip, high=config.clip)[:, 0]
        figures = {"reward": at["reward"], "ratio": ratio_N, "approx_kl": ratio_N - 1 - log_ratio_N}
        return _result(batch, loss_N, clip_frac=((ratio_N - 1).abs() > config.clip).float(), **figures)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """A round ends by its number."""

    def tensors(self) -> Mapping[str, Tensor]:
        """The round at hand, as a checkpoint holds it."""
        return self._round

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up a round."""
        self._round = dict(tensors)
