"""A reference's log-probs of a whole data set: computed once, kept on disk by what they were made of.

    CACHE/<hash>/logp.safetensors    log π_ref of every token, answers one behind the other
    CACHE/<hash>/facts.json          what it was made of, and the file's hash

The hash is that of the model's folder, the numbers it computes in and every token of the rows, so another
epoch or another run finds the file, and anything else does not. A damaged file is made again, and said.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plaudit.batches.tokens import Completion, Example
from plaudit.errors import UserError
from plaudit.models.files import Precision
from plaudit.models.reference import Kept, Reference, answers_of, computed, places_of
from plaudit.training import durable, exact_json, tensor_file
from plaudit.training.parallel import Ranks

VALUES, FACTS = "logp.safetensors", "facts.json"
TOGETHER = 8
"""Answers of one prompt that are computed together at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What makes log-probs what they are, beside the rows.

    Example: ``Origin(model=lineage.hash_path(folder), numbers=precision("auto", device))``
    """

    model: str
    """The hash of the model's folder."""
    numbers: Precision
    """What weights and products are kept in."""

    @property
    def dtype(self) -> torch.dtype:
        """What log-probs are kept in."""
        return torch.promote_types(self.numbers.weights, torch.float32)


def usual_cache() -> Path:
    """Where log-probs are kept unless the user says otherwise."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "plaudit" / "reference"


def kept(
    reference: Reference,
    examples: Sequence[Example],
    origin: Origin,
    ranks: Ranks,
    *,
    cache: Path,
    tokens_at_once: int,
) -> tuple[Kept, str]:
    """The log-probs from the cache, or computed and put there; and a sentence about which. All ranks come."""
    place = places_of(examples)
    size = sum(len(ids) for _, ids in place)
    folder = cache / _key(origin, examples)
    found, note = _read(folder, size) if ranks.first else (None, "")
    if ranks.every([float(found is not None)])[0][0]:
        logp_M = torch.zeros(size, dtype=origin.dtype) if found is None else found
        ranks.broadcast([logp_M])
        return Kept(place=place, logp_M=logp_M), note or f"reference: log-probs found in {folder}"
    logp_M = torch.zeros(size, dtype=origin.dtype)
    mine = _by_prompt(examples)[ranks.rank :: ranks.world]
    values = computed(reference, mine, tokens_at_once, ranks.device)
    for answer, logp_T in zip(answers_of(mine), values, strict=True):
        logp_M[slice(*place[answer])] = logp_T
    ranks.add_up([logp_M])
    if ranks.first:
        note = "; ".join(part for part in (note, _write(folder, logp_M, origin, len(place))) if part)
    return Kept(place=place, logp_M=logp_M), note


def _by_prompt(examples: Sequence[Example]) -> list[Example]:
    """Every different answer once, with those to the same prompt beside it."""
    answers: dict[tuple[int, ...], dict[tuple[int, ...], Completion]] = {}
    for example in examples:
        own = answers.setdefault(example.prompt, {})
        own.update({answer.ids: answer for answer in example.completions if answer.ids not in own})
    return [
        Example(prompt=prompt, completions=tuple(list(own.values())[start : start + TOGETHER]))
        for prompt, own in answers.items()
        for start in range(0, len(own), TOGETHER)
    ]


def _read(folder: Path, size: int) -> tuple[Tensor | None, str]:
    """The kept log-probs; None when there are none, with a sentence when they cannot be trusted."""
    path = folder / VALUES
    if not folder.is_dir():
        return None, ""
    try:
        facts = exact_json.loads((folder / FACTS).read_bytes())
        if facts["sha256"] != tensor_file.sha256_of(path):
            raise ValueError("its bytes have changed")
        logp_M = tensor_file.read(path)["logp"]
        if len(logp_M) != size:
            raise ValueError(f"it holds {len(logp_M):,} numbers, and {size:,} are wanted")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{path}: the kept log-probs cannot be used ({error}); they were computed again"
    return logp_M, ""


def _write(folder: Path, logp_M: Tensor, origin: Origin, answers: int) -> str:
    """Keep them; a disk that will not is said and does no harm."""
    facts = {
        "model": origin.model,
        "weights": str(origin.numbers.weights),
        "products": str(origin.numbers.products),
        "answers": answers,
        "tokens": len(logp_M),
    }
    computed_once = f"reference: log-probs of {answers:,} answers computed once"
    try:
        durable.make_folder(folder.parent)
        with durable.folder(folder, needed=logp_M.nbytes) as partial:
            sha256 = tensor_file.write(partial / VALUES, {"logp": logp_M})
            durable.write_json(partial / FACTS, {**facts, "sha256": sha256})
    except UserError as error:
        return f"{computed_once}; they could not be kept for another run: {error}"
    return f"{computed_once} and kept in {folder}"


def _key(origin: Origin, examples: Sequence[Example]) -> str:
    digest = hashlib.sha256(f"1/{origin.model}/{origin.numbers.weights}/{origin.numbers.products}".encode())
    for example in examples:
        digest.update(b"prompt" + array("q", example.prompt).tobytes())
        for answer in example.completions:
            digest.update(b"answer" + array("q", answer.ids).tobytes() + bytes(answer.mask))
    return digest.hexdigest()[:40]
