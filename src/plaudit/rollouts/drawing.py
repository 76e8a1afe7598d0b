"""A token is drawn by one uniform number a row, inverted through its filtered distribution."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from weakref import WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.decode import PagedDecoder
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.batch import NO_EXTRAS, Extras, extras_digest

SUM_BLOCK = 256
"""Tokens whose probabilities are added up first, so that a place is looked for in a few sums."""
TOP_P_CANDIDATES = (256, 4096)
"""How many of the likeliest tokens are sorted, before all of them are, to find those of top-p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """A token for each of N answers.
    Example: ``sample_tokens(logits_NV, chance_N, SamplingSettings(top_p=0.9)).logp_N``."""

    token_N: Int[Tensor, " N"]
    logp_N: Float[Tensor, " N"]
    """Log-probability among the tokens that could be drawn: those that top-k, top-p and min-p left."""
    whole_logp_N: Float[Tensor, " N"]
    """Log-probability among all tokens, at the same temperature (at 1 where the likeliest is taken)."""


def sample_tokens(
    logits_NV: Float[Tensor, "N V"], uniform_N: Float[Tensor, " N"], settings: SamplingSettings
) -> SampledTokens:
    """The token that each row's chance falls on, once its scores are divided by the temperature.

    Then top-k, top-p and min-p leave tokens out, in this order. With top-p, tokens are walked from the
    likeliest down, and those before which the probability already reached it are left out (Holtzman et al.
    2020, arXiv:1904.09751); with min-p those less likely than a share of the likeliest (Nguyen et al. 2024,
    arXiv:2407.01082).

    Scores that are not numbers are not looked for, since a device would be waited for: log-probs are none
    then either, and whoever reads them asks `refuse_broken`.
    """
    # bfloat16 has 8 bits: the sums below would lose tokens that are rarer than 1 in 2⁸.
    logits_NV = logits_NV.float()
    top_N1 = logits_NV.amax(-1, keepdim=True)
    # With the largest at zero, no temperature is too small to divide by.
    temperature = 1.0 if settings.greedy else settings.temperature
    # In place on the difference, which is fresh: [N, V] is the largest tensor of a decoding step.
    p_NV = logits_NV - top_N1
    # Divided by 1 nothing changes, but all of it would be read and written.
    p_NV = (p_NV if temperature == 1 else p_NV.div_(temperature)).exp_()
    all_sum_NC = _block_sums(p_NV)
    filtered_NV = p_NV if settings.greedy else _filter_tokens(p_NV, settings)
    filtered_sum_NC = all_sum_NC if filtered_NV is p_NV else _block_sums(filtered_NV)
    token_N = (
        logits_NV.argmax(-1) if settings.greedy else _inverse_cdf(filtered_NV, filtered_sum_NC, uniform_N)
    )
    # From scores and not from log p: a probability that underflowed has no logarithm.
    chosen_logit_N = ((logits_NV.gather(1, token_N[:, None]) - top_N1) / temperature)[:, 0]
    whole_logp_N = chosen_logit_N - all_sum_NC.sum(-1).log().float()
    logp_N = (
        torch.zeros_like(whole_logp_N)
        if settings.greedy
        else chosen_logit_N - filtered_sum_NC.sum(-1).log().float()
    )
    return SampledTokens(token_N=token_N, logp_N=logp_N, whole_logp_N=whole_logp_N)


def _block_sums(p_NV: Tensor) -> Float[Tensor, "N C"]:
    full_blocks = p_NV.shape[1] // SUM_BLOCK * SUM_BLOCK
    # Word by word, as the decoder's product leaves them on a CPU: from the other side it is ten times slower.
    sum_NC = p_NV.T[:full_blocks].unflatten(0, (-1, SUM_BLOCK)).sum(1).T
    return torch.cat((sum_NC, p_NV[:, full_blocks:].sum(-1, keepdim=True)), dim=1).double()


def _inverse_cdf(p_NV: Tensor, sum_NC: Tensor, uniform_N: Tensor) -> Tensor:
    """The token at which the cumulative probability passes the row's uniform number."""
    # float64: over 10⁵ tokens rounded float32 sums would move the place by whole tokens.
    target_N = uniform_N.double() * sum_NC.sum(-1)
    block_N = _first_passing(sum_NC, target_N)
    before_N = (sum_NC.cumsum(-1) - sum_NC).gather(1, block_N[:, None])[:, 0]
    # The last block may be short: places behind the vocabulary read a real token and count as 0.
    place_NB = block_N[:, None] * SUM_BLOCK + torch.arange(SUM_BLOCK, device=p_NV.device)
    exists_NB = place_NB < p_NV.shape[1]
    within_NB = p_NV.gather(1, place_NB.clamp(max=p_NV.shape[1] - 1)).double().where(exists_NB, 0)
    return block_N * SUM_BLOCK + _first_passing(within_NB, target_N - before_N)


