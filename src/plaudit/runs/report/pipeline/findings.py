"""What was found, in sentences: which policy is better, and what a reader should doubt.

Each warning has its figure, its threshold and the reason for that. A threshold is no truth: it says from
where on a figure deserves a look at the answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.stats import Estimate
from plaudit.runs.pipeline.kinds import ReportWarning
from plaudit.runs.report.figures import interval_text
from plaudit.runs.report.pipeline.data import PipelineData
from plaudit.runs.report.words import names_text, number_text, percent, short_name, shortened

LENGTH_FACTOR = 1.25
"""A mean length so many times the reference's, or the reference's so many times it."""
MIN_DISTINCT_SHARE = 2 / 3
"""A share of the reference's distinct pairs of words."""
MAX_KL = 10.0
"""Nats of KL an answer."""
MAX_UNJUDGED = 0.05
"""A share of pairs without a verdict."""
MIN_CONSISTENCY = 0.8
"""How often both orders should say the same."""
MIN_FINISHED = 0.9
"""The share of answers that should come to an end by themselves."""
MIN_PROMPTS = 100
"""The fewest prompts from which a win rate is judged."""
MAX_TRAINED = 0.01
"""The share of the evaluation's prompts that may have been trained on by chance."""
MAX_CAUTION_LENGTH = 180
"""Letters of a warning that have room in the page's first sentences."""
MAX_NOTE_LENGTH = 600
"""Letters of a note that have room."""


def contest_against_reference(evaluation: PolicyEvaluation, policy: str) -> Contest | None:
    """The first judge's contest of a policy against the reference, or else its first contest."""
    contests = [contest for contest in evaluation.contests if contest.policy == policy]
    against_reference = [contest for contest in contests if contest.against == evaluation.reference]
    return next(iter(against_reference or contests), None)


