"""Two processes that use each other's objects: plain values travel as copies, everything else is handled.

Values travel as JSON without losing their type; nothing that is read can run anything. What is no plain data
stays where it is, and the other side has a `Handle` on it: its attributes are read and its methods called
there, and what comes of that travels in turn.

**What is handled never judges.** A side that does not trust the other (the tests') compares, counts, orders and
reckons with plain data that it has copied once, by Python's own means. What would need the word of an object
is a `Refusal`, and one refusal is remembered: whatever the tests make of it, they have not passed. The
exception are objects of a class that the tests ask for by name (`Handle` that is open): their operators are
methods, whose results travel like those of any other; yet of two objects that are said to be equal or in
order the data has to say so too.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import GeneratorType, TracebackType
from typing import Any, BinaryIO, cast

from plaudit.rewards.sandbox.plain import PLAIN, Packed, pack, plain_value, unpack

MAX_MESSAGE_BYTES = 8_000_000
MAX_FETCHED_ITEMS = 100_000
"""Items that are fetched of one iterable."""
Serve = Callable[[str, list[object], dict[str, object]], object]


class PeerEndedError(BaseException):
    """The other side has ended, or says what cannot be understood; no ``except Exception`` hides it."""


class Refusal(TypeError):
    """What was asked for would make an object of the other side a judge of itself."""


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
        """``serve`` does what the other side asks for; ``trusts``: whether its objects may judge."""
        self.trusts = trusts
        self._reader, self._writer, self._serve = reader, writer, serve
        # Holds a reference to all that was shown: a handle has a number only, and an id() may be used again.
        self._shared_objects: list[object] = []
        self._numbers: dict[int, int] = {}
        self._handles: dict[int, Handle] = {}
        self._errors: dict[str, type[BaseException]] = {}
        self._error_numbers: dict[type, int] = {}
        self.failed = ""
        """What is wrong whatever the tests make of it: the line has ended, a claim of theirs was caught."""
        self.refused = ""
        """What was refused first; empty where nothing was."""
        self.may_swallow: Callable[[TracebackType], bool] = lambda _: trusts
        """Whether a context manager of the other side may hear of an error, and end it."""

    def request(self, operation: str, /, *values: object, **named_values: object) -> Any:
        """Has the other side do something; meanwhile does what it asks for."""
        return unpack(self._answer(operation, values, named_values), self._resolve)

    def request_open(self, operation: str, /, *values: object, **named_values: object) -> Any:
        """The same; where an object comes of it, its operators may be used."""
        answer = self._answer(operation, values, named_values)
        return self._handle(answer, is_open=True) if _is_reference(answer) else unpack(answer, self._resolve)

    def request_closed(self, operation: str, *values: object) -> Any:
        """The same; where an object comes of it, its operators may no longer be used."""
        answer = self._answer(operation, values, {})
        return self._handle(answer, is_open=False) if _is_reference(answer) else unpack(answer, self._resolve)

    def _answer(self, operation: str, values: tuple[object, ...], named_values: dict[str, object]) -> Packed:
        packed = [self._pack(value) for value in values]
        self._send(
            ["ask", operation, packed, {name: self._pack(value) for name, value in named_values.items()}]
        )
        if operation not in _LOOKS:
            # What was handed over may have changed since it was copied.
            for handle in filter(_is_handle, [*values, *named_values.values()]):
                _state(handle).forget()
        while True:
            match self._receive():
                # Before it answers it may call back: a key function of ours, an iterator that we lent.
                case ["ask", str(wanted_operation), list(packed_args), dict(packed_kwargs)]:
                    self._handle_request(wanted_operation, packed_args, packed_kwargs)
                case ["give", value, list(after)]:
                    # They went as copies; as within one process, a function may change what it was given.
                    for place, content in after:
                        refill(values[place], unpack(content, self._resolve))
                    return value
                case ["end"] if operation in _STEPS:
                    raise StopIteration
                case ["fail", list(names), list(args)]:
                    raise _make_error(self._error_class(names), *(unpack(a, self._resolve) for a in args))
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

    def refuse(self, what: str) -> Refusal:
        """The refusal, remembered."""
        self.refused = self.refused or what
        return Refusal(what)

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
        if isinstance(caught.error, StopIteration) and operation in _STEPS:
            self._send(["end"])
        elif caught.error is not None:
            self._send_error(caught.error)

    def _send_error(self, error: BaseException) -> None:
        # Names only, as no class can travel: the tests' `except ValueError` still catches a subclass.
        names = [kind.__name__ for kind in type(error).__mro__]
        # Of a class of its own only the text, as its arguments mean something to that class alone.
        args = error.args if getattr(builtins, names[0], None) is type(error) else (str(error)[:1000],)
        self._send(["fail", names, [self._pack(arg) for arg in args]])

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
        return id(value) in self._numbers

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
        self.failed = reason
        return PeerEndedError(reason)

    def _pack(self, value: object) -> Packed:
        return pack(value, self._reference)

    def _reference(self, value: object) -> Packed:
        # It goes home as the object that it stands for, so `is` and isinstance hold on its own side.
        if _stands_in(value):
            return ["own", _state(value).number]
        if isinstance(value, type) and value in self._error_numbers:
            return ["own", self._error_numbers[value]]
        number = self._numbers.setdefault(id(value), len(self._shared_objects))
        if number == len(self._shared_objects):
            self._shared_objects.append(value)
        kind = type(value)
        if issubclass(kind, type) and issubclass(cast("type", value), BaseException):
            return ["error", number, [one.__name__ for one in cast("type", value).__mro__]]
        if issubclass(kind, PLAIN):
            return ["copy", number, self._pack(plain_value(value))]
        if kind is GeneratorType:
            return ["generator", number, None]
        return ["iterator" if hasattr(kind, "__next__") else "object", number, None]

    def _resolve(self, packed: Packed) -> object:
        match packed:
            case ["own", int(number)] if 0 <= number < len(self._shared_objects):
                return self._shared_objects[number]
            case ["error", int(number), list(names)]:
                kind = self._error_class(names)
                self._error_numbers.setdefault(kind, number)
                return kind
            case ["copy", int(number), data]:
                return self._copy(number, data)
            case ["generator", *_]:
                return _generate(self._handle(packed))
            case _:
                return self._handle(packed)

    def _handle(self, packed: Packed, *, is_open: bool | None = None) -> Handle:
        """The one handle on that object; None: as open as it was."""
        match packed:
            case [("object" | "iterator" | "generator" | "copy") as kind, int(number), _]:
                # Not asked whether it is true.
                if number not in self._handles:
                    self._handles[number] = Handle(_State(self, number, kind))
            case _:
                raise ValueError("no value")
        state = _state(self._handles[number])
        state.is_open = state.is_open if is_open is None else is_open
        return self._handles[number]

    def _copy(self, number: int, packed: Packed) -> object:
        data = unpack(packed, self._resolve)
        if type(data) not in _COPY_CLASSES:
            raise ValueError("no value")
        copy = _COPY_CLASSES[type(data)](data)
        copy.__dict__[_STATE] = _State(self, number, "copy")
        return copy

    def _error_class(self, names: list[str]) -> type[BaseException]:
        """The class of an error: a built-in one, or one of the same name that stands for the other side's."""
        first, *rest = map(str, names or ["Exception"])
        # These end loops, comprehensions and generators without a word: no call may raise them.
        if first in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
            return RuntimeError
        builtin_class = getattr(builtins, first, None)
        if isinstance(builtin_class, type) and issubclass(builtin_class, BaseException):
            return builtin_class
        if first not in self._errors:
            base = self._error_class(rest) if rest else Exception
            self._errors[first] = cast("type[BaseException]", type(first, (base,), {}))
        return self._errors[first]


