"""Labels and events in words, as those who manage a project read them, in the task's own order.

Answers are called by letters: A is the task's first, wherever an annotator was shown it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from plaudit.collect.app.render import speaker, visible, words
from plaudit.collect.app.saying import LETTERS
from plaudit.collect.project import Project

_ARROW, _EQUALS, _DOT = " > ", " = ", " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A label in words.

    Example: ``Described(summary="B is clearly better", flags=("A: harmful",), …)``
    """

    summary: Markup
    """What was chosen, in a line; the same for the same choice."""
    flags: tuple[Markup, ...] = ()
    """What each answer was reported for."""
    texts: tuple[tuple[str, str], ...] = ()
    """What was written: why, worked or answer, with the words."""
    turns: tuple[dict[str, str], ...] = ()
    """The messages of a conversation."""


def describe(
    label: Mapping[str, Any], body: Mapping[str, Any], order: Sequence[int], project: Project, language: str
) -> Described:
    """A label in words of a language; ``order`` says which answer was shown at which place."""
    wording = Wording(body=body, order=order, project=project, language=language)
    flags = zip(order, label.get("flags", ()), strict=False)
    return Described(
        summary=_SUMMARIES[body["kind"]](wording, label),
        flags=tuple(
            Markup("{}: {}").format(LETTERS[place], Markup(", ").join(map(wording.own, given)))
            for place, given in sorted(flags)
            if given
        ),
        texts=tuple((name, label[name]) for name in ("answer", "why", "worked") if label.get(name)),
        turns=tuple(_turns(label)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What a label is put into words with.

    Example: ``Wording(body=body, order=[1, 0], project=project, language="en").letter(0) == "B"``
    """

    body: Mapping[str, Any]
    """The task."""
    order: Sequence[int]
    """Which answer was shown at which place."""
    project: Project
    """The settings, for the words of the scale."""
    language: str
    """The language of the reader."""

    def speak(self, key: str, **places: object) -> Markup:
        """Words of the language."""
        return speaker(self.language)(key, **places)

    def own(self, word: str) -> Markup:
        """A word of the project's settings: a default one in the reader's language, another as it is."""
        return escape(visible(words(self.language).get(f"default: {word}", word)))

    def letter(self, shown: int) -> str:
        """The letter of the answer that was shown at a place."""
        return LETTERS[self.order[shown]]


def _pair(wording: Wording, label: Mapping[str, Any]) -> Markup:
    both = Markup(_DOT) + wording.speak("manage-both-bad") if label.get("both_bad") else Markup("")
    if label.get("none"):
        return wording.speak("manage-no-preference") + both
    return _strength(wording, label["strength"]) + both


def _strength(wording: Wording, strength: int) -> Markup:
    if strength == 0:
        return wording.speak("manage-equal")
    scale = wording.project.scale
    # Settings may have had another word of that degree; its number is what the label means.
    how = wording.own(scale[abs(strength) - 1]) if abs(strength) <= len(scale) else escape(abs(strength))
    better = wording.speak("manage-better", answer=wording.letter(int(strength > 0)))
    return Markup("{}: {}").format(better, how)


def _rank(wording: Wording, label: Mapping[str, Any]) -> Markup:
    if label.get("none"):
        return wording.speak("manage-no-preference")
    groups = [sorted(wording.letter(place) for place in group) for group in label["groups"]]
    return Markup('<bdi dir="ltr">{}</bdi>').format(_ARROW.join(_EQUALS.join(group) for group in groups))


def _rate(wording: Wording, label: Mapping[str, Any]) -> Markup:
    parts = list[tuple[int, Markup]]()
    for shown, place in enumerate(wording.order):
        given = [
            Markup("{} {}").format(wording.own(aspect), points[shown])
            for aspect, points in label.get("points", {}).items()
            if points[shown] is not None
        ]
        thumb = label["thumbs"][shown] if "thumbs" in label else None
        if thumb is not None:
            given.append(wording.speak("manage-thumb-up" if thumb else "manage-thumb-down"))
        if given:
            parts.append((place, Markup("{}: {}").format(LETTERS[place], Markup(", ").join(given))))
    return Markup(_DOT).join(part for _, part in sorted(parts))


def _write(wording: Wording, label: Mapping[str, Any]) -> Markup:
    return wording.speak("manage-wrote", n=len(str(label["answer"]).split()))


def _steps(wording: Wording, label: Mapping[str, Any]) -> Markup:
    if "wrong" in label["labels"]:
        return wording.speak("manage-wrong-step", step=label["labels"].index("wrong") + 1)
    return wording.speak(f"manage-ended-{label['ended']}")


def _talk(wording: Wording, label: Mapping[str, Any]) -> Markup:
    return wording.speak("manage-turns", n=len(label["turns"]))


def _attack(wording: Wording, label: Mapping[str, Any]) -> Markup:
    success = wording.speak("manage-success", success=label["success"])
    category = label.get("category")
    return success if not category else success + Markup(_DOT) + escape(visible(category))


_SUMMARIES: Mapping[str, Callable[[Wording, Mapping[str, Any]], Markup]] = {
    "pair": _pair,
    "rank": _rank,
    "rate": _rate,
    "write": _write,
    "steps": _steps,
    "talk": _talk,
    "attack": _attack,
}


def _turns(label: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a conversation; of two answers the one that it went on with."""
    if "messages" in label:
        return [{"role": message["role"], "content": message["content"]} for message in label["messages"]]
    return [
        {"role": role, "content": text}
        for turn in label.get("turns", ())
        for role, text in (
            ("user", turn["message"]),
            ("assistant", turn["answers"][int(turn["strength"] > 0)]),
        )
    ]
