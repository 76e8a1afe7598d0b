"""What is measured of every round's model and teaches nothing: a held-out judge, and its own judgements.

Round 0 is the start. A round's measures lie in ``rounds/N/measured.json``, row by row, so that a loop that
goes on compares the same numbers; its marker is written last, as of every other part.

When a loop has gone too far is said by a rule that noise alone seldom sets off. A model has **fallen** where
it is below the best round so far in such a measure and a sign-flip test of the paired differences, one-sided,
is below 0.05 over the number of comparisons that could be made in the whole loop: measures × rounds × (rounds
+ 1) / 2, every two models. By the union bound a loop in which nothing changes is stopped with chance 0.05 at
most.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plaudit.data.judging import Judge, Verdict, first_probability, outcomes
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.data.transforms import measured_only
from plaudit.engine.distributed import Ranks
from plaudit.engine.run_folder import RunFolder
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.pairs import (
    group_index,
    has_verdict,
    reward_gap,
    score_records,
    scored_pairs,
)
from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean, wilson_interval
from plaudit.files import atomic, exact_json
from plaudit.methods.iterative.config import LoopConfig, LoopSettings
from plaudit.methods.iterative.rounds import drawn_answers, load_prompts, read_answers, round_sampler
from plaudit.rewards.base import Reward
from plaudit.rewards.comparing import compares_pairs, in_both_orders, judge_named
from plaudit.rewards.kinds import FEEDBACK, JudgeSettings
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rewards.registry import resolve_reward
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.prompts import EncodedPrompt
from plaudit.wings import offered

FALSE_STOP = 0.05
"""The highest chance that a loop is stopped in which nothing changes."""
HELD_OUT_JUDGE, PEOPLE_LABELS = "the held-out judge", "agreement with people"
"""What is measured of a round's model: its answers, and its own judgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound:
    number: int
    """The round that has left the model; 0 is the start."""
    model: Path
    folder: Path

    @property
    def values(self) -> Path:
        return self.folder / "measured.json"

    @property
    def answers(self) -> Path:
        return self.folder / "held-out.jsonl"


def is_measured(settings: LoopSettings) -> bool:
    return settings.people is not None or settings.held_out_judge is not None


def measured_round(config: LoopConfig, number: int) -> MeasuredRound:
    folder = config.out / "rounds" / str(number)
    model = folder / "run" / "model" if number else config.model
    return MeasuredRound(number=number, model=model, folder=folder)


def measured_marker(folder: RunFolder, number: int) -> Path:
    return folder.checkpoints / f"round-{number}-measured.json"


def measure_round(
    settings: LoopSettings, config: LoopConfig, folder: RunFolder | None, number: int, ranks: Ranks
) -> tuple[list[Path], Mapping[str, Any]] | None:
    """Measure a round's model; returns the files that must stay as they are, and the figures.
    Every rank must come, and draws its share of answers; the first one alone judges them."""
    this_round = measured_round(config, number)
    if folder is not None:
        atomic.make_folder(this_round.folder)
    by_judge = _held_out_measure(settings, config, this_round, folder, ranks)
    if not ranks.is_first:
        return None
    by_people = [_people_measure(settings, config, this_round)] if settings.people else []
    measures = [*([] if by_judge is None else [by_judge]), *by_people]
    plain = {m.name: {"prompts": [*m.prompts], "values": [*m.values]} for m in measures}
    atomic.write_text(this_round.values, exact_json.dumps(plain) + "\n")
    files = [this_round.values, *([this_round.answers] if settings.held_out_judge else [])]
    histories = [_history(config, name, number) for name in plain]
    assert settings.rounds is not None
    falls = [find_fall(history, rounds=settings.rounds, measures=len(histories)) for history in histories]
    fallen = [fall for fall in falls if fall is not None]
    # Answers are what a loop is for: where both are measured, the held-out judge says which are the best.
    best = best_place(histories[0])
    figures = {"round": number} | _figures(histories)
    figures |= {"best": best, "fallen": [fall.name for fall in fallen]}
    ConsoleSink(quiet=True).note(_sentence(number, histories))
    for fall in fallen:
        ConsoleSink(quiet=True).note(_fall_sentence(fall, number, best, settings.on_fall))
    return files, figures


def _history(config: LoopConfig, name: str, number: int) -> "list[Measure]":
    rounds = (
        exact_json.loads(measured_round(config, n).values.read_bytes())[name] for n in range(number + 1)
    )
    return [
        Measure(name=name, prompts=tuple(plain["prompts"]), values=tuple(plain["values"])) for plain in rounds
    ]


