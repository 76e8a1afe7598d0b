"""From a config to the reference that a policy is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from plaudit.batches.template import Encoder, make_encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.models.reference import Beneath, Beside, Nobody, Reference
from plaudit.recipes.learner import Start
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.policies import load_frozen
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.preference_config import PreferenceConfig, ReferenceSettings
from plaudit.training.companion import Companion, Follower
from plaudit.training.kept_logps import Origin, kept, usual_cache
from plaudit.training.lineage import hash_path

EVERY, SHARE = 64, 0.6
"""How often and how far an average reference moves (Gorbatovski et al. 2024: α 0.6, τ 64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A reference and what comes with it.

    Example: ``Prepared(reference=Nobody(), same=True, notes=())``
    """

    reference: Reference
    """What says log π_ref."""
    same: bool
    """Whether it is the very model that the run starts from."""
    notes: tuple[str, ...] = ()
    """What was decided, for the user."""
    companions: dict[str, Companion] = field(default_factory=dict[str, Companion])
    """What of it moves with the run."""
    live: bool = False
    """Whether it is asked at each step."""


def refuse_unread(name: str, settings: ReferenceSettings, *, referenced: bool) -> None:
    """Complain about settings of a reference that there is not, or that does not move."""
    usual = ReferenceSettings()
    said = [
        each
        for each in ReferenceSettings.__dataclass_fields__
        if getattr(settings, each) != getattr(usual, each)
    ]
    if said and not referenced:
        words = " and ".join(f"reference.{each}" for each in said)
        raise UserError(f"{words}: {name} has no reference; leave out what is said of one")
    if settings.kind == "none":
        raise UserError(f"reference.kind none: {name} compares the policy with one; take orpo, simpo or cpo")
    if settings.kind != "average" and (settings.every is not None or settings.share is not None):
        raise UserError("reference.every and reference.share are of a reference that moves: kind average")


def refuse_other_vocabulary(config: PreferenceConfig | PolicyConfig, encoder: Encoder) -> None:
    """Complain about a reference whose tokens mean something else, before anything is computed."""
    folder = config.reference.model
    if folder is None or folder == config.model:
        return
    own, other = encoder.info.tokenizer.get_vocab(), make_encoder(folder).info.tokenizer.get_vocab()
    if own == other:
        return
    word = next(word for word in {**own, **other} if own.get(word) != other.get(word))
    raise UserError(
        f"reference.model {folder}: its tokenizer is another one ({len(other):,} tokens, the policy's has "
        f"{len(own):,}; {word!r} is {other.get(word, 'unknown')} there and {own.get(word, 'unknown')} here), "
        "so log-probs of the same tokens mean different texts. Take a reference of the policy's own family"
    )


def short_run(config: PreferenceConfig, rows: int) -> PreferenceConfig:
    """Ask the reference at each step where these are so few that most rows would be computed for nothing."""
    few = config.steps is not None and 2 * config.steps * config.batch_size < rows
    if not few or config.reference.kind != "auto":
        return config
    return replace(config, reference=replace(config.reference, kind="live"))


def prepare_reference(
    config: PreferenceConfig, policy: Policy, start: Start, examples: Sequence[Example]
) -> Prepared:
    """The reference of a policy that is loaded and still whole; ``examples`` is all that it is asked."""
    settings = config.reference
    folder = settings.model or config.model
    same = folder == config.model or hash_path(folder) == hash_path(config.model)
    products = partial(arithmetic, start.numbers, start.ranks.device)
    if settings.kind == "average":
        return _following(config, policy, start, Beside(load_frozen(folder, policy), products), same=same)
    if settings.kind == "live" and same and config.lora.rank:
        note = "reference: the model beneath the adapters, so there is no second one in memory"
        return Prepared(reference=Beneath(policy, products), same=True, notes=(note,), live=True)
    if settings.kind == "live":
        frozen = load_frozen(folder, policy)
        place(frozen, config, start.ranks)
        note = f"reference: {folder}, beside the policy in memory"
        return Prepared(reference=Beside(frozen, products), same=same, notes=(note,), live=True)
    # At this point the policy is still the model that the run starts from, adapters and all.
    asked = Beside(policy if same else load_frozen(folder, policy), products)
    found, note = kept(
        asked,
        examples,
        Origin(model=hash_path(folder), numbers=start.numbers),
        start.ranks,
        cache=settings.cache or usual_cache(),
        tokens_at_once=config.memory.tokens_at_once,
    )
    return Prepared(reference=found, same=same, notes=(note,) if note else ())


def nobody() -> Prepared:
    """For algorithms without a reference."""
    return Prepared(reference=Nobody(), same=True)


def _following(
    config: PreferenceConfig, policy: Policy, start: Start, reference: Beside, *, same: bool
) -> Prepared:
    settings = config.reference
    if config.lora.rank:
        raise UserError(
            "reference.kind average follows all weights of the policy, and LoRA trains only adapters: leave "
            "out --lora.rank, or take another kind of reference"
        )
    every, share = settings.every or EVERY, settings.share or SHARE
    place(reference.policy, config, start.ranks)
    how = "becomes the policy" if share == 1 else f"moves {share:g} of the way towards the policy"
    return Prepared(
        reference=reference,
        same=same,
        notes=(f"reference: beside the policy in memory; every {every} steps it {how}",),
        companions={"reference": Follower(reference.policy, of=policy, every=every, share=share)},
        live=True,
    )
