"""What is said of one metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    """One metric in a reader's words.

    Example: ``MetricDoc(name="rows", what="Rows of this step.", normal="…", strange="…")``
    """

    name: str
    """Its name in the report; those under ``timing`` carry ``timing/``."""
    what: str
    """What it is."""
    normal: str
    """What a healthy run shows."""
    strange: str
    """What an odd value means and where to look."""
    better: Literal["lower", "higher"] | None = None
    """Which direction is better, where one is; the best checkpoint is chosen by it."""
