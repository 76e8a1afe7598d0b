"""The rows of self-play fine-tuning: the demonstration against the newest model's own answer.

Chen et al. 2024, arXiv:2401.01335: with y the demonstration and y' ~ π_t an answer of the opponent, which is
the model of the round before, a round minimises

    E [−log σ(λ log π(y|x)/π_t(y|x) − λ log π(y'|x)/π_t(y'|x))],

which is DPO with β = λ and the opponent as its reference. Where y' is y the loss is constant: such rows are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, plain_text
from plaudit.errors import UserError
from plaudit.methods.iterative.rounds import PromptSource, RoundFigures, ScoredAnswer
from plaudit.tokens.prompts import EncodedPrompt


def read_demonstrations(config: PromptSource) -> dict[str, str]:
    """The demonstration of each row of the prompts' file, by the row's origin."""
    reading = read_records(
        config.prompts, format=config.format, threshold=config.rows.threshold, options=config.read_options
    )
    rows = [row for row in reading.records if isinstance(row, Demonstration)]
    if len(rows) < len(reading.records):
        other = next(row for row in reading.records if not isinstance(row, Demonstration))
        raise UserError(
            f"{config.prompts}: {len(reading.records) - len(rows)} of {len(reading.records)} rows are no "
            f"demonstrations ({other.origin} is a {type(other).__name__.lower()}). spin prefers what a "
            "person wrote to the model's own answer, so each row needs a prompt and a completion"
        )
    return {row.origin: _words_of(row) for row in rows}


def against_demonstrations(
    prompts: Sequence[EncodedPrompt],
    groups: Sequence[Sequence[ScoredAnswer]],
    demonstrations: Mapping[str, str],
) -> list[tuple[ScoredAnswer, ...]]:
    """For each prompt the demonstration with score 1, then the model's answers with 0.

    An answer that is its demonstration has no score, so it makes no row.
    """
    return [
        _scored(demonstrations[prompt.origin], group) for prompt, group in zip(prompts, groups, strict=True)
    ]


def own_figures(figures: RoundFigures, groups: Sequence[Sequence[ScoredAnswer]]) -> RoundFigures:
    """A round's figures without the demonstrations among its answers, whose scores say nothing."""
    answers = [answer for group in groups for answer in group[1:]]
    return replace(
        figures,
        answers=len(answers),
        unjudged=0,
        mean=None,
        chosen=None,
        rejected=None,
        same=sum(answer.score is None for answer in answers),
    )


def _scored(demonstration: str, group: Sequence[ScoredAnswer]) -> tuple[ScoredAnswer, ...]:
    # Blanks at the ends make no difference that anyone could learn.
    words = demonstration.strip()
    scored = [replace(answer, score=None if answer.text.strip() == words else 0.0) for answer in group]
    return (ScoredAnswer(text=demonstration, tokens=0, ended=True, score=1.0), *scored)


def _words_of(row: Demonstration) -> str:
    if not isinstance(row.completion, str) and len(row.completion) > 1:
        raise UserError(
            f"{row.origin}: the demonstration has {len(row.completion)} turns, and the model answers with "
            "one; leave such rows out"
        )
    return plain_text(row.completion)
