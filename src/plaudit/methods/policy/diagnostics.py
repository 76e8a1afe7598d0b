"""Diagnostics of policy optimisation: known failure modes, reported as a sentence when they occur.

Each sentence has a beginning by which it is known again, so that a run says it once, and names the page
that explains it.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev

from plaudit.engine.step_report import StepReport, finite_series
from plaudit.methods.policy.row import PolicyAlgorithm

DOCS_PAGE = "docs/policy.md"
FALSE_ALARMS = 0.05
"""The share of runs, in which nothing is gamed, that may be told so."""
COLLAPSED_ANSWER = 0.3
"""Nats an answer below which about three of four answers to a prompt are the same one."""
LEAST_EFFECTIVE, MOST_BOUNDED = 0.5, 0.1
"""Rounds ahead drift where fewer samples are left, or more weights lie beyond the cap."""
WINDOW = 5
"""The most reports in a window at the start or the end."""


def diagnostics(
    row: PolicyAlgorithm,
    reports: Sequence[StepReport],
    *,
    sums_step_scores: bool = False,
    objection: str = "",
) -> Mapping[str, str]:
    """The diagnostics that the reports so far call for: from how each sentence begins to how it goes on.
    ``sums_step_scores`` says that every step of an answer is paid its own score, ``objection`` why nothing
    was learnt from a round."""
    return {
        **_zero_loss(row, reports),
        **_negative_kl(reports),
        **_entropy_collapse(reports),
        **_zero_std_groups(row, reports),
        **_round_without_verdict(objection),
        **_truncated_completions(row, reports),
        **_length_growth(reports),
        **(_step_padding(reports) if sums_step_scores else {}),
        **_no_verdict(reports),
        **_idle_steps(reports),
        **_clipped_tokens(reports),
        **_stale_answers(reports),
        **_useless_critic(reports),
        **_overoptimised_reward(reports),
    }


def _zero_loss(row: PolicyAlgorithm, reports: Sequence[StepReport]) -> Mapping[str, str]:
    ratios, losses = finite_series("ratio", reports), finite_series("loss", reports)
    compares = "group" in row.needs or row.whitens_advantages
    if not compares or row.divergence == "loss" or len(losses) < 2:
        return {}
    # Only while every ratio is 1 is the loss minus a mean advantage, which is 0 by construction.
    if any(abs(value - 1) > 1e-6 for value in ratios) or any(abs(value) > 0.02 for value in losses):
        return {}
    return {
        "the loss is close to 0": ", and that is expected: a round has one move, so every ratio is 1, and "
        "the advantages of a round add up to 0. The gradient is not 0; look at the reward. "
        f"{DOCS_PAGE}#loss-0"
    }


def _negative_kl(reports: Sequence[StepReport]) -> Mapping[str, str]:
    kls = finite_series("kl", reports)[-WINDOW:]
    # Three standard errors below 0: single rounds of few answers fall below by chance.
    if len(kls) < WINDOW or fmean(kls) + 3 * stdev(kls) / math.sqrt(WINDOW) >= -0.01:
        return {}
    return {
        "the KL is below 0": f" ({fmean(kls):.3f} nats an answer). A KL never is; its estimate from a few "
        "answers can be, and stays so where top-k, top-p or min-p leave tokens out when answers are drawn. "
        f"Draw from the whole distribution, or look at kl_k3. {DOCS_PAGE}#kl-below-0"
    }


def _entropy_collapse(reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _first_and_last_means("entropy", reports)
    lengths = finite_series("length_mean", reports)[-WINDOW:]
    # What is drawn is answers: many surprising tokens or a few, what matters is how often the same one comes.
    of_answer = after * (fmean(lengths) if lengths else 1.0)
    # `not a < b`, and not `a >= b`: of too few reports both are NaN, and then nothing is said.
    if not after < 0.3 * before or not of_answer < COLLAPSED_ANSWER:
        return {}
    return {
        "the entropy is collapsing": f" ({before:.2f} → {after:.2f} nats a token, {of_answer:.2f} an "
        "answer): the policy says the same again and again, and soon nothing is left to compare. Raise β, "
        "add --entropy-coef 0.01, clip higher (--clip-high 0.28), or lower the learning rate. "
        f"{DOCS_PAGE}#entropy"
    }


def _zero_std_groups(row: PolicyAlgorithm, reports: Sequence[StepReport]) -> Mapping[str, str]:
    shares = finite_series("frac_zero_std", reports)[-WINDOW:]
    groups = finite_series("reward_std", reports)
    # A share of exactly 1 is also what single answers give, which are never unlike each other.
    if "group" in row.needs and shares and math.isclose(shares[-1], 1.0):
        return {
            "no prompt teaches anything": ": all answers to each prompt of a round have one score. Where "
            "that is so from the beginning the run ends after three rounds. Look at the reward, draw more "
            f"answers, or choose other prompts. {DOCS_PAGE}#flat"
        }
    if not shares or not groups or not fmean(shares) > 0.6 or math.isclose(fmean(shares), 1.0):
        return {}
    return {
        "most prompts teach nothing": f": all answers have one score at {fmean(shares):.0%} of them, since "
        "they are too easy or too hard. Draw more answers, add --dynamic-sampling, or choose other prompts. "
        f"{DOCS_PAGE}#flat"
    }


def _truncated_completions(row: PolicyAlgorithm, reports: Sequence[StepReport]) -> Mapping[str, str]:
    finished_shares = finite_series("frac_finished", reports)[-WINDOW:]
    if not finished_shares or not fmean(finished_shares) < 0.5:
        return {}
    advice = "and their score is --missing-eos-penalty. If it stays so, raise --draw.max-tokens"
    if row.missing_eos_penalty is None:
        advice = "and scores are those of fragments. Raise --draw.max-tokens, or set --missing-eos-penalty"
    share = f"{1 - fmean(finished_shares):.0%} do not come to an end within the longest length"
    return {"most answers are cut": f": {share}, {advice}. {DOCS_PAGE}#cut"}


def _length_growth(reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _first_and_last_means("length_mean", reports)
    if not after > 1.5 * before + 4:
        return {}
    return {
        "answers are growing longer": f" ({before:.0f} → {after:.0f} tokens). Where the reward likes length "
        "this is how it is gamed; compare the held-out judge, or charge for it with --shape.per-token. "
        f"{DOCS_PAGE}#length"
    }


def _step_padding(reports: Sequence[StepReport]) -> Mapping[str, str]:
    before, after = _first_and_last_means("steps_mean", reports)
    _, score = _first_and_last_means("step_score", reports)
    if not after > 1.5 * before + 1:
        return {}
    return {
        "answers have more and more steps": f" ({before:.1f} → {after:.1f}), of a mean score of {score:.2g}: "
        "payments of steps add up, so a further step is worth its score, whatever it is good for. Raise "
        f"--process.baseline, or pay changes with --process.pay min. {DOCS_PAGE}#process-rewards"
    }


def _no_verdict(reports: Sequence[StepReport]) -> Mapping[str, str]:
    shares = finite_series("frac_no_verdict", reports)[-WINDOW:]
    if not shares or not fmean(shares) > 0.2:
        return {}
    return {
        "the reward has no verdict": f" on {fmean(shares):.0%} of the answers; they are left out and count "
        f"as nothing, not as 0. Look at what it needs. {DOCS_PAGE}#no-verdict"
    }


def _round_without_verdict(objection: str) -> Mapping[str, str]:
    if not objection:
        return {}
    return {
        "a round taught nothing": f": {objection}. After three such rounds in a row the run ends. "
        f"{DOCS_PAGE}#no-verdict"
    }


def _idle_steps(reports: Sequence[StepReport]) -> Mapping[str, str]:
    # Figures of rewards come with a round's micro-batches, so a step without any reports none.
    idle_steps = sum("reward" not in report.values for report in reports)
    if len(reports) < 2 * WINDOW or not 0.3 * len(reports) < idle_steps < len(reports):
        return {}
    return {
        "many steps had nothing to learn from": f": {idle_steps} of {len(reports)}. Their rounds were ended "
        "early (--target-kl), or had no verdict, or only answers of one score where these are left out. "
        f"{DOCS_PAGE}#nothing-to-learn"
    }


def _clipped_tokens(reports: Sequence[StepReport]) -> Mapping[str, str]:
    low, high = (finite_series(f"clip_frac_{side}", reports)[-WINDOW:] for side in ("low", "high"))
    if not low or not high or not fmean(low) + fmean(high) > 0.4:
        return {}
    return {
        "many tokens are clipped": f" ({fmean(low) + fmean(high):.0%}): rounds move further than they may, "
        f"and the rest of a round is wasted. Lower the learning rate or --update-epochs. {DOCS_PAGE}#clipped"
    }


def _stale_answers(reports: Sequence[StepReport]) -> Mapping[str, str]:
    left = finite_series("effective_samples", reports)[-WINDOW:]
    beyond = finite_series("frac_weights_bounded", reports)[-WINDOW:]
    if len(left) < WINDOW or not (fmean(left) < LEAST_EFFECTIVE or fmean(beyond) > MOST_BOUNDED):
        return {}
    return {
        "answers are too old": f": weighed by how likely they are now, {fmean(left):.0%} of their tokens are "
        f"left, and {fmean(beyond):.0%} lie beyond the cap. The policy moves further than rounds ahead "
        f"allow: lower --learning-rate or --rollout.lag. {DOCS_PAGE}#too-old"
    }


def _useless_critic(reports: Sequence[StepReport]) -> Mapping[str, str]:
    explained = finite_series("explained_variance", reports)
    if len(explained) < 2 * WINDOW or not fmean(explained[-WINDOW:]) < 0:
        return {}
    return {
        "the critic explains nothing": f" (explained variance {fmean(explained[-WINDOW:]):.2f}): a constant "
        "would do better, and advantages are noise. Raise --value-lr-scale, begin it as a reward model, or "
        f"do without: grpo, rloo. {DOCS_PAGE}#critic"
    }


def _overoptimised_reward(reports: Sequence[StepReport]) -> Mapping[str, str]:
    names = ("held_out/reward", "held_out/judge", "held_out/judge_se")
    proxy, judge, error = (finite_series(name, reports) for name in names)
    if len(judge) < 3 or not len(proxy) == len(judge) == len(error):
        return {}
    best = max(range(len(judge)), key=lambda step: judge[step])
    # Of any two looks of a run whose judge stays the same, one in twenty runs has two that lie so far apart.
    deviations = NormalDist().inv_cdf(1 - FALSE_ALARMS / (len(judge) * (len(judge) - 1) / 2))
    # Twice in a row, and not by the looks' own errors alone: the best of many looks is high by luck as well.
    judge_fell = best < len(judge) - 2 and all(
        judge[best] - judge[late] > deviations * math.hypot(error[best], error[late]) for late in (-1, -2)
    )
    # Where both fall the policy has become worse, and is not gaming anything.
    if not judge_fell or not proxy[-1] > proxy[best]:
        return {}
    return {
        "the reward is being gamed": f": it rises on held-out prompts ({proxy[best]:.3g} → {proxy[-1]:.3g}) "
        f"while the judge falls, by more than chance ({judge[best]:.3g} → {judge[-1]:.3g}). The model of the "
        "best look is kept, unless "
        f"judge.chooses is off; raise β, or mend the reward. {DOCS_PAGE}#over-optimisation"
    }


def _first_and_last_means(name: str, reports: Sequence[StepReport]) -> tuple[float, float]:
    """The means of the first and the last figures; not numbers while there are too few."""
    series = finite_series(name, reports)
    # Half of the series at most, so that the first and the last window share no report.
    count = min(WINDOW, len(series) // 2)
    return (fmean(series[:count]), fmean(series[-count:])) if count else (math.nan, math.nan)
