"""Diversity: by hand, blind to length, and the same when it is drawn as when all is looked at."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from plaudit.evaluation.policies import diversity as module
from plaudit.evaluation.policies.diversity import common_word_count, measure_diversity, sentence_bleu

WORDS = [f"w{n}" for n in range(12)]


def spoken(prompts=6, each=3, least=5, seed=0, words=12):
    chance = np.random.default_rng(seed)
    return {
        f"q{p}": [" ".join(chance.choice(WORDS[:words], chance.integers(least, 15))) for _ in range(each)]
        for p in range(prompts)
    }


def test_every_figure_by_hand():
    said = {"a": ["one two three four", "one two five"], "b": ["one two three six", "one two three"]}
    found = measure_diversity(said, 3)
    assert (found.words, found.answers) == (3, 4)
    assert found.distinct_1 == 4 / 12
    assert found.distinct_2 == 3 / 8
    assert (found.unique, found.unique_within) == (1.0, 1.0)
    cut = [["one two three", "one two five"], ["one two three", "one two three"]]
    across = [sentence_bleu(x.split(), y.split()) for x in cut[0] for y in cut[1]]
    assert found.self_bleu == pytest.approx(np.mean(across))
    within = [sentence_bleu(one.split(), other.split()) for one, other in cut]
    assert found.self_bleu_within == pytest.approx(np.mean(within))


def test_bleu_is_sacrebleus_with_its_effective_order():
    bleu = BLEU(effective_order=True, tokenize="none")
    texts = [text for some in spoken(least=1, words=5).values() for text in some]
    for one in texts:
        for other in texts:
            peer = bleu.sentence_score(one, [other]).score
            assert sentence_bleu(one.split(), other.split()) == pytest.approx(peer, abs=1e-9)


def test_what_comes_after_the_common_length_changes_nothing():
    """The longer of two policies that begin alike has the lower distinct-n, unless both are cut."""
    short = spoken(least=5)
    short = {q: [" ".join(text.split()[:5]) for text in some] for q, some in short.items()}
    long = {q: [text + " and so on and on and on" for text in some] for q, some in short.items()}
    words = common_word_count([short, long])
    assert words == 5
    one, other = measure_diversity(short, words), measure_diversity(long, words)
    for name in ("distinct_1", "distinct_2", "self_bleu", "self_bleu_within", "answers"):
        assert getattr(one, name) == getattr(other, name)
    assert measure_diversity(long, 12).distinct_1 < one.distinct_1


def test_a_collapsed_policy_is_at_the_far_end_of_every_figure():
    found = measure_diversity({f"q{n}": ["I do not know that."] * 2 for n in range(10)}, 5)
    assert (found.self_bleu, found.self_bleu_within) == (pytest.approx(100), pytest.approx(100))
    assert (found.unique, found.unique_within) == (1 / 20, 1 / 2)
    assert found.distinct_1 == 5 / 100
    alive = measure_diversity(spoken(), 5)
    assert alive.self_bleu < 40
    assert alive.distinct_2 > found.distinct_2


def test_one_answer_to_each_prompt_has_nothing_within():
    found = measure_diversity({"a": ["one two"], "b": ["three four"]}, 2)
    assert found.self_bleu_within is found.unique_within is None
    assert found.self_bleu == 0.0
    alone = measure_diversity({"a": ["one two", "one three"]}, 2)
    assert alone.self_bleu is None
    assert alone.self_bleu_within is not None


def test_short_answers_are_left_out_of_what_depends_on_length_and_none_is_nothing():
    found = measure_diversity({"a": ["one two three", ""], "b": ["one"]}, 2)
    assert (found.answers, found.distinct_1, found.unique, found.unique_within) == (1, 1.0, 1.0, 1.0)
    none = measure_diversity({"a": ["", ""]}, 2)
    assert (none.answers, none.distinct_1, none.distinct_2, none.self_bleu) == (0, None, None, None)
    assert none.unique == 0.5
    assert measure_diversity({}, 1).unique == 0.0
    with pytest.raises(ValueError, match="cut to 0 words"):
        measure_diversity({}, 0)


def test_many_pairs_are_drawn_and_drawn_the_same_again(monkeypatch):
    said = spoken(prompts=20, each=4)
    monkeypatch.setattr(module, "MAX_BLEU_PAIRS", 10**6)
    whole = measure_diversity(said, 5)
    monkeypatch.setattr(module, "MAX_BLEU_PAIRS", 1000)
    drawn = measure_diversity(said, 5)
    assert drawn.self_bleu != whole.self_bleu
    assert drawn.self_bleu == pytest.approx(whole.self_bleu, abs=2.0)
    assert drawn.self_bleu_within == whole.self_bleu_within
    assert measure_diversity(said, 5) == drawn


def test_the_common_length_keeps_nine_tenths_of_every_policy():
    terse = {f"q{n}": [" ".join(["a"] * (3 if n < 2 else 9))] for n in range(40)}
    wordy = {f"q{n}": [" ".join(["a"] * (n + 1))] for n in range(40)}
    assert common_word_count([terse]) == 9
    words = common_word_count([terse, wordy])
    assert words == 4
    assert measure_diversity(wordy, words).answers >= 36
    assert common_word_count([]) == common_word_count([{}]) == common_word_count([{"q": ["", ""]}]) == 1
