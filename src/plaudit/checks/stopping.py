"""Whether answers end where they should: every token that ends one is made certain, one after another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plaudit.checks.check import Result, failed, not_applicable, passed
from plaudit.checks.drawn import plain_logits, policy_of
from plaudit.checks.questions import Asked, asked, declared_specials
from plaudit.checks.subject import Subject
from plaudit.errors import UserError
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Sampler
from plaudit.rollouts.sampling import Rollout, SamplingSettings
from plaudit.training.shards import is_sharded

ROOM = 3
"""Tokens that an answer of the trial may have."""
CERTAIN = 1e4
"""Added to a token's score, and taken from those of all others."""
_NOBODY = "there is no policy, or no prompt of the first rows can be asked"


def stops(subject: Subject) -> Result:
    """Every token that ends an answer is made certain for a moment, by a bias on the model's head.

    The answer must end right there and count as ended. The tokens are those that the model's own files and
    its tokenizer name, and the one that trained answers end with. An ordinary token is made certain first:
    at it an answer must go on.
    """
    policy, rows = subject.policy, asked(subject, 1, ROOM)
    if policy is None or is_sharded(policy) or not rows:
        whole = policy is None or not is_sharded(policy)
        return not_applicable(_NOBODY if whole else "weights are divided over ranks")
    try:
        sampler = subject.sampler or LocalSampler.of(policy, subject.encoder, subject.products)
    except UserError as error:
        return not_applicable(str(error))
    ordinary, ends = _ordinary(subject, rows[0]), _declared(subject)
    said = _said(subject, sampler, rows[0], ordinary)
    if said.ids[:1] != (ordinary,):
        return not_applicable("the sampler has a head of its own, in which no token can be made certain")
    if said.answer.ended:
        return failed(f"answers end at {_named(subject, ordinary)}, which is no end of anything")
    wrong = next(filter(None, (_goes_on(subject, sampler, rows[0], end) for end in ends)), None)
    named = ", ".join(_named(subject, end) for end in ends)
    return passed(f"answers end at {named}, and at no other token") if wrong is None else failed(wrong)


def _goes_on(subject: Subject, sampler: Sampler, row: Asked, end: int) -> str | None:
    """What is wrong where an answer does not end; None where it does."""
    said = _said(subject, sampler, row, end)
    if said.ids == (end,) and said.answer.ended:
        return None
    counts = "counts as ended" if said.answer.ended else "counts as cut"
    return (
        f"{_named(subject, end)} is declared as an end, and an answer that begins with it {counts}, with "
        f"{len(said.ids)} of {ROOM} possible tokens"
    )


def _declared(subject: Subject) -> list[int]:
    """Every end that there is, from the files themselves."""
    policy, info = policy_of(subject), subject.encoder.info
    known, folder = _words(policy), Path(str(policy.base.name_or_path))
    found = [*subject.encoder.stop_ids, info.tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        facts: Any = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        ends = facts.get("eos_token_id")
        found += ends if isinstance(ends, list) else [ends]
    return list(dict.fromkeys(end for end in found if isinstance(end, int) and end < known))


def _ordinary(subject: Subject, row: Asked) -> int:
    """The unlikeliest token that ends nothing: no sampler says it by itself."""
    taken = sorted({*_declared(subject), *declared_specials(subject)})
    logits_V = plain_logits(subject, row.question.prompt, row.question.prompt[:1])[0]
    logits_V[[token for token in taken if token < len(logits_V)]] = math.inf
    return int(logits_V[: len(subject.encoder.info.tokenizer)].argmin())


def _said(subject: Subject, sampler: Sampler, row: Asked, token: int) -> Rollout:
    settings = SamplingSettings(temperature=0, max_tokens=ROOM)
    with certain(_head(subject), token):
        return sampler.rollouts([row.question.text], settings)[0][0]


@contextmanager
def certain(head: nn.Linear, token: int) -> Iterator[None]:
    """While this lasts the head predicts this token and no other, whatever the state."""
    bias_V = torch.full((head.weight.shape[0],), -CERTAIN, dtype=head.weight.dtype, device=head.weight.device)
    bias_V[token] = CERTAIN
    own: Any = head.bias
    head.bias = nn.Parameter(bias_V, requires_grad=False)
    try:
        yield
    finally:
        head.bias = own


def _head(subject: Subject) -> nn.Linear:
    head = policy_of(subject).base.get_output_embeddings()
    assert isinstance(head, nn.Linear), "a policy that can be scored has a plain head"
    return head


def _words(policy: Any) -> int:
    return policy.base.get_output_embeddings().weight.shape[0]


def _named(subject: Subject, token: int) -> str:
    return f"{subject.encoder.info.tokenizer.convert_ids_to_tokens(token)!r} ({token})"
