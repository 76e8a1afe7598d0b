"""What diffusion models minimise, beside formulas written out, torch's own densities and diffusers' schedulers."""

import math

import pytest
import torch
from torch.distributions import Normal

from plaudit.losses.preference import completion_logps, dpo
from plaudit.losses.unpaired import kto
from plaudit.pictures.diffusion.formulas import (
    Levels,
    ddpm_levels,
    diffusion_dpo,
    drawn_levels,
    error_logps,
    flow_levels,
    pick_loss,
    step_logp,
)

DOUBLE = torch.float64


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def mean_errors(said: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (said - target).square().mean((1, 2, 3))


def test_diffusion_dpo_is_that_of_the_authors_program() -> None:
    """SalesforceAIResearch/DiffusionDPO, train.py: σ of −β/2 times the difference of differences of means."""
    said, reference, target = (draw(6, 3, 4, 4, seed=seed) for seed in range(3))
    said.requires_grad_()
    beta = 5000 / 1000
    ours, refs = mean_errors(said, target), mean_errors(reference, target)
    pairs = [error_logps(ours[part], refs[part]) for part in (slice(0, 3), slice(3, 6))]
    loss = diffusion_dpo(*pairs, beta=beta).mean()
    of_policy = ((said - target) ** 2).reshape(6, -1).sum(1) / 48
    of_reference = ((reference - target) ** 2).reshape(6, -1).sum(1) / 48
    inside = -0.5 * beta * ((of_policy[:3] - of_policy[3:]) - (of_reference[:3] - of_reference[3:]))
    theirs = -torch.log(1 / (1 + torch.exp(-inside))).mean()
    torch.testing.assert_close(loss, theirs, rtol=1e-12, atol=0)
    grads = [torch.autograd.grad(x, said, retain_graph=True)[0] for x in (loss, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-16)


def gaussian_case(mean: torch.Tensor, pictures: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Errors of a model that starts from nothing but noise and means N(mean, s²): its bound is the likelihood.
    At the last level of flow matching x = ε; saying ε − mean, it errs by x₀ − mean whatever ε is."""
    levels, last = flow_levels(10), torch.full((len(pictures),), 9)
    said = levels.noisy(pictures, noise, last) - mean
    return (said - levels.target(pictures, noise, last)).square().flatten(1).sum(1)


def test_where_the_bound_is_exact_the_loss_is_dpo_of_true_log_likelihoods() -> None:
    mean, reference, (s, beta) = draw(5).requires_grad_(), draw(5, seed=1), (0.7, 0.3)
    chosen, rejected, noise = draw(8, 5, seed=2), draw(8, 5, seed=3), draw(8, 5, seed=4)
    pairs = [
        error_logps(*(gaussian_case(m, x, noise) for m in (mean, reference)), scale=1 / (2 * s**2))
        for x in (chosen, rejected)
    ]
    logps = [
        completion_logps(*(Normal(m, s).log_prob(x).sum(1) for m in (mean, reference)), torch.ones(8))
        for x in (chosen, rejected)
    ]
    losses = diffusion_dpo(*pairs, beta=beta).mean(), dpo(*logps, beta=beta).mean()
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, mean)[0] for loss in losses), rtol=1e-10, atol=1e-14
    )


def test_the_loss_rests_at_the_tilted_gaussian() -> None:
    """π* ∝ N(m_ref, s²) exp(w·x / β) has the mean m_ref + s² w / β; people prefer by σ(w·(x − y))."""
    reference, w, (s, beta) = draw(3), draw(3, seed=1), (0.7, 0.5)
    mean = (reference + s**2 * w / beta).requires_grad_()
    first, second, noise = draw(64, 3, seed=2), draw(64, 3, seed=3), draw(64, 3, seed=4)
    likes = ((first - second) @ w).sigmoid()
    one, two = (
        error_logps(*(gaussian_case(m, x, noise) for m in (mean, reference)), scale=1 / (2 * s**2))
        for x in (first, second)
    )
    loss = likes * diffusion_dpo(one, two, beta=beta) + (1 - likes) * diffusion_dpo(two, one, beta=beta)
    [slope] = torch.autograd.grad(loss.sum(), mean)
    assert slope.abs().max() < 1e-12


def test_diffusion_kto_is_that_of_the_authors_program() -> None:
    """jacklishufan/diffusion-kto: w (1 − σ(±β (g − z₀))), g the reference's mean error less ours; ours has ½ g."""
    ours, refs, label = draw(6).exp(), draw(6, seed=1).exp(), torch.tensor([1.0, 0, 1, 1, 0, 0], dtype=DOUBLE)
    logps, beta = error_logps(ours, refs), 2.0
    loss = kto(logps, label, beta=beta, baseline=max(0.0, logps.delta_B.mean().item()), undesirable=1.5)
    g = refs - ours
    scaled = (2 * label - 1) * (beta / 2) * (g - g.mean().clamp(min=0))
    theirs = (label + 1.5 * (1 - label)) * (1 - 1 / (1 + torch.exp(-scaled)))
    torch.testing.assert_close(loss, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("levels", [ddpm_levels(100), flow_levels(100)], ids=["ddpm", "flow"])
def test_a_perfect_model_is_taken_at_its_word(levels: Levels) -> None:
    clean, noise, level = (
        draw(4, 3, 2, 2).clamp(-1, 1),
        draw(4, 3, 2, 2, seed=1),
        torch.tensor([0, 30, 60, 97]),
    )
    noisy = levels.noisy(clean, noise, level)
    said = levels.target(clean, noise, level)
    for part, true in zip(levels.parts(noisy, said, level, math.inf), (clean, noise), strict=True):
        torch.testing.assert_close(part, true, rtol=1e-4, atol=1e-4)
    # Without noise of its own a step lands on the same noise at the next level; to level −1, on the picture.
    mean, std = levels.step((clean, noise), level, level - 1, noise=0.0)
    torch.testing.assert_close(mean, levels.noisy(clean, noise, level - 1), rtol=1e-6, atol=1e-6)
    assert std.max() == 0
    torch.testing.assert_close(mean[0], clean[0])


def test_steps_of_ddpm_have_the_posteriors_mean_and_spread_and_torchs_density() -> None:
    scheduler = pytest.importorskip("diffusers").DDPMScheduler(
        num_train_timesteps=1000,
        beta_schedule="squaredcos_cap_v2",
        clip_sample=True,
        variance_type="fixed_small",
    )
    levels, steps = ddpm_levels(1000), 10
    torch.testing.assert_close(levels.alpha_T**2, scheduler.alphas_cumprod, rtol=1e-3, atol=1e-6)
    scheduler.set_timesteps(steps)
    noisy, said = draw(2, 3, 4, 4).float(), draw(2, 3, 4, 4, seed=1).float()
    for now, after in zip(drawn_levels(1000, steps)[3:-2], drawn_levels(1000, steps)[4:-1], strict=True):
        level, to = torch.full((2,), now), torch.full((2,), after)
        mean, std = levels.step(levels.parts(noisy, said, level, 1.0), level, to)
        # Their steps are those of these levels less one remainder: time 99 − 100 k, as ours.
        bar, bar_to = scheduler.alphas_cumprod[now], scheduler.alphas_cumprod[after]
        clean = ((noisy - (1 - bar).sqrt() * said) / bar.sqrt()).clamp(-1, 1)
        rest = bar / bar_to
        posterior = (bar_to.sqrt() * (1 - rest) * clean + rest.sqrt() * (1 - bar_to) * noisy) / (1 - bar)
        torch.testing.assert_close(mean, posterior, rtol=1e-3, atol=1e-4)
        spread = ((1 - bar_to) / (1 - bar) * (1 - rest)).sqrt()
        torch.testing.assert_close(std.flatten()[0], spread, rtol=1e-3, atol=1e-5)
        drawn = mean + std * draw(2, 3, 4, 4, seed=2).float()
        torch.testing.assert_close(
            step_logp(drawn, mean, std), Normal(mean, std).log_prob(drawn).mean((1, 2, 3))
        )


def test_a_tie_is_half_of_each_preference() -> None:
    score = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    loss = pick_loss(score, torch.tensor([1.0, 1.0, 0.5]))
    assert loss[2] == pytest.approx((loss[0] + loss[1]).item() / 2)
    assert loss[0] == pytest.approx(math.log(1 + math.exp(-1)))
