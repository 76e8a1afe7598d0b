"""What lies beside a model that judges in words: how it was asked in training, and is to be asked again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.records.worded_form import Form, ask_better, ask_critique, ask_good, ask_points
from plaudit.records.worded_settings import (
    CriticSettings,
    QuoteSettings,
    RankerSettings,
    TextRewardSettings,
    WordedSettings,
)

WORDED_FACTS = "worded.json"
"""The file that makes a folder a judge in words."""

KINDS: Mapping[str, type[WordedSettings]] = {
    "text-reward": TextRewardSettings,
    "ranker": RankerSettings,
    "critic": CriticSettings,
}
"""The three ways to judge, by what the command calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """All that decides how a model is asked.

    Example: ``Wording(settings=TextRewardSettings(good="Yes", bad="No"), max_length=512)``
    """

    settings: WordedSettings
    """The words."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""
    max_length: int = 2048
    """The longest row in tokens that was trained; longer ones are not judged."""

    @property
    def kind(self) -> str:
        """Which of the three it is.

        >>> Wording(settings=RankerSettings()).kind
        'ranker'
        """
        return next(name for name, kind in KINDS.items() if isinstance(self.settings, kind))

    def form(self, encoder: Encoder) -> Form:
        """How a question is put to the model of this tokenizer."""
        return Form(quote=self.quote, chat=encoder.manner is not None, controls=encoder.info.specials)

    def template(self) -> tuple[str, ...]:
        """The questions, for eyes, with names in braces where texts will stand."""
        form, pair = Form(quote=self.quote, chat=False), ("{prompt}", "{answer}")
        match self.settings:
            case TextRewardSettings() as words:
                asked = [ask_good(words, form, *pair)]
            case RankerSettings() as words:
                asked = [ask_better(words, form, "{prompt}", ("{answer 1}", "{answer 2}"))]
            case CriticSettings() as words:
                asked = [ask_critique(words, form, *pair), ask_points(words, form, pair, "{critique}")]
        return tuple(str(question) for question in asked)

    def facts(self) -> dict[str, Any]:
        """As an object for JSON."""
        return {
            "kind": self.kind,
            "words": asdict(self.settings),
            "quote": asdict(self.quote),
            "max_length": self.max_length,
            "template": list(self.template()),
        }


def read_wording(folder: Path) -> Wording:
    """The wording of a model folder; what is damaged is named."""
    path = folder / WORDED_FACTS
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: no such file, so the folder says nothing of how its model is asked; it is written by "
            f"plaudit train {', '.join(KINDS)}"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if not isinstance(facts, dict) or facts.get("kind") not in KINDS:
        raise UserError(f"{path}: its kind is not one of {', '.join(KINDS)}")
    longest = facts.get("max_length")
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        raise UserError(f"{path}: max_length is {longest!r}, and should be a whole number from 1")
    return Wording(
        settings=_built(KINDS[facts["kind"]], facts.get("words"), path, "words"),
        quote=_built(QuoteSettings, facts.get("quote"), path, "quote"),
        max_length=longest,
    )


def _built(kind: type[Any], said: object, path: Path, name: str) -> Any:
    """Settings from what the file says; each must be there and of the type that its default has."""
    if not isinstance(said, dict):
        raise UserError(f"{path}: {name} is not an object")
    known = {part.name: part.default for part in fields(kind)}
    for key, value in said.items():
        if key not in known or not _is_like(value, known[key]):
            raise UserError(f"{path}: {name}.{key} is {value!r}, which is no setting of {kind.__name__}")
    if missing := sorted(set(known) - set(said)):
        raise UserError(f"{path}: {name} lacks {', '.join(missing)}")
    return kind(**said)


def _is_like(value: object, default: object) -> bool:
    assert default is not MISSING
    if default is None:
        return value is None or isinstance(value, str)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)
