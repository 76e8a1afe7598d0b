"""Distillation: learn from a teacher's whole distribution at every trained token.

The teacher is another model, or the starting model itself with a context in front of the prompt
(context distillation). Completions and masks are the same for both, so their tokens align.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plaudit.batches.cut import Refused
from plaudit.batches.render import check_roles
from plaudit.batches.rows import Encoding
from plaudit.batches.template import Encoder, encode_record_noted
from plaudit.batches.tokenizer import TokenizerInfo
from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.losses.reduce import token_mean
from plaudit.losses.supervised import forward_kl, jensen_shannon, reverse_kl
from plaudit.models.head import Head, head_of
from plaudit.models.policy import Policy
from plaudit.records.context import Place, with_context
from plaudit.records.feedback import Demonstration
from plaudit.tensors.divergences import Divergence, Readout, divergence_between
from plaudit.tensors.masked import masked_sum, masked_sum_rows
from plaudit.training.step import Terms
from plaudit.training.supervised import Arithmetic, Objective, SupervisedPiece, piece_metrics

DIVERGENCES: Mapping[str, Divergence] = {"forward": forward_kl, "reverse": reverse_kl, "js": jensen_shannon}
"""The divergences by name; each takes the teacher's log-probs and then the student's."""

DIVERGENCE = "held_out/divergence"
"""The figure that `held_out` reports."""

TeacherPrompts = Mapping[tuple[int, ...], tuple[int, ...]]
"""For each prompt of the student, as tokens, what the teacher is asked in its place."""

_TURNS = ("system", "user", "assistant", "user", "assistant")


def distillation(
    policy: Policy,
    teacher: Policy,
    arithmetic: Arithmetic,
    divergence: Divergence,
    teacher_prompts: TeacherPrompts | None = None,
) -> Objective:
    """Σ D(teacher, student) over the mask / tokens of the whole batch; the teacher learns nothing.

    The teacher is whole on every rank; without ``teacher_prompts`` it is asked what the student is asked.
    """
    _refuse_other_vocabulary(policy, teacher)

    def objective(piece: SupervisedPiece) -> Terms:
        batch = batch_of(piece.examples).to(policy.device)
        with arithmetic():
            told = _teacher_readout(teacher, _teacher_batch(piece, teacher_prompts).to(policy.device))
            read = _ReadDivergence(teacher=told, divergence=divergence)
            divergence_M, right_M = policy(batch, read)
        empty_NT = torch.zeros(batch.mask_NT.shape, dtype=divergence_M.dtype, device=policy.device)
        loss_NT = empty_NT.masked_scatter(batch.mask_NT, divergence_M)
        return Terms(
            loss=token_mean(loss_NT, batch.mask_NT, tokens=piece.tokens),
            loss_N=masked_sum_rows(loss_NT, batch.mask_NT).detach(),
            origin_N=batch.origin_N,
            metrics=piece_metrics(piece, batch, masked_sum(loss_NT, batch.mask_NT), right_M),
        )

    return objective


def frozen(policy: Policy) -> Policy:
    """A copy that stays as the policy is now; make it before weights are divided over ranks."""
    return copy.deepcopy(policy).requires_grad_(False).eval()


def divergence_named(name: str) -> Divergence:
    """The divergence by its name in a configuration."""
    if name not in DIVERGENCES:
        raise UserError(f"divergence is {name!r}; it is one of {', '.join(DIVERGENCES)}")
    return DIVERGENCES[name]


def refuse_other_tokenizer(student: TokenizerInfo, teacher: TokenizerInfo) -> None:
    """Distributions can be compared only where token numbers mean the same."""
    mine, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if mine == theirs:
        return
    token = min(token for token, number in {**mine, **theirs}.items() if mine.get(token) != theirs.get(token))
    raise UserError(
        f"student and teacher have different tokenizers: the token {token!r} is number {mine.get(token)} "
        f"for one and {theirs.get(token)} for the other. Choose a teacher that shares the student's "
        "tokenizer, or train on its answers instead (plaudit train sft)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRows:
    """The rows of context distillation: the student's, and what the teacher is asked.

    Example: ``ContextRows(encoding=Encoding(...), teacher_prompts={(1, 5): (1, 9, 9, 5)})``
    """

    encoding: Encoding[Example]
    """The student's rows, without the context; and the rows that cannot be used."""
    teacher_prompts: TeacherPrompts
    """For each of their prompts the one with the context."""


