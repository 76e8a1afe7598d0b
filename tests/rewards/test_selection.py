"""Each score beside a plain account of it, what is left out, and with which chance pairs are drawn."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from plaudit.errors import UserError
from plaudit.rewards.selection import Pool, choose

DRAW = np.random.default_rng(0)
STATES_AH, LABELLED_CH = DRAW.normal(size=(40, 6)), DRAW.normal(size=(5, 6))
PAIRS_B2 = np.array([(4 * p + a, 4 * p + b) for p in range(10) for a in range(4) for b in range(a)])
SEEN = {"states_AH": STATES_AH, "labelled_CH": LABELLED_CH}
POOL = Pool(prompt_A=np.arange(40) // 4, scores_MA=DRAW.normal(size=(3, 40)), pairs_B2=PAIRS_B2, **SEEN)


def places(pool: Pool, method: str, most: int = 6, **rest: int) -> list[int]:
    return [choice.place for choice in choose(pool, most, method, at_random=0, **rest)]


@pytest.mark.parametrize("per_prompt", [1, 6])
def test_d_optimal_is_what_solving_with_all_of_a_at_each_step_gives(per_prompt: int):
    delta_BH = np.subtract(*STATES_AH[PAIRS_B2.T])
    weight_B = 1 / (2 + 2 * np.cosh(POOL.gaps_MB.mean(0)))
    a_HH, wanted, taken = np.eye(6) + LABELLED_CH.T @ LABELLED_CH / 4, [], Counter()
    while len(wanted) < 10:
        score_B = weight_B * (delta_BH * np.linalg.solve(a_HH, delta_BH.T).T).sum(1)
        free = [b for b in range(60) if b not in wanted and taken[b // 6] < per_prompt]
        wanted.append(best := max(free, key=score_B.__getitem__))
        taken[best // 6] += 1
        a_HH += weight_B[best] * np.outer(delta_BH[best], delta_BH[best])
    assert places(POOL, "d-optimal", 10, per_prompt=per_prompt) == wanted


@pytest.mark.parametrize(
    ("chances", "disagreement", "bald", "certain"),
    [
        # Variances 1/64, 1/400 and 0; of BALD .0338, .0102 and 0; mean log-odds .55, 1.79 and 2.20.
        ([[0.5, 0.75], [0.1, 0.2], [0.9, 0.9]], [0, 1, 2], [0, 1, 2], [2, 1, 0]),
        ([[0.3, 0.7], [0.65, 0.999]], [0, 1], [1, 0], [1, 0]),  # .040 and .030; .082 and .137
    ],
)
def test_scores_of_two_members_by_hand(chances, disagreement, bald, certain):
    odds_BM, both_B2 = logit(chances), np.arange(2 * len(chances)).reshape(-1, 2)
    scores_MA = np.stack([odds_BM.T, 0 * odds_BM.T], -1).reshape(2, -1)
    pool = Pool(prompt_A=both_B2.flatten() // 2, scores_MA=scores_MA, pairs_B2=both_B2)
    assert [places(pool, by) for by in ("disagreement", "bald", "certain")] == [disagreement, bald, certain]


def test_thompson_gives_pairs_of_two_members_best_answers():
    found = {place // 6: {*(POOL.pairs_B2[place] % 4).tolist()} for place in places(POOL, "thompson", 60)}
    best = dict(enumerate(map(set, POOL.scores_MA.reshape(3, 10, 4).argmax(-1).T.tolist())))
    assert all(len(found[prompt]) == 2 and found[prompt] <= best[prompt] for prompt in found)
    assert {*found} == {prompt for prompt in best if len(best[prompt]) > 1}


def test_crowded_prompts_and_near_repeats_are_left_out():
    assert Counter(place // 6 for place in places(POOL, "bald", 60)) == dict.fromkeys(range(10), 2)
    texts = [f"{'The owl of the old mill eats mice at night. ' * 3}{b}" for b in range(60)]
    assert len(places(replace(POOL, texts=texts), "bald", 60)) == 1


def test_the_random_share_is_uniform_has_its_chance_and_is_the_same_for_a_seed():
    drawn = [each for seed in range(2000) for each in choose(POOL, 30, seed=seed) if each.propensity]
    count = Counter(each.place for each in drawn)
    assert {(each.method, each.propensity) for each in drawn} == {("random", 6 / 60)}
    assert all(140 < count[place] < 260 for place in range(60))  # 200 each, with a deviation of 13.4
    assert choose(POOL, 9, seed=1) == choose(POOL, 9, seed=1) != choose(POOL, 9, seed=2)


@pytest.mark.parametrize(
    ("most", "method", "share", "changed", "why"),
    [
        (1, "best", 0.2, {}, "expected one of random, d-optimal"),
        (0, "bald", 0.2, {}, "at least 1 pair"),
        (1, "bald", 1.5, {}, "from 0 to 1"),
        (1, "thompson", 0.2, {"scores_MA": POOL.scores_MA[:1]}, "--ensemble.members 4"),
        (1, "d-optimal", 0.2, {"states_AH": None}, "choose disagreement"),
        (1, "d-optimal", 0.2, {"labelled_CH": np.zeros((1, 7))}, "7 features, and these 6"),
    ],
)
def test_what_cannot_be_chosen_is_refused(most, method, share, changed, why):
    with pytest.raises(UserError, match=why):
        choose(replace(POOL, **changed), most, method, at_random=share)
