"""A model that answers on this machine: a folder, or a policy while it is being trained.

Many completions grow side by side. Where enough have ended, the next in the queue take their places while
the others go on (continuous batching). Tokens are drawn in ``drawing.py``, one uniform number each.
"""

import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.models import decode, mixture
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import GeneratingReference, Policy
from plaudit.rollouts import drawing
from plaudit.rollouts.sampler import (
    Answer,
    GenerationPrompt,
    GenerationRequest,
    Rollout,
    SamplingSettings,
    TokenIds,
    WeightsVersion,
    decode_tokens,
    decoded_rollout,
    generation_requests,
)
from plaudit.tokens.batch import POSITIONS, Completion, Example, Extra, collate_extras
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt

COMPACTION_SHARE = 8
"""Ended completions leave the batch, and others join, once they are one in so many: both copy the cache."""
MAX_BATCH_SIZE = {"cpu": 64, "cuda": 256}
"""The most completions that are generated side by side, by device type."""
RECORDERS: dict[str, drawing.Recorder] = {"cuda": drawing.record_graph}
LOOK_EVERY = {"cpu": 1, "cuda": 8}
"""After how many tokens it is looked which completions have ended, by device type."""
MAX_TOKENS_PER_CHARACTER = 4
"""The most tokens that one character can take."""


@dataclass(slots=True)
class _PartialCompletion:
    request: GenerationRequest
    ids: list[int]
    logp: list[float]
    whole_logp: list[float]
    ended: bool = False

    @property
    def is_done(self) -> bool:
        return self.ended or len(self.ids) == self.request.max_new_tokens


