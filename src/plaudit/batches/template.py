"""Rows → tokens: what the model is asked, what it should say, and exactly which tokens are trained.

A prompt's tokens are those that the model sees when it is sampled, from the same function
(``Encoder.encode_prompt``); an answer begins exactly where they end, and closes with its
end-of-turn token. Masks come from the text, never from token numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.batches.manner import manner_of
from plaudit.batches.script import Manner, Script, Turns, script_of, turns_named, without_end
from plaudit.batches.seam import Piece, Tokens, tokens_of
from plaudit.batches.tokenizer import TokenizerInfo, load_tokenizer
from plaudit.batches.tokens import Completion, Example
from plaudit.errors import UserError
from plaudit.records.feedback import Comparison, Demonstration, Ranking, Rating
from plaudit.records.messages import Text

SEAM = (
    "an answer was tokenised on its own: in the whole text its first characters merge with the prompt's last"
)
"""Said of a row whose answer begins inside a token of the whole text."""
ADDED_END = "the template writes no token that ends the answer: one was added"
"""Said of a row whose template leaves the answer open."""

Answered = Demonstration | Comparison | Ranking | Rating
"""Records that hold answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A row as tokens, and what had to be decided for it.

    Example: ``Encoded(example=Example(...), notes=(SEAM,), bos=1)``
    """

    example: Example
    """The tokens."""
    notes: tuple[str, ...]
    """Sentences that are the same for every row that they hold for, so that they can be counted."""
    bos: int | None
    """The tokenizer's BOS, which stays when a prompt is cut."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoder:
    """A tokenizer, its template and the settings; build it with ``make_encoder``.

    Example: ``make_encoder("models/chat", turns="last").encode_prompt("Hello")``
    """

    info: TokenizerInfo
    """The tokenizer."""
    manner: Manner | None
    """How conversations are written; None when the model has no chat template."""
    turns: Turns
    """Which answers of a longer conversation are trained."""
    notes: tuple[str, ...]
    """What is worth knowing about the template, once for all rows."""

    @property
    def template(self) -> str | None:
        """The effective chat template: saved with the model, so that it is asked as it was trained."""
        return None if self.manner is None else self.manner.template.source

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every token that ends an answer, the trained one first: what the saved generation settings need."""
        trained = () if self.manner is None else (self.manner.ending.id,)
        return tuple(dict.fromkeys([*trained, *self.info.stops]))

    def encode_prompt(self, prompt: Text) -> tuple[int, ...]:
        """The tokens that the model sees before it answers: for sampling and for training."""
        text = prompt if isinstance(prompt, str) else self._manner().template.render(prompt, ask=True)
        return self.info.begin(text, self._opening(text))

    def encode(self, prompt: Text, completions: Sequence[Text], origin: str = "") -> Example:
        """One prompt and its K answers as tokens."""
        return self.encode_noted(prompt, completions, origin).example

    def encode_noted(self, prompt: Text, completions: Sequence[Text], origin: str = "") -> Encoded:
        """The same, with what had to be decided."""
        try:
            return self._encoded(prompt, completions, origin)
        except UserError as error:
            raise UserError(f"{origin}: {error}" if origin else str(error)) from error

    def _encoded(self, prompt: Text, completions: Sequence[Text], origin: str) -> Encoded:
        scripts = [self._script(prompt, completion) for completion in completions]
        if not scripts:
            raise UserError("the row has no answer; leave it out, or give it one")
        if len({script.prompt for script in scripts}) > 1:
            raise UserError(
                "with turns='last' the answers of this row have different prompts, since their earlier turns "
                "differ; use turns='all', or move the earlier turns that they share to the prompt"
            )
        opening = self._opening(scripts[0].prompt)
        tokens = [tokens_of(self.info, script.prompt, script.pieces, opening) for script in scripts]
        notes = [note for script in scripts for note in script.notes]
        notes += [SEAM for one in tokens if one.own]
        notes += [ADDED_END for script in scripts if script.chat and script.end is None]
        answers = tuple(self._closed(script, one) for script, one in zip(scripts, tokens, strict=True))
        return Encoded(
            example=Example(prompt=tokens[0].prompt, completions=answers, origin=origin),
            notes=tuple(dict.fromkeys(notes)),
            bos=self.info.bos,
        )

    def _script(self, prompt: Text, completion: Text) -> Script:
        if isinstance(prompt, str) and isinstance(completion, str):
            eos = str(self.info.tokenizer.convert_ids_to_tokens(self._eos()))
            return Script(prompt=prompt, pieces=(Piece(text=without_end(completion, (eos,)), trained=True),))
        if isinstance(prompt, str) or isinstance(completion, str):
            raise UserError("one side is plain text and the other a conversation; make both the same kind")
        return script_of(self._manner(), prompt, completion, self.turns)

    def _closed(self, script: Script, tokens: Tokens) -> Completion:
        """The answer with its one end-of-turn token: the template's, or one that is added."""
        if script.end is None:
            end = self._manner().ending.id if script.chat else self._eos()
            return Completion(ids=(*tokens.ids, end), mask=(*tokens.mask, True), finished=True)
        if tokens.ids[-1:] != (self.info.id_of(script.end),):
            raise UserError(
                f"the tokenizer does not keep the end-of-turn text {script.end!r} as one token of its own; "
                "mark it as a special token in the tokenizer's files"
            )
        return Completion(ids=tokens.ids, mask=tokens.mask, finished=True)

    def _manner(self) -> Manner:
        if self.manner is None:
            raise UserError(
                "the rows are conversations, but the model's tokenizer has no chat template; give one by "
                "file, or use rows whose prompt and completion are plain text"
            )
        return self.manner

    def _eos(self) -> int:
        if self.info.eos is None:
            raise UserError(
                "the tokenizer declares no EOS token, so an answer in plain text could never end; "
                "set eos_token in its tokenizer_config.json"
            )
        return self.info.eos

    def _opening(self, text: str) -> int | None:
        """The token that must come first; a prompt without any opens like a document."""
        if self.info.adds_bos:
            return self.info.bos
        if text.strip() or self.info.encode(text):
            return None
        first = self.info.eos if self.info.bos is None else self.info.bos
        if first is None:
            raise UserError(
                "the prompt has no tokens and the tokenizer no BOS to begin with; give the row a prompt"
            )
        return first


