"""PPO by a learnt reward on leashes of three lengths."""

from __future__ import annotations

from collections.abc import Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import course, distance, leashes, more, reward, with_ends, worth
from plaudit.lab.pictures import over_steps
from plaudit.pipeline.folder import Folder

START, LOW, MIDDLE, HIGH = "sft", "low", "middle", "high"
"""The policies of the config: before, and by the price of their distance."""


def look(folder: Folder) -> Seen:
    """Reward, distance and worth on each leash."""
    found = evaluated(folder, "evaluation")
    names = leashes(folder, LOW, MIDDLE, HIGH)
    score, root, value = (
        {label: course(folder, name, figure) for name, label in names.items()}
        for figure in ("reward", "kl_root", "judge")
    )
    return Seen(
        claims=_claims(found, names),
        table=_table(found, {START: "at the start", **names}),
        pictures=(
            Picture(
                title="What the reward says",
                says="What is optimised: where does it rise, and where does it stop?",
                drawn=over_steps("Learnt reward", "held-out answers", score),
            ),
            Picture(
                title="How far each went",
                says="What the reward was bought with.",
                drawn=over_steps("√KL from the start", "nats an answer", root),
            ),
            Picture(
                title="What the answers are worth",
                says="What was bought: compare it with the reward.",
                drawn=over_steps("True worth", "by the world, never shown", value),
            ),
        ),
    )


def _claims(found: PolicyEvaluation, names: Mapping[str, str]) -> tuple[Claim, ...]:
    low, middle, high = (names[name] for name in (LOW, MIDDLE, HIGH))
    lost = "holds nothing here: answers are worth less than at the start."
    far, value = "nats an answer", "of true worth"
    return (
        more(f"{low} goes further than {high}.", found, (LOW, HIGH), distance, far),
        more(f"{middle} goes further than {high}.", found, (MIDDLE, HIGH), distance, far),
        more(
            f"{low} gets more of the reward than at the start.", found, (LOW, START), reward, "of the reward"
        ),
        more(f"{low} {lost}", found, (START, LOW), worth, value),
        more(f"{middle} {lost}", found, (START, MIDDLE), worth, value),
        more(f"With {high} answers are worth more than with {middle}.", found, (HIGH, MIDDLE), worth, value),
    )


def _table(found: PolicyEvaluation, names: Mapping[str, str]) -> Table:
    rows = tuple(
        (label, *map(with_ends, (one.reward, one.gold, one.kl, one.length)))
        for label, one in ((label, policy(found, name)) for name, label in names.items())
    )
    head = ("leash", "reward", "true worth", "KL, nats", "tokens")
    return Table(
        head=head,
        rows=rows,
        note=f"{found.prompts} unseen prompts. In brackets: 95 % intervals over prompts.",
    )


EXERCISE = Exercise(
    name="coefficients",
    title="How dear must distance be?",
    why=(
        "β is the price of a nat of distance from the model at the start. Too low, and the policy learns "
        "what is wrong with its reward; too high, and it learns nothing (Ziegler et al. 2019, "
        "arXiv:1909.08593; Stiennon et al. 2020, arXiv:2009.01325). No β is right for all rewards: twice the "
        "reward wants twice the β. Annotators who love length teach this one."
    ),
    minutes=1.5,
    look=look,
    further=(
        "plaudit lab coefficients --set middle.policy.beta=0.1: look for a leash between none and all",
        "plaudit lab coefficients --set comparisons.annotators=crowd: people who love length less",
    ),
)
"""Three KL coefficients."""
