"""Live conversations: a person's message goes to the project's server, once for a key.

The answers are kept by the store as they come, and a label is made of what the store has kept: nobody can
send a conversation that was never held.
"""

import http.client
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaudit.collect.answering import save_conversation
from plaudit.collect.assigning import uniform
from plaudit.collect.desk import own_assignment
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import Conversation, check_strength, text_of
from plaudit.collect.project import Project
from plaudit.collect.refusals import (
    FieldError,
    KeyConflictError,
    ModelUnavailableError,
    NotYoursError,
    checked_text,
)
from plaudit.collect.store import LabelStore, Transaction, parsed
from plaudit.collect.views import body_of
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.files import exact_json, posting
from plaudit.files.chat import parse_server, read_completion

MOST_TURNS = 50
MOST_OF_A_MESSAGE = 20_000
"""The longest message of a person, in characters."""
MOST_TOKENS = 512
"""The longest answer of the server, in tokens."""
_TRIES = 3
_RETRIES = posting.RetryPolicy(seconds=60, attempts=2)
_MOST_SECONDS = 120
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    rules: Conversation
    opening: Text
    """What the task begins with; empty where the person opens."""
    turns: list[dict[str, Any]]
    settings: Project


def say(
    store: LabelStore, project: str, person: str, assignment: str, *, key: str, message: object
) -> dict[str, Any]:
    """Send a message and keep the answers; the same key gives the same answers again."""
    whose = (project, person, assignment)
    place, words, known = _before_send(store, whose, key, message)
    if known is not None:
        return _shown(place.turns, known)
    # Outside of any transaction: a slow server holds up nobody's work.
    turn = {"key": key, "message": words, "answers": _ask(place, assignment, words), "strength": None}
    return _save(store, whose, place, turn)


def say_in_parts(
    store: LabelStore, project: str, person: str, assignment: str, *, key: str, message: object
) -> Iterator[dict[str, Any]]:
    """Send a message as `say` does, and give the answers as they are written: parts ``{"place", "words"}``.

    The last part is what `say` returns. What is refused is refused at once, before the first part.
    """
    whose = (project, person, assignment)
    place, words, known = _before_send(store, whose, key, message)
    if known is not None:
        return iter([_shown(place.turns, known)])
    return _parts(store, whose, place, {"key": key, "message": words, "strength": None})


def _before_send(
    store: LabelStore, whose: tuple[str, str, str], key: str, message: object
) -> tuple[_Place, str, int | None]:
    # The conversation, the message's words, and the turn that it was already; refused where none may follow.
    words = checked_text("message", message, most=MOST_OF_A_MESSAGE, empty=False)
    with store.looking() as moment:
        place = _place(moment, *whose)
    known = _earlier(place.turns, key, words)
    # A repeated send is answered also where nothing more may be said.
    if known is None and len(place.turns) >= MOST_TURNS:
        raise NotYoursError(f"a conversation has {MOST_TURNS} turns at most; send what you say of it")
    if known is None and place.rules.answers > 1 and place.turns and place.turns[-1]["strength"] is None:
        raise NotYoursError("say first which of the last two answers is better; the talk goes on with it")
    return place, words, known


