"""Prompts with checkable instructions: they ask what their checkers are told, and nothing held out."""

import json
import shlex
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.errors import UserError
from plaudit.feedback.instructing import InstructSettings, instruction_table, write_instructed
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.run import run_pipeline

NEED_DATA = ("length_constraints:number_sentences", "change_case:capital_word_frequency")
"""Kinds whose checkers need what NLTK does not bring along."""
KINDS = instruction_table()["kinds"]


def made(path: Path, **settings):
    sentences = write_instructed(InstructSettings(**settings), path)
    return read_records(path).records, sentences


def spoken(value) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def test_every_prompt_says_what_its_checkers_are_told_and_kinds_do_not_spoil_each_other(tmp_path):
    without = (*NEED_DATA, "startend:quotation")
    rows, sentences = made(tmp_path / "rows.jsonl", n=900, without=without)
    assert len(rows) == len({row.prompt for row in rows}) == 900
    assert len(sentences) == 1
    asked = [kind for row in rows for kind in row.metadata["instruction_id_list"]]
    assert set(asked) == set(KINDS) - set(without)
    counts = [len(row.metadata["kwargs"]) for row in rows]
    assert max(counts) == 3
    assert 0.4 < counts.count(1) / 900 < 0.75
    for row in rows:
        kinds, told = row.metadata["instruction_id_list"], row.metadata["kwargs"]
        parts = [part for kind in kinds for part in KINDS[kind]["parts"]]
        assert len(parts) == len(set(parts)), row
        assert "all" not in parts or len(kinds) == 1, row
        for kind, about in zip(kinds, told, strict=True):
            said = row.prompt if kind != "language:response_language" else LANGUAGES[about["language"]]
            assert all(spoken(value) in row.prompt for value in about.values()) or said in row.prompt, row
        wanted = {word for about in told for word in (*about.get("keywords", ()), about.get("keyword"))}
        assert not wanted & {word for about in told for word in about.get("forbidden_words", ())}


LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian"}


def test_chance_is_the_seeds_and_prompts_of_ones_own_get_instructions_behind_them(tmp_path, capsys):
    own = tmp_path / "own.jsonl"
    turns = [{"role": role, "content": "Name a bird."} for role in ("user", "assistant", "user")]
    lines = ({"prompt": "What is rain?"}, {"prompt": turns[:1]}, {"prompt": turns})
    own.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["instruct", str(own), "--n", "30", "--most", "1", "--without", *NEED_DATA]
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert main([*command, "--seed", seed, "--out", str(tmp_path / f"{name}.jsonl")]) == 0
    a, b, c = ((tmp_path / f"{name}.jsonl").read_text() for name in "abc")
    assert a == b != c
    assert {row.prompt[:12] for row in read_records(tmp_path / "a.jsonl").records} == {
        "What is rain",
        "Name a bird.",
    }
    assert f"1 rows of {own} left out: their prompts are more than one user's turn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"without": ("startend:quotatio",)}, "did you mean startend:quotation"),
        ({"only": NEED_DATA, "without": NEED_DATA}, "no kind of instruction is left"),
        ({"most": 4}, "most 4: expected 1 to 3"),
        ({"n": 400, "only": ("detectable_format:constrained_response",)}, r"only \d+ prompts differ"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, settings, complaint):
    with pytest.raises(UserError, match=complaint):
        made(tmp_path / "rows.jsonl", **settings)


def test_a_pipeline_makes_the_rows_of_the_command_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(
        "name: p\nstages:\n- prompts: {do: instruct, n: 20, most: 2, only: ['keywords:frequency']}\n"
    )
    run_pipeline(read_pipeline(Path("p.yaml")), Path("out"))
    [rows] = Path("out").rglob("rows.jsonl")
    before = rows.read_text()
    words = (word for page in Path("out").rglob("*.json") for word in page.read_text().split('"'))
    [command] = {word for word in words if word.startswith("plaudit instruct")}
    assert main([*shlex.split(command)[1:-1], "again.jsonl"]) == 0
    assert Path("again.jsonl").read_text() == before
