"""The public index of pipelines: what authors of stages need."""

from plaudit.runs.pipeline.kinds import (
    ResultType as ResultType,
    StageKind as StageKind,
    StageResult as StageResult,
    command_line as command_line,
    options_of as options_of,
)
from plaudit.runs.pipeline.spec import Stage as Stage
from plaudit.runs.pipeline.status import PipelineContext as PipelineContext
from plaudit.runs.pipeline.store import PipelineFolder as PipelineFolder
from plaudit.runs.report.pipeline.attacks import attack_sentences as attack_sentences
