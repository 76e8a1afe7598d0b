"""Checks of the reward: where it is read, what it is shown, and that it judges each answer by itself.

It is read at the answer's last token, whatever stands beside it in a batch; it is shown all words of a
conversation, in its own turns, and nothing else; and it says something of every answer, the same thing each
time.

A run that begins asks no reward: one of the user's own may keep count of its calls, and one behind an address
may cost money. ``plaudit check`` asks the latter about two answers to each of two prompts, a few times.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import correlation

import torch
from torch.nn.utils.rnn import pad_sequence

from plaudit.data.records import Task, Text, answer_to, plain_text, split_tools, words_of
from plaudit.errors import UserError
from plaudit.models.backbone import evaluation_mode
from plaudit.models.reward_model import RewardModel, first_differing_token
from plaudit.models.verify import tolerance
from plaudit.preflight.check import Check, PreflightSubject, Result, failed, not_applicable, passed, warned
from plaudit.preflight.logprobs import temporary_layout, transformers_token_scores
from plaudit.preflight.samples import (
    ScoredTasks,
    excerpt,
    first_difference,
    reward_under_check,
    sample_tasks,
    score_fault,
    score_sample_tasks,
    single_answer_tasks,
)
from plaudit.rewards.base import TaskScores, compares_answers, leaf_rewards, refusal_counts
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder
from plaudit.tokens.microbatch import Layout

SCORED_ROWS = 3
_LAYOUT_WORDS: dict[str, str] = {
    "packed": "packed end to end",
    "left": "padded on the left",
    "right": "padded on the right",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainlyScoredRow:
    """A row that a reward model scores, with the head's output at the answer's last token as the expected
    score."""

    origin: str
    task: Task
    example: Example
    plain_score: float
    """The expected score: transformers' own forward pass over this row alone, without padding."""

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.example.prompt, *self.example.completions[0].ids)


def check_reward_position(subject: PreflightSubject) -> Result:
    """A few answers of different lengths are scored together, in the run's layout and padded on either side.

    Each score is compared with the model's head at the last token of the row alone, in transformers' own
    forward pass. Of a reward model that learns, transformers' own classifier is asked too, padded on both
    sides: whoever loads what the run saves will read it like that. In float32: 16 bits blur small scores.
    """
    parts = [leaf for leaf in leaf_rewards(reward_under_check(subject)) if isinstance(leaf, LearnedReward)]
    if not parts:
        return not_applicable("no reward model is read here")
    details: list[str] = []
    for part in parts:
        with part.model.backbone.in_full():
            scored_rows = _plainly_scored_rows(part, single_answer_tasks(subject, SCORED_ROWS))
            if not scored_rows:
                return not_applicable(f"{part.name} can be shown none of the first rows")
            fault, furthest = _compare_positions(part, scored_rows, saved=part.model is subject.scorer)
        if fault is not None:
            return failed(f"{part.name}, {fault}")
        details.append(f"{part.name} of {len(scored_rows)} rows: scores differ by up to {furthest:.2g}")
    return passed("; ".join(details))


def _plainly_scored_rows(part: LearnedReward, rows: Sequence[tuple[str, Task]]) -> list[PlainlyScoredRow]:
    max_positions = getattr(part.model.base.config.get_text_config(), "max_position_embeddings", None)
    rows_read: list[PlainlyScoredRow] = []
    for origin, task in rows:
        try:
            example = part.encoder.encode(task.prompt, task.answers, origin)
        except UserError:
            continue
        if example.trained_tokens and (max_positions is None or example.tokens <= max_positions):
            plain_score = _plain_score(part.model, example)
            rows_read.append(
                PlainlyScoredRow(origin=origin, task=task, example=example, plain_score=plain_score)
            )
    return rows_read


