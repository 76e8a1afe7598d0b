"""How fast a server decodes: bytes through its memory, products, and what a step costs beside them.

A step gives every answer on the server one token. It reads the weights once (of experts those that some
answer is sent to) and every answer's keys and values, and multiplies each weight in use once for each answer:
few answers wait for memory, many for products. Beside that each layer takes a while whatever is computed, and
a server of several GPUs adds up over them twice a layer. Reading prompts is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.float64]
"""Tokens of each answer."""
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, by its data sheet.

    Example: ``Device(name="H100", bandwidth=3.35e12, rate=989e12, memory=80e9, domain=8)``
    """

    name: str
    bandwidth: float
    """Bytes a second of its memory."""
    rate: float
    """Operations a second in dense products of bfloat16."""
    memory: float
    """Bytes."""
    domain: int
    """How many of them one NVLink switch joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's shape, by its config.json.

    Example: ``Model(name="Llama-3.1-8B", parameters=8.0e9, layers=32, heads=8, cache=131072)``
    """

    name: str
    parameters: float
    layers: int
    heads: int
    """Of keys and values: over no more GPUs is the cache divided. 1 where it is a latent one."""
    cache: float
    """Bytes of keys and values that a token leaves."""
    active: float = 0.0
    """Parameters that compute one token; all where it is 0."""
    routed: float = 0.0
    """The share of the parameters that lies in experts."""
    experts: int = 1
    chosen: int = 1
    """Experts of a layer, and how many of them compute a token."""
    layer_seconds: float = 9e-5
    """Of a layer in a step, beside what it reads and multiplies: launches, routing, normalisation.

    From 9.7 ms for a token of Qwen3-30B-A3B on an A100 (tenstorrent/tt-inference-server#340), less 6.6 GB at
    0.6 of 2.04 TB/s; taken for every model of which nothing else is said."""

    @property
    def bytes(self) -> float:
        """Of its weights, in bfloat16."""
        return 2 * self.parameters

    def bytes_read(self, answers: int) -> float:
        """Of weights in a step of so many answers, where each chooses its experts by chance."""
        touched = 1 - (1 - self.chosen / self.experts) ** answers if self.experts > 1 else 1.0
        return self.bytes * (1 - self.routed + self.routed * touched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a server reaches of its GPUs.

    Example: ``Engine(memory_share=0.6)``
    """

    memory_share: float
    """Of the bandwidth while decoding."""
    product_share: float = 0.5
    """Of the rate of products while decoding."""
    layer_factor: float = 1.0
    """Times what a layer takes beside its bytes and products."""
    sum_seconds: float = 2e-5
    """Of one sum over GPUs that a switch joins, and again for each doubling of switches."""
    room: float = 0.85
    """The share of a GPU's memory that weights and cache may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One copy of a model on one or several GPUs.

    Example: ``Server(model=LLAMA_8B, device=H100, engine=Engine(memory_share=0.6), gpus=1)``
    """

    model: Model
    device: Device
    engine: Engine
    gpus: int
    """Over how many its weights are divided (tensor parallel)."""
    most_answers: int = 1024
    """Answers at once, whatever room there is."""

    def step_seconds(self, answers: int, context: float) -> float:
        """Of one step, in which so many answers have this context (all together, in tokens)."""
        model, device, engine = self.model, self.device, self.engine
        read = model.bytes_read(answers) / self.gpus + model.cache * context / min(self.gpus, model.heads)
        products = 2 * (model.active or model.parameters) * answers / self.gpus
        computed = max(
            read / (device.bandwidth * engine.memory_share), products / (device.rate * engine.product_share)
        )
        hops = 1 + math.log2(max(1.0, self.gpus / device.domain))
        sums = 2 * model.layers * engine.sum_seconds * hops if self.gpus > 1 else 0.0
        return computed + model.layers * model.layer_seconds * engine.layer_factor + sums

    def slots(self, context: float) -> int:
        """How many answers of this mean context its memory has room for."""
        room = self.gpus * self.device.memory * self.engine.room - self.model.bytes
        copies = self.gpus / min(self.gpus, self.model.heads)
        return max(1, min(self.most_answers, int(room / (self.model.cache * context * copies))))

    def draw_seconds(self, lengths_N: Lengths, prompt: float) -> float:
        """Until all these answers have ended, if they begin at once and none joins them."""
        ends_N = np.sort(lengths_N)
        seconds, steps = 0.0, 0.0
        for ended, end in enumerate(ends_N):
            answers, count = len(ends_N) - ended, float(end) - steps
            seconds += count * self.step_seconds(answers, answers * (prompt + steps + count / 2))
            steps = float(end)
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLengths:
    """Lengths of answers: lognormal, and cut at a cap.

    Example: ``AnswerLengths(mean=795, cap=3976).draw(np.random.default_rng(0), 4)``
    """

    mean: float
    """Tokens of an answer, those that are cut among them."""
    cap: float
    sigma: float = 1.0
    """The standard deviation of the logarithm; 0 makes all equal."""

    def draw(self, generator: np.random.Generator, count: int) -> Lengths:
        """So many lengths, in whole tokens."""
        if self.sigma == 0:
            return np.full(count, round(self.mean), dtype=np.float64)
        drawn_N: Lengths = np.exp(self._location() + self.sigma * generator.standard_normal(count))
        return np.clip(np.round(drawn_N), 1, self.cap)

    def _location(self) -> float:
        """The mean of the logarithm before the cut, by bisection: the mean behind it grows with it."""
        low, high = 0.0, float(np.log(self.cap)) + 10 * self.sigma
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._mean_at(middle) < self.mean else (low, middle)
        return low

    def _mean_at(self, location: float) -> float:
        """E[min(X, cap)] of a lognormal X."""
        edge = (float(np.log(self.cap)) - location) / self.sigma
        below = float(np.exp(location + self.sigma**2 / 2)) * NORMAL.cdf(edge - self.sigma)
        return below + self.cap * (1 - NORMAL.cdf(edge))


H20 = Device(name="H20", bandwidth=4.0e12, rate=148e12, memory=96e9, domain=8)
H100 = Device(name="H100", bandwidth=3.35e12, rate=989e12, memory=80e9, domain=8)
GB200 = Device(name="GB200", bandwidth=8.0e12, rate=2500e12, memory=186e9, domain=72)

QWEN_7B = Model(name="Qwen2.5-Math-7B", parameters=7.6e9, layers=28, heads=4, cache=57344)
LLAMA_8B = Model(name="Llama-3.1-8B", parameters=8.0e9, layers=32, heads=8, cache=131072)
QWEN_32B = Model(name="Qwen3-32B", parameters=32.8e9, layers=64, heads=8, cache=262144)
LLAMA_70B = Model(name="Llama-3.1-70B", parameters=70.6e9, layers=80, heads=8, cache=327680)
QWEN_30B_A3B = Model(
    name="Qwen3-30B-A3B",
    parameters=30.5e9,
    layers=48,
    heads=4,
    cache=98304,
    active=3.3e9,
    routed=0.95,
    experts=128,
    chosen=8,
)
QWEN_235B_A22B = Model(
    name="Qwen3-235B-A22B",
    parameters=235e9,
    layers=94,
    heads=4,
    cache=192512,
    active=22e9,
    routed=0.966,
    experts=128,
    chosen=8,
)
# A layer's time: from 31.2 ms for a token on 16 H100 (tenstorrent/tt-inference-server#356), less 37 GB of FP8
# over 16 GPUs at 0.6 of 3.35 TB/s and 122 sums of 40 µs.
DEEPSEEK_V3 = Model(
    name="DeepSeek-V3",
    parameters=671e9,
    layers=61,
    heads=1,
    cache=70272,
    active=37e9,
    routed=0.975,
    experts=256,
    chosen=8,
    layer_seconds=4.1e-4,
)
