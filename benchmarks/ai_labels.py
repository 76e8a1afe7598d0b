"""Labels of judges on the embedded world, where the truth is known: tables for docs/ai-feedback.md.

    python -m benchmarks.ai_labels --out lab                 # every study; begun again, it goes on
    python -m benchmarks.ai_labels --out lab --only rlaif    # one of them

Each prints a Markdown table and writes it into the folder. Minds are asked in this process, by the questions
that any model would be sent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from benchmarks.intervals import numbers, shares
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.judging import BothWays, Task, Verdict, first_probability, probable_verdict, to_comparison
from plaudit.data.records import Comparison, plain_text
from plaudit.data.write import write_records
from plaudit.evaluation.policies.judge_card import JudgeCard, judge_card
from plaudit.evaluation.policies.win_rate import JudgedPair, first_shown_readings
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.stats import Estimate, Resampling
from plaudit.feedback.judges.wording import ShownPair, pair_question, wording_named
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.exam import exam_prompts
from plaudit.lab.world.gold import utility
from plaudit.lab.world.making import answer_tasks, model_answer_tasks
from plaudit.lab.world.minds import INDIFFERENCE, Mind, ParsedQuestion, read_question
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.verdicts import make_comparisons
from plaudit.methods.config import SampleSettings
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.rewards.load import load_reward
from plaudit.rollouts.sampler import SamplingSettings

SHOWN = 300
"""Demonstrations that the model whose answers are compared has seen, once."""
LABELS = 2000
"""Labels that a reward model learns from."""
TESTED = 2000
"""Pairs of the test split whose better answer is known."""
CHOICES, PROMPTS = 8, 400
"""Answers of which a reward chooses one, and to how many prompts."""
SEEDS = 5
"""Runs of each kind."""

SIZES: Mapping[int, tuple[int, int]] = {300: (400, 1000), 1000: (200, 400)}
"""Pairs of a card: of how many minds, each of another seed, it is made, and by how many draws."""
RIGHT, PLACED, LENGTHY, TOO_SURE = 0.8, 0.25, 0.3, 2.5
"""What is set of them: accuracy, place, length, sureness."""
MINDS = 100
"""Minds, each of another seed, of which means are taken."""
PLACES = (0.0, 0.25, 0.5)
"""Likings for the first place that are to be found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterMind:
    """A mind that is asked for a letter and its chances in this process, by the question of any model.

    Example: ``BothWays(judge=LetterMind(mind=Mind(accuracy=0.7)))``
    """

    mind: Mind
    """Who judges."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.mind.name

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """Its verdict on each pair, as it is shown."""
        del seed
        return [
            probable_verdict(self.mind.first_probability(parsed_question(task)), annotator=self.name)
            for task in tasks
        ]


@lru_cache(maxsize=50_000)
def parsed_question(task: Task) -> ParsedQuestion:
    """The question about a pair as a mind reads it; many minds are asked the same."""
    first, second = map(plain_text, task.answers)
    pair = ShownPair(prompt=task.prompt, first=first, second=second)
    return read_question(pair_question(wording_named("letter"), pair).text("0"))


@cache
def pairs_of_truth(n: int) -> Sequence[ScoredPair]:
    """Pairs of the corpus of which the better answer is known, in an order that says nothing."""
    found = list[ScoredPair]()
    for task in answer_tasks(2 * n, answers=2, split="train", seed=4):
        first, second = map(plain_text, task.answers)
        if abs(gap := true_gap(task)) >= INDIFFERENCE:
            found.append(
                ScoredPair(
                    prompt=task.prompt,
                    answers=(first, second),
                    rewards=(None, None),
                    p_first=float(gap > 0),
                    annotator="truth",
                )
            )
    return found[:n]


def coverage(lab: Lab) -> Table:
    """How often the 95 % intervals of a card hold what was set."""
    del lab
    yield "", *FIGURES
    kinds = {
        "calibrated": Mind(accuracy=RIGHT, place=PLACED),
        f"sureness {TOO_SURE}": Mind(accuracy=RIGHT, place=PLACED, sureness=TOO_SURE),
        f"calibrated, length {LENGTHY}": Mind(accuracy=RIGHT, place=PLACED, length=LENGTHY),
    }
    for n, (minds, draws) in SIZES.items():
        for name, mind in kinds.items():
            # Of length the smaller size says enough.
            if mind.length and n > min(SIZES):
                continue
            true = true_figures(mind, pairs_of_truth(n))
            held = dict.fromkeys(FIGURES, 0)
            for seed in range(minds):
                judge = BothWays(judge=LetterMind(mind=replace(mind, seed=seed)))
                card, _ = judge_card(judge, pairs_of_truth(n), Resampling(times=draws, seed=seed))
                for figure, estimate in FIGURES.items():
                    held[figure] += is_held(estimate(card), true.get(figure))
            shown = (f"{held[figure] / minds:.1%}" if figure in true else "–" for figure in FIGURES)
            yield f"{n:,} pairs, {name}", *shown


FIGURES: Mapping[str, Callable[[JudgeCard], Estimate | None]] = {
    "agrees where it decides": lambda card: card.decided,
    "both orders agree": lambda card: card.consistency,
    "shown first preferred": lambda card: card.first_shown,
    "longer preferred": lambda card: card.longer,
    "calibration error": lambda card: card.reliability and card.reliability.ece,
}
"""Figures of a card of which the truth is known, by the words of the table."""


def true_figures(mind: Mind, pairs: Sequence[ScoredPair]) -> dict[str, float]:
    """What a card of endlessly many readings would have.

    With a liking for length the calibration error has no simple form.
    """
    longer = statistics.fmean(
        (len(pair.answers[0].split()) > len(pair.answers[1].split())) == (pair.p_first > 0.5)
        for pair in pairs
        if len(pair.answers[0].split()) != len(pair.answers[1].split())
    )
    # Of pairs that the place does not decide, the share that length decides.
    by_length = mind.length / (1 - mind.place)
    true = {
        "both orders agree": 1 - mind.place,
        "shown first preferred": 0.5 + mind.place / 2,
        "longer preferred": by_length
        + (1 - by_length) * (mind.accuracy * longer + (1 - mind.accuracy) * (1 - longer)),
    }
    if not mind.length:
        true["agrees where it decides"] = mind.accuracy
        true["calibration error"] = (1 - mind.place) * mind.calibration_error()
    return true


def is_held(estimate: Estimate | None, value: float | None) -> bool:
    """Whether an interval holds a value."""
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return value is not None and estimate.low <= value <= estimate.high


def places(lab: Lab) -> Table:
    """A judge that likes the first answer, asked in one order and in both."""
    del lab
    yield (
        "place that is set",
        "one order: right",
        "both orders: right",
        "wrong",
        "ties",
        "right where they decide",
        "shown first preferred",
        "by what is set",
    )
    pairs = pairs_of_truth(max(SIZES))
    tasks = [Task(prompt=pair.prompt, answers=pair.answers, ended=(True, True)) for pair in pairs]
    for place in PLACES:
        rows = [
            _place_row(Mind(accuracy=RIGHT, place=place, seed=seed), tasks, pairs) for seed in range(MINDS)
        ]
        yield f"{place:g}", *map(shares, zip(*rows, strict=True)), f"{0.5 + place / 2:.1%}"


def _place_row(mind: Mind, tasks: Sequence[Task], pairs: Sequence[ScoredPair]) -> tuple[float, ...]:
    """The shares of `places` of one mind."""
    single = LetterMind(mind=mind)
    forward = sides(single.verdicts(tasks, 0), pairs)
    found = BothWays(judge=single).verdicts(tasks, 0)
    both = sides(found, pairs)
    right, wrong, tie = (both.count(sign) / len(both) for sign in (1, -1, 0))
    duels = [
        JudgedPair(
            prompt="", mine="", theirs="", forward=verdict.orders.forward, backward=verdict.orders.backward
        )
        for verdict in found
        if verdict and verdict.orders
    ]
    first = statistics.fmean(is_first for _, is_first in first_shown_readings(duels))
    return forward.count(1) / len(forward), right, wrong, tie, right / (right + wrong), first


def sides(found: Sequence[Verdict | None], pairs: Sequence[ScoredPair]) -> list[int]:
    """1 for the truly better answer, −1 for the other, 0 for a tie."""
    signs = list[int]()
    for verdict, pair in zip(found, pairs, strict=True):
        assert verdict is not None
        ahead = first_probability(verdict) - 0.5
        signs.append(0 if ahead == 0 else 1 if (ahead > 0) == (pair.p_first > 0.5) else -1)
    return signs


Labels = Callable[[Sequence[Task], Mind, int], list[Comparison]]
"""From pairs, a mind as often right as the crowd and a seed to rows."""


def by_crowd(tasks: Sequence[Task], mind: Mind, seed: int) -> list[Comparison]:
    """People."""
    del mind
    return make_comparisons(annotator_pool("crowd"), tasks, seed)


def in_both_orders(tasks: Sequence[Task], mind: Mind, seed: int) -> list[Comparison]:
    """The mean of both orders, as a chance."""
    del seed
    found = BothWays(judge=LetterMind(mind=mind)).verdicts(tasks, 0)
    return [to_comparison(task, verdict) for task, verdict in zip(tasks, found, strict=True) if verdict]


def made_hard(rows: Sequence[Comparison]) -> list[Comparison]:
    """The same rows with the side alone; a tie stays one."""
    return [row if row.probability == 0.5 else replace(row, probability=None) for row in rows]


SOFT = "a mind, both orders, soft"
"""The labels that all others are compared with."""
LABELLED: Mapping[str, Labels] = {
    "people (the crowd)": by_crowd,
    SOFT: in_both_orders,
    "the same, made hard": lambda tasks, mind, seed: made_hard(in_both_orders(tasks, mind, seed)),
}
"""Who labels, by the words of the table."""
COMPARED = tuple((SOFT, other) for other in LABELLED if other != SOFT)
"""Whose figures are taken from whose, run by run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What a reward model of some labels is worth.

    Example: ``Learnt(right=0.86, accuracy=0.9, loss=0.3, crowd_loss=0.4, best=0.8)``
    """

    right: float
    """Labels that prefer the truly better answer; a tie counts one half."""
    accuracy: float
    """Held-out pairs on which the truly better answer is scored higher."""
    loss: float
    """Mean −ln of the chance given to the truly better answer."""
    crowd_loss: float
    """Mean −ln of the chance given to what somebody of the crowd would prefer, over the crowd."""
    best: float
    """The true worth of the answer chosen of several."""


def rlaif(lab: Lab) -> Table:
    """A reward model of labels by people, and by a mind that is as often right."""
    yield (
        "who labels",
        "labels that are right",
        "accuracy on held-out truth",
        "log-loss of the truth",
        "log-loss of the crowd's chances",
        f"worth of the best of {CHOICES}",
    )
    found = {name: [learnt(lab, name, seed) for seed in range(lab.seeds or SEEDS)] for name in LABELLED}
    for name, runs in found.items():
        yield name, *_cells([astuple(run) for run in runs])
    for name, other in COMPARED:
        gaps = [
            tuple(mine - theirs for mine, theirs in zip(astuple(run), astuple(its), strict=True))
            for run, its in zip(found[name], found[other], strict=True)
        ]
        yield f"*{name}* less *{other}*", *_cells(gaps)


def _cells(runs: Sequence[tuple[float, ...]]) -> list[str]:
    right, accuracy, *others = zip(*runs, strict=True)
    return [shares(right), shares(accuracy), *(numbers(values, 3) for values in others)]


def learnt(lab: Lab, name: str, seed: int) -> Learnt:
    """What a reward model of these labels is worth."""
    tasks = compared(lab, LABELS, "train", seed)
    mind = Mind(name="mind", accuracy=crowd_accuracy(tasks), seed=seed)
    rows = LABELLED[name](tasks, mind, seed)
    number = [*LABELLED].index(name)
    data = lab.folder / "data" / f"labels-{number}-{seed}.jsonl"
    write_records(rows, data)
    run = lab.trained(f"labels-{number}-{seed}", data, settings_of(lab, seed))
    reward = load_reward(run, device=lab.device)
    tested = compared(lab, TESTED, "test", 0)
    margins = list[float]()
    for row in reward.scores(tested):
        first, second = row
        assert first is not None
        assert second is not None
        margins.append(first - second)
    gaps = list(map(true_gap, tested))
    truly = [
        margin if gap > 0 else -margin
        for margin, gap in zip(margins, gaps, strict=True)
        if abs(gap) >= INDIFFERENCE
    ]
    return Learnt(
        right=right_share(tasks, rows),
        accuracy=statistics.fmean((margin > 0) + 0.5 * (margin == 0) for margin in truly),
        loss=statistics.fmean(map(log_loss, truly)),
        crowd_loss=statistics.fmean(
            share * log_loss(margin) + (1 - share) * log_loss(-margin)
            for margin, share in zip(margins, map(crowd_probability, tested), strict=True)
        ),
        best=best_worth(lab, run),
    )


def settings_of(lab: Lab, seed: int) -> RewardConfig:
    """A reward model of one member, two epochs and the last step; else as in pipeline/default.yaml."""
    return RewardConfig(
        model=lab.sft_model(SHOWN),
        data=lab.folder,
        out=lab.folder,
        held_out="0",
        learning_rate=1e-3,
        epochs=2.0,
        batch_size=32,
        seed=seed,
        device=lab.device,
        sinks=(),
        save_every=10_000,
        sample=SampleSettings(rows=0),
    )


@cache
def compared(lab: Lab, n: int, split: Split, seed: int) -> Sequence[Task]:
    """Pairs of the fine-tuned model's own answers."""
    return model_answer_tasks(lab.sampler(lab.sft_model(SHOWN)), n, answers=2, split=split, seed=seed)


