"""What models, files and annotators are called, and what models said, can do nothing to the page of it."""

from dataclasses import replace

import pytest

from plaudit.evaluation.reward_models.result import Ceiling, Mistake, RewardEvaluation, Slice
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.reward_models.page import write_reward_page
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.read_page import read_page, stands_alone
from tests.runs.report.reward_models.page_zoo import FULL, OTHER

ATTACK = "</text></svg></div></title><script>alert(1)</script><img src=x onerror='alert(2)'>\"'&amp;<!--"


def hostile(model: str) -> RewardEvaluation:
    """An evaluation in which every text from outside is an attack."""
    one = Estimate(value=0.5, low=0.4, high=0.6, n=10, prompts=10)
    part = (Slice(name=ATTACK, accuracy=one),)
    assert FULL.benchmark is not None
    section = replace(FULL.benchmark.sections[0], name=ATTACK)
    features = tuple(replace(f, name=ATTACK, what=ATTACK, words=ATTACK) for f in FULL.probes.features)
    return replace(
        FULL,
        model=model,
        data=ATTACK,
        worst=ATTACK,
        categories=part,
        strengths=part,
        annotators=part,
        groups=part,
        ceiling=Ceiling(source=ATTACK, accuracy=one, at_most=0.7, words=ATTACK),
        probes=replace(FULL.probes, features=features, words=ATTACK),
        benchmark=replace(FULL.benchmark, name=ATTACK, sections=(section,), notes=(ATTACK,)),
        mistakes=(
            Mistake(
                prompt=ATTACK, preferred=ATTACK, other=ATTACK, margin=-1.0, category=ATTACK, origin=ATTACK
            ),
        ),
        notes=(ATTACK,),
    )


def test_markup_from_outside_is_shown_and_not_obeyed(tmp_path):
    alone = read_page(write_reward_page([hostile(ATTACK)], tmp_path / "one.html"))
    both = read_page(write_reward_page([hostile(ATTACK), hostile(f"{ATTACK}2")], tmp_path / "two.html"))
    for page in (alone, both):
        assert not {"script", "img", "link", "iframe"} & set(page.tags)
        assert page.sections["Where it is sure and wrong"].count(ATTACK) >= 3
        assert not {name for _, name, _ in page.attributes if name.startswith("on")}
    assert ATTACK in alone.words["h2"]


def test_the_page_stands_alone_and_a_reader_by_ear_or_keyboard_finds_the_way(tmp_path):
    page = stands_alone(write_reward_page([FULL, OTHER], tmp_path / "report.html"))
    assert page.tags["h1"] == page.tags["main"] == 1
    assert (
        page.tags["figure"] == page.tags["figcaption"] == page.tags["desc"] == len(page.values("svg", "role"))
    )
    assert page.tags["svg"] == page.tags["desc"] + len(page.values("svg", "aria-hidden"))
    assert len(page.values("th", "scope")) == page.tags["th"]
    assert page.values("div", "tabindex") == ["0"] * page.tags["table"]
    assert set(page.values("h2", "id")) == set(page.values("section", "aria-labelledby"))
    assert len(set(page.values("h2", "id"))) == page.tags["h2"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("models", [[FULL], [FULL, OTHER], [hostile("x" * 300), hostile("数" * 90)]])
def test_nothing_is_wider_than_a_phone_and_no_words_of_a_drawing_are_cut_off(models, tmp_path):
    keeps_to_its_width(write_reward_page(models, tmp_path / "report.html").read_text(), tmp_path)
