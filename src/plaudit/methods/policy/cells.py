"""The named cells of policy optimisation, and what any algorithm can be given by name; without torch.

A cell is a function: what it works on stands before the slash, its settings behind it, and ``@needs`` says
what it cannot do without. Whoever adds one adds it to its table, and it is an option: ``--surrogate clip``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from plaudit.bounds import Bound, FromOne, FromZero, Positive, Share
from plaudit.errors import UserError
from plaudit.methods.algorithm import (
    LazyModule,
    Parameter,
    cell_settings,
    check_settings,
    describe,
    make_parameter,
    optional,
)
from plaudit.tensors.needs import needs, needs_of

if TYPE_CHECKING:
    from torch import Tensor

    from plaudit.advantages import group, temporal
    from plaudit.losses import divergence, policy, ratio as ratios, reduce
    from plaudit.methods.policy.row import (
        AdvantageInputs,
        KlEstimator,
        LossCounts,
        PolicyAlgorithm,
        SurrogateInputs,
    )
    from plaudit.tensors import masked
else:
    group = LazyModule("plaudit.advantages.group")
    temporal = LazyModule("plaudit.advantages.temporal")
    divergence = LazyModule("plaudit.losses.divergence")
    policy = LazyModule("plaudit.losses.policy")
    reduce = LazyModule("plaudit.losses.reduce")
    ratios = LazyModule("plaudit.losses.ratio")
    masked = LazyModule("plaudit.tensors.masked")

KlCoef = Annotated[FromZero, "How dear distance from the reference is: the KL coefficient."]
Beta = Annotated[Positive, "β of the preference loss: how dear distance from the reference is."]
ClipLow = Annotated[FromZero, "ε below 1."]
ClipHigh = Annotated[FromZero, "ε above 1."]
DualClip = Annotated[Positive, "c: the most that a bad token loses, in advantages."]
RollbackAlpha = Annotated[FromZero, "α: how steeply a ratio is pulled back."]
MaxKl = Annotated[Positive, "δ: the KL(π_old ‖ π) a token within which a round moves the policy."]
PenaltyCoef = Annotated[Positive, "The penalty's coefficient at first."]
PenaltyTarget = Annotated[Positive, "KL(π_old ‖ π) a token towards which penalty_coef is doubled and halved."]
Gamma = Annotated[Share, "γ: how much the next token's worth counts."]
Lam = Annotated[Share, "GAE's λ: 0 trusts the critic, 1 what happened."]
WhitenRewards = Annotated[
    bool, "Whether the rewards of tokens are divided by their deviation over the round (Ziegler et al. 2019)."
]
EntropyCoef = Annotated[FromZero, "How much the entropy of the policy counts."]
UpdateEpochs = Annotated[FromOne, "How often the answers of a round are gone through."]
Minibatches = Annotated[FromOne, "Updates of one such epoch."]
VfCoef = Annotated[Positive, "How much the critic's loss counts beside the policy's."]
PtxCoef = Annotated[Positive, "How much the log-likelihood of the text of --ptx.data counts a token."]
GroupSize = Annotated[FromOne, "Answers to each prompt."]
DynamicSampling = Annotated[bool, "Whether prompts whose answers all have one score are replaced by others."]
OverlongFiltering = Annotated[bool, "Whether answers that were cut are left out of the loss."]
OverlongBuffer = Annotated[
    Share, "The last share of the longest length, in which an answer is punished up to −1."
]
MixtureCoef = Annotated[
    float,
    Bound("from 0 (the policy) to 1 (its reference)", lambda value: 0 <= value <= 1),
    "The reference's share in the mixture that pairs, or the answers of rivals, are drawn from.",
]


def _token_rewards(inputs: AdvantageInputs, *, whiten_rewards: bool) -> Tensor:
    """Rewards along the tokens: the KL at each, steps at their ends, the rest at the last token."""
    reward_NT = inputs.paid_NT + temporal.token_rewards(
        inputs.final_payment_N, inputs.kl_NT, inputs.mask_NT, beta=inputs.kl_coefficient
    )
    # Scaled only: with the mean taken off, a token that earned nothing would be paid or fined.
    return masked.whiten(reward_NT, inputs.mask_NT, shift=False) if whiten_rewards else reward_NT


def _first_of(value_NT: Tensor, mask_NT: Tensor) -> Tensor:
    # argmax gives the first of equal maxima: where the completion's own tokens begin.
    first_N1 = mask_NT.to(value_NT.dtype).argmax(-1, keepdim=True)
    return value_NT.gather(1, first_N1)[:, 0]


@needs("critic", "token_rewards", "whitening")
def gae(
    inputs: AdvantageInputs, /, gamma: Gamma = 1.0, lam: Lam = 0.95, whiten_rewards: WhitenRewards = False
) -> Tensor:
    """Σ (γλ)^k δ_{t+k}, δ_t = r_t + γV_{t+1} − V_t."""
    reward_NT = _token_rewards(inputs, whiten_rewards=whiten_rewards)
    return temporal.gae(reward_NT, inputs.value_NT, inputs.mask_NT, gamma=gamma, lam=lam)


@needs("critic", "token_rewards")
def monte_carlo(
    inputs: AdvantageInputs, /, gamma: Gamma = 1.0, whiten_rewards: WhitenRewards = False
) -> Tensor:
    reward_NT = _token_rewards(inputs, whiten_rewards=whiten_rewards)
    return temporal.monte_carlo(reward_NT, inputs.value_NT, inputs.mask_NT, gamma=gamma)


@needs("critic", "token_rewards")
def one_step(inputs: AdvantageInputs, /, gamma: Gamma = 1.0, whiten_rewards: WhitenRewards = False) -> Tensor:
    """r_t + γV_{t+1} − V_t."""
    reward_NT = _token_rewards(inputs, whiten_rewards=whiten_rewards)
    return temporal.one_step(reward_NT, inputs.value_NT, inputs.mask_NT, gamma=gamma)


@needs("token_rewards")
def whitened(inputs: AdvantageInputs, /, gamma: Gamma = 1.0, whiten_rewards: WhitenRewards = False) -> Tensor:
    """The reward still to come, with mean 0 and deviation 1 over the batch."""
    reward_NT = _token_rewards(inputs, whiten_rewards=whiten_rewards)
    return temporal.reinforce_plus_plus(reward_NT, inputs.mask_NT, gamma=gamma)


@needs("critic", "bandit_critic")
def bandit(inputs: AdvantageInputs, /) -> Tensor:
    """r − V of the whole answer; its critic is taught the reward of the whole answer at each token."""
    value_N = _first_of(inputs.value_NT, inputs.mask_NT)
    return temporal.bandit(inputs.reward_N, value_N, inputs.mask_NT)


@needs("group")
def group_z(inputs: AdvantageInputs, /) -> Tensor:
    """(r − mean) / std of the group."""
    return masked.broadcast_to_tokens(group.z_score(inputs.reward_N, inputs.group_N), inputs.mask_NT)


@needs("group", "token_rewards")
def group_z_of_steps(inputs: AdvantageInputs, /) -> Tensor:
    """What steps are still paid, each by the mean and deviation of the group's steps: process rewards."""
    reward_NT = _token_rewards(inputs, whiten_rewards=False)
    return group.steps_z_score(reward_NT, inputs.end_NT, inputs.mask_NT, inputs.group_N)


