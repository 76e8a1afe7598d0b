"""A model that answers on this machine: a folder, or a policy while it is being trained."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.data.records import Text, plain_text, user_turn
from plaudit.errors import UserError
from plaudit.models.decode import MixtureDecoderFactory, fastest_decoder, mixture_decoder
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.reference import GeneratingReference
from plaudit.rollouts.engine import GenerationEngine, GenerationRequest, uniform_numbers
from plaudit.rollouts.sampler import Answer, Rollout, SamplingSettings
from plaudit.tokens.batch import prompt_id
from plaudit.tokens.chat_template import check_roles
from plaudit.tokens.encode import Encoder, make_encoder

MAX_BATCH_SIZE = {"cpu": 64, "cuda": 256}
"""The most completions that are generated side by side, by device type."""
_TAIL_TOKENS = 4
"""Tokens of a plain prompt that decide how its continuation is spelled: with a blank in front, or without."""


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
        self._set_up(Policy(loaded, layout="right"), encoder, nullcontext)

    @classmethod
    def from_policy(
        cls,
        policy: Policy,
        encoder: Encoder,
        products: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> LocalSampler:
        """A sampler of a policy in memory: it generates with the weights of the moment."""
        sampler = cls.__new__(cls)
        _refuse_without_cache(policy.base.name_or_path, policy.base)
        sampler._set_up(policy, encoder, products)
        return sampler

    def _set_up(
        self, policy: Policy, encoder: Encoder, products: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        decoder, self.fallback_reason = fastest_decoder(policy)
        """Why this model's own cache is used in place of ours; None when ours is."""
        self._engine = GenerationEngine(policy=policy, encoder=encoder, decoder=decoder, products=products)
        self._encoder = encoder
        self._max_positions: int | None = getattr(
            policy.base.config.get_text_config(), "max_position_embeddings", None
        )
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
    def encoder(self) -> Encoder:
        """Encodes prompts and decodes completions."""
        return self._encoder

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer has a chat template: then a string is a user's turn."""
        return self._encoder.chat_format is not None

    def check(self, prompt: Text) -> None:
        """Complain about a prompt that cannot be answered: it is empty, or the model cannot read it."""
        self._encode_prompt(prompt)

    def generate(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn.

        Each answer has numbers of its own, made from the seed, its prompt and how often that prompt was
        answered before; so neither the other prompts nor ``n`` change it, up to the rounding of batched
        matrix products. A prompt that is given twice gets different answers.
        """
        if n < 1:
            raise UserError(f"n {n}: expected 1 answer or more to every prompt")
        rollouts_in_order = self.generate_requests(self.requests_for(prompts, settings, n), settings)
        return [rollouts_in_order[p * n : (p + 1) * n] for p in range(len(prompts))]

    def requests_for(
        self, prompts: Sequence[Text], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        """The requests that `generate` serves: ``n`` for each prompt, as tokens with their uniform
        numbers.
        """
        samples_so_far: Counter[str] = Counter()
        requests: list[GenerationRequest] = []
        for prompt in prompts:
            ids, is_plain = self._encode_prompt(prompt)
            extras = self._encoder.prompt_extras(self._as_turns(prompt))
            shown = prompt_id(ids, extras)
            max_new_tokens = (
                settings.max_tokens if self._max_positions is None else self._max_positions - len(ids)
            )
            max_new_tokens = min(max_new_tokens, settings.max_tokens)
            requests += [
                GenerationRequest(
                    prompt=ids,
                    text_tail=ids[-_TAIL_TOKENS:] if is_plain else (),
                    uniform_T=uniform_numbers(settings, ids, sample, max_new_tokens, extras),
                    extras=extras,
                )
                for sample in range(samples_so_far[shown], samples_so_far[shown] + n)
            ]
            samples_so_far[shown] += n
        return requests

    def generate_requests(
        self, requests: Sequence[GenerationRequest], settings: SamplingSettings
    ) -> list[Rollout]:
        """A rollout for each request, in their order; prompts may be any tokens."""
        keys = [(len(one.prompt), one.prompt, one.prompt_id) for one in requests]
        order = sorted(range(len(requests)), key=lambda a: keys[a])
        rollouts_by_place: dict[int, Rollout] = {}
        for start in range(0, len(order), self._batch_size):
            places = order[start : start + self._batch_size]
            rollouts = self._engine.generate([requests[a] for a in places], settings)
            rollouts_by_place.update(zip(places, rollouts, strict=True))
        return [rollouts_by_place[a] for a in range(len(requests))]

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """The answers of `generate`, without their tokens."""
        return [[one.answer for one in group] for group in self.generate(prompts, settings, n=n)]

    def stream(self, prompt: Text, settings: SamplingSettings) -> Generator[str, None, Answer]:
        """The first answer that `sample` gives, in pieces as they come; the generator returns it whole."""
        [request] = self.requests_for([prompt], settings, 1)
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

    def _as_turns(self, prompt: Text) -> Text:
        """The prompt as this model is asked: a string is a user's turn where there is a chat template."""
        return user_turn(prompt) if isinstance(prompt, str) and self.has_chat_template else prompt

    def _encode_prompt(self, prompt: Text) -> tuple[tuple[int, ...], bool]:
        """What the model is shown, and whether that is plain text to go on from."""
        is_plain = isinstance(prompt, str) and not self.has_chat_template
        turns = self._as_turns(prompt)
        _refuse_empty_prompt(turns)
        if not isinstance(turns, str) and self._encoder.chat_format is not None:
            check_roles(self._encoder.chat_format.template, tuple(turn.role for turn in turns))
        ids = self._encoder.encode_prompt(turns)
        if max(ids) >= self._vocabulary_size:
            token = self._encoder.info.tokenizer.convert_ids_to_tokens(max(ids))
            raise UserError(
                f"the prompt holds {token!r}, which is token {max(ids):,}; the model knows "
                f"{self._vocabulary_size:,} "
                "(resize_token_embeddings of transformers makes room for added tokens)"
            )
        if self._max_positions is not None and len(ids) >= self._max_positions:
            raise UserError(
                f"the prompt has {len(ids):,} tokens and the model reads {self._max_positions:,} with its "
                "answer, "
                f"so there is no room for one; shorten the prompt ({_excerpt(prompt)})"
            )
        return ids, is_plain


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


def _refuse_empty_prompt(prompt: Text) -> None:
    last = prompt if isinstance(prompt, str) else plain_text(prompt[-1:])
    if not last.strip():
        raise UserError("the prompt is empty; write at least one word")
    if not isinstance(prompt, str) and prompt[-1].role not in ("user", "tool"):
        raise UserError(
            f"the conversation ends with a turn of the {prompt[-1].role}, so there is nothing to answer; "
            "let it end with the user's"
        )


def _excerpt(prompt: Text) -> str:
    """The first words of a prompt, to know it by."""
    text = " ".join(plain_text(prompt).split())
    return f"{text[:40].strip()} …" if len(text) > 40 else text
