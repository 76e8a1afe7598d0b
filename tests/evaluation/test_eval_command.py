"""``plaudit eval reward`` from end to end: real models, the world's truth, files, refusals in words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.data.records import Comparison, Demonstration, plain_text
from plaudit.data.write import write_records
from plaudit.evaluation import prompt_sets
from plaudit.lab.world import base_model_folder, exam
from plaudit.lab.world.annotators import agreement, annotator_pool
from plaudit.lab.world.making import comparisons, rankings
from tests.commands import commands
from tests.data.rows import REWARDBENCH, REWARDBENCH2, write
from tests.feedback.judges.judges import completion, delimiters, honest, question
from tests.models.reward_zoo import saved
from tests.rewards.server import Server, serving

said, complaint = commands("eval", "reward")

BY_HAND = "tests.evaluation.rewards_by_hand"
QUICK = ("--bootstrap", 50)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    rows = comparisons(200, annotator_pool("length-lovers"), split="validation", seed=3)
    return write_records(rows, tmp_path_factory.mktemp("data") / "pairs.jsonl").path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("model"), base_model_folder())[0]


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch):
    monkeypatch.setattr(exam, "BEST_OF_N_PROMPTS", 32)


def summary(out: Path) -> list[dict]:
    return json.loads((out / "summary.json").read_text("utf-8"))["evaluations"]


def test_models_stand_side_by_side_in_tables_and_files(capsys, pairs, model, tmp_path):
    models = (model, "gold", f"{BY_HAND}:longer")
    out = tmp_path / "e"
    text = said(capsys, *models, "--data", pairs, "--world", "--out", out, *QUICK, "--best-of", 4)
    fresh, gold, longer = summary(out)
    assert [one["model"] for one in (fresh, gold, longer)] == ["reward", "gold", f"{BY_HAND}:longer"]
    for one in (fresh, gold, longer):
        assert f"{100 * one['accuracy']['value']:.1f} %" in text
        assert one["accuracy"]["low"] < one["accuracy"]["value"] < one["accuracy"]["high"]
    # Annotators who love length agree with a reward that does, more than a model that knows nothing does.
    assert longer["accuracy"]["low"] > fresh["accuracy"]["value"]
    assert gold["best_of"]["points"][-1]["truth"]["value"] == gold["best_of"]["points"][-1]["possible"]
    assert longer["best_of"]["points"][-1]["truth"]["high"] < gold["best_of"]["points"][-1]["truth"]["low"]
    assert len(gold["categories"]) == 12
    lines = [json.loads(line) for line in (out / "scores.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == 200
    assert set(lines[0]["rewards"]) == {"reward", "gold", f"{BY_HAND}:longer"}
    assert lines[0]["rewards"]["gold"] == lines[0]["truths"]
    assert (out / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_the_same_command_writes_the_same_bytes(capsys, pairs, tmp_path):
    for name in ("one", "two"):
        said(capsys, f"{BY_HAND}:longer", "--data", pairs, "--out", tmp_path / name, "--n", 60)
    for file in ("summary.json", "scores.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert summary(tmp_path / "one")[0]["pairs"] == 60


def test_the_ceiling_of_the_world_is_that_of_its_pool(capsys, pairs, tmp_path):
    said(capsys, "gold", "--data", pairs, "--world", "--out", tmp_path, *QUICK, "--best-of", 2)
    [found] = summary(tmp_path)
    from plaudit.lab.world.making import answer_tasks

    asked = answer_tasks(200, answers=2, split="validation", seed=3)
    known = agreement("length-lovers", annotator_pool("length-lovers"), asked).ceiling
    assert found["ceiling"]["source"] == "the pool length-lovers"
    assert found["ceiling"]["accuracy"]["value"] == pytest.approx(known)
    assert found["accuracy"]["value"] < known


def test_the_taste_of_the_annotators_is_found_in_them_and_not_in_the_truth(capsys, pairs, tmp_path):
    shorter = f"{BY_HAND}:shorter"
    said(capsys, shorter, "--data", pairs, "--world", "--out", tmp_path, *QUICK, "--best-of", 2)
    probes = {one["name"]: one for one in summary(tmp_path)[0]["probes"]["features"]}
    assert probes["length"]["annotators"]["low"] > 1
    assert probes["length"]["words"].startswith("always prefers the shorter answer")


def test_comparisons_may_have_fields_of_other_names(capsys, tmp_path):
    rows = [{"ask": f"w{n}", "chosen": "w1 w2", "rejected": "w3"} for n in range(8)]
    data = write(tmp_path / "named.jsonl", *rows)
    text = said(capsys, f"{BY_HAND}:longer", "--data", data, *QUICK, "--columns", "prompt=ask")
    assert "100.0 %" in text


def test_rankings_give_all_pairs_and_say_where_each_answer_stood(capsys, tmp_path):
    rows = rankings(40, annotator_pool("hurried"), answers=3, split="validation", seed=1)
    data = write_records(rows, tmp_path / "ranked.jsonl").path
    said(capsys, f"{BY_HAND}:longer", "--data", data, "--out", tmp_path / "e", *QUICK)
    [found] = summary(tmp_path / "e")
    assert found["pairs"] == 120
    place = next(one for one in found["probes"]["features"] if one["name"] == "place")
    assert place["pairs"] == 120
    assert place["annotators"]["ratio"] > 1  # the hurried like what they see first


def test_public_benchmarks_are_scored_by_their_own_rules(capsys, tmp_path):
    old = write(tmp_path / "rb.jsonl", REWARDBENCH)
    text = said(capsys, f"{BY_HAND}:longer", "--data", old, "--out", tmp_path / "rb")
    [found] = summary(tmp_path / "rb")
    assert found["benchmark"]["name"] == "RewardBench"
    assert found["benchmark"]["sections"][0]["score"]["value"] == 1.0  # "A stone." against "A cork."
    assert "RewardBench, by its rules" in text
    tied = {**REWARDBENCH2, "id": "tied:4"}
    ref = {**REWARDBENCH2, "id": "ref:4", "prompt": "What sinks?", "chosen": ["A stone."]}
    new = write(tmp_path / "rb2.jsonl", tied, ref)
    said(capsys, f"{BY_HAND}:longer", "--data", new, "--out", tmp_path / "rb2")
    [section] = summary(tmp_path / "rb2")[0]["benchmark"]["sections"]
    # "A stone." 8, "An anchor." 10 against "A cork." 7, "A boat." 7, "Foam." 5: gaps 1 and 1, spread 2.
    from math import tanh

    assert section["score"]["value"] == pytest.approx(0.6 + 0.01 * tanh(-0.5))


def test_what_cannot_be_evaluated_is_refused_in_words(capsys, pairs, tmp_path):
    longer = f"{BY_HAND}:longer"
    shown = write_records([Demonstration(prompt="q", completion="a")], tmp_path / "d.jsonl").path
    assert "neither a comparison nor a ranking" in complaint(capsys, longer, "--data", shown)
    assert "gives no verdict on any pair" in complaint(capsys, f"{BY_HAND}:silent", "--data", pairs)
    strange = write_records([Comparison(prompt="q", chosen="a", rejected="b")], tmp_path / "s.jsonl").path
    assert "the world has no such prompt" in complaint(capsys, "gold", "--data", strange)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("no/such/folder", "no/such/folder: no such folder"),
        ("no_such_module:f", "cannot be imported"),
        (f"{BY_HAND}:strange", "it asks for mood"),
    ],
)
def test_a_model_that_is_none_is_refused(capsys, pairs, model, words):
    assert words in complaint(capsys, model, "--data", pairs)


def test_options_that_say_nothing_are_refused(capsys, pairs):
    assert "goes with --world" in complaint(capsys, "gold", "--data", pairs, "--best-of", 4)
    assert "name each model once" in complaint(capsys, "gold", "gold", "--data", pairs)
    assert "--bootstrap 1" in complaint(capsys, "gold", "--data", pairs, "--bootstrap", 1)


@pytest.mark.parametrize(("verb", "shown"), [("reward", "ceiling"), ("policy", "win rate")])
def test_help_does_not_import_torch_nor_statsmodels(verb, shown):
    code = (
        "import sys; from plaudit.cli.main import main\n"
        f"try: main(['eval', {verb!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'statsmodels', 'scipy', 'pandas', 'numpy'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_without_the_wing_that_knows_the_world_it_is_said_what_is_missing(capsys, pairs, monkeypatch):
    monkeypatch.setattr(prompt_sets, "everything", lambda kind: {})
    assert "come with a wing of plaudit that is not installed" in complaint(capsys, "gold", "--data", pairs)


OWLS = [
    Comparison(prompt=f"What does owl {n} eat?", chosen="Mice.", rejected=f"Bark {n}.") for n in range(8)
] + [
    Comparison(prompt="And by day?", chosen="Nothing.", rejected="It eats mice."),
    Comparison(prompt="Is it a tie?", chosen="Mice!", rejected="Mice.", probability=0.5),
]
"""The judge, who likes mice, agrees with people on eight of nine pairs, and one is a tie to people."""


def judge_word(server: Server, model: str) -> str:
    return f"openai:{server.url.removesuffix('/score')}/v1#{model}"


@pytest.mark.slow
def test_a_judge_on_a_server_judges_pairs_that_people_have_judged(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data, out = write_records(OWLS, tmp_path / "owls.jsonl").path, tmp_path / "e"
    with serving(honest) as server:
        judges = (judge_word(server, "mouse-lover"), f"{BY_HAND}:shorter")
        words = (*judges, "--data", data, "--out", out, *QUICK)
        text = said(capsys, *words)
        assert len(server.asked) == 2 * 9
        assert said(capsys, *words) == text
        assert len(server.asked) == 2 * 9, "no question is asked twice"
    assert "Judges on 9 pairs of answers to 9 prompts, without 1 that people called a tie" in text
    assert "8 / 0 / 1" in text
    [found] = json.loads((out / "judges.json").read_text())["judges"]
    assert (found["won"], found["tied"], found["lost"], found["unjudged"]) == (8, 0, 1, 0)
    assert found["raw"]["value"] == pytest.approx(8 / 9)
    assert found["raw"]["low"] < 8 / 9 < found["raw"]["high"]
    assert (found["consistency"]["value"], found["first"]["value"]) == (1.0, 0.5)
    assert len((out / "verdicts.jsonl").read_text().splitlines()) == 9
    assert [one["model"] for one in summary(out)] == [f"{BY_HAND}:shorter"], "rewards are evaluated beside it"


def first_always(body, number):
    """Prefers what it sees first, refuses to speak of owl 3, and says nothing of use on owl 5."""
    text = question(body)
    opened, closed = delimiters(text)
    if "owl 3" in text:
        return completion(f"{opened}refuse{closed}")
    return completion("I like both." if "owl 5" in text else f"{opened}A{closed}")


def test_what_order_does_to_a_judge_and_its_failures_are_counted_apart(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data, out = write_records(OWLS, tmp_path / "owls.jsonl").path, tmp_path / "e"
    with serving(first_always) as server:
        text = said(capsys, judge_word(server, "m"), "--data", data, "--out", out, *QUICK)
    [found] = json.loads((out / "judges.json").read_text())["judges"]
    assert (found["won"], found["tied"], found["lost"], found["unjudged"]) == (0, 7, 0, 2)
    assert found["reasons"] == {"refused": 1, "not to be read": 1}
    assert (found["raw"]["value"], found["first"]["value"], found["consistency"]["value"]) == (0.5, 1.0, 0.0)
    assert "1 refused, 1 not to be read" in text
    assert not (out / "summary.json").exists()


@pytest.mark.slow
def test_a_judge_that_says_nothing_or_is_wrongly_named_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = write_records(OWLS, tmp_path / "owls.jsonl").path
    with serving(lambda body, number: completion("Well.")) as server:
        words = complaint(capsys, judge_word(server, "m"), "--data", data)
    assert "m has no verdict on any pair that people decided (9 not to be read)" in words
    assert "name the model behind a #" in complaint(capsys, "openai:http://127.0.0.1:1/v1", "--data", data)
    monkeypatch.delenv("PLAUDIT_TEST_TOKEN", raising=False)
    words = ("openai:http://127.0.0.1:1/v1#m", "--data", data, "--token-from", "PLAUDIT_TEST_TOKEN")
    assert "PLAUDIT_TEST_TOKEN holds no token" in complaint(capsys, *words)


def terser(first, second) -> str:
    """A judge of the user's own: the shorter answer is better."""
    sizes = [len(plain_text(answer)) for answer in (first, second)]
    return "tie" if sizes[0] == sizes[1] else "first" if sizes[0] < sizes[1] else "second"


