"""What the tests of checks share: a healthy subject of every kind of run, made as the run itself makes it."""

import atexit
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

from plaudit.engine.distributed import process_group
from plaudit.methods.named_runs import prepare_run
from plaudit.methods.registry import config_type
from plaudit.methods.run import start_run
from plaudit.preflight.check import PreflightSubject, run_checks
from plaudit.preflight.checks import CHECKS
from tests.engine.toy import demonstrations, make_model, write_rows

Method = Literal["sft", "reward", "dpo", "kto", "grpo", "ppo"]
BOS = "<|begin|>"


def make_model_with_bos(folder: Path, family: str = "llama") -> Path:
    import torch

    torch.manual_seed(0)
    return shutil.copytree(_made_once(family), folder, dirs_exist_ok=True)


@cache
def _made_once(family: str) -> Path:
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(mkdtemp(prefix="plaudit-toy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_model(folder, family=family)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"bos_token": BOS})
    bos = tokenizer.convert_tokens_to_ids(BOS)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, bos)]
    )
    tokenizer.save_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.bos_token_id = bos
    model.save_pretrained(folder)
    return folder


def rows_for(method: Method, folder: Path) -> Path:
    shown = demonstrations(24)
    rows: list[dict[str, Any]] = shown
    if method in ("reward", "dpo"):
        other = [row["completion"] for row in shown[1:] + shown[:1]]
        rows = [
            {"prompt": row["prompt"], "chosen": row["completion"], "rejected": said}
            for row, said in zip(shown, other, strict=True)
        ]
    elif method == "kto":
        rows = [{**row, "label": number % 2 == 0} for number, row in enumerate(shown)]
    elif method in ("grpo", "ppo"):
        rows = [{"prompt": row["prompt"]} for row in shown]
    return write_rows(folder / f"{method}.jsonl", [{**row, **_as_turns(row)} for row in rows])


@contextmanager
def healthy(
    method: Method, folder: Path, *, family: str = "llama", model: Path | None = None, **settings: Any
) -> Iterator[PreflightSubject]:
    own = model or make_model_with_bos(folder / "base", family)
    where = {"prompts" if method in ("grpo", "ppo") else "data": rows_for(method, folder)}
    usual: Mapping[str, Any] = {"reward": "length:1-20"} if method in ("grpo", "ppo") else {}
    config = config_type(method)(
        model=own, out=folder / "run", device="cpu", sinks=(), **{**usual, **where, **settings}
    )
    with process_group("cpu") as ranks:
        yield prepare_run(config, start_run(config, ranks, method))[1]


def failing(subject: PreflightSubject) -> dict[str, str]:
    """The names of all checks of the table that fail, with what they saw."""
    found = run_checks(subject, CHECKS.values())
    return {one.check.name: one.result.details for one in found if one.result.holds is False}


def says_only(subject: PreflightSubject, named: str, fails: set[str]) -> None:
    """Whether these checks fail, no other does, and one of them names what is wrong."""
    said = failing(subject)
    assert set(said) == fails
    assert any(named in words for words in said.values())


def _as_turns(row: Mapping[str, Any]) -> dict[str, Any]:
    speakers = {"prompt": "user", "completion": "assistant", "chosen": "assistant", "rejected": "assistant"}
    return {
        key: [{"role": who, "content": row[key]}]
        for key, who in speakers.items()
        if isinstance(row.get(key), str)
    }
