"""What was found: which policy is better, and what a reader should doubt.

Each warning has its figure, its threshold and the reason for that. A threshold is no truth: it says from
where on a figure deserves a look at the answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.stats import Estimate
from plaudit.runs.pipeline.kinds import ReportWarning
from plaudit.runs.report.parts import say, say_each
from plaudit.runs.report.pipeline.data import PipelineData
from plaudit.runs.report.words import short_name, shortened

LENGTH_FACTOR = 1.25
"""A mean length so many times the reference's, or the reference's so many times it."""
MIN_DISTINCT_SHARE = 2 / 3
"""A share of the reference's distinct pairs of words."""
MAX_KL = 10.0
"""Nats of KL an answer."""
MAX_UNJUDGED = 0.05
MIN_CONSISTENCY = 0.8
MIN_FINISHED = 0.9
"""The share of answers that should come to an end by themselves."""
MIN_PROMPTS = 100
MAX_TRAINED = 0.01
"""The share of the evaluation's prompts that may have been trained on by chance."""
MAX_NOTE_LENGTH = 4000
"""Letters of a note that have room."""


def contest_against_reference(evaluation: PolicyEvaluation, policy: str) -> Contest | None:
    """The first judge's contest of a policy against the reference, or else its first contest."""
    contests = [contest for contest in evaluation.contests if contest.policy == policy]
    against_reference = [contest for contest in contests if contest.against == evaluation.reference]
    return next(iter(against_reference or contests), None)


def reference_policy(evaluation: PolicyEvaluation) -> PolicyFigures | None:
    return next((policy for policy in evaluation.policies if policy.name == evaluation.reference), None)


