"""A label, a moment and a question in the words of the reader's language, in one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from plaudit.collect.app.render import words
from plaudit.collect.project import Project

Speak = Callable[..., str]
"""A function from the key of words, and what stands in their places, to the words."""
LETTERS = "ABCDEFGHI"
"""What the answers of a task are called, in the order shown."""
_QUESTION = next(field.default for field in fields(Project) if field.name == "question")


def say_question(shown: Mapping[str, Any], speak: Speak) -> str:
    """What is asked: the project's own words, or those of the kind where the project has none."""
    if shown["question"] != _QUESTION:
        return shown["question"]
    return speak(
        "default: Which answer is better?" if shown["kind"] == "pair" else f"question-{shown['kind']}"
    )


def say_moment(at: str) -> str:
    """A moment of the log to the minute.

    >>> say_moment("2026-03-01T12:30:00.000000Z")
    '2026-03-01 12:30 UTC'
    """
    return f"{at[:10]} {at[11:16]} UTC"


def say_label(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    """A label in a line, as the person who gave it reads it."""
    return _SAYINGS[shown["kind"]](shown, label, speak)


def _say_strength(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    if label.get("none"):
        return speak("pair-none")
    strength = label["strength"]
    if strength == 0:
        return speak("pair-equal")
    degree = shown["scale"][min(abs(strength), len(shown["scale"])) - 1]
    key = f"default: {degree}"
    how = speak(key) if key in words("en") else degree
    return speak("pair-better", answer=LETTERS[strength > 0], how=how)


def _say_rank(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    del shown
    if label.get("none"):
        return speak("history-rank-none")
    groups = [" = ".join(LETTERS[place] for place in group) for group in label["groups"]]
    return speak("history-rank", order=" › ".join(groups))


def _say_rate(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    columns = [*label.get("points", {}).values(), label.get("thumbs", ())]
    rated = {place for column in columns for place, value in enumerate(column) if value is not None}
    del shown
    return speak("history-rate", n=len(rated))


def _say_text(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    del shown, speak
    line = " ".join(label["answer"].split())
    return line if len(line) <= 140 else f"{line[:139]}…"


def _say_steps(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    del shown
    return speak("history-steps", n=len(label["labels"]))


def _say_talk(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    del shown
    return speak("history-talk", n=len(label.get("turns", ())))


def _say_attack(shown: Mapping[str, Any], label: Mapping[str, Any], speak: Speak) -> str:
    del shown
    return speak(f"attack-success-{label['success']}")


_SAYINGS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any], Speak], str]] = {
    "pair": _say_strength,
    "rank": _say_rank,
    "rate": _say_rate,
    "write": _say_text,
    "steps": _say_steps,
    "talk": _say_talk,
    "attack": _say_attack,
}
