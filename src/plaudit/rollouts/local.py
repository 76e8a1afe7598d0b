"""A model that answers on this machine: a folder, or a policy while it is being trained.

Many completions grow side by side until each has ended. A token is drawn by one uniform number a row,
inverted through the filtered distribution that a decoder predicts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.models.decode import Decoder, MixtureDecoderFactory, fastest_decoder, mixture_decoder
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import GeneratingReference, Policy
from plaudit.rollouts.sampler import (
    Answer,
    GenerationPrompt,
    GenerationRequest,
    Rollout,
    SamplingSettings,
    TokenIds,
    WeightsVersion,
    generation_requests,
)
from plaudit.tokens.batch import NO_EXTRAS, Completion, Example, Extras, collate_extras, extras_digest
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt

SUM_BLOCK = 256
"""Tokens whose probabilities are added up first, so that a place is looked for in a few sums."""
TOP_P_CANDIDATES = (256, 4096)
"""How many of the likeliest tokens are sorted, before all of them are, to find those of top-p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """A token for each of N answers.

    Example: ``sample_tokens(logits_NV, chance_N, SamplingSettings(top_p=0.9)).logp_N``
    """

    token_N: Int[Tensor, " N"]
    """The sampled tokens."""
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

    >>> likely = torch.tensor([[0.5, 0.2, 0.3]]).log()
    >>> [int(sample_tokens(likely, torch.tensor([c]), SamplingSettings()).token_N) for c in (0.4, 0.6, 0.9)]
    [0, 1, 2]
    >>> one = sample_tokens(likely, torch.tensor([0.9]), SamplingSettings(top_p=0.6))
    >>> int(one.token_N), round(float(one.logp_N.exp()), 3), round(float(one.whole_logp_N.exp()), 3)
    (2, 0.375, 0.3)
    """
    # bfloat16 has 8 bits: the sums below would lose tokens that are rarer than 1 in 2⁸.
    logits_NV = logits_NV.float()
    top_N1 = logits_NV.amax(-1, keepdim=True)
    if not top_N1.isfinite().all():
        raise UserError(
            "the model's scores are not numbers: its weights are damaged, or a training run diverged"
        )
    # With the largest at zero, no temperature is too small to divide by.
    temperature = 1.0 if settings.greedy else settings.temperature
    # In place on the difference, which is fresh: [N, V] is the largest tensor of a decoding step.
    p_NV = (logits_NV - top_N1).div_(temperature).exp_()
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
    """The probabilities with 0 for every token that top-k, top-p and min-p leave out."""
    if 0 < settings.top_k < p_NV.shape[1]:
        top_NK, word_NK = p_NV.topk(settings.top_k)
        p_NV = torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK)
    if settings.top_p < 1:
        p_NV = _top_p(p_NV, settings.top_p)
    # The likeliest token has e⁰ = 1 here, so p is already the share of it that min-p asks about.
    return p_NV.where(p_NV >= settings.min_p, 0) if settings.min_p else p_NV


def _top_p(p_NV: Tensor, share: int | float) -> Tensor:
    target_N1 = share * p_NV.sum(-1, keepdim=True, dtype=torch.float64)
    # A vocabulary is slow to sort at every token, and few candidates nearly always reach top-p.
    for count in (candidates for candidates in TOP_P_CANDIDATES if candidates < p_NV.shape[1]):
        top_NK, word_NK = p_NV.topk(count)
        if (top_NK.sum(-1, keepdim=True, dtype=torch.float64) >= target_N1).all():
            return _smallest_nucleus(p_NV, top_NK, word_NK, target_N1)
    return _smallest_nucleus(p_NV, *p_NV.sort(dim=-1, descending=True, stable=True), target_N1)


def _smallest_nucleus(p_NV: Tensor, top_NK: Tensor, word_NK: Tensor, target_N1: Tensor) -> Tensor:
    """Only as many of the likeliest tokens as reach together what is wanted."""
    # Exclusive sums: the token that crosses the share still belongs to the nucleus.
    before_NK = top_NK.double().cumsum(-1) - top_NK
    return torch.zeros_like(p_NV).scatter_(1, word_NK, top_NK.where(before_NK < target_N1, 0))


def uniform_numbers(
    settings: SamplingSettings,
    ids: tuple[int, ...],
    sample: int,
    max_new_tokens: int,
    extras: Extras = NO_EXTRAS,
) -> Tensor:
    """A uniform number from 0 to 1 for each token that one completion has room for.

    They depend on nothing but the seed, the prompt (its tokens and what it shows beside them) and which
    answer to it this is; more room only adds numbers.
    """
    if settings.greedy:
        return torch.zeros(max_new_tokens, dtype=torch.float64)
    shown = extras_digest(extras, ("prompt", "item"))
    # Not hash(), which Python salts anew in every process.
    digest = blake2b(f"{settings.seed}/{sample}/{ids}{shown}".encode(), digest_size=8)
    generator = torch.Generator().manual_seed(int.from_bytes(digest.digest()))
    return torch.rand(max_new_tokens, dtype=torch.float64, generator=generator)


COMPACTION_SHARE = 8
"""Finished completions are dropped from the batch once they are one in so many: dropping copies the cache."""
MAX_TOKENS_PER_CHARACTER = 4
"""The most tokens that one character can take."""


TAIL_TOKENS = 4
"""Tokens of a plain prompt that decide how its continuation is spelled: with a blank in front, or without."""


@dataclass(slots=True)
class _PartialCompletion:
    """A completion that is being generated."""

    request: GenerationRequest
    ids: list[int]
    logp: list[float]
    whole_logp: list[float]
    ended: bool = False

    @property
    def is_done(self) -> bool:
        return self.ended or len(self.ids) == self.request.max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEngine:
    """A policy with its tokenizer, and the decoder that it can be trusted with.

    Example: ``GenerationEngine(policy=policy, encoder=encoder, decoder=fastest_decoder(policy)[0])``
    """

    policy: Policy
    """What answers; its weights at this moment, whatever trains them meanwhile."""
    encoder: Encoder
    """Encodes prompts and decodes completions."""
    decoder: Decoder | MixtureDecoderFactory
    """How its next tokens are predicted: by the policy alone, or by a mixture with another one."""
    products: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The arithmetic of its matrix products."""

    def generate(self, requests: Sequence[GenerationRequest], settings: SamplingSettings) -> list[Rollout]:
        """A rollout for each request, generated in one batch; equal prompts in a row are read once."""
        completions = [_PartialCompletion(request, [], [], []) for request in requests]
        for _ in self._decode_steps(completions, settings):
            pass
        return [self._rollout(completion, settings) for completion in completions]

    def stream(self, request: GenerationRequest, settings: SamplingSettings) -> Iterator[Rollout]:
        """The rollout of one request so far, after each of its tokens."""
        completion = _PartialCompletion(request, [], [], [])
        for _ in self._decode_steps([completion], settings):
            yield self._rollout(completion, settings)

    def _decode_steps(
        self, completions: Sequence[_PartialCompletion], settings: SamplingSettings
    ) -> Iterator[None]:
        """Generate the next token of every completion, one yield a step, until all have ended."""
        # Neighbours only; generate_requests sorts, so that equal prompts are neighbours and read once.
        groups = [
            list(group)
            for _, group in groupby(
                (completion.request for completion in completions), lambda request: request.prompt_id
            )
        ]
        prompts = [group[0].prompt for group in groups]
        extras = _items(groups, self.policy.device)
        rows, uniform_NT = list(completions), _uniform_numbers(completions, settings).to(self.policy.device)
        with self.decoder.attention_context(self.policy):
            with self._inference():
                decoder = self.decoder(self.policy, prompts, list(map(len, groups)), extras)
            for step in range(uniform_NT.shape[1]):
                with self._inference():
                    sampled = sample_tokens(decoder.logits_NV, uniform_NT[:, step], settings)
                self._append_tokens(rows, sampled, settings)
                yield
                active = [r for r, row in enumerate(rows) if not row.is_done]
                if not active:
                    return
                token_N = sampled.token_N
                with self._inference():
                    if COMPACTION_SHARE * (len(rows) - len(active)) >= len(rows):
                        row_n = torch.tensor(active, device=self.policy.device)
                        # Cache, numbers and rows alike, or rows would go on with others' tokens.
                        decoder.select_rows(row_n)
                        token_N, uniform_NT, rows = (
                            token_N[row_n],
                            uniform_NT[row_n],
                            [rows[r] for r in active],
                        )
                    # Finished rows compute along until enough of them have gathered to be worth a copy.
                    decoder.step(token_N)

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Inference mode and the engine's precision, but not while a caller of ``stream`` runs between
        steps.
        """
        with torch.inference_mode(), self.products():
            yield

    def _append_tokens(
        self, rows: Sequence[_PartialCompletion], sampled: SampledTokens, settings: SamplingSettings
    ) -> None:
        """A token more for those that go on; what is drawn for the others is not kept."""
        parts = (sampled.token_N.tolist(), sampled.logp_N.tolist(), sampled.whole_logp_N.tolist())
        for item, token, logp, whole_logp in zip(rows, *parts, strict=True):
            if not item.is_done:
                item.ids.append(token)
                item.logp.append(logp)
                item.whole_logp.append(whole_logp)
                item.ended = token in self.encoder.stop_ids or self._hit_stop_string(item, settings)

    def _hit_stop_string(self, completion: _PartialCompletion, settings: SamplingSettings) -> bool:
        if not settings.stop:
            return False
        # The end alone: decoding all of an answer at each of its tokens would be quadratic.
        last = self._decode(completion.ids[-MAX_TOKENS_PER_CHARACTER * max(map(len, settings.stop)) - 1 :])
        return any(stop in last for stop in settings.stop)

    def _rollout(self, completion: _PartialCompletion, settings: SamplingSettings) -> Rollout:
        ended_by_token = completion.ids[-1] in self.encoder.stop_ids
        # Only a plain text is gone on from; behind a template's turn an answer begins anew.
        tail = completion.request.prompt[-TAIL_TOKENS:] if not self.encoder.asks_in_turns else ()
        # Decoded behind the prompt's last tokens: by itself SentencePiece would drop a first blank.
        before = self._decode(tail)
        text = self._decode([*tail, *(completion.ids[:-1] if ended_by_token else completion.ids)])[
            len(before) :
        ]
        # The text loses what it was stopped at; the tokens keep it, because they were drawn.
        for stop in settings.stop:
            text = text.split(stop, 1)[0]
        return Rollout(
            prompt=completion.request.prompt,
            ids=tuple(completion.ids),
            logp=tuple(completion.logp),
            whole_logp=tuple(completion.whole_logp),
            answer=Answer(text=text, tokens=len(completion.ids), ended=completion.ended),
        )

    def _decode(self, ids: Sequence[int]) -> str:
        decode: Any = self.encoder.info.tokenizer.decode
        return decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _items(groups: Sequence[Sequence[GenerationRequest]], device: torch.device) -> dict[str, Tensor]:
    """The items of each prompt, in the order of prompts, as a decoder reads them."""
    columns = collate_extras([group[0].extras for group in groups], [""] * len(groups))
    for name, extra in columns.items():
        if extra.axis != "item":
            raise UserError(
                f"the extra {name!r} is of axis {extra.axis!r}; prompts to generate from can show items, "
                "which are read with the prompt and never again"
            )
    return {name: extra.value.to(device) for name, extra in columns.items()}


def _uniform_numbers(completions: Sequence[_PartialCompletion], settings: SamplingSettings) -> Tensor:
    requests = [completion.request for completion in completions]
    longest = max(request.max_new_tokens for request in requests)
    # Rows with less room are done before their zeros are read.
    uniform_NT = torch.zeros(len(requests), longest, dtype=torch.float64)
    for row, request in enumerate(requests):
        uniform_NT[row, : request.max_new_tokens] = uniform_numbers(
            settings, request.prompt, request.sample, request.max_new_tokens, request.extras
        )
    return uniform_NT


MAX_BATCH_SIZE = {"cpu": 64, "cuda": 256}
"""The most completions that are generated side by side, by device type."""


class LocalSampler:
    """A model and its tokenizer, ready to answer."""

    def __init__(self, model: Path, *, device: str = "auto") -> None:
        """Load a Hugging Face folder; ``device`` is auto (a GPU where there is one), cpu, cuda or cuda:1."""
        target = device_of(device)
        dtypes = precision("auto", target)
        # Nothing is trained here, so no float32 copy of half-precision weights is kept.
        loaded: Any = load_model(model, dtype=dtypes.products, device=target)
        encoder = make_encoder(model)
        _refuse_without_cache(model, loaded)
        self._set_up(Policy(loaded, layout="right"), encoder, nullcontext, WeightsVersion())

    @classmethod
    def from_policy(
        cls,
        policy: Policy,
        encoder: Encoder,
        products: Callable[[], AbstractContextManager[Any]] = nullcontext,
        weights: WeightsVersion | None = None,
    ) -> LocalSampler:
        """A sampler of a policy in memory: it generates with the weights of the moment.

        ``weights`` is counted on by whoever moves them; without it the version stays 0.
        """
        sampler = cls.__new__(cls)
        _refuse_without_cache(policy.base.name_or_path, policy.base)
        sampler._set_up(policy, encoder, products, weights or WeightsVersion())
        return sampler

    def _set_up(
        self,
        policy: Policy,
        encoder: Encoder,
        products: Callable[[], AbstractContextManager[Any]],
        weights: WeightsVersion,
    ) -> None:
        decoder, self.fallback_reason = fastest_decoder(policy)
        """Why this model's own cache is used in place of ours; None when ours is."""
        self._engine = GenerationEngine(policy=policy, encoder=encoder, decoder=decoder, products=products)
        self._encoder = encoder
        self._weights = weights
        self.max_positions: int | None = getattr(
            policy.base.config.get_text_config(), "max_position_embeddings", None
        )
        """The most tokens of a prompt with its answer; None where the model names no limit."""
        embedding: Any = policy.base.get_input_embeddings()
        self._vocabulary_size: int = embedding.weight.shape[0]
        self._batch_size = MAX_BATCH_SIZE.get(policy.device.type, MAX_BATCH_SIZE["cpu"])

    def mixed_with(self, reference: GeneratingReference, share: int | float) -> LocalSampler:
        """A sampler of the mixture with a reference, which counts with this share (`mixture_logits`)."""
        _refuse_without_cache(reference.policy.base.name_or_path, reference.policy.base)
        # A shallow copy shares the counter of versions: the mixture moves when the policy does.
        engine, sampler = self._engine, copy(self)
        assert not isinstance(engine.decoder, MixtureDecoderFactory), "a mixture of a mixture"
        decoder, fallback = mixture_decoder(engine.policy, engine.decoder, reference, share)
        sampler._engine = replace(engine, decoder=decoder)
        sampler.fallback_reason = self.fallback_reason or fallback
        return sampler

    @property
    def version(self) -> int:
        """The version of the weights that it samples from."""
        return self._weights.number

    @property
    def policy(self) -> Policy:
        """What answers."""
        return self._engine.policy

    @property
    def encoder(self) -> Encoder:
        """Encodes prompts and decodes completions."""
        return self._encoder

    @property
    def has_chat_template(self) -> bool:
        """Whether a string is a user's turn: the tokenizer has a template, and text is not raw."""
        return self._encoder.asks_in_turns

    def check(self, prompt: Text) -> None:
        """Complain about a prompt that cannot be answered: it is empty, or the model cannot read it."""
        self.encode(prompt)

    def encode(self, prompt: Text) -> GenerationPrompt:
        """What the model is shown; a prompt that cannot be answered is refused."""
        encoded_prompt = encode_prompt(prompt, self._encoder)
        self._refuse_unreadable(encoded_prompt.prompt, prompt)
        return encoded_prompt.shown

    def generate(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn.

        Each answer has numbers of its own, made from the seed, its prompt and how often that prompt was
        answered before; so neither the other prompts nor ``n`` change it, up to the rounding of batched
        matrix products. A prompt that is given twice gets different answers.
        """
        rollouts_in_order = self.generate_requests(self.requests_for(prompts, settings, n), settings)
        return [rollouts_in_order[p * n : (p + 1) * n] for p in range(len(prompts))]

    def requests_for(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        """The requests that `generate` serves: ``n`` for each prompt, with the room that the model has."""
        return generation_requests(prompts, settings, n, self.max_positions)

    def generate_requests(
        self, requests: Sequence[GenerationRequest], settings: SamplingSettings
    ) -> list[Rollout]:
        """A rollout for each request, in their order; prompts may be any tokens that the model knows."""
        for request in requests:
            self._refuse_unreadable(request.prompt)
        # Like lengths next to each other save padding, and equal prompts meet.
        keys = [(len(request.prompt), request.prompt, request.prompt_id) for request in requests]
        order = sorted(range(len(requests)), key=lambda place: keys[place])
        rollouts_by_place: dict[int, Rollout] = {}
        for start in range(0, len(order), self._batch_size):
            places = order[start : start + self._batch_size]
            rollouts = self._engine.generate([requests[a] for a in places], settings)
            rollouts_by_place.update(zip(places, rollouts, strict=True))
        return [replace(rollouts_by_place[a], version=self.version) for a in range(len(requests))]

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every prompt, the text of ``n`` answers."""
        groups = self.generate([self.encode(prompt) for prompt in prompts], settings, n=n)
        return [[rollout.answer for rollout in group] for group in groups]

    def stream(self, prompt: Text, settings: SamplingSettings) -> Generator[str, None, Answer]:
        """The first answer to a prompt, in pieces as they come; the generator returns it whole."""
        [request] = self.requests_for([self.encode(prompt)], settings, 1)
        return self._stream_pieces(request, settings)

    def _stream_pieces(
        self, request: GenerationRequest, settings: SamplingSettings
    ) -> Generator[str, None, Answer]:
        # The last characters may yet become something to stop at, which is not said.
        held_back = max((len(stop) - 1 for stop in settings.stop), default=0)
        sent, answer = "", Answer(text="", tokens=0, ended=False)
        for rollout in self._engine.stream(request, settings):
            answer = rollout.answer
            safe = answer.text[: len(answer.text) - held_back]
            # A character of several tokens is a replacement mark until its last one is there.
            if len(safe) > len(sent) and not safe.endswith("�"):
                yield safe[len(sent) :]
                sent = safe
        if answer.text != sent:
            yield answer.text[len(sent) :]
        return answer

    def _refuse_unreadable(self, ids: TokenIds, prompt: Text | None = None) -> None:
        """Raise where the model knows a token not, or has no room for an answer; ``prompt`` is for errors."""
        # On a GPU an unknown id is an assertion of the device, after which the whole process is lost.
        if max(ids) >= self._vocabulary_size:
            token = self._encoder.info.tokenizer.convert_ids_to_tokens(max(ids))
            raise UserError(
                f"the prompt holds {token!r}, which is token {max(ids):,}; the model knows "
                f"{self._vocabulary_size:,} "
                "(resize_token_embeddings of transformers makes room for added tokens)"
            )
        if self.max_positions is not None and len(ids) >= self.max_positions:
            raise UserError(
                f"the prompt has {len(ids):,} tokens and the model reads {self.max_positions:,} with its "
                "answer, so there is no room for one; shorten the prompt "
                f"({_excerpt(self._encoder.info.decode(ids) if prompt is None else prompt)})"
            )


def _refuse_without_cache(folder: object, model: Any) -> None:
    parameters = inspect.signature(model.forward).parameters
    missing = [
        name for name in ("position_ids", "past_key_values", "logits_to_keep") if name not in parameters
    ]
    if missing:
        raise UserError(
            f"{folder}: {type(model).__name__} cannot be sampled here, since it takes no "
            f"{' and no '.join(missing)}; use a transformer with attention, or transformers' own generate"
        )


def _excerpt(prompt: Text) -> str:
    """The first words of a prompt, to know it by."""
    text = " ".join(plain_text(prompt).split())
    return f"{text[:40].strip()} …" if len(text) > 40 else text


def example_from_rollouts(prompt: EncodedPrompt, answers: Sequence[Rollout]) -> Example:
    """The generated tokens of a prompt as an example; tokens of an environment are masked out."""
    completions = tuple(
        Completion(
            ids=answer.ids,
            mask=(True,) * len(answer.ids) if answer.mask is None else answer.mask,
            finished=answer.answer.ended,
        )
        for answer in answers
    )
    return Example(prompt=prompt.prompt, completions=completions, origin=prompt.origin, extras=prompt.extras)
