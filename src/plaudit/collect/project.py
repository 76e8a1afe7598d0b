"""The settings of a project: a file of some twenty, with defaults that were thought about."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from plaudit.collect.kinds import KINDS, USUAL
from plaudit.collect.refusals import MOST_CHARACTERS, MOST_OF_A_NOTE, FieldError, checked_text
from plaudit.config import did_you_mean, load_yaml, read_values, resolve, to_plain_data
from plaudit.errors import UserError

MOST_ANCHORS = 20
"""How many levels an aspect may have words for."""
MOST_LEASE_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    name: str
    """What the project is called in commands and addresses."""
    ask: str = USUAL
    """The kind of task, by its name in `plaudit.collect.kinds`."""
    question: str = "Which answer is better?"
    """What stands above every task."""
    guidelines: str = ""
    """Of a file of settings, the path of a text; in the store, the text itself. Labels carry its version."""
    scale: tuple[str, ...] = ("slightly", "clearly", "much")
    """How much better an answer may be called, from the middle outwards."""
    ties: bool = True
    """Whether two answers may be called equally good."""
    flags: tuple[str, ...] = ("harmful", "false", "unfinished", "private")
    """What an answer may be reported for."""
    aspects: tuple[str, ...] = ()
    """What is rated, where it is more than the answer as a whole."""
    anchors: tuple[tuple[str, ...], ...] = ()
    """Of each aspect the words of its levels, lowest first; none of one that has points instead."""
    points: int = 5
    """The most points that an answer may be given; the least is 1."""
    overlap: int = 1
    """How many people label each task."""
    most: int | None = None
    """Up to how many where they are divided; two more than the overlap if it is not set. Then a reviewer."""
    gold_rows: str | None = None
    """A file of tasks whose answer is known, mixed in as a check."""
    gold_share: float = 0.05
    """The share of such tasks, where there are any."""
    qualify_rows: str | None = None
    """A file of tasks that a person answers before all others."""
    qualify_n: int = 0
    """How many of them; 0 where nobody has to qualify."""
    qualify_floor: float = 0.65
    """The share of right ones that a person reaches for certain (the low end of Wilson's interval)."""
    qualify_teach: bool = False
    """Whether after each of them the known answer and its reason are shown; no answer is changed then."""
    repeat: float = 0.0
    """The share of a person's own older tasks that are shown again, in the other order."""
    prompt_limit: int | None = None
    """How many tasks of one prompt a person is given at most."""
    lease_minutes: int = 30
    """How long a task waits for a person before somebody else may be given it."""
    text: Literal["plain", "markdown"] = "plain"
    """How texts are shown in the browser: as they are, or as Markdown."""
    groups: tuple[tuple[str, ...], ...] = ()
    """What people are asked of themselves, and may decline to say: each a name and its values."""
    upsetting: tuple[str, ...] = ()
    """Categories of tasks that are shown only after a click, and that a person may decline."""
    talks_to: str | None = None
    """The server that conversations are held with: ``http://127.0.0.1:8000/v1#model``."""
    seed: int = 0
    """What orders and draws begin with."""

    def __post_init__(self) -> None:
        # Refuse texts that a database or a page could not hold: the settings are shown with every task.
        for field in fields(Project):
            value = getattr(self, field.name)
            most = MOST_CHARACTERS if field.name == "guidelines" else MOST_OF_A_NOTE
            for text in value if isinstance(value, tuple) else (value,):
                for words in text if isinstance(text, tuple) else (text,):
                    if isinstance(words, str):
                        checked_text(field.name, words, most=most, empty=not isinstance(value, tuple))
        for error in _faults(self):
            raise UserError(f"project {self.name!r}: {error}")

    @property
    def limit(self) -> int:
        """Up to how many people label a task on which they are divided."""
        return self.overlap + 2 if self.most is None else self.most

    def words_of(self, aspect: str) -> tuple[str, ...]:
        """The words of an aspect's levels, lowest first; none where it is rated in points.

        >>> Project(name="p", aspects=("layout",), anchors=(("Poor", "Good"),)).words_of("layout")
        ('Poor', 'Good')
        """
        return dict(zip(self.aspects, self.anchors, strict=False)).get(aspect, ())

    @property
    def values_of_groups(self) -> dict[str, tuple[str, ...]]:
        """What people may say of themselves, by the names of the groups.

        >>> Project(name="p", groups=(("region", "north", "south"),)).values_of_groups
        {'region': ('north', 'south')}
        """
        return {name: tuple(values) for name, *values in self.groups}

    def levels(self, aspect: str) -> int:
        """The most points of an aspect: as many as it has words, or else those of the project."""
        return len(self.words_of(aspect)) or self.points


def _faults(project: Project) -> list[str]:
    shares = (project.gold_share, project.repeat, project.qualify_floor)
    counts = [len(words) for words in project.anchors]
    misanchored = (
        len(counts) not in (0, len(project.aspects))
        or any(not 2 <= count <= MOST_ANCHORS for count in counts if count)
        or any(len(set(words)) < len(words) for words in project.anchors)
    )
    conditions = {
        "a name is letters, digits, '-', '_' or '.', at most 60 of them": not _is_name(project.name),
        f"ask is one of {', '.join(KINDS)}, got {project.ask!r}{did_you_mean(project.ask, KINDS)}": (
            project.ask not in KINDS
        ),
        "scale has 1 to 10 words, each once": not 0 < len(set(project.scale)) == len(project.scale) <= 10,
        "flags, aspects and upsetting categories are named once each": any(
            len(set(names)) < len(names) for names in (project.flags, project.aspects, project.upsetting)
        ),
        "points is 2 to 100": not 2 <= project.points <= 100,
        f"groups are names without '=', each once, with 2 to {MOST_ANCHORS} values, each once": (
            len(project.values_of_groups) < len(project.groups)
            or any("=" in name for name in project.values_of_groups)
            or any(not 2 <= len({*v}) == len(v) <= MOST_ANCHORS for v in project.values_of_groups.values())
        ),
        f"anchors has the words of each aspect: of none, or of 2 to {MOST_ANCHORS}, each once": misanchored,
        "overlap is 1 to 100": not 1 <= project.overlap <= 100,
        "most is at least the overlap": project.limit < project.overlap,
        "shares (gold_share, repeat, qualify_floor) are from 0 to 1": any(not 0 <= s <= 1 for s in shares),
        "gold_share and repeat leave room for work: together below 1": project.gold_share + project.repeat
        > 1,
        "qualify_n is 0 to 1000": not 0 <= project.qualify_n <= 1000,
        "prompt_limit is at least 1": project.prompt_limit is not None and project.prompt_limit < 1,
        f"lease_minutes is 1 to {MOST_LEASE_MINUTES}": not 1 <= project.lease_minutes <= MOST_LEASE_MINUTES,
        f"{' and '.join(_TALKING)} need talks_to, a server": project.ask in _TALKING
        and not (project.talks_to or "").startswith(("http://", "https://")),
    }
    return [words for words, broken in conditions.items() if broken]


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 60 and all(letter.isalnum() or letter in "-_." for letter in name)


LEAST_IN_A_GROUP = 5
"""Of fewer people no figure is printed: it would be one of somebody."""


def large_enough(counts: Mapping[str, int]) -> set[str]:
    """The groups of which figures may be told; with one left out also the next, or what is left tells it.

    >>> sorted(large_enough({"north": 9, "south": 6, "": 2})), sorted(large_enough({"north": 9, "south": 6}))
    (['north'], ['north', 'south'])
    """
    shown = {name for name, count in counts.items() if count >= LEAST_IN_A_GROUP}
    rest = sum(counts[name] for name in counts.keys() - shown)
    if 0 < rest < LEAST_IN_A_GROUP and shown:
        shown.remove(min(shown, key=lambda name: (counts[name], name)))
    return shown


_TALKING = tuple(kind.name for kind in KINDS.values() if kind.conversation is not None)


_GROUPS = {
    "gold": {"rows": "gold_rows", "share": "gold_share"},
    "qualify": {"rows": "qualify_rows", "n": "qualify_n", "floor": "qualify_floor", "teach": "qualify_teach"},
}
"""Settings that a file may group: ``gold: {rows: gold.jsonl, share: 0.05}``."""
_OTHER_WORDS = {"project": "name"}


def read_project(path: Path) -> Project:
    """The settings of a file; guidelines and rows are named relative to it."""
    loaded, node = load_yaml(path)
    project = parse_settings(_with_words(loaded, node), str(path))
    # The text and not its path: people must go on reading it when the file has changed or is gone.
    try:
        text = (path.parent / project.guidelines).read_text("utf-8") if project.guidelines else ""
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: guidelines: {project.guidelines} cannot be read ({error}); name a text file"
        ) from error
    paths = {
        name: None if value is None else str(path.parent / value)
        for name, value in (("gold_rows", project.gold_rows), ("qualify_rows", project.qualify_rows))
    }
    return replace(project, guidelines=text, **paths)


