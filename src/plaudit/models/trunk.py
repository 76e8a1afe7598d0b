"""The layers below a model's head, and how a batch is laid out for them: packed, or padded on a side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.batches.pack import Arrangement, Layout, arrange
from plaudit.batches.tokens import TokenBatch
from plaudit.models.attention import PACKED
from plaudit.models.attention_rule import PackingError
from plaudit.models.head import backbone_of

Where = Callable[[Arrangement], Tensor]
"""Which states are wanted, as indices into the flattened ``[R·S]`` ones of an arrangement."""


class Trunk:
    """A Hugging Face model used for its states; no module of its own, so that weights keep their names."""

    def __init__(self, model: nn.Module, *, layout: Layout, share_prompts: bool, attention: str | None):
        """Use a PreTrainedModel, or one in PEFT's wrapper, that is already on its device."""
        self.model = model
        self.share_prompts = share_prompts
        self.plain_attention = attention or ("sdpa" if self.base._supports_sdpa else "eager")
        self.use_layout(layout)

    @property
    def base(self) -> PreTrainedModel:
        """The Hugging Face model itself, out of its PEFT wrapper."""
        wrapped = getattr(self.model, "get_base_model", None)
        return cast("PreTrainedModel", self.model if wrapped is None else wrapped())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.base.parameters()).device

    def use_layout(self, layout: Layout) -> None:
        """Lay batches out like this from now on."""
        self.layout: Layout = layout
        self._attend()

    def states(self, batch: TokenBatch, where: Where) -> Tensor:
        """The wanted states ``[…, H]`` after one pass through the layers; the others are not kept."""
        if self.layout == "packed" and not self.takes_attention:
            raise PackingError("its attention is its own and cannot be exchanged")
        inputs = arrange(batch, self.layout, share_prompts=self.share_prompts)
        wanted = where(inputs)
        return self.through(inputs, wanted.unique())[wanted]

    def through(self, inputs: Arrangement, finished_M: Tensor) -> Tensor:
        """All states ``[R·S, H]`` after one pass; only those that are named are good for anything."""
        packing = {} if inputs.segments is None else {"segments": inputs.segments}
        backbone = backbone_of(self.base)
        with _finished_only(backbone, finished_M, inputs.ids_RS.numel()):
            output = backbone(
                input_ids=inputs.ids_RS,
                position_ids=inputs.position_RS,
                attention_mask=None if inputs.real_RS is None else inputs.real_RS.long(),
                use_cache=False,
                **packing,
            )
        hidden_RSH: Tensor = output.last_hidden_state
        return hidden_RSH.flatten(0, 1)

    @contextmanager
    def attending(self, name: str) -> Iterator[Any]:
        """The wrapped model with the attention of this name, in evaluation mode."""
        was_training = self.model.training
        self.model.eval()
        self._attend_by(name)
        try:
            yield self.model
        finally:
            self._attend()
            self.model.train(was_training)

    def _attend(self) -> None:
        self._attend_by(PACKED if self.layout == "packed" else self.plain_attention)

    def _attend_by(self, name: str) -> None:
        if self.takes_attention:
            self.base.set_attn_implementation(name)

    @property
    def takes_attention(self) -> bool:
        """Whether the model's attention goes through transformers' common interface."""
        return self.base._can_set_attn_implementation()


@contextmanager
def _finished_only(backbone: nn.Module, wanted_M: Tensor, tokens: int) -> Iterator[None]:
    """While this lasts, the last layer's feed-forward part is computed for the wanted tokens only.

    It takes each token by itself and nothing above it looks at another one, so the unwanted states, which
    go without it, are read by nobody. That this holds for a model is shown with the layout, in ``proof``.
    """
    # Experts may not take a batch of no tokens, which a rank without rows has.
    part = _last_feed_forward(backbone) if wanted_M.numel() else None
    shapes: list[torch.Size] = []

    def choose(_: nn.Module, told: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if named or len(told) != 1 or told[0].shape[:-1].numel() != tokens:
            return None
        hidden = told[0]
        shapes.append(hidden.shape)
        chosen = hidden.flatten(0, -2)[wanted_M]
        return (chosen.view(*[1] * (hidden.ndim - 2), *chosen.shape),), named

    def put_back(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if not shapes:
            return None
        first, *more = output if isinstance(output, tuple) else (output,)
        empty = first.new_zeros(tokens, first.shape[-1])
        placed = empty.index_copy(0, wanted_M, first.flatten(0, -2)).view(*shapes.pop()[:-1], -1)
        return (placed, *more) if isinstance(output, tuple) else placed

    handles = (
        []
        if part is None
        else [
            part.register_forward_pre_hook(choose, with_kwargs=True),
            part.register_forward_hook(put_back),
        ]
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _last_feed_forward(backbone: nn.Module) -> nn.Module | None:
    """What follows attention in the last layer, where it is known by its usual name.

    None also where layers are computed again in the backward pass, when the wanted tokens are forgotten.
    """
    stacks = [child for child in backbone.children() if isinstance(child, nn.ModuleList)]
    if len(stacks) != 1 or not stacks[0] or getattr(stacks[0][-1], "gradient_checkpointing", False):
        return None
    part = getattr(stacks[0][-1], "mlp", None)
    return part if isinstance(part, nn.Module) else None
