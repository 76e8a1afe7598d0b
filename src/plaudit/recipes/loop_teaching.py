"""The training of a round, by the recipes that there are for its rows."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from plaudit.recipes.config import RunConfig
from plaudit.recipes.loop_config import LoopConfig, LoopSettings
from plaudit.recipes.loop_rounds import Round
from plaudit.recipes.loop_table import LoopFacts
from plaudit.recipes.preference import preference
from plaudit.recipes.preference_config import PreferenceConfig, ReferenceSettings
from plaudit.recipes.preference_rows import row_of
from plaudit.recipes.preference_table import PREFERENCES
from plaudit.recipes.sft import sft

_OWN = ("model", "data", "out", "format")


def refuse_what_cannot_be_taught(facts: LoopFacts, how: LoopSettings, config: LoopConfig) -> None:
    """Complain about settings of a preference row that it does not have, before anything is drawn."""
    if facts.pairs:
        row_of(how.teach or facts.teach, config.preference)


def teach(facts: LoopFacts, how: LoopSettings, config: LoopConfig, one: Round) -> None:
    """Train on the rows of a round, or go on with that."""
    said: dict[str, Any] = {
        each.name: getattr(config, each.name) for each in fields(RunConfig) if each.name not in _OWN
    }
    said |= {"model": one.model, "data": one.rows, "out": one.run, "format": "plaudit"}
    if not facts.pairs:
        sft(RunConfig(**said))
        return
    teacher = how.teach or facts.teach
    reference = _reference(how, config, one) if PREFERENCES[teacher].reference else ReferenceSettings()
    preference(teacher, PreferenceConfig(**said, preference=config.preference, reference=reference))


def _reference(how: LoopSettings, config: LoopConfig, one: Round) -> ReferenceSettings:
    """The model that the round trains, or the start. No other run will want these log-probs."""
    away = how.reference == "start" and one.model != config.model
    return ReferenceSettings(model=config.model if away else None, cache=one.folder / "reference")