def _with_words(loaded: object, node: Any) -> object:
    # Settings whose lists of words hold them as written: in ``flags: [false]`` YAML sees no word.
    if not isinstance(loaded, Mapping) or node is None:
        return loaded
    words = dict(loaded)
    for key, value in node.value:
        if key.value in ("scale", "flags", "aspects", "upsetting", "groups"):
            words[key.value] = _as_written(words[key.value], value)
    return words


def _as_written(value: object, node: Any) -> object:
    # A word, a list of words, or lists by name, with the words that YAML takes for truths as they stand.
    if isinstance(value, list):
        return [_as_written(item, part) for item, part in zip(value, node.value, strict=True)]
    if isinstance(value, Mapping):
        parts = zip(value.items(), node.value, strict=True)
        return {_as_written(name, key): _as_written(item, part) for (name, item), (key, part) in parts}
    return node.value if isinstance(value, bool) else value


def parse_settings(settings: object, where: str, *, exact: bool = False) -> Project:
    """The settings that somebody sent; an unknown one is refused with the nearest known.

    With ``exact`` so is what a file may write as another type, such as a number as a text.

    >>> parse_settings({"project": "p", "gold": {"share": 0.1}}, "p.yaml").gold_share
    0.1
    """
    named = _in_one_way(settings, where) if isinstance(settings, Mapping) else settings
    if isinstance(named, Mapping) and "name" not in named:
        raise UserError(f"{where}: project: expected a name, found nothing; write project: NAME")
    project = resolve(Project, read_values(named, Project, where), {})
    if exact and isinstance(named, Mapping):
        _refuse_converted(named, project, where)
    return project