@needs("group")
def group_mean(inputs: AdvantageInputs, /) -> Tensor:
    return masked.broadcast_to_tokens(group.centred(inputs.reward_N, inputs.group_N), inputs.mask_NT)


@needs("group")
def leave_one_out(inputs: AdvantageInputs, /) -> Tensor:
    return masked.broadcast_to_tokens(group.leave_one_out(inputs.reward_N, inputs.group_N), inputs.mask_NT)


@needs("greedy_baseline")
def greedy(inputs: AdvantageInputs, /) -> Tensor:
    return masked.broadcast_to_tokens(inputs.reward_N - inputs.rival_N, inputs.mask_NT)


@needs("rival")
def preference(inputs: AdvantageInputs, /) -> Tensor:
    """P(y ≻ y′) − ½, less the KL; P is a judge's, or σ(r − r′)."""
    advantage_N = inputs.win_probability_N - 0.5 - inputs.kl_cost_N
    return masked.broadcast_to_tokens(advantage_N, inputs.mask_NT)


def running(inputs: AdvantageInputs, /) -> Tensor:
    """r − mean of all before; in the first round of the others."""
    advantage_N = group.running_mean_baseline(inputs.reward_N, mean=inputs.mean_score)
    return masked.broadcast_to_tokens(advantage_N, inputs.mask_NT)


