"""What an evaluation of a reward model found, its probes for bias included, as frozen records.

Tables, pages and files read them. A share or a mean comes as an `Estimate` with its 95 % interval; whatever
cannot be said is None, and why is said in words beside it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from plaudit.evaluation.stats import Bin, Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    name: str
    """length, list, hedging, flattery, place; ``worth``, first, is the true utility that is held fixed."""
    what: str
    """The answer that the odds are for: "the longer answer"."""
    unit: str
    """The difference that the odds are per: "1.8 times as long", "with it against without"."""
    pairs: int
    model: Odds | None
    """Of the model; None where there is none, as ``words`` says."""
    annotators: Odds | None
    excess: Odds | None
    beyond: Odds | None
    """The same, had the annotators been as sure of worth as the model is: 1 for a model that learnt their
    taste and nothing else. None where the true utility is not known."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatErrors:
    prompts: int
    model: Estimate | None
    """How often the model prefers the right one; None where it scores no such pair."""
    annotators: float | None
    """How often the annotators would; None where their chances are not known."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    pairs: int
    at_equal_worth: bool
    """Whether the true utility was known and held fixed."""
    features: tuple[Probe, ...]
    words: str
    """Why there are none, or what must be known to read them; empty where nothing must."""
    flat_errors: FlatErrors | None = None
    """Of answers made for it, where it is known what is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    name: str
    accuracy: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPeople:
    """The accuracy on people whose labels were learnt from, and on people whose labels were not."""

    parts: tuple[Slice, ...]
    """``learnt from`` and ``held out``, as far as there are pairs of either."""
    gap: Estimate | None
    """The first less the second, by the bootstrap over prompts; None where one of them is missing."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    pairs: int
    gap: float
    """The mean distance |r₁ − r₂| of their rewards: near 0 for a model that sees that they are equal."""
    gap_elsewhere: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    pairs: int
    """How many pairs it rests on; ties are left out."""
    log_loss: float
    """Mean −μ log σ(Δ) − (1 − μ) log σ(−Δ); ln 2 = 0.69 knows nothing."""
    brier: float
    """Mean squared distance from the outcome; ¼ knows nothing."""
    ece_mass: float
    ece_width: float
    by_mass: tuple[Bin, ...]
    """Reliability in bins of as many pairs each, from unsure to sure."""
    by_width: tuple[Bin, ...]
    """Reliability in bins of equal width from ½ to 1; empty bins are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    edges: tuple[float, ...]
    """Of the bins, one more than there are counts; 0 is an edge."""
    counts: tuple[int, ...]
    mean: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNPoint:
    n: int
    kl: float
    """ln n − (n − 1)/n nats: an upper bound of the distance from the sampled policy."""
    truth: Estimate
    proxy: float
    possible: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNCurve:
    answers: int
    prompts: int
    left_out: int
    points: tuple[BestOfNPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    name: str
    score: Estimate
    subsets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    name: str
    overall: float | None
    """The plain mean of the sections; None where some are missing."""
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    source: str
    """``repeated judgements``, ``the pool <name>`` or ``none``."""
    accuracy: Estimate | None
    at_most: float | None
    """The same with that annotator in the majority, which flatters: the ceiling lies between; of a pool whose
    chances are known, it is the ceiling itself."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    prompt: str
    preferred: str
    other: str
    margin: float
    """The reward of the preferred answer less that of the other one: below 0."""
    category: str | None
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEvaluation:
    """Everything found about one reward model on one file.

    Example: ``evaluate_reward(reward, evidence).evaluation.accuracy``
    """

    model: str
    """What tables and pages call it."""
    data: str
    """The file that it was compared with."""
    pairs: int
    """Pairs of answers in the file, ties and unscored ones included."""
    prompts: int
    """Different prompts among them."""
    missing: int
    """Pairs with an answer that the model gives no verdict on; they are in no figure below."""
    equal: int
    """Pairs, ties left out, whose two rewards are the same."""
    seed: int
    """The seed of the bootstrap."""
    bootstrap: int
    """How often the prompts are resampled."""
    accuracy: Estimate | None
    """How often the preferred answer has the higher reward; equal rewards count one half."""
    ceiling: Ceiling
    """What the best of models could reach."""
    ties: Ties | None
    """What becomes of ties; None where there are none."""
    worst: str | None
    """The category of the lowest accuracy: it predicts what a policy makes of the model better than the mean
    does (Frick et al. 2024, arXiv:2410.14872)."""
    categories: tuple[Slice, ...]
    """Accuracy by category, worst first."""
    strengths: tuple[Slice, ...]
    """By strength of the preference, faint first."""
    annotators: tuple[Slice, ...]
    """By who judged, worst first."""
    groups: tuple[Slice, ...]
    """By the group of who judged, worst first."""
    calibration: Calibration | None
    """Of σ(r₁ − r₂)."""
    margins: Margins | None
    """A histogram of margins."""
    probes: Probes
    """What the model prefers beyond what the annotators do."""
    best_of: BestOfNCurve | None
    """Where the truth is known."""
    benchmark: Benchmark | None
    """Where the file is a public benchmark."""
    mistakes: tuple[Mistake, ...]
    """The surest ones, one a prompt."""
    notes: tuple[str, ...]
    """Whatever a reader must know to believe the figures."""
    held_out: HeldOutPeople | None = None
    """By whether the model learnt from the people who judged, where it is known from whom it learnt."""

    def as_json(self) -> dict[str, object]:
        """As an object that JSON can hold."""
        return asdict(self)


def short_names(evaluations: Sequence[RewardEvaluation]) -> tuple[str, ...]:
    """The models' names without the folders that they share, for the heads of columns."""
    parts = [evaluation.model.split("/") for evaluation in evaluations]
    shared = 0
    while len(parts) > 1 and all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return tuple("/".join(part[shared:]) for part in parts)
