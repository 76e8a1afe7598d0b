"""One round of an iterative run: its prompts, scored answers, selection, training rows, figures and files.

The generated and scored answers are stored as JSON lines.
"""

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration, answer_to, text_to_json, turns_of
from plaudit.engine.distributed import Ranks
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.methods.config import RowSettings
from plaudit.methods.data import mend_advice
from plaudit.methods.iterative.algorithms import (
    LoopAlgorithm,
    Selection,
    SelectionSettings,
    best_of_n_kl,
    half_median_gap,
    top_share_threshold,
)
from plaudit.methods.iterative.config import LoopConfig, LoopSettings, RlhfConfig
from plaudit.methods.models import prepare_policy, shard_or_broadcast
from plaudit.methods.policy.collect import EachSampler, ScoredGroup, score_groups
from plaudit.methods.run import Run
from plaudit.models.load import precision
from plaudit.models.settings import LoraSettings
from plaudit.rewards.base import Reward, TaskScores
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import GenerationPrompt, Rollout, Sampler, SamplingSettings, WeightsVersion
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt_records
from plaudit.wings import offered

PROMPTS_AT_ONCE = 64
"""Prompts of a rank that are generated for, and then scored, before the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """A generated answer with its score, as it is stored in ``answers.jsonl``."""

    text: str
    tokens: int
    ended: bool
    score: float | None


@runtime_checkable
class PromptSource(Protocol):
    """The settings that say where prompts are and how to read them."""

    @property
    def prompts(self) -> Path: ...

    @property
    def format(self) -> str | None:
        """Its layout; None: told from the rows."""
        ...

    @property
    def rows(self) -> RowSettings: ...

    @property
    def read_options(self) -> ReadOptions:
        """What its fields are called, and which split of it is read."""
        ...

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt, in tokens, that leaves room for the longest completion."""
        ...


def load_prompts(
    config: PromptSource, encoder: Encoder, quarantine_folder: Path | None
) -> tuple[tuple[EncodedPrompt, ...], list[str]]:
    """The prompts of the file, each once, with notes; raises where too many of them are unusable."""
    reading = read_records(
        config.prompts,
        format=config.format,
        threshold=config.rows.threshold,
        quarantine=None if quarantine_folder is None else quarantine_folder / "quarantine-prompts.jsonl",
        options=config.read_options,
    )
    encoded = encode_prompt_records(reading.records, encoder, config.max_prompt_tokens)
    usable, refused = encoded.examples, encoded.refused
    if not usable:
        detail = f" ({refused[0].origin}: {refused[0].reason})" if refused else ""
        raise UserError(f"{config.prompts}: there is no prompt to answer{detail}")
    # 1e-9: in binary 0.29 · 100 is a little below 29, and 29 rows are what the user allows.
    total = len(usable) + len(refused)
    if len(refused) > math.floor(config.rows.threshold * total + 1e-9):
        first = "\n".join(f"  {row.origin}: {row.reason}" for row in refused[:5])
        raise UserError(
            f"{config.prompts}: {len(refused)} prompts cannot be answered, above the threshold of "
            f"{config.rows.threshold:.1%}. The first:\n{first}\n{mend_advice(len(refused), total)}"
        )
    notes = [f"{count} rows: {note}" for note, count in encoded.notes.items()]
    notes += [f"{len(refused)} prompts cannot be answered ({refused[0].reason} …)"] if refused else []
    return tuple(usable), [reading.format_sentence, *notes]


def prompts_of_round(
    prompts: Sequence[EncodedPrompt], count: int | None, number: int, seed: int
) -> list[EncodedPrompt]:
    """The prompts of a round: all of them, or so many, others in each round until all had their turn."""
    if count is None or count >= len(prompts):
        return list(prompts)
    order = list(range(len(prompts)))
    # No round in the seed: there is one order, and rounds walk along it.
    random.Random(f"{seed}/prompts").shuffle(order)
    first = (number - 1) * count
    return [prompts[order[(first + k) % len(order)]] for k in range(count)]


