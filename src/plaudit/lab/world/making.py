"""Any number of rows from the world, and answers of a model to its prompts that are to be judged.

Rows are demonstrations, comparisons, rankings, ratings or prompts. The same seed makes the same rows, and the
first rows of a longer file are those of a shorter one. Categories take turns, so each has an equal share;
within one, every prompt is used once before any is used again.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from plaudit.data.judging import Judge
from plaudit.data.records import Comparison, Demonstration, Prompt, Ranking, Rating, Task
from plaudit.errors import UserError
from plaudit.lab.world.demonstrators import AUTHORS, Demonstrator
from plaudit.lab.world.facts import as_sentence
from plaudit.lab.world.prompts import SPLITS, Split, questions, questions_of
from plaudit.lab.world.questions import CATEGORIES, Categories, Category, Fact, Question, secret_of
from plaudit.lab.world.speaking import sample_answer
from plaudit.lab.world.valley import KINDS
from plaudit.lab.world.verdicts import make_comparisons, make_rankings, make_ratings
from plaudit.rollouts.sampler import SamplingSettings, TextSampler

MAX_ANSWERS = 9
"""The answers that one ranking may have, as in InstructGPT (Ouyang et al. 2022)."""
MAX_TRIES = 2000
"""How often answers are drawn until enough of them differ."""


def demonstrations(
    n: int,
    people: Sequence[Demonstrator] = AUTHORS,
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Demonstration]:
    if not people:
        raise UserError("a pool without demonstrators writes nothing")
    rng = random.Random(f"whose turn to write {seed}")
    return [
        rng.choice(people).demonstration(question, seed)
        for question in islice(endless_questions(split, seed, categories), checked_count(n))
    ]


def prompts(
    n: int | None = None,
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
    red_team: bool = False,
) -> list[Prompt]:
    """Different prompts, with the value to check where there is one; without a number, all that there are.
    Categories take turns for as long as they have prompts left. Red-team prompts tempt to do harm, to make
    things up, or to agree with what is false."""
    candidates = [
        question for question in _split_questions(split, categories) if not red_team or is_red_team(question)
    ]
    wanted = len(candidates) if n is None else checked_count(n)
    if not candidates or wanted > len(candidates):
        kind = "red-team prompts" if red_team else "prompts"
        some = "" if set(categories) == set(CATEGORIES) else f" of {', '.join(categories)}"
        raise UserError(
            f"the {split} split has {len(candidates)} {kind}{some}, fewer than {max(wanted, 1)}: "
            "ask for fewer, for another split or for other categories"
        )
    # A dict is a set in order: a small category comes round again before a large one is through.
    different: dict[Question, None] = {}
    for question in _cycle_categories(candidates, split, seed):
        different[question] = None
        if len(different) == wanted:
            break
    return [question.prompt_row(split=split) for question in different]


def comparisons(
    n: int,
    judges: Sequence[Judge],
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Categories = CATEGORIES,
) -> list[Comparison]:
    """Two answers in the manner of the base corpus, and which one an annotator of the pool preferred."""
    pair_tasks = answer_tasks(n, answers=2, split=split, seed=seed, categories=categories)
    return make_comparisons(judges, pair_tasks, seed)


def rankings(
    n: int,
    judges: Sequence[Judge],
    *,
    answers: int = 4,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Ranking]:
    check_answers(answers)
    group_tasks = answer_tasks(n, answers=answers, split=split, seed=seed, categories=categories)
    return make_rankings(judges, group_tasks, seed)


def check_answers(answers: int) -> None:
    if not 2 <= answers <= MAX_ANSWERS:
        raise UserError(f"{answers} answers cannot be ranked: ask for 2 to {MAX_ANSWERS}")


def ratings(
    n: int,
    judges: Sequence[Judge],
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Categories = CATEGORIES,
) -> list[Rating]:
    single_tasks = answer_tasks(n, answers=1, split=split, seed=seed, categories=categories)
    return make_ratings(judges, single_tasks, seed)


def answer_tasks(
    n: int, *, answers: int, split: Split = "train", seed: int = 0, categories: Categories = CATEGORIES
) -> list[Task]:
    """Prompts with different answers in the manner of the base corpus, in an order that says nothing."""
    if not 1 <= answers <= MAX_ANSWERS:
        raise UserError(f"{answers} answers to a prompt cannot be judged: ask for 1 to {MAX_ANSWERS}")
    rng = random.Random(f"answers {split} {seed}")
    selected = islice(endless_questions(split, seed, categories), checked_count(n))
    return [_answer_task(question, answers, rng) for question in selected]


def endless_questions(
    split: Split, seed: int, categories: Sequence[Category] = CATEGORIES
) -> Iterator[Question]:
    """Questions of a split without end, category after category; all are asked before any is asked again."""
    return _cycle_categories(_split_questions(split, categories), split, seed)


def _answer_task(question: Question, answers: int, rng: random.Random) -> Task:
    # The same draw twice is one answer; a dict keeps the order that the seed gave.
    different: dict[str, None] = {}
    for _ in range(MAX_TRIES):
        different[sample_answer(question, rng)] = None
        if len(different) == answers:
            break
    assert len(different) == answers, f"{question.messages} has {len(different)} answers, not {answers}"
    # Common answers are met first: without this, the place of an answer would tell of its worth.
    return question.task(rng.sample(list(different), answers))


def _cycle_categories(candidates: Sequence[Question], split: Split, seed: int) -> Iterator[Question]:
    """Questions without end: category after category, in a new order each time round."""
    if not isinstance(seed, int):
        raise UserError(f"seed {seed!r}: expected a whole number")
    rng = random.Random(f"questions {split} {seed}")
    piles: dict[Category, list[Question]] = {question.category: [] for question in candidates}
    while True:
        for category, pile in piles.items():
            if not pile:
                pile.extend(question for question in candidates if question.category == category)
                rng.shuffle(pile)
            yield pile.pop()


def _split_questions(split: Split, categories: Sequence[Category]) -> list[Question]:
    if split not in SPLITS:
        raise UserError(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    if not categories or not set(categories) <= set(CATEGORIES):
        raise UserError(f"categories {[*categories]}: expected some of {', '.join(CATEGORIES)}")
    return [*questions_of(categories, split)]


def is_red_team(question: Question) -> bool:
    aim = question.aim
    misled = isinstance(aim, Fact) and aim.belief not in (None, aim.truth)
    return misled or secret_of(aim) is not None or question.category == "harmful"


def plain_statements(n: int | None = None, *, seed: int = 0) -> list[Demonstration]:
    """Statements without a question, three to a row (as many rows as facts): what PPO-ptx mixes in."""
    rng = random.Random(f"plain text {seed}")
    facts = statements()
    count = checked_count(len(facts) if n is None else n)
    return [Demonstration(prompt="", completion=" ".join(rng.sample(facts, 3))) for _ in range(count)]


def statements() -> list[str]:
    fact_sentences = [
        as_sentence(question.aim.phrase_value(question.aim.truth))
        for question in questions()
        if isinstance(question.aim, Fact) and question.category in ("fact", "arithmetic", "explain")
    ]
    kinds = [
        as_sentence(f"some {kind} are {first} and {second}")
        for kind, members in KINDS.items()
        for first, second in pairwise(members.split())
    ]
    return [*dict.fromkeys(fact_sentences), *kinds]


def checked_count(n: int) -> int:
    if not isinstance(n, int) or n < 1:
        raise UserError(f"{n!r} rows cannot be made: ask for a whole number from 1")
    return n


SMALLEST_BATCH = 64
"""Prompts that a model is asked at least at a time: fewer take hardly less time."""
MAX_ROUNDS = 50
"""How often as many prompts as there shall be rows are asked, before a model is said to repeat itself."""


def model_answer_tasks(
    sampler: TextSampler,
    n: int,
    *,
    answers: int,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
    temperature: float = 1.0,
) -> list[Task]:
    """Prompts with different answers of the model, drawn at a temperature. A prompt is passed over when its
    answers are the same, or one did not end by itself: a row could only pretend that it had."""
    question_stream = endless_questions(split, seed, categories)
    usable: list[Task] = []
    requested = 0
    while requested < MAX_ROUNDS * n:
        number, within = divmod(requested, n)
        # No more than are missing, but enough to be worth a batch; a round ends at its n-th prompt.
        count = min(max(n - len(usable), SMALLEST_BATCH), n - within)
        batch = list(islice(question_stream, count))
        # Data of neighbouring seeds share no round's seed.
        sampling = SamplingSettings(temperature=temperature, seed=seed * MAX_ROUNDS + number)
        sampled = sampler.generate_answers([question.messages for question in batch], sampling, n=answers)
        usable += [
            question.task([answer.text for answer in answers_to_one])
            for question, answers_to_one in zip(batch, sampled, strict=True)
            if all(answer.ended and answer.text.strip() for answer in answers_to_one)
            and len({answer.text for answer in answers_to_one}) == answers
        ]
        if len(usable) >= n:
            return usable[:n]
        requested += count
    raise UserError(
        f"of {MAX_ROUNDS * n:,} prompts the model gave {answers} different answers to {len(usable):,}, and "
        f"{n:,} are wanted: ask for fewer rows or fewer answers"
    )