def _people_measure(settings: LoopSettings, config: LoopConfig, this_round: MeasuredRound) -> "Measure":
    """Whether the model's own points order two answers as people do: 1, 0, and ½ for equal points."""
    assert settings.people is not None
    reading = read_records(settings.people, kinds=("comparison",), threshold=config.rows.threshold)
    records, left_out = measured_only(reading.records)
    for note in left_out if this_round.number == 0 else ():
        ConsoleSink(quiet=True).note(f"loop.people: {note}")
    rows = [row for row in records if isinstance(row, Comparison) and row.probability != 0.5]
    if not rows:
        raise UserError(f"loop.people {settings.people}: every comparison is a tie, so nothing is measured")
    with offered("self_judge", of=FEEDBACK)(config.reward, this_round.model, config.device) as judge:
        pairs = scored_pairs(rows, score_records(rows, judge))
    values = [
        float(0.5 + 0.5 * np.sign(reward_gap(pair)) * np.sign(pair.p_first - 0.5))
        if has_verdict(pair)
        else None
        for pair in pairs
    ]
    prompts = group_index([pair.prompt for pair in pairs]).tolist()
    return _checked(Measure(name=PEOPLE_LABELS, prompts=tuple(prompts), values=tuple(values)), "the model")


def _held_out_measure(
    settings: LoopSettings,
    config: LoopConfig,
    this_round: MeasuredRound,
    folder: RunFolder | None,
    ranks: Ranks,
) -> "Measure | None":
    if settings.held_out_judge is None:
        return None
    reward, judge = _held_out_judge(settings.held_out_judge, str(ranks.device))
    prompts = _held_out_prompts(settings, config, folder and folder.path)
    # One seed for all rounds: what differs between two models is then theirs, and less of it chance.
    seed = random.Random(f"{config.seed}/{config.sampling.seed}/held-out").getrandbits(32)
    sampling = replace(config.sampling, seed=seed)
    path = this_round.answers
    with round_sampler(this_round.model, config, ranks, path.parent) as (sampler, tell):
        drawn = list(drawn_answers(path, prompts, sampler, reward, sampling, 1, ranks, tell))
    if not ranks.is_first:
        return None
    values = (
        [answer.score for [answer] in drawn]
        if judge is None
        else _win_probabilities(judge, config, this_round, prompts)
    )
    measure = Measure(name=HELD_OUT_JUDGE, prompts=tuple(range(len(values))), values=tuple(values))
    return _checked(measure, settings.held_out_judge)


def _held_out_judge(word: str, device: str) -> tuple[Reward | None, Judge | None]:
    """A reward that scores answers, or a judge that compares them with the start's."""
    if not compares_pairs(word):
        reward = resolve_reward(word, device=device)
        if not isinstance(reward, PairwiseRanker):
            return reward, None
    return None, in_both_orders(judge_named(word, JudgeSettings(device=device, soft=True)))


def _win_probabilities(
    judge: Judge, config: LoopConfig, this_round: MeasuredRound, prompts: Sequence[EncodedPrompt]
) -> list[float | None]:
    """The chance of each answer to be better than the start's; of the start itself ½."""
    if this_round.number == 0:
        return [0.5] * len(prompts)
    newest, start = (read_answers(measured_round(config, n).answers) for n in (this_round.number, 0))
    tasks = [
        prompt.task(((mine.text, mine.ended), (other.text, other.ended)))
        for prompt, [mine], [other] in zip(prompts, newest, start, strict=True)
    ]
    verdicts = outcomes(judge, tasks, f"{config.seed}/held-out")
    return [first_probability(outcome) if isinstance(outcome, Verdict) else None for outcome in verdicts]


def _held_out_prompts(
    settings: LoopSettings, config: LoopConfig, quarantine: Path | None
) -> tuple[EncodedPrompt, ...]:
    assert settings.held_out_prompts is not None
    encoder = make_encoder(config.model)
    # What fields of the prompts are called says nothing of another file's.
    other = replace(
        config, prompts=settings.held_out_prompts, format=None, columns=(), roles=(), leave_out=()
    )
    prompts, _ = load_prompts(other, encoder, quarantine)
    trained = {prompt.id for prompt in load_prompts(config, encoder, quarantine)[0]}
    shared = [prompt for prompt in prompts if prompt.id in trained]
    if shared:
        raise UserError(
            f"loop.held_out_prompts {settings.held_out_prompts}: {len(shared)} of {len(prompts)} prompts "
            f"are among those of {config.prompts} (the first is {shared[0].origin}), so a round may learn "
            "from them; take others"
        )
    return prompts


def _checked(measure: "Measure", judge: str) -> "Measure":
    if measure.mean is None:
        raise UserError(
            f"{measure.name}: {judge} has no verdict on any of {len(measure.values)} rows, so nothing is "
            "measured; try it with `plaudit eval reward` or `plaudit judge` first"
        )
    return measure


_KEYS = {HELD_OUT_JUDGE: "held_out", PEOPLE_LABELS: "people"}


