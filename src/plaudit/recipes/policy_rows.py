"""From a name and settings to the row of cells that the policy trainer runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from plaudit.errors import UserError
from plaudit.losses import divergence, ratio
from plaudit.recipes.policy_cells import advantage_named, surrogate_named
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_draws import refuse_other_draws
from plaudit.recipes.policy_facts import (
    CONTRASTS,
    IN_GROUPS,
    IN_PAIRS,
    IN_TIME,
    WITH_CRITIC,
    PolicyFacts,
    Value,
)
from plaudit.recipes.policy_process import refuse_process
from plaudit.recipes.policy_settings import PolicySettings
from plaudit.recipes.policy_table import POLICIES
from plaudit.training.policy_row import Estimator, PolicyRow, by_token

Algorithm = str | PolicyRow
"""A name of the table, or a row of one's own."""
_READ_BY: Mapping[str, tuple[str, ...]] = {
    "clip": ("clip_low", "clip_high"),
    "dual-clip": ("clip_low", "clip_high", "ceiling"),
    "rollback": ("clip_low", "clip_high", "slope"),
    "kl-trigger": ("limit", "slope"),
    "kl-penalty": ("limit", "penalty"),
    "cispo": ("clip_low", "clip_high"),
    "p3o": ("clip_low",),
    "p3o-joint": ("clip_low",),
    "dpo": ("beta",),
    "ipo": ("beta",),
}
"""The settings that each surrogate reads."""
_USUAL: Mapping[str, float] = {
    "beta": 0.05,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "ceiling": 3.0,
    "slope": 0.0,
    "limit": 0.01,
    "penalty": 1.0,
    "gamma": 1.0,
    "lam": 0.95,
    "entropy": 0.0,
    "epochs": 1,
    "minibatches": 1,
    "stop_at": 0.0,
    "answers": 8,
    "mixture": 0.0,
    "unlike": False,
    "overlong": 0.0,
    "drop_cut": False,
    "natural": False,
    "ptx": 0.0,
    "ratio": 0.0,
}
"""What holds where neither the algorithm nor the user says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An algorithm with all of its settings.

    Example: ``chosen("grpo", config).row``
    """

    facts: PolicyFacts
    """Its entry of the table."""
    row: PolicyRow
    """Its cells."""
    values: Mapping[str, Value]
    """Every setting that is not a cell."""

    def number(self, name: str) -> float:
        """A setting that is a number."""
        value = self.values[name]
        assert isinstance(value, int | float), f"{name} is {value!r}"
        return float(value)


def facts_of(algorithm: Algorithm) -> PolicyFacts:
    """The entry of the table; a name that is not there is refused with the nearest one."""
    if isinstance(algorithm, PolicyRow):
        return PolicyFacts(
            name="own",
            formula="a row of your own",
            paper="",
            advantage="gae" if algorithm.critic else "running",
            surrogate="log-prob",
            divergence=algorithm.divergence,
            reduction=algorithm.reduction,
            defaults={"answers": 2 if algorithm.pairs else 8},
        )
    if algorithm not in POLICIES:
        near = get_close_matches(algorithm, POLICIES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(
            f"no algorithm of policy optimisation is called {algorithm!r}: there are "
            f"{', '.join(POLICIES)}{hint}"
        )
    return POLICIES[algorithm]


def chosen(algorithm: Algorithm, config: PolicyConfig) -> Chosen:
    """The algorithm with its own settings, where no other ones were given; contradictions are refused."""
    facts = facts_of(algorithm)
    settings = config.policy
    values = {**_USUAL, **facts.defaults, **_said(config)}
    if isinstance(algorithm, PolicyRow):
        row = algorithm
    else:
        facts = _as_set(facts, settings)
        _refuse_unread(facts, settings)
        row = _row(facts, settings, values)
    found = Chosen(facts=facts, row=row, values=values)
    _refuse_contradictions(found, config)
    return found


def _said(config: PolicyConfig) -> dict[str, Value]:
    """What the user has set, by the names of the table."""
    names = (
        "beta",
        "clip_low",
        "clip_high",
        "ceiling",
        "slope",
        "limit",
        "penalty",
        "gamma",
        "lam",
        "entropy",
    )
    numbers = {name: getattr(config.policy, name) for name in (*names, "epochs", "minibatches", "stop_at")}
    numbers |= {"answers": config.draw.answers, "mixture": config.draw.mixture}
    numbers |= {"overlong": config.shape.overlong, "ptx": config.ptx.weight}
    switches = {"unlike": config.draw.unlike, "drop_cut": config.shape.drop_cut}
    return {
        "stepwise": config.process.pay != "no",
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: word == "yes" for name, word in switches.items() if word != "auto"},
    }


def _as_set(facts: PolicyFacts, settings: PolicySettings) -> PolicyFacts:
    """The table's entry with the cells that were named in its place."""
    return PolicyFacts(
        name=facts.name,
        formula=facts.formula,
        paper=facts.paper,
        advantage=facts.advantage if settings.advantage == "auto" else settings.advantage,
        surrogate=facts.surrogate if settings.surrogate == "auto" else settings.surrogate,
        divergence=facts.divergence if settings.divergence == "auto" else settings.divergence,
        reduction=facts.reduction if settings.reduction == "auto" else settings.reduction,
        defaults=facts.defaults,
    )


