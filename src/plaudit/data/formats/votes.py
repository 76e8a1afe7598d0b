"""Layouts of votes on answers: Chatbot Arena's, as released and as logged, and answers with their ranks.

(Zheng et al. 2023, https://arxiv.org/abs/2306.05685.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from plaudit.data.fields import (
    BadRowError,
    LeftOutError,
    Node,
    Turns,
    optional_name,
    read_completion,
    read_messages,
    read_prompt,
    require_not_empty,
)
from plaudit.data.formats.layout import (
    BOOLEAN,
    MESSAGES,
    NUMBERS,
    OBJECTS,
    TEXT,
    TEXT_OR_MESSAGES,
    TEXTS_OR_CONVERSATIONS,
    AnnotationInfo,
    FieldType,
    ReadOptions,
    RowFormat,
    annotation_info,
    require_different,
    split_shared_turns,
)
from plaudit.data.records import (
    Comparison,
    Ranking,
    Record,
    assistant_turn,
    user_turn,
)

Winner = Literal["a", "b", "tie"]

_WINNERS: dict[str, Winner] = {
    "model_a": "a",
    "model_b": "b",
    "tie": "tie",
    "tie (bothbad)": "tie",
    "both_bad": "tie",
}
"""What a released vote says; two bad answers are equal ones, as in the arena's own ratings."""
_WINNER_COLUMNS: Mapping[Winner, str] = {
    "a": "winner_model_a",
    "b": "winner_model_b",
    "tie": "winner_tie",
}
_LOGGED: dict[str, Winner] = {
    "leftvote": "a",
    "rightvote": "b",
    "tievote": "tie",
    "bothbad_vote": "tie",
}
"""What a line of the arena's own log says, where it is a vote."""


