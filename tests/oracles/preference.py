"""Losses of preferences as their papers write them: one pair after the other, in plain Python."""

from math import exp, log
from types import SimpleNamespace


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def margins(i: SimpleNamespace) -> list[float]:
    """log π(y_w)/π_ref(y_w) − log π(y_l)/π_ref(y_l) of each pair."""
    return [(w - rw) - (v - rv) for w, rw, v, rv in zip(i.w, i.rw, i.l, i.rl, strict=True)]


def ratios(new: list[float], ref: list[float]) -> list[float]:
    return [exp(n) / exp(r) for n, r in zip(new, ref, strict=True)]


def dpo(i: SimpleNamespace, beta: float) -> list[float]:
    """Rafailov et al. 2023, arXiv:2305.18290, equation 7."""
    return [-log(sigmoid(beta * h)) for h in margins(i)]


def dpo_slope(i: SimpleNamespace, beta: float) -> list[float]:
    """Rafailov et al. 2023, the gradient below equation 7: −β σ(r̂_l − r̂_w) for log π(y_w)."""
    return [-beta * sigmoid(-beta * h) for h in margins(i)]


def cdpo(i: SimpleNamespace, beta: float, eps: float) -> list[float]:
    """Mitchell 2023, "A note on DPO with noisy preferences and relationship to IPO"."""
    return [-(1 - eps) * log(sigmoid(beta * h)) - eps * log(1 - sigmoid(beta * h)) for h in margins(i)]


def robust(i: SimpleNamespace, beta: float, eps: float) -> list[float]:
    """Chowdhury, Kini and Natarajan 2024 (rDPO), arXiv:2403.00409: the de-biased loss."""
    right, wrong = ([-log(sigmoid(sign * beta * h)) for h in margins(i)] for sign in (1, -1))
    return [((1 - eps) * a - eps * b) / (1 - 2 * eps) for a, b in zip(right, wrong, strict=True)]


def slic(i: SimpleNamespace, beta: float) -> list[float]:
    """Zhao et al. 2023 (SLiC-HF), arXiv:2305.10425: max(0, δ − …) with δ = 1 on β times the log-ratios."""
    return [max(0.0, 1 - beta * h) for h in margins(i)]


def ipo(i: SimpleNamespace, tau: float) -> list[float]:
    """Azar et al. 2023, arXiv:2310.12036, equation 17."""
    return [(h - 1 / (2 * tau)) ** 2 for h in margins(i)]


def exo(i: SimpleNamespace, beta: float, eps: float) -> list[float]:
    """Ji et al. 2024 (EXO, preferences only), arXiv:2402.00856: KL(p_θ ‖ smoothed label) of both answers."""
    total = []
    for h in margins(i):
        p = [sigmoid(beta * h), 1 - sigmoid(beta * h)]
        total.append(sum(a * log(a / b) for a, b in zip(p, (1 - eps, eps), strict=True)))
    return total


def nca(i: SimpleNamespace, beta: float) -> list[float]:
    """Chen et al. 2024 (NCA for pairs), arXiv:2402.05369: K = 2, hard labels."""
    chosen, rejected = implied(i, beta)
    return [
        -(log(sigmoid(a)) + 0.5 * log(sigmoid(-a)) + 0.5 * log(sigmoid(-b)))
        for a, b in zip(chosen, rejected, strict=True)
    ]


def implied(i: SimpleNamespace, beta: float) -> tuple[list[float], list[float]]:
    """β log π/π_ref of both answers."""
    chosen = [beta * (a - b) for a, b in zip(i.w, i.rw, strict=True)]
    return chosen, [beta * (a - b) for a, b in zip(i.l, i.rl, strict=True)]


def bco_pair(i: SimpleNamespace, beta: float, delta: float) -> list[float]:
    """Jung et al. 2024 (BCO), arXiv:2404.04656: binary cross-entropy around the reward shift δ."""
    chosen, rejected = implied(i, beta)
    return [
        -log(sigmoid(a - delta)) - log(sigmoid(-(b - delta))) for a, b in zip(chosen, rejected, strict=True)
    ]