def _figures(histories: "Sequence[Sequence[Measure]]") -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for start, *_, newest in ((history[0], *history) for history in histories):
        mean, key = mean_with_interval(newest), _KEYS[newest.name]
        figures |= {key: mean.value, f"{key}_low": mean.low, f"{key}_high": mean.high, f"{key}_rows": mean.n}
        gain = None if newest is start else gain_with_interval(newest, start)
        if gain is not None:
            figures |= {f"{key}_gain": gain.value, f"{key}_gain_low": gain.low, f"{key}_gain_high": gain.high}
    return figures


def _sentence(number: int, histories: "Sequence[Sequence[Measure]]") -> str:
    words: list[str] = []
    for history in histories:
        newest, mean = history[-1], mean_with_interval(history[-1])
        interval = "" if mean.low is None else f" ({mean.low:.3f} to {mean.high:.3f})"
        gain = gain_with_interval(newest, history[0]) if number else None
        against = "" if gain is None else f", {gain.value:+.3f} against the start"
        against += (
            f" ({gain.low:+.3f} to {gain.high:+.3f})" if gain is not None and gain.low is not None else ""
        )
        coin = newest.name == PEOPLE_LABELS and mean.low is not None and mean.low <= 0.5
        words.append(
            f"{newest.name} {mean.value:.3f}{interval} on {mean.n} rows{against}"
            + (", which a coin may reach" if coin else "")
        )
    whose = f"round {number}'s model" if number else "the start"
    return f"{whose}: {'; '.join(words)}"


def _fall_sentence(fall: "Fall", number: int, best: int, on_fall: str) -> str:
    where = f"round {fall.best}" if fall.best else "the start"
    end = "the loop goes on, as --loop.on-fall says"
    if on_fall == "stop":
        end = f"the loop ends here, and its model is that of {f'round {best}' if best else 'the start'}"
    return (
        f"round {number}: {fall.name} has fallen by {-fall.gap:.3f} since {where} (p {fall.p:.2g}, below "
        f"{fall.level:.2g}): {end}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    name: str
    prompts: tuple[int, ...]
    """For each row the number of its prompt: rows of one prompt are not independent."""
    values: tuple[float | None, ...]
    """For each row the value; None where there is none."""

    @property
    def mean(self) -> float | None:
        measured = [value for value in self.values if value is not None]
        return sum(measured) / len(measured) if measured else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A measure in which the newest round is below the best one, beyond noise.
    Example: ``find_fall(history, rounds=3, measures=2)``."""

    name: str
    best: int
    """The place of the best round in the history."""
    gap: float
    """The mean of the paired differences, below 0."""
    p: float
    """The one-sided chance of so large a fall where nothing changes."""
    level: float


def best_place(history: Sequence[Measure]) -> int:
    """The place of the highest mean; of several the first, and never one that has no value."""
    means = [measure.mean for measure in history]
    return max(range(len(means)), key=lambda n: -np.inf if (mean := means[n]) is None else mean)


def paired_gaps(newest: Measure, other: Measure) -> tuple[np.ndarray, np.ndarray]:
    """The differences of the rows that both have a value of, and the prompts of these rows."""
    pairs = [
        (a - b, prompt)
        for a, b, prompt in zip(newest.values, other.values, newest.prompts, strict=True)
        if a is not None and b is not None
    ]
    return np.array([gap for gap, _ in pairs]), np.array([prompt for _, prompt in pairs], dtype=np.int64)


def find_fall(history: Sequence[Measure], *, rounds: int, measures: int) -> Fall | None:
    """Whether the newest of a measure's history, the start first, has fallen; None where it has not."""
    *earlier, newest = history
    if not earlier:
        return None
    best = best_place(earlier)
    gap_B, prompt_B = paired_gaps(newest, earlier[best])
    if not len(gap_B) or gap_B.sum() >= 0:
        return None
    level = FALSE_STOP / (measures * rounds * (rounds + 1) / 2)
    p = sign_flip_test(gap_B, prompt_B) / 2
    if p >= level:
        return None
    return Fall(name=newest.name, best=best, gap=float(gap_B.mean()), p=p, level=level)


def mean_with_interval(measure: Measure) -> Estimate:
    """The mean of a measure: of right and wrong with Wilson's interval, else by drawing prompts anew."""
    measured = zip(measure.values, measure.prompts, strict=True)
    rows = [(value, prompt) for value, prompt in measured if value is not None]
    value_B, prompt_B = np.array([value for value, _ in rows]), np.array([prompt for _, prompt in rows])
    if measure.name == PEOPLE_LABELS:
        share = float(value_B.mean())
        low, high = wilson_interval(share, len(rows))
        return Estimate(value=share, low=low, high=high, n=len(rows), prompts=len(set(prompt_B.tolist())))
    return bootstrap_mean(value_B, prompt_B, Resampling(), share=False)


def gain_with_interval(newest: Measure, start: Measure) -> Estimate | None:
    """The mean of the paired differences to the start; None where no row has both values."""
    gap_B, prompt_B = paired_gaps(newest, start)
    return bootstrap_mean(gap_B, prompt_B, Resampling(), share=False) if len(gap_B) else None
