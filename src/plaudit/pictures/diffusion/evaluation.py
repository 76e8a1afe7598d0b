"""What pictures are worth: the picture world's own look, preference models; figures with intervals, and a page."""

import html
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from plaudit.errors import UserError
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files import atomic, exact_json
from plaudit.files.pictures import data_url, pillow
from plaudit.methods.algorithm import load_object
from plaudit.models.load import device_of
from plaudit.pictures.diffusion.config import DrawSettings
from plaudit.pictures.diffusion.data import read_rows
from plaudit.pictures.diffusion.models import draw, load_drawer, load_preference_model
from plaudit.pictures.diffusion.objective import Reward
from plaudit.pictures.world.scenes import COLOURS, PLACES, SHAPES, SIZES, Scene, Thing, render

SCENE = "scene"
"""The reward that knows the picture world."""
_PHRASE = re.compile(
    rf"an? ({'|'.join(SIZES)}) ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)}) ({'|'.join(sorted(PLACES, key=len, reverse=True))})"
)


def reward_of(word: str, device: torch.device) -> Reward:
    """The reward of a word: scene, the folder of a preference model, file.py:name."""
    if word == SCENE:
        return scene_fidelity
    if Path(word).is_dir():
        model = load_preference_model(Path(word), device).eval()

        @torch.no_grad()
        def preferred(captions: Sequence[str], pictures: Tensor) -> list[float]:
            fitted = pictures
            if pictures.shape[-1] != model.size:
                fitted = interpolate(pictures.float(), (model.size, model.size), mode="area").to(torch.uint8)
            return model(captions, fitted.to(device)).tolist()

        return preferred
    reward: Any = load_object(word, "--reward")
    return reward


def scene_fidelity(captions: Sequence[str], pictures: UInt8[Tensor, "N 3 H W"]) -> list[float]:
    """How much of each caption of the picture world is there, from 0 to 1, by what each cell looks most like."""
    seen = _seen_cells(pictures)
    return [_fidelity(things_of(caption), cells) for caption, cells in zip(captions, seen, strict=True)]


def things_of(caption: str) -> dict[int, Thing]:
    """What a caption of the picture world says is there, by cells.

    >>> things_of("a big orange star in the middle")[4].name
    'orange star'
    """
    things = [
        Thing(size=size, colour=colour, shape=shape, cell=PLACES.index(place))
        for size, colour, shape, place in _PHRASE.findall(caption)
    ]
    if not things:
        raise UserError(
            f"the reward scene reads captions of the picture world, and this is none: {caption[:80]}"
        )
    return {thing.cell: thing for thing in things}


def _fidelity(wanted: dict[int, Thing], seen: dict[int, Thing]) -> float:
    """The share of facts that hold, of each thing that is wanted or there: that it is, its size, colour, shape."""
    facts = ("size", "colour", "shape")
    right = [
        1 + sum(getattr(thing, fact) == getattr(seen[cell], fact) for fact in facts)
        for cell, thing in wanted.items()
        if cell in seen
    ]
    return sum(right) / (4 * len(wanted.keys() | seen.keys()))


@lru_cache(maxsize=4)
def _templates(size: int) -> tuple[list[Thing | None], list[Tensor]]:
    """All that a cell may show, nothing among it, and how each looks in each of the nine cells."""
    looks = [
        Thing(shape=shape, colour=colour, size=big, cell=0)
        for shape in SHAPES
        for colour in COLOURS
        for big in SIZES
    ]
    pictures = [render(Scene(things=()), size)]
    pictures += [render(Scene(things=tuple(replace(x, cell=cell) for cell in range(9))), size) for x in looks]
    drawn_K3HW = torch.from_numpy(np.stack([np.array(picture) for picture in pictures])).permute(0, 3, 1, 2)
    return [None, *looks], _cells(drawn_K3HW)


def _cells(pictures: UInt8[Tensor, "N 3 H W"]) -> list[Tensor]:
    """The pixels of each cell, flat."""
    side = pictures.shape[-1]
    edges = [round(side * edge / 3) for edge in range(4)]
    return [
        pictures[:, :, edges[row] : edges[row + 1], edges[column] : edges[column + 1]].flatten(1).float()
        for row in range(3)
        for column in range(3)
    ]


