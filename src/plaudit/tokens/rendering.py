"""Chat templates as programs of strangers: sandboxed as transformers does it, and bounded in time and size.

The sandbox keeps a template from the system, not from looping: each loop and each macro is made to count, and
what multiplies text or numbers is asked how large the result will be.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from plaudit.errors import UserError

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
        text = _compiled(source).render(
            messages=messages, add_generation_prompt=add_generation_prompt, **given
        )
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
    """Counts what one rendering does."""

    def __init__(self, *, marked: bool) -> None:
        self.marked = marked
        # By what this thread has computed: a machine that sleeps or is busy makes no template endless.
        self._steps, self._end = 0, time.thread_time() + MAX_SECONDS

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
"""That of the rendering that is going on."""


_STEP, _JOINED = "a step", "texts joined"
"""Filters whose names no template can write, and so neither leave out nor replace."""


@pass_context
def _step(_: Any, nothing: None) -> None:
    _meter.get().step()


@pass_context
def _joined(_: Any, first: object, *others: object) -> str:
    texts = [str(part) for part in (first, *others)]
    _refuse_size(sum(map(len, texts)))
    return "".join(texts)


class _Bounded(NodeTransformer):
    """Puts a step first into what may be repeated; ``~``, which no sandbox sees, becomes a filter."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._counted(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_JOINED, *node.nodes, line=node.lineno)

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        step = _filter(_STEP, nodes.Const(None), line=node.lineno)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        return node


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
        """The result of an operator."""
        _refuse_size(_size_of(operator, left, right))
        return self.binop_table[operator](left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a call; widths and counts stand among its arguments."""
        for value in args:
            if isinstance(value, int):
                _refuse_size(abs(value))
        return super().call(context, obj, *args, **kwargs)


def _size_of(operator: str, left: Any, right: Any) -> float:
    """At most how large the result of an operator can be: in characters, items or bits."""
    if type(left) is str and type(right) is str and operator == "+":
        return len(left) + len(right)
    lengths = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
    numbers = [abs(side) for side in (left, right) if isinstance(side, int)]
    match operator:
        case "*" if lengths and numbers:
            return lengths[0] * numbers[0]
        case "*" if len(numbers) == 2:
            return numbers[0].bit_length() + numbers[1].bit_length()
        case "**" if len(numbers) == 2:
            return numbers[0].bit_length() * numbers[1]
        case "%" if isinstance(left, str):
            # The width of a format: "%99999999d".
            return max((int(digits) for digits in re.findall(r"\d{1,20}", left)), default=0)
        case _:
            return sum(lengths)


class _Generation(Extension):
    """``{% generation %} … {% endgeneration %}``: what the assistant has written."""

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The block, whose text is marked."""
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


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """The environment of transformers' own renderer, by what its templates can see of it."""
    environment = _BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters |= {"tojson": _tojson, _STEP: _step, _JOINED: _joined}
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": _strftime_now,
        "namespace": _Namespace,
        "dict": _dict,
    }
    # Both fill any width with text, and no loop of theirs is counted.
    del environment.globals["lipsum"], environment.filters["center"]
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
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
