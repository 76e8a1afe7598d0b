"""What diffusion models minimise: beside formulas written out, and torch's own densities."""

import math

import pytest
import torch
from torch.distributions import Normal

from examples.diffusion.formulas import (
    Levels,
    ddpm_levels,
    diffusion_dpo,
    error_logps,
    flow_levels,
    step_logp,
)
from plaudit.losses.preference import completion_logps, dpo
from plaudit.losses.unpaired import kto


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(ours: torch.Tensor, theirs: torch.Tensor, by: torch.Tensor) -> None:
    """In value and gradient."""
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    slopes = (torch.autograd.grad(loss.sum(), by, retain_graph=True)[0] for loss in (ours, theirs))
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-14)


def test_diffusion_dpo_is_that_of_the_authors_program() -> None:
    """SalesforceAIResearch/DiffusionDPO, train.py: σ of −β/2 times the difference of differences of means."""
    policy, reference, target = (draw(6, 3, 4, 4, seed=seed) for seed in range(3))
    policy.requires_grad_()
    errors = [(x - target).square().mean((1, 2, 3)) for x in (policy, reference)]
    chosen, rejected = (error_logps(*(x[part] for x in errors)) for part in (slice(3), slice(3, 6)))
    ours, refs = (((x - target) ** 2).reshape(6, -1).sum(1) / 48 for x in (policy, reference))
    inside = -0.5 * 5.0 * ((ours[:3] - ours[3:]) - (refs[:3] - refs[3:]))
    same(diffusion_dpo(chosen, rejected, beta=5.0), -torch.log(1 / (1 + torch.exp(-inside))), policy)


def test_diffusion_kto_is_that_of_the_authors_program() -> None:
    """jacklishufan/diffusion-kto: w (1 − σ(±β (g − z₀))), g the reference's error less ours; Δ is ½ g."""
    errors, refs, label = draw(6).exp(), draw(6, seed=1).exp(), (draw(6, seed=2) > 0).double()
    errors.requires_grad_()
    logps, g = error_logps(errors, refs), refs - errors
    baseline = max(0.0, logps.delta_B.mean().item())
    scaled = (2 * label - 1) * (g - g.mean().clamp(min=0).detach())
    theirs = (label + 1.5 * (1 - label)) * (1 - 1 / (1 + torch.exp(-scaled)))
    same(kto(logps, label, beta=2.0, baseline=baseline, undesirable=1.5), theirs, errors)


S, BETA = 0.7, 0.3


def bounds(mean: torch.Tensor, reference: torch.Tensor, pictures: torch.Tensor, noise: torch.Tensor):
    """Errors of a model that says ε − mean of pure noise, and so means N(mean, s²): the bound is exact there.
    At the last level of flow matching x = ε, and it errs by x₀ − mean whatever ε is."""
    levels, last = flow_levels(10), torch.full((len(pictures),), 9)
    noisy, target = (f(pictures, noise, last) for f in (levels.noisy, levels.target))
    errors = [(noisy - m - target).square().sum(1) for m in (mean, reference)]
    return error_logps(*errors, scale=1 / (2 * S**2))


def test_where_the_bound_is_exact_the_loss_is_dpo_of_true_log_likelihoods() -> None:
    mean, reference, noise = draw(5).requires_grad_(), draw(5, seed=1), draw(8, 5, seed=4)
    pairs = draw(8, 5, seed=2), draw(8, 5, seed=3)
    ours = (bounds(mean, reference, pictures, noise) for pictures in pairs)
    logps = [[Normal(m, S).log_prob(x).sum(1) for m in (mean, reference)] for x in pairs]
    theirs = (completion_logps(*both, torch.ones(8)) for both in logps)
    same(diffusion_dpo(*ours, beta=BETA), dpo(*theirs, beta=BETA), mean)


def test_the_loss_rests_at_the_tilted_gaussian() -> None:
    """People prefer by σ(w·(x − y)); π* ∝ N(m_ref, s²) exp(w·x / β) has the mean m_ref + s² w / β."""
    reference, w, noise = draw(3), draw(3, seed=1), draw(64, 3, seed=4)
    mean = (reference + S**2 * w / BETA).requires_grad_()
    first, second = draw(64, 3, seed=2), draw(64, 3, seed=3)
    likes = ((first - second) @ w).sigmoid()
    a, b = (bounds(mean, reference, pictures, noise) for pictures in (first, second))
    loss = likes * diffusion_dpo(a, b, beta=BETA) + (1 - likes) * diffusion_dpo(b, a, beta=BETA)
    assert torch.autograd.grad(loss.sum(), mean)[0].abs().max() < 1e-12


@pytest.mark.parametrize("levels", [ddpm_levels(100), flow_levels(100)], ids=["ddpm", "flow"])
def test_a_perfect_model_is_taken_at_its_word(levels: Levels) -> None:
    clean, noise = draw(4, 3, 2, 2).clamp(-1, 1), draw(4, 3, 2, 2, seed=1)
    level = torch.tensor([0, 30, 60, 97])
    noisy, target = levels.noisy(clean, noise, level), levels.target(clean, noise, level)
    for part, true in zip(levels.parts(noisy, target, level, math.inf), (clean, noise), strict=True):
        torch.testing.assert_close(part, true, rtol=1e-4, atol=1e-4)
    # Without noise of its own a step lands on the same noise at the next level; at the end, on the picture.
    mean, std = levels.step((clean, noise), level, level - 1, noise=0.0)
    torch.testing.assert_close(mean, levels.noisy(clean, noise, level - 1))
    torch.testing.assert_close(mean[0], clean[0])
    assert std.max() == 0


def test_steps_of_ddpm_have_the_posteriors_mean_and_spread_and_torchs_density() -> None:
    levels, (noisy, output) = ddpm_levels(1000), (draw(2, 3, 4, 4, seed=seed) for seed in (0, 1))
    bars = levels.alpha_T.double() ** 2
    for now, after in ((799, 699), (500, 499), (99, 19)):
        level, to = torch.full((2,), now), torch.full((2,), after)
        mean, std = levels.step(levels.parts(noisy, output, level, 1.0), level, to)
        bar, bar_to, left = bars[now], bars[after], bars[now] / bars[after]
        clean = ((noisy - (1 - bar).sqrt() * output) / bar.sqrt()).clamp(-1, 1)
        posterior = (bar_to.sqrt() * (1 - left) * clean + left.sqrt() * (1 - bar_to) * noisy) / (1 - bar)
        torch.testing.assert_close(mean, posterior, rtol=1e-4, atol=1e-5)
        spread = ((1 - bar_to) / (1 - bar) * (1 - left)).sqrt()
        torch.testing.assert_close(std.flatten()[0], spread, rtol=1e-4, atol=1e-5)
        # The log-ratio of a step and its gradient, as DDPO learns from them.
        drawn, mean = mean + std * draw(2, 3, 4, 4, seed=2), mean.detach().requires_grad_()
        same(step_logp(drawn, mean, std), Normal(mean, std).log_prob(drawn).mean((1, 2, 3)), mean)
