"""Every word that names a judge, in whichever command: one protocol, and what a verdict carries."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from plaudit.data.judging import Judge, Task, Verdict, pair_verdict
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge, load_judge
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import gold_reward
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from tests.feedback.judges.judges import honest, judge, pair
from tests.models.reward_zoo import saved
from tests.rewards.server import serving

TASK = Task(prompt="What does the owl eat?", answers=("Mice.", "Tea, I think."), ended=(True, True))


@dataclass(frozen=True)
class Patient:
    """People, as whoever asks them hands them in."""

    name: str = "people"

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        return [pair_verdict("first", annotator="a1") for _ in tasks]


@pytest.fixture(scope="module")
def reward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"), base_model_folder())[0]


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(
        "def short(answer): return -float(len(answer))\n"
        "def terser(first, second): return 'first' if len(first) < len(second) else 'second'\n"
    )
    return path


WORDS = ("gold", "people", "length:1-20", "{mine}:short", "{mine}:terser", "{reward}")


@pytest.mark.parametrize("word", WORDS)
def test_every_word_names_a_judge_in_rounds_and_in_evaluations(word: str, mine: Path, reward: Path) -> None:
    named = word.format(mine=mine, reward=reward)
    settings = JudgeSettings(device="cpu", people=Patient())
    rewards = {"gold": gold_reward()}
    for found in (
        judge_named(named, JudgeSettings(device="cpu", people=Patient(), rewards=rewards)),
        load_judge(named, rewards, settings),
    ):
        assert isinstance(found, Judge)
        assert found.name
        (verdict,) = found.verdicts([TASK], 0)
        assert verdict is None or len(verdict.marks) == 2


def test_a_server_is_named_like_any_other(tmp_path: Path) -> None:
    with serving(honest) as server:
        url = server.url.removesuffix("/score") + "/v1"
        found = judge_named(f"openai:{url}#judge", JudgeSettings(cache=tmp_path))
        assert isinstance(found, Judge)
        (verdict,) = found.verdicts([pair("Mice.", "Tea.")], 0)
    assert verdict is not None
    assert verdict.orders is not None
    assert (verdict.orders.forward, verdict.orders.backward) == (1.0, 1.0)


def test_a_verdict_carries_the_judges_own_words_of_both_orders(tmp_path: Path) -> None:
    with serving(honest) as server:
        (verdict,) = judge(server.url, tmp_path).verdicts([pair("Mice.", "Tea.")], 0)
    assert verdict is not None
    assert verdict.rationale is not None
    assert verdict.rationale.count("A says: ") == 2
    assert "A says: Tea." in verdict.rationale


def test_people_and_gold_are_asked_only_where_they_are() -> None:
    with pytest.raises(UserError, match="people answer in a label store, and none is named here"):
        judge_named("people")
    with pytest.raises(UserError, match="people answer in a label store"):
        check_judge("people", has_gold=False)
    with pytest.raises(UserError, match="people compares by itself; leave the noise out"):
        judge_named("people", JudgeSettings(noise=0.5, people=Patient()))
    with pytest.raises(UserError, match="nobody knows it"):
        judge_named("gold")
