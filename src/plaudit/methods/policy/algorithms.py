"""Every algorithm of policy optimisation: a function whose signature is its settings.

``plaudit train --list``, options, YAML keys and the documentation are made of these functions, and importing
them needs no torch. r is π / π_old or the reward, A the advantage; what a setting means stands in its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from plaudit.errors import UserError
from plaudit.methods.algorithm import (
    Algorithm,
    LazyModule,
    algorithm,
    find_algorithm,
    is_set,
    load_algorithm,
    refusal,
    table,
)
from plaudit.methods.policy import cells
from plaudit.methods.policy.cells import (
    CELLS,
    Beta,
    ClipHigh,
    ClipLow,
    DynamicSampling,
    EntropyCoef,
    Gamma,
    GroupSize,
    KlCoef,
    Lam,
    MaxKl,
    Minibatches,
    MixtureCoef,
    OverlongBuffer,
    OverlongFiltering,
    PenaltyCoef,
    PenaltyTarget,
    PtxCoef,
    RollbackAlpha,
    UpdateEpochs,
    VfCoef,
    readable_settings,
    refuse_unread,
    with_cells,
)

if TYPE_CHECKING:
    from plaudit.losses import divergence
    from plaudit.methods.policy import row
    from plaudit.methods.policy.row import PolicyAlgorithm
else:
    divergence = LazyModule("plaudit.losses.divergence")
    row = LazyModule("plaudit.methods.policy.row")

MUNOS_MIXTURE = 0.125
"""The reference's share of the mixture in Munos et al. 2023."""


@algorithm
def reinforce(kl_coef: KlCoef = 0.05, group_size: GroupSize = 1) -> PolicyAlgorithm:
    """−(r − mean of all so far) log π.

    So far: before its round. In the first round it is the mean of the other answers.

    Williams 1992.
    """
    return row.PolicyAlgorithm(
        advantage=cells.running,
        surrogate=cells.log_prob,
        reward_kl=divergence.k1,
        kl_coef=kl_coef,
        # By places for tokens: divided by its own length, a long answer would be learnt less per token.
        reduction=cells.fixed_length,
        group_size=group_size,
    )


