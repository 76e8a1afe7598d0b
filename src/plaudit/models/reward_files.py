"""Reward models in folders: sequence classifiers as transformers knows them, and one file more.

Transformers' classifiers read the last token that is not padding. Where padding is also the end of turn,
they read the wrong one (transformers issue 35352), so a reward model gets a token for padding alone.
"""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from plaudit.errors import UserError
from plaudit.models.backbone import without_head
from plaudit.models.load import REWARD_FILE, architectures, is_reward_folder, load_as, load_model, save_model
from plaudit.models.reward_model import Normalisation, Pooling, RewardModel
from plaudit.tokens.encode import Encoder
from plaudit.tokens.tokenizer import TokenizerInfo, load_tokenizer

NEW_PAD = "<|pad|>"
"""What the token is called when the tokenizer has none that is free."""

_PAD = re.compile(r"[<\[|_]*(finetune_right_)?pad(ding)?(_id|_token)?[>\]|_]*", re.IGNORECASE)
_SPARE = re.compile(r"\W*(\w*_)?(reserved|unused)\w*\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """A tokenizer with a padding token of its own.

    Example: for a tokenizer of 61 tokens without a free one ``Padding(tokenizer=…, id=61)``
    """

    tokenizer: PreTrainedTokenizerBase
    """A copy of the tokenizer, padding on the right."""
    id: int
    """Its padding token."""


def padding_for(encoder: Encoder) -> Padding:
    """The tokenizer's own padding token if it ends nothing, else a spare special token, else a new one.

    The same tokenizer and template always get the same token.
    """
    tokenizer = copy.deepcopy(encoder.info.tokenizer)
    tokenizer.chat_template = encoder.template
    tokenizer.padding_side = "right"
    text = _free_token(encoder)
    if text is None:
        tokenizer.add_special_tokens({"pad_token": NEW_PAD})
    else:
        tokenizer.pad_token = text
    return Padding(tokenizer=tokenizer, id=_token_id(tokenizer, str(tokenizer.pad_token)))


def set_padding(model: PreTrainedModel, padding: Padding) -> None:
    """Let the model know its padding token, with a row of zeros in the embeddings if it has none yet."""
    embedding: Any = model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    if padding.id >= rows:
        with torch.random.fork_rng(devices=[]):
            model.resize_token_embeddings(padding.id + 1, mean_resizing=False)
    embedding = model.get_input_embeddings()
    with torch.no_grad():
        embedding.weight[rows:] = 0.0
    if getattr(embedding, "padding_idx", None) is not None:
        # PyTorch gives this row no gradient; if it stayed where it was, an end of turn would never learn.
        embedding.padding_idx = padding.id
    model.config.get_text_config().pad_token_id = padding.id


def _free_token(encoder: Encoder) -> str | None:
    info = encoder.info
    tokenizer = info.tokenizer
    unknown: Any = tokenizer.unk_token_id
    used_ids = {*encoder.stop_ids, info.bos, info.eos, unknown}
    if info.pad is not None and info.pad not in used_ids:
        return str(tokenizer.pad_token)
    vocabulary = tokenizer.get_vocab()
    free = sorted(
        (text for text in info.specials if text in vocabulary and vocabulary[text] not in used_ids),
        key=vocabulary.__getitem__,
    )
    pads = [text for text in free if _PAD.fullmatch(text)]
    spares = [text for text in free if _SPARE.fullmatch(text) and text not in (encoder.template or "")]
    return next(iter([*pads, *spares]), None)


def _token_id(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    token_id = tokenizer.convert_tokens_to_ids(text)
    assert isinstance(token_id, int)
    return token_id


def first_differing_token(first: TokenizerInfo, second: TokenizerInfo) -> str | None:
    """A token that has another number in the other tokenizer; a padding token that only one has is none."""
    first_vocabulary, second_vocabulary = first.tokenizer.get_vocab(), second.tokenizer.get_vocab()
    pads = {str(one.tokenizer.pad_token) for one in (first, second)}
    differing = (
        token
        for token in {**first_vocabulary, **second_vocabulary}
        if first_vocabulary.get(token) != second_vocabulary.get(token)
        and not (token in pads and (token not in first_vocabulary or token not in second_vocabulary))
    )
    return min(differing, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshHead:
    """How the head of a new reward model begins.

    Example: ``FreshHead(seed=3, pooling="mean")``
    """

    seed: int = 0
    """The same seed draws the same head."""
    std: int | float | None = None
    """Standard deviation of its weights; None stands for 1/√(H + 1) (Stiennon et al. 2020)."""
    pooling: Pooling = "last"
    """Where a completion's reward is read."""

    def __post_init__(self) -> None:
        """Refuse a spread that is none."""
        if self.std is not None and not (math.isfinite(self.std) and self.std >= 0):
            raise UserError(f"the head's standard deviation must be a number from 0 on, not {self.std}")


def new_reward_model(
    folder: Path, head: FreshHead | None = None, *, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> RewardModel:
    """A reward model that begins with a language model's layers; its head is drawn anew, without a bias.

    A bias would be invisible to comparisons; ``Normalisation.offset`` is where one is kept.
    """
    head = head or FreshHead()
    _refuse_reward_folder(folder)
    refuse_other_tokenizer(folder, encoder.info)
    causal = load_model(folder, dtype=dtype, device=torch.device("cpu"))
    classifier = classifier_around(causal)
    init_head(classifier.score, head)
    set_padding(classifier, padding_for(encoder))
    return RewardModel(_copy_into_memory(classifier).eval().to(device), pooling=head.pooling)


def load_reward_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, encoder: Encoder | None = None
) -> RewardModel:
    """The reward model of a folder: one of plaudit's, or any sequence classifier with one label.

    ``encoder`` is the one that will make its batches: its tokenizer must be the model's own, and the
    model is given a padding token that ends nothing, so that it can be trained on and saved again.
    """
    _refuse_language_model(folder)
    pooling, normalisation = _read_reward_file(folder / REWARD_FILE)
    model = load_as(AutoModelForSequenceClassification, folder, dtype=dtype, device=device)
    if encoder is not None:
        refuse_other_tokenizer(folder, encoder.info)
        set_padding(model, padding_for(encoder))
    return RewardModel(_copy_into_memory(model).eval(), pooling=pooling, normalisation=normalisation)


def save_reward_model(model: RewardModel, folder: Path, *, template_of: Path, encoder: Encoder) -> None:
    """Write a folder that transformers loads as a sequence classifier, with its tokenizer and its facts.

    ``template_of`` is the folder that the model began with; adapters must have been merged.
    """
    if model.model is not model.base:
        raise UserError("a reward model is saved whole: merge its adapters first (RewardModel.merged)")
    padding = padding_for(encoder)
    if padding.id != model.base.config.get_text_config().pad_token_id:
        raise UserError(
            f"the tokenizer pads with token {padding.id} and the model with "
            f"{model.base.config.get_text_config().pad_token_id}: this is not the tokenizer it began with"
        )
    with model.as_plain_model() as plain:
        save_model(plain, folder, template_of=template_of, stop_ids=encoder.stop_ids)
    padding.tokenizer.save_pretrained(folder)
    _write_json(folder / "generation_config.json", {"eos_token_id": list(encoder.stop_ids)})
    _write_json(folder / REWARD_FILE, {"pooling": model.pooling, **asdict(model.normalisation)})
    (folder / "README.md").write_text(_readme(model), encoding="utf-8")


def refuse_other_tokenizer(folder: Path, info: TokenizerInfo) -> None:
    """Token numbers mean something to one model only; a padding token of its own may come on top."""
    model_info = load_tokenizer(folder)
    token = first_differing_token(model_info, info)
    if token is not None:
        model_id, other_id = (
            model_info.tokenizer.get_vocab().get(token),
            info.tokenizer.get_vocab().get(token),
        )
        raise UserError(
            f"{folder}: its tokenizer differs from the one that makes the batches: the token {token!r} is "
            f"number {model_id} for one and {other_id} for the other; use the model's own tokenizer"
        )


def _refuse_reward_folder(folder: Path) -> None:
    if is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is already a reward model; begin with a language model's folder, or go on "
            "training this one as it is"
        )


