"""What models' pictures are worth: rewards with intervals, diversity, and a page with the pictures."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from examples.diffusion.config import DrawSettings
from examples.diffusion.data import read_rows
from examples.diffusion.facts import fidelity
from examples.diffusion.models import drawn, load_model
from examples.diffusion.objective import Reward
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files import atomic, exact_json
from plaudit.files.pictures import data_url, pillow
from plaudit.methods.algorithm import load_object
from plaudit.models.load import device_of

SCENE = "scene"
"""The reward that knows the picture world."""
PAGE_CAPTIONS = 12
"""Captions whose pictures the page shows."""
_STYLE = (
    "body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}img{width:96px}"
    "table{display:block;overflow-x:auto}"
    "th{font-weight:400;text-align:start;padding:.3rem .8rem .3rem 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
)


def reward_of(word: str, device: torch.device) -> Reward:
    """The reward of a word: scene, the folder of a preference model, file.py:name."""
    if word == SCENE:
        return fidelity
    if not Path(word).is_dir():
        return load_object(word, "--reward")  # pyright: ignore[reportReturnType]  of the user's own
    model = load_model(Path(word), "preference", device).eval()

    @torch.no_grad()
    def score(captions: Sequence[str], pictures: Tensor) -> list[float]:
        if pictures.shape[-1] != model.size:
            pictures = interpolate(pictures.float(), (model.size, model.size), mode="area").to(torch.uint8)
        return model(captions, pictures.to(device)).tolist()

    return score


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What was measured of one model's pictures. Example: an entry of eval.json."""

    model: str
    rewards: Mapping[str, Estimate]
    """The mean of each reward; of scene, the share of a caption's facts that hold."""
    against_first: Mapping[str, Estimate]
    """How often each reward prefers its picture to the first model's of the same caption and noise."""
    more_than_first: Mapping[str, Estimate]
    """How much more each reward is for it, on average."""
    diversity: Estimate | None
    """The mean distance of two pictures of one caption, a share of the largest; None for one of each."""

    def line(self) -> str:
        """All figures with their intervals."""
        parts = [f"{short_name(word)} {value.text('.3f')}" for word, value in self.rewards.items()]
        wins = ((short_name(word), value.text()) for word, value in self.against_first.items())
        parts += [f"preferred by {word} {share}" for word, share in wins]
        gains = self.more_than_first.items()
        parts += [f"more by {short_name(word)} {gain.text('+.3f')}" for word, gain in gains]
        parts += [] if self.diversity is None else [f"diversity {self.diversity.text('.3f')}"]
        return f"{short_name(self.model)}: {', '.join(parts)}"


def short_name(word: str) -> str:
    """The run of a model's folder, or the last name.

    >>> short_name("runs/dpo/model"), short_name("scene")
    ('dpo', 'scene')
    """
    return word.rstrip("/").removesuffix("/model").rpartition("/")[2]


def draw_all(model: Path, settings: DrawSettings) -> tuple[list[str], UInt8[Tensor, "N 3 H W"]]:
    """The first captions of the rows, ``each`` times, and a picture of every one by one model."""
    rows, _ = read_rows(settings.data, "captions", threshold=0.0)
    captions = list(dict.fromkeys(row.caption for row in rows))[: settings.n]
    every, pieces = [caption for caption in captions for _ in range(settings.each)], list[Tensor]()
    drawer = load_model(model, "drawer", device_of(settings.device)).eval()
    for at in range(0, len(every), settings.at_once):
        part = every[at : at + settings.at_once]
        seeds = [f"draw {settings.seed} {at + place}" for place in range(len(part))]
        *_, (_, _, last, _) = drawn(drawer, part, seeds, settings)
        pieces.append(drawer.decoded(last).cpu())
    return every, torch.cat(pieces)


