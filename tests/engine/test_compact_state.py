"""AdamW with moments of 16 or 8 bits learns what AdamW of 32 bits learns."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from plaudit.cli.main import main
from plaudit.engine import optimizer as optimizers
from plaudit.engine.checkpoint.state import OptimizerState, read_optimizer_state, write_optimizer_state
from plaudit.engine.optimizer import (
    CompactAdamW,
    from_float8,
    make_optimizer,
    round_stochastically,
    to_float8,
)
from plaudit.engine.settings import OptimizerSettings
from plaudit.errors import UserError
from tests.engine.toy import make_toy

HALF = OptimizerSettings(state="bfloat16", weight_decay=0.1, beta2=0.99)
BYTES = dataclasses.replace(HALF, state="float8")
SHORT = [pytest.param(HALF, id="bfloat16"), pytest.param(BYTES, id="float8")]


def _gradients(steps: int, *shape: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield torch.randn(shape, generator=generator) * 0.1 + 0.02


def _moved(settings: OptimizerSettings, steps: int) -> tuple[Tensor, torch.optim.Optimizer]:
    module = nn.Linear(64, 64, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.linspace(-1, 1, 64 * 64).view(64, 64))
    optimizer = make_optimizer(module, 1e-3, settings)
    for gradient in _gradients(steps, 64, 64):
        module.weight.grad = gradient
        optimizer.step()
    return module.weight.detach(), optimizer


@pytest.mark.parametrize("short", SHORT)
def test_the_first_step_is_that_of_32_bits(short: OptimizerSettings) -> None:
    half, whole = (_moved(one, 1)[0] for one in (short, dataclasses.replace(HALF, state="float32")))
    torch.testing.assert_close(half, whole, rtol=1e-6, atol=1e-8)


NUMBERS = {
    "bfloat16": {"step": torch.float32, "exp_avg": torch.bfloat16, "exp_avg_sq": torch.bfloat16},
    "float8": {
        "step": torch.float32,
        "exp_avg": torch.uint8,
        "exp_avg_factor": torch.float32,
        "exp_avg_rms": torch.uint8,
        "exp_avg_rms_factor": torch.float32,
    },
}


@pytest.mark.parametrize(("short", "near"), [(HALF, 0.01), (BYTES, 0.1)])
def test_many_steps_stay_near_those_of_32_bits(short: OptimizerSettings, near: float) -> None:
    start, _ = _moved(HALF, 0)
    half, optimizer = _moved(short, 300)
    whole, _ = _moved(dataclasses.replace(HALF, state="float32"), 300)
    way = (whole - start).norm()
    assert float((half - whole).norm() / way) < near
    [state] = optimizer.state.values()
    assert {key: value.dtype for key, value in state.items()} == NUMBERS[short.state]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("beta", [0.9, 0.999, 0.9999])
def test_a_running_mean_reaches_its_value_by_chance_and_stands_still_when_rounded_to_the_nearest(beta):
    generator = torch.Generator().manual_seed(0)
    by_chance = nearest = torch.full((4096,), 0.5).bfloat16()
    steps = int(5 / (1 - beta))
    for _ in range(steps):
        by_chance = round_stochastically(by_chance.float().lerp(torch.ones(4096), 1 - beta), generator)
        nearest = nearest.float().lerp(torch.ones(4096), 1 - beta).bfloat16()
    assert float(by_chance.float().mean()) == pytest.approx(1 - 0.5 * beta**steps, abs=0.005)
    if beta > 0.99:
        assert float(nearest.float().mean()) < 0.75


def test_what_16_bits_can_say_is_left_as_it_is() -> None:
    exact = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.0**-120, -(2.0**100)])
    for seed in range(20):
        rounded = round_stochastically(exact, torch.Generator().manual_seed(seed))
        assert torch.equal(rounded.float(), exact)


@pytest.mark.parametrize("value", [1 + 2**-9, -(1 + 3 * 2**-10), 3e-30, 0.1])
def test_rounding_is_right_on_average(value: float) -> None:
    wide = torch.full((200_000,), value)
    rounded = round_stochastically(wide, torch.Generator().manual_seed(1)).double()
    below, above = rounded.unique().tolist()
    assert below < float(wide[0]) < above
    # Five standard errors of a coin with two sides that far from each other.
    assert abs(float(rounded.mean()) - float(wide[0])) < 5 * (above - below) / 2 / 200_000**0.5


@pytest.mark.parametrize("short", SHORT)
def test_a_large_weight_is_widened_in_parts(short, monkeypatch):
    whole, _ = _moved(dataclasses.replace(HALF, state="float32"), 20)
    monkeypatch.setattr(optimizers, "STATE_AT_ONCE", 1000)
    half, _ = _moved(short, 20)
    torch.testing.assert_close(half, whole, rtol=0, atol=2e-4 if short is HALF else 3e-3)


@pytest.mark.parametrize("short", SHORT)
def test_chance_follows_from_step_and_weight_alone(short: OptimizerSettings) -> None:
    once, again = _moved(short, 5), _moved(short, 5)
    assert torch.equal(once[0], again[0])
    assert isinstance(once[1], CompactAdamW)
    [one], [other] = once[1].state.values(), again[1].state.values()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_float8_is_right_on_average_and_exact_where_it_can_be() -> None:
    generator = torch.Generator().manual_seed(0)
    # Beside the largest of its row: with digits, at the border, without, and far too small.
    row = torch.tensor([448.0, 448 * 0.3, 2.0**-6, 3.3 * 2**-9, 0.4 * 2**-9, -100.7, 0.0, -1e-3])
    wide = row.expand(100_000, -1) / 3
    codes, factor = to_float8(wide, generator)
    found = from_float8(codes, factor).double()
    steps = torch.tensor([32, 16, 2**-9, 2**-9, 2**-9, 8, 2**-9, 2**-9]) / 3
    off = (found.mean(0) - wide[0].double()).abs()
    assert (off < 5 * steps / 2 / 100_000**0.5 + 1e-6 * wide[0].abs()).all()
    assert found[:, 0].unique().tolist() == [pytest.approx(448 / 3, rel=1e-6)]
    assert set(found[:, 6].tolist()) == {0.0}
    zeros, factor = to_float8(torch.zeros(2, 3), generator)
    assert torch.equal(from_float8(zeros, factor), torch.zeros(2, 3))


def test_a_running_mean_of_squares_is_kept_by_its_root_without_growing() -> None:
    """Of roots that are right on average the squares would be 4 % too large here."""
    generator, ratios = torch.Generator().manual_seed(0), list[torch.Tensor]()
    exact = stored = torch.ones(64, 64)
    for step in range(600):
        square = torch.randn(64, 64, generator=generator).square()
        exact, stored = (0.99 * mean + 0.01 * square for mean in (exact, stored))
        stored = from_float8(*to_float8(stored.sqrt(), generator, roots=True)).square()
        ratios += [(stored / exact).mean()] if step >= 300 else []
    assert float(torch.stack(ratios).mean()) == pytest.approx(1.0, abs=0.01)


def test_what_is_small_beside_its_row_is_never_divided_by_nothing() -> None:
    """One number of a row learns from gradients ten million times those of its neighbour."""
    module = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    optimizer = make_optimizer(module, 1e-3, dataclasses.replace(BYTES, weight_decay=0.0))
    for number in range(200):
        before = module.weight.detach().clone()
        module.weight.grad = torch.tensor([[10.0, 1e-6]]) * (-1) ** (number // 3)
        optimizer.step()
        # AdamW moves by about the rate, whatever the size of a gradient.
        assert float((module.weight.detach() - before).abs().max()) < 0.01


def test_another_optimiser_has_no_such_state() -> None:
    with pytest.raises(UserError, match=r"state bfloat16 is for adamw, and optimizer\.name is sgd"):
        OptimizerSettings(name="sgd", state="bfloat16")


@pytest.mark.slow
def test_a_run_learns(tmp_path: Path) -> None:
    toy, last = make_toy(tmp_path / "toy"), {}
    for state in ("float32", "bfloat16", "float8"):
        out = tmp_path / state
        train = ("train", "sft", "--model", toy.model, "--data", toy.data, "--out", out, "--steps", 20)
        more = ("--learning-rate", 0.01, "--device", "cpu", "--optimizer.state", state)
        assert main([*map(str, (*train, *more))]) == 0
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        last[state] = [line["loss"] for line in lines if "loss" in line]
    assert last["bfloat16"][-1] < 0.8 * last["bfloat16"][0]
    assert last["bfloat16"][-1] == pytest.approx(last["float32"][-1], rel=0.02)
    assert last["float8"][-1] == pytest.approx(last["float32"][-1], rel=0.05)


@pytest.mark.parametrize("state", ["float32", "bfloat16", "float8"])
def test_the_memory_of_a_single_number_comes_back(state: str) -> None:
    """A weight without a row, beside a matrix."""
    module = nn.Module()
    module.scale, module.table = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(3, 4))
    optimizer = make_optimizer(module, 1e-3, dataclasses.replace(HALF, state=state))
    (module.scale * module.table.sum()).backward()
    optimizer.step()
    before = read_optimizer_state(module, optimizer)
    wanted = {path: value.clone() for path, value in before.tensors.items()}
    write_optimizer_state(module, optimizer, OptimizerState(tensors=wanted, facts=before.facts))
    after = read_optimizer_state(module, optimizer).tensors
    assert after.keys() == wanted.keys()
    assert all(torch.equal(after[path], value) for path, value in wanted.items())
    optimizer.step()
