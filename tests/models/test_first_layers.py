"""A reward that is read after a layer in the middle: what that layer gives, in a folder that all can load."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from plaudit.errors import UserError
from plaudit.models.backbone import without_head
from plaudit.models.reward_model import FreshHead, load_reward_model
from plaudit.tokens.batch import Completion, Example, batch_of
from tests.models.reward_zoo import CPU, encoder_of, fresh, saved, start

ANSWER = Completion(ids=(9, 12, 30, 2), mask=(True,) * 4, finished=True)
EXAMPLE = Example(prompt=(5, 11, 8), completions=(ANSWER,))
FINAL_NORM = {
    "llama": "norm",
    "gemma3": "norm",
    "gpt2": "ln_f",
    "gptneox": "final_layer_norm",
    "phi": "final_layernorm",
}


@pytest.mark.parametrize("name", FINAL_NORM)
def test_it_reads_what_the_first_layers_give_through_the_final_norm(tmp_path: Path, name: str) -> None:
    begun = start(tmp_path, name)
    reward_model = fresh(begun, FreshHead(layer=1))
    causal: Any = AutoModelForCausalLM.from_pretrained(begun)
    ids = torch.tensor([[*EXAMPLE.prompt, *ANSWER.ids]])
    with torch.no_grad():
        after_first = causal(ids, output_hidden_states=True).hidden_states[1]
        state_H = getattr(without_head(causal), FINAL_NORM[name])(after_first)[0, -1]
        base: Any = reward_model.base
        by_hand = float(state_H @ base.score.weight[0])
        found = float(reward_model.rewards(batch_of([EXAMPLE])))
        assert found == pytest.approx(by_hand, abs=1e-5)

        folder, _ = saved(tmp_path, begun, reward_model)
        plain: Any = AutoModelForSequenceClassification.from_pretrained(folder)
        assert plain.config.num_hidden_layers == 1
        assert float(plain(ids).logits) == pytest.approx(found, abs=1e-5)
        loaded = load_reward_model(folder, dtype=torch.float32, device=CPU, encoder=encoder_of(folder))
        assert float(loaded.rewards(batch_of([EXAMPLE]))) == pytest.approx(found, abs=1e-6)


def test_a_share_is_of_all_layers_and_the_whole_is_all_of_them(tmp_path: Path) -> None:
    begun = start(tmp_path)
    half, whole = (fresh(begun, FreshHead(layer=layer)) for layer in (0.5, 2))
    assert [model.base.config.num_hidden_layers for model in (half, whole)] == [1, 2]
    batch = batch_of([EXAMPLE])
    assert torch.equal(whole.rewards(batch), fresh(begun).rewards(batch))
    assert not torch.equal(half.rewards(batch), whole.rewards(batch))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no layer 3; the model has 2"):
        fresh(start(tmp_path), FreshHead(layer=3))
