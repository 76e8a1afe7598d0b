"""Micro-batches: a batch split over ranks and into pieces that fit in memory, each laid out packed or padded.

The same batch is always split in the same way. Packed end to end or padded on either side, all layouts give
the same log-probs; packing computes no padding and each prompt once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from typing import Literal, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from plaudit.tokens.batch import POSITIONS, Example, TokenBatch, move_together


@runtime_checkable
class HasTokenCount(Protocol):
    @property
    def tokens(self) -> int: ...


@runtime_checkable
class Microbatch(Protocol):
    """Rows that go through the model at once: what engine, checks and planner know of them."""

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed."""
        ...

    def rows(self) -> "Sequence[Microbatch]":
        """Each row alone, still counted as part of the same batch."""
        ...

    def shares(self, ranks: int, budget: int) -> "Sequence[Sequence[Microbatch]] | None":
        """For each rank its pieces of at most ``budget`` tokens; None where only a whole batch divides."""
        ...


MicrobatchT = TypeVar("MicrobatchT", bound=Microbatch)
RowT = TypeVar("RowT", bound=HasTokenCount)


def split_examples(
    examples: Sequence[Example], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[Example, ...], ...], ...]:
    """`split_rows` of plain examples; a muted one has the same tokens and nothing trained."""
    return split_rows(examples, mask_all, ranks=ranks, tokens_at_once=tokens_at_once)


