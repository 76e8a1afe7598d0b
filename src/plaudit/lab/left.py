"""What the stages of an exercise left, for those that look at it; whatever is not there is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.policies.files import FIGURES, read_results
from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.evaluation.result import RewardEvaluation
from plaudit.evaluation.revive import revived
from plaudit.pipeline.folder import Folder
from plaudit.reports.reading import JUDGED, read_json
from plaudit.training.page.history import Column, read_history
from plaudit.training.sinks.jsonl import METRICS


def evaluated(folder: Folder, stage: str) -> PolicyEvaluation:
    """What a stage with ``do: evaluate`` found."""
    return read_results(folder.stage(stage) / FIGURES)


def policy(found: PolicyEvaluation, name: str) -> PolicyFigures:
    """The figures of one policy."""
    known = {one.name: one for one in found.policies}
    if name not in known:
        raise UserError(f"the evaluation has no policy {name!r}; it has {', '.join(known)}")
    return known[name]


def judged(folder: Folder, stage: str) -> Mapping[str, RewardEvaluation]:
    """What a stage with ``do: judge-reward`` found, by the names of the rewards."""
    told = read_json(folder.stage(stage) / JUDGED)["evaluations"]
    return {one.model: one for one in (revived(RewardEvaluation, each) for each in told)}


def column(folder: Folder, stage: str, name: str) -> Column:
    """One figure of a training stage over its steps, such as ``reward`` or ``held_out/kl``."""
    path = _run(folder.stage(stage)) / METRICS
    columns = read_history(path).columns
    if name not in columns:
        raise UserError(f"{path}: it has no figure {name!r}; it has {', '.join(columns)}")
    return columns[name]


def _run(here: Path) -> Path:
    members = sorted((here / "run").glob("members/*"))
    return members[0] if members else here / "run"
