"""Noise levels, what is learnt at them, and the densities of drawing: arithmetic on tensors.

A noisy picture is x = α x₀ + σ ε. DDPM has α² + σ² = 1, flow matching α + σ = 1; all else is one arithmetic.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.losses.preference import CompletionLogps, completion_logps, dpo


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """How much of a picture is left at each level, and what a model says there; level 0 has the least noise.

    Example: ``ddpm_levels(1000)``, ``flow_levels(1000)``.
    """

    alpha_T: Float[Tensor, " T"]
    sigma_T: Float[Tensor, " T"]
    prediction: Literal["epsilon", "v_prediction", "flow"] = "epsilon"

    def at(self, level_N: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """α and σ of these levels, one for each picture; level −1 is the picture itself."""
        shape, at_N = (-1,) + (1,) * (like.ndim - 1), level_N.to(self.alpha_T.device) + 1
        alpha_T, sigma_T = self.alpha_T.new_ones(1), self.sigma_T.new_zeros(1)
        parts = torch.cat([alpha_T, self.alpha_T])[at_N], torch.cat([sigma_T, self.sigma_T])[at_N]
        return parts[0].to(like).view(shape), parts[1].to(like).view(shape)

    def noisy(self, clean: Tensor, noise: Tensor, level_N: Tensor) -> Tensor:
        """α x₀ + σ ε."""
        alpha, sigma = self.at(level_N, clean)
        return alpha * clean + sigma * noise

    def target(self, clean: Tensor, noise: Tensor, level_N: Tensor) -> Tensor:
        """What a perfect model would say: ε; of v-prediction α ε − σ x₀; of flow matching ε − x₀."""
        alpha, sigma = self.at(level_N, clean)
        targets = {"epsilon": noise, "v_prediction": alpha * noise - sigma * clean, "flow": noise - clean}
        return targets[self.prediction]

    def parts(
        self, noisy: Tensor, prediction: Tensor, level_N: Tensor, bound: float
    ) -> tuple[Tensor, Tensor]:
        """The picture x₀, within ±``bound``, and the noise ε that a model means."""
        alpha, sigma = self.at(level_N, noisy)
        if self.prediction == "epsilon":
            clean = (noisy - sigma * prediction) / alpha
        else:
            clean = (alpha if self.prediction == "v_prediction" else 1.0) * noisy - sigma * prediction
        clean = clean.clamp(-bound, bound)
        return clean, (noisy - alpha * clean) / sigma

    def step(
        self, parts: tuple[Tensor, Tensor], level_N: Tensor, next_N: Tensor, *, noise: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the step from these parts to a level with less noise.

        ``noise`` 1 is DDPM's step with the posterior's variance (Ho et al. 2020, arXiv:2006.11239), 0 DDIM's
        without any (Song et al. 2020, arXiv:2010.02502); of flow matching they are the same.
        """
        (clean, epsilon), (alpha, sigma) = parts, self.at(level_N, parts[0])
        alpha_next, sigma_next = self.at(next_N, clean)
        std = noise * sigma_next / sigma * (sigma**2 - (alpha / alpha_next * sigma_next) ** 2).clamp(0).sqrt()
        return alpha_next * clean + (sigma_next**2 - std**2).clamp(0).sqrt() * epsilon, std


def ddpm_levels(levels: int) -> Levels:
    """The cosine schedule of Nichol and Dhariwal 2021, arXiv:2102.09672, whose β are at most 0.999."""
    time_T = torch.arange(levels + 1, dtype=torch.float64) / levels
    bar_T = torch.cos((time_T + 0.008) / 1.008 * math.pi / 2) ** 2
    left_T = (bar_T[1:] / bar_T[:-1]).clamp(min=0.001).cumprod(0)
    return Levels(alpha_T=left_T.sqrt().float(), sigma_T=(1 - left_T).sqrt().float())


def flow_levels(levels: int) -> Levels:
    """α = 1 − t, σ = t. Liu et al. 2022, arXiv:2209.03003; Lipman et al. 2022, arXiv:2210.02747."""
    time_T = torch.arange(1, levels + 1) / levels
    return Levels(alpha_T=1 - time_T, sigma_T=time_T, prediction="flow")


def drawn_levels(levels: int, steps: int) -> list[int]:
    """The levels that a picture goes through, evenly, and −1 at the end.

    >>> drawn_levels(1000, 4)
    [999, 749, 499, 249, -1]
    """
    return [levels - 1 - levels * step // steps for step in range(steps)] + [-1]


def error_logps(
    error_B: Float[Tensor, " B"], reference_error_B: Float[Tensor, " B"], scale: float = 0.5
) -> CompletionLogps:
    """Errors in the place of log-probs: Δ = −scale (‖ε − ε_θ‖² − ‖ε − ε_ref‖²).

    −‖ε − ε_θ‖² is, up to weight and constant, the drawn level's term in a lower bound of log p_θ(x₀|c): so
    any loss of log-ratios becomes one of diffusion models.
    """
    return completion_logps(-scale * error_B, -scale * reference_error_B, torch.ones_like(error_B))


def diffusion_dpo(chosen: CompletionLogps, rejected: CompletionLogps, *, beta: float) -> Float[Tensor, " B"]:
    """−log σ(−βTω (‖ε_w − ε_θ‖² − ‖ε_w − ε_ref‖² − (‖ε_l − ε_θ‖² − ‖ε_l − ε_ref‖²))), one t and ε for both.

    Wallace et al. 2023, arXiv:2311.12908: DPO of `error_logps`, Tω within β; with half of a mean squared
    error β is that of their program, 2000 to 5000.

    >>> same, better = (error_logps(torch.tensor([e]), torch.ones(1)) for e in (1.0, 0.9))
    >>> [round(diffusion_dpo(chosen, same, beta=20).item(), 4) for chosen in (same, better)]
    [0.6931, 0.3133]
    """
    return dpo(chosen, rejected, beta=beta)


def step_logp(drawn: Tensor, mean: Tensor, std: Tensor) -> Float[Tensor, " N"]:
    """The log-density of a step that was drawn, divided by how many numbers a picture has: undivided, ratios
    of thousands of numbers leave any clip at once. So clip Black et al. 2023 (DDPO), arXiv:2305.13301."""
    logp = -((drawn - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
    return logp.flatten(1).mean(1)


def pick_loss(score_B2: Float[Tensor, "B 2"], label_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Cross entropy of the softmax over two pictures with how much the first is preferred; a tie is ½.
    Kirstain et al. 2023 (PickScore), arXiv:2305.01569."""
    return -(torch.stack([label_B, 1 - label_B], 1) * score_B2.log_softmax(1)).sum(1)
