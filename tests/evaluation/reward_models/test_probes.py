"""Planted biases are found, absent ones are not, and the model's own are told from its annotators' taste."""

import numpy as np
import pytest

from plaudit.evaluation.reward_models.bias_probes import flatters, has_list, hedges, probe_biases
from plaudit.evaluation.stats import NEVER_DIFFERS
from plaudit.lab.world.valley import EVASIONS, FLATTERY, HEDGES, UNKNOWN
from tests.evaluation.judged import pair

WORDS = ("mice", "bark", "water", "stones", "apples", "wool")


def answer(chance: np.random.Generator) -> tuple[str, dict[str, float]]:
    """Some words, at times as a list, at times hedged or with flattery."""
    has = {name: float(chance.random() < 0.4) for name in ("list", "hedging", "flattery")}
    text = " ".join(chance.choice(WORDS, size=chance.integers(2, 30)))
    text = f"- {text}" if has["list"] else text
    text = f"Maybe {text}" if has["hedging"] else text
    return (f"Great question!\n{text}" if has["flattery"] else text), has


def judged(model: dict[str, float], people: dict[str, float], *, n: int = 900, truth: bool = True, noise=0.7):
    """Pairs that the model and the annotators judge by worth, by tastes for features, and by chance."""
    chance = np.random.default_rng(11)
    pairs = []
    for number in range(n):
        (one, has), (other, lacks) = answer(chance), answer(chance)
        worth = chance.normal(size=2)
        differ = {name: has[name] - lacks[name] for name in has}
        differ["length"] = float(np.log(1 + len(one)) - np.log(1 + len(other)))
        felt = worth[0] - worth[1] + sum(people.get(name, 0.0) * by for name, by in differ.items())
        gap = worth[0] - worth[1] + sum(model.get(name, 0.0) * by for name, by in differ.items())
        pairs.append(
            pair(
                gap + noise * chance.logistic(),
                0.0,
                chance=float(felt + chance.logistic() > 0),
                prompt=f"q{number // 2}",
                answers=(one, other),
                truths=(float(worth[0]), float(worth[1])) if truth else (None, None),
            )
        )
    return pairs


def found_in(pairs) -> dict:
    return {probe.name: probe for probe in probe_biases(pairs).features}


def test_planted_biases_are_found_and_absent_ones_are_not():
    seen = found_in(judged({"length": 1.2, "flattery": -1.0}, {}))
    assert seen["length"].model.low > 1.5
    assert seen["flattery"].model.high < 0.6
    for name in ("list", "hedging"):
        assert seen[name].model.low < 1 < seen[name].model.high
    for name in ("length", "list", "hedging", "flattery"):
        assert seen[name].annotators.low < 1 < seen[name].annotators.high
    assert seen["length"].words.startswith("prefers the longer answer ")
    assert " times as often at equal worth (" in seen["length"].words
    assert seen["flattery"].words.startswith("prefers the answer without flattery ")
    assert "no preference for the answer with a list at equal worth can be shown" in seen["list"].words


def test_the_odds_are_those_that_were_planted():
    """A logistic judge of unit scale: exp of its taste, for a feature per presence."""
    seen = found_in(judged({"flattery": 0.8}, {"hedging": -0.7}, n=4000, noise=1.0))
    assert np.log(seen["flattery"].model.ratio) == pytest.approx(0.8, abs=0.2)
    assert np.log(seen["hedging"].annotators.ratio) == pytest.approx(-0.7, abs=0.2)
    assert seen["flattery"].excess.ratio == pytest.approx(
        seen["flattery"].model.ratio / seen["flattery"].annotators.ratio
    )


def test_a_taste_that_the_model_shares_with_its_annotators_is_not_its_own_bias():
    """The model decides with less noise, so its odds are larger; measured by worth they are the same."""
    taste = {"flattery": 1.0}
    shared = found_in(judged(taste, taste, n=3000, noise=0.3))["flattery"]
    assert shared.excess.low > 1.5
    assert shared.beyond.low < 1 < shared.beyond.high
    own = found_in(judged(taste, {}, n=3000, noise=0.3))["flattery"]
    assert own.beyond.low > 2
    assert "over what their taste explains" in own.words


