"""Every algorithm of preference optimisation: a function whose signature is its settings.

``plaudit train --list``, options, YAML keys and the documentation are made of these functions, and importing
them needs no torch. h = Δ_w − Δ_l, Δ = log π(y|x) − log π_ref(y|x); without a reference Δ = log π(y|x).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from plaudit.bounds import BelowHalf, Bound, Finite, FromZero, Positive, Share
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
from plaudit.methods.preference.cells import CELLS, LinkAlpha, LinkName, link_of, readable_cells, with_cells

if TYPE_CHECKING:
    from plaudit.losses import preference as losses, unpaired
    from plaudit.methods.preference import row
    from plaudit.methods.preference.row import AnyPreferenceAlgorithm, PreferenceAlgorithm, UnpairedAlgorithm
else:
    losses = LazyModule("plaudit.losses.preference")
    unpaired = LazyModule("plaudit.losses.unpaired")
    row = LazyModule("plaudit.methods.preference.row")

Beta = Annotated[Positive, "How dear distance from the reference is."]
LabelSmoothing = Annotated[BelowHalf, "ε, the share of labels believed to be swapped."]
NllCoef = Annotated[FromZero, "λ, how much −log π per token of the preferred answers counts beside the loss."]
DesirableWeight = Annotated[FromZero, "λ_D, the weight of good answers."]
UndesirableWeight = Annotated[FromZero, "λ_U, the weight of bad answers."]
Tau = Annotated[
    float, Bound("above 0 and at most 1 (the loss can be infinite beyond)", lambda value: 0 < value <= 1)
]


@algorithm
def dpo(beta: Positive = 0.1) -> PreferenceAlgorithm:
    """−log σ(βh).

    beta: how dear distance from the reference is: small values let the policy go far.

    Rafailov et al. 2023, arXiv:2305.18290.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.dpo, beta=beta), beta=beta)


@algorithm
def cdpo(beta: Beta = 0.1, label_smoothing: LabelSmoothing = 0.1) -> PreferenceAlgorithm:
    """−(1−ε) log σ(βh) − ε log σ(−βh).

    Mitchell 2023.
    """
    loss = row.pair_loss(losses.cdpo, beta=beta, smoothing=label_smoothing)
    return row.PreferenceAlgorithm(loss=loss, beta=beta)


@algorithm
def robust_dpo(beta: Beta = 0.1, label_smoothing: LabelSmoothing = 0.1) -> PreferenceAlgorithm:
    """(−(1−ε) log σ(βh) + ε log σ(−βh)) / (1−2ε).

    Chowdhury et al. 2024, arXiv:2403.00409.
    """
    loss = row.pair_loss(losses.robust, beta=beta, smoothing=label_smoothing)
    return row.PreferenceAlgorithm(loss=loss, beta=beta)


@algorithm
def ipo(beta: Positive = 0.1) -> PreferenceAlgorithm:
    """(h − 1/2β)², h of summed log-probs.

    beta: the paper's τ: how dear distance from the reference is.

    Azar et al. 2023, arXiv:2310.12036.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.ipo, beta=beta), beta=beta)


@algorithm
def ipo_mean(beta: Positive = 0.1) -> PreferenceAlgorithm:
    """(h − 1/2β)², h of mean log-probs.

    beta: the paper's τ: how dear distance from the reference is.

    Azar et al. 2023, arXiv:2310.12036 (common variant).
    """
    return replace(ipo(beta), log_prob=losses.mean_logps)


@algorithm
def hinge(beta: Positive = 0.1) -> PreferenceAlgorithm:
    """max(0, 1 − βh).

    beta: how dear distance from the reference is; the margin is 1/β.

    Zhao et al. 2023, arXiv:2305.10425; Liu et al. 2023 (RSO), arXiv:2309.06657.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.hinge, beta=beta), beta=beta)


@algorithm
def slic(beta: Positive = 1.0, nll_coef: NllCoef = 0.1) -> PreferenceAlgorithm:
    """max(0, 1 − βh) − λ mean log π(y_w).

    beta: what the lead in log-probs is multiplied with; the margin is 1/β.

    Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425.
    """
    return replace(hinge(beta), link=losses.no_reference_link, nll_coef=nll_coef)


