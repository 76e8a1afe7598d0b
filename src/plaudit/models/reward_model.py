"""A causal backbone with one number for a head: rewards of completions, values of tokens, scores of steps.

reward(x, y) = w · h at the end-of-turn token's own state (Stiennon et al. 2020, arXiv:2009.01325). A critic
that shares the policy's layers reads its number from the state in which each token is chosen.

In a folder a reward model is a sequence classifier as transformers knows them, and one file more. It has a
token for padding alone (``padding.py``).
"""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from plaudit.bounds import Finite, FromZero, Positive, check_bounds
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.model_folder import read_json_object
from plaudit.models import adapters, load
from plaudit.models.backbone import Head, LaidOutModel, StateSelector, register_classifier, without_head
from plaudit.models.padding import padding_for, set_padding
from plaudit.models.policy import Policy, scatter_to_mask
from plaudit.models.precision import compute_in
from plaudit.models.settings import LoraSettings
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.encode import Encoder
from plaudit.tokens.microbatch import ForwardInputs, Layout
from plaudit.tokens.tokenizer import TokenizerInfo, load_tokenizer

Pooling = Literal["last", "mean"]
"""Read at the last masked token, or on average over the completion's masked tokens."""

ValuePosition = Literal["own", "before"]
"""The state of the token itself, or the one in which it was chosen (the V(s_t) of PPO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """What is done to the head's output: reward = (raw − offset) / scale.
    Example: ``Normalisation(offset=1.5)`` makes demonstrations whose raw mean is 1.5 score 0 on average."""

    offset: Finite = 0.0
    """Taken away first; with a negative sign it is the head's bias."""
    scale: Positive = 1.0

    def __post_init__(self) -> None:
        # A scale below 0 would turn rewards round.
        check_bounds(self, "normalisation")

    def apply(self, raw: Tensor) -> Tensor:
        """The rewards of raw outputs.

        >>> Normalisation(offset=1, scale=2).apply(torch.tensor([1.0, 5.0]))
        tensor([0., 2.])
        """
        return (raw - self.offset) / self.scale


