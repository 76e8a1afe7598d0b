"""``plaudit train rlhf``: compare, learn the reward from all so far, improve the policy; and again."""

import json
from pathlib import Path
from typing import Any

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.engine.distributed import process_group
from plaudit.methods.config import ReferenceSettings
from plaudit.methods.iterative.config import RlhfConfig, RoundSettings
from plaudit.methods.iterative.rlhf import generate_and_compare, policy_config, rlhf_round
from plaudit.methods.iterative.run import open_loop_folder
from plaudit.methods.policy.config import DrawSettings
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from tests.engine.distributed.runs import Run, run_all
from tests.engine.toy import Toy, write_rows
from tests.feedback.judges.judges import completion, delimiters, question, quoted
from tests.methods.iterative.rlhf_runs import Went, command, go, make_place, refused, said_of, well
from tests.methods.iterative.test_loop_runs import lines, text
from tests.rewards.server import serving

THREE: tuple[object, ...] = (
    *("--loop.rounds", 3, "--reward-run.epochs", 4, "--steps", 5, "--batch-size", 8),
    *("--policy.group-size", 4, "--learning-rate", 0.006),
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_place(tmp_path_factory.mktemp("rlhf"))


@pytest.fixture(scope="module")
def three(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Went:
    return well(toy, tmp_path_factory.mktemp("three") / "run", *THREE)


@pytest.mark.slow
def test_each_reward_learns_from_all_comparisons_so_far(three: Went) -> None:
    new = {n: [said_of(row) for row in lines(three.part(n, "comparisons.jsonl"))] for n in (1, 2, 3)}
    train = {n: [said_of(row) for row in lines(three.part(n, "train.jsonl"))] for n in (1, 2, 3)}
    held = {n: [said_of(row) for row in lines(three.part(n, "held-out.jsonl"))] for n in (1, 2, 3)}
    for n in (1, 2, 3):
        so_far = [row for k in range(1, n + 1) for row in new[k]]
        assert sorted(train[n] + held[n]) == sorted(so_far)
        assert three.settings(n, "reward")["data"] == str(three.part(n, "train.jsonl"))
        assert three.settings(n, "reward")["held_out"] == str(three.part(n, "held-out.jsonl"))
        assert "also trained" not in (three.part(n, "reward") / "summary.json").read_text("utf-8")
    assert set(train[1]) < set(train[2]) < set(train[3])
    assert not {row[0] for row in train[3]} & {row[0] for row in held[3]}, "a prompt is trained or never"


@pytest.mark.slow
def test_the_newest_policy_answers_is_improved_and_is_held_near_the_start(toy: Toy, three: Went) -> None:
    for n in (1, 2, 3):
        newest = str(three.part(n - 1, "policy") / "model") if n > 1 else str(toy.model)
        settings = three.settings(n, "policy")
        assert settings["model"] == newest
        assert settings["reference"]["model"] == (str(toy.model) if n > 1 else None)
        assert settings["reward"] == str(three.part(n, "reward") / "model")
        assert three.settings(n, "reward")["model"] == str(toy.model)
        assert f"answers to each of 20 prompts from {newest}".replace(" ", "") in three.said.replace(
            "\n", ""
        ).replace(" ", "")
    last = three.part(3, "policy") / "model"
    for path in last.iterdir():
        assert (three.out / "model" / path.name).read_bytes() == path.read_bytes()
    assert f"The model is in {three.out / 'model'}" in three.said


@pytest.mark.slow
def test_what_is_compared_are_whole_answers_that_differ_and_the_function_decides(three: Went) -> None:
    for n in (1, 2, 3):
        drawn = {row["origin"]: row["answers"] for row in lines(three.part(n, "answers.jsonl"))}
        for row in lines(three.part(n, "comparisons.jsonl")):
            whole = [a["text"].strip() for a in drawn[row["origin"]] if a["ended"] and a["text"].strip()]
            chosen, rejected = text(row["chosen"]), text(row["rejected"])
            assert {chosen.strip(), rejected.strip()} == {*list(dict.fromkeys(whole))[:2]}
            assert row["prompt"][0]["role"] == "user", "a chat model is asked by turns"
            more = len(chosen.split()) - len(rejected.split())
            assert more == 0 if row.get("probability") == 0.5 else more > 0


def length(model: Path, toy: Toy) -> float:
    asked = [row["prompt"] for row in lines(toy.data)]
    said = LocalSampler(model, device="cpu").generate_answers(
        [user_turn(one) for one in asked], SamplingSettings(max_tokens=24), n=8
    )
    counts = [len(one.text.split()) for own in said for one in own]
    return sum(counts) / len(counts)


@pytest.mark.slow
def test_the_policy_comes_to_say_what_is_preferred(toy: Toy, three: Went) -> None:
    assert length(three.out / "model", toy) > length(toy.model, toy) + 2


def accuracy(reward: Path, rows: list[dict[str, Any]]) -> float | None:
    scorer, counts = resolve_reward(str(reward)), list[float]()
    for row in rows:
        if row.get("probability") == 0.5:
            continue
        prompt, chosen, rejected = said_of(row)
        answers = (assistant_turn(chosen), assistant_turn(rejected))
        [(a, b)] = scorer.scores([Task(prompt=user_turn(prompt), answers=answers, ended=(True, True))])
        assert a is not None
        assert b is not None
        counts.append(1.0 if a > b else 0.5 if a == b else 0.0)
    return sum(counts) / len(counts) if counts else None


@pytest.mark.slow
def test_the_figures_of_a_round_are_those_of_its_files(three: Went) -> None:
    assert [one["round"] for one in three.figures] == [1, 2, 3]
    assert "old_on_new" not in three.figures[0]
    for one in three.figures:
        n = one["round"]
        new = lines(three.part(n, "comparisons.jsonl"))
        never = {said_of(row) for row in lines(three.part(n, "held-out.jsonl"))}
        held = [row for row in new if said_of(row) in never]
        assert (one["prompts"], one["pairs"], one["held_out"]) == (20, len(new), len(held))
        assert one["train"] == len(lines(three.part(n, "train.jsonl")))
        assert one["ties"] == sum(row.get("probability") == 0.5 for row in new)
        assert one.get("new_held_out") == pytest.approx(accuracy(three.part(n, "reward"), held))
        if n > 1:
            assert one["old_on_new"] == pytest.approx(accuracy(three.part(n - 1, "reward"), new))
            assert one.get("old_held_out") == pytest.approx(accuracy(three.part(n - 1, "reward"), held))
        last = json.loads((three.part(n, "policy") / "summary.json").read_text("utf-8"))["last"]
        assert (one["reward"], one["kl"]) == (last["held_out/reward"], last["held_out/kl"])
        assert f"the policy's reward is {one['reward']:.3f}, its KL {one['kl']:.3f}" in three.words


@pytest.mark.slow
def test_comparisons_that_there_are_already_are_learnt_in_the_first_round(toy: Toy, tmp_path: Path) -> None:
    given = [{"prompt": f"{n} the old cat?", "chosen": "run.", "rejected": "run far."} for n in range(9)]
    data = write_rows(tmp_path / "given.jsonl", given)
    went = well(toy, tmp_path / "run", "--loop.data", data, "--loop.rounds", 1)
    prompts = {
        row["prompt"] if isinstance(row["prompt"], str) else text(row["prompt"])
        for name in ("train", "held-out")
        for row in lines(went.part(1, f"{name}.jsonl"))
    }
    assert {row["prompt"] for row in given} <= prompts
    new = {row["origin"] for row in lines(went.part(1, "comparisons.jsonl"))}
    assert {origin.split(":")[0] for origin in new} == {"prompts.jsonl"}, "only its own are new"


@pytest.mark.slow
def test_what_a_round_begins_with_can_be_told(toy: Toy, tmp_path: Path) -> None:
    more = ("--loop.starts", "start", "--reward-run.start", "newest", "--reward-run.held-out", 0)
    went = well(toy, tmp_path / "run", *more, "--loop.prompts", 10)
    assert went.settings(2, "policy")["model"] == str(toy.model)
    assert went.settings(2, "policy")["reference"]["model"] is None
    assert went.settings(2, "reward")["model"] == str(went.part(1, "reward") / "model")
    assert went.settings(2, "reward")["held_out"] == "0"
    new = lines(went.part(2, "comparisons.jsonl"))
    assert [said_of(row) for row in lines(went.part(2, "train.jsonl"))] == [said_of(row) for row in new]
    asked = [{row["origin"] for row in lines(went.part(n, "answers.jsonl"))} for n in (1, 2)]
    assert len(asked[0]) == len(asked[1]) == 10
    assert not asked[0] & asked[1], "others until all had their turn"
    assert "new_held_out" not in went.figures[1]
    assert "no new comparison is held out" in went.words


@pytest.mark.slow
def test_settings_of_both_runs_are_reached(toy: Toy, tmp_path: Path) -> None:
    more = ("--reward-run.epochs", 2, "--reward-run.reward.smoothing", 0.1, "--policy.kl-coef", 0.2)
    more = (*more, "--reward-run.ensemble.members", 2, "--loop.rounds", 1)
    went = well(toy, tmp_path / "run", *more, "--loop.teach", "ppo")
    assert (went.part(1, "reward") / "combined.json").exists()
    assert went.settings(1, "policy")["reward"] == str(went.part(1, "reward"))
    assert went.settings(1, "policy")["kl_coef"] == 0.2
    member = went.settings(1, "reward/members/1")
    assert (member["epochs"], member["reward"]["smoothing"]) == (2.0, 0.1)
    assert "loop.teach: 'ppo' → 'reinforce'" in refused(toy, tmp_path / "run", *more).words


def test_a_round_is_held_near_the_start_the_newest_or_what_is_named() -> None:
    given = {"model": Path("m"), "prompts": Path("p"), "comparisons": "people", "out": Path("o")}
    named = ReferenceSettings(model=Path("other"))
    near = {
        "start": RlhfConfig(**given),
        "newest": RlhfConfig(**given, loop=RoundSettings(reference="newest")),
        "named": RlhfConfig(**given, reference=named),
    }
    found = {name: policy_config(config, rlhf_round(config, 2)) for name, config in near.items()}
    assert {one.model for one in found.values()} == {Path("o/rounds/1/policy/model")}
    models = {name: one.reference.model for name, one in found.items()}
    assert models == {"start": Path("m"), "newest": None, "named": Path("other")}


def labels(toy: Toy, out: Path, noise: float, seed: int) -> list[tuple[str, str, str]]:
    config = RlhfConfig(
        model=toy.model,
        prompts=toy.data,
        comparisons=f"{toy.data.parent / 'mine.py'}:full",
        out=out,
        draw=DrawSettings(max_tokens=24),
        device="cpu",
        loop=RoundSettings(noise=noise),
        seed=seed,
    )
    one = rlhf_round(config, 1)
    with process_group("cpu") as ranks, open_loop_folder(config, ranks) as folder:
        generate_and_compare(config, one, folder, ranks)
    return [said_of(row) for row in lines(one.comparisons)]


@pytest.mark.slow
def test_a_reward_compares_with_noise_and_chance_is_that_of_the_seed(toy: Toy, tmp_path: Path) -> None:
    sure, noisy, again = (labels(toy, tmp_path / str(n), 50.0 * (n > 0), 0) for n in range(3))
    other = labels(toy, tmp_path / "other", 50.0, 1)
    assert all(len(a.split()) >= len(b.split()) for _, a, b in sure)
    assert sum(len(a.split()) < len(b.split()) for _, a, b in noisy) > 2
    assert {frozenset(row) for row in sure} == {frozenset(row) for row in noisy}, "the same pairs"
    assert noisy == again
    assert noisy != other


@pytest.mark.slow
def test_what_is_there_is_not_done_again_and_not_with_other_settings(toy: Toy, three: Went) -> None:
    assert "this loop is finished; nothing was done" in well(toy, three.out, *THREE).words
    assert "loop.noise: 0.0 → 0.1" in go(toy, three.out, *THREE, "--loop.noise", 0.1).words


def fuller_judge(body: dict[str, Any], number: int) -> tuple[int, bytes]:
    """Prefers the answer of more words, and refuses where w23 is asked."""
    shown = question(body)
    first, second = (len(answer.split()) for answer in quoted(shown))
    opened, closed = delimiters(shown)
    word = "tie" if first == second else "A" if first > second else "B"
    return completion(f"{opened}{'refuse' if '> w23 w24' in shown.splitlines() else word}{closed}")


@pytest.mark.slow
def test_a_judge_on_a_server_compares_in_both_orders(toy, three, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(fuller_judge) as server:
        word = f"openai:{server.url.removesuffix('/score')}/v1#fuller"
        went = well(toy, tmp_path / "run", *THREE, "--loop.rounds", 1, "--comparisons", word)
        asked = [question(body) for body in server.asked]
    assert len(asked) == len(set(asked)) == 2 * went.figures[0]["pairs"], "each pair in both orders, once"
    mine = {said_of(row) for row in lines(three.part(1, "comparisons.jsonl"))}
    judged = [(said_of(row), row) for row in lines(went.part(1, "comparisons.jsonl"))]
    # The same answers, compared by the same rule: what the judge says is what the function said.
    assert {said for said, _ in judged} <= mine
    assert {row["annotator"] for _, row in judged} == {"fuller"}
    assert went.figures[0]["unjudged"] == len(mine) - len(judged) > 0


def test_a_judge_that_is_down_ends_the_loop_in_words(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(lambda body, number: (403, b"no")) as server:
        word = f"openai:{server.url.removesuffix('/score')}/v1#fuller"
        went = go(toy, tmp_path / "run", "--comparisons", word)
    assert went.code == 2
    assert "403" in went.words


@pytest.mark.slow
def test_two_divided_ranks_compare_what_one_process_compares(toy: Toy, tmp_path: Path) -> None:
    words = ("--loop.rounds", 2, "--dtype", "float64")
    one = well(toy, tmp_path / "one", *words)
    more = tuple(map(str, command(toy, tmp_path / "two", *words, "--shard")))
    ranks = run_all({"run": Run(arguments=more, environment={})}, tmp_path, ranks=2)["run"]
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].err
    for name in ("answers.jsonl", "comparisons.jsonl", "train.jsonl", "held-out.jsonl"):
        for n in (1, 2):
            assert (tmp_path / "two" / "rounds" / str(n) / name).read_bytes() == one.part(
                n, name
            ).read_bytes()