@algorithm
def exo(beta: Beta = 0.1, label_smoothing: BelowHalf = 1e-3) -> PreferenceAlgorithm:
    """σ(βh)(log σ(βh) − log(1−ε)) + σ(−βh)(log σ(−βh) − log ε).

    label_smoothing: ε, the target's share of the other answer; above 0.

    Ji et al. 2024, arXiv:2402.00856.
    """
    if not label_smoothing:
        raise UserError("label_smoothing is exo's target and cannot be 0: its loss would be infinite")
    loss = row.pair_loss(losses.exo, beta=beta, smoothing=label_smoothing)
    return row.PreferenceAlgorithm(loss=loss, beta=beta)


@algorithm
def nca(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """−log σ(βΔ_w) − ½ log σ(−βΔ_w) − ½ log σ(−βΔ_l).

    Chen et al. 2024, arXiv:2402.05369.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.nca, beta=beta), beta=beta)


@algorithm
def bco_pair(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """−log σ(βΔ_w − δ) − log σ(δ − βΔ_l), δ the running mean reward.

    Jung et al. 2024, arXiv:2404.04656.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.bco_pair, beta=beta), beta=beta)


@algorithm
def sppo(beta: Positive = 1e-3) -> PreferenceAlgorithm:
    """(Δ_w − 1/2β)² + (Δ_l + 1/2β)².

    beta: 1/η of the paper: how dear distance from the reference is. At its authors' 0.001 a winner is pulled
        towards 500 nats above the reference: what is learnt is a direction, and the rate says how far.

    Wu et al. 2024, arXiv:2405.00675.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.sppo, beta=beta), beta=beta)


@algorithm
def aot(beta: Beta = 0.1, label_smoothing: BelowHalf = 0.0) -> PreferenceAlgorithm:
    """−log σ(βh) between the sorted gaps of policy and reference.

    label_smoothing: the share of labels believed to be swapped.

    Melnyk et al. 2024, arXiv:2406.05882.
    """
    loss = row.pair_loss(losses.aot, beta=beta, smoothing=label_smoothing)
    # It compares log-probs themselves, so that whatever is done to Δ would be said in vain.
    unread = frozenset({"link", "link_alpha", "length_alpha", "dpop_lambda"})
    return row.PreferenceAlgorithm(loss=loss, beta=beta, unread=unread)


@algorithm
def aot_unpaired(beta: Beta = 0.1, label_smoothing: BelowHalf = 0.0) -> PreferenceAlgorithm:
    """−log σ(βh) between the sorted Δ of both sides.

    label_smoothing: the share of labels believed to be swapped.

    Melnyk et al. 2024, arXiv:2406.05882.
    """
    loss = row.pair_loss(losses.aot_unpaired, beta=beta, smoothing=label_smoothing)
    return row.PreferenceAlgorithm(loss=loss, beta=beta)


@algorithm
def apo_zero(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """(1 − σ(βΔ_w)) + σ(βΔ_l).

    D'Oosterlinck et al. 2024, arXiv:2408.06266.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.apo_zero, beta=beta), beta=beta)


@algorithm
def apo_down(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """σ(βΔ_w) + (1 − σ(βh)).

    D'Oosterlinck et al. 2024, arXiv:2408.06266.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.apo_down, beta=beta), beta=beta)


@algorithm
def discopop(beta: Beta = 0.1, tau: Tau = 0.05) -> PreferenceAlgorithm:
    """(1−s)(−log σ(βh)) + s exp(−βh), s = σ(βh/τ).

    tau: τ, how sharply the two halves are joined.

    Lu et al. 2024, arXiv:2406.08414.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.discopop, beta=beta, tau=tau), beta=beta)


@algorithm
def simpo(beta: Positive = 2.0, gamma: FromZero = 1.0) -> PreferenceAlgorithm:
    """−log σ(βh − γ), h of mean log-probs.

    beta: what the lead in mean log-probs is multiplied with.
    gamma: γ, the lead that is asked for.

    Meng et al. 2024, arXiv:2405.14734.
    """
    loss = row.pair_loss(losses.simpo, beta=beta, margin=gamma)
    return row.PreferenceAlgorithm(
        loss=loss, beta=beta, log_prob=losses.mean_logps, link=losses.no_reference_link
    )


