"""Keys and values in pages of one pool: rows join, grow and leave, and no tensor of a step moves.

A GPU repeats a step as a recorded graph while every tensor of it stays where it is and as large as it is.
So each layer has one pool of pages, and a table says which pages hold a row's tokens, in their order. A
prompt's whole pages belong to all its answers, and its last, begun page is copied for each. The host counts
every row's tokens and hands out pages before they are needed; page 0 belongs to nobody, and rows that only
fill up a graph write there.
"""

import inspect
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from plaudit.models.attention import ACCELERATED, AttentionRule, PackedRow
from plaudit.tokens.batch import move_together
from plaudit.tokens.microbatch import Segments

PAGE_TOKENS = {"cpu": 16, "cuda": 256}
POOL_GROWTH = 8
"""A pool that is full grows by one in so many pages."""
_VARLEN_PARAMETERS = inspect.signature(varlen_attn).parameters


@dataclass(slots=True, kw_only=True)
class _Row:
    prompt: int
    length: int
    pages: list[int] = field(default_factory=list[int])


class PagedCache:
    """Keys and values of prompts and of their answers, layer by layer, in pages."""

    def __init__(self, device: torch.device) -> None:
        self._page = PAGE_TOKENS.get(device.type, PAGE_TOKENS["cuda"])
        self._rows: list[_Row] = []
        self._free: list[int] = []
        self._pages = 1
        self._uses: Counter[int] = Counter()
        self._pools: dict[int, tuple[Tensor, Tensor]] = {}
        self._table_RW = torch.zeros(0, 1, dtype=torch.int32, device=device)
        self._length_R = torch.zeros(0, dtype=torch.int32, device=device)
        self._reading: _Reading | None = None
        self._step: _Step | None = None
        self._is_written = False
        """Whether the device's tables say what the host knows."""
        self.generation = 0
        """Another number once a tensor had to move: what was recorded before is of no use any more."""

    @property
    def layers(self) -> int:
        return len(self._pools)

    @property
    def position_N(self) -> Int[Tensor, " N"]:
        return self.position_R(len(self._rows))

    def position_R(self, rows: int) -> Int[Tensor, " R"]:
        """The position of the token that each of so many rows gets next."""
        return self._length_R[:rows].long()

    @contextmanager
    def reading(self, prompts: Sequence[int], answers: Sequence[int]) -> Iterator[None]:
        """For the pass that reads further prompts of these lengths, each with one answer or more."""
        sources: list[Tensor] = []
        places: list[Tensor] = []
        start = 0
        for length, count in zip(prompts, answers, strict=True):
            whole = length // self._page
            shared = [self._new_page() for _ in range(whole)]
            sources.append(torch.arange(start, start + whole * self._page))
            places.append(self._places(shared, 0, whole * self._page))
            for _ in range(count):
                row = self._begin_row(length, shared)
                sources.append(torch.arange(start + whole * self._page, start + length))
                places.append(self._places(row.pages, whole * self._page, length))
            start += length
        source_X, place_X = move_together([torch.cat(sources), torch.cat(places)], self._length_R.device)
        segments = Segments(prompts=tuple(prompts), completions=((),) * len(prompts))
        self._reading = _Reading(
            row=PackedRow(segments, self._length_R.device, ran={}), source_X=source_X, place_X=place_X
        )
        self._make_room()
        try:
            yield
        finally:
            self._reading = None

    def add_answers(self, count: int) -> None:
        """Begin so many more answers to the last prompt, to which the last row is an answer."""
        last = self._rows[-1]
        whole = last.prompt // self._page
        rows = [self._begin_row(last.prompt, last.pages[:whole]) for _ in range(count)]
        partial = (whole * self._page, last.prompt)
        source_X = self._places(last.pages, *partial).repeat(count)
        place_X = torch.cat([self._places(row.pages, *partial) for row in rows])
        source_X, place_X = move_together([source_X, place_X], self._length_R.device)
        self._make_room()
        for pool in self._pools.values():
            for pages in pool:
                tokens = pages.flatten(0, 1)
                tokens.index_copy_(0, place_X, tokens.index_select(0, source_X))

    def select_rows(self, row_n: Int[Tensor, " n"]) -> None:
        """Continue only these completions; pages that nobody looks at any more are free again."""
        staying = [self._rows[row] for row in row_n.tolist()]
        for row in self._rows:
            self._uses.subtract(row.pages)
        for row in staying:
            self._uses.update(row.pages)
        left = {page for row in self._rows for page in row.pages if not self._uses[page]}
        self._free += sorted(left, reverse=True)
        self._rows = staying
        self._is_written = False

    def reserve(self, steps: int, rows: int) -> None:
        """Room for so many more tokens of every row, and for so many rows, real ones or not."""
        wanted = [-(-(row.length + steps) // self._page) for row in self._rows]
        widest = max(wanted, default=0)
        missing = sum(max(0, pages - len(row.pages)) for pages, row in zip(wanted, self._rows, strict=True))
        if missing > len(self._free):
            # Rows grow side by side, and the others come to their pages' ends soon: one move for all of them.
            self._add_pages(max(missing, sum(len(row.pages) < widest for row in self._rows)))
        for pages, row in zip(wanted, self._rows, strict=True):
            while len(row.pages) < pages:
                row.pages.append(self._new_page())
                self._uses[row.pages[-1]] += 1
                self._is_written = False
        # Rows of nobody count their tokens as well, and have to begin again before they come to a page's end.
        self._make_room(rows, again=rows > len(self._rows))

    def advance(self, steps: int = 1) -> None:
        """Count the tokens that all layers have now processed."""
        for row in self._rows:
            row.length += steps

    @contextmanager
    def stepping(self, rows: int) -> Iterator[None]:
        """For a pass over the next token of so many rows; it counts them on the device, and asks nothing."""
        length_R = self._length_R[:rows]
        page_R1 = self._table_RW[:rows].gather(1, (length_R // self._page).long()[:, None])
        place_R = page_R1[:, 0].long() * self._page + length_R % self._page
        self._step = _Step(place_R=place_R, table_RW=self._table_RW[:rows], length_R=length_R + 1)
        try:
            yield
        finally:
            self._step = None
        length_R += 1

    def attend(
        self, layer_index: int, rule: AttentionRule, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attention of a packed row ``[1, heads, S, size]``: prompts that are read, or a token an answer."""
        key_SkD, value_SkD = (x[0].transpose(0, 1) for x in (key, value))
        if self._reading is not None:
            if layer_index not in self._pools:
                self._pools[layer_index] = (self._pool_like(key_SkD), self._pool_like(value_SkD))
            source_X, place_X = self._reading.source_X, self._reading.place_X
            for pages, new_SkD in zip(self._pools[layer_index], (key_SkD, value_SkD), strict=True):
                pages.flatten(0, 1).index_copy_(0, place_X, new_SkD.index_select(0, source_X))
            return self._reading.row.attend(rule, query, key, value).transpose(1, 2)
        assert self._step is not None
        pool = self._pools[layer_index]
        for pages, new_RkD in zip(pool, (key_SkD, value_SkD), strict=True):
            pages.flatten(0, 1).index_copy_(0, self._step.place_R, new_RkD)
        output_RhD = paged_attention(
            rule, query[0].transpose(0, 1), *pool, self._step.table_RW, self._step.length_R
        )
        return output_RhD.transpose(0, 1)[None]

    def _begin_row(self, prompt: int, shared: Sequence[int]) -> _Row:
        row = _Row(prompt=prompt, length=prompt, pages=list(shared))
        if prompt % self._page:
            row.pages.append(self._new_page())
        self._uses.update(row.pages)
        self._rows.append(row)
        self._is_written = False
        return row

    def _new_page(self) -> int:
        if not self._free:
            self._add_pages(1)
        return self._free.pop()

    def _add_pages(self, least: int) -> None:
        """At least so many further pages; pools follow in `_make_room`."""
        # An eighth more: pools are copied each time, and what was recorded is lost.
        more = max(least, POOL_GROWTH, self._pages // POOL_GROWTH)
        self._free = [*range(self._pages + more - 1, self._pages - 1, -1), *self._free]
        self._pages += more

    def _places(self, pages: Sequence[int], begin: int, end: int) -> Tensor:
        """Where a row's tokens lie in the pool, counted in tokens."""
        place_T = torch.arange(begin, end)
        if begin == end:
            return place_T
        return torch.tensor(pages)[place_T // self._page] * self._page + place_T % self._page

    def _pool_like(self, new_SkD: Tensor) -> Tensor:
        # Zeros and not rubbish: a masked weight is 0, and 0 · NaN would still be NaN.
        return new_SkD.new_zeros(self._pages, self._page, *new_SkD.shape[1:])

    def _make_room(self, rows: int = 0, *, again: bool = False) -> None:
        """Pools for all pages that are handed out, and tables that say where each row's are."""
        grown = {layer: pool for layer, pool in self._pools.items() if len(pool[0]) < self._pages}
        for layer, pool in grown.items():
            key_pages, value_pages = (
                torch.cat((x, x.new_zeros(self._pages - len(x), *x.shape[1:]))) for x in pool
            )
            self._pools[layer] = key_pages, value_pages
        rows = max(rows, len(self._rows), len(self._table_RW))
        width = max([self._table_RW.shape[1], *(len(row.pages) for row in self._rows)])
        moved = (rows, width) != tuple(self._table_RW.shape)
        if moved:
            self._table_RW = self._table_RW.new_zeros(rows, width)
            self._length_R = self._length_R.new_zeros(rows)
        self.generation += bool(grown) or moved
        if again or moved or not self._is_written:
            self._write_tables()

    def _write_tables(self) -> None:
        """Write the host's tables where the device reads them; rows of nobody have page 0 and no token."""
        rows, width = self._table_RW.shape
        padding = [0] * width
        pages = [(row.pages + padding)[:width] for row in self._rows]
        pages += [padding] * (rows - len(self._rows))
        lengths = [row.length for row in self._rows] + [0] * (rows - len(self._rows))
        tables = [torch.tensor(table, dtype=torch.int32) for table in (pages, lengths)]
        table_RW, length_R = move_together(tables, self._table_RW.device)
        self._table_RW.copy_(table_RW)
        self._length_R.copy_(length_R)
        self._is_written = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Prompts that a pass reads, and where their tokens go: those of a begun page once for each answer."""

    row: PackedRow
    source_X: Tensor
    place_X: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Where a step writes each row's token, and what it looks at: so many tokens, this one included."""

    place_R: Tensor
    table_RW: Tensor
    length_R: Tensor


def pooled_tokens(prompts: int, answers: int, prompt: int, answer: int, page: int) -> int:
    """Places that pools have for so many prompts and answers of these lengths, a grown one among them.

    >>> pooled_tokens(prompts=1, answers=8, prompt=300, answer=100, page=256)
    2816
    """
    # A prompt's whole pages once for its answers; the page that it begins, and the answer's own, for each.
    own = math.ceil((prompt % page + answer) / page)
    return page * math.ceil((prompts * (prompt // page) + answers * own) * (1 + 1 / POOL_GROWTH))


def paged_attention(
    rule: AttentionRule,
    query_RhD: Tensor,
    key_PtkD: Tensor,
    value_PtkD: Tensor,
    table_RW: Int[Tensor, "R W"],
    length_R: Int[Tensor, " R"],
) -> Tensor:
    """What each row's last token sees of its ``length_R`` tokens, which lie in the pages of its table.

    >>> pages, table, length = torch.ones(1, 2, 1, 4), torch.zeros(1, 1).int(), torch.ones(1).int()
    >>> rule = AttentionRule(scaling=None, dropout=0.0, window=None, softcap=None, sink_h=None)
    >>> paged_attention(rule, torch.ones(1, 2, 4), pages, 3 * pages, table, length).shape
    torch.Size([1, 2, 4])
    """
    if _kernel_serves(rule, query_RhD, value_PtkD):
        return _by_varlen(rule, query_RhD, key_PtkD, value_PtkD, table_RW, length_R)
    rows, heads, size = query_RhD.shape
    # All pages of a table, also those behind a row's end: shapes that hang on lengths cannot be recorded.
    key_RSkD, value_RSkD = (x[table_RW.long()].flatten(1, 2) for x in (key_PtkD, value_PtkD))
    place_S = torch.arange(key_RSkD.shape[1], device=query_RhD.device)
    visible_RS = place_S < length_R[:, None]
    if rule.window is not None:
        visible_RS = visible_RS & (length_R[:, None] - place_S <= rule.window)
    kv_heads = key_RSkD.shape[2]
    # Heads that ask the same keys are the rows of one product: to broadcast keys would copy them for each.
    query_RkrD = query_RhD.reshape(rows, kv_heads, heads // kv_heads, size)
    score_RkrS = query_RkrD @ key_RSkD.permute(0, 2, 3, 1)
    weight_RkrAS = rule.attention_weights(score_RkrS[..., None, :], visible_RS[:, None, None, None], size)
    return (weight_RkrAS[..., 0, :] @ value_RSkD.transpose(1, 2)).reshape(rows, heads, -1)


def _kernel_serves(rule: AttentionRule, query_RhD: Tensor, value_PtkD: Tensor) -> bool:
    return (
        query_RhD.device.type in ACCELERATED
        and query_RhD.dtype in (torch.bfloat16, torch.float16)
        and query_RhD.shape[-1] == value_PtkD.shape[-1]
        and rule.softcap is None
        and rule.sink_h is None
        and {"block_table", "seqused_k"} <= _VARLEN_PARAMETERS.keys()
    )


def _by_varlen(
    rule: AttentionRule,
    query_RhD: Tensor,
    key_PtkD: Tensor,
    value_PtkD: Tensor,
    table_RW: Tensor,
    length_R: Tensor,
) -> Tensor:
    ends = torch.arange(len(query_RhD) + 1, dtype=torch.int32, device=query_RhD.device)
    # Splitting a row's keys would hang on who its neighbours are, and so would the last digit of an answer.
    settings = {"num_splits": 1, "enable_gqa": query_RhD.shape[1] != key_PtkD.shape[2]}
    known = {name: value for name, value in settings.items() if name in _VARLEN_PARAMETERS}
    output: Any = varlen_attn(
        *(query_RhD, key_PtkD, value_PtkD, ends, None),
        *(1, table_RW.shape[1] * key_PtkD.shape[1]),
        scale=rule.scaling,
        window_size=(-1, -1) if rule.window is None else (rule.window - 1, 0),
        seqused_k=length_R,
        block_table=table_RW,
        **known,
    )
    return output
