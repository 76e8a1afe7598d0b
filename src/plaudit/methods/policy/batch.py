"""A round of rollouts: completions with fixed log-probs, values and advantages, for several updates.

Its log-probs, values and advantages are fixed before the first move and stay so; they are part of a
checkpoint, so a run that stops between two moves goes on with the same answers.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, max_metric, mean_metric
from plaudit.losses.divergence import k3
from plaudit.losses.policy import explained_variance
from plaudit.losses.ratio import completion_log_ratio, log_ratio
from plaudit.methods.policy import collect
from plaudit.methods.policy.row import AdvantageInputs, LossCounts, PolicyAlgorithm
from plaudit.models.backbone import Head
from plaudit.models.policy import StateReader, TokenScores, readout_of
from plaudit.tensors.divergences import coarse_distribution
from plaudit.tensors.masked import masked_mean
from plaudit.tokens.batch import Completion, Example, Extra, TokenBatch, batch_of
from plaudit.tokens.microbatch import mask_all, split_rows
from plaudit.tokens.prompts import EncodedPrompt

OLD_TOP_TOKENS = 64
"""The likeliest tokens that are kept of a distribution; the rest is kept as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceTensors:
    """The per-token tensors of a round, computed before its first update; 0 outside the completion mask."""

    old_logp_NT: Float[Tensor, "N T"]
    ref_logp_NT: Float[Tensor, "N T"]
    advantage_NT: Float[Tensor, "N T"]
    value_NT: Float[Tensor, "N T"]
    """The critic's value before the first update."""
    return_NT: Float[Tensor, "N T"]
    weight_NT: Float[Tensor, "N T"]
    """The loss weight of each token; 0 leaves it out of the loss but counts it."""
    old_top_NTK: Int[Tensor, "N T K"] | None = None
    """The likeliest tokens at each place for the policy that the round begins with, where a cell asks."""
    old_coarse_NTC: Float[Tensor, "N T C"] | None = None
    """Their log-probs, and of all the others together."""

    def rows(self, index_n: Int[Tensor, " n"], width: int, device: torch.device) -> "ExperienceTensors":
        """The tensors of some completions, cut to the given width."""
        rows = {name: value[index_n, :width] for name, value in self.tensors().items()}
        # A round lies on the host, and a copy from there to a device need not be waited for.
        return ExperienceTensors(
            # A micro-batch is padded to its own longest completion: what is cut off here is padding alone.
            **{name: row.to(device, non_blocking=row.device.type == "cpu") for name, row in rows.items()}
        )

    def tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRef:
    """A group of a round with its token count, to be divided over micro-batches and ranks."""

    group: int
    tokens: int
    is_counted: bool = True
    """False for a placeholder that only keeps the ranks in step."""


