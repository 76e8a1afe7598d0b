"""From a name and settings to the row of cells that the preference trainer runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from torch import Tensor

from plaudit.errors import UserError
from plaudit.losses import preference, transport, unpaired
from plaudit.losses.answers import (
    Answers,
    Link,
    Measure,
    alpha_divergence,
    desensitised,
    forward_kl,
    jensen_shannon,
    log_ratio,
    on_policy,
    per_token,
    total,
)
from plaudit.recipes.preference_config import PreferenceSettings
from plaudit.recipes.preference_table import PREFERENCES, PreferenceFacts, Value
from plaudit.training.preference_row import (
    Baseline,
    Known,
    PairLoss,
    PreferenceRow,
    SingleRow,
    mixed,
    plain,
)

Algorithm = str | PreferenceRow | SingleRow
"""A name of the table, or a row of one's own."""

_UNSET = PreferenceSettings()
_SWITCHES = {
    "pairs": ("measure", "link", "alpha", "price", "tail", "hold", "weigh", "nll"),
    "thumbs": ("measure", "link", "alpha", "price"),
}
"""What any row of its kind can be told beside what is its own."""
_OF_REFERENCES = ("link", "alpha", "hold")
_UNREAD = {"aot": ("link", "alpha", "price", "hold"), "odds_ratio": ("price",)}
"""Switches that mean nothing to a loss: it reads log-probs themselves, or takes Δ for a probability's log."""
_IN_MIX = {"beta", "smoothing", "tau"}
"""What the rows may have as their own whose losses can be mixed; of others the loss alone is not the row."""
_SORTED = {"aot": transport.aot, "aot_unpaired": transport.aot_unpaired}
_OWN_SETTINGS = {
    "cdpo": ("beta", "smoothing"),
    "robust": ("beta", "smoothing"),
    "exo": ("beta", "smoothing"),
    "aot": ("beta", "smoothing"),
    "aot_unpaired": ("beta", "smoothing"),
    "discopop": ("beta", "tau"),
    "simpo": ("beta", "margin"),
    "odds_ratio": ("odds",),
}
"""The settings that each loss takes; of all others it is β."""
_BASELINES: Mapping[str, Baseline] = {"bco_pair": "running", "bco": "running", "kto": "mismatched"}
"""The reference points that losses and algorithms have."""


def row_of(algorithm: Algorithm, settings: PreferenceSettings = _UNSET) -> PreferenceRow | SingleRow:
    """The algorithm with its own settings, where no other ones were given; a row of one's own as it is.

    >>> row_of("dpo").beta, row_of("simpo").referenced
    (0.1, False)
    """
    if not isinstance(algorithm, str):
        if settings != _UNSET:
            raise UserError("a row of your own has its cells already: leave out the settings of preference")
        return algorithm
    facts = facts_of(algorithm)
    values = _values(facts, settings)
    return _single(facts, values) if facts.data == "thumbs" else _paired(facts, values)


