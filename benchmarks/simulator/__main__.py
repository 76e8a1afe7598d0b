"""Simulate rounds of drawing and learning.

python -m benchmarks.simulator published           rows that others published, each predicted from another one
python -m benchmarks.simulator published --vary    and what they come to where another thing is assumed
python -m benchmarks.simulator faults              effective training time, by GPUs and what a failure costs
python -m benchmarks.simulator scale               8, 64 and 1,024 GPUs: how to share them, how far ahead
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.simulator.faults import (
    LLAMA_GPUS,
    FaultPlan,
    daly,
    expected_share,
    mean_share,
    run_hours,
    young,
)
from benchmarks.simulator.published import (
    NEMO,
    VARIATIONS,
    VERL_SYNC,
    Assumptions,
    Prediction,
    Verl,
    fitted_engine,
    nemo,
    predictions,
)
from benchmarks.simulator.scale import GROUPS, RESTART, STALL, Fleet, plans
from benchmarks.simulator.servers import LLAMA_8B

GOAL = 0.15
"""The error within which a prediction hits."""


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for cells in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(cells) + " |")
    print()


def published(*, vary: bool) -> None:
    assumed = Assumptions()
    share = fitted_engine(assumed).memory_share
    print(f"Fitted on Llama's row: servers reach {share:.2f} of their bandwidth.\n")
    runs = [nemo(pair, assumed) for pair in NEMO]
    print_table(
        ("row in turn (input)", "seconds", "drawing, simulated", "learning, what is left"),
        [
            (pair.name, f"{pair.in_turn:g}", f"{run.draw:.0f}", f"{run.learn:.0f}")
            for pair, run in zip(NEMO, runs, strict=True)
        ],
    )
    print_predictions([run.prediction for run in runs])
    for gpus in (64, 128):
        verl = Verl(VERL_SYNC[gpus], assumed)
        print(f"Fitted on verl's row of {gpus} GPUs: answers of {verl.mean:,.0f} tokens on average.\n")
        print_predictions(list(verl.predictions()))
    if vary:
        print_table(("assumed", "within 15 %", "right sign", "largest error"), list(_variations()))


def print_predictions(rows: Sequence[Prediction]) -> None:
    print_table(
        ("held-out row", "from", "predicted", "published", "error", "sign"),
        [
            (
                row.name,
                row.source,
                f"{row.seconds:.0f} s",
                f"{row.published:g} s",
                f"{row.error:+.0%}" + ("" if abs(row.error) <= GOAL else " (missed)"),
                "right" if row.has_sign else "WRONG",
            )
            for row in rows
        ],
    )


def _variations() -> Iterator[Sequence[str]]:
    for name, assumed in VARIATIONS.items():
        try:
            rows = predictions(assumed)
        except ValueError as error:
            yield name, str(error), "", ""
            continue
        hits, signs = sum(abs(row.error) <= GOAL for row in rows), sum(row.has_sign for row in rows)
        worst = max(rows, key=lambda row: abs(row.error))
        yield name, f"{hits} of {len(rows)}", str(signs), f"{worst.error:+.0%} ({worst.name})"


def faults() -> None:
    settings = {"quick": (10.0, 300.0), "as assumed": (STALL, RESTART), "slow": (60.0, 1200.0)}
    print("Llama 3's failures, at the best interval; all of it begins again when one GPU fails.\n")
    header = (
        "GPUs",
        "hours between failures",
        "stall, restart",
        "every (Young)",
        "(Daly)",
        "simulated",
        "formula",
    )
    rows: list[Sequence[str]] = []
    for gpus in (8, 64, 256, 1024, LLAMA_GPUS):
        for stall, restart in settings.values():
            plan = FaultPlan(mean_seconds=run_hours(gpus) * 3600, interval=1, stall=stall, restart=restart)
            plan = replace(plan, interval=daly(plan))
            rows.append(
                (
                    f"{gpus:,}",
                    f"{run_hours(gpus):,.1f}",
                    f"{stall:.0f} s, {restart / 60:.0f} min",
                    f"{young(plan) / 60:.0f} min",
                    f"{daly(plan) / 60:.0f} min",
                    f"{mean_share(plan):.1%}",
                    f"{expected_share(plan):.1%}",
                )
            )
    print_table(header, rows)
    _injected()
    _failing_servers()


def _injected() -> None:
    """A failure in a tenth of the steps, as RobustRL injects them."""
    print("A failure in a tenth of the steps, a checkpoint behind each.\n")
    rows: list[Sequence[str]] = []
    for restart in (1.0, 2.0, 4.0, 6.0, 8.0):
        plan = FaultPlan(mean_seconds=10, interval=1, stall=0.0, restart=restart)
        rows.append((f"{restart:g}", f"{mean_share(plan, days=0.5):.0%}", f"{expected_share(plan):.0%}"))
    print_table(("restart, in steps", "simulated", "formula"), rows)


def _failing_servers() -> None:
    """Servers that fail and come back, while the others draw what these had under way."""
    fleet = Fleet(64, LLAMA_8B, fitted_engine(Assumptions()), rounds=20)
    trainers = 12
    print(f"Of 64 GPUs {64 - trainers} draw for an 8B; one that fails is back after {RESTART / 2:.0f} s.\n")
    rows: list[Sequence[str]] = []
    for mode in ("in turn", "one ahead"):
        whole = fleet.outcome(trainers, mode).step_seconds
        for failures in (1, 4):
            # So many failures of some server in a round, on average.
            hours = whole * (64 - trainers) / failures / 3600
            step = fleet.outcome(trainers, mode, mean_hours=hours).step_seconds
            rows.append((mode, f"{failures}", f"{whole:.0f} s", f"{step:.0f} s", f"{whole / step:.0%}"))
    print_table(("", "failures a round", "a round without", "with them", "effective"), rows)


def scale(gpus: Sequence[int]) -> None:
    header = (
        "GPUs",
        "model",
        "learn + draw",
        "how",
        "a round",
        "tokens/s/GPU",
        "trainers idle",
        "servers idle",
    )
    engine = fitted_engine(Assumptions())
    rows = [
        (
            f"{plan.gpus:,}",
            plan.model.name,
            plan.share,
            plan.mode,
            f"{plan.outcome.step_seconds:,.0f} s",
            f"{plan.tokens / plan.outcome.step_seconds / plan.gpus:,.0f}",
            f"{plan.outcome.trainers_idle:.0%}",
            f"{plan.outcome.servers_idle:.0%}",
            f"{plan.effective:.1%}",
        )
        for count in gpus
        for plan in plans(engine, count)
    ]
    print_table((*header, "effective"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("published", "faults", "scale"))
    parser.add_argument("--vary", action="store_true", help="published: other assumptions too")
    parser.add_argument("--gpus", type=int, nargs="+", choices=sorted(GROUPS), default=sorted(GROUPS))
    arguments = parser.parse_args()
    if arguments.what == "published":
        published(vary=arguments.vary)
    elif arguments.what == "faults":
        faults()
    else:
        scale(arguments.gpus)


if __name__ == "__main__":
    main()
