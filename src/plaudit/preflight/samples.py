"""A few short rows and prompts of the user's own, in the forms that the checks need.

Prompts are as samplers are asked them, tasks for a reward have answers as a trainer has them, and rows come
as tokens and as the micro-batches of a trial step.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import Any

import torch

from plaudit.data.records import Record, Steps, Task, Text, answer_to, answers_of, plain_text
from plaudit.engine.distributed import is_sharded
from plaudit.engine.loop import TrainingJob
from plaudit.errors import UserError
from plaudit.models.verify import tolerance
from plaudit.preflight.check import SAMPLE_SIZE, NotApplicableError, PreflightSubject
from plaudit.rewards.base import Reward, TaskScores, leaf_rewards, traits_of
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.microbatch import Microbatch
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt, encode_prompt_records

MAX_SCANNED_ROWS = 4 * SAMPLE_SIZE
NO_PROMPT = "no prompt of the first rows can be asked within the longest row"
SHARDED = "weights are divided over ranks; look with one process, without torchrun"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePrompt:
    prompt: EncodedPrompt
    answers: tuple[Text, ...]
    """The row's own answers; none where it is a bare prompt."""


def shortest_prompts(subject: PreflightSubject, count: int, max_new_tokens: int) -> list[SamplePrompt]:
    """The rows with the shortest prompts that leave room for so many new tokens, no two prompts alike."""
    longest = _context_length(subject) - max_new_tokens
    by_prompt: dict[str, SamplePrompt] = {}
    for record in islice(subject.records, MAX_SCANNED_ROWS):
        if _is_answerable(record.prompt):
            for prompt in encode_prompt_records([record], subject.encoder, longest).examples:
                by_prompt.setdefault(prompt.id, SamplePrompt(prompt=prompt, answers=answers_in_row(record)))
    return sorted(by_prompt.values(), key=lambda item: len(item.prompt.prompt))[:count]


def answers_in_row(record: Record) -> tuple[Text, ...]:
    """The answers in a row, none for a bare prompt; labelled steps are one answer, a line each."""
    return ("\n".join(record.steps),) if isinstance(record, Steps) else answers_of(record)


def special_token_ids(subject: PreflightSubject) -> Iterator[int]:
    tokenizer = subject.encoder.info.tokenizer
    for token in subject.encoder.info.specials:
        number = tokenizer.convert_tokens_to_ids(token)
        if isinstance(number, int):
            yield number


def describe_origins(rows: Sequence[SamplePrompt]) -> str:
    """File and row of the first of these prompts, and how many others there are."""
    if not rows:
        return "no row"
    first = rows[0].prompt.origin or repr(plain_text(rows[0].prompt.text)[:40])
    return first if len(rows) == 1 else f"{first} and {len(rows) - 1} other rows"


def _is_answerable(prompt: Text) -> bool:
    """Whether a sampler can answer the prompt: its last turn is a user's or a tool's and says something."""
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return bool(prompt) and prompt[-1].role in ("user", "tool") and bool(plain_text(prompt[-1:]).strip())


def _context_length(subject: PreflightSubject) -> int:
    """The tokens that a row may have and that the model can read."""
    model = subject.policy or subject.scorer
    config = None if model is None else model.base.config.get_text_config()
    max_positions = getattr(config, "max_position_embeddings", None)
    return subject.max_length if max_positions is None else min(subject.max_length, max_positions)


LOW_TEMPERATURE = 0.1
"""Below it the answers drawn to a prompt are one answer, and the gradient of its tokens is rounding."""
MAX_PROMPTS, MAX_ANSWERS = 4, 3
"""How many prompts a reward is asked about, and answers to each."""
MAX_REMOTE = 2
"""Prompts, and answers to each, where a reward is remote and every request may cost money."""
MAX_ANSWER_TOKENS = 16
UNKNOWN_MODEL_TOLERANCE = {"cpu": 1e-3, "cuda": 0.15}
"""Relative tolerance of a model's scores where its numerical precision is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTasks:
    reward: Reward
    tasks: tuple[Task, ...]
    origins: tuple[str, ...]
    rows: tuple[TaskScores, ...]

    @property
    def scores(self) -> list[float]:
        return [score for row in self.rows for score in row if score is not None]

    @property
    def tolerance(self) -> float:
        """How far the score of an answer may differ when it is scored in another batch."""
        largest = max(map(abs, self.scores), default=0.0)
        return largest * max((_relative_tolerance(leaf) for leaf in leaf_rewards(self.reward)), default=0.0)


def reward_under_check(subject: PreflightSubject) -> Reward:
    """The reward of a run, or the reward model that learns, asked as it would be later."""
    if subject.reward is not None:
        return subject.reward
    if subject.scorer is None:
        raise NotApplicableError("no reward scores whole answers in this run")
    if is_sharded(subject.scorer):
        raise NotApplicableError(SHARDED)
    return LearnedReward("the reward model", subject.scorer, subject.encoder)


def score_sample_tasks(subject: PreflightSubject) -> ScoredTasks:
    """A few tasks scored by the run's reward."""
    reward = reward_under_check(subject)
    origins, tasks = zip(*sample_tasks(subject, reward), strict=True)
    try:
        scored = ScoredTasks(reward=reward, tasks=tasks, origins=origins, rows=reward.scores(tasks))
    except UserError as error:
        raise NotApplicableError("the reward cannot be asked (reward-finite says why)") from error
    if score_fault(tasks, scored.rows) is not None or not scored.scores:
        raise NotApplicableError("the reward has no usable scores (reward-finite says why)")
    return scored


