"""The last layer of a language model: its weight, its bias, and what it does to the raw product."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from plaudit.errors import UserError
from plaudit.tensors.logits import LogitRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where logits come from.

    Example: for Phi ``Head(layer=model.lm_head, rule=LogitRule())``, with a bias in the layer.
    """

    layer: nn.Linear
    """The projection to the vocabulary."""
    rule: LogitRule
    """What happens to its output."""


def head_of(model: PreTrainedModel) -> Head:
    """The head of a causal language model, with the rule that its configuration states.

    Gemma caps logits (``final_logit_softcapping``), Cohere multiplies them (``logit_scale``), Granite
    divides them (``logits_scaling``). Whether that was all is shown by ``proof.prove_scores``.
    """
    layer = model.get_output_embeddings()
    if type(layer) is not nn.Linear:
        raise UserError(
            f"the vocabulary head of {type(model).__name__} is a {type(layer).__name__}, not a plain linear "
            "layer: plaudit cannot compute its log-probs in blocks (an adapter on lm_head is not supported)"
        )
    config = model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or 1.0
    return Head(
        layer=layer,
        rule=LogitRule(
            scale=scale / (getattr(config, "logits_scaling", None) or 1.0),
            cap=getattr(config, "final_logit_softcapping", None),
        ),
    )


def backbone_of(model: PreTrainedModel) -> nn.Module:
    """The model without its head: tokens to hidden states."""
    backbone = getattr(model, model.base_model_prefix, None)
    if not isinstance(backbone, nn.Module):
        raise UserError(f"{type(model).__name__} has no backbone named {model.base_model_prefix!r}")
    return backbone
