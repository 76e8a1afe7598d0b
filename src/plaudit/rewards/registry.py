"""A reward by one word of the command line: a folder, a rule, an address, a function of the user's own."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from plaudit.config import did_you_mean
from plaudit.data.records import Task, plain_text, turns_of
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.files.user_code import accepted_arguments, call_user_function, import_user_module, line_in
from plaudit.rewards import kinds
from plaudit.rewards.base import Reward, RewardTraits, TaskScores
from plaudit.rewards.http import EndpointReward
from plaudit.rewards.learned.process import TaskStepScores, step_lines
from plaudit.wings import everything

_ALLOWED_ARGUMENTS = ("prompt", "answer", "ended", "reference_answer", "metadata", "steps", "messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunctionReward:
    """A function of the user's own, called with whichever of its arguments it takes.
    There are prompt and answer (their words), ended, reference_answer, metadata (the rest of its row), steps
    (the answer's lines that hold a word) and messages (the prompt's turns). Asked for whole answers the
    function gives a number; asked for steps a number for each of them."""

    name: str
    function: Callable[..., object]
    """To a finite number, or to one for each step; None where it has no verdict."""
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)

    def __post_init__(self) -> None:
        accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=("answer",))

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(
            tuple(self._score(task, n, place) for place in range(len(task.answers)))
            for n, task in enumerate(tasks, 1)
        )

    def step_scores(self, tasks: Sequence[Task], *, odds: bool = False) -> tuple[TaskStepScores, ...]:
        """A row for each task: a number for each step of every answer; nothing is known of their odds."""
        return tuple(
            tuple(self._step_scores(task, n, place) for place in range(len(task.answers)))
            for n, task in enumerate(tasks, 1)
        )

    def _score(self, task: Task, n: int, place: int) -> float | None:
        where, value = self._call_function(task, n, place)
        if value is None:
            return None
        score = _as_number(value)
        if not math.isfinite(score):
            steps = " (a number for each step needs --process.pay)" if isinstance(value, list | tuple) else ""
            raise UserError(
                f"{where}: it gave {value!r}; a score is a finite number, or None for no verdict{steps}"
            )
        return score

    def _step_scores(self, task: Task, n: int, place: int) -> tuple[float, ...] | None:
        where, value = self._call_function(task, n, place)
        if value is None:
            return None
        scores = _as_numbers(value)
        expected = len(step_lines(task.answers[place]))
        if scores is None or len(scores) != expected or not all(map(math.isfinite, scores)):
            raise UserError(
                f"{where}: it gave {value!r}; asked for steps it gives a list of finite numbers, one for "
                f"each line that holds a word ({expected} here), or None for no verdict"
            )
        return scores

    def _call_function(self, task: Task, n: int, place: int) -> tuple[str, object]:
        accepted = accepted_arguments(self.name, self.function, _ALLOWED_ARGUMENTS, required=("answer",))
        answer = task.answers[place]
        available = {
            # Words, also of conversations: `"duck" in prompt` of a tuple of turns would be False in silence.
            "prompt": plain_text(task.prompt),
            "answer": plain_text(answer),
            "ended": task.ended[place],
            "reference_answer": task.reference_answer,
            "metadata": task.metadata,
            "steps": step_lines(answer),
            "messages": turns_of(task.prompt),
        }
        prompt, answered = (plain_text(text)[:40] for text in (task.prompt, answer))
        where = f"{self.name}, prompt {n} ({prompt!r}), answer {answered!r}"
        return where, call_user_function(where, self.function, {name: available[name] for name in accepted})


def _as_numbers(value: object) -> tuple[float, ...] | None:
    # A text is iterable too, letter by letter.
    if isinstance(value, str) or not isinstance(value, Iterable):
        return None
    several: Iterable[object] = value
    try:
        return tuple(map(_as_number, several))
    # A tensor without dimensions is iterable by its type alone.
    except TypeError:
        return None


def _as_number(value: object) -> float:
    if not hasattr(value, "__float__") or isinstance(value, str):
        return math.nan
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def resolve_reward(spec: str, *, device: str = "auto", dtype: str = "auto") -> Reward:
    """The reward of a word: a folder, a rule's name, ``http://…``, ``module:function``, ``file.py:function``.

    ``device`` and ``dtype`` are those of a folder's models.

    >>> resolve_reward("exact").name, resolve_reward("length:1-20").name
    ('exact', 'length:1-20')
    """
    kind, colon, _ = spec.partition(":")
    if kinds.is_rule(spec):
        return kinds.rule_named(spec)
    if kind in _OTHER_SOURCES and colon:
        return _OTHER_SOURCES[kind](spec, device, dtype)
    if kinds.is_reward_word(spec):
        return kinds.reward_maker(spec)(spec, device, dtype)
    folder = hub.local_path(spec, "model")
    if spec and folder.is_dir():
        # Models are slow to import, and no rule needs them.
        from plaudit.rewards.load import load_reward

        return load_reward(folder, device=device, dtype=dtype)
    if kinds.names_function(spec):
        found = resolve_object(spec)
        if isinstance(found, Reward) and not isinstance(found, type):
            return found
        return UserFunctionReward(name=spec, function=_as_function(spec, found))
    raise UserError(_unknown_reward_message(spec, kind))


def _combined_reward(word: str, device: str, dtype: str) -> Reward:
    from plaudit.rewards.combine.by_name import combined_by_name
    from plaudit.rewards.word_files import refuse_circle, word_from

    refuse_circle(word)
    folder = Path(word.partition(":")[2]).parent
    return combined_by_name(
        word, lambda member: resolve_reward(word_from(member, folder), device=device, dtype=dtype)
    )


def _unknown_reward_message(spec: str, kind: str) -> str:
    if kinds.is_judge_word(spec):
        kinds.judge_kind(spec)
        return (
            f"{spec} is a judge. As a reward it is judge:{spec}, which gives points to each answer "
            "(docs/ai-feedback.md); as it is, it can be the judge of `eval policy --judge`, `eval reward`, "
            "`train rlhf --comparisons`. For scores from a server of your own give http://… (docs/rewards.md "
            "has its protocol) or a function, file.py:function"
        )
    if spec in kinds.PARAMETRISED_RULES:
        return f"{spec} has to be told what: {kinds.RULE_FORMS[spec]}"
    if spec.endswith(".py"):
        return f"{spec} is a file of Python: say which function of it is the reward, {spec}:NAME"
    if os.sep in spec or spec.startswith("."):
        return (
            f"{spec}: no such folder, and no other reward is written like this. There is "
            f"{_available_rewards()}"
        )
    return f"there is no reward {spec!r}.{_spelling_suggestion(kind)} There is {_available_rewards()}"


def _spelling_suggestion(kind: str) -> str:
    near = get_close_matches(kind, [*kinds.PLAIN_RULES, *kinds.PARAMETRISED_RULES], n=1)
    return f" Did you mean {kinds.RULE_FORMS.get(near[0], near[0])}?" if near else ""


def _available_rewards() -> str:
    return ", ".join(
        [
            *kinds.PLAIN_RULES,
            *kinds.RULE_FORMS.values(),
            *(f"{kind}:WORD" for kind in everything("rewards")),
            "cascade:FILE, blend:FILE and gated:FILE",
            "http://…",
            "a reward's folder, module:function and file.py:function",
        ]
    )


_OTHER_SOURCES: Mapping[str, Callable[[str, str, str], Reward]] = {
    **dict.fromkeys(kinds.ADDRESSES, lambda word, device, dtype: EndpointReward(url=word)),
    **dict.fromkeys(kinds.COMBINED_WORDS, _combined_reward),
}


def resolve_function(spec: str) -> Callable[..., object]:
    return _as_function(spec, resolve_object(spec))


def resolve_object(spec: str) -> object:
    """What ``module:name`` or ``file.py:name`` names: a function, or a `Reward` that was made there."""
    module, _, name = spec.rpartition(":")
    if not module or not name.isidentifier():
        raise UserError(f"{spec!r} is no function; name it as module:function or file.py:function")
    if module.endswith(".py") and not Path(module).exists():
        raise UserError(f"{spec}: there is no file {module}")
    try:
        loaded = import_user_module(module)
    except UserError:
        raise
    # Nobody knows what its first lines raise.
    except Exception as error:
        known = isinstance(error, ImportError | SyntaxError | OSError)
        message = str(error) if known else f"{type(error).__name__}: {error}{line_in(error, module)}"
        raise UserError(f"{spec!r} cannot be imported: {message}{_import_advice(module)}") from error
    if not hasattr(loaded, name):
        raise UserError(f"{spec}: there is no {name!r} in {module}{_near_function(name, loaded)}")
    return getattr(loaded, name)


def _import_advice(module: str) -> str:
    if module.endswith(".py"):
        return ""
    return (
        "; modules are looked for in the present folder and among those installed."
        f"{_spelling_suggestion(module)}"
    )


def _near_function(name: str, module: ModuleType) -> str:
    here = [
        word for word, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    near = did_you_mean(name, vars(module))
    return near or (f"; it has {', '.join(here[:8])}{', …' if here[8:] else ''}" if here else "")


def _as_function(spec: str, found: object) -> Callable[..., object]:
    if not callable(found):
        raise UserError(f"{spec!r} is a {type(found).__name__}, and a function is needed")
    return found
