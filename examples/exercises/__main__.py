"""The reward-hacking lab: exercises that show what goes wrong in RLHF, as runs with pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import integer, positive_integer
from plaudit.cli.sample import escape_terminal, make_console
from plaudit.errors import UserError
from plaudit.runs.verbs.run import copy_config, crew_of_starter, progress_reporter, report_stopped

if TYPE_CHECKING:
    from examples.exercises.exercise import Exercise
    from examples.exercises.pages import ExerciseResult, Pipeline, Table
    from plaudit.runs.pipeline.workers import Crew

_EPILOG = """\
Without names the exercises are listed. Each is a pipeline on the embedded world that takes a minute or two:
claims that hold or do not hold as measured, a table, and a page with pictures. A claim that does not hold is
no error: it is what was measured. What is finished is kept; the same command goes on. docs/lab.md"""


def make_parser() -> argparse.ArgumentParser:
    lab = argparse.ArgumentParser(
        prog="python -m examples.exercises",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = lab.add_argument
    add("names", nargs="*", metavar="EXERCISE", help="which to run, or all; none: list them")
    add("--out", type=Path, default=Path("runs/lab"), metavar="DIR", help="default: runs/lab")
    add("--look", action="store_true", help="run nothing: look again at what is there")
    add("--write", type=Path, metavar="FILE", help="write the config of one exercise, to be changed")
    add(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.SETTING=VALUE",
        help="beats the config of one exercise",
    )
    add("--seed", type=integer, help="of every stage that names none (default: the config's)")
    add("--jobs", type=positive_integer, metavar="N", help="stages side by side (default: the config's)")
    add("--processes", type=positive_integer, metavar="N", help="processes of each stage (default: one)")
    add("--fresh", action="store_true", help="keep nothing: run every stage again")
    return lab


def main(words: Sequence[str] | None = None) -> int:
    try:
        return run(make_parser().parse_args(words))
    except UserError as error:
        print(f"exercises: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """List the exercises, write a config, or run some of them and print their results."""
    from examples.exercises.registry import exercise_folder, exercises_named

    _refuse_ignored_options(args)
    if not args.names and not args.look:
        print_exercises()
        return 0
    selected = exercises_named(args.names or ["all"])
    if args.write is not None:
        exercise = selected[0]
        copy_config(exercise.config, args.write)
        print(f"{args.write}: the config of {exercise.name}. Change it, and then")
        print(f"  plaudit run {args.write} --out {args.out / exercise.name}")
        print(f"  python -m examples.exercises {exercise.name} --look --out {args.out}")
        return 0
    if args.look:
        # One that was named is looked at in any case, so that the fault can say what is missing.
        if len(selected) > 1:
            selected = tuple(each for each in selected if exercise_folder(each, args.out).config.exists())
        return _run_exercises([(exercise, None) for exercise in selected], args)
    from examples.exercises.pages import read_pipeline

    overrides = {"changes": args.set, "seed": args.seed, "jobs": args.jobs, "processes": args.processes}
    with crew_of_starter() as crew:
        planned = [(exercise, read_pipeline(exercise.config, **overrides)) for exercise in selected]
        return _run_exercises(planned, args, crew)


def _refuse_ignored_options(args: argparse.Namespace) -> None:
    several = len(args.names) > 1 or args.names == ["all"]
    options = {"--write": args.write, "--set": args.set, "--fresh": args.fresh, "--jobs": args.jobs}
    options |= {"--processes": args.processes, "--seed": args.seed is not None}
    for option, value in options.items():
        if not value:
            continue
        if not args.names:
            raise UserError(
                f"{option}: name an exercise, as in python -m examples.exercises leash; without a name "
                "they are listed"
            )
        if several and option in ("--write", "--set"):
            raise UserError(f"{option}: every exercise has stages of its own; name one exercise")
        if args.look:
            raise UserError(f"{option}: --look runs nothing; leave one of the two out")


def _run_exercises(
    exercises: Sequence[tuple[Exercise, Pipeline | None]], args: argparse.Namespace, crew: Crew | None = None
) -> int:
    if not exercises:
        raise UserError(f"{args.out}: no exercise was run here yet; python -m examples.exercises lists them")
    from plaudit.runs.pipeline.run import StoppedError

    results: dict[str, ExerciseResult] = {}
    for number, (exercise, pipeline) in enumerate(exercises, start=1):
        print(f"{exercise.name} ({number} of {len(exercises)}): {exercise.title}", file=sys.stderr)
        try:
            results[exercise.name] = _run_exercise(exercise, pipeline, args, crew)
        except StoppedError as stop:
            return report_stopped(stop)
        except UserError as error:
            print(f"exercises: {exercise.name}: {error}", file=sys.stderr)
            continue
        print_exercise_result(exercise, results[exercise.name], args.out)
    from examples.exercises.registry import write_overview_page

    if results:
        write_overview_page(args.out, results)
    print_tally(results, args.out)
    return 0 if len(results) == len(exercises) else 1


def _run_exercise(
    exercise: Exercise, pipeline: Pipeline | None, args: argparse.Namespace, crew: Crew | None
) -> ExerciseResult:
    from examples.exercises.registry import analyse_exercise, exercise_folder, write_exercise_page
    from plaudit.runs.pipeline.run import StageSelection, run_pipeline

    folder = exercise_folder(exercise, args.out)
    if pipeline is not None:
        with progress_reporter() as reporter:
            run_pipeline(pipeline, folder.path, StageSelection(fresh=args.fresh), reporter, crew=crew)
    result = analyse_exercise(exercise, folder)
    write_exercise_page(exercise, folder, result)
    return result


_COLOURS = {True: "green", False: "red", None: "yellow"}
_VERDICT_WIDTH = 15


def print_exercises() -> None:
    from examples.exercises.registry import EXERCISES

    name_width = max(len(exercise.name) for exercise in EXERCISES)
    print("What goes wrong in RLHF, as exercises on the embedded world:\n")
    for exercise in EXERCISES:
        print(f"  {exercise.name:{name_width}}  {exercise.title} (about {exercise.minutes:g} min)")
    first = EXERCISES[0].name
    command = f"python -m examples.exercises {first}"
    print(f"\n{command}                 runs one; several names, or all, run one after another")
    print(f"{command} --write my.yaml writes its config, to be changed")
    print("docs/lab.md says what each one shows")


def print_exercise_result(exercise: Exercise, result: ExerciseResult, out: Path) -> None:
    from examples.exercises.pages import PAGE_FILE

    console = make_console()
    console.print()
    for claim in result.claims:
        console.print(f"  {claim.verdict:{_VERDICT_WIDTH}}", style=_COLOURS[claim.holds], end="")
        console.print(escape_terminal(claim.statement))
        console.print(f"  {'':{_VERDICT_WIDTH}}{escape_terminal(claim.evidence)}", style="dim")
    if result.table is not None:
        console.print(_rich_table(result.table))
    console.print(f"  {result.summary}. The page: {out / exercise.name / PAGE_FILE}\n")


def print_tally(results: Mapping[str, ExerciseResult], out: Path) -> None:
    """How many claims of each hold, where there are several; and the page over all."""
    from examples.exercises.pages import PAGE_FILE

    console = make_console()
    name_width = max((len(name) for name in results), default=0)
    for name, result in results.items() if len(results) > 1 else ():
        console.print(f"  {name:{name_width}}  {result.summary}")
    if results:
        console.print(f"All exercises: {out / PAGE_FILE}")


def _rich_table(content: Table) -> object:
    from rich import box
    from rich.table import Table as Drawn

    rows = [[escape_terminal(cell).replace(" (", "\n(") for cell in row] for row in content.rows]
    table = Drawn(
        box=box.SIMPLE_HEAD, pad_edge=False, caption=escape_terminal(content.note), caption_justify="left"
    )
    for column, name in enumerate(content.head):
        widest = max((len(line) for row in rows for line in row[column].splitlines()), default=0)
        # Heads are broken between words before a figure is.
        table.add_column(
            escape_terminal(name), justify="right" if column else "left", min_width=widest, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