def sppo(i: SimpleNamespace, eta: float) -> list[float]:
    """Wu et al. 2024 (SPPO), arXiv:2405.00675: squares around η(P − ½) with P = 1 and 0."""
    return [
        ((w - rw) - eta * (1 - 0.5)) ** 2 + ((v - rv) - eta * (0 - 0.5)) ** 2
        for w, rw, v, rv in zip(i.w, i.rw, i.l, i.rl, strict=True)
    ]


def apo_zero(i: SimpleNamespace, beta: float) -> list[float]:
    """D'Oosterlinck et al. 2024, arXiv:2408.06266: −σ(r_w) + σ(r_l), and 1 so that it is not below 0."""
    chosen, rejected = implied(i, beta)
    return [-sigmoid(a) + sigmoid(b) + 1 for a, b in zip(chosen, rejected, strict=True)]


def apo_down(i: SimpleNamespace, beta: float) -> list[float]:
    """D'Oosterlinck et al. 2024, arXiv:2408.06266: σ(r_w) − σ(r_w − r_l), and 1."""
    chosen, rejected = implied(i, beta)
    return [sigmoid(a) - sigmoid(a - b) + 1 for a, b in zip(chosen, rejected, strict=True)]


def discopop(i: SimpleNamespace, beta: float, tau: float) -> list[float]:
    """Lu et al. 2024 (DiscoPOP), arXiv:2406.08414: logistic and exponential, mixed by a sigmoid."""
    total = []
    for rho in margins(i):
        mix = sigmoid(beta * rho / tau)
        total.append((1 - mix) * log(1 + exp(-beta * rho)) + mix * exp(-beta * rho))
    return total


def simpo(i: SimpleNamespace, beta: float, gamma: float) -> list[float]:
    """Meng et al. 2024, arXiv:2405.14734: length-normalised rewards and a target margin."""
    return [
        -log(sigmoid(beta / nw * w - beta / nl * v - gamma))
        for w, v, nw, nl in zip(i.w, i.l, i.nw, i.nl, strict=True)
    ]


def orpo(i: SimpleNamespace, lam: float) -> list[float]:
    """Hong et al. 2024, arXiv:2403.07691: λ times the odds-ratio loss of length-normalised likelihoods."""
    total = []
    for w, v, nw, nl in zip(i.w, i.l, i.nw, i.nl, strict=True):
        p, q = exp(w / nw), exp(v / nl)
        total.append(-lam * log(sigmoid(log((p / (1 - p)) / (q / (1 - q))))))
    return total


def kto(i: SimpleNamespace, beta: float, z0: float, down: float, up: float = 1.0) -> list[float]:
    """Ethayarajh et al. 2024, arXiv:2402.01306: λ_y − v(x, y), desirable where the label is 1."""
    total = []
    for new, ref, good in zip(i.w, i.rw, i.label, strict=True):
        r = new - ref
        value = up * sigmoid(beta * (r - z0)) if good else down * sigmoid(beta * (z0 - r))
        total.append((up if good else down) - value)
    return total


def bco(i: SimpleNamespace, beta: float, delta: float) -> list[float]:
    """Jung et al. 2024, arXiv:2404.04656, of single answers."""
    total = []
    for new, ref, good in zip(i.w, i.rw, i.label, strict=True):
        p = sigmoid(beta * (new - ref) - delta)
        total.append(-log(p) if good else -log(1 - p))
    return total


def fdpo(i: SimpleNamespace, beta: float, slope) -> list[float]:
    """Wang et al. 2023 (f-DPO), arXiv:2309.16240: −log σ(β f′(u_w) − β f′(u_l)), u = π/π_ref."""
    pairs = zip(ratios(i.w, i.rw), ratios(i.l, i.rl), strict=True)
    return [-log(sigmoid(beta * slope(u) - beta * slope(v))) for u, v in pairs]


def reverse_kl_slope(u: float) -> float:
    """f(u) = u log u."""
    return log(u) + 1


def forward_kl_slope(u: float) -> float:
    """f(u) = −log u."""
    return -1 / u


def jensen_shannon_slope(u: float) -> float:
    """f(u) = u log u − (u + 1) log((u + 1)/2)."""
    return log(2 * u / (1 + u))


