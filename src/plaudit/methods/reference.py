"""The reference of a run: none, live, precomputed or moving average; in policy runs it scores every round.

A precomputed reference is kept on disk by what it was made of:

    CACHE/<hash>/logp.safetensors    log π_ref of every token, answers one behind the other
    CACHE/<hash>/facts.json          what it was made of, and the file's hash

The hash is that of the model's folder, the numbers it computes in and the rows' content, so another
epoch or another run finds the file, and anything else does not. A damaged file is made again, with a note.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plaudit.engine.checkpoint.state import EmaReference, Stateful
from plaudit.engine.distributed import Ranks
from plaudit.engine.run_folder import hash_file, hash_path
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.files.stored import LazyRows, cache_folder
from plaudit.methods.config import ReferenceSettings, RunConfig
from plaudit.methods.models import load_frozen_policy, shard_or_broadcast
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.run import Run
from plaudit.models.load import Precision
from plaudit.models.policy import (
    AdapterOffReference,
    CachedReference,
    ModelReference,
    NoReference,
    Policy,
    Reference,
    completion_spans,
    compute_reference_logps,
)
from plaudit.tokens.batch import Example, join_completions
from plaudit.tokens.encode import Encoder, make_encoder

LOGP_FILE, FACTS_FILE = "logp.safetensors", "facts.json"
MAX_COMPLETIONS_TOGETHER = 8
"""The most completions of one prompt in one forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource:
    """What determines a reference's log-probs beside the rows: the model and its precision."""

    model_hash: str
    precision: Precision
    base: str = "auto"
    """How frozen weights beneath adapters are held (`LoraSettings.base`)."""

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.precision.weights, torch.float32)


def cached_reference(
    reference: Reference,
    examples: Sequence[Example],
    source: ReferenceSource,
    ranks: Ranks,
    *,
    cache: Path,
    tokens_at_once: int,
) -> tuple[CachedReference, str]:
    """Log-probs from the cache, or computed and cached; and a sentence about which. Every rank calls it."""
    offsets = completion_spans(examples)
    size = sum(end - start for start, end in offsets.values())
    folder = cache / _cache_key(source, examples)
    cached_M, note = _read_cache(folder, size) if ranks.is_first else (None, "")
    # The first rank decides for all: a shared disk may show a new file to some of them only.
    if ranks.all_gather([float(cached_M is not None)])[0][0]:
        logp_M = torch.zeros(size, dtype=source.dtype) if cached_M is None else cached_M
        ranks.broadcast([logp_M])
        found_note = note or f"reference: log-probs found in {folder}"
        return CachedReference(span_by_id=offsets, logp_M=logp_M), found_note
    logp_M = torch.zeros(size, dtype=source.dtype)
    rank_examples = _unique_completions(examples)[ranks.rows.rank :: ranks.rows.world_size]
    values = compute_reference_logps(reference, rank_examples, tokens_at_once, ranks.device)
    completion_ids = [token for example in rank_examples for token in example.completion_ids]
    for completion_id, logp_T in zip(completion_ids, values, strict=True):
        logp_M[slice(*offsets[completion_id])] = logp_T
    # Still 0 where other ranks computed, so that the sum puts the parts together without rounding.
    ranks.rows.all_reduce_sum([logp_M])
    if ranks.is_first:
        note = "; ".join(filter(None, (note, _write_cache(folder, logp_M, source, len(offsets)))))
    return CachedReference(span_by_id=offsets, logp_M=logp_M), note


def _unique_completions(examples: Sequence[Example]) -> list[Example]:
    """Every different answer once, with those to the same prompt beside it."""
    singles_by_prompt: dict[str, dict[str, Example]] = {}
    for example in examples:
        unique = singles_by_prompt.setdefault(example.prompt_id, {})
        for k, completion_id in enumerate(example.completion_ids):
            if completion_id not in unique:
                unique[completion_id] = example.select([k])
    return [
        join_completions(list(unique.values())[start : start + MAX_COMPLETIONS_TOGETHER])
        for unique in singles_by_prompt.values()
        for start in range(0, len(unique), MAX_COMPLETIONS_TOGETHER)
    ]


