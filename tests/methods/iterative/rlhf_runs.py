"""Runs of ``plaudit train rlhf`` through the command, in this process."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plaudit.cli.main import main
from tests.engine.toy import Toy, write_rows
from tests.methods.iterative.test_loop_runs import lines, text
from tests.rollouts.talkers import write_talker

MINE = '''
def fuller(first, second):
    """The longer answer is better."""
    a, b = (len(str(said).split()) for said in (first, second))
    return "tie" if a == b else "first" if a > b else "second"

def full(answer):
    return float(len(str(answer).split()))

def silent(first, second):
    return None

def odd(first, second):
    return 0.7
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    code: int
    said: str
    out: Path

    @property
    def words(self) -> str:
        return " ".join(self.said.split())

    def part(self, number: int, name: str) -> Path:
        return self.out / "rounds" / str(number) / name

    def settings(self, number: int, run: str) -> dict[str, Any]:
        return yaml.safe_load((self.part(number, run) / "config.yaml").read_text("utf-8"))

    @property
    def figures(self) -> list[dict[str, Any]]:
        return lines(self.out / "rounds.jsonl")


def command(toy: Toy, out: Path, *more: object) -> list[str]:
    by = () if "--comparisons" in more else ("--comparisons", f"{toy.data.parent / 'mine.py'}:fuller")
    words = [
        *("train", "rlhf", "--model", toy.model, "--prompts", toy.data, "--out", out, *by),
        *("--loop.rounds", 2, "--loop.teach", "reinforce", "--steps", 2, "--batch-size", 4),
        *("--reward-run.held-out", 0.3, "--reward-run.batch-size", 8, "--reward-run.learning-rate", 0.003),
        *("--draw.max-tokens", 24, "--policy.group-size", 2, "--learning-rate", 0.003),
        *("--save-every", 100, "--evaluate-every", 100),
        *("--max-length", 128, "--sample.rows", 0, "--device", "cpu", *more),
    ]
    return [str(word) for word in words]


def go(toy: Toy, out: Path, *more: object) -> Went:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(command(toy, out, *more))
    return Went(code=code, said=said.getvalue(), out=out)


def well(toy: Toy, out: Path, *more: object) -> Went:
    went = go(toy, out, *more)
    assert went.code == 0, went.said
    return went


def refused(toy: Toy, out: Path, *more: object) -> Went:
    went = go(toy, out, *more)
    assert went.code == 2, went.said
    return went


def make_place(folder: Path) -> Toy:
    """A model that ends its answers now and then, prompts for it, and functions that compare."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(MINE, "utf-8")
    asked = [{"prompt": f"w{n} w{n + 1}"} for n in range(20, 40)]
    model = write_talker(folder / "model", stops=(2, *range(8, 14)))
    return Toy(model=model, data=write_rows(folder / "prompts.jsonl", asked))


def said_of(row: dict[str, Any]) -> tuple[str, str, str]:
    return text(row["prompt"]), text(row["chosen"]), text(row["rejected"])