def _refuse_converted(named: Mapping[Any, object], project: Project, where: str) -> None:
    for name, value in named.items():
        meant = to_plain_data(getattr(project, name))
        if value is not None and (meant != value or isinstance(meant, bool) != isinstance(value, bool)):
            raise FieldError(field=f"{where}.{name}", found=repr(value)[:200], expected=f"{meant!r}"[:200])


def _in_one_way(settings: Mapping[object, object], where: str) -> dict[object, object]:
    # Settings under the names that the record has for them, whichever a file used.
    named: dict[object, object] = {}
    for word, value in settings.items():
        if isinstance(word, str) and word in _GROUPS and isinstance(value, Mapping):
            found = _members(word, value, where)
        elif word == "aspects" and isinstance(value, Mapping):
            found = _anchored(value, where)
        elif word == "groups" and isinstance(value, Mapping):
            found = {"groups": [[name, *(v if isinstance(v, list) else [v])] for name, v in value.items()]}
        else:
            plain = word.replace("-", "_") if isinstance(word, str) else word
            found = {_OTHER_WORDS.get(plain, plain) if isinstance(plain, str) else plain: value}
        if twice := named.keys() & found.keys():
            raise UserError(f"{where}: {', '.join(map(str, twice))} is set twice; leave one out")
        named |= found
    return named


def _members(group: str, values: Mapping[object, object], where: str) -> dict[object, object]:
    known = _GROUPS[group]
    for word in values:
        if word not in known:
            hint = did_you_mean(str(word), known) or f"; known are {', '.join(known)}"
            raise UserError(f"{where}: unknown key {group}.{word}{hint}")
    return {known[str(word)]: value for word, value in values.items()}


def _anchored(aspects: Mapping[object, object], where: str) -> dict[object, object]:
    # Aspects by name with the words of their levels; null, or no words, of those that have points.
    for name, words in aspects.items():
        if words is None or words == []:
            continue
        is_scale = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if (
            not isinstance(words, list)
            or not is_scale
            or not 2 <= len({*words}) == len(words) <= MOST_ANCHORS
        ):
            raise UserError(
                f"{where}: aspects.{name}: expected 2 to {MOST_ANCHORS} words, one for each level from the "
                f"lowest up, each once, got {words!r}; null rates the aspect in points"
            )
    return {"aspects": [*aspects], "anchors": [words or [] for words in aspects.values()]}


def project_to_dict(project: Project) -> dict[str, Any]:
    return to_plain_data(project)


def project_from_dict(settings: Mapping[str, Any]) -> Project:
    """The settings that a log holds; one that this version does not know is refused in words."""
    known = {field.name for field in fields(Project)}
    if unknown := sorted({*settings} - known):
        raise UserError(
            f"project {settings.get('name')!r} has settings that this plaudit does not know: "
            f"{', '.join(unknown)}; use the newer one that wrote them"
        )
    return parse_settings(settings, f"project {settings.get('name')!r}")


def guidelines_version(project: Project) -> str:
    """A short name of the guidelines' words; empty where there are none.

    >>> guidelines_version(Project(name="p", guidelines="Be kind."))
    '5499befb38db'
    """
    if not project.guidelines:
        return ""
    return hashlib.sha256(project.guidelines.encode()).hexdigest()[:12]
