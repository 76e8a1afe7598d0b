"""The cells of policy optimisation by the names that the table has for them.

Sampling settings of policy optimisation that an algorithm cannot learn from, and notes on its mixture.

From an algorithm's name and settings to the row of cells that the policy trainer runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from torch import Tensor

from plaudit.advantages import baseline, group, temporal
from plaudit.errors import UserError
from plaudit.losses import divergence, policy, ratio
from plaudit.methods.policy.algorithms import (
    ADVANTAGES_WITH_CRITIC,
    CONTRASTIVE_SURROGATES,
    GROUP_ADVANTAGES,
    PAIR_SURROGATES,
    PER_TOKEN_ADVANTAGES,
    POLICY_ALGORITHMS,
    PolicyFacts,
    SettingValue,
)
from plaudit.methods.policy.config import PolicyConfig, PolicySettings
from plaudit.methods.policy.process_reward import refuse_process_conflicts
from plaudit.methods.policy.row import (
    Advantage,
    AdvantageInputs,
    KlEstimator,
    PolicyRow,
    Ratio,
    Surrogate,
    SurrogateInputs,
    token_ratio,
)
from plaudit.tensors.masked import broadcast_to_tokens, whiten


def advantage_named(
    name: str, *, gamma: float, lam: float, scaled: bool = False, stepwise: bool = False
) -> Advantage:
    """The cell of this name; ``scaled`` divides the rewards of tokens by their deviation over the round.

    ``stepwise`` compares steps where it can; a cell of whole answers has the sum of what steps are paid.
    """
    temporal_cells = {"gae": temporal.gae, "monte-carlo": temporal.monte_carlo, "one-step": temporal.one_step}
    if name in temporal_cells:
        settings = {"gamma": gamma, "lam": lam} if name == "gae" else {"gamma": gamma}
        return lambda inputs: temporal_cells[name](
            _token_rewards(inputs, scaled=scaled), inputs.value_NT, inputs.mask_NT, **settings
        )
    if name == "whitened":
        return lambda inputs: temporal.reinforce_plus_plus(
            _token_rewards(inputs, scaled=scaled), inputs.mask_NT, gamma=gamma
        )
    if name == "bandit":
        return lambda inputs: temporal.bandit(
            inputs.reward_N, _first_token_value(inputs.value_NT, inputs.mask_NT), inputs.mask_NT
        )
    if name == "group-z" and stepwise:
        return lambda inputs: group.steps_z_score(
            _token_rewards(inputs, scaled=False), inputs.end_NT, inputs.mask_NT, inputs.group_N
        )
    completion_cells: Mapping[str, Callable[[AdvantageInputs], Tensor]] = {
        "group-z": lambda inputs: group.z_score(inputs.reward_N, inputs.group_N),
        "group-mean": lambda inputs: group.centred(inputs.reward_N, inputs.group_N),
        "leave-one-out": lambda inputs: group.leave_one_out(inputs.reward_N, inputs.group_N),
        "greedy": lambda inputs: inputs.reward_N - inputs.rival_N,
        "preference": lambda inputs: (
            baseline.win_probability_advantage(inputs.score_N, inputs.rival_N) - inputs.kl_cost_N
        ),
        "running": lambda inputs: baseline.running_mean_baseline(inputs.reward_N, mean=inputs.mean_score),
    }
    return lambda inputs: broadcast_to_tokens(completion_cells[name](inputs), inputs.mask_NT)


def _token_rewards(inputs: AdvantageInputs, *, scaled: bool) -> Tensor:
    """Rewards along the tokens: the KL at each, steps at their ends, the rest at the last token."""
    reward_NT = inputs.paid_NT + temporal.token_rewards(
        inputs.final_payment_N, inputs.kl_NT, inputs.mask_NT, beta=inputs.kl_coefficient
    )
    return whiten(reward_NT, inputs.mask_NT, shift=False) if scaled else reward_NT


def _first_token_value(value_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Each completion's value at its first token."""
    first_N1 = mask_NT.to(value_NT.dtype).argmax(-1, keepdim=True)
    return value_NT.gather(1, first_N1)[:, 0]


