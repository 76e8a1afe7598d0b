"""Pairs of answers to be compared, and the file in which people compare them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from plaudit.data.judging import PairOutcome, Task, Verdict, pair_verdict
from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.methods.iterative.config import PEOPLE
from plaudit.methods.iterative.rounds import ScoredAnswer, is_complete
from plaudit.tokens.prompts import EncodedPrompt

SKIP = "skip"
"""The value of "better" for a pair that cannot be compared."""
_BETTER_VALUES = (*get_args(PairOutcome), SKIP)
_FIXED_FIELDS = ("pair", "origin", "prompt", "first", "second")
_OPTIONAL_FIELDS = ("strength", "annotator", "group")
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """Two answers to one prompt.

    Example: ``AnswerPair(number=1, prompt=prompt, first="Mice.", second="Bark.")``
    """

    number: int
    """Its number in the round; the first is 1."""
    prompt: EncodedPrompt
    """The prompt."""
    first: str
    """The answer that is shown first; the order is random."""
    second: str
    """The second answer."""

    @property
    def task(self) -> Task:
        """The pair as a judge takes it."""
        return self.prompt.task(((self.first, True), (self.second, True)))


def make_pairs(
    prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[ScoredAnswer]], seed: str
) -> list[AnswerPair]:
    """For each prompt the first two answers that differ and ended by themselves, in random order."""
    rng, pairs = random.Random(f"{seed}/shown"), list[AnswerPair]()
    for encoded_prompt, group in zip(prompts, groups, strict=True):
        texts: dict[str, str] = {}
        for answer in group:
            if is_complete(answer):
                # Blanks at the ends make no difference that anyone could judge.
                texts.setdefault(answer.text.strip(), answer.text)
        if len(texts) > 1:
            # In random order, since people and models alike favour the answer that stands first.
            first, second = rng.sample(list(texts.values())[:2], 2)
            pairs.append(AnswerPair(number=len(pairs) + 1, prompt=encoded_prompt, first=first, second=second))
    if not pairs:
        raise UserError(
            "no prompt has two answers that differ and came to an end, so there is nothing to compare: draw "
            "more with --loop.answers, raise --draw.temperature, or give more room with --draw.max-tokens"
        )
    return pairs


def read_verdicts(path: Path, pairs: Sequence[AnswerPair]) -> list[Verdict | None]:
    """The verdicts that people wrote; writes the file where it is missing, raises where pairs are open."""
    if not path.exists():
        lines = (exact_json.dumps({**_as_row(pair), "better": None}) + "\n" for pair in pairs)
        atomic.write_text(path, "".join(lines))
    rows = _rows_by_pair(path, {pair.number for pair in pairs})
    faults = [fault for pair in pairs for fault in _faults(pair, rows[pair.number])]
    if faults:
        raise UserError(_fault_message(path, faults) + _INSTRUCTIONS)
    waiting = [pair.number for pair in pairs if rows[pair.number].get("better") is None]
    if waiting:
        which = "" if len(waiting) == len(pairs) else f" ({_pair_numbers(waiting)})"
        raise UserError(
            f"{path}: {len(waiting)} of {len(pairs)} pairs wait to be compared{which}. {_INSTRUCTIONS}.\n"
            "Then give the same command again"
        )
    return [_verdict(rows[pair.number]) for pair in pairs]


_INSTRUCTIONS = (
    'Write in each row as "better" which answer is: "first", "second", "tie", or "skip" where nothing can be '
    'said. "strength" (1 to 3), "annotator" and "group" may be added; the rest stays as it is'
)


def _as_row(pair: AnswerPair) -> dict[str, Any]:
    return {
        "pair": pair.number,
        "origin": pair.prompt.origin,
        "prompt": text_to_json(pair.prompt.text),
        "first": pair.first,
        "second": pair.second,
    }


def _rows_by_pair(path: Path, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """The rows by the number of their pair, each there once."""
    row_by_pair: dict[int, dict[str, Any]] = {}
    faults: list[str] = []
    # At line feeds only: JSON strings may hold U+2028 and others that splitlines would break at.
    for line_number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            # Editors on Windows put a byte-order mark in front, which json refuses.
            row = json.loads(line.decode("utf-8-sig"))
        except ValueError as error:
            faults.append(f"line {line_number}: no JSON ({error})")
            continue
        number = row.get("pair") if isinstance(row, dict) else None
        # True is an int to Python and would pass for pair 1.
        if isinstance(number, bool) or not isinstance(number, int) or number not in wanted:
            faults.append(f"line {line_number}: its pair is {number!r}, and there are 1 to {len(wanted)}")
        elif number in row_by_pair:
            faults.append(f"line {line_number}: pair {number} is there already")
        else:
            row_by_pair[number] = row
    missing = sorted(wanted - {*row_by_pair})
    # Only beside no other fault: a line that could not be read would be reported missing too.
    faults += [f"not there: {_pair_numbers(missing)}"] if missing and not faults else []
    if faults:
        raise UserError(
            _fault_message(path, faults) + " Mend it; deleted, it is written anew, without what was filled in"
        )
    return row_by_pair


def _faults(pair: AnswerPair, row: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a row that people filled in."""
    label = f"pair {pair.number}"
    expected = _as_row(pair)
    # A verdict on a text that was edited would be learnt for one that the policy wrote.
    altered = [name for name in _FIXED_FIELDS if row.get(name) != expected[name]]
    unknown = [name for name in row if name not in (*_FIXED_FIELDS, "better", *_OPTIONAL_FIELDS)]
    better, strength = row.get("better"), row.get("strength")
    if altered:
        yield f"{label}: its {' and '.join(altered)} is not what was drawn"
    if unknown:
        yield f"{label}: there is no {' and no '.join(map(repr, unknown))}"
    if better is not None and better not in _BETTER_VALUES:
        yield f"{label}: better is {better!r}"
    if strength is not None and (strength not in (1, 2, 3) or better not in ("first", "second")):
        yield f"{label}: strength is {strength!r}, beside better {better!r}"
    for name in ("annotator", "group"):
        if not isinstance(row.get(name), str | None):
            yield f"{label}: {name} is {row[name]!r}, and a text is needed"


def _verdict(row: Mapping[str, Any]) -> Verdict | None:
    if row["better"] == SKIP:
        return None
    strength = row.get("strength")
    return pair_verdict(
        row["better"],
        annotator=row.get("annotator") or PEOPLE,
        group=row.get("group"),
        strength=None if strength is None else int(strength),
    )


def _fault_message(path: Path, faults: Sequence[str]) -> str:
    more = f"\n  and {len(faults) - _MAX_LISTED} more" if len(faults) > _MAX_LISTED else ""
    return f"{path}:\n" + "\n".join(f"  {fault}" for fault in faults[:_MAX_LISTED]) + more + "\n"


def _pair_numbers(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _MAX_LISTED} more" if len(numbers) > _MAX_LISTED else ""
    return f"pair{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:_MAX_LISTED]))}{more}"
