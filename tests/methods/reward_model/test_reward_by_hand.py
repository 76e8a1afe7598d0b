"""The page of the reward model: it makes the weights that its trainer makes, head and all."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.by_hand.reward import BradleyTerrySettings, reward_by_hand
from plaudit.data.read import read_records
from plaudit.data.records import Comparison
from plaudit.errors import UserError
from plaudit.models.reward_model import FreshHead, RewardModel, load_reward_model, new_reward_model
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import write_rows
from tests.methods.by_hand import FREE, WIDER, assert_same_weights, train
from tests.methods.reward_model.rows import judged, make_files

IN_DOUBLE = {"dtype": torch.float64, "device": torch.device("cpu")}


def fresh(folder: Path, seed: int) -> RewardModel:
    return new_reward_model(folder, FreshHead(seed=seed), encoder=make_encoder(folder), **IN_DOUBLE)


@pytest.mark.one_in(2)
def test_the_page_and_the_trainer_make_the_same_reward_model(device: torch.device, tmp_path: Path) -> None:
    """The page is worked through on the CPU, wherever the trainer is."""
    wider = WIDER[device.type]
    toy, _ = make_files(tmp_path)
    # With margins, with labels that are no certainty and with a tie.
    given = [{**row, "margin": row.pop("strength", 1) / 3} for row in judged("comparisons", 22)]
    given[4]["probability"] = 0.5
    data = write_rows(tmp_path / "given.jsonl", given)
    rows = [row for row in read_records(data).records if isinstance(row, Comparison)]
    assert {row.probability for row in rows} == {None, 0.1, 0.5}
    assert len({row.margin for row in rows}) > 1
    model, encoder = fresh(toy.model, 5), make_encoder(toy.model)
    settings = BradleyTerrySettings(epochs=2, batch_size=8, learning_rate=0.01, max_grad_norm=FREE, seed=5)
    losses = list(reward_by_hand(model, encoder, rows, settings))
    words = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.01, "--seed", 5, "--optimizer.clip", FREE)
    words = (*words, "--device", device.type)
    theirs = train("reward", tmp_path / "out", "--model", toy.model, "--data", data, *words)
    # 22 rows: the third step of an epoch has six.
    assert len(losses) == 6
    assert theirs == pytest.approx(losses, abs=1e-10 * wider)
    trained = load_reward_model(tmp_path / "out" / "model", encoder=encoder, **IN_DOUBLE)
    assert_same_weights(trained, model, fresh(toy.model, 5), 1e-9 * wider)


def test_settings_that_would_teach_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        BradleyTerrySettings(epochs=0)
    with pytest.raises(UserError, match="must be at least 1"):
        replace(BradleyTerrySettings(), batch_size=0)
