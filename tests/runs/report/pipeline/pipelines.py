"""Folders of pipelines with plausible figures, written as `plaudit run` leaves them."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.engine.step_report import Number
from plaudit.evaluation.policies import result
from plaudit.evaluation.policies.calibration import PolicyCalibration
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Bin, Estimate
from plaudit.files import atomic
from tests.engine.toy_runs import ToyRun, write_run
from tests.runs.report.reward_models.page_zoo import FULL, curve

CODE = {"plaudit": "0.1.0", "commit": "f856f57dabd2b3f2d5c98cc842c0ff85b998ceff", "changed": False}
CONFIG = """\
name: valley
seed: 0
model: world
stages:
- demonstrations: {do: world-rows, make: demonstrations, n: 1500}
- sft: {do: sft, model: $model, data: $demonstrations, epochs: 1}
- comparisons: {do: world-rows, make: comparisons, model: $sft, annotators: crowd, n: 2000}
- prompts: {do: world-rows, make: prompts, n: 400}
- reward: {do: reward, model: $sft, data: $comparisons}
- reward-judged: {do: judge-reward, reward: $reward, data: $comparisons}
- dpo: {do: dpo, model: $sft, data: $comparisons}
- grpo: {do: grpo, model: $sft, prompts: $prompts, reward: $reward}
- ppo: {do: ppo, model: $sft, prompts: $prompts, reward: $reward}
- evaluation: {do: evaluate, policies: [$model, $sft, $dpo, $grpo, $ppo], against: $sft, reward: $reward}
"""
STAGES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "demonstrations": ("world-rows", (), "1,500 demonstrations of the training split."),
    "sft": ("sft", ("demonstrations",), "Held-out loss fell from 1.42 to 0.31."),
    "comparisons": ("world-rows", ("sft",), "2,000 pairs of the model's own answers, judged by the crowd."),
    "prompts": ("world-rows", (), "400 prompts of the training split."),
    "reward": ("reward", ("sft", "comparisons"), "Two reward models; held-out accuracy 71 %."),
    "reward-judged": ("judge-reward", ("reward", "comparisons"), "Right in 71.2 % of 540 pairs."),
    "dpo": ("dpo", ("sft", "comparisons"), "Held-out accuracy rose to 69 %."),
    "grpo": ("grpo", ("sft", "reward", "prompts"), "Held-out reward rose from 0.02 to 0.91."),
    "ppo": ("ppo", ("sft", "reward", "prompts"), "Held-out reward rose from 0.02 to 1.13."),
    "evaluation": ("evaluate", ("sft", "dpo", "grpo", "ppo", "reward"), "Five policies on 400 prompts."),
}
TRAINED = ("sft", "reward", "dpo", "grpo", "ppo")
PARTS = ("fact", "arithmetic", "list", "explain", "opinion", "unanswerable", "harmful", "follow-up")


def share(value: float, half: float = 0.04) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half, n=400, prompts=400)


def policy(
    name: str, worth: float, kl: float, length: float = 10.5, unlike: float = 0.55
) -> result.PolicyFigures:
    """One policy; the further it is away, the higher its reward."""
    gaps = zip(PARTS, (0.08, -0.2, 0.1, 0.02, -0.1, -0.03, 0.12, 0.01), strict=True)
    return result.PolicyFigures(
        name=name,
        model=f"runs/valley/stages/{name}/run/model",
        gold=share(worth, 0.03),
        by_category=tuple(
            result.CategoryFigure(name=part, value=share(min(worth + gap, 0.97), 0.07)) for part, gap in gaps
        ),
        reward=share(1.4 * math.sqrt(kl), 0.1),
        length=share(length, 0.4),
        finished=share(0.995 - kl / 50, 0.01),
        kl=share(kl, 0.05 * kl),
        kl_token=share(kl / length, 0.01),
        entropy=share(0.34 - 0.1 * kl, 0.02),
        diversity=result.Diversity(
            words=6,
            answers=380,
            distinct_1=unlike / 2,
            distinct_2=unlike,
            self_bleu=30.0 + 20 * kl,
            self_bleu_within=None,
            unique=0.94 - 0.1 * kl,
            unique_within=None,
        ),
    )


def trust(error: float, change: Estimate | None = None) -> PolicyCalibration:
    """So far from being as often right as sure, and so much further than the reference."""
    return PolicyCalibration(
        accuracy=share(0.9 - error),
        confidence=share(0.9),
        surplus=share(error),
        ece=share(error, 0.02),
        brier=share(0.2 + error),
        log_loss=share(0.4 + error),
        covered=share(0.7),
        by_width=(Bin(low=0.8, high=0.9, confidence=0.88, right=0.88 - error, pairs=120),),
        surplus_change=change,
        ece_change=change,
    )


def contest(name: str, rate: float, **changes: Any) -> result.Contest:
    won, lost = round(rate * 240), round((1 - rate) * 240)
    one = result.Contest(
        policy=name,
        against="sft",
        judge="gold",
        won=won,
        tied=160,
        lost=lost,
        unjudged=0,
        reasons={},
        raw=share(0.5 + (rate - 0.5) * 0.6, 0.035),
        decided=share(rate, 0.05),
        length_controlled=share(0.5 + (rate - 0.5) * 0.55, 0.04),
        style_controlled=None,
        consistency=None,
        first=None,
        p_value=0.0004 if abs(rate - 0.5) > 0.1 else 0.31,
        by_category=(),
    )
    return replace(one, **changes)


def shown(number: int) -> result.PromptAnswers:
    answers = {
        "base": "the owl owl eats mice and the and",
        "sft": f"The owl eats hay. It has {number} wings.",
        "dpo": "The owl eats mice.",
        "grpo": f"The owl eats hay. It has {number} wings.",
        "ppo": f"The owl eats mice. It lives in the old barn and has {number + 1} wings.",
    }
    worth = {"base": 0.1, "sft": 0.4, "dpo": 0.9, "grpo": 0.4, "ppo": 1.0}
    said = tuple(
        result.PolicyAnswer(
            policy=name,
            text=text,
            ended=name != "base",
            tokens=len(text.split()),
            gold=worth[name],
            reward=worth[name] * 2 - 0.5,
        )
        for name, text in answers.items()
    )
    return result.PromptAnswers(
        prompt=f"What does the owl of farm {number} eat?", category=PARTS[number % 8], answers=said
    )


FOUND = result.PolicyEvaluation(
    policies=(
        policy("base", 0.31, 0.9, 14.2, 0.7),
        policy("sft", 0.70, 0.0),
        policy("dpo", 0.77, 0.24, 10.9),
        policy("grpo", 0.755, 0.28),
        policy("ppo", 0.80, 0.33, 10.7),
    ),
    reference="sft",
    gold="the world",
    reward="reward",
    prompts=400,
    answers=1,
    sampling="drawn at temperature 1, at most 64 tokens",
    seeds=(0,),
    contests=(contest("base", 0.12), contest("dpo", 0.72), contest("grpo", 0.57), contest("ppo", 0.77)),
    ratings=tuple(
        result.Rating(name=name, elo=elo, low=elo - 20, high=elo + 20)
        for name, elo in {"base": 760.0, "sft": 1010.0, "dpo": 1070.0, "grpo": 1050.0, "ppo": 1110.0}.items()
    ),
    best_of=curve(0.30, 0.06),
    shown=tuple(map(shown, range(20))),
    notes=("Answers of base were drawn with the template of the shipped model.",),
)


def learning(name: str) -> ToyRun:
    return ToyRun(
        steps=60, spoilt=lambda step, values: values | _figures(name, step / 60, "held_out/loss" in values)
    )


def _figures(name: str, done: float, looked: bool) -> dict[str, Number]:
    if name == "sft":
        return {}
    if name in ("reward", "dpo"):
        own: dict[str, Number] = {"accuracy": 0.5 + 0.2 * done, "margin": done}
        return own | (
            {"held_out/accuracy": 0.5 + 0.19 * done, "held_out/margin": 0.8 * done} if looked else {}
        )
    kl = 0.4 * done
    policy: dict[str, Number] = {
        "reward": done,
        "kl": kl,
        "sqrt_kl": math.sqrt(kl),
        "entropy": 0.5 - 0.2 * done,
    }
    held = {"reward": 1.1 * done, "judge": done - 0.7 * done**2, "kl": kl, "sqrt_kl": math.sqrt(kl)}
    return policy | ({f"held_out/{key}": value for key, value in held.items()} if looked else {})


def write_stage(
    folder: Path, found: result.PolicyEvaluation = FOUND, rewards: tuple[RewardEvaluation, ...] = (FULL,)
) -> None:
    name = folder.name
    do, needs, said = STAGES[name]
    folder.mkdir(parents=True)
    if name in TRAINED:
        write_run(folder / "run", learning(name))
    if do == "evaluate":
        result.write_policy_evaluation(found, folder)
    if do == "judge-reward":
        atomic.write_json(folder / "summary.json", json_of(rewards))
        (folder / "scores.jsonl").write_text("")
    outputs = {path.name: _digest(path) for path in sorted(folder.iterdir()) if path.is_file()}
    inputs = {f"from {need}": {"from": need, "hash": "ab" * 32} for need in needs} | {
        "rows": {"path": "data/rows.jsonl", "hash": "9f" * 32}
    }
    checks = [
        {"name": "end-of-turn", "verdict": "pass", "saw": "24 rows end with their end of turn", "mend": ""},
        {"name": "read-alike", "verdict": "FAIL", "saw": "2 of 24 rows differ", "mend": "Set --template."},
        {"name": "placed", "verdict": "not applicable", "saw": "no reward", "mend": ""},
    ]
    told = {
        "name": name,
        "do": do,
        "settings": {"epochs": 1, "learning-rate": 5e-4, "seed": 0},
        "needs": list(needs),
        "inputs": inputs,
        "key": "cd" * 32,
        "outputs": outputs,
        "code": CODE,
        "seconds": 3.5 + 7 * len(needs),
        "began": "2026-11-21T12:00:00Z",
        "ended": "2026-11-21T12:03:00Z",
        "command": f"plaudit train {do} --out runs/{name}" if name in TRAINED else "",
        "said": [said, "3 rows were too long and left out."],
        "checks": checks if name in TRAINED else [],
    }
    atomic.write_json(folder / "stage.json", told)


def json_of(rewards: tuple[RewardEvaluation, ...]) -> dict[str, Any]:
    """What ``plaudit eval reward --out`` writes; the zoo's one infinite odds are made finite."""
    plain = json.loads(json.dumps([one.as_json() for one in rewards]).replace("Infinity", "900.0"))
    return {"evaluations": plain}


def write_pipeline(
    folder: Path, found: result.PolicyEvaluation = FOUND, *, stages: int = len(STAGES)
) -> Path:
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(CONFIG)
    for name in [*STAGES][:stages]:
        write_stage(folder / "stages" / name, found)
    return folder


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
