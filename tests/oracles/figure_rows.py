"""Advantages, rewards and figures of evaluations: the formula restated, and plaudit's own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plaudit.advantages import baseline, group, temporal
from plaudit.engine.optimizer import schedule_factor
from plaudit.engine.settings import OptimizerSettings
from plaudit.evaluation.policies import diversity, scores, win_rate
from plaudit.evaluation.reward_models import accuracy
from plaudit.evaluation.reward_models.pairs import PairColumns
from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import Resampling, wilson_interval
from plaudit.losses import (
    reward,
)
from plaudit.rewards.combine import aggregate
from plaudit.tensors import masked
from tests.oracles import draws, figures, policy
from tests.oracles.comparison import row, seen, t, whole

SHARES = ((0.5, 10), (0.0, 12), (1.0, 7), (0.13, 200))


def of_scores(loss: Callable[..., Tensor], **settings: Any) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: loss(t(i.score), t(i.other), **settings)


def of_groups(advantage: Callable[..., Tensor], **settings: float) -> Callable[[SimpleNamespace], Tensor]:
    return lambda i: advantage(t(i.reward), whole(i.group), **settings)


def moments_in_plain_python(i: SimpleNamespace) -> list[float]:
    flat = [x for row in policy.kept(i.reward, i.mask) for x in row]
    return [float(len(flat)), sum(flat) / len(flat), policy.variance(flat)]


def moments(i: SimpleNamespace) -> list[Tensor]:
    found = masked.moments(t(i.reward), seen(i.mask))
    return [found.count, found.mean, found.variance]


def ranked(i: SimpleNamespace, ranks: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, ranks and the mask of rows that are filled up to five."""
    filled = [[*rank, *[0] * (5 - len(rank))] for rank in ranks]
    return t(i.reward), t(filled), seen([[place > 0 for place in rank] for rank in filled])


def three_way(i: SimpleNamespace) -> Tensor:
    share, table = t(i.share), reward.davidson(t(i.score), t(i.other), nu=0.8)
    return reward.win_tie_lose(table, torch.stack((share, (1 - share) / 2, (1 - share) / 2), -1))


def elo(i: SimpleNamespace) -> list[float]:
    duels: dict[tuple[str, str], list[win_rate.JudgedPair]] = {}
    for a in range(4):
        for b in range(a):
            won, lost = int(i.wins[a][b]), int(i.wins[b][a])
            duels[f"{a}", f"{b}"] = [judged(n, 1.0) for n in range(won)] + [
                judged(n, 0.0) for n in range(lost)
            ]
    found = {one.name: one.elo for one in win_rate.elo_ratings(duels, Resampling(times=2))}
    return [found[str(a)] for a in range(4)]


def judged(n: int, verdict: float) -> win_rate.JudgedPair:
    return win_rate.JudgedPair(prompt=f"q{n}", mine="a", theirs="b", forward=verdict, backward=verdict)


def calibration(i: SimpleNamespace) -> list[float]:
    columns = PairColumns(gap_B=np.array(i.gap), p_first_B=np.array(i.first), prompt_B=np.arange(len(i.gap)))
    found = accuracy.reward_calibration(columns)
    assert found is not None
    return [found.log_loss, found.brier, found.ece_width]


def rates(kind: Any) -> list[float]:
    settings = OptimizerSettings(schedule=kind, warmup=4, floor=0.1)
    return [schedule_factor(step, 40, settings) for step in range(1, 41)]


def varied(i: SimpleNamespace) -> Any:
    return diversity.measure_diversity({f"{n}": [text] for n, text in enumerate(i.texts)}, words=8)


