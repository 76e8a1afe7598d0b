"""Settings of a row: each one is read or refused, and what cannot be together is said so."""

import math
import re

import pytest
import torch

from plaudit.errors import UserError
from plaudit.losses.preference import mean_logps
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from tests.losses.preference_batch import pair_losses, single_losses, tokens

KNOBS = {
    "beta": [0.7],
    "label_smoothing": [0.31],
    "gamma": [0.37],
    "tau": [0.9],
    "anchor": [0.4],
    "orpo_lambda": [0.43],
    "desirable_weight": [1.7],
    "undesirable_weight": [0.6],
    "log_prob": ["sum", "mean"],
    "link": ["forward-kl", "js"],
    "length_alpha": [0.83],
    "ld_alpha": [0.13],
    "dpop_lambda": [3.0],
    "weighting": ["on-policy", "no"],
    "weight_cap": [0.001],
    "nll_coef": [0.77],
    "mix": [("hinge=0.35",)],
}
EVERY = [(name, knob) for name in PREFERENCE_ALGORITHMS for knob in KNOBS]


def cell_in_words(name, knob):
    """What a row does where its signature does not say."""
    row = preference_algorithm(name)
    words = {
        "log_prob": "mean" if row.log_prob is mean_logps else "sum",
        "weighting": "on-policy" if getattr(row, "weight", None) else "no",
    }
    return words.get(knob)


def loss_and_gradient(name, **settings):
    """On answers drawn at random, with a baseline."""
    row = preference_algorithm(name, **settings)
    if PREFERENCE_ALGORITHMS[name].data == "thumbs":
        told, label_N = [tokens(0)], torch.tensor([1.0, 0.0, 1.0, 0.0, 0.25], dtype=torch.float64)
        loss = single_losses(row, told[0], label_N, baseline=0.3).sum()
    else:
        told = [tokens(0, count=12), tokens(50, count=12)]
        loss = pair_losses(row, *told, baseline=0.3).sum()
    grads = torch.autograd.grad(loss, [one.logp_NT for one in told])
    return torch.cat([loss.detach().flatten(), *(grad_NT.flatten() for grad_NT in grads)])


def moves(name, plain=None, **settings):
    """Whether a setting changes loss or gradient; None where it is refused."""
    before = loss_and_gradient(name, **(plain or {}))
    try:
        after = loss_and_gradient(name, **settings)
    except UserError:
        return None
    return bool((after - before).abs().max() > 1e-9)


@pytest.mark.one_in(12)
@pytest.mark.parametrize(("name", "knob"), EVERY)
def test_no_knob_is_dead(name, knob):
    """A value that is not the row's own changes loss or gradient, or is refused."""
    own = PREFERENCE_ALGORITHMS[name].defaults.get(knob, cell_in_words(name, knob))
    found = [moves(name, **{knob: value}) for value in KNOBS[knob] if value != own]
    assert False not in found, f"{name} takes {knob} and does not read it"


@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_which_alpha_is_read_wherever_the_link_is(name):
    try:
        found = moves(name, {"link": "alpha"}, link="alpha", link_alpha=0.8)
    except UserError:
        return
    assert found, f"{name} takes alpha and does not read it"


@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_what_a_row_calls_its_own_it_takes_and_reads(name):
    # How much of a picture is left acts on rows, which tests of pictures show.
    own = set(PREFERENCE_ALGORITHMS[name].defaults) - {"link", "link_alpha", "crop"}
    for knob in own:
        assert moves(name, **{knob: KNOBS[knob][0]}), f"{name}'s own {knob} is not read"


@pytest.mark.parametrize("name", PREFERENCE_ALGORITHMS)
def test_defaults_said_aloud_change_nothing(name):
    aloud = loss_and_gradient(name, **PREFERENCE_ALGORITHMS[name].defaults)
    assert torch.equal(aloud, loss_and_gradient(name))


@pytest.mark.parametrize(
    "name", [name for name in PREFERENCE_ALGORITHMS if "reference" not in preference_algorithm(name).needs]
)
@pytest.mark.parametrize(
    "settings", [{"link": "js"}, {"dpop_lambda": 1.0}, {"link": "alpha", "link_alpha": 0.3}]
)
def test_a_row_without_a_reference_takes_nothing_that_is_measured_from_one(name, settings):
    with pytest.raises(UserError, match=rf"^(link|dpop_lambda|link_alpha) is not part of {name}"):
        preference_algorithm(name, **settings)


@pytest.mark.parametrize("name", ["kto", "apo-zero-unpaired", "bco"])
@pytest.mark.parametrize(
    "knob", ["ld_alpha", "dpop_lambda", "weighting", "nll_coef", "mix", "label_smoothing"]
)
def test_single_answers_take_nothing_that_is_of_pairs(name, knob):
    with pytest.raises(UserError, match=rf"^{knob} is not part of {name}"):
        preference_algorithm(name, **{knob: KNOBS[knob][0]})


