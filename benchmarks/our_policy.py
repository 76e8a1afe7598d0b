"""One run of plaudit's policy optimisation on a work folder, in its own process; prints one line of JSON.

The way is that of ``plaudit train grpo`` and ``ppo``: the run is prepared by the recipe, and a step here is a
whole round, from drawing answers to the last of its moves.
"""

from __future__ import annotations

import json
import statistics
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

import plaudit
from benchmarks.measure import MIB, Report, Watch, read_all
from benchmarks.our_preference import flops_of
from benchmarks.our_reward import flops_of_scorer
from benchmarks.trial import OPTIMIZER, RATE, arguments
from benchmarks.work import LONGEST, PROMPTS, REFERENCE, REWARD, SAMPLED, SAMPLES
from plaudit.engine.distributed import single_process
from plaudit.engine.loop import BatchOrder, TrainingJob
from plaudit.engine.metrics import matmul_rate, values_of
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import MemorySettings
from plaudit.engine.step import Stepper, take_step
from plaudit.engine.step_report import Number
from plaudit.losses.divergence import k1, k3
from plaudit.methods.config import ReferenceSettings
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.config import DrawSettings, PolicyConfig, policy_config_type
from plaudit.methods.policy.iterations import RolloutRounds
from plaudit.methods.policy.objective import ActorCritic, AnyMicrobatch, PolicyMicrobatch
from plaudit.methods.policy.run import prepare_policy_run
from plaudit.methods.run import Run
from plaudit.models.load import device_of, precision
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rollouts.sampler import Answer, Rollout, SamplingSettings, TokenIds
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.preferences import JudgedRow, RatingLabel

