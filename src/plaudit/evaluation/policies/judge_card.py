"""What a judge is worth, on pairs that people judged: a card that belongs to the judge and its version.

Agreement and Cohen's κ beside the people's own ceiling, what the place and the length of an answer do to it,
what it says nothing of, and whether its chances are as often right as they say: the expected calibration
error before and after a temperature, fitted on half of the prompts (Guo et al. 2017, arXiv:1706.04599).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from plaudit.data.judging import (
    Judge,
    NoVerdict,
    Verdict,
    first_probability,
    known_probability,
    probable_verdict,
)
from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.evaluation.policies import corrected, win_rate
from plaudit.evaluation.policies.calibration import (
    ChoiceLogprobs,
    at_temperature,
    fitted_temperature,
    policy_calibration,
)
from plaudit.evaluation.policies.judge import judge_notes, judged_against_people, sees_order
from plaudit.evaluation.policies.result import Contest
from plaudit.evaluation.reward_models.accuracy import accuracy_ceiling
from plaudit.evaluation.reward_models.pairs import ScoredPair, group_index
from plaudit.evaluation.shares import share_estimate
from plaudit.evaluation.stats import Estimate, Resampling, interval_levels, prompt_draws
from plaudit.files import exact_json
from plaudit.files.atomic import write_json
from plaudit.files.restored import restore

SURE_MOST = 1 - 1e-6
"""The surest that a chance is taken to be: of a certain one the log-odds are endless."""
SIDES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Means of two orders of a judge that gives a side or a tie in each: no chances."""
_Z_95 = 1.959964
FEWEST_TO_SCALE = 60
"""Pairs from which a temperature is fitted: on fewer it follows chance."""


