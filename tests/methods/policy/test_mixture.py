"""Runs that draw from a mixture: who is asked for what, what is checked of it, and what is said of it."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples.proofs.exact import Language, TablePolicy, make_language
from plaudit.errors import UserError
from plaudit.losses.ratio import log_ratio
from plaudit.methods.policy.algorithms import nash_md
from plaudit.methods.policy.config import DrawSettings, policy_config_type
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.methods.policy.row import AdvantageInputs, LossCounts, PolicyAlgorithm, SurrogateInputs
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


TAU = 0.25
"""How dear distance from the reference is: small enough for the circle to show."""
HERE = Path("nowhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """A language and how often each answer is preferred to each other one."""

    spoken: Language
    logit_YY: Tensor

    @property
    def wins_YY(self) -> list[list[float]]:
        return self.logit_YY.sigmoid().tolist()

    @property
    def ref_Y(self) -> list[float]:
        return self.spoken.ref_logp_PY[0].exp().tolist()


def game(*, symbols: int, length: int) -> Game:
    spoken = make_language(seed=3, prompts=1, symbols=symbols, length=length)
    count = len(spoken.responses)
    draw = torch.Generator().manual_seed(4)
    own_YY = 2 * torch.randn(count, count, generator=draw, dtype=torch.float64)
    return Game(spoken=spoken, logit_YY=own_YY - own_YY.T)


def mixed(logp: dict[tuple[int, ...], float], ref: dict[tuple[int, ...], float], share: float) -> list[float]:
    """π_m of whole answers, token by token from the chances of all answers that begin alike."""

    def next_chances(of: dict[tuple[int, ...], float], begin: tuple[int, ...]) -> dict[int, float]:
        found: dict[int, float] = {}
        for answer, value in of.items():
            if answer[: len(begin)] == begin and len(answer) > len(begin):
                found[answer[len(begin)]] = found.get(answer[len(begin)], 0.0) + value
        total = sum(found.values())
        return {token: value / total for token, value in found.items()}

    chances = []
    for answer in logp:
        chance = 1.0
        for t in range(len(answer)):
            own, other = (next_chances(of, answer[:t]) for of in (logp, ref))
            weighed = {token: own[token] ** (1 - share) * other[token] ** share for token in own}
            chance *= weighed[answer[t]] / sum(weighed.values())
        chances.append(chance)
    return chances


def mixture_of(one: Game, chance_Y: list[float], share: float) -> list[float]:
    said = one.spoken.responses
    return mixed(dict(zip(said, chance_Y, strict=True)), dict(zip(said, one.ref_Y, strict=True)), share)


def best_answer(one: Game, rival_Y: list[float], tau: float) -> list[float]:
    """π(y) ∝ π_ref(y) e^{P(y ≻ rival) / τ}: what gains most against a rival at this price."""
    against = [sum(p * r for p, r in zip(wins, rival_Y, strict=True)) for wins in one.wins_YY]
    weighed = [ref * math.exp(gain / tau) for ref, gain in zip(one.ref_Y, against, strict=True)]
    return [weight / sum(weighed) for weight in weighed]


def at_rest(one: Game, share: float) -> list[float]:
    """The policy that is the best answer to its own mixture, by small steps on paper."""
    now = one.ref_Y
    for _ in range(1000):
        wanted = best_answer(one, mixture_of(one, now, share), TAU)
        raised = [old**0.9 * new**0.1 for old, new in zip(now, wanted, strict=True)]
        now = [value / sum(raised) for value in raised]
    return now


def learnt(one: Game, share: float, *, rate: float = 20.0, steps: int = 600) -> list[float]:
    """Where gradient descent on the row's own loss ends, every pair counted with its chance."""
    table, algorithm = TablePolicy(one.spoken), nash_md(kl_coef=TAU)
    for _ in range(steps):
        [grad] = torch.autograd.grad(expected(one, table, algorithm, share), table.parameters())
        with torch.no_grad():
            table.logit_PY -= rate * grad
    return table.logit_PY.detach()[0].softmax(-1).tolist()


