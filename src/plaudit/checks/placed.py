"""Where a reward model is read: at the answer's last token, whatever stands beside it in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Example
from plaudit.checks.check import Result, failed, not_applicable, passed
from plaudit.checks.passes import laid_out, told_plainly
from plaudit.checks.subject import Subject
from plaudit.checks.tasks import leaves, one_answer_each, reward_of, why_none
from plaudit.errors import UserError
from plaudit.models.proof import tolerance
from plaudit.models.reward import RewardModel
from plaudit.records.judging import Task
from plaudit.rewards.asking import at_rest
from plaudit.rewards.learned import LearnedReward

ROWS = 3
"""Answers of different lengths that are read."""
_WORDS: dict[str, str] = {
    "packed": "packed end to end",
    "left": "padded on the left",
    "right": "padded on the right",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An answer that a reward model is shown, and what its head says at the answer's last token.

    Example: ``Read(origin="rows.jsonl:3", task=task, example=example, plainly=0.31)``
    """

    origin: str
    """File and row."""
    task: Task
    """The prompt and the answer."""
    example: Example
    """Its tokens."""
    plainly: float
    """In transformers' own forward pass over this row alone, no padding anywhere."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All of them."""
        return (*self.example.prompt, *self.example.completions[0].ids)


def place(subject: Subject) -> Result:
    """A few answers of different lengths are scored together, in the run's layout and padded on either side.

    Each score is compared with the model's head at the last token of the row alone, in transformers' own
    forward pass. Of a reward model that learns, transformers' own classifier is asked too, padded on both
    sides: whoever loads what the run saves will read it like that.
    """
    reward = reward_of(subject)
    parts = [] if reward is None else [leaf for leaf in leaves(reward) if isinstance(leaf, LearnedReward)]
    if not parts:
        return not_applicable(why_none(subject) if reward is None else "no reward model is read here")
    seen: list[str] = []
    for part in parts:
        reads = _reads(part, one_answer_each(subject, ROWS))
        if not reads:
            return not_applicable(f"{part.name} can be shown none of the first rows")
        wrong, furthest = _compared(part, reads, saved=part.model is subject.scorer)
        if wrong is not None:
            return failed(f"{part.name}, {wrong}")
        seen.append(f"{part.name} of {len(reads)} rows: scores differ by up to {furthest:.2g}")
    return passed("; ".join(seen))


def _reads(part: LearnedReward, rows: Sequence[tuple[str, Task]]) -> list[Read]:
    """The rows that the model can be shown whole."""
    most = getattr(part.model.base.config.get_text_config(), "max_position_embeddings", None)
    found: list[Read] = []
    for origin, task in rows:
        try:
            example = part.encoder.encode(task.prompt, task.answers, origin)
        except UserError:
            continue
        if example.trained_tokens and (most is None or example.tokens <= most):
            plainly = _plainly(part.model, example)
            found.append(Read(origin=origin, task=task, example=example, plainly=plainly))
    return found


def _compared(part: LearnedReward, reads: Sequence[Read], *, saved: bool) -> tuple[str | None, float]:
    """What is wrong, and the largest difference of all."""
    model, furthest = part.model, 0.0
    for one in reads:
        last = one.ids[-1]
        if last not in part.encoder.stop_ids:
            token = part.encoder.info.tokenizer.convert_ids_to_tokens(last)
            return f"{one.origin}: it is read at {token!r}, which is no end of an answer", furthest
    for how, scores in _ways(part, reads, saved=saved):
        for one, score in zip(reads, scores(), strict=True):
            apart = float("inf") if score is None else abs(score - one.plainly)
            furthest = max(furthest, apart)
            if not apart <= _slack(model, reads):
                return f"{one.origin}: {_disagreement(how, score, one.plainly)}", furthest
    return None, furthest


def _disagreement(how: str, score: float | None, plainly: float) -> str:
    told = "no verdict" if score is None else f"the score {score:.4g}"
    return f"{how} it has {told}, and the row alone has {plainly:.4g} at its answer's last token"


def _ways(
    part: LearnedReward, reads: Sequence[Read], *, saved: bool
) -> Iterator[tuple[str, Callable[[], Sequence[float | None]]]]:
    model = part.model
    tasks = [one.task for one in reads]
    layouts: dict[Layout, None] = {model.layout: None, "right": None}
    if model.trunk.takes_attention:
        layouts["left"] = None
    for layout in layouts:
        yield _WORDS[layout], lambda how=layout: _scores(part, tasks, how)
    if saved and model.pooling == "last":
        for left in (False, True):
            how = f"in transformers' own classifier, {_WORDS['left' if left else 'right']},"
            yield how, lambda side=left: _by_transformers(model, reads, left=side)


def _scores(part: LearnedReward, tasks: Sequence[Task], layout: Layout) -> list[float | None]:
    with laid_out(part.model, layout, share=part.model.trunk.share_prompts):
        return [row[0] for row in part.scores(tasks)]


def _plainly(model: RewardModel, example: Example) -> float:
    """What transformers' own pass over one row comes to."""
    answer = example.completions[0]
    with torch.no_grad():
        value_T = told_plainly(model, [example])[0]
    return float(value_T[torch.tensor(answer.mask)].mean() if model.pooling == "mean" else value_T[-1])


def _by_transformers(model: RewardModel, reads: Sequence[Read], *, left: bool) -> list[float]:
    """The classifier itself, which finds the last token that is not padding."""
    pad = model.base.config.get_text_config().pad_token_id
    if pad is None:
        raise UserError("the reward model has no padding token, so nothing can read a batch of it")
    width = max(len(one.ids) for one in reads)
    rows: list[list[int]] = []
    real: list[list[int]] = []
    for one in reads:
        empty = width - len(one.ids)
        rows.append([*[pad] * empty, *one.ids] if left else [*one.ids, *[pad] * empty])
        real.append([0] * empty + [1] * len(one.ids) if left else [1] * len(one.ids) + [0] * empty)
    mask_NL = torch.tensor(real, device=model.device)
    with torch.no_grad(), at_rest(model), model.as_plain_model():
        raw_N1 = model.base(
            input_ids=torch.tensor(rows, device=model.device),
            attention_mask=mask_NL,
            position_ids=(mask_NL.cumsum(-1) - 1).clamp(min=0),
        ).logits
    return model.normalisation.of(raw_N1[:, 0]).tolist()


def _slack(model: RewardModel, reads: Sequence[Read]) -> float:
    """Rounding, in units of the head's own output, which an offset may hide."""
    normal = model.normalisation
    largest = max(abs(one.plainly * normal.scale + normal.offset) for one in reads)
    return tolerance(model) * largest / normal.scale