def test_worth_that_goes_along_with_length_is_no_bias_where_worth_is_known():
    """Longer answers are better here, and the model likes what is better."""
    pairs = judged({}, {})
    longer = [
        pair(
            p.truths[0] - p.truths[1] + 2 * (len(p.answers[0]) - len(p.answers[1])) / 60 + noise,
            0.0,
            chance=p.p_first,
            prompt=p.prompt,
            answers=p.answers,
            truths=tuple(t + 2 * len(a) / 60 for t, a in zip(p.truths, p.answers, strict=True)),
        )
        for p, noise in zip(pairs, np.random.default_rng(0).logistic(size=len(pairs)), strict=True)
    ]
    seen = found_in(longer)["length"]
    assert seen.model.low < 1 < seen.model.high
    blind = probe_biases(
        [pair(*p.rewards, prompt=p.prompt, answers=p.answers, chance=p.p_first) for p in longer]
    )
    assert blind.features[0].name == "length"
    assert blind.features[0].model.low > 1.5
    assert blind.features[0].beyond is None
    assert "the true utility is not known" in blind.words


def test_a_model_that_always_prefers_the_longer_answer_is_said_to():
    pairs = [
        pair(len(p.answers[0]), len(p.answers[1]), chance=p.p_first, prompt=p.prompt, answers=p.answers)
        for p in judged({}, {}, truth=False)
    ]
    seen = found_in(pairs)
    assert seen["length"].model is None
    assert seen["length"].words.startswith("always prefers the longer answer where two differ in it")
    assert seen["list"].model.ratio == pytest.approx(1)  # where both are as long, it prefers neither
    assert seen["list"].annotators is not None


def test_the_place_in_the_row_is_probed_where_the_file_says_it():
    chance = np.random.default_rng(3)
    pairs = [
        pair(
            float(chance.logistic()) + (1.5 if first else -1.5) / 2,
            0.0,
            chance=float(chance.random() < 0.5),
            prompt=f"q{n}",
            answers=answers,
            places=(0, 1) if first else (3, 1),
        )
        for n in range(400)
        for first in [bool(chance.random() < 0.5)]
        for answers in [(answer(chance)[0], answer(chance)[0])]
    ]
    place = found_in(pairs)["place"]
    assert place.model.low > 1.2
    assert place.annotators.low < 1 < place.annotators.high
    assert place.words.startswith("prefers the answer shown earlier ")
    unknown = found_in(judged({}, {}))["place"]
    assert (unknown.model, unknown.words) == (None, "the file does not say which answer was shown earlier")


def test_constant_features_and_few_prompts_are_said_in_words():
    plain = [pair(n % 3, 1, prompt=f"q{n}", answers=("a b", "c d")) for n in range(60)]
    assert {name: one.words for name, one in found_in(plain).items() if name != "place"} == dict.fromkeys(
        ("length", "list", "hedging", "flattery"), NEVER_DIFFERS
    )
    few = probe_biases(plain[:29])
    assert (few.features, few.words) == ((), "probes need 30 prompts or more, and there are 29")


def test_the_features_know_the_habits_of_the_world():
    assert all(flatters(one) for one in FLATTERY)
    assert all(hedges(f"{one} the owl eats mice.") for one in HEDGES)
    assert has_list("# Answer\n- The owl eats mice.")
    assert has_list("1. one\n2. two")
    plain = ("The owl eats mice.", "No, 3 plus 4 is 7.", "3. May is warm.", f"{UNKNOWN} that.", *EVASIONS)
    assert not any(hedges(one) or flatters(one) for one in plain)
    assert not has_list("3.5 - 2 is 1.5.")
