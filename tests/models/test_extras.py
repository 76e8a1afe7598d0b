"""Extras reach the model with their own row, however a batch is laid out, shared or split."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, Example, Extra, Extras, batch_of
from plaudit.tokens.microbatch import Layout, split_examples
from tests.models.pictured import PICTURE, PIXELS, BlindModel, PicturedConfig, pictured

LAYOUTS: list[tuple[Layout, bool]] = [("packed", True), ("packed", False), ("left", True), ("right", True)]


def _answer(*ids: int) -> Completion:
    return Completion(ids=ids, mask=(True,) * len(ids), finished=True)


def _picture(*values: float) -> Extra:
    return Extra(value=torch.tensor([[value] * PIXELS for value in values]), axis="item")


def _rows() -> list[Example]:
    """The first two have equal tokens and other pictures, the last one has none."""
    answers = (_answer(5, 6, 7), _answer(9, 2))
    prompt = (1, PICTURE, 4)
    extras = {"pixel_values": _picture(0.5, 2.0)}
    return [
        Example(prompt=prompt, completions=answers, extras={"pixel_values": _picture(1.0)}, origin="a:1"),
        Example(prompt=prompt, completions=answers, extras={"pixel_values": _picture(-1.0)}, origin="a:2"),
        Example(prompt=(1, PICTURE, 8, PICTURE), completions=(_answer(3, 2),), extras=extras, origin="a:3"),
        Example(prompt=(1, 9), completions=answers, origin="a:4"),
    ]


def _biased(*answers: Completion) -> list[Example]:
    """Two rows of equal tokens and other biases of their prompts."""
    extras: list[Extras] = [
        {"prompt_bias": Extra(value=torch.full((16,), value), axis="prompt")} for value in (0.3, -0.4)
    ]
    return [Example(prompt=(1, 4), completions=answers, extras=one) for one in extras]


def _logps(policy: Policy, rows: list[Example]) -> list[Tensor]:
    batch = batch_of(rows)
    logp_NT = policy.score(batch).logp_NT
    return [logp_T[:length] for logp_T, length in zip(logp_NT, batch.length_N.tolist(), strict=True)]


def _pairs(values: list[Tensor]) -> list[list[Tensor]]:
    return [values[start : start + 2] for start in range(0, len(values), 2)]


def _alone(row: Example) -> list[Tensor]:
    """Each completion by itself, through the model as anybody would call it."""
    policy = Policy(pictured(), layout="right")
    return [logp_T for k in range(len(row.completions)) for logp_T in _logps(policy, [row.select([k])])]


@pytest.mark.parametrize(("layout", "share"), LAYOUTS)
def test_every_layout_shows_each_row_its_own_pictures(layout, share):
    found = _logps(Policy(pictured(), layout=layout, share_prompts=share), _rows())
    expected = [logp_T for row in _rows() for logp_T in _alone(row)]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[0], found[2], atol=1e-2)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.lists(st.sampled_from([-1.0, 0.5, 2.0]), max_size=3), min_size=1, max_size=6),
    ranks=st.integers(1, 3),
    budget=st.integers(8, 40),
)
def test_splitting_over_ranks_and_pieces_keeps_each_rows_pictures(values, ranks, budget):
    rows = [
        Example(
            prompt=(1, *[PICTURE] * len(row)),
            completions=(_answer(5, 6), _answer(7, 2)),
            extras={"pixel_values": _picture(*row)} if row else {},
            origin=str(n),
        )
        for n, row in enumerate(values)
    ]
    policy = Policy(pictured(), layout="packed")
    whole = dict(zip([row.origin for row in rows], _pairs(_logps(policy, rows)), strict=True))
    seen: list[str] = []
    for rank_pieces in split_examples(rows, ranks=ranks, tokens_at_once=budget):
        for piece in rank_pieces:
            trained = [row for row in piece if row.trained_tokens]
            logps = _pairs(_logps(policy, trained)) if trained else []
            for row, found in zip(trained, logps, strict=True):
                seen.append(row.origin)
                torch.testing.assert_close(found, whole[row.origin], rtol=1e-4, atol=1e-5)
    assert sorted(seen) == sorted(whole)


@pytest.mark.parametrize("share", [True, False])
def test_a_bias_of_a_prompt_is_looked_up_in_a_packed_row(share):
    rows = _biased(_answer(5, 6), _answer(7))
    packed = _logps(Policy(pictured(), layout="packed", share_prompts=share), rows)
    padded = _logps(Policy(pictured(), layout="right"), rows)
    torch.testing.assert_close(packed, padded, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(packed[0], packed[2], atol=1e-3)


@pytest.mark.parametrize("share", [True, False])
def test_a_bias_of_a_completion_stays_with_it(share):
    bias_NH = torch.tensor([0.5, -0.5, 1.0])[:, None].expand(3, 16)
    answers = (_answer(5, 6), _answer(5, 6), _answer(8, 9, 2))
    extras: Extras = {"completion_bias": Extra(value=bias_NH, axis="completion")}
    row = Example(prompt=(1, 4), completions=answers, extras=extras)
    policy = Policy(pictured(), layout="packed", share_prompts=share)
    together = _logps(policy, [row])
    apart = [logp_T for k in (2, 0, 1) for logp_T in _logps(policy, [row.select([k])])]
    torch.testing.assert_close(together, [apart[1], apart[2], apart[0]], rtol=1e-4, atol=1e-5)
    # The first token is predicted by the prompt; the next one by a token that the bias is on.
    assert not torch.allclose(together[0][1], together[1][1], atol=1e-3)


def test_a_model_without_such_an_argument_is_refused():
    sound: Extras = {"sound": Extra(value=torch.ones(2), axis="prompt")}
    row = Example(prompt=(1, 4), completions=(_answer(5),), extras=sound)
    with pytest.raises(UserError, match="'sound' beside tokens, and PicturedModel takes no argument"):
        Policy(pictured()).score(batch_of([row]))


def test_a_model_that_knows_no_packing_is_refused_where_it_would_mix_rows():
    model = LlamaForCausalLM(PicturedConfig(**pictured().config.to_diff_dict()))
    model.model = BlindModel(model.config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    rows = _biased(_answer(5, 6))
    assert len(_logps(Policy(model, layout="right"), rows)) == 2
    with pytest.raises(UserError, match="does not read prompt_bias in a packed batch"):
        Policy(model, layout="packed").score(batch_of(rows))
