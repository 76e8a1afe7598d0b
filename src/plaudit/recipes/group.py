"""Group preferences: a few comparisons of a new group are enough to tell what else it would prefer.

GPO: Zhao, Dang and Grover 2023, arXiv:2310.11523.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from plaudit.batches.rows import encode_each
from plaudit.batches.template import Encoder, encode_record_noted
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.models.files import load_model
from plaudit.models.group_preference import (
    GroupPreference,
    GroupPreferenceConfig,
    save_group_preference,
)
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.recipes.group_config import GroupConfig
from plaudit.recipes.learner import Kind, Learner, Start
from plaudit.recipes.rows import Prepared, load_rows
from plaudit.recipes.run import run
from plaudit.records.dicts import kind_of
from plaudit.records.feedback import Comparison, Record
from plaudit.records.preferred import chance_of
from plaudit.rewards.group import apart
from plaudit.training import durable
from plaudit.training.flops import training_flops
from plaudit.training.group import HELD_OUT, GroupPiece, episodes_of, evaluation, pieces_of, predicting
from plaudit.training.group_episodes import EpisodeSettings, GroupItems, chosen, episode
from plaudit.training.parallel import Ranks
from plaudit.training.sinks.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRow:
    """A comparison as tokens, and the group of whoever judged.

    Example: ``GroupedRow(example=Example(...), chance=1.0, group="pilots")``
    """

    example: Example
    """The tokens: the preferred answer first."""
    chance: float
    """The chance that the first is the better one."""
    group: str
    """Who judged."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens."""
        return self.example.prompt


def group(config: GroupConfig) -> Summary | None:
    """Learn how groups differ, from comparisons that say which group judged."""
    return run(config, Kind(name="group", prepare=partial(_learner, config)))


def _learner(config: GroupConfig, start: Start) -> Learner[GroupPiece]:
    rows = load_rows(replace(config, held_out="0"), start.encoder, _grouped, start.aside)
    train, held_out = _divided(sorted({row.group for row in rows.train}), config)
    _refuse_small(rows.train, config)
    # The numbers that a reward's folder is loaded in: what it sees is then what was learnt from.
    embedder = Policy(load_model(config.model, dtype=start.numbers.products, device=start.ranks.device))
    layout, note = choose_layout(embedder, config.memory.layout)
    embedder.use_layout(layout)
    embedder.requires_grad_(False).eval()
    seen = apart(embedder, [row.example for row in rows.train], config.memory.tokens_at_once)
    items = _items(rows.train, (own_KH.to(start.numbers.weights) for own_KH in seen))
    known, unknown = ([items[name] for name in names] for names in (train, held_out))
    model = _module(config, known, start.ranks)
    settings = EpisodeSettings(least=config.group.least, most=config.group.most, targets=config.group.targets)
    sizes = [one.size for one in known]
    return Learner(
        module=model,
        objective=predicting(model, known),
        alone=episodes_of,
        rows=sum(sizes),
        # New episodes at every step: rows of an epoch are only counted.
        pieces=lambda step, batch: pieces_of(
            [
                episode(sizes, settings, seed=config.seed, step=step * config.batch_size + number)
                for number in range(len(batch))
            ],
            start.ranks,
        ),
        work=lambda pieces: _work(model, known, pieces),
        evaluate=evaluation(model, unknown, settings, start.ranks) if unknown else None,
        measured=HELD_OUT,
        sample=None,
        write=lambda: _write(model, config, start.ranks),
        notes=(*rows.notes, *_said(train, held_out), *([] if note is None else [note])),
    )


def _grouped(records: Sequence[Record], encoder: Encoder, max_tokens: int) -> Prepared[GroupedRow]:
    pairs = [record for record in records if isinstance(record, Comparison)]
    other = next((record for record in records if not isinstance(record, Comparison)), None)
    if other is not None:
        raise UserError(
            f"{other.origin}: this row is a {kind_of(other)}, and groups are learnt from comparisons"
        )
    bare = next((pair for pair in pairs if pair.group is None), None)
    if bare is not None:
        raise UserError(f"{bare.origin}: this comparison does not say which group judged; give it a `group`")

    def finish(pair: Comparison, example: Example) -> GroupedRow:
        chance = chance_of(pair)
        return GroupedRow(example=example, chance=chance, group=pair.group or "")

    return Prepared(
        encoding=encode_each(pairs, lambda pair: encode_record_noted(pair, encoder), finish, max_tokens)
    )


