"""Tiny models of real architectures, with random weights that are large enough for differences to show."""

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar

import torch
import transformers as hf
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.models.attention import FAST_KERNELS
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import Completion, Example
from tests.models.digits import exact_angles

Scored = TypeVar("Scored", Policy, RewardModel)

VOCABULARY = 61
WINDOW = 6

PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
MIXED_LAYERS = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def _plain(name: str, **facts: object) -> PreTrainedModel:
    return hf.AutoModelForCausalLM.from_config(getattr(hf, f"{name}Config")(**(PLAIN | facts)))


def build_sharp() -> PreTrainedModel:
    """A model that looks at hardly more than one token, so that 16 bits move what it says by whole nats."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _plain("Llama", num_hidden_layers=4)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim == 2 and "embed" not in name:
                    weight.normal_(0, 1.2 if "q_proj" in name or "k_proj" in name else 0.3)
    return model


def _gemma(name: str, **facts: object) -> PreTrainedModel:
    return _plain(name, head_dim=8, tie_word_embeddings=True, **facts)


def _gpt2() -> PreTrainedModel:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2
    )
    return hf.GPT2LMHeadModel(config)


SDPA: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: _plain("Llama"),
    "qwen2": lambda: _plain("Qwen2"),
    "qwen3": lambda: _plain("Qwen3", head_dim=8),
    "gemma": lambda: _gemma("Gemma"),
    "gemma3": lambda: _gemma("Gemma3Text", sliding_window=WINDOW, layer_types=MIXED_LAYERS),
    "mistral": lambda: _plain("Mistral", sliding_window=WINDOW),
    "gpt2": _gpt2,
    "phi": lambda: _plain("Phi", partial_rotary_factor=0.5),
    "phi3": lambda: _plain("Phi3"),
    "cohere": lambda: _plain("Cohere", logit_scale=0.25, tie_word_embeddings=True),
    "granite": lambda: _plain("Granite", logits_scaling=4.0, attention_multiplier=0.3),
    "gptneox": lambda: _plain("GPTNeoX"),
    "olmo2": lambda: _plain("Olmo2"),
}
"""Attention through PyTorch's own kernel: float64 is float64 from end to end."""
PLAIN_ATTENTION = {"gemma2": "eager"}
"""What transformers has to be told: its 5.17 takes for this one an attention that has no soft caps."""
EAGER: dict[str, Callable[[], PreTrainedModel]] = {
    "gemma2": lambda: _gemma(
        "Gemma2",
        attn_implementation=PLAIN_ATTENTION["gemma2"],
        sliding_window=WINDOW,
        query_pre_attn_scalar=8,
        layer_types=MIXED_LAYERS,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    ),
    "mixtral": lambda: _plain("Mixtral", **EXPERTS),
    "gpt_oss": lambda: _plain(
        "GptOss",
        head_dim=8,
        sliding_window=WINDOW,
        layer_types=MIXED_LAYERS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        **EXPERTS,
    ),
}
"""Written-out attention, or experts whose router is float32: exact to float32 only."""
_HEADS = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1}
_SHORT_STATE = {"state_size": 4, "num_hidden_layers": 2}
_DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4} | dict.fromkeys(
    ("linear_key_head_dim", "linear_value_head_dim", "head_dim"), 8
)
RECURRENT: dict[str, Callable[[], PreTrainedModel]] = {
    "mamba": lambda: _plain("Mamba", **_SHORT_STATE),
    "mamba2": lambda: _plain("Mamba2", **_SHORT_STATE, num_heads=4, head_dim=8, n_groups=1, chunk_size=8),
    "lfm2": lambda: _plain("Lfm2", layer_types=["conv", "full_attention"], block_multiple_of=4),
    "granite_hybrid": lambda: _plain(
        "GraniteMoeHybrid",
        **(_HEADS | EXPERTS),
        layer_types=["mamba", "attention"],
        shared_intermediate_size=24,
        mamba_chunk_size=8,
        logits_scaling=4.0,
    ),
    "falcon_h1": lambda: _plain(
        "FalconH1", **_HEADS, head_dim=8, mamba_d_ssm=32, mamba_chunk_size=8, lm_head_multiplier=0.3
    ),
    "qwen3_next": lambda: _plain(
        "Qwen3Next",
        **_DELTA,
        layer_types=["linear_attention", "full_attention"],
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
}
"""A state that runs through the row, beside attention or alone: cannot be packed."""
ZOO = SDPA | EAGER | RECURRENT


def build(
    name: str, dtype: torch.dtype = torch.float32, seed: int = 0, *, head_size: int | None = None
) -> PreTrainedModel:
    """The model with every weight drawn anew, biases, norms and sinks too: the same for the same seed.

    ``head_size`` makes heads as large as the kernels of a GPU want them.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ZOO[name]()
        if head_size is not None:
            model.config.head_dim = head_size
            model = type(model)(model.config)
        model = model.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(dtype) * 0.2)
    if dtype == torch.float64:
        for module in model.modules():
            _keep_every_digit(module)
    return model.eval()


def by_loop(model: Scored, device: torch.device) -> Scored:
    """The model on that device, attending by one segment after another there too.

    The fast kernels of a GPU want larger heads than these, and some of them fewer digits; `test_kernels`
    compares them with the loop.
    """
    model = model.to(device)
    model.backbone.refused_kernels = FAST_KERNELS
    return model


def recompute_layers(model: Any) -> None:
    """Have transformers compute layers again in the backward pass; by 5.17 that has another name."""
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    model.enable_input_require_grads()
    assert getattr(model, "is_activation_checkpointing", None) or model.is_gradient_checkpointing


def _keep_every_digit(module: nn.Module) -> None:
    """Norms and angles pass through float32 whatever the model's dtype; here they must not."""
    name = type(module).__name__
    if name == "LlamaRotaryEmbedding":
        module.forward = MethodType(exact_angles, module)
    centred = name == "CohereLayerNorm"
    if not (centred or name.endswith("RMSNorm")):
        return
    offset = 1.0 if name.startswith("Gemma") else 0.0
    eps = getattr(module, "variance_epsilon", None) or module.eps

    def norm(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if centred else x
        return (module.weight + offset) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

    module.forward = norm


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 1.5


def examples(seed: int = 0, vocabulary: int = VOCABULARY) -> list[Example]:
    """Ragged groups: K = 3, a prompt of one token, an only answer with a hole in its mask, K = 2."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(1, vocabulary, (count,), generator=generator).tolist())

    def answer(length: int, untrained: int = -1) -> Completion:
        mask = tuple(t != untrained for t in range(length))
        return Completion(ids=ids(length), mask=mask, finished=True)

    return [
        Example(prompt=ids(5), completions=(answer(4), answer(1), answer(9)), origin="a:1"),
        Example(prompt=ids(1), completions=(answer(6),), origin="a:2"),
        Example(prompt=ids(8), completions=(answer(7, untrained=2),), origin="a:3"),
        Example(prompt=ids(3), completions=(answer(2), answer(5)), origin="a:4"),
    ]
