"""What every metric means, in words: the source of the table in docs/metrics.md."""

from __future__ import annotations

from plaudit.training.metric_doc import MetricDoc
from plaudit.training.metric_docs_policy import POLICY_DOCS
from plaudit.training.metric_docs_preference import PREFERENCE_DOCS

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
        name="error",
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
        name="held_out/margin",
        what="The margin on the held-out rows of a reward or preference run.",
        normal="Grows more slowly than in training.",
        strange="Growing while held_out/accuracy falls: overfitting.",
        better="higher",
    ),
    MetricDoc(
        name="held_out/error",
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

_BY_NAME = {doc.name: doc for doc in METRIC_DOCS}


def lower_is_better(name: str) -> bool | None:
    """Whether a lower value is better; None where neither direction is, or the name is not one of ours.

    >>> lower_is_better("held_out/loss"), lower_is_better("learning_rate")
    (True, None)
    """
    better = _BY_NAME[name].better if name in _BY_NAME else None
    return None if better is None else better == "lower"


def metric_table() -> str:
    """The table of docs/metrics.md, in Markdown."""
    head = ["| metric | what it is | normal | a strange value | better |", "|---|---|---|---|---|"]
    rows = [
        f"| `{doc.name}` | {doc.what} | {doc.normal} | {doc.strange} | {doc.better or '–'} |"
        for doc in METRIC_DOCS
    ]
    return "\n".join([*head, *rows]) + "\n"