def _is_reference(packed: Packed) -> bool:
    return isinstance(packed, list) and packed[:1] in (["copy"], ["object"], ["iterator"])


_STATE = "_plaudit_state"
_UNREAD: Any = object()
_STEPS = ("next", "send")
"""Operations that may come to an end."""
_LOOKS = frozenset(["data", "items", "hash", "is_instance", "is_subclass", "eq", "lt", "le", "gt", "ge"])
"""Operations that leave an object as it is."""


class _State:
    """What is known of an object of the other side."""

    __slots__ = ("data", "fetched", "has_data", "has_ended", "is_open", "items", "kind", "number", "peer")

    def __init__(self, peer: Peer, number: int, kind: str) -> None:
        self.peer, self.number, self.kind = peer, number, kind
        # Its operators may be used: it is of a class that the tests ask for.
        self.is_open = peer.trusts
        # It is of a subclass of plain data.
        self.has_data = kind == "copy"
        self.has_ended, self.fetched = False, 0
        self.forget()

    def forget(self) -> None:
        """What was copied of it is to be copied anew."""
        self.data = self.items = _UNREAD

    def ask(self, operation: str, /, *values: object, **named_values: object) -> Any:
        return self.peer.request(operation, *values, **named_values)


def _state(value: object) -> _State:
    return object.__getattribute__(value, _STATE)


