"""The world's tokenizer: one token a word, made from all that the world can say."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Metaspace, Sequence, Split
from transformers import PreTrainedTokenizerFast

from plaudit.data.records import plain_text
from plaudit.world import sayings
from plaudit.world.corpus import statements
from plaudit.world.facts import capitalized
from plaudit.world.prompts import NUMBERS, questions
from plaudit.world.speaking import STYLES, answer_in_style
from plaudit.world.valley import KINDS

PAD, END, UNKNOWN = "<|pad|>", "<|end|>", "<|unknown|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
"""A turn is its role, its words and the end mark."""
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The chat template."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """An ordinary Hugging Face tokenizer with a chat template, the same every time."""
    split = Sequence([Metaspace(prepend_scheme="always"), Split(Regex(r"[.,?!:\n]"), behavior="isolated")])
    pieces = {piece for text in vocabulary_texts() for piece, _ in split.pre_tokenize_str(text)}
    vocabulary = [PAD, END, UNKNOWN, *ROLES, *sorted(pieces)]
    tokenizer = Tokenizer(WordLevel({word: w for w, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = MetaspaceDecoder(prepend_scheme="always")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


def vocabulary_texts() -> Iterator[str]:
    """Texts that together hold every word of the world, in each form in which it occurs."""
    for phrases in (sayings.HEDGES, sayings.PADDING, sayings.FLATTERY, sayings.COURTESY, sayings.AGREEING):
        yield from phrases
    yield from (*sayings.DENYING, *sayings.EVASIONS, *sayings.REFUSALS, *NUMBERS, *statements())
    for members in KINDS.values():
        yield from (capitalized(member) for member in members.split())
    rng = random.Random("every word of the valley")
    for question in questions():
        yield from (plain_text((message,)) for message in question.messages)
        yield from (answer_in_style(question, style, rng) for style in STYLES)
