"""Whatever ends a run that is not the run itself is a failure in words: status 2, no model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.cli.main import main
from tests.engine.distributed.runs import Run, run_all
from tests.methods.policy.commands import Place, command, go, make_place, refused

OWN = '''
import os, sys
from os import _exit
import plaudit
from plaudit.methods.policy import cells
from plaudit.rollouts.environment import Outcome

calls = []

def leaves(answer):
    calls.append(answer)
    if len(calls) > 9:
        sys.exit(0)
    return float(len(answer))

def leaves_with_a_number(answer): sys.exit(3)
def leaves_at_once(answer): os._exit(0)
def leaves_by_its_own_name(answer): _exit(0)

def leaves_though_it_catches(answer):
    try:
        os._exit(0)
    except Exception:
        return 1.0

def forks(answer):
    """A process of its own may end as it likes."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def before(asked):
    sys.exit(0)
    yield None

def within(asked):
    said = yield None
    os._exit(0)
    return Outcome(score=1.0)

def surrogate(inputs, /):
    """Ends the program in the middle of a step."""
    os._exit(0)

def algorithm(kl_coef: float = 0.0):
    """An algorithm that does not go on."""
    from dataclasses import replace
    from plaudit.methods.policy.algorithms import grpo
    return replace(grpo(), surrogate=surrogate)
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = make_place(tmp_path_factory.mktemp("exits"))
    (place.folder / "own.py").write_text(OWN)
    (place.folder / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    return place


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("leaves", "SystemExit: 0"),
        ("leaves_with_a_number", "SystemExit: 3"),
        ("leaves_at_once", "os._exit(0)"),
        ("leaves_by_its_own_name", "os._exit(0)"),
        ("leaves_though_it_catches", "os._exit(0)"),
    ],
)
def test_a_reward_that_ends_the_program(place: Place, function: str, words: str) -> None:
    went = refused(place, "grpo", f"out-{function}", "--reward", f"{place.folder / 'own.py'}:{function}")
    assert f"own.py:{function}, prompt " in went.said
    assert words in went.said
    assert not (went.run / "model").exists()


@pytest.mark.slow
def test_a_reward_may_end_a_process_of_its_own(place: Place) -> None:
    went = go(place, "grpo", "forks", "--rounds", 1, "--reward", f"{place.folder / 'own.py'}:forks")
    assert went.code == 0, went.said
    assert went.figures("reward") == [7.0]


@pytest.mark.parametrize("environment", ["before", "within"])
def test_an_environment_that_ends_the_program(place, environment, capsys):
    word = f"{place.folder / 'own.py'}:{environment}"
    assert main(command(place, "grpo", f"out-{environment}", "--environment", word)) == 2
    assert f"own.py:{environment}, prompt" in (said := capsys.readouterr().err)
    assert "it ended the program" in said
    assert not (place.folder / f"out-{environment}" / "model").exists()


def test_a_module_that_ends_the_program(place: Place) -> None:
    went = refused(place, "grpo", "leaving", "--reward", f"{place.folder / 'leaving.py'}:short")
    assert "leaving.py: it ended the program" in went.said


@pytest.mark.slow
def test_a_loss_that_ends_the_program_in_a_step(place: Place) -> None:
    """Through the installed command, whose status is what a script looks at."""
    word = f"{place.folder / 'own.py'}:algorithm"
    done = subprocess.run(
        [sys.executable, "-m", "plaudit", *command(place, "policy", "loss", "--algorithm", word)],
        cwd=place.folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "something that it called did not let it finish" in done.stderr
    assert "os._exit(0)" in done.stderr
    assert not (place.folder / "loss" / "model").exists()


@pytest.mark.slow
def test_a_rank_that_is_ended_takes_the_other_along(place: Place, tmp_path: Path) -> None:
    word = f"{place.folder / 'own.py'}:algorithm"
    arguments = tuple(command(place, "policy", tmp_path / "ranks", "--algorithm", word))
    ranks = run_all({"run": Run(arguments=arguments, environment={})}, tmp_path, ranks=2)["run"]
    assert all(rank.code == 2 for rank in ranks)
    assert "os._exit(0)" in "".join(rank.err for rank in ranks)
