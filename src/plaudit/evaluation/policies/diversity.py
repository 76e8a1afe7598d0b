"""How unlike each other a policy's answers are, measured so that their length has no say in it."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from plaudit.data.edits import split_words
from plaudit.evaluation.policies.result import Diversity

TOO_SHORT_SHARE = 0.1
"""The share of a policy's answers that may be too short for the common length."""
MAX_BLEU_PAIRS = 1000
"""Pairs of answers that BLEU is asked about, at most; of more, so many are drawn with a fixed seed."""

AnswersByPrompt = Mapping[str, Sequence[str]]


def common_word_count(policies: Iterable[AnswersByPrompt]) -> int:
    """The number of words to cut all answers to: no policy has more than a tenth of its answers below it."""
    counts = [[len(split_words(text)) for some in policy.values() for text in some] for policy in policies]
    # "lower" is a length that occurs, so that no more than a tenth lies below it.
    lowest = [int(np.quantile(count_B, TOO_SHORT_SHARE, method="lower")) for count_B in counts if count_B]
    return max([1, *([min(lowest)] if lowest else [])])


def measure_diversity(answers_by_prompt: AnswersByPrompt, words: int) -> Diversity:
    """Every figure that depends on length is of the first ``words`` words of the answers that have so many.

    distinct-n is unlike n-grams over all n-grams (Li et al. 2016, arXiv:1510.03055). It also falls with the
    number of answers, so policies are compared on as many. Self-BLEU (Zhu et al. 2018, arXiv:1802.01886) is
    taken of pairs, one answer against one other, with `sentence_bleu`: against all others at once
    it would rise with how many they are. Of more than 1,000 pairs so many are drawn with a fixed seed.
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
        distinct_1=distinct_n(cut_answers, 1),
        distinct_2=distinct_n(cut_answers, 2),
        self_bleu=_mean_self_bleu(cut, within=False),
        self_bleu_within=_mean_self_bleu(cut, within=True),
        unique=len(set(texts)) / len(texts) if texts else 0.0,
        unique_within=float(
            np.mean([len(set(texts_of_prompt)) / len(texts_of_prompt) for texts_of_prompt in several])
        )
        if several
        else None,
    )


def distinct_n(answers: Sequence[Sequence[str]], n: int) -> float | None:
    """Unlike n-grams over all n-grams of answers that are split into words; None where there are none.

    >>> distinct_n([["mice", "and", "voles"], ["mice", "and", "seeds"]], 2)
    0.75
    """
    grams = [tuple(tokens[at : at + n]) for tokens in answers for at in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def _mean_self_bleu(cut: Sequence[Sequence[Sequence[str]]], *, within: bool) -> float | None:
    texts = [tokens for some in cut for tokens in some]
    pairs = _ordered_pairs([len(some) for some in cut], within=within)
    if not pairs:
        return None
    return float(np.mean([sentence_bleu(texts[first], texts[other]) for first, other in pairs]))


def sentence_bleu(answer: Sequence[str], other: Sequence[str]) -> float:
    """BLEU, up to 100, of words beside one reference (Papineni et al. 2002), of orders that the answer has.
    The k-th order without a hit counts as 2⁻ᵏ of one (NIST's smoothing); no word in common is 0.

    >>> round(sentence_bleu("one two three four".split(), "one two three six".split()), 2)
    59.46
    """
    logs: list[float] = []
    missed = 0
    for n in range(1, min(4, len(answer)) + 1):
        grams = Counter(tuple(answer[at : at + n]) for at in range(len(answer) - n + 1))
        hits = (grams & Counter(tuple(other[at : at + n]) for at in range(len(other) - n + 1))).total()
        if n == 1 and hits == 0:
            return 0.0
        missed += hits == 0
        logs.append(math.log((hits or 0.5**missed) / grams.total()))
    brevity = min(0.0, 1 - len(other) / len(answer))
    return 100 * math.exp(brevity + sum(logs) / len(logs)) if logs else 0.0


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
