"""What the table records of a policy-optimisation algorithm, and the names of its cells; without torch.

Every algorithm of policy optimisation by name: its cells, its own settings, where it is from.

Facts only, without torch; ``plaudit train --list`` and the documentation are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

SettingValue = int | float | str | bool
"""What a setting of a row can be."""
AdvantageName = Literal[
    "gae",
    "monte-carlo",
    "one-step",
    "bandit",
    "group-z",
    "group-mean",
    "leave-one-out",
    "greedy",
    "preference",
    "running",
    "whitened",
]
"""The advantage estimators, by name."""
SurrogateName = Literal[
    "log-prob",
    "unclipped",
    "clip",
    "dual-clip",
    "rollback",
    "kl-trigger",
    "kl-penalty",
    "cispo",
    "p3o",
    "p3o-joint",
    "dpo",
    "ipo",
]
"""The surrogate losses, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """One algorithm.

    Example: ``POLICIES["grpo"].formula``
    """

    name: str
    """What the command calls it."""
    formula: str
    """What sets it apart, in a line."""
    paper: str
    """Where it is from, and whose defaults these are."""
    advantage: AdvantageName
    """What a token is measured against."""
    surrogate: SurrogateName
    """What a token loses."""
    divergence: Literal["reward", "loss", "none"]
    """Where the distance from the reference counts."""
    reduction: Literal["tokens", "answers", "fixed"]
    """How tokens become one number."""
    defaults: Mapping[str, SettingValue] = field(default_factory=dict[str, SettingValue])
    """The settings that are its own, with their values."""

    @property
    def cells(self) -> str:
        """The row, in a few words."""
        kl = {"reward": "KL in reward", "loss": "KL in loss", "none": "no KL"}[self.divergence]
        kl = "log-ratios to the reference" if self.surrogate in CONTRASTIVE_SURROGATES else kl
        ratio = self.defaults.get("ratio", "token")
        suffix = "" if ratio == "token" else f" of the {ratio}"
        critic = ", critic" if self.advantage in ADVANTAGES_WITH_CRITIC else ""
        return f"{self.advantage} · {self.surrogate}{suffix} · {kl} · mean over {self.reduction}{critic}"


ADVANTAGES_WITH_CRITIC = frozenset({"gae", "monte-carlo", "one-step", "bandit"})
"""Advantage estimators that need a critic."""
PER_TOKEN_ADVANTAGES = frozenset({"gae", "monte-carlo", "one-step", "whitened"})
"""Advantage estimators that read rewards token by token."""
CONTRASTIVE_SURROGATES = frozenset({"dpo", "ipo"})
"""Surrogates that compare policy and reference themselves."""
PAIR_SURROGATES = frozenset({"p3o", "p3o-joint", *CONTRASTIVE_SURROGATES})
"""Surrogates that need two completions of each prompt."""
GROUP_ADVANTAGES = frozenset({"group-z", "group-mean", "leave-one-out"})
"""Advantage estimators that compare the completions of one prompt."""

_GAE_DEFAULTS: Mapping[str, SettingValue] = {"beta": 0.05, "gamma": 1.0, "lam": 0.95, "answers": 1}


def _ppo(
    name: str, formula: str, paper: str, surrogate: SurrogateName, **defaults: SettingValue
) -> PolicyFacts:
    """PPO with another surrogate."""
    return PolicyFacts(
        name=name,
        formula=formula,
        paper=paper,
        advantage="gae",
        surrogate=surrogate,
        divergence="reward",
        reduction="tokens",
        defaults={**_GAE_DEFAULTS, "epochs": 4, **defaults},
    )


def _grpo(
    name: str,
    formula: str,
    paper: str,
    reduction: Literal["tokens", "answers", "fixed"],
    **defaults: SettingValue,
) -> PolicyFacts:
    """GRPO without a KL, with another reduction or clip."""
    return PolicyFacts(
        name=name,
        formula=formula,
        paper=paper,
        advantage="group-z",
        surrogate="clip",
        divergence="none",
        reduction=reduction,
        defaults={"answers": 8, **defaults},
    )


