import json
import math
import mmap
import random
from pathlib import Path

import pytest
import torch

from plaudit.engine import metrics
from plaudit.engine.sinks.base import BestValue, summarise
from plaudit.engine.step_report import StepReport, lower_is_better, metric_docs, old_metric_names

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def report(step, timing=None, **values):
    return StepReport(step=step, steps=4, epoch=step / 4, values=values, timing=timing or {})


def test_micro_batches_of_different_size_weigh_by_their_tokens():
    pieces = [metrics.mean_metric("loss", 2.0 * 10, 10), metrics.mean_metric("loss", 4.0 * 30, 30)]
    assert metrics.values_of(pieces) == {"loss": 3.5}


def test_counts_add_up_and_of_largest_values_the_largest_stays():
    pieces = [
        metrics.sum_metric("rows", 3),
        metrics.max_metric("length_max", 7),
        metrics.sum_metric("rows", 5),
        metrics.max_metric("length_max", 4),
    ]
    values = metrics.values_of(pieces)
    assert values == {"rows": 8, "length_max": 7}
    assert type(values["rows"]) is int


def test_the_order_of_micro_batches_does_not_change_a_bit():
    draw = random.Random(7)
    pieces = [
        metrics.mean_metric("loss", draw.uniform(-1, 1) * 10.0 ** draw.randint(-8, 8), draw.randint(1, 99))
        for _ in range(50)
    ]
    expected = metrics.merge_metrics(pieces)
    for _ in range(10):
        draw.shuffle(pieces)
        assert metrics.merge_metrics(pieces) == expected


def test_a_mean_over_nothing_is_not_a_number_and_does_not_spoil_a_mean_over_something():
    assert math.isnan(metrics.mean_metric("loss", 0.0, 0).value)
    assert metrics.values_of([metrics.mean_metric("loss", 0.0, 0), metrics.mean_metric("loss", 6.0, 4)]) == {
        "loss": 1.5
    }


@pytest.mark.parametrize(
    "totals", [(math.inf, -math.inf), (-math.inf, math.inf), (math.nan, 1.0), (1.0, math.nan)]
)
@pytest.mark.parametrize(
    "make", [lambda t: metrics.mean_metric("x", t, 1), lambda t: metrics.max_metric("y", t)]
)
def test_what_is_not_a_number_stays_so_in_any_order(make, totals):
    merged = metrics.merge_metrics(make(total) for total in totals)[0]
    assert math.isnan(merged.value) or (merged.how == "max" and merged.value == math.inf)


def test_one_name_joined_in_two_ways_is_refused():
    with pytest.raises(ValueError, match="'rows' is joined in two ways, mean and sum"):
        metrics.merge_metrics([metrics.sum_metric("rows", 1), metrics.mean_metric("rows", 1, 1)])


@pytest.mark.parametrize("weight", [-1.0, math.nan])
def test_a_weight_below_nothing_is_refused(weight):
    with pytest.raises(ValueError, match="a weight is 0 or more"):
        metrics.Metric(name="loss", total=1.0, weight=weight)


def test_perplexity_of_a_diverged_run_is_infinite_instead_of_an_error():
    assert metrics.perplexity(math.log(8)) == pytest.approx(8)
    assert metrics.perplexity(800.0) == math.inf
    assert math.isnan(metrics.perplexity(math.nan))


@pytest.mark.parametrize("name", ["step", "steps", "epoch", "timing", "timing/seconds"])
def test_a_metric_may_not_take_the_reports_own_names(name):
    with pytest.raises(ValueError, match="the report uses that name itself"):
        StepReport(step=1, steps=4, epoch=0.25, values={name: 1.0}, timing={})


def test_a_report_comes_back_from_its_line_bit_for_bit():
    one = report(3, {"seconds": 0.1 + 0.2}, loss=1 / 3, learning_rate=5e-324, rows=8)
    assert StepReport.from_json(json.loads(json.dumps(one.as_json(), allow_nan=False))) == one


def test_timing_is_kept_apart_from_what_is_reproducible():
    first, again = report(1, {"seconds": 1.0}, loss=2.0), report(1, {"seconds": 9.0}, loss=2.0)
    lines = [{name: value for name, value in r.as_json().items() if name != "timing"} for r in (first, again)]
    assert lines[0] == lines[1] == {"step": 1, "steps": 4, "epoch": 0.25, "loss": 2.0}
    assert first.flattened() == {"epoch": 0.25, "loss": 2.0, "timing/seconds": 1.0}


def three_reports():
    first, second, third = {"rows": 4, "tokens": 100}, {"rows": 4, "tokens": 300}, {"rows": 2, "tokens": 100}
    return [
        report(1, {"seconds": 1.0, "memory_mib": 50.0, "mfu": 0.2}, loss=3.0, **first),
        report(
            2, {"seconds": 3.0, "memory_mib": 70.0, "mfu": 0.6}, loss=2.0, **second, **{"held_out/loss": 2.5}
        ),
        report(3, {"seconds": 1.0, "memory_mib": 60.0, "mfu": 0.2}, loss=2.0, token_accuracy=0.5, **third),
    ]


