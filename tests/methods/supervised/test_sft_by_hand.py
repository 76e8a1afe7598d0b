"""The page of SFT: it makes the weights that its trainer makes."""

import pytest

from examples.by_hand.sft import SftSettings, sft_by_hand
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration
from plaudit.errors import UserError
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import make_toy
from tests.methods.by_hand import FREE, WIDER, assert_same_weights, policy_of, train


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("clip", "tolerance"), [(FREE, 1e-9), (0.5, 1e-6)])
def test_the_page_and_the_trainer_make_the_same_policy(device, tmp_path, clip, tolerance):
    """The page is worked through on the CPU, wherever the trainer is."""
    tolerance *= WIDER[device.type]
    toy = make_toy(tmp_path)
    rows = [row for row in read_records(toy.data).records if isinstance(row, Demonstration)]
    policy, encoder = policy_of(toy.model), make_encoder(toy.model)
    settings = SftSettings(epochs=2, batch_size=10, learning_rate=0.01, max_grad_norm=clip, seed=5)
    losses = list(sft_by_hand(policy, encoder, rows, settings))
    words = ("--epochs", 2, "--batch-size", 10, "--learning-rate", 0.01, "--seed", 5)
    words = (*words, "--optimizer.clip", clip, "--device", device.type)
    theirs = train("sft", tmp_path / "out", "--model", toy.model, "--data", toy.data, *words)
    # 24 rows: the third step of an epoch has four.
    assert len(losses) == 6
    assert theirs == pytest.approx(losses, abs=tolerance)
    assert_same_weights(policy_of(tmp_path / "out" / "model"), policy, policy_of(toy.model), tolerance)


def test_settings_that_would_teach_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        SftSettings(epochs=0)
    with pytest.raises(UserError, match="must be at least 1"):
        SftSettings(batch_size=0)
