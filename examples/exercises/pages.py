"""All that exercises take from the wing of pipelines and their pages, from one place."""
# ruff: noqa: F401

from __future__ import annotations

from examples.exercises.page import (
    PAGE_FILE,
    CaptionedChart,
    Claim,
    ExerciseResult,
    Table,
    answer_counts,
    answers_side_by_side,
    chart_over_root_kl,
    chart_over_steps,
    charts_side_by_side,
    exercise_page,
    overview_page,
)
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.spec import Pipeline
from plaudit.runs.pipeline.store import PipelineFolder, read_manifest
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.bars import reliability_diagram
from plaudit.runs.report.charts.intervals import (
    GuideLine,
    IntervalRow,
    IntervalRows,
    amount_chart,
    share_chart,
)
from plaudit.runs.report.parts import estimate_span, interval_row
from plaudit.runs.report.pipeline.data import REWARD_RESULTS_FILE, read_json, read_pipeline_folder
from plaudit.runs.report.pipeline.page import write_report, write_summary
from plaudit.runs.report.pipeline.sections import policy_reliability_chart
from plaudit.runs.report.run.data import MetricColumn, read_history
from plaudit.runs.report.words import Number, counted, number_text, percent
