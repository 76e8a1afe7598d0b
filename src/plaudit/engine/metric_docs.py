"""What every metric means, in words: the source of the table in docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDoc:
    """One metric in a reader's words."""

    name: str
    """Its name in the report; those under ``timing`` carry ``timing/``."""
    what: str
    normal: str
    """What a healthy run shows."""
    strange: str
    """What an odd value means and where to look."""
    better: Literal["lower", "higher"] | None = None
    """Which direction is better, where one is; the best checkpoint is chosen by it."""


_REWARD_DOCS = (
    MetricDoc(
        name="reward",
        what="Policy runs: the mean score of the round's answers that have a verdict, before shaping and "
        "before the KL. With several parts each is there as reward/NAME.",
        normal="Rising, with noise; every round asks other prompts.",
        strange="Rising while held_out/judge falls: the reward is being gamed. Flat: the rate is too low, "
        "or all answers to a prompt have one score (see frac_zero_std).",
        better="higher",
    ),
    MetricDoc(
        name="reward_std",
        what="Policy runs: the standard deviation of these scores, over the round.",
        normal="As wide as the prompts are unlike, and shrinking slowly.",
        strange="0: nothing is left to compare.",
    ),
    MetricDoc(
        name="win_prob",
        what="Policy runs against a rival (nash-md): the mean of P(y ≻ y′) = σ(r − r′), over its answers.",
        normal="A little above 0.5: the rival moves along with the policy.",
        strange="Near 1: the rival is left far behind; a smaller --mixture-coef. Exactly 0.5: all scores are "
        "alike.",
        better="higher",
    ),
    MetricDoc(
        name="kl_k3",
        what="Policy runs: the same KL by the estimator u⁻¹ − 1 + log u, u = π / π_ref, which is never "
        "below 0.",
        normal="Near kl.",
        strange="Far from kl: a few tokens decide one of the two.",
    ),
    MetricDoc(
        name="sqrt_kl",
        what="Policy runs: √kl_k3, the axis along which gold rewards rise and fall (Gao et al. 2022).",
        normal="Growing slowly.",
        strange="Growing while a held-out judge falls: stop earlier or raise β.",
    ),
    MetricDoc(
        name="approx_kl",
        what="Policy runs: KL(π_old ‖ π) a token, from the policy that drew the round, by e^ρ − 1 − ρ.",
        normal="0 at a round's first move, exactly; 0.001 to 0.02 at its last one.",
        strange="Above 0.05: rounds move too far; lower the rate or --update-epochs, or set --target-kl.",
    ),
    MetricDoc(
        name="kl_coef",
        what="Policy runs: the coefficient of the divergence from the reference in this round.",
        normal="Fixed, or moving slowly towards what keeps kl at --kl-coef-target.",
        strange="Growing without end: the target is below what the policy needs to learn anything.",
    ),
)
_PROCESS_REWARD_DOCS = (
    MetricDoc(
        name="steps_mean",
        what="Policy runs with --process.pay: the mean number of steps of an answer.",
        normal="Steady.",
        strange="Growing with the reward where scores of steps are added up: an answer is padded with steps.",
    ),
    MetricDoc(
        name="step_score",
        what="Policy runs with --process.pay: the mean score of a step, as it was given: of a process reward "
        "model the chance that it is right (its log-odds with --process.pay odds).",
        normal="Rising.",
        strange="Rising while step_score_min falls: easy steps are added to wrong ones.",
        better="higher",
    ),
    MetricDoc(
        name="step_score_min",
        what="Policy runs with --process.pay: the mean over answers of their lowest score of a step.",
        normal="Rising.",
        strange="Flat while reward rises: what is wrong stays wrong.",
        better="higher",
    ),
)
_ROUND_DOCS = (
    MetricDoc(
        name="frac_finished",
        what="Policy runs: the share of answers that ended by themselves or at a stop.",
        normal="Near 1.",
        strange="Low: answers are cut, and fragments are scored; raise --draw.max-tokens.",
        better="higher",
    ),
    MetricDoc(
        name="frac_no_verdict",
        what="Policy runs: the share of answers that the reward has no verdict on. They are left out.",
        normal="0.",
        strange="Large: the reward lacks what it needs, such as an answer in the prompts' rows.",
    ),
    MetricDoc(
        name="frac_zero_std",
        what="Policy runs with several answers to a prompt: the share of prompts whose answers all have one "
        "score.",
        normal="0 with a learned reward; 0.2 to 0.6 with one of right and wrong.",
        strange="Near 1: prompts are too easy or too hard; --dynamic-sampling asks others instead.",
    ),
    MetricDoc(
        name="frac_filtered",
        what="Policy runs: the share of prompts that were asked and left out of the round.",
        normal="0, or about frac_zero_std where --dynamic-sampling is on.",
        strange="Above 0.8: most of the drawing is for nothing.",
    ),
    MetricDoc(
        name="frac_replayed",
        what="Policy runs: the share of the round's prompts whose answers are those of an earlier round.",
        normal="0, or --draw.replay once there are rounds to take them from.",
        strange="Far below --draw.replay: the window is short.",
    ),
    MetricDoc(
        name="advantage_std",
        what="Policy runs: the standard deviation of the advantages over the tokens of the round.",
        normal="1 where they are whitened, a little below 1 for GRPO.",
        strange="0: nothing is learnt in this round.",
    ),
    MetricDoc(
        name="sampling_logp_diff_mean",
        what="Policy runs: how far the sampler's log-probs of the drawn tokens are from the trainer's, in "
        "nats a token, on average; sampling_logp_diff_max is the largest.",
        normal="1e-6 in float32, up to 0.02 in bfloat16.",
        strange="Larger: the run stops when it is so large that other weights must have drawn them.",
    ),
    MetricDoc(
        name="sampling_logp_diff_max",
        what="Policy runs: the largest such difference at a token.",
        normal="1e-5 in float32, up to 0.5 in bfloat16.",
        strange="Larger, with a small mean: single tokens; see --tis-cap.",
    ),
)
_UPDATE_DOCS = (
    MetricDoc(
        name="ratio",
        what="Policy runs: the mean of π / π_old over the tokens of the move.",
        normal="1 at a round's first move, exactly; then 0.98 to 1.02.",
        strange="Far from 1: rounds move too far.",
    ),
    MetricDoc(
        name="clip_frac_low",
        what="Policy runs: the share of tokens that are bad and have become rarer than 1 − ε: they move no "
        "more.",
        normal="0 to 0.1.",
        strange="Above 0.3: most of the round's later moves are wasted.",
    ),
    MetricDoc(
        name="clip_frac_high",
        what="Policy runs: the share of tokens that are good and have become likelier than 1 + ε.",
        normal="0 to 0.1.",
        strange="Above 0.3: as with clip_frac_low.",
    ),
    MetricDoc(
        name="value_loss",
        what="Policy runs with a critic: ½(V − R)² a token, with its clip.",
        normal="Falling at first.",
        strange="Rising: returns grow faster than the critic follows; raise --value-lr-scale.",
        better="lower",
    ),
    MetricDoc(
        name="value_mean",
        what="Policy runs with a critic: the mean of what it expects, before the round's first move.",
        normal="Following the reward.",
        strange="Far from the reward for long: the critic does not learn.",
    ),
    MetricDoc(
        name="explained_variance",
        what="Policy runs with a critic: 1 − Var(R − V) / Var(R) over the tokens of the round.",
        normal="Rising from about 0 to 0.3 to 0.9.",
        strange="Below 0 for long: a constant would do better.",
        better="higher",
    ),
    MetricDoc(
        name="penalty_coef",
        what="Runs of ppo-penalty: the coefficient of KL(π_old ‖ π) in the loss. It is doubled or halved by "
        "the KL after a round's last move.",
        normal="Settling near what keeps that KL at --penalty-coef-target.",
        strange="Doubling without end: the rate is too high for any penalty.",
    ),
    MetricDoc(
        name="line_search_frac",
        what="Policy runs with TRPO's step: how much of the longest step was taken, after the line search.",
        normal="1, 0.5 or 0.25.",
        strange="0 again and again: no length improves the surrogate within the limit; draw more answers.",
    ),
    MetricDoc(
        name="step_kl",
        what="Policy runs with TRPO's step: KL(π_old ‖ π) a token after it, on the round's answers.",
        normal="At most --max-kl, always.",
        strange="Far below the limit: the curvature is overestimated (damping), which is safe and slow.",
    ),
    MetricDoc(
        name="ptx_loss",
        what="Policy runs with --ptx.data: the negative log-likelihood a token of the text that is not to be "
        "forgotten.",
        normal="Staying where it was.",
        strange="Rising: raise --ptx-coef.",
        better="lower",
    ),
)
_POLICY_HELD_OUT_DOCS = (
    MetricDoc(
        name="held_out/reward",
        what="Policy runs: the mean score of answers to held-out prompts, by the reward that teaches. "
        "Chance is the same at each look.",
        normal="Rising.",
        strange="Falling while reward rises: the prompts are learnt by heart.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/judge",
        what="With --judge.by, policy runs: the same answers' mean score by a judge that never teaches; it "
        "chooses the model and ends the run. Fine-tuning: the mean score of the likeliest answers to "
        "held-out prompts, which chooses the model.",
        normal="Rising, then level.",
        strange="Falling while held_out/reward rises: the reward is being gamed.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/frac_finished",
        what="Policy runs: the share of these answers that ended by themselves.",
        normal="Near 1.",
        strange="Low: they are cut.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/length_mean",
        what="Policy runs: the mean number of tokens of these answers.",
        normal="Steady.",
        strange="Growing with the reward: it likes length.",
    ),
    MetricDoc(
        name="held_out/kl_k3",
        what="Policy runs: kl_k3 on held-out prompts.",
        normal="Near held_out/kl.",
        strange="As with kl_k3.",
    ),
    MetricDoc(
        name="held_out/kl_exact",
        what="Policy runs with a vocabulary of at most 4,096: the KL of the whole next-token distributions "
        "at every token, summed over an answer; no estimate but for which answers were drawn.",
        normal="Near held_out/kl, and smoother.",
        strange="Far from held_out/kl: too few answers, or tokens are left out when they are drawn.",
    ),
    MetricDoc(
        name="held_out/sqrt_kl",
        what="Policy runs: √ of held_out/kl_k3, the axis of the chart of reward against judge.",
        normal="Growing slowly.",
        strange="As with sqrt_kl.",
    ),
)
POLICY_DOCS = (*_REWARD_DOCS, *_PROCESS_REWARD_DOCS, *_ROUND_DOCS, *_UPDATE_DOCS, *_POLICY_HELD_OUT_DOCS)
"""The metrics of policy runs, in the order of the page."""

