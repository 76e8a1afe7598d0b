"""Losses of policies, KL estimators, advantages as their papers write them, token after token."""

from math import exp, log, sqrt
from types import SimpleNamespace

Table = list[list[float]]


def by_token(i: SimpleNamespace, value) -> Table:
    """``value(r, A, row, place)`` at every token of the mask, 0 elsewhere; r = π/π_old."""
    return [
        [
            value(exp(i.new[n][t]) / exp(i.old[n][t]), i.advantage[n][t], n, t) if i.mask[n][t] else 0.0
            for t in range(len(i.mask[n]))
        ]
        for n in range(len(i.mask))
    ]


def clip(x: float, low: float, high: float) -> float:
    return max(low, min(high, x))


def reinforce(i: SimpleNamespace) -> Table:
    """Williams 1992; Ahmadian et al. 2024, arXiv:2402.14740: −A log π."""
    return by_token(i, lambda r, a, n, t: -a * i.new[n][t])


def reinforce_slope(i: SimpleNamespace) -> Table:
    """By log π: −A."""
    return by_token(i, lambda r, a, n, t: -a)


def surrogate(i: SimpleNamespace) -> Table:
    """Schulman et al. 2015 (TRPO), arXiv:1502.05477: −r A."""
    return by_token(i, lambda r, a, n, t: -r * a)


def ppo(i: SimpleNamespace, low: float, high: float) -> Table:
    """Schulman et al. 2017, arXiv:1707.06347, equation 7; two ε: Yu et al. 2025 (DAPO), arXiv:2503.14476."""
    return by_token(i, lambda r, a, n, t: -min(r * a, clip(r, 1 - low, 1 + high) * a))


def ppo_slope(i: SimpleNamespace, low: float, high: float) -> Table:
    """By log π: −r A where the unclipped side is the minimum, 0 where the clip acts."""

    def slope(r: float, a: float, n: int, t: int) -> float:
        acts = (a > 0 and r > 1 + high) or (a < 0 and r < 1 - low)
        return 0.0 if acts else -r * a

    return by_token(i, slope)


def dual_clip(i: SimpleNamespace, low: float, high: float, c: float) -> Table:
    """Ye et al. 2019, arXiv:1912.09729: for A < 0, max(min(r A, clip(r) A), c A)."""

    def loss(r: float, a: float, n: int, t: int) -> float:
        inner = min(r * a, clip(r, 1 - low, 1 + high) * a)
        return -(max(inner, c * a) if a < 0 else inner)

    return by_token(i, loss)


def rollback(i: SimpleNamespace, low: float, high: float, alpha: float) -> Table:
    """Wang et al. 2019 (PPO-RB), arXiv:1903.07940: −α r + (1 + α)(1 ± ε) outside of the range."""

    def loss(r: float, a: float, n: int, t: int) -> float:
        held = r
        if r > 1 + high:
            held = -alpha * r + (1 + alpha) * (1 + high)
        elif r < 1 - low:
            held = -alpha * r + (1 + alpha) * (1 - low)
        return -min(r * a, held * a)

    return by_token(i, loss)


def tr_ppo(i: SimpleNamespace, delta: float) -> Table:
    """Wang et al. 2019 (TR-PPO), arXiv:1903.07940: the ratio is held at 1 where the KL reaches δ."""
    return by_token(i, lambda r, a, n, t: -min(r * a, (r if i.kl[n][t] < delta else 1.0) * a))


def ppo_penalty(i: SimpleNamespace, beta: float) -> Table:
    """Schulman et al. 2017, arXiv:1707.06347, equation 8."""
    return by_token(i, lambda r, a, n, t: -(r * a - beta * i.kl[n][t]))


def cispo(i: SimpleNamespace, high: float) -> Table:
    """MiniMax 2025 (M1), arXiv:2506.13585: sg(clip(r)) A log π, the lower end open."""
    return by_token(i, lambda r, a, n, t: -min(r, 1 + high) * a * i.new[n][t])


def cispo_slope(i: SimpleNamespace, high: float) -> Table:
    """By log π: the weight has no gradient, so −clip(r) A."""
    return by_token(i, lambda r, a, n, t: -min(r, 1 + high) * a)


def p3o(i: SimpleNamespace, eps: float, *, joint: bool) -> list[float]:
    """Wu et al. 2023 (P3O), arXiv:2310.00212, versions 1 and 2, of completions 2k and 2k + 1."""
    total = []
    for n, (rho, reward) in enumerate(zip(i.rho, i.reward, strict=True)):
        partner = n + 1 if n % 2 == 0 else n - 1
        a = reward - i.reward[partner]
        if joint:
            gap, weight = rho - i.rho[partner], exp(rho) * exp(i.rho[partner])
            total.append(-0.5 * min(weight * gap * a, weight * clip(gap, -eps, eps) * a))
        else:
            r, weight = exp(rho), exp(i.rho[partner])
            total.append(-min(weight * r * a, weight * clip(r, 1 - eps, 1 + eps) * a))
    return total


