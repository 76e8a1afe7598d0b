"""Policies on the same questions: drawn, scored, compared and told in one record."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plaudit.errors import UserError
from plaudit.evaluation.policies.best import chosen_curve
from plaudit.evaluation.policies.choices import Closed
from plaudit.evaluation.policies.contests import Names, contest
from plaudit.evaluation.policies.distances import Thoughts, thoughts
from plaudit.evaluation.policies.diversity import common_words
from plaudit.evaluation.policies.drawn import (
    Asked,
    Drawing,
    Drawn,
    answers_of,
    check_policy,
    drawn,
    load_speaker,
)
from plaudit.evaluation.policies.dueled import Dueled
from plaudit.evaluation.policies.figures import Evidence, answers_by_prompt, figures, no_distance, rows
from plaudit.evaluation.policies.judging import PairJudge, duels
from plaudit.evaluation.policies.libraries import check_libraries
from plaudit.evaluation.policies.notes import notes_of, rating_note
from plaudit.evaluation.policies.over_optimisation import OverOptimisation
from plaudit.evaluation.policies.ratings import ratings
from plaudit.evaluation.policies.result import PolicyEvaluation, Shown
from plaudit.evaluation.policies.worth import worths
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import BestOfCurve
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import Rollout

Pair = tuple[str, str]
"""The policy whose wins are counted, and the one that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """Who says what answers are worth.

    Example: ``Witnesses(gold=truth(), reward=load_reward(Path("runs/reward")), judges={"gold": judge})``
    """

    gold: Reward | None = None
    """Who knows the true worth."""
    reward: Reward | None = None
    """A learnt reward, which policies may have been trained on."""
    judges: Mapping[str, PairJudge] = field(default_factory=dict[str, PairJudge])
    """Who compares answers, by the words that named them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What is drawn, compared and shown.

    Example: ``EvaluationSettings(drawing=Drawing(answers=2), against=("sft",), best_of=16)``
    """

    drawing: Drawing = field(default_factory=Drawing)
    """How answers are drawn."""
    against: tuple[str, ...] = ()
    """What others are compared with; the first is also what KL is measured from. Empty: the first policy."""
    resampling: Resampling = field(default_factory=Resampling)
    """How intervals are made."""
    shown: int = 20
    """Prompts that are shown with everybody's answers."""
    best_of: int = 0
    """Answers of the reference from which the reward chooses; 0 takes what is drawn anyway, if several."""
    closed: tuple[Closed, ...] = ()
    """Questions with choices, of which it is asked how sure policies are and how often right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """What is read off the reference.

    Example: ``_Reference(name="sft", theirs={"ppo": thoughts}, groups=())``
    """

    name: str
    theirs: Mapping[str, Thoughts]
    groups: Sequence[Sequence[Rollout]]


def evaluate_policies(
    models: Mapping[str, Path],
    asked: Sequence[Asked],
    witnesses: Witnesses | None = None,
    settings: EvaluationSettings | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> PolicyEvaluation:
    """All that can be said of policies, by their names, on these questions; ``say`` is told what goes on."""
    witnesses, settings = witnesses or Witnesses(), settings or EvaluationSettings()
    check_policies(models, asked, settings)
    policies: list[Drawn] = []
    for name, folder in models.items():
        say(f"{name} answers {len(asked)} prompts")
        policies.append(drawn(name, folder, asked, settings.drawing, settings.closed))
    against = settings.against or (policies[0].name,)
    reference = _reference(against[0], policies, asked, witnesses, settings)
    scored = {
        kind: worths(scorer, asked, policies)
        for kind, scorer in (("gold", witnesses.gold), ("reward", witnesses.reward))
        if scorer is not None
    }
    evidence = Evidence(
        asked=asked,
        policies=policies,
        reference=against[0],
        theirs=reference.theirs,
        gold=scored.get("gold", {}),
        reward=scored.get("reward", {}),
    )
    met = _met(witnesses, asked, policies, against, say)
    return _found(evidence, met, reference, witnesses, settings)


def check_policies(models: Mapping[str, Path], asked: Sequence[Asked], settings: EvaluationSettings) -> None:
    """Complain, before anything is loaded, about what cannot be evaluated."""
    check_libraries()
    if not models or not asked:
        raise UserError("an evaluation needs at least one policy and one prompt")
    for folder in models.values():
        check_policy(folder)
    unknown = [name for name in settings.against if name not in models]
    if unknown:
        raise UserError(f"no policy is called {unknown[0]!r}; there is {', '.join(models)}")
    if len({one.prompt for one in asked}) < len(asked):
        raise UserError("a prompt is there twice; ask each once, and for more answers to it")
    if settings.best_of == 1 or settings.best_of < 0:
        raise UserError(f"best of {settings.best_of}: expected 2 answers or more to choose from")


def _reference(
    name: str,
    policies: Sequence[Drawn],
    asked: Sequence[Asked],
    witnesses: Witnesses,
    settings: EvaluationSettings,
) -> _Reference:
    """What the reference thinks of others' answers, and its own answers to choose from."""
    [own] = [one for one in policies if one.name == name]
    theirs: dict[str, Thoughts] = {}
    if settings.drawing.sampling.whole:
        theirs[name] = own.thoughts
    others = [one for one in policies if one is not own and no_distance(one, own, settings.drawing) is None]
    wanted = settings.best_of if witnesses.gold is not None and witnesses.reward is not None else 0
    groups = own.rollouts
    if others or wanted > settings.drawing.each:
        speaker = load_speaker(own.folder, settings.drawing)
        for one in others:
            theirs[one.name] = thoughts(
                speaker.policy, one.rollouts, temperature=settings.drawing.temperature
            )
        if wanted > settings.drawing.each:
            more = Drawing(
                sampling=settings.drawing.sampling, answers=wanted, seeds=settings.drawing.seeds[:1]
            )
            groups = answers_of(speaker, asked, more)
    return _Reference(name=name, theirs=theirs, groups=groups)


