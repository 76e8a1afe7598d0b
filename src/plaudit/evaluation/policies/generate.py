"""Generates completions of policies for the same prompts, with the same random numbers, and scores them.

One model is in memory at a time. What is scored later, by a reference or a judge, are the very tokens that
were drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plaudit.data.judging import Task
from plaudit.data.records import Prompt, Record, Text, assistant_turn, plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import ChoiceLogprobs
from plaudit.evaluation.policies.kl import CompletionScores, score_rollouts
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, score_choices
from plaudit.files.model_folder import refuse_other_folder
from plaudit.models.load import DtypeName, architectures, device_of, is_reward_folder, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from plaudit.rewards.load import model_folder
from plaudit.rollouts.build import sampler_of_policy
from plaudit.rollouts.sampler import GenerationPrompt, Rollout, SamplingSettings, TextSampler
from plaudit.tokens.encode import Encoder, make_encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPrompt:
    """A prompt that policies are evaluated on.

    Example: ``EvaluationPrompt(prompt="What is 3 plus 4?", category="arithmetic", reference_answer="7")``
    """

    prompt: Text
    """The prompt, as text or turns."""
    category: str | None = None
    """The kind of question."""
    reference_answer: str | None = None
    """The reference answer, when there is one."""
    metadata: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    """Whatever else its row carried."""

    def task(self, answers: Iterable[tuple[str, bool]]) -> Task:
        """The task for a judge or reward: this prompt with answers, and whether each came to an end by
        itself.
        """
        pairs = tuple(answers)
        # An answer is of its prompt's kind: a turn after a conversation, a text after a text.
        is_text = isinstance(self.prompt, str)
        return Task(
            prompt=self.prompt,
            answers=tuple(text if is_text else assistant_turn(text) for text, _ in pairs),
            ended=tuple(ended for _, ended in pairs),
            category=self.category,
            reference_answer=self.reference_answer,
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """How completions are generated, and with which numbers models compute.

    Example: ``GenerationSettings(sampling=SamplingSettings(max_tokens=48), answers=2, seeds=(0, 1))``
    """

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """Its seed is replaced by each of ``seeds``."""
    answers: int = 1
    """To each prompt, with each seed."""
    seeds: tuple[int, ...] = (0,)
    """Of the sampler's random numbers; each gives its own completions."""
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
        if self.sampling.greedy and self.completions_per_prompt > 1:
            raise UserError(
                f"at temperature 0 all {self.completions_per_prompt} answers to a prompt are the same: ask "
                "for one, "
                "or raise the temperature"
            )
        if self.dtype not in ("auto", "float32", "bfloat16", "float64"):
            raise UserError(f"dtype {self.dtype!r}: use auto, float32 or bfloat16")

    @property
    def completions_per_prompt(self) -> int:
        """Completions of each prompt over all seeds."""
        return self.answers * len(self.seeds)

    @property
    def temperature(self) -> float:
        """The temperature at which log-probs are read: that of generation, and 1 where it is greedy."""
        return 1.0 if self.sampling.greedy else float(self.sampling.temperature)

    @property
    def description(self) -> str:
        """How completions are generated, for a reader."""
        sampling = self.sampling
        cuts = [
            f"{name} {value:g}"
            for name, value, disabled in (
                ("top-k", sampling.top_k, 0),
                ("top-p", sampling.top_p, 1),
                ("min-p", sampling.min_p, 0),
            )
            if value != disabled
        ]
        stops = [f"stopped at {', '.join(map(repr, sampling.stop))}"] if sampling.stop else []
        temperature = (
            "the likeliest token each time" if sampling.greedy else f"temperature {sampling.temperature:g}"
        )
        return ", ".join([temperature, *cuts, f"at most {sampling.max_tokens} tokens", *stops])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedPolicy:
    """A policy in memory, with its tokenizer.

    Example: ``load_policy_folder(Path("runs/ppo"), GenerationSettings()).sampler.generate_answers(["Hi"],
        SamplingSettings())``
    """

    policy: Policy
    """The policy, which scores tokens."""
    encoder: Encoder
    """Text to tokens and back."""

    @property
    def sampler(self) -> TextSampler:
        """The sampler that generates its completions."""
        return sampler_of_policy(self.policy, self.encoder)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyCompletions:
    """One policy's completions of all prompts, with its own scores of them.

    Example: ``generate_completions("ppo", Path("runs/ppo"), asked,
        GenerationSettings()).rollouts[0][0].answer.text``
    """

    name: str
    """What tables and pages call it."""
    folder: Path
    """The model's folder."""
    rollouts: tuple[tuple[Rollout, ...], ...]
    """Of each question the answers: those of the first seed, then those of the next."""
    scores: CompletionScores
    """The policy's own log-probs and entropies of them."""
    encoder: Encoder
    """Its tokenizer."""
    choice_logprobs: tuple[ChoiceLogprobs, ...] = ()
    """Its log-probs of the choices of multiple-choice questions."""


