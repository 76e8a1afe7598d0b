"""A reward by one word of the command line: a folder, a rule, an address, a function of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.endpoint import EndpointReward
from plaudit.rewards.pattern import PatternReward
from plaudit.rewards.reward import Reward, Row
from plaudit.rewards.step_pay import StepRow, lines_of
from plaudit.rewards.verifiable import exact, length, mathematics, number, sections

_CAN_HAVE = ("prompt", "answer", "ended", "truth", "facts", "steps")
_MUST_TAKE = ("answer",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnReward:
    """A function of the user's own, called with whichever of prompt, answer, ended, truth and facts it takes.

    ``steps``, the answer's lines that hold a word, is there too. Asked for whole answers the function gives
    a number; asked for steps a number for each of them.

    Example: ``OwnReward(name="mine.py:polite", function=polite)``
    """

    name: str
    """What tables and pages call it."""
    function: Callable[..., object]
    """To a finite number, or to one for each step; None where it has no verdict."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called so."""
        taken_by(self.name, self.function, _CAN_HAVE, needed=_MUST_TAKE)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task."""
        return tuple(
            tuple(self._score(task, n, place) for place in range(len(task.answers)))
            for n, task in enumerate(tasks, 1)
        )

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[StepRow, ...]:
        """A row for each task: a number for each step of every answer; nothing is known of their odds."""
        del odds
        return tuple(
            tuple(self._steps(task, n, place) for place in range(len(task.answers)))
            for n, task in enumerate(tasks, 1)
        )

    def _score(self, task: Task, n: int, place: int) -> float | None:
        where, said = self._said(task, n, place)
        if said is None:
            return None
        score = _number_of(said)
        if not math.isfinite(score):
            steps = " (a number for each step needs --process.pay)" if isinstance(said, list | tuple) else ""
            raise UserError(
                f"{where}: it gave {said!r}; a score is a finite number, or None for no verdict{steps}"
            )
        return score

    def _steps(self, task: Task, n: int, place: int) -> tuple[float, ...] | None:
        where, said = self._said(task, n, place)
        if said is None:
            return None
        scores = _numbers_of(said)
        wanted = len(lines_of(task.answers[place]))
        if scores is None or len(scores) != wanted or not all(map(math.isfinite, scores)):
            raise UserError(
                f"{where}: it gave {said!r}; asked for steps it gives a list of finite numbers, one for each "
                f"line that holds a word ({wanted} here), or None for no verdict"
            )
        return scores

    def _said(self, task: Task, n: int, place: int) -> tuple[str, object]:
        """Who was asked about what, and what it gave."""
        takes = taken_by(self.name, self.function, _CAN_HAVE, needed=_MUST_TAKE)
        answer = task.answers[place]
        has = {
            "prompt": task.prompt,
            "answer": answer,
            "ended": task.ended[place],
            "truth": task.truth,
            "facts": task.facts,
            "steps": lines_of(answer),
        }
        where = f"{self.name}, prompt {n} ({words(task.prompt)[:40]!r}), answer {words(answer)[:40]!r}"
        return where, asked(where, self.function, {name: has[name] for name in takes})


def asked(where: str, function: Callable[..., object], told: Mapping[str, object]) -> object:
    """What a function of the user's says; whatever it raises is told with the place it was raised at."""
    try:
        return function(**told)
    # Nobody knows what it raises.
    except Exception as error:
        raise UserError(f"{where}: it raised {type(error).__name__}: {error}") from error


def _numbers_of(said: object) -> tuple[float, ...] | None:
    """What was said as several numbers; None where it is not several."""
    if isinstance(said, str) or not isinstance(said, Iterable):
        return None
    several: Iterable[object] = said
    try:
        return tuple(map(_number_of, several))
    # A tensor without dimensions is iterable by its type alone.
    except TypeError:
        return None


def _number_of(said: object) -> float:
    """What was said as a number; not a number where it is none."""
    if not hasattr(said, "__float__") or isinstance(said, str):
        return math.nan
    try:
        return float(said)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def reward_named(word: str) -> Reward:
    """The reward of a word: a folder, a rule's name, ``http://…``, ``module:function``, ``file.py:function``.

    >>> reward_named("exact").name, reward_named("length:1-20").name
    ('exact', 'length:1-20')
    """
    if word.startswith(("http://", "https://")):
        return EndpointReward(url=word)
    kind, colon, rest = word.partition(":")
    if not colon and word in _PLAIN:
        return _PLAIN[word]()
    if colon and kind in _TOLD:
        return _TOLD[kind](rest)
    if word and Path(word).is_dir():
        # Models are slow to import, and no rule needs them.
        from plaudit.rewards.folder import load_reward

        return load_reward(Path(word))
    if is_function(word):
        return OwnReward(name=word, function=function_named(word))
    raise UserError(_unknown(word, kind))


