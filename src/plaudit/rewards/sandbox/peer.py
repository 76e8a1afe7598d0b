"""Two processes that use each other's objects: plain values travel, everything else is asked about.

Values travel as JSON without losing their type; nothing that is read can run anything. What cannot travel
stays where it is and is stood for by a `Proxy` on the other side. A proxy asks its owner for what only the
owner knows (an attribute, the result of a call), and never for a judgement: whether it equals a plain value
is decided on this side, by plain data, so that an object that calls itself equal to everything is equal to
nothing.

Arithmetic could be a judgement too: ``abs(f(2) - 1.414) < 0.01`` holds of an object that, told 1.414, calls
the difference 0, and remembers 1.414. So a side that does not trust the other (the tests') reckons with plain
data itself where an object is of a subclass of it, and judges it by that data in all else; what any other
object makes of a plain operand is `Deferred`.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import operator
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO, cast

from plaudit.rewards.sandbox.plain import PLAIN, Packed, pack, plain_value, unpack

MAX_MESSAGE_BYTES = 8_000_000
MAX_FETCHED_ITEMS = 100_000
"""Items that are fetched of one iterable."""
Serve = Callable[[str, list[object], dict[str, object]], object]


class PeerEndedError(BaseException):
    """The other side has ended, or says what cannot be understood; no ``except Exception`` hides it."""


class CaptureError:
    """Holds whatever is raised within; a stranger's code may raise anything, and this process lives on.

    Example: ``with CaptureError() as caught: exec(code)``; then ``caught.error``
    """

    error: BaseException | None = None
    """What was raised; None where nothing was."""

    def __enter__(self) -> CaptureError:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class Peer:
    """One end of the line.

    Example: ``Peer(reader, writer, serve, trusts=True).request("call", function, 3)``
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO, serve: Serve, *, trusts: bool) -> None:
        """``serve`` does what the other side asks for; ``trusts``: whether it may do arithmetic for this."""
        self.trusts = trusts
        self._reader, self._writer, self._serve = reader, writer, serve
        # Holds a reference to all that was shown: a proxy knows a number only, and an id() may be used again.
        self._shared_objects: list[object] = []
        self._errors: dict[str, type[Exception]] = {}
        self.has_ended = False
        self.turns = 0
        """How often the other side was asked for something that may change its objects."""

    def request(self, operation: str, *values: object, **named_values: object) -> object:
        """Has the other side do something; meanwhile does what it asks for."""
        self.turns += operation != "data"
        packed = [self._pack(value) for value in values]
        self._send(
            ["ask", operation, packed, {name: self._pack(value) for name, value in named_values.items()}]
        )
        while True:
            match self._receive():
                # Before it answers it may call back: a key function of ours, an iterator that we lent.
                case ["ask", str(wanted_operation), list(packed_args), dict(packed_kwargs)]:
                    self._handle_request(wanted_operation, packed_args, packed_kwargs)
                case ["give", value, list(after)]:
                    # They went as copies; as within one process, a function may change what it was given.
                    for place, content in after:
                        refill(values[place], unpack(content, self._resolve))
                    return unpack(value, self._resolve)
                case ["fail", list(names), str(text)]:
                    raise self._error_of(names)(text)
                case _:
                    raise self._mark_ended("a message that means nothing")

    def serve(self) -> None:
        """Does what the other side asks for, until it ends."""
        while True:
            match self._receive():
                case ["ask", str(operation), list(args), dict(kwargs)]:
                    self._handle_request(operation, args, kwargs)
                case _:
                    raise self._mark_ended("a message that means nothing")

    def _handle_request(self, operation: str, args: list[Packed], kwargs: dict[str, Packed]) -> None:
        with CaptureError() as caught:
            values = [unpack(arg, self._resolve) for arg in args]
            named_values = {name: unpack(value, self._resolve) for name, value in kwargs.items()}
            value = self._pack(self._serve(operation, values, named_values))
            # What was changed in place has to be changed on the other side too.
            now = [
                self._pack(value) if _mutable(value) else before
                for value, before in zip(values, args, strict=True)
            ]
            after = [
                [at, value]
                for at, (value, before) in enumerate(zip(now, args, strict=True))
                if value != before
            ]
            # Within the capture, so that a value too large to send is told as an error and the line lives on.
            self._send(["give", value, after])
        # No answer can be sent down a line that has ended.
        if isinstance(caught.error, PeerEndedError):
            raise caught.error
        if caught.error is not None:
            # Names only, as no class can travel: the tests' `except ValueError` still catches a subclass.
            names = [kind.__name__ for kind in type(caught.error).__mro__]
            self._send(["fail", names, str(caught.error)[:1000]])

    def _send(self, message: Packed) -> None:
        # JSON escapes newlines inside strings, so one line is one message.
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a value of {len(line):,} bytes is too large")
        try:
            self._writer.write(line)
            self._writer.flush()
        except OSError as error:
            raise self._mark_ended("the other side has ended") from error

    def owns(self, value: object) -> bool:
        return any(value is shared for shared in self._shared_objects)

    def _receive(self) -> Packed:
        # Bounded: a line that never ends would otherwise fill this process's memory.
        line = self._reader.readline(MAX_MESSAGE_BYTES + 1)
        if not line.endswith(b"\n"):
            raise self._mark_ended("the other side has ended")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise self._mark_ended("a message that cannot be read") from None

    def _mark_ended(self, reason: str) -> PeerEndedError:
        # Remembered, as tests may swallow even a BaseException; the examiner looks before it says passed.
        self.has_ended = True
        return PeerEndedError(reason)

    def _pack(self, value: object) -> Packed:
        return pack(value, self._reference)

    def _reference(self, value: object) -> Packed:
        # It goes home as the object that it stands for, so `is` and isinstance hold on its own side.
        if type(value) is Deferred:
            value = value.found()
        if type(value) is Proxy:
            return ["own", object.__getattribute__(value, "_number")]
        self._shared_objects.append(value)
        error = value if isinstance(value, type) and issubclass(value, Exception) else None
        mro = [] if error is None else [kind.__name__ for kind in error.__mro__]
        return ["ref", len(self._shared_objects) - 1, issubclass(type(value), PLAIN), mro]

    def _resolve(self, packed: Packed) -> object:
        match packed:
            case ["own", int(number)] if 0 <= number < len(self._shared_objects):
                return self._shared_objects[number]
            case ["ref", int(number), bool(plain), list(mro)]:
                return self._error_of(mro) if mro else Proxy(self, number, plain)
            case _:
                raise ValueError("no value")

    def _error_of(self, names: list[str]) -> type[Exception]:
        """The class of an error: a built-in one, or one of the same name that stands for the other side's."""
        first, *rest = names or ["Exception"]
        builtin_class = getattr(builtins, first, None)
        # Exception only: a name like SystemExit must not let one side end the other.
        if isinstance(builtin_class, type) and issubclass(builtin_class, Exception):
            return builtin_class
        if first not in self._errors:
            base = self._error_of(rest) if rest else Exception
            self._errors[first] = cast("type[Exception]", type(str(first), (base,), {}))
        return self._errors[first]