def split_rows(
    examples: Sequence[RowT], muted: Callable[[RowT], RowT], *, ranks: int, tokens_at_once: int
) -> tuple[tuple[tuple[RowT, ...], ...], ...]:
    """For each rank its pieces, as many on each, of about the same number of tokens.
    A piece exceeds ``tokens_at_once`` only when it is a single row that does. A rank without rows gets a
    muted one: it computes along, so that no rank waits, and adds nothing."""
    if not examples:
        raise ValueError("there are no rows to split; hand over at least one")
    if tokens_at_once < 1 or ranks < 1:
        raise ValueError(f"tokens_at_once ({tokens_at_once}) and ranks ({ranks}) must be at least 1")
    # Longest first: the lightest bin takes the next row, which leaves bins nearly level (Graham's LPT rule).
    rows = sorted(examples, key=lambda example: -example.tokens)
    weights = [row.tokens for row in rows]
    # A row beyond the budget has a piece to itself; the others need at least their sum over the budget.
    short = [weight for weight in weights if weight <= tokens_at_once]
    pieces = _round_up(len(weights) - len(short) - (-sum(short) // tokens_at_once), ranks)
    while (bins := _fill_bins(weights, pieces, tokens_at_once)) is None:
        # In steps of 2 %: each try costs a walk over all rows, and a few spare pieces cost almost nothing.
        pieces += _round_up(pieces // 50, ranks)
    # The shortest row stands in where there are fewer rows than ranks: its forward pass is the cheapest.
    filled = [tuple(rows[n] for n in bin_rows) or (muted(rows[-1]),) for bin_rows in bins]
    # As many pieces on every rank: each micro-batch is a point where ranks wait for one another.
    return tuple(tuple(filled[rank::ranks]) for rank in range(ranks))


def micro_batches_in_order(rows: Sequence[RowT], tokens_at_once: int) -> Iterator[tuple[RowT, ...]]:
    """The rows as they stand, as many together as there is room for: where nothing has to be balanced.

    >>> from plaudit.tokens.batch import Completion
    >>> rows = [Example(prompt=(1,) * n, completions=()) for n in (6, 1, 5, 2)]
    >>> [[len(row.prompt) for row in piece] for piece in micro_batches_in_order(rows, 8)]
    [[6, 1], [5, 2]]
    """
    piece: list[RowT] = []
    filled = 0
    for row in rows:
        if piece and filled + row.tokens > tokens_at_once:
            yield tuple(piece)
            piece, filled = [], 0
        piece.append(row)
        filled += row.tokens
    if piece:
        yield tuple(piece)


def _fill_bins(weights: Sequence[int], bins: int, capacity: int) -> list[list[int]] | None:
    """The longest rows first, each into the lightest bin so far; None when one has to hold too much."""
    contents: list[list[int]] = [[] for _ in range(bins)]
    filling = [(0, index) for index in range(bins)]
    for n, weight in enumerate(weights):
        before, lightest = filling[0]
        # The lightest bin cannot take it, so none can; an empty bin takes any row, however long.
        if before > 0 and before + weight > capacity:
            return None
        contents[lightest].append(n)
        heapreplace(filling, (before + weight, lightest))
    return contents


def _round_up(count: int, step: int) -> int:
    return max(1, -(-count // step)) * step


def mask_all(example: Example) -> Example:
    """The same tokens with nothing trained: the pass costs what it should, and adds nothing."""
    muted = (replace(answer, mask=(False,) * len(answer.ids)) for answer in example.completions)
    return replace(example, completions=tuple(muted))


Layout = Literal["packed", "left", "right"]
"""Packed end to end, or padded on one side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Where the groups of a packed sequence lie: a prompt, then its completions, then the next prompt.

    Example: prompts of 3 and 2 tokens with completions of (4, 5) and (6,) tokens are
    ``Segments(prompts=(3, 2), completions=((4, 5), (6,)))``.
    """

    prompts: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]

    @property
    def following_pieces(self) -> tuple[int, ...]:
        """How many pieces follow each group's first; an only completion is one with its prompt."""
        return tuple(len(lengths) if len(lengths) > 1 else 0 for lengths in self.completions)

    @property
    def piece_lengths(self) -> list[int]:
        return [
            length
            for prompt, completions in zip(self.prompts, self.completions, strict=True)
            for length in ((prompt, *completions) if len(completions) > 1 else (prompt + sum(completions),))
        ]

    @property
    def group_of_token(self) -> list[int]:
        """The group of each token: where a model finds its row of an extra of axis ``prompt``."""
        return [
            group
            for group, (prompt, completions) in enumerate(zip(self.prompts, self.completions, strict=True))
            for _ in range(prompt + sum(completions))
        ]

    @property
    def completion_of_token(self) -> list[int]:
        """The completion of each token, −1 in prompts: its row of an extra of axis ``completion``."""
        owners: list[int] = []
        n = 0
        for prompt, completions in zip(self.prompts, self.completions, strict=True):
            owners += [-1] * prompt
            for length in completions:
                owners += [n] * length
                n += 1
        return owners


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardInputs:
    """Inputs of one forward pass, and where to find each completion token's state."""

    ids_RS: Int[Tensor, "R S"]
    position_RS: Int[Tensor, "*axes R S"]
    """``[3, R, S]`` where a model counts time, rows and columns."""
    real_RS: Bool[Tensor, "R S"] | None
    """False at padding on the left; None where no token can see any padding."""
    segments: Segments | None
    """How a packed row divides; None when padded."""
    state_NT: Int[Tensor, "N T"]
    """Index into the flattened ``[R·S]`` states of the one that predicts each completion token."""
    own_NT: Int[Tensor, "N T"]
    """Index of each completion token's own state, in which a reward is read; 0 past its end, as above."""
    extras: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """What the model takes beside tokens, in the order in which it reads prompts: a row for each group of a
    packed row or each padded row, and items as often as their prompt stands there."""

    def to(self, device: torch.device) -> "ForwardInputs":
        return self.to_with(device, ())[0]

    def to_with(self, device: torch.device, more: Sequence[Tensor]) -> "tuple[ForwardInputs, list[Tensor]]":
        """The same on another device together with more tensors, in one copy."""
        tensors = {name: value for name in _TENSORS if (value := getattr(self, name)) is not None}
        moved = move_together([*tensors.values(), *more], device)
        extras = {name: value.to(device, non_blocking=True) for name, value in self.extras.items()}
        inputs = replace(self, **dict(zip(tensors, moved, strict=False)), extras=extras)
        return inputs, moved[len(tensors) :]


_TENSORS = ("ids_RS", "position_RS", "real_RS", "state_NT", "own_NT")


def layout_batch(batch: TokenBatch, layout: Layout, *, share_prompts: bool = True) -> ForwardInputs:
    """The batch in one of its layouts, on its device.
    Lengths decide on shapes, so it is laid out on the host, where they can be read at once, and then moved.

    >>> from plaudit.tokens.batch import Completion, Example, batch_of
    >>> answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> batch = batch_of([Example(prompt=(1, 5), completions=(answer, answer))])
    >>> layout_batch(batch, "packed").ids_RS.tolist(), layout_batch(batch, "packed").state_NT.tolist()
    ([[1, 5, 7, 2, 7, 2]], [[1, 2], [1, 4]])
    >>> layout_batch(batch, "left").state_NT.tolist()
    [[1, 2], [5, 6]]
    >>> layout_batch(batch, "packed").own_NT.tolist()
    [[2, 3], [4, 5]]
    """
    host = batch.host
    laid_out = _packed(host, share_prompts) if layout == "packed" else _padded(host, left=layout == "left")
    return laid_out if host is batch else laid_out.to(batch.completion_NT.device)


def _places(batch: TokenBatch) -> list[Tensor]:
    """Where the tokens of each prompt are, ``[L]``, or ``[L, 3]`` in a batch of which some prompt says so."""
    lengths, extra = batch.prompt_length_P.tolist(), batch.extras.get(POSITIONS)
    if extra is None:
        return [torch.arange(length) for length in lengths]
    rows = [extra.value[extra.prompt_I == p] for p in range(len(lengths))]
    return [
        row if len(row) else torch.arange(length)[:, None].expand(-1, 3)
        for row, length in zip(rows, lengths, strict=True)
    ]


def _behind(place: Tensor, count: int) -> Tensor:
    """Where so many tokens are that follow those of a prompt."""
    after = torch.arange(count) + (int(place.max()) + 1)
    return after if place.ndim == 1 else after[:, None].expand(-1, 3)


def _extras_of(batch: TokenBatch, prompts: Sequence[int]) -> dict[str, Tensor]:
    named = ((name, extra) for name, extra in batch.extras.items() if name != POSITIONS)
    return {name: extra.rows_for(prompts) for name, extra in named}


def _packed(batch: TokenBatch, share_prompts: bool) -> ForwardInputs:
    prompts, places = batch.prompt_length_P.tolist(), _places(batch)
    answers = batch.length_N.tolist()
    members = _rows_by_prompt(batch.group_N.tolist(), len(prompts), share_prompts)
    ids: list[Tensor] = []
    positions: list[Tensor] = []
    # 0 at padding is a valid index: masked later, it never has to be guarded against here.
    state_NT, own_NT = torch.zeros_like(batch.completion_NT), torch.zeros_like(batch.completion_NT)
    offset = 0
    for p, rows in members:
        ids.append(batch.prompt_PL[p, : prompts[p]])
        positions.append(places[p])
        # The state at the prompt's last token predicts the first token of all its completions.
        last_of_prompt = offset + prompts[p] - 1
        offset += prompts[p]
        for n in rows:
            ids.append(batch.completion_NT[n, : answers[n]])
            # Each goes on at the prompt's length, as if it alone followed: rotary positions must not run on.
            positions.append(_behind(places[p], answers[n]))
            own_NT[n, : answers[n]] = torch.arange(offset, offset + answers[n])
            state_NT[n, 0] = last_of_prompt
            state_NT[n, 1 : answers[n]] = torch.arange(offset, offset + answers[n] - 1)
            offset += answers[n]
    completions = tuple(tuple(answers[n] for n in rows) for _, rows in members)
    return ForwardInputs(
        ids_RS=torch.cat(ids)[None],
        position_RS=torch.cat(positions).movedim(-1, 0).unsqueeze(-2),
        real_RS=None,
        segments=Segments(prompts=tuple(prompts[p] for p, _ in members), completions=completions),
        state_NT=state_NT,
        own_NT=own_NT,
        extras=_extras_of(batch, [p for p, _ in members]),
    )


def _rows_by_prompt(groups: list[int], prompts: int, share: bool) -> list[tuple[int, list[int]]]:
    if not share:
        return [(p, [n]) for n, p in enumerate(groups)]
    rows_by_prompt: list[list[int]] = [[] for _ in range(prompts)]
    for n, p in enumerate(groups):
        rows_by_prompt[p].append(n)
    return list(enumerate(rows_by_prompt))


def _padded(batch: TokenBatch, *, left: bool) -> ForwardInputs:
    rows, groups, places = len(batch.origin_N), batch.group_N.tolist(), _places(batch)
    prompt_N = batch.prompt_length_P[batch.group_N]
    total_N = prompt_N + batch.length_N
    width = int(total_N.max())
    device = batch.completion_NT.device
    first_N = (width - total_N) if left else torch.zeros_like(total_N)
    ids_RS = torch.zeros(rows, width, dtype=torch.int64, device=device)
    for n in range(rows):
        start, middle = int(first_N[n]), int(first_N[n] + prompt_N[n])
        ids_RS[n, start:middle] = batch.prompt_PL[batch.group_N[n], : int(prompt_N[n])]
        ids_RS[n, middle : middle + int(batch.length_N[n])] = batch.completion_NT[n, : int(batch.length_N[n])]
    index_RS = torch.arange(width, device=device) - first_N[:, None]
    # Padding on the left would have negative positions, which learned position tables cannot look up.
    position_RS = index_RS.clamp(min=0, max=max(0, width - 1))
    if POSITIONS in batch.extras:
        position_RS = position_RS.repeat(3, 1, 1)
        for n, p in enumerate(groups):
            start, length, answer = int(first_N[n]), len(places[p]), int(batch.length_N[n])
            whole = torch.cat((places[p], _behind(places[p], answer)))
            position_RS[:, n, start : start + length + answer] = whole.T
    token_T = torch.arange(batch.completion_NT.shape[1], device=device)
    own_NT = (torch.arange(rows, device=device) * width + first_N + prompt_N)[:, None] + token_T
    within_NT = token_T < batch.length_N[:, None]
    return ForwardInputs(
        ids_RS=ids_RS,
        position_RS=position_RS,
        real_RS=(index_RS >= 0) if left else None,
        segments=None,
        state_NT=torch.where(within_NT, own_NT - 1, 0),
        own_NT=torch.where(within_NT, own_NT, 0),
        extras=_extras_of(batch, groups),
    )