def test_a_setting_that_is_not_read_names_the_rows_that_do():
    with pytest.raises(UserError, match="leave it out, or choose among discopop"):
        preference_algorithm("dpo", tau=0.1)
    with pytest.raises(UserError, match="or choose among kto, apo-zero-unpaired, bco"):
        preference_algorithm("dpo", desirable_weight=2.0)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ld-dpo", {"log_prob": "mean"}, "ld_alpha is a share of a sum"),
        ("ipo-mean", {"ld_alpha": 0.5}, "ld_alpha is a share of a sum"),
        ("dpo", {"link_alpha": 0.3}, "add --link alpha"),
        ("f-dpo", {"link_alpha": 0.3}, "add --link alpha"),
        ("dpo", {"link_alpha": 0.3, "link": "kl"}, "add --link alpha"),
        ("aot", {"weighting": "on-policy"}, "no weight: leave out weighting"),
        ("aot-unpaired", {"weighting": "on-policy"}, "no weight: leave out weighting"),
        ("dpo", {"weight_cap": 0.0}, "pairs of dpo have none: --weighting on-policy"),
        ("exo", {"label_smoothing": 0.0}, "cannot be 0: its loss would be infinite"),
    ],
)
def test_contradictions_are_refused(name, settings, words):
    with pytest.raises(UserError, match=re.escape(words)):
        preference_algorithm(name, **settings)


@pytest.mark.parametrize(
    "word",
    ["dpo", "dpo=", "=1", "dpo=0", "dpo=-1", "dpo=much", "dpo=nan", "dpo=inf", "kto=1", "mpo=1", "dppo=1"],
)
def test_a_mix_of_something_else_is_refused(word):
    with pytest.raises(UserError, match=r"^mix: |no preference algorithm"):
        preference_algorithm("mpo", mix=("dpo=0.5", word))


@pytest.mark.parametrize("name", ["dpop", "r-dpo", "wpo", "f-dpo", "tr-dpo", "simpo", "orpo", "slic", "aot"])
def test_a_row_that_is_more_than_its_loss_is_no_part_of_a_mix(name):
    with pytest.raises(UserError, match=f"{name} is more than a loss"):
        preference_algorithm("mpo", mix=(f"{name}=1",))


def test_a_sorted_part_of_a_mix_has_no_weight_either():
    with pytest.raises(UserError, match="no weight"):
        preference_algorithm("mpo", mix=("dpo=1", "aot-unpaired=1"), weighting="on-policy")


@pytest.mark.parametrize("name", ["dpo", "cdpo", "simpo"])
def test_only_a_mix_is_mixed(name):
    with pytest.raises(UserError, match="mix is not part of"):
        preference_algorithm(name, mix=("dpo=1",))


@pytest.mark.parametrize(
    ("knob", "values"),
    [
        ("beta", [0.0, -0.1, math.inf, math.nan]),
        ("tau", [0.0, -1.0, math.nan]),
        ("orpo_lambda", [0.0, -1.0, math.inf]),
        ("label_smoothing", [-0.1, 0.5, 1.0, math.nan]),
        ("gamma", [-0.1, math.inf]),
        ("desirable_weight", [-1.0, math.nan]),
        ("undesirable_weight", [-1.0, math.inf]),
        ("dpop_lambda", [-1.0, math.inf]),
        ("nll_coef", [-0.5, math.nan]),
        ("ld_alpha", [-0.1, 1.1, math.nan]),
        ("length_alpha", [math.inf, math.nan]),
        ("link_alpha", [0.0, math.inf, math.nan]),
    ],
)
def test_figures_that_no_loss_has_a_meaning_for_are_refused_when_they_are_said(knob, values):
    readers = [name for name, facts in PREFERENCE_ALGORITHMS.items() if knob in facts.parameters]
    for value in values:
        for name in readers:
            with pytest.raises(UserError, match=rf"^{knob} "):
                preference_algorithm(name, **{knob: value})


def test_figures_at_the_edge_are_taken():
    assert preference_algorithm("simpo", gamma=0.0).settings["gamma"] == 0
    edge = {"dpop_lambda": 0.0, "nll_coef": 0.0, "ld_alpha": 0.0, "length_alpha": -0.5}
    assert preference_algorithm("cdpo", label_smoothing=0.0, **edge).log_prob.keywords == {"share": 0}
    preference_algorithm("f-dpo", link="alpha", link_alpha=-1.0)
    assert preference_algorithm("cdpo", ld_alpha=1.0, label_smoothing=0.49).log_prob.keywords == {"share": 1}
