"""Losses of rewards, ensembles, statistics and figures of text as their sources write them."""

from itertools import combinations, permutations, product
from math import cos, exp, log, pi, prod, sqrt
from types import SimpleNamespace

from tests.oracles.preference import sigmoid


def bradley_terry(i: SimpleNamespace) -> list[float]:
    """Bradley and Terry 1952; Ouyang et al. 2022, arXiv:2203.02155, equation 1, of two answers."""
    return [-log(exp(a) / (exp(a) + exp(b))) for a, b in zip(i.score, i.other, strict=True)]


def margin_loss(i: SimpleNamespace) -> list[float]:
    """Touvron et al. 2023 (Llama 2), arXiv:2307.09288, equation 2."""
    return [-log(sigmoid(a - b - m)) for a, b, m in zip(i.score, i.other, i.margin, strict=True)]


def smoothed_loss(i: SimpleNamespace, eps: float) -> list[float]:
    """Mitchell 2023: a share ε of the labels is swapped."""
    gaps = [a - b for a, b in zip(i.score, i.other, strict=True)]
    return [-(1 - eps) * log(sigmoid(g)) - eps * log(sigmoid(-g)) for g in gaps]


def blind_loss(i: SimpleNamespace, share: float) -> list[float]:
    """Christiano et al. 2017, arXiv:1706.03741, section 2.2.3: a share of the answers is at random."""
    gaps = [a - b for a, b in zip(i.score, i.other, strict=True)]
    return [-log((1 - share) * sigmoid(g) + share / 2) for g in gaps]


def soft_loss(i: SimpleNamespace) -> list[float]:
    """Cross-entropy with a label μ: Christiano et al. 2017, arXiv:1706.03741, equation 2."""
    rows = zip(i.score, i.other, i.share, strict=True)
    return [-mu * log(sigmoid(a - b)) - (1 - mu) * log(sigmoid(b - a)) for a, b, mu in rows]


def centring(i: SimpleNamespace, weight: float) -> list[float]:
    """Eisenstein et al. 2023, arXiv:2312.09244."""
    return [weight * (a + b) ** 2 for a, b in zip(i.score, i.other, strict=True)]


def k_wise(i: SimpleNamespace, ranks: list[list[int]]) -> list[float]:
    """Ouyang et al. 2022, arXiv:2203.02155, equation 1: the mean over pairs; a tie is a label of ½."""
    total = []
    for reward, rank in zip(i.reward, ranks, strict=True):
        losses = []
        for a, b in combinations(range(len(rank)), 2):
            gap = reward[a] - reward[b]
            mu = 0.5 if rank[a] == rank[b] else float(rank[a] < rank[b])
            losses.append(-mu * log(sigmoid(gap)) - (1 - mu) * log(sigmoid(-gap)))
        total.append(sum(losses) / len(losses))
    return total


def plackett_luce(i: SimpleNamespace) -> list[float]:
    """Plackett 1975; Zhu et al. 2023, arXiv:2301.11270: the product of drawing the best of what is left."""
    total = []
    for reward, rank in zip(i.reward, i.order, strict=True):
        ordered = [exp(r) for _, r in sorted(zip(rank, reward, strict=False))]
        chances = [ordered[k] / sum(ordered[k:]) for k in range(len(ordered))]
        total.append(-log(prod(chances)))
    return total


def plackett_luce_efron(i: SimpleNamespace) -> list[float]:
    """Efron 1977, "The efficiency of Cox's likelihood function for censored data": his handling of ties."""
    total = []
    for reward, rank in zip(i.reward, i.tied, strict=True):
        loss = 0.0
        for place in sorted(set(rank)):
            now = [r for r, k in zip(reward, rank, strict=False) if k == place]
            left = sum(exp(r) for r, k in zip(reward, rank, strict=False) if k >= place)
            for gone in range(len(now)):
                loss += log(left - gone / len(now) * sum(map(exp, now)))
            loss -= sum(now)
        total.append(loss)
    return total


def davidson(i: SimpleNamespace, nu: float) -> list[list[float]]:
    """Davidson 1970: win, tie and loss in proportion to π₁, ν √(π₁ π₂), π₂."""
    total = []
    for a, b in zip(i.score, i.other, strict=True):
        parts = [exp(a), nu * sqrt(exp(a) * exp(b)), exp(b)]
        total.append([log(part / sum(parts)) for part in parts])
    return total


def rao_kupper(i: SimpleNamespace, theta: float) -> list[list[float]]:
    """Rao and Kupper 1967: π₁/(π₁ + θ π₂) and the same turned round; the rest is a tie."""
    total = []
    for a, b in zip(i.score, i.other, strict=True):
        p, q = exp(a), exp(b)
        win, loss = p / (p + theta * q), q / (theta * p + q)
        total.append([log(win), log(1 - win - loss), log(loss)])
    return total


