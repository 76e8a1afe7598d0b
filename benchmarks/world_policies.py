"""What policy optimisation makes of a model on the embedded world: tables for docs/policy.md.

    python -m benchmarks.world_policies --out lab              # every study; begun again, it goes on
    python -m benchmarks.world_policies --out lab --only betas # one of them

A fine-tuned model answers the world's prompts twice, a pool of annotators compares the answers, a reward
model learns from that, a policy learns from the reward model, and the world's truth says how often it is
better than the model that it began as.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.intervals import numbers, shares
from benchmarks.lab import Lab
from benchmarks.policy_lab import GOLD, Found, Way, found, surest
from benchmarks.policy_rewards import MEMBERS, taught_reward
from benchmarks.preference_lab import SHOWN, mean_length, sampled_answers
from benchmarks.studies import Table, run_studies
from benchmarks.tilting import Tilt, deviation, drawn_tasks, right_of_pairs, scores_PN, tilted
from plaudit.lab.world.exam import mean_utilities
from plaudit.rewards.registry import resolve_reward

SEEDS = 3
"""Runs of each kind: other comparisons, another reward model, another order."""
HELD, LOOSE = {"kl_coef": 0.5}, {"kl_coef": 0.3}
"""Leashes for rewards of about one point from bad to good."""
ONE_MOVE = {"minibatches": 1}
"""As many moves a round as the others make, where an algorithm's own default is its paper's many."""
WAYS = {
    "PPO": Way(algorithm="ppo", rate=2e-4, settings=HELD),
    "TRPO": Way(algorithm="trpo", rate=2e-4, settings=HELD),
    "A2C": Way(algorithm="a2c", rate=6e-4, settings=LOOSE),
    "REINFORCE": Way(algorithm="reinforce", rate=6e-4, settings=LOOSE),
    "RLOO": Way(algorithm="rloo", rate=6e-4, settings=LOOSE),
    "GRPO": Way(algorithm="grpo", rate=3e-4, settings=HELD),
    "Dr. GRPO": Way(algorithm="dr-grpo", rate=3e-4, settings=ONE_MOVE),
    "DAPO": Way(algorithm="dapo", rate=2e-4, settings=ONE_MOVE),
}
"""The algorithms that are compared, and their settings."""


def algorithms(lab: Lab) -> Table:
    """From the same fine-tuned model and reward models of 2,000 comparisons by the crowd."""
    yield (
        "algorithm",
        "better, of those that differ",
        "utility",
        "of the likeliest",
        "reward",
        "KL",
        "length",
        "seconds",
    )
    model = lab.sft_model(SHOWN)
    start = sampled_answers(lab, model)
    worth = (f"{mean_utilities(start)['all'].mean:.3f}", f"{surest(lab, model):.3f}")
    yield "(the start)", "", *worth, "", "0", f"{mean_length(start):.1f}", ""
    for name, way in WAYS.items():
        runs = [found(lab, way.algorithm, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.surest for run in runs], 3),
            numbers([run.evaluations[-1].proxy for run in runs], 2),
            numbers([run.evaluations[-1].root ** 2 for run in runs], 2),
            numbers([run.length for run in runs], 1),
            f"{statistics.fmean(run.seconds for run in runs):.0f}",
        )


def betas(lab: Lab) -> Table:
    """PPO by the coefficient of the KL in its reward."""
    yield "β", "better, of those that differ", "utility", "reward", "KL"
    for beta in (0.001, 0.02, HELD["kl_coef"]):
        way = replace(WAYS["PPO"], settings={"kl_coef": beta})
        name = way.algorithm if way == WAYS["PPO"] else f"{way.algorithm}-beta{beta:g}"
        runs = [found(lab, name, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            f"{beta:g}",
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.evaluations[-1].proxy for run in runs], 2),
            numbers([run.evaluations[-1].root ** 2 for run in runs], 2),
        )


def rewards(lab: Lab) -> Table:
    """PPO by what it learns from; all of it was taught by the same comparisons."""
    yield "reward", "β", "better, of those that differ", "utility", "of the likeliest", "KL", "length"
    for name, way in BY_REWARD.items():
        called = way.algorithm if way == WAYS["PPO"] else f"{way.algorithm}-by-{way.taught}"
        runs = [found(lab, called, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            f"{way.settings['kl_coef']:g}",
            shares([run.won for run in runs]),
            numbers([run.gold for run in runs], 3),
            numbers([run.surest for run in runs], 3),
            numbers([run.evaluations[-1].root ** 2 for run in runs], 2),
            numbers([run.length for run in runs], 1),
        )


BY_REWARD = {
    f"the mean of {MEMBERS} reward models": WAYS["PPO"],
    "implicit: a DPO run's log-ratios": replace(WAYS["PPO"], taught="implicit", settings={"kl_coef": 0.15}),
    "both": replace(WAYS["PPO"], taught="both", settings={"kl_coef": 0.2}),
}
"""Rewards of unlike loudness, so each with a leash of its own."""


def optima(lab: Lab) -> Table:
    """What the exact optimum of E r − β KL is worth: no optimiser can aim at more with this reward."""
    tilts = [f"β {share:g} σ: utility, KL" for share in TILTS]
    yield "reward", "right, of pairs that differ", "its σ among answers to a prompt", *tilts
    tasks = drawn_tasks(lab.sampler(lab.sft_model(SHOWN)), "validation")
    worth = scores_PN(resolve_reward(GOLD), tasks)
    folders = [taught_reward(lab, "models", seed) for seed in range(lab.seeds or SEEDS)]
    for name, words in {
        "the truth": [GOLD],
        "one reward model": [str(folder / "members" / "0" / "model") for folder in folders],
        f"the mean of {MEMBERS} reward models": [str(folder) for folder in folders],
        "implicit": [str(taught_reward(lab, "implicit", seed)) for seed in range(lab.seeds or SEEDS)],
        "both": [str(taught_reward(lab, "both", seed)) for seed in range(lab.seeds or SEEDS)],
    }.items():
        scores_of_words = [scores_PN(resolve_reward(word), tasks) for word in words]
        loud = [deviation(scores) for scores in scores_of_words]
        pairs = list(zip(scores_of_words, loud, strict=True))
        yield (
            name,
            shares([right_of_pairs(scores, worth) for scores in scores_of_words]),
            f"{statistics.fmean(loud):.2f}",
            *(_at_best([tilted(scores, worth, share * pair) for scores, pair in pairs]) for share in TILTS),
        )


TILTS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Each β of that study, in deviations of the reward: only their quotient matters."""


