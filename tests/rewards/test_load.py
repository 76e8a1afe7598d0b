"""A reward is loaded by its folder, whatever lies there; what is no reward is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from plaudit.cli.main import main
from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.models.adapters import save_adapter
from plaudit.models.load import REWARD_FILE
from plaudit.models.settings import LoraSettings
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import ProcessManifest, save_combination, save_manifest
from plaudit.rewards.learned.process import StepReward
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.load import check_reward, load_reward
from tests.engine.toy import demonstrations, make_toy, write_rows
from tests.models.reward_zoo import fresh, make_tokenizer, start
from tests.models.zoo import PLAIN
from tests.rewards.scorers import apart, by_transformers, known, scorer_folder, tasks


def test_a_reward_models_folder_is_a_reward_of_its_name(tmp_path: Path) -> None:
    folder = scorer_folder(tmp_path)
    reward = load_reward(folder, device="cpu")
    assert isinstance(reward, LearnedReward)
    assert reward.name == "reward"
    check_reward(folder)
    begun = tmp_path / "start-llama"
    assert apart(reward.scores(tasks()), by_transformers(begun, fresh(begun), tasks())) < 1e-4


def test_a_runs_folder_and_the_model_in_it_are_the_same_reward(tmp_path: Path) -> None:
    run = tmp_path / "helpful"
    run.mkdir()
    scorer_folder(tmp_path / "made").rename(run / "model")
    by_run, by_model = load_reward(run, device="cpu"), load_reward(run / "model", device="cpu")
    assert by_run.name == by_model.name == "helpful"
    assert by_run.scores(tasks(4)) == by_model.scores(tasks(4))


def test_the_normalisation_and_pooling_of_the_folder_are_used(tmp_path: Path) -> None:
    folder = scorer_folder(tmp_path)
    raw = load_reward(folder, device="cpu").scores(tasks(4))
    facts = {"pooling": "last", "offset": 3.0, "scale": 2.0}
    (folder / REWARD_FILE).write_text(json.dumps(facts))
    shifted = [tuple((known(score) - 3) / 2 for score in row) for row in raw]
    assert apart(load_reward(folder, device="cpu").scores(tasks(4)), shifted) < 1e-5
    (folder / REWARD_FILE).write_text(json.dumps({**facts, "pooling": "mean"}))
    assert apart(load_reward(folder, device="cpu").scores(tasks(4)), shifted) > 0.01


def test_any_classifier_with_one_label_is_a_reward(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    torch.manual_seed(0)
    LlamaForSequenceClassification(LlamaConfig(**PLAIN, num_labels=1)).save_pretrained(folder)
    make_tokenizer("<pad>").save_pretrained(folder)
    reward = load_reward(folder, device="cpu")
    assert reward.name == "elsewhere"
    assert all(score is not None for row in reward.scores(tasks(4)) for score in row)


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-4), ("bfloat16", 0.5)])
def test_the_numbers_can_be_chosen(tmp_path: Path, dtype: str, close: float) -> None:
    folder = scorer_folder(tmp_path)
    exact = load_reward(folder, device="cpu").scores(tasks(4))
    assert 0 < apart(exact, load_reward(folder, device="cpu", dtype=dtype).scores(tasks(4))) < close


def test_a_process_reward_model_has_a_folder_too(tmp_path: Path) -> None:
    process = ProcessManifest(model=scorer_folder(tmp_path / "made"), reading="min")
    save_manifest(tmp_path / "process", process)
    reward = load_reward(tmp_path / "process", device="cpu")
    assert isinstance(reward, StepReward)
    assert (reward.name, reward.reading) == ("process", "min")
    assert all(0 <= known(score) <= 1 for row in reward.scores(tasks(4)) for score in row)


def test_a_language_model_is_named_and_the_way_to_its_implicit_reward_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    start(tmp_path).rename(run / "model")
    for folder in (run, run / "model"):
        with pytest.raises(UserError, match=r"a language model \(LlamaForCausalLM\).*combine implicit"):
            load_reward(folder)
        with pytest.raises(UserError, match="a language model"):
            check_reward(folder)


def _labels(where: Path) -> Path:
    LlamaForSequenceClassification(LlamaConfig(**PLAIN, num_labels=3)).save_pretrained(where / "three")
    make_tokenizer("<pad>").save_pretrained(where / "three")
    return where / "three"


def _adapter(where: Path) -> Path:
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    save_adapter(fresh(start(where)).with_adapters(LoraSettings(rank=2)).model, where / "adapter")
    return where / "adapter"


def _unfinished(where: Path) -> Path:
    (where / "run" / "checkpoints").mkdir(parents=True)
    return where / "run"


def _empty(where: Path) -> Path:
    (where / "empty").mkdir()
    return where / "empty"


def _other(where: Path) -> Path:
    (where / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    return where


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda where: where / "nowhere", "no such folder"),
        (_empty, "no reward lies here.*it holds nothing"),
        (_unfinished, "this run has learnt nothing yet"),
        (_adapter, "an adapter alone"),
        (_other, "this is a BertModel"),
        (_labels, "scores 3 labels"),
    ],
    ids=["nowhere", "empty", "unfinished", "adapter", "another model", "three labels"],
)
def test_what_is_no_reward_is_named(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=words):
        load_reward(make(tmp_path), device="cpu")


def test_numbers_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dtype 'int8': use auto"):
        load_reward(scorer_folder(tmp_path), dtype="int8")


def test_an_ensemble_of_a_run_is_loaded_by_the_runs_folder(tmp_path: Path) -> None:
    run = tmp_path / "choir"
    members = [run / "members" / str(n) for n in range(3)]
    for n, member in enumerate(members):
        member.mkdir(parents=True)
        scorer_folder(tmp_path / f"made-{n}", seed=n).rename(member / "model")
    save_combination(run, members, Combination(how="cautious", k=0.5))
    said = json.loads((run / "combined.json").read_text())
    assert said == {"how": "cautious", "k": 0.5, "members": ["members/0", "members/1", "members/2"]}
    shutil.move(run, tmp_path / "moved")
    reward = load_reward(tmp_path / "moved", device="cpu")
    assert reward.name == "moved"
    check_reward(tmp_path / "moved")
    alone = [load_reward(tmp_path / f"moved/members/{n}", device="cpu").scores(tasks(4)) for n in range(3)]
    table = torch.tensor([[score for row in rows for score in row] for rows in alone], dtype=torch.float64)
    wanted = table.mean(0) - 0.5 * table.var(0, unbiased=False).sqrt()
    found = [score for row in reward.scores(tasks(4)) for score in row]
    assert found == pytest.approx(wanted.tolist(), abs=1e-9)
    assert float(table.std(0).min()) > 0.01


@pytest.mark.parametrize("text", ["chat", "raw"])
def test_a_reward_model_reads_plain_text_as_it_was_trained_on_it(tmp_path: Path, text: str) -> None:
    rows = [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": " red."}
        for row in demonstrations(8)
    ]
    model, data = make_toy(tmp_path).model, write_rows(tmp_path / "pairs.jsonl", rows)
    command = ["train", "reward", "--model", model, "--data", data, "--out", tmp_path / "run", "--text", text]
    settings = ("--steps", 1, "--device", "cpu", "--no-check", "--sample.rows", 0)
    assert main([str(word) for word in (*command, *settings)]) == 0
    reward = load_reward(tmp_path / "run", device="cpu")
    plain = Task(prompt="the cat?", answers=(" sat.",), ended=(True,))
    turns = Task(prompt=user_turn("the cat?"), answers=(assistant_turn("sat."),), ended=(True,))
    (read,), (asked,) = reward.scores([plain, turns])
    assert (read == asked) == (text == "chat")
