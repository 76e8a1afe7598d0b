"""Suggestions for a run that does not fit: settings that are planned anew and do fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.runs.planner.cost import PlanRequest, RunCost, estimate_cost, may_fit
from plaudit.runs.planner.models import LIVE

SUGGESTED_LORA_RANK = 16
MIN_TOKENS_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    words: str
    config: RunConfig
    means: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suggestion:
    change: SettingChange
    cost: RunCost


def suggest(cost: RunCost) -> tuple[Suggestion, ...]:
    """Single changes that fit, those with the same gradient first; else all of them together."""
    return _suggestions_that_fit(cost.request, _single_changes(cost)) or _suggestions_that_fit(
        cost.request, _combined_changes(cost)
    )


def smallest_suggestion(cost: RunCost) -> Suggestion | None:
    """All changes that save memory together, whether the run then fits or not; None where there is none."""
    changes = [*_combined_changes(cost)]
    return _make_suggestion(cost.request, changes[-1]) if changes else None


def _suggestions_that_fit(request: PlanRequest, changes: Iterator[SettingChange]) -> tuple[Suggestion, ...]:
    candidates = (change for change in changes if may_fit(replace(request, config=change.config)))
    suggestions = (_make_suggestion(request, change) for change in candidates)
    return tuple(suggestion for suggestion in suggestions if suggestion.cost.fits)


def _make_suggestion(request: PlanRequest, change: SettingChange) -> Suggestion:
    return Suggestion(change=change, cost=estimate_cost(replace(request, config=change.config)))


def _single_changes(cost: RunCost) -> Iterator[SettingChange]:
    config = cost.request.config
    for step in (
        _enable_checkpointing,
        _smaller_microbatches,
        _precompute_reference,
        _shard_weights,
        _compact_moments,
        _share_critic,
        _use_lora,
        _hold_base_in_four_bits,
    ):
        yield from step(cost, config)


def _combined_changes(cost: RunCost) -> Iterator[SettingChange]:
    config, words, means = cost.request.config, [], []
    for step in (
        _enable_checkpointing,
        _precompute_reference,
        _shard_weights,
        _compact_moments,
        _share_critic,
        _use_lora,
        _hold_base_in_four_bits,
        _smaller_microbatches,
    ):
        changes = [*step(cost, config)]
        if not changes:
            continue
        config = changes[-1].config
        words.append(changes[-1].words)
        means.append(changes[-1].means)
        if len(words) > 1:
            yield SettingChange(words=" ".join(words), config=config, means="; ".join(dict.fromkeys(means)))


def _enable_checkpointing(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    del cost
    if not config.memory.checkpointing:
        yield SettingChange(
            words="--memory.checkpointing",
            config=replace(config, memory=replace(config.memory, checkpointing=True)),
            means="the same gradient; each step computes its forward pass twice",
        )


def _smaller_microbatches(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    # Half as many tokens at once again and again, as long as micro-batches do become smaller.
    tokens_at_once = min(
        config.memory.tokens_at_once, sum(example.tokens for example in cost.schedule.largest)
    )
    longest = max(example.tokens for example in cost.schedule.largest)
    while tokens_at_once // 2 >= max(MIN_TOKENS_AT_ONCE, longest):
        tokens_at_once //= 2
        yield SettingChange(
            words=f"--memory.tokens-at-once {tokens_at_once}",
            config=replace(config, memory=replace(config.memory, tokens_at_once=tokens_at_once)),
            means="the same gradient, in smaller pieces",
        )


def _precompute_reference(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    if (
        isinstance(config, PreferenceConfig)
        and cost.roles.reference_kind == LIVE
        and config.reference.kind == "live"
    ):
        yield SettingChange(
            words="--reference.kind precomputed",
            config=replace(config, reference=replace(config.reference, kind="precomputed")),
            means="the same gradient; the reference is asked once, before the first step",
        )


def _shard_weights(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    if cost.request.machine.ranks > 1 and not (config.shard or config.lora.base == "4bit"):
        yield SettingChange(
            words="--shard",
            config=replace(config, shard=True),
            means="the same gradient; weights and optimiser are divided over the processes",
        )


def _compact_moments(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    # AdamW's moments in 16 bits, then in 8.
    del cost
    if config.optimizer.name == "adamw" and config.optimizer.state == "float32" and not config.lora.rank:
        for state in ("bfloat16", "float8"):
            yield SettingChange(
                words=f"--optimizer.state {state}",
                config=replace(config, optimizer=replace(config.optimizer, state=state)),
                means="another run, though nearly the same: the optimiser's moments are rounded by chance",
            )


def _share_critic(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    if isinstance(config, PolicyConfig) and cost.roles.critic is not None and config.critic.model is None:
        yield SettingChange(
            words="--critic.shared",
            config=replace(config, critic=replace(config.critic, shared=True)),
            means="another run: the critic is a head on the policy's own layers",
        )


def _use_lora(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    average = isinstance(config, PreferenceConfig | PolicyConfig) and config.reference.kind == "average"
    if config.lora.rank or average or config.shard:
        return
    frees_reference = cost.roles.reference_kind == LIVE
    yield SettingChange(
        words=f"--lora.rank {SUGGESTED_LORA_RANK}",
        config=replace(config, lora=replace(config.lora, rank=SUGGESTED_LORA_RANK)),
        means="another run: small matrices learn beside frozen weights"
        + (", which are the reference too" if frees_reference else ""),
    )


def _hold_base_in_four_bits(cost: RunCost, config: RunConfig) -> Iterator[SettingChange]:
    del cost
    if config.lora.rank and config.lora.base == "auto" and not config.lora.keep:
        yield SettingChange(
            words="--lora.base 4bit",
            config=replace(config, lora=replace(config.lora, base="4bit")),
            means="another run: frozen weights are rounded to 4 bits; slower by what it takes to widen them",
        )
