r"""Rewards that know: an answer is compared with the reference answer of its row, or with a form.

All of them give 1.0 for right and 0.0 for wrong. Where there is nothing to compare with, there is no verdict
(None, and a reason), which is never 0. Results may be marked as such by ``\boxed{…}``, ``#### …`` or
``<answer>…</answer>``; without a mark each rule says what it reads.

A regular expression is matched in a process of its own, so that none can hang a run. Some expressions take
exponentially long on some texts, and a policy that is being optimised finds them. Whether an expression can
is not decidable by a look at it, so time decides: an answer on which it takes longer than a match takes has
no verdict.
"""

import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError, located
from plaudit.rewards.base import NO_TRUTH, RewardTraits, RuleReward, ScoreOrReason, TaskScores, binary_score
from plaudit.rewards.verifiable.math import equivalent

MAX_TAIL_CHARACTERS = 20_000
"""Characters that are looked at, counted from the end: the result stands there."""
_MAX_DIGITS = 400
"""The most characters of a number that is read; longer ones are no results and take long."""

_NOT_RAISED = re.compile("[^⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ]+")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_OPENED, _CLOSED = (re.compile(tag, re.IGNORECASE) for tag in ("<answer>", "</answer>"))
_PHRASE = re.compile(r"\b(?:final answer|answer|result)\s*(?:is|:|=)\s*:?\s*", re.IGNORECASE)
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
# Not after a letter, digit or point: the 2 of x2 or v1.2 is no number, and the minus of 7-4 no sign.
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>[-+−]?)\s?[$€£]?(?:\\[dt]?frac\{{(?P<over>\d+)\}}\{{(?P<under>\d+)\}}"
    rf"|(?P<top>{_UNSIGNED})(?:[eE](?P<power>[-+]?\d{{1,3}})(?!\w)|\s?/\s?(?P<bottom>\d+(?:\.\d+)?))?)"
    r"\s?(?P<percent>\\?%)?"
)


def marked_result(answer: str) -> str | None:
    r"""What the answer marks as its result: the last \boxed{…}, <answer>…</answer>, or the line after ####.

    >>> marked_result(r"So \boxed{\frac{1}{2}}."), marked_result("2 + 2 = 4\n#### 4"), marked_result(
    ...     "perhaps 4")
    ('\\frac{1}{2}', '4', None)
    """
    tail = answer[-MAX_TAIL_CHARACTERS:]
    tagged = _last_tagged(tail)
    tail = tail if tagged is None else tagged
    boxes = list(_BOXED.finditer(tail))
    if boxes:
        # Up to the brace that closes the box; None where there is none.
        start = boxes[-1].end()
        depth = 1
        for at in range(start, len(tail)):
            depth += {"{": 1, "}": -1}.get(tail[at], 0)
            if depth == 0:
                return tail[start:at].strip()
        return None
    if "####" in tail:
        after = tail.rpartition("####")[2].strip()
        return after.splitlines()[0].strip() if after else None
    return None if tagged is None else tail.strip()


