"""Layouts of votes on answers: Chatbot Arena's, Argilla's records, and a list of answers with its ranks.

(Zheng et al. 2023, https://arxiv.org/abs/2306.05685.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from plaudit.data.fields import (
    BadRowError,
    LeftOutError,
    Node,
    Turns,
    describe_value,
    join_names,
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
    OBJECT,
    TEXT,
    TEXT_OR_MESSAGES,
    TEXTS_OR_CONVERSATIONS,
    AnnotationInfo,
    ReadOptions,
    RowFormat,
    annotation_info,
    require_different,
    split_shared_turns,
)
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Ranking,
    Rating,
    Record,
    Text,
    assistant_turn,
    user_turn,
)

Winner = Literal["a", "b", "tie"]
"""The side that a vote prefers."""


def _arena(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    node = row.get("winner")
    verdicts: dict[str, Winner] = {"model_a": "a", "model_b": "b"}
    winner = verdicts.get(node.text(), "tie")
    if winner == "tie" and not node.text().startswith(("tie", "both")):
        raise BadRowError(
            "wrong value", "winner", expected="model_a, model_b or tie", found=describe_value(node.value)
        )
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
    won = {side: row.get(f"winner_model_{side}").boolean() for side in "ab"}
    winner: Winner = "tie" if won["a"] == won["b"] else "a" if won["a"] else "b"
    return (_vote(sides[0], sides[1], winner, origin, options),)


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


_PROMPT_FIELDS = ("prompt", "instruction", "question", "input", "query")


def _argilla(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """What each annotator answered to each question about the fields of a record."""
    fields = row.get("fields")
    prompt_field = next((name for name in _PROMPT_FIELDS if fields.optional(name) is not None), None)
    if prompt_field is None:
        expected = f"one of the fields {', '.join(_PROMPT_FIELDS)}"
        raise BadRowError("missing field", "fields", expected=expected, found=join_names(fields.fields()))
    prompt = read_prompt(fields.get(prompt_field))
    answers = {
        name: read_completion(fields.get(name), prompt)
        for name in fields.fields()
        if name != prompt_field and isinstance(fields.get(name).value, str)
    }
    responses = row.get("responses")
    records = [
        record
        for question in responses.fields()
        for vote in responses.get(question).items()
        for record in _argilla_vote(question, vote, prompt, answers, origin)
    ]
    if not records:
        raise LeftOutError("records that nobody has answered, or none of whose questions is about an answer")
    return tuple(records)


def _argilla_vote(
    question: str, vote: Node, prompt: Text, answers: dict[str, Text], origin: str
) -> Iterator[Record]:
    """A text is a demonstration, a number a rating, a field's name or ranks of several a comparison."""
    value = vote.get("value")
    who = AnnotationInfo(annotator=optional_name(vote, "user_id"), group=None, category=None)
    if isinstance(value.value, list | tuple):
        ranks = {item.get("value").text(): item.get("rank").number() for item in value.items()}
        if len(ranks) > 1 and ranks.keys() <= answers.keys():
            completions = tuple(answers[name] for name in ranks)
            yield Ranking(
                prompt=prompt, completions=completions, ranks=tuple(ranks.values()), origin=origin, **who
            )
    elif isinstance(value.value, str) and value.text() in answers:
        best = answers[value.text()]
        others = [answer for name, answer in answers.items() if name != value.text() and answer != best]
        for other in others:
            yield Comparison(prompt=prompt, chosen=best, rejected=other, origin=origin, **who)
    elif isinstance(value.value, str) and not answers:
        yield Demonstration(prompt=prompt, completion=read_completion(value, prompt), origin=origin, **who)
    elif isinstance(value.value, int | float) and len(answers) == 1:
        [answer] = answers.values()
        yield Rating(
            prompt=prompt, completion=answer, score=value.number(), aspect=question, origin=origin, **who
        )


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
        parse=_arena_columns,
        produces="comparison of conversations; a tie is one (probability 0.5, or left out by `ties`)",
    ),
    RowFormat(
        name="argilla",
        title="Argilla records",
        schema={"fields": OBJECT, "responses": OBJECT},
        parse=_argilla,
        produces="a comparison, ranking, rating or demonstration for each annotator's answer to a question",
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
"""The formats of votes and ranks."""
