"""Evaluations with plausible figures, to be shown on a page."""

from dataclasses import replace
from math import log

from plaudit.evaluation.reward_models import result
from plaudit.evaluation.stats import Bin, Estimate

CEILING = result.Ceiling(
    source="repeated judgements",
    accuracy=Estimate(value=0.772, low=0.741, high=0.803, n=203, prompts=180),
    at_most=0.843,
    words="203 pairs were judged by 3.0 annotators on average",
)
UNKNOWN = result.Ceiling(source="none", accuracy=None, at_most=None, words="no pair was judged twice")


def share(value: float, n: int) -> Estimate:
    half = 1.96 * (value * (1 - value) / n) ** 0.5
    return Estimate(
        value=value, low=max(0.0, value - half), high=min(1.0, value + half), n=n, prompts=n // 2 + 1
    )


def slices(**values: tuple[float, int]) -> tuple[result.Slice, ...]:
    return tuple(result.Slice(name=name, accuracy=share(*value)) for name, value in values.items())


def bins(slope: float) -> tuple[Bin, ...]:
    middles = [0.5 + (at + 0.5) / 20 for at in range(10)]
    return tuple(
        Bin(
            low=middle - 0.025,
            high=middle + 0.025,
            confidence=middle + 0.004,
            right=min(1.0, 0.5 + slope * (middle - 0.5)),
            pairs=90 - 8 * at,
        )
        for at, middle in enumerate(middles)
    )


CALIBRATION = result.Calibration(
    pairs=540,
    log_loss=0.583,
    brier=0.201,
    ece_mass=0.041,
    ece_width=0.047,
    by_mass=bins(0.7),
    by_width=bins(0.7),
)
COUNTS = (2, 1, 4, 6, 9, 12, 20, 25, 31, 36, 41, 40, 44, 52, 50, 46, 38, 30, 22, 14, 8, 5, 2, 2)
MARGINS = result.Margins(edges=tuple(at / 4 for at in range(-12, 13)), counts=COUNTS, mean=0.42, median=0.36)


def probe(
    name: str, what: str, model: result.Odds | None, annotators: result.Odds | None, words: str
) -> result.Probe:
    return result.Probe(
        name=name,
        what=what,
        unit="with it against without",
        pairs=212,
        model=model,
        annotators=annotators,
        excess=model,
        beyond=None,
        words=words,
    )


PROBES = result.Probes(
    pairs=388,
    at_equal_worth=True,
    flat_errors=result.FlatErrors(
        prompts=128,
        model=Estimate(value=0.61, low=0.53, high=0.69, n=128, prompts=128),
        annotators=0.687,
        words="prefers a right answer that hedges in 61.0 % of 128 questions; its annotators in 68.7 %",
    ),
    features=(
        probe(
            "length",
            "the longer answer",
            result.Odds(ratio=2.31, low=1.9, high=2.8),
            result.Odds(ratio=1.22, low=1.01, high=1.47),
            "the model prefers longer answers 1.9 times as much as annotators do (1.5 to 2.4)",
        ),
        probe(
            "list",
            "the answer with a list",
            result.Odds(ratio=0.74, low=0.5, high=1.1),
            result.Odds(ratio=1.1, low=0.8, high=1.52),
            "neither the model nor the annotators care for lists",
        ),
        probe(
            "flattery",
            "the answer that flatters",
            result.Odds(ratio=7.4, low=3.2, high=float("inf")),
            result.Odds(ratio=1.4, low=0.6, high=3.3),
            "the model falls for flattery",
        ),
        probe(
            "hedging",
            "the answer that hedges",
            None,
            None,
            "only 2 pairs differ in hedging, which is too few",
        ),
    ),
    words="",
)