def _compare_positions(
    part: LearnedReward, scored_rows: Sequence[PlainlyScoredRow], *, saved: bool
) -> tuple[str | None, float]:
    """The first disagreement in words (None: all agree), and the largest difference of all."""
    model, furthest = part.model, 0.0
    for row in scored_rows:
        last = row.ids[-1]
        if last not in part.encoder.stop_ids:
            token = part.encoder.info.tokenizer.convert_ids_to_tokens(last)
            return f"{row.origin}: it is read at {token!r}, which is no end of an answer", furthest
    for variant, scores in _score_variants(part, scored_rows, saved=saved):
        for row, score in zip(scored_rows, scores(), strict=True):
            difference = float("inf") if score is None else abs(score - row.plain_score)
            furthest = max(furthest, difference)
            # Turned round, so that a NaN fails.
            # The tolerance for rounding, in units of the head's own output, which an offset may hide.
            normal = model.normalisation
            largest = max(abs(row.plain_score * normal.scale + normal.offset) for row in scored_rows)
            if not difference <= tolerance(model) * largest / normal.scale:
                score_text = "no verdict" if score is None else f"the score {score:.4g}"
                fault = (
                    f"{row.origin}: {variant} it has {score_text}, and the row alone has "
                    f"{row.plain_score:.4g} at its answer's last token"
                )
                return fault, furthest
    return None, furthest


def _score_variants(
    part: LearnedReward, scored_rows: Sequence[PlainlyScoredRow], *, saved: bool
) -> Iterator[tuple[str, Callable[[], Sequence[float | None]]]]:
    model = part.model
    tasks = [row.task for row in scored_rows]
    # A dict as an ordered set: the run's own layout first, and none twice.
    layouts: dict[Layout, None] = {model.layout: None, "right": None}
    if model.backbone.can_replace_attention:
        layouts["left"] = None
    for layout in layouts:
        yield _LAYOUT_WORDS[layout], lambda how=layout: _scores_in_layout(part, tasks, how)
    if saved and model.pooling == "last":
        for pad_left in (False, True):
            how = f"in transformers' own classifier, {_LAYOUT_WORDS['left' if pad_left else 'right']},"
            yield (
                how,
                lambda side=pad_left: _transformers_classifier_scores(model, scored_rows, pad_left=side),
            )


def _scores_in_layout(part: LearnedReward, tasks: Sequence[Task], layout: Layout) -> list[float | None]:
    with temporary_layout(part.model, layout, share=part.model.backbone.share_prompts):
        return [row[0] for row in part.scores(tasks)]


def _plain_score(model: RewardModel, example: Example) -> float:
    answer = example.completions[0]
    with torch.no_grad():
        value_T = transformers_token_scores(model, [example])[0]
    return float(value_T[torch.tensor(answer.mask)].mean() if model.pooling == "mean" else value_T[-1])


def _transformers_classifier_scores(
    model: RewardModel, scored_rows: Sequence[PlainlyScoredRow], *, pad_left: bool
) -> list[float]:
    pad = model.base.config.get_text_config().pad_token_id
    if pad is None:
        raise UserError("the reward model has no padding token, so nothing can read a batch of it")
    rows = [torch.tensor(row.ids, device=model.device) for row in scored_rows]
    side = "left" if pad_left else "right"
    mask_NL = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side=side)
    with torch.no_grad(), evaluation_mode(model), model.as_plain_model():
        # Positions count words only: padding on the left must not push the text to later ones.
        input_ids = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side=side)
        position_ids = (mask_NL.cumsum(-1) - 1).clamp(min=0)
        raw_N1 = model.base(input_ids=input_ids, attention_mask=mask_NL, position_ids=position_ids).logits
    return model.normalisation.apply(raw_N1[:, 0]).tolist()


RENDERED_ROWS = 4
SATURATED_SPREAD = 1e-3
"""Below this share of its size a reward hardly tells answers apart."""
LARGE_SCORE = 1e3
LENGTH_CORRELATION = 0.99
MIN_LENGTHS = 5


