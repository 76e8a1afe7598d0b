"""How often the preferred answer has the higher reward, what its margin says, and what best-of-n is worth.

No model can be right about more preferences than their majority is. How often that is cannot be read off one
judgement a pair; where pairs were judged repeatedly, two figures hold this ceiling between them. Calibration
asks whether σ(r₁ − r₂) is the chance that the first answer is preferred. For best-of-n the truth is asked
about the answer that the model likes best.
"""

from collections.abc import Callable, Collection, Sequence
from math import comb, log

import numpy as np
from jaxtyping import Float, Int

from plaudit.data.records import Task, Text
from plaudit.errors import UserError
from plaudit.evaluation.reward_models import result
from plaudit.evaluation.reward_models.pairs import (
    PairColumns,
    ScoredPair,
    ScoresByAnswer,
    group_index,
    pair_columns,
)
from plaudit.evaluation.stats import Bin, Estimate, Resampling, bootstrap_gap, bootstrap_mean, sigmoid

MIN_CATEGORY_PAIRS = 10
"""Pairs below which a category is not named as the worst: the smallest is often lowest by chance."""
MAX_STRENGTHS = 8


def pair_accuracy(table: PairColumns) -> Float[np.ndarray, " B"]:
    """1 where the answer that is more likely the better one has the higher reward, ½ where both rewards are
    equal, else 0.

    >>> gap_B, chance_B = np.array([2.0, -1.0, 0.0]), np.array([1.0, 0.9, 1.0])
    >>> pair_accuracy(PairColumns(gap_B=gap_B, p_first_B=chance_B, prompt_B=np.arange(3))).tolist()
    [1.0, 0.0, 0.5]
    """
    return 0.5 + 0.5 * np.sign(table.gap_B) * np.sign(table.p_first_B - 0.5)


def accuracy(pairs: Sequence[ScoredPair], resampling: Resampling) -> Estimate | None:
    """The mean `pair_accuracy` of the pairs with a preference, with its interval; None where all are ties."""
    table = pair_columns(pairs)
    has_preference_B = table.has_preference_B
    if not has_preference_B.any():
        return None
    return bootstrap_mean(
        pair_accuracy(table)[has_preference_B], table.prompt_B[has_preference_B], resampling
    )


def accuracy_slices(
    pairs: Sequence[ScoredPair], name_of: Callable[[ScoredPair], str | None], resampling: Resampling
) -> tuple[result.Slice, ...]:
    """The accuracy on each part of the pairs, worst first; a pair without a name is in none."""
    parts: dict[str, list[ScoredPair]] = {}
    for pair in pairs:
        name = name_of(pair)
        if name is not None:
            parts.setdefault(name, []).append(pair)
    accuracies = ((name, accuracy(part, resampling)) for name, part in parts.items())
    slices_with_accuracy = (
        result.Slice(name=name, accuracy=share) for name, share in accuracies if share is not None
    )
    return tuple(sorted(slices_with_accuracy, key=lambda figures: (figures.accuracy.value, figures.name)))


LEARNT_FROM, HELD_OUT = "learnt from", "held out"


def held_out_people(
    pairs: Sequence[ScoredPair], learnt_from: Collection[str], resampling: Resampling
) -> result.HeldOutPeople:
    """The accuracy on people whose labels the model learnt from, and on others; the unnamed are neither."""
    decided = [pair for pair in pairs if pair.p_first != 0.5 and pair.annotator is not None]
    is_known_B = np.array([pair.annotator in learnt_from for pair in decided], dtype=bool)
    # Always in this order, and not the worst first: the second is what one wants to know.
    slices = {
        part.name: part
        for part in accuracy_slices(
            decided, lambda pair: LEARNT_FROM if pair.annotator in learnt_from else HELD_OUT, resampling
        )
    }
    parts = tuple(slices[name] for name in (LEARNT_FROM, HELD_OUT) if name in slices)
    if len(parts) < 2:
        reason = "no pair names its annotator"
        if parts:
            reason = f"all {len(decided)} pairs are of people {parts[0].name}"
        return result.HeldOutPeople(parts=parts, gap=None, words=f"nothing to compare: {reason}")
    table = pair_columns(decided)
    gap = bootstrap_gap(pair_accuracy(table), table.prompt_B, is_known_B, resampling)
    span = "" if gap.low is None or gap.high is None else f" ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
    words = (
        f"on people whose labels it learnt from it is right {100 * gap.value:+.1f} points{span} more often"
    )
    return result.HeldOutPeople(
        parts=parts, gap=gap, words=f"{words} than on people whose labels it never saw"
    )


