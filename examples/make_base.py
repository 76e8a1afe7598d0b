"""A small base model that knows nothing yet: random weights, a tokenizer for the given rows, a chat template.

usage: python examples/make_base.py OUT [ROWS.jsonl ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKERS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]


def make_base(
    out: Path, rows: Sequence[Path], *, hidden: int = 128, layers: int = 4, words: int = 1200
) -> None:
    """Write the folder; the same rows give the same folder."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=words, special_tokens=MARKERS, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator((line for path in rows for line in path.read_text().splitlines()), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<|pad|>", eos_token="<|im_end|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(out)
    torch.manual_seed(0)
    logging.disable_progress_bar()
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=hidden * 3,
        vocab_size=len(tokenizer),
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=MARKERS.index("<|im_end|>"),
        pad_token_id=MARKERS.index("<|pad|>"),
    )
    LlamaForCausalLM(config).save_pretrained(out)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    given = [Path(name) for name in sys.argv[2:]]
    make_base(Path(sys.argv[1]), given or sorted(Path(__file__).parent.glob("*.jsonl")))
