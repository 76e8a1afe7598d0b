"""What policies say of unseen pictures: what it is worth, what they invent, and what a page shows of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice, starmap
from pathlib import Path
from typing import Any

from plaudit.bounds import FromOne, FromZero, check_bounds
from plaudit.data.records import Prompt
from plaudit.evaluation.policies import Split
from plaudit.evaluation.policies.generate import (
    GenerationSettings,
    evaluation_prompts,
    generate_rollouts,
    load_policy_folder,
)
from plaudit.evaluation.stats import Estimate
from plaudit.files.atomic import write_json, write_text
from plaudit.files.pictures import data_url
from plaudit.models.settings import SamplingSettings
from plaudit.pictures.world.making import PICTURES, prompt_of
from plaudit.pictures.world.measure import measure
from plaudit.pictures.world.questions import KINDS, TRAPS, Kind, Question, questions
from plaudit.pictures.world.scenes import caption, render
from plaudit.runs import (
    Answer,
    Cell,
    Exchange,
    PageSection,
    PipelineContext,
    Stage,
    StageFindings,
    StageKind,
    StageResult,
    Table,
    command_line,
    estimate_cell,
    interval_text,
    percent,
    short_name,
)

EXAM_FILE, ANSWERS_FILE = "picture-exam.json", "answers.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureExam:
    policies: tuple[str, ...]
    """Who answers: folders of models; of all others it is told how often they win against the first."""
    n: FromOne = 360
    """How many questions, each about a scene of its own."""
    questions: tuple[Kind, ...] = ()
    """Kinds of questions, in turn; none: all of them."""
    split: Split = "test"
    """Whose scenes: no scene is in two splits."""
    max_tokens: FromOne = 48
    """The longest answer."""
    temperature: FromZero = 0.7
    """Of the sampler; 0 takes the likeliest token."""
    seed: int = 0
    """The seed of scenes, questions and answers."""
    device: str = "auto"
    """auto, cpu, cuda."""

    def __post_init__(self) -> None:
        check_bounds(self)


def take_exam(request: PictureExam, folder: Path) -> tuple[list[Question], dict[str, list[str]]]:
    """Ask each policy all questions; their pictures are put into the folder."""
    kinds = request.questions or KINDS
    drawn_questions = list(islice(questions(request.split, seed=request.seed, kinds=kinds), request.n))
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    prompts = evaluation_prompts(_prompt(question, folder) for question in drawn_questions)
    sampling = SamplingSettings(
        max_tokens=request.max_tokens, temperature=request.temperature, seed=request.seed
    )
    settings = GenerationSettings(sampling=sampling, device=request.device)
    answers: dict[str, list[str]] = {}
    for name in request.policies:
        rollouts = generate_rollouts(load_policy_folder(Path(name), settings), prompts, settings)
        answers[name] = [group[0].answer.text for group in rollouts]
    return drawn_questions, answers


def _prompt(question: Question, folder: Path) -> Prompt:
    render(question.scene).save(folder / PICTURES / f"{question.scene.name}.png", optimize=True)
    turn, *rest = prompt_of(question)
    parts = [
        part if part.source is None else replace(part, source=str((folder / part.source).absolute()))
        for part in turn.content
        if not isinstance(part, str)
    ]
    return Prompt(prompt=(replace(turn, content=tuple(parts)), *rest), metadata=question.metadata)


def _run_stage(settings: PictureExam, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    names = context.display_names(stage.inputs["policies"])
    prompts, answers = take_exam(settings, out)
    by_name = dict(zip(names, answers.values(), strict=True))
    [first, *_] = by_name.values()
    results = {
        name: asdict(measure(prompts, mine, against=() if mine is first else first, seed=settings.seed))
        for name, mine in by_name.items()
    }
    write_json(out / EXAM_FILE, results)
    lines = [
        {
            **{"kind": question.kind, "question": question.words},
            **{"picture": f"{PICTURES}/{question.scene.name}.png", "shows": caption(question.scene)},
            "answers": dict(zip(names, mine, strict=True)),
        }
        for question, mine in zip(prompts, zip(*by_name.values(), strict=True), strict=True)
    ]
    write_text(out / ANSWERS_FILE, "".join(f"{json.dumps(line)}\n" for line in lines))
    at = context.folder
    command = command_line("plaudit run", at.config, out=at.path, only=stage.name)
    return StageResult(sentences=_sentences(results), command=command)


def _estimate(values: Mapping[str, Any] | None) -> Estimate | None:
    return None if values is None else Estimate(**values)


def _columns(measures: Mapping[str, Any]) -> dict[str, Estimate | None]:
    """The figures that a page shows, by what stands above them."""
    columns = {
        "worth": measures["score"],
        "better than the first's answers": measures["wins"],
        "descriptions that invent": measures["chair_s"],
        "named things that are not there": measures["chair_i"],
        **{f"right: {kind}": value for kind, value in measures["right"].items()},
    }
    for trap in TRAPS:
        pope = measures["pope"].get(trap) or {}
        columns |= {f"there or not, {trap}": pope.get("accuracy"), f"says yes, {trap}": pope.get("yes_share")}
    return {name: _estimate(value) for name, value in columns.items() if value is not None}


def _sentences(results: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """What is said of each policy, of the best one first."""
    best_first = sorted(results.items(), key=lambda item: -item[1]["score"]["value"])
    return tuple(starmap(_sentence, best_first))


def _sentence(name: str, measures: Mapping[str, Any]) -> str:
    columns = _columns(measures)

    def figure(column: str, write: Callable[[Any], str] = percent) -> str:
        estimate = columns.get(column)
        if estimate is None:
            return "not measured"
        return f"{write(estimate.value)} ({interval_text(estimate, share=write is percent)})"

    return (
        f"{short_name(name)} is worth {figure('worth', lambda value: f'{value:.2f}')}; of its descriptions "
        f"{figure('descriptions that invent')} invent something, and of the things that they name "
        f"{figure('named things that are not there')} are not there"
    )


def _read(folder: Path) -> StageFindings:
    results = json.loads((folder / EXAM_FILE).read_text("utf-8"))
    by_policy = {name: _columns(measures) for name, measures in results.items()}
    heads = list(dict.fromkeys(head for columns in by_policy.values() for head in columns))

    def cells(columns: Mapping[str, Estimate | None]) -> list[Cell]:
        return [estimate_cell(columns.get(head), *(() if head == "worth" else (percent,))) for head in heads]

    table = Table(
        caption="Questions about unseen pictures, each with its 95 % interval",
        columns=[short_name(name) for name in by_policy],
        rows=[(head, [cells(columns)[n] for columns in by_policy.values()]) for n, head in enumerate(heads)],
    )
    sentences = tuple(f"{sentence}." for sentence in _sentences(results))
    return StageFindings(sentences=sentences, tables=(table,), samples=tuple(_samples(folder)))


def _samples(folder: Path) -> Iterator[Exchange]:
    """The first question of each kind, with what each policy answered."""
    lines = [json.loads(line) for line in (folder / ANSWERS_FILE).read_text("utf-8").splitlines()]
    for line in {line["kind"]: line for line in reversed(lines)}.values():
        yield Exchange(
            prompt=line["question"],
            answers=[
                Answer(label=short_name(name), kind="now", text=text)
                for name, text in line["answers"].items()
            ],
            title=line["kind"],
            detail=f"it shows {line['shows']}",
            pictures=[data_url((folder / line["picture"]).read_bytes())],
        )


PICTURE_SECTION = PageSection(
    title="What policies say of pictures",
    note="The scene is known, so every claim of an answer is right, wrong or invented. Whether "
    "something is there is asked as often of what is there as of what is not (POPE); what descriptions "
    "invent is counted as CHAIR does.",
    file=EXAM_FILE,
    read=_read,
)
PICTURE_EXAM = StageKind(
    name="picture-exam",
    produces="evaluation",
    settings=PictureExam,
    accepts={"policies": ("model",)},
    run=_run_stage,
    weight=20,
)
