"""Models and rows of the hub by their names: the real client against a small hub on the loopback."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.errors import UserError
from plaudit.files import hub as files_hub
from plaudit.files.hub import local_path, name_on_hub, short_name
from tests.engine.toy import demonstrations, make_toy
from tests.hub.served import Hub, environment, files_of, serving_hub, use_hub
from tests.methods.reward_model.rows import judged


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy(tmp_path_factory.mktemp("toy")).model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process talks to, with caches of its own, from an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with serving_hub() as served:
        use_hub(monkeypatch, served, tmp_path)
        yield served


def lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def prompts(*words: str) -> bytes:
    return lines([{"prompt": word} for word in words])


def read(word: str) -> list[str]:
    return [str(record.prompt) for record in read_records(word).records]


def in_a_process(hub: Hub, home: Path, *words: str) -> str:
    command, env = [sys.executable, "-m", *words], os.environ | environment(hub, home)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stderr


REPOSITORIES = (("models", "base"), ("datasets", "rows"))
DPO = ("--steps", "2", "--batch-size", "4", "--device", "cpu", "--sample.rows", "0", "--no-check")


@pytest.mark.slow
def test_a_user_trains_dpo_on_a_hub_model_and_a_hub_data_set_with_one_command(hub, base, tmp_path):
    card = b"---\nconfigs:\n- {config_name: default, data_files: data/train-*}\n---\nPairs.\n"
    rows = lines(judged("comparisons", 24))
    model = hub.put(
        "org/base", {**files_of(base), "pytorch_model.bin": b"pickled", "modeling.py": b"import os"}
    )
    data = hub.put(
        "org/pairs",
        {"README.md": card, "data/train-00000.jsonl": rows, "pairs.py": b"import os"},
        kind="dataset",
    )
    words = ("plaudit", "train", "dpo", "--model", "org/base", "--data", "org/pairs", "--out", "run")
    said = in_a_process(hub, tmp_path, *words, "--reference.kind", "live", *DPO)
    assert Path("run/model/model.safetensors").is_file()
    lineage = json.loads(Path("run/lineage.json").read_text())
    assert lineage["hub"] == {"org/base": model, "org/pairs": data}
    assert list(lineage["data"]) == [f"org/pairs@{data}:default/train"]
    settings = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (settings["model"], settings["data"]) == (f"org/base@{model}", f"org/pairs@{data}:default/train")
    assert not {"pytorch_model.bin", "modeling.py", "pairs.py"} & set(hub.downloads)
    assert f"org/base: commit {model} of the hub" in said


@pytest.mark.slow
def test_a_run_goes_on_with_the_commits_that_it_began_with(hub, base, capsys):
    first = hub.put("org/base", files_of(base))
    rows = hub.put("org/pairs", {"train.jsonl": lines(judged("comparisons", 24))}, kind="dataset")
    command = ["train", "dpo", "--model", "org/base", "--data", "org/pairs", "--out", "run", *DPO]
    assert main([*command, "--reference.kind", "live"]) == 0, capsys.readouterr().err
    hub.put("org/base", {**files_of(base), "generation_config.json": b'{"temperature": 2.0}'})
    hub.put("org/pairs", {"train.jsonl": lines(judged("comparisons", 12))}, kind="dataset")
    files_hub._fetched.cache_clear()
    assert main([*command, "--reference.kind", "live"]) == 0, capsys.readouterr().err
    assert "this run is finished" in capsys.readouterr().err
    lineage = json.loads(Path("run/lineage.json").read_text())
    assert lineage["hub"] == {"org/base": first, "org/pairs": rows}
    # main is the branch that a name without one means.
    assert main([*command, "--reference.kind", "live", "--model", "org/base@main"]) == 0
    hub.put("org/base", {**files_of(base), "generation_config.json": b'{"temperature": 2.0}'}, ref="next")
    assert main([*command, "--reference.kind", "live", "--model", "org/base@next"]) == 2
    assert "the config no longer matches" in capsys.readouterr().err


def test_a_run_on_a_branch_goes_on_with_its_commit(hub, base, capsys):
    first = hub.put("org/base", files_of(base), ref="next")
    Path("rows.jsonl").write_bytes(lines(demonstrations(24)))
    command = ["train", "sft", "--data", "rows.jsonl", "--out", "run", *DPO]
    assert main([*command, "--model", "org/base@next"]) == 0, capsys.readouterr().err
    newer = hub.put("org/base", {**files_of(base), "generation_config.json": b"{}"}, ref="next")
    hub.put("org/base", {**files_of(base), "generation_config.json": b"{}"})
    files_hub._fetched.cache_clear()
    assert main([*command, "--model", "org/base@next"]) == 0, capsys.readouterr().err
    assert json.loads(Path("run/lineage.json").read_text())["revisions"] == {f"org/base@{first}": "next"}
    assert "this run is finished" in capsys.readouterr().err
    for other in ("org/base", "org/base@main", f"org/base@{newer}"):
        assert main([*command, "--model", other]) == 2
        assert "the config no longer matches" in capsys.readouterr().err


def test_the_second_time_and_offline_it_comes_from_the_cache(hub, base, tmp_path, monkeypatch, capsys):
    commit = hub.put("org/base", files_of(base))
    folder = local_path("org/base", "model")
    assert name_on_hub(folder) == f"org/base@{commit}"
    assert short_name(folder) == "org/base"
    assert {path.name for path in folder.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    hub.asked.clear()
    files_hub._fetched.cache_clear()
    assert local_path("org/base", "model") == folder
    assert not hub.downloads
    use_hub(monkeypatch, hub, tmp_path, offline=True)
    hub.put("org/base", {"config.json": b"{}"})
    hub.asked.clear()
    for word in ("org/base", f"org/base@{commit}"):
        files_hub._fetched.cache_clear()
        assert local_path(word, "model") == folder
    assert not hub.asked


def test_a_cache_that_was_cleared_is_filled_again(hub, base):
    hub.put("org/base", files_of(base))
    folder = local_path("org/base", "model")
    os.remove((folder / "model.safetensors").resolve())
    files_hub._fetched.cache_clear()
    assert local_path("org/base", "model") == folder
    assert (folder / "model.safetensors").read_bytes() == (base / "model.safetensors").read_bytes()


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, base):
    old = hub.put("org/base", files_of(base))
    new = hub.put("org/base", {**files_of(base), "generation_config.json": b"{}"})
    hub.put("org/base", {**files_of(base), "chat_template.jinja": b"x"}, ref="v2")
    assert name_on_hub(local_path("org/base", "model")) == f"org/base@{new}"
    assert name_on_hub(local_path(f"org/base@{old}", "model")) == f"org/base@{old}"
    assert (local_path("org/base@v2", "model") / "chat_template.jinja").read_text() == "x"


def test_a_folder_here_wins_over_the_hub_and_it_is_said(hub, base, capsys):
    hub.put("org/base", files_of(base))
    local_path("org/base", "model")
    Path("org/base").mkdir(parents=True)
    assert local_path("org/base", "model") == Path("org/base")
    assert (
        "org/base: what lies here is taken, and not the hub's; hub:org/base means" in capsys.readouterr().err
    )
    assert name_on_hub(local_path("hub:org/base", "model"))
    # Whoever has a folder of that name means a folder in it: nothing is asked of the hub.
    hub.asked.clear()
    assert local_path("org/other", "model") == Path("org/other")
    assert local_path("rows/pairs.jsonl", "dataset") == Path("rows/pairs.jsonl")
    assert not hub.asked


def test_every_command_takes_a_model_of_the_hub(hub, base, capsys):
    hub.put("org/base", files_of(base))
    hub.put("org/pairs", {"train.jsonl": lines(judged("comparisons", 24))}, kind="dataset")
    assert (
        main(["sample", "--model", "org/base", "--prompt", "the cat", "--max-tokens", "2", "--n", "1"]) == 0
    )
    assert main(["data", "inspect", "org/pairs", "--model", "org/base"]) == 0
    assert "org/pairs/train: read as" in capsys.readouterr().out
    plan = ["plan", "dpo", "--model", "org/base", "--data", "org/pairs", "--no-measure", "--device", "cpu"]
    assert main(plan) == 0
    checked = main(["check", "dpo", "--model", "org/base", "--data", "org/pairs", "--only", "token-ids"])
    assert checked in (0, 2)
    policy = ["eval", "policy", "org/base", "--prompts", "org/pairs", "--n", "2", "--max-tokens", "2"]
    assert main([*policy, "--judge", "length:1-20", "--bootstrap", "20"]) == 0, capsys.readouterr().err
    assert "org/base" in capsys.readouterr().out


@pytest.mark.slow
def test_a_pipeline_takes_both(hub, base, capsys):
    commit = hub.put("org/base", files_of(base))
    hub.put("org/pairs", {"train.jsonl": lines(judged("comparisons", 24))}, kind="dataset")
    stage = {"do": "dpo", "model": "$model", "data": "org/pairs", "steps": 1, "check": False, "device": "cpu"}
    Path("p.yaml").write_text(yaml.safe_dump({"model": "org/base", "stages": [{"learn": stage}]}))
    assert main(["run", "p.yaml", "--out", "made"]) == 0, capsys.readouterr().err
    assert json.loads(Path("made/stages/learn/run/lineage.json").read_text())["hub"]["org/base"] == commit
    newer = hub.put("org/base", {**files_of(base), "generation_config.json": b"{}"})
    files_hub._fetched.cache_clear()
    capsys.readouterr()
    for more in (["--dry-run"], []):
        assert main(["run", "p.yaml", "--out", "made", *more]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.count(f"commit {newer}, and org/base@{commit} is kept; plaudit run --fresh takes") == 1
    assert "learn kept" in said
    assert main(["run", "p.yaml", "--out", "made", "--fresh"]) == 0
    assert json.loads(Path("made/hub.json").read_text())["model org/base"] == f"org/base@{newer}"
    assert main(["run", "p.yaml", "--out", "made"]) == 0
    assert json.loads(Path("made/stages/learn/run/lineage.json").read_text())["hub"]["org/base"] == newer


REFUSED = {
    "no/such": "the hub has no model of this name",
    "org/hidden": "or it is private (then log in (HF_TOKEN",
    "org/gated": "asks for consent first: accept its terms at",
    "org/base@v9": "org/base is there, and has no revision v9",
    "org/pickled": "no *.safetensors file lies there (it holds config.json, pytorch_model.bin)",
    "hub:a/b/c": "no name of the hub; write hub:org/name[@revision]",
    "org/b--c": "no name of the hub",
}


@pytest.mark.parametrize("word", REFUSED)
def test_a_model_that_cannot_be_had_is_refused_in_a_sentence(hub, base, word):
    hub.put("org/base", files_of(base))
    hub.put("org/hidden", files_of(base), private=True)
    hub.put("org/gated", files_of(base), gated=True)
    hub.put("org/pickled", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(UserError) as refusal:
        local_path(word, "model")
    assert REFUSED[word] in str(refusal.value)
    assert str(refusal.value).startswith(word.removeprefix("x"))


def test_a_token_opens_what_is_private_or_gated(hub, base, monkeypatch):
    hub.put("org/hidden", files_of(base), private=True, gated=True)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert (local_path("org/hidden", "model") / "config.json").is_file()


def test_offline_and_never_fetched_is_said(hub, base, tmp_path, monkeypatch):
    hub.put("org/base", files_of(base))
    use_hub(monkeypatch, hub, tmp_path, offline=True)
    with pytest.raises(UserError, match="the cache of the hub has no such model, and HF_HUB_OFFLINE is set"):
        local_path("org/base", "model")


def test_a_hub_that_cannot_be_reached_is_named(hub, tmp_path, monkeypatch):
    use_hub(monkeypatch, Hub(url="http://127.0.0.1:9"), tmp_path)
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9 cannot be reached"):
        local_path("org/base", "model")
    use_hub(monkeypatch, hub, tmp_path)
    hub.broken = 418
    with pytest.raises(UserError, match="answers 418"):
        local_path("org/base", "model")


def test_a_hub_that_never_answers_is_named_and_given_up(monkeypatch, tmp_path, capsys):
    from huggingface_hub import constants

    monkeypatch.setattr(files_hub, "SLOW_ANSWER", 0.1)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        silent = Hub(url=f"http://127.0.0.1:{mute.getsockname()[1]}")
        use_hub(monkeypatch, silent, tmp_path)
        began = time.monotonic()
        with pytest.raises(UserError, match=f"{silent.url} cannot be reached"):
            local_path("org/never", "model")
    assert time.monotonic() - began < 60
    assert f"asking {silent.url} …" in capsys.readouterr().err


def test_splits_and_configs_are_those_of_the_card(hub):
    card = """---
