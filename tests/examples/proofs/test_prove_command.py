"""``python -m examples.proofs``: tables, verdicts and exit codes, and a row of the user's own."""

import json
import re

import pytest

from examples.proofs import prove as proving
from examples.proofs.__main__ import main
from examples.proofs.claim import Claim

OWN = """
from torch.nn.functional import logsigmoid
from plaudit.methods.preference.row import PreferenceAlgorithm

def mine(chosen, rejected, known):
    return -logsigmoid(0.1 * (chosen.delta_B - rejected.delta_B))

row = PreferenceAlgorithm(loss=mine, beta=0.1)
wrong = PreferenceAlgorithm(loss=mine, beta=0.3)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_losses_here.py").write_text(OWN, "utf-8")
    return tmp_path


def test_names_are_proven_and_written(folder, capsys):
    assert main(["dpo-norm", "wpo", "--out", "here"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"wpo .*reached", said)
    assert "3 claims, all hold" in said
    written = json.loads((folder / "here" / "proof.json").read_text("utf-8"))
    assert written["holds"] is True
    assert [one["name"] for one in written["proofs"]] == ["dpo-norm", "wpo"]
    assert {one["name"]: one["reaches"] for one in written["proofs"]} == {"dpo-norm": False, "wpo": True}
    assert all(one["holds"] and isinstance(one["measured"], float) for one in written["claims"])


def test_beta_and_seed_are_those_that_were_asked_for(folder):
    assert main(["r-dpo", "--beta", "1.5", "--seed", "4", "--out", "."]) == 0
    written = json.loads((folder / "proof.json").read_text("utf-8"))
    assert (written["beta"], written["seed"], written["proofs"][0]["beta"]) == (1.5, 4, 1.5)


@pytest.mark.parametrize(
    ("path", "said"),
    [(".py:row", "reaches π*"), (":row", "reaches π*"), (".py:wrong", "does not rest at π*")],
)
def test_a_row_of_ones_own_is_proven_or_ends_with_one(folder, capsys, path, said):
    assert main(["--own", f"own_losses_here{path}"]) == int("wrong" in path)
    assert said in capsys.readouterr().out


def test_a_claim_that_fails_ends_with_one(folder, capsys, monkeypatch):
    false = Claim(name="dpo", sentence="is nowhere near", measure=lambda lab: 0.0, low=1.0)
    monkeypatch.setattr(proving, "CLAIMS", (false,))
    assert main(["dpo"]) == 1
    assert "FAILS" in (said := capsys.readouterr().out)
    assert "1 claims, 1 fail" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["robust"], "did you mean robust-dpo?"),
        (["coverge"], "did you mean coverage?"),
        (["estimater"], "did you mean estimators?"),
        (["dpo", "--beta", "0"], "expected a number above 0"),
        (["--own", "own_losses_here.py:mine"], "no row"),
        (["--own", "own_losses_here.py:roow"], "cannot be had"),
        (["--own", "missing.py:row"], "cannot be had"),
        (["--own", "row"], "file.py:name"),
        (["--own", "own_losses_here.py:row", "--beta", "0.2"], "leave --beta out"),
        (["dpo", "--out", "own_losses_here.py"], "no folder"),
    ],
)
def test_faults_are_said(folder, capsys, words, complaint):
    assert main(words) == 2
    assert complaint in capsys.readouterr().err