class _Batch:
    """Completions that grow side by side: the next in the queue take the places of those that have ended."""

    def __init__(
        self,
        engine: "GenerationEngine",
        completions: Sequence[_PartialCompletion],
        settings: SamplingSettings,
    ) -> None:
        """Nothing is read yet; use it within the decoder's ``attention_context``."""
        self.rows: list[_PartialCompletion] = []
        """Those that grow, or have ended since the last `advance` that dropped some."""
        self._engine, self._settings, self._queue = engine, settings, deque(completions)
        self._decoder: decode.SharedDecoder | decode.SlowDecoder | mixture.MixtureDecoder | None = None
        self._recorded: drawing.RecordedSteps | None = None
        self._last_prompt: str | None = None
        rows = min(engine.batch_size, len(completions))
        room = max((completion.request.max_new_tokens for completion in completions), default=1)
        self._state = drawing.DrawingState.allocate(rows=rows, room=room, device=engine.policy.device)

    def unfinished(self) -> int:
        return len(self._queue) + sum(not row.is_done for row in self.rows)

    def advance(self) -> drawing.SampledTokens:
        """The next tokens of every row, ``[steps, rows]``; those for whom there is a place join before."""
        self._drop_ended()
        if self.rows and not self._places():
            return self._more(self._steps())
        if self.rows:
            assert self._decoder is not None
            self._decoder.step(self._state.token_C[: len(self.rows)])
        self._admit([self._queue.popleft() for _ in range(self._places())])
        first = self._draw()
        further = self._steps() - 1
        return _joined(first, self._more(further) if further else None)

    def _places(self) -> int:
        places = self._engine.batch_size - len(self.rows)
        can_join = self._decoder is None or self._decoder.can_join
        return min(places, len(self._queue)) if can_join else 0

    def _steps(self) -> int:
        """How many tokens are drawn before the host looks at them: none that no row has room for."""
        longest = max(row.request.max_new_tokens - len(row.ids) for row in self.rows if not row.is_done)
        return min(self._engine.look_every, longest)

    def _drop_ended(self) -> None:
        active = [r for r, row in enumerate(self.rows) if not row.is_done]
        if not active:
            self.rows, self._decoder, self._recorded = [], None, None
        # Ended rows compute along until enough of them have gathered to be worth a copy.
        elif COMPACTION_SHARE * (len(self.rows) - len(active)) >= len(self.rows):
            assert self._decoder is not None
            row_n = torch.tensor(active, device=self._engine.policy.device)
            # Cache, numbers and rows alike, or rows would go on with others' tokens.
            self._decoder.select_rows(row_n)
            self._state.select_rows(row_n)
            self.rows = [self.rows[r] for r in active]

    def _draw(self) -> drawing.SampledTokens:
        assert self._decoder is not None
        return self._state.draw(self._decoder.logits_NV, self._settings)

    def _more(self, steps: int) -> drawing.SampledTokens:
        rows = len(self.rows)
        if isinstance(self._decoder, decode.PagedDecoder):
            if self._recorded is None:
                self._recorded = drawing.RecordedSteps(
                    decoder=self._decoder,
                    state=self._state,
                    settings=self._settings,
                    most_steps=self._engine.look_every,
                    record=self._engine.record,
                )
            drawn_together = self._recorded.run(rows=rows, steps=steps)
            if self._recorded.refusal is not None:
                # The trial's steps could be recorded, so nobody was told; said once, as warnings are.
                warnings.warn(
                    f"sampling is slower here: its steps cannot be recorded ({self._recorded.refusal})",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return drawn_together
        drawn: list[drawing.SampledTokens] = []
        for _ in range(steps):
            assert self._decoder is not None
            self._decoder.step(self._state.token_C[:rows])
            drawn.append(self._draw())
        return _joined(*drawn)

    def _admit(self, joining: Sequence[_PartialCompletion]) -> None:
        """Read the prompts of these completions, equal neighbours once, and make them the last rows."""
        # Neighbours only; generate_requests sorts, so that equal prompts are neighbours and read once.
        groups = [
            list(group)
            for _, group in groupby(
                (completion.request for completion in joining), lambda request: request.prompt_id
            )
        ]
        first_prompt, last_prompt, decoder = groups[0][0].prompt_id, groups[-1][0].prompt_id, self._decoder
        assert not isinstance(decoder, decode.SlowDecoder), "rows of the model's own passes begin together"
        # An answer to the prompt that was read last grows on, as the last row.
        if decoder is not None and first_prompt == self._last_prompt == self.rows[-1].request.prompt_id:
            decoder.add_answers(len(groups.pop(0)))
        if groups:
            self._decoder = self._read(decoder, groups)
        self._last_prompt = last_prompt
        uniform_nT = _uniform_numbers(joining, self._settings)
        self._state.add_rows(len(self.rows), uniform_nT)
        self.rows += joining

    def _read(
        self,
        decoder: decode.SharedDecoder | mixture.MixtureDecoder | None,
        groups: Sequence[Sequence[GenerationRequest]],
    ) -> decode.SharedDecoder | decode.SlowDecoder | mixture.MixtureDecoder:
        """The decoder once it has read a prompt for each group; a new one where nothing grows."""
        prompts, answers = [group[0].prompt for group in groups], list(map(len, groups))
        policy = self._engine.policy
        # The items of each prompt, in the order of prompts, as a decoder reads them.
        rows = [group[0].extras for group in groups]
        if any(POSITIONS in extras for extras in rows):
            rows = [
                {POSITIONS: _running_on(prompt)} | {**each}
                for prompt, each in zip(prompts, rows, strict=True)
            ]
        columns = collate_extras(rows, [""] * len(groups))
        for name, extra in columns.items():
            if extra.axis != "item":
                raise UserError(
                    f"the extra {name!r} is of axis {extra.axis!r}; prompts to generate from can show items, "
                    "which are read with the prompt and never again"
                )
        order = range(len(groups))
        items = {name: extra.rows_for(order).to(policy.device) for name, extra in columns.items()}
        if decoder is None:
            return self._engine.decoder(policy, prompts, answers, items)
        decoder.join(prompts, answers, items)
        return decoder


def _running_on(prompt: Sequence[int]) -> Extra:
    return Extra(value=torch.arange(len(prompt))[:, None].expand(-1, 3), axis="item")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEngine:
    """A policy with its tokenizer, and the decoder that it can be trusted with."""

    policy: Policy
    """What answers; its weights at this moment, whatever trains them meanwhile."""
    encoder: Encoder
    decoder: decode.Decoder | mixture.MixtureDecoderFactory
    """How its next tokens are predicted: by the policy alone, or by a mixture with another one."""
    batch_size: int = MAX_BATCH_SIZE["cpu"]
    """The most completions that grow side by side; the others begin as soon as places get free."""
    look_every: int = 1
    """After so many tokens it is looked which completions have ended: a GPU is waited for each time."""
    record: drawing.Recorder | None = None
    """How a step of a `PagedDecoder` is recorded; None: steps are made one by one."""

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        settings: SamplingSettings,
        on_step: Callable[[int], None] = lambda ended: None,
    ) -> list[Rollout]:
        """A rollout for each request, in their order; equal prompts in a row are read once.
        ``on_step`` is told after each token how many have ended."""
        completions = [_PartialCompletion(request, [], [], []) for request in requests]
        for unfinished in self._decode_steps(completions, settings):
            on_step(len(completions) - unfinished)
        return [self._rollout(completion, settings) for completion in completions]

    def stream(self, request: GenerationRequest, settings: SamplingSettings) -> Iterator[Rollout]:
        completion = _PartialCompletion(request, [], [], [])
        for _ in self._decode_steps([completion], settings):
            yield self._rollout(completion, settings)

    def _decode_steps(
        self, completions: Sequence[_PartialCompletion], settings: SamplingSettings
    ) -> Iterator[int]:
        """Draw the next token of those that grow, and yield how many have not ended, until all have."""
        batch = _Batch(self, completions, settings)
        with self.decoder.attention_context(self.policy):
            while batch.unfinished():
                # Not while a caller of ``stream`` runs between two steps.
                with torch.inference_mode():
                    sampled = batch.advance()
                self._append_tokens(batch.rows, sampled, settings)
                yield batch.unfinished()

    def _append_tokens(
        self, rows: Sequence[_PartialCompletion], sampled: drawing.SampledTokens, settings: SamplingSettings
    ) -> None:
        parts = (sampled.token_N.tolist(), sampled.logp_N.tolist(), sampled.whole_logp_N.tolist())
        for tokens, logps, whole_logps in zip(*parts, strict=True):
            drawing.refuse_broken(whole_logps)
            for item, token, logp, whole_logp in zip(rows, tokens, logps, whole_logps, strict=True):
                if not item.is_done:
                    item.ids.append(token)
                    item.logp.append(logp)
                    item.whole_logp.append(whole_logp)
                    item.ended = token in self.encoder.stop_ids or self._hit_stop_string(item, settings)

    def _hit_stop_string(self, completion: _PartialCompletion, settings: SamplingSettings) -> bool:
        if not settings.stop:
            return False
        # The end alone: decoding all of an answer at each of its tokens would be quadratic.
        last = decode_tokens(
            self.encoder, completion.ids[-MAX_TOKENS_PER_CHARACTER * max(map(len, settings.stop)) - 1 :]
        )
        return any(stop in last for stop in settings.stop)

    def _rollout(self, completion: _PartialCompletion, settings: SamplingSettings) -> Rollout:
        return decoded_rollout(
            self.encoder,
            settings,
            prompt=completion.request.prompt,
            ids=tuple(completion.ids),
            logp=tuple(completion.logp),
            whole_logp=tuple(completion.whole_logp),
            ended=completion.ended,
        )


