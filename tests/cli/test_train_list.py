"""``plaudit train --list`` and the help of every algorithm: each is there with its formula and its paper."""

from __future__ import annotations

import re

import pytest

from plaudit.cli.main import main
from plaudit.cli.train_list import LEGEND, settings_in_words
from plaudit.recipes.preference_table import PREFERENCES


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command shows that then ends well."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["train", *arguments])
    assert not end.value.code
    return capsys.readouterr().out


def squeezed(text: str) -> str:
    """Without blanks: however a terminal has broken the lines."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_algorithm_is_listed_with_its_facts_in_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown(capsys, "--list")
    rest = squeezed(text)
    for facts in PREFERENCES.values():
        assert re.search(rf"^{re.escape(facts.name)}\s", text, re.MULTILINE), facts.name
        parts = (facts.formula, facts.data, facts.cells, settings_in_words(facts.defaults), facts.paper)
        for part in parts:
            _, found, rest = rest.partition(squeezed(part))
            assert found, (facts.name, part)
    for line in LEGEND:
        assert squeezed(line) in squeezed(text)


def test_the_list_is_in_the_order_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--list")
    names = re.findall(r"^(\S+)\s", text, re.MULTILINE)
    assert [name for name in names if name in PREFERENCES] == list(PREFERENCES)


def test_the_list_needs_no_method_and_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("name", PREFERENCES)
def test_the_help_of_an_algorithm_says_what_it_minimises_and_where_it_is_from(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = squeezed(shown(capsys, name, "--help"))
    facts = PREFERENCES[name]
    assert squeezed(f"learn a policy from {facts.data}: {facts.formula}. {facts.paper}.") in text
    for option in ("--model", "--data", "--out"):
        assert option in text


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_the_long_help_has_every_setting(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = shown(capsys, name, "--help-all")
    for option in ("--preference.beta", "--preference.mix", "--reference.kind", "--stages.parts"):
        assert option in text


def test_all_algorithms_are_methods_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help")
    for name in PREFERENCES:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