def _read_cache(folder: Path, size: int) -> tuple[Tensor | None, str]:
    path = folder / LOGP_FILE
    if not folder.is_dir():
        return None, ""
    try:
        record = exact_json.loads((folder / FACTS_FILE).read_bytes())
        # Hashed before it is parsed: a torn write must be a missing file, never a wrong log-prob.
        if record["sha256"] != hash_file(path):
            raise ValueError("its bytes have changed")
        logp_M = load_file(path)["logp"].clone()
        if len(logp_M) != size:
            raise ValueError(f"it holds {len(logp_M):,} numbers, and {size:,} are wanted")
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        return None, f"{path}: the kept log-probs cannot be used ({error}); they were computed again"
    return logp_M, ""


def _write_cache(folder: Path, logp_M: Tensor, source: ReferenceSource, answers: int) -> str:
    """Write the cache; a failure is returned as a sentence and does no harm."""
    record = {
        "model": source.model_hash,
        "weights": str(source.precision.weights),
        "products": str(source.precision.products),
        "answers": answers,
        "tokens": len(logp_M),
    }
    computed_once = f"reference: log-probs of {answers:,} answers computed once"
    try:
        atomic.make_folder(folder.parent)
        with atomic.atomic_folder(folder, needed=logp_M.nbytes) as partial:
            save_file({"logp": logp_M}, partial / LOGP_FILE)
            atomic.write_json(partial / FACTS_FILE, {**record, "sha256": hash_file(partial / LOGP_FILE)})
    except UserError as error:
        return f"{computed_once}; they could not be kept for another run: {error}"
    return f"{computed_once} and kept in {folder}"


def _cache_key(source: ReferenceSource, examples: Sequence[Example]) -> str:
    # The leading 2 numbers this scheme: files of another one are never taken for these.
    numbers = f"{source.precision.weights}/{source.precision.products}"
    digest = hashlib.sha256(f"2/{source.model_hash}/{numbers}".encode())
    if source.base != "auto":
        digest.update(f"/{source.base}".encode())
    # In their order, since spans of the one long tensor are counted along the rows.
    for example in examples:
        digest.update(example.id.encode())
    return digest.hexdigest()[:40]


