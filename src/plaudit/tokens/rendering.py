"""Chat templates as programs of strangers: sandboxed as transformers does it, and bounded in time and size.

The sandbox keeps a template from the system, not from looping: each loop and each macro is made to count, and
what multiplies text or numbers is asked how large the result will be. What a template does with conversations
is found out with marks in place of all words: each turn, each call and each tool has to be in the text.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence, Sized
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, wraps
from itertools import count
from traceback import extract_tb
from typing import Any, Literal, NoReturn

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import MAX_RANGE, ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from plaudit.bounds import extent, size_of_result
from plaudit.data.records import PICTURE, TOOLS_ROLE, Message, split_tools, tool_fields, tool_schemas
from plaudit.errors import UserError
from plaudit.tokens.tokenizer import CUT

MAX_STEPS = 1_000_000
"""The most turns of all loops in one rendering."""
MAX_SECONDS = 3.0
"""The most seconds that one rendering may compute."""
MAX_SIZE = 20_000_000
"""The most characters, items or digits of any value that a template makes."""

_BEGIN, _END = "\ufdd0", "\ufdd1"


class EndlessTemplateError(UserError):
    """A template that comes to no end: no row can be read with it, so the first one ends the reading."""


RENDERING_FAULTS = (
    *(TemplateError, TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError, AssertionError),
)
"""What a template may raise, by its own mistake or on purpose."""


def render_template(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    *,
    add_generation_prompt: bool,
    marked: bool = False,
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a conversation and, where ``marked``, what its ``{% generation %}`` holds, in characters.

    >>> source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}"
    >>> render_template(source, [{"content": "Hi"}], {}, add_generation_prompt=False, marked=True)
    ('Hi.', ((0, 2),))
    """
    given = {"tools": None, "documents": None} | dict(variables)
    before = _meter.set(_Meter(marked=marked))
    try:
        given |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        text = _compiled(source).render(**given)
    finally:
        _meter.reset(before)
    if not marked:
        return text, ()
    pieces, spans, position = list[str](), list[tuple[int, int]](), 0
    for number, part in enumerate(text.split(_BEGIN)):
        inside, _, rest = part.partition(_END) if number else ("", "", part)
        if number:
            spans.append((position, position + len(inside)))
        pieces += [inside, rest]
        position += len(inside) + len(rest)
    return "".join(pieces), tuple(spans)


class _Meter:
    def __init__(self, *, marked: bool) -> None:
        self.marked = marked
        # By what this thread has computed: a machine that sleeps or is busy makes no template endless.
        self._steps, self._end = 0, time.thread_time() + MAX_SECONDS
        self._written = 0

    def write(self, size: int) -> None:
        """So many more characters of the text."""
        self._written += size
        _refuse_size(self._written)

    def step(self) -> None:
        """One turn of a loop, or one call of a macro."""
        self._steps += 1
        # Asking for the time costs as much as a step.
        if self._steps > MAX_STEPS or (self._steps % 64 == 0 and time.thread_time() > self._end):
            raise EndlessTemplateError(
                f"the chat template comes to no end ({self._steps:,} turns of its loops); {_ADVICE}"
            )


_ADVICE = "give another template, or a model that has another"
_meter: ContextVar[_Meter] = ContextVar("meter")


_STEP, _JOINED = "a step", "texts joined"
"""Filters whose names no template can write, and so neither leave out nor replace."""


@pass_context
def _step(_: Any, nothing: None) -> None:
    _meter.get().step()


@pass_context
def _written(_: Any, value: Any) -> Any:
    _meter.get().write(extent(value))
    return value


@pass_context
def _joined(_: Any, first: object, *others: object) -> str:
    _refuse_size(extent((first, *others)))
    return "".join([str(part) for part in (first, *others)])


