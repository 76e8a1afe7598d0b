"""What preference optimisation makes of a model on the embedded world: tables for docs/preference.md.

    python -m benchmarks.world_preferences --out lab              # every study; begun again, it goes on
    python -m benchmarks.world_preferences --out lab --only betas # one of them

A fine-tuned model answers the world's prompts twice, a pool of annotators compares the answers, a policy
learns from that, and the world's truth says how often it is better than the model that it began as. The
start is fine-tuned on few demonstrations, so that there is something left to learn.
"""

from __future__ import annotations

import json
from dataclasses import replace

from benchmarks.intervals import numbers, shares
from benchmarks.lab import Lab
from benchmarks.preference_lab import RATE, SHOWN, Way, config_of, found, mean_length, sampled_answers
from benchmarks.studies import Table, run_studies
from plaudit.lab.world.exam import mean_utilities
from plaudit.methods.config import ReferenceSettings

SEEDS = 3
"""Runs of each kind: other answers, other annotators' turns, another order."""
BETA = 0.3
"""DPO's β, from the study of choices."""


def choices(lab: Lab) -> Table:
    """Settings on the validation split, from which the other studies' come; DPO's on several seeds."""
    yield "algorithm", "β", "rate", "runs", "better, of those that differ", "utility"
    for way, seeds in CANDIDATES:
        runs = [found(lab, way, seed, "validation") for seed in range(seeds)]
        settings = way.settings
        beta = f"{settings['beta']:g}" if "beta" in settings else f"λ {settings['orpo_lambda']:g}"
        yield (
            f"{way.algorithm}{' on thumbs' if way.thumbs else ''}{' from base' if way.from_base else ''}",
            beta,
            f"{way.rate:g}",
            str(seeds),
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
        )


def whose(lab: Lab) -> Table:
    """DPO from comparisons of the model's own answers, and of others in the manner of the corpus."""
    yield "answers compared", "better, of those that differ", "utility", "log π of preferred"
    for name, own in (("the model's own", True), ("in the manner of the corpus", False)):
        runs = [found(lab, replace(WAYS["DPO"], own=own), seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.chosen for run in runs], 2),
        )


def algorithms(lab: Lab) -> Table:
    """From the same fine-tuned model and 2,000 comparisons by the crowd."""
    yield (
        "algorithm",
        "β",
        "rate",
        "better, of those that differ",
        "with ties as halves",
        "utility",
        "length",
        "log π of preferred",
    )
    start = sampled_answers(lab, lab.sft_model(SHOWN))
    yield (
        "(the start)",
        "",
        "",
        "",
        "",
        f"{mean_utilities(start)['all'].mean:.3f}",
        f"{mean_length(start):.1f}",
        "",
    )
    for name, way in WAYS.items():
        runs = [found(lab, way, seed) for seed in range(lab.seeds or SEEDS)]
        beta = f"{way.settings['beta']:g}" if "beta" in way.settings else ""
        yield (
            name,
            beta,
            f"{way.rate:g}",
            shares([run.won for run in runs]),
            shares([run.with_ties for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.length for run in runs], 1),
            numbers([run.chosen for run in runs], 2),
        )


def betas(lab: Lab) -> Table:
    """DPO by β, the learning rate being the same."""
    yield "β", "better, of those that differ", "utility", "distance from the reference", "log π of preferred"
    for beta in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        way = Way(algorithm="dpo", settings={"beta": beta})
        runs = [found(lab, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            f"{beta:g}",
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.kl for run in runs], 2),
            numbers([run.chosen for run in runs], 2),
        )


def noise(lab: Lab) -> Table:
    """Labels of which a share is swapped; cDPO and robust DPO are told which share."""
    yield "algorithm", "0 % swapped", "20 % swapped", "40 % swapped"
    for name in ("dpo", "cdpo", "robust-dpo", "ipo"):
        cells: list[str] = []
        for flipped in (0.0, 0.2, 0.4):
            knows_share = name in ("cdpo", "robust-dpo") and flipped > 0
            algorithm = name if flipped or name == "ipo" else "dpo"
            settings = WAYS["IPO"].settings if name == "ipo" else {"beta": BETA}
            way = Way(
                algorithm=algorithm,
                settings={**settings, "label_smoothing": flipped} if knows_share else settings,
                rate=WAYS["IPO"].rate if name == "ipo" else RATE,
                flipped=flipped,
            )
            cells.append(shares([found(lab, way, seed).won for seed in range(lab.seeds or SEEDS)]))
        yield name, *cells


def length(lab: Lab) -> Table:
    """Annotators who love length, and rows that do not."""
    yield "algorithm", "tokens an answer", "better, of those that differ", "utility"
    start = sampled_answers(lab, lab.sft_model(SHOWN))
    yield "(the start)", f"{mean_length(start):.1f}", "", f"{mean_utilities(start)['all'].mean:.3f}"
    for name in ("DPO", "R-DPO", "LD-DPO", "DPO-norm", "SimPO"):
        way = replace(LENGTH_WAYS[name], annotators="length-lovers")
        runs = [found(lab, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            numbers([run.length for run in runs], 1),
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
        )


def references(lab: Lab) -> Table:
    """What the reference is: the start, one that follows, or the last result."""
    yield "reference", "better, of those that differ", "utility", "log π of preferred"
    for name, algorithm in (
        ("the start (dpo)", "dpo"),
        ("moving every 64 steps (tr-dpo)", "tr-dpo"),
        ("two parts, each result the next reference (sdpo)", "sdpo"),
    ):
        way = Way(algorithm=algorithm, settings={"beta": BETA})
        runs = [found(lab, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.chosen for run in runs], 2),
        )


