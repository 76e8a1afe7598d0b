"""Advantages, rewards and figures of evaluations: the formula restated, and plaudit's own."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from examples.proofs.claims.optimum import best_of_n_exact_kl
from plaudit.advantages import group, temporal
from plaudit.engine.optimizer import schedule_factor
from plaudit.engine.settings import OptimizerSettings
from plaudit.evaluation.policies import diversity, scores, win_rate
from plaudit.evaluation.reward_models import accuracy
from plaudit.evaluation.reward_models.pairs import PairColumns
from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import Resampling, wilson_interval
from plaudit.losses import reward
from plaudit.rewards.combine import aggregate
from plaudit.tensors import masked
from tests.oracles import figures, policy
from tests.oracles.comparison import Comparison, row, seen, t, whole
from tests.oracles.draws import answers, ensemble, groups, nothing, rankings, sentences, tokens, verdicts

SHARES = ((0.5, 10), (0.0, 12), (1.0, 7), (0.13, 200))


def moments_in_plain_python(i: SimpleNamespace) -> list[float]:
    flat = [x for row in policy.kept(i.reward, i.mask) for x in row]
    return [float(len(flat)), sum(flat) / len(flat), policy.variance(flat)]


def moments(reward_NT: Tensor, mask_NT: Tensor) -> list[Tensor]:
    found = masked.moments(reward_NT, mask_NT)
    return [found.count, found.mean, found.variance]


def ranked(i: SimpleNamespace, ranks: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, ranks and the mask of rows that are filled up to five."""
    filled = t([[*rank, *[0] * (5 - len(rank))] for rank in getattr(i, ranks)])
    return t(i.reward), filled, filled > 0


def three_way(score: Tensor, other: Tensor, share: Tensor, nu: float) -> Tensor:
    table = reward.davidson(score, other, nu=nu)
    return reward.win_tie_lose(table, torch.stack((share, (1 - share) / 2, (1 - share) / 2), -1))


def choice(score: Tensor, other: Tensor, share: Tensor) -> Tensor:
    return reward.group_choice_nll(torch.stack((score, other), -1), torch.stack((share, 1 - share), -1))


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


in_order, with_ties = (partial(ranked, ranks=ranks) for ranks in ("order", "tied"))


ALL = "reward group"
ADVANTAGES = (
    row("grpo", groups, policy.grpo, group.z_score, ALL, epsilon=0.0),
    row("grpo with ε", groups, lambda i: policy.grpo(i, 1e-4), group.z_score, ALL),
    row(
        "grpo with process supervision",
        tokens,
        lambda i: policy.process_grpo(i, [0, 0, 0, 0], 1e-4),
        group.steps_z_score,
        lambda i: (t(i.reward), seen(policy.ends(i)), seen(i.mask), whole([0, 0, 0, 0])),
    ),
    row("dr. grpo", groups, policy.dr_grpo, group.centred, ALL),
    row("rloo", groups, policy.rloo, group.leave_one_out, ALL),
    row(
        "pass rates",
        groups,
        policy.pass_rates,
        partial(group.pass_rate, groups=5, threshold=1),
        "passed group",
    ),
    row(
        "dynamic sampling",
        groups,
        policy.informative,
        lambda *of: group.nonzero_std_groups(*of, groups=5).double(),
        ALL,
    ),
    row("remax", groups, policy.remax, group.greedy_baseline, "reward greedy group"),
    row("nash-md", answers, policy.nash_md, group.win_probability_advantage, "score other"),
    row(
        "a running mean",
        groups,
        lambda i, share: (1 - share) * 0.2 + share * sum(i.reward) / len(i.reward),
        partial(group.updated_running_mean, 0.2),
        "reward",
        share=0.25,
    ),
    row("rewards of tokens", tokens, policy.token_rewards, temporal.token_rewards, "score kl mask", beta=0.3),
    row("reward-to-go", tokens, policy.discounted, temporal.reward_to_go, "reward mask", gamma=0.9),
    row("monte carlo", tokens, policy.monte_carlo, temporal.monte_carlo, "reward value mask", gamma=0.9),
    row("one step", tokens, policy.one_step, temporal.one_step, "reward value mask", gamma=0.9),
    row("gae", tokens, policy.gae, temporal.gae, "reward value mask", gamma=0.99, lam=0.95),
    row(
        "gae of cut answers",
        tokens,
        partial(policy.gae, bootstrap=True),
        lambda *of, **factors: temporal.gae(*of[:3], bootstrap_N=of[3], **factors),
        "reward value mask after",
        gamma=0.9,
        lam=0.8,
    ),
    row("returns", tokens, policy.returns, temporal.returns, "advantage value mask"),
    row("a bandit", tokens, policy.bandit, temporal.bandit, "score first_value mask"),
    row(
        "reinforce++",
        tokens,
        policy.reinforce_plus_plus,
        temporal.reinforce_plus_plus,
        "reward mask",
        gamma=1,
    ),
    row("whitening", tokens, policy.whiten, masked.whiten, "reward mask"),
    row("whitening without a shift", tokens, policy.whiten, masked.whiten, "reward mask", shift=False),
    row("moments", tokens, moments_in_plain_python, moments, "reward mask"),
)


