"""Scores of the answers of several policies by a reward, how diverse the answers are, and rows for a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import PolicyCalibration, policy_calibration
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings, PolicyCompletions
from plaudit.evaluation.policies.over_optimisation import (
    CompletionScores,
    KlEstimates,
    estimate_kl,
    mean_entropy,
    prompt_index,
)
from plaudit.evaluation.policies.result import (
    CategoryFigure,
    Diversity,
    PolicyAnswer,
    PolicyFigures,
    PromptAnswers,
)
from plaudit.evaluation.reward_models.result import Estimate
from plaudit.evaluation.stats import Resampling, bootstrap_mean
from plaudit.models.reward_model import first_differing_token
from plaudit.rewards.base import Reward, TaskScores

TOO_SHORT_SHARE = 0.1
"""The share of a policy's answers that may be too short for the common length."""
MAX_BLEU_PAIRS = 1000
"""Pairs of answers that BLEU is asked about, at most; of more, so many are drawn with a fixed seed."""
_WORD = re.compile(r"\w+|[^\w\s]")

AnswersByPrompt = Mapping[str, Sequence[str]]
"""What a policy said to each prompt."""


def split_words(text: str) -> list[str]:
    """Words and marks, each by itself.

    >>> split_words("Mice, mostly.")
    ['Mice', ',', 'mostly', '.']
    """
    return _WORD.findall(text)


def common_word_count(policies: Iterable[AnswersByPrompt]) -> int:
    """The number of words to cut all answers to: no policy has more than a tenth of its answers below it.

    >>> common_word_count([{"q": ["one two three", "one two"]}, {"q": ["a b c d"]}])
    2
    """
    counts = [[len(split_words(text)) for some in policy.values() for text in some] for policy in policies]
    # "lower" is a length that occurs, so that no more than a tenth lies below it.
    lowest = [int(np.quantile(count_B, TOO_SHORT_SHARE, method="lower")) for count_B in counts if count_B]
    return max([1, *([min(lowest)] if lowest else [])])


def measure_diversity(answers_by_prompt: AnswersByPrompt, words: int) -> Diversity:
    """Every figure that depends on length is of the first ``words`` words of the answers that have so many.

    distinct-n is unlike n-grams over all n-grams (Li et al. 2016, arXiv:1510.03055). It also falls with the
    number of answers, so policies are compared on as many. Self-BLEU (Zhu et al. 2018, arXiv:1802.01886) is
    taken of pairs, one answer against one other, with sacrebleu's effective order: against all others at once
    it would rise with how many they are. Of more than 1,000 pairs so many are drawn with a fixed seed.

    >>> found = measure_diversity({"a": ["Mice and voles."], "b": ["Mice and seeds."]}, words=3)
    >>> round(found.distinct_1, 2), found.distinct_2, found.unique
    (0.67, 0.75, 1.0)
    """
    if words < 1:
        raise ValueError(f"answers cannot be cut to {words} words")
    cut = [
        [tokens[:words] for text in texts_of_prompt if len(tokens := split_words(text)) >= words]
        for texts_of_prompt in answers_by_prompt.values()
    ]
    cut_answers = [tokens for texts_of_prompt in cut for tokens in texts_of_prompt]
    stripped = [
        [text.strip() for text in texts_of_prompt]
        for texts_of_prompt in answers_by_prompt.values()
        if texts_of_prompt
    ]
    several = [texts_of_prompt for texts_of_prompt in stripped if len(texts_of_prompt) > 1]
    texts = [text for texts_of_prompt in stripped for text in texts_of_prompt]
    return Diversity(
        words=words,
        answers=len(cut_answers),
        distinct_1=_distinct_n(cut_answers, 1),
        distinct_2=_distinct_n(cut_answers, 2),
        self_bleu=_mean_self_bleu(cut, within=False),
        self_bleu_within=_mean_self_bleu(cut, within=True),
        unique=len(set(texts)) / len(texts) if texts else 0.0,
        unique_within=float(
            np.mean([len(set(texts_of_prompt)) / len(texts_of_prompt) for texts_of_prompt in several])
        )
        if several
        else None,
    )