def log_ratios(i: SimpleNamespace) -> Table:
    rows = zip(i.new, i.old, i.mask, strict=True)
    return [[a - b for a, b, m in zip(*row, strict=True) if m] for row in rows]


def gspo(i: SimpleNamespace) -> list[float]:
    """Zheng et al. 2025, arXiv:2507.18071: s = (π(y)/π_old(y))^(1/|y|)."""
    return [(exp(sum(row))) ** (1 / len(row)) for row in log_ratios(i)]


def gspo_token_slope(i: SimpleNamespace) -> Table:
    """Zheng et al. 2025, arXiv:2507.18071: every token has the gradient s of its own log π."""
    s = gspo(i)
    return [[s[n] if m else 0.0 for m in row] for n, row in enumerate(i.mask)]


def completion_ratio(i: SimpleNamespace) -> list[float]:
    """log π(y|x) − log π_old(y|x), as P3O has it."""
    return [sum(row) for row in log_ratios(i)]


def truncated_weight(i: SimpleNamespace, cap: float) -> Table:
    """Yao et al. 2025 (TIS): min(π/μ, C); 1 where nothing was drawn."""
    return [
        [min(exp(a) / exp(b), cap) if m else 1.0 for a, b, m in zip(*row, strict=True)]
        for row in zip(i.new, i.old, i.mask, strict=True)
    ]


def sequence_mask(i: SimpleNamespace, delta: float) -> list[float]:
    """DeepSeek-AI 2025 (V3.2), arXiv:2512.02556: 0 where A < 0 and the mean of log π_old/π is above δ."""
    means = [-sum(row) / len(row) for row in log_ratios(i)]
    return [0.0 if a < 0 and mean > delta else 1.0 for a, mean in zip(i.verdict, means, strict=True)]


def clip_share(i: SimpleNamespace, low: float, high: float) -> float:
    """The tokens at which PPO's clip acts, over all tokens."""
    acts = by_token(i, lambda r, a, n, t: float((a > 0 and r > 1 + high) or (a < 0 and r < 1 - low)))
    return sum(map(sum, acts)) / sum(map(sum, i.mask))


def kept(table: Table, mask: list[list[int]]) -> Table:
    return [[x for x, m in zip(*row, strict=True) if m] for row in zip(table, mask, strict=True)]


def dapo_mean(i: SimpleNamespace) -> float:
    """Yu et al. 2025, arXiv:2503.14476: one mean over all tokens of the batch."""
    flat = [x for row in kept(i.advantage, i.mask) for x in row]
    return sum(flat) / len(flat)


def grpo_mean(i: SimpleNamespace) -> float:
    """Shao et al. 2024, arXiv:2402.03300: 1/G Σ 1/|o| Σ."""
    rows = kept(i.advantage, i.mask)
    return sum(sum(row) / len(row) for row in rows) / len(rows)


def dr_grpo_mean(i: SimpleNamespace, longest: int) -> float:
    """Liu et al. 2025, arXiv:2503.20783: by a constant length."""
    rows = kept(i.advantage, i.mask)
    return sum(map(sum, rows)) / (len(rows) * longest)


def value_loss(i: SimpleNamespace) -> Table:
    """½ (V − R)²."""
    return [
        [0.5 * (a - b) ** 2 for a, b in zip(*row, strict=True)] for row in zip(i.value, i.target, strict=True)
    ]


def clipped_value_loss(i: SimpleNamespace, c: float) -> Table:
    """Ziegler et al. 2019, arXiv:1909.08593, as its code has it: the larger of plain and clipped."""
    total = []
    for values, olds, targets in zip(i.value, i.old_value, i.target, strict=True):
        row = []
        for v, old, target in zip(values, olds, targets, strict=True):
            row.append(0.5 * max((v - target) ** 2, (clip(v, old - c, old + c) - target) ** 2))
        total.append(row)
    return total


def explained_variance(i: SimpleNamespace) -> float:
    """1 − Var(R − V)/Var(R) over the tokens."""
    targets, values = ([x for row in kept(table, i.mask) for x in row] for table in (i.target, i.value))
    return 1 - variance([t - v for t, v in zip(targets, values, strict=True)]) / variance(targets)


def variance(xs: list[float], *, missing: int = 0) -> float:
    mean = sum(xs) / len(xs)
    return sum((x - mean) ** 2 for x in xs) / (len(xs) - missing)


