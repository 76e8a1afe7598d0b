"""The reference of a run: none, live, precomputed or moving average; in policy runs it scores every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plaudit.engine.lineage import hash_path
from plaudit.engine.reference_cache import ReferenceSource, cached_reference, default_cache_folder
from plaudit.engine.stateful import EmaReference, Stateful
from plaudit.errors import UserError
from plaudit.methods.models import load_frozen_policy, shard_or_broadcast
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig, ReferenceSettings
from plaudit.methods.run import Run
from plaudit.models.policy import Policy
from plaudit.models.reference import AdapterOffReference, ModelReference, NoReference, Reference
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, make_encoder

EMA_EVERY, EMA_SHARE = 64, 0.6
"""How often and how far an average reference moves (Gorbatovski et al. 2024: α 0.6, τ 64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReference:
    """A loaded reference, what it adds to the run's state, and notes for the user.

    Example: ``PreparedReference(reference=NoReference(), is_starting_model=True, notes=())``
    """

    reference: Reference
    """The source of log π_ref."""
    is_starting_model: bool
    """Whether it is the model that the run starts from, so that all log-ratios are 0 at first."""
    notes: tuple[str, ...] = ()
    """What was decided, for the user."""
    state: dict[str, Stateful] = field(default_factory=dict[str, Stateful])
    """Its part of a checkpoint, where it follows the policy."""
    live: bool = False
    """Whether it does a forward pass at each step."""


def refuse_unused_reference_settings(name: str, settings: ReferenceSettings, *, referenced: bool) -> None:
    """Raise for settings of a reference, or of a moving average, that the run does not have."""
    defaults = ReferenceSettings()
    changed = [
        setting
        for setting in ReferenceSettings.__dataclass_fields__
        if getattr(settings, setting) != getattr(defaults, setting)
    ]
    if changed and not referenced:
        words = " and ".join(f"reference.{setting}" for setting in changed)
        raise UserError(f"{words}: {name} has no reference; leave out what is said of one")
    if settings.kind == "none":
        raise UserError(f"reference.kind none: {name} compares the policy with one; take orpo, simpo or cpo")
    if settings.kind != "average" and (settings.every is not None or settings.share is not None):
        raise UserError("reference.every and reference.share are of a reference that moves: kind average")


def refuse_other_vocabulary(config: PreferenceConfig | PolicyConfig, encoder: Encoder) -> None:
    """Raise for a reference whose token ids mean other texts, before anything is computed."""
    folder = config.reference.model
    if folder is None or folder == config.model:
        return
    vocabulary, other_vocabulary = (
        encoder.info.tokenizer.get_vocab(),
        make_encoder(folder).info.tokenizer.get_vocab(),
    )
    if vocabulary == other_vocabulary:
        return
    token = next(
        token
        for token in {**vocabulary, **other_vocabulary}
        if vocabulary.get(token) != other_vocabulary.get(token)
    )
    raise UserError(
        f"reference.model {folder}: its tokenizer is another one ({len(other_vocabulary):,} tokens, the "
        "policy's has "
        f"{len(vocabulary):,}; {token!r} is {other_vocabulary.get(token, 'unknown')} there and "
        f"{vocabulary.get(token, 'unknown')} here), "
        "so log-probs of the same tokens mean different texts. Take a reference of the policy's own family"
    )


def use_live_reference_if_short(config: PreferenceConfig, rows: int) -> PreferenceConfig:
    """The config with a live reference where a short run would precompute rows that it never trains."""
    is_short = config.steps is not None and 2 * config.steps * config.batch_size < rows
    if not is_short or config.reference.kind != "auto":
        return config
    return replace(config, reference=replace(config.reference, kind="live"))


def prepare_reference(
    config: PreferenceConfig, policy: Policy, run: Run, examples: Sequence[Example]
) -> PreparedReference:
    """The reference of a loaded policy, not sharded yet; ``examples`` is all that it will score."""
    settings = config.reference
    folder = settings.model or config.model
    is_starting_model = folder == config.model or hash_path(folder) == hash_path(config.model)
    if settings.kind == "average":
        return _ema_reference(
            config,
            policy,
            run,
            ModelReference(load_frozen_policy(folder, policy), run.autocast),
            is_starting_model=is_starting_model,
        )
    if settings.kind == "live" and is_starting_model and config.lora.rank:
        note = "reference: the model beneath the adapters, so there is no second one in memory"
        return PreparedReference(
            reference=AdapterOffReference(policy, run.autocast),
            is_starting_model=True,
            notes=(note,),
            live=True,
        )
    if settings.kind == "live":
        frozen = load_frozen_policy(folder, policy)
        shard_or_broadcast(frozen, config, run.ranks)
        note = f"reference: {folder}, beside the policy in memory"
        return PreparedReference(
            reference=ModelReference(frozen, run.autocast),
            is_starting_model=is_starting_model,
            notes=(note,),
            live=True,
        )
    # At this point the policy is still the model that the run starts from, adapters and all.
    source = ModelReference(policy if is_starting_model else load_frozen_policy(folder, policy), run.autocast)
    return _precomputed_reference(config, source, run, examples, is_starting_model=is_starting_model)


def _precomputed_reference(
    config: PreferenceConfig,
    source: ModelReference,
    run: Run,
    examples: Sequence[Example],
    *,
    is_starting_model: bool,
) -> PreparedReference:
    """The log-probs of all examples, computed now or found in the cache."""
    settings = config.reference
    cached, note = cached_reference(
        source,
        examples,
        ReferenceSource(model_hash=hash_path(settings.model or config.model), precision=run.precision),
        run.ranks,
        cache=settings.cache or default_cache_folder(),
        tokens_at_once=config.memory.tokens_at_once,
    )
    return PreparedReference(
        reference=cached, is_starting_model=is_starting_model, notes=(note,) if note else ()
    )


def no_reference() -> PreparedReference:
    """The reference of algorithms that have none."""
    return PreparedReference(reference=NoReference(), is_starting_model=True)


def _ema_reference(
    config: PreferenceConfig | PolicyConfig,
    policy: Policy,
    run: Run,
    reference: ModelReference,
    *,
    is_starting_model: bool,
) -> PreparedReference:
    settings = config.reference
    if config.lora.rank:
        raise UserError(
            "reference.kind average follows all weights of the policy, and LoRA trains only adapters: leave "
            "out --lora.rank, or take another kind of reference"
        )
    every, share = settings.every or EMA_EVERY, settings.share or EMA_SHARE
    shard_or_broadcast(reference.policy, config, run.ranks)
    change = "becomes the policy" if share == 1 else f"moves {share:g} of the way towards the policy"
    return PreparedReference(
        reference=reference,
        is_starting_model=is_starting_model,
        notes=(f"reference: beside the policy in memory; every {every} steps it {change}",),
        state={"reference": EmaReference(reference.policy, source=policy, every=every, share=share)},
        live=True,
    )


def prepare_policy_reference(
    config: PolicyConfig, policy: Policy, run: Run, *, needed: bool
) -> PreparedReference:
    """The reference of a loaded policy, not sharded yet; ``needed`` by the loss or the reward."""
    settings = config.reference
    if settings.kind == "precomputed":
        raise UserError("reference.kind precomputed: answers are new at every round; use live, or average")
    if settings.kind == "none":
        if needed:
            raise UserError(
                "reference.kind none: this algorithm holds the policy near its reference; add "
                "--divergence none to do without"
            )
        return no_reference()
    folder = settings.model or config.model
    is_starting_model = folder == config.model or hash_path(folder) == hash_path(config.model)
    temperature = config.draw.temperature
    if is_starting_model and config.lora.rank and settings.kind != "average":
        note = "reference: the model beneath the adapters, so there is no second one in memory"
        adapter_off = AdapterOffReference(policy, run.autocast, temperature=temperature)
        return PreparedReference(reference=adapter_off, is_starting_model=True, notes=(note,), live=True)
    frozen = ModelReference(load_frozen_policy(folder, policy), run.autocast, temperature=temperature)
    if settings.kind == "average":
        return _ema_reference(config, policy, run, frozen, is_starting_model=is_starting_model)
    shard_or_broadcast(frozen.policy, config, run.ranks)
    note = f"reference: {folder}, beside the policy in memory"
    return PreparedReference(reference=frozen, is_starting_model=is_starting_model, notes=(note,), live=True)