def _parts(
    store: LabelStore, whose: tuple[str, str, str], place: _Place, turn: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    message, assignment = turn["message"], whose[2]
    conversation, answers = _messages(place, message), [""] * place.rules.answers
    try:
        streams = [
            _stream(place.settings, conversation, seed=_seed(place, assignment, draw))
            for draw in range(len(answers))
        ]
        for at, words in in_step(streams):
            answers[at] += words
            yield {"place": at, "words": words}
    except (UserError, posting.TransientError, OSError, http.client.HTTPException):
        # Whole answers are asked for instead, as often as it takes; they come with the last part.
        answers = []
    if not answers or len({answer.strip() for answer in answers}) < len(answers):
        answers = _ask(place, assignment, message)
    answers = [_with_words(answer) for answer in answers]
    yield _save(store, whose, place, {**turn, "answers": answers})


def _save(
    store: LabelStore, whose: tuple[str, str, str], place: _Place, turn: dict[str, Any]
) -> dict[str, Any]:
    # Keep a turn, unless the conversation went on while the model wrote.
    with store.changing() as change:
        turns = _place(change, *whose).turns
        # The same send may have come twice at once; the first that was kept is the conversation.
        known = _earlier(turns, turn["key"], turn["message"])
        if known is None:
            if len(turns) != len(place.turns):
                raise NotYoursError("this conversation went on meanwhile; read it again before you write")
            turns.append(turn)
            known = len(turns) - 1
            save_conversation(change, *whose, {"turns": turns})
        return _shown(turns, known)


def choose(
    store: LabelStore, project: str, person: str, assignment: str, *, turn: object, strength: object
) -> dict[str, Any]:
    """Say which answer of the newest turn is better; the conversation goes on with it."""
    with store.changing() as change:
        place = _place(change, project, person, assignment)
        if place.rules.answers == 1:
            raise FieldError(field="turn", found="a turn with one answer", expected="a turn with two answers")
        # True equals 1, and would pass for the first turn.
        if isinstance(turn, bool) or turn != len(place.turns) or not place.turns:
            raise FieldError(
                field="turn", found=repr(turn), expected=f"the number of the newest turn, {len(place.turns)}"
            )
        place.turns[-1]["strength"] = check_strength("strength", strength, place.settings)
        save_conversation(change, project, person, assignment, {"turns": place.turns})
        return {"turn": turn, "strength": place.turns[-1]["strength"]}


def shown_conversation(store: LabelStore, project: str, person: str, assignment: str) -> list[dict[str, Any]]:
    with store.looking() as moment:
        turns = _place(moment, project, person, assignment).turns
    return [_shown(turns, number) | {"strength": turn["strength"]} for number, turn in enumerate(turns)]


def _place(change: Transaction, project: str, person: str, assignment: str) -> _Place:
    settings = change.settings(project)
    row = own_assignment(change, project, person, assignment)
    rules = KINDS[settings.ask].conversation
    if rules is None:
        raise NotYoursError(f"project {project} asks for {settings.ask}: there is nobody to talk to")
    body, saved = body_of(row), parsed(row.conversation)
    opening = "" if body["prompt"] == "" else text_of(body["prompt"])
    return _Place(rules=rules, opening=opening, turns=(saved or {}).get("turns", []), settings=settings)


def _earlier(turns: Sequence[Mapping[str, Any]], key: str, message: str) -> int | None:
    # The turn that was sent with this key; a key of other words is refused.
    for number, turn in enumerate(turns):
        if turn["key"] == key:
            if turn["message"] != message:
                raise KeyConflictError("this key was used before for another message; use a fresh one")
            return number
    return None


def _shown(turns: Sequence[Mapping[str, Any]], number: int) -> dict[str, Any]:
    return {"turn": number + 1, "message": turns[number]["message"], "answers": turns[number]["answers"]}


def _ask(place: _Place, assignment: str, message: str) -> list[str]:
    # The server's answers; two that read the same are asked for again, a few times.
    conversation, answers = _messages(place, message), list[str]()
    until = time.monotonic() + _MOST_SECONDS
    for draw in range(place.rules.answers - 1 + _TRIES):
        if time.monotonic() > until:
            raise _unavailable(place.settings, f"{len(answers)} answers after {_MOST_SECONDS} seconds")
        answer = _answer(place.settings, conversation, seed=_seed(place, assignment, draw))
        # The last draw is taken as it is: a model that always says the same must not end the talk.
        is_last = draw == place.rules.answers - 2 + _TRIES
        if is_last or answer.strip() not in {other.strip() for other in answers}:
            answers.append(answer)
        if len(answers) == place.rules.answers:
            break
    return answers


def _seed(place: _Place, assignment: str, draw: int) -> int:
    # A seed of place and draw: what failed half-way asks for the same answers again.
    return int(uniform(place.settings.seed, assignment, len(place.turns), draw) * 2**31)


def _messages(place: _Place, message: str) -> list[dict[str, str]]:
    whole = place.rules.messages(place.opening, place.turns, message)
    return [{"role": turn.role, "content": plain_text((turn,))} for turn in whole]


def _request(settings: Project, messages: Sequence[Mapping[str, str]], **more: Any) -> tuple[str, bytes]:
    address, model = parse_server(settings.talks_to or "")
    url = f"{address.rstrip('/')}/chat/completions"
    body = {"model": model, "messages": [*messages], "max_tokens": MOST_TOKENS, **more}
    return url, json.dumps(body).encode()


def _stream(settings: Project, messages: Sequence[Mapping[str, str]], *, seed: int) -> Iterator[str]:
    url, body = _request(settings, messages, seed=seed, stream=True)
    return words_of_stream(url, posting.post_in_pieces(url, _RETRIES, body))


def _answer(settings: Project, messages: Sequence[Mapping[str, str]], *, seed: int) -> str:
    url, body = _request(settings, messages, seed=seed)
    try:
        reply = posting.with_retries(
            "it", _RETRIES, lambda: read_completion(url, posting.post(url, _RETRIES, body))
        )
    except (UserError, posting.UnreachableError) as error:
        raise _unavailable(settings, str(error)) from error
    return _with_words(reply.text)


def _unavailable(settings: Project, why: str) -> ModelUnavailableError:
    # What whoever labels reads: neither where the model is nor what it is called; that is the owner's.
    _LOG.warning("project %s: %s", settings.name, why)
    return ModelUnavailableError(
        "the model that this project talks to does not answer; send the message again, and tell the owner "
        "where it stays so"
    )


def _with_words(text: str) -> str:
    # JSON may name half a letter, which no page and no log can hold; two halves in a row are one letter.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # An empty answer is one that a person may judge; a label must hold words.
    return whole if whole.strip() else "(no words)"


Piece = tuple[int, str]
"""Which of the answers goes on, and with which words."""


def in_step(answers: Sequence[Iterator[str]]) -> Iterator[Piece]:
    """The pieces of several answers in rounds: one of each that has not ended, and none before all are there.

    >>> [*in_step([iter(["a", "b"]), iter(["x"])])]
    [(0, 'a'), (1, 'x'), (0, 'b')]
    """
    going = dict(enumerate(answers))
    while going:
        pieces = {place: next(answer, None) for place, answer in going.items()}
        for place, words in pieces.items():
            if words is None:
                del going[place]
            else:
                yield place, words


def words_of_stream(url: str, pieces: Iterator[bytes]) -> Iterator[str]:
    """The words of a streamed chat completion; of a server that does not stream, all of them at once."""
    rest, has_ended = b"", False
    for piece in pieces:
        rest += piece
        # One object and no events: it is whole when the last piece is there.
        if rest.lstrip().startswith(b"{"):
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            words, is_end = _event(url, line)
            has_ended = has_ended or is_end
            if words:
                yield words
    if rest.lstrip().startswith(b"{"):
        yield read_completion(url, rest).text
    elif not has_ended:
        raise posting.TransientError("the answer was cut off")


def _event(url: str, line: bytes) -> tuple[str, bool]:
    # The words of a line of events, and whether it ends the answer.
    content = line.strip().removeprefix(b"data:").strip()
    # Comments that keep the connection open, names of events, and the empty lines between them.
    if not line.startswith(b"data:") or not content:
        return "", False
    if content == b"[DONE]":
        return "", True
    try:
        choices: Any = exact_json.loads_foreign(content)["choices"]
        # A last event may hold nothing but the usage.
        choice = choices[0] if choices else {"delta": {}}
        words = choice["delta"].get("content") or ""
        if not isinstance(words, str):
            raise ValueError(f"its content is {words!r:.40}, not text")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{url} streams {posting.excerpt_of(content)}; expected events of a chat completion"
        ) from error
    return words, choice.get("finish_reason") is not None
