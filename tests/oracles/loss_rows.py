"""Losses of preferences and of policies, and KL estimators: the formula restated, and plaudit's own."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from plaudit.advantages import group
from plaudit.losses import (
    divergence,
    policy as surrogates,
    preference as losses,
    ratio,
    reduce,
    supervised,
    unpaired,
)
from tests.oracles import policy, preference
from tests.oracles.comparison import Comparison, named, row, t, whole
from tests.oracles.draws import answers, distributions, nothing, pairs_of_completions as duels, tokens

KLS = (0.1, 0.6, 0.9, 1.3, 1.6, 9.0)


def sides(i: SimpleNamespace, link: Any = losses.reverse_kl_link) -> list[losses.CompletionLogps]:
    """The preferred and the other answers as plaudit's records."""
    given = ((i.w, i.rw, i.nw), (i.l, i.rl, i.nl))
    return [losses.completion_logps(t(new), t(ref), t(length), link) for new, ref, length in given]


def free(i: SimpleNamespace) -> list[losses.CompletionLogps]:
    """The same without a reference, of mean log-probs."""
    given = ((i.w, i.nw), (i.l, i.nl))
    link = losses.no_reference_link
    return [losses.completion_logps(t(w) / t(n), 0 * t(w), t(n), link) for w, n in given]


def thumbs(i: SimpleNamespace) -> list[Any]:
    return [sides(i)[0], t(i.label)]


def in_order(i: SimpleNamespace) -> list[Any]:
    return [*sides(i), losses.match_sorted(*sides(i))]


def longer(i: SimpleNamespace) -> list[losses.CompletionLogps]:
    return [losses.with_length_penalty(side, penalty=0.02 / 0.3) for side in sides(i)]


def held(i: SimpleNamespace) -> list[losses.CompletionLogps]:
    chosen, rejected = sides(i)
    return [losses.with_dpop_penalty(chosen, penalty=5), rejected]


def linked(link: Any) -> Callable[[SimpleNamespace], list[losses.CompletionLogps]]:
    return lambda i: sides(i, link)


def rows(i: SimpleNamespace) -> list[Tensor]:
    """Of tokens, beside answers of two tokens each."""
    return [t(i.new), named(i, "mask"), whole([2] * 4)]


