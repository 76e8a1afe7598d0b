"""The cost of a run in one record: its schedule, memory, disk and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from plaudit.engine.checkpoint.state import gather_rng_states
from plaudit.engine.checkpoint.tensors import safetensors_header
from plaudit.engine.distributed import single_process
from plaudit.engine.optimizer import trained_parameters
from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.run import rounds_as_steps
from plaudit.methods.preference.config import PreferenceConfig, configured_algorithm
from plaudit.methods.preference.run import resolve_variant
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.models.adapters import four_bit_layers
from plaudit.runs.planner.machine import Gpu, Machine
from plaudit.runs.planner.memory import (
    COPY,
    MemoryLedger,
    drawing_shape,
    estimate_memory,
    memory_lower_bound,
    shares,
)
from plaudit.runs.planner.models import (
    CACHED,
    RunModels,
    load_run_models,
    model_size,
    multiplied_numbers,
    optimizer_state,
    stored_number_bytes,
)
from plaudit.runs.planner.schedule import PlannedRows, Schedule, make_schedule, planned_rows
from plaudit.runs.planner.throughput import Throughput

FORWARD, BACKWARD, FROZEN = 2, 4, 2
"""Operations a weight and token: forward, backward, and backward where the weight does not learn."""
DEFAULT_EVALUATIONS = 10
"""How often held-out rows are evaluated where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    method: str
    config: RunConfig
    rows: PlannedRows
    machine: Machine
    process: int
    """Bytes that Python and its libraries take; 0 beside a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    moves: float
    drawing: float
    """Answers: drawn, scored and looked at."""
    looks: float
    before: float
    """Log-probs of a reference that are computed once."""

    @property
    def total(self) -> float:
        return self.moves + self.drawing + self.looks + self.before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunCost:
    request: PlanRequest
    schedule: Schedule
    roles: RunModels
    memory: MemoryLedger
    disk: tuple[StoredItem, ...]

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.request.machine.memory


def with_process_memory(cost: RunCost, process: int) -> RunCost:
    """The same cost in a process whose Python and libraries take so many bytes."""
    request = replace(cost.request, process=process)
    return replace(cost, request=request, memory=cost.memory.with_process(process))


def with_measured_peak(cost: RunCost, pace: Throughput | None) -> RunCost:
    """The same cost, with the measured peak where steps took more than was estimated."""
    if pace is None or pace.peak is None:
        return cost
    return replace(cost, memory=cost.memory.with_measured_peak(pace.peak, cost.request.process))


def resolve_run(method: str, config: RunConfig) -> RunConfig:
    """The config of the run that a command begins; of several runs, the largest one."""
    if config.zero is not None:
        raise UserError(
            "--engine deepspeed: where DeepSpeed keeps its parts, and when it gathers them, is not known "
            "here; plan the run with --shard instead, which divides what stage 3 divides"
        )
    if config.sequence_ranks > 1:
        raise UserError(
            "plaudit plan does not know --sequence-ranks: leave it out, with a --max-length of one's part"
        )
    if isinstance(config, PolicyConfig):
        return rounds_as_steps(method, config)
    if isinstance(config, PreferenceConfig):
        return resolve_variant(configured_algorithm(method, config), config)
    if isinstance(config, RewardConfig) and config.pretraining.data is not None:
        raise UserError(
            "--pretraining.data makes two runs of one: plan each by itself, the first with its rows as --data"
        )
    return config


def estimate_cost(request: PlanRequest) -> RunCost:
    config, machine = request.config, request.machine
    plan = make_schedule(request.method, config, request.rows, ranks=machine.ranks)
    roles = load_run_models(request.method, config, machine, request.rows.train)
    memory = estimate_memory(config, roles, plan, request.rows, machine, request.process)
    disk = stored_items(config, roles, request.rows)
    return RunCost(request=request, schedule=plan, roles=roles, memory=memory, disk=disk)


def plan_on(method: str, config: RunConfig, machine: Machine) -> RunCost:
    """What a run costs on a machine, by its own rows; nothing is measured."""
    config = resolve_run(method, config)
    rows = planned_rows(method, config, None)
    request = PlanRequest(method=method, config=config, rows=rows, machine=machine, process=0)
    return recomputed_where_needed(estimate_cost(request))


def recomputed_where_needed(cost: RunCost) -> RunCost:
    """The run with its layers computed again where it fits its GPU so alone, and nothing was said of it."""
    request, memory = cost.request, cost.request.config.memory
    if cost.fits or memory.checkpointing is not None or request.machine.device_kind != "cuda":
        return cost
    config = replace(request.config, memory=replace(memory, checkpointing=True))
    again = estimate_cost(replace(request, config=config))
    return again if again.fits else cost


def may_fit(request: PlanRequest) -> bool:
    """Whether what can be counted without simulating a step fits; much quicker than ``estimate_cost``."""
    config, machine = request.config, request.machine
    plan = make_schedule(request.method, config, request.rows, ranks=machine.ranks)
    roles = load_run_models(request.method, config, machine, request.rows.train)
    return memory_lower_bound(config, roles, plan, request.rows, request.process) <= machine.memory


def estimate_times(cost: RunCost, pace: Throughput) -> Times:
    """The seconds of a run: each kind of token costs what it cost in the measured steps."""
    config, rows, ranks = cost.request.config, cost.request.rows, cost.request.machine.ranks
    plan = make_schedule(cost.request.method, config, rows, ranks=ranks, answer_tokens=pace.answer_tokens)
    step_cost = FORWARD + (FROZEN if config.lora.rank else BACKWARD)
    cached = cost.roles.reference_kind == CACHED
    # What was measured of a run with kept log-probs had a live reference, which costs one look more.
    forward_share = FORWARD / (step_cost + (FORWARD if cached and pace.steps else 0))
    step_share = 1 - forward_share if cached and pace.steps else 1.0
    tokens = pace.tokens * ranks
    evaluations = _evaluations(config, plan) if plan.held_out else 0
    if plan.rounds is None:
        held_out = sum(row.tokens for row in rows.held_out)
        all_tokens = sum(row.tokens for row in (*rows.train, *rows.held_out))
        before = forward_share * all_tokens / tokens if cached else 0.0
        looks = evaluations * forward_share * held_out / tokens
        return Times(moves=step_share * plan.tokens / tokens, drawing=0.0, looks=looks, before=before)
    generated = plan.generated * (plan.rounds.answers + plan.rounds.rivals) / plan.rounds.answers
    answers = tokens / plan.rounds.longest if pace.answers is None else pace.answers * ranks
    per_prompt = config.judge.answers if isinstance(config, PolicyConfig) else 1
    held_out_answers = evaluations * plan.held_out * per_prompt
    return Times(
        moves=plan.tokens / tokens, drawing=generated / answers, looks=held_out_answers / answers, before=0.0
    )


def _evaluations(config: RunConfig, numbers: Schedule) -> int:
    return -(-numbers.steps // (config.evaluate_every or -(-numbers.steps // DEFAULT_EVALUATIONS)))


TRAINING_SHARE, DRAWING_SHARE = 0.33, 0.12
"""What a GPU is taken to reach: of its rate of products while it learns, of its bandwidth while it draws.

