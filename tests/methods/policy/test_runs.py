"""Policy runs through the command: every row of the table runs, and what it should do it does."""

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.cli.main import main
from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.engine.step_report import metric_docs
from plaudit.errors import UserError
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS, policy_algorithm
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.config import DrawSettings
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.sampler import Rollout
from tests.methods.policy.commands import Place, Went, make_place, well
from tests.models.zoo import RECURRENT

CRITICS = [name for name in POLICY_ALGORITHMS if "ppo" in name or name in ("a2c", "trpo")]
OWN = {"learning_rate", "grad_norm", "step", "steps", "epoch", "timing"}


QUICK = (*("ppo", "trpo", "ppo-ptx", "remax", "grpo", "dapo", "online-dpo", "nash-md"),)
"""Of each kind one: the others are slow, all together."""
ALL = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in POLICY_ALGORITHMS]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("runs"))


class Runs:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._done: dict[str, Went] = {}

    def of(self, name: str) -> Went:
        if name not in self._done:
            self._done[name] = well(self.place, name, name, "--rounds", 2, "--draw.temperature", 1.2)
        return self._done[name]


@pytest.fixture(scope="module")
def runs(place: Place) -> Runs:
    return Runs(place)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("family", sorted(RECURRENT))
def test_a_state_beside_attention_draws_learns_and_answers(tmp_path: Path, family: str, rank: int) -> None:
    place = make_place(tmp_path, name=family)
    went = well(place, "grpo", "run", "--rounds", 2, "--lora.rank", rank)
    assert "sampling is slower here" in went.said
    data = ("--data", tmp_path / "texts.jsonl", "--out", tmp_path / "sft", "--steps", 2, "--device", "cpu")
    assert main([str(word) for word in ("train", "sft", "--model", place.model, *data)]) == 0
    asked = ("sample", "--model", tmp_path / "sft" / "model", "--prompt", "w9 w10", "--max-tokens", 5)
    assert main([str(word) for word in asked]) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ALL)
