"""What predicts the next token of completions that grow side by side (of a mixture: ``mixture.py``).

    decoder = SharedDecoder(policy, prompts, (8, 8))     every prompt is read once
    decoder.logits_NV                                    what predicts each completion's first token
    decoder.select_rows(row_n)                           completions that have ended leave
    decoder.step(token_N)                                a token more for each; logits_NV predicts the next
    decoder.join(prompts, (8,))                          further completions begin beside them

`SharedDecoder` reads each prompt once and keeps keys and values itself, a prompt's once for all its
completions (``kv_cache.py``). Nothing is copied when a token is added, and a prompt that eight completions
share is looked at once, by eight queries. `CachedDecoder` goes through transformers' own cache, for models
whose attention is their own or that keep a state beside it (Mamba, short convolutions); its completions begin
together. `PagedDecoder` is the first with its keys and values in pages (``paged_cache.py``), for a GPU that
repeats recorded steps. All give the same numbers: `fastest_decoder` compares them, on a few tokens of the
model at hand, with `RereadingDecoder`, which keeps nothing, pads nothing, and serves where no other does.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from plaudit.errors import UserError
from plaudit.models.attention import ACCELERATED, PackingError
from plaudit.models.backbone import head_of, refuse_unknown_extras, token_types, without_head
from plaudit.models.kv_cache import KV_CACHE_ATTENTION, KVCache
from plaudit.models.paged_cache import PagedCache
from plaudit.models.policy import Policy
from plaudit.models.verify import has_half_digits, tolerance
from plaudit.tensors.logprobs import wide_product
from plaudit.tokens.batch import POSITIONS, move_together

PromptIds = Sequence[Sequence[int]]


def split_positions(
    prompts: PromptIds, extras: Mapping[str, Tensor]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Where the tokens of each prompt are, one after the other or as an extra says; and the other extras."""
    others = {name: value for name, value in extras.items() if name != POSITIONS}
    lengths = [len(prompt) for prompt in prompts]
    if POSITIONS not in extras:
        return [torch.arange(length) for length in lengths], others
    return list(extras[POSITIONS].cpu().split(lengths)), others


Items = Mapping[str, Tensor]
"""What prompts show beside tokens, one behind the other, by the name of the model's argument."""
_CACHE_NAMES = ("past_key_values", "cache")
"""What `forward` and its output call their cache: the second since transformers 5.24."""
TRIAL_PROMPTS = ((3, 11, 7, 5), (9, 2, 6, 4, 8, 12, 10))
"""The prompts of a trial: the first has two answers, the second one."""


