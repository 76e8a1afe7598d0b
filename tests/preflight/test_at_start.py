"""A run that is looked over before its first step: it goes the same way, or it does not begin."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.cli.main import main
from plaudit.data.records import record_to_dict
from plaudit.errors import UserError
from plaudit.lab.world import base_model_folder, making
from plaudit.methods.registry import config_type, run_method
from plaudit.preflight import checks
from plaudit.preflight.check import Check, failed
from plaudit.preflight.checks import CHECKS
from plaudit.preflight.tokenization import end_tokens
from tests.engine.toy import write_rows
from tests.preflight.subjects import Method, healthy, make_model_with_bos, rows_for

METHODS: tuple[Method, ...] = ("sft", "reward", "dpo", "grpo")


def trained(method: Method, folder: Path, out: str, **settings: Any) -> Path:
    where = {"prompts" if method == "grpo" else "data": rows_for(method, folder)}
    usual: dict[str, Any] = {"reward": "length:1-20"} if method == "grpo" else {}
    model = folder / "base"
    config = config_type(method)(
        model=model, out=folder / out, device="cpu", sinks=(), steps=3, **{**usual, **where, **settings}
    )
    run_method(method, config)
    return folder / out


def weights(run_folder: Path) -> str:
    return hashlib.sha256((run_folder / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def failing_check(monkeypatch: pytest.MonkeyPatch) -> Check:
    name = next(name for name, check in checks.CHECKS.items() if check.at_start)
    broken = replace(checks.CHECKS[name], run=lambda _: failed("row 3 is wrong"))
    monkeypatch.setitem(checks.CHECKS, name, broken)  # pyright: ignore[reportArgumentType]
    return broken


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_looking_changes_nothing(tmp_path, method):
    make_model_with_bos(tmp_path / "base")
    looked = trained(method, tmp_path, "looked")
    blind = trained(method, tmp_path, "blind", check=False)
    assert weights(looked) == weights(blind)
    assert "checks passed before the first step" in (looked / "notes.jsonl").read_text("utf-8")
    assert "checks passed" not in (blind / "notes.jsonl").read_text("utf-8")


def test_a_failing_check_ends_the_run_before_it_begins(tmp_path, failing_check):
    make_model_with_bos(tmp_path / "base")
    with pytest.raises(UserError, match="row 3 is wrong") as refused:
        trained("sft", tmp_path, "refused")
    assert f"--allow {failing_check.name}" in str(refused.value)
    assert not (tmp_path / "refused" / "model").exists()
    allowed = trained("sft", tmp_path, "allowed", allow=(failing_check.name,))
    assert f"check {failing_check.name} fails and is allowed to" in (allowed / "notes.jsonl").read_text(
        "utf-8"
    )
    assert (trained("sft", tmp_path, "unseen", check=False) / "model").exists()
    # The same command goes on in the folder of the run that was refused, once it may.
    assert (trained("sft", tmp_path, "refused", allow=(failing_check.name,)) / "model").exists()


def test_a_check_that_there_is_not_is_refused(tmp_path):
    make_model_with_bos(tmp_path / "base")
    with pytest.raises(UserError, match=r"--allow one-boss: there is no such check.*one-bos\b"):
        trained("sft", tmp_path, "out", allow=("one-boss",))


@pytest.mark.slow
def test_the_command_says_what_fails_and_writes_nothing_else(tmp_path, failing_check, capsys):
    model, rows = make_model_with_bos(tmp_path / "base"), rows_for("sft", tmp_path)
    before = {path for path in tmp_path.rglob("*")}
    words = ["check", "sft", "--model", str(model), "--data", str(rows), "--device", "cpu"]
    found = tmp_path / "found.json"
    assert main([*words, "--json", str(found)]) == 1
    said = capsys.readouterr().out
    assert "row 3 is wrong" in said
    assert failing_check.texts["mend"] in said
    assert {path for path in tmp_path.rglob("*")} - before == {found}
    assert main([*words, "--allow", failing_check.name]) == 0
    assert main([*words, "--only", failing_check.name]) == 1
    assert main([*words, "--only", "nothing"]) == 2
    assert "there is no such check" in capsys.readouterr().err


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
