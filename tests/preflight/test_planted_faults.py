"""Faults planted one by one are caught by their check; sound set-ups raise no alarm."""

import copy
import json
import random
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.cli.main import main
from plaudit.data.records import record_to_dict
from plaudit.engine.settings import MemorySettings
from plaudit.lab.world import base_model_folder, making
from plaudit.lab.world.annotators import annotator_pool
from plaudit.methods.policy.config import DrawSettings
from plaudit.preflight.check import run_checks
from plaudit.preflight.checks import CHECKS
from tests.engine.toy import write_rows
from tests.preflight.breakers_rows import Row, answered, pair
from tests.preflight.subjects import Method, healthy
from tests.rollouts.talkers import write_talker

FAULTS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("planted_faults.yaml").read_text("utf-8")
)
TEXTS = {"answer": "completion", "prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}
"""What a fault may do to a text of every row, and the field that it is in."""
QUICK = (
    "the tokenizer of another model with as many tokens",
    "an output matrix of zeros",
    "a rate at which nothing moves",
)
REWARD = "def reward(answer, prompt):\n    return {}"


@cache
def sound_rows(method: str, count: int) -> list[Row]:
    if method in ("dpo", "reward"):
        made: Any = making.comparisons(count, annotator_pool("experts"))
    else:
        made = making.prompts(48) if method == "grpo" else making.demonstrations(count)
    return [record_to_dict(row) for row in made]


def faulty_rows(fault: dict[str, Any]) -> list[Row]:
    rows = copy.deepcopy(sound_rows(fault["method"], fault.get("rows", 96)))
    for key in TEXTS.keys() & fault.keys():
        for i, row in enumerate(rows):
            turns = row[TEXTS[key]]
            text = eval(fault[key].strip(), {"i": i, "row": row, "text": turns[-1]["content"]})
            row[TEXTS[key]] = [*turns[:-1], {**turns[-1], "content": text}]
    return eval(fault["file"], {"rows": rows}) if "file" in fault else rows


def faulty_model(fault: dict[str, Any], folder: Path) -> Path:
    shutil.copytree(base_model_folder(), folder)
    if "weights" in fault:
        model: Any = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            exec(fault["weights"], {"model": model, "layers": model.model.layers, "torch": torch})
        model.save_pretrained(folder)
    if "tokenizer" in fault:
        facts = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        exec(fault["tokenizer"], {"facts": facts})
        (folder / "tokenizer.json").write_text(json.dumps(facts), "utf-8")
    if "template" in fault:
        path = folder / "chat_template.jinja"
        path.write_text(eval(fault["template"], {"text": path.read_text("utf-8")}), "utf-8")
    for name in ("config.json", "generation_config.json") if "config" in fault else ():
        facts = json.loads((folder / name).read_text("utf-8"))
        (folder / name).write_text(json.dumps({**facts, **eval(fault["config"])}), "utf-8")
    return folder


@pytest.mark.cases(quick=QUICK)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault,
            id=fault["fault"],
            marks=[pytest.mark.xfail(reason=fault["unnamed"], strict=True)] if "unnamed" in fault else [],
        )
        for fault in FAULTS
    ],
)
def test_a_planted_fault_is_named(tmp_path, capsys, fault):
    method, found = fault["method"], tmp_path / "found.json"
    words = ["check", method, "--model", str(faulty_model(fault, tmp_path / "model")), "--device", "cpu"]
    data = write_rows(tmp_path / "rows.jsonl", faulty_rows(fault))
    words += ["--prompts" if method == "grpo" else "--data", str(data), "--json", str(found)]
    if method == "grpo":
        own = tmp_path / "own.py"
        own.write_text(REWARD.format(fault.get("reward", "sum(map(ord, answer)) % 7")), "utf-8")
        words += ["--reward", f"{own}:reward"]
    options = fault.get("options", "").split()
    if "OTHER" in options:
        anew = "[weight.normal_() for layer in layers for weight in layer.parameters()]"
        options[options.index("OTHER")] = str(faulty_model({"weights": anew}, tmp_path / "other"))
    # Each check by itself: what others say of the same fault would be a consequence.
    status = main([*words, *options, "--only", *fault.get("named", ["one-bos"])])
    if "refused" in fault:
        assert status == 2
        assert re.search(fault["refused"], capsys.readouterr().err)
        return
    said = {one["name"]: one for one in json.loads(found.read_text("utf-8"))["checks"]}
    for name, sentence in fault["named"].items():
        assert said[name]["verdict"] in ("FAIL", "warn"), said[name]["finding"]
        assert re.search(sentence, said[name]["finding"])


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