ADVANTAGES = (
    row("grpo", draws.groups, lambda i: policy.grpo(i, 0.0), of_groups(group.z_score, epsilon=0.0)),
    row("grpo with ε", draws.groups, lambda i: policy.grpo(i, 1e-4), of_groups(group.z_score)),
    row(
        "grpo with process supervision",
        draws.tokens,
        lambda i: policy.process_grpo(i, [0, 0, 0, 0], 1e-4),
        lambda i: group.steps_z_score(t(i.reward), seen(policy.ends(i)), seen(i.mask), whole([0, 0, 0, 0])),
    ),
    row("dr. grpo", draws.groups, policy.dr_grpo, of_groups(group.centred)),
    row("rloo", draws.groups, policy.rloo, of_groups(group.leave_one_out)),
    row(
        "pass rates",
        draws.groups,
        policy.pass_rates,
        lambda i: group.pass_rate(t(i.passed), whole(i.group), groups=5, threshold=1),
    ),
    row(
        "dynamic sampling",
        draws.groups,
        policy.informative,
        lambda i: group.nonzero_std_groups(t(i.reward), whole(i.group), groups=5).double(),
    ),
    row(
        "remax",
        draws.groups,
        policy.remax,
        lambda i: baseline.greedy_baseline(t(i.reward), t(i.greedy), whole(i.group)),
    ),
    row("nash-md", draws.answers, policy.nash_md, of_scores(baseline.win_probability_advantage)),
    row(
        "a running mean",
        draws.groups,
        lambda i: 0.75 * 0.2 + 0.25 * sum(i.reward) / len(i.reward),
        lambda i: baseline.updated_running_mean(0.2, t(i.reward), share=0.25),
    ),
    row(
        "rewards of tokens",
        draws.tokens,
        lambda i: policy.token_rewards(i, 0.3),
        lambda i: temporal.token_rewards(t(i.score), t(i.kl), seen(i.mask), beta=0.3),
    ),
    row(
        "reward-to-go",
        draws.tokens,
        lambda i: policy.discounted(i, 0.9),
        lambda i: temporal.reward_to_go(t(i.reward), seen(i.mask), gamma=0.9),
    ),
    row(
        "monte carlo",
        draws.tokens,
        lambda i: policy.monte_carlo(i, 0.9),
        lambda i: temporal.monte_carlo(t(i.reward), t(i.value), seen(i.mask), gamma=0.9),
    ),
    row(
        "one step",
        draws.tokens,
        lambda i: policy.one_step(i, 0.9),
        lambda i: temporal.one_step(t(i.reward), t(i.value), seen(i.mask), gamma=0.9),
    ),
    row(
        "gae",
        draws.tokens,
        lambda i: policy.gae(i, 0.99, 0.95),
        lambda i: temporal.gae(t(i.reward), t(i.value), seen(i.mask), gamma=0.99, lam=0.95),
    ),
    row(
        "gae of cut answers",
        draws.tokens,
        lambda i: policy.gae(i, 0.9, 0.8, bootstrap=True),
        lambda i: temporal.gae(
            t(i.reward), t(i.value), seen(i.mask), gamma=0.9, lam=0.8, bootstrap_N=t(i.after)
        ),
    ),
    row(
        "returns",
        draws.tokens,
        policy.returns,
        lambda i: temporal.returns(t(i.advantage), t(i.value), seen(i.mask)),
    ),
    row(
        "a bandit",
        draws.tokens,
        policy.bandit,
        lambda i: temporal.bandit(t(i.score), t(i.first_value), seen(i.mask)),
    ),
    row(
        "reinforce++",
        draws.tokens,
        lambda i: policy.reinforce_plus_plus(i, 1.0),
        lambda i: temporal.reinforce_plus_plus(t(i.reward), seen(i.mask), gamma=1),
    ),
    row(
        "whitening",
        draws.tokens,
        lambda i: policy.whiten(i.reward, i.mask, shift=True, eps=1e-8),
        lambda i: masked.whiten(t(i.reward), seen(i.mask)),
    ),
    row(
        "whitening without a shift",
        draws.tokens,
        lambda i: policy.whiten(i.reward, i.mask, shift=False, eps=1e-8),
        lambda i: masked.whiten(t(i.reward), seen(i.mask), shift=False),
    ),
    row("moments", draws.tokens, moments_in_plain_python, moments),
)


