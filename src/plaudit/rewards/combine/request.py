"""A combination of rewards as it was asked for, and the folder that it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSettings:
    how: Literal["mean", "min", "cautious", "weighted", "gated", "implicit"] = "mean"
    """What the members say together; implicit: β (log π − log π_ref) of a policy and its reference,
    or β log π of a policy alone."""
    members: tuple[str, ...] = ()
    """The rewards that are combined."""
    weights: tuple[float, ...] = ()
    """weighted: one for each member."""
    k: float | None = None
    """cautious: how many deviations are taken off; none: 1."""
    gate: int | None = None
    """gated: which of two members decides, 0 or 1."""
    below: float | None = None
    """gated: under this score the gate's own is what counts."""
    normalise: Path | None = None
    """Rows on whose answers each reward is brought to mean 0 and deviation 1 first; none: as they are."""
    policy: Path | None = None
    """implicit: the policy that was trained."""
    reference: Path | None = None
    """implicit: what it began as; none: likelihood alone is the reward."""
    beta: float | None = None
    """implicit: that of its training; none: 0.1."""
    device: str = "auto"
    """Where rewards score the rows of normalise: cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""

    def __post_init__(self) -> None:
        implicit = self.how == "implicit"
        if implicit and self.policy is None:
            raise UserError("how implicit needs a policy")
        if implicit == bool(self.members):
            raise UserError(f"how {self.how} is made of {'policies' if implicit else 'members'}")
        of_one_way = {"weights": "weighted", "k": "cautious", "gate": "gated", "below": "gated"}
        unread = ("members", "normalise") if implicit else ("policy", "reference", "beta")
        for name in (*unread, *(name for name, how in of_one_way.items() if how != self.how)):
            if getattr(self, name) not in (None, ()):
                raise UserError(f"{name} says nothing to how {self.how}; leave it out")
        if self.how == "gated" and (self.gate not in (0, 1) or self.below is None or len(self.members) != 2):
            raise UserError("how gated takes two members, gate (0 or 1) and below, a score of the gate")
        if self.how == "weighted" and len(self.weights) != len(self.members):
            raise UserError(f"{len(self.members)} members want as many weights, not {len(self.weights)}")

    @property
    def scale(self) -> float:
        return 0.1 if self.beta is None else self.beta

    @property
    def deviations(self) -> float | None:
        return 1.0 if self.how == "cautious" and self.k is None else self.k


def write_combination(settings: CombineSettings, folder: Path) -> None:
    """Write the combination of these members, each of which is a reward that can be loaded."""
    from plaudit.rewards.combine.aggregate import Combination
    from plaudit.rewards.combine.manifest import save_combination
    from plaudit.rewards.load import check_reward, fit_reward_normalisations

    assert settings.how != "implicit", "that one is made by write_implicit"
    members = [Path(member) for member in settings.members]
    for member in members:
        check_reward(member)
    normalise, weights = settings.normalise, settings.weights or None
    normal = None
    if normalise is not None:
        normal = fit_reward_normalisations(members, normalise, device=settings.device)
    k = settings.deviations
    combination = Combination(
        how=settings.how, weights=weights, k=k, gate=settings.gate, below=settings.below, normal=normal
    )
    save_combination(folder, members, combination)


def write_implicit(settings: CombineSettings, folder: Path, names: Sequence[str] = ()) -> str:
    """Write the reward that a policy has learned; returns its formula, with these names of the policies."""
    from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
    from plaudit.rewards.load import check_implicit

    assert settings.policy is not None, "refused when the settings were made"
    policies = ImplicitManifest(policy=settings.policy, reference=settings.reference, beta=settings.scale)
    check_implicit(policies)
    save_manifest(folder, policies)
    return policies.describe(*names)
