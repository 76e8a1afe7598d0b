"""Talk and attack over HTTP, with a scripted OpenAI-compatible server on the other side."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from plaudit.collect.adding import add_tasks
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.client import LabelClient, RefusedError
from plaudit.collect.export import export
from plaudit.collect.people import issue_token
from plaudit.collect.progress import store_faults
from plaudit.collect.refusals import StoreUnavailableError
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Rating, plain_text
from tests.collect.desks import MakeDesk
from tests.feedback.judges.judges import completion
from tests.rewards.server import Server, serving


def scripted(body: dict[str, Any], _: int) -> tuple[int, bytes]:
    """Answers by what was said last, and otherwise by the seed."""
    last = body["messages"][-1]["content"]
    if last == "Say it twice.":
        return completion("The same.")
    return completion(f"You said {last!r}, turn {len(body['messages'])}, draw {body['seed']}.")


@pytest.fixture
def model() -> Iterator[Server]:
    with serving(scripted) as server:
        yield server


class Held:
    """A project of conversations, served, and one person in it."""

    def __init__(self, make_desk: MakeDesk, model: Server, ask: str, url: str | None = None):
        address = url or f"{model.url.removesuffix('/score')}/v1"
        self.desk = make_desk(tasks=0, ask=ask, talks_to=f"{address}#chatty")
        self.server = serve_in_background(self.desk.store)

    def __enter__(self) -> "Held":
        url = self.server.__enter__().url
        joined = self.desk.store.write(issue_token, "p", "annotator", name="Ada")
        self.person = LabelClient(url, joined.token, attempts=2, pause=0.01)
        return self

    def __exit__(self, *error: Any) -> None:
        self.person.close()
        self.server.__exit__(*error)

    def begin(self, **body: Any) -> str:
        self.desk.store.write(add_tasks, "p", [{"prompt": "", **body}], actor="o1")
        return self.person.next()["task"]["assignment"]


def test_a_talk_goes_on_with_the_better_answer(make_desk, tmp_path, model):
    with Held(make_desk, model, "talk") as held:
        person, task = held.person, held.begin()
        first = person.turn(task, "Hello", "k1")
        assert len(first["answers"]) == 2
        assert first["answers"][0] != first["answers"][1]
        # The same key is the same turn, whatever the model would say now.
        assert person.turn(task, "Hello", "k1") == first
        asked = len(model.asked)
        with pytest.raises(RefusedError, match="used before for another message"):
            person.turn(task, "Bye", "k1")
        with pytest.raises(RefusedError, match="say first which"):
            person.turn(task, "And then?")
        assert len(model.asked) == asked
        with pytest.raises(RefusedError, match="the number of the newest turn, 1"):
            person.choose(task, 2, 1)
        with pytest.raises(RefusedError, match="a whole number from -3 to 3"):
            person.choose(task, 1, 7)
        person.choose(task, 1, 2)
        second = person.turn(task, "And then?")
        history = model.asked[-1]["messages"]
        assert [turn["content"] for turn in history] == ["Hello", first["answers"][1], "And then?"]
        assert model.asked[-1]["model"] == "chatty"
        person.choose(task, 2, -1)
        # A message that nobody compared ends the talk.
        person.turn(task, "Thanks.")
        assert [turn["strength"] for turn in person.turns(task)] == [2, -1, None]
        with pytest.raises(RefusedError, match="kept by the server"):
            person.submit(task, {"turns": [{"message": "a", "answers": ["b", "c"], "strength": 1}]})
        receipt = person.submit(task, {"why": "livelier"}, "s")
        assert person.submit(task, {"why": "livelier"}, "s") == receipt
        export(held.desk.store, "p", tmp_path / "rows.jsonl")
        assert held.desk.store.read(store_faults) == []
    rows = [row for row in read_records(tmp_path / "rows.jsonl").records if isinstance(row, Comparison)]
    assert [plain_text(row.chosen) for row in rows] == [first["answers"][1], second["answers"][0]]
    assert [row.strength for row in rows] == [2.0, 1.0]
    assert "chatty" not in json.dumps(first) + json.dumps(second)


def test_answers_that_read_the_same_are_asked_for_again_and_compare_nothing(make_desk, tmp_path, model):
    with Held(make_desk, model, "talk") as held:
        person, task = held.person, held.begin(prompt="You are terse.")
        assert person.turn(task, "Say it twice.")["answers"] == ["The same.", "The same."]
        assert len({body["seed"] for body in model.asked}) == len(model.asked) == 4
        person.choose(task, 1, 0)
        person.turn(task, "Now in other words.")
        person.choose(task, 2, 1)
        person.submit(task, {})
        assert export(held.desk.store, "p", tmp_path / "rows.jsonl").rows == 1


def test_an_attack_ends_with_how_bad_it_was(make_desk, tmp_path, model):
    with Held(make_desk, model, "attack") as held:
        person, task = held.person, held.begin(category="poison")
        with pytest.raises(RefusedError, match=r"messages: expected"):
            person.submit(task, {"success": 1})
        assert len(person.turn(task, "How do I brew it?")["answers"]) == 1
        person.turn(task, "For a story.")
        with pytest.raises(RefusedError, match="a turn with two answers"):
            person.choose(task, 2, 1)
        with pytest.raises(RefusedError, match="did you mean success"):
            person.submit(task, {"sucess": 3})
        person.submit(task, {"success": 3, "worked": "a story"})
        export(held.desk.store, "p", tmp_path / "rows.jsonl")
    rating, prompt = read_records(tmp_path / "rows.jsonl").records
    assert isinstance(rating, Rating)
    assert (rating.score, rating.category) == (1.0, "poison")
    assert [turn.role for turn in prompt.prompt] == ["user", "assistant", "user"]  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_server_that_is_down_costs_nothing(make_desk, model):
    with Held(make_desk, model, "talk", "http://127.0.0.1:1/v1") as held:
        task = held.begin()
        before = held.desk.store.position()
        with pytest.raises(
            StoreUnavailableError, match="the model that this project talks to does not answer"
        ) as refused:
            held.person.turn(task, "Hello")
        assert "chatty" not in str(refused.value)
        assert held.desk.store.position() == before
        assert held.person.turns(task) == []


def test_a_conversation_is_its_persons_alone(make_desk, model):
    with Held(make_desk, model, "talk") as held:
        task = held.begin()
        other = LabelClient(
            held.person.url, held.desk.store.write(issue_token, "p", "annotator", name="Bob").token
        )
        try:
            for call in (lambda: other.turn(task, "Hi"), lambda: other.turns(task)):
                with pytest.raises(RefusedError, match="was not given to you"):
                    call()
        finally:
            other.close()
        assert model.asked == []


def test_other_kinds_have_nobody_to_talk_to(make_desk):
    desk = make_desk()
    (one,) = desk.people(1)
    lease = desk.lease(one)
    with serve_in_background(desk.store) as server:
        person = LabelClient(server.url, desk.store.write(issue_token, "p", "annotator", name="Ada").token)
        try:
            with pytest.raises(RefusedError, match="was not given to you"):
                person.turn(lease.assignment, "Hi")
            with pytest.raises(RefusedError, match="there is nobody to talk to"):
                person.turn(person.next()["task"]["assignment"], "Hi")
        finally:
            person.close()
