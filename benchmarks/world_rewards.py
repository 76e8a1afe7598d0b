"""What reward models learn on the embedded world, where the truth is known: tables for docs/reward-models.md.

    python -m benchmarks.world_rewards --out lab              # every study; begun again, it goes on
    python -m benchmarks.world_rewards --out lab --only flips # one of them

Each prints a Markdown table and writes it into the folder.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.lab import TESTED, Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Estimate
from plaudit.methods.reward_model.config import EnsembleSettings, RewardSettings
from plaudit.rewards.combine.aggregate import CombinedReward, preference_disagreement
from plaudit.rewards.load import load_reward

USUAL = 8000
"""Comparisons in a study that is not about their number."""
MANY = 10_000
"""Rankings of nine by experts, to come near the ceiling."""
FEW = 4000
"""Where several seeds are run."""
SEEDS = 3
"""Runs of each kind where two kinds lie close together."""


def experts(lab: Lab) -> Table:
    """Expert annotators and very many judgements: how near is the ceiling?"""
    yield "tested on", "accuracy", "ceiling", "worst category"
    ranked, tested = lab.held_out(
        lab.ranked("experts", MANY, answers=9), lab.compared("experts", 20_000, seed=1)
    )
    config = replace(lab.usual(), batch_size=16, epochs=3.0)
    run = lab.trained("experts", ranked, config)
    for label, data in (
        ("prompts that were never trained", tested),
        ("people and things that were never trained", lab.compared("experts", TESTED, "test")),
    ):
        found = lab.evaluated(run, data, gold=True)
        worst = next(part for part in found.categories if part.name == found.worst)
        yield (
            label,
            share(found.accuracy),
            share(found.ceiling.accuracy),
            f"{worst.name} {share(worst.accuracy)}",
        )


def pools(lab: Lab) -> Table:
    """Who judges."""
    yield (
        "annotators",
        "accuracy on their own judgements",
        "ceiling",
        "on experts' judgements",
        "the longer answer at equal worth, model's odds",
        "annotators' odds",
    )
    for name in ("experts", "crowd", "hurried", "length-lovers"):
        run = lab.trained(f"pool-{name}", lab.compared(name, USUAL))
        own = lab.evaluated(run, lab.compared(name, TESTED, "validation"), gold=True)
        expert = lab.evaluated(run, lab.compared("experts", TESTED, "validation"))
        length = next(probe for probe in own.probes.features if probe.name == "length")
        odds = (
            "–" if annotator is None else f"{annotator.ratio:.2f} ({annotator.low:.2f}–{annotator.high:.2f})"
            for annotator in (length.model, length.annotators)
        )
        yield name, share(own.accuracy), share(own.ceiling.accuracy), share(expert.accuracy), *odds


def flips(lab: Lab) -> Table:
    """Experts, of whose labels a share is swapped."""
    yield "labels", "what the loss believes", "accuracy", "log-loss", "Brier", "mean margin"
    rows = lab.compared("experts", FEW)
    for flipped in (0.0, 0.1):
        data = lab.flipped(rows, flipped) if flipped else rows
        for label, settings in (
            ("nothing", RewardSettings()),
            ("noise 0.2: one in five is given blindly", RewardSettings(noise=0.2)),
            ("smoothing 0.1: one in ten is swapped", RewardSettings(smoothing=0.1)),
        ):
            name = f"flips-{flipped}-{label.split()[0]}"
            found = [_tested(lab, name, data, settings, seed) for seed in range(lab.seeds or SEEDS)]
            yield f"{flipped:.0%} swapped", label, *_means(found)


def ensembles(lab: Lab) -> Table:
    """Do members disagree where they are wrong?"""
    yield "pairs, by how far the members disagree", "error of their mean", "error of one member"
    config = replace(lab.usual(), ensemble=EnsembleSettings(members=4))
    run = lab.trained("ensemble", lab.compared("crowd", FEW), config)
    reward = load_reward(run, device=lab.device)
    assert isinstance(reward, CombinedReward)
    pairs = [
        record
        for record in read_records(lab.compared("experts", TESTED, "validation")).records
        if isinstance(record, Comparison) and record.strength
    ]
    tasks = [
        Task(prompt=pair.prompt, answers=(pair.chosen, pair.rejected), ended=(True, True)) for pair in pairs
    ]
    scores = [member.scores(tasks) for member in reward.members]
    gaps = [[_gap(row) for row in own] for own in scores]
    doubts = preference_disagreement(torch.tensor(gaps), torch.zeros(len(gaps), len(pairs))).tolist()
    order = sorted(range(len(pairs)), key=doubts.__getitem__)
    for quarter, name in enumerate(("least", "second", "third", "most")):
        part = order[quarter * len(order) // 4 : (quarter + 1) * len(order) // 4]
        wrong = statistics.fmean(statistics.fmean(own[n] for own in gaps) <= 0 for n in part)
        single = statistics.fmean(own[n] <= 0 for own in gaps for n in part)
        yield f"{name} ({len(part)})", f"{wrong:.1%}", f"{single:.1%}"
    both = (
        statistics.fmean(statistics.fmean(each) <= 0 for each in zip(*gaps, strict=True)),
        statistics.fmean(gap <= 0 for own in gaps for gap in own),
    )
    yield f"all ({len(order)})", *(f"{pair:.1%}" for pair in both)


def models(lab: Lab) -> Table:
    """Twice the width of the model, each having read the same corpus as often."""
    yield "width", "weights", "accuracy on the crowd's", "log-loss", "accuracy on experts'"
    for width in (64, 128, 256):
        base = lab.base(width)
        config = replace(lab.usual(), model=base)
        run = lab.trained(f"model-{width}", lab.compared("crowd", USUAL), config)
        own = lab.evaluated(run, lab.compared("crowd", TESTED, "validation"))
        expert = lab.evaluated(run, lab.compared("experts", TESTED, "validation"))
        weights = (base / "model.safetensors").stat().st_size // 4
        yield str(width), f"{weights / 1e6:.2f} M", share(own.accuracy), loss(own), share(expert.accuracy)


STUDIES: dict[str, Callable[[Lab], Table]] = {
    "experts": experts,
    "pools": pools,
    "flips": flips,
    "ensembles": ensembles,
    "models": models,
}
"""What can be asked for."""


def share(estimate: Estimate | None) -> str:
    """A share with its interval."""
    return (
        "–"
        if estimate is None
        else f"{estimate.value:.1%} ({estimate.low or 0:.1%}–{estimate.high or 0:.1%})"
    )


def loss(found: RewardEvaluation) -> str:
    """The log-loss."""
    return "–" if found.calibration is None else f"{found.calibration.log_loss:.3f}"


def _tested(lab: Lab, name: str, rows: Path, settings: RewardSettings, seed: int) -> RewardEvaluation:
    run = lab.trained(f"{name}-{seed}", rows, replace(lab.usual(), reward=settings, seed=seed))
    return lab.evaluated(run, lab.compared("experts", TESTED, "validation"))


def _means(found: Sequence[RewardEvaluation]) -> Iterator[str]:
    """Mean and range over the seeds."""
    for values in zip(*map(_figures, found), strict=True):
        yield f"{statistics.fmean(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def _figures(found: RewardEvaluation) -> tuple[float, float, float, float]:
    assert found.accuracy is not None
    assert found.calibration is not None
    assert found.margins is not None
    return found.accuracy.value, found.calibration.log_loss, found.calibration.brier, found.margins.mean


def _gap(row: tuple[float | None, ...]) -> float:
    first, second = row
    assert first is not None
    assert second is not None
    return first - second


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
