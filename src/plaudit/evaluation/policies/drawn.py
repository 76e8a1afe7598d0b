"""Answers of policies to the same prompts, with the same random numbers, and what each thinks of its own.

One model is in memory at a time. What is scored later, by a reference or a judge, are the very tokens that
were drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plaudit.batches.template import Encoder, make_encoder
from plaudit.errors import UserError
from plaudit.evaluation.policies.choices import Closed, weighed
from plaudit.evaluation.policies.confidence import Weighed
from plaudit.evaluation.policies.distances import Thoughts, thoughts
from plaudit.models.device import device_of
from plaudit.models.files import Arithmetic, architectures, is_reward_folder, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.records.feedback import Prompt, Record
from plaudit.records.judging import Task
from plaudit.records.messages import Text, assistant_says, words
from plaudit.rewards.folder import model_folder
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import Rollout, SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question.

    Example: ``Asked(prompt="What is 3 plus 4?", category="arithmetic", truth="7")``
    """

    prompt: Text
    """What is asked."""
    category: str | None = None
    """The kind of question."""
    truth: str | None = None
    """The reference answer, when there is one."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    """Whatever else its row carried."""

    def task(self, answers: Iterable[tuple[str, bool]]) -> Task:
        """What a judge is shown: answers, and whether each came to an end by itself."""
        said = tuple(answers)
        plain = isinstance(self.prompt, str)
        return Task(
            prompt=self.prompt,
            answers=tuple(text if plain else assistant_says(text) for text, _ in said),
            ended=tuple(ended for _, ended in said),
            category=self.category,
            truth=self.truth,
            facts=self.facts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How answers are drawn, and with which numbers models compute.

    Example: ``Drawing(sampling=SamplingSettings(max_tokens=48), answers=2, seeds=(0, 1))``
    """

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """Its seed is replaced by each of ``seeds``."""
    answers: int = 1
    """To each prompt, with each seed."""
    seeds: tuple[int, ...] = (0,)
    """Of chance."""
    device: str = "auto"
    """auto, cpu or cuda."""
    dtype: str = "auto"
    """auto, float32 or bfloat16."""

    def __post_init__(self) -> None:
        """Refuse what draws nothing, or the same twice."""
        if self.answers < 1:
            raise UserError(f"answers {self.answers}: expected 1 or more to every prompt")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds {self.seeds}: expected one or more, all of them different")
        if self.sampling.greedy and self.each > 1:
            raise UserError(
                f"at temperature 0 all {self.each} answers to a prompt are the same: ask for one, "
                "or raise the temperature"
            )
        if self.dtype not in ("auto", "float32", "bfloat16", "float64"):
            raise UserError(f"dtype {self.dtype!r}: use auto, float32 or bfloat16")

    @property
    def each(self) -> int:
        """Answers to each prompt over all seeds."""
        return self.answers * len(self.seeds)

    @property
    def temperature(self) -> float:
        """At which log-probs are read: that of drawing, and 1 where nothing is left to chance."""
        return 1.0 if self.sampling.greedy else float(self.sampling.temperature)

    @property
    def in_words(self) -> str:
        """How answers are drawn, for a reader."""
        one = self.sampling
        cuts = [
            f"{name} {value:g}"
            for name, value, none in (
                ("top-k", one.top_k, 0),
                ("top-p", one.top_p, 1),
                ("min-p", one.min_p, 0),
            )
            if value != none
        ]
        stops = [f"stopped at {', '.join(map(repr, one.stop))}"] if one.stop else []
        heat = "the likeliest token each time" if one.greedy else f"temperature {one.temperature:g}"
        return ", ".join([heat, *cuts, f"at most {one.max_tokens} tokens", *stops])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Speaker:
    """A policy in memory, with its tokenizer.

    Example: ``load_speaker(Path("runs/ppo"), Drawing()).sampler.sample(["Hi"], SamplingSettings())``
    """

    policy: Policy
    """What scores tokens."""
    encoder: Encoder
    """Text to tokens and back."""

    @property
    def sampler(self) -> LocalSampler:
        """What answers."""
        return LocalSampler.of(self.policy, self.encoder)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """What one policy said to every question.

    Example: ``drawn("ppo", Path("runs/ppo"), asked, Drawing()).rollouts[0][0].answer.text``
    """

    name: str
    """What tables and pages call it."""
    folder: Path
    """Of the model."""
    rollouts: tuple[tuple[Rollout, ...], ...]
    """Of each question the answers: those of the first seed, then those of the next."""
    thoughts: Thoughts
    """What the policy itself thinks of each."""
    encoder: Encoder
    """Its tokenizer."""
    weighed: tuple[Weighed, ...] = ()
    """What it thinks of the choices of closed questions."""


