"""What an evaluation of policies leaves: policies.json, every answer in answers.jsonl, and choices.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.evaluation.files import make_folder
from plaudit.evaluation.policies.confidence import Weighed
from plaudit.evaluation.policies.result import PolicyEvaluation, Said, Shown
from plaudit.evaluation.revive import revived
from plaudit.sources.atomic import AtomicFile

FIGURES = "policies.json"
"""All figures, and the prompts that are shown."""
ANSWERS = "answers.jsonl"
"""A row for each answer."""
CHOICES = "choices.jsonl"
"""A row for each policy and each question with choices; not there where none was asked."""


def write_results(found: PolicyEvaluation, folder: Path) -> list[Path]:
    """The files into a folder, each whole or not at all; a figure that is no number is refused."""
    make_folder(folder)
    plain = asdict(replace(found, every=(), weighed=()))
    del plain["every"], plain["weighed"]
    rows = {ANSWERS: _answers(found), CHOICES: [asdict(one) for one in found.weighed]}
    if not found.weighed:
        del rows[CHOICES]
    for where in (*_no_numbers(plain, FIGURES), *_no_numbers(rows, "")):
        raise UserError(f"{where} is not a finite number, so nothing was written to {folder}")
    (folder / CHOICES).unlink(missing_ok=True)
    # The rows first: whoever finds the figures finds all that they rest on.
    for name, lines in rows.items():
        with AtomicFile(folder / name) as file:
            file.stream.writelines(_bytes(line) for line in lines)
    with AtomicFile(folder / FIGURES) as file:
        file.stream.write(_bytes(plain, indent=2))
    return [folder / FIGURES, *(folder / name for name in rows)]


def read_results(path: Path) -> PolicyEvaluation:
    """What `write_results` wrote: of its folder, or of policies.json with the answers beside it, if any."""
    figures = path / FIGURES if path.is_dir() else path
    try:
        found = revived(PolicyEvaluation, json.loads(figures.read_bytes()))
        every = tuple(_rows(_lines(figures.parent / ANSWERS)))
        weighed = tuple(revived(Weighed, line) for line in _lines(figures.parent / CHOICES))
        return replace(found, every=every, weighed=weighed)
    except OSError as error:
        raise UserError(
            f"{figures}: no evaluation of policies can be read there ({error.strerror}); "
            "plaudit eval policy --out makes one"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{figures}: this is no evaluation of policies, or it is damaged ({error})"
        ) from error


def _answers(found: PolicyEvaluation) -> list[dict[str, Any]]:
    return [
        {"number": number, "prompt": shown.prompt, "category": shown.category, **asdict(said)}
        for number, shown in enumerate(found.every)
        for said in shown.said
    ]


def _lines(path: Path) -> list[Any]:
    content = path.read_bytes().split(b"\n") if path.is_file() else []
    return [json.loads(line) for line in content if line]


def _rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[Shown]:
    """Neighbouring answers of one number are those of all policies to one prompt."""
    by_number: dict[int, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_number.setdefault(line["number"], []).append(line)
    for same in by_number.values():
        said = tuple(revived(Said, {key: line[key] for key in Said.__dataclass_fields__}) for line in same)
        yield Shown(prompt=same[0]["prompt"], category=same[0]["category"], said=said)


def _bytes(value: object, indent: int | None = None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    # A model may say half of a surrogate pair, which is no UTF-8; JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _no_numbers(value: object, where: str) -> Iterator[str]:
    """The places of all that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: {value}"
    inside: dict[Any, Any] = {}
    if isinstance(value, dict):
        inside = value
    elif isinstance(value, list | tuple):
        inside = dict(enumerate(value))
    for name, one in inside.items():
        dotted = f"{where}.{name}".lstrip(".") if isinstance(name, str) else f"{where}[{name}]"
        yield from _no_numbers(one, dotted)
