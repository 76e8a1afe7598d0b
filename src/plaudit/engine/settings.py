"""What every trainer can be told, as frozen records; importing this does not import torch."""

from dataclasses import dataclass
from typing import Literal

from plaudit.bounds import BelowOne, Count, FromOne, FromZero, NotNegative, Share, check_bounds
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """How weights move.

    Example: ``OptimizerSettings(schedule="linear", warmup=0.03)``
    """

    name: str = "adamw"
    """adamw, sgd, or your own as package.module:function."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the rate falls after the warm-up."""
    warmup: FromZero = 0.03
    """Warm-up: a share of all steps when below 1, else a number of steps."""
    floor: Share = 0.1
    """The last rate, as a share of the peak."""
    weight_decay: FromZero = 0.0
    """Decoupled weight decay of matrices."""
    beta1: BelowOne = 0.9
    """AdamW's first decay, SGD's momentum."""
    beta2: BelowOne = 0.999
    """AdamW's second decay."""
    eps: FromZero = 1e-8
    """AdamW's epsilon."""
    state: Literal["float32", "bfloat16", "float8"] = "float32"
    """Numbers of AdamW's two moments, rounded by chance; bfloat16 is half of the memory, float8 a quarter."""
    clip: NotNegative = 1.0
    """The gradient is scaled down to this norm; 0 leaves it alone."""

    def __post_init__(self) -> None:
        check_bounds(self, "optimizer")
        if self.state != "float32" and self.name != "adamw":
            raise UserError(f"optimizer.state {self.state} is for adamw, and optimizer.name is {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """What to do when a number is not finite.

    Example: ``SafetySettings(on_nonfinite="skip", skip_limit=3)``
    """

    on_nonfinite: Literal["raise", "skip", "rollback"] = "raise"
    """Stop and name the rows; or leave the step out; or go back to the last checkpoint without them."""
    skip_limit: Count = 5
    """More steps than this are not left out or rolled back: the run stops."""

    def __post_init__(self) -> None:
        check_bounds(self, "safety")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How a batch is laid out and divided; none of it changes a gradient.

    Example: ``MemorySettings(tokens_at_once=4096, checkpointing=True)``
    """

    layout: Literal["packed", "left", "right"] = "packed"
    """Packed end to end without padding, or padded on one side."""
    tokens_at_once: FromOne = 8192
    """A batch goes through the model in micro-batches of at most so many tokens (one longer row is one)."""
    checkpointing: bool | None = None
    """Keep each layer's input alone and compute the rest again; none: where a GPU has no room otherwise."""
    keep_products: bool = False
    """With checkpointing: results of matrix products and attention stay too, so that little is done twice."""
    attention: str | None = None
    """What padded batches and sampling attend with (sdpa, eager, flash_attention_2)."""

    def __post_init__(self) -> None:
        check_bounds(self, "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepSettings:
    """Which checkpoints stay.

    Example: ``KeepSettings(last=2, best="held_out/loss", best_is="lowest")``
    """

    last: FromOne = 2
    """How many of the newest stay."""
    best: str = "held_out/loss"
    """The metric by which the best one is chosen; it stays too, and becomes the model."""
    best_is: Literal["lowest", "highest"] = "lowest"
    """Whether small or large values are good."""
    use_best: bool | None = None
    """Whether model/ is the best checkpoint's and not the last one's; none: of a reward model, where the
    last one is worse beyond noise."""
    patience: Count = 0
    """Looks at held-out rows without a better value after which the run ends; 0: it goes to its end."""
    background: bool | None = None
    """Write checkpoints while the run goes on, from a copy; none: where weights are divided."""

    def __post_init__(self) -> None:
        check_bounds(self, "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedSettings:
    """What DeepSpeed divides over the processes, and where it keeps that; read with ``--engine deepspeed``.
    Example: ``DeepSpeedSettings(stage=3, offload=True)``."""

    stage: Literal[2, 3] = 2
    """ZeRO stage: 2 divides gradients and the optimiser's state, 3 the weights as well."""
    offload: bool = False
    """Keep the optimiser's state, and with stage 3 the weights, in the memory of the CPU."""
