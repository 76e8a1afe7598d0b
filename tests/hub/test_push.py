"""``plaudit push``: a run's model and a card made from the run, onto a small hub on the loopback."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.files import hub as files_hub
from plaudit.files.hub import local_path
from tests.engine.toy import make_toy
from tests.engine.toy_command import plaudit
from tests.hub.served import Hub, files_of, serving_hub, use_hub


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy = make_toy(tmp_path_factory.mktemp("toy"))
    run = toy.model.parent / "run"
    words = ("--steps", 2, "--batch-size", 4, "--learning-rate", 0.01, "--held-out", 0.2, "--sample.rows", 0)
    done = plaudit(
        "train", "sft", "--model", toy.model, "--data", toy.data, "--out", run, "--device", "cpu", *words
    )
    assert done.code == 0, done.err
    return run


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    with serving_hub() as served:
        use_hub(monkeypatch, served, tmp_path)
        yield served


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run of one's own: what is pushed is written into its folder."""
    return shutil.copytree(trained, tmp_path / "mine")


def front(card: str) -> dict[str, object]:
    return yaml.safe_load(card.split("---\n")[1])


# The hub's client gives its own client a file in a way that the latter would rather have otherwise.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_run_is_pushed_with_its_card_and_comes_back_as_it_was(hub, run, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", hub.token)
    (run / "model" / "stray.py").write_text("import os")
    assert main(["push", str(run), "org/mine", "--licence", "apache-2.0", "--private"]) == 0
    held = hub.files("org/mine")
    repository = hub.repositories["model", "org/mine"]
    assert repository.private
    assert "stray.py" not in held
    (run / "model" / "stray.py").unlink()
    pushed = files_of(run / "model")
    assert {name: held[name] for name in pushed} == pushed
    card = held["README.md"].decode()
    assert front(card)["license"] == "apache-2.0"
    assert front(card)["tags"] == ["plaudit", "sft"]
    lineage = json.loads((run / "lineage.json").read_text())
    for part in (
        *("# mine", "plaudit train sft", "2 steps", "## What to doubt", "held_out/loss", "without intervals"),
        *(
            lineage["model"],
            *lineage["data"].values(),
            "| batch_size | `4` |",
            "plaudit chat --model org/mine",
        ),
    ):
        assert part in card, part
    # Whose machine it was is nobody's business.
    assert str(run.parent) not in card
    assert "/toy" not in card
    [record] = json.loads((run / "pushed.json").read_text())
    assert record["commit"] == repository.refs["main"]
    assert f"commit {record['commit']}" in capsys.readouterr().out
    files_hub._fetched.cache_clear()
    assert (local_path("org/mine", "model") / "model.safetensors").read_bytes() == held["model.safetensors"]
    assert main(["report", str(run)]) == 0


@pytest.mark.slow
def test_a_dry_run_shows_card_and_files_and_asks_the_hub_nothing(hub, run, capsys):
    assert main(["push", str(run), "org/mine", "--licence", "mit", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert front(shown)["license"] == "mit"
    assert f"model.safetensors  {(run / 'model' / 'model.safetensors').stat().st_size:,} bytes" in shown
    assert not hub.asked
    assert not (run / "pushed.json").exists()


def test_what_cannot_be_pushed_is_refused_in_a_sentence(hub, run, monkeypatch, capsys):
    refused = {
        "--licence: say under which licence": ["push", str(run), "org/mine"],
        "x: no name of the hub": ["push", str(run), "x", "--licence", "mit"],
        "the hub has to know who you are": ["push", str(run), "org/mine", "--licence", "mit"],
        "there is no such folder": ["push", "nothing", "org/mine", "--licence", "mit"],
        "no training run": ["push", str(run / "model"), "org/mine", "--licence", "mit"],
    }
    for sentence, words in refused.items():
        assert main(words) == 2
        assert sentence in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "stolen")
    assert main(["push", str(run), "org/mine", "--licence", "mit"]) == 2
    assert "answers 401" in capsys.readouterr().err
    (run / "summary.json").unlink()
    assert main(["push", str(run), "org/mine", "--licence", "mit"]) == 2
    assert "not finished" in capsys.readouterr().err


def test_an_evaluation_brings_win_rates_with_intervals_and_its_doubts(hub, run, capsys):
    base = Path(yaml.safe_load((run / "config.yaml").read_text())["model"])
    rows = Path("prompts.jsonl")
    rows.write_text("".join(json.dumps({"prompt": f"the cat {n}"}) + "\n" for n in range(4)))
    words = ["eval", "policy", str(base), str(run), "--prompts", str(rows), "--judge", "length:1-3"]
    assert main([*words, "--bootstrap", "20", "--max-tokens", "4", "--out", "judged", "--device", "cpu"]) == 0
    capsys.readouterr()
    push = ["push", str(run), "org/mine", "--licence", "mit", "--dry-run"]
    assert main([*push, "--evaluation", "judged"]) == 0
    shown = capsys.readouterr().out
    assert "| against | judge | preferred | 95 % interval, % | prompts |" in shown
    assert "| length:1-3 |" in shown
    assert "- prompts: there were only 4" in shown
    shutil.move(run, "elsewhere")
    assert main(["push", "elsewhere", *push[2:], "--evaluation", "judged"]) == 2
    assert "elsewhere is none of its policies" in capsys.readouterr().err