@algorithm
def cpo(beta: Positive = 0.1, nll_coef: NllCoef = 1.0) -> PreferenceAlgorithm:
    """−log σ(β(log π_w − log π_l)) − λ mean log π(y_w).

    beta: what the lead in log-probs is multiplied with.

    Xu et al. 2024, arXiv:2401.08417.
    """
    return replace(dpo(beta), link=losses.no_reference_link, nll_coef=nll_coef)


@algorithm
def mdpo(beta: Beta = 0.1, crop: Share = 0.2, anchor: Finite = 0.0) -> PreferenceAlgorithm:
    """−log σ(βh) − log σ(β(Δ_w − Δ_w′)) − log σ(βΔ_w − δ), Δ_w′ with most of the picture cut away.

    crop: how large a share of each picture is left in the changed one.
    anchor: δ, the reward that a preferred answer should have by itself.

    Wang et al. 2024, arXiv:2406.11839.
    """
    return row.PreferenceAlgorithm(loss=row.pair_loss(losses.mdpo, beta=beta, anchor=anchor), beta=beta)


@algorithm
def orpo(orpo_lambda: Positive = 0.1, nll_coef: FromZero = 1.0) -> PreferenceAlgorithm:
    """−mean log π(y_w) − λ log σ(log odds_w − log odds_l).

    orpo_lambda: λ, the weight of the odds ratio.
    nll_coef: how much −log π per token of the preferred answers counts.

    Hong et al. 2024, arXiv:2403.07691.
    """
    return row.PreferenceAlgorithm(
        loss=row.pair_loss(losses.odds_ratio, odds=orpo_lambda),
        # ORPO has no β; rewards in figures are then log-probs as they are.
        beta=1.0,
        log_prob=losses.mean_logps,
        link=losses.no_reference_link,
        nll_coef=nll_coef,
        # The loss takes Δ for the log of a probability: a price for length would make it none.
        unread=frozenset({"length_alpha"}),
    )


