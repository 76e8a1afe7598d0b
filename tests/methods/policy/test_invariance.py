"""How a batch lies in memory, or on ranks, changes nothing; a round begins where the policy stands."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.batch import ExperienceTensors
from plaudit.methods.policy.experience import ScoringModels, stale_sampler_check
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from plaudit.models.policy import ModelReference, Policy
from plaudit.tensors.masked import moments
from plaudit.tensors.needs import needs, needs_of
from plaudit.tokens.batch import batch_of
from tests.methods.policy.pieces import SINGLE, Learnt, Scene, learnt, same_gradients, scene, single
from tests.models.zoo import build_sharp, examples

SOME = ("ppo", "grpo", "dr-grpo", "gspo", "p3o", "remax", "reinforce-pp", "ipo-md", "nash-md")
"""One of each kind of ratio, reduction, divergence and advantage."""
ALL = [pytest.param(name, marks=[] if name in SOME else [pytest.mark.slow]) for name in POLICY_ALGORITHMS]


def same(found: Learnt, wanted: Learnt) -> None:
    assert found[0] == pytest.approx(wanted[0], rel=1e-9)
    same_gradients(found[1], wanted[1])
    assert found[2].keys() == wanted[2].keys()
    for name, value in wanted[2].items():
        assert found[2][name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", ALL)
def test_a_minibatch_in_pieces_has_the_gradient_of_the_whole(device: torch.device, name: str) -> None:
    ranks = single(device)
    one = scene(name, ranks=ranks)
    wanted = learnt(one, one.second_move())
    other = scene(name, tokens_at_once=20, ranks=ranks)
    pieces = other.second_move()
    assert len(pieces) > 1
    same(learnt(other, pieces), wanted)
    each = [own for piece in scene(name, ranks=ranks).second_move() for own in apart(piece)]
    same(learnt(one, each), wanted)


def apart(piece: AnyMicrobatch) -> Sequence[AnyMicrobatch]:
    return piece.rows() if isinstance(piece, PolicyMicrobatch) else [piece]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", ["left", "right", "unshared"])
@pytest.mark.parametrize("name", ["ppo", "grpo", "gspo", "p3o"])
def test_however_it_is_laid_out(device: torch.device, name: str, layout: str) -> None:
    ranks = single(device)
    one = scene(name, ranks=ranks)
    laid: dict[str, object] = {"share": False} if layout == "unshared" else {"layout": layout}
    other = scene(name, ranks=ranks, **laid)
    same(learnt(other, other.second_move()), learnt(one, one.second_move()))


@dataclass
class Meeting:
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=60))
    told: dict[int, object] = field(default_factory=dict)

    def exchange(self, rank: int, mine: object) -> list[object]:
        self.told[rank] = mine
        self.barrier.wait()
        both = [self.told[0], self.told[1]]
        self.barrier.wait()
        return both


@dataclass(frozen=True)
class Thread(Ranks):
    meeting: Meeting = field(default_factory=Meeting)

    def all_gather(self, values: Sequence[int | float]) -> list[list[float]]:
        return [list(map(float, row)) for row in self.meeting.exchange(self.rank, list(values))]  # pyright: ignore

    def all_gather_strings(self, words: Sequence[str]) -> list[str]:
        return [word for row in self.meeting.exchange(self.rank, list(words)) for word in row]  # pyright: ignore

    def all_reduce_sum(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            mine, other = self.meeting.exchange(self.rank, tensor.clone())
            tensor.copy_(mine + other)  # pyright: ignore


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["ppo", "grpo", "dapo", "remax", "p3o", "ppo-ptx", "ipo-md", "nash-md"])
def test_two_ranks_make_the_same_round_and_the_same_gradient(name: str) -> None:
    one = scene(name)
    wanted = learnt(one, one.second_move())
    meeting, cpu = Meeting(), torch.device("cpu")
    both = [
        scene(name, ranks=Thread(rank=rank, world_size=2, device=cpu, meeting=meeting), tokens_at_once=45)
        for rank in (0, 1)
    ]
    with ThreadPoolExecutor(2) as pool:
        found = list(zip(both, pool.map(Scene.second_move, both), strict=True))
    for mine, pieces in found:
        assert pieces
        same_told(told_of(mine), told_of(one))
    same(learnt(one, [piece for _, pieces in found for piece in pieces]), wanted)


def told_of(one: Scene) -> ExperienceTensors:
    assert one.rounds.current is not None
    return one.rounds.current.experience


def same_told(found: ExperienceTensors, wanted: ExperienceTensors) -> None:
    own, other = found.tensors(), wanted.tensors()
    assert own.keys() == other.keys()
    for name, value in own.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-11, msg=name)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ALL)
def test_what_was_known_of_a_round_does_not_depend_on_the_pieces(name: str) -> None:
    one, other = scene(name), scene(name, tokens_at_once=20, layout="left")
    one.pieces()
    other.pieces()
    same_told(told_of(other), told_of(one))


@pytest.mark.parametrize("name", ["ppo", "reinforce-pp"])
def test_whitening_is_over_the_tokens_of_the_round_and_not_of_a_minibatch(name: str) -> None:
    one = scene(name)
    whole = one.rounds.current if one.pieces() else None
    assert whole is not None
    mask_NT = whole.experience.old_logp_NT != 0
    found = moments(whole.experience.advantage_NT, mask_NT)
    assert found.mean.item() == pytest.approx(0, abs=1e-9)
    assert found.variance.item() == pytest.approx(1, abs=1e-6)
    first = whole.batch(
        [place for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch) for place in piece.groups]
    )[1]
    assert abs(moments(whole.experience.advantage_NT[first], mask_NT[first]).mean.item()) > 1e-3


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ALL)
def test_what_stands_at_padding_never_enters(name: str) -> None:
    one = scene(name)
    wanted = learnt(one, one.second_move())
    other = scene(name)
    pieces = other.second_move()
    whole = other.rounds.current
    assert whole is not None
    mask_NT = whole.experience.old_logp_NT != 0
    assert not mask_NT.all()
    bad = {
        name: value.masked_fill(
            ~mask_NT.view(*mask_NT.shape, *[1] * (value.ndim - 2)),
            torch.nan if value.is_floating_point() else 10**6,
        )
        for name, value in whole.experience.tensors().items()
    }
    spoilt = replace(whole, experience=ExperienceTensors(**bad))
    pieces = [replace(one, round=spoilt) if isinstance(one, PolicyMicrobatch) else one for one in pieces]
    same(learnt(other, pieces), wanted)


@pytest.mark.parametrize("name", ALL)
def test_values_and_divergences_at_padding_never_enter_an_advantage(name: str) -> None:
    one = scene(name)
    row, seen = one.found, []

    @needs(*needs_of(row.advantage))
    def spying(facts: object) -> Tensor:
        seen.append(facts)
        return row.advantage(facts)  # pyright: ignore[reportArgumentType]

    one.rounds.experience = replace(one.rounds.experience, row=replace(row, advantage=spying))
    one.pieces()
    [facts] = seen
    bad = {
        what: getattr(facts, what).masked_fill(~facts.mask_NT, torch.nan) for what in ("kl_NT", "value_NT")
    }
    wanted = row.advantage(facts)
    assert torch.equal(row.advantage(replace(facts, **bad)), wanted)
    assert wanted[~facts.mask_NT].eq(0).all()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ALL)
def test_advantages_have_no_gradient(name: str) -> None:
    one = scene(name)
    row, seen = one.found, []
    assert not any(getattr(piece, "requires_grad", False) for piece in one.pieces())
    assert not any(value.requires_grad for value in told_of(one).tensors().values())

    @needs(*needs_of(row.surrogate))
    def spying(moment: object) -> Tensor:
        moment = replace(moment, advantage_NT=moment.advantage_NT.clone().requires_grad_())  # pyright: ignore
        seen.append((moment.advantage_NT, row.surrogate(moment)))  # pyright: ignore
        return seen[-1][1]

    other = scene(name, row_like=replace(row, surrogate=spying))
    learnt(other, other.pieces())
    for advantage_NT, _ in seen:
        assert advantage_NT.grad is None


def descend(one: Scene, pieces: Sequence[AnyMicrobatch], rate: float = 0.01) -> dict[str, float]:
    """A step of plain gradient descent, and what the loop tells the rounds of it."""
    _, _, figures = learnt(one, pieces)
    with torch.no_grad():
        for module in (one.policy, one.critic):
            for weight in () if module is None else module.parameters():
                if weight.grad is not None:
                    weight.sub_(rate * weight.grad)
    return {name: float(value) for name, value in figures.items()}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALL)
def test_every_round_begins_with_a_ratio_of_exactly_1(name: str, dtype: torch.dtype) -> None:
    several = {} if name in SINGLE else {"update_epochs": 2, "minibatches": 3}
    one = scene(name, dtype=dtype, policy=several, tokens_at_once=25)
    inner = one.rounds.updates_per_round
    assert inner == (1 if name in SINGLE else 6)
    for step in range(1, 2 * inner + 1):
        figures = descend(one, one.pieces(step))
        one.rounds.after_step(step, figures)
        if step % inner == 1 or inner == 1:
            assert figures["ratio"] == 1.0
            assert figures["approx_kl"] == 0.0
        elif step % inner == 0:
            assert figures["approx_kl"] > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(
    "name", ["ppo", "grpo", "dapo", "rloo", "reinforce-pp", "online-dpo", "ipo-md", "nash-md"]
)
def test_a_sampler_with_older_weights_stops_the_run(device: torch.device, name: str, once: bool) -> None:
    settings = {"update_epochs": 1, "minibatches": 1} if once or name in SINGLE else {"update_epochs": 2}
    one = scene(name, stale=True, policy=settings, ranks=single(device))
    one.move(0.1)
    with pytest.raises(
        UserError, match=r"not drawn from the policy that is trained.*other \(older\) weights"
    ):
        learnt(one, one.pieces())


@pytest.mark.parametrize(("share", "is_fair"), [(1.9, True), (2.1, False)])
@pytest.mark.filterwarnings("ignore:the sampler's log-probs")
def test_in_16_bits_a_sampler_may_be_as_far_as_the_model_rounds(share: float, is_fair: bool) -> None:
    policy = Policy(build_sharp())
    policy.compute_in(torch.bfloat16)
    models = ScoringModels(policy=policy, reference=ModelReference(policy), critic=None, temperature=1.0)
    batch = batch_of(examples())
    run_NT = policy.score(batch).logp_NT.detach()
    with policy.backbone.in_full():
        full_NT = policy.score(batch).logp_NT.detach()
    sampler_NT = run_NT + share * (full_NT - run_NT)
    check = stale_sampler_check(models, run_NT, sampler_NT, batch.mask_NT, examples())
    assert check.value > check.limit
    with nullcontext() if is_fair else pytest.raises(UserError, match=r"other \(older\) weights"):
        check.refuse(float(check.value))


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("noise", "why"), [(0.3, "dropout"), (3e-4, "differs from itself|were not drawn")])
def test_dropout_that_is_on_stops_the_run(once: bool, noise: float, why: str) -> None:
    settings = {"update_epochs": 1, "minibatches": 1} if once else {"update_epochs": 2}
    one = scene("dr-grpo" if once else "ppo", policy=settings)

    def drop(module: object, inputs: object, output: Tensor) -> Tensor:
        return output + noise * torch.randn_like(output)

    one.policy.base.model.layers[0].mlp.register_forward_hook(drop)
    with pytest.raises(UserError, match=why):
        learnt(one, one.pieces())
