"""Models that draw: a small transformer on pixels, or a Stable Diffusion pipeline; and one that prefers."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from examples.diffusion.config import DdpoConfig, DrawSettings, NewModel
from examples.diffusion.formulas import Levels, ddpm_levels, drawn_levels, flow_levels, step_logp
from plaudit.engine.checkpoint.tensors import write_tensors
from plaudit.errors import UserError, first_line
from plaudit.files import atomic

LEVELS = 1000
"""Noise levels of a new model."""
MOST_WORDS = 64
"""Words of a caption that a new model reads."""
_FILE, _WEIGHTS, _PIPELINE = "pictures.json", "model.safetensors", "model_index.json"
_PAD, _BEGIN, _OTHER = 0, 1, 2
_PARTS = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")


@cache
def from_diffusers(name: str) -> Any:
    """What diffusers has by this name, as in ``models.attention.BasicTransformerBlock``."""
    module, _, last = f"diffusers.{name}".rpartition(".")
    try:
        return getattr(import_module(module), last)
    except ModuleNotFoundError as error:
        raise UserError('models that draw need diffusers: pip install "plaudit[diffusion]"') from error


def words_of(caption: str) -> list[str]:
    """A caption's words, in lower case, marks by themselves.

    >>> words_of("A red ring, at the top")
    ['a', 'red', 'ring', ',', 'at', 'the', 'top']
    """
    return re.findall(r"\w+|[^\w\s]", caption.lower())


def vocabulary(captions: Sequence[str]) -> list[str]:
    """Every word of the captions, the most frequent first."""
    counts = Counter(word for caption in captions for word in words_of(caption))
    return sorted(counts, key=lambda word: (-counts[word], word))


class Reader(nn.Module):
    """A caption's words as vectors, by two blocks of attention; learnt together with what reads them."""

    def __init__(self, words: Sequence[str], width: int) -> None:
        super().__init__()
        self.words = list(words)
        self._ids = {word: number for number, word in enumerate(words, start=_OTHER + 1)}
        self.embed = nn.Embedding(len(words) + _OTHER + 1, width)
        self.place = nn.Parameter(torch.randn(MOST_WORDS, width) * 0.02)
        block = from_diffusers("models.attention.BasicTransformerBlock")
        self.blocks = nn.ModuleList(block(width, width // 32, 32, attention_bias=True) for _ in range(2))

    def forward(self, captions: Sequence[str]) -> tuple[Float[Tensor, "N L D"], Int[Tensor, "N L"]]:
        """The vectors, and 1 where there is a word."""
        rows = [[_BEGIN, *(self._ids.get(word, _OTHER) for word in words_of(text))] for text in captions]
        longest = min(MOST_WORDS, max(map(len, rows)))
        padded = [(row + [_PAD] * longest)[:longest] for row in rows]
        ids_NL = torch.tensor(padded, device=self.place.device)
        mask_NL = (ids_NL != _PAD).long()
        vectors = self.embed(ids_NL) + self.place[:longest]
        for block in self.blocks:
            vectors = block(vectors, attention_mask=(1 - mask_NL)[:, None].to(vectors) * -1e4)
        return vectors, mask_NL


def _mean(vectors: Tensor, mask_NL: Tensor) -> Float[Tensor, "N D"]:
    return (vectors * mask_NL[..., None]).sum(1) / mask_NL.sum(1, keepdim=True)


def _as_numbers(pixels: UInt8[Tensor, "N 3 H W"]) -> Tensor:
    return pixels.float() / 127.5 - 1


def _as_pixels(numbers: Tensor) -> UInt8[Tensor, "N 3 H W"]:
    return ((numbers + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


class PixelDrawer(nn.Module):
    """A transformer over patches of pixels (PixArt's, of diffusers) that reads a caption by attention."""

    bound = 1.0

    def __init__(self, new: NewModel, words: Sequence[str]) -> None:
        super().__init__()
        self.new, self.size, self.shape = new, new.size, (3, new.size, new.size)
        self.levels = flow_levels(LEVELS) if new.prediction == "flow" else ddpm_levels(LEVELS)
        self.reader = Reader(words, new.width)
        heads = {"num_attention_heads": new.width // 32, "attention_head_dim": 32, "norm_num_groups": 1}
        sides = {"in_channels": 7, "out_channels": 3, "sample_size": new.size, "patch_size": new.patch}
        reads = {"cross_attention_dim": new.width, "caption_channels": new.width}
        drawer = from_diffusers("PixArtTransformer2DModel")
        self.transformer = drawer(num_layers=new.layers, **heads, **sides, **reads)
        # What is where, drawn from the whole caption at once: by attention alone it is learnt far later.
        grid, inner = (new.size // new.patch) ** 2, 4 * new.width
        self.sketch = nn.Sequential(nn.Linear(new.width, inner), nn.GELU(), nn.Linear(inner, 4 * grid))

    def forward(self, noisy: Tensor, level_N: Int[Tensor, " N"], captions: Sequence[str]) -> Tensor:
        """What the model says of noisy pictures: their noise, or their flow."""
        vectors, mask_NL = self.reader(captions)
        side = self.size // self.new.patch
        sketch = self.sketch(_mean(vectors, mask_NL)).view(-1, 4, side, side)
        noisy = torch.cat([noisy, interpolate(sketch, (self.size, self.size))], 1)
        about = {"encoder_hidden_states": vectors, "encoder_attention_mask": mask_NL, "return_dict": False}
        return self.transformer(noisy, timestep=level_N, **about)[0]

    encoded = staticmethod(_as_numbers)
    decoded = staticmethod(_as_pixels)

    def reference(self) -> "PixelDrawer":
        """A copy that stays as it is."""
        return deepcopy(self).requires_grad_(requires_grad=False)

    def save(self, folder: Path) -> None:
        _save(self, folder, "drawer", new=asdict(self.new), words=self.reader.words)


class PipelineDrawer(nn.Module):
    """A Stable Diffusion pipeline, as diffusers loads it: its UNet learns, in its autoencoder's space."""

    bound = math.inf

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._pipeline = pipeline = _load_pipeline(folder)
        self.unet, self._vae, self._reader = pipeline.unet, pipeline.vae, pipeline.text_encoder
        self._frozen = (self._vae, self._reader)
        for part in self._frozen:
            part.requires_grad_(requires_grad=False)
        left_T, prediction = pipeline.scheduler.alphas_cumprod, pipeline.scheduler.config.prediction_type
        self.levels = Levels(alpha_T=left_T.sqrt(), sigma_T=(1 - left_T).sqrt(), prediction=prediction)
        side = self.unet.config.sample_size
        self.shape = (self.unet.config.in_channels, side, side)
        self.size = side * 2 ** (len(self._vae.config.block_out_channels) - 1)

    def forward(self, noisy: Tensor, level_N: Int[Tensor, " N"], captions: Sequence[str]) -> Tensor:
        """What the UNet says of noisy latents."""
        how: dict[str, Any] = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
        tokens = self._pipeline.tokenizer([*captions], **how)
        with torch.no_grad():
            vectors = self._reader(tokens.input_ids.to(noisy.device))[0]
        return self.unet(noisy, level_N, encoder_hidden_states=vectors, return_dict=False)[0]

    @torch.no_grad()
    def encoded(self, pixels: UInt8[Tensor, "N 3 H W"]) -> Tensor:
        """The autoencoder's mean of pictures."""
        return self._vae.encode(_as_numbers(pixels)).latent_dist.mean * self._vae.config.scaling_factor

    @torch.no_grad()
    def decoded(self, clean: Tensor) -> UInt8[Tensor, "N 3 H W"]:
        """Latents as pictures."""
        return _as_pixels(self._vae.decode(clean / self._vae.config.scaling_factor).sample)

    def reference(self) -> "PipelineDrawer":
        """A copy whose UNet stays as it is; the frozen parts are one for both."""
        shared: Any = {id(part): part for part in (*self._frozen, self._pipeline)}
        return deepcopy(self, shared).requires_grad_(requires_grad=False)

    def save(self, folder: Path) -> None:
        with atomic.atomic_folder(folder) as partial:
            self._pipeline.save_pretrained(partial, safe_serialization=True)


Drawer = PixelDrawer | PipelineDrawer


class PreferenceModel(nn.Module):
    """A caption's tower and a picture's, as CLIP has: the score is the cosine of both, times a scale."""

    def __init__(self, size: int, width: int, words: Sequence[str]) -> None:
        super().__init__()
        self.size, self.width, self.reader = size, width, Reader(words, width)
        channels = ((3, 32), (32, 64), (64, 128))
        layers = [(nn.Conv2d(*pair, 3, stride=2, padding=1), nn.GELU()) for pair in channels]
        # Flat, not averaged: where something is counts.
        last = nn.Linear(128 * (-(-size // 8)) ** 2, width)
        self.eye = nn.Sequential(*(part for pair in layers for part in pair), nn.Flatten(), last)
        self.caption, self.scale = nn.Linear(width, width), nn.Parameter(torch.tensor(2.0))

    def forward(self, captions: Sequence[str], pixels: UInt8[Tensor, "N 3 H W"]) -> Float[Tensor, " N"]:
        """How well each picture is what its caption says, in logits of a preference."""
        vectors, mask_NL = self.reader(captions)
        text = self.caption(_mean(vectors, mask_NL))
        sight = self.eye(_as_numbers(pixels))
        return self.scale.exp() * (normalize(text, dim=-1) * normalize(sight, dim=-1)).sum(-1)

    def save(self, folder: Path) -> None:
        _save(self, folder, "preference", size=self.size, width=self.width, words=self.reader.words)


def _save(model: nn.Module, folder: Path, kind: str, **settings: Any) -> None:
    with atomic.atomic_folder(folder) as partial:
        write_tensors(partial / _WEIGHTS, model.state_dict())
        atomic.write_json(partial / _FILE, {"kind": kind, **settings})


def load_model(folder: Path, kind: str, device: torch.device) -> Any:
    """The model of a folder: a drawer of pictures, or a preference among them."""
    if kind == "drawer" and (folder / _PIPELINE).is_file():
        return PipelineDrawer(folder).to(device)
    path = folder / _FILE
    about: Any = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    if about.get("kind") != kind:
        raise UserError(
            f"{folder}: a {kind} of pictures is needed, which this is not ({_FILE} of plaudit"
            f"{', or ' + _PIPELINE + ' of diffusers,' if kind == 'drawer' else ''} would say so): give the "
            "model/ of a run of python -m examples.diffusion"
        )
    if kind == "drawer":
        model: Any = PixelDrawer(NewModel(**about["new"]), about["words"])
    else:
        model = PreferenceModel(about["size"], about["width"], about["words"])
    try:
        model.load_state_dict(load_file(folder / _WEIGHTS))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder}: the weights do not fit {_FILE}: {first_line(error)}") from error
    return model.to(device)


def _load_pipeline(folder: Path) -> Any:
    load: Any = from_diffusers("DiffusionPipeline").from_pretrained
    try:
        # Of files on this disk, and never of pickles.
        pipeline = load(folder, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: diffusers cannot load this: {first_line(error)}") from error
    has = all(getattr(pipeline, name, None) is not None for name in _PARTS)
    if not has or hasattr(pipeline, "text_encoder_2") or not hasattr(pipeline.scheduler, "alphas_cumprod"):
        kind = f"{folder}: a {type(pipeline).__name__}; Stable Diffusion 1 and 2 and their like are trained"
        raise UserError(f"{kind} ({', '.join(_PARTS)}; one text encoder, noise levels of DDPM)")
    return pipeline


def seeded(words: str) -> torch.Generator:
    """Chance that follows from words, the same on every machine."""
    return torch.Generator().manual_seed(int.from_bytes(blake2b(words.encode(), digest_size=8).digest()))


def density(
    model: Drawer, noisy: Tensor, levels_N2: Tensor, captions: Sequence[str], how: DdpoConfig | DrawSettings
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the step that the model takes, between two levels of each picture.
    Its prediction is led away from that without a caption (Ho and Salimans 2022, arXiv:2207.12598)."""
    level_N, next_N = levels_N2.unbind(1)
    if how.guidance == 1:
        prediction = model(noisy, level_N, captions)
    else:
        both = model(noisy.repeat(2, 1, 1, 1), level_N.repeat(2), [*captions, *[""] * len(captions)])
        captioned, plain = both.chunk(2)
        prediction = plain.lerp(captioned, how.guidance)
    parts = model.levels.parts(noisy, prediction, level_N, model.bound)
    return model.levels.step(parts, level_N, next_N, noise=how.noise)


@torch.no_grad()
def drawn(
    model: Drawer, captions: Sequence[str], seeds: Sequence[str], how: DdpoConfig | DrawSettings
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Each step of drawing: the levels, what there was, what was drawn, and its log-density; the last step
    draws nothing. A picture depends on its seed and caption alone, whatever is drawn with it."""
    device, steps = next(model.parameters()).device, how.draw_steps
    noises = torch.stack([torch.randn(steps, *model.shape, generator=seeded(seed)) for seed in seeds])
    before, levels = noises[:, 0].to(device), drawn_levels(len(model.levels.alpha_T), steps)
    for number, pair in enumerate(pairwise(levels), start=1):
        levels_N2 = torch.tensor([pair] * len(captions), device=device)
        mean, std = density(model, before, levels_N2, captions, how)
        after = mean if number == steps else mean + std * noises[:, number].to(device)
        yield levels_N2, before, after, step_logp(after, mean, std)
        before = after