def facts_of(algorithm: Algorithm) -> PreferenceFacts:
    """The entry of the table; a name that is not there is refused with the nearest one."""
    if not isinstance(algorithm, str):
        data = "thumbs" if isinstance(algorithm, SingleRow) else "pairs"
        return PreferenceFacts(name="own", formula="a loss of your own", paper="", loss="own", data=data)
    if algorithm not in PREFERENCES:
        near = get_close_matches(algorithm, PREFERENCES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(PREFERENCES)
        raise UserError(f"no preference algorithm is called {algorithm!r}: there are {known}{hint}")
    return PREFERENCES[algorithm]


def _values(facts: PreferenceFacts, settings: PreferenceSettings) -> dict[str, Value]:
    """The row's own values, and over them what was said; what it does not read is refused."""
    allowed = {*facts.defaults, *_SWITCHES[facts.data]}
    if not facts.reference:
        allowed -= {name for name in _OF_REFERENCES if name not in facts.defaults}
    allowed -= set(_UNREAD.get(facts.loss, ()))
    said = {
        name: getattr(settings, name)
        for name in PreferenceSettings.__dataclass_fields__
        if getattr(settings, name) != getattr(_UNSET, name)
    }
    for name in said:
        if name not in allowed:
            readers = [other.name for other in PREFERENCES.values() if name in other.defaults]
            which = f", or choose among {', '.join(readers)}" if readers else ""
            raise UserError(f"preference.{name} is not part of {facts.name}: leave it out{which}")
    values = {**facts.defaults, **said}
    _refuse_contradictions(facts, values)
    return values


def _refuse_contradictions(facts: PreferenceFacts, values: Mapping[str, Value]) -> None:
    if "tail" in values and values.get("measure") == "mean":
        raise UserError(f"preference.tail is a share of a sum, and {facts.name} is told to read means")
    if "alpha" in values and values.get("link") != "alpha":
        raise UserError("preference.alpha is of one link: add --preference.link alpha")
    if facts.loss == "exo" and not values["smoothing"]:
        raise UserError("preference.smoothing is exo's target and cannot be 0: its loss would be infinite")


def _paired(facts: PreferenceFacts, values: Mapping[str, Value]) -> PreferenceRow:
    row = PreferenceRow(
        loss=_pair_loss(facts.loss, values),
        beta=_number(values.get("beta", 1.0)),
        measure=_measure(values),
        referenced=facts.reference,
        link=_link(values),
        price=_number(values.get("price", 0.0)),
        hold=_number(values.get("hold", 0.0)),
        weight=on_policy if values.get("weigh") == "on-policy" else None,
        nll=_number(values.get("nll", 0.0)),
        baseline=_BASELINES.get(facts.loss, "none"),
        sorts=facts.loss in _SORTED,
    )
    mix = values.get("mix", ())
    assert isinstance(mix, tuple)
    row = _mixed(row, mix, values) if mix else row
    if row.sorts and row.weight is not None:
        raise UserError(f"{facts.name} compares sorted batches, so its pairs have no weight: leave out weigh")
    return row


def _mixed(row: PreferenceRow, mix: tuple[str, ...], values: Mapping[str, Value]) -> PreferenceRow:
    """The losses of other rows under this row's β, measure, link and reference."""
    parts: list[tuple[float, PreferenceRow]] = []
    for word in mix:
        name, sign, weight = word.partition("=")
        facts = facts_of(name)
        if not sign or not _is_positive(weight):
            raise UserError(f"preference.mix: {word!r} is not name=weight with a weight above 0, as dpo=0.8")
        if facts not in _mixable():
            names = ", ".join(one.name for one in _mixable())
            raise UserError(
                f"preference.mix: {name} is more than a loss and cannot be mixed; choose among {names}"
            )
        own = {**facts.defaults, **{key: values[key] for key in ("beta",) if key in values}}
        part = _paired(replace(facts, reference=row.referenced), own)
        parts.append((float(weight), part))
    return mixed(parts, row)


def _mixable() -> list[PreferenceFacts]:
    """The rows that are nothing but their loss."""
    first: dict[str, PreferenceFacts] = {}
    for facts in PREFERENCES.values():
        first.setdefault(facts.loss, facts)
    return [
        facts
        for facts in first.values()
        if facts.data == "pairs"
        and facts.reference
        and set(facts.defaults) <= _IN_MIX
        and facts.loss != "aot"
    ]


def _single(facts: PreferenceFacts, values: Mapping[str, Value]) -> SingleRow:
    weights = {name: _number(values[name]) for name in ("desirable", "undesirable")}
    beta = _number(values["beta"])
    function = {"kto": unpaired.kto, "bco": unpaired.bco}[facts.loss]

    def loss(said: Answers, label_B: Tensor, known: Known) -> Tensor:
        return function(said, label_B, beta=beta, baseline=known.baseline, **weights)

    return SingleRow(
        loss=loss,
        beta=beta,
        measure=_measure(values),
        link=_link(values),
        price=_number(values.get("price", 0.0)),
        baseline=_BASELINES.get(facts.name, "none"),
    )


def _pair_loss(name: str, values: Mapping[str, Value]) -> PairLoss:
    if name == "mix":
        return plain(preference.dpo, beta=_number(values["beta"]))
    own = {key: _number(values[key]) for key in _OWN_SETTINGS.get(name, ("beta",))}
    if name in _SORTED:
        return partial(_sorted, name, own)
    if name == "bco_pair":
        return lambda chosen, rejected, known: preference.bco_pair(
            chosen, rejected, baseline=known.baseline, **own
        )
    return plain(getattr(preference, name), **own)


def _sorted(name: str, own: Mapping[str, float], chosen: Answers, rejected: Answers, known: Known) -> Tensor:
    assert known.beside is not None, "the batch was not sorted"
    return _SORTED[name](chosen, rejected, known.beside, **own)


def _measure(values: Mapping[str, Value]) -> Measure:
    if "tail" in values:
        return partial(desensitised, share=_number(values["tail"]))
    return per_token if values.get("measure") == "mean" else total


def _link(values: Mapping[str, Value]) -> Link:
    name = values.get("link", "kl")
    if name == "alpha":
        return partial(alpha_divergence, alpha=_number(values.get("alpha", 0.5)))
    return {"kl": log_ratio, "forward-kl": forward_kl, "js": jensen_shannon}[str(name)]


def _number(value: Value) -> float:
    assert isinstance(value, int | float), f"{value!r} is not a number"
    return float(value)


def _is_positive(word: str) -> bool:
    try:
        return 0 < float(word) < math.inf
    except ValueError:
        return False
