"""Rows that others have published: one is the input, and the others are predicted from it.

verl (docs/advance/fully_async.md; settings from its scripts dapo_7b_math_fsdp2_*): Qwen2.5-Math-7B on H20,
512 prompts with 16 answers of at most 28,672 tokens. The stage times of one synchronous row are the input.
NeMo-RL 0.6 (docs/about/performance-summary.md; splits and packing from its recipes of that version): the page
has no stage times, so a row that draws and learns in turn is the input, drawing is simulated, and what is
left of it is learning.

Published: seconds, GPUs, how models lie on them, answers, mean lengths, caps, splits. Fitted on rows that are
input: the servers' share of the bandwidth (one row of NeMo-RL 0.3 with stage times), verl's mean length and
seconds a token, the seconds of learning of each row in turn. Assumed: `Assumptions`. Nothing is fitted on a
row that is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from benchmarks.simulator.rounds import Outcome, Schedule, simulate
from benchmarks.simulator.servers import (
    DEEPSEEK_V3,
    GB200,
    H20,
    H100,
    LLAMA_8B,
    QWEN_7B,
    QWEN_30B_A3B,
    QWEN_235B_A22B,
    AnswerLengths,
    Device,
    Engine,
    Lengths,
    Model,
    Server,
)
from benchmarks.simulator.trainers import Trainers

PROMPT = 120.0
"""Assumed: tokens of a prompt."""
WARM_UP = 2
"""Rounds before the first that is measured."""
LLAMA_DRAW_SECONDS, LLAMA_MEAN = 58.0, 795.0
"""Published (NeMo-RL 0.3, NVIDIA-NeMo/RL#959): Llama-3.1-8B on eight H100, 64 prompts with 32 answers."""
SYNC_SECONDS = {
    QWEN_7B.name: 5.75,
    QWEN_30B_A3B.name: 4.38,
    QWEN_235B_A22B.name: 23.7,
    DEEPSEEK_V3.name: 14.21,
}
"""Published: verl's delta_weight_sync.md (nccl) and fully_async.md (its engine), NeMo-RL's refit guide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One held-out row.

    Example: ``Prediction(name="128, streamed", source="64, in turn", seconds=200.0, published=231.3, ...)``
    """

    name: str
    source: str
    """The row that it is predicted from."""
    seconds: float
    published: float
    before: float
    before_published: float
    """Of the row that it is compared with: in turn on as many GPUs; a row in turn, with its source."""

    @property
    def error(self) -> float:
        return self.seconds / self.published - 1

    @property
    def has_sign(self) -> bool:
        """Whether it is as much faster, or slower, in the simulation as in print."""
        return (self.seconds < self.before) == (self.published < self.before_published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What no source says, the same for all rows.

    Example: ``Assumptions(sigma=1.3)``
    """

    sigma: float = 1.0
    """The standard deviation of the logarithm of lengths."""
    product_share: float = 0.5
    """Of the rate of products that a server reaches."""
    sum_seconds: float = 2e-5
    """Of one sum over a server's GPUs, and again for each doubling of NVLink switches."""
    layer_factor: float = 1.0
    """Times what a layer takes beside its bytes and products."""
    sync_factor: float = 1.0
    """Times the published seconds of weights on their way, which are not of these runs."""
    rounds: int = 8
    """How many are simulated."""


def bisect(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a monotonic function has this value; an end of the range where it has not."""
    rises = function(high) > function(low)
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) < target) == rises else (low, middle)
    return (low + high) / 2


def drawn(lengths: AnswerLengths, count: int, rounds: int) -> list[Lengths]:
    """Rounds of so many answers, the same ones whoever draws them."""
    return [lengths.draw(np.random.default_rng(number), count) for number in range(rounds)]


def draw_seconds(server: Server, servers: int, rounds: list[Lengths], prompt: float = PROMPT) -> float:
    """Of a round that is drawn at once and waited for, on average."""
    return float(
        np.mean(
            [
                max(server.draw_seconds(lengths_N[place::servers], prompt) for place in range(servers))
                for lengths_N in rounds
            ]
        )
    )


@lru_cache
def fitted_engine(assumed: Assumptions) -> Engine:
    """The share of the bandwidth at which eight servers draw what Llama's row says in its time."""
    rounds = drawn(AnswerLengths(mean=LLAMA_MEAN, cap=4096 - PROMPT, sigma=assumed.sigma), 2048, 2)

    def engine(share: float) -> Engine:
        return Engine(
            memory_share=share,
            product_share=assumed.product_share,
            sum_seconds=assumed.sum_seconds,
            layer_factor=assumed.layer_factor,
        )

    def seconds(share: float) -> float:
        server = Server(model=LLAMA_8B, device=H100, engine=engine(share), gpus=1)
        return draw_seconds(server, 8, rounds)

    return engine(bisect(seconds, LLAMA_DRAW_SECONDS, 0.2, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlRow:
    """A synchronous row of verl with its stage times.

    Example: ``VerlRow(gpus=64, step=365.28, draw=150.72, score=70.26, update=133.41)``
    """

    gpus: int
    step: float
    draw: float
    score: float
    """Log-probs of the policy that drew: a pass that the asynchronous trainer does without."""
    update: float


VERL_SYNC = {
    32: VerlRow(gpus=32, step=790.10, draw=357.41, score=107.71, update=269.80),
    64: VerlRow(gpus=64, step=365.28, draw=150.72, score=70.26, update=133.41),
    128: VerlRow(gpus=128, step=356.30, draw=177.85, score=53.92, update=113.81),
}
VERL_ASYNC = {32: 294.77, 64: 189.26, 128: 150.63}
VERL_STREAMED = {128: 231.34}


class Verl:
    """verl's runs, from one of its rows."""

    groups, group_size, moves = 512, 16, 16
    gpus_a_server = gpus_a_sequence = 4

    def __init__(self, row: VerlRow, assumed: Assumptions) -> None:
        self.row = row
        engine, sigma = fitted_engine(assumed), assumed.sigma
        self.server = Server(model=QWEN_7B, device=H20, engine=engine, gpus=self.gpus_a_server)
        self.sync_seconds = SYNC_SECONDS[QWEN_7B.name] * assumed.sync_factor
        count = self.groups * self.group_size

        def seconds(mean: float) -> float:
            rounds = drawn(AnswerLengths(mean=mean, cap=28672, sigma=sigma), count, assumed.rounds)
            return draw_seconds(self.server, row.gpus // self.gpus_a_server, rounds[WARM_UP:])

        self.mean = bisect(seconds, row.draw, 200, 12000)
        self.rounds = drawn(AnswerLengths(mean=self.mean, cap=28672, sigma=sigma), count, assumed.rounds)
        tokens = np.mean(
            [self._trainers(row.gpus).gpu_tokens(lengths_N, PROMPT) for lengths_N in self.rounds]
        )
        self.token_seconds = row.update / float(tokens)

    def in_turn(self, gpus: int) -> Outcome:
        """The same GPUs draw, score and learn; what else a step takes stays what it was."""
        row = self.row
        schedule = Schedule(
            servers=gpus // self.gpus_a_server,
            groups=self.groups,
            group_size=self.group_size,
            slots=1024,
            rest_seconds=row.step - row.draw - row.score - row.update + row.score * row.gpus / gpus,
            prompt=PROMPT,
        )
        return self._run(schedule, gpus)

    def overlapped(self, trainers: int, servers: int, ahead: float) -> Outcome:
        """Some learn, in four pieces of whatever has ended, and the others draw; nobody scores."""
        schedule = Schedule(
            servers=servers // self.gpus_a_server,
            groups=self.groups,
            group_size=self.group_size,
            # Sixteen prompts for each server, as its code has it.
            slots=16 * self.group_size,
            ahead=ahead,
            pieces=4,
            in_order=False,
            in_flight=True,
            sync_seconds=self.sync_seconds,
            prompt=PROMPT,
        )
        return self._run(schedule, trainers)

    def _run(self, schedule: Schedule, gpus: int) -> Outcome:
        trainers = self._trainers(gpus)

        def learn(lengths_N: Lengths) -> float:
            return self.token_seconds * trainers.gpu_tokens(lengths_N, PROMPT, schedule.pieces)

        return simulate(schedule, self.server.step_seconds, learn, self.rounds, warm_up=WARM_UP)

    def _trainers(self, gpus: int) -> Trainers:
        return Trainers(gpus=gpus, shared=self.gpus_a_sequence, moves=self.moves)

    def predictions(self) -> Iterator[Prediction]:
        """All other rows that verl published for this model."""
        source = f"verl {self.row.gpus}, in turn"
        turn = {gpus: self.in_turn(gpus).step_seconds for gpus in VERL_SYNC}

        def prediction(name: str, seconds: float, published: float, before: int) -> Prediction:
            return Prediction(
                name=f"verl {name}",
                source=source,
                seconds=seconds,
                published=published,
                before=turn[before],
                before_published=VERL_SYNC[before].step,
            )

        for gpus, row in VERL_SYNC.items():
            if gpus != self.row.gpus:
                yield prediction(f"{gpus}, in turn", turn[gpus], row.step, self.row.gpus)
        for ahead, rows, name in ((0.0, VERL_STREAMED, "streamed"), (0.5, VERL_ASYNC, "half a round ahead")):
            for gpus, published in rows.items():
                seconds = self.overlapped(gpus // 2, gpus // 2, ahead).step_seconds
                yield prediction(f"{gpus // 2} + {gpus // 2}, {name}", seconds, published, gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoPair:
    """Two rows of NeMo-RL: in turn on all GPUs, and one round ahead with half of them drawing.

    Example: ``replace(QWEN_SMALL, gpus=64)``
    """

    model: Model
    device: Device
    gpus: int
    in_turn: float
    ahead: float
    """Seconds of a step."""
    groups: int
    group_size: int
    moves: int
    cap: int
    """Tokens of prompt and answer."""
    mean: float
    """Likewise, on average."""
    server_gpus: tuple[int, int]
    shared: tuple[int, int]
    stages: tuple[int, int]
    """In turn, and ahead: GPUs of a server, GPUs that share a sequence, stages."""

    @property
    def name(self) -> str:
        return f"NeMo-RL {self.model.name}, {self.gpus} {self.device.name}"

    def servers(self, engine: Engine) -> list[Server]:
        """In turn, and ahead."""
        return [
            Server(model=self.model, device=self.device, engine=engine, gpus=gpus)
            for gpus in self.server_gpus
        ]

    def layouts(self) -> list[Trainers]:
        """Likewise; half of the GPUs learn while the others draw."""
        return [
            Trainers(gpus=gpus, shared=shared, stages=stages, moves=self.moves, pack=self.cap)
            for gpus, shared, stages in zip(
                (self.gpus, self.gpus // 2), self.shared, self.stages, strict=True
            )
        ]


DEEPSEEK = NemoPair(
    model=DEEPSEEK_V3,
    device=H100,
    gpus=512,
    in_turn=111,
    ahead=64.1,
    groups=32,
    group_size=16,
    moves=1,
    cap=1536,
    mean=697,
    server_gpus=(32, 32),
    shared=(1, 1),
    stages=(16, 16),
)
QWEN_LARGE = NemoPair(
    model=QWEN_235B_A22B,
    device=H100,
    gpus=256,
    in_turn=312,
    ahead=231,
    groups=16,
    group_size=32,
    moves=1,
    cap=8192,
    mean=5713,
    server_gpus=(16, 8),
    shared=(4, 4),
    stages=(8, 8),
)
QWEN_SMALL = NemoPair(
    model=QWEN_30B_A3B,
    device=H100,
    gpus=32,
    in_turn=192,
    ahead=152,
    groups=64,
    group_size=32,
    moves=4,
    cap=4096,
    mean=3203,
    server_gpus=(2, 2),
    shared=(1, 1),
    stages=(1, 2),
)
NEMO = (
    DEEPSEEK,
    QWEN_LARGE,
    QWEN_SMALL,
    replace(
        replace(QWEN_SMALL, device=GB200, gpus=16, in_turn=221, ahead=301, mean=3199),
        server_gpus=(1, 1),
        stages=(1, 1),
    ),
    replace(
        replace(DEEPSEEK, device=GB200, gpus=256, in_turn=98.7, ahead=61.7, mean=700),
        server_gpus=(32, 16),
        stages=(8, 8),
    ),
    replace(
        replace(QWEN_LARGE, device=GB200, gpus=128, in_turn=345, ahead=278, mean=5693),
        server_gpus=(8, 8),
        stages=(4, 4),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRun:
    """What was simulated of a pair.

    Example: ``nemo(NEMO[0], Assumptions()).prediction.error``
    """

    draw: float
    learn: float
    """Seconds of the row in turn: simulated, and left over."""
    prediction: Prediction


def nemo(pair: NemoPair, assumed: Assumptions) -> NemoRun:
    """One round ahead, from the row in turn."""
    lengths = AnswerLengths(mean=pair.mean - PROMPT, cap=pair.cap - PROMPT, sigma=assumed.sigma)
    rounds = drawn(lengths, pair.groups * pair.group_size, assumed.rounds)
    sync = SYNC_SECONDS[pair.model.name] * assumed.sync_factor
    servers, layouts = pair.servers(fitted_engine(assumed)), pair.layouts()
    draw = draw_seconds(servers[0], pair.gpus // pair.server_gpus[0], rounds)
    learn = pair.in_turn - draw - sync
    if learn <= 0:
        raise ValueError(
            f"{pair.name}: drawing ({draw:.0f} s) and weights ({sync:.0f} s) leave no time to learn"
        )
    tokens = float(np.mean([layouts[0].gpu_tokens(lengths_N, PROMPT) for lengths_N in rounds]))
    count = pair.gpus // 2 // pair.server_gpus[1]
    schedule = Schedule(
        servers=count,
        groups=pair.groups,
        group_size=pair.group_size,
        # Its collector has no more than one round under way.
        slots=-(-pair.groups * pair.group_size // count),
        ahead=1,
        in_flight=True,
        sync_seconds=sync,
        prompt=PROMPT,
    )
    outcome = simulate(
        schedule,
        servers[1].step_seconds,
        lambda lengths_N: learn / tokens * layouts[1].gpu_tokens(lengths_N, PROMPT),
        rounds,
        warm_up=WARM_UP,
    )
    prediction = Prediction(
        name=f"{pair.name}, one round ahead",
        source="its row in turn",
        seconds=outcome.step_seconds,
        published=pair.ahead,
        before=pair.in_turn,
        before_published=pair.in_turn,
    )
    return NemoRun(draw=draw, learn=learn, prediction=prediction)


def predictions(assumed: Assumptions) -> list[Prediction]:
    """All held-out rows: NeMo-RL's from their rows in turn, verl's from that of 64 GPUs."""
    return [*(nemo(pair, assumed).prediction for pair in NEMO), *Verl(VERL_SYNC[64], assumed).predictions()]


VARIATIONS = {
    "as assumed": Assumptions(),
    "lengths: sigma 0.7": Assumptions(sigma=0.7),
    "lengths: sigma 1.3": Assumptions(sigma=1.3),
    "products at 0.3 of their rate": Assumptions(product_share=0.3),
    "layers take 0.7 of it": Assumptions(layer_factor=0.7),
    "layers take 1.3 times as long": Assumptions(layer_factor=1.3),
    "sums take twice as long": Assumptions(sum_seconds=4e-5),
    "weights take half as long": Assumptions(sync_factor=0.5),
    "weights take twice as long": Assumptions(sync_factor=2.0),
}
"""What the predictions come to where another thing is assumed."""
