"""The alignment tax: what a model was able to do before it was trained further, and no longer is.

The same items are asked before and after, so the difference is taken item by item, and a test that flips
signs by prompt says whether it could be chance (Ouyang et al. 2022, arXiv:2203.02155, call what is lost a
tax). Tasks of lm-evaluation-harness, by name, need ``pip install "plaudit[tax]"``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from plaudit.config import did_you_mean
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import EvaluationPrompt, LoadedPolicy
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean, holm, wilson_interval
from plaudit.rewards.base import Reward
from plaudit.rollouts.sampler import SamplingSettings

ItemKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem:
    task: str
    name: str
    prompt: str
    score: float | None
    """More is better; None for no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    task: str
    before: Estimate
    after: Estimate
    change: Estimate
    gained: int
    lost: int
    unscored: int
    """Items without a verdict before or after; they count nowhere else."""
    p_value: float
    """Of the paired test that nothing changed, by Holm's rule for all tasks together."""

    def retained(self, most_lost: int | float) -> bool:
        """Whether no more than ``most_lost`` is surely gone; False also where there were too few items."""
        return self.change.low is not None and self.change.low >= -most_lost


def paired_changes(
    before: Sequence[TaskItem], after: Sequence[TaskItem], resampling: Resampling
) -> tuple[TaskChange, ...]:
    """The change of every task, in the order of ``before``; both have to hold the same items.

    >>> def said(*scores):
    ...     return [TaskItem(task="sums", name=f"{n}", prompt=f"{n}", score=s) for n, s in enumerate(scores)]
    >>> [found] = paired_changes(said(1.0, 1.0, 0.0, 1.0), said(1.0, 0.0, 0.0, 0.0), Resampling())
    >>> found.change.value, found.lost, found.gained, found.p_value
    (-0.5, 2, 0, 0.5)
    """
    before_items, after_items = _items_by_key(before), _items_by_key(after)
    if unmatched := [
        key for key in (*before_items, *after_items) if key not in before_items or key not in after_items
    ]:
        task, name = unmatched[0]
        raise UserError(
            f"{task}: {name[:60]!r} was asked only "
            f"{'before' if unmatched[0] in before_items else 'after'}; ask both models the same items"
        )
    tasks = list(dict.fromkeys(item.task for item in before))
    changes = [_task_change(task, before_items, after_items, resampling) for task in tasks]
    corrected = holm([change.p_value for change in changes])
    return tuple(replace(change, p_value=p) for change, p in zip(changes, corrected, strict=True))


def items_from_prompts(
    task: str,
    policy: LoadedPolicy,
    prompts: Sequence[EvaluationPrompt],
    reward: Reward,
    *,
    max_tokens: int = 64,
) -> tuple[TaskItem, ...]:
    """Items of a task: the greedy answer to every prompt, scored by a rule or any other reward."""
    settings = SamplingSettings(temperature=0, max_tokens=max_tokens)
    questions = [policy.question(prompt.prompt) for prompt in prompts]
    answers = policy.sampler.generate_answers(questions, policy.sampling(settings))
    tasks = [
        prompt.task([(answer.text, answer.ended)]) for prompt, (answer,) in zip(prompts, answers, strict=True)
    ]
    return tuple(
        TaskItem(task=task, name=plain_text(prompt.prompt), prompt=plain_text(prompt.prompt), score=score)
        for prompt, (score,) in zip(prompts, reward.scores(tasks), strict=True)
    )


def _items_by_key(items: Sequence[TaskItem]) -> dict[ItemKey, TaskItem]:
    items_by_key: dict[ItemKey, TaskItem] = {}
    for item in items:
        if (item.task, item.name) in items_by_key:
            raise UserError(f"{item.task}: {item.name[:60]!r} is there twice; name every item differently")
        items_by_key[item.task, item.name] = item
    return items_by_key


def _task_change(
    task: str, first: Mapping[ItemKey, TaskItem], second: Mapping[ItemKey, TaskItem], resampling: Resampling
) -> TaskChange:
    rows = [(item.prompt, item.score, second[key].score) for key, item in first.items() if key[0] == task]
    scored = [(prompt, row, other) for prompt, row, other in rows if row is not None and other is not None]
    if not scored:
        raise UserError(f"{task}: no item has a verdict both before and after, so nothing can be compared")
    prompt_B = group_index([prompt for prompt, _, _ in scored])
    before_B = np.array([score for _, score, _ in scored], dtype=float)
    after_B = np.array([other for _, _, other in scored], dtype=float)
    # Wilson's ends suit a share; a reward on another scale is not held between 0 and 1.
    share = all(0 <= score <= 1 for _, this_score, other in scored for score in (this_score, other))
    return TaskChange(
        task=task,
        before=bootstrap_mean(before_B, prompt_B, resampling, share=share),
        after=bootstrap_mean(after_B, prompt_B, resampling, share=share),
        change=_mean_change(before_B, after_B, prompt_B, resampling),
        gained=int((after_B > before_B).sum()),
        lost=int((after_B < before_B).sum()),
        unscored=len(rows) - len(scored),
        p_value=sign_flip_test(after_B - before_B, prompt_B),
    )


