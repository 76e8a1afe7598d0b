"""vLLM as the server of a judge: its letters' chances are those that the same folder gives here."""

import json
import math
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from benchmarks.judging import questions_of, tasks_of, write_model
from benchmarks.work import SHAPES
from plaudit.data.judging import Orders, Verdict, outcomes
from plaudit.feedback.judges.chat import TOO_LONG
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from tests.feedback.judges.judges import both_orders, pair
from tests.peer import ROOT

VLLM = Path(os.environ.get("PLAUDIT_VLLM_PYTHON", ROOT / ".peers/vllm/bin/python"))
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


def write_first_lover(folder: Path) -> None:
    write_model(folder, SHAPES["tiny"], questions_of(tasks_of(30)))
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}), "utf-8")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    drawn: Any = LlamaForCausalLM.from_pretrained(folder)
    drawn.config.tie_word_embeddings = False
    model: Any = LlamaForCausalLM(drawn.config)
    with torch.no_grad():
        for layer in model.model.layers:
            # Layers that add nothing: the next token hangs on the last one alone.
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(drawn.model.embed_tokens.weight)
        state = model.model.norm(model.model.embed_tokens.weight)
        unit = state / state.square().sum(-1, keepdim=True)
        head = model.lm_head.weight.mul_(0.01)
        last = tokenizer("assistant:\n", add_special_tokens=False).input_ids[-1]
        first, second = tokenizer.convert_tokens_to_ids(["A", "B"])
        head[first], head[second] = 12 * unit[last], 11 * unit[last]
        head[tokenizer.eos_token_id] = 20 * (unit[first] + unit[second])
    model.save_pretrained(folder)


@contextmanager
def vllm_serving(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = [*(str(VLLM), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder))]
    words += [*("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port))]
    words += [*("--max-model-len", "1024", "--dtype", "float32", "--enforce-eager")]
    url = f"http://127.0.0.1:{port}/v1"
    with subprocess.Popen(words, env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}) as process:
        try:
            while not _is_up(url):
                assert process.poll() is None, "vLLM ended"
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=2):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@pytest.mark.peer(VLLM)
def test_vllm_judges_by_letters_as_the_same_folder_does_here(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_first_lover(folder)
    tasks = [pair("Mice.", "Tea."), pair("Bark.", "Mice, I think.")]
    settings = JudgeSettings(cache=tmp_path / "replies", device="cpu", soft=True)
    here = outcomes(judge_named(f"model:{folder},how=letter", settings), tasks, 0)
    with vllm_serving(folder) as url:
        word = f"openai:{url}#tiny,how=letter"
        there = outcomes(judge_named(word, settings), tasks, 0)
        [too_long] = both_orders(judge_named(word, settings), [pair("word " * 4000, "Tea.")])
    for verdict in (*here, *there):
        assert isinstance(verdict, Verdict)
        assert isinstance(verdict.orders, Orders)
        # Who likes what comes first contradicts itself, which both orders find out.
        assert verdict.orders.forward == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-4)
        assert verdict.orders.backward == pytest.approx(1 / (1 + math.exp(1)), abs=1e-4)
        assert verdict.probability == 0.5
    assert too_long.reason == TOO_LONG
