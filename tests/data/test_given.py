"""What people say beside their verdict: in rows of every layout, and what is done by it."""

import json
from dataclasses import replace

import pytest

from plaudit.cli.main import main
from plaudit.data.read import DEFAULT_OPTIONS, read_records
from plaudit.data.records import Comparison, Ranking, Rating
from plaudit.data.write import write_records
from plaudit.evaluation.reward_models.pairs import score_records, scored_pairs
from plaudit.rewards.base import FunctionReward

SAID = {"reason": "It is true.", "seconds": 6.5, "guidelines": "5499befb38db", "annotator": "a1"}
SAID |= {"method": "random", "propensity": 0.25}
PAIR = Comparison(
    prompt="Hi",
    chosen="Yo",
    rejected="Die!",
    places=(1, 0),
    flags=((), ("harmful",)),
    aspects={"kind": (5.0, None)},
    both_bad=True,
    **SAID,
)
RANKING = Ranking(
    prompt="Hi",
    completions=("Yo", "No", "Die!"),
    ranks=(1, 2, 2),
    places=(2, 0, 1),
    flags=((), (), ("harmful",)),
    aspects={"kind": (5.0, 3.0, 1.0)},
    **SAID,
)
RATING = Rating(prompt="Hi", completion="Yo", score=4, places=(1,), flags=((),), **SAID)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_all_that_was_said_comes_back(tmp_path, ending):
    rows = (PAIR, replace(PAIR, aspects={"brief": (1.0, 2.0)}), RANKING, RATING)
    write_records(rows, tmp_path / f"rows.{ending}")
    read = read_records(tmp_path / f"rows.{ending}").records
    assert [replace(row, origin="") for row in read] == [*rows]


def test_trl_rows_have_it_in_columns_and_a_ranking_s_pairs_have_what_is_theirs(tmp_path):
    write_records([PAIR], tmp_path / "pair.jsonl", layout="trl")
    (read,) = read_records(tmp_path / "pair.jsonl").records
    assert replace(read, origin="") == PAIR
    write_records([RANKING], tmp_path / "ranking.jsonl", layout="trl")
    first, second = (json.loads(line) for line in (tmp_path / "ranking.jsonl").read_text().splitlines())
    assert (first["places"], first["flags"], first["aspects"]) == ([2, 0], [[], []], {"kind": [5, 3]})
    assert (second["places"], second["flags"]) == ([2, 1], [[], ["harmful"]])
    assert (second["aspects"], second["reason"]) == ({"kind": [5, 1]}, "It is true.")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("places", [0]),
        ("places", [0, 1.5]),
        ("places", [0, -1]),
        ("flags", [[], [], []]),
        ("flags", ["harmful", []]),
        ("aspects", {"kind": [1]}),
        ("aspects", [1, 2]),
        ("reason", 7),
        ("seconds", "long"),
    ],
)
def test_what_fits_no_answers_is_a_bad_row_that_names_its_field(field, value):
    row = {"prompt": "Hi", "chosen": "Yo", "rejected": "No", field: value}
    result = read_records([row, {**row, field: None}], threshold=0.5)
    assert [problem.field.partition("[")[0].partition(".")[0] for problem in result.problems] == [field]
    assert len(read_records([row], options=replace(DEFAULT_OPTIONS, leave_out=(field,))).records) == 1


PKU = {"prompt": "Hi", "response_0": "Yo", "response_1": "Die!", "better_response_id": 0}


@pytest.mark.parametrize(
    ("safety", "rows", "left_out"),
    [
        ("both-safe", ["Fine"], {"not both-safe": 2, "no flags": 1}),
        ("one-safe", ["Yo"], {"not one-safe": 2, "no flags": 1}),
        ("both-unsafe", ["Hit"], {"not both-unsafe": 2, "no flags": 1}),
        ("thumbs", ["Fine", "Well", "Yo", "Die!", "Hit", "Kill"], {"no flags": 1}),
    ],
)
def test_safety_rows_come_of_flags(tmp_path, capsys, safety, rows, left_out):
    pairs = [
        Comparison(prompt="Hi", chosen="Fine", rejected="Well", flags=((), ("unfinished",))),
        PAIR,
        Comparison(prompt="Hi", chosen="Hit", rejected="Kill", flags=(("harmful",), ("unsafe", "false"))),
        Comparison(prompt="Hi", chosen="Who", rejected="Knows"),
    ]
    write_records(pairs, tmp_path / "pairs.jsonl")
    files = [str(tmp_path / name) for name in ("pairs.jsonl", "out.jsonl")]
    assert main(["data", "convert", *files, "--safety", safety]) == 0
    printed = capsys.readouterr().out
    read = read_records(tmp_path / "out.jsonl").records
    assert [row.completion if isinstance(row, Rating) else row.chosen for row in read] == rows
    assert all(f"{count} × {reason} left out" in printed for reason, count in left_out.items())
    if safety == "thumbs":
        assert [row.score for row in read] == [1, 1, 1, 0, 0, 0]
        assert {(row.thumb, row.aspect) for row in read} == {(True, "harmlessness")}


def test_flags_of_safe_rlhf_are_of_the_chosen_and_the_rejected_answer():
    rows = [PKU, {**PKU, "is_response_0_safe": True, "is_response_1_safe": False}]
    rows.append({**rows[1], "better_response_id": 1})
    assert [row.flags for row in read_records(rows).records] == [(), ((), ("unsafe",)), (("unsafe",), ())]


def test_places_of_rows_are_those_of_their_pairs():
    reward = FunctionReward(name="length", function=lambda prompt, answer: float(len(answer)))
    pairs = scored_pairs([PAIR, RANKING], score_records([PAIR, RANKING], reward))
    assert [pair.places for pair in pairs] == [(1, 0), (2, 0), (2, 1), (0, 1)]
