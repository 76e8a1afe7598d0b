"""Shares behind a judge that errs: equal to ppi-python, and as often right as they say."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from benchmarks.corrected import JUDGES, SETTINGS, Setting, drawn, held
from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.evaluation.policies import corrected
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.evaluation.stats import Estimate, wilson_interval
from tests.evaluation.policies.tiny import policy
from tests.peer import ASKED, RECORDED, ROOT, PeerValues, ask_script

PEER = ROOT / ".peers/ppi/bin/python"
TUNINGS = (None, 1.0, 0.3)
RNG = np.random.default_rng(0)
TRUTH = (RNG.random(460) < 0.3).astype(float)
JUDGED = np.clip(0.2 + 0.4 * TRUTH + 0.25 * RNG.standard_normal(460), 0, 1).round(6)
N = 60


def ask():
    question = {"people": TRUTH[:N], "labelled": JUDGED[:N], "rest": JUDGED[N:]}
    said = {name: values.astype(float).tolist() for name, values in question.items()} | {"tunings": TUNINGS}
    return ask_script("evaluation/policies/peer_ppi.py", said, PEER)


VALUES = PeerValues(
    file=Path(__file__).with_name("ppi.json"), ask=ask, python=PEER, packages=("ppi-python", "numpy")
)


@pytest.mark.parametrize("source", [RECORDED, pytest.param(ASKED, marks=pytest.mark.peer(PEER))])
def test_the_mean_its_error_and_its_tuning_are_those_of_ppi_python(source):
    people = np.where(np.arange(460) < N, TRUTH, np.nan)
    sample = corrected.JudgedSample(
        judged=JUDGED, people=people, prompts=np.arange(460), counted=(np.arange(460) >= N).astype(float)
    )
    for tuning, (value, low, high) in zip(TUNINGS, VALUES.answers(source), strict=True):
        found = corrected.corrected_mean(sample, tuning=tuning)
        assert found.value == pytest.approx(value, abs=1e-9)
        assert found.standard_error == pytest.approx((high - low) / 2 / 1.959963984540054, abs=1e-9)
    assert 0 < corrected.corrected_mean(sample).tuning < 1


@pytest.mark.peer(PEER)
def test_the_record_is_what_ppi_python_says():
    VALUES.prove()


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("setting", [SETTINGS[at] for at in (0, 4, 5, 6)], ids=lambda each: each.name)
def test_intervals_hold_the_truth_whoever_judges(setting: Setting, judge: str):
    found = held(setting, JUDGES[judge], 100)
    # Of 100 at 95 %, fewer than 88 come by chance once in five hundred.
    assert found.corrected >= 0.88
    assert found.width <= 1.02 if judge == "useless" else found.width <= 1.05
    if judge in ("biased to Yes", "confidently wrong"):
        assert found.raw <= 0.02
    if judge == "good (90 %)" and setting.truth > 0.1:
        assert found.worth > 1.5


def test_by_hand_strata_weights_and_clusters():
    # Two strata of two labels each: 0.6 · mean(1, 0) + 0.4 · mean(1, 1).
    people = np.array([1, 0, np.nan, np.nan, np.nan, np.nan, 1, 1, np.nan, np.nan])
    strata = np.array([0] * 6 + [1] * 4)
    sample = corrected.JudgedSample(judged=strata.astype(float), people=people, prompts=np.arange(10))
    assert corrected.corrected_mean(replace(sample, strata=strata)).value == pytest.approx(0.7)
    chances = np.where(np.arange(10) == 1, 0.25, 0.5)
    # Weights 2, 4, 2, 2 of 1, 0, 1, 1, and a judge whose word is not used.
    assert corrected.corrected_mean(
        replace(sample, probabilities=chances), tuning=0.0
    ).value == pytest.approx(0.6)
    rows = drawn(Setting(truth=0.3, rows=400, labels=100), JUDGES["good (90 %)"], 0)
    # Of pairs that nobody can be asked about people's word is known, and counts as itself alone.
    silent = replace(rows, strata=None, people=np.where(np.arange(len(rows.people)) < 3, np.nan, rows.people))
    known = corrected.with_known(silent, [0.5, 1.0, 0.0, *[None] * (len(rows.people) - 3)])
    assert known.people[:3].tolist() == [0.5, 1.0, 0.0]
    assert known.probabilities is not None
    assert known.probabilities[:3].tolist() == [1, 1, 1]
    assert known.probabilities[3] == pytest.approx(silent.labelled[3:].mean())
    few = replace(silent, people=np.where(np.arange(len(rows.people)) == 3, 1.0, np.nan))
    assert corrected.by_people(estimate(1, 2), few, [0.5] * 3 + [None] * (len(rows.people) - 3)) is None
    twice = corrected.JudgedSample(
        judged=np.tile(rows.judged, 2), people=np.tile(rows.people, 2), prompts=np.tile(rows.prompts, 2)
    )
    once, both = (corrected.corrected_mean(each) for each in (replace(rows, strata=None), twice))
    # Rows that are there twice are no news.
    assert (both.value, both.low, both.high) == pytest.approx((once.value, once.low, once.high), abs=2e-3)


def estimate(successes: int, n: int) -> Estimate:
    low, high = wilson_interval(successes / n, n)
    return Estimate(value=successes / n, low=low, high=high, n=n, prompts=n)


@pytest.mark.parametrize("truth", [0.028, 0.3])
def test_a_card_corrects_with_its_own_doubt(truth: float):
    rng, inside, wide = np.random.default_rng(1), 0, list[float]()
    for _ in range(400):
        positive = rng.binomial(500, truth)
        says_yes = rng.binomial(positive, 0.85) + rng.binomial(500 - positive, 0.15)
        yes, no = estimate(rng.binomial(60, 0.85), 60), estimate(rng.binomial(200, 0.15), 200)
        _, low, high = corrected.share_by_card(estimate(says_yes, 500), yes, no)
        inside += low <= truth <= high
        wide.append(high - low)
    assert 0.925 <= inside / 400 <= 0.975
    assert np.mean(wide) < 0.25
    # A judge that says Yes alike of both kinds leaves everything open.
    assert corrected.share_by_card(estimate(50, 100), estimate(30, 60), estimate(30, 60))[1:] == (0.0, 1.0)
    # 0.62 by a judge that is right in 0.8: (0.62 − 0.2)/0.6.
    assert corrected.win_rate_by_card(estimate(62, 100), estimate(800, 1000))[0] == pytest.approx(0.7)


def row(**more: object) -> dict[str, object]:
    return {"kind": "rating", "prompt": "p", "completion": "c", "score": 1.0, "aspect": "harm"} | more


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(group="ai")], "labels.jsonl:1: a row of a model"),
        ([row(method="certain")] * 2, "labels.jsonl:1: this label was chosen (certain)"),
        ([row(propensity=0)], "propensity 0: expected more than 0"),
        ([row(propensity=0.5), row(prompt="other")], "1 of 2 rows have a propensity"),
        ([row(aspect="wit")], "no label that says something of answers (1 of kind rating)"),
    ],
)
def test_labels_that_say_nothing_of_errors_are_refused_in_words(tmp_path, rows, message):
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows), "utf-8")
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
        corrected.read_people(path)


def test_labels_are_matched_by_words_and_means_taken(tmp_path):
    path = tmp_path / "labels.jsonl"
    chosen = {"kind": "comparison", "prompt": "q", "chosen": "a", "rejected": "b", "method": "random"}
    turns = [{"role": "user", "content": "p"}]
    rows = [
        row(propensity=0.2, method="disagreement"),
        row(prompt=turns, completion=[{"role": "assistant", "content": "c"}], score=0.0, propensity=0.2),
        chosen | {"propensity": 0.5},
        # Chosen by a score: it says nothing of the others.
        row(method="certain", score=0.0),
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows), "utf-8")
    labels = corrected.read_people(path)
    assert labels.value("harm", "p", "c") == 0.5
    assert labels.value(corrected.PAIR, "q", "b", "a") == 0.0
    keys = [[("harm", "p", "c")], [(corrected.PAIR, "q", "b", "a")], [("harm", "p", "c"), ("harm", "p", "d")]]
    sample = labels.sample([1.0, 0.0, 1.0], keys, np.arange(3))
    assert sample.people.tolist()[:2] == [0.5, 0.0]
    # Of two answers one is not labelled, so nobody knows whether any did it.
    assert np.isnan(sample.people[2])
    assert sample.probabilities is not None
    assert sample.probabilities.tolist()[:2] == [0.2, 0.5]
    assert sample.notes == ("1 of 4 rows left out, which a score chose (certain)",)


def compared(folder: Path, capsys, *options: object, code: int = 0, policies: int = 2):
    """Tiny policies by a judge that likes what comes first in the alphabet; a longer answer is better."""
    (folder / "prompts.jsonl").write_text("".join(f'{{"prompt": "w{n} w9"}}\n' for n in range(60)))
    (folder / "mine.py").write_text(
        "def early(first, second):\n    return 'first' if first < second else 'second'\n"
    )
    words = [
        *(policy(folder, seed) for seed in range(policies)),
        "--prompts",
        folder / "prompts.jsonl",
        "--max-tokens",
        6,
    ]
    words += ["--judge", f"{folder / 'mine.py'}:early", "--bootstrap", 50, "--device", "cpu", *options]
    assert main(["eval", "policy", *map(str, words)]) == code
    return capsys.readouterr()


def test_a_win_rate_is_corrected_by_labels_of_its_own_answers(tmp_path: Path, capsys):
    assert "the intervals know nothing" in compared(tmp_path, capsys, "--out", tmp_path / "raw").out
    pairs = [row.answers for row in read_policy_evaluation(tmp_path / "raw").all_answers]
    prompts = [row.prompt for row in read_policy_evaluation(tmp_path / "raw").all_answers]
    wins = [0.5 + 0.5 * ((len(b.text) > len(a.text)) - (len(b.text) < len(a.text))) for a, b in pairs]
    rows = [
        {"prompt": prompt, "chosen": b.text, "rejected": a.text, "probability": win}
        for prompt, (a, b), win in zip(prompts, pairs, wins, strict=True)
        if a.text.strip() != b.text.strip() and a.text.strip() and b.text.strip()
    ]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:40]))
    compared(tmp_path, capsys, "--people", tmp_path / "people.jsonl", "--out", tmp_path / "e")
    contest = read_policy_evaluation(tmp_path / "e").contests[0]
    assert contest.corrected is not None
    assert contest.corrected.labels >= len(rows[:40])
    figure = contest.corrected.corrected
    assert figure.low <= fmean(wins) <= figure.high
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:5]))
    refused = compared(tmp_path, capsys, "--people", tmp_path / "few.jsonl", code=2)
    assert "fewer than 20 prompts" in refused.err


def test_ratings_are_of_corrected_win_rates_where_all_are_and_else_say_so(tmp_path: Path, capsys):
    said = compared(tmp_path, capsys, "--out", tmp_path / "raw", policies=3).out
    assert "ratings are of raw verdicts" in " ".join(said.split())
    raw = read_policy_evaluation(tmp_path / "raw")
    rows = [
        # People like the reference's answers, whatever the judge says.
        {"prompt": each.prompt, "chosen": each.answers[0].text, "rejected": other.text}
        for each in raw.all_answers
        for other in each.answers[1:]
        if len({each.answers[0].text.strip(), other.text.strip(), ""}) == 3
    ]
    rows = [{**row, "probability": 0.9 - 0.6 * (n % 3 == 0)} for n, row in enumerate(rows)]
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:90]))
    options = ("--people", tmp_path / "people.jsonl", "--out", tmp_path / "e")
    said = " ".join(compared(tmp_path, capsys, *options, policies=3).out.split())
    assert "ratings are of corrected win rates; of raw verdicts they are: policy-1 " in said
    by_name = {each.name: each.elo for each in read_policy_evaluation(tmp_path / "e").ratings}
    assert max(by_name, key=lambda name: by_name[name]) == "policy-0"
    assert max(raw.ratings, key=lambda each: each.elo).name == "policy-2"
