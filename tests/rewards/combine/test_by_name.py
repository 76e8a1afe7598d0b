"""Rules, learned rewards and judges as one reward by a file and a word."""

from pathlib import Path

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.lab.world.minds import Mind
from plaudit.rewards.base import leaf_rewards, traits_of
from plaudit.rewards.combine.cascade import HasScoreParts
from plaudit.rewards.kinds import names_function
from plaudit.rewards.registry import resolve_reward

OWL = Task(
    prompt="What does the owl eat?",
    answers=("mice", "Bark.", "Perhaps mice."),
    ended=(True,) * 3,
    reference_answer="mice",
)
MINE = """
def sure(answer): return {"mice": 1.0, "Bark.": -0.2, "Perhaps mice.": None}[str(answer)]
def safe(answer): return 0.0 if "Bark" in str(answer) else 1.0
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def test_a_cascade_of_a_rule_a_function_and_a_judge_says_who_decided(here):
    with MindServer([Mind(accuracy=1.0)]) as server:
        (here / "checked.yaml").write_text(
            f"- {{reward: 'mine.py:sure', sure: 0.5}}\n- judge:openai:{server.url}#world\n- exact\n"
        )
        reward = resolve_reward("cascade:checked.yaml")
        assert isinstance(reward, HasScoreParts)
        found = reward.scores_with_parts([OWL])
        # The judge is asked about two answers, and not about the one that the first was sure of.
        assert server.counts.requests == 2
    [(mice, bark, perhaps)] = found.rows
    assert mice == 1.0
    assert bark is not None
    assert perhaps is not None
    assert 1 <= bark < perhaps <= 5
    assert found.parts["mine.py:sure decides"] == ((1.0, 0.0, 0.0),)
    assert found.parts["world decides"] == ((0.0, 1.0, 1.0),)
    assert found.parts["exact decides"] == ((0.0, 0.0, 0.0),)
    assert reward.name == "checked"
    assert any(traits_of(leaf).remote for leaf in leaf_rewards(reward))


def test_a_chance_is_sure_when_it_is_far_from_a_half(here):
    (here / "chance.py").write_text(
        "def likely(answer): return {'mice': 0.95, 'Bark.': 0.4}.get(str(answer), 0.6)\n"
    )
    (here / "routed.yaml").write_text("- {reward: 'chance.py:likely', sure: 0.3, centre: 0.5}\n- exact\n")
    assert resolve_reward("cascade:routed.yaml").scores([OWL]) == ((0.95, 0.0, 0.0),)


def test_a_blend_weighs_and_a_gate_decides_where_it_is_low(here):
    (here / "both.yaml").write_text(
        "- {reward: exact, weight: 0.75}\n- {reward: 'mine.py:safe', weight: 0.25}\n"
    )
    assert resolve_reward("blend:both.yaml").scores([OWL]) == ((1.0, 0.0, 0.25),)
    (here / "safe.yaml").write_text("- {reward: 'mine.py:safe', below: 0.5}\n- 'mine.py:sure'\n")
    gated = resolve_reward("gated:safe.yaml")
    assert gated.scores([OWL]) == ((1.0, 0.0, None),)
    assert isinstance(gated, HasScoreParts)
    assert gated.scores_with_parts([OWL]).parts["mine.py:safe decides"] == ((0.0, 1.0, 0.0),)
    (here / "nested.yaml").write_text("- {reward: 'gated:safe.yaml', sure: 0.5}\n- exact\n")
    assert resolve_reward("cascade:nested.yaml").scores([OWL]) == ((1.0, 0.0, 0.0),)
    assert not names_function("cascade:nested")


@pytest.mark.parametrize(
    ("word", "text", "message"),
    [
        ("cascade:x.yaml", "- exact", "a list of two rewards or more"),
        (
            "cascade:x.yaml",
            "- exact\n- {reward: number, shure: 1}",
            "member 2: nothing is called 'shure'; did",
        ),
        ("cascade:x.yaml", "- exact\n- {sure: 1}", "member 2: expected a reward's word"),
        ("cascade:x.yaml", "- exact\n- {reward: number, sure: high}", "sure is 'high', expected a number"),
        ("cascade:x.yaml", "- exact\n- exact", "same name"),
        ("cascade:x.yaml", "- exact\n- exakt", "Did you mean exact"),
        ("blend:x.yaml", "- {reward: exact, weight: 0.5}\n- number", "member 2: weight is missing"),
        ("blend:x.yaml", "- {reward: exact, weight: 1}\n- {reward: number, weight: 2}", "give shares of 1"),
        ("gated:x.yaml", "- exact\n- number\n- 'length:1-9'", "the first reward is the gate"),
        ("cascade:none.yaml", "", "cannot be read as a list of rewards"),
    ],
)
def test_a_file_is_refused_by_place_and_field(here, word, text, message):
    (here / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        resolve_reward(word)
