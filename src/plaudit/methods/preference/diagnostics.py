"""Diagnostics of preference optimisation: the check before the first step, and known failures while it runs.

Where the reference is the very model that learns, every log-ratio is 0 at the start: DPO's loss is ln 2,
the distance 0. If not, one of three things is wrong, and which one can be found out.

A failure is reported as a sentence when it occurs. Each sentence has a beginning by which it is known again,
so that a run says it once, and names the page that explains it. Figures of held-out rows are preferred: they
are of the same rows each time.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from plaudit.engine.step_report import StepReport, finite_series
from plaudit.errors import UserError
from plaudit.methods.preference.objective import (
    PreferenceBatcher,
    PreferenceObjective,
    ScoredBatch,
    ScoringModels,
    score_rows,
)
from plaudit.methods.preference.row import (
    AnyPreferenceAlgorithm,
    BatchContext,
    PreferenceAlgorithm,
    UnpairedAlgorithm,
)
from plaudit.models.policy import log_ratio_tolerance
from plaudit.tensors.masked import masked_sum_rows
from plaudit.tokens.preferences import JudgedRow

CHECKED_ROWS = 8
"""How many rows are looked at: the shortest."""


def check_initial_loss(
    batches: PreferenceBatcher,
    objective: PreferenceObjective,
    rows: Sequence[JudgedRow],
    *,
    is_same_model: bool,
) -> str:
    """Score the shortest rows; returns what there is to say of it. Every rank calls it.

    ``is_same_model``: policy and reference are one model.
    """
    shortest_rows = sorted(rows, key=lambda row: row.tokens)[:CHECKED_ROWS]
    with torch.no_grad():
        scored = score_rows(batches.models, shortest_rows)
        microbatches = batches.microbatches(shortest_rows)
        result = [objective(microbatch) for microbatch in microbatches]
    losses = batches.ranks.all_gather([math.fsum(float(metrics.loss) for metrics in result)])
    loss = math.fsum(item for (item,) in losses)
    max_log_ratio = float(_log_ratios(scored).max())
    if not math.isfinite(loss):
        raise UserError(
            f"before the first step the loss of {shortest_rows[0].origin} and {len(shortest_rows) - 1} "
            f"other rows is {loss}: the model's log-probs are not numbers. Look at its weights, or use "
            "--dtype float32"
        )
    if "reference" not in batches.row.needs:
        return f"before the first step the loss is {loss:.4f}"
    if not is_same_model:
        return (
            f"the reference is another model: before the first step the loss is {loss:.4f}, and the two "
            f"differ by up to {max_log_ratio:.2g} nats a token"
        )
    if max_log_ratio > log_ratio_tolerance(batches.models.policy):
        raise UserError(_diagnosis(batches.models, shortest_rows, scored, max_log_ratio))
    expected = _expected_loss(batches.row, scored, fmean(row.changed is not None for row in shortest_rows))
    if expected is not None and not expected[0] <= loss <= expected[-1]:
        raise UserError(
            f"before the first step the loss is {loss:.4f} and should be {expected[1]:.4f}, though "
            "policy and reference agree: the loss itself is not what its row says"
        )
    return (
        f"before the first step policy and reference agree (to {max_log_ratio:.1g} nats a token) and the "
        f"loss is {loss:.4f}"
    )


def _log_ratios(scored: ScoredBatch) -> Tensor:
    return (scored.logp_NT - scored.ref_logp_NT).masked_fill(~scored.batch.mask_NT, 0.0).abs()


def _expected_loss(
    row: AnyPreferenceAlgorithm, scored: ScoredBatch, changed: float
) -> tuple[float, float, float] | None:
    """The loss where every log-ratio is 0, between the least and the most that it is for rounding, in rows of
    which a share also come with changed pictures.
    None where the loss depends on more than two Δ: on lengths, labels, likelihood or whole rankings."""
    if (
        isinstance(row, UnpairedAlgorithm)
        or row.ranking_loss is not None
        or row.nll_coef
        or row.length_alpha
        or row.weight is not None
        or "sorted_batch" in row.needs
    ):
        return None
    largest = float(masked_sum_rows(scored.logp_NT - scored.ref_logp_NT, scored.batch.mask_NT).abs().max())
    # Both log-ratios are 0 up to `largest`; on so small a box a loss is all but linear, so that it is
    # lowest and highest at corners.
    corners = [(0.0, 0.0), (largest, largest), (largest, -largest), (-largest, largest), (-largest, -largest)]
    chosen_B, rejected_B = torch.tensor(corners).unbind(-1)
    # Lengths of 0 will do: algorithms that read them have been left out above.
    zero_B = torch.zeros_like(chosen_B)
    sides = row.penalised_sides(
        row.completion_logps(chosen_B, zero_B, zero_B), row.completion_logps(rejected_B, zero_B, zero_B)
    )
    zeros = row.completion_logps(zero_B, zero_B, zero_B)
    shares = ((changed, BatchContext(changed=zeros)), (1 - changed, BatchContext()))
    by_share = [share * row.loss(*sides, context) for share, context in shares if share]
    losses = torch.stack(by_share).sum(0).tolist()
    rounding = 1e-5 * max(1.0, *map(abs, losses))
    return min(losses) - rounding, losses[0], max(losses) + rounding


def _diagnosis(
    models: ScoringModels, rows: Sequence[JudgedRow], scored: ScoredBatch, max_log_ratio: float
) -> str:
    """An error message that names the cause: the model, the masks or the reference, each tested alone."""
    worst_row = rows[int(scored.batch.group_N[int(_log_ratios(scored).amax(-1).argmax())])]
    opening = (
        f"before the first step policy and reference should be one model, but log-probs differ by up to "
        f"{max_log_ratio:.2g} ({worst_row.origin}): "
    )
    # The model first: while it disagrees with itself nothing can be said of masks or caches.
    with torch.no_grad():
        rescored = score_rows(models, rows)
    if float((rescored.logp_NT - scored.logp_NT).abs().max()) > log_ratio_tolerance(models.policy):
        return opening + (
            "the model itself gives other numbers for the same rows each time (dropout, or something else "
            "that is drawn). Set its dropout to 0 in config.json"
        )
    # A log-prob of exactly 0 is a probability of 1, which no trained token has.
    if bool(((scored.ref_logp_NT != 0) != scored.batch.mask_NT).any()):
        return opening + (
            "the reference has log-probs for other tokens than those that are trained, so its masks are of "
            "other rows. Delete the kept log-probs, or name another folder with --reference.cache"
        )
    return opening + (
        "the reference is not the model that the run starts from. Delete the kept log-probs, or name "
        "another folder with --reference.cache; with --reference.model, name the folder of --model"
    )


DOCS_PAGE = "docs/preference.md"
WINDOW = 5
"""The most evaluations in a window at the start or the end."""
MIN_LOSS_RISE = 0.03
"""The relative rise of the held-out loss above its best that is reported."""
MIN_LOGP_FALL = 0.5
"""The fall of the chosen log-prob, in nats, that is reported."""


def diagnostics(
    row: AnyPreferenceAlgorithm, reports: Sequence[StepReport], *, learning_rate: float
) -> Mapping[str, str]:
    """The diagnostics that the reports so far call for: from how each sentence begins to how it goes on."""
    return {
        **_chosen_logp_falling(row, reports),
        **_overfitting(reports),
        **_held_out_loss_rising(reports),
        **_far_from_reference(reports),
        **_nothing_learnt(reports, learning_rate),
    }


def _chosen_logp_falling(row: AnyPreferenceAlgorithm, reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _first_and_last_means(_comparable_series("logp_chosen", reports))
    if not before - after > max(MIN_LOGP_FALL, 0.02 * abs(before)):
        return {}
    is_paired = isinstance(row, PreferenceAlgorithm)
    reason = (
        "the loss asks for a distance between the two answers, which share most of their words, and is "
        "content when both fall"
        if is_paired
        else "bad answers are pushed down, and good ones share words with them"
    )
    advice = "add --nll-coef 0.1, or try dpop or nca" if is_paired else "raise --desirable-weight"
    return {
        "the preferred answers are becoming less likely": f" (log π {before:.1f} → {after:.1f}). This is "
        f"expected: {reason}. It does harm when what the model says itself gets worse; look at the "
        f"samples. To counter it, {advice}, lower the learning rate or raise β. {DOCS_PAGE}#falling"
    }


def _overfitting(reports: Sequence[StepReport]) -> Mapping[str, str]:
    held_out = finite_series("held_out/accuracy", reports)
    if not held_out:
        return {}
    # NaN where nothing was reported: it is not above 0.95, so nothing is said.
    trained = fmean(finite_series("accuracy", reports)[-10:] or [math.nan])
    if not trained > 0.95 or not trained - held_out[-1] > 0.15:
        return {}
    return {
        "the rows are being learnt by heart": f": accuracy is {trained:.0%} on what is trained and "
        f"{held_out[-1]:.0%} on what is held out. More passes will not help; take fewer epochs, a lower "
        f"rate or more rows. {DOCS_PAGE}#by-heart"
    }


def _held_out_loss_rising(reports: Sequence[StepReport]) -> Mapping[str, str]:
    held_out = finite_series("held_out/loss", reports)
    # Both of the last two looks: a single one may be chance.
    if len(held_out) < 3 or not min(held_out[-2:]) > min(held_out) + max(
        MIN_LOSS_RISE, MIN_LOSS_RISE * abs(min(held_out))
    ):
        return {}
    return {
        "the held-out loss is rising": f": {held_out[-1]:.3f}, its best was {min(held_out):.3f}. The policy "
        "becomes surer than the labels warrant; with --keep.use-best the run ends with the best checkpoint. "
        f"{DOCS_PAGE}#rising"
    }


def _far_from_reference(reports: Sequence[StepReport]) -> Mapping[str, str]:
    kls = finite_series("held_out/kl", reports) or finite_series("kl", reports)
    length = finite_series("length_mean", reports)
    # More nats than tokens: that is far from the reference at whatever length.
    if not kls or not length or not kls[-1] > length[-1]:
        return {}
    return {
        "the policy has gone far from its reference": f": about {kls[-1]:.0f} nats on answers of "
        f"{length[-1]:.0f} tokens. What it says of answers it would no longer give is a guess; raise β, "
        f"lower the rate, or stop earlier. {DOCS_PAGE}#far"
    }


def _nothing_learnt(reports: Sequence[StepReport], learning_rate: float) -> Mapping[str, str]:
    run_share = reports[-1].step / reports[-1].steps if reports else 0.0
    margins = finite_series("held_out/margin", reports) or finite_series("margin", reports)[-10:]
    if run_share < 0.5 or not margins or not abs(margins[-1]) < 0.005:
        return {}
    return {
        "hardly anything has been learnt": f": half of the run is over and the margin is {margins[-1]:.4f}. "
        f"The learning rate of {learning_rate:g} is too low, or the labels say nothing about the answers. "
        f"{DOCS_PAGE}#still"
    }


def _comparable_series(name: str, reports: Sequence[StepReport]) -> list[float]:
    """Of the same rows at each look; of other rows at each step only where none is held out, and of many."""
    held_out, trained = finite_series(f"held_out/{name}", reports), finite_series(name, reports)
    return held_out if held_out else trained if len(trained) >= 4 * WINDOW else []


def _first_and_last_means(series: Sequence[float]) -> tuple[float, float]:
    """The mean of the first and of the last few; the same number twice where there is only one."""
    if not series:
        return math.nan, math.nan
    count = max(1, min(WINDOW, len(series) // 4))
    return fmean(series[:count]), fmean(series[-count:])