def _online_pairs(
    name: str, formula: str, paper: str, surrogate: SurrogateName, **defaults: SettingValue
) -> PolicyFacts:
    """An offline preference loss on pairs that are sampled and scored during the run."""
    return PolicyFacts(
        name=name,
        formula=formula,
        paper=paper,
        advantage="leave-one-out",
        surrogate=surrogate,
        divergence="none",
        reduction="answers",
        defaults={"beta": 0.1, "answers": 2, **defaults},
    )


def _by_name(*rows: PolicyFacts) -> dict[str, PolicyFacts]:
    return {row.name: row for row in rows}


_SCHULMAN = "Schulman et al. 2017, arXiv:1707.06347"
_MUNOS = "Munos et al. 2023, arXiv:2312.00886"
_MUNOS_MIXTURE = 0.125
_WANG = "Wang et al. 2019, arXiv:1903.07940"

POLICY_ALGORITHMS: Mapping[str, PolicyFacts] = _by_name(
    PolicyFacts(
        name="reinforce",
        formula="−(r − mean of all so far) log π",
        paper="Williams 1992",
        advantage="running",
        surrogate="log-prob",
        divergence="reward",
        reduction="fixed",
        defaults={"beta": 0.05, "answers": 1},
    ),
    PolicyFacts(
        name="a2c",
        formula="−(r_t + γV_{t+1} − V_t) log π",
        paper="Mnih et al. 2016, arXiv:1602.01783",
        advantage="one-step",
        surrogate="log-prob",
        divergence="reward",
        reduction="tokens",
        defaults={"beta": 0.05, "gamma": 1.0, "entropy": 0.0, "answers": 1},
    ),
    PolicyFacts(
        name="trpo",
        formula="max r A with KL(π_old ‖ π) ≤ δ: natural gradient and line search",
        paper="Schulman et al. 2015, arXiv:1502.05477",
        advantage="gae",
        surrogate="unclipped",
        divergence="reward",
        reduction="tokens",
        defaults={**_GAE_DEFAULTS, "limit": 0.01, "natural": True},
    ),
    _ppo("ppo", "−min(rA, clip(r, 1 ± ε)A), A by GAE", _SCHULMAN, "clip", clip_low=0.2, clip_high=0.2),
    _ppo(
        "ppo-penalty",
        "−rA + β KL(π_old ‖ π), β doubled and halved",
        _SCHULMAN,
        "kl-penalty",
        penalty=1.0,
        limit=0.01,
    ),
    _ppo(
        "ppo-rb",
        "PPO whose ratio is pulled back beyond 1 ± ε, with slope −α",
        _WANG,
        "rollback",
        clip_low=0.2,
        clip_high=0.2,
        slope=0.3,
    ),
    _ppo("tr-ppo", "PPO clipped where KL(π_old ‖ π) ≥ δ", _WANG, "kl-trigger", limit=0.025, slope=0.0),
    _ppo("tr-ppo-rb", "TR-PPO pulled back with slope −α", _WANG, "kl-trigger", limit=0.03, slope=0.05),
    _ppo(
        "ppo-ptx",
        "PPO − γ log π of the text in --ptx.data",
        "Ouyang et al. 2022, arXiv:2203.02155",
        "clip",
        clip_low=0.2,
        clip_high=0.2,
        ptx=27.8,
    ),
    PolicyFacts(
        name="rloo",
        formula="−(r − mean of the other answers) log π",
        paper="Ahmadian et al. 2024, arXiv:2402.14740",
        advantage="leave-one-out",
        surrogate="log-prob",
        divergence="reward",
        reduction="fixed",
        defaults={"beta": 0.05, "answers": 4},
    ),
    PolicyFacts(
        name="remax",
        formula="−(r − r of the likeliest answer) log π",
        paper="Li et al. 2023, arXiv:2310.10505",
        advantage="greedy",
        surrogate="log-prob",
        divergence="reward",
        reduction="fixed",
        defaults={"beta": 0.05, "answers": 1},
    ),
    PolicyFacts(
        name="reinforce-pp",
        formula="PPO's clip, A the reward still to come, whitened over the batch",
        paper="Hu et al. 2025, arXiv:2501.03262",
        advantage="whitened",
        surrogate="clip",
        divergence="reward",
        reduction="tokens",
        defaults={"beta": 0.01, "gamma": 1.0, "clip_low": 0.2, "clip_high": 0.2, "answers": 1},
    ),
    PolicyFacts(
        name="grpo",
        formula="PPO's clip, A = (r − mean) / std of the group, + β KL",
        paper="Shao et al. 2024, arXiv:2402.03300",
        advantage="group-z",
        surrogate="clip",
        divergence="loss",
        reduction="answers",
        defaults={"answers": 8, "beta": 0.04, "clip_low": 0.2, "clip_high": 0.2},
    ),
    replace(
        _grpo(
            "dr-grpo",
            "GRPO without its std and without its lengths",
            "Liu et al. 2025, arXiv:2503.20783",
            "fixed",
            clip_low=0.2,
            clip_high=0.2,
        ),
        advantage="group-mean",
    ),
    _grpo(
        "dapo",
        "GRPO with clip-higher, token mean, unlike groups only, soft overlong punishment",
        "Yu et al. 2025, arXiv:2503.14476",
        "tokens",
        clip_low=0.2,
        clip_high=0.28,
        unlike=True,
        overlong=0.2,
    ),
    _grpo(
        "grpo-plus",
        "GRPO with clip-higher, without KL; answers that were cut are left out",
        "Luo et al. 2025, DeepCoder",
        "answers",
        clip_low=0.2,
        clip_high=0.28,
        drop_cut=True,
    ),
    _grpo(
        "gspo",
        "clip of the answer's ratio (π/π_old)^(1/|y|)",
        "Zheng et al. 2025, arXiv:2507.18071",
        "answers",
        ratio="answer",
        clip_low=3e-4,
        clip_high=4e-4,
        minibatches=4,
    ),
    replace(
        _grpo(
            "cispo",
            "−sg(min(r, 1 + ε)) A log π",
            "MiniMax 2025, arXiv:2506.13585; ε of Khatri et al. 2025, arXiv:2510.13786",
            "tokens",
            clip_low=1.0,
            clip_high=4.0,
            minibatches=4,
        ),
        surrogate="cispo",
    ),
    PolicyFacts(
        name="p3o",
        formula="clip of an answer's ratio, weighed with that of the other of its pair",
        paper="Wu et al. 2023, arXiv:2310.00212",
        advantage="leave-one-out",
        surrogate="p3o",
        divergence="reward",
        reduction="answers",
        defaults={"beta": 0.05, "answers": 2, "clip_low": 0.2},
    ),
    _online_pairs(
        "online-dpo", "−log σ(βh) of two fresh answers", "Guo et al. 2024, arXiv:2402.04792", "dpo"
    ),
    _online_pairs(
        "online-ipo", "(h − 1/2β)² of two fresh answers", "Calandriello et al. 2024, arXiv:2403.08635", "ipo"
    ),
    _online_pairs(
        "ipo-md",
        "online IPO of answers that a mixture of policy and reference gives",
        f"Calandriello et al. 2024, arXiv:2403.08635; mixture {_MUNOS_MIXTURE:g} of {_MUNOS}",
        "ipo",
        mixture=_MUNOS_MIXTURE,
    ),
    PolicyFacts(
        name="nash-md",
        formula="−(P(y ≻ y′) − ½) log π, P = σ(r − r′), y′ of a mixture of policy and reference",
        paper=_MUNOS,
        advantage="preference",
        surrogate="log-prob",
        divergence="reward",
        reduction="fixed",
        defaults={"beta": 0.05, "answers": 1, "mixture": _MUNOS_MIXTURE},
    ),
)
"""The algorithms of policy optimisation, by name."""
