"""Preference losses as their papers write them, of one pair or ranking after the other, in tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

DELTA = 0.3
"""The running mean that losses are told of here."""
SORTED = ("aot", "aot-unpaired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One answer from passes of its own: log-probs of its trained tokens, log Σ π², its partner's length."""

    logp_T: Tensor
    ref_T: Tensor
    power_T: Tensor
    shorter: int = 0

    @property
    def ratio_T(self) -> Tensor:
        return self.logp_T - self.ref_T


Judged = tuple[Side, Side, float, float]
"""A pair: both sides, the chance that the first is the better one, and the pair's weight."""


def tailed(side: Side) -> Tensor:
    return side.ratio_T[: side.shorter].sum() + 0.5 * side.ratio_T[side.shorter :].sum()


SHIFTS: dict[str, Callable[[Side], Tensor]] = {
    **dict.fromkeys(("ipo-mean", "dpo-norm", "simpo", "orpo"), lambda side: side.ratio_T.mean()),
    "r-dpo": lambda side: side.ratio_T.sum() + 0.1 * len(side.ratio_T),
    "ld-dpo": tailed,
    "f-dpo": lambda side: math.log(2) + side.ratio_T.sum() - (1 + side.ratio_T.sum().exp()).log(),
}
"""Δ of an answer where it is not the plain sum of log-ratios (log-probs, where there is no reference)."""


def shift(name: str, side: Side) -> Tensor:
    return SHIFTS.get(name, lambda one: one.ratio_T.sum())(side)


Pair = Callable[[Side, Side], Tensor]


def soft(value: Tensor) -> Tensor:
    return -logsigmoid(value)


def nll(side: Side) -> Tensor:
    return -side.logp_T.mean()


def own(side: Side) -> Tensor:
    """How likely the policy would say it itself."""
    return (side.logp_T.detach() - side.power_T).mean().exp()


def log_odds(logp: Tensor) -> Tensor:
    return (logp.exp() / (1 - logp.exp())).log()


def discopop(h: Tensor) -> Tensor:
    share = (0.1 * h / 0.05).sigmoid()
    return (1 - share) * soft(0.1 * h) + share * (-0.1 * h).exp()


def exo(h: Tensor) -> Tensor:
    win, lose = (0.1 * h).sigmoid(), (-0.1 * h).sigmoid()
    return win * (win / (1 - 1e-3)).log() + lose * (lose / 1e-3).log()


def classified(w: Tensor, l_: Tensor) -> Tensor:
    return soft(0.1 * w - DELTA) + soft(DELTA - 0.1 * l_)


def of_gap(formula: Callable[[Tensor], Tensor], name: str) -> Pair:
    return lambda w, l_: formula(shift(name, w) - shift(name, l_))


def of_sides(formula: Callable[[Tensor, Tensor], Tensor]) -> Pair:
    return lambda w, l_: formula(w.ratio_T.sum(), l_.ratio_T.sum())