@contextmanager
def round_sampler(
    model: Path, config: LoopConfig | RlhfConfig, ranks: Ranks, folder: Path, notes: Sequence[str] = ()
) -> Iterator[tuple[Sampler, Callable[[], None]]]:
    """The model that answers, by itself or by servers, and what tells its news; every rank comes.
    Notes are told before it is loaded; logs of servers lie in the folder."""
    console = ConsoleSink(quiet=True)

    def tell(sentences: Sequence[str]) -> None:
        for sentence in sentences if ranks.is_first else ():
            console.note(sentence)

    tell(notes)
    if config.sampler == "local":
        sampler = LocalSampler(model, device=str(ranks.device), dtype=config.dtype)
        tell([f"sampling is slower here: {reason}"] if (reason := sampler.fallback_reason) else [])
        yield sampler, lambda: None
        return
    # As it lies in its folder: adapters are for what learns.
    plain = replace(config, model=model, out=folder, lora=LoraSettings(), compile=False)
    numbers = precision(config.dtype, ranks.device)
    run = Run(
        config=plain,
        method="draw",
        encoder=make_encoder(model),
        precision=replace(numbers, weights=numbers.products),
        ranks=ranks.sharding_over(config.shard_ranks),
        folder=folder if ranks.is_first else None,
    )
    with run.resources:
        policy, _ = prepare_policy(plain, run.precision, run.ranks, by_parts=True)
        shard_or_broadcast(policy.requires_grad_(requires_grad=False), plain, run.ranks)
        make = offered("remote_sampler", of="serving")
        # Log-probs are not kept here: those at 1 prove a server as well as those at the temperature.
        served = make(run, config.sampler, config.server, policy, WeightsVersion(), temperature=1.0)
        tell(run.notes)
        yield served, lambda: tell([sentence for news in run.news for sentence in news()])
        # What servers have answered is wanted until the first rank has written all of it.
        ranks.barrier()
        served.forget()


def generation_note(number: int, answers: int | None, prompts: int, model: Path) -> str:
    return f"round {number}: drawing {answers} answers to each of {prompts} prompts from {model}"


def drawn_answers(
    path: Path,
    prompts: Sequence[EncodedPrompt],
    sampler: Sampler,
    reward: Reward | None,
    settings: SamplingSettings,
    n: int,
    ranks: Ranks,
    tell_news: Callable[[], None] = lambda: None,
) -> Iterator[tuple[ScoredAnswer, ...]]:
    """``n`` scored answers to each prompt, on the first rank; every rank must come, and draws its share.

    They are drawn as they are taken, and kept in the file: whole parts that it holds are not drawn again.
    """
    world = ranks.world_size
    size = PROMPTS_AT_ONCE * world
    done = _keep_whole_parts(path, size, len(prompts)) if ranks.is_first else []
    cached = int(ranks.all_gather([float(len(done))])[0][0])
    parts = _drawn_parts([each.shown for each in prompts[cached:][ranks.rank :: world]], sampler, settings, n)
    for start in range(0, len(prompts), size):
        part = prompts[start : start + size]
        if start >= cached:
            share, rollouts = part[ranks.rank :: world], next(parts, ())
            gathered = ranks.all_gather_strings([*map(answers_line, _scored(share, rollouts, reward))])
            tell_news()
            if not ranks.is_first:
                continue
            order = [place for rank in range(world) for place in range(rank, len(part), world)]
            lines = [f"{line}\n".encode() for _, line in sorted(zip(order, gathered, strict=True))]
            with atomic.disk_errors_explained(path), path.open("ab") as file:
                file.write(b"".join(lines))
                # On the disk before the next part is begun: a power cut costs one part, not the draw.
                file.flush()
                os.fsync(file.fileno())
            done += lines
        yield from map(_answers_of, done[start : start + size])


def _drawn_parts(
    prompts: Sequence[GenerationPrompt], sampler: Sampler, settings: SamplingSettings, n: int
) -> Iterator[list[list[Rollout]]]:
    """Answers to so many prompts at once; servers draw the next ones while these are scored."""
    if isinstance(sampler, EachSampler):
        with closing(sampler.generate_each(prompts, settings, n=n)) as drawn:
            while part := list(islice(drawn, PROMPTS_AT_ONCE)):
                yield part
        return
    for start in range(0, len(prompts), PROMPTS_AT_ONCE):
        yield sampler.generate(prompts[start : start + PROMPTS_AT_ONCE], settings, n=n)