def rows_in_context(
    records: Iterable[Demonstration], encoder: Encoder, context: str, max_tokens: int | None = None
) -> ContextRows:
    """Each row twice, without the context and with it; nothing is cut, so that no context is lost."""
    place = place_for(encoder)
    examples, refused, notes = [], [], Counter[str]()
    teacher_prompts: dict[tuple[int, ...], tuple[int, ...]] = {}
    for record in records:
        with_it = with_context(record, context, place)
        try:
            bare, told = encode_record_noted(record, encoder), encode_record_noted(with_it, encoder)
            _refuse_misfit(bare.example, told.example, max_tokens)
        except UserError as error:
            refused.append(Refused(origin=record.origin, reason=str(error)))
            continue
        examples.append(bare.example)
        notes.update(bare.notes)
        teacher_prompts[bare.example.prompt] = told.example.prompt
    encoding = Encoding(examples=tuple(examples), refused=tuple(refused), notes=dict(notes))
    return ContextRows(encoding=encoding, teacher_prompts=teacher_prompts)


def place_for(encoder: Encoder) -> Place:
    """Where words go before a conversation: the system turn, if the template keeps it where it stands."""
    if encoder.manner is None:
        return "system"
    try:
        return "system" if check_roles(encoder.manner.template, _TURNS) else "user"
    except UserError:
        return "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadDivergence:
    teacher: Readout
    divergence: Divergence

    def __call__(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        apart = divergence_between(_readout(hidden_MH, head), self.teacher, self.divergence)
        return apart.divergence_M, apart.likeliest_M == batch.completion_NT[batch.mask_NT]


def _readout(hidden_MH: Tensor, head: Head) -> Readout:
    return Readout(hidden_MH=hidden_MH, weight_VH=head.layer.weight, bias_V=head.layer.bias, rule=head.rule)


def _teacher_readout(teacher: Policy, batch: TokenBatch) -> Readout:
    with torch.no_grad():
        (hidden_MH,) = teacher(batch, lambda hidden_MH, head, batch: (hidden_MH,))
    return _readout(hidden_MH, head_of(teacher.base))


def _teacher_batch(piece: SupervisedPiece, teacher_prompts: TeacherPrompts | None) -> TokenBatch:
    if teacher_prompts is None:
        return batch_of(piece.examples)
    strange = [example.origin for example in piece.examples if example.prompt not in teacher_prompts]
    if strange:
        raise UserError(f"{strange[0]}: the teacher has no prompt for this row; make it with rows_in_context")
    return batch_of([replace(example, prompt=teacher_prompts[example.prompt]) for example in piece.examples])


def _refuse_misfit(bare: Example, told: Example, max_tokens: int | None) -> None:
    if bare.completions != told.completions:
        raise UserError(
            "the answer's tokens are not the same with the context and without, so teacher and student "
            "would not be compared at the same words; train only the last answer (turns='last')"
        )
    longest = max(bare.tokens, told.tokens)
    if max_tokens is not None and longest > max_tokens:
        raise UserError(
            f"with the context the row has {longest:,} tokens and {max_tokens:,} are allowed; cutting it "
            "would cut the context: allow longer rows, or shorten it"
        )


def _refuse_other_vocabulary(policy: Policy, teacher: Policy) -> None:
    mine, theirs = (head_of(one.base).layer.weight.shape[0] for one in (policy, teacher))
    if mine != theirs:
        raise UserError(
            f"the student's vocabulary has {mine:,} tokens and the teacher's {theirs:,}, so their "
            "distributions cannot be compared. Choose a teacher of the same family; if only the padding of "
            "the vocabulary differs, bring one to the other's size with transformers' resize_token_embeddings"
        )
