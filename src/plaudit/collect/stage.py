"""Labels as a stage of a pipeline: answers are drawn, people are asked which are better, rows come of it.

What is asked lies in a label store, and so does everything that anybody answers: the stage's own folder can
be made again from it. People are waited for by an error (`WaitingError`); simulated ones answer at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plaudit.bounds import FromOne, Share, check_bounds
from plaudit.collect.pools import annotator_pools, let_pool_answer
from plaudit.collect.project import Project, read_project
from plaudit.collect.verbs.plan import LabellingRequest, labelling_cost, labelling_sentences
from plaudit.collect.waiting import Wait, refuse_without_database
from plaudit.data.files import raw_rows
from plaudit.data.formats.layout import ReadOptions
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY, WRITTEN
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.runs import PipelineFolder, StageKind, StageResult, command_line

if TYPE_CHECKING:
    from plaudit.collect.asking import People
    from plaudit.collect.drawing import Selection
    from plaudit.collect.export import Snapshot
    from plaudit.collect.progress import Timing
    from plaudit.collect.routed import Routing
    from plaudit.collect.routing import Promise
    from plaudit.collect.store import LabelStore
    from plaudit.runs import PipelineContext, Stage

PEOPLE = "people"
"""The word for people, who are waited for."""
JudgedKind = Literal["pair", "rank", "rate"]
INVITES_FOLDER = "invites"
"""In the folder of a pipeline: the invites by which simulated people come into its label store."""
LOOK_SECONDS = 2.0
"""Seconds between two looks at what was answered meanwhile."""
INVITED = 50
"""How many people an invite lets in."""
_ACTOR = "plaudit"
_ANSWERS = {"pair": (2, 2, 2), "rank": (3, 4, 9), "rate": (1, 1, 9)}
"""How many answers a task of each kind has: at least, where nothing is said, and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings:
    """Labels of people, or of simulated people, on answers."""

    model: Path | None = None
    """The policy that draws the answers."""
    prompts: Path | None = None
    """Rows with the prompts that it answers, each of which is asked once."""
    data: Path | None = None
    """In place of both, rows that have answers, of any layout, or tasks as lines of JSON."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    n: FromOne | None = None
    """How many tasks; none: as many as there are prompts, or rows."""
    ask: JudgedKind | None = None
    """What is asked: pair, rank or rate; none: as the project has it, and pair without one."""
    answers: int | None = None
    """Answers that are drawn for a task: 2 of a pair, 3 to 9 to rank (none: 4), 1 to 9 to rate (none: 1)."""
    against: tuple[str, ...] = (POLICY,)
    """Whose the last of them is, in turn: policy, written (what rows of prompts hold), a model's folder."""
    judges: tuple[str, ...] = (PEOPLE,)
    """Who answers: people, or a pool of simulated ones: crowd, experts, hurried …; before them models that
    keep what they are sure of, cheap to dear: openai:http://host/v1#model."""
    agreement: float | None = None
    """How often what models keep has to agree with people, such as 0.85; none: no model judges."""
    risk: float = 0.1
    """The chance that it agrees less often all the same."""
    sample: FromOne = 300
    """How many tasks people label first where models judge, drawn by chance."""
    most_money: float | None = None
    """Stop asking models before more is spent; needs prices, as price=0.15/0.6 behind a comma."""
    choose: str | None = None
    """Which of the pairs people are asked, n of them: random, or what a score wants, such as d-optimal; none:
    all. Pairs that the project has labels of count for nothing in that."""
    by: str | None = None
    """The reward whose scores choose."""
    random: Share = 0.2
    """The share of the chosen that is drawn at random: it measures, the others only teach."""
    overlap: int | None = None
    """How many people judge each task; none: as the project has it, and one without one."""
    project: Path | None = None
    """A project's file of settings: question, guidelines, scale …; none: defaults, under the stage's name."""
    store: str | None = None
    """The label store: a file, or postgresql+pg8000://…; none: labels.db in the pipeline's folder."""
    temperature: float = 1.0
    """Scores are divided by it when answers are drawn."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut, and not asked about."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """The seed of all random numbers."""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.model is None):
            raise UserError(
                "say either a model, whose answers to prompts are judged, or data that has answers"
            )
        if (self.model is None) != (self.prompts is None):
            raise UserError("a model answers prompts: give model and prompts together")
        self._check_judges()
        check_bounds(self)
        if self.selection is not None and self.agreement is not None:
            raise UserError("choose: judges are proven on a random sample of all pairs; leave out agreement")
        if self.model is None and self.against != (POLICY,):
            raise UserError("against names whose answers a model's are compared with: name it with model")
        if self.data is not None and self.answers is not None:
            raise UserError("answers are how many are drawn, and data has its own; leave one of them out")
        if self.ask is not None:
            # For its complaint: a number that no such task can have is found before anything runs.
            self.count(self.ask)
        if self.model is not None and self.sampling.greedy and self.count(self.ask or "pair") > 1:
            raise UserError(
                "temperature 0 draws the same answer every time, so there is nothing to judge; give a number "
                "above 0"
            )

    @property
    def sampling(self) -> SamplingSettings:
        return SamplingSettings(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)

    @property
    def selection(self) -> Selection | None:
        """Which pairs people are given; None: all."""
        if self.choose is None:
            return None
        from plaudit.collect.drawing import Selection

        more = {"random": self.random, "seed": self.seed, "device": self.device}
        return Selection(method=self.choose, by=self.by, most=self.n, **more)

    @property
    def pool(self) -> str | None:
        """The pool of simulated people; None where people are asked."""
        return None if self.judges[-1] == PEOPLE else self.judges[-1]

    @property
    def routing(self) -> Routing | None:
        """Which judges are asked before people; None where people are asked everything."""
        if self.agreement is None:
            return None
        from plaudit.collect.routed import Routing

        names = ("sample", "seed", "device", "most_money")
        own = {name: getattr(self, name) for name in names}
        return Routing(judges=self.judges[:-1], promise=self._promise, **own)

    def _check_judges(self) -> None:
        known, listed = (PEOPLE, *annotator_pools()), ", ".join(self.judges)
        if not self.judges or self.judges[-1] not in known or (set(self.judges[:-1]) & {*known}):
            raise UserError(
                f"judges {listed}: give one word of {', '.join(known)}, and before it, if any, models that "
                "judge what they are sure of (openai:http://host/v1#model)"
            )
        if len(set(self.judges)) < len(self.judges):
            raise UserError(f"judges {listed}: name each of them once, cheap to dear")
        if (len(self.judges) > 1) != (self.agreement is not None):
            raise UserError(
                f"judges {listed}: models before people keep what they are sure of, so say with agreement "
                "how often that has to agree with people; agreement and models go together"
            )
        if self.agreement is not None:
            self._promise.refuse_small(self.sample)

    @property
    def _promise(self) -> Promise:
        # Here and not above, since scipy takes its time.
        from plaudit.collect.routing import Promise

        assert self.agreement is not None, "models judge"
        return Promise(agreement=self.agreement, risk=self.risk, judges=len(self.judges) - 1)

    def count(self, ask: str) -> int:
        """How many answers a task of a kind has."""
        least, usual, most = _ANSWERS[ask]
        count = usual if self.answers is None else self.answers
        if not least <= count <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise UserError(f"answers {count}: {ask} takes {wanted}")
        return count

    def settings_of_project(self, name: str) -> Project:
        project = (
            Project(name=name, ask=self.ask or "pair") if self.project is None else read_project(self.project)
        )
        if project.ask not in _ANSWERS or self.ask not in (None, project.ask):
            raise UserError(
                f"{self.project}: it asks for {project.ask}, and answers are judged here by "
                f"{self.ask or ', '.join(_ANSWERS)}"
            )
        self.count(project.ask)
        if self.agreement is not None and project.ask != "pair":
            raise UserError(
                f"judges {', '.join(self.judges)}: models judge pairs before people do, and {project.ask} is "
                "asked; leave them out, with agreement"
            )
        return project if self.overlap is None else replace(project, overlap=self.overlap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    name: str
    folder: Path
    store: str
    invites: Path
    model: str
    """What tables call the policy that draws."""
    hash_of: Callable[[Path], str]
    """The hash of a file's or a folder's content."""


def _check(settings: CollectSettings) -> None:
    refuse_without_database(*(() if settings.pool is None else ("starlette", "uvicorn")))
    settings.settings_of_project("stage")


def collect(settings: CollectSettings, place: Place) -> tuple[Snapshot, tuple[str, ...]]:
    """Write what people say as ``rows.jsonl``; raises `WaitingError` while labels are missing.

    The same call goes on from wherever an earlier one was stopped: answers that were drawn are kept, tasks
    that were asked are not asked again, and what people gave is only read.
    """
    refuse_without_database()
    # Here and not above: the database's packages are an extra, and other stages do not need them.
    from plaudit.collect.asking import People
    from plaudit.collect.store import open_store

    wanted = settings.settings_of_project(place.name)
    with closing(open_store(place.store, create=True)) as store:
        people = People(store=store, project=wanted.name)
        project = _begin(people, wanted, settings)
        draw, notes = _draw_key(settings, project.ask, place), list[str]()
        # By the draw's name first: who comes back after a wait loads no model.
        ids, routing = people.requested(draw), settings.routing
        answer = partial(_answer, people, settings, place)
        bodies_of = cache(partial(_bodies, settings, project, place, store))
        if routing is not None:
            from plaudit.collect.routed import ask_in_order

            ids, notes = ask_in_order(people, lambda: bodies_of()[0], draw, routing, answer)
        elif ids is None:
            bodies, notes = bodies_of()
            ids = people.ask(bodies, draw=draw)
        answer(ids)
        group = "people" if routing is None else "routed"
        snapshot = people.export(ids, place.folder / "rows.jsonl", group=group)
    sentence = (
        f"{snapshot.rows} rows of {len({*snapshot.events})} labels on {len({*ids})} tasks of project "
        f"{project.name}, as of event {snapshot.seq} of {snapshot.store}"
    )
    return snapshot, (sentence, *notes)


def _answer(people: People, settings: CollectSettings, place: Place, tasks: Collection[str]) -> None:
    # Let a pool answer, where one is named; raises while labels are missing.
    if settings.pool is not None and people.wait(tasks) is not None:
        where = {"seed": settings.seed, "invites": place.invites}
        let_pool_answer(people.store, people.project, settings.pool, **where)
        wait = people.wait(tasks)
        # A pool that has nothing left to do will not answer tomorrow either.
        if wait is not None:
            size = len(annotator_pools()[settings.pool]())
            raise UserError(
                f"{wait.sentence}, and nobody of {settings.pool} ({size} people) can give them: let "
                "fewer judge each task (overlap), or look who was suspended (plaudit collect people)"
            )
    people.refuse_waiting(tasks)


def _begin(people: People, wanted: Project, settings: CollectSettings) -> Project:
    # The project with the settings that this stage names; what it does not name is the owner's.
    from plaudit.collect.adding import add_tasks, set_project

    there = people.begin(wanted)
    named = wanted if settings.project is not None else there
    if settings.overlap is not None:
        named = replace(named, overlap=settings.overlap)
    if named != there:
        people.store.write(set_project, named, actor=_ACTOR)
    if settings.project is not None:
        from plaudit.collect.intake import known_items

        for intake in known_items(named).values():
            intake.pictures.keep(people.store, named.name)
            # Those that are there already are left.
            people.store.write(add_tasks, named.name, intake.bodies, actor=_ACTOR)
    return named


def _draw_key(settings: CollectSettings, ask: str, place: Place) -> str:
    # What decides which answers are asked about: the same is drawn once, whoever then judges it.
    from plaudit.collect.log import digest

    rows = {name: getattr(settings, name) for name in ("model", "prompts", "data")}
    contents: dict[str, Any] = {name: path and place.hash_of(path) for name, path in rows.items()}
    if settings.against != (POLICY,):
        hashes = {word: place.hash_of(Path(word)) for word in {*settings.against} - {POLICY, WRITTEN}}
        contents["against"] = [hashes.get(word, word) for word in settings.against]
    if settings.choose is not None:
        by = settings.by and (place.hash_of(Path(settings.by)) if Path(settings.by).exists() else settings.by)
        contents |= {"choose": settings.choose, "by": by, "random": settings.random}
    words = {"columns": [*settings.columns], "leave_out": [*settings.leave_out]}
    how = asdict(settings.sampling) | {"stop": []}
    return digest({**contents, **words, **how, "n": settings.n, "ask": ask, "answers": settings.count(ask)})


def _bodies(
    settings: CollectSettings, project: Project, place: Place, store: LabelStore
) -> tuple[list[dict[str, Any]], list[str]]:
    if settings.selection is not None:
        from plaudit.collect.drawing import choose_bodies

        bodies, notes = _bodies(replace(settings, n=None, choose=None), project, place, store)
        chosen, more = choose_bodies(bodies, settings.selection)
        return chosen, [*notes, *more]
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    if settings.data is not None:
        return _bodies_of_rows(settings, project, place, options, store)
    assert settings.model is not None
    assert settings.prompts is not None
    from plaudit.collect.drawing import Draw, draw_tasks

    draw = Draw(
        model=settings.model,
        prompts=settings.prompts,
        sampling=settings.sampling,
        answers=settings.count(project.ask),
        against=settings.against,
        n=settings.n,
        device=settings.device,
        read_options=options,
    )
    from plaudit.collect.asking import task_body

    tasks, notes = draw_tasks(draw, place.folder)
    source = {"model": place.model, "hash": place.hash_of(settings.model)[:12]}
    source |= {name: getattr(settings, name) for name in ("temperature", "max_tokens", "seed")}
    own: dict[str, Any] = {"kind": project.ask, "source": source, "stage": place.name}
    return [task_body(task, **{**own, **task.metadata}) for task in tasks], notes


def _bodies_of_rows(
    settings: CollectSettings, project: Project, place: Place, options: ReadOptions, store: LabelStore
) -> tuple[list[dict[str, Any]], list[str]]:
    # The answers of rows; which of them was preferred there is told to nobody.
    from plaudit.collect.intake import read_intake

    assert settings.data is not None
    intake = read_intake(settings.data, project, options=options)
    intake.pictures.keep(store, project.name)
    bodies = [
        {**body, "metadata": {**body.get("metadata", {}), "stage": place.name}} for body in intake.bodies
    ]
    if settings.n is not None and settings.n < len(bodies):
        # Drawn, since many files have their rows by kind; then in the order of the file.
        chosen = random.Random(f"{settings.seed}/rows").sample(range(len(bodies)), settings.n)
        bodies = [bodies[number] for number in sorted(chosen)]
    left_out = [f"{count} × {reason} left out" for reason, count in intake.left_out.items()]
    return bodies, [intake.sentence, *left_out]


def store_of(folder: PipelineFolder, stage: Stage) -> str:
    """The label store in which a stage asks people: the one that it names, or the pipeline's own."""
    config = stage.config({})
    # A loop that asks people has the store among the settings of the loop.
    named = config.store if isinstance(config, CollectSettings) else config.loop.store
    return str(folder.labels) if named is None else named


