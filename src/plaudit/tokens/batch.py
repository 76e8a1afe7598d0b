"""The token batch of the whole project: a set of prompts and, for each, its completions.

A completion token is *trained* where the mask is True: the policy chose it, its end-of-turn token included.
Every per-token tensor is aligned to completions, ``[N, T]``: no shifts, no ``-100``.

What a model takes beside tokens (pictures, say) is an extra with a declared axis, so that a row keeps its
own: of a prompt, of each of its completions, or a list of items of the prompt, as many as it has. A batch
stacks those of prompts and completions and puts items one behind the other.

A row is known by its content hash, never by its tokens alone: two prompts of equal tokens may show different
pictures. Where a row came from is no part of what it is.
"""

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from itertools import accumulate
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from plaudit.data.records import Text
from plaudit.errors import UserError

Axis = Literal["prompt", "completion", "item"]
"""What the rows of an extra are: one for a prompt, one for each completion, any number for a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extra:
    """What one row hands to the model under a name; two are equal when every bit is.

    Example: ``Extra(value=torch.zeros(2, 3, 224, 224), axis="item")``: the prompt shows two pictures.
    """

    value: Tensor
    """The numbers, never changed afterwards: ``[…]`` of a prompt, ``[K, …]`` of K completions, ``[I, …]``."""
    axis: Axis
    """What its rows are."""
    pad: bool | int | float | None = None
    """What fills up shorter rows of a batch on the right; None: all have the same shape."""
    within_row: bool = False
    """Whether the model takes items as those of one row, ``[1, I, …]``."""
    _id: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Take an array too."""
        object.__setattr__(self, "value", torch.as_tensor(self.value))
        if self.axis != "prompt" and self.value.ndim == 0:
            raise UserError(f"an extra of axis {self.axis!r} needs a row for each {self.axis}, not a number")

    @property
    def id(self) -> str:
        """The hash of its bits, type, shape and axis."""
        if self._id is None:
            value = self.value.detach().cpu().contiguous()
            # By bits: NaN equals itself here, and 0.0 and −0.0 differ, as a model may see them differ.
            bits = value.reshape(-1).view(torch.uint8).numpy()
            facts = f"{self.axis}/{value.dtype}/{tuple(value.shape)}/{self.pad!r}"
            object.__setattr__(self, "_id", digest(facts, bits.tobytes()))
        assert self._id is not None
        return self._id

    def select(self, rows: Sequence[int]) -> "Extra":
        """The same of these completions only."""
        # `replace` begins without the cached hash, which was that of all rows.
        return replace(self, value=self.value[list(rows)])

    def __eq__(self, other: object) -> bool:
        """Whether every bit, the type, the shape and the axis are the same."""
        return isinstance(other, Extra) and self.id == other.id

    def __hash__(self) -> int:
        """Equal extras have equal hashes."""
        return hash(self.id)