@algorithm
def pl_dpo(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """−Σ_k log(exp βΔ_k / Σ_{j not before k} exp βΔ_j) of a whole ranking.

    Rafailov et al. 2023, arXiv:2305.18290 (Plackett–Luce, appendix A.3).
    """
    return row.PreferenceAlgorithm.of_rankings(partial(losses.plackett_luce_dpo, beta=beta), beta=beta)


@algorithm
def rrhf(nll_coef: FromZero = 1.0) -> PreferenceAlgorithm:
    """Σ max(0, p_worse − p_better) − λ p_best of a whole ranking, p = mean log π.

    nll_coef: λ, how much −log π per token of the best answer counts beside the loss.

    Yuan et al. 2023, arXiv:2304.05302.
    """
    cells = {"log_prob": losses.mean_logps, "link": losses.no_reference_link, "nll_coef": nll_coef}
    # RRHF has no β; rewards in figures are then mean log-probs as they are.
    return row.PreferenceAlgorithm.of_rankings(losses.ranking_hinge, beta=1.0, **cells)


@algorithm
def r_dpo(beta: Beta = 0.1, length_alpha: Finite = 0.1) -> PreferenceAlgorithm:
    """−log σ(βh + βα·(|y_w| − |y_l|)).

    length_alpha: α, what a token is charged, in units of Δ (the paper's α is β times it).

    Park et al. 2024, arXiv:2403.19159.
    """
    return replace(dpo(beta), length_alpha=length_alpha)


@algorithm
def dpo_norm(beta: Positive = 5.0) -> PreferenceAlgorithm:
    """−log σ(βh), h of mean log-probs.

    beta: how dear distance from the reference is, per token.

    Meng et al. 2024, arXiv:2405.14734; Lambert et al. 2024 (Tülu 3), arXiv:2411.15124.
    """
    return replace(dpo(beta), log_prob=losses.mean_logps)


@algorithm
def ld_dpo(beta: Beta = 0.1, ld_alpha: Share = 0.5) -> PreferenceAlgorithm:
    """−log σ(βh), tokens beyond the shorter answer counted by a share.

    ld_alpha: α, how much tokens beyond the shorter answer's length count.

    Liu et al. 2024, arXiv:2409.06411.
    """
    return replace(dpo(beta), log_prob=partial(losses.length_desensitised_logps, share=ld_alpha))


@algorithm
def dpop(beta: Beta = 0.3, dpop_lambda: FromZero = 50.0) -> PreferenceAlgorithm:
    """−log σ(β(h − λ·max(0, −Δ_w))).

    dpop_lambda: λ, how much a nat is charged by which a preferred answer has fallen.

    Pal et al. 2024 (Smaug), arXiv:2402.13228.
    """
    return replace(dpo(beta), dpop_lambda=dpop_lambda)


@algorithm
def wpo(beta: Beta = 0.1, weight_cap: FromZero = 1.0) -> PreferenceAlgorithm:
    """−w log σ(βh), w how likely the policy would say both, at most 1.

    weight_cap: the largest weight of a pair, which is 1 in its authors' code: answers that are likelier than
        the policy's own draws, as greedy ones are, would otherwise count more than those; 0: no limit.

    Zhou et al. 2024, arXiv:2406.11827.
    """
    return replace(dpo(beta), weight=losses.wpo_weight, weight_cap=weight_cap)


@algorithm
def f_dpo(
    beta: Beta = 0.1, link: LinkName = "js", link_alpha: LinkAlpha | None = None
) -> PreferenceAlgorithm:
    """−log σ(βh), Δ through the link of another divergence.

    link: the divergence from the reference that the loss stands for.
    link_alpha: which one of the alpha divergences; 0.5 where none is given (link alpha).

    Wang et al. 2023, arXiv:2309.16240.
    """
    return replace(dpo(beta), link=link_of(link, link_alpha))


@algorithm
def tr_dpo(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """−log σ(βh), the reference following the policy.

    Gorbatovski et al. 2024, arXiv:2404.09656.
    """
    return replace(dpo(beta), reference_kind="average")


@algorithm
def sdpo(beta: Beta = 0.1) -> PreferenceAlgorithm:
    """−log σ(βh), data in parts, each result the next reference.

    Kim et al. 2024, arXiv:2403.19270.
    """
    return replace(dpo(beta), parts=2)


@algorithm
def mpo(
    beta: Positive = 0.1, mix: tuple[str, ...] = ("dpo=0.8", "bco-pair=0.2"), nll_coef: FromZero = 1.0
) -> PreferenceAlgorithm:
    """Σ weight · loss, − λ mean log π(y_w).

    beta: how dear distance from the reference is, in each of the losses.
    mix: the losses that are added up, as name=weight.
    nll_coef: λ, how much −log π per token of the preferred answers counts beside the losses.

    Wang et al. 2024, arXiv:2411.10442.
    """
    return row.with_mixed_losses(_mixed_parts(mix, beta), replace(dpo(beta), nll_coef=nll_coef))


@algorithm
def kto(
    beta: Beta = 0.1, desirable_weight: DesirableWeight = 1.0, undesirable_weight: UndesirableWeight = 1.0
) -> UnpairedAlgorithm:
    """λ_D (1 − σ(β(Δ − z₀))) of good, λ_U (1 − σ(β(z₀ − Δ))) of bad answers.

    Ethayarajh et al. 2024, arXiv:2402.01306.
    """
    weights = {"desirable": desirable_weight, "undesirable": undesirable_weight}
    loss = row.unpaired_loss(unpaired.kto, "mismatched", beta=beta, **weights)
    return row.UnpairedAlgorithm(loss=loss, beta=beta)


@algorithm
def apo_zero_unpaired(
    beta: Beta = 0.1, desirable_weight: DesirableWeight = 1.0, undesirable_weight: UndesirableWeight = 1.0
) -> UnpairedAlgorithm:
    """λ_D (1 − σ(βΔ)) of good, λ_U σ(βΔ) of bad answers.

    D'Oosterlinck et al. 2024, arXiv:2408.06266.
    """
    weights = {"desirable": desirable_weight, "undesirable": undesirable_weight}
    # KTO's own function, measured from 0: no z₀ has to be estimated.
    return row.UnpairedAlgorithm(loss=row.unpaired_loss(unpaired.kto, beta=beta, **weights), beta=beta)


@algorithm
def bco(
    beta: Beta = 0.1, desirable_weight: FromZero = 1.0, undesirable_weight: FromZero = 1.0
) -> UnpairedAlgorithm:
    """−log σ(βΔ − δ) of good, −log σ(δ − βΔ) of bad answers.

    desirable_weight: the weight of good answers.
    undesirable_weight: the weight of bad answers.

    Jung et al. 2024, arXiv:2404.04656.
    """
    weights = {"desirable": desirable_weight, "undesirable": undesirable_weight}
    loss = row.unpaired_loss(unpaired.bco, "running_mean", beta=beta, **weights)
    return row.UnpairedAlgorithm(loss=loss, beta=beta)


PREFERENCE_ALGORITHMS: Mapping[str, Algorithm] = table(
    *(dpo, cdpo, robust_dpo, ipo, ipo_mean, hinge, slic, exo, nca, bco_pair, sppo, aot, aot_unpaired),
    *(apo_zero, apo_down, discopop, simpo, cpo, mdpo, orpo, pl_dpo, rrhf, r_dpo, dpo_norm, ld_dpo, dpop, wpo),
    *(f_dpo, tr_dpo, sdpo, mpo),
    *(kto, apo_zero_unpaired, bco),
)

OWN = "preference"
"""The method that takes an algorithm of the user's own: ``--algorithm mine.py:name``."""


def find_preference_algorithm(name: str) -> Algorithm:
    return find_algorithm(PREFERENCE_ALGORITHMS, name, "preference algorithm")


def own_algorithm(word: str) -> Algorithm:
    example = "def mine(beta: float = 0.1): return PreferenceAlgorithm(loss=…, beta=beta)"
    return load_algorithm(word, row.PreferenceAlgorithm, row.UnpairedAlgorithm, example=example)


def preference_algorithm(name: str, **settings: Any) -> AnyPreferenceAlgorithm:
    """A named algorithm with settings of its own and cells in place of its own."""
    return make_algorithm(find_preference_algorithm(name), settings)


def make_algorithm(described: Algorithm, settings: Mapping[str, Any]) -> AnyPreferenceAlgorithm:
    """The record of an algorithm; a setting that it does not read is refused."""
    cells = {
        name: setting
        for name, setting in settings.items()
        if name not in described.parameters and is_set(setting)
    }
    arguments = {name: setting for name, setting in settings.items() if name in described.parameters}
    _refuse(described.name, [name for name in cells if name not in CELLS])
    record: AnyPreferenceAlgorithm = described.function(**arguments)
    if not isinstance(record, row.PreferenceAlgorithm | row.UnpairedAlgorithm):
        raise UserError(
            f"{described.name} gives a {type(record).__name__}, and a PreferenceAlgorithm is wanted "
            "(of single answers: an UnpairedAlgorithm)"
        )
    _refuse(described.name, [name for name in cells if name not in readable_cells(record)])
    return with_cells(record, cells) if cells else record


def _refuse(algorithm_name: str, unread: list[str]) -> None:
    if unread:
        raise UserError(refusal(PREFERENCE_ALGORITHMS, algorithm_name, unread[0]))


def _mixed_parts(mix: tuple[str, ...], beta: float) -> list[tuple[float, PreferenceAlgorithm]]:
    parts: list[tuple[float, PreferenceAlgorithm]] = []
    for item in mix:
        name, sign, weight = item.partition("=")
        described = find_preference_algorithm(name)
        if not sign or not _is_positive(weight):
            raise UserError(f"mix: {item!r} is not name=weight with a weight above 0, as dpo=0.8")
        if not _is_mixable(described):
            names = ", ".join(
                this_algorithm.name
                for this_algorithm in PREFERENCE_ALGORITHMS.values()
                if _is_mixable(this_algorithm)
            )
            raise UserError(f"mix: {name} is more than a loss and cannot be mixed; choose among {names}")
        parts.append((float(weight), described.function(beta=beta)))
    return parts


def _is_mixable(described: Algorithm) -> bool:
    """Whether an algorithm of pairs is nothing but its loss: all of its other cells are those of DPO."""
    if described.data == "thumbs" or "mix" in described.parameters:
        return False
    record = described.function()
    # These three always differ; of the cells only the loss may.
    description = {"name": record.name, "formula": record.formula, "settings": record.settings}
    return record == replace(dpo(record.beta), loss=record.loss, **description)


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
