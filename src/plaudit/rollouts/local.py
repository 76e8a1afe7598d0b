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

from plaudit.batches.render import check_roles
from plaudit.batches.template import Encoder, make_encoder
from plaudit.errors import UserError
from plaudit.models.decoding import fastest_decoder
from plaudit.models.device import device_of
from plaudit.models.files import load_model, precision
from plaudit.models.mixing import Mixture, mixture
from plaudit.models.policy import Policy
from plaudit.models.reference import Speaks
from plaudit.records.messages import Text, user_says, words
from plaudit.rollouts.drawing import chances
from plaudit.rollouts.engine import Engine, Wanted
from plaudit.rollouts.sampling import Answer, Rollout, SamplingSettings

MOST_AT_ONCE = {"cpu": 64, "cuda": 256}
"""Answers that are drawn side by side."""
_TAIL = 4
"""Tokens of a plain prompt that decide how its continuation is spelled: with a blank in front, or without."""


class LocalSampler:
    """A model and its tokenizer, ready to answer."""

    def __init__(self, model: Path, *, device: str = "auto") -> None:
        """Load a Hugging Face folder; ``device`` is auto (a GPU where there is one), cpu, cuda or cuda:1."""
        place = device_of(device)
        numbers = precision("auto", place)
        loaded: Any = load_model(model, dtype=numbers.products, device=place)
        encoder = make_encoder(model)
        _refuse_other_tokenizer(model, encoder, loaded.get_input_embeddings().weight.shape[0])
        _refuse_without_cache(model, loaded)
        self._begin(Policy(loaded, layout="right"), encoder, nullcontext)

    @classmethod
    def of(
        cls,
        policy: Policy,
        encoder: Encoder,
        products: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> LocalSampler:
        """A policy that is in memory: it answers with the weights that it has when it is asked."""
        sampler = cls.__new__(cls)
        _refuse_without_cache(policy.base.name_or_path, policy.base)
        sampler._begin(policy, encoder, products)
        return sampler

    def _begin(
        self, policy: Policy, encoder: Encoder, products: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        decoder, self.slow_because = fastest_decoder(policy)
        """Why this model's own cache is used in place of ours; None when ours is."""
        self._engine = Engine(policy=policy, encoder=encoder, decoder=decoder, products=products)
        self._encoder = encoder
        self._context: int | None = getattr(
            policy.base.config.get_text_config(), "max_position_embeddings", None
        )
        embedding: Any = policy.base.get_input_embeddings()
        self._words: int = embedding.weight.shape[0]
        self._most = MOST_AT_ONCE.get(policy.device.type, MOST_AT_ONCE["cpu"])

    def mixed(self, reference: Speaks, share: int | float) -> LocalSampler:
        """A sampler of the geometric mixture with a reference, which counts with this share (`mixing`)."""
        _refuse_without_cache(reference.policy.base.name_or_path, reference.policy.base)
        engine, sampler = self._engine, copy(self)
        assert not isinstance(engine.decoder, Mixture), "a mixture of a mixture"
        decoder, slow = mixture(engine.policy, engine.decoder, reference, share)
        sampler._engine = replace(engine, decoder=decoder)
        sampler.slow_because = self.slow_because or slow
        return sampler

    @property
    def encoder(self) -> Encoder:
        """Text to tokens and back."""
        return self._encoder

    @property
    def chats(self) -> bool:
        """Whether the tokenizer has a chat template: then a string is a user's turn."""
        return self._encoder.manner is not None

    def check(self, prompt: Text) -> None:
        """Complain about a prompt that cannot be answered: it is empty, or the model cannot read it."""
        self._tokens(prompt)

    def rollouts(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn.

        Each answer has numbers of its own, made from the seed, its prompt and how often that prompt was
        answered before; so neither the other prompts nor ``n`` change it, up to the rounding of batched
        matrix products. A prompt that is given twice gets different answers.
        """
        if n < 1:
            raise UserError(f"n {n}: expected 1 answer or more to every prompt")
        said = self.drawn(self.wanted(prompts, settings, n), settings)
        return [said[p * n : (p + 1) * n] for p in range(len(prompts))]

    def wanted(self, prompts: Sequence[Text], settings: SamplingSettings, n: int) -> list[Wanted]:
        """What `rollouts` draws: ``n`` answers to each prompt as tokens, with their chances."""
        before: Counter[tuple[int, ...]] = Counter()
        wanted: list[Wanted] = []
        for prompt in prompts:
            ids, plain = self._tokens(prompt)
            room = settings.max_tokens if self._context is None else self._context - len(ids)
            room = min(room, settings.max_tokens)
            for draw in range(before[ids], before[ids] + n):
                chance_T = chances(settings, ids, draw, room)
                wanted.append(Wanted(prompt=ids, behind=ids[-_TAIL:] if plain else (), chance_T=chance_T))
            before[ids] += n
        return wanted

    def drawn(self, wanted: Sequence[Wanted], settings: SamplingSettings) -> list[Rollout]:
        """An answer for each, in their order; what the model is shown are any tokens."""
        order = sorted(range(len(wanted)), key=lambda a: (len(wanted[a].prompt), wanted[a].prompt))
        said: dict[int, Rollout] = {}
        for start in range(0, len(order), self._most):
            chosen = order[start : start + self._most]
            rollouts = self._engine.rollouts([wanted[a] for a in chosen], settings)
            said.update(zip(chosen, rollouts, strict=True))
        return [said[a] for a in range(len(wanted))]

    def sample(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """What `rollouts` say."""
        return [[one.answer for one in group] for group in self.rollouts(prompts, settings, n=n)]

    def stream(self, prompt: Text, settings: SamplingSettings) -> Generator[str, None, Answer]:
        """The first answer that `sample` gives, in pieces as they come; the generator returns it whole."""
        [asked] = self.wanted([prompt], settings, 1)
        return self._pieces(asked, settings)

    def _pieces(self, asked: Wanted, settings: SamplingSettings) -> Generator[str, None, Answer]:
        # The last characters may yet become something to stop at, which is not said.
        held = max((len(stop) - 1 for stop in settings.stop), default=0)
        sent, answer = "", Answer(text="", tokens=0, ended=False)
        for rollout in self._engine.stream(asked, settings):
            answer = rollout.answer
            safe = answer.text[: len(answer.text) - held]
            # A character of several tokens is a replacement mark until its last one is there.
            if len(safe) > len(sent) and not safe.endswith("�"):
                yield safe[len(sent) :]
                sent = safe
        if answer.text != sent:
            yield answer.text[len(sent) :]
        return answer

    def _tokens(self, prompt: Text) -> tuple[tuple[int, ...], bool]:
        """What the model is shown, and whether that is plain text to go on from."""
        plain = isinstance(prompt, str) and not self.chats
        turns = user_says(prompt) if isinstance(prompt, str) and self.chats else prompt
        _refuse_what_asks_nothing(turns)
        if not isinstance(turns, str) and self._encoder.manner is not None:
            check_roles(self._encoder.manner.template, tuple(turn.role for turn in turns))
        ids = self._encoder.encode_prompt(turns)
        if max(ids) >= self._words:
            token = self._encoder.info.tokenizer.convert_ids_to_tokens(max(ids))
            raise UserError(
                f"the prompt holds {token!r}, which is token {max(ids):,}; the model knows {self._words:,} "
                "(resize_token_embeddings of transformers makes room for added tokens)"
            )
        if self._context is not None and len(ids) >= self._context:
            raise UserError(
                f"the prompt has {len(ids):,} tokens and the model reads {self._context:,} with its answer, "
                f"so there is no room for one; shorten the prompt ({_begin(prompt)})"
            )
        return ids, plain


def _refuse_other_tokenizer(folder: Path, encoder: Encoder, known: int) -> None:
    """Tokens that were added behind the vocabulary do not count: many a folder has some that nothing uses."""
    tokenizer = encoder.info.tokenizer
    own = {token: word for word, token in tokenizer.get_vocab().items()}
    highest = max((token for token in own if token not in tokenizer.added_tokens_decoder), default=0)
    if highest >= known:
        raise UserError(
            f"{folder}: the tokenizer does not fit the model: {own[highest]!r} is token {highest:,}, and the "
            f"model knows {known:,} (0 to {known - 1:,}); use the tokenizer that the model was trained with"
        )


def _refuse_without_cache(folder: object, model: Any) -> None:
    taken = inspect.signature(model.forward).parameters
    missing = [name for name in ("position_ids", "past_key_values", "logits_to_keep") if name not in taken]
    if missing:
        raise UserError(
            f"{folder}: {type(model).__name__} cannot be sampled here, since it takes no "
            f"{' and no '.join(missing)}; use a transformer with attention, or transformers' own generate"
        )


def _refuse_what_asks_nothing(prompt: Text) -> None:
    last = prompt if isinstance(prompt, str) else words(prompt[-1:])
    if not last.strip():
        raise UserError("the prompt is empty; write at least one word")
    if not isinstance(prompt, str) and prompt[-1].role not in ("user", "tool"):
        raise UserError(
            f"the conversation ends with a turn of the {prompt[-1].role}, so there is nothing to answer; "
            "let it end with the user's"
        )


def _begin(prompt: Text) -> str:
    """The first words of a prompt, to know it by."""
    text = " ".join(words(prompt).split())
    return f"{text[:40].strip()} …" if len(text) > 40 else text
