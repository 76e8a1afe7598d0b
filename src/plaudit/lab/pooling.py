"""Where a reward is read: at the last token of an answer, or as the mean over all of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.result import RewardEvaluation
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import judged
from plaudit.lab.measured import with_ends
from plaudit.lab.scored import Scored, boast, decided, less, loss, mean, paired, reliable, right, scored
from plaudit.page.html import Html
from plaudit.page.intervals import Guide, Row, Rows, amounts, shares
from plaudit.page.words import percent
from plaudit.pipeline.folder import Folder
from plaudit.reports.page_wins import span

_SETS = {"on-own": "own pairs", "on-fresh": "fresh pairs"}
_ENDS = {"last": "last token", "mean": "mean"}
_Both = dict[tuple[str, str], Scored]
"""What each reward says of each set of pairs."""


def look(folder: Folder) -> Seen:
    """Both rewards on the pairs that they learnt from, and on fresh ones to other prompts."""
    told = {(stage, end): one for stage in _SETS for end, one in scored(folder, stage, _ENDS).items()}
    fresh = judged(folder, "on-fresh")
    return Seen(claims=(*_claims(told),), table=_table(told), pictures=(*_pictures(told, fresh),))


def _claims(told: _Both) -> Iterator[Claim]:
    own, fresh = ({end: told[stage, end] for end in _ENDS} for stage in _SETS)
    yield decided(
        "On fresh pairs the mean over the answer predicts choices better than the last token.",
        paired(fresh["last"], fresh["mean"], loss),
        "log-loss of the last token less that of the mean",
    )
    yield decided(
        "On the pairs that both learnt from, it looks the other way round.",
        paired(own["mean"], own["last"], loss),
        "log-loss of the mean less that of the last token",
    )
    yield decided(
        "Read at the last token, the reward is surer of fresh pairs than it may be.",
        mean(fresh["last"], boast),
        "how sure it was less how often it was right",
    )
    gap = paired(fresh["mean"], fresh["last"], right)
    open_ = gap.low is not None and gap.high is not None and gap.low <= 0 <= gap.high
    yield Claim(
        says="Accuracy on fresh pairs alone does not tell which of the two is better.",
        holds=open_,
        saw=f"accuracy of the mean less that of the last token: {with_ends(gap)}, on {gap.n} pairs",
    )
    accuracies = (mean(one["mean"], right, share=True) for one in (own, fresh))
    yield decided(
        "The better one, too, is right less often on fresh pairs than on its own.",
        less(*accuracies),
        "accuracy of the mean on its own pairs less that on fresh ones",
    )


def _table(told: _Both) -> Table:
    rows = [
        (
            f"{_ENDS[end]}, {_SETS[stage]}",
            mean(one, right, share=True).value,
            mean(one, loss).value,
            mean(one, boast).value,
        )
        for (stage, end), one in told.items()
    ]
    return Table(
        head=("read at", "accuracy", "log-loss", "surer than right"),
        rows=tuple(
            (name, percent(a), f"{b:.3f}", f"{100 * c:+.1f} points".replace("-", "−"))
            for name, a, b, c in rows
        ),
        note="Log-loss: 0.693 knows nothing, and less is better. Surer than right: how sure it was, less how "
        "often it was right.",
    )


def _pictures(told: _Both, fresh: Mapping[str, RewardEvaluation]) -> Iterator[Picture]:
    yield Picture(
        title="Which of the two is better?",
        says="Right of the line the mean is better, left of it the last token. Where own pairs and fresh "
        "pairs contradict each other, believe the fresh ones.",
        drawn=_apart(told),
    )
    yield Picture(
        title="How often are they right?",
        says="What a reward loses on pairs that it has not seen lies between its two marks. Where intervals "
        "overlap, accuracy does not tell the two rewards apart.",
        drawn=_accuracies(told),
    )
    for end, name in _ENDS.items():
        yield Picture(
            title=f"What is it worth that it is sure? Read at the {name}",
            says="Where a point lies below the broken line, the reward was surer than it may be.",
            drawn=reliable("Reliability on fresh pairs", fresh[end]),
        )


def _apart(told: _Both) -> Html:
    gaps = {
        name: paired(told[stage, "last"], told[stage, "mean"], _hundredths) for stage, name in _SETS.items()
    }
    rows = [Row(label=name, spans=(span(gap),)) for name, gap in gaps.items()]
    line = Guide(low=0.0, high=0.0, label="no difference")
    shown = Rows(rows=rows, series=("difference",), guide=line)
    return amounts("Log-loss of the last token less that of the mean", "in hundredths", shown)


def _hundredths(one: Scored) -> Float[np.ndarray, " B"]:
    return 100 * loss(one)


def _accuracies(told: _Both) -> Html:
    rows = [
        Row(
            label=f"read at the {name}",
            spans=tuple(span(mean(told[stage, end], right, share=True)) for stage in _SETS),
        )
        for end, name in _ENDS.items()
    ]
    shown = Rows(rows=rows, series=tuple(_SETS.values()))
    return shares("Accuracy", "share of pairs in which the preferred answer has more", shown)


EXERCISE = Exercise(
    name="pooling",
    title="Where should a reward be read?",
    why="A reward model makes one number out of an answer: from its state at the last token (Stiennon et al. "
    "2020, arXiv:2009.01325), or as the mean over all of its tokens. Here both learn from the same "
    "choices of a crowd, and are compared twice: on these, and on fresh choices on prompts that neither has "
    "seen. Which one looks better depends on where one looks.",
    minutes=1,
    look=look,
    further=(
        "plaudit lab pooling --set own.n=6 --set last.batch-size=6 --set mean.batch-size=6: what "
        "six pairs alone are worth",
        "plaudit lab pooling --seed 1 --out runs/lab-1: whether it was luck",
        "plaudit lab pooling --set own.annotators=length-lovers: a crowd that loves length",
    ),
)
"""The exercise."""
