"""A reward by one word; a word that means nothing is answered with what there is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.preflight.samples import ScoredTasks
from plaudit.rewards.base import Reward, RewardTraits, TaskScores, leaf_rewards, traits_of
from plaudit.rewards.combine.cascade import Blend, Cascade, Tier
from plaudit.rewards.http import EndpointReward
from plaudit.rewards.learned.process import StepReward
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.registry import UserFunctionReward, resolve_function, resolve_reward
from plaudit.rewards.verifiable.exact import PatternReward
from tests.rewards.asked import asked
from tests.rewards.scorers import scorer_folder

MINE = '''
"""Mine."""
def short(answer): return -len(answer)
def right(answer, reference_answer): return float(answer == reference_answer) if reference_answer else None
def full(prompt, answer, *, reference_answer, metadata, unused=3): return metadata.get("points")
def anything(**named): return float(len(named))
def breaks(answer): raise KeyError("gone")
def text(answer): return "1.0"
def nan(answer): return float("nan")
def yes(answer): return True
def tensor(answer):
    import torch
    return torch.tensor(2.0)
def strange(answer, weather): return 1.0
def empty(): return 1.0
def by_place(answer, /): return 1.0
def as_in_trl(completions, **kw): return [1.0 for _ in completions]
def short_of_one(answer, weather, **named): return 1.0
def half_named(answer, reference_answer, **named): return float(len(named))
points = 3

from plaudit.rewards.combine.cascade import Blend, Cascade, Tier
from plaudit.rewards.registry import resolve_reward

tidy = resolve_reward("format:think,answer")
both = Blend(name="both", rewards=(resolve_reward("exact"), tidy), weights=(0.75, 0.25))
checked = Cascade(name="checked", tiers=(Tier(reward=resolve_reward("exact")), Tier(reward=tidy)))
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine_of_a_user.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize("word", ["exact", "number", "mathematics", "format:think,answer", "length:10-50"])
def test_built_in_ones_have_the_name_they_are_called_by(word: str) -> None:
    reward = resolve_reward(word)
    assert isinstance(reward, Reward)
    assert reward.name == word


def test_a_combination_in_a_file_of_ones_own_is_a_reward_for_every_command(mine: Path) -> None:
    """One that blends has a score where all parts have, and one that routes where any has."""
    blend, cascade = resolve_reward(f"{mine}:both"), resolve_reward(f"{mine}:checked")
    assert (blend.name, cascade.name) == ("both", "checked")
    tidy = "<think>2 + 2</think><answer>4</answer>"
    told = asked(tidy, truth=tidy)
    assert blend.scores([told]) == ((1.0,),)
    assert cascade.scores([told]) == ((1.0,),)
    untold = asked(tidy)
    assert (blend.scores([untold]), cascade.scores([untold])) == (((None,),), ((1.0,),))
    assert resolve_reward(f"{mine}:short").name == f"{mine}:short"


def test_patterns_and_addresses() -> None:
    assert resolve_reward("pattern:a:b") == PatternReward(pattern="a:b")
    assert resolve_reward("http://x:80/y") == EndpointReward(url="http://x:80/y")
    with pytest.raises(UserError, match="no regular expression"):
        resolve_reward("pattern:(")


def test_a_folder(tmp_path: Path) -> None:
    assert isinstance(resolve_reward(str(scorer_folder(tmp_path))), LearnedReward)


def test_functions_are_given_what_they_take(mine: Path) -> None:
    task = asked("ab", "b", truth="b", facts={"points": 7})
    for name, wanted in {
        "short": (-2.0, -1.0),
        "right": (0.0, 1.0),
        "full": (7.0, 7.0),
        "anything": (7.0, 7.0),
        "half_named": (5.0, 5.0),
        "yes": (1.0, 1.0),
        "tensor": (2.0, 2.0),
    }.items():
        reward = resolve_reward(f"{mine}:{name}")
        assert isinstance(reward, UserFunctionReward)
        assert reward.scores([task]) == (wanted,)
    assert resolve_reward(f"{mine}:right").scores([asked("b")]) == ((None,),)


def test_functions_of_modules(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(mine.parent)
    assert resolve_reward("mine_of_a_user:short").scores([asked("abc")]) == ((-3.0,),)


RECORDS = """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Rule:
    {field}: int = 2
