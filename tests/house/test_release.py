"""make release and tools/versions.py: what is no release, and what the oldest environment holds."""

import tomllib
from pathlib import Path

import pytest

from tools.release import release_faults, stated_versions
from tools.versions import CHAPTERS, MAIN_JOB, check_environment, oldest_constraints

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n',
    "src/plaudit/__init__.py": '__version__ = "1.2.0"\n',
    "CHANGELOG.md": "## Unreleased\n\n## 1.2.0 — 2027-01-31\n\n## 1.1.0 — 2026-12-01\n",
    "CITATION.cff": "version: 1.2.0\n",
}


def faults(root: Path, *tags: str, changed: tuple[str, ...] = (), **texts: str) -> list[str]:
    for name, text in (FILES | texts).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [*release_faults(root, [*tags], [*changed])]


def test_this_repository_says_one_version_everywhere():
    stated = stated_versions(ROOT)
    assert None not in stated.values()
    assert len({*stated.values()}) == 1, stated


def test_a_release_is_tagged_and_says_its_version_everywhere(tmp_path):
    assert faults(tmp_path, "v1.2.0") == []
    assert "git tag -a v1.2.0" in faults(tmp_path, "v1.1.0")[0]
    assert " M README.md" in faults(tmp_path, "v1.2.0", changed=(" M README.md",))[0]


@pytest.mark.parametrize("name", ["src/plaudit/__init__.py", "CHANGELOG.md", "CITATION.cff"])
def test_a_file_that_says_another_version_is_named(name, tmp_path):
    text = FILES[name].replace("1.2.0", "1.1.0")
    assert faults(tmp_path, "v1.2.0", **{name: text}) == [
        f"{name} says version 1.1.0, pyproject.toml says 1.2.0"
    ]


def test_a_changelog_without_a_dated_version_says_none(tmp_path):
    [fault] = faults(tmp_path, "v1.2.0", **{"CHANGELOG.md": "## Unreleased\n"})
    assert fault.startswith("CHANGELOG.md says version None")


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