REWARDS = (
    row("bradley-terry", draws.answers, figures.bradley_terry, of_scores(reward.bradley_terry)),
    row(
        "bradley-terry with a margin",
        draws.answers,
        figures.margin_loss,
        lambda i: reward.bradley_terry(t(i.score), t(i.other), margin=t(i.margin)),
    ),
    row(
        "bradley-terry, smoothed",
        draws.answers,
        lambda i: figures.smoothed_loss(i, 0.1),
        of_scores(reward.bradley_terry, smoothing=0.1),
    ),
    row(
        "bradley-terry with blind answers",
        draws.answers,
        lambda i: figures.blind_loss(i, 0.1),
        of_scores(reward.bradley_terry, noise=0.1),
    ),
    row(
        "bradley-terry with soft labels",
        draws.answers,
        figures.soft_loss,
        lambda i: reward.bradley_terry(t(i.score), t(i.other), label=t(i.share)),
    ),
    row(
        "centring",
        draws.answers,
        lambda i: figures.centring(i, 0.01),
        of_scores(reward.centring, weight=0.01),
    ),
    row(
        "k-wise",
        draws.rankings,
        lambda i: figures.k_wise(i, i.order),
        lambda i: reward.k_wise(*ranked(i, i.order)),
    ),
    row(
        "k-wise with ties",
        draws.rankings,
        lambda i: figures.k_wise(i, i.tied),
        lambda i: reward.k_wise(*ranked(i, i.tied)),
    ),
    row(
        "plackett-luce",
        draws.rankings,
        figures.plackett_luce,
        lambda i: reward.plackett_luce(*ranked(i, i.order)),
    ),
    row(
        "plackett-luce with ties",
        draws.rankings,
        figures.plackett_luce_efron,
        lambda i: reward.plackett_luce(*ranked(i, i.tied)),
    ),
    row("davidson", draws.answers, lambda i: figures.davidson(i, 0.8), of_scores(reward.davidson, nu=0.8)),
    row(
        "rao-kupper",
        draws.answers,
        lambda i: figures.rao_kupper(i, 1.7),
        of_scores(reward.rao_kupper, theta=1.7),
    ),
    row("win, tie, loss", draws.answers, lambda i: figures.three_way(figures.davidson(i, 0.8), i), three_way),
    row("regression", draws.answers, figures.squares, of_scores(reward.regression)),
    row(
        "a verifier",
        draws.answers,
        lambda i: figures.verifier(i, 1.5),
        lambda i: reward.binary(t(i.score), t(i.share), positive_weight=1.5),
    ),
    row(
        "process supervision",
        draws.tokens,
        figures.process,
        lambda i: reward.process_supervision(t(i.reward), t(i.right), seen(i.step)),
    ),
    row(
        "a group's choice",
        draws.answers,
        figures.choice,
        lambda i: reward.group_choice_nll(
            t([i.score, i.other]).T, torch.stack((t(i.share), 1 - t(i.share)), -1)
        ),
    ),
    row(
        "a group's ratings",
        draws.answers,
        figures.gaussian,
        lambda i: reward.gaussian_rating_nll(t(i.score), t(i.margin), t(i.other)),
    ),
    row("the worst member", draws.ensemble, figures.worst_case, lambda i: aggregate.minimum(t(i.score))),
    row(
        "a cautious ensemble",
        draws.ensemble,
        lambda i: figures.cautious(i, 0.7),
        lambda i: aggregate.cautious(t(i.score), 0.7),
    ),
    row(
        "weighted members",
        draws.ensemble,
        figures.blended,
        lambda i: aggregate.weighted(t(i.score), t(i.weight)),
    ),
    row(
        "a gate",
        draws.ensemble,
        lambda i: figures.gate(i, 0.1),
        lambda i: aggregate.gated(t(i.score[0]), t(i.score[1]), below=0.1),
    ),
    row(
        "standardised members",
        draws.ensemble,
        figures.standardised,
        lambda i: aggregate.standardise(t(i.score), t(i.offset), t(i.scale)),
    ),
    row(
        "the pair to ask about",
        draws.ensemble,
        figures.vote_spread,
        lambda i: aggregate.preference_disagreement(t(i.score), t(i.other)),
    ),
)


FIGURES = (
    row(
        "pass@k",
        draws.verdicts,
        lambda i: [figures.pass_at_k(n, c, k) for c, n in i.counts for k in (1, 3, 8, 12)],
        lambda i: [scores.pass_at_k(n, c, k) for c, n in i.counts for k in (1, 3, 8, 12)],
    ),
    row(
        "wilson",
        draws.nothing,
        lambda i: [figures.wilson(p, n) for p, n in SHARES],
        lambda i: [wilson_interval(p, n) for p, n in SHARES],
    ),
    row("ratings", draws.verdicts, lambda i: figures.ratings(i.wins), elo, within=1e-6),
    row(
        "sign flips",
        draws.verdicts,
        figures.sign_flips,
        lambda i: sign_flip_test(np.array(i.gain), np.array(i.prompt)),
    ),
    row(
        "truth of the best of n",
        draws.verdicts,
        lambda i: [figures.best_of_n_truth(i, n) for n in (1, 2, 4, 9)],
        lambda i: accuracy.best_of_n_truth(np.array(i.proxy), np.array(i.truth), [1, 2, 4, 9]),
    ),
    row(
        "kl of the best of n",
        draws.verdicts,
        lambda i: [figures.best_of_n_kl(i, n) for n in (1, 2, 4)],
        lambda i: [accuracy.best_of_n_exact_kl(np.array(i.chance), np.array(i.level), n) for n in (1, 2, 4)],
    ),
    row(
        "bound of that kl",
        draws.nothing,
        lambda i: [figures.best_of_n_bound(n) for n in (1, 4, 64)],
        lambda i: [accuracy.best_of_n_kl(n) for n in (1, 4, 64)],
    ),
    row("calibration", draws.verdicts, lambda i: figures.calibration(i, 10), calibration),
    *(
        row(
            f"{kind} schedule",
            draws.nothing,
            lambda i, kind=kind: [figures.schedule(s, 40, kind, 4, 0.1) for s in range(1, 41)],
            lambda i, kind=kind: rates(kind),
        )
        for kind in ("constant", "linear", "cosine")
    ),
    row(
        "distinct n-grams",
        draws.sentences,
        lambda i: [figures.distinct(i.texts, n) for n in (1, 2)],
        lambda i: [varied(i).distinct_1, varied(i).distinct_2],
    ),
    row(
        "self-bleu",
        draws.sentences,
        lambda i: figures.self_bleu(i.texts),
        lambda i: varied(i).self_bleu,
        within=1e-9,
    ),
)
