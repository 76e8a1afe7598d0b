"""Familiar things that happen in policy optimisation, said in words when they happen.

Each sentence has a beginning by which it is known again, so that a run says it once, and names the page
that explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from plaudit.training.metrics import StepReport
from plaudit.training.policy_row import PolicyRow

PAGE = "docs/policy.md"
"""Where they are explained."""
SOME = 5
"""How many reports make a beginning or an end, at most."""


def remarks(row: PolicyRow, reports: Sequence[StepReport], *, adds_up: bool = False) -> Mapping[str, str]:
    """From the reports so far to sentences: how each begins, and how it goes on.

    ``adds_up`` says that every step of an answer is paid its own score.
    """
    return {
        **_nothing_to_lose(row, reports),
        **_below_zero(reports),
        **_collapsing(reports),
        **_flat(reports),
        **_cut(reports),
        **_growing(reports),
        **(_more_steps(reports) if adds_up else {}),
        **_undecided(reports),
        **_idle(reports),
        **_clipped(reports),
        **_blind(reports),
        **_gamed(reports),
    }


def _nothing_to_lose(row: PolicyRow, reports: Sequence[StepReport]) -> Mapping[str, str]:
    ratios, losses = _series("ratio", reports), _series("loss", reports)
    if not (row.compares or row.whiten) or row.divergence == "loss" or len(losses) < 2:
        return {}
    if any(abs(one - 1) > 1e-6 for one in ratios) or any(abs(one) > 0.02 for one in losses):
        return {}
    return {
        "the loss is close to 0": ", and that is expected: a round has one move, so every ratio is 1, and "
        f"the advantages of a round add up to 0. The gradient is not 0; look at the reward. {PAGE}#loss-0"
    }


def _below_zero(reports: Sequence[StepReport]) -> Mapping[str, str]:
    kls = _series("kl", reports)[-SOME:]
    if len(kls) < SOME or fmean(kls) + 3 * stdev(kls) / math.sqrt(SOME) >= -0.01:
        return {}
    return {
        "the KL is below 0": f" ({fmean(kls):.3f} nats an answer). A KL never is; its estimate from a few "
        "answers can be, and stays so where top-k, top-p or min-p leave tokens out when answers are drawn. "
        f"Draw from the whole distribution, or look at kl_k3. {PAGE}#kl-below-0"
    }


def _collapsing(reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _ends("entropy", reports)
    if not after < 0.3 * before:
        return {}
    return {
        "the entropy is collapsing": f" ({before:.2f} → {after:.2f} nats a token): the policy says the same "
        "again and again, and soon nothing is left to compare. Raise β, add --policy.entropy 0.01, clip "
        f"higher (--policy.clip-high 0.28), or lower the learning rate. {PAGE}#entropy"
    }


def _flat(reports: Sequence[StepReport]) -> Mapping[str, str]:
    shares = _series("flat", reports)[-SOME:]
    groups = _series("reward_std", reports)
    if not shares or not groups or not fmean(shares) > 0.6 or math.isclose(fmean(shares), 1.0):
        return {}
    return {
        "most prompts teach nothing": f": all answers have one score at {fmean(shares):.0%} of them, since "
        "they "
        "are too easy or too hard. Draw more answers, add --draw.unlike yes, or choose other prompts. "
        f"{PAGE}#flat"
    }


def _cut(reports: Sequence[StepReport]) -> Mapping[str, str]:
    ended = _series("finished", reports)[-SOME:]
    if not ended or not fmean(ended) < 0.5:
        return {}
    return {
        "most answers are cut": f": {1 - fmean(ended):.0%} do not come to an end within the longest length, "
        "and their scores are those of fragments. Raise --draw.max-tokens, or punish it with "
        f"--shape.missing-end. {PAGE}#cut"
    }


def _growing(reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _ends("length_mean", reports)
    if not after > 1.5 * before + 4:
        return {}
    return {
        "answers are growing longer": f" ({before:.0f} → {after:.0f} tokens). Where the reward likes length "
        "this is how it is gamed; compare the held-out judge, or charge for it with --shape.per-token. "
        f"{PAGE}#length"
    }


def _more_steps(reports: Sequence[StepReport]) -> Mapping[str, str]:
    (before, after), (_, score) = _ends("steps_mean", reports), _ends("step_score", reports)
    if not after > 1.5 * before + 1:
        return {}
    return {
        "answers have more and more steps": f" ({before:.1f} → {after:.1f}), of a mean score of {score:.2g}: "
        "payments of steps add up, so a further step is worth its score, whatever it is good for. Raise "
        f"--process.baseline, or pay changes with --process.pay min. {PAGE}#process-rewards"
    }


def _undecided(reports: Sequence[StepReport]) -> Mapping[str, str]:
    shares = _series("undecided", reports)[-SOME:]
    if not shares or not fmean(shares) > 0.2:
        return {}
    return {
        "the reward has no verdict": f" on {fmean(shares):.0%} of the answers; they are left out and count "
        f"as nothing, not as 0. Look at what it needs. {PAGE}#no-verdict"
    }


def _idle(reports: Sequence[StepReport]) -> Mapping[str, str]:
    idle = sum("reward" not in report.values for report in reports)
    if len(reports) < 2 * SOME or not 0.3 * len(reports) < idle < len(reports):
        return {}
    return {
        "many steps had nothing to learn from": f": {idle} of {len(reports)}. Their rounds were ended early "
        "(--policy.stop-at), or had no verdict, or only answers of one score where these are left out. "
        f"{PAGE}#nothing-to-learn"
    }


def _clipped(reports: Sequence[StepReport]) -> Mapping[str, str]:
    low, high = _series("clipped_low", reports)[-SOME:], _series("clipped_high", reports)[-SOME:]
    if not low or not high or not fmean(low) + fmean(high) > 0.4:
        return {}
    return {
        "many tokens are clipped": f" ({fmean(low) + fmean(high):.0%}): rounds move further than they may, "
        f"and the rest of a round is wasted. Lower the learning rate or --policy.epochs. {PAGE}#clipped"
    }


def _blind(reports: Sequence[StepReport]) -> Mapping[str, str]:
    explained = _series("explained", reports)
    if len(explained) < 2 * SOME or not fmean(explained[-SOME:]) < 0:
        return {}
    return {
        "the critic explains nothing": f" (explained variance {fmean(explained[-SOME:]):.2f}): a constant "
        "would "
        "do better, and advantages are noise. Raise --critic.rate, begin it as a reward model, or do "
        f"without: grpo, rloo. {PAGE}#critic"
    }


def _gamed(reports: Sequence[StepReport]) -> Mapping[str, str]:
    proxy, judge = _series("held_out/reward", reports), _series("held_out/judge", reports)
    if len(judge) < 3 or len(proxy) != len(judge):
        return {}
    best = max(range(len(judge)), key=lambda look: judge[look])
    fallen = best < len(judge) - 2 and judge[-1] < judge[best] and judge[-2] < judge[best]
    if not fallen or not proxy[-1] > proxy[best]:
        return {}
    return {
        "the reward is being gamed": f": it rises on held-out prompts ({proxy[best]:.3g} → {proxy[-1]:.3g}) "
        "while "
        f"the judge falls ({judge[best]:.3g} → {judge[-1]:.3g}). The model of the best look is kept, "
        f"unless judge.chooses is off; raise β, or mend the reward. {PAGE}#over-optimisation"
    }


def _ends(name: str, reports: Sequence[StepReport]) -> tuple[float, float]:
    """The means of the first and the last figures; not numbers while there are too few."""
    found = _series(name, reports)
    few = min(SOME, len(found) // 2)
    return (fmean(found[:few]), fmean(found[-few:])) if few else (math.nan, math.nan)


def _series(name: str, reports: Sequence[StepReport]) -> list[float]:
    values = [float(report.values[name]) for report in reports if name in report.values]
    return [value for value in values if math.isfinite(value)]