def test_a_function_that_compares_is_a_judge_too(capsys, tmp_path):
    data, out = write_records(OWLS, tmp_path / "owls.jsonl").path, tmp_path / "e"
    said(capsys, "tests.evaluation.test_eval_command:terser", "--data", data, "--out", out, *QUICK)
    [found] = json.loads((out / "judges.json").read_text())["judges"]
    assert (found["won"], found["tied"], found["lost"]) == (9, 0, 0)


def judged_by(prefer_longer: bool, name: str, n: int) -> list[Comparison]:
    """Pairs of a long and a short answer, judged by somebody who likes the one or the other."""
    long, short = "a long answer with many words", "short"
    chosen, rejected = (long, short) if prefer_longer else (short, long)
    return [
        Comparison(prompt=f"question {number}", chosen=chosen, rejected=rejected, annotator=name)
        for number in range(n)
    ]


def test_people_whose_labels_were_learnt_from_are_told_from_others(capsys, tmp_path):
    learnt, others = judged_by(True, "a1", 40), judged_by(False, "a2", 40)
    others[:10] = judged_by(True, "a2", 10)
    unnamed = [Comparison(prompt="question 1", chosen="x y", rejected="z")]
    train = write_records(judged_by(True, "a1", 5), tmp_path / "train.jsonl").path
    test = write_records([*learnt, *others, *unnamed], tmp_path / "test.jsonl").path
    out = tmp_path / "e"
    printed = said(capsys, f"{BY_HAND}:longer", "--data", test, "--trained-on", train, "--out", out, *QUICK)
    assert "Accuracy by whose labels (pairs)" in printed
    assert "held-out people: on people whose labels it learnt from it is right +75.0 points (" in printed
    (found,) = summary(out)
    parts = {part["name"]: part["accuracy"] for part in found["held_out"]["parts"]}
    assert [parts[name]["value"] for name in ("learnt from", "held out")] == [1, 0.25]
    assert {parts[name]["n"] for name in parts} == {40}
    gap = found["held_out"]["gap"]
    assert gap["value"] == 0.75
    assert 0.55 < gap["low"] < 0.75 < gap["high"] < 0.95
    assert "By whose labels" in (out / "report.html").read_text("utf-8")


def test_where_nobody_is_held_out_there_is_nothing_to_compare(capsys, tmp_path):
    rows = write_records(judged_by(True, "a1", 20), tmp_path / "rows.jsonl").path
    printed = said(capsys, f"{BY_HAND}:longer", "--data", rows, "--trained-on", rows, *QUICK)
    assert "held-out people: nothing to compare: all 20 pairs are of people learnt from" in printed
    nobody = write_records(
        [Comparison(prompt="q", chosen="x y", rejected="z")], tmp_path / "nobody.jsonl"
    ).path
    told = complaint(capsys, f"{BY_HAND}:longer", "--data", rows, "--trained-on", nobody, *QUICK)
    assert "nobody.jsonl: no row names its annotator, so nobody can be known as held out" in told
    assert "held-out people" not in said(capsys, f"{BY_HAND}:longer", "--data", rows, *QUICK)