def _distinct_n(answers: Sequence[Sequence[str]], n: int) -> float | None:
    grams = [tuple(tokens[at : at + n]) for tokens in answers for at in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def _mean_self_bleu(cut: Sequence[Sequence[Sequence[str]]], *, within: bool) -> float | None:
    """The mean BLEU of ordered pairs, of one prompt or of two."""
    texts = [" ".join(tokens) for some in cut for tokens in some]
    pairs = _ordered_pairs([len(some) for some in cut], within=within)
    if not pairs:
        return None
    from sacrebleu.metrics.bleu import BLEU

    # Words are split already; BLEU's own tokenizer would split them a second way.
    bleu = BLEU(effective_order=True, tokenize="none")
    return float(np.mean([bleu.sentence_score(texts[first], [texts[other]]).score for first, other in pairs]))


def _ordered_pairs(sizes: Sequence[int], *, within: bool) -> list[tuple[int, int]]:
    """Ordered pairs of different answers, numbered prompt after prompt: all, or so many as are drawn."""
    size_N = np.repeat(sizes, sizes)
    start_N = np.repeat(np.cumsum([0, *sizes])[:-1], sizes)
    # The partners of each answer, and their running sum, number all ordered pairs without listing them.
    other_N = size_N - 1 if within else len(size_N) - size_N
    cumulative_N = np.cumsum(other_N)
    total = int(other_N.sum())
    takes_all = total <= MAX_BLEU_PAIRS
    chosen_Q = (
        np.arange(total) if takes_all else np.random.default_rng(0).integers(total, size=MAX_BLEU_PAIRS)
    )
    # "right": pair c belongs to the first answer whose running sum is above c.
    one_Q = np.searchsorted(cumulative_N, chosen_Q, side="right")
    nth_Q = chosen_Q - (cumulative_N - other_N)[one_Q]
    if within:
        other_Q = start_N[one_Q] + nth_Q
        # Stepping over itself.
        other_Q += other_Q >= one_Q
    else:
        # Stepping over all answers to its own prompt.
        other_Q = nth_Q + np.where(nth_Q >= start_N[one_Q], size_N[one_Q], 0)
    return list(zip(one_Q.tolist(), other_Q.tolist(), strict=True))


AnswerScores = tuple[TaskScores, ...]
"""The scores of each prompt's answers; None is no verdict."""


def score_answers(
    reward: Reward, prompts: Sequence[EvaluationPrompt], policies: Sequence[PolicyCompletions]
) -> Mapping[str, AnswerScores]:
    """Each policy's scores by a reward, by the policy's name; the answers of all policies to one prompt are
    scored side by side.
    """
    answers_by_prompt = [
        [
            [(rollout.answer.text, rollout.answer.ended) for rollout in policy.rollouts[index]]
            for policy in policies
        ]
        for index in range(len(prompts))
    ]
    tasks = [
        prompt.task(answer for answers in groups for answer in answers)
        for prompt, groups in zip(prompts, answers_by_prompt, strict=True)
    ]
    rows = reward.scores(tasks)
    if [len(row) for row in rows] != [len(task.answers) for task in tasks]:
        raise UserError(f"{reward.name}: a reward returns one score for each answer of each task")
    _check_finite(reward.name, rows)
    scores_by_policy: dict[str, list[TaskScores]] = {policy.name: [] for policy in policies}
    for row, groups in zip(rows, answers_by_prompt, strict=True):
        remaining = iter(row)
        for policy, answers in zip(policies, groups, strict=True):
            scores_by_policy[policy.name].append(tuple(next(remaining) for _ in answers))
    return {name: tuple(answers) for name, answers in scores_by_policy.items()}


def mean_score(scores: AnswerScores | None, resampling: Resampling) -> Estimate | None:
    """The mean over the answers that have a score, with its interval; None where none has."""
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
) -> tuple[CategoryFigure, ...]:
    """The mean score by category, in the order in which they are met; empty with fewer than two."""
    categories = dict.fromkeys(prompt.category for prompt in prompts if prompt.category is not None)
    if scores is None or len(categories) < 2:
        return ()
    means = (
        (
            category,
            mean_score(
                tuple(
                    row for row, prompt in zip(scores, prompts, strict=True) if prompt.category == category
                ),
                resampling,
            ),
        )
        for category in categories
    )
    return tuple(CategoryFigure(name=category, value=value) for category, value in means if value is not None)


def count_missing(scores: AnswerScores | None) -> int:
    """The number of answers without a score."""
    return 0 if scores is None else sum(score is None for row in scores for score in row)


def _check_finite(name: str, rows: Sequence[TaskScores]) -> None:
    for number, row in enumerate(rows, 1):
        for score in row:
            if score is not None and not math.isfinite(score):
                raise UserError(
                    f"{name} gave {score} to an answer to prompt {number}; a score is a finite number or None"
                )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyEvaluationData:
    """All completions and scores that the figures of policies are computed from.

    Example: ``PolicyEvaluationData(prompts=asked, policies=policies, reference="sft",
        reference_scores={}, gold={}, reward={})``
    """

    prompts: Sequence[EvaluationPrompt]
    """The prompts."""
    policies: Sequence[PolicyCompletions]
    """The completions of each policy."""
    reference: str
    """The policy that KL is measured from."""
    reference_scores: Mapping[str, CompletionScores]
    """The reference's log-probs of each policy's completions; policies whose tokens it cannot score are
    left out.
    """
    gold: Mapping[str, AnswerScores]
    """The true worth of each policy's answers; empty where nobody knows it."""
    reward: Mapping[str, AnswerScores]
    """What the learnt reward says of them."""


