"""Rows → tokens: what the model is asked, what it should say, and exactly which tokens are trained.

A prompt's tokens are those that the model sees when it is sampled, from the same function
(``Encoder.encode_prompt``); an answer begins exactly where they end, and closes with its end-of-turn token.
Masks come from the text, never from token numbers. Where an example is too long, the prompt gives way from
the left and an answer never loses its end. Of many rows it is said what fits, what was refused and why, and
how often something had to be decided.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from plaudit.data.records import (
    PICTURE,
    Comparison,
    Demonstration,
    Ranking,
    Rating,
    Record,
    Text,
    answers_of,
    assistant_turn,
    picture_parts,
    pictures,
    plain_text,
    split_tools,
    turns_of,
    user_turn,
    with_facts,
)
from plaudit.errors import UserError
from plaudit.files.model_folder import sees_pictures
from plaudit.tokens import chat_template, tokenizer
from plaudit.tokens.batch import Completion, Example, Extras, ExtrasReader
from plaudit.tokens.parallel import MANY_ROWS, Workshop
from plaudit.tokens.rendering import EndlessTemplateError, syntax_fault
from plaudit.wings import offered


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    origin: str
    reason: str


def truncate_prompt(example: Example, max_tokens: int, *, bos: int | None = None) -> Example | RefusedRow:
    """The example in at most ``max_tokens`` a row: its prompt cut from the left, its answers whole.
    All K answers keep the same prompt, so the longest decides. A leading ``bos`` stays, and so does at least
    one token of the prompt behind it."""
    if max_tokens < 2:
        raise UserError(f"a row of at most {max_tokens} tokens has no room for prompt and answer; allow more")
    # One cut for all K: the loss compares answers to the same prompt, and a shared prompt is computed once.
    longest = max(len(completion.ids) for completion in example.completions)
    bos_count = 1 if bos is not None and example.prompt[:1] == (bos,) else 0
    max_prompt_tokens = max_tokens - longest
    if max_prompt_tokens >= len(example.prompt):
        return example
    if example.prompt_extras or example.has_tools:
        shown = [*example.prompt_extras, *(["tools"] if example.has_tools else [])]
        return RefusedRow(
            origin=example.origin,
            reason=f"it has more than {max_tokens:,} tokens, and a prompt that shows {' and '.join(shown)} "
            "is never cut: the places of these could go with it; allow longer rows, or shorten it",
        )
    if max_prompt_tokens < bos_count + 1:
        return RefusedRow(
            origin=example.origin,
            reason=f"an answer of {longest:,} tokens does not fit in {max_tokens:,} beside its prompt; "
            "cut short it could never end: allow longer rows, or shorten the answer",
        )
    # The end of a prompt stays: it holds the question, and the header that opens the answer.
    tail = example.prompt[len(example.prompt) - (max_prompt_tokens - bos_count) :]
    return replace(example, prompt=example.prompt[:bos_count] + tail)


BOUNDARY_MERGED = (
    "an answer was tokenised on its own: in the whole text its first characters merge with the prompt's last"
)
END_TOKEN_ADDED = "the template writes no token that ends the answer: one was added"

RAW_TEXT = (
    "prompts in plain text are raw: they are trained and asked as they stand, outside of the chat template, "
    "and control tokens in them stay what they are (--text chat makes them a user's turns)"
)
"""The note where plain text does not become turns although the model has a template."""
TextUse = Literal["chat", "raw"]
"""What a prompt in plain text is to a model with a chat template."""
_JOINING_BLANK = re.compile(r" \S")

AnsweredRecord = Demonstration | Comparison | Ranking | Rating


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """A row as tokens, and what had to be decided for it."""

    example: Example
    notes: tuple[str, ...]
    """Sentences that are the same for every row that they hold for, so that they can be counted."""
    bos: int | None
    """The tokenizer's BOS, which stays when a prompt is cut."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoder:
    """A tokenizer, its template and the settings; build it with ``make_encoder``.

    Example: ``make_encoder("models/chat", turns="last").encode_prompt("Hello")``
    """

    info: tokenizer.TokenizerInfo
    """The tokenizer."""
    chat_format: chat_template.ChatFormat | None
    """How conversations are written; None when the model has no chat template."""
    turns: chat_template.Turns
    """Which answers of a longer conversation are trained."""
    notes: tuple[str, ...]
    """What is worth knowing about the template, once for all rows."""
    read_extras: ExtrasReader | None = None
    """Reads what prompts show beside words; None: a picture is refused."""
    text: TextUse = "chat"
    """What a prompt in plain text is: a user's turn where there is a template, or raw text."""
    on_row: Callable[[], None] | None = None
    """Called before each row or prompt, for whoever shows how far it is."""
    workshop: Workshop | None = None
    """Where many rows are encoded on all cores; None: here, one after the other."""

    @property
    def asks_in_turns(self) -> bool:
        """Whether a string is asked and answered as turns of the chat template."""
        return self.chat_format is not None and self.text == "chat"

    def prompt_as_turns(self, prompt: Text) -> Text:
        """The prompt as the model is asked it: a string becomes the user's turn, unless text is raw."""
        # A document has no prompt and is no answer to anything: it stays outside of the template.
        turns = user_turn(prompt) if isinstance(prompt, str) and prompt and self.asks_in_turns else prompt
        return turns if isinstance(turns, str) or not self.reads_facts else tuple(map(with_facts, turns))

    @property
    def reads_facts(self) -> bool:
        """Whether prompts are shown with their facts, as to a reward that learns with them."""
        return bool(self.info.tokenizer.init_kwargs.get(tokenizer.FACTS_SETTING))

    def answer_as_turns(self, prompt: Text, completion: Text) -> Text:
        """An answer as the model gives it to this prompt of a row: the assistant's turn behind a user's."""
        if isinstance(completion, str) and self.prompt_as_turns(prompt) != prompt:
            # The blank that joined the texts belongs to neither; an indentation does.
            return assistant_turn(completion[1:] if _JOINING_BLANK.match(completion) else completion)
        return completion

    @property
    def template(self) -> str | None:
        """The effective chat template: saved with the model, so that it is asked as it was trained."""
        return None if self.chat_format is None else self.chat_format.template.source

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every token that ends an answer, the trained one first: what the saved generation settings need."""
        trained = () if self.chat_format is None else (self.chat_format.ending.id,)
        return tuple(dict.fromkeys([*trained, *self.info.stops]))

    def encode_prompt(self, prompt: Text) -> tuple[int, ...]:
        """The tokens that the model sees before it answers: for sampling and for training."""
        if self.on_row is not None:
            self.on_row()
        words = self.prompt_words(self.prompt_as_turns(prompt))
        if isinstance(words, str):
            text = words
        else:
            chat_format = self._require_chat_format()
            text = chat_format.template.render(chat_format.in_letters(words), ask=True)
            [text] = self.with_places([text], words)
        return self.info.encode_start(text, self._first_token(text))

    def control_note(self, prompt: Text) -> str | None:
        """What becomes of control tokens that stand in a prompt's own words; None where there are none."""
        turns = self.prompt_as_turns(prompt)
        if not any(token in plain_text(turns) for token in self.info.control):
            return None
        return chat_template.CONTROL_TOKEN_TEXT if isinstance(turns, str) else chat_template.CONTROL_TOKEN_CUT

    def prompt_words(self, prompt: Text) -> Text:
        """The words of a prompt, with whatever stands there for a picture."""
        return self._read(prompt)[0]

    def prompt_extras(self, prompt: Text) -> Extras:
        """What the model is shown beside the tokens of `encode_prompt`."""
        return self._read(prompt)[1]

    def _read(self, prompt: Text, answers: Sequence[Text] = ()) -> tuple[Text, Extras]:
        if self.read_extras is None:
            return prompt, {}
        if any(PICTURE in plain_text(text) for text in (prompt, *answers)):
            raise UserError(
                "the words hold U+FDD3, which stands for a picture while rows are read; leave it out"
            )
        return self.read_extras(prompt)

    def placed(self, prompt: Sequence[int], extras: Extras) -> Extras:
        """The extras, with where a prompt's tokens are, of models that count a picture's rows and columns."""
        positions = getattr(self.read_extras, "positions", None)
        return positions(prompt, extras) if extras and positions is not None else extras

    def _read_row(self, prompt: Text, answers: Sequence[Text]) -> tuple[Text, Sequence[Text], Extras]:
        """The prompt as it is shown, and its answers; with one, pictures may also stand between its turns."""
        if self.read_extras is None or not any(map(pictures, answers)):
            words, extras = self._read(prompt, answers)
            return words, answers, extras
        if len(answers) > 1:
            raise UserError(
                "a picture stands among answers, and the row has several; move turns up to it to the prompt"
            )
        words, extras = self._read((*turns_of(prompt), *turns_of(answers[0])))
        n = len(turns_of(prompt))
        return words[:n], [words[n:]], extras

    def with_places(self, texts: Sequence[str], words: Text) -> list[str]:
        """The texts of a template for these turns, with what stands for each picture in place of its mark."""
        places = [part.text or "" for part in picture_parts(words)]
        if not places:
            return list(texts)
        mark = str(self._require_chat_format().template.picture)
        parts, left = [text.split(mark) for text in texts], iter(places)
        if (written := sum(map(len, parts)) - len(parts)) != len(places):
            raise UserError(
                f"the chat template writes {written} places ({mark}) for {len(places)} pictures; give a "
                "template that knows parts of the type image"
            )
        return ["".join([first, *(next(left) + part for part in more)]) for first, *more in parts]

    def encode(self, prompt: Text, completions: Sequence[Text], origin: str = "") -> Example:
        """One prompt and its K answers as tokens."""
        return self.encode_with_notes(prompt, completions, origin).example

    def encode_with_notes(self, prompt: Text, completions: Sequence[Text], origin: str = "") -> EncodedRow:
        """As `encode`, with the notes of what had to be decided."""
        if self.on_row is not None:
            self.on_row()
        try:
            return self._encode_row(prompt, completions, origin)
        except UserError as error:
            # Of its own kind: a template without an end ends the reading, any other fault its row.
            raise type(error)(f"{origin}: {error}" if origin else str(error)) from error

    def _encode_row(self, prompt: Text, completions: Sequence[Text], origin: str) -> EncodedRow:
        if self.reads_facts and not any(turn.facts for turn in turns_of(prompt)):
            raise UserError("the row has no field facts, which the reward was taught to read")
        answers_given = [self.answer_as_turns(prompt, completion) for completion in completions]
        prompt, answers_given, extras = self._read_row(self.prompt_as_turns(prompt), answers_given)
        if not answers_given:
            raise UserError("the row has no answer; leave it out, or give it one")
        conversations = [self._render(prompt, completion) for completion in answers_given]
        if len({conversation.prompt for conversation in conversations}) > 1:
            raise UserError(
                "the answers of this row have different prompts, since turns before what is trained differ "
                "(turns='last', or a weight of 0); use turns='all', or move the turns that they share to the "
                "prompt"
            )
        if extras:
            conversations = [
                self._with_places(each, (*turns_of(prompt), *turns_of(answer)))
                for each, answer in zip(conversations, answers_given, strict=True)
            ]
        # All answers share the prompt, so one look decides the BOS of all.
        prompt_text = conversations[0].prompt
        first_token = self._first_token(prompt_text)
        pieces = [conversation.pieces for conversation in conversations]
        tokens = tokenizer.tokenise_pieces(self.info, prompt_text, pieces, first_token)
        notes = [note for conversation in conversations for note in conversation.notes]
        notes += [BOUNDARY_MERGED for token in tokens if token.is_separate]
        notes += [END_TOKEN_ADDED for rendered in conversations if rendered.chat and rendered.end is None]
        answers = tuple(map(self._with_end_token, conversations, tokens))
        has_tools = bool(split_tools(turns_of(prompt))[0])
        extras = self.placed(tokens[0].prompt, extras)
        example = Example(
            prompt=tokens[0].prompt, completions=answers, origin=origin, extras=extras, has_tools=has_tools
        )
        return EncodedRow(example=example, notes=tuple(dict.fromkeys(notes)), bos=self.info.bos)

    def _render(self, prompt: Text, completion: Text) -> chat_template.RenderedConversation:
        if isinstance(prompt, str) and isinstance(completion, str):
            # An end that the row wrote itself is taken off, or the model would learn to end twice.
            eos = str(self.info.tokenizer.convert_ids_to_tokens(self._require_eos()))
            words = chat_template.without_end(completion, (eos,))
            has_control = any(token in prompt or token in words for token in self.info.control)
            notes = (chat_template.CONTROL_TOKEN_TEXT,) if has_control else ()
            pieces = (tokenizer.TextPiece(text=words, trained=True),)
            return chat_template.RenderedConversation(prompt=prompt, pieces=pieces, notes=notes)
        if isinstance(prompt, str) or isinstance(completion, str):
            raise UserError("one side is plain text and the other a conversation; make both the same kind")
        return chat_template.render_conversation(self._require_chat_format(), prompt, completion, self.turns)

    def _with_places(
        self, conversation: chat_template.RenderedConversation, words: Text
    ) -> chat_template.RenderedConversation:
        """A conversation with what stands for each picture of its turns."""
        texts = [conversation.prompt, *(piece.text for piece in conversation.pieces)]
        prompt, *more = self.with_places(texts, words)
        pieces = tuple(
            replace(piece, text=text) for piece, text in zip(conversation.pieces, more, strict=True)
        )
        return replace(conversation, prompt=prompt, pieces=pieces)

    def _with_end_token(
        self, conversation: chat_template.RenderedConversation, tokens: tokenizer.PromptContinuation
    ) -> Completion:
        """The answer with its one end-of-turn token: the template's, or one that is added."""
        if conversation.end is None:
            end = self._require_chat_format().ending.id if conversation.chat else self._require_eos()
            return Completion(ids=(*tokens.ids, end), mask=(*tokens.mask, True), finished=True)
        # A stop token that is split into characters is never seen by a sampler, which looks for one id.
        if tokens.ids[-1:] != (self.info.id_of(conversation.end),):
            raise UserError(
                f"the tokenizer does not keep the end-of-turn text {conversation.end!r} as one token of "
                "its own; mark it as a special token in the tokenizer's files"
            )
        return Completion(ids=tokens.ids, mask=tokens.mask, finished=True)

    def _require_chat_format(self) -> chat_template.ChatFormat:
        if self.chat_format is None:
            raise UserError(
                "the rows are conversations, but the model's tokenizer has no chat template; take a model "
                "that was trained on chats, give training a template (--template FILE), put one into the "
                "model's folder as chat_template.jinja, or use rows whose prompt and completion are plain "
                "text"
            )
        return self.chat_format

    def _require_eos(self) -> int:
        if self.info.eos is None:
            raise UserError(
                "the tokenizer declares no EOS token, so an answer in plain text could never end; "
                "set eos_token in its tokenizer_config.json"
            )
        return self.info.eos

    def _first_token(self, text: str) -> int | None:
        """The token that must come first, or None; a prompt without any tokens begins with BOS or EOS."""
        if self.info.adds_bos:
            return self.info.bos
        if text.strip() or self.info.encode(text):
            return None
        first = self.info.eos if self.info.bos is None else self.info.bos
        if first is None:
            raise UserError("the prompt has no tokens and the tokenizer no BOS; give the row a prompt")
        return first


