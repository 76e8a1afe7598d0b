"""Who draws what a row learns from: the policy, or a mixture with its reference; and what cannot be drawn."""

from __future__ import annotations

from plaudit.errors import UserError
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_facts import PolicyFacts
from plaudit.training.policy_row import PolicyRow


def refuse_other_draws(
    facts: PolicyFacts, row: PolicyRow, config: PolicyConfig, *, answers: float, mixture: float
) -> None:
    """Answers that nothing can be learnt from, or not by this row."""
    draw = config.draw
    if draw.unlike == "yes" and answers < 2:
        raise UserError(
            f"draw.unlike: {facts.name} draws one answer to a prompt, and one is never unlike itself"
        )
    if (row.greedy or row.duels) and draw.replay:
        other = "the likeliest one" if row.greedy else "a rival's"
        raise UserError(
            f"draw.replay: {facts.name} measures answers against {other} of the same moment, so "
            "those of an earlier round have nothing to be measured against; leave it out"
        )
    if draw.mixture is not None and not (row.contrasts or row.duels):
        raise UserError(
            f"draw.mixture: {facts.name} learns from answers of the policy itself, and those of another "
            "distribution would teach it something else; leave it out, or take ipo-md or nash-md"
        )
    if mixture:
        _refuse_other_mixtures(facts, row, config)


def _refuse_other_mixtures(facts: PolicyFacts, row: PolicyRow, config: PolicyConfig) -> None:
    if config.reference.kind == "none":
        raise UserError(
            f"reference.kind none: {facts.name} draws from a mixture of the policy and its reference; leave "
            "it out, or add --draw.mixture 0"
        )
    if config.environment is not None:
        raise UserError(
            f"environment: {facts.name} draws from a mixture of the policy and its reference, and episodes "
            "are played by the policy alone; give --reward in its place, or add --draw.mixture 0"
        )
    if row.duels:
        return
    if row.divergence != "none":
        raise UserError(
            f"policy.divergence {row.divergence}: the answers of {facts.name} are those of a mixture, over "
            "which the policy's KL cannot be estimated; leave it out, since the loss holds the policy already"
        )
    if config.draw.replay or config.trust.cap:
        name = "draw.replay" if config.draw.replay else "trust.cap"
        raise UserError(
            f"{name} weighs answers as if the policy should have drawn them, and {facts.name} wants those of "
            "a mixture; leave it out"
        )


def mixture_in_words(row: PolicyRow, mixture: float) -> tuple[str, ...]:
    """Who draws, for the user."""
    whose = "each prompt has a rival's answer, which only scores are compared with" if row.duels else ""
    if not mixture:
        return (f"{whose}; it is drawn from the policy itself",) if whose else ()
    source = f"a mixture of {1 - mixture:g} of the policy and {mixture:g} of its reference (log-probs)"
    return (f"{whose}; it is drawn from {source}" if whose else f"answers are drawn from {source}",)
