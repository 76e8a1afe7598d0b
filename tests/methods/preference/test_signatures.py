"""Options, YAML keys and algorithms of one's own: all of them come from a function's signature."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import plaudit
from plaudit.cli.main import main
from plaudit.config import read_yaml, resolve, to_yaml
from plaudit.errors import UserError
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, dpo, preference_algorithm, simpo
from plaudit.methods.preference.cells import CELLS
from plaudit.methods.preference.config import (
    PreferenceConfig,
    configured_algorithm,
    preference_config_type,
    with_algorithm_settings,
)
from tests.methods.printed import printed

FOLDERS = ("--model", "m", "--data", "d", "--out", "o")
OWN = '''
import plaudit
from torch.nn.functional import logsigmoid


def sharp(beta: float = 0.1, sharpness: float = 2.0):
    """−s log σ(βh).

    sharpness: s, how steep the loss is.
    """
    def loss(chosen, rejected, context):
        return -sharpness * logsigmoid(beta * (chosen.delta_B - rejected.delta_B))

    return plaudit.PreferenceAlgorithm(loss=loss, beta=beta)


row = sharp()
number = 3
'''


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_what_config_yaml_says_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    config_type = preference_config_type(name)
    config = config_type(model=Path("m"), data=Path("d"), out=Path("o"))
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert resolve(config_type, read_yaml(file, config_type), {}) == config
    assert configured_algorithm(name, config).settings == preference_algorithm(name).settings


def test_settings_are_those_of_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    config, err = printed(capsys, FOLDERS, "simpo", "--beta", "2.5", "--gamma", "0.5")
    assert (config["beta"], config["gamma"]) == (2.5, 0.5)
    assert not err


def test_a_setting_of_another_algorithm_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "dpo", *FOLDERS, "--gamma", "1"]) == 2
    assert "gamma is not part of dpo: leave it out, or choose among simpo" in capsys.readouterr().err


def test_a_setting_of_another_algorithm_is_refused_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("gamma: 1.0\n")
    with pytest.raises(UserError, match="gamma is not part of dpo"):
        read_yaml(file, preference_config_type("dpo"))


def test_an_algorithm_made_in_python_stands_in_the_config() -> None:
    plain = PreferenceConfig(model=Path("m"), data=Path("d"), out=Path("o"), seed=3)
    config: Any = with_algorithm_settings(replace(simpo(gamma=0.5), nll_coef=0.2), plain)
    assert (config.beta, config.gamma, config.nll_coef, config.seed) == (2.0, 0.5, 0.2, 3)
    named = with_algorithm_settings("dpo", plain)
    assert named == with_algorithm_settings(dpo(), plain)
    assert {field.name for field in fields(named)} == {field.name for field in fields(plain)} | {
        "beta"
    } | set(CELLS)


def test_an_algorithm_of_ones_own_has_options_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    config, _ = printed(capsys, FOLDERS, "preference", "--algorithm", "mine.py:sharp", "--sharpness", "3")
    assert (config["algorithm"], config["beta"], config["sharpness"]) == ("mine.py:sharp", 0.1, 3.0)
    Path("config.yaml").write_text(yaml.safe_dump(config))
    again, _ = printed(capsys, FOLDERS, "preference", "--config", "config.yaml")
    assert again == config
    made = preference_config_type("preference", "mine.py:sharp")
    record = configured_algorithm("preference", made(**{**config_paths(), "sharpness": 3.0}))
    assert (record.name, record.settings) == ("sharp", {"beta": 0.1, "sharpness": 3.0})
    given = preference_config_type("preference", "mine.py:row")
    assert configured_algorithm("preference", given(**config_paths())).beta == 0.1


def config_paths() -> dict[str, Any]:
    return {"model": Path("m"), "data": Path("d"), "out": Path("o")}


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("mine.py", "write file.py:name"),
        ("mine.py:nobody", "cannot be had"),
        ("mine.py:number", "neither a function that makes an algorithm nor one"),
        ("other.py:row", "cannot be had"),
    ],
)
def test_what_is_no_algorithm_is_refused(capsys, tmp_path, monkeypatch, word, why):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    assert main(["train", "preference", *FOLDERS, "--algorithm", word]) == 2
    assert why in capsys.readouterr().err


def test_a_setting_without_a_default_or_with_a_name_that_runs_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def bare(beta): ...\ndef taken(epochs: float = 1.0): ...\n")
    with pytest.raises(UserError, match="bare: its setting beta has no default"):
        preference_config_type("preference", "mine.py:bare")
    with pytest.raises(UserError, match="every run has a setting epochs already"):
        preference_config_type("preference", "mine.py:taken")


def test_public_names_make_an_algorithm() -> None:
    from plaudit.losses.preference import hinge

    made = plaudit.PreferenceAlgorithm(loss=plaudit.pair_loss(hinge, beta=0.2), beta=0.2)
    assert made.needs == {"reference"}
