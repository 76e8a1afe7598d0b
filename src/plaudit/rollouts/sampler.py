"""How answers are drawn, what an answer is, and the interface to whatever draws them; without torch.

A sampler may be a local model, or a server.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from plaudit.data.records import Text
from plaudit.errors import UserError
from plaudit.models.settings import SamplingSettings
from plaudit.rollouts.environment import FinishedEpisode

if TYPE_CHECKING:
    from plaudit.tokens.batch import Extra, Extras
    from plaudit.tokens.encode import Encoder

TokenIds = tuple[int, ...]
TAIL_TOKENS = 4
"""Tokens of a plain prompt that decide how its continuation is spelled: with a blank in front, or without."""


@runtime_checkable
class PromptWithExtras(Protocol):
    """A prompt that shows more than tokens (pictures): an `EncodedPrompt`, say."""

    @property
    def prompt(self) -> TokenIds: ...

    @property
    def extras(self) -> Extras: ...


GenerationPrompt = TokenIds | PromptWithExtras
"""What a sampler is asked: tokens, or a prompt that shows more than tokens."""


def prompt_tokens(prompt: GenerationPrompt) -> TokenIds:
    """The tokens of a prompt, whatever else it shows."""
    return prompt if isinstance(prompt, tuple) else prompt.prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The text that a model generated.

    Example: ``Answer(text="An apple.", tokens=4, ended=True)``
    """

    text: str
    """The words, without control tokens and without what it was stopped at."""
    tokens: int
    """How many tokens were drawn, the one that ended the turn among them."""
    ended: bool
    """Whether it came to an end by itself or at a stop; False means that it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """An answer as the tokens that were drawn: what a policy learns from, never made from its text again.

    Example: ``sampler.generate([(1, 5, 9)], SamplingSettings(), n=8)[0][0].logp``
    """

    prompt: TokenIds
    """The tokens that the model was shown."""
    ids: TokenIds
    """The tokens that were drawn; of an episode those between them too."""
    logp: tuple[float, ...]
    """The log-probability of each among the tokens that could be drawn; 0 where it was not drawn."""
    whole_logp: tuple[float, ...]
    """The same among all tokens, at the same temperature: what a policy's own log-prob is compared with."""
    answer: Answer
    """The text of the tokens."""
    mask: tuple[bool, ...] | None = None
    """True where a token was drawn, False where an environment wrote it; None: all were drawn."""
    played: FinishedEpisode | None = None
    """The finished episode, where it is one."""
    version: int = 0
    """The version of the weights that it was drawn with."""


def decode_tokens(encoder: Encoder, ids: Sequence[int]) -> str:
    decode: Any = encoder.info.tokenizer.decode
    return decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def decoded_rollout(
    encoder: Encoder,
    settings: SamplingSettings,
    *,
    prompt: TokenIds,
    ids: TokenIds,
    logp: tuple[float, ...],
    ended: bool,
    whole_logp: tuple[float, ...] | None = None,
    version: int = 0,
) -> Rollout:
    """The rollout of tokens that were drawn, with their text; without ``whole_logp`` it is ``logp``."""
    # Only a plain text is gone on from; behind a template's turn an answer begins anew.
    tail = prompt[-TAIL_TOKENS:] if not encoder.asks_in_turns else ()

    without_end = ids[:-1] if ids[-1] in encoder.stop_ids else ids
    # Decoded behind the prompt's last tokens: by itself SentencePiece would drop a first blank.
    text = decode_tokens(encoder, [*tail, *without_end])[len(decode_tokens(encoder, tail)) :]
    # The text loses what it was stopped at; the tokens keep it, because they were drawn.
    for stop in settings.stop:
        text = text.split(stop, 1)[0]
    return Rollout(
        prompt=prompt,
        ids=ids,
        logp=logp,
        whole_logp=logp if whole_logp is None else whole_logp,
        answer=Answer(text=text, tokens=len(ids), ended=ended),
        version=version,
    )


def rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    """A rollout as JSON can hold it, but for the finished episode; numbers come back to the last bit."""
    numbers = {name: _packed(getattr(rollout, name)) for name in ("prompt", "ids", "logp", "whole_logp")}
    if rollout.whole_logp == rollout.logp:
        del numbers["whole_logp"]
    rest = {"mask": rollout.mask, "version": rollout.version, "answer": asdict(rollout.answer)}
    return {**numbers, **rest}