def kl_estimator(i: SimpleNamespace, name: str) -> Table:
    """Schulman 2020, "Approximating KL divergence", with r = π_ref/π; k3 = (r − 1) − log r."""

    def estimate(r: float) -> float:
        return {"k1": -log(r), "k2": log(r) ** 2 / 2, "k3": (r - 1) - log(r)}[name]

    rows = zip(i.new, i.ref, strict=True)
    return [[estimate(exp(b) / exp(a)) for a, b in zip(*row, strict=True)] for row in rows]


def k3_slope(i: SimpleNamespace) -> Table:
    """Shao et al. 2024, arXiv:2402.03300: of k3 by log π, 1 − π_ref/π."""
    return [
        [1 - exp(b) / exp(a) for a, b in zip(*row, strict=True)] for row in zip(i.new, i.ref, strict=True)
    ]


def softmax(row: list[float]) -> list[float]:
    total = sum(map(exp, row))
    return [exp(x) / total for x in row]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * log(a / b) for a, b in zip(p, q, strict=True))


def kls(i: SimpleNamespace, *, turned: bool = False) -> list[float]:
    """KL(p ‖ q) of each row's softmax, or KL(q ‖ p)."""
    rows = [(softmax(a), softmax(b)) for a, b in zip(i.logits, i.others, strict=True)]
    return [kl(q, p) if turned else kl(p, q) for p, q in rows]


def jensen_shannon(i: SimpleNamespace) -> list[float]:
    """Lin 1991; Agarwal et al. 2023 (GKD), arXiv:2306.13649, at one half."""
    total = []
    for a, b in zip(i.logits, i.others, strict=True):
        p, q = softmax(a), softmax(b)
        middle = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
        total.append((kl(p, middle) + kl(q, middle)) / 2)
    return total


def adaptive_beta(beta: float, kl: float, target: float) -> float:
    """Schulman et al. 2017, arXiv:1707.06347, section 4."""
    return beta / 2 if kl < target / 1.5 else beta * 2 if kl > target * 1.5 else beta


def proportional_beta(beta: float, kl: float, target: float, samples: int, horizon: float) -> float:
    """Ziegler et al. 2019, arXiv:1909.08593, section 2.2: β(1 + K e), e clipped to ±0.2."""
    return beta * (1 + clip((kl - target) / target, -0.2, 0.2) * samples / horizon)


def members(i: SimpleNamespace, n: int) -> list[int]:
    return [k for k, group in enumerate(i.group) if group == i.group[n]]


def grpo(i: SimpleNamespace, eps: float) -> list[float]:
    """Shao et al. 2024, arXiv:2402.03300, outcome supervision; 0 where all are equal, std of K − 1."""
    total = []
    for n, reward in enumerate(i.reward):
        rewards = [i.reward[k] for k in members(i, n)]
        if len(set(rewards)) == 1:
            total.append(0.0)
            continue
        total.append((reward - sum(rewards) / len(rewards)) / (sqrt(variance(rewards, missing=1)) + eps))
    return total


def dr_grpo(i: SimpleNamespace) -> list[float]:
    """Liu et al. 2025, arXiv:2503.20783: r − mean."""
    rewards = [[i.reward[k] for k in members(i, n)] for n in range(len(i.reward))]
    return [r - sum(row) / len(row) for r, row in zip(i.reward, rewards, strict=True)]


def rloo(i: SimpleNamespace) -> list[float]:
    """Ahmadian et al. 2024, arXiv:2402.14740: r − the mean of the others; 0 of one alone."""
    total = []
    for n, reward in enumerate(i.reward):
        others = [i.reward[k] for k in members(i, n) if k != n]
        total.append(reward - sum(others) / len(others) if others else 0.0)
    return total


def pass_rates(i: SimpleNamespace) -> list[float]:
    names = sorted(set(i.group))
    rows = [[i.passed[k] for k, group in enumerate(i.group) if group == name] for name in names]
    return [sum(row) / len(row) for row in rows]


def informative(i: SimpleNamespace) -> list[float]:
    """Yu et al. 2025 (DAPO, dynamic sampling), arXiv:2503.14476: groups of unlike rewards."""
    names = sorted(set(i.group))
    rows = [{i.reward[k] for k, group in enumerate(i.group) if group == name} for name in names]
    return [float(len(row) > 1) for row in rows]


def remax(i: SimpleNamespace) -> list[float]:
    """Li et al. 2023, arXiv:2310.10505."""
    return [r - i.greedy[group] for r, group in zip(i.reward, i.group, strict=True)]


def nash_md(i: SimpleNamespace) -> list[float]:
    """Munos et al. 2023, arXiv:2312.00886: P(y ≻ y′) − ½, P by Bradley and Terry."""
    return [exp(a) / (exp(a) + exp(b)) - 0.5 for a, b in zip(i.score, i.other, strict=True)]