def _arena(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    node = row.get("winner")
    if node.text() not in _WINNERS:
        raise node.error("wrong value", f"one of {', '.join(_WINNERS)}")
    winner = _WINNERS[node.text()]
    side_a, side_b = (read_messages(row.get(f"conversation_{side}")) for side in "ab")
    vote = _vote(side_a, side_b, winner, origin, options)
    who, language = optional_name(row, "judge"), optional_name(row, "language")
    return (replace(vote, annotator=who, category=language),)


def _arena_columns(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """Prompts and answers as lists of texts, a column for each verdict."""
    questions = [user_turn(node.text()) for node in _texts(row.get("prompt"))]
    sides: list[Turns] = []
    for name in ("response_a", "response_b"):
        answers = [assistant_turn(node.text()) for node in _texts(row.get(name))]
        if len(answers) != len(questions):
            expected = f"{len(questions)} answers, one a prompt"
            raise BadRowError("wrong value", name, expected=expected, found=str(len(answers)))
        pairs = zip(questions, answers, strict=True)
        sides.append(tuple(turn for question, answer in pairs for turn in (*question, *answer)))
    return (_vote(sides[0], sides[1], _column_winner(row), origin, options),)


def _column_winner(row: Node) -> Winner:
    """The one verdict whose column is true; without a column for ties, a tie is none."""
    nodes: Mapping[Winner, Node | None] = {
        winner: row.optional(name) for winner, name in _WINNER_COLUMNS.items()
    }
    chosen: list[Winner] = [winner for winner, node in nodes.items() if node is not None and node.boolean()]
    if len(chosen) > 1 or (not chosen and nodes["tie"] is not None):
        found = f"{len(chosen)} of them" if chosen else "none"
        expected = f"one of {', '.join(_WINNER_COLUMNS.values())} to be true"
        field = _WINNER_COLUMNS[chosen[-1] if chosen else "tie"]
        raise BadRowError("wrong value", field, expected=expected, found=found)
    return chosen[0] if chosen else "tie"


def _arena_log(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """A line of FastChat's server log. It knows people by their address only, which is not read."""
    kind = row.get("type").text()
    if kind not in _LOGGED:
        raise LeftOutError("lines of the log that are no vote on two answers")
    states = row.get("states").items()
    if len(states) != 2:
        raise BadRowError("wrong value", "states", expected="two conversations", found=str(len(states)))
    side_a, side_b = (_logged_turns(state) for state in states)
    return (_vote(side_a, side_b, _LOGGED[kind], origin, options),)


def _logged_turns(state: Node) -> Turns:
    """The turns behind the model's own examples, which ``offset`` counts."""
    offset = state.optional("offset")
    before = 0 if offset is None else int(offset.number())
    turns = [turn.items() for turn in state.get("messages").items()[before:]]
    for turn, path in ((turn, f"{state.path}.messages[{before + i}]") for i, turn in enumerate(turns)):
        if len(turn) != 2:
            raise BadRowError("wrong value", path, expected="[who, words]", found=f"a list of {len(turn)}")
    makers = (user_turn, assistant_turn)
    return tuple(part for i, (_, words) in enumerate(turns) for part in makers[i % 2](words.text()))


def _texts(node: Node) -> tuple[Node, ...]:
    """A list of texts, or the JSON of one, as the columns of a table hold it."""
    return Node(value=node.value, path=node.path, cells=True).items()


def _vote(side_a: Turns, side_b: Turns, winner: Winner, origin: str, options: ReadOptions) -> Comparison:
    if winner == "tie" and options.ties == "drop":
        raise LeftOutError("ties")
    require_different(side_a, side_b, "conversation_a, conversation_b")
    prompt, first, second = split_shared_turns(side_a, side_b)
    for answer, name in ((first, "conversation_a"), (second, "conversation_b")):
        require_not_empty(answer, name)
    chosen, rejected = (second, first) if winner == "b" else (first, second)
    return Comparison(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        probability=0.5 if winner == "tie" else None,
        origin=origin,
    )


def _ranked(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = read_prompt(row.get("prompt"))
    completions = tuple(read_completion(item, prompt) for item in row.get("completions").items())
    ranks = tuple(item.number() for item in row.get("ranks").items())
    if len(completions) < 2:
        raise BadRowError(
            "too few answers", "completions", expected="two answers or more", found=str(len(completions))
        )
    if len(ranks) != len(completions):
        expected = f"{len(completions)} ranks, one an answer"
        raise BadRowError("wrong value", "ranks", expected=expected, found=str(len(ranks)))
    return (
        Ranking(prompt=prompt, completions=completions, ranks=ranks, origin=origin, **annotation_info(row)),
    )


_MODELS = FieldType(name="two names", matches=lambda node: isinstance(node.value, list | tuple))

VOTE_FORMATS = (
    RowFormat(
        name="arena",
        title="Chatbot Arena votes",
        schema={"conversation_a": MESSAGES, "conversation_b": MESSAGES, "winner": TEXT},
        optional_fields=frozenset(["judge", "language"]),
        parse=_arena,
        produces="comparison of conversations; a tie is one (probability 0.5, or left out by `ties`)",
    ),
    RowFormat(
        name="arena-columns",
        title="Chatbot Arena votes, a column for each verdict",
        schema={
            "prompt": TEXT,
            "response_a": TEXT,
            "response_b": TEXT,
            "winner_model_a": BOOLEAN,
            "winner_model_b": BOOLEAN,
        },
        optional_fields=frozenset(["winner_tie"]),
        parse=_arena_columns,
        produces="comparison of conversations; a tie is one (probability 0.5, or left out by `ties`)",
    ),
    RowFormat(
        name="arena-log",
        title="the log of an arena's server",
        schema={"type": TEXT, "models": _MODELS, "states": OBJECTS},
        parse=_arena_log,
        produces="comparison of conversations; lines that are no vote are left out; addresses are not read",
    ),
    RowFormat(
        name="ranked",
        title="answers with their ranks",
        schema={"prompt": TEXT_OR_MESSAGES, "completions": TEXTS_OR_CONVERSATIONS, "ranks": NUMBERS},
        optional_fields=frozenset(AnnotationInfo.__annotations__),
        parse=_ranked,
        produces="ranking; 1 is best",
        is_generic=True,
    ),
)