def _labelling_lines(context: PipelineContext, stage: Stage) -> Iterator[str]:
    # The hours and the money of labels by people; simulated ones cost nothing.
    settings: CollectSettings = context.config(stage)
    if settings.pool is not None:
        return
    tasks = settings.n or _row_count(settings.prompts if settings.data is None else settings.data)
    if not tasks:
        yield "what its labels cost is known when the rows are there"
        return
    project = settings.settings_of_project(stage.name)
    if settings.agreement is not None:
        yield (
            f"a random sample of {settings.sample:,} first; then plaudit collect route says what judges "
            "would keep; what follows is the most that people are asked"
        )
    timing = _timing(store_of(context.folder, stage), project.name)
    measured = None if timing is None else timing.median_seconds
    request = LabellingRequest(
        ask=project.ask,
        tasks=tasks,
        overlap=project.overlap,
        most=project.limit,
        seconds=measured,
        measured=0 if timing is None or measured is None else timing.timed,
        checks=(project.gold_share if project.gold_rows else 0.0) + project.repeat,
        qualify=project.qualify_n,
    )
    yield from labelling_sentences(request, labelling_cost(request))
    yield "other seconds, pay or people: plaudit plan labels"


def _row_count(path: Path | None) -> int | None:
    # How many rows a file has; None of what is not there yet, or is more than one file.
    return sum(1 for _ in raw_rows(path)) if path is not None and path.is_file() else None