EMA_EVERY, EMA_SHARE = 64, 0.6
"""How often and how far an average reference moves (Gorbatovski et al. 2024: α 0.6, τ 64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReference:
    reference: Reference
    is_starting_model: bool
    """Whether it is the model that the run starts from, so that all log-ratios are 0 at first."""
    notes: tuple[str, ...] = ()
    state: dict[str, Stateful] = field(default_factory=dict[str, Stateful])
    """Its part of a checkpoint, where it follows the policy."""
    live: bool = False
    """Whether it does a forward pass at each step."""


def refuse_unused_reference_settings(name: str, settings: ReferenceSettings, *, referenced: bool) -> None:
    """Raise for settings of a reference, or of a moving average, that the run does not have."""
    defaults = ReferenceSettings()
    names = ReferenceSettings.__dataclass_fields__
    changed = [name for name in names if getattr(settings, name) != getattr(defaults, name)]
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
    here, there = (each.info.tokenizer.get_vocab() for each in (encoder, make_encoder(folder)))
    if here == there:
        return
    token = next(token for token in {**here, **there} if here.get(token) != there.get(token))
    raise UserError(
        f"reference.model {folder}: its tokenizer is another one ({len(there):,} tokens, the policy's has "
        f"{len(here):,}; {token!r} is {there.get(token, 'unknown')} there and {here.get(token, 'unknown')} "
        "here), so log-probs of the same tokens mean different texts. Take a reference of the policy's own "
        "family"
    )


def settled_reference(config: PreferenceConfig, rows: Sequence[object]) -> PreferenceConfig:
    """The config with a live reference where a short run would precompute rows that it never trains.
    And where rows stay on disk, for their log-probs would not."""
    is_short = config.steps is not None and 2 * config.steps * config.batch_size < len(rows)
    if not (is_short or isinstance(rows, LazyRows)) or config.reference.kind != "auto":
        return config
    return replace(config, reference=replace(config.reference, kind="live"))


def prepare_reference(
    config: PreferenceConfig, policy: Policy, run: Run, examples: Sequence[Example]
) -> PreparedReference:
    """The reference of a loaded policy, not sharded yet; ``examples`` is all that it will score."""
    settings = config.reference
    if settings.kind in ("average", "live"):
        return _live_reference(config, policy, run)
    folder, is_starting_model = _reference_folder(config)
    # At this point the policy is still the model that the run starts from, adapters and all.
    cached, note = cached_reference(
        ModelReference(policy if is_starting_model else load_frozen_policy(folder, policy)),
        examples,
        ReferenceSource(
            model_hash=hash_path(folder),
            precision=run.precision,
            # Another model than the policy is loaded in its own numbers.
            base=config.lora.base if is_starting_model else "auto",
        ),
        run.ranks,
        cache=settings.cache or cache_folder() / "reference",
        tokens_at_once=config.memory.tokens_at_once,
    )
    notes = (note,) if note else ()
    return PreparedReference(reference=cached, is_starting_model=is_starting_model, notes=notes)


def _reference_folder(config: PreferenceConfig | PolicyConfig) -> tuple[Path, bool]:
    """The folder of the reference, and whether it holds the model that the run starts from."""
    folder = config.reference.model or config.model
    # By content as well: a copy of the folder under another name is the same model.
    return folder, folder == config.model or hash_path(folder) == hash_path(config.model)


def _live_reference(
    config: PreferenceConfig | PolicyConfig,
    policy: Policy,
    run: Run,
    *,
    draws: bool = False,
    temperature: int | float = 1.0,
) -> PreparedReference:
    """A reference in memory, which is asked at each step; one that ``draws`` is whole on every rank."""
    folder, is_starting_model = _reference_folder(config)
    moves, divided = config.reference.kind == "average", config.shard and not draws
    if is_starting_model and has_fresh_adapter(config) and not moves:
        note = "reference: the model beneath the adapters, so there is no second one in memory"
        base = AdapterOffReference(policy, temperature=temperature)
        return PreparedReference(reference=base, is_starting_model=True, notes=(note,), live=True)
    loaded = load_frozen_policy(folder, policy, moving=moves, over=run.ranks if divided else None)
    reference = ModelReference(loaded, temperature=temperature)
    if moves:
        if draws and config.shard:
            raise UserError("--shard: a reference.kind average that draws answers is not divided; take live")
        return _ema_reference(config, policy, run, reference, is_starting_model=is_starting_model)
    shard_or_broadcast(loaded, replace(config, shard=False) if draws else config, run.ranks)
    note = f"reference: {folder}, beside the policy in memory"
    return PreparedReference(
        reference=reference, is_starting_model=is_starting_model, notes=(note,), live=True
    )


def has_fresh_adapter(config: RunConfig) -> bool:
    """Whether the model beneath the adapters is what the run starts from: a kept adapter is part of that."""
    return config.lora.rank > 0 and not config.lora.keep


def no_reference() -> PreparedReference:
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
    # Divided like the policy: every shard is averaged with its own counterpart.
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
    config: PolicyConfig, policy: Policy, run: Run, *, needed: bool, draws: bool = False
) -> PreparedReference:
    """The reference of a loaded policy, not sharded yet; ``needed`` by the loss or the reward.
    One that ``draws`` answers, with the policy in a mixture, is whole on every rank."""
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
    # The reference at the policy's temperature: the KL is one between what answers are drawn from.
    return _live_reference(config, policy, run, draws=draws, temperature=config.draw.temperature)