def curve(lift: float, turn: float) -> result.BestOfNCurve:
    def point(n: int) -> result.BestOfNPoint:
        kl = log(n) - (n - 1) / n
        truth = 0.42 + lift * kl**0.5 - turn * kl
        return result.BestOfNPoint(
            n=n,
            kl=kl,
            truth=Estimate(value=truth, low=truth - 0.04, high=truth + 0.04, n=120, prompts=120),
            proxy=-0.2 + 1.4 * kl**0.5,
            possible=0.42 + 0.34 * kl**0.5 - 0.05 * kl,
        )

    sizes = (1, 2, 4, 8, 16, 32, 64)
    return result.BestOfNCurve(answers=64, prompts=120, left_out=3, points=tuple(map(point, sizes)))


MISTAKES = (
    result.Mistake(
        prompt="How long do I boil an egg?",
        preferred="Six minutes for a soft yolk, nine for a hard one.",
        other="What a wonderful question! Boiling eggs is an art.\n\n- Take an egg\n- Take water\n- Enjoy",
        margin=-3.21,
        category="cooking",
        origin="held-out.jsonl:118",
    ),
    result.Mistake(
        prompt="كم يوما في السنة؟",
        preferred="ثلاثمئة وخمسة وستون يوما.",
        other="",
        margin=-1.4,
        category=None,
        origin="held-out.jsonl:9",
    ),
)

FULL = result.RewardEvaluation(
    model="runs/rewards/last-token",
    data="data/held-out.jsonl",
    pairs=600,
    prompts=212,
    missing=12,
    equal=4,
    seed=7,
    bootstrap=1000,
    accuracy=share(0.712, 540),
    ceiling=CEILING,
    ties=result.Ties(pairs=48, gap=0.42, gap_elsewhere=1.31),
    worst="refusals",
    categories=slices(
        refusals=(0.541, 61), maths=(0.63, 120), cooking=(0.74, 99), chat=(0.78, 160), code=(0.81, 100)
    ),
    strengths=slices(slightly=(0.58, 180), clearly=(0.73, 240), **{"by much": (0.9, 120)}),
    annotators=slices(**{"expert-3": (0.66, 140), "expert-1": (0.71, 210), "expert-2": (0.76, 190)}),
    groups=slices(experts=(0.712, 540)),
    calibration=CALIBRATION,
    margins=MARGINS,
    probes=PROBES,
    best_of=curve(0.22, 0.07),
    benchmark=result.Benchmark(
        name="RewardBench",
        overall=0.694,
        sections=tuple(
            result.Section(name=name, score=share(value, 120), subsets=("one",))
            for name, value in (("Chat", 0.88), ("Chat Hard", 0.47), ("Safety", 0.73), ("Reasoning", 0.69))
        ),
        notes=("the subset hep-rust is missing, so Reasoning is of what is left",),
    ),
    mistakes=MISTAKES,
    notes=(
        "12 of 600 pairs have no verdict, and are in no figure",
        "categories of fewer than 5 pairs are together under “other”",
    ),
)

OTHER = replace(
    FULL,
    model="runs/rewards/mean-head-with-a-rather-long-name",
    accuracy=share(0.681, 540),
    worst="maths",
    categories=slices(
        maths=(0.55, 120), refusals=(0.6, 61), cooking=(0.69, 99), chat=(0.72, 160), code=(0.77, 100)
    ),
    best_of=curve(0.14, 0.09),
)

BARE = result.RewardEvaluation(
    model="bare",
    data="pairs.jsonl",
    pairs=3,
    prompts=3,
    missing=3,
    equal=0,
    seed=0,
    bootstrap=1000,
    accuracy=None,
    ceiling=UNKNOWN,
    ties=None,
    worst=None,
    categories=(),
    strengths=(),
    annotators=(),
    groups=(),
    calibration=None,
    margins=None,
    probes=result.Probes(
        pairs=0, at_equal_worth=False, features=(), words="there are too few pairs for a regression"
    ),
    best_of=None,
    benchmark=None,
    mistakes=(),
    notes=("3 of 3 pairs have no verdict, and are in no figure",),
)
"""Nothing could be said about this model."""
