"""What peers say, recorded in files: every run compares with it; where a peer is installed, it proves it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PEER = Path(os.environ.get("PLAUDIT_PEER_PYTHON", ROOT / ".peers/trl/bin/python"))
RECORDED, ASKED = "recorded", "asked now"
SOURCES = (RECORDED, pytest.param(ASKED, marks=pytest.mark.peer))
"""Whom a parity test compares with: the record, in every run, and TRL itself, where it is installed."""
CLOSE = 1e-5
"""Parts of the peer compute in single precision, so elsewhere its numbers may differ by so much."""
WRITE = "PLAUDIT_WRITE_PEER_VALUES"
"""Set by ``make peer-values``: what the peer says takes the place of the record."""
LONG = 200
"""A list that takes more characters than this is kept once, however often it occurs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerValues:
    """One question to the peer and the file with its answer."""

    file: Path
    """Where the answer is recorded."""
    ask: Callable[[], Any]
    """Asks the peer; what it says is JSON."""
    python: Path = PEER
    """The environment of the peer."""
    packages: Sequence[str] = ("trl", "torch", "transformers")
    """Whose versions are recorded; the first is the peer itself."""

    def answers(self, source: str) -> Any:
        return self.recorded()["answers"] if source == RECORDED else _asked(self)

    def recorded(self) -> Any:
        record = json.loads(self.file.read_text(encoding="utf-8"))
        return record | {"answers": _unfolded(record["answers"], record["lists"])}

    def prove(self) -> None:
        """The peer says what is recorded; ``make peer-values`` first makes the record what it says."""
        peer = self.packages[0]
        if os.environ.get(WRITE):
            lists: dict[str, Any] = {}
            versions = {name: version_of(name, self.python) for name in self.packages}
            record = {"versions": versions, "answers": _folded(_asked(self), lists), "lists": lists}
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_text(_lines(record), encoding="utf-8")
        record = self.recorded()
        known, now = record["versions"][peer], version_of(peer, self.python)
        assert known == now, f"another {peer} than the recorded one: make peer-values"
        assert_close(record["answers"], _asked(self))


def ask_script(script: str, question: object, python: Path = PEER) -> Any:
    """What a script of the tests prints behind ``ANSWERS``, run by the peer's own Python."""
    said = _output([str(python), str(ROOT / "tests" / script)], json.dumps(question))
    return json.loads(said.partition("ANSWERS")[2])


def version_of(package: str, python: Path) -> str:
    return _output([str(python), "-c", f"from importlib.metadata import version as v; print(v({package!r}))"])


def assert_close(found: Any, wanted: Any) -> None:
    """The same shape and words; numbers to single precision."""
    if isinstance(wanted, Mapping):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_close(found[name], value)
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        assert len(found) == len(wanted)
        for one, value in zip(found, wanted, strict=True):
            assert_close(one, value)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=CLOSE, abs=CLOSE)
    else:
        assert found == wanted


@cache
def _asked(values: PeerValues) -> Any:
    return values.ask()


def _output(words: Sequence[str], text: str = "") -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False, timeout=280, env=environment, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.strip()


def _folded(answers: Any, lists: dict[str, Any]) -> Any:
    """Every long list by its number in ``lists``: batches and models are the same in most answers."""
    if isinstance(answers, Mapping):
        return {name: _folded(value, lists) for name, value in answers.items()}
    if isinstance(answers, list) and len(json.dumps(answers)) > LONG:
        known = next((name for name, one in lists.items() if one == answers), f"#{len(lists)}")
        lists[known] = answers
        return known
    return answers


def _unfolded(answers: Any, lists: Mapping[str, Any]) -> Any:
    if isinstance(answers, Mapping):
        return {name: _unfolded(value, lists) for name, value in answers.items()}
    return lists.get(answers, answers) if isinstance(answers, str) else answers


def _lines(record: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each entry, so that what another version of the peer says shows as a diff."""
    return (
        "{" + ",\n".join(f"{json.dumps(name)}: {_entries(value)}" for name, value in record.items()) + "}\n"
    )


def _entries(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{\n"
            + ",\n".join(
                f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in value.items()
            )
            + "\n}"
        )
    return json.dumps(value, separators=(",", ":"))
