"""What the metrics of preference optimisation mean, in words."""

from __future__ import annotations

from dataclasses import replace

from plaudit.training.metric_doc import MetricDoc

_MEASURED = (
    MetricDoc(
        name="reward_chosen",
        what="Preference runs: the mean implicit reward of the preferred (or good) answers, β · log(π / "
        "π_ref); without a reference β · log π. Through the row's measure, link and price.",
        normal="Near 0 at first. With pairs it may rise or fall, as long as it stays above reward_rejected.",
        strange="Far below 0: the policy finds even what was preferred ever less likely; see logp_chosen.",
    ),
    MetricDoc(
        name="reward_rejected",
        what="Preference runs: the same of the other (or bad) answers.",
        normal="Falling.",
        strange="Above reward_chosen on held-out rows: chosen and rejected are swapped, or nothing was "
        "learnt. Falling without end: raise β or lower the rate.",
    ),
    MetricDoc(
        name="logp_chosen",
        what="Preference runs: the mean log-prob of the preferred (or good) answers, summed over tokens (or "
        "their mean, where the row reads means).",
        normal="With a loss that asks for a gap alone it falls slowly; with an NLL part it rises.",
        strange="Falling fast: probability goes to answers that nobody judged; see docs/preference.md, "
        "“falling”.",
    ),
    MetricDoc(
        name="logp_rejected",
        what="Preference runs: the same of the other (or bad) answers.",
        normal="Falling faster than logp_chosen.",
        strange="Falling to hundreds of nats: the policy has learnt little but to avoid these very words.",
    ),
    MetricDoc(
        name="kl",
        what="Preference runs: how far the policy is from its reference on the answers of the data, Σ_t u "
        "− 1 − log u with u = π / π_ref at each token, in nats an answer; an estimate of KL(π_ref ‖ π) where "
        "the answers were drawn from the reference. Policy runs: Σ_t log π − log π_ref on the policy's own "
        "answers, on average over them, before the round's first move: KL(π ‖ π_ref) in nats an answer.",
        normal="0 at first, exactly (policy runs: to rounding); then growing to about 1 to 10.",
        strange="Not 0 at the start: the run stops and says why. As large as the answers are long: the "
        "policy "
        "has gone far from anything that was judged. Below 0 in a policy run: few answers, or top-p, top-k "
        "or min-p leave tokens out when answers are drawn.",
    ),
)
_HELD_OUT = tuple(
    replace(
        doc,
        name=f"held_out/{doc.name}",
        what=f"{doc.name} on the rows that are never trained: the same rows at every look.",
    )
    for doc in _MEASURED
)
PREFERENCE_DOCS = (
    *_MEASURED,
    MetricDoc(
        name="baseline",
        what="Runs on thumbs: what gains and losses are counted from: KTO's z₀ (a Δ: the mean of the batch "
        "on answers to other prompts, at least 0), BCO's δ (the running mean of rewards).",
        normal="0 or a little above it.",
        strange="KTO's growing to many nats: the policy has become surer of everything that it is shown; "
        "lower the rate.",
    ),
    *_HELD_OUT,
)
"""The metrics that only preference runs report, in the order of the page."""
