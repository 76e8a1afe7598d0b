"""What was proven as tables for eyes, and as one JSON file for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from plaudit.proof.claim import Measured
from plaudit.proof.prove import Proof
from plaudit.sources.atomic import AtomicFile

FILE = "proof.json"
"""Where programs read it."""


def proof_table(proofs: Sequence[Proof]) -> Table:
    """A line for each row: what it comes to, beside π*.

    >>> proof_table([]).row_count
    0
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for head in ("slope at π*", "distance", "KL", "E r", "J lost"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("π*", no_wrap=True)
    for one in proofs:
        figures = (f"{one.slope:.0e}", f"{one.distance:.0e}", f"{one.kl:.2f}", f"{one.reward:.2f}")
        table.add_row(one.name, *figures, f"{one.lost:.0e}", "reached" if one.reaches else "–")
    return table


def claim_table(found: Sequence[Measured]) -> Table:
    """A line for each claim: expected, measured, verdict.

    >>> claim_table([]).row_count
    0
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("claim")
    for head in ("expected", "measured"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one in found:
        verdict = "holds" if one.holds else "FAILS"
        table.add_row(one.claim.name, one.claim.sentence, one.claim.expected, f"{one.value:.1e}", verdict)
    return table


def as_dict(proofs: Sequence[Proof], found: Sequence[Measured], *, seed: int, beta: float) -> dict[str, Any]:
    """Everything that was proven, for JSON.

    >>> as_dict([], [], seed=0, beta=0.5)["holds"]
    True
    """
    return {
        "seed": seed,
        "beta": beta,
        "holds": all(one.holds for one in found),
        "proofs": [asdict(one) | {"reaches": one.reaches} for one in proofs],
        "claims": [_claim(one) for one in found],
    }


def write_json(said: dict[str, Any], folder: Path) -> Path:
    """The file, written as a whole or not at all."""
    path = folder / FILE
    with AtomicFile(path) as file:
        file.stream.write((json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode())
    return path


def _claim(one: Measured) -> dict[str, Any]:
    bounds = {"low": one.claim.low, "high": one.claim.high}
    return {
        "name": one.claim.name,
        "claim": one.claim.sentence,
        **{side: bound for side, bound in bounds.items() if math.isfinite(bound)},
        "measured": one.value if math.isfinite(one.value) else None,
        "holds": one.holds,
    }
