"""``plaudit combine`` writes a folder that is loaded like any reward, or says what hinders it."""

import json
import statistics
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.rewards.combine.aggregate import CombinedReward
from plaudit.rewards.load import load_reward
from tests.models.reward_zoo import SPECIAL, start
from tests.rewards.scorers import apart, known, said, scorer_folder, tasks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("rewards")
    for seed, name in enumerate("ab"):
        scorer_folder(where / f"made-{name}", seed=seed).rename(where / name)
    start(where).rename(where / "sft")
    return where


def _run(*words: object) -> int:
    return main(["combine", *map(str, words)])


def _row(prompt: str, chosen: str, rejected: str) -> dict[str, object]:
    said = {"prompt": ("user", prompt), "chosen": ("assistant", chosen), "rejected": ("assistant", rejected)}
    return {side: [{"role": role, "content": words}] for side, (role, words) in said.items()}


def _facts(folder: Path) -> dict[str, object]:
    return json.loads((folder / "combined.json").read_text())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ([], {"how": "mean"}),
        (["--how", "min"], {"how": "min"}),
        (["--how", "cautious"], {"how": "cautious", "k": 1.0}),
        (["--how", "cautious", "--k", "0.5"], {"how": "cautious", "k": 0.5}),
        (["--how", "weighted", "--weights", "1", "-0.5"], {"how": "weighted", "weights": [1.0, -0.5]}),
        (["--how", "gated", "--gate", "b"], {"how": "gated", "gate": 1, "below": 0.0}),
        (["--how", "gated", "--gate", "a/", "--below", "-1.7"], {"how": "gated", "gate": 0, "below": -1.7}),
    ],
)
def test_the_options_are_what_is_written(made, tmp_path, monkeypatch, options, facts):
    monkeypatch.chdir(made)
    assert _run("rewards", "a", "b", *options, "--out", tmp_path / "all") == 0
    written = _facts(tmp_path / "all")
    members = written.pop("members")
    assert written == facts
    assert members == [str(made / "a"), str(made / "b")]
    assert isinstance(load_reward(tmp_path / "all", device="cpu"), CombinedReward)


def test_the_folder_scores_what_its_members_say_together(made, tmp_path, capsys):
    out = tmp_path / "all"
    assert _run("rewards", made / "a", made / "b", "--how", "weighted", "--weights", 2, 1, "--out", out) == 0
    assert f"{out}: weighted of {made / 'a'}, {made / 'b'}" in capsys.readouterr().out
    one, other = (load_reward(made / name, device="cpu").scores(tasks(4)) for name in "ab")
    wanted = [
        tuple(2 * known(r) + known(s) for r, s in zip(x, y, strict=True))
        for x, y in zip(one, other, strict=True)
    ]
    assert apart(load_reward(out, device="cpu").scores(tasks(4)), wanted) < 1e-6
    nested = tmp_path / "nested"
    assert _run("rewards", out, made / "a", "--how", "min", "--out", nested) == 0
    least = [
        tuple(min(known(r), known(s)) for r, s in zip(x, y, strict=True))
        for x, y in zip(wanted, one, strict=True)
    ]
    assert apart(load_reward(nested, device="cpu").scores(tasks(4)), least) < 1e-6


def test_members_are_brought_to_one_unit_on_rows(made, tmp_path):
    rows = tmp_path / "pairs.jsonl"
    pairs = [(said(3, n), said(4, 50 + n), said(6, 90 + n)) for n in range(10)]
    rows.write_text("".join(json.dumps(_row(*pair)) + "\n" for pair in pairs))
    out = tmp_path / "all"
    code = _run("rewards", made / "a", made / "b", "--normalise", rows, "--device", "cpu", "--out", out)
    assert code == 0
    asked = [
        Task(prompt=user_turn(p), answers=(assistant_turn(c), assistant_turn(r)), ended=(True, True))
        for p, c, r in pairs
    ]
    normal = _facts(out)["normal"]
    assert isinstance(normal, list)
    for name, facts in zip("ab", normal, strict=True):
        flat = [known(s) for row in load_reward(made / name, device="cpu").scores(asked) for s in row]
        assert facts == pytest.approx({"offset": statistics.fmean(flat), "scale": statistics.pstdev(flat)})
    both = [known(s) for row in load_reward(out, device="cpu").scores(asked) for s in row]
    assert statistics.fmean(both) == pytest.approx(0, abs=1e-6)


def test_an_implicit_reward_and_one_of_steps_are_written(made, tmp_path):
    out = tmp_path / "dpo"
    assert _run("implicit", "--policy", made / "sft", "--reference", made / "sft", "--out", out) == 0
    assert _facts(out)["beta"] == 0.1
    assert {score for row in load_reward(out, device="cpu").scores(tasks(3)) for score in row} == {0.0}
    assert _run("steps", made / "a", "--reading", "last", "--out", tmp_path / "steps") == 0
    assert all(
        0 <= known(score) <= 1
        for row in load_reward(tmp_path / "steps", device="cpu").scores(tasks(3))
        for score in row
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rewards a sft", "sft: this is a language model (LlamaForCausalLM), not a reward model"),
        ("rewards a nowhere", "nowhere: no such folder"),
        ("rewards a b --how weighted", "weighted needs weights"),
        ("rewards a b --how weighted --weights 1", "1 weights for 2 rewards"),
        ("rewards a b --how gated", "gated needs gate"),
        ("rewards a b --how gated --gate sft", "--gate sft: is none of the rewards; it is a or b"),
        ("rewards a b --k 2", "k says nothing to mean"),
        ("rewards a b --how meen", "there is no 'meen'; did you mean mean?"),
        ("rewards a b --normalise nowhere.jsonl", "nowhere.jsonl"),
        (
            "implicit --policy a --reference sft",
            "a: this is a reward model; the implicit reward is that of language",
        ),
        ("implicit --policy sft --reference nowhere", "nowhere: no such folder"),
        ("implicit --policy sft --reference sft --beta 0", "beta 0.0: expected a number above 0"),
        ("steps sft", "this is a language model"),
    ],
)
def test_what_makes_no_reward_is_said_and_nothing_written(made, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(made)
    assert _run(*words.split(), "--out", tmp_path / "out") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_tokens_and_a_folder_in_use_are_refused(made, tmp_path, capsys):
    other = start(tmp_path, specials={**SPECIAL, 9: "<|other|>"})
    out = tmp_path / "out"
    assert _run("implicit", "--policy", made / "sft", "--reference", other, "--out", out) == 2
    assert "its tokenizer differs" in capsys.readouterr().err
    assert _run("rewards", made / "a", made / "b", "--out", other) == 2
    assert "something is there already; name a new folder" in capsys.readouterr().err
    assert _run("rewards", made / "a", made / "b", "--out", out) == 0
    assert _run("steps", out, "--out", tmp_path / "steps") == 2
    assert "a combination has no steps" in capsys.readouterr().err
