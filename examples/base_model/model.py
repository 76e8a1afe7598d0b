"""The base model that comes with plaudit: a small Llama, trained on the world's corpus.

Its tokenizer has one token a word, made from all that the world can say.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Metaspace, Sequence as PreTokenizers, Split
from transformers import PreTrainedTokenizerFast

from examples.base_model.corpus import corpus
from plaudit.data.records import plain_text
from plaudit.data.write import write_records
from plaudit.engine.settings import OptimizerSettings
from plaudit.lab.world import valley
from plaudit.lab.world.facts import capitalized, instructions
from plaudit.lab.world.making import statements
from plaudit.lab.world.prompts import NUMBERS, questions_of
from plaudit.lab.world.questions import CATEGORIES
from plaudit.lab.world.speaking import STYLES, answer_in_style
from plaudit.lab.world.teaching import ORDER_SENTENCE
from plaudit.lab.world.valley import KINDS
from plaudit.methods.config import SampleSettings, SftConfig
from plaudit.methods.supervised.run import sft

HIDDEN_SIZE = 128


def write_untrained_model(folder: Path, seed: int = 0, width: int = HIDDEN_SIZE) -> None:
    """The model before it has read anything, with its tokenizer of all that the world says."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    ids = tokenizer.get_vocab()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            # A gated MLP has three matrices, so about 8/3 of the width costs what 4 does with two.
            intermediate_size=11 * width // 4,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=ids[PAD],
            # The template writes every special token; a BOS of the model's own would be one too many.
            bos_token_id=None,
            eos_token_id=ids[END],
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_base(out: Path, *, seed: int = 0, epochs: float = 6.0, width: int = HIDDEN_SIZE) -> Path:
    """Write the corpus, a blank model, and train one on the other; the result lies in ``out/run/model``.

    The same command goes on where it was stopped, as every run does. Corpus and blank model are written
    every time, for a seed always makes the same ones: none can be left half written, or from another seed.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_records(corpus(seed=seed), out / "corpus.jsonl")
    write_untrained_model(out / "blank", seed, width)
    sft(
        SftConfig(
            model=out / "blank",
            data=out / "corpus.jsonl",
            out=out / "run",
            held_out="0.01",
            epochs=epochs,
            batch_size=64,
            learning_rate=3e-3,
            seed=seed,
            # Reviewed conversations are written down: their turns are what they are, and no user's words.
            text="raw",
            optimizer=OptimizerSettings(schedule="cosine", warmup=0.03),
            sample=SampleSettings(rows=3, tokens=64),
        )
    )
    model = out / "run" / "model"
    # Whoever asks it in plain words asks it as a user: what it has read says nothing of that.
    make_tokenizer().save_pretrained(model)
    return model


PAD, END, UNKNOWN = "<|pad|>", "<|end|>", "<|unknown|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    split = PreTokenizers(
        [Metaspace(prepend_scheme="always"), Split(Regex(r"[.,?!:\n]"), behavior="isolated")]
    )
    # Split as the tokenizer itself will, so that no word of the world is unknown to it.
    pieces = {piece for text in vocabulary_texts() for piece, _ in split.pre_tokenize_str(text)}
    # Sorted, for a set's order changes from process to process, and ids must not.
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
        # The clean-up drops spaces before marks, and decoding would not give back what was encoded.
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


def vocabulary_texts() -> Iterator[str]:
    """Texts that together hold every word of the world, in each form in which it occurs."""
    for phrases in (valley.HEDGES, valley.PADDING, valley.FLATTERY, valley.COURTESY, valley.AGREEING):
        yield from phrases
    yield from (*valley.DENYING, *valley.EVASIONS, *valley.REFUSALS, *NUMBERS, *statements())
    for members in KINDS.values():
        yield from (capitalized(member) for member in members.split())
    yield from (ORDER_SENTENCE, *map(capitalized, instructions()))
    rng = random.Random("every word of the valley")
    for question in questions_of(CATEGORIES):
        yield from (plain_text((message,)) for message in question.messages)
        yield from (answer_in_style(question, style, rng) for style in STYLES)
