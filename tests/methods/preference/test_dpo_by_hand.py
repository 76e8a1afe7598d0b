"""The page of DPO: it makes the weights that its trainer makes, of sure labels and of others."""

import math
from pathlib import Path

import pytest
import torch

from examples.by_hand.dpo import DpoSettings, dpo_by_hand
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.errors import UserError
from plaudit.tokens.encode import make_encoder
from tests.methods.by_hand import FREE, WIDER, assert_same_weights, policy_of, train
from tests.methods.reward_model.rows import make_files


@pytest.mark.one_in(2)
def test_the_page_and_the_trainer_make_the_same_policy(device: torch.device, tmp_path: Path) -> None:
    """The page is worked through on the CPU, wherever the trainer is."""
    wider = WIDER[device.type]
    toy, files = make_files(tmp_path, rows=22)
    rows = [row for row in read_records(files["comparisons"]).records if isinstance(row, Comparison)]
    assert {row.probability for row in rows} == {None, 0.1}
    policy, reference, encoder = policy_of(toy.model), policy_of(toy.model), make_encoder(toy.model)
    settings = DpoSettings(epochs=2, batch_size=8, learning_rate=0.01, beta=0.2, max_grad_norm=FREE, seed=5)
    losses = list(dpo_by_hand(policy, reference, encoder, rows, settings))
    words = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.01, "--seed", 5, "--optimizer.clip", FREE)
    theirs = train(
        *("dpo", tmp_path / "out", "--model", toy.model, "--data", files["comparisons"], *words),
        *("--beta", 0.2, "--reference.kind", "live", "--device", device.type),
    )
    # 22 rows: the third step of an epoch has six. At the first step policy and reference are one model.
    assert len(losses) == 6
    assert losses[0] == pytest.approx(math.log(2), abs=1e-12)
    assert theirs == pytest.approx(losses, abs=1e-10 * wider)
    assert_same_weights(policy_of(tmp_path / "out" / "model"), policy, policy_of(toy.model), 1e-9 * wider)
    assert_same_weights(reference, policy_of(toy.model), policy, 1e-12)


def test_settings_that_would_teach_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="all answers have the same reward"):
        DpoSettings(beta=0.0)
    with pytest.raises(UserError, match="must be at least 1"):
        DpoSettings(epochs=0)
