"""Two processes that use each other's objects: plain values travel, everything else is asked about.

What cannot travel is stood for by a `Proxy` on the other side. A proxy asks its owner for what only the owner
knows (an attribute, the result of a call), and never for a judgement: whether it equals a plain value is
decided on this side, by plain data, so that an object that calls itself equal to everything is equal to
nothing.
"""

from __future__ import annotations

import builtins
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, cast

from plaudit.rewards.inside.values import Packed, pack, unpack

LONGEST = 8_000_000
"""Bytes of one message."""
MOST_ITEMS = 100_000
"""Items that are fetched of one iterable."""
PLAIN: tuple[type[Any], ...] = (int, float, str, bytes, tuple, list, dict, set, frozenset)
"""Of a subclass of these the plain data can be had."""

Serve = Callable[[str, list[object], dict[str, object]], object]
"""Does what the other side asks for."""


class GoneError(BaseException):
    """The other side has ended, or says what cannot be understood; no ``except Exception`` hides it."""


class Caught:
    """Holds whatever is raised within; a stranger's code may raise anything, and this process lives on.

    Example: ``with Caught() as caught: exec(code)``; then ``caught.error``
    """

    error: BaseException | None = None
    """What was raised; None where nothing was."""

    def __enter__(self) -> Caught:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class Peer:
    """One end of the line.

    Example: ``Peer(reader, writer, serve).ask("call", function, 3)``
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO, serve: Serve) -> None:
        """``serve`` does what the other side asks for."""
        self._reader, self._writer, self._serve = reader, writer, serve
        self._own: list[object] = []
        self._errors: dict[str, type[Exception]] = {}
        self.gone = False

    def ask(self, do: str, *given: object, **named: object) -> object:
        """Has the other side do something; meanwhile does what it asks for."""
        packed = [self._pack(one) for one in given]
        self._send(["ask", do, packed, {name: self._pack(one) for name, one in named.items()}])
        while True:
            match self._receive():
                case ["ask", str(wanted), list(args), dict(kwargs)]:
                    self._answer(wanted, args, kwargs)
                case ["give", value, list(after)]:
                    for place, content in after:
                        refill(given[place], unpack(content, self._known))
                    return unpack(value, self._known)
                case ["fail", list(names), str(text)]:
                    raise self._error_of(names)(text)
                case _:
                    raise self._lost("a message that means nothing")

    def serve(self) -> None:
        """Does what the other side asks for, until it ends."""
        while True:
            match self._receive():
                case ["ask", str(wanted), list(args), dict(kwargs)]:
                    self._answer(wanted, args, kwargs)
                case _:
                    raise self._lost("a message that means nothing")

    def _answer(self, do: str, args: list[Packed], kwargs: dict[str, Packed]) -> None:
        with Caught() as caught:
            given = [unpack(one, self._known) for one in args]
            named = {name: unpack(one, self._known) for name, one in kwargs.items()}
            value = self._pack(self._serve(do, given, named))
            # What was changed in place has to be changed on the other side too.
            now = [
                self._pack(one) if _mutable(one) else before for one, before in zip(given, args, strict=True)
            ]
            after = [
                [at, one] for at, (one, before) in enumerate(zip(now, args, strict=True)) if one != before
            ]
            self._send(["give", value, after])
        if isinstance(caught.error, GoneError):
            raise caught.error
        if caught.error is not None:
            names = [kind.__name__ for kind in type(caught.error).__mro__]
            self._send(["fail", names, str(caught.error)[:1000]])

    def _send(self, message: Packed) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > LONGEST:
            raise ValueError(f"a value of {len(line):,} bytes is too large")
        try:
            self._writer.write(line)
            self._writer.flush()
        except OSError as error:
            raise self._lost("the other side has ended") from error

    def owns(self, value: object) -> bool:
        """Whether this very object was shown to the other side."""
        return any(value is one for one in self._own)

    def _receive(self) -> Packed:
        line = self._reader.readline(LONGEST + 1)
        if not line.endswith(b"\n"):
            raise self._lost("the other side has ended")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise self._lost("a message that cannot be read") from None

    def _lost(self, why: str) -> GoneError:
        self.gone = True
        return GoneError(why)

    def _pack(self, value: object) -> Packed:
        return pack(value, self._named)

    def _named(self, value: object) -> Packed:
        """An object that stays here, or one of the other side's."""
        if type(value) is Proxy:
            return ["own", object.__getattribute__(value, "_number")]
        self._own.append(value)
        error = value if isinstance(value, type) and issubclass(value, Exception) else None
        mro = [] if error is None else [kind.__name__ for kind in error.__mro__]
        return ["ref", len(self._own) - 1, isinstance(value, PLAIN), mro]

    def _known(self, packed: Packed) -> object:
        match packed:
            case ["own", int(number)] if 0 <= number < len(self._own):
                return self._own[number]
            case ["ref", int(number), bool(plain), list(mro)]:
                return self._error_of(mro) if mro else Proxy(self, number, plain)
            case _:
                raise ValueError("no value")

    def _error_of(self, names: list[str]) -> type[Exception]:
        """The class of an error: a built-in one, or one of the same name that stands for the other side's."""
        first, *rest = names or ["Exception"]
        found = getattr(builtins, first, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
        if first not in self._errors:
            base = self._error_of(rest) if rest else Exception
            self._errors[first] = cast("type[Exception]", type(str(first), (base,), {}))
        return self._errors[first]


class Proxy:
    """Stands for an object of the other side."""

    def __init__(self, peer: Peer, number: int, plain: bool) -> None:
        for name, value in (("_peer", peer), ("_number", number), ("_plain", plain)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> object:
        return _asked(self, "getattr", name)

    def __setattr__(self, name: str, value: object) -> None:
        _asked(self, "setattr", name, value)

    def __call__(self, *given: object, **named: object) -> object:
        """Has the function called where it is."""
        return object.__getattribute__(self, "_peer").ask("call", self, *given, **named)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of a subclass of plain data that data's type, for ``isinstance``."""
        return type(_data(self)) if object.__getattribute__(self, "_plain") else Proxy

    def __instancecheck__(self, one: object) -> bool:
        return type(one) is Proxy and bool(_asked(self, "is_instance", one))

    def __eq__(self, other: object) -> bool:
        return bool(_asked(self, "eq", other)) if type(other) is Proxy else _data(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_asked(self, "hash"))

    def __bool__(self) -> bool:
        return bool(_asked(self, "bool"))

    def __iter__(self) -> Iterator[object]:
        there = _asked(self, "iter")
        for _ in range(MOST_ITEMS):
            try:
                item = object.__getattribute__(self, "_peer").ask("next", there)
            except StopIteration:
                return
            yield item
        raise ValueError(f"more than {MOST_ITEMS:,} items")

    def __contains__(self, item: object) -> bool:
        # All of it first: what goes on for ever would contain everything.
        return item in [*self]

    def __lt__(self, other: object) -> bool:
        return _ordered(self, "lt", other)

    def __le__(self, other: object) -> bool:
        return _ordered(self, "le", other)

    def __gt__(self, other: object) -> bool:
        return _ordered(self, "gt", other)

    def __ge__(self, other: object) -> bool:
        return _ordered(self, "ge", other)


def refill(old: object, new: object) -> None:
    """Gives a container the content of another of its kind."""
    if isinstance(old, list | bytearray) and isinstance(new, list | bytearray):
        old[:] = new  # pyright: ignore
    elif isinstance(old, dict | set) and type(old) is type(new):
        old.clear()
        old.update(new)  # pyright: ignore


def _mutable(value: object) -> bool:
    return type(value) in (list, dict, set, bytearray)


def _asked(proxy: Proxy, do: str, *given: object) -> object:
    return object.__getattribute__(proxy, "_peer").ask(do, proxy, *given)


def _data(proxy: Proxy) -> object:
    """The plain data of it; an object that has none is equal to nothing."""
    return _asked(proxy, "data") if object.__getattribute__(proxy, "_plain") else object()


def _ordered(proxy: Proxy, do: str, other: object) -> bool:
    return bool(
        _asked(proxy, do, other) if type(other) is Proxy else getattr(operator, do)(_data(proxy), other)
    )


def _forward(name: str, turned: bool) -> Callable[..., object]:
    def operation(self: Proxy, *given: object) -> object:
        peer = object.__getattribute__(self, "_peer")
        return peer.ask(name, *given, self) if turned else peer.ask(name, self, *given)

    return operation


def _outfit(names: Mapping[str, bool]) -> None:
    """Operators whose result is a value like any other; where the proxy stands second they are turned."""
    for name, turns in names.items():
        setattr(Proxy, f"__{name}__", _forward(name, turned=False))
        if turns:
            setattr(Proxy, f"__r{name}__", _forward(name, turned=True))


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
"""Operators with a second operand."""
UNARY = ("neg", "pos", "abs", "invert", "len", "str", "repr", "int", "float", "index")
"""Operators without one, and conversions."""
ITEMS = ("getitem", "setitem", "delitem", "enter", "exit", "next")
"""What containers, contexts and iterators do."""
_outfit({name: True for name in BINARY} | {name: False for name in (*UNARY, *ITEMS)})