def three_way(i: SimpleNamespace, nu: float) -> list[float]:
    """Cross-entropy with labels: the pair's share for a win, half of the rest for a tie and for a loss."""
    total = []
    for row, share in zip(davidson(i, nu), i.share, strict=True):
        rest = (1 - share) / 2
        total.append(-(share * row[0] + rest * row[1] + rest * row[2]))
    return total


def squares(i: SimpleNamespace) -> list[float]:
    """Wang et al. 2024 (HelpSteer2), arXiv:2406.08673: the squared error of a rating."""
    return [(a - b) ** 2 for a, b in zip(i.score, i.other, strict=True)]


def verifier(i: SimpleNamespace, weight: float) -> list[float]:
    """Cobbe et al. 2021, arXiv:2110.14168: cross-entropy of right and wrong, right ones weighted."""
    rows = zip(i.score, i.share, strict=True)
    return [-weight * y * log(sigmoid(r)) - (1 - y) * log(1 - sigmoid(r)) for r, y in rows]


def process(i: SimpleNamespace) -> list[list[float]]:
    """Lightman et al. 2023, arXiv:2305.20050: the same where a step ends."""
    return [
        [
            (-log(sigmoid(r)) if y else -log(1 - sigmoid(r))) if s else 0.0
            for r, y, s in zip(*row, strict=True)
        ]
        for row in zip(i.reward, i.right, i.step, strict=True)
    ]


def choice(i: SimpleNamespace) -> list[float]:
    """Zhao, Dang and Grover 2023 (GPO), arXiv:2310.11523: cross-entropy with a group's shares."""
    rows = zip(i.score, i.other, i.share, strict=True)
    return [
        -(s * log(exp(a) / (exp(a) + exp(b))) + (1 - s) * log(exp(b) / (exp(a) + exp(b)))) for a, b, s in rows
    ]


def gaussian(i: SimpleNamespace) -> list[float]:
    """−log of the normal density of y with mean μ and standard deviation e^s."""
    rows = zip(i.score, i.margin, i.other, strict=True)
    return [-log(exp(-((y - mu) ** 2) / (2 * exp(s) ** 2)) / (exp(s) * sqrt(2 * pi))) for mu, s, y in rows]


def columns(table: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*table, strict=True)]


def worst_case(i: SimpleNamespace) -> list[float]:
    """Coste et al. 2023, arXiv:2310.02743: worst-case optimisation."""
    return [min(column) for column in columns(i.score)]


def cautious(i: SimpleNamespace, k: float) -> list[float]:
    """Mean less k standard deviations over the members."""
    return [sum(c) / len(c) - k * spread(c) for c in columns(i.score)]


def spread(xs: list[float]) -> float:
    mean = sum(xs) / len(xs)
    return sqrt(sum((x - mean) ** 2 for x in xs) / len(xs))


def blended(i: SimpleNamespace) -> list[float]:
    return [sum(w * x for w, x in zip(i.weight, c, strict=True)) for c in columns(i.score)]


def gate(i: SimpleNamespace, below: float) -> list[float]:
    """Touvron et al. 2023 (Llama 2), arXiv:2307.09288, section 3.2.3: safety's score where it is low."""
    return [safe if safe < below else helpful for safe, helpful in zip(i.score[0], i.score[1], strict=True)]


def standardised(i: SimpleNamespace) -> list[list[float]]:
    rows = zip(i.score, i.offset, i.scale, strict=True)
    return [[(x - offset) / scale for x in row] for row, offset, scale in rows]


def vote_spread(i: SimpleNamespace) -> list[float]:
    """Christiano et al. 2017, arXiv:1706.03741, section 2.2.4: the ensemble's spread of the preference."""
    gaps = [[sigmoid(a - b) for a, b in zip(*row, strict=True)] for row in zip(i.score, i.other, strict=True)]
    return [spread(column) for column in columns(gaps)]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chen et al. 2021 (Codex), arXiv:2107.03374: the product over m from n − c + 1 to n of 1 − k/m."""
    return 1.0 if n - c < k else 1 - prod(1 - k / m for m in range(n - c + 1, n + 1))


def wilson(p: float, n: int) -> list[float]:
    """Wilson 1927: the p₀ that are 1.96 of their own standard errors from p, by bisection."""
    z = 1.959963984540054

    def edge(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            if (p - middle) ** 2 > z * z * middle * (1 - middle) / n:
                outside = middle
            else:
                inside = middle
        return inside

    return [edge(p, 0.0), edge(p, 1.0)]


def ratings(wins: list[list[float]]) -> list[float]:
    """Bradley and Terry 1952 by Zermelo's iteration (1929), on Elo's scale with mean 1000."""
    size = len(wins)
    strength = [1.0] * size
    for _ in range(20_000):
        new = []
        for a in range(size):
            others = [b for b in range(size) if b != a]
            games = sum((wins[a][b] + wins[b][a]) / (strength[a] + strength[b]) for b in others)
            new.append(sum(wins[a][b] for b in others) / games)
        middle = prod(new) ** (1 / size)
        strength = [s / middle for s in new]
    return [1000 + 400 * log(s) / log(10) for s in strength]


def sign_flips(i: SimpleNamespace) -> float:
    """Fisher 1935: the share of all 2^P ways to sign the prompts' sums that go at least as far."""
    sums: dict[int, float] = {}
    for gain, prompt in zip(i.gain, i.prompt, strict=True):
        sums[prompt] = sums.get(prompt, 0.0) + gain
    values = list(sums.values())
    seen = abs(sum(values))
    ways = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in product((1, -1), repeat=len(values))
    ]
    return sum(way >= seen - 1e-12 for way in ways) / len(ways)


