"""Policy optimisation: from prompts and a reward to a better policy, by any algorithm of ``algorithms.py``.

A run is prepared (prompts, policy, reference, critic, reward, held-out evaluation), and its rounds are made
from its config (samplers, reward, shaping, KL control, replay), with notes that are printed before it begins.
Proximal policy optimisation: Schulman et al. 2017, arXiv:1707.06347.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from plaudit.data.read import read_records
from plaudit.data.records import Record
from plaudit.engine.checkpoint.state import Stateful
from plaudit.engine.loop import BatchOrder, TrainingJob
from plaudit.engine.metrics import training_flops
from plaudit.engine.sinks.base import Sample, Summary
from plaudit.engine.step import InterruptCheck, ObjectiveResult
from plaudit.errors import UserError
from plaudit.losses.divergence import k2, k3
from plaudit.methods.data import EncodedData, Rows, load_rows
from plaudit.methods.models import matrix_sizes, prepare_policy, shard_or_broadcast, write_model
from plaudit.methods.policy import iterations
from plaudit.methods.policy.algorithms import OWN
from plaudit.methods.policy.batch import PassRateCurriculum, ReplayBuffer
from plaudit.methods.policy.collect import (
    EpisodeReward,
    RewardSource,
    Rival,
    RolloutCollector,
    RolloutSampler,
)
from plaudit.methods.policy.config import POLICY, PolicyConfig
from plaudit.methods.policy.conflicts import (
    Algorithm,
    algorithm_note,
    configured_algorithm,
    mixture_notes,
    update_notes,
)
from plaudit.methods.policy.critic import prepare_critic, write_critic
from plaudit.methods.policy.diagnostics import diagnostics
from plaudit.methods.policy.experience import ExperienceMaker, ImportanceWeighting, ScoringModels
from plaudit.methods.policy.held_out import HELD_OUT_METRICS, HeldOutEvaluator, RolloutTrial
from plaudit.methods.policy.objective import (
    ActorCritic,
    AnyMicrobatch,
    PolicyMicrobatch,
    policy_objective,
    ptx_loss,
)
from plaudit.methods.policy.row import KlControl, PolicyAlgorithm
from plaudit.methods.policy.shaping import ScoreShaper, make_reward, process_notes
from plaudit.methods.policy.trpo import TrpoStep
from plaudit.methods.reference import PreparedReference, prepare_policy_reference, refuse_other_vocabulary
from plaudit.methods.run import Run, open_run, total_steps
from plaudit.methods.supervised.objective import microbatches_of
from plaudit.methods.supervised.run import require_demonstrations
from plaudit.models.policy import AdapterOffReference, GeneratingReference, Policy
from plaudit.models.reward_model import RewardModel, ValueHead
from plaudit.models.verify import share_tokens
from plaudit.preflight.check import PreflightSubject
from plaudit.rewards.base import Reward, compares_answers
from plaudit.rewards.registry import resolve_function, resolve_reward
from plaudit.rollouts.episodes import MAX_TURNS, EpisodeSampler
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import TurnSampler, WeightsVersion
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, encode_rows
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt_records
from plaudit.wings import offered


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSources:
    """Where the completions of a run and their scores come from."""

    prompts: Sequence[EncodedPrompt]
    sampler: RolloutSampler
    """Generates completions from the policy, alone or in turns with an environment."""
    weights: WeightsVersion = field(default_factory=WeightsVersion)
    """Counts how often the policy's weights have moved, for its samplers."""
    reward: RewardSource
    models: ScoringModels
    mixture_sampler: RolloutSampler | None = None
    """Generates from the mixture of policy and reference; None where the algorithm has no mixture."""

    @property
    def mixture_or_policy(self) -> RolloutSampler:
        return self.mixture_sampler or self.sampler


def make_reward_source(config: PolicyConfig, encoder: Encoder, device: str) -> RewardSource:
    """The reward, whose models lie on the device, or the environment."""
    if config.environment is None:
        return make_reward(config, encoder, device)
    function: Any = resolve_function(config.environment)
    return EpisodeReward(name=config.environment, environment=function)


