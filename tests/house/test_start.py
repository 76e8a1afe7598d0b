"""The command and the package start at once: no torch before it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "tokenizers", "datasets", "numpy", "yaml", "rich")
QUIETLY = "import contextlib\nfrom plaudit.cli.main import main\nwith contextlib.suppress(SystemExit): "
PLAUDIT = str(Path(sys.executable).parent / "plaudit")


LIBRARY = (sys.executable, "-c", "import argparse, asyncio, dataclasses, importlib.metadata, json, typing")


def seconds(*command: str) -> float:
    """The least computing of five starts, since a shared machine only ever makes a start slower."""
    taken: list[float] = []
    for _ in range(5):
        before = sum(os.times()[2:4])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(sum(os.times()[2:4]) - before)
    return min(taken)


@pytest.mark.parametrize(
    ("command", "limit"),
    [((sys.executable, "-c", "import plaudit"), 1), ((PLAUDIT, "--help"), 2)],
    ids=["import plaudit", "plaudit --help"],
)
def test_the_start_is_quick(command, limit):
    assert seconds(*command) < limit * seconds(*LIBRARY)


@pytest.mark.parametrize(
    "statement",
    [
        "import plaudit",
        "import plaudit; plaudit.Comparison; plaudit.read_records",
        "import plaudit.cli.main",
        QUIETLY + "main(['--help'])",
        QUIETLY + "main(['data', 'inspect', '--help'])",
        QUIETLY + "main(['train', 'dpo', '--help'])",
    ],
)
def test_nothing_heavy_is_imported(statement):
    script = f"{statement}\nimport sys\nprint([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "modules",
    [
        "plaudit.methods.registry, plaudit.methods.policy.algorithms, plaudit.runs.pipeline.spec",
        "plaudit.evaluation.policies.result, plaudit.runs.planner",
        "plaudit.cli.train, plaudit.methods.iterative.config, plaudit.rollouts.sampler, plaudit.cli.data",
    ],
)
def test_what_only_lists_and_reads_needs_no_torch(modules):
    script = f"import {modules}\nimport sys\nprint([n for n in {HEAVY[:2]} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
