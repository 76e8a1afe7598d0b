"""Group preferences (GPO): a few comparisons of a new group are enough to tell what else it would prefer.

The module learns from few-shot episodes: from some judgements of a group, the context, it predicts the
others, the targets. A group and a context size are drawn uniformly, then which of its judgements are shown;
what is drawn is a pure function of the seed and the step. Zhao, Dang and Grover 2023, arXiv:2310.11523.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.data.records import Comparison, Record, preference_probability, record_kind
from plaudit.engine.distributed import Ranks
from plaudit.engine.loop import TrainingJob, row_batches
from plaudit.engine.metrics import Metric, mean_metric, merge_metrics, sum_metric, training_flops
from plaudit.engine.sinks.base import Summary
from plaudit.engine.step import InterruptCheck, ObjectiveResult, merge_over_ranks
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.losses.reward import gaussian_rating_nll, group_choice_nll
from plaudit.methods.data import EncodedData, load_rows
from plaudit.methods.reward_model.config import GroupConfig
from plaudit.methods.run import Run, open_run
from plaudit.models.group_preference import (
    GroupContext,
    GroupPreference,
    GroupPreferenceConfig,
    save_group_preference,
)
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels, choose_layout
from plaudit.rewards.learned.group import centred_embeddings
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, encode_each, encode_record_with_notes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupItems:
    """All that one group judged: B items of K answers each; build it with ``choice_items`` or
    ``rating_items``. Example: ``GroupItems(name="Bowbury", embedding_BKH=…, shown_BK=…, label_BK=…)``; K = 2
    for comparisons."""

    name: str
    embedding_BKH: Float[Tensor, "B K H"]
    shown_BK: Float[Tensor, "B K"]
    """The preferences as a context shows them."""
    label_BK: Float[Tensor, "B K"]
    """What the loss compares with: shares that add up to 1, or ratings where K is 1."""

    @property
    def size(self) -> int:
        return self.embedding_BKH.shape[0]


def choice_items(
    name: str, embedding_BKH: Float[Tensor, "B K H"], share_BK: Float[Tensor, "B K"] | None = None
) -> GroupItems:
    """Choices between K answers; without shares the first is the preferred one, so ties need (½, ½).
    A share y is shown as K y − 1, so that no preference is 0.

    >>> choice_items("bakers", torch.zeros(1, 2, 8)).shown_BK
    tensor([[ 1., -1.]])
    """
    answers = embedding_BKH.shape[1]
    if answers < 2:
        raise UserError(f"{name}: a choice needs two answers or more; a single one is rated")
    if share_BK is None:
        share_BK = embedding_BKH.new_zeros(embedding_BKH.shape[:2])
        share_BK[:, 0] = 1
    shown_BK = answers * share_BK - 1
    return GroupItems(name=name, embedding_BKH=embedding_BKH, shown_BK=shown_BK, label_BK=share_BK)


def rating_items(name: str, embedding_BH: Float[Tensor, "B H"], rating_B: Float[Tensor, " B"]) -> GroupItems:
    """Ratings, one answer each; standardise them over all groups, for the module sees them as they are."""
    return GroupItems(
        name=name, embedding_BKH=embedding_BH[:, None], shown_BK=rating_B[:, None], label_BK=rating_B[:, None]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSettings:
    """How much of a group is shown, and how much is asked."""

    least: int = 0
    """Fewest items of a context; with 0 the module also learns what groups prefer in general."""
    most: int = 32
    """Most items of a context."""
    targets: int = 32
    """Most targets, for the sake of memory; 0 takes all the rest."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise UserError(f"an episode shows {self.least} to {self.most} items: take 0 ≤ least ≤ most")
        if self.targets < 0:
            raise UserError(
                f"an episode asks for at most {self.targets} targets: take 1 or more, or 0 for all"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    group: int
    context: tuple[int, ...]
    targets: tuple[int, ...]


def sample_episode(sizes: Sequence[int], settings: EpisodeSettings, *, seed: int, step: int) -> Episode:
    """One episode from groups of these sizes; at least one item is always left to predict.

    >>> drawn = sample_episode([3, 3], EpisodeSettings(least=1, most=1), seed=0, step=1)
    >>> len(drawn.context), len(drawn.targets)
    (1, 2)
    """
    for group, size in enumerate(sizes):
        if size < settings.least + 1:
            raise UserError(
                f"group {group} has {size} judgements, fewer than the {settings.least} to show and one to ask"
            )
    rng = random.Random(f"episode {seed}/{step}")
    group = rng.randrange(len(sizes))
    context_size = rng.randint(settings.least, min(settings.most, sizes[group] - 1))
    # One shuffle for both, so that no target can be among what is shown.
    order = rng.sample(range(sizes[group]), sizes[group])
    end = context_size + settings.targets if settings.targets else None
    return Episode(group=group, context=tuple(order[:context_size]), targets=tuple(order[context_size:end]))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeBatch:
    """Episodes as padded tensors: each of M context points and of B targets with K answers."""

    context: GroupContext
    target_EBKH: Float[Tensor, "E B K H"]
    label_EBK: Float[Tensor, "E B K"]
    mask_EB: Bool[Tensor, "E B"]
    """False where an episode has fewer targets."""


def collate_episodes(groups: Sequence[GroupItems], episodes: Sequence[Episode]) -> EpisodeBatch:
    context_EMKH, shown_EMK, _, mask_EM = _pad_items(
        groups, [(episode.group, episode.context) for episode in episodes]
    )
    target_EBKH, _, label_EBK, mask_EB = _pad_items(
        groups, [(episode.group, episode.targets) for episode in episodes]
    )
    return EpisodeBatch(
        context=GroupContext(
            embedding_EMH=context_EMKH.flatten(1, 2),
            preference_EM=shown_EMK.flatten(1, 2),
            # A judgement is K points of the context, one an answer: its mask repeats K times.
            mask_EM=mask_EM.repeat_interleave(shown_EMK.shape[2], dim=1),
        ),
        target_EBKH=target_EBKH,
        label_EBK=label_EBK,
        mask_EB=mask_EB,
    )


def _pad_items(
    groups: Sequence[GroupItems], selections: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings, shown preferences, labels and mask of some items of some groups, item 0 for padding."""
    longest = max(len(items) for _, items in selections)
    device = groups[0].embedding_BKH.device
    # Item 0 fills up: any real embedding will do, since the mask hides it.
    rows = [
        torch.tensor([*items, *[0] * (longest - len(items))], dtype=torch.int64) for _, items in selections
    ]
    picked = [(groups[group], row.to(device)) for (group, _), row in zip(selections, rows, strict=True)]
    count_E = torch.tensor([len(items) for _, items in selections], device=device)
    return (
        torch.stack([group.embedding_BKH[row] for group, row in picked]),
        torch.stack([group.shown_BK[row] for group, row in picked]),
        torch.stack([group.label_BK[row] for group, row in picked]),
        torch.arange(longest, device=device) < count_E[:, None],
    )


def predicted_scores(model: GroupPreference, batch: EpisodeBatch) -> Float[Tensor, "E B K"]:
    return model(batch.context, batch.target_EBKH.flatten(1, 2)).score_EN.view_as(batch.label_EBK)


def target_losses(model: GroupPreference, batch: EpisodeBatch) -> Float[Tensor, "E B"]:
    """The loss of every target, 0 at padding: ``group_choice_nll``, or ``gaussian_rating_nll`` of ratings."""
    predicted = model(batch.context, batch.target_EBKH.flatten(1, 2))
    score_EBK, log_std_EBK = (
        value_EN.view_as(batch.label_EBK) for value_EN in (predicted.score_EN, predicted.log_std_EN)
    )
    if batch.label_EBK.shape[-1] == 1:
        loss_EB = gaussian_rating_nll(score_EBK[..., 0], log_std_EBK[..., 0], batch.label_EBK[..., 0])
    else:
        loss_EB = group_choice_nll(score_EBK, batch.label_EBK)
    return loss_EB.masked_fill(~batch.mask_EB, 0.0)


HELD_OUT_METRICS = ("held_out/loss", "held_out/accuracy", "held_out/accuracy_unseen")
EPISODES_PER_GROUP = 32
"""Evaluation episodes per held-out group, each with another context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMicrobatch:
    """Episodes that go through the module together.
    Example: ``GroupMicrobatch(episodes=(…,), total_targets=512)``: they ask for part of 512 targets."""

    episodes: tuple[Episode, ...]
    total_targets: int
    """Targets of the **whole** step, over all ranks: the denominator."""
    is_counted: bool = True
    """False for a placeholder, with which a rank without episodes computes along."""

    @property
    def tokens(self) -> int:
        """How many items have to be computed: an embedding stands for a whole answer."""
        return sum(len(episode.context) + len(episode.targets) for episode in self.episodes)

    def rows(self) -> "tuple[GroupMicrobatch, ...]":
        return tuple(replace(self, episodes=(episode,)) for episode in self.episodes)

    def shares(self, ranks: int, budget: int) -> "tuple[tuple[GroupMicrobatch, ...], ...]":
        """For each rank its episodes in one micro-batch: they are small, whatever the budget."""
        dealt = [self.episodes[rank::ranks] for rank in range(ranks)]
        return tuple(
            (
                replace(
                    self,
                    episodes=episodes or self.episodes[:1],
                    is_counted=self.is_counted and bool(episodes),
                ),
            )
            for episodes in dealt
        )


def microbatches_of(episodes: Sequence[Episode], ranks: Ranks) -> tuple[GroupMicrobatch, ...]:
    """This rank's episodes of a step; every rank knows all of them, and so the count."""
    total = sum(len(episode.targets) for episode in episodes)
    whole = GroupMicrobatch(episodes=tuple(episodes), total_targets=total)
    return whole.shares(ranks.world_size, budget=total)[ranks.rank]


def group_preference_objective(
    model: GroupPreference, groups: Sequence[GroupItems]
) -> Callable[[GroupMicrobatch], ObjectiveResult]:
    """Σ −log P(what the group preferred) over the targets / targets of the whole step."""

    def objective(microbatch: GroupMicrobatch) -> ObjectiveResult:
        batch = collate_episodes(groups, microbatch.episodes)
        loss_EB = target_losses(model, batch)
        context_items, targets = (
            sum(len(getattr(episode, name)) for episode in microbatch.episodes)
            for name in ("context", "targets")
        )
        # As 1 or 0: a placeholder keeps its graph, so that gradients are summed on all ranks, and adds 0.
        weight = microbatch.is_counted
        return ObjectiveResult(
            loss=weight * loss_EB.sum() / microbatch.total_targets,
            loss_N=loss_EB.sum(-1).detach(),
            origin_N=tuple(f"group {groups[episode.group].name}" for episode in microbatch.episodes),
            metrics=(
                mean_metric("loss", weight * loss_EB.detach().sum(), weight * targets),
                *_accuracy_metric("accuracy", model, batch, weight=weight),
                sum_metric("tokens", weight * (context_items + targets)),
                sum_metric("rows", weight * len(microbatch.episodes)),
            ),
        )

    return objective


def group_evaluator(
    model: GroupPreference, groups: Sequence[GroupItems], settings: EpisodeSettings, ranks: Ranks
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """Loss and accuracy on groups that were never trained, after a context and without any."""
    sizes = [group.size for group in groups]
    # A fixed seed: runs of any seed are measured by the very same trials.
    trials = [
        sample_episode(sizes, settings, seed=-1, step=number)
        for number in range(EPISODES_PER_GROUP * len(groups))
    ]

    def evaluate(pause: InterruptCheck) -> tuple[Metric, ...]:
        metrics: list[Metric] = []
        with torch.no_grad():
            for trial in trials[ranks.rank :: ranks.world_size]:
                pause()
                # The same targets twice: what is gained over no context is what the context tells.
                batch, without_context = (
                    collate_episodes(groups, [each]) for each in (trial, replace(trial, context=()))
                )
                metrics.append(
                    mean_metric("held_out/loss", target_losses(model, batch).sum(), len(trial.targets))
                )
                metrics += _accuracy_metric("held_out/accuracy", model, batch, weight=True)
                metrics += _accuracy_metric("held_out/accuracy_unseen", model, without_context, weight=True)
        return merge_over_ranks(merge_metrics(metrics), ranks)

    return evaluate


def _accuracy_metric(
    name: str, model: GroupPreference, batch: EpisodeBatch, *, weight: bool
) -> tuple[Metric, ...]:
    """How often the answer that the group preferred is the one of the highest score; ties are left out."""
    with torch.no_grad():
        best_EB = predicted_scores(model, batch).argmax(-1)
    decided_EB = batch.mask_EB & (batch.label_EBK.amax(-1) > batch.label_EBK.amin(-1))
    right_EB = decided_EB & (best_EB == batch.label_EBK.argmax(-1))
    return (mean_metric(name, weight * right_EB.sum(), weight * decided_EB.sum()),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRow:
    """A comparison as tokens, with the group that judged it."""

    example: Example
    probability: float
    group: str

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.example.prompt

    @property
    def prompt_id(self) -> str:
        return self.example.prompt_id


def group(config: GroupConfig) -> Summary | None:
    """Learn how groups differ, from comparisons that say which group judged."""
    with open_run(config, "group") as run:
        return None if run.finished else run.train(_make_job(config, run))


def _make_job(config: GroupConfig, run: Run) -> TrainingJob[GroupMicrobatch]:
    rows = load_rows(replace(config, held_out="0"), run.encoder, _encode_grouped, run.folder)
    train, held_out = _split_groups(sorted({row.group for row in rows.train}), config)
    _refuse_small_groups(rows.train, config)
    # The numbers that a reward's folder is loaded in: what it sees is then what was learnt from.
    embedder = Policy(load_model(config.model, dtype=run.precision.products, device=run.ranks.device))
    _, note = choose_layout(embedder, config.memory.layout)
    choose_kernels(embedder)
    embedder.requires_grad_(False).eval()
    embeddings = centred_embeddings(
        embedder, [row.example for row in rows.train], config.memory.tokens_at_once
    )
    items = _group_items(rows.train, (embedding_KH.to(run.precision.weights) for embedding_KH in embeddings))
    train_items, held_out_items = ([items[name] for name in names] for names in (train, held_out))
    model = _make_module(config, train_items, run.ranks)
    settings = EpisodeSettings(least=config.group.least, most=config.group.most, targets=config.group.targets)
    sizes = [row.size for row in train_items]
    run.note(*rows.notes, *_group_notes(train, held_out), *([] if note is None else [note]))
    return TrainingJob(
        module=model,
        objective=group_preference_objective(model, train_items),
        rows=sum(sizes),
        # New episodes at every step: rows of an epoch are only counted.
        microbatches=row_batches(
            lambda step, batch: microbatches_of(
                [
                    sample_episode(sizes, settings, seed=config.seed, step=step * config.batch_size + number)
                    for number in range(len(batch))
                ],
                run.ranks,
            )
        ),
        flops=partial(_step_flops, model, train_items),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=group_evaluator(model, held_out_items, settings, run.ranks) if held_out_items else None,
        held_out_metrics=HELD_OUT_METRICS,
        sample=None,
        save=lambda: _save_module(model, config, run.ranks),
    )


def _encode_grouped(records: Sequence[Record], encoder: Encoder, max_tokens: int) -> EncodedData[GroupedRow]:
    pairs = [record for record in records if isinstance(record, Comparison)]
    other = next((record for record in records if not isinstance(record, Comparison)), None)
    if other is not None:
        raise UserError(
            f"{other.origin}: this row is a {record_kind(other)}, and groups are learnt from comparisons"
        )
    ungrouped = next((pair for pair in pairs if pair.group is None), None)
    if ungrouped is not None:
        raise UserError(
            f"{ungrouped.origin}: this comparison does not say which group judged; give it a `group`"
        )

    def finish(pair: Comparison, example: Example) -> GroupedRow:
        return GroupedRow(example=example, probability=preference_probability(pair), group=pair.group or "")

    return EncodedData(
        encoding=encode_each(pairs, lambda pair: encode_record_with_notes(pair, encoder), finish, max_tokens)
    )


def _split_groups(names: Sequence[str], config: GroupConfig) -> tuple[list[str], list[str]]:
    unknown_names = sorted(set(config.group.held_out) - set(names))
    if unknown_names:
        raise UserError(
            f"group.held_out: no comparison is by {', '.join(unknown_names)}; there are {', '.join(names)}"
        )
    held_out = list(config.group.held_out)
    if not held_out and config.held_out_share:
        shuffled = random.Random(f"{config.seed}/held-out groups").sample(names, len(names))
        held_out = shuffled[: math.ceil(config.held_out_share * len(names))]
    train = [name for name in names if name not in held_out]
    if len(train) < 2:
        raise UserError(
            f"{config.data}: of {len(names)} groups {len(train)} would be learnt from, and how groups differ "
            "shows in two or more; hold out fewer, or give comparisons of more groups"
        )
    return train, sorted(held_out)


def _refuse_small_groups(rows: Sequence[GroupedRow], config: GroupConfig) -> None:
    needed = config.group.least + 1
    small = [f"{name} ({size})" for name, size in Counter(row.group for row in rows).items() if size < needed]
    if small:
        raise UserError(
            f"group.least {config.group.least}: every group needs {needed} comparisons, and fewer are by "
            f"{_shortened(sorted(small))}; show fewer, or leave these groups out"
        )


def _group_items(rows: Sequence[GroupedRow], embeddings: Iterable[Tensor]) -> Mapping[str, GroupItems]:
    embeddings_by_group: dict[str, list[Tensor]] = {}
    probabilities_by_group: dict[str, list[Tensor]] = {}
    for row, embedding_KH in zip(rows, embeddings, strict=True):
        embeddings_by_group.setdefault(row.group, []).append(embedding_KH)
        probabilities_by_group.setdefault(row.group, []).append(
            embedding_KH.new_tensor([row.probability, 1 - row.probability])
        )
    return {
        name: choice_items(name, torch.stack(group_embeddings), torch.stack(probabilities_by_group[name]))
        for name, group_embeddings in embeddings_by_group.items()
    }


def _make_module(config: GroupConfig, groups: Sequence[GroupItems], ranks: Ranks) -> GroupPreference:
    settings = config.group
    embedding_size = groups[0].embedding_BKH.shape[-1]
    shape = GroupPreferenceConfig(
        embedding=embedding_size, width=settings.width, layers=settings.layers, heads=settings.heads
    )
    # Every rank has another stream of random numbers by now: the first one's module is given to all.
    model = GroupPreference(shape).to(ranks.device, groups[0].embedding_BKH.dtype)
    # By trained groups alone, as a group that is only met later cannot be in the scale.
    model.standardise(torch.cat([this_group.embedding_BKH.flatten(0, 1) for this_group in groups]))
    ranks.broadcast(p.data for p in model.parameters())
    return model


def _step_flops(
    model: GroupPreference, groups: Sequence[GroupItems], microbatches: Sequence[GroupMicrobatch]
) -> float:
    weights = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
    answers = groups[0].embedding_BKH.shape[1]
    points = sum(
        len(episode.context) + len(episode.targets)
        for microbatch in microbatches
        for episode in microbatch.episodes
    )
    return training_flops(weights, 0, tokens=answers * points, trained_tokens=0)


def _group_notes(train: Sequence[str], held_out: Sequence[str]) -> Iterator[str]:
    yield f"learns from {len(train)} groups: {_shortened(train)}"
    if held_out:
        yield f"never trained, to see whether a few comparisons tell of the rest: {_shortened(held_out)}"


def _shortened(names: Sequence[str]) -> str:
    """At most eight names.

    >>> _shortened(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _save_module(model: GroupPreference, config: GroupConfig, ranks: Ranks) -> None:
    if ranks.is_first:
        with atomic.atomic_folder(config.out / "model") as folder:
            save_group_preference(model, folder)