class LazyExtra(Extra):
    """Items that are read whenever a batch needs them: pictures of many rows would fill the memory."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Tensor], id: str, *, pad: float | None, within_row: bool) -> None:
        """``id`` is of all that ``read`` gives, which is the same every time."""
        fields = {"_read": read, "_id": id, "axis": "item", "pad": pad, "within_row": within_row}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def value(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._read()


POSITIONS = "position_ids"
"""The extra of items that says where each token of a prompt is, ``[L, 3]``: in time, row and column. Where a
model counts them for pictures, answers go on behind the largest."""
Extras = Mapping[str, Extra]
"""What a row hands to the model beside tokens, by the name of the model's argument."""
NO_EXTRAS: Extras = {}
ExtrasReader = Callable[[Text], tuple[Text, Extras]]
"""From a prompt to its words, with whatever stands there for a picture, and what they are shown with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExtra:
    """One extra of all rows of a batch.

    Example: ``batch.extras["pixel_values"].value`` is ``[I, 3, 224, 224]`` for the I pictures of all prompts.
    """

    value: Tensor
    """``[P, …]`` of prompts, ``[N, …]`` of completions, ``[I, …]`` of items."""
    axis: Axis
    prompt_I: Int[Tensor, " I"] | None
    within_row: bool = False

    def to(self, device: torch.device | str) -> "BatchExtra":
        prompt_I = None if self.prompt_I is None else self.prompt_I.to(device)
        return replace(self, value=self.value.to(device), prompt_I=prompt_I)

    def rows_for(self, prompts: Sequence[int]) -> Tensor:
        """What a model is handed that reads these prompts in this order, each as often as it is named.
        Completions are read in their own order, whatever is computed once."""
        device = self.value.device
        if self.axis == "completion":
            return self.value
        if self.prompt_I is None:
            return self.value[torch.tensor(prompts, device=device)]
        # Without shared prompts a prompt is read once for each completion, and its pictures with it.
        items = self.value[torch.cat([(self.prompt_I == p).nonzero()[:, 0] for p in prompts])]
        return items[None] if self.within_row else items


def digest(*parts: bytes | str) -> str:
    """A content hash of 128 bits, the same in every process; where one part ends and the next begins counts.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    state = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def extras_digest(extras: Extras, axes: Sequence[Axis]) -> str:
    # Sorted: a dict's order is that of its making and no part of what it says.
    named = sorted((name, extra.id) for name, extra in extras.items() if extra.axis in axes)
    return digest(*(part for pair in named for part in pair)) if named else ""


def collate_extras(rows: Sequence[Extras], origins: Sequence[str]) -> dict[str, BatchExtra]:
    """The extras of a batch's prompts with their completions; ``origins`` name the rows in errors.
    A row without items has none of them; an extra of prompts or completions has to be there in every row."""
    names = dict.fromkeys(name for extras in rows for name in extras)
    return {name: _collate(name, [extras.get(name) for extras in rows], origins) for name in names}


def _collate(name: str, column: Sequence[Extra | None], origins: Sequence[str]) -> BatchExtra:
    first = next(extra for extra in column if extra is not None)
    for extra, origin in zip(column, origins, strict=True):
        where = f"{origin or 'a row'}: the extra {name!r}"
        if extra is None and first.axis != "item":
            raise UserError(f"{where} is missing, and other rows of its batch have it; give it to all rows")
        if extra is not None and (extra.axis, extra.value.dtype) != (first.axis, first.value.dtype):
            raise UserError(
                f"{where} is of axis {extra.axis!r} in {extra.value.dtype}, and in another row of its batch "
                f"of axis {first.axis!r} in {first.value.dtype}; declare it alike in all rows"
            )
    # Items alone may be missing from a row: a prompt without pictures stands beside one with two.
    present = [(p, extra.value) for p, extra in enumerate(column) if extra is not None]
    if first.axis == "prompt":
        value = _joined(name, [value[None] for _, value in present], first.pad)
        return BatchExtra(value=value, axis="prompt", prompt_I=None)
    value = _joined(name, [value for _, value in present], first.pad)
    items = torch.tensor([p for p, rows in present for _ in rows], dtype=torch.int64)
    owners = items if first.axis == "item" else None
    return BatchExtra(value=value, axis=first.axis, prompt_I=owners, within_row=first.within_row)


