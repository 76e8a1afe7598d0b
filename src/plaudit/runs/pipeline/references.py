"""How a word names another stage: ``$sft``, or within the word of a judge ``model:$critic,how=letter``."""

from __future__ import annotations

import re
from dataclasses import dataclass

START_MODEL = "model"
"""What the pipeline's own model is called, where a stage names it: ``$model``."""
HELPER = "helper"
"""What the model that judges, revises and attacks is called, where ``by`` names it: ``$helper``."""
_IN_JUDGE = re.compile(r"((?:judge:)*model:)\$([A-Za-z0-9_-]+)(,.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A stage that a word names, and the text around it.

    Example: ``Reference(before="model:", name="critic", behind=",how=letter")``
    """

    name: str
    """The stage, or ``model`` for the pipeline's own."""
    before: str = ""
    """What stands before it: who is asked how."""
    behind: str = ""

    @property
    def is_whole(self) -> bool:
        return not self.before

    def word(self, path: str) -> str:
        return f"{self.before}{path}{self.behind}"


def reference_in(word: str) -> Reference | None:
    """The reference in a word, to a stage or to the pipeline's own model; None where there is none.

    >>> reference_in("$sft"), reference_in("runs/sft")
    (Reference(name='sft', before='', behind=''), None)
    >>> reference_in("model:$critic,how=letter")
    Reference(name='critic', before='model:', behind=',how=letter')
    """
    if word.startswith("$"):
        return Reference(name=word[1:])
    found = _IN_JUDGE.fullmatch(word)
    return found and Reference(before=found[1], name=found[2], behind=found[3] or "")


def stage_in(word: str) -> str | None:
    """The name of the stage that a word names; the pipeline's own model is none.

    >>> stage_in("$sft"), stage_in("$model"), stage_in("model:$critic")
    ('sft', None, 'critic')
    """
    found = reference_in(word)
    return None if found is None or found.name == START_MODEL else found.name


def with_helper(word: str, helper: str) -> str:
    """A word in which ``$helper`` stands for this one; settings behind it stay.

    >>> with_helper("$helper,how=points", "model:runs/sft"), with_helper("$reward", "model:runs/sft")
    ('model:runs/sft,how=points', '$reward')
    """
    return f"{helper}{word.removeprefix(f'${HELPER}')}" if names_helper(word) else word


def names_helper(word: str) -> bool:
    """Whether a word is ``$helper``, with or without settings.

    >>> names_helper("$helper"), names_helper("$helper,how=points"), names_helper("$helpers")
    (True, True, False)
    """
    return word.partition(",")[0] == f"${HELPER}"
