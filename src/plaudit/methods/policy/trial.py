"""What the checks can try of a policy run before it begins: a round of a few short answers, or text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from plaudit.engine.step import ObjectiveResult
from plaudit.errors import UserError
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.iterations import RolloutRounds, policy_updates
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from plaudit.methods.supervised.objective import SupervisedMicrobatch, likelihood_objective, microbatches_of
from plaudit.preflight.subject import TrialRound
from plaudit.tokens.batch import Example

MAX_ROLLOUT_TOKENS = 16
"""The longest completion of a trial round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTrial:
    """Rounds of a run that can be tried: the run itself knows nothing of them.

    Example: ``RolloutTrial(rounds=rounds, models=models).small_round()``
    """

    rounds: RolloutRounds
    """The rounds of the run."""
    models: ScoringModels
    """The models that score their answers."""

    def small_round(self) -> TrialRound | None:
        """A round of two prompts with short answers; None where all of them are left out."""
        shaper = self.rounds.experience.shaper
        shaper_state = shaper.tensors()
        prompts = list(range(min(len(self.rounds.questions), 2)))
        try:
            drawn = next(policy_updates(_small_rounds(self.rounds), 1, lambda _: prompts))
        except UserError:
            # What is wrong with the reward is for the checks of the reward to say.
            return None
        finally:
            shaper.load_tensors(shaper_state)
        pieces = [piece for piece in drawn if isinstance(piece, PolicyMicrobatch)]
        if not pieces:
            return None
        policy_round = pieces[0].round
        answers = sum(len(example.completions) for example in policy_round.examples)
        description = f"a round of {answers} short answers"
        if not bool(policy_round.experience.advantage_NT.any()):
            # As good as each other, so that nothing could be learnt of them.
            policy_round = _with_alternating_advantages(policy_round, answers)
            description += ", called good and bad in turn"
        later = (
            replace(piece, round=policy_round, is_first_update=False, is_only_update=False)
            for piece in pieces
        )
        return TrialRound(microbatches=tuple(later), description=description)

    def likelihood(
        self, examples: Sequence[Example]
    ) -> tuple[Callable[[SupervisedMicrobatch], ObjectiveResult], tuple[SupervisedMicrobatch, ...]]:
        """Likelihood of given text under the policy: what is minimised, and the pieces."""
        pieces = microbatches_of(examples, self.rounds.ranks, sum(one.tokens for one in examples))
        return likelihood_objective(self.models.policy, self.models.autocast), pieces


def _with_alternating_advantages(policy_round: Round, answers: int) -> Round:
    advantage_NT = policy_round.experience.advantage_NT
    sign_N = 1 - 2 * torch.arange(answers).remainder(2)
    alternating_NT = sign_N[:, None].expand_as(advantage_NT).to(advantage_NT)
    return replace(policy_round, experience=replace(policy_round.experience, advantage_NT=alternating_NT))


def _small_rounds(rounds: RolloutRounds) -> RolloutRounds:
    """The same rounds with few and short completions, one minibatch and no replay or curriculum."""
    collector = rounds.collector
    sampling = replace(collector.sampling, max_tokens=min(MAX_ROLLOUT_TOKENS, collector.sampling.max_tokens))
    return replace(
        rounds,
        collector=replace(
            collector, sampling=sampling, completions_per_prompt=min(2, collector.completions_per_prompt)
        ),
        experience=replace(rounds.experience, minibatches=1, epochs=1),
        extra_microbatches=_no_extra_pieces,
        curriculum=None,
        replay=None,
    )


def _no_extra_pieces(step: int) -> Sequence[AnyMicrobatch]:
    del step
    return ()