def accuracy_by_strength(pairs: Sequence[ScoredPair], resampling: Resampling) -> tuple[result.Slice, ...]:
    """The accuracy by strength of the preference, faint first."""
    decided_pairs = [pair for pair in pairs if pair.p_first != 0.5]
    strengths = sorted({pair.strength for pair in decided_pairs if pair.strength is not None})
    if not strengths:
        return ()
    if len(strengths) <= MAX_STRENGTHS:
        names = {strength: f"{strength:g}" for strength in strengths}
    else:
        # Quarters of the pairs, and not of the range of strengths, which would leave some all but empty.
        cuts = np.quantile(
            [p.strength for p in decided_pairs if p.strength is not None], (0, 0.25, 0.5, 0.75, 1)
        )
        names = {strength: _quarter_label(strength, [float(cut) for cut in cuts]) for strength in strengths}
    order = {name: index for index, name in enumerate(dict.fromkeys(names.values()))}
    by_name = accuracy_slices(
        decided_pairs, lambda pair: None if pair.strength is None else names[pair.strength], resampling
    )
    return tuple(sorted(by_name, key=lambda entry: order[entry.name]))


def worst_category(categories: Sequence[result.Slice]) -> str | None:
    large_categories = [category for category in categories if category.accuracy.n >= MIN_CATEGORY_PAIRS]
    return large_categories[0].name if len(large_categories) > 1 else None


def tie_statistics(pairs: Sequence[ScoredPair]) -> result.Ties | None:
    table = pair_columns(pairs)
    has_preference_B = table.has_preference_B
    if has_preference_B.all():
        return None
    gap = float(np.abs(table.gap_B[~has_preference_B]).mean())
    gap_elsewhere = float(np.abs(table.gap_B[has_preference_B]).mean()) if has_preference_B.any() else None
    return result.Ties(pairs=int((~has_preference_B).sum()), gap=gap, gap_elsewhere=gap_elsewhere)


def _quarter_label(strength: float, cuts: list[float]) -> str:
    quarter = next(quarter for quarter in range(1, 5) if quarter == 4 or strength <= cuts[quarter])
    return f"{cuts[quarter - 1]:g} to {cuts[quarter]:g}"


_PairKey = tuple[Text, tuple[str, str]]


def accuracy_ceiling(pairs: Sequence[ScoredPair], resampling: Resampling) -> result.Ceiling:
    """The accuracy that a model could reach at most, from pairs that several annotators judged.
    The majority of the others against each one: too low, as a majority of few errs. The majority of all
    against each one: too high, as each has a vote in it. Ties are no votes; a person's first vote counts."""
    # A vote alone has no others to be foretold by.
    votes = [cast for cast in _count_votes(pairs).items() if sum(cast[1]) > 1]
    if not votes:
        words = "no pair was judged by two named annotators, so the ceiling is not known"
        return result.Ceiling(source="none", accuracy=None, at_most=None, words=words)
    votes_per_pair = np.array([sum(cast) for _, cast in votes], dtype=float)
    predicted_by_others = np.array([_votes_predicted_by_others(*cast) for _, cast in votes], dtype=float)
    prompts = group_index([prompt for (prompt, _), _ in votes])
    return result.Ceiling(
        source="repeated judgements",
        # Weighted by its votes, it is a share of votes: a pair that ten people judged says more.
        accuracy=bootstrap_mean(
            predicted_by_others / votes_per_pair, prompts, resampling, weight_B=votes_per_pair
        ),
        at_most=float(sum(max(cast) for _, cast in votes) / votes_per_pair.sum()),
        words=f"{len(votes)} pairs were judged by {votes_per_pair.mean():.1f} annotators on average: the "
        "majority of the others against one of them, and of all against one of them",
    )


def _count_votes(pairs: Sequence[ScoredPair]) -> dict[_PairKey, list[int]]:
    """For either answer of each pair, the answers in the order of their words."""
    votes: dict[_PairKey, list[int]] = {}
    counted_votes: set[tuple[_PairKey, str]] = set()
    for pair in pairs:
        if pair.annotator is None or pair.p_first == 0.5:
            continue
        first, second = pair.answers
        # The same two answers in either order are one pair.
        key = (pair.prompt, (min(first, second), max(first, second)))
        if (key, pair.annotator) in counted_votes:
            continue
        counted_votes.add((key, pair.annotator))
        preferred = first if pair.p_first > 0.5 else second
        votes.setdefault(key, [0, 0])[int(preferred != key[1][0])] += 1
    return votes


