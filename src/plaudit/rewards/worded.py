"""Rewards read from what a language model says of an answer.

- text reward: log P(good) − log P(bad), the log-odds of the word for a good answer (Zhang et al. 2024,
  arXiv:2408.15240);
- ranker: the chance that one answer is better than another (`worded_ranker`);
- critic: points that follow from a critique that the model writes first (`worded_critic`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from plaudit.batches.template import make_encoder
from plaudit.models.device import device_of
from plaudit.models.files import Arithmetic, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.records.judging import Task
from plaudit.records.worded_form import ask_good
from plaudit.records.worded_settings import RankerSettings, TextRewardSettings
from plaudit.rewards.reward import Row
from plaudit.rewards.worded_critic import Critic
from plaudit.rewards.worded_facts import read_wording
from plaudit.rewards.worded_model import WordedModel, shares
from plaudit.rewards.worded_ranker import Ranker
from plaudit.rollouts.local import LocalSampler


class TextReward:
    """A model that says whether an answer is good.

    Example: ``TextReward(model).scores(tasks)``
    """

    def __init__(self, model: WordedModel) -> None:
        """Take a model that was trained to say so."""
        settings = model.wording.settings
        assert isinstance(settings, TextRewardSettings)
        self._model, self._settings = model, settings

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._model.name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self._model.reader.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """log P(good) − log P(bad) of every answer; None where the model cannot be shown it whole."""
        return self._read(tasks, lambda logps: logps[0] - logps[1])

    def chances(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """P(good) / (P(good) + P(bad)) of every answer: σ of the score."""
        return self._read(tasks, lambda logps: shares(logps)[0])

    def _read(self, tasks: Sequence[Task], read: Callable[[Sequence[float]], float]) -> tuple[Row, ...]:
        form = self._model.form
        asked = [
            ask_good(self._settings, form, task.prompt, answer) for task in tasks for answer in task.answers
        ]
        found = iter(self._model.logps(asked))
        return tuple(
            tuple(None if (logps := next(found)) is None else read(logps) for _ in task.answers)
            for task in tasks
        )


def load_worded(
    folder: Path, device: str | torch.device = "auto", dtype: Arithmetic | torch.dtype = "auto"
) -> TextReward | Ranker | Critic:
    """The reward of a folder that holds worded.json: a model folder, or a run folder with one in it.

    It is called what the folder is called; a run's ``model`` folder is called what the run is.
    """
    found = folder / "model" if (folder / "model").is_dir() else folder
    wording = read_wording(found)
    place = device_of(device) if isinstance(device, str) else device
    numbers = precision(dtype, place).products if isinstance(dtype, str) else dtype
    encoder = make_encoder(found)
    policy = Policy(load_model(found, dtype=numbers, device=place))
    layout, _ = choose_layout(policy, "packed")
    policy.use_layout(layout)
    name = found.absolute().parent.name if found.name == "model" else found.name
    model = WordedModel(name, policy.requires_grad_(False).eval(), encoder, wording)
    if isinstance(wording.settings, TextRewardSettings):
        return TextReward(model)
    if isinstance(wording.settings, RankerSettings):
        return Ranker(model)
    return Critic(model, LocalSampler(found, device=str(place)))