class _Bounded(NodeTransformer):
    """Puts a step first into what may be repeated; ``~``, which no sandbox sees, becomes a filter."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_JOINED, *node.nodes, line=node.lineno)

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        step = _filter(_STEP, nodes.Const(None), line=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node

    visit_For = visit_Macro = _counted


def _filter(name: str, first: nodes.Expr, *others: nodes.Expr, line: int) -> nodes.Filter:
    return nodes.Filter(first, name, [*others], [], None, None, lineno=line)


def _refuse_size(size: float) -> None:
    if size > MAX_SIZE:
        raise EndlessTemplateError(
            f"the chat template makes something of more than {MAX_SIZE:,} characters or digits; {_ADVICE}"
        )


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, which also asks how large a result will be."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _refuse_size(size_of_result(operator, left, right))
        return self.binop_table[operator](left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a call; widths and counts stand among its arguments."""
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        _refuse_growth(getattr(method, "__name__", ""), owner, [*args, *kwargs.values()])
        return super().call(context, obj, *args, **kwargs)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that asks first how large its result can be."""
    # Of some the first argument is what Jinja itself passes to them.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        value, *others = args[first:]
        _refuse_growth(name, value, [*others, *kwargs.values()])
        return function(*args, **kwargs)

    return guarded


def _refuse_growth(name: str, value: Any, others: Sequence[Any]) -> None:
    """Complain before a filter or method, called so, makes something huge of a value."""
    width = max((abs(item) for item in others if isinstance(item, int)), default=0)
    given = extent(others)
    _refuse_size(given + extent(value))
    match name:
        case "indent" | "expandtabs":
            grown = (str(value).count("\n") + str(value).count("\t") + 1) * width
        case "tojson":
            grown = extent(value) * width
        case "replace":
            grown = str(value).count(str(others[0] if others else "")) * given
        case "translate":
            grown = extent(value) * given
        case "join":
            texts, parts = (value, others[0]) if isinstance(value, str) and others else (others, value)
            grown = extent(texts) * (len(parts) if isinstance(parts, Sized) else MAX_RANGE)
        case "format" | "format_map":
            places = str(value).count("{") + str(value).count("%")
            grown = size_of_result("%", value, others) + places * given
        case "sum":
            # Lists that are added up are copied again for each of them.
            grown = MAX_SIZE + 1 if any(isinstance(item, list | tuple) for item in others) else 0
        case _:
            grown = width if isinstance(value, str) else 0
    _refuse_size(grown)


class _Generation(Extension):
    """``{% generation %} … {% endgeneration %}``: what the assistant has written."""

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{_BEGIN}{caller()}{_END}" if _meter.get().marked else caller()


class _Namespace(Namespace):
    """A namespace without names that begin with an underscore, which are Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a template may not store {name!r}")


@lru_cache(maxsize=64)
def _compiled(source: str) -> Template:
    environment = _environment()
    tree = _Bounded().visit(environment.parse(source))
    return Template.from_code(environment, environment.compile(tree), environment.make_globals(None))


def syntax_fault(source: str) -> str:
    """What is wrong with the Jinja of a template, and in which line; empty where it can be read.

    >>> syntax_fault("{% for turn in messages %}{{ turn.content }}")[:47]
    'line 1: Unexpected end of template. Jinja was l'
    """
    try:
        _compiled(source)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    return ""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """The environment of transformers' own renderer, by what its templates can see of it."""
    environment = _BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, finalize=_written, extensions=[_Generation, loopcontrols]
    )
    environment.filters |= {"tojson": _tojson}
    # These fill any width with text or lists, or take long, and no loop of theirs is counted.
    for name in ("center", "batch", "slice", "wordwrap", "urlize", "pprint"):
        del environment.filters[name]
    guarded = {name: _guarded(name, function) for name, function in environment.filters.items()}
    environment.filters |= guarded | {_STEP: _step, _JOINED: _joined}
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda layout: datetime.now().strftime(layout),
        "namespace": _Namespace,
        "dict": _dict,
    }
    del environment.globals["lipsum"]
    return environment


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    # In place of the class, of which a template could reach more than it needs.
    return dict(*args, **kwargs)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own would write < and & as for a web page.
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    # Escaped, it would be six letters of a text that nobody wrote.
    return text.replace(json.dumps(CUT)[1:-1], CUT)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


