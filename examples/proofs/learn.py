"""The exact expected loss of an algorithm's cells, and its minimum: training without samples and noise.

The record's own measure, link, price, hold, weight, NLL and loss are used, as the trainer uses them. What a
trainer keeps beside the gradient (a reference point, weights, who stands beside whom in a sorted batch) is
held while the loss is minimised, taken anew, and so on until it stays: that is where training would rest.
Policy optimisation is taken in expectation over every group of answers that can come.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from examples.proofs.estimators import Estimator, ExactBatch, prefix_values
from examples.proofs.evidence import Pairs, Thumbs, repeated_pairs
from examples.proofs.exact import Language, LearningPolicy, TablePolicy, token_logps
from plaudit.errors import UserError
from plaudit.losses.preference import CompletionLogps, match_sorted
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.methods.policy.row import AdvantageInputs, LossCounts, PolicyAlgorithm, SurrogateInputs
from plaudit.methods.preference.row import (
    AnyPreferenceAlgorithm,
    BatchContext,
    PreferenceAlgorithm,
    UnpairedAlgorithm,
)
from plaudit.tensors.masked import Moments, last_token_mask, masked_sum_rows, whiten

PreferenceLossRow = AnyPreferenceAlgorithm
"""A preference algorithm: a row for pairs, or for single answers."""

CONVERGED_CHANGE = 1e-9
"""The change of the frozen terms below which the outer loop has converged."""
KINK_SLOPE = 1e-4
"""A gradient that no smooth loss is left with: above it the loss has a kink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningProblem:
    row: PreferenceLossRow
    feedback: Pairs | Thumbs
    """The feedback in expectation; pairs of equal weight for a row that sorts."""
    language: Language
    baseline: float | None = None
    """A reference point in place of the one that the row would keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserBudget:
    rounds: int = 100
    """How often what is held is taken anew, at most; a row that holds nothing needs one round."""
    steps: int = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenTerms:
    """Terms without gradient, fixed while the loss is minimised: baseline, weights, sorted partners."""

    context: BatchContext
    weight_B: Float[Tensor, " B"]

    def as_vector(self) -> Float[Tensor, " F"]:
        """All of them in one vector, to test convergence."""
        partners = self.context.matched
        sorted_ones = (
            [] if partners is None else [partners.for_gap_B, partners.for_chosen_B, partners.for_rejected_B]
        )
        return torch.cat([self.weight_B.new_tensor([self.context.baseline]), self.weight_B, *sorted_ones])


def learning_problem(
    row: PreferenceLossRow, feedback: Pairs | Thumbs, language: Language, baseline: float | None = None
) -> LearningProblem:
    """The task; for a row that sorts its batch, pairs are repeated instead of weighed.

    >>> from examples.proofs.evidence import pairs
    >>> from examples.proofs.exact import make_language
    >>> from plaudit.methods.preference.algorithms import preference_algorithm
    >>> spoken = make_language(seed=0)
    >>> dpo = learning_problem(preference_algorithm("dpo"), pairs(spoken), spoken)
    >>> round(expected_loss(dpo, spoken.ref_logp_PYT, frozen_terms(dpo, spoken.ref_logp_PYT)).item(), 4)
    0.6931
    """
    if isinstance(row, PreferenceAlgorithm) and "sorted_batch" in row.needs and isinstance(feedback, Pairs):
        # Sorting sees rows and no weights: a pair twice as likely has to be there twice.
        feedback = repeated_pairs(feedback)
    return LearningProblem(row=row, feedback=feedback, language=language, baseline=baseline)


def expected_loss(
    problem: LearningProblem, logp_PYT: Float[Tensor, "P Y T"], frozen: FrozenTerms
) -> Float[Tensor, ""]:
    """Σ over pairs (or answers) of their share times the row's loss, as the trainer would put it together."""
    row, feedback = problem.row, problem.feedback
    if isinstance(row, UnpairedAlgorithm):
        assert isinstance(feedback, Thumbs), "a row for single answers needs marked answers"
        loss_B = row.loss(_thumb_logps(problem, feedback, logp_PYT), feedback.label_B, frozen.context)
        return (feedback.weight_B * _require_one_loss_each(loss_B, feedback)).sum()
    assert isinstance(feedback, Pairs), "a row for pairs needs pairs"
    chosen, rejected = _pair_logps(problem, row, feedback, logp_PYT)
    # The row's weight lies on the preference term; NLL below is not weighed, as in training.
    loss_B = frozen.weight_B * _require_one_loss_each(
        row.loss(*row.penalised_sides(chosen, rejected), frozen.context), feedback
    )
    if row.nll_coef:
        length_B = problem.language.length_Y[feedback.chosen_B]
        loss_B = loss_B - row.nll_coef * logp_PYT[feedback.prompt_B, feedback.chosen_B].sum(-1) / length_B
    return (feedback.weight_B * loss_B).sum()