def test_the_summary_holds_last_and_best_and_totals():
    summary = summarise(three_reports(), ["careful"])
    assert (summary.step, summary.steps) == (3, 4)
    last = {"loss": 2.0, "rows": 2, "tokens": 100, "held_out/loss": 2.5, "token_accuracy": 0.5}
    assert summary.last == last
    assert summary.best == {
        "loss": BestValue(step=2, value=2.0),
        "held_out/loss": BestValue(step=2, value=2.5),
        "token_accuracy": BestValue(step=3, value=0.5),
    }
    assert summary.counts == {"tokens": 500, "rows": 10}
    assert summary.timing == {
        "seconds": 5.0,
        "tokens_per_second": 100.0,
        "memory_mib": 70.0,
        "mfu": pytest.approx(0.44),
    }
    assert summary.notes == ("careful",)


def test_a_value_that_is_not_finite_is_never_the_best():
    summary = summarise([report(1, loss=-math.inf), report(2, loss=math.nan), report(3, loss=5.0)])
    assert summary.best["loss"] == BestValue(step=3, value=5.0)


def test_a_run_that_did_nothing_has_a_summary_too():
    assert summarise([]).as_json() == {
        "step": 0,
        "steps": 0,
        "last": {},
        "best": {},
        "counts": {"tokens": 0, "rows": 0},
        "timing": {"seconds": 0},
        "notes": [],
    }


def test_higher_and_lower_are_known_and_unknown_names_have_no_direction():
    assert lower_is_better("held_out/perplexity") is True
    assert lower_is_better("held_out/token_accuracy") is False
    assert lower_is_better("grad_norm") is None
    assert lower_is_better("my_own") is None


def test_the_page_of_metrics_holds_exactly_the_table_of_the_code():
    head = "| metric | what it is | normal | a strange value | better |\n|---|---|---|---|---|\n"
    rows = [
        f"| `{doc.name}` | {doc.what} | {doc.normal} | {doc.strange} | {doc.better or '–'} |\n"
        for doc in metric_docs().values()
    ]
    table = head + "".join(rows)
    assert table in PAGE.read_text(encoding="utf-8"), f"put this into docs/metrics.md:\n{table}"


def test_flops_of_a_linear_stack_agree_with_torchs_own_counter():
    from torch.utils.flop_counter import FlopCounterMode

    body = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.Linear(16, 8, bias=False))
    head = torch.nn.Linear(8, 32, bias=False)
    hidden_NTH = torch.randn(2, 5, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        head(body(hidden_NTH)[:, 2:]).sum().backward()
    assert counter.get_total_flops() == metrics.training_flops(
        8 * 16 * 2, 8 * 32, tokens=10, trained_tokens=6
    )


def test_flops_of_frozen_weights_leave_out_their_gradient():
    from torch.utils.flop_counter import FlopCounterMode

    frozen = torch.nn.Linear(8, 16, bias=False).requires_grad_(requires_grad=False)
    hidden_NTH = torch.randn(2, 5, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        frozen(hidden_NTH).sum().backward()
    assert counter.get_total_flops() == metrics.training_flops(
        8 * 16, 0, tokens=10, trained_tokens=0, frozen=True
    )


def test_attention_costs_half_of_the_full_square():
    from torch.utils.flop_counter import FlopCounterMode

    layers, heads, length, size = 1, 2, 6, 4
    query, key, value = (torch.randn(1, heads, length, size, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        ((query @ key.transpose(-1, -2)).softmax(-1) @ value).sum().backward()
    assert counter.get_total_flops() == 2 * metrics.attention_flops(layers, heads * size, [length])


def test_the_measured_rate_is_plausible_and_measured_once_a_process():
    rate = metrics.matmul_rate("cpu", torch.float32)
    assert 1e8 < rate < 1e14
    assert metrics.matmul_rate("cpu", torch.float32) == rate


@pytest.mark.slow
def test_measuring_the_rate_leaves_the_runs_random_numbers_alone():
    metrics.matmul_rate.cache_clear()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    metrics.matmul_rate("cpu", torch.bfloat16)
    assert torch.equal(torch.rand(4), expected)


def test_memory_rises_by_what_is_held_and_the_peak_stays():
    before = metrics.measure_memory()
    # Pages of its own: a tensor may be given memory that an earlier test has left.
    with mmap.mmap(-1, 64 * 1024 * 1024) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        during = metrics.measure_memory()
    after = metrics.measure_memory()
    # Linux counts pages per processor and adds up now and then: the figures are good to a MiB or so.
    assert during.peak > before.peak - 2
    assert after.peak > during.peak - 2
    assert after.reported == after.peak
    if during.now is not None and before.now is not None:
        assert 60 < during.now - before.now < 80
        assert during.peak > during.now - 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_rate_and_the_peak_are_the_devices():
    held = torch.ones(64 * 1024 * 1024 // 4, device="cuda")
    memory = metrics.measure_memory("cuda")
    assert memory.reported == memory.device_peak
    assert memory.reported >= held.nbytes / 2**20
    assert metrics.matmul_rate("cuda", torch.bfloat16) > metrics.matmul_rate("cpu", torch.float32)


def test_names_that_metrics_had_once_are_read_as_those_that_they_have_now():
    line = {"step": 1, "steps": 2, "epoch": 0.5, "flat": 0.25, "held_out/kl_root": 0.5, "reward/value": 1.0}
    report = StepReport.from_json({**line, "timing": {}})
    assert report.values == {"frac_zero_std": 0.25, "held_out/sqrt_kl": 0.5, "reward/value": 1.0}
    names = {name.removeprefix("held_out/") for name in metric_docs()}
    assert set(old_metric_names().values()) <= names
    assert not set(old_metric_names()) & names