@dataclass(slots=True, kw_only=True)
class FirstPass:
    """Passes of a round's first micro-batch that wait, with their graphs, for the round's first move.

    Example: ``FirstPass(groups=microbatch)``, empty until log-probs and values of before are computed
    """

    groups: Sequence[GroupRef]
    scores: TokenScores | None = None
    value_NT: Float[Tensor, "N T"] | None = None
    """The values of a critic that is a model of its own."""

    def take(self, groups: Sequence[GroupRef]) -> tuple[TokenScores | None, Tensor | None]:
        """The passes of these groups; once, since after the move they are those of earlier weights."""
        if groups != self.groups:
            return None, None
        taken = self.scores, self.value_NT
        self.scores = self.value_NT = None
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All completions of a round with their tensors; the same on every rank."""

    number: int
    examples: tuple[Example, ...]
    experience: ExperienceTensors
    metrics: tuple[Metric, ...]
    max_tokens: int
    mean_score: float = 0.0
    """The mean shaped score of its new completions."""
    fresh_groups: int | None = None
    """How many of its groups, the first ones, were drawn for it; the others come again. None: all."""
    first_pass: FirstPass | None = None
    """What its first move need not compute again; not in checkpoints: a run that goes on computes it."""

    @property
    def fresh(self) -> range:
        """The groups that the policy of this round drew, of which alone its figures are estimates."""
        return range(len(self.examples) if self.fresh_groups is None else self.fresh_groups)

    def batch(self, refs: Sequence[GroupRef]) -> tuple[TokenBatch, Int[Tensor, " n"]]:
        """The tokens of these groups, and their rows among all answers."""
        # Tensors of a round are [N, T] over all its groups, so a group's rows follow from those before it.
        start, rows = 0, dict[int, range]()
        for group, example in enumerate(self.examples):
            rows[group] = range(start, start + len(example.completions))
            start += len(example.completions)
        examples = [(self.examples[ref.group], ref.is_counted) for ref in refs]
        batch = batch_of([example if is_counted else mask_all(example) for example, is_counted in examples])
        return batch, torch.tensor([row for ref in refs for row in rows[ref.group]])

    def minibatches(self, epochs: int, minibatches: int, seed: int) -> list[list[list[int]]]:
        """For each epoch and minibatch the indices of its groups; the first epoch is not shuffled."""
        return minibatches_of(len(self.examples), epochs, minibatches, f"{seed}/{self.number}")

    def rank_microbatches(
        self, groups: Sequence[int], *, ranks: int, tokens_at_once: int
    ) -> tuple[tuple[tuple[GroupRef, ...], ...], ...]:
        refs = [GroupRef(group=group, tokens=self.examples[group].tokens) for group in groups]
        placeholder = partial(replace, is_counted=False)
        return split_rows(refs, placeholder, ranks=ranks, tokens_at_once=tokens_at_once)

    def loss_counts(self, groups: Sequence[int]) -> LossCounts:
        examples = [self.examples[group] for group in groups]
        tokens = sum(example.trained_tokens for example in examples)
        completions = sum(len(example.completions) for example in examples)
        return LossCounts(tokens=tokens, completions=completions, max_tokens=self.max_tokens)

    def tensors(self) -> dict[str, Tensor]:
        record = {
            "number": self.number,
            "longest": self.max_tokens,
            "mean": self.mean_score,
            "fresh": len(self.fresh),
            "examples": [_example_as_json(example) for example in self.examples],
            "figures": [asdict(metric) for metric in self.metrics],
        }
        # Parts of a checkpoint are tensors, so the rest travels as bytes of JSON, whose floats are exact.
        # A bytearray, since torch warns of memory that cannot be written to.
        payload = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
        return {
            "facts": payload,
            **self.experience.tensors(),
            **{
                _extra_key(group, name): extra.value
                for group, example in enumerate(self.examples)
                for name, extra in example.extras.items()
            },
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Round":
        record: dict[str, Any] = json.loads(bytes(tensors["facts"].tolist()))
        return cls(
            number=record["number"],
            max_tokens=record["longest"],
            mean_score=record["mean"],
            # An earlier version did not say which of its groups came again.
            fresh_groups=record.get("fresh"),
            examples=tuple(
                _example_from_json(group, example, tensors)
                for group, example in enumerate(record["examples"])
            ),
            metrics=tuple(Metric(**metric) for metric in record["figures"]),
            experience=ExperienceTensors(
                **{
                    field.name: tensors[field.name]
                    for field in fields(ExperienceTensors)
                    if field.name in tensors
                }
            ),
        )


@dataclass(slots=True)
class RoundMemory:
    """What a run knows of its rounds so far; a checkpoint holds the numbers in this order."""

    beta: float
    mean_score: float = 0.0
    score_count: int = 0
    stopped_round: int = 0
    """The newest round that was ended early."""
    idle_round: int = 0
    """The newest round that had nothing to learn."""
    rounds_without_verdict: int = 0
    rounds_without_signal: int = 0
    """Rounds since the beginning in which no prompt told two answers apart; −1 once one has."""

    def to_numbers(self) -> list[float]:
        return [*map(float, astuple(self))]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> "RoundMemory":
        beta, mean, *counts = numbers
        # A checkpoint of an earlier version does not say whether a prompt has told two answers apart.
        return cls(beta, mean, *map(int, counts if len(counts) == 5 else [*counts, -1]))


def minibatches_of(groups: int, epochs: int, minibatches: int, seed: str) -> list[list[list[int]]]:
    """For each epoch and minibatch the indices of its groups; the first epoch is not shuffled.

    >>> minibatches_of(4, 1, 2, "0/1")
    [[[0, 1], [2, 3]]]
    """
    epochs_of_minibatches: list[list[list[int]]] = []
    for epoch in range(epochs):
        order = list(range(groups))
        # The first epoch keeps its order: π_old was computed by just these pieces, equally padded, so that
        # the first ratio is 1 to the last bit wherever the kernels are deterministic.
        if epoch:
            # Strings seed by SHA-512: the same order in every process, and after a resume.
            random.Random(f"{seed}/{epoch}").shuffle(order)
        epochs_of_minibatches.append(split_evenly(order, minibatches))
    return epochs_of_minibatches


def split_evenly(order: Sequence[int], parts: int) -> list[list[int]]:
    """In so many parts of about the same size, some of them empty where there are too few.

    >>> split_evenly([5, 6, 7], 2)
    [[5], [6, 7]]
    """
    # In integers: rounded floats could drop a group between two parts, or give it to both.
    ends = [len(order) * n // parts for n in range(parts + 1)]
    return [list(order[start:end]) for start, end in pairwise(ends)]


def assemble_over_ranks(
    rows: Sequence[tuple[Tensor, Tensor]], size: tuple[int, int], ranks: Ranks
) -> Float[Tensor, "N T *each"]:
    """The values that each rank computed for its own completions, assembled on all ranks; on the CPU."""
    # In the dtype of what was computed: float64 log-probs would be rounded in a float32 buffer.
    dtype = rows[0][1].dtype if rows else torch.float32
    # Some values are several numbers a token.
    each = rows[0][1].shape[2:] if rows else ()
    all_NT = torch.zeros((*size, *each), dtype=dtype, device=ranks.device)
    for index_n, value_nt in rows:
        all_NT[index_n.to(ranks.device), : value_nt.shape[1]] = value_nt.to(ranks.device)
    # Every row is 0 on all ranks but the one that computed it, so that the sum rounds nothing.
    ranks.all_reduce_sum([all_NT])
    return all_NT.cpu()


def distribution_reader(temperature: float) -> StateReader:
    """Reads of each token the likeliest tokens, and their log-probs with that of the rest, as one tensor."""

    def read(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        del batch
        coarse = coarse_distribution(readout_of(hidden_MH, head, temperature), OLD_TOP_TOKENS)
        # One tensor, as ranks add up one: float32 holds every token's number below 2^24 exactly.
        return (torch.cat([coarse.top_MK.to(coarse.logp_MC.dtype), coarse.logp_MC], -1),)

    return read


def unpacked_distributions(packed_NTX: Float[Tensor, "N T X"]) -> dict[str, Tensor]:
    """The distributions that a reader found, as `ExperienceTensors` have them."""
    top = packed_NTX.shape[-1] // 2
    top_NTK, coarse_NTC = packed_NTX.split([top, top + 1], dim=-1)
    # Contiguous, as a checkpoint stores them.
    return {"old_top_NTK": top_NTK.int(), "old_coarse_NTC": coarse_NTC.contiguous()}


def _extra_key(group: int, name: str) -> str:
    return f"extra/{group}/{name}"


def _example_as_json(example: Example) -> dict[str, Any]:
    """All but the numbers of its extras, which are tensors of the checkpoint."""
    return {
        "prompt": example.prompt,
        "completions": [asdict(completion) for completion in example.completions],
        "origin": example.origin,
        "extras": {name: {"axis": extra.axis, "pad": extra.pad} for name, extra in example.extras.items()},
    }


def _example_from_json(group: int, record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Example:
    completions = tuple(
        Completion(
            ids=tuple(completion["ids"]), mask=tuple(completion["mask"]), finished=completion["finished"]
        )
        for completion in record["completions"]
    )
    extras = {
        name: Extra(value=tensors[_extra_key(group, name)], **declared)
        for name, declared in record.get("extras", {}).items()
    }
    prompt = tuple(record["prompt"])
    return Example(prompt=prompt, completions=completions, origin=record["origin"], extras=extras)


KL_METRICS = ("kl", "kl_k3", "sqrt_kl")
"""The KL metrics, estimated on the policy's own completions."""