def refused_record(policy: Policy, record: drawing.Recorder) -> str | None:
    """Why steps of this model are not recorded, by a few tokens drawn both ways; None where they are."""
    rows, generator = len(decode.TRIAL_PROMPTS), torch.Generator().manual_seed(0)
    uniform_NT = torch.rand(rows, LOOKED_AT + 1, dtype=torch.float64, generator=generator)
    drawn: list[drawing.SampledTokens] = []
    for recorder in (None, record):
        with torch.inference_mode(), decode.PagedDecoder.attention_context(policy):
            vocabulary = policy.base.config.get_text_config().vocab_size
            prompts = [[token % vocabulary for token in prompt] for prompt in decode.TRIAL_PROMPTS]
            decoder = decode.PagedDecoder(policy, prompts, (1,) * rows)
            state = drawing.DrawingState.allocate(rows=rows, room=LOOKED_AT + 1, device=policy.device)
            state.add_rows(0, uniform_NT)
            state.draw(decoder.logits_NV, SamplingSettings())
            settings = SamplingSettings()
            steps = drawing.RecordedSteps(
                decoder=decoder, state=state, settings=settings, most_steps=LOOKED_AT, record=recorder
            )
            drawn.append(steps.run(rows=rows, steps=LOOKED_AT))
            if steps.refusal is not None:
                return f"its steps cannot be recorded ({steps.refusal})"
    return None if torch.equal(drawn[0].token_N, drawn[1].token_N) else "its recorded steps draw other tokens"


