"""``plaudit sample``: what models say to some prompts, several answers to each, models side by side.

What the commands that sample from models share: their options, the models, how an answer is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plaudit.cli.parser import Subparsers, add_row_options, integer, refuse_missing_models, row_options
from plaudit.data.files import file_ending
from plaudit.data.read import read_records
from plaudit.data.records import Message, Part, Text, answer_to, pictures, plain_text, text_to_json
from plaudit.data.write import check_output_path
from plaudit.errors import UserError, located
from plaudit.files import hub
from plaudit.files.atomic import AtomicFile
from plaudit.rewards.base import Reward, TaskScores, checked_scores, refusal_counts, refusal_reasons
from plaudit.rollouts.sampler import Answer, SamplingSettings
from plaudit.wings import everything, load

if TYPE_CHECKING:
    from rich.console import Console

    from plaudit.evaluation.policies.generate import EvaluationPrompt
    from plaudit.rollouts.local import LocalSampler

_Prompt = TypeVar("_Prompt")


def add_model_options(
    parser: argparse.ArgumentParser, *, max_tokens: int, default: Path | None = None
) -> None:
    """Add the options of every command that samples from models; without a default --model is required."""
    add = parser.add_argument
    default_note = "" if default is None else " (default: the world's base model)"
    model_help = f"a Hugging Face folder; repeat it to see models side by side{default_note}"
    add("--model", type=Path, action="append", required=default is None, metavar="DIR", help=model_help)
    add("--temperature", type=float, default=1.0, help="0 is the likeliest token every time (default: 1)")
    add("--top-k", type=integer, default=0, help="draw from so many of the likeliest tokens (default: all)")
    add("--top-p", type=float, default=1.0, help="draw from the likeliest of this probability (default: 1)")
    min_p_help = "draw from tokens so likely beside the likeliest (default: 0)"
    add("--min-p", type=float, default=0.0, help=min_p_help)
    add("--stop", action="append", default=[], metavar="TEXT", help="where an answer ends; may be repeated")
    add("--max-tokens", type=integer, default=max_tokens, help=f"where one is cut (default: {max_tokens})")
    add("--seed", type=integer, default=0, help="the same seed gives the same answers (default: 0)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add("--dtype", default="auto", help="auto, float32 or bfloat16 (default: auto)")


def sampling_settings(args: argparse.Namespace) -> SamplingSettings:
    return SamplingSettings(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        max_tokens=args.max_tokens,
        stop=tuple(args.stop),
        seed=args.seed,
    )


def load_samplers(args: argparse.Namespace) -> dict[str, LocalSampler]:
    names = Counter(str(model) for model in args.model)
    repeated = [name for name, times in names.items() if times > 1]
    if repeated:
        raise UserError(f"--model {repeated[0]} is given {names[repeated[0]]} times; name each model once")
    from plaudit.rollouts.local import LocalSampler

    return {
        str(model): LocalSampler(hub.local_path(model, "model"), device=args.device, dtype=args.dtype)
        for model in args.model
    }


def short_names(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders apart, for the heads of columns: of two models in run folders, the runs' names.

    >>> short_names(["runs/first/model", "runs/second/model"]), short_names(["runs/first"])
    (['first', 'second'], ['first'])
    """
    resolved = [Path(folder).resolve() for folder in folders]
    shipped = {load(reference).resolve(): name for name, reference in everything("models").items()}
    for depth in range(1, min(len(folder.parts) for folder in resolved)):
        names = [shipped.get(folder) or hub.short_name(folder) or folder.parts[-depth] for folder in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def make_console() -> Console:
    """Standard output with colours where it is a terminal; nothing that a model says is taken for markup."""
    from rich.console import Console

    class PipedConsole(Console):
        """Whose reader may leave: rich would end the program with status 1, as if it had failed."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipedConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)


def escape_terminal(text: str) -> str:
    """The text without anything that a terminal would obey.

    >>> escape_terminal("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def ending_note(answer: Answer) -> str:
    """What is printed behind an answer: that it is empty, or that it was cut."""
    if not answer.ended:
        return f" … (cut after {answer.tokens} tokens)"
    return "" if answer.text.strip() else "(nothing)"


def stream_answer(console: Console, pieces: Generator[str, None, Answer], received: list[str]) -> Answer:
    """Show an answer while it comes; ``received`` has what came so far, also where Ctrl-C ends it."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            answer: Answer = end.value
            console.print(ending_note(answer), style="dim")
            return answer
        # out neither wraps nor styles: a piece may be half a word.
        console.out(escape_terminal(piece), end="", highlight=False)
        received.append(piece)


def add_best_of_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--best-of", type=integer, metavar="N", help="of N answers --reward takes the best, with its score")
    reward_help = "who chooses: a reward's folder, a rule, module:function, http://… (as in training)"
    add("--reward", metavar="WORD", help=reward_help)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    answer: Answer | None
    """The answer, the first drawn of equals; None where none has a score."""
    score: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOf:
    """Best-of-n: the one of ``n`` answers that a reward scores highest (Stiennon et al. 2020)."""

    n: int
    reward: Reward

    def choose(
        self, questions: Sequence[EvaluationPrompt], groups: Sequence[Sequence[Answer]]
    ) -> list[Choice]:
        tasks = [
            question.task((answer.text, answer.ended) for answer in group)
            for question, group in zip(questions, groups, strict=True)
        ]
        return [
            self._choice(group, row)
            for group, row in zip(groups, checked_scores(self.reward, tasks), strict=True)
        ]

    def _choice(self, answers: Sequence[Answer], scores: TaskScores) -> Choice:
        missing = scores.count(None)
        best = max((score for score in scores if score is not None), default=None)
        if best is None:
            note = f"({self.reward.name} has no verdict on any of {self.n} answers, so none is chosen)"
            return Choice(answer=None, score=None, note=note)
        notes = [f"score {best:.4g}, the best of {self.n}"]
        if (equal := scores.count(best)) > 1:
            notes.append(f"{equal} share it, and this one was drawn first")
        if missing:
            notes.append(f"{missing} without a verdict")
        return Choice(answer=answers[scores.index(best)], score=best, note=f"({'; '.join(notes)})")


def best_of_choice(args: argparse.Namespace) -> BestOf | None:
    """Who chooses among how many answers; None where every answer is shown."""
    if args.best_of is None and args.reward is None:
        return None
    if args.best_of is None or args.reward is None:
        needs = "--best-of needs --reward WORD" if args.reward is None else "--reward needs --best-of N"
        raise UserError(f"{needs}: of N answers the one with the highest score by the reward is given")
    if args.best_of < 2:
        raise UserError(f"--best-of {args.best_of}: expected 2 answers or more to choose from")
    if args.temperature == 0:
        raise UserError(
            f"--best-of {args.best_of}: at temperature 0 all answers to a prompt are the same, so there is "
            "nothing to choose; raise --temperature"
        )
    from plaudit.rewards.registry import resolve_reward

    return BestOf(n=args.best_of, reward=resolve_reward(args.reward, device=args.device))


MAX_BATCH_ANSWERS = 64
"""The most answers of one model that are generated before they are printed."""


def add_parser(subparsers: Subparsers) -> None:
    text = "let models answer prompts"
    sample = subparsers.add_parser("sample", help=text, description=f"{text}, side by side".capitalize())
    add = sample.add_argument
    add("--prompt", action="append", default=[], metavar="TEXT", help="what is asked; may be repeated")
    add("--picture", type=Path, nargs="+", default=[], metavar="FILE", help="shown before each --prompt")
    add("--data", type=Path, metavar="FILE", help="rows of any kind: their prompts are asked, each once")
    add_row_options(sample.add_argument)
    add("--n", type=int, metavar="N", help="answers to each prompt (default: 3; 1 at temperature 0)")
    add("--out", type=Path, metavar="FILE", help="write the answers as rows to this .jsonl file too")
    add_best_of_options(sample)
    add_model_options(sample, max_tokens=64)
    sample.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAnswers:
    prompt: Text
    model: str
    answers: tuple[Answer, ...]
    choice: Choice | None = None
    """Which of several a reward chose, where one chooses; ``answers`` has it alone, or nothing."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is printed behind each answer: how it ended, and how it was chosen."""
        if self.choice is None:
            return tuple(map(ending_note, self.answers))
        return tuple(f"{ending_note(answer)} {self.choice.note}" for answer in self.answers)


def run(args: argparse.Namespace) -> int:
    refuse_missing_models(*args.model)
    settings, n = sampling_settings(args), _answers_per_prompt(args)
    if args.out is not None:
        file_ending(args.out, (".jsonl",))
        check_output_path(args.out)
    prompts = _prompts(args)
    best_of = best_of_choice(args)
    samplers = load_samplers(args)
    _check_prompts(prompts, samplers)
    if best_of is not None:
        results = _choose_side_by_side(_questions(prompts, args), samplers, settings, best_of)
    elif n == 1 and len(samplers) == 1 and args.data is None:
        results = _stream_prompts(list(prompts), samplers, settings)
    else:
        results = _sample_side_by_side(list(prompts), samplers, settings, n)
    with _answer_writer(args.out, settings.seed) as write:
        for result in results:
            write(result)
    return 0


def _answers_per_prompt(args: argparse.Namespace) -> int:
    if args.n is not None and args.best_of is not None:
        raise UserError(f"--best-of {args.best_of} draws that many answers and gives one: leave --n out")
    if args.n is None:
        return 1 if args.temperature == 0 else 3
    if args.n < 1:
        raise UserError(f"--n {args.n}: expected 1 answer or more to every prompt")
    if args.n > 1 and args.temperature == 0:
        raise UserError(
            f"--n {args.n}: at temperature 0 all answers to a prompt are the same; leave --n out, or raise "
            "--temperature"
        )
    return args.n


def _prompts(args: argparse.Namespace) -> dict[Text, str]:
    if args.picture and not args.prompt:
        raise UserError("--picture is shown before a --prompt: give one")
    prompts: dict[Text, str] = {_with_pictures(prompt, args.picture): "--prompt" for prompt in args.prompt}
    if args.data is not None:
        reading = read_records(args.data, format=args.format, options=row_options(args))
        for problem in reading.problems:
            print(f"plaudit: left out: {problem.message}", file=sys.stderr)
        for record in reading.records:
            prompts.setdefault(record.prompt, record.origin)
    if not prompts:
        raise UserError("nothing is asked; give --prompt TEXT, or --data FILE with rows that have prompts")
    return prompts


def _with_pictures(prompt: str, paths: Sequence[Path]) -> Text:
    if not paths:
        return prompt
    parts = [Part(kind="image", source=str(path.absolute())) for path in paths]
    return (Message(role="user", content=(*parts, Part(kind="text", text=prompt))),)


def _check_prompts(prompts: Mapping[Text, str], samplers: Mapping[str, LocalSampler]) -> None:
    """Refuse a bad prompt before the first answer: the last of many should not end a long run."""
    notes: dict[str | None, str] = {}
    for prompt, origin in prompts.items():
        for sampler in samplers.values():
            with located(origin):
                sampler.check(prompt)
            notes.setdefault(sampler.encoder.control_note(prompt), origin)
    for note, origin in notes.items():
        if note is not None:
            print(f"plaudit: {origin}: {note}", file=sys.stderr)


def _stream_prompts(
    prompts: Sequence[Text], samplers: Mapping[str, LocalSampler], settings: SamplingSettings
) -> Iterator[PromptAnswers]:
    console = make_console()
    for prompt in prompts:
        console.print(_format_prompt(prompt), style="bold")
        for name, sampler in samplers.items():
            answer = stream_answer(console, sampler.stream(prompt, settings), [])
            console.print()
            yield PromptAnswers(prompt=prompt, model=name, answers=(answer,))


def _sample_side_by_side(
    prompts: Sequence[Text], samplers: Mapping[str, LocalSampler], settings: SamplingSettings, n: int
) -> Iterator[PromptAnswers]:
    console = make_console()
    for batch in _prompt_batches(prompts, max(1, MAX_BATCH_ANSWERS // n)):
        answers = {name: sampler.generate_answers(batch, settings, n=n) for name, sampler in samplers.items()}
        for prompt, *groups in zip(batch, *answers.values(), strict=True):
            results = [
                PromptAnswers(prompt=prompt, model=name, answers=tuple(group))
                for name, group in zip(samplers, groups, strict=True)
            ]
            console.print(_format_prompt(prompt), style="bold")
            if len(results) == 1:
                _show_list(console, results[0])
            else:
                _show_table(console, results)
            console.print()
            yield from results


def _questions(prompts: Mapping[Text, str], args: argparse.Namespace) -> list[EvaluationPrompt]:
    """The prompts with what a reward may need beside them: the reference answer and the rest of the row."""
    from plaudit.evaluation.policies.generate import EvaluationPrompt, evaluation_prompts

    records = (
        read_records(args.data, format=args.format, options=row_options(args)).records if args.data else ()
    )
    of_rows = {question.prompt: question for question in evaluation_prompts(records)}
    return [of_rows.get(prompt, EvaluationPrompt(prompt=prompt)) for prompt in prompts]


def _choose_side_by_side(
    questions: Sequence[EvaluationPrompt],
    samplers: Mapping[str, LocalSampler],
    settings: SamplingSettings,
    best_of: BestOf,
) -> Iterator[PromptAnswers]:
    console, total, chosen = make_console(), 0, 0
    for batch in _prompt_batches(questions, max(1, MAX_BATCH_ANSWERS // best_of.n)):
        choices: dict[str, list[Choice]] = {}
        for name, sampler in samplers.items():
            prompts = [question.prompt for question in batch]
            choices[name] = best_of.choose(batch, sampler.generate_answers(prompts, settings, n=best_of.n))
        for question, *row in zip(batch, *choices.values(), strict=True):
            results = [
                PromptAnswers(
                    prompt=question.prompt,
                    model=name,
                    answers=() if choice.answer is None else (choice.answer,),
                    choice=choice,
                )
                for name, choice in zip(samplers, row, strict=True)
            ]
            _show_choices(console, results)
            total, chosen = total + len(results), chosen + sum(bool(result.answers) for result in results)
            yield from results
    if not chosen:
        reasons = refusal_reasons(refusal_counts(best_of.reward))
        raise UserError(
            f"{best_of.reward.name} has no verdict on any answer{reasons}, so nothing was chosen; give rows "
            "with what it needs (--data FILE), or another --reward"
        )
    if chosen < total:
        left_out = f"{total - chosen} of {total}, without a verdict on any answer"
        print(f"plaudit: left out: {left_out}", file=sys.stderr)


def _show_choices(console: Console, results: Sequence[PromptAnswers]) -> None:
    """One model below the other, since a note stands behind every answer."""
    console.print(_format_prompt(results[0].prompt), style="bold")
    for name, result in zip(short_names([result.model for result in results]), results, strict=True):
        if len(results) > 1:
            console.print(f"{name}:", style="cyan")
        if result.answers:
            _show_list(console, result)
        elif result.choice is not None:
            console.print(result.choice.note, style="dim")
    console.print()


def _prompt_batches(prompts: Sequence[_Prompt], size: int) -> Iterator[Sequence[_Prompt]]:
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]


def _format_prompt(prompt: Text) -> str:
    if isinstance(prompt, str) or len(prompt) == 1:
        names = "".join(f"[{source.rpartition('/')[2][-40:]}] " for source in pictures(prompt))
        return f"> {escape_terminal(names + plain_text(prompt))}"
    return "\n".join(f"> {turn.role}: {escape_terminal(plain_text((turn,)))}" for turn in prompt)


def _show_list(console: Console, result: PromptAnswers) -> None:
    answers = result.answers
    for number, (answer, note) in enumerate(zip(answers, result.notes, strict=True), start=1):
        label = f"{number:>{len(str(len(answers)))}}  " if len(answers) > 1 else ""
        console.out(label, end="", style="cyan", highlight=False)
        console.out(
            escape_terminal(answer.text).replace("\n", "\n" + " " * len(label)), end="", highlight=False
        )
        console.print(note, style="dim")


def _show_table(console: Console, results: Sequence[PromptAnswers]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text as Styled

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, leading=1)
    for name in short_names([result.model for result in results]):
        table.add_column(name, overflow="fold", ratio=1)
    for row in zip(*(result.answers for result in results), strict=True):
        table.add_row(
            *(Styled(escape_terminal(answer.text)).append(ending_note(answer), style="dim") for answer in row)
        )
    console.print(table, soft_wrap=False)


@contextmanager
def _answer_writer(path: Path | None, seed: int) -> Iterator[Callable[[PromptAnswers], None]]:
    if path is None:
        yield lambda result: None
        return
    total = 0

    def write(result: PromptAnswers) -> None:
        nonlocal total
        total += len(result.answers)
        file.stream.writelines(_answer_row(result, answer, seed) for answer in result.answers)

    with AtomicFile(path) as file:
        yield write
    print(f"{path}: {total} answers")


def _answer_row(result: PromptAnswers, answer: Answer, seed: int) -> bytes:
    row = {
        "prompt": text_to_json(result.prompt),
        "completion": text_to_json(answer_to(result.prompt, answer.text)),
        "model": result.model,
        "seed": seed,
        "ended": answer.ended,
    }
    if result.choice is not None:
        # Not "score": a row with one is read as a rating, and this is an answer to learn from.
        row["best_of_score"] = result.choice.score
    # A folder's name may hold bytes that are no UTF-8; JSON has an escape for them.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
