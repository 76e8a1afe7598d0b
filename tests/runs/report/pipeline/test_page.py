"""The page of a pipeline says what its folder holds, in its order, and stands alone."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.evaluation.policies.result import write_agreements
from plaudit.runs.report.pipeline.page import write_report
from tests.runs.report.in_browser import CHROMIUM, crossed, first_look, keeps_to_its_width
from tests.runs.report.pipeline.pipelines import FOUND, contest, share, trust, write_pipeline
from tests.runs.report.read_page import Page, read_page, stands_alone

SECTIONS = (
    *("Four questions", "Results", "What to doubt", "Win rates", "By category", "Samples"),
    *("Training curves", "KL to the reference", "Reward-model accuracy", "Calibration of the reward"),
    *("Biases of the reward", "Length and diversity", "Checks", "Stages", "Lineage", "Reproduce"),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_pipeline(tmp_path_factory.mktemp("runs") / "valley"))


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return read_page(written)


def test_every_part_is_there_in_its_order_and_the_first_look_has_finding_picture_and_doubts(page):
    assert tuple(page.words["h2"]) == SECTIONS
    assert page.words["h1"] == ["valley"]
    assert tuple([words for words in page.words["li"] if words in SECTIONS]) == SECTIONS
    head = page.sections["head"].replace("\xa0", " ")
    assert "ppo, dpo and grpo answer better than sft." in head
    assert "True worth of an answer" in head
    assert "What to doubt" in head
    assert "grpo: at equal length it would win 53.8 %" in head


def test_judges_stand_beside_the_win_rates(tmp_path):
    folder = write_pipeline(tmp_path / "judged")
    beside = replace(contest("people", 0.8, judge="openai:judge"), against="other answer", unjudged=3)
    write_agreements([(beside, ())], folder / "stages" / "evaluation")
    words = read_page(write_report(folder)).sections["Win rates"].replace("\xa0", " ")
    assert "Judges beside people, on pairs that people have compared" in words
    assert "openai:judge" in words
    assert "68.0 %" in words
    alone = tmp_path / "alone"
    write_agreements([(beside, ())], alone)
    page = read_page(write_report(alone))
    assert "Judges" in page.words["h2"]
    assert "Win rates" not in page.words["h2"]


def test_the_headline_has_every_policy_with_its_intervals(page):
    said = page.sections["Results"]
    for words in (
        "ppo0.800 0.770 to 0.830",
        "66.2 % 62.7 to 69.7",
        "77.0 % 72.0 to 82.0",
        "64.9 % 60.9 to 68.9",
        "0.330 0.314 to 0.347",
    ):
        assert words in said
    assert "sft0.700 0.670 to 0.730the reference" in said
    assert "400 prompts, 1 answer to each; drawn at temperature 1" in said


def test_the_pipeline_is_drawn_and_told(page, written):
    assert "ppo needs" not in page.sections["Stages"]
    assert "Held-out reward rose from 0.02 to 1.13." in page.sections["Stages"]
    told = next(words for words in page.words["desc"] if "demonstrations needs nothing" in words)
    assert "ppo needs reward, prompts" in told
    assert "sft needs demonstrations" in told


def test_every_training_stage_has_curves_and_policies_their_way_along_kl(page):
    titles = [re.sub(r"\s+", " ", title) for title in page.words["h3"]]
    assert [title for title in titles if title in ("sft", "reward", "dpo", "grpo", "ppo")] == [
        "sft",
        "reward",
        "dpo",
        "grpo",
        "ppo",
    ]
    assert sum(title.startswith("Judge along √KL") for title in titles) == 2
    assert sum(title.startswith("True worth over √KL") for title in titles) == 1
    assert "best by the judge" in page.words["text"]


def test_samples_stand_side_by_side_with_their_differences_marked(page):
    assert page.tags["article"] == 24
    said = page.sections["Samples"]
    assert "What does the owl of farm 19 eat?" in said
    assert page.words["mark"].count("mice") == 40 + 4
    assert said.count("(the same)") == 20
    assert "ppo ▲ better" in said
    assert "base ▼ worse" in said


def test_what_the_checks_found_and_what_runs_noted_is_said(page):
    found = page.sections["Checks"]
    assert "15 checks. Passed: 5. Failed: 5. Nothing to look at: 5." in found
    assert "To mend it: Set --template." in found
    assert "dpo, grpo, ppo, evaluation: 3 rows were too long and left out." in page.sections["What to doubt"]
    assert "at equal length it would win 53.8 % against sft" in page.sections["What to doubt"].replace(
        "\xa0", " "
    )


def test_any_number_leads_back_to_rows_and_code(page, written):
    origins = page.sections["Lineage"]
    digest = hashlib.sha256((written.parent / "stages/evaluation/policies.json").read_bytes()).hexdigest()
    assert f"policies.json {digest[:12]}…" in origins
    assert "version 0.1.0, commit f856f57dabd2" in origins
    ids = {value for _, name, value in page.attributes if name == "id"}
    links = [value for value in page.values("a", "href")]
    assert len(links) > 30
    assert all(link.removeprefix("#") in ids for link in links)
    again = page.sections["Reproduce"]
    assert f"plaudit run {written.parent}/pipeline.yaml --out {written.parent}-again" in again
    assert "plaudit train ppo --out runs/ppo" in again


def test_the_page_stands_alone_is_the_same_again_and_a_reader_by_ear_or_keyboard_finds_the_way(written, page):
    stands_alone(written)
    assert len(written.read_text()) < 1_000_000
    before = written.read_bytes()
    assert write_report(written.parent).read_bytes() == before
    assert page.tags["h1"] == page.tags["main"] == 1
    assert len(page.values("th", "scope")) == page.tags["th"]
    assert set(page.values("h2", "id")) == set(page.values("section", "aria-labelledby"))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)


def test_what_policies_know_of_their_knowledge_stands_beside_each_other(tmp_path):
    known = {"sft": trust(0.03), "ppo": trust(0.12, share(0.09))}
    policies = tuple(replace(one, calibration=known.get(one.name)) for one in FOUND.policies)
    page = read_page(write_report(write_pipeline(tmp_path / "valley", replace(FOUND, policies=policies))))
    after = tuple(page.words["h2"])
    assert after[SECTIONS.index("Length and diversity") + 1] == "Calibration of the policies"
    said = page.sections["Calibration of the policies"].replace("\xa0", " ")
    assert "400 questions with choices" in said
    assert "ppo78.0 % 74.0 to 82.0" in said
    told = [words for words in page.words["desc"] if "120 questions" in words]
    assert told == [
        f"said 88.0 %, came {right} ({low} to {high}), 120 questions"
        for right, low, high in (("85.0 %", "77.5", "90.3"), ("76.0 %", "67.6", "82.8"))
    ]


def test_without_a_truth_and_by_several_judges(tmp_path):
    judged = [
        contest(name, 0.6, judge=judge, consistency=FOUND.policies[0].finished, style_controlled=None)
        for name in ("dpo", "ppo")
        for judge in ("reward", "openai:http://localhost:1/v1#m")
    ]
    policies = tuple(replace(one, gold=None, by_category=(), reward=None) for one in FOUND.policies)
    blind = replace(FOUND, gold=None, policies=policies, contests=tuple(judged), ratings=(), best_of=None)
    page = read_page(write_report(write_pipeline(tmp_path / "blind", blind)))
    assert "By category" not in page.sections
    assert "KL to the reference" not in page.sections
    assert "true worth" not in page.sections["Results"]
    titles = " ".join(page.words["h3"])
    assert "Win rate, by reward" in titles
    assert "Win rate, by openai:http://localhost:1/v1#m" in titles


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_nothing_is_wider_than_a_phone_and_no_words_of_a_drawing_are_cut_off(written, tmp_path):
    keeps_to_its_width(written.read_text(), tmp_path)
    opened = written.read_text().replace("<details>", "<details open>")
    # Folded parts have no sizes to measure.
    assert crossed(opened.replace('class="part"', 'class="part" open'), tmp_path) == []


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_first_screen_has_the_finding_and_its_picture_and_the_rest_is_folded(written, tmp_path):
    found = first_look(written.read_text(), tmp_path)
    # A screen of a phone, and one of a desk; all parts but one are folded under their titles.
    assert all(int(picture) < 900 for _, picture, _ in found.values())
    assert int(found[390][0]) < 5000
    assert int(found[1200][0]) < 3500
    assert {contents for _, _, contents in found.values()} == {"sticky"}
