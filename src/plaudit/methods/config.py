"""Settings that every training run shares; importing this does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar, Literal

from plaudit.bounds import Count, FromOne, Positive, PositiveShare, Share, check_bounds
from plaudit.data.formats.layout import ReadOptions, named_role
from plaudit.data.records import UNSAFE, Safety
from plaudit.data.transforms import ControlSettings
from plaudit.engine import settings
from plaudit.errors import UserError
from plaudit.models.settings import LoraSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """How the file of rows is read.
    Example: ``RowSettings(threshold=0.0)`` refuses to start when a single row is bad."""

    threshold: Share = 0.01
    """Above this share of bad rows the run does not start."""
    split: str | None = None
    """Which split of a datasets folder."""
    ties: Literal["soft", "drop"] = "soft"
    """What becomes of ties."""
    safety: Safety | None = None
    """Only such pairs, by what their answers were reported for, or thumbs in place of rows with flags."""
    unsafe: tuple[str, ...] = UNSAFE
    """The flags that count there."""
    on_disk: Literal["auto", "always", "never"] = "auto"
    """Whether rows stay on disk, so that a set may be larger than memory; auto: from 256 MB on."""
    cached: bool = True
    """Whether tokens of many rows are kept in the cache, for the next run that wants the very same."""

    def __post_init__(self) -> None:
        check_bounds(self, "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSettings:
    """What the model is asked to say now and then.

    Example: ``SampleSettings(rows=3, tokens=64)``
    """

    rows: Count = 3
    """How many held-out prompts are answered; 0 for none."""
    tokens: FromOne = 64
    """The longest answer."""

    def __post_init__(self) -> None:
        check_bounds(self, "sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A supervised run: from rows and a model folder to a better model folder.

    Example: ``RunConfig(model=Path("base"), data=Path("rows.jsonl"), out=Path("runs/first"))``
    """

    model: Path
    """What to start from: a Hugging Face folder, or org/name[@revision] of the hub."""
    data: Path
    """Rows: JSONL, JSON, CSV, Parquet, a datasets folder, or org/name[:config][/split] of the hub."""
    out: Path
    """The run folder; the same command on the same folder goes on where it stopped."""
    format: str | None = None
    """The layout of the rows; none: told from the rows, and said."""
    columns: tuple[str, ...] = ()
    """What fields of the rows are called here: prompt=question system=system."""
    roles: tuple[str, ...] = ()
    """Who speaks in conversations: narrator=assistant."""
    leave_out: tuple[str, ...] = ()
    """Fields of the rows that are left unread on purpose."""
    held_out: str = "0.05"
    """Rows that are never trained: a share of the data, or a file; 0 for none."""
    epochs: Positive = 3.0
    """How often the data is gone through."""
    steps: FromOne | None = None
    """How many steps instead."""
    batch_size: FromOne = 16
    """Rows in a step, over all processes."""
    learning_rate: Positive = 1e-5
    """The peak learning rate; with LoRA ten times as high where none is given."""
    max_length: FromOne = 2048
    """The longest row in tokens: prompts are cut from their start, answers never."""
    turns: Literal["all", "last"] = "all"
    """Which answers of a longer conversation are trained."""
    text: Literal["chat", "raw"] | None = None
    """Rows in plain text: a user's turn, or raw; none: as the model was trained, else chat."""
    template: Path | None = None
    """A file with a chat template in place of the model's own; it is saved with the model."""
    extras: str | None = field(default=None, metadata={"hidden": True})
    """What prompts show beside words (pictures): file.py:name of a function that reads it."""
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    """Numbers of the matrix products; weights stay float32. auto: float32 on CPU, bfloat16 on GPU."""
    compile: bool = False
    """Compile the layers that learn (torch.compile), once at the start, for any length."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """Of the order of rows and everything else that is random."""
    evaluate_every: FromOne | None = None
    """Steps between held-out figures; none: ten times in the run."""
    save_every: FromOne | None = None
    """Steps between checkpoints; none: ten times in the run."""
    sample_every: FromOne | None = None
    """Steps between samples, the first after step 1; none: ten times in the run."""
    deterministic: bool = False
    """Let a GPU give the same bits in every run, at some cost; a CPU does so anyway."""
    shard: bool = False
    """Divide weights and optimiser over the processes (FSDP2)."""
    shard_ranks: Count = 0
    """With shard: over so many processes, each group of them with a whole copy (HSDP); 0: over all."""
    engine: Literal["plaudit", "deepspeed"] = "plaudit"
    """Who takes steps: plaudit itself, or DeepSpeed's ZeRO."""
    sequence_ranks: FromOne = 1
    """So many processes share each row's tokens; heads are exchanged for attention."""
    sinks: tuple[str, ...] = ("console",)
    """Where figures go: console, tensorboard, wandb, mlflow, trackio; metrics.jsonl is always written."""
    check: bool = True
    """Look over rows, model and reward before the first step (docs/checks.md)."""
    allow: tuple[str, ...] = ()
    """Checks that may fail."""
    optimizer: settings.OptimizerSettings = field(default_factory=settings.OptimizerSettings)
    """The optimiser, its schedule and clipping."""
    freeze: tuple[str, ...] = ()
    """Parts whose weights stay: tower, projector (of models that see), or a word of their names."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Small matrices beside frozen weights."""
    memory: settings.MemorySettings = field(default_factory=settings.MemorySettings)
    """How a batch is laid out and divided."""
    deepspeed: settings.DeepSpeedSettings = field(default_factory=settings.DeepSpeedSettings)
    """What DeepSpeed divides and where it keeps it."""
    safety: settings.SafetySettings = field(default_factory=settings.SafetySettings)
    """What to do when a number is not finite."""
    keep: settings.KeepSettings = field(default_factory=settings.KeepSettings)
    """Which checkpoints stay."""
    rows: RowSettings = field(default_factory=RowSettings)
    """How the file of rows is read."""
    sample: SampleSettings = field(default_factory=SampleSettings)
    """What the model is asked to say."""
    keeps_best: ClassVar[bool] = False
    """Whether the best look's model is the result where ``keep`` leaves that open."""
    # Whether its rows' tokens may be shared by several processes.
    _shares_rows: ClassVar[bool] = False
    # Whether log-probs of two passes are compared: of the policy, its reference, or an older policy.
    _compares_passes: ClassVar[bool] = False
    # Whether DeepSpeed may take its steps.
    _takes_deepspeed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        check_bounds(self)
        self._refuse_for_deepspeed()
        if self.lora.dropout and self._compares_passes:
            raise UserError(
                "lora.dropout is for sft, reward and their relatives: here log-probs of two passes are "
                "compared, and each would draw for itself; leave it out"
            )
        if self.shard and self.lora.base == "4bit":
            raise UserError("--shard divides whole weights: leave it out, or --lora.base 4bit")
        if self.shard_ranks and not self.shard:
            raise UserError("--shard-ranks says over how many processes --shard divides weights: give both")
        self._refuse_for_compile()
        if self.sequence_ranks > 1 and not self._shares_rows:
            raise UserError(
                "--sequence-ranks: runs of this kind have whole rows in each process; leave it out"
            )
        if self.keep.use_best and self.held_out_share == 0.0:
            raise UserError("keep.use_best needs held-out rows: set --held-out to a share or a file")

    def _refuse_for_compile(self) -> None:
        if self.compile and (self.shard or self.lora.base == "4bit"):
            raise UserError("--compile is for whole weights: leave it out, or --shard and --lora.base 4bit")
        if self.compile and self.lora.dropout:
            raise UserError("--compile is proven by equal passes, and --lora.dropout draws: leave one out")
        if self.compile and self.memory.keep_products:
            raise UserError(
                "--compile with --memory.keep-products: no product is kept within compiled layers; leave "
                "one of them out (compiled without --memory.checkpointing, layers keep less than usual)"
            )

    def _refuse_for_deepspeed(self) -> None:
        """Raise for settings that DeepSpeed cannot go with, or that are read by it alone."""
        if self.zero is None:
            if self.deepspeed != settings.DeepSpeedSettings():
                raise UserError("deepspeed.stage and .offload are read with --engine deepspeed only: add it")
            return
        if not self._takes_deepspeed:
            raise UserError(
                "--engine deepspeed takes the steps of sft, reward and preference runs: here answers are "
                "drawn from the weights that learn, or a small module learns; leave it out"
            )
        optimizer = self.optimizer
        others = {
            "--shard": self.shard,
            "--sequence-ranks": self.sequence_ranks > 1,
            "--compile": self.compile,
            "--dtype float64": self.dtype == "float64",
            "--lora.base 4bit": self.lora.base == "4bit",
            f"--optimizer.name {optimizer.name}": optimizer.name != "adamw",
            f"--optimizer.state {optimizer.state}": optimizer.state != "float32",
        }
        if found := [words for words, is_given in others.items() if is_given]:
            raise UserError(
                "--engine deepspeed divides AdamW in float32 and its weights in a way of its own: leave it "
                f"out, or {' and '.join(found)}"
            )

    @classmethod
    def implied_settings(cls, given: Mapping[tuple[str, ...], object]) -> Mapping[tuple[str, ...], object]:
        """What settings that were given make of one that was not: adapters learn at ten times the rate."""
        [rate] = (setting.default for setting in fields(cls) if setting.name == "learning_rate")
        assert isinstance(rate, int | float)
        return {("learning_rate",): 10 * rate} if given.get(("lora", "rank")) else {}

    def settled_keep(self, *, evaluates: bool = True) -> settings.KeepSettings:
        """``keep`` with what the method does where it is left open; without held-out rows nothing is."""
        best = self.keep.use_best
        if best is None:
            best = self.keeps_best and self.held_out_share != 0.0 and evaluates
        return replace(self.keep, use_best=best)

    @property
    def zero(self) -> settings.DeepSpeedSettings | None:
        """How DeepSpeed takes the steps of the run; None where plaudit itself does."""
        return self.deepspeed if self.engine == "deepspeed" else None

    @property
    def divides_weights(self) -> bool:
        """Whether each process holds a part of every weight, so that all must come to a pass."""
        return self.shard or (self.zero is not None and self.zero.stage == 3)

    @property
    def read_options(self) -> ReadOptions:
        """How the rows of the run are read: the split, ties, and what their fields are called."""
        columns = (*self.columns, *map(named_role, self.roles))
        return ReadOptions(
            split=self.rows.split,
            ties=self.rows.ties,
            columns=columns,
            leave_out=self.leave_out,
            safety=self.rows.safety,
            unsafe=self.rows.unsafe,
        )

    @property
    def held_out_share(self) -> float | None:
        """The share that is held out; None when it is a file."""
        try:
            share = float(self.held_out)
        except ValueError:
            return None
        if not 0 <= share < 1:
            raise UserError(f"held_out is a share from 0 to below 1, or a file, not {self.held_out}")
        return share


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """The policy that the new one is compared with.

    Example: ``ReferenceSettings(kind="live")``
    """

    kind: Literal["auto", "precomputed", "live", "average", "none"] = "auto"
    """Computed once and kept, asked at each step, following, or none. auto: precomputed, or live."""
    model: Path | None = None
    """Its folder; none: the model that the run starts from."""
    cache: Path | None = None
    """Where precomputed log-probs are kept; none: plaudit in the user's cache folder."""
    every: FromOne | None = None
    """Steps between moves of an average reference; none: 64."""
    share: PositiveShare | None = None
    """How far it moves towards the policy; 1 copies it. none: 0.6."""

    def __post_init__(self) -> None:
        check_bounds(self, "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig(RunConfig):
    """A supervised run on judged answers, each behind a word for how good it is.

    Example: ``ControlConfig(model=Path("base"), data=Path("pairs.jsonl"), out=Path("runs/words"))``
    """

    control: ControlSettings = field(default_factory=ControlSettings)
    """The control words for good and bad answers."""
    _shares_rows: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig(RunConfig):
    """A run in which the model learns to answer as if it had read a context.

    Example: ``ContextConfig(model=…, data=…, out=…, context=Path("hhh.txt"))``
    """

    context: Path
    """A text file: the words that stand before each of the teacher's prompts."""
    divergence: Literal["forward", "reverse", "js"] = "forward"
    """The distance between the teacher's distribution and the student's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerJudgeSettings:
    """Who scores answers to held-out prompts at each look, and so chooses the model."""

    by: str | None = None
    """A reward: a folder, a rule, file.py:name. Its score chooses the model, and not the held-out loss."""
    prompts: FromOne = 64
    """How many held-out prompts are answered, each by its likeliest answer."""
    tokens: FromOne = 128
    """The longest answer."""

    def __post_init__(self) -> None:
        check_bounds(self, "judge")


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig(RunConfig):
    """A run that learns to say what demonstrations, or preferred answers, say."""

    judge: AnswerJudgeSettings = field(default_factory=AnswerJudgeSettings)
    """Who chooses the checkpoint by what the model answers."""
    _shares_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        if self.judge.by is None:
            return
        if self.zero is not None and self.divides_weights:
            raise UserError(
                "--judge.by draws answers from whole weights: take --deepspeed.stage 2, or --shard instead"
            )
        if self.held_out_share == 0.0:
            raise UserError("judge.by needs held-out rows: set --held-out to a share or a file")
        if self.judge.tokens >= self.max_length:
            raise UserError(
                f"judge.tokens {self.judge.tokens} leave no room for a prompt in max_length {self.max_length}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilConfig(RunConfig):
    """A run in which the model learns from another model's distribution.

    Example: ``DistilConfig(model=…, data=…, out=…, teacher=Path("large"), divergence="reverse")``
    """

    teacher: Path
    """The teacher's folder; it has the student's tokenizer."""
    divergence: Literal["forward", "reverse", "js"] = "forward"
    """The distance between the teacher's distribution and the student's."""
    hard_weight: Share = 0.0
    """The share of the answers' own tokens in the loss, beside the teacher's distribution."""


MAY_CHANGE_ON_RESUME = frozenset(
    [
        *("allow", "check", "device", "memory", "out", "sampler", "server", "sinks"),
        *("deepspeed", "engine", "sequence_ranks", "shard", "shard_ranks"),
        *("keep.background", "keep.last", "keep.use_best", "save_every", "sample", "sample_every"),
        *("reference.cache", "rows.cached", "loop.project", "loop.store"),
        *("ensemble.caution", "ensemble.combine"),
    ]
)
"""Settings that may differ on resume: they change neither what is learnt nor which checkpoint is the best."""