def best_of_n_truth(i: SimpleNamespace, n: int) -> float:
    """Nakano et al. 2021, arXiv:2112.09332, by looking at every choice of n; equals share their mean."""
    total = []
    for chosen in combinations(range(len(i.proxy)), n):
        top = max(i.proxy[k] for k in chosen)
        # Which of the equals is taken hangs on chance over all answers of that proxy.
        equal = [i.truth[k] for k in range(len(i.proxy)) if i.proxy[k] == top]
        total.append(sum(equal) / len(equal))
    return sum(total) / len(total)


def best_of_n_kl(i: SimpleNamespace, n: int) -> float:
    """KL of best-of-n from the policy by writing out every draw of n answers; a fair coin among equals."""
    chosen = [0.0] * len(i.chance)
    for draw in product(range(len(i.chance)), repeat=n):
        top = max(i.level[k] for k in draw)
        best = [k for k in draw if i.level[k] == top]
        for k in best:
            chosen[k] += prod(i.chance[j] for j in draw) / len(best)
    return sum(m * log(m / p) for m, p in zip(chosen, i.chance, strict=True))


def calibration(i: SimpleNamespace, bins: int) -> list[float]:
    """Log-loss, Brier score (1950), ECE of equal width from ½ (Guo et al. 2017, arXiv:1706.04599)."""
    loss = brier = 0.0
    cells: dict[int, list[tuple[float, float]]] = {}
    for gap, mu in zip(i.gap, i.first, strict=True):
        q = sigmoid(gap)
        loss -= mu * log(q) + (1 - mu) * log(1 - q)
        brier += mu * (1 - q) ** 2 + (1 - mu) * q**2
        sure, right = max(q, 1 - q), mu if q > 0.5 else 1 - mu
        cells.setdefault(min(int((sure - 0.5) * 2 * bins), bins - 1), []).append((sure, right))
    count = len(i.gap)
    ece = sum(abs(sum(r for _, r in c) - sum(s for s, _ in c)) for c in cells.values()) / count
    return [loss / count, brier / count, ece]


def schedule(step: int, steps: int, kind: str, warmup: int, floor: float) -> float:
    """Warm-up; then constant, a line, half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983)."""
    if step <= warmup:
        return step / warmup
    gone = (step - 1 - warmup) / (steps - warmup)
    left = {"constant": 1.0, "linear": 1 - gone, "cosine": (1 + cos(pi * gone)) / 2}[kind]
    return floor + (1 - floor) * left


def distinct(texts: list[str], n: int) -> float:
    """Li et al. 2016, arXiv:1510.03055: different n-grams over all n-grams."""
    grams = [tuple(words[k : k + n]) for words in map(str.split, texts) for k in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams)


def bleu(said: str, reference: str) -> float:
    """Papineni et al. 2002: clipped precisions of up to 4 words, geometric mean, brevity; of 0 to 100."""
    words, others = said.split(), reference.split()
    logs = 0.0
    for n in range(1, 5):
        mine = [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]
        theirs = [tuple(others[k : k + n]) for k in range(len(others) - n + 1)]
        matched = sum(min(mine.count(gram), theirs.count(gram)) for gram in set(mine))
        if not matched:
            return float("nan")
        logs += log(matched / len(mine)) / 4
    return 100 * (1.0 if len(words) > len(others) else exp(1 - len(others) / len(words))) * exp(logs)


def self_bleu(texts: list[str]) -> float:
    """Zhu et al. 2018, arXiv:1802.01886, the mean over ordered pairs of answers to two prompts."""
    scores = [bleu(a, b) for a, b in permutations(texts, 2)]
    return sum(scores) / len(scores)


def best_of_n_bound(n: int) -> float:
    """Stiennon et al. 2020, arXiv:2009.01325, appendix G.3: E log(n F^(n−1)), where E log F = −1/n."""
    return log(n) + (n - 1) * (-1 / n)
