"""Policy optimisation as its papers write it, answer by answer and token by token, in plain Python.

Nothing of plaudit's cells, batches or layouts is used: the model is that of transformers, a pass for each
answer; what is known before the policy moves are lists of numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import torch
from torch import Tensor

from tests.methods.policy.pieces import EARLIER
from tests.methods.policy.script import Line


@dataclass(slots=True, kw_only=True)
class Known:
    """An answer as it was before the policy moved."""

    group: int
    prompt: tuple[int, ...]
    line: Line
    score: float
    old: list[float]
    every_old: list[list[float]]
    """log π_old of every token of the vocabulary, place by place."""
    ref: list[float]
    value: list[float]
    greedy: float
    advantage: list[float]

    @property
    def apart(self) -> list[float]:
        return [a - b for a, b in zip(self.old, self.ref, strict=True)]


@dataclass(slots=True, kw_only=True)
class Now:
    """The same in the eyes of the policy that moves."""

    logp_T: Tensor
    entropy_T: Tensor
    value_T: Tensor
    every: list[list[float]]
    """log π of every token of the vocabulary, place by place."""
    known: Known

    @property
    def rho_T(self) -> Tensor:
        return self.logp_T - torch.tensor(self.known.old, dtype=torch.float64)

    @property
    def ratio_T(self) -> Tensor:
        return self.rho_T.exp()

    @property
    def advantage_T(self) -> Tensor:
        return torch.tensor(self.known.advantage, dtype=torch.float64)


Loss = Callable[[Now, Now | None], Tensor]
"""What each token loses, given the answer and the other one of its pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    advantage: "Callable[[Known, Sequence[Known], Paper], list[float]]"
    loss: Loss
    over: Literal["tokens", "answers", "fixed"]
    kl: Literal["reward", "loss", "none"] = "none"
    beta: float = 0.05
    reward_kl: Callable[[float], float] = lambda rho: rho
    loss_kl: Callable[[Tensor], Tensor] = lambda rho: (-rho).exp() - 1 + rho
    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = False
    critic: bool = False
    drop_cut: bool = False
    overlong: int = 0
    ptx: float = 0.0


def token_rewards(one: Known, paper: Paper) -> list[float]:
    """−β KL at each token and the score at the last."""
    found = [-paper.beta * paper.reward_kl(rho) if paper.kl == "reward" else 0.0 for rho in one.apart]
    found[-1] += one.score
    return found


