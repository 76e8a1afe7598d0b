"""One run of a trainer of TRL's on a work folder, in the peer's environment; prints one line of JSON.

The rows, their order, the lengths, the optimiser and its rate are those of our side. ``--variant`` picks
the settings: ``default`` changes nothing but the arithmetic (float32 on both sides) and the order of rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import torch
import transformers

from benchmarks.measure import MIB, Report, Watch, read_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One of TRL's trainers.

    Example: ``Task(trainer="SFTTrainer", config="SFTConfig", model="AutoModelForCausalLM", rows=…)``
    """

    trainer: str
    """Its name in TRL."""
    config: str
    """Of its settings, likewise."""
    model: str
    """Which of transformers' classes loads the folder."""
    rows: str
    """The file that it learns from."""
    reference: bool = False
    """Whether it compares the model with that of the folder ``reference``."""


TASKS: Mapping[str, Task] = {
    "sft": Task(trainer="SFTTrainer", config="SFTConfig", model="AutoModelForCausalLM", rows="rows.jsonl"),
    "reward": Task(
        trainer="RewardTrainer",
        config="RewardConfig",
        model="AutoModelForSequenceClassification",
        rows="pairs.jsonl",
    ),
    "dpo": Task(
        trainer="DPOTrainer",
        config="DPOConfig",
        model="AutoModelForCausalLM",
        rows="pairs.jsonl",
        reference=True,
    ),
    "dpo-pictures": Task(
        trainer="DPOTrainer",
        config="DPOConfig",
        model="AutoModelForImageTextToText",
        rows="pairs.jsonl",
        reference=True,
    ),
    "kto": Task(
        trainer="KTOTrainer",
        config="KTOConfig",
        model="AutoModelForCausalLM",
        rows="thumbs.jsonl",
        reference=True,
    ),
}
"""What can be compared."""

ATTENTION = "flash_attention_2" if find_spec("flash_attn") else "sdpa"
"""The fastest attention of transformers that is installed here."""
ON_GPU: Mapping[str, object] = {
    "gradient_checkpointing": False,
    "use_liger_kernel": find_spec("liger_kernel") is not None,
}
"""The fastest settings of all trainers on a GPU: Liger's kernels where they are installed."""
GPU_PACKING: Mapping[str, object] = (
    {"padding_free": True, "max_length": None} if ATTENTION == "flash_attention_2" else {}
)
"""Padding-free batches of its SFTTrainer, for which it needs FlashAttention."""

VARIANTS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "plain": {"gradient_checkpointing": False},
    "padding-free": {"gradient_checkpointing": False, "padding_free": True, "max_length": None},
    "small": {"gradient_checkpointing": True, "padding_free": True, "max_length": None},
    "precomputed": {"precompute_ref_log_probs": True},
    "plain-precomputed": {"precompute_ref_log_probs": True, "gradient_checkpointing": False},
    "compiled": {"gradient_checkpointing": False, "torch_compile": True},
    "gpu": ON_GPU,
    "gpu-padding-free": {**ON_GPU, **GPU_PACKING},
    "gpu-small": {**ON_GPU, **GPU_PACKING, "gradient_checkpointing": True},
}
"""TRL's own options, as its documentation names them; README.md says which is the fastest."""

LONGEST = 2048
"""No row of a work folder is longer, so nothing is cut on either side."""
RATE = 2e-5
"""The peak learning rate of both sides: SFTTrainer's default."""


