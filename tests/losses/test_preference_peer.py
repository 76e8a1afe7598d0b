"""TRL's own preference trainers on a tiny model, in its own environment: the same loss, the same gradient.

Each of the peer's trainers is built as a user builds it and reports the log-probs that its loss was given,
the loss and the gradient by them; the row makes its own of the same log-probs. Both sides are in double
precision, where 1e-11 holds, but for two places at which the peer's code is in single precision whatever
it is given: ORPO's odds, and the alpha divergences, which it refuses in double precision.

What the peer says is recorded in ``peer_values/preference.json``: every run compares with it.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.losses.preference import dpo
from plaudit.methods.preference.algorithms import preference_algorithm
from tests.losses.preference_batch import Tokens, pair_losses, records, single_losses
from tests.peer import SOURCES, PeerValues, ask_script

EXACT, SINGLE = 1e-11, 2e-6
SINGLES_GOOD = [n % 3 != 1 for n in range(10)]


def trl(loss_type="sigmoid", **settings):
    return ["dpo", {"beta": 0.3, "loss_type": [loss_type], **settings}]


def asked(kind, **settings):
    return [kind, {"beta": 0.3, **settings}]


def ours(name, **settings):
    return name, ({} if name == "orpo" else {"beta": 0.3}) | settings


ALPHA = {"f_divergence_type": "alpha_divergence", "dtype": "float32"}
PAIRS = {
    "sigmoid": (trl(), ours("dpo")),
    "sigmoid, their β": (["dpo", {}], ("dpo", {})),
    "hinge": (trl("hinge"), ours("hinge")),
    "ipo": (trl("ipo"), ours("ipo-mean")),
    "exo": (trl("exo_pair", label_smoothing=0.001), ours("exo")),
    "exo, smoothed": (trl("exo_pair", label_smoothing=0.2), ours("exo", label_smoothing=0.2)),
    "nca": (trl("nca_pair"), ours("nca")),
    "robust": (trl("robust", label_smoothing=0.2), ours("robust-dpo", label_smoothing=0.2)),
    "robust without noise": (trl("robust"), ours("dpo")),
    "bco": (trl("bco_pair"), ours("bco-pair")),
    "sppo": (trl("sppo_hard"), ours("sppo")),
    "aot": (trl("aot"), ours("aot")),
    "aot, smoothed": (trl("aot", label_smoothing=0.1), ours("aot", label_smoothing=0.1)),
    "aot unpaired": (trl("aot_unpaired"), ours("aot-unpaired")),
    "aot unpaired, smoothed": (
        trl("aot_unpaired", label_smoothing=0.1),
        ours("aot-unpaired", label_smoothing=0.1),
    ),
    "apo zero": (trl("apo_zero"), ours("apo-zero")),
    "apo down": (trl("apo_down"), ours("apo-down")),
    "discopop": (trl("discopop"), ours("discopop")),
    "discopop, softer": (trl("discopop", discopop_tau=0.7), ours("discopop", tau=0.7)),
    "normed": (trl("sigmoid_norm"), ours("dpo-norm")),
    "forward kl": (trl(f_divergence_type="forward_kl"), ours("f-dpo", link="forward-kl")),
    "jensen-shannon": (trl(f_divergence_type="js_divergence"), ours("f-dpo")),
    "jensen-shannon hinge": (trl("hinge", f_divergence_type="js_divergence"), ours("hinge", link="js")),
    "alpha": (trl(**ALPHA, f_alpha_divergence_coef=0.5), ours("f-dpo", link="alpha")),
    "alpha 0": (trl(**ALPHA, f_alpha_divergence_coef=0.0), ours("f-dpo", link="forward-kl")),
    "alpha above 1": (
        trl(**ALPHA, f_alpha_divergence_coef=1.25),
        ours("f-dpo", link="alpha", link_alpha=-0.25),
    ),
    "desensitised": (trl(ld_alpha=0.3), ours("ld-dpo", ld_alpha=0.3)),
    "weighted": (trl(use_weighting=True), ours("wpo")),
    "weighted nca": (trl("nca_pair", use_weighting=True), ours("nca", weighting="on-policy")),
    "mixed": (
        asked("dpo", loss_type=["sigmoid", "bco_pair", "sft"], loss_weights=[0.7, 0.2, 0.9]),
        ours("mpo", nll_coef=0.0, mix=("dpo=0.7", "bco-pair=0.2")),
    ),
    "orpo": (["orpo", {"beta": 0.3}], ours("orpo", orpo_lambda=0.3, nll_coef=0.0)),
    "cpo": (asked("cpo", cpo_alpha=0.0), ours("cpo", nll_coef=0.0)),
    "cpo hinge": (asked("cpo", cpo_alpha=0.0, loss_type="hinge"), ours("slic", nll_coef=0.0)),
    "cpo, smoothed": (asked("cpo", cpo_alpha=0.0, label_smoothing=0.2), ours("cdpo", label_smoothing=0.2)),
    "cpo ipo": (asked("cpo", cpo_alpha=0.0, loss_type="ipo"), ours("ipo-mean")),
    "simpo": (asked("cpo", cpo_alpha=0.0, loss_type="simpo", simpo_gamma=0.7), ours("simpo", gamma=0.7)),
    "alphapo": (asked("cpo", cpo_alpha=0.0, alpha=0.1), ours("f-dpo", link="alpha", link_alpha=0.1)),
    "cpo with nll": (asked("cpo", cpo_alpha=0.5), ours("cpo", nll_coef=0.0)),
    "simpo with nll": (
        asked("cpo", cpo_alpha=0.5, loss_type="simpo", simpo_gamma=0.7),
        ours("simpo", gamma=0.7),
    ),
}
"""The peer's settings and the row's; where the peer has no reference, the row is told of one that is 0."""
NLL = {"mixed": 0.9, "orpo": 1.0, "cpo with nll": 0.5, "simpo with nll": 0.5}
OF_LENGTH = {"link of the sum": trl("sigmoid_norm", f_divergence_type="js_divergence")}
ANSWER_BY_ANSWER = {
    "kto": (asked("kto"), ours("kto")),
    "kto, weighed": (
        asked("kto", desirable_weight=0.7, undesirable_weight=1.6),
        ours("kto", desirable_weight=0.7, undesirable_weight=1.6),
    ),
    "kto, held at 0": (asked("kto", beside=1), ours("kto")),
    "apo zero unpaired": (
        asked("kto", loss_type="apo_zero_unpaired", undesirable_weight=1.6),
        ours("apo-zero-unpaired", undesirable_weight=1.6),
    ),
}
TOLD = {"nll": trl("sft")} | OF_LENGTH
NAMED = {name: theirs for name, (theirs, _) in (PAIRS | ANSWER_BY_ANSWER).items()}


VALUES = PeerValues(
    file=Path(__file__).with_name("peer_values") / "preference.json",
    ask=lambda: ask_script("losses/peer_preference.py", NAMED | TOLD),
)


@pytest.fixture(scope="module", params=SOURCES)
def peer(request):
    return VALUES.answers(request.param)


@pytest.mark.peer
def test_the_record_is_what_the_peer_says():
    VALUES.prove()


def read(report, dtype=torch.float64):
    """The peer's tensor with a gradient of our own, and the log-probs of tokens in it."""
    value = torch.tensor(report["value"], dtype=dtype).requires_grad_()
    ids_NT = torch.tensor(report["ids"])[:, 1:]
    logp_NT = value
    if value.ndim == 3:
        logp_NT = value[:, :-1].log_softmax(-1).gather(-1, ids_NT[..., None])[..., 0]
    ref_NT = torch.tensor(report["ref"][0], dtype=dtype) if report["ref"] else torch.zeros_like(logp_NT)
    power_NT = ref_NT if report["power"] is None else torch.tensor(report["power"], dtype=dtype)
    mask_NT = torch.tensor(report["mask"], dtype=torch.bool)[:, 1:]
    return value, Tokens(logp_NT=logp_NT, ref_NT=ref_NT, power_NT=power_NT, mask_NT=mask_NT)