def make_rollout_sampler(
    config: PolicyConfig, sampler: TurnSampler, encoder: Encoder, scorer: RewardSource
) -> RolloutSampler:
    """The sampler of completions: of the policy alone, or of episodes in turns with the environment."""
    if not isinstance(scorer, EpisodeReward):
        return sampler
    turns = config.max_turns or MAX_TURNS
    return EpisodeSampler(
        sampler=sampler, encoder=encoder, environment=scorer.environment, name=scorer.name, turns=turns
    )


def make_rounds(
    algorithm: PolicyAlgorithm, config: PolicyConfig, run: Run, sources: RolloutSources
) -> iterations.RolloutRounds:
    draw = config.draw
    collector = RolloutCollector(
        sampler=sources.mixture_or_policy if _mixture_share(algorithm) else sources.sampler,
        reward=sources.reward,
        sampling=config.draw.sampling(config.seed),
        completions_per_prompt=algorithm.group_size,
        ranks=run.ranks,
        rival=_make_rival(algorithm, config, sources),
        judges_pairs="rival" in algorithm.needs and compares_answers(sources.reward),
        complete_groups_only="pairs" in algorithm.needs,
        dynamic_sampling=algorithm.dynamic_sampling,
        refills=config.draw.resample_limit,
        room=config.draw.room,
    )
    experience = _make_experience(algorithm, config, run, sources)
    return iterations.RolloutRounds(
        prompts=sources.prompts,
        collector=collector,
        experience=experience,
        kl_control=KlControl.of(algorithm),
        ranks=run.ranks.rows,
        seed=config.seed,
        weights=sources.weights,
        extra_microbatches=_ptx_microbatches(config, run),
        needs_comparison="group" in algorithm.needs,
        max_flat_rounds=config.draw.flat_rounds,
        curriculum=PassRateCurriculum(sources.prompts, pass_score=draw.pass_threshold, seed=config.seed)
        if draw.curriculum
        else None,
        replay=ReplayBuffer(sources.prompts, share=draw.replay, window=draw.max_staleness, seed=config.seed)
        if draw.replay
        else None,
        ahead=_make_ahead(algorithm, config, sources, collector),
        streams=_streaming_sampler(experience, config, sources.sampler),
        streams_at_once=config.rollout.stream,
    )


def _mixture_share(algorithm: PolicyAlgorithm) -> int | float:
    # Where a rival answers, the mixture is the rival's; the policy's own answers stay on-policy.
    return 0.0 if "rival" in algorithm.needs else algorithm.mixture_coef


def _make_rival(algorithm: PolicyAlgorithm, config: PolicyConfig, sources: RolloutSources) -> Rival | None:
    """What each prompt's completions are measured against (greedy, or a rival's), if anything."""
    sampling = config.draw.sampling(config.seed)
    if "greedy_baseline" in algorithm.needs:
        return Rival(sampler=sources.sampler, sampling=replace(sampling, temperature=0))
    return Rival(sampler=sources.mixture_or_policy, sampling=sampling) if "rival" in algorithm.needs else None


def _make_experience(
    algorithm: PolicyAlgorithm, config: PolicyConfig, run: Run, sources: RolloutSources
) -> ExperienceMaker:
    bounds = config.rollout.weights
    return ExperienceMaker(
        row=algorithm,
        models=sources.models,
        shaper=ScoreShaper.of(algorithm, config.shape, config.draw.room(1)),
        ranks=run.ranks.rows,
        tokens_at_once=config.memory.tokens_at_once,
        minibatches=algorithm.minibatches,
        epochs=algorithm.update_epochs,
        room=config.draw.room,
        weighting=ImportanceWeighting(
            cap=algorithm.tis_cap, bounds=bounds, has_replay=config.draw.replay > 0, lag=config.rollout.lag
        ),
        reference_share=_mixture_share(algorithm),
    )


def _streaming_sampler(
    experience: ExperienceMaker, config: PolicyConfig, sampler: RolloutSampler
) -> iterations.BackgroundSampler | None:
    """Who draws rounds that are learnt from as they come: where an answer is measured in its group alone."""
    row = experience.row
    compared = {"group", "pairs", "rival", "greedy_baseline"} & row.needs
    looks_further = {"critic", "whitening", "old_distribution", "adaptive_penalty"} & row.needs
    round_wide = row.whitens_advantages or row.dynamic_sampling or config.shape.scale
    others = config.draw.replay or config.ptx.data is not None or config.rollout.lag
    moves_otherwise = row.updates_per_round > 1 or row.max_kl > 0 or experience.reference_share > 0
    if not compared or looks_further or round_wide or others or moves_otherwise:
        return None
    return sampler if isinstance(sampler, iterations.BackgroundSampler) else None


