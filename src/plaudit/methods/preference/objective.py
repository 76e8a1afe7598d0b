"""The preference objective: learn a policy from pairs, or from completions labelled good or bad.

It runs records of cells (``row.py``) and knows no algorithm by name. Every row of the data counts the same:
all pairs of a ranking together weigh as much as one comparison, and each answer, as well as the prompt that
answers share, goes through the model once. A label that is no certainty p gives the expected loss,
p · loss(y₁, y₂) + (1 − p) · loss(y₂, y₁).

A batch may come in micro-batches and over ranks, so what is told of all of it (who stands beside whom when
both sides are sorted, the mean Δ of answers to other prompts) is found before, in a look without gradient.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plaudit.engine.checkpoint.state import RunningMean
from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, length_metrics, mean_metric, sum_metric
from plaudit.engine.step import ObjectiveResult
from plaudit.losses.preference import CompletionLogps, SortedPartners, completion_logps, match_sorted
from plaudit.methods.algorithm import usable
from plaudit.methods.preference.row import (
    AnyPreferenceAlgorithm,
    BatchContext,
    PreferenceAlgorithm,
    RankingLoss,
    UnpairedAlgorithm,
)
from plaudit.models.policy import Policy, Reference
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tokens.batch import Example, TokenBatch, batch_of, move_columns, move_together
from plaudit.tokens.microbatch import split_examples, split_rows
from plaudit.tokens.preferences import JudgedRow, muted, row_labels, row_pairs, row_rankings


@dataclass(frozen=True, slots=True, kw_only=True)
class PairIndex:
    """B pairs among the N completions of a micro-batch.
    Example: of two comparisons ``chosen_B`` is [0, 2] and ``rejected_B`` [1, 3]."""

    chosen_B: Tensor
    rejected_B: Tensor
    chosen_better_B: Tensor
    """The probability that the first is better: ½ to 1."""
    weight_B: Tensor
    """The weight of a pair; those of one row add up to 1, of a row that does not count to 0."""
    decided_D: Tensor
    """The indices of the pairs that count and are no ties."""
    is_certain: bool
    """Whether the first is surely better in every pair."""
    origins: tuple[str, ...]


def index_pairs(rows: Sequence[JudgedRow], reference_tensor: Tensor, *, ties: bool = True) -> PairIndex:
    """All pairs of these rows, the likelier winner first; of equal ranks each is as likely, or left out.
    Chances and weights have the numbers and the device of ``reference_tensor``."""
    entries: list[tuple[int, int, float, float, str]] = []
    start = 0
    for row in rows:
        pairs = row_pairs(row, ties=ties)
        weight = row.counts / max(1, len(pairs))
        entries += [(start + a, start + b, first_better, weight, row.origin) for a, b, first_better in pairs]
        start += len(row.example.completions)
    first, second, first_better, weight, origins = zip(*entries, strict=True)
    decided = [b for b, entry in enumerate(entries) if entry[2] != 0.5 and entry[3] > 0]
    index, numbers = torch.int64, reference_tensor.dtype
    chosen_B, rejected_B, chosen_better_B, weight_B, decided_D = move_columns(
        [(first, index), (second, index), (first_better, numbers), (weight, numbers), (decided, index)],
        reference_tensor.device,
    )
    return PairIndex(
        chosen_B=chosen_B,
        rejected_B=rejected_B,
        chosen_better_B=chosen_better_B,
        weight_B=weight_B,
        decided_D=decided_D,
        is_certain=all(probability == 1 for probability in first_better),
        origins=origins,
    )


HELD_OUT_METRICS = (
    *("loss", "accuracy", "margin"),
    *("reward_chosen", "reward_rejected", "logp_chosen", "logp_rejected"),
)
"""The metrics on training and held-out rows; unpaired completions have no margin."""

ROUNDING_NATS = 1e-4
"""A difference of so few nats counts as a tie: two computations of a log-prob differ by as much."""
RowT = TypeVar("RowT", PreferenceAlgorithm, UnpairedAlgorithm)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceMicrobatch:
    """Rows that go through the model together.
    Example: ``PreferenceMicrobatch(judged=(…,), total_rows=64)``: these rows are part of a batch of 64."""

    judged: tuple[JudgedRow, ...]
    total_rows: int
    """Rows (of single answers: answers) of the **whole** batch, over all micro-batches and ranks."""
    context: BatchContext = field(default_factory=BatchContext)
    """What the loss needs from the whole batch and the run so far."""

    @property
    def tokens(self) -> int:
        return sum(row.tokens for row in self.judged)

    def rows(self) -> "tuple[PreferenceMicrobatch, ...]":
        singles: list[PreferenceMicrobatch] = []
        start = 0
        for row in self.judged:
            context = self.context
            if context.matched is not None:
                end = start + len(row_pairs(row, ties=False))
                context = replace(context, matched=context.matched.select(slice(start, end)))
                start = end
            singles.append(replace(self, judged=(row,), context=context))
        return tuple(singles)

    def shares(self, ranks: int, budget: int) -> "tuple[tuple[PreferenceMicrobatch, ...], ...] | None":
        """For each rank its micro-batches of at most ``budget`` tokens; None for a sorted batch."""
        # The partners were found for these very pieces: other ones would part pairs from theirs.
        if self.context.matched is not None:
            return None
        divided = split_rows(self.judged, muted, ranks=ranks, tokens_at_once=budget)
        return tuple(tuple(replace(self, judged=rows) for rows in share) for share in divided)


PreferenceObjective = Callable[[PreferenceMicrobatch], ObjectiveResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringModels:
    policy: Policy
    reference: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBatch:
    """The tokens of a micro-batch with the log-probs of policy and reference."""

    batch: TokenBatch
    logp_NT: Tensor
    ref_logp_NT: Tensor
    repeat_NT: Tensor | None
    """log Σ_v π(v)², where a weight needs it."""


def score_rows(
    models: ScoringModels, rows: Sequence[JudgedRow | Example], *, repeat: bool = False
) -> ScoredBatch:
    examples = [row.example if isinstance(row, JudgedRow) else row for row in rows]
    batch = batch_of(examples).to(models.policy.device)
    scores = models.policy.score(batch, also=("repeat",) if repeat else ())
    ref_NT = models.reference.logp(examples, batch).to(scores.logp_NT.dtype)
    return ScoredBatch(batch=batch, logp_NT=scores.logp_NT, ref_logp_NT=ref_NT, repeat_NT=scores.repeat_NT)


def pair_sides(
    row: PreferenceAlgorithm, scored: ScoredBatch, pairs: PairIndex
) -> tuple[CompletionLogps, CompletionLogps]:
    """The loss inputs of the chosen and the rejected completion of each pair."""
    length_N = scored.batch.mask_NT.sum(-1)
    # What ld-dpo measures against: tokens of either side beyond the shorter one's length count less.
    shorter_B = torch.minimum(length_N[pairs.chosen_B], length_N[pairs.rejected_B])
    chosen = _side_scores(row, scored, pairs.chosen_B, shorter_B)
    return chosen, _side_scores(row, scored, pairs.rejected_B, shorter_B)


def pair_objective(
    row: PreferenceAlgorithm, models: ScoringModels, *, ties: bool = True
) -> PreferenceObjective:
    """Σ loss over the pairs, or over whole rankings / rows of the whole batch."""

    def objective(microbatch: PreferenceMicrobatch) -> ObjectiveResult:
        scored = score_rows(models, microbatch.judged, repeat="repeat" in row.needs)
        pairs = index_pairs(microbatch.judged, scored.logp_NT, ties=ties)
        chosen, rejected = pair_sides(row, scored, pairs)
        if row.ranking_loss is None:
            context = _with_changed(row, models, microbatch, pairs)
            loss_B = _pair_losses(row, scored, (chosen, rejected), pairs, context)
            origins = pairs.origins
        else:
            loss_B = _ranking_losses(row, row.ranking_loss, scored, microbatch.judged)
            origins = tuple(row.origin for row in microbatch.judged)
        lead_D = (chosen.delta_B - rejected.delta_B).detach()[pairs.decided_D]
        margin = row.beta * lead_D.sum().double()
        row_metrics = (
            _accuracy_metric(lead_D),
            mean_metric("margin", margin, lead_D.numel()),
            *_side_metrics(row, "chosen", chosen, pairs.decided_D),
            *_side_metrics(row, "rejected", rejected, pairs.decided_D),
            *_kl_metric(row, microbatch, scored),
        )
        rows = sum(row.counts for row in microbatch.judged)
        return _objective_result(microbatch, scored, loss_B, row_metrics, weight=rows, origins=origins)

    return objective


def _with_changed(
    row: PreferenceAlgorithm, models: ScoringModels, microbatch: PreferenceMicrobatch, pairs: PairIndex
) -> BatchContext:
    """What the loss reads of the whole batch, with the preferred answers to changed pictures."""
    if "changed" not in row.needs:
        return microbatch.context
    changed = [judged.changed for judged in microbatch.judged for _ in row_pairs(judged)]
    at = [b for b, example in enumerate(changed) if example is not None]
    if not at:
        return microbatch.context
    scored = score_rows(models, [example for example in changed if example is not None])
    sides = _answer_scores(row, scored)
    [at_D] = move_columns([(at, torch.int64)], sides.delta_B.device)

    def spread(values: Tensor) -> Tensor:
        return values.new_full(pairs.weight_B.shape, -math.inf).index_copy(0, at_D, values)

    spread_out = {part.name: spread(getattr(sides, part.name)) for part in fields(sides)}
    return replace(microbatch.context, changed=CompletionLogps(**spread_out))


def unpaired_objective(row: UnpairedAlgorithm, models: ScoringModels) -> PreferenceObjective:
    """Σ loss over the answers / answers of the whole batch."""

    def objective(microbatch: PreferenceMicrobatch) -> ObjectiveResult:
        scored = score_rows(models, microbatch.judged)
        completions = _answer_scores(row, scored)
        labels = [label for row in microbatch.judged for label in row_labels(row)]
        counts = _counted_completions(microbatch)
        good, bad = (
            [n for n in range(len(labels)) if counts[n] and sign * (labels[n] - 0.5) > 0] for sign in (1, -1)
        )
        numbers, index = completions.logp_B.dtype, torch.int64
        label_N, counted_N, good_G, bad_D = move_columns(
            [(labels, numbers), (counts, torch.bool), (good, index), (bad, index)], models.policy.device
        )
        given = {"answers.delta_B": completions.delta_B, "label_N": label_N}
        loss_N = row.loss(completions, label_N, microbatch.context)
        loss_N = counted_N * _for_each(
            "answer", row.name, loss_N, "-logsigmoid(label_N * answers.delta_B)", given
        )
        shift_N = completions.delta_B.detach()
        completion_metrics = (
            # A bad answer is judged rightly where its Δ is below 0.
            _accuracy_metric(torch.cat((shift_N[good_G], -shift_N[bad_D]))),
            *_side_metrics(row, "chosen", completions, good_G),
            *_side_metrics(row, "rejected", completions, bad_D),
            mean_metric("baseline", microbatch.context.baseline, 1),
            *_kl_metric(row, microbatch, scored),
        )
        return _objective_result(microbatch, scored, loss_N, completion_metrics, weight=sum(counts))

    return objective


def _pair_losses(
    row: PreferenceAlgorithm,
    scored: ScoredBatch,
    sides: tuple[CompletionLogps, CompletionLogps],
    pairs: PairIndex,
    context: BatchContext,
) -> Tensor:
    loss_B = _expected_pair_loss(row, *sides, pairs, context)
    if row.weight is not None:
        assert scored.repeat_NT is not None
        weight_N = row.weight(scored.logp_NT, scored.repeat_NT, scored.batch.mask_NT)
        loss_B = loss_B * row.pair_weight(weight_N[pairs.chosen_B], weight_N[pairs.rejected_B])
    if row.nll_coef:
        nll_N = _answer_nll(scored)
        loss_B = loss_B + row.nll_coef * (
            pairs.chosen_better_B * nll_N[pairs.chosen_B]
            + (1 - pairs.chosen_better_B) * nll_N[pairs.rejected_B]
        )
    return loss_B * pairs.weight_B


def _for_each(noun: str, name: str, loss_B: Any, example: str, given: Mapping[str, Tensor]) -> Tensor:
    wanted = f"a number for each {noun}, such as {example}, and not their mean"
    return usable(f"{name}: its loss", loss_B, wanted, next(iter(given.values())).shape[:1], given)


def _ranking_losses(
    row: PreferenceAlgorithm, loss: RankingLoss, scored: ScoredBatch, rows: Sequence[JudgedRow]
) -> Tensor:
    """The loss of each row as a whole; of a label that is no certainty it is the expected one."""
    delta_N = _answer_scores(row, scored).delta_B
    places, ranks, probabilities, row_of_ranking, start = [], [], [], [], 0
    for number, judged in enumerate(rows):
        for probability, ranking in row_rankings(judged):
            places.append(torch.arange(start, start + len(ranking)))
            ranks.append(torch.tensor(ranking))
            probabilities.append(probability * judged.counts)
            row_of_ranking.append(number)
        start += len(judged.example.completions)
    columns = (places, ranks, [torch.ones(len(rank_k), dtype=torch.bool) for rank_k in ranks])
    tensors = [
        *(pad_sequence(column, batch_first=True) for column in columns),
        torch.tensor(row_of_ranking),
        torch.tensor(probabilities, dtype=delta_N.dtype),
    ]
    place_PK, rank_PK, mask_PK, row_P, probability_P = move_together(tensors, delta_N.device)
    rank_PK = rank_PK.to(delta_N.dtype)
    delta_PK = delta_N[place_PK]
    loss_P = loss(delta_PK, rank_PK, mask_PK)
    given = {"delta_PK": delta_PK, "rank_PK": rank_PK, "mask_PK": mask_PK}
    loss_P = _for_each("ranking", row.name, loss_P, "(rank_PK * delta_PK * mask_PK).sum(-1)", given)
    if row.nll_coef:
        # Of several best answers their mean: the ranking says no more.
        best_PK = (rank_PK == rank_PK.masked_fill(~mask_PK, math.inf).amin(-1, keepdim=True)) & mask_PK
        loss_P = loss_P + row.nll_coef * (_answer_nll(scored)[place_PK] * best_PK).sum(-1) / best_PK.sum(-1)
    return loss_P.new_zeros(len(rows)).index_add(0, row_P, probability_P * loss_P)


def _expected_pair_loss(
    row: PreferenceAlgorithm,
    chosen: CompletionLogps,
    rejected: CompletionLogps,
    pairs: PairIndex,
    context: BatchContext,
) -> Tensor:
    loss_B = row.loss(*row.penalised_sides(chosen, rejected), context)
    given = {"chosen.delta_B": chosen.delta_B, "rejected.delta_B": rejected.delta_B}
    loss_B = _for_each("pair", row.name, loss_B, "-logsigmoid(chosen.delta_B - rejected.delta_B)", given)
    if pairs.is_certain:
        return loss_B
    # Swapped before penalties, as dpop's belongs to whichever answer is the preferred one.
    swapped_loss_B = row.loss(*row.penalised_sides(rejected, chosen), context)
    return pairs.chosen_better_B * loss_B + (1 - pairs.chosen_better_B) * swapped_loss_B


def _answer_nll(scored: ScoredBatch) -> Tensor:
    # A muted row has no trained token: 0 / 0 would be NaN even under a weight of 0.
    length_N = scored.batch.mask_NT.sum(-1).clamp(min=1)
    return -masked_sum_rows(scored.logp_NT, scored.batch.mask_NT) / length_N


def _answer_scores(row: AnyPreferenceAlgorithm, scored: ScoredBatch) -> CompletionLogps:
    """What the loss reads of each answer, which is measured against its own length."""
    return _side_scores(row, scored, slice(None), scored.batch.mask_NT.sum(-1))


def _side_scores(
    row: AnyPreferenceAlgorithm, scored: ScoredBatch, chosen_B: Tensor | slice, shorter_B: Tensor
) -> CompletionLogps:
    mask_BT = scored.batch.mask_NT[chosen_B]
    logp_B, ref_logp_B = (
        row.log_prob(value_NT[chosen_B], mask_BT, shorter_B)
        for value_NT in (scored.logp_NT, scored.ref_logp_NT)
    )
    return row.completion_logps(logp_B, ref_logp_B, mask_BT.sum(-1))


def _accuracy_metric(leads: Tensor) -> Metric:
    """The share of leads above 0; before the first step all are 0 but for rounding, and count half."""
    tied = (leads.abs() <= ROUNDING_NATS).sum().double()
    return mean_metric("accuracy", (leads > ROUNDING_NATS).sum().double() + 0.5 * tied, leads.numel())


def _side_metrics(row: RowT, name: str, side: CompletionLogps, which_D: Tensor) -> tuple[Metric, Metric]:
    shift, logp = (value_B.detach()[which_D].sum().double() for value_B in (side.delta_B, side.logp_B))
    return mean_metric(f"reward_{name}", row.beta * shift, which_D.numel()), mean_metric(
        f"logp_{name}", logp, which_D.numel()
    )


def _counted_completions(microbatch: PreferenceMicrobatch) -> list[bool]:
    return [row.counts for row in microbatch.judged for _ in row.example.completions]


def _kl_metric(row: RowT, microbatch: PreferenceMicrobatch, scored: ScoredBatch) -> tuple[Metric, ...]:
    """KL(π_ref ‖ π) where answers were drawn from the reference: Σ_t u − 1 − log u, u = π / π_ref."""
    if "reference" not in row.needs:
        return ()
    counted = [n for n, counts in enumerate(_counted_completions(microbatch)) if counts]
    # e^89 is infinite in float32; for a mere figure e^30 is far enough.
    log_ratio_NT = (scored.logp_NT.detach() - scored.ref_logp_NT).clamp(max=30)
    kl_N = masked_sum_rows(log_ratio_NT.expm1() - log_ratio_NT, scored.batch.mask_NT)
    [counted_D] = move_columns([(counted, torch.int64)], kl_N.device)
    return (mean_metric("kl", kl_N[counted_D].sum(), len(counted)),)


def _objective_result(
    microbatch: PreferenceMicrobatch,
    scored: ScoredBatch,
    loss_B: Tensor,
    metrics: Sequence[Metric],
    *,
    weight: int,
    origins: tuple[str, ...] | None = None,
) -> ObjectiveResult:
    """The loss over the whole batch; ``weight`` is how much of it is in this micro-batch."""
    rows = sum(row.counts for row in microbatch.judged)
    examples = [row.example for row in microbatch.judged] if rows else []
    return ObjectiveResult(
        loss=loss_B.sum() / microbatch.total_rows,
        loss_N=loss_B.detach(),
        origin_N=scored.batch.origin_N if origins is None else origins,
        metrics=(
            mean_metric("loss", loss_B.detach().sum(), weight),
            *metrics,
            *length_metrics(examples),
            sum_metric("tokens", sum(example.tokens for example in examples)),
            sum_metric("rows", rows),
        ),
    )


MismatchedExamples = Mapping[Example, Example]
"""For each row its prompt with a completion of another prompt (KTO's mismatched pairs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceBatcher:
    row: AnyPreferenceAlgorithm
    models: ScoringModels
    ranks: Ranks
    tokens_at_once: int
    ties: bool = True
    running_mean: RunningMean | None = None
    mismatched: MismatchedExamples = field(default_factory=dict[Example, Example])
    """Mismatched examples, where the loss measures from their mean log-ratio."""

    def microbatches(self, rows: Sequence[JudgedRow]) -> tuple[PreferenceMicrobatch, ...]:
        """This rank's micro-batches of a batch; every rank comes with the same rows."""
        is_unpaired = isinstance(self.row, UnpairedAlgorithm)
        total = sum(len(row_labels(row)) for row in rows) if is_unpaired else len(rows)
        context = BatchContext(baseline=self._baseline(rows))
        rows_by_rank = split_rows(
            rows, muted, ranks=self.ranks.world_size, tokens_at_once=self.tokens_at_once
        )
        if isinstance(self.row, PreferenceAlgorithm) and "sorted_batch" in self.row.needs:
            return self._matched_microbatches(rows_by_rank, total, self.row)
        rank_rows = rows_by_rank[self.ranks.rank]
        return tuple(
            PreferenceMicrobatch(judged=microbatch, total_rows=total, context=context)
            for microbatch in rank_rows
        )

    def _baseline(self, rows: Sequence[JudgedRow]) -> float:
        if "running_mean" in self.row.needs:
            assert self.running_mean is not None, "nobody keeps the mean"
            return self.running_mean.value
        return self._mismatched_baseline(rows) if "mismatched" in self.row.needs else 0.0

    def _mismatched_baseline(self, rows: Sequence[JudgedRow]) -> float:
        """max(0, mean Δ) of answers to other prompts, one for each row of the batch."""
        examples = [self.mismatched[row.example] for row in rows]
        # With divided weights every rank must look as often as the others do.
        examples_by_rank = split_examples(
            examples, ranks=self.ranks.world_size, tokens_at_once=self.tokens_at_once
        )
        total = 0.0
        for microbatch in examples_by_rank[self.ranks.rank]:
            with torch.no_grad():
                scored = score_rows(self.models, microbatch)
            total += float(_answer_scores(self.row, scored).delta_B.sum())
        # Sums travel, as ranks hold unequal numbers of rows. z₀ estimates a KL, which is never below 0.
        return max(0.0, math.fsum(item for (item,) in self.ranks.all_gather([total])) / len(rows))

    def _matched_microbatches(
        self, rows_by_rank: Sequence[Sequence[tuple[JudgedRow, ...]]], total: int, row: PreferenceAlgorithm
    ) -> tuple[PreferenceMicrobatch, ...]:
        """Every pair of the batch is seen once; then each micro-batch gets its own matched partners."""
        # Every rank holds all rows of the batch, so it knows the sizes without asking.
        sizes = [
            [sum(len(row_pairs(row, ties=self.ties)) for row in microbatch) for microbatch in microbatches]
            for microbatches in rows_by_rank
        ]
        local_4B = torch.cat(
            [self._pair_log_ratios(row, microbatch) for microbatch in rows_by_rank[self.ranks.rank]], -1
        )
        # all_gather wants equal lengths: NaN fills up, and the sizes cut it off again.
        padded_4B = local_4B.new_full((4, max(map(sum, sizes))), math.nan)
        padded_4B[:, : local_4B.shape[1]] = local_4B
        # As Python floats, in which float32 and float64 lose nothing.
        rows = self.ranks.all_gather(padded_4B.flatten().tolist())
        whole_4B = torch.cat(
            [
                padded_4B.new_tensor(row).view(4, -1)[:, : sum(of_rank)]
                for row, of_rank in zip(rows, sizes, strict=True)
            ],
            -1,
        )
        partners = _match_sorted_pairs(whole_4B)
        start = sum(map(sum, sizes[: self.ranks.rank]))
        microbatches: list[PreferenceMicrobatch] = []
        for microbatch, size in zip(rows_by_rank[self.ranks.rank], sizes[self.ranks.rank], strict=True):
            context = BatchContext(matched=partners.select(slice(start, start + size)))
            microbatches.append(PreferenceMicrobatch(judged=microbatch, total_rows=total, context=context))
            start += size
        return tuple(microbatches)

    def _pair_log_ratios(self, row: PreferenceAlgorithm, rows: tuple[JudgedRow, ...]) -> Tensor:
        """Of each pair: log-prob gaps of policy and reference, and both Δ; NaN where it does not count."""
        with torch.no_grad():
            scored = score_rows(self.models, rows)
            pairs = index_pairs(rows, scored.logp_NT, ties=self.ties)
            # With the loss's own penalties: what is sorted must be what is compared.
            chosen, rejected = row.penalised_sides(*pair_sides(row, scored, pairs))
        figures_4B = torch.stack(
            (
                chosen.logp_B - rejected.logp_B,
                chosen.ref_logp_B - rejected.ref_logp_B,
                chosen.delta_B,
                rejected.delta_B,
            )
        )
        # NaN for what does not count: a 0 would take a place in the order.
        return figures_4B.masked_fill(pairs.weight_B == 0, math.nan)


def _match_sorted_pairs(figures_4B: Tensor) -> SortedPartners:
    """Matched partners among the counted pairs of a sorted batch; uncounted pairs get zeros."""
    counts_B = figures_4B.isfinite().all(0)
    gap_B, ref_gap_B, chosen_B, rejected_B = figures_4B
    zero_B = torch.zeros_like(gap_B[counts_B])
    item = zero_B + 1
    # Matching reads differences of log-probs alone, so that a gap beside 0 stands for both sides.
    partners = match_sorted(
        replace(completion_logps(gap_B[counts_B], ref_gap_B[counts_B], item), delta_B=chosen_B[counts_B]),
        replace(completion_logps(zero_B, zero_B, item), delta_B=rejected_B[counts_B]),
    )
    return partners.map(lambda value: value.new_zeros(counts_B.shape).masked_scatter(counts_B, value))
