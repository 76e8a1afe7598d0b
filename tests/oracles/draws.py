"""What the comparisons are made on: lists of plain numbers, from Python's own generator."""

from random import Random
from types import SimpleNamespace

SEED = 20190307
"""Every comparison draws from ``SEED`` and its own name."""


def drawn(name: str, make) -> SimpleNamespace:
    return make(Random(f"{SEED}/{name}"))


def answers(rng: Random) -> SimpleNamespace:
    """Preferred and other answers: log-probs of policy and reference, lengths, labels of single answers."""
    count = 6
    near = [[rng.uniform(-9, -1) for _ in range(count)] for _ in range(2)]
    return SimpleNamespace(
        w=near[0],
        rw=[x + rng.gauss(0, 1.2) for x in near[0]],
        l=near[1],
        rl=[x + rng.gauss(0, 1.2) for x in near[1]],
        nw=[float(rng.randint(2, 30)) for _ in range(count)],
        nl=[float(rng.randint(2, 30)) for _ in range(count)],
        label=[float(index % 2) for index in range(count)],
        share=[rng.random() for _ in range(count)],
        score=[rng.gauss(0, 1) for _ in range(count)],
        other=[rng.gauss(0, 1) for _ in range(count)],
        margin=[rng.uniform(0, 1) for _ in range(count)],
    )


def tokens(rng: Random) -> SimpleNamespace:
    """Answers token by token, with holes in the mask, whose numbers must never count."""
    rows, width = 4, 7
    mask = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 0], [0, 1, 1, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0]]

    def table(spread: float, middle: float = 0.0) -> list[list[float]]:
        return [[rng.gauss(middle, spread) for _ in range(width)] for _ in range(rows)]

    new = [[-abs(x) for x in row] for row in table(2.0)]
    return SimpleNamespace(
        new=new,
        old=[[x + rng.gauss(0, 0.4) for x in row] for row in new],
        ref=[[x + rng.gauss(0, 0.8) for x in row] for row in new],
        advantage=table(1.0),
        kl=[[abs(x) for x in row] for row in table(0.05)],
        value=table(1.0),
        old_value=table(1.0),
        target=table(1.0),
        reward=table(0.5),
        score=[rng.gauss(0, 1) for _ in range(rows)],
        first_value=[rng.gauss(0, 1) for _ in range(rows)],
        after=[rng.gauss(0, 1) for _ in range(rows)],
        verdict=[rng.choice((-1.0, 1.0)) * rng.uniform(0.2, 2) for _ in range(rows)],
        power=[[x + rng.uniform(0.1, 0.6) for x in row] for row in new],
        mask=mask,
        step=[[1 if m and rng.random() < 0.5 else 0 for m in row] for row in mask],
        right=[[float(rng.random() < 0.5) for _ in range(width)] for _ in range(rows)],
    )


def groups(rng: Random) -> SimpleNamespace:
    """Rewards of the answers to several prompts: groups of 4, 3, 1, 2 and 4, one of them all equal."""
    sizes = (4, 3, 1, 2, 4)
    group = [index for index, size in enumerate(sizes) for _ in range(size)]
    reward = [0.3 if index == 1 else rng.gauss(0, 1) for index in group]
    passed = [float(x > 0) for x in reward]
    return SimpleNamespace(group=group, reward=reward, passed=passed, greedy=[rng.gauss(0, 1) for _ in sizes])


def pairs_of_completions(rng: Random) -> SimpleNamespace:
    """Completions 2k and 2k + 1 answer one prompt; the last pair is tied."""
    rewards = [rng.gauss(0, 1) for _ in range(6)] + [0.5, 0.5]
    return SimpleNamespace(rho=[rng.gauss(0, 0.5) for _ in rewards], reward=rewards)


def distributions(rng: Random) -> SimpleNamespace:
    """Logits of two models over a small vocabulary."""
    return SimpleNamespace(
        logits=[[rng.gauss(0, 1.5) for _ in range(9)] for _ in range(4)],
        others=[[rng.gauss(0, 1.5) for _ in range(9)] for _ in range(4)],
    )


def rankings(rng: Random) -> SimpleNamespace:
    """Prompts with up to five ranked answers: without ties, and with some; the last rows are shorter."""
    size = (5, 5, 4, 2)
    orders = [rng.sample(range(1, k + 1), k) for k in size]
    tied = [[1, 2, 2, 4, 5], [1, 1, 3, 3, 3], [2, 1, 3, 3], [1, 1]]
    return SimpleNamespace(
        size=size, reward=[[rng.gauss(0, 1) for _ in range(5)] for _ in size], order=orders, tied=tied
    )


def ensemble(rng: Random) -> SimpleNamespace:
    """Scores by several rewards of the same answers."""
    return SimpleNamespace(
        score=[[rng.gauss(0, 1) for _ in range(5)] for _ in range(3)],
        other=[[rng.gauss(0, 1) for _ in range(5)] for _ in range(3)],
        offset=[rng.gauss(0, 1) for _ in range(3)],
        scale=[rng.uniform(0.5, 2) for _ in range(3)],
        weight=[0.7, -0.2, 0.5],
    )


def verdicts(rng: Random) -> SimpleNamespace:
    """Gains by prompt, margins of a reward with what people said, wins among four policies."""
    wins = [[0.0 if i == j else float(rng.randint(2, 12)) for j in range(4)] for i in range(4)]
    return SimpleNamespace(
        gain=[rng.gauss(0.2, 1) for _ in range(18)],
        prompt=[index // 2 for index in range(18)],
        gap=[rng.gauss(0.3, 1.5) for _ in range(40)],
        first=[rng.choice((0.0, 1.0, 0.7)) for _ in range(40)],
        wins=wins,
        proxy=[round(rng.gauss(0, 1), 1) for _ in range(9)],
        truth=[rng.random() for _ in range(9)],
        chance=[0.1, 0.25, 0.05, 0.3, 0.2, 0.1],
        level=[1.0, 0.0, 1.0, 2.0, 3.0, 0.0],
        counts=[(rng.randint(0, 12), 12) for _ in range(8)],
    )


def sentences(rng: Random) -> SimpleNamespace:
    """Answers of eight words each that all share the four in the middle, so that BLEU needs no smoothing."""
    words = ["the", "owl", "eats", "mice", "and", "voles", "by", "night"]
    ends = [[rng.choice(words) for _ in range(4)] for _ in range(5)]
    return SimpleNamespace(texts=[" ".join((*end[:2], *words[2:6], *end[2:])) for end in ends])


def nothing(rng: Random) -> SimpleNamespace:
    del rng
    return SimpleNamespace()
