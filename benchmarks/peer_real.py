"""TRL's GRPOTrainer on a pretrained model and problems, in its environment: a model, and a line a step.

The reward is that of ``--reward number --missing-eos-penalty 0``: 1 where an answer ends and its last number
is the problem's. ``--default-memory`` leaves TRL's recomputing of activations on, which is its default.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import torch
import transformers


def reward_for(end: int) -> Callable[..., list[float]]:
    """Whether each answer ends with this token, and its last number is the problem's."""

    def right(
        completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], answer: Sequence[str], **_: Any
    ) -> list[float]:
        last = [re.findall(r"-?\d+(?:\.\d+)?", turns[0]["content"])[-1:] for turns in completions]
        rows = zip(completion_ids, last, answer, strict=True)
        return [float(ids[-1] == end and number == [truth]) for ids, number, truth in rows]

    return right


class Lines(transformers.TrainerCallback):
    """A line for each step: its reward, length, loss, seconds and the memory so far."""

    def __init__(self, path: Path):
        self._path, self._began = path, time.perf_counter()

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Sampling is part of a step."""
        self._began = time.perf_counter()

    def on_log(self, args: object, state: Any, control: object, logs: Any = None, **_: object) -> None:
        """What the trainer says of a step."""
        del args, control
        if "reward" not in logs:
            return
        line = {
            "step": state.global_step,
            "reward": logs["reward"],
            "length": logs["completions/mean_length"],
            "loss": logs["loss"],
            "seconds": time.perf_counter() - self._began,
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    """From the command line: .peers/trl/bin/python -m benchmarks.peer_real MODEL ROWS OUT --steps 20."""
    parser = argparse.ArgumentParser(description="train with TRL's GRPOTrainer on problems with a number")
    add = parser.add_argument
    add("model", type=Path)
    add("rows", type=Path)
    add("out", type=Path)
    add("--steps", type=int, default=20)
    add("--prompts", type=int, default=8)
    add("--answers", type=int, default=8)
    add("--completion", type=int, default=16)
    add("--rate", type=float, default=2e-5)
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=2)
    add("--default-memory", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Train, and save the model."""
    given = arguments()
    torch.set_num_threads(given.threads)
    trl: Any = importlib.import_module("trl")  # It is in the peer's environment only.
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    given.out.mkdir(parents=True, exist_ok=True)
    settings = trl.GRPOConfig(
        output_dir=str(given.out / "trainer"),
        per_device_train_batch_size=given.prompts * given.answers,
        num_generations=given.answers,
        max_completion_length=given.completion,
        max_steps=given.steps,
        learning_rate=given.rate,
        loss_type="grpo",
        seed=given.seed,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        **({} if given.default_memory else {"gradient_checkpointing": False}),
    )
    trainer = trl.GRPOTrainer(
        transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32),
        reward_funcs=reward_for(tokenizer.eos_token_id),
        args=settings,
        train_dataset=problems(given.rows),
        processing_class=tokenizer,
        callbacks=[Lines(given.out / "metrics.jsonl")],
    )
    trainer.train()
    trainer.model.save_pretrained(given.out / "model")
    tokenizer.save_pretrained(given.out / "model")


def problems(path: Path) -> datasets.Dataset:
    """Prompts as a user's turn, with what is right."""
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return datasets.Dataset.from_list(
        [{"prompt": [{"role": "user", "content": row["prompt"]}], "answer": row["answer"]} for row in rows]
    )


if __name__ == "__main__":
    main()
