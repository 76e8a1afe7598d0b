"""A tokenizer folder, and the few facts about it that text → tokens needs.

Nothing is downloaded and no code of the folder is run (``trust_remote_code`` is off).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    __version__ as transformers_version,
)
from transformers.utils import logging as hub_logging

from plaudit.errors import UserError, first_line
from plaudit.files import model_folder

TEXT_SETTING, FACTS_SETTING = "plaudit_text", "plaudit_facts"
"""How plain text is asked, and whether facts are read: the choices travel with the tokenizer's files."""
CUT = "\ufdd2"
"""Stands inside a control token that is somebody's words: the tokens on its two sides are made apart.

Unicode keeps this code point free of meaning for ever, so no text may hold it.
"""

_TEXT_ANCHORS = ("", "\n", "a", ".", "<")


def without_control(text: str, tokens: Sequence[str]) -> str:
    """The text with a `CUT` in each of these control tokens, so that all of it is read as letters.

    >>> without_control("a</s>", ("</s>",)) == f"a<{CUT}/s>"
    True
    """
    if CUT in text:
        raise UserError("the text holds U+FDD2, which is no character: take it out")
    pattern = re.compile("|".join(re.escape(token) for token in tokens if token) or r"(?!)")
    # Again and again: two tokens may share letters.
    while (found := pattern.search(text)) is not None:
        if len(found[0]) == 1:
            raise UserError(
                f"the text holds {found[0]!r}, which this tokenizer can only read as a control token; "
                "take it out, or write it in another way"
            )
        text = f"{text[: found.start() + 1]}{CUT}{text[found.start() + 1 :]}"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerInfo:
    """A tokenizer and what is special about it.

    Example: ``load_tokenizer("models/chat").stops`` is ``(2, 7)`` when the folder's generation
    settings name two tokens that end an answer.
    """

    tokenizer: PreTrainedTokenizerBase
    template: str | None
    bos: int | None
    eos: int | None
    pad: int | None
    """The padding token; never used to find a mask, so it may equal ``eos`` or be missing."""
    stops: tuple[int, ...]
    """Every token that ends an answer: the generation settings' list, then the tokenizer's own."""
    adds_bos: bool
    """Whether the tokenizer puts its BOS in front of plain text."""
    specials: tuple[str, ...]
    """The texts of all control tokens, longest first; ordinary words that end answers are among them."""
    control: tuple[str, ...]
    """Those of them that are read as one token wherever they stand, whatever is around them."""
    vocabulary: int | None = None
    """How many tokens the model has embeddings of; None where the folder does not say it."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of the text and nothing else: no BOS, no EOS, no cut; across a `CUT` there is none."""
        first, *rest = text.split(CUT)
        ids = self._encode_part(first)
        for part in rest:
            # With the very text where the tokenizer can keep it.
            candidates = list(self.continuations(part))
            expected = self.decode(ids) + part
            ids += next((more for more in candidates if self.decode(ids + more) == expected), candidates[0])
        return ids

    def continuations(self, text: str) -> Iterator[tuple[int, ...]]:
        """The possible tokenisations of a text in the middle of another.
        Tokenizers of the SentencePiece family put a blank before every text; behind a short anchor they do
        not, and the anchor's tokens are taken off again."""
        # Several anchors, since each merges with some texts: "a" with letters, "." with further dots.
        for anchor in _TEXT_ANCHORS:
            before = self.encode(anchor) if anchor else ()
            ids = self.encode(anchor + text)
            if ids[: len(before)] == before:
                yield ids[len(before) :]

    def _encode_part(self, text: str) -> tuple[int, ...]:
        try:
            # A lone surrogate would reach the Rust tokenizer, whose error names no row and no place.
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                f"the text holds half a character (position {error.start}): it is broken UTF-16; "
                "repair or leave out this row"
            ) from error
        with _bare_faults_reported(f"the tokenizer cannot read {text[:40]!r}"):
            ids = tuple(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))
        if not ids and text.strip():
            raise UserError(
                f"the tokenizer ({type(self.tokenizer).__name__}) makes no token of {text[:40]!r}: the files "
                "in its folder may belong to another class than the one that transformers loads for them"
            )
        if self.vocabulary is not None and ids and max(ids) >= self.vocabulary:
            # As where chat tokens were added to the tokenizer and no rows to the embedding.
            raise UserError(
                f"{_unknown_token(self, max(ids))}; leave it out of rows and template, or add rows for it to "
                "the model (resize_token_embeddings)"
            )
        return ids

    def encode_start(self, text: str, first_token: int | None) -> tuple[int, ...]:
        """The tokens of a text that stands at the very start: exactly one BOS, when it has one at all.
        ``first_token`` is the one that must come first; None leaves the text as it is, but for a doubled
        BOS."""
        ids = self.encode(text)
        # A row may bring the BOS that its template writes as well; pretraining never had a second one.
        while self.bos is not None and ids[:2] == (self.bos, self.bos):
            ids = ids[1:]
        return ids if first_token is None or ids[:1] == (first_token,) else (first_token, *ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens, control tokens included."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text if isinstance(text, str) else "".join(text)

    def id_of(self, token: str) -> int:
        token_id = self.tokenizer.convert_tokens_to_ids(token)
        if not isinstance(token_id, int):
            raise UserError(f"the tokenizer does not know {token!r} as one token")
        return token_id


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")

TOKENIZER_FAULTS = (
    *(OSError, ValueError, LookupError, TypeError, ImportError, AttributeError),
    *(ArithmeticError, AssertionError, RuntimeError, MemoryError),
)
"""What transformers raises at files that are no tokenizer's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    text: str
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContinuation:
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    is_separate: bool
    """True when the pieces were tokenised separately, since a token of the whole text crosses a boundary."""


def tokenise_pieces(
    info: TokenizerInfo, prompt_text: str, answers: Sequence[Sequence[TextPiece]], first_token: int | None
) -> list[PromptContinuation]:
    # On its own, as it will be at sampling: BPE may merge its last character with the answer's first.
    prompt = info.encode_start(prompt_text, first_token)
    if not prompt:
        raise UserError(
            f"the prompt {prompt_text[:40]!r} has no tokens; give the row a prompt that the model can read"
        )
    return [_continue_prompt(info, prompt_text, prompt, pieces, first_token) for pieces in answers]


def _continue_prompt(
    info: TokenizerInfo,
    prompt_text: str,
    prompt: tuple[int, ...],
    pieces: Sequence[TextPiece],
    first_token: int | None,
) -> PromptContinuation:
    """The tokens of what follows a prompt; those of the whole text whenever it has clean seams."""
    all_ids = info.encode_start(prompt_text + "".join(piece.text for piece in pieces), first_token)
    parts = None
    # The usual case: the whole text begins with the prompt's own tokens, so both ways agree.
    if all_ids[: len(prompt)] == prompt:
        rest = all_ids[len(prompt) :]
        parts = [rest] if len(pieces) == 1 else _split_at_pieces(info, rest, pieces)
    is_separate = parts is None
    if parts is None:
        parts = _tokenise_separately(info, prompt_text, pieces, first_token)
    ids = tuple(i for part in parts for i in part)
    mask = tuple(piece.trained for piece, part in zip(pieces, parts, strict=True) for _ in part)
    return PromptContinuation(prompt=prompt, ids=ids, mask=mask, is_separate=is_separate)


def _split_at_pieces(
    info: TokenizerInfo, rest: tuple[int, ...], pieces: Sequence[TextPiece]
) -> list[tuple[int, ...]] | None:
    """The tokens ``rest`` cut at the pieces' borders; None when a token lies across one."""
    parts: list[tuple[int, ...]] = []
    for piece in pieces[:-1]:
        # A border is trusted only if the piece alone gives the very tokens that stand there.
        part = next((part for part in info.continuations(piece.text) if rest[: len(part)] == part), None)
        if part is None:
            return None
        parts.append(part)
        rest = rest[len(part) :]
    return [*parts, rest] if rest in info.continuations(pieces[-1].text) else None


def _tokenise_separately(
    info: TokenizerInfo, prompt_text: str, pieces: Sequence[TextPiece], first_token: int | None
) -> list[tuple[int, ...]]:
    """Each piece tokenised as a continuation, proven by decoding all that stands so far."""
    text = prompt_text
    ids_so_far = info.encode_start(prompt_text, first_token)
    parts: list[tuple[int, ...]] = []
    for piece in pieces:
        text += piece.text
        # Compared after a round trip: one that normalises (NFKC, blanks) gives other text than it was given.
        expected_text = info.decode(info.encode_start(text, first_token))
        candidates = info.continuations(piece.text)
        part = next((part for part in candidates if info.decode(ids_so_far + part) == expected_text), None)
        if part is None:
            raise UserError(
                f"the tokenizer cannot continue the prompt with {piece.text[:40]!r}: no tokens for it decode "
                "back to the same text; move the blanks between prompt and answer to the other side"
            )
        parts.append(part)
        ids_so_far += part
    return parts


def load_tokenizer(folder: str | Path) -> TokenizerInfo:
    """The tokenizer of a model folder, with every stop token that the folder declares."""
    where = Path(folder)
    model_folder.refuse_other_folder(where)
    # A tokenizer may lie alone; where there is a model, it is looked at before any row is read.
    config = model_folder.check_model_folder(where) if (where / "config.json").exists() else {}
    if config:
        known_architecture(where / "config.json", config)
    _check_tokenizer_files(where)
    stops, known = tuple(_declared_stops(where)), model_folder.vocabulary_size(config)
    try:
        with quiet_library(), _bare_faults_reported("the tokenizer cannot be loaded"):
            tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False, local_files_only=True)
            info = tokenizer_info(tokenizer, declared=stops, vocabulary=known)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except StrictDataclassError as error:
        # The tokenizer's class is looked up by the model's config.
        why = " ".join(str(error).split())
        raise UserError(f"{where / 'config.json'}: {why}; repair it, or copy the model again") from error
    except TOKENIZER_FAULTS as error:
        if not config and not (where / "tokenizer_config.json").exists():
            # Neither is there: it is the whole model that is missing.
            model_folder.check_model_folder(where)
        raise UserError(
            f"{where}: the tokenizer cannot be loaded ({first_line(error)}); the folder needs a "
            "tokenizer.json (or its model's vocabulary files), and code in the folder is never run"
        ) from error
    _refuse_more_tokens_than_known(where, info)
    return info