class Proxy:
    """Stands for an object of the other side."""

    def __init__(self, peer: Peer, number: int, plain: bool) -> None:
        """``plain``: it is of a subclass of plain data."""
        facts = (("_peer", peer), ("_number", number), ("_plain", plain), ("_known", None))
        # Past this class's own __setattr__, which would ask the owner.
        for name, value in facts:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> object:
        return _attribute(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        _ask_owner(self, "setattr", name, value)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return object.__getattribute__(self, "_peer").request("call", self, *args, **kwargs)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of a subclass of plain data that data's type, for ``isinstance``."""
        return type(_plain_data(self)) if object.__getattribute__(self, "_plain") else Proxy

    def __instancecheck__(self, instance: object) -> bool:
        return type(instance) in _STAND_INS and bool(_ask_owner(self, "is_instance", instance))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __iter__(self) -> Iterator[object]:
        if _is_judged_by_data(self):
            yield from cast("Iterator[object]", _plain_data(self))
            return
        iterator = _ask_owner(self, "iter")
        for _ in range(MAX_FETCHED_ITEMS):
            try:
                item = object.__getattribute__(self, "_peer").request("next", iterator)
            # A StopIteration that left this generator would become a RuntimeError.
            except StopIteration:
                return
            yield item
        raise ValueError(f"more than {MAX_FETCHED_ITEMS:,} items")

    def __contains__(self, item: object) -> bool:
        # All of it first: what goes on for ever would contain everything.
        return item in (cast("Any", _plain_data(self)) if _is_judged_by_data(self) else [*self])

    def __getitem__(self, key: object) -> object:
        """By the data where it has the item; what else a subclass makes of a key only its owner knows."""
        if _is_judged_by_data(self):
            with contextlib.suppress(LookupError, TypeError):
                return OPERATIONS["getitem"](_plain_data(self), key)
        return _ask_owner(self, "getitem", key)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        if kind is not None and issubclass(kind, AssertionError):
            # A test's own verdict: a context that the program made must neither see nor swallow it.
            _ask_owner(self, "exit", None, None, None)
            return False
        return bool(_ask_owner(self, "exit", kind, error, None))


class Deferred:
    """What a program's object makes of a plain operand: ``V(2) * 3``, not yet asked for.

    The operand may be what a test expects (``f(2) - 1.414``), and what comes of it may be claimed to be 0. So
    it is told to the program only for what cannot be such a judgement: to be compared with another object of
    the program, to be handed to it, for an attribute that no plain value has, for its text.
    """

    def __init__(self, peer: Peer, name: str, operands: tuple[object, ...]) -> None:
        self.known_peer = peer
        self._request = name, operands
        self._found: Proxy | None = None

    def found(self) -> Proxy:
        """The object that comes of it, asked for once."""
        if self._found is None:
            name, operands = self._request
            found = self.known_peer.request(name, *operands)
            if type(found) is not Proxy:
                raise TypeError(f"{_REFUSED}; its own arithmetic gives objects here, and no plain data")
            self._found = found
        return self._found

    def __getattr__(self, name: str) -> object:
        if name in _PLAIN_NAMES:
            raise TypeError(_REFUSED)
        return getattr(self.found(), name)

    def __bool__(self) -> bool:
        raise TypeError(_REFUSED)

    def __hash__(self) -> int:
        raise TypeError(_REFUSED)

    def __str__(self) -> str:
        return self._text("str")

    def __repr__(self) -> str:
        return self._text("repr")

    def _text(self, operation: str) -> str:
        text = str(_ask_owner(self.found(), operation))
        # A difference that is claimed to vanish is written so: 0.0, [], set(), 0:00:00.
        if not any(letter in "123456789" for letter in text):
            raise TypeError(_REFUSED)
        return text


_REFUSED = "what an object's own arithmetic with plain data gives is no number, and neither true nor false"
_STAND_INS = (Proxy, Deferred)


def refill(old: object, new: object) -> None:
    """Gives a container the content of another of its kind."""
    if isinstance(old, list | bytearray) and isinstance(new, list | bytearray):
        # In place, as whoever else holds the container has to see it too.
        old[:] = new  # pyright: ignore
    elif isinstance(old, dict | set) and type(old) is type(new):
        old.clear()
        old.update(new)  # pyright: ignore


def _mutable(value: object) -> bool:
    # By exact type, as in `pack`: a subclass went as a proxy, so there is no copy to bring up to date.
    return type(value) in (list, dict, set, bytearray)


_UNCHANGING = (int, float, str, bytes, tuple, frozenset)
_DATA_METHODS: Mapping[type, frozenset[str]] = {
    **{kind: frozenset(dir(kind)) for kind in (int, float, str, bytes, frozenset)},
    **dict.fromkeys((tuple, list), frozenset(["count", "index"])),
    set: frozenset(dir(frozenset)),
    dict: frozenset(),
}
"""Methods that only look at the data: of these the data's own is taken."""
_SETS = ("issubset", "issuperset", "isdisjoint", "difference", "symmetric_difference")
_COMPARING_METHODS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys((*_SETS, "equals", "allclose", "isclose", "startswith", "endswith"), object),
    # Of a set only: a union-find's union(1, 2) asks for no judgement.
    **dict.fromkeys(("union", "intersection"), (set, frozenset)),
}
"""Methods by which a test judges an object, and the plain operands that they are not told."""
_TEXT_PREDICATES = frozenset(name for name in dir(str) if name.startswith("is")) | {"is_integer"}
_NUMPY_NAMES = ("all", "any", "sum", "max", "min", "mean", "std", "item", "tolist", "norm", "size", "shape")
# What a test asks of a difference that ought to vanish: (f(x) - y).total_seconds() == 0.
_PLAIN_NAMES = frozenset(_NUMPY_NAMES).union(
    *map(
        dir,
        (*PLAIN, complex, deque, Counter, date, datetime, time, timedelta, Decimal, Fraction, slice, range),
    )
)


