"""Models that draw: a small transformer on pixels, or a Stable Diffusion pipeline; and one that prefers."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from plaudit.engine.checkpoint.tensors import write_tensors
from plaudit.errors import UserError, first_line
from plaudit.files import atomic
from plaudit.pictures.diffusion.config import NewModel
from plaudit.pictures.diffusion.formulas import Levels, ddpm_levels, drawn_levels, flow_levels, step_logp

LEVELS = 1000
"""Noise levels of a new model."""
MOST_WORDS = 64
"""Words of a caption that a new model reads."""
_FILE, _WEIGHTS, _PIPELINE = "pictures.json", "model.safetensors", "model_index.json"
_PAD, _BEGIN, _OTHER = 0, 1, 2


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


def vocabulary(captions: Iterable[str]) -> list[str]:
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
        rows = [
            [_BEGIN, *(self._ids.get(word, _OTHER) for word in words_of(caption))] for caption in captions
        ]
        longest = min(MOST_WORDS, max(map(len, rows)))
        padded = [(row + [_PAD] * longest)[:longest] for row in rows]
        ids_NL = torch.tensor(padded, device=self.place.device)
        mask_NL = (ids_NL != _PAD).long()
        vectors = self.embed(ids_NL) + self.place[:longest]
        bias = (1 - mask_NL)[:, None].to(vectors) * -1e4
        for block in self.blocks:
            vectors = block(vectors, attention_mask=bias)
        return vectors, mask_NL


class PixelDrawer(nn.Module):
    """A transformer over patches of pixels (PixArt's, of diffusers) that reads a caption by attention."""

    def __init__(self, new: NewModel, words: Sequence[str]) -> None:
        super().__init__()
        self.new, self.size, self.shape, self.bound = new, new.size, (3, new.size, new.size), 1.0
        self.levels = flow_levels(LEVELS) if new.prediction == "flow" else ddpm_levels(LEVELS)
        self.reader = Reader(words, new.width)
        self.transformer = from_diffusers("PixArtTransformer2DModel")(
            num_attention_heads=new.width // 32,
            attention_head_dim=32,
            in_channels=3,
            out_channels=3,
            num_layers=new.layers,
            norm_num_groups=1,
            cross_attention_dim=new.width,
            sample_size=new.size,
            patch_size=new.patch,
            caption_channels=new.width,
            use_additional_conditions=False,
        )

    def forward(self, noisy: Tensor, level_N: Int[Tensor, " N"], captions: Sequence[str]) -> Tensor:
        """What the model says of noisy pictures: their noise, or their flow."""
        vectors, mask_NL = self.reader(captions)
        about = {"encoder_hidden_states": vectors, "encoder_attention_mask": mask_NL, "return_dict": False}
        return self.transformer(noisy, timestep=level_N, **about)[0]

    def encoded(self, pixels: UInt8[Tensor, "N 3 H W"]) -> Tensor:
        """Pictures as numbers from −1 to 1."""
        return pixels.float() / 127.5 - 1

    def decoded(self, clean: Tensor) -> UInt8[Tensor, "N 3 H W"]:
        """Numbers as pictures."""
        return ((clean + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)

    def reference(self) -> "PixelDrawer":
        """A copy that stays as it is."""
        return deepcopy(self).requires_grad_(requires_grad=False)

    def save(self, folder: Path) -> None:
        _save(self, folder, "drawer", new=asdict(self.new), words=self.reader.words)


class PipelineDrawer(nn.Module):
    """A Stable Diffusion pipeline, as diffusers loads it: its UNet learns, in its autoencoder's space."""

    bound = None

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._pipeline = pipeline = _load_pipeline(folder)
        self.unet, self._autoencoder, self._reader = pipeline.unet, pipeline.vae, pipeline.text_encoder
        self._frozen = (self._autoencoder, self._reader)
        for part in self._frozen:
            part.requires_grad_(requires_grad=False)
        bar_T, wanted = pipeline.scheduler.alphas_cumprod, pipeline.scheduler.config.prediction_type
        self.levels = Levels(alpha_T=bar_T.sqrt(), sigma_T=(1 - bar_T).sqrt(), prediction=wanted)
        side = self.unet.config.sample_size
        self.shape = (self.unet.config.in_channels, side, side)
        self.size = side * 2 ** (len(self._autoencoder.config.block_out_channels) - 1)

    def forward(self, noisy: Tensor, level_N: Int[Tensor, " N"], captions: Sequence[str]) -> Tensor:
        """What the UNet says of noisy latents."""
        tokens = self._pipeline.tokenizer(
            [*captions], padding="max_length", truncation=True, return_tensors="pt"
        )
        with torch.no_grad():
            vectors = self._reader(tokens.input_ids.to(noisy.device))[0]
        return self.unet(noisy, level_N, encoder_hidden_states=vectors, return_dict=False)[0]

    @torch.no_grad()
    def encoded(self, pixels: UInt8[Tensor, "N 3 H W"]) -> Tensor:
        """The autoencoder's mean of pictures."""
        latents = self._autoencoder.encode(pixels.float() / 127.5 - 1).latent_dist.mean
        return latents * self._autoencoder.config.scaling_factor

    @torch.no_grad()
    def decoded(self, clean: Tensor) -> UInt8[Tensor, "N 3 H W"]:
        """Latents as pictures."""
        pixels = self._autoencoder.decode(clean / self._autoencoder.config.scaling_factor).sample
        return ((pixels + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)

    def reference(self) -> "PipelineDrawer":
        """A copy whose UNet stays as it is; the frozen parts are one for both."""
        shared = {id(part): part for part in (*self._frozen, self._pipeline)}
        return deepcopy(self, shared).requires_grad_(requires_grad=False)

    def save(self, folder: Path) -> None:
        with atomic.atomic_folder(folder) as partial:
            self._pipeline.save_pretrained(partial, safe_serialization=True)


Drawer = PixelDrawer | PipelineDrawer


class PreferenceModel(nn.Module):
    """A caption's tower and a picture's, as CLIP has: the score is the cosine of both, times a scale."""

    def __init__(self, size: int, width: int, words: Sequence[str]) -> None:
        super().__init__()
        self.size, self.width = size, width
        self.reader = Reader(words, width)
        sides, parts = -(-size // 8), list[nn.Module]()
        for before, after in ((3, 32), (32, 64), (64, 128)):
            parts += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
        # Flat, not averaged: where something is counts.
        self.eye = nn.Sequential(*parts, nn.Flatten(), nn.Linear(128 * sides**2, width))
        self.caption = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, captions: Sequence[str], pixels: UInt8[Tensor, "N 3 H W"]) -> Float[Tensor, " N"]:
        """How well each picture is what its caption says, in logits of a preference."""
        vectors, mask_NL = self.reader(captions)
        text = self.caption((vectors * mask_NL[..., None]).sum(1) / mask_NL.sum(1, keepdim=True))
        seen = self.eye(pixels.float() / 127.5 - 1)
        return self.scale.exp() * (normalize(text, dim=-1) * normalize(seen, dim=-1)).sum(-1)

    def save(self, folder: Path) -> None:
        _save(self, folder, "preference", size=self.size, width=self.width, words=self.reader.words)


def _save(model: nn.Module, folder: Path, kind: str, **settings: Any) -> None:
    with atomic.atomic_folder(folder) as partial:
        write_tensors(partial / _WEIGHTS, model.state_dict())
        atomic.write_json(partial / _FILE, {"kind": kind, **settings})


def load_drawer(folder: Path, device: torch.device) -> Drawer:
    """The model that draws in a folder."""
    if (folder / _PIPELINE).is_file():
        return PipelineDrawer(folder).to(device)
    about = _about(folder, "drawer")
    return _filled(PixelDrawer(NewModel(**about["new"]), about["words"]), folder, device)


def load_preference_model(folder: Path, device: torch.device) -> PreferenceModel:
    """The preference model in a folder."""
    about = _about(folder, "preference")
    return _filled(PreferenceModel(about["size"], about["width"], about["words"]), folder, device)


def _about(folder: Path, kind: str) -> Any:
    path = folder / _FILE
    if not path.is_file():
        raise UserError(
            f"{folder}: holds neither {_FILE} of plaudit nor {_PIPELINE} of diffusers, so it is no model "
            f"{'that draws' if kind == 'drawer' else 'of preferences among pictures'}; give the model/ of a run"
        )
    about = json.loads(path.read_text("utf-8"))
    if about["kind"] != kind:
        raise UserError(f"{folder}: this is a {about['kind']} of pictures, and a {kind} is needed")
    return about


def _filled(model: Any, folder: Path, device: torch.device) -> Any:
    try:
        model.load_state_dict(load_file(folder / _WEIGHTS))
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder}: its weights do not fit its {_FILE}: {first_line(error)}") from error
    return model.to(device)


def _load_pipeline(folder: Path) -> Any:
    try:
        # Of files on this disk, and never of pickles.
        pipeline = from_diffusers("DiffusionPipeline").from_pretrained(
            folder, use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: diffusers cannot load this: {first_line(error)}") from error
    parts = {"unet", "vae", "text_encoder", "tokenizer", "scheduler"}
    has = {name for name in parts if getattr(pipeline, name, None) is not None}
    if (
        has != parts
        or hasattr(pipeline, "text_encoder_2")
        or not hasattr(pipeline.scheduler, "alphas_cumprod")
    ):
        raise UserError(
            f"{folder}: a {type(pipeline).__name__}; only pipelines shaped like Stable Diffusion 1 and 2 are "
            f"trained ({', '.join(sorted(parts))}, one text encoder, noise levels of DDPM)"
        )
    return pipeline


def seeded(words: str) -> torch.Generator:
    """Chance that follows from words, the same on every machine."""
    return torch.Generator().manual_seed(int.from_bytes(blake2b(words.encode(), digest_size=8).digest()))


def guided(model: Drawer, noisy: Tensor, level_N: Tensor, captions: Sequence[str], guidance: float) -> Tensor:
    """The prediction, led away from that without a caption (Ho and Salimans 2022, arXiv:2207.12598)."""
    if guidance == 1:
        return model(noisy, level_N, captions)
    both = model(noisy.repeat(2, 1, 1, 1), level_N.repeat(2), [*captions, *[""] * len(captions)])
    with_caption, without = both.chunk(2)
    return without + guidance * (with_caption - without)


def density(
    model: Drawer,
    noisy: Tensor,
    levels_N2: Int[Tensor, "N 2"],
    captions: Sequence[str],
    guidance: float,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the step that the model takes, between two levels of each picture."""
    level_N, next_N = levels_N2.unbind(1)
    said = guided(model, noisy, level_N, captions, guidance)
    parts = model.levels.parts(noisy, said, level_N, model.bound)
    return model.levels.step(noisy, parts, level_N, next_N, noise=noise)


@torch.no_grad()
def drawn(
    model: Drawer,
    captions: Sequence[str],
    seeds: Sequence[str],
    *,
    steps: int,
    guidance: float,
    noise: float = 1.0,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Each step of drawing: the levels, what there was, what was drawn, and the mean and spread of that.
    A picture depends on its seed and caption alone, whatever is drawn with it."""
    device = next(model.parameters()).device
    noises = torch.stack([torch.randn(steps, *model.shape, generator=seeded(seed)) for seed in seeds])
    before, levels = noises[:, 0].to(device), drawn_levels(len(model.levels.alpha_T), steps)
    for number, pair in enumerate(zip(levels, levels[1:], strict=False), start=1):
        levels_N2 = torch.tensor([pair] * len(captions), device=device)
        mean, std = density(model, before, levels_N2, captions, guidance, noise)
        after = mean if number == steps else mean + std * noises[:, number].to(device)
        yield levels_N2, before, after, step_logp(after, mean, std) if pair[1] >= 0 else torch.zeros(())
        before = after


def draw(
    model: Drawer, captions: Sequence[str], seeds: Sequence[str], **how: Any
) -> UInt8[Tensor, "N 3 H W"]:
    """Pictures of captions."""
    *_, (_, _, last, _) = drawn(model, captions, seeds, **how)
    return model.decoded(last).cpu()