def precomputing(lab: Lab) -> Table:
    """What it costs to ask the reference at each step, and what is saved by asking it once; three epochs."""
    yield "reference", "whole run, s", "its steps, s", "most memory, MiB"
    cache = ReferenceSettings(cache=lab.folder / "cache" / "fresh")
    for name, settings in (
        ("beside the policy", ReferenceSettings(kind="live")),
        ("computed before", cache),
        ("found on disk", cache),
    ):
        config = replace(config_of(lab, Way(algorithm="dpo"), 0), reference=settings)
        run = lab.preferred(f"precomputing-{name.replace(' ', '-')}", "dpo", config)
        timing = json.loads((run / "summary.json").read_text("utf-8"))["timing"]
        whole = float((run / "finished").read_text("utf-8"))
        yield name, f"{whole:.1f}", f"{timing['seconds']:.1f}", f"{timing['memory_mib']:.0f}"


WAYS = {
    "DPO": Way(algorithm="dpo", settings={"beta": BETA}),
    "IPO": Way(algorithm="ipo", settings={"beta": 0.1}),
    "KTO, each comparison two thumbs": Way(algorithm="kto", settings={"beta": 0.1}, rate=5e-5),
    "KTO, 4,000 thumbs": Way(algorithm="kto", settings={"beta": 0.1}, thumbs=True),
    "BCO, 4,000 thumbs": Way(algorithm="bco", settings={"beta": 0.1}, thumbs=True),
    "APO-zero": Way(algorithm="apo-zero", settings={"beta": 0.1}, rate=5e-5),
    "NCA": Way(algorithm="nca", settings={"beta": 0.1}),
    "CPO": Way(algorithm="cpo", settings={"beta": 0.1}),
    "SimPO": Way(algorithm="simpo", settings={"beta": 2.0, "gamma": 1.0}),
    "ORPO": Way(algorithm="orpo", settings={"orpo_lambda": 1.0}),
    "ORPO from base": Way(algorithm="orpo", settings={"orpo_lambda": 0.1}, from_base=True, rate=5e-4),
    "SimPO from base": Way(
        algorithm="simpo", settings={"beta": 2.0, "gamma": 1.0}, from_base=True, rate=2e-4
    ),
}
"""The rows of the first table."""
LENGTH_WAYS = {
    "DPO": WAYS["DPO"],
    "R-DPO": Way(algorithm="r-dpo", settings={"beta": BETA, "length_alpha": 1.0}),
    "LD-DPO": Way(algorithm="ld-dpo", settings={"beta": BETA, "ld_alpha": 0.0}),
    "DPO-norm": Way(algorithm="dpo-norm", settings={"beta": 1.0}),
    "SimPO": WAYS["SimPO"],
}
"""The rows of the table about length."""
CANDIDATES = (
    *(
        (Way(algorithm="dpo", settings={"beta": beta}, rate=rate), SEEDS)
        for beta, rate in ((0.1, RATE), (0.3, RATE), (0.1, RATE / 2))
    ),
    *(
        (Way(algorithm=name, settings=settings, rate=rate), 1)
        for name, settings in (
            ("ipo", {"beta": 0.1}),
            ("ipo", {"beta": 0.3}),
            ("kto", {"beta": 0.1}),
            ("apo-zero", {"beta": 0.1}),
            ("nca", {"beta": 0.1}),
            ("cpo", {"beta": 0.1}),
            ("simpo", {"beta": 2.0, "gamma": 1.0}),
            ("orpo", {"orpo_lambda": 0.1}),
            ("orpo", {"orpo_lambda": 1.0}),
        )
        for rate in (RATE / 2, RATE, 2 * RATE)
    ),
    *(
        (Way(algorithm=name, settings={"beta": 0.1}, thumbs=True, rate=rate), 1)
        for name in ("kto", "bco")
        for rate in (RATE / 2, RATE, 2 * RATE)
    ),
    *(
        (Way(algorithm=name, settings=settings, from_base=True, rate=rate), 1)
        for name, settings, rate in (
            ("orpo", {"orpo_lambda": 0.1}, 5e-4),
            ("orpo", {"orpo_lambda": 1.0}, 5e-4),
            ("simpo", {"beta": 2.0, "gamma": 1.0}, 2e-4),
        )
    ),
)
"""Settings that are compared on the validation split, and on how many seeds."""
STUDIES = {
    "choices": choices,
    "whose": whose,
    "algorithms": algorithms,
    "betas": betas,
    "noise": noise,
    "length": length,
    "references": references,
    "precomputing": precomputing,
}


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