def known_architecture(path: Path, config: Mapping[str, Any]) -> str:
    """The family of a model's config, which transformers must know by itself."""
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in CONFIG_MAPPING:
        return kind
    if "auto_map" in config:
        raise UserError(
            f"{path}: this model needs its own code to run, and plaudit never runs code from a folder; "
            "use one that transformers knows by itself"
        )
    raise UserError(
        f"{path}: its model_type is {kind!r}, which transformers {transformers_version} does not know; "
        "is this the configuration of a language model?"
    )


@contextmanager
def quiet_library() -> Iterator[None]:
    """While this lasts transformers says nothing but errors: what it warns of is refused in our words."""
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()
    hub_logging.disable_progress_bar()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)


@contextmanager
def _bare_faults_reported(what: str) -> Iterator[None]:
    """Say what the Rust tokenizer raises, which is of no class of its own."""
    try:
        yield
    except BaseException as error:
        # The second is a panic of Rust: of a pattern that finds no end in a text, say.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what} ({error}): its tokenizer.json is damaged; copy the model again") from error


def _check_tokenizer_files(folder: Path) -> None:
    """Complain about a file that is no JSON object, and about patterns that could take for ever."""
    # They are a stranger's, and each text goes through them.
    for path in (folder / name for name in TOKENIZER_FILES):
        settings = model_folder.read_json_object(path) if path.is_file() else {}
        parts: list[Any] = [settings.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
        while parts:
            part = parts.pop()
            if isinstance(part, Mapping):
                if isinstance(pattern := part.get("Regex"), str):
                    model_folder.refuse_slow_pattern(path, pattern)
                parts += part.values()
            elif isinstance(part, list):
                parts += part


def _refuse_more_tokens_than_known(folder: Path, info: TokenizerInfo) -> None:
    """Tokens that were added behind the vocabulary do not count: many a folder has some that nothing uses."""
    if info.vocabulary is None:
        return
    vocabulary = {token: word for word, token in info.tokenizer.get_vocab().items()}
    highest = max(vocabulary.keys() - info.tokenizer.added_tokens_decoder.keys(), default=0)
    # What begins and ends texts is used by every one of them.
    used = [token for token in (highest, info.eos, info.bos if info.adds_bos else None) if token is not None]
    if max(used) >= info.vocabulary:
        raise UserError(f"{folder}: {_unknown_token(info, max(used))}; use the tokenizer of this model")


def _unknown_token(info: TokenizerInfo, token: int) -> str:
    return (
        f"the tokenizer does not fit the model: {info.tokenizer.convert_ids_to_tokens(token)!r} is token "
        f"{token:,}, and the model knows {info.vocabulary:,} (0 to {(info.vocabulary or 0) - 1:,})"
    )


def tokenizer_info(
    tokenizer: PreTrainedTokenizerBase, declared: Iterable[int] = (), vocabulary: int | None = None
) -> TokenizerInfo:
    """The facts of a loaded tokenizer; ``declared`` are the model's stops, ``vocabulary`` its embeddings."""
    bos, eos, pad = (_token_id(tokenizer, name) for name in ("bos_token", "eos_token", "pad_token"))
    stops = tuple(dict.fromkeys((*declared, *(() if eos is None else (eos,)))))
    # Found by trying: `add_bos_token` in the files and what the fast tokenizer does often disagree.
    plain = tokenizer.encode("a", add_special_tokens=False)
    with_specials = tokenizer.encode("a", add_special_tokens=True)
    marked = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    # Some models stop at tokens that their tokenizer does not mark as special.
    ends = {str(tokenizer.convert_ids_to_tokens(stop)) for stop in stops if stop < len(tokenizer)}
    every = marked | ends | set(tokenizer.all_special_tokens)
    specials = tuple(sorted(every, key=lambda text: (-len(text), text)))
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    return TokenizerInfo(
        tokenizer=tokenizer,
        template=_template_of(tokenizer),
        bos=bos,
        eos=eos,
        pad=pad,
        stops=stops,
        adds_bos=bos is not None and with_specials[:1] == [bos] and plain[:1] != [bos],
        specials=specials,
        control=tuple(token for token in specials if token in added),
        vocabulary=vocabulary,
    )


def _token_id(tokenizer: PreTrainedTokenizerBase, name: str) -> int | None:
    token = getattr(tokenizer, name, None)
    token_id = None if token is None else tokenizer.convert_tokens_to_ids(token)
    return token_id if isinstance(token_id, int) else None


def _template_of(tokenizer: PreTrainedTokenizerBase) -> str | None:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if "default" not in template:
            names = ", ".join(sorted(template))
            raise UserError(f"the folder's chat templates are {names}, none is 'default'; give one by file")
        return template["default"]
    return template


def _declared_stops(folder: Path) -> Iterator[int]:
    for path in (folder / "generation_config.json", folder / "config.json"):
        declared = model_folder.read_json_object(path).get("eos_token_id") if path.is_file() else None
        numbers = declared if isinstance(declared, list) else [declared]
        yield from (number for number in numbers if isinstance(number, int))
