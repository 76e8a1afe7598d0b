"""What a step of a reward run minimises: the paper's sums, however the batch is divided; float64."""

import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from plaudit.engine.distributed import Ranks, single_process
from plaudit.engine.metrics import merge_metrics
from plaudit.methods.config import RowSettings
from plaudit.methods.reward_model.config import LossName, RewardSettings
from plaudit.methods.reward_model.losses import select_loss
from plaudit.methods.reward_model.objective import RewardMicrobatch, microbatches_of
from plaudit.models.reward_model import FreshHead, RewardModel
from plaudit.tokens.batch import batch_of
from plaudit.tokens.preferences import JudgedRow, PairLabel, RankingLabel, RatingLabel, StepLabels
from tests.methods.reward_model.pieces import (
    SAID,
    gradients,
    learnt,
    objective_of,
    one_by_one,
    rows_of_kind,
    same_gradients,
)
from tests.models.reward_zoo import CPU, fresh, plain_values, start
from tests.models.zoo import by_loop

LOSSES: list[tuple[str, RewardSettings]] = [
    ("comparisons", RewardSettings(smoothing=0.1, noise=0.1, centring=0.01)),
    ("comparisons", RewardSettings(loss="davidson", centring=0.01)),
    ("comparisons", RewardSettings(loss="rao-kupper")),
    ("comparisons", RewardSettings(loss="binary", positive_weight=2.0)),
    ("rankings", RewardSettings(noise=0.1)),
    ("rankings", RewardSettings(loss="plackett-luce")),
    ("ratings", RewardSettings()),
    ("thumbs", RewardSettings(positive_weight=2.0)),
    ("thumbs", RewardSettings(loss="regression")),
    ("steps", RewardSettings(positive_weight=0.5)),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("start"))


@pytest.fixture
def model(device: torch.device, begun: Path) -> RewardModel:
    return by_loop(fresh(begun, dtype=torch.float64), device).train()


def whole(rows: tuple[JudgedRow, ...]) -> tuple[RewardMicrobatch, ...]:
    (piece,) = microbatches_of(rows, single_process(), 10_000)
    return (piece,)


def two_ranks(rows: tuple[JudgedRow, ...]) -> list[list[RewardMicrobatch]]:
    return [[*microbatches_of(rows, Ranks(rank=rank, world_size=2, device=CPU), 40)] for rank in (0, 1)]


def close(found: float | Tensor, wanted: float | Tensor) -> None:
    one, other = (value.item() if isinstance(value, Tensor) else value for value in (found, wanted))
    assert one == pytest.approx(other, rel=1e-12, abs=1e-12)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize(("kind", "settings"), LOSSES, ids=lambda one: getattr(one, "loss", one))
def test_a_batch_in_any_pieces_has_one_gradient_and_loss(device, begun, kind, settings, pooling):
    model = by_loop(fresh(begun, FreshHead(pooling=pooling), dtype=torch.float64), device).train()
    rows = rows_of_kind(kind)
    objective = objective_of(model, rows, settings)
    loss, wanted, figures = learnt(model, objective, whole(rows))
    close(loss, figures["loss"])
    some = microbatches_of(rows, single_process(), 40)
    ranks = [piece for mine in two_ranks(rows) for piece in mine]
    each = whole(rows)[0].rows()
    assert (len(each), len({len(some), len(each), 1})) == (5, 3)
    for pieces in (some, ranks, each):
        found, grads, said = learnt(model, objective, pieces)
        close(found, loss)
        same_gradients(grads, wanted)
        assert said.keys() == figures.keys()
        for name, value in figures.items():
            close(said[name], value)


