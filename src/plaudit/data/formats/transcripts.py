"""Layouts of whole conversations: one long string (HH-RLHF, Nectar), turns (ShareGPT), or a tree (OASST).

HH-RLHF (Bai et al. 2022, https://arxiv.org/abs/2204.05862) and Nectar (Zhu et al. 2023) are transcripts,
``Human: … Assistant: …``, which become messages: Human is the user, Assistant the assistant. In OASST's trees
people ranked the replies (Köpf et al. 2023, https://arxiv.org/abs/2304.07327).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from plaudit.data.fields import BadRowError, Node, RawRow, describe_value, is_true, optional_items
from plaudit.data.formats import layout
from plaudit.data.records import Comparison, Message, Ranking, Rating, Record
from plaudit.data.turns import Turns, require_not_empty

# Only behind an empty line: a text may well have "Human:" in the middle of a sentence.
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def parse_transcript(node: Node) -> Turns:
    """A transcript as messages.

    >>> parse_transcript(Node(value="\\n\\nHuman: Hi\\n\\nAssistant: Hello"))[1].content
    'Hello'
    """
    before, *rest = _TURN.split(node.text().lstrip())
    if before.strip() or not rest:
        raise node.error("wrong value", 'a transcript that begins "Human:"')
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return tuple(Message(role=_ROLES[speaker], content=content.strip()) for speaker, content in pairs)


def is_transcript_prompt(text: str) -> bool:
    """Whether a text is a conversation written out, up to the turn that is asked for.

    >>> is_transcript_prompt("\\n\\nHuman: Hi\\n\\nAssistant:"), is_transcript_prompt("Human: rights")
    (True, False)
    """
    return text.lstrip().startswith("Human:") and "\n\nAssistant:" in text


def transcript_prompt(node: Node) -> Turns:
    """The turns of such a text; the last one is the user's."""
    turns = parse_transcript(node)
    turns = turns[:-1] if turns[-1] == Message(role="assistant", content="") else turns
    if not turns or turns[-1].role != "user":
        raise node.error("wrong value", 'a transcript that ends with the turn of Human, or with "Assistant:"')
    return turns


def _hh(row: Node, options: layout.ReadOptions) -> Iterable[Record]:
    chosen, rejected = parse_transcript(row.get("chosen")), parse_transcript(row.get("rejected"))
    layout.require_different(chosen, rejected, "chosen, rejected")
    prompt, better, worse = layout.split_shared_turns(chosen, rejected)
    require_not_empty(better, "chosen")
    require_not_empty(worse, "rejected")
    return (Comparison(prompt=prompt, chosen=better, rejected=worse),)


