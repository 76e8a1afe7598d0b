"""Wings are found by entry points; what they name is there, and a wing that cannot be used is told of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from plaudit import wings
from plaudit.errors import UserError
from plaudit.wings import Verb, Wing

Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with a wing on the path: its name, its module, what its entry point names."""
    cached = (wings.wings, wings.everything)

    def put(name: str, text: str, point: str) -> None:
        (tmp_path / f"{name}_wing.py").write_text(text, "utf-8")
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", "utf-8")
        (about / "entry_points.txt").write_text(f"[{wings.GROUP}]\n{name} = {name}_wing:{point}\n", "utf-8")
        for function in cached:
            function.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield put
    for function in cached:
        function.cache_clear()
    for module in [module for module in sys.modules if module.endswith("_wing")]:
        del sys.modules[module]


def test_everything_that_the_wings_name_is_there() -> None:
    for kind in (field.name for field in fields(Wing)):
        for thing in wings.everything(kind).values():
            if isinstance(thing, Verb):
                assert callable(wings.load(f"{thing.module}:add_parser"))
            else:
                assert wings.load(thing) is not None


def test_a_wing_of_another_package_is_found(install: Install) -> None:
    text = "from plaudit.wings import Wing\nWING = Wing(offers={'hello': 'builtins:str'})\n"
    install("polite", text, "WING")
    assert wings.offered("hello") is str
    with pytest.raises(UserError, match="goodbye"):
        wings.offered("goodbye")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_at_all\n", r"polite 1\.0 .* cannot be loaded .*nowhere_at_all"),
        ("", r"polite 1\.0 .* cannot be loaded"),
        ("WING = 3\n", "polite_wing:WING is no plaudit.wings.Wing"),
    ],
)
def test_a_wing_that_cannot_be_used_is_told_by_its_package(install: Install, text: str, words: str) -> None:
    install("polite", text, "WING")
    with pytest.raises(UserError, match=words):
        wings.wings()


def test_two_of_one_name_are_refused(install: Install) -> None:
    text = "from plaudit.wings import Wing\nWING = Wing(stages={'rows': 'builtins:str'})\n"
    install("polite", text, "WING")
    with pytest.raises(UserError, match=r"polite and runs both bring 'rows' among their stages"):
        wings.everything("stages")
