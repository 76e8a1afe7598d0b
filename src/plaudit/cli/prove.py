"""``plaudit prove``: losses and estimators beside what is exact, in a language that can be written out."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from plaudit.cli.numbers import whole
from plaudit.cli.parser import Verbs
from plaudit.cli.talking import make_console
from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.proof.claim import Measured
    from plaudit.proof.learn import Row
    from plaudit.proof.prove import Proof

_EPILOG = """\
slope at π*  largest entry of the exact gradient by a table's logits at π* ∝ π_ref exp(r / β); 0: it rests
distance     total variation between what was learnt and π*, for the worst prompt
KL, E r      of what was learnt; J lost is what is missing of E r − β KL
claims       what each loss is said to reach, and which ones are known to stay away from π*
estimators   expected gradients of policy optimisation beside the exact one, over every group of answers
ppo, grpo …  where rows of policy optimisation end, followed in expectation

All of it takes about a minute. The exit status is 1 when a claim fails, or a row of your own misses π*."""


def add_parser(subparsers: Verbs) -> None:
    """Add ``prove``."""
    prove = subparsers.add_parser(
        "prove",
        help="preference losses and policy optimisation beside what is exact",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = prove.add_argument
    words = "preference losses; reinforce, ppo, grpo …; coverage, certainty, beta, estimators (default: all)"
    add("names", nargs="*", metavar="NAME", help=words)
    add("--beta", type=_positive, help="β of rows and of π* (default: 0.5; claims are meant for 0.25 to 2)")
    add("--seed", type=whole, default=0, help="of rewards and reference (default: 0)")
    add("--own", metavar="FILE.py:ROW", help="a PreferenceRow or SingleRow of yours, or module:row")
    add("--out", type=Path, metavar="DIR", help="write proof.json there")
    prove.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print both tables, write the file; 1 when a claim fails or the user's row misses π*."""
    own_path: str | None = args.own
    own = None if own_path is None else own_row(own_path)
    if own is not None and not args.names and args.beta is not None:
        raise UserError("--beta is for the names; a row of your own has its own beta, so leave --beta out")
    from plaudit.proof.claim import lab
    from plaudit.proof.language import language
    from plaudit.proof.prove import NAMES, PREFERENCES, check, prove, prove_named

    for name in args.names:
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; there are {', '.join(NAMES)}"
            raise UserError(f"nothing that can be proven is called {name!r}{hint}")
    if args.out is not None:
        _make_folder(args.out)
    wanted = args.names or (NAMES if own is None else ())
    place = lab(seed=args.seed, beta=0.5 if args.beta is None else args.beta)
    mine = [] if own is None else [prove(own, spoken=language(seed=args.seed), name=own_path or "")]
    proofs = [*mine, *(prove_named(name, place) for name in wanted if name in PREFERENCES)]
    found = list(check(wanted, place))
    _print(proofs, found, mine)
    if args.out is not None:
        _write(args, proofs, found, place.beta)
    return 0 if all(one.holds for one in found) and all(one.reaches for one in mine) else 1


def own_row(path: str) -> Row:
    """The row at ``file.py:name`` or ``module:name``."""
    from plaudit.training.preference_row import PreferenceRow, SingleRow

    place, _, name = path.rpartition(":")
    if not place or not name:
        raise UserError(f"--own {path}: write file.py:row or module:row")
    try:
        found = getattr(_module(place), name)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise UserError(f"--own {path}: cannot be had: {error}") from error
    if not isinstance(found, PreferenceRow | SingleRow):
        raise UserError(
            f"--own {path} is a {type(found).__name__} and no row; "
            "make one of your loss: row = PreferenceRow(loss=mine, beta=0.1)"
        )
    return found


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        if not {"", os.getcwd()} & {*sys.path}:
            # An installed command does not look in the present folder, where a user's own module lies.
            sys.path.append(os.getcwd())
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(f"own_{Path(place).stem}", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Records with annotations written as strings look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _print(proofs: list[Proof], found: list[Measured], mine: list[Proof]) -> None:
    from plaudit.proof.report import claim_table, proof_table

    console = make_console()
    if proofs:
        console.print(proof_table(proofs))
    if found:
        console.print(claim_table(found))
    for one in mine:
        console.print(one.words)
    if found:
        failed = sum(not one.holds for one in found)
        console.print(f"{len(found)} claims, {failed} fail" if failed else f"{len(found)} claims, all hold")


def _write(args: argparse.Namespace, proofs: list[Proof], found: list[Measured], beta: float) -> None:
    from plaudit.proof.report import as_dict, write_json

    path = write_json(as_dict(proofs, found, seed=args.seed, beta=beta), args.out)
    make_console().print(str(path))


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: no folder can be made there ({error.strerror})") from error


def _positive(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {word!r}")
    return value