def _scored(
    prompts: Sequence[EncodedPrompt], rollouts: Sequence[Sequence[Rollout]], reward: Reward | None
) -> list[ScoredGroup]:
    if reward is not None:
        return score_groups(prompts, rollouts, reward)
    return [
        ScoredGroup(prompt=prompt, rollouts=tuple(answers), scores=(None,) * len(answers))
        for prompt, answers in zip(prompts, rollouts, strict=True)
    ]


def _keep_whole_parts(path: Path, size: int, total: int) -> list[bytes]:
    # The lines of parts that were written whole; the file is cut behind them.
    # Half a part is drawn again as a part: what is drawn together decides the last bits of it.
    content = path.read_bytes() if path.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    whole = lines if len(lines) == total else lines[: len(lines) - len(lines) % size]
    if b"".join(whole) != content:
        atomic.write_text(path, b"".join(whole).decode())
    return whole


def read_answers(path: Path) -> list[tuple[ScoredAnswer, ...]]:
    # Of all that a text may break a line with, JSON escapes this one alone.
    return [_answers_of(line) for line in path.read_bytes().removesuffix(b"\n").split(b"\n")]


def _answers_of(line: bytes) -> tuple[ScoredAnswer, ...]:
    fields, answers = ScoredAnswer.__dataclass_fields__, exact_json.loads(line)["answers"]
    return tuple(ScoredAnswer(**{name: answer[name] for name in fields}) for answer in answers)


