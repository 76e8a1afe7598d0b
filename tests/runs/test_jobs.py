"""The files by which a scheduler starts a run: what they say, and that a real scheduler runs them."""

import ast
import hashlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from benchmarks.kills import Site
from plaudit.cli.main import main
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from tests.engine.distributed.launch import ROOT, free_port
from tests.runs.slurm_cluster import Cluster, is_here, slurm

SCHEDULERS = {"slurm": "job.sbatch", "ray": "job.py", "kubernetes": "job.yaml", "skypilot": "job.yaml"}
SPREAD = ("--ranks", 2, "--servers", 2, "--nodes", 2)


def plan(folder: Path, scheduler: str, *more: object, rounds: int = 40, out: str = "run") -> int:
    Site(folder=folder, ports=[]).write()
    words = ["plan", "grpo", "--model", SHIPPED_MODEL_FOLDER, "--prompts", folder / "prompts.jsonl"]
    words += ["--reward", f"{folder}/short.py:short", "--out", folder / out, "--rounds", rounds]
    words += ["--batch-size", 4, "--group-size", 4, "--draw.max-tokens", 16, "--learning-rate", 1e-4]
    words += ["--save-every", 1, "--device", "cpu", "--no-check", "--no-measure", "--for", scheduler]
    return main([*map(str, [*words, *more])])


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("gpu", [False, True])
def test_a_job_is_shown_and_written(tmp_path, scheduler, gpu, capsys):
    spread = ("--gpu", "h100", "--gpus", 16, "--servers", 8, "--nodes", 2) if gpu else SPREAD
    assert plan(tmp_path, scheduler, *spread, "--write", tmp_path / "jobs") == 0
    shown = capsys.readouterr().out
    text = (tmp_path / "jobs" / SCHEDULERS[scheduler]).read_text()
    assert text in shown
    assert "{{" not in text
    assert ("vllm" in text) == gpu
    settings = yaml.safe_load((tmp_path / "jobs/train.yaml").read_text())
    assert settings["group_size"] == 4
    assert "kl_coef" not in settings
    if scheduler == "slurm":
        assert subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0
        assert "#SBATCH hetjob" in text
        # Where it was planned, relative paths mean what they meant.
        assert f"#SBATCH --chdir={Path.cwd()}\n" in text
        assert f"--config {tmp_path}/jobs/train.yaml" in text
    elif scheduler == "ray":
        ast.parse(text)
        assert len(text.splitlines()) < 100
    else:
        assert len(list(yaml.safe_load_all(text))) == {"kubernetes": 4, "skypilot": 3}[scheduler]
    # As it stands there it may have been changed by hand.
    (tmp_path / "jobs" / SCHEDULERS[scheduler]).write_text("mine")
    assert plan(tmp_path, scheduler, *spread, "--write", tmp_path / "jobs") == 2
    assert "is there already, and another one" in capsys.readouterr().err


def test_what_draws_nothing_has_no_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n' * 8)
    words = ["plan", "sft", "--model", SHIPPED_MODEL_FOLDER, "--data", rows, "--no-measure", "--for", "slurm"]
    assert main([*map(str, [*words, "--ranks", 4, "--nodes", 2, "--out", tmp_path / "run"])]) == 0
    said = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n" in said
    assert "serve" not in said
    assert main([*map(str, [*words, "--servers", 2, "--out", tmp_path / "run"])]) == 2
    assert "draws no answers" in capsys.readouterr().err
    assert main([*map(str, [*words, "--ranks", 3, "--nodes", 2, "--out", tmp_path / "run"])]) == 2
    assert "cannot be spread evenly over 2 machines" in capsys.readouterr().err
    assert main([*map(str, words)]) == 2
    assert "say where it is kept (--out)" in capsys.readouterr().err
    assert plan(tmp_path, "slurm", "--gpu", "h100", "--gpus", 4, "--servers", 4) == 2
    assert "--servers 4 of --gpus 4: none is left that learns" in capsys.readouterr().err
    assert main([*map(str, words[:-2]), "--write", str(tmp_path)]) == 2
    assert "say for which scheduler (--for)" in capsys.readouterr().err


RAY, VALIDATORS = (ROOT / f".peers/{name}/bin/python" for name in ("ray", "jobs"))
VALIDATE = {
    "kubernetes": """
import sys, yaml, kubernetes_validate
for document in yaml.safe_load_all(open(sys.argv[1])):
    kubernetes_validate.validate(document, "1.34", strict=True)
""",
    "skypilot": """
import sys, yaml, jsonschema
from sky.utils import schemas
header, *tasks = yaml.safe_load_all(open(sys.argv[1]))
assert set(header) == {"name", "execution", "primary_tasks"}
for task in tasks:
    jsonschema.validate(task, schemas.get_task_schema())
""",
}


@pytest.mark.peer(VALIDATORS)
@pytest.mark.parametrize("scheduler", VALIDATE)
@pytest.mark.parametrize("gpu", [False, True])
def test_kubernetes_and_skypilot_know_what_is_written(tmp_path: Path, scheduler: str, gpu: bool):
    spread = ("--gpu", "h100", "--gpus", 16, "--servers", 8, "--nodes", 2) if gpu else SPREAD
    assert plan(tmp_path, scheduler, *spread, "--write", tmp_path) == 0
    subprocess.run([VALIDATORS, "-c", VALIDATE[scheduler], tmp_path / "job.yaml"], check=True)