def _timing(address: str, project: str) -> Timing | None:
    # What the project's people took so far; None where nobody has labelled in it.
    # An address of a server is not asked by a dry run: it need not be up.
    if not Path(address).is_file():
        return None
    from plaudit.collect.progress import project_timing
    from plaudit.collect.store import open_store

    with closing(open_store(address)) as store:
        return project_timing(store, project) if project in store.projects() else None


def _collect(settings: CollectSettings, out: Path, stage: Stage, context: PipelineContext) -> StageResult:
    place = Place(
        name=stage.name,
        folder=out,
        store=store_of(context.folder, stage),
        invites=context.folder.path / INVITES_FOLDER,
        model="".join(map(context.display_name, stage.inputs.get("model", ()))),
        hash_of=context.fingerprints.hash_of,
    )
    snapshot, sentences = collect(settings, place)
    options = {"store": snapshot.store, "project": snapshot.project, "out": out / "rows.jsonl"}
    options |= {} if settings.agreement is None else {"group": "routed"}
    command = command_line("plaudit collect export", **options, position=snapshot.seq)
    return StageResult(sentences=sentences, command=command)


@contextmanager
def attending(folder: Path, say: Callable[[str], None]) -> Iterator[StoreAttendant]:
    """An attendant of the pipeline in a folder; all its servers end with the block."""
    with ExitStack() as stack:
        yield StoreAttendant(PipelineFolder(path=folder), say, stack)