def test_every_algorithm_runs_and_leaves_a_model_behind(runs: Runs, name: str) -> None:
    went = runs.of(name)
    assert f"note: {name}: {POLICY_ALGORITHMS[name].formula}" in went.said
    model = AutoModelForCausalLM.from_pretrained(went.run / "model")
    tokenizer = AutoTokenizer.from_pretrained(went.run / "model")
    begun = load_file(runs.place.model / "model.safetensors")
    now = model.state_dict()
    assert any(not torch.equal(now[key], weight) for key, weight in begun.items())
    assert tokenizer("w9 w10")["input_ids"]
    assert (went.run / "critic").exists() == (name in CRITICS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_its_figures_are_documented_numbers(runs: Runs, name: str) -> None:
    documented = metric_docs()
    for line in runs.of(name).lines:
        for figure, value in line.items():
            plain = figure.removeprefix("held_out/")
            assert {figure, plain} & set(documented) or figure in OWN, figure
            assert figure == "timing" or isinstance(value, int | float)
            assert figure == "timing" or not math.isnan(value)
    first = runs.of(name).lines[0]
    assert first["ratio"] == 1.0
    assert first["approx_kl"] == 0.0
    assert ("kl" in first) == ("reference" in policy_algorithm(name).needs and name != "ipo-md")
    assert ("value_loss" in first) == (name in CRITICS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", pytest.param("a2c", marks=pytest.mark.slow)])
def test_the_critic_is_a_reward_models_folder(runs: Runs, name: str) -> None:
    reward = resolve_reward(str(runs.of(name).run / "critic"))
    said = tuple(assistant_turn(text) for text in ("w33", "w12 w13"))
    [row] = reward.scores([Task(prompt=user_turn("w9 w10"), answers=said, ended=(True, True))])
    assert all(isinstance(score, float) for score in row)
    again = well(
        runs.place, "ppo", f"again-{name}", "--rounds", 1, "--critic.model", runs.of(name).run / "critic"
    )
    assert "critic: begins as the reward model" in again.said


def test_what_is_learnt_are_the_tokens_that_were_drawn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from plaudit.methods.policy import iterations
    from plaudit.rollouts.local import LocalSampler

    drawn: list[Rollout] = []
    seen: list[Round] = []
    sample, begin = LocalSampler.generate, iterations.RolloutRounds._new_round

    def spying(self: LocalSampler, *args: object, **more: object) -> list[list[Rollout]]:
        groups = sample(self, *args, **more)  # pyright: ignore[reportArgumentType]
        drawn.extend(one for group in groups for one in group)
        return groups

    def beginning(self: iterations.RolloutRounds, *args: object) -> Round | None:
        made = begin(self, *args)  # pyright: ignore[reportArgumentType]
        assert made is not None
        ids = [answer.ids for example in made.examples for answer in example.completions]
        assert ids == [one.ids for one in drawn[-len(ids) :]]
        assert all(all(answer.mask) for example in made.examples for answer in example.completions)
        seen.append(made)
        return made

    monkeypatch.setattr(LocalSampler, "generate", spying)
    monkeypatch.setattr(iterations.RolloutRounds, "_new_round", beginning)
    well(place, "grpo", "drawn", "--rounds", 2, "--held-out", 0)
    assert len(seen) == 2


@pytest.mark.slow
def test_a_held_out_judge_keeps_its_best_checkpoint_and_ends_the_run(place: Place) -> None:
    went = well(
        *(place, "grpo", "judged", "--rounds", 60, "--kl-coef", 0.001, "--judge.by", place.rule("few")),
        *("--judge.patience", 3, "--evaluate-every", 3, "--held-out", 0.25, "--sample.rows", 0),
    )
    judge = went.figures("held_out/judge")
    looks = [line["step"] for line in went.lines if "held_out/judge" in line]
    best = looks[judge.index(max(judge))]
    assert looks[-1] == best + 9 < 60
    assert "the run ends" in went.said
    kept = load_file(went.run / "checkpoints" / f"step-{best:08d}" / "model.safetensors")
    final = load_file(went.run / "model" / "model.safetensors")
    for name, weight in final.items():
        assert torch.equal(weight, kept[f"policy.model.{name}"])


@pytest.mark.slow
def test_dapo_asks_other_prompts_where_all_answers_are_alike(place: Place) -> None:
    even = ("--rounds", 3, "--reward", place.rule("even"), "--group-size", 4, "--minibatches", 1)
    went = well(place, "dapo", "unlike", *even)
    for line in went.lines:
        assert line["rows"] == 4
        assert line["frac_zero_std"] > 0
        assert line["frac_filtered"] > 0
    usual = well(place, "dapo", "alike", *even, "--no-dynamic-sampling")
    assert all(line["frac_filtered"] == 0 for line in usual.lines)


TIGHT = ("--clip-low", 1e-6, "--clip-high", 1e-6)
IDLE = (
    "nothing is clipped: a round is one move, at which every ratio is 1, so clip_high and clip_low cannot act"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dapo", "dr-grpo", "grpo-plus"])
def test_the_clip_acts_in_the_moves_that_the_papers_make_of_a_round(place: Place, name: str) -> None:
    usual = ("--rounds", 1, "--overlong-buffer", 0, "--held-out", 0)
    plain = well(place, name, f"{name} usual", *usual)
    tight = well(place, name, f"{name} tight", *usual, *TIGHT)
    # Four prompts a round: more parts than prompts would be moves without any, and that is said.
    moves = {"dapo": 4, "dr-grpo": 4, "grpo-plus": 2}[name]
    assert len(plain.lines) == moves
    assert (f"a round of 4 prompts has {moves}" in plain.said) == (name != "grpo-plus")
    assert plain.lines[0]["clip_frac_high"] == tight.lines[0]["clip_frac_high"] == 0
    assert sum(tight.figures("clip_frac_low") + tight.figures("clip_frac_high")) > 0.1
    assert weights(plain) != weights(tight)
    assert "nothing is clipped" not in plain.said


@pytest.mark.slow
def test_where_a_round_is_one_move_the_clip_is_said_to_be_idle_and_is(place: Place) -> None:
    usual = ("--rounds", 2, "--held-out", 0)
    plain, tight = well(place, "grpo", "one move", *usual), well(place, "grpo", "as tight", *usual, *TIGHT)
    assert weights(plain) == weights(tight)
    assert plain.said.count(IDLE) == 1
    assert "cannot act" not in well(place, "rloo", "no clip", *usual).said


def weights(went: Went) -> bytes:
    return (went.run / "model" / "model.safetensors").read_bytes()


def test_dapo_goes_on_where_nothing_can_be_learnt(place: Place) -> None:
    flat = ("--reward", "length:0-99", "--held-out", 0, "--minibatches", 1)
    went = well(place, "dapo", "flat", "--rounds", 2, *flat)
    assert [line["step"] for line in went.lines] == [1, 2]
    assert not went.figures("loss")


@pytest.mark.slow
def test_adapters_learn_and_the_reference_lies_beneath_them(place: Place) -> None:
    went = well(place, "grpo", "lora", "--rounds", 3, "--lora.rank", 2, "--learning-rate", 0.05)
    assert "the model beneath the adapters" in went.said
    assert went.figures("kl")[0] == pytest.approx(0, abs=1e-5)
    assert went.figures("kl")[-1] != 0
    assert (went.run / "adapter").is_dir()
    AutoModelForCausalLM.from_pretrained(went.run / "model")


@pytest.mark.slow
def test_the_reference_may_follow_or_be_missing(place: Place) -> None:
    follows = ("--reference.kind", "average", "--reference.every", 4, "--reference.share", 1)
    went = well(place, "grpo", "average", "--rounds", 8, *follows)
    assert went.figures("kl")[4] == pytest.approx(0, abs=1e-4)
    assert abs(went.figures("kl")[3]) > 1e-3
    none = well(place, "dapo", "nobody", "--rounds", 1, "--reference.kind", "none")
    assert not any("kl" in name.split("/")[-1].split("_") for name in none.lines[0] if name != "approx_kl")


@pytest.mark.slow
def test_a_round_ends_early_where_the_policy_has_gone_far(place: Place) -> None:
    went = well(
        *(place, "grpo", "early", "--rounds", 2, "--update-epochs", 6, "--target-kl", 1e-4),
        *("--learning-rate", 0.02),
    )
    first = [line for line in went.lines if line["step"] <= 6]
    assert first[0]["approx_kl"] == 0
    stopped = next(line["step"] for line in first if line.get("approx_kl", 0) > 1e-4)
    assert stopped < 6
    assert all("loss" not in line for line in first if line["step"] > stopped)
    assert went.lines[6]["approx_kl"] == 0


@pytest.mark.slow
def test_beta_follows_its_target(place: Place) -> None:
    more = ("--rounds", 8, "--kl-coef-horizon", 20, "--sample.rows", 0, "--kl-coef", 0.1)
    low = well(place, "rloo", "low", *more, "--kl-coef-target", 1e-6).figures("kl_coef")
    high = well(place, "rloo", "high", *more, "--kl-coef-target", 1e6).figures("kl_coef")
    assert low[0] == high[0] == 0.1
    assert low[-1] > 0.15
    assert high[1] == pytest.approx(0.1 * (1 - 0.2 * 16 / 20))
    assert all(after < before for before, after in pairwise(high))


SHAPES: dict[str, tuple[tuple[object, ...], str]] = {
    "missing_end": (("--missing-eos-penalty", -7), "cut"),
    "per_token": (("--shape.per-token", 0.5), "length"),
    "limits": (("--shape.low", 0.5, "--shape.high", 1.5), "limits"),
    "scale": (("--shape.scale",), "scale"),
    "overlong": (("--overlong-buffer", 0.5), "overlong"),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("what", SHAPES)
def test_scores_are_shaped_as_is_said(place: Place, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from plaudit.methods.policy.shaping import ScoreShaper

    seen: list[tuple[list[float], list[float], list[int], list[bool]]] = []
    of = ScoreShaper.shape

    def spying(self: ScoreShaper, score_N: torch.Tensor, batch: object, *, counted: int) -> torch.Tensor:
        shaped = of(self, score_N, batch, counted=counted)  # pyright: ignore[reportArgumentType]
        lengths, ended = batch.length_N.tolist(), batch.finished_N.tolist()  # pyright: ignore
        seen.append((score_N.tolist(), shaped.tolist(), lengths, ended))
        return shaped

    monkeypatch.setattr(ScoreShaper, "shape", spying)
    well(place, "rloo", f"shape-{what}", "--rounds", 2, *SHAPES[what][0], "--reward", place.rule("short"))
    assert len(seen) == 2
    every: list[float] = []
    for raw, shaped, lengths, ended in seen:
        every += raw
        width = (fmean((r - fmean(every)) ** 2 for r in every)) ** 0.5
        for r, found, length, end in zip(raw, shaped, lengths, ended, strict=True):
            wanted = {
                "missing_end": r if end else -7.0,
                "per_token": r - 0.5 * length,
                "limits": min(max(r, 0.5), 1.5),
                "scale": r / width,
                "overlong": r - max(0, length - 3) / 3,
            }[what]
            assert found == pytest.approx(wanted, rel=1e-5)


def test_answers_that_were_cut_are_left_out_of_the_loss(place: Place) -> None:
    """Where none ends by itself there is nothing left to learn from."""
    cut = ("--rounds", 1, "--reward", place.rule("w33"), "--draw.max-tokens", 1, "--overlong-filtering")
    went = well(place, "dr-grpo", "cut", *cut, "--held-out", 0, "--draw.top-k", 1)
    assert went.lines[0]["frac_finished"] == 0
    assert went.lines[0]["grad_norm"] == 0


def test_answers_may_grow_during_a_run(place: Place) -> None:
    """The room of each round is that of its answers, and that beyond which an answer is too long."""
    room = ("--draw.max-tokens", 2, "--draw.growth", "2:4", "4:7", "--overlong-buffer", 0.5)
    more = ("--reward", place.rule("w33"), "--draw.top-k", 0)
    went = well(place, "dr-grpo", "growing", "--rounds", 4, *room, *more)
    a_round = len(went.lines) // 4
    assert [line["length_max"] for line in went.lines[::a_round]] == [2, 4, 4, 7]
    assert "an answer has room for 2 tokens, 4 from round 2 on, 7 from round 4 on" in went.said


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        (("100",), "ROUND:TOKENS"),
        (("5:x",), "ROUND:TOKENS"),
        (("1:100",), "have to grow"),
        (("5:64",), "have to grow"),
        (("5:100", "5:200"), "have to grow"),
        (("5:100", "9:100"), "have to grow"),
    ],
)
def test_room_that_does_not_grow_is_refused(growth: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        DrawSettings(max_tokens=64, growth=growth)


@pytest.mark.slow
def test_what_was_decided_is_said_first(place: Place, runs: Runs) -> None:
    said = runs.of("ppo").said
    assert (
        "a round: 4 prompts with 1 answer each, 4 answers, and 4 moves (4 times through, in 1 part each)"
        in said
    )
    assert "critic: begins as" in said
    assert "reference: " in said
    samples = (runs.of("ppo").run / "samples.jsonl").read_text("utf-8").splitlines()
    assert json.loads(samples[0])["prompt"].startswith("w")
