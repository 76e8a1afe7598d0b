"""Two processes that use each other's objects: plain values travel, everything else is asked about.

Values travel as JSON without losing their type; nothing that is read can run anything. What cannot travel
stays where it is and is stood for by a `Proxy` on the other side. A proxy asks its owner for what only the
owner knows (an attribute, the result of a call), and never for a judgement: whether it equals a plain value
is decided on this side, by plain data, so that an object that calls itself equal to everything is equal to
nothing.

Arithmetic could be a judgement too: ``abs(f(2) - 1.414) < 0.01`` holds of an object that, told 1.414, calls
the difference 0. On a side that does not trust the other (the tests'), what arithmetic with anything but
proxies gives stays a proxy without plain data, a number or a truth value; of a subclass of plain data that
data is reckoned with. Its attributes, items and text the owner says as ever.
"""

from __future__ import annotations

import builtins
import json
import operator
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO, cast

Packed = Any
"""A Python value as JSON carries it to the peer."""

_MAX_JSON_INTEGER = 2**53
"""Whole numbers below are JSON's own."""


def pack(value: object, other: Callable[[object], Packed]) -> Packed:
    """A value as JSON; ``other`` names what is no plain data.

    >>> pack((1, "a"), repr), pack({2: None}, repr)
    (['tuple', [1, 'a']], ['dict', [[2, None]]])
    """
    kind = type(value)
    # By exact type: a subclass of int whose __eq__ always says yes must not travel as plain data.
    if value is None or kind in (bool, str, float):
        return value
    # Not by isinstance: a proxy would be asked what it is, and asking packs it again.
    if issubclass(kind, type):
        name = str(getattr(value, "__name__", ""))
        # The very built-in: a stranger's class that is merely called int stays where it is.
        return ["type", name] if getattr(builtins, name, None) is value else other(value)
    return _pack_typed(value, other) if kind in _PACKABLE_TYPES else other(value)


def _pack_typed(value: Any, other: Callable[[object], Packed]) -> Packed:
    kind = type(value)
    if kind is int:
        # Hex, since decimals of long integers take quadratic time and Python refuses more than 4,300 digits.
        return value if abs(value) < _MAX_JSON_INTEGER else ["int", hex(value)]
    if kind in _PACKERS:
        return [kind.__name__, _PACKERS[kind](value)]
    if kind in _PAIR_TYPES:
        return [kind.__name__, [[pack(k, other), pack(v, other)] for k, v in value.items()]]
    parts = (value.start, value.stop, value.step) if kind in (slice, range) else value
    return [kind.__name__, [pack(part, other) for part in parts]]


def unpack(packed: Packed, other: Callable[[Packed], object]) -> object:
    """The value again; raises ValueError for what `pack` does not write.

    >>> unpack(["set", [1, 2]], repr)
    {1, 2}
    """
    if not isinstance(packed, list):
        if isinstance(packed, dict):
            raise ValueError("no value")
        return packed
    if len(packed) != 2 or packed[0] not in _UNPACKERS:
        return other(packed)
    kind, content = packed
    if kind in _PAIRED_NAMES:
        return _UNPACKERS[kind]([(unpack(k, other), unpack(v, other)) for k, v in content])
    if kind in _NESTED_NAMES:
        return _UNPACKERS[kind]([unpack(item, other) for item in content])
    return _UNPACKERS[kind](content)


def _builtin_type(name: str) -> type:
    builtin = getattr(builtins, name)
    if not isinstance(builtin, type):
        raise ValueError(f"{name} is no type")
    return builtin