def frozen_terms(problem: LearningProblem, logp_PYT: Float[Tensor, "P Y T"]) -> FrozenTerms:
    """The terms that a trainer keeps outside the gradient, computed from the present policy."""
    row, feedback, logp_PYT = problem.row, problem.feedback, logp_PYT.detach()
    weight_B = torch.ones_like(feedback.weight_B)
    if isinstance(row, UnpairedAlgorithm):
        assert isinstance(feedback, Thumbs), "a row for single answers needs marked answers"
        good_B = feedback.weight_B * feedback.label_B
        # A label is a chance here, so one answer stands on both sides in parts.
        bad_B = feedback.weight_B - good_B
        thumbs_logps = _thumb_logps(problem, feedback, logp_PYT)
        context = BatchContext(
            baseline=_baseline(problem, logp_PYT, (thumbs_logps, good_B), (thumbs_logps, bad_B))
        )
        return FrozenTerms(context=context, weight_B=weight_B)
    assert isinstance(feedback, Pairs), "a row for pairs needs pairs"
    chosen, rejected = _pair_logps(problem, row, feedback, logp_PYT)
    context = BatchContext(
        baseline=_baseline(problem, logp_PYT, (chosen, feedback.weight_B), (rejected, feedback.weight_B)),
        matched=match_sorted(chosen, rejected) if "sorted_batch" in row.needs else None,
    )
    if row.weight is not None:
        power_PYT = token_logps(logp_PYT.sum(-1), problem.language)[1]
        sides = ((feedback.prompt_B, answer_B) for answer_B in (feedback.chosen_B, feedback.rejected_B))
        weight_B = row.pair_weight(
            *(row.weight(logp_PYT[at], power_PYT[at], problem.language.mask_YT[at[1]]) for at in sides)
        )
    return FrozenTerms(context=context, weight_B=weight_B)


def minimise(
    problem: LearningProblem, policy: LearningPolicy, effort: OptimiserBudget | None = None
) -> Float[Tensor, "P Y"]:
    """Minimise the expected loss until it converges or the effort ends; log π of the trained policy."""
    effort = effort or OptimiserBudget()
    frozen = frozen_terms(problem, policy())
    for _ in range(effort.rounds):
        _lbfgs_descent(problem, policy, frozen, effort.steps)
        updated = frozen_terms(problem, policy())
        # Equal first: what is infinite equals itself, while its difference is nan.
        has_converged = torch.equal(updated.as_vector(), frozen.as_vector()) or (
            (updated.as_vector() - frozen.as_vector()).abs().max().item() < CONVERGED_CHANGE
        )
        frozen = updated
        if has_converged:
            break
    return policy().detach().sum(-1)