def interval_verdict(estimate: Estimate | None) -> str:
    """What the interval of a win rate says: ``better``, ``worse``, ``open``, or ``unknown``.

    >>> interval_verdict(Estimate(value=0.52, low=0.48, high=0.56, n=100, prompts=100))
    'open'
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return "unknown"
    return "better" if estimate.low > 0.5 else "worse" if estimate.high < 0.5 else "open"


def best_policy_summary(evaluation: PolicyEvaluation, warnings: Sequence[ReportWarning] = ()) -> str:
    """Who is better than the reference; how much, how sure, and what speaks against it. Policies whose
    intervals overlap with the highest one are named together: none of them is called the best."""
    leaders = _leaders(evaluation)
    if not leaders:
        return say("finding.no_ranking")
    sentences = [*_verdict_sentence(evaluation, leaders)]
    best, reference = leaders[0], reference_policy(evaluation)
    if best.gold is not None:
        several = "_several" if len(leaders) > 1 else ""
        compared = "_compared" if reference is not None and reference.gold is not None else ""
        sentences.append(say(f"finding.worth{several}{compared}", policy=best, reference=reference))
    contest = contest_against_reference(evaluation, best.name)
    if contest is not None and contest.raw is not None:
        sentences.append(say("finding.wins", contest=contest, policy=best))
    return " ".join([*sentences, *caution_sentences(warnings)])


def ranking_sentences(evaluation: PolicyEvaluation) -> tuple[str, ...]:
    """Who is better than the reference, where more than two policies are compared."""
    leaders = _leaders(evaluation) if len(evaluation.policies) > 2 else ()
    return tuple(_verdict_sentence(evaluation, leaders)) if leaders else ()


def caution_sentences(warnings: Sequence[ReportWarning]) -> tuple[str, ...]:
    return tuple(
        say("finding.but", about=warning.about, finding=warning.finding)
        for warning in warnings
        if warning.grave
    )


def _leaders(evaluation: PolicyEvaluation) -> Sequence[PolicyFigures]:
    """The highest policy beside the reference, and those that may be as good; none where nobody judged."""
    others = [policy for policy in evaluation.policies if policy.name != evaluation.reference]
    by_gold = evaluation.gold is not None and any(policy.gold for policy in others)

    def figure(policy: PolicyFigures) -> Estimate | None:
        contest = contest_against_reference(evaluation, policy.name)
        return policy.gold if by_gold else contest and contest.raw

    estimates = {policy.name: estimate for policy in others if (estimate := figure(policy)) is not None}
    if not estimates:
        return ()
    best = max(
        (policy for policy in others if policy.name in estimates),
        key=lambda policy: estimates[policy.name].value,
    )
    verdict = _verdict(evaluation, best)
    # As far as intervals of each alone can tell.
    as_good = (
        policy
        for policy in others
        if policy is not best
        and _may_reach(estimates.get(policy.name), estimates[best.name])
        and _verdict(evaluation, policy) == verdict
    )
    return (best, *as_good)


def _may_reach(estimate: Estimate | None, highest: Estimate) -> bool:
    if estimate is None or estimate.low is None or estimate.high is None:
        return False
    return highest.low is not None and highest.high is not None and estimate.high >= highest.low


def _verdict(evaluation: PolicyEvaluation, policy: PolicyFigures) -> str:
    contest = contest_against_reference(evaluation, policy.name)
    return interval_verdict(contest and contest.raw)


def _verdict_sentence(evaluation: PolicyEvaluation, leaders: Sequence[PolicyFigures]) -> Iterator[str]:
    contest = contest_against_reference(evaluation, leaders[0].name)
    if contest is not None and contest.raw is not None:
        several = "_several" if len(leaders) > 1 else ""
        names = [policy.name for policy in leaders]
        yield say(f"finding.{interval_verdict(contest.raw)}{several}", names=names, against=contest.against)


def report_warnings(pipeline: PipelineData) -> tuple[ReportWarning, ...]:
    policies = policy_warnings(pipeline.evaluation) if pipeline.evaluation else ()
    findings = (found for stage in pipeline.stages for found in stage.findings.values())
    return (
        *_file_warnings(pipeline),
        *_trained_prompts_warning(pipeline),
        *_run_warnings(pipeline),
        *policies,
        *(warning for found in findings for warning in found.warnings),
    )


def policy_warnings(evaluation: PolicyEvaluation) -> tuple[ReportWarning, ...]:
    """The warnings that the figures of policies give rise to.
    A policy that is named before the reference is what the reference was made from: nothing drove it away."""
    reference = reference_policy(evaluation)
    at = -1 if reference is None else evaluation.policies.index(reference)
    # Where the reference is the last, those before it are what there is to compare.
    later = evaluation.policies[at + 1 :] or evaluation.policies[:at]
    with_reference = later if reference is None else (reference, *later)
    few = [_doubt("few_prompts", prompts=evaluation.prompts, least=MIN_PROMPTS)]
    return (
        *(few if evaluation.prompts < MIN_PROMPTS else ()),
        *(warning for policy in later if reference for warning in _change_warnings(policy, reference)),
        *(warning for policy in with_reference for warning in _distance_and_end_warnings(policy, reference)),
        *(warning for policy in later for warning in _win_rate_warnings(evaluation, policy)),
        *_optimised_judge_warning(evaluation),
        *_uncorrected_warnings(evaluation),
        *(warning for contest in evaluation.contests for warning in _judge_warnings(contest)),
    )


def _doubt(name: str, *, grave: bool = False, **fields: object) -> ReportWarning:
    return ReportWarning(**say_each(f"doubts.{name}", **fields), grave=grave)


def _file_warnings(pipeline: PipelineData) -> Iterator[ReportWarning]:
    for stage in pipeline.stages:
        for name in stage.changed_files:
            yield _doubt("changed_file", grave=True, stage=stage, file=name)
    codes = {(stage.code.get("plaudit"), stage.code.get("commit")) for stage in pipeline.stages if stage.code}
    if len(codes) > 1:
        yield _doubt("unlike_code", versions=len(codes))


def _trained_prompts_warning(pipeline: PipelineData) -> Iterator[ReportWarning]:
    prompts = {row.prompt for row in pipeline.evaluation.all_answers} if pipeline.evaluation else set()
    trained = prompts & pipeline.trained_prompts.prompts if prompts else set()
    if len(trained) > MAX_TRAINED * len(prompts):
        yield _doubt("trained_prompts", grave=True, trained=len(trained), prompts=len(prompts))


def _run_warnings(pipeline: PipelineData) -> Iterator[ReportWarning]:
    """What a run remarked while it learnt; what it said before its first step only describes it."""
    for stage, run in pipeline.training_stages:
        for note in run.notes:
            if note.step != 0:
                text = shortened(note.text, MAX_NOTE_LENGTH).rstrip(".")
                name = "remark" if note.step is None else "remark_at"
                yield _doubt(name, stage=stage, text=text, step=note.step)


def _change_warnings(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    """Changes from the reference: length, diversity, reward hacking, calibration, categories."""
    before, after = reference.length, policy.length
    # Apart for sure, and only then by how much: a large factor of few answers may be luck.
    if min(before.value, after.value) > 0 and (_is_above(before, after) or _is_above(after, before)):
        factor = after.value / before.value
        if max(factor, 1 / factor) >= LENGTH_FACTOR:
            yield _doubt("length", policy=policy, reference=reference, factor=LENGTH_FACTOR)
    old, new = reference.diversity.distinct_2, policy.diversity.distinct_2
    if old and new is not None and new < MIN_DISTINCT_SHARE * old:
        yield _doubt("sameness", policy=policy, reference=reference)
    if _is_above(policy.reward, reference.reward) and _is_above(reference.gold, policy.gold):
        yield _doubt("gamed_reward", grave=True, policy=policy, reference=reference)
    yield from _calibration_warning(policy, reference)
    yield from _category_warning(policy, reference)


def _calibration_warning(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    before, after = reference.calibration, policy.calibration
    if before is None or after is None:
        return
    # The interval of a change of errors is too narrow now and then; that of the surplus is not.
    if _is_above_zero(after.ece_change) and _is_above_zero(after.surplus_change):
        yield _doubt("calibration", policy=policy, reference=reference, before=before, after=after)


def _is_above_zero(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.low is not None and estimate.low > 0


def _category_warning(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    before = {part.name: part.value for part in reference.by_category}
    worse = [
        say("category_fell", name=part.name, before=before[part.name], after=part.value)
        for part in policy.by_category
        if _is_above(before.get(part.name), part.value)
    ]
    if worse:
        yield _doubt("categories", policy=policy, categories=", ".join(worse))


def _distance_and_end_warnings(
    policy: PolicyFigures, reference: PolicyFigures | None
) -> Iterator[ReportWarning]:
    if policy.kl is not None and policy.kl.value > MAX_KL:
        # KL of best-of-n is about ln n − 1, so n is about e^(KL + 1); 700 keeps exp within float64.
        answers = math.exp(min(policy.kl.value + 1, 700.0))
        name = reference.name if reference else "its reference"
        yield _doubt("distance", policy=policy, reference=name, most=MAX_KL, answers=answers)
    if policy.finished.value < MIN_FINISHED:
        yield _doubt("cut_answers", policy=policy, least=MIN_FINISHED)


def _win_rate_warnings(evaluation: PolicyEvaluation, policy: PolicyFigures) -> Iterator[ReportWarning]:
    contest = contest_against_reference(evaluation, policy.name)
    if contest is None or contest.raw is None:
        return
    verdict, controlled = interval_verdict(contest.raw), contest.length_controlled
    if verdict == "open":
        yield _doubt("open_win_rate", policy=policy, contest=contest)
    if verdict == "better" and controlled is not None and interval_verdict(controlled) != "better":
        yield _doubt("equal_length", policy=policy, contest=contest)


def _optimised_judge_warning(evaluation: PolicyEvaluation) -> Iterator[ReportWarning]:
    """Where nothing but the learnt reward judges: a policy that pleases it was made to."""
    judges = {contest.judge for contest in evaluation.contests}
    if evaluation.reward is not None and evaluation.gold is None and judges == {evaluation.reward}:
        yield _doubt("optimised_judge", grave=True, judge=evaluation.reward)


def _uncorrected_warnings(evaluation: PolicyEvaluation) -> Iterator[ReportWarning]:
    for judge in dict.fromkeys(contest.judge for contest in evaluation.contests if contest.uncorrected):
        yield _doubt("uncorrected", judge=judge)


def _judge_warnings(contest: Contest) -> Iterator[ReportWarning]:
    pairs = contest.won + contest.tied + contest.lost + contest.unjudged
    if pairs and contest.unjudged / pairs > MAX_UNJUDGED:
        reasons = ", ".join(f"{count:,} {short_name(reason)}" for reason, count in contest.reasons.items())
        reasons = f" ({reasons})" if reasons else ""
        yield _doubt("unjudged", contest=contest, pairs=pairs, reasons=reasons, most=MAX_UNJUDGED)
    if contest.consistency is not None and contest.consistency.value < MIN_CONSISTENCY:
        yield _doubt("inconsistent", contest=contest, least=MIN_CONSISTENCY)


def _is_above(estimate: Estimate | None, other: Estimate | None) -> bool:
    if estimate is None or other is None or estimate.low is None or other.high is None:
        return False
    return estimate.low > other.high
