"""Losses and estimators beside what is exact, in a language that can be written out."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.cli.parser import Parser, integer
from plaudit.cli.sample import make_console
from plaudit.config import did_you_mean
from plaudit.errors import UserError
from plaudit.files.atomic import make_output_folder, write_json
from plaudit.methods.algorithm import load_object

if TYPE_CHECKING:
    from examples.proofs.claim import Measurement
    from examples.proofs.learn import PreferenceLossRow
    from examples.proofs.prove import Proof

_EPILOG = """\
slope at π*  largest entry of the exact gradient by a table's logits at π* ∝ π_ref exp(r / β); 0: it rests
distance     total variation between what was learnt and π*, for the worst prompt
KL, E r      of what was learnt; J lost is what is missing of E r − β KL
claims       what each loss is said to reach, and which ones are known to stay away from π*
estimators   expected gradients of policy optimisation beside the exact one, over every group of answers
ppo, grpo …  where rows of policy optimisation end, followed in expectation

All of it takes about a minute. The exit status is 1 when a claim fails, or a row of your own misses π*."""


def make_parser() -> Parser:
    proofs = Parser(
        prog="python -m examples.proofs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    add = proofs.add_argument
    names_help = (
        "preference losses; reinforce, ppo, grpo …; coverage, certainty, beta, estimators (default: all)"
    )
    add("names", nargs="*", metavar="NAME", help=names_help)
    beta_help = "β of rows and of π* (default: 0.5; claims are meant for 0.25 to 2)"
    add("--beta", type=_positive_number, help=beta_help)
    add("--seed", type=integer, default=0, help="of rewards and reference (default: 0)")
    own_help = "a PreferenceAlgorithm or UnpairedAlgorithm of yours, or module:row"
    add("--own", metavar="FILE.py:ROW", help=own_help)
    add("--out", type=Path, metavar="DIR", help="write proof.json there")
    return proofs


def main(words: Sequence[str] | None = None) -> int:
    """Prove as the words say; what cannot be proven is said in a sentence."""
    try:
        return run(make_parser().parse_args(words))
    except UserError as error:
        print(f"proofs: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """Measure, print both tables, write the file; 1 when a claim fails or the user's row misses π*."""
    user_row = None if args.own is None else load_user_row(args.own)
    if user_row is not None and not args.names and args.beta is not None:
        raise UserError("--beta is for the names; a row of your own has its own beta, so leave --beta out")
    from examples.proofs.claim import proof_setup
    from examples.proofs.exact import make_language
    from examples.proofs.prove import NAMES, check_claims, prove, prove_algorithm
    from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS

    for name in args.names:
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; there are {', '.join(NAMES)}"
            raise UserError(f"nothing that can be proven is called {name!r}{hint}")
    if args.out is not None:
        make_output_folder(args.out)
    names = args.names or (NAMES if user_row is None else ())
    proof_lab = proof_setup(seed=args.seed, beta=0.5 if args.beta is None else args.beta)
    language, rows = make_language(seed=args.seed), () if user_row is None else (user_row,)
    user_proofs = [prove(row, language=language, name=str(args.own)) for row in rows]
    named = [prove_algorithm(name, proof_lab) for name in names if name in PREFERENCE_ALGORITHMS]
    measured = list(check_claims(names, proof_lab))
    proofs = [*user_proofs, *named]
    _print_proofs(proofs, measured, user_proofs)
    if args.out is not None:
        from examples.proofs.prove import proofs_as_dict

        path = args.out / "proof.json"
        write_json(path, proofs_as_dict(proofs, measured, seed=args.seed, beta=proof_lab.beta))
        make_console().print(str(path))
    holds = all(measurement.holds for measurement in measured)
    return 0 if holds and all(proof.reaches_optimum for proof in user_proofs) else 1


def load_user_row(path: str) -> PreferenceLossRow:
    from plaudit.methods.preference.row import PreferenceAlgorithm, UnpairedAlgorithm

    user_row = load_object(path, "--own")
    # What can be called with nothing is a factory of a row; the row's loss itself takes arguments.
    if callable(user_row) and all(
        parameter.default is not parameter.empty for parameter in signature(user_row).parameters.values()
    ):
        user_row = user_row()
    if not isinstance(user_row, PreferenceAlgorithm | UnpairedAlgorithm):
        raise UserError(
            f"--own {path} is a {type(user_row).__name__} and no row; "
            "make one of your loss: row = PreferenceAlgorithm(loss=mine, beta=0.1)"
        )
    return user_row


def _print_proofs(proofs: list[Proof], measured: list[Measurement], user_proofs: list[Proof]) -> None:
    from examples.proofs.prove import claim_table, proof_table

    console = make_console()
    if proofs:
        console.print(proof_table(proofs))
    if measured:
        console.print(claim_table(measured))
    for proof in user_proofs:
        console.print(proof.sentence)
    if measured:
        failed = sum(not measurement.holds for measurement in measured)
        console.print(f"{len(measured)} claims, {f'{failed} fail' if failed else 'all hold'}")


def _positive_number(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {word!r}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
