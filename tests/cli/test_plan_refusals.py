"""``plaudit plan``: what it cannot plan it refuses in words."""

from __future__ import annotations

import pytest

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.runs.planner.machine import parse_bytes
from tests.cli.test_plan import SEVEN_B, bare
from tests.engine.toy import make_toy


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--machine-memory=-3GiB",), "more than no memory"),
        (("--machine-memory", "24 barrels"), "write a number and one of"),
        (("--machine-memory", "1.2.3GiB"), "is no number"),
        (("--on", "cuda"), "say --machine-memory too"),
        (("--gpu", "h200", "--on", "cpu"), "say one of them"),
        (("--gpu", "h2000"), "h200"),
        (("--tokens-per-second", "0"), "above 0"),
        (("--prompt-tokens", "5"), "both"),
        (("--ranks", "0"), "1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, capsys, words, complaint):
    toy = make_toy(tmp_path)
    assert main(["plan", "sft", "--model", str(toy.model), "--data", str(toy.data), *words]) == 2
    assert complaint in capsys.readouterr().err


def test_folders_without_config_or_tokenizer_are_refused_in_words(tmp_path, capsys):
    data = str(make_toy(tmp_path / "toy").data)
    (tmp_path / "empty").mkdir()
    stated = ["--prompt-tokens", "5", "--answer-tokens", "5"]
    assert main(["plan", "sft", "--model", str(tmp_path / "empty"), "--data", data, *stated]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    model = bare(tmp_path / "llama", SEVEN_B)
    assert main(["plan", "sft", "--model", str(model), "--data", data]) == 2
    assert "--prompt-tokens" in capsys.readouterr().err


def test_bytes_are_read_as_people_write_them():
    assert parse_bytes("1.5gib") == 3 * 2**29
    assert parse_bytes("2 TB") == 2 * 10**12
    with pytest.raises(UserError, match="more than no memory"):
        parse_bytes("0GB")
