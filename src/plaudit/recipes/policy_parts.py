"""The rounds of a run from its config: who draws, what is done to scores, what is remembered beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plaudit.batches.question import Question
from plaudit.batches.rows import encode_rows
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.learner import Start
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_process import reward_of
from plaudit.recipes.policy_rows import Chosen
from plaudit.recipes.sft import demonstrations
from plaudit.rewards.named import function_named
from plaudit.rollouts.episodes import TURNS, EpisodeSampler
from plaudit.rollouts.local import LocalSampler
from plaudit.sources.read import read_records
from plaudit.training.collect import Collector, Rival
from plaudit.training.judged_answers import OfEpisodes, Scorer, Speaker
from plaudit.training.order import Order
from plaudit.training.policy import Piece
from plaudit.training.policy_experience import Experience, Trust, Watchers
from plaudit.training.policy_memory import Curriculum, Replay
from plaudit.training.policy_rounds import Control, Rounds
from plaudit.training.policy_shaping import Shape, Shaper
from plaudit.training.supervised import pieces_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the answers of a run and what is said of them come from.

    Example: ``Sources(questions=rows.train, sampler=sampler, reward=reward, watchers=watchers)``
    """

    questions: Sequence[Question]
    """What is asked."""
    sampler: Speaker
    """Who answers."""
    reward: Scorer
    """Who scores."""
    watchers: Watchers
    """Who says how likely each token was."""
    mixed: Speaker | None = None
    """Who answers for the mixture of policy and reference; none: the policy alone does."""

    @property
    def mixture(self) -> Speaker:
        """Who answers where a mixture is asked for."""
        return self.mixed or self.sampler


def scorer_of(config: PolicyConfig, encoder: Encoder) -> Scorer:
    """The reward, or the environment."""
    if config.environment is None:
        return reward_of(config, encoder)
    function: Any = function_named(config.environment)
    return OfEpisodes(name=config.environment, environment=function)


def speaker_of(config: PolicyConfig, sampler: LocalSampler, scorer: Scorer) -> Speaker:
    """Who answers: the policy alone, or in turns with the environment."""
    if not isinstance(scorer, OfEpisodes):
        return sampler
    turns = config.max_turns or TURNS
    return EpisodeSampler(sampler=sampler, environment=scorer.environment, name=scorer.name, turns=turns)


def rounds_of(found: Chosen, config: PolicyConfig, start: Start, sources: Sources) -> Rounds:
    """All that makes rounds of answers, and moves of rounds."""
    learnt = 0.0 if found.row.duels else found.number("mixture")
    return Rounds(
        questions=sources.questions,
        collector=Collector(
            sampler=sources.mixture if learnt else sources.sampler,
            reward=sources.reward,
            sampling=config.draw.sampling(config.seed),
            answers=int(found.number("answers")),
            ranks=start.ranks,
            rival=_rival(found, config, sources),
            whole=found.row.pairs,
            unlike=bool(found.values["unlike"]),
            refills=config.draw.refills,
        ),
        experience=Experience(
            row=found.row,
            watchers=sources.watchers,
            shaper=_shaper(found, config),
            ranks=start.ranks,
            tokens_at_once=config.memory.tokens_at_once,
            minibatches=int(found.number("minibatches")),
            epochs=int(found.number("epochs")),
            longest=config.draw.max_tokens,
            trust=Trust(cap=config.trust.cap, again=config.draw.replay > 0),
            mixture=learnt,
        ),
        control=_control(found, config),
        ranks=start.ranks,
        seed=config.seed,
        beside=_remembered(found, config, start),
        refuse_alone=found.row.compares,
        curriculum=_curriculum(config, sources),
        replay=_replay(config, sources),
    )


def _rival(found: Chosen, config: PolicyConfig, sources: Sources) -> Rival | None:
    """Whom each prompt's answers are measured against."""
    usual = config.draw.sampling(config.seed)
    if found.row.greedy:
        return Rival(sampler=sources.sampler, sampling=replace(usual, temperature=0))
    return Rival(sampler=sources.mixture, sampling=usual) if found.row.duels else None


def _curriculum(config: PolicyConfig, sources: Sources) -> Curriculum | None:
    if not config.draw.curriculum:
        return None
    return Curriculum(sources.questions, passes=config.draw.passes, seed=config.seed)


def _replay(config: PolicyConfig, sources: Sources) -> Replay | None:
    draw = config.draw
    if not draw.replay:
        return None
    return Replay(sources.questions, share=draw.replay, window=draw.window, seed=config.seed)


def _shaper(found: Chosen, config: PolicyConfig) -> Shaper:
    shape, longest = config.shape, config.draw.max_tokens
    wanted = Shape(
        missing_end=shape.missing_end,
        soft_overlong=round(found.number("overlong") * longest),
        drop_cut=bool(found.values["drop_cut"]),
        per_token=shape.per_token,
        low=shape.low,
        high=shape.high,
        scale=shape.scale,
    )
    return Shaper(wanted, longest)


def _control(found: Chosen, config: PolicyConfig) -> Control:
    stop_at = found.number("stop_at")
    if found.row.adaptive:
        target = found.number("limit")
        return Control(how="doubling", start=found.number("penalty"), target=target, stop_at=stop_at)
    if config.policy.target is None:
        return Control(start=found.row.beta, stop_at=stop_at)
    return Control(
        how="proportional",
        start=found.row.beta,
        target=config.policy.target,
        horizon=config.policy.horizon,
        stop_at=stop_at,
    )


def _remembered(found: Chosen, config: PolicyConfig, start: Start) -> Callable[[int], Sequence[Piece]]:
    """Rows of the text that the policy shall not forget, in an order of their own."""
    path = config.ptx.data
    if path is None:
        return lambda step: ()
    records = demonstrations(read_records(path, threshold=config.rows.threshold).records, "ptx.data")
    examples: tuple[Example, ...] = encode_rows(records, start.encoder, config.max_length).examples
    if not examples:
        raise UserError(f"{path}: no row of it can be learnt")
    order = Order(rows=len(examples), batch_size=config.ptx.rows, seed=config.seed)
    room = config.memory.tokens_at_once
    return lambda step: pieces_of([examples[row] for row in order.batch(step)], start.ranks, room)
