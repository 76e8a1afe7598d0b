"""Write the work of a benchmark to a folder: a random-weight model, its tokenizer, and rows.

Both sides of a comparison read the same folder, so they do the same work. Weights are random, since no
figure of speed or memory depends on what a model knows; a seed makes the folder the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a Llama.

    Example: ``Shape(hidden=128, layers=2, heads=4, key_heads=4, inner=344, vocabulary=512)``
    """

    hidden: int
    """Width of the states."""
    layers: int
    """How many blocks."""
    heads: int
    """Query heads."""
    key_heads: int
    """Key and value heads."""
    inner: int
    """Width inside the feed-forward part."""
    vocabulary: int
    """How many tokens there are."""
    head: int | None = None
    """Numbers of a head; none: the width divided by the query heads."""
    tied: bool = True
    """Whether the vocabulary head is the embedding."""

    @property
    def head_size(self) -> int:
        """Numbers of a head."""
        return self.head or self.hidden // self.heads

    @property
    def body(self) -> int:
        """Numbers of all matrices of the layers."""
        heads = 2 * (self.heads + self.key_heads) * self.head_size
        return self.layers * self.hidden * (heads + 3 * self.inner)

    def numbers_read(self, rows: int, context: float) -> float:
        """What one more token of every row has to read: all weights once, and each row's keys and values."""
        weights = self.body + self.hidden * self.vocabulary
        return weights + rows * context * self.layers * 2 * self.key_heads * self.head_size


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(hidden=128, layers=2, heads=4, key_heads=4, inner=344, vocabulary=512),
    "mid": Shape(hidden=256, layers=4, heads=4, key_heads=4, inner=688, vocabulary=32_000),
    "smol": Shape(hidden=576, layers=30, heads=9, key_heads=3, inner=1536, vocabulary=49_152),
}
"""``tiny`` for tests; ``mid`` has 11M weights and a large vocabulary; ``smol`` is SmolLM2-135M's shape."""

GPU_SHAPES: Mapping[str, Shape] = {
    "tiny": SHAPES["tiny"],
    "0.6b": Shape(hidden=1024, layers=28, heads=16, key_heads=8, inner=3072, vocabulary=151_936, head=128),
    "1.5b": Shape(hidden=1536, layers=28, heads=12, key_heads=2, inner=8960, vocabulary=151_936),
    "7b": Shape(hidden=3584, layers=28, heads=28, key_heads=4, inner=18_944, vocabulary=152_064, tied=False),
}
"""Of Qwen3-0.6B, Qwen2.5-1.5B and Qwen2.5-7B, as Llamas: without their norms of heads and their biases."""

PAIRS, RANKINGS = "pairs.jsonl", "rankings.jsonl"
"""The same judgements twice: every pair a row, and every ranking a row."""
THUMBS = "thumbs.jsonl"
"""The same answers one by one, called good or bad."""
REFERENCE = "reference"
"""The folder of the policy that the model is compared with: other weights, so that first losses tell."""
REWARD = "reward"
"""The folder of a reward model, which is also what a critic begins as."""
PROMPTS, SAMPLED = "prompts.jsonl", "sampled.jsonl"
"""What a policy is asked, every prompt of the same length; and those of them that have fixed answers."""
SAMPLES = "samples.json"
"""Of each prompt in ``sampled.jsonl``, answers that nobody has to draw."""
ANSWERS = 8
"""How many fixed answers a prompt has."""
LONGEST = 2048
"""No row of a work folder is longer, so nothing is cut on either side."""

SPECIAL = ("<pad>", "<eos>", "<unk>")
"""The tokenizer's first words; all others are w0, w1 …"""
EOS = SPECIAL.index("<eos>")
"""The token that ends a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows, and how long.

    Example: ``Rows(count=64, prompt=256, completion=128)``
    """

    count: int = 64
    """How many."""
    prompt: int = 256
    """Words of the longest prompt; each has between half of it and all of it."""
    completion: int = 128
    """Words of the longest completion; likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a step works on.

    Example: ``Load(rows=Rows(count=1024, prompt=64, completion=1024), batch=32)``
    """

    rows: Rows
    """How many rows there are, and how long."""
    batch: int
    """Rows of a step; of GRPO, prompts of a round."""
    answers: int = 1
    """That are drawn for each prompt."""


