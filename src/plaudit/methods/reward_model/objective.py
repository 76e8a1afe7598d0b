"""The reward model's objective: a scalar reward from comparisons, rankings, ratings or step labels.

Every row counts the same, and with it every prompt: all pairs of a ranking together weigh as much as one
comparison (Ouyang et al. 2022, arXiv:2203.02155), and each answer goes through the model once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, length_metrics, mean_metric, sum_metric
from plaudit.engine.step import ObjectiveResult
from plaudit.errors import UserError
from plaudit.models.backbone import head_of
from plaudit.models.load import is_reward_folder, load_model
from plaudit.models.reward_model import RewardModel
from plaudit.tensors.logprobs import LogitRule, refuse_unknown_tokens, score_tokens_equally_weighted
from plaudit.tokens.batch import TokenBatch, batch_of, move_columns, move_together
from plaudit.tokens.microbatch import split_rows
from plaudit.tokens.preferences import JudgedRow, PairLabel, RankingLabel, RatingLabel, StepLabels, muted

HELD_OUT_METRICS = {
    name: f"held_out/{name}" for name in ("loss", "accuracy", "margin", "nll", "mae", "reward_mean")
}
"""The figures that are also measured on rows that are never trained."""

PairLoss = Callable[
    [Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]], Float[Tensor, " B"]
]
"""From both rewards, the chance that the first is better and the margin to a loss a comparison."""
RankLoss = Callable[[Float[Tensor, "P K"], Float[Tensor, "P K"], Bool[Tensor, "P K"]], Float[Tensor, " P"]]
"""From rewards, ranks and which of them are there to a loss a prompt."""
RateLoss = Callable[[Float[Tensor, " N"], Float[Tensor, " N"]], Float[Tensor, " N"]]
"""From rewards and scores to a loss an answer."""
StepLoss = Callable[[Float[Tensor, "N C"], Float[Tensor, "N C"], Bool[Tensor, "N C"]], Float[Tensor, "N C"]]
"""From the scores of steps, their labels and which of them are there to a loss a step."""

LabelT = TypeVar("LabelT", PairLabel, RankingLabel, RatingLabel, StepLabels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardMicrobatch:
    """Rows that go through the model together.
    Example: ``RewardMicrobatch(judged=(…,), total_rows=64)``: these rows are part of a batch of 64."""

    judged: tuple[JudgedRow, ...]
    total_rows: int
    """Rows (of steps: steps) of the **whole** batch, over all micro-batches and ranks: the denominator."""
    total_preferred_tokens: int = 0
    """Tokens of preferred answers of the **whole** batch: the denominator of the language-model loss."""

    @property
    def tokens(self) -> int:
        return sum(row.tokens for row in self.judged)

    def rows(self) -> "tuple[RewardMicrobatch, ...]":
        return tuple(replace(self, judged=(row,)) for row in self.judged)

    def shares(self, ranks: int, budget: int) -> "tuple[tuple[RewardMicrobatch, ...], ...]":
        divided = split_rows(self.judged, muted, ranks=ranks, tokens_at_once=budget)
        return tuple(tuple(replace(self, judged=rows) for rows in share) for share in divided)


RewardObjective = Callable[[RewardMicrobatch], ObjectiveResult]


def microbatches_of(
    rows: Sequence[JudgedRow], ranks: Ranks, tokens_at_once: int
) -> tuple[RewardMicrobatch, ...]:
    """This rank's micro-batches of a batch; every rank holds the same rows, so each knows the counts."""
    total = sum(len(row.judgement.ends) if isinstance(row.judgement, StepLabels) else 1 for row in rows)
    tokens = sum(map(preferred_tokens, rows))
    whole = RewardMicrobatch(judged=tuple(rows), total_rows=total, total_preferred_tokens=tokens)
    return whole.shares(ranks.rows.world_size, tokens_at_once)[ranks.rows.rank]


def comparison_result(
    model: RewardModel, loss: PairLoss, language: "LanguageTerm | None", microbatch: RewardMicrobatch
) -> ObjectiveResult:
    """Σ loss(r₁, r₂) over the comparisons / comparisons of the whole batch."""
    scored = _score_rows(model, microbatch, language)
    comparisons = _labels_of(microbatch, PairLabel)
    numbers = scored.reward_N.dtype
    columns = [
        ([comparison.probability for comparison in comparisons], numbers),
        ([comparison.margin for comparison in comparisons], numbers),
    ]
    first_better_B, margin_B = move_columns(columns, model.device)
    # [2B] as [B, 2]: completions lie row by row, and each row has two.
    first_B, second_B = scored.reward_N.view(-1, 2).unbind(1)
    loss_B = loss(first_B, second_B, first_better_B, margin_B)
    # The sign of p − ½ turns the lead towards the preferred answer, whichever of the two it is.
    lead_B = (first_B - second_B).detach() * (first_better_B - 0.5).sign()
    decided_B = (first_better_B != 0.5) & scored.counted_R
    return _objective_result(microbatch, scored, loss_B, _accuracy_and_margin(lead_B, decided_B))


