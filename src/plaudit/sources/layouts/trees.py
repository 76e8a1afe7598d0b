"""OASST: trees of messages in which people ranked the replies (Köpf et al. 2023, https://arxiv.org/abs/2304.07327)."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.records.feedback import Ranking, Record
from plaudit.records.messages import Message
from plaudit.sources.conversation import Turns, not_empty
from plaudit.sources.layouts.layout import OBJECT, TEXT, Layout, ReadOptions
from plaudit.sources.node import Node
from plaudit.sources.problems import BadRowError, LeftOutError, shown

_ROLES = {"prompter": "user", "assistant": "assistant"}


def _oasst(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    rankings = tuple(_rankings(row.get("prompt"), origin))
    if not rankings:
        raise LeftOutError("trees in which no turn has two ranked answers")
    return rankings


def _rankings(root: Node, origin: str) -> Iterator[Ranking]:
    """One ranking for each user's turn with two ranked answers or more; deleted messages are passed over."""
    waiting: list[tuple[Node, Turns]] = [(root, ())]
    while waiting:
        node, above = waiting.pop(0)
        turns = (*above, _turn(node))
        replies = [reply for reply in _replies(node) if not _deleted(reply)]
        ranked = [reply for reply in replies if reply.maybe("rank") is not None]
        if turns[-1].role == "user" and len(ranked) > 1:
            yield Ranking(
                prompt=turns,
                completions=tuple(_answer(reply) for reply in ranked),
                ranks=tuple(reply.get("rank").number() + 1 for reply in ranked),
                origin=origin,
            )
        waiting.extend((reply, turns) for reply in replies)


def _turn(node: Node) -> Message:
    role = node.get("role").text()
    if role not in _ROLES:
        raise BadRowError(
            "unknown role", f"{node.path}.role", expected="prompter or assistant", found=shown(role)
        )
    return Message(role=_ROLES[role], content=node.get("text").text())


def _answer(reply: Node) -> Turns:
    turn = (_turn(reply),)
    not_empty(turn, f"{reply.path}.text")
    return turn


def _replies(node: Node) -> tuple[Node, ...]:
    replies = node.maybe("replies")
    return () if replies is None else replies.items()


def _deleted(node: Node) -> bool:
    deleted = node.maybe("deleted")
    return deleted is not None and deleted.truth()


TREE_LAYOUTS = (
    Layout(
        name="oasst",
        title="OASST trees",
        schema={"message_tree_id": TEXT, "prompt": OBJECT},
        parse=_oasst,
        gives="one ranking for each turn with two ranked answers or more",
    ),
)
"""OASST."""