@needs("single_update")
def log_prob(inputs: SurrogateInputs, /) -> Tensor:
    """The policy-gradient surrogate −A log π, without a ratio: right for a round's first move alone."""
    return policy.policy_gradient(inputs.logp_NT, inputs.advantage_NT)


def unclipped(inputs: SurrogateInputs, /) -> Tensor:
    """The surrogate −rA, r the ratio: importance-weighted, never clipped."""
    return policy.unclipped(inputs.ratio_NT, inputs.advantage_NT)


def clip(inputs: SurrogateInputs, /, clip_low: ClipLow = 0.2, clip_high: ClipHigh = 0.2) -> Tensor:
    """−min(rA, clip(r, 1 ± ε)A)."""
    return policy.clipped(inputs.ratio_NT, inputs.advantage_NT, low=clip_low, high=clip_high)


def dual_clipped(
    inputs: SurrogateInputs, /, clip_low: ClipLow = 0.2, clip_high: ClipHigh = 0.2, dual_clip: DualClip = 3.0
) -> Tensor:
    """PPO's clip, of which a bad token loses c advantages at most."""
    return policy.dual_clipped(
        inputs.ratio_NT, inputs.advantage_NT, low=clip_low, high=clip_high, ceiling=dual_clip
    )


def rollback(
    inputs: SurrogateInputs,
    /,
    clip_low: ClipLow = 0.2,
    clip_high: ClipHigh = 0.2,
    rollback_alpha: RollbackAlpha = 0.0,
) -> Tensor:
    """PPO whose ratio is pulled back beyond 1 ± ε."""
    return policy.rolled_back(
        inputs.ratio_NT, inputs.advantage_NT, low=clip_low, high=clip_high, slope=rollback_alpha
    )


@needs("old_distribution")
def kl_trigger(
    inputs: SurrogateInputs, /, max_kl: MaxKl = 0.01, rollback_alpha: RollbackAlpha = 0.0
) -> Tensor:
    """PPO clipped where KL(π_old ‖ π) of the whole distribution at a token is ≥ δ."""
    # Of the drawn token alone it would be a function of the ratio, and this PPO's clip by another name.
    assert inputs.whole_old_kl_NT is not None
    return policy.kl_triggered(
        inputs.ratio_NT, inputs.advantage_NT, inputs.whole_old_kl_NT, limit=max_kl, slope=rollback_alpha
    )


@needs("adaptive_penalty")
def kl_penalty(inputs: SurrogateInputs, /) -> Tensor:
    """−rA + β KL(π_old ‖ π), with the coefficient that the trainer adapts."""
    # Not detached: here the KL is what is minimised.
    return policy.kl_penalised(inputs.ratio_NT, inputs.advantage_NT, inputs.old_kl_NT, beta=inputs.kl_penalty)


def cispo(inputs: SurrogateInputs, /, clip_low: ClipLow = 0.2, clip_high: ClipHigh = 0.2) -> Tensor:
    """−sg(clip(r, 1 ± ε)) A log π."""
    return policy.cispo(inputs.logp_NT, inputs.ratio_NT, inputs.advantage_NT, low=clip_low, high=clip_high)


def _of_pairs(loss: Callable[..., Tensor], inputs: SurrogateInputs, log_ratio_NT: Tensor) -> Tensor:
    better_N = _first_of(inputs.advantage_NT, inputs.mask_NT)
    loss_N = loss(ratios.completion_log_ratio(log_ratio_NT, inputs.mask_NT), better_N)
    # At each of its tokens, so that a mean over them gives the completion's loss again.
    return masked.broadcast_to_tokens(loss_N, inputs.mask_NT)


@needs("pairs")
def p3o(inputs: SurrogateInputs, /, clip_low: ClipLow = 0.2) -> Tensor:
    """Clip of an answer's ratio, weighed with that of the other of its pair."""
    return _of_pairs(partial(policy.p3o_separate, clip=clip_low), inputs, inputs.log_ratio_NT)


