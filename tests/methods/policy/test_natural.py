"""TRPO's step: its curvature is that of the drawn tokens, its KL keeps the limit, nothing else moves."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jvp
from transformers import LlamaConfig, LlamaForCausalLM

from plaudit.engine.metrics import values_of
from plaudit.methods.policy import trpo as trpo_module
from plaudit.methods.policy.algorithms import trpo
from plaudit.methods.policy.batch import ExperienceTensors, GroupRef, Round
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.objective import PolicyMicrobatch, policy_objective
from plaudit.methods.policy.trpo import TrpoStep
from plaudit.models.policy import NoReference, Policy
from plaudit.tokens.batch import Completion, Example, batch_of
from tests.methods.policy.pieces import ALONE, Scene, learnt, scene


def natural(one: Scene, limit: float) -> TrpoStep:
    watchers = replace(one.watchers, critic=None)
    return TrpoStep(watchers, policy_objective(one.found, watchers), ALONE, kl_limit=limit)


def policy_pieces(one: Scene) -> list[PolicyMicrobatch]:
    return [piece for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch)]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def curvature(one: Scene, v_D: Tensor) -> Tensor:
    """F v by the derivative of each token's log-prob, written out."""
    weights = [p for p in one.policy.parameters() if p.requires_grad]
    total, tokens = torch.zeros_like(v_D), 0
    for piece in policy_pieces(one):
        batch = piece.round.batch(piece.groups)[0]
        logp = one.policy.score(batch, temperature=one.watchers.temperature).logp_NT[batch.mask_NT]
        for own in logp:
            grad_D = flat(torch.autograd.grad(own, weights, retain_graph=True))
            total, tokens = total + grad_D * grad_D.dot(v_D), tokens + 1
    return total / tokens


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("tries", "within"), [(1, 1e-3), (2, 1e-3), (8, 1e-3), (trpo_module.MAX_NUDGES, 1e-6)]
)
def test_the_curvature_is_that_of_the_tokens_that_were_drawn(tries, within, monkeypatch):
    """Nearly so where no length is accepted before the tries are over: the slope is of what was gone."""
    monkeypatch.setattr(trpo_module, "MAX_NUDGES", tries)
    one = scene("trpo")
    trained = [p for p in one.policy.parameters() if p.requires_grad]
    begin_D = flat([p.detach() for p in trained]).clone()
    v_D = torch.randn(len(begin_D), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    found = natural(one, 0.01)._fisher_vector_product(trained, begin_D, v_D, policy_pieces(one))
    wanted = curvature(one, v_D)
    assert float((found - wanted).norm() / wanted.norm()) < within
    assert torch.equal(flat([p.detach() for p in trained]), begin_D)


def microbatch(example: Example) -> PolicyMicrobatch:
    tokens = example.trained_tokens
    zeros = {field.name: torch.zeros(1, tokens) for field in fields(ExperienceTensors)}
    whole = Round(
        number=1, examples=(example,), experience=ExperienceTensors(**zeros), metrics=(), max_tokens=tokens
    )
    groups = (GroupRef(group=0, tokens=example.tokens),)
    return PolicyMicrobatch(
        round=whole, groups=groups, counts=whole.loss_counts([0]), is_first_update=False, is_only_update=False
    )


# torch compiles its own rules of forward differentiation in the way that it warns of.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
class TestFloat32:
    """Models of several sizes in float32, beside transformers' own derivative in float64."""

    @staticmethod
    def exact_slopes(model: Any, ids_L: Tensor, prompt: int, v: dict[str, Tensor]) -> Tensor:
        """The derivative of each completion token's log-prob along v, by forward-mode differentiation."""

        def logp(weights: dict[str, Tensor]) -> Tensor:
            logits = functional_call(
                model, weights, (), {"input_ids": ids_L[None], "use_cache": False}
            ).logits
            return logits[0, prompt - 1 : -1].log_softmax(-1).gather(1, ids_L[prompt:, None])[:, 0]

        _, slope_T = jvp(logp, (dict(model.named_parameters()),), (v,))
        return slope_T.detach()

    @pytest.mark.one_in(3)
    @pytest.mark.cases(slow=("random-26M", "gradient-26M"))
    @pytest.mark.parametrize(("hidden", "layers"), [(32, 2), (256, 4), (512, 8)], ids=["30k", "4M", "26M"])
    @pytest.mark.parametrize("along", ["gradient", "random"])
    def test_the_slope_along_a_direction_is_the_exact_one(self, hidden: int, layers: int, along: str) -> None:
        torch.manual_seed(1)
        config = LlamaConfig(
            vocab_size=512, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=4, attn_implementation="eager",
        )  # fmt: skip
        model = LlamaForCausalLM(config).eval()
        exact = LlamaForCausalLM(deepcopy(config)).eval().double()
        exact.load_state_dict(model.state_dict())
        ids_L = torch.randint(0, 512, (40,))
        completion = Completion(ids=tuple(ids_L[8:].tolist()), mask=(True,) * 32, finished=True)
        example = Example(prompt=tuple(ids_L[:8].tolist()), completions=(completion,))
        policy = Policy(model)
        weights = [p for p in policy.parameters() if p.requires_grad]
        begin_D = flat([p.detach() for p in weights]).clone()
        policy.score(batch_of([example])).logp_NT.mean().backward()
        v_D = flat([p.grad for p in weights if p.grad is not None])
        if along == "random":
            v_D = torch.randn(len(begin_D))
        parts = v_D.double().split([p.numel() for p in weights])
        v = {name: part.view_as(p) for (name, p), part in zip(exact.named_parameters(), parts, strict=True)}
        wanted = self.exact_slopes(exact, ids_L, 8, v).square().mean()
        models = ScoringModels(policy=policy, reference=NoReference(), critic=None, temperature=1.0)
        step = TrpoStep(models, policy_objective(trpo(), models), ALONE, kl_limit=0.01)
        # Twice: the second product begins where the first one ended.
        for _ in range(2):
            found_D = step._fisher_vector_product(weights, begin_D, v_D, [microbatch(example)])
            assert float(v_D.double().dot(found_D.double())) == pytest.approx(wanted.item(), rel=5e-3)
        assert torch.equal(flat([p.detach() for p in weights]), begin_D)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("limit", [1e-4, 0.01, 1.0])
def test_the_kl_stays_within_the_limit_and_the_surrogate_improves(limit: float) -> None:
    one = scene("trpo")
    pieces = one.pieces(1)
    learnt(one, pieces)
    before = {name: p.detach().clone() for name, p in one.policy.named_parameters()}
    figures = values_of(natural(one, limit)(pieces))
    assert 0 < figures["step_kl"] <= limit
    assert figures["line_search_frac"] > 0
    assert any(not torch.equal(p, before[name]) for name, p in one.policy.named_parameters())
    _, _, told = learnt(one, [replace(piece, is_first_update=False) for piece in policy_pieces(one)])
    assert told["approx_kl"] == pytest.approx(figures["step_kl"], rel=1e-9)
    assert told["loss"] < 0


@pytest.mark.slow
def test_the_critic_is_left_to_the_optimiser() -> None:
    one = scene("trpo")
    learnt(one, one.pieces(1))
    assert one.critic is not None
    grads = {name: p.grad.clone() for name, p in one.critic.named_parameters() if p.grad is not None}
    natural(one, 0.01)(one.pieces(1))
    assert all(p.grad is None for p in one.policy.parameters())
    assert grads
    for name, p in one.critic.named_parameters():
        if name in grads:
            assert p.grad is not None
            torch.testing.assert_close(p.grad, grads[name])


def test_nothing_moves_where_no_advantage_is_left() -> None:
    one = scene("trpo", policy={})
    pieces = [piece for piece in one.pieces(1) if isinstance(piece, PolicyMicrobatch)]
    flat_told = replace(
        pieces[0].round.experience, advantage_NT=torch.zeros_like(pieces[0].round.experience.advantage_NT)
    )
    pieces = [replace(piece, round=replace(piece.round, experience=flat_told)) for piece in pieces]
    learnt(one, pieces)
    before = flat([p.detach() for p in one.policy.parameters()]).clone()
    assert values_of(natural(one, 0.01)(pieces)) == {"line_search_frac": 0.0, "step_kl": 0.0}
    assert torch.equal(flat([p.detach() for p in one.policy.parameters()]), before)
