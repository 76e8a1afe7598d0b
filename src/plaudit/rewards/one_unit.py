"""Rewards brought to one unit on the answers of a file: before they are weighed against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plaudit.batches.template import Answered, answers_of
from plaudit.errors import UserError
from plaudit.models.reward import Normalisation
from plaudit.records.judging import Task
from plaudit.rewards.ensemble import normalisations
from plaudit.rewards.folder import load_reward
from plaudit.sources import read_records


def in_one_unit(rewards: Sequence[Path], rows: Path, *, device: str = "auto") -> tuple[Normalisation, ...]:
    """What gives each reward's folder the mean 0 and the standard deviation 1 on the answers of a file.

    Each was fitted with an unknown level and a unit of its own (the noise of whoever judged), so a weight of
    0.7 says little before.
    """
    tasks = _tasks(rows)
    return normalisations([load_reward(folder, device=device) for folder in rewards], tasks)


def _tasks(path: Path) -> tuple[Task, ...]:
    found = [
        (record.prompt, answers_of(record))
        for record in read_records(path).records
        if isinstance(record, Answered)
    ]
    if not found:
        raise UserError(f"{path}: no row has an answer that could be scored")
    return tuple(
        Task(prompt=prompt, answers=answers, ended=(True,) * len(answers)) for prompt, answers in found
    )