def policy_figures(
    policy: PolicyCompletions, data: PolicyEvaluationData, cut_to: int, resampling: Resampling
) -> PolicyFigures:
    """All figures of one policy; answers are cut to so many words where length would decide."""
    answers = [rollout.answer for group in policy.rollouts for rollout in group]
    prompt_B = prompt_index(policy.rollouts)
    length_B, ended_B = (
        np.array([float(getattr(answer, name)) for answer in answers]) for name in ("tokens", "ended")
    )
    kl = _kl_of_policy(policy, data, resampling)
    gold = data.gold.get(policy.name)
    return PolicyFigures(
        name=policy.name,
        model=str(policy.folder),
        gold=mean_score(gold, resampling),
        by_category=mean_score_by_category(gold, data.prompts, resampling),
        reward=mean_score(data.reward.get(policy.name), resampling),
        length=bootstrap_mean(length_B, prompt_B, resampling, share=False),
        finished=bootstrap_mean(ended_B, prompt_B, resampling),
        kl=None if kl is None else kl.kl,
        kl_token=None if kl is None else kl.kl_token,
        entropy=mean_entropy(policy.scores, resampling),
        diversity=measure_diversity(answers_by_prompt(policy), cut_to),
        calibration=_calibration_of_policy(policy, data, resampling),
    )


def answers_by_prompt(policy: PolicyCompletions) -> dict[str, list[str]]:
    """The texts of the answers by the number of their prompt."""
    return {
        str(index): [rollout.answer.text for rollout in group] for index, group in enumerate(policy.rollouts)
    }


def why_no_kl(
    policy: PolicyCompletions, reference: PolicyCompletions, settings: GenerationSettings
) -> str | None:
    """Why a policy's KL from the reference cannot be measured; None where it can."""
    if not settings.sampling.is_unrestricted:
        return (
            f"answers were drawn with {settings.description}, and KL needs them from the whole distribution"
        )
    token = first_differing_token(policy.encoder.info, reference.encoder.info)
    if token is not None:
        return f"their tokenizers differ (in {token!r}, for one)"
    # The first stands for its group: all answers to a prompt begin with the same tokens.
    if any(
        group[0].prompt != reference_group[0].prompt
        for group, reference_group in zip(policy.rollouts, reference.rollouts, strict=True)
    ):
        return "their chat templates differ, so that the same question is other tokens to each"
    return None


def answer_rows(data: PolicyEvaluationData) -> tuple[PromptAnswers, ...]:
    """Every answer, question by question; each row holds one of every policy."""
    all_rows: list[PromptAnswers] = []
    for index, prompt in enumerate(data.prompts):
        for nth in range(len(data.policies[0].rollouts[index])):
            answers = tuple(_policy_answer(policy, data, index, nth) for policy in data.policies)
            all_rows.append(
                PromptAnswers(prompt=plain_text(prompt.prompt), category=prompt.category, answers=answers)
            )
    return tuple(all_rows)


def _policy_answer(
    policy: PolicyCompletions, data: PolicyEvaluationData, index: int, nth: int
) -> PolicyAnswer:
    answer, score = policy.rollouts[index][nth].answer, policy.scores[index][nth]
    reference_scores = data.reference_scores.get(policy.name)
    return PolicyAnswer(
        policy=policy.name,
        text=answer.text,
        ended=answer.ended,
        tokens=answer.tokens,
        gold=_score_at(data.gold.get(policy.name), index, nth),
        reward=_score_at(data.reward.get(policy.name), index, nth),
        logp=score.logp,
        kl=None if reference_scores is None else score.logp - reference_scores[index][nth].logp,
    )


def _score_at(scores: AnswerScores | None, index: int, nth: int) -> float | None:
    return None if scores is None else scores[index][nth]


def _kl_of_policy(
    policy: PolicyCompletions, data: PolicyEvaluationData, resampling: Resampling
) -> KlEstimates | None:
    reference_scores = data.reference_scores.get(policy.name)
    return None if reference_scores is None else estimate_kl(policy.scores, reference_scores, resampling)


def _calibration_of_policy(
    policy: PolicyCompletions, data: PolicyEvaluationData, resampling: Resampling
) -> PolicyCalibration | None:
    if not policy.choice_logprobs:
        return None
    [reference] = [other for other in data.policies if other.name == data.reference]
    return policy_calibration(
        policy.choice_logprobs, resampling, None if reference is policy else reference.choice_logprobs
    )
