"""Small real tokenizers of four kinds, and a model folder of a family's shape."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordLevelTrainer
from transformers import PreTrainedTokenizerFast

from plaudit.data.records import Demonstration, assistant_turn, user_turn
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, make_encoder

TEXT = [
    "How are you? Fine, thanks. Hi. Hello. And you? Well. Be brief.",
    "user\nassistant\nmodel\nsystem\n\nThe capital of France is Paris.\n\nName three fruits: pear, fig.",
    "The quick brown fox jumps over the lazy dog; 2 + 2 = 4, and 3 + 4 = 7. plum",
    "[INST] [/INST] final <think> </think>",
] * 4
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is asked and what is trained, as text; or a part of the error."""

    prompt: str = ""
    trained: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    template: str
    specials: tuple[str, ...]
    eos: str
    bos: str | None = None
    pad: str | None = None
    kind: str = "bytes"
    adds_bos: bool = False
    stops: tuple[str, ...] = ()
    plain_specials: tuple[str, ...] = ()
    single: Expected
    all: Expected
    last: Expected
    system: Expected


def alike(
    turn: str, ask: str, end: str, *, start: str = "", assistant: str = "assistant"
) -> dict[str, Expected]:
    """What a family must give that writes every turn alike: by its text of a role and of its words."""

    def expected(trained: str, *turns: tuple[str, str]) -> Expected:
        asked = "".join(turn.format(role, words) for role, words in turns)
        return Expected(prompt=start + asked + ask, trained=trained)

    hi = ("user", "Hi.")
    return {
        "single": expected(f"Fine, thanks.{end}", ("user", "How are you?")),
        "all": expected(f"Hello.{end}Well.{end}", hi),
        "last": expected(f"Well.{end}", hi, (assistant, "Hello."), ("user", "And you?")),
        "system": expected(f"Hello.{end}", ("system", "Be brief."), hi),
    }


@cache
def backend(kind: str, specials: tuple[str, ...]) -> str:
    """A small tokenizer of the kind, trained on ``TEXT``, as JSON."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    added = [AddedToken(token, special=True, normalized=False) for token in specials]
    if kind == "bytes":
        built = Tokenizer(models.BPE())
        built.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        built.decoder = decoders.ByteLevel()
        trainer = BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet, special_tokens=added, show_progress=False
        )
    elif kind == "words":
        built = Tokenizer(models.WordLevel(unk_token="<unk>"))
        built.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = WordLevelTrainer(vocab_size=400, special_tokens=["<unk>", *added], show_progress=False)
    elif kind == "metaspace":
        built = Tokenizer(models.Unigram())
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        built.decoder = decoders.Metaspace(prepend_scheme="first")
        trainer = UnigramTrainer(
            vocab_size=150, unk_token="<unk>", special_tokens=["<unk>", *added], show_progress=False
        )
    else:
        built = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        built.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        trainer = BpeTrainer(
            vocab_size=700, special_tokens=["<unk>", *added, *BYTES], show_progress=False, max_token_length=8
        )
    built.train_from_iterator(TEXT, trainer)
    finish = {"llama": _without_training_aids, "metaspace": _in_one_order}.get(kind, Tokenizer.to_str)
    return finish(built)


def _in_one_order(built: Tokenizer) -> str:
    """Unigram's trainer numbers equally rare pieces by chance; here they have the same numbers every time."""
    state = json.loads(built.to_str())
    specials, pieces = (
        [[piece, round(score, 2)] for piece, score in state["model"]["vocab"] if (score == 0) == special]
        for special in (True, False)
    )
    state["model"]["vocab"] = [*specials, *sorted(pieces)]
    return json.dumps(state)


def _without_training_aids(built: Tokenizer) -> str:
    """Llama 2's shape: no splitting before the merges, and bytes that are no special tokens."""
    state = json.loads(built.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    return json.dumps(state)


def encoder_of(where: Path, family: Family, **settings: Any) -> Encoder:
    return make_encoder(folder(where, family), **settings)


def chat(asked: str, answer: str, **facts: Any) -> Demonstration:
    return Demonstration(prompt=user_turn(asked), completion=assistant_turn(answer), **facts)


def trained_text(encoder: Encoder, ids: Iterable[int], mask: Iterable[bool]) -> str:
    return encoder.info.decode([i for i, on in zip(ids, mask, strict=True) if on])


def texts(encoder: Encoder, example: Example, k: int = 0) -> tuple[str, str]:
    answer = example.completions[k]
    return encoder.info.decode(example.prompt), trained_text(encoder, answer.ids, answer.mask)


def folder(where: Path, family: Family) -> Path:
    built = Tokenizer.from_str(backend(family.kind, family.specials))
    if family.adds_bos and family.bos is not None:
        first = (family.bos, built.token_to_id(family.bos))
        built.post_processor = processors.TemplateProcessing(
            single=f"{family.bos} $A", pair=f"{family.bos} $A {family.bos} $B", special_tokens=[first]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=built, bos_token=family.bos, eos_token=family.eos, pad_token=family.pad
    )
    tokenizer.chat_template = family.template
    tokenizer.save_pretrained(where)
    if family.stops:
        stops = [built.token_to_id(token) for token in family.stops]
        (where / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}), encoding="utf-8")
    return where