def _ask_owner(proxy: Proxy, operation: str, *args: object) -> object:
    return object.__getattribute__(proxy, "_peer").request(operation, proxy, *args)


def _fact(value: object, name: str) -> Any:
    """What a proxy knows without asking; of anything else None."""
    return object.__getattribute__(value, name) if type(value) is Proxy else None


def _is_judged_by_data(value: object) -> bool:
    """Whether it is an object of the side that is not trusted, of a subclass of plain data."""
    return bool(_fact(value, "_plain")) and not _fact(value, "_peer").trusts


def _plain_data(proxy: Proxy) -> object:
    """The plain data of it; an object that has none is equal to nothing."""
    if not object.__getattribute__(proxy, "_plain"):
        return object()
    known, peer = _fact(proxy, "_known"), _fact(proxy, "_peer")
    # Asked again only after the program had a turn: one test must not be told two things of one object.
    if known is not None and (known[0] == peer.turns or type(known[1]) in _UNCHANGING):
        return known[1]
    data = _ask_owner(proxy, "data")
    if type(data) not in PLAIN:
        raise TypeError("no plain data")
    object.__setattr__(proxy, "_known", (peer.turns, data))
    return data


def _data_or_itself(value: object) -> object:
    return _plain_data(value) if type(value) is Proxy else value


