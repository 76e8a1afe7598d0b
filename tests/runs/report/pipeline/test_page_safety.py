"""What models, stages, judges and people are called, and what models said, can do nothing to the page."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.runs.report.compare import comparison_page, read_runs
from plaudit.runs.report.pipeline.page import write_report
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.pipeline.pipelines import FOUND, write_pipeline
from tests.runs.report.read_page import Page, read_page

MARKUP = "</text></svg></title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"'&amp;<!--"
STYLE = "</style><style>*{display:none}</style>expression(alert(1));url(javascript:alert(1))"
ARROWS = "<svg onload=alert(1)><a href=javascript:alert(1)>\u202egpj.exe\u2066\u200b\x1b[2J"
LONG = "x" * 3000
WIDE = "数" * 600
ATTACKS = (MARKUP, STYLE, ARROWS, LONG, WIDE)


def poisoned(value: Any, attack: str) -> Any:
    if isinstance(value, str):
        return attack + value
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{part.name: poisoned(getattr(value, part.name), attack) for part in fields(value)}
        )
    if isinstance(value, tuple):
        return tuple(poisoned(one, attack) for one in value)
    if isinstance(value, list):
        return [poisoned(one, attack) for one in value]
    if isinstance(value, Mapping):
        return {poisoned(key, attack): poisoned(one, attack) for key, one in value.items()}
    return value


def hostile(folder: Path, attack: str) -> Path:
    """A pipeline in which all that is read from files is an attack, but for the names of fields."""
    write_pipeline(folder, poisoned(FOUND, attack))
    for path in sorted(folder.glob("stages/*/stage.json")):
        told = json.loads(path.read_text())
        for name in ("do", "settings", "outputs", "code", "ended", "command", "said", "key"):
            told[name] = poisoned(told[name], attack)
        told["code"]["plaudit"] = told["code"]["commit"] = attack
        told["inputs"] = {attack + name: poisoned_values(one, attack) for name, one in told["inputs"].items()}
        told["checks"] = [poisoned_values(one, attack) for one in told["checks"]]
        path.write_text(json.dumps(told))
    reward = folder / "stages" / "reward-judged" / "summary.json"
    held = json.loads(reward.read_text())
    for one in held["evaluations"]:
        one |= {"model": attack, "data": attack, "notes": [attack]}
        one["ceiling"] |= {"source": attack, "words": attack}
        for probe in one["probes"]["features"]:
            probe |= {"name": attack, "what": attack, "words": attack, "unit": attack}
    reward.write_text(json.dumps(held))
    notes = folder / "stages" / "sft" / "run" / "notes.jsonl"
    notes.write_text(json.dumps({"step": 1, "note": attack}) + "\n")
    with (folder / "pipeline.yaml").open("a", encoding="utf-8") as file:
        file.write(f"- {json.dumps(attack.replace('/', '')[:60])}: {{do: sft}}\n")
        file.write("- later: {do: " + json.dumps(attack) + "}\n")
    return folder


def poisoned_values(told: Mapping[str, Any], attack: str) -> dict[str, Any]:
    return {name: attack + value for name, value in told.items()}


def harmless(page: Page, *links: str) -> None:
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not {name for _, name, _ in page.attributes if name.startswith("on")}
    assert not {name for _, name, _ in page.attributes} & {"style", "src"}
    assert all(link.startswith("#") or link in links for link in page.values("a", "href"))
    assert page.tags["style"] == 1
    every = " ".join(text for texts in page.words.values() for text in texts)
    assert not set("\u202e\u2066\u200b\x1b") & set(every)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("attack", ATTACKS, ids=["markup", "style", "arrows", "long", "wide"])
def test_words_from_outside_are_shown_and_not_obeyed(attack: str, tmp_path: Path) -> None:
    page = read_page(write_report(hostile(tmp_path / "valley", attack)))
    harmless(page)
    assert len(page.sections["Samples"]) > 1000
    if attack is MARKUP:
        assert page.sections["Samples"].count("<script>alert(1)</script>") >= 100


@pytest.mark.one_in(3)
@pytest.mark.parametrize("attack", ATTACKS, ids=["markup", "style", "arrows", "long", "wide"])
def test_words_from_outside_are_not_obeyed_in_a_comparison(attack: str, tmp_path: Path) -> None:
    folders = [hostile(tmp_path / name, attack) for name in ("one", "two")]
    path = folders[1] / "pipeline.yaml"
    path.write_text(path.read_text().replace("seed: 0", f"seed: {json.dumps(attack)}"))
    (tmp_path / "both.html").write_text(comparison_page(read_runs(folders)))
    harmless(read_page(tmp_path / "both.html"))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("attack", [MARKUP, LONG, WIDE], ids=["markup", "long", "wide"])
def test_no_word_is_so_long_that_the_page_becomes_wider(attack: str, tmp_path: Path) -> None:
    keeps_to_its_width(write_report(hostile(tmp_path / "valley", attack)).read_text(), tmp_path)
