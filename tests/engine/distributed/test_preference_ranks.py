"""Two ranks learn the policy that one process learns, weights divided or not: figures and model.

A batch has 5 rows and the last one of an epoch a single one, so that a rank is muted; pieces hold few
tokens, so that ranks differ in how many they would need. What is left is the order of sums: 1e-9 relative in
float64 and 1e-4 in float32, in which a path of its own is taken by rounding.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import Trained, check_as_one, lines
from tests.methods.preference.test_runs import make_opinions

pytestmark = pytest.mark.slow

FOLLOWS = ("--reference.kind", "average", "--reference.every", "2", "--reference.share", "0.5")
MANNERS: dict[str, tuple[str, ...]] = {
    "dpo": (),
    "dpo, live": ("--reference.kind", "live"),
    "dpo, following": FOLLOWS,
    "tr-dpo": FOLLOWS,
    "kto": ("--memory.tokens-at-once", "20"),
    "kto, one by one": ("--batch-size", "1"),
    "aot": (),
    "bco": (),
    "dpo, rankings": ("--memory.layout", "left", "--memory.checkpointing"),
    "wpo, adapted": ("--lora.rank", "2"),
    "ipo, float32": ("--dtype", "float32"),
}
GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "quick": (("dpo", "data"), ("dpo", "shard"), ("kto", "data"), ("aot", "data")),
    "follows": (("dpo, following", "shard"),),
    "strangers": (("kto", "shard"), ("kto, one by one", "shard")),
    "slow": (
        ("dpo, live", "data"),
        ("dpo, live", "shard"),
        ("tr-dpo", "data"),
        ("kto, one by one", "data"),
        ("aot", "shard"),
        ("bco", "data"),
        ("bco", "shard"),
        ("dpo, rankings", "data"),
        ("dpo, rankings", "shard"),
        ("wpo, adapted", "data"),
        ("wpo, adapted", "shard"),
        ("ipo, float32", "data"),
    ),
}
"""Those that run together: a rank that dies takes along all that were to come."""
ALL = [(group, manner, way) for group, members in GROUPS.items() for manner, way in members]


def train(folder: Path, members: tuple[tuple[str, str], ...]) -> Trained:
    toy, files = make_opinions(folder / "toy", rows=27)

    def command(out: str, manner: str, *more: str) -> Run:
        name = manner.partition(",")[0]
        kind = "rankings" if "rankings" in manner else "certain"
        data = files["thumbs" if PREFERENCE_ALGORITHMS[name].data == "thumbs" else kind]
        cache = ("--reference.kind", "precomputed", "--reference.cache", str(folder / "kept" / out))
        kept = () if "--reference.kind" in more else cache
        arguments = (
            *("train", name, "--model", str(toy.model), "--data", str(data), "--out", str(folder / out)),
            *("--steps", "5", "--batch-size", "5", "--learning-rate", "0.01", "--held-out", "0.1"),
            *("--memory.tokens-at-once", "60", "--evaluate-every", "2", "--sample-every", "4"),
            *("--sample.rows", "2", "--sample.tokens", "6", "--device", "cpu", "--dtype", "float64"),
            *(*kept, *more),
        )
        return Run(arguments=arguments, environment={})

    alone = {manner: command(manner, manner, *MANNERS[manner]) for manner, _ in members}
    together = {
        f"{manner} {way}": command(
            f"{manner} {way}", manner, *MANNERS[manner], *["--shard"][: way == "shard"]
        )
        for manner, way in members
    }
    return Trained(
        folder=folder, alone=run_all(alone, folder, ranks=1), together=run_all(together, folder, ranks=2)
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    @cache
    def of(group: str) -> Trained:
        return train(tmp_path_factory.mktemp("ranks"), GROUPS[group])

    return of


@pytest.mark.parametrize(("group", "manner", "way"), ALL)
def test_two_ranks_learn_what_one_process_learns(trained, group, manner, way):
    is_exact = not manner.endswith("float32")
    check_as_one(trained(group), manner, way, 1e-9 if is_exact else 1e-4, samples=is_exact)


@pytest.mark.parametrize(("group", "manner", "way"), ALL)
def test_the_folder_of_two_ranks_is_the_folder_of_one(trained, group, manner, way):
    folder = trained(group).folder
    names, others = (
        {str(path.relative_to(folder / name)) for path in (folder / name).rglob("*")}
        for name in (manner, f"{manner} {way}")
    )
    assert others == names


def test_log_probs_that_two_ranks_have_computed_are_those_of_one(trained: Callable[[str], Trained]) -> None:
    kept = trained("quick").folder / "kept"
    entries = [next(iter((kept / name).iterdir())) for name in ("dpo", "dpo data", "dpo shard")]
    assert len({entry.name for entry in entries}) == 1
    one, *others = (load_file(entry / "logp.safetensors")["logp"] for entry in entries)
    for other in others:
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)


@pytest.mark.parametrize("manner", ["dpo", "kto", "aot"])
def test_learning_was_worth_comparing(trained: Callable[[str], Trained], manner: str) -> None:
    folder = trained("quick").folder
    losses = [line["held_out/loss"] for line in lines(folder / manner) if "held_out/loss" in line]
    assert max(losses) - min(losses) > 1e-3
    if manner == "kto":
        assert max(line["baseline"] for line in lines(folder / manner)) > 0
