"""Several judges as one: log-odds averaged, weighted by accuracy, and how their errors go together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import (
    UNREACHABLE,
    NoVerdict,
    Orders,
    Task,
    Verdict,
    first_probability,
    outcomes,
    probable_verdict,
)
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge, load_judge, sees_order
from plaudit.evaluation.policies.judge_card import error_correlation
from plaudit.feedback.judges.jury import NO_MAJORITY, Jury, Spread, read_jury
from plaudit.lab.world import making
from plaudit.lab.world.gold import utility
from plaudit.lab.world.minds import Mind
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings

TASKS = making.answer_tasks(250, answers=2, split="train", seed=4)


def wrong(found: list[Verdict | NoVerdict]) -> list[bool | None]:
    def one(task: Task, outcome: Verdict | NoVerdict) -> bool | None:
        gap = utility(task.prompt, plain_text(task.answers[0])) - utility(
            task.prompt, plain_text(task.answers[1])
        )
        if isinstance(outcome, NoVerdict) or first_probability(outcome) == 0.5 or abs(gap) < 0.02:
            return None
        return (first_probability(outcome) > 0.5) != (gap > 0)

    return [one(task, outcome) for task, outcome in zip(TASKS, found, strict=True)]


def rate(errors: list[bool | None]) -> float:
    known = [error for error in errors if error is not None]
    return sum(known) / len(known)


@pytest.fixture
def server():
    minds = [Mind(name=name, accuracy=0.75) for name in ("a", "b", "c")]
    kin = [Mind(name=f"kin-{name}", family="kin", accuracy=0.75) for name in "abc"]
    with MindServer([*minds, *kin, Mind(name="shy", refusals=1.0)]) as running:
        yield running


def jury(server, tmp_path, *names: str, word: str = "jury", more: str = "") -> Jury | Spread:
    path = tmp_path / f"{names[0]}.yaml"
    members = "".join(f"  - openai:{server.url}#{name},how=letter\n" for name in names)
    path.write_text(f"members:\n{members}{more}")
    found = judge_named(f"{word}:{path}", JudgeSettings(cache=tmp_path / "replies"))
    assert isinstance(found, Jury | Spread)
    return found


@pytest.mark.slow
def test_members_who_err_apart_are_righter_together_and_those_of_one_family_are_one(server, tmp_path):
    apart = jury(server, tmp_path, "a", "b", "c")
    kin = jury(server, tmp_path, "kin-a", "kin-b", "kin-c")
    assert isinstance(apart, Jury)
    assert isinstance(kin, Jury)
    alone = rate(wrong(outcomes(apart.judges[0], TASKS, 0)))
    assert rate(wrong(outcomes(apart, TASKS, 0))) < alone - 0.03
    errors = dict(zip("abc", map(wrong, apart.member_outcomes(TASKS, 0)), strict=True))
    assert all(value is not None and abs(value) < 0.25 for value in error_correlation(errors).values())
    shared = dict(zip("abc", map(wrong, kin.member_outcomes(TASKS, 0)), strict=True))
    assert all(value == pytest.approx(1) for value in error_correlation(shared).values())
    assert rate(wrong(outcomes(kin, TASKS, 0))) == pytest.approx(rate(shared["a"]))


def test_log_odds_are_averaged_by_weight():
    class Fixed:
        def __init__(self, name: str, share: float | None) -> None:
            self.name, self.share = name, share

        def verdicts(self, tasks, seed):
            return [
                None if self.share is None else probable_verdict(self.share, annotator=self.name)
                for _ in tasks
            ]

    task = TASKS[0]
    made = Jury(name="j", judges=(Fixed("a", 0.9), Fixed("b", 0.3)), weights=(3.0, 1.0))
    [found] = outcomes(made, [task], 0)
    assert isinstance(found, Verdict)
    odds = (3 * math.log(9) + math.log(3 / 7)) / 4
    assert first_probability(found) == pytest.approx(1 / (1 + math.exp(-odds)))
    assert found.rationale == "a 0.90, b 0.30"
    # Whoever is certain counts as 0.99, and half of the weight is no majority.
    certain = Jury(name="j", judges=(Fixed("a", 1.0), Fixed("b", None)), weights=(1.0, 1.0))
    assert outcomes(certain, [task], 0) == [NoVerdict(reason=NO_MAJORITY)]
    heavier = Jury(name="j", judges=(Fixed("a", 1.0), Fixed("b", None)), weights=(1.1, 1.0))
    [found] = outcomes(heavier, [task], 0)
    assert isinstance(found, Verdict)
    assert first_probability(found) == pytest.approx(0.99)
    # A verdict that is turned round says of both orders the opposite.
    seen = Orders(forward=0.9, backward=0.6)
    ordered = replace(probable_verdict(0.75, annotator="a"), orders=seen)
    stubborn = SimpleNamespace(name="a", verdicts=lambda tasks, seed: [ordered for _ in tasks])
    [turned] = outcomes(Spread(name="s", judges=(stubborn,), flips=1.0), [task], 0)
    assert isinstance(turned, Verdict)
    assert (turned.probability, turned.orders) == (0.25, Orders(forward=1 - 0.9, backward=1 - 0.6))


@pytest.mark.slow
def test_a_spread_lets_one_speak_for_each_and_turns_a_quarter_round(server, tmp_path):
    spread = jury(server, tmp_path, "a", "b", "c", word="spread")
    found = outcomes(spread, TASKS, 0)
    assert outcomes(spread, TASKS, 0) == found
    assert {outcome.annotator for outcome in found if isinstance(outcome, Verdict)} == {"a", "b", "c"}
    exchanged = [replace(task, answers=task.answers[::-1]) for task in TASKS]
    pairs = zip(found, outcomes(spread, exchanged, 0), strict=True)
    assert all(getattr(one, "annotator", 0) == getattr(other, "annotator", 0) for one, other in pairs)
    # Right in 75 % and turned round in 25 %: wrong in 0.25 · 0.75 + 0.75 · 0.25.
    assert abs(rate(wrong(found)) - 0.375) < 0.09
    assert "25% of its verdicts are turned round on purpose" in spread.notes
    calm = jury(server, tmp_path, "a", "b", "c", word="spread", more="flips: 0\n")
    assert abs(rate(wrong(outcomes(calm, TASKS, 0))) - 0.25) < 0.08


def test_it_is_a_judge_like_any_other_and_says_who_was_silent(server, tmp_path):
    path = tmp_path / "shy.yaml"
    path.write_text(f"- openai:{server.url}#shy\n- openai:{server.url}#a,how=letter\n")
    found = load_judge(f"jury:{path}", {}, JudgeSettings(cache=tmp_path / "replies"))
    assert sees_order(found)
    assert {
        outcome.reason for outcome in outcomes(found, TASKS[:3], 0) if isinstance(outcome, NoVerdict)
    } == {NO_MAJORITY}
    check_judge(f"jury:{path}", has_gold=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- length:1-20", "a list of two judges or more"),
        ("members: 3", "a list of two judges or more"),
        ("member:\n- a\n- b", "nothing is called 'member'; did you mean members"),
        ("- length:1-20\n- {judge: length:1-9, acuracy: 0.7}", "member 2: nothing is called 'acuracy'"),
        ("- length:1-20\n- {accuracy: 0.7}", "member 2: judge is missing"),
        (
            "- length:1-20\n- {judge: exact, accuracy: 0.4}",
            "accuracy is 0.4: expected a share between 0.5 and 1",
        ),
        ("members: [exact, exact]\nflips: 2", "flips is 2: expected a share"),
        ("]", "cannot be read as a list of judges"),
    ],
)
def test_a_file_of_judges_is_refused_by_place_and_field(tmp_path, text, message):
    path = tmp_path / "jury.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_jury(path)


def test_a_jury_of_juries_and_a_member_that_is_none_are_refused_by_name(tmp_path):
    path = tmp_path / "jury.yaml"
    path.write_text(f"- jury:{path}\n- length:1-20\n")
    with pytest.raises(UserError, match="is a jury itself; name its members"):
        check_judge(f"jury:{path}", has_gold=False)
    path.write_text("- lenght:1-20\n- length:1-20\n")
    with pytest.raises(UserError, match="lenght"):
        check_judge(f"jury:{path}", has_gold=False)


def test_a_jury_whose_members_are_not_to_be_reached_gives_a_reason_that_may_pass():
    silent = Silent(reason=UNREACHABLE)
    task = Task(prompt="?", answers=("a", "b"), ended=(True, True))
    one = Jury(name="jury", judges=(silent, Silent(reason="refused")), weights=(1.0, 1.0))
    assert one.outcomes([task], 0) == [NoVerdict(reason=UNREACHABLE)]
    other = Jury(name="jury", judges=(Silent(reason="refused"),) * 2, weights=(1.0, 1.0))
    assert other.outcomes([task], 0) == [NoVerdict(reason=NO_MAJORITY)]


@dataclass(frozen=True, kw_only=True)
class Silent:
    reason: str
    name: str = "silent"

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        return [None] * len(tasks)

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        return [NoVerdict(reason=self.reason)] * len(tasks)
