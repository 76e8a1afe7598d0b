"""Cells that any preference algorithm can be given, whatever its own settings are; without torch until used.

The two functions below are read like an algorithm: what they take are options (``--nll-coef 0.1``), and
their docstrings are the help. A cell that an algorithm's signature names itself is the algorithm's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from plaudit.bounds import Bound, Finite, FromZero, Share
from plaudit.errors import UserError
from plaudit.methods.algorithm import LazyModule, Parameter, check_settings, describe

if TYPE_CHECKING:
    from plaudit.losses import preference as losses
    from plaudit.losses.preference import LogpReduction, LogRatioLink
    from plaudit.methods.preference.row import AnyPreferenceAlgorithm

    RecordT = TypeVar("RecordT", bound=AnyPreferenceAlgorithm)
else:
    losses = LazyModule("plaudit.losses.preference")

LinkAlpha = Annotated[
    float, Bound("a number other than 0 (0 is link kl)", lambda value: value != 0 and abs(value) < 1e300)
]
LinkName = Literal["kl", "forward-kl", "js", "alpha"]
OF_A_REFERENCE = frozenset({"link", "link_alpha", "dpop_lambda"})
OF_PAIRS = frozenset({"ld_alpha", "dpop_lambda", "weighting", "weight_cap", "nll_coef"})


def with_likelihood_cells(
    record: RecordT,
    /,
    log_prob: Literal["auto", "sum", "mean"] = "auto",
    ld_alpha: Share | None = None,
    weighting: Literal["auto", "no", "on-policy"] = "auto",
    weight_cap: FromZero | None = None,
    nll_coef: FromZero | None = None,
) -> RecordT:
    """The algorithm with other cells that read likelihoods.

    log_prob: an answer's log-prob: the sum over its tokens, or their mean.
    ld_alpha: how much tokens beyond the shorter answer's length count (ld-dpo's α).
    weighting: whether pairs count by how likely the policy would say both answers (wpo).
    weight_cap: the largest weight of a pair where pairs have weights; 0: no limit.
    nll_coef: how much −log π per token of the preferred answers counts beside the loss.
    """
    changes: dict[str, Any] = {"log_prob": _log_prob_cell(record, log_prob, ld_alpha)}
    if weighting != "auto":
        changes["weight"] = losses.wpo_weight if weighting == "on-policy" else None
    if weight_cap is not None and not changes.get("weight", getattr(record, "weight", None)):
        raise UserError(
            f"weight_cap limits weights, and pairs of {record.name} have none: --weighting on-policy"
        )
    numbers = {"weight_cap": weight_cap, "nll_coef": nll_coef}
    changes |= {name: number for name, number in numbers.items() if number is not None}
    return replace(record, **changes)


def with_delta_cells(
    record: RecordT,
    /,
    link: Literal["auto", "kl", "forward-kl", "js", "alpha"] = "auto",
    link_alpha: LinkAlpha | None = None,
    length_alpha: Finite | None = None,
    dpop_lambda: FromZero | None = None,
) -> RecordT:
    """The algorithm with other cells between log-ratios and Δ.

    link: the divergence from the reference that the loss stands for.
    link_alpha: which one of the alpha divergences; 0.5 where none is given (link alpha).
    length_alpha: what a token is charged, in units of Δ (r-dpo's α / β).
    dpop_lambda: how much a nat is charged by which a preferred answer has fallen (dpop's λ).
    """
    changes: dict[str, Any] = {"length_alpha": length_alpha, "dpop_lambda": dpop_lambda}
    changes = {name: value for name, value in changes.items() if value is not None}
    if link != "auto" or link_alpha is not None:
        changes["link"] = link_of("kl" if link == "auto" else link, link_alpha)
    return replace(record, **changes)


CELLS: Mapping[str, Parameter] = {
    **describe(with_likelihood_cells).parameters,
    **describe(with_delta_cells).parameters,
}


def with_cells(record: AnyPreferenceAlgorithm, cells: Mapping[str, Any]) -> AnyPreferenceAlgorithm:
    """The algorithm with these cells in place of its own; all of them are cells that it reads."""
    check_settings(CELLS, cells)
    likelihood = describe(with_likelihood_cells).parameters
    changed: Any = record
    changed = with_likelihood_cells(changed, **{name: cells[name] for name in cells if name in likelihood})
    return with_delta_cells(changed, **{name: cells[name] for name in cells if name not in likelihood})


def readable_cells(record: AnyPreferenceAlgorithm) -> frozenset[str]:
    unread = record.unread | (frozenset() if "reference" in record.needs else OF_A_REFERENCE)
    # Only algorithms of pairs have a weight.
    return frozenset(CELLS) - unread - (frozenset() if hasattr(record, "weight") else OF_PAIRS)


def link_of(name: LinkName, alpha: float | None) -> LogRatioLink:
    if alpha is not None and name != "alpha":
        raise UserError("link_alpha is of one link: add --link alpha")
    if name == "alpha":
        return partial(losses.alpha_divergence_link, alpha=0.5 if alpha is None else alpha)
    named = {
        "kl": losses.reverse_kl_link,
        "forward-kl": losses.forward_kl_link,
        "js": losses.jensen_shannon_link,
    }
    return named[name]


def describe_cells(record: AnyPreferenceAlgorithm) -> str:
    """Log-prob, reference and what else sets the algorithm apart, in a few words."""
    words = [
        "mean" if record.log_prob is losses.mean_logps else "sum",
        "reference" if "reference" in record.needs else "no reference",
    ]
    words += ["weight on-policy"] if "repeat" in record.needs else []
    nll_coef = getattr(record, "nll_coef", 0.0)
    return ", ".join([*words, f"+ {nll_coef:g} NLL"] if nll_coef else words)


def _log_prob_cell(record: AnyPreferenceAlgorithm, name: str, ld_alpha: float | None) -> LogpReduction:
    """Sum, mean or the sum in which later tokens count less; a share of a mean is refused."""
    default = record.log_prob
    shares = isinstance(default, partial) or ld_alpha is not None
    if shares and (name == "mean" or (name == "auto" and default is losses.mean_logps)):
        raise UserError(f"ld_alpha is a share of a sum, and {record.name} is told to read means")
    if ld_alpha is not None:
        return partial(losses.length_desensitised_logps, share=ld_alpha)
    if name == "auto" or shares:
        return default
    return losses.mean_logps if name == "mean" else losses.sum_logps