def _at_best(found: Sequence[Tilt]) -> str:
    utility, kl = (statistics.fmean(getattr(item, name) for item in found) for name in ("utility", "kl"))
    return f"{utility:.3f}, {kl:.2f}"


def ladder(lab: Lab) -> Table:
    """From GRPO to DAPO, a step at a time, on arithmetic that can be checked."""
    yield "row", "right, of held-out sums", "length", "KL"
    plain = {"divergence": "none"}
    higher = {**plain, "clip_low": 0.2, "clip_high": 0.28}
    unlike = {**higher, "dynamic_sampling": True}
    rungs = {
        "grpo": Way(algorithm="grpo"),
        "without a KL": Way(algorithm="grpo", settings=plain),
        "+ clip-higher": Way(algorithm="grpo", settings=higher),
        "+ unlike groups only": Way(algorithm="grpo", settings=unlike),
        "+ token mean": Way(algorithm="grpo", settings={**unlike, "reduction": "tokens"}),
        "+ soft overlong (dapo)": Way(algorithm="dapo", settings=ONE_MOVE),
    }
    for name, rung in rungs.items():
        way = replace(rung, reward="number", category="arithmetic", rate=2e-4, longest=32)
        called = f"ladder-{name.strip('+ ').replace(' ', '-')}"
        runs = [found(lab, called, way, seed) for seed in range(lab.seeds or SEEDS)]
        yield name, *_last(runs)


def _last(runs: Sequence[Found]) -> tuple[str, ...]:
    last = [run.evaluations[-1] for run in runs]
    return (
        shares([evaluation.proxy for evaluation in last]),
        numbers([evaluation.length for evaluation in last], 1),
        numbers([evaluation.root**2 for evaluation in last], 2),
    )


def lengths(lab: Lab) -> Table:
    """GRPO's reductions where answers that are wrong are long: what becomes of their length."""
    yield "row", "right, of held-out sums", "length", "KL"
    for name in ("grpo", "dr-grpo"):
        settings = {"divergence": "none", "update_epochs": 2, **ONE_MOVE}
        way = Way(algorithm=name, settings=settings, reward="number", category="arithmetic", rate=2e-4)
        runs = [
            found(lab, f"lengths-{name}", replace(way, longest=32), seed)
            for seed in range(lab.seeds or SEEDS)
        ]
        yield name, *_last(runs)


STUDIES = {
    "policies": algorithms,
    "policy-betas": betas,
    "rewards": rewards,
    "optima": optima,
    "ladder": ladder,
    "lengths": lengths,
}
"""Every table."""


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