GPU_LOADS: Mapping[str, Load] = {
    "sft": Load(rows=Rows(count=1024, prompt=64, completion=1024), batch=32),
    "dpo": Load(rows=Rows(count=512, prompt=512, completion=256), batch=32),
    "grpo": Load(rows=Rows(count=256, prompt=256, completion=256), batch=16, answers=8),
}
"""About 16,000 to 32,000 tokens a step."""
TINY_LOADS: Mapping[str, Load] = {
    "sft": Load(rows=Rows(count=64, prompt=12, completion=12), batch=4),
    "dpo": Load(rows=Rows(count=64, prompt=12, completion=6), batch=4),
    "grpo": Load(rows=Rows(count=32, prompt=8, completion=6), batch=2, answers=4),
}
"""Of ``tiny``."""


def write_work(folder: Path, shape: Shape, rows: Rows, seed: int = 0) -> None:
    """Write ``folder/model`` and ``folder/rows.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_of(shape).save_pretrained(folder / "model")
    model_of(shape, seed).save_pretrained(folder / "model")
    generator = random.Random(seed)
    lines = [
        json.dumps({"prompt": _words(generator, rows.prompt, shape) + " ", "completion": answer})
        for answer in (_words(generator, rows.completion, shape) for _ in range(rows.count))
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_judged_work(folder: Path, shape: Shape, rows: Rows, answers: int = 2, seed: int = 0) -> None:
    """Write ``folder/model``, a reward model, and rankings of so many answers, whole and pair by pair."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_of(shape).save_pretrained(folder / "model")
    scorer_of(shape, seed).save_pretrained(folder / "model")
    generator = random.Random(seed)
    rankings: list[Mapping[str, object]] = []
    pairs: list[Mapping[str, object]] = []
    for _ in range(rows.count):
        prompt = _words(generator, rows.prompt, shape) + " "
        ranked = [_words(generator, rows.completion, shape) for _ in range(answers)]
        order = [*range(1, answers + 1)]
        rankings.append({"kind": "ranking", "prompt": prompt, "completions": ranked, "ranks": order})
        pairs += [
            {"prompt": prompt, "chosen": first, "rejected": other} for first, other in combinations(ranked, 2)
        ]
    for name, lines in ((PAIRS, pairs), (RANKINGS, rankings)):
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def write_preference_work(folder: Path, shape: Shape, rows: Rows, seed: int = 0) -> None:
    """Write two language models, the policy and its reference, and pairs as such and one by one."""
    write_judged_work(folder, shape, rows, seed=seed)
    for name, own in (("model", seed), (REFERENCE, seed + 1)):
        shutil.rmtree(folder / name, ignore_errors=True)
        tokenizer_of(shape).save_pretrained(folder / name)
        model_of(shape, own).save_pretrained(folder / name)
    pairs = [json.loads(line) for line in (folder / PAIRS).read_text(encoding="utf-8").splitlines()]
    thumbs = [
        {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
        for pair in pairs
        for side in ("chosen", "rejected")
    ]
    (folder / THUMBS).write_text("".join(f"{json.dumps(line)}\n" for line in thumbs), encoding="utf-8")


def write_gpu_work(folder: Path, shape: Shape, loads: Mapping[str, Load], device: str) -> None:
    """Write one model in bfloat16, and rows of SFT, pairs and prompts, of the sizes of these methods' loads.

    The reference is the model itself: what it costs does not depend on its weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_of(shape).save_pretrained(folder / "model")
    model: Any = model_of(shape, device=device)
    model.to(torch.bfloat16).save_pretrained(folder / "model")
    (folder / REFERENCE).symlink_to("model")
    generator = random.Random(0)

    def lines(size: Rows, *answers: str) -> Iterator[str]:
        for _ in range(size.count):
            row = {"prompt": _words(generator, size.prompt, shape) + " "}
            yield (
                json.dumps(row | {name: _words(generator, size.completion, shape) for name in answers}) + "\n"
            )

    for name, method, answers in (
        ("rows.jsonl", "sft", ("completion",)),
        (PAIRS, "dpo", ("chosen", "rejected")),
        (PROMPTS, "grpo", ()),
    ):
        (folder / name).write_text("".join(lines(loads[method].rows, *answers)), encoding="utf-8")


def write_policy_work(folder: Path, shape: Shape, rows: Rows, count: int = 8, seed: int = 0) -> None:
    """Write a policy, a reference near it, a reward model, prompts, and fixed answers to the first ones.

    Of each prompt's fixed answers the first is as long as the longest; all end with the end-of-text token.
    """
    policy, reference = model_of(shape, seed), model_of(shape, seed)
    with torch.no_grad():
        for weight in reference.parameters():
            weight.add_(torch.randn_like(weight) * 0.5 * weight.std())
    models = {"model": policy, REFERENCE: reference, REWARD: scorer_of(shape, seed + 1)}
    for name, model in models.items():
        tokenizer_of(shape).save_pretrained(folder / name)
        model.save_pretrained(folder / name)
    generator = random.Random(seed)
    known = shape.vocabulary - len(SPECIAL)
    prompts = [
        " ".join(f"w{generator.randrange(known)}" for _ in range(rows.prompt)) + " "
        for _ in range(rows.count)
    ]
    lengths = [rows.completion, *(generator.randint(2, rows.completion) for _ in range(ANSWERS - 1))]
    samples = [
        [[*(len(SPECIAL) + generator.randrange(known) for _ in range(length - 1)), EOS] for length in lengths]
        for _ in prompts[:count]
    ]
    for name, own in ((PROMPTS, prompts), (SAMPLED, prompts[:count])):
        lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in own)
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / SAMPLES).write_text(json.dumps(samples), encoding="utf-8")


def sevens(answer: str) -> float:
    """A reward that costs nothing and differs from answer to answer: how many sevens there are in it.

    >>> sevens("w17 w277")
    3.0
    """
    return float(answer.count("7"))


def model_of(shape: Shape, seed: int = 0, device: str = "cpu") -> LlamaForCausalLM:
    """A Llama of this shape with random weights."""
    torch.manual_seed(seed)
    with torch.device(device):
        return LlamaForCausalLM(_config(shape))


def scorer_of(shape: Shape, seed: int = 0) -> LlamaForSequenceClassification:
    """A Llama of this shape with one number for a head, drawn so that rewards are of the size of 1."""
    torch.manual_seed(seed)
    config = _config(shape)
    config.num_labels = 1
    model = LlamaForSequenceClassification(config)
    torch.nn.init.normal_(model.score.weight, std=(shape.hidden + 1) ** -0.5)
    return model


def _config(shape: Shape) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        intermediate_size=shape.inner,
        vocab_size=shape.vocabulary,
        max_position_embeddings=8192,
        tie_word_embeddings=shape.tied,
        head_dim=shape.head_size,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )


def tokenizer_of(shape: Shape) -> PreTrainedTokenizerFast:
    """One token for each word between spaces."""
    words = [*SPECIAL, *(f"w{w}" for w in range(shape.vocabulary - len(SPECIAL)))]
    split = Tokenizer(WordLevel({word: w for w, word in enumerate(words)}, unk_token="<unk>"))
    split.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def _words(generator: random.Random, longest: int, shape: Shape) -> str:
    count = max(1, int(longest * generator.uniform(0.5, 1.0)))
    return " ".join(f"w{generator.randrange(shape.vocabulary - len(SPECIAL))}" for _ in range(count))


def main() -> None:
    """From the command line: python -m benchmarks.work FOLDER --shape mid."""
    usual = Rows()
    parser = argparse.ArgumentParser(description="write the model and the rows of a benchmark")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="mid")
    parser.add_argument("--rows", type=int, default=usual.count)
    parser.add_argument("--prompt", type=int, default=usual.prompt, help="words of the longest prompt")
    parser.add_argument(
        "--completion", type=int, default=usual.completion, help="words of the longest answer"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = Rows(count=given.rows, prompt=given.prompt, completion=given.completion)
    write_work(given.folder, SHAPES[given.shape], rows, given.seed)
    print(f"{given.folder}: {given.shape}, {rows.count} rows")


if __name__ == "__main__":
    main()