def _refuse_unread(facts: PolicyFacts, settings: PolicySettings) -> None:
    """Complain about a setting that this row's cells do not look at."""
    reads = {"entropy", "epochs", "minibatches", "stop_at", *_READ_BY.get(facts.surrogate, ())}
    if facts.divergence != "none":
        reads |= {"beta"}
    if facts.advantage in IN_TIME:
        reads |= {"gamma"}
    if facts.advantage == "gae":
        reads |= {"lam"}
    if facts.defaults.get("natural"):
        reads |= {"limit"}
    every = {name for names in _READ_BY.values() for name in names} | {"beta", "gamma", "lam"}
    for name in sorted(every - reads):
        if getattr(settings, name) is not None:
            raise UserError(
                f"policy.{name} is read by no cell of {facts.name} ({facts.cells}): leave it out, or set the "
                "cell that reads it"
            )


def _row(facts: PolicyFacts, settings: PolicySettings, values: Mapping[str, Value]) -> PolicyRow:
    def number(name: str) -> float:
        value = values[name]
        assert isinstance(value, int | float), f"{name} is {value!r}"
        return float(value)

    clips = facts.surrogate in ("clip", "dual-clip", "rollback", "cispo")
    kind = settings.ratio if settings.ratio != "auto" else values["ratio"] or "token"
    whitens = settings.whiten == "yes" or (settings.whiten == "auto" and facts.advantage == "gae")
    return PolicyRow(
        advantage=advantage_named(
            facts.advantage,
            gamma=number("gamma"),
            lam=number("lam"),
            scaled=settings.whiten_rewards,
            stepwise=bool(values["stepwise"]),
        ),
        surrogate=surrogate_named(facts.surrogate, number),
        ratio={"token": by_token, "answer": ratio.sequence, "answer-token": ratio.sequence_by_token}[
            str(kind)
        ],
        reduction=facts.reduction,
        divergence=facts.divergence,
        estimator=_estimator(settings.estimator, facts.divergence),
        beta=number("beta") if facts.divergence != "none" else 0.0,
        critic=facts.advantage in WITH_CRITIC,
        whiten=whitens,
        bandit=facts.advantage == "bandit",
        entropy=number("entropy"),
        greedy=facts.advantage == "greedy",
        duels=facts.advantage == "preference",
        natural=bool(values["natural"]),
        adaptive=facts.surrogate == "kl-penalty",
        clip_low=number("clip_low") if clips else 0.0,
        clip_high=number("clip_high") if clips else 0.0,
        pairs=facts.surrogate in IN_PAIRS,
        contrasts=facts.surrogate in CONTRASTS,
        compares=facts.advantage in IN_GROUPS,
    )


def _estimator(name: str, where: str) -> Estimator:
    if name == "auto":
        return divergence.k1 if where == "reward" else divergence.k3
    return {"k1": divergence.k1, "k2": divergence.k2, "k3": divergence.k3}[name]


def _refuse_contradictions(found: Chosen, config: PolicyConfig) -> None:
    """What would teach nothing, or something else than what is meant."""
    facts, row = found.facts, found.row
    answers, moves = found.number("answers"), found.number("epochs") * found.number("minibatches")
    if row.compares and answers < 2:
        raise UserError(
            f"draw.answers {answers:g}: {facts.name} compares the answers to one prompt, and one that is "
            "alone stands above nobody; give 2 or more"
        )
    if row.pairs and answers != 2:
        raise UserError(f"draw.answers {answers:g}: {facts.name} learns from pairs; give 2")
    _refuse_other_distance(facts, row, config.policy)
    refuse_process(facts, config)
    if row.adaptive and moves < 2:
        raise UserError(
            f"{facts.name} adapts its coefficient to how far a round has moved the policy, and with a single "
            "move that is 0: give --policy.epochs 2 or more"
        )
    if found.number("ptx") and config.ptx.data is None:
        raise UserError(f"{facts.name} needs text that it shall not forget: add --ptx.data FILE")
    if config.critic.shared and row.natural:
        raise UserError(
            f"critic.shared: {facts.name} moves the policy by its own gradient alone, and a shared critic's "
            "would be in it; leave it out"
        )
    refuse_other_draws(facts, row, config, answers=answers, mixture=found.number("mixture"))


def _refuse_other_distance(facts: PolicyFacts, row: PolicyRow, settings: PolicySettings) -> None:
    """An estimator that holds nothing, and targets of a divergence that is not there."""
    if settings.estimator != "auto" and row.divergence == "none":
        raise UserError(f"policy.estimator: {facts.name} has no divergence to estimate; leave it out")
    if settings.estimator == "k1" and row.divergence == "loss":
        raise UserError(
            "policy.estimator k1 holds nothing in a loss: its expected gradient is 0 (plaudit prove "
            "estimators). Use k2 or k3, or --policy.divergence reward"
        )
    if settings.whiten_rewards and facts.advantage not in IN_TIME:
        raise UserError(
            f"policy.whiten_rewards divides the rewards of tokens, and {facts.name} has only those of answers"
        )
    if settings.target is not None and row.divergence != "reward":
        raise UserError(f"policy.target moves the β of a KL in the reward, and {facts.name} has none there")
