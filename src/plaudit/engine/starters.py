"""What started several processes, told as torchrun tells it: RANK, WORLD_SIZE, MASTER_ADDR and their like.

torchrun, accelerate, Ray and Kubeflow set these themselves. Slurm's ``srun`` and the starters of MPI have
names of their own for the same facts, and of the address at most the list of nodes.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from plaudit.errors import UserError

# Where the processes of a job meet if nothing names a port.
FIRST_PORT, PORTS = 20_000, 10_000


class Starter(NamedTuple):
    """Under which names a starter tells what torchrun tells."""

    name: str
    size: str
    rank: str
    local_rank: str
    local_size: str
    # What all processes of a job have in common, and no other job has.
    jobs: tuple[str, ...]
    nodes: str = ""


STARTERS = (
    Starter(
        *("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
        jobs=("SLURM_JOB_ID", "SLURM_STEP_ID"),
        nodes="SLURM_STEP_NODELIST",
    ),
    Starter(
        "mpirun",
        *(f"OMPI_COMM_WORLD_{fact}" for fact in ("SIZE", "RANK", "LOCAL_RANK", "LOCAL_SIZE")),
        jobs=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Starter(
        *("mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), jobs=("HYDI_CONTROL_FD",)
    ),
)


# One of them is there where another starter than torchrun has started this process.
STARTED = frozenset({"ACCELERATE_MIXED_PRECISION", *(starter.size for starter in STARTERS)})


def join_starter(environment: Mapping[str, str]) -> dict[str, str]:
    """What torchrun would have set for a process that another starter has started; else nothing.

    >>> facts = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7"}
    >>> joined = join_starter({**facts, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "gpu[07-08]"})
    >>> joined["RANK"], joined["WORLD_SIZE"], joined["LOCAL_RANK"], joined["MASTER_ADDR"]
    ('2', '4', '0', 'gpu07')
    """
    if "WORLD_SIZE" in environment:
        return {}
    if "MASTER_ADDR" in environment and "ACCELERATE_MIXED_PRECISION" in environment:
        raise UserError(
            "accelerate launch, asked for several processes on CPUs, started one, which would train the "
            "whole run alone: torchrun --nproc-per-node N -m plaudit … starts them (WORLD_SIZE=1 in the "
            "environment says that this is a run by itself)"
        )
    starter = next((each for each in STARTERS if int(environment.get(each.size, "1")) > 1), None)
    if starter is None:
        return {}
    missing = [name for name in (starter.rank, starter.local_rank) if name not in environment]
    if missing:
        raise UserError(
            f"{starter.name} started {environment[starter.size]} processes, and does not say which one this "
            f"is ({missing[0]}): torchrun --nproc-per-node N -m plaudit … starts a run of several processes"
        )
    joined = {
        "RANK": environment[starter.rank],
        "WORLD_SIZE": environment[starter.size],
        "LOCAL_RANK": environment[starter.local_rank],
        "MASTER_ADDR": environment.get("MASTER_ADDR") or _first_machine(starter, environment),
        "MASTER_PORT": environment.get("MASTER_PORT") or _port(starter, environment),
    }
    # Slurm tells of all machines, as 4(x2),3.
    here = re.match(r"\d+", environment.get(starter.local_size, ""))
    return joined | ({} if here is None else {"LOCAL_WORLD_SIZE": here[0]})


def _first_machine(starter: Starter, environment: Mapping[str, str]) -> str:
    if starter.nodes:
        return first_node(environment[starter.nodes])
    if environment.get(starter.local_size) == environment[starter.size]:
        return "127.0.0.1"
    raise UserError(
        f"{starter.name} started {environment[starter.size]} processes on several machines: name the first "
        "one in the environment of all (MASTER_ADDR)"
    )


def first_node(nodes: str) -> str:
    """The first name of a list as Slurm writes it.

    >>> first_node("a,b"), first_node("gpu[07-09,12]-ib,cpu1"), first_node("rack[1,3]")
    ('a', 'gpu07-ib', 'rack1')
    """
    [(before, inside, after), *_] = re.findall(r"([^\[,]*)(?:\[([^\]]*)\])?([^,]*)", nodes)
    return before + re.split("[-,]", inside)[0] + after


def _port(starter: Starter, environment: Mapping[str, str]) -> str:
    words = [environment[name] for name in starter.jobs if name in environment]
    # Without a name of the job the starter's own process is what they have in common, on one machine.
    digest = blake2b("/".join(words or [str(os.getppid())]).encode(), digest_size=4)
    return str(FIRST_PORT + int.from_bytes(digest.digest()) % PORTS)


def is_last_try_of_torchrun() -> bool:
    """Whether torchrun ends when this process fails, and does not start it again."""
    tries = [os.environ.get(f"TORCHELASTIC_{name}") for name in ("RESTART_COUNT", "MAX_RESTARTS")]
    return tries[0] is not None and tries[0] == tries[1]


_LAST_WORDS = """
has_ended() {
  kill -0 "$1" 2>/dev/null || return 0
  # Nobody has asked yet how it ended; whoever would may wait for us.
  [ -r "/proc/$1/stat" ] && read -r line < "/proc/$1/stat" && case "${line##*) }" in Z*) return 0 ;; esac
  return 1
}
until has_ended "$1"; do sleep 0.1; done
printf '%s\\n' "$2" >&2
"""


def say_after(process: int, sentence: str) -> None:
    """Say this once that process is gone, which has more to say itself: torchrun ends with a traceback."""
    command = ["sh", "-c", _LAST_WORDS, "sh", str(process), sentence]
    # In a session of its own: torchrun ends the processes of a rank's.
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
