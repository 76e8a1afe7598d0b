"""A loop that was killed, between rounds or inside them, ends as if it had never been."""

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from plaudit.methods.iterative.rounds import answers_line, read_answers
from plaudit.methods.policy.collect import ScoredGroup
from plaudit.rollouts.sampler import Answer, Rollout
from plaudit.tokens.prompts import EncodedPrompt
from tests.engine.distributed.runs import Run, run_all
from tests.engine.test_exact_resume import Moment, at_random, during_a_save, same
from tests.engine.toy import Toy
from tests.engine.toy_command import Command, finish, outcome, plaudit, refused
from tests.methods.iterative.test_loop_runs import command

pytestmark = pytest.mark.slow

ROUNDS = 2
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def toy(speaker: Toy) -> Toy:
    return speaker


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("undisturbed")
    for name in ("rejection", "iterated"):
        finish(*command(name, toy, home / name))
    return {name: home / name for name in ("rejection", "iterated")}


def kept(out: Path) -> Files:
    """What a loop leaves behind beside its runs."""
    files = [out / "rounds.jsonl", *(out / "model").iterdir()]
    files += [out / "rounds" / str(n) / f"{what}.jsonl" for n in (1, 2) for what in ("answers", "rows")]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def all_same(out: Path, expected: Path) -> None:
    assert kept(out) == kept(expected)
    for number in range(1, ROUNDS + 1):
        run = Path("rounds") / str(number) / "run"
        same(out / run, outcome(expected / run))


def exists(name: str) -> Callable[[Path], Moment]:
    return lambda out: (out / name).exists


def while_written(parent: str, name: str) -> Callable[[Path], Moment]:
    return lambda out: lambda: any((out / parent).glob(f".{name}*.partial"))


MOMENTS: list[Callable[[Path], Moment]] = [
    exists("lineage.json"),
    exists("rounds/1/answers.jsonl"),
    exists("checkpoints/round-1.json"),
    lambda out: during_a_save(out / "rounds" / "1" / "run"),
    exists("rounds/1/run/summary.json"),
    exists("rounds/2"),
    exists("rounds/2/rows.jsonl"),
    lambda out: during_a_save(out / "rounds" / "2" / "run", after=1),
    while_written("rounds/2/run", "model"),
    exists("rounds/2/run/summary.json"),
    while_written(".", "model"),
]
"""Every step of a loop of two rounds."""


@pytest.mark.slow
def test_it_is_killed_at_every_step_between_rounds_and_inside_them(toy, undisturbed, tmp_path):
    out = tmp_path / "loop"
    again = command("rejection", toy, out)
    killed = [Command(again).kill_when(moment(out)).code for moment in MOMENTS]
    assert killed.count(-signal.SIGKILL) >= len(MOMENTS) - 3, killed
    finish(*again)
    all_same(out, undisturbed["rejection"])
    assert not [path for path in out.rglob("*.partial") if path.parent != out / "rounds"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("iterated", "rejection")]
)
def test_it_is_killed_at_random(toy: Toy, undisturbed: dict[str, Path], tmp_path: Path, name: str) -> None:
    chance, out = random.Random(name), tmp_path / "loop"
    again = command(name, toy, out)
    for _ in range(3):
        Command(again).kill_when(at_random(chance, 1.2))
    finish(*again)
    all_same(out, undisturbed[name])