def sampling_logp_diff_metrics(
    old_logp_NT: Tensor, sampler_logp_NT: Tensor, mask_NT: Tensor
) -> tuple[Metric, ...]:
    gap_NT = (old_logp_NT - sampler_logp_NT).abs().masked_fill(~mask_NT, 0.0)
    average = mean_metric("sampling_logp_diff_mean", float(masked_mean(gap_NT, mask_NT)), 1)
    return average, max_metric("sampling_logp_diff_max", float(gap_NT.max()))


def round_metrics(
    row: PolicyAlgorithm,
    inputs: AdvantageInputs,
    experience: ExperienceTensors,
    collected: collect.CollectedRollouts,
    sampler_logp_NT: Tensor,
) -> tuple[Metric, ...]:
    """The metrics of a round; the same on every rank, so all are means."""
    # Of new answers alone: those of earlier policies say nothing of how this one speaks, or how far it is.
    fresh = slice(collected.new_completions)
    mask_NT = inputs.mask_NT[fresh]
    scores, length_N = collected.scores[fresh], mask_NT.sum(-1)
    metrics = {
        "reward": float(scores.mean()),
        "reward_std": float(scores.std(unbiased=False)),
        **(collect.reward_part_means(collected) | collect.step_metrics(collected)),
        # −E log μ over what was drawn: an estimate without another pass over the vocabulary.
        "entropy": -float(masked_mean(sampler_logp_NT[fresh], mask_NT)),
        "length_mean": float(length_N.double().mean()),
        "frac_finished": float(inputs.finished_N[fresh].double().mean()),
        "frac_no_verdict": collected.no_verdict / collected.generated,
        "frac_zero_std": collected.zero_std / len(collected.all_groups),
        "frac_filtered": 1 - len(collected.groups) / len(collected.all_groups),
        "frac_replayed": len(collected.replayed) / len((*collected.groups, *collected.replayed)),
        "advantage_std": float(experience.advantage_NT[inputs.mask_NT].std(unbiased=False)),
    }
    if "reference" in row.needs:
        shift_NT = log_ratio(experience.old_logp_NT[fresh], experience.ref_logp_NT[fresh], mask_NT)
        metrics |= {**_kl_means(shift_NT, mask_NT), "kl_coef": float(inputs.kl_coefficient)}
    if "rival" in row.needs:
        metrics["win_prob"] = float(inputs.win_probability_N[fresh].mean())
    if "critic" in row.needs:
        value_NT, return_NT = experience.value_NT[fresh], experience.return_NT[fresh]
        metrics["value_mean"] = float(masked_mean(value_NT, mask_NT))
        metrics["explained_variance"] = float(explained_variance(value_NT, return_NT, mask_NT))
    return (
        *(mean_metric(name, value, 1) for name, value in metrics.items()),
        max_metric("length_max", int(length_N.max())),
    )


