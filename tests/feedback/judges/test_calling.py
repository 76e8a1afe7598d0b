"""A Python function as a model that judges: ``call:file.py:function``, and a mind in this process."""

from pathlib import Path

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import NoVerdict, Verdict, first_probability, outcomes
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.judge_kinds import JudgeReward, writer_named
from plaudit.feedback.judges.calling import FunctionChat
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.money import CapReachedError, Purse
from plaudit.feedback.judges.replies import CUT, REFUSED, UNREADABLE
from plaudit.feedback.judges.wording import Question, wording_named
from plaudit.feedback.judges.writing import Written
from plaudit.lab.world import making
from plaudit.lab.world.minds import Mind
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings, names_function
from plaudit.rewards.registry import resolve_reward
from tests.feedback.judges.judges import judge, pair

TASKS = making.answer_tasks(30, answers=2, split="train", seed=4)
OWL = pair("Mice.", "Tea.")


def called(path: Path, name: str, **more: object) -> ModelJudge:
    found = judge_named(
        f"call:{path}:{name},how=letter",
        ModelJudgeSettings(cache=path.parent / "replies", **more),  # type: ignore[arg-type]
    )
    assert isinstance(found, ModelJudge)
    return found


def written(folder: Path, text: str) -> Path:
    path = folder / "own.py"
    path.write_text(text)
    return path


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["letter", "verdict", "reasons", "points"])
def test_the_worlds_mind_says_in_process_what_it_says_over_http(tmp_path, how):
    ask = HowToAsk(how=how)
    inside = judge_named(
        "call:plaudit.lab.world.minds:mind", ModelJudgeSettings(cache=tmp_path / "inside", ask=ask)
    )
    assert (inside.name, getattr(inside, "version", "")) == ("mind", f"{how}-1")
    with MindServer([Mind()]) as server:
        outside = judge(server.url, tmp_path / "outside", model="world", how=how)
        pairs = list(zip(outcomes(inside, TASKS, 0), outcomes(outside, TASKS, 0), strict=True))
    for here, there in pairs:
        assert isinstance(here, Verdict)
        assert isinstance(there, Verdict)
        assert first_probability(here) == pytest.approx(first_probability(there), abs=1e-9)


def test_a_mind_of_ones_own_file_without_log_probs_is_drawn_from(tmp_path):
    path = written(
        tmp_path,
        "from plaudit.lab.world.minds import Mind\n"
        "mute = Mind(name='mute', logprobs=False, unreadable=0.2)\n",
    )
    asked = called(path, "mute")
    found = outcomes(asked, TASKS, 0)
    assert asked.notes == ("mute gives no log-probs: the share of 8 draws stands for the chance",)
    assert {outcome.reason for outcome in found if isinstance(outcome, NoVerdict)} <= {UNREADABLE, CUT}
    assert any(isinstance(o, Verdict) and first_probability(o) not in (0, 0.5, 1) for o in found)


def test_a_function_takes_what_it_names_and_replies_as_it_can(tmp_path):
    path = written(
        tmp_path,
        "def plain(question): return '**A**' if '> Mice.' in question.partition('Answer B')[0] else 'B'\n"
        "def sure(question, *, words, temperature, max_tokens, seed):\n"
        "    assert (words, temperature, max_tokens, seed) == (('A', 'B'), 0.0, 8, None)\n"
        "    first = 0.75 if plain(question) == '**A**' else 0.25\n"
        "    return {'text': 'A' if first > 0.5 else 'B', 'odds': {'A': first, 'B': 1 - first}}\n"
        "def shy(**rest): return {'refused': True}\n"
        "def long(question): return {'text': 'Well', 'cut': True}\n",
    )
    for name, share in (("plain", 1.0), ("sure", 0.75)):
        [verdict] = called(path, name).verdicts([OWL], 0)
        assert verdict is not None
        assert first_probability(verdict) == share
    for name, reason in (("shy", REFUSED), ("long", CUT)):
        [found] = outcomes(called(path, name), [OWL], 0)
        assert isinstance(found, NoVerdict)
        assert found.reason == reason


def test_nothing_is_called_twice_and_an_edited_function_is_called_anew(tmp_path):
    calls = tmp_path / "calls"
    text = (
        "def mine(question, words=()):\n"
        f"    with open({str(calls)!r}, 'a') as file: file.write('x')\n"
        "    return {'text': 'A', 'odds': dict.fromkeys(words, 0.5)}\n"
    )
    path = written(tmp_path, text)
    tasks = [OWL, pair("Tea.", "Mice."), pair("Mice.", "Bark.")]
    for _ in range(2):
        outcomes(called(path, "mine"), tasks, 0)
        assert len(calls.read_text()) == 4
    path.write_text(f"{text}# another\n")
    outcomes(called(path, "mine"), tasks, 0)
    assert len(calls.read_text()) == 8