@pytest.mark.peer(RAY)
@pytest.mark.timeout(600)
def test_ray_starts_a_killed_rank_again_and_the_bits_stay(tmp_path: Path):
    bin = RAY.parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{bin}:{os.environ['PATH']}"}
    environment |= {"RAY_ADDRESS": "auto", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    start = ["--head", "--num-cpus", "8", "--port", str(free_port()), "--temp-dir", str(tmp_path / "ray")]
    subprocess.run([bin / "ray", "start", *start], env=environment, check=True, capture_output=True)
    try:
        for out in ("through", "killed"):
            spread = ("--ranks", 2, "--servers", 2, "--write", tmp_path / f"job-{out}")
            assert plan(tmp_path, "ray", *spread, rounds=20, out=out) == 0
            with (tmp_path / f"{out}.log").open("wb") as log:
                words = [RAY, tmp_path / f"job-{out}/job.py"]
                job = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
            if out == "killed":
                while steps(tmp_path / out) < 5:
                    assert job.poll() is None
                    time.sleep(0.1)
                os.kill(
                    processes(f"plaudit train grpo --config train.yaml.*{out}-weights")[0], signal.SIGKILL
                )
            assert job.wait() == 0
    finally:
        subprocess.run([bin / "ray", "stop", "--force"], env=environment, check=True, capture_output=True)
    assert "[FailurePolicy] RETRY" in (tmp_path / "killed.log").read_text()
    assert weights(tmp_path / "killed") == weights(tmp_path / "through")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not is_here():
        pytest.skip("needs Slurm: apt-get install slurm-wlm munge")
    with slurm(tmp_path / "slurm") as here:
        yield here


def started(
    cluster: Cluster, folder: Path, out: str, rounds: int, machines: int = 2, settings: str = ""
) -> str:
    """The number of a job that was planned and given to Slurm."""
    spread = ("--ranks", 2, "--servers", 2, "--nodes", machines)
    assert plan(folder, "slurm", *spread, "--write", folder / f"job-{out}", rounds=rounds, out=out) == 0
    with (folder / f"job-{out}/train.yaml").open("a") as file:
        file.write(settings)
    return cluster.call("sbatch", "--parsable", "job.sbatch", cwd=folder / f"job-{out}")


def steps(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def wait(cluster: Cluster, job: str, folder: Path, until: int) -> None:
    deadline = time.monotonic() + 300
    while steps(folder) < until and (state := cluster.state(job)) != "COMPLETED":
        assert state != "FAILED"
        assert time.monotonic() < deadline, cluster.call("scontrol", "show", "job", job)
        cluster.hurry(job)
        time.sleep(0.2)


def processes(*words: str) -> list[int]:
    listed = subprocess.run(["pgrep", "-f", " ".join(words)], capture_output=True, text=True, check=False)
    return [int(number) for number in listed.stdout.split()]


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model/model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_slurm_requeues_and_kills_leave_the_same_bits(cluster: Cluster, tmp_path: Path):
    """A machine that learns and one that draws; requeues, killed ranks, killed servers, ten in all."""
    rounds, generator = 60, random.Random(0)
    wait(cluster, started(cluster, tmp_path, "through", rounds), tmp_path / "through", 10**9)
    job = started(cluster, tmp_path, "disturbed", rounds)
    done: list[str] = []
    for number in range(10):
        before = steps(tmp_path / "disturbed")
        wait(cluster, job, tmp_path / "disturbed", before + generator.randint(1, 4))
        if cluster.state(job) == "COMPLETED":
            break
        done.append(("requeue", "rank", "server")[number % 3])
        if done[-1] == "requeue":
            cluster.call("scontrol", "requeue", job)
            continue
        words = "plaudit serve" if done[-1] == "server" else "plaudit train grpo"
        if found := processes(words):
            with suppress(ProcessLookupError):
                os.kill(generator.choice(found), signal.SIGKILL)
    wait(cluster, job, tmp_path / "disturbed", 10**9)
    assert len(done) == 10
    assert weights(tmp_path / "disturbed") == weights(tmp_path / "through")


FAULTS = {
    "a reward that is none": ("", r"plaudit: (rank \d of 2: )?.*short"),
    # An exception that nobody turned into a sentence.
    "an error of the program": (
        "optimizer:\n  name: tests.engine.distributed.user_optimizers:raising\n",
        "plaudit: an error of the program, .*: .*ArithmeticError: the moon is in the wrong phase",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_last_line_and_is_not_tried_again(cluster, tmp_path, fault, monkeypatch):
    settings, said = FAULTS[fault]
    monkeypatch.setenv("TOY_STOP", "1:3")
    monkeypatch.chdir(tmp_path)
    # On one machine, side by side; by paths that are relative to where it is planned.
    job = started(cluster, Path(), "faulty", 10, machines=1, settings=settings)
    if not settings:
        (tmp_path / "short.py").write_text("def short(prompt, answer):\n    return 'much'\n")
    deadline = time.monotonic() + 200
    while cluster.state(job) != "FAILED":
        assert time.monotonic() < deadline, cluster.call("scontrol", "show", "job", job)
        time.sleep(0.2)
    [log] = (tmp_path / "job-faulty").glob(f"*-{job}.log")
    last = log.read_text().splitlines()[-1]
    assert re.match(said, last), last