def _votes_predicted_by_others(a: int, b: int) -> float:
    """How many of a + b votes the majority of the other votes foretells; a draw foretells half."""

    def foretold(same: int, other: int) -> float:
        # Less one: its own vote is taken out of the majority.
        return same * (0.5 + 0.5 * np.sign(same - 1 - other))

    return float(foretold(a, b) + foretold(b, a))


def best_of_n_kl(n: int) -> float:
    """ln n − (n − 1)/n: how far best-of-n is from the policy at most, in nats. Exact where no two answers
    share a reward, an upper bound elsewhere (Beirami et al. 2024, arXiv:2401.01879)."""
    return log(n) - (n - 1) / n


def best_of_n_truth(
    proxy_N: Float[np.ndarray, " N"], truth_N: Float[np.ndarray, " N"], sizes: Sequence[int]
) -> Float[np.ndarray, " S"]:
    """E_n = Σ_{i=n..N} C(i−1, n−1)/C(N, n) · truth_(i), i the place by proxy from the lowest up.
    The mean truth of the best by proxy over all choices of n from N; answers of the same proxy share the mean
    of their truths, as a fair coin between them does. Nakano et al. 2021 (WebGPT), arXiv:2112.09332."""
    order = np.argsort(proxy_N, kind="stable")
    _, level_N = np.unique(proxy_N[order], return_inverse=True)
    mean_truth_of_level = np.bincount(level_N, truth_N[order]) / np.bincount(level_N)
    total = len(proxy_N)
    # C(i−1, n−1)/C(N, n) for i = 1 … N, of exact integers: factorials leave float64 beyond 170.
    weights = ([comb(i, n - 1) / comb(total, n) for i in range(total)] for n in sizes)
    return np.array([np.array(weights_N) @ mean_truth_of_level[level_N] for weights_N in weights])


def best_of_n_curve(
    tasks: Sequence[Task], proxies: ScoresByAnswer, truths: ScoresByAnswer, resampling: Resampling
) -> result.BestOfNCurve:
    """The curve of true utility by n, over the prompts of whose answers all have a verdict."""
    rows = [proxy_and_truth_scores(task, proxies, truths) for task in tasks]
    scored_rows = [row for row in rows if row is not None]
    if not scored_rows:
        raise UserError("best-of-n: there is no prompt on whose every answer there is a verdict")
    # As many as the shortest prompt has: every point of the curve rests on all prompts.
    answers = min(len(proxy_N) for proxy_N, _ in scored_rows)
    sizes = [n for n in (2**power for power in range(32)) if n < answers] + [answers]
    # (chosen by, read off): truth by the proxy, the proxy's own view of it, truth by truth.
    truth_PS, proxy_PS, possible_PS = (
        np.stack([best_of_n_truth(row[by], row[what], sizes) for row in scored_rows])
        for by, what in ((0, 1), (0, 0), (1, 1))
    )
    # Two sets of answers may share a prompt; they are drawn together.
    prompt_P = group_index([task.prompt for task, row in zip(tasks, rows, strict=True) if row is not None])
    return result.BestOfNCurve(
        answers=answers,
        prompts=len(np.unique(prompt_P)),
        left_out=len(rows) - len(scored_rows),
        points=tuple(
            result.BestOfNPoint(
                n=n,
                kl=best_of_n_kl(n),
                truth=bootstrap_mean(truth_PS[:, index], prompt_P, resampling),
                proxy=float(proxy_PS[:, index].mean()),
                possible=float(possible_PS[:, index].mean()),
            )
            for index, n in enumerate(sizes)
        ),
    )


def proxy_and_truth_scores(
    task: Task, proxies: ScoresByAnswer, truths: ScoresByAnswer
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]] | None:
    both = [
        [scores[task.prompt, task.answers, answer] for answer in task.answers] for scores in (proxies, truths)
    ]
    if any(score is None for scores in both for score in scores):
        return None
    return np.array(both[0], dtype=float), np.array(both[1], dtype=float)


RELIABILITY_BINS = 10
BINS_PER_SIDE = 12


