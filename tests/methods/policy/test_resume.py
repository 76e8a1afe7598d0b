"""A policy run that was stopped anywhere, in the middle of a round too, ends as if it had never been."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plaudit.engine.sinks.files import read_notes
from plaudit.methods.policy.iterations import RolloutRounds
from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import apart
from tests.engine.test_exact_resume import during_a_save
from tests.engine.toy_command import Command, finish, outcome
from tests.methods.policy.commands import Place, Went, command, go, make_place, refused, well

SPARSE = ("--evaluate-every", 2, "--sample-every", 3, "--save-every", 100, "--rounds", 3)
FOLLOWING = ("--reference.kind", "average", "--reference.every", 1, "--reference.share", 0.3)
RATIO = ("--surrogate", "unclipped")
"""What several moves of a round need, where an algorithm has no ratio."""
MANNERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "ppo": ("ppo", ("--minibatches", 2, "--update-epochs", 2, "--shape.scale")),
    "grpo": ("grpo", ("--update-epochs", 2, "--group-size", 4)),
    "dapo": ("dapo", ("--update-epochs", 2, "--group-size", 4, "--minibatches", 2)),
    "reinforce": ("reinforce", ("--shape.scale",)),
    "ppo-penalty": ("ppo-penalty", ("--penalty-coef-target", 1e-4, "--update-epochs", 3)),
    "adaptive": ("rloo", (*RATIO, "--kl-coef-target", 0.01, "--kl-coef-horizon", 30, "--update-epochs", 2)),
    "stopped early": ("grpo", ("--update-epochs", 4, "--target-kl", 1e-4, "--group-size", 4)),
    "following": ("grpo", ("--reference.kind", "average", "--reference.every", 2, "--update-epochs", 2)),
    "adapters": ("grpo", ("--lora.rank", 2, "--update-epochs", 2)),
    "ptx": ("ppo-ptx", ("--update-epochs", 2, "--ptx.rows", 3)),
    "trpo": ("trpo", ()),
    "replay": ("grpo", ("--draw.replay", 0.4, "--draw.max-staleness", 2, "--update-epochs", 2)),
    "curriculum": ("grpo", ("--draw.curriculum", "--update-epochs", 2)),
    "shared": ("ppo", ("--critic.shared", "--update-epochs", 2)),
    "tr-ppo": ("tr-ppo", ("--update-epochs", 3)),
    "tr-ppo, shared": ("tr-ppo-rb", ("--critic.shared", "--update-epochs", 2)),
    "remax": ("remax", (*RATIO, "--minibatches", 2)),
    "ipo-md": ("ipo-md", ("--update-epochs", 2, "--mixture-coef", 0.4)),
    "nash-md": ("nash-md", (*RATIO, "--update-epochs", 2, "--group-size", 2, "--shape.scale")),
    "nash-md, adapters": ("nash-md", (*RATIO, "--lora.rank", 2, "--update-epochs", 2)),
    "nash-ema": ("nash-md", (*RATIO, "--mixture-coef", 1, *FOLLOWING, "--update-epochs", 2)),
}
QUICK = ("ppo", "dapo", "following", "nash-md", "tr-ppo")
ALL = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in MANNERS]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("resume"))


def words(place: Place, manner: str, *more: object) -> tuple[object, ...]:
    name, own = MANNERS[manner]
    reward = ("--reward", place.rule("even" if name == "dapo" else "short"))
    return (place, name, *more, *SPARSE, *reward, *own)


@contextmanager
def interrupted(at: int) -> Iterator[None]:
    """Ctrl-C comes when the pieces of this step have been made."""
    pieces = RolloutRounds.microbatches

    def stopping(self: RolloutRounds, step: int, batch: list[int]) -> object:
        made = pieces(self, step, batch)
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutRounds, "microbatches", stopping)
        yield


def same(found: Path, wanted: Path) -> None:
    """Figures, samples, weights of policy and critic, and what was remarked."""
    one, other = outcome(found), outcome(wanted)
    assert one.metrics == other.metrics
    assert one.samples == other.samples
    assert one.weights == other.weights
    for path in wanted.glob("critic/*.safetensors"):
        assert (found / "critic" / path.name).read_bytes() == path.read_bytes()
    remarked = [[note for note in read_notes(run) if "docs/policy.md" in note] for run in (found, wanted)]
    assert remarked[0] == remarked[1]


@pytest.mark.slow
@pytest.mark.parametrize("manner", ALL)
def test_it_goes_on_from_between_two_moves_and_from_between_two_rounds(place: Place, manner: str) -> None:
    whole = well(*words(place, manner, f"whole {manner}"))  # pyright: ignore[reportArgumentType]
    inner = len(whole.lines) // 3
    run = words(place, manner, f"stopped {manner}")
    # In the middle of the first round, before the first move of the second, in the middle of the last.
    for step in sorted({max(2, inner), inner + 1, 2 * inner + max(1, inner // 2)}):
        with interrupted(step):
            stopped = go(*run)  # pyright: ignore[reportArgumentType]
        assert stopped.code == 128 + signal.SIGINT, stopped.said
        assert len(stopped.lines) < len(whole.lines)
    went = well(*run)  # pyright: ignore[reportArgumentType]
    same(went.run, whole.run)


@pytest.mark.parametrize("manner", ["ppo", pytest.param("grpo", marks=pytest.mark.slow)])
def test_it_is_killed_during_a_save(place: Place, manner: str) -> None:
    often = ("--save-every", 1)
    whole = well(*words(place, manner, f"alive {manner}"), *often)  # pyright: ignore[reportArgumentType]
    name, _ = MANNERS[manner]
    again = command(place, name, f"killed {manner}", *words(place, manner)[2:], *often)
    out = place.folder / f"killed {manner}"
    assert Command(again).kill_when(during_a_save(out, after=1)).code == -signal.SIGKILL
    finish(*list(again))
    same(out, whole.run)


@pytest.mark.slow
def test_a_change_of_the_rounds_is_refused_in_the_middle_of_one(place: Place) -> None:
    run = words(place, "grpo", "changed")
    with interrupted(4):
        assert go(*run).code == 130  # pyright: ignore[reportArgumentType]
    other = refused(*run, "--update-epochs", 3)  # pyright: ignore[reportArgumentType]
    assert "update_epochs" in other.said
    well(*run)  # pyright: ignore[reportArgumentType]


RANKS: dict[str, tuple[str, tuple[object, ...]]] = {
    "ppo": ("ppo", ("--minibatches", 2, "--update-epochs", 2)),
    "grpo": ("grpo", ("--update-epochs", 2, "--group-size", 4, "--memory.tokens-at-once", 40)),
    "dapo": ("dapo", ("--group-size", 4)),
    "one held out": ("remax", ("--held-out", 0.01)),
    "trpo": ("trpo", ()),
    "tr-ppo": ("tr-ppo", ("--update-epochs", 3, "--max-kl", 1e-4)),
    "ptx": ("ppo-ptx", ("--update-epochs", 2, "--ptx.rows", 3)),
    "ipo-md": ("ipo-md", ("--update-epochs", 2, "--mixture-coef", 0.4)),
    "nash-md": ("nash-md", (*RATIO, "--update-epochs", 2, "--group-size", 2)),
    "shared": ("ppo", ("--critic.shared", "--update-epochs", 2)),
    "adapters": ("grpo", ("--lora.rank", 2, "--update-epochs", 2)),
    "adapters, a mixture": ("nash-md", (*RATIO, "--lora.rank", 2)),
}


@pytest.mark.parametrize(
    ("manners", "ranks", "more"),
    [
        (("ppo",), 2, ("--shard",)),
        *(
            pytest.param(names, ranks, more, marks=pytest.mark.slow)
            for names, ranks, more in (
                (("ppo", "grpo"), 2, ()),
                (("dapo", "trpo", "tr-ppo", "ptx"), 2, ()),
                (("one held out", "ipo-md", "nash-md"), 2, ()),
                (("grpo", "trpo", "shared", "ptx", "nash-md"), 2, ("--shard",)),
                (("adapters", "adapters, a mixture"), 2, ("--shard",)),
                (("ppo", "adapters"), 4, ("--shard",)),
            )
        ),
    ],
)
def test_ranks_learn_what_one_process_learns(place, tmp_path, manners, ranks, more):
    def run(manner: str, out: str, *more: str) -> Run:
        name, own = RANKS[manner]
        words = ("--rounds", 2, "--batch-size", 5, "--dtype", "float64", "--evaluate-every", 1)
        reward = ("--reward", place.rule("even" if name == "dapo" else "short"))
        made = command(place, name, tmp_path / f"{out} {manner}", *words, *reward, *own, *more)
        return Run(arguments=tuple(made), environment={})

    alone = run_all({name: run(name, "alone") for name in manners}, tmp_path, ranks=1)
    together = run_all({name: run(name, "together", *more) for name in manners}, tmp_path, ranks=ranks)
    for manner in manners:
        (one,), (first, *others) = alone[manner], together[manner]
        assert (one.code, first.code) == (0, 0), (one.err, first.err, others[0].err)
        assert [(said.code, said.out, said.err) for said in others] == [(0, "", "")] * (ranks - 1)
        assert first.err.count("a whole copy of the weights in float64") == bool(more)
        folders = [tmp_path / f"{out} {manner}" for out in ("alone", "together")]
        wanted, found = (Went(code=0, said="", run=folder).lines for folder in folders)
        for expected, line in zip(wanted, found, strict=True):
            assert line.keys() == expected.keys()
            # Sampler and trainer are apart by rounding alone, which is another one in other pieces.
            for name in expected.keys() - {"timing", "sampling_logp_diff_mean", "sampling_logp_diff_max"}:
                near, step = 1e-12 if name in ("loss", "grad_norm") else 1e-7, expected["step"]
                assert apart(line[name], expected[name]) < near, (manner, step, name)
        for path in folders[0].glob("*/*.safetensors"):
            theirs = load_file(folders[1] / path.relative_to(folders[0]))
            for key, weight in load_file(path).items():
                torch.testing.assert_close(theirs[key], weight, rtol=0, atol=1e-12, msg=key)


@pytest.mark.slow
def test_divided_ranks_that_were_stopped_go_on_to_the_bit(place: Place, tmp_path: Path) -> None:
    stops = ("--optimizer.name", "tests.engine.distributed.user_optimizers:terminated", "--shard")

    def run(manner: str, out: str, **environment: str) -> Run:
        name, own = RANKS[manner]
        words = command(place, name, tmp_path / f"{out} {manner}", *SPARSE, *own, *stops)
        return Run(arguments=tuple(words), environment=environment)

    manners = ("ppo", "adapters")
    whole = run_all({name: run(name, "whole") for name in manners}, tmp_path, ranks=2)
    # The last rank is told to stop in its third step, in the middle of a round.
    stopped = run_all({name: run(name, "stopped", TOY_STOP="1:3") for name in manners}, tmp_path, ranks=2)
    went = run_all({name: run(name, "stopped") for name in manners}, tmp_path, ranks=2)
    for name in manners:
        assert [said.code for said in (*whole[name], *went[name])] == [0] * 4, went[name][0].err
        assert [said.code for said in stopped[name]] == [143, 143]
        same(tmp_path / f"stopped {name}", tmp_path / f"whole {name}")


@pytest.mark.slow
def test_divided_experts_learn_what_one_process_learns(tmp_path: Path) -> None:
    place = make_place(tmp_path, name="mixtral")
    out = ("one", "two")
    more = ("--rounds", 2, "--batch-size", 5, "--dtype", "float32", "--learning-rate", 0.001)
    for ranks, folder in enumerate(out, 1):
        words = command(place, "grpo", folder, *more, *["--shard"][: ranks - 1])
        said = run_all({"run": Run(arguments=tuple(words), environment={})}, tmp_path, ranks=ranks)["run"]
        assert [one.code for one in said] == [0] * ranks, said[0].err
    wanted, found = (load_file(tmp_path / name / "model" / "model.safetensors") for name in out)
    for key, weight in wanted.items():
        torch.testing.assert_close(found[key], weight, rtol=1e-5, atol=1e-5, msg=key)