def test_a_signal_inside_a_round_saves_first(toy: Toy, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "loop"
    again = command("rejection", toy, out)
    running = Command(again)
    running.until(exists("rounds/2/run/metrics.jsonl")(out))
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.code in (0, 128 + signal.SIGINT), done.err
    finish(*again)
    all_same(out, undisturbed["rejection"])


def test_a_round_that_is_whole_is_not_drawn_again(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "loop"
    again = command("rejection", toy, out)
    done = Command(again).kill_when(exists("rounds/2/answers.jsonl")(out))
    assert done.code == -signal.SIGKILL
    done = plaudit(*again)
    assert "round 1: drawing" not in done.err
    assert "did not end in good order" in done.err
    done = plaudit(*again)
    assert done.code == 0
    assert "this loop is finished; nothing was done" in " ".join(done.err.split())


def test_answers_come_back_as_they_were_said_whatever_is_in_them(tmp_path: Path) -> None:
    texts = ("one\ntwo", "\u2028 and \x85 and \x0c", "\ud7ff \U0001f989", "")
    said = [Answer(text=text, tokens=1, ended=True) for text in texts]
    rollouts = tuple(Rollout(prompt=(1,), ids=(2,), logp=(0.0,), whole_logp=(0.0,), answer=x) for x in said)
    question = EncodedPrompt(text="what?", prompt=(1,))
    group = ScoredGroup(prompt=question, rollouts=rollouts, scores=(0.1, None, 1 / 3, -2.0))
    (tmp_path / "answers.jsonl").write_text(f"{answers_line(group)}\n" * 2, "utf-8")
    first, second = read_answers(tmp_path / "answers.jsonl")
    assert first == second
    assert tuple((one.text, one.score) for one in first) == tuple(zip(texts, group.scores, strict=True))


def test_two_processes_draw_their_shares_and_the_same_answers(toy, undisturbed, tmp_path):
    words = command("iterated", toy, tmp_path / "loop", "--loop.rounds", 1)
    run = Run(arguments=tuple(map(str, words)), environment={})
    ranks = run_all({"loop": run}, tmp_path, ranks=2)["loop"]
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].err
    assert "".join(rank.err for rank in ranks).count("round 1: drawing") == 1
    assert f"The model is in {tmp_path / 'loop' / 'model'}" in ranks[0].out
    for name in ("answers.jsonl", "rows.jsonl"):
        own, other = (home / "rounds" / "1" / name for home in (tmp_path / "loop", undisturbed["iterated"]))
        assert own.read_bytes() == other.read_bytes()


def test_the_seed_alone_decides_what_is_drawn(toy: Toy, undisturbed: dict[str, Path], tmp_path: Path) -> None:
    own = kept(undisturbed["rejection"])["rounds/1/answers.jsonl"]
    for more in (("--seed", 1), ("--sampling.seed", 1)):
        out = tmp_path / more[0]
        finish(*command("rejection", toy, out, *more))
        assert kept(out)["rounds/1/answers.jsonl"] != own
    first, second = (undisturbed["rejection"] / "rounds" / n / "answers.jsonl" for n in "12")
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--loop.answers", 5), "loop.answers: 4 → 5"),
        (("--reward", "length:1-9"), "reward: 'length:1-7' → 'length:1-9'"),
        (("--sampling.top-p", 0.9), "sampling.top_p: 1.0 → 0.9"),
        (("--learning-rate", 0.5), "learning_rate: 0.003 → 0.5"),
    ],
)
def test_other_settings_are_refused(toy, undisturbed, more, words):
    assert words in refused(*command("rejection", toy, undisturbed["rejection"], *more))


def test_another_loop_and_other_prompts_are_refused(toy, undisturbed, tmp_path):
    said = refused(*command("best-of-n", toy, undisturbed["rejection"], "--loop.rounds", 2))
    assert "method: rejection → best-of-n" in said
    out, own = tmp_path / "loop", tmp_path / "prompts.jsonl"
    own.write_bytes(toy.data.read_bytes())
    again = command("rejection", Toy(model=toy.model, data=own), out)
    assert Command(again).kill_when(exists("checkpoints/round-1.json")(out)).code == -signal.SIGKILL
    own.write_bytes(own.read_bytes() + b'{"prompt": "one more?"}\n')
    assert "has changed since" in refused(*again)


def test_answers_that_were_edited_are_refused(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "loop"
    again = command("rejection", toy, out)
    assert Command(again).kill_when(exists("rounds/2")(out)).code == -signal.SIGKILL
    rows = out / "rounds" / "1" / "rows.jsonl"
    rows.write_bytes(rows.read_bytes()[: len(rows.read_bytes()) // 2])
    assert "it is not as round 1 has left it" in refused(*again)
