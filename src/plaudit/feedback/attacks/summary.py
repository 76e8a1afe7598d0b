"""What attacks on policies found, in one frozen record, and the files that it is written to.

Attack success stands beside the refusal of harmless twins and the unequal refusal of mirrored pairs; where
one of these was not measured, ``missing`` says so, and whatever shows the others shows that too. The files
are attack.json and every conversation in answers.jsonl.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.stats import Estimate
from plaudit.feedback.attacks.attempt import Finding
from plaudit.feedback.attacks.figures import Paired, attack_share, paired
from plaudit.files import exact_json
from plaudit.files.atomic import AtomicFile, make_output_folder, write_json

ATTACK_FILE = "attack.json"
ANSWERS_FILE = "answers.jsonl"
"""Every conversation with its answers and what was found of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    name: str
    """The category, the source, or what was done."""
    attempts: int
    unjudged: int
    """Of how many nobody can say whether it happened; they are in no share."""
    share: Estimate | None
    answers: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    pairs: int
    unjudged: int
    """Of how many one side is not known."""
    paired: Paired | None
    """Refusals of the first sides beside those of the second; None where all are unjudged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAttack:
    policy: str
    hash: str
    """The hash of its content; of a model on a server, of its address and name."""
    success: Rate
    """Of all attempts but those of the archive."""
    by_category: tuple[Rate, ...]
    by_source: tuple[Rate, ...]
    by_turns: tuple[float, ...] = ()
    """Of attempts over several turns, the share that had worked after the first, the second …"""
    refusal: Rate | None = None
    """Of harmless twins; None where there were none."""
    refusal_by_category: tuple[Rate, ...] = ()
    """The same by the kind of prompt that they are twins of."""
    mirrored: Mirrored | None = None
    archive: Rate | None = None
    """Of what worked before, against whichever policy; None where nothing had."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    """Why nobody can say, and of how many answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Two policies beside each other, on the same prompts."""

    what: str
    """Attack success, or over-refusal."""
    policy: str
    against: str
    paired: Paired
    """Both shares: of the later policy first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    writer: str
    requested: int
    fresh: int
    repeated: int
    """How many it had written before, or were there already."""
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport:
    """All figures of attacks on one or several policies."""

    judge: str
    """Who says whether an answer did harm, with the version."""
    refusal_judge: str | None
    """Who says whether an answer declined."""
    sampling: str
    """How answers were drawn, in words."""
    answers: int
    turns: int
    policies: tuple[PolicyAttack, ...]
    """In the order in which they were named."""
    gaps: tuple[Gap, ...] = ()
    """Each later policy beside the first."""
    written: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What was not measured, so that the other figures are not read for the whole."""


def rate(name: str, findings: Sequence[Finding]) -> Rate:
    decided = [finding for finding in findings if finding.happened is not None]
    shared = [finding for finding in findings if finding.share is not None]
    return Rate(
        name=name,
        attempts=len(findings),
        unjudged=len(findings) - len(decided),
        share=attack_share([float(bool(f.happened)) for f in decided], [f.unit for f in decided]),
        answers=attack_share([f.share or 0.0 for f in shared], [f.unit for f in shared]),
    )


def rates_by(findings: Sequence[Finding], name_of: Callable[[Finding], str]) -> tuple[Rate, ...]:
    names = dict.fromkeys(map(name_of, findings))
    return tuple(rate(name, [f for f in findings if name_of(f) == name]) for name in names)


def failures_of(findings: Sequence[Finding]) -> dict[str, int]:
    """Why nobody can say of answers, with how many there are."""
    reasons = (answer.reason for finding in findings for answer in finding.answers)
    return dict(Counter(reason for reason in reasons if reason is not None))


def mirrored_of(pairs: Sequence[tuple[Finding, Finding]], names: Sequence[str]) -> Mirrored | None:
    """How much more often the first sides are refused; None where there are no pairs."""
    if not pairs:
        return None
    known = [
        (first, second, name)
        for (first, second), name in zip(pairs, names, strict=True)
        if first.happened is not None and second.happened is not None
    ]
    found = paired(
        [bool(first.happened) for first, _, _ in known],
        [bool(second.happened) for _, second, _ in known],
        [name for _, _, name in known],
    )
    return Mirrored(pairs=len(pairs), unjudged=len(pairs) - len(known), paired=found)


NamedFindings = tuple[str, Sequence[Finding]]


def gap_between(what: str, mine: NamedFindings, theirs: NamedFindings) -> Gap | None:
    """One policy beside another, on what both were asked; None where nothing is known of both."""
    other = {finding.origin: finding for finding in theirs[1]}
    both = [(finding, other[finding.origin]) for finding in mine[1] if finding.origin in other]
    known = [(a, b) for a, b in both if a.happened is not None and b.happened is not None]
    found = paired(
        [bool(a.happened) for a, _ in known], [bool(b.happened) for _, b in known], [a.unit for a, _ in known]
    )
    return None if found is None else Gap(what=what, policy=mine[0], against=theirs[0], paired=found)


def write_attack(
    report: AttackReport, findings: Mapping[str, Mapping[str, Sequence[Finding]]], folder: Path
) -> list[Path]:
    make_output_folder(folder)
    with AtomicFile(folder / ANSWERS_FILE) as file:
        for policy, kinds in findings.items():
            for kind, found in kinds.items():
                file.stream.writelines(_line(policy, kind, finding) for finding in found)
    # Tuples become lists, which is how they are read back.
    write_json(folder / ATTACK_FILE, json.loads(json.dumps(asdict(report))))
    return [folder / ATTACK_FILE, folder / ANSWERS_FILE]


def read_attack(path: Path) -> AttackReport:
    try:
        return exact_json.restore(AttackReport, exact_json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: these are no figures of attacks, or they are damaged ({error})") from error


def _line(policy: str, kind: str, finding: Finding) -> bytes:
    attempt = finding.attempt
    row: dict[str, Any] = {
        "policy": policy,
        "asked": kind,
        "category": attempt.category,
        "source": attempt.source,
        "goal": attempt.goal,
        "turns": finding.turns,
        "conversation": text_to_json(attempt.turns),
        "happened": finding.happened,
        "answers": [asdict(answer) for answer in finding.answers],
    }
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