def _make_ahead(
    algorithm: PolicyAlgorithm, config: PolicyConfig, sources: RolloutSources, collector: RolloutCollector
) -> iterations.RoundsAhead | None:
    if not config.rollout.lag:
        return None
    sampler = sources.sampler.sampler if isinstance(sources.sampler, EpisodeSampler) else sources.sampler
    assert isinstance(sampler, iterations.BackgroundSampler), "rounds are drawn ahead by servers"
    order = BatchOrder(rows=len(sources.prompts), batch_size=config.batch_size, seed=config.seed)
    updates = algorithm.updates_per_round
    last = -(-total_steps(config, order, updates) // updates)
    return iterations.RoundsAhead(config.rollout.lag, last, collector, sampler, sources.prompts)


def _ptx_microbatches(config: PolicyConfig, run: Run) -> Callable[[int], Sequence[AnyMicrobatch]]:
    """From a step's number to its micro-batches of pretraining text (PPO-ptx); none without ``ptx.data``."""
    path = config.ptx.data
    if path is None:
        return lambda step: ()
    records = require_demonstrations(read_records(path, threshold=config.rows.threshold).records, "ptx.data")
    examples: Sequence[Example] = encode_rows(records, run.encoder, config.max_length).examples
    if not examples:
        raise UserError(f"{path}: no row of it can be learnt")
    order = BatchOrder(rows=len(examples), batch_size=config.ptx.rows, seed=config.seed)
    tokens_at_once = config.memory.tokens_at_once
    return lambda step: microbatches_of(
        [examples[row] for row in order.batch_rows(step)], run.ranks, tokens_at_once
    )


def round_notes(rounds: iterations.RolloutRounds, config: PolicyConfig) -> list[str]:
    """Notes on how many completions and optimiser steps a round has, and on sampling that biases them."""
    answers, inner = rounds.collector.completions_per_prompt, rounds.updates_per_round
    updates = "1 move" if inner == 1 else f"{inner} moves"
    notes = [
        f"a round: {config.batch_size} prompts with {answers} answer{'s' * (answers > 1)} each, "
        f"{config.batch_size * answers} answers, and {updates} ({rounds.experience.epochs} times through, "
        f"in {rounds.experience.minibatches} part{'s' * (rounds.experience.minibatches > 1)} each)"
    ]
    sampler = rounds.collector.sampler
    if isinstance(sampler, EpisodeSampler):
        notes.append(
            f"episodes: {sampler.name} answers the policy, which speaks {sampler.turns} times at most; an "
            f"episode has room for {config.draw.longest} tokens (--draw.max-tokens)"
        )
    if config.draw.growth:
        steps = (word.partition(":") for word in config.draw.growth)
        later = "".join(f", {int(room):,} from round {begin} on" for begin, _, room in steps)
        notes.append(f"an answer has room for {config.draw.max_tokens:,} tokens{later}")
    row = rounds.experience.row
    if row.reward_kl is k2 or row.reward_kl is k3:
        name = "k2" if row.reward_kl is k2 else "k3"
        notes.append(
            f"{name} in the reward: what the policy then climbs lacks the estimator's own "
            "gradient, so it is held otherwise than by the KL (docs/proof.md); k1 is right there"
        )
    if not config.draw.sampling(0).is_unrestricted:
        notes.append(
            "top-k, top-p or min-p leave tokens out when answers are drawn, and the policy learns as if they "
            "did not: the KL can then come out below 0, and ratios are not those of what was drawn"
        )
    return notes


HELD_OUT_SEED_OFFSET = 7919
"""Added to the seed for held-out generation, so that it shares no random numbers with any round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """All that a run works with. Example: ``prepare_run("grpo", config, run)``."""

    algorithm: PolicyAlgorithm
    rows: Rows[EncodedPrompt]
    actor: ActorCritic
    models: ScoringModels
    reference: PreparedReference
    rounds: iterations.RolloutRounds
    evaluator: HeldOutEvaluator
    journal: Stateful | None
    """A sampler that keeps what it has drawn, and is told of checkpoints."""


def prepare_run(algorithm: Algorithm, config: PolicyConfig, run: Run) -> PreparedRun:
    """Load all models and rewards of a run; contradictory settings are refused before."""
    configured = configured_algorithm(algorithm, config)
    refuse_other_vocabulary(config, run.encoder)
    device = str(run.ranks.device)
    reward = make_reward_source(config, run.encoder, device)
    judge = None if config.judge.by is None else resolve_reward(config.judge.by, device=device)
    rows = load_rows(config, run.encoder, partial(encode_prompts_with_room, config), run.folder)
    policy, notes = prepare_policy(run.config, run.precision, run.ranks, by_parts=not config.critic.shared)
    needed, draws = "reference" in configured.needs, bool(configured.mixture_coef)
    reference = prepare_policy_reference(config, policy, run, needed=needed, draws=draws)
    critic, critic_notes = _load_critic(configured, config, run, policy)
    notes += shard_or_broadcast(policy, config, run.ranks)
    models = ScoringModels(
        policy=policy, reference=reference.reference, critic=critic, temperature=config.draw.temperature
    )
    weights = WeightsVersion()
    sampler = _policy_sampler(config, run, policy, weights)
    mixture_sampler = _make_mixture_sampler(configured, sampler, models)
    sources = RolloutSources(
        prompts=rows.train,
        sampler=make_rollout_sampler(config, sampler, run.encoder, reward),
        weights=weights,
        reward=reward,
        models=models,
        mixture_sampler=mixture_sampler,
    )
    rounds = make_rounds(configured, config, run, sources)
    notes = [*rows.notes, *notes, algorithm_note(algorithm, configured), *reference.notes, *critic_notes]
    run.note(*notes, *_rollout_notes(configured, config, mixture_sampler or sampler, rounds))
    return PreparedRun(
        algorithm=configured,
        rows=rows,
        actor=ActorCritic(policy, critic),
        models=models,
        reference=reference,
        rounds=rounds,
        evaluator=_held_out_evaluator(config, run, replace(sources, prompts=rows.held_out), judge),
        journal=sampler if isinstance(sampler, Stateful) else None,
    )


def _policy_sampler(config: PolicyConfig, run: Run, policy: Policy, weights: WeightsVersion) -> TurnSampler:
    """Who draws from the policy: it itself on this machine, or servers that are sent its weights."""
    if config.sampler == "local":
        return run.local_sampler(policy, weights)
    make = offered("remote_sampler", of="serving")
    return make(run, config.sampler, config.server, policy, weights, temperature=config.draw.temperature)


def _rollout_notes(
    algorithm: PolicyAlgorithm, config: PolicyConfig, sampler: TurnSampler, rounds: iterations.RolloutRounds
) -> list[str]:
    slow_reason = sampler.fallback_reason if isinstance(sampler, LocalSampler) else None
    return [
        *(() if slow_reason is None else (f"sampling is slower here: {slow_reason}",)),
        *mixture_notes(algorithm),
        *round_notes(rounds, config),
        *update_notes(algorithm, config),
        *process_notes(algorithm, config),
    ]


def _make_mixture_sampler(
    algorithm: PolicyAlgorithm, sampler: TurnSampler, models: ScoringModels
) -> LocalSampler | None:
    share = algorithm.mixture_coef
    if not share:
        return None
    assert isinstance(sampler, LocalSampler), "a mixture is drawn locally"
    reference = models.reference
    if isinstance(reference, AdapterOffReference):
        # What draws may be a copy of what learns, and has the adapters that are turned off.
        reference = AdapterOffReference(sampler.policy, temperature=models.temperature)
    assert isinstance(reference, GeneratingReference), "answers of a mixture need a reference that speaks"
    return sampler.mixed_with(reference, share)


def _held_out_evaluator(
    config: PolicyConfig, run: Run, sources: RolloutSources, judge: Reward | None
) -> HeldOutEvaluator:
    return HeldOutEvaluator(
        sampler=sources.sampler,
        reward=sources.reward,
        judge=judge,
        models=sources.models,
        sampling=config.draw.sampling(config.seed + HELD_OUT_SEED_OFFSET),
        prompts=sources.prompts,
        completions_per_prompt=config.judge.answers,
        ranks=run.ranks,
        tokens_at_once=config.memory.tokens_at_once,
    )


def prepare_policy_run(
    algorithm: Algorithm, config: PolicyConfig, run: Run
) -> tuple[TrainingJob[AnyMicrobatch], PreflightSubject]:
    """Read the prompts, load all models and rewards: what is trained, and what is checked before."""
    prepared = prepare_run(algorithm, config, run)
    job = make_job(prepared, config, run)
    return job, _subject(prepared, job, run)


def make_job(prepared: PreparedRun, config: PolicyConfig, run: Run) -> TrainingJob[AnyMicrobatch]:
    train, held_out_prompts = prepared.rows.train, prepared.rows.held_out
    objective = _make_objective(prepared, config)
    critic = prepared.actor.critic
    return TrainingJob(
        module=prepared.actor,
        objective=objective,
        rows=len(train),
        microbatches=partial(iterations.policy_updates, prepared.rounds),
        flops=partial(_step_flops, matrix_sizes(prepared.actor.policy), config),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=prepared.evaluator.evaluate if held_out_prompts else None,
        held_out_metrics=_metric_names(prepared),
        sample=_sample_fn(prepared, config, run),
        save=lambda: _write_models(prepared, config, run),
        state={
            "rounds": prepared.rounds,
            "shaper": prepared.rounds.experience.shaper,
            **prepared.reference.state,
            **({} if prepared.journal is None else {"journal": prepared.journal}),
        },
        diagnose=lambda reports: diagnostics(
            prepared.algorithm,
            reports,
            sums_step_scores=config.process.adds_up,
            objection=prepared.rounds.objection,
        ),
        updates_per_batch=prepared.rounds.updates_per_round,
        # Clipped apart: under one norm a young critic's gradients would scale the policy's away.
        clip_groups=() if critic is None else (prepared.actor.policy, critic),
        update_fn=_update_fn(prepared, run),
        timing=prepared.rounds.timing,
        rate_multiples={"critic": prepared.algorithm.value_lr_scale} if critic is not None else {},
    )


def _subject(prepared: PreparedRun, job: TrainingJob[AnyMicrobatch], run: Run) -> PreflightSubject:
    """What preflight checks look at; an environment is left out, as it scores no single completion."""
    models, collector = prepared.models, prepared.rounds.collector
    sampler = prepared.evaluator.sampler
    return replace(
        run.subject(job, prepared.rows),
        trial=RolloutTrial(rounds=prepared.rounds, models=models),
        policy=models.policy,
        reference=models.reference if "reference" in prepared.algorithm.needs else None,
        same_reference=prepared.reference.is_starting_model,
        sampler=sampler.sampler if isinstance(sampler, EpisodeSampler) else sampler,
        weights=prepared.rounds.weights,
        sampling=collector.sampling,
        reward=collector.reward if isinstance(collector.reward, Reward) else None,
    )


def encode_prompts_with_room(
    config: PolicyConfig, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[EncodedPrompt]:
    """The prompts that leave room for a completion within ``max_length`` and the model's context."""
    model_config = AutoConfig.from_pretrained(config.model, trust_remote_code=False).get_text_config()
    context = min(max_tokens, getattr(model_config, "max_position_embeddings", None) or max_tokens)
    max_prompt_tokens = context - config.draw.longest
    if max_prompt_tokens < 1:
        raise UserError(
            f"draw.max_tokens {config.draw.longest} leaves no room for a prompt in {context} tokens "
            "(max_length, or what the model can read); let answers be shorter"
        )
    return EncodedData(encoding=encode_prompt_records(records, encoder, max_prompt_tokens))


def _load_critic(
    algorithm: PolicyAlgorithm, config: PolicyConfig, run: Run, policy: Policy
) -> tuple[RewardModel | ValueHead | None, list[str]]:
    if "critic" not in algorithm.needs:
        return None, []
    if config.critic.shared:
        return ValueHead(policy), ["critic: a head on the policy's own layers, which begins with zeros"]
    critic, notes = prepare_critic(config, run, by_parts=True)
    share_tokens(critic, run.ranks.sequence)
    shard_or_broadcast(critic, config, run.ranks)
    return critic, notes


def _make_objective(
    prepared: PreparedRun, config: PolicyConfig
) -> Callable[[AnyMicrobatch], ObjectiveResult]:
    policy_terms = policy_objective(prepared.algorithm, prepared.models, value_clip=config.critic.clip)

    def objective(microbatch: AnyMicrobatch) -> ObjectiveResult:
        if isinstance(microbatch, PolicyMicrobatch):
            return policy_terms(microbatch)
        return ptx_loss(prepared.models, prepared.algorithm.ptx_coef or 1.0, microbatch)

    return objective


def _update_fn(prepared: PreparedRun, run: Run) -> TrpoStep | None:
    """TRPO's natural-gradient step, where the row has it."""
    row = prepared.algorithm
    if not row.max_kl:
        return None
    # Without the critic: the line search accepts steps by the policy's loss alone.
    models = replace(prepared.models, critic=None)
    return TrpoStep(models, policy_objective(row, models), run.ranks, kl_limit=row.max_kl)


def _metric_names(prepared: PreparedRun) -> tuple[str, ...]:
    has_reference = prepared.reference.live
    names = tuple(name for name in HELD_OUT_METRICS if has_reference or not name.startswith("kl"))
    judge = () if prepared.evaluator.judge is None else ("judge",)
    return tuple(f"held_out/{name}" for name in (*judge, *names))


def _sample_fn(
    prepared: PreparedRun, config: PolicyConfig, run: Run
) -> Callable[[InterruptCheck], Sequence[Sample]] | None:
    if not (run.ranks.is_first or config.shard) or not config.sample.rows:
        return None
    prompts = (prepared.rows.held_out or prepared.rows.train)[: config.sample.rows]
    return partial(prepared.evaluator.sample, prompts)


def _write_models(prepared: PreparedRun, config: PolicyConfig, run: Run) -> None:
    write_model(prepared.actor.policy, config, run.encoder, run.ranks)
    # A head on the policy's layers is of no use without them.
    if isinstance(prepared.actor.critic, RewardModel):
        write_critic(prepared.actor.critic, config, run)


def _step_flops(sizes: tuple[int, int], config: PolicyConfig, microbatches: Sequence[AnyMicrobatch]) -> float:
    """Floating-point operations of the optimiser steps; generation and scoring are not counted."""
    total = 0.0
    for microbatch in microbatches:
        if isinstance(microbatch, PolicyMicrobatch):
            examples = [
                microbatch.round.examples[place.group] for place in microbatch.groups if place.is_counted
            ]
        else:
            examples = list(microbatch.examples)
        tokens = sum(example.tokens for example in examples)
        trained = sum(example.trained_tokens for example in examples)
        total += training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=config.lora.rank > 0)
    return total


