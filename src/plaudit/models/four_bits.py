"""A frozen base in 4 bits, beneath adapters that learn (QLoRA: Dettmers et al. 2023, arXiv:2305.14314).

Weights of a layer lie in blocks of 64. Of each weight only the number of the nearest of 16 levels is held
(NF4), and of each block its scale, so that w ≈ scale · level: 0.53 bytes a weight in place of 2 or 4.

    quantise_linears(model)     every linear layer below the head, in place

A pass makes a layer's weights anew from the levels and lets go of them at once; backward makes them again.
It is plain torch, which makes the same numbers on any device, and quantising draws nothing: a run that goes
on has the base that it began with.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from plaudit.errors import UserError
from plaudit.models.backbone import without_head

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