def _met(
    witnesses: Witnesses,
    asked: Sequence[Asked],
    policies: Sequence[Drawn],
    against: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, dict[Pair, list[Dueled]]]:
    """By the word of the judge, every policy against those that were asked for."""
    by_name = {one.name: one for one in policies}
    pairs: dict[Pair, tuple[Drawn, Drawn]] = {}
    for other in against:
        for one, of_one in by_name.items():
            if one != other and (other, one) not in pairs:
                pairs[one, other] = of_one, by_name[other]
    found: dict[str, dict[Pair, list[Dueled]]] = {}
    for word, judge in witnesses.judges.items() if pairs else ():
        say(f"{judge.name} compares {sum(len(one.rollouts) for one, _ in pairs.values())} times")
        found[word] = duels(judge, asked, pairs)
    return found


def _found(
    evidence: Evidence,
    met: Mapping[str, Mapping[Pair, Sequence[Dueled]]],
    reference: _Reference,
    witnesses: Witnesses,
    settings: EvaluationSettings,
) -> PolicyEvaluation:
    words = common_words([answers_by_prompt(one) for one in evidence.policies])
    first = next(iter(met.values()), {})
    rate = len(evidence.policies) > 2 and bool(first)
    every = rows(evidence)
    curve, turning = _best_of(evidence, reference, witnesses, settings)
    notes = notes_of(evidence, met, witnesses.judges, settings.drawing)
    return PolicyEvaluation(
        policies=tuple(figures(one, evidence, words, settings.resampling) for one in evidence.policies),
        reference=reference.name,
        gold=None if witnesses.gold is None else witnesses.gold.name,
        reward=None if witnesses.reward is None else witnesses.reward.name,
        prompts=len(evidence.asked),
        answers=settings.drawing.each,
        sampling=settings.drawing.in_words,
        seeds=settings.drawing.seeds,
        contests=tuple(
            contest(
                Names(policy=one, against=other, judge=witnesses.judges[word].name),
                some,
                settings.resampling,
                order_seen=witnesses.judges[word].order_seen,
            )
            for word, of_judge in met.items()
            for (one, other), some in of_judge.items()
        ),
        ratings=ratings(first, settings.resampling) if rate else (),
        best_of=curve,
        over_optimisation=turning,
        shown=_some(every, settings),
        notes=(*notes, *(rating_note(first) if rate else ())),
        every=every,
        weighed=tuple(row for one in evidence.policies for row in one.weighed),
    )


def _best_of(
    evidence: Evidence, reference: _Reference, witnesses: Witnesses, settings: EvaluationSettings
) -> tuple[BestOfCurve | None, OverOptimisation | None]:
    """Of the reference's answers, where a reward can choose and the truth is known."""
    if witnesses.gold is None or witnesses.reward is None or len(reference.groups[0]) < 2:
        return None, None
    scorers = (witnesses.reward, witnesses.gold)
    return chosen_curve(evidence.asked, reference.groups, scorers, settings.resampling)


def _some(every: Sequence[Shown], settings: EvaluationSettings) -> tuple[Shown, ...]:
    """The first answers to prompts that are drawn by chance, in their order."""
    first = every[:: settings.drawing.each]
    chance = random.Random(f"shown {settings.resampling.seed}")
    chosen = sorted(chance.sample(range(len(first)), min(settings.shown, len(first))))
    return tuple(first[place] for place in chosen)