def sample_tasks(subject: PreflightSubject, reward: Reward) -> list[tuple[str, Task]]:
    """File and row of each, and the task: a row's own answers, and drawn ones where it has no two."""
    remote = any(traits_of(leaf).remote for leaf in leaf_rewards(reward))
    count, answers = (MAX_REMOTE, MAX_REMOTE) if remote else (MAX_PROMPTS, MAX_ANSWERS)
    sampled = (
        _tasks_from_rows(subject, count)
        if subject.reward is None
        else _tasks_from_prompts(subject, count, answers)
    )
    if not sampled:
        raise NotApplicableError(NO_PROMPT)
    return sampled


def _tasks_from_prompts(subject: PreflightSubject, count: int, answers: int) -> list[tuple[str, Task]]:
    rows = shortest_prompts(subject, count, MAX_ANSWER_TOKENS)
    drawn = iter(_sampled_answers(subject, [row for row in rows if len(row.answers) < 2], answers))
    row_tasks: list[tuple[str, Task]] = []
    for row in rows:
        task_answers = [(_first_turn_text(answer), True) for answer in row.answers]
        if len(task_answers) < 2:
            task_answers += next(drawn, [])
        task_answers = task_answers[:answers]
        if task_answers:
            row_tasks.append((row.prompt.origin, row.prompt.task(task_answers)))
    return row_tasks


def single_answer_tasks(subject: PreflightSubject, count: int) -> list[tuple[str, Task]]:
    """File and row, and a task of a prompt with one answer, without sampling; the shortest prompts and longer
    ones. The answer is the row's own, its reference answer, or words of the prompt itself."""
    rows = shortest_prompts(subject, 2 * count, MAX_ANSWER_TOKENS)
    row_tasks: list[tuple[str, Task]] = []
    for place, row in enumerate(rows[:: 2 if len(rows) > count else 1]):
        echo = " ".join(plain_text(row.prompt.text).split()[: 2 + 3 * place])
        answer = _first_turn_text(row.answers[0]) if row.answers else row.prompt.reference_answer or echo
        row_tasks.append((row.prompt.origin, row.prompt.task([(answer, True)])))
    return row_tasks


def score_fault(scored_inputs: Sequence[Task], rows: Sequence[TaskScores]) -> str | None:
    """What is wrong with the form of the scores, or with a number among them."""
    if len(rows) != len(scored_inputs):
        return f"asked about {len(scored_inputs)} prompts it answered {len(rows)}"
    for task, row in zip(scored_inputs, rows, strict=True):
        if len(row) != len(task.answers):
            return f"it gave {len(row)} scores for {len(task.answers)} answers to {excerpt(task.prompt)}"
        for answer, score in zip(task.answers, row, strict=True):
            if score is not None and not math.isfinite(score):
                return f"it gave {score} for {excerpt(answer)}, an answer to {excerpt(task.prompt)}"
    return None


def first_difference(
    scored: ScoredTasks, other: Sequence[TaskScores]
) -> tuple[str, Text, float | None, float | None] | None:
    """The first answer whose score differs: its origin, the answer, and both scores."""
    for origin, task, row, second in zip(scored.origins, scored.tasks, scored.rows, other, strict=True):
        for answer, old, new in zip(task.answers, row, second, strict=True):
            same = old is new if old is None or new is None else abs(old - new) <= scored.tolerance
            if not same:
                return origin, answer, old, new
    return None


