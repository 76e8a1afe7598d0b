"""What is watched of answers before and after they are revised: length, refusals, evasions, sameness.

Revisers make answers longer, more evasive and more alike: Bai et al. (2022, arXiv:2212.08073) saw boilerplate
and evasion. Whatever rises here will be learnt by who is trained on the revisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from plaudit.data.edits import split_words
from plaudit.errors import UserError
from plaudit.evaluation.policies.diversity import common_word_count, distinct_n

OPENING_WORDS = 3

Marks = Mapping[str, tuple[str, ...]]
"""Phrases by the name of their group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The figures of a set of answers.

    Example: ``watched(["Mice."], ["I do not know."], read_marks(None))[0].words``
    """

    answers: int
    words: float
    marks: Mapping[str, float]
    """By the name of each group of phrases, the share of answers that hold one of them."""
    opening: str
    opening_share: float
    distinct_1: float | None
    """Unlike words over all words, in as many words of each answer before and after."""
    distinct_2: float | None


def read_marks(path: Path | None) -> Marks:
    """The groups of phrases of a YAML file; None: those that come with plaudit."""
    name = "marks.yaml" if path is None else str(path)
    try:
        text = (files("plaudit.feedback") / "marks.yaml" if path is None else path).read_text("utf-8")
        groups: Any = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{name}: cannot be read: {error}") from error
    if not isinstance(groups, dict) or not groups:
        raise UserError(f"{name}: expected groups of phrases, as in refusals: [I will not, I cannot help]")
    for group, phrases in groups.items():
        if not isinstance(phrases, list) or not phrases or not all(map(_is_phrase, phrases)):
            raise UserError(f"{name}: {group}: expected a list of phrases, found {phrases!r:.60}")
    return {str(group): tuple(map(_plain, phrases)) for group, phrases in groups.items()}


def watched(before: Sequence[str], after: Sequence[str], marks: Marks) -> tuple[Watched, Watched]:
    """The figures of answers before and after; sameness is of as many words of each in both."""
    count = common_word_count([{"": before}, {"": after}])
    return _figures(before, marks, count), _figures(after, marks, count)


def _figures(answers: Sequence[str], marks: Marks, count: int) -> Watched:
    tokens = [split_words(answer) for answer in answers]
    cut = [words[:count] for words in tokens if len(words) >= count]
    openings = Counter(" ".join(answer.split()[:OPENING_WORDS]) for answer in answers)
    [(opening, times)] = openings.most_common(1) or [("", 0)]
    plain = [_plain(answer) for answer in answers]
    return Watched(
        answers=len(answers),
        words=fmean(len(answer.split()) for answer in answers) if answers else 0.0,
        marks={
            group: sum(any(phrase in answer for phrase in phrases) for answer in plain) / max(len(plain), 1)
            for group, phrases in marks.items()
        },
        opening=opening,
        opening_share=times / max(len(answers), 1),
        distinct_1=distinct_n(cut, 1),
        distinct_2=distinct_n(cut, 2),
    )


def watched_lines(before: Watched, after: Watched) -> list[str]:
    rows = [("words, mean", f"{before.words:.1f}", f"{after.words:.1f}")]
    rows += [(group, f"{before.marks[group]:.1%}", f"{after.marks[group]:.1%}") for group in before.marks]
    rows.append(("most frequent opening", f"{before.opening_share:.1%}", f"{after.opening_share:.1%}"))
    rows.append(("distinct-1", _two_places(before.distinct_1), _two_places(after.distinct_1)))
    rows.append(("distinct-2", _two_places(before.distinct_2), _two_places(after.distinct_2)))
    lines = [f"{name:<24}{first:>10}{other:>10}" for name, first, other in rows]
    opening = f"the most frequent opening after: {after.opening!r}"
    return [f"{'':<24}{'before':>10}{'after':>10}", *lines, *([opening] if after.opening else [])]


def _two_places(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.2f}"


def _is_phrase(phrase: object) -> bool:
    return isinstance(phrase, str) and bool(phrase.strip())


def _plain(text: str) -> str:
    """In small letters, with one blank between words and the typewriter's apostrophe."""
    return " ".join(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