def _by_data_or_owner(proxy: Proxy, name: str, *args: object) -> object:
    """The operation, done with plain data where the object has some, else by its owner."""
    if _is_judged_by_data(proxy):
        return OPERATIONS[name](_plain_data(proxy), *args)
    return _ask_owner(proxy, name, *args)


def _attribute(proxy: Proxy, name: str) -> object:
    value = _ask_owner(proxy, "getattr", name)
    if type(value) is not Proxy or _fact(proxy, "_peer").trusts:
        return value
    data = _plain_data(proxy) if _is_judged_by_data(proxy) else None
    # f(x).issubset(y) is the test's question; a method that changes or adds something is the program's.
    if data is not None and name in _DATA_METHODS[type(data)]:
        return getattr(data, name)
    if name in _TEXT_PREDICATES:
        raise TypeError(f"{name}() is a question about plain data, and this object is none")
    refused = _COMPARING_METHODS.get(name)
    return value if refused is None else _without_plain(value, refused)


def _without_plain(method: Proxy, refused: type | tuple[type, ...]) -> Callable[..., object]:
    def call(*args: object) -> object:
        if any(type(arg) not in _STAND_INS and isinstance(arg, refused) for arg in args):
            raise TypeError("an object's own word of how it compares with plain data counts for nothing")
        return method(*args)

    return call


def _compare(operation: str, left: object, right: object) -> bool:
    """A comparison of which one side, or both, stands for an object of the other process."""
    has_plain = any(type(value) not in _STAND_INS for value in (left, right))
    # Before anything is asked for: with it the operand would be told.
    if has_plain and Deferred in map(type, (left, right)):
        raise TypeError(_REFUSED)
    pair = [value.found() if type(value) is Deferred else value for value in (left, right)]
    proxy = next(value for value in pair if type(value) is Proxy)
    # Two objects only their owner can compare; but of two subclasses of plain data the data decides, or a
    # list would be sorted because its items say so.
    if _fact(proxy, "_peer").trusts or not (has_plain or all(map(_is_judged_by_data, pair))):
        return bool(_fact(proxy, "_peer").request(operation, *pair))
    return bool(OPERATIONS[operation](*map(_data_or_itself, pair)))