_IMPLICIT_REWARD_DOCS = (
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
_PREFERENCE_HELD_OUT_DOCS = tuple(
    replace(
        doc,
        name=f"held_out/{doc.name}",
        what=f"{doc.name} on the rows that are never trained: the same rows at every look.",
    )
    for doc in _IMPLICIT_REWARD_DOCS
)
PREFERENCE_DOCS = (
    *_IMPLICIT_REWARD_DOCS,
    MetricDoc(
        name="baseline",
        what="Runs on thumbs: what gains and losses are counted from: KTO's z₀ (a Δ: the mean of the batch "
        "on answers to other prompts, at least 0), BCO's δ (the running mean of rewards).",
        normal="0 or a little above it.",
        strange="KTO's growing to many nats: the policy has become surer of everything that it is shown; "
        "lower the rate.",
    ),
    *_PREFERENCE_HELD_OUT_DOCS,
)
"""The metrics that only preference runs report, in the order of the page."""

METRIC_DOCS = (
    MetricDoc(
        name="loss",
        what="What the step minimises. Supervised runs: the mean negative log-likelihood of the trained "
        "tokens, in nats per token. Reward and preference runs: the mean over rows (of steps: over steps; of "
        "thumbs: over answers) of the loss that the run names at its start. Policy runs: the row's own loss "
        "over the tokens of the move, without the critic's.",
        normal="Supervised: below log(vocabulary) from the first step with a trained base model (often 1 to "
        "3), then falling slowly, with noise. Comparisons and rankings: near log 2 = 0.69 at first (with "
        "dpo exactly so), then 0.3 to 0.6.",
        strange="Near log(vocabulary): the model or the template is not the one you think. Near 0 at once: "
        "answers are leaking into prompts, or rows repeat. Rising: the learning rate is too high. A reward "
        "run that stays at 0.69: the labels say nothing about the answers, or the rate is far too low.",
        better="lower",
    ),
    MetricDoc(
        name="token_accuracy",
        what="The share of trained tokens that the model itself would have put first.",
        normal="0.5 to 0.8 for ordinary text and a trained base model; it moves with the loss.",
        strange="Over 0.95 in training while the held-out figure stays behind: rows are learnt by heart.",
        better="higher",
    ),
    MetricDoc(
        name="accuracy",
        what="Reward and preference runs: the share of pairs in which the better answer has the higher "
        "reward (in preference runs the implicit one; an equal one counts half, ties in the data are left "
        "out); of thumbs and steps: the share on the right side of 0.",
        normal="0.5 at first; 0.6 to 0.75 on most human comparisons, since people agree with each other no "
        "more often than that.",
        strange="Over 0.9 in training while the held-out figure stays behind: the rows are learnt by heart; "
        "one epoch is usually enough. Below 0.5: chosen and rejected are swapped.",
        better="higher",
    ),
    MetricDoc(
        name="margin",
        what="Reward and preference runs: the mean reward of the better answer less that of the other, over "
        "pairs.",
        normal="0 at first, then growing to about 1.",
        strange="Growing without end while held-out accuracy stands still: the model becomes surer and not "
        "better; held_out/loss rises then.",
        better="higher",
    ),
    MetricDoc(
        name="mae",
        what="Ratings: the mean distance of reward and rating, in points.",
        normal="At first the mean deviation of the ratings, then falling.",
        strange="Stuck at the first value: the model gives everything the mean rating.",
        better="lower",
    ),
    MetricDoc(
        name="reward_mean",
        what="Reward runs: the mean reward of all answers (of steps: of all steps) of the step.",
        normal="Anywhere: comparisons fix differences only. It hardly moves once training has settled.",
        strange="Drifting far from 0: harmless, but a little --reward.centring holds it, and "
        "--reward.normalise sets it at the end.",
    ),
    MetricDoc(
        name="entropy",
        what="The mean entropy of the model's next-token distribution on the trained tokens, in nats.",
        normal="Close to the loss when the model is well calibrated; falling slowly.",
        strange="Far below the loss: the model is sure and wrong. Near 0: it has collapsed onto a few "
        "words, and sampling from it will give little variety.",
    ),
    MetricDoc(
        name="divergence",
        what="The distance from the teacher on the step's tokens, in nats a token (`context` and `distil` "
        "only).",
        normal="The loss itself, and with --hard-weight the part of it that is the teacher's.",
        strange="Rising while the loss falls: the answers and the teacher disagree; a smaller --hard-weight.",
        better="lower",
    ),
    MetricDoc(
        name="tokens",
        what="The real tokens that the step computed, prompts included, padding not; all processes together.",
        normal="Steady to within the spread of row lengths.",
        strange="Swinging widely: rows differ much in length, so steps weigh differently; packing helps.",
    ),
    MetricDoc(
        name="rows",
        what="The rows of the step, all processes and accumulated micro-batches together.",
        normal="The batch size; less only on the last step of an epoch.",
        strange="Smaller than the batch size elsewhere: rows were skipped; the notes say which and why.",
    ),
    MetricDoc(
        name="length_mean",
        what="The mean length of a completion in tokens, its end-of-turn token included.",
        normal="Steady around the mean of the data.",
        strange="Drifting over an epoch: the data are sorted by length, so shuffle them.",
    ),
    MetricDoc(
        name="length_max",
        what="The longest completion of the step in tokens.",
        normal="Below the limit on length.",
        strange="Always at the limit: many answers are cut, and a cut answer does not teach how to end.",
    ),
    MetricDoc(
        name="grad_norm",
        what="The Euclidean norm of the whole gradient, before it is clipped.",
        normal="0.1 to 10, highest in the first steps.",
        strange="A lone spike: one odd row (clipping contains it). Rising for many steps: the learning "
        "rate is too high. Exactly 0: nothing is being trained.",
    ),
    MetricDoc(
        name="learning_rate",
        what="The learning rate that this step was taken with.",
        normal="Up during the warm-up, then constant or falling, as the schedule says.",
        strange="Stuck at 0: the warm-up is longer than the run.",
    ),
    MetricDoc(
        name="held_out/loss",
        what="The loss on rows that are never trained on, all of them, each token weighing the same.",
        normal="Falls at first and then flattens, a little above the training loss.",
        strange="Rising while the training loss falls: overfitting; use fewer epochs or more data. "
        "Far below the training loss: held-out rows are also in the training data.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/token_accuracy",
        what="Token accuracy on the held-out rows.",
        normal="Rises at first and then flattens.",
        strange="Falling while the held-out loss falls too: the gains are on tokens that it "
        "still does not put first; harmless.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/perplexity",
        what="exp(held_out/loss): between how many equally likely tokens the model hesitates.",
        normal="3 to 20 for ordinary text; it depends on the tokenizer, so compare only runs that share one.",
        strange="As for held_out/loss, of which it is another face.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/entropy",
        what="How undecided the model is on held-out rows, in nats a token: 0 is certain.",
        normal="Falls with the held-out loss and stays near it.",
        strange="Far below the held-out loss: the model is sure of itself and wrong; it overfits.",
    ),
    MetricDoc(
        name="held_out/divergence",
        what="The distance from the teacher on held-out rows, in nats a token (`context` and `distil` only).",
        normal="Falls towards 0, or to what a smaller student can reach.",
        strange="Rising while the training loss falls: the answers cover too little of what is asked.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/accuracy",
        what="Accuracy on the held-out rows of a reward or preference run.",
        normal="Rises towards the rate at which annotators agree, and flattens.",
        strange="Above that rate: held-out prompts are also trained, or a length or format gives the better "
        "answer away: plaudit eval reward has probes for it.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/accuracy_unseen",
        what="Group runs: accuracy on groups that were never trained, with none of their comparisons shown.",
        normal="What all groups have in common; held_out/accuracy, after a context, is above it.",
        strange="As high as held_out/accuracy: the context tells nothing; the groups differ too little, or "
        "there are too few of them.",
        better="higher",
    ),
    MetricDoc(
        name="nll",
        what="Reward runs with reward.nll_coef: −log π per token of the preferred answers, by the language "
        "model's frozen head on the layers as they are now; no part of loss.",
        normal="Stays near what the language model began with, or falls.",
        strange="Rising: the layers forget how to write; a larger reward.nll_coef holds them.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/nll",
        what="The same on the preferred answers of held-out rows.",
        normal="Stays near what the language model began with.",
        strange="Rising while nll falls: the answers are learnt by heart.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/margin",
        what="The margin on the held-out rows of a reward or preference run.",
        normal="Grows more slowly than in training.",
        strange="Growing while held_out/accuracy falls: overfitting.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/mae",
        what="The error on held-out ratings, in points.",
        normal="Falls and flattens.",
        strange="Rising while the training error falls: overfitting.",
        better="lower",
    ),
    MetricDoc(
        name="held_out/reward_mean",
        what="The mean reward of the held-out answers.",
        normal="Near reward_mean.",
        strange="Far from it: the held-out rows are of another kind than the trained ones.",
    ),
    *PREFERENCE_DOCS,
    *POLICY_DOCS,
    MetricDoc(
        name="timing/seconds",
        what="Wall-clock seconds of the step, from its first forward pass to the end of its update.",
        normal="Steady once the first steps have warmed the machine up.",
        strange="Growing: memory is short and being swapped, or another program shares the processor.",
    ),
    MetricDoc(
        name="timing/tokens_per_second",
        what="tokens ÷ seconds of the step.",
        normal="Steady; it rises a little with longer rows.",
        strange="Falling by half: see timing/seconds; or much of the batch is padding.",
        better="higher",
    ),
    MetricDoc(
        name="timing/rows_per_second",
        what="rows ÷ seconds of the step.",
        normal="Moves against the length of the rows.",
        strange="Falling while tokens_per_second is steady: the rows have become longer; nothing is wrong.",
        better="higher",
    ),
    MetricDoc(
        name="timing/memory_mib",
        what="The most memory held at once so far, in MiB: of the device on a GPU, of the process otherwise.",
        normal="Grows during the first steps, then flat.",
        strange="Still growing after an epoch's longest row: something is kept from step to step.",
        better="lower",
    ),
    MetricDoc(
        name="timing/mfu",
        what="Model-FLOP utilisation: the arithmetic that the step needs ÷ its seconds ÷ the rate at which "
        "this machine multiplies large matrices, measured at the start.",
        normal="0.3 to 0.7 for a model wide enough to fill the processor; small models stay lower.",
        strange="Over 1: the machine was busy while its rate was measured. Under 0.1: tiny batches, slow "
        "reading of rows, or another program on the same cores.",
        better="higher",
    ),
)
"""Every metric that plaudit's own trainers report, in the order of the page."""

_DOC_BY_NAME = {doc.name: doc for doc in METRIC_DOCS}


def lower_is_better(name: str) -> bool | None:
    """Whether a lower value is better; None where neither direction is, or the name is not one of ours.

    >>> lower_is_better("held_out/loss"), lower_is_better("learning_rate")
    (True, None)
    """
    better = _DOC_BY_NAME[name].better if name in _DOC_BY_NAME else None
    return None if better is None else better == "lower"


def metric_table() -> str:
    """The table of docs/metrics.md, in Markdown."""
    head = ["| metric | what it is | normal | a strange value | better |", "|---|---|---|---|---|"]
    rows = [
        f"| `{doc.name}` | {doc.what} | {doc.normal} | {doc.strange} | {doc.better or '–'} |"
        for doc in METRIC_DOCS
    ]
    return "\n".join([*head, *rows]) + "\n"
