"""Loops on the command line: listed, helped, configured by file, and refused in words."""

import re
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.cli.train import LOOP_LEGEND, format_settings
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.iterative.config import LoopConfig, LoopSettings, resolve_settings
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.methods.registry import METHODS, TABLES
from tests.cli.test_train_list import shown, squeezed

GIVEN = ("--model", "sft/model", "--prompts", "p.jsonl", "--out", "runs/loop")
REWARDS = {"reward": "number", "itself": "self", "demonstrations": ""}
"""The reward of a row, by what scores its answers."""


def reward_of(name: str) -> str:
    return REWARDS[ITERATIVE_ALGORITHMS[name].scored_by]


def test_the_list_has_the_loops_in_a_section_of_their_own(capsys):
    text = shown(capsys, "--list")
    names = re.findall(r"^(\S+)\s", text, re.MULTILINE)
    assert [name for name in names if name in ITERATIVE_ALGORITHMS] == list(ITERATIVE_ALGORITHMS)
    head = text.index(LOOP_LEGEND[0])
    assert text.index("cdpo ") < head < text.index("\nrejection ")
    rest = squeezed(text)
    for facts in ITERATIVE_ALGORITHMS.values():
        for part in (facts.formula, facts.cells, format_settings(facts.defaults), facts.paper):
            _, found, rest = rest.partition(squeezed(part))
            assert found, (facts.name, part)


@pytest.mark.parametrize("name", ITERATIVE_ALGORITHMS)
def test_the_help_of_a_loop_says_what_it_chooses(capsys, name):
    text = shown(capsys, name, "--help")
    facts = ITERATIVE_ALGORITHMS[name]
    assert squeezed(f"{facts.formula}. {facts.paper}.") in squeezed(text)
    for option in ("--model", "--prompts", "--out"):
        assert option in text
    assert ("--reward" in text) == bool(reward_of(name))
    assert "--data" not in text


@pytest.mark.parametrize("name", ["rejection", "iterated"])
def test_the_long_help_has_every_setting(capsys, name):
    text = shown(capsys, name, "--help-all")
    for option in ("--loop.rounds", "--loop.threshold", "--sampling.temperature", "--preference.beta"):
        assert option in text


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ITERATIVE_ALGORITHMS)
def test_a_printed_config_reads_back_the_same(capsys, tmp_path, name):
    given = (*GIVEN, "--reward", reward_of(name)) if reward_of(name) else GIVEN
    first = shown(capsys, name, *given, "--loop.answers", "5", "--sampling.stop", "a", "b", "--print-config")
    found = yaml.safe_load(first)
    assert found["prompts"] == "p.jsonl"
    assert found["loop"]["answers"] == 5
    assert "data" not in found
    file = tmp_path / "config.yaml"
    file.write_text(first, "utf-8")
    assert shown(capsys, name, "--config", str(file), "--print-config") == first


def test_a_loop_without_prompts_or_reward_says_what_is_missing(capsys):
    assert main(["train", "rejection", "--model", "m", "--out", "o"]) == 2
    assert "missing: --prompts, --reward" in capsys.readouterr().err


def test_no_two_methods_have_the_same_name():
    names = [*METHODS, *(name for table in TABLES for name in table.rows)]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("name", ITERATIVE_ALGORITHMS)
def test_a_row_is_whole_and_reads_its_own_settings(name):
    facts = ITERATIVE_ALGORITHMS[name]
    assert {*facts.defaults, *facts.optional_settings} <= {*LoopSettings.__dataclass_fields__}
    assert {"rounds", "answers"} <= {*facts.defaults}
    assert facts.trainer == "sft" or facts.trainer in PREFERENCE_ALGORITHMS
    config = LoopConfig(model=Path("m"), prompts=Path("p"), reward=reward_of(name), out=Path("o"))
    how = resolve_settings(facts, config)
    assert {setting: getattr(how, setting) for setting in facts.defaults} == facts.defaults


def test_a_share_takes_the_place_of_a_threshold_and_a_threshold_that_of_a_share():
    given = {"model": Path("m"), "prompts": Path("p"), "reward": "number", "out": Path("o")}
    expert = resolve_settings(
        ITERATIVE_ALGORITHMS["expert"], LoopConfig(**given, loop=LoopSettings(top=(0.2,)))
    )
    assert (expert.threshold, expert.top) == ((), (0.2,))
    rest = resolve_settings(
        ITERATIVE_ALGORITHMS["rest"], LoopConfig(**given, loop=LoopSettings(threshold=(0.5, 0.9)))
    )
    assert (rest.threshold, rest.top) == ((0.5, 0.9), ())
