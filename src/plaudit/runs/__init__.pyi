"""The public index of pipelines: what authors need for stages, and for sections of the page about them."""

from plaudit.runs.pipeline.kinds import (
    PageSection as PageSection,
    ReportWarning as ReportWarning,
    ResultType as ResultType,
    StageFindings as StageFindings,
    StageKind as StageKind,
    StageResult as StageResult,
    command_line as command_line,
    options_of as options_of,
)
from plaudit.runs.pipeline.spec import Stage as Stage
from plaudit.runs.pipeline.status import PipelineContext as PipelineContext
from plaudit.runs.pipeline.store import PipelineFolder as PipelineFolder
from plaudit.runs.report.charts.axes import Span as Span
from plaudit.runs.report.charts.intervals import (
    IntervalRow as IntervalRow,
    IntervalRows as IntervalRows,
    share_chart as share_chart,
)
from plaudit.runs.report.parts import (
    NO_VALUE as NO_VALUE,
    Answer as Answer,
    Cell as Cell,
    Exchange as Exchange,
    Table as Table,
    estimate_cell as estimate_cell,
    estimate_span as estimate_span,
    interval_text as interval_text,
    value_cell as value_cell,
)
from plaudit.runs.report.words import counted as counted, percent as percent, short_name as short_name
