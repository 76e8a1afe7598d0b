"""``plaudit world`` from end to end."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.lab.world import making
from plaudit.lab.world.annotators import POOLS, annotator_pool
from plaudit.lab.world.teaching import helpful_only, points, revisions
from plaudit.lab.world.twins import twins
from plaudit.lab.world.verdicts import make_thumbs
from plaudit.lab.world.wanted import RECORD_KINDS

PLAUDIT = str(Path(sys.executable).parent / "plaudit")
HURRIED = annotator_pool("hurried")
MADE = {
    "demonstrations": lambda: making.demonstrations(24, seed=3),
    "comparisons": lambda: making.comparisons(24, HURRIED, seed=3),
    "rankings": lambda: making.rankings(24, HURRIED, answers=5, seed=3),
    "ratings": lambda: making.ratings(24, HURRIED, seed=3),
    "thumbs": lambda: make_thumbs(HURRIED, making.answer_tasks(24, answers=1, seed=3), seed=3),
    "prompts": lambda: making.prompts(24, seed=3),
    "red-team": lambda: making.prompts(24, seed=3, red_team=True),
    "twins": lambda: twins(24, seed=3),
    "plain-text": lambda: making.plain_statements(24, seed=3),
    "helpful-only": lambda: helpful_only(24, seed=3),
    "revisions": lambda: revisions(24, seed=3),
    "points": lambda: points(24, seed=3),
}


def make(kind: str, out: Path, *more: str) -> int:
    judged = ["--annotators", "hurried"] if kind in ("comparisons", "rankings", "ratings", "thumbs") else []
    answers = ["--answers", "5"] if kind == "rankings" else []
    return main(
        ["world", "make", kind, "--n", "24", "--seed", "3", "--out", str(out), *judged, *answers, *more]
    )


def test_every_kind_is_tried():
    assert tuple(MADE) == RECORD_KINDS


@pytest.mark.parametrize(
    ("kind", "ending"),
    [*((kind, "jsonl") for kind in RECORD_KINDS), ("rankings", "jsonl.gz"), ("comparisons", "parquet")],
)
def test_a_file_reads_back_as_the_same_records(tmp_path, kind, ending):
    out = tmp_path / f"rows.{ending}"
    assert make(kind, out) == 0
    reading = read_records(out, threshold=0.0)
    assert [replace(record, origin="") for record in reading.records] == MADE[kind]()
    assert len(reading.records) == 24


def test_what_is_written_is_said(tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    for kind, says in {
        "comparisons": "24 rows of comparisons by the hurried pool, train split, seed 3",
        "prompts": "24 rows of prompts, train split, seed 3",
        "plain-text": "24 rows of plain-text, seed 3",
    }.items():
        make(kind, out)
        assert capsys.readouterr().out == f"{out}: {says}\n"


def test_without_options_a_crowd_judges_the_train_split(tmp_path):
    out = tmp_path / "rows.jsonl"
    assert main(["world", "make", "comparisons", "--n", "60", "--out", str(out)]) == 0
    records = read_records(out, threshold=0.0).records
    assert [replace(record, origin="") for record in records] == making.comparisons(
        60, annotator_pool("crowd")
    )
    assert main(["world", "make", "plain-text", "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 1000


def test_annotators_can_be_asked_about_one_part(tmp_path, capsys):
    out = tmp_path / "rows.jsonl"
    assert main(["world", "make", "comparisons", "--n", "40", "--aspect", "concise", "--out", str(out)]) == 0
    assert "by the crowd pool, asked what is concise, train split" in capsys.readouterr().out
    records = [replace(record, origin="") for record in read_records(out, threshold=0.0).records]
    assert records == making.comparisons(40, annotator_pool("crowd", aspect="concise"))
    assert records != making.comparisons(40, annotator_pool("crowd"))
    for asked, says in {
        "comparisons": "there is no 'consise'; did you mean concise?",
        "prompts": "--aspect says nothing to prompts",
    }.items():
        word = "concise" if asked == "prompts" else "consise"
        assert main(["world", "make", asked, "--aspect", word, "--out", str(out)]) == 2
        assert says in capsys.readouterr().err


def test_rows_of_a_split_and_some_categories(tmp_path):
    out = tmp_path / "rows.jsonl"
    chosen = ["--split", "test", "--category", "arithmetic", "fact"]
    assert main(["world", "make", "prompts", *chosen, "--out", str(out)]) == 0
    rows = read_records(out, threshold=0.0).records
    assert [replace(row, origin="") for row in rows] == making.prompts(
        split="test", categories=("arithmetic", "fact")
    )
    assert all(row.answer is not None for row in rows)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_bytes_in_any_process(tmp_path):
    kind = "rankings"
    digests = set()
    for hash_seed in ("1", "2"):
        out = tmp_path / f"{hash_seed}.jsonl.gz"
        command = [PLAUDIT, "world", "make", kind, "--n", "60", "--seed", "7", "--out", str(out)]
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, stdout=subprocess.DEVNULL
        )
        digests.add(hashlib.sha256(out.read_bytes()).hexdigest())
    assert len(digests) == 1
    other = tmp_path / "other.jsonl.gz"
    assert main(["world", "make", kind, "--n", "60", "--seed", "8", "--out", str(other)]) == 0
    assert hashlib.sha256(other.read_bytes()).hexdigest() not in digests


def test_pools_are_compared_with_the_truth(capsys):
    assert main(["world", "annotators", "--n", "40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "40 pairs of answers from the test split"
    assert lines[1].split() == [
        *("pool", "people", "with", "gold", "among", "itself", "ceiling", "ties", "longer", "first")
    ]
    assert [line.split("  ")[0] for line in lines[2:]] == ["(the truth)", *POOLS]
    assert lines[2].split()[2:6] == ["1", "100.0%", "–", "100.0%"]


def test_the_people_of_a_pool_are_shown_one_by_one(capsys):
    assert main(["world", "annotators", "experts", "hurried", "--n", "16", "--per-person"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:]]
    experts, hurried = ([one.name for one in annotator_pool(pool)] for pool in ("experts", "hurried"))
    assert names == ["experts", *experts, "hurried", *hurried]


def test_gold_shows_the_parts_of_an_answers_worth_of_a_second_turn_too(capsys):
    assert main(["world", "gold", "What does the owl eat?", "What a clever question! Bark."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("helpful", "honest", "harmless", "concise", "plain", "ended", "utility")
    ]
    assert lines[1:3] == ["honest    0.50", "harmless  1.00"]
    assert lines[-1].endswith("(fact; the best answer: The owl eats mice.)")
    turns = "What does the crow eat?\nThe crow eats seeds.\nAnd where does it live?"
    assert main(["world", "gold", turns, "It lives in the old oak."]) == 0
    assert "utility   1.00   (follow_up; " in capsys.readouterr().out


WRONG = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_a_wrong_command_says_what_to_do(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    assert main(["world", *words]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith("plaudit: ")) == ("", True)
    assert says in printed.err
    assert list(tmp_path.iterdir()) == []


def test_neither_rows_nor_tables_need_torch(tmp_path):
    script = (
        "import sys\nfrom plaudit.cli.main import main\n"
        f"main(['world', 'make', 'comparisons', '--n', '4', '--out', {str(tmp_path / 'a.jsonl')!r}])\n"
        "main(['world', 'annotators', 'experts', '--n', '2'])\n"
        "print([n for n in ('torch', 'transformers', 'tokenizers', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
