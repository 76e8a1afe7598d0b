"""A tiny language model that takes more than tokens: pictures in their places, a bias of a row."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaModel

from plaudit.models.attention import PackedRow
from plaudit.models.decode import cache_name_of

PICTURE = 60
"""The token that stands where a picture is shown."""
PIXELS = 4


class PicturedConfig(LlamaConfig):
    model_type = "toy_pictured"
    picture_token: int = PICTURE


class PicturedModel(LlamaModel):
    """Llama with a projection of pictures into its embeddings."""

    config_class = PicturedConfig

    def __init__(self, config: PicturedConfig) -> None:
        super().__init__(config)
        self.picture_token = config.picture_token
        self.see = nn.Linear(PIXELS, config.hidden_size, bias=False)
        self.post_init()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: Tensor,
        inputs_embeds: None = None,
        pixel_values: Tensor | None = None,
        prompt_bias: Tensor | None = None,
        completion_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Embeddings of tokens, of pictures in their places, and a bias on those of a row."""
        assert inputs_embeds is None, "it makes its own"
        embedded = self.embed_tokens(input_ids)
        if pixel_values is not None:
            shown = input_ids == self.picture_token
            assert int(shown.sum()) == len(pixel_values), "as many pictures as places"
            # Pictures come in float32; as real vision towers do, they are brought to the type of the weights.
            seen = self.see(pixel_values.to(self.see.weight.dtype))
            embedded = embedded.masked_scatter(shown[..., None], seen)
        segments: PackedRow | None = kwargs.get("segments")
        if prompt_bias is not None:
            embedded = embedded + (
                prompt_bias[:, None] if segments is None else prompt_bias[segments.group_of_token][None]
            )
        if completion_bias is not None:
            assert segments is not None, "this bias is for packed rows"
            owner_S = torch.tensor(segments.completion_of_token)
            embedded = embedded + completion_bias[owner_S].where(owner_S[:, None] >= 0, 0)[None]
        return super().forward(inputs_embeds=embedded, **kwargs)


class PicturedForCausalLM(LlamaForCausalLM):
    config_class = PicturedConfig

    def __init__(self, config: PicturedConfig) -> None:
        super().__init__(config)
        self.model = PicturedModel(config)
        self.post_init()

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        cache: Any = None,
        pixel_values: Tensor | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> Any:
        """Pictures by name, as transformers wants them; a cache by the name that this release has for it."""
        return super().forward(
            input_ids=input_ids,  # pyright: ignore[reportArgumentType]
            attention_mask=attention_mask,
            position_ids=position_ids,  # pyright: ignore[reportArgumentType]
            logits_to_keep=logits_to_keep,
            pixel_values=pixel_values,  # pyright: ignore[reportCallIssue]
            **{str(cache_name_of(LlamaForCausalLM)): past_key_values if cache is None else cache},
            **kwargs,
        )

    def prepare_inputs_for_generation(self, *args: Any, pixel_values: Any = None, **kwargs: Any) -> Any:
        """Pictures are shown with the prompt, and never again."""
        inputs = super().prepare_inputs_for_generation(*args, **kwargs)
        is_prompt = inputs["input_ids"].shape[1] > 1
        return {**inputs, "pixel_values": pixel_values if is_prompt else None}


class BlindModel(LlamaModel):
    """One that adds a row of an extra to every row of a batch, and knows nothing of packing."""

    def forward(self, input_ids: Tensor, prompt_bias: Tensor, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(inputs_embeds=self.embed_tokens(input_ids) + prompt_bias[:, None], **kwargs)


def register() -> None:
    """Let transformers load such a folder by its configuration."""
    AutoConfig.register("toy_pictured", PicturedConfig, exist_ok=True)
    AutoModelForCausalLM.register(PicturedConfig, PicturedForCausalLM, exist_ok=True)


def pictured(seed: int = 0, **facts: Any) -> PicturedForCausalLM:
    """A fresh one with weights that are large enough for differences to show."""
    torch.manual_seed(seed)
    size = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    config = PicturedConfig(**{**size, **heads, "tie_word_embeddings": False, **facts})
    model = PicturedForCausalLM(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model
