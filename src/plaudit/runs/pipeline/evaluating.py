"""The evaluations that stages ask for: policies on prompts, rewards and judges on comparisons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from plaudit.data.formats.layout import ReadOptions
from plaudit.evaluation.policies import WRITTEN
from plaudit.evaluation.policies.evaluate import evaluate_policies
from plaudit.evaluation.policies.generate import Contestant
from plaudit.evaluation.policies.judge import check_judge
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.prompt_sets import prompt_set
from plaudit.evaluation.reward_models import evaluate
from plaudit.evaluation.run import (
    Agreement,
    evaluated_rewards,
    judge_agreements,
    requested_choices,
    requested_prompts,
    requested_scorers,
    requested_settings,
)
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.comparing import compares_pairs
from plaudit.runs.pipeline.settings import EvaluateSettings, JudgeRewardSettings


def evaluate_requested_policies(
    settings: EvaluateSettings, models: Mapping[str, Contestant], *, on_progress: Callable[[str], None]
) -> PolicyEvaluation:
    # A prompted policy is called by its own name alone.
    names = {str(model.folder or WRITTEN): name for name, model in models.items() if not model.has_context}
    for word in settings.judges:
        check_judge(word, has_gold=settings.true_worth is not None)
    if settings.prompts is None:
        available = len(prompt_set().prompts(None, split=settings.split, seed=settings.seed))
        settings = replace(settings, n=min(settings.n, available))
    against = tuple(names.get(folder, folder) for folder in settings.against)
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    return evaluate_policies(
        models,
        requested_prompts(settings, options),
        requested_scorers(settings, settings.true_worth, settings.judges),
        requested_settings(settings, against, requested_choices(settings), best_of=settings.best_of or 0),
        on_progress=on_progress,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModels:
    rewards: list[evaluate.EvaluatedReward]
    judges: list[Agreement]
    notes: tuple[str, ...]


def evaluate_requested_rewards(settings: JudgeRewardSettings, names: Sequence[str]) -> EvaluatedModels:
    """The rewards and judges, each under its name, on the comparisons that were asked for."""
    resampling = Resampling(times=settings.bootstrap, seed=settings.seed)
    options = ReadOptions(columns=settings.columns, leave_out=settings.leave_out)
    evidence, notes = evaluate.read_reward_data(
        settings.data, threshold=settings.threshold, n=settings.n, seed=settings.seed, options=options
    )
    records = evidence.records
    if settings.world:
        evidence = prompt_set().knowledge(evidence, answers=settings.best_of or 16, resampling=resampling)
    judges = [word for word in settings.models if ":" in word and compares_pairs(word)]
    rewards = {word: name for word, name in zip(settings.models, names, strict=True) if word not in judges}
    evaluated = evaluated_rewards(rewards, evidence, resampling, device=settings.device)
    _, agreements = judge_agreements(judges, records, settings, resampling)
    return EvaluatedModels(rewards=evaluated, judges=agreements, notes=notes + evidence.notes)
