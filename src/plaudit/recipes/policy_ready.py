"""A policy run made ready: prompts, policy, reference, critic, reward, and who looks at held-out prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformers import AutoConfig

from plaudit.batches.question import Question, questions_of
from plaudit.batches.template import Encoder
from plaudit.checks.subject import Subject
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.models.reference import Speaks
from plaudit.models.reward import RewardModel
from plaudit.models.value_head import ValueHead
from plaudit.recipes.learner import Learner, Start
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.policies import matrix_sizes, prepare_policy, write_model
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_critic import prepare_critic, write_critic
from plaudit.recipes.policy_draws import mixture_in_words
from plaudit.recipes.policy_parts import Sources, rounds_of, scorer_of, speaker_of
from plaudit.recipes.policy_process import process_notes
from plaudit.recipes.policy_reference import reference_of
from plaudit.recipes.policy_rows import Algorithm, Chosen, chosen
from plaudit.recipes.policy_words import round_in_words
from plaudit.recipes.references import Prepared as PreparedReference
from plaudit.recipes.references import refuse_other_vocabulary
from plaudit.recipes.rows import Prepared, Rows, load_rows
from plaudit.records.feedback import Record
from plaudit.rewards.named import reward_named
from plaudit.rewards.reward import Reward
from plaudit.rollouts.local import LocalSampler
from plaudit.training.flops import training_flops
from plaudit.training.plan import Pause
from plaudit.training.policy import (
    Actor,
    Piece,
    PolicyPiece,
    ValueLoss,
    groups_of,
    improving,
    remembering,
)
from plaudit.training.policy_experience import Watchers
from plaudit.training.policy_looks import FIGURES, Looker
from plaudit.training.policy_natural import NaturalStep
from plaudit.training.policy_remarks import remarks
from plaudit.training.policy_rounds import Rounds
from plaudit.training.sinks.sink import Sample
from plaudit.training.step import Terms
from plaudit.training.supervised import rows_of

LOOKS = 7919
"""Added to the seed of held-out looks, whose chance is not that of any round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """All that a run works with.

    Example: ``begin("grpo", config, start)``
    """

    algorithm: Chosen
    """The row and its settings."""
    rows: Rows[Question]
    """The prompts that are trained, and those that never are."""
    actor: Actor
    """What is trained."""
    watchers: Watchers
    """Who looks at answers."""
    reference: PreparedReference
    """What comes with the reference."""
    rounds: Rounds
    """What it learns from."""
    looker: Looker
    """Who looks at held-out prompts."""
    notes: tuple[str, ...]
    """What was decided, for the user."""


def begin(algorithm: Algorithm, config: PolicyConfig, start: Start) -> Begun:
    """Load everything; what is contradictory is refused before."""
    found = chosen(algorithm, config)
    refuse_other_vocabulary(config, start.encoder)
    reward = scorer_of(config, start.encoder)
    judge = None if config.judge.by is None else reward_named(config.judge.by)
    rows = load_rows(config, start.encoder, partial(questions_for, config), start.aside)
    policy, notes = prepare_policy(config, start.numbers, start.ranks)
    reference = reference_of(config, policy, start, needed=found.row.referenced)
    critic, critic_notes = _critic(found, config, start, policy)
    notes += place(policy, config, start.ranks)
    watchers = Watchers(
        policy=policy,
        reference=reference.reference,
        critic=critic,
        products=partial(arithmetic, start.numbers, start.ranks.device),
        temperature=config.draw.temperature,
    )
    sampler = LocalSampler.of(policy, start.encoder, watchers.products)
    mixed = _mixed(found, sampler, watchers)
    why = (mixed or sampler).slow_because
    slow = () if why is None else (f"sampling is slower here: {why}",)
    speaker = speaker_of(config, sampler, reward)
    sources = Sources(questions=rows.train, sampler=speaker, reward=reward, watchers=watchers, mixed=mixed)
    rounds = rounds_of(found, config, start, sources)
    row = f"{found.facts.name}: {found.facts.formula} ({found.facts.cells})"
    notes = [*rows.notes, *notes, row, *reference.notes, *critic_notes, *slow]
    notes += [*mixture_in_words(found.row, found.number("mixture")), *round_in_words(rounds, config)]
    notes += process_notes(found.facts, config)
    return Begun(
        algorithm=found,
        rows=rows,
        actor=Actor(policy, critic),
        watchers=watchers,
        reference=reference,
        rounds=rounds,
        looker=_looker(config, start, replace(sources, questions=rows.held_out), judge),
        notes=tuple(notes),
    )


def _mixed(found: Chosen, sampler: LocalSampler, watchers: Watchers) -> LocalSampler | None:
    """Who draws from the mixture with the reference, where the row asks for one."""
    share = found.number("mixture")
    if not share:
        return None
    assert isinstance(watchers.reference, Speaks), "answers of a mixture need a reference that speaks"
    return sampler.mixed(watchers.reference, share)


def _looker(config: PolicyConfig, start: Start, sources: Sources, judge: Reward | None) -> Looker:
    return Looker(
        sampler=sources.sampler,
        reward=sources.reward,
        judge=judge,
        watchers=sources.watchers,
        sampling=config.draw.sampling(config.seed + LOOKS),
        questions=sources.questions,
        answers=config.judge.answers,
        ranks=start.ranks,
        tokens_at_once=config.memory.tokens_at_once,
    )