def is_function(word: str) -> bool:
    """Whether a word means a function, ``module:function`` or ``file.py:function``, and nothing else.

    >>> is_function("mine.py:polite"), is_function("pattern:polite"), is_function("exact")
    (True, False, False)
    """
    module, _, name = word.rpartition(":")
    other = word.startswith(("http://", "https://")) or word.partition(":")[0] in _TOLD
    return not other and bool(module) and name.isidentifier() and not Path(word).is_dir()


def _unknown(word: str, kind: str) -> str:
    if word in _TOLD:
        return f"{word} has to be told what: {_FORMS[word]}"
    if os.sep in word or word.startswith("."):
        return f"{word}: no such folder, and no other reward is written like this. There is {_there_is()}"
    return f"there is no reward {word!r}.{_hint(kind)} There is {_there_is()}"


def _hint(kind: str) -> str:
    near = get_close_matches(kind, [*_PLAIN, *_TOLD], n=1)
    return f" Did you mean {_FORMS.get(near[0], near[0])}?" if near else ""


def _there_is() -> str:
    return ", ".join(
        [*_PLAIN, *_FORMS.values(), "http://…", "a reward's folder, module:function and file.py:function"]
    )


def _code() -> Reward:
    from plaudit.rewards.code import CodeReward
    from plaudit.rewards.sandbox import Sandbox

    return CodeReward(sandbox=Sandbox())


def _length(rest: str) -> Reward:
    found = re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", rest)
    if found is None:
        raise UserError(f"length:{rest}: give the fewest and the most words, as in {_FORMS['length']}")
    return length(int(found[1]), int(found[2]))


def _sections(rest: str) -> Reward:
    return sections([tag.strip() for tag in rest.split(",")])


def _pattern(rest: str) -> Reward:
    if not rest:
        raise UserError(f"pattern: has to be told what to look for, as in {_FORMS['pattern']}")
    return PatternReward(pattern=rest)


_PLAIN: Mapping[str, Callable[[], Reward]] = {
    "exact": exact,
    "number": number,
    "mathematics": mathematics,
    "code": _code,
}
_TOLD: Mapping[str, Callable[[str], Reward]] = {"pattern": _pattern, "format": _sections, "length": _length}
_FORMS = {"pattern": "pattern:REGEX", "format": "format:think,answer", "length": "length:10-50"}


def function_named(word: str) -> Callable[..., object]:
    """The function of ``module:function`` or ``file.py:function``.

    >>> function_named("math:sqrt")(4.0)
    2.0
    """
    module, _, name = word.rpartition(":")
    if not module or not name.isidentifier():
        raise UserError(f"{word!r} is no function; name it as module:function or file.py:function")
    return _function(word, module, name)


def _function(word: str, module: str, name: str) -> Callable[..., object]:
    try:
        home = _from_file(Path(module)) if module.endswith(".py") else _imported(module)
        found = getattr(home, name)
    except (ImportError, AttributeError, SyntaxError, OSError, ValueError) as error:
        raise UserError(
            f"{word!r} cannot be imported: {error}; modules are looked for in the present folder and among "
            f"those installed.{_hint(module)}"
        ) from error
    if not callable(found):
        raise UserError(f"{word!r} is a {type(found).__name__}, and a function is needed")
    return found


def _imported(module: str) -> ModuleType:
    if not {"", os.getcwd()} & {*sys.path}:
        # An installed command does not look in the present folder, where a user's own module lies.
        sys.path.append(os.getcwd())
    return importlib.import_module(module)


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def taken_by(
    name: str, function: Callable[..., object], has: tuple[str, ...], *, needed: tuple[str, ...]
) -> tuple[str, ...]:
    """Which of what there is a function takes; one that does not take what it is asked about is refused.

    >>> taken_by("mine", lambda answer, seed=0: 0, ("prompt", "answer"), needed=("answer",))
    ('answer',)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: it does not say what it takes: {error}") from error
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return has
    wanted = [
        one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    ]
    strange = [one for one in wanted if one not in has or one not in [own.name for own in named]]
    takes = tuple(one.name for one in named if one.name in has)
    lacking = [one for one in needed if one not in takes]
    if strange or lacking:
        lacks = f"it does not take the {' and the '.join(lacking)}"
        wrong = f"{', '.join(strange)} it cannot have" if strange else lacks
        raise UserError(f"{name}: {wrong}; it is called by name with any of {', '.join(has)}")
    return takes
