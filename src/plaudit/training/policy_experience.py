"""From judged answers to a round: what policy, reference and critic say of every token, and its worth.

All of it is found before the first move. The policy is asked by the very pieces of the first epoch's moves,
so that at the first move its ratio to itself is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.losses.ratio import log_ratio, truncated_weight
from plaudit.models.policy import Policy
from plaudit.models.reference import Beside, Products, Reference, SaysAll
from plaudit.models.reward import RewardModel
from plaudit.models.value_head import ValueHead
from plaudit.tensors.masked import masked_mean, spread, whiten
from plaudit.training.collect import Collected
from plaudit.training.judged_answers import example_of
from plaudit.training.metrics import Metric
from plaudit.training.parallel import Ranks
from plaudit.training.policy_figures import DISTANCES, gap_figures, round_figures
from plaudit.training.policy_mixture import Blend
from plaudit.training.policy_round import Place, Round, Told, over_ranks
from plaudit.training.policy_row import Facts, PolicyRow
from plaudit.training.policy_shaping import Shaper
from plaudit.training.policy_steps import on_the_way

Pieces = Sequence[Sequence[Place]]
"""This rank's pieces."""
FAR = {torch.float64: 1e-4, torch.float32: 1e-2}
"""Nats a token by which sampler and trainer may differ on average; other numbers are coarse."""
USUAL_CAP = 2.0
"""The largest weight of a token of an earlier round, where none was named."""
COARSE = 0.2
"""The same in half precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Who looks at answers.

    Example: ``Watchers(policy=policy, reference=Nobody(), critic=None, products=nullcontext, temperature=1)``
    """

    policy: Policy
    """What learns."""
    reference: Reference
    """What it is held near."""
    critic: RewardModel | ValueHead | None
    """What says how much is to be expected."""
    products: Products
    """The numbers that products are made in."""
    temperature: int | float
    """Scores are divided by it, as they were when answers were drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far an answer may be from whoever drew it.

    Example: ``Trust(cap=2.0)``
    """

    cap: int | float = 0.0
    """The largest weight π_old / μ of a token, where the sampler's log-probs differ; 0 weighs nothing."""
    again: bool = False
    """Whether answers of earlier rounds come again, which are always weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What makes rounds of judged answers.

    Example: ``Experience(row=row, watchers=watchers, shaper=shaper, ranks=ranks, …).round(collected, …)``
    """

    row: PolicyRow
    """The algorithm."""
    watchers: Watchers
    """Who looks."""
    shaper: Shaper
    """What is done to scores first."""
    ranks: Ranks
    """This process among its peers."""
    tokens_at_once: int
    """The largest piece."""
    minibatches: int
    """Moves of an epoch."""
    epochs: int
    """How often a round is gone through."""
    longest: int
    """The most tokens that an answer may have."""
    trust: Trust
    """How far an answer may be from whoever drew it."""
    mixture: int | float = 0.0
    """The reference's share in the mixture that answers are drawn from; 0: the policy alone draws them."""

    def round(
        self, collected: Collected, number: int, *, beta: int | float, usual: int | float | None
    ) -> Round:
        """``beta`` is the divergence's coefficient now, ``usual`` the mean score of rounds before, if any."""
        groups = (*collected.groups, *collected.again)
        examples = tuple(example_of(group.question, group.answers) for group in groups)
        batch = batch_of(examples)
        bare = Round(number=number, examples=examples, told=_nothing(batch), figures=(), longest=self.longest)
        pieces = [
            piece
            for move in bare.moves(1, self.minibatches, 0)[0]
            if move
            for piece in bare.shares(move, ranks=self.ranks.world, tokens_at_once=self.tokens_at_once)[
                self.ranks.rank
            ]
        ]
        drawn_NT = _drawn(collected, batch, self.watchers.policy.base.dtype)
        old_NT = self._passed(bare, pieces, self._policy_says) if self.must_look else drawn_NT
        ref_NT = self._passed(bare, pieces, self._reference_says) if self.row.referenced else old_NT
        value_NT = (
            torch.zeros_like(old_NT)
            if self.watchers.critic is None
            else self._passed(bare, pieces, self._critic_says)
        )
        facts = self._facts(collected, batch, (old_NT, ref_NT, value_NT), beta=beta, usual=usual)
        gaps: tuple[Metric, ...] = ()
        if self.must_look:
            new = slice(collected.fresh)
            own_NT, known_NT = self._as_drawn(examples, batch, old_NT)
            refuse_another_policy(self.watchers.policy, own_NT[new], drawn_NT[new], known_NT[new])
            gaps = gap_figures(own_NT[new], drawn_NT[new], known_NT[new])
        made = self._told(bare, facts, (old_NT, ref_NT, drawn_NT), collected)
        return replace(made, figures=(*made.figures, *gaps))

    def _as_drawn(
        self, examples: Sequence[Example], batch: TokenBatch, old_NT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What the sampler's log-probs should be, and of which tokens that is known."""
        watchers = self.watchers
        if not self.mixture:
            return old_NT, batch.mask_NT
        assert isinstance(watchers.reference, SaysAll)
        own = Beside(watchers.policy, watchers.products, temperature=watchers.temperature)
        blend = Blend(own=own, other=watchers.reference, share=self.mixture)
        return blend.looked_at(examples, batch, least=self.ranks.world)

    @property
    def must_look(self) -> bool:
        """Whether π_old has to be known before the first move; with a single move it is π itself."""
        several = self.minibatches * self.epochs > 1
        weighed = self.corrects or self.row.divergence == "reward"
        return several or weighed or self.row.natural or self.mixture > 0

    @property
    def corrects(self) -> bool:
        """Whether answers are weighed by who drew them."""
        return self.trust.cap > 0 or self.trust.again

    def _facts(
        self,
        collected: Collected,
        batch: TokenBatch,
        seen: tuple[Tensor, Tensor, Tensor],
        *,
        beta: int | float,
        usual: int | float | None,
    ) -> Facts:
        old_NT, ref_NT, value_NT = seen
        score_N = self.shaper.of(collected.scores.to(old_NT.dtype), batch)
        kl_NT = torch.zeros_like(old_NT)
        if self.row.divergence == "reward":
            kl_NT = self.row.estimator(log_ratio(old_NT, ref_NT, batch.mask_NT))
        rival_P = self._rivals(collected, old_NT.dtype)
        paid_NT, end_NT = self.shaper.on_the_way(
            *on_the_way(collected, batch.mask_NT, score_N.dtype), batch.finished_N
        )
        return Facts(
            score_N=score_N,
            kl_NT=kl_NT,
            beta=beta,
            value_NT=value_NT,
            rival_N=rival_P[batch.group_N],
            mean=float(score_N[: collected.fresh].mean()) if usual is None else usual,
            mask_NT=batch.mask_NT,
            group_N=batch.group_N,
            finished_N=batch.finished_N,
            paid_NT=paid_NT,
            end_NT=end_NT,
        )

    def _rivals(self, collected: Collected, dtype: torch.dtype) -> Tensor:
        """The score of the rival's answer to each prompt, shaped like the others; 0 without one."""
        if not collected.rivals:
            return torch.zeros(len(collected.groups) + len(collected.again), dtype=dtype)
        batch = batch_of([example_of(one.question, one.answers) for one in collected.rivals])
        scores = torch.tensor([one.scores[0] for one in collected.rivals], dtype=dtype)
        return self.shaper.of(scores, batch, takes_in=False)

    def _told(
        self, bare: Round, facts: Facts, seen: tuple[Tensor, Tensor, Tensor], collected: Collected
    ) -> Round:
        old_NT, ref_NT, drawn_NT = seen
        mask_NT = facts.mask_NT
        raw_NT = self.row.advantage(facts).to(old_NT.dtype)
        taught_NT = spread(facts.reward_N, mask_NT) if self.row.bandit else raw_NT + facts.value_NT
        return_NT = taught_NT.masked_fill(~mask_NT, 0.0)
        advantage_NT = whiten(raw_NT, mask_NT) if self.row.whiten else raw_NT
        weight_NT = self._weights(old_NT, drawn_NT, facts, collected.fresh)
        told = Told(
            old_logp_NT=old_NT,
            ref_logp_NT=ref_NT,
            advantage_NT=advantage_NT,
            value_NT=facts.value_NT,
            return_NT=return_NT,
            weight_NT=weight_NT,
        )
        figures = round_figures(self.row, facts, told, collected, drawn_NT)
        if self.mixture:
            # Over answers of another distribution the mean of log π − log π_ref is no KL of the policy.
            figures = tuple(figure for figure in figures if figure.name not in DISTANCES)
        average = float(facts.score_N[: collected.fresh].mean())
        return replace(bare, told=told, figures=figures, mean=average)

    def _weights(self, old_NT: Tensor, drawn_NT: Tensor, facts: Facts, fresh: int) -> Tensor:
        mask_NT = facts.mask_NT
        weight_NT = spread(self.shaper.kept(facts.finished_N).to(old_NT.dtype), mask_NT)
        if self.corrects:
            own_NT = truncated_weight(old_NT, drawn_NT, mask_NT, cap=self.trust.cap or USUAL_CAP)
            if not self.trust.cap:
                own_NT[:fresh] = 1.0
            weight_NT = weight_NT * own_NT
        return weight_NT

    def _passed(
        self, bare: Round, pieces: Pieces, says: Callable[[Sequence[Example], TokenBatch], Tensor]
    ) -> Tensor:
        """What is said of all tokens, each rank asking about its own pieces."""
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for piece in pieces:
                batch, row_n = bare.batch(piece)
                said_nt = says([bare.examples[place.group] for place in piece], batch.to(self.ranks.device))
                counting = all(place.counts for place in piece)
                found.append((row_n, said_nt if counting else torch.zeros_like(said_nt)))
        size = (sum(len(example.completions) for example in bare.examples), bare.told.old_logp_NT.shape[1])
        return over_ranks(found, size, self.ranks)

    def _policy_says(self, examples: Sequence[Example], batch: TokenBatch) -> Tensor:
        del examples
        with self.watchers.products():
            return self.watchers.policy.score(batch, temperature=self.watchers.temperature).logp_NT

    def _reference_says(self, examples: Sequence[Example], batch: TokenBatch) -> Tensor:
        return self.watchers.reference.logp(examples, batch)

    def _critic_says(self, examples: Sequence[Example], batch: TokenBatch) -> Tensor:
        del examples
        assert self.watchers.critic is not None
        with self.watchers.products():
            return self.watchers.critic.values(batch, at="before")


def refuse_another_policy(policy: Policy, own_NT: Tensor, drawn_NT: Tensor, mask_NT: Tensor) -> None:
    """Stop where the sampler did not draw from the policy that is trained."""
    apart = float(masked_mean((own_NT.detach() - drawn_NT).abs(), mask_NT))
    if apart > _allowed(policy):
        raise UserError(
            f"the answers were not drawn from the policy that is trained: its own log-probs of them "
            f"differ from the sampler's by {apart:.2g} nats a token on average. Either the sampler has "
            "other (older) weights or another tokenizer, or one of the two computes this model wrongly "
            "(with dropout, perhaps); try --memory.layout right, and --dtype float32"
        )


def _allowed(policy: Policy) -> float:
    return FAR.get(policy.base.dtype, COARSE) if policy.device.type == "cpu" else COARSE


def _drawn(collected: Collected, batch: TokenBatch, dtype: torch.dtype) -> Tensor:
    """The sampler's log-probs among all tokens, in the numbers of the policy's own."""
    drawn_NT = torch.zeros(batch.mask_NT.shape, dtype=torch.promote_types(dtype, torch.float32))
    groups = (*collected.groups, *collected.again)
    for n, answer in enumerate(answer for group in groups for answer in group.answers):
        drawn_NT[n, : len(answer.ids)] = torch.tensor(answer.whole_logp, dtype=drawn_NT.dtype)
    return drawn_NT


def _nothing(batch: TokenBatch) -> Told:
    zero_NT = torch.zeros(batch.mask_NT.shape)
    return Told(**{one.name: zero_NT for one in fields(Told)})
