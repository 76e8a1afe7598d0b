"""What a row says: texts and conversations, checked while they are read.

A prompt and the answers to it are of one kind, all texts or all conversations. An answer is never empty;
as a conversation it begins and ends with the assistant's turn.
"""

from __future__ import annotations

from plaudit.records.messages import Message, Part, Text, words
from plaudit.sources.node import Node
from plaudit.sources.problems import BadRowError, shown

ROLES = ("system", "user", "assistant", "tool")
"""The roles that a chat template knows."""

Turns = tuple[Message, ...]
"""A conversation, or a part of one."""


def messages(node: Node) -> Turns:
    """A list of ``{"role": …, "content": …}`` as messages."""
    return tuple(_message(item) for item in node.items())


def said(node: Node) -> Text:
    """A text, or a conversation."""
    if isinstance(node.value, str) and not (node.cells and is_messages(node)):
        return node.text()
    if isinstance(node.value, str | list | tuple):
        return messages(node)
    raise node.wrong("a text or a list of messages")


def question(node: Node) -> Text:
    """A prompt: any text, the empty one too, or a conversation that says something."""
    prompt = said(node)
    if not isinstance(prompt, str) and not words(prompt).strip():
        raise BadRowError("empty side", node.path, expected="a prompt", found="a conversation without words")
    return prompt


def answer(node: Node, prompt: Text) -> Text:
    """An answer to a prompt, of the same kind as it and not empty."""
    reply = said(node)
    if isinstance(reply, str) != isinstance(prompt, str):
        expected = "a text, as the prompt is one" if isinstance(prompt, str) else "messages, as in the prompt"
        raise node.wrong(expected)
    return not_empty(reply, node.path)


def not_empty(reply: Text, path: str) -> Text:
    """The same answer, when it says something in every turn of the assistant."""
    if isinstance(reply, str):
        if not reply.strip():
            raise BadRowError("empty side", path, expected="an answer", found=shown(reply))
        return reply
    if not reply:
        raise BadRowError("empty side", path, expected="an answer", found="no message")
    for turn in (reply[0], reply[-1]):
        if turn.role != "assistant":
            raise BadRowError(
                "wrong value",
                path,
                expected="an answer that begins and ends with the assistant's turn",
                found=f"the role {turn.role}",
            )
    if any(turn.role == "assistant" and not words((turn,)).strip() for turn in reply):
        raise BadRowError("empty side", path, expected="an answer", found="an empty turn of the assistant")
    return reply


def differ(chosen: Text, rejected: Text, path: str) -> None:
    """Complain when both sides of a comparison are the same."""
    if chosen == rejected:
        raise BadRowError(
            "chosen = rejected", path, expected="two different answers", found="the same answer twice"
        )


def split_prompt(turns: Turns, path: str) -> tuple[Turns, Turns]:
    """A conversation as its prompt (before the first assistant turn) and its answer (to the last one).

    User and tool turns between two assistant turns belong to the answer; what follows the last assistant
    turn has no reply to learn from and is not part of either.
    """
    spoken = [i for i, turn in enumerate(turns) if turn.role == "assistant"]
    if not spoken:
        raise BadRowError("empty side", path, expected="a turn of the assistant", found="none")
    prompt, reply = turns[: spoken[0]], turns[spoken[0] : spoken[-1] + 1]
    if not words(prompt).strip():
        raise BadRowError("empty side", path, expected="a turn before the assistant's first", found="none")
    not_empty(reply, path)
    return prompt, reply


def shared_turns(chosen: Turns, rejected: Turns) -> tuple[Turns, Turns, Turns]:
    """Two whole conversations as their common prompt and two answers; no message is ever split."""
    n = 0
    while n < min(len(chosen), len(rejected)) and chosen[n] == rejected[n]:
        n += 1
    if n == 0 or not words(chosen[:n]).strip():
        raise BadRowError(
            "wrong value",
            "chosen, rejected",
            expected="two conversations that begin with the same prompt",
            found="different first turns" if n == 0 else "a prompt without words",
        )
    if n in (len(chosen), len(rejected)):
        raise BadRowError(
            "empty side",
            "chosen" if n == len(chosen) else "rejected",
            expected="an answer of its own",
            found="only the turns that the other side begins with",
        )
    return chosen[:n], chosen[n:], rejected[n:]


def shared_text(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Two whole texts as their common prompt and two answers; no word is ever split.

    A space before the answers goes with them, as tokenisers have it; a line break stays with the prompt.

    >>> shared_text("The sky is blue.", "The sky is black.")
    ('The sky is', ' blue.', ' black.')
    >>> shared_text("It rains", "It rains today")
    ('It', ' rains', ' rains today')
    """
    n = 0
    while n < min(len(chosen), len(rejected)) and chosen[n] == rejected[n]:
        n += 1
    while n > 0 and not chosen[n - 1].isspace():
        n -= 1
    if chosen[:n].endswith(" "):
        n -= 1
    return chosen[:n], chosen[n:], rejected[n:]


def is_messages(node: Node) -> bool:
    """Whether the value looks like a conversation: a list of objects with a role and a content."""
    try:
        items = node.items()
    except BadRowError:
        return False
    return bool(items) and all({"role", "content"} <= set(item.fields()) for item in items)


def _message(node: Node) -> Message:
    role = node.get("role").text()
    if role not in ROLES:
        raise BadRowError(
            "unknown role", f"{node.path}.role", expected=f"one of {', '.join(ROLES)}", found=shown(role)
        )
    if node.maybe("tool_calls") is not None and node.get("tool_calls").value != []:
        raise BadRowError(
            "unsupported",
            f"{node.path}.tool_calls",
            expected="tool calls written out in the content",
            found="a list of calls",
        )
    content = node.get("content")
    if isinstance(content.value, str):
        return Message(role=role, content=content.text())
    if isinstance(content.value, list | tuple):
        return Message(role=role, content=tuple(_part(item) for item in content.items()))
    raise content.wrong("a text or a list of parts")


def _part(node: Node) -> Part:
    kind = node.get("type").text()
    if kind == "text":
        return Part(kind="text", text=node.get("text").text())
    if kind == "image":
        source = node.maybe("image") or node.maybe("url") or node.get("path")
        return Part(kind="image", source=source.text())
    raise BadRowError("wrong value", f"{node.path}.type", expected="text or image", found=shown(kind))
