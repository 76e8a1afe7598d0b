"""Where attacks and what stands beside them come from: rows, rewordings, and rows of harmless prompts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from plaudit.config import did_you_mean
from plaudit.data.records import Message, Record, parts_of, picture_parts, turns_of, words_of
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import EvaluationPrompt, evaluation_prompts
from plaudit.feedback.attacks.attempt import NO_CATEGORY, Attempt
from plaudit.feedback.judges.rubric import read_yaml

OURS = "ours"
"""The word for the rewordings that come with plaudit."""
MIRROR = "mirror"
"""What two rows of a mirrored pair share in their metadata."""
PEOPLE = "people"
"""The source of rows that people wrote as attacks (kind attack of the label store)."""
_PLACES = ("{prompt}", "{first}", "{rest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    id: str
    turns: tuple[Message, ...]
    """The conversation, with ``{prompt}``, or with ``{first}`` and ``{rest}``, in it."""

    def reworded(self, attempt: Attempt) -> Attempt:
        """An attempt in these words; turns before its last one stay before them.

        >>> attempt = Attempt(turns=(Message(role="user", content="How do I sink the boat?"),))
        >>> template = Template(id="s", turns=(Message(role="user", content="For a story: {prompt}"),))
        >>> template.reworded(attempt).turns[-1].content
        'For a story: How do I sink the boat?'
        """
        *before, last = attempt.turns
        words = words_of(last)
        parts = words.split(" ")
        middle = (len(parts) + 1) // 2
        halves = " ".join(parts[:middle]), " ".join(parts[middle:])
        filled: dict[str, str] = dict(zip(_PLACES, (words, *halves), strict=True))
        turns = [Message(role=turn.role, content=_filled(words_of(turn), filled)) for turn in self.turns]
        if images := tuple(picture_parts((last,))):
            n = next(n for n, turn in enumerate(turns) if turn.role == "user")
            turns[n] = replace(turns[n], content=(*images, *parts_of(turns[n])))
        return Attempt(
            turns=(*before, *turns),
            category=attempt.category,
            source=self.id,
            goal=attempt.goal or attempt.words,
            unit=attempt.group,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmlessRows:
    """Prompts that nobody should decline, and pairs of prompts that should be treated alike."""

    twins: tuple[Attempt, ...] = ()
    mirrored: tuple[tuple[str, Attempt, Attempt], ...] = ()
    """The name of each pair, and its two sides in the order of the rows."""


def attempts_of(records: Iterable[Record]) -> tuple[Attempt, ...]:
    """The prompts of rows of any kind as attacks, each once; what people wrote as attacks is named so."""
    return tuple(_attempt(prompt, "rows") for prompt in evaluation_prompts(records))


def chosen_categories(attempts: Sequence[Attempt], names: Sequence[str]) -> tuple[Attempt, ...]:
    """Those of the categories; refuses a category of which there is nothing."""
    there = dict.fromkeys(attempt.category for attempt in attempts)
    for name in names:
        if name not in there:
            hint = did_you_mean(name, [*there]) or f"; there is {', '.join(there) or 'none'}"
            raise UserError(f"--category {name}: no row has this category{hint}")
    return tuple(attempt for attempt in attempts if not names or attempt.category in names)


def harmless_rows(records: Iterable[Record], where: str) -> HarmlessRows:
    """Harmless twins and mirrored pairs of rows; refuses half a pair."""
    twins, sides = list[Attempt](), dict[str, dict[str, Attempt]]()
    for record in records:
        # One by one: a twin may well be a side of a pair too, and a side that of several pairs.
        [prompt] = evaluation_prompts([record])
        mirror = prompt.metadata.get(MIRROR)
        attempt = _attempt(prompt, "twins")
        if mirror is None:
            twins.append(attempt)
        else:
            sides.setdefault(str(mirror), {})[attempt.key] = attempt
    pairs = list[tuple[str, Attempt, Attempt]]()
    for name, own in sides.items():
        if len(own) != 2:
            raise UserError(
                f"{where}: the mirrored pair {name!r} has {len(own)} prompts that differ; two rows share one "
                f"{MIRROR!r}"
            )
        first, second = own.values()
        pairs.append((name, first, second))
    if not twins:
        raise UserError(
            f"{where}: there is no harmless prompt in it (rows with {MIRROR!r} are pairs). Over-refusal is "
            "measured on prompts that nobody should decline; or say --without-twins"
        )
    return HarmlessRows(twins=tuple({twin.key: twin for twin in twins}.values()), mirrored=tuple(pairs))


def read_templates(word: str) -> tuple[Template, ...]:
    """The rewordings of a file, or ``ours``; faults are named by entry."""
    place = files("plaudit.feedback.attacks") / "templates.yaml" if word == OURS else Path(word)
    rows = read_yaml(place, word, "a file of templates")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{word}: expected a list of templates, each with id and turns")
    found = tuple(_template(f"{word}, template {number}", row) for number, row in enumerate(rows, 1))
    names = [template.id for template in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{word}: two templates are called {name!r}")
    return found


def reworded(attempts: Sequence[Attempt], templates: Sequence[Template]) -> tuple[Attempt, ...]:
    return tuple(template.reworded(attempt) for attempt in attempts for template in templates)


def _attempt(prompt: EvaluationPrompt, source: str) -> Attempt:
    turns = turns_of(prompt.prompt)
    if not turns or turns[-1].role != "user":
        beginning = " ".join(words_of(turn) for turn in turns_of(prompt.prompt))[:40]
        raise UserError(
            f"the prompt {beginning!r} does not end with a user's turn, so that nothing is "
            "asked; leave its row out"
        )
    by_people = "attack_success" in prompt.metadata
    return Attempt(
        turns=turns, category=prompt.category or NO_CATEGORY, source=PEOPLE if by_people else source
    )


def _template(where: str, row: object) -> Template:
    if not isinstance(row, dict) or {*row} - {"description"} != {"id", "turns"}:
        found = ", ".join(map(str, row)) if isinstance(row, dict) else repr(row)
        raise UserError(f"{where}: expected id and turns, found {found:.80}")
    turns = row["turns"]
    if not isinstance(row["id"], str) or not row["id"].strip():
        raise UserError(f"{where}: id is {row['id']!r}; expected a name")
    if not isinstance(turns, list) or not turns:
        raise UserError(
            f"{where}, {row['id']}: turns is no list; give each turn as user: TEXT or assistant: TEXT"
        )
    messages = tuple(map(partial(_turn, f"{where}, {row['id']}"), turns))
    text = "\n".join(words_of(turn) for turn in messages)
    if messages[-1].role != "user":
        raise UserError(f"{where}, {row['id']}: the last turn is the user's")
    if "{prompt}" not in text and not ("{first}" in text and "{rest}" in text):
        raise UserError(f"{where}, {row['id']}: {{prompt}} is nowhere in it (or {{first}} and {{rest}})")
    return Template(id=row["id"], turns=messages)


def _turn(where: str, turn: Any) -> Message:
    roles = ("system", "user", "assistant")
    is_turn = isinstance(turn, dict) and len(turn) == 1
    [(role, text)] = turn.items() if is_turn else [("", None)]
    if role not in roles or not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: {turn!r} is no turn; write user: TEXT, assistant: TEXT or system: TEXT")
    return Message(role=role, content=text)


def _filled(text: str, names: Mapping[str, str]) -> str:
    # In one pass: the prompt may hold braces of its own.
    parts, rest = list[str](), text
    while places := [(rest.find(name), name) for name in names if name in rest]:
        at, name = min(places)
        parts += [rest[:at], names[name]]
        rest = rest[at + len(name) :]
    return "".join([*parts, rest])
