"""A reward that learnt few pairs by heart, and one that saw many: what is left on unseen pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plaudit.evaluation.result import RewardEvaluation
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import judged
from plaudit.lab.scored import (
    Scored,
    boast,
    decided,
    less,
    loss,
    margin,
    mean,
    paired,
    reliable,
    right,
    scored,
)
from plaudit.page.html import Html
from plaudit.page.intervals import Row, Rows, amounts
from plaudit.page.words import figure, percent
from plaudit.pipeline.folder import Folder
from plaudit.reports.page_wins import span

_REWARDS = {"few": "few pairs, many epochs", "many": "many pairs, few epochs"}
_SETS = {"own": "its own pairs", "fresh": "unseen pairs"}
_SAYS = {
    (
        "few",
        "fresh",
    ): "Look at the pairs that it is surest of, on the right, and how far below the broken line they lie.",
    (
        "many",
        "own",
    ): "Above the broken line it is right more often than it claims, for it has seen these pairs.",
    (
        "many",
        "fresh",
    ): "The nearer to the broken line, the more its claims about unseen pairs can be believed.",
}
_Told = Mapping[tuple[str, str], Scored]
"""What each reward says of its own pairs and of the unseen ones."""
_Judged = Mapping[tuple[str, str], RewardEvaluation]


def look(folder: Folder) -> Seen:
    """Both rewards, each on the pairs that it learnt from, and both on the same unseen ones."""
    stages = {
        (name, kind): f"{name}-on-own" if kind == "own" else "on-fresh" for name in _REWARDS for kind in _SETS
    }
    told = {(name, kind): scored(folder, stage, [name])[name] for (name, kind), stage in stages.items()}
    found = {(name, kind): judged(folder, stage)[name] for (name, kind), stage in stages.items()}
    return Seen(claims=(*_claims(told),), table=_table(told, found), pictures=(*_pictures(told, found),))


def _claims(told: _Told) -> Iterator[Claim]:
    gaps = {name: less(*(mean(told[name, kind], right, share=True) for kind in _SETS)) for name in _REWARDS}
    yield decided(
        "The reward that learnt few pairs by heart is right less often on unseen ones.",
        gaps["few"],
        "accuracy on its own pairs less that on unseen ones",
    )
    yield decided(
        "Less than half of its margin is left there.",
        less(mean(told["few", "own"], margin), mean(told["few", "fresh"], margin), times=2),
        "the margin on its own pairs less twice that on unseen ones",
    )
    yield decided(
        "It is surer of unseen pairs than it may be.",
        mean(told["few", "fresh"], boast),
        "how sure it was less how often it was right",
    )
    yield decided(
        "A reward that saw many pairs loses less of its accuracy.",
        less(gaps["few"], gaps["many"]),
        "what few lose less what many lose",
    )
    yield decided(
        "Its margin holds on unseen pairs: the preferred answer has more on average.",
        mean(told["many", "fresh"], margin),
        "margin",
    )
    yield decided(
        "Of the same unseen pairs it predicts the choices better.",
        paired(told["few", "fresh"], told["many", "fresh"], loss),
        "log-loss of few less that of many",
    )


def _table(told: _Told, found: _Judged) -> Table:
    return Table(
        head=("reward, pairs", "preferred", "other", "margin", "accuracy", "ECE"),
        rows=tuple(
            (
                f"{name}, {_SETS[kind]}",
                figure(mean(one, lambda one: one.preferred_B).value),
                figure(mean(one, lambda one: one.other_B).value),
                figure(mean(one, margin).value),
                percent(mean(one, right, share=True).value),
                percent(_ece(found[name, kind])),
            )
            for (name, kind), one in told.items()
        ),
        note="Preferred and other: the mean rewards of the two answers. ECE: expected calibration error "
        f"over bins of as many pairs each. few: {_REWARDS['few']}; many: {_REWARDS['many']}.",
    )


def _ece(found: RewardEvaluation) -> float:
    assert found.calibration is not None, "pairs with a preference were judged"
    return found.calibration.ece_mass


def _pictures(told: _Told, found: _Judged) -> Iterator[Picture]:
    yield Picture(
        title="What is left of the margin?",
        says="The distance between the two marks of a row is the margin. Compare what is left of it on "
        "unseen pairs with what it was on a reward's own.",
        drawn=_rewards(told),
    )
    for (name, kind), one in found.items():
        if (name, kind) != ("few", "own"):
            yield Picture(
                title=f"{_REWARDS[name].capitalize()}: {_SETS[kind]}",
                says=_SAYS[name, kind],
                drawn=reliable("Reliability", one),
            )


def _rewards(told: _Told) -> Html:
    rows = [
        Row(
            label=f"{_REWARDS[name]}: {_SETS[kind]}",
            spans=tuple(span(mean(one, part)) for part in (lambda s: s.preferred_B, lambda s: s.other_B)),
        )
        for (name, kind), one in told.items()
    ]
    return amounts("Mean rewards", "with 95 % intervals", Rows(rows=rows, series=("preferred", "other")))


EXERCISE = Exercise(
    name="unseen",
    title="Does a reward know what it has not seen?",
    why="A reward model that has gone through few pairs often enough is right about all of them, and holds "
    "preferred and rejected answers far apart. That says nothing: its own pairs are no test. On pairs to "
    "other prompts hardly anything of it may be left, and it is as sure as before, the miscalibration that "
    "Guo et al. (2017, arXiv:1706.04599) found in large networks. What helps is more pairs and fewer epochs "
    "(one, in Ouyang et al. 2022, arXiv:2203.02155, since rewards overfit after it).",
    minutes=1,
    look=look,
    further=(
        "plaudit lab unseen --set few.epochs=2: as few pairs, and not by heart",
        "plaudit lab unseen --set few-pairs.n=300: five times as many",
        "plaudit lab unseen --set few.reward.smoothing=0.1: labels that are believed to be swapped at times",
    ),
)
"""The exercise."""
