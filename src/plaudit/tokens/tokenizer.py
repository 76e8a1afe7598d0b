"""A tokenizer folder, and the few facts about it that text → tokens needs.

Nothing is downloaded and no code of the folder is run (``trust_remote_code`` is off).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerInfo:
    """A tokenizer and what is special about it.

    Example: ``load_tokenizer("models/chat").stops`` is ``(2, 7)`` when the folder's generation
    settings name two tokens that end an answer.
    """

    tokenizer: PreTrainedTokenizerBase
    """The tokenizer itself."""
    template: str | None
    """The folder's chat template; None when it has none."""
    bos: int | None
    """The token that begins every text."""
    eos: int | None
    """The token that ends a text."""
    pad: int | None
    """The padding token; never used to find a mask, so it may equal ``eos`` or be missing."""
    stops: tuple[int, ...]
    """Every token that ends an answer: the generation settings' list, then the tokenizer's own."""
    adds_bos: bool
    """Whether the tokenizer puts its BOS in front of plain text."""
    specials: tuple[str, ...]
    """The texts of all control tokens, longest first."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of the text and nothing else: no BOS, no EOS, no cut."""
        try:
            # A lone surrogate would reach the Rust tokenizer, whose
            # error names neither the row nor the place.
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                f"the text holds half a character (position {error.start}): it is broken UTF-16; "
                "repair or leave out this row"
            ) from error
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False, verbose=False))
        if not ids and text.strip():
            raise UserError(
                f"the tokenizer ({type(self.tokenizer).__name__}) makes no token of {text[:40]!r}: the files "
                "in its folder may belong to another class than the one that transformers loads for them"
            )
        return ids

    def encode_start(self, text: str, first_token: int | None) -> tuple[int, ...]:
        """The tokens of a text that stands at the very start: exactly one BOS, when it has one at all.

        ``first_token`` is the one that must come first; None leaves the text as it is, but for a
        doubled BOS.
        """
        ids = self.encode(text)
        # A row may bring the BOS that its template writes as well;
        # in pretraining there was never a second one.
        while self.bos is not None and ids[:2] == (self.bos, self.bos):
            ids = ids[1:]
        return ids if first_token is None or ids[:1] == (first_token,) else (first_token, *ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens, control tokens included."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text if isinstance(text, str) else "".join(text)

    def id_of(self, token: str) -> int:
        """The number of one control token."""
        token_id = self.tokenizer.convert_tokens_to_ids(token)
        if not isinstance(token_id, int):
            raise UserError(f"the tokenizer does not know {token!r} as one token")
        return token_id


def refuse_run_folder(folder: Path) -> None:
    """Complain about a run's folder that is given for the model in it."""
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").is_file():
        raise UserError(f"{folder}: this is a run's folder; its model lies in {folder / 'model'}: give that")


def load_tokenizer(folder: str | Path) -> TokenizerInfo:
    """The tokenizer of a model folder, with every stop token that the folder declares."""
    where = Path(folder)
    if not where.is_dir():
        raise UserError(
            f"{where}: no such folder; give the folder that holds the model and its tokenizer, or "
            "org/name[@revision] of the hub"
        )
    refuse_run_folder(where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, LookupError, TypeError, ImportError) as error:
        raise UserError(
            f"{where}: the tokenizer cannot be loaded ({_first_line(error)}); the folder needs a "
            "tokenizer.json (or its model's vocabulary files), and code in the folder is never run"
        ) from error
    return tokenizer_info(tokenizer, declared=tuple(_declared_stops(where)))


def tokenizer_info(tokenizer: PreTrainedTokenizerBase, declared: Sequence[int] = ()) -> TokenizerInfo:
    """The facts of a tokenizer that is already loaded; ``declared`` are the model's own stop tokens."""
    bos, eos, pad = (_token_id(tokenizer, name) for name in ("bos_token", "eos_token", "pad_token"))
    stops = tuple(dict.fromkeys((*declared, *(() if eos is None else (eos,)))))
    # Found by trying: `add_bos_token` in the files and what the fast tokenizer does often disagree.
    plain = tokenizer.encode("a", add_special_tokens=False)
    with_specials = tokenizer.encode("a", add_special_tokens=True)
    return TokenizerInfo(
        tokenizer=tokenizer,
        template=_template_of(tokenizer),
        bos=bos,
        eos=eos,
        pad=pad,
        stops=stops,
        adds_bos=bos is not None and with_specials[:1] == [bos] and plain[:1] != [bos],
        specials=_specials(tokenizer, stops),
    )


def _token_id(tokenizer: PreTrainedTokenizerBase, name: str) -> int | None:
    token = getattr(tokenizer, name, None)
    if token is None:
        return None
    token_id = tokenizer.convert_tokens_to_ids(token)
    return token_id if isinstance(token_id, int) else None


def _template_of(tokenizer: PreTrainedTokenizerBase) -> str | None:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if "default" not in template:
            names = ", ".join(sorted(template))
            raise UserError(
                f"the folder's chat templates are named {names}, none is 'default'; give one by file"
            )
        return template["default"]
    return template


def _specials(tokenizer: PreTrainedTokenizerBase, stops: Sequence[int]) -> tuple[str, ...]:
    marked = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    # Some models stop at tokens that their tokenizer does not mark as special.
    ends = {str(tokenizer.convert_ids_to_tokens(stop)) for stop in stops if stop < len(tokenizer)}
    return tuple(
        sorted(marked | ends | set(tokenizer.all_special_tokens), key=lambda text: (-len(text), text))
    )


def _declared_stops(folder: Path) -> Iterator[int]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            declared = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise UserError(
                f"{path}: this is not a JSON object ({_first_line(error)}); repair the file"
            ) from error
        numbers = declared if isinstance(declared, list) else [declared]
        yield from (number for number in numbers if isinstance(number, int))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
