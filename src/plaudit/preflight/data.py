"""Checks of rows as a whole: figures, and few refusals.

Copies, leaks, contradictions, one-sided labels, lengths and ties are counted in one pass over the rows each,
and fail only where a run would learn nothing or its figures would mislead.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
    pictures,
    plain_text,
    preference_probability,
)
from plaudit.evaluation.stats import wilson_interval
from plaudit.preflight import check

MIN_ROWS = 30
"""Rows from which a share says something: with one row in ten of a kind, 0.9³⁰ < 5 % of samples have none."""
MAX_COPY_SHARE = 0.9
"""From this share of copies on there are more copies than ten epochs would make of the rows."""
MANY_COPIES_SHARE = 1 / 3
"""From this share on rows count half as much again as was meant, and held-out figures may be memory."""
MAX_LEAK_SHARE = 0.1
"""A leak moves a held-out share by at most its own; chance alone moves that of 100 rows by 2·√(¼/100)."""
MAX_CANCELLED_SHARE = 0.5
"""Two labellers who toss coins cancel half of what they say."""
MAX_ONE_SIDED_SHARE = 0.95
"""Above what any reward reaches on people's choices, who agree with each other in about three of four."""
DOUBTFUL_LENGTH_SHARE = 0.9


def check_duplicates(subject: check.PreflightSubject) -> check.Result:
    """Counts rows that an earlier row repeats, blanks and capitals aside: prompt, answers, judgement,
    annotator. It fails when nine of ten are copies, and warns from a third on, or where nine of ten rows with
    answers have one and the same prompt, or demonstrations one and the same answer."""
    if not subject.records:
        return check.not_applicable("there is no row to look at")
    first: dict[int, str] = {}
    copies: list[tuple[str, str]] = []
    for record in subject.records:
        key = _row_key(record)
        if key in first:
            copies.append((first[key], record.origin))
        else:
            first[key] = record.origin
    rows = len(subject.records)
    details = f"{len(copies):,} of {rows:,} rows are copies"
    if copies:
        details += f"; {copies[0][1]} is {copies[0][0]} again"
    if rows < MIN_ROWS or all(isinstance(record, Prompt) for record in subject.records):
        return check.passed(details)
    if len(copies) > MAX_COPY_SHARE * rows:
        return check.failed(details)
    if repeated := [*_texts_of_nearly_all(subject.records)]:
        return check.warned(f"{details}; {'; '.join(repeated)}")
    return check.warned(details) if len(copies) >= MANY_COPIES_SHARE * rows else check.passed(details)


def _texts_of_nearly_all(records: Sequence[Record]) -> Iterator[str]:
    prompts = Counter(
        _text_key(record.prompt if isinstance(record.prompt, str) else record.prompt[-1:])
        for record in records
    )
    answers = Counter(_text_key(record.completion) for record in records if isinstance(record, Demonstration))
    for what, texts in (("prompt", prompts), ("answer", answers)):
        for _, count in texts.most_common(1):
            # Documents have no prompt at all, which empty-prompts tells.
            if count > MAX_COPY_SHARE * len(records) and not (what == "prompt" and not records[0].prompt):
                yield f"{count:,} rows have one and the same {what}"


def _row_key(record: Record) -> int:
    match record:
        case Comparison():
            answers = (_text_key(record.chosen), _text_key(record.rejected))
            content = (answers, preference_probability(record), record.annotator)
        case Ranking():
            content = (tuple(map(_text_key, record.completions)), record.ranks, record.annotator)
        case Rating():
            content = (_text_key(record.completion), record.score, record.aspect, record.annotator)
        case Steps():
            content = (record.steps, record.labels, record.annotator)
        case Prompt():
            content = (record.answer,)
        case _:
            content = (_text_key(record.completion),)
    # A hash in place of the texts, which would hold a large file in memory twice.
    return hash((type(record).__name__, _text_key(record.prompt), content))


def check_leaks(subject: check.PreflightSubject) -> check.Result:
    """Compares the prompts of the held-out file with those that are trained, blanks and capitals aside. It
    fails when more than a tenth of at least 30 held-out rows have a prompt that is trained."""
    if not subject.held_out:
        return check.not_applicable(
            "no file is held out; a share is held out by prompts, so that none is in both"
        )
    trained = {_text_key(record.prompt): record.origin for record in subject.records}
    shared = [
        (record.origin, trained[key])
        for record in subject.held_out
        if (key := _text_key(record.prompt)) in trained
    ]
    details = f"{len(shared):,} of {len(subject.held_out):,} held-out rows have a prompt that is trained"
    if shared:
        details += f"; {shared[0][0]} asks what {shared[0][1]} asks"
    return verdict_on_share(details, len(shared), len(subject.held_out), MAX_LEAK_SHARE)


def verdict_on_share(
    details: str, count: int, rows: int, most: float, rest: check.Result | None = None
) -> check.Result:
    """Fails where more than a share of at least `MIN_ROWS` rows are of a kind; else ``rest``, or it holds."""
    return (
        check.failed(details) if rows >= MIN_ROWS and count > most * rows else rest or check.passed(details)
    )


def _text_key(text: Text) -> int:
    return hash((" ".join(plain_text(text).casefold().split()), pictures(text)))