def make_encoder(
    model: str | Path | TokenizerInfo,
    *,
    turns: str = "all",
    template: str | None = None,
    variables: Mapping[str, object] | None = None,
) -> Encoder:
    """The encoder of a model folder.

    ``template`` replaces the folder's own chat template; ``variables`` are handed to it
    (``{"enable_thinking": False}``).
    """
    info = model if isinstance(model, TokenizerInfo) else load_tokenizer(model)
    which = turns_named(turns)
    source = info.template if template is None else template
    if source is None:
        return Encoder(info=info, manner=None, turns=which, notes=())
    manner, notes = manner_of(info, source, variables or {})
    return Encoder(info=info, manner=manner, turns=which, notes=notes)


def encode_record(record: Answered, encoder: Encoder) -> Example:
    """One row as tokens: its prompt once, and each of its answers."""
    return encode_record_noted(record, encoder).example


def encode_record_noted(record: Answered, encoder: Encoder) -> Encoded:
    """The same, with what had to be decided."""
    return encoder.encode_noted(record.prompt, answers_of(record), record.origin)


def answers_of(record: Answered) -> tuple[Text, ...]:
    """The answers of a row, in a fixed order: chosen before rejected.

    >>> answers_of(Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon."))
    ('Paris.', 'Lyon.')
    """
    match record:
        case Comparison():
            return (record.chosen, record.rejected)
        case Ranking():
            return record.completions
        case Demonstration() | Rating():
            return (record.completion,)