PLACEHOLDER = "plauditMarksThis"
# As ``message.reasoning_content`` or ``message['thinking']``, and not as the setting ``enable_thinking``.
_REASONING_FIELD = re.compile(r"(?:\.|\[\s*['\"])(reasoning_content|reasoning|thinking)\b")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChatTemplate:
    source: str
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The special tokens by name, and the user's own settings such as ``enable_thinking``."""
    picture: str | None = None
    """What it writes for a picture, of a model that sees."""

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """The turns as text; with ``ask``, up to where the assistant would begin to speak."""
        return _text_of_turns(self, tuple(messages), ask)

    def marked_spans(self, messages: Sequence[Message]) -> tuple[tuple[int, int], ...]:
        """What the template's own ``{% generation %}`` markers enclose, in characters."""
        return self._rendered(messages, ask=False, marked=True)[1]

    def turn_fields(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The turns as a template reads them, without tools; thinking that it would leave out is refused."""
        names = set(_REASONING_FIELD.findall(self.source))
        turns: list[dict[str, Any]] = []
        for message in split_tools(messages)[1]:
            if message.role == TOOLS_ROLE:
                raise UserError("the schemas of tools stand behind other turns; they come before all of them")
            turn = {
                "role": message.role,
                "content": self._content(turn_text(message)),
                **tool_fields(message),
            }
            if message.reasoning is not None:
                if not names:
                    raise UserError(
                        "a turn has its thinking in a field of its own (reasoning_content), which this chat "
                        "template does not read; write it into the content, or give another template"
                    )
                turn.update(dict.fromkeys(names, message.reasoning))
            turns.append(turn)
        return turns

    def _content(self, words: str) -> str | list[dict[str, str]]:
        """The words of a turn as the template takes them: as a text, or in parts where pictures are shown."""
        if self.picture is None:
            return words
        style = _content_style(self)
        if style == "text" or (style == "pictures" and PICTURE not in words):
            return words.replace(PICTURE, f"{self.picture}\n")
        pieces = [[{"type": "text", "text": piece}] if piece else [] for piece in words.split(PICTURE)]
        return [part for n, piece in enumerate(pieces) for part in ([{"type": "image"}] if n else []) + piece]

    def _rendered(
        self, messages: Sequence[Message], *, ask: bool, marked: bool = False
    ) -> tuple[str, tuple[tuple[int, int], ...]]:
        turns, tools = self.turn_fields(messages), tool_schemas(messages)
        given = self.variables if tools is None else {**self.variables, "tools": tools}
        try:
            return render_template(self.source, turns, given, add_generation_prompt=ask, marked=marked)
        except UserError:
            raise
        except RENDERING_FAULTS as error:
            if fault := syntax_fault(self.source):
                raise UserError(
                    f"the chat template is no Jinja: {fault}; mend it there, or give another by --template"
                ) from error
            roles = ", ".join(turn["role"] for turn in turns) or "none"
            deep = isinstance(error, RecursionError)
            why = "it goes too deep" if deep else str(error) or type(error).__name__
            frames = extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
            # What a template raises on purpose comes out of a function of ours, which it calls in its line.
            at = f" in its line {lines[-1]}" if lines else ""
            raise UserError(
                f"the chat template refuses this conversation (roles: {roles}){at}: {why}; "
                "reshape the rows to what the model knows, or mend that line, or give another template"
            ) from error


@lru_cache(maxsize=16)
def _text_of_turns(template: ChatTemplate, messages: tuple[Message, ...], ask: bool) -> str:
    # The answers of one row share their prompt, which is rendered for each of them, and twice.
    return template._rendered(messages, ask=ask)[0]


@lru_cache(maxsize=16)
def _content_style(template: ChatTemplate) -> Literal["text", "pictures", "parts"]:
    """Whether a template takes parts: of no turn, of those with pictures, or of all."""
    parts = [{"type": "image"}, {"type": "text", "text": PLACEHOLDER}]

    def written(content: object) -> str:
        turns = [{"role": "user", "content": content}]
        try:
            return render_template(template.source, turns, template.variables, add_generation_prompt=True)[0]
        except RENDERING_FAULTS:
            return ""

    if not (PLACEHOLDER in (text := written(parts)) and text.count(str(template.picture)) == 1):
        return "text"
    return "pictures" if PLACEHOLDER in written(PLACEHOLDER) else "parts"


def turn_text(message: Message) -> str:
    """The words of one turn, with `PICTURE` for each picture; one that nobody has read is refused."""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.text is None:
            raise UserError(
                f"a turn of the {message.role} holds a picture, and this model takes words alone: give a "
                "model that sees (its folder has a processor), leave the row out, or describe the picture"
            )
    return "".join(PICTURE if part.kind == "image" else part.text or "" for part in message.content)


def unused_word(text: str) -> str:
    mark = PLACEHOLDER
    while mark in text:
        # Longer until it is new: a row may well talk about plaudit's own placeholder.
        mark += "X"
    return mark


def map_texts(text: str, change: Callable[[str], str]) -> str:
    """JSON with each text within it changed, the names of fields too.

    >>> map_texts('{"city": ["Oslo", 3]}', str.upper)
    '{"CITY": ["OSLO", 3]}'
    """

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {change(name): changed(item) for name, item in value.items()}
        if isinstance(value, list):
            return [changed(item) for item in value]
        return change(value) if isinstance(value, str) else value

    return json.dumps(changed(json.loads(text)), ensure_ascii=False)


def with_marked_calls(message: Message, words: str, mark: str) -> Message:
    """The turn with other words, and each name and argument of its calls a number before the mark.

    >>> from plaudit.data.records import ToolCall
    >>> turn = Message(role="assistant", content="", tool_calls=(ToolCall(name="f", arguments='{"a": 1}'),))
    >>> with_marked_calls(turn, "", "End").tool_calls[0]
    ToolCall(name='x0End', arguments='{"a": "x1End"}', id=None)
    """
    n = count()
    calls = tuple(
        replace(
            call,
            name=f"x{next(n)}{mark}",
            arguments=json.dumps({name: f"x{next(n)}{mark}" for name in json.loads(call.arguments)}),
        )
        for call in message.tool_calls
    )
    return replace(message, content=words, tool_calls=calls)