def check_reward_template(subject: PreflightSubject) -> Result:
    """A few prompts with an answer are rendered by the policy's template and by that of the reward model.

    The text of the reward model's tokens must hold every word that the policy's holds, in its order, and no
    control token of the policy may stand there as ordinary letters. A template of its own is no fault: it is
    told.
    """
    if subject.reward is None:
        has_scorer = subject.scorer is not None
        return not_applicable(
            "the reward model reads by the run's own template" if has_scorer else "there is no reward"
        )
    parts = [leaf for leaf in leaf_rewards(subject.reward) if isinstance(leaf, LearnedReward)]
    rows = single_answer_tasks(subject, RENDERED_ROWS)
    if not parts or not rows:
        return not_applicable("no reward model is read here" if not parts else "no prompt can be asked")
    for part in parts:
        for origin, task in rows:
            fault = _reward_template_fault(subject.encoder, part.encoder, task)
            if fault is not None:
                return failed(f"{part.name}, {origin}: {fault}")
    return passed(
        "; ".join(f"{part.name} {_template_relation(subject.encoder, part.encoder, rows)}" for part in parts)
    )


def _reward_template_fault(policy: Encoder, reader: Encoder, task: Task) -> str | None:
    """What the reader misses, or is shown as letters; None where all is well."""
    try:
        example = reader.encode(task.prompt, task.answers)
    except UserError as error:
        return f"it cannot read this: {error}"
    vocabulary = reader.info.tokenizer.get_vocab()
    conversation_text = "\n".join(plain_text(text) for text in (task.prompt, *task.answers))
    unreadable = [
        special
        for special in policy.info.specials
        if len(special) > 2 and special in conversation_text and special not in vocabulary
    ]
    if unreadable:
        return (
            f"the policy's control token {unreadable[0]!r} stands in the text, and it is shown it as letters"
        )
    shown_text = _decoded_text(reader, example)
    lost = _first_missing_turn(shown_text, task)
    # A turn that the policy's own template leaves out as well is no fault of the reward model's.
    if lost is None or _is_lost_on(policy, task):
        return None
    return f"{lost[:80]!r} is not among what it is shown: {shown_text[-120:]!r}"


def _is_lost_on(policy: Encoder, task: Task) -> bool:
    try:
        example = policy.encode(task.prompt, task.answers)
    except UserError:
        return True
    return _first_missing_turn(_decoded_text(policy, example), task) is not None


def _decoded_text(reader: Encoder, example: Example) -> str:
    return reader.info.decode((*example.prompt, *example.completions[0].ids))


def _first_missing_turn(shown_text: str, task: Task) -> str | None:
    """The first turn whose words do not stand in the text behind those of the turn before; None: all do."""
    text, position = _normalized_text(shown_text), 0
    for turn in (*_turn_texts(task.prompt), *_turn_texts(task.answers[0])):
        found = text.find(_normalized_text(turn), position)
        if found < 0:
            return turn
        position = found + len(_normalized_text(turn))
    return None


