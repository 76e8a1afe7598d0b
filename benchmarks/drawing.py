"""Whether preferences make a small model draw what captions say: the picture world, minutes on a CPU.

    python -m benchmarks.drawing --out drawing                       # begun again, it goes on
    python -m benchmarks.drawing --out drawing --ddpo --seeds 3      # and DDPO by the scene's own reward

A new model learns from captioned pictures of one thing and is stopped early. It draws pictures of training
captions, four of each; of two and two a crowd prefers the one that has more of the caption, with
P = σ(6 × the gap of fidelities), so that equal ones are told by a coin. What learns from these labels is
judged on captions that no run has seen: Diffusion-DPO and Diffusion-KTO with several β and rates, and as a
control SFT on the preferred pictures alone. A preference model learns from the same labels and judges, too.
"""

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.studies import Table, spread, table
from examples.diffusion.config import (
    DdpoConfig,
    DiffusionConfig,
    DpoConfig,
    DrawSettings,
    KtoConfig,
    NewModel,
    RewardConfig,
    SftConfig,
)
from examples.diffusion.data import pixels_of, read_rows
from examples.diffusion.evaluation import Worth, draw_all, evaluate, sample, short_name
from examples.diffusion.facts import fidelity
from examples.diffusion.run import train
from plaudit.files.atomic import write_text
from plaudit.files.pictures import pillow
from plaudit.pictures.world.scenes import Scene, caption, render, scenes

SIDE = 24
NEW = NewModel(size=SIDE, patch=4, width=64, layers=3, prediction="flow")
SFT_STEPS, BATCH = 700, 64
CERTAINTY = 6.0
GUIDANCE = 1.0
GRID_CAPTIONS = 12


def rows_of(split: str, most: int) -> list[Scene]:
    """Scenes of one thing each, all that the split has up to so many."""
    drawn = list[Scene]()
    try:
        for scene in scenes(split, most=1, signs=0.0):  # pyright: ignore[reportArgumentType]  a split
            drawn.append(scene)
            if len(drawn) == most:
                break
    except ValueError:
        # The split has no more.
        pass
    return drawn


def write_world(out: Path) -> None:
    """Captions with their pictures, for training and for the exam."""
    (out / "world").mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        lines = list[str]()
        for scene in rows_of(split, 2000):
            render(scene, SIDE).save(out / "world" / f"{scene.name}.png")
            lines.append(json.dumps({"prompt": caption(scene), "picture": f"{scene.name}.png"}))
        write_text(out / "world" / f"{split}.jsonl", "\n".join(lines) + "\n")


def label(rows: Path, out: Path) -> float:
    """Pairs of the pictures of one caption, as a noisy crowd prefers them; returns how often it is right."""
    read, _ = read_rows(rows, "pictures", threshold=0.0)
    worths = fidelity(
        [row.caption for row in read], torch.stack([pixels_of(row.pictures[0], SIDE) for row in read])
    )
    rng, lines, right = random.Random(0), list[str](), list[bool]()
    for at in range(0, len(read), 2):
        (row, other), gap = read[at : at + 2], worths[at] - worths[at + 1]
        first = rng.random() < 1 / (1 + math.exp(-CERTAINTY * gap))
        chosen, rejected = (row, other) if first else (other, row)
        pair = {"chosen": chosen.pictures[0], "rejected": rejected.pictures[0]}
        lines.append(json.dumps({"prompt": row.caption, **pair}))
        right += [first == (gap > 0)] if gap else []
    write_text(out, "\n".join(lines) + "\n")
    return sum(right) / len(right)


def save_grid(out: Path, models: list[Path], exam: DrawSettings) -> None:
    """What captions mean, and below it what each model draws for them, from the same noise."""
    read, _ = read_rows(exam.data, "pictures", threshold=0.0)
    drawn = [draw_all(model, exam)[1][:: exam.each] for model in models]
    rows = [torch.stack([pixels_of(row.pictures[0], SIDE) for row in read[:GRID_CAPTIONS]]), *drawn]
    grid = torch.cat([torch.cat([*row[:GRID_CAPTIONS]], 2) for row in rows], 1).permute(1, 2, 0).numpy()
    picture = pillow().fromarray(grid)
    picture.resize((picture.width * 3, picture.height * 3), 0).save(out / "grid.png")


