"""What the tests of the preference trainer share: rows of random tokens, plain passes, commands."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from plaudit.engine.checkpoint.state import RunningMean
from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, values_of
from plaudit.engine.step_report import Number
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.data import mismatched_examples
from plaudit.methods.preference.objective import (
    PreferenceBatcher,
    PreferenceMicrobatch,
    PreferenceObjective,
    ScoringModels,
    pair_objective,
    unpaired_objective,
)
from plaudit.methods.preference.row import UnpairedAlgorithm
from plaudit.models.policy import ModelReference, NoReference, Policy
from plaudit.tokens.batch import Completion
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel
from tests.methods.preference.formulas import DELTA, SORTED, Judged, Side
from tests.methods.ragged import ragged_rows
from tests.models.zoo import build, by_loop

CPU = torch.device("cpu")
STRANGERS = 42
"""A seed with which answers to other prompts have become likelier."""
THUMBS = [name for name, facts in PREFERENCE_ALGORITHMS.items() if facts.data == "thumbs"]
PAIRS = [name for name, facts in PREFERENCE_ALGORITHMS.items() if facts.data == "pairs"]
OPINIONS: dict[str, tuple[Judgement, ...]] = {
    "certain": tuple(PairLabel(probability=chance, margin=0.0) for chance in (1.0, 0.0, 1.0, 1.0, 0.0)),
    "mixed": (
        PairLabel(probability=0.8, margin=0.0),
        RankingLabel(ranks=(2.0, 1.0, 2.0)),
        PairLabel(probability=0.3, margin=0.0),
        RankingLabel(ranks=(3.0, 1.0, 4.0, 2.0)),
        PairLabel(probability=0.5, margin=0.0),
        PairLabel(probability=1.0, margin=0.0),
    ),
    "strict": (
        RankingLabel(ranks=(3.0, 1.0, 2.0)),
        PairLabel(probability=1.0, margin=0.0),
        RankingLabel(ranks=(1.0, 2.0)),
    ),
    "thumbs": (
        *(RatingLabel(score=score, thumb=True) for score in (1.0, 0.0, 0.5, 1.0)),
        PairLabel(probability=1.0, margin=0.0),
        PairLabel(probability=0.2, margin=0.0),
    ),
}
"""What was said of rows: certain pairs; soft ones, ties and rankings; rankings without ties; thumbs."""


def rows_saying(kind: str) -> tuple[JudgedRow, ...]:
    """In some answers a token is not the policy's."""
    return ragged_rows(
        kind, OPINIONS[kind], seed=len(kind), lengths=(2, 8), is_trained=lambda token: token % 7 != 3
    )


def rows_for(name: str) -> tuple[JudgedRow, ...]:
    """Rows that this algorithm reads, as different as can be."""
    return rows_saying("thumbs" if name in THUMBS else "certain" if name in SORTED else "mixed")