def _first_passing(mass_NX: Tensor, target_N: Tensor) -> Tensor:
    """Where the running sum first passes what is wanted; where rounding keeps it below, the last mass."""
    # right=True: the first sum *above* the target, so that no token of probability 0 can be met.
    place_N = torch.searchsorted(mass_NX.cumsum(-1), target_N[:, None], right=True)[:, 0]
    number_X = torch.arange(mass_NX.shape[1], device=mass_NX.device)
    return place_N.minimum(number_X.where(mass_NX > 0, 0).amax(-1))


def _filter_tokens(p_NV: Tensor, settings: SamplingSettings) -> Tensor:
    if 0 < settings.top_k < p_NV.shape[1]:
        top_NK, word_NK = p_NV.topk(settings.top_k)
        p_NV = torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK)
    if settings.top_p < 1:
        p_NV = _top_p(p_NV, settings.top_p)
    # The likeliest token has e⁰ = 1 here, so p is already the share of it that min-p asks about.
    return p_NV.where(p_NV >= settings.min_p, 0) if settings.min_p else p_NV


def _top_p(p_NV: Tensor, share: int | float) -> Tensor:
    target_N1 = share * p_NV.sum(-1, keepdim=True, dtype=torch.float64)
    # A vocabulary is slow to sort at every token, and few candidates nearly always reach top-p. Whether they
    # do is read here, so a GPU, which nobody waits for between two tokens, sorts all of them.
    counts = TOP_P_CANDIDATES if p_NV.device.type == "cpu" else ()
    for count in (candidates for candidates in counts if candidates < p_NV.shape[1]):
        top_NK, word_NK = p_NV.topk(count)
        if (top_NK.sum(-1, keepdim=True, dtype=torch.float64) >= target_N1).all():
            return _smallest_nucleus(p_NV, top_NK, word_NK, target_N1)
    return _smallest_nucleus(p_NV, *p_NV.sort(dim=-1, descending=True, stable=True), target_N1)


def _smallest_nucleus(p_NV: Tensor, top_NK: Tensor, word_NK: Tensor, target_N1: Tensor) -> Tensor:
    """Only as many of the likeliest tokens as reach together what is wanted."""
    # Exclusive sums: the token that crosses the share still belongs to the nucleus.
    before_NK = top_NK.double().cumsum(-1) - top_NK
    return torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK.where(before_NK < target_N1, 0))


def refuse_broken(logp: Sequence[float]) -> None:
    if any(map(math.isnan, logp)):
        raise UserError(
            "the model's scores are not numbers: its weights are damaged, or a training run diverged"
        )


def uniform_numbers(
    settings: SamplingSettings,
    ids: tuple[int, ...],
    sample: int,
    max_new_tokens: int,
    extras: Extras = NO_EXTRAS,
) -> Tensor:
    """A uniform number from 0 to 1 for each token that one completion has room for.
    They depend on nothing but the seed, the prompt (its tokens and what it shows beside them) and which
    answer to it this is; more room only adds numbers."""
    if settings.greedy:
        return torch.zeros(max_new_tokens, dtype=torch.float64)
    shown = extras_digest(extras, ("prompt", "item"))
    # Not hash(), which Python salts anew in every process.
    digest = blake2b(f"{settings.seed}/{sample}/{ids}{shown}".encode(), digest_size=8)
    generator = torch.Generator().manual_seed(int.from_bytes(digest.digest()))
    return torch.rand(max_new_tokens, dtype=torch.float64, generator=generator)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawingState:
    """What draws the next token of up to C rows; it stays where it is while rows come and go.
    Example: ``DrawingState.allocate(rows=256, room=64, device=policy.device).uniform(8)``."""

    token_C: Tensor
    uniform_CT: Tensor
    """A uniform number for each token that a row has room for."""
    drawn_C1: Tensor

    @staticmethod
    def allocate(*, rows: int, room: int, device: torch.device) -> "DrawingState":
        zeros = torch.zeros(rows, 1, dtype=torch.long, device=device)
        uniform_CT = torch.zeros(rows, room, dtype=torch.float64, device=device)
        return DrawingState(token_C=zeros[:, 0].clone(), uniform_CT=uniform_CT, drawn_C1=zeros)

    def uniform(self, rows: int) -> Tensor:
        """The numbers that draw the next token of so many rows."""
        # Rows that have no room left are done, and what is drawn for them is dropped.
        place_N1 = self.drawn_C1[:rows].clamp(max=self.uniform_CT.shape[1] - 1)
        return self.uniform_CT[:rows].gather(1, place_N1)[:, 0]

    def draw(self, logits_NV: Tensor, settings: SamplingSettings) -> SampledTokens:
        """The next token of the rows that these scores are of."""
        sampled = sample_tokens(logits_NV, self.uniform(len(logits_NV)), settings)
        self.token_C[: len(logits_NV)].copy_(sampled.token_N)
        self.drawn_C1[: len(logits_NV)] += 1
        return sampled

    def select_rows(self, row_n: Tensor) -> None:
        """These rows are the first ones from now on."""
        for values in (self.token_C, self.uniform_CT, self.drawn_C1):
            values[: len(row_n)] = values[row_n]

    def add_rows(self, first: int, uniform_nT: Tensor) -> None:
        rows = slice(first, first + len(uniform_nT))
        self.uniform_CT[rows, : uniform_nT.shape[1]] = uniform_nT.to(self.uniform_CT.device)
        self.drawn_C1[rows] = 0


Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""From a step to what repeats it."""


def record_graph(step: Callable[[], None]) -> Callable[[], None]:
    """What a CUDA device does in this step, to be done again by one call; the step is not carried out."""
    graph = torch.cuda.CUDAGraph()
    # One pool of memory for all: graphs are repeated one after another, and results lie outside of it. It is
    # a living graph's: torch takes no pool again whose graphs are gone while something lies in it, as the
    # workspace of cuBLAS does.
    shared = next((living.pool() for living in _living_graphs), None)
    try:
        # Around the recording: one that fails leaves its own stream behind as the current one.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=shared):
            step()
    except BaseException:
        # Nor does it take one again in which a recording failed.
        _living_graphs.clear()
        _free_generator()
        raise
    _living_graphs.add(graph)
    return graph.replay


_living_graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
"""Those that somebody can still repeat."""


def _free_generator() -> None:
    """Give torch's random numbers back to the device after a recording that failed."""
    # Their state counts as one that is being recorded until the recording has ended well, and whoever draws
    # from it is refused; a copy of it is free and goes on with the same numbers.
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


