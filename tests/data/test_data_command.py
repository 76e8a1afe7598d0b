"""``plaudit data`` from end to end, and its page."""

import json
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.formats.registry import formats_table
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, assistant_turn, user_turn
from tests.data.rows import HELPSTEER3, ULTRAFEEDBACK, write

ROOT = Path(__file__).resolve().parents[2]
PAIR = {"prompt": "What sinks?", "chosen": "A stone.", "rejected": "A cork."}


def test_the_page_holds_exactly_the_table_of_layouts():
    page = (ROOT / "docs" / "data.md").read_text("utf-8")
    begin, end = "<!-- layouts: begin -->", "<!-- layouts: end -->"
    assert page.split(begin)[1].split(end)[0].strip() == formats_table()


@pytest.mark.parametrize(
    ("name", "layout", "rows"), [("demonstrations", "trl-messages", 24), ("pairs", "trl-preference", 12)]
)
def test_the_examples_are_sound(name, layout, rows):
    reading = read_records(ROOT / "examples" / f"{name}.jsonl", threshold=0.0)
    assert (reading.format_name, reading.rows, len(reading.records)) == (layout, rows, rows)


def test_inspect_counts_measures_and_shows(tmp_path, capsys):
    rows = [PAIR, PAIR, {**PAIR, "chosen": "A heavy stone,\nof course."}, {**PAIR, "chosen": ""}, "broken"]
    source = write(tmp_path / "pairs.jsonl", *rows)
    assert main(["data", "inspect", str(source)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "pairs.jsonl: read as TRL preference, explicit prompt (trl-preference), "
        "because the rows have prompt (a text), chosen (a text), rejected (a text)."
    )
    assert lines[1:8] == [
        "rows        5",
        "records     3 × comparison",
        "duplicates  1",
        "bad rows    2",
        "  1 × empty side",
        "  1 × broken row",
        '  pairs.jsonl:4: field chosen: expected an answer, found the text ""',
    ]
    assert "chosen, words                    2         2         5         5         5" in lines
    assert "  chosen      A heavy stone,\\nof course." in lines
    assert list(tmp_path.iterdir()) == [source]


def test_inspect_tells_how_far_the_two_answers_of_pairs_differ(tmp_path, capsys):
    changed = {**PAIR, "chosen": "Mice and voles.", "rejected": "Mice and seeds."}
    main(["data", "inspect", str(write(tmp_path / "pairs.jsonl", changed, changed))])
    assert (
        "pairs       60% of words shared (token Jaccard), 4 characters apart (27% of the longer text); "
        "medians of 2 pairs"
    ) in capsys.readouterr().out.splitlines()


def test_inspect_looks_at_no_more_than_it_was_told_to(tmp_path, capsys):
    source = write(tmp_path / "pairs.jsonl", *[PAIR] * 10)
    assert main(["data", "inspect", str(source), "--limit", "4"]) == 0
    assert "rows        4" in capsys.readouterr().out


def test_inspect_prints_no_control_characters(tmp_path, capsys):
    source = write(tmp_path / "pairs.jsonl", {**PAIR, "chosen": "\x1b[31mred"})
    main(["data", "inspect", str(source)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mred" in out


def test_convert_to_trl_and_back_says_what_is_lost_and_drops_ties_when_told_to(tmp_path, capsys):
    source = write(tmp_path / "in.jsonl", HELPSTEER3, {**HELPSTEER3, "overall_preference": 0})
    out = tmp_path / "out.jsonl"
    assert main(["data", "convert", str(source), str(out), "--to", "trl"]) == 0
    said = capsys.readouterr().out
    assert "1 × ties left out: a TRL preference cannot be a tie" in said
    assert said.splitlines()[-1] == f"{out}: 1 rows written in the trl layout"
    (record,) = read_records(out).records
    assert (record.chosen, record.strength) == (assistant_turn("A stone."), 2.0)
    assert main(["data", "convert", str(source), str(tmp_path / "out.jsonl"), "--ties", "drop"]) == 0
    assert "in.jsonl: 1 × ties left out" in capsys.readouterr().out


def test_convert_writes_the_preferred_answers(tmp_path, capsys):
    source = write(tmp_path / "in.jsonl", HELPSTEER3)
    out = tmp_path / "out.parquet"
    assert main(["data", "convert", str(source), str(out), "--preferred"]) == 0
    assert "0 of 1 records prefer nothing" in capsys.readouterr().out
    sinks = {"prompt": user_turn("What sinks?"), "completion": assistant_turn("A stone.")}
    expected = Demonstration(**sinks, category="general", origin="in.jsonl:1")
    assert read_records(out, kinds=["demonstration"]).records == (expected,)


def test_preferred_answers_of_ultrafeedback_come_from_the_ranking(tmp_path):
    source = write(tmp_path / "in.jsonl", ULTRAFEEDBACK)
    assert main(["data", "convert", str(source), str(tmp_path / "out.jsonl"), "--preferred"]) == 0
    assert [record.completion for record in read_records(tmp_path / "out.jsonl").records] == ["A stone."]


def test_convert_refuses_above_the_threshold_and_keeps_the_bad_rows(tmp_path, capsys):
    source, out = write(tmp_path / "in.jsonl", PAIR, {"prompt": "p"}), tmp_path / "out.jsonl"
    aside = tmp_path / "out.jsonl.quarantine.jsonl"
    assert main(["data", "convert", str(source), str(out)]) == 2
    assert f"All of them are in {aside}." in capsys.readouterr().err
    assert not out.exists()
    assert json.loads(aside.read_text())["row"].strip() == '{"prompt": "p"}'
    assert main(["data", "convert", str(source), str(out), "--threshold", "0.5"]) == 0
    assert f"1 of 2 rows are bad; they are in {aside}" in capsys.readouterr().out
    assert len(read_records(out).records) == 1


WRONG = [
    (["convert", "in.jsonl", "in.jsonl"], "would replace the file that is read"),
    (["convert", "in.jsonl", "out.xlsx"], "cannot tell rows by the ending '.xlsx'"),
    (["convert", "in.jsonl", "out.jsonl", "--to", "trll"], "did you mean trl?"),
    (["convert", "in.jsonl", "out.jsonl", "--threshold", "1%"], "--threshold"),
    (["convert", "in.jsonl", "out.jsonl", "--threshold", "nan"], "expected a share from 0 to 1"),
    (["convert", "in.jsonl", "no/out.jsonl"], "no such folder"),
    (["inspect", "in.jsonl", "--limit", "0"], "expected 1 or more"),
    (["inspect", "in.jsonl", "--format", "trl-preferences"], "did you mean trl-preference?"),
    (["inspect", "in.jsonl", "--split", "train"], "a single file has no splits"),
    (["inspect", "in.json"], "did you mean in.jsonl?"),
]


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_a_wrong_command_says_what_to_do(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", PAIR, {"prompt": "p"})
    assert main(["data", *words]) == 2
    assert says in capsys.readouterr().err