@needs("pairs")
def p3o_joint(inputs: SurrogateInputs, /, clip_low: ClipLow = 0.2) -> Tensor:
    """One clip for the relative log-ratio of a pair."""
    return _of_pairs(partial(policy.p3o_joint, clip=clip_low), inputs, inputs.log_ratio_NT)


@needs("pairs", "reference")
def online_dpo(inputs: SurrogateInputs, /, beta: Beta = 0.05) -> Tensor:
    """−log σ(βh) of two fresh answers."""
    return _of_pairs(partial(policy.online_dpo, beta=beta), inputs, inputs.ref_log_ratio_NT)


@needs("pairs", "reference")
def online_ipo(inputs: SurrogateInputs, /, beta: Beta = 0.05) -> Tensor:
    """(h − 1/2β)² of two fresh answers."""
    return _of_pairs(partial(policy.online_ipo, beta=beta), inputs, inputs.ref_log_ratio_NT)


def token_ratio(log_ratio_NT: Tensor, mask_NT: Tensor, /) -> Tensor:
    del mask_NT
    return log_ratio_NT


def answer_ratio(log_ratio_NT: Tensor, mask_NT: Tensor, /) -> Tensor:
    """The mean log-ratio of the answer, (π/π_old)^(1/|y|)."""
    return ratios.sequence_log_ratio(log_ratio_NT, mask_NT)


def answer_token_ratio(log_ratio_NT: Tensor, mask_NT: Tensor, /) -> Tensor:
    return ratios.sequence_token_log_ratio(log_ratio_NT, mask_NT)


def token_mean(loss_NT: Tensor, mask_NT: Tensor, counts: LossCounts, /) -> Tensor:
    return reduce.token_mean(loss_NT, mask_NT, tokens=counts.tokens)


def answer_mean(loss_NT: Tensor, mask_NT: Tensor, counts: LossCounts, /) -> Tensor:
    return reduce.sequence_mean(loss_NT, mask_NT, completions=counts.completions)


def fixed_length(loss_NT: Tensor, mask_NT: Tensor, counts: LossCounts, /) -> Tensor:
    """Every place for a token counts the same, filled or not."""
    return reduce.fixed_length(loss_NT, mask_NT, completions=counts.completions, longest=counts.max_tokens)


def _by_name(*cells: Callable[..., Tensor]) -> dict[str, Callable[..., Tensor]]:
    return {cell.__name__.replace("_", "-"): cell for cell in cells}


ADVANTAGES: Mapping[str, Callable[..., Tensor]] = _by_name(
    *(gae, monte_carlo, one_step, bandit, group_z, group_mean),
    *(leave_one_out, greedy, preference, running, whitened),
)
SURROGATES: Mapping[str, Callable[..., Tensor]] = {
    **_by_name(log_prob, unclipped, clip),
    "dual-clip": dual_clipped,
    **_by_name(rollback, kl_trigger, kl_penalty, cispo, p3o, p3o_joint),
    "dpo": online_dpo,
    "ipo": online_ipo,
}
RATIOS: Mapping[str, Callable[..., Tensor]] = {
    "token": token_ratio,
    "answer": answer_ratio,
    "answer-token": answer_token_ratio,
}
REDUCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "tokens": token_mean,
    "answers": answer_mean,
    "fixed": fixed_length,
}
NAMED: Mapping[str, Mapping[str, Callable[..., Tensor]]] = {
    "advantage": ADVANTAGES,
    "surrogate": SURROGATES,
    "ratio": RATIOS,
    "reduction": REDUCTIONS,
}
"""Each cell that is a function of its own, with the ones that have a name."""


def _choice(name: str, words: Iterable[str], doc: str) -> Parameter:
    # From the table itself, so that options, help and refusals cannot know other names than it.
    choices = Literal.__getitem__(("auto", *words))  # pyright: ignore[reportAttributeAccessIssue]
    return Parameter(name=name, value_type=choices, default="auto", doc=doc)


def _settings_of_named_cells() -> dict[str, Parameter]:
    # Cells that share a setting (clip_low, gamma) share one option.
    every = (describe(cell).parameters for table in NAMED.values() for cell in table.values())
    return {name: optional(parameter) for parameters in every for name, parameter in parameters.items()}