def make_encoder(
    model: str | Path | tokenizer.TokenizerInfo,
    *,
    turns: str = "all",
    template: str | None = None,
    variables: Mapping[str, object] | None = None,
    read_extras: ExtrasReader | None = None,
    text: str | None = None,
) -> Encoder:
    """The encoder of a model folder.

    ``template`` replaces the folder's own chat template; ``variables`` are handed to it
    (``{"enable_thinking": False}``); ``read_extras`` reads the pictures of prompts; ``text`` is chat or raw,
    and without it what the model was trained with.
    """
    info = model if isinstance(model, tokenizer.TokenizerInfo) else tokenizer.load_tokenizer(model)
    trained_turns = chat_template.parse_turns(turns)
    read_extras = read_extras or _picture_reader(model, info)
    source = info.template if template is None else template
    # What was asked for, kept with the tokenizer that is saved; else what the model was trained with.
    settings = info.tokenizer.init_kwargs
    choice = settings.get(tokenizer.TEXT_SETTING, "chat") if text is None else text
    if choice not in ("chat", "raw"):
        where = f"{tokenizer.TEXT_SETTING} of the tokenizer's files" if text is None else "text"
        raise UserError(f"{where} is {choice!r}; it is 'chat' (a string is a user's turn) or 'raw'")
    if text is not None:
        settings[tokenizer.TEXT_SETTING] = choice
    text_use = "raw" if choice == "raw" else "chat"
    chat_format, notes = None, ()
    if source is not None:
        try:
            picture = getattr(read_extras, "mark", None)
            chat_format, notes = chat_template.chat_format_of(info, source, variables or {}, picture)
        except UserError as error:
            # The trial conversation is nobody's row: whose template it is has to be said.
            raise UserError(f"{info.tokenizer.name_or_path or 'the tokenizer'}: {error}") from error
    if chat_format is not None and text_use == "raw":
        notes = (*notes, RAW_TEXT)
    return Encoder(
        info=info,
        chat_format=chat_format,
        turns=trained_turns,
        notes=notes,
        read_extras=read_extras,
        text=text_use,
    )