def _divided(names: Sequence[str], config: GroupConfig) -> tuple[list[str], list[str]]:
    """Which groups are trained, and which never are."""
    unknown = sorted(set(config.group.held_out) - set(names))
    if unknown:
        raise UserError(
            f"group.held_out: no comparison is by {', '.join(unknown)}; there are {', '.join(names)}"
        )
    held_out = list(config.group.held_out)
    if not held_out and config.held_out_share:
        shuffled = random.Random(f"{config.seed}/held-out groups").sample(names, len(names))
        held_out = shuffled[: math.ceil(config.held_out_share * len(names))]
    train = [name for name in names if name not in held_out]
    if len(train) < 2:
        raise UserError(
            f"{config.data}: of {len(names)} groups {len(train)} would be learnt from, and how groups differ "
            "shows in two or more; hold out fewer, or give comparisons of more groups"
        )
    return train, sorted(held_out)


def _refuse_small(rows: Sequence[GroupedRow], config: GroupConfig) -> None:
    """Every group shows as many as any episode must show, and one is left to ask about."""
    needed = config.group.least + 1
    small = [f"{name} ({size})" for name, size in Counter(row.group for row in rows).items() if size < needed]
    if small:
        raise UserError(
            f"group.least {config.group.least}: every group needs {needed} comparisons, and fewer are by "
            f"{_shortened(sorted(small))}; show fewer, or leave these groups out"
        )


def _items(rows: Sequence[GroupedRow], seen: Iterable[Tensor]) -> Mapping[str, GroupItems]:
    """Each group's comparisons, as the module sees them."""
    found: dict[str, list[Tensor]] = {}
    shares: dict[str, list[Tensor]] = {}
    for row, own_KH in zip(rows, seen, strict=True):
        found.setdefault(row.group, []).append(own_KH)
        shares.setdefault(row.group, []).append(own_KH.new_tensor([row.chance, 1 - row.chance]))
    return {name: chosen(name, torch.stack(own), torch.stack(shares[name])) for name, own in found.items()}


def _module(config: GroupConfig, known: Sequence[GroupItems], ranks: Ranks) -> GroupPreference:
    own = config.group
    size = known[0].embedding_BKH.shape[-1]
    shape = GroupPreferenceConfig(embedding=size, width=own.width, layers=own.layers, heads=own.heads)
    # Every rank has another stream of random numbers by now: the first one's module is given to all.
    model = GroupPreference(shape).to(ranks.device, known[0].embedding_BKH.dtype)
    model.standardise(torch.cat([one.embedding_BKH.flatten(0, 1) for one in known]))
    ranks.broadcast(p.data for p in model.parameters())
    return model


def _work(model: GroupPreference, known: Sequence[GroupItems], pieces: Sequence[GroupPiece]) -> float:
    size = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
    answers = known[0].embedding_BKH.shape[1]
    points = sum(len(one.context) + len(one.targets) for piece in pieces for one in piece.episodes)
    return training_flops(size, 0, tokens=answers * points, trained_tokens=0)


def _said(train: Sequence[str], held_out: Sequence[str]) -> Iterator[str]:
    yield f"learns from {len(train)} groups: {_shortened(train)}"
    if held_out:
        yield f"never trained, to see whether a few comparisons tell of the rest: {_shortened(held_out)}"


def _shortened(names: Sequence[str]) -> str:
    """At most eight names.

    >>> _shortened(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _write(model: GroupPreference, config: GroupConfig, ranks: Ranks) -> None:
    if ranks.first:
        with durable.folder(config.out / "model") as folder:
            save_group_preference(model, folder)