@cache
def true_gap(task: Task) -> float:
    """How much more the first answer is truly worth than the second."""
    first, second = (utility(task.prompt, plain_text(answer)) for answer in task.answers)
    return first - second


@cache
def crowd_probability(task: Task) -> float:
    """The chance that somebody of the crowd prefers the first answer; a tie counts one half."""
    probabilities = [annotator.win_probabilities(task) for annotator in annotator_pool("crowd")]
    return statistics.fmean(0.5 + (first - second) / 2 for first, second in probabilities)


def crowd_accuracy(tasks: Sequence[Task]) -> float:
    """How often a label of the crowd is right on these pairs: computed, not drawn."""
    return statistics.fmean(
        crowd_probability(task) if true_gap(task) > 0 else 1 - crowd_probability(task)
        for task in tasks
        if abs(true_gap(task)) >= INDIFFERENCE
    )


def right_share(tasks: Sequence[Task], rows: Sequence[Comparison]) -> float:
    """How many labels prefer the truly better answer; a tie counts one half."""
    points = list[float]()
    for task, row in zip(tasks, rows, strict=True):
        if abs(gap := true_gap(task)) >= INDIFFERENCE:
            prefers_first = row.chosen == task.answers[0]
            points.append(0.5 if row.probability == 0.5 else float(prefers_first == (gap > 0)))
    return statistics.fmean(points)


