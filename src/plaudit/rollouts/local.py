"""A model that answers on this machine: a folder, or a policy while it is being trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.models.decode import MixtureDecoderFactory, fastest_decoder, mixture_decoder
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.reference import GeneratingReference
from plaudit.rollouts.engine import GenerationEngine
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
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import encode_prompt

MAX_BATCH_SIZE = {"cpu": 64, "cuda": 256}
"""The most completions that are generated side by side, by device type."""


class LocalSampler:
    """A model and its tokenizer, ready to answer."""

    def __init__(self, model: Path, *, device: str = "auto") -> None:
        """Load a Hugging Face folder; ``device`` is auto (a GPU where there is one), cpu, cuda or cuda:1."""
        target = device_of(device)
        dtypes = precision("auto", target)
        loaded: Any = load_model(model, dtype=dtypes.products, device=target)
        encoder = make_encoder(model)
        _refuse_other_tokenizer(model, encoder, loaded.get_input_embeddings().weight.shape[0])
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
        """A sampler of the geometric mixture with a reference, which counts with this share (`mixing`)."""
        _refuse_without_cache(reference.policy.base.name_or_path, reference.policy.base)
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
    def encoder(self) -> Encoder:
        """Encodes prompts and decodes completions."""
        return self._encoder

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer has a chat template: then a string is a user's turn."""
        return self._encoder.chat_format is not None

    def check(self, prompt: Text) -> None:
        """Complain about a prompt that cannot be answered: it is empty, or the model cannot read it."""
        self.encode(prompt)

    def encode(self, prompt: Text) -> GenerationPrompt:
        """What the model is shown; a prompt that cannot be answered is refused."""
        question = encode_prompt(prompt, self._encoder)
        self._refuse_unreadable(question.prompt, prompt)
        return question.shown

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


def _refuse_other_tokenizer(folder: Path, encoder: Encoder, vocabulary_size: int) -> None:
    """Tokens that were added behind the vocabulary do not count: many a folder has some that nothing uses."""
    tokenizer = encoder.info.tokenizer
    vocabulary = {token: word for word, token in tokenizer.get_vocab().items()}
    highest = max((token for token in vocabulary if token not in tokenizer.added_tokens_decoder), default=0)
    if highest >= vocabulary_size:
        raise UserError(
            f"{folder}: the tokenizer does not fit the model: {vocabulary[highest]!r} is token "
            f"{highest:,}, and the "
            f"model knows {vocabulary_size:,} (0 to {vocabulary_size - 1:,}); use the tokenizer that the "
            "model was trained with"
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
