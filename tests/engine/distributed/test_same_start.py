"""Ranks that are not started with the same end before the first step, and say what differs on which rank."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.distributed.runs import Run, Said, run_all
from tests.engine.toy import make_toy, write_rows

pytestmark = pytest.mark.slow

CASES = {
    "rate": (("--learning-rate", "0.01"), "  learning_rate: 0.001 on rank 0; 0.01 on rank 1"),
    "batch": (("--batch-size", "3"), "  batch_size: 4 on rank 0; 3 on rank 1"),
    "seed": (("--seed", "7"), "  seed: 0 on rank 0; 7 on rank 1"),
    "dtype": (("--dtype", "float64"), "  dtype: float32 on rank 0; float64 on rank 1"),
    "lora": (("--lora.rank", "2"), "  lora.rank: 0 on rank 0; 2 on rank 1"),
    "rows": (("--data", "{folder}/other.jsonl"), "  data: "),
    "model": (("--model", "{folder}/other"), "  model: "),
    "held out": (("--held-out", "{folder}/other.jsonl"), "  held_out: "),
    "no file": (("--data", "{folder}/none.jsonl"), "  data: "),
}


@dataclass(frozen=True)
class Ended:
    """What came of all cases, which run one after the other in the same two ranks."""

    folder: Path
    said: dict[str, list[Said]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("start")
    toy = make_toy(folder)
    rows = [
        {"prompt": f"the {word}", "completion": " sat on the mat."} for word in ("cat", "dog", "red", "old")
    ]
    data, held = (write_rows(folder / name, rows) for name in ("rows.jsonl", "held.jsonl"))
    write_rows(folder / "other.jsonl", [*rows[:3], {"prompt": "the old", "completion": " dogs."}])
    write_rows(folder / "copy.jsonl", rows)
    for name in ("other", "copied"):
        shutil.copytree(toy.model, folder / name)
    weights = load_file(folder / "other" / "model.safetensors")
    first = next(iter(weights))
    weights[first] = weights[first] + torch.finfo(torch.float32).eps
    save_file(weights, folder / "other" / "model.safetensors", metadata={"format": "pt"})

    def run(name: str, more: tuple[str, ...]) -> Run:
        arguments = (
            *("train", "sft", "--model", str(toy.model), "--data", str(data), "--out", str(folder / name)),
            *("--held-out", str(held), "--steps", "2", "--batch-size", "4", "--learning-rate", "0.001"),
            *("--device", "cpu", "--dtype", "float32", "--sample.rows", "0"),
        )
        given = tuple(word.format(folder=folder) for word in more)
        return Run(arguments=arguments, environment={}, more_of_last_rank=given)

    plan = {name: run(name, more) for name, (more, _) in CASES.items()}
    plan["copies"] = run("copies", ("--data", "{folder}/copy.jsonl", "--model", "{folder}/copied"))
    return Ended(folder=folder, said=run_all(plan, folder, ranks=2))


@pytest.mark.parametrize("name", CASES)
def test_what_differs_is_named_with_its_ranks(ended: Ended, name: str) -> None:
    first, second = ended.said[name]
    assert (first.code, second.code) == (2, 2), first.err
    assert "the ranks of this run are not started with the same:" in first.err
    assert CASES[name][1] in first.err
    assert first.err.count("on rank 1") == 1, "nothing else differs"
    assert not (ended.folder / name).exists(), "nothing is left of it"


def test_the_same_content_in_other_places_is_the_same(ended: Ended) -> None:
    first, second = ended.said["copies"]
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert (ended.folder / "copies" / "model").exists()
