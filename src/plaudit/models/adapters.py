"""Which weights of a model learn: LoRA adapters beside frozen ones, or all but some parts.

LoRA is PEFT's: small matrices learn beside frozen weights, and can be merged into them.

A frozen base may lie in 4 bits beneath them (QLoRA: Dettmers et al. 2023, arXiv:2305.14314). Weights of a
layer lie in blocks of 64. Of each weight only the number of the nearest of 16 levels is held (NF4), and of
each block its scale, so that w ≈ scale · level: 0.53 bytes a weight in place of 2 or 4. A pass makes its
layer's weights anew from the levels and lets go of them at once; backward makes them again. It is plain
torch, which makes the same numbers on any device, and quantising draws nothing: a run that goes on has the
base that it began with.
"""

import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import embedding, linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from plaudit.errors import UserError
from plaudit.files.hub import name_on_hub
from plaudit.models.backbone import language_of, without_head
from plaudit.models.settings import LoraSettings

BLOCK = 64
"""Weights that share a scale."""
LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Quantiles of the normal distribution, zero among them (the paper's appendix E)."""


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Two levels a byte, and a scale a block, of the weights row by row; the last block may end in zeros."""
    flat = weight.detach().flatten().to(torch.promote_types(weight.dtype, torch.float32))
    blocks = nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
    # Rounded before levels are chosen, so that these suit the scale that is held.
    scales = blocks.abs().amax(-1).to(torch.bfloat16)
    relative = blocks / scales.to(blocks.dtype).clamp(min=torch.finfo(torch.bfloat16).tiny)[:, None]
    levels = torch.tensor(LEVELS, dtype=blocks.dtype, device=blocks.device)
    # Between two levels lies the border of what is nearer to the one or to the other.
    chosen = torch.bucketize(relative, (levels[1:] + levels[:-1]) / 2).to(torch.uint8).view(-1, 2)
    return chosen[:, 0] * 16 + chosen[:, 1], scales


def dequantise(codes: Tensor, scales: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    # By pairs: one byte is looked up at once.
    pairs = embedding(codes.int(), level_pairs(dtype, codes.device))
    return pairs.view(-1, BLOCK).mul_(scales.to(dtype)[:, None]).view(-1)[: shape.numel()].view(shape)


@cache
def level_pairs(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The two levels of each of the 256 bytes.

    >>> level_pairs(torch.float32, torch.device("cpu"))[7 * 16 + 15]
    tensor([0., 1.])
    """
    levels = torch.tensor(LEVELS, dtype=torch.float64, device=device).to(dtype)
    return torch.cartesian_prod(levels, levels)


class _Product(torch.autograd.Function):
    """x Wᵀ, with W made for the product alone: what waits for backward is its levels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor, scales: Tensor, shape: torch.Size) -> Tensor:
        ctx.save_for_backward(codes, scales)
        ctx.shape = shape
        return linear(x, dequantise(codes, scales, shape, x.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        [grad] = grads
        codes, scales = ctx.saved_tensors
        return grad @ dequantise(codes, scales, ctx.shape, grad.dtype), None, None, None


class FourBitLinear(nn.Linear):
    """A linear layer that does not learn, with its weights in 4 bits."""

    def __init__(self, weight: Tensor, bias: nn.Parameter | None) -> None:
        """Hold these weights ``[out, in]``; what asks for ``weight`` gets them in the numbers of these."""
        # A linear layer's own would take memory for weights and draw them.
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        codes, scales = quantise(weight)
        self.codes = nn.Parameter(codes, requires_grad=False)
        # As bytes: casting a module must leave them as they are, and ranks can send them to each other.
        self.scale_bits = nn.Parameter(scales.view(torch.uint8), requires_grad=False)
        self.register_parameter("bias", bias)

    def __getattr__(self, name: str) -> Any:
        """The weights are made where they are asked for: some models and PEFT look at them."""
        if name == "weight":
            return dequantise(self.codes, self.scales, self.shape, self.dtype)
        return super().__getattr__(name)

    @property
    def scales(self) -> Tensor:
        return self.scale_bits.view(torch.bfloat16)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.out_features, self.in_features))

    def forward(self, input: Tensor) -> Tensor:
        """The product with the weights, in the numbers of the input."""
        apply: Any = _Product.apply  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
        product: Tensor = apply(input, self.codes, self.scales, self.shape)
        return product if self.bias is None else product + self.bias.to(product.dtype)


def quantise_linears(model: PreTrainedModel, device: torch.device | None = None) -> None:
    """Hold the weights of all linear layers below the head in 4 bits; nothing learns there any more.
    ``device`` is where that is done, and where they lie then; None: where they are."""
    found = [
        (owner, name, layer)
        for owner in without_head(model).modules()
        for name, layer in owner.named_children()
        # By class: a layer of a kind of its own may do more than a product.
        if type(layer) in (nn.Linear, Conv1D)
    ]
    if not found:
        raise UserError(
            f"lora.base 4bit: {type(model).__name__} has no linear layers beneath its head that could be "
            "held in 4 bits; leave it out"
        )
    for owner, name, layer in found:
        weight: Any = layer.weight
        # GPT-2's Conv1D keeps its matrix transposed.
        matrix = weight.T if isinstance(layer, Conv1D) else weight
        bias: Any = layer.bias
        # One after another: all of them wide may fit no GPU.
        setattr(owner, name, FourBitLinear(matrix.to(device), bias))


def four_bit_layers(module: nn.Module) -> list[FourBitLinear]:
    return [layer for layer in module.modules() if isinstance(layer, FourBitLinear)]


def numbers_in_four_bits(module: nn.Module) -> int:
    return sum(layer.shape.numel() for layer in four_bit_layers(module))


def four_bit_note(module: nn.Module) -> str:
    """For the user: what is held in 4 bits, and how large it is."""
    layers = four_bit_layers(module)
    numbers = numbers_in_four_bits(module)
    held = sum(layer.codes.nbytes + layer.scales.nbytes for layer in layers)
    return (
        f"lora.base 4bit: {numbers:,} weights of {len(layers)} linear layers are held in 4 bits (NF4): "
        f"{held / 2**20:,.1f} MiB, which in bfloat16 would be {2 * numbers / 2**20:,.1f}"
    )


LOADING_FAULTS = (
    *(OSError, ValueError, TypeError, RuntimeError, ImportError, LookupError, ArithmeticError),
    *(AttributeError, AssertionError, MemoryError, SafetensorError, StrictDataclassError),
)
"""What the libraries raise at a folder that is damaged, or that needs a library which is not there."""


def first_lines(error: BaseException) -> str:
    # A KeyError is nothing but the key.
    text = f"{error} is not known" if isinstance(error, KeyError) else str(error).strip()
    lines = text.splitlines()[:2] or [type(error).__name__]
    return " ".join(line.strip() for line in lines)


ADAPTABLE = (nn.Linear, nn.Embedding, Conv1D)


def with_lora(model: PreTrainedModel, settings: LoraSettings, device: torch.device | None = None) -> Any:
    """The model with fresh adapters (they change nothing yet); all else is frozen but a classifier's head.
    ``device`` is where it goes; a base in 4 bits must not have been there before."""
    peft = _require_peft()
    names = [name.strip() for name in settings.targets.split(",") if name.strip()]
    _refuse_unknown(names, model)
    width = getattr(model.config.get_text_config(), "hidden_size", settings.rank)
    if settings.rank > width:
        raise UserError(f"lora.rank {settings.rank}: no change of it has a rank above its width, {width}")
    # GPT-2's Conv1D keeps its matrix transposed.
    transposed = any(isinstance(module, Conv1D) for module in model.modules())
    if settings.base == "4bit":
        quantise_linears(model, device)
    config = peft.LoraConfig(
        r=settings.rank,
        # α = 2r keeps the update's scale the same when the rank is changed alone.
        lora_alpha=settings.alpha or 2 * settings.rank,
        lora_dropout=settings.dropout,
        target_modules="all-linear" if names == ["all-linear"] else names,
        exclude_modules=_read_past_adapters(model) or None,
        task_type="SEQ_CLS" if model.get_output_embeddings() is None else "CAUSAL_LM",
        fan_in_fan_out=transposed and settings.base != "4bit",
    )
    with warnings.catch_warnings():
        # PEFT asks transformers for a property that has another name by now.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        # And names experts of the family, which are no linear layers and are not adapted.
        warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys did not match")
        try:
            # Without autocast_adapter_dtype=False adapters of a bfloat16 model would come in float32.
            adapted: Any = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
        except ValueError as error:
            raise UserError(f"lora: {error}") from error
    # Of the base in its folder, which the adapter is merged into.
    config.fan_in_fan_out = transposed
    # As a loaded model: new dropout layers come in training mode.
    adapted.eval()
    return adapted if device is None else adapted.to(device)


def _read_past_adapters(model: PreTrainedModel) -> list[str]:
    # Layers of Mamba whose weights are handed to a kernel as they are.
    mixers = [name for name, module in model.named_modules() if {"A_log", "D"} <= {*module._parameters}]
    places = {mixer.rpartition(".")[2] for mixer in mixers}
    return sorted(f"{place}.{part}" for place in places for part in ("dt_proj", "out_proj", "x_proj"))


def _require_peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise UserError('adapters (LoRA) need peft: pip install "plaudit[lora]"') from error
    return peft


def _refuse_unknown(names: list[str], model: PreTrainedModel) -> None:
    # PEFT itself is content when one of several names is found.
    if names == ["all-linear"]:
        return
    paths = [path for path, layer in model.named_modules() if isinstance(layer, ADAPTABLE)]
    # Matched at a dot as PEFT does it: "proj" must not be found inside "q_proj".
    unknown = [name for name in names if not any(f".{path}".endswith(f".{name}") for path in paths)]
    if unknown or not names:
        layer_names = ", ".join(sorted({path.rsplit(".", 1)[-1] for path in paths}))
        raise UserError(
            f"lora.targets: no layer of this model is called {', '.join(unknown) or 'nothing'}; "
            f"write all-linear, or some of {layer_names}"
        )


def with_adapter(model: PreTrainedModel, folder: Path, dropout: float = 0.0) -> Any:
    """The model with the adapter of a folder, which learns, and every weight of which has its place."""
    peft = _require_peft()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        # PEFT only warns of an adapter that lacks weights, and goes on with those that change nothing.
        warnings.filterwarnings("error", message=".*missing adapter keys")
        try:
            settings = peft.LoraConfig.from_pretrained(str(folder))
            settings.lora_dropout = dropout
            return peft.PeftModel.from_pretrained(
                model, str(folder), config=settings, is_trainable=True, autocast_adapter_dtype=False
            ).eval()
        except KeyError as error:
            raise UserError(f"{folder}: the adapter does not fit this model: {error} is missing") from error
        except (*LOADING_FAULTS, UserWarning, AttributeError) as error:
            raise UserError(f"{folder}: the adapter does not fit this model: {first_lines(error)}") from error


def save_adapter(model: Any, folder: Path) -> None:
    """The adapter alone, as a PEFT folder; a base from the hub is named as it is called there."""
    # Not left to PEFT, which asks the hub whether the base has the same vocabulary: it lies here as it is.
    model.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    name, _, commit = (name_on_hub(str(settings.get("base_model_name_or_path"))) or "").partition("@")
    if commit:
        # Afterwards: PEFT would ask the hub about a base of that name while it saves.
        settings |= {"base_model_name_or_path": name, "revision": commit}
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def merge_adapters(model: Any) -> PreTrainedModel:
    """A plain model with the adapters added into its weights; the given one is used up."""
    return model.merge_and_unload()


PARTS = {"tower": ("vision", "visual"), "projector": ("projector", "connector", "merger")}
"""By what a part of a model that sees is known, and what the names of its weights hold."""


def freeze_parts(model: nn.Module, names: Sequence[str]) -> None:
    """Let weights, and adapters on them, stay as they are: those of a part, or whose names hold a word."""
    others = {id(weight) for weight in language_of(model).parameters()}
    for name in names:
        held = PARTS.get(name, (name,))
        weights = {
            path: weight for path, weight in model.named_parameters() if any(word in path for word in held)
        }
        if name in PARTS:
            weights = {path: weight for path, weight in weights.items() if id(weight) not in others}
        if name == "tower":
            weights = {
                path: w for path, w in weights.items() if not any(word in path for word in PARTS["projector"])
            }
        if not weights:
            raise UserError(
                f"freeze {name}: no weight of {type(model).__name__} is of it, or has it in its name"
            )
        for weight in weights.values():
            weight.requires_grad_(False)
