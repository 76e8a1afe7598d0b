"""``plaudit completion``: what follows what is typed, and bash that asks for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.cli.main import main


def words(capsys: pytest.CaptureFixture[str], *typed: str) -> list[str]:
    assert main(["completion", "words", "--", *typed]) == 0
    return capsys.readouterr().out.split()


def test_verbs_methods_options_and_choices_follow(capsys):
    assert {"train", "push", "completion", "--version"} <= set(words(capsys))
    assert {"dpo", "sft", "--list"} <= set(words(capsys, "train"))
    assert {"--beta", "--lora.rank", "--no-check"} <= set(words(capsys, "train", "dpo"))
    assert words(capsys, "train", "dpo", "--dtype") == ["auto", "float32", "bfloat16", "float64"]
    # Nothing of our own: the shell offers files.
    assert words(capsys, "train", "dpo", "--data") == []
    assert "policy" in words(capsys, "eval")
    assert "--judge" in words(capsys, "eval", "policy", "base")


def test_bash_completes(tmp_path: Path):
    command = tmp_path / "plaudit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m plaudit "$@"\n')
    command.chmod(0o755)
    script = (
        "source <(plaudit completion bash); COMP_WORDS=(plaudit train dpo --lora.r); COMP_CWORD=3; _plaudit; "
        'echo "${COMPREPLY[@]}"'
    )
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "--lora.rank", done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_what_the_shells_read(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    assert main(["completion", shell]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    subprocess.run([shell, "-n", path], check=True)


def test_without_a_shell_the_shells_are_named(capsys):
    assert main(["completion"]) == 2
    assert "required: shell\n" in capsys.readouterr().err
    assert main(["completion", "tcsh"]) == 2
    assert "choose from bash, zsh, fish" in capsys.readouterr().err