def _seen_cells(pictures: UInt8[Tensor, "N 3 H W"]) -> list[dict[int, Thing]]:
    """What each picture shows, by cells: that whose picture is nearest."""
    kinds, templates = _templates(pictures.shape[-1])
    nearest_9N = [
        torch.cdist(x, like).argmin(1).tolist() for x, like in zip(_cells(pictures), templates, strict=True)
    ]
    seen = zip(*nearest_9N, strict=True)
    return [{cell: thing for cell, at in enumerate(one) if (thing := kinds[at]) is not None} for one in seen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWorth:
    """What was measured of one model's pictures. Example: see eval.json."""

    model: str
    rewards: dict[str, Estimate]
    """The mean of each reward; of the scene, the share of a caption's facts that hold."""
    against_first: dict[str, Estimate]
    """How often each reward prefers its picture to the first model's of the same caption and noise."""
    diversity: Estimate | None
    """The mean distance of two pictures of one caption, a share of the largest; None for one of each."""


def draw_all(model: Path, captions: Sequence[str], settings: DrawSettings) -> UInt8[Tensor, "N 3 H W"]:
    """``each`` pictures of every caption, by one model."""
    drawer = load_drawer(model, device_of(settings.device)).eval()
    every = [caption for caption in captions for _ in range(settings.each)]
    pieces = [
        draw(
            drawer,
            every[at : at + settings.at_once],
            [f"draw {settings.seed} {n}" for n in range(at, min(len(every), at + settings.at_once))],
            steps=settings.draw_steps,
            guidance=settings.guidance,
            noise=settings.noise,
        )
        for at in range(0, len(every), settings.at_once)
    ]
    return torch.cat(pieces)


def captions_of(settings: DrawSettings) -> list[str]:
    """The first captions of the rows, each once."""
    rows, _ = read_rows(settings.data, "captions", threshold=0.0)
    return list(dict.fromkeys(row.caption for row in rows))[: settings.n]


def sample(model: Path, settings: DrawSettings) -> Path:
    """Draw, and write pictures with rows of captions and paths, which sft and others read."""
    captions = captions_of(settings)
    pictures = draw_all(model, captions, settings)
    atomic.make_folder(settings.out / "pictures")
    lines = list[str]()
    for number, picture in enumerate(pictures):
        name = f"pictures/{number:05d}.png"
        (settings.out / name).write_bytes(_png(picture))
        lines.append(exact_json.dumps({"prompt": captions[number // settings.each], "picture": name}))
    atomic.write_text(settings.out / "rows.jsonl", "\n".join(lines) + "\n")
    return settings.out / "rows.jsonl"


def evaluate(models: Sequence[Path], settings: DrawSettings) -> list[ModelWorth]:
    """Draw by each model from the same captions and noise, measure, and write eval.json and page.html."""
    device, captions = device_of(settings.device), captions_of(settings)
    rewards = {word: reward_of(word, device) for word in settings.rewards or (SCENE,)}
    every = [caption for caption in captions for _ in range(settings.each)]
    pictures = {str(model): draw_all(model, captions, settings) for model in models}
    scores = {
        name: {word: np.array(reward(every, drawn_N), dtype=float) for word, reward in rewards.items()}
        for name, drawn_N in pictures.items()
    }
    prompt_N = np.arange(len(every)) // settings.each
    first = scores[str(models[0])]
    worths = [
        ModelWorth(
            model=name,
            rewards={
                w: bootstrap_mean(x, prompt_N, Resampling(), share=w == SCENE) for w, x in of_model.items()
            },
            against_first={
                w: bootstrap_mean((x > first[w]) + 0.5 * (x == first[w]), prompt_N, Resampling())
                for w, x in of_model.items()
                if of_model is not first
            },
            diversity=_diversity(pictures[name], settings.each),
        )
        for name, of_model in scores.items()
    ]
    atomic.make_folder(settings.out)
    atomic.write_json(settings.out / "eval.json", [asdict(worth) for worth in worths])
    atomic.write_text(settings.out / "page.html", _page(worths, captions, pictures, settings))
    return worths


def _diversity(pictures: UInt8[Tensor, "N 3 H W"], each: int) -> Estimate | None:
    if each < 2:
        return None
    groups = (pictures.flatten(1).float() / 255).split(each)
    size = pictures[0].numel() ** 0.5
    means = np.array([torch.pdist(group).mean().item() / size for group in groups])
    return bootstrap_mean(means, np.arange(len(means)), Resampling(), share=False)


def worth_lines(worths: Sequence[ModelWorth]) -> list[str]:
    """Each model's figures with their intervals, a line each."""
    lines = list[str]()
    for worth in worths:
        parts = [f"{word} {value.text('.3f')}" for word, value in worth.rewards.items()]
        parts += [f"preferred by {word} {value.text()}" for word, value in worth.against_first.items()]
        parts += [] if worth.diversity is None else [f"diversity {worth.diversity.text('.3f')}"]
        lines.append(f"{worth.model}: {', '.join(parts)}")
    return lines


def _png(picture: UInt8[Tensor, "3 H W"], least: int = 0) -> bytes:
    content = BytesIO()
    image = pillow().fromarray(picture.permute(1, 2, 0).numpy())
    times = -(-least // image.width) if least else 1
    image.resize((image.width * times, image.height * times), 0).save(content, format="PNG")
    return content.getvalue()


def _page(
    worths: Sequence[ModelWorth], captions: Sequence[str], pictures: dict[str, Tensor], settings: DrawSettings
) -> str:
    """The page: figures, and the pictures of the first captions, a column for each model."""
    names = [html.escape(worth.model) for worth in worths]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = list[str]()
    for number, caption in enumerate(captions[: settings.grid]):
        text = html.escape(caption)
        cells = list[str]()
        for name, drawn_N in zip(names, pictures.values(), strict=True):
            picture = data_url(_png(drawn_N[number * settings.each], 96)).replace("/;", "/png;", 1)
            cells.append(f'<td><img src="{picture}" alt="Drawn by {name} for: {text}"></td>')
        rows.append(f'<tr><th scope="row">{text}</th>{"".join(cells)}</tr>')
    figures = "".join(f"<li>{html.escape(line)}</li>" for line in worth_lines(worths))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Pictures</title>'
        "<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}"
        "th{font-weight:400;text-align:start;padding:.3rem .8rem .3rem 0}img{width:96px;display:block}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}</style>"
        f"<h1>Pictures of {len(captions)} captions</h1><p>{settings.each} of each, {settings.draw_steps} steps, "
        f"guidance {settings.guidance:g}; all models start from the same noise. In brackets: 95 % intervals "
        f'over captions.</p><ul>{figures}</ul><table><thead><tr><th scope="col">Caption</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></html>\n"
    )
