"""The page of reward models tells what was found, what was not, and how all of it was made."""

from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.data.records import Comparison
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.evaluate import RewardEvaluationData, evaluate_reward
from plaudit.evaluation.reward_models.result import Ceiling, Mistake, RewardEvaluation, Slice
from plaudit.evaluation.stats import Estimate
from plaudit.rewards.base import FunctionReward
from plaudit.runs.report.reward_models.page import write_reward_page
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.read_page import Page, read_page, stands_alone
from tests.runs.report.reward_models.page_zoo import BARE, FULL, OTHER

SECTIONS = [
    *("Where it is right", "Calibration of the reward", "Biases of the reward"),
    *("What a policy would make of it", "RewardBench", "Where it is sure and wrong"),
    *("What was left out", "How it was made"),
]


def page_of(folder: Path, *evaluations: RewardEvaluation) -> Page:
    return read_page(write_reward_page(evaluations, folder / "report.html"))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def lede(page: Page) -> str:
    return plain(page.words["p"][1])


def described(page: Page, title: str) -> str:
    """What the drawing of this name says in words."""
    titles = [title for title in page.words["h3"] if "istake" not in title]
    at = next(at for at, heading in enumerate(titles) if heading.startswith(title))
    return page.words["desc"][at]


def test_one_model_is_told_from_its_accuracy_to_how_it_was_made(tmp_path):
    page = page_of(tmp_path, FULL)
    assert page.words["h1"] == ["Reward model runs/rewards/last-token"]
    assert page.words["h2"] == SECTIONS
    assert lede(page) == (
        "The model prefers the answer that annotators prefer in 71.2 % of 540 pairs (95 % interval 67.4 to "
        "75.0). As annotators agree with each other, the most that a model could reach is between 77.2 % "
        "and 84.3 %, going by 203 pairs."
    )
    assert "Worst category54.1 %refusals" in page.sections["head"]
    made = page.sections["How it was made"]
    for fact in ("runs/rewards/last-token", "data/held-out.jsonl", "600", "212", "1,000", "bootstrap7"):
        assert fact in made


def test_every_category_strength_annotator_and_group_is_in_a_drawing_and_in_a_table(tmp_path):
    page = page_of(tmp_path, FULL)
    assert described(page, "By category").startswith(
        "refusals · 61 pairs: runs/rewards/last-token 54.1 % (41.6 to 66.6); maths · 120 pairs: "
    )
    for title, parts in (
        ("By category", FULL.categories),
        ("By strength", FULL.strengths),
        ("By annotator", FULL.annotators),
        ("By group", FULL.groups),
    ):
        said = described(page, title)
        places = [said.index(f"{part.name} · {part.accuracy.n} pair") for part in parts]
        assert places == sorted(places)
        assert all(part.name in page.words["th"] for part in parts)


def test_probes_best_of_n_benchmark_and_what_was_left_out_are_told(tmp_path):
    page = page_of(tmp_path, FULL)
    probed = plain(page.sections["Biases of the reward"])
    assert "the true utility of both answers held fixed" in probed
    assert all(f"{probe.words}." in probed for probe in FULL.probes.features)
    assert "The model prefers a right answer that hedges in 61.0 % of 128 questions" in probed
    assert described(page, "Odds").startswith(
        "the longer answer · 212 pairs: the model 2.31 (1.90 to 2.80), annotators 1.22 (1.01 to "
    )
    assert "flatters · 212 pairs: the model 7.40 (3.20 to ∞)" in described(page, "Odds")
    assert "hedges" not in described(page, "Odds")
    assert described(page, "True utility").startswith("chosen by the model: 0.420 (0.380 to 0.460) at n 1, ")
    assert described(page, "The model's own reward").startswith("reward: −0.200 at n 1, 0.415 at n 2")
    assert "Chat Hard47.0 % 38.1 to 55.9" in page.sections["RewardBench"]
    assert "overall69.4 %" in page.sections["RewardBench"]
    assert "hep-rust" in page.sections["RewardBench"]
    out = page.sections["What was left out"]
    for words in (
        "12 of 600 pairs have no verdict",
        "48 pairs of which",
        "4 pairs with the same",
        "3 prompts",
    ):
        assert words in out


def test_a_model_that_is_driven_too_far_is_told_where_it_was_best(tmp_path):
    said = page_of(tmp_path, OTHER).sections["What a policy would make of it"]
    assert "takes the true utility from 0.420 to 0.384; the truth itself would reach 0.867" in said
    assert "It is highest at n = 4, 0.474: beyond, the model is overdriven" in said
    assert "highest at" not in page_of(tmp_path, FULL).sections["What a policy would make of it"]