configs:
- config_name: plain
  data_files: plain.jsonl
- config_name: split
  data_files:
  - split: train
    path: [deep/**/a*.jsonl, "extra/[0-9].jsonl"]
  - split: test
    path: deep/test.jsonl
---
"""
    files = {
        "README.md": card.encode(),
        "plain.jsonl": prompts("p"),
        "deep/x/y/a1.jsonl": prompts("a1"),
        "deep/a2.jsonl": prompts("a2"),
        "extra/3.jsonl": prompts("3"),
        "extra/b.jsonl": prompts("b"),
        "deep/test.jsonl": prompts("t"),
    }
    hub.put("org/rows", files, kind="dataset")
    assert read("org/rows:plain") == ["p"]
    assert sorted(read("org/rows:split/train")) == ["3", "a1", "a2"]
    assert read("org/rows:split/test") == ["t"]
    with pytest.raises(
        UserError, match=r"it has several configs; give one of org/rows:plain, org/rows:split"
    ):
        read("org/rows")
    with pytest.raises(UserError, match=r"it has no config other; give one of org/rows:plain"):
        read("org/rows:other")
    with pytest.raises(
        UserError, match=r"several splits; give one of org/rows:split/train, org/rows:split/test"
    ):
        read("org/rows:split")
    with pytest.raises(UserError, match=r"it has no split dev; give one of org/rows:split/train"):
        read("org/rows:split/dev")


def test_splits_are_told_from_names_where_no_card_says_them(hub):
    hub.put(
        "org/shards",
        {
            f"data/{split}_prefs-0000{n}-of-00002.jsonl": prompts(f"{split}{n}")
            for split in ("train", "test")
            for n in (0, 1)
        },
        kind="dataset",
    )
    assert read("org/shards/train_prefs") == ["train0", "train1"]
    hub.put("org/words", {"train.jsonl": prompts("a"), "sub/valid.jsonl": prompts("v")}, kind="dataset")
    assert read("org/words/validation") == ["v"]
    hub.put("org/folders", {f"{f}/train.jsonl.json": prompts(f) for f in ("good", "safe")}, kind="dataset")
    assert read("org/folders") == ["good", "safe"]
    assert read("org/folders:safe") == ["safe"]
    with pytest.raises(UserError, match="it has no config none; its folders are good, safe"):
        read("org/folders:none")


def test_a_data_set_without_rows_that_are_read_is_refused(hub):
    hub.put("org/script", {"script.py": b"import os", "README.md": b"x"}, kind="dataset")
    hub.put("org/tar", {"a.tar": b"x", "README.md": b"x"}, kind="dataset")
    hub.put("org/mixed", {"train.csv": b"prompt\nx\n", "train.jsonl": prompts("x")}, kind="dataset")
    hub.put("org/card", {"train.csv": b"prompt\nx\n", "README.md": b"---\nconfigs: 5\n---\n"}, kind="dataset")
    hub.put("org/yaml", {"train.csv": b"prompt\nx\n", "README.md": b"---\na: [\n---\n"}, kind="dataset")
    for word, sentence in {
        "org/script": "its rows are made by a script, script.py, and scripts are never run",
        "org/tar": "no file of rows lies there",
        "org/mixed": "its files cannot be read as one table: train.csv, train.jsonl",
        "org/card": "configs: in its README.md lists no files",
        "org/yaml": "the front of its README.md is no YAML",
        "no/such": "the hub has no data set of this name",
    }.items():
        with pytest.raises(UserError) as refusal:
            read(word)
        assert sentence in str(refusal.value), word
    assert "script.py" not in hub.downloads


def test_a_data_set_is_read_offline_once_it_is_in_the_cache(hub, tmp_path, monkeypatch):
    hub.put(
        "org/two", {f"data/train-0000{n}-of-00002.jsonl": prompts(str(n)) for n in (0, 1)}, kind="dataset"
    )
    assert read("org/two") == ["0", "1"]
    use_hub(monkeypatch, hub, tmp_path, offline=True)
    files_hub._fetched.cache_clear()
    hub.asked.clear()
    assert read("org/two") == ["0", "1"]
    assert not hub.asked


def test_rows_split_names_the_split_of_a_data_set(hub, base):
    hub.put("org/rows", {"train.jsonl": prompts("a"), "test.jsonl": prompts("t")}, kind="dataset")
    assert len(read_records("org/rows", options=ReadOptions(split="test")).records) == 1


@pytest.mark.slow
def test_of_several_ranks_the_first_downloads_and_all_take_the_same_commit(hub, base, tmp_path):
    commit = hub.put("org/base", files_of(base))
    hub.put("org/rows", {"train.jsonl": lines(demonstrations(12))}, kind="dataset")
    launch = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "plaudit")
    words = ("train", "sft", "--model", "org/base", "--data", "org/rows", "--out", "run", "--steps", "1")
    more = ("--batch-size", "2", "--device", "cpu", "--sample.rows", "0", "--no-check")
    in_a_process(hub, tmp_path, *launch, *words, *more)
    assert json.loads(Path("run/lineage.json").read_text())["hub"]["org/base"] == commit
    assert hub.downloads.count("config.json") == 1
    asked = [line for line in hub.asked if "/revision/main" in line]
    assert asked == [f"GET /api/{kind}/org/{name}/revision/main" for kind, name in REPOSITORIES]