@algorithm
def a2c(
    kl_coef: KlCoef = 0.05,
    gamma: Gamma = 1.0,
    entropy_coef: EntropyCoef = 0.0,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """−(r_t + γV_{t+1} − V_t) log π.

    Mnih et al. 2016, arXiv:1602.01783.
    """
    return row.PolicyAlgorithm(
        advantage=partial(cells.one_step, gamma=gamma),
        surrogate=cells.log_prob,
        reward_kl=divergence.k1,
        kl_coef=kl_coef,
        reduction=cells.token_mean,
        entropy_coef=entropy_coef,
        vf_coef=vf_coef,
        group_size=group_size,
    )


@algorithm
def trpo(
    kl_coef: KlCoef = 0.05,
    max_kl: MaxKl = 0.01,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """max r A with KL(π_old ‖ π) ≤ δ: natural gradient and line search.

    Schulman et al. 2015, arXiv:1502.05477.
    """
    return row.PolicyAlgorithm(
        advantage=partial(cells.gae, gamma=gamma, lam=lam),
        surrogate=cells.unclipped,
        reward_kl=divergence.k1,
        kl_coef=kl_coef,
        reduction=cells.token_mean,
        max_kl=max_kl,
        vf_coef=vf_coef,
        group_size=group_size,
    )


@algorithm
def ppo(
    kl_coef: KlCoef = 0.05,
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """−min(rA, clip(r, 1 ± ε)A), A by GAE.

    Schulman et al. 2017, arXiv:1707.06347.
    """
    return row.PolicyAlgorithm(
        advantage=partial(cells.gae, gamma=gamma, lam=lam),
        surrogate=partial(cells.clip, clip_low=clip_low, clip_high=clip_high),
        reward_kl=divergence.k1,
        kl_coef=kl_coef,
        reduction=cells.token_mean,
        update_epochs=update_epochs,
        vf_coef=vf_coef,
        group_size=group_size,
    )


@algorithm
def ppo_penalty(
    kl_coef: KlCoef = 0.05,
    penalty_coef: PenaltyCoef = 1.0,
    penalty_coef_target: PenaltyTarget = 0.01,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """−rA + β KL(π_old ‖ π), β doubled and halved.

    Schulman et al. 2017, arXiv:1707.06347.
    """
    plain = ppo(
        kl_coef, gamma=gamma, lam=lam, update_epochs=update_epochs, vf_coef=vf_coef, group_size=group_size
    )
    return replace(
        plain, surrogate=cells.kl_penalty, penalty_coef=penalty_coef, penalty_coef_target=penalty_coef_target
    )


@algorithm
def ppo_rb(
    kl_coef: KlCoef = 0.05,
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    rollback_alpha: RollbackAlpha = 0.3,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """PPO whose ratio is pulled back beyond 1 ± ε, with slope −α.

    Wang et al. 2019, arXiv:1903.07940.
    """
    surrogate = partial(cells.rollback, clip_low=clip_low, clip_high=clip_high, rollback_alpha=rollback_alpha)
    plain = ppo(kl_coef, gamma=gamma, lam=lam, update_epochs=update_epochs, group_size=group_size)
    return replace(plain, surrogate=surrogate)


@algorithm
def tr_ppo(
    kl_coef: KlCoef = 0.05,
    max_kl: MaxKl = 0.025,
    rollback_alpha: RollbackAlpha = 0.0,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """PPO clipped where KL(π_old ‖ π) ≥ δ.

    Wang et al. 2019, arXiv:1903.07940.
    """
    plain = ppo(
        kl_coef, gamma=gamma, lam=lam, update_epochs=update_epochs, vf_coef=vf_coef, group_size=group_size
    )
    return replace(plain, surrogate=partial(cells.kl_trigger, max_kl=max_kl, rollback_alpha=rollback_alpha))


@algorithm
def tr_ppo_rb(
    kl_coef: KlCoef = 0.05,
    max_kl: MaxKl = 0.03,
    rollback_alpha: RollbackAlpha = 0.05,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    vf_coef: VfCoef = 0.1,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """TR-PPO pulled back with slope −α.

    Wang et al. 2019, arXiv:1903.07940.
    """
    return tr_ppo(kl_coef, max_kl, rollback_alpha, gamma, lam, update_epochs, vf_coef, group_size)


@algorithm
def ppo_ptx(
    kl_coef: KlCoef = 0.05,
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    gamma: Gamma = 1.0,
    lam: Lam = 0.95,
    update_epochs: UpdateEpochs = 4,
    ptx_coef: PtxCoef = 27.8,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """PPO − γ log π of the text in --ptx.data.

    Ouyang et al. 2022, arXiv:2203.02155.
    """
    plain = ppo(kl_coef, clip_low, clip_high, gamma, lam, update_epochs, group_size=group_size)
    return replace(plain, ptx_coef=ptx_coef)


@algorithm
def rloo(kl_coef: KlCoef = 0.05, group_size: GroupSize = 4) -> PolicyAlgorithm:
    """−(r − mean of the other answers) log π.

    Ahmadian et al. 2024, arXiv:2402.14740.
    """
    return replace(reinforce(kl_coef, group_size), advantage=cells.leave_one_out)


@algorithm
def remax(kl_coef: KlCoef = 0.05, group_size: GroupSize = 1) -> PolicyAlgorithm:
    """−(r − r of the likeliest answer) log π.

    Li et al. 2023, arXiv:2310.10505.
    """
    return replace(reinforce(kl_coef, group_size), advantage=cells.greedy)


@algorithm
def reinforce_pp(
    kl_coef: KlCoef = 0.01,
    gamma: Gamma = 1.0,
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    group_size: GroupSize = 1,
) -> PolicyAlgorithm:
    """PPO's clip, A the reward still to come, whitened over the batch.

    Hu et al. 2025, arXiv:2501.03262.
    """
    plain = ppo(kl_coef, clip_low, clip_high, update_epochs=1, group_size=group_size)
    return replace(plain, advantage=partial(cells.whitened, gamma=gamma))


@algorithm
def grpo(
    kl_coef: KlCoef = 0.04, clip_low: ClipLow = 0.2, clip_high: ClipHigh = 0.2, group_size: GroupSize = 8
) -> PolicyAlgorithm:
    """PPO's clip, A = (r − mean) / std of the group, + β KL.

    One move a round, as in the paper's own runs, at which no clip can act; --minibatches makes more.

    Shao et al. 2024, arXiv:2402.03300.
    """
    return row.PolicyAlgorithm(
        advantage=cells.group_z,
        surrogate=partial(cells.clip, clip_low=clip_low, clip_high=clip_high),
        loss_kl=divergence.k3,
        kl_coef=kl_coef,
        reduction=cells.answer_mean,
        group_size=group_size,
    )


@algorithm
def dr_grpo(
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    minibatches: Minibatches = 8,
    group_size: GroupSize = 8,
) -> PolicyAlgorithm:
    """GRPO without its std and without its lengths.

    Eight moves a round are its authors' (1,024 answers, 128 a move).

    Liu et al. 2025, arXiv:2503.20783.
    """
    plain = _grpo_without_kl(clip_low, clip_high, group_size)
    return replace(plain, advantage=cells.group_mean, reduction=cells.fixed_length, minibatches=minibatches)


@algorithm
def dapo(
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.28,
    minibatches: Minibatches = 16,
    group_size: GroupSize = 8,
    dynamic_sampling: DynamicSampling = True,
    overlong_buffer: OverlongBuffer = 0.2,
) -> PolicyAlgorithm:
    """GRPO with clip-higher, token mean, unlike groups only, soft overlong punishment.

    Sixteen moves a round are the paper's (8,192 answers, 512 a move).

    Yu et al. 2025, arXiv:2503.14476.
    """
    return replace(
        _grpo_without_kl(clip_low, clip_high, group_size),
        reduction=cells.token_mean,
        minibatches=minibatches,
        dynamic_sampling=dynamic_sampling,
        overlong_buffer=overlong_buffer,
    )


@algorithm
def grpo_plus(
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.28,
    minibatches: Minibatches = 2,
    group_size: GroupSize = 8,
    overlong_filtering: OverlongFiltering = True,
) -> PolicyAlgorithm:
    """GRPO with clip-higher, without KL; answers that were cut are left out.

    Two moves a round are its authors' (128 prompts, 64 a move).

    Luo et al. 2025, DeepCoder.
    """
    plain = _grpo_without_kl(clip_low, clip_high, group_size)
    return replace(plain, minibatches=minibatches, overlong_filtering=overlong_filtering)


@algorithm
def gspo(
    clip_low: ClipLow = 3e-4,
    clip_high: ClipHigh = 4e-4,
    minibatches: Minibatches = 4,
    group_size: GroupSize = 8,
) -> PolicyAlgorithm:
    """clip of the answer's ratio (π/π_old)^(1/|y|).

    Zheng et al. 2025, arXiv:2507.18071.
    """
    plain = _grpo_without_kl(clip_low, clip_high, group_size)
    return replace(plain, ratio=cells.answer_ratio, minibatches=minibatches)


@algorithm
def cispo(
    clip_low: ClipLow = 1.0,
    clip_high: ClipHigh = 4.0,
    minibatches: Minibatches = 4,
    group_size: GroupSize = 8,
) -> PolicyAlgorithm:
    """−sg(min(r, 1 + ε)) A log π.

    MiniMax 2025, arXiv:2506.13585; ε of Khatri et al. 2025, arXiv:2510.13786.
    """
    return replace(
        _grpo_without_kl(clip_low, clip_high, group_size),
        surrogate=partial(cells.cispo, clip_low=clip_low, clip_high=clip_high),
        reduction=cells.token_mean,
        minibatches=minibatches,
    )


@algorithm
def p3o(kl_coef: KlCoef = 0.05, clip_low: ClipLow = 0.2, group_size: GroupSize = 2) -> PolicyAlgorithm:
    """clip of an answer's ratio, weighed with that of the other of its pair.

    clip_low: ε on both sides.

    Wu et al. 2023, arXiv:2310.00212.
    """
    return row.PolicyAlgorithm(
        advantage=cells.leave_one_out,
        surrogate=partial(cells.p3o, clip_low=clip_low),
        reward_kl=divergence.k1,
        kl_coef=kl_coef,
        reduction=cells.answer_mean,
        group_size=group_size,
    )


@algorithm
def online_dpo(beta: Beta = 0.1, group_size: GroupSize = 2) -> PolicyAlgorithm:
    """−log σ(βh) of two fresh answers.

    Guo et al. 2024, arXiv:2402.04792.
    """
    surrogate = partial(cells.online_dpo, beta=beta)
    return row.PolicyAlgorithm(
        advantage=cells.leave_one_out, surrogate=surrogate, reduction=cells.answer_mean, group_size=group_size
    )


@algorithm
def online_ipo(beta: Beta = 0.1, group_size: GroupSize = 2) -> PolicyAlgorithm:
    """(h − 1/2β)² of two fresh answers.

    Calandriello et al. 2024, arXiv:2403.08635.
    """
    return replace(online_dpo(group_size=group_size), surrogate=partial(cells.online_ipo, beta=beta))


@algorithm
def ipo_md(
    beta: Beta = 0.1, mixture_coef: MixtureCoef = MUNOS_MIXTURE, group_size: GroupSize = 2
) -> PolicyAlgorithm:
    """online IPO of answers that a mixture of policy and reference gives.

    Calandriello et al. 2024, arXiv:2403.08635; mixture 0.125 of Munos et al. 2023, arXiv:2312.00886.
    """
    return replace(online_ipo(beta, group_size), mixture_coef=mixture_coef)


@algorithm
def nash_md(
    kl_coef: KlCoef = 0.05, mixture_coef: MixtureCoef = MUNOS_MIXTURE, group_size: GroupSize = 1
) -> PolicyAlgorithm:
    """−(P(y ≻ y′) − ½) log π, P = σ(r − r′), y′ of a mixture of policy and reference.

    Munos et al. 2023, arXiv:2312.00886.
    """
    return replace(reinforce(kl_coef, group_size), advantage=cells.preference, mixture_coef=mixture_coef)


def _grpo_without_kl(clip_low: float, clip_high: float, group_size: int) -> PolicyAlgorithm:
    return replace(grpo(0.0, clip_low, clip_high, group_size), loss_kl=None)


POLICY_ALGORITHMS: Mapping[str, Algorithm] = table(
    *(reinforce, a2c, trpo, ppo, ppo_penalty, ppo_rb, tr_ppo, tr_ppo_rb, ppo_ptx),
    *(rloo, remax, reinforce_pp, grpo, dr_grpo, dapo, grpo_plus, gspo, cispo),
    *(p3o, online_dpo, online_ipo, ipo_md, nash_md),
)

OWN = "policy"
"""The method that takes an algorithm of the user's own: ``--algorithm mine.py:name``."""


def find_policy_algorithm(name: str) -> Algorithm:
    return find_algorithm(POLICY_ALGORITHMS, name, "algorithm of policy optimisation")


def own_algorithm(word: str) -> Algorithm:
    example = "def mine(kl_coef: float = 0.05): return replace(grpo(kl_coef), surrogate=…)"
    return load_algorithm(word, row.PolicyAlgorithm, example=example)


def policy_algorithm(name: str, **settings: Any) -> PolicyAlgorithm:
    """A named algorithm with settings of its own and cells in place of its own."""
    return make_algorithm(find_policy_algorithm(name), settings)


def make_algorithm(described: Algorithm, settings: Mapping[str, Any]) -> PolicyAlgorithm:
    """The record of an algorithm; a setting that none of its cells reads is refused."""
    arguments = {name: setting for name, setting in settings.items() if name in described.parameters}
    given = {name: setting for name, setting in settings.items() if name not in arguments and is_set(setting)}
    for name in given:
        if name not in CELLS:
            raise UserError(refusal(POLICY_ALGORITHMS, described.name, name))
    plain: PolicyAlgorithm = described.function(**arguments)
    if not isinstance(plain, row.PolicyAlgorithm):
        raise UserError(f"{described.name} gives a {type(plain).__name__}, and a PolicyAlgorithm is wanted")
    record = with_cells(plain, given) if given else plain
    # A default that an exchanged cell leaves unread was nobody's wish; a setting that was changed was.
    changed = {name for name, item in arguments.items() if item != described.parameters[name].default}
    refuse_unread(record, frozenset(given) | (readable_settings(plain) & changed))
    return record
