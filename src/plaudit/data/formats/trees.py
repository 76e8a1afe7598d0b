"""OASST: trees of messages in which people ranked the replies (Köpf et al. 2023, https://arxiv.org/abs/2304.07327)."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.data.fields import BadRowError, LeftOutError, Node, Turns, describe_value, require_not_empty
from plaudit.data.formats.layout import OBJECT, TEXT, ReadOptions, RowFormat
from plaudit.data.records import Message, Ranking, Record

_ROLES = {"prompter": "user", "assistant": "assistant"}


def _oasst(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    rankings = tuple(_rankings(row.get("prompt"), origin))
    if not rankings:
        raise LeftOutError("trees in which no turn has two ranked answers")
    return rankings


def _rankings(root: Node, origin: str) -> Iterator[Ranking]:
    """One ranking for each user's turn with two ranked answers or more; deleted messages are passed over."""
    queue: list[tuple[Node, Turns]] = [(root, ())]
    while queue:
        node, context = queue.pop(0)
        turns = (*context, _turn(node))
        replies = [reply for reply in _replies(node) if not _is_deleted(reply)]
        ranked = [reply for reply in replies if reply.optional("rank") is not None]
        if turns[-1].role == "user" and len(ranked) > 1:
            yield Ranking(
                prompt=turns,
                completions=tuple(_reply_turn(reply) for reply in ranked),
                # OASST counts ranks from 0.
                ranks=tuple(reply.get("rank").number() + 1 for reply in ranked),
                origin=origin,
            )
        queue.extend((reply, turns) for reply in replies)


def _turn(node: Node) -> Message:
    role = node.get("role").text()
    if role not in _ROLES:
        raise BadRowError(
            "unknown role", f"{node.path}.role", expected="prompter or assistant", found=describe_value(role)
        )
    return Message(role=_ROLES[role], content=node.get("text").text())


def _reply_turn(reply: Node) -> Turns:
    turn = (_turn(reply),)
    require_not_empty(turn, f"{reply.path}.text")
    return turn


def _replies(node: Node) -> tuple[Node, ...]:
    replies = node.optional("replies")
    return () if replies is None else replies.items()


def _is_deleted(node: Node) -> bool:
    deleted = node.optional("deleted")
    return deleted is not None and deleted.boolean()


TREE_FORMATS = (
    RowFormat(
        name="oasst",
        title="OASST trees",
        schema={"message_tree_id": TEXT, "prompt": OBJECT},
        parse=_oasst,
        produces="one ranking for each turn with two ranked answers or more",
    ),
)
"""The format of OASST trees."""
