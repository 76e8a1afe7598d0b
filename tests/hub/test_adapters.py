"""An adapter's folder as a model: merged into its base, or trained on, wherever a model is taken."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.files import hub as files_hub
from plaudit.files.hub import local_path
from plaudit.models.load import load_model
from tests.engine.toy import make_toy, write_rows
from tests.engine.toy_command import finish, plaudit, refused
from tests.hub.served import Hub, files_of, serving_hub, use_hub
from tests.methods.reward_model.rows import judged

SHORT = ("--steps", 2, "--batch-size", 4, "--learning-rate", 0.01, "--sample.rows", 0, "--device", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    toy = make_toy(folder)
    write_rows(folder / "pairs.jsonl", judged("comparisons", 24))
    words = ("--model", toy.model, "--data", toy.data, "--out", folder / "run", "--lora.rank", 2)
    finish("train", "sft", *words, *SHORT)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def weights(folder: Path, *, merge: bool = True) -> dict[str, torch.Tensor]:
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), merge=merge)
    return {name: weight.detach() for name, weight in model.named_parameters()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert set(one) == set(other)
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_adapter_is_its_base_with_the_adapter_merged(made, capsys):
    folder = local_path(made / "run" / "adapter", "model")
    assert_same(weights(folder), weights(made / "run" / "model"))
    assert_same(weights(folder, merge=False), weights(made / "base"))
    assert f"a LoRA adapter on {(made / 'base').resolve()}; it is merged" in capsys.readouterr().err


@pytest.mark.slow
def test_every_command_takes_an_adapter(made, tmp_path, capsys):
    adapter, pairs = str(made / "run" / "adapter"), str(made / "pairs.jsonl")
    ask = ["--prompt", "the cat", "--temperature", "0", "--max-tokens", "6"]
    assert main(["sample", "--model", adapter, *ask]) == 0
    one = capsys.readouterr().out
    assert main(["sample", "--model", str(made / "run" / "model"), *ask]) == 0
    assert capsys.readouterr().out == one
    few = ["--n", "2", "--device", "cpu", "--judge", "length:1-3", "--bootstrap", "20", "--max-tokens", "2"]
    assert main(["eval", "policy", str(made / "base"), adapter, "--prompts", pairs, *few]) == 0
    plan = ["plan", "dpo", "--model", adapter, "--data", pairs, "--no-measure", "--device", "cpu"]
    assert main(plan) == 0
    live = ["--reference.kind", "live", *map(str, SHORT)]
    train = ["train", "dpo", "--model", adapter, "--data", pairs, *live]
    assert main([*train, "--out", str(tmp_path / "run"), "--no-check"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main([*train, "--out", str(tmp_path / "run"), "--no-check"]) == 0
    assert "this run is finished" in capsys.readouterr().err
    assert str((made / "run" / "adapter").resolve()) in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.slow
def test_a_kept_adapter_is_trained_on_and_the_reference_is_what_the_run_began_with(made, tmp_path, capsys):
    adapter, pairs = made / "run" / "adapter", made / "pairs.jsonl"
    still = [
        *("--steps", "1", "--learning-rate", "1e-12", "--batch-size", "4", "--sample.rows", "0"),
        "--no-check",
    ]
    train = ["train", "dpo", "--model", str(adapter), "--data", str(pairs), "--reference.kind", "live"]
    out = tmp_path / "still"
    assert main([*train, "--lora.keep", "--out", str(out), *still]) == 0, capsys.readouterr().err
    assert_same(weights(out / "model"), weights(made / "run" / "model"))
    # A run that has not moved has log-ratios of 0: ln 2. Beneath the adapter they would not be.
    [line] = [
        json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines() if '"loss"' in text
    ]
    assert line["loss"] == pytest.approx(0.693147, abs=1e-5)
    kept, old = (load_file(folder / "adapter_model.safetensors") for folder in (out / "adapter", adapter))
    for name, weight in old.items():
        torch.testing.assert_close(kept[name], weight, rtol=0, atol=1e-6)


def test_an_adapter_is_kept_only_where_there_is_one_and_a_policy_learns(made, tmp_path, capsys):
    adapter, pairs = made / "run" / "adapter", made / "pairs.jsonl"
    train = ["train", "dpo", "--model", str(adapter), "--data", str(pairs), "--lora.keep"]
    assert main([*train, "--out", str(tmp_path / "b"), "--lora.rank", "5"]) == 2
    assert "the kept adapter has rank 2" in capsys.readouterr().err
    assert main([*train, "--model", str(made / "base"), "--out", str(tmp_path / "c")]) == 2
    assert "is no adapter that could be trained on" in capsys.readouterr().err
    reward = ["train", "reward", "--model", str(adapter), "--data", str(pairs), "--lora.keep"]
    assert main([*reward, "--out", str(tmp_path / "d")]) == 2
    assert "only a policy's own adapter" in capsys.readouterr().err


def damaged(made: Path, folder: Path, **settings: object) -> Path:
    shutil.copytree(made / "run" / "adapter", folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


def test_an_adapter_that_cannot_be_a_model_is_refused_in_a_sentence(made, tmp_path):
    def refused(sentence: str, folder: Path) -> None:
        with pytest.raises(UserError, match=sentence):
            weights(local_path(folder, "model"))

    nowhere = damaged(made, tmp_path / "a", base_model_name_or_path="/nowhere")
    refused("its base model is '/nowhere', and no model lies there", nowhere)
    refused("an adapter of type 'PREFIX_TUNING'", damaged(made, tmp_path / "b", peft_type="PREFIX_TUNING"))
    reward = damaged(made, tmp_path / "h", task_type="SEQ_CLS")
    refused(r"the adapter of a reward model.*; merge it into its base first \(merge_and_unload", reward)
    refused("this is a JSON list and not an object", _broken(made, tmp_path / "c"))
    whole = str(local_path(made / "run" / "adapter", "model"))
    refused("is an adapter itself", damaged(made, tmp_path / "d", base_model_name_or_path=whole))
    pickled = damaged(made, tmp_path / "e")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    refused("no adapter_model.safetensors; plaudit does not open pickled weights", pickled)
    lacking = damaged(made, tmp_path / "f")
    tensors = load_file(lacking / "adapter_model.safetensors")
    tensors.pop(next(iter(tensors)))
    save_file(tensors, lacking / "adapter_model.safetensors")
    refused("the adapter does not fit this model: Found missing adapter keys", lacking)
    refused("the adapter does not fit this model", damaged(made, tmp_path / "g", r=7))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("train", "reward", "--model"), ("train", "grpo", "--reward"), ("eval", "reward")]
)
def test_the_adapter_of_a_reward_model_is_refused_with_what_to_give(made, tmp_path, command):
    adapter, data = tmp_path / "run" / "adapter", made / "pairs.jsonl"
    words = ("--model", made / "base", "--data", data, "--out", tmp_path / "run", "--lora.rank", 2)
    assert plaudit("train", "reward", *words, *SHORT).code == 0
    more = {
        "--model": ("--data", data, "--out", tmp_path / "o"),
        "--reward": ("--model", made / "base", "--prompts", data, "--out", tmp_path / "o"),
        "reward": ("--data", data),
    }
    said = refused(*command, adapter, *more[command[-1]])
    instead = f"alone are merged; the two merged lie in {adapter.parent / 'model'}: give that"
    assert f"{adapter}: the adapter of a reward model, and adapters of language models {instead}" in said


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            ("train", "sft", "--model", "gpt2", "--data", "rows.jsonl"),
            "org/name: openai-community/gpt2, not gpt2",
        ),
        (("sample", "--prompt", "Hi", "--model", "gpt2"), "org/name: openai-community/gpt2, not gpt2"),
        (("eval", "policy", "gpt2", "--world"), "org/name: openai-community/gpt2, not gpt2"),
        (("train", "sft", "--data", "gsm8k"), "a data set of the hub is named with its owner, as org/name"),
    ],
)
def test_a_name_without_its_owner_is_told_the_form(made, tmp_path, command, says):
    model = () if "--model" in command or command[0] == "eval" else ("--model", made / "base")
    assert says in refused(*command, *model, *() if command[0] == "sample" else ("--out", tmp_path / "o"))


def _broken(made: Path, folder: Path) -> Path:
    damaged(made, folder)
    (folder / "adapter_config.json").write_text("[]")
    return folder


@pytest.mark.slow
def test_an_adapter_of_the_hub_on_a_base_of_the_hub(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with serving_hub() as hub:
        _adapter_of_the_hub(made, tmp_path, monkeypatch, hub)


def _adapter_of_the_hub(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    use_hub(monkeypatch, hub, tmp_path)
    base = hub.put("org/base", files_of(made / "base"))
    trained = ["train", "sft", "--model", "org/base", "--data", str(made / "rows.jsonl"), "--lora.rank", "2"]
    assert main([*trained, "--out", "run", *map(str, SHORT), "--no-check"]) == 0
    settings = json.loads(Path("run/adapter/adapter_config.json").read_text())
    assert (settings["base_model_name_or_path"], settings["revision"]) == ("org/base", base)
    adapter = hub.put("org/adapter", files_of(Path("run/adapter")))
    files_hub._fetched.cache_clear()
    assert_same(weights(local_path("org/adapter", "model")), weights(Path("run/model")))
    on = ["train", "sft", "--model", "org/adapter", "--data", str(made / "rows.jsonl")]
    assert main([*on, "--out", "on", *map(str, SHORT), "--no-check"]) == 0
    lineage = json.loads(Path("on/lineage.json").read_text())
    assert lineage["hub"] == {"org/adapter": adapter, "org/base": base}
    assert f"model: org/adapter@{adapter}" in Path("on/config.yaml").read_text()