class SharedDecoder:
    """A prompt is read once, looked at once by all its answers, and nothing is copied for a token."""

    can_join = True
    """Whether further answers can begin while others grow."""
    _cache_type: ClassVar[type[KVCache] | type[PagedCache]] = KVCache

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        if not policy.backbone.can_replace_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        self._backbone: Any = without_head(policy.base)
        self._head = head_of(policy.base)
        self._last_position = _last_position(policy)
        self._device = policy.device
        self._kv_cache = self._cache_type(policy.device)
        self._beyond_N = torch.zeros(0, dtype=torch.long, device=policy.device)
        self.logits_NV = self._read(prompts, answers, extras or {})
        # What a layer carries on beside our keys would be lost, which fresh weights may not show in a trial.
        asking, config = self._kv_cache.layers, policy.base.config.get_text_config()
        if not asking:
            raise PackingError("no layer of it asks for attention by transformers' common interface")
        if policy.base._is_stateful or asking < getattr(config, "num_hidden_layers", 1):
            raise PackingError("some of its layers keep more than keys and values")

    @staticmethod
    def attention_context(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the attention of `KVCache`."""
        return policy.backbone.attention_context(KV_CACHE_ATTENTION)

    def step(self, token_N: Tensor) -> None:
        """Append one token to every completion; ``logits_NV`` then predicts the next."""
        # An answer that has ended goes on until it is left out, but not past the last place.
        place_N = _within(self._kv_cache.position_N + self._beyond_N, self._last_position)
        states_NH = self._states(token_N, place_N)
        self._kv_cache.advance()
        self.logits_NV = self._logits(states_NH)

    def select_rows(self, row_n: Tensor) -> None:
        self._kv_cache.select_rows(row_n)
        self._beyond_N = self._beyond_N[row_n]
        self.logits_NV = _rows_of(self.logits_NV, row_n)

    def join(self, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None) -> None:
        """Run further prompts through the model; their answers are the last rows."""
        self._append(self._read(prompts, answers, extras or {}))

    def add_answers(self, count: int) -> None:
        """Begin so many more answers to the prompt that was read last; one of them must still grow."""
        self._kv_cache.add_answers(count)
        self._beyond_N = torch.cat((self._beyond_N, self._beyond_N[-1:].expand(count)))
        self._append(self._last_prompt_logits_1V.expand(count, -1))

    def _append(self, logits_nV: Tensor) -> None:
        # Word by word, as `_logits` leaves them on a CPU.
        self.logits_NV = torch.cat((self.logits_NV.T, logits_nV.T), dim=1).T

    def _read(self, prompts: PromptIds, answers: Sequence[int], extras: Items) -> Tensor:
        places, others = split_positions(prompts, extras)
        refuse_unknown_extras(self._backbone, others)
        lengths, device = [len(prompt) for prompt in prompts], self._device
        group_n = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        tensors = [
            torch.tensor([token for prompt in prompts for token in prompt]),
            torch.cat(places).movedim(-1, 0).contiguous(),
            torch.tensor(lengths).cumsum(0) - 1,
            group_n,
            torch.stack([place.max() + 1 for place in places]) - torch.tensor(lengths),
        ]
        ids_S, place_S, last_P, group_n, beyond_P = move_together(tensors, device)
        self._beyond_N = torch.cat((self._beyond_N, beyond_P[group_n]))
        with self._kv_cache.reading(lengths, answers):
            states_SH = self._states(ids_S, place_S, others)
        # Only each prompt's last state is projected to the vocabulary: the others predict known tokens.
        logits_PV = self._logits(states_SH[last_P])
        self._last_prompt_logits_1V = logits_PV[-1:].clone()
        return _rows_of(logits_PV, group_n)

    def _states(self, ids_S: Tensor, place_S: Tensor, extras: Items | None = None) -> Tensor:
        output = self._backbone(
            input_ids=ids_S[None],
            position_ids=place_S.unsqueeze(-2),
            attention_mask=None,
            use_cache=False,
            growth=self._kv_cache,
            **(extras or {}),
            **token_types(self._backbone, ids_S[None], extras or {}),
        )
        return output.last_hidden_state[0]

    def _logits(self, states_NH: Tensor) -> Tensor:
        layer = self._head.layer
        if states_NH.device.type != "cpu":
            raw_NV = wide_product(states_NH, layer.weight.T)
        else:
            # The same product from the other side: a tall matrix by a narrow one is what a CPU is good at.
            raw_NV = (layer.weight @ states_NH.T).T
        return self._head.rule.apply(raw_NV if layer.bias is None else raw_NV + layer.bias)


class PagedDecoder(SharedDecoder):
    """As `SharedDecoder`, with keys and values in pages: nothing moves in a step, so it can be recorded."""

    _cache_type = PagedCache

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        rotation = getattr(policy.base.config.get_text_config(), "rope_parameters", None) or {}
        # A recorded step counts on from the tokens that are kept; M-RoPE from where a picture left off.
        if "mrope_section" in rotation:
            raise PackingError("its tokens have places of three numbers, which recorded steps do not count")
        super().__init__(policy, prompts, answers, extras)

    @property
    def _pages(self) -> PagedCache:
        assert isinstance(self._kv_cache, PagedCache)
        return self._kv_cache

    @property
    def generation(self) -> int:
        """Another number once what was recorded is of no use any more."""
        return self._pages.generation

    def step(self, token_N: Tensor) -> None:
        self.reserve(1, len(token_N))
        self.logits_NV = self.next_logits(token_N)
        self._pages.advance()

    def select_rows(self, row_n: Tensor) -> None:
        self._pages.select_rows(row_n)
        self._beyond_N = self._beyond_N[row_n]
        if len(self.logits_NV):
            self.logits_NV = _rows_of(self.logits_NV, row_n)

    def reserve(self, steps: int, rows: int) -> None:
        """Make room for so many steps of so many rows, of which the last ones may belong to nobody."""
        self._pages.reserve(steps, rows)

    def next_logits(self, token_B: Tensor) -> Tensor:
        """What predicts the token behind these, for which there is room; all of it happens on the device."""
        with self._pages.stepping(len(token_B)):
            place_B = _within(self._pages.position_R(len(token_B)), self._last_position)
            return self._logits(self._states(token_B, place_B))

    def count(self, steps: int) -> None:
        """So many steps were made by `next_logits`, and what predicts the next tokens is not at hand."""
        self._pages.advance(steps)
        self.logits_NV = self.logits_NV[:0]


class CachedDecoder:
    """Each answer is a row of transformers' own cache; a prompt is read once and copied for its answers."""

    # Rows of transformers' cache begin together.
    can_join = False

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        """Read the prompts, padded on the left."""
        places, others = split_positions(prompts, extras or {})
        refuse_unknown_extras(without_head(policy.base), others)
        self._model: Any = policy.model
        self._headless = without_head(policy.base)
        self._last_position = _last_position(policy)
        self._cache_name = cache_name_of(policy.base) or _CACHE_NAMES[-1]
        self._cache: Any = None
        longest = max(map(len, prompts))
        ids_PL = torch.zeros(len(prompts), longest, dtype=torch.long)
        real_PL = torch.zeros_like(ids_PL)
        for p, prompt in enumerate(prompts):
            ids_PL[p, longest - len(prompt) :] = torch.tensor(prompt)
            real_PL[p, longest - len(prompt) :] = 1
        self._real_NS = real_PL.to(policy.device)
        # Padding on the left gets position 0: masked, but an index that the embedding table has.
        place_PL = torch.zeros(*places[0].shape[1:], *ids_PL.shape, dtype=torch.long)
        for p, place in enumerate(places):
            place_PL[..., p, longest - len(place) :] = place.movedim(-1, 0)
        beyond_P = torch.stack([place.max() + 1 - len(place) for place in places])
        self._beyond_N1 = beyond_P[:, None].to(policy.device)
        self.logits_NV = self._logits(ids_PL.to(policy.device), place_PL.to(policy.device), others)
        group_N = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(answers))
        # Repeated after the prompt was read once: copying is cheaper than reading K times.
        self.select_rows(group_N.to(policy.device))

    @staticmethod
    def attention_context(policy: Policy) -> AbstractContextManager[Any]:
        """In evaluation mode, with the model's ordinary attention."""
        return policy.as_plain_model()

    def step(self, token_N: Tensor) -> None:
        self._real_NS = torch.cat((self._real_NS, torch.ones_like(token_N)[:, None]), dim=1)
        place_N1 = self._real_NS.sum(1, keepdim=True) - 1 + self._beyond_N1
        self.logits_NV = self._logits(token_N[:, None], _within(place_N1, self._last_position))

    def select_rows(self, row_n: Tensor) -> None:
        # Only what beam search uses exists for every kind of layer; it takes any number of rows.
        self._cache.reorder_cache(row_n)
        self._real_NS, self._beyond_N1 = self._real_NS[row_n], self._beyond_N1[row_n]
        self.logits_NV = self.logits_NV[row_n]

    def _logits(self, ids_NL: Tensor, place_NL: Tensor, extras: Items | None = None) -> Tensor:
        output = self._model(
            input_ids=ids_NL,
            position_ids=place_NL,
            attention_mask=self._real_NS,
            use_cache=True,
            # A prompt of 4,000 tokens would otherwise make a [P, 4000, V] table for its last row.
            logits_to_keep=1,
            **{self._cache_name: self._cache},
            **(extras or {}),
            **token_types(self._headless, ids_NL, extras or {}),
        )
        self._cache = output[self._cache_name]
        return output.logits[:, -1]


