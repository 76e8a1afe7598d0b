"""What a model can be told before it is loaded, and how it answers; importing this does not import torch."""

import math
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How the next token is chosen, and for how long.

    Example: ``SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=64, seed=1)``
    """

    temperature: int | float = 1.0
    """Scores are divided by it: below 1 is bolder, above 1 wilder, 0 always takes the likeliest token."""
    top_k: int = 0
    """Only so many of the likeliest tokens are drawn; 0 is all of them."""
    top_p: int | float = 1.0
    """Only the likeliest tokens are drawn, as few as together have this probability; 1 is all of them."""
    min_p: int | float = 0.0
    """Only tokens at least so likely are drawn, as a share of the likeliest one; 0 is all of them."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut."""
    stop: tuple[str, ...] = ()
    """An answer ends before any of these; several can be given."""
    seed: int = 0
    """Where chance begins: the same seed gives the same answers."""

    def __post_init__(self) -> None:
        """Refuse values outside their ranges."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"temperature {self.temperature}: expected 0 (the likeliest token) or more")
        if self.top_k < 0:
            raise UserError(f"top_k {self.top_k}: expected 1 or more, or 0 for every token")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: expected a share above 0 and at most 1 (1 is every token)")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p {self.min_p}: expected a share from 0 (every token) to 1")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens {self.max_tokens}: expected 1 or more")
        if "" in self.stop:
            raise UserError("stop: an empty string would end every answer before it begins")

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0

    @property
    def is_unrestricted(self) -> bool:
        """Whether every token of the vocabulary can be sampled: no greedy, top-k, top-p or min-p."""
        return not self.greedy and self.top_k == 0 and self.top_p == 1 and self.min_p == 0
