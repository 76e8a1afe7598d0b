"""A run's lineage names content, not files: the same content is the same, any change is another."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import pytest
import torch

import plaudit
from plaudit.engine import run_folder
from plaudit.errors import UserError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "sub" / "weights.safetensors").write_bytes(b"\0" * 5000)
    return folder


def gathered(model: Path, tmp_path: Path) -> run_folder.Lineage:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n')
    return run_folder.gather_lineage(data=[rows], model=model, tokenizer=model, template="{{ x }}", seed=3)


def test_everything_that_went_in_is_recorded_and_comes_back(model: Path, tmp_path: Path) -> None:
    found = gathered(model, tmp_path)
    rows = tmp_path / "rows.jsonl"
    assert found.data == {str(rows): hashlib.sha256(rows.read_bytes()).hexdigest()}
    assert found.template == hashlib.sha256(b"{{ x }}").hexdigest()
    assert found.seed == 3
    assert found.code["plaudit"] == plaudit.__version__
    assert found.libraries["torch"] == metadata.version("torch")
    assert set(found.libraries) >= {"transformers", "tokenizers", "safetensors"}
    assert found.machine["threads"] == torch.get_num_threads()
    run_folder.write_lineage(tmp_path / "lineage.json", found)
    assert run_folder.read_lineage(tmp_path / "lineage.json") == found


def test_a_copy_has_the_same_hash_wherever_and_whenever_it_was_made(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(model / name, copy / name)
    (copy / "sub").symlink_to(model / "sub")
    (copy / ".cache").mkdir()
    assert run_folder.hash_path(copy) == run_folder.hash_path(model)


@pytest.mark.parametrize("change", ["edit", "rename", "add", "remove", "move"])
def test_any_change_to_a_folder_changes_its_hash(model: Path, change: str) -> None:
    before = run_folder.hash_path(model)
    weights = model / "sub" / "weights.safetensors"
    match change:
        case "edit":
            weights.write_bytes(b"\0" * 4999 + b"\1")
        case "rename":
            weights.rename(model / "sub" / "other.safetensors")
        case "add":
            (model / "empty").touch()
        case "remove":
            weights.unlink()
        case _:
            weights.rename(model / "weights.safetensors")
    assert run_folder.hash_path(model) != before


def test_only_the_tokenizers_files_make_its_hash(model: Path, tmp_path: Path) -> None:
    before = gathered(model, tmp_path)
    (model / "config.json").write_text('{"a": 1}')
    after = gathered(model, tmp_path)
    assert after.tokenizer == before.tokenizer
    assert after.model != before.model


def test_paths_that_cannot_be_recorded_are_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone.jsonl: there is no such file"):
        run_folder.hash_path(tmp_path / "gone.jsonl")
    with pytest.raises(UserError, match="holds no tokenizer"):
        run_folder.gather_lineage(data=[], tokenizer=model / "sub", seed=0)
    os.mkfifo(model / "pipe")
    with pytest.raises(UserError, match="pipe: neither a file nor a folder"):
        run_folder.hash_path(model)
    (model / "pipe").unlink()
    (model / "sub" / "up").symlink_to(model)
    with pytest.raises(UserError, match="up: a link that leads back"):
        run_folder.hash_path(model)


def test_a_run_does_not_go_on_with_other_content(model: Path, tmp_path: Path) -> None:
    before = gathered(model, tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "b"}\n')
    after = run_folder.gather_lineage(
        data=[tmp_path / "rows.jsonl"], model=model, tokenizer=model, template="{{ x }}", seed=4
    )
    with pytest.raises(UserError) as caught:
        run_folder.compare_lineages(before, after)
    lines = str(caught.value).splitlines()
    assert lines[1].startswith(f"  data: {tmp_path / 'rows.jsonl'}: ")
    assert lines[2] == "  seed: 3 → 4"
    assert "`--out` elsewhere" in lines[3]


def test_a_run_goes_on_with_other_versions_and_says_so(model: Path, tmp_path: Path) -> None:
    before = gathered(model, tmp_path)
    after = replace(before, libraries={**before.libraries, "torch": "9.9"})
    assert run_folder.compare_lineages(before, before) == ()
    assert run_folder.compare_lineages(before, after) == (
        f"libraries: torch: {before.libraries['torch']} → 9.9; results may differ in the last bits",
    )


def test_a_lineage_that_is_not_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "lineage.json").write_text('{"seed": 1}')
    with pytest.raises(UserError, match=r"lineage.json: not a lineage that plaudit wrote"):
        run_folder.read_lineage(tmp_path / "lineage.json")


def test_in_a_checkout_the_commit_is_recorded() -> None:
    folder = Path(plaudit.__file__).parent
    tracked = subprocess.run(
        ["git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py"],
        capture_output=True,
        check=False,
    )
    if tracked.returncode != 0:
        pytest.skip("plaudit does not run from a git checkout here")
    head = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    assert run_folder.gather_lineage(data=[], seed=0).code["commit"] == head.stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRanks:
    """A group whose last rank has a torch of another version."""

    world_size: int = 3

    def all_gather_strings(self, texts: Sequence[str]) -> list[str]:
        [own] = texts
        facts = json.loads(own)
        return [own, own, json.dumps(facts | {"torch": "1.0"} if "torch" in facts else facts)]


def test_ranks_with_libraries_of_other_versions_do_not_train_together() -> None:
    here = metadata.version("torch")
    with pytest.raises(UserError) as refused:
        run_folder.refuse_differing_ranks(OtherRanks(), {"seed": 1}, {})  # pyright: ignore[reportArgumentType]
    said = str(refused.value).splitlines()
    assert f"  torch: {here} on rank 0, 1; 1.0 on rank 2" in said
    assert sum(" on rank " in line for line in said) == 1
