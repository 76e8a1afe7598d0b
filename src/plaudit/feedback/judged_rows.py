"""AI feedback: pairs that a judge is asked about, and the rows that come of what it says.

Soft labels stay soft (RLAIF, Lee et al. 2023, arXiv:2309.00267): a row has the chance that its chosen answer
is the better one. Its annotator is the judge with its version, its group is ``ai``.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from plaudit.data.judging import NoVerdict, Verdict, to_comparison
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Ranking,
    Rating,
    Record,
    Task,
    Text,
    plain_text,
)
from plaudit.data.transforms import some_of
from plaudit.engine.ranks import divide_rows
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import evaluation_prompts, refuse_unwritten
from plaudit.feedback.judges.model_judge import ModelJudge, Rated
from plaudit.rollouts.sampler import SamplingSettings, TextSampler

GROUP = "ai"
"""The group of rows that models judged; they never mix silently with those of people."""

SAME_ANSWERS = "since both answers read the same"
EMPTY_ANSWER = "since an answer is empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    rows: tuple[Record, ...]
    ties: int
    """How many of them prefer nothing."""
    failures: Counter[str]
    contradictory: int = 0
    """Pairs on which both orders say the contrary; they are ties."""
    ordered: int = 0
    """Pairs that were asked in both orders."""
    first_shown: int = 0
    """Of all readings of these pairs that prefer an answer, how many prefer the one that is shown first."""
    preferring: int = 0
    """How many readings prefer one."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """How often both orders agree, and how many ties and failures there are."""
        found = list[str]()
        if self.ordered:
            agree = 1 - self.contradictory / self.ordered
            first = f"{self.first_shown / self.preferring:.1%}" if self.preferring else "–"
            found.append(f"both orders agree on {agree:.1%}; shown first preferred in {first} of readings")
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.failures.items()))
        failed = f"{sum(self.failures.values())}{f': {reasons}' if reasons else ''}"
        ties = f"{self.ties} ties; " if any(isinstance(row, Comparison) for row in self.rows) else ""
        return (*found, f"{ties}no verdict on {failed}")


def pair_tasks(records: Iterable[Record]) -> list[Task]:
    """The pairs of comparisons and rankings, each once; their order is a hash and tells no preference."""
    found: dict[tuple[Text, frozenset[Text]], Task] = {}
    for record in records:
        if not isinstance(record, Comparison | Ranking):
            continue
        answers = record.completions if isinstance(record, Ranking) else (record.chosen, record.rejected)
        for pair in combinations(answers, 2):
            key = (record.prompt, frozenset(pair))
            if key not in found:
                found[key] = _task(record.prompt, pair, category=record.category)
    return list(found.values())


def answer_tasks_of(records: Iterable[Record]) -> list[Task]:
    """The answers of demonstrations and ratings, each once, with the true answer where its row has one."""
    found: dict[tuple[Text, Text], Task] = {}
    for record in records:
        if isinstance(record, Demonstration | Rating):
            truth = record.answer if isinstance(record, Demonstration) else None
            found.setdefault(
                (record.prompt, record.completion),
                Task(
                    prompt=record.prompt,
                    answers=(record.completion,),
                    ended=(True,),
                    category=record.category,
                    reference_answer=truth,
                ),
            )
    return list(found.values())


def drawn_tasks(
    sampler: TextSampler,
    records: Iterable[Record],
    settings: SamplingSettings,
    *,
    n: int | None = None,
    others: Sequence[TextSampler | None] = (),
) -> tuple[list[Task], Counter[str]]:
    """Two answers to each prompt, and how many prompts are left out for which reason.

    Both are the model's, or the second is, in turn, that of ``others``: None is what the rows hold.
    """
    prompts = some_of(evaluation_prompts(records), n, f"prompts {settings.seed}")
    if None in others:
        refuse_unwritten(prompts)
    own = sampler.generate_answers([prompt.prompt for prompt in prompts], settings, n=2)
    pairs = [[(answer.text, answer.ended) for answer in pair] for pair in own]
    for number, other in enumerate(others):
        places = range(number, len(prompts), len(others))
        part = [prompts[place].prompt for place in places]
        drawn = None if other is None else other.generate_answers(part, settings)
        for at, place in enumerate(places):
            written = prompts[place].written or ""
            pairs[place][1] = (written, True) if drawn is None else (drawn[at][0].text, drawn[at][0].ended)
    found, left_out = list[Task](), Counter[str]()
    for prompt, pair in zip(prompts, pairs, strict=True):
        task = prompt.task(pair)
        words = {plain_text(answer).strip() for answer in task.answers}
        if "" in words:
            left_out[EMPTY_ANSWER] += 1
        elif len(words) < 2:
            left_out[SAME_ANSWERS] += 1
        else:
            found.append(task)
    return found, left_out


def judged_rows(tasks: Sequence[Task], outcomes: Sequence[Verdict | NoVerdict], annotator: str) -> JudgedRows:
    """Comparisons with soft labels, and what there is to say of them."""
    rows, failures = list[Record](), Counter[str]()
    readings = list[float]()
    contradictory = ordered = 0
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, NoVerdict):
            failures[outcome.reason] += 1
            continue
        rows.append(to_comparison(task, replace(outcome, annotator=annotator, group=GROUP, strength=None)))
        if outcome.orders is None or outcome.orders.forward is None or outcome.orders.backward is None:
            continue
        first, second = outcome.orders.forward, outcome.orders.backward
        ordered += 1
        contradictory += (first - 0.5) * (second - 0.5) < 0
        # The chance of whoever is shown first, in either order.
        readings += [share for share in (first, 1 - second) if share != 0.5]
    return JudgedRows(
        rows=tuple(rows),
        ties=sum(isinstance(row, Comparison) and row.probability == 0.5 for row in rows),
        failures=failures,
        contradictory=contradictory,
        ordered=ordered,
        first_shown=sum(share > 0.5 for share in readings),
        preferring=len(readings),
    )


def rated_rows(judge: ModelJudge, tasks: Sequence[Task], annotator: str) -> JudgedRows:
    """Ratings of single answers by points, or by the chance that they are right, with the judge's words."""
    rows, failures = list[Record](), Counter[str]()

    def scored(part: Sequence[Task], _: int) -> list[tuple[Rated | str, ...]]:
        rows = judge.ratings(part)
        return [tuple(s.reason if isinstance(s, NoVerdict) else s for s in row) for row in rows]

    for task, scores in zip(tasks, divide_rows(tasks, scored, tuple[Any, ...]), strict=True):
        for answer, score in zip(task.answers, scores, strict=True):
            if isinstance(score, str):
                failures[score] += 1
                continue
            rows.append(
                Rating(
                    prompt=task.prompt,
                    completion=answer,
                    score=round(score[0], 6),
                    reason=score[1] or None,
                    annotator=annotator,
                    group=GROUP,
                    category=task.category,
                )
            )
    return JudgedRows(rows=tuple(rows), ties=0, failures=failures)


def refuse_other_rows(records: Sequence[Record], *, singly: bool) -> None:
    """Complain about rows that hold nothing which can be judged so."""
    wanted = (Demonstration, Rating) if singly else (Comparison, Ranking)
    if any(isinstance(record, wanted) for record in records):
        return
    if records and all(isinstance(record, Prompt) for record in records):
        raise UserError("these rows are prompts alone: name with --model who answers them")
    kinds = "demonstrations or ratings" if singly else "comparisons or rankings"
    raise UserError(
        f"there are no {kinds} among these rows; a judge compares two answers, or gives points to single "
        "ones (--how points, or answer)"
    )


def _task(prompt: Text, pair: Sequence[Text], *, category: str | None) -> Task:
    words = "\0".join([plain_text(prompt), *sorted(map(plain_text, pair))])
    is_odd = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 1
    first, second = sorted(pair, key=plain_text, reverse=is_odd)
    return Task(prompt=prompt, answers=(first, second), ended=(True, True), category=category)
