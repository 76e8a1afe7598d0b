"""Where steps end among drawn tokens: counted in bytes, over tokens that no tokenizer would choose."""

import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from plaudit.errors import UserError
from plaudit.rewards.learned.process import step_ends, step_lines
from plaudit.rollouts.sampler import Answer, Rollout
from plaudit.tokens.encode import Encoder, make_encoder
from tests.models.zoo import build

TEXTS = (
    "Halve both sides.\n\nThen x = 3.\nSo y = 4.",
    "Zuerst Größe prüfen.\n\n猫は二匹。\n\n\n  Also 7 €.\n",
    "👩‍🚀 counts to ten.\r\n½ of it is five.\n…",
    "\n\nstarts late\n \nends",
    "one line",
    "ß\nß\nß",
)
END = "<end>"
JOINED = (".\n\n", "。\n\n", ".\n", "\n\n\n", "s.\n\nT", "ß\nß")
"""Tokens that hold the end of a line, some of them the beginning of the next one, or whole lines."""


@cache
def encoder() -> Encoder:
    """A byte-level BPE tokenizer that learned these texts, with some tokens more."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        [*TEXTS * 3, *JOINED * 30],
        trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=[END]),
    )
    folder = Path(mkdtemp())
    model = build("llama")
    model.resize_token_embeddings(420)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END).save_pretrained(folder)
    return make_encoder(folder)


@cache
def spelling() -> dict[bytes, int]:
    """Every token by the bytes that it is."""
    byte_of = {character: number for number, character in _byte_characters().items()}
    vocabulary = encoder().info.tokenizer.get_vocab()
    return {
        bytes(byte_of[character] for character in word): token
        for word, token in vocabulary.items()
        if word != END
    }


def _byte_characters() -> dict[int, str]:
    """GPT-2's letters for bytes: printable ones are themselves, the others follow from 256 on."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {byte: chr(byte) for byte in own} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def cut_up(text: str, chance: random.Random) -> list[bytes]:
    """The text's bytes in tokens of any length, as a policy may draw them."""
    left, pieces = text.encode(), list[bytes]()
    while left:
        pieces.append(chance.choice([word for word in spelling() if left.startswith(word)]))
        left = left[len(pieces[-1]) :]
    return pieces


def drawn(text: str, pieces: list[bytes], *, ended: bool = True) -> Rollout:
    tokens = [*(spelling()[piece] for piece in pieces)]
    ids = tuple([*tokens, encoder().info.tokenizer.convert_tokens_to_ids(END)] if ended else tokens)
    answer = Answer(text=text, tokens=len(ids), ended=ended)
    return Rollout(prompt=(1,), ids=ids, logp=(0.0,) * len(ids), whole_logp=(0.0,) * len(ids), answer=answer)


def by_bytes(text: str, pieces: list[bytes], tokens: int) -> tuple[int, ...]:
    """The first token with which the bytes of all lines so far are there."""
    ends, passed = list[int](), 0
    for line in text.splitlines(keepends=True):
        needed = passed + len(line.rstrip().encode())
        passed += len(line.encode())
        if line.strip():
            sums = [len(b"".join(pieces[: n + 1])) for n in range(len(pieces))]
            ends.append(next(n for n, size in enumerate(sums) if size >= needed))
    return (*ends[:-1], tokens - 1)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("ended", [True, False])
def test_a_step_ends_with_the_token_that_completes_it_however_it_was_drawn(text: str, ended: bool) -> None:
    chance = random.Random(text)
    lengths = set[int]()
    for _ in range(60):
        pieces = cut_up(text, chance)
        rollout = drawn(text, pieces, ended=ended)
        found = step_ends(rollout, encoder())
        assert found == by_bytes(text, pieces, len(rollout.ids))
        assert len(found) == len(step_lines(text))
        lengths.add(len(rollout.ids))
    assert len(lengths) > 1


def test_a_token_with_a_lines_end_in_it_belongs_to_the_line_that_it_ends() -> None:
    text = "Halves.\n\nThen\nß\nß"
    pieces = [b"H", b"alves"[:4], b"s.\n\nT", b"h", b"en"[:1], b"n", b"\n", "ß\nß".encode()]
    known = [piece for piece in pieces if piece in spelling()]
    assert {b"s.\n\nT", "ß\nß".encode()} <= {*known}
    whole = [one for piece in pieces for one in ([piece] if piece in spelling() else _single(piece))]
    places = {piece: place for place, piece in enumerate(whole)}
    ends = step_ends(drawn(text, whole), encoder())
    # The third line and the fourth, which is the last, are one token; the end of turn belongs to the last.
    assert ends == (places[b"s.\n\nT"], places[b"\n"] - 1, places["ß\nß".encode()], len(whole))


def _single(piece: bytes) -> list[bytes]:
    return [piece[n : n + 1] for n in range(len(piece))]


def test_what_is_behind_a_stop_is_of_the_last_step_no_word_is_none_and_other_tokens_are_refused() -> None:
    pieces = [b"a", b"\n", b"b", b"\n", b"c"]
    assert step_ends(drawn("a\nb", pieces, ended=False), encoder()) == (0, 4)
    assert step_ends(drawn(" \n\n", [b" ", b"\n", b"\n"]), encoder()) == ()
    with pytest.raises(UserError, match="not found among the tokens that were drawn"):
        step_ends(drawn("a\nb", [b"b", b"\n", b"b"]), encoder())


def test_tokens_of_words_with_blanks_of_their_own() -> None:
    """Sentence pieces, and bytes for what they lack: the first blank is not said."""
    pieces = {"<unk>": 0, "▁a": 1, "▁b": 2, "b": 3, "<0x0A>": 4, "<0xC3>": 5, "<0x9F>": 6, "▁": 7, END: 8}
    raw = Tokenizer(models.BPE(pieces, [], unk_token="<unk>", byte_fallback=True))
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    folder = Path(mkdtemp())
    build("llama").save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, unk_token="<unk>").save_pretrained(folder)
    ids = (1, 5, 6, 4, 2, 3, 4, 4, 7, 5, 6, 8)
    own = make_encoder(folder)
    text = "aß\n bb\n\n ß"
    answer = Answer(text=text, tokens=len(ids), ended=True)
    rollout = Rollout(
        prompt=(1,), ids=ids, logp=(0.0,) * len(ids), whole_logp=(0.0,) * len(ids), answer=answer
    )
    assert own.info.tokenizer.decode(list(ids), skip_special_tokens=True) == text
    assert step_ends(rollout, own) == (2, 5, 11)
