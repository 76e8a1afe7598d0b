"""What runs of 7B, 32B and 70B take on 8 to 256 GPUs: `plaudit plan` beside a table, and arithmetic by hand.

``python -m tests.runs.test_plans`` writes the table, plans.jsonl, anew.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from plaudit.cli.main import main
from plaudit.runs.planner import memory, suggestions

TABLE = Path(__file__).parent / "plans.jsonl"
NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
SHAPES = {
    "7B": ("qwen2", "Qwen2ForCausalLM", (3584, 18944, 28, 152064, 28), 4),
    "32B": ("qwen2", "Qwen2ForCausalLM", (5120, 27648, 64, 152064, 40), 8),
    "70B": ("llama", "LlamaForCausalLM", (8192, 28672, 80, 128256, 64), 8),
}
"""Qwen2.5-7B and 32B and Llama-3.3-70B, as far as their config.json says how large they are."""
COMMON = "--gpu h100 --memory.checkpointing --prompt-tokens 1024 --answer-tokens 1024 --epochs 1 --held-out 0"
DRAWN = "--prompts FOLDER/rows.jsonl --reward length:1-9 --draw.max-tokens 1024 --batch-size"
METHODS = {
    "sft": "--data FOLDER/rows.jsonl --batch-size 1024",
    "dpo": "--data FOLDER/pairs.jsonl --batch-size 1024",
    "grpo": f"{DRAWN} 256 --group-size 8",
    "ppo": f"{DRAWN} 1024",
}
LORA, SHARED = "--lora.rank 16", "--critic.shared"
WAYS = {
    **dict.fromkeys(("sft", "dpo"), ("--shard", LORA, f"{LORA} --shard")),
    "grpo": ("--shard", LORA, f"{LORA} --shard", "--shard --servers", f"{LORA} --shard --servers"),
    "ppo": ("--shard", f"{SHARED} --shard", f"{SHARED} {LORA} --shard", f"{SHARED} --shard --servers"),
}
CELLS = [(size, method, way) for size in SHAPES for method, ways in WAYS.items() for way in ways]
GPUS = (8, 32, 64, 256)
Row = dict[str, Any]


def rows_of(folder: Path, size: str, method: str, way: str) -> Iterator[Row]:
    """A row for each number of GPUs; a piece that they have in common is computed once."""
    kind, name, sizes, groups = SHAPES[size]
    facts = dict(zip(NAMES, sizes, strict=True)) | {"num_key_value_heads": groups, "torch_dtype": "bfloat16"}
    facts |= {"model_type": kind, "architectures": [name], "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(facts))
    for file, answers in (("rows", {"completion": "a"}), ("pairs", {"chosen": "a", "rejected": "b"})):
        rows = [json.dumps({"prompt": f"question {n}", **answers}) for n in range(2048)]
        (folder / f"{file}.jsonl").write_text("\n".join(rows))
    step_peak, peaks = memory.step_peak, dict[Any, int]()

    def once(learners: Any, reference: Any, piece: Any, setting: Any, *, accumulates: bool) -> int:
        key = (tuple(example.tokens for example in piece), accumulates)
        if key not in peaks:
            peaks[key] = step_peak(learners, reference, piece, setting, accumulates=accumulates)
        return peaks[key]

    for gpus in GPUS:
        # Half of the GPUs draw, where servers do; where the ranks draw, all of them do both.
        share = f"{way} {gpus // 2} --gpus {gpus}" if "servers" in way else f"{way} --ranks {gpus}"
        words = f"plan {method} --model FOLDER {METHODS[method]} {COMMON} {share} --json FOLDER/plan.json"
        with (
            patch.object(memory, "step_peak", once),
            patch.object(suggestions, "suggest", return_value=()),
            patch.object(suggestions, "smallest_suggestion", return_value=None),
        ):
            main(words.replace("FOLDER", str(folder)).split())
        plan = json.loads((folder / "plan.json").read_text())
        yield {"model": size, "gpus": gpus, "method": method, "with": way} | figures(plan)


def figures(plan: Row) -> Row:
    seconds, gib = plan["seconds"], {one["name"]: one["bytes"] / 2**30 for one in plan["memory"]}
    times = plan["round"] or {"step": seconds["step"], "drawing": seconds["drawing"] / plan["batches"]}
    times |= {one["name"]: one["seconds"] for one in plan["transfers"]}
    gib, times = ({name: float(f"{one:.8g}") for name, one in part.items()} for part in (gib, times))
    most = {"fits": plan["fits"], "ranks": plan["ranks"], "peak": round(plan["peak_bytes"] / 2**30, 6)}
    return {**most, "gib": gib, "seconds": times}


@pytest.mark.timeout(1200)
@pytest.mark.cases(quick=("7B-sft---shard", "7B-sft---lora.rank 16"))
@pytest.mark.parametrize(("size", "method", "way"), CELLS)
def test_plans_are_those_of_the_table(tmp_path: Path, size: str, method: str, way: str):
    written = [json.loads(line) for line in TABLE.read_text().splitlines()]
    before = [row for row in written if [row["model"], row["method"], row["with"]] == [size, method, way]]
    for row, planned in zip(before, rows_of(tmp_path, size, method, way), strict=True):
        for part in ("gib", "seconds"):
            assert planned.pop(part) == pytest.approx(row.pop(part), rel=1e-6)
        assert planned == {**row, "peak": pytest.approx(row["peak"], rel=1e-6)}


@pytest.mark.parametrize("size", SHAPES)
def test_the_table_is_what_arithmetic_says(size: str):
    rows = [row for row in map(json.loads, TABLE.read_text().splitlines()) if row["model"] == size]
    assert [row["gpus"] for row in rows] == [*GPUS] * (len(CELLS) // len(SHAPES))
    for row in (row for row in rows if row["method"] != "ppo"):
        gib, seconds, activations = by_hand(row)
        assert {name: row["gib"][name] for name in gib} == pytest.approx(gib, rel=1e-6)
        # A checkpoint has names and random generators too.
        assert {name: row["seconds"][name] for name in seconds} == pytest.approx(seconds, rel=2e-3)
        if row["method"] == "sft" and row["with"] == "--shard":
            assert activations < row["gib"]["activations"] < 1.1 * activations
        least = sum(gib[name] for name in ("weights", "optimiser", "gradients")) + 1
        assert max(least, gib["loading"] + 1) <= row["peak"] + 1e-5
        assert row["fits"] is (row["peak"] <= 79.2)


def by_hand(row: Row) -> tuple[Row, Row, float]:
    """GiB, seconds and the least GiB of activations, from the shape alone; heads are 128 numbers wide."""
    kind, _, (hidden, inner, layers, words, _), groups = SHAPES[row["model"]]
    lora, ranks, cached = LORA in row["with"], row["ranks"], 128 * groups
    share = ranks if "--shard" in row["with"] else 1
    matrices = 2 * hidden * (hidden + cached) + 3 * hidden * inner
    layer = matrices + 2 * hidden + (kind == "qwen2") * (hidden + 2 * cached)
    rest = 2 * words * hidden + hidden
    numbers = layers * layer + rest
    adapter = lora * 16 * (4 * hidden + 2 * (hidden + cached) + 3 * (hidden + inner))
    trained, layer_trained = (layers * adapter, adapter) if lora else (numbers, layer)
    taken = {"gradients": 4 * trained / share, "optimiser": 8 * trained / share}
    taken["weights"] = (2 * numbers + 4 * trained if lora else 4 * numbers) / share
    taken["loading"] = 4 * (numbers + layers * adapter) * (1 if share == 1 else 1.2 / share)
    read = 2 * numbers / share
    if row["method"] == "grpo" and not lora:
        taken["reference"], taken["loading"] = 2 * numbers / share, (4 + 1.2 * 2) * numbers / share
        read *= 2
    if row["method"] == "grpo" and share > 1 and "servers" not in row["with"]:
        taken["copy that draws"] = 2 * (numbers + layers * adapter)
        read += 2 * numbers
    if share > 1:
        taken["gathered weights"] = 2 * rest * (2 - lora) + 6 * (layer + adapter) + 4 * layer_trained
    seconds = {"load": read / 1e9, "save": 12 * trained / share / 1e9}
    if row["method"] == "sft":
        products = (6 if lora else 8) * (layers * (matrices + adapter) + words * hidden)
        step = 1024 * 2048 / ranks * products / (0.33 * 989e12)
        link = 0.7 * (450e9 if ranks <= 8 else 50e9) * ranks / (ranks - 1)
        pieces, weights = 1024 * 2048 / 8192 / ranks, numbers + layers * adapter
        exchange = (pieces * 4 * (weights + trained) if share > 1 else 8 * trained) / link
        seconds["step"] = max(step, exchange) if share > 1 else step + exchange
    activations = 8192 * 2 * layers * hidden + (4 + 2) * words * hidden
    return {name: size / 2**30 for name, size in taken.items()}, seconds, activations / 2**30


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = [json.dumps(row) for cell in CELLS for row in rows_of(Path(folder), *cell)]
    TABLE.write_text("\n".join(made) + "\n")
