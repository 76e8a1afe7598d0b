"""Exports of Label Studio and Argilla, as written by these tools: a record for each person or a refusal."""

import copy
import json

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration, Ranking, Rating, assistant_turn, user_turn
from plaudit.errors import UserError

WHEN = "2026-03-01T12:00:00.000000Z"


TIMES = {"created_at": WHEN, "updated_at": WHEN, "lead_time": 4.288}


def region(name, kind, value, target):
    made = {"id": "Dx_aB91ISN", "type": kind, "origin": "manual"}
    return {**made, "from_name": name, "to_name": target, "value": value}


def annotation(person, *regions, **more):
    state = {"was_cancelled": False, "ground_truth": False, "prediction": {}, "result_count": 1, "task": 1}
    return {"id": 1001, "completed_by": person, "result": list(regions), **TIMES, **state, **more}


def task(data, *annotations):
    guess = {"model_version": "v1", "result": [region("pw", "pairwise", {}, "a,b")]}
    place = {"id": 1, "inner_id": 1, "project": 83, "meta": {}, "file_upload": "tasks.json"}
    counts = {"total_annotations": len(annotations), "cancelled_annotations": 0, "comment_count": 0}
    asked = {"data": data, "annotations": list(annotations), "predictions": [guess], "drafts": []}
    return {**place, **asked, **counts, "created_at": WHEN, "updated_at": WHEN}


TEXTS = {"prompt": "What sinks?", "answer1": "A cork.", "answer2": "A stone.", "source": "the lake"}
ITEMS = {
    "prompt": "What sinks?",
    "items": [
        {"id": "llm_1", "title": "Answer 1", "body": "A cork."},
        {"id": "llm_2", "title": "Answer 2", "body": "A stone."},
        {"id": "llm_3", "title": "Answer 3", "body": "An anchor."},
    ],
}


def pairwise(selected, over="answer1,answer2"):
    return region("pw", "pairwise", {"selected": selected}, over)


RIGHT, LEFT = pairwise("right"), pairwise("left")
ORDER = {"rank": ["llm_2", "llm_3", "llm_1"]}
WHY = region("why", "textarea", {"text": ["It is heavy."]}, "answer1")
MIN = {**TEXTS, "id": 1, "pw": [{"selected": "right"}], "annotator": 10, "annotation_id": 1001, **TIMES}


def labelled(data, *regions):
    """A task that one person has answered."""
    return task(data, annotation(10, *regions))


def ranked(value, data=None):
    return labelled(data or ITEMS, region("rank", "ranker", {"ranker": value}, "items"))


def argilla(fields, responses):
    guess = {"better": {"value": "response1", "score": None, "agent": "gpt"}}
    around = {"id": "a9c7", "metadata": {"source": "the lake"}, "suggestions": guess, "vectors": {}}
    return {**around, "fields": fields, "responses": responses, "_server_id": "5f6b"}


PAIR = {"prompt": "What sinks?", "response1": "A cork.", "response2": "A stone."}


def question(value, name, fields=PAIR):
    """A record of which one question was answered, by nobody in particular."""
    return argilla(fields, {name: [{"value": value}]})


THREE = {**PAIR, "response3": "An anchor.", "context": "A lake."}


def records(row, *left_out):
    return read_records([row], options=ReadOptions(leave_out=left_out)).records


def refusal(row, *left_out):
    with pytest.raises(UserError) as refused:
        records(row, *left_out)
    return str(refused.value)


def preferred(record):
    return record.chosen, record.rejected, record.annotator


def test_a_file_of_label_studio_gives_a_row_for_each_person(tmp_path):
    rows = [
        task(TEXTS, annotation(10, RIGHT), annotation({"id": 11, "email": "ada@example.org"}, LEFT)),
        task(TEXTS, annotation(10, RIGHT, was_cancelled=True)),
        task(TEXTS),
        ranked(ORDER),
    ]
    path = tmp_path / "project-83-at-2026-03-01.json"
    path.write_text(json.dumps(rows), "utf-8")
    reading = read_records(path)
    assert reading.format_name == "label-studio"
    assert [preferred(pair) for pair in reading.records[:2]] == [
        ("A stone.", "A cork.", "10"),
        ("A cork.", "A stone.", "11"),
    ]
    ranking = reading.records[2]
    assert isinstance(ranking, Ranking)
    assert ranking.completions == ("A stone.", "An anchor.", "A cork.")
    assert (ranking.ranks, ranking.annotator) == ((1.0, 2.0, 3.0), "10")
    assert dict(reading.left_out) == {"tasks that nobody has answered": 2}
    assert "ada@example.org" not in repr(reading.records)