def alpha_slope(alpha: float):
    """f(u) = (u^(1−α) − (1 − α)u − α)/(α(α − 1))."""
    return lambda u: (1 - u**-alpha) / alpha


def r_dpo(i: SimpleNamespace, beta: float, alpha: float) -> list[float]:
    """Park et al. 2024, arXiv:2403.19159: the margin and α|y_w| − α|y_l| within the sigmoid."""
    rows = zip(margins(i), i.nw, i.nl, strict=True)
    return [-log(sigmoid(beta * h + alpha * nw - alpha * nl)) for h, nw, nl in rows]


def dpop(i: SimpleNamespace, beta: float, lam: float) -> list[float]:
    """Pal et al. 2024 (Smaug), arXiv:2402.13228: λ max(0, log π_ref(y_w)/π(y_w)) taken off within β."""
    rows = zip(margins(i), i.w, i.rw, strict=True)
    return [-log(sigmoid(beta * (h - lam * max(0.0, rw - w)))) for h, w, rw in rows]


def masked(row: list[float], mask: list[int]) -> list[float]:
    return [x for x, m in zip(row, mask, strict=True) if m]


def ld_dpo(i: SimpleNamespace, share: float, shorter: int = 2) -> list[float]:
    """Liu et al. 2024, arXiv:2409.06411: tokens beyond the shared length count by a share."""
    total = []
    for row, mask in zip(i.new, i.mask, strict=True):
        said = masked(row, mask)
        total.append(sum(said[:shorter]) + share * sum(said[shorter:]))
    return total


def mean_logp(i: SimpleNamespace) -> list[float]:
    """The length-normalised log-likelihood of SimPO, arXiv:2405.14734."""
    rows = [masked(row, mask) for row, mask in zip(i.new, i.mask, strict=True)]
    return [sum(row) / len(row) for row in rows]


def wpo(i: SimpleNamespace) -> list[float]:
    """Zhou et al. 2024 (WPO, sampled alignment), arXiv:2406.11827: exp of the mean of log π − log Σ π²."""
    total = []
    for row, power, mask in zip(i.new, i.power, i.mask, strict=True):
        kept = [a - b for a, b, m in zip(row, power, mask, strict=True) if m]
        total.append(exp(sum(kept) / len(kept)))
    return total


def aot(i: SimpleNamespace, beta: float) -> list[float]:
    """Melnyk et al. 2024 (AOT, paired), arXiv:2406.05882: sorted margins of policy and reference."""
    new = sorted(a - b for a, b in zip(i.w, i.l, strict=True))
    ref = sorted(a - b for a, b in zip(i.rw, i.rl, strict=True))
    return sorted(-log(sigmoid(beta * (a - b))) for a, b in zip(new, ref, strict=True))


def aot_unpaired(i: SimpleNamespace, beta: float) -> float:
    """Melnyk et al. 2024 (AOT, unpaired), arXiv:2406.05882: sorted rewards of chosen and rejected answers."""
    good = sorted(a - b for a, b in zip(i.w, i.rw, strict=True))
    bad = sorted(a - b for a, b in zip(i.l, i.rl, strict=True))
    return sum(-log(sigmoid(beta * (a - b))) for a, b in zip(good, bad, strict=True))


def online(i: SimpleNamespace, loss) -> list[float]:
    """Of fresh pairs: the better of completions 2k and 2k + 1 is y_w; equal rewards teach nothing."""
    total: list[float] = []
    for at in range(0, len(i.rho), 2):
        lead = i.rho[at] - i.rho[at + 1] if i.reward[at] > i.reward[at + 1] else i.rho[at + 1] - i.rho[at]
        total += [0.0 if i.reward[at] == i.reward[at + 1] else loss(lead)] * 2
    return total


def online_dpo(i: SimpleNamespace, beta: float) -> list[float]:
    """Guo et al. 2024, arXiv:2402.04792."""
    return online(i, lambda lead: -log(sigmoid(beta * lead)))


def online_ipo(i: SimpleNamespace, tau: float) -> list[float]:
    """Calandriello et al. 2024, arXiv:2403.08635."""
    return online(i, lambda lead: (lead - 1 / (2 * tau)) ** 2)
