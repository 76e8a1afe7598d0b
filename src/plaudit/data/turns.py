"""Conversations, read from a row's fields and checked on the way: roles, calls, tools, and what is trained.

A prompt and the answers to it are of one kind, all texts or all conversations. An answer is never empty; as a
conversation it begins and ends with the assistant's turn.
"""

import json
import re
from collections.abc import Mapping

from plaudit.data.fields import BadRowError, Node, describe_value, optional_name, read_json
from plaudit.data.records import TOOLS_ROLE, Message, Part, Text, ToolCall, pictures, plain_text, split_tools

ROLES = ("system", "user", "assistant", "tool")
_NAMES_OF_ROLES = {
    "system": ("developer",),
    "user": ("human", "prompter"),
    "assistant": ("gpt", "bot", "chatbot", "ai", "model", "chatgpt", "bing", "bard"),
    "tool": ("function", "observation", "function_response"),
}
_OTHER_ROLES = {name: role for role, names in _NAMES_OF_ROLES.items() for name in names}
_CALLING_ROLES = ("function_call", "tool_call")
"""Roles of turns that consist of a call, as ShareGPT has it."""
_CALL_FIELDS = ("tool_calls", "function_call")
_MOST_LEVELS = 64
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
ROLE_FIELDS, WORDS_FIELDS = ("role", "from", "speaker"), ("content", "value", "text")
_TRAINED_FIELDS = ("weight", "train", "training", "trained", "trainable", "loss")
"""What says whether a turn is learnt: 0 or false makes an answer context."""
ABOUT_TRAINING = re.compile(
    r"(?:^|_)(?:train|training|trained|trainable|loss|mask|masked|weight|learn)(?:_|$)"
)
"""Names that look as if they said what is learnt."""

Turns = tuple[Message, ...]


def read_messages(node: Node) -> Turns:
    """A list of ``{"role": …, "content": …}`` as messages; texts in a list are said in turn."""
    items = node.items()
    if items and all(isinstance(item.value, str) for item in items):
        speakers = ("user", "assistant")
        return tuple(Message(role=speakers[i % 2], content=item.text()) for i, item in enumerate(items))
    read = (_read_message(item) for item in items)
    turns = tuple(turn for turn in read if (turn.role, turn.content) != (TOOLS_ROLE, "[]"))
    for i, turn in enumerate(turns):
        if turn.role == "tool":
            _check_result(turn, turns[:i], f"{node.path}[{i}]")
        if turn.role == TOOLS_ROLE and i > 0:
            expected, place = "the schemas of the tools before all turns", f"{node.path}[{i}].role"
            raise BadRowError("wrong value", place, expected=expected, found="turns before")
    return turns


def _check_result(result: Message, before: Turns, path: str) -> None:
    """Complain of a tool's turn that no call stands before; calls may be written out in the words."""
    speakers = [turn for turn in before if turn.role == "assistant"]
    ids = {call.id for turn in speakers for call in turn.tool_calls}
    if not speakers or (ids and not speakers[-1].tool_calls):
        expected = "a result behind the assistant's turn that calls for it"
        raise BadRowError("wrong value", path, expected=expected, found="no call before it")
    if result.tool_call_id is not None and ids - {None} and result.tool_call_id not in ids:
        expected, named = "the id of a call before it", describe_value(result.tool_call_id)
        raise BadRowError("wrong value", f"{path}.tool_call_id", expected=expected, found=named)


def read_text_or_messages(node: Node) -> Text:
    if isinstance(node.value, str) and not (node.cells and is_messages(node)):
        return node.text()
    if isinstance(node.value, str | list | tuple):
        return read_messages(node)
    if {*node.fields()} & {*ROLE_FIELDS}:
        return (_read_message(node),)
    raise node.wrong_type_error("a text or a list of messages")


NO_EMPTY_PROMPT = "a prompt (of documents without one, give rows with the field text alone)"
"""What a row with an empty prompt should have."""


def read_prompt(node: Node) -> Text:
    """A prompt that says something: a text, or a conversation."""
    prompt = read_text_or_messages(node)
    turns = prompt if isinstance(prompt, str) else split_tools(prompt)[1]
    if not plain_text(turns).strip() and not pictures(prompt):
        found = describe_value(prompt) if isinstance(prompt, str) else "a conversation without words"
        raise BadRowError("empty side", node.path, expected=NO_EMPTY_PROMPT, found=found)
    return prompt


def read_completion(node: Node, prompt: Text) -> Text:
    completion = read_text_or_messages(node)
    if isinstance(completion, str) != isinstance(prompt, str):
        expected = "a text, as the prompt is one" if isinstance(prompt, str) else "messages, as in the prompt"
        raise node.wrong_type_error(expected)
    return require_not_empty(completion, node.path)