def evaluation_prompts(records: Iterable[Record]) -> tuple[EvaluationPrompt, ...]:
    """The prompts of records of any kind, each once.

    >>> [one.category for one in evaluation_prompts([Prompt(prompt="Hi", metadata={"category": "talk"})])]
    ['talk']
    """
    prompts: dict[Text, EvaluationPrompt] = {}
    for record in records:
        as_prompt = record if isinstance(record, Prompt) else None
        metadata = {} if as_prompt is None else as_prompt.metadata
        category = metadata.get("category") if as_prompt is not None else getattr(record, "category", None)
        prompt = EvaluationPrompt(
            prompt=record.prompt,
            category=category if isinstance(category, str) else None,
            reference_answer=None if as_prompt is None else as_prompt.answer,
            metadata=metadata,
        )
        # Of rows that repeat a prompt the first counts: asked twice it would weigh twice in every mean.
        prompts.setdefault(record.prompt, prompt)
    return tuple(prompts.values())


def check_policy_folder(folder: Path) -> None:
    """Raises `UserError` for a folder that holds no policy, as far as shows without its weights."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; a MODEL is a run's or a language model's folder")
    model_path = model_folder(folder)
    if is_reward_folder(model_path):
        raise UserError(f"{folder}: this is a reward model; plaudit eval reward judges it")
    if not architectures(model_path):
        refuse_other_folder(model_path)
        # A run that has not finished is told apart from a wrong path: what to do about it differs.
        unfinished = (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file()
        hint = (
            "this run has no model/ yet: it has not finished" if unfinished else "no language model lies here"
        )
        raise UserError(f"{folder}: {hint}")


def load_policy_folder(folder: Path, settings: GenerationSettings) -> LoadedPolicy:
    """The policy of a run's or a model's folder, ready to answer and to score."""
    model_path, device = model_folder(folder), device_of(settings.device)
    dtype: DtypeName = settings.dtype  # pyright: ignore[reportAssignmentType]  checked by Drawing
    encoder = make_encoder(model_path)
    policy = Policy(load_model(model_path, dtype=precision(dtype, device).products, device=device))
    layout, _ = choose_layout(policy, "packed")
    policy.use_layout(layout)
    return LoadedPolicy(policy=policy.requires_grad_(False).eval(), encoder=encoder)


def generate_completions(
    name: str,
    folder: Path,
    prompts: Sequence[EvaluationPrompt],
    settings: GenerationSettings,
    encoded_prompts: Sequence[ChoiceQuestion] = (),
) -> PolicyCompletions:
    """Generates a policy's completions of all prompts and scores them, and the choices of multiple-choice
    questions.
    """
    loaded = load_policy_folder(folder, settings)
    rollouts = generate_rollouts(loaded, prompts, settings)
    return PolicyCompletions(
        name=name,
        folder=folder,
        rollouts=rollouts,
        # Scored while it is in memory, and the tokens as drawn: text encoded again may be other tokens.
        scores=score_rollouts(loaded.policy, rollouts, temperature=settings.temperature),
        encoder=loaded.encoder,
        choice_logprobs=score_choices(
            name, loaded.policy, loaded.encoder, encoded_prompts, temperature=settings.temperature
        ),
    )


def generate_rollouts(
    loaded: LoadedPolicy, prompts: Sequence[EvaluationPrompt], settings: GenerationSettings
) -> tuple[tuple[Rollout, ...], ...]:
    """The answers to each question, seed after seed."""
    sampler = loaded.sampler
    # All of them before the first is generated: a bad prompt should not cost an hour of sampling.
    encoded: list[GenerationPrompt] = []
    for prompt in prompts:
        try:
            encoded.append(sampler.encode(prompt.prompt))
        except UserError as error:
            raise UserError(f"the prompt {plain_text(prompt.prompt)[:40]!r}: {error}") from error
    by_seed = [
        sampler.generate(encoded, replace(settings.sampling, seed=seed), n=settings.answers)
        for seed in settings.seeds
    ]
    # Seed after seed within a prompt: the i-th answers of two policies are compared with each other.
    return tuple(
        tuple(rollout for group in groups for rollout in group) for groups in zip(*by_seed, strict=True)
    )