def _picture_reader(
    model: str | Path | tokenizer.TokenizerInfo, info: tokenizer.TokenizerInfo
) -> ExtrasReader | None:
    if isinstance(model, tokenizer.TokenizerInfo) or not sees_pictures(Path(model)):
        return None
    return offered("picture_reader", of="pictures")(Path(model), info)


def read_template(path: Path) -> str:
    """The chat template of a file, as ``--template`` names it."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--template {path}: cannot be read as text ({error}); name one of Jinja") from error
    if not source.strip():
        raise UserError(f"--template {path}: the file is empty; it should hold a chat template in Jinja")
    if fault := syntax_fault(source):
        raise UserError(f"--template {path}: this is no template in Jinja: {fault}")
    return source


def encode_record(record: AnsweredRecord, encoder: Encoder) -> Example:
    """One row as tokens: its prompt once, and each of its answers."""
    return encode_record_with_notes(record, encoder).example


def encode_record_with_notes(record: AnsweredRecord, encoder: Encoder) -> EncodedRow:
    """As `encode_record`, with the notes of what had to be decided."""
    return encoder.encode_with_notes(record.prompt, answers_of(record), record.origin)


RecordT = TypeVar("RecordT", bound=Record)
RowT = TypeVar("RowT")
"""What a record becomes: an example, or one with what was said of it."""

PROMPT_TRUNCATED = "the prompt was cut from its start, so that the longest answer fits whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows(Generic[RowT]):
    examples: Sequence[RowT]
    """The rows that can be trained, in order; of many they may lie on disk."""
    refused: tuple[RefusedRow, ...]
    """The rows that cannot, each with its reason: to be quarantined, counted and shown."""
    notes: Mapping[str, int]


def encode_rows(
    records: Sequence[AnsweredRecord], encoder: Encoder, max_tokens: int | None = None
) -> EncodedRows[Example]:
    """All rows as tokens, each at most ``max_tokens`` long; a bad row is refused, none is lost."""
    return encode_each(
        records,
        lambda record: encode_record_with_notes(record, encoder),
        lambda _, example: example,
        max_tokens,
        encoder.workshop,
    )


def encode_each(
    records: Sequence[RecordT],
    encode: Callable[[RecordT], EncodedRow],
    finish: Callable[[RecordT, Example], RowT],
    max_tokens: int | None = None,
    workshop: Workshop | None = None,
) -> EncodedRows[RowT]:
    """As `encode_rows`, with the caller's ``encode``; ``finish`` gets a record and tokens that fit."""

    def encode_block(block: slice) -> tuple[Sequence[RowT], Mapping[str, Any]]:
        part = _encode_here(records[block], encode, finish, max_tokens)
        refused = [[row.origin, row.reason] for row in part.refused]
        return part.examples, {"refused": refused, "notes": part.notes}

    if workshop is None or (len(records) < MANY_ROWS and not workshop.on_disk):
        return _encode_here(records, encode, finish, max_tokens)
    try:
        examples, reports = workshop.encode(len(records), encode_block)
    except OSError:
        if workshop.on_disk:
            raise
        # A full disk is no reason not to train on rows that memory holds.
        return _encode_here(records, encode, finish, max_tokens)
    notes: Counter[str] = Counter()
    for report in reports:
        notes.update(report["notes"])
    rows = (row for report in reports for row in report["refused"])
    refused = tuple(RefusedRow(origin=origin, reason=reason) for origin, reason in rows)
    return EncodedRows(examples=examples, refused=refused, notes=dict(notes))


def _encode_here(
    records: Sequence[RecordT],
    encode: Callable[[RecordT], EncodedRow],
    finish: Callable[[RecordT, Example], RowT],
    max_tokens: int | None,
) -> EncodedRows[RowT]:
    rows: list[RowT] = []
    refused: list[RefusedRow] = []
    notes: Counter[str] = Counter()
    for record in records:
        try:
            encoded = encode(record)
            fitted: Example | RefusedRow = encoded.example
            if max_tokens is not None:
                fitted = truncate_prompt(fitted, max_tokens, bos=encoded.bos)
            if isinstance(fitted, RefusedRow):
                refused.append(fitted)
                continue
            rows.append(finish(record, fitted))
        except EndlessTemplateError:
            # Every row would take as long again.
            raise
        except UserError as error:
            refused.append(RefusedRow(origin=record.origin, reason=str(error)))
            continue
        # After `finish`: only rows that are trained are counted.
        notes.update(encoded.notes)
        notes.update([PROMPT_TRUNCATED] if fitted is not encoded.example else [])
    return EncodedRows(examples=tuple(rows), refused=tuple(refused), notes=dict(notes))
