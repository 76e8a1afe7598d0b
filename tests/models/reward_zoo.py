"""Folders of tiny language models with tokenizers, and what plain transformers says of a conversation."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from plaudit.models.reward_model import (
    FreshHead,
    RewardModel,
    load_reward_model,
    new_reward_model,
    save_reward_model,
)
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.encode import Encoder, make_encoder
from tests.models.zoo import VOCABULARY, _keep_every_digit, build

CPU = torch.device("cpu")
EOS, END = 2, 7
SPECIAL = {0: "<pad>", 1: "<s>", EOS: "</s>", END: "<|end|>"}
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def make_tokenizer(pad: str | None, specials: dict[int, str] = SPECIAL) -> PreTrainedTokenizerFast:
    words = {specials.get(i, f"w{i}"): i for i in range(VOCABULARY)}
    words["assistant"] = words.pop("w59")
    words["user"] = words.pop("w60")
    built = Tokenizer(models.WordLevel(words, unk_token="w3"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=built,
        bos_token=None,
        eos_token="</s>",
        pad_token=pad,
        additional_special_tokens=[text for text in specials.values() if text not in ("</s>", pad)],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def start(
    where: Path,
    name: str = "llama",
    *,
    pad: str | None = "<pad>",
    model: PreTrainedModel | None = None,
    specials: dict[int, str] = SPECIAL,
) -> Path:
    """A language model's folder that names two tokens which end an answer."""
    folder = where / f"start-{name}"
    model = build(name) if model is None else model
    model.config.pad_token_id = None if pad is None else EOS if pad == "</s>" else 0
    model.save_pretrained(folder)
    make_tokenizer(pad, specials).save_pretrained(folder)
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": [EOS, END]}))
    return folder


def encoder_of(folder: Path) -> Encoder:
    return make_encoder(folder)


def fresh(folder: Path, head: FreshHead | None = None, dtype: torch.dtype = torch.float32) -> RewardModel:
    """A reward model whose numbers, in float64, have every digit."""
    model = new_reward_model(folder, head, encoder=encoder_of(folder), dtype=dtype, device=CPU)
    if dtype == torch.float64:
        for module in model.modules():
            _keep_every_digit(module)
    return model


def saved(where: Path, begun: Path, model: RewardModel | None = None) -> tuple[Path, RewardModel]:
    """A reward model, fresh unless given, and the folder that it was written to."""
    model = fresh(begun) if model is None else model
    save_reward_model(model, where / "reward", template_of=begun, encoder=encoder_of(begun))
    return where / "reward", model


def loaded(folder: Path, encoder: Encoder | None = None) -> RewardModel:
    """The reward model of a folder, on the CPU."""
    return load_reward_model(folder, dtype=torch.float32, device=CPU, encoder=encoder)


def conversations(batch: TokenBatch) -> list[list[int]]:
    found = []
    for n, p in enumerate(batch.group_N.tolist()):
        prompt = batch.prompt_PL[p, : int(batch.prompt_length_P[p])].tolist()
        found.append(prompt + batch.completion_NT[n, : int(batch.length_N[n])].tolist())
    return found


def plain_values(model: RewardModel, batch: TokenBatch) -> list[Tensor]:
    """The head at every token of each completion, one conversation at a time, by transformers alone."""
    found = []
    with model.as_plain_model() as plain, torch.no_grad():
        backbone = getattr(plain, plain.base_model_prefix)
        for row, length in zip(conversations(batch), batch.length_N.tolist(), strict=True):
            ids = torch.tensor([row], device=model.device)
            hidden_SH = backbone(input_ids=ids, use_cache=False).last_hidden_state[0]
            found.append(plain.score(hidden_SH)[-length:, 0])
    return found


def padded(rows: list[list[int]], pad: int, *, left: bool) -> dict[str, Tensor]:
    """What a user hands to transformers' own classifier; positions as its generate() would make them."""
    width = max(map(len, rows))
    ids, real = [], []
    for row in rows:
        empty, ones = [pad] * (width - len(row)), [1] * len(row)
        zeros = [0] * len(empty)
        ids.append(empty + row if left else row + empty)
        real.append(zeros + ones if left else ones + zeros)
    mask = torch.tensor(real)
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": torch.tensor(ids), "attention_mask": mask, "position_ids": position_ids}
