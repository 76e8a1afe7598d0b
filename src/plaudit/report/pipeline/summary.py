"""What a pipeline came to, in short (summary.json and the table of the command), and where a result is from.

A result is traced back to its stages, files, hashes, commands and code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml

from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.report.pipeline.data import PipelineData, StageData

if TYPE_CHECKING:
    from rich.table import Table

    from plaudit.evaluation.policies.result import Contest, PolicyEvaluation
    from plaudit.evaluation.reward_models.result import Estimate

TABLE_LEGEND = (
    "preferred: how often its answer is the better one, a tie counting one half; where they differ: "
    "without ties. KL: how far it went, in nats an answer. In brackets 95 % intervals over prompts."
)
"""Under the table."""


def write_summary(pipeline: PipelineData) -> None:
    """Seconds and first sentences of all stages that have ended, and the figures of the last evaluation."""
    evaluated, evaluation = pipeline.evaluation_stage, pipeline.evaluation
    config = yaml.safe_load(pipeline.config)
    stages = [
        {
            "name": stage.name,
            "do": stage.kind,
            "finished": stage.state == "done",
            "seconds": stage.seconds,
            "said": [*stage.summary_lines] if stage.state == "done" else None,
        }
        for stage in pipeline.stages
    ]
    summary = {
        "name": config["name"],
        "seed": config["seed"],
        "seconds": round(pipeline.seconds, 3),
        "stages": stages,
        "evaluation": None if evaluated is None else evaluated.name,
        "reference": None if evaluation is None else evaluation.reference,
        "table": [] if evaluation is None else [*policy_rows(evaluation)],
    }
    atomic.write_json(pipeline.path / "summary.json", summary)


def policy_rows(evaluation: PolicyEvaluation) -> Iterator[dict[str, Any]]:
    """The headline figures of each policy."""
    for policy in evaluation.policies:
        contest = _find_contest(evaluation.contests, policy.name, evaluation.reference)
        yield {
            "policy": policy.name,
            "gold": _estimate_dict(policy.gold),
            "preferred": None if contest is None else _estimate_dict(contest.raw),
            "decided": None if contest is None else _estimate_dict(contest.decided),
            "length_controlled": None if contest is None else _estimate_dict(contest.length_controlled),
            "judge": None if contest is None else contest.judge,
            "kl": _estimate_dict(policy.kl),
            "length": _estimate_dict(policy.length),
            "finished": _estimate_dict(policy.finished),
        }


def summary_table(evaluation: PolicyEvaluation) -> Table:
    """The headline figures as a table for the console; true worth where somebody knows it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=TABLE_LEGEND, caption_justify="left")
    table.add_column("policy", no_wrap=True)
    heads = (
        "true worth",
        f"preferred\nto {evaluation.reference}, %",
        "where they\ndiffer, %",
        "KL",
        "tokens",
    )
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in policy_rows(evaluation):
        table.add_row(
            row["policy"],
            _format_estimate(row["gold"], ".3f", ".2f"),
            _format_share(row["preferred"]),
            _format_share(row["decided"]),
            _format_estimate(row["kl"], ".2f"),
            _format_estimate(row["length"], ".1f"),
        )
    return table


def _find_contest(contests: Sequence[Contest], policy: str, against: str | None) -> Contest | None:
    return next(
        (contest for contest in contests if (contest.policy, contest.against) == (policy, against)), None
    )


def _estimate_dict(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _format_estimate(value: Mapping[str, Any] | None, form: str, interval_form: str | None = None) -> str:
    """A figure, and its interval where a form for its ends is given."""
    if value is None or value["value"] is None:
        return "–"
    text = format(value["value"], form)
    if interval_form is None or value["low"] is None:
        return text
    return f"{text} ({format(value['low'], interval_form)}–{format(value['high'], interval_form)})"


def _format_share(value: Mapping[str, Any] | None) -> str:
    """A share in per cent."""
    if value is None:
        return _format_estimate(None, "")
    percent = {name: None if value[name] is None else 100 * value[name] for name in ("value", "low", "high")}
    return _format_estimate(percent, ".1f", ".0f")


MAX_LISTED_OUTPUTS = 6
"""Files of a stage that are listed."""


def trace_lines(pipeline: PipelineData, name: str) -> Iterator[str]:
    """The lines that trace a result back through the stages above it, each stage once."""
    return _trace_stage({stage.name: stage for stage in pipeline.stages}, name, 0, set())


def _trace_stage(stages: Mapping[str, StageData], name: str, depth: int, visited: set[str]) -> Iterator[str]:
    stage, indent = stages.get(name), "  " * depth
    if stage is None or stage.state != "done":
        raise UserError(f"{name}: this stage has not ended, so there is nothing to trace")
    if name in visited:
        yield f"{indent}{name}: see above"
        return
    visited.add(name)
    code = _code_text(stage.code)
    yield f"{indent}{name} ({stage.kind}), result {stage.result[:12]}, {code}, {stage.ended}"
    yield f"{indent}  {stage.command}"
    for entry in stage.inputs:
        if not entry.from_stage:
            yield f"{indent}  {entry.name}: {entry.source}, {entry.hash[:12]}"
    for path, digest in list(stage.outputs.items())[:MAX_LISTED_OUTPUTS]:
        yield f"{indent}  → {path}, {digest[:12]}"
    if len(stage.outputs) > MAX_LISTED_OUTPUTS:
        more = len(stage.outputs) - MAX_LISTED_OUTPUTS
        yield f"{indent}  → and {more} more, in {stage.folder / 'stage.json'}"
    for other in stage.needs:
        yield from _trace_stage(stages, other, depth + 1, visited)


def _code_text(code: Mapping[str, Any]) -> str:
    commit = "" if code.get("commit") is None else f" at {str(code['commit'])[:12]}"
    changed = ", with changes" if code.get("changed") else ""
    return f"by plaudit {code.get('plaudit')}{commit}{changed}"
