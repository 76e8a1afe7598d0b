"""What a step of a preference run minimises: the paper's sum, written out from plain passes; float64."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.tokens.preferences import PairLabel, RankingLabel, RatingLabel
from tests.methods.preference.formulas import DELTA, RANKED, SINGLE, SORTED, pair_sum, shift, sorted_sum
from tests.methods.preference.pieces import (
    THUMBS,
    Learnt,
    Scene,
    learnt,
    plain,
    plain_pairs,
    reference_point,
    rows_saying,
    same,
    same_gradients,
    scene,
    side_of,
)


def ranking_sum(one: Scene, policy: PreTrainedModel) -> Tensor:
    """Each row as a whole; of a pair whose label is no certainty what is to be expected."""
    total = torch.zeros((), dtype=torch.float64)
    for row in one.rows:
        sides = [side_of(one, policy, row.prompt, answer) for answer in row.example.completions]
        said = row.judgement
        if isinstance(said, RankingLabel):
            orders = [(1.0, said.ranks)]
        else:
            orders = [(said.probability, (1.0, 2.0)), (1 - said.probability, (2.0, 1.0))]
        for chance, ranks in orders:
            total = total + chance * RANKED[one.name](sides, ranks)
    return total


def single_mean(one: Scene, policy: PreTrainedModel) -> Tensor:
    """Each answer, called good or bad, by itself."""
    z0 = reference_point(one, policy) if one.name == "kto" else 0.0
    losses: list[Tensor] = []
    for row in one.rows:
        said = row.judgement
        labels = (said.score,) if isinstance(said, RatingLabel) else (said.probability, 1 - said.probability)
        for answer, label in zip(row.example.completions, labels, strict=True):
            delta = side_of(one, policy, row.prompt, answer).ratio_T.sum()
            gain = 0.1 * delta - DELTA if one.name == "bco" else 0.1 * (delta - z0)
            losses.append(SINGLE[one.name](gain, label))
    return torch.stack(losses).mean()


def by_hand(one: Scene, *, ties: bool = True) -> tuple[float, dict[str, Tensor]]:
    policy = plain()
    if one.name in THUMBS:
        loss = single_mean(one, policy)
    elif one.batches.row.ranking_loss is not None:
        loss = ranking_sum(one, policy) / len(one.rows)
    else:
        pairs = plain_pairs(one, policy, ties=ties)
        loss = (sorted_sum if one.name in SORTED else pair_sum)(one.name, pairs) / len(one.rows)
    loss.backward()
    return loss.item(), {
        f"model.{name}": p.grad for name, p in policy.named_parameters() if p.grad is not None
    }


def as_by_hand(one: Scene, found: Learnt, *, ties: bool = True) -> None:
    loss, grads = by_hand(one, ties=ties)
    assert found[0] == pytest.approx(loss, rel=1e-10)
    assert found[2]["loss"] == pytest.approx(loss, rel=1e-10)
    same_gradients(found[1], grads)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_a_step_is_the_papers_sum_over_the_batch_however_it_is_divided(device, name):
    """On a GPU too it is compared with plain passes on the CPU."""
    one = scene(name, device=device)
    (whole,) = one.pieces()
    wanted = learnt(one, [whole])
    as_by_hand(one, wanted)
    some, ranks, each = one.pieces(30), one.on_two_ranks(), whole.rows()
    assert len(some) > 1
    assert len(each) == len(one.rows)
    for pieces in (some, [piece for mine in ranks for piece in mine], each):
        same(learnt(one, pieces), wanted)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", ["left", "right"])
@pytest.mark.parametrize("name", ["dpo", "wpo", "ld-dpo", "aot", "kto"])
def test_padded_batches_are_packed_ones(device, name, layout):
    one = scene(name, layout=layout, device=device)
    found = learnt(one, one.pieces(60))
    as_by_hand(one, found)
    packed = scene(name, device=device)
    same(found, learnt(packed, packed.pieces(60)))


@pytest.mark.parametrize("name", ["dpo", "slic", "bco-pair", "sppo"])
def test_ties_are_left_out_when_they_are_to_be(name: str) -> None:
    rows = tuple(
        row for row in rows_saying("mixed") if row.judgement != PairLabel(probability=0.5, margin=0.0)
    )
    one = scene(name, rows=rows, ties="drop")
    found = learnt(one, one.pieces())
    as_by_hand(one, found, ties=False)
    assert found[0] != pytest.approx(learnt(scene(name, rows=rows), scene(name, rows=rows).pieces())[0])


@pytest.mark.parametrize("name", SORTED)
def test_sorted_rankings_have_one_gradient_in_any_pieces(device: torch.device, name: str) -> None:
    one = scene(name, rows=rows_saying("strict"), device=device)
    (whole,) = one.pieces()
    wanted = learnt(one, [whole])
    for pieces in (one.pieces(30), whole.rows(), [p for mine in one.on_two_ranks() for p in mine]):
        same(learnt(one, pieces), wanted)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("dpo", "kto", "aot", "bco", "orpo") else [pytest.mark.slow])
        for name in PREFERENCE_ALGORITHMS
    ],
)
def test_a_row_that_does_not_count_adds_exactly_nothing(name: str) -> None:
    one = replace(scene(name), rows=scene(name).rows[:1])
    (mine,), (stand_in,) = one.on_two_ranks()
    assert [row.counts for row in (*mine.judged, *stand_in.judged)] == [True, False]
    wanted = learnt(one, [mine])
    loss, grads, _ = learnt(one, [stand_in])
    assert loss == 0
    assert all(bool((grad == 0).all()) for grad in grads.values())
    for pieces in ([mine, stand_in], [stand_in, mine]):
        same(learnt(one, pieces), wanted)


def close(found: float, wanted: Sequence[float]) -> None:
    assert found == pytest.approx(sum(wanted) / len(wanted), rel=1e-9)


@pytest.mark.parametrize(("name", "beta"), [("dpo", 0.1), ("r-dpo", 0.1), ("simpo", 2.0), ("f-dpo", 0.1)])
def test_figures_of_pairs_are_of_decided_pairs_alone(name: str, beta: float) -> None:
    one = scene(name)
    figures = learnt(one, one.pieces(40))[2]
    pairs = [
        (w, l_) if chance > 0.5 else (l_, w)
        for w, l_, chance, _ in plain_pairs(one, plain())
        if chance != 0.5
    ]
    with torch.no_grad():
        chosen, rejected = ([beta * shift(name, pair[side]).item() for pair in pairs] for side in (0, 1))
    assert len(pairs) == 3 + 2 + 6
    close(figures["reward_chosen"], chosen)
    close(figures["reward_rejected"], rejected)
    close(figures["margin"], [w - l_ for w, l_ in zip(chosen, rejected, strict=True)])
    close(figures["accuracy"], [float(w > l_) for w, l_ in zip(chosen, rejected, strict=True)])
    measured = torch.mean if name == "simpo" else torch.sum
    close(figures["logp_chosen"], [measured(w.logp_T).item() for w, _ in pairs])
    close(figures["logp_rejected"], [measured(l_.logp_T).item() for _, l_ in pairs])


@pytest.mark.parametrize("name", ["kto", "bco"])
def test_figures_of_thumbs_are_of_good_and_bad_answers(name: str) -> None:
    one = scene(name)
    figures = learnt(one, one.pieces(40))[2]
    policy, good, bad = plain(), [], []
    for row in one.rows:
        labels = (
            (row.judgement.score,)
            if isinstance(row.judgement, RatingLabel)
            else (row.judgement.probability, 1 - row.judgement.probability)
        )
        for answer, label in zip(row.example.completions, labels, strict=True):
            reward = 0.1 * side_of(one, policy, row.prompt, answer).ratio_T.sum().item()
            good += [reward] * (label > 0.5)
            bad += [reward] * (label < 0.5)
    assert (len(good), len(bad)) == (4, 3)
    close(figures["reward_chosen"], good)
    close(figures["reward_rejected"], bad)
    close(figures["accuracy"], [float(value > 0) for value in good] + [float(value < 0) for value in bad])
    assert figures["baseline"] == pytest.approx(DELTA if name == "bco" else reference_point(one, policy))


@pytest.mark.parametrize("name", ["dpo", "kto", "aot"])
def test_distance_and_lengths_are_of_answers_each_counted_once(name: str) -> None:
    one = scene(name)
    figures = learnt(one, one.pieces(40))[2]
    answers = [(row.prompt, answer) for row in one.rows for answer in row.example.completions]
    with torch.no_grad():
        ratios = [side_of(one, plain(), *answer).ratio_T for answer in answers]
    close(figures["kl"], [(ratio_T.exp() - 1 - ratio_T).sum().item() for ratio_T in ratios])
    close(figures["length_mean"], [len(answer.ids) for _, answer in answers])
    assert figures["length_max"] == max(len(answer.ids) for _, answer in answers)
    assert (figures["rows"], figures["tokens"]) == (len(one.rows), sum(row.tokens for row in one.rows))


@pytest.mark.parametrize("name", ["slic", "simpo", "cpo", "orpo"])
def test_where_there_is_no_reference_no_distance_from_it_is_reported(name: str) -> None:
    one = scene(name)
    assert "kl" not in learnt(one, one.pieces())[2]


@pytest.mark.parametrize("measure", ["sum", "mean"])
def test_the_point_that_kto_measures_from_is_measured_as_its_answers_are(measure):
    """Otherwise a mean over tokens is compared with a sum."""
    one = scene("kto", {"log_prob": measure})
    strangers = [one.batches.mismatched[row.example] for row in one.rows]
    policy, of = plain(), {"sum": torch.sum, "mean": torch.mean}[measure]
    shifts = [of(side_of(one, policy, s.prompt, s.completions[0]).ratio_T).item() for s in strangers]
    assert one.pieces()[0].context.baseline == pytest.approx(max(0.0, sum(shifts) / len(shifts)), rel=1e-9)
    assert sum(shifts) > 0