def study(out: Path, *, ddpo: bool, device: str, seed: int) -> list[Worth]:
    """One seed: all runs, and what their pictures are worth."""
    write_world(out)
    world, drawn, exam = out / "world" / "train.jsonl", out / "drawn", out / "world" / "test.jsonl"
    how, sft = {"device": device, "batch_size": BATCH, "seed": seed}, out / "sft" / "model"
    train(SftConfig(data=world, out=out / "sft", steps=SFT_STEPS, learning_rate=3e-3, new=NEW, **how))
    draws = {"each": 4, "draw_steps": 16, "guidance": GUIDANCE, "device": device, "seed": seed}
    if not (drawn / "rows.jsonl").exists():
        sample(sft, DrawSettings(data=world, out=drawn, n=350, **draws))
    pairs = out / "pairs.jsonl"
    right = label(drawn / "rows.jsonl", pairs)
    print(f"the crowd is right in {right:.1%} of the pairs that differ", flush=True)
    common = {"data": pairs, "model": sft, **how, "batch_size": 32}
    slow, fast = {"steps": 300, "learning_rate": 2e-5}, {"steps": 150, "learning_rate": 1e-4}
    runs: dict[str, DiffusionConfig] = {
        "preferred": SftConfig(out=out / "preferred", **fast, **common),
        "dpo-200": DpoConfig(out=out / "dpo-200", beta=200.0, **fast, **common),
        "dpo-1000": DpoConfig(out=out / "dpo-1000", beta=1000.0, **fast, **common),
        "dpo-2000": DpoConfig(out=out / "dpo-2000", beta=2000.0, **slow, **common),
        "kto-400": KtoConfig(out=out / "kto-400", beta=400.0, **fast, **common),
        "kto-50": KtoConfig(out=out / "kto-50", beta=50.0, **slow, **common),
    }
    if ddpo:
        rounds = {"batch_size": 16, "group_size": 8, "guidance": GUIDANCE, "clip": 5e-3}
        rounds |= {"device": device, "seed": seed}
        rates = {"steps": 40, "learning_rate": 3e-4}
        runs["ddpo"] = DdpoConfig(data=world, model=sft, out=out / "ddpo", **rates, **rounds)
    for config in runs.values():
        train(config)
    train(RewardConfig(data=pairs, out=out / "judge", new=NEW, steps=150, learning_rate=1e-3, **how))
    rewards = ("scene", str(out / "judge" / "model"))
    exam_how = DrawSettings(data=exam, out=out / "eval", n=200, rewards=rewards, **draws)
    models = [sft, *(out / name / "model" for name in runs)]
    worths = evaluate(models, exam_how)
    print(*(worth.line() for worth in worths), sep="\n", flush=True)
    save_grid(out, models, replace(exam_how, n=GRID_CAPTIONS, each=1))
    return worths


def rows_over_seeds(seeds: Sequence[Sequence[Worth]]) -> Table:
    """Means over the seeds, with the lowest and the highest; of the rewards the scene is the first."""
    yield "", "fidelity", "more than SFT's", "preferred by the scene", "by the learnt judge", "diversity"
    for worths in zip(*seeds, strict=True):
        of_first = [[*worth.more_than_first.values()] for worth in worths]
        preferred = [[*worth.against_first.values()] for worth in worths]
        figures = (
            [worth.rewards["scene"].value for worth in worths],
            [gains[0].value for gains in of_first if gains],
            *([shares[place].value for shares in preferred if shares] for place in (0, 1)),
            [worth.diversity.value for worth in worths if worth.diversity],
        )
        yield short_name(worths[0].model), *map(spread, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ddpo", action="store_true", help="DDPO as well")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--seeds", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(1)
    how = {"ddpo": words.ddpo, "device": words.device}
    results = [study(words.out / str(seed), seed=seed, **how) for seed in range(words.seeds)]
    print(f"\nmean of {words.seeds} seeds (lowest–highest)\n\n{table(rows_over_seeds(results))}")
