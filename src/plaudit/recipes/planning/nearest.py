"""Settings near those of a run that does not fit: each change is planned anew, and offered when it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plaudit.recipes.config import RunConfig
from plaudit.recipes.planning.price import Planned, Price, may_fit, price
from plaudit.recipes.planning.roles import LIVE
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.preference_config import PreferenceConfig

RANK = 16
"""The rank of the adapters that are offered."""
LEAST = 512
"""Fewer tokens at once are not offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another setting.

    Example: ``Change(words="--memory.checkpointing", config=config, means="…")``
    """

    words: str
    """What is added to the command."""
    config: RunConfig
    """The run with it."""
    means: str
    """What it does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """A change, and what the run then costs.

    Example: ``nearest(found)[0].price.fits``
    """

    change: Change
    """What is changed."""
    price: Price
    """What that comes to."""


def nearest(found: Price) -> tuple[Offer, ...]:
    """What fits: single changes, those first that leave the gradient as it is; else all of them together."""
    return _fitting(found.planned, _single(found)) or _fitting(found.planned, _together(found))


def least(found: Price) -> Offer | None:
    """All that spares memory together, whether it fits or not."""
    changes = [*_together(found)]
    return _offer(found.planned, changes[-1]) if changes else None


def _fitting(planned: Planned, changes: Iterator[Change]) -> tuple[Offer, ...]:
    may = (change for change in changes if may_fit(replace(planned, config=change.config)))
    tried = (_offer(planned, change) for change in may)
    return tuple(one for one in tried if one.price.fits)


def _offer(planned: Planned, change: Change) -> Offer:
    return Offer(change=change, price=price(replace(planned, config=change.config)))


def _single(found: Price) -> Iterator[Change]:
    config = found.planned.config
    for step in (_recomputed, _smaller, _asked_before, _divided, _shared, _adapted):
        yield from step(found, config)


def _together(found: Price) -> Iterator[Change]:
    """One change after another on top of those before, in the same order."""
    config, words, means = found.planned.config, [], []
    for step in (_recomputed, _asked_before, _divided, _shared, _adapted, _smaller):
        changes = [*step(found, config)]
        if not changes:
            continue
        config = changes[-1].config
        words.append(changes[-1].words)
        means.append(changes[-1].means)
        if len(words) > 1:
            yield Change(words=" ".join(words), config=config, means="; ".join(dict.fromkeys(means)))


def _recomputed(found: Price, config: RunConfig) -> Iterator[Change]:
    del found
    if not config.memory.checkpointing:
        yield Change(
            words="--memory.checkpointing",
            config=replace(config, memory=replace(config.memory, checkpointing=True)),
            means="the same gradient; each step computes its forward pass twice",
        )


def _smaller(found: Price, config: RunConfig) -> Iterator[Change]:
    """Half as many tokens again and again, as far as pieces do become smaller."""
    room = min(config.memory.tokens_at_once, sum(one.tokens for one in found.schedule.largest))
    longest = max(one.tokens for one in found.schedule.largest)
    while room // 2 >= max(LEAST, longest):
        room //= 2
        yield Change(
            words=f"--memory.tokens-at-once {room}",
            config=replace(config, memory=replace(config.memory, tokens_at_once=room)),
            means="the same gradient, in smaller pieces",
        )


def _asked_before(found: Price, config: RunConfig) -> Iterator[Change]:
    if (
        isinstance(config, PreferenceConfig)
        and found.roles.reference == LIVE
        and config.reference.kind == "live"
    ):
        yield Change(
            words="--reference.kind precomputed",
            config=replace(config, reference=replace(config.reference, kind="precomputed")),
            means="the same gradient; the reference is asked once, before the first step",
        )


def _divided(found: Price, config: RunConfig) -> Iterator[Change]:
    if found.planned.machine.ranks > 1 and not (
        config.shard or config.lora.rank or isinstance(config, PolicyConfig)
    ):
        yield Change(
            words="--shard",
            config=replace(config, shard=True),
            means="the same gradient; weights and optimiser are divided over the processes",
        )


def _shared(found: Price, config: RunConfig) -> Iterator[Change]:
    if isinstance(config, PolicyConfig) and found.roles.critic is not None and config.critic.model is None:
        yield Change(
            words="--critic.shared",
            config=replace(config, critic=replace(config.critic, shared=True)),
            means="another run: the critic is a head on the policy's own layers",
        )


def _adapted(found: Price, config: RunConfig) -> Iterator[Change]:
    average = isinstance(config, PreferenceConfig | PolicyConfig) and config.reference.kind == "average"
    if config.lora.rank or average or config.shard:
        return
    beneath = found.roles.reference == LIVE
    yield Change(
        words=f"--lora.rank {RANK}",
        config=replace(config, lora=replace(config.lora, rank=RANK)),
        means="another run: small matrices learn beside frozen weights"
        + (", which are the reference too" if beneath else ""),
    )