def _refuse_language_model(folder: Path) -> None:
    named = architectures(folder)
    if named and not is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is a {named[0]}, not a reward model: it has no head that scores; "
            "reward_model() makes a reward model of a language model"
        )


def classifier_around(causal: PreTrainedModel) -> Any:
    """Transformers' classifier of the same family, around the very layers of the language model."""
    config = causal.config
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise UserError(
            f"transformers has no sequence classifier for {config.model_type} models, so nothing could "
            "load the reward model; begin with a model of another family"
        )
    kind: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    config.num_labels = 1
    with torch.device("meta"):
        classifier = kind(config)
    backbone = without_head(causal)
    fits = type(getattr(classifier, classifier.base_model_prefix, None)) is type(backbone)
    if not (fits and type(getattr(classifier, "score", None)) is nn.Linear):
        raise UserError(
            f"{type(classifier).__name__} is not built from the layers of {type(causal).__name__} and one "
            "head named score; begin with a model of another family"
        )
    setattr(classifier, classifier.base_model_prefix, backbone)
    width = classifier.score.in_features
    classifier.score = nn.utils.skip_init(nn.Linear, width, 1, bias=False, dtype=causal.dtype)
    return classifier


def _copy_into_memory(model: Any) -> Any:
    """The model with its weights copied out of the mapped file.

    Those that lie in a mapped file begin wherever its header ends, and kernels round by where numbers begin:
    a model that was saved and loaded would differ from itself in the last digit.
    """
    for weight in model.parameters():
        weight.data = weight.data.clone()
    return model


