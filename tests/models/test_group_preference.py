"""Group preferences: no order matters, targets are alone, and a few judgements of a new group are enough."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models import group_preference
from plaudit.models.policy import Policy
from plaudit.tokens.batch import batch_of
from plaudit.tokens.microbatch import Layout
from tests.models.group_modules import CONFIG, H, module, normal
from tests.models.reward_zoo import fresh, start
from tests.models.zoo import build, examples


def _context(episodes: int = 3, points: int = 5, seed: int = 1) -> group_preference.GroupContext:
    return group_preference.GroupContext(
        embedding_EMH=normal(episodes, points, H, seed=seed),
        preference_EM=normal(episodes, points, seed=seed + 100),
        mask_EM=torch.ones(episodes, points, dtype=torch.bool),
    )


def _nothing(episodes: int) -> group_preference.GroupContext:
    return _context(episodes, points=0)


def _said(
    model: group_preference.GroupPreference, context: group_preference.GroupContext, target_ENH: Tensor
) -> Tensor:
    with torch.no_grad():
        predicted = model(context, target_ENH)
    return torch.stack((predicted.score_EN, predicted.log_std_EN))


def test_the_order_of_the_context_does_not_matter() -> None:
    model, context, target_ENH = module(), _context(), normal(3, 4, H)
    order = torch.tensor([3, 0, 4, 1, 2])
    turned = group_preference.GroupContext(
        embedding_EMH=context.embedding_EMH[:, order],
        preference_EM=context.preference_EM[:, order],
        mask_EM=context.mask_EM,
    )
    wanted = _said(model, context, target_ENH)
    torch.testing.assert_close(_said(model, turned, target_ENH), wanted, rtol=0, atol=1e-12)
    crossed = replace(context, preference_EM=context.preference_EM[:, order])
    moved = float((_said(model, crossed, target_ENH) - wanted).abs().max())
    assert moved > 0.01, "which preference belongs to which answer does matter"


def test_targets_in_another_order_give_the_same_in_that_order() -> None:
    model, context, target_ENH = module(), _context(), normal(3, 4, H)
    order = torch.tensor([2, 0, 3, 1])
    wanted = _said(model, context, target_ENH)[..., order]
    torch.testing.assert_close(_said(model, context, target_ENH[:, order]), wanted, rtol=0, atol=1e-12)


def test_a_target_is_judged_as_if_it_were_the_only_one() -> None:
    model, context, target_ENH = module(), _context(), normal(3, 4, H)
    wanted = _said(model, context, target_ENH)
    for n in range(4):
        alone = _said(model, context, target_ENH[:, n : n + 1])
        torch.testing.assert_close(alone, wanted[..., n : n + 1], rtol=0, atol=1e-12)
    asked = target_ENH.clone().requires_grad_()
    model(context, asked).score_EN[:, 0].sum().backward()
    assert asked.grad is not None
    assert bool(asked.grad[:, 0].any())
    assert not bool(asked.grad[:, 1:].any())


def test_masked_points_are_as_if_they_were_not_there() -> None:
    model, context, target_ENH = module(), _context(), normal(3, 4, H)
    mask_EM = torch.tensor([[True] * 5, [True, False, True, False, False], [False] * 5])
    found = _said(model, replace(context, mask_EM=mask_EM), target_ENH)
    for e, mask_M in enumerate(mask_EM):
        own = group_preference.GroupContext(
            embedding_EMH=context.embedding_EMH[e : e + 1, mask_M],
            preference_EM=context.preference_EM[e : e + 1, mask_M],
            mask_EM=torch.ones(1, int(mask_M.sum()), dtype=torch.bool),
        )
        wanted = _said(model, own, target_ENH[e : e + 1])
        torch.testing.assert_close(found[:, e : e + 1], wanted, rtol=0, atol=1e-12)


def test_without_a_context_all_groups_are_one() -> None:
    model, target_ENH = module(), normal(1, 4, H).expand(3, 4, H)
    blind = _said(model, _nothing(3), target_ENH)
    assert torch.equal(blind[:, 0], blind[:, 1])
    told = _said(model, _context(), target_ENH)
    assert float((told[:, 0] - told[:, 1]).abs().max()) > 0.01


def test_a_preference_of_zero_is_marked_as_known() -> None:
    model = module()
    known = replace(_context(1), preference_EM=torch.zeros(1, 5, dtype=torch.float64))
    for context, marked in ((known, True), (_nothing(1), False)):
        model.zero_grad()
        model(context, normal(1, 4, H)).score_EN.sum().backward()
        assert model.read.weight.grad is not None
        assert bool(model.read.weight.grad[:, H + 1].any()) == marked


def test_gradients_by_finite_differences() -> None:
    model, context = module(config=replace(CONFIG, width=4, heads=2)), _context(2, 3)
    context = replace(context, mask_EM=torch.tensor([[True, True, False], [True] * 3]))

    def both(embedding_EMH: Tensor, preference_EM: Tensor, target_ENH: Tensor) -> tuple[Tensor, Tensor]:
        shown = replace(context, embedding_EMH=embedding_EMH, preference_EM=preference_EM)
        predicted = model(shown, target_ENH)
        return predicted.score_EN, predicted.log_std_EN

    inputs = (context.embedding_EMH, context.preference_EM, normal(2, 2, H, seed=9))
    assert torch.autograd.gradcheck(both, tuple(tensor.requires_grad_() for tensor in inputs))


def test_embeddings_are_seen_relative_to_the_training_ones() -> None:
    model, target_ENH, context = module(), normal(3, 4, H), _context()
    wanted = _said(model, context, target_ENH)
    model.standardise(torch.tensor([[3.0] * H, [7.0] * H], dtype=torch.float64))
    moved = replace(context, embedding_EMH=context.embedding_EMH * 2 + 5)
    torch.testing.assert_close(_said(model, moved, target_ENH * 2 + 5), wanted, rtol=0, atol=1e-12)
    model.standardise(torch.full((3, H), 2.0, dtype=torch.float64))
    assert bool(_said(model, context, target_ENH).isfinite().all()), "a dimension that never varies"


def test_a_saved_module_says_the_same_bit_for_bit(tmp_path: Path) -> None:
    model, context, target_ENH = module().float(), _context(), normal(3, 4, H).float()
    context = replace(
        context, embedding_EMH=context.embedding_EMH.float(), preference_EM=context.preference_EM.float()
    )
    model.standardise(normal(9, H).float() * 3 + 1)
    group_preference.save_group_preference(model, tmp_path / "group")
    again = group_preference.load_group_preference(tmp_path / "group")
    assert again.config == CONFIG
    assert torch.equal(_said(again, context, target_ENH), _said(model, context, target_ENH))
    assert sorted(path.name for path in (tmp_path / "group").iterdir()) == [
        "model.safetensors",
        "plaudit_group.json",
    ]
    facts = json.loads((tmp_path / "group" / "plaudit_group.json").read_text())
    for spoilt in ({**facts, "width": 32}, {"embedding": 6, "colour": 1}, [1]):
        (tmp_path / "group" / "plaudit_group.json").write_text(json.dumps(spoilt))
        with pytest.raises(UserError, match=r"no group preference module|not an object"):
            group_preference.load_group_preference(tmp_path / "group")
    with pytest.raises(UserError, match="the file cannot be read"):
        group_preference.load_group_preference(tmp_path)


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="4 heads do not divide a width of 30"):
        replace(CONFIG, width=30)
    with pytest.raises(UserError, match="layers must be at least 1"):
        replace(CONFIG, layers=0)


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_an_embedding_is_the_mean_of_the_answers_states(tmp_path: Path, layout: Layout) -> None:
    batch = batch_of(examples())
    model = Policy(build("llama"))
    model.use_layout(layout)
    found_NH = group_preference.completion_embeddings(model, batch)
    with model.as_plain_model() as plain, torch.no_grad():
        for n, p in enumerate(batch.group_N.tolist()):
            prompt = batch.prompt_PL[p, : int(batch.prompt_length_P[p])]
            answer = batch.completion_NT[n, : int(batch.length_N[n])]
            state_SH = plain.model(input_ids=torch.cat((prompt, answer))[None]).last_hidden_state[0]
            torch.testing.assert_close(found_NH[n], state_SH[len(prompt) :].mean(0), rtol=0, atol=1e-5)
    assert not found_NH.requires_grad
    assert group_preference.completion_embeddings(fresh(start(tmp_path)), batch).shape == found_NH.shape
    apart_NH = group_preference.centre_by_prompt(found_NH, batch.group_N)
    assert float(apart_NH[3].abs().max()) == 0.0, "an only answer has nothing to be compared with"
    torch.testing.assert_close(apart_NH[:3], found_NH[:3] - found_NH[:3].mean(0))