ESTIMATORS = ("k1", "k2", "k3")
"""The estimators of the KL from the reference (``losses/divergence.py``)."""
_NUMBERS: Mapping[str, Any] = {
    "kl_coef": KlCoef,
    "kl_coef_target": Annotated[
        Positive, "The KL of an answer in the reward that kl_coef is made to follow; none: it stays."
    ],
    "kl_coef_horizon": Annotated[Positive, "Answers in which kl_coef goes all the way to its target."],
    "penalty_coef": PenaltyCoef,
    "penalty_coef_target": PenaltyTarget,
    "entropy_coef": EntropyCoef,
    "whiten_advantages": Annotated[
        bool, "Whether advantages get mean 0 and deviation 1 over the round; where nobody says: with GAE."
    ],
    "vf_coef": VfCoef,
    "value_lr_scale": Annotated[Positive, "The critic's learning rate, as a multiple of the policy's."],
    "ptx_coef": PtxCoef,
    "update_epochs": UpdateEpochs,
    "minibatches": Minibatches,
    "target_kl": Annotated[
        Positive, "KL(π_old ‖ π) a token beyond which the rest of a round is left out; none: never."
    ],
    "tis_cap": Annotated[
        FromZero,
        "The largest weight of a token for what the sampler drew otherwise than the policy (truncated "
        "importance sampling); 0 weighs nothing.",
    ],
    "off_policy_mask": Annotated[
        FromZero,
        "Nats a token by which a bad answer may have become rarer in its round before it is masked; 0 keeps "
        "all.",
    ],
    "group_size": GroupSize,
    "dynamic_sampling": DynamicSampling,
    "mixture_coef": MixtureCoef,
    "overlong_filtering": OverlongFiltering,
    "overlong_buffer": OverlongBuffer,
    "missing_eos_penalty": Annotated[float, "The score of an answer that was cut, in place of its own."],
}
CELLS: Mapping[str, Parameter] = {
    "advantage": _choice("advantage", ADVANTAGES, "What a token is measured against."),
    "surrogate": _choice("surrogate", SURROGATES, "What a token loses."),
    "ratio": _choice(
        "ratio", RATIOS, "Whose ratio: of each token, of the answer, or of it with each token's own gradient."
    ),
    "reduction": _choice(
        "reduction",
        REDUCTIONS,
        "The mean over tokens, over answers, or over places for tokens, filled or not.",
    ),
    "divergence": _choice(
        "divergence", ("reward", "loss", "none"), "Where the KL from the reference counts."
    ),
    "kl_estimator": _choice(
        "kl_estimator", ESTIMATORS, "How it is estimated at a token; auto: k1 in the reward, k3 in the loss."
    ),
    **_settings_of_named_cells(),
    **{name: optional(make_parameter(name, hint, None)) for name, hint in _NUMBERS.items()},
}
"""Every cell, and every setting of a cell, that can be given by name."""


def with_cells(record: PolicyAlgorithm, cells: Mapping[str, Any]) -> PolicyAlgorithm:
    """The algorithm with these cells in place of its own; a cell of another name keeps the settings."""
    check_settings(CELLS, cells)
    changes: dict[str, Any] = {name: value for name, value in cells.items() if name in _NUMBERS}
    for kind, table in NAMED.items():
        default = getattr(record, kind)
        cell = table[cells[kind]] if kind in cells else default
        # The later wins: what the algorithm was made with, what its cell has bound, what the user gave.
        settings = {**record.settings, **cell_settings(default), **cells} if kind in cells else cells
        bound = {name: settings[name] for name in cell_settings(cell) if name in settings}
        changes[kind] = partial(cell, **bound) if bound else cell
    if "divergence" in cells or "kl_estimator" in cells:
        changes |= _divergence(record, cells)
    return replace(record, **changes)