def _is_handle(value: object) -> bool:
    return type(value) is Handle


def _stands_in(value: object) -> bool:
    return type(value) is Handle or type(value) in _COPY_CLASSES.values()


def open_class(handle: object) -> None:
    """Let the operators of this class's objects be used, since the tests ask for it by name."""
    if _is_handle(handle):
        _state(handle).is_open, _state(handle).kind = True, "class"


def _attribute(value: object, name: str) -> object:
    state = _state(value)
    try:
        attribute = state.ask("getattr", value, name)
    except AttributeError:
        # By hasattr, or getattr with a default, it would be what it likes each time.
        if state.is_open or name.startswith("_"):
            raise
        raise state.peer.refuse(f"an object that has no {name!r}") from None
    if name in _JUDGING_METHODS and _is_handle(attribute) and not state.is_open:
        raise state.peer.refuse(_NO_DATA)
    return attribute


_JUDGING_METHODS = frozenset(
    "issubset issuperset isdisjoint difference symmetric_difference union intersection startswith endswith "
    "count index find rindex rfind equals allclose isclose is_integer".split()
) | {name for name in dir(str) if name.startswith("is")}
"""Methods of plain data (and of numpy's) by which a test asks whether something is as it should be."""


class Handle:
    """Stands for an object of the other side."""

    __slots__ = (_STATE,)

    def __init__(self, state: _State) -> None:
        # Past this class's own __setattr__, which would ask the owner.
        object.__setattr__(self, _STATE, state)

    def __getattr__(self, name: str) -> object:
        return _attribute(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        _state(self).ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        _state(self).ask("delattr", self, name)

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        state = _state(self)
        ask = state.peer.request_open if state.kind == "class" else state.ask
        return ask("call", self, *args, **kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return _stands_in(instance) and _state(self).ask("is_instance", self, instance) is True

    def __subclasscheck__(self, subclass: type) -> bool:
        return _is_handle(subclass) and _state(self).ask("is_subclass", self, subclass) is True

    def __hash__(self) -> int:
        return _state(self).ask("hash", self)

    def __str__(self) -> str:
        return _state(self).ask("str", self)

    def __repr__(self) -> str:
        return _state(self).ask("repr", self)

    def __format__(self, form: str) -> str:
        return _by_owner("format", self, form) if form else str(self)

    def __bool__(self) -> bool:
        said = _state(self).ask("bool", self) is True
        if not said and not _state(self).is_open:
            raise _state(self).peer.refuse("an object that is false")
        return said

    def __len__(self) -> int:
        if _state(self).kind == "iterator" and not _state(self).is_open:
            # Also for whatever asks how long it is before it goes through it.
            raise TypeError("an iterator has no length")
        return _state(self).ask("len", self) if _state(self).is_open else len(_items(self))

    def __getitem__(self, key: Any) -> object:
        return _state(self).ask("getitem", self, key) if _state(self).is_open else _items(self)[key]

    def __contains__(self, item: object) -> bool:
        if _state(self).is_open:
            return _state(self).ask("contains", self, item) is True
        return item in _items(self)

    def __iter__(self) -> Iterator[object]:
        if _state(self).kind == "iterator":
            return self
        return iter(_state(self).ask("iter", self) if _state(self).is_open else _items(self))

    def __next__(self) -> object:
        return _step(self, "next")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # It hears of an error, and may end it, only where no claim of the tests is left out by that.
        hears = trace is not None and _state(self).peer.may_swallow(trace)
        return _state(self).ask("exit", self, *((kind, str(error)) if hears else ())) is True and hears


def _step(handle: Handle, operation: str, *args: object) -> object:
    state = _state(handle)
    # It has ended for good, whatever the other side would say now.
    if state.has_ended:
        raise StopIteration
    state.fetched += 1
    if state.fetched > MAX_FETCHED_ITEMS:
        raise ValueError(f"more than {MAX_FETCHED_ITEMS:,} items")
    try:
        return state.ask(operation, handle, *args)
    except StopIteration:
        state.has_ended = True
        raise


def _generate(handle: Handle) -> Iterator[object]:
    sent: object = None
    while True:
        try:
            item = _step(handle, "next") if sent is None else _step(handle, "send", sent)
        # A StopIteration that left this generator would become a RuntimeError.
        except StopIteration:
            return
        sent = yield item


def _items(handle: Handle) -> Any:
    """All that it holds, copied once."""
    state = _state(handle)
    if state.kind == "iterator":
        # All of it first: what goes on for ever would contain everything.
        return tuple(item for item in handle)
    if state.items is _UNREAD:
        try:
            state.items = state.ask("items", handle)
        except TypeError:
            raise state.peer.refuse(_NO_DATA) from None
    return state.items


def _data(value: Any) -> Any:
    """What it is made of, copied once."""
    if not _is_handle(value):
        return value
    state = _state(value)
    if state.data is _UNREAD:
        state.data = state.ask("data", value)
    return state.data


def _compare(name: str, left: object, right: object) -> bool:
    state = next(_state(value) for value in (left, right) if _is_handle(value))
    if state.peer.trusts:
        return bool(state.ask(name, left, right))
    if _is_handle(left) and _is_handle(right):
        return _compare_objects(name, state, left, right)
    if state.is_open and state.has_data:
        return bool(OPERATIONS[name](_data(left), _data(right)))
    # An object is no plain data, unless its class says otherwise, or arithmetic with plain data made it.
    is_other = not state.has_data and not (state.is_open and state.ask(name, left, right) is True)
    if name == "eq" and (left is None or right is None or is_other):
        return False
    raise state.peer.refuse(_NO_DATA)


def _compare_objects(name: str, state: _State, left: object, right: object) -> bool:
    said = state.ask(name, left, right) is True
    if name == "eq" and (not said or left is right):
        return said
    # Only their owner can compare them, but it is believed where the data says the same.
    with contextlib.suppress(TypeError):
        if bool(OPERATIONS[name](_data(left), _data(right))) == said:
            return said
    raise state.peer.refuse("objects that compare otherwise than what they are made of")


def _by_owner(name: str, handle: Handle, *args: object) -> Any:
    if not _state(handle).is_open:
        raise _state(handle).peer.refuse(_NO_DATA)
    return _state(handle).peer.request_open(name, handle, *args)


def _arithmetic(name: str, *operands: object) -> object:
    handles = [operand for operand in operands if _is_handle(operand)]
    peer = _state(handles[0]).peer
    if not any(_state(handle).is_open for handle in handles):
        raise peer.refuse(_NO_DATA)
    if peer.trusts or len(handles) == len(operands):
        return peer.request_open(name, *operands)
    # The other side was told a plain operand, which may be what is expected: what comes of that can be
    # handled, and is no number. Of subclasses of plain data the number is reckoned here.
    result = peer.request_closed(name, *operands)
    if _is_handle(result):
        return result
    if not all(_state(handle).is_open and _state(handle).has_data for handle in handles):
        raise peer.refuse(_NO_DATA)
    return OPERATIONS[name](*map(_data, operands))


_NO_DATA = "an object stands where plain data is needed"


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    # Made by a function, since a closure in the loop would see only the loop's last name.
    def operation(self: Handle, *args: object) -> Any:
        if name in _COMPARISONS:
            return _compare(name, self, *args)
        if name in _PAIRS:
            return _arithmetic(name, *((*args, self) if reflected else (self, *args)))
        # To change an object, or to enter it, is no judgement.
        return (_state(self).ask if name in _DEEDS else _by_owner)(name, self, *args)

    return operation


def _mutable(value: object) -> bool:
    # By exact type, as in `pack`: a subclass went as a reference, so there is no copy to bring up to date.
    return type(value) in (list, dict, set, bytearray)


def refill(old: object, new: object) -> None:
    """Gives a container the content of another of its kind."""
    if isinstance(old, list | bytearray) and isinstance(new, list | bytearray):
        # In place, as whoever else holds the container has to see it too.
        old[:] = new  # pyright: ignore
    elif isinstance(old, dict | set) and type(old) is type(new):
        old.clear()
        old.update(new)  # pyright: ignore


_SHIFTS = ("lshift", "rshift")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor", *_SHIFTS)
_PAIRS = (*_BINARY, "pow", "divmod")
_COMPARISONS = ("eq", "lt", "le", "gt", "ge")
_ROUNDINGS = ("trunc", "floor", "ceil")
_CONVERSIONS = ("int", "float", "complex", "round")
_SIGNS = ("neg", "pos", "abs", "invert", "index")
_DEEDS = ("setitem", "delitem", "enter")
for _name in (*_PAIRS, *_COMPARISONS, *_ROUNDINGS, *_CONVERSIONS, *_SIGNS, *_DEEDS, "reversed"):
    setattr(Handle, f"__{_name}__", _operator(_name, reflected=False))
for _name in _PAIRS:
    setattr(Handle, f"__r{_name}__", _operator(_name, reflected=True))


def _copy_class(kind: type) -> type:
    """A subclass of plain data that has its data here and all else at its owner."""
    names: dict[str, Any] = {
        "__getattr__": _attribute,
        "__repr__": lambda self: _state(self).ask("repr", self),
        # What copies, copies the data.
        "__reduce_ex__": lambda self, _: (kind, (plain_value(self),)),
    }
    if kind is tuple:
        # A named tuple may have them as fields.
        names.update({name: property(_field(name)) for name in ("count", "index")})
    if kind is dict:
        names["__missing__"] = lambda self, key: _state(self).ask("getitem", self, key)
    return type(kind.__name__, (kind,), names)


def _field(name: str) -> Callable[[Any], object]:
    def get(copy: Any) -> object:
        field = _state(copy).ask("getattr", copy, name)
        return getattr(tuple(copy), name) if _is_handle(field) else field

    return get


_COPY_CLASSES: Mapping[type, type] = {kind: _copy_class(kind) for kind in PLAIN}


def _call_function(function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    return function(*args, **kwargs)


def _list_items(value: Iterable[object]) -> object:
    items = tuple(itertools.islice(iter(value), MAX_FETCHED_ITEMS + 1))
    if len(items) > MAX_FETCHED_ITEMS:
        raise ValueError(f"more than {MAX_FETCHED_ITEMS:,} items")
    return items


def _describe_object(value: Any) -> object:
    """What an object is made of: its data where it has some, else its class and its attributes."""
    if isinstance(value, PLAIN):
        return plain_value(value)
    names: Iterable[str] = vars(value) if hasattr(value, "__dict__") else getattr(value, "__slots__", ())
    if is_dataclass(value):
        names = [one.name for one in fields(value) if one.compare]
    return (type(value).__qualname__, *(getattr(value, name, None) for name in names))


def _exit_context(context: Any, kind: type[BaseException] | None = None, text: str = "") -> object:
    # Looked up on the type, as a with statement does.
    leave = type(context).__exit__
    if kind is None:
        return leave(context, None, None, None)
    error = _make_error(kind, text)
    try:
        return bool(leave(context, kind, error, None))
    except kind as raised:
        # A generator that is a context raises again what it does not end.
        if raised is error:
            return False
        raise


def _make_error(kind: type[BaseException], *args: object) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    # Not by the making of a class of somebody's own, which may want other arguments than a text.
    if kind.__module__ == "builtins":
        kind.__init__(error, *args)
    return error


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, f"__{name}__") for name in (*_BINARY, *_COMPARISONS)},
    **{name: getattr(operator, name) for name in _SIGNS},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    **{name: getattr(math, name) for name in _ROUNDINGS},
    **{kind.__name__: kind for kind in (bool, int, float, complex, str, reversed)},
    **{function.__name__: function for function in (len, repr, hash, iter, next, getattr, setattr)},
    **{function.__name__: function for function in (pow, divmod, round, format, delattr)},
    "call": _call_function,
    "is_instance": lambda kind, value: isinstance(value, kind),
    "is_subclass": lambda kind, value: issubclass(value, kind),
    "send": lambda generator, value: generator.send(value),
    "data": _describe_object,
    "items": _list_items,
    "enter": lambda context: type(context).__enter__(context),
    "exit": _exit_context,
}
"""By the name that a request has."""