def test_the_order_of_the_controls_names_decides_the_sides():
    turned = pairwise("left", "answer2,answer1")
    assert preferred(records(labelled(TEXTS, turned))[0]) == ("A stone.", "A cork.", "10")
    tags = pairwise("left", "txt-1,txt-2")
    assert preferred(records(labelled(TEXTS, tags))[0]) == ("A cork.", "A stone.", "10")


def test_json_min_is_read_as_the_whole_export_is(tmp_path):
    ranked = {**MIN, **ITEMS, "rank": [{"ranker": ORDER}]}
    for name in ("pw", "answer1", "answer2"):
        del ranked[name]
    unanswered = {**MIN, "pw": None}
    path = tmp_path / "min.json"
    path.write_text(json.dumps([MIN, ranked, unanswered]), "utf-8")
    reading = read_records(path)
    assert reading.format_name == "label-studio-min"
    pair, ranking = reading.records
    assert preferred(pair) == ("A stone.", "A cork.", "10")
    assert ranking.completions == ("A stone.", "An anchor.", "A cork.")
    assert dict(reading.left_out) == {"tasks that nobody has answered": 1}


def test_a_prompt_of_turns_has_answers_of_turns():
    (pair,) = records(labelled({**TEXTS, "prompt": [{"role": "user", "content": "What sinks?"}]}, RIGHT))
    assert (pair.prompt, pair.chosen) == (user_turn("What sinks?"), assistant_turn("A stone."))


def test_what_nobody_has_answered_is_counted():
    untouched = ranked({"_": ["llm_1", "llm_2", "llm_3"]})
    reading = read_records([labelled(TEXTS, pairwise("none")), untouched, labelled(TEXTS, RIGHT)])
    assert (len(reading.records), reading.left_out) == (1, {"tasks that nobody has answered": 2})
    reading = read_records([argilla(PAIR, {}), question("response2", "better")])
    assert (len(reading.records), reading.left_out) == (1, {"records that nobody has answered": 1})


def test_a_comment_goes_when_it_is_left_out_by_a_name_that_is_there():
    assert len(records(labelled(TEXTS, RIGHT, WHY), "annotations.why")) == 1
    assert len(records({**MIN, "stars": [{"rating": 4}]}, "stars")) == 1
    commented = argilla(PAIR, {"better": [{"value": "response2"}], "why": [{"value": "It is heavy."}]})
    assert "--leave-out responses.why" in refusal(commented)
    assert len(records(commented, "responses.why")) == 1
    flat = {**FLAT, "why.responses": ["It is heavy."]}
    assert "--leave-out why.responses" in refusal(flat)
    assert len(records(flat, "why.responses")) == 2
    assert "no row has the field 'respones'" in refusal(argilla(PAIR, {}), "respones.why")


def test_argilla_gives_a_row_for_each_person_and_question():
    row = argilla(
        PAIR,
        {
            "better": [
                {"value": "response2", "user_id": "ada"},
                {"value": "tie", "user_id": "bob"},
                {"value": "response1", "user_id": "eve", "status": "discarded"},
                {"value": "response1", "user_id": "kim", "status": "draft"},
            ],
            "order": [
                {"value": ["response1", "response2"], "user_id": "ada", "status": "submitted"},
                {"value": [{"value": "response2", "rank": 1}, {"value": "response1", "rank": 1}]},
            ],
            "response1-rating": [{"value": 2, "user_id": "ada"}],
        },
    )
    better, tie, order, level, rating = records(row)
    assert preferred(better) == ("A stone.", "A cork.", "ada")
    assert (tie.probability, tie.annotator) == (0.5, "bob")
    assert (order.completions, order.ranks) == (("A cork.", "A stone."), (1.0, 2.0))
    assert (level.ranks, level.annotator) == ((1.0, 1.0), None)
    assert (rating.completion, rating.score, rating.aspect) == ("A cork.", 2.0, "rating")


def test_a_text_that_is_no_answer_is_never_compared():
    (first, second) = records(argilla(THREE, {"best": [{"value": "response2", "user_id": "ada"}]}))
    assert [pair.rejected for pair in (first, second)] == ["A cork.", "An anchor."]


def test_answers_of_each_user_together_are_read_too():
    """The server's own API, and Argilla 1, list what each person answered."""
    row = argilla(
        PAIR,
        [
            {"user_id": "ada", "status": "submitted", "values": {"better": {"value": "response2"}}},
            {"user_id": "bob", "status": "discarded", "values": {"better": {"value": "response1"}}},
            {"user_id": "eve", "status": "discarded", "values": None},
        ],
    )
    assert [preferred(pair) for pair in records(row)] == [("A stone.", "A cork.", "ada")]


