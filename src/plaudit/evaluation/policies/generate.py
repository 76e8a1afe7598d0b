"""Generates completions of policies for the same prompts, with the same random numbers, and scores them.

One model is in memory at a time. What is scored later, by a reference or a judge, are the very tokens that
were drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from plaudit.data.read import read_records
from plaudit.data.records import (
    TOOLS_ROLE,
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Ranking,
    Record,
    Task,
    Text,
    answer_to,
    assistant_turn,
    plain_text,
    split_tools,
    turns_of,
)
from plaudit.engine.ranks import divide_rows
from plaudit.errors import UserError, located
from plaudit.evaluation.policies import PolicyWord
from plaudit.evaluation.policies.calibration import ChoiceLogprobs
from plaudit.evaluation.policies.kl import CompletionScores, score_rollouts
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, EncodedChoices, score_choices
from plaudit.files import hub
from plaudit.files.model_folder import explain_unfinished_run, refuse_other_folder
from plaudit.models.load import architectures, device_of, is_reward_folder, load_model, precision
from plaudit.models.policy import Policy
from plaudit.rewards.load import model_folder, verify_and_freeze
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Answer, GenerationPrompt, GenerationRequest, Rollout, SamplingSettings
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import reference_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPrompt:
    prompt: Text
    category: str | None = None
    reference_answer: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    written: str | None = None
    """The answer that its row holds: a demonstration, the chosen or best one, the reference answer."""

    def task(self, answers: Iterable[tuple[str, bool]]) -> Task:
        """The task for a judge or reward: this prompt with answers, and whether each ended by itself."""
        pairs = tuple(answers)
        return Task(
            prompt=self.prompt,
            answers=tuple(answer_to(self.prompt, text) for text, _ in pairs),
            ended=tuple(ended for _, ended in pairs),
            category=self.category,
            reference_answer=self.reference_answer,
            metadata=self.metadata,
        )


SHOT_SEPARATOR = "\n\n"
"""Between examples in plain text, for a model without a chat template; it also ends such an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A policy as it competes: a model with what is put before every prompt, or the rows' own answers."""

    folder: Path | None
    """The folder of a run or a model; None: the answers that the rows of the prompts hold."""
    system: str | None = None
    shots: tuple[Demonstration, ...] = ()

    @property
    def has_context(self) -> bool:
        return self.system is not None or bool(self.shots)

    def question(self, prompt: Text, *, chats: bool) -> Text:
        """The prompt with all that is put before it; plain text only for a model that has no chat template.

        >>> shot = Demonstration(prompt="2 + 2 =", completion=" 4")
        >>> Contestant(folder=None, shots=(shot,)).question("3 + 4 =", chats=False)
        '2 + 2 = 4\\n\\n3 + 4 ='
        """
        if not self.has_context:
            return prompt
        if not chats and isinstance(prompt, str):
            shots = (_shot_text(shot) for shot in self.shots)
            return SHOT_SEPARATOR.join([*([] if self.system is None else [self.system]), *shots, prompt])
        tools, turns = split_tools(turns_of(prompt))
        system_turn = turns[:1] if turns[0].role == "system" else ()
        if system_turn and self.system is not None:
            raise UserError("it has a system turn of its own, and so has the policy: leave one of them out")
        opening = system_turn if self.system is None else (Message(role="system", content=self.system),)
        shots = [turn for shot in self.shots for turn in _shot_turns(shot)]
        if any(turn.role == TOOLS_ROLE and turn not in tools for turn in shots):
            raise UserError(
                "an example before it has other tools than the prompt: give examples with the same"
            )
        shot_turns = [turn for turn in shots if turn.role != TOOLS_ROLE]
        return (*tools, *opening, *shot_turns, *turns[len(system_turn) :])


def _shot_text(shot: Demonstration) -> str:
    if not (isinstance(shot.prompt, str) and isinstance(shot.completion, str)):
        raise UserError(
            "the examples before it are conversations, and the model is asked in plain text: give texts"
        )
    return f"{shot.prompt}{shot.completion}"


