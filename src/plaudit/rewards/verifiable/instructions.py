"""Instructions that a program can check, by the published checkers of IFEval and IFBench (`if-verifiable`).

(Zhou et al. 2023, arXiv:2311.07911; Pyatkin et al. 2025, arXiv:2507.02833.) A row has the kinds of its
instructions and what each is about. Strict is of the answer as it stands, loose also of it without its first
line, its last, both, or asterisks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.rewards.base import RewardTraits, TaskScores
from plaudit.rewards.verifiable.exact import check_in_process

InstructionVerdicts = tuple[tuple[str, bool, bool], ...]
"""Of each instruction of one answer its kind, and whether it holds strictly and loosely."""

# What is blocked, NLTK and the package load in seconds, for learners and data sets that no checker uses.
# Neither is anything fetched unasked, nor does chance decide what a checker is about that was not told.
_CHECKER = r"""
import re, types
sys.modules.update(dict.fromkeys(("numpy", "pandas", "scipy", "sklearn")))
sys.modules["datasets"] = types.SimpleNamespace(load_dataset=None)
import langdetect, nltk
nltk.download = lambda *_, **__: True
langdetect.DetectorFactory.seed = 0
from if_verifiable import ifbench, ifeval
from if_verifiable.common import evaluate_instructions
class NoChance:
    def __getattr__(self, name):
        raise ValueError("it is not told all that it asks for, and would draw that at random")
for package in (ifbench, ifeval):
    package.instructions.random = package.instructions.instructions_util.random = NoChance()
checkers = {**ifbench.INSTRUCTION_DICT, **ifeval.INSTRUCTION_DICT}
def check(item):
    answer, prompt, kinds, kwargs = item
    if not (kinds and isinstance(kinds, list) and isinstance(kwargs, list) and len(kinds) == len(kwargs)):
        return "the row has no instructions (`instruction_id_list`, and as many `kwargs`)"
    held = []
    for kind, about in zip(kinds, kwargs):
        if kind not in checkers:
            return f"there is no checker of {kind!r}"
        try:
            results, _ = evaluate_instructions(answer, [kind], [about or {}], prompt, checkers)
        except Exception as error:
            missing = re.search(r"Resource\W+(?:\x1b\[\d+m)?(\w+)\W", str(error))
            if missing:
                return f"{kind} needs data of NLTK: python -m nltk.downloader {missing[1]}"
            return f"the checker of {kind} failed: {str(error)[:100] or type(error).__name__}"
        # Of an empty answer the package says nothing: no instruction holds.
        held.append([kind, *([results[0].strict_pass, results[0].loose_pass] if results else [False, False])])
    return held
"""


class InstructionReward:
    """The share of a row's instructions that hold; with ``all`` 1 where all do, with ``loose`` loosely."""

    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)

    def __init__(self, name: str = "instructions", *, seconds: float = 2.0) -> None:
        settings = {*filter(None, name.partition(":")[2].split(","))}
        if not settings <= {"all", "loose"}:
            raise UserError(f"{name}: expected instructions, instructions:all, :loose or :all,loose")
        if find_spec("if_verifiable") is None:
            raise UserError(f'{name}: they are checked by if-verifiable: pip install "plaudit[ifeval]"')
        self.name, self.all_hold, self.loose = name, "all" in settings, "loose" in settings
        self._seconds, self._reasons, self._first = seconds, Counter[str](), dict[str, object]()

    @property
    def refused(self) -> Mapping[str, int]:
        return {f"{why}, first in {self._first[why]!r}": times for why, times in self._reasons.items()}

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        rows = self.verdicts(tasks)
        return tuple(tuple(self.score(item, all_hold=self.all_hold) for item in row) for row in rows)

    def score(self, verdicts: InstructionVerdicts | None, *, all_hold: bool) -> float | None:
        if verdicts is None:
            return None
        held = [loose if self.loose else strict for _, strict, loose in verdicts]
        return float(all(held)) if all_hold else sum(held) / len(held)

    def verdicts(self, tasks: Sequence[Task]) -> tuple[tuple[InstructionVerdicts | None, ...], ...]:
        fields = ("instruction_id_list", "kwargs")
        items = [
            (plain_text(answer), plain_text(task.prompt), *map(task.metadata.get, fields))
            for task in tasks
            for answer in task.answers
        ]
        # Safe path: no module of the user's folder can shadow one of these.
        results = check_in_process(self.name, _CHECKER, items, seconds=self._seconds, switches=("-P",))
        return tuple(tuple(self._verdict(task, next(results)) for _ in task.answers) for task in tasks)

    def _verdict(self, task: Task, result: list[Any] | str | None) -> InstructionVerdicts | None:
        if isinstance(result, list):
            return tuple((kind, strict, loose) for kind, strict, loose in result)
        reason = result or f"the checkers did not decide within {self._seconds:g} s"
        self._first.setdefault(reason, task.metadata.get("key", plain_text(task.prompt)[:40]))
        self._reasons[reason] += 1
        return None
