"""Every damaged model folder is refused in a sentence, by every command that takes one, within seconds."""

import io
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.files.model_folder import check_model_folder, check_weight_files
from plaudit.models.load import load_model
from plaudit.tokens.encode import make_encoder
from tests.models.damaged_folders import DAMAGED, LAYER, WEIGHTS, adapter, edit, weights
from tests.models.zoo import ZOO, build
from tests.rollouts.talkers import write_talker

TRAINING = ("--steps", "1", "--batch-size", "2", "--max-length", "64")
ROLLOUT = ("--out", "run", "--draw.max-tokens", "4")
COMMANDS = {
    "sample": ("sample", "--prompt", "w7", "--max-tokens", "2", "--n", "1"),
    "chat": ("chat", "--max-tokens", "2"),
    "sft": ("train", "sft", "--data", "answers.jsonl", "--out", "run", *TRAINING),
    "dpo": ("train", "dpo", "--data", "pairs.jsonl", "--out", "run", *TRAINING),
    "reward": ("train", "reward", "--data", "pairs.jsonl", "--out", "run", *TRAINING),
    "grpo": ("train", "grpo", "--prompts", "answers.jsonl", "--reward", "exact", *TRAINING, *ROLLOUT),
    "eval": ("eval", "policy", "--prompts", "answers.jsonl", "--max-tokens", "2"),
    "plan": ("plan", "sft", "--data", "answers.jsonl", "--max-length", "64", "--no-measure"),
    "check": ("check", "sft", "--data", "answers.jsonl", "--max-length", "64"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return write_talker(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def model(sound, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("w7\n"))
    ask = [{"role": "user", "content": "w7"}]
    better, worse = ([{"role": "assistant", "content": word}] for word in ("w8", "w9"))
    for name, row in {
        "answers.jsonl": {"prompt": ask, "completion": better},
        "pairs.jsonl": {"prompt": ask, "chosen": better, "rejected": worse},
    }.items():
        Path(name).write_text((json.dumps(row) + "\n") * 4)
    return Path(shutil.copytree(sound, tmp_path / "model"))


def complaint(capsys, command: str, model: Path) -> str:
    given = (str(model),) if command == "eval" else ("--model", str(model))
    status = main([*COMMANDS[command], *given])
    said = capsys.readouterr().err
    assert status == 2, said
    assert "Traceback" not in said
    return said.strip()


@pytest.mark.one_in(39)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused_in_a_sentence(name, model, capsys):
    damaged = DAMAGED[name]
    damaged.damage(model)
    said = complaint(capsys, "sample", model)
    assert re.search(damaged.says, said), said
    assert re.fullmatch(rf"plaudit: [^\n]*{re.escape(str(model))}[^\n]+", said), said
    # Every other command in its turn: each sees every kind of damage.
    others = [command for command in COMMANDS if command != "sample"]
    if name in WEIGHTS:
        others.remove("plan")
    command = others[[*DAMAGED].index(name) % len(others)]
    assert re.search(damaged.says, complaint(capsys, command, model))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_the_same(command, model, capsys):
    edit(hidden_size="many")(model)
    assert 'config.json: hidden_size is "many", and it is a whole number' in complaint(capsys, command, model)


def test_a_pipe_of_rows_is_not_waited_for(model, capsys):
    Path("answers.jsonl").unlink()
    os.mkfifo("answers.jsonl")
    assert "answers.jsonl: this is a pipe or a device and no file" in complaint(capsys, "eval", model)


def test_a_folder_that_this_user_may_not_read(model, capsys):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (model / "config.json").chmod(0)
    assert "config.json: the file cannot be read (Permission denied)" in complaint(capsys, "sample", model)


def test_the_adapter_of_a_run_names_the_whole_model_beside_it(model, tmp_path, capsys):
    adapter()(model)
    before = tmp_path / "before"
    before.mkdir()
    model = model.rename(before / "adapter")
    (tmp_path / "base").rename(before / "model")
    assert f"the two merged lie in {before / 'model'}: give that" in complaint(capsys, "sft", model)


def test_rows_of_chats_need_a_template(model, capsys):
    (model / "chat_template.jinja").unlink()
    said = complaint(capsys, "sft", model)
    assert "no chat template; take a model that was trained on chats, give training a template" in said


def test_a_model_whose_numbers_explode_is_not_called_unknown(model, capsys):
    weights(lambda tensors: tensors[LAYER].fill_(3e38))(model)
    assert "scores are NaN or infinite, and no weight is" in complaint(capsys, "sft", model)


def test_an_added_token_beyond_the_embedding_is_refused_where_a_row_has_it(model, capsys):
    info = make_encoder(model).info
    info.tokenizer.add_tokens(["<new>"])
    info.tokenizer.save_pretrained(model)
    load_model(model, dtype=torch.float32, device=torch.device("cpu"))
    rows = Path("answers.jsonl")
    rows.write_text(rows.read_text().replace("w8", "w8 <new>"))
    assert "'<new>' is token 61, and the model knows 61 (0 to 60); leave it out of" in complaint(
        capsys, "sft", model
    )


@pytest.mark.parametrize("name", ZOO)
def test_a_sound_folder_of_any_family_is_let_through(name, tmp_path):
    build(name).save_pretrained(tmp_path, max_shard_size="4KB")
    edit(_attn_implementation_autoset=True)(tmp_path)
    check_model_folder(tmp_path)
    held = sum(w.numel() for path in tmp_path.glob("*.safetensors") for w in load_file(path).values())
    assert sum(math.prod(shape) for _, shape in check_weight_files(tmp_path).values()) == held


def test_a_cache_of_links_is_a_folder_like_any(model, tmp_path):
    blobs = Path(model.rename(tmp_path / "blobs"))
    model.mkdir()
    for blob in blobs.iterdir():
        (model / blob.name).symlink_to(Path("..") / "blobs" / blob.name)
    load_model(model, dtype=torch.float32, device=torch.device("cpu"))


def test_a_damaged_number_is_found_in_any_width(model):
    weights = load_file(model / "model.safetensors")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        spoilt = {name: weight.to(dtype) for name, weight in weights.items()}
        spoilt["model.norm.weight"][0] = float("-inf")
        save_file(spoilt, model / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(UserError, match=r"1 of 16 numbers of model\.norm\.weight are NaN or infinite"):
            load_model(model, dtype=dtype, device=torch.device("cpu"))