def _nectar(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    prompt = transcript_prompt(row.get("prompt"))
    answers = row.get("answers").items()
    if len(answers) < 2:
        raise BadRowError(
            "too few answers", "answers", expected="two answers or more", found=str(len(answers))
        )
    yield Ranking(
        prompt=prompt,
        completions=tuple(_assistant_turn(item.get("answer")) for item in answers),
        ranks=tuple(item.get("rank").number() for item in answers),
        category=layout.optional_category(row, "source"),
    )


def _assistant_turn(node: Node) -> Turns:
    turn = (Message(role="assistant", content=node.text().strip()),)
    require_not_empty(turn, node.path)
    return turn


def _red_team(row: Node, options: layout.ReadOptions) -> Iterator[Record]:
    """The attacker's rating is how well the attack went, from 0 to 4: harmlessness is what is left of it."""
    prompt, completion = layout.split_prompt(parse_transcript(row.get("transcript")), "transcript")
    score = _MOST_HARM - row.get("rating").number_between(0, _MOST_HARM)
    category = layout.optional_category(row, "task_description_harm_type")
    yield Rating(prompt=prompt, completion=completion, score=score, aspect="harmlessness", category=category)


_MOST_HARM = 4

TRANSCRIPT_FORMATS = (
    layout.RowFormat(
        name="hh-red-team",
        title="HH-RLHF red-team transcripts",
        schema={"transcript": layout.TRANSCRIPT, "rating": layout.NUMBER},
        optional_fields=frozenset(["task_description_harm_type"]),
        parse=_red_team,
        produces="rating of harmlessness: 4 less the attacker's rating of success",
    ),
    layout.RowFormat(
        name="hh-rlhf",
        title="HH-RLHF transcripts",
        schema={"chosen": layout.TRANSCRIPT, "rejected": layout.TRANSCRIPT},
        excluded_fields=frozenset(["prompt"]),
        parse=_hh,
        produces="comparison of conversations; the prompt is the turns that both share",
        aliases=("hh",),
    ),
    layout.RowFormat(
        name="nectar",
        title="Nectar",
        schema={"prompt": layout.TRANSCRIPT, "answers": layout.OBJECTS},
        optional_fields=frozenset(["source"]),
        parse=_nectar,
        produces="ranking, usually of seven; `category` is the source",
    ),
)


_TREE_ROLES = {"prompter": "user", "assistant": "assistant"}


def _oasst(row: Node, options: layout.ReadOptions) -> Iterator[Ranking]:
    """One ranking for each user's turn with two ranked answers or more; deleted messages are passed over."""
    queue: list[tuple[Node, Turns]] = [(row.get("prompt"), ())]
    while queue:
        node, context = queue.pop(0)
        turns = (*context, _turn(node))
        replies = [reply for reply in optional_items(node, "replies") if not is_true(reply, "deleted")]
        ranked = [reply for reply in replies if reply.optional("rank") is not None]
        if turns[-1].role == "user" and len(ranked) > 1:
            yield Ranking(
                prompt=turns,
                completions=tuple(_reply_turn(reply) for reply in ranked),
                # OASST counts ranks from 0.
                ranks=tuple(reply.get("rank").number() + 1 for reply in ranked),
            )
        queue.extend((reply, turns) for reply in replies)


def _turn(node: Node) -> Message:
    role = node.get("role").text()
    if role not in _TREE_ROLES:
        expected = "prompter or assistant"
        raise BadRowError("unknown role", f"{node.path}.role", expected=expected, found=describe_value(role))
    return Message(role=_TREE_ROLES[role], content=node.get("text").text())


def _reply_turn(reply: Node) -> Turns:
    turn = (_turn(reply),)
    require_not_empty(turn, f"{reply.path}.text")
    return turn


def _trees(rows: Iterable[RawRow]) -> Iterator[RawRow]:
    """Messages that name their parents as a row for each tree; in any order, so all are held until then."""
    trees: dict[str, dict[str, tuple[RawRow, dict[str, Any]]]] = {}
    for row in rows:
        try:
            node = Node(value=row.value, cells=row.cells)
            tree, name = node.get("message_tree_id").name(), node.get("message_id").name()
            message = {key: value.value for key in node.fields() if (value := node.optional(key))}
            trees.setdefault(tree, {})[name] = (row, {**message, "replies": []})
        except BadRowError as error:
            yield row if row.problem else replace(row, problem=error.problem_at(row.origin))
    for tree, messages in trees.items():
        roots: list[RawRow] = []
        for row, message in messages.values():
            parent = message.get("parent_id")
            if parent in messages:
                messages[parent][1]["replies"].append(message)
            elif parent is None:
                roots.append(replace(row, value={"message_tree_id": tree, "prompt": message}))
            else:
                expected = "a message of its tree"
                error = BadRowError("wrong value", "parent_id", expected=expected, found=parent)
                yield replace(row, problem=error.problem_at(row.origin))
        yield from roots


TREE_FORMATS = (
    layout.RowFormat(
        name="oasst",
        title="OASST trees",
        schema={"message_tree_id": layout.TEXT, "prompt": layout.OBJECT},
        parse=_oasst,
        without_records="trees in which no turn has two ranked answers",
        produces="one ranking for each turn with two ranked answers or more",
    ),
    layout.RowFormat(
        name="oasst-flat",
        title="OASST messages, a row each",
        schema={
            "message_id": layout.TEXT,
            "message_tree_id": layout.TEXT,
            "role": layout.TEXT,
            "text": layout.TEXT,
        },
        optional_fields=frozenset(["parent_id", "rank", "deleted"]),
        parse=_oasst,
        without_records="trees in which no turn has two ranked answers",
        produces="the same, of each tree that the rows are joined to",
        join=_trees,
    ),
)