def learner(algorithm: Algorithm, config: PolicyConfig, start: Start) -> Learner[Piece]:
    """All that a run asks of it."""
    begun = begin(algorithm, config, start)
    train, held = begun.rows.train, begun.rows.held_out
    objective = _objective(begun, config)
    critic = begun.actor.critic
    return Learner(
        module=begun.actor,
        objective=objective,
        alone=_alone,
        rows=len(train),
        pieces=begun.rounds.pieces,
        work=partial(_work, matrix_sizes(begun.actor.policy), config),
        evaluate=begun.looker.look if held else None,
        measured=_measured(begun),
        sample=_sampler(begun, config, start),
        write=lambda: _write(begun, config, start),
        notes=begun.notes,
        companions={
            "rounds": begun.rounds,
            "shaper": begun.rounds.experience.shaper,
            **begun.reference.companions,
        },
        remark=partial(remarks, begun.algorithm.row, adds_up=config.process.adds_up),
        inner=begun.rounds.inner,
        apart=() if critic is None else (begun.actor.policy, critic),
        leap=_leap(begun, start),
        rates={"critic": config.critic.rate} if critic is not None else {},
        subject=_subject(begun, config, start),
    )


def _subject(begun: Begun, config: PolicyConfig, start: Start) -> Subject:
    """An environment's turns are no reward that could be asked of an answer."""
    watchers, collector = begun.watchers, begun.rounds.collector
    return Subject(
        encoder=start.encoder,
        records=begun.rows.records,
        held_out=begun.rows.held_out_records,
        max_length=config.max_length,
        policy=watchers.policy,
        adapted=config.lora.rank > 0,
        reference=watchers.reference if begun.algorithm.row.referenced else None,
        same_reference=begun.reference.same,
        products=watchers.products,
        sampler=LocalSampler.of(watchers.policy, start.encoder, watchers.products),
        sampling=collector.sampling,
        reward=collector.reward if isinstance(collector.reward, Reward) else None,
    )


def questions_for(
    config: PolicyConfig, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[Question]:
    """The prompts that leave room for an answer within the row and within what the model can read."""
    facts = AutoConfig.from_pretrained(config.model, trust_remote_code=False).get_text_config()
    context = min(max_tokens, getattr(facts, "max_position_embeddings", None) or max_tokens)
    longest = context - config.draw.max_tokens
    if longest < 1:
        raise UserError(
            f"draw.max_tokens {config.draw.max_tokens} leaves no room for a prompt in {context} tokens "
            "(max_length, or what the model can read); let answers be shorter"
        )
    return Prepared(encoding=questions_of(records, encoder, longest))


def _critic(
    found: Chosen, config: PolicyConfig, start: Start, policy: Policy
) -> tuple[RewardModel | ValueHead | None, list[str]]:
    if not found.row.critic:
        return None, []
    if config.critic.shared:
        return ValueHead(policy), ["critic: a head on the policy's own layers, which begins with zeros"]
    critic, note = prepare_critic(config, start)
    place(critic, config, start.ranks)
    return critic, [note]


def _objective(begun: Begun, config: PolicyConfig) -> Callable[[Piece], Terms]:
    value = ValueLoss(weight=config.critic.weight, clip=config.critic.clip)
    improve = improving(begun.algorithm.row, begun.watchers, value, rare=config.trust.rare)
    remember = remembering(begun.watchers, begun.algorithm.number("ptx") or 1.0)

    def objective(piece: Piece) -> Terms:
        return improve(piece) if isinstance(piece, PolicyPiece) else remember(piece)

    return objective


def _leap(begun: Begun, start: Start) -> NaturalStep | None:
    """TRPO's step, where the row has it."""
    row = begun.algorithm.row
    if not row.natural:
        return None
    watchers = replace(begun.watchers, critic=None)
    surrogate = improving(row, watchers, ValueLoss())
    return NaturalStep(watchers, surrogate, start.ranks, limit=begun.algorithm.number("limit"))


def _alone(piece: Piece) -> Sequence[Piece]:
    return groups_of(piece) if isinstance(piece, PolicyPiece) else rows_of(piece)


def _measured(begun: Begun) -> tuple[str, ...]:
    named = begun.reference.live
    own = tuple(name for name in FIGURES if named or not name.startswith("kl"))
    judge = () if begun.looker.judge is None else ("judge",)
    return tuple(f"held_out/{name}" for name in (*judge, *own))


def _sampler(begun: Begun, config: PolicyConfig, start: Start) -> Callable[[Pause], Sequence[Sample]] | None:
    if not start.ranks.first or not config.sample.rows:
        return None
    asked = (begun.rows.held_out or begun.rows.train)[: config.sample.rows]
    return partial(begun.looker.sample, asked)


def _write(begun: Begun, config: PolicyConfig, start: Start) -> None:
    write_model(begun.actor.policy, config, start.encoder, start.ranks)
    # A head on the policy's layers is of no use without them.
    if isinstance(begun.actor.critic, RewardModel) and start.ranks.first:
        write_critic(begun.actor.critic, config, start.encoder)


def _work(sizes: tuple[int, int], config: PolicyConfig, pieces: Sequence[Piece]) -> float:
    """Of the moves; what is drawn and looked at before is not counted."""
    total = 0.0
    for piece in pieces:
        if isinstance(piece, PolicyPiece):
            examples = [piece.round.examples[place.group] for place in piece.places if place.counts]
        else:
            examples = list(piece.examples)
        tokens = sum(example.tokens for example in examples)
        trained = sum(example.trained_tokens for example in examples)
        total += training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=config.lora.rank > 0)
    return total
