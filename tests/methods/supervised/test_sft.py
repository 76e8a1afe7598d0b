"""Supervised runs: what is saved is asked as it was trained, and what a reward says may choose it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.data.records import user_turn
from plaudit.errors import UserError
from plaudit.methods.config import AnswerJudgeSettings, SftConfig
from plaudit.methods.registry import config_type, run_method
from plaudit.models.settings import LoraSettings
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens import parallel
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import Toy, demonstrations, make_model, make_toy, write_rows

OWN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}"
)


def trained(toy: Toy, out: Path, *, method: str = "sft", **settings: Any) -> Path:
    """The model of a run of one step."""
    config = config_type(method)(
        **{"model": toy.model, "data": toy.data, **settings}, out=out, device="cpu", sinks=(), steps=1
    )
    run_method(method, config)
    return out / "model"


@pytest.mark.slow
def test_raw_text_is_asked_raw_and_a_template_of_ones_own_is_saved(tmp_path: Path) -> None:
    toy = make_toy(tmp_path)
    chat = make_encoder(trained(toy, tmp_path / "chat"))
    assert chat.encode_prompt("Hi?") == chat.encode_prompt(user_turn("Hi?"))
    raw_model = trained(toy, tmp_path / "raw", text="raw")
    sampler = LocalSampler(raw_model)
    assert not sampler.has_chat_template
    assert sampler.encoder.info.decode(sampler.encoder.encode_prompt("Hi?")) == "Hi?"
    assert "prompts in plain text are raw" in (tmp_path / "raw" / "notes.jsonl").read_text("utf-8")
    # A run that goes on from it asks in the same way, until it is told otherwise.
    path = tmp_path / "own.jinja"
    path.write_text(OWN, "utf-8")
    again = trained(Toy(model=raw_model, data=toy.data), tmp_path / "again", template=path)
    assert make_encoder(again).encode_prompt("Hi?") == sampler.encoder.encode_prompt("Hi?")
    assert (
        make_encoder(again, text="chat")
        .info.decode(make_encoder(again, text="chat").encode_prompt("Hi?"))
        .endswith("<|im_start|>user: Hi?<|im_end|><|im_start|>assistant: ")
    )


def test_a_template_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    toy = make_toy(tmp_path)
    empty = tmp_path / "empty.jinja"
    empty.write_text(" ", "utf-8")
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for turn in messages %}\n{{ turn.content", "utf-8")
    for path, words in {
        tmp_path / "none.jinja": "none.jinja: cannot be read as text",
        empty: "empty.jinja: the file is empty",
        broken: "broken.jinja: this is no template in Jinja: line 2: unexpected end of template",
    }.items():
        with pytest.raises(UserError, match=words):
            trained(toy, tmp_path / "run", template=path)


def test_rows_are_named_by_column_and_progress_is_shown(tmp_path, monkeypatch, capsys):
    toy = make_toy(tmp_path)
    rows = [
        {"ask": f"{row['prompt']} and why so, please?", "completion": row["completion"], "system": "Briefly."}
        for row in demonstrations(24)
    ]
    write_rows(toy.data, rows)
    with pytest.raises(UserError, match="no known layout"):
        trained(toy, tmp_path / "run")
    ticks = iter(range(0, 10**6, 11))
    monkeypatch.setattr(parallel, "monotonic", lambda: next(ticks))
    model = trained(toy, tmp_path / "named", columns=("prompt=ask",))
    assert "rows.jsonl: 24 of 24 rows are tokens" in capsys.readouterr().err
    first = json.loads((tmp_path / "named" / "samples.jsonl").read_text("utf-8").splitlines()[0])
    assert "Briefly." in json.dumps(first)
    assert make_encoder(model).asks_in_turns


@pytest.mark.slow
def test_distillation_by_hard_targets_alone_is_sft_and_its_distance_is_still_the_teachers(tmp_path):
    toy = make_toy(tmp_path)
    make_model(tmp_path / "teacher", seed=1)
    plain = trained(toy, tmp_path / "plain", learning_rate=0.01)
    to_teacher = {"method": "distil", "teacher": tmp_path / "teacher", "learning_rate": 0.01}
    weights, distances = [load_file(plain / "model.safetensors")], []
    for hard in (1.0, 0.0):
        out = tmp_path / f"hard {hard}"
        weights.append(load_file(trained(toy, out, hard_weight=hard, **to_teacher) / "model.safetensors"))
        [line] = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
        distances.append((line["divergence"], line["held_out/divergence"]))
    sft, hard, soft = (torch.cat([one.flatten() for one in each.values()]) for each in weights)
    torch.testing.assert_close(hard, sft, rtol=1e-4, atol=1e-6)
    assert (soft - sft).abs().max() > 1e-3
    assert distances[0][0] == pytest.approx(distances[1][0], rel=1e-6), "before the first step"
    assert distances[0][1] > distances[1][1], "and it falls where the teacher is followed"
    with pytest.raises(UserError, match="hard_weight must be from 0 to 1, not 2"):
        trained(toy, tmp_path / "run", hard_weight=2.0, **to_teacher)


@pytest.mark.parametrize("method", ["sft", "reward"])
def test_held_out_rows_are_looked_at_without_the_dropout_of_adapters(tmp_path: Path, method: str) -> None:
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    toy = make_toy(tmp_path)
    rows = demonstrations(24)
    if method == "reward":
        rows = [{"prompt": row["prompt"], "chosen": row["completion"], "rejected": "No."} for row in rows]
    write_rows(toy.data, rows)
    common: dict[str, Any] = {
        "method": method,
        "held_out": str(write_rows(tmp_path / "held.jsonl", rows[:6])),
    }
    drawn = LoraSettings(rank=4, dropout=0.7)
    model = trained(toy, tmp_path / "drawn", lora=drawn, learning_rate=0.3, **common)
    again = trained(Toy(model=model, data=toy.data), tmp_path / "again", learning_rate=1e-12, **common)
    seen = [json.loads((out.parent / "metrics.jsonl").read_text("utf-8")) for out in (model, again)]
    assert seen[0]["held_out/loss"] == pytest.approx(seen[1]["held_out/loss"], rel=1e-4)
    assert seen[0]["held_out/loss"] != pytest.approx(seen[0]["loss"], rel=1e-2), "the adapters have learnt"


GREEDY = SamplingSettings(temperature=0, max_tokens=12)
STEPS = {"steps": 6, "evaluate_every": 1, "save_every": 1, "learning_rate": 0.02}


@pytest.fixture
def judge(tmp_path: Path) -> str:
    """How many different words an answer has, and another reward that never has a verdict."""
    path = tmp_path / "mine.py"
    path.write_text(
        "def words(prompt, answer):\n    return len({*answer.split()})\n\n\n"
        "def nothing(prompt, answer):\n    return None\n",
        "utf-8",
    )
    return str(path)


def _figures(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def _trained(toy: Toy, out: Path, by: str, **changes: Any) -> Path:
    settings = {"held_out": "0.2", **STEPS, **changes}
    judge = AnswerJudgeSettings(by=by, prompts=3, tokens=12)
    run_method(
        "sft",
        SftConfig(model=toy.model, data=toy.data, out=out, device="cpu", sinks=(), judge=judge, **settings),
    )
    return out / "model"


def test_the_checkpoint_with_the_best_answers_becomes_the_model(toy: Toy, tmp_path: Path, judge: str) -> None:
    held_out = [{**row, "prompt": f"And {row['prompt']}"} for row in demonstrations(5)]
    path = write_rows(tmp_path / "held-out.jsonl", held_out)
    model = _trained(toy, tmp_path / "run", f"{judge}:words", held_out=str(path))
    scores = [line["held_out/judge"] for line in _figures(tmp_path / "run")]
    losses = [line["held_out/loss"] for line in _figures(tmp_path / "run")]
    assert len(scores) == 6
    assert scores.index(max(scores)) != losses.index(min(losses)), "the loss would have chosen the same"
    # By hand: what the written model answers is worth the best score that was seen.
    answers = LocalSampler(model).generate_answers([row["prompt"] for row in held_out[:3]], GREEDY)
    counts = [len({*group[0].text.split()}) for group in answers]
    assert sum(counts) / len(counts) == pytest.approx(max(scores))
    assert {"held_out/length_mean", "held_out/frac_finished"} <= _figures(tmp_path / "run")[0].keys()


@pytest.mark.slow
def test_another_figure_may_choose(toy: Toy, tmp_path: Path, judge: str) -> None:
    words = ["--model", str(toy.model), "--data", str(toy.data), "--device", "cpu", "--steps", "2"]
    words += ["--out", str(tmp_path / "run"), "--held-out", "0.2", "--judge.by", f"{judge}:words"]
    best = ["--judge.tokens", "8", "--keep.best", "held_out/token_accuracy", "--keep.best-is", "highest"]
    assert main(["train", "sft", *words, *best]) == 0
    assert all("held_out/judge" in line for line in _figures(tmp_path / "run"))
    assert "best: held_out/token_accuracy" in (tmp_path / "run" / "config.yaml").read_text("utf-8")


def test_held_out_rows_of_a_share_are_asked_and_no_trained_one(toy: Toy, tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    (tmp_path / "mine.py").write_text(
        "def note(prompt, answer):\n"
        f"    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write(prompt + chr(10))\n"
        "    return 1.0\n",
        "utf-8",
    )
    _trained(toy, tmp_path / "run", f"{tmp_path / 'mine.py'}:note", steps=1)
    asked = {*seen.read_text("utf-8").splitlines()}
    assert len(asked) == 3
    assert asked < {row["prompt"] for row in demonstrations(24)}


def test_what_cannot_choose_is_refused(toy: Toy, tmp_path: Path, judge: str) -> None:
    with pytest.raises(UserError, match="nothing: no answer to 3 held-out prompts got a verdict"):
        _trained(toy, tmp_path / "none", f"{judge}:nothing")
    with pytest.raises(UserError, match=r"judge\.by needs held-out rows"):
        _trained(toy, tmp_path / "all", f"{judge}:words", held_out="0")
    with pytest.raises(UserError, match="leave no room for a prompt"):
        _trained(toy, tmp_path / "long", f"{judge}:words", max_length=12)
