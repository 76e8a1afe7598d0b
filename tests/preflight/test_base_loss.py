"""A sound model finds the answers of the rows likely at once, and likelier behind their own prompts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.data.records import record_to_dict
from plaudit.lab.world import making
from plaudit.lab.world.shipped import base_model_folder
from plaudit.models.policy import Policy
from plaudit.preflight.check import Result
from plaudit.preflight.checks import CHECKS
from tests.engine.toy import write_rows
from tests.preflight.subjects import healthy

ROWS = [record_to_dict(row) for row in making.demonstrations(48)]


def looked(folder: Path, rows: list[Any], breaks: Callable[[Policy], None] | None = None) -> Result:
    data = write_rows(folder / "rows.jsonl", rows)
    with healthy("sft", folder, model=base_model_folder(), data=data) as subject:
        assert subject.policy is not None
        if breaks is not None:
            breaks(subject.policy)
        return CHECKS["base-loss"].run(subject)


def test_a_model_that_knows_the_rows_passes(tmp_path: Path) -> None:
    result = looked(tmp_path, ROWS)
    assert result.holds
    assert not result.doubtful
    assert "behind the prompt of another row +" in result.details


def test_nats_are_those_of_transformers(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", ROWS[:6])
    with healthy("sft", tmp_path, model=base_model_folder(), data=data, dtype="float64") as subject:
        said = CHECKS["base-loss"].run(subject).details
        assert subject.policy is not None
        nats: list[float] = []
        with subject.policy.as_plain_model() as plain, torch.no_grad():
            for example in subject.trained:
                [answer] = example.completions
                ids = torch.tensor([[*example.prompt, *answer.ids]])
                logits = plain(input_ids=ids).logits[0, len(example.prompt) - 1 : -1]
                logp = logits.log_softmax(-1)[range(len(answer.ids)), list(answer.ids)]
                nats.append(-float(logp[torch.tensor(answer.mask)].mean()))
        blind = math.log(len(subject.encoder.info.tokenizer))
    assert said.startswith(
        f"{sum(nats) / len(nats):.2f} nats a token over the answers of {len(nats)} rows; ln V is {blind:.2f}"
    )


def noise(policy: Policy) -> None:
    layers: Any = policy.base.get_decoder().layers
    with torch.no_grad():
        for weight in layers[0].parameters():
            weight.normal_(std=2.0)


def another_tokenizer(policy: Policy) -> None:
    embedding: Any = policy.base.get_input_embeddings()
    with torch.no_grad():
        embedding.weight.copy_(embedding.weight.roll(137, 0))


@pytest.mark.parametrize("breaks", [noise, another_tokenizer])
def test_a_model_that_is_worse_than_nothing_fails(tmp_path: Path, breaks: Callable[[Policy], None]) -> None:
    result = looked(tmp_path, ROWS, breaks)
    assert result.holds is False
    assert "does worse than one that knows nothing" in result.details


def shuffled() -> list[Any]:
    return [
        {**row, "completion": other["completion"]}
        for row, other in zip(ROWS, [*ROWS[7:], *ROWS[:7]], strict=True)
    ]


def exchanged() -> list[Any]:
    return [
        {
            "prompt": [{"role": "user", "content": row["completion"][-1]["content"]}],
            "completion": [{"role": "assistant", "content": row["prompt"][-1]["content"]}],
        }
        for row in ROWS
    ]


def test_answers_of_other_rows_are_doubtful(tmp_path: Path) -> None:
    result = looked(tmp_path, shuffled())
    assert result.doubtful
    assert "an answer's own prompt makes it no likelier" in result.details


def test_questions_in_place_of_answers_fail(tmp_path: Path) -> None:
    assert looked(tmp_path, exchanged()).holds is False


def test_a_model_that_knows_nothing_yet_is_no_alarm(tmp_path: Path) -> None:
    with healthy("dpo", tmp_path) as subject:
        result = CHECKS["base-loss"].run(subject)
    assert result.holds
    assert not result.doubtful
    assert "knows nothing of such text yet" in result.details
