"""What the three ways to judge in words can be told; importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from plaudit.recipes.config import RunConfig
from plaudit.records.worded_settings import CriticSettings, QuoteSettings, RankerSettings, TextRewardSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRewardConfig(RunConfig):
    """A run in which a model learns to say whether an answer is good.

    Example: ``TextRewardConfig(model=Path("base"), data=Path("pairs.jsonl"), out=Path("runs/good"))``
    """

    words: TextRewardSettings = field(default_factory=TextRewardSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankerConfig(RunConfig):
    """A run in which a model learns to say which of two answers is better.

    Example: ``RankerConfig(model=Path("base"), data=Path("pairs.jsonl"), out=Path("runs/better"))``
    """

    words: RankerSettings = field(default_factory=RankerSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticConfig(RunConfig):
    """A run in which a model learns to write critiques, and points that follow from them.

    Example: ``CriticConfig(model=Path("base"), data=Path("critiques.jsonl"), out=Path("runs/critic"))``
    """

    words: CriticSettings = field(default_factory=CriticSettings)
    """What is asked and replied."""
    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""
