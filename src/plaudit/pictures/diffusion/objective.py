"""What a step minimises: captioned pictures, pairs, thumbs, and rounds of drawn pictures with their rewards.

The noise of a step follows from the seed and the step's number, so that a run that is taken up draws the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.advantages.group import z_score
from plaudit.engine.loop import BatchRows
from plaudit.engine.metrics import Metric, mean_metric, sum_metric
from plaudit.engine.step import ObjectiveResult
from plaudit.engine.step_report import Number
from plaudit.losses.policy import clipped
from plaudit.losses.preference import CompletionLogps
from plaudit.losses.unpaired import kto
from plaudit.pictures.diffusion.config import DdpoConfig, DiffusionConfig, DpoConfig, KtoConfig
from plaudit.pictures.diffusion.data import PictureRow, Pixels
from plaudit.pictures.diffusion.formulas import diffusion_dpo, error_logps, mean_square, pick_loss, step_logp
from plaudit.pictures.diffusion.models import Drawer, PreferenceModel, density, drawn, seeded

Reward = Callable[[Sequence[str], Tensor], Sequence[float]]
"""From captions and pictures (N 3 H W, bytes) to how good each is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureBatch:
    """Rows of a step that go through the model at once; each tensor has a row for each caption.

    Example: pairs with their noise are ``PictureBatch(captions=…, tensors={"clean": …, "noise": …}, …)``
    """

    origins: tuple[str, ...]
    captions: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    """Pictures as ``pixels`` (rows, pictures of a row, 3, H, W), with ``noise`` and ``level``; or of a round."""
    total: int
    """Rows of the whole step, by which losses are divided."""
    baseline: float = 0.0
    """What values are measured from, where a loss has that (KTO's z₀)."""

    @property
    def tokens(self) -> int:
        """How many pictures go through the model."""
        pixels = self.tensors.get("pixels")
        return len(self.captions) * (1 if pixels is None else pixels.shape[1])

    def rows(self) -> "Sequence[PictureBatch]":
        """Each row by itself, as part of the same step."""
        return [self.part(slice(row, row + 1)) for row in range(len(self.captions))]

    def shares(self, ranks: int, budget: int) -> None:
        """One process trains."""

    def part(self, rows: slice) -> "PictureBatch":
        tensors = {name: tensor[rows] for name, tensor in self.tensors.items()}
        return replace(self, origins=self.origins[rows], captions=self.captions[rows], tensors=tensors)

    def split(self, most: int) -> "list[PictureBatch]":
        """In pieces of at most so many pictures, or of one row."""
        rows = max(1, most * len(self.captions) // self.tokens)
        return [self.part(slice(at, at + rows)) for at in range(0, len(self.captions), rows)]


def picture_batches(
    rows: Sequence[PictureRow], config: DiffusionConfig, pixels: Pixels, levels: int | None
) -> Callable[[int, BatchRows], Iterator[list[PictureBatch]]]:
    """The steps that learn from rows with pictures; noise of one of the ``levels`` for each, where there are any."""

    def batch(step: int, numbers: Sequence[int]) -> PictureBatch:
        chosen = [rows[number] for number in numbers]
        chance = seeded(f"noise {config.seed} {step}")
        shown = torch.stack([pixels(row.pictures) for row in chosen])
        tensors = {"pixels": shown, "label": torch.tensor([row.label for row in chosen])}
        captions = tuple(row.caption for row in chosen)
        if levels is not None:
            dropped = torch.rand(len(chosen), generator=chance) < config.drop_captions
            captions = tuple("" if no else text for no, text in zip(dropped, captions, strict=True))
            tensors["level"] = torch.randint(levels, (len(chosen),), generator=chance)
            # Seeds of the noise, whose shape the model knows.
            tensors["seed"] = torch.randint(2**62, (len(chosen),), generator=chance)
        origins = tuple(row.origin for row in chosen)
        return PictureBatch(origins=origins, captions=captions, tensors=tensors, total=len(chosen))

    def batches(first: int, batch_rows: BatchRows) -> Iterator[list[PictureBatch]]:
        return (batch(step, batch_rows(step)).split(config.at_once) for step in count(first))

    return batches


def errors(model: Drawer, batch: PictureBatch) -> Float[Tensor, "B K"]:
    """The mean squared error of each picture of each row, at the row's level and with the row's noise."""
    device = next(model.parameters()).device
    shown = batch.tensors["pixels"].to(device)
    rows, each = shown.shape[:2]
    clean = model.encoded(shown.flatten(0, 1))
    noises = [
        torch.randn(model.shape, generator=torch.Generator().manual_seed(seed))
        for seed in batch.tensors["seed"].tolist()
    ]
    # The pictures of a pair share time and noise: what differs is the picture.
    noise = torch.stack(noises).to(clean).repeat_interleave(each, 0)
    level_N = batch.tensors["level"].to(device).repeat_interleave(each)
    captions = [caption for caption in batch.captions for _ in range(each)]
    said = model(model.levels.noisy(clean, noise, level_N), level_N, captions)
    return mean_square(said, model.levels.target(clean, noise, level_N)).view(rows, each)


def _result(batch: PictureBatch, loss_B: Tensor, **figures: Tensor) -> ObjectiveResult:
    """The step's share of these rows, and figures as means over rows."""
    size = len(batch.captions)
    means = {"loss": loss_B, **figures}
    return ObjectiveResult(
        loss=loss_B.sum() / batch.total,
        loss_N=loss_B.detach(),
        origin_N=batch.origins,
        metrics=(
            *(
                mean_metric(name, x.detach().double().sum(), x.numel())
                for name, x in means.items()
                if x.numel()
            ),
            sum_metric("tokens", batch.tokens),
            sum_metric("rows", size),
        ),
    )


def sft_objective(model: Drawer) -> Callable[[PictureBatch], ObjectiveResult]:
    """The mean squared error of what the model says."""
    return lambda batch: _result(batch, errors(model, batch)[:, 0])


def _paired(model: Drawer, reference: Drawer, batch: PictureBatch) -> list[CompletionLogps]:
    """Errors as log-probs, of the first picture of each row and of the second, if there is one."""
    with torch.no_grad():
        reference_BK = errors(reference, batch)
    error_BK = errors(model, batch)
    return [error_logps(error_B, ref_B) for error_B, ref_B in zip(error_BK.T, reference_BK.T, strict=True)]


def dpo_objective(
    model: Drawer, reference: Drawer, config: DpoConfig
) -> Callable[[PictureBatch], ObjectiveResult]:
    """Diffusion-DPO; rewards are β Δ, of which the gap decides."""

    def objective(batch: PictureBatch) -> ObjectiveResult:
        chosen, rejected = _paired(model, reference, batch)
        loss_B = diffusion_dpo(chosen, rejected, beta=config.beta)
        gap_B = chosen.delta_B - rejected.delta_B
        return _result(
            batch,
            loss_B,
            accuracy=(gap_B > 0).float(),
            margin=config.beta * gap_B,
            reward_chosen=config.beta * chosen.delta_B,
            reward_rejected=config.beta * rejected.delta_B,
        )

    return objective


def kto_objective(
    model: Drawer, reference: Drawer, config: KtoConfig
) -> Callable[[PictureBatch], ObjectiveResult]:
    """Diffusion-KTO (Li et al. 2024, arXiv:2404.04465): KTO's value of each picture's Δ from z₀ on."""

    def objective(batch: PictureBatch) -> ObjectiveResult:
        [thumbs] = _paired(model, reference, batch)
        label_B = batch.tensors["label"].to(thumbs.delta_B)
        loss_B = kto(
            thumbs,
            label_B,
            beta=config.beta,
            baseline=batch.baseline,
            desirable=config.desirable,
            undesirable=config.undesirable,
        )
        reward_B = config.beta * thumbs.delta_B
        good, bad = reward_B[label_B == 1], reward_B[label_B == 0]
        baseline = torch.full_like(reward_B, batch.baseline)
        return _result(batch, loss_B, reward_chosen=good, reward_rejected=bad, baseline=baseline)

    return objective


def with_baseline(
    steps: Iterator[list[PictureBatch]], model: Drawer, reference: Drawer
) -> Iterator[list[PictureBatch]]:
    """The same steps with KTO's z₀: the mean Δ of the whole step, at least 0, by the weights before it."""
    for pieces in steps:
        with torch.no_grad():
            delta_N = torch.cat([_paired(model, reference, piece)[0].delta_B for piece in pieces])
        baseline = max(0.0, delta_N.mean().item())
        yield [replace(piece, baseline=baseline) for piece in pieces]


def pick_objective(model: PreferenceModel) -> Callable[[PictureBatch], ObjectiveResult]:
    """The preference between two pictures, ties among them."""

    def objective(batch: PictureBatch) -> ObjectiveResult:
        device = model.scale.device
        pixels, label_B = batch.tensors["pixels"].to(device), batch.tensors["label"].to(device)
        score_B2 = torch.stack([model(batch.captions, pixels[:, n]) for n in (0, 1)], 1)
        gap_B = score_B2[:, 0] - score_B2[:, 1]
        decided = gap_B[label_B > 0.5]
        return _result(batch, pick_loss(score_B2, label_B), accuracy=(decided > 0).float(), margin=decided)

    return objective


class Rounds:
    """DDPO: pictures of captions are drawn and rewarded, and every step of drawing is an action.

    Black et al. 2023, arXiv:2305.13301. A round is learnt from in several updates, each from other pictures,
    and is a part of checkpoints, for it cannot be drawn again once the weights have moved.
    """

    def __init__(self, model: Drawer, rows: Sequence[PictureRow], config: DdpoConfig, reward: Reward) -> None:
        self._model, self._rows, self._config, self._reward = model, rows, config, reward
        self._round: dict[str, Tensor] = {}

    def batches(self, first: int, batch_rows: BatchRows) -> Iterator[list[PictureBatch]]:
        """The updates from step ``first`` on, which may be within a round."""
        updates = self._config.updates
        for step in count(first):
            number, update = divmod(step - 1, updates)
            if not self._round or int(self._round["number"]) != number:
                self._round = self._draw(number, batch_rows(number + 1))
            yield self._update(update)

    def _draw(self, number: int, rows: Sequence[int]) -> dict[str, Tensor]:
        config, model = self._config, self._model
        row_N = torch.tensor(rows).repeat_interleave(config.group_size)
        how: dict[str, Any] = {"steps": config.draw_steps, "guidance": config.guidance}
        pieces = list[dict[str, Tensor]]()
        for at in range(0, len(row_N), config.at_once):
            part = row_N[at : at + config.at_once].tolist()
            captions = [self._rows[row].caption for row in part]
            seeds = [f"round {config.seed} {number} {at + place}" for place in range(len(part))]
            *steps, last = drawn(model, captions, seeds, **how)
            scores = self._reward(captions, model.decoded(last[2]).cpu())
            names = ("levels", "before", "after", "logp")
            kept = zip(names, zip(*steps, strict=True), strict=True)
            tensors = {name: torch.stack(parts, 1).cpu() for name, parts in kept}
            pieces.append({**tensors, "reward": torch.tensor([*map(float, scores)])})
        whole = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        advantage_N = z_score(whole["reward"], row_N)
        order = torch.randperm(len(row_N), generator=seeded(f"order {config.seed} {number}"))
        facts = {"row": row_N, "advantage": advantage_N}
        return {"number": torch.tensor(number), **{name: x[order] for name, x in (whole | facts).items()}}

    def _update(self, update: int) -> list[PictureBatch]:
        config, steps = self._config, self._config.draw_steps - 1
        pictures = len(self._round["row"])
        mine = torch.arange(pictures).tensor_split(config.updates)[update]
        # A transition is a row: a picture and one step of drawing it.
        each = {name: self._round[name][mine].flatten(0, 1) for name in ("levels", "before", "after", "logp")}
        every = {
            name: self._round[name][mine].repeat_interleave(steps) for name in ("advantage", "reward", "row")
        }
        rows = [self._rows[row] for row in every["row"].tolist()]
        batch = PictureBatch(
            origins=tuple(row.origin for row in rows),
            captions=tuple(row.caption for row in rows),
            tensors=each | every,
            total=len(rows),
        )
        return batch.split(config.at_once)

    def objective(self, batch: PictureBatch) -> ObjectiveResult:
        """PPO's clipped surrogate of each step's density, by guided predictions as they were drawn by."""
        model, config, clip = self._model, self._config, self._config.clip
        device = next(model.parameters()).device
        told = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        mean, std = density(model, told["before"], told["levels"], batch.captions, config.guidance, 1.0)
        log_ratio_N = step_logp(told["after"], mean, std) - told["logp"]
        ratio_N = log_ratio_N.exp()
        loss_N = clipped(ratio_N[:, None], told["advantage"][:, None], low=clip, high=clip)[:, 0]
        beyond_N = ((ratio_N - 1).abs() > clip).float()
        approx_kl_N = ratio_N - 1 - log_ratio_N
        figures = {
            "reward": told["reward"],
            "ratio": ratio_N,
            "clip_frac": beyond_N,
            "approx_kl": approx_kl_N,
        }
        return _result(batch, loss_N, **figures)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """A round ends by its number."""

    def tensors(self) -> Mapping[str, Tensor]:
        """The round at hand, as a checkpoint holds it."""
        return self._round

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up a round."""
        self._round = {name: tensors[name] for name in tensors}
