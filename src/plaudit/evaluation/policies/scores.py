"""Scores of the answers of several policies by a reward, and each policy's figures and answers as rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import comb
from typing import TypeVar

import numpy as np

from plaudit.data.records import Task, plain_text
from plaudit.evaluation.policies import WRITTEN, result
from plaudit.evaluation.policies.calibration import PolicyCalibration, policy_calibration
from plaudit.evaluation.policies.diversity import measure_diversity
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings, PolicyCompletions
from plaudit.evaluation.policies.kl import CompletionScores, estimate_kl, mean_entropy, prompt_index
from plaudit.evaluation.policies.win_rate import DuelsByPair, JudgedPair
from plaudit.evaluation.reward_models.pairs import divided_scores
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.models.reward_model import first_differing_token
from plaudit.rewards.base import Reward, TaskScores
from plaudit.rewards.verifiable.instructions import InstructionReward, InstructionVerdicts
from plaudit.rollouts.sampler import Rollout

AnswerScores = tuple[TaskScores, ...]


InstructionRows = tuple[tuple[InstructionVerdicts | None, ...], ...]
"""What holds of the instructions of each prompt's answers; None is no verdict."""
_Verdict = TypeVar("_Verdict")


def score_answers(
    reward: Reward, prompts: Sequence[EvaluationPrompt], policies: Sequence[PolicyCompletions]
) -> Mapping[str, AnswerScores]:
    """Each policy's scores, by its name; the answers of all to one prompt are scored side by side."""
    return _judge_answers(lambda tasks: divided_scores(reward, tasks), prompts, policies)


def right_answers(
    rule: Reward | None, prompts: Sequence[EvaluationPrompt], policies: Sequence[PolicyCompletions]
) -> tuple[Mapping[str, AnswerScores], Mapping[str, InstructionRows]]:
    """Which answers of each policy are right, and what holds of them where the rule checks instructions."""
    if not isinstance(rule, InstructionReward):
        return {} if rule is None else score_answers(rule, prompts, policies), {}
    verdicts = _judge_answers(rule.verdicts, prompts, policies)
    right = {
        name: tuple(tuple(rule.score(answer, all_hold=True) for answer in row) for row in rows)
        for name, rows in verdicts.items()
    }
    return right, verdicts


def _judge_answers(
    judge: Callable[[Sequence[Task]], Sequence[tuple[_Verdict, ...]]],
    prompts: Sequence[EvaluationPrompt],
    policies: Sequence[PolicyCompletions],
) -> Mapping[str, tuple[tuple[_Verdict, ...], ...]]:
    groups = [[item for policy in policies for item in policy.rollouts[at]] for at in range(len(prompts))]
    tasks = [
        prompt.task((rollout.answer.text, rollout.answer.ended) for rollout in group)
        for prompt, group in zip(prompts, groups, strict=True)
    ]
    rows = [iter(row) for row in judge(tasks)]
    return {
        policy.name: tuple(
            tuple(islice(row, len(group))) for row, group in zip(rows, policy.rollouts, strict=True)
        )
        for policy in policies
    }


def mean_score(scores: AnswerScores | None, resampling: Resampling) -> Estimate | None:
    if scores is None:
        return None
    all_scores = [score for row in scores for score in row]
    has_score_B = np.array([score is not None for score in all_scores], dtype=bool)
    if not has_score_B.any():
        return None
    score_B = np.array([score for score in all_scores if score is not None], dtype=float)
    share = bool(((score_B >= 0) & (score_B <= 1)).all())
    return bootstrap_mean(score_B, prompt_index(scores)[has_score_B], resampling, share=share)


def mean_score_by_category(
    scores: AnswerScores | None, prompts: Sequence[EvaluationPrompt], resampling: Resampling
) -> tuple[result.CategoryFigure, ...]:
    categories = dict.fromkeys(prompt.category for prompt in prompts if prompt.category is not None)
    if scores is None or len(categories) < 2:
        return ()
    figures: list[result.CategoryFigure] = []
    for category in categories:
        rows = zip(scores, prompts, strict=True)
        mean = mean_score(tuple(row for row, prompt in rows if prompt.category == category), resampling)
        if mean is not None:
            figures.append(result.CategoryFigure(name=category, value=mean))
    return tuple(figures)


