"""Folders of exercises with figures that a test decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from examples.exercises.page import ExerciseResult
from plaudit.engine.step_report import Number
from plaudit.evaluation.policies.result import PolicyAnswer, PromptAnswers, write_policy_evaluation
from plaudit.files import atomic
from plaudit.runs.pipeline.store import PipelineFolder
from tests.engine.toy_runs import ToyRun, write_run
from tests.runs.report.pipeline.pipelines import FOUND, policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """What a policy of a hand-made folder does."""

    worth: float = 0.7
    reward: float = 0.0
    tokens: int = 10
    kl: float = 0.1
    wide: float = 0.0
    """How far the worth of the answers to one prompt is spread."""
    says: Callable[[int, int], str] = lambda prompt, draw: f"Answer {prompt} is {draw}."
    """By the number of the prompt and of the draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a policy run of a hand-made folder says of itself."""

    beta: float | None = None
    do: str = "ppo"


def made(
    folder: Path, habits: Mapping[str, Habit], runs: Mapping[str, Run], *, answers: int = 1, prompts: int = 40
) -> PipelineFolder:
    every = tuple(_shown(habits, prompt, draw) for prompt in range(prompts) for draw in range(answers))
    figures = tuple(policy(name, one.worth, one.kl, float(one.tokens)) for name, one in habits.items())
    plain = replace(FOUND, contests=(), ratings=(), shown=())
    found = replace(plain, policies=figures, prompts=prompts, answers=answers, all_answers=every)
    write_policy_evaluation(found, folder / "stages" / "evaluation")
    for name, run in runs.items():
        write_run(folder / "stages" / name / "run", ToyRun(steps=20, spoilt=_held))
        told = {"do": run.do, "settings": {"kl_coef": run.beta}}
        atomic.write_json(folder / "stages" / name / "stage.json", told)
    return PipelineFolder(path=folder)


def holds(seen: ExerciseResult) -> dict[str, bool | None]:
    return {claim.statement: claim.holds for claim in seen.claims}


def _shown(habits: Mapping[str, Habit], prompt: int, draw: int) -> PromptAnswers:
    unlike = 0.05 * (-1) ** prompt
    said = tuple(
        PolicyAnswer(
            policy=name,
            text=one.says(prompt, draw),
            ended=True,
            tokens=one.tokens + prompt % 2,
            gold=min(1.0, max(0.0, one.worth + unlike * (1 + one.kl) + one.wide * (draw % 2 - 0.5))),
            reward=one.reward + unlike * one.kl,
            logp=-3.0,
            kl=one.kl + unlike * one.kl,
        )
        for name, one in habits.items()
    )
    return PromptAnswers(prompt=f"What does the owl of farm {prompt} eat?", category="fact", answers=said)


def _held(step: int, values: dict[str, Number]) -> dict[str, Number]:
    if "held_out/loss" not in values:
        return values
    figures = {"judge": 0.7, "reward": step / 10, "sqrt_kl": step / 20, "length_mean": 9.0 + step}
    figures |= {"entropy": 0.4}
    return values | {f"held_out/{name}": value for name, value in figures.items()}
