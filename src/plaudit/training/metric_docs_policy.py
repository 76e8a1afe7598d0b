"""What the metrics of policy optimisation mean, in words."""

from __future__ import annotations

from plaudit.training.metric_doc import MetricDoc

_REWARDED = (
    MetricDoc(
        name="reward",
        what="Policy runs: the mean score of the round's answers that have a verdict, before shaping and "
        "before the KL. With several parts each is there as reward/NAME.",
        normal="Rising, with noise; every round asks other prompts.",
        strange="Rising while held_out/judge falls: the reward is being gamed. Flat: the rate is too low, "
        "or all answers to a prompt have one score (see flat).",
        better="higher",
    ),
    MetricDoc(
        name="reward_std",
        what="Policy runs: the standard deviation of these scores, over the round.",
        normal="As wide as the prompts are unlike, and shrinking slowly.",
        strange="0: nothing is left to compare.",
    ),
    MetricDoc(
        name="preferred",
        what="Policy runs against a rival (nash-md): the mean of P(y ≻ y′) = σ(r − r′), over its answers.",
        normal="A little above 0.5: the rival moves along with the policy.",
        strange="Near 1: the rival is left far behind; a smaller --draw.mixture. Exactly 0.5: all scores are "
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
        name="kl_root",
        what="Policy runs: √kl_k3, the axis along which gold rewards rise and fall (Gao et al. 2022).",
        normal="Growing slowly.",
        strange="Growing while a held-out judge falls: stop earlier or raise β.",
    ),
    MetricDoc(
        name="kl_old",
        what="Policy runs: KL(π_old ‖ π) a token, from the policy that drew the round, by e^ρ − 1 − ρ.",
        normal="0 at a round's first move, exactly; 0.001 to 0.02 at its last one.",
        strange="Above 0.05: rounds move too far; lower the rate or --policy.epochs, or set "
        "--policy.stop-at.",
    ),
    MetricDoc(
        name="beta",
        what="Policy runs: the coefficient of the divergence from the reference in this round.",
        normal="Fixed, or moving slowly towards what keeps kl at --policy.target.",
        strange="Growing without end: the target is below what the policy needs to learn anything.",
    ),
)
_STEPS = (
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
        strange="Rising while step_lowest falls: easy steps are added to wrong ones.",
        better="higher",
    ),
    MetricDoc(
        name="step_lowest",
        what="Policy runs with --process.pay: the mean over answers of their lowest score of a step.",
        normal="Rising.",
        strange="Flat while reward rises: what is wrong stays wrong.",
        better="higher",
    ),
)
_ROUND = (
    MetricDoc(
        name="finished",
        what="Policy runs: the share of answers that ended by themselves or at a stop.",
        normal="Near 1.",
        strange="Low: answers are cut, and fragments are scored; raise --draw.max-tokens.",
        better="higher",
    ),
    MetricDoc(
        name="undecided",
        what="Policy runs: the share of answers that the reward has no verdict on. They are left out.",
        normal="0.",
        strange="Large: the reward lacks what it needs, such as an answer in the prompts' rows.",
    ),
    MetricDoc(
        name="flat",
        what="Policy runs with several answers to a prompt: the share of prompts whose answers all have one "
        "score.",
        normal="0 with a learned reward; 0.2 to 0.6 with one of right and wrong.",
        strange="Near 1: prompts are too easy or too hard; --draw.unlike yes asks others instead.",
    ),
    MetricDoc(
        name="dropped",
        what="Policy runs: the share of prompts that were asked and left out of the round.",
        normal="0, or about flat where --draw.unlike is on.",
        strange="Above 0.8: most of the drawing is for nothing.",
    ),
    MetricDoc(
        name="replayed",
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
        name="sampler_gap",
        what="Policy runs: how far the sampler's log-probs of the drawn tokens are from the trainer's, in "
        "nats a token, on average; sampler_gap_max is the largest.",
        normal="1e-6 in float32, up to 0.02 in bfloat16.",
        strange="Larger: the run stops when it is so large that other weights must have drawn them.",
    ),
    MetricDoc(
        name="sampler_gap_max",
        what="Policy runs: the largest such difference at a token.",
        normal="1e-5 in float32, up to 0.5 in bfloat16.",
        strange="Larger, with a small mean: single tokens; see --trust.cap.",
    ),
)
_MOVES = (
    MetricDoc(
        name="ratio",
        what="Policy runs: the mean of π / π_old over the tokens of the move.",
        normal="1 at a round's first move, exactly; then 0.98 to 1.02.",
        strange="Far from 1: rounds move too far.",
    ),
    MetricDoc(
        name="clipped_low",
        what="Policy runs: the share of tokens that are bad and have become rarer than 1 − ε: they move no "
        "more.",
        normal="0 to 0.1.",
        strange="Above 0.3: most of the round's later moves are wasted.",
    ),
    MetricDoc(
        name="clipped_high",
        what="Policy runs: the share of tokens that are good and have become likelier than 1 + ε.",
        normal="0 to 0.1.",
        strange="Above 0.3: as with clipped_low.",
    ),
    MetricDoc(
        name="value_loss",
        what="Policy runs with a critic: ½(V − R)² a token, with its clip.",
        normal="Falling at first.",
        strange="Rising: returns grow faster than the critic follows; raise --critic.rate.",
        better="lower",
    ),
    MetricDoc(
        name="value",
        what="Policy runs with a critic: the mean of what it expects, before the round's first move.",
        normal="Following the reward.",
        strange="Far from the reward for long: the critic does not learn.",
    ),
    MetricDoc(
        name="explained",
        what="Policy runs with a critic: 1 − Var(R − V) / Var(R) over the tokens of the round.",
        normal="Rising from about 0 to 0.3 to 0.9.",
        strange="Below 0 for long: a constant would do better.",
        better="higher",
    ),
    MetricDoc(
        name="penalty",
        what="Runs of ppo-penalty: the coefficient of KL(π_old ‖ π) in the loss. It is doubled or halved by "
        "the KL at a round's last move.",
        normal="Settling near what keeps that KL at --policy.limit.",
        strange="Doubling without end: the rate is too high for any penalty.",
    ),
    MetricDoc(
        name="step_share",
        what="Policy runs with TRPO's step: how much of the longest step was taken, after the line search.",
        normal="1, 0.5 or 0.25.",
        strange="0 again and again: no length improves the surrogate within the limit; draw more answers.",
    ),
    MetricDoc(
        name="step_kl",
        what="Policy runs with TRPO's step: KL(π_old ‖ π) a token after it, on the round's answers.",
        normal="At most --policy.limit, always.",
        strange="Far below the limit: the curvature is overestimated (damping), which is safe and slow.",
    ),
    MetricDoc(
        name="ptx_loss",
        what="Policy runs with --ptx.data: the negative log-likelihood a token of the text that is not to be "
        "forgotten.",
        normal="Staying where it was.",
        strange="Rising: raise --ptx.weight.",
        better="lower",
    ),
)
_LOOKS = (
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
        what="Policy runs with --judge.by: the same answers' mean score by a judge that never teaches. It "
        "chooses the model and ends the run.",
        normal="Rising, then level.",
        strange="Falling while held_out/reward rises: the reward is being gamed.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/finished",
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
        name="held_out/kl_root",
        what="Policy runs: √ of held_out/kl_k3, the axis of the chart of reward against judge.",
        normal="Growing slowly.",
        strange="As with kl_root.",
    ),
)
POLICY_DOCS = (*_REWARDED, *_STEPS, *_ROUND, *_MOVES, *_LOOKS)
"""The metrics of policy runs, in the order of the page."""
