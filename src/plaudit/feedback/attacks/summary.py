"""What attacks on policies found, in one frozen record, and the files that it is written to.

Attack success stands beside the refusal of harmless twins and the unequal refusal of mirrored pairs; where
one of these was not measured, ``missing`` says so, and whatever shows the others shows that too. The files
are attack.json and every conversation in answers.jsonl.

A share of independent attempts has Wilson's interval (1927). Where several attempts were made from one prompt
(rewordings) or have several answers, it is Wilson's at the size that prompts are worth, and prompts are drawn
anew as a whole (bootstrap) for differences. Two shares of the same
attempts are compared by the exact test of McNemar (1947) and by the interval of Newcombe (1998, method 10).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.policies.corrected import (
    FEWEST_LABELS,
    Correction,
    PeopleLabels,
    answer_key,
    by_card,
    by_people,
)
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.shares import share_estimate, sign_flip_test
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean, wilson_interval
from plaudit.feedback.attacks.attempt import Finding
from plaudit.files import exact_json
from plaudit.files.atomic import AtomicFile, make_output_folder, write_json
from plaudit.files.restored import restore

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
    corrected: Correction | None = None
    """Attack success once the judge's errors are known; None where nothing says how it errs."""
    refusal_corrected: Correction | None = None
    """The same of harmless twins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Two policies beside each other, on the same prompts."""

    what: str
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
    answers: int
    turns: int
    policies: tuple[PolicyAttack, ...]
    gaps: tuple[Gap, ...] = ()
    """Each later policy beside the first."""
    written: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What was not measured, so that the other figures are not read for the whole."""
    uncorrected: tuple[str, ...] = ()
    """Judges that err, and by nobody's labels are corrected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCard:
    """How often a judge of single answers says Yes: where people do, and where they say No."""

    judge: str
    """With its version, as it stands in the figures."""
    matter: str
    """Harm, or refusal."""
    yes: Estimate
    no: Estimate


