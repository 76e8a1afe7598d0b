"""``plaudit train --list`` and the help of every algorithm: each is there with its formula and its paper."""

import re

import pytest

from plaudit.cli.main import main
from plaudit.cli.train import PREFERENCE_LEGEND, format_settings
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.cells import describe_cells as describe_policy_cells
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.methods.preference.cells import describe_cells


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["train", *arguments])
    assert not end.value.code
    return capsys.readouterr().out


def squeezed(text: str) -> str:
    """Without blanks: however a terminal has broken the lines."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_algorithm_is_listed_with_its_facts_in_any_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown(capsys, "--list")
    rest = squeezed(text)
    for facts in PREFERENCE_ALGORITHMS.values():
        assert re.search(rf"^{re.escape(facts.name)}\s", text, re.MULTILINE), facts.name
        cells = describe_cells(facts.function())
        parts = (facts.formula, facts.data, cells, format_settings(facts.defaults), facts.paper)
        for part in parts:
            _, found, rest = rest.partition(squeezed(part))
            assert found, (facts.name, part)
    for line in PREFERENCE_LEGEND:
        assert squeezed(line) in squeezed(text)


def test_the_list_needs_no_method_and_no_model(capsys):
    assert main(["train"]) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_the_help_of_an_algorithm_says_what_it_minimises_and_where_it_is_from(capsys, name):
    text = squeezed(shown(capsys, name, "--help"))
    facts = PREFERENCE_ALGORITHMS[name]
    assert squeezed(f"learn a policy from {facts.data}: {facts.formula}. {facts.paper}.") in text
    for option in ("--model", "--data", "--out", *("--" + one.replace("_", "-") for one in facts.parameters)):
        assert option in text


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", POLICY_ALGORITHMS)
def test_the_help_of_a_policy_algorithm_shows_its_settings(capsys, name):
    text = squeezed(shown(capsys, name, "--help"))
    facts = POLICY_ALGORITHMS[name]
    assert squeezed(f"improve a policy by a reward: {facts.formula}. {facts.paper}.") in text
    for option in ("--model", "--prompts", *("--" + one.replace("_", "-") for one in facts.parameters)):
        assert option in text
    assert "--surrogate" not in text
    assert "--surrogate" in shown(capsys, name, "--help-all")


def test_every_policy_algorithm_is_listed_with_its_cells(capsys):
    rest = squeezed(shown(capsys, "--list"))
    for facts in POLICY_ALGORITHMS.values():
        cells = describe_policy_cells(facts.function())
        for part in (facts.name, facts.formula, cells, format_settings(facts.defaults), facts.paper):
            _, found, rest = rest.partition(squeezed(part))
            assert found, (facts.name, part)


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_the_long_help_has_every_setting(capsys, name):
    text = shown(capsys, name, "--help-all")
    for option in ("--beta", "--length-alpha", "--reference.kind", "--stages.parts"):
        assert option in text


def test_all_algorithms_are_methods_of_train(capsys):
    text = shown(capsys, "--help")
    for name in PREFERENCE_ALGORITHMS:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
