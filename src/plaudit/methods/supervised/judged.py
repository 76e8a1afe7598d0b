"""Fine-tuning whose checkpoint is chosen by a reward: answers to held-out prompts are scored at each look.

Ouyang et al. 2022 (InstructGPT, arXiv:2203.02155, section 3.5) choose so, since the loss on held-out rows
rises long before answers get worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from plaudit.engine.metrics import Metric, mean_metric
from plaudit.engine.step import InterruptCheck, merge_over_ranks
from plaudit.errors import UserError
from plaudit.methods.config import SftConfig
from plaudit.methods.data import Rows
from plaudit.methods.run import Run
from plaudit.models.policy import Policy
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.sampler import SamplingSettings, WeightsVersion
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt_records

JUDGED_METRICS = ("held_out/judge", "held_out/length_mean", "held_out/frac_finished")
"""What answers to held-out prompts add to the figures of a look."""


def chosen_by_judge(config: SftConfig) -> SftConfig:
    """The config by which the judge's score chooses the model, unless another figure was named."""
    if config.judge.by is None or config.keep.best != "held_out/loss":
        return config
    keep = replace(config.keep, best="held_out/judge", best_is="highest", use_best=True)
    return replace(config, keep=keep)


def judge_files(config: SftConfig) -> tuple[Path, ...]:
    """What must be unchanged when the run goes on: the judge's folder or file."""
    return () if config.judge.by is None or not Path(config.judge.by).exists() else (Path(config.judge.by),)


def judged_evaluator(
    config: SftConfig, run: Run, policy: Policy, rows: Rows[Example]
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """The mean score of the likeliest answers to held-out prompts; each rank answers its share."""
    assert config.judge.by is not None
    ranks = run.ranks
    reward = resolve_reward(config.judge.by, device=str(ranks.device))
    prompts = _held_out_prompts(config, run.encoder, rows)
    weights = WeightsVersion()
    sampler = run.local_sampler(policy, weights)
    settings = SamplingSettings(temperature=0, max_tokens=config.judge.tokens)
    mine = prompts[ranks.rank :: ranks.world_size]

    def evaluate(check_interrupt: InterruptCheck) -> tuple[Metric, ...]:
        check_interrupt()
        # Steps lie between two looks.
        weights.moved()
        sampler.refresh()
        answers = [group[0].answer for group in sampler.generate([prompt.shown for prompt in mine], settings)]
        tasks = [
            prompt.task([(answer.text, answer.ended)]) for prompt, answer in zip(mine, answers, strict=True)
        ]
        rows_of_scores = reward.scores(tasks) if tasks else ()
        scores = [row[0] for row in rows_of_scores if row[0] is not None]
        metrics = (
            mean_metric(JUDGED_METRICS[0], math.fsum(scores), len(scores)),
            mean_metric(JUDGED_METRICS[1], sum(answer.tokens for answer in answers), len(answers)),
            mean_metric(JUDGED_METRICS[2], sum(answer.ended for answer in answers), len(answers)),
        )
        merged = merge_over_ranks(metrics, ranks)
        if not merged[0].weight:
            who = f"--judge.by {config.judge.by}"
            raise UserError(f"{who}: no answer to {len(prompts)} held-out prompts got a verdict")
        return merged

    return evaluate


def _held_out_prompts(config: SftConfig, encoder: Encoder, rows: Rows[Example]) -> tuple[EncodedPrompt, ...]:
    held_out = {example.origin for example in rows.held_out}
    records = rows.held_out_records or [record for record in rows.records if record.origin in held_out]
    encoded = encode_prompt_records(records, encoder, config.max_length - config.judge.tokens)
    if not encoded.examples:
        reasons = "; ".join(sorted({row.reason for row in encoded.refused})) or "there are none"
        raise UserError(f"--judge.by: no held-out prompt can be answered: {reasons}")
    return tuple(encoded.examples[: config.judge.prompts])