def halves(told):
    sides = [(side.clone() for side in getattr(told, name).chunk(2)) for name in Tokens.__slots__]
    return [Tokens(**dict(zip(Tokens.__slots__, side, strict=True))) for side in zip(*sides, strict=True)]


def agree(loss, value, report, tolerance):
    """The same loss, and the same gradient at every token of an answer."""
    (grad,) = torch.autograd.grad(loss, value)
    wanted = torch.tensor(report["grad"], dtype=grad.dtype)
    if value.ndim == 2:
        wanted = wanted * torch.tensor(report["mask"], dtype=grad.dtype)[:, 1:]
    assert wanted.abs().max() > 1e-4
    assert loss.item() == pytest.approx(report["loss"], rel=0, abs=tolerance)
    torch.testing.assert_close(grad, wanted, rtol=0, atol=tolerance)


def pooled(logp_NT, mask_NT):
    """The peer's NLL: one mean over all tokens of the micro-batch."""
    return -logp_NT[mask_NT].mean()


@pytest.mark.parametrize("name", PAIRS)
def test_loss_and_gradient_of_pairs_are_the_peers(peer, name):
    single = PAIRS[name][0][1].get("dtype") == "float32"
    value, told = read(peer[name], torch.float32 if single else torch.float64)
    chosen, rejected = halves(told)
    algorithm, settings = PAIRS[name][1]
    loss = pair_losses(preference_algorithm(algorithm, **settings), chosen, rejected).mean()
    if name in NLL:
        mask_NT = torch.tensor(peer[name]["ids"])[:5, 1:] > 0 if name == "orpo" else chosen.mask_NT
        loss = loss + NLL[name] * pooled(chosen.logp_NT, mask_NT)
    agree(loss, value, peer[name], SINGLE if single or name == "orpo" else EXACT)