def sample(model: Path, settings: DrawSettings) -> Path:
    """Draw, and write pictures with rows of captions and paths, which sft and others read.

    Of several pictures of a caption the best and the worst by the first reward become a row of pairs.jsonl.
    """
    captions, pictures = draw_all(model, settings)
    atomic.make_folder(settings.out / "pictures")
    names = [f"pictures/{number:05d}.png" for number in range(len(captions))]
    for name, picture in zip(names, pictures, strict=True):
        (settings.out / name).write_bytes(_png(picture))
    rows = [{"prompt": text, "picture": name} for text, name in zip(captions, names, strict=True)]
    _write_rows(settings.out / "rows.jsonl", rows)
    if settings.each > 1:
        scores = list(reward_of(settings.rewards[0], device_of(settings.device))(captions, pictures))
        pairs = list[dict[str, Any]]()
        for at in range(0, len(captions), settings.each):
            low, *_, high = sorted(range(at, at + settings.each), key=scores.__getitem__)
            if scores[high] > scores[low]:
                pairs.append({"prompt": captions[at], "chosen": names[high], "rejected": names[low]})
        _write_rows(settings.out / "pairs.jsonl", pairs)
    return settings.out / "rows.jsonl"


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    atomic.write_text(path, "".join(f"{exact_json.dumps(row)}\n" for row in rows))


def evaluate(models: Sequence[Path], settings: DrawSettings) -> list[Worth]:
    """Draw by each model from the same captions and noise, measure, and write eval.json and page.html."""
    rewards = {word: reward_of(word, device_of(settings.device)) for word in settings.rewards}
    pictures = {str(model): draw_all(model, settings) for model in models}
    scores = {
        name: {word: np.array(reward(*both), dtype=float) for word, reward in rewards.items()}
        for name, both in pictures.items()
    }
    first, worths = scores[str(models[0])], list[Worth]()
    for name, values in scores.items():
        prompt_N = np.arange(len(pictures[name][0])) // settings.each
        how: Any = {"prompt_B": prompt_N, "resampling": Resampling()}
        gaps = {w: x - first[w] for w, x in values.items() if name != str(models[0])}
        wins = {w: (gap > 0) + 0.5 * (gap == 0) for w, gap in gaps.items()}
        groups = pictures[name][1].flatten(1).float().div(255).split(settings.each)
        gap_N = np.array([torch.pdist(x).mean().item() / x.shape[1] ** 0.5 for x in groups])
        worths.append(
            Worth(
                model=name,
                rewards={w: bootstrap_mean(x, share=w == SCENE, **how) for w, x in values.items()},
                against_first={w: bootstrap_mean(x, **how) for w, x in wins.items()},
                more_than_first={w: bootstrap_mean(x, share=False, **how) for w, x in gaps.items()},
                diversity=bootstrap_mean(gap_N, np.arange(len(gap_N)), Resampling(), share=False)
                if settings.each > 1
                else None,
            )
        )
    atomic.make_folder(settings.out)
    atomic.write_json(settings.out / "eval.json", [asdict(worth) for worth in worths])
    atomic.write_text(settings.out / "page.html", _page(worths, pictures, settings))
    return worths


def _png(picture: UInt8[Tensor, "3 H W"], times: int = 1) -> bytes:
    content, image = BytesIO(), pillow().fromarray(picture.permute(1, 2, 0).numpy())
    image.resize((image.width * times, image.height * times), 0).save(content, format="PNG")
    return content.getvalue()


def _page(worths: Sequence[Worth], drawings: Mapping[str, Any], settings: DrawSettings) -> str:
    """Figures, and the pictures of the first captions, a column for each model."""
    names, rows = [html.escape(short_name(worth.model)) for worth in worths], list[str]()
    captions = next(iter(drawings.values()))[0]
    for number in range(0, len(captions), settings.each)[:PAGE_CAPTIONS]:
        text = html.escape(captions[number])
        urls = [data_url(_png(pictures[number], 4)) for _, pictures in drawings.values()]
        cells = [
            f'<td><img src="{url}" alt="Drawn by {name} for: {text}"></td>'
            for name, url in zip(names, urls, strict=True)
        ]
        rows.append(f'<tr><th scope="row">{text}</th>{"".join(cells)}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Caption", *names))
    figures = "".join(f"<li>{html.escape(worth.line())}</li>" for worth in worths)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Pictures by models</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>Pictures</h1>'
        f"<p>{len(captions)} pictures, {settings.each} of each caption, {settings.draw_steps} steps, "
        f"guidance {settings.guidance:g}; all models start from the same noise. In brackets: 95 % intervals "
        f"over captions.</p><ul>{figures}</ul><table><tr>{head}</tr>{''.join(rows)}</table></html>\n"
    )