def _kl_means(shift_NT: Tensor, mask_NT: Tensor) -> dict[str, float]:
    """The estimates of the KL to the reference, by log π − log π_ref of the policy's own completions."""
    kl = float(completion_log_ratio(shift_NT, mask_NT).mean())
    k3_mean = float(completion_log_ratio(k3(shift_NT), mask_NT).mean())
    # √KL is the distance of over-optimisation (Gao et al. 2022, arXiv:2210.10760).
    return {"kl": kl, "kl_k3": k3_mean, "sqrt_kl": math.sqrt(max(0.0, k3_mean))}


MIN_PROMPT_WEIGHT = 0.05
"""The smallest sampling weight, so that prompts that always or never pass are sampled now and then."""


class PassRateCurriculum:
    """Samples prompts in favour of those that are passed sometimes, since their completions differ in reward.
    A prompt with pass rate p is drawn in proportion to 4p(1 − p), a new one as if p were a half."""

    def __init__(self, prompts: Sequence[EncodedPrompt], *, pass_score: int | float, seed: int) -> None:
        """An answer passes whose score is at least ``pass_score``."""
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._pass_score, self._seed = pass_score, seed
        self._pass_rates = torch.full((len(prompts),), torch.nan, dtype=torch.float64)

    def sample_prompts(self, round_number: int, size: int) -> list[int]:
        pass_rates = self._pass_rates.nan_to_num(0.5)
        # 4p(1 − p) is the variance of a pass, scaled to 1 at p = ½, where answers differ most.
        weight = (4 * pass_rates * (1 - pass_rates)).clamp(min=MIN_PROMPT_WEIGHT)
        generator = torch.Generator().manual_seed(
            # 62 bits fit into a signed 64-bit seed.
            random.Random(f"{self._seed}/{round_number}/prompts").getrandbits(62)
        )
        # The largest u^(1/w) are a draw without putting back, in proportion to w.
        key = torch.rand(len(weight), generator=generator, dtype=torch.float64).log() / weight
        return key.topk(min(size, len(weight))).indices.tolist()

    def record_scores(self, groups: Sequence[collect.ScoredGroup]) -> None:
        for group in groups:
            scores = [score for score in group.scores if score is not None]
            if scores:
                passed = sum(score >= self._pass_score for score in scores)
                self._pass_rates[self._row[group.prompt.id]] = passed / len(scores)

    def tensors(self) -> Mapping[str, Tensor]:
        return {"rate": self._pass_rates.clone()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._pass_rates = tensors["rate"].clone()


class ReplayBuffer:
    """Replays groups of the last rounds as a share of every round."""

    def __init__(
        self, prompts: Sequence[EncodedPrompt], *, share: int | float, window: int, seed: int
    ) -> None:
        """``share`` of a round's groups are old ones, of at most ``window`` rounds ago."""
        self._prompts = prompts
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._share, self._window, self._seed = share, window, seed
        self._groups: list[tuple[int, collect.ScoredGroup]] = []
        """Those that may come again, each with the number of its round."""

    def sample_groups(
        self, groups: Sequence[collect.ScoredGroup], round_number: int
    ) -> tuple[collect.ScoredGroup, ...]:
        """Groups to replay with these new ones, which are stored in turn."""
        recent = [(number, group) for number, group in self._groups if round_number - number <= self._window]
        # `share` is of the whole round: of n new groups the whole has n / (1 − share).
        replay_count = round(self._share / (1 - self._share) * len(groups))
        rng = random.Random(f"{self._seed}/{round_number}/again")
        replayed = rng.sample(recent, min(replay_count, len(recent)))
        # Stored after the draw, so that no round replays its own groups.
        self._groups = [*recent, *((round_number, group) for group in groups)]
        return tuple(group for _, group in replayed)

    def tensors(self) -> Mapping[str, Tensor]:
        placed = [(number, self._row[group.prompt.id], group) for number, group in self._groups]
        rows = [[number, row, collect.group_as_json(row, group)] for number, row, group in placed]
        return {"kept": torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        rows = json.loads(bytes(tensors["kept"].tolist()))
        self._groups = [(number, collect.group_from_json(text, self._prompts)[1]) for number, _, text in rows]
