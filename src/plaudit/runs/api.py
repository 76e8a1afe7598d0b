"""Pipelines from Python: ``plaudit.run``, and what it left."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.config import did_you_mean
from plaudit.errors import UserError
from plaudit.given import plain_setting
from plaudit.results import TrainingResult, existing_folder

if TYPE_CHECKING:
    from plaudit.evaluation.policies.result import PolicyEvaluation
    from plaudit.runs.report.pipeline.data import PipelineData


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a pipeline left in its folder.

    Example: ``plaudit.run("pipeline.yaml", out="runs/mine").training("dpo").metrics``
    """

    folder: Path
    """The pipeline's folder; ``plaudit.PipelineResult(Path("runs/mine"))`` opens one that was run before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", existing_folder(self.folder))

    @property
    def report(self) -> Path:
        """The page with all stages, curves and comparisons."""
        return self.folder / "report.html"

    @property
    def evaluation(self) -> PolicyEvaluation | None:
        """How its policies compare; None where no stage evaluates them."""
        return self._data.evaluation

    def training(self, stage: str) -> TrainingResult:
        """What a stage trained: its metrics, its summary, its model."""
        stages = {found.name: found for found in self._data.stages}
        if stage not in stages:
            raise UserError(f"{self.folder}: there is no stage {stage!r}{did_you_mean(stage, stages)}")
        folder = stages[stage].folder / "run"
        if not (folder / "metrics.jsonl").exists():
            raise UserError(f"{self.folder}: stage {stage} trains nothing, or has not run")
        return TrainingResult(folder)

    @property
    def _data(self) -> PipelineData:
        from plaudit.runs.report.pipeline.data import read_pipeline_folder

        return read_pipeline_folder(self.folder)


def run(
    config: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    fresh: bool = False,
    seed: int | None = None,
    device: str | None = None,
    jobs: int | None = None,
) -> PipelineResult:
    """Run a pipeline, from rows to a report; a stage that is finished is kept.

    ``plaudit.run("pipeline.yaml", settings={"dpo.beta": 0.2}, only=["dpo"])``. Without a config it is the
    embedded world's own; ``"constitutional"`` is another that comes with plaudit.
    """
    # Only now: importing plaudit waits for none of it.
    from plaudit.runs.pipeline.read import config_path, read_pipeline
    from plaudit.runs.pipeline.run import StageSelection, run_pipeline
    from plaudit.runs.pipeline.store import read_hub_names
    from plaudit.runs.report.pipeline.data import read_pipeline_folder
    from plaudit.runs.report.pipeline.page import write_report, write_summary

    changes = [f"{name}={json.dumps(plain_setting(value, name))}" for name, value in (settings or {}).items()]
    path = config_path(config)

    def recorded(name: str) -> dict[str, str]:
        return {} if fresh else read_hub_names(Path(out or Path("runs") / name))

    pipeline = read_pipeline(path, changes=changes, seed=seed, device=device, jobs=jobs, recorded=recorded)
    selection = StageSelection(only=tuple(only), fresh=fresh)
    folder = run_pipeline(pipeline, Path(out or Path("runs") / pipeline.name), selection).path
    ran = read_pipeline_folder(folder)
    write_summary(ran)
    write_report(folder, pipeline=ran)
    return PipelineResult(folder)
