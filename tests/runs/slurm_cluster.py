"""A Slurm of two nodes on this machine while a block lasts: Debian's ``slurm-wlm`` and ``munge``."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.distributed.launch import ROOT, free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
NODES = ("127.0.0.1", "127.0.0.2")
"""Their names are addresses, so that processes find each other and none needs a name server."""
SETTINGS = """
ClusterName=two
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
KillWait=2
SlurmctldPort={port}
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        more = {"SLURM_CONF": str(self.folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **more, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}

    def call(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """One word, as RUNNING or COMPLETED."""
        facts = dict(word.partition("=")[::2] for word in self.call("scontrol", "show", "job", job).split())
        return facts["JobState"]

    def hurry(self, job: str) -> None:
        """Start a job that was requeued: Slurm would leave it two minutes."""
        if self.state(job) == "PENDING":
            words = ("scontrol", "update", f"JobId={job}", "StartTime=now")
            subprocess.run(words, env=self.environment, check=False, capture_output=True)


def is_here() -> bool:
    return os.geteuid() == 0 and all(shutil.which(program) for program in PROGRAMS)


@contextmanager
def slurm(folder: Path) -> Iterator[Cluster]:
    for name in ("state", *NODES):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    text = SETTINGS.format(folder=folder, port=free_port())
    for name in NODES:
        text += f"NodeName={name} NodeHostname=localhost NodeAddr={name} Port={free_port()} CPUs=8\n"
    (folder / "slurm.conf").write_text(
        f"{text}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    )
    cluster = Cluster(folder=folder)
    files = {"key-file": key, "socket": folder / "munge.sock", "pid-file": folder / "munge.pid"}
    files |= {"log-file": folder / "munge.log", "seed-file": folder / "munge.seed"}
    commands = [
        ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items())],
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", name] for name in NODES),
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(subprocess.Popen(command, env=cluster.environment, stderr=subprocess.DEVNULL))
            time.sleep(1)
        while "idle" not in cluster.call("sinfo", "--noheader", "--format=%T"):
            time.sleep(0.2)
        yield cluster
    finally:
        subprocess.run(["scancel", "--me"], env=cluster.environment, check=False)
        # Slurm's own processes of a job end it; without them it would go on.
        until = time.monotonic() + 20
        while cluster.call("squeue", "--noheader") and time.monotonic() < until:
            time.sleep(0.2)
        for process in reversed(started):
            process.terminate()
            process.wait()
