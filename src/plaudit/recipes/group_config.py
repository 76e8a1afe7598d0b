"""All that ``plaudit train group`` can be told; importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig, SampleSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What a group shows of itself, and the shape of the module that looks at it.

    Example: ``GroupSettings(held_out=("pilots",), most=16)``
    """

    held_out: tuple[str, ...] = ()
    """Groups that are never trained, by name; none: a share of them, as --held-out says."""
    least: int = 0
    """Fewest comparisons of a group that are shown; with 0 it also learns what groups prefer in general."""
    most: int = 32
    """Most comparisons that are shown."""
    targets: int = 32
    """Most comparisons that are asked about at once."""
    width: int = 64
    """Size of a point inside the module."""
    layers: int = 3
    """How many times points look at each other."""
    heads: int = 4
    """In how many ways at once."""

    def __post_init__(self) -> None:
        """Refuse what nothing could be learnt from."""
        if not 0 <= self.least <= self.most:
            raise UserError(f"group.least {self.least}, group.most {self.most}: take 0 ≤ least ≤ most")
        for name in ("targets", "width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise UserError(f"group.{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(RunConfig):
    """A run that learns how groups of people differ; the model folder stays as it is and embeds answers.

    Example: ``GroupConfig(model=Path("base"), data=Path("pairs.jsonl"), out=Path("runs/groups"))``
    """

    learning_rate: float = 1e-3
    """The peak learning rate."""
    epochs: float = 10.0
    """How many episodes: so many times as there are comparisons."""
    held_out: str = "0.2"
    """The share of the groups that is never trained, at least one; 0 for none."""
    group: GroupSettings = field(default_factory=GroupSettings)
    """What a group shows, and the module."""

    def __post_init__(self) -> None:
        """Refuse what this kind of run does not do."""
        # A dataclass with slots is made anew, and a bare super() would still mean the one before.
        RunConfig.__post_init__(self)
        if self.lora.rank or self.shard:
            raise UserError(
                "a group run trains a small module beside a frozen model: leave out lora and shard"
            )
        if self.sample != SampleSettings():
            raise UserError("a group run has nothing to say: leave out the settings of sample")
        if self.held_out_share is None:
            raise UserError(f"held_out is the share of the groups that is held out, not {self.held_out}")