LOOKED_AT = 4


def _joined(*steps: drawing.SampledTokens | None) -> drawing.SampledTokens:
    """One step after the other as ``[steps, rows]``; each is one of N rows or some of N."""
    parts = [step for step in steps if step is not None]

    def column(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([value[None] if value.ndim == 1 else value for value in values])

    return drawing.SampledTokens(
        token_N=column([part.token_N for part in parts]),
        logp_N=column([part.logp_N for part in parts]),
        whole_logp_N=column([part.whole_logp_N for part in parts]),
    )


def _uniform_numbers(completions: Sequence[_PartialCompletion], settings: SamplingSettings) -> Tensor:
    # Rows with less room are done before their zeros are read.
    room = max(completion.request.max_new_tokens for completion in completions)
    uniform_NT = torch.zeros(len(completions), room, dtype=torch.float64)
    for row, request in enumerate(completion.request for completion in completions):
        uniform_NT[row, : request.max_new_tokens] = drawing.uniform_numbers(
            settings, request.prompt, request.sample, request.max_new_tokens, request.extras
        )
    return uniform_NT


class LocalSampler:
    """A model and its tokenizer, ready to answer."""

    def __init__(self, model: Path, *, device: str = "auto", dtype: str = "auto") -> None:
        """Load a Hugging Face folder; ``device`` is auto (a GPU where there is one), cpu, cuda or cuda:1."""
        target = device_of(device)
        dtypes = precision(dtype, target)
        # Nothing is trained here, so no float32 copy of half-precision weights is kept.
        loaded: Any = load_model(model, dtype=dtypes.products, device=target)
        encoder = make_encoder(model)
        self._set_up(Policy(loaded, layout="right"), encoder, WeightsVersion())

    @classmethod
    def from_policy(
        cls,
        policy: Policy,
        encoder: Encoder,
        weights: WeightsVersion | None = None,
        gather: Callable[[], None] | None = None,
    ) -> "LocalSampler":
        """A sampler of a policy in memory: it generates with the weights of the moment.

        ``weights`` is counted on by whoever moves them; without it the version stays 0. Where the policy is
        a copy of one that is divided over ranks, ``gather`` gives it the weights, on every rank at once.
        """
        sampler = cls.__new__(cls)
        sampler._set_up(policy, encoder, weights or WeightsVersion())
        sampler._gather, sampler._gathered = gather, WeightsVersion(number=-1)
        sampler.refresh()
        return sampler

    _gather: Callable[[], None] | None = None
    _gathered: WeightsVersion
    """Which weights a copy has; shared, like the copy, by all samplers of it."""

    def _set_up(self, policy: Policy, encoder: Encoder, weights: WeightsVersion) -> None:
        decoder, self.fallback_reason = decode.fastest_decoder(policy)
        """Why answers are drawn in a slower way than this device has; None where they are not."""
        record = RECORDERS.get(policy.device.type) if decoder is decode.PagedDecoder else None
        if record is not None and (refusal := refused_record(policy, record)) is not None:
            record, self.fallback_reason = None, refusal
        self._engine = GenerationEngine(
            policy=policy,
            encoder=encoder,
            decoder=decoder,
            batch_size=MAX_BATCH_SIZE.get(policy.device.type, MAX_BATCH_SIZE["cpu"]),
            look_every=LOOK_EVERY.get(policy.device.type, LOOK_EVERY["cpu"]),
            record=record,
        )
        self._encoder = encoder
        self._weights = weights
        self.max_positions: int | None = getattr(
            policy.base.config.get_text_config(), "max_position_embeddings", None
        )
        """The most tokens of a prompt with its answer; None where the model names no limit."""
        embedding: Any = policy.base.get_input_embeddings()
        self._vocabulary_size: int = embedding.weight.shape[0]

    def mixed_with(self, reference: GeneratingReference, share: int | float) -> "LocalSampler":
        """A sampler of the mixture with a reference, which counts with this share (`mixture_logits`)."""
        # A shallow copy shares the counter of versions: the mixture moves when the policy does.
        engine, sampler = self._engine, copy(self)
        assert not isinstance(engine.decoder, mixture.MixtureDecoderFactory), "a mixture of a mixture"
        decoder, fallback = mixture.mixture_decoder(engine.policy, engine.decoder, reference, share)
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
        self,
        prompts: Sequence[GenerationPrompt],
        settings: SamplingSettings,
        *,
        n: int = 1,
        on_step: Callable[[int], None] = lambda ended: None,
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn.

        Each answer has numbers of its own, made from the seed, its prompt and how often that prompt was
        answered before; so neither the other prompts nor ``n`` change it, up to the rounding of batched
        matrix products. A prompt that is given twice gets different answers.
        """
        rollouts_in_order = self.generate_requests(self.requests_for(prompts, settings, n), settings, on_step)
        return [rollouts_in_order[p * n : (p + 1) * n] for p in range(len(prompts))]

    def requests_for(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        """The requests that `generate` serves: ``n`` for each prompt, with the room that the model has."""
        return generation_requests(prompts, settings, n, self.max_positions)

    def refresh(self) -> None:
        """Give a copy the divided weights, where they have moved since; every rank must come."""
        if self._gather is not None and self._gathered.number != self.version:
            self._gather()
            self._gathered.number = self.version

    def generate_requests(
        self,
        requests: Sequence[GenerationRequest],
        settings: SamplingSettings,
        on_step: Callable[[int], None] = lambda ended: None,
    ) -> list[Rollout]:
        """A rollout for each request, in their order; prompts may be any tokens that the model knows."""
        if self._gather is not None and self._gathered.number != self.version:
            raise RuntimeError("the weights have moved since they were gathered: call refresh on every rank")
        for request in requests:
            self._refuse_unreadable(request.prompt)
        # Like lengths next to each other save padding, and equal prompts meet.
        keys = [(len(request.prompt), request.prompt, request.prompt_id) for request in requests]
        order = sorted(range(len(requests)), key=lambda place: keys[place])
        rollouts = self._engine.generate([requests[place] for place in order], settings, on_step)
        rollout_by_place = dict(zip(order, rollouts, strict=True))
        return [replace(rollout_by_place[place], version=self.version) for place in range(len(requests))]

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every prompt, the text of ``n`` answers."""
        groups = self.generate([self.encode(prompt) for prompt in prompts], settings, n=n)
        return [[rollout.answer for rollout in group] for group in groups]

    def stream(self, prompt: Text, settings: SamplingSettings, draw: int = 0) -> Generator[str, None, Answer]:
        """An answer to a prompt, in pieces as they come; the generator returns it whole."""
        [*_, request] = self.requests_for([self.encode(prompt)], settings, draw + 1)
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


def _excerpt(prompt: Text) -> str:
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