def minimise_table(
    problem: LearningProblem,
    start_PY: Float[Tensor, "P Y"] | None = None,
    effort: OptimiserBudget | None = None,
) -> Float[Tensor, "P Y"]:
    """log π of a table that starts as the reference, or as told, when the row has nothing more to change."""
    table = TablePolicy(problem.language, start_PY)
    logp_PY = minimise(problem, table, effort)
    sorts = isinstance(problem.row, PreferenceAlgorithm) and "sorted_batch" in problem.row.needs
    if not sorts and largest_gradient(problem, logp_PY) > KINK_SLOPE:
        # A line search stops at the first kink of a loss such as the hinge; small steps go on.
        _adam_descent(problem, table)
    return table().detach().sum(-1)


def largest_gradient(problem: LearningProblem, logp_PY: Float[Tensor, "P Y"]) -> float:
    """The largest entry of the expected loss's gradient by a table's logits, at this policy: 0 if it rests.

    >>> from examples.proofs.evidence import pairs
    >>> from examples.proofs.exact import optimum
    >>> from examples.proofs.exact import make_language
    >>> from plaudit.methods.preference.algorithms import preference_algorithm
    >>> spoken = make_language(seed=0)
    >>> problem = learning_problem(preference_algorithm("dpo"), pairs(spoken), spoken)
    >>> largest_gradient(problem, optimum(spoken, 0.1)) < 1e-12
    True
    """
    table = TablePolicy(problem.language, logp_PY)
    logp_PYT = table()
    (grad_PY,) = torch.autograd.grad(
        _require_gradient(expected_loss(problem, logp_PYT, frozen_terms(problem, logp_PYT))),
        table.parameters(),
    )
    return grad_PY.abs().max().item()


def _lbfgs_descent(problem: LearningProblem, policy: LearningPolicy, frozen: FrozenTerms, steps: int) -> None:
    lbfgs = torch.optim.LBFGS(
        policy.parameters(),
        max_iter=steps,
        max_eval=4 * steps,
        # Torch's defaults, 1e-7 and 1e-9, would stop before a table is as near as claims demand.
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        lbfgs.zero_grad()
        loss = _require_gradient(expected_loss(problem, policy(), frozen))
        loss.backward()
        return loss.item()

    lbfgs.step(closure)


def _require_one_loss_each(loss_B: Tensor, feedback: Pairs | Thumbs) -> Tensor:
    if loss_B.shape != feedback.weight_B.shape:
        shape, rows = tuple(loss_B.shape), len(feedback.weight_B)
        raise UserError(
            f"the row's loss returned shape {shape} for {rows} pairs or answers: return one number for each, "
            f"shape ({rows},), and leave sum and mean to the trainer"
        )
    return loss_B


def _require_gradient(loss: Tensor) -> Tensor:
    if not loss.requires_grad:
        raise UserError(
            "the row's loss has no gradient by the policy: use logp_B or shift_B, and do not detach both"
        )
    return loss


def _adam_descent(problem: LearningProblem, table: TablePolicy, *, steps: int = 1000) -> None:
    adam = torch.optim.Adam(table.parameters(), lr=0.1)
    # From 0.1 down to 1e-7: at a kink a fixed step goes to and fro by its own length.
    fall = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=10 ** (-6 / steps))
    frozen, row = frozen_terms(problem, table()), problem.row
    # Whether what is held outside the gradient changes with the policy.
    follows_the_policy = isinstance(row, PreferenceAlgorithm) and row.weight is not None
    follows_the_policy |= not {"running_mean", "mismatched", "sorted_batch"}.isdisjoint(row.needs)
    for _ in range(steps):
        adam.zero_grad()
        logp_PYT = table()
        if follows_the_policy:
            frozen = frozen_terms(problem, logp_PYT)
        expected_loss(problem, logp_PYT, frozen).backward()
        adam.step()
        fall.step()


def _logps_at(
    problem: LearningProblem, logp_PYT: Tensor, where: tuple[Tensor, Tensor], shorter_B: Int[Tensor, " B"]
) -> CompletionLogps:
    row, language = problem.row, problem.language
    mask_BT = language.mask_YT[where[1]]
    logp_B = row.log_prob(logp_PYT[where], mask_BT, shorter_B)
    # Without a reference Δ is log π itself: zeros let every row go through one path.
    ref_logp_B = torch.zeros_like(logp_B)
    if "reference" in row.needs:
        ref_logp_B = row.log_prob(language.ref_logp_PYT[where], mask_BT, shorter_B)
    return row.completion_logps(logp_B, ref_logp_B, language.length_Y[where[1]])


