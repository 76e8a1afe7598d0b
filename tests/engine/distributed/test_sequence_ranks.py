"""Ranks that share each row's tokens learn what one process learns: figures, samples and weights.

Rows are ragged and packed, so that a rank's part begins anywhere in a row. What is left is the order of sums:
1e-9 relative in float64.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.engine.distributed.runs import Run, Said, run_all
from tests.engine.distributed.test_same_numbers import Trained, apart, lines
from tests.engine.toy import write_rows
from tests.methods.policy.commands import RULES
from tests.methods.reward_model.rows import make_files

SHORT = (
    *("--steps", "4", "--batch-size", "5", "--learning-rate", "0.01", "--device", "cpu"),
    *("--dtype", "float64", "--held-out", "0.1", "--evaluate-every", "2", "--sample-every", "3"),
    *("--sample.rows", "2"),
)
ROWS = ("--memory.tokens-at-once", "60", "--sample.tokens", "6")
DRAWS = ("--draw.max-tokens", "6", "--reward", "rule")
DIVIDED = ("--lora.rank", "2", "--shard", "--memory.checkpointing")
MANNERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "sft": (2, ("--optimizer.weight-decay", "0.3", "--optimizer.clip", "0.05")),
    "dpo": (2, ()),
    "sft, two by two": (4, ("--memory.checkpointing",)),
    "sft, divided": (2, DIVIDED),
    "dpo, live": (4, ("--reference.kind", "live", "--shard")),
    "kto": (4, ()),
    "reward": (2, ("--reward.nll-coef", "0.1")),
    "reward, mean": (4, ("--reward.pooling", "mean", "--shard")),
    "grpo": (4, ("--group-size", "4", "--kl-coef", "0.1")),
    "ppo": (2, ("--update-epochs", "2")),
    "ppo, divided": (4, ("--critic.shared", "--minibatches", "2", "--shard")),
}
QUICK = ("sft", "dpo")
ALL = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in MANNERS]


def train(folder: Path, manners: tuple[str, ...]) -> Trained:
    toy, files = make_files(folder / "toy", rows=22)
    (folder / "rules.py").write_text(RULES, encoding="utf-8")
    prompts = write_rows(folder / "prompts.jsonl", [{"prompt": f"the {n} cats"} for n in range(12)])
    data = {"sft": files["demonstrations"], "kto": files["thumbs"], "grpo": prompts, "ppo": prompts}

    def command(manner: str, ranks: int) -> Run:
        method = manner.partition(",")[0]
        draws = method in ("grpo", "ppo")
        rule = str(folder / "rules.py:short")
        # One process divides nothing.
        words = [
            rule if word == "rule" else word for word in (*(DRAWS if draws else ROWS), *MANNERS[manner][1])
        ]
        words = [word for word in words if ranks > 1 or word != "--shard"]
        arguments = (
            *("train", method, "--model", str(toy.model), "--out", str(folder / f"{manner} {ranks}")),
            *("--prompts" if draws else "--data", str(data.get(method, files["comparisons"]))),
            *(*SHORT, *words, *(["--sequence-ranks", "2"] if ranks > 1 else [])),
        )
        return Run(arguments=arguments, environment={"XDG_CACHE_HOME": str(folder / f"kept {ranks}")})

    alone = run_all({manner: command(manner, 1) for manner in manners}, folder, ranks=1)
    together: dict[str, list[Said]] = {}
    for ranks in (2, 4):
        plan = {manner: command(manner, ranks) for manner in manners if MANNERS[manner][0] == ranks}
        together |= run_all(plan, folder, ranks=ranks) if plan else {}
    return Trained(folder=folder, alone=alone, together=together)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    @cache
    def of(is_quick: bool) -> Trained:
        chosen = tuple(manner for manner in MANNERS if (manner in QUICK) == is_quick)
        return train(tmp_path_factory.mktemp("sequence"), chosen)

    return lambda manner: of(manner in QUICK)


@pytest.mark.parametrize("manner", ALL)
def test_ranks_that_share_rows_learn_what_one_process_learns(trained, manner):
    runs, ranks = trained(manner), MANNERS[manner][0]
    said = [*runs.alone[manner], *runs.together[manner]]
    assert [one.code for one in said] == [0] * (1 + ranks), said[1].err
    assert {(one.out, one.err) for one in said[2:]} == {("", "")}
    assert {one.left for one in said} == {()}
    one, other = (runs.folder / f"{manner} {count}" for count in (1, ranks))
    for expected, found in zip(lines(one), lines(other), strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            # A sampler's log-probs are rounded to float32, and hang on who is asked beside whom.
            near = (
                1e-4 if manner[:4] in ("grpo", "ppo", "ppo,") and name not in ("loss", "grad_norm") else 1e-9
            )
            assert apart(found[name], value) < near, (expected["step"], name)
    assert (one / "samples.jsonl").read_bytes() == (other / "samples.jsonl").read_bytes()
    for path in one.glob("[mc]*/model.safetensors"):
        weights = load_file(other / path.relative_to(one))
        for name, weight in load_file(path).items():
            torch.testing.assert_close(weights[name], weight, rtol=1e-9, atol=1e-9, msg=name)