def _divergence(record: PolicyAlgorithm, cells: Mapping[str, Any]) -> dict[str, Any]:
    """The KL from the reference in another place or by another estimator, with a coefficient."""
    place = cells.get("divergence", record.divergence)
    # In the reward an estimate counts by its value, and k1 is unbiased; in a loss only its gradient
    # counts, and k1's is 0 on average.
    name = cells.get("kl_estimator", "k1" if place == "reward" else "k3")
    estimator: KlEstimator = getattr(divergence, name)
    changes: dict[str, Any] = {
        "reward_kl": estimator if place == "reward" else None,
        "loss_kl": estimator if place == "loss" else None,
    }
    if place == "none":
        changes["kl_coef"] = 0.0
    # An algorithm without a KL has coefficient 0, which would hold nothing in its new place either.
    elif "kl_coef" not in cells and record.divergence == "none":
        changes["kl_coef"] = DEFAULT_KL_COEF
    return changes


DEFAULT_KL_COEF = 0.05
"""The KL coefficient of an algorithm without a KL that is given one by name."""


def cell_name(kind: str, record: PolicyAlgorithm) -> str:
    """The name of a cell; one of the user's own has the name of its function."""
    cell = getattr(record, kind)
    # A cell with settings is a partial of the function that the tables name.
    plain = cell.func if isinstance(cell, partial) else cell
    names = {function: name for name, function in NAMED[kind].items()} | {group_z_of_steps: "group-z"}
    return names.get(plain, getattr(plain, "__name__", "own"))


def describe_cells(record: PolicyAlgorithm) -> str:
    kl = {"reward": "KL in reward", "loss": "KL in loss", "none": "no KL"}[record.divergence]
    kl = "log-ratios to the reference" if "reference" in needs_of(record.surrogate) else kl
    ratio = cell_name("ratio", record)
    suffix = "" if ratio == "token" else f" of the {ratio}"
    critic = ", critic" if "critic" in record.needs else ""
    advantage, surrogate = cell_name("advantage", record), cell_name("surrogate", record)
    reduction = cell_name("reduction", record)
    return f"{advantage} · {surrogate}{suffix} · {kl} · mean over {reduction}{critic}"


_OF_A_KL = {"kl_coef", "kl_estimator", "kl_coef_target", "kl_coef_horizon"}
_OF_A_NEED = {
    "critic": {"vf_coef", "value_lr_scale"},
    "adaptive_penalty": {"penalty_coef", "penalty_coef_target"},
}


def readable_settings(record: PolicyAlgorithm) -> frozenset[str]:
    # Out with all that depends on a cell or a need; then back in with what this algorithm's cells read.
    conditional = {*_OF_A_NEED["critic"], *_OF_A_NEED["adaptive_penalty"], *_settings_of_named_cells()}
    reads = {*CELLS} - conditional - _OF_A_KL - {"mixture_coef"}
    for kind in NAMED:
        reads |= {*cell_settings(getattr(record, kind))}
    for need in record.needs & {*_OF_A_NEED}:
        reads |= _OF_A_NEED[need]
    if record.divergence != "none":
        reads |= _OF_A_KL if record.divergence == "reward" else {"kl_coef", "kl_estimator"}
    if "rival" in record.needs or "reference" in needs_of(record.surrogate):
        reads |= {"mixture_coef"}
    # TRPO's max_kl is a field of the record; elsewhere it is a setting of the cell that reads it.
    return frozenset(reads | ({"max_kl"} if record.max_kl else set[str]()))


_UNREAD = {
    "kl_estimator": "kl_estimator: {name} has no divergence to estimate; leave it out",
    "kl_coef_target": "kl_coef_target moves the coefficient of a KL in the reward, and {name} has none there",
    "whiten_rewards": "whiten_rewards divides the rewards of tokens, and {name} has only those of answers",
    "mixture_coef": "mixture_coef: {name} learns from answers of the policy itself, and those of another "
    "distribution would teach it something else; leave it out, or take ipo-md or nash-md",
    "beta": "beta is that of an online preference loss, and {name} has none ({cells}): the KL coefficient is "
    "kl_coef",
}


_UNREAD_OTHERWISE = (
    "{setting} is read by no cell of {name} ({cells}): leave it out, or set the cell that reads it"
)


def refuse_unread(record: PolicyAlgorithm, given: frozenset[str]) -> None:
    """Raise for a setting that no cell of this algorithm reads."""
    for setting in sorted(given - readable_settings(record)):
        words = _UNREAD.get(setting, _UNREAD_OTHERWISE)
        raise UserError(words.format(setting=setting, name=record.name, cells=describe_cells(record)))