Measured on an H200 with torch 2.11 and 1.5 billion weights; 0.6 billion reached half of the first.
"""
# Taken for granted: GPUs of a machine, bytes a second that a GPU has of the network (400 Gb/s), and the share
# that is reached of it and of links within the machine.
MACHINE_GPUS, NETWORK, LINK_SHARE = 8, 50e9, 0.7


def estimated_throughput(cost: RunCost) -> Throughput:
    """What a GPU of that name would reach, by its data sheet and the operations and bytes of the run."""
    gpu, rounds = cost.request.machine.gpu, cost.schedule.rounds
    assert gpu is not None
    tokens, look_seconds, exchange = _learning_pace(cost)
    basis = (
        f"estimated, not measured: {TRAINING_SHARE:.0%} of the {gpu.rate / 1e12:,.0f} Tflop/s of a "
        f"{gpu.title}, {DRAWING_SHARE:.0%} of its {gpu.bandwidth / 1e12:.2g} TB/s while drawing{exchange}"
    )
    if rounds is None:
        return Throughput(tokens=tokens, basis=basis)
    answer_seconds = _drawing_seconds(cost, cost.schedule) + look_seconds
    return Throughput(tokens=tokens, answers=1 / answer_seconds, answer_tokens=rounds.longest, basis=basis)


def _learning_pace(cost: RunCost) -> tuple[float, float, str]:
    # Tokens a second of one GPU that learns, its seconds of looks at an answer, and what slows it down.
    gpu, roles, plan, config = cost.request.machine.gpu, cost.roles, cost.schedule, cost.request.config
    assert gpu is not None
    learners = [model for model in (roles.trained_model, roles.critic) if model is not None]
    # A critic has no adapters.
    again = FORWARD * bool(config.memory.checkpointing)
    steps = FORWARD + (FROZEN if config.lora.rank else BACKWARD) + again, FORWARD + BACKWARD + again
    looking = 0 if roles.reference_model is None else multiplied_numbers(roles.reference_model)
    learning = FORWARD * looking * (plan.rounds is None)
    learning += sum(a * b for a, b in zip(steps, map(multiplied_numbers, learners), strict=False))
    rate = TRAINING_SHARE * gpu.rate
    step_tokens = plan.tokens / plan.steps / plan.ranks
    products, words = step_tokens * learning / rate, ""
    exchange = _exchange_seconds(cost, learners, gpu)
    # The weights of the next layer come while one computes; gradients of whole models leave behind the pass.
    seconds = max(products, exchange) if config.shard else products + exchange
    if seconds > 1.005 * products:
        words = f"; slowed down {seconds / products:.2f} times by the exchange between ranks"
    if plan.rounds is None:
        return step_tokens / seconds, 0.0, words
    # Before the first move of a round policy, reference and critic look at each answer once.
    looking += sum(map(multiplied_numbers, learners))
    prompt = max(len(row.prompt) for row in cost.request.rows.train)
    looks = FORWARD * looking * (prompt / plan.rounds.answers + plan.rounds.longest) / rate
    return step_tokens / seconds, looks * (seconds / products if config.shard else 1.0), words


def _exchange_seconds(cost: RunCost, learners: Sequence[nn.Module], gpu: Gpu) -> float:
    # How long a step's weights and gradients are on their way to one GPU, or from it.
    plan, sizes = cost.schedule, [model_size(model) for model in learners]
    link = gpu.link if plan.ranks <= MACHINE_GPUS else min(gpu.link, NETWORK)
    gradients = sum(4 * size.trained for size in sizes)
    # Divided weights come for each piece's forward and backward pass, and its gradients leave as a sum.
    weights = sum(2 * cost.roles.numbers.products.itemsize * size.total for size in sizes)
    sent = plan.microbatches * (weights + gradients) if cost.request.config.shard else 2 * gradients
    return sent * (plan.ranks - 1) / plan.ranks / (LINK_SHARE * link)


def _drawing_seconds(cost: RunCost, plan: Schedule) -> float:
    # How long a GPU draws for one of the answers that it draws side by side.
    gpu, roles, rounds = cost.request.machine.gpu, cost.roles, plan.rounds
    assert gpu is not None
    assert rounds is not None
    shape = drawing_shape(roles, plan, cost.request.rows, cost.request.machine)
    # Each token reads all weights, and of its row the prompt and half of what it will have.
    weights = multiplied_numbers(roles.trained_model) * roles.numbers.products.itemsize
    step_bytes = weights + shape.rows * (shape.lengths[0] + rounds.longest / 2) * shape.token_bytes
    return rounds.longest * step_bytes / (DRAWING_SHARE * gpu.bandwidth) / shape.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """GPUs that learn, and GPUs whose servers draw, with the seconds of a round on each side."""

    trainers: int
    servers: int
    learning: float
    drawing: float

    @property
    def seconds(self) -> float:
        """A round's time where the next one is drawn meanwhile."""
        return max(self.learning, self.drawing)

    @property
    def words(self) -> str:
        servers = ",".join(f"http://server-{n}:8000" for n in range(1, self.servers + 1))
        return f"--sampler {servers} --rollout.lag 1{' --shard' * (self.trainers > 1)}"


