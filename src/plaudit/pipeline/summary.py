"""What a pipeline came to, in short: summary.json and the table at the end of the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from plaudit.pipeline.folder import Folder, read_seal
from plaudit.pipeline.stage import Pipeline, Stage
from plaudit.training import durable

if TYPE_CHECKING:
    from rich.table import Table

    from plaudit.evaluation.policies.result import Contest, PolicyEvaluation
    from plaudit.evaluation.result import Estimate


LEGEND = (
    "preferred: how often its answer is the better one, a tie counting one half; where they differ: "
    "without ties. KL: how far it went, in nats an answer. In brackets 95 % intervals over prompts."
)
"""Under the table."""


def write_summary(folder: Folder, pipeline: Pipeline) -> None:
    """Seconds and first sentences of all stages that have ended, and the figures of the last evaluation."""
    seals = [(stage, read_seal(folder.stage(stage.name))) for stage in pipeline.stages]
    evaluated = last_evaluation(folder, pipeline)
    found = None if evaluated is None else evaluated[1]
    stages = [
        {
            "name": stage.name,
            "do": stage.kind.name,
            "finished": seal is not None,
            "seconds": None if seal is None else seal["seconds"],
            "said": None if seal is None else [*seal["said"]],
        }
        for stage, seal in seals
    ]
    durable.write_json(
        folder.summary,
        {
            "name": pipeline.name,
            "seed": pipeline.seed,
            "seconds": round(sum(seal["seconds"] for _, seal in seals if seal is not None), 3),
            "stages": stages,
            "evaluation": None if evaluated is None else evaluated[0].name,
            "reference": None if found is None else found.reference,
            "table": [] if found is None else [*rows_of(found)],
        },
    )


def last_evaluation(folder: Folder, pipeline: Pipeline) -> tuple[Stage, PolicyEvaluation] | None:
    """The last finished stage that compared policies, and what it found."""
    from plaudit.evaluation.policies.files import FIGURES, read_results

    for stage in reversed(pipeline.stages):
        here = folder.stage(stage.name)
        if stage.kind.name == "evaluate" and read_seal(here) is not None:
            return stage, read_results(here / FIGURES)
    return None


def rows_of(found: PolicyEvaluation) -> Iterator[dict[str, Any]]:
    """The headline figures of each policy."""
    for one in found.policies:
        met = _contest(found.contests, one.name, found.reference)
        yield {
            "policy": one.name,
            "gold": _plain(one.gold),
            "preferred": None if met is None else _plain(met.raw),
            "decided": None if met is None else _plain(met.decided),
            "length_controlled": None if met is None else _plain(met.length_controlled),
            "judge": None if met is None else met.judge,
            "kl": _plain(one.kl),
            "length": _plain(one.length),
            "finished": _plain(one.finished),
        }


def table_of(found: PolicyEvaluation) -> Table:
    """The same for eyes; true worth where somebody knows it."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=LEGEND, caption_justify="left")
    table.add_column("policy", no_wrap=True)
    heads = ("true worth", f"preferred\nto {found.reference}, %", "where they\ndiffer, %", "KL", "tokens")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows_of(found):
        table.add_row(
            row["policy"],
            _words(row["gold"], ".3f", ".2f"),
            _share(row["preferred"]),
            _share(row["decided"]),
            _words(row["kl"], ".2f"),
            _words(row["length"], ".1f"),
        )
    return table


def _contest(contests: Sequence[Contest], policy: str, against: str | None) -> Contest | None:
    return next((one for one in contests if (one.policy, one.against) == (policy, against)), None)


def _plain(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _words(value: Mapping[str, Any] | None, form: str, ends: str | None = None) -> str:
    """A figure, and its interval where a form for its ends is given."""
    if value is None or value["value"] is None:
        return "–"
    said = format(value["value"], form)
    if ends is None or value["low"] is None:
        return said
    return f"{said} ({format(value['low'], ends)}–{format(value['high'], ends)})"


def _share(value: Mapping[str, Any] | None) -> str:
    """A share in per cent."""
    if value is None:
        return _words(None, "")
    percent = {name: None if value[name] is None else 100 * value[name] for name in ("value", "low", "high")}
    return _words(percent, ".1f", ".0f")
