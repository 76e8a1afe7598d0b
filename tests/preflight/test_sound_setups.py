"""Sound set-ups raise no alarm: thirty, of ten families in three layouts, each asked every check."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.engine.settings import MemorySettings
from plaudit.methods.policy.config import DrawSettings
from plaudit.preflight.check import run_checks
from plaudit.preflight.checks import CHECKS
from tests.engine.toy import write_rows
from tests.preflight.breakers_rows import Row, answered, pair
from tests.preflight.subjects import Method, healthy
from tests.rollouts.talkers import write_talker

FAMILIES = ("llama", "olmo2", "qwen3", "gemma2", "gemma3", "mistral", "gpt2", "gptneox", "cohere", "mixtral")
METHODS: tuple[Method, ...] = ("sft", "dpo", "grpo")


def words(rng: random.Random, least: int, most: int) -> str:
    return " ".join(f"w{rng.randrange(10, 40)}" for _ in range(rng.randint(least, most))) + " w41"


def rows(method: Method) -> list[Row]:
    rng = random.Random(0)
    asked, said, other = ([words(rng, 3, 9) for _ in range(40)] for _ in range(3))
    if method == "dpo":
        return [pair(*texts) for texts in zip(asked, said, other, strict=True)]
    if method == "sft":
        return [answered({"prompt": prompt}, answer) for prompt, answer in zip(asked, said, strict=True)]
    return [{"prompt": prompt} for prompt in asked]


def taught(folder: Path) -> Path:
    """The model after some steps on conversations like those of the rows, by transformers alone."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    texts = [
        tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], tokenize=False)
        for row in rows("sft")
    ]
    tokenizer.pad_token = "<pad>"
    tokens = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_a_sound_set_up_raises_no_alarm(tmp_path, family, layout):
    # Each family learns by each method, and each method in each layout.
    method = METHODS[(FAMILIES.index(family) + ["packed", "left", "right"].index(layout)) % 3]
    model = taught(write_talker(tmp_path / "model", family))
    data = write_rows(tmp_path / "rows.jsonl", rows(method))
    settings: dict[str, Any] = {"memory": MemorySettings(layout=layout)}
    settings |= {"prompts" if method == "grpo" else "data": data}
    if method == "grpo":
        # A length that some answers have, and some not.
        settings |= {"draw": DrawSettings(max_tokens=12), "reward": "length:1-6"}
    with healthy(method, tmp_path, model=model, **settings) as subject:
        found = run_checks(subject, CHECKS.values())
    assert not {one.check.name: one.result.details for one in found if one.verdict in ("FAIL", "warn")}