def _shot_turns(shot: Demonstration) -> tuple[Message, ...]:
    completion = assistant_turn(shot.completion) if isinstance(shot.completion, str) else shot.completion
    return (*turns_of(shot.prompt), *completion)


def prompted_policy(word: str) -> tuple[str, Contestant]:
    parts = PolicyWord.parse(word)
    system, shots = prompted_context(parts)
    return parts.name, Contestant(folder=hub.local_path(parts.folder, "model"), system=system, shots=shots)


def prompted_context(parts: PolicyWord) -> tuple[str | None, tuple[Demonstration, ...]]:
    """The text of the system's turn and the examples that stand before the prompts of a policy."""
    shots = () if parts.shots is None else read_records(parts.shots, threshold=0).records
    demonstrations = tuple(shot for shot in shots if isinstance(shot, Demonstration))
    if len(demonstrations) < len(shots) or (parts.shots is not None and not shots):
        raise UserError(
            f"--policy {parts.name}: {parts.shots} is to hold demonstrations, rows of prompt and completion"
        )
    return None if parts.system is None else _system_text(parts, parts.system), demonstrations


def _system_text(parts: PolicyWord, word: str) -> str:
    path, where = parts.system_file, f"--policy {parts.name}: {word}"
    if path is not None:
        try:
            text = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{where} cannot be read as UTF-8 text ({error})") from error
        if not text:
            raise UserError(f"{where} is empty; write the words of the system's turn in it")
        return text
    if word.endswith((".txt", ".md")) and " " not in word:
        raise UserError(f"{where}: no such file; give its path, or the words themselves")
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    answers: int = 1
    seeds: tuple[int, ...] = (0,)
    """Of the sampler's random numbers; each gives its own completions."""
    device: str = "auto"
    dtype: str = "auto"
    """auto, float32 or bfloat16."""

    def __post_init__(self) -> None:
        if self.answers < 1:
            raise UserError(f"answers {self.answers}: expected 1 or more to every prompt")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds {self.seeds}: expected one or more, all of them different")
        if self.sampling.greedy and self.completions_per_prompt > 1:
            raise UserError(
                f"at temperature 0 all {self.completions_per_prompt} answers to a prompt are the same: ask "
                "for one, or raise the temperature"
            )
        if self.dtype not in ("auto", "float32", "bfloat16", "float64"):
            raise UserError(f"dtype {self.dtype!r}: use auto, float32 or bfloat16")

    @property
    def completions_per_prompt(self) -> int:
        return self.answers * len(self.seeds)

    @property
    def temperature(self) -> float:
        """The temperature at which log-probs are read: that of generation, and 1 where it is greedy."""
        return 1.0 if self.sampling.greedy else float(self.sampling.temperature)

    @property
    def description(self) -> str:
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


class DividedSampler(LocalSampler):
    """Draws with as many ranks as rows are divided over, each some of the answers; the same ones as alone."""

    def generate_requests(
        self,
        requests: Sequence[GenerationRequest],
        settings: SamplingSettings,
        on_step: Callable[[int], None] = lambda ended: None,
    ) -> list[Rollout]:
        draw = super().generate_requests
        return divide_rows(requests, lambda part, _: draw(part, settings, on_step), Rollout)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedPolicy:
    policy: Policy
    encoder: Encoder
    contestant: Contestant

    @property
    def sampler(self) -> LocalSampler:
        return DividedSampler.from_policy(self.policy, self.encoder)

    def question(self, prompt: Text) -> Text:
        return self.contestant.question(prompt, chats=self.encoder.asks_in_turns)

    def sampling(self, settings: SamplingSettings) -> SamplingSettings:
        """The settings for it: after examples in plain text an answer ends where the next would begin."""
        if self.encoder.asks_in_turns or not self.contestant.shots:
            return settings
        return replace(settings, stop=(*settings.stop, SHOT_SEPARATOR))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyCompletions:
    name: str
    contestant: Contestant
    rollouts: tuple[tuple[Rollout, ...], ...]
    """Of each question the answers: those of the first seed, then those of the next."""
    scores: CompletionScores = ()
    """The policy's own log-probs and entropies; empty where no answer is from its whole distribution."""
    encoder: Encoder | None = None
    choice_logprobs: tuple[ChoiceLogprobs, ...] = ()

    @property
    def distinct_rollouts(self) -> tuple[tuple[Rollout, ...], ...]:
        """The answers without the repetitions of a written one, of which a prompt has one alone."""
        return self.rollouts if self.encoder is not None else tuple(group[:1] for group in self.rollouts)