def _tasks_from_rows(subject: PreflightSubject, count: int) -> list[tuple[str, Task]]:
    """Rows with their own answers, as a reward model in training reads them."""
    row_tasks: list[tuple[str, Task]] = []
    for record in subject.records[:MAX_SCANNED_ROWS]:
        task_answers = [
            answer_to(record.prompt, answer) if isinstance(answer, str) else answer
            for answer in answers_in_row(record)
        ]
        if task_answers:
            task = Task(prompt=record.prompt, answers=tuple(task_answers), ended=(True,) * len(task_answers))
            row_tasks.append((record.origin, task))
    return sorted(
        row_tasks, key=lambda task: sum(map(len, map(plain_text, (task[1].prompt, *task[1].answers))))
    )[:count]


def _sampled_answers(
    subject: PreflightSubject, rows: Sequence[SamplePrompt], answers: int
) -> list[list[tuple[str, bool]]]:
    if subject.sampler is None or not rows:
        return []
    settings = replace(subject.sampling, max_tokens=min(MAX_ANSWER_TOKENS, subject.sampling.max_tokens))
    groups = subject.sampler.generate([row.prompt.shown for row in rows], settings, n=answers)
    return [[(rollout.answer.text, rollout.answer.ended) for rollout in group] for group in groups]


def _first_turn_text(answer: Text) -> str:
    return plain_text(answer if isinstance(answer, str) else answer[:1])


def _relative_tolerance(leaf: Reward) -> float:
    if isinstance(leaf, LearnedReward):
        return tolerance(leaf.model)
    if traits_of(leaf).exact:
        return 0.0
    return UNKNOWN_MODEL_TOLERANCE["cuda" if torch.cuda.is_available() else "cpu"]


def excerpt(text: Text) -> str:
    return repr(plain_text(text)[:40])


CANDIDATES = 256
"""Rows at the beginning of a file among which the shortest are looked for."""
STEP_ROWS = 4
CONTINUATION_TOKENS = 12
"""Tokens taken from another prompt as the completion of a prompt that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStep:
    job: TrainingJob[Any]
    batch: tuple[Microbatch, ...]
    description: str

    @property
    def rows(self) -> list[Microbatch]:
        return [row for microbatch in self.batch for row in microbatch.rows()]


def shortest_examples(subject: PreflightSubject, count: int = SAMPLE_SIZE) -> list[Example]:
    """The shortest rows as they are trained; a bare prompt is completed by tokens of the next one."""
    if subject.trained:
        return [subject.trained[number] for number in _shortest_indices(subject.trained, count)]
    prompts = [encode_prompt(prompt, subject.encoder) for prompt in subject.prompts]
    short = sorted(prompts, key=lambda item: len(item.prompt))[:count]
    # No place of a picture among them, which would have none.
    special = {*special_token_ids(subject)}
    return [
        Example(
            prompt=item.prompt,
            completions=(Completion(ids=ids, mask=(True,) * len(ids), finished=False),),
            origin="a prompt",
            extras=item.extras,
        )
        for item, other in zip(short, [*short[1:], *short[:1]], strict=True)
        for words in [tuple(token for token in other.prompt if token not in special)]
        for ids in [words[-CONTINUATION_TOKENS:] or other.prompt[-1:]]
    ]


def make_trial_step(subject: PreflightSubject) -> TrialStep | None:
    """A step on a few short rows of different lengths; None where nothing is learnt.
    Where answers are drawn it is a round of two prompts, of which the run itself knows nothing; where such a
    round comes to nothing, likelihood under the same policy."""
    job = subject.job
    if job is None:
        return None
    if subject.trial is None:
        numbers = _shortest_indices(subject.trained, 2 * STEP_ROWS)
        # Every other one, so that lengths differ and something is padded.
        chosen = numbers[::2] if len(numbers) >= 2 * STEP_ROWS else numbers[:STEP_ROWS]
        return TrialStep(
            job=job, batch=tuple(job.microbatches_of_step(1, chosen)), description=f"{len(chosen)} rows"
        )
    drawn = subject.trial.small_round()
    if drawn is None:
        return likelihood_step(subject)
    batch, description = drawn
    return TrialStep(job=job, batch=batch, description=description)


def likelihood_step(subject: PreflightSubject) -> TrialStep | None:
    """Likelihood under the policy of a run that draws its answers, of text made of its prompts."""
    job = subject.job
    examples = shortest_examples(subject, STEP_ROWS)
    if job is None or subject.trial is None or not examples:
        return None
    objective, microbatches = subject.trial.likelihood(examples)
    return TrialStep(
        job=replace(job, objective=objective),
        batch=tuple(microbatches),
        description=f"likelihood of {len(examples)} prompts continued",
    )


def _shortest_indices(examples: Sequence[Example], count: int) -> list[int]:
    near = range(min(len(examples), CANDIDATES))
    return nsmallest(count, near, key=lambda number: examples[number].tokens)