def gae(one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
    reward, found, ahead = token_rewards(one, paper), [0.0] * len(one.old), 0.0
    for t in reversed(range(len(reward))):
        following = one.value[t + 1] if t + 1 < len(reward) else 0.0
        ahead = reward[t] + paper.gamma * following - one.value[t] + paper.gamma * paper.lam * ahead
        found[t] = ahead
    return found


def one_step(one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
    following = [*one.value[1:], 0.0]
    reward = token_rewards(one, paper)
    return [r + paper.gamma * v1 - v for r, v1, v in zip(reward, following, one.value, strict=True)]


def to_go(one: Known, paper: Paper) -> list[float]:
    reward = token_rewards(one, paper)
    return [
        sum(paper.gamma ** (u - t) * reward[u] for u in range(t, len(reward))) for t in range(len(reward))
    ]


def monte_carlo(one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
    return [found - v for found, v in zip(to_go(one, paper), one.value, strict=True)]


def whitened(one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
    whole = [value for other in every for value in to_go(other, paper)]
    centre = fmean(whole)
    width = math.sqrt(fmean((value - centre) ** 2 for value in whole) + 1e-8)
    return [(value - centre) / width for value in to_go(one, paper)]


def total(one: Known, paper: Paper) -> float:
    return sum(token_rewards(one, paper))


def of_answer(
    number: Callable[[float, list[float], list[float], Known], float],
) -> Callable[..., list[float]]:
    """One number at each token, from the answer's reward, its group's and those of the others in it."""

    def advantage(one: Known, every: Sequence[Known], paper: Paper) -> list[float]:
        group = [total(other, paper) for other in every if other.group == one.group]
        others = [total(other, paper) for other in every if other.group == one.group and other is not one]
        return [number(total(one, paper), group, others, one)] * len(one.old)

    return advantage


z_score = of_answer(lambda r, group, others, one: (r - fmean(group)) / (stdev(group) + 1e-4))
centred = of_answer(lambda r, group, others, one: r - fmean(group))
others_mean = of_answer(lambda r, group, others, one: r - fmean(others))
running = of_answer(lambda r, group, others, one: r - EARLIER)
remax = of_answer(lambda r, group, others, one: r - one.greedy)
nash = of_answer(
    lambda r, group, others, one: 1 / (1 + math.exp(one.greedy - one.score)) - 0.5 - (one.score - r)
)
bandit = of_answer(lambda r, group, others, one: r - one.value[0])


def log_prob(now: Now, other: Now | None) -> Tensor:
    return -now.advantage_T * now.logp_T


def unclipped(now: Now, other: Now | None) -> Tensor:
    return -now.ratio_T * now.advantage_T


def clip(low: float, high: float, rho: Callable[[Now], Tensor] = lambda now: now.rho_T) -> Loss:
    def loss(now: Now, other: Now | None) -> Tensor:
        found = []
        for r, a in zip(rho(now).exp(), now.known.advantage, strict=True):
            found.append(-torch.minimum(r * a, torch.clamp(r, 1 - low, 1 + high) * a))
        return torch.stack(found)

    return loss


def of_whole(now: Now) -> Tensor:
    return now.rho_T.mean().expand(len(now.rho_T))


def of_whole_by_token(now: Now) -> Tensor:
    return now.rho_T.mean().detach() + now.rho_T - now.rho_T.detach()


def dual_clip(now: Now, other: Now | None) -> Tensor:
    usual = clip(0.2, 0.2)(now, other)
    return torch.stack(
        [torch.minimum(x, x.new_tensor(-3 * a)) if a < 0 else x
         for x, a in zip(usual, now.known.advantage, strict=True)]
    )  # fmt: skip


def penalised(now: Now, other: Now | None) -> Tensor:
    return -now.ratio_T * now.advantage_T + 1.0 * (now.ratio_T - 1 - now.rho_T)


def rolled_back(now: Now, other: Now | None) -> Tensor:
    found = []
    for r, a in zip(now.ratio_T, now.known.advantage, strict=True):
        if r.item() >= 1.2:
            back = -0.3 * r + 1.3 * 1.2
        elif r.item() <= 0.8:
            back = -0.3 * r + 1.3 * 0.8
        else:
            back = r
        found.append(-torch.minimum(r * a, back * a))
    return torch.stack(found)


def triggered(limit: float, slope: float) -> Loss:
    """Wang et al. 2019, (9) and (11): by D(s) = KL(π_old(·|s) ‖ π(·|s)), a sum over all actions."""

    def loss(now: Now, other: Now | None) -> Tensor:
        found = []
        places = zip(now.ratio_T, now.known.advantage, now.known.every_old, now.every, strict=True)
        for r, a, olds, news in places:
            kl = math.fsum(math.exp(p) * (p - q) for p, q in zip(olds, news, strict=True))
            held = kl >= limit and r.item() * a >= a
            found.append(-(1 - slope * (r - 1)) * a if held else -r * a)
        return torch.stack(found)

    return loss


def cispo(now: Now, other: Now | None) -> Tensor:
    return -now.ratio_T.detach().clamp(max=5.0) * now.advantage_T * now.logp_T


def p3o(now: Now, other: Now | None) -> Tensor:
    assert other is not None
    own, weight, a = now.rho_T.sum().exp(), other.rho_T.sum().exp().detach(), now.known.advantage[0]
    return (-torch.minimum(weight * own * a, weight * own.clamp(0.8, 1.2) * a)).expand(len(now.rho_T))


def p3o_joint(now: Now, other: Now | None) -> Tensor:
    assert other is not None
    gap = now.rho_T.sum() - other.rho_T.sum()
    weight, a = (now.rho_T.sum() + other.rho_T.sum()).exp().detach(), now.known.advantage[0]
    whole = -0.5 * torch.minimum(weight * gap * a, weight * gap.clamp(-0.2, 0.2) * a)
    return whole.expand(len(now.rho_T))


def online(formula: Callable[[Tensor], Tensor]) -> Loss:
    """A loss of how much likelier the better one has become; each of a pair loses it."""

    def delta(one: Now) -> Tensor:
        return one.logp_T.sum() - sum(one.known.ref)

    def loss(now: Now, other: Now | None) -> Tensor:
        assert other is not None
        better, worse = (now, other) if now.known.score > other.known.score else (other, now)
        return formula(delta(better) - delta(worse)).expand(len(now.rho_T))

    return loss


_PPO = {"advantage": gae, "over": "tokens", "kl": "reward", "whiten": True, "critic": True}
_GROUP = {"advantage": z_score, "loss": clip(0.2, 0.28)}
PAPERS: Mapping[str, Paper] = {
    "reinforce": Paper(advantage=running, loss=log_prob, over="fixed", kl="reward"),
    "a2c": Paper(advantage=one_step, loss=log_prob, over="tokens", kl="reward", critic=True),
    "trpo": Paper(**_PPO, loss=unclipped),
    "ppo": Paper(**_PPO, loss=clip(0.2, 0.2)),
    "ppo-penalty": Paper(**_PPO, loss=penalised),
    "ppo-rb": Paper(**_PPO, loss=rolled_back),
    "tr-ppo": Paper(**_PPO, loss=triggered(0.025, 0.0)),
    "tr-ppo-rb": Paper(**_PPO, loss=triggered(0.03, 0.05)),
    "ppo-ptx": Paper(**_PPO, loss=clip(0.2, 0.2), ptx=27.8),
    "rloo": Paper(advantage=others_mean, loss=log_prob, over="fixed", kl="reward"),
    "remax": Paper(advantage=remax, loss=log_prob, over="fixed", kl="reward"),
    "reinforce-pp": Paper(
        advantage=whitened, loss=clip(0.2, 0.2), over="tokens", kl="reward", beta=0.01
    ),
    "grpo": Paper(advantage=z_score, loss=clip(0.2, 0.2), over="answers", kl="loss", beta=0.04),
    "dr-grpo": Paper(advantage=centred, loss=clip(0.2, 0.2), over="fixed"),
    "dapo": Paper(**_GROUP, over="tokens", overlong=2),
    "grpo-plus": Paper(**_GROUP, over="answers", drop_cut=True),
    "gspo": Paper(advantage=z_score, loss=clip(3e-4, 4e-4, of_whole), over="answers"),
    "cispo": Paper(advantage=z_score, loss=cispo, over="tokens"),
    "p3o": Paper(advantage=others_mean, loss=p3o, over="answers", kl="reward"),
    "online-dpo": Paper(
        advantage=others_mean, loss=online(lambda h: -(0.1 * h).sigmoid().log()), over="answers"
    ),
    "online-ipo": Paper(advantage=others_mean, loss=online(lambda h: (h - 5) ** 2), over="answers"),
    "ipo-md": Paper(advantage=others_mean, loss=online(lambda h: (h - 5) ** 2), over="answers"),
    "nash-md": Paper(advantage=nash, loss=log_prob, over="fixed", kl="reward"),
}  # fmt: skip
"""Every row of the table, with the numbers of its paper."""