def pass_at_k(n: int, right: int, k: int) -> float:
    """1 − C(n − c, k)/C(n, k): the chance that k of n answers, c of them right, hold a right one.
    Unbiased for the chance of k new answers (Chen et al. 2021, arXiv:2107.03374, equation 1)."""
    if not (0 <= right <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {right} right answers of {n}")
    # Exact whole numbers: as factorials they would overflow a float at a few hundred answers.
    return 1 - comb(n - right, k) / comb(n, k)


def pass_figures(
    scores: AnswerScores | None, ks: Sequence[int], resampling: Resampling
) -> tuple[result.PassAtK, ...]:
    """pass@k over the prompts of which every answer has a verdict; none where no rule says 1 or 0."""
    if scores is None or why_no_passes(scores) is not None:
        return ()
    judged = [row for row in scores if None not in row]
    passes = ((k, np.array([pass_at_k(len(row), row.count(1), k) for row in judged])) for k in ks)
    return tuple(
        result.PassAtK(k=k, value=bootstrap_mean(probability_B, np.arange(len(judged)), resampling))
        for k, probability_B in passes
    )


def why_no_passes(scores: AnswerScores) -> str | None:
    """Why there is no pass@k; None where there is."""
    other = next((score for row in scores for score in row if score not in (0, 1, None)), None)
    if other is not None:
        return f"a rule gives 1 to a right answer and 0 to another, and this one gave {other:g}"
    if all(None in row for row in scores):
        return "no prompt has a verdict on each of its answers"
    return None


def instruction_figures(
    rows: InstructionRows, resampling: Resampling
) -> tuple[tuple[result.CategoryFigure, ...], tuple[result.CategoryFigure, ...]]:
    """IFEval's accuracies (Zhou et al. 2023) and their mean, and how often each kind holds strictly."""
    judged = [(prompt, answer) for prompt, row in enumerate(rows) for answer in row if answer is not None]
    if not judged:
        return (), ()

    def share(name: str, held: Iterable[tuple[int, bool]]) -> result.CategoryFigure:
        prompt_B, held_B = np.array([*held]).T
        value = bootstrap_mean(held_B.astype(float), prompt_B, resampling)
        return result.CategoryFigure(name=name, value=value)

    ways = (("strict", 1), ("loose", 2))
    four = [
        share(f"prompt-level {way}", ((at, all(item[place] for item in answer)) for at, answer in judged))
        for way, place in ways
    ] + [
        share(
            f"instruction-level {way}", ((at, bool(item[place])) for at, answer in judged for item in answer)
        )
        for way, place in ways
    ]
    mean = replace(four[0].value, value=sum(figure.value.value for figure in four) / 4, low=None, high=None)
    held = [(kind, at, strict) for at, answer in judged for kind, strict, _ in answer]
    names = sorted({kind for kind, _, _ in held})
    kinds = (share(name, ((at, strict) for kind, at, strict in held if kind == name)) for name in names)
    return (*four, result.CategoryFigure(name="mean of the four", value=mean)), tuple(kinds)


def count_missing(scores: AnswerScores | None) -> int:
    return 0 if scores is None else sum(score is None for row in scores for score in row)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyEvaluationData:
    prompts: Sequence[EvaluationPrompt]
    policies: Sequence[PolicyCompletions]
    reference: str
    reference_scores: Mapping[str, CompletionScores]
    """The reference's log-probs of each policy's completions; policies whose tokens it cannot score are
    left out."""
    gold: Mapping[str, AnswerScores]
    """The true worth of each policy's answers; empty where nobody knows it."""
    reward: Mapping[str, AnswerScores]
    right: Mapping[str, AnswerScores] = field(default_factory=dict[str, AnswerScores])
    """Which of them are right; empty where no rule says so."""
    instructions: Mapping[str, InstructionRows] = field(default_factory=dict[str, InstructionRows])
    pass_at: tuple[int, ...] = ()


def policy_figures(
    policy: PolicyCompletions, data: PolicyEvaluationData, cut_to: int, resampling: Resampling
) -> result.PolicyFigures:
    """All figures of one policy; answers are cut to so many words where length would decide."""
    answers = [rollout.answer for group in policy.rollouts for rollout in group]
    prompt_B = prompt_index(policy.rollouts)
    length_B, ended_B = (
        np.array([float(getattr(answer, name)) for answer in answers]) for name in ("tokens", "ended")
    )
    reference_scores = data.reference_scores.get(policy.name)
    kl, kl_token = (
        (None, None) if reference_scores is None else estimate_kl(policy.scores, reference_scores, resampling)
    )
    gold = data.gold.get(policy.name)
    instructions, kinds = instruction_figures(data.instructions.get(policy.name, ()), resampling)
    return result.PolicyFigures(
        name=policy.name,
        model=str(policy.contestant.folder or WRITTEN),
        gold=mean_score(gold, resampling),
        by_category=mean_score_by_category(gold, data.prompts, resampling),
        reward=mean_score(data.reward.get(policy.name), resampling),
        length=bootstrap_mean(length_B, prompt_B, resampling, share=False),
        finished=bootstrap_mean(ended_B, prompt_B, resampling),
        kl=kl,
        kl_token=kl_token,
        entropy=mean_entropy(policy.scores, resampling) if policy.scores else None,
        diversity=measure_diversity(answers_by_prompt(policy), cut_to),
        calibration=_calibration_of_policy(policy, data, resampling),
        passes=pass_figures(data.right.get(policy.name), data.pass_at, resampling),
        instructions=instructions,
        instruction_kinds=kinds,
    )


def answers_by_prompt(policy: PolicyCompletions) -> dict[str, list[str]]:
    return {
        str(index): [rollout.answer.text for rollout in group]
        for index, group in enumerate(policy.distinct_rollouts)
    }


def why_no_kl(
    policy: PolicyCompletions, reference: PolicyCompletions, settings: GenerationSettings
) -> str | None:
    """Why a policy's KL from the reference cannot be measured; None where it can."""
    if not settings.sampling.is_unrestricted:
        return (
            f"answers were drawn with {settings.description}, and KL needs them from the whole distribution"
        )
    if policy.encoder is None or reference.encoder is None:
        return "written answers have no probabilities"
    token = first_differing_token(policy.encoder.info, reference.encoder.info)
    if token is not None:
        return f"their tokenizers differ (in {token!r}, for one)"
    if has_own_context(policy, reference):
        # Each is asked in its own way, and what is compared are the answers' tokens: a template ends them.
        ways = [(encoder.template, encoder.asks_in_turns) for encoder in (policy.encoder, reference.encoder)]
        differ = ways[0] != ways[1]
    else:
        # The first stands for its group: all answers to a prompt begin with the same tokens.
        differ = any(
            group[0].prompt != reference_group[0].prompt
            for group, reference_group in zip(policy.rollouts, reference.rollouts, strict=True)
        )
    if differ:
        return "their chat templates differ, so that the same question is other tokens to each"
    return None


def has_own_context(policy: PolicyCompletions, reference: PolicyCompletions) -> bool:
    """Whether something stands before the prompts of either; then the same question is asked in two ways."""
    return policy.contestant.has_context or reference.contestant.has_context


def behind_prompts_of(
    reference: PolicyCompletions, rollouts: Sequence[Sequence[Rollout]]
) -> tuple[tuple[Rollout, ...], ...]:
    """The rollouts of another policy behind the prompts as the reference is asked them. KL(π(· | x′) ‖
    π_ref(· | x)) is a mean over answers of the first, x′ being x with what stands before it."""
    return tuple(
        tuple(replace(rollout, prompt=originals[0].prompt) for rollout in group)
        for group, originals in zip(rollouts, reference.rollouts, strict=True)
    )


def answer_rows(data: PolicyEvaluationData, duels: DuelsByPair) -> tuple[result.PromptAnswers, ...]:
    """Prompt after prompt and answer after answer, as the pairs of two policies lie too."""
    all_rows: list[result.PromptAnswers] = []
    remaining = {policy: iter(pairs) for (policy, other), pairs in duels.items() if other == data.reference}
    for index, prompt in enumerate(data.prompts):
        for nth in range(len(data.policies[0].rollouts[index])):
            answers = tuple(
                _policy_answer(policy, data, index, nth, next(remaining.get(policy.name, iter(())), None))
                for policy in data.policies
            )
            all_rows.append(
                result.PromptAnswers(
                    prompt=plain_text(prompt.prompt), category=prompt.category, answers=answers
                )
            )
    return tuple(all_rows)


def _policy_answer(
    policy: PolicyCompletions, data: PolicyEvaluationData, index: int, nth: int, duel: JudgedPair | None
) -> result.PolicyAnswer:
    answer = policy.rollouts[index][nth].answer
    logp = policy.scores[index][nth].logp if policy.scores else None
    reference_scores = data.reference_scores.get(policy.name)
    return result.PolicyAnswer(
        policy=policy.name,
        text=answer.text,
        ended=answer.ended,
        tokens=answer.tokens,
        gold=_score_at(data.gold.get(policy.name), index, nth),
        reward=_score_at(data.reward.get(policy.name), index, nth),
        logp=logp,
        kl=None if reference_scores is None or logp is None else logp - reference_scores[index][nth].logp,
        verdict=None if duel is None else duel.verdict,
    )


def _score_at(scores: AnswerScores | None, index: int, nth: int) -> float | None:
    return None if scores is None else scores[index][nth]


def _calibration_of_policy(
    policy: PolicyCompletions, data: PolicyEvaluationData, resampling: Resampling
) -> PolicyCalibration | None:
    if not policy.choice_logprobs:
        return None
    [reference] = [other for other in data.policies if other.name == data.reference]
    return policy_calibration(
        policy.choice_logprobs, resampling, None if reference is policy else reference.choice_logprobs or None
    )