def along(i: SimpleNamespace, value) -> Table:
    """``value`` of the trained tokens of a row, one after the other, put back to their places."""
    table = []
    for n, mask in enumerate(i.mask):
        told = iter(value(n, [t for t, m in enumerate(mask) if m]))
        table.append([next(told) if m else 0.0 for m in mask])
    return table


def token_rewards(i: SimpleNamespace, beta: float) -> Table:
    """Ziegler et al. 2019, arXiv:1909.08593: −β KL at each token, the score at the last."""
    return along(i, lambda n, at: [-beta * i.kl[n][t] + (i.score[n] if t == at[-1] else 0.0) for t in at])


def discounted(i: SimpleNamespace, gamma: float) -> Table:
    """R_t = Σ_k γ^k r_(t+k) over the trained tokens."""
    return along(
        i,
        lambda n, at: [
            sum(gamma**k * i.reward[n][t] for k, t in enumerate(at[first:])) for first in range(len(at))
        ],
    )


def monte_carlo(i: SimpleNamespace, gamma: float) -> Table:
    """R_t − V_t."""
    found = discounted(i, gamma)
    return along(i, lambda n, at: [found[n][t] - i.value[n][t] for t in at])


def deltas(i: SimpleNamespace, n: int, at: list[int], gamma: float, last: float) -> list[float]:
    following = [i.value[n][t] for t in at[1:]] + [last]
    return [i.reward[n][t] + gamma * v - i.value[n][t] for t, v in zip(at, following, strict=True)]


def one_step(i: SimpleNamespace, gamma: float) -> Table:
    """Mnih et al. 2016 (A2C), arXiv:1602.01783, of one step."""
    return along(i, lambda n, at: deltas(i, n, at, gamma, 0.0))


def gae(i: SimpleNamespace, gamma: float, lam: float, *, bootstrap: bool = False) -> Table:
    """Schulman et al. 2015, arXiv:1506.02438, equation 16: Σ_l (γλ)^l δ_(t+l), as a sum."""

    def value(n: int, at: list[int]) -> list[float]:
        delta = deltas(i, n, at, gamma, i.after[n] if bootstrap else 0.0)
        return [sum((gamma * lam) ** k * d for k, d in enumerate(delta[t:])) for t in range(len(delta))]

    return along(i, value)


def returns(i: SimpleNamespace) -> Table:
    return along(i, lambda n, at: [i.advantage[n][t] + i.value[n][t] for t in at])


def bandit(i: SimpleNamespace) -> Table:
    return along(i, lambda n, at: [i.score[n] - i.first_value[n] for _ in at])


def whiten(i: SimpleNamespace, shift: bool = True) -> Table:
    """Ziegler et al. 2019, arXiv:1909.08593, as its code has it; without the shift + mean again."""
    return whitened(i.reward, i.mask, shift=shift)


def whitened(table: Table, mask: list[list[int]], *, shift: bool) -> Table:
    flat = [x for row in kept(table, mask) for x in row]
    mean, var = sum(flat) / len(flat), variance(flat)
    back = 0.0 if shift else mean
    return [
        [(x - mean) / sqrt(var + 1e-8) + back if m else 0.0 for x, m in zip(*row, strict=True)]
        for row in zip(table, mask, strict=True)
    ]


def reinforce_plus_plus(i: SimpleNamespace, gamma: float) -> Table:
    """Hu et al. 2025, arXiv:2501.03262: reward-to-go, normalised over the batch's tokens."""
    return whitened(discounted(i, gamma), i.mask, shift=True)


def process_grpo(i: SimpleNamespace, group: list[int], eps: float) -> Table:
    """Shao et al. 2024, arXiv:2402.03300, section 4.1.3: normalised rewards of steps, summed."""
    steps: dict[int, list[tuple[int, float]]] = {}
    for n, mask in enumerate(i.mask):
        total = 0.0
        for t, m in enumerate(mask):
            total += i.reward[n][t] if m else 0.0
            if ends(i)[n][t]:
                steps.setdefault(n, []).append((t, total))
                total = 0.0
    table = [[0.0] * len(mask) for mask in i.mask]
    for n, own in steps.items():
        everyone = [reward for k, rows in steps.items() if group[k] == group[n] for _, reward in rows]
        mean, std = sum(everyone) / len(everyone), sqrt(variance(everyone, missing=1))
        for t, m in enumerate(i.mask[n]):
            table[n][t] = sum((r - mean) / (std + eps) for end, r in own if end >= t) if m else 0.0
    return table


def ends(i: SimpleNamespace) -> list[list[int]]:
    """Where steps end: where they were drawn to, and at each row's last trained token."""
    last = [max(t for t, m in enumerate(mask) if m) for mask in i.mask]
    return [[int(bool(s) or t == last[n]) for t, s in enumerate(row)] for n, row in enumerate(i.step)]
