"""What was found, in sentences: which policy is better, and whether the figures allow saying so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.reward_models.result import Estimate
from plaudit.report.figures import interval_text
from plaudit.report.words import number_text, percent, short_name


def contest_against_reference(evaluation: PolicyEvaluation, policy: str) -> Contest | None:
    """The first judge's contest of a policy against the reference, or else its first contest."""
    contests = [one for one in evaluation.contests if one.policy == policy]
    against_reference = [one for one in contests if one.against == evaluation.reference]
    return next(iter(against_reference or contests), None)


def interval_verdict(estimate: Estimate | None) -> str:
    """What the interval of a share of wins says: ``better``, ``worse``, ``open``, or ``unknown``.

    >>> interval_verdict(Estimate(value=0.52, low=0.48, high=0.56, n=100, prompts=100))
    'open'
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return "unknown"
    return "better" if estimate.low > 0.5 else "worse" if estimate.high < 0.5 else "open"


def best_policy_summary(evaluation: PolicyEvaluation) -> str:
    """The finding in sentences: which policy is best, against which, and whether luck alone could have made
    it so.
    """
    others = [one for one in evaluation.policies if one.name != evaluation.reference]
    best = _best_policy(evaluation, others)
    if best is None:
        return "There is no figure by which the policies could be ranked."
    return " ".join(
        (
            *_worth_sentence(evaluation, best),
            *_win_rate_sentence(evaluation, best),
            *_overlap_sentence(others, best),
        )
    )


def _best_policy(evaluation: PolicyEvaluation, others: Sequence[PolicyFigures]) -> PolicyFigures | None:
    if (with_gold := [one for one in others if one.gold is not None]) and evaluation.gold is not None:
        return max(with_gold, key=lambda one: one.gold.value if one.gold else 0.0)
    win_rates = {
        one.name: contest.raw.value
        for one in others
        if (contest := contest_against_reference(evaluation, one.name)) and contest.raw
    }
    return max(
        (one for one in others if one.name in win_rates), key=lambda one: win_rates[one.name], default=None
    )


def _worth_sentence(evaluation: PolicyEvaluation, best: PolicyFigures) -> Iterator[str]:
    if best.gold is None:
        return
    reference = next((one for one in evaluation.policies if one.name == evaluation.reference), None)
    sentence = (
        f"{short_name(best.name)} is best: its answers are worth {_value_with_interval(best.gold)} on average"
    )
    if reference is None or reference.gold is None:
        yield f"{sentence}."
    else:
        yield f"{sentence}, those of {short_name(reference.name)} {_value_with_interval(reference.gold)}."


def _value_with_interval(estimate: Estimate) -> str:
    return f"{number_text(estimate.value)} ({interval_text(estimate)})"


def _win_rate_sentence(evaluation: PolicyEvaluation, best: PolicyFigures) -> Iterator[str]:
    contest = contest_against_reference(evaluation, best.name)
    if contest is None or contest.raw is None:
        return
    share = f"{percent(contest.raw.value)} ({interval_text(contest.raw, share=True)})"
    name, judge = short_name(contest.against), short_name(contest.judge)
    winner = short_name(best.name) if best.gold is None else "it"
    yield f"Against {name} {winner} wins {share}, a tie counted as half, by {judge}:"
    yield {
        "better": f"the interval leaves out one half, so on prompts like these it is better than {name}.",
        "worse": f"the interval lies below one half, so on prompts like these it is worse than {name}.",
        "open": f"the interval holds one half, so it cannot be said that it is better than {name}.",
        "unknown": "there are too few prompts for an interval.",
    }[interval_verdict(contest.raw)]


def _overlap_sentence(others: Sequence[PolicyFigures], best: PolicyFigures) -> Iterator[str]:
    """Who may be as good, as far as intervals of each alone can tell."""
    if best.gold is None or best.gold.low is None:
        return
    overlapping = [
        short_name(one.name)
        for one in others
        if one is not best and one.gold and one.gold.high is not None and one.gold.high >= best.gold.low
    ]
    if overlapping:
        yield (
            f"Its interval overlaps with that of {', '.join(overlapping)}: do not take their order for "
            "certain."
        )
