"""Policy runs through the command, in this process: a tiny model whose words are tokens, and rules."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit.cli.main import main
from tests.engine.toy import write_rows
from tests.rollouts.talkers import write_talker

RULES = '''
import math

def w33(answer):
    """The word that is wanted."""
    return float(str(answer).split().count("w33"))

def few(answer):
    """Other words than that; what a judge likes who is not gamed."""
    said = str(answer).split()
    return float(len(set(said))) - 2.0 * max(0, said.count("w33") - 2)

def short(answer):
    return -float(len(str(answer).split()))

def some(answer, prompt):
    """No verdict on every other prompt."""
    return None if int(str(prompt).split()[0][1:]) % 2 else float(len(str(answer).split()))

def half(answer):
    """No verdict on answers of an even number of words."""
    words = len(str(answer).split())
    return None if words % 2 else float(words)

def nobody(answer):
    return None

def nan(answer):
    return math.nan

def broken(answer):
    raise ValueError("no idea")

def even(prompt, answer):
    """All answers to a prompt alike, at every other prompt."""
    number = int(str(prompt).split()[0][1:])
    return 1.0 if number % 2 else float(len(str(answer).split()))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def rule(self, name: str) -> str:
        return f"{self.folder / 'rules.py'}:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Went:
    code: int
    said: str
    run: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "metrics.jsonl").read_text("utf-8").splitlines()]

    def figures(self, name: str) -> list[float]:
        return [line[name] for line in self.lines if name in line]


def make_place(folder: Path, *, name: str = "llama", chats: bool = True) -> Place:
    place = Place(folder=folder)
    write_talker(place.model, name, chats=chats)
    write_rows(folder / "prompts.jsonl", [{"prompt": f"w{n} w{n + 1}"} for n in range(7, 31)])
    texts = [{"prompt": f"w{n}", "completion": f"w{n + 1} w{n + 2}"} for n in range(7, 20)]
    write_rows(folder / "texts.jsonl", texts)
    (folder / "rules.py").write_text(RULES, encoding="utf-8")
    return place


def command(place: Place, name: str, out: str | Path, *more: object) -> list[str]:
    reward = () if "--environment" in more else ("--reward", place.rule("w33"))
    words = [
        *("train", name, "--model", place.model, "--prompts", place.folder / "prompts.jsonl"),
        *(*reward, "--out", place.folder / out, "--batch-size", 4),
        *("--draw.max-tokens", 6, "--learning-rate", 0.005, "--held-out", 0.1, "--device", "cpu"),
        *("--sample.rows", 1, "--optimizer.warmup", 0),
        *(("--ptx.data", place.folder / "texts.jsonl") if name == "ppo-ptx" else ()),
        *more,
    ]
    return [str(word) for word in words]


def go(place: Place, name: str, out: str | Path, *more: object) -> Went:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(command(place, name, out, *more))
    return Went(code=code, said=said.getvalue(), run=place.folder / out)


def well(place: Place, name: str, out: str | Path, *more: object) -> Went:
    went = go(place, name, out, *more)
    assert went.code == 0, went.said
    return went


def refused(place: Place, name: str, out: str | Path, *more: object) -> Went:
    went = go(place, name, out, *more)
    assert went.code == 2, went.said
    return went
