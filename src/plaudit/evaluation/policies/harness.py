"""Tasks of lm-evaluation-harness by name, item by item: needs ``pip install "plaudit[tax]"``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.evaluation.policies.tax import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """Which tasks are asked, and how.

    Example: ``Harness(tasks=("arc_easy",), limit=200)``
    """

    tasks: tuple[str, ...]
    """By the names that lm-evaluation-harness gives them, or those of YAML files in ``folder``."""
    folder: Path | None = None
    """Where tasks of one's own lie; with it, none that come with lm-evaluation-harness are looked for."""
    limit: int | None = None
    """Items of a task, at most."""
    shots: int | None = None
    """Worked examples before each item; None is what the task says."""
    chat: bool = False
    """Whether prompts are shown as a user's turn, by the model's own template."""
    batch: int = 8
    """Items at once."""
    device: str = "cpu"
    """cpu or cuda."""


def harness_items(model: Path, harness: Harness) -> tuple[Item, ...]:
    """How a model's folder does on every item, by the first metric that each task names.

    No code of a model is run, nor any that a task marks as unsafe.
    """
    if find_spec("lm_eval") is None:
        raise UserError('tasks by name need lm-evaluation-harness: pip install "plaudit[tax]"')
    from lm_eval import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

    manager = TaskManager(
        include_path=None if harness.folder is None else str(harness.folder),
        include_defaults=harness.folder is None,
    )
    _check(harness, manager.all_tasks)
    found: Any = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(model), "trust_remote_code": False},
        tasks=list(harness.tasks),
        num_fewshot=harness.shots,
        batch_size=harness.batch,
        device=harness.device,
        limit=harness.limit,
        bootstrap_iters=0,
        log_samples=True,
        apply_chat_template=harness.chat,
        task_manager=manager,
    )
    return tuple(
        item
        for task, samples in found["samples"].items()
        for item in items_of(task, samples, found["higher_is_better"].get(task, {}))
    )


def items_of(
    task: str, samples: Sequence[Mapping[str, Any]], better: Mapping[str, bool | None]
) -> Iterable[Item]:
    """A task's logged samples as items: its first metric and filter, turned round where less is better.

    >>> one = {"doc_id": 0, "doc_hash": "f3", "filter": "none", "metrics": ["acc"], "acc": 1.0}
    >>> [(item.name, item.score) for item in items_of("sums", [one], {"acc": True})]
    [('0 f3', 1.0)]
    """
    if not samples:
        raise UserError(f"{task}: it has no items")
    first, metric = samples[0]["filter"], samples[0]["metrics"][0]
    for sample in samples:
        if sample["filter"] != first:
            continue
        value = sample[metric]
        if not isinstance(value, int | float):
            raise UserError(f"{task}: its metric {metric} is no number for each item ({value!r:.60})")
        yield Item(
            task=f"{task} ({metric})",
            name=f"{sample['doc_id']} {sample['doc_hash']}",
            prompt=str(sample["doc_hash"]),
            score=float(value) if better.get(metric) is not False else -float(value),
        )


def _check(harness: Harness, known: Iterable[str]) -> None:
    names = set(known)
    if harness.folder is not None and not harness.folder.is_dir():
        raise UserError(f"{harness.folder}: there is no such folder; it is to hold the YAML files of tasks")
    for task in harness.tasks:
        if task not in names:
            near = get_close_matches(task, names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            where = "lm-evaluation-harness" if harness.folder is None else str(harness.folder)
            raise UserError(f"there is no task {task} in {where}.{hint}")
