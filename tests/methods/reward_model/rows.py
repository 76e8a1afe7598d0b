"""Judged rows with a rule that a toy can learn: the more dogs in an answer, the better it is."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.toy import WORDS, Toy, demonstrations, make_toy, write_rows

Row = dict[str, Any]
KINDS = ("comparisons", "rankings", "ratings", "thumbs", "steps")
LOSS = {
    "comparisons": "bradley-terry",
    "rankings": "k-wise",
    "ratings": "regression",
    "thumbs": "binary",
    "steps": "process",
}
"""What each is learnt by when nothing is said."""
OTHERS = [word for word in WORDS if word != "dogs"]


def question(chance: random.Random, number: int) -> str:
    return f"{number} {' '.join(chance.choices(OTHERS, k=chance.randint(2, 5)))}?"


def answer(chance: random.Random, dogs: int) -> str:
    """An answer with so many dogs in it, anywhere."""
    words = [*chance.choices(OTHERS, k=chance.randint(2, 5)), *["dogs"] * dogs]
    chance.shuffle(words)
    return f" {' '.join(words)}."


def _comparison(chance: random.Random) -> Row:
    best = chance.randint(1, 2)
    worst = chance.randint(0, best - 1)
    pair = {"chosen": answer(chance, best), "rejected": answer(chance, worst), "strength": best - worst}
    if chance.random() < 0.2:
        return {**pair, "chosen": pair["rejected"], "rejected": pair["chosen"], "probability": 0.1}
    return pair


def _ranking(chance: random.Random) -> Row:
    dogs = [chance.randint(0, 3) for _ in range(chance.randint(2, 4))]
    dogs[0] = 1 + max(dogs[1:])
    chance.shuffle(dogs)
    ranks = [1 + sum(other > one for other in dogs) for one in dogs]
    return {"completions": [answer(chance, one) for one in dogs], "ranks": ranks}


def _rating(chance: random.Random) -> Row:
    dogs = chance.randint(0, 2)
    return {"completion": answer(chance, dogs), "score": 5.0 + 2 * dogs}


def _thumb(chance: random.Random) -> Row:
    good = chance.randint(0, 1)
    return {"completion": answer(chance, 2 * good), "score": good, "thumb": True}


def _steps(chance: random.Random) -> Row:
    dogs = [chance.randint(0, 1) for _ in range(chance.randint(2, 3))]
    return {"steps": [answer(chance, one).strip() for one in dogs], "labels": [float(one) for one in dogs]}


_MAKERS: dict[str, Callable[[random.Random], Row]] = {
    "comparisons": _comparison,
    "rankings": _ranking,
    "ratings": _rating,
    "thumbs": _thumb,
    "steps": _steps,
}
_NAMES = {"thumbs": "rating", "steps": "steps"}


def judged(kind: str, rows: int = 60) -> list[Row]:
    chance = random.Random(kind)
    name = _NAMES.get(kind, kind.removesuffix("s"))
    return [
        {"kind": name, "prompt": question(chance, number), **_MAKERS[kind](chance)}
        for number in range(1, rows + 1)
    ]


def make_files(folder: Path, rows: int = 60) -> tuple[Toy, dict[str, Path]]:
    toy = make_toy(folder)
    files = {kind: write_rows(folder / f"{kind}.jsonl", judged(kind, rows)) for kind in KINDS}
    asked = [{**row, "completion": f" {row['completion']}"} for row in demonstrations(16)]
    return toy, {**files, "demonstrations": write_rows(folder / "demonstrations.jsonl", asked)}


def command(model: Path, data: Path, out: Path, *more: object) -> list[object]:
    return [
        *("train", "reward", "--model", model, "--data", data, "--out", out, "--text", "raw"),
        *("--steps", 10, "--batch-size", 4, "--learning-rate", 0.01, "--held-out", 0.1),
        *("--evaluate-every", 3, "--sample-every", 4, "--save-every", 2),
        *("--sample.rows", 2, "--sample.tokens", 8, "--device", "cpu", *more),
    ]
