"""People compare by a file: it is written, waited for, read, and refused where it cannot be meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.toy import Toy
from tests.methods.iterative.rlhf_runs import Went, go, make_place, well
from tests.methods.iterative.test_loop_runs import lines, text

PEOPLE = ("--comparisons", "people", "--reward-run.held-out", 0.2)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_place(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def waiting(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Went:
    """A loop whose first pairs wait."""
    return go(toy, tmp_path_factory.mktemp("waiting") / "run", *PEOPLE)


def write(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def filled(row: Row) -> Row:
    """The longer answer is better; of every seventh pair nothing is said, one is a tie and one is clear."""
    ahead = len(row["first"].split()) - len(row["second"].split())
    better = "skip" if row["pair"] % 7 == 0 else "tie" if row["pair"] == 2 or not ahead else None
    more = {"strength": 3, "annotator": "ada", "group": "us"} if row["pair"] == 1 else {}
    return {**row, "better": better or ("first" if ahead > 0 else "second"), **more}


def test_the_pairs_are_written_and_waited_for(toy: Toy, waiting: Went) -> None:
    assert waiting.code == 2
    pairs = waiting.part(1, "pairs.jsonl")
    rows = lines(pairs)
    assert f"{pairs}: {len(rows)} of {len(rows)} pairs wait to be compared." in waiting.words
    assert "Then give the same command again" in waiting.words
    assert not waiting.part(1, "reward").exists()
    for number, row in enumerate(rows, start=1):
        assert set(row) == {"pair", "origin", "prompt", "first", "second", "better"}
        assert row["pair"] == number
        assert row["better"] is None
        assert row["first"] != row["second"]
    before = pairs.read_bytes()
    again = go(toy, waiting.out, *PEOPLE)
    assert again.code == 2
    assert "drawing" not in again.said
    assert pairs.read_bytes() == before
    pairs.unlink()
    go(toy, waiting.out, *PEOPLE)
    assert pairs.read_bytes() == before, "a file that was deleted is made again"


def test_the_same_command_goes_on_with_what_people_have_said(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "run"
    went = go(toy, out, *PEOPLE)
    for n in (1, 2):
        assert went.code == 2
        assert went.words.count("wait to be compared") == 1
        said = [filled(row) for row in lines(went.part(n, "pairs.jsonl"))]
        write(went.part(n, "pairs.jsonl"), said[::-1])
        went = go(toy, out, *PEOPLE)
        told = [row for row in said if row["better"] != "skip"]
        found = lines(went.part(n, "comparisons.jsonl"))
        for row, one in zip(told, found, strict=True):
            first = row["better"] in ("first", "tie")
            assert text(one["chosen"]) == row["first" if first else "second"]
            assert text(one["rejected"]) == row["second" if first else "first"]
            assert one["prompt"] == row["prompt"]
            assert one.get("probability") == (0.5 if row["better"] == "tie" else None)
            assert one["annotator"] == row.get("annotator", "people")
            assert one.get("group") == row.get("group")
        assert found[0].get("strength") == (None if said[0]["better"] == "skip" else 3)
    assert went.code == 0, went.said
    assert (out / "model" / "config.json").exists()
    unjudged = [one["unjudged"] for one in went.figures]
    assert unjudged == [sum(filled(row)["better"] == "skip" for row in said) for said in pairs_of(went)]
    write(went.part(1, "pairs.jsonl"), [filled(row) | {"better": "tie"} for row in pairs_of(went)[0]])
    late = go(toy, out, *PEOPLE)
    assert "pairs.jsonl: it is not as round 1 has left it" in late.words


def pairs_of(went: Went) -> list[list[Row]]:
    """By their numbers, whatever the order in the file."""
    return [sorted(lines(went.part(n, "pairs.jsonl")), key=lambda row: row["pair"]) for n in (1, 2)]


def change(**values: object) -> Callable[[list[Row]], list[Row]]:
    """The third row with other values."""
    return lambda rows: [row | (values if row["pair"] == 3 else {}) for row in rows]


FAULTS: list[tuple[Callable[[list[Row]], list[Row]], str]] = [
    (change(better=None), "1 of {n} pairs wait to be compared (pair 3)"),
    (
        lambda rows: [row | ({} if row["pair"] < 4 else {"better": None}) for row in rows],
        "pairs wait to be compared (pairs 4, 5, 6, 7, 8 and ",
    ),
    (change(better="frist"), "pair 3: better is 'frist'"),
    (change(better=1), "pair 3: better is 1"),
    (change(first="w33 w33"), "pair 3: its first is not what was drawn"),
    (change(prompt="w1", second=""), "pair 3: its prompt and second is not what was drawn"),
    (change(beter="first"), "pair 3: there is no 'beter'"),
    (change(better="first", strength=4), "pair 3: strength is 4"),
    (change(better="tie", strength=1), "pair 3: strength is 1, beside better 'tie'"),
    (change(annotator=7), "pair 3: annotator is 7, and a text is needed"),
    (lambda rows: rows[:2] + rows[3:], "not there: pair 3"),
    (lambda rows: [*rows, rows[2]], "pair 3 is there already"),
    (change(pair=99), "line 3: its pair is 99, and there are 1 to {n}"),
]
"""What people may do to a file, and what they are told."""


@pytest.mark.parametrize(("spoilt", "words"), FAULTS, ids=[words[:40] for _, words in FAULTS])
def test_a_file_that_cannot_be_meant_is_refused_with_its_rows(
    toy: Toy, waiting: Went, spoilt: Callable[[list[Row]], list[Row]], words: str
) -> None:
    pairs = waiting.part(1, "pairs.jsonl")
    before = pairs.read_bytes()
    rows = lines(pairs)
    write(pairs, spoilt([filled(row) for row in rows]))
    went = go(toy, waiting.out, *PEOPLE)
    pairs.write_bytes(before)
    assert went.code == 2
    assert words.format(n=len(rows)) in went.words
    assert not waiting.part(1, "comparisons.jsonl").exists()


def test_a_line_that_is_no_json_is_named_and_five_faults_are_enough(toy: Toy, waiting: Went) -> None:
    pairs = waiting.part(1, "pairs.jsonl")
    before = pairs.read_bytes()
    pairs.write_bytes(b"\n".join(line[:-1] for line in before.split(b"\n")))
    went = go(toy, waiting.out, *PEOPLE)
    pairs.write_bytes(before)
    assert "line 1: no JSON (" in went.words
    assert "line 5: no JSON (" in went.words
    assert f"and {len(lines(pairs)) - 5} more" in went.words


def test_a_file_from_another_program_is_read(toy: Toy, tmp_path: Path) -> None:
    """With a mark of its encoding, other line ends, escapes and an empty line."""
    went = go(toy, tmp_path / "run", *PEOPLE, "--loop.rounds", 1)
    pairs = went.part(1, "pairs.jsonl")
    said = [json.dumps(filled(row), ensure_ascii=True) for row in lines(pairs)]
    pairs.write_bytes("﻿".encode() + "\r\n".join([*said, "", ""]).encode())
    well(toy, tmp_path / "run", *PEOPLE, "--loop.rounds", 1)


def test_answers_that_were_edited_while_they_waited_are_refused(toy: Toy, tmp_path: Path) -> None:
    went = go(toy, tmp_path / "run", *PEOPLE)
    answers = went.part(1, "answers.jsonl")
    answers.write_bytes(answers.read_bytes().replace(b"w33", b"w34"))
    assert "answers.jsonl: it is not as round 1 has left it" in go(toy, tmp_path / "run", *PEOPLE).words


def test_when_nothing_can_be_said_of_any_pair_nothing_is_learnt(toy: Toy, tmp_path: Path) -> None:
    went = go(toy, tmp_path / "run", *PEOPLE)
    pairs = went.part(1, "pairs.jsonl")
    write(pairs, [row | {"better": "skip"} for row in lines(pairs)])
    assert "nothing was said of any pair" in go(toy, tmp_path / "run", *PEOPLE).words
