"""``plaudit train rlhf`` on the command line: helped, configured by file, and named in words."""

import yaml

from plaudit.cli.main import main
from tests.cli.test_train_list import shown

GIVEN = ("rlhf", "--model", "sft/model", "--prompts", "p.jsonl", "--comparisons", "people", "--out", "runs/r")


def test_its_help_has_what_it_needs_and_nothing_that_it_does_not_read(capsys):
    text = shown(capsys, "rlhf", "--help")
    for option in ("--model", "--prompts", "--comparisons", "--out"):
        assert option in text
    every = shown(capsys, "rlhf", "--help-all")
    for option in ("--loop.rounds", "--reward-run.reward.noise", "--policy.kl-coef", "--draw.temperature"):
        assert option in every
    words = every.split()
    for option in ("--reward", "--environment", "--max-turns", "--rounds", "--data"):
        assert option not in words


def test_a_printed_config_reads_back_the_same(capsys, tmp_path):
    first = shown(capsys, *GIVEN, "--loop.answers", "6", "--reward-run.epochs", "2", "--print-config")
    found = yaml.safe_load(first)
    assert found["comparisons"] == "people"
    assert found["loop"]["answers"] == 6
    assert found["reward_run"]["epochs"] == 2.0
    assert not {"data", "reward", "environment", "rounds"} & {*found}
    file = tmp_path / "config.yaml"
    file.write_text(first, "utf-8")
    assert shown(capsys, "rlhf", "--config", str(file), "--print-config") == first


def test_without_comparisons_it_says_what_is_missing(capsys):
    assert main(["train", "rlhf", "--model", "m", "--out", "o"]) == 2
    assert "missing: --prompts, --comparisons" in capsys.readouterr().err
