"""The base model that comes with plaudit: a small Llama, trained on the world's corpus."""

from __future__ import annotations

from pathlib import Path

from plaudit.data.write import write_records
from plaudit.engine.settings import OptimizerSettings
from plaudit.methods.config import RunConfig, SampleSettings
from plaudit.methods.supervised.run import sft
from plaudit.world.corpus import corpus

HIDDEN_SIZE = 128
"""Hidden size of the model that is shipped."""


def write_untrained_model(folder: Path, seed: int = 0, width: int = HIDDEN_SIZE) -> None:
    """The model before it has read anything, with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from plaudit.world.tokenizer import END, PAD, make_tokenizer

    tokenizer = make_tokenizer()
    ids = tokenizer.get_vocab()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=11 * width // 4,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            pad_token_id=ids[PAD],
            bos_token_id=None,
            eos_token_id=ids[END],
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_base(out: Path, *, seed: int = 0, epochs: float = 10.0, width: int = HIDDEN_SIZE) -> Path:
    """Write the corpus, a blank model, and train one on the other; the result lies in ``out/run/model``.

    The same command goes on where it was stopped, as every run does. Corpus and blank model are written
    every time, for a seed always makes the same ones: none can be left half written, or from another seed.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_records(corpus(seed=seed), out / "corpus.jsonl")
    write_untrained_model(out / "blank", seed, width)
    sft(
        RunConfig(
            model=out / "blank",
            data=out / "corpus.jsonl",
            out=out / "run",
            held_out="0.01",
            epochs=epochs,
            batch_size=64,
            learning_rate=3e-3,
            seed=seed,
            optimizer=OptimizerSettings(schedule="cosine", warmup=0.03),
            sample=SampleSettings(rows=3, tokens=32),
        )
    )
    return out / "run" / "model"
