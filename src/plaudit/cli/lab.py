"""``plaudit lab``: the reward-hacking lab, exercises that show what goes wrong in RLHF."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.numbers import count, whole
from plaudit.cli.parser import Verbs
from plaudit.cli.pipelines import copy_config, refuse_many_processes, stopped, telling
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.lab.exercise import Exercise, Seen
    from plaudit.pipeline.stage import Pipeline

_EPILOG = """\
Without names the exercises are listed. Each is a pipeline on the embedded world that takes a minute or two:
claims that hold or do not hold as measured, a table, and a page with pictures. A claim that does not hold is
no error: it is what was measured. What is finished is kept; the same command goes on. docs/lab.md"""


def add_parser(subparsers: Verbs) -> None:
    """Add ``lab``."""
    lab = subparsers.add_parser(
        "lab",
        help="exercises that show what goes wrong in RLHF, as runs with pictures",
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
    add("--seed", type=whole, help="of every stage that names none (default: the config's)")
    add("--jobs", type=count, metavar="N", help="stages side by side (default: the config's)")
    add("--fresh", action="store_true", help="keep nothing: run every stage again")
    lab.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the exercises, write a config, or run some of them and show what was seen."""
    from plaudit.cli.lab_shown import print_list
    from plaudit.lab.shelf import exercises_named

    _refuse_unread(args)
    if not args.names and not args.look:
        print_list()
        return 0
    chosen = exercises_named(args.names or ["all"])
    if args.write is not None:
        return _write(chosen[0], args.write, args.out)
    if args.look:
        return _go([(one, None) for one in chosen if len(chosen) == 1 or _is_there(one, args.out)], args)
    refuse_many_processes("lab")
    from plaudit.pipeline.reading import read_pipeline

    given = {"changes": args.set, "seed": args.seed, "jobs": args.jobs}
    return _go([(one, read_pipeline(one.config, **given)) for one in chosen], args)


def _refuse_unread(args: argparse.Namespace) -> None:
    """Complain about what nothing would come of."""
    several = len(args.names) > 1 or args.names == ["all"]
    told = {"--write": args.write, "--set": args.set, "--fresh": args.fresh, "--seed": args.seed is not None}
    told["--jobs"] = args.jobs
    for option, value in told.items():
        if not value:
            continue
        if not args.names:
            raise UserError(f"{option}: name an exercise, as in plaudit lab leash; plaudit lab lists them")
        if several and option in ("--write", "--set"):
            raise UserError(f"{option}: every exercise has stages of its own; name one exercise")
        if args.look:
            raise UserError(f"{option}: --look runs nothing; leave one of the two out")


def _is_there(exercise: Exercise, out: Path) -> bool:
    from plaudit.lab.looking import place_of

    return place_of(exercise, out).config.exists()


def _write(exercise: Exercise, target: Path, out: Path) -> int:
    copy_config(exercise.config, target)
    print(f"{target}: the config of {exercise.name}. Change it, and then")
    print(f"  plaudit run {target} --out {out / exercise.name}")
    print(f"  plaudit lab {exercise.name} --look --out {out}")
    return 0


def _go(wanted: Sequence[tuple[Exercise, Pipeline | None]], args: argparse.Namespace) -> int:
    """One exercise after another; what goes wrong in one does not keep the others from running."""
    if not wanted:
        raise UserError(f"{args.out}: no exercise was run here yet; plaudit lab lists them")
    from plaudit.cli.lab_shown import print_seen, print_tally
    from plaudit.pipeline.running import StoppedError

    seen: dict[str, Seen] = {}
    for at, (exercise, pipeline) in enumerate(wanted, start=1):
        print(f"{exercise.name} ({at} of {len(wanted)}): {exercise.title}", file=sys.stderr)
        try:
            seen[exercise.name] = _one(exercise, pipeline, args)
        except StoppedError as stop:
            return stopped(stop)
        except UserError as error:
            print(f"plaudit: {exercise.name}: {error}", file=sys.stderr)
            continue
        print_seen(exercise, seen[exercise.name], args.out)
    _conclude(seen, args.out)
    print_tally(seen, args.out)
    return 0 if len(seen) == len(wanted) else 1


def _one(exercise: Exercise, pipeline: Pipeline | None, args: argparse.Namespace) -> Seen:
    from plaudit.lab.looking import looked, place_of
    from plaudit.lab.page import write_exercise
    from plaudit.pipeline.course import Wish
    from plaudit.pipeline.running import run_pipeline

    folder = place_of(exercise, args.out)
    if pipeline is not None:
        with telling() as told:
            run_pipeline(pipeline, folder.path, Wish(fresh=args.fresh), told)
    seen = looked(exercise, folder)
    write_exercise(exercise, folder, seen)
    return seen


def _conclude(seen: dict[str, Seen], out: Path) -> None:
    """The page over all exercises that are there, also those of earlier calls."""
    from plaudit.lab.page_shelf import write_shelf

    if seen:
        write_shelf(out, seen)