def _joined(name: str, rows: Sequence[Tensor], pad: bool | int | float | None) -> Tensor:
    """The rows one behind the other, each filled up on the right to the shape of the largest."""
    shapes = {tuple(value.shape[1:]) for value in rows}
    if len(shapes) == 1:
        return torch.cat(list(rows))
    if pad is None or len({len(shape) for shape in shapes}) > 1:
        raise UserError(
            f"the extra {name!r} has rows of the shapes {sorted(shapes)} in one batch; give them the same "
            "shape, or declare what fills them up (pad)"
        )
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    joined = rows[0].new_full((sum(map(len, rows)), *largest), pad)
    start = 0
    for value in rows:
        joined[(slice(start, start + len(value)), *map(slice, value.shape[1:]))] = value
        start += len(value)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer as tokens.

    Example: ``Completion(ids=(9, 4, 2), mask=(True, True, True), finished=True)``
    """

    ids: tuple[int, ...]
    """The tokens, from the first one after the prompt to the end-of-turn token."""
    mask: tuple[bool, ...]
    """True where the policy chose the token (its end-of-turn token too)."""
    finished: bool
    """True when the answer ended by itself; False when it was cut."""

    def __post_init__(self) -> None:
        """Refuse what no model can score."""
        if not self.ids:
            raise UserError("a completion needs at least one token; an empty answer has its end of turn")
        if len(self.ids) != len(self.mask):
            raise UserError(f"a completion of {len(self.ids)} tokens has a mask of {len(self.mask)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One prompt and its K completions, as tokens.

    Example: ``Example(prompt=(1, 5, 6), completions=(Completion(ids=(7, 2), ...),), origin="a.jsonl:3")``
    """

    prompt: tuple[int, ...]
    """The prompt's tokens: exactly those that the model sees before it answers; never empty."""
    completions: tuple[Completion, ...]
    """The K answers."""
    origin: str = ""
    """File and row."""
    extras: Extras = field(default_factory=dict[str, Extra], hash=False)
    """What the model takes beside tokens, by the name of its argument."""
    has_tools: bool = False
    """Whether the prompt holds the schemas of tools: such a prompt is never cut."""
    _prompt_id: str | None = field(default=None, init=False, repr=False, compare=False)
    _completion_ids: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a prompt without a state to predict the first answered token from."""
        if not self.prompt:
            where = f"{self.origin}: " if self.origin else ""
            raise UserError(
                f"{where}the prompt has no tokens, so nothing predicts the answer's first one; "
                "write a prompt, or use a tokenizer that begins every text with a token"
            )
        for name, extra in self.extras.items():
            if extra.axis == "completion" and len(extra.value) != len(self.completions):
                raise UserError(
                    f"{self.origin or 'a row'}: the extra {name!r} has {len(extra.value)} rows for "
                    f"{len(self.completions)} completions; give it one for each"
                )

    @property
    def id(self) -> str:
        """The content hash of prompt, completions, masks and extras; ``origin`` is no part of it."""
        return digest(self.prompt_id, *self.completion_ids)

    @property
    def prompt_id(self) -> str:
        """The content hash of the prompt alone, what it shows beside tokens included."""
        if self._prompt_id is None:
            object.__setattr__(self, "_prompt_id", prompt_id(self.prompt, self.extras))
        assert self._prompt_id is not None
        return self._prompt_id

    @property
    def completion_ids(self) -> tuple[str, ...]:
        """The content hash of each completion together with its prompt."""
        # Kept once made: caches, replay and seeds ask for the hash of every row at every step.
        if self._completion_ids is None:
            ids = tuple(
                digest(
                    self.prompt_id,
                    token_bytes(completion.ids),
                    bytes(completion.mask),
                    # A cut answer and a finished one of equal tokens are two: a reward may tell them apart.
                    bytes([completion.finished]),
                    extras_digest(self.completion_extras([k]), ("completion",)),
                )
                for k, completion in enumerate(self.completions)
            )
            object.__setattr__(self, "_completion_ids", ids)
        assert self._completion_ids is not None
        return self._completion_ids

    @property
    def prompt_extras(self) -> Extras:
        """The extras of the prompt, its items included."""
        return {name: extra for name, extra in self.extras.items() if extra.axis != "completion"}

    def completion_extras(self, indices: Sequence[int]) -> Extras:
        """The extras of these completions."""
        extras = {name: extra for name, extra in self.extras.items() if extra.axis == "completion"}
        return {name: extra.select(indices) for name, extra in extras.items()}

    def select(self, indices: Sequence[int]) -> "Example":
        """The same prompt with only these completions, in this order."""
        return self.with_completions_of(self, indices)

    def with_completions_of(self, other: "Example", indices: Sequence[int]) -> "Example":
        """This prompt with these completions of another row."""
        return replace(
            self,
            # `replace` also forgets the cached hashes: they were those of other completions.
            completions=tuple(other.completions[k] for k in indices),
            extras={**self.prompt_extras, **other.completion_extras(indices)},
        )

    @property
    def trained_tokens(self) -> int:
        """How many tokens of all completions are trained."""
        return sum(sum(completion.mask) for completion in self.completions)

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed when the prompt is shared."""
        return len(self.prompt) + sum(len(completion.ids) for completion in self.completions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """P prompts and their N completions, right-padded with zeros.

    Example: ``batch_of([example, example])`` with K = 2 each has ``prompt_PL`` of two rows and
    ``completion_NT`` of four, ``group_N = [0, 0, 1, 1]``.
    """

    prompt_PL: Int[Tensor, "P L"]
    """Prompt tokens."""
    prompt_length_P: Int[Tensor, " P"]
    """How many of them are real."""
    completion_NT: Int[Tensor, "N T"]
    """Completion tokens."""
    length_N: Int[Tensor, " N"]
    """How many of them are real."""
    mask_NT: Bool[Tensor, "N T"]
    """True where the policy chose the token."""
    group_N: Int[Tensor, " N"]
    """Which prompt each completion answers; never falls from left to right."""
    finished_N: Bool[Tensor, " N"]
    """Whether each completion ended by itself."""
    origin_N: tuple[str, ...]
    """File and row of each completion."""
    extras: Mapping[str, BatchExtra] = field(default_factory=dict[str, BatchExtra])
    """What the model takes beside tokens, by the name of its argument."""

    # What `to` knows of the batch it moves; `replace` makes a batch that knows nothing of it.
    _host: "TokenBatch | None" = field(default=None, init=False, repr=False, compare=False)
    _trained_M: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def host(self) -> "TokenBatch":
        """This batch in the memory of the host, where reading its numbers waits for no device."""
        if self.completion_NT.device.type == "cpu" and self._host is None:
            return self
        if self._host is None:
            object.__setattr__(self, "_host", self._moved(torch.device("cpu")))
        assert self._host is not None
        return self._host

    @property
    def trained_M(self) -> Int[Tensor, " M"]:
        """Where the trained tokens stand in the flattened ``[N·T]``, on the batch's own device.

        How many there are has to be known to select them, so a mask on a device would be waited for.
        """
        if self._trained_M is None:
            place_M = self.host.mask_NT.flatten().nonzero()[:, 0]
            object.__setattr__(self, "_trained_M", place_M.to(self.mask_NT.device, non_blocking=True))
        assert self._trained_M is not None
        return self._trained_M

    def training_only(self, which_m: Tensor) -> "TokenBatch":
        """The same batch with only these of its M trained tokens; ``which_m`` counts them on the host."""
        host = self.host
        mask_NT = torch.zeros_like(host.mask_NT)
        mask_NT.view(-1)[host.trained_M[which_m]] = True
        return replace(host, mask_NT=mask_NT).to(self.mask_NT.device)

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on another device; what it was made of on the host stays at hand."""
        target, is_on_host = torch.device(device), self.completion_NT.device.type == "cpu"
        if target.type == "cpu":
            return self.host
        moved = self._moved(target)
        object.__setattr__(moved, "_host", self if is_on_host else self._host)
        return moved

    def _moved(self, device: torch.device) -> "TokenBatch":
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        moved = dict(zip(tensors, move_together([*tensors.values()], device), strict=True))
        extras = {name: extra.to(device) for name, extra in self.extras.items()}
        return replace(self, **moved, extras=extras)


def move_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors on a device; from the host they are copied there at once, and nobody waits for it."""
    if device.type != "cuda" or any(tensor.device.type != "cpu" for tensor in tensors):
        return [tensor.to(device) for tensor in tensors]
    packed = pack_bytes(tensors, torch.empty(_byte_ends(tensors)[-1], dtype=torch.uint8, pin_memory=True))
    # The host's memory is taken again only when the copy is through: torch notes where it was used.
    return unpack_bytes(packed.to(device, non_blocking=True), tensors)


def move_columns(
    columns: Sequence[tuple[Sequence[float], torch.dtype]], device: torch.device
) -> list[Tensor]:
    """Numbers of the host, each with its kind, as tensors on a device; nobody waits for it.

    >>> move_columns([([1, 0], torch.int64), ([], torch.float32)], torch.device("cpu"))
    [tensor([1, 0]), tensor([])]
    """
    return move_together([torch.tensor(numbers, dtype=kind) for numbers, kind in columns], device)


ALIGNED = 16
"""Bytes at whose multiples a tensor begins within the ones that are copied together."""


def _byte_ends(tensors: Sequence[Tensor]) -> list[int]:
    """Where each tensor begins among the packed bytes, and where all of them end."""
    return list(accumulate((-(-tensor.nbytes // ALIGNED) * ALIGNED for tensor in tensors), initial=0))


def pack_bytes(tensors: Sequence[Tensor], into: Tensor) -> Tensor:
    for tensor, start in zip(tensors, _byte_ends(tensors), strict=False):
        into[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return into


def unpack_bytes(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of packed bytes, of the shapes and kinds of the tensors that were packed.

    >>> tensors = [torch.tensor([True, False]), torch.tensor([[7], [8]])]
    >>> unpack_bytes(pack_bytes(tensors, torch.empty(32, dtype=torch.uint8)), tensors)[1].tolist()
    [[7], [8]]
    """
    return [
        packed[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for tensor, start in zip(like, _byte_ends(like), strict=False)
    ]


def batch_of(examples: Sequence[Example]) -> TokenBatch:
    """The examples as one batch of padded tensors.

    >>> one = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> batch_of([Example(prompt=(1, 5), completions=(one, one))]).group_N.tolist()
    [0, 0]
    """
    completions = [completion for example in examples for completion in example.completions]
    if not completions:
        raise UserError("a batch needs at least one completion")
    groups = [p for p, example in enumerate(examples) for _ in example.completions]
    return TokenBatch(
        prompt_PL=_pad([example.prompt for example in examples]),
        prompt_length_P=torch.tensor([len(example.prompt) for example in examples]),
        completion_NT=_pad([completion.ids for completion in completions]),
        length_N=torch.tensor([len(completion.ids) for completion in completions]),
        mask_NT=_pad([completion.mask for completion in completions]).bool(),
        # Rising from left to right: `group_index` and packing want a prompt's completions side by side.
        group_N=torch.tensor(groups),
        finished_N=torch.tensor([completion.finished for completion in completions]),
        origin_N=tuple(example.origin for example in examples for _ in example.completions),
        extras=collate_extras(
            [example.extras for example in examples], [example.origin for example in examples]
        ),
    )


def prompt_id(prompt: Sequence[int], extras: Extras) -> str:
    """The content hash of a prompt: its tokens, and what it shows beside them."""
    return digest(token_bytes(prompt), extras_digest(extras, ("prompt", "item")))


def token_bytes(ids: Sequence[int]) -> bytes:
    packed = array("q", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def join_completions(examples: Sequence[Example]) -> Example:
    """Rows of one and the same prompt as one row with all their completions.

    >>> answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> row = Example(prompt=(1, 5), completions=(answer,))
    >>> len(join_completions([row, row]).completions)
    2
    """
    first = examples[0]
    if any(example.prompt_id != first.prompt_id for example in examples[1:]):
        raise ValueError("these rows have different prompts, so their completions are not of one row")
    if len({frozenset(example.completion_extras([])) for example in examples}) > 1:
        raise UserError(f"{first.origin or 'a row'}: completions of one prompt have different extras")
    completion_extras = {
        name: replace(extra, value=torch.cat([example.extras[name].value for example in examples]))
        for name, extra in first.extras.items()
        if extra.axis == "completion"
    }
    completions = tuple(completion for example in examples for completion in example.completions)
    return replace(first, completions=completions, extras={**first.prompt_extras, **completion_extras})


def _pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "R W"]:
    # Padded with 0 and not with a padding token: masks and lengths say what is real, ids are never asked.
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for r, row in enumerate(rows):
        padded[r, : len(row)] = torch.tensor(row)
    return padded
