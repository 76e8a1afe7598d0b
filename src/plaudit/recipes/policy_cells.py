"""The cells of policy optimisation by the names that the table has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from plaudit.advantages import baseline, group, temporal
from plaudit.losses import policy, ratio
from plaudit.tensors.masked import spread, whiten
from plaudit.training.policy_row import Advantage, Facts, Moment, Surrogate


def advantage_named(
    name: str, *, gamma: float, lam: float, scaled: bool = False, stepwise: bool = False
) -> Advantage:
    """The cell of this name; ``scaled`` divides the rewards of tokens by their deviation over the round.

    ``stepwise`` compares steps where it can; a cell of whole answers has the sum of what steps are paid.
    """
    in_time = {"gae": temporal.gae, "monte-carlo": temporal.monte_carlo, "one-step": temporal.one_step}
    if name in in_time:
        settings = {"gamma": gamma, "lam": lam} if name == "gae" else {"gamma": gamma}
        return lambda facts: in_time[name](
            _token_rewards(facts, scaled=scaled), facts.value_NT, facts.mask_NT, **settings
        )
    if name == "whitened":
        return lambda facts: temporal.reinforce_plus_plus(
            _token_rewards(facts, scaled=scaled), facts.mask_NT, gamma=gamma
        )
    if name == "bandit":
        return lambda facts: temporal.bandit(
            facts.reward_N, _at_first(facts.value_NT, facts.mask_NT), facts.mask_NT
        )
    if name == "group-z" and stepwise:
        return lambda facts: group.steps_z_score(
            _token_rewards(facts, scaled=False), facts.end_NT, facts.mask_NT, facts.group_N
        )
    of_answers: Mapping[str, Callable[[Facts], Tensor]] = {
        "group-z": lambda facts: group.z_score(facts.reward_N, facts.group_N),
        "group-mean": lambda facts: group.centred(facts.reward_N, facts.group_N),
        "leave-one-out": lambda facts: group.leave_one_out(facts.reward_N, facts.group_N),
        "greedy": lambda facts: facts.reward_N - facts.rival_N,
        "preference": lambda facts: baseline.preferred(facts.score_N, facts.rival_N) - facts.cost_N,
        "running": lambda facts: baseline.running(facts.reward_N, mean=facts.mean),
    }
    return lambda facts: spread(of_answers[name](facts), facts.mask_NT)


def _token_rewards(facts: Facts, *, scaled: bool) -> Tensor:
    """Along the tokens: the KL at each, what steps are paid at their ends, and the rest at the last one."""
    reward_NT = facts.paid_NT + temporal.token_rewards(
        facts.rest_N, facts.kl_NT, facts.mask_NT, beta=facts.beta
    )
    return whiten(reward_NT, facts.mask_NT, shift=False) if scaled else reward_NT


def _at_first(value_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """What stands at each answer's first token."""
    first_N1 = mask_NT.to(value_NT.dtype).argmax(-1, keepdim=True)
    return value_NT.gather(1, first_N1)[:, 0]


def surrogate_named(name: str, number: Callable[[str], float]) -> Surrogate:
    """The cell of this name, with its settings."""
    low, high, slope = number("clip_low"), number("clip_high"), number("slope")
    limit, ceiling = number("limit"), number("ceiling")

    def of_pairs(function: Callable[..., Tensor], now: Moment, apart_NT: Tensor, **own: float) -> Tensor:
        better_N = _at_first(now.advantage_NT, now.mask_NT)
        return spread(function(ratio.of_completion(apart_NT, now.mask_NT), better_N, **own), now.mask_NT)

    cells: Mapping[str, Surrogate] = {
        "log-prob": lambda now: policy.log_prob(now.logp_NT, now.advantage_NT),
        "unclipped": lambda now: policy.unclipped(now.ratio_NT, now.advantage_NT),
        "clip": lambda now: policy.clipped(now.ratio_NT, now.advantage_NT, low=low, high=high),
        "dual-clip": lambda now: policy.dual_clipped(
            now.ratio_NT, now.advantage_NT, low=low, high=high, ceiling=ceiling
        ),
        "rollback": lambda now: policy.rolled_back(
            now.ratio_NT, now.advantage_NT, low=low, high=high, slope=slope
        ),
        "kl-trigger": lambda now: policy.kl_triggered(
            now.ratio_NT, now.advantage_NT, now.apart_NT.detach(), limit=limit, slope=slope
        ),
        "kl-penalty": lambda now: policy.kl_penalised(
            now.ratio_NT, now.advantage_NT, now.apart_NT, beta=now.beta
        ),
        "cispo": lambda now: policy.cispo(now.logp_NT, now.ratio_NT, now.advantage_NT, low=low, high=high),
        "p3o": lambda now: of_pairs(policy.p3o_separate, now, now.shift_NT, clip=low),
        "p3o-joint": lambda now: of_pairs(policy.p3o_joint, now, now.shift_NT, clip=low),
        "dpo": lambda now: of_pairs(policy.better_of_two, now, now.off_NT, beta=number("beta")),
        "ipo": lambda now: of_pairs(policy.better_by_half, now, now.off_NT, beta=number("beta")),
    }
    return cells[name]
