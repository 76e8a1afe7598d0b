"""The first run that docs/from-trl.md shows, as it stands there, with a small hub that has what it names."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.engine.toy import make_toy
from tests.house.docs_commands import blocks_of
from tests.hub.served import Hub, environment, files_of, serving_hub
from tests.methods.reward_model.rows import judged

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-trl.md"
SECTION = PAGE.read_text("utf-8").partition("## A first run\n")[2].partition("\n## ")[0]
SHELL, PYTHON = (block.text for block in blocks_of(SECTION)[:2])


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    rows = "".join(json.dumps(row) + "\n" for row in judged("comparisons", 24)).encode()
    (model,) = set(re.findall(r"Qwen/[\w.-]+", SECTION))
    (data,) = set(re.findall(r"trl-lib/\w+", SECTION))
    with serving_hub() as served:
        served.put(model, files_of(make_toy(tmp_path / "toy").model))
        served.put(data, {"data/train-0.jsonl": rows, "data/test-0.jsonl": rows}, kind="dataset")
        yield served


def told(hub: Hub, folder: Path, *command: str) -> str:
    (folder / "here").mkdir()
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own: Mapping[str, str] = {"PATH": programs, "HF_TOKEN": hub.token, "CUDA_VISIBLE_DEVICES": ""}
    env = os.environ | environment(hub, folder) | own
    done = subprocess.run(
        command, cwd=folder / "here", env=env, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_lines_of_shell_lead_from_the_hub_to_the_hub(hub, tmp_path):
    install, *lines = SHELL.splitlines()
    assert (install, len(lines)) == ("pip install ./plaudit", 4)  # tests/house/test_wheel.py installs it.
    told(hub, tmp_path, "bash", "-ec", "\n".join(lines))
    assert (tmp_path / "here" / "runs" / "dpo" / "model" / "model.safetensors").is_file()
    assert {"README.md", "model.safetensors", "config.json"} <= set(hub.files("you/first-dpo"))


def test_ten_lines_of_python_train_a_model_of_the_hub_and_talk_to_it(hub, tmp_path):
    assert len(PYTHON.splitlines()) == 10
    printed = told(hub, tmp_path, sys.executable, "-c", PYTHON)
    assert re.search(r"^step +loss +accuracy\n1 +0\.693", printed, re.M), printed
    lineage = json.loads((tmp_path / "here" / "runs" / "dpo" / "lineage.json").read_text("utf-8"))
    assert len(lineage["hub"]) == 2
