"""What a group prefers, from a few of its judgements: a small transformer over points, without positions.

A context point is an answer's embedding with the group's preference for it, a target point an embedding
alone. Contexts see all contexts; a target sees the contexts and itself, so it is judged as if it were the
only one. Group Preference Optimization: Zhao, Dang and Grover 2023, arXiv:2310.11523.

Letters here: E episodes (a group and its points), M context points, N target points.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from plaudit.bounds import FromOne, check_bounds
from plaudit.errors import UserError, located
from plaudit.files.model_folder import read_json_object
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import TokenBatch

CONFIG_FILE, WEIGHTS_FILE = "plaudit_group.json", "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPreferenceConfig:
    embedding: FromOne
    """Size of an embedding: the hidden size of the backbone."""
    width: FromOne = 64
    """Size of a point inside."""
    layers: FromOne = 3
    """How many times points look at each other."""
    heads: FromOne = 4
    """In how many ways at once; they divide the width."""

    def __post_init__(self) -> None:
        check_bounds(self, "group preference")
        if self.width % self.heads:
            raise UserError(
                f"group preference: {self.heads} heads do not divide a width of {self.width}; "
                "choose a width that is a multiple"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """What is known of a group: answers, and how it liked them.

    Example: one comparison is two points, ``GroupContext(embedding_EMH=…,
    preference_EM=torch.tensor([[1, -1.0]]),
    mask_EM=torch.ones(1, 2, dtype=torch.bool))``
    """

    embedding_EMH: Float[Tensor, "E M H"]
    preference_EM: Float[Tensor, "E M"]
    """1 for the preferred of two and −1 for the other, or a standardised rating."""
    mask_EM: Bool[Tensor, "E M"]
    """False where an episode has fewer points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPrediction:
    """What the group is expected to think of each target.
    Example: ``GroupPrediction(score_EN=…, log_std_EN=…)``; P(first preferred) = σ(score₁ − score₂)."""

    score_EN: Float[Tensor, "E N"]
    """A score for comparisons, the expected rating for ratings."""
    log_std_EN: Float[Tensor, "E N"]
    """Logarithm of a rating's standard deviation; comparisons do not use it."""


class GroupPreference(nn.Module):
    """Predicts a group's preferences from context points, in one forward pass and without an update."""

    offset_H: Tensor
    scale_H: Tensor

    def __init__(self, config: GroupPreferenceConfig):
        super().__init__()
        self.config = config
        self.register_buffer("offset_H", torch.zeros(config.embedding))
        self.register_buffer("scale_H", torch.ones(config.embedding))
        self.read = nn.Linear(config.embedding + 2, config.width)
        self.blocks = nn.ModuleList(_Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.say = nn.Linear(config.width, 2)

    def standardise(self, embedding_NH: Float[Tensor, "N H"]) -> None:
        """From now on see embeddings relative to the mean and spread of these, the training ones."""
        self.offset_H.copy_(embedding_NH.mean(0))
        # A dimension that never varies would be divided by 0: it stays as it is, less its mean.
        spread_H = embedding_NH.std(0, correction=0)
        self.scale_H.copy_(spread_H.masked_fill(spread_H < 1e-6, 1.0))

    def forward(self, context: GroupContext, target_ENH: Float[Tensor, "E N H"]) -> GroupPrediction:
        """The targets' preferences; with an empty context those of groups in general."""
        preference_EM, zero_EN = context.preference_EM, target_ENH.new_zeros(target_ENH.shape[:2])
        # Contexts first, then targets: S = M + N points, cut apart again behind the last block.
        point_ESC = torch.cat(
            (
                self._points(context.embedding_EMH, preference_EM, torch.ones_like(preference_EM)),
                self._points(target_ENH, zero_EN, zero_EN),
            ),
            dim=1,
        )
        visible = torch.cat((context.mask_EM, zero_EN.bool()), dim=1)
        # Each point sees itself, so that no row of the softmax is empty when a group has no context at all.
        itself = torch.eye(visible.shape[1], dtype=torch.bool, device=visible.device)
        # Columns are what is seen: targets are hidden from all others, which makes them exchangeable.
        visible_ESS = visible[:, None, :] | itself
        for block in self.blocks:
            point_ESC = block(point_ESC, visible_ESS)
        output_EN2 = self.say(self.norm(point_ESC[:, preference_EM.shape[1] :]))
        return GroupPrediction(score_EN=output_EN2[..., 0], log_std_EN=output_EN2[..., 1])

    def _points(
        self,
        embedding_ENH: Float[Tensor, "E N H"],
        preference_EN: Float[Tensor, "E N"],
        has_preference_EN: Float[Tensor, "E N"],
    ) -> Float[Tensor, "E N C"]:
        standardised_ENH = (embedding_ENH - self.offset_H) / self.scale_H
        return self.read(
            torch.cat((standardised_ENH, preference_EN[..., None], has_preference_EN[..., None]), dim=-1)
        )


class _Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.look_norm, self.think_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.take = nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(
        self, point_ESC: Float[Tensor, "E S C"], visible_ESS: Bool[Tensor, "E S S"]
    ) -> Float[Tensor, "E S C"]:
        projected = self.ask(self.look_norm(point_ESC)).unflatten(-1, (3, self.heads, -1))
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=visible_ESS[:, None])
        point_ESC = point_ESC + self.take(attended.transpose(1, 2).flatten(2))
        return point_ESC + self.think(self.think_norm(point_ESC))


