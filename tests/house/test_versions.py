"""tools/versions.py: what the oldest environment holds, and that a command which fails there is shown."""

import tomllib
from pathlib import Path

import pytest

from tools.versions import CHAPTERS, MAIN_JOB, check_environment, oldest_constraints

PROJECT = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))["project"]


def test_the_oldest_environment_has_every_requirement_at_its_lower_bound() -> None:
    pinned = dict(line.split("==") for line in oldest_constraints(PROJECT))
    named = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["collect"]]
    assert {one.split(">=")[0] for one in named} <= {*pinned}
    assert pinned["torch"] == "2.11"
    # Of an extra that only `all` names.
    assert "peft" in pinned


@pytest.mark.parametrize("requirement", ["torch", "torch<3", "torch==2.11"])
def test_a_requirement_without_a_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(SystemExit, match=r"torch.* has no lower bound"):
        oldest_constraints({"dependencies": [requirement], "optional-dependencies": {}})


def test_a_command_that_fails_ends_all_with_what_it_said(tmp_path, capsys):
    plaudit = tmp_path / "plaudit"
    plaudit.write_text(
        "#!/bin/sh\n"
        'case "$1" in world) echo /the/base;; sample) echo "a deprecated name";; *) echo $2; exit 3;; esac\n'
    )
    plaudit.chmod(0o755)
    commands = ("plaudit sample", "plaudit check $BASE", "plaudit plan")
    with pytest.raises(SystemExit, match=r"^/the/base\n\nthis command failed: plaudit check /the/base$"):
        check_environment(tmp_path, "newest", tmp_path, commands)
    assert "says: a deprecated name" in capsys.readouterr().out


def test_the_main_job_reloads_what_grpo_saved_and_every_chapter_has_a_command() -> None:
    assert "grpo.rounds=2" in MAIN_JOB[0]
    assert "grpo/run/model" in MAIN_JOB[1]
    trained = {command.split()[2] for command in CHAPTERS if command.startswith("plaudit train")}
    assert trained == {"sft", "reward", "dpo", "rloo", "rejection"}
