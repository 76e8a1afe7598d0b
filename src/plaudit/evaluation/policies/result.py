"""What an evaluation of policies found, in one frozen record, and the files that it is written to.

A share or a mean comes as an `Estimate` with its 95 % interval over prompts; whatever cannot be said is None,
and why is said in words under ``notes``. The files are policies.json, every answer in answers.jsonl, and
choices.jsonl.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import ChoiceLogprobs, PolicyCalibration
from plaudit.evaluation.policies.corrected import Correction
from plaudit.evaluation.policies.over_optimisation import OverOptimisation
from plaudit.evaluation.reward_models.result import BestOfNCurve
from plaudit.evaluation.stats import Estimate
from plaudit.files.atomic import AtomicFile, make_output_folder
from plaudit.files.restored import restore

if TYPE_CHECKING:
    from plaudit.evaluation.policies.win_rate import JudgedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryFigure:
    name: str
    value: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How unlike each other answers are, every one cut to the same number of words."""

    words: int
    """What all answers of all policies were cut to; shorter ones are left out of what depends on length."""
    answers: int
    distinct_1: float | None
    distinct_2: float | None
    self_bleu: float | None
    """Mean BLEU of an answer against those to other prompts, 0 to 100: 100 says always the same."""
    self_bleu_within: float | None
    """Mean BLEU of an answer against the others to the same prompt; None with one answer to each."""
    unique: float
    unique_within: float | None
    """The same among the answers to one prompt, on average; None with one answer to each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtK:
    k: int
    value: Estimate
    """The mean over prompts; at k = 1 it is the share of right answers, avg@n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    name: str
    model: str
    gold: Estimate | None
    """The true utility of its answers, or a function's score of them; None where nobody knows it."""
    by_category: tuple[CategoryFigure, ...]
    reward: Estimate | None
    """The learnt reward of its answers: what may have been optimised."""
    length: Estimate
    finished: Estimate
    """The share of answers that came to an end by themselves."""
    kl: Estimate | None
    """From the reference, in nats an answer: the mean of log π(y) − log π_ref(y) over its own answers."""
    kl_token: Estimate | None
    entropy: Estimate | None
    """Of its next token, in nats, over the tokens of its own answers."""
    diversity: Diversity
    calibration: PolicyCalibration | None = None
    """Whether it is as often right as it is sure, on questions with choices; None where there were none."""
    passes: tuple[PassAtK, ...] = ()
    """pass@k for each k that was asked for; empty where no rule says which answers are right."""
    instructions: tuple[CategoryFigure, ...] = ()
    """IFEval's four accuracies and their mean; empty where no rule checked instructions."""
    instruction_kinds: tuple[CategoryFigure, ...] = ()
    """How often each kind of instruction holds strictly."""

    @property
    def right(self) -> Estimate | None:
        """The share of right answers; None where no rule says which are."""
        return next((share.value for share in self.passes if share.k == 1), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One policy against another, on the same prompts, by one judge that saw both orders."""

    policy: str
    against: str
    judge: str
    won: int
    tied: int
    """Pairs of equal worth, or on which the two orders contradict each other."""
    lost: int
    unjudged: int
    """Pairs without a verdict; they count nowhere else."""
    reasons: Mapping[str, int]
    """Why there was no verdict: refused, not to be read, not to be reached."""
    raw: Estimate | None
    """The mean chance of being preferred; a tie counts one half."""
    decided: Estimate | None
    length_controlled: Estimate | None
    """What ``raw`` would be if both answers were of equal length (AlpacaEval 2, minimal form)."""
    style_controlled: Estimate | None
    consistency: Estimate | None
    """How often both orders say the same; None where the judge cannot see an order."""
    first: Estimate | None
    """How often the answer that is shown first is preferred, of verdicts that prefer one: 0.5 is fair."""
    p_value: float | None
    """Of a paired test that neither is better: signs by prompt are flipped, all ways or 9,999 drawn ones."""
    by_category: tuple[CategoryFigure, ...]
    notes: tuple[str, ...] = ()
    """Why a controlled win rate cannot be given, or what it leaves out."""
    corrected: Correction | None = None
    """The win rate once the judge's errors are known; None where nothing says how it errs."""
    uncorrected: bool = False
    """Whether the judge errs, and its interval knows nothing of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    name: str
    elo: float
    """400/ln 10 times its log-strength, with the mean of all at 1000."""
    low: float | None
    """The lower end of the 95 % interval over prompts."""
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    policy: str
    text: str
    """What it said: not to be trusted, a page escapes it."""
    ended: bool
    tokens: int
    gold: float | None
    reward: float | None
    logp: float | None = None
    """log π of the whole answer, in nats, as the policy itself finds it."""
    kl: float | None = None
    """log π − log π_ref of it: the mean over a policy's answers is its KL."""
    verdict: float | None = None
    """The first judge's chance, from 0 to 1, that it is better than the reference's; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAnswers:
    prompt: str
    category: str | None
    answers: tuple[PolicyAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """Everything found about policies that were evaluated on the same prompts.

    Example: ``PolicyEvaluation(policies=(base, sft, ppo), reference="sft", …)``
    """

    policies: tuple[PolicyFigures, ...]
    """In the order in which they were named."""
    reference: str | None
    """The policy that KL is measured from, and the others are compared with."""
    gold: str | None
    """Who knows the true worth: the world, a function; None where nobody does."""
    reward: str | None
    """The learnt reward whose scores are shown beside."""
    prompts: int
    """How many there were."""
    answers: int
    """To each prompt, of each policy."""
    sampling: str
    """How answers were drawn, in words."""
    seeds: tuple[int, ...]
    """Of drawing; several pool their answers and widen what is resampled."""
    contests: tuple[Contest, ...]
    """Every policy against those that were asked for, by each judge."""
    ratings: tuple[Rating, ...]
    """Of three policies or more; empty otherwise."""
    best_of: BestOfNCurve | None
    """What the best of n answers of the reference by the learnt reward is worth."""
    shown: tuple[PromptAnswers, ...]
    """Some prompts, drawn by chance, with everybody's answers."""
    notes: tuple[str, ...]
    """What a reader has to know."""
    over_optimisation: OverOptimisation | None = None
    """The curve through ``best_of`` and its peak; None with fewer than five answers to choose from."""
    all_answers: tuple[PromptAnswers, ...] = ()
    """All answers: of each prompt as many rows as there are answers of a policy to it."""
    choice_logprobs: tuple[ChoiceLogprobs, ...] = ()
    """What each policy thinks of the choices of questions that have some, policy after policy."""
    right: str | None = None
    """The rule that says which answers are right, for pass@k; None where there was none."""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and what the figures of single contests cannot say; each sentence once."""
        of_contests = (
            f"{contest.policy} against {contest.against}: {note}"
            for contest in self.contests
            for note in contest.notes
        )
        corrected = (
            f"win rate of {contest.policy} against {contest.against} by {contest.judge}: "
            f"{contest.corrected.sentence}"
            for contest in self.contests
            if contest.corrected is not None
        )
        return tuple(dict.fromkeys((*corrected, *self.notes, *of_contests)))


FIGURES_FILE = "policies.json"
ANSWERS_FILE = "answers.jsonl"
CHOICES_FILE = "choices.jsonl"
"""A row for each policy and each question with choices; not there where none was asked."""


def write_policy_evaluation(evaluation: PolicyEvaluation, folder: Path) -> list[Path]:
    """The files into a folder, each whole or not at all; a figure that is no number is refused."""
    make_output_folder(folder)
    # asdict copies deep, so the long rows leave first; they have files of their own.
    figures = asdict(replace(evaluation, all_answers=(), choice_logprobs=()))
    del figures["all_answers"], figures["choice_logprobs"]
    rows = {
        ANSWERS_FILE: [
            {"number": number, "prompt": row.prompt, "category": row.category, **asdict(answer)}
            for number, row in enumerate(evaluation.all_answers)
            for answer in row.answers
        ],
        CHOICES_FILE: [asdict(logprob) for logprob in evaluation.choice_logprobs],
    }
    if not evaluation.choice_logprobs:
        del rows[CHOICES_FILE]
    # Before any file is touched: a bad figure must not leave half of an evaluation behind.
    for where in (*_non_finite_values(figures, FIGURES_FILE), *_non_finite_values(rows, "")):
        raise UserError(f"{where} is not a finite number, so nothing was written to {folder}")
    # Left from an earlier evaluation, it would be read as this one's.
    (folder / CHOICES_FILE).unlink(missing_ok=True)
    return _write_figures(folder / FIGURES_FILE, figures, rows)


def _write_figures(path: Path, figures: object, rows: Mapping[str, Iterable[object]]) -> list[Path]:
    # The rows first: whoever finds the figures finds all that they rest on.
    for name, lines in rows.items():
        with AtomicFile(path.with_name(name)) as file:
            file.stream.writelines(map(_json_bytes, lines))
    with AtomicFile(path) as file:
        file.stream.write(_json_bytes(figures, indent=2))
    return [path, *map(path.with_name, rows)]


def read_policy_evaluation(path: Path) -> PolicyEvaluation:
    """What `write_policy_evaluation` wrote: of its folder, or of policies.json with any answers beside it."""
    figures_path = path / FIGURES_FILE if path.is_dir() else path
    try:
        evaluation = restore(PolicyEvaluation, json.loads(figures_path.read_bytes()))
        all_answers = tuple(_prompt_rows(_read_lines(figures_path.parent / ANSWERS_FILE)))
        choice_logprobs = tuple(
            restore(ChoiceLogprobs, line) for line in _read_lines(figures_path.parent / CHOICES_FILE)
        )
        return replace(evaluation, all_answers=all_answers, choice_logprobs=choice_logprobs)
    except OSError as error:
        raise UserError(
            f"{figures_path}: no evaluation of policies can be read there ({error.strerror}); "
            "plaudit eval policy --out makes one"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"{figures_path}: this is no evaluation of policies, or it is damaged ({error})"
        ) from error


JUDGES_FILE = "judges.json"
VERDICTS_FILE = "verdicts.jsonl"
"""A row for each judge and pair, with the verdict in both orders."""


def write_agreements(judged: Sequence[tuple[Contest, Sequence[JudgedPair]]], folder: Path) -> list[Path]:
    make_output_folder(folder)
    rows = ({"judge": contest.judge, **asdict(duel)} for contest, duels in judged for duel in duels)
    figures = {"judges": [asdict(contest) for contest, _ in judged]}
    return _write_figures(folder / JUDGES_FILE, figures, {VERDICTS_FILE: rows})


def read_agreements(folder: Path) -> tuple[Contest, ...]:
    path = folder / JUDGES_FILE
    try:
        return tuple(restore(Contest, figures) for figures in json.loads(path.read_bytes())["judges"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: these are no figures of judges, or they are damaged ({error})") from error


def _read_lines(path: Path) -> list[Any]:
    # Bytes at \n alone: str.splitlines would also cut at a U+2028 inside an answer.
    content = path.read_bytes().split(b"\n") if path.is_file() else []
    return [json.loads(line) for line in content if line]


def _prompt_rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[PromptAnswers]:
    """Neighbouring answers of one number are those of all policies to one prompt."""
    by_number: dict[int, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_number.setdefault(line["number"], []).append(line)
    for lines_of_row in by_number.values():
        answers = tuple(
            # A row of an earlier version lacks some of the fields: those have defaults.
            restore(PolicyAnswer, {key: line[key] for key in line.keys() & PolicyAnswer.__dataclass_fields__})
            for line in lines_of_row
        )
        category = lines_of_row[0]["category"]
        yield PromptAnswers(prompt=lines_of_row[0]["prompt"], category=category, answers=answers)


def _json_bytes(value: object, indent: int | None = None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    # A model may say half of a surrogate pair, which is no UTF-8; JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _non_finite_values(value: object, where: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: {value}"
    parts: dict[Any, Any] = {}
    if isinstance(value, dict):
        parts = value
    elif isinstance(value, list | tuple):
        parts = dict(enumerate(value))
    for name, part in parts.items():
        dotted = f"{where}.{name}".lstrip(".") if isinstance(name, str) else f"{where}[{name}]"
        yield from _non_finite_values(part, dotted)