@pytest.mark.parametrize("kind", SAID)
def test_a_rank_without_rows_adds_exactly_nothing(model: RewardModel, kind: str) -> None:
    rows = rows_of_kind(kind)
    objective = objective_of(model, rows)
    (mine,), (stand_in,) = two_ranks(rows[:1])
    assert [row.counts for row in (*mine.judged, *stand_in.judged)] == [True, False]
    _, wanted, figures = learnt(model, objective, [mine])
    loss, grads, _ = learnt(model, objective, [stand_in])
    assert loss == 0.0
    assert grads.keys() == wanted.keys()
    assert all(bool((grad == 0).all()) for grad in grads.values())
    for pieces in ([mine, stand_in], [stand_in, mine]):
        _, both, said = learnt(model, objective, pieces)
        assert said == figures
        assert all(torch.equal(both[name], grad) for name, grad in wanted.items())


def pair_losses(reward_K: list[Tensor], ranks: tuple[float, ...], ties: bool) -> list[Tensor]:
    found: list[Tensor] = []
    for one, other in combinations(range(len(ranks)), 2):
        gap = reward_K[one] - reward_K[other]
        if ranks[one] == ranks[other]:
            found += [-0.5 * (logsigmoid(gap) + logsigmoid(-gap))] if ties else []
        else:
            found.append(-logsigmoid(gap if ranks[one] < ranks[other] else -gap))
    return found


@pytest.mark.parametrize("ties", ["soft", "drop"])
def test_a_ranking_is_the_mean_of_its_pairs_each_from_passes_of_its_own(model, ties):
    """And one pass of each answer gives the same, so that no answer is computed once a pair."""
    rows = rows_of_kind("rankings")
    objective = objective_of(model, rows, read=RowSettings(ties=ties))
    loss, found, figures = learnt(model, objective, whole(rows))
    model.zero_grad(set_to_none=True)
    total, right, decided = torch.zeros((), dtype=torch.float64), 0, 0
    for row in rows:
        assert isinstance(row.judgement, RankingLabel)
        rewards = one_by_one(model, row)
        pairs = pair_losses(rewards, row.judgement.ranks, ties == "soft")
        total = total + (sum(pairs) / len(pairs) if pairs else 0.0)
        for one, other in combinations(range(len(rewards)), 2):
            if row.judgement.ranks[one] != row.judgement.ranks[other]:
                ahead = bool(rewards[one] > rewards[other])
                right, decided = (
                    right + (ahead == (row.judgement.ranks[one] < row.judgement.ranks[other])),
                    decided + 1,
                )
    (total / len(rows)).backward()
    close(loss, total / len(rows))
    same_gradients(found, gradients(model))
    close(figures["accuracy"], right / decided)


@pytest.mark.parametrize("settings", [RewardSettings(), RewardSettings(smoothing=0.1, noise=0.2)])
def test_rankings_of_two_are_comparisons(model: RewardModel, settings: RewardSettings) -> None:
    pairs = tuple(
        replace(row, judgement=PairLabel(probability=1.0, margin=0.0)) for row in rows_of_kind("comparisons")
    )
    ranked = tuple(replace(row, judgement=RankingLabel(ranks=(1.0, 2.0))) for row in pairs)
    loss, wanted, figures = learnt(model, objective_of(model, pairs, settings), whole(pairs))
    found, grads, said = learnt(model, objective_of(model, ranked, settings), whole(ranked))
    close(found, loss)
    same_gradients(grads, wanted)
    assert said == pytest.approx(figures, rel=1e-12)


def test_comparisons_are_bradley_terry_with_soft_labels_and_margins(model: RewardModel) -> None:
    rows = rows_of_kind("comparisons")
    loss, found, figures = learnt(model, objective_of(model, rows), whole(rows))
    model.zero_grad(set_to_none=True)
    losses: list[Tensor] = []
    for row in rows:
        assert isinstance(row.judgement, PairLabel)
        first, second = one_by_one(model, row)
        chance, side = (
            row.judgement.probability,
            float(row.judgement.probability > 0.5) - float(row.judgement.probability < 0.5),
        )
        gap = first - second - side * row.judgement.margin
        losses.append(-chance * logsigmoid(gap) - (1 - chance) * logsigmoid(-gap))
    mean = torch.stack(losses).mean()
    mean.backward()
    close(loss, mean)
    same_gradients(found, gradients(model))
    assert figures["rows"] == 5


