"""Whether what judges keep before people agrees with people as often as promised, with judges good and bad.

python -m benchmarks.routing               1,000 trials of each, under a minute on a core
python -m benchmarks.routing --save        and keeps the table in RESULTS.md

A trial is 2,000 pairs that a judge is asked about, with 300 drawn at random that people labelled. The promise
is broken where what judges keep agrees with people less often than wanted, or would on average.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from benchmarks.table import markdown, save_section
from plaudit.collect.routing import Promise, keep_in_order

TITLE = "Judges before people"
TRIALS, PAIRS, SAMPLE = 1_000, 2_000, 300
Law = Callable[[np.random.Generator, int, float], tuple[np.ndarray, np.ndarray]]
"""From a generator, how many pairs and the wanted agreement to how sure a judge is of each, and how likely it
agrees there with people."""


def _good(rng: np.random.Generator, pairs: int, _: float) -> tuple[np.ndarray, np.ndarray]:
    sure = rng.uniform(0.5, 1, pairs)
    return sure, sure


def _biased(rng: np.random.Generator, pairs: int, _: float) -> tuple[np.ndarray, np.ndarray]:
    # Of three pairs in ten the longer answer is preferred, whatever it says, and very surely.
    sure, is_swayed = rng.uniform(0.5, 1, pairs), rng.random(pairs) < 0.3
    return np.where(is_swayed, 0.95, sure), np.where(is_swayed, 0.5, sure)


def _useless(rng: np.random.Generator, pairs: int, _: float) -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(0.5, 1, pairs), np.full(pairs, 0.5)


def _confidently_wrong(rng: np.random.Generator, pairs: int, _: float) -> tuple[np.ndarray, np.ndarray]:
    # The surer it is, the less often it is right.
    sure = rng.uniform(0.5, 1, pairs)
    return sure, 1.4 - sure


def _just_below(rng: np.random.Generator, pairs: int, wanted: float) -> tuple[np.ndarray, np.ndarray]:
    # The hardest case: whatever it keeps, the promise is broken.
    return rng.uniform(0.5, 1, pairs), np.full(pairs, wanted - 0.005)


JUDGES: dict[str, tuple[Law, ...]] = {
    "good": (_good,),
    "biased": (_biased,),
    "useless": (_useless,),
    "confidently wrong": (_confidently_wrong,),
    "just below what is wanted": (_just_below,),
    "biased, then good": (_biased, _good),
    "useless, then good": (_useless, _good),
    "just below, twice": (_just_below, _just_below),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    trials: int
    broken: int
    """In how many trials what judges keep agrees less often than wanted."""
    broken_by_cut: int
    """The same for the lowest threshold above which the sample agrees as often as wanted, without a test."""
    nothing: int
    """In how many they keep nothing."""
    retained: float
    """The mean share of pairs that they keep."""
    agreement: float
    """The mean agreement of all pairs with the first judge."""


def study(
    laws: tuple[Law, ...],
    promise: Promise,
    *,
    trials: int,
    pairs: int = PAIRS,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Study:
    """Trials of judges of these laws, one after another, people last."""
    rng = np.random.default_rng(seed)
    broken = broken_by_cut = nothing = 0
    retained, agreement = list[float](), list[float]()
    for _ in range(trials):
        sure_JB, probability_JB = zip(*(law(rng, pairs, promise.agreement) for law in laws), strict=True)
        agrees_JB = [rng.random(pairs) < probability_B for probability_B in probability_JB]
        labelled_B = np.zeros(pairs, bool)
        labelled_B[rng.choice(pairs, sample, replace=False)] = True
        found = keep_in_order(sure_JB, agrees_JB, labelled_B, promise)
        count = sum(int(each.retained_B.sum()) for each in found)
        rights = [
            sum(float(own_B[each.retained_B].sum()) for each, own_B in zip(found, of_JB, strict=True))
            for of_JB in (agrees_JB, probability_JB)
        ]
        # Less a rounding error: nothing is kept where the count is 0.
        broken += min(rights) < promise.agreement * count - 1e-9
        nothing += count == 0
        broken_by_cut += _is_broken_by_cut(sure_JB[0], agrees_JB[0], labelled_B, promise.agreement)
        retained.append(count / pairs)
        agreement.append(float(agrees_JB[0].mean()))
    return Study(
        trials=trials,
        broken=broken,
        broken_by_cut=broken_by_cut,
        nothing=nothing,
        retained=float(np.mean(retained)),
        agreement=float(np.mean(agreement)),
    )


def _is_broken_by_cut(
    sure_B: np.ndarray, agrees_B: np.ndarray, labelled_B: np.ndarray, wanted: float
) -> bool:
    order = np.argsort(-sure_B[labelled_B])
    rates = np.cumsum(agrees_B[labelled_B][order]) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(rates >= wanted)
    if not enough.size:
        return False
    retained_B = sure_B >= sure_B[labelled_B][order][enough[-1]]
    return bool(agrees_B[retained_B].mean() < wanted)


def _cells(name: str, promise: Promise, found: Study) -> list[str]:
    high = beta.ppf(0.975, found.broken + 1, found.trials - found.broken)
    return [
        name,
        f"{promise.agreement:.0%}",
        f"{found.agreement:.1%}",
        f"{found.retained:.1%}",
        f"{found.nothing}",
        f"{found.broken} (at most {high:.1%})",
        f"{found.broken_by_cut}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    parser.add_argument("--trials", type=int, default=TRIALS)
    args = parser.parse_args()
    head = ["judges", "wanted", "agrees", "kept", "keep nothing", "broken", "broken without tests"]
    rows = list[list[str]]()
    for name, laws in JUDGES.items():
        for wanted in (0.8, 0.9):
            promise = Promise(agreement=wanted, risk=0.1, judges=len(laws))
            rows.append(_cells(name, promise, study(laws, promise, trials=args.trials)))
    table = markdown(head, rows)
    text = (
        f"`python -m benchmarks.routing --save`: {args.trials:,} trials each of {PAIRS:,} pairs, {SAMPLE} of "
        f"them labelled by people, risk 10 %.\n\n{table}\n"
    )
    print(text)
    if args.save:
        save_section(TITLE, text)


if __name__ == "__main__":
    main()
