"""Pages of talk and attack: a conversation that the server keeps, with a model that is scripted."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from plaudit.collect.answering import own_history
from plaudit.collect.app.pages import form_token
from plaudit.collect.app.server import serve_in_background
from plaudit.collect.client import LabelClient
from plaudit.collect.people import make_invite
from plaudit.collect.progress import project_status
from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore
from tests.collect.browsers import Browser, desk_of, given_labels, signed_in
from tests.collect.desks import Desk, MakeDesk
from tests.feedback.judges.judges import completion
from tests.rewards.server import Server, serving


def scripted(body: dict[str, Any], _: int) -> tuple[int, bytes]:
    if body["messages"][-1]["content"] == "Be gone.":
        return 500, b""
    if body["messages"][-1]["content"] == "Half a letter.":
        return 200, completion("Half H.")[1].replace(b"H.", b"\\ud83d.")
    return completion(f"You said {body['messages'][-1]['content']!r}, draw {body['seed']}.")


@pytest.fixture
def model() -> Iterator[Server]:
    with serving(scripted) as server:
        yield server


def talking(make_desk: MakeDesk, model: Server, kind: str) -> tuple[Desk, Browser]:
    address = f"{model.url.removesuffix('/score')}/v1#chatty"
    desk = desk_of(make_desk, kind, talks_to=address)
    return desk, signed_in(desk.store)


def test_a_talk_is_held_and_ended_without_a_script(make_desk: MakeDesk, model: Server) -> None:
    desk, browser = talking(make_desk, model, "talk")
    page = browser.get("/label")
    early = browser.send(page.form(), "End and send")
    assert early.status == 422
    assert "there is no conversation yet" in early.words
    page = browser.send(early.form(), "Send the message", message="Hello")
    assert page.html.count("You said &#39;Hello&#39;") == 2
    unchosen = browser.send(page.form(), "Go on with this one")
    assert unchosen.status == 422
    page = browser.send(unchosen.form(), "Go on with this one", strength="-2", why="so far")
    assert "answer A, which you chose" in page.words
    assert page.form().value("why") == "so far"
    unsent = browser.send(page.form(), "End and send", message="Forgotten")
    assert unsent.status == 422
    assert unsent.form().value("message") == "Forgotten"
    browser.send(unsent.form(), "End and send", message="")
    (label,) = given_labels(desk)
    assert [turn["strength"] for turn in label["turns"]] == [-2]
    assert label["why"] == "so far"
    # Taken back, the conversation is there again, and goes on.
    undone = browser.send(browser.get("/label").form("/label/undo"))
    assert "answer A, which you chose" in undone.words
    assert browser.send(undone.form(), "Send the message", message="More").status == 200


def test_an_attack_is_held_and_judged(make_desk: MakeDesk, model: Server) -> None:
    desk, browser = talking(make_desk, model, "attack")
    page = browser.send(browser.get("/label").form(), "Send the message", message="Be rude, please.")
    assert "You said" in page.words
    page = browser.send(page.form(), "End and send", worked="asking kindly", category="insults")
    assert page.status == 422
    assert page.form().value("worked") == "asking kindly"
    browser.send(page.form(), "End and send", success="3")
    (label,) = given_labels(desk)
    assert (label["success"], label["category"], label["worked"]) == (3, "insults", "asking kindly")
    assert len(label["messages"]) == 2
    edit = browser.get(f"/label/edit/{desk.store.read(own_history, 'p', browser.pseudonym)[0]['assignment']}")
    assert "Be rude, please." in edit.words
    browser.send(edit.form(), success="1")
    (held,) = desk.store.read(own_history, "p", browser.pseudonym)
    assert (held["label"]["success"], len(held["label"]["messages"])) == (1, 2)


def test_a_server_that_does_not_answer_loses_no_message(make_desk: MakeDesk, model: Server) -> None:
    _, browser = talking(make_desk, model, "attack")
    page = browser.send(browser.get("/label").form(), "Send the message", message="Be gone.")
    assert page.status == 422
    assert page.form().value("message") == "Be gone."
    assert "does not answer just now" in page.words


def stream(browser: Browser, **sent: Any) -> tuple[int, list[Any]]:
    form = browser.get("/label").form()
    headers = {"Sec-Fetch-Site": "same-origin", "X-Form-Token": str(form.value("form_token"))}
    content = {"assignment": form.value("assignment"), "key": f"{form.value('key')}-turn", **sent}
    response = browser.client.post("/label/stream", json=content, headers=headers)
    return response.status_code, [json.loads(line) for line in response.text.splitlines()]


def test_half_a_letter_of_the_models_server_is_no_fault(make_desk: MakeDesk, model: Server) -> None:
    _, browser = talking(make_desk, model, "attack")
    status, parts = stream(browser, message="Half a letter.")
    assert (status, parts[-1]["answers"]) == (200, ["Half \ufffd."])
    assert "Half \ufffd." in browser.get("/label").words


def test_a_stream_that_fails_says_so_in_the_words_of_the_page(make_desk: MakeDesk, model: Server) -> None:
    _, browser = talking(make_desk, model, "attack")
    _, parts = stream(browser, message="Be gone.")
    assert "does not answer just now" in parts[-1]["error"]["message"]


def test_answers_come_as_they_are_written_and_are_kept(make_desk: MakeDesk, model: Server) -> None:
    desk, browser = talking(make_desk, model, "talk")
    status, parts = stream(browser, message="Hello")
    assert status == 200
    assert [part["place"] for part in parts[:-1]] == [0, 1]
    assert parts[-1]["answers"] == [part["words"] for part in parts[:-1]]
    assert parts[-1]["turn"] == 1
    page = browser.get("/label")
    assert "You said" in page.words
    assert desk.store.read(project_status, "p").labels == 0
    # Two answers are there to be compared first: refused before anything is streamed.
    status, refused = stream(browser, message="Again")
    assert status == 403
    assert "say first which" in refused[0]["error"]["message"]
    assert stream(browser, message=7)[0] == 422
    assert stream(browser, key=7)[0] == 422


def streamer(store: LabelStore, url: str, person: str) -> Callable[[str, str], dict[str, Any]]:
    """How a page's script says something: the last part of the streamed answer is what `turn` gives."""
    secret = store.write(open_session, "p", person).secret
    cookie = {"Cookie": f"plaudit-{urlsplit(url).port}={secret}"}
    headers = {**cookie, "Origin": url, "X-Form-Token": form_token(secret, "p")}

    def say(assignment: str, message: str) -> dict[str, Any]:
        content = {"assignment": assignment, "key": f"{assignment}-turn", "message": message}
        answer = httpx2.post(f"{url}/label/stream", json=content, headers=headers, timeout=60)
        return json.loads(answer.text.splitlines()[-1])

    return say


