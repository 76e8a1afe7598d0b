"""Training on pictures beside TRL's: the same folders and rows, read and put in batches by each side."""

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, batch_of
from plaudit.tokens.encode import encode_record, make_encoder
from tests.peer import ask_script
from tests.pictures.folders import make_folder, write_pairs

FAMILIES, METHODS = ("llava", "idefics3"), ("dpo", "sft", "grpo")
RATE, STEPS, EPS = 1e-3, 3, 1e-5
"""Of AdamW. Its ε is far above rounding, which would else move what has no gradient: the biases of keys."""
EXACT = 1e-5
"""Both sides compute in single precision; log-probs of an answer are about 30, a weight moves by 3e-3."""
COMMON = {"learning_rate": RATE, "lr_scheduler_type": "constant", "adam_epsilon": EPS}
MOVED = COMMON | {"max_steps": STEPS, "per_device_train_batch_size": 6, "max_length": None}
DRAWN = COMMON | {"max_steps": 1, "per_device_train_batch_size": 10, "max_completion_length": 4}
SETTINGS = {"dpo": MOVED, "sft": MOVED, "grpo": DRAWN | {"num_generations": 2, "shuffle_dataset": False}}
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, references with other weights, and rows of each method."""
    folder = tmp_path_factory.mktemp("work")
    for family in FAMILIES:
        reference = shutil.copytree(make_folder(family, folder / family), folder / f"{family}-reference")
        weights = load_file(reference / "model.safetensors")
        moved = {k: w + 0.02 * torch.randn_like(w) for k, w in weights.items()}
        save_file(moved, reference / "model.safetensors", metadata={"format": "pt"})
    pairs = list(map(json.loads, write_pairs(folder).read_text().splitlines()))
    shown = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs]
    # The peer's GRPO refuses a batch of which only some rows have pictures; the last one has none.
    for method, rows in (("dpo", pairs), ("sft", shown), ("grpo", pairs[:-1])):
        (folder / f"{method}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def peer(work: Path) -> Any:
    """What it says of every method and family, all in one process."""
    asked = dict[str, object]()
    for method, family in product(METHODS, FAMILIES):
        more = {"reference": f"{work}/{family}-reference", "out": f"{work}/trl-{method}-{family}"}
        more |= {"trainer": method, "settings": SETTINGS[method], "rows": f"{work}/{method}.jsonl"}
        asked[f"{method} {family}"] = {"model": f"{work}/{family}", **more}
    return ask_script("../benchmarks/peer_pictures.py", asked)


def examples(work: Path, family: str, method: str) -> tuple[Policy, list[Any]]:
    records: Any = read_records(work / f"{method}.jsonl").records
    encoder = make_encoder(work / family)
    policy = Policy(load_model(work / family, dtype=torch.float32, device=torch.device("cpu")))
    return policy, [encode_record(record, encoder) for record in records]


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_of_answers_are_the_peers(family, work, peer):
    for folder, wanted in zip((family, f"{family}-reference"), peer[f"dpo {family}"]["told"], strict=True):
        model, rows = examples(work, folder, "dpo")
        found = model.score(batch_of(rows)).logp_NT.detach().sum(-1).view(-1, 2)
        torch.testing.assert_close(found, torch.tensor(wanted), rtol=0, atol=EXACT)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_of_drawn_answers_and_their_gradient_are_the_peers(family, work, peer):
    policy, rows = examples(work, family, "grpo")
    told = {name: torch.tensor(value) for name, value in peer[f"grpo {family}"]["told"].items()}
    mask_NT, ids_NT = told["completion_mask"].bool(), told["completion_ids"]
    tokens = [tuple(ids[mask].tolist()) for ids, mask in zip(ids_NT, mask_NT, strict=True)]
    drawn = [Completion(ids=ids, mask=(True,) * len(ids), finished=True) for ids in tokens]
    groups = [replace(row, completions=tuple(drawn[2 * n : 2 * n + 2])) for n, row in enumerate(rows)]
    logp_NT = policy.score(batch_of(groups)).logp_NT
    torch.testing.assert_close(logp_NT.detach(), told["logp"] * mask_NT, rtol=0, atol=EXACT)
    (-(told["advantages"][:, None] * logp_NT).sum() / mask_NT.sum()).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in policy.parameters() if p.grad is not None])
    assert norm.item() == pytest.approx(peer[f"grpo {family}"]["norm"], rel=EXACT)


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("family", FAMILIES)
def test_losses_and_weights_of_three_steps_are_the_peers(method, family, work, peer, tmp_path):
    reference = f"--reference.model {work}/{family}-reference" if method == "dpo" else ""
    words = (
        f"train {method} --model {work}/{family} --data {work}/{method}.jsonl --out {tmp_path} {reference} "
        f"--learning-rate {RATE} --steps {STEPS} --optimizer.schedule constant --optimizer.warmup 0 "
        f"--optimizer.eps {EPS} --held-out 0 --sample.rows 0 --device cpu --allow base-loss"
    )
    assert main(words.split()) == 0
    log = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    found = [line["loss"] for line in log if "loss" in line]
    assert found == pytest.approx(peer[f"{method} {family}"]["loss"], rel=0, abs=EXACT)
    folders = (tmp_path / "model", work / f"trl-{method}-{family}")
    mine, other = (load_file(folder / "model.safetensors") for folder in folders)
    torch.testing.assert_close(mine, other, rtol=0, atol=EXACT)
