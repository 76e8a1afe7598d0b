"""What no policy can be learnt from is refused: where, why, what to do; and a run that has begun lives on."""

from pathlib import Path

import pytest
import yaml

from plaudit.errors import UserError
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.run import policy
from tests.engine.toy import make_model, write_rows
from tests.methods.policy.commands import Place, go, make_place, well
from tests.rollouts.talkers import write_talker, write_tokenizer

SHORT = ("--rounds", 2, "--sample.rows", 0)
Case = tuple[str, tuple[object, ...], tuple[str, ...]]
"""An algorithm, its settings, and what is said."""
SETTINGS: dict[str, Case] = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))[
    "settings"
]
REWARDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "raises": ("broken", ("it raised ValueError: no idea", "rules.py:broken")),
    "is no number": ("nan", ("it gave nan", "None for no verdict")),
    "never says": ("nobody", ("has a verdict on none of",)),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("refusals"))


def refused(place: Place, name: str, out: str, *more: object) -> str:
    went = go(place, name, out, *SHORT, *more)
    assert went.code == 2, went.said
    assert not [*went.run.rglob("step-*")]
    assert not (went.run / "model").exists()
    return went.said


@pytest.mark.one_in(4)
@pytest.mark.parametrize("what", SETTINGS)
def test_settings_that_have_no_meaning_are_refused(place: Place, what: str) -> None:
    name, more, why = SETTINGS[what]
    said = refused(place, name, what, *more)
    for words in why:
        assert words in said


@pytest.mark.slow
@pytest.mark.parametrize("what", REWARDS)
def test_rewards_that_say_nothing_sensible_are_refused(place: Place, what: str) -> None:
    function, why = REWARDS[what]
    said = refused(place, "grpo", f"reward that {what}", "--reward", place.rule(function))
    for words in why:
        assert words in said
    # Nothing was spoilt: with a reward that can be used, elsewhere, the same command goes well.
    well(place, "grpo", f"instead of {what}", *SHORT)


@pytest.mark.parametrize("name", ["grpo", "p3o"])
def test_a_run_whose_every_prompt_has_one_verdict_has_nothing_to_compare(place, name, tmp_path):
    seen = tmp_path / "first.py"
    seen.write_text(
        "asked = {}\n\n\ndef first(prompt, answer):\n"
        "    asked[prompt] = asked.get(prompt, 0) + 1\n"
        "    return float(len(answer)) if asked[prompt] == 1 else None\n"
    )
    said = refused(place, name, f"one verdict {name}", "--reward", f"{seen}:first", "--held-out", 0)
    assert "no prompt has two answers with a verdict" in said


@pytest.mark.slow
def test_verdicts_that_are_missing_are_left_out(place: Place) -> None:
    """Of pairs that lost one, the other goes too; nothing counts as 0."""
    for name in ("p3o", "grpo", "online-dpo"):
        more = ("--rounds", 1, "--batch-size", 12, "--held-out", 0, "--sample.rows", 0)
        first = well(place, name, f"missing-{name}", *more, "--reward", place.rule("half")).lines[0]
        assert 0 < first["frac_no_verdict"] < 1
        assert first["reward"] >= 1
        if name == "p3o":
            assert first["rows"] < 12


def test_a_name_that_is_not_there_has_a_hint(place: Place) -> None:
    config = PolicyConfig(
        model=place.model, prompts=place.folder / "prompts.jsonl", reward="exact", out=place.folder / "none"
    )
    with pytest.raises(UserError, match=r"called 'grpo2'.*did you mean grpo\?"):
        policy("grpo2", config)


def test_prompts_that_leave_no_room_are_refused_by_their_rows(place: Place, tmp_path: Path) -> None:
    rows = [{"prompt": " ".join(["w9"] * 140)}, {"prompt": "w9 w10"}, {"prompt": "w9 w10"}, {"prompt": "w8"}]
    data = write_rows(tmp_path / "long.jsonl", rows)
    said = refused(place, "grpo", "long", "--prompts", data)
    assert "long.jsonl:1" in said
    assert "space for 122" in said
    went = well(place, "grpo", "few long", *SHORT, "--prompts", data, "--rows.threshold", 0.5)
    assert "asked only once" in went.said


@pytest.mark.parametrize("what", ["critic.model", "reference.model"])
def test_models_of_another_vocabulary_are_refused(place: Place, tmp_path: Path, what: str) -> None:
    make_model(tmp_path / "other")
    said = refused(place, "ppo", f"other {what}", f"--{what}", tmp_path / "other")
    assert "token" in said
    assert "other" in said


@pytest.mark.slow
def test_a_reference_of_the_same_family_is_taken(place: Place, tmp_path: Path) -> None:
    write_talker(tmp_path / "older", seed=3)
    write_tokenizer(tmp_path / "older")
    went = well(place, "ppo", "older", *SHORT, "--reference.model", tmp_path / "older")
    assert went.lines[0]["kl"] != 0


@pytest.mark.slow
def test_tokens_that_are_left_out_are_said_aloud(place: Place) -> None:
    went = well(place, "grpo", "top-p", *SHORT, "--draw.top-p", 0.9)
    assert "top-k, top-p or min-p leave tokens out" in went.said
    assert "leave tokens out" not in well(place, "grpo", "whole", *SHORT).said


@pytest.mark.slow
def test_a_model_with_dropout_in_its_config_is_trained_without(tmp_path: Path) -> None:
    """GPT-2's is on when its folder is loaded by others; policy and critic begin rounds where they stand."""
    went = well(make_place(tmp_path, name="gpt2"), "ppo", "gpt2", *SHORT, "--minibatches", 2)
    assert [line["ratio"] for line in went.lines[::8]] == [1.0, 1.0]


@pytest.mark.slow
def test_a_reward_that_fails_on_the_way_leaves_a_run_that_goes_on(place: Place, tmp_path: Path) -> None:
    rule = tmp_path / "flaky.py"
    good = "def length(answer):\n    return float(len(str(answer).split()))\n"
    failing = (
        "calls = []\n\n\ndef length(answer):\n    calls.append(1)\n"
        "    assert len(calls) < 60, 'too often'\n    return float(len(str(answer).split()))\n"
    )
    more = ("--rounds", 4, "--group-size", 4, "--save-every", 1, "--held-out", 0, "--sample.rows", 0)
    rule.write_text(failing)
    run = (place, "grpo", "flaky", *more, "--reward", f"{rule}:length")
    went = go(*run)
    assert went.code == 2
    assert "too often" in went.said
    assert len(went.lines) == 3
    rule.write_text(good)
    whole = well(place, "grpo", "steady", *more, "--reward", f"{rule}:length")
    again = well(*run)
    assert [{**line, "timing": 0} for line in again.lines] == [{**line, "timing": 0} for line in whole.lines]