def interval_verdict(estimate: Estimate | None) -> str:
    """What the interval of a win rate says: ``better``, ``worse``, ``open``, or ``unknown``.

    >>> interval_verdict(Estimate(value=0.52, low=0.48, high=0.56, n=100, prompts=100))
    'open'
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return "unknown"
    return "better" if estimate.low > 0.5 else "worse" if estimate.high < 0.5 else "open"


def best_policy_summary(evaluation: PolicyEvaluation, warnings: Sequence[ReportWarning] = ()) -> str:
    """Who is better than the reference; how much, how sure, and what speaks against it.

    Policies whose intervals overlap with the highest one are named together: none of them is called the best.
    """
    leaders = _leaders(evaluation)
    if not leaders:
        return NO_RANKING
    sentences = (
        *_verdict_sentence(evaluation, leaders),
        *_worth_sentence(evaluation, leaders[0], single=len(leaders) == 1),
        *_win_rate_sentence(evaluation, leaders[0]),
        *caution_sentences(warnings),
    )
    return " ".join(sentences)


NO_RANKING = "There is no figure by which the policies could be ranked."
"""What is said of an evaluation that nobody judged."""


def ranking_sentences(evaluation: PolicyEvaluation) -> tuple[str, ...]:
    """Who is better than the reference, where more than two policies are compared."""
    leaders = _leaders(evaluation) if len(evaluation.policies) > 2 else ()
    return tuple(_verdict_sentence(evaluation, leaders)) if leaders else ()


def caution_sentences(warnings: Sequence[ReportWarning]) -> tuple[str, ...]:
    return tuple(
        f"But {warning.about}: {shortened(warning.finding, MAX_CAUTION_LENGTH)}."
        for warning in warnings
        if warning.grave
    )


def _leaders(evaluation: PolicyEvaluation) -> Sequence[PolicyFigures]:
    """The highest policy beside the reference, and those that may be as good; none where nobody judged."""
    others = [policy for policy in evaluation.policies if policy.name != evaluation.reference]
    best = _best_policy(evaluation, others)
    return () if best is None else (best, *_overlapping(evaluation, others, best))


def _overlapping(
    evaluation: PolicyEvaluation, others: Sequence[PolicyFigures], best: PolicyFigures
) -> Iterator[PolicyFigures]:
    """The other policies that may be as good, as far as intervals of each alone can tell."""

    def interval(policy: PolicyFigures) -> tuple[float, float] | None:
        contest = contest_against_reference(evaluation, policy.name)
        estimate = policy.gold if best.gold is not None else contest and contest.raw
        if estimate is None or estimate.low is None or estimate.high is None:
            return None
        return estimate.low, estimate.high

    highest, verdict = interval(best), _verdict(evaluation, best)
    for policy in others:
        ends = None if policy is best else interval(policy)
        if ends and highest and ends[1] >= highest[0] and _verdict(evaluation, policy) == verdict:
            yield policy


def _verdict(evaluation: PolicyEvaluation, policy: PolicyFigures) -> str:
    contest = contest_against_reference(evaluation, policy.name)
    return interval_verdict(contest and contest.raw)


def _verdict_sentence(evaluation: PolicyEvaluation, leaders: Sequence[PolicyFigures]) -> Iterator[str]:
    best, names = leaders[0], names_text(short_name(policy.name) for policy in leaders)
    contest = contest_against_reference(evaluation, best.name)
    if contest is None or contest.raw is None:
        return
    against, several = short_name(contest.against), len(leaders) > 1
    order = " These prompts do not show which of them is best." if several else ""
    yield {
        "better": f"{names} {'answer' if several else 'answers'} better than {against}.{order}",
        "worse": f"Nothing is better than {against}: {names} {'answer' if several else 'answers'} worse.",
        "open": f"That {names} {'are' if several else 'is'} better than {against} cannot be said.",
        "unknown": f"There are too few prompts to say whether {names} "
        f"{'are' if several else 'is'} better than {against}.",
    }[interval_verdict(contest.raw)]


def _best_policy(evaluation: PolicyEvaluation, others: Sequence[PolicyFigures]) -> PolicyFigures | None:
    if (
        with_gold := [policy for policy in others if policy.gold is not None]
    ) and evaluation.gold is not None:
        return max(with_gold, key=lambda policy: policy.gold.value if policy.gold else 0.0)
    win_rates = {
        policy.name: contest.raw.value
        for policy in others
        if (contest := contest_against_reference(evaluation, policy.name)) and contest.raw
    }
    return max(
        (policy for policy in others if policy.name in win_rates),
        key=lambda policy: win_rates[policy.name],
        default=None,
    )


def _worth_sentence(evaluation: PolicyEvaluation, best: PolicyFigures, *, single: bool) -> Iterator[str]:
    if best.gold is None:
        return
    reference = next((policy for policy in evaluation.policies if policy.name == evaluation.reference), None)
    name = short_name(best.name)
    sentence = f"{name}'s answers" if single else f"Those of {name}, the highest,"
    sentence = f"{sentence} are worth {_value_with_interval(best.gold)} on average"
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
    winner = short_name(best.name)
    yield f"By {judge} {winner} wins {share} of the prompts against {name}, a tie counting half."


def report_warnings(pipeline: PipelineData) -> tuple[ReportWarning, ...]:
    """All warnings of a pipeline: of its files, its runs and its policies."""
    policies = policy_warnings(pipeline.evaluation) if pipeline.evaluation else ()
    return (
        *_file_warnings(pipeline),
        *_trained_prompts_warning(pipeline),
        *_run_warnings(pipeline),
        *policies,
        *(
            warning
            for stage in pipeline.stages
            for found in stage.findings.values()
            for warning in found.warnings
        ),
    )


def policy_warnings(evaluation: PolicyEvaluation) -> tuple[ReportWarning, ...]:
    """The warnings that the figures of policies give rise to.

    A policy that is named before the reference is what the reference was made from: nothing drove it away.
    """
    names = [policy.name for policy in evaluation.policies]
    reference_index = names.index(evaluation.reference) if evaluation.reference in names else -1
    reference = evaluation.policies[reference_index] if reference_index >= 0 else None
    # Where the reference is the last, those before it are what there is to compare.
    later = evaluation.policies[reference_index + 1 :] or evaluation.policies[:reference_index]
    return (
        *_prompt_count_warning(evaluation),
        *(warning for policy in later if reference for warning in _change_warnings(policy, reference)),
        *(
            warning
            for policy in (*([reference] if reference else []), *later)
            for warning in _distance_and_end_warnings(policy, reference)
        ),
        *(warning for policy in later for warning in _win_rate_warnings(evaluation, policy)),
        *_optimised_judge_warning(evaluation),
        *(warning for contest in evaluation.contests for warning in _judge_warnings(contest)),
    )


def _file_warnings(pipeline: PipelineData) -> Iterator[ReportWarning]:
    for stage in pipeline.stages:
        for name in stage.changed_files:
            yield ReportWarning(
                about=short_name(stage.name),
                finding=f"{name} is not as the stage left it",
                reason="Its sha256 is not the one that was written down: figures of this page may be made "
                "up.",
                grave=True,
            )
    codes = {(stage.code.get("plaudit"), stage.code.get("commit")) for stage in pipeline.stages if stage.code}
    if len(codes) > 1:
        yield ReportWarning(
            about="stages",
            finding=f"they were made by {len(codes)} versions of the code",
            reason="Figures of different code are compared. To make all of them again: plaudit run --fresh.",
        )


def _trained_prompts_warning(pipeline: PipelineData) -> Iterator[ReportWarning]:
    prompts = {row.prompt for row in pipeline.evaluation.all_answers} if pipeline.evaluation else set()
    if not prompts:
        return
    trained = prompts & pipeline.trained_prompts.prompts
    if len(trained) > MAX_TRAINED * len(prompts):
        yield ReportWarning(
            about="prompts",
            finding=f"{len(trained):,} of the {len(prompts):,} prompts of the evaluation were trained on",
            reason="What was learnt by heart looks like a better policy. Ask prompts that no stage saw.",
            grave=True,
        )


def _run_warnings(pipeline: PipelineData) -> Iterator[ReportWarning]:
    """What a run remarked while it learnt; what it said before its first step only describes it."""
    for stage, run in pipeline.training_stages:
        for note in run.notes:
            if note.step != 0:
                when = "" if note.step is None else f" after step {note.step:,}"
                text = shortened(note.text, MAX_NOTE_LENGTH).rstrip(".")
                yield ReportWarning(
                    about=short_name(stage.name), finding=text, reason=f"Noted by the run itself{when}."
                )


def _prompt_count_warning(evaluation: PolicyEvaluation) -> Iterator[ReportWarning]:
    if evaluation.prompts < MIN_PROMPTS:
        yield ReportWarning(
            about="prompts",
            finding=f"there were only {evaluation.prompts:,}",
            reason=f"With fewer than {MIN_PROMPTS} a win rate is known to no better than about ten points.",
        )


def _change_warnings(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    """Warnings about changes from the reference: length, diversity, reward hacking, calibration,
    categories.
    """
    name, reference_name = short_name(policy.name), short_name(reference.name)
    before, after = reference.length, policy.length
    # Apart for sure, and only then by how much: a large factor of few answers may be luck.
    if min(before.value, after.value) > 0 and _is_disjoint(before, after):
        factor = after.value / before.value
        if max(factor, 1 / factor) >= LENGTH_FACTOR:
            yield ReportWarning(
                about=name,
                finding=f"an answer has {number_text(after.value)} tokens, {reference_name}'s "
                f"{number_text(before.value)}",
                reason=f"Said from a factor of {LENGTH_FACTOR} on: a reward that likes length is gamed by "
                "length.",
            )
    old, new = reference.diversity.distinct_2, policy.diversity.distinct_2
    if old and new is not None and new < MIN_DISTINCT_SHARE * old:
        yield ReportWarning(
            about=name,
            finding=f"of its pairs of words {percent(new)} are unlike, of {reference_name}'s {percent(old)}",
            reason="Said below two thirds: it says the same to many prompts (mode collapse). Read the "
            "samples.",
        )
    yield from _reward_hacking_warning(policy, reference)
    yield from _calibration_warning(policy, reference)
    yield from _category_warning(policy, reference)


def _reward_hacking_warning(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    if policy.reward is None or reference.reward is None or policy.gold is None or reference.gold is None:
        return
    if _is_above(policy.reward, reference.reward) and _is_above(reference.gold, policy.gold):
        gold = f"{number_text(reference.gold.value)} to {number_text(policy.gold.value)}"
        reward = f"{number_text(reference.reward.value)} to {number_text(policy.reward.value)}"
        yield ReportWarning(
            about=short_name(policy.name),
            finding=f"its learnt reward rose from {reward} and its true worth fell from {gold}",
            reason="The intervals are apart: the reward is gamed. Stop earlier, or raise β.",
            grave=True,
        )


def _calibration_warning(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    if policy.calibration is None or reference.calibration is None:
        return
    change, calibration = policy.calibration.ece_change, policy.calibration
    # The interval of a change of errors is too narrow now and then; that of the surplus is not.
    if change is not None and _is_above_zero(change) and _is_above_zero(calibration.surplus_change):
        errors = (
            f"{number_text(calibration.ece.value)}, {short_name(reference.name)}'s is "
            f"{number_text(reference.calibration.ece.value)}"
        )
        yield ReportWarning(
            about=short_name(policy.name),
            finding=f"its calibration error is {errors}: {number_text(change.value)} more "
            f"({interval_text(change)})",
            reason=f"It is {percent(calibration.confidence.value)} sure where "
            f"{percent(calibration.accuracy.value)} are right. "
            "Do not read its probabilities as chances.",
        )


def _is_above_zero(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.low is not None and estimate.low > 0


def _category_warning(policy: PolicyFigures, reference: PolicyFigures) -> Iterator[ReportWarning]:
    before = {part.name: part.value for part in reference.by_category}
    worse_categories = [
        f"{short_name(part.name)} ({number_text(before[part.name].value)} to {number_text(part.value.value)})"
        for part in policy.by_category
        if part.name in before and _is_above(before[part.name], part.value)
    ]
    if worse_categories:
        yield ReportWarning(
            about=short_name(policy.name),
            finding=f"its worth fell on {', '.join(worse_categories)}",
            reason="The intervals are apart. A mean over all prompts hides it.",
        )


def _distance_and_end_warnings(
    policy: PolicyFigures, reference: PolicyFigures | None
) -> Iterator[ReportWarning]:
    name = short_name(policy.name)
    if policy.kl is not None and policy.kl.value > MAX_KL:
        # KL of best-of-n is about ln n − 1, so n is about e^(KL + 1); 700 keeps exp within float64.
        answers = math.exp(min(policy.kl.value + 1, 700.0))
        reference_name = short_name(reference.name) if reference else "its reference"
        yield ReportWarning(
            about=name,
            finding=f"it is {number_text(policy.kl.value)} nats an answer from {reference_name}",
            reason=f"Said from {MAX_KL:.0f} on: the best of about {number_text(answers)} answers is as "
            "far, and the "
            "reward never saw such answers when it was learnt.",
        )
    if policy.finished.value < MIN_FINISHED:
        yield ReportWarning(
            about=name,
            finding=f"only {percent(policy.finished.value)} of its answers come to an end by themselves",
            reason=f"Said below {percent(MIN_FINISHED)}: cut answers are judged as they are. Allow more "
            "tokens.",
        )


def _win_rate_warnings(evaluation: PolicyEvaluation, policy: PolicyFigures) -> Iterator[ReportWarning]:
    contest = contest_against_reference(evaluation, policy.name)
    if contest is None or contest.raw is None:
        return
    against = short_name(contest.against)
    ends = interval_text(contest.raw, share=True)
    if interval_verdict(contest.raw) == "open":
        yield ReportWarning(
            about=short_name(policy.name),
            finding=f"it wins {percent(contest.raw.value)} against {against} ({ends})",
            reason="The interval holds one half: these prompts do not show which of the two is better.",
        )
    controlled = contest.length_controlled
    if (
        interval_verdict(contest.raw) == "better"
        and controlled is not None
        and interval_verdict(controlled) != "better"
    ):
        ends = interval_text(controlled, share=True)
        yield ReportWarning(
            about=short_name(policy.name),
            finding=f"at equal length it would win {percent(controlled.value)} against {against} ({ends})",
            reason="Raw it is better and at equal length that cannot be said: its wins may be those of "
            "length.",
        )


def _optimised_judge_warning(evaluation: PolicyEvaluation) -> Iterator[ReportWarning]:
    """Where nothing but the learnt reward judges: a policy that pleases it was made to."""
    judges = {contest.judge for contest in evaluation.contests}
    if evaluation.reward is not None and evaluation.gold is None and judges == {evaluation.reward}:
        yield ReportWarning(
            about=short_name(evaluation.reward),
            finding="wins are counted by the learnt reward alone, which policies may have been optimised for",
            reason="To please it is what training is for, and no evidence. Add a judge that no stage saw.",
            grave=True,
        )


def _judge_warnings(contest: Contest) -> Iterator[ReportWarning]:
    judge, pairs = short_name(contest.judge), contest.won + contest.tied + contest.lost + contest.unjudged
    about = f"{judge} on {short_name(contest.policy)}"
    if pairs and contest.unjudged / pairs > MAX_UNJUDGED:
        reasons = ", ".join(f"{count:,} {short_name(reason)}" for reason, count in contest.reasons.items())
        yield ReportWarning(
            about=about,
            finding=f"{contest.unjudged:,} of {pairs:,} pairs have no "
            f"verdict{f' ({reasons})' if reasons else ''}",
            reason=f"Said from {percent(MAX_UNJUDGED)} on: those left out may not be like the others.",
        )
    if contest.consistency is not None and contest.consistency.value < MIN_CONSISTENCY:
        yield ReportWarning(
            about=about,
            finding=f"the two orders agree in only {percent(contest.consistency.value)} of the pairs",
            reason=f"Said below {percent(MIN_CONSISTENCY)}: so much of the verdict is the place of the "
            "answer.",
        )


def _is_disjoint(estimate: Estimate, other_estimate: Estimate) -> bool:
    return _is_above(estimate, other_estimate) or _is_above(other_estimate, estimate)


def _is_above(estimate: Estimate, other_estimate: Estimate) -> bool:
    """Whether one's interval lies wholly above the other's."""
    return estimate.low is not None and other_estimate.high is not None and estimate.low > other_estimate.high
