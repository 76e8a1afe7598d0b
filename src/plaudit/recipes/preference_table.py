"""Every algorithm of preference optimisation by name: what it minimises, what it reads, where it is from.

Facts only, without torch; ``plaudit train --list`` and the documentation are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = int | float | str | tuple[str, ...]
"""What a setting of a row can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceFacts:
    """One algorithm.

    Example: ``PREFERENCES["dpo"].formula``
    """

    name: str
    """What the command calls it."""
    formula: str
    """What is minimised for a pair, or for an answer."""
    paper: str
    """Where it is from."""
    loss: str
    """The loss cell: a function of ``plaudit.losses``, or mix."""
    data: Literal["pairs", "thumbs"] = "pairs"
    """Pairs are comparisons and rankings; thumbs are answers called good or bad."""
    reference: bool = True
    """Whether it has a reference policy."""
    defaults: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """The settings that are its own, with their values."""

    @property
    def cells(self) -> str:
        """Log-prob, reference and what else sets the row apart, in a few words."""
        own = self.defaults
        log_prob = "mean" if own.get("measure") == "mean" else "sum"
        words = [log_prob, "reference" if self.reference else "no reference"]
        words += [f"{name} {own[name]}" for name in ("link", "weigh") if name in own]
        words += [f"+ {own['nll']:g} NLL"] if own.get("nll") else []
        return ", ".join(words)


def _facts(*rows: PreferenceFacts) -> dict[str, PreferenceFacts]:
    return {row.name: row for row in rows}


