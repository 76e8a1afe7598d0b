"""Stages of pipelines in which models judge rows, revise answers and attack policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.feedback.asking import AttackSettings, JudgeRowsSettings, ReviseSettings
from plaudit.feedback.instructing import InstructSettings, write_instructed
from plaudit.feedback.judges.constitution import OURS
from plaudit.runs import StageKind, StageResult, command_line, options_of

if TYPE_CHECKING:
    from plaudit.runs import PipelineContext, Stage


def _judge(settings: JudgeRowsSettings, out: Path, *_: object) -> StageResult:
    from plaudit.feedback.row_judging import prepare_judging, write_judged_rows

    ready = prepare_judging(settings)
    print("\n".join((*ready.notes, ready.estimate())))
    judged = ready.run()
    write_judged_rows(judged, out / "rows.jsonl")
    options = options_of(settings, "by", "data", "prompts")
    source = settings.data or settings.prompts
    command = command_line("plaudit judge", source, by=settings.by, **options, out=out / "rows.jsonl")
    made = f"{len(judged.rows)} rows by {ready.judging.actor}"
    return StageResult(sentences=(made, *ready.notes, *judged.sentences, *ready.end_notes), command=command)


def _revise(settings: ReviseSettings, out: Path, *_: object) -> StageResult:
    """Rows of the kind that is not given lie beside those that are."""
    from plaudit.feedback import revised_rows

    revising = revised_rows.prepare_revising(settings)
    revisions = revising.run()
    figures = revised_rows.revision_figures(revising, revisions)
    revised_rows.write_revisions(
        revising, revisions, figures, revised_rows.RevisionFiles.in_folder(out, settings.give)
    )
    print("\n".join([*revising.notes, *figures.lines()]))
    options = options_of(settings, "data", "prompts", "give")
    options["out" if settings.give == "demonstrations" else "pairs"] = out / "rows.jsonl"
    command = command_line("plaudit revise", settings.data or settings.prompts, **options)
    return StageResult(sentences=(*revising.notes, *figures.sentences), command=command)


def _attack(settings: AttackSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    from plaudit.feedback.attack_page import attack_sentences
    from plaudit.feedback.attack_run import attack, parties_of, read_attack_rows, write_attack_result

    names = context.display_names(stage.inputs["targets"])
    rows, parties = read_attack_rows(settings), parties_of(settings, names)
    result = attack(settings, rows, parties, on_progress=print)
    write_attack_result(result, out)
    options = {**options_of(settings, "targets", "prompts"), "model": settings.targets}
    prompts = () if settings.prompts is None else (settings.prompts,)
    command = command_line("plaudit attack", *prompts, **options, out=out)
    report = result.report
    sentences = (" ".join(attack_sentences(report)), *report.missing, *report.notes)
    return StageResult(sentences=sentences, command=command)


def _instruct(settings: InstructSettings, out: Path, *_: object) -> StageResult:
    sentences = write_instructed(settings, out / "rows.jsonl")
    prompts = () if settings.prompts is None else (settings.prompts,)
    lists = {name: [*getattr(settings, name)] for name in ("without", "only")}
    options = {**options_of(settings, "prompts"), **lists, "out": out / "rows.jsonl"}
    return StageResult(sentences=sentences, command=command_line("plaudit instruct", *prompts, **options))


def _check_attack(settings: AttackSettings) -> None:
    from plaudit.feedback.attack_run import check_files

    check_files(settings)


_OURS = {"constitution": (OURS,)}
JUDGE = StageKind(
    name="judge",
    produces="rows",
    settings=JudgeRowsSettings,
    accepts={
        **{"by": ("reward",), "model": ("model",), "prompts": ("rows",), "data": ("rows",)},
        "against": ("model",),
        **dict.fromkeys(("rubric", "constitution", "preamble", "calibrate"), ()),
    },
    run=_judge,
    words={**_OURS, "against": (POLICY, WRITTEN)},
    resumes=True,
    # What may be spent is counted by one process.
    divides=lambda settings: settings.most_money is None,
)
REVISE = StageKind(
    name="revise",
    produces="rows",
    settings=ReviseSettings,
    accepts={
        **{"model": ("model",), "prompts": ("rows",), "data": ("rows",), "people": ("rows",)},
        **dict.fromkeys(("by", "constitution", "marks", "card"), ()),
        "score": ("reward",),
    },
    run=_revise,
    words=_OURS,
)
INSTRUCT = StageKind(
    name="instruct", produces="rows", settings=InstructSettings, accepts={"prompts": ("rows",)}, run=_instruct
)
ATTACK = StageKind(
    name="attack",
    produces="evaluation",
    settings=AttackSettings,
    accepts={
        **{"targets": ("model",), "prompts": ("rows",), "twins": ("rows",)},
        **dict.fromkeys(("judge", "refusal"), ("reward",)),
        **dict.fromkeys(("by", "templates", "constitution", "card"), ()),
        "people": ("rows",),
    },
    run=_attack,
    weight=20,
    check=_check_attack,
    words=_OURS,
)