GAPS: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("dpo", "r-dpo", "ld-dpo", "f-dpo", "tr-dpo", "sdpo"), lambda h: soft(0.1 * h)),
    "cdpo": lambda h: 0.9 * soft(0.1 * h) + 0.1 * soft(-0.1 * h),
    "robust-dpo": lambda h: (0.9 * soft(0.1 * h) - 0.1 * soft(-0.1 * h)) / 0.8,
    "ipo": lambda h: (h - 5) ** 2,
    "ipo-mean": lambda h: (h - 5) ** 2,
    "hinge": lambda h: (1 - 0.1 * h).clamp(min=0),
    "exo": exo,
    "discopop": discopop,
    "simpo": lambda h: soft(2 * h - 1),
    "dpo-norm": lambda h: soft(5 * h),
}
FORMULAS: dict[str, Pair] = {
    **{name: of_gap(formula, name) for name, formula in GAPS.items()},
    "slic": lambda w, l_: (1 - w.logp_T.sum() + l_.logp_T.sum()).clamp(min=0) + 0.1 * nll(w),
    "cpo": lambda w, l_: soft(0.1 * (w.logp_T.sum() - l_.logp_T.sum())) + nll(w),
    "orpo": lambda w, l_: nll(w) + 0.1 * soft(log_odds(w.logp_T.mean()) - log_odds(l_.logp_T.mean())),
    "nca": of_sides(lambda w, l_: soft(0.1 * w) + 0.5 * soft(-0.1 * w) + 0.5 * soft(-0.1 * l_)),
    "bco-pair": of_sides(classified),
    "sppo": of_sides(lambda w, l_: (w - 500) ** 2 + (l_ + 500) ** 2),
    "apo-zero": of_sides(lambda w, l_: 1 - (0.1 * w).sigmoid() + (0.1 * l_).sigmoid()),
    "apo-down": of_sides(lambda w, l_: (0.1 * w).sigmoid() + 1 - (0.1 * (w - l_)).sigmoid()),
    "dpop": of_sides(lambda w, l_: soft(0.3 * (w - l_ - 50 * (-w).clamp(min=0)))),
    "wpo": lambda w, l_: (
        min(own(w) * own(l_), torch.tensor(1.0)) * soft(0.1 * (w.ratio_T.sum() - l_.ratio_T.sum()))
    ),
    # Of words alone: DPO, and the anchor.
    "mdpo": of_sides(lambda w, l_: soft(0.1 * (w - l_)) + soft(0.1 * w)),
    "mpo": lambda w, l_: (
        0.8 * soft(0.1 * (w.ratio_T.sum() - l_.ratio_T.sum()))
        + 0.2 * classified(w.ratio_T.sum(), l_.ratio_T.sum())
        + nll(w)
    ),
}
SINGLE: dict[str, Callable[[Tensor, float], Tensor]] = {
    "kto": lambda gain, label: label * (-gain).sigmoid() + (1 - label) * gain.sigmoid(),
    "bco": lambda gain, label: label * soft(gain) + (1 - label) * soft(-gain),
}
SINGLE["apo-zero-unpaired"] = SINGLE["kto"]


def pair_sum(name: str, pairs: list[Judged]) -> Tensor:
    loss = FORMULAS[name]
    return sum(
        (weight * (chance * loss(w, l_) + (1 - chance) * loss(l_, w)) for w, l_, chance, weight in pairs),
        torch.zeros((), dtype=torch.float64),
    )


def sorted_sum(name: str, pairs: list[Judged]) -> Tensor:
    """Both sides in order, smallest with smallest; of certain comparisons only."""
    turned = [(w, l_) if chance == 1 else (l_, w) for w, l_, chance, _ in pairs]
    if name == "aot":
        upper = torch.stack([w.logp_T.sum() - l_.logp_T.sum() for w, l_ in turned])
        lower = torch.stack([w.ref_T.sum() - l_.ref_T.sum() for w, l_ in turned])
    else:
        upper, lower = (torch.stack([pair[side].ratio_T.sum() for pair in turned]) for side in (0, 1))
    return soft(0.1 * (upper.sort().values - lower.sort().values)).sum()


def drawn_in_order(sides: list[Side], ranks: tuple[float, ...]) -> Tensor:
    """−log of drawing the best first; of d equals the l-th counts each of them as 1 − l/d (Efron 1977)."""
    deltas = [side.ratio_T.sum() for side in sides]
    total = torch.zeros((), dtype=torch.float64)
    for rank in sorted(set(ranks)):
        equals = [0.1 * delta for delta, own in zip(deltas, ranks, strict=True) if own == rank]
        later = [0.1 * delta for delta, own in zip(deltas, ranks, strict=True) if own > rank]
        for place, drawn in enumerate(equals):
            share = 1 - place / len(equals)
            left = sum((one.exp() for one in later), torch.zeros(())) + share * sum(
                one.exp() for one in equals
            )
            total = total + left.log() - drawn
    return total


def rrhf(sides: list[Side], ranks: tuple[float, ...]) -> Tensor:
    """Hinges of all pairs that are told apart, and −mean log π of the best (of equals: their mean)."""
    best = [nll(side) for side, rank in zip(sides, ranks, strict=True) if rank == min(ranks)]
    hinges = [
        (worse.logp_T.mean() - better.logp_T.mean()).clamp(min=0)
        for better, own in zip(sides, ranks, strict=True)
        for worse, other in zip(sides, ranks, strict=True)
        if own < other
    ]
    return sum(hinges, torch.zeros(())) + sum(best, torch.zeros(())) / len(best)


RANKED = {"pl-dpo": drawn_in_order, "rrhf": rrhf}
