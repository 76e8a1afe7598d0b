"""A saved reward model is a sequence classifier of transformers, and plaudit reads it back bit for bit."""

import json
import math
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from plaudit.data.records import Message
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.padding import Padding, set_padding
from plaudit.models.policy import Policy
from plaudit.models.reward_model import (
    FreshHead,
    Normalisation,
    RewardModel,
    refuse_other_tokenizer,
    save_reward_model,
)
from plaudit.models.verify import choose_layout
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.encode import make_encoder
from tests.models import reward_zoo
from tests.models.zoo import PLAIN, PLAIN_ATTENTION, RECURRENT, VOCABULARY, build, examples

FAMILIES = ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "mistral", "gpt2", "phi", "phi3"]
FAMILIES += ["gptneox", "olmo2", "mixtral", "gpt_oss"]

FULL = {**reward_zoo.SPECIAL, 0: "<z>"}
"""No special token is free for padding: a new one is made."""


def _batch() -> TokenBatch:
    answers = tuple(
        Completion(ids=(9, end), mask=(True, True), finished=True) for end in (reward_zoo.EOS, reward_zoo.END)
    )
    return batch_of(
        [
            *examples(),
            Example(prompt=(5, reward_zoo.EOS, 8, reward_zoo.END, 11), completions=answers, origin="a:5"),
        ]
    )


def _rewards(model: RewardModel) -> Tensor:
    with torch.no_grad():
        return model.rewards(_batch())


@pytest.mark.one_in(7)
@pytest.mark.parametrize("pad", ["<pad>", "</s>", None])
@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_gives_the_same_scores_alone_and_padded(tmp_path, name, pad):
    specials = reward_zoo.SPECIAL if pad == "<pad>" else FULL
    folder, model = reward_zoo.saved(tmp_path, reward_zoo.start(tmp_path, name, pad=pad, specials=specials))
    attention = PLAIN_ATTENTION.get(name)
    plain = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation=attention).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pad_id = tokenizer.pad_token_id
    assert (plain.config.num_labels, plain.config.pad_token_id) == (1, pad_id)
    assert pad_id not in (reward_zoo.EOS, reward_zoo.END)
    assert tokenizer.padding_side == "right"
    rows, wanted_N = reward_zoo.conversations(_batch()), _rewards(model)
    with torch.no_grad():
        alone_N = torch.stack([plain(torch.tensor([row])).logits[0, 0] for row in rows])
        torch.testing.assert_close(alone_N, wanted_N, rtol=0, atol=1e-5)
        for left in (True, False):
            logits_N1 = plain(**reward_zoo.padded(rows, pad_id, left=left)).logits
            torch.testing.assert_close(logits_N1[:, 0], wanted_N, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["cohere", "granite", "lfm2", "granite_hybrid", "falcon_h1"])