def cache_name_of(model: type | nn.Module) -> str | None:
    """The name by which a model's ``forward`` takes a cache; None where it takes none that we know."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in _CACHE_NAMES if name in parameters), None)


class RereadingDecoder:
    """Each step reads all texts again, those of one length together: without cache and without padding."""

    can_join = False

    def __init__(
        self, policy: Policy, prompts: PromptIds, answers: Sequence[int], extras: Items | None = None
    ) -> None:
        if extras:
            raise UserError(f"{type(policy.base).__name__} cannot answer what shows more than tokens")
        self._model: Any = policy.model
        parameters = inspect.signature(policy.base.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        last = _last_position(policy)
        self._longest = None if last is None else last + 1
        self._texts = [
            torch.tensor(list(prompt), device=policy.device)
            for prompt, count in zip(prompts, answers, strict=True)
            for _ in range(count)
        ]
        self.logits_NV = self._logits()

    attention_context = staticmethod(CachedDecoder.attention_context)

    def step(self, token_N: Tensor) -> None:
        for n, token in enumerate(token_N):
            # An answer that has ended goes on until it is left out, but not past the last place.
            self._texts[n] = torch.cat((self._texts[n], token[None]))[: self._longest]
        self.logits_NV = self._logits()

    def select_rows(self, row_n: Tensor) -> None:
        self._texts = [self._texts[n] for n in row_n.tolist()]
        self.logits_NV = self.logits_NV[row_n]

    def _logits(self) -> Tensor:
        logits_by_row: dict[int, Tensor] = {}
        for length in {len(text) for text in self._texts}:
            rows = [n for n, text in enumerate(self._texts) if len(text) == length]
            ids_nL = torch.stack([self._texts[n] for n in rows])
            output = self._model(input_ids=ids_nL, use_cache=False, **self._last_only)
            logits_by_row |= dict(zip(rows, output.logits[:, -1], strict=True))
        return torch.stack([logits_by_row[n] for n in range(len(self._texts))])


SlowDecoder = CachedDecoder | RereadingDecoder
Decoder = type[PagedDecoder] | type[SharedDecoder] | type[CachedDecoder] | type[RereadingDecoder]
"""Begun with a policy, prompts and how many answers each has, one after another, in ``attention_context``;
then ``logits_NV`` predicts every answer's next token, ``step`` adds it, ``select_rows`` leaves some out."""


