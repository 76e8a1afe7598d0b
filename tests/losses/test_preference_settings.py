"""Settings of a row: each one is read or refused, and what cannot be together is said so."""

from __future__ import annotations

import math
import re

import pytest
import torch

from plaudit.errors import UserError
from plaudit.recipes.preference_config import PreferenceSettings
from plaudit.recipes.preference_rows import row_of
from plaudit.recipes.preference_table import PREFERENCES
from tests.losses.preference_batch import pair_losses, single_losses, tokens

KNOBS = {
    "beta": [0.7],
    "smoothing": [0.31],
    "margin": [0.37],
    "tau": [0.9],
    "odds": [0.43],
    "desirable": [1.7],
    "undesirable": [0.6],
    "measure": ["sum", "mean"],
    "link": ["forward-kl", "js"],
    "price": [0.83],
    "tail": [0.13],
    "hold": [3.0],
    "weigh": ["on-policy", "no"],
    "nll": [0.77],
    "mix": [("hinge=0.35",)],
}
SILENT = {"measure": "sum", "weigh": "no"}
"""What a row does where its facts do not say."""
EVERY = [(name, knob) for name in PREFERENCES for knob in KNOBS]


def loss_and_gradient(name, **settings):
    """On answers drawn at random, with a baseline."""
    row = row_of(name, PreferenceSettings(**settings))
    if PREFERENCES[name].data == "thumbs":
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


@pytest.mark.parametrize(("name", "knob"), EVERY)
def test_no_knob_is_dead(name, knob):
    """A value that is not the row's own changes loss or gradient, or is refused."""
    own = PREFERENCES[name].defaults.get(knob, SILENT.get(knob))
    found = [moves(name, **{knob: value}) for value in KNOBS[knob] if value != own]
    assert False not in found, f"{name} takes {knob} and does not read it"


@pytest.mark.parametrize("name", PREFERENCES)
def test_which_alpha_is_read_wherever_the_link_is(name):
    try:
        found = moves(name, {"link": "alpha"}, link="alpha", alpha=0.8)
    except UserError:
        return
    assert found, f"{name} takes alpha and does not read it"


@pytest.mark.parametrize("name", PREFERENCES)
def test_what_a_row_calls_its_own_it_takes_and_reads(name):
    own = set(PREFERENCES[name].defaults) - {"link", "weigh", "measure"}
    for knob in own:
        assert moves(name, **{knob: KNOBS[knob][0]}), f"{name}'s own {knob} is not read"


@pytest.mark.parametrize("name", PREFERENCES)
def test_defaults_said_aloud_change_nothing(name):
    aloud = loss_and_gradient(name, **PREFERENCES[name].defaults)
    assert torch.equal(aloud, loss_and_gradient(name))


@pytest.mark.parametrize("name", [name for name, facts in PREFERENCES.items() if not facts.reference])
@pytest.mark.parametrize("settings", [{"link": "js"}, {"hold": 1.0}, {"link": "alpha", "alpha": 0.3}])
def test_a_row_without_a_reference_takes_nothing_that_is_measured_from_one(name, settings):
    with pytest.raises(UserError, match=rf"preference\.(link|hold|alpha) is not part of {name}"):
        row_of(name, PreferenceSettings(**settings))


@pytest.mark.parametrize("name", ["kto", "apo-zero-unpaired", "bco"])
@pytest.mark.parametrize("knob", ["tail", "hold", "weigh", "nll", "mix", "smoothing"])
def test_single_answers_take_nothing_that_is_of_pairs(name, knob):
    with pytest.raises(UserError, match=rf"preference\.{knob} is not part of {name}"):
        row_of(name, PreferenceSettings(**{knob: KNOBS[knob][0]}))


def test_a_setting_that_is_not_read_names_the_rows_that_do():
    with pytest.raises(UserError, match="leave it out, or choose among discopop"):
        row_of("dpo", PreferenceSettings(tau=0.1))
    with pytest.raises(UserError, match="or choose among kto, apo-zero-unpaired, bco"):
        row_of("dpo", PreferenceSettings(desirable=2.0))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ld-dpo", {"measure": "mean"}, "tail is a share of a sum"),
        ("ipo-mean", {"tail": 0.5}, "tail is a share of a sum"),
        ("dpo", {"alpha": 0.3}, "add --preference.link alpha"),
        ("f-dpo", {"alpha": 0.3}, "add --preference.link alpha"),
        ("dpo", {"alpha": 0.3, "link": "kl"}, "add --preference.link alpha"),
        ("aot", {"weigh": "on-policy"}, "no weight: leave out weigh"),
        ("aot-unpaired", {"weigh": "on-policy"}, "no weight: leave out weigh"),
        ("exo", {"smoothing": 0.0}, "cannot be 0: its loss would be infinite"),
    ],
)
def test_contradictions_are_refused(name, settings, words):
    with pytest.raises(UserError, match=re.escape(words)):
        row_of(name, PreferenceSettings(**settings))


@pytest.mark.parametrize(
    "word",
    ["dpo", "dpo=", "=1", "dpo=0", "dpo=-1", "dpo=much", "dpo=nan", "dpo=inf", "kto=1", "mpo=1", "dppo=1"],
)
def test_a_mix_of_something_else_is_refused(word):
    with pytest.raises(UserError, match=r"preference\.mix|no preference algorithm"):
        row_of("mpo", PreferenceSettings(mix=("dpo=0.5", word)))


@pytest.mark.parametrize("name", ["dpop", "r-dpo", "wpo", "f-dpo", "tr-dpo", "simpo", "orpo", "slic", "aot"])
def test_a_row_that_is_more_than_its_loss_is_no_part_of_a_mix(name):
    with pytest.raises(UserError, match=f"{name} is more than a loss"):
        row_of("mpo", PreferenceSettings(mix=(f"{name}=1",)))


def test_a_sorted_part_of_a_mix_has_no_weight_either():
    with pytest.raises(UserError, match="no weight"):
        row_of("mpo", PreferenceSettings(mix=("dpo=1", "aot-unpaired=1"), weigh="on-policy"))


@pytest.mark.parametrize("name", ["dpo", "cdpo", "simpo"])
def test_only_a_mix_is_mixed(name):
    with pytest.raises(UserError, match="mix is not part of"):
        row_of(name, PreferenceSettings(mix=("dpo=1",)))


@pytest.mark.parametrize(
    ("knob", "values"),
    [
        ("beta", [0.0, -0.1, math.inf, math.nan]),
        ("tau", [0.0, -1.0, math.nan]),
        ("odds", [0.0, -1.0, math.inf]),
        ("smoothing", [-0.1, 0.5, 1.0, math.nan]),
        ("margin", [-0.1, math.inf]),
        ("desirable", [-1.0, math.nan]),
        ("undesirable", [-1.0, math.inf]),
        ("hold", [-1.0, math.inf]),
        ("nll", [-0.5, math.nan]),
        ("tail", [-0.1, 1.1, math.nan]),
        ("price", [math.inf, math.nan]),
        ("alpha", [0.0, math.inf, math.nan]),
    ],
)
def test_figures_that_no_loss_has_a_meaning_for_are_refused_when_they_are_said(knob, values):
    for value in values:
        with pytest.raises(UserError, match=rf"preference\.{knob} "):
            PreferenceSettings(**{knob: value})


def test_figures_at_the_edge_are_taken():
    edge = PreferenceSettings(margin=0.0, hold=0.0, nll=0.0, tail=0.0, price=-0.5, smoothing=0.0, alpha=-1.0)
    assert edge.tail == 0
    assert PreferenceSettings(tail=1.0, smoothing=0.49).tail == 1
