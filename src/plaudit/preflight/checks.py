"""Every check, by its name, in the order in which they are shown; here those of the run's own settings."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from plaudit.engine.run_folder import flat_settings
from plaudit.preflight import contents, data, logprobs, prompts, rewards, sampling, tokenization, updates
from plaudit.preflight.check import Check, PreflightSubject, Result, not_applicable, passed, warned
from plaudit.wings import offered


def check_memory(subject: PreflightSubject) -> Result:
    """On a GPU the run is planned before any model is loaded, as `plaudit plan` does it: with its own rows,
    settings and number of processes. The peak is compared with all the memory that the GPU has. What other
    programs hold there is not looked at, nor is a run that cannot be planned, or one on a CPU."""
    return subject.memory or not_applicable("nobody has estimated what the run takes")


MEMORY = Check(name="memory", run=check_memory, at_start=True)
"""The check of a run's size, which the wing that plans runs estimates before a model is loaded."""


@cache
def usual_settings() -> Mapping[str, Mapping[str, Any]]:
    """Of each setting the least and the most that is taken for meant, and what is usual."""
    return yaml.safe_load((files("plaudit.preflight") / "usual_settings.yaml").read_text("utf-8"))


def check_settings(subject: PreflightSubject) -> Result:
    """Compares numbers among the run's settings with bounds far beyond what such runs have; 0, where it turns
    something off, is none of them. It warns of each that lies outside."""
    if not subject.settings:
        return not_applicable("the settings of the run are not known")
    figures = flat_settings(subject.settings)
    figures |= _ratios(subject, figures)
    doubts = list(_beyond(figures))
    if doubts:
        return warned("; ".join(doubts))
    return passed(f"{len(usual_settings().keys() & figures.keys())} settings are of a usual size")


def _beyond(figures: Mapping[str, Any]) -> Iterator[str]:
    for name, usual in usual_settings().items():
        value = figures.get(name)
        try:
            number = float(value or 0)
        except (TypeError, ValueError):
            continue
        only = usual.get("only")
        if not number or (only is not None and any(figures.get(key) != word for key, word in only.items())):
            continue
        if not usual.get("least", number) <= number <= usual.get("most", number):
            yield f"{name} is {number:g}: {usual['usual']}"


def _ratios(subject: PreflightSubject, settings: Mapping[str, Any]) -> dict[str, float]:
    """Settings that say something only beside another one."""
    made = dict[str, float]()
    rank, alpha = settings.get("lora.rank"), settings.get("lora.alpha")
    if rank and alpha:
        made["lora.alpha / lora.rank"] = alpha / rank
    warmup, rows = settings.get("optimizer.warmup", 0), 0 if subject.job is None else subject.job.rows
    # Rounds of answers are several steps each, as many as the algorithm makes of them.
    steps = settings.get("steps") or (
        0 if subject.sampler else settings.get("epochs", 0) * rows / settings["batch_size"]
    )
    if steps:
        made["optimizer.warmup / all steps"] = warmup if warmup < 1 else warmup / steps
    return made


SETTINGS = Check(name="settings", run=check_settings, at_start=True)


def check_picture_places(subject: PreflightSubject) -> Result:
    """The first rows with pictures go through the processor of the model's own folder as a whole, words and
    pictures at once. Its tokens must be the prompt's, so that every picture has as many places as the tower
    makes features, in order, and none was cut."""
    return _of_pictures("picture_places", subject)


def check_picture_matters(subject: PreflightSubject) -> Result:
    """What the model says of the answers of a few rows, with their own pictures and with those of another
    row. Were it the same, the model would not see them."""
    return _of_pictures("picture_seen", subject)


def _of_pictures(name: str, subject: PreflightSubject) -> Result:
    sees = subject.encoder.read_extras is not None
    return offered(name, of="pictures")(subject) if sees else not_applicable("the model takes words alone")


PICTURES = (
    Check(name="picture-places", run=check_picture_places, at_start=True),
    Check(name="picture-seen", run=check_picture_matters, at_start=True),
)
CHECKS: Mapping[str, Check] = {
    check.name: check
    for group in (
        tokenization.CHECKS,
        prompts.CHECKS,
        data.CHECKS,
        contents.CHECKS,
        logprobs.CHECKS,
        PICTURES,
        updates.GRADIENT_CHECKS,
        updates.CHECKS,
        sampling.CHECKS,
        rewards.CHECKS,
        (SETTINGS, MEMORY),
    )
    for check in group
}