def require_not_empty(completion: Text, path: str) -> Text:
    """The same answer, when it says something in every turn of the assistant."""
    if isinstance(completion, str):
        if not completion.strip():
            raise BadRowError("empty side", path, expected="an answer", found=describe_value(completion))
        return completion
    if not completion:
        raise BadRowError("empty side", path, expected="an answer", found="no message")
    for turn in (completion[0], completion[-1]):
        if turn.role != "assistant":
            expected = "an answer that begins and ends with the assistant's turn"
            raise BadRowError("wrong value", path, expected=expected, found=f"the role {turn.role}")
    speaking = [turn for turn in completion if turn.role == "assistant"]
    if not all(plain_text((turn,)).strip() or pictures((turn,)) for turn in speaking):
        raise BadRowError("empty side", path, expected="an answer", found="an empty turn of the assistant")
    return completion


def is_messages(node: Node) -> bool:
    """Whether the value looks like a conversation: a list of objects with a role, and words or calls."""
    try:
        items = [{*item.fields()} for item in node.items()]
    except BadRowError:
        return False
    words = {*WORDS_FIELDS, *_CALL_FIELDS}
    return bool(items) and all(names & {*ROLE_FIELDS} and names & words for names in items)


def roles_of(node: Node) -> list[str]:
    """The role of each turn of a conversation, as this system calls it where it knows it."""
    named = [str(_either(turn, ROLE_FIELDS).value).lower() for turn in node.items()]
    roles = [_OTHER_ROLES.get(name, name) for name in named]
    return ["assistant" if role in _CALLING_ROLES else role for role in roles]


def unread_keys(turn: Node) -> set[str]:
    """The keys of a turn that hold something and are not read."""
    is_result = roles_of(Node(value=[turn.value])) == ["tool"]
    read = {*ROLE_FIELDS, *WORDS_FIELDS, *_CALL_FIELDS, *_REASONING_FIELDS, *_TRAINED_FIELDS}
    read |= {"tool_call_id", "name"} if is_result else set()
    filled = {name: node.value for name in turn.fields() if (node := turn.optional(name))}
    return {name for name, value in filled.items() if value not in ("", [], {})} - read


def _first(node: Node, names: tuple[str, ...]) -> Node | None:
    return next((value for name in names if (value := node.optional(name))), None)


def _either(node: Node, names: tuple[str, ...]) -> Node:
    return _first(node, names) or node.get(names[0])


def _read_message(node: Node) -> Message:
    name = _either(node, ROLE_FIELDS)
    role = name.text().lower()
    role = _OTHER_ROLES.get(role, role)
    if role == TOOLS_ROLE:
        return next(iter(read_tools(node.get("content"))), Message(role=role, content="[]"))
    if role in _CALLING_ROLES:
        return _calling_turn(node)
    if role not in ROLES:
        roles = ", ".join((*ROLES, *_OTHER_ROLES, *_CALLING_ROLES))
        raise name.error("unknown role", f"one of {roles} (or say which it is: --roles {name.text()}=user)")
    several, single = (node.optional(name) for name in _CALL_FIELDS)
    calls = () if several is None else read_tool_calls(several)
    calls += () if single is None else (_read_call(single),)
    if calls and role != "assistant":
        field = _CALL_FIELDS[several is None]
        expected = f"no call: a turn of the {role} calls nothing"
        raise BadRowError("wrong value", f"{node.path}.{field}", expected=expected, found="a call")
    content = _first(node, WORDS_FIELDS) if calls else _either(node, WORDS_FIELDS)
    reasoning = _first(node, _REASONING_FIELDS)
    return Message(
        role=role,
        content="" if content is None else _read_content(content),
        reasoning=None if reasoning is None else reasoning.text().strip() or None,
        trained=_is_trained(node, role),
        tool_calls=calls,
        tool_call_id=optional_name(node, "tool_call_id") if role == "tool" else None,
        name=optional_name(node, "name") if role == "tool" else None,
    )


def _calling_turn(node: Node) -> Message:
    words = _either(node, WORDS_FIELDS)
    calls = read_json(words, 'a call as JSON: {"name": "weather", "arguments": {"city": "Oslo"}}')
    listed = calls if isinstance(calls.value, list) else Node(value=[calls.value], path=calls.path)
    trained = _is_trained(node, "assistant")
    return Message(role="assistant", content="", tool_calls=read_tool_calls(listed), trained=trained)


def read_tool_calls(node: Node) -> tuple[ToolCall, ...]:
    listed = read_json(node, "a list of calls")
    return tuple(_read_call(read_json(item, "a call")) for item in listed.items())


def _read_call(node: Node) -> ToolCall:
    function = _function_of(node)
    given = function.optional("arguments")
    # A null stands for no arguments; what has none at all may call them by another name.
    if given is None and "arguments" not in function.fields():
        function.get("arguments")
    arguments = read_json(given or Node(value={}), 'an object, or its JSON: {"city": "Oslo"}')
    name, content = _function_name(function), _json_of_object(arguments)
    return ToolCall(name=name, arguments=content, id=optional_name(node, "id"))


