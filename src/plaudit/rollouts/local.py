"""A model folder that answers on this machine: a prefill, then token by token with cached keys and values."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plaudit.batches.render import check_roles
from plaudit.batches.template import Encoder, make_encoder
from plaudit.errors import UserError
from plaudit.models.device import device_of
from plaudit.models.files import load_model, precision
from plaudit.records.messages import Text, user_says, words
from plaudit.rollouts.drawing import chances, next_tokens
from plaudit.rollouts.sampling import Answer, SamplingSettings

MOST_AT_ONCE = 64
"""Answers that are drawn side by side."""
_TAIL = 4
"""Tokens of a plain prompt that decide how its continuation is spelled: with a blank in front, or without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One answer that is wanted.

    Example: ``_Asked(prompt=(1, 5, 9), behind=(), room=64, chance_T=torch.rand(64))``
    """

    prompt: tuple[int, ...]
    """The tokens that the model is shown."""
    behind: tuple[int, ...]
    """The end of a plain text that is gone on from; empty in a conversation."""
    room: int
    """How many tokens may be drawn."""
    chance_T: Tensor
    """A number from 0 to 1 for each of them."""


class LocalSampler:
    """A model and its tokenizer, ready to answer."""

    def __init__(self, model: Path, *, device: str = "auto") -> None:
        """Load a Hugging Face folder; ``device`` is auto (a GPU where there is one), cpu, cuda or cuda:1."""
        place = device_of(device)
        numbers = precision("auto", place)
        self._model: Any = load_model(model, dtype=numbers.products, device=place)
        self._encoder: Encoder = make_encoder(model)
        self._device = place
        self._context: int | None = getattr(
            self._model.config.get_text_config(), "max_position_embeddings", None
        )
        self._words: int = self._model.get_input_embeddings().weight.shape[0]
        _refuse_other_tokenizer(model, self._encoder, self._words)
        _refuse_without_cache(model, self._model)

    @property
    def chats(self) -> bool:
        """Whether the tokenizer has a chat template: then a string is a user's turn."""
        return self._encoder.manner is not None

    def check(self, prompt: Text) -> None:
        """Complain about a prompt that cannot be answered: it is empty, or the model cannot read it."""
        self._tokens(prompt)

    def sample(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every prompt, ``n`` answers.

        Each answer has numbers of its own, made from the seed, its prompt and how often that prompt was
        answered before; so neither the other prompts nor ``n`` change it, up to the rounding of batched
        matrix products. A prompt that is given twice gets different answers.
        """
        if n < 1:
            raise UserError(f"n {n}: expected 1 answer or more to every prompt")
        wanted = self._wanted(prompts, settings, n)
        order = sorted(range(len(wanted)), key=lambda a: len(wanted[a].prompt))
        answers: dict[int, Answer] = {}
        for start in range(0, len(order), MOST_AT_ONCE):
            chosen = order[start : start + MOST_AT_ONCE]
            said = self._whole([wanted[a] for a in chosen], settings)
            answers.update(zip(chosen, said, strict=True))
        return [[answers[p * n + k] for k in range(n)] for p in range(len(prompts))]

    def stream(self, prompt: Text, settings: SamplingSettings) -> Generator[str, None, Answer]:
        """The first answer that `sample` gives, in pieces as they come; the generator returns it whole."""
        [asked] = self._wanted([prompt], settings, 1)
        return self._pieces(asked, settings)

    def _pieces(self, asked: _Asked, settings: SamplingSettings) -> Generator[str, None, Answer]:
        ids: list[int] = []
        sent = ""
        for [token] in self._steps([asked], settings):
            assert token is not None
            ids.append(token)
            text = self._answer(asked, ids).text
            # A character of several tokens is a replacement mark until its last one is there.
            if len(text) > len(sent) and not text.endswith("�"):
                yield text[len(sent) :]
                sent = text
        answer = self._answer(asked, ids)
        if answer.text != sent:
            yield answer.text[len(sent) :]
        return answer

    def _whole(self, wanted: Sequence[_Asked], settings: SamplingSettings) -> list[Answer]:
        said: list[list[int]] = [[] for _ in wanted]
        for step in self._steps(wanted, settings):
            for ids, token in zip(said, step, strict=True):
                if token is not None:
                    ids.append(token)
        return [self._answer(asked, ids) for asked, ids in zip(wanted, said, strict=True)]

    def _answer(self, asked: _Asked, ids: Sequence[int]) -> Answer:
        ended = ids[-1] in self._encoder.stop_ids
        before = self._spelled(asked.behind)
        text = self._spelled([*asked.behind, *(ids[:-1] if ended else ids)])
        return Answer(text=text[len(before) :], tokens=len(ids), ended=ended)

    def _spelled(self, ids: Sequence[int]) -> str:
        decode: Any = self._encoder.info.tokenizer.decode
        return decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _wanted(self, prompts: Sequence[Text], settings: SamplingSettings, n: int) -> list[_Asked]:
        before: Counter[tuple[int, ...]] = Counter()
        wanted: list[_Asked] = []
        for prompt in prompts:
            ids, plain = self._tokens(prompt)
            room = settings.max_tokens if self._context is None else self._context - len(ids)
            room = min(room, settings.max_tokens)
            for draw in range(before[ids], before[ids] + n):
                chance_T = chances(settings, ids, draw, room)
                behind = ids[-_TAIL:] if plain else ()
                wanted.append(_Asked(prompt=ids, behind=behind, room=room, chance_T=chance_T))
            before[ids] += n
        return wanted

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

    def _steps(self, wanted: Sequence[_Asked], settings: SamplingSettings) -> Iterator[list[int | None]]:
        """Every answer's next token, None where an answer has ended, until all have."""
        ids_NL, real_NS, chance_NT = (part.to(self._device) for part in _padded(wanted))
        longest = ids_NL.shape[1]
        length_N = real_NS[:, :longest].sum(1)
        place_NL = (real_NS[:, :longest].cumsum(1) - 1).clamp(min=0)
        last_place = None if self._context is None else self._context - 1
        live, cache = [True] * len(wanted), None
        for step in range(max(asked.room for asked in wanted)):
            with torch.inference_mode():
                output = self._model(
                    input_ids=ids_NL,
                    position_ids=place_NL,
                    attention_mask=real_NS[:, : longest + step],
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                cache = output.past_key_values
                next_N = next_tokens(output.logits[:, -1], chance_NT[:, step], settings)
            said = next_N.tolist()
            yield [token if going else None for token, going in zip(said, live, strict=True)]
            for a, token in enumerate(said):
                live[a] = live[a] and token not in self._encoder.stop_ids and step + 1 < wanted[a].room
            if not any(live):
                return
            ids_NL = next_N[:, None]
            # An answer that has ended is fed on beside the others, but never beyond the last position.
            place_NL = (length_N + step).clamp(min=0, max=last_place)[:, None]


def _padded(wanted: Sequence[_Asked]) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts padded on the left, which keys are real (S: prompt and answer), and every answer's chances."""
    longest, room = max(len(asked.prompt) for asked in wanted), max(asked.room for asked in wanted)
    ids_NL = torch.zeros(len(wanted), longest, dtype=torch.long)
    real_NS = torch.ones(len(wanted), longest + room, dtype=torch.long)
    chance_NT = torch.zeros(len(wanted), room, dtype=torch.float64)
    for a, asked in enumerate(wanted):
        ids_NL[a, longest - len(asked.prompt) :] = torch.tensor(asked.prompt)
        real_NS[a, : longest - len(asked.prompt)] = 0
        chance_NT[a, : asked.room] = asked.chance_T
    return ids_NL, real_NS, chance_NT


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


def _refuse_without_cache(folder: Path, model: Any) -> None:
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