def reward_calibration(table: PairColumns, *, bins: int = RELIABILITY_BINS) -> result.Calibration | None:
    """Log-loss, Brier score and expected calibration error of the pairs with a preference; None where all are
    ties.

    With q = σ(r₁ − r₂) and μ the chance that the first is better, both scores are expected over the coin μ:
    −μ log q − (1 − μ) log(1 − q) and μ (1 − q)² + (1 − μ) q². ECE = Σ_b n_b/N |right_b − confidence_b|
    (Guo et al. 2017, arXiv:1706.04599), each pair seen from the answer that the model prefers, so that no
    figure depends on which of the two stands first; with equal rewards both sides are as right.
    """
    has_preference_B = table.has_preference_B
    if not has_preference_B.any():
        return None
    gap_B, p_first_B = table.gap_B[has_preference_B], table.p_first_B[has_preference_B]
    q_B = sigmoid(gap_B)
    confidence_B = sigmoid(np.abs(gap_B))
    correct_B = np.where(gap_B > 0, p_first_B, np.where(gap_B < 0, 1 - p_first_B, 0.5))
    # As many predictions in each bin; those that are equally sure are never parted.
    bin_B = equal_mass_bins(confidence_B, bins=bins)
    parts = ((confidence_B[bin_B == b], correct_B[bin_B == b]) for b in np.unique(bin_B))
    mass_bins = tuple(
        _reliability_bin(sure_B, right_B, sure_B.min(), sure_B.max()) for sure_B, right_B in parts
    )
    width_bins = reliability_by_width(confidence_B, correct_B, bins=bins)
    # −log σ(x) = log(1 + e⁻ˣ), finite at any margin.
    loss_B = p_first_B * np.logaddexp(0, -gap_B) + (1 - p_first_B) * np.logaddexp(0, gap_B)
    return result.Calibration(
        pairs=len(gap_B),
        log_loss=float(loss_B.mean()),
        brier=float((p_first_B * (1 - q_B) ** 2 + (1 - p_first_B) * q_B**2).mean()),
        ece_mass=expected_calibration_error(mass_bins),
        ece_width=expected_calibration_error(width_bins),
        by_mass=mass_bins,
        by_width=width_bins,
    )


def margin_histogram(table: PairColumns) -> result.Margins | None:
    """The histogram of r_preferred − r_other, cut where the furthest hundredth of the pairs begins."""
    has_preference_B = table.has_preference_B
    if not has_preference_B.any():
        return None
    margin_B = table.gap_B[has_preference_B] * np.sign(table.p_first_B[has_preference_B] - 0.5)
    # All margins may be 0, and edges have to rise.
    limit = float(np.quantile(np.abs(margin_B), 0.99)) or 1.0
    edges = np.linspace(-limit, limit, 2 * BINS_PER_SIDE + 1)
    # linspace may miss 0 by rounding, and 0 is what parts right from wrong.
    edges[BINS_PER_SIDE] = 0.0
    # The furthest hundredth counts in the outer bins instead of falling off.
    counts = np.histogram(np.clip(margin_B, -limit, limit), edges)[0]
    median = float(np.median(margin_B))
    return result.Margins(
        edges=tuple(edges.tolist()), counts=tuple(counts.tolist()), mean=float(margin_B.mean()), median=median
    )


def equal_mass_bins(
    confidence_B: Float[np.ndarray, " B"], *, bins: int = RELIABILITY_BINS
) -> Int[np.ndarray, " B"]:
    """The bin of each prediction: as many in each, and what is equally sure is never parted.

    >>> equal_mass_bins(np.array([0.9, 0.5, 0.5, 0.7]), bins=2).tolist()
    [1, 0, 0, 1]
    """
    # Many equal values give equal quantiles: one cut, for a bin between them would be empty.
    cuts = np.unique(np.quantile(confidence_B, np.linspace(0, 1, bins + 1)))
    return np.searchsorted(cuts[1:-1], confidence_B, side="left")


def reliability_by_width(
    confidence_B: Float[np.ndarray, " B"],
    correct_B: Float[np.ndarray, " B"],
    *,
    bins: int = RELIABILITY_BINS,
    lowest: int | float = 0.5,
) -> tuple[Bin, ...]:
    """Bins of equal width from the lowest confidence that there can be to 1; empty ones are left out."""
    edges = np.linspace(lowest, 1, bins + 1)
    bin_B = np.searchsorted(edges[1:-1], confidence_B, side="left")
    return tuple(
        _reliability_bin(confidence_B[bin_B == b], correct_B[bin_B == b], edges[b], edges[b + 1])
        for b in range(bins)
        if (bin_B == b).any()
    )


def expected_calibration_error(bins: tuple[Bin, ...]) -> float:
    """Σ n/N |right − confidence| over bins (Guo et al. 2017, arXiv:1706.04599)."""
    total = sum(this_bin.pairs for this_bin in bins)
    return sum(this_bin.pairs * abs(this_bin.right - this_bin.confidence) for this_bin in bins) / total


def _reliability_bin(
    confidence_B: Float[np.ndarray, " B"], correct_B: Float[np.ndarray, " B"], low: float, high: float
) -> Bin:
    confidence = float(confidence_B.mean())
    right = float(correct_B.mean())
    return Bin(low=float(low), high=float(high), confidence=confidence, right=right, pairs=len(confidence_B))