class RewardModel(LaidOutModel):
    """A Hugging Face sequence classifier with one label, and how batches are laid out for it."""

    def __init__(
        self,
        model: nn.Module,
        *,
        pooling: Pooling = "last",
        normalisation: Normalisation | None = None,
        layout: Layout = "packed",
        share_prompts: bool = True,
        attention: str | None = None,
    ):
        """Wrap a classifier whose head is ``score``, or one in PEFT's wrapper, already on its device."""
        super().__init__(model, layout=layout, share_prompts=share_prompts, attention=attention)
        self.pooling: Pooling = pooling
        self.normalisation = normalisation or Normalisation()
        _refuse_other_head(self.base)

    def compute_in(self, dtype: torch.dtype) -> None:
        """Compute in these numbers, all but the head, whatever weights are kept in."""
        self.backbone.narrowed = compute_in(
            self, dtype, layers=self.backbone.repeated_layers, but=[cast("nn.Module", self.base.score)]
        )

    def rewards(self, batch: TokenBatch) -> Float[Tensor, " N"]:
        """One reward a completion, each prompt computed once."""
        return self._per_completion(self(batch, self.read_at(batch)), batch)

    def rewards_and_states(
        self, batch: TokenBatch, also: StateSelector
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, "M H"]]:
        """One reward a completion, and the states of ``also`` (indices ``[M]``), of one pass."""
        value, hidden_MH = self(batch, self.read_at(batch), also)
        return self._per_completion(value, batch), hidden_MH

    def read_at(self, batch: TokenBatch) -> StateSelector:
        """Where the head reads: at every token of an answer where its mean counts, else at the last one."""
        # Without it the last position would be −1, and `gather` would
        # fail on the device, far from the row's name.
        _refuse_unmasked(batch.host)
        mask_NT = batch.host.mask_NT
        if self.pooling == "mean":
            return lambda inputs: inputs.own_NT[mask_NT]
        # By the mask and not by a length: the reward stands at the last token that the policy itself chose.
        last_N = torch.where(mask_NT, torch.arange(mask_NT.shape[1]), -1).amax(-1)
        return lambda inputs: inputs.own_NT.gather(1, last_N[:, None])[:, 0]

    def _per_completion(self, value: Tensor, batch: TokenBatch) -> Float[Tensor, " N"]:
        if self.pooling == "last":
            return value
        return masked_sum_rows(scatter_to_mask(value, batch), batch.mask_NT) / batch.mask_NT.sum(-1)

    def values(self, batch: TokenBatch, *, at: ValuePosition = "own") -> Float[Tensor, "N T"]:
        """The head at every masked token, zero elsewhere.

        ``own`` reads the token's own state, so that the last value is the reward; ``before`` reads the
        state in which the token was chosen, which is what a critic has to judge.
        """
        mask_NT = batch.host.mask_NT
        # "before": V(s_t) may not see the token whose advantage it is the baseline of.
        value_M = self(batch, lambda inputs: (inputs.own_NT if at == "own" else inputs.state_NT)[mask_NT])
        return scatter_to_mask(value_M, batch)

    def step_rewards(self, batch: TokenBatch, end_NC: Int[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """The head at the last token of each step; ``end_NC`` counts from the completion's first token.

        −1 stands for no step, and gives 0. (Process rewards: Lightman et al. 2023, arXiv:2305.20050.)
        Hand over ``end_NC`` as it was made, on the host: there it is checked without waiting for the device.
        """
        end_NC = end_NC.cpu()
        _refuse_steps_outside(batch.host, end_NC)
        # −1 would be an invalid index: it reads token 0, and the mask below takes that away again.
        value_NC = self(batch, lambda inputs: inputs.own_NT.gather(1, end_NC.clamp(min=0)))
        return value_NC.masked_fill((end_NC < 0).to(value_NC.device, non_blocking=True), 0.0)

    def forward(
        self, batch: TokenBatch, where: StateSelector, also: StateSelector | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The head at the wanted states, in float32 at least; with ``also`` those states as they are, too.

        Inside this call sharded weights are whole.
        """
        if also is None:
            return self.backbone.read(batch, where, lambda hidden, _: (self._read(hidden),))[0]
        shape = torch.Size(())

        def select(inputs: ForwardInputs) -> Tensor:
            nonlocal shape
            wanted = where(inputs)
            shape = wanted.shape
            return torch.cat([wanted.flatten(), also(inputs).flatten()])

        value_M, hidden_MH = self.backbone.read(batch, select, lambda hidden, _: (self._read(hidden), hidden))
        return value_M[: shape.numel()].view(shape), hidden_MH[shape.numel() :].clone()

    def _read(self, hidden: Tensor) -> Tensor:
        score: Any = self.base.score
        # A reward is a difference of large sums: in bfloat16 near ones would tie, and a loss be log 2.
        wide = torch.promote_types(torch.promote_types(hidden.dtype, score.weight.dtype), torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            # By its own call, in which a divided weight is gathered; by wider copies where it is narrow.
            copies = {name: p.to(wide) for name, p in score.named_parameters() if p.dtype != wide}
            raw = functional_call(score, copies, hidden.to(wide)) if copies else score(hidden.to(wide))
        return self.normalisation.apply(raw[..., 0])

    def with_adapters(self, settings: LoraSettings, device: torch.device | None = None) -> "RewardModel":
        """The same with fresh adapters, which learn with the head while all else is frozen (`with_lora`)."""
        return self._rewrap(adapters.with_lora(self.base, settings, device))

    def with_adapter_of(self, folder: Path) -> "RewardModel":
        """The same with the adapter of a folder, and with the head that learnt beside it."""
        return self._rewrap(adapters.with_adapter(self.base, folder))

    def merged(self) -> "RewardModel":
        """A plain one with the adapters added into its weights; this one is used up."""
        return self._rewrap(adapters.merge_adapters(self.model))

    def _rewrap(self, model: nn.Module) -> "RewardModel":
        return RewardModel(
            model,
            pooling=self.pooling,
            normalisation=self.normalisation,
            layout=self.layout,
            share_prompts=self.backbone.share_prompts,
            attention=self.backbone.plain_attention,
        )


def _refuse_other_head(base: PreTrainedModel) -> None:
    weight = getattr(getattr(base, "score", None), "weight", None)
    if not isinstance(weight, Tensor):
        raise UserError(f"{type(base).__name__} has no head named score, so it is not a reward model")
    if weight.shape[0] != 1:
        raise UserError(
            f"{type(base).__name__} scores {weight.shape[0]} labels; a reward model has one (num_labels 1)"
        )


def _refuse_unmasked(batch: TokenBatch) -> None:
    empty = [
        origin
        for origin, any_ in zip(batch.origin_N, batch.mask_NT.any(-1).tolist(), strict=True)
        if not any_
    ]
    if empty:
        raise UserError(
            f"{empty[0] or 'a completion'}: no token of the answer is the model's own, so there is no place "
            "to read a reward at; leave out this row"
        )


def _refuse_steps_outside(batch: TokenBatch, end_NC: Tensor) -> None:
    outside_NC = (end_NC >= batch.length_N[:, None]) | (end_NC < -1)
    if bool(outside_NC.any()):
        n, c = outside_NC.nonzero()[0].tolist()
        raise UserError(
            f"{batch.origin_N[n] or f'completion {n}'}: step {c + 1} ends at token {int(end_NC[n, c])}, but "
            f"the answer has tokens 0 to {int(batch.length_N[n]) - 1}"
        )


class ValueHead(nn.Module):
    """A linear head beside the vocabulary's; it begins with zeros, and so expects nothing."""

    def __init__(self, policy: Policy) -> None:
        """On the policy's device, in its numbers; the policy's weights stay its own."""
        super().__init__()
        size = policy.base.config.get_text_config().hidden_size
        self.score = nn.Linear(size, 1, bias=False, device=policy.device, dtype=policy.base.dtype)
        # The first advantages then hold rewards alone, and no noise of a fresh head.
        nn.init.zeros_(self.score.weight)
        # In a list, so that the policy is no part of this module.
        self._policy_holder = [policy]

    def values(self, batch: TokenBatch, *, at: Literal["before"] = "before") -> Float[Tensor, "N T"]:
        """V before each trained token, 0 elsewhere: a pass of the policy's own layers."""
        [value_M] = self._policy_holder[0](batch, self.read)
        return scatter_to_mask(value_M, batch)

    def read(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        """The values of the states ``[M, H]``, in float32 at least; a state reader for `Policy.score`."""
        wide_dtype = torch.promote_types(hidden_MH.dtype, torch.float32)
        with torch.autocast(hidden_MH.device.type, enabled=False):
            return (torch.mv(hidden_MH.to(wide_dtype), self.score.weight[0].to(wide_dtype)),)


def first_differing_token(first: TokenizerInfo, second: TokenizerInfo) -> str | None:
    """A token that has another number in the other tokenizer; a padding token that only one has is none."""
    first_vocabulary, second_vocabulary = first.tokenizer.get_vocab(), second.tokenizer.get_vocab()
    pads = {str(encoder.tokenizer.pad_token) for encoder in (first, second)}
    differing = (
        token
        for token in {**first_vocabulary, **second_vocabulary}
        if first_vocabulary.get(token) != second_vocabulary.get(token)
        and not (token in pads and (token not in first_vocabulary or token not in second_vocabulary))
    )
    return min(differing, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshHead:
    seed: int = 0
    std: FromZero | None = None
    """Standard deviation of its weights; None stands for 1/√(H + 1) (Stiennon et al. 2020)."""
    pooling: Pooling = "last"
    layer: int | float | None = None
    """The layer after which it is read, those above being cut off; below 1 a share of all; None: the last."""

    def __post_init__(self) -> None:
        check_bounds(self, "head")


def new_reward_model(
    folder: Path, head: FreshHead | None = None, *, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> RewardModel:
    """A reward model that begins with a language model's layers; its head is drawn anew, without a bias.
    A bias would be invisible to comparisons; ``Normalisation.offset`` is where one is kept."""
    head = head or FreshHead()
    if load.is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is already a reward model; begin with a language model's folder, or go on "
            "training this one as it is"
        )
    refuse_other_tokenizer(folder, encoder.info)
    # On the CPU first: a new row for padding then draws from the generator that `set_padding` puts back.
    causal = load.load_model(folder, dtype=dtype, device=torch.device("cpu"))
    if head.layer is not None:
        keep_first_layers(causal, head.layer)
    classifier = classifier_around(causal)
    init_head(classifier.score, head)
    set_padding(classifier, padding_for(encoder))
    return RewardModel(_copy_into_memory(classifier).eval().to(device), pooling=head.pooling)


def load_reward_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, encoder: Encoder | None = None
) -> RewardModel:
    """The reward model of a folder: one of plaudit's, or any sequence classifier with one label.
    ``encoder`` is the one that will make its batches: its tokenizer must be the model's own, and the model is
    given a padding token that ends nothing, so that it can be trained on and saved again."""
    named = load.architectures(folder)
    if named and not load.is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is a {named[0]}, not a reward model: it has no head that scores; "
            "reward_model() makes a reward model of a language model"
        )
    pooling, normalisation = read_reward_file(folder)
    model = load.load_as(AutoModelForSequenceClassification, folder, dtype=dtype, device=device)
    if encoder is not None:
        refuse_other_tokenizer(folder, encoder.info)
        set_padding(model, padding_for(encoder))
    return RewardModel(_copy_into_memory(model).eval(), pooling=pooling, normalisation=normalisation)


def save_reward_model(model: RewardModel, folder: Path, *, template_of: Path, encoder: Encoder) -> None:
    """Write a folder that transformers loads as a sequence classifier, with its tokenizer and its facts.
    ``template_of`` is the folder that the model began with; adapters must have been merged."""
    if model.model is not model.base:
        raise UserError("a reward model is saved whole: merge its adapters first (RewardModel.merged)")
    padding = padding_for(encoder)
    if padding.id != model.base.config.get_text_config().pad_token_id:
        raise UserError(
            f"the tokenizer pads with token {padding.id} and the model with "
            f"{model.base.config.get_text_config().pad_token_id}: this is not the tokenizer it began with"
        )
    with model.as_plain_model() as plain:
        load.save_model(plain, folder, template_of=template_of, stop_ids=encoder.stop_ids)
    padding.tokenizer.save_pretrained(folder)
    atomic.write_json(folder / "generation_config.json", {"eos_token_id": list(encoder.stop_ids)})
    facts = {"pooling": model.pooling, **asdict(model.normalisation)}
    atomic.write_json(folder / load.REWARD_FILE, {**facts, "vocabulary": _vocabulary_hash(padding.tokenizer)})
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


def keep_first_layers(model: PreTrainedModel, layer: int | float) -> tuple[int, int]:
    """Cut off, in place, all layers above this one, counted from 1 or as a share; those left, and all.
    The middle of a model may know more of what an answer is worth than its end, which is bent on the next
    word. What the last layer left gives goes through the final norm, so that states have the size that a head
    expects at any depth, and the folder stays an ordinary one of fewer layers."""
    headless: Any = without_head(model)
    stacks = [(name, part) for name, part in headless.named_children() if isinstance(part, nn.ModuleList)]
    config: Any = model.config.get_text_config()
    if len(stacks) != 1 or len(stacks[0][1]) != config.num_hidden_layers:
        raise UserError(
            f"reward.layer: {type(headless).__name__} is not one stack of layers, so none can be cut off: "
            "leave the setting out"
        )
    [(name, stack)] = stacks
    total = len(stack)
    first = first_layers(layer, total)
    setattr(headless, name, nn.ModuleList(list(stack)[:first]))
    # What configurations say of each layer by itself, such as its kind of attention.
    for key, value in config.to_dict().items():
        if "layer" in key and isinstance(value, list) and len(value) == total:
            setattr(config, key, value[:first])
    config.num_hidden_layers = first
    # Raise where the configuration would not make this model again, so that its folder could not be read.
    with torch.device("meta"):
        again = type(headless)(headless.config)
    shapes, expected = ({name: p.shape for name, p in part.named_parameters()} for part in (headless, again))
    if shapes != expected:
        raise UserError(
            f"reward.layer: a {type(headless).__name__} of fewer layers is not made as this one was: leave "
            "the setting out"
        )
    return first, total


def first_layers(layer: int | float, total: int) -> int:
    """How many layers are left of all; a number below 1 is a share of them.

    >>> first_layers(3, 4), first_layers(0.5, 4), first_layers(0.01, 4)
    (3, 2, 1)
    """
    first = max(1, round(layer * total)) if layer < 1 else int(layer)
    if first > total:
        raise UserError(f"reward.layer: there is no layer {first}; the model has {total}")
    return first


def classifier_around(causal: PreTrainedModel) -> Any:
    """Transformers' classifier of the same family, around the very layers of the language model."""
    config = causal.config
    register_classifier(type(config))
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise UserError(
            f"transformers has no sequence classifier for {config.model_type} models, so nothing could "
            "load the reward model; begin with a model of another family"
        )
    kind: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    config.num_labels = 1
    # Shapes only: a second backbone is never allocated, the language model's own is put in its place.
    with torch.device("meta"):
        classifier = kind(config)
    backbone = without_head(causal)
    # By class and not by the attribute's name: a classifier of the family may be built from other layers.
    fits = type(getattr(classifier, classifier.base_model_prefix, None)) is type(backbone)
    if not (fits and type(getattr(classifier, "score", None)) is nn.Linear):
        raise UserError(
            f"{type(classifier).__name__} is not built from the layers of {type(causal).__name__} and one "
            "head named score; begin with a model of another family"
        )
    setattr(classifier, classifier.base_model_prefix, backbone)
    width = classifier.score.in_features
    # No default initialisation: it would draw from the run's generator, and `init_head` draws from its own.
    classifier.score = nn.utils.skip_init(nn.Linear, width, 1, bias=False, dtype=causal.dtype)
    return classifier


def _copy_into_memory(model: Any) -> Any:
    """The model with its weights copied out of the mapped file."""
    # Those that lie in a mapped file begin wherever its header ends, and kernels round by where numbers
    # begin: a model that was saved and loaded would differ from itself in the last digit.
    for weight in model.parameters():
        weight.data = weight.data.clone()
    return model


def init_head(score: nn.Linear, head: FreshHead) -> None:
    """Initialise the head: the same numbers in every dtype and on every machine."""
    std = (score.in_features + 1) ** -0.5 if head.std is None else head.std
    generator = torch.Generator().manual_seed(head.seed)
    # Drawn in float64 on the CPU and rounded once: every dtype begins with the nearest of the same numbers.
    weight: Tensor = torch.randn(1, score.in_features, generator=generator, dtype=torch.float64) * std
    with torch.no_grad():
        score.weight.copy_(weight)


def read_reward_file(folder: Path) -> tuple[Pooling, Normalisation]:
    """A classifier from elsewhere has no such file: it reads the last token and is not normalised."""
    path = folder / load.REWARD_FILE
    if not path.is_file():
        return "last", Normalisation()
    fields = read_json_object(path)
    try:
        pooling, offset, scale = (fields[name] for name in ("pooling", "offset", "scale"))
        if pooling not in get_args(Pooling):
            raise ValueError(f"its pooling is {pooling!r}; it is one of {', '.join(get_args(Pooling))}")
        normalisation = Normalisation(offset=float(offset), scale=float(scale))
    except KeyError as error:
        raise UserError(f"{path}: {error} is missing; it should be as it was saved") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: not the facts of a reward model: {error}") from error
    # Another model's tokenizer of the same size would give numbers as before, for other words.
    if fields.get("vocabulary") not in (None, _vocabulary_hash(load_tokenizer(folder).tokenizer)):
        raise UserError(
            f"{folder}: its tokenizer is not the one that the reward model learnt with: its tokens have "
            "other numbers; put back the tokenizer's files that were saved with it"
        )
    return pooling, normalisation


def _vocabulary_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]))
    return hashlib.sha256(vocabulary.encode()).hexdigest()


def _readme(model: RewardModel) -> str:
    normal = model.normalisation
    return (
        "# A reward model\n\n"
        f"    reward = (score - {normal.offset}) / {normal.scale}\n\n"
        f"{_README_BY_POOLING[model.pooling]}{_made_class(model.base)}"
    )


def _made_class(base: PreTrainedModel) -> str:
    kind = type(base)
    if hasattr(sys.modules[kind.__module__], kind.__name__):
        return ""
    family = kind.__bases__[1].__name__
    return (
        "\nTransformers has no such class for this family; this makes it, to be loaded from here:\n\n"
        "    from transformers.modeling_layers import GenericForSequenceClassification\n"
        f"    from {kind.__module__} import {family}\n"
        f"    class {kind.__name__}(GenericForSequenceClassification, {family}):\n"
        f"        __module__ = {family}.__module__\n"
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
