"""The language-model loss beside a reward's: layers that judge answers shall still be able to write them.

L = L_reward + c · (1/T) Σ −log π(y_t | x, y_<t), over the T tokens of the answers that were preferred. π is
the language model's own head, frozen, on the states that the reward's layers make now (text-generation
regularisation: Yang et al. 2024, arXiv:2406.10216, who weigh the two terms 1 − α and α).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.backbone import head_of
from plaudit.models.load import is_reward_folder, load_model
from plaudit.models.reward_model import RewardModel
from plaudit.tensors.logprobs import LogitRule, refuse_unknown_tokens, score_tokens_equally_weighted
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.preferences import JudgedRow, PairLabel, RankingLabel, RatingLabel, StepLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTerm:
    """How much the language-model loss counts, and the frozen head that it is read through."""

    coef: float
    """Its weight beside the reward's loss."""
    weight_VH: Tensor
    bias_V: Tensor | None
    rule: LogitRule

    def rewards_and_nll(
        self, model: RewardModel, batch: TokenBatch, preferred_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The reward of every completion, and Σ −log π over the preferred ones' tokens, of one pass."""
        host = batch.host
        mask_NT = host.mask_NT & preferred_N[:, None]
        target_M = host.completion_NT[mask_NT]
        refuse_unknown_tokens(target_M, self.weight_VH.shape[0])
        reward_N, hidden_MH = model.rewards_and_states(batch, lambda inputs: inputs.state_NT[mask_NT])
        if not len(target_M):
            return reward_N, reward_N.new_zeros(())
        # In the numbers that the states come in, as a policy's own head is.
        weight_VH = self.weight_VH.to(hidden_MH.dtype)
        bias_V = None if self.bias_V is None else self.bias_V.to(hidden_MH.dtype)
        scores = score_tokens_equally_weighted(
            hidden_MH, weight_VH, target_M.to(hidden_MH.device), bias_V=bias_V, rule=self.rule
        )
        return reward_N, -scores.logp_M.sum()


def load_language_term(
    folder: Path, coef: float, *, dtype: torch.dtype, device: torch.device
) -> LanguageTerm | None:
    """The term with the head of a language model's folder; None where it counts nothing."""
    if not coef:
        return None
    if is_reward_folder(folder):
        raise UserError(
            f"reward.nll_coef: {folder} is a reward model, which has no language head: leave the setting "
            "out, or begin with a language model"
        )
    head = head_of(load_model(folder, dtype=dtype, device=device))
    bias = head.layer.bias
    # Clones: a head that is tied to embeddings would keep a model in memory.
    return LanguageTerm(
        coef=coef,
        weight_VH=head.layer.weight.detach().clone(),
        bias_V=None if bias is None else bias.detach().clone(),
        rule=replace(head.rule),
    )


def preferred_completions(row: JudgedRow) -> tuple[bool, ...]:
    """For each answer of one row whether it was preferred: none in a tie, the best of a ranking, a thumb up.

    >>> from plaudit.tokens.batch import Completion, Example
    >>> answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> example = Example(prompt=(1,), completions=(answer, answer))
    >>> preferred_completions(JudgedRow(example=example, judgement=PairLabel(probability=0.2, margin=0.0)))
    (False, True)
    """
    match row.judgement:
        case PairLabel(probability=first_better):
            return first_better > 0.5, first_better < 0.5
        case RankingLabel(ranks=ranks):
            return tuple(rank == min(ranks) < max(ranks) for rank in ranks)
        case RatingLabel(score=score, thumb=True):
            return (score > 0.5,)
        case RatingLabel() | StepLabels():
            # Points and steps are read by losses that have no such term.
            return (False,)


def preferred_tokens(row: JudgedRow) -> int:
    """How many tokens of a row the language-model loss is over."""
    if not row.counts:
        return 0
    completions = zip(row.example.completions, preferred_completions(row), strict=True)
    return sum(sum(completion.mask) for completion, preferred in completions if preferred)
