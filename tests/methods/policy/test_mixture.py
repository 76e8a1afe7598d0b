"""Runs that draw from a mixture: who is asked for what, what is checked of it, and what is said of it."""

from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.methods.policy.config import DrawSettings, policy_config_type
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from tests.methods.policy.commands import Place, Went, make_place, well
from tests.methods.policy.pieces import scene

SHORT = ("--rounds", 3, "--sample.rows", 0, "--no-check")
Asked = list[tuple[LocalSampler, SamplingSettings, list[list[Rollout]]]]
"""Which sampler was asked, how, and what it said."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("mixture"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every drawing of a run; checks, which draw too, are off."""
    sample, found = LocalSampler.generate, Asked()

    def spying(self: LocalSampler, prompts: object, settings: SamplingSettings, **more: object) -> object:
        said = sample(self, prompts, settings, **more)  # pyright: ignore[reportArgumentType]
        found.append((self, settings, said))
        return said

    monkeypatch.setattr(LocalSampler, "generate", spying)
    return found


def same(one: Went, other: Went) -> bool:
    """Whether the models are one to the last bit."""
    first, second = ((went.run / "model" / "model.safetensors").read_bytes() for went in (one, other))
    return first == second


@pytest.mark.slow
def test_without_the_references_share_ipo_md_is_online_ipo(place: Place) -> None:
    online = well(place, "online-ipo", "online", *SHORT)
    none = well(place, "ipo-md", "none", *SHORT, "--mixture-coef", 0)
    some = well(place, "ipo-md", "some", *SHORT, "--mixture-coef", 0.5)
    assert same(none, online)
    assert not same(some, online)
    assert same(well(place, "online-ipo", "mixed", *SHORT, "--mixture-coef", 0.5), some)


@pytest.mark.slow
def test_a_round_of_the_mixture_has_no_kl_of_the_policy_and_a_look_has(place: Place) -> None:
    went = well(place, "ipo-md", "figures", *SHORT, "--evaluate-every", 1, "--mixture-coef", 0.5)
    assert "note: answers are drawn from a mixture of 0.5 of the policy and 0.5 of its reference" in went.said
    assert not went.figures("kl")
    assert went.figures("held_out/kl")
    assert max(went.figures("sampling_logp_diff_max")) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ipo-md", "nash-md"])
def test_adapters_are_mixed_with_the_model_beneath_them(place: Place, name: str) -> None:
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    went = well(place, name, f"adapters-{name}", *SHORT, "--lora.rank", 2, "--mixture-coef", 0.5)
    assert "reference: the model beneath the adapters" in went.said
    assert max(went.figures("sampling_logp_diff_max")) < 1e-4


@pytest.mark.slow
def test_pairs_are_the_mixtures_and_held_out_answers_the_policys(place: Place, asked: Asked) -> None:
    well(place, "ipo-md", "who", *SHORT)
    assert len(list(dict.fromkeys(sampler for sampler, _, _ in asked))) == 2
    policy = next(sampler for sampler, _, said in asked if len(said[0]) == 1)
    assert all((sampler is policy) == (len(said[0]) == 1) for sampler, _, said in asked)


@pytest.mark.slow
def test_a_rivals_chance_has_nothing_to_do_with_that_of_the_answer(place: Place, asked: Asked) -> None:
    """With one chance both would be one answer, and a preference between them always a half."""
    words = ("--mixture-coef", 0, "--held-out", 0, "--reward", place.rule("short"))
    went = well(place, "nash-md", "apart", *SHORT, *words)
    answers, rivals = asked[::2], asked[1::2]
    for (_, how, said), (_, other, beside) in zip(answers, rivals, strict=True):
        assert how.seed != other.seed
        assert not all([a.ids == b.ids for (a,), (b,) in zip(said, beside, strict=True)])
    assert len({how.seed for _, how, _ in asked}) == len(asked)
    assert all(0 < value < 1 and value != 0.5 for value in went.figures("win_prob"))


@pytest.mark.slow
def test_what_a_rival_says_is_not_learnt(place: Place, asked: Asked) -> None:
    went = well(place, "nash-md", "unlearnt", *SHORT, "--held-out", 0)
    for line, (_, _, said) in zip(went.lines, asked[::2], strict=True):
        ids = [one.ids for group in said for one in group]
        assert line["rows"] == len(said)
        assert line["length_mean"] == pytest.approx(sum(map(len, ids)) / len(ids))


def test_what_the_reference_alone_has_drawn_depends_on_no_weights_of_the_policy() -> None:
    one = scene("ipo-md", stale=True, mixture_coef=1.0, draw=DrawSettings(temperature=1.3, max_tokens=8))
    one.move(0.1)
    assert one.pieces()


@pytest.mark.parametrize("name", ["ipo-md", "nash-md"])
def test_episodes_are_played_by_the_policy_alone(name: str) -> None:
    here = Path("nowhere")

    def found(mixture: float) -> object:
        files = {"model": here, "prompts": here, "out": here}
        config_type = policy_config_type(name)
        config = config_type(**files, environment="shop.py:shop", mixture_coef=mixture)  # pyright: ignore
        return configured_algorithm(name, config)

    with pytest.raises(UserError, match=rf"environment: {name} draws from a mixture.*--mixture-coef 0"):
        found(0.1)
    assert found(0.0)
