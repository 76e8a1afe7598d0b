"""Losses of preferences and of policies, and KL estimators: the formula restated, and plaudit's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tests.oracles import draws, policy, preference
from tests.oracles.comparison import row, seen, t, whole

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


def slope_by(values: Sequence[float] | Sequence[Sequence[float]], loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of the summed loss by these numbers."""
    leaf = t(values).requires_grad_()
    return torch.autograd.grad(loss(leaf).sum(), leaf)[0]


def rho(i: SimpleNamespace) -> Tensor:
    new = i.new if isinstance(i.new, Tensor) else t(i.new)
    return ratio.log_ratio(new, t(i.old), seen(i.mask))


def inside(i: SimpleNamespace, loss_NT: Tensor) -> Tensor:
    """A loss is asked for trained tokens only; what stands elsewhere is masked by its reduction."""
    return loss_NT.masked_fill(~seen(i.mask), 0.0)


def of_ratio(loss: Callable[..., Tensor], **settings: float) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: inside(i, loss(ratio.ratio(rho(i)), t(i.advantage), **settings))


def of_sides(loss: Callable[..., Tensor], **settings: float) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: loss(*sides(i), **settings)


def linked(link: Any) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: losses.dpo(*sides(i, link), beta=0.3)


def alpha_link(value: Tensor) -> Tensor:
    return losses.alpha_divergence_link(value, alpha=0.5)


def reduced(reduction: Any) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: reduction(t(i.new), seen(i.mask), whole([2] * 4))


def aot_sides(i: SimpleNamespace) -> tuple[Any, Any, Any]:
    chosen, rejected = sides(i)
    return chosen, rejected, losses.match_sorted(chosen, rejected)


def penalised(i: SimpleNamespace) -> Tensor:
    longer = [losses.with_length_penalty(side, penalty=0.02 / 0.3) for side in sides(i)]
    return losses.dpo(*longer, beta=0.3)


def positive(i: SimpleNamespace) -> Tensor:
    chosen, rejected = sides(i)
    return losses.dpo(losses.with_dpop_penalty(chosen, penalty=5), rejected, beta=0.3)


def negative(values: list[float]) -> list[float]:
    return [-x for x in values]


def negative_table(table: list[list[float]]) -> list[list[float]]:
    return [negative(row) for row in table]


def moved(i: SimpleNamespace, new: Tensor) -> SimpleNamespace:
    """The same inputs with the policy's log-probs as a leaf of the gradient."""
    return SimpleNamespace(**(vars(i) | {"new": new}))


