"""Reward models in folders: sequence classifiers as transformers knows them, and one file more."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from plaudit.batches.template import Encoder
from plaudit.batches.tokenizer import TokenizerInfo, load_tokenizer
from plaudit.errors import UserError
from plaudit.models.files import (
    REWARD_FACTS,
    architectures,
    is_reward_folder,
    load_as,
    load_model,
    save_model,
)
from plaudit.models.head import backbone_of
from plaudit.models.pad_token import give_padding, other_token, padding_for
from plaudit.models.reward import Normalisation, Pooling, RewardModel


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


def reward_model(
    folder: Path, head: FreshHead | None = None, *, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> RewardModel:
    """A reward model that begins with a language model's layers; its head is drawn anew, without a bias.

    A bias would be invisible to comparisons; ``Normalisation.offset`` is where one is kept.
    """
    head = head or FreshHead()
    _refuse_what_begins_no_reward(folder)
    refuse_other_tokenizer(folder, encoder.info)
    causal = load_model(folder, dtype=dtype, device=torch.device("cpu"))
    classifier = classifier_around(causal)
    draw_head(classifier.score, head)
    give_padding(classifier, padding_for(encoder))
    return RewardModel(_out_of_the_file(classifier).eval().to(device), pooling=head.pooling)


def load_reward_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, encoder: Encoder | None = None
) -> RewardModel:
    """The reward model of a folder: one of plaudit's, or any sequence classifier with one label.

    ``encoder`` is the one that will make its batches: its tokenizer must be the model's own, and the
    model is given a padding token that ends nothing, so that it can be trained on and saved again.
    """
    _refuse_what_scores_nothing(folder)
    pooling, normalisation = _facts_of(folder / REWARD_FACTS)
    model = load_as(AutoModelForSequenceClassification, folder, dtype=dtype, device=device)
    if encoder is not None:
        refuse_other_tokenizer(folder, encoder.info)
        give_padding(model, padding_for(encoder))
    return RewardModel(_out_of_the_file(model).eval(), pooling=pooling, normalisation=normalisation)


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
    _write_json(folder / REWARD_FACTS, {"pooling": model.pooling, **asdict(model.normalisation)})
    (folder / "README.md").write_text(_readme(model), encoding="utf-8")


def refuse_other_tokenizer(folder: Path, info: TokenizerInfo) -> None:
    """Token numbers mean something to one model only; a padding token of its own may come on top."""
    own = load_tokenizer(folder)
    token = other_token(own, info)
    if token is not None:
        mine, theirs = own.tokenizer.get_vocab().get(token), info.tokenizer.get_vocab().get(token)
        raise UserError(
            f"{folder}: its tokenizer differs from the one that makes the batches: the token {token!r} is "
            f"number {mine} for one and {theirs} for the other; use the model's own tokenizer"
        )


def _refuse_what_begins_no_reward(folder: Path) -> None:
    if is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is already a reward model; begin with a language model's folder, or go on "
            "training this one as it is"
        )


def _refuse_what_scores_nothing(folder: Path) -> None:
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
    backbone = backbone_of(causal)
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


def _out_of_the_file(model: Any) -> Any:
    """Weights in memory of their own.

    Those that lie in a mapped file begin wherever its header ends, and kernels round by where numbers begin:
    a model that was saved and loaded would differ from itself in the last digit.
    """
    for weight in model.parameters():
        weight.data = weight.data.clone()
    return model


def draw_head(score: nn.Linear, head: FreshHead) -> None:
    """The same numbers in every dtype and on every machine."""
    std = (score.in_features + 1) ** -0.5 if head.std is None else head.std
    generator = torch.Generator().manual_seed(head.seed)
    drawn: Tensor = torch.randn(1, score.in_features, generator=generator, dtype=torch.float64) * std
    with torch.no_grad():
        score.weight.copy_(drawn)


def _facts_of(path: Path) -> tuple[Pooling, Normalisation]:
    """A classifier from elsewhere has no such file: it reads the last token and is not normalised."""
    if not path.is_file():
        return "last", Normalisation()
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        pooling, offset, scale = (facts[name] for name in ("pooling", "offset", "scale"))
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
        f"{_READ_AT[model.pooling]}"
    )


_READ_AT: dict[Pooling, str] = {
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
