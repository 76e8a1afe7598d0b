"""Options, YAML keys and algorithms of one's own: all of them come from a function's signature."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import plaudit
from plaudit.cli.main import main
from plaudit.config import read_yaml, resolve, to_yaml
from plaudit.errors import UserError
from plaudit.methods.algorithm import cell_settings
from plaudit.methods.policy.algorithms import (
    POLICY_ALGORITHMS,
    dapo,
    grpo,
    gspo,
    policy_algorithm,
    ppo,
    ppo_penalty,
    trpo,
)
from plaudit.methods.policy.cells import CELLS, NAMED, cell_name, describe_cells
from plaudit.methods.policy.config import POLICY, PolicyConfig, policy_config_type
from tests.methods.printed import printed

FOLDERS = ("--model", "m", "--prompts", "p", "--reward", "exact", "--out", "o")
PATHS: dict[str, Any] = {"model": Path("m"), "prompts": Path("p"), "reward": "exact", "out": Path("o")}
OWN = '''
from dataclasses import replace

from plaudit.methods.policy.algorithms import grpo


def capped(kl_coef: float = 0.02, cap: float = 1.5):
    """−min(r, c) A.

    cap: c, the largest ratio that counts.
    """

    def surrogate(inputs):
        return -inputs.ratio_NT.clamp(max=cap) * inputs.advantage_NT

    return replace(grpo(kl_coef), surrogate=surrogate)


row = capped()
number = 3
'''


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", POLICY_ALGORITHMS)
def test_what_config_yaml_says_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    config_type = policy_config_type(name)
    config = config_type(**PATHS)
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert resolve(config_type, read_yaml(file, config_type), {}) == config
    assert POLICY.configured(name, config).settings == policy_algorithm(name).settings


def test_every_named_cell_can_be_chosen_and_is_told_by_its_name() -> None:
    for kind, table in NAMED.items():
        for name in table:
            assert cell_name(kind, policy_algorithm("ppo", **{kind: name})) == name


def test_a_cell_in_place_of_another_keeps_the_settings_that_both_have() -> None:
    dual = policy_algorithm("gspo", surrogate="dual-clip", dual_clip=2.0)
    assert cell_settings(dual.surrogate) == {"clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": 2.0}
    assert cell_settings(policy_algorithm("ppo", lam=0.5, advantage="gae").advantage)["lam"] == 0.5
    assert dual.clip_range == gspo().clip_range == (3e-4, 4e-4)


def test_needs_are_those_of_the_cells() -> None:
    assert "critic" in ppo().needs
    assert "critic" not in policy_algorithm("ppo", advantage="group-z", group_size=2).needs
    assert {"critic", "bandit_critic"} <= policy_algorithm("grpo", advantage="bandit").needs
    assert "reference" in grpo().needs
    assert "reference" not in dapo().needs
    assert "reference" in policy_algorithm("dapo", divergence="loss").needs
    assert policy_algorithm("grpo", advantage="gae").whitens_advantages
    assert not policy_algorithm("ppo", advantage="monte-carlo").whitens_advantages
    assert not policy_algorithm("ppo", whiten_advantages=False).whitens_advantages


def test_a_divergence_that_is_named_has_the_estimator_that_is_right_there() -> None:
    moved = policy_algorithm("grpo", divergence="reward")
    assert (moved.reward_kl.__name__, moved.loss_kl, moved.kl_coef) == ("k1", None, 0.04)
    given = policy_algorithm("dapo", divergence="loss")
    assert (given.reward_kl, given.loss_kl.__name__, given.kl_coef) == (None, "k3", 0.05)
    assert policy_algorithm("grpo", divergence="none").kl_coef == 0


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("rloo", {"vf_coef": 0.5}, "vf_coef is read by no cell of rloo"),
        ("ppo", {"beta": 0.1}, "the KL coefficient is kl_coef"),
        ("ppo", {"max_kl": 0.1}, "max_kl is read by no cell of ppo"),
        ("grpo", {"surrogate": "log-prob", "clip_low": 0.1}, "clip_low is read by no cell of grpo"),
        ("grpo", {"divergence": "none", "kl_coef": 0.1}, "kl_coef is read by no cell of grpo"),
        ("dapo", {"kl_estimator": "k2"}, "has no divergence to estimate"),
        ("grpo", {"whiten_rewards": True}, "only those of answers"),
        ("grpo", {"clip_hgih": 0.1}, "clip_hgih is not part of grpo"),
        ("grpo", {"group_size": 0}, "group_size must be at least 1"),
    ],
)
def test_what_no_cell_reads_is_refused(name: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        policy_algorithm(name, **settings)


def test_an_algorithm_made_in_python_stands_in_the_config() -> None:
    plain = PolicyConfig(**PATHS, seed=3)
    config: Any = POLICY.with_settings(replace(trpo(max_kl=0.02), entropy_coef=0.5), plain)
    assert (config.max_kl, config.entropy_coef, config.seed) == (0.02, 0.5, 3)
    assert POLICY.with_settings("ppo-penalty", plain) == POLICY.with_settings(ppo_penalty(), plain)


def test_an_algorithm_of_ones_own_has_options_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    words = ("policy", "--algorithm", "mine.py:capped", "--cap", "1.2", "--group-size", "4")
    config, _ = printed(capsys, FOLDERS, *words)
    assert (config["algorithm"], config["kl_coef"], config["cap"]) == ("mine.py:capped", 0.02, 1.2)
    made = policy_config_type("policy", "mine.py:capped")
    record = POLICY.configured("policy", made(**PATHS, cap=1.2, group_size=4))  # pyright: ignore[reportCallIssue]
    assert (record.name, record.settings, record.group_size) == ("capped", {"kl_coef": 0.02, "cap": 1.2}, 4)
    assert "surrogate" in describe_cells(record)
    assert POLICY.configured("policy", policy_config_type("policy", "mine.py:row")(**PATHS)).kl_coef == 0.02
    assert main(["train", "policy", *FOLDERS, "--algorithm", "mine.py:number"]) == 2
    assert "neither a function that makes an algorithm nor one" in capsys.readouterr().err


@pytest.mark.slow
def test_an_algorithm_of_ones_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.methods.policy.commands import make_place, well

    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    place = make_place(tmp_path)
    more = ("--rounds", 2, "--group-size", 3, "--sample.rows", 0)
    went = well(place, "policy", "own", "--algorithm", "mine.py:capped", "--cap", 1.1, *more)
    assert "note: capped: −min(r, c) A" in went.said
    assert (went.run / "model").is_dir()


def test_names_of_cells_are_options() -> None:
    assert {"advantage", "surrogate", "ratio", "reduction", "divergence", "kl_estimator"} <= {*CELLS}
    assert plaudit.PolicyAlgorithm is type(grpo())