def splits(cost: RunCost, gpus: int) -> list[Split]:
    """Every way to share so many GPUs between learning and drawing; the cost is that of one of them."""
    found: list[Split] = []
    for servers in range(1, gpus):
        config = replace(cost.request.config, shard=gpus - servers > 1)
        divided = replace(cost, request=replace(cost.request, config=config))
        found.append(split_of(divided, gpus - servers, servers))
    return found


def split_of(cost: RunCost, trainers: int, servers: int) -> Split:
    """The seconds of a round where so many GPUs learn and so many draw, whatever number the cost is of."""
    request = cost.request
    plan, drawn = (
        make_schedule(request.method, request.config, request.rows, ranks=ranks)
        for ranks in (trainers, servers)
    )
    tokens, look_seconds, _ = _learning_pace(replace(cost, schedule=plan))
    answers = plan.generated / plan.batches
    learning = (plan.tokens / plan.batches / tokens + answers * look_seconds) / trainers
    drawing = answers * _drawing_seconds(cost, drawn) / servers
    return Split(trainers=trainers, servers=servers, learning=learning, drawing=drawing)


def split_request(request: PlanRequest, split: Split) -> PlanRequest:
    """The run of the trainers of a split, whose answers come from servers."""
    assert isinstance(request.config, PolicyConfig)
    config = replace(request.config, sampler="http://server-1:8000", shard=split.trainers > 1)
    return replace(request, config=config, machine=replace(request.machine, ranks=split.trainers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    name: str
    bytes: int
    """What the process that has most to do reads or writes."""
    seconds: float
    why: str


def transfers(cost: RunCost) -> tuple[Transfer, ...]:
    """What processes read and write: models at the start, a checkpoint, both of a run that goes on."""
    share, checkpoint = shares(cost.request.config, cost.schedule), cost.disk[0].bytes
    models, part = _bytes_of_models(cost, share), checkpoint // share
    parts = f"of each model that is divided 1/{share}" if share > 1 else "all files of every model"
    writer, rows = (
        "the process writes it" if cost.schedule.ranks == 1 else "the first process writes it",
        "all",
    )
    if share > 1:
        writer, rows = f"each of {share} processes writes its rows", "its rows"
    kinds = (
        ("load", models, f"each process reads {parts}"),
        ("save", part, f"weights that learn and moments: {writer}"),
        ("go on", models + part, f"each process reads the models, and {rows} of the checkpoint"),
    )
    rate = cost.request.machine.disk_rate
    return tuple(
        Transfer(name=name, bytes=size, seconds=size / rate, why=f"{why}; at {rate / 1e9:.3g} GB a second")
        for name, size, why in kinds
    )


def _bytes_of_models(cost: RunCost, share: int) -> int:
    # What a process reads of the models' files: of those that are divided its share.
    config, roles = cost.request.config, cost.roles
    policy = model_size(roles.trained_model)
    stored = stored_number_bytes(config.model)
    whole = stored * (policy.frozen if config.lora.rank else policy.total)
    read = whole if roles.critic is None else whole + stored * model_size(roles.critic).total
    if roles.reference_model is not None:
        assert isinstance(config, PreferenceConfig | PolicyConfig)
        stored = stored_number_bytes(config.reference.model or config.model)
        read += stored * model_size(roles.reference_model).total
    copied = any(line.name == COPY for line in cost.memory.lines)
    scorers = sum(scorer.size.total * stored_number_bytes(scorer.folder) for scorer in roles.scorers)
    return read // share + whole * copied + scorers


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    name: str
    bytes: int
    count: int
    why: str

    @property
    def total(self) -> int:
        return self.bytes * self.count


def stored_items(config: RunConfig, roles: RunModels, rows: PlannedRows) -> tuple[StoredItem, ...]:
    evaluates = bool(rows.held_out)
    last = config.keep.last
    best = " and the best" if evaluates else ""
    items = [
        StoredItem(
            name="checkpoints",
            bytes=checkpoint_bytes(config, roles),
            count=last + evaluates + 1,
            why=f"the {last} newest{best}, and the one that is being written",
        )
    ]
    models = {"model": roles.trained_model, "critic": roles.critic}
    for name, model in models.items():
        if model is not None:
            size = _file_size(_saved_weights(model, config.model))
            items.append(StoredItem(name=name, bytes=size, count=1, why="weights of the result"))
    if config.lora.rank:
        items.append(
            StoredItem(
                name="adapter",
                bytes=_file_size(trained_parameters(roles.trained_model)),
                count=1,
                why="LoRA alone",
            )
        )
    if roles.reference_kind == CACHED:
        tokens = sum(row.trained_tokens for row in (*rows.train, *rows.held_out))
        items.append(
            StoredItem(name="log-probs", bytes=4 * tokens, count=1, why="of the reference, in the cache")
        )
    return tuple(items)


def checkpoint_bytes(config: RunConfig, roles: RunModels) -> int:
    """The size of one checkpoint: trained weights, optimiser state and random-number states."""
    weights: dict[str, Tensor] = {}
    for prefix, model in (("policy.", roles.trained_model), ("critic.", roles.critic)):
        if model is not None:
            weights |= {prefix + name: p for name, p in trained_parameters(model).items()}
    state = optimizer_state(config.optimizer)
    moments = {
        f"{name}/{key}": torch.empty(p.shape if in_shape else (), dtype=dtype, device="meta")
        for name, p in weights.items()
        for key, (in_shape, dtype) in state.items()
    }
    return sum(map(_file_size, (weights, moments, gather_rng_states(single_process()))))


def _saved_weights(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    # The weights of a result, in its base's numbers: adapters are added to what they stand beside.
    dtype = torch.bfloat16 if stored_number_bytes(folder) == 2 else torch.float32
    layers = four_bit_layers(model)
    held = {id(p) for layer in layers for p in (layer.codes, layer.scale_bits)}
    saved = {name: p for name, p in model.named_parameters() if "lora_" not in name and id(p) not in held}
    wide = {f"{number}.weight": layer for number, layer in enumerate(layers)}
    return {name: torch.empty(p.shape, dtype=dtype, device="meta") for name, p in (saved | wide).items()}


def _file_size(tensors: Mapping[str, Tensor]) -> int:
    return len(safetensors_header(tensors)) + sum(
        tensor.numel() * tensor.element_size() for tensor in tensors.values()
    )