def test_several_at_once_are_the_same_and_an_error_of_one_ends_it_with_what_was_said_kept(tmp_path):
    path = written(
        tmp_path,
        "def mine(question):\n    if 'Bark' in question: raise KeyError('no such key')\n    return 'A'\n",
    )
    tasks = [pair("Mice.", f"Tea {n}.") for n in range(6)]
    asked = called(path, "mine", ask=HowToAsk(draws=1, requests=4))
    assert outcomes(asked, tasks, 0) == outcomes(called(path, "mine", ask=HowToAsk(draws=1)), tasks, 0)
    with pytest.raises(UserError, match=r"own.py:mine: it raised KeyError: 'no such key' \(own.py, line 2\)"):
        outcomes(asked, [pair("Mice.", "Bark."), *tasks], 0)
    # One question found that there are no log-probs, then each was drawn once.
    assert len(list((tmp_path / "replies").rglob("*.json"))) == 13


def test_a_function_with_a_price_is_held_to_a_cap_and_one_without_is_free(tmp_path):
    path = written(tmp_path, "def mine(question): return 'A'\n")
    free = called(path, "mine", purse=Purse(0.01), ask=HowToAsk(draws=1))
    outcomes(free, [OWL], 0)
    assert free.estimate([OWL]).cost == 0.0
    path.write_text("def mine(question): return 'B'\n")
    dear = called(path, "mine,price=1000/1000", purse=Purse(0.01), ask=HowToAsk(draws=1))
    with pytest.raises(CapReachedError):
        outcomes(dear, [OWL], 0)


def test_what_fits_beneath_a_cap_is_asked_and_the_same_command_asks_nothing_more(tmp_path):
    log = tmp_path / "log"
    text = f"def mine(question):\n    with open({str(log)!r}, 'a') as file: file.write(question)\n"
    path = written(tmp_path, f"{text}    return 'A'\n")
    other = pair("Mice.", "Bread.")
    tasks = [OWL, pair("Mice. " * 2000, "Tea."), other]
    short = called(path, "mine,price=100/100", ask=HowToAsk(draws=1)).estimate([OWL, other]).cost
    assert short is not None
    said = list[str]()
    for _ in range(2):
        asked = called(path, "mine,price=100/100", purse=Purse(1.5 * short), ask=HowToAsk(draws=1))
        with pytest.raises(CapReachedError):
            outcomes(asked, tasks, 0)
        said.append(log.read_text())
    assert "Bread." in said[0]
    assert said[1] == said[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("3", "it gave 3; expected a text, or a mapping"),
        ("None", "it gave None; expected a text"),
        ("{'txt': 'A'}", "its reply has 'txt'; expected a text"),
        ("{'odds': {'A': 1}}", "it gave .*; expected a text"),
        ("{'text': 'A', 'refused': 'no'}", "it gave .*; expected a text"),
        ("{'text': 'A', 'odds': {'A': -1}}", "its odds are .*; expected a share, 0 or more"),
        ("{'text': 'A', 'odds': [0.5, 0.5]}", "its odds are .*; expected a share, 0 or more"),
    ],
)
def test_a_reply_of_another_form_is_refused_with_what_was_expected(tmp_path, value, message):
    path = written(tmp_path, f"def mine(question): return {value}\n")
    with pytest.raises(UserError, match=message):
        outcomes(called(path, "mine"), [OWL], 0)


def test_a_word_of_no_such_function_is_refused_before_anything_is_asked(tmp_path):
    path = written(tmp_path, "def terser(first, second): return 'first'\nmine = 3\n")
    for word, message in (
        (f"call:{path}:none", "there is no 'none'"),
        (f"call:{tmp_path}/no.py:mine", "there is no file"),
        (f"call:{path}:mine", "is a int, and a function is needed"),
        (f"call:{path}:terser", "it asks for first, second; it is called by name with any of question"),
        (f"call:{path}:terser,hwo=letter", "nothing is called hwo"),
        ("call:mine", "is no function"),
    ):
        with pytest.raises(UserError, match=message):
            check_judge(word, has_gold=False)
    check_judge("call:plaudit.lab.world.minds:mind,how=points", has_gold=False)
    assert not names_function("call:plaudit.lab.world.minds:mind")


def test_the_worlds_mind_writes_in_process(tmp_path):
    writer = writer_named("call:plaudit.lab.world.minds:mind", JudgeSettings(cache=tmp_path))
    blocks = (("Answer", plain_text(TASKS[0].answers[0])),)
    asked = Question(wording=wording_named("critique"), prompt=TASKS[0].prompt, blocks=blocks)
    [found] = writer.texts([asked], seed=0)
    assert isinstance(found, Written)
    assert found.text.endswith(".")
    assert writer.texts([asked], seed=0) == [found]


def test_a_function_is_a_member_of_a_jury_and_a_reward_like_any_judge(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "jury.yaml"
    path.write_text("- call:plaudit.lab.world.minds:mind\n- length:1-20\n")
    check_judge(f"jury:{path}", has_gold=False)
    assert judge_named(f"jury:{path},how=letter").verdicts(TASKS[:2], 0)[0] is not None
    reward = resolve_reward("judge:call:plaudit.lab.world.minds:mind")
    assert isinstance(reward, JudgeReward)
    assert isinstance(reward.judge, ModelJudge)
    assert isinstance(reward.judge.asker, FunctionChat)
    [row] = reward.scores(TASKS[:1])
    assert all(score is not None and 1 <= score <= 5 for score in row)