def read_tools(node: Node) -> Turns:
    """The schemas that a prompt's tools have, as the turn that it begins with; nothing where there are none.

    >>> read_tools(Node(value=[{"name": "now", "parameters": {}}]))[0].content
    '[{"type": "function", "function": {"name": "now", "parameters": {}}}]'
    """
    if isinstance(node.value, str) and not node.value.strip():
        return ()
    listed = read_json(node, "a list of the schemas of tools")
    schemas = [_read_schema(item, is_padded=not isinstance(node.value, str)) for item in listed.items()]
    content = f"[{', '.join(schemas)}]"
    return (Message(role=TOOLS_ROLE, content=content),) if schemas else ()


def _read_schema(item: Node, *, is_padded: bool) -> str:
    node = read_json(item, "the schema of a tool")
    function = _function_of(node)
    _function_name(function)
    fields = node.value if isinstance(node.value, dict) else {}
    if function is node:
        rest = {name: value for name, value in fields.items() if name != "type"}
        fields = {"type": "function", "function": rest}
    schema: object = {"type": "function", **fields}
    schema = without_nulls(schema) if is_padded and node is item else schema
    return _json_of_object(Node(value=schema, path=node.path))


def without_nulls(value: object) -> object:
    """The value without an object's fields that are null, but for a default or constant that may be one.

    >>> without_nulls({"a": None, "b": [{"default": None, "c": None}]})
    {'b': [{'default': None}]}
    """
    if isinstance(value, Mapping):
        nullable = ("default", "const")
        items = ((name, item) for name, item in value.items() if item is not None or name in nullable)
        return {name: without_nulls(item) for name, item in items}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _function_of(node: Node) -> Node:
    """The part that names the function: of OpenAI's objects an object within, of others the whole."""
    kind = node.optional("type")
    if kind is not None and kind.value != "function":
        raise kind.error("wrong value", "function")
    return node.optional("function") or node


def _function_name(function: Node) -> str:
    name = function.get("name")
    if not name.text().strip():
        raise BadRowError("empty side", name.path, expected="the name of a function", found="no word")
    return name.text()


def _json_of_object(node: Node) -> str:
    if not isinstance(node.value, Mapping):
        raise node.wrong_type_error("an object")
    _check_json(node, 0)
    return json.dumps(node.value, ensure_ascii=False)


def _check_json(node: Node, depth: int) -> None:
    value = node.value
    if depth > _MOST_LEVELS:
        found = "more"
        raise BadRowError("wrong value", node.path, expected=f"at most {_MOST_LEVELS} levels", found=found)
    if isinstance(value, Mapping):
        for name, item in value.items():
            Node(value=name, path=node.path).text()
            _check_json(Node(value=item, path=f"{node.path}.{name}"), depth + 1)
    elif isinstance(value, list | tuple):
        for item in node.items():
            _check_json(item, depth + 1)
    elif isinstance(value, str):
        node.text()
    elif value is not None and not isinstance(value, bool):
        node.number()


def _read_content(content: Node) -> str | tuple[Part, ...]:
    if isinstance(content.value, str):
        return content.text()
    if isinstance(content.value, list | tuple):
        return tuple(_read_part(item) for item in content.items())
    raise content.wrong_type_error("a text or a list of parts")


def _is_trained(node: Node, role: str) -> bool:
    """Whether a turn is learnt: 0 or false makes an answer context; of other turns nothing makes one."""
    flags = [_says_trained(value, role) for name in _TRAINED_FIELDS if (value := node.optional(name))]
    _refuse_about_training(node, _TRAINED_FIELDS)
    return all(flags)


def _says_trained(value: Node, role: str) -> bool:
    number = value.value
    if not isinstance(number, int | float):
        raise value.wrong_type_error("true or false, or 0 or 1")
    if role != "assistant" and number != 0:
        name = value.path.rpartition(".")[2]
        raise value.error("wrong value", f"no {name}: a turn of the {role} is never trained")
    if number not in (0, 1):
        raise value.error("wrong value", "0 or 1 (false or true)")
    return role != "assistant" or number == 1


def _refuse_about_training(node: Node, read: tuple[str, ...] = ()) -> None:
    """Complain of a key that says, in a way that nothing reads, what of a turn is to be learnt."""
    for name in node.fields():
        value = node.optional(name)
        if value is not None and name not in read and ABOUT_TRAINING.search(name):
            field = re.sub(r"\[\d+\]", "", value.path)
            raise value.error(
                "wrong value",
                f"nothing about training that is not read: weight 0 (or train false) makes a whole answer "
                f"context (or leave it out by name: --leave-out {field})",
            )


def _read_part(node: Node) -> Part:
    _refuse_about_training(node)
    kind = node.get("type").text()
    if kind == "text":
        return Part(kind="text", text=node.get("text").text())
    if kind == "image":
        source = node.optional("image") or node.optional("url") or node.optional("path")
        # Without one it is the next of the row's field for pictures.
        named = None if source is None else source.text()
        return Part(kind="image", source=named, alt=optional_name(node, "alt"))
    if kind == "image_url":
        return Part(kind="image", source=node.get("image_url").get("url").text())
    raise node.get("type").error("wrong value", "text or image")
