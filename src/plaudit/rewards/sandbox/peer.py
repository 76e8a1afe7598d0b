"""Two processes that use each other's objects: plain values travel as copies, everything else is handled.

Values travel as JSON without losing their type; nothing that is read can run anything. What is no plain data
stays where it is, and the other side has a `Handle` on it: its attributes are read and its methods called
there, and what comes of that travels in turn.

**What is handled never judges.** A side that does not trust the other (the tests') compares, counts, orders
and reckons with plain data that it has copied once, by Python's own means. What would need the word of an
object is refused, and remembered: whatever the tests make of the error, they have not passed. Objects of a
class that the tests ask for by name are open: their operators are methods like others. Yet of two that are
said to be equal or in order, what they are made of has to say so too.
"""

import builtins
import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GeneratorType, TracebackType
from typing import Any, BinaryIO, cast

from plaudit.rewards.sandbox import plain

MAX_MESSAGE_BYTES = 8_000_000
Serve = Callable[[str, list[object], dict[str, object]], object]


class PeerEndedError(BaseException):
    """The other side has ended, or says what cannot be understood; no ``except Exception`` hides it."""


class CaptureError:
    """Holds whatever is raised within; a stranger's code may raise anything, and this process lives on.
    Example: ``with CaptureError() as caught: exec(code)``; then ``caught.error``."""

    error: BaseException | None = None
    """What was raised; None where nothing was."""

    def __enter__(self) -> "CaptureError":
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class Peer:
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
        """What is wrong whatever the tests make of it: the line has ended, or a claim of theirs was lost."""
        self.refused = ""
        """What was refused first."""
        self.may_swallow: Callable[[TracebackType], bool] = lambda _: trusts
        """Whether a context manager of the other side may end an error."""

    def request(self, operation: str, /, *values: object, **named_values: object) -> Any:
        """Has the other side do something; meanwhile does what it asks for."""
        return self.ask(operation, values, named_values)

    def ask(
        self,
        operation: str,
        values: tuple[object, ...],
        named_values: Mapping[str, object] | None = None,
        *,
        opens: bool | None = None,
    ) -> Any:
        """The same; ``opens``: whether the operators of an object that comes of it may be used."""
        named = {name: self._pack(value) for name, value in (named_values or {}).items()}
        self._send(["ask", operation, [self._pack(value) for value in values], named])
        while True:
            match self._receive():
                # Before it answers it may call back: a key function of ours, an iterator that we lent.
                case ["ask", str(wanted), list(args), dict(kwargs)]:
                    self._handle_request(wanted, args, kwargs)
                case ["give", value, list(after)]:
                    # They went as copies; as within one process, a function may change what it was given.
                    for place, content in after:
                        plain.refill(values[place], plain.unpack(content, self._resolve))
                    return self._opened(plain.unpack(value, self._resolve), opens)
                case ["end"] if operation in _STEPS:
                    raise StopIteration
                case ["fail", list(names), list(args)]:
                    raise plain.make_error(
                        self._error_class(names), *(plain.unpack(a, self._resolve) for a in args)
                    )
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

    def refuse(self, what: str) -> TypeError:
        """The error to raise where an object would be a judge of itself; it is remembered."""
        self.refused = self.refused or what
        return TypeError(what)

    def owns(self, value: object) -> bool:
        return id(value) in self._numbers

    def _handle_request(
        self, operation: str, args: list[plain.Packed], kwargs: dict[str, plain.Packed]
    ) -> None:
        with CaptureError() as caught:
            values = [plain.unpack(arg, self._resolve) for arg in args]
            named_values = {name: plain.unpack(value, self._resolve) for name, value in kwargs.items()}
            value = self._pack(self._serve(operation, values, named_values))
            # What was changed in place has to be changed on the other side too.
            after = [
                [at, now]
                for at, value in enumerate(values)
                if type(value) in plain.MUTABLE and (now := self._pack(value)) != args[at]
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

    def _send(self, message: plain.Packed) -> None:
        # JSON escapes newlines inside strings, so one line is one message.
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a value of {len(line):,} bytes is too large")
        try:
            self._writer.write(line)
            self._writer.flush()
        except OSError as error:
            raise self._mark_ended("the other side has ended") from error

    def _receive(self) -> plain.Packed:
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

    def _pack(self, value: object) -> plain.Packed:
        return plain.pack(value, self._reference)

    def _reference(self, value: object) -> plain.Packed:
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
            return ["error", number, [base.__name__ for base in cast("type", value).__mro__]]
        if issubclass(kind, plain.PLAIN):
            return ["copy", number, self._pack(plain.plain_value(value))]
        goes_on = "iterator" if hasattr(kind, "__next__") else "object"
        return ["generator" if kind is GeneratorType else goes_on, number, None]

    def _resolve(self, packed: plain.Packed) -> object:
        match packed:
            case ["own", int(number)] if 0 <= number < len(self._shared_objects):
                return self._shared_objects[number]
            case ["error", int(number), list(names)]:
                kind = self._error_class(names)
                self._error_numbers.setdefault(kind, number)
                return kind
            case [("object" | "iterator" | "generator" | "copy") as kind, int(number), content]:
                # One for each object, so that `is` holds.
                handle = self._handles.setdefault(number, Handle(_State(self, number, kind)))
                if kind == "copy":
                    data = plain.unpack(content, self._resolve)
                    if type(data) not in _COPY_CLASSES:
                        raise ValueError("no value")
                    copy = _COPY_CLASSES[type(data)](data)
                    copy.__dict__[_STATE] = _state(handle)
                    return copy
                return _generate(handle) if kind == "generator" else handle
            case _:
                raise ValueError("no value")

    def _opened(self, value: object, opens: bool | None) -> object:
        if opens is None or not _stands_in(value):
            return value
        _state(value).is_open = opens
        return self._handles[_state(value).number]

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


_STATE = "_plaudit_state"
_STEPS = ("next", "send")


class _State:
    __slots__ = ("copies", "fetched", "has_data", "is_open", "kind", "number", "peer")

    def __init__(self, peer: Peer, number: int, kind: str) -> None:
        self.peer, self.number, self.kind = peer, number, kind
        # Its operators may be used: it is of a class that the tests ask for.
        self.is_open = peer.trusts
        # It is of a subclass of plain data.
        self.has_data = kind == "copy"
        # How many items an iterator has given.
        self.fetched: int | float = 0
        # What it told of itself, by the question.
        self.copies: dict[tuple[object, ...], Any] = {}


def _state(value: object) -> _State:
    return object.__getattribute__(value, _STATE)


def _stands_in(value: object) -> bool:
    return type(value) is Handle or type(value) in _COPY_CLASSES.values()


def open_class(handle: object) -> None:
    """Let the operators of this class's objects be used, since the tests ask for it by name."""
    if type(handle) is Handle:
        _state(handle).is_open, _state(handle).kind = True, "class"


def _attribute(value: object, name: str) -> object:
    state = _state(value)
    try:
        attribute = _ask("getattr", value, name)
    except AttributeError:
        # By hasattr, or getattr with a default, it would be what it likes each time.
        if state.is_open or name.startswith("_"):
            raise
        raise state.peer.refuse(f"an object that has no {name!r}") from None
    if name in _JUDGING_METHODS and type(attribute) is Handle and not state.is_open:
        raise state.peer.refuse(_NO_DATA)
    return attribute


_SETS = (
    *("issubset", "issuperset", "isdisjoint"),
    *("difference", "symmetric_difference", "union", "intersection"),
)
_PLACES = ("startswith", "endswith", "count", "index", "find", "rindex", "rfind")
_JUDGING_METHODS = frozenset([*_SETS, *_PLACES, "equals", "allclose", "isclose", "is_integer"]).union(
    name for name in dir(str) if name.startswith("is")
)
"""Methods of plain data (and of numpy's) by which a test asks whether something is as it should be."""


class Handle:
    __slots__ = (_STATE,)
    __getattr__ = _attribute

    def __init__(self, state: _State) -> None:
        # Past this class's own __setattr__, which would ask the owner.
        object.__setattr__(self, _STATE, state)

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        opens = True if _state(self).kind == "class" else None
        return _state(self).peer.ask("call", (self, *args), kwargs, opens=opens)

    def __instancecheck__(self, instance: object) -> bool:
        return _stands_in(instance) and _ask("is_instance", self, instance) is True

    def __subclasscheck__(self, subclass: type) -> bool:
        return type(subclass) is Handle and _ask("is_subclass", self, subclass) is True

    def __format__(self, form: str) -> str:
        return _by_owner("format", self, form) if form else str(self)

    def __bool__(self) -> bool:
        is_true = _ask_once("bool", self) is True
        if not is_true and not _state(self).is_open:
            raise _state(self).peer.refuse("an object that is false")
        return is_true

    def __iter__(self) -> Iterator[object]:
        if _state(self).kind == "iterator":
            return cast("Iterator[object]", self)
        return iter(_ask("iter", self) if _state(self).is_open else _items(self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or issubclass(kind, AssertionError):
            # A test's own verdict, which it must neither see nor end.
            _ask("exit", self)
            return False
        ended = _ask("exit", self, kind, str(error)) is True
        if ended and not (trace and _state(self).peer.may_swallow(trace)):
            raise _state(self).peer.refuse("an object that ends an error, and with it what was to be tested")
        return ended


def _ask(operation: str, value: object, /, *args: object) -> Any:
    _state(value).copies.clear()
    return _state(value).peer.request(operation, value, *args)


def _ask_once(question: str, value: object, *args: object) -> Any:
    """What it says of itself: one answer, until it is handled again."""
    copies = _state(value).copies
    if (question, *args) not in copies:
        copies[question, *args] = _state(value).peer.request(question, value, *args)
    return copies[question, *args]


def _step(operation: str, handle: Handle, *args: object) -> object:
    state = _state(handle)
    # It has ended for good, whatever the other side would say now.
    if state.fetched == math.inf:
        raise StopIteration
    state.fetched += 1
    if state.fetched > plain.MAX_FETCHED_ITEMS:
        raise ValueError(f"more than {plain.MAX_FETCHED_ITEMS:,} items")
    try:
        return _ask(operation, handle, *args)
    except StopIteration:
        state.fetched = math.inf
        raise


def _generate(handle: Handle) -> Iterator[object]:
    sent: object = None
    while True:
        try:
            item = _step("next", handle) if sent is None else _step("send", handle, sent)
        # A StopIteration that left this generator would become a RuntimeError.
        except StopIteration:
            return
        sent = yield item


def _items(handle: Handle) -> tuple[object, ...]:
    with contextlib.suppress(TypeError):
        items = _ask_once("items", handle)
        if type(items) is tuple:
            return items
    raise _state(handle).peer.refuse(_NO_DATA)


def _by_items(name: str, handle: Handle, *args: object) -> Any:
    """What is asked of a container: of the copy, where it is not open."""
    if _state(handle).is_open:
        return _ask(name, handle, *args)
    if _state(handle).kind != "iterator":
        return plain.OPERATIONS[name](_items(handle), *args)
    # Before any item is had: `list` asks for a length, too.
    if name != "contains":
        raise TypeError(f"an iterator has no {name}")
    # All of it first: what goes on for ever would contain everything.
    return args[0] in [item for item in handle]


def _data(value: object) -> Any:
    return _ask_once("data", value) if type(value) is Handle else value


def _compare(name: str, left: object, right: object) -> bool:
    state = next(_state(value) for value in (left, right) if type(value) is Handle)
    if state.peer.trusts:
        return bool(state.peer.request(name, left, right))
    if type(left) is Handle and type(right) is Handle:
        holds = state.peer.request(name, left, right) is True
        if name == "eq" and (not holds or left is right):
            return holds
        # Only their owner can compare them, but it is believed where the data says the same.
        with contextlib.suppress(TypeError):
            if bool(plain.OPERATIONS[name](_data(left), _data(right))) == holds:
                return holds
        raise state.peer.refuse("objects that compare otherwise than what they are made of")
    if state.is_open and state.has_data:
        return bool(plain.OPERATIONS[name](_data(left), _data(right)))
    # An object is no plain data, unless its class says otherwise, or arithmetic with plain data made it.
    is_other = not state.has_data and not (state.is_open and state.peer.request(name, left, right) is True)
    if name == "eq" and (left is None or right is None or is_other):
        return False
    raise state.peer.refuse(_NO_DATA)


def _by_owner(name: str, handle: Handle, *args: object) -> Any:
    if not _state(handle).is_open:
        raise _state(handle).peer.refuse(_NO_DATA)
    return _state(handle).peer.ask(name, (handle, *args), opens=True)


def _arithmetic(name: str, *operands: object) -> object:
    handles = [operand for operand in operands if type(operand) is Handle]
    peer = _state(handles[0]).peer
    if not any(_state(handle).is_open for handle in handles):
        raise peer.refuse(_NO_DATA)
    if peer.trusts or len(handles) == len(operands):
        return peer.ask(name, operands, opens=True)
    # The other side was told a plain operand, which may be what is expected: what comes of that can be
    # handled, and is no number. Of subclasses of plain data the number is reckoned here.
    result = peer.ask(name, operands, opens=False)
    if type(result) is Handle:
        return result
    if not all(_state(handle).is_open and _state(handle).has_data for handle in handles):
        raise peer.refuse(_NO_DATA)
    return plain.OPERATIONS[name](*map(_data, operands))


_NO_DATA = "an object stands where plain data is needed"


def _method(do: Callable[..., Any], name: str) -> Callable[..., Any]:
    # Made by a function, since a closure in the loop would see only the loop's last name.
    return lambda self, *args: do(name, self, *args)


def _reflected(name: str) -> Callable[..., Any]:
    return lambda self, other: _arithmetic(name, other, self)


_METHODS: Sequence[tuple[Callable[..., Any], Sequence[str]]] = (
    (_compare, plain.COMPARISONS),
    (_arithmetic, plain.PAIRS),
    (_by_owner, (*plain.SIGNS, "int", "float", "round")),
    (_by_items, ("len", "getitem", "contains")),
    (_step, ("next",)),
    # What is no judgement: what it says of itself, to change it, to enter it.
    (_ask_once, ("str", "repr", "hash")),
    (_ask, ("setattr", "delattr", "setitem", "delitem", "enter")),
)
for _do, _names in _METHODS:
    for _name in _names:
        setattr(Handle, f"__{_name}__", _method(_do, _name))
for _name in plain.PAIRS:
    setattr(Handle, f"__r{_name}__", _reflected(_name))


def _copy_class(kind: type) -> type:
    """A subclass of plain data that has its data here, and all else at its owner."""
    names: dict[str, Any] = {
        "__getattr__": _attribute,
        "__repr__": lambda self: _ask_once("repr", self),
        # What copies it copies the data.
        "__reduce_ex__": lambda self, _: (kind, (plain.plain_value(self),)),
        "__missing__": lambda self, key: _ask_once("getitem", self, key),
    }
    # A named tuple may have fields of these names.
    fields = {name: property(_method_or_field(name)) for name in ("count", "index")} if kind is tuple else {}
    return type(kind.__name__, (kind,), names | fields)


def _method_or_field(name: str) -> Callable[[Any], object]:
    def get(copy: Any) -> object:
        field = _ask("getattr", copy, name)
        return getattr(plain.plain_value(copy), name) if type(field) is Handle else field

    return get


_COPY_CLASSES: Mapping[type, type] = {kind: _copy_class(kind) for kind in plain.PLAIN}