def ranking_result(
    model: RewardModel, loss: RankLoss, language: "LanguageTerm | None", microbatch: RewardMicrobatch
) -> ObjectiveResult:
    """Σ loss over the rankings / rankings of the whole batch; each answer is computed once."""
    scored = _score_rows(model, microbatch, language)
    numbers = scored.reward_N.dtype
    ranks = [torch.tensor(first.ranks, dtype=numbers) for first in _labels_of(microbatch, RankingLabel)]
    reward_PK = pad_sequence([*scored.reward_N.split([len(first) for first in ranks])], batch_first=True)
    # From ones: rewards and ranks can themselves be 0 where there is an answer.
    answers = [torch.ones_like(first, dtype=torch.bool) for first in ranks]
    rank_PK, mask_PK = move_together(
        [pad_sequence(ranks, batch_first=True), pad_sequence(answers, batch_first=True)], model.device
    )
    loss_P = loss(reward_PK, rank_PK, mask_PK)
    # The upper triangle: each of the K(K − 1)/2 pairs of a ranking once.
    first, second = torch.triu_indices(*[rank_PK.shape[1]] * 2, offset=1, device=rank_PK.device)
    order_PB = (rank_PK[:, second] - rank_PK[:, first]).sign()
    decided_PB = mask_PK[:, first] & mask_PK[:, second] & (order_PB != 0) & scored.counted_R[:, None]
    lead_PB = (reward_PK[:, first] - reward_PK[:, second]).detach() * order_PB
    return _objective_result(microbatch, scored, loss_P, _accuracy_and_margin(lead_PB, decided_PB))


def rating_result(
    model: RewardModel, loss: RateLoss, language: "LanguageTerm | None", microbatch: RewardMicrobatch
) -> ObjectiveResult:
    """Σ loss over points on a scale / answers of the whole batch."""
    scored = _score_rows(model, microbatch, language)
    score_N = _scores_like(scored.reward_N, microbatch)
    error_N = (scored.reward_N.detach() - score_N).abs() * scored.counted_R
    error = mean_metric("mae", error_N.sum(), _counted(microbatch))
    return _objective_result(microbatch, scored, loss(scored.reward_N, score_N), (error,))


def thumbs_result(
    model: RewardModel, loss: RateLoss, language: "LanguageTerm | None", microbatch: RewardMicrobatch
) -> ObjectiveResult:
    """Σ loss over thumbs, or shares of them / answers of the whole batch; a reward above 0 is a thumb up."""
    scored = _score_rows(model, microbatch, language)
    up_N = _scores_like(scored.reward_N, microbatch)
    lead_N = scored.reward_N.detach() * (up_N - 0.5).sign()
    decided_N = (up_N != 0.5) & scored.counted_R
    return _objective_result(
        microbatch, scored, loss(scored.reward_N, up_N), _accuracy_and_margin(lead_N, decided_N)[:1]
    )


def step_result(
    model: RewardModel, loss: StepLoss, language: "LanguageTerm | None", microbatch: RewardMicrobatch
) -> ObjectiveResult:
    """Σ loss over the steps / steps of the whole batch; a score above 0 calls a step right."""
    assert language is None, "no answer of such rows is preferred"
    labelled = _labels_of(microbatch, StepLabels)
    ends = [torch.tensor(label.ends) for label in labelled]
    batch = batch_of([row.example for row in microbatch.judged]).to(model.device)
    # −1 for padding, since 0 is the place of a completion's first token.
    score_NC = model.step_rewards(batch, pad_sequence(ends, batch_first=True, padding_value=-1))
    labels = [torch.tensor(label.labels, dtype=score_NC.dtype) for label in labelled]
    exists = [torch.ones_like(end, dtype=torch.bool) for end in ends]
    # By place and not by mask: how many steps a mask has would be asked of the device.
    places = [n * max(map(len, ends)) + c for n, end in enumerate(ends) for c in range(len(end))]
    tensors = [
        pad_sequence(labels, batch_first=True),
        pad_sequence(exists, batch_first=True),
        torch.tensor(places),
    ]
    label_NC, mask_NC, step_M = move_together(tensors, model.device)
    loss_NC = loss(score_NC, label_NC, mask_NC)
    # Only real steps: zeros of padded ones would pull the mean reward towards 0.
    counted_R = _counted_rows(microbatch, model.device)
    scored = _ScoredRows(batch=batch, reward_N=score_NC.flatten()[step_M], counted_R=counted_R)
    decided_NC = mask_NC & (label_NC != 0.5) & scored.counted_R[:, None]
    lead_NC = score_NC.detach() * (label_NC - 0.5).sign()
    steps = sum(len(label.ends) for label in labelled)
    return _objective_result(
        microbatch, scored, loss_NC.sum(-1), _accuracy_and_margin(lead_NC, decided_NC)[:1], weight=steps
    )