_PAIR_TYPES = frozenset([dict, OrderedDict, Counter])
_NESTED_TYPES = frozenset([list, tuple, set, frozenset, deque, slice, range])
_PACKERS: Mapping[type, Callable[[Any], Packed]] = {
    bytes: bytes.hex,
    bytearray: bytearray.hex,
    complex: lambda v: [v.real, v.imag],
    Decimal: str,
    Fraction: lambda v: [hex(v.numerator), hex(v.denominator)],
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda v: [v.days, v.seconds, v.microseconds],
}
_PACKABLE_TYPES = frozenset([int, *_PACKERS, *_PAIR_TYPES, *_NESTED_TYPES])
_PAIRED_NAMES = frozenset(kind.__name__ for kind in _PAIR_TYPES)
_NESTED_NAMES = frozenset(kind.__name__ for kind in _NESTED_TYPES)
_UNPACKERS: Mapping[str, Callable[[Any], object]] = {
    "int": lambda v: int(v, 16),
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": dict,
    "OrderedDict": OrderedDict,
    # By way of a dict: a Counter of a list of pairs would count the pairs.
    "Counter": lambda v: Counter(dict(v)),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda v: complex(*v),
    "Decimal": Decimal,
    "Fraction": lambda v: Fraction(int(v[0], 16), int(v[1], 16)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "slice": lambda v: slice(*v),
    "range": lambda v: range(*v),
    "type": _builtin_type,
}

MAX_MESSAGE_BYTES = 8_000_000
"""Bytes of one message."""
MAX_FETCHED_ITEMS = 100_000
"""Items that are fetched of one iterable."""
PLAIN: tuple[type[Any], ...] = (int, float, str, bytes, tuple, list, dict, set, frozenset)
"""Of a subclass of these the plain data can be had."""

Serve = Callable[[str, list[object], dict[str, object]], object]
"""Does what the other side asks for."""


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

    def request(self, operation: str, *values: object, **named_values: object) -> object:
        """Has the other side do something; meanwhile does what it asks for."""
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
        """Whether this very object was shown to the other side."""
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
        """A reference to an object that stays on its side."""
        # It goes home as the object that it stands for, so `is` and isinstance hold on its own side.
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

    def __init__(self, peer: Peer, number: int, plain: bool, derived: bool = False) -> None:
        """``plain``: it has plain data; ``derived``: it is what its owner's arithmetic gave."""
        facts = (("_peer", peer), ("_number", number), ("_plain", plain), ("_derived", derived))
        # Past this class's own __setattr__, which would ask the owner.
        for name, value in facts:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> object:
        return _ask_owner(self, "getattr", name)

    def __setattr__(self, name: str, value: object) -> None:
        _ask_owner(self, "setattr", name, value)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Has the function called where it is."""
        return object.__getattribute__(self, "_peer").request("call", self, *args, **kwargs)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of a subclass of plain data that data's type, for ``isinstance``."""
        return type(_plain_data(self)) if object.__getattribute__(self, "_plain") else Proxy

    def __instancecheck__(self, instance: object) -> bool:
        return type(instance) is Proxy and bool(_ask_owner(self, "is_instance", instance))

    def __eq__(self, other: object) -> bool:
        # Two objects of the other side only it can compare; against plain data this side decides.
        return bool(_ask_owner(self, "eq", other)) if type(other) is Proxy else _plain_data(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_ask_owner(self, "hash"))

    def __bool__(self) -> bool:
        _refuse_derived(self)
        return bool(_ask_owner(self, "bool"))

    def __iter__(self) -> Iterator[object]:
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
        return item in [*self]

    def __lt__(self, other: object) -> bool:
        return _compare(self, "lt", other)

    def __le__(self, other: object) -> bool:
        return _compare(self, "le", other)

    def __gt__(self, other: object) -> bool:
        return _compare(self, "gt", other)

    def __ge__(self, other: object) -> bool:
        return _compare(self, "ge", other)


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


def _ask_owner(proxy: Proxy, operation: str, *args: object) -> object:
    return object.__getattribute__(proxy, "_peer").request(operation, proxy, *args)


def _plain_data(proxy: Proxy) -> object:
    """The plain data of it; an object that has none is equal to nothing."""
    return _ask_owner(proxy, "data") if object.__getattribute__(proxy, "_plain") else object()


def _compare(proxy: Proxy, operation: str, other: object) -> bool:
    return bool(
        _ask_owner(proxy, operation, other)
        if type(other) is Proxy
        else getattr(operator, operation)(_plain_data(proxy), other)
    )


def _fact(value: object, name: str) -> Any:
    """What a proxy knows without asking; of anything else None."""
    return object.__getattribute__(value, name) if type(value) is Proxy else None


def _refuse_derived(proxy: Proxy) -> None:
    if _fact(proxy, "_derived"):
        raise TypeError("what an object's own arithmetic gave is no number, and neither true nor false")


def _derive(name: str, result: object, operands: tuple[object, ...]) -> object:
    """What the owner's arithmetic gave, as far as it can be believed."""
    if type(result) is Proxy:
        return Proxy(_fact(result, "_peer"), _fact(result, "_number"), plain=False, derived=True)
    if any(type(operand) is Proxy and not _fact(operand, "_plain") for operand in operands):
        raise TypeError("an object's own arithmetic gives objects here, and no plain data")
    # By the data, whatever the subclass says of a difference.
    data = [_plain_data(operand) if type(operand) is Proxy else operand for operand in operands]
    return OPERATIONS[name](*data)


def _arithmetic(name: str, *operands: Any) -> object:
    proxy = next(operand for operand in operands if type(operand) is Proxy)
    peer = _fact(proxy, "_peer")
    result = peer.request(name, *operands)
    # Proxies alone give their owner nothing away: V(1) + V(2) is as good as a method's result.
    gives_away = any(type(operand) is not Proxy or _fact(operand, "_derived") for operand in operands)
    return _derive(name, result, operands) if gives_away and not peer.trusts else result


def _forwarding_operator(name: str, reflected: bool) -> Callable[..., object]:
    # Made by a function, since a closure in the loop would see only the loop's last name.
    def operation(self: Proxy, *args: object) -> object:
        if name in _ARITHMETIC:
            return _arithmetic(name, *((*args, self) if reflected else (self, *args)))
        if name in _NUMBERS:
            _refuse_derived(self)
        return _ask_owner(self, name, *args)

    return operation


def _add_operators(names: Mapping[str, bool]) -> None:
    """Give `Proxy` these operators; a true value adds the reflected one (``__radd__``) too."""
    for name, reflects in names.items():
        setattr(Proxy, f"__{name}__", _forwarding_operator(name, reflected=False))
        if reflects:
            setattr(Proxy, f"__r{name}__", _forwarding_operator(name, reflected=True))


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
"""Operators with a second operand."""
_SIGNS = ("neg", "pos", "abs", "invert")
_NUMBERS = ("len", "int", "float", "index")
UNARY = (*_SIGNS, *_NUMBERS, "str", "repr")
"""Operators without one, and conversions."""
ITEMS = ("getitem", "setitem", "delitem", "enter", "exit", "next")
"""What containers, contexts and iterators do."""
_ARITHMETIC = frozenset([*BINARY, *_SIGNS])
_add_operators({name: True for name in BINARY} | {name: False for name in (*UNARY, *ITEMS)})


def _call_function(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    return function(*args, **kwargs)


def _instance_check(kind: type, value: object) -> bool:
    return isinstance(value, kind)


# The data's own methods and not `kind(value)`, which asks the subclass: str(value) is what __str__ says.
_PLAIN_COPIES: Mapping[type, Callable[[Any], object]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    tuple: lambda v: tuple.__getitem__(v, slice(None)),
    list: list.copy,
    dict: dict.copy,
    set: lambda v: {*set.__iter__(v)},
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
}


def _plain_value(value: Any) -> object:
    """The plain data of an object of a subclass, whatever the subclass says of itself."""
    return next(copy for kind, copy in _PLAIN_COPIES.items() if issubclass(type(value), kind))(value)


def _exit_context(context: Any, *args: object) -> object:
    # Looked up on the type, as a with statement does.
    return type(context).__exit__(context, *args)


OPERATIONS: Mapping[str, Callable[..., object]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*BINARY, "eq", "lt", "le", "gt", "ge")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "invert", "abs", "index")},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem")},
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{function.__name__: function for function in (len, repr, hash, iter, next, getattr, setattr)},
    "call": _call_function,
    "is_instance": _instance_check,
    "data": _plain_value,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit_context,
}
"""By the name that a request has."""