def test_calibration_says_in_which_direction_it_is_off(tmp_path):
    def said(right: float) -> str:
        assert FULL.calibration is not None
        bins = tuple(replace(one, right=one.confidence + right) for one in FULL.calibration.by_mass)
        found = replace(FULL, calibration=replace(FULL.calibration, by_mass=bins))
        return page_of(tmp_path, found).sections["Calibration of the reward"]

    assert said(-0.06).startswith("The model is surer than it may be: ")
    assert said(0.03).startswith("The model is less sure than it might be: ")
    assert said(0.01).startswith("The model is about as sure as it may be: ")


def test_several_models_stand_beside_each_other_under_the_names_that_tell_them_apart(tmp_path):
    page = page_of(tmp_path, OTHER, FULL)
    assert page.words["h1"] == ["2 reward models"]
    assert lede(page).startswith("last-token is right most often: it prefers the answer")
    assert "Its interval overlaps with that of mean-head-with-a-rather-long-name: do not take" in lede(page)
    assert "accuracy68.1 % 64.2 to 72.0 71.2 %" in page.sections["head"].replace("72.071", "72.0 71")
    # The lowest of the two accuracies decides which category is worst.
    said = described(page, "By category")
    assert said.index("refusals") < said.index("maths") < said.index("cooking")
    assert "refusals · 61 pairs: mean-head-with-a-rather-long-name 60.0 %" in said
    assert "last-token 54.1 %" in said


def test_a_clear_order_is_not_called_uncertain(tmp_path):
    assert FULL.accuracy is not None
    low = replace(
        FULL, model="runs/rewards/low", accuracy=replace(FULL.accuracy, value=0.5, low=0.45, high=0.55)
    )
    assert "overlaps" not in lede(page_of(tmp_path, low, FULL))


@pytest.mark.parametrize(
    ("evaluations", "heads"),
    [
        ([FULL, FULL], ["last-token (1)", "last-token (2)"]),
        (
            [FULL, replace(FULL, data="chat.jsonl")],
            ["last-token on data/held-out.jsonl", "last-token on chat.jsonl"],
        ),
    ],
)
def test_models_of_one_name_are_told_apart(tmp_path, evaluations, heads):
    assert page_of(tmp_path, *evaluations).words["th"][1:3] == heads


def test_more_models_than_a_drawing_can_tell_apart_are_shared_out_among_several(tmp_path):
    page = page_of(tmp_path, *(replace(FULL, model=f"runs/m{number}") for number in range(5)))
    assert len([title for title in page.words["h3"] if title.startswith("By category")]) == 2
    assert all(f"m{number}" in page.words["th"] for number in range(5))


def test_a_model_of_which_nothing_is_known_makes_a_page_that_says_so(tmp_path):
    page = page_of(tmp_path, BARE)
    assert page.words["h2"] == [name for name in SECTIONS if name != "RewardBench"]
    assert page.tags["svg"] == 0
    assert lede(page) == (
        "No pair has both a preference and two rewards, so there is no accuracy. "
        "How right a model could be at most is not known."
    )
    assert "No ceiling: no pair was judged twice." in page.sections["head"]
    assert page.sections["Biases of the reward"] == "There are too few pairs for a regression."
    assert "3 of 3 pairs have no verdict" in page.sections["What was left out"]


def test_a_ceiling_that_is_known_exactly_is_one_number(tmp_path):
    pool = Ceiling(source="the pool experts", accuracy=None, at_most=0.81, words="by their own chances")
    page = page_of(tmp_path, replace(FULL, ceiling=pool))
    assert lede(page).endswith("the most that a model could reach is 81.0 %.")
    assert "The ceiling is that of the pool experts: by their own chances." in page.sections["head"]


def test_what_an_evaluation_found_is_what_its_page_shows(tmp_path):
    rows = [
        Comparison(
            prompt=f"Question {at}?", chosen="No." if at % 4 else "Yes, gladly.", rejected="Well, then."
        )
        for at in range(40)
    ]
    short = FunctionReward(
        name="short", function=lambda prompt, answer: None if prompt == "Question 7?" else -float(len(answer))
    )
    found = evaluate_reward(short, RewardEvaluationData(name="toy.jsonl", records=rows)).evaluation
    page = page_of(tmp_path, found)
    # Of 39 pairs that have rewards the shorter answer is the preferred one in 29.
    assert lede(page).startswith("The model prefers the answer that annotators prefer in 74.4 % of 39 pairs")
    assert page.words["h1"] == ["Reward model short"]
    assert "1 of 40 pairs have no verdict" in page.sections["What was left out"]
    assert (
        "Annotators preferYes, gladly.The model prefersWell, then."
        in page.sections["Where it is sure and wrong"]
    )


def test_a_page_that_cannot_be_written_says_why_and_leaves_the_old_one(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="file: could not be written: a file of this name is in the way"):
        write_reward_page([FULL], tmp_path / "file" / "report.html")
    with pytest.raises(UserError, match="at least one evaluation"):
        write_reward_page([], tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


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