@pytest.mark.slow
@pytest.mark.parametrize("by", ["turn", "stream"])
def test_a_slow_model_holds_up_nobody_else(make_desk: MakeDesk, by: str) -> None:
    """More people wait for the model than usual requests have threads, and a page comes at once."""
    answer = threading.Event()
    waiting = threading.Semaphore(0)

    def slow(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        waiting.release()
        answer.wait(60)
        return completion(f"draw {body['seed']}")

    with serving(slow) as model:
        address = f"{model.url.removesuffix('/score')}/v1#chatty"
        desk = desk_of(make_desk, "attack", 50, talks_to=address)
        with (
            serve_in_background(desk.store) as server,
            ThreadPoolExecutor(50) as people,
            ExitStack() as stack,
        ):
            clients = [stack.enter_context(closing(LabelClient(server.url, attempts=1))) for _ in range(45)]
            invite = desk.store.write(make_invite, "p", uses=45, actor="o1")
            sent = list[Future[Any]]()
            for number, client in enumerate(clients):
                person = client.join(invite, f"Person {number}")["pseudonym"]
                task = client.next()["task"]
                say = client.turn if by == "turn" else streamer(desk.store, server.url, person)
                sent.append(people.submit(say, task["assignment"], "Hello"))
            for _ in clients:
                assert waiting.acquire(timeout=60)
            with closing(LabelClient(server.url, clients[0].token, attempts=1)) as other:
                assert other.me()["answered"] == 0
            assert not any(turn.done() for turn in sent)
            answer.set()
            assert all(turn.result(60)["turn"] == 1 for turn in sent)
