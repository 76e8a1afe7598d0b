"""What a reader of an evaluation of policies has to know before believing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from plaudit.evaluation.policies.drawn import Drawing
from plaudit.evaluation.policies.dueled import Dueled
from plaudit.evaluation.policies.figures import Evidence, no_distance
from plaudit.evaluation.policies.judging import PairJudge, ScoreJudge, kinship
from plaudit.evaluation.policies.ratings import why_unrated
from plaudit.evaluation.policies.worth import Worth, missing
from plaudit.models.pad_token import other_token

Pair = tuple[str, str]
"""The policy whose wins are counted, and the one that it is compared with."""
FEW = 30
"""Prompts below which an interval says little."""


def notes_of(
    evidence: Evidence,
    met: Mapping[str, Mapping[Pair, Sequence[Dueled]]],
    judges: Mapping[str, PairJudge],
    drawing: Drawing,
) -> tuple[str, ...]:
    """Sentences, the most general first."""
    return (
        *_of_prompts(evidence),
        *_of_distances(evidence, drawing),
        *_of_worth("gold", evidence.gold),
        *_of_worth("the reward", evidence.reward),
        *_of_judges(evidence, met, judges),
    )


def rating_note(duels: Mapping[Pair, Sequence[Dueled]]) -> tuple[str, ...]:
    """Why there are no ratings, where there are none."""
    why = why_unrated(duels)
    return () if why is None else (f"no ratings: {why}",)


def _of_prompts(evidence: Evidence) -> Iterator[str]:
    if len(evidence.asked) < FEW:
        yield f"{len(evidence.asked)} prompts are few: believe the intervals, and not even them too much"
    if not evidence.gold:
        yield (
            "nobody knows the true worth of these answers: the figures say what judges and rewards like, "
            "and each of them can be gamed"
        )
    first, *others = evidence.policies
    unlike = [one.name for one in others if other_token(one.encoder.info, first.encoder.info) is not None]
    if unlike:
        yield (
            f"{', '.join(unlike)}: another tokenizer than that of {first.name}; lengths and entropies in its "
            "tokens do not compare, and answers are drawn with other random numbers"
        )


def _of_distances(evidence: Evidence, drawing: Drawing) -> Iterator[str]:
    if not drawing.sampling.whole:
        yield (
            f"no KL: answers were drawn with {drawing.in_words}, and it needs answers from the whole "
            f"distribution (--temperature 1 and nothing cut); entropy is that of the whole distribution at "
            f"temperature {drawing.temperature:g}, at the places that these answers came to"
        )
        return
    if drawing.temperature != 1:
        yield (
            f"KL and entropy are those of all models at temperature {drawing.temperature:g}, at which "
            "answers were drawn; at temperature 1 they are others"
        )
    [reference] = [one for one in evidence.policies if one.name == evidence.reference]
    for one in evidence.policies:
        why = no_distance(one, reference, drawing)
        if why is not None:
            yield f"no KL of {one.name} from {reference.name}: {why}"


def _of_worth(name: str, worths: Mapping[str, Worth]) -> Iterator[str]:
    lacking = {policy: count for policy, worth in worths.items() if (count := missing(worth))}
    if lacking:
        said = ", ".join(f"{count} of {policy}" for policy, count in lacking.items())
        yield f"answers without a verdict of {name}, which are in none of its figures: {said}"


def _of_judges(
    evidence: Evidence,
    met: Mapping[str, Mapping[Pair, Sequence[Dueled]]],
    judges: Mapping[str, PairJudge],
) -> Iterator[str]:
    if len(evidence.policies) > 1 and not met:
        yield "nobody compared answers, so there is no win rate; name a judge"
    folders = {one.name: one.folder for one in evidence.policies}
    for word in met:
        judge = judges[word]
        if isinstance(judge, ScoreJudge) and judge.log_odds:
            yield (
                f"{judge.name} judges by a learnt reward; of policies that were trained on it, its verdict "
                "says how well they please it, not how good they are"
            )
        kin = kinship(word, judge.name, folders)
        if kin is not None:
            yield kin
