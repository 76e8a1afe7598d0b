"""The stages that judge: policies on prompts that were never trained, rewards on fresh comparisons."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from plaudit.evaluation.evaluate import evaluate as evaluate_reward
from plaudit.evaluation.files import write_results as write_rewards
from plaudit.evaluation.policies.choices import Closed, read_choices
from plaudit.evaluation.policies.drawn import Asked, Drawing, asked_of
from plaudit.evaluation.policies.evaluate import EvaluationSettings, Witnesses, evaluate_policies
from plaudit.evaluation.policies.files import write_results
from plaudit.evaluation.policies.judging import GOLD, JudgeSettings, check_judge, judge_named
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.reading import read_evidence
from plaudit.evaluation.resample import Resampling
from plaudit.pipeline.kind_settings import EvaluateSettings, JudgeRewardSettings
from plaudit.pipeline.work import Made, Work, on_the_line
from plaudit.rewards.folder import load_reward
from plaudit.rewards.named import reward_named
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import SamplingSettings
from plaudit.sources import read_records
from plaudit.world.evidence import gold, with_world
from plaudit.world.exam import MOST_CLOSED, closed_exam, exam, truth
from plaudit.world.making import prompts
from plaudit.world.questions import CATEGORIES

_WORLD = "world"


def evaluate(work: Work) -> Made:
    """Policies against each other."""
    told: EvaluateSettings = work.config()
    models = {
        work.called(word): Path(folder)
        for word, folder in zip(work.stage.inputs["policies"], told.policies, strict=True)
    }
    names = {str(folder): name for name, folder in models.items()}
    for word in told.judge:
        check_judge(word, gold=told.true_worth is not None)
    found = evaluate_policies(
        models,
        _asked(told),
        _witnesses(told),
        EvaluationSettings(
            drawing=_drawing(told),
            against=tuple(names[folder] for folder in told.against),
            resampling=Resampling(times=told.bootstrap, seed=told.seed),
            best_of=told.best_of or 0,
            closed=_closed(told),
        ),
        say=print,
    )
    write_results(found, work.here)
    return Made(said=(*_sentences(found), *found.notes), command=_command(told, work))


def judge_reward(work: Work) -> Made:
    """Rewards on comparisons, as ``plaudit eval reward`` does."""
    told: JudgeRewardSettings = work.config()
    resampling = Resampling(times=told.bootstrap, seed=told.seed)
    read = read_evidence(told.data, threshold=told.threshold, n=told.n, seed=told.seed)
    evidence = read.evidence
    if told.world:
        evidence = with_world(evidence, answers=told.best_of or 16, resampling=resampling)
    found = []
    for word, name in zip(work.stage.inputs["models"], told.models, strict=True):
        done = evaluate_reward(_reward(name, told.device), evidence, resampling)
        found.append(replace(done, evaluation=replace(done.evaluation, model=work.called(word))))
    write_rewards(found, work.here)
    told_of = ", ".join(f"{one.evaluation.model}: {one.evaluation.accuracy.value:.1%} right" for one in found)
    options = {
        "data": told.data,
        "world": told.world or None,
        "best-of": told.best_of,
        "n": told.n,
        "seed": told.seed,
    }
    command = on_the_line("plaudit eval reward", *told.models, out=work.here, **options)
    return Made(said=(told_of, *read.said), command=command)


def _reward(word: str, device: str) -> Reward:
    if word == GOLD:
        return gold()
    return load_reward(Path(word), device=device) if Path(word).is_dir() else reward_named(word)


def _drawing(told: EvaluateSettings) -> Drawing:
    return Drawing(
        sampling=SamplingSettings(temperature=told.temperature, max_tokens=told.max_tokens),
        answers=told.answers,
        seeds=tuple(range(told.seed, told.seed + told.seeds)),
        device=told.device,
    )


def _asked(told: EvaluateSettings) -> tuple[Asked, ...]:
    """The world's questions of a split, or those of a file; as many as are wanted, by chance."""
    if told.prompts is None:
        there = len(prompts(split=told.split, categories=CATEGORIES))
        return exam(min(told.n, there), split=told.split, seed=told.seed)
    asked = asked_of(read_records(told.prompts).records)
    places = range(len(asked))
    chosen = sorted(random.Random(f"prompts {told.seed}").sample(places, min(told.n, len(asked))))
    return tuple(asked[place] for place in chosen)


def _closed(told: EvaluateSettings) -> tuple[Closed, ...]:
    if told.choices is not None:
        return read_choices(told.choices)
    own = told.prompts is not None
    return () if own else closed_exam(min(told.n, MOST_CLOSED), split=told.split, seed=told.seed)


def _witnesses(told: EvaluateSettings) -> Witnesses:
    known: dict[str, Reward] = {}
    worth = told.true_worth
    if worth is not None:
        known[GOLD] = truth() if worth == _WORLD else reward_named(worth)
    if told.reward is not None:
        known[str(told.reward)] = load_reward(told.reward, device=told.device)
    how = JudgeSettings(device=told.device)
    return Witnesses(
        gold=known.get(GOLD),
        reward=known.get(str(told.reward)),
        judges={word: judge_named(word, known, how) for word in told.judge},
    )


def _sentences(found: PolicyEvaluation) -> list[str]:
    won = (
        f"{one.policy} is preferred to {one.against} by {one.judge} in {one.raw.value:.1%} "
        f"({one.raw.low:.1%} to {one.raw.high:.1%})"
        for one in found.contests
        if one.raw is not None
    )
    each = "an answer" if found.answers == 1 else f"{found.answers} answers"
    asked = f"{found.prompts} prompts, {each} of every policy to each; {found.sampling}"
    return [asked, *won]


def _command(told: EvaluateSettings, work: Work) -> str:
    options: Mapping[str, object] = {
        "against": told.against,
        "world": told.prompts is None or None,
        "prompts": told.prompts,
        "choices": told.choices,
        "split": told.split if told.prompts is None else None,
        "n": told.n,
        "answers": told.answers,
        "seeds": told.seeds,
        "seed": told.seed,
        "temperature": told.temperature,
        "max-tokens": told.max_tokens,
        "judge": told.judge,
        "reward": told.reward,
        "best-of": told.best_of,
    }
    return on_the_line("plaudit eval policy", *told.policies, out=work.here, **options)