def _turn_texts(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else [words_of(turn) for turn in split_tools(text)[1]]


def _normalized_text(text: str) -> str:
    """Without what a tokenizer may write in another way: blanks, capitals, forms of one sign."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _template_relation(policy: Encoder, reader: Encoder, rows: Sequence[tuple[str, Task]]) -> str:
    if policy.asks_in_turns != reader.asks_in_turns and isinstance(rows[0][1].prompt, str):
        ways = ("in plain text", "as a user's turn")
        return (
            f"is shown these prompts {ways[reader.asks_in_turns]}, as it was trained, while the policy is "
            f"asked them {ways[policy.asks_in_turns]}"
        )
    if policy.template != reader.template:
        return "has a template of its own, in which no word is lost"
    same = first_differing_token(policy.info, reader.info) is None
    return (
        f"reads by the policy's template, in {'the same' if same else 'tokens of its own'}{' tokens' * same}"
    )


def check_reward_finite(subject: PreflightSubject) -> Result:
    """The reward is asked once about a few of the user's prompts, one of them with an empty answer too.

    An empty answer is something that every model says sooner or later. Each score must be a finite number, or
    None where there is no verdict, and there must be a verdict on something.
    """
    reward = reward_under_check(subject)
    sampled = sample_tasks(subject, reward)
    reward_inputs = [task for _, task in sampled]
    reward_inputs[0] = _with_answers(reward_inputs[0], ("",))
    rows = reward.scores(reward_inputs)
    fault = score_fault(reward_inputs, rows)
    if fault is not None:
        return failed(f"{reward.name}, {sampled[0][0]} and on: {fault}")
    scores = [score for row in rows for score in row]
    verdicts = [score for score in scores if score is not None]
    if not verdicts:
        why = "; ".join(refusal_counts(reward)) or "it does not say why"
        return failed(f"{reward.name} has no verdict on any of {len(scores)} answers ({why[:120]})")
    return passed(
        f"{len(verdicts)} of {len(scores)} answers have a score, from {min(verdicts):.4g} to "
        f"{max(verdicts):.4g}"
    )


def check_reward_deterministic(subject: PreflightSubject) -> Result:
    """The reward is asked the very same thing twice."""
    scored = score_sample_tasks(subject)
    return _compare_scores(scored, scored.reward.scores(scored.tasks), "asked twice")


def check_reward_order(subject: PreflightSubject) -> Result:
    """The reward is asked about the same prompts and answers from the last to the first."""
    scored = score_sample_tasks(subject)
    turned = [
        replace(task, answers=task.answers[::-1], ended=task.ended[::-1]) for task in scored.tasks[::-1]
    ]
    rows = [row[::-1] for row in scored.reward.scores(turned)[::-1]]
    return _compare_scores(scored, rows, "asked in the opposite order")


def check_reward_independent(subject: PreflightSubject) -> Result:
    """The reward is asked about every answer by itself, one request after another."""
    scored = score_sample_tasks(subject)
    if compares_answers(scored.reward):
        return not_applicable("the reward compares the answers to one prompt with each other")
    rows = [
        tuple(
            scored.reward.scores([replace(task, answers=(answer,), ended=(ended,))])[0][0]
            for answer, ended in zip(task.answers, task.ended, strict=True)
        )
        for task in scored.tasks
    ]
    return _compare_scores(scored, rows, "asked about it alone")


def check_reward_differs(subject: PreflightSubject) -> Result:
    """The reward is asked about answers that differ, and about an empty answer, the prompt's own words and
    the row's reference answer.

    It fails where no answer moves the reward, and warns where only others than those of the model do, where
    scores hardly differ beside their size, are in the thousands, go with the length of answers, or where
    saying nothing scores highest.
    """
    scored = score_sample_tasks(subject)
    texts = {plain_text(answer) for task in scored.tasks for answer in task.answers}
    # Rows with one answer each are compared with one another.
    groups = [row for task, row in zip(scored.tasks, scored.rows, strict=True) if len({*task.answers}) > 1]
    spreads = [max(row) - min(row) for row in map(_verdicts, groups or [tuple(scored.scores)]) if row]
    largest = max(map(abs, scored.scores))
    details = (
        f"{len(scored.scores)} scores from {min(scored.scores):.4g} to {max(scored.scores):.4g}; the "
        f"answers to {sum(map(bool, spreads))} of {len(scored.tasks)} prompts differ in score"
    )
    probes = [
        ("", plain_text(task.prompt), *(() if (truth := task.reference_answer) is None else (truth,)))
        for task in scored.tasks
    ]
    requests = [_with_answers(task, probe) for task, probe in zip(scored.tasks, probes, strict=True)]
    try:
        rows = scored.reward.scores(requests)
    except UserError:
        return not_applicable("the reward cannot be asked about an empty answer (reward-finite says why)")
    probed = [row[-len(probe) :] for row, probe in zip(rows, probes, strict=True)]
    if not any(spreads):
        moved = [new for row, new in zip(scored.rows, probed, strict=True) if {*_verdicts(new)} - {*row}]
        if moved:
            others = ", ".join(f"{score:.4g}" for score in sorted({*_verdicts(moved[0])}))
            return warned(f"{details}, so nothing is learnt from answers like these; others have {others}")
        return failed(f"{details}, {len(texts)} different answers and an empty one among them")
    doubts = [
        *_scale_doubts(max(spreads), largest),
        *_length_doubts(scored),
        *(_emptiness_doubts(scored, probed) if subject.reward is not None else ()),
    ]
    return warned(f"{details}; {'; '.join(doubts)}") if doubts else passed(details)


def _verdicts(row: TaskScores) -> list[float]:
    return [score for score in row if score is not None]


def _scale_doubts(spread: float, largest: float) -> Iterator[str]:
    if spread < SATURATED_SPREAD * largest:
        yield f"saturated: answers to a prompt differ by at most {spread:.2g} beside scores of {largest:.4g}"
    if largest > LARGE_SCORE:
        yield f"a score of {largest:.4g} leaves penalties, of KL or length, without a weight"


def _length_doubts(scored: ScoredTasks) -> Iterator[str]:
    sizes = [
        (float(len(plain_text(answer))), score)
        for task, row in zip(scored.tasks, scored.rows, strict=True)
        for answer, score in zip(task.answers, row, strict=True)
        if score is not None
    ]
    lengths, scores = zip(*sizes, strict=True)
    if len({*lengths}) < MIN_LENGTHS or len({*scores}) == 1:
        return
    with_length = correlation(lengths, scores)
    if abs(with_length) > LENGTH_CORRELATION:
        yield f"scores go with the answers' length and with little else (a correlation of {with_length:.3f})"


def _emptiness_doubts(scored: ScoredTasks, probed: Sequence[TaskScores]) -> Iterator[str]:
    """``probed``: of each task the scores of an empty answer, of the prompt, and of a reference answer."""
    pairs = [(new[0], _verdicts(row)) for row, new in zip(scored.rows, probed, strict=True)]
    if all(empty is not None and scores and empty > max(scores) for empty, scores in pairs):
        yield f"an empty answer scores higher than all others to each of {len(pairs)} prompts"
    worse = [
        task
        for task, (empty, _, *truth) in zip(scored.tasks, probed, strict=True)
        if truth and truth[0] is not None and empty is not None and truth[0] < empty
    ]
    if worse:
        yield f"an empty answer scores higher than the row's own {excerpt(worse[0].reference_answer or '')}"


def _compare_scores(scored: ScoredTasks, rows: Sequence[TaskScores], variant: str) -> Result:
    other = first_difference(scored, rows)
    if other is None:
        allowed = f" (to {scored.tolerance:.2g}, which is rounding)" if scored.tolerance else ""
        return passed(f"{len(scored.scores)} scores, {variant}: the same{allowed}")
    origin, answer, *scores = other
    first, again = ("none" if score is None else f"{score:.6g}" for score in scores)
    return failed(f"{origin}, {excerpt(answer)}: the score is {first}, and {variant} it is {again}")


def _with_answers(task: Task, extra_answers: Sequence[str]) -> Task:
    texts = [answer_to(task.prompt, answer) for answer in extra_answers]
    return replace(task, answers=(*task.answers, *texts), ended=(*task.ended, *(True for _ in extra_answers)))


CHECKS = (
    Check(name="reward-finite", run=check_reward_finite),
    Check(name="reward-deterministic", run=check_reward_deterministic),
    Check(name="reward-order", run=check_reward_order),
    Check(name="reward-batching", run=check_reward_independent),
    Check(name="reward-variance", run=check_reward_differs),
    Check(name="reward-position", run=check_reward_position),
    Check(name="reward-template", run=check_reward_template, at_start=True),
)
