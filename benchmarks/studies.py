"""Studies on the embedded world: each yields a table, which is printed and written into the folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.lab import Lab

Table = Iterator[tuple[str, ...]]
"""Rows, the head first."""


def run_studies(
    about: str | None, studies: Mapping[str, Callable[..., Table]], *, changed: bool = False
) -> None:
    """From the command line: all of them, or some; ``changed`` where settings of their runs may be given."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where runs and tables lie")
    parser.add_argument("--device", default="cpu", help="where models learn and answer (default: cpu)")
    parser.add_argument("--seeds", type=int, help="runs of each kind, where a study is of several")
    parser.add_argument("--sources", type=Path, help="where names of the hub may lie too (default: here)")
    parser.add_argument("--only", nargs="+", choices=studies, default=list(studies))
    if changed:
        words = "settings of every run, as plaudit run takes them: grpo.kl-coef=0.1 (another --out for each)"
        parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help=words)
    args = parser.parse_args()
    args.out = args.out.absolute()
    if args.sources is not None:
        os.chdir(args.sources)
    lab = Lab(folder=args.out, device=args.device, seeds=args.seeds)
    for name in args.only:
        found = table(studies[name](lab, args.set) if changed else studies[name](lab))
        (args.out / f"{name}.md").write_text(found, encoding="utf-8")
        print(f"\n{studies[name].__doc__}\n\n{found}", flush=True)


def table(rows: Table) -> str:
    """Markdown."""
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * (head.count(" | ") + 1), *body]) + "\n"


def spread(values: Sequence[float | None]) -> str:
    """The mean of several seeds with the lowest and the highest; nothing where none has a value."""
    numbers = [value for value in values if value is not None]
    return f"{fmean(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})" if numbers else ""
