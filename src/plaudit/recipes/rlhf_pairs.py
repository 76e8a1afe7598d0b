"""Pairs of answers that wait to be compared, and the file in which people compare them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from plaudit.batches.question import Question
from plaudit.errors import UserError
from plaudit.recipes.loop_draws import Said
from plaudit.recipes.loop_rounds import is_whole
from plaudit.recipes.rlhf_config import PEOPLE
from plaudit.records.dicts import text_as_plain
from plaudit.records.judging import Task, Verdict
from plaudit.rewards.comparing import Better, verdict_for
from plaudit.training import durable, exact_json

SKIP = "skip"
"""What people write of a pair of which nothing can be said."""
_SAID = (*get_args(Better), SKIP)
_SHOWN = ("pair", "origin", "prompt", "first", "second")
_OPTIONAL = ("strength", "annotator", "group")
_FEW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two answers to one question.

    Example: ``Pair(number=1, question=question, first="Mice.", second="Bark.")``
    """

    number: int
    """Its place in the round; the first is 1."""
    question: Question
    """What was asked."""
    first: str
    """The answer that is shown first; which one that is, is left to chance."""
    second: str
    """The other one."""

    @property
    def task(self) -> Task:
        """What a comparer is asked."""
        return self.question.task(((self.first, True), (self.second, True)))


def pairs_of(asked: Sequence[Question], groups: Sequence[Sequence[Said]], seed: str) -> list[Pair]:
    """Of each question's answers the first two that differ and came to an end."""
    chance, found = random.Random(f"{seed}/shown"), list[Pair]()
    for question, group in zip(asked, groups, strict=True):
        texts: dict[str, str] = {}
        for said in group:
            if is_whole(said):
                texts.setdefault(said.text.strip(), said.text)
        if len(texts) > 1:
            first, second = chance.sample(list(texts.values())[:2], 2)
            found.append(Pair(number=len(found) + 1, question=question, first=first, second=second))
    if not found:
        raise UserError(
            "no prompt has two answers that differ and came to an end, so there is nothing to compare: draw "
            "more with --loop.answers, raise --draw.temperature, or give more room with --draw.max-tokens"
        )
    return found


def filled(path: Path, pairs: Sequence[Pair]) -> list[Verdict | None]:
    """What people wrote of each pair; a file that is not there is made, and the loop then waits for it."""
    if not path.exists():
        lines = (exact_json.dumps({**_as_row(pair), "better": None}) + "\n" for pair in pairs)
        durable.write_text(path, "".join(lines))
    rows = _rows(path, {pair.number for pair in pairs})
    faults = [fault for pair in pairs for fault in _faults(pair, rows[pair.number])]
    if faults:
        raise UserError(_listed(path, faults) + _HOW)
    waiting = [pair.number for pair in pairs if rows[pair.number].get("better") is None]
    if waiting:
        few = "" if len(waiting) == len(pairs) else f" ({_few(waiting)})"
        raise UserError(
            f"{path}: {len(waiting)} of {len(pairs)} pairs wait to be compared{few}. {_HOW}.\n"
            "Then give the same command again"
        )
    return [_verdict(rows[pair.number]) for pair in pairs]


_HOW = (
    'Write in each row as "better" which answer is: "first", "second", "tie", or "skip" where nothing can be '
    'said. "strength" (1 to 3), "annotator" and "group" may be added; the rest stays as it is'
)


def _as_row(pair: Pair) -> dict[str, Any]:
    return {
        "pair": pair.number,
        "origin": pair.question.origin,
        "prompt": text_as_plain(pair.question.text),
        "first": pair.first,
        "second": pair.second,
    }


def _rows(path: Path, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """The rows by the number of their pair, each there once."""
    found: dict[int, dict[str, Any]] = {}
    faults: list[str] = []
    for place, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except ValueError as error:
            faults.append(f"line {place}: no JSON ({error})")
            continue
        number = row.get("pair") if isinstance(row, dict) else None
        if isinstance(number, bool) or not isinstance(number, int) or number not in wanted:
            faults.append(f"line {place}: its pair is {number!r}, and there are 1 to {len(wanted)}")
        elif number in found:
            faults.append(f"line {place}: pair {number} is there already")
        else:
            found[number] = row
    missing = sorted(wanted - {*found})
    faults += [f"not there: {_few(missing)}"] if missing and not faults else []
    if faults:
        raise UserError(
            _listed(path, faults) + " Mend it; deleted, it is written anew, without what was filled in"
        )
    return found


def _faults(pair: Pair, row: Mapping[str, Any]) -> Iterator[str]:
    """What people cannot have meant."""
    where = f"pair {pair.number}"
    shown = _as_row(pair)
    altered = [name for name in _SHOWN if row.get(name) != shown[name]]
    unknown = [name for name in row if name not in (*_SHOWN, "better", *_OPTIONAL)]
    better, strength = row.get("better"), row.get("strength")
    if altered:
        yield f"{where}: its {' and '.join(altered)} is not what was drawn"
    if unknown:
        yield f"{where}: there is no {' and no '.join(map(repr, unknown))}"
    if better is not None and better not in _SAID:
        yield f"{where}: better is {better!r}"
    if strength is not None and (strength not in (1, 2, 3) or better not in ("first", "second")):
        yield f"{where}: strength is {strength!r}, beside better {better!r}"
    for name in ("annotator", "group"):
        if not isinstance(row.get(name), str | None):
            yield f"{where}: {name} is {row[name]!r}, and a text is needed"


def _verdict(row: Mapping[str, Any]) -> Verdict | None:
    if row["better"] == SKIP:
        return None
    strength = row.get("strength")
    return verdict_for(
        row["better"],
        annotator=row.get("annotator") or PEOPLE,
        group=row.get("group"),
        strength=None if strength is None else int(strength),
    )


def _listed(path: Path, faults: Sequence[str]) -> str:
    more = f"\n  and {len(faults) - _FEW} more" if len(faults) > _FEW else ""
    return f"{path}:\n" + "\n".join(f"  {fault}" for fault in faults[:_FEW]) + more + "\n"


def _few(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _FEW} more" if len(numbers) > _FEW else ""
    return f"pair{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:_FEW]))}{more}"
