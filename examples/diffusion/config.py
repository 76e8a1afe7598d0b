"""Settings of the runs that teach models to draw; importing this does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from plaudit.bounds import BelowOne, FromOne, FromTwo, FromZero, Positive, Share, check_bounds
from plaudit.engine.settings import OptimizerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NewModel:
    """What is made where no model is given. Example: ``NewModel(size=32, width=128, layers=6)``."""

    size: FromOne = 32
    """Pixels of a picture's side."""
    patch: FromOne = 4
    """Pixels of a patch's side: each patch is one token."""
    width: FromOne = 128
    """Numbers of a token, a multiple of 32."""
    layers: FromOne = 6
    """Blocks of the transformer that draws; the one that reads captions has two."""
    prediction: Literal["epsilon", "flow"] = "epsilon"
    """What it says of a noisy picture: its noise (DDPM), or the way from picture to noise (flow matching)."""

    def __post_init__(self) -> None:
        check_bounds(self, "new")
        if self.size % self.patch or self.width % 32:
            wrong = f"new.size {self.size}, new.patch {self.patch}, new.width {self.width}"
            raise ValueError(f"{wrong}: the size has to be a multiple of the patch, and the width one of 32")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionConfig:
    """A run over pictures. Example: ``SftConfig(data=Path("drawn.jsonl"), out=Path("runs/drawn"))``."""

    data: Path
    """Rows: captions with pictures, pairs of pictures (Pick-a-Pic, HPSv2, or prompt, chosen, rejected)."""
    out: Path
    """The run folder; the same command on the same folder goes on where it stopped."""
    model: Path | None = None
    """What to start from: the model of a run, or a Stable Diffusion pipeline of diffusers."""
    steps: FromOne = 1000
    """How many steps."""
    batch_size: FromOne = 32
    """Rows in a step."""
    at_once: FromOne = 64
    """Pictures that go through the model at once; it changes no gradient."""
    learning_rate: Positive = 3e-4
    """The peak learning rate."""
    threshold: Share = 0.01
    """Above this share of bad rows the run does not start."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """Of the order of rows, of noise and of everything else that is random."""
    save_every: FromOne | None = None
    """Steps between checkpoints; none: ten times in the run."""
    sinks: tuple[str, ...] = ("console",)
    """Where figures go: console, tensorboard, wandb, mlflow, trackio; metrics.jsonl is always written."""
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    """The optimiser, its schedule and clipping."""
    # Of the rows: pictures with a caption, pairs (and ties), pictures called good or bad, captions.
    reads: ClassVar[str] = "pictures"

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig(DiffusionConfig):
    """Learn to draw what captions say. Example: ``SftConfig(data=…, out=…, new=NewModel(size=24))``."""

    drop_captions: Share = 0.1
    """The share of captions that are left empty, for guidance without a classifier."""
    new: NewModel = field(default_factory=NewModel)
    """The model that is made where none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoConfig(DiffusionConfig):
    """Diffusion-DPO on pairs. Example: ``DpoConfig(model=…, data=Path("pairs.jsonl"), out=…, beta=2000)``."""

    learning_rate: Positive = 1e-5
    """The peak learning rate."""
    beta: Positive = 5000.0
    """β of half a mean squared error: that of the authors' program, with T and the number of pixels in it."""
    reads: ClassVar[str] = "pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class KtoConfig(DiffusionConfig):
    """Diffusion-KTO on single pictures, good or bad. Example: ``KtoConfig(model=…, data=…, out=…)``."""

    learning_rate: Positive = 1e-5
    """The peak learning rate."""
    beta: Positive = 5000.0
    """β of half a mean squared error, as in dpo: twice that of the authors' program."""
    desirable: FromZero = 1.0
    """The weight of good pictures."""
    undesirable: FromZero = 1.0
    """The weight of bad pictures."""
    reads: ClassVar[str] = "thumbs"


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpoConfig(DiffusionConfig):
    """DDPO: draw, reward, learn. Example: ``DdpoConfig(model=…, data=…, out=…, reward="scene")``."""

    batch_size: FromOne = 8
    """Captions in a round."""
    learning_rate: Positive = 1e-5
    """The peak learning rate."""
    reward: str = "scene"
    """scene: the picture world's facts; the folder of a preference model; file.py:name of your own."""
    group_size: FromTwo = 8
    """Pictures of each caption, whose rewards are compared."""
    draw_steps: FromTwo = 20
    """Steps from noise to a picture; the last one draws nothing and is not learnt from."""
    guidance: FromZero = 3.0
    """How far beyond the picture without a caption: 1 is no guidance."""
    updates: FromOne = 2
    """Optimiser steps that a round is learnt from, each from other pictures of it."""
    clip: BelowOne = 1e-3
    """How far the ratio of new to old densities, per number of a picture, may leave 1."""
    reads: ClassVar[str] = "captions"
    noise: ClassVar[float] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig(DiffusionConfig):
    """A preference model with two towers, as PickScore. Example: ``RewardConfig(data=…, out=…)``."""

    new: NewModel = field(default_factory=NewModel)
    """Size and width of the model that is made where none is given."""
    reads: ClassVar[str] = "pairs and ties"


CONFIGS: Mapping[str, type[DiffusionConfig]] = {
    "sft": SftConfig,
    "dpo": DpoConfig,
    "kto": KtoConfig,
    "ddpo": DdpoConfig,
    "reward": RewardConfig,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSettings:
    """Pictures by a model, or by several that are compared. Example: ``DrawSettings(data=…, out=…)``."""

    data: Path
    """Rows with captions."""
    out: Path
    """The folder for pictures, rows and the page."""
    n: FromOne = 64
    """How many captions, the first ones."""
    each: FromOne = 1
    """Pictures of each caption."""
    draw_steps: FromTwo = 20
    """Steps from noise to a picture."""
    guidance: FromZero = 3.0
    """How far beyond the picture without a caption: 1 is no guidance."""
    noise: Share = 1.0
    """Noise that each step adds: 1 as DDPM does, 0 none (DDIM)."""
    at_once: FromOne = 64
    """Pictures that go through the model at once."""
    rewards: tuple[str, ...] = ("scene",)
    """What scores pictures, in sample the first alone: scene, a preference model's folder, file.py:name."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """Of the noise: two models start from the same."""

    def __post_init__(self) -> None:
        check_bounds(self)