def answers_line(group: ScoredGroup) -> str:
    """What `read_answers` reads of one prompt."""
    answers: list[dict[str, object]] = []
    for index, (rollout, score) in enumerate(zip(group.rollouts, group.scores, strict=True)):
        text, tokens, ended = rollout.answer.text, rollout.answer.tokens, rollout.answer.ended
        parts = {name: row[index] for name, row in group.parts.items()}
        answer = asdict(ScoredAnswer(text=text, tokens=tokens, ended=ended, score=score))
        answers.append({**answer, "parts": parts} if parts else answer)
    prompt = group.prompt
    line = {"prompt": text_to_json(prompt.text), "origin": prompt.origin, "answers": answers}
    return exact_json.dumps(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRound:
    """The models and files of one round.
    Example: ``loop_round(ITERATIVE_ALGORITHMS["rejection"], settings, config, 2).folder``."""

    number: int
    folder: Path
    model: Path
    generator: Path
    generated_in: int
    """The round whose completions it selects from: its own, or an earlier one."""
    threshold_index: int
    """Which of the thresholds applies; the first is 0."""

    @property
    def rows(self) -> Path:
        return self.folder / "rows.jsonl"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def answers(self) -> Path:
        """The file of all answers with their scores, also where an earlier round generated them."""
        return self.folder.with_name(str(self.generated_in)) / "answers.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """The figures of a round's generation and selection, a line of ``rounds.jsonl``."""

    round: int
    drawn: int
    prompts: int
    answers: int
    unjudged: int
    cut: int
    """Answers that were cut or are empty, and so are never chosen."""
    mean: float | None
    """The mean score of all answers that have one; None where nothing scores them."""
    rows: int
    chosen: float | None
    """The mean score of those chosen; of pairs, of the better ones."""
    rejected: float | None
    """The mean score of the worse ones of pairs."""
    none: int
    """Prompts of which nothing was chosen."""
    threshold: float | None = None
    """The least score that was chosen, where that was asked for."""
    kl_bound: float | None = None
    """At most so many nats lie between what was chosen and the model that was drawn from."""
    same: int | None = None
    """Answers that are their demonstration, and so make no row (spin)."""

    @property
    def sentence(self) -> str:
        again = "" if self.drawn == self.round else f" of round {self.drawn}"
        words = [f"round {self.round}: {self.answers} answers{again} to {self.prompts} prompts"]
        if self.mean is None or self.chosen is None:
            words += [f"{self.rows} rows against a demonstration"]
        else:
            other = "" if self.rejected is None else f" against {self.rejected:.3f}"
            words += [f"mean reward {self.mean:.3f}"]
            words += [f"{self.rows} rows chosen, mean reward {self.chosen:.3f}{other}"]
        words += [f"{self.none} prompts with none"]
        words += [] if self.same is None else [f"{self.same} answers that are their demonstration"]
        words += [f"{self.unjudged} answers without a verdict"] if self.unjudged else []
        words += [f"{self.cut} cut or empty"] if self.cut else []
        words += [] if self.threshold is None else [f"threshold {self.threshold:.3f}"]
        words += [] if self.kl_bound is None else [f"at most {self.kl_bound:.2f} nats from the drawn"]
        return ", ".join(words)


def loop_round(facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig, number: int) -> LoopRound:
    # Without improve steps (n − 1) mod n is n − 1: each round draws for itself and has the next threshold.
    rounds_folder, stage = config.out / "rounds", (number - 1) % (settings.improves or number)
    generated_in = number - stage if settings.improves else number
    return LoopRound(
        number=number,
        folder=rounds_folder / str(number),
        model=_trained_model(config, rounds_folder, number - 1 if facts.trains_from == "newest" else 0),
        generator=_trained_model(
            config, rounds_folder, generated_in - 1 if facts.generates_from == "newest" else 0
        ),
        generated_in=generated_in,
        threshold_index=stage,
    )


def select_rows(
    facts: LoopAlgorithm,
    settings: LoopSettings,
    this_round: LoopRound,
    groups: Sequence[Sequence[ScoredAnswer]],
    seed: int,
) -> tuple[list[Selection], RoundFigures]:
    """The completions selected for each prompt, and the figures; raises where none is selected."""
    rows = [_eligible_scores(group, distinct=settings.distinct) for group in groups]
    _refuse_no_verdicts(groups, rows)
    threshold = _score_threshold(settings, this_round.threshold_index, rows)
    picks = list(_picks(facts, settings, this_round, groups, rows, threshold, seed))
    selected = [(row, pick) for row, prompt_picks in zip(rows, picks, strict=True) for pick in prompt_picks]
    if not selected:
        so_far = f". The model so far is in {this_round.model}" if this_round.number > 1 else ""
        raise UserError(
            f"round {this_round.number}: {_nothing_selected_reason(facts, settings, rows, threshold)}{so_far}"
        )
    better = [score for row, pick in selected if (score := row[pick[0]]) is not None]
    worse = [score for row, pick in selected if (score := row[pick[-1]]) is not None]
    scores = [answer.score for group in groups for answer in group if answer.score is not None]
    return picks, RoundFigures(
        round=this_round.number,
        drawn=this_round.generated_in,
        prompts=len(groups),
        answers=sum(len(group) for group in groups),
        unjudged=sum(answer.score is None for group in groups for answer in group),
        cut=sum(not is_complete(answer) for group in groups for answer in group),
        mean=fmean(scores),
        rows=len(selected),
        chosen=fmean(better),
        rejected=fmean(worse) if facts.pairs else None,
        none=sum(not prompt_picks for prompt_picks in picks),
        threshold=threshold,
        kl_bound=best_of_n_kl(settings.answers or 1) if facts.has_kl_bound else None,
    )


def _picks(
    facts: LoopAlgorithm,
    settings: LoopSettings,
    this_round: LoopRound,
    groups: Sequence[Sequence[ScoredAnswer]],
    rows: Sequence[TaskScores],
    threshold: float | None,
    seed: int,
) -> Iterator[Selection]:
    defaults = SelectionSettings()
    gap = half_median_gap(rows) if settings.gap is None else settings.gap
    for index, (row, group) in enumerate(zip(rows, groups, strict=True)):
        # By the round of the draw: stages over the same answers see the same numbers.
        rng = random.Random(f"{seed}/accept/{this_round.generated_in}/{index}")
        selection = SelectionSettings(
            threshold=defaults.threshold if threshold is None else threshold,
            keep=settings.keep,
            beta=defaults.beta if settings.beta is None else settings.beta,
            gap=gap,
            uniforms=tuple(rng.random() for _ in row),
        )
        # Without pairs of twice the same words, to which a tournament may give two scores.
        yield tuple(
            pick
            for pick in facts.select(row, selection)
            if len(pick) == 1 or len({group[index].text.strip() for index in pick}) == len(pick)
        )


def training_rows(
    prompts: Sequence[EncodedPrompt],
    groups: Sequence[Sequence[ScoredAnswer]],
    picks: Sequence[Selection],
    *,
    chats: bool,
) -> list[Demonstration | Comparison]:
    """The selected completions as rows; with a chat template a plain prompt becomes the user's turn."""
    return [
        _training_row(encoded_prompt, [group[index].text for index in pick], chats=chats)
        for encoded_prompt, group, prompt_picks in zip(prompts, groups, picks, strict=True)
        for pick in prompt_picks
    ]


def figures_as_json(figures: Any) -> Mapping[str, Any]:
    """A record of figures as JSON holds it, without what there is not, or could not be measured."""
    return {name: value for name, value in asdict(figures).items() if value is not None}


def _trained_model(config: LoopConfig, home: Path, number: int) -> Path:
    return home / str(number) / "run" / "model" if number else config.model


def _training_row(
    encoded_prompt: EncodedPrompt, texts: Sequence[str], *, chats: bool
) -> Demonstration | Comparison:
    prompt = encoded_prompt.text
    turns = turns_of(prompt) if chats else prompt
    replies = [answer_to(turns, text) for text in texts]
    if len(replies) == 1:
        return Demonstration(prompt=turns, completion=replies[0], origin=encoded_prompt.origin)
    return Comparison(prompt=turns, chosen=replies[0], rejected=replies[1], origin=encoded_prompt.origin)


def is_complete(answer: ScoredAnswer) -> bool:
    """Whether an answer may be learnt: a cut one would teach a false end, an empty one nothing."""
    return answer.ended and bool(answer.text.strip()) and "\0" not in answer.text


def _eligible_scores(group: Sequence[ScoredAnswer], *, distinct: bool) -> TaskScores:
    """The scores of a prompt's answers; None for those that may not be selected."""
    texts = [answer.text.strip() for answer in group]
    return tuple(
        answer.score if is_complete(answer) and not (distinct and text in texts[:index]) else None
        for index, (answer, text) in enumerate(zip(group, texts, strict=True))
    )


def _score_threshold(settings: LoopSettings, index: int, rows: Sequence[TaskScores]) -> float | None:
    if settings.threshold:
        # Rounds beyond the list keep its last threshold.
        return settings.threshold[min(index, len(settings.threshold) - 1)]
    return (
        top_share_threshold(rows, settings.top[min(index, len(settings.top) - 1)]) if settings.top else None
    )


def _refuse_no_verdicts(groups: Sequence[Sequence[ScoredAnswer]], rows: Sequence[TaskScores]) -> None:
    answers = [rollout for group in groups for rollout in group]
    if all(answer.score is None for answer in answers):
        raise UserError(
            f"the reward has no verdict on any of the {len(answers)} answers, so nothing can be chosen; "
            "a rule may need reference answers, and a server may be down (docs/rewards.md)"
        )
    if all(score is None for row in rows for score in row):
        raise UserError(
            f"every one of the {len(answers)} answers that has a verdict is cut or empty, and such an answer "
            "is not learnt; give more room with --sampling.max-tokens, or a model that ends its answers"
        )


def _nothing_selected_reason(
    facts: LoopAlgorithm, settings: LoopSettings, rows: Sequence[TaskScores], threshold: float | None
) -> str:
    if facts.scored_by == "demonstrations":
        return (
            "every answer is its demonstration, or was cut or empty, so there is nothing that it could be "
            "told from; the model says what the demonstrations say, or wants more --sampling.max-tokens"
        )
    scores = [score for row in rows for score in row if score is not None]
    if not facts.pairs:
        return (
            f"no answer reaches the threshold {threshold:g}; the best score seen is {max(scores):g}. "
            "Set --loop.threshold lower, draw more with --loop.answers, or begin with a better model"
        )
    spans = [
        max(verdicts) - min(verdicts)
        for verdicts in ([s for s in row if s is not None] for row in rows)
        if verdicts
    ]
    if max(spans) == 0:
        return (
            "all answers to each prompt have the same score, so no pair can be formed; draw more with "
            "--loop.answers, raise --sampling.temperature, or take a finer reward"
        )
    if settings.gap is not None:
        return (
            f"no two answers to one prompt are further apart than {settings.gap:g}; the widest gap seen is "
            f"{max(spans):g}. Set --loop.gap lower"
        )
    return "no two accepted answers to one prompt differ in score; raise --loop.beta or --loop.answers"