def expected(one: Game, table: TablePolicy, algorithm: PolicyAlgorithm, share: float) -> Tensor:
    """E over y of the policy and y′ of the mixture, of what the cells make of the pair."""
    count = len(one.spoken.responses)
    own_N, rival_N = torch.cartesian_prod(torch.arange(count), torch.arange(count)).T
    mask_NT = one.spoken.mask_YT[own_N]
    logp_NT, ref_NT = table()[0][own_N], one.spoken.ref_logp_PYT[0][own_N]
    chance_Y = logp_NT.detach().sum(-1)[rival_N == 0].exp()
    mixture_Y = torch.tensor(mixture_of(one, chance_Y.tolist(), share), dtype=torch.float64)
    old_NT = logp_NT.detach()
    facts = AdvantageInputs(
        score_N=one.logit_YY[own_N, rival_N],
        kl_NT=algorithm.reward_kl(log_ratio(old_NT, ref_NT, mask_NT)),
        kl_coefficient=algorithm.kl_coef,
        value_NT=torch.zeros_like(old_NT),
        rival_N=torch.zeros(len(own_N), dtype=torch.float64),
        mean_score=0.0,
        mask_NT=mask_NT,
        group_N=torch.arange(len(own_N)),
        finished_N=mask_NT.any(-1),
        paid_NT=torch.zeros_like(old_NT),
        end_NT=torch.zeros_like(mask_NT),
    )
    moment = SurrogateInputs(
        logp_NT=logp_NT,
        log_ratio_NT=logp_NT - old_NT,
        ratio_NT=(logp_NT - old_NT).exp(),
        advantage_NT=algorithm.advantage(facts),
        old_kl_NT=torch.zeros_like(old_NT),
        ref_log_ratio_NT=logp_NT - ref_NT,
        mask_NT=mask_NT,
        kl_penalty=0.0,
    )
    weight_N = chance_Y[own_N] * mixture_Y[rival_N]
    # A fixed number of places divides the sum of all pairs, and is made up for here.
    counts = LossCounts(tokens=1, completions=1, max_tokens=1)
    return algorithm.reduction(algorithm.surrogate(moment) * weight_N[:, None], mask_NT, counts)


def exploited(one: Game, chance_Y: list[float], tau: float) -> float:
    """What the best answer gains over a half, both paying for their distance from the reference."""
    best = best_answer(one, chance_Y, tau)

    def price(of: list[float]) -> float:
        return sum(p * math.log(p / r) for p, r in zip(of, one.ref_Y, strict=True))

    won = sum(
        b * p * w
        for b, wins in zip(best, one.wins_YY, strict=True)
        for p, w in zip(chance_Y, wins, strict=True)
    )
    return won - tau * price(best) + tau * price(chance_Y) - 0.5


def apart(found: list[float], wanted: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(found, wanted, strict=True))


def test_the_preference_goes_in_circles() -> None:
    wins = game(symbols=2, length=2).wins_YY
    count = range(len(wins))
    assert any(
        wins[a][b] > 0.5 and wins[b][c] > 0.5 and wins[c][a] > 0.5
        for a in count
        for b in count
        for c in count
    )


@pytest.mark.slow
def test_self_play_comes_to_rest_where_nobody_gains_by_anything_else() -> None:
    one = game(symbols=2, length=2)
    found = learnt(one, 0.0)
    assert exploited(one, one.ref_Y, TAU) > 0.01
    assert exploited(one, found, TAU) == pytest.approx(0, abs=1e-9)
    assert apart(found, at_rest(one, 0.0)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.125, 0.5, 1.0])
def test_with_a_mixture_it_becomes_the_best_answer_to_its_own(share: float) -> None:
    """With a share of 1 the rival is the reference, and the policy its best answer."""
    one = game(symbols=2, length=2)
    found = learnt(one, share)
    assert apart(found, at_rest(one, share)) < 1e-9
    assert apart(found, at_rest(one, 0.0)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.125, 0.5])
def test_where_an_answer_is_a_token_the_mixture_itself_is_an_equilibrium(share: float) -> None:
    """Of the game in which distance costs τ / (1 − m): π_m ∝ π_ref e^{(1 − m) P / τ}."""
    one = game(symbols=4, length=1)
    mixture_Y = mixture_of(one, learnt(one, share), share)
    assert exploited(one, mixture_Y, TAU / (1 - share)) == pytest.approx(0, abs=1e-9)
    assert exploited(one, mixture_Y, TAU) > 1e-4