def evaluation_prompts(records: Iterable[Record]) -> tuple[EvaluationPrompt, ...]:
    """The prompts of records of any kind, each once.

    >>> [one.category for one in evaluation_prompts([Prompt(prompt="Hi", metadata={"category": "talk"})])]
    ['talk']
    """
    prompts: dict[Text, EvaluationPrompt] = {}
    for record in records:
        metadata = record.metadata if isinstance(record, Prompt) else {}
        category = metadata.get("category") if isinstance(record, Prompt) else record.category
        prompt = EvaluationPrompt(
            prompt=record.prompt,
            category=category if isinstance(category, str) else None,
            reference_answer=reference_answer(record),
            metadata=metadata,
            written=_written_answer(record),
        )
        # Of rows that repeat a prompt the first counts: asked twice it would weigh twice in every mean.
        prompts.setdefault(record.prompt, prompt)
    return tuple(prompts.values())


def written_answers(records: Iterable[Record]) -> dict[str, str]:
    """The answer that rows hold to each prompt, by its words; refuses a prompt without one."""
    prompts = evaluation_prompts(records)
    refuse_unwritten(prompts)
    return {plain_text(prompt.prompt): prompt.written or "" for prompt in prompts}


def _written_answer(record: Record) -> str | None:
    """The answer that a row holds; None where it holds none, or turns of both sides."""
    match record:
        case Demonstration():
            answer = record.completion
        case Comparison():
            answer = record.chosen
        case Ranking():
            answer = record.completions[record.ranks.index(min(record.ranks))]
        case Prompt():
            answer = record.answer
        case _:
            answer = None
    return (
        None if answer is None or (len(answer) != 1 and not isinstance(answer, str)) else plain_text(answer)
    )


def check_contestant(contestant: Contestant, prompts: Sequence[EvaluationPrompt]) -> None:
    if contestant.folder is not None:
        check_policy_folder(contestant.folder)
    else:
        refuse_unwritten(prompts)


def refuse_unwritten(prompts: Sequence[EvaluationPrompt]) -> None:
    """Complain about prompts whose rows hold no answer."""
    missing = [prompt for prompt in prompts if not (prompt.written or "").strip()]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(prompts)} prompts have no written answer, the first of them "
            f"{plain_text(missing[0].prompt)[:40]!r}: take rows with a completion of one turn, a chosen or "
            "best answer, or a reference answer (`answer`)"
        )


def check_policy_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(
            f"{folder}: there is no such folder; a MODEL is a run's or a language model's folder"
            f"{hub.name_hint(folder)}"
        )
    model_path = model_folder(folder)
    if is_reward_folder(model_path):
        raise UserError(f"{folder}: this is a reward model; plaudit eval reward judges it")
    if not architectures(model_path):
        refuse_other_folder(model_path)
        # A run that has not finished is told apart from a wrong path: what to do about it differs.
        raise UserError(f"{folder}: {explain_unfinished_run(folder) or 'no language model lies here'}")


def load_policy_folder(folder: Path | Contestant, settings: GenerationSettings) -> LoadedPolicy:
    contestant = folder if isinstance(folder, Contestant) else Contestant(folder=folder)
    assert contestant.folder is not None
    model_path, device = model_folder(contestant.folder), device_of(settings.device)
    encoder = make_encoder(model_path)
    policy = Policy(load_model(model_path, dtype=precision(settings.dtype, device).products, device=device))
    return LoadedPolicy(policy=verify_and_freeze(policy), encoder=encoder, contestant=contestant)