PREFERENCES: Mapping[str, PreferenceFacts] = _facts(
    PreferenceFacts(
        name="dpo",
        formula="−log σ(βh)",
        paper="Rafailov et al. 2023, arXiv:2305.18290",
        loss="dpo",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="cdpo",
        formula="−(1−ε) log σ(βh) − ε log σ(−βh)",
        paper="Mitchell 2023",
        loss="cdpo",
        defaults={"beta": 0.1, "smoothing": 0.1},
    ),
    PreferenceFacts(
        name="robust-dpo",
        formula="(−(1−ε) log σ(βh) + ε log σ(−βh)) / (1−2ε)",
        paper="Chowdhury et al. 2024, arXiv:2403.00409",
        loss="robust",
        defaults={"beta": 0.1, "smoothing": 0.1},
    ),
    PreferenceFacts(
        name="ipo",
        formula="(h − 1/2β)², h of summed log-probs",
        paper="Azar et al. 2023, arXiv:2310.12036",
        loss="ipo",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="ipo-mean",
        formula="(h − 1/2β)², h of mean log-probs",
        paper="Azar et al. 2023, arXiv:2310.12036 (common variant)",
        loss="ipo",
        defaults={"beta": 0.1, "measure": "mean"},
    ),
    PreferenceFacts(
        name="hinge",
        formula="max(0, 1 − βh)",
        paper="Zhao et al. 2023, arXiv:2305.10425; Liu et al. 2023 (RSO), arXiv:2309.06657",
        loss="hinge",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="slic",
        formula="max(0, 1 − βh) − λ mean log π(y_w)",
        paper="Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425",
        loss="hinge",
        defaults={"beta": 1.0, "nll": 0.1},
        reference=False,
    ),
    PreferenceFacts(
        name="exo",
        formula="σ(βh)(log σ(βh) − log(1−ε)) + σ(−βh)(log σ(−βh) − log ε)",
        paper="Ji et al. 2024, arXiv:2402.00856",
        loss="exo",
        defaults={"beta": 0.1, "smoothing": 1e-3},
    ),
    PreferenceFacts(
        name="nca",
        formula="−log σ(βΔ_w) − ½ log σ(−βΔ_w) − ½ log σ(−βΔ_l)",
        paper="Chen et al. 2024, arXiv:2402.05369",
        loss="nca",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="bco-pair",
        formula="−log σ(βΔ_w − δ) − log σ(δ − βΔ_l), δ the running mean reward",
        paper="Jung et al. 2024, arXiv:2404.04656",
        loss="bco_pair",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="sppo",
        formula="(Δ_w − 1/2β)² + (Δ_l + 1/2β)²",
        paper="Wu et al. 2024, arXiv:2405.00675",
        loss="sppo",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="aot",
        formula="−log σ(βh) between the sorted gaps of policy and reference",
        paper="Melnyk et al. 2024, arXiv:2406.05882",
        loss="aot",
        defaults={"beta": 0.1, "smoothing": 0.0},
    ),
    PreferenceFacts(
        name="aot-unpaired",
        formula="−log σ(βh) between the sorted Δ of both sides",
        paper="Melnyk et al. 2024, arXiv:2406.05882",
        loss="aot_unpaired",
        defaults={"beta": 0.1, "smoothing": 0.0},
    ),
    PreferenceFacts(
        name="apo-zero",
        formula="(1 − σ(βΔ_w)) + σ(βΔ_l)",
        paper="D'Oosterlinck et al. 2024, arXiv:2408.06266",
        loss="apo_zero",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="apo-down",
        formula="σ(βΔ_w) + (1 − σ(βh))",
        paper="D'Oosterlinck et al. 2024, arXiv:2408.06266",
        loss="apo_down",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="discopop",
        formula="(1−s)(−log σ(βh)) + s exp(−βh), s = σ(βh/τ)",
        paper="Lu et al. 2024, arXiv:2406.08414",
        loss="discopop",
        defaults={"beta": 0.1, "tau": 0.05},
    ),
    PreferenceFacts(
        name="simpo",
        formula="−log σ(βh − γ), h of mean log-probs",
        paper="Meng et al. 2024, arXiv:2405.14734",
        loss="simpo",
        defaults={"beta": 2.0, "margin": 1.0, "measure": "mean"},
        reference=False,
    ),
    PreferenceFacts(
        name="cpo",
        formula="−log σ(β(log π_w − log π_l)) − λ mean log π(y_w)",
        paper="Xu et al. 2024, arXiv:2401.08417",
        loss="dpo",
        defaults={"beta": 0.1, "nll": 1.0},
        reference=False,
    ),
    PreferenceFacts(
        name="orpo",
        formula="−mean log π(y_w) − λ log σ(log odds_w − log odds_l)",
        paper="Hong et al. 2024, arXiv:2403.07691",
        loss="odds_ratio",
        defaults={"odds": 0.1, "nll": 1.0, "measure": "mean"},
        reference=False,
    ),
    PreferenceFacts(
        name="r-dpo",
        formula="−log σ(βh + β·price·(|y_w| − |y_l|))",
        paper="Park et al. 2024, arXiv:2403.19159",
        loss="dpo",
        defaults={"beta": 0.1, "price": 0.1},
    ),
    PreferenceFacts(
        name="dpo-norm",
        formula="−log σ(βh), h of mean log-probs",
        paper="Meng et al. 2024, arXiv:2405.14734; Lambert et al. 2024 (Tülu 3), arXiv:2411.15124",
        loss="dpo",
        defaults={"beta": 5.0, "measure": "mean"},
    ),
    PreferenceFacts(
        name="ld-dpo",
        formula="−log σ(βh), tokens beyond the shorter answer counted by a share",
        paper="Liu et al. 2024, arXiv:2409.06411",
        loss="dpo",
        defaults={"beta": 0.1, "tail": 0.5},
    ),
    PreferenceFacts(
        name="dpop",
        formula="−log σ(β(h − hold·max(0, −Δ_w)))",
        paper="Pal et al. 2024 (Smaug), arXiv:2402.13228",
        loss="dpo",
        defaults={"beta": 0.3, "hold": 50.0},
    ),
    PreferenceFacts(
        name="wpo",
        formula="−w log σ(βh), w how likely the policy would say both",
        paper="Zhou et al. 2024, arXiv:2406.11827",
        loss="dpo",
        defaults={"beta": 0.1, "weigh": "on-policy"},
    ),
    PreferenceFacts(
        name="f-dpo",
        formula="−log σ(βh), Δ through the link of another divergence",
        paper="Wang et al. 2023, arXiv:2309.16240",
        loss="dpo",
        defaults={"beta": 0.1, "link": "js"},
    ),
    PreferenceFacts(
        name="tr-dpo",
        formula="−log σ(βh), the reference following the policy",
        paper="Gorbatovski et al. 2024, arXiv:2404.09656",
        loss="dpo",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="sdpo",
        formula="−log σ(βh), data in parts, each result the next reference",
        paper="Kim et al. 2024, arXiv:2403.19270",
        loss="dpo",
        defaults={"beta": 0.1},
    ),
    PreferenceFacts(
        name="mpo",
        formula="Σ weight · loss, − λ mean log π(y_w)",
        paper="Wang et al. 2024, arXiv:2411.10442",
        loss="mix",
        defaults={"beta": 0.1, "mix": ("dpo=0.8", "bco-pair=0.2"), "nll": 1.0},
    ),
    PreferenceFacts(
        name="kto",
        formula="λ_D (1 − σ(β(Δ − z₀))) of good, λ_U (1 − σ(β(z₀ − Δ))) of bad answers",
        paper="Ethayarajh et al. 2024, arXiv:2402.01306",
        loss="kto",
        data="thumbs",
        defaults={"beta": 0.1, "desirable": 1.0, "undesirable": 1.0},
    ),
    PreferenceFacts(
        name="apo-zero-unpaired",
        formula="λ_D (1 − σ(βΔ)) of good, λ_U σ(βΔ) of bad answers",
        paper="D'Oosterlinck et al. 2024, arXiv:2408.06266",
        loss="kto",
        data="thumbs",
        defaults={"beta": 0.1, "desirable": 1.0, "undesirable": 1.0},
    ),
    PreferenceFacts(
        name="bco",
        formula="−log σ(βΔ − δ) of good, −log σ(δ − βΔ) of bad answers",
        paper="Jung et al. 2024, arXiv:2404.04656",
        loss="bco",
        data="thumbs",
        defaults={"beta": 0.1, "desirable": 1.0, "undesirable": 1.0},
    ),
)
"""The table. h = Δ_w − Δ_l, Δ = log π(y|x) − log π_ref(y|x); without a reference Δ = log π(y|x)."""
