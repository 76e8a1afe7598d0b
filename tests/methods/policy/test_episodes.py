"""A policy learns from episodes: from its own tokens alone, by what the environment says they were worth."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from plaudit.advantages.group import leave_one_out
from plaudit.data.records import user_turn
from plaudit.errors import UserError
from plaudit.losses.policy import unclipped
from plaudit.methods.policy import collect
from plaudit.methods.policy.batch import ExperienceTensors, Round
from plaudit.methods.policy.cells import token_mean
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.experience import ExperienceMaker, ImportanceWeighting, ScoringModels
from plaudit.methods.policy.iterations import RolloutRounds
from plaudit.methods.policy.objective import PolicyMicrobatch, policy_objective
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.methods.policy.shaping import ScoreShape, ScoreShaper
from plaudit.models.load import load_model
from plaudit.models.policy import NoReference, Policy
from plaudit.rollouts.environment import Episode, EpisodePrompt, Outcome, Turn
from plaudit.rollouts.episodes import EpisodeSampler
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tensors.masked import broadcast_to_tokens
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.prompts import EncodedPrompt
from tests.methods.policy.commands import Place, go, make_place, refused, well
from tests.methods.policy.pieces import ALONE
from tests.methods.policy.test_resume import interrupted, same

ENVIRONMENTS = '''
from plaudit.rollouts.environment import Outcome, Turn

def wanted(asked):
    """The word that is wanted, in up to three turns."""
    said = yield None
    found, turns = said.text.split().count("w33"), 1
    while not said.over and turns < 3:
        said = yield Turn(role="user", text="w20")
        found, turns = found + said.text.split().count("w33"), turns + 1
    return Outcome(score=found, parts={"turns": turns})

def undecided(asked):
    said = yield None
    return Outcome(score=None if int(asked.prompt.split()[0][1:]) % 2 else float(len(said.text)))

def lost(asked):
    yield None
    raise LookupError("no such door")
'''
HOW = ("--draw.max-tokens", 24, "--draw.stop", "w4", "--max-turns", 4)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = make_place(tmp_path_factory.mktemp("episodes"))
    (place.folder / "worlds.py").write_text(ENVIRONMENTS, encoding="utf-8")
    return place


def in_world(place: Place, name: str = "wanted") -> tuple[object, ...]:
    return (*HOW, "--environment", f"{place.folder / 'worlds.py'}:{name}")


@pytest.mark.slow
def test_a_policy_learns_in_an_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[Round] = []
    begin = RolloutRounds._new_round

    def beginning(self: RolloutRounds, *args: object) -> Round | None:
        made = begin(self, *args)  # pyright: ignore[reportArgumentType]
        assert made is not None
        rounds.append(made)
        return made

    monkeypatch.setattr(RolloutRounds, "_new_round", beginning)
    went = well(place, "grpo", "learns", *in_world(place), "--rounds", 12, "--group-size", 8, "--tis-cap", 2)
    reward = went.figures("reward")
    assert fmean(reward[-3:]) > fmean(reward[:3]) + 0.5
    assert went.figures("held_out/reward")[-1] > went.figures("held_out/reward")[0]
    assert max(went.figures("sampling_logp_diff_mean")) < 1e-4
    assert set(went.figures("reward/turns")) - {1.0}
    assert "which speaks 4 times at most; an episode has room for 24 tokens" in went.said
    samples = (went.run / "samples.jsonl").read_text("utf-8").splitlines()
    assert "assistant: " in json.loads(samples[0])["completion"]
    for made, length in zip(rounds, went.figures("length_mean"), strict=True):
        masks = [answer.mask for example in made.examples for answer in example.completions]
        assert length == pytest.approx(fmean(map(sum, masks)))
        assert any(not all(mask) for mask in masks)
        assert all(mask[0] and mask[-1] and len(mask) <= 24 for mask in masks)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "remax", "dapo", "online-dpo"])
def test_other_algorithms_learn_from_episodes(place: Place, name: str) -> None:
    more = ("--draw.replay", 0.3) if name == "dapo" else ()
    went = well(place, name, name, *in_world(place), "--rounds", 2, "--judge.by", "length:1-3", *more)
    assert went.lines[0]["ratio"] == 1.0
    assert went.lines[0]["approx_kl"] == 0.0
    assert went.figures("held_out/judge")


@pytest.mark.slow
def test_an_episode_without_a_verdict_is_left_out(place: Place) -> None:
    went = well(place, "grpo", "undecided", *in_world(place, "undecided"), "--rounds", 3)
    assert any(0 < share < 1 for share in went.figures("frac_no_verdict"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("grpo", marks=pytest.mark.slow), "ppo"])
def test_it_goes_on_in_the_middle_of_a_round(place: Place, name: str) -> None:
    more = (*in_world(place), "--rounds", 3, "--update-epochs", 2, "--minibatches", 1, "--group-size", 4)
    whole = well(place, name, f"whole {name}", *more)
    for stop in (2, 3, 6):
        with interrupted(stop):
            assert go(place, name, f"stopped {name}", *more).code == 128 + signal.SIGINT
    same(well(place, name, f"stopped {name}", *more).run, whole.run)


@pytest.mark.slow
def test_what_cannot_be_is_refused(place: Place) -> None:
    lost = refused(place, "grpo", "lost", *in_world(place, "lost"), "--rounds", 1)
    assert "prompts.jsonl:" in lost.said
    assert "it raised LookupError: no such door" in lost.said
    assert "wantd" in refused(place, "grpo", "missing", *in_world(place, "wantd")).said
    here = Path("nowhere")
    for words, said in [
        ({}, "give --reward"),
        ({"reward": "exact", "environment": "a:b"}, "both say what an answer is worth"),
        ({"reward": "exact", "max_turns": 3}, "with --environment only"),
        ({"environment": "a:b", "max_turns": 0}, "at least 1"),
    ]:
        with pytest.raises(UserError, match=said):
            PolicyConfig(model=here, prompts=here, out=here, **words)


def twice(asked: EpisodePrompt) -> Episode:
    said = yield None
    first = len(said.text.split())
    if first % 2 == 0 and not said.over:
        said = yield Turn(role="user", text="w20 w21")
    return Outcome(score=first + 0.5 * len(said.text.split()))


def collector(policy: Policy, folder: Path) -> tuple[collect.RolloutCollector, list[EncodedPrompt]]:
    encoder = make_encoder(folder)
    episodes = EpisodeSampler(
        sampler=LocalSampler.from_policy(policy, encoder), encoder=encoder, environment=twice, name="twice"
    )
    questions = [
        EncodedPrompt(text=text, prompt=encoder.encode_prompt(user_turn(text)), origin=text)
        for text in ("w7", "w8 w9", "w10")
    ]
    draws = collect.RolloutCollector(
        sampler=episodes,
        reward=collect.EpisodeReward(name="twice", environment=twice),
        sampling=SamplingSettings(max_tokens=20, stop=("w4", "w2"), seed=5),
        completions_per_prompt=4,
        ranks=ALONE,
    )
    return draws, questions


REINFORCE = PolicyAlgorithm(
    advantage=lambda facts: broadcast_to_tokens(leave_one_out(facts.reward_N, facts.group_N), facts.mask_NT),
    surrogate=lambda now: unclipped(now.ratio_NT, now.advantage_NT),
    reduction=token_mean,
)


def begun(
    policy: Policy, folder: Path, shape: ScoreShape | None = None
) -> tuple[Round, ScoringModels, collect.CollectedRollouts]:
    draws, questions = collector(policy, folder)
    collected = draws.collect(questions, 1, questions)
    watchers = ScoringModels(policy=policy, reference=NoReference(), critic=None, temperature=1.0)
    experience = ExperienceMaker(
        row=REINFORCE,
        models=watchers,
        shaper=ScoreShaper(shape or ScoreShape(), 20),
        ranks=ALONE,
        tokens_at_once=10_000,
        minibatches=1,
        epochs=2,
        room=lambda number: 20,
        weighting=ImportanceWeighting(),
    )
    return experience.make_round(collected, 1, kl_coefficient=0.0, mean_score=0.0), watchers, collected


def exact(folder: Path) -> Policy:
    return Policy(load_model(folder, dtype=torch.float64, device=torch.device("cpu")))


def gradients(made: Round, watchers: ScoringModels) -> list[torch.Tensor]:
    [[places]] = made.rank_microbatches([0, 1, 2], ranks=1, tokens_at_once=10_000)
    counts = made.loss_counts([0, 1, 2])
    piece = PolicyMicrobatch(
        round=made, groups=places, counts=counts, is_first_update=True, is_only_update=False
    )
    watchers.policy.zero_grad()
    policy_objective(REINFORCE, watchers)(piece).loss.backward()
    return [weight.grad.clone() for weight in watchers.policy.parameters() if weight.grad is not None]


def test_the_gradient_is_that_of_the_drawn_tokens_alone(place: Place) -> None:
    """Σ A log π over what the policy said, by transformers' own pass; nothing of what it was told."""
    made, watchers, collected = begun(exact(place.model), place.model)
    found = gradients(made, watchers)
    model = load_model(place.model, dtype=torch.float64, device=torch.device("cpu")).train()
    total, tokens, holes = torch.zeros((), dtype=torch.float64), 0, 0
    for group in collected.groups:
        scores = [score for score in group.scores if score is not None]
        for answer, score in zip(group.rollouts, scores, strict=True):
            assert answer.mask is not None
            whole = torch.tensor([[*answer.prompt, *answer.ids]])
            logp_TV = model(whole).logits[0, len(answer.prompt) - 1 : -1].log_softmax(-1)
            logp_T = logp_TV.gather(1, torch.tensor(answer.ids)[:, None])[:, 0]
            usual = (sum(scores) - score) / (len(scores) - 1)
            total = total - (score - usual) * logp_T[torch.tensor(answer.mask)].sum()
            tokens += sum(answer.mask)
            holes += len(answer.mask) - sum(answer.mask)
    assert holes
    (total / tokens).backward()
    wanted = [weight.grad for weight in model.parameters() if weight.grad is not None]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_what_is_known_of_masked_tokens_teaches_nothing(place: Place) -> None:
    made, watchers, _ = begun(exact(place.model), place.model)
    wanted = gradients(made, watchers)
    mask_NT = batch_of(made.examples).mask_NT
    told = made.experience
    poisoned = {
        name: getattr(told, name).masked_fill(~mask_NT, 1e3)
        for name in ("old_logp_NT", "ref_logp_NT", "advantage_NT", "value_NT", "return_NT", "weight_NT")
    }
    found = gradients(replace(made, experience=ExperienceTensors(**poisoned)), watchers)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_a_cost_of_length_is_one_of_the_policys_tokens(place: Place) -> None:
    plain, _, collected = begun(exact(place.model), place.model)
    dear, _, _ = begun(exact(place.model), place.model, ScoreShape(per_token=1.0))
    apart_NT = plain.experience.advantage_NT - dear.experience.advantage_NT
    n = 0
    for group in collected.groups:
        lengths = [one.answer.tokens for one in group.rollouts]
        for length in lengths:
            usual = (sum(lengths) - length) / (len(lengths) - 1)
            assert float(apart_NT[n, 0]) == pytest.approx(length - usual, abs=1e-5)
            n += 1


def test_a_group_of_episodes_becomes_words_and_comes_back(place: Place) -> None:
    draws, questions = collector(exact(place.model), place.model)
    for number, group in enumerate(draws.collect(questions, 1, questions).groups):
        found, again = collect.group_from_json(collect.group_as_json(number, group), questions)
        assert found == number
        assert again.rollouts == tuple(replace(one, played=None) for one in group.rollouts)
        assert again.scores == group.scores