@dataclass(slots=True, kw_only=True)
class RecordedSteps:
    """Steps of a decoder with the draws behind them, recorded once for each bucket of rows."""

    decoder: PagedDecoder
    state: DrawingState
    settings: SamplingSettings
    most_steps: int
    record: Recorder | None
    """How a step is recorded; None: steps are made one by one."""
    refusal: str | None = None
    """Why steps cannot be recorded here, once that was found out; they are made one by one then."""
    _steps: "dict[tuple[int, int], _Step]" = field(default_factory=dict[tuple[int, int], "_Step"])

    def run(self, *, rows: int, steps: int) -> SampledTokens:
        """So many tokens more for each of these rows, ``[steps, rows]``; nobody looks at them between."""
        bucket = min(1 << (rows - 1).bit_length(), len(self.state.token_C))
        self.decoder.reserve(steps, bucket)
        key = (bucket, self.decoder.generation)
        if key not in self._steps:
            # What was recorded of tensors that have moved is let go of.
            self._steps = {other: step for other, step in self._steps.items() if other[1] == key[1]}
            self._steps[key] = _Step.allocate(bucket, self.most_steps, self.state.token_C.device)
        step = self._steps[key]
        step.turn_1.zero_()
        for _ in range(steps):
            self._repeat(step)
        self.decoder.count(steps)
        token_N = step.token_KB[:steps, :rows]
        logp_N = step.logp_KB[:steps, :rows]
        return SampledTokens(token_N=token_N, logp_N=logp_N, whole_logp_N=step.whole_logp_KB[:steps, :rows])

    def _repeat(self, step: "_Step") -> None:
        # The first one of a bucket is made as it is: kernels are chosen and compiled then, not in the record.
        if step.made and step.repeat is None and self.record is not None and self.refusal is None:
            try:
                step.repeat = self.record(lambda: self._make(step))
            except RuntimeError as error:
                self.refusal = str(error).partition("\n")[0]
        step.made = True
        if step.repeat is None:
            self._make(step)
        else:
            step.repeat()

    def _make(self, step: "_Step") -> None:
        logits_BV = self.decoder.next_logits(self.state.token_C[: step.rows])
        step.write(self.state.draw(logits_BV, self.settings))


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step of one bucket of rows, and where its results lie until the host looks."""

    rows: int
    token_KB: Tensor
    logp_KB: Tensor
    whole_logp_KB: Tensor
    turn_1: Tensor
    made: bool = False
    repeat: Callable[[], None] | None = None

    @staticmethod
    def allocate(rows: int, steps: int, device: torch.device) -> "_Step":
        figures: Any = {"device": device, "dtype": torch.float32}
        return _Step(
            rows=rows,
            token_KB=torch.zeros(steps, rows, dtype=torch.long, device=device),
            logp_KB=torch.zeros(steps, rows, **figures),
            whole_logp_KB=torch.zeros(steps, rows, **figures),
            turn_1=torch.zeros(1, dtype=torch.long, device=device),
        )

    def write(self, sampled: SampledTokens) -> None:
        columns = (
            (self.token_KB, sampled.token_N),
            (self.logp_KB, sampled.logp_N),
            (self.whole_logp_KB, sampled.whole_logp_N),
        )
        for into_KB, value_N in columns:
            into_KB.index_copy_(0, self.turn_1, value_N[None])
        self.turn_1 += 1