def row_losses(
    objective: RewardObjective, microbatches: Sequence[RewardMicrobatch]
) -> list[tuple[str, float]]:
    """The prompt and the loss of each row that counts, without gradient; sharded, every rank must call it."""
    losses: list[tuple[str, float]] = []
    with torch.no_grad():
        for microbatch in microbatches:
            rows = zip(microbatch.judged, objective(microbatch).loss_N.tolist(), strict=True)
            losses += [(row.prompt_id, loss) for row, loss in rows if row.counts]
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredRows:
    batch: TokenBatch
    reward_N: Tensor
    counted_R: Tensor
    nll: Tensor | None = None
    """Σ −log π over the preferred answers; None where that is no part of the loss."""
    nll_coef: float = 0.0


def _score_rows(
    model: RewardModel, microbatch: RewardMicrobatch, language: "LanguageTerm | None"
) -> _ScoredRows:
    batch = batch_of([row.example for row in microbatch.judged]).to(model.device)
    counted_R = _counted_rows(microbatch, model.device)
    if language is None:
        return _ScoredRows(batch=batch, reward_N=model.rewards(batch), counted_R=counted_R)
    preferred = [
        preferred and row.counts for row in microbatch.judged for preferred in preferred_completions(row)
    ]
    reward_N, nll = language.rewards_and_nll(model, batch, torch.tensor(preferred))
    return _ScoredRows(batch=batch, reward_N=reward_N, counted_R=counted_R, nll=nll, nll_coef=language.coef)


def _counted_rows(microbatch: RewardMicrobatch, device: torch.device) -> Tensor:
    return move_columns([([row.counts for row in microbatch.judged], torch.bool)], device)[0]


def _scores_like(reward_N: Tensor, microbatch: RewardMicrobatch) -> Tensor:
    scores = [label.score for label in _labels_of(microbatch, RatingLabel)]
    return move_columns([(scores, reward_N.dtype)], reward_N.device)[0]


def _counted(microbatch: RewardMicrobatch) -> int:
    return sum(row.counts for row in microbatch.judged)


def _labels_of(microbatch: RewardMicrobatch, kind: type[LabelT]) -> list[LabelT]:
    labels = [row.judgement for row in microbatch.judged if isinstance(row.judgement, kind)]
    assert len(labels) == len(microbatch.judged), f"rows of another kind than {kind.__name__}"
    return labels


def _accuracy_and_margin(lead: Tensor, decided: Tensor) -> tuple[Metric, Metric]:
    # Zeros in place of the others: picking the decided ones would wait for the device to count them.
    leads, pairs = torch.where(decided, lead, 0.0), decided.sum()
    right = ((lead > 0) & decided).sum().double() + 0.5 * ((lead == 0) & decided).sum().double()
    return mean_metric("accuracy", right, pairs), mean_metric("margin", leads.sum(), pairs)


def _objective_result(
    microbatch: RewardMicrobatch,
    scored: _ScoredRows,
    loss_R: Tensor,
    row_metrics: Sequence[Metric],
    *,
    weight: int | None = None,
) -> ObjectiveResult:
    """The loss of the rows that count, over the whole batch; ``weight`` is what its mean is taken over."""
    counted_R = loss_R * scored.counted_R
    rows = _counted(microbatch)
    is_muted = rows == 0
    # A placeholder has rewards of rows that another rank reports; none of them may enter the mean.
    rewards = scored.reward_N.detach()[:0] if is_muted else scored.reward_N.detach()
    examples = [] if is_muted else [row.example for row in microbatch.judged]
    loss, language_metrics = counted_R.sum() / microbatch.total_rows, tuple[Metric, ...]()
    if scored.nll is not None:
        tokens = sum(map(preferred_tokens, microbatch.judged))
        # Its own mean, over tokens: a long answer would else weigh less than its words.
        loss = loss + scored.nll_coef * scored.nll / max(microbatch.total_preferred_tokens, 1)
        language_metrics = (mean_metric("nll", scored.nll.detach(), tokens),)
    origin_N = tuple(row.origin for row in microbatch.judged)
    metrics = (
        mean_metric("loss", counted_R.detach().sum(), 0 if is_muted else weight or rows),
        *row_metrics,
        *language_metrics,
        mean_metric("reward_mean", rewards.sum(), rewards.numel()),
        *length_metrics(examples),
        sum_metric("tokens", sum(example.tokens for example in examples)),
        sum_metric("rows", rows),
    )
    return ObjectiveResult(loss=loss, loss_N=loss_R.detach(), origin_N=origin_N, metrics=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTerm:
    """How much the language-model loss counts, and the frozen head that it is read through.
    L = L_reward + c · (1/T) Σ −log π(y_t | x, y_<t), over the T tokens of the answers that were preferred, π
    being read from the states that the reward's layers make now: layers that judge answers shall still be
    able to write them (Yang et al. 2024, arXiv:2406.10216, who weigh the two terms 1 − α and α)."""

    coef: float
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
    bias_V = None if bias is None else bias.detach().clone()
    weight_VH = head.layer.weight.detach().clone()
    return LanguageTerm(coef=coef, weight_VH=weight_VH, bias_V=bias_V, rule=replace(head.rule))


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
