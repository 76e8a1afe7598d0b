"""How often corrected intervals hold the truth, by judges that err in ways that are set."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from plaudit.evaluation.policies import corrected
from plaudit.evaluation.shares import share_estimate

Array = np.ndarray
Judge = Callable[[Array, np.random.Generator], Array]
"""From what is true of each row to the judge's chance of it."""


def _errs(sensitivity: float, specificity: float) -> Judge:
    def judge(truth: Array, rng: np.random.Generator) -> Array:
        right = rng.random(len(truth)) < np.where(truth > 0.5, sensitivity, specificity)
        sure = 1 - 0.35 * rng.random(len(truth)) ** 2
        return np.where(right == (truth > 0.5), sure, 1 - sure)

    return judge


def _calibrated(truth: Array, rng: np.random.Generator) -> Array:
    """Right with the chance that it states, from a half up to nearly always."""
    sure = 0.5 + 0.5 * np.sqrt(rng.random(len(truth)))
    right = rng.random(len(truth)) < sure
    return np.where(right == (truth > 0.5), sure, 1 - sure)


JUDGES: dict[str, Judge] = {
    "good (90 %)": _errs(0.9, 0.9),
    "knows how sure it is": _calibrated,
    "85 %, as in the audit": _errs(0.85, 0.85),
    "biased to Yes": _errs(0.97, 0.6),
    "useless": lambda truth, rng: rng.random(len(truth)),
    "confidently wrong": _errs(0.2, 0.3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    truth: float
    rows: int
    labels: int
    answers: int = 1
    """To each prompt; those of one prompt are alike."""
    chosen: bool = False
    """Whether labels go to what the judge is unsure of, with known probabilities."""
    strata: bool = True

    @property
    def name(self) -> str:
        how = [f"{self.answers} answers to a prompt"] * (self.answers > 1)
        how += ["chosen by 1/chance"] * self.chosen + ["no strata"] * (not self.strata)
        return (
            f"{self.truth:.1%} true, {self.labels} of {self.rows:,} labelled{''.join(f', {h}' for h in how)}"
        )


SETTINGS = (
    Setting(truth=0.3, rows=1000, labels=200),
    Setting(truth=0.3, rows=1000, labels=200, strata=False),
    Setting(truth=0.55, rows=400, labels=100),
    Setting(truth=0.1, rows=2000, labels=300),
    Setting(truth=0.3, rows=1200, labels=240, answers=4),
    Setting(truth=0.3, rows=2000, labels=300, chosen=True),
    Setting(truth=0.028, rows=1000, labels=300),
)


def drawn(setting: Setting, judge: Judge, seed: int) -> corrected.JudgedSample:
    """One world: what is true, what the judge says, and which rows people labelled."""
    rng = np.random.default_rng(seed)
    prompts = np.arange(setting.rows) // setting.answers
    if setting.answers == 1:
        level = np.full(setting.rows, setting.truth)
    else:
        level = rng.beta(2 * setting.truth, 2 * (1 - setting.truth), prompts.max() + 1)[prompts]
    truth = (rng.random(setting.rows) < level).astype(float)
    judged = judge(truth, rng)
    probabilities = np.full(setting.rows, setting.labels / setting.rows)
    if setting.chosen:
        unsure = 0.2 + 1 - 2 * np.abs(judged - 0.5)
        probabilities = np.clip(unsure * setting.labels / unsure.sum(), 0.01, 1)
        is_labelled = rng.random(setting.rows) < probabilities
    elif setting.answers > 1:
        # Whole prompts are labelled.
        few = rng.permutation(prompts.max() + 1)[: setting.labels // setting.answers]
        is_labelled = np.isin(prompts, few)
    else:
        is_labelled = np.isin(np.arange(setting.rows), rng.permutation(setting.rows)[: setting.labels])
    sample = corrected.JudgedSample(
        judged=judged,
        people=np.where(is_labelled, truth, np.nan),
        prompts=prompts,
        probabilities=probabilities if setting.chosen else None,
    )
    return replace(sample, strata=corrected.confidence_strata(sample)) if setting.strata else sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    raw: float
    """How often the interval of the judge's word alone holds the truth."""
    corrected: float
    worth: float
    """Of so many labels as there are, the mean of what they are worth, as a share."""
    width: float
    """Of the interval, over that of the labels alone."""


def held(setting: Setting, judge: Judge, times: int) -> Held:
    found = list[tuple[bool, bool, float, float]]()
    for seed in range(times):
        sample = drawn(setting, judge, seed)
        fixed = corrected.corrected_mean(sample)
        by_labels = corrected.corrected_mean(replace(sample, strata=None), tuning=0.0)
        raw = share_estimate((sample.judged >= 0.5).astype(float), sample.prompts)
        assert raw.low is not None
        assert raw.high is not None
        found.append(
            (
                raw.low <= setting.truth <= raw.high,
                fixed.low <= setting.truth <= fixed.high,
                fixed.worth / fixed.labels,
                (fixed.high - fixed.low) / (by_labels.high - by_labels.low),
            )
        )
    raw, inside, worth, width = np.array(found, dtype=float).T
    return Held(
        raw=float(raw.mean()),
        corrected=float(inside.mean()),
        worth=float(np.median(worth)),
        width=float(width.mean()),
    )


def lines(times: int) -> Iterator[str]:
    yield "| labels | judge | raw holds the truth | corrected | 100 labels are worth | width / labels alone |"
    yield "|---|---|---|---|---|---|"
    for setting in SETTINGS:
        for name, judge in JUDGES.items():
            found = held(setting, judge, times)
            yield (
                f"| {setting.name} | {name} | {found.raw:.1%} | {found.corrected:.1%} | "
                f"{100 * found.worth:.0f} | {found.width:.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = list[str]()
    for line in lines(args.times):
        print(line, flush=True)
        found.append(line)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "corrected.md").write_text("\n".join(found) + "\n", "utf-8")


if __name__ == "__main__":
    main()