def lead(i: SimpleNamespace) -> list[Tensor]:
    """Of fresh pairs, with the reward less the other's."""
    return [t(i.rho), group.leave_one_out(t(i.reward), whole([n // 2 for n in range(len(i.reward))]))]


def aot(*given: Any, beta: float) -> Tensor:
    return losses.aot(*given, beta=beta).sort().values


def aot_unpaired(*given: Any, beta: float) -> Tensor:
    return losses.aot_unpaired(*given, beta=beta).sum()


def slope(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of the summed loss by the first that it is told of."""

    def by_first(first: Tensor, *rest: Tensor, **settings: float) -> Tensor:
        leaf = first.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, *rest, **settings).sum(), leaf)[0]

    return by_first


def of_chosen(*given: Tensor, beta: float) -> Tensor:
    return losses.dpo(losses.completion_logps(*given[:3]), losses.completion_logps(*given[3:]), beta=beta)


def of_rejected(*given: Tensor, beta: float) -> Tensor:
    return of_chosen(*given[3:], *given[:3], beta=beta)


def less_slope(i: SimpleNamespace, beta: float) -> list[float]:
    return [-x for x in preference.dpo_slope(i, beta)]


def rho(new: Tensor, old: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return ratio.log_ratio(new, old, mask), mask


def of_ratio(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of log-probs and the mask: what stands elsewhere than at trained tokens is masked by its reduction."""

    def by_logps(new: Tensor, old: Tensor, mask: Tensor, *given: Tensor, **settings: float) -> Tensor:
        r = ratio.ratio(ratio.log_ratio(new, old, mask))
        return loss(r, *given, **settings).masked_fill(~mask, 0.0)

    return by_logps


clipped, dual_clipped, rolled_back = map(
    of_ratio, (surrogates.clipped, surrogates.dual_clipped, surrogates.rolled_back)
)


def log_prob(new: Tensor, *given: Tensor) -> Tensor:
    return of_ratio(lambda r, a: surrogates.policy_gradient(new, a))(new, *given)


def cispo(new: Tensor, *given: Tensor, high: float) -> Tensor:
    return of_ratio(lambda r, a: surrogates.cispo(new, r, a, high=high))(new, *given)


def own_ratio(*given: Tensor) -> Tensor:
    return ratio.ratio(ratio.sequence_token_log_ratio(*rho(*given))).masked_fill(~given[-1], 0.0)


def first_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """GSPO's ratio stands at every token of a completion; here at the first that was trained."""
    s_NT = ratio.ratio(ratio.sequence_log_ratio(*rho(new, old, mask)))
    return s_NT.gather(1, mask.int().argmax(-1, keepdim=True)).squeeze(1)


def completion_log_ratio(*given: Tensor) -> Tensor:
    return ratio.completion_log_ratio(*rho(*given))


def trusted(new: Tensor, old: Tensor, mask: Tensor, verdict: Tensor, limit: float) -> Tensor:
    return surrogates.trusted_completions(ratio.log_ratio(new, old, mask), verdict, mask, limit=limit)


def clip_share(new: Tensor, old: Tensor, mask: Tensor, advantage: Tensor, **edges: float) -> Tensor:
    acts_NT = ~surrogates.unclipped_tokens(ratio.ratio(ratio.log_ratio(new, old, mask)), advantage, **edges)
    return surrogates.clip_fraction(acts_NT, mask, tokens=int(mask.sum()))


def token_mean(loss_NT: Tensor, mask_NT: Tensor) -> Tensor:
    return reduce.token_mean(loss_NT, mask_NT, tokens=int(mask_NT.sum()))


sequence_mean, fixed_length = (
    partial(of, completions=4) for of in (reduce.sequence_mean, reduce.fixed_length)
)


def apart(i: SimpleNamespace) -> list[Tensor]:
    return [t(i.new) - t(i.ref)]


def logps(i: SimpleNamespace) -> list[Tensor]:
    return [t(i.logits).log_softmax(-1), t(i.others).log_softmax(-1)]


def on_average(estimator: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The mean of an estimator over every token that the policy may say."""
    return lambda new, ref: (new.exp() * estimator(new - ref)).sum(-1)


LINKS = {
    "reverse kl": (preference.reverse_kl_slope, losses.reverse_kl_link),
    "forward kl": (preference.forward_kl_slope, losses.forward_kl_link),
    "jensen-shannon": (preference.jensen_shannon_slope, losses.jensen_shannon_link),
    "alpha": (preference.alpha_slope(0.5), partial(losses.alpha_divergence_link, alpha=0.5)),
}
PREFERENCE = (
    row("dpo", answers, preference.dpo, losses.dpo, sides, beta=0.3),
    row("dpo by the chosen", answers, preference.dpo_slope, slope(of_chosen), "w rw nw l rl nl", beta=0.3),
    row("dpo by the rejected", answers, less_slope, slope(of_rejected), "l rl nl w rw nw", beta=0.3),
    row("cdpo", answers, preference.cdpo, losses.cdpo, sides, beta=0.3, smoothing=0.1),
    row("robust", answers, preference.robust, losses.robust, sides, beta=0.3, smoothing=0.1),
    row("hinge", answers, preference.slic, losses.hinge, sides, beta=0.3),
    row("ipo", answers, preference.ipo, losses.ipo, sides, beta=0.3),
    row("exo", answers, preference.exo, losses.exo, sides, beta=0.3, smoothing=1e-3),
    row("nca", answers, preference.nca, losses.nca, sides, beta=0.3),
    row("bco-pair", answers, preference.bco_pair, losses.bco_pair, sides, beta=0.3, baseline=0.2),
    row("sppo", answers, lambda i, beta: preference.sppo(i, 1 / beta), losses.sppo, sides, beta=0.25),
    row("apo-zero", answers, preference.apo_zero, losses.apo_zero, sides, beta=0.3),
    row("apo-down", answers, preference.apo_down, losses.apo_down, sides, beta=0.3),
    row("discopop", answers, preference.discopop, losses.discopop, sides, beta=0.3, tau=0.5),
    row("simpo", answers, preference.simpo, losses.simpo, free, beta=2.0, margin=0.5),
    row("orpo's odds", answers, preference.orpo, losses.odds_ratio, free, odds=0.7),
    row("kto", answers, preference.kto, unpaired.kto, thumbs, beta=0.3, baseline=0.4, undesirable=1.33),
    row("bco", answers, preference.bco, unpaired.bco, thumbs, beta=0.3, baseline=0.2),
    *(
        row(f"f-dpo, {name}", answers, partial(preference.fdpo, slope=f), losses.dpo, linked(link), beta=0.3)
        for name, (f, link) in LINKS.items()
    ),
    row("r-dpo", answers, partial(preference.r_dpo, alpha=0.02), losses.dpo, longer, beta=0.3),
    row("dpop", answers, partial(preference.dpop, lam=5.0), losses.dpo, held, beta=0.3),
    row("ld-dpo's log-prob", tokens, preference.ld_dpo, losses.length_desensitised_logps, rows, share=0.4),
    row("a plain sum", tokens, lambda i: preference.ld_dpo(i, 1.0, 99), losses.sum_logps, rows),
    row("a mean log-prob", tokens, preference.mean_logp, losses.mean_logps, rows),
    row("wpo's weight", tokens, preference.wpo, losses.wpo_weight, "new power mask"),
    row("aot", answers, preference.aot, aot, in_order, beta=0.3),
    row("aot, unpaired", answers, preference.aot_unpaired, aot_unpaired, in_order, beta=0.3),
    row("online dpo", duels, preference.online_dpo, surrogates.online_dpo, lead, beta=0.3),
    row("online ipo", duels, preference.online_ipo, surrogates.online_ipo, lead, beta=0.3),
)


MOVED = "new old mask advantage"
POLICY = (
    row("reinforce", tokens, policy.reinforce, log_prob, MOVED),
    row("reinforce by log π", tokens, policy.reinforce_slope, slope(log_prob), MOVED),
    row("trpo's surrogate", tokens, policy.surrogate, of_ratio(surrogates.unclipped), MOVED),
    row("ppo", tokens, policy.ppo, clipped, MOVED, low=0.2, high=0.2),
    row("dapo's clip", tokens, policy.ppo, clipped, MOVED, low=0.2, high=0.28),
    row("ppo by log π", tokens, policy.ppo_slope, slope(clipped), MOVED, low=0.2, high=0.28),
    row("dual clip", tokens, policy.dual_clip, dual_clipped, MOVED, low=0.2, high=0.2, ceiling=1.3),
    row("ppo-rb", tokens, policy.rollback, rolled_back, MOVED, low=0.2, high=0.2, slope=0.3),
    row("tr-ppo", tokens, policy.tr_ppo, of_ratio(surrogates.kl_triggered), f"{MOVED} kl", limit=0.03),
    row(
        "ppo-penalty", tokens, policy.ppo_penalty, of_ratio(surrogates.kl_penalised), f"{MOVED} kl", beta=2.0
    ),
    row("cispo", tokens, policy.cispo, cispo, MOVED, high=0.2),
    row("cispo by log π", tokens, policy.cispo_slope, slope(cispo), MOVED, high=0.2),
    row("p3o, separate", duels, partial(policy.p3o, joint=False), surrogates.p3o_separate, lead, clip=0.2),
    row("p3o, joint", duels, partial(policy.p3o, joint=True), surrogates.p3o_joint, lead, clip=0.2),
    row("gspo's ratio", tokens, policy.gspo, first_ratio, "new old mask"),
    row("gspo-token by log π", tokens, policy.gspo_token_slope, slope(own_ratio), "new old mask"),
    row("a completion's log-ratio", tokens, policy.completion_ratio, completion_log_ratio, "new old mask"),
    row("tis", tokens, policy.truncated_weight, ratio.truncated_importance_weight, "new old mask", cap=1.2),
    row(
        "off-policy sequence mask", tokens, policy.sequence_mask, trusted, "new old mask verdict", limit=0.05
    ),
    row("share that is clipped", tokens, policy.clip_share, clip_share, MOVED, low=0.2, high=0.28),
    row("dapo's mean", tokens, policy.dapo_mean, token_mean, "advantage mask"),
    row("grpo's mean", tokens, policy.grpo_mean, sequence_mean, "advantage mask"),
    row("dr. grpo's mean", tokens, policy.dr_grpo_mean, fixed_length, "advantage mask", longest=16),
    row("value loss", tokens, policy.value_loss, surrogates.squared_error, "value target"),
    row(
        "clipped value loss",
        tokens,
        policy.clipped_value_loss,
        surrogates.clipped_squared_error,
        "value old_value target",
        clip=0.2,
    ),
    row(
        "explained variance",
        tokens,
        policy.explained_variance,
        surrogates.explained_variance,
        "value target mask",
    ),
)


DIVERGENCE = (
    row("k1", tokens, partial(policy.kl_estimator, name="k1"), divergence.k1, apart),
    row("k2", tokens, partial(policy.kl_estimator, name="k2"), divergence.k2, apart),
    row("k3", tokens, partial(policy.kl_estimator, name="k3"), divergence.k3, apart),
    row("k3 by log π", tokens, policy.k3_slope, slope(divergence.k3), apart),
    row("kl of the whole vocabulary", distributions, policy.kls, divergence.full_vocabulary_kl, logps),
    row("k1 on average", distributions, policy.kls, on_average(divergence.k1), logps),
    row("k3 on average", distributions, policy.kls, on_average(divergence.k3), logps),
    row("forward kl", distributions, policy.kls, supervised.forward_kl, logps),
    row("reverse kl", distributions, partial(policy.kls, turned=True), supervised.reverse_kl, logps),
    row("jensen-shannon", distributions, policy.jensen_shannon, supervised.jensen_shannon, logps),
    Comparison(
        "ppo's beta",
        nothing,
        lambda i: [policy.adaptive_beta(0.5, kl, 1.0) for kl in KLS],
        lambda i: [divergence.double_or_halve_beta(0.5, kl=kl, target=1.0) for kl in KLS],
    ),
    Comparison(
        "ziegler's beta",
        nothing,
        lambda i: [policy.proportional_beta(0.5, kl, 1.0, 64, 1000) for kl in KLS],
        lambda i: [
            divergence.proportional_beta(0.5, kl=kl, target=1.0, samples=64, horizon=1000) for kl in KLS
        ],
    ),
)
