"""Votes of an arena, as released, as columns and as its server logs them."""

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import assistant_turn, user_turn
from plaudit.errors import UserError
from tests.data.rows import CORK, STONE, USER

STONES, CORKS = assistant_turn("A stone."), assistant_turn("A cork.")


def released(winner):
    asked = {"question_id": "58210e39", "turn": 1, "language": "English", "tstamp": 1682351591.1}
    voted = {"model_a": "chatglm-6b", "model_b": "koala-13b", "winner": winner, "judge": "arena_user_973"}
    talks = {"conversation_a": [USER, *CORK], "conversation_b": [USER, *STONE]}
    tags = {"anony": True, "openai_moderation": {"flagged": False}, "toxic_chat_tag": {}}
    return {**asked, **voted, **talks, **tags}


def columns(**verdicts):
    return {
        "id": 30192,
        "model_a": "gpt-4",
        "model_b": "koala-13b",
        "prompt": '["What sinks?"]',
        "response_a": '["A cork."]',
        "response_b": '["A stone."]',
        **{"winner_model_a": 0, "winner_model_b": 0, "winner_tie": 0, **verdicts},
    }


def logged(kind, offset=0):
    before = [["USER", "Name a fruit."], ["ASSISTANT", "A pear."]][:offset]
    state = {"template_name": "vicuna_v1.1", "system_message": "", "roles": ["USER", "ASSISTANT"]}
    state |= {"offset": offset, "conv_id": "c1", "model_name": "m"}
    states = [
        {**state, "messages": [*before, ["USER", "What sinks?"], ["ASSISTANT", answer]]}
        for answer in ("A cork.", "A stone.")
    ]
    return {"tstamp": 1.5, "type": kind, "models": ["", ""], "states": states, "ip": "192.0.2.7"}


def only(row, **options):
    (record,) = read_records([row], options=ReadOptions(**options)).records
    return record


@pytest.mark.parametrize(
    ("row", "chosen", "probability"),
    [
        (released("model_a"), CORKS, None),
        (released("model_b"), STONES, None),
        (released("tie"), CORKS, 0.5),
        (released("tie (bothbad)"), CORKS, 0.5),
        (released("both_bad"), CORKS, 0.5),
        (columns(winner_model_a=1), CORKS, None),
        (columns(winner_model_b=1), STONES, None),
        (columns(winner_tie=1), CORKS, 0.5),
        (logged("leftvote"), CORKS, None),
        (logged("rightvote"), STONES, None),
        (logged("tievote"), CORKS, 0.5),
        (logged("bothbad_vote", offset=2), CORKS, 0.5),
    ],
)
def test_each_verdict_becomes_its_comparison(row, chosen, probability):
    pair = only(row)
    assert (pair.prompt, pair.chosen, pair.probability) == (user_turn("What sinks?"), chosen, probability)


def test_a_log_names_nobody_and_other_lines_of_it_are_counted():
    """Three of four lines of a server's log are no votes; their layout is then said by name."""
    rows = [logged("chat"), logged("upvote"), {"type": "share", "tstamp": 2.0}, logged("leftvote")]
    reading = read_records(rows, format="arena-log")
    assert dict(reading.left_out) == {"lines of the log that are no vote on two answers": 3}
    assert "192.0.2.7" not in repr(reading.records)
    assert only(released("tie")).annotator == "arena_user_973"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (released("model_c"), "field winner: expected one of model_a, model_b, tie"),
        (released("both are great"), "field winner: expected one of model_a, model_b, tie"),
        (columns(winner_model_a=1, winner_tie=1), "field winner_tie: expected one of winner_model_a"),
        (columns(winner_model_a=1, winner_model_b=1), "found 2 of them"),
        (columns(), "to be true, found none"),
        ({**logged("leftvote"), "states": logged("leftvote")["states"][:1]}, "field states: expected two"),
        (
            {**logged("leftvote"), "states": [{"messages": [["USER"]]}, {"messages": [["USER"]]}]},
            "field states[0].messages[0]: expected [who, words], found a list of 1",
        ),
        (
            {**logged("leftvote"), "states": [{"messages": [["USER", None]]}, {"messages": []}]},
            "field states[0].messages[0][1]: expected a text, found null",
        ),
    ],
)
def test_a_vote_that_contradicts_itself_is_refused_by_field(row, says):
    with pytest.raises(UserError) as refused:
        read_records([row])
    assert says in str(refused.value)