def surrogate_named(name: str, number: Callable[[str], float]) -> Surrogate:
    """The cell of this name, with its settings."""
    low, high, slope = number("clip_low"), number("clip_high"), number("slope")
    limit, ceiling = number("limit"), number("ceiling")
    cells: Mapping[str, Surrogate] = {
        "log-prob": lambda inputs: policy.policy_gradient(inputs.logp_NT, inputs.advantage_NT),
        "unclipped": lambda inputs: policy.unclipped(inputs.ratio_NT, inputs.advantage_NT),
        "clip": lambda inputs: policy.clipped(inputs.ratio_NT, inputs.advantage_NT, low=low, high=high),
        "dual-clip": lambda inputs: policy.dual_clipped(
            inputs.ratio_NT, inputs.advantage_NT, low=low, high=high, ceiling=ceiling
        ),
        "rollback": lambda inputs: policy.rolled_back(
            inputs.ratio_NT, inputs.advantage_NT, low=low, high=high, slope=slope
        ),
        "kl-trigger": lambda inputs: policy.kl_triggered(
            inputs.ratio_NT, inputs.advantage_NT, inputs.old_kl_NT.detach(), limit=limit, slope=slope
        ),
        "kl-penalty": lambda inputs: policy.kl_penalised(
            inputs.ratio_NT, inputs.advantage_NT, inputs.old_kl_NT, beta=inputs.kl_penalty
        ),
        "cispo": lambda inputs: policy.cispo(
            inputs.logp_NT, inputs.ratio_NT, inputs.advantage_NT, low=low, high=high
        ),
        "p3o": lambda inputs: _pair_surrogate(policy.p3o_separate, inputs, inputs.log_ratio_NT, clip=low),
        "p3o-joint": lambda inputs: _pair_surrogate(policy.p3o_joint, inputs, inputs.log_ratio_NT, clip=low),
        "dpo": lambda inputs: _pair_surrogate(
            policy.online_dpo, inputs, inputs.ref_log_ratio_NT, beta=number("beta")
        ),
        "ipo": lambda inputs: _pair_surrogate(
            policy.online_ipo, inputs, inputs.ref_log_ratio_NT, beta=number("beta")
        ),
    }
    return cells[name]


def _pair_surrogate(
    function: Callable[..., Tensor], inputs: SurrogateInputs, log_ratio_NT: Tensor, **settings: float
) -> Tensor:
    """The surrogate of a pair of completions, from the log-ratio of each, at all their tokens."""
    better_N = _first_token_value(inputs.advantage_NT, inputs.mask_NT)
    return broadcast_to_tokens(
        function(ratio.completion_log_ratio(log_ratio_NT, inputs.mask_NT), better_N, **settings),
        inputs.mask_NT,
    )


def refuse_sampling_conflicts(
    facts: PolicyFacts, row: PolicyRow, config: PolicyConfig, *, answers: float, mixture: float
) -> None:
    """Raise for sampling settings from whose completions this row could learn nothing, or something else."""
    draw = config.draw
    if draw.unlike == "yes" and answers < 2:
        raise UserError(
            f"draw.unlike: {facts.name} draws one answer to a prompt, and one is never unlike itself"
        )
    if (row.needs_greedy_baseline or row.needs_rival) and draw.replay:
        compared_with = "the likeliest one" if row.needs_greedy_baseline else "a rival's"
        raise UserError(
            f"draw.replay: {facts.name} measures answers against {compared_with} of the same moment, so "
            "those of an earlier round have nothing to be measured against; leave it out"
        )
    if draw.mixture is not None and not (row.surrogate_uses_reference or row.needs_rival):
        raise UserError(
            f"draw.mixture: {facts.name} learns from answers of the policy itself, and those of another "
            "distribution would teach it something else; leave it out, or take ipo-md or nash-md"
        )
    if mixture:
        _refuse_mixture_conflicts(facts, row, config)


def _refuse_mixture_conflicts(facts: PolicyFacts, row: PolicyRow, config: PolicyConfig) -> None:
    if config.reference.kind == "none":
        raise UserError(
            f"reference.kind none: {facts.name} draws from a mixture of the policy and its reference; leave "
            "it out, or add --draw.mixture 0"
        )
    if config.environment is not None:
        raise UserError(
            f"environment: {facts.name} draws from a mixture of the policy and its reference, and episodes "
            "are played by the policy alone; give --reward in its place, or add --draw.mixture 0"
        )
    if row.needs_rival:
        return
    if row.divergence != "none":
        raise UserError(
            f"policy.divergence {row.divergence}: the answers of {facts.name} are those of a mixture, over "
            "which the policy's KL cannot be estimated; leave it out, since the loss holds the policy already"
        )
    if config.draw.replay or config.trust.cap:
        name = "draw.replay" if config.draw.replay else "trust.cap"
        raise UserError(
            f"{name} weighs answers as if the policy should have drawn them, and {facts.name} wants those of "
            "a mixture; leave it out"
        )