def answer_card(
    judge: str, matter: str, findings: Sequence[Finding], people: PeopleLabels
) -> AnswerCard | None:
    """The card of a judge on what people labelled; None where they say Yes, or No, of few prompts."""
    sides: tuple[list[tuple[float, str]], ...] = ([], [])
    for finding in findings:
        for answer in finding.answers:
            label = people.value(*answer_key(matter, finding.attempt.turns, answer.text))
            if answer.happened is not None and not math.isnan(label) and label != 0.5:
                sides[label < 0.5].append((float(answer.happened), finding.unit))
    # Labels that were chosen by what the judge says do not tell how often it says so.
    if people.probabilities or any(len({unit for _, unit in side}) < FEWEST_LABELS // 2 for side in sides):
        return None
    yes, no = (attack_share(*map(list, zip(*side, strict=True))) for side in sides)
    assert yes is not None
    assert no is not None
    return AnswerCard(judge=judge, matter=matter, yes=yes, no=no)


CARDS_FILE = "cards.json"
"""What people's labels say of the judges of harm and of refusals: the ``--card`` of later attacks."""


def read_answer_cards(path: Path) -> tuple[AnswerCard, ...]:
    try:
        return tuple(restore(AnswerCard, card) for card in exact_json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: no cards of judges of single answers, as plaudit attack --people --out writes them "
            f"into {CARDS_FILE} ({error})"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrector:
    """What is known of how the judges of an attack err."""

    people: PeopleLabels | None = None
    cards: tuple[AnswerCard, ...] = ()

    def correction(
        self, judge: str, matter: str, part: Rate | None, findings: Sequence[Finding]
    ) -> Correction | None:
        """A share as it is once people's labels, or else the card of this judge, correct it."""
        if part is None or part.share is None or part.share.low is None:
            return None
        if self.people is not None:
            decided = [finding for finding in findings if finding.happened is not None]
            keys = [
                [answer_key(matter, f.attempt.turns, answer.text) for answer in f.answers] for f in decided
            ]
            surest = [max(answer.share or 0.0 for answer in finding.answers) for finding in decided]
            sample = self.people.sample(surest, keys, group_index([finding.unit for finding in decided]))
            if (found := by_people(part.share, sample)) is not None:
                return found
        card = next((card for card in self.cards if (card.judge, card.matter) == (judge, matter)), None)
        return None if card is None else by_card(part.share, card.yes, card.no)


def uncorrected_note(judge: str) -> str:
    """What has to be said of shares that a judge's word alone stands for."""
    return (
        f"{judge} errs as all judges do, no label of people corrects it, and the intervals know nothing of "
        "its errors: --people ROWS or --card FILE does"
    )


def correction_sentences(report: AttackReport) -> list[str]:
    """What corrects the shares of each policy, and to what."""
    return [
        f"{policy.policy}, {what}: {found.sentence}"
        for policy in report.policies
        for what, found in (("attack success", policy.corrected), ("over-refusal", policy.refusal_corrected))
        if found is not None
    ]


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
    report: AttackReport,
    findings: Mapping[str, Mapping[str, Sequence[Finding]]],
    folder: Path,
    cards: Sequence[AnswerCard] = (),
) -> list[Path]:
    make_output_folder(folder)
    (folder / CARDS_FILE).unlink(missing_ok=True)
    if cards:
        write_json(folder / CARDS_FILE, [asdict(card) for card in cards])
    with AtomicFile(folder / ANSWERS_FILE) as file:
        for policy, kinds in findings.items():
            for kind, found in kinds.items():
                file.stream.writelines(_line(policy, kind, finding) for finding in found)
    # Tuples become lists, which is how they are read back.
    write_json(folder / ATTACK_FILE, json.loads(json.dumps(asdict(report))))
    return [folder / ATTACK_FILE, folder / ANSWERS_FILE]


def read_attack(path: Path) -> AttackReport:
    try:
        return restore(AttackReport, exact_json.loads(path.read_bytes()))
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


def attack_share(values: Sequence[float], units: Sequence[str]) -> Estimate | None:
    """The mean of shares with its interval; ``units`` says which of them belong to one prompt.

    None of nothing.

    >>> found = attack_share([1, 0, 1, 0, 1, 0, 1, 0, 1, 0], list("abcdefghij"))
    >>> round(found.low, 3), round(found.high, 3)
    (0.237, 0.763)
    """
    if not values:
        return None
    mean, prompts = sum(values) / len(values), len({*units})
    if prompts == len(values) and {*values} <= {0, 1}:
        low, high = wilson_interval(mean, len(values))
        return Estimate(value=mean, low=low, high=high, n=len(values), prompts=prompts)
    return share_estimate(np.array(values, dtype=float), group_index(units))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two shares of the same things: of two policies, or of the two sides of mirrored pairs."""

    both: int
    first: int
    second: int
    neither: int
    difference: Estimate
    p_value: float
    """Of the exact test that neither is more frequent."""


def paired(first: Sequence[bool], second: Sequence[bool], units: Sequence[str]) -> Paired | None:
    """Both shares beside each other; None of nothing.

    >>> found = paired([True] * 6 + [False] * 4, [False] * 10, list("abcdefghij"))
    >>> found.difference.value, found.first, round(found.p_value, 5)
    (0.6, 6, 0.03125)
    """
    if not first:
        return None
    counts = Counter(zip(first, second, strict=True))
    cells = [counts[key] for key in ((True, True), (True, False), (False, True), (False, False))]
    gains = np.array(first, dtype=float) - np.array(second, dtype=float)
    if len({*units}) == len(units):
        low, high = paired_interval(*cells)
        difference = Estimate(
            value=float(gains.mean()), low=low, high=high, n=len(units), prompts=len({*units})
        )
        p_value = exact_p_value(cells[1], cells[2])
    else:
        difference = bootstrap_mean(gains, group_index(units), Resampling(), share=False)
        p_value = sign_flip_test(gains, group_index(units))
    named = dict(zip(("both", "first", "second", "neither"), cells, strict=True))
    return Paired(**named, difference=difference, p_value=p_value)


def exact_p_value(first: int, second: int) -> float:
    """Of McNemar's exact test: of those of which one alone holds, each side is as likely.

    >>> exact_p_value(6, 0), exact_p_value(0, 0)
    (0.03125, 1.0)
    """
    from scipy.stats import binomtest

    return float(binomtest(first, first + second, 0.5).pvalue) if first + second else 1.0


def paired_interval(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """The 95 % interval of the difference of two shares of the same things (Newcombe 1998, method 10).

    >>> low, high = paired_interval(0, 0, 0, 50)
    >>> low == -high, round(high, 3)
    (True, 0.071)
    """
    n = both + first + second + neither
    mine, theirs = (both + first) / n, (both + second) / n
    (my_low, my_high), (their_low, their_high) = wilson_interval(mine, n), wilson_interval(theirs, n)
    phi = _correlation(both, first, second, neither)

    def reach(a: float, b: float) -> float:
        return sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    gap = mine - theirs
    low = gap - reach(mine - my_low, their_high - theirs)
    high = gap + reach(my_high - mine, theirs - their_low)
    return max(-1.0, low), min(1.0, high)


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """φ with Newcombe's correction for continuity; 0 where one of the shares is 0 or 1."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if not margins:
        return 0.0
    excess = both * neither - first * second
    corrected = max(excess - (both + first + second + neither) / 2, 0.0) if excess > 0 else excess
    return corrected / sqrt(margins)