@pytest.mark.parametrize("name", ANSWER_BY_ANSWER)
def test_loss_and_gradient_of_single_answers_are_the_peers(peer, name):
    value, told = read(peer[name])
    # What policy and reference say of answers to other prompts; where z₀ is always 0 nobody asks.
    mean, reference = (
        torch.tensor(side, dtype=torch.float64).mean() for side in peer[name]["mismatched"] or [[0.0], [0.0]]
    )
    baseline = max(0.0, (mean - reference).item())
    assert (baseline > 0.05) == (name in ("kto", "kto, weighed"))
    algorithm, settings = ANSWER_BY_ANSWER[name][1]
    label_N = torch.tensor(SINGLES_GOOD, dtype=torch.float64)
    loss_N = single_losses(preference_algorithm(algorithm, **settings), told, label_N, baseline)
    agree(loss_N.mean(), value, peer[name], EXACT)


def test_the_peers_nll_weighs_tokens_and_ours_answers(peer):
    """λ/N Σ −mean log π(y_w) here, λ Σ −log π(y_w) / Σ |y_w| there: the same where lengths are."""
    value, told = read(peer["nll"])
    chosen, rejected = halves(told)
    rows = [preference_algorithm("dpo", nll_coef=nll) for nll in (1.0, 0.0)]
    with_N, without_N = (pair_losses(row, chosen, rejected) for row in rows)
    length_N = chosen.mask_NT.sum(-1)
    agree(((with_N - without_N) * length_N).sum() / length_N.sum(), value, peer["nll"], EXACT)
    assert abs((with_N - without_N).mean().item() - peer["nll"]["loss"]) > 0.01
    even = replace(chosen, mask_NT=torch.arange(7).expand(5, 7) == 1)
    with_N, without_N = (pair_losses(row, even, rejected) for row in rows)
    assert (with_N - without_N).mean().item() == pytest.approx(pooled(even.logp_NT, even.mask_NT).item())


def test_the_peer_divides_what_came_through_the_link_and_ours_links_the_mean(peer):
    value, told = read(peer["link of the sum"])
    chosen, rejected = halves(told)
    summed = records(preference_algorithm("f-dpo"), chosen, rejected)
    normed = [replace(side, delta_B=side.delta_B / side.length_B) for side in summed]
    agree(dpo(*normed, beta=0.3).mean(), value, peer["link of the sum"], EXACT)
    means = preference_algorithm("f-dpo", beta=0.3, log_prob="mean")
    assert abs(pair_losses(means, chosen, rejected).mean().item() - peer["link of the sum"]["loss"]) > 1e-3


def test_the_peers_log_probs_and_powers_are_those_of_its_logits(peer):
    """Its head works in single precision."""
    report = peer["weighted"]
    logp_NTV = torch.tensor(report["logits"]).double()[:, :-1].log_softmax(-1)
    logp_NT = logp_NTV.gather(-1, torch.tensor(report["ids"])[:, 1:, None])[..., 0]
    _, told = read(report)
    for found_NT, wanted_NT in ((told.logp_NT, logp_NT), (told.power_NT, (2 * logp_NTV).logsumexp(-1))):
        assert (found_NT - wanted_NT)[told.mask_NT].abs().max() < 1e-5
