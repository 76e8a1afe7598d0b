"""A reference's log-probs of a whole data set: computed once, kept on disk by what they were made of.

    CACHE/<hash>/logp.safetensors    log π_ref of every token, answers one behind the other
    CACHE/<hash>/facts.json          what it was made of, and the file's hash

The hash is that of the model's folder, the numbers it computes in and the rows' content, so another
epoch or another run finds the file, and anything else does not. A damaged file is made again, and said.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plaudit.engine.checkpoint import format
from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.models.load import Precision
from plaudit.models.reference import (
    CachedReference,
    Reference,
    completion_spans,
    compute_reference_logps,
)
from plaudit.tokens.batch import Example, join_completions

LOGP_FILE, FACTS_FILE = "logp.safetensors", "facts.json"
MAX_COMPLETIONS_TOGETHER = 8
"""The most completions of one prompt in one forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource:
    """What determines a reference's log-probs beside the rows: the model and its precision.

    Example: ``ReferenceSource(model_hash=lineage.hash_path(folder), precision=precision("auto", device))``
    """

    model_hash: str
    """The hash of the model's folder."""
    precision: Precision
    """The precision of weights and products."""

    @property
    def dtype(self) -> torch.dtype:
        """The type in which log-probs are stored."""
        return torch.promote_types(self.precision.weights, torch.float32)


def default_cache_folder() -> Path:
    """The folder of cached log-probs unless the user names another."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "plaudit" / "reference"


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
    if ranks.all_gather([float(cached_M is not None)])[0][0]:
        logp_M = torch.zeros(size, dtype=source.dtype) if cached_M is None else cached_M
        ranks.broadcast([logp_M])
        return CachedReference(
            span_by_id=offsets, logp_M=logp_M
        ), note or f"reference: log-probs found in {folder}"
    logp_M = torch.zeros(size, dtype=source.dtype)
    rank_examples = _unique_completions(examples)[ranks.rank :: ranks.world_size]
    values = compute_reference_logps(reference, rank_examples, tokens_at_once, ranks.device)
    completion_ids = [one for example in rank_examples for one in example.completion_ids]
    for completion_id, logp_T in zip(completion_ids, values, strict=True):
        logp_M[slice(*offsets[completion_id])] = logp_T
    ranks.all_reduce_sum([logp_M])
    if ranks.is_first:
        note = "; ".join(
            sentence for sentence in (note, _write_cache(folder, logp_M, source, len(offsets))) if sentence
        )
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
    """The kept log-probs; None when there are none, with a sentence when they cannot be trusted."""
    path = folder / LOGP_FILE
    if not folder.is_dir():
        return None, ""
    try:
        record = exact_json.loads((folder / FACTS_FILE).read_bytes())
        if record["sha256"] != format.sha256_of(path):
            raise ValueError("its bytes have changed")
        logp_M = format.read_tensors(path)["logp"]
        if len(logp_M) != size:
            raise ValueError(f"it holds {len(logp_M):,} numbers, and {size:,} are wanted")
    except (OSError, ValueError, KeyError, TypeError) as error:
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
            sha256 = format.write_tensors(partial / LOGP_FILE, {"logp": logp_M})
            atomic.write_json(partial / FACTS_FILE, {**record, "sha256": sha256})
    except UserError as error:
        return f"{computed_once}; they could not be kept for another run: {error}"
    return f"{computed_once} and kept in {folder}"


def _cache_key(source: ReferenceSource, examples: Sequence[Example]) -> str:
    digest = hashlib.sha256(
        f"2/{source.model_hash}/{source.precision.weights}/{source.precision.products}".encode()
    )
    for example in examples:
        digest.update(example.id.encode())
    return digest.hexdigest()[:40]
