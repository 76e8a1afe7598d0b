"""Distillation: learn from a teacher's whole distribution at every trained token.

The teacher is another model, or the starting model itself with a context in front of the prompt
(context distillation). Completions and masks are the same for both, so their tokens align.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plaudit.data.records import Demonstration, Message
from plaudit.data.transforms import PrefixRole, with_context
from plaudit.engine.metrics import mean_metric
from plaudit.engine.step import ObjectiveResult
from plaudit.errors import UserError
from plaudit.losses.reduce import token_mean
from plaudit.losses.supervised import forward_kl, jensen_shannon, reverse_kl
from plaudit.methods.data import EncodedData, TeacherPrompts
from plaudit.methods.supervised.objective import SupervisedMicrobatch, SupervisedObjective, microbatch_metrics
from plaudit.models.backbone import Head, head_of
from plaudit.models.policy import Policy, read_equally_weighted, scatter_to_mask
from plaudit.tensors.divergences import Divergence, Readout, divergence_between
from plaudit.tensors.masked import masked_sum, masked_sum_rows
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.chat_template import check_turns
from plaudit.tokens.encode import EncodedRows, Encoder, RefusedRow, encode_record_with_notes
from plaudit.tokens.tokenizer import TokenizerInfo

DIVERGENCES: Mapping[str, Divergence] = {"forward": forward_kl, "reverse": reverse_kl, "js": jensen_shannon}
"""The divergences by name; each takes the teacher's log-probs and then the student's."""

DIVERGENCE_METRIC = "held_out/divergence"

# Two exchanges behind a system turn: a template that moves or drops it gives itself away here.
_PROBE_TURNS = tuple(
    Message(role=role, content="Hi.") for role in ("system", "user", "assistant", "user", "assistant")
)


def distillation_objective(
    policy: Policy,
    teacher: Policy,
    divergence: Divergence,
    teacher_prompts: TeacherPrompts | None = None,
    *,
    hard_weight: float = 0.0,
) -> SupervisedObjective:
    """Σ (1 − w) D(teacher, student) − w log π over the mask / tokens of the whole batch, w ``hard_weight``.
    The teacher is whole on every rank and learns nothing; without ``teacher_prompts`` it is asked what the
    student is asked."""
    _refuse_other_vocabulary(policy, teacher)

    def objective(microbatch: SupervisedMicrobatch) -> ObjectiveResult:
        batch = batch_of(microbatch.examples).to(policy.device)
        with torch.no_grad():
            # States and no log-probs: the vocabulary is projected in blocks, never as one [M, V].
            (hidden_MH,) = teacher(
                _teacher_batch(microbatch, teacher_prompts).to(policy.device),
                lambda hidden_MH, head, batch: (hidden_MH,),
            )
        teacher_readout = _readout(hidden_MH, head_of(teacher.base))
        reader = _DivergenceReader(teacher=teacher_readout, divergence=divergence, hard_weight=hard_weight)
        loss_M, divergence_M, right_M = policy(batch, reader)
        loss_NT = scatter_to_mask(loss_M, batch)
        trained = sum(example.trained_tokens for example in microbatch.examples)
        return ObjectiveResult(
            loss=token_mean(loss_NT, batch.mask_NT, tokens=microbatch.total_tokens),
            loss_N=masked_sum_rows(loss_NT, batch.mask_NT).detach(),
            origin_N=batch.origin_N,
            metrics=(
                *microbatch_metrics(microbatch, masked_sum(loss_NT, batch.mask_NT), right_M),
                mean_metric("divergence", divergence_M.detach().sum(), trained),
            ),
        )

    return objective


def frozen_copy(policy: Policy) -> Policy:
    """A copy that stays as the policy is now; make it before weights are divided over ranks."""
    return copy.deepcopy(policy).requires_grad_(False).eval()


def divergence_named(name: str) -> Divergence:
    if name not in DIVERGENCES:
        raise UserError(f"divergence is {name!r}; it is one of {', '.join(DIVERGENCES)}")
    return DIVERGENCES[name]


def refuse_other_tokenizer(student: TokenizerInfo, teacher: TokenizerInfo) -> None:
    """Distributions can be compared only where token numbers mean the same."""
    student_vocab, teacher_vocab = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if student_vocab == teacher_vocab:
        return
    # The first in the alphabet of all that differ, for the same message every time.
    token = min(
        token
        for token, token_id in {**student_vocab, **teacher_vocab}.items()
        if student_vocab.get(token) != teacher_vocab.get(token)
    )
    raise UserError(
        f"student and teacher have different tokenizers: the token {token!r} is number "
        f"{student_vocab.get(token)} for one and {teacher_vocab.get(token)} for the other. Choose a teacher "
        "that shares the student's tokenizer, or train on its answers instead (plaudit train sft)"
    )


def encode_with_context(
    records: Iterable[Demonstration], encoder: Encoder, context: str, max_tokens: int | None = None
) -> EncodedData[Example]:
    """Each row as the student reads it, without the context, and the teacher's prompts with it.
    Nothing is cut, so that no context is lost."""
    role = context_role(encoder)
    examples, refused, notes = [], [], Counter[str]()
    teacher_prompts: dict[str, tuple[int, ...]] = {}
    for record in records:
        both = (record, with_context(record, context, role))
        try:
            bare, contextual = (encode_record_with_notes(each, encoder) for each in both)
            _refuse_unaligned_completions(bare.example, contextual.example, max_tokens)
        except UserError as error:
            refused.append(RefusedRow(origin=record.origin, reason=str(error)))
            continue
        examples.append(bare.example)
        notes.update(bare.notes)
        teacher_prompts[bare.example.prompt_id] = contextual.example.prompt
    encoding = EncodedRows(examples=tuple(examples), refused=tuple(refused), notes=dict(notes))
    return EncodedData(encoding=encoding, teacher_prompts=teacher_prompts)


def context_role(encoder: Encoder) -> PrefixRole:
    """Where words go before a conversation: the system turn, if the template keeps it where it stands."""
    if encoder.chat_format is None:
        return "system"
    try:
        return "system" if check_turns(encoder.chat_format.template, _PROBE_TURNS) else "user"
    except UserError:
        return "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class _DivergenceReader:
    teacher: Readout
    divergence: Divergence
    hard_weight: float

    def __call__(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        soft = divergence_between(_readout(hidden_MH, head), self.teacher, self.divergence)
        right_M = soft.likeliest_M == batch.completion_NT[batch.mask_NT]
        if not self.hard_weight:
            return soft.divergence_M, soft.divergence_M, right_M
        logp_M, _ = read_equally_weighted(hidden_MH, head, batch)
        loss_M = (1 - self.hard_weight) * soft.divergence_M - self.hard_weight * logp_M
        return loss_M, soft.divergence_M, right_M


def _readout(hidden_MH: Tensor, head: Head) -> Readout:
    return Readout(hidden_MH=hidden_MH, weight_VH=head.layer.weight, bias_V=head.layer.bias, rule=head.rule)


def _teacher_batch(microbatch: SupervisedMicrobatch, teacher_prompts: TeacherPrompts | None) -> TokenBatch:
    if teacher_prompts is None:
        return batch_of(microbatch.examples)
    unmatched = [
        example.origin for example in microbatch.examples if example.prompt_id not in teacher_prompts
    ]
    if unmatched:
        raise UserError(
            f"{unmatched[0]}: the teacher has no prompt for this row; make it with encode_with_context"
        )
    # The prompt alone is exchanged: same completions, same mask, so the M states meet one to one.
    return batch_of(
        [replace(example, prompt=teacher_prompts[example.prompt_id]) for example in microbatch.examples]
    )


def _refuse_unaligned_completions(bare: Example, contextual: Example, max_tokens: int | None) -> None:
    if bare.completions != contextual.completions:
        raise UserError(
            "the answer's tokens are not the same with the context and without, so teacher and student "
            "would not be compared at the same words; train only the last answer (turns='last')"
        )
    longest = max(bare.tokens, contextual.tokens)
    if max_tokens is not None and longest > max_tokens:
        raise UserError(
            f"with the context the row has {longest:,} tokens and {max_tokens:,} are allowed; cutting it "
            "would cut the context: allow longer rows, or shorten it"
        )


def _refuse_other_vocabulary(policy: Policy, teacher: Policy) -> None:
    # Rows of the heads and not tokens: models of one tokenizer may pad their vocabularies differently.
    student_size, teacher_size = (head_of(model.base).layer.weight.shape[0] for model in (policy, teacher))
    if student_size != teacher_size:
        raise UserError(
            f"the student's vocabulary has {student_size:,} tokens and the teacher's {teacher_size:,}, so "
            "their "
            "distributions cannot be compared. Choose a teacher of the same family; if only the padding of "
            "the vocabulary differs, bring one to the other's size with transformers' resize_token_embeddings"
        )
