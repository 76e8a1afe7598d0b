"""True critiques: in words that the world's tokenizer knows, of what is really wrong."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import plain_text
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.teaching import RIGHT_SENTENCE, critique_of, critiques
from plaudit.tokens.encode import make_encoder


def cases() -> list[tuple[str, str, str]]:
    """Prompt, answer and critique of critiques.txt: an answer is set in, under what is to be said of it."""
    rows: list[tuple[str, str, str]] = []
    prompt = critique = ""
    for line in Path(__file__).with_name("critiques.txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            rows.append((prompt, line.strip(), critique))
        elif line.startswith("It ") or line.startswith("No one"):
            critique = line
        else:
            prompt = line
    return rows


@pytest.mark.parametrize(("prompt", "answer", "critique"), cases())
def test_a_critique_says_what_is_so(prompt, answer, critique):
    assert critique_of(prompt, answer) == critique


def test_every_word_of_every_critique_is_known_to_the_base_model():
    info = make_encoder(base_model_folder()).info
    found = {row.critique for row in critiques(600)}
    assert len(found) > 12
    for critique in found:
        assert info.tokenizer.unk_token_id not in info.encode(critique)
        assert info.decode(info.encode(critique)) == critique


def test_nothing_is_without_a_critique_and_what_is_right_has_more_points():
    rows = critiques(600, split="test")
    assert all(row.critique for row in rows)
    assert {row.points for row in rows} == {1.0, 2.0, 3.0, 4.0, 5.0}
    best = [row for row in rows if row.points == 5]
    # Whatever the rest of the world makes of it, the best answers are right and the worst are not.
    assert all(RIGHT_SENTENCE in row.critique for row in best)
    assert not any(row.critique == RIGHT_SENTENCE for row in rows if row.points <= 2)


def test_the_points_are_those_of_the_true_utility():
    by_points = defaultdict(list)
    for row in critiques(400):
        by_points[row.points].append(gold_of(row.prompt, row.completion).utility)
    means = [fmean(by_points[points]) for points in sorted(by_points)]
    assert means == sorted(means)
    assert means[0] < 0.15
    assert means[-1] > 0.9


def test_the_same_seed_makes_the_same_and_a_longer_file_begins_with_a_shorter_one():
    assert critiques(8, seed=3) == critiques(12, seed=3)[:8] != critiques(8, seed=4)


def test_the_command_writes_ratings_with_a_field_more(tmp_path, capsys):
    out = tmp_path / "critiques.jsonl"
    assert main(["world", "make", "critiques", "--n", "16", "--out", str(out), "--category", "fact"]) == 0
    assert f"{out}: 16 rows of critiques, train split, seed 0" in capsys.readouterr().out
    expected = critiques(16, categories=("fact",))
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [(line["critique"], line["score"]) for line in lines] == [
        (row.critique, row.points) for row in expected
    ]
    ratings = read_records(out, threshold=0.0).records
    assert [plain_text(rating.completion) for rating in ratings] == [
        plain_text(row.completion) for row in expected
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--annotators", "crowd"], "--annotators says nothing to critiques"),
        (["--answers", "3"], "--answers says nothing to critiques"),
    ],
)
def test_options_that_nothing_reads_are_refused(tmp_path, capsys, more, says):
    out = str(tmp_path / "critiques.jsonl")
    assert main(["world", "make", "critiques", "--n", "4", "--out", out, *more]) == 2
    assert says in capsys.readouterr().err


def test_critiques_are_written_as_json_lines_only(tmp_path, capsys):
    assert main(["world", "make", "critiques", "--n", "4", "--out", str(tmp_path / "c.parquet")]) == 2
    assert "Known endings: .jsonl." in capsys.readouterr().err
