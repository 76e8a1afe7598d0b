"""What the probes for bias found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How many times as often one answer is preferred to another that lacks what is probed.

    Example: ``Odds(ratio=2.3, low=1.9, high=2.8)``
    """

    ratio: float
    """The odds ratio; 1 is indifference."""
    low: float
    """The lower end of the 95 % interval."""
    high: float
    """The upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One feature of an answer, and what it does to preferences, the other features held fixed.

    Example: ``Probe(name="length", what="the longer answer", unit="1.8 times as long", pairs=380, …)``
    """

    name: str
    """length, list, hedging, flattery, place; ``worth``, first, is the true utility that is held fixed."""
    what: str
    """The answer that the odds are for: "the longer answer"."""
    unit: str
    """The difference that the odds are per: "1.8 times as long", "with it against without"."""
    pairs: int
    """How many pairs differ in it."""
    model: Odds | None
    """Of the model; None where there is none, as ``words`` says."""
    annotators: Odds | None
    """Of the annotators."""
    excess: Odds | None
    """The model's over the annotators'."""
    beyond: Odds | None
    """The same, had the annotators been as sure of worth as the model is: 1 for a model that learnt their
    taste and nothing else. None where the true utility is not known."""
    words: str
    """The finding in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """All probes of one model.

    Example: ``Probes(pairs=400, at_equal_worth=True, features=(…,), words="")``
    """

    pairs: int
    """Pairs that the regression was fitted on."""
    at_equal_worth: bool
    """Whether the true utility was known and held fixed."""
    features: tuple[Probe, ...]
    """One for each feature, also those that could not be probed."""
    words: str
    """Why there are none, or what must be known to read them; empty where nothing must."""