def init_head(score: nn.Linear, head: FreshHead) -> None:
    """Initialise the head: the same numbers in every dtype and on every machine."""
    std = (score.in_features + 1) ** -0.5 if head.std is None else head.std
    generator = torch.Generator().manual_seed(head.seed)
    weight: Tensor = torch.randn(1, score.in_features, generator=generator, dtype=torch.float64) * std
    with torch.no_grad():
        score.weight.copy_(weight)


def _read_reward_file(path: Path) -> tuple[Pooling, Normalisation]:
    """A classifier from elsewhere has no such file: it reads the last token and is not normalised."""
    if not path.is_file():
        return "last", Normalisation()
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        pooling, offset, scale = (fields[name] for name in ("pooling", "offset", "scale"))
        if pooling not in get_args(Pooling):
            raise ValueError(f"its pooling is {pooling!r}; it is one of {', '.join(get_args(Pooling))}")
        return pooling, Normalisation(offset=float(offset), scale=float(scale))
    except KeyError as error:
        raise UserError(f"{path}: {error} is missing; it should be as it was saved") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: not the facts of a reward model: {error}") from error


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _readme(model: RewardModel) -> str:
    normal = model.normalisation
    return (
        "# A reward model\n\n"
        f"    reward = (score - {normal.offset}) / {normal.scale}\n\n"
        f"{_README_BY_POOLING[model.pooling]}"
    )


_README_BY_POOLING: dict[Pooling, str] = {
    "last": (
        "`score` is what `AutoModelForSequenceClassification` gives for the token numbers of a conversation\n"
        "up to and with the answer's end-of-turn token. Some chat templates write a newline after it: leave\n"
        "that out. The padding token is no end of turn, so batches may be padded on either side; on the\n"
        "left, hand `position_ids` to models that learn their positions (GPT-2).\n"
    ),
    "mean": (
        "`score` is the mean of the head over the answer's tokens, as plaudit computes it. **Transformers'\n"
        "own class reads the last token alone: what it gives for this folder is another number.**\n"
    ),
}