"""Settings of comparisons and the formula that a run names."""


@pytest.mark.parametrize("loss", ["bradley-terry", "davidson", "rao-kupper", "binary"])
def test_which_answer_is_named_first_makes_no_difference(model: RewardModel, loss: LossName) -> None:
    """So a margin belongs to the better answer also where that is the second one."""
    rows = rows_of_kind("comparisons")
    turned: list[JudgedRow] = []
    for row in rows:
        assert isinstance(row.judgement, PairLabel)
        example = replace(row.example, completions=row.example.completions[::-1])
        said = replace(row.judgement, probability=1 - row.judgement.probability)
        turned.append(replace(row, example=example, judgement=said))
    objective = objective_of(model, rows, RewardSettings(loss=loss))
    one, wanted, figures = learnt(model, objective, whole(rows))
    other, found, said = learnt(model, objective, whole(tuple(turned)))
    close(other, one)
    same_gradients(found, wanted)
    assert said == pytest.approx(figures, rel=1e-12)


NAMED = [
    (RewardSettings(), "−log σ(r₁ − r₂ − margin)"),
    (RewardSettings(margin="none"), "−log σ(r₁ − r₂)"),
    (RewardSettings(noise=0.2), "−log P, P = 0.8 σ(r₁ − r₂ − margin) + 0.1"),
    (RewardSettings(smoothing=0.1), "−0.9 log P − 0.1 log(1 − P), P = σ(r₁ − r₂ − margin)"),
    (
        RewardSettings(smoothing=0.1, noise=0.2, centring=0.01),
        "−0.9 log P − 0.1 log(1 − P) + 0.01 (r₁ + r₂)², P = 0.8 σ(r₁ − r₂ − margin) + 0.1",
    ),
]
"""Settings of comparisons and the formula that a run names."""


def as_said(words: str, first: float, second: float, margin: float) -> float:
    """A noted formula, computed as it is written."""
    formula, _, chance = words.partition(", P = ")

    def value(words: str, **known: float) -> float:
        words = words.replace("−", "-").replace("²", "**2").replace("r₁", "one").replace("r₂", "other")
        words = re.sub(r"log (σ\([^)]*\)|P)", r"log(\1)", words)
        words = re.sub(r"([\d.]+) (?=log|σ|\()", r"\1 * ", words)
        names = {"log": math.log, "σ": lambda x: 1 / (1 + math.exp(-x)), "margin": margin}
        return eval(words, {"one": first, "other": second, **names, **known})

    return value(formula, P=value(chance) if chance else 0.0)


@pytest.mark.parametrize(("settings", "formula"), NAMED)
def test_what_a_run_names_is_what_it_minimises(model, settings, formula):
    margin = 0.0 if settings.margin == "none" else 0.25
    judgement = PairLabel(probability=1.0, margin=margin)
    rows = tuple(replace(row, judgement=judgement) for row in rows_of_kind("comparisons"))
    sentence = select_loss(settings, rows, RowSettings()).sentence
    assert sentence == f"the rows are comparisons, so the loss is bradley-terry: {formula}"
    both = ([reward.item() for reward in one_by_one(model, row)] for row in rows)
    wanted = [as_said(formula, first, second, margin) for first, second in both]
    close(learnt(model, objective_of(model, rows, settings), whole(rows))[0], sum(wanted) / len(wanted))