def rollout_from_json(record: Mapping[str, Any]) -> Rollout:
    """The rollout that `rollout_to_json` wrote; one of 0.2.0 has lists of numbers."""
    fields = {name: _unpacked(value) if isinstance(value, str) else value for name, value in record.items()}
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Rollout(**{"whole_logp": fields["logp"], **fields, "answer": Answer(**record["answer"])})


def _packed(numbers: Sequence[int | float]) -> str:
    """Numbers in the fewest bytes that hold them to the bit, behind a letter that says which."""
    kinds = "HI" if all(isinstance(number, int) for number in numbers) else "fd"
    fits = max(numbers, default=0) < 2**16 if kinds == "HI" else array("f", numbers).tolist() == [*numbers]
    kind = kinds[0] if fits else kinds[1]
    return kind + b64encode(array(kind, numbers).tobytes()).decode()


def _unpacked(text: str) -> list[int | float]:
    numbers: array[Any] = array(text[0])
    numbers.frombytes(b64decode(text[1:]))
    return numbers.tolist()


@dataclass(slots=True)
class WeightsVersion:
    """How often the weights of a policy have moved: whoever moves them says so, and its samplers read it.

    Example: ``LocalSampler.from_policy(policy, encoder, weights=WeightsVersion())``

    >>> weights = WeightsVersion()
    >>> weights.moved()
    >>> weights.number
    1
    """

    number: int = 0
    """Equal numbers mean equal weights, within a process."""

    def moved(self) -> None:
        """To be called after the weights have moved: by a step, or back to a checkpoint."""
        self.number += 1


@runtime_checkable
class Sampler(Protocol):
    """Answers prompts: tokens in, tokens out, so that nothing that was drawn is ever tokenised again."""

    @property
    def version(self) -> int:
        """The version of the weights that it samples from; it moves when they do."""
        ...

    def generate(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every prompt, ``n`` answers as the tokens that were drawn, each with the weights' version."""
        ...

    def refresh(self) -> None:
        """Bring the weights that it samples from up to date; all ranks come, before any of them draws."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    prompt: TokenIds
    """The tokens that the model is shown."""
    sample: int
    """Which answer to its prompt it is: it has random numbers of its own."""
    max_new_tokens: int
    extras: Extras = field(default_factory=dict[str, "Extra"], hash=False)

    @property
    def prompt_id(self) -> str:
        """The content hash of the prompt: requests of equal ones are read once."""
        # Here and not above: this module is read without torch.
        from plaudit.tokens.batch import prompt_id

        return prompt_id(self.prompt, self.extras)


@runtime_checkable
class TurnSampler(Sampler, Protocol):
    """A sampler that can be asked for single turns, as an episode needs it: each with its own room."""

    def requests_for(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int
    ) -> list[GenerationRequest]:
        """The requests that `generate` serves: ``n`` for each prompt, with the room that the model has."""
        ...

    def generate_requests(
        self, requests: Sequence[GenerationRequest], settings: SamplingSettings
    ) -> list[Rollout]: ...


@runtime_checkable
class TextSampler(Sampler, Protocol):
    """A sampler that has the model's tokenizer at hand and can be asked in words."""

    def encode(self, prompt: Text) -> GenerationPrompt:
        """What the model is shown; a prompt that cannot be answered is refused."""
        ...

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every prompt, the text of ``n`` answers."""
        ...


def generation_requests(
    prompts: Sequence[GenerationPrompt], settings: SamplingSettings, n: int, max_positions: int | None
) -> list[GenerationRequest]:
    """``n`` requests for each prompt, which go on counting where a prompt is given twice."""
    if n < 1:
        raise UserError(f"n {n}: expected 1 answer or more to every prompt")
    samples_so_far: Counter[str] = Counter()
    requests: list[GenerationRequest] = []
    for prompt in prompts:
        ids = prompt_tokens(prompt)
        room = settings.max_tokens if max_positions is None else max_positions - len(ids)
        extras = {} if isinstance(prompt, tuple) else prompt.extras
        request = GenerationRequest(
            prompt=ids, sample=0, max_new_tokens=min(room, settings.max_tokens), extras=extras
        )
        first = samples_so_far[request.prompt_id]
        requests += [replace(request, sample=sample) for sample in range(first, first + n)]
        samples_so_far[request.prompt_id] += n
    return requests