FLAT = {
    "id": "a9c7",
    "status": "completed",
    "_server_id": "5f6b",
    **PAIR,
    "better.responses": ["response2", "response1", "response1"],
    "better.responses.users": ["ada", "bob", "None"],
    "better.responses.status": ["submitted", "discarded", "submitted"],
    "better.suggestion": "response1",
    "better.suggestion.score": None,
    "better.suggestion.agent": "gpt",
}


def test_the_columns_of_a_data_set_are_read_as_the_records_are():
    reading = read_records([FLAT, {**FLAT, "better.responses": None}])
    assert reading.format_name == "argilla-flat"
    first, second = map(preferred, reading.records)
    assert (first, second) == (("A stone.", "A cork.", "ada"), ("A cork.", "A stone.", None))
    assert dict(reading.left_out) == {"records that nobody has answered": 1}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            labelled(TEXTS, RIGHT, WHY),
            "annotations[0].result[1].value: expected the value of a Pairwise (selected) or a Ranker",
        ),
        (labelled(TEXTS, RIGHT, WHY), "--leave-out annotations.why"),
        (ranked({"relevant": ["llm_1"], "biased": ["llm_2"]}), "of buckets it is not known which is better"),
        (
            ranked({"rank": ["llm_2", "llm_9"]}),
            "annotations[0].result[0].value.ranker.rank[1]: expected each id once, of llm_1, llm_2, llm_3",
        ),
        (
            ranked({"rank": ["llm_2", "llm_2"]}),
            "annotations[0].result[0].value.ranker.rank[1]: expected each id once",
        ),
        (
            labelled({**TEXTS, "prompt": None}, RIGHT),
            "field data: expected one of the fields prompt, instruction",
        ),
        (labelled({**TEXTS, "answer1": "A stone."}, RIGHT), "expected two different answers"),
        (
            labelled({"prompt": "?", "mine": "A cork.", "yours": "A stone."}, pairwise("left", "a-1,a-2")),
            "expected two answers whose names differ in their number only (answer1, answer2)",
        ),
        (labelled(TEXTS, pairwise("up")), "value.selected: expected left, right or none"),
        (ranked(ORDER, {"prompt": "What sinks?"}), "expected a list of items"),
        ({**MIN, "stars": [{"rating": 4}]}, "field stars[0]: expected the value of a Pairwise"),
        (
            question("response3", "better"),
            "responses.better[0].value: expected the name of an answer (response1, response2) or tie",
        ),
        (question(["response1", "response2"], "good", THREE), "expected all answers in order"),
        (question(["response1", "response1"], "order"), "expected all answers in order"),
        (question([["response1"], {}], "order"), "expected all answers in order"),
        (
            question([{"value": "response1", "rank": 1}, {"value": "response2"}], "order"),
            "responses.order[0].value[1].rank: expected a value",
        ),
        (question(True, "fine"), "expected the name of an answer"),
        (question({"start": 0}, "span"), "expected the name of an answer"),
        (question(3, "stars"), "expected points of one answer, or a question that begins"),
        (question(3, "stars", {"prompt": "What sinks?"}), "expected points of one answer"),
        (question(3, "stars", {"text": "A stone."}), "field fields: expected one of the fields"),
        (
            question("mine", "b", {"prompt": "?", "mine": "a", "yours": "b", "hers": "c"}),
            "expected an answer whose name differs from the others' in its number only",
        ),
        ({**FLAT, "better.responses.users": ["ada"]}, "better.responses.users: expected 3 values"),
    ],
)
def test_what_a_tool_may_hold_and_no_record_can_is_refused_by_field(row, says):
    assert says in refusal(row)


def test_numbers_and_texts_of_argilla_are_ratings_and_demonstrations():
    rated = question(4, "quality", {"instruction": "What sinks?", "answer": "A stone."})
    assert records(rated) == (
        Rating(prompt="What sinks?", completion="A stone.", score=4.0, aspect="quality", origin="rows:1"),
    )
    written = argilla({"prompt": "What sinks?"}, {"text": [{"value": "A stone.", "user_id": 7}]})
    assert records(written) == (
        Demonstration(prompt="What sinks?", completion="A stone.", annotator="7", origin="rows:1"),
    )


def test_nothing_that_is_read_is_changed():
    row = task(copy.deepcopy(TEXTS), annotation(10, RIGHT))
    before = copy.deepcopy(row)
    (pair,) = records(row)
    assert isinstance(pair, Comparison)
    assert row == before