@dataclass(frozen=True)
class Pretended(Ranks):
    """One of two ranks in a single process: what the other one told is known from the time before."""

    told: dict[int, list[float]] = field(default_factory=dict)

    def all_gather(self, values: Sequence[int | float]) -> list[list[float]]:
        self.told[self.rank] = [float(value) for value in values]
        return [self.told.get(rank, self.told[self.rank]) for rank in range(self.world_size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    name: str
    policy: Policy
    reference: PreTrainedModel
    rows: tuple[JudgedRow, ...]
    batches: PreferenceBatcher
    objective: PreferenceObjective

    def pieces(self, tokens_at_once: int = 10_000) -> tuple[PreferenceMicrobatch, ...]:
        return replace(self.batches, tokens_at_once=tokens_at_once).microbatches(self.rows)

    def on_two_ranks(self) -> list[tuple[PreferenceMicrobatch, ...]]:
        told: dict[int, list[float]] = {}
        device = self.batches.ranks.device
        both = [Pretended(rank=rank, world_size=2, device=device, told=told) for rank in (0, 1)]
        parts = [replace(self.batches, ranks=ranks, tokens_at_once=60) for ranks in both]
        for part in parts:
            part.microbatches(self.rows)
        return [part.microbatches(self.rows) for part in parts]


def scene(
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    rows: Sequence[JudgedRow] | None = None,
    ties: Literal["soft", "drop"] = "soft",
    layout: Literal["packed", "left", "right"] = "packed",
    device: torch.device = CPU,
) -> Scene:
    """A tiny float64 policy and another model as its reference; for plain passes that is on the CPU too."""
    row = preference_algorithm(name, **(settings or {}))
    own = tuple(rows_for(name) if rows is None else rows)
    policy = by_loop(Policy(build("llama", torch.float64), layout=layout).train(), device)
    reference = build("llama", torch.float64, seed=1)
    beside = (
        ModelReference(by_loop(Policy(build("llama", torch.float64, seed=1)), device))
        if ("reference" in row.needs)
        else NoReference()
    )
    eyes = ScoringModels(policy=policy, reference=beside)
    running = RunningMean(("reward_chosen", "reward_rejected"), share=0.1)
    running.load_tensors({"means": torch.full((2,), DELTA, dtype=torch.float64)})
    soft = ties == "soft" and name not in SORTED
    batches = PreferenceBatcher(
        row=row,
        models=eyes,
        ranks=Ranks(rank=0, world_size=1, device=device),
        tokens_at_once=10_000,
        ties=soft,
        running_mean=running,
        mismatched=mismatched_examples(own, own, STRANGERS) if "mismatched" in row.needs else {},
    )
    objective = (
        unpaired_objective(row, eyes)
        if isinstance(row, UnpairedAlgorithm)
        else pair_objective(row, eyes, ties=soft)
    )
    return Scene(
        name=name, policy=policy, reference=reference, rows=own, batches=batches, objective=objective
    )


Learnt = tuple[float, dict[str, Tensor], dict[str, Number]]
"""A loss, each weight's gradient and the figures."""


def learnt(scene: Scene, pieces: Sequence[PreferenceMicrobatch]) -> Learnt:
    scene.policy.zero_grad(set_to_none=True)
    loss, metrics = 0.0, list[Metric]()
    for piece in pieces:
        terms = scene.objective(piece)
        terms.loss.backward()
        loss += terms.loss.item()
        metrics += terms.metrics
    grads = {name: p.grad.clone().cpu() for name, p in scene.policy.named_parameters() if p.grad is not None}
    return loss, grads, values_of(metrics)


def same(found: Learnt, wanted: Learnt) -> None:
    assert abs(found[0] - wanted[0]) < 1e-10 * max(1.0, abs(wanted[0]))
    same_gradients(found[1], wanted[1])
    assert found[2].keys() == wanted[2].keys()
    for name, value in wanted[2].items():
        near = abs(found[2][name] - value) < 1e-10 * max(1, abs(value))
        assert near or (math.isnan(value) and math.isnan(found[2][name])), name


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    largest = max(float(grad.abs().max()) for grad in wanted.values())
    assert largest > 1e-4
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=0, atol=1e-10 * max(1.0, largest), msg=name)


def plain_logp(model: PreTrainedModel, prompt: Sequence[int], answer: Completion) -> Tensor:
    """log π over the vocabulary at each trained token and at the end the token's own, ``[T, V + 1]``."""
    ids = torch.tensor([[*prompt, *answer.ids]])
    logp_TV = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    own_T = logp_TV.gather(-1, torch.tensor(answer.ids)[:, None])
    return torch.cat((logp_TV, own_T), -1)[torch.tensor(answer.mask)]


def side_of(scene: Scene, plain: PreTrainedModel, prompt: Sequence[int], answer: Completion) -> Side:
    """An answer in the eyes of ``plain`` and of the reference."""
    logp = plain_logp(plain, prompt, answer)
    with torch.no_grad():
        ref_T = plain_logp(scene.reference, prompt, answer)[:, -1]
    if "reference" not in scene.batches.row.needs:
        ref_T = torch.zeros_like(ref_T)
    power_T = (2 * logp[:, :-1].detach()).logsumexp(-1)
    return Side(logp_T=logp[:, -1], ref_T=ref_T, power_T=power_T)


def pairs_in(row: JudgedRow, sides: list[Side], *, ties: bool) -> list[Judged]:
    """All pairs of a row, written out; of equal rank each is as likely, or none of them counts."""
    said = row.judgement
    if isinstance(said, PairLabel):
        return [(sides[0], sides[1], said.probability, 1.0)]
    assert isinstance(said, RankingLabel)
    chances = {(True, False): 1.0, (False, True): 0.0, (False, False): 0.5}
    found = [
        (a, b, chances[said.ranks[a] < said.ranks[b], said.ranks[b] < said.ranks[a]])
        for a, b in combinations(range(len(sides)), 2)
    ]
    kept = [one for one in found if ties or one[2] != 0.5]
    return [(sides[a], sides[b], chance, 1 / len(kept)) for a, b, chance in kept]


def plain_pairs(one: Scene, policy: PreTrainedModel, *, ties: bool = True) -> list[Judged]:
    """Every pair of the batch, each answer from a pass of its own; a pair knows its shorter answer."""
    found: list[Judged] = []
    for row in one.rows:
        sides = [side_of(one, policy, row.prompt, answer) for answer in row.example.completions]
        for w, l_, chance, weight in pairs_in(row, sides, ties=ties):
            short = min(len(w.logp_T), len(l_.logp_T))
            found.append((replace(w, shorter=short), replace(l_, shorter=short), chance, weight))
    return found


def plain() -> PreTrainedModel:
    """The policy's own weights in a model of transformers."""
    return build("llama", torch.float64)


def reference_point(one: Scene, policy: PreTrainedModel) -> float:
    """z₀: how much likelier answers to other prompts have become, on average; not below 0."""
    strangers = [one.batches.mismatched[row.example] for row in one.rows]
    shifts = [side_of(one, policy, s.prompt, s.completions[0]).ratio_T.sum().item() for s in strangers]
    return max(0.0, sum(shifts) / len(shifts))