def score(answer): return len(answer) * Rule().{field}
"""


def test_a_file_may_hold_dataclasses_with_annotations_as_strings(tmp_path: Path) -> None:
    files = [tmp_path / "one" / "rules.py", tmp_path / "two" / "rules.py", tmp_path / "three" / "math.py"]
    for path in files:
        path.parent.mkdir()
        path.write_text(RECORDS.format(field=path.parent.name))
    rewards = [resolve_reward(f"{path}:score") for path in files]
    assert [reward.scores([asked("abc")]) for reward in rewards] == [((6.0,),)] * 3
    assert resolve_function("math:sqrt")(4.0) == 2.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("breaks", r"breaks, prompt 1 .*it raised KeyError: 'gone'.*\(mine_of_a_user.py, line 7\)$"),
        ("text", r"it gave '1.0'; a score is a finite number"),
        ("nan", "it gave nan"),
    ],
)
def test_what_goes_wrong_is_told_with_its_row(mine: Path, name: str, said: str) -> None:
    reward = resolve_reward(f"{mine}:{name}")
    with pytest.raises(UserError, match=said):
        reward.scores([asked("y"), asked("z")])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strange", "it asks for weather; it is called by name"),
        ("empty", "does not take the answer"),
        ("as_in_trl", r"it asks for completions; it is called by name with any of prompt, answer, ended, "),
        ("as_in_trl", r" \(for one answer at a time: `def f\(answer, \*\*rest\)`\)"),
        ("short_of_one", "it asks for weather; it is called by name"),
        ("by_place", "called by name"),
        ("points", "is a int"),
        ("missing", "there is no 'missing' in .*mine_of_a_user.py; it has short, right, "),
        ("shrot", "there is no 'shrot' in .*; did you mean short\\?"),
    ],
)
def test_what_cannot_be_called_is_said_at_once(mine: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve_reward(f"{mine}:{name}")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("exakt", "Did you mean exact"),
        ("patern:a", "Did you mean pattern:REGEX"),
        ("legnth:1-2", "Did you mean length:10-50"),
        ("zzz", "There is exact, number"),
        ("pattern", "has to be told what: pattern:REGEX"),
        ("pattern:", "what to look for"),
        ("length:5", "fewest and the most"),
        ("instructions:every", "expected instructions, instructions:all, :loose"),
        ("runs/none", "no such folder"),
        ("no_such_module_at_all:f", "cannot be imported"),
        ("missing.py:f", "missing.py:f: there is no file missing.py$"),
        ("mine.py", "mine.py is a file of Python: say which function of it is the reward, mine.py:NAME"),
        ("", "there is no reward ''"),
    ],
)
def test_other_words_are_answered_with_what_there_is(word: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve_reward(word)


def test_a_file_that_is_no_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(UserError, match="cannot be imported"):
        resolve_reward(f"{tmp_path / 'bad.py'}:f")
    (tmp_path / "worse.py").write_text("import math\nmaths.pi\n")
    with pytest.raises(UserError, match=r"imported: NameError: .*'maths'.* \(worse.py, line 2\)$"):
        resolve_reward(f"{tmp_path / 'worse.py'}:f")


@dataclass(frozen=True)
class Unknown:
    name: str = "unknown"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple((1.0,) * len(task.answers) for task in tasks)


@dataclass(frozen=True)
class Median:
    """A combination that plaudit has never heard of."""

    parts: tuple[Reward, ...]
    name: str = "median"

    @property
    def traits(self) -> RewardTraits:
        return RewardTraits(members=self.parts)

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        rows = zip(*[part.scores(tasks) for part in self.parts], strict=True)
        return tuple(tuple(sorted(scores)[1] for scores in zip(*row, strict=True)) for row in rows)


def slack(reward: Reward) -> float:
    task = asked("ab", "b", truth="b")
    return ScoredTasks(reward=reward, tasks=(task,), origins=("a:1",), rows=((-8.0, 1.0),)).tolerance


@pytest.mark.slow
def test_a_combination_is_seen_through_whoever_wrote_it(tmp_path: Path) -> None:
    number, form, remote = map(resolve_reward, ("number", "format:a", "http://x:80/y"))
    learned = resolve_reward(str(scorer_folder(tmp_path)))
    cascade = Cascade(name="c", tiers=(Tier(reward=number), Tier(reward=learned)))
    blend = Blend(name="b", rewards=(cascade, remote), weights=(0.5, 0.5))
    assert [leaf.name for leaf in leaf_rewards(Median((blend, form, Unknown())))] == [
        "number", learned.name, "x:80/y", "format:a", "unknown",
    ]  # fmt: skip
    assert [traits_of(leaf).remote for leaf in leaf_rewards(blend)] == [False, False, True]


def test_steps_are_the_models_that_reads_them(tmp_path: Path) -> None:
    learned = resolve_reward(str(scorer_folder(tmp_path)))
    assert isinstance(learned, LearnedReward)
    assert list(leaf_rewards(StepReward(model=learned))) == [learned]


def test_exact_rewards_have_no_slack_and_unknown_ones_that_of_a_model() -> None:
    rules = Median((resolve_reward("number"), resolve_reward("pattern:b"), resolve_reward("length:1-5")))
    assert slack(rules) == 0
    assert slack(Unknown()) > 0
    assert slack(Median((*rules.parts[:2], Unknown()))) == slack(Unknown())