@runtime_checkable
class HasMembers(Protocol):
    """A judge that is several, each of which says something of every task."""

    @property
    def judges(self) -> Sequence[Judge]: ...

    def member_outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[list[Verdict | NoVerdict]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Whether chances are as often right as they say."""

    ece: Estimate
    log_loss: Estimate
    """Mean −ln of the chance given to what people prefer; a coin has 0.693."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCard:
    judge: str
    version: str
    """How it is asked: another way or wording is another judge."""
    pairs: int
    ties: int
    """Pairs that people called a tie; they are left out."""
    agreement: Estimate | None
    """How often it prefers what people preferred; a tie of its own counts one half."""
    decided: Estimate | None
    """The same where it prefers an answer, in both orders."""
    kappa: Estimate | None
    """Cohen's κ of the sides that it and people take, with ties as a third: 0 is chance, 1 is always."""
    ceiling: float | None
    """How often people foretell each other; None where no pair was judged by two."""
    ceiling_words: str
    consistency: Estimate | None
    """How often both orders say the same; None for a judge to whom order means nothing."""
    first_shown: Estimate | None
    """How often the answer that is shown first is preferred, in either order: 0.5 is fair."""
    longer: Estimate | None
    """How often the longer answer is preferred, of preferences between answers of unequal length."""
    longer_by_people: Estimate | None
    failures: Mapping[str, int]
    reliability: Reliability | None
    """Of its chances as they are, on the half that no temperature was fitted on; None where it has none."""
    temperature: float | None
    """What its log-odds are divided by, fitted on the other half; None where a note says why not."""
    scaled: Reliability | None
    """Of its chances behind that temperature, on the same half as ``reliability``."""
    error_correlation: Mapping[str, float | None]
    """Of a jury: how the errors of each two members go together; 1 is one judge twice."""
    notes: tuple[str, ...]


def judge_card(
    judge: Judge, pairs: Sequence[ScoredPair], resampling: Resampling
) -> tuple[JudgeCard, tuple[win_rate.JudgedPair, ...]]:
    """The card of a judge on pairs of people, and its verdicts, ``mine`` being what people preferred."""
    duels = judged_against_people(judge, pairs)
    judged = win_rate.with_verdict(duels)
    before, temperature, after, why_unscaled = _reliability(judged, resampling)
    ceiling, has_orders = accuracy_ceiling(pairs, resampling), sees_order(judge)
    return JudgeCard(
        judge=judge.name,
        version=version_of(judge),
        pairs=len(duels),
        ties=len(pairs) - len(duels),
        agreement=_mean([(duel.prompt, 0.5 + 0.5 * _side(duel)) for duel in judged]),
        decided=_mean([(duel.prompt, float(side > 0)) for duel in judged if (side := _side(duel))]),
        kappa=_kappa(judged, resampling),
        ceiling=None if ceiling.accuracy is None else ceiling.accuracy.value,
        ceiling_words=ceiling.words,
        consistency=_mean([(duel.prompt, win_rate.orders_agree(duel)) for duel in judged])
        if has_orders
        else None,
        first_shown=_mean(win_rate.first_shown_readings(judged)) if has_orders else None,
        longer=_mean(_longer(judged)),
        longer_by_people=_mean([(duel.prompt, float(gap > 0)) for duel, gap in _unequal(judged)]),
        failures=win_rate.missing_verdicts(duels),
        reliability=before,
        temperature=temperature,
        scaled=after,
        error_correlation=_member_errors(judge, duels),
        notes=(*judge_notes(judge), *why_unscaled),
    ), duels


def version_of(judge: Judge) -> str:
    """What a judge's verdicts hang on besides its name; empty for one that does not say."""
    return str(getattr(judge, "version", ""))


def calibrated(outcome: Verdict | NoVerdict, temperature: float) -> Verdict | NoVerdict:
    """A verdict with its log-odds divided by a temperature; who is ahead stays ahead.

    >>> verdict = probable_verdict(0.9, annotator="small")
    >>> again = calibrated(verdict, 2.0)
    >>> round(first_probability(again), 2)
    0.75
    """
    if isinstance(outcome, NoVerdict):
        return outcome
    share = min(max(first_probability(outcome), 1 - SURE_MOST), SURE_MOST)
    scaled = 0.5 * (1 + math.tanh(math.log(share / (1 - share)) / temperature / 2))
    verdict = probable_verdict(scaled, annotator=outcome.annotator, orders=outcome.orders)
    return replace(verdict, rationale=outcome.rationale, principles=outcome.principles)


def write_card(card: JudgeCard, path: Path) -> None:
    write_json(path, {**asdict(card), "notes": list(card.notes)})


def read_card(path: Path, judge: Judge) -> JudgeCard:
    """The card of a file; one of another judge or of another version is refused by name."""
    try:
        card = restore(JudgeCard, exact_json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a card that plaudit judge --card wrote ({error})") from error
    if (card.judge, card.version) != (judge.name, version_of(judge)):
        raise UserError(
            f"{path}: this card is of {card.judge} {card.version}, and the judge is {judge.name} "
            f"{version_of(judge)}; another version may be another judge: make its own with --card"
        )
    return card


def cards_of(judges: Mapping[str, Judge], paths: Sequence[Path]) -> dict[str, JudgeCard]:
    """The cards by the words of their judges; one of a judge that is not there is refused by name."""
    found = dict[str, JudgeCard]()
    for path in paths:
        own = [word for word, judge in judges.items() if _named_in(path) == (judge.name, version_of(judge))]
        word = own[0] if own else next(iter(judges))
        found[word] = read_card(path, judges[word])
        agreement = found[word].agreement
        if agreement is None or agreement.low is None:
            raise UserError(
                f"{path}: this card rests on one prompt, and does not say how often the judge errs"
            )
    return found


def _named_in(path: Path) -> tuple[object, object]:
    try:
        card = exact_json.loads(path.read_text("utf-8"))
        return card["judge"], card["version"]
    except (OSError, ValueError, LookupError, TypeError):
        return None, None


def contest_correction(
    contest: Contest,
    duels: Sequence[win_rate.JudgedPair],
    people: corrected.PeopleLabels | None,
    card: JudgeCard | None,
) -> tuple[corrected.Correction, win_rate.CorrectedVerdicts | None] | None:
    """A win rate by labels of people, or else by the judge's card, and what that makes of each verdict; None
    where neither says how it errs."""
    judged, raw = win_rate.with_verdict(duels), contest.raw
    if raw is None or raw.low is None:
        return None
    if people is not None:
        keys = [[(corrected.PAIR, duel.prompt, duel.mine, duel.theirs)] for duel in judged]
        prompts = group_index([duel.prompt for duel in judged])
        sample = people.sample([float(duel.verdict or 0) for duel in judged], keys, prompts)
        known = [known_probability(duel.mine, duel.theirs) for duel in judged]
        if (found := corrected.by_people(raw, sample, known)) is not None:
            rows_B = corrected.corrected_rows(sample, known)
            return found, (rows_B, rows_B)
    if card is None or card.agreement is None:
        return None
    sides = _mean([(duel.prompt, 0.5 + 0.5 * _side(duel)) for duel in judged])
    assert sides is not None
    found = corrected.win_rate_correction(raw, sides, card.agreement)
    if found.note == corrected.NO_BETTER_THAN_A_COIN:
        return found, None
    beyond_B = np.array([_side(duel) for duel in judged]) / 2 / (2 * card.agreement.value - 1)
    return found, (0.5 + beyond_B, 0.5 + beyond_B * (1 + corrected.doubt(card.agreement)))


def _side(duel: win_rate.JudgedPair) -> float:
    """1 for what people preferred, −1 for the other answer, 0 for a tie."""
    assert duel.verdict is not None, duel.prompt
    return float(np.sign(duel.verdict - 0.5))


def _mean(rows: Sequence[tuple[str, float]]) -> Estimate | None:
    if not rows:
        return None
    prompts, values = zip(*rows, strict=True)
    return share_estimate(np.array(values, dtype=float), group_index(prompts))


def _unequal(duels: Sequence[win_rate.JudgedPair]) -> list[tuple[win_rate.JudgedPair, int]]:
    gaps = [(duel, len(duel.mine.split()) - len(duel.theirs.split())) for duel in duels]
    return [(duel, gap) for duel, gap in gaps if gap]


def _longer(duels: Sequence[win_rate.JudgedPair]) -> list[tuple[str, float]]:
    return [
        (duel.prompt, float((gap > 0) == (side > 0)))
        for duel, gap in _unequal(duels)
        if (side := _side(duel))
    ]


def _kappa(duels: Sequence[win_rate.JudgedPair], resampling: Resampling) -> Estimate | None:
    """κ = (p_o − p_e) / (1 − p_e), with its percentile interval over prompts."""
    if not duels:
        return None
    # What people preferred would always stand first; turned by a hash of the words, no side means anything.
    turned = [_is_turned(duel) for duel in duels]
    people = np.array([2 if turn else 0 for turn in turned])
    judged = np.array(
        [1 - round(_side(duel)) * (-1 if turn else 1) for duel, turn in zip(duels, turned, strict=True)]
    )
    prompt_B = group_index([duel.prompt for duel in duels])
    prompts = int(prompt_B.max()) + 1
    table_PCC = np.zeros((prompts, 3, 3))
    np.add.at(table_PCC, (prompt_B, people, judged), 1.0)
    value = _kappa_of(table_PCC.sum(0))
    if value is None:
        return None
    draws = [
        _kappa_of(table_CC)
        for times_SP in (prompt_draws(prompts, resampling) if prompts > 1 else ())
        for table_CC in np.tensordot(times_SP, table_PCC, 1)
    ]
    defined = [draw for draw in draws if draw is not None]
    low, high = map(float, np.quantile(defined, interval_levels(prompts))) if defined else (None, None)
    return Estimate(value=value, low=low, high=high, n=len(duels), prompts=prompts)


def _kappa_of(table_CC: Float[np.ndarray, "C C"]) -> float | None:
    total = table_CC.sum()
    expected = float((table_CC.sum(0) * table_CC.sum(1)).sum() / total**2)
    # Whoever always says one thing agrees by chance alone, and chance cannot be taken off.
    return None if expected >= 1 else (float(np.trace(table_CC) / total) - expected) / (1 - expected)


def _is_turned(duel: win_rate.JudgedPair) -> bool:
    words = "\0".join([duel.prompt, *sorted((duel.mine, duel.theirs))])
    is_odd = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 1
    return (duel.mine < duel.theirs) == is_odd


def _reliability(
    duels: Sequence[win_rate.JudgedPair], resampling: Resampling
) -> tuple[Reliability | None, float | None, Reliability | None, tuple[str, ...]]:
    """Before, the temperature, and after, or why there is none; a judge of sides alone has no chances."""
    if not any(duel.verdict not in SIDES for duel in duels):
        return None, None, None, ()
    halves: tuple[list[ChoiceLogprobs], list[ChoiceLogprobs]] = ([], [])
    for duel in duels:
        assert duel.verdict is not None, duel.prompt
        share = min(max(duel.verdict, 1 - SURE_MOST), SURE_MOST)
        logps = (math.log(share), math.log(1 - share))
        choices = (duel.mine, duel.theirs)
        halves[hashlib.sha256(duel.prompt.encode("utf-8", "surrogatepass")).digest()[1] % 2].append(
            ChoiceLogprobs(policy="", prompt=duel.prompt, category=None, choices=choices, logp=logps, right=0)
        )
    fitted, measured = halves
    if len(fitted) < FEWEST_TO_SCALE / 2 or len(measured) < FEWEST_TO_SCALE / 2:
        why = f"no temperature: it would be fitted on {len(fitted)} pairs, and follow chance"
        return _measured([*fitted, *measured], resampling), None, None, (why,)
    if (why := _why_unscaled(fitted)) is not None:
        return _measured(measured, resampling), None, None, (f"no temperature: {why}",)
    temperature = fitted_temperature(fitted)
    after = _measured(at_temperature(measured, temperature), resampling)
    return _measured(measured, resampling), temperature, after, ()


def _why_unscaled(choices: Sequence[ChoiceLogprobs]) -> str | None:
    """Why no temperature makes these chances truer; None where one does."""
    # By the score test of 1/T = 0: z = Σ x / √Σ x², x being log-odds of what people chose, summed by prompt.
    odds_B = np.array([choice.logp[0] - choice.logp[1] for choice in choices])
    odds_P = np.bincount(group_index([choice.prompt for choice in choices]), weights=odds_B)
    scale = math.sqrt(float((odds_P**2).sum()))
    evidence = float(odds_P.sum()) / scale if scale else 0.0
    if (odds_B > 0).all():
        return f"it was right about all {len(choices)} pairs, which do not say how sure it may be"
    if evidence < -_Z_95:
        return (
            f"the surer it is, the more often people chose the other answer (z = {evidence:.1f}): its sign "
            "is turned round; look at its wording, or whether a higher score is the better one"
        )
    if evidence < _Z_95:
        return (
            f"on {len(choices)} pairs its chances tell nothing of what people chose (z = {evidence:.1f}), "
            "and dividing them makes them no truer; take another judge, or a card on more pairs"
        )
    return None


def _measured(choices: Sequence[ChoiceLogprobs], resampling: Resampling) -> Reliability:
    calibration = policy_calibration(choices, resampling)
    return Reliability(ece=calibration.ece, log_loss=calibration.log_loss)


def _member_errors(judge: Judge, duels: Sequence[win_rate.JudgedPair]) -> dict[str, float | None]:
    if not isinstance(judge, HasMembers):
        return {}
    tasks = [
        Task(prompt=duel.prompt, answers=(duel.mine, duel.theirs), ended=(True, True), category=duel.category)
        for duel in duels
    ]
    errors: dict[str, Sequence[bool | None]] = {
        f"{number} {member.name}": [_is_wrong(outcome) for outcome in row]
        for number, (member, row) in enumerate(
            zip(judge.judges, judge.member_outcomes(tasks, 0), strict=True), 1
        )
    }
    return {f"{a}, {b}": value for (a, b), value in error_correlation(errors).items()}


def error_correlation(errors: Mapping[str, Sequence[bool | None]]) -> dict[tuple[str, str], float | None]:
    """For each two members φ, the correlation of being wrong, over what both of them judged; None: undefined.

    >>> error_correlation({"a": [True, False, True, False], "b": [True, False, True, False]})
    {('a', 'b'): 1.0}
    """
    return {
        (first, second): _phi(
            [
                (x, y)
                for x, y in zip(errors[first], errors[second], strict=True)
                if x is not None and y is not None
            ]
        )
        for first, second in combinations(errors, 2)
    }


def _phi(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    if not pairs:
        return None
    first, second = fmean(x for x, _ in pairs), fmean(y for _, y in pairs)
    spread = first * (1 - first) * second * (1 - second)
    if spread == 0:
        return None
    return (fmean(x and y for x, y in pairs) - first * second) / math.sqrt(spread)


def _is_wrong(outcome: Verdict | NoVerdict) -> bool | None:
    if isinstance(outcome, NoVerdict) or first_probability(outcome) == 0.5:
        return None
    return first_probability(outcome) < 0.5


def card_lines(card: JudgeCard) -> list[tuple[str, Any]]:
    return [
        ("agrees with people (a tie counts one half)", card.agreement),
        ("agrees where it decides", card.decided),
        ("κ", card.kappa),
        ("people foretell each other", card.ceiling),
        ("both orders agree", card.consistency),
        ("shown first preferred", card.first_shown),
        ("longer preferred", card.longer),
        ("longer preferred by people", card.longer_by_people),
        ("calibration error", card.reliability and card.reliability.ece),
        ("calibration error, scaled", card.scaled and card.scaled.ece),
        ("log-loss (coin: 0.693)", card.reliability and card.reliability.log_loss),
        ("log-loss, scaled", card.scaled and card.scaled.log_loss),
        ("temperature", card.temperature),
    ]
