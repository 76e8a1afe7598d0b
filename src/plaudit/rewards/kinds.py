"""Kinds of rewards and of judges, by what their words begin with: rules, and what wings bring.

``judge:WORD`` and the judges ``openai:``, ``model:``, ``call:``, ``jury:`` and ``spread:`` come with the wing
``feedback``. Where that is not installed they are still no functions of a module ``openai`` or ``call``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plaudit.data.judging import Judge
from plaudit.errors import UserError
from plaudit.files.posting import RetryPolicy
from plaudit.rewards.base import Reward
from plaudit.rewards.verifiable.exact import PatternReward, exact, length, mathematics, number, sections
from plaudit.wings import everything, load, refuse_missing

JUDGE_REWARD = "judge:"
"""What the word of a judge that scores answers begins with."""
FEEDBACK = "feedback"
FEEDBACK_JUDGES = ("openai", "model", "call", "jury", "spread")
ADDRESSES = ("http", "https")
COMBINED_WORDS = ("cascade", "blend", "gated")
"""What the words of rewards that are several begin with."""

RewardMaker = Callable[[str, str, str], Reward]
"""From a word, a device and a number type to the reward that is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    device: str = "auto"
    """Of a reward's folder."""
    dtype: str = "auto"
    """The number type of the judge's products."""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    """How a server is asked."""
    cache: Path | None = None
    """Where a server's replies are kept; None is the user's cache folder."""
    noise: int | float = 0.0
    """Of a reward or rule that compares: what the difference of its scores is divided by."""
    soft: bool = False
    """Whether learned rewards and rankers give chances; otherwise the better answer and no more."""
    rewards: Mapping[str, Reward] = field(default_factory=dict[str, Reward])
    """Rewards that are loaded already, by their words; ``gold`` is only here."""
    people: Judge | None = None
    """Who answers for the word ``people``: the label store of whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeKind:
    """What can be done with the words of one kind of judge; a wing brings it as one of its ``judges``."""

    make: Callable[[str, JudgeSettings], Judge]
    check: Callable[[str], None]
    """Refuses a wrong word, before anything is loaded or asked."""
    pieces: Callable[[str], list[str | Path]] = lambda word: [word]
    """A word cut into its paths and the text around them."""
    members: Callable[[str], Sequence[str]] = lambda word: ()
    """Of a kind that is several judges, their words, with paths as they are found from the present folder."""
    model: Callable[[str], str | Path | None] = lambda word: None
    """The model behind a word: its folder, or its name where only that is known."""


def is_judge_word(word: str) -> bool:
    """Whether a word names a judge of a kind that wings bring: a model that is asked, say, or a jury.

    >>> is_judge_word("openai:http://127.0.0.1:8000/v1#small"), is_judge_word("length:1-20")
    (True, False)
    """
    kind, colon, _ = word.partition(":")
    return bool(colon) and (kind in FEEDBACK_JUDGES or kind in everything("judges"))


def judge_kind(word: str) -> JudgeKind:
    """The kind of a judge's word; refuses it where the wing that knows it is missing."""
    return _of_a_wing("judges", word)


def is_reward_word(word: str) -> bool:
    """Whether a word names a reward of a kind that wings bring: a judge that scores answers, say.

    >>> is_reward_word("judge:model:runs/sft"), is_reward_word("length:1-20")
    (True, False)
    """
    kind, colon, _ = word.partition(":")
    return bool(colon) and (word.startswith(JUDGE_REWARD) or kind in everything("rewards"))


def reward_maker(word: str) -> RewardMaker:
    """Who makes the reward of such a word; refuses it where the wing that knows it is missing."""
    return _of_a_wing("rewards", word)


def _of_a_wing(what: str, word: str) -> Any:
    kind = word.partition(":")[0]
    if kind not in everything(what):
        refuse_missing(FEEDBACK, word)
    return load(everything(what)[kind])


def _code_reward() -> Reward:
    from plaudit.rewards.sandbox.sandbox import Sandbox
    from plaudit.rewards.verifiable.code import CodeReward

    return CodeReward(sandbox=Sandbox())


def _instruction_reward(*settings: str) -> Reward:
    from plaudit.rewards.verifiable.instructions import InstructionReward

    return InstructionReward(":".join(["instructions", *settings]))


def _length_reward(text: str) -> Reward:
    match = re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", text)
    if match is None:
        raise UserError(f"length:{text}: give the fewest and the most words, as in {RULE_FORMS['length']}")
    return length(int(match[1]), int(match[2]))


def _pattern_reward(text: str) -> Reward:
    if not text:
        raise UserError(f"pattern: has to be told what to look for, as in {RULE_FORMS['pattern']}")
    return PatternReward(pattern=text)


PLAIN_RULES: Mapping[str, Callable[[], Reward]] = {
    "exact": exact,
    "number": number,
    "mathematics": mathematics,
    "code": _code_reward,
    "instructions": _instruction_reward,
}
PARAMETRISED_RULES: Mapping[str, Callable[[str], Reward]] = {
    "pattern": _pattern_reward,
    "format": lambda text: sections([tag.strip() for tag in text.split(",")]),
    "length": _length_reward,
    "instructions": _instruction_reward,
}
RULE_FORMS = {"pattern": "pattern:REGEX", "format": "format:think,answer", "length": "length:10-50"}


def is_rule(spec: str) -> bool:
    """Whether a word is a rule's, whatever lies in the present folder.

    >>> is_rule("exact"), is_rule("length:1-20"), is_rule("runs/reward")
    (True, True, False)
    """
    kind, colon, _ = spec.partition(":")
    return kind in PARAMETRISED_RULES if colon else spec in PLAIN_RULES


def rule_named(spec: str) -> Reward:
    kind, colon, rest = spec.partition(":")
    return PARAMETRISED_RULES[kind](rest) if colon else PLAIN_RULES[spec]()


def names_function(spec: str) -> bool:
    """Whether a word means a function, ``module:function`` or ``file.py:function``, and nothing else.

    >>> names_function("mine.py:polite"), names_function("pattern:polite"), names_function("exact")
    (True, False, False)
    """
    module, _, name = spec.rpartition(":")
    other = spec.partition(":")[0] in (*PARAMETRISED_RULES, *ADDRESSES, *COMBINED_WORDS)
    other = other or is_judge_word(spec) or is_reward_word(spec)
    return not other and bool(module) and name.isidentifier() and not Path(spec).is_dir()
