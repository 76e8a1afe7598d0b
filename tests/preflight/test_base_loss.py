"""A sound model finds the answers of the rows likely at once, and likelier behind their own prompts."""

import math
from pathlib import Path

import torch

from plaudit.data.records import record_to_dict
from plaudit.lab.world import base_model_folder, making
from plaudit.preflight.checks import CHECKS
from plaudit.preflight.tokenization import end_tokens
from tests.engine.toy import write_rows
from tests.preflight.subjects import healthy

ROWS = [record_to_dict(row) for row in making.demonstrations(48)]


def test_a_model_that_knows_the_rows_passes(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", ROWS)
    with healthy("sft", tmp_path, model=base_model_folder(), data=data) as subject:
        result = CHECKS["base-loss"].run(subject)
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
                assert answer.ids[-1] in subject.encoder.stop_ids
                nats.append(-float(logp[torch.tensor(answer.mask)][:-1].mean()))
        blind = math.log(len(subject.encoder.info.tokenizer))
    assert said.startswith(
        f"{sum(nats) / len(nats):.2f} nats a token over the answers of {len(nats)} rows; ln V is {blind:.2f}"
    )


def test_an_end_of_turn_that_a_base_model_has_never_seen_is_no_alarm(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", ROWS)
    with healthy("sft", tmp_path, model=base_model_folder(), data=data) as subject:
        assert subject.policy is not None
        embeddings = subject.policy.base.get_input_embeddings()
        with torch.no_grad():
            # No answer that was ever read ended so.
            embeddings.weight[[*end_tokens(subject.encoder)]] *= -20
        result = CHECKS["base-loss"].run(subject)
    assert (result.holds, result.doubtful) == (True, False), result.details


def test_a_model_that_knows_nothing_yet_is_no_alarm(tmp_path: Path) -> None:
    with healthy("dpo", tmp_path) as subject:
        result = CHECKS["base-loss"].run(subject)
    assert result.holds
    assert not result.doubtful
    assert "knows nothing of such text yet" in result.details
