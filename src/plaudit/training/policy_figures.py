"""What is reported of a round of answers before anything is learnt from it."""

from __future__ import annotations

import math

from torch import Tensor

from plaudit.losses.divergence import k3
from plaudit.losses.ratio import log_ratio, of_completion
from plaudit.losses.value import explained_variance
from plaudit.tensors.masked import masked_mean
from plaudit.training.collect import Collected
from plaudit.training.metrics import Metric, largest, mean
from plaudit.training.policy_round import Told
from plaudit.training.policy_row import Facts, PolicyRow
from plaudit.training.policy_steps import step_figures

DISTANCES = ("kl", "kl_k3", "kl_root")
"""The distance from the reference, by answers that the policy drew."""


def gap_figures(old_NT: Tensor, drawn_NT: Tensor, mask_NT: Tensor) -> tuple[Metric, ...]:
    """How far sampler and trainer are apart."""
    apart_NT = (old_NT - drawn_NT).abs().masked_fill(~mask_NT, 0.0)
    average = mean("sampler_gap", float(masked_mean(apart_NT, mask_NT)), 1)
    return average, largest("sampler_gap_max", float(apart_NT.max()))


def round_figures(
    row: PolicyRow, facts: Facts, told: Told, collected: Collected, drawn_NT: Tensor
) -> tuple[Metric, ...]:
    """What is reported of the round; the same on every rank, so all are means."""
    mask_NT, length_N = facts.mask_NT, facts.mask_NT.sum(-1)
    scores = collected.scores[: collected.fresh]
    found = {
        "reward": float(scores.mean()),
        "reward_std": float(scores.std(unbiased=False)),
        **_part_figures(collected),
        **step_figures(collected),
        "entropy": -float(masked_mean(drawn_NT, mask_NT)),
        "length_mean": float(length_N.double().mean()),
        "finished": float(facts.finished_N.double().mean()),
        "undecided": collected.undecided / collected.drawn,
        "flat": collected.flat / len(collected.seen),
        "dropped": 1 - len(collected.groups) / len(collected.seen),
        "replayed": len(collected.again) / len((*collected.groups, *collected.again)),
        "advantage_std": float(told.advantage_NT[mask_NT].std(unbiased=False)),
    }
    if row.referenced:
        shift_NT = log_ratio(told.old_logp_NT, told.ref_logp_NT, mask_NT)
        kl = float(of_completion(shift_NT, mask_NT).mean())
        sure = float(of_completion(k3(shift_NT), mask_NT).mean())
        found |= {
            "kl": kl,
            "kl_k3": sure,
            "kl_root": math.sqrt(max(0.0, sure)),
            "beta": float(facts.beta),
        }
    if row.duels:
        preferred_N = (facts.score_N - facts.rival_N).sigmoid()
        found["preferred"] = float(preferred_N[: collected.fresh].mean())
    if row.critic:
        found["value"] = float(masked_mean(told.value_NT, mask_NT))
        found["explained"] = float(explained_variance(told.value_NT, told.return_NT, mask_NT))
    return (
        *(mean(name, value, 1) for name, value in found.items()),
        largest("length_max", int(length_N.max())),
    )


def _part_figures(collected: Collected) -> dict[str, float]:
    """The mean of each part of the reward, over the answers that it has a verdict on."""
    names = dict.fromkeys(name for group in collected.groups for name in group.parts)
    found: dict[str, float] = {}
    for name in names:
        said = [x for group in collected.groups for x in group.parts.get(name, ()) if x is not None]
        found[f"reward/{name}"] = math.fsum(said) / len(said) if said else math.nan
    return found