def check_contradictions(subject: check.PreflightSubject) -> check.Result:
    """Counts, for every pair of answers to a prompt, how often each was preferred, and for every answer its
    thumbs up and down: judgements that cancel each other. It fails when more than half do, as if coins were
    tossed."""
    require_judgements(subject)
    votes: dict[int, Counter[int]] = {}
    first: dict[tuple[int, int], str] = {}
    for record in subject.records:
        for key, side in _votes(record):
            votes.setdefault(key, Counter())[side] += 1
            first.setdefault((key, side), record.origin)
    total = sum(sides.total() for sides in votes.values())
    if not total:
        return check.not_applicable("no row prefers an answer")
    contested = [key for key, sides in votes.items() if len(sides) > 1]
    # Each vote of the smaller side takes one of the larger side with it.
    cancelled = sum(2 * min(votes[key].values()) for key in contested)
    details = f"{cancelled:,} of {total:,} judgements cancel each other"
    if contested:
        this, other = (first[contested[0], side] for side in votes[contested[0]])
        details += f"; {this} and {other} say the opposite of the same answers"
    return verdict_on_share(details, cancelled, total, MAX_CANCELLED_SHARE)


def _votes(record: Record) -> Iterator[tuple[int, int]]:
    """What is judged, and how: for a pair the preferred answer, for a thumb up or down."""
    if isinstance(record, Rating) and record.thumb:
        yield hash((record.prompt, record.completion, record.aspect)), int(record.score)
    for better, worse in preference_pairs(record):
        key, winner = hash(better), hash(better)
        other = hash(worse)
        if key != other:
            # A pair without order, so that opposite votes on it meet under one key.
            yield hash((record.prompt, min(key, other), max(key, other))), winner


def preference_pairs(record: Record) -> Iterator[tuple[Text, Text]]:
    """The better and the worse answer of everything that a row compares."""
    if isinstance(record, Comparison):
        probability = preference_probability(record)
        if probability != 0.5:
            better = (record.chosen, record.rejected)
            yield better if probability > 0.5 else (better[1], better[0])
    elif isinstance(record, Ranking):
        ranked = sorted(zip(record.ranks, record.completions, strict=True), key=lambda pair: pair[0])
        for (rank, better), (other, worse) in combinations(ranked, 2):
            if rank < other:
                yield better, worse


def check_balance(subject: check.PreflightSubject) -> check.Result:
    """Counts the labels of thumbs, ratings and steps. It fails when all of at least 30 are the same."""
    require_judgements(subject)
    labels = Counter(label for record in subject.records for label in _labels(record))
    total = labels.total()
    if not total:
        return check.not_applicable("no row has a label or points")
    [(most_frequent, count)] = labels.most_common(1)
    details = (
        f"{total:,} labels of {len(labels)} kinds; the most frequent, {most_frequent:g}, is "
        f"{count / total:.0%}"
    )
    return check.failed(details) if len(labels) == 1 and total >= MIN_ROWS else check.passed(details)


def _labels(record: Record) -> Sequence[float]:
    if isinstance(record, Rating):
        return (record.score,)
    return record.labels if isinstance(record, Steps) else ()


def check_lengths(subject: check.PreflightSubject) -> check.Result:
    """Counts how often the preferred answer is the longer one, in characters, with Wilson's interval of 95 %.
    It fails only when the whole interval lies above 95 % or below 5 %: then length alone tells the answers
    apart. From 30 pairs on it warns at nine in ten."""
    require_judgements(subject)
    sizes = [
        (len(plain_text(better)), len(plain_text(worse)))
        for record in subject.records
        for better, worse in preference_pairs(record)
    ]
    unequal = [(better, worse) for better, worse in sizes if better != worse]
    if not unequal:
        return check.not_applicable("no row prefers an answer of another length")
    longer = sum(better > worse for better, worse in unequal)
    # Wilson's, since near 0 or 1 the plain normal interval has hardly any width.
    low, high = wilson_interval(longer / len(unequal), len(unequal))
    means = [sum(side) / len(sizes) for side in zip(*sizes, strict=True)]
    details = (
        f"the preferred answer is longer in {longer / len(unequal):.0%} ({low:.0%} to {high:.0%}) of "
        f"{len(unequal):,} pairs; {means[0]:.0f} characters against {means[1]:.0f}"
    )
    if low > MAX_ONE_SIDED_SHARE or high < 1 - MAX_ONE_SIDED_SHARE:
        return check.failed(details)
    one_sided = max(longer, len(unequal) - longer) >= DOUBTFUL_LENGTH_SHARE * len(unequal)
    return check.warned(details) if one_sided and len(unequal) >= MIN_ROWS else check.passed(details)


def check_ties(subject: check.PreflightSubject) -> check.Result:
    """Counts comparisons and rankings that prefer nothing: ties, a chance of one half, twice the same answer.
    It fails when more than 95 % of at least 30 do."""
    require_judgements(subject)
    judged = [record for record in subject.records if isinstance(record, Comparison | Ranking)]
    if not judged:
        return check.not_applicable("no row compares answers")
    tied = [
        record for record in judged if not any(better != worse for better, worse in preference_pairs(record))
    ]
    details = f"{len(tied):,} of {len(judged):,} rows prefer no answer"
    if tied:
        details += f", {tied[0].origin} for one"
    return verdict_on_share(details, len(tied), len(judged), MAX_ONE_SIDED_SHARE)


def require_judgements(subject: check.PreflightSubject) -> None:
    if not learns_from_judgements(subject):
        raise check.NotApplicableError("nothing is compared: answers are learnt as they stand, or drawn")


def learns_from_judgements(subject: check.PreflightSubject) -> bool:
    several = any(len(example.completions) > 1 for example in subject.trained)
    return subject.sampler is None and (
        subject.scorer is not None or subject.reference is not None or several
    )


CHECKS = (
    check.Check(name="duplicates", run=check_duplicates, at_start=True),
    check.Check(name="leaks", run=check_leaks, at_start=True),
    check.Check(name="contradictions", run=check_contradictions, at_start=True),
    check.Check(name="balance", run=check_balance, at_start=True),
    check.Check(name="lengths", run=check_lengths, at_start=True),
    check.Check(name="ties", run=check_ties, at_start=True),
)
