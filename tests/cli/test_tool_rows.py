"""Rows with tools through the public commands: trained, sampled, scored, and written as they were read."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, tool_schemas
from plaudit.errors import UserError
from plaudit.results import LanguageModel
from plaudit.rollouts.local import LocalSampler
from plaudit.tokens.encode import Encoder, make_encoder
from tests.engine.toy import make_model, write_rows
from tests.tokens.test_tool_templates import QWEN25, TOOL, answered, called, trained_pieces

FRUITS = ("fig", "plum", "pear", "quince")
ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"What do {n} of the {FRUITS[n % 4]} cost?"},
            called({"fruit": FRUITS[n % 4], "n": n}, f"call-{n}"),
            answered(f"{n % 7} euros", f"call-{n}"),
            {"role": "assistant", "content": f"They cost {n % 7} euros."},
        ],
        "tools": [TOOL],
    }
    for n in range(24)
]
REWARD = """\
def called(answer, prompt, messages):
    assert [message.role for message in messages] == ["tools", "user", "assistant", "tool"]
    assert messages[2].tool_calls[0].name == "fruit_price" and "What a fruit costs" in prompt
    return len(answer) / 10
"""
ON_CPU = ("--device", "cpu", "--max-length", "1500")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("tools")
    make_model(where / "base")
    (where / "base" / "chat_template.jinja").write_text(QWEN25, encoding="utf-8")
    config = AutoConfig.from_pretrained(where / "base")
    config.max_position_embeddings = 2048
    config.save_pretrained(where / "base")
    write_rows(where / "sft.jsonl", ROWS)
    bad = {"role": "assistant", "content": "I cannot know."}
    pairs = [
        {"prompt": row["messages"][:1], "chosen": row["messages"][1:], "rejected": [bad], "tools": [TOOL]}
        for row in ROWS
    ]
    write_rows(where / "pairs.jsonl", pairs)
    write_rows(where / "asked.jsonl", [{"prompt": row["messages"][:3], "tools": [TOOL]} for row in ROWS[:4]])
    return where


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))


@pytest.mark.slow
def test_a_supervised_run_trains_the_turns_of_the_assistant(home: Path, capsys) -> None:
    command = ["train", "sft", "--model", "base", "--data", "sft.jsonl", "--out", "sft"]
    assert main([*command, "--steps", "2", *ON_CPU]) == 0
    assert "checks passed before the first step" in capsys.readouterr().err
    encoder = make_encoder(home / "sft" / "model")
    for record in read_records(home / "sft.jsonl").records:
        assert isinstance(record, Demonstration)
        call, answer = trained_pieces(encoder, record)
        assert call.startswith('<tool_call>\n{"name": "fruit_price", "arguments": {"fruit": "')
        assert call.endswith("}}\n</tool_call><|im_end|>")
        assert answer == f"{record.completion[-1].content}<|im_end|>"
        assert "euros" not in call


@pytest.mark.slow
def test_pairs_with_tools_train_a_policy_and_a_reward(home: Path, capsys) -> None:
    for method in ("dpo", "reward"):
        command = ["train", method, "--model", "base", "--data", "pairs.jsonl", "--out", method]
        assert main([*command, "--steps", "1", *ON_CPU]) == 0
        assert "checks passed before the first step" in capsys.readouterr().err
    assert main(["eval", "reward", "reward", "--data", "pairs.jsonl", "--out", "evaluated"]) == 0


@pytest.mark.slow
def test_a_policy_is_asked_with_its_tools_and_its_reward_sees_the_calls(home: Path, capsys) -> None:
    (home / "own.py").write_text(REWARD, encoding="utf-8")
    command = ["train", "grpo", "--model", "base", "--prompts", "asked.jsonl", "--reward", "own.py:called"]
    short = ["--steps", "1", "--batch-size", "2", "--group-size", "2", "--draw.max-tokens", "4"]
    assert main([*command, "--out", "grpo", *short, *ON_CPU]) == 0
    assert "What a fruit costs" in capsys.readouterr().err


def test_answers_are_drawn_with_the_tools_in_view(home: Path, capsys, monkeypatch) -> None:
    asked: list[str] = []
    encode_prompt = Encoder.encode_prompt

    def seen(encoder: Encoder, prompt):
        ids = encode_prompt(encoder, prompt)
        asked.append(encoder.info.decode(ids))
        return ids

    monkeypatch.setattr(Encoder, "encode_prompt", seen)
    draw = ["--n", "1", "--max-tokens", "3", "--device", "cpu", "--out", "drawn.jsonl"]
    assert main(["sample", "--model", "base", "--data", "asked.jsonl", *draw]) == 0
    assert json.dumps(TOOL) in asked[0]
    assert '{"name": "fruit_price", "arguments": {"fruit": "fig", "n": 0}}' in asked[0]
    assert '> assistant: fruit_price({"fruit": "fig", "n": 0})' in capsys.readouterr().out
    # What was drawn is a row to learn from, with the same prompt.
    given, back = (read_records(home / name).records for name in ("asked.jsonl", "drawn.jsonl"))
    assert [record.prompt for record in back] == [record.prompt for record in given]
    model = LanguageModel(home / "base", device="cpu")
    model.chat("What do figs cost?", tools=[TOOL], system="Be brief.", max_tokens=2)
    assert "Be brief.\n\n# Tools" in asked[-1]
    assert json.dumps(TOOL) in asked[-1]


@pytest.mark.slow
def test_rows_are_looked_at_checked_and_written(home: Path, capsys) -> None:
    assert main(["data", "inspect", "sft.jsonl"]) == 0
    assert 'assistant: fruit_price({"fruit": "fig", "n": 0})' in capsys.readouterr().out
    for name, layout in (("own.jsonl", "plaudit"), ("trl.jsonl", "trl"), ("trl.parquet", "trl")):
        assert main(["data", "convert", "sft.jsonl", name, "--to", layout]) == 0
        first, again = (read_records(home / file).records[0] for file in ("sft.jsonl", name))
        assert (again.prompt, again.completion) == (first.prompt, first.completion)
    assert tool_schemas(again.prompt) == [TOOL]
    assert main(["check", "sft", "--model", "base", "--data", "sft.jsonl", "--out", "checked", *ON_CPU]) == 0
    assert "none fails" in capsys.readouterr().out


def test_a_model_whose_template_knows_no_tools_is_not_trained_without_them(home: Path, capsys) -> None:
    make_model(home / "plain")
    words = ["--model", "plain", "--data", "sft.jsonl", "--out", "refused", "--device", "cpu"]
    assert main(["train", "sft", *words]) == 2
    assert "the chat template does not show the tools of a conversation" in capsys.readouterr().err
    sampler = LocalSampler(home / "plain")
    with pytest.raises(UserError, match="does not show the tools"):
        sampler.check(read_records(home / "asked.jsonl").records[0].prompt)
