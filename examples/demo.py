"""The whole way on one page: rows, a base model, a run that is killed and taken up, before and after.

usage: python examples/demo.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from make_base import make_base
from make_rows import make_rows
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = (
    "Where would I find the kettle?",
    "Tell me the colour of the umbrella.",
    "What is 3 plus 4?",
)


def answers(model: Path) -> list[str]:
    """What a model folder says to the questions, by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model)
    said: list[str] = []
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
        with torch.no_grad():
            out = network.generate(**ids, max_new_tokens=16, do_sample=False)
        said.append(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True).strip())
    return said


def train(base: Path, rows: Path, run: Path, *, seconds: float | None) -> None:
    """``plaudit train sft``; killed without warning after so many seconds."""
    command = [sys.executable, "-m", "plaudit", "train", "sft"]
    command += ["--model", str(base), "--data", str(rows), "--out", str(run), "--held-out", "0.1"]
    command += ["--steps", "240", "--learning-rate", "3e-3", "--save-every", "20", "--sample-every", "240"]
    print("$ plaudit", *command[3:], flush=True)
    with subprocess.Popen(command) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            print("— killed, as if the power had gone; the same command again —", flush=True)
            return
    if process.returncode:
        raise SystemExit(process.returncode)


def main(folder: Path) -> None:
    """Make rows and a base model, train, and show before and after side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, base, run = folder / "rows.jsonl", folder / "base", folder / "run"
    print(f"{make_rows(rows)} rows in {rows}; a base model of random weights in {base}")
    make_base(base, [rows])
    train(base, rows, run, seconds=15)
    train(base, rows, run, seconds=None)
    print(f"\n{'question':38} {'before':28} after")
    for question, before, after in zip(QUESTIONS, answers(base), answers(run / "model"), strict=True):
        print(f"{question:38} {before[:26]!r:28} {after}")
    print(f"\nThe run, with its report: {run}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="plaudit-demo-")))