BOTH = "score other"
REWARDS = (
    row("bradley-terry", answers, figures.bradley_terry, reward.bradley_terry, BOTH),
    row(
        "bradley-terry with a margin",
        answers,
        figures.margin_loss,
        lambda *of: reward.bradley_terry(*of[:2], margin=of[2]),
        "score other margin",
    ),
    row("bradley-terry, smoothed", answers, figures.smoothed_loss, reward.bradley_terry, BOTH, smoothing=0.1),
    row(
        "bradley-terry with blind answers", answers, figures.blind_loss, reward.bradley_terry, BOTH, noise=0.1
    ),
    row(
        "bradley-terry with soft labels",
        answers,
        figures.soft_loss,
        lambda *of: reward.bradley_terry(*of[:2], label=of[2]),
        "score other share",
    ),
    row("centring", answers, figures.centring, reward.centring, BOTH, weight=0.01),
    row("k-wise", rankings, lambda i: figures.k_wise(i, i.order), reward.k_wise, in_order),
    row("k-wise with ties", rankings, lambda i: figures.k_wise(i, i.tied), reward.k_wise, with_ties),
    row("plackett-luce", rankings, figures.plackett_luce, reward.plackett_luce, in_order),
    row("plackett-luce with ties", rankings, figures.plackett_luce_efron, reward.plackett_luce, with_ties),
    row("davidson", answers, figures.davidson, reward.davidson, BOTH, nu=0.8),
    row("rao-kupper", answers, figures.rao_kupper, reward.rao_kupper, BOTH, theta=1.7),
    row("win, tie, loss", answers, figures.three_way, three_way, "score other share", nu=0.8),
    row("regression", answers, figures.squares, reward.regression, BOTH),
    row("a verifier", answers, figures.verifier, reward.binary, "score share", positive_weight=1.5),
    row("process supervision", tokens, figures.process, reward.process_supervision, "reward right step"),
    row("a group's choice", answers, figures.choice, choice, "score other share"),
    row("a group's ratings", answers, figures.gaussian, reward.gaussian_rating_nll, "score margin other"),
    row("the worst member", ensemble, figures.worst_case, aggregate.minimum, "score"),
    row("a cautious ensemble", ensemble, figures.cautious, aggregate.cautious, "score", k=0.7),
    row("weighted members", ensemble, figures.blended, aggregate.weighted, "score weight"),
    row("a gate", ensemble, figures.gate, aggregate.gated, lambda i: t(i.score)[:2], below=0.1),
    row("standardised members", ensemble, figures.standardised, aggregate.standardise, "score offset scale"),
    row("the pair to ask about", ensemble, figures.vote_spread, aggregate.preference_disagreement, BOTH),
)


FIGURES = (
    Comparison(
        "pass@k",
        verdicts,
        lambda i: [figures.pass_at_k(n, c, k) for c, n in i.counts for k in (1, 3, 8, 12)],
        lambda i: [scores.pass_at_k(n, c, k) for c, n in i.counts for k in (1, 3, 8, 12)],
    ),
    Comparison(
        "wilson",
        nothing,
        lambda i: [figures.wilson(p, n) for p, n in SHARES],
        lambda i: [wilson_interval(p, n) for p, n in SHARES],
    ),
    Comparison("ratings", verdicts, lambda i: figures.ratings(i.wins), elo, within=1e-6),
    Comparison(
        "sign flips",
        verdicts,
        figures.sign_flips,
        lambda i: sign_flip_test(np.array(i.gain), np.array(i.prompt)),
    ),
    Comparison(
        "truth of the best of n",
        verdicts,
        lambda i: [figures.best_of_n_truth(i, n) for n in (1, 2, 4, 9)],
        lambda i: accuracy.best_of_n_truth(np.array(i.proxy), np.array(i.truth), [1, 2, 4, 9]),
    ),
    Comparison(
        "kl of the best of n",
        verdicts,
        lambda i: [figures.best_of_n_kl(i, n) for n in (1, 2, 4)],
        lambda i: [best_of_n_exact_kl(np.array(i.chance), np.array(i.level), n) for n in (1, 2, 4)],
    ),
    Comparison(
        "bound of that kl",
        nothing,
        lambda i: [figures.best_of_n_bound(n) for n in (1, 4, 64)],
        lambda i: [accuracy.best_of_n_kl(n) for n in (1, 4, 64)],
    ),
    Comparison("calibration", verdicts, lambda i: figures.calibration(i, 10), calibration),
    *(
        Comparison(
            f"{kind} schedule",
            nothing,
            lambda i, kind=kind: [figures.schedule(s, 40, kind, 4, 0.1) for s in range(1, 41)],
            lambda i, kind=kind: rates(kind),
        )
        for kind in ("constant", "linear", "cosine")
    ),
    Comparison(
        "distinct n-grams",
        sentences,
        lambda i: [figures.distinct(i.texts, n) for n in (1, 2)],
        lambda i: [varied(i).distinct_1, varied(i).distinct_2],
    ),
    Comparison(
        "self-bleu",
        sentences,
        lambda i: figures.self_bleu(i.texts),
        lambda i: varied(i).self_bleu,
        within=1e-9,
    ),
)
