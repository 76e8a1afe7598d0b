"""What a model can be told before it is loaded; importing this does not import torch."""

from dataclasses import dataclass
from typing import Literal

from plaudit.bounds import BelowOne, Count, check_bounds
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """How much may be learnt beside frozen weights, and where.

    Example: ``LoraSettings(rank=16, alpha=32)``
    """

    rank: Count = 0
    """Rank of the update of each matrix; 0 trains the weights themselves."""
    alpha: Count = 0
    """The update is scaled by alpha / rank; 0 stands for twice the rank."""
    dropout: BelowOne = 0.0
    """The share of an adapter's inputs that each training pass leaves out (sft, reward, their relatives)."""
    targets: str = "all-linear"
    """Which layers: all-linear, or names separated by commas (q_proj,v_proj)."""
    keep: bool = False
    """Where --model is an adapter: train its own matrices on, in place of merging them first."""
    base: Literal["auto", "4bit"] = "auto"
    """The frozen weights: as --dtype says, or 4bit (NF4), in a quarter of the memory."""

    def __post_init__(self) -> None:
        """Refuse 4 bits for weights that learn, and dropout where there are no adapters."""
        check_bounds(self, "lora")
        if self.base == "4bit" and self.keep:
            raise UserError(
                "lora.base 4bit with lora.keep is not supported: leave one of them out; without lora.keep "
                "the adapter is merged into its base first"
            )
        if self.dropout and not (self.rank or self.keep):
            raise UserError("lora.dropout is of adapters: add --lora.rank 16, or leave it out")
        if self.base == "4bit" and not self.rank:
            raise UserError(
                "lora.base 4bit: weights in 4 bits cannot learn, only adapters beside them can: add "
                "--lora.rank 16, or leave it out"
            )
