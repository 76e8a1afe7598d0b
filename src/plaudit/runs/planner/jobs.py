"""The files with which a scheduler starts a run: processes that learn, and servers that draw their answers.

Each is a template of `starters`, filled with what was planned: read it, change what is marked, and start it.
"""

import json
import re
import shlex
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from plaudit.config import to_plain_data, to_yaml
from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import VLLM_WORDS, PolicyConfig

TEMPLATES = {
    "slurm": "slurm.sh",
    "ray": "ray.txt",
    "kubernetes": "kubernetes.yaml",
    "skypilot": "skypilot.yaml",
}
"""The schedulers that files are written for."""
WRITTEN = {"slurm": "job.sbatch", "ray": "job.py", "kubernetes": "job.yaml", "skypilot": "job.yaml"}
CONFIG = "train.yaml"
_TOKEN = "PLAUDIT_SERVER_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run on several machines.
    Example: ``Job(method="grpo", config=config, trainers=6, servers=2, machines=1, gpu="h100")``."""

    method: str
    config: RunConfig
    trainers: int
    servers: int
    machines: int
    gpu: str | None
    """The GPU that each of them has; none: they compute on CPUs."""
    folder: Path | None = None

    def files(self, scheduler: str) -> dict[str, str]:
        """Names and texts: how the scheduler starts it, and the settings that it reads."""
        template = Path(__file__).parent / "starters" / TEMPLATES[scheduler]
        name = WRITTEN[scheduler]
        text = fill(template.read_text("utf-8"), self._values(name, scheduler))
        return {name: text, CONFIG: to_yaml(_given(self.config))}

    def _values(self, file: str, scheduler: str) -> dict[str, object]:
        name = re.sub(r"[^a-z0-9]+", "-", self.config.out.name.lower()).strip("-")[:40] or "run"
        learn = f"{self.trainers} processes learn"
        draw = f", {self.servers} servers draw their answers" if self.servers else ""
        host = f"server-{{}}.{name}" if scheduler == "skypilot" else f"{name}-server-{{}}.{name}"
        is_gpu = self.gpu is not None
        install = "pip install vllm && pip install --no-deps plaudit" if is_gpu else "pip install plaudit"
        return {
            "purpose": f"plaudit train {self.method}: {learn}{draw}.",
            "file": file,
            "name": name,
            # A job runs where it was planned: there its relative paths mean what they meant.
            "here": shlex.quote(str(Path.cwd())),
            "here_text": json.dumps(str(Path.cwd())),
            "logs": self._path_of("", scheduler),
            "gpus": is_gpu,
            "gpu_name": (self.gpu or "").upper(),
            "use_gpu": is_gpu,
            "backend": "nccl" if is_gpu else "gloo",
            "servers": self.servers > 0,
            "server_urls": ",".join(f"http://{host.format(n)}:8000" for n in range(self.servers)),
            "server_image": "vllm-plaudit:latest" if is_gpu else "plaudit:latest",
            "server_setup": install,
            "server_resources": "num_gpus=1" if is_gpu else "num_cpus=1",
            "folder": shlex.quote(str(self.config.out.with_name(f"{self.config.out.name}-weights"))),
            "storage": str(self.config.out.resolve().parent / "ray"),
            **self._places(),
            **self._commands(scheduler),
        }

    def _places(self) -> dict[str, object]:
        (trainer_nodes, trainers), (server_nodes, servers) = spread(
            self.trainers, self.servers, self.machines
        )
        together = self.servers > 0 and trainer_nodes == server_nodes == self.machines
        steps = [f" --het-group={group}" if self.servers else "" for group in (0, 1)]
        if together:
            # Side by side on the same machines: each takes its part of them alone.
            gpus = " --gpus-per-node={0}" if self.gpu else ""
            step = f" --nodes={trainer_nodes} --ntasks={{1}} --ntasks-per-node={{0}}{gpus} --exact --mem=0"
            steps = [step.format(count, count * trainer_nodes) for count in (trainers, servers)]
        return {
            "trainers": self.trainers,
            "trainer_nodes": trainer_nodes,
            "trainers_a_node": trainers,
            "trainer_step": steps[0],
            "server_count": self.servers,
            "server_nodes": server_nodes,
            "servers_a_node": servers,
            "server_step": steps[1],
            "server_places": " ".join(map(str, range(servers))),
            "a_node": trainers + servers,
            "together": together,
            "apart": not together,
            "node_list": "SLURM_JOB_NODELIST" if together else "SLURM_JOB_NODELIST_HET_GROUP_1",
        }

    def _path_of(self, name: str, scheduler: str) -> str:
        # A file beside the job; Kubernetes and SkyPilot see it on their own disk alone.
        if self.folder is None or scheduler in ("kubernetes", "skypilot"):
            return name
        return f"{self.folder.resolve()}/{name}"

    def _commands(self, scheduler: str) -> dict[str, object]:
        divided = self.servers > 0 and self.trainers > 1 and not self.config.shard
        config = self._path_of(CONFIG, scheduler)
        train = ["train", self.method, "--config", config, *(["--shard"] if divided else [])]
        values: dict[str, object] = {"train": shlex.join(["plaudit", *train])}
        for name, words in {"train": train, "serve": self._serve()}.items():
            values[f"{name}_words"] = json.dumps(words)
            values[f"{name}_lines"] = "\n".join(f"            - {json.dumps(word)}" for word in words)
        return values | {"serve": shlex.join(self._serve())}

    def _serve(self) -> list[str]:
        if not self.servers:
            return []
        assert isinstance(self.config, PolicyConfig)
        model = str(self.config.model)
        if self.gpu is None:
            return ["plaudit", "serve", "--model", model, "--device", "cpu", "--token-from", _TOKEN]
        settings = self.config.server
        python = "python" if settings.python is None else str(settings.python)
        return [
            python,
            *VLLM_WORDS,
            "--model",
            model,
            "--dtype",
            "bfloat16",
            *shlex.split(settings.arguments),
        ]


def _given(config: Any) -> dict[str, Any]:
    # The settings that are not what they are by default.
    given: dict[str, Any] = {}
    for field in (field for field in fields(config) if field.init):
        value = getattr(config, field.name)
        factory = field.default_factory
        if value != (field.default if factory is MISSING else factory()):
            given[field.name] = _given(value) if is_dataclass(value) else to_plain_data(value)
    return given


def spread(trainers: int, servers: int, machines: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """On how many machines they are, and how many on each: trainers first, then servers.
    Whole machines learn or draw where that is possible: those that learn have most to say to each other.

    >>> spread(16, 8, 3), spread(12, 4, 2), spread(6, 2, 1), spread(8, 0, 2)
    (((2, 8), (1, 8)), ((2, 6), (2, 2)), ((1, 6), (1, 2)), ((2, 4), (0, 0)))
    """
    a_machine, rest = divmod(trainers + servers, machines)
    if a_machine and not rest and not trainers % a_machine:
        return (trainers // a_machine, a_machine), (servers // a_machine, a_machine if servers else 0)
    if not trainers % machines and not servers % machines:
        return (machines, trainers // machines), (machines, servers // machines)
    raise UserError(
        f"{trainers} processes that learn and {servers} servers cannot be spread evenly over {machines} "
        "machines: each has to have as many of both, or those of one kind have to fill whole machines"
    )


def fill(template: str, values: dict[str, object]) -> str:
    """A template with its values, and those of its sections whose value is true.

    >>> text = "a {{b}}\\n{{#c}}\\nd\\n{{/c}}\\n{{#e}}\\nf\\n{{/e}}\\n"
    >>> print(fill(text, {"b": 1, "c": True, "e": False}), end="")
    a 1
    d
    """
    section = re.compile(r"^\{\{#(\w+)\}\}\n((?:(?!^\{\{#).)*?)^\{\{/\1\}\}\n", re.DOTALL | re.MULTILINE)
    # The innermost ones first.
    while section.search(template):
        template = section.sub(lambda match: match[2] if values[match[1]] else "", template)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: str(values[match[1]]), template)