_REFUSALS: Mapping[Decoder, tuple[type[Exception], ...]] = {
    # A kernel of the device may refuse with an error of its own, and a model's own cache with any.
    PagedDecoder: (UserError, RuntimeError),
    SharedDecoder: (UserError,),
    CachedDecoder: (Exception,),
}


def fastest_decoder(policy: Policy) -> tuple[Decoder, str | None]:
    """The decoder that this model can be trusted with, and why when it is not the fast one."""
    reasons: list[str] = []
    expected = _trial_logits(policy, RereadingDecoder)
    for decoder, refusals in _REFUSALS.items():
        if decoder is PagedDecoder and policy.device.type not in ACCELERATED:
            continue
        try:
            found = _trial_logits(policy, decoder)
        except refusals as error:
            named = "" if isinstance(error, UserError | RuntimeError) else f"{type(error).__name__}: "
            reasons.append(named + str(error).partition("\n")[0])
            continue
        difference = _largest_difference(found, expected)
        if difference <= tolerance(policy) * _spread(expected) or _agrees_in_full(policy, decoder):
            return decoder, reasons[0] if reasons else None
        reasons.append(f"logits differ by {difference:.2g}")
    return RereadingDecoder, f"each token reads all of its text again, since {' and '.join(reasons)}"


def _agrees_in_full(policy: Policy, decoder: Decoder) -> bool:
    """Whether it is right in all digits: some models differ from themselves by whole nats in 16 bits."""
    if not has_half_digits(policy):
        return False
    with policy.backbone.in_full():
        logits, expected = (_trial_logits(policy, each) for each in (decoder, RereadingDecoder))
        return _largest_difference(logits, expected) <= tolerance(policy) * _spread(expected)


def _trial_logits(policy: Policy, decoder: Decoder) -> list[Tensor]:
    """What a decoder predicts of a few fixed tokens; before the second one an answer leaves."""
    # Fixed: with greedy choices one near tie would make all that follows differ.
    vocabulary_size = policy.base.config.get_text_config().vocab_size
    prompts = [[token % vocabulary_size for token in prompt] for prompt in TRIAL_PROMPTS]
    row_N = torch.arange(3, device=policy.device)
    with torch.inference_mode(), decoder.attention_context(policy):
        item = decoder(policy, prompts, (2, 1))
        logits = [item.logits_NV]
        item.step((row_N * 5 + 1) % vocabulary_size)
        logits.append(item.logits_NV)
        item.select_rows(row_N[1:])
        item.step((row_N[1:] * 5 + 2) % vocabulary_size)
        return [*logits, item.logits_NV]


def _largest_difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    differences = [float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)]
    # Each one is looked at: a NaN compares False, so that max() may pass it over.
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def _spread(logits: Sequence[Tensor]) -> float:
    """How large scores are, at least 1: rounding grows with them."""
    # A token in a wrong place moves scores by as much as they are spread.
    return max(1.0, float(torch.cat(list(logits)).float().std()))


def _rows_of(logits_NV: Tensor, row_n: Tensor) -> Tensor:
    # Word by word in memory, as a product from the other side leaves them.
    return logits_NV.T.index_select(1, row_n).T


def _last_position(policy: Policy) -> int | None:
    longest = getattr(policy.base.config.get_text_config(), "max_position_embeddings", None)
    return None if longest is None else longest - 1


def _within(position: Tensor, last: int | None) -> Tensor:
    # A model that names no longest text has no last position either.
    return position if last is None else position.clamp(max=last)