def test_a_family_without_a_classifier_gets_one_that_its_readme_makes_in_plain_transformers(tmp_path, name):
    folder, model = reward_zoo.saved(tmp_path, reward_zoo.start(tmp_path, name))
    assert choose_layout(model, "packed")[0] == ("right" if name in RECURRENT else "packed")
    wanted_N = _rewards(model)
    again = reward_zoo.loaded(folder)
    again.use_layout(model.layout)
    assert torch.equal(_rewards(again), wanted_N)
    lines = [line[4:] for line in (folder / "README.md").read_text().splitlines() if line.startswith("    ")]
    made: dict[str, Any] = {}
    exec("\n".join(lines[1:]), made)
    plain = made[type(model.base).__name__].from_pretrained(folder).eval()
    with torch.no_grad():
        alone = [plain(torch.tensor([row])).logits[0, 0] for row in reward_zoo.conversations(_batch())]
    torch.testing.assert_close(torch.stack(alone), wanted_N, rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad", ["<pad>", "</s>"])
def test_transformers_scores_what_its_own_tokenizer_makes_of_a_conversation(tmp_path, pad, side):
    begun = reward_zoo.start(tmp_path, pad=pad, specials=FULL if pad == "</s>" else reward_zoo.SPECIAL)
    folder, model = reward_zoo.saved(tmp_path, begun)
    answers = ("w11", "w12 w13 w14", "w15 w16")
    asked = (Message(role="user", content="w9 w10"),)
    said = [(Message(role="assistant", content=answer),) for answer in answers]
    batch = batch_of([reward_zoo.encoder_of(begun).encode(asked, said)])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    opening = {"role": "user", "content": "w9 w10"}
    talks = [[opening, {"role": "assistant", "content": answer}] for answer in answers]
    made = tokenizer.apply_chat_template(
        talks, return_dict=True, return_tensors="pt", padding=True, tokenizer_kwargs={"padding_side": side}
    )
    assert (made["attention_mask"][0, 0] == 0) == (side == "left")
    with torch.no_grad():
        logits_N1 = AutoModelForSequenceClassification.from_pretrained(folder).eval()(**made).logits
        torch.testing.assert_close(logits_N1[:, 0], model.rewards(batch), rtol=0, atol=1e-5)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("name", FAMILIES)
def test_plaudit_reads_it_back_bit_for_bit(tmp_path, name, pooling):
    begun = reward_zoo.start(tmp_path, name, pad="</s>", specials=FULL)
    model = reward_zoo.fresh(begun, FreshHead(pooling=pooling))
    model.normalisation = Normalisation(offset=0.1, scale=1 / 3)
    folder, _ = reward_zoo.saved(tmp_path, begun, model)
    read = reward_zoo.loaded(folder)
    assert (read.pooling, read.normalisation) == (pooling, model.normalisation)
    assert torch.equal(_rewards(read), _rewards(model))


def test_a_saved_folder_is_saved_again_the_same(tmp_path):
    folder, _ = reward_zoo.saved(tmp_path, reward_zoo.start(tmp_path, "gpt2", pad="</s>", specials=FULL))
    encoder = make_encoder(folder)
    assert set(encoder.stop_ids) == {reward_zoo.EOS, reward_zoo.END}
    again = reward_zoo.loaded(folder, encoder=encoder)
    save_reward_model(again, tmp_path / "again", template_of=folder, encoder=encoder)
    for path in sorted(folder.iterdir()):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_only_the_pooling_that_transformers_knows_is_said_to_be_its_own(tmp_path):
    begun = reward_zoo.start(tmp_path)
    folder, _ = reward_zoo.saved(tmp_path, begun)
    assert "`score` is what `AutoModelForSequenceClassification` gives" in (folder / "README.md").read_text()
    folder, _ = reward_zoo.saved(tmp_path, begun, reward_zoo.fresh(begun, FreshHead(pooling="mean")))
    assert "what it gives for this folder is another number" in (folder / "README.md").read_text()
    facts = json.loads((folder / "plaudit_reward.json").read_text())
    assert len(facts.pop("vocabulary")) == 64
    assert facts == {"pooling": "mean", "offset": 0.0, "scale": 1.0}
    assert sorted(path.name for path in folder.iterdir()) == [
        *("README.md", "chat_template.jinja", "config.json", "generation_config.json"),
        *("model.safetensors", "plaudit_reward.json", "tokenizer.json", "tokenizer_config.json"),
    ]


def test_dropout_of_the_base_is_back_and_the_packed_attention_is_in_no_file(tmp_path):
    folder, model = reward_zoo.saved(tmp_path, reward_zoo.start(tmp_path, "gpt2"))
    config = (folder / "config.json").read_text()
    assert json.loads(config)["resid_pdrop"] == 0.1
    assert "plaudit" not in config
    assert torch.equal(_rewards(model.train()), _rewards(model.eval()))


def test_the_same_seed_draws_the_same_head_and_touches_no_other_chance(tmp_path):
    begun = reward_zoo.start(tmp_path, pad="</s>", specials=FULL)
    torch.manual_seed(5)
    one, before = reward_zoo.fresh(begun), torch.random.get_rng_state()
    torch.manual_seed(6)
    same, other = reward_zoo.fresh(begun), reward_zoo.fresh(begun, FreshHead(seed=1))
    assert torch.equal(_rewards(one), _rewards(same))
    assert not torch.equal(_rewards(one), _rewards(other))
    torch.manual_seed(5)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.base.score.bias is None


@pytest.mark.slow
def test_the_head_is_as_wide_as_it_was_told_to_be(tmp_path):
    wide = build("llama").__class__(hf.LlamaConfig(**(PLAIN | {"hidden_size": 4096, "num_hidden_layers": 1})))
    begun = reward_zoo.start(tmp_path, model=wide)
    for head, width in ((FreshHead(), 1 / math.sqrt(4097)), (FreshHead(std=0.5), 0.5)):
        drawn = reward_zoo.fresh(begun, head).base.score.weight.detach().std()
        assert float(drawn) == pytest.approx(width, rel=0.05)
    assert not _rewards(reward_zoo.fresh(begun, FreshHead(std=0))).any()


def test_weights_of_the_language_model_are_the_layers(tmp_path):
    begun = reward_zoo.start(tmp_path, "gemma", pad="</s>", specials=FULL)
    mine = dict(reward_zoo.fresh(begun).base.named_parameters())
    theirs = dict(build("gemma").named_parameters())
    assert set(mine) == {*theirs, "score.weight"}
    for name, weight in theirs.items():
        assert torch.equal(mine[name][: len(weight)], weight), name
    rows = mine["model.embed_tokens.weight"]
    assert len(rows) == VOCABULARY + 1
    assert not rows[VOCABULARY].detach().any()


@pytest.mark.parametrize(
    ("pad", "specials", "wanted"),
    [
        ("<pad>", reward_zoo.SPECIAL, 0),
        ("</s>", reward_zoo.SPECIAL, 0),
        ("</s>", {**reward_zoo.SPECIAL, 0: "<|finetune_right_pad_id|>"}, 0),
        ("</s>", {**reward_zoo.SPECIAL, 0: "<|image_pad|>"}, VOCABULARY),
        ("</s>", {**reward_zoo.SPECIAL, 0: "<z>", 9: "<|reserved_special_token_0|>", 10: "<unused1>"}, 9),
        ("</s>", {**reward_zoo.SPECIAL, 0: "<z>", 9: "<unused1>", 10: "[PAD]"}, 10),
        ("<|end|>", FULL, VOCABULARY),
        (None, FULL, VOCABULARY),
    ],
)
def test_which_token_pads(tmp_path, pad, specials, wanted):
    begun = reward_zoo.start(tmp_path, pad=pad, specials=specials)
    model = reward_zoo.fresh(begun)
    assert model.base.config.pad_token_id == wanted
    assert len(model.base.get_input_embeddings().weight) == max(VOCABULARY, wanted + 1)
    folder, _ = reward_zoo.saved(tmp_path, begun, model)
    assert AutoTokenizer.from_pretrained(folder).pad_token_id == wanted


def test_a_classifier_from_elsewhere_is_read_at_its_last_token(tmp_path):
    hf.LlamaForSequenceClassification(hf.LlamaConfig(**PLAIN, num_labels=1)).save_pretrained(tmp_path)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        wanted = [float(plain(torch.tensor([row])).logits) for row in reward_zoo.conversations(_batch())]
    assert _rewards(reward_zoo.loaded(tmp_path)).tolist() == pytest.approx(wanted, abs=1e-6)


def test_the_policys_tokenizer_serves_the_reward_model_that_pads_by_a_new_token(tmp_path):
    begun = reward_zoo.start(tmp_path, pad="</s>", specials=FULL)
    folder, _ = reward_zoo.saved(tmp_path, begun)
    refuse_other_tokenizer(folder, reward_zoo.encoder_of(begun).info)
    refuse_other_tokenizer(begun, make_encoder(folder).info)


def test_a_policy_and_a_reward_model_of_the_same_folder_live_side_by_side(tmp_path):
    begun = reward_zoo.start(tmp_path, "mistral")
    model, policy = (
        reward_zoo.fresh(begun),
        Policy(load_model(begun, dtype=torch.float32, device=reward_zoo.CPU)),
    )
    before_N, policy_NT = _rewards(model), policy.score(_batch()).logp_NT
    policy.use_layout("left")
    assert torch.equal(_rewards(model), before_N)
    torch.testing.assert_close(policy.score(_batch()).logp_NT, policy_NT, rtol=0, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_row_for_padding_draws_none_of_the_runs_random_numbers(device):
    model = build("llama").to(device)
    random = torch.cuda if device == "cuda" else torch.random
    before = random.get_rng_state()
    tokenizer: Any = None
    set_padding(model, Padding(tokenizer=tokenizer, id=VOCABULARY))
    assert torch.equal(random.get_rng_state(), before)
    assert len(model.get_input_embeddings().weight) == VOCABULARY + 1


def test_another_models_tokenizer_of_the_same_size_is_refused(tmp_path):
    folder, _ = reward_zoo.saved(tmp_path, reward_zoo.start(tmp_path))
    assert reward_zoo.loaded(folder)
    path = folder / "tokenizer.json"
    files = json.loads(path.read_text("utf-8"))
    vocabulary = files["model"]["vocab"]
    vocabulary["w11"], vocabulary["w12"] = vocabulary["w12"], vocabulary["w11"]
    path.write_text(json.dumps(files), "utf-8")
    with pytest.raises(UserError, match="its tokenizer is not the one that the reward model learnt with"):
        reward_zoo.loaded(folder)
