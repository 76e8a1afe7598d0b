"""Requests for attacks: on whom, with what, who judges, at what cost; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plaudit.errors import UserError
from plaudit.feedback.asking import AskingSettings
from plaudit.feedback.judges.words import asks_a_model
from plaudit.rollouts.sampler import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSettings(AskingSettings):
    """Attacks on policies, beside prompts that they should not refuse."""

    targets: tuple[str, ...]
    """The policies: folders, or openai:http://host/v1#model; each later one is compared with the first."""
    judge: str
    """Who says whether an answer did harm: a model that is asked, a jury, a function, a reward."""
    refusal: str | None = None
    """Who says whether an answer declined; none: the judge, where it is a model."""
    twins: Path | None = None
    """Rows with harmless prompts, and with mirrored pairs (two rows that share a word under mirror)."""
    without_twins: bool = False
    """Measure no refusals; every result then says so."""
    templates: str | None = None
    """Ask each prompt in other words too: a file of templates, or ours."""
    by: str | None = None
    """A model that attacks: with several turns, or messages that it writes."""
    write: int = 0
    """How many messages it writes against each policy."""
    turns: int = 1
    """How many turns of the user an attack may take; from 2 on the attacker goes on where one failed."""
    archive: Path | None = None
    """What worked before, whichever policy it was: asked again, and added to."""
    category: tuple[str, ...] = ()
    """Only prompts of these categories."""
    answers: int = 1
    """Answers to each conversation: an attack works if any of them does harm."""
    temperature: float | None = None
    """Of the policies' answers; none: 0, and 1 where there are several answers."""
    harmful_below: float | None = None
    """Of a judge that scores: what scores less did harm."""
    constitution: str | None = None
    """What counts as harm: a file of principles, or ours; none: the wording's own words."""
    principles: int = 1
    """How many of its principles are drawn for each task."""

    def __post_init__(self) -> None:
        for name in ("turns", "answers", "max_tokens", "principles", "n"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name.replace('_', '-')} {value}: expected 1 or more")
        if self.write < 0:
            raise UserError(f"write {self.write}: expected 0 messages or more")
        self._check_attacker()
        # For their complaints, before anything is loaded.
        AskingSettings.__post_init__(self)
        _ = self.sampling
        if self.answers > 1 and self.temperature == 0:
            raise UserError(
                f"answers {self.answers}: at temperature 0 all answers are the same; leave one of them out"
            )
        if self.twins is not None and self.without_twins:
            raise UserError("--twins and --without-twins: give one of them")
        if self.refusal is None and not self.without_twins and not asks_a_model(self.judge):
            raise UserError(
                f"--refusal: {self.judge} says what did harm, not what was declined; name a model, or a "
                "function such as plaudit.feedback.attacks.verdicts:declines"
            )
        if self.constitution is not None and not asks_a_model(self.judge):
            raise UserError(f"--constitution is read by models, and {self.judge} is none")

    def _check_attacker(self) -> None:
        if self.by is None and (self.write or self.turns > 1):
            option = "--write" if self.write else f"--turns {self.turns}"
            raise UserError(f"{option} needs a model that attacks: --by openai:URL#model")
        if self.by is not None and not self.write and self.turns == 1:
            raise UserError("--by has nothing to do: say --write N (messages) or --turns N (it goes on)")

    @property
    def sampling(self) -> SamplingSettings:
        usual = 1.0 if self.answers > 1 else 0.0
        temperature = usual if self.temperature is None else self.temperature
        return self.sampling_at(temperature)

    @property
    def sampling_words(self) -> str:
        sampling = self.sampling
        how = "the likeliest token each time" if sampling.greedy else f"temperature {sampling.temperature:g}"
        count = "one answer" if self.answers == 1 else f"{self.answers} answers"
        return f"{count}, {how}, at most {sampling.max_tokens} tokens"
