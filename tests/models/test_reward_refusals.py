"""What is no reward model, or not this one's tokenizer, is refused in words."""

from pathlib import Path

import pytest
import torch
import transformers as hf

from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.reward_model import FreshHead, RewardModel, new_reward_model, save_reward_model
from plaudit.tokens.encode import make_encoder
from tests.models.reward_zoo import CPU, SPECIAL, encoder_of, fresh, loaded, make_tokenizer, saved, start
from tests.models.zoo import PLAIN, build


def test_a_reward_folder_is_no_policy_and_a_policy_folder_no_reward_model(tmp_path: Path) -> None:
    begun = start(tmp_path, "gpt2")
    folder, _ = saved(tmp_path, begun)
    with pytest.raises(UserError, match="is a reward model: it scores answers and cannot write any"):
        load_model(folder, dtype=torch.float32, device=CPU)
    with pytest.raises(UserError, match="already a reward model"):
        fresh(folder)
    with pytest.raises(UserError, match="is a GPT2LMHeadModel, not a reward model"):
        loaded(begun)
    (folder / "plaudit_reward.json").unlink()
    with pytest.raises(UserError, match="is a reward model"):
        load_model(folder, dtype=torch.float32, device=CPU)


def test_several_labels_are_refused(tmp_path: Path) -> None:
    hf.LlamaForSequenceClassification(hf.LlamaConfig(**PLAIN, num_labels=3)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="scores 3 labels; a reward model has one"):
        loaded(tmp_path)


def test_a_language_model_is_no_classifier() -> None:
    with pytest.raises(UserError, match="LlamaForCausalLM has no head named score"):
        RewardModel(build("llama"))


def test_a_family_that_transformers_cannot_load_again_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no sequence classifier for mamba models"):
        fresh(start(tmp_path, "mamba"))


SPOILT: dict[str, tuple[str, str]] = {
    "not JSON": ("{", "not valid JSON"),
    "a list": ("[]", "a JSON list and not an object"),
    "brackets": ("[" * 100_000, "thousands of brackets"),
    "no scale": ('{"pooling": "last", "offset": 0}', "'scale' is missing"),
    "another pooling": (
        '{"pooling": "max", "offset": 0, "scale": 1}',
        "its pooling is 'max'; it is one of last",
    ),
    "a list for a pooling": ('{"pooling": [], "offset": 0, "scale": 1}', r"its pooling is \[\]"),
    "words": ('{"pooling": "last", "offset": "much", "scale": 1}', "not the facts of a reward model"),
    "scale 0": ('{"pooling": "last", "offset": 0, "scale": 0}', "normalisation.scale must be"),
}


@pytest.mark.parametrize(("text", "says"), SPOILT.values(), ids=SPOILT)
def test_spoilt_facts_are_refused_in_words(tmp_path: Path, text: str, says: str) -> None:
    folder, _ = saved(tmp_path, start(tmp_path))
    (folder / "plaudit_reward.json").write_text(text)
    with pytest.raises(UserError, match=says) as caught:
        loaded(folder)
    assert str(folder / "plaudit_reward.json") in str(caught.value)


def test_another_tokenizer_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    begun = start(tmp_path)
    other = tmp_path / "other"
    make_tokenizer("<pad>", {**SPECIAL, 9: "<extra>"}).save_pretrained(other)
    with pytest.raises(
        UserError, match=r"start-llama: its tokenizer differs.*'<extra>' is number None.*and 9"
    ):
        new_reward_model(begun, encoder=make_encoder(other), dtype=torch.float32, device=CPU)
    folder, model = saved(tmp_path, begun)
    with pytest.raises(UserError, match="its tokenizer differs"):
        loaded(folder, encoder=make_encoder(other))
    model.base.config.pad_token_id = 5
    with pytest.raises(UserError, match="pads with token"):
        save_reward_model(model, tmp_path / "x", template_of=begun, encoder=encoder_of(begun))


@pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf")])
def test_a_head_without_a_width_is_refused(std: float) -> None:
    with pytest.raises(UserError, match=r"head\.std"):
        FreshHead(std=std)