@pytest.mark.parametrize("loss", ["davidson", "rao-kupper"])
@pytest.mark.parametrize("share", [0.0, 1e-14])
def test_where_nobody_ever_ties_three_ways_are_two(model: RewardModel, loss: LossName, share: float) -> None:
    rows = tuple(
        replace(row, judgement=PairLabel(probability=0.8, margin=0.0)) for row in rows_of_kind("comparisons")
    )
    wanted, grads, _ = learnt(model, objective_of(model, rows), whole(rows))
    settings = RewardSettings(loss=loss, tie_probability=share)
    found, own, _ = learnt(model, objective_of(model, rows, settings), whole(rows))
    assert found == pytest.approx(wanted, rel=1e-12)
    same_gradients(own, grads)


@pytest.mark.parametrize("loss", ["davidson", "rao-kupper"])
def test_equal_rewards_tie_as_often_as_the_setting_says(begun: Path, loss: LossName) -> None:
    model = fresh(begun, FreshHead(std=0), dtype=torch.float64)
    rows = rows_of_kind("comparisons")
    objective = objective_of(model, rows, RewardSettings(loss=loss, tie_probability=0.4))
    tie, win = (
        learnt(
            model, objective, whole((replace(rows[0], judgement=PairLabel(probability=chance, margin=0.0)),))
        )[0]
        for chance in (0.5, 1.0)
    )
    close(math.exp(-tie), 0.4)
    close(math.exp(-win), 0.3)


@pytest.mark.parametrize(("kind", "decided"), [("comparisons", 4), ("rankings", 1 + 2 + 6 + 3)])
def test_equal_rewards_are_right_half_the_time_and_ties_do_not_count(begun, kind, decided):
    model = fresh(begun, FreshHead(std=0), dtype=torch.float64)
    rows = rows_of_kind(kind)
    (piece,) = whole(rows)
    metrics = merge_metrics(objective_of(model, rows)(piece).metrics)
    (accuracy,) = [one for one in metrics if one.name == "accuracy"]
    assert (accuracy.value, accuracy.weight) == (0.5, decided)


def test_steps_are_read_where_they_end_and_each_counts_once(model: RewardModel) -> None:
    rows = rows_of_kind("steps")
    loss, found, figures = learnt(
        model, objective_of(model, rows, RewardSettings(positive_weight=3.0)), whole(rows)
    )
    model.zero_grad(set_to_none=True)
    losses: list[Tensor] = []
    sides: list[bool] = []
    for row in rows:
        assert isinstance(row.judgement, StepLabels)
        batch = batch_of([row.example]).to(model.device)
        (plain_T,) = plain_values(model, batch)
        value_T = model.values(batch)[0]
        torch.testing.assert_close(value_T.detach(), plain_T, rtol=0, atol=1e-10)
        for end, label in zip(row.judgement.ends, row.judgement.labels, strict=True):
            score = value_T[end]
            losses.append(-3.0 * label * logsigmoid(score) - (1 - label) * logsigmoid(-score))
            sides += [] if label == 0.5 else [bool(score > 0) == (label > 0.5)]
    mean = torch.stack(losses).mean()
    mean.backward()
    assert (len(losses), len(sides)) == (11, 10)
    close(loss, mean)
    close(figures["accuracy"], sum(sides) / len(sides))
    same_gradients(found, gradients(model))


def test_points_are_met_and_thumbs_are_odds(model: RewardModel) -> None:
    for kind in ("ratings", "thumbs"):
        rows = rows_of_kind(kind)
        loss, found, figures = learnt(model, objective_of(model, rows), whole(rows))
        model.zero_grad(set_to_none=True)
        reward_N = torch.stack([one_by_one(model, row)[0] for row in rows])
        score_N = reward_N.new_tensor(
            [row.judgement.score for row in rows if isinstance(row.judgement, RatingLabel)]
        )
        odds = torch.nn.functional.binary_cross_entropy_with_logits(reward_N, score_N)
        mean = (reward_N - score_N).square().mean() if kind == "ratings" else odds
        mean.backward()
        close(loss, mean)
        same_gradients(found, gradients(model))
        close(figures["reward_mean"], reward_N.mean())
        if kind == "ratings":
            close(figures["mae"], (reward_N - score_N).abs().mean())
