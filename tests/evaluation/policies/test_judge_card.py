"""A judge's card finds what was set: accuracy, a liking for a place or for length, how sure it is."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from plaudit.data.judging import BothWays, NoVerdict, Task, Verdict, first_probability, outcomes
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge_card import JudgeCard, calibrated, judge_card, read_card, write_card
from plaudit.evaluation.reward_models.pairs import ScoredPair
from plaudit.evaluation.stats import Estimate, Resampling
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.chat import ChatRequest
from plaudit.feedback.judges.jury import Jury
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import Estimate as Cost
from plaudit.lab.world import making
from plaudit.lab.world.gold import utility
from plaudit.lab.world.minds import INDIFFERENCE, Mind, reply_to
from plaudit.rewards.comparing import FunctionJudge
from tests.evaluation.judged import pair


class NoServer:
    """A mind asked without HTTP between: the same questions and replies, a hundred times as many a second."""

    def __init__(self, mind: Mind) -> None:
        self.mind, self.model = mind, mind.name

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: ChatRequest) -> Reply:
        found = reply_to(
            self.mind, request.question.text("7f"), temperature=request.temperature, draw=request.seed
        )
        odds = found.odds if request.words else None
        return Reply(text=found.text, number="7f", refused=found.refused, cut=found.cut, odds=odds or None)

    def estimate(self, requests: Sequence[ChatRequest]) -> Cost:
        return Cost(questions=len(requests), cached=0, prompt_tokens=0, reply_tokens=0, cost=None)

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        return 0, 0.0


def judge(mind: Mind, **ask: object) -> ModelJudge:
    return ModelJudge(asker=NoServer(mind), ask=HowToAsk(**{"how": "letter", **ask}))  # type: ignore[arg-type]


def pairs_of_truth(n: int, seed: int = 4) -> list[ScoredPair]:
    """Pairs of which the better answer is known, in the order of chance."""
    found = []
    for task in making.answer_tasks(n, answers=2, split="train", seed=seed):
        first, second = (utility(task.prompt, plain_text(answer)) for answer in task.answers)
        if abs(first - second) >= INDIFFERENCE:
            texts = (plain_text(task.answers[0]), plain_text(task.answers[1]))
            better = float(first > second)
            found.append(
                pair(None, None, chance=better, prompt=task.prompt, answers=texts, annotator="truth")
            )
    return found


PAIRS = pairs_of_truth(400)
QUICK = Resampling(times=300)


def card_of(mind: Mind, pairs: Sequence[ScoredPair] = PAIRS, **ask: object) -> JudgeCard:
    return judge_card(judge(mind, **ask), pairs, QUICK)[0]


def covers(estimate: Estimate | None, value: float) -> bool:
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= value <= estimate.high


def coverage(runs: int, sureness: float) -> dict[str, float]:
    """Of minds of other seeds, how often the interval holds what was set."""
    hits: dict[str, list[bool]] = {"accuracy": [], "place": [], "calibration": []}
    for seed in range(runs):
        mind = Mind(accuracy=0.8, place=0.25, sureness=sureness, seed=seed)
        card = card_of(mind)
        assert card.reliability is not None
        hits["accuracy"].append(covers(card.decided, 0.8))
        # What the place decides is said of both answers: both orders agree on the rest.
        hits["place"].append(covers(card.consistency, 0.75))
        hits["calibration"].append(covers(card.reliability.ece, 0.75 * mind.calibration_error()))
    return {name: fmean(found) for name, found in hits.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sureness", [1.0, 2.5])
def test_what_is_set_lies_in_its_interval_as_often_as_the_interval_promises(sureness):
    found = coverage(100, sureness)
    # Of a hundred 95 % intervals 88 or fewer hold the truth once in two hundred times.
    assert min(found.values()) > 0.88, found


def test_a_judge_that_likes_the_first_answer_is_found_out_and_undone_by_both_orders():
    fair, biased = card_of(Mind(accuracy=0.8)), card_of(Mind(accuracy=0.8, place=0.5))
    assert fair.first_shown is not None
    assert fair.first_shown.value == pytest.approx(0.5)
    assert biased.first_shown is not None
    assert covers(biased.first_shown, 0.75)
    assert covers(biased.decided, 0.8)
    assert covers(biased.agreement, 0.5 * 0.8 + 0.5 * 0.5)


def test_a_liking_for_length_shows_beside_that_of_people():
    card = card_of(Mind(accuracy=0.8, length=0.6))
    assert card.longer is not None
    assert card.longer_by_people is not None
    assert card.longer.value > card.longer_by_people.value + 0.15


@pytest.mark.slow
def test_a_judge_that_is_too_sure_is_scaled_back_and_who_is_ahead_stays_ahead():
    card = card_of(Mind(accuracy=0.8, sureness=3.0), pairs_of_truth(1200))
    assert card.temperature is not None
    assert 2.0 < card.temperature < 4.5
    assert card.reliability is not None
    assert card.scaled is not None
    assert card.scaled.ece.value < card.reliability.ece.value / 2
    assert card.scaled.log_loss.value < card.reliability.log_loss.value
    tasks = making.answer_tasks(20, answers=2, split="train", seed=1)
    for before in outcomes(judge(Mind(sureness=3.0)), tasks, 0):
        after = calibrated(before, card.temperature)
        assert isinstance(before, Verdict)
        assert isinstance(after, Verdict)
        assert [mark.rank for mark in after.marks] == [mark.rank for mark in before.marks]
        assert abs(first_probability(after) - 0.5) <= abs(first_probability(before) - 0.5)


@pytest.mark.parametrize(
    ("accuracy", "says"),
    [
        (0.51, "its chances tell nothing of"),
        (0.3, "its sign is turned round"),
        (1.0, "it was right about all"),
    ],
)
def test_where_no_temperature_would_make_chances_truer_there_is_none_and_it_is_said(accuracy, says):
    card = card_of(Mind(accuracy=accuracy, sureness=3.0))
    assert (card.temperature, card.scaled) == (None, None)
    assert card.reliability is not None
    assert any(note.startswith("no temperature: ") and says in note for note in card.notes), card.notes


def test_kappa_is_chance_corrected_agreement():
    card = card_of(Mind(accuracy=0.8))
    assert card.kappa is not None
    assert card.agreement is not None
    # Of two sides that come equally often κ is twice the agreement less one.
    assert card.kappa.value == pytest.approx(2 * card.agreement.value - 1, abs=0.03)
    perfect = card_of(Mind(accuracy=1.0))
    assert perfect.kappa is not None
    assert perfect.kappa.value == pytest.approx(1)


def test_what_it_says_nothing_of_is_counted_by_reason_and_sides_alone_have_no_reliability():
    card = card_of(Mind(refusals=0.2, unreadable=0.1), how="verdict")
    assert {*card.failures} == {"refused", "not to be read", "cut off"}
    assert card.reliability is None
    assert card.temperature is None
    assert card.pairs == len(PAIRS)


def test_the_people_s_own_ceiling_stands_beside_it():
    again = [
        replace(one, annotator="other", p_first=1 - one.p_first if n % 5 == 0 else one.p_first)
        for n, one in enumerate(PAIRS)
    ]
    card = card_of(Mind(), [*PAIRS, *again])
    assert card.ceiling is not None
    assert 0.75 < card.ceiling < 0.85
    assert "2.0 annotators" in card.ceiling_words


@pytest.mark.slow
def test_a_jury_s_members_are_said_to_err_together_where_they_do():
    kin = [judge(Mind(name=name, family="kin", accuracy=0.75)) for name in "ab"]
    jury = Jury(name="jury", judges=(*kin, judge(Mind(name="c", accuracy=0.75))), weights=(1.0, 1.0, 1.0))
    found = judge_card(jury, PAIRS, QUICK)[0].error_correlation
    assert found["1 a, 2 b"] == pytest.approx(1)
    assert found["1 a, 3 c"] is not None
    assert abs(found["1 a, 3 c"]) < 0.25


def test_a_card_comes_back_as_it_was_and_belongs_to_its_judge_and_version(tmp_path):
    own = judge(Mind(sureness=3.0))
    card, _ = judge_card(own, PAIRS, QUICK)
    path = tmp_path / "card.json"
    write_card(card, path)
    assert read_card(path, own) == card
    with pytest.raises(UserError, match="this card is of world letter-1, and the judge is world verdict-1"):
        read_card(path, judge(Mind(), how="verdict"))
    with pytest.raises(UserError, match="and the judge is other letter-1"):
        read_card(path, judge(Mind(name="other")))
    path.write_text('{"judge": "world"}')
    with pytest.raises(UserError, match="not a card that plaudit judge --card wrote"):
        read_card(path, own)


def test_a_reason_stays_a_reason_behind_a_temperature():
    assert calibrated(NoVerdict(reason="refused"), 2.0) == NoVerdict(reason="refused")
    task = Task(prompt="p", answers=("a", "a"), ended=(True, True))
    [tie] = outcomes(judge(Mind()), [task], 0)
    again = calibrated(tie, 2.0)
    assert isinstance(again, Verdict)
    assert first_probability(again) == 0.5


def test_a_side_in_one_order_and_a_tie_in_the_other_are_no_chances():
    def longer_or_tie(first: str, second: str) -> str:
        return "tie" if len(first) > len(second) else "second"

    card, duels = judge_card(
        BothWays(judge=FunctionJudge(name="sides", function=longer_or_tie)), PAIRS, QUICK
    )
    assert 0.75 in {duel.verdict for duel in duels}
    assert card.reliability is None


def test_a_jurys_card_and_its_rows_are_of_one_number():
    """A member that likes a place is a tie of its own in both orders, and the others decide."""
    members = [judge(Mind(name="a", place=0.9)), judge(Mind(name="b")), judge(Mind(name="c", place=0.3))]
    jury = Jury(name="jury", judges=tuple(members), weights=(3.0, 1.0, 1.0))
    _, duels = judge_card(jury, pairs_of_truth(120), Resampling(times=20))
    tasks = [Task(prompt=duel.prompt, answers=(duel.mine, duel.theirs), ended=(True, True)) for duel in duels]
    rows = [outcome for outcome in outcomes(jury, tasks, 0) if isinstance(outcome, Verdict)]
    shares = [first_probability(row) for row in rows]
    assert [duel.verdict for duel in duels] == shares
    assert [duel.swapped.verdict for duel in duels] == pytest.approx([1 - share for share in shares])
    # The mean of the jury's own orders would have been another number.
    means = [row.orders.mean for row in rows if row.orders is not None]
    assert len(means) == len(shares)
    assert means != pytest.approx(shares)