def _mean_change(
    before_B: Float[np.ndarray, " B"],
    after_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> Estimate:
    """The mean difference; Wilson's interval where all prompts changed alike, so that all draws agree."""
    change = bootstrap_mean(after_B - before_B, prompt_B, resampling, share=False)
    if change.low is None or change.high is None or change.high - change.low > 1e-12:
        return change
    # No draw varies. Wilson's end for 0 of P prompts says how many could still differ, in units of the range.
    score_range = float(max(before_B.max(), after_B.max()) - min(before_B.min(), after_B.min())) or 1.0
    width = score_range * wilson_interval(0.0, change.prompts)[1]
    low = max(-score_range, change.value - width)
    return replace(change, low=low, high=min(score_range, change.value + width))


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessTasks:
    tasks: tuple[str, ...]
    """By the names that lm-evaluation-harness gives them, or those of YAML files in ``folder``."""
    folder: Path | None = None
    """Where tasks of one's own lie; with it, none that come with lm-evaluation-harness are looked for."""
    limit: int | None = None
    shots: int | None = None
    """Worked examples before each item; None is what the task says."""
    chat: bool = False
    """Whether prompts are shown as a user's turn, by the model's own template."""
    batch: int = 8
    device: str = "cpu"


def run_harness(model: Path, harness: HarnessTasks) -> tuple[TaskItem, ...]:
    """How a model's folder does on every item, by the first metric that each task names.
    No code of a model is run, nor any that a task marks as unsafe."""
    if find_spec("lm_eval") is None:
        raise UserError('tasks by name need lm-evaluation-harness: pip install "plaudit[tax]"')
    from lm_eval import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

    include_path = None if harness.folder is None else str(harness.folder)
    manager = TaskManager(include_path=include_path, include_defaults=harness.folder is None)
    names = set(manager.all_tasks)
    if harness.folder is not None and not harness.folder.is_dir():
        raise UserError(f"{harness.folder}: there is no such folder; it is to hold the YAML files of tasks")
    for task in harness.tasks:
        if task not in names:
            where = "lm-evaluation-harness" if harness.folder is None else str(harness.folder)
            raise UserError(f"there is no task {task} in {where}{did_you_mean(task, names)}")
    results: Any = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(model), "trust_remote_code": False},
        tasks=list(harness.tasks),
        num_fewshot=harness.shots,
        batch_size=harness.batch,
        device=harness.device,
        limit=harness.limit,
        # Its own intervals are over items of one run; here the same items are paired before and after.
        bootstrap_iters=0,
        log_samples=True,
        apply_chat_template=harness.chat,
        task_manager=manager,
    )
    return tuple(
        item
        for task, samples in results["samples"].items()
        for item in items_from_samples(task, samples, results["higher_is_better"].get(task, {}))
    )


def items_from_samples(
    task: str, samples: Sequence[Mapping[str, Any]], higher_is_better: Mapping[str, bool | None]
) -> Iterable[TaskItem]:
    """A task's logged samples as items: its first metric and filter, turned round where less is better.

    >>> one = {"doc_id": 0, "doc_hash": "f3", "filter": "none", "metrics": ["acc"], "acc": 1.0}
    >>> [(item.name, item.score) for item in items_from_samples("sums", [one], {"acc": True})]
    [('0 f3', 1.0)]
    """
    if not samples:
        raise UserError(f"{task}: it has no items")
    # A task with several filters logs each item once for each of them.
    first_filter, metric = samples[0]["filter"], samples[0]["metrics"][0]
    for sample in samples:
        if sample["filter"] != first_filter:
            continue
        value = sample[metric]
        if not isinstance(value, int | float):
            raise UserError(f"{task}: its metric {metric} is no number for each item ({value!r:.60})")
        yield TaskItem(
            task=f"{task} ({metric})",
            # The hash too: over other data a number alone would pair two different items.
            name=f"{sample['doc_id']} {sample['doc_hash']}",
            prompt=str(sample["doc_hash"]),
            score=float(value) if higher_is_better.get(metric) is not False else -float(value),
        )
