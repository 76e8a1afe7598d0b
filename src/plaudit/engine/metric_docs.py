"""What every metric means, in words: metrics.yaml, which the table in docs/metrics.md is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    name: str
    """Its name in the report; those under ``timing`` carry ``timing/``."""
    what: str
    normal: str
    """What a healthy run shows."""
    strange: str
    """What an odd value means and where to look."""
    better: Literal["lower", "higher"] | None = None
    """Which direction is better, where one is; the best checkpoint is chosen by it."""


@cache
def metric_docs() -> Mapping[str, MetricDoc]:
    """Every metric that plaudit's own trainers report, by name, in the order of the page."""
    text = resources.files("plaudit.engine").joinpath("metrics.yaml").read_text("utf-8")
    written = yaml.safe_load(text)
    return {
        name: MetricDoc(name=name, **(_as_on_held_out_rows(entry["as"], written) if "as" in entry else entry))
        for name, entry in written.items()
    }


def _as_on_held_out_rows(name: str, written: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    what = f"{name} on the rows that are never trained: the same rows at every look."
    return {**written[name], "what": what}


def lower_is_better(name: str) -> bool | None:
    """Whether a lower value is better; None where neither direction is, or the name is not one of ours.

    >>> lower_is_better("held_out/loss"), lower_is_better("learning_rate")
    (True, None)
    """
    doc = metric_docs().get(name)
    return None if doc is None or doc.better is None else doc.better == "lower"


def metric_table() -> str:
    head = ["| metric | what it is | normal | a strange value | better |", "|---|---|---|---|---|"]
    rows = [
        f"| `{doc.name}` | {doc.what} | {doc.normal} | {doc.strange} | {doc.better or '–'} |"
        for doc in metric_docs().values()
    ]
    return "\n".join([*head, *rows]) + "\n"