def log_loss(margin: float) -> float:
    """−ln σ(margin)."""
    return math.log1p(math.exp(-abs(margin))) + max(-margin, 0.0)


@cache
def choices(lab: Lab) -> Sequence[Task]:
    """Prompts of the test split with several answers each."""
    prompts = exam_prompts(PROMPTS, split="test")
    sampler = lab.sampler(lab.sft_model(SHOWN))
    answers = sampler.generate_answers(
        [prompt.prompt for prompt in prompts], SamplingSettings(seed=1), n=CHOICES
    )
    return [
        prompt.task([(answer.text, answer.ended) for answer in row])
        for prompt, row in zip(prompts, answers, strict=True)
    ]


def best_worth(lab: Lab, run: Path) -> float:
    """The mean true worth of the answers that a reward likes best."""
    reward = load_reward(run, device=lab.device)
    tasks = choices(lab)
    worths = list[float]()
    for task, row in zip(tasks, reward.scores(tasks), strict=True):
        scores = [-math.inf if score is None else score for score in row]
        place = scores.index(max(scores))
        worths.append(utility(task.prompt, plain_text(task.answers[place]), ended=task.ended[place]))
    return statistics.fmean(worths)


STUDIES: dict[str, Callable[[Lab], Table]] = {"coverage": coverage, "places": places, "rlaif": rlaif}
"""What can be asked for."""


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