@torch.no_grad()
def completion_embeddings(model: Policy | RewardModel, batch: TokenBatch) -> Float[Tensor, "N H"]:
    """What a frozen backbone makes of each answer: the mean of its tokens' last-layer states, in float32."""
    length_N, host_length_N = batch.length_N, batch.host.length_N
    real_NT = torch.arange(batch.completion_NT.shape[1]) < host_length_N[:, None]
    # Float32 before the mean: a sum of hundreds of bfloat16 states stops growing.
    state_MH = model.backbone.states(batch, lambda inputs: inputs.own_NT[real_NT]).float()
    row_M = real_NT.nonzero()[:, 0].to(state_MH.device, non_blocking=True)
    sum_NH = state_MH.new_zeros(len(length_N), state_MH.shape[-1]).index_add(0, row_M, state_MH)
    return sum_NH / length_N[:, None]


def centre_by_prompt(embedding_NH: Float[Tensor, "N H"], group_N: Int[Tensor, " N"]) -> Float[Tensor, "N H"]:
    """Embeddings less the mean of all answers to the same prompt: what tells them apart, without the prompt.

    >>> centre_by_prompt(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])).T
    tensor([[-1.,  1.,  0.]])
    """
    prompts = int(group_N.max()) + 1
    sum_PH = embedding_NH.new_zeros(prompts, embedding_NH.shape[1]).index_add(0, group_N, embedding_NH)
    count_P = torch.bincount(group_N, minlength=prompts).clamp(min=1)
    return embedding_NH - (sum_PH / count_P[:, None])[group_N]


def save_group_preference(model: GroupPreference, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors refuses views that share memory or have strides.
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / WEIGHTS_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(asdict(model.config), indent=2) + "\n", encoding="utf-8")


def load_group_preference(folder: Path, *, device: torch.device | None = None) -> GroupPreference:
    """The module of a folder that ``save_group_preference`` wrote."""
    fields = read_json_object(folder / CONFIG_FILE)
    with located(
        f"{folder}: no group preference module as it was saved",
        OSError,
        ValueError,
        TypeError,
        RuntimeError,
        SafetensorError,
    ):
        model = GroupPreference(GroupPreferenceConfig(**fields))
        model.load_state_dict(
            {name: tensor.clone() for name, tensor in load_file(folder / WEIGHTS_FILE).items()}
        )
    return model.to(device or torch.device("cpu")).eval()