def _pair_logps(
    problem: LearningProblem, row: PreferenceAlgorithm, feedback: Pairs, logp_PYT: Tensor
) -> tuple[CompletionLogps, CompletionLogps]:
    length_Y = problem.language.length_Y
    # What an answer has beyond the shorter one is scaled down by LD-DPO, so both sides need its length.
    shorter_B = torch.minimum(length_Y[feedback.chosen_B], length_Y[feedback.rejected_B])
    chosen = _logps_at(problem, logp_PYT, (feedback.prompt_B, feedback.chosen_B), shorter_B)
    return chosen, _logps_at(problem, logp_PYT, (feedback.prompt_B, feedback.rejected_B), shorter_B)


def _thumb_logps(problem: LearningProblem, feedback: Thumbs, logp_PYT: Tensor) -> CompletionLogps:
    where = (feedback.prompt_B, feedback.answer_B)
    return _logps_at(problem, logp_PYT, where, problem.language.length_Y[feedback.answer_B])


def _baseline(
    problem: LearningProblem,
    logp_PYT: Tensor,
    good: tuple[CompletionLogps, Tensor],
    bad: tuple[CompletionLogps, Tensor],
) -> float:
    """The reference point of the row: none, halfway between the mean rewards, or the mean Δ elsewhere."""
    if problem.baseline is not None:
        return problem.baseline
    if "running_mean" in problem.row.needs:
        means = [(weight_B * logps.delta_B).sum() / weight_B.sum() for logps, weight_B in (good, bad)]
        return problem.row.beta * (means[0] + means[1]).item() / 2
    if "mismatched" in problem.row.needs:
        return _mean_mismatched_delta(problem, logp_PYT)
    return 0.0


def _mean_mismatched_delta(problem: LearningProblem, logp_PYT: Tensor) -> float:
    """Mean Δ of answers to the other prompts, at least 0."""
    prompts, answers = logp_PYT.shape[:2]
    feedback = problem.feedback
    answer_B = feedback.answer_B if isinstance(feedback, Thumbs) else feedback.chosen_B
    sampling_PY = logp_PYT.new_zeros(prompts, answers)
    sampling_PY.index_put_((feedback.prompt_B, answer_B), feedback.weight_B, accumulate=True)
    # For KTO an answer is scored under another prompt, and every other one is as likely.
    # With a single prompt there is none, and the point stays 0.
    other_prompts_PY = (sampling_PY.sum(0) - sampling_PY) / max(1, prompts - 1)
    prompt_B, all_B = (
        grid.flatten() for grid in torch.meshgrid(torch.arange(prompts), torch.arange(answers), indexing="ij")
    )
    logps = _logps_at(problem, logp_PYT, (prompt_B, all_B), problem.language.length_Y[all_B])
    return max(0.0, (other_prompts_PY.flatten() * logps.delta_B).sum().item())


_UNIT_COUNTS = LossCounts(tokens=1, completions=1, max_tokens=1)
"""Shares are a mean already; what else a reduction divides by is a constant, and the rate makes up for it."""


def expected_estimator(row: PolicyAlgorithm) -> Estimator:
    """The loss of the row's move, on answers of the old policy, with exact values for a critic."""

    def estimator(batch: ExactBatch) -> Tensor:
        facts = _advantage_inputs(row, batch)
        # Advantages are data, also where they were made of the policy's own log-probs.
        advantage_NT = row.advantage(facts).detach()
        if row.whitens_advantages:
            # Mean and variance over the tokens of a round without end: each as often as it is said.
            share_NT = batch.share_N[:, None] * batch.mask_NT
            mean = (share_NT * advantage_NT).sum() / share_NT.sum()
            variance = (share_NT * (advantage_NT - mean).square()).sum() / share_NT.sum()
            batch_moments = Moments(count=share_NT.sum(), mean=mean, variance=variance)
            advantage_NT = whiten(advantage_NT, batch.mask_NT, batch_moments=batch_moments)
        moment = _surrogate_inputs(row, batch, advantage_NT)
        loss_NT = row.surrogate(moment)
        if row.loss_kl is not None:
            loss_NT = loss_NT + row.kl_coef * row.loss_kl(moment.ref_log_ratio_NT)
        return row.reduction(batch.weighted(loss_NT), batch.mask_NT, _UNIT_COUNTS)

    return estimator