def generate_completions(
    name: str,
    folder: Path | Contestant,
    prompts: Sequence[EvaluationPrompt],
    settings: GenerationSettings,
    questions: Sequence[ChoiceQuestion] = (),
    *,
    encoded: EncodedChoices | None = None,
    on_progress: Callable[[str], None] = lambda sentence: None,
) -> PolicyCompletions:
    """A policy's scored completions of all prompts, and its choices in multiple-choice questions."""
    loaded = load_policy_folder(folder, settings)
    rollouts = generate_rollouts(loaded, prompts, settings, on_progress)
    scores: CompletionScores = ()
    if settings.sampling.is_unrestricted:
        on_progress(f"{name}: its answers are scored")
        # While it is in memory, and the tokens as drawn: text encoded again may be other tokens.
        scores = score_rollouts(loaded.policy, rollouts, temperature=settings.temperature)
    in_context = [replace(question, prompt=loaded.question(question.prompt)) for question in questions]
    choices = score_choices(
        name, loaded.policy, loaded.encoder, in_context, temperature=settings.temperature, encoded=encoded
    )
    return PolicyCompletions(
        name=name,
        contestant=loaded.contestant,
        rollouts=rollouts,
        scores=scores,
        encoder=loaded.encoder,
        # By the question alone: every policy has a context of its own before it.
        choice_logprobs=tuple(
            replace(choice, prompt=plain_text(question.prompt))
            for choice, question in zip(choices, questions, strict=True)
        ),
    )


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How many answers have ended, reported every half a minute."""

    total: int
    tell: Callable[[str], None]
    before: int = 0
    """How many had ended before those that are drawn now."""
    _reported_at: float = field(default_factory=monotonic)

    def __call__(self, ended: int) -> None:
        if monotonic() - self._reported_at > 30:
            self._reported_at = monotonic()
            self.tell(f"{self.before + ended:,} of {self.total:,} answers")


def generate_rollouts(
    loaded: LoadedPolicy,
    prompts: Sequence[EvaluationPrompt],
    settings: GenerationSettings,
    on_progress: Callable[[str], None] = lambda sentence: None,
) -> tuple[tuple[Rollout, ...], ...]:
    sampler = loaded.sampler
    if sampler.fallback_reason is not None:
        on_progress(f"sampling is slower here: {sampler.fallback_reason}")
    # All of them before the first is generated: a bad prompt should not cost an hour of sampling.
    encoded: list[GenerationPrompt] = []
    for prompt in prompts:
        with located(f"the prompt {plain_text(prompt.prompt)[:40]!r}"):
            encoded.append(sampler.encode(loaded.question(prompt.prompt)))
    report = _Progress(total=len(prompts) * settings.completions_per_prompt, tell=on_progress)
    by_seed: list[list[list[Rollout]]] = []
    for number, seed in enumerate(settings.seeds):
        report.before = number * len(prompts) * settings.answers
        sampling = loaded.sampling(replace(settings.sampling, seed=seed))
        by_seed.append(sampler.generate(encoded, sampling, n=settings.answers, on_step=report))
    # Seed after seed within a prompt: the i-th answers of two policies are compared with each other.
    return tuple(
        tuple(rollout for group in groups for rollout in group) for groups in zip(*by_seed, strict=True)
    )


def written_completions(
    name: str, prompts: Sequence[EvaluationPrompt], settings: GenerationSettings, encoder: Encoder
) -> PolicyCompletions:
    """The rows' own answers as a contestant: one to each prompt, which meets each of a policy's answers.
    Nobody drew them, so they have no log-probs; ``encoder`` counts their tokens."""
    groups: list[tuple[Rollout, ...]] = []
    for prompt in prompts:
        text = prompt.written
        assert text is not None
        question = turns_of(prompt.prompt) if encoder.asks_in_turns else prompt.prompt
        example = encoder.encode(question, [answer_to(question, text)])
        answer = Answer(text=text, tokens=len(example.completions[0].ids), ended=True)
        rollout = Rollout(prompt=(), ids=(), logp=(), whole_logp=(), answer=answer)
        groups.append((rollout,) * settings.completions_per_prompt)
    return PolicyCompletions(name=name, contestant=Contestant(folder=None), rollouts=tuple(groups))