def final_result(answer: str) -> str:
    """The marked result; without a mark what stands after "the answer is", or else the last line.

    >>> final_result("First 3.\\nThe answer is 4."), final_result("4"), final_result("<answer> 5 </answer>")
    ('4', '4', '5')
    """
    mark = marked_result(answer)
    if mark is not None:
        return mark
    lines = [line.strip() for line in answer[-MAX_TAIL_CHARACTERS:].splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    phrases = list(_PHRASE.finditer(last))
    return (last[phrases[-1].end() :] if phrases else last).strip().rstrip(".").strip()


def last_number(text: str) -> tuple[Fraction, bool] | None:
    """The last number of a text, exactly, and whether a percent sign follows it.

    >>> last_number("of 1,200 it is -3/4"), last_number("12.5%"), last_number("none")
    ((Fraction(-3, 4), False), (Fraction(25, 2), True), None)
    """
    matches = list(_NUMBER.finditer(text[-MAX_TAIL_CHARACTERS:]))
    match = matches[-1] if matches else None
    if match is None or len(match.group()) > _MAX_DIGITS:
        return None
    top = Fraction((match["over"] or match["top"]).replace(",", ""))
    bottom = Fraction(match["under"] or match["bottom"] or 1)
    if not bottom:
        return None
    value = top / bottom * Fraction(10) ** int(match["power"] or 0)
    return (-value if match["sign"] in ("-", "−") else value), match["percent"] is not None


def _last_tagged(text: str) -> str | None:
    # Cut at the closing tags: an expression for the pair would look for the end from each of many beginnings.
    for part in reversed(_CLOSED.split(text)[:-1]):
        opened = _OPENED.search(part)
        if opened:
            return part[opened.end() :]
    return None


def exact() -> RuleReward:
    """1.0 where the answer, or its marked result, is the truth but for spaces and capitals."""

    def check(answer: str, task: Task) -> ScoreOrReason:
        if task.reference_answer is None:
            return NO_TRUTH
        truth = normalise_text(task.reference_answer)
        return binary_score(truth in map(normalise_text, (answer, marked_result(answer) or answer)))

    return RuleReward(name="exact", check=check)


def number(tolerance: int | float = 1e-6) -> RuleReward:
    """1.0 where the marked result, or else the last number of the answer, is the truth's number.
    Thousands' commas, decimals, fractions, powers of ten and percent are read. ``tolerance`` is relative to
    the truth where that is above 1, absolute below. Where only one of the two has a percent sign, it may mean
    hundredths or be a mere unit: both readings are taken. An answer without a number is wrong."""
    if not tolerance >= 0:
        raise UserError(f"number: a tolerance of {tolerance}; use 0 or more")

    def check(answer: str, task: Task) -> ScoreOrReason:
        if task.reference_answer is None:
            return NO_TRUTH
        truth = last_number(marked_result(task.reference_answer) or task.reference_answer)
        if truth is None:
            return "the reference answer holds no number"
        value = last_number(marked_result(answer) or answer)
        return binary_score(value is not None and _numbers_match(value, truth, tolerance))

    return RuleReward(name="number", check=check)


def mathematics() -> RuleReward:
    r"""1.0 where the result is mathematically the same as the truth: ½, 0.5, \frac{2}{4} and \sqrt{1/4}.
    The result is what is marked, or stands after "the answer is", or is the last line. Nothing is rounded:
    1.41 is not √2 (`number` compares with a tolerance). An answer that cannot be read as mathematics is
    wrong; a truth that cannot be read gives a verdict only where both are the same text.

    >>> asked = Task(prompt="?", answers=(r"\boxed{\frac{1}{2}}", "x = 2"), ended=(True, True),
    ...     reference_answer="0.5")
    >>> mathematics().scores([asked])
    ((1.0, 0.0),)
    """

    def check(answer: str, task: Task) -> ScoreOrReason:
        if task.reference_answer is None:
            return NO_TRUTH
        truth = marked_result(task.reference_answer) or task.reference_answer
        result = final_result(answer)
        if normalise_text(truth) == normalise_text(result):
            return binary_score(True)
        same = equivalent(result, truth)
        return "the reference answer cannot be read as mathematics" if same is None else binary_score(same)

    return RuleReward(name="mathematics", check=check)


def sections(tags: Sequence[str]) -> RuleReward:
    """1.0 where the answer is exactly these tagged sections, in this order and none of them empty.
    Guo et al. 2025 (DeepSeek-R1, arXiv:2501.12948) reward thoughts and answer in sections of their own. A tag
    of the list that occurs again, inside or outside, makes it wrong."""
    if not tags or len({*tags}) < len(tags) or not all(tag.isidentifier() for tag in tags):
        raise UserError(f"format:{','.join(tags)}: give different words for tags, as in format:think,answer")

    def check(answer: str, _: Task) -> ScoreOrReason:
        rest = answer.strip()
        for tag in tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            inside, _closed, after = rest.removeprefix(opening).partition(closing)
            occurs_once = answer.count(opening) == answer.count(closing) == 1
            if not (occurs_once and rest.startswith(opening) and inside.strip()):
                return binary_score(False)
            rest = after.strip()
        return binary_score(not rest)

    return RuleReward(name=f"format:{','.join(tags)}", check=check)


def length(least: int, most: int) -> RuleReward:
    """1.0 for an answer of at least ``least`` and at most ``most`` words, as spaces divide them."""
    if not 0 <= least <= most:
        raise UserError(f"length:{least}-{most}: give the fewest and the most words, as in length:10-50")

    def check(answer: str, _: Task) -> ScoreOrReason:
        return binary_score(least <= len(answer.split()) <= most)

    return RuleReward(name=f"length:{least}-{most}", check=check)


def normalise_text(text: str) -> str:
    """A text without what is mere writing: one space for any, no capitals, one form of each sign.

    >>> normalise_text("  The\\n OWL "), normalise_text("１０²")
    ('the owl', '10²')
    """
    # NFKC would make the 2 of 10² a digit, and so 102 of it.
    folded = _NOT_RAISED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return " ".join(folded.casefold().split())


def _numbers_match(
    answer: tuple[Fraction, bool], truth: tuple[Fraction, bool], tolerance: int | float
) -> bool:
    (value, percent), (expected, as_percent) = answer, truth
    candidates = [(value, expected)]
    if percent and not as_percent:
        candidates.append((value / 100, expected))
    if as_percent and not percent:
        candidates.append((value, expected / 100))
    # As Fractions throughout: with a tolerance of 0 a float's last bit would be a wrong answer.
    return any(abs(first - other) <= Fraction(tolerance) * max(1, abs(other)) for first, other in candidates)


_CHECK_PROGRAM = """
import json, signal, sys
told = json.load(sys.stdin)
said, sys.stdout = sys.stdout, sys.stderr
class Late(BaseException):
    pass
def stop(*_):
    raise Late
signal.signal(signal.SIGVTALRM, stop)
{check}
for item in told["items"]:
    signal.setitimer(signal.ITIMER_VIRTUAL, told["seconds"])
    try:
        result = check(item)
    except Late:
        result = None
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print(json.dumps(result), file=said, flush=True)
"""
# Computing time, which a busy machine does not change; whatever checks looks for the signal now and then.


def check_in_process(
    name: str, check: str, items: Sequence[object], *, seconds: float, switches: Sequence[str], **also: object
) -> Iterator[Any]:
    """What a program's ``check`` says of each item, in a process of its own; None where it takes too long."""
    remaining = list(items)
    command = [sys.executable, *switches, "-c", _CHECK_PROGRAM.replace("{check}", check)]
    while remaining:
        request = json.dumps({**also, "items": remaining, "seconds": seconds}).encode()
        patience = 30 + 10 * seconds * len(remaining)
        try:
            done = subprocess.run(command, input=request, capture_output=True, timeout=patience, check=False)
            lines = done.stdout.decode().splitlines()
            if len(lines) != len(remaining):
                error_lines = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                raise UserError(f"{name}: checking failed: {' '.join(error_lines) or done.returncode}")
        except subprocess.TimeoutExpired as timeout:
            # run() has killed the process by now; of the item that it was at it has said nothing.
            lines = [*(timeout.stdout or b"").decode().splitlines(), "null"][: len(remaining)]
        yield from map(json.loads, lines)
        remaining = remaining[len(lines) :]


TOO_SLOW = "the pattern did not decide in time; make it simpler (no repetition within a repetition)"
_MATCHER = """
import re
pattern = re.compile(told["pattern"])
def check(text):
    return pattern.search(text) is not None
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternReward:
    """1.0 where the expression matches somewhere in the answer, else 0.0; anchor it for all of it."""

    pattern: str
    seconds: int | float = 0.2
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)
    refused: Counter[str] = field(default_factory=Counter[str], compare=False)

    def __post_init__(self) -> None:
        with located(
            f"pattern:{self.pattern}: this is no regular expression", re.error, OverflowError, RecursionError
        ):
            re.compile(self.pattern)
        if not self.seconds > 0:
            raise UserError(f"pattern: {self.seconds} seconds to match; give more than 0")

    @property
    def name(self) -> str:
        return f"pattern:{self.pattern}"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        texts = [plain_text(answer) for task in tasks for answer in task.answers]
        # Isolated and without site: it starts quickly, and no module of the user's can shadow json or re.
        matches = check_in_process(
            self.name, _MATCHER, texts, seconds=self.seconds, switches=("-I", "-S"), pattern=self.pattern
        )
        return tuple(tuple(self._score(next(matches)) for _ in task.answers) for task in tasks)

    def _score(self, matched: bool | None) -> float | None:
        self.refused.update([TOO_SLOW] * (matched is None))
        return None if matched is None else binary_score(matched)
