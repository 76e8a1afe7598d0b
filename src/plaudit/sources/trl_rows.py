"""Records as rows of TRL's layouts; what TRL has no word for stays in extra columns or is named as lost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from plaudit.records.dicts import as_dict, text_as_plain
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps

_ABOUT = ("annotator", "group", "category")
_EXTRAS = ("strength", "margin", "probability", *_ABOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The rows of one record, and what they could not say.

    Example: ``Said(rows=(), lost=("ties left out: TRL has no word for them",))``
    """

    rows: tuple[dict[str, object], ...] = ()
    """The rows, ready for JSON."""
    lost: tuple[str, ...] = ()
    """What is not in them."""


def trl_rows(record: Record, number: int) -> Said:
    """A record as TRL's rows; ``number`` names the group that a ranking's pairs keep.

    >>> trl_rows(Rating(prompt="Hi", completion=" Ho", score=1.0, thumb=True), 1).rows
    ({'prompt': 'Hi', 'completion': ' Ho', 'label': True},)
    """
    match record:
        case Demonstration():
            return _only(record, "prompt", "completion", *_ABOUT)
        case Comparison():
            return _pair(record)
        case Ranking():
            return _pairs(record, number)
        case Rating():
            return _thumb(record)
        case Steps():
            return _steps(record)
        case Prompt():
            return _prompt(record)


def _only(record: Record, *names: str, lost: tuple[str, ...] = ()) -> Said:
    plain = as_dict(record)
    plain.setdefault("prompt", "")
    return Said(rows=({name: plain[name] for name in names if name in plain},), lost=lost)


def _pair(pair: Comparison) -> Said:
    if pair.probability == 0.5 or pair.strength == 0:
        return Said(lost=("ties left out: a TRL preference cannot be a tie",))
    if pair.probability is not None and pair.probability < 0.5:
        return Said(lost=("comparisons left out: the rejected answer is the likelier one",))
    soft = ("probabilities kept as a column that TRL does not read",) if pair.probability is not None else ()
    return _only(pair, "prompt", "chosen", "rejected", *_EXTRAS, lost=soft)


def _pairs(ranking: Ranking, number: int) -> Said:
    """All pairs of different rank; ``group_id`` lets a trainer put them back together."""
    answers = [text_as_plain(answer) for answer in ranking.completions]
    plain = as_dict(ranking)
    rows = tuple(
        {
            "prompt": plain["prompt"],
            "chosen": answers[i],
            "rejected": answers[j],
            "rank_chosen": ranking.ranks[i],
            "rank_rejected": ranking.ranks[j],
            "group_id": f"ranking-{number}",
            **{name: plain[name] for name in _ABOUT if name in plain},
        }
        for i, j in permutations(range(len(answers)), 2)
        if ranking.ranks[i] < ranking.ranks[j] and answers[i] != answers[j]
    )
    lost = "rankings split into pairs that TRL weighs one by one (group_id keeps what belongs together)"
    tied = len(answers) * (len(answers) - 1) // 2 - len(rows)
    return Said(rows=rows, lost=(lost, *["pairs left out: tied, or twice the same answer"] * tied))


def _thumb(rating: Rating) -> Said:
    if not rating.thumb:
        return Said(lost=("scores left out: a TRL label is a thumb, up or down",))
    said = _only(rating, "prompt", "completion", *_ABOUT)
    (row,) = said.rows
    lost = ("aspects left out: a TRL label is for the whole answer",) if rating.aspect is not None else ()
    return Said(rows=({**row, "label": rating.score == 1},), lost=lost)


def _steps(solution: Steps) -> Said:
    if not isinstance(solution.prompt, str):
        return Said(lost=("solutions left out: TRL has steps for texts only, not for conversations",))
    if any(label not in (0, 1) for label in solution.labels):
        return Said(lost=("solutions left out: a TRL step is right or wrong, never neutral",))
    row = {"completions": list(solution.steps), "labels": [label == 1 for label in solution.labels]}
    said = _only(solution, "prompt", *_ABOUT)
    return Said(rows=({**said.rows[0], **row},))


def _prompt(prompt: Prompt) -> Said:
    said = _only(prompt, "prompt", "answer")
    taken = {"prompt", "answer"} & set(prompt.metadata)
    lost = ("metadata left out: a field is called as one of TRL's",) if taken else ()
    rest = {name: value for name, value in prompt.metadata.items() if name not in taken}
    return Said(rows=({**rest, **said.rows[0]},), lost=lost)