class Clock(transformers.TrainerCallback):
    """Follows the steps of a trainer, from the end of one to the end of the next."""

    def __init__(self, watch: Watch):
        self._watch = watch

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Model, data and optimiser exist."""
        self._watch.start()

    def on_step_end(self, *_: object, **__: object) -> None:
        """Weights have moved."""
        self._watch.step_done()


def trainer_for(work: Path, given: argparse.Namespace, watch: Watch) -> Any:
    """A trainer on the folder's model and rows."""
    trl: Any = importlib.import_module("trl")  # It is in the peer's environment only.
    task = TASKS[given.task]
    # Of a model that sees pictures this is its processor.
    tokenizer: Any = transformers.AutoProcessor.from_pretrained(work / "model")
    attention = ATTENTION if given.variant.startswith("gpu") else None
    load = partial(
        getattr(transformers, task.model).from_pretrained, dtype=torch.float32, attn_implementation=attention
    )
    model = load(work / "model")
    more = {"ref_model": load(work / "reference")} if task.reference else {}
    rows = datasets.load_dataset("json", data_files=str(work / task.rows), split="train")
    if "images" in rows.column_names:
        rows = rows.map(lambda row: {"images": [str(work / path) for path in row["images"]]})
        rows = rows.cast_column("images", datasets.List(datasets.Image()))
    settings = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": given.batch,
        "max_steps": given.steps,
        "max_length": LONGEST,
        "learning_rate": RATE,
        "bf16": given.dtype == "bfloat16",
        "use_cpu": given.device == "cpu",
        **({} if task.trainer == "KTOTrainer" else {"train_sampling_strategy": "sequential"}),
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        **VARIANTS[given.variant],
    }
    return getattr(trl, task.trainer)(
        model,
        args=getattr(trl, task.config)(**settings),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=[Clock(watch)],
        **more,
    )


def run(work: Path, given: argparse.Namespace) -> Report:
    """Train for a few steps and say what they cost."""
    watch = Watch(device=given.device)
    trainer = trainer_for(work, given, watch)
    read_all(p.detach() for p in trainer.model.parameters())
    trainer.train()
    state = sum(
        value.nbytes
        for slots in trainer.optimizer.state.values()
        for value in slots.values()
        if isinstance(value, torch.Tensor)
    )
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return Report(
        who=f"TRL {version('trl')}",
        setting=f"{given.variant}, {given.dtype}",
        versions=versions(given.variant),
        batch=given.batch,
        first_loss=float(losses[0]),
        seconds=tuple(watch.seconds),
        cpu_seconds=tuple(watch.cpu_seconds),
        base_mib=watch.resident_mib + state / MIB,
        peak_mib=watch.peak_mib,
    )


def versions(variant: str) -> dict[str, str]:
    """The libraries that a run went through; those for a GPU where they are installed."""
    more = ("flash_attn", "liger_kernel") if variant.startswith("gpu") else ()
    found = {name: version(name) for name in more if find_spec(name)}
    return {"torch": torch.__version__, "transformers": transformers.__version__, **found}


def rewards(work: Path, given: argparse.Namespace) -> list[float]:
    """The rewards of every row's two answers, from the trainer's own tokens and batches."""
    trainer = trainer_for(work, given, Watch())
    trainer.model.eval()
    found: list[float] = []
    if given.task.startswith("dpo"):
        return _ratios(trainer)
    for row in trainer.train_dataset:
        with torch.no_grad():
            output = trainer.model(**trainer.data_collator([row]))
        found += output.logits[:, 0].tolist()
    return found


def _ratios(trainer: Any) -> list[float]:
    """log π − log π_ref of every row's two answers."""
    found: list[float] = []
    for row in trainer.train_dataset:
        inputs = trainer.data_collator([row])
        with torch.no_grad():
            own, other = (
                trainer.compute_ref_log_probs(model, inputs) for model in (trainer.model, trainer.ref_model)
            )
        found += [float(mine) - float(its) for mine, its in zip(own, other, strict=True)]
    return found


def main() -> None:
    """From the command line: .peers/trl/bin/python -m benchmarks.peer_trl FOLDER --batch 8."""
    parser = argparse.ArgumentParser(description="time one of TRL's trainers on a work folder")
    parser.add_argument("work", type=Path)
    parser.add_argument("--task", choices=TASKS, default="sft")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--variant", choices=VARIANTS, default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rewards", action="store_true", help="print the reward of every answer instead")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(json.dumps(rewards(given.work, given)) if given.rewards else run(given.work, given).line())


if __name__ == "__main__":
    main()