def _peer_of(stand_in: Proxy | Deferred) -> Peer:
    return stand_in.known_peer if type(stand_in) is Deferred else _fact(stand_in, "_peer")


def _arithmetic(name: str, *operands: Any) -> object:
    peer = next(_peer_of(operand) for operand in operands if type(operand) in _STAND_INS)
    if peer.trusts:
        return peer.request(name, *operands)
    data = [_plain_data(operand) if _is_judged_by_data(operand) else operand for operand in operands]
    if all(type(operand) is Proxy for operand in operands):
        # Objects alone give their owner nothing away: V(1) + V(2) is as good as a method's result.
        are_numbers = len(operands) > 1 and all(type(value) in (int, float) for value in data)
        return OPERATIONS[name](*data) if are_numbers else peer.request(name, *operands)
    # A tuple of one's own (a vector, a point) has an arithmetic of its own, but for what puts two together.
    are_points = any(type(a) is Proxy and type(b) is tuple for a, b in zip(operands, data, strict=True))
    if any(type(value) in _STAND_INS for value in data) or (are_points and name != "add"):
        return Deferred(peer, name, operands)
    return OPERATIONS[name](*data)


def _operator(name: str, reflected: bool) -> Callable[..., object]:
    # Made by a function, since a closure in the loop would see only the loop's last name.
    def operation(self: Proxy, *args: object) -> object:
        if name in _COMPARISONS:
            return _compare(name, self, *args)
        if name in _ARITHMETIC:
            return _arithmetic(name, *((*args, self) if reflected else (self, *args)))
        return (_by_data_or_owner if name in _BY_DATA else _ask_owner)(self, name, *args)

    return operation


def _add_operators(kind: type, names: Iterable[str], reflected: Iterable[str] = ()) -> None:
    """Give a class these operators, and of some the reflected one (``__radd__``) too."""
    for name in names:
        setattr(kind, f"__{name}__", _operator(name, reflected=False))
    for name in reflected:
        setattr(kind, f"__r{name}__", _operator(name, reflected=True))


_SHIFTS = ("lshift", "rshift")
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor", *_SHIFTS)
"""Operators with a second operand."""
_PAIRS = (*BINARY, "pow", "divmod")
_SIGNS = ("neg", "pos", "abs", "invert")
_BY_DATA = ("len", "int", "float", "index", "bool", "hash", "round", "format")
ITEMS = ("setitem", "delitem", "enter", "next", "str", "repr")
"""What containers, contexts and iterators do, and what an object says of itself."""
_ARITHMETIC = frozenset([*_PAIRS, *_SIGNS])
_COMPARISONS = ("eq", "lt", "le", "gt", "ge")
_add_operators(Proxy, (*_PAIRS, *_SIGNS, *_BY_DATA, *ITEMS, *_COMPARISONS), _PAIRS)
_add_operators(Deferred, (*_PAIRS, *_SIGNS, *_COMPARISONS), _PAIRS)


def _call_function(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    return function(*args, **kwargs)


def _instance_check(kind: type, value: object) -> bool:
    return isinstance(value, kind)


def _exit_context(context: Any, *args: object) -> object:
    # Looked up on the type, as a with statement does.
    return type(context).__exit__(context, *args)


OPERATIONS: Mapping[str, Callable[..., object]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*BINARY, *_COMPARISONS)},
    **{name: getattr(operator, name) for name in ("neg", "pos", "invert", "abs", "index")},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{function.__name__: function for function in (len, repr, hash, iter, next, getattr, setattr)},
    **{function.__name__: function for function in (pow, divmod, round, format)},
    "call": _call_function,
    "is_instance": _instance_check,
    "data": plain_value,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit_context,
}
"""By the name that a request has."""
