"""Files as tasks: what each kind of row becomes, what never travels along, and what is refused by row."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect import adding
from plaudit.collect.answering import take_in
from plaudit.collect.asking import People, task_body
from plaudit.collect.export import export
from plaudit.collect.intake import Intake, Known, read_intake
from plaudit.collect.people import issue_token, set_standing
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_people, project_status, project_tasks, store_faults
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError, KeyConflictError, NotYoursError
from plaudit.collect.store import LabelStore
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.judging import Task
from plaudit.errors import UserError
from tests.collect.desks import Desk, statements_of

SERVER = "http://127.0.0.1:1/v1#model"
TALK = [{"role": "user", "content": "Hi"}]
CHOSEN, REJECTED = {"role": "assistant", "content": "Hello!"}, {"role": "assistant", "content": "What?"}


def pair(number: int, **more: Any) -> dict[str, Any]:
    return {"prompt": f"What is {number} + {number}?", "chosen": f"{2 * number}.", "rejected": "No.", **more}


def own(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "prompt": "Name a fruit.", **fields}


def written(folder: Path, rows: Sequence[object], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def project(ask: str, **settings: Any) -> Project:
    return Project(name="p", ask=ask, talks_to=SERVER, **settings)


def taken(
    folder: Path, rows: Sequence[object], ask: str = "pair", known: Known | None = None, **settings: Any
) -> Intake:
    return read_intake(written(folder, rows), project(ask, **settings), known)


def refusal(
    folder: Path, rows: Sequence[object], ask: str = "pair", known: Known | None = None, **settings: Any
) -> str:
    with pytest.raises(UserError) as refused:
        taken(folder, rows, ask, known, **settings)
    return str(refused.value)


def texts(body: dict[str, Any]) -> list[Any]:
    return [candidate["text"] for candidate in body["candidates"]]


def test_a_comparison_is_asked_without_its_verdict_and_chosen_is_not_always_first(tmp_path):
    rows = [pair(number, strength=2, annotator="ada", group="experts") for number in range(200)]
    bodies = taken(tmp_path, rows).bodies
    assert [body["prompt"] for body in bodies] == [row["prompt"] for row in rows]
    first = sum(texts(body)[0] == row["chosen"] for body, row in zip(bodies, rows, strict=True))
    assert 70 < first < 130
    assert {name for body in bodies for name in body} == {"kind", "prompt", "candidates"}
    assert all({*texts(body)} == {row["chosen"], "No."} for body, row in zip(bodies, rows, strict=True))


def test_the_same_answers_are_the_same_task_whichever_was_preferred_and_wherever_they_stand(tmp_path):
    rows = [pair(1), {**pair(1), "chosen": "No.", "rejected": "2."}]
    there, back = taken(tmp_path, rows).bodies
    assert there == back


@pytest.mark.parametrize(
    ("ask", "row", "fields"),
    [
        ("pair", own("comparison", chosen="A fig.", rejected="A cat."), {"candidates"}),
        ("pair", own("ranking", completions=["A fig.", "A cat."], ranks=[1, 2]), {"candidates"}),
        ("rank", own("ranking", completions=["A fig.", "A cat.", "Eh?"], ranks=[1, 2, 2]), {"candidates"}),
        ("rate", own("rating", completion="A fig.", score=4), {"candidates"}),
        ("rate", own("comparison", chosen="A fig.", rejected="A cat."), {"candidates"}),
        ("rate", own("demonstration", completion="A fig."), {"candidates"}),
        ("write", own("prompt"), set()),
        ("write", own("demonstration", completion="A fig."), {"draft"}),
        ("steps", own("steps", steps=["Look.", "A fig."], labels=[1.0, 0.0]), {"steps"}),
        ("talk", own("prompt"), set()),
        ("attack", own("prompt"), set()),
    ],
)
def test_each_kind_of_row_becomes_each_kind_of_task(tmp_path, ask, row, fields):
    (body,) = taken(tmp_path, [row], ask).bodies
    held = {name for name, value in body.items() if value not in ([], None)}
    assert held == {"kind", "prompt"} | fields
    assert (body["kind"], body["prompt"]) == (ask, "Name a fruit.")
    said = json.dumps(body)
    assert "score" not in said
    assert "ranks" not in said
    assert "labels" not in said


def test_category_reference_and_metadata_travel_along(tmp_path):
    row = own("prompt", answer="fig", metadata={"category": "food", "level": 3})
    (body,) = taken(tmp_path, [row], "write").bodies
    assert body["reference_answer"] == "fig"
    assert body["category"] == "food"
    assert body["metadata"] == {"category": "food", "level": 3}
    (body,) = taken(tmp_path, [pair(1, category="sums")]).bodies
    assert body["category"] == "sums"


def test_conversations_stay_conversations(tmp_path):
    (body,) = taken(tmp_path, [{"prompt": TALK, "chosen": [CHOSEN], "rejected": [REJECTED]}]).bodies
    assert body["prompt"] == TALK
    assert sorted(texts(body), key=str) == sorted([[CHOSEN], [REJECTED]], key=str)


ASPECTS = ("helpfulness", "honesty", "instruction_following", "truthfulness")
RATED = {
    "source": "flan",
    "instruction": "Name a fruit.",
    "completions": [
        {"response": text, "annotations": {aspect: {"Rating": "3"} for aspect in ASPECTS}}
        for text in ("Fig.", "Pear.", "Cat.", "Dog.")
    ],
}


@pytest.mark.parametrize("ask", ["rank", "rate"])
def test_all_answers_of_a_row_are_one_task(tmp_path, ask):
    (body,) = taken(tmp_path, [RATED], ask).bodies
    assert {*texts(body)} == {"Fig.", "Pear.", "Cat.", "Dog."}


def test_rows_in_columns_of_any_name_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("q,a,b\nName a fruit.,Fig.,Cat.\n")
    options = ReadOptions(columns=("prompt=q", "chosen=a", "rejected=b"))
    (body,) = read_intake(path, project("pair"), options=options).bodies
    assert {*texts(body)} == {"Fig.", "Cat."}


COMPARED = own("comparison", chosen="Fig.", rejected="Cat.")
SOUND = {
    "pair": COMPARED,
    "rank": own("ranking", completions=["1", "2", "3"], ranks=[1, 2, 3]),
    "rate": own("demonstration", completion="Plum."),
    "write": own("prompt"),
    "steps": own("steps", steps=["Look."], labels=[1.0]),
    "talk": own("prompt"),
}


@pytest.mark.parametrize(
    ("ask", "row", "says"),
    [
        ("pair", own("prompt"), "field kind: expected comparison or ranking or rating"),
        (
            "pair",
            own("rating", completion="A fig.", score=4),
            "field answers: expected 2, as the project asks",
        ),
        (
            "pair",
            own("ranking", completions=["A fig.", "A cat.", "Eh?"], ranks=[1, 2, 3]),
            "field answers: expected 2, as the project asks for pair, found 3 of them",
        ),
        ("rank", COMPARED, "field answers: expected 3 to 9, as the project asks for rank, found 2 of them"),
        ("write", COMPARED, "field kind: expected prompt or demonstration, as the project asks for write"),
        ("steps", COMPARED, "field kind: expected steps, as the project asks for steps, found comparison"),
        ("talk", COMPARED, "field kind: expected prompt, as the project asks for talk, found comparison"),
        ("pair", {**COMPARED, "rejected": "Fig. "}, "field rejected: expected answers that differ"),
        (
            "rank",
            own("ranking", completions=["A fig.", "A cat.", " A fig. "], ranks=[1, 2, 3]),
            "field completions[2]: expected answers that differ, or there is nothing to compare "
            "(leave the row out), found the same words as in completions[0]",
        ),
        ("rate", own("demonstration", completion="A document.") | {"prompt": ""}, "field prompt"),
        ("write", own("prompt", metadata={"deep": [[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]}), "field metadata"),
    ],
)
def test_what_a_row_cannot_become_is_refused_by_row_and_field(tmp_path, ask, row, says):
    said = refusal(tmp_path, [SOUND[ask], row], ask)
    assert says in said
    assert "rows.jsonl:2: " in said
    assert "so nothing was added" in said


def test_rows_that_cannot_be_read_are_all_named_and_the_long_tail_counted(tmp_path):
    lines = [json.dumps(pair(number)).encode() for number in range(10)]
    lines[1] = b'{"prompt": "a\xff", "chosen": "b", "rejected": "c"}'
    lines[2] = b'{"prompt": "a\\u0000", "chosen": "b", "rejected": "c"}'
    lines[3] = json.dumps(pair(3, chosen="x" * 10_000_001)).encode()
    lines[4] = json.dumps(pair(4, chosen="x" * 1_000_001)).encode()
    lines[5] = b'{"prompt": "half of'
    lines[6] = b'{"prompt": "a", "chosen": "\\ud800", "rejected": "c"}'
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UserError) as refused:
        read_intake(path, project("pair"))
    said = str(refused.value)
    assert said.startswith("rows.jsonl: 6 of 10 rows cannot become tasks of project p (it asks for pair)")
    assert "rows.jsonl:2: expected text in UTF-8" in said
    assert "rows.jsonl:3: field prompt: expected a text without NUL" in said
    assert "rows.jsonl:4: expected at most 10,000,000 bytes" in said
    assert "rows.jsonl:5: field task: expected at most 1000000, found 1000" in said
    assert "rows.jsonl:6: expected a JSON object" in said
    assert said.endswith("  and 1 more")


def test_text_that_no_field_is_known_for_is_refused(tmp_path):
    rows = [pair(number, context=f"Number {number} is to be doubled twice.") for number in range(3)]
    assert "the field 'context' holds text that is not read" in refusal(tmp_path, rows)


# Known answers.


def test_what_a_row_prefers_and_the_best_of_a_ranking_become_the_known_answer(tmp_path):
    rows = [pair(1), pair(2, probability=0.2), pair(3, probability=0.9), pair(4, strength=3)]
    bodies = taken(tmp_path, rows, known="gold").bodies
    right = [texts(body)[body["gold"]["better"]] for body in bodies]
    assert right == ["2.", "No.", "6.", "8."]
    assert not any("qualify" in body for body in bodies)
    assert all(body["qualify"] is True for body in taken(tmp_path, rows, known="qualify").bodies)
    row = own("ranking", completions=["A", "B", "C"], ranks=[2, 1, 3])
    (body,) = taken(tmp_path, [row], "rank", "gold").bodies
    assert texts(body)[body["gold"]["best"]] == "B"
    (body,) = taken(tmp_path, [own("ranking", completions=["A", "B"], ranks=[2, 1])], "pair", "gold").bodies
    assert texts(body)[body["gold"]["better"]] == "B"


def test_points_have_a_quarter_of_the_scale_around_them_and_labels_of_steps_their_words(tmp_path):
    rows = [own("rating", completion="A", score=4), own("rating", completion="B", score=1)]
    high, low = taken(tmp_path, rows, "rate", "gold").bodies
    assert (high["gold"], low["gold"]) == ({"overall": [[3.0, 5.0]]}, {"overall": [[1.0, 2.0]]})
    row = own("steps", steps=["a", "b", "c"], labels=[1.0, 0.5, 0.0])
    (body,) = taken(tmp_path, [row], "steps", "gold").bodies
    assert body["gold"] == {"labels": ["right", "neutral", "wrong"]}


@pytest.mark.parametrize(
    ("ask", "row", "says"),
    [
        ("pair", pair(2, strength=0, probability=0.5), "field probability: expected one answer that is"),
        ("pair", pair(2, probability=0.5), "field probability: expected one answer that is better"),
        (
            "rank",
            own("ranking", completions=["A", "B", "C"], ranks=[1, 1, 3]),
            "field ranks: expected one answer that is better (leave the row out, or add it without --gold "
            "and --qualify), found a tie",
        ),
        ("rank", RATED, "field ranks: expected one answer that is better"),
        ("rate", RATED, "field score: expected a score of each answer as a whole"),
        ("rate", own("rating", completion="A", score=7), "field score: expected points from 1 to 5"),
        ("rate", own("rating", completion="A", score=1, thumb=True), "field score: expected points from 1"),
        ("rate", own("demonstration", completion="A"), "field score: expected a score of each answer"),
        ("steps", own("steps", steps=["a"], labels=[0.3]), "field labels[0]: expected 1 (right)"),
    ],
)
def test_what_is_not_known_is_refused_by_row_with_what_to_do(tmp_path, ask, row, says):
    said = refusal(tmp_path, [row], ask, "gold")
    assert f"rows.jsonl:1: {says}" in said


def test_two_rows_that_contradict_each_other_are_named(tmp_path):
    rows = [pair(1), pair(2), {**pair(1), "chosen": "No.", "rejected": "2."}]
    said = refusal(tmp_path, rows, known="gold")
    assert "rows.jsonl:3: field gold: expected the known answer of rows.jsonl:1, which asks the same" in said


@pytest.mark.parametrize("ask", ["write", "talk", "attack"])
def test_nothing_is_known_of_what_people_write(tmp_path, ask):
    said = refusal(tmp_path, [own("prompt")], ask, "qualify")
    assert f"asks for {ask}, of which nothing is known to be right; add the rows without --qualify" in said


# Tasks as they are.


def test_tasks_are_taken_as_they_are(tmp_path):
    task = {"prompt": "Q?", "candidates": [{"text": "a"}, {"text": "b", "source": {"model": "m"}}]}
    (body,) = taken(tmp_path, [{**task, "priority": 2, "gold": {"better": 1}}]).bodies
    assert texts(body) == ["a", "b"]
    assert (body["gold"], body["priority"]) == ({"better": 1}, 2.0)
    (body,) = taken(tmp_path, [{"kind": "steps", "prompt": "Q?", "steps": ["a", "b"]}], "steps").bodies
    assert body["steps"] == ["a", "b"]
    (body,) = taken(tmp_path, [{"kind": "talk", "prompt": ""}], "talk").bodies
    assert body["prompt"] == ""


def test_wrong_tasks_are_refused_by_row_and_field(tmp_path):
    task = {"kind": "pair", "prompt": "Q?", "candidates": [{"text": "a"}, {"text": "b"}]}
    said = refusal(tmp_path, [task, {**task, "kind": "rank"}, {**task, "promt": "Q?"}, pair(1)])
    assert "rows.jsonl:2: field kind: expected pair, as the project asks" in said
    assert "rows.jsonl:3: field promt: " in said
    assert "did you mean prompt?" in said
    assert "rows.jsonl:4: field chosen: " in said
    said = refusal(tmp_path, [task], known="gold")
    assert (
        "rows.jsonl:1: field gold: expected what is right, as it is added with --gold, found nothing" in said
    )


# What people filled in.


def people_row(number: int, better: str | None, **more: Any) -> dict[str, Any]:
    asked = {"pair": number, "origin": f"q.jsonl:{number}", "prompt": f"Q{number}?"}
    return {**asked, "first": f"Yes {number}.", "second": f"No {number}.", "better": better, **more}


FILLED = [
    people_row(1, "first", strength=3, annotator="Ada", group="experts"),
    people_row(2, "second", annotator="Ada"),
    people_row(3, "tie", annotator="Ben"),
    people_row(4, "skip"),
    people_row(5, None),
]


def take_file_in(store: LabelStore, path: Path) -> tuple[int, int, int, int]:
    """New tasks, and of the answers those taken, repeated and surplus."""
    found = read_intake(path, store.project("p"))
    added, given = store.write(take_in, "p", found.bodies, found.given, actor="o1")
    return added.added, given.taken, given.repeated, given.surplus


def test_a_half_filled_file_becomes_tasks_and_labels_once(tmp_path, on_both):
    store = on_both(tasks=0).store
    path = written(tmp_path, FILLED)
    assert take_file_in(store, path) == (5, 4, 0, 0)
    seq = store.position()
    assert take_file_in(store, path) == (0, 0, 4, 0)
    assert store.position() == seq
    # More of it was filled in since.
    path = written(tmp_path, [*FILLED[:4], people_row(5, "first", annotator="Ada")])
    assert take_file_in(store, path) == (0, 1, 4, 0)
    assert store.read(store_faults) == []
    assert store.read(project_status, "p").tasks == {"done": 5}
    assert [row["person"] for row in store.read(project_people, "p")] == ["Ada", "Ben", "people"]
    out = tmp_path / "labels.jsonl"
    found = export(store, "p", out)
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [(row["chosen"], row["strength"], row["annotator"]) for row in rows] == [
        ("Yes 1.", 3.0, "a1"),
        ("No 2.", 1.0, "a1"),
        ("Yes 3.", 0.0, "a2"),
        ("Yes 5.", 1.0, "a1"),
    ]
    assert found.left_out == {"that say nothing of the answers": 1}


def test_names_and_the_time_of_the_app_stay_out_of_the_log(tmp_path, make_desk):
    store = make_desk(tasks=0, guidelines="Be kind.").store
    take_file_in(store, written(tmp_path, FILLED))
    said = json.dumps([event.body for event in store.events()])
    assert "Ada" not in said
    leases = [event for event in store.events() if event.kind == "leased"]
    # Nobody read the project's guidelines when the file was filled in.
    assert {event.body["guidelines"] for event in leases if event.body} == {""}
    assert next(event.body["taken_in"] for event in leases if event.body) == {
        "from": "rows.jsonl:1",
        "group": "experts",
    }


def test_the_next_person_sees_the_other_order_and_the_cap_holds(tmp_path, make_desk):
    desk = make_desk(tasks=0, overlap=2)
    path = written(tmp_path, [people_row(1, "first", annotator="Ada")])
    take_file_in(desk.store, path)
    (late,) = desk.people(1)
    lease = desk.lease(late)
    assert lease.shown["answers"] == ["No 1.", "Yes 1."]
    # The last place is held in the app, so a second file gets none.
    other = written(tmp_path, [people_row(1, "first", annotator="Ben")])
    assert take_file_in(desk.store, other) == (0, 1, 0, 1)
    desk.submit(late, lease, "k", {"strength": 1})
    assert desk.store.read(project_status, "p").labels == 2
    assert desk.store.read(project_status, "p").surplus == 1


def test_two_copies_filled_in_by_two_people_are_two_labels(tmp_path, make_desk):
    store = make_desk(tasks=0, overlap=2).store
    for name in ("Ada", "Ben"):
        path = written(tmp_path, [people_row(1, "first", annotator=name)])
        assert take_file_in(store, path)[1:] == (1, 0, 0)
    assert store.read(project_status, "p").tasks == {"done": 1}


def test_another_answer_of_the_same_person_is_refused_and_nothing_changes(tmp_path, make_desk):
    store = make_desk(tasks=0).store
    take_file_in(store, written(tmp_path, FILLED))
    seq = store.position()
    changed = written(tmp_path, [people_row(9, "first"), people_row(1, "second", annotator="Ada")])
    with pytest.raises(KeyConflictError, match=r"rows.jsonl:2: another answer of a1 to the same task"):
        take_file_in(store, changed)
    assert store.position() == seq


def given_in_the_app(desk: Desk, folder: Path) -> tuple[str, Path]:
    """A task that a person of the app holds, and a file in which it is filled in under the same name."""
    take_file_in(desk.store, written(folder, [people_row(1, None)]))
    (who,) = desk.people(1)
    desk.lease(who)
    return who, written(folder, [people_row(1, "first", annotator="person 0")])


def test_nobody_labels_a_task_twice(tmp_path, make_desk):
    desk = make_desk(tasks=0)
    who, path = given_in_the_app(desk, tmp_path)
    with pytest.raises(NotYoursError, match=f"rows.jsonl:1: {who} was given this task in the app"):
        take_file_in(desk.store, path)
    desk.store.write(set_standing, "p", who, "suspended", reason="tired", actor="o1")
    with pytest.raises(NotYoursError, match=f"{who} is suspended in project p"):
        take_file_in(desk.store, path)


def test_two_people_of_one_name_are_told_apart_by_nobody(tmp_path, make_desk):
    desk = make_desk(tasks=0)
    for _ in range(2):
        desk.store.write(issue_token, "p", "annotator", name="Ada")
    with pytest.raises(FieldError, match=r"rows.jsonl:1, annotator: .*'Ada', as a1 and a2 are both called"):
        take_file_in(desk.store, written(tmp_path, FILLED))


def test_an_erased_person_leaves_the_clicks_that_were_taken_in(tmp_path, make_desk):
    store = make_desk(tasks=0).store
    take_file_in(store, written(tmp_path, FILLED))
    erase_person(store, "p", "a1", actor="o1")
    assert store.read(store_faults) == []
    assert store.read(project_status, "p").labels == 4
    assert [row["person"] for row in store.read(project_people, "p")] == [None, "Ben", "people"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (people_row(2, "frist"), "field better: expected one of first, second, tie, skip, or null"),
        (people_row(2, "first", strength=4), "field strength: expected a whole number from 1 to 3, found 4"),
        (people_row(2, "first", strength=True), "field strength: expected a whole number from 1 to 3"),
        (people_row(2, "tie", strength=1), "field strength: expected none"),
        (people_row(2, "first", annotator=3), "field annotator: expected a text"),
        (people_row(2, "first", beter="x"), "did you mean better?"),
        (people_row(1, "first"), "field pair: expected each pair once, found 1 for the second time"),
        ({**people_row(2, "first"), "pair": True}, "field pair: expected the number of the pair"),
        ({**people_row(2, "first"), "second": "Yes 2."}, "the same words"),
        ({**people_row(2, "first"), "first": None}, "field first: expected a value, found null"),
    ],
)
def test_wrong_rows_of_people_are_refused_by_row_and_field(tmp_path, row, says):
    said = refusal(tmp_path, [people_row(1, None), row])
    assert "rows.jsonl:2: " in said
    assert says in said


def test_pairs_of_people_can_be_known_answers_or_conversations_and_ties_only_where_there_are_ties(tmp_path):
    (body,) = taken(tmp_path, [people_row(1, "second")], known="gold").bodies
    assert body["gold"] == {"better": 1}
    assert "rows.jsonl:1: field better: expected" in refusal(tmp_path, [people_row(1, "tie")], known="gold")
    row = {**people_row(1, "first"), "prompt": TALK}
    (body,) = taken(tmp_path, [row]).bodies
    assert texts(body)[0] == [{"role": "assistant", "content": "Yes 1."}]
    assert "rows.jsonl:1: field strength" in refusal(tmp_path, [people_row(1, "tie")], ties=False)


def test_a_file_of_an_earlier_round_answers_what_was_asked_already(tmp_path, make_desk):
    """A loop has asked the same pairs in its own words: the answers are put on those, on the right side."""
    desk = make_desk(tasks=0, overlap=1)
    people = People(store=desk.store, project="p")
    tasks = [Task(prompt=f"Ask {n}?", answers=("good", "bad"), ended=(True, True)) for n in range(3)]
    ids = people.ask([task_body(task, source={"model": "sft"}, round=1) for task in tasks])
    rows = [
        {"pair": n + 1, "origin": f"a:{n}", "prompt": f"Ask {n}?", "first": "bad", "second": "good"}
        for n in range(3)
    ]
    verdicts = [{"better": "second"}, {"better": None}, {"better": "first"}]
    rows = [{**row, **verdict} for row, verdict in zip(rows, verdicts, strict=True)]
    intake = read_intake(written(tmp_path, rows), desk.store.project("p"))
    added, taken = desk.store.write(take_in, "p", intake.bodies, intake.given, actor="o1")
    assert (added.added, added.repeated, taken.taken) == (0, 3, 2)
    assert len(desk.store.read(project_tasks, "p")) == 3
    assert people.wait(ids) is not None
    person = desk.people(1)[0]
    lease = desk.lease(person)
    assert lease.task == ids[1]
    desk.submit(person, lease, "k", {"none": True})
    found = people.verdicts(tasks, 0)
    assert [None if one is None else one.probability for one in found] == [1.0, None, 0.0]


def test_an_intake_reads_its_own_tasks_and_says_little(tmp_path, make_desk, monkeypatch):
    desk = make_desk(tasks=40)
    read, content_key = list[Any](), adding.content_key
    monkeypatch.setattr(adding, "content_key", lambda body: read.append(body) or content_key(body))
    counts = list[int]()
    for first, last in ((10, 11), (20, 22)):
        rows = [people_row(number, "first", annotator="Ada") for number in range(first, last)]
        said = statements_of(desk.store)
        assert take_file_in(desk.store, written(tmp_path, rows))[1] == last - first
        counts.append(len(said))
    assert read == []
    assert counts[1] - counts[0] <= 9, counts
