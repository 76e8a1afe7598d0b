"""What a reward model says now of some held-out answers, the one it likes best first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from plaudit.batches.judged import Compared, JudgedRow, Labelled, Ranked, Rated
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Completion, batch_of
from plaudit.models.reward import RewardModel
from plaudit.recipes.config import SampleSettings
from plaudit.training.plan import Pause
from plaudit.training.sinks.sink import Sample
from plaudit.training.supervised import Arithmetic


def scored(
    model: RewardModel,
    encoder: Encoder,
    rows: Sequence[JudgedRow],
    settings: SampleSettings,
    arithmetic: Arithmetic,
) -> Callable[[Pause], Sequence[Sample]]:
    """A function that scores the answers of the first rows; with sharded weights every rank must ask."""
    chosen = rows[: settings.rows]

    def sample(pause: Pause) -> list[Sample]:
        said: list[Sample] = []
        for row in chosen:
            pause()
            with torch.no_grad(), arithmetic():
                said.append(_sample(row, _rewards(model, row), encoder, settings.tokens))
        return said

    return sample


def _rewards(model: RewardModel, row: JudgedRow) -> list[float]:
    """Of each answer its reward; of a solution the score of its weakest step."""
    batch = batch_of([row.example]).to(model.device)
    if isinstance(row.said, Labelled):
        return [float(model.steps(batch, torch.tensor([row.said.ends], device=model.device)).min())]
    return model.rewards(batch).tolist()


def _sample(row: JudgedRow, rewards: Sequence[float], encoder: Encoder, tokens: int) -> Sample:
    answers = row.example.completions
    order = sorted(range(len(answers)), key=lambda n: -rewards[n])
    words = [_words(answer, encoder, tokens) for answer in answers]
    return Sample(
        prompt=encoder.info.decode(row.prompt),
        completion="\n".join(f"{rewards[n]:+.2f}  {words[n]}" for n in order),
        expected=_judgement(row, words),
    )


def _words(answer: Completion, encoder: Encoder, tokens: int) -> str:
    more = "…" if len(answer.ids) > tokens else ""
    return " ".join(encoder.info.decode(answer.ids[:tokens]).split()) + more


def _judgement(row: JudgedRow, words: Sequence[str]) -> str:
    match row.said:
        case Compared(chance=chance):
            return "a tie" if chance == 0.5 else f"better: {words[0] if chance > 0.5 else words[1]}"
        case Ranked(ranks=ranks):
            order = sorted(range(len(words)), key=lambda n: ranks[n])
            return "\n".join(f"{ranks[n]:g}.  {words[n]}" for n in order)
        case Rated(score=score):
            return f"rated {score:g}"
        case Labelled(labels=labels):
            return "steps: " + ", ".join(f"{label:g}" for label in labels)
