"""Who gets what: counts in, a choice out. Nothing here looks at a clock or a database."""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plaudit.collect.project import Project

Purpose = Literal["qualify", "gold", "repeat", "work"]
"""Why a task is given: to qualify, to check, to see whether the answer stays the same, or to be labelled."""
REPEAT_AFTER = 50
"""How many answers lie between an item and its repetition."""
MOST_OPEN = 8
"""How many leases a person may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """What the choice needs to know of a person."""

    name: str
    standing: str
    """Qualifying, active, watch, suspended, failed or erased."""
    assigned: int = 0
    declined: tuple[str, ...] = ()
    """Categories that the person does not want to read."""
    languages: tuple[str, ...] = ()
    """Languages that the person reads; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    task: str
    started: bool
    """Whether somebody holds or labelled it."""
    lacking: int
    """How many labels nobody has given or is about to give."""
    priority: float
    prompt_visits: int
    """How many tasks of the same prompt the person was given."""
    category: str | None = None
    language: str | None = None
    authors: tuple[str, ...] = ()
    """The people who wrote one of its answers."""


def purposes(person: Annotator, project: Project) -> tuple[Purpose, ...]:
    """What to try for the person's next task, in order.

    >>> purposes(Annotator(name="a1", standing="qualifying"), Project(name="p", qualify_n=25))
    ('qualify',)
    """
    # Where nobody has to qualify any more, who had begun to works like everybody else.
    if person.standing == "qualifying" and project.qualify_n:
        return ("qualify",)
    # One draw for both shares, by the person's own count: a replayed choice is the same choice.
    draw = uniform(project.seed, person.name, person.assigned, "purpose")
    if draw < project.gold_share:
        return "gold", "work"
    if draw < project.gold_share + project.repeat:
        return "repeat", "work"
    return ("work",)


def select_task(candidates: Sequence[Candidate], person: Annotator, project: Project) -> Candidate | None:
    """The task to give: started ones first, then what lacks most, what is wanted first, and a hash of both.

    >>> tasks = [Candidate(task=t, started=b, lacking=1, priority=0.0, prompt_visits=0) for t, b in
    ...          (("t1", False), ("t2", True))]
    >>> select_task(tasks, Annotator(name="a1", standing="active"), Project(name="p")).task
    't2'
    """
    fitting = [candidate for candidate in candidates if fits(candidate, person, project)]
    # The hash is of the person too: people who come at once do not all reach for the same task.
    return min(
        fitting,
        key=lambda c: (not c.started, -c.lacking, -c.priority, uniform(project.seed, person.name, c.task)),
        default=None,
    )


def fits(candidate: Candidate, person: Annotator, project: Project) -> bool:
    """Whether a person may be given a task: not own text, not a prompt too often, nothing declined."""
    if person.name in candidate.authors or candidate.category in person.declined:
        return False
    if person.languages and candidate.language not in (None, *person.languages):
        return False
    return project.prompt_limit is None or candidate.prompt_visits < project.prompt_limit


def draw_order(count: int, before: Sequence[int] | None, *words: object) -> list[int]:
    """In which order answers are shown: the reverse of what the one before saw, else drawn.

    >>> draw_order(2, [1, 0], 0, "a1", "t1")
    [0, 1]
    """
    if before is not None:
        return [*reversed(before)]
    order = list(range(count))
    random.Random(_digest(*words)).shuffle(order)
    return order


def uniform(*words: object) -> float:
    """A number from 0 to 1 that is a function of the words.

    >>> 0 <= uniform("a1", 3) < 1, uniform("a1", 3) == uniform("a1", 3)
    (True, True)
    """
    # 13 hex digits are 52 bits: a float holds them exactly, and never rounds up to 1.
    return int(_digest(*words)[:13], 16) / 16**13


def _digest(*words: object) -> str:
    return hashlib.sha256("\n".join(map(str, words)).encode()).hexdigest()


def wilson_lower(right: int, n: int, z: float = 1.959964) -> float:
    """The lower end of Wilson's interval (1927) for a share; 0 where there is nothing to count.

    >>> round(wilson_lower(22, 25), 4)
    0.7004
    """
    if n == 0:
        return 0.0
    share, square = right / n, z * z / n
    spread = z * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return (share + square / 2 - spread) / (1 + square)
