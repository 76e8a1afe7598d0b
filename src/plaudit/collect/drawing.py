"""Answers of a model that are to be judged: drawn in parts that are kept, so that a draw can go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.bounds import Share, check_bounds
from plaudit.collect.kinds import USUAL
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Task
from plaudit.data.read import DEFAULT_OPTIONS, read_records
from plaudit.data.records import RANDOM, plain_text, user_turn
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.evaluation.policies.generate import written_answers
from plaudit.methods.config import RowSettings
from plaudit.rollouts.sampler import SamplingSettings

if TYPE_CHECKING:
    from plaudit.methods.iterative.rounds import ScoredAnswer
    from plaudit.rollouts.local import LocalSampler
    from plaudit.tokens.prompts import EncodedPrompt

SPARE = 2
"""How many answers are drawn for each that a task has: some are cut, and some are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    model: Path
    prompts: Path
    """Rows with the prompts, each of which is asked once."""
    sampling: SamplingSettings
    answers: int
    """How many answers a task has, all different and none of them cut."""
    against: tuple[str, ...] = (POLICY,)
    """Whose the last answer of a task is, in turn: policy, written (what rows hold), a model's folder."""
    n: int | None = None
    """How many tasks; None: as many as there are prompts."""
    device: str = "auto"
    read_options: ReadOptions = DEFAULT_OPTIONS
    max_prompt_tokens: int = 0
    """The longest prompt that leaves room for an answer, once the model is known."""

    @property
    def format(self) -> None:
        return

    @property
    def rows(self) -> RowSettings:
        return RowSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which pairs people are given, where not all of them."""

    method: str
    """random, or a score of `plaudit.rewards.selection`."""
    by: str | None
    """The word of the reward that scores; none at random."""
    most: int | None
    random: Share = 0.2
    """The share of them that is drawn at random, and measures."""
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        from plaudit.rewards.selection import refuse_method

        check_bounds(self)
        refuse_method(self.method)
        if self.most is None:
            raise UserError(f"choose {self.method}: say how many: most, or n of a stage")
        if (self.by is None) != (self.method == RANDOM):
            needs = "asks no reward: leave by out" if self.by else "needs a reward: name it with by"
            raise UserError(f"choose {self.method} {needs}")


def choose_bodies(
    bodies: Sequence[dict[str, Any]], selection: Selection, labelled: Sequence[dict[str, Any]] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """The tasks that people are given, each with how it was chosen, in their order; and what there is to say.

    ``labelled`` are pairs that people answered before: D-optimal does not want them again.
    """
    from plaudit.collect.adding import content_key
    from plaudit.collect.routed import task_of
    from plaudit.rewards.registry import resolve_reward
    from plaudit.rewards.selection import choose, pool_of

    # The same pair may stand in several rows.
    bodies = [*{content_key(body): body for body in bodies}.values()]
    if others := sorted({body["kind"] for body in bodies} - {USUAL}):
        raise UserError(f"choose {selection.method}: scores choose pairs, and these are to {others[0]}")
    assert selection.most is not None
    reward = None if selection.by is None else resolve_reward(selection.by, device=selection.device)
    tasks, before = (list(map(task_of, each)) for each in (bodies, labelled))
    pool, places = pool_of(tasks, reward, selection.method, before)
    how = {"at_random": selection.random, "seed": selection.seed}
    choices = choose(pool, selection.most, selection.method, **how)
    marked = dict[int, dict[str, Any]]()
    for place, choice in ((places[choice.place], choice) for choice in choices):
        metadata = {**bodies[place].get("metadata", {}), "chance": choice.propensity}
        marked[place] = {**bodies[place], "method": choice.method, "metadata": metadata}
    counts = ", ".join(f"{n} × {method}" for method, n in Counter(c.method for c in choices).items())
    notes = [f"{len(choices)} of {len(bodies)} pairs chosen: {counts}; {len(bodies) - len(choices)} left out"]
    if len(places) < len(bodies):
        notes.append(f"{len(bodies) - len(places)} of these, for {selection.by} has no verdict on them")
    return [marked[place] for place in sorted(marked)], notes


def draw_tasks(draw: Draw, folder: Path) -> tuple[list[Task], list[str]]:
    """The tasks, with notes; what lies in ``answers.jsonl`` of the folder is not drawn again."""
    from plaudit.methods.iterative.rounds import load_prompts
    from plaudit.rollouts.local import LocalSampler

    sampler = LocalSampler(draw.model, device=draw.device)
    room = (sampler.max_positions or 2**31) - draw.sampling.max_tokens
    if room < 1:
        raise UserError(
            f"max_tokens {draw.sampling.max_tokens} leaves no room for a prompt within the "
            f"{sampler.max_positions} tokens that {draw.model} reads; let answers be shorter"
        )
    prompts, notes = load_prompts(replace(draw, max_prompt_tokens=room), sampler.encoder, folder)
    order = [*prompts]
    if draw.n is not None and draw.n < len(order):
        random.Random(f"{draw.sampling.seed}/prompts").shuffle(order)
    wanted = len(order) if draw.n is None else draw.n
    tasks: list[Task] = []
    others = _other_answers(draw, order, folder)
    for place, (prompt, answers) in enumerate(_drawn(draw, sampler, order, folder / "answers.jsonl")):
        number = place % len(draw.against)
        other = next(others[number]) if number in others else answers
        whose = () if draw.against == (POLICY,) else (*[POLICY] * (draw.answers - 1), draw.against[number])
        both, in_turns = (answers, other), sampler.encoder.asks_in_turns
        task = _task(prompt, both, draw.answers, whose, in_turns=in_turns)
        tasks += [] if task is None else [task]
        # Parts are drawn as they are asked for: prompts behind this one are never answered.
        if len(tasks) == wanted:
            break
    if not tasks:
        raise UserError(
            f"{draw.prompts}: no prompt has {draw.answers} answers that differ and came to an end, so there "
            "is nothing to judge: raise temperature, or give more room with max_tokens"
        )
    if draw.n is not None and len(tasks) < draw.n:
        notes.append(
            f"{len(tasks)} of {draw.n} tasks: other prompts have too few answers that differ and end"
        )
    return tasks, notes


def _other_answers(
    draw: Draw, order: Sequence[EncodedPrompt], folder: Path
) -> dict[int, Iterator[Sequence[ScoredAnswer]]]:
    # Of each source but the model itself, by its number, the answers to its prompts in their order.
    from plaudit.methods.iterative.rounds import ScoredAnswer
    from plaudit.rollouts.local import LocalSampler

    others = dict[int, Iterator[Sequence[ScoredAnswer]]]()
    for number, source in enumerate(draw.against):
        part = order[number :: len(draw.against)]
        if source == WRITTEN:
            texts = written_answers(read_records(draw.prompts, options=draw.read_options).records)
            written = ScoredAnswer(text="", tokens=0, ended=True, score=None)
            others[number] = ((replace(written, text=texts[plain_text(prompt.text)]),) for prompt in part)
        elif source != POLICY:
            sampler = LocalSampler(Path(source), device=draw.device)
            drawn = _drawn(draw, sampler, part, folder / f"answers-against-{number + 1}.jsonl")
            others[number] = (answers for _, answers in drawn)
    return others


def _drawn(
    draw: Draw, sampler: LocalSampler, order: Sequence[EncodedPrompt], path: Path
) -> Iterator[tuple[EncodedPrompt, tuple[ScoredAnswer, ...]]]:
    from plaudit.engine.distributed import single_process
    from plaudit.methods.iterative.rounds import drawn_answers

    n = SPARE * draw.answers
    answers = drawn_answers(path, order, sampler, None, draw.sampling, n, single_process())
    return zip(order, answers, strict=True)


def _task(
    prompt: EncodedPrompt,
    answers: tuple[Sequence[ScoredAnswer], Sequence[ScoredAnswer]],
    count: int,
    whose: tuple[str, ...],
    *,
    in_turns: bool,
) -> Task | None:
    # The first answers that differ and came to an end, the last of them of the other group; None: too few.
    from plaudit.methods.iterative.rounds import is_complete

    texts: dict[str, str] = {}
    for most, group in zip((count - 1, count), answers, strict=True):
        for answer in group:
            if is_complete(answer) and len(texts) < most:
                # Blanks at the ends make no difference that anyone could judge.
                texts.setdefault(answer.text.strip(), answer.text)
    if len(texts) < count:
        return None
    as_shown = (
        replace(prompt, text=user_turn(prompt.text)) if isinstance(prompt.text, str) and in_turns else prompt
    )
    category = prompt.metadata.get("category")
    task = as_shown.task((text, True) for text in texts.values())
    metadata = {"origin": prompt.origin} | ({"sources": whose} if whose else {})
    return replace(task, category=category if isinstance(category, str) else None, metadata=metadata)
