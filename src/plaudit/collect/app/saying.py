"""Labels, moments and questions in words of the reader's language.

Whoever labels reads A as the answer that was shown first; those who manage, as the task's first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from markupsafe import Markup, escape

from plaudit.collect.app.render import own_word, speaker
from plaudit.collect.app.texts import differences, visible
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import LETTERS
from plaudit.collect.project import Project

_QUESTION = next(field.default for field in fields(Project) if field.name == "question")


class Spoken:
    """The words of a language, as kinds ask for them (`kinds.kind.Voice`)."""

    def __init__(self, language: str) -> None:
        self._language = language
        self.speak: Callable[..., Markup] = speaker(language)

    def own(self, word: str) -> Markup:
        """A word of the project's settings: a default one in the reader's language, another as it is."""
        return own_word(self._language, word)

    def written(self, text: str) -> Markup:
        return escape(visible(text))

    def put(self, pattern: str, *parts: object) -> Markup:
        return Markup(pattern).format(*parts)

    def join(self, separator: str, parts: Iterable[str]) -> Markup:
        return Markup(separator).join(parts)


def say_question(shown: Mapping[str, Any], speak: Callable[..., str]) -> str:
    """What is asked: the project's own words, or those of the kind where the project has none."""
    return shown["question"] if shown["question"] != _QUESTION else speak(KINDS[shown["kind"]].question)


def compared(shown: Mapping[str, Any], values: Mapping[str, Any], *, wanted: bool) -> dict[str, Any]:
    """What a page says of the differences of a task's texts; marks are None where there are none to show."""
    texts_of = KINDS[shown["kind"]].compared_texts
    texts = None if texts_of is None else texts_of(shown, values)
    marks = differences(*texts, shown["markdown"]) if texts and wanted else None
    too_long = wanted and texts is not None and marks is None
    return {"can_differ": texts is not None, "marks": marks, "unmarked": too_long}


def say_moment(at: str) -> str:
    """A moment of the log to the minute.

    >>> say_moment("2026-03-01T12:30:00.000000Z")
    '2026-03-01 12:30 UTC'
    """
    return f"{at[:10]} {at[11:16]} UTC"


def say_label(shown: Mapping[str, Any], label: Mapping[str, Any], language: str) -> str:
    return KINDS[shown["kind"]].say(shown, label, Spoken(language))


def say_known(gold: Mapping[str, Any], order: Sequence[int], language: str) -> list[Markup]:
    """What is known of a task's answers, a line each, with the letters under which they were shown."""
    voice, lines = Spoken(language), list[Markup]()
    for name, right in gold.items():
        if name in ("better", "best"):
            lines.append(voice.speak("lesson-best", answer=LETTERS[order.index(right)]))
        elif name == "labels":
            steps = (
                voice.put("{}: {}", n, voice.speak(f"steps-{word}")) for n, word in enumerate(right, start=1)
            )
            lines.append(voice.join(", ", steps))
        else:
            # Flags are a list of words of each answer, points from and to how many.
            of_place = [
                map(voice.own, right[candidate])
                if name == "flags"
                else [voice.put("{}–{}", *(f"{end:g}" for end in right[candidate]))]
                for candidate in order
            ]
            parts = (
                voice.put("{}: {}", letter, voice.join(", ", words) or "–")
                for letter, words in zip(LETTERS, of_place, strict=False)
            )
            lines.append(voice.put("{}: {}", voice.own(name), voice.join("; ", parts)))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    summary: str
    """What was chosen, in a line; the same for the same choice."""
    flags: tuple[Markup, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    """What was written, each with the field of the label."""
    turns: tuple[dict[str, str], ...] = ()


def describe(
    label: Mapping[str, Any], body: Mapping[str, Any], order: Sequence[int], project: Project, language: str
) -> Described:
    """A label in words of a language; ``order`` says which answer was shown at which place."""
    kind, voice = KINDS[body["kind"]], Spoken(language)
    flags = zip(order, label.get("flags", ()), strict=False)
    return Described(
        summary=kind.summary(label, order, project, voice),
        flags=tuple(
            voice.put("{}: {}", LETTERS[place], voice.join(", ", map(voice.own, given)))
            for place, given in sorted(flags)
            if given
        ),
        texts=tuple((name, label[name]) for name in kind.texts if label.get(name)),
        turns=tuple(_turns(label)),
    )


def turns_of_label(label: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "turns" in label:
        return [dict(turn) for turn in label["turns"]]
    messages = [message["content"] for message in label.get("messages", ())]
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return [{"message": message, "answers": [answer], "strength": None} for message, answer in pairs]


def _turns(label: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a conversation; of two answers the one that it went on with."""
    return [
        {"role": role, "content": text}
        for turn in turns_of_label(label)
        for role, text in (
            ("user", turn["message"]),
            ("assistant", turn["answers"][int((turn["strength"] or 0) > 0)]),
        )
    ]
