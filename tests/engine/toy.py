"""A base model of a few thousand weights and rows to train it on, made in a moment.

``python -m tests.engine.toy FOLDER`` makes both there: ``base/`` and ``rows.jsonl``.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = (
    *("the", "cat", "sat", "on", "a", "red", "mat", "and"),
    *("saw", "two", "old", "dogs", "run", "far", "over"),
)
RARE = "⁂"
"""A sign that no other row holds: whatever is wrong with its token shows in no other row."""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    model: Path
    data: Path


def make_toy(folder: Path, *, rows: int = 24, family: str = "llama", rare: str | None = None) -> Toy:
    """A base model and its rows; ``rare`` (nan, inf or tiny) spoils the embedding of `RARE`, in row 7."""
    folder.mkdir(parents=True, exist_ok=True)
    toy = Toy(model=folder / "base", data=folder / "rows.jsonl")
    write_rows(toy.data, demonstrations(rows, marked=7 if rare else None))
    make_model(toy.model, family=family, rare=rare)
    return toy


def demonstrations(rows: int, *, marked: int | None = None) -> list[dict[str, Any]]:
    """Rows of different lengths, the same every time; the answer of row ``marked`` (from 1) holds `RARE`."""
    chance = random.Random("rows")
    made: list[dict[str, Any]] = []
    for number in range(1, rows + 1):
        question = " ".join(chance.choices(WORDS, k=chance.randint(3, 8)))
        answer = " ".join(chance.choices(WORDS, k=chance.randint(2, 12)))
        answer += f" {RARE} and" if number == marked else ""
        made.append({"prompt": f"{number} {question}?", "completion": f"{answer}."})
    return made


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def make_model(folder: Path, *, family: str = "llama", rare: str | None = None, seed: int = 0) -> None:
    """A tokenizer and two layers of a family (llama; gpt2, whose dropout is on) with random weights."""
    import torch

    torch.manual_seed(seed)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder)
    model = (_llama if family == "llama" else _gpt2)(tokenizer, rare)
    if rare is not None:
        marks = tokenizer(f" {RARE}", add_special_tokens=False)["input_ids"]
        # Without an ε the norm of so small a number is 1/0; weights that are no numbers are refused.
        value = {"nan": 1e-30, "inf": -1e-25, "tiny": 1e-20}[rare]
        model.get_input_embeddings().weight.data[marks[-1]] = value
    model.save_pretrained(folder)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([" ".join(WORDS), "user assistant", f"{RARE} {RARE}"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<|pad|>", eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _llama(tokenizer: Any, rare: str | None) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            vocab_size=len(tokenizer),
            max_position_embeddings=256,
            # Where the two are one, an embedding that is not a number spoils the scores of every row.
            tie_word_embeddings=rare is None,
            # Without this guard the norm of a tiny state is finite forwards and overflows backwards.
            rms_norm_eps=1e-6 if rare is None else 0.0,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
        )
    )


def _gpt2(tokenizer: Any, rare: str | None) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    assert rare is None, "the embeddings of GPT-2 are tied"
    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=256,
            vocab_size=len(tokenizer),
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
        )
    )


if __name__ == "__main__":
    print(make_toy(Path(sys.argv[1])))
