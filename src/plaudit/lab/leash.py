"""Reward hacking by length, without a leash and with one."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation, Shown
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import (
    by_prompt,
    course,
    leashes,
    mean_of,
    more,
    repetition,
    tokens,
    with_ends,
    worth,
)
from plaudit.lab.pictures import answers, over_steps
from plaudit.pipeline.folder import Folder
from plaudit.reports.doubts import LONGER

START, FREE, LOOSE, TIGHT = "sft", "free", "loose", "tight"
"""The policies of the config: before, without a leash, with the lesson's, with a shorter one."""
RUNAWAY = 1.5
"""A leash that lets answers grow by more holds nothing."""
_PROMPTS = 3


def look(folder: Folder) -> Seen:
    """Length, worth and repetition of every policy, and what the leash held."""
    found = evaluated(folder, "evaluation")
    names = {START: "at the start"} | leashes(folder, FREE, LOOSE, TIGHT)
    length, value = (
        {names[name]: course(folder, name, figure) for name in (FREE, LOOSE, TIGHT)}
        for figure in ("length_mean", "judge")
    )
    return Seen(
        claims=_claims(found, names[LOOSE], names[TIGHT]),
        table=_table(found, names),
        pictures=(
            Picture(
                title="How long answers are",
                says="Every letter is paid: how far do answers grow on each leash?",
                drawn=over_steps("Length", "tokens", length),
            ),
            Picture(
                title="What they are worth",
                says="The truth never teaches, it only looks on: compare it with the length.",
                drawn=over_steps("True worth", "by the world", value),
            ),
            Picture(
                title="Before and after",
                says="The prompts on which most was lost without a leash.",
                drawn=answers(found, names, _worst(found)),
            ),
        ),
    )


def _claims(found: PolicyEvaluation, loose: str, tight: str) -> tuple[Claim, ...]:
    share = "of the pairs of words said before"
    return (
        more("Without a leash answers grow.", found, (FREE, START), tokens, "tokens"),
        more("They are worth less for it.", found, (START, FREE), worth, "of true worth"),
        more("They say the same again and again.", found, (FREE, START), repetition, share),
        _short(found, loose, (START, LOOSE), RUNAWAY),
        more(f"{loose} alone does not stop them growing.", found, (LOOSE, START), tokens, "tokens"),
        _short(found, tight, (START, TIGHT), LONGER),
        more(f"{tight} keeps the worth.", found, (TIGHT, FREE), worth, "of true worth without a leash"),
    )


def _short(found: PolicyEvaluation, leash: str, policies: tuple[str, str], times: float) -> Claim:
    says = f"With {leash} answers stay below {times:g} times their length at the start."
    return more(says, found, policies, tokens, "tokens", times=times)


def _table(found: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            label,
            with_ends(policy(found, name).length),
            with_ends(policy(found, name).gold),
            with_ends(mean_of(found, name, repetition)),
            with_ends(policy(found, name).kl),
        )
        for name, label in names.items()
    )
    head = ("policy", "tokens", "true worth", "said before", "KL, nats")
    note = (
        f"{found.prompts} unseen prompts. Said before: the share of pairs of words that the answer had. "
        "In brackets: 95 % intervals over prompts."
    )
    return Table(head=head, rows=rows, note=note)


def _worst(found: PolicyEvaluation) -> list[Shown]:
    """The prompts on which most was lost without a leash."""
    before, after = (by_prompt(found, name, worth) for name in (START, FREE))
    lost = sorted(before, key=lambda prompt: after.get(prompt, 0.0) - before[prompt])[:_PROMPTS]
    return [next(one for one in found.every if one.prompt == prompt) for prompt in lost]


EXERCISE = Exercise(
    name="leash",
    title="What happens when every letter is paid, and what does the leash hold?",
    why=(
        "A reward that likes length is gamed by length: the policy learns to go on, and says the same again. "
        "People prefer longer answers a little, reward models learn that, and much of what RLHF gains can be "
        "length alone (Singhal et al. 2023, arXiv:2310.03716). The leash is the KL from the model at the "
        "start: every answer pays β for each nat of it (Ziegler et al. 2019, arXiv:1909.08593)."
    ),
    minutes=1.5,
    look=look,
    further=(
        "plaudit lab leash --set loose.policy.beta=0.2: a leash between the two",
        "plaudit lab leash --set free.shape.per_token=0.05: every token costs about what it pays",
    ),
)
"""Reward = length."""
