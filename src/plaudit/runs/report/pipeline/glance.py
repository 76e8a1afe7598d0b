"""The first look at a pipeline: one sentence and one picture, before and after, by how much and how sure.

Both are of one policy: the last that the evaluation names, whatever came out. Which that is was decided when
the config was written, so no figure is picked from several because it is the highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plaudit.evaluation.policies import WRITTEN
from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts.bars import AmountBar, amount_bar_chart
from plaudit.runs.report.parts import estimate_span, say
from plaudit.runs.report.pipeline.data import PipelineData, StageData
from plaudit.runs.report.pipeline.findings import interval_verdict
from plaudit.runs.report.pipeline.sections import label_kinds
from plaudit.runs.report.words import (
    Number,
    counted,
    names_text,
    number_text,
    percent,
    short_name,
    with_minus,
)

_WORLD = "gold"
_NEAR_HALF = 0.01
"""A share of wins that is nearer to one half is written with a decimal: rounded it might cross it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The policy that is told of beside what it is compared with."""

    evaluation: PolicyEvaluation
    after: PolicyFigures
    before: PolicyFigures | None = None
    start: PolicyFigures | None = None
    """The first policy that the evaluation names: the reference, or what that was made from."""
    judge: str = ""
    win_rate: Estimate | None = None
    """How often the later one's answer is the better one, a tie counting half; None where nobody compared."""


def evaluation_outcome(evaluation: PolicyEvaluation) -> Outcome:
    policies = evaluation.policies
    names = [policy.name for policy in policies]
    at = names.index(evaluation.reference) if evaluation.reference in names else 0
    if len(policies) == 1:
        return Outcome(evaluation=evaluation, after=policies[0])
    later = policies[at + 1 :]
    # The rows' own answers are what policies are compared with, not what came of one.
    learnt = [policy for policy in later if policy.model != WRITTEN] or later
    # Where the reference is named last, it is what came of those before it.
    before, after = (policies[at], learnt[-1]) if later else (policies[at - 1], policies[at])
    judge, win_rate = _win_rate(evaluation.contests, after.name, before.name)
    return Outcome(
        evaluation=evaluation, after=after, before=before, start=policies[0], judge=judge, win_rate=win_rate
    )


def _win_rate(contests: Sequence[Contest], after: str, before: str) -> tuple[str, Estimate | None]:
    """Who compared the two first, and how often the later one's answer is the better one."""
    for contest in contests:
        if (contest.policy, contest.against) == (after, before):
            return contest.judge, contest.raw
        if (contest.policy, contest.against) == (before, after):
            return contest.judge, contest.raw and _from_other_side(contest.raw)
    return "", None


def _from_other_side(share: Estimate) -> Estimate:
    low, high = (None if end is None else 1 - end for end in (share.high, share.low))
    return Estimate(value=1 - share.value, low=low, high=high, n=share.n, prompts=share.prompts)


def opening_sentence(pipeline: PipelineData) -> str:
    """What came of a pipeline, in one sentence; empty where no stage compared policies, or nobody judged."""
    if pipeline.evaluation is None:
        return ""
    outcome = evaluation_outcome(pipeline.evaluation)
    unseen = "unseen_" if is_unseen(pipeline) else ""
    clauses = [
        *_win_rate_clause(outcome, unseen),
        *_worth_clause(outcome, unseen),
        *_right_clause(outcome, unseen),
    ]
    sentence = ", and ".join(clauses)
    if not sentence:
        return ""
    counts = _training_counts(pipeline, outcome)
    if counts is not None:
        return say(f"opening.after_training{'_with' if counts else ''}", counts=counts, sentence=sentence)
    # A sentence that begins with a word of ours has a capital; a policy's name stays as it is.
    return f"W{sentence[1:]}." if sentence.startswith("whether ") else f"{sentence}."


def is_unseen(pipeline: PipelineData) -> bool:
    """Whether it is known that no training stage had any of the evaluation's prompts."""
    evaluation = pipeline.evaluation
    prompts = {row.prompt for row in evaluation.all_answers} if evaluation else set[str]()
    if not prompts:
        return False
    trained = pipeline.trained_prompts
    return trained.complete and not prompts & trained.prompts


def _training_counts(pipeline: PipelineData, outcome: Outcome) -> str | None:
    """What the stages between the two policies learnt from, where it is known; None where there are none."""
    stages = {stage.name: stage for stage in pipeline.stages}
    if outcome.after.name not in stages:
        return None
    before = outcome.before.name if outcome.before else ""
    between = _above(stages, outcome.after.name) - _above(stages, before)
    trained = [stages[name] for name in between if stages[name].training_run is not None]
    # A file that no stage made has not been counted.
    entries = (entry for stage in trained for entry in stage.inputs)
    if any(entry.name.startswith("data") and not entry.from_stage for entry in entries):
        return ""
    kinds = label_kinds(stage for stage in pipeline.stages if stage.name in between)
    return names_text(counted(count, short_name(kind)) for kind, count in kinds.items()) if kinds else ""


def _above(stages: dict[str, StageData], name: str) -> set[str]:
    found, left = set[str](), [name]
    while left:
        current = left.pop()
        if current in stages and current not in found:
            found.add(current)
            left += stages[current].needs
    return found


def _win_rate_clause(outcome: Outcome, unseen: str) -> Iterator[str]:
    share, before = outcome.win_rate, outcome.before
    if share is not None and before is not None:
        yield say(
            "opening.win_rate",
            claim=say(f"opening.{interval_verdict(share)}", after=outcome.after.name, before=before.name),
            judge=_judge_text(outcome),
            share=f"{100 * share.value:.{_places(share)}f} %",
            prompts=say(f"opening.{unseen}prompts", count=share.prompts),
            ends=_interval_text(share),
        )


