"""What a move of a policy run minimises: its paper's formula, written out from plain passes; float64."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from tests.methods.policy import papers, pieces
from tests.methods.policy.plain import before, loss_of, ptx_loss, weigh
from tests.models.zoo import build


def two(**settings: object) -> dict[str, object]:
    return {"entropy_coef": pieces.BONUS, "update_epochs": 2, "minibatches": 2, **settings}


VARIANTS: Mapping[str, tuple[str, Mapping[str, object], papers.Paper]] = {
    "dual clip": ("ppo", two(surrogate="dual-clip"), replace(papers.PAPERS["ppo"], loss=papers.dual_clip)),
    "p3o, joint": ("p3o", two(surrogate="p3o-joint"), replace(papers.PAPERS["p3o"], loss=papers.p3o_joint)),
    "monte carlo": (
        "ppo",
        two(advantage="monte-carlo", gamma=0.9),
        replace(papers.PAPERS["ppo"], advantage=papers.monte_carlo, gamma=0.9, whiten=False),
    ),
    "gae discounted": (
        "ppo",
        two(gamma=0.9, lam=0.7, whiten_advantages=False),
        replace(papers.PAPERS["ppo"], gamma=0.9, lam=0.7, whiten=False),
    ),
    "k2 in the reward": (
        "rloo",
        {"entropy_coef": pieces.BONUS, "kl_estimator": "k2", "kl_coef": 0.3},
        replace(papers.PAPERS["rloo"], beta=0.3, reward_kl=lambda rho: 0.5 * rho * rho),
    ),
    "rloo of several moves, by the ratio": (
        "rloo",
        two(surrogate="unclipped"),
        replace(papers.PAPERS["rloo"], loss=papers.unclipped),
    ),
    "k2 in the loss": (
        "grpo",
        two(kl_estimator="k2", kl_coef=0.3),
        replace(papers.PAPERS["grpo"], beta=0.3, loss_kl=lambda rho: 0.5 * rho * rho),
    ),
    "k3 in the loss of dr-grpo": (
        "dr-grpo",
        two(divergence="loss", kl_coef=0.1),
        replace(papers.PAPERS["dr-grpo"], kl="loss", beta=0.1),
    ),
    "gspo by token": (
        "gspo",
        two(ratio="answer-token"),
        replace(papers.PAPERS["gspo"], loss=papers.clip(3e-4, 4e-4, papers.of_whole_by_token)),
    ),
    "grpo, whitened, over tokens": (
        "grpo",
        two(whiten_advantages=True, reduction="tokens", advantage="group-mean"),
        replace(papers.PAPERS["grpo"], advantage=papers.centred, whiten=True, over="tokens"),
    ),
}
"""Cells in place of a row's own ones."""


def by_hand(
    paper: papers.Paper, one: pieces.Scene, groups: list[int]
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of these groups from the formula, all of it known from the models alone."""
    policy, critic = build("llama", torch.float64), pieces.build_critic()
    usable = [group for group, (_, said) in enumerate(one.lines) if len(said) != 3 or group != 3]
    every = before(one.lines, policy, build("llama", torch.float64, seed=1), critic, paper)
    every = [known for known in every if known.group in usable]
    targets = weigh(every, paper)
    pieces.move(policy)
    pieces.move(critic)
    loss = loss_of(paper, every, targets, groups, (policy, critic))
    if paper.ptx:
        loss = loss + paper.ptx * ptx_loss(policy)
    loss.backward()
    parts = {"policy.model": policy, **({"critic.model": critic} if paper.critic else {})}
    return loss.item(), {
        f"{part}.{name}": p.grad
        for part, model in parts.items()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def second_half(name: str, one: pieces.Scene) -> list[int]:
    """Of pairs one has lost an answer, which has no verdict, and is left out."""
    if one.rounds.updates_per_round == 1:
        return [0, 1, 2, 3, 4]
    return [2, 4] if name in pieces.PAIRS else [2, 3, 4]


def as_by_hand(name: str, paper: papers.Paper, one: pieces.Scene) -> None:
    found = pieces.learnt(one, one.second_move())
    loss, grads = by_hand(paper, one, second_half(name, one))
    assert found[0] == pytest.approx(loss, rel=1e-9)
    pieces.same_gradients(found[1], grads)
    assert found[2]["ratio"] != pytest.approx(1, abs=1e-4)


def test_every_row_has_its_paper() -> None:
    assert papers.PAPERS.keys() == POLICY_ALGORITHMS.keys()


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", POLICY_ALGORITHMS)
def test_a_move_is_that_of_the_paper(device: torch.device, name: str) -> None:
    """On a GPU too it is compared with plain passes on the CPU."""
    as_by_hand(name, papers.PAPERS[name], pieces.scene(name, ranks=pieces.single(device)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("what", VARIANTS)
def test_a_cell_in_place_of_another_is_that_of_its_paper(device: torch.device, what: str) -> None:
    name, settings, paper = VARIANTS[what]
    as_by_hand(name, paper, pieces.scene(name, policy=settings, ranks=pieces.single(device)))
