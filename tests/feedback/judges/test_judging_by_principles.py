"""Judging by a constitution: which principle is asked, what several make together, in every way to ask."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from plaudit.data.judging import NoVerdict, Task, Verdict, first_probability, outcomes, swapped
from plaudit.data.records import plain_text, turns_of
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge_card import calibrated
from plaudit.feedback.judge_kinds import JudgeReward
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.constitution import Constitution, Principle, constitution_named
from plaudit.feedback.judges.jury import Jury
from plaudit.feedback.judges.ledger import ChatRequest
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import Estimate
from plaudit.feedback.judges.replies import REFUSED
from plaudit.feedback.judges.words import parse_judge_word
from plaudit.lab.world import making
from plaudit.lab.world.minds import Mind, ParsedQuestion, reply_to

TASKS = making.answer_tasks(24, answers=2, split="train", seed=4)
OURS = constitution_named("ours")


@dataclass
class Minds:
    """A model that thinks otherwise by each principle: a mind of the world for each of their texts."""

    model: str = "minds"
    reluctant: frozenset[str] = frozenset()
    requests: list[ChatRequest] = field(default_factory=list)

    def mind(self, principle: str) -> Mind:
        name = hashlib.sha256(principle.encode()).hexdigest()
        return Mind(name=name, accuracy=0.7, refusals=float(principle in self.reluctant))

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        self.requests += requests
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> Reply:
        principle = request.question.fill["principle"]
        text = request.question.text("7f")
        assert principle in text.partition("Every line that begins")[0]
        found = reply_to(self.mind(principle), text, temperature=request.temperature, draw=0)
        odds = found.odds or None
        return Reply(text=found.text, number="7f", refused=found.refused, cut=found.cut, odds=odds)

    def odds(self, request: ChatRequest) -> Mapping[str, float]:
        found = self._reply(request).odds
        assert found is not None
        return found

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        return Estimate(questions=len(requests), cached=0, prompt_tokens=0, reply_tokens=0, cost=0.0)

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        return 10 * len(requests), 0.0


def judge(minds: Minds, **ask: Any) -> ModelJudge:
    return ModelJudge(asker=minds, ask=HowToAsk(**{"how": "letter", "constitution": OURS} | ask))


def pair_key(task: Task) -> str:
    return "\0".join([plain_text(task.prompt), *sorted(map(plain_text, task.answers))])


def share_by(mind: Mind, task: Task) -> float:
    """The chance that the first is better: the mean of both orders, ½ where they contradict each other."""
    first, second = map(plain_text, task.answers)
    words = "\n".join(str(turn.content) for turn in turns_of(task.prompt))

    def chance(a: str, b: str) -> float:
        shown = {"Answer A": a, "Answer B": b}
        return mind.first_probability(ParsedQuestion(prompt=words, blocks=shown, ask=""))

    forward, backward = chance(first, second), 1 - chance(second, first)
    return 0.5 if (forward - 0.5) * (backward - 0.5) < 0 else (forward + backward) / 2


def logit(share: float) -> float:
    bounded = min(max(share, 0.01), 0.99)
    return math.log(bounded / (1 - bounded))


@pytest.mark.parametrize("count", [1, 3, "all"])
def test_the_log_odds_of_the_drawn_principles_are_averaged(count):
    minds = Minds()
    found = outcomes(judge(minds, principles=count), TASKS, 0)
    for task, outcome in zip(TASKS, found, strict=True):
        assert isinstance(outcome, Verdict)
        if plain_text(task.answers[0]) == plain_text(task.answers[1]):
            assert (first_probability(outcome), outcome.principles) == (0.5, ())
            continue
        drawn = OURS.drawn(pair_key(task), count=16 if count == "all" else count)
        by_each = [share_by(minds.mind(principle.choose), task) for principle in drawn]
        mean = fmean(map(logit, by_each))
        expected = by_each[0] if count == 1 else 1 / (1 + math.exp(-mean))
        assert first_probability(outcome) == pytest.approx(expected)
        assert outcome.principles == tuple(principle.id for principle in drawn)
        assert outcome.rationale is not None


def test_another_order_of_the_answers_draws_the_same_and_turns_the_chance():
    asked = judge(Minds(), principles=2)
    straight, turned = (outcomes(asked, tasks, 0) for tasks in (TASKS, [swapped(task) for task in TASKS]))
    for one, other in zip(straight, turned, strict=True):
        assert isinstance(one, Verdict)
        assert isinstance(other, Verdict)
        assert one.principles == other.principles
        assert first_probability(one) == pytest.approx(1 - first_probability(other))


@pytest.mark.parametrize("how", ["verdict", "letter", "reasons", "points"])
def test_every_way_to_ask_holds_the_principle_and_says_which(how):
    minds = Minds()
    found = outcomes(judge(minds, how=how, clamp=0.0), TASKS, 0)
    used = {name for outcome in found if isinstance(outcome, Verdict) for name in outcome.principles}
    assert len(used) > 8
    shown = {request.question.fill["principle"] for request in minds.requests}
    assert shown == {principle.choose for principle in OURS.principles if principle.id in used}


def test_points_of_all_answers_to_a_prompt_are_by_the_same_principles_and_averaged():
    minds = Minds()
    tasks = [
        Task(prompt=task.prompt, answers=(answer,), ended=(True,))
        for task in TASKS
        for answer in task.answers
    ]
    scores = judge(minds, how="points", principles=2).scores(tasks)
    pairs = judge(Minds(), how="points", principles=2).scores(TASKS)
    assert [score for [score] in scores] == [score for row in pairs for score in row]
    for task, [score] in zip(tasks, scores, strict=True):
        drawn = OURS.drawn(plain_text(task.prompt), count=2)
        by_principle = {
            request.question.fill["principle"]: minds.odds(request)
            for request in minds.requests
            if plain_text(request.question.prompt) == plain_text(task.prompt)
            and request.question.blocks == (("Answer", plain_text(task.answers[0])),)
        }
        assert {*by_principle} == {principle.choose for principle in drawn}
        means = [sum(int(n) * share for n, share in odds.items()) for odds in by_principle.values()]
        assert score == pytest.approx(fmean(means))


def test_money_is_of_all_that_is_asked():
    different = [task for task in TASKS if plain_text(task.answers[0]) != plain_text(task.answers[1])]
    for count, ways in ((1, 2), (3, 6)):
        asked = judge(Minds(), principles=count)
        assert asked.estimate(TASKS).questions == ways * len(different)
        outcomes(asked, TASKS, 0)
        assert isinstance(asked.asker, Minds)
        assert len({request.question.text() for request in asked.asker.requests}) == ways * len(different)
        assert sum(asked.spent(task)[0] for task in TASKS) >= 10 * ways * len(different)


def test_a_principle_that_says_nothing_is_left_out_where_most_say_something():
    first, *others = OURS.principles[:3]
    three = Constitution(name="three", principles=(first, *others))
    task = next(task for task in TASKS if len({*map(plain_text, task.answers)}) == 2)

    def found(*reluctant: Principle) -> Verdict | NoVerdict:
        minds = Minds(reluctant=frozenset(principle.choose for principle in reluctant))
        [outcome] = outcomes(judge(minds, constitution=three, principles="all"), [task], 0)
        return outcome

    without_first = found(first)
    assert isinstance(without_first, Verdict)
    assert set(without_first.principles) == {principle.id for principle in others}
    silent = found(first, others[0])
    assert isinstance(silent, NoVerdict)
    assert silent.reason == REFUSED


def test_the_version_holds_the_constitution_and_the_number_of_principles(tmp_path):
    fewer = replace(OURS, principles=OURS.principles[:15])
    usual = judge(Minds()).version
    assert usual == f"letter-1-c{OURS.version}x1"
    asked = [{"principles": 2}, {"constitution": fewer}, {"draws": 3}, {"preamble": "You are fair."}]
    assert len({usual, *(judge(Minds(), **ask).version for ask in asked)}) == 5
    assert judge(Minds(), principles=16).version == judge(Minds(), principles="all").version


def test_a_jury_a_card_and_a_reward_keep_which_principle_it_was():
    asked = judge(Minds())
    task = next(task for task in TASKS if len({*map(plain_text, task.answers)}) == 2)
    [drawn] = OURS.drawn(pair_key(task))
    jury = Jury(name="both", judges=(asked, judge(Minds(), principles=2)), weights=(1.0, 1.0))
    [outcome] = outcomes(jury, [task], 0)
    assert isinstance(outcome, Verdict)
    assert outcome.principles[0] == drawn.id
    assert len(outcome.principles) == 2
    scaled = calibrated(outcome, 2.0)
    assert isinstance(scaled, Verdict)
    assert scaled.principles == outcome.principles
    [scores] = JudgeReward(judge=judge(Minds(), how="points")).scores([task])
    assert scores == tuple(judge(Minds(), how="points").scores([task])[0])


def test_principles_of_other_categories_are_not_asked():
    danger = replace(OURS.principles[4], categories=("harmful",))
    file = Constitution(name="own.yaml", principles=(OURS.principles[0], danger))
    minds = Minds()
    tasks = [replace(task, category=category) for task in TASKS[:8] for category in ("harmful", "fact")]
    found = outcomes(judge(minds, constitution=file, principles="all"), tasks, 0)
    for task, outcome in zip(tasks, found, strict=True):
        assert isinstance(outcome, Verdict)
        if outcome.principles:
            assert set(outcome.principles) == (
                {"help", "no-harm"} if task.category == "harmful" else {"help"}
            )
    only = judge(Minds(), constitution=replace(file, principles=(danger,)))
    with pytest.raises(UserError, match=r"own\.yaml: no principle fits the category 'fact'"):
        only.estimate(tasks)
    with pytest.raises(UserError, match=r"no principle fits the category 'fact'"):
        outcomes(only, tasks, 0)


def test_what_stands_above_the_question_is_of_the_judge_and_examples_may_stand_in_it(tmp_path):
    path = tmp_path / "examples.txt"
    path.write_text("You have judged like this:\n> {braces} stay\nA\n")
    ask = parse_judge_word(f"model:x,how=letter,constitution=ours,preamble={path}").how()
    minds = Minds()
    outcomes(ModelJudge(asker=minds, ask=ask), TASKS[:4], 0)
    for request in minds.requests:
        assert request.question.text().startswith(
            "You have judged like this:\n> {braces} stay\nA\n\nYou compare"
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("constitution=ours,principles=0", "principles=0: ours has 16; give 1 to 16, or all"),
        ("constitution=ours,principles=17", "principles=17: ours has 16"),
        ("constitution=ours,principles=many", "principles=many: expected a number, or all"),
        ("principles=2", "principles=2 are of a constitution: constitution=FILE, or ours"),
        ("constitution=ours,how=answer", "how=answer compares with the true answer"),
        ("constitution=none.yaml", r"none\.yaml: cannot be read as a constitution"),
        ("constitution=own.yaml", r"own\.yaml, principle 1 \(calm\): revise is missing"),
        ("preamble=none.txt", r"preamble=none\.txt: cannot be read as a text"),
        ("preamble=empty.txt", r"preamble=empty\.txt: there is nothing in it"),
        ("constitutoin=ours", "nothing is called constitutoin; did you mean constitution"),
    ],
)
def test_what_a_word_says_of_principles_is_checked_by_name(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("- {id: calm, choose: a, critique: b}")
    Path("empty.txt").write_text(" \n")
    with pytest.raises(UserError, match=message):
        parse_judge_word(f"openai:http://h/v1#m,{settings}").how()