def _judge_text(outcome: Outcome) -> str:
    evaluation, judge = outcome.evaluation, outcome.judge
    who = "worth" if judge == evaluation.gold else "reward" if judge == evaluation.reward else "judge"
    return say(f"opening.by_{who}", judge=judge)


def _worth_clause(outcome: Outcome, unseen: str) -> Iterator[str]:
    after, start = outcome.after.gold, outcome.start
    if after is None:
        return
    prompts = say(f"opening.{unseen}prompts", count=after.prompts)
    whose, ends = say("opening.answers_to", name=outcome.after.name, prompts=prompts), _worth_interval(after)
    if outcome.win_rate is not None:
        whose, ends = say("opening.its_answers"), ""
    name, earlier = "worth_alone" if start is None else "worth", ""
    if start is not None and start.gold is not None:
        name = "worth_overlaps" if _overlap(after, start.gold) else "worth_rose"
        earlier = _worth_text(start.gold.value)
    worth = _worth_text(after.value)
    yield say(f"opening.{name}", whose=whose, worth=worth, ends=ends, start=start, earlier=earlier)


def _right_clause(outcome: Outcome, unseen: str) -> Iterator[str]:
    after, start = outcome.after.right, outcome.start
    if after is None:
        return
    prompts = say(f"opening.{unseen}prompts", count=after.prompts)
    whose = say("opening.answers_to", name=outcome.after.name, prompts=prompts)
    has_subject = outcome.win_rate is not None or outcome.after.gold is not None
    earlier = None if start is None else start.right
    yield say(
        "opening.right" if earlier is None else "opening.right_before",
        whose=say("opening.its_answers") if has_subject else whose,
        rule=outcome.evaluation.right,
        share=percent(after.value),
        ends=_interval_text(after),
        start=start,
        earlier=earlier and f"{percent(earlier.value)}{_interval_text(earlier)}",
    )


def _overlap(estimate: Estimate, other: Estimate) -> bool:
    if estimate.low is None or estimate.high is None or other.low is None or other.high is None:
        return True
    return estimate.low <= other.high and other.low <= estimate.high


def _interval_text(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return ""
    places = _places(share)
    return f" (95 %: {100 * share.low:.{places}f} to {100 * share.high:.{places}f} %)"


def _places(share: Estimate) -> int:
    numbers = (share.value, share.low, share.high)
    return int(any(number is not None and abs(number - 0.5) < _NEAR_HALF for number in numbers))


def _worth_interval(worth: Estimate) -> str:
    if worth.low is None or worth.high is None:
        return ""
    return f" (95 %: {_worth_text(worth.low)} to {_worth_text(worth.high)})"


def _worth_text(value: Number) -> str:
    """In two decimals, as worth from 0 to 1 is read; in three digits where it is of another size."""
    return with_minus(f"{value:.2f}") if 0.1 <= abs(value) < 10 or value == 0 else number_text(value)


def opening_note(pipeline: PipelineData) -> str:
    """The words of the sentence explained, and why it is of this policy; empty where there is none."""
    if not opening_sentence(pipeline) or pipeline.evaluation is None:
        return ""
    return " ".join(_notes(evaluation_outcome(pipeline.evaluation), unseen=is_unseen(pipeline)))


def _notes(outcome: Outcome, *, unseen: bool) -> Iterator[str]:
    gold = outcome.evaluation.gold
    if outcome.before is not None:
        yield say("opening.why_this", name=outcome.after.name)
    if outcome.after.gold is not None and gold is not None:
        yield say("opening.worth_of_world" if gold == _WORLD else "opening.worth_by", gold=gold)
    if unseen:
        yield say("opening.unseen")


def opening_picture(evaluation: PolicyEvaluation) -> Markup | None:
    """Before and after as bars: by true worth, or else by the win rate; None where there is only one."""
    outcome = evaluation_outcome(evaluation)
    if outcome.before is None:
        return None
    if outcome.start is not None and outcome.start.gold is not None and outcome.after.gold is not None:
        return _worth_picture(outcome)
    return None if outcome.win_rate is None else _win_rate_picture(outcome, outcome.win_rate)


def _worth_picture(outcome: Outcome) -> Markup:
    places = (
        (outcome.start, "before"),
        (outcome.before, "before" if outcome.before is outcome.start else "the reference"),
        (outcome.after, "after"),
    )
    bars = {
        policy.name: AmountBar(
            label=f"{short_name(policy.name)}, {place}",
            span=estimate_span(policy.gold),
            is_plain=policy is not outcome.after,
        )
        for policy, place in places
        if policy is not None and policy.gold is not None
    }
    note = say("opening.worth_note", prompts=outcome.evaluation.prompts)
    title = "True worth of an answer"
    return amount_bar_chart(title, "before and after", [*bars.values()], _worth_text, note=note)


def _win_rate_picture(outcome: Outcome, share: Estimate) -> Markup:
    assert outcome.before is not None
    before, after = short_name(outcome.before.name), short_name(outcome.after.name)
    bars = [
        AmountBar(label=f"{before}, before", span=estimate_span(_from_other_side(share)), is_plain=True),
        AmountBar(label=f"{after}, after", span=estimate_span(share)),
    ]
    half = (0.5, "as often as not")
    note = say("opening.win_rate_note", prompts=share.prompts)
    return amount_bar_chart("Win rate", _judge_text(outcome), bars, percent, guide=half, note=note)