def lead(i: SimpleNamespace) -> Tensor:
    """The reward less the other's of the pair."""
    return group.leave_one_out(t(i.reward), whole([n // 2 for n in range(len(i.reward))]))


def first_ratio(i: SimpleNamespace) -> Tensor:
    """GSPO's ratio stands at every token of a completion; here at the first that was trained."""
    s_NT = ratio.ratio(ratio.sequence_log_ratio(rho(i), seen(i.mask)))
    return s_NT.gather(1, seen(i.mask).int().argmax(-1, keepdim=True)).squeeze(1)


def clip_share(i: SimpleNamespace) -> Tensor:
    settings = {"low": 0.2, "high": 0.28}
    acts_NT = ~surrogates.unclipped_tokens(ratio.ratio(rho(i)), t(i.advantage), **settings)
    tokens = int(seen(i.mask).sum())
    return surrogates.clip_fraction(acts_NT, seen(i.mask), tokens=tokens)


def logps(i: SimpleNamespace) -> tuple[Tensor, Tensor]:
    return t(i.logits).log_softmax(-1), t(i.others).log_softmax(-1)


def on_average(i: SimpleNamespace, estimator: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean of an estimator over every token that the policy may say."""
    new, ref = logps(i)
    return (new.exp() * estimator(new - ref)).sum(-1)


def by_chosen(i: SimpleNamespace) -> Tensor:
    return slope_by(
        i.w, lambda w: losses.dpo(losses.completion_logps(w, t(i.rw), t(i.nw)), sides(i)[1], beta=0.3)
    )


def by_rejected(i: SimpleNamespace) -> Tensor:
    return slope_by(
        i.l, lambda v: losses.dpo(sides(i)[0], losses.completion_logps(v, t(i.rl), t(i.nl)), beta=0.3)
    )


PREFERENCE = (
    row("dpo", draws.answers, lambda i: preference.dpo(i, 0.3), of_sides(losses.dpo, beta=0.3)),
    row("dpo by the chosen", draws.answers, lambda i: preference.dpo_slope(i, 0.3), by_chosen),
    row("dpo by the rejected", draws.answers, lambda i: negative(preference.dpo_slope(i, 0.3)), by_rejected),
    row(
        "cdpo",
        draws.answers,
        lambda i: preference.cdpo(i, 0.3, 0.1),
        of_sides(losses.cdpo, beta=0.3, smoothing=0.1),
    ),
    row(
        "robust",
        draws.answers,
        lambda i: preference.robust(i, 0.3, 0.1),
        of_sides(losses.robust, beta=0.3, smoothing=0.1),
    ),
    row("hinge", draws.answers, lambda i: preference.slic(i, 0.3), of_sides(losses.hinge, beta=0.3)),
    row("ipo", draws.answers, lambda i: preference.ipo(i, 0.3), of_sides(losses.ipo, beta=0.3)),
    row(
        "exo",
        draws.answers,
        lambda i: preference.exo(i, 0.3, 1e-3),
        of_sides(losses.exo, beta=0.3, smoothing=1e-3),
    ),
    row("nca", draws.answers, lambda i: preference.nca(i, 0.3), of_sides(losses.nca, beta=0.3)),
    row(
        "bco-pair",
        draws.answers,
        lambda i: preference.bco_pair(i, 0.3, 0.2),
        of_sides(losses.bco_pair, beta=0.3, baseline=0.2),
    ),
    row("sppo", draws.answers, lambda i: preference.sppo(i, 4.0), of_sides(losses.sppo, beta=0.25)),
    row(
        "apo-zero", draws.answers, lambda i: preference.apo_zero(i, 0.3), of_sides(losses.apo_zero, beta=0.3)
    ),
    row(
        "apo-down", draws.answers, lambda i: preference.apo_down(i, 0.3), of_sides(losses.apo_down, beta=0.3)
    ),
    row(
        "discopop",
        draws.answers,
        lambda i: preference.discopop(i, 0.3, 0.5),
        of_sides(losses.discopop, beta=0.3, tau=0.5),
    ),
    row(
        "simpo",
        draws.answers,
        lambda i: preference.simpo(i, 2.0, 0.5),
        lambda i: losses.simpo(*free(i), beta=2.0, margin=0.5),
    ),
    row(
        "orpo's odds",
        draws.answers,
        lambda i: preference.orpo(i, 0.7),
        lambda i: losses.odds_ratio(*free(i), odds=0.7),
    ),
    row(
        "kto",
        draws.answers,
        lambda i: preference.kto(i, 0.3, 0.4, 1.0, 1.33),
        lambda i: unpaired.kto(sides(i)[0], t(i.label), beta=0.3, baseline=0.4, undesirable=1.33),
    ),
    row(
        "bco",
        draws.answers,
        lambda i: preference.bco(i, 0.3, 0.2),
        lambda i: unpaired.bco(sides(i)[0], t(i.label), beta=0.3, baseline=0.2),
    ),
    row(
        "f-dpo, reverse kl",
        draws.answers,
        lambda i: preference.fdpo(i, 0.3, preference.reverse_kl_slope),
        linked(losses.reverse_kl_link),
    ),
    row(
        "f-dpo, forward kl",
        draws.answers,
        lambda i: preference.fdpo(i, 0.3, preference.forward_kl_slope),
        linked(losses.forward_kl_link),
    ),
    row(
        "f-dpo, jensen-shannon",
        draws.answers,
        lambda i: preference.fdpo(i, 0.3, preference.jensen_shannon_slope),
        linked(losses.jensen_shannon_link),
    ),
    row(
        "f-dpo, alpha",
        draws.answers,
        lambda i: preference.fdpo(i, 0.3, preference.alpha_slope(0.5)),
        linked(alpha_link),
    ),
    row("r-dpo", draws.answers, lambda i: preference.r_dpo(i, 0.3, 0.02), penalised),
    row("dpop", draws.answers, lambda i: preference.dpop(i, 0.3, 5.0), positive),
    row(
        "ld-dpo's log-prob",
        draws.tokens,
        lambda i: preference.ld_dpo(i, 2, 0.4),
        lambda i: losses.length_desensitised_logps(t(i.new), seen(i.mask), whole([2] * 4), share=0.4),
    ),
    row("a plain sum", draws.tokens, lambda i: preference.ld_dpo(i, 99, 1.0), reduced(losses.sum_logps)),
    row("a mean log-prob", draws.tokens, preference.mean_logp, reduced(losses.mean_logps)),
    row(
        "wpo's weight",
        draws.tokens,
        preference.wpo,
        lambda i: losses.wpo_weight(t(i.new), t(i.power), seen(i.mask)),
    ),
    row(
        "aot",
        draws.answers,
        lambda i: preference.aot(i, 0.3),
        lambda i: losses.aot(*aot_sides(i), beta=0.3).sort().values,
    ),
    row(
        "aot, unpaired",
        draws.answers,
        lambda i: preference.aot_unpaired(i, 0.3),
        lambda i: losses.aot_unpaired(*aot_sides(i), beta=0.3).sum(),
    ),
    row(
        "online dpo",
        draws.pairs_of_completions,
        lambda i: preference.online_dpo(i, 0.3),
        lambda i: surrogates.online_dpo(t(i.rho), lead(i), beta=0.3),
    ),
    row(
        "online ipo",
        draws.pairs_of_completions,
        lambda i: preference.online_ipo(i, 0.3),
        lambda i: surrogates.online_ipo(t(i.rho), lead(i), beta=0.3),
    ),
)


POLICY = (
    row(
        "reinforce",
        draws.tokens,
        policy.reinforce,
        lambda i: inside(i, surrogates.policy_gradient(t(i.new), t(i.advantage))),
    ),
    row(
        "reinforce by log π",
        draws.tokens,
        lambda i: negative_table(policy.by_token(i, lambda r, a, n, k: a)),
        lambda i: slope_by(i.new, lambda new: inside(i, surrogates.policy_gradient(new, t(i.advantage)))),
    ),
    row("trpo's surrogate", draws.tokens, policy.surrogate, of_ratio(surrogates.unclipped)),
    row(
        "ppo",
        draws.tokens,
        lambda i: policy.ppo(i, 0.2, 0.2),
        of_ratio(surrogates.clipped, low=0.2, high=0.2),
    ),
    row(
        "dapo's clip",
        draws.tokens,
        lambda i: policy.ppo(i, 0.2, 0.28),
        of_ratio(surrogates.clipped, low=0.2, high=0.28),
    ),
    row(
        "ppo by log π",
        draws.tokens,
        lambda i: policy.ppo_slope(i, 0.2, 0.28),
        lambda i: slope_by(
            i.new, lambda new: of_ratio(surrogates.clipped, low=0.2, high=0.28)(moved(i, new))
        ),
    ),
    row(
        "dual clip",
        draws.tokens,
        lambda i: policy.dual_clip(i, 0.2, 0.2, 1.3),
        of_ratio(surrogates.dual_clipped, low=0.2, high=0.2, ceiling=1.3),
    ),
    row(
        "ppo-rb",
        draws.tokens,
        lambda i: policy.rollback(i, 0.2, 0.3),
        of_ratio(surrogates.rolled_back, low=0.2, high=0.2, slope=0.3),
    ),
    row(
        "tr-ppo",
        draws.tokens,
        lambda i: policy.tr_ppo(i, 0.03),
        lambda i: inside(
            i, surrogates.kl_triggered(ratio.ratio(rho(i)), t(i.advantage), t(i.kl), limit=0.03)
        ),
    ),
    row(
        "ppo-penalty",
        draws.tokens,
        lambda i: policy.ppo_penalty(i, 2.0),
        lambda i: inside(i, surrogates.kl_penalised(ratio.ratio(rho(i)), t(i.advantage), t(i.kl), beta=2.0)),
    ),
    row(
        "cispo",
        draws.tokens,
        lambda i: policy.cispo(i, 0.2),
        lambda i: inside(i, surrogates.cispo(t(i.new), ratio.ratio(rho(i)), t(i.advantage), high=0.2)),
    ),
    row(
        "cispo by log π",
        draws.tokens,
        lambda i: policy.cispo_slope(i, 0.2),
        lambda i: slope_by(
            i.new,
            lambda new: inside(
                i, surrogates.cispo(new, ratio.ratio(rho(moved(i, new))), t(i.advantage), high=0.2)
            ),
        ),
    ),
    row(
        "p3o, separate",
        draws.pairs_of_completions,
        lambda i: policy.p3o(i, 0.2, joint=False),
        lambda i: surrogates.p3o_separate(t(i.rho), lead(i), clip=0.2),
    ),
    row(
        "p3o, joint",
        draws.pairs_of_completions,
        lambda i: policy.p3o(i, 0.2, joint=True),
        lambda i: surrogates.p3o_joint(t(i.rho), lead(i), clip=0.2),
    ),
    row("gspo's ratio", draws.tokens, policy.gspo, first_ratio),
    row(
        "gspo-token by log π",
        draws.tokens,
        policy.gspo_token_slope,
        lambda i: slope_by(
            i.new,
            lambda new: inside(
                i, ratio.ratio(ratio.sequence_token_log_ratio(rho(moved(i, new)), seen(i.mask)))
            ),
        ),
    ),
    row(
        "a completion's log-ratio",
        draws.tokens,
        policy.completion_ratio,
        lambda i: ratio.completion_log_ratio(rho(i), seen(i.mask)),
    ),
    row(
        "tis",
        draws.tokens,
        lambda i: policy.truncated_weight(i, 1.2),
        lambda i: ratio.truncated_importance_weight(t(i.new), t(i.old), seen(i.mask), cap=1.2),
    ),
    row(
        "off-policy sequence mask",
        draws.tokens,
        lambda i: policy.sequence_mask(i, 0.05),
        lambda i: surrogates.trusted_completions(rho(i), t(i.verdict), seen(i.mask), limit=0.05).double(),
    ),
    row("share that is clipped", draws.tokens, lambda i: policy.clip_share(i, 0.2, 0.28), clip_share),
    row(
        "dapo's mean",
        draws.tokens,
        policy.dapo_mean,
        lambda i: reduce.token_mean(t(i.advantage), seen(i.mask), tokens=int(seen(i.mask).sum())),
    ),
    row(
        "grpo's mean",
        draws.tokens,
        policy.grpo_mean,
        lambda i: reduce.sequence_mean(t(i.advantage), seen(i.mask), completions=4),
    ),
    row(
        "dr. grpo's mean",
        draws.tokens,
        lambda i: policy.dr_grpo_mean(i, 16),
        lambda i: reduce.fixed_length(t(i.advantage), seen(i.mask), completions=4, longest=16),
    ),
    row(
        "value loss",
        draws.tokens,
        policy.value_loss,
        lambda i: surrogates.squared_error(t(i.value), t(i.target)),
    ),
    row(
        "clipped value loss",
        draws.tokens,
        lambda i: policy.clipped_value_loss(i, 0.2),
        lambda i: surrogates.clipped_squared_error(t(i.value), t(i.old_value), t(i.target), clip=0.2),
    ),
    row(
        "explained variance",
        draws.tokens,
        policy.explained_variance,
        lambda i: surrogates.explained_variance(t(i.value), t(i.target), seen(i.mask)),
    ),
)


DIVERGENCE = (
    *(
        row(
            name,
            draws.tokens,
            lambda i, name=name: policy.kl_estimator(i, name),
            lambda i, name=name: getattr(divergence, name)(t(i.new) - t(i.ref)),
        )
        for name in ("k1", "k2", "k3")
    ),
    row(
        "k3 by log π",
        draws.tokens,
        policy.k3_slope,
        lambda i: slope_by(i.new, lambda new: divergence.k3(new - t(i.ref))),
    ),
    row(
        "kl of the whole vocabulary",
        draws.distributions,
        policy.kls,
        lambda i: divergence.full_vocabulary_kl(*logps(i)),
    ),
    row("k1 on average", draws.distributions, policy.kls, lambda i: on_average(i, divergence.k1)),
    row("k3 on average", draws.distributions, policy.kls, lambda i: on_average(i, divergence.k3)),
    row("forward kl", draws.distributions, policy.kls, lambda i: supervised.forward_kl(*logps(i))),
    row(
        "reverse kl",
        draws.distributions,
        lambda i: policy.kls(i, turned=True),
        lambda i: supervised.reverse_kl(*logps(i)),
    ),
    row(
        "jensen-shannon",
        draws.distributions,
        policy.jensen_shannon,
        lambda i: supervised.jensen_shannon(*logps(i)),
    ),
    row(
        "ppo's beta",
        draws.nothing,
        lambda i: [policy.adaptive_beta(0.5, kl, 1.0) for kl in KLS],
        lambda i: [divergence.double_or_halve_beta(0.5, kl=kl, target=1.0) for kl in KLS],
    ),
    row(
        "ziegler's beta",
        draws.nothing,
        lambda i: [policy.proportional_beta(0.5, kl, 1.0, 64, 1000) for kl in KLS],
        lambda i: [
            divergence.proportional_beta(0.5, kl=kl, target=1.0, samples=64, horizon=1000) for kl in KLS
        ],
    ),
)