def _advantage_inputs(row: PolicyAlgorithm, batch: ExactBatch) -> AdvantageInputs:
    kl_NT = torch.zeros_like(batch.old_logp_NT)
    if row.reward_kl is not None:
        kl_NT = row.reward_kl(
            log_ratio(batch.old_logp_NT, batch.per_completion(batch.language.ref_logp_PYT), batch.mask_NT)
        )
    # The likeliest answer of π_old stands where ReMax takes a greedy rollout.
    best_P1 = _old_policy(batch).argmax(-1, keepdim=True)
    return AdvantageInputs(
        score_N=batch.reward_N,
        kl_NT=kl_NT,
        kl_coefficient=row.kl_coef,
        value_NT=_kl_penalised_values(batch, kl_NT, row.kl_coef)
        if "critic" in row.needs
        else torch.zeros_like(kl_NT),
        rival_N=batch.language.reward_PY.gather(-1, best_P1)[batch.prompt_N, 0],
        mean_score=float((batch.share_N * batch.reward_N).sum()),
        mask_NT=batch.mask_NT,
        group_N=batch.group_N,
        finished_N=torch.ones_like(batch.mask_NT[:, 0]),
        paid_NT=torch.zeros_like(kl_NT),
        end_NT=last_token_mask(batch.mask_NT),
    )


def _old_policy(batch: ExactBatch) -> Float[Tensor, "P Y"]:
    """log π_old of whole answers: each of them is in some group."""
    old_PY = torch.zeros_like(batch.language.reward_PY)
    old_PY[batch.prompt_N, batch.answer_N] = masked_sum_rows(batch.old_logp_NT, batch.mask_NT)
    return old_PY


def _kl_penalised_values(batch: ExactBatch, kl_NT: Tensor, beta: float) -> Tensor:
    """What is still to come before each token: V of the answer's whole worth, less the KL that is paid."""
    worth_PY = torch.zeros_like(batch.language.reward_PY)
    worth_PY[batch.prompt_N, batch.answer_N] = batch.reward_N - beta * masked_sum_rows(kl_NT, batch.mask_NT)
    # KL paid before a token is sunk: V counts it all, what is still to come does not.
    cost_NT = beta * (kl_NT.cumsum(-1) - kl_NT)
    return (
        batch.per_completion(prefix_values(_old_policy(batch), worth_PY, batch.language)) + cost_NT
    ).masked_fill(~batch.mask_NT, 0.0)


def _surrogate_inputs(row: PolicyAlgorithm, batch: ExactBatch, advantage_NT: Tensor) -> SurrogateInputs:
    log_ratio_NT = log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT)
    return SurrogateInputs(
        logp_NT=batch.logp_NT,
        log_ratio_NT=log_ratio_NT,
        ratio_NT=ratio(row.ratio(log_ratio_NT, batch.mask_NT)),
        advantage_NT=advantage_NT,
        # k3, ρ − 1 − ln ρ, of KL(π_old ‖ π); expm1 keeps its digits where ρ is near 1.
        old_kl_NT=log_ratio_NT.expm1() - log_ratio_NT,
        ref_log_ratio_NT=log_ratio(
            batch.logp_NT, batch.per_completion(batch.language.ref_logp_PYT), batch.mask_NT
        ),
        mask_NT=batch.mask_NT,
        kl_penalty=0.0,
    )