def asked_of(records: Iterable[Record]) -> tuple[Asked, ...]:
    """The prompts of records of any kind, each once.

    >>> [one.category for one in asked_of([Prompt(prompt="Hi", metadata={"category": "talk"})])]
    ['talk']
    """
    found: dict[Text, Asked] = {}
    for record in records:
        bare = record if isinstance(record, Prompt) else None
        facts = {} if bare is None else bare.metadata
        category = facts.get("category") if bare is not None else getattr(record, "category", None)
        one = Asked(
            prompt=record.prompt,
            category=category if isinstance(category, str) else None,
            truth=None if bare is None else bare.answer,
            facts=facts,
        )
        found.setdefault(record.prompt, one)
    return tuple(found.values())


def check_policy(folder: Path) -> None:
    """Complain about a folder that cannot answer, as far as shows without its weights."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; a MODEL is a run's or a language model's folder")
    found = model_folder(folder)
    if is_reward_folder(found):
        raise UserError(f"{folder}: this is a reward model; plaudit eval reward judges it")
    if not architectures(found):
        unfinished = (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file()
        hint = (
            "this run has no model/ yet: it has not finished" if unfinished else "no language model lies here"
        )
        raise UserError(f"{folder}: {hint}")


def load_speaker(folder: Path, drawing: Drawing) -> Speaker:
    """The policy of a run's or a model's folder, ready to answer and to score."""
    found, place = model_folder(folder), device_of(drawing.device)
    dtype: Arithmetic = drawing.dtype  # pyright: ignore[reportAssignmentType]  checked by Drawing
    encoder = make_encoder(found)
    policy = Policy(load_model(found, dtype=precision(dtype, place).products, device=place))
    layout, _ = choose_layout(policy, "packed")
    policy.use_layout(layout)
    return Speaker(policy=policy.requires_grad_(False).eval(), encoder=encoder)


def drawn(
    name: str, folder: Path, asked: Sequence[Asked], drawing: Drawing, closed: Sequence[Closed] = ()
) -> Drawn:
    """Every answer of a policy, and what it thinks of them and of the choices of closed questions."""
    speaker = load_speaker(folder, drawing)
    groups = answers_of(speaker, asked, drawing)
    return Drawn(
        name=name,
        folder=folder,
        rollouts=groups,
        thoughts=thoughts(speaker.policy, groups, temperature=drawing.temperature),
        encoder=speaker.encoder,
        weighed=weighed(name, speaker.policy, speaker.encoder, closed, temperature=drawing.temperature),
    )


def answers_of(speaker: Speaker, asked: Sequence[Asked], drawing: Drawing) -> tuple[tuple[Rollout, ...], ...]:
    """The answers to each question, seed after seed."""
    sampler, prompts = speaker.sampler, [one.prompt for one in asked]
    for one in asked:
        try:
            sampler.check(one.prompt)
        except UserError as error:
            raise UserError(f"the prompt {words(one.prompt)[:40]!r}: {error}") from error
    seeded = [
        sampler.rollouts(prompts, replace(drawing.sampling, seed=seed), n=drawing.answers)
        for seed in drawing.seeds
    ]
    return tuple(tuple(one for of_seed in same for one in of_seed) for same in zip(*seeded, strict=True))
