"""The public index of pipelines: what authors of stages need, and what runs them and writes their pages."""

from plaudit.runs.pipeline.kinds import (
    ResultType as ResultType,
    StageKind as StageKind,
    StageResult as StageResult,
    command_line as command_line,
    options_of as options_of,
)
from plaudit.runs.pipeline.read import read_pipeline as read_pipeline
from plaudit.runs.pipeline.run import (
    StageSelection as StageSelection,
    StoppedError as StoppedError,
    run_pipeline as run_pipeline,
)
from plaudit.runs.pipeline.spec import Pipeline as Pipeline, Stage as Stage
from plaudit.runs.pipeline.status import PipelineContext as PipelineContext
from plaudit.runs.pipeline.store import PipelineFolder as PipelineFolder
from plaudit.runs.report.pipeline.attacks import attack_sentences as attack_sentences
from plaudit.runs.report.pipeline.page import write_report as write_report
from plaudit.runs.report.reward_models.page import write_reward_evaluations as write_reward_evaluations
