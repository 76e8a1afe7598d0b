"""How unlike each other a policy's answers are, measured so that their length has no say in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from plaudit.evaluation.policies.result import Diversity

SHORT = 0.1
"""The share of a policy's answers that may be too short for the common length."""
PAIRS = 1000
"""Pairs of answers that BLEU is asked about, at most; of more, so many are drawn with a fixed seed."""
_WORD = re.compile(r"\w+|[^\w\s]")

Answers = Mapping[str, Sequence[str]]
"""What a policy said to each prompt."""


def words_of(text: str) -> list[str]:
    """Words and marks, each by itself.

    >>> words_of("Mice, mostly.")
    ['Mice', ',', 'mostly', '.']
    """
    return _WORD.findall(text)


def common_words(policies: Iterable[Answers]) -> int:
    """What to cut all answers to: so long that no policy has more than a tenth of its answers below it.

    >>> common_words([{"q": ["one two three", "one two"]}, {"q": ["a b c d"]}])
    2
    """
    counts = [[len(words_of(text)) for some in policy.values() for text in some] for policy in policies]
    lowest = [int(np.quantile(count_B, SHORT, method="lower")) for count_B in counts if count_B]
    return max([1, *([min(lowest)] if lowest else [])])


def diversity(answers_by_prompt: Answers, words: int) -> Diversity:
    """Every figure that depends on length is of the first ``words`` words of the answers that have so many.

    distinct-n is unlike n-grams over all n-grams (Li et al. 2016, arXiv:1510.03055). It also falls with the
    number of answers, so policies are compared on as many. Self-BLEU (Zhu et al. 2018, arXiv:1802.01886) is
    taken of pairs, one answer against one other, with sacrebleu's effective order: against all others at once
    it would rise with how many they are. Of more than 1,000 pairs so many are drawn with a fixed seed.

    >>> found = diversity({"a": ["Mice and voles."], "b": ["Mice and seeds."]}, words=3)
    >>> round(found.distinct_1, 2), found.distinct_2, found.unique
    (0.67, 0.75, 1.0)
    """
    if words < 1:
        raise ValueError(f"answers cannot be cut to {words} words")
    cut = [
        [tokens[:words] for text in some if len(tokens := words_of(text)) >= words]
        for some in answers_by_prompt.values()
    ]
    flat = [tokens for some in cut for tokens in some]
    whole = [[text.strip() for text in some] for some in answers_by_prompt.values() if some]
    several = [some for some in whole if len(some) > 1]
    texts = [text for some in whole for text in some]
    return Diversity(
        words=words,
        answers=len(flat),
        distinct_1=_distinct(flat, 1),
        distinct_2=_distinct(flat, 2),
        self_bleu=_bleu(cut, within=False),
        self_bleu_within=_bleu(cut, within=True),
        unique=len(set(texts)) / len(texts) if texts else 0.0,
        unique_within=float(np.mean([len(set(some)) / len(some) for some in several])) if several else None,
    )


def _distinct(answers: Sequence[Sequence[str]], n: int) -> float | None:
    grams = [tuple(tokens[at : at + n]) for tokens in answers for at in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def _bleu(cut: Sequence[Sequence[Sequence[str]]], *, within: bool) -> float | None:
    """The mean BLEU of ordered pairs, of one prompt or of two."""
    said = [" ".join(tokens) for some in cut for tokens in some]
    pairs = _pairs([len(some) for some in cut], within=within)
    if not pairs:
        return None
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(effective_order=True, tokenize="none")
    return float(np.mean([bleu.sentence_score(said[one], [said[other]]).score for one, other in pairs]))


def _pairs(sizes: Sequence[int], *, within: bool) -> list[tuple[int, int]]:
    """Ordered pairs of different answers, numbered prompt after prompt: all, or so many as are drawn."""
    size_N = np.repeat(sizes, sizes)
    start_N = np.repeat(np.cumsum([0, *sizes])[:-1], sizes)
    other_N = size_N - 1 if within else len(size_N) - size_N
    upto_N = np.cumsum(other_N)
    total = int(other_N.sum())
    every = total <= PAIRS
    chosen_Q = np.arange(total) if every else np.random.default_rng(0).integers(total, size=PAIRS)
    one_Q = np.searchsorted(upto_N, chosen_Q, side="right")
    nth_Q = chosen_Q - (upto_N - other_N)[one_Q]
    if within:
        other_Q = start_N[one_Q] + nth_Q
        other_Q += other_Q >= one_Q
    else:
        other_Q = nth_Q + np.where(nth_Q >= start_N[one_Q], size_N[one_Q], 0)
    return list(zip(one_Q.tolist(), other_Q.tolist(), strict=True))