def policy(algorithm: Algorithm, config: PolicyConfig) -> Summary | None:
    """Improve a policy by an algorithm's name, or by a row of one's own, into ``config.out``."""
    config = POLICY.with_settings(algorithm, config)
    config = _keep_best_by_judge(rounds_as_steps(algorithm, config))
    with open_run(config, POLICY.configured(algorithm, config).name, _lineage_inputs(config)) as run:
        return run.check_and_train(lambda: prepare_policy_run(algorithm, config, run))


def own_policy(config: PolicyConfig) -> Summary | None:
    """Run the algorithm of the user's own that ``config.algorithm`` names."""
    return policy(OWN, config)


def rounds_as_steps(algorithm: Algorithm, config: PolicyConfig) -> PolicyConfig:
    if config.rounds is None:
        return config
    updates_per_round = configured_algorithm(algorithm, config).updates_per_round
    return replace(config, rounds=None, steps=config.rounds * updates_per_round)


def _keep_best_by_judge(config: PolicyConfig) -> PolicyConfig:
    """The config by which a named judge selects the best checkpoint and stops the run."""
    if config.judge.by is None or not config.judge.chooses or config.keep.best != "held_out/reward":
        return config
    keep = replace(config.keep, best="held_out/judge", use_best=True, patience=config.judge.patience)
    return replace(config, keep=keep)


def _lineage_inputs(config: PolicyConfig) -> tuple[Path, ...]:
    """Files and folders that must be unchanged when the run is resumed."""
    words = [config.reward, config.process.by, config.judge.by]
    # A rule's name or a server's address is no path, and there is nothing of it to hash.
    folders = [Path(word) for word in words if word is not None and Path(word).exists()]
    others = [config.critic.model, config.reference.model, config.ptx.data]
    # The user's own file is an input: after a change to its loss it would be another run.
    user_file = Path(getattr(config, "algorithm", "").rpartition(":")[0])
    files = (user_file,) if user_file.suffix == ".py" else ()
    return (*folders, *files, *(path for path in others if path is not None))
