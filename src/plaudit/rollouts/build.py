"""The one place where samplers are made: of a model's folder, or of a policy while it is being trained."""

from __future__ import annotations

from pathlib import Path

from plaudit.models.load import DtypeName, Precision
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.process import ProcessSampler
from plaudit.rollouts.sampler import WeightsVersion
from plaudit.tokens.encode import Encoder


def sampler_of_folder(model: Path, *, device: str = "auto", dtype: DtypeName = "auto") -> LocalSampler:
    """The model of a folder, in this process; ``device`` is auto (a GPU where there is one), cpu or cuda."""
    return LocalSampler(model, device=device, dtype=dtype)


def sampler_of_policy(
    policy: Policy, encoder: Encoder, weights: WeightsVersion | None = None
) -> LocalSampler:
    """A policy in memory, which generates with the weights of the moment; ``weights`` counts their moves."""
    return LocalSampler.from_policy(policy, encoder, weights)


def process_of_policy(
    policy: Policy, model: Path, precision: Precision, weights: WeightsVersion
) -> ProcessSampler:
    """A process that loads the policy's folder, and is sent its weights whenever they have moved."""
    return ProcessSampler(
        model, device=str(policy.device), dtype=precision.products, policy=policy, weights=weights
    )