def mixture_notes(row: PolicyRow, mixture: float) -> tuple[str, ...]:
    """Notes on which model generates, where it is not the policy alone."""
    rival_note = (
        "each prompt has a rival's answer, which only scores are compared with" if row.needs_rival else ""
    )
    if not mixture:
        return (f"{rival_note}; it is drawn from the policy itself",) if rival_note else ()
    source = f"a mixture of {1 - mixture:g} of the policy and {mixture:g} of its reference (log-probs)"
    return (f"{rival_note}; it is drawn from {source}" if rival_note else f"answers are drawn from {source}",)


Algorithm = str | PolicyRow
"""A name of the table, or a row of one's own."""
_SETTINGS_BY_SURROGATE: Mapping[str, tuple[str, ...]] = {
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
_DEFAULTS: Mapping[str, float] = {
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
"""The value of each setting where neither the algorithm nor the user gives one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredAlgorithm:
    """An algorithm with its cells and all of its settings.

    Example: ``configure_algorithm("grpo", config).row``
    """

    facts: PolicyFacts
    """Its entry of the table."""
    row: PolicyRow
    """Its cells."""
    values: Mapping[str, SettingValue]
    """Every setting that is not a cell."""

    def number(self, name: str) -> float:
        """A setting that is a number."""
        value = self.values[name]
        assert isinstance(value, int | float), f"{name} is {value!r}"
        return float(value)


def policy_facts(algorithm: Algorithm) -> PolicyFacts:
    """The table's entry for an algorithm; a name that is not there is refused with the closest one."""
    if isinstance(algorithm, PolicyRow):
        return PolicyFacts(
            name="own",
            formula="a row of your own",
            paper="",
            advantage="gae" if algorithm.needs_critic else "running",
            surrogate="log-prob",
            divergence=algorithm.divergence,
            reduction=algorithm.reduction,
            defaults={"answers": 2 if algorithm.needs_pairs else 8},
        )
    if algorithm not in POLICY_ALGORITHMS:
        closest = get_close_matches(algorithm, POLICY_ALGORITHMS, n=1)
        hint = f"; did you mean {closest[0]}?" if closest else ""
        raise UserError(
            f"no algorithm of policy optimisation is called {algorithm!r}: there are "
            f"{', '.join(POLICY_ALGORITHMS)}{hint}"
        )
    return POLICY_ALGORITHMS[algorithm]


def configure_algorithm(algorithm: Algorithm, config: PolicyConfig) -> ConfiguredAlgorithm:
    """The algorithm with its own settings, where the user gave no other ones; contradictions are refused."""
    facts = policy_facts(algorithm)
    settings = config.policy
    values = {**_DEFAULTS, **facts.defaults, **_user_settings(config)}
    if isinstance(algorithm, PolicyRow):
        row = algorithm
    else:
        facts = _override_cells(facts, settings)
        _refuse_unused_settings(facts, settings)
        row = _build_row(facts, settings, values)
    configured = ConfiguredAlgorithm(facts=facts, row=row, values=values)
    _refuse_contradictions(configured, config)
    return configured


def _user_settings(config: PolicyConfig) -> dict[str, SettingValue]:
    """The settings that the user gave, by the names of the table."""
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
        **{name: choice == "yes" for name, choice in switches.items() if choice != "auto"},
    }


def _override_cells(facts: PolicyFacts, settings: PolicySettings) -> PolicyFacts:
    """The table's entry with the cells that the user named in place of its own."""
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


def _refuse_unused_settings(facts: PolicyFacts, settings: PolicySettings) -> None:
    """Raise for a setting that no cell of this row reads."""
    reads = {"entropy", "epochs", "minibatches", "stop_at", *_SETTINGS_BY_SURROGATE.get(facts.surrogate, ())}
    if facts.divergence != "none":
        reads |= {"beta"}
    if facts.advantage in PER_TOKEN_ADVANTAGES:
        reads |= {"gamma"}
    if facts.advantage == "gae":
        reads |= {"lam"}
    if facts.defaults.get("natural"):
        reads |= {"limit"}
    all_settings = {name for names in _SETTINGS_BY_SURROGATE.values() for name in names} | {
        "beta",
        "gamma",
        "lam",
    }
    for name in sorted(all_settings - reads):
        if getattr(settings, name) is not None:
            raise UserError(
                f"policy.{name} is read by no cell of {facts.name} ({facts.cells}): leave it out, or set the "
                "cell that reads it"
            )


def _build_row(facts: PolicyFacts, settings: PolicySettings, values: Mapping[str, SettingValue]) -> PolicyRow:
    def number(name: str) -> float:
        value = values[name]
        assert isinstance(value, int | float), f"{name} is {value!r}"
        return float(value)

    clips = facts.surrogate in ("clip", "dual-clip", "rollback", "cispo")
    ratio_kind = settings.ratio if settings.ratio != "auto" else values["ratio"] or "token"
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
        ratio=_ratio_named(str(ratio_kind)),
        reduction=facts.reduction,
        divergence=facts.divergence,
        estimator=_kl_estimator(settings.estimator, facts.divergence),
        beta=number("beta") if facts.divergence != "none" else 0.0,
        needs_critic=facts.advantage in ADVANTAGES_WITH_CRITIC,
        whitens_advantages=whitens,
        has_bandit_critic=facts.advantage == "bandit",
        entropy=number("entropy"),
        needs_greedy_baseline=facts.advantage == "greedy",
        needs_rival=facts.advantage == "preference",
        uses_trpo_step=bool(values["natural"]),
        has_adaptive_penalty=facts.surrogate == "kl-penalty",
        clip_low=number("clip_low") if clips else 0.0,
        clip_high=number("clip_high") if clips else 0.0,
        needs_pairs=facts.surrogate in PAIR_SURROGATES,
        surrogate_uses_reference=facts.surrogate in CONTRASTIVE_SURROGATES,
        needs_comparison=facts.advantage in GROUP_ADVANTAGES,
    )


