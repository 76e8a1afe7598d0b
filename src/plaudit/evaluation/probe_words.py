"""The findings of the probes in sentences."""

from __future__ import annotations

from dataclasses import replace

from plaudit.evaluation.features import Feature
from plaudit.evaluation.odds import ALWAYS, CONSTANT, NEVER
from plaudit.evaluation.probe_result import Odds, Probe

_UNPLACED = "the file does not say which answer was shown earlier"


def said(probe: Probe, feature: Feature, *, faults: tuple[str | None, str | None], known: bool) -> Probe:
    """The probe with its sentence."""
    mine, theirs = faults
    if mine == theirs == CONSTANT:
        return replace(probe, words=_UNPLACED if feature.name == "place" else CONSTANT)
    theirs = _heard(probe.annotators, theirs, feature)
    first = _verb(probe.model, mine, feature, " at equal worth" if known and feature.name != "worth" else "")
    rest = ""
    if probe.beyond is not None:
        rest = f"; over what their taste explains {_figures(probe.beyond)}"
    return replace(probe, words=f"{first}; its annotators {theirs}{rest}")


def _verb(odds: Odds | None, fault: str | None, feature: Feature, where: str) -> str:
    """What the model does."""
    if odds is None:
        decided = {ALWAYS: feature.more, NEVER: feature.less}
        if fault in decided:
            return f"always prefers {decided[fault]} where two differ in it, so the odds have no end"
        return f"no odds: {fault}"
    if odds.low <= 1 <= odds.high:
        return f"no preference for {feature.more}{where} can be shown: {_figures(odds)}"
    if odds.ratio >= 1:
        return f"prefers {feature.more} {_times(odds)}{where} ({_range(odds)})"
    turned = Odds(ratio=1 / odds.ratio, low=1 / odds.high, high=1 / odds.low)
    return f"prefers {feature.less} {_times(turned)}{where} ({_range(turned)})"


def _heard(odds: Odds | None, fault: str | None, feature: Feature) -> str:
    """What the annotators do, as odds for the same answer as the model's."""
    if odds is None:
        decided = {ALWAYS: f"always {feature.more}", NEVER: f"always {feature.less}"}
        return decided.get(fault or "", f"no odds ({fault})")
    return f"{_figures(odds)} for {feature.more}"


def _times(odds: Odds) -> str:
    return f"{_number(odds.ratio)} times as often"


def _range(odds: Odds) -> str:
    return f"{_number(odds.low)}–{_number(odds.high)}"


def _figures(odds: Odds) -> str:
    return f"{_number(odds.ratio)} ({_range(odds)})"


def _number(value: float) -> str:
    """Two digits below 2, one above, none for what is beyond all measure.

    >>> _number(1.018), _number(2.34), _number(1234.5)
    ('1.02', '2.3', 'over 100')
    """
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 100 else "over 100"