METHODS = {"grpo": "grpo", "grpo-kl": "grpo", "ppo": "ppo"}
"""What is compared, and which row of the table that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTrial:
    """A run that can go through rounds.

    Example: ``trial_on(given).round(1)``
    """

    job: TrainingJob[AnyMicrobatch]
    """What the recipe prepared."""
    stepper: Stepper[AnyMicrobatch]
    """What takes a step."""
    order: BatchOrder
    """Which prompts make up a round."""
    encoder: Encoder
    """The tokenizer."""

    def round(self, number: int) -> tuple[Round, list[dict[str, Number]]]:
        """Draw, score and look; then every move of it, each with its figures."""
        inner, figures, microbatches = (
            self.job.updates_per_batch,
            list[dict[str, Number]](),
            list[AnyMicrobatch](),
        )
        for step in range((number - 1) * inner + 1, number * inner + 1):
            pieces = next(self.job.microbatches(step, self.order.batch_rows))
            microbatches += pieces
            outcome = take_step(self.stepper, pieces, RATE)
            assert outcome.fault is None, outcome.fault
            figures.append({**values_of(outcome.metrics), "grad_norm": outcome.gradient_norm})
            for part in self.job.state.values():
                part.after_step(step, figures[-1])
        assert isinstance(microbatches[0], PolicyMicrobatch)
        return microbatches[0].round, figures


def config_of(given: Any) -> PolicyConfig:
    """The settings of a run on this folder; nothing is written to ``out``."""
    learnt = given.method == "ppo"
    near = given.method != "grpo"
    # TRL's GRPO takes the mean over tokens by default, and no KL.
    grpo = {"reduction": "tokens", "divergence": "loss" if near else "none", "group_size": given.answers}
    config_type: Any = policy_config_type(METHODS[given.method])
    return config_type(
        model=given.work / "model",
        prompts=given.work / (SAMPLED if given.agree else PROMPTS),
        reward=str(given.work / REWARD) if learnt else "benchmarks.work:sevens",
        out=given.work / "out",
        held_out="0",
        batch_size=given.batch,
        learning_rate=RATE,
        dtype=given.dtype,
        device=given.device,
        max_length=LONGEST,
        optimizer=OPTIMIZER,
        **({} if learnt else grpo),
        draw=DrawSettings(max_tokens=given.completion),
        reference=ReferenceSettings(model=given.work / REFERENCE) if near else ReferenceSettings(kind="none"),
        memory=MemorySettings(layout=given.layout, tokens_at_once=given.tokens_at_once),
    )


def trial_on(given: Any) -> PolicyTrial:
    """The parts of a run on this folder."""
    config = config_of(given)
    encoder = make_encoder(config.model)
    ranks = single_process(device_of(config.device))
    numbers = precision(config.dtype, ranks.device)
    method = METHODS[given.method]
    run = Run(config=config, method=method, encoder=encoder, precision=numbers, ranks=ranks)
    ready, _ = prepare_policy_run(method, config, run)
    stepper = Stepper(
        module=ready.module,
        optimizer=make_optimizer(ready.module, RATE, OPTIMIZER, ready.rate_multiples),
        objective=ready.objective,
        clip=OPTIMIZER.clip,
        ranks=ranks,
        clip_groups=ready.clip_groups,
    )
    order = BatchOrder(rows=ready.rows, batch_size=config.batch_size, seed=config.seed)
    return PolicyTrial(job=ready, stepper=stepper, order=order, encoder=encoder)


def measured(trial: PolicyTrial, given: Any) -> Report:
    """Go through rounds and say what each cost."""
    watch, stepper, actor = Watch(device=given.device), trial.stepper, _actor(trial)
    losses, flops, rounds = list[float](), list[float](), list[tuple[Example, ...]]()
    read_all(p.detach() for p in stepper.module.parameters())
    watch.start()
    for number in range(1, given.steps + 1):
        done, figures = trial.round(number)
        watch.step_done()
        losses.append(float(figures[0]["loss"]))
        flops.append(flops_of_round(actor, done.examples, given.method, trial.job.updates_per_batch))
        rounds.append(done.examples)
    state = sum(value.nbytes for slots in stepper.optimizer.state.values() for value in slots.values())
    return Report(
        who=f"plaudit {plaudit.__version__}",
        setting=f"{given.method}, {given.dtype}",
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        batch=sum(len(example.completions) for example in rounds[0]),
        first_loss=losses[0],
        seconds=tuple(watch.seconds),
        cpu_seconds=tuple(watch.cpu_seconds),
        base_mib=watch.resident_mib + state / MIB,
        peak_mib=watch.peak_mib,
        flops=statistics.median(flops[1:] or flops),
        matmul_flops=matmul_rate(given.device, getattr(torch, given.dtype)),
        tokens=sum(example.trained_tokens for examples in rounds for example in examples),
    )


def flops_of_round(actor: ActorCritic, examples: Iterable[Example], method: str, moves: int) -> float:
    """The operations that a round needs, each prompt computed once for all its answers.

    Drawing is one forward pass, a reference another one, a move is three; log-probs of before are those of
    drawing. A critic looks once and then moves as often, a reward model of its size looks once.
    """
    rows = [JudgedRow(example=example, judgement=RatingLabel(score=0.0, thumb=False)) for example in examples]
    passes = 1 + (method != "grpo") + 3 * moves
    needed = flops_of(actor.policy, rows, live=False) / 3 * passes
    if actor.critic is None:
        return needed
    assert isinstance(actor.critic, RewardModel), "a head on the policy's own layers is another count"
    return needed + flops_of_scorer(actor.critic, rows) / 3 * (2 + 3 * moves)


class Fixed:
    """A sampler that says what stands in the work folder, as likely as the policy finds it."""

    def __init__(self, work: Path, policy: Policy, encoder: Encoder):
        """Read the answers; prompts are known by their tokens."""
        lines = (work / SAMPLED).read_text(encoding="utf-8").splitlines()
        answers = json.loads((work / SAMPLES).read_text(encoding="utf-8"))
        self._answers = {
            encoder.encode_prompt(json.loads(line)["prompt"]): own
            for line, own in zip(lines, answers, strict=True)
        }
        self.version = 0
        self._policy = policy
        self._encoder = encoder

    def refresh(self) -> None:
        """Its answers do not move."""

    def generate(
        self, prompts: Sequence[TokenIds], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """The first ``n`` answers to each."""
        del settings
        return [self._group(prompt, n) for prompt in prompts]

    def _group(self, tokens: TokenIds, n: int) -> list[Rollout]:
        answers = [tuple(ids) for ids in self._answers[tokens][:n]]
        completions = tuple(Completion(ids=ids, mask=(True,) * len(ids), finished=True) for ids in answers)
        with torch.no_grad():
            logp_NT = self._policy.score(batch_of([Example(prompt=tokens, completions=completions)])).logp_NT
        rows = zip(answers, logp_NT.tolist(), strict=True)
        return [self._rollout(tokens, ids, tuple(row[: len(ids)])) for ids, row in rows]

    def _rollout(self, prompt: tuple[int, ...], ids: tuple[int, ...], logp: tuple[float, ...]) -> Rollout:
        text = self._encoder.info.tokenizer.decode(list(ids), skip_special_tokens=True)
        answer = Answer(text=str(text), tokens=len(ids), ended=True)
        return Rollout(prompt=prompt, ids=ids, logp=logp, whole_logp=logp, answer=answer)


def agreement(trial: PolicyTrial, given: Any) -> list[float]:
    """Of the fixed samples: their rewards, KL, loss of the first move, value loss.

    The KL is what each side reports: GRPO's k3 a token, PPO's k1 an answer; 0 where there is no reference.
    """
    rounds = trial.job.state["rounds"]
    assert isinstance(rounds, RolloutRounds)
    sampler = Fixed(given.work, _actor(trial).policy, trial.encoder)
    rounds.collector = replace(rounds.collector, sampler=sampler)
    row = trial.order.batch_rows(1)
    collected = rounds.collector.collect([rounds.prompts[r] for r in row], 1, ())
    scores = {r: group.scores for r, group in zip(row, collected.groups, strict=True)}
    done, figures = trial.round(1)
    rewards = [float(score or 0.0) for r in sorted(scores) for score in scores[r]]
    return [
        *rewards,
        _kl(done, given.method),
        float(figures[0]["loss"]),
        float(figures[0].get("value_loss", 0.0)),
    ]


def _kl(done: Round, method: str) -> float:
    if method == "grpo":
        return 0.0
    answers = [answer for example in done.examples for answer in example.completions]
    shift = [
        (done.experience.old_logp_NT - done.experience.ref_logp_NT)[n : n + 1, : len(answer.ids)]
        for n, answer in enumerate(answers)
    ]
    if method == "ppo":
        return statistics.fmean(float(k1(own).sum()) for own in shift)
    return float(k3(torch.cat(shift, -1)).mean())


def _actor(trial: PolicyTrial) -> ActorCritic:
    assert isinstance(trial.job.module, ActorCritic)
    return trial.job.module


def parse_arguments(words: Sequence[str] | None = None) -> Namespace:
    """What the command line says."""
    parser = arguments("time plaudit's policy optimisation on a work folder")
    parser.add_argument("--method", choices=METHODS, default="grpo")
    parser.add_argument("--answers", type=int, default=8, help="to each prompt; PPO draws one")
    parser.add_argument("--completion", type=int, default=64, help="tokens of an answer")
    parser.add_argument(
        "--agree", action="store_true", help="print what is said of the fixed samples instead"
    )
    return parser.parse_args(words)


def main() -> None:
    """From the command line: python -m benchmarks.our_policy FOLDER --method grpo --batch 8."""
    given = parse_arguments()
    torch.set_num_threads(given.threads)
    trial = trial_on(given)
    print(json.dumps(agreement(trial, given)) if given.agree else measured(trial, given).line())


if __name__ == "__main__":
    main()