def _ratio_named(name: str) -> Ratio:
    return {
        "token": token_ratio,
        "answer": ratio.sequence_log_ratio,
        "answer-token": ratio.sequence_token_log_ratio,
    }[name]


def _kl_estimator(name: str, placement: str) -> KlEstimator:
    if name == "auto":
        return divergence.k1 if placement == "reward" else divergence.k3
    return {"k1": divergence.k1, "k2": divergence.k2, "k3": divergence.k3}[name]


def _refuse_contradictions(configured: ConfiguredAlgorithm, config: PolicyConfig) -> None:
    """Raise for settings that would teach nothing, or something else than what is meant."""
    facts, row = configured.facts, configured.row
    answers, updates = (
        configured.number("answers"),
        configured.number("epochs") * configured.number("minibatches"),
    )
    if row.needs_comparison and answers < 2:
        raise UserError(
            f"draw.answers {answers:g}: {facts.name} compares the answers to one prompt, and one that is "
            "alone stands above nobody; give 2 or more"
        )
    if row.needs_pairs and answers != 2:
        raise UserError(f"draw.answers {answers:g}: {facts.name} learns from pairs; give 2")
    _refuse_divergence_conflicts(facts, row, config.policy)
    refuse_process_conflicts(facts, config)
    if row.has_adaptive_penalty and updates < 2:
        raise UserError(
            f"{facts.name} adapts its coefficient to how far a round has moved the policy, and with a single "
            "move that is 0: give --policy.epochs 2 or more"
        )
    if configured.number("ptx") and config.ptx.data is None:
        raise UserError(f"{facts.name} needs text that it shall not forget: add --ptx.data FILE")
    if config.critic.shared and row.uses_trpo_step:
        raise UserError(
            f"critic.shared: {facts.name} moves the policy by its own gradient alone, and a shared critic's "
            "would be in it; leave it out"
        )
    refuse_sampling_conflicts(facts, row, config, answers=answers, mixture=configured.number("mixture"))


def _refuse_divergence_conflicts(facts: PolicyFacts, row: PolicyRow, settings: PolicySettings) -> None:
    """Raise for an estimator or a target of a divergence that the row does not have."""
    if settings.estimator != "auto" and row.divergence == "none":
        raise UserError(f"policy.estimator: {facts.name} has no divergence to estimate; leave it out")
    if settings.estimator == "k1" and row.divergence == "loss":
        raise UserError(
            "policy.estimator k1 holds nothing in a loss: its expected gradient is 0 (plaudit prove "
            "estimators). Use k2 or k3, or --policy.divergence reward"
        )
    if settings.whiten_rewards and facts.advantage not in PER_TOKEN_ADVANTAGES:
        raise UserError(
            f"policy.whiten_rewards divides the rewards of tokens, and {facts.name} has only those of answers"
        )
    if settings.target is not None and row.divergence != "reward":
        raise UserError(f"policy.target moves the β of a KL in the reward, and {facts.name} has none there")