class StoreAttendant:
    def __init__(self, folder: PipelineFolder, say: Callable[[str], None], stack: ExitStack) -> None:
        self._folder, self._say, self._stack = folder, say, stack
        self._stores: dict[str, tuple[LabelStore, str]] = {}
        self._invited: set[tuple[str, str]] = set()
        self._waits: dict[str, list[tuple[People, Wait]]] = {}
        self._looked = 0.0

    def serve(self, stage: Stage, waits: Sequence[object]) -> None:
        """Serve the store of a stage, if that is not done yet, and say where, with an invite."""
        from plaudit.collect.app.server import serve_in_background
        from plaudit.collect.asking import People
        from plaudit.collect.people import make_invite
        from plaudit.collect.store import open_store

        missing = [wait for wait in waits if isinstance(wait, Wait)]
        address = store_of(self._folder, stage)
        if address not in self._stores:
            store = self._stack.enter_context(closing(open_store(address)))
            server = self._stack.enter_context(serve_in_background(store))
            self._stores[address] = store, server.url
        store, url = self._stores[address]
        self._waits[stage.name] = [(People(store=store, project=wait.project), wait) for wait in missing]
        for project in sorted({wait.project for wait in missing}):
            # Once for a project: stages come back to wait, and an invite is a secret to be passed on once.
            if (address, project) not in self._invited:
                self._invited.add((address, project))
                secret = store.write(make_invite, project, uses=INVITED, actor="plaudit")
                self._say(
                    f"{url}: people answer here for project {project}; the invite {secret} lets {INVITED} in"
                )

    def answered(self) -> list[str]:
        now = time.monotonic()
        # The loop asks all the time; the database is spared.
        if now - self._looked < LOOK_SECONDS:
            return []
        self._looked = now
        names = [
            name
            for name, waits in self._waits.items()
            if all(people.wait(wait.tasks) is None for people, wait in waits)
        ]
        for name in names:
            del self._waits[name]
        return names


COLLECT = StageKind(
    name="collect",
    produces="rows",
    settings=CollectSettings,
    accepts={
        **{"model": ("model",), "prompts": ("rows",), "data": ("rows",), "project": ()},
        "judges": ("reward",),
        "by": ("reward",),
        "against": ("model",),
    },
    words={"judges": (PEOPLE, *annotator_pools()), "against": (POLICY, WRITTEN)},
    run=_collect,
    check=_check,
    cost=_labelling_lines,
    resumes=True,
)
