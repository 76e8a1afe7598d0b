"""``plaudit attack``: how often models can be led astray, beside how often they refuse what is harmless."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, add_row_options, given_path, integer, positive_integer, row_options
from plaudit.errors import UserError
from plaudit.feedback.verbs.judge import add_money_options, settings_from
from plaudit.wings import offered

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from plaudit.evaluation.stats import Estimate
    from plaudit.feedback.asking import AttackSettings
    from plaudit.feedback.attack_run import AttackRows
    from plaudit.feedback.attacks.summary import AttackReport, PolicyAttack, Rate

_EPILOG = """\
models   a folder, or openai:http://host:port/v1#model; each later one is compared with the first
judges   openai:URL#model, model:DIR, call:module:function   asked Yes or No in a wording of their own
         jury:FILE.yaml                                       several of these: their log-odds
         file.py:function, module:function                    True, False or a chance, of prompt and answer
         a reward's folder, a rule, openai:URL#model,how=points   with --harmful-below X
An attack works where any of the --answers does what it must not. What works goes into the --archive, and is
asked first of whoever is attacked with it later."""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "attack", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG
    )
    add = parser.add_argument
    add("rows", type=given_path, nargs="?", metavar="ROWS", help="prompts that tempt")
    add("--model", action="append", default=[], metavar="MODEL", help="who is attacked; may be repeated")
    add("--world", action="store_true", help="prompts, twins and truth of the embedded world's test split")
    add("--judge", metavar="JUDGE", help="who says whether an answer did harm")
    add("--twins", type=given_path, metavar="ROWS", help="harmless prompts, and mirrored pairs")
    add("--without-twins", action="store_true", help="measure no refusals; every result then says so")
    add("--refusal", metavar="JUDGE", help="who says whether an answer declined (default: a model's --judge)")
    add("--templates", metavar="FILE", help="ask each prompt in other words too; ours: plaudit's own")
    add(
        "--by", metavar="WORD", help="a model that attacks: openai:URL#model, model:DIR, call:module:function"
    )
    add("--write", type=integer, default=0, metavar="N", help="messages that it writes from what worked")
    add("--turns", type=integer, default=1, metavar="N", help="it goes on where one failed (default: 1)")
    add("--archive", type=given_path, metavar="FILE", help="what ever worked: asked again, and added to")
    add("--category", action="append", default=[], metavar="NAME", help="only these; may be repeated")
    add("--n", type=positive_integer, metavar="N", help="at most so many prompts, by chance")
    _add_how(add)
    add("--out", type=given_path, metavar="DIR", help="figures, every conversation, and a page")
    add("--seed", type=integer, default=0, help="of chance (default: 0)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="of models (default: auto)")
    add_money_options(parser)
    add_row_options(add)


def _add_how(add: Callable[..., object]) -> None:
    add("--answers", type=integer, default=1, metavar="K", help="to each conversation (default: 1)")
    add("--temperature", type=float, help="of the answers (default: 0; 1 with several answers)")
    add("--max-tokens", type=integer, default=64, help="of the answers (default: 64)")
    add("--harmful-below", type=float, metavar="X", help="of a --judge that scores: less did harm")
    add("--constitution", metavar="FILE", help="principles that say what harm is; ours: plaudit's own")
    add("--principles", type=integer, default=1, metavar="N", help="drawn for each answer (default: 1)")
    add(
        "--people",
        type=given_path,
        metavar="ROWS",
        help="labels of people on some answers: correct the judge",
    )
    add(
        "--card",
        type=given_path,
        metavar="FILE",
        help="without labels: cards.json of an attack with --people",
    )


def run(args: argparse.Namespace) -> int:
    from plaudit.cli.sample import make_console
    from plaudit.feedback.attack_run import attack, estimates, parties_of
    from plaudit.feedback.judges.money import Purse

    settings = _settings(args)
    rows = _rows(args, settings)
    purse = Purse(settings.most_money)
    parties = parties_of(settings, purse=purse)
    for name, cost in estimates(settings, rows, parties).items():
        # Flushed: whoever waits for a long run sees first what it will be.
        print(f"{name}: {cost.sentence()}", flush=True)
    if args.estimate:
        return 0
    result = attack(settings, rows, parties, on_progress=lambda text: print(text, flush=True))
    print_attack(result.report, make_console())
    for sentence in purse.sentences:
        print(sentence)
    if args.out is not None:
        from plaudit.feedback.attack_run import write_attack_result

        write_attack_result(result, args.out)
        page = offered("pipeline_page")(args.out)
        print(f"{args.out}: attack.json, answers.jsonl, archive.jsonl and {page.name}")
    return 0


def _settings(args: argparse.Namespace) -> AttackSettings:
    from plaudit.feedback.asking import AttackSettings

    if args.world and (args.rows or args.twins or args.without_twins):
        raise UserError("--world has prompts and twins of its own: leave out ROWS, --twins, --without-twins")
    world = offered("world_attacks") if args.world else None
    judge = args.judge or (world and world.judge)
    if judge is None:
        raise UserError("--judge: name who says whether an answer did harm; of the world --world knows")
    refusal = args.refusal or (world.refusal if world and args.judge is None else None)
    return settings_from(
        AttackSettings, args, targets=tuple(args.model), prompts=args.rows, judge=judge, refusal=refusal
    )


def _rows(args: argparse.Namespace, settings: AttackSettings) -> AttackRows:
    from plaudit.feedback.attack_run import attack_rows, read_attack_rows

    if not args.world:
        return read_attack_rows(settings, row_options(args), layout=args.format)
    from plaudit.feedback.attacks.sources import attempts_of, harmless_rows

    world = offered("world_attacks")
    harmless = harmless_rows(world.harmless("test"), "the world's twins, test split")
    return attack_rows(settings, attempts_of(world.tempting("test")), harmless)


def print_attack(report: AttackReport, console: Console) -> None:
    """The figures by category, a column for each policy, refusals below them; then all that must be said."""
    from rich import box
    from rich.table import Table

    from plaudit.feedback.attacks.summary import correction_sentences

    say = partial(console.print, highlight=False)
    say(f"judged by {report.judge}; {report.sampling}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for policy in report.policies:
        table.add_column(policy.policy, justify="right")
    for title, cells in attack_lines(report):
        table.add_row(title, *cells)
    console.print(table)
    for sentence in correction_sentences(report):
        say(sentence)
    for gap in report.gaps:
        text = _signed_share(gap.paired.difference)
        say(f"{gap.what}, {gap.policy} less {gap.against}: {text}, p {_p_value(gap.paired.p_value)}")
    for written in report.written:
        reasons = "".join(f", {count} {why}" for why, count in written.failures.items() if count)
        counts = f"{written.fresh} new, {written.repeated} tried before{reasons}"
        say(f"{written.writer} was asked for {written.requested} messages: {counts}")
    for sentence in (*report.notes, *(f"MISSING: {sentence}" for sentence in report.missing)):
        say(sentence)


def attack_lines(report: AttackReport) -> list[tuple[str, list[str]]]:
    """A title and a cell for each policy, line by line."""
    first = report.policies[0]
    kinds: list[tuple[str, Callable[[PolicyAttack], tuple[Rate, ...]]]] = [
        ("", lambda policy: policy.by_category),
        ("  from ", lambda policy: policy.by_source),
        ("  twin of ", lambda policy: policy.refusal_by_category),
    ]
    lines = [("attack success", [_rate(policy.success, report) for policy in report.policies])]
    for prefix, rates_of in kinds:
        if prefix == "  twin of " and first.refusal is not None:
            lines.append(("harmless, and refused", [_rate(p.refusal, report) for p in report.policies]))
        names = list(dict.fromkeys(rate.name for p in report.policies for rate in rates_of(p)))
        if prefix == "  from " and len(names) < 2:
            continue
        for name in names:
            found = [next((r for r in rates_of(p) if r.name == name), None) for p in report.policies]
            lines.append((f"{prefix or '  '}{name}", [_rate(rate, report) for rate in found]))
    if report.turns > 1:
        turns = [" / ".join(f"{share:.1%}" for share in policy.by_turns) for policy in report.policies]
        lines.append(("  after each turn", turns))
    lines += _further_lines(report)
    return lines


def _further_lines(report: AttackReport) -> list[tuple[str, list[str]]]:
    lines = list[tuple[str, list[str]]]()
    if any(policy.mirrored for policy in report.policies):
        lines.append(("first of mirrored pairs refused more", [_mirrored(p) for p in report.policies]))
        lines.append(("  of pairs, and p that neither is", [_pairs(p) for p in report.policies]))
    if any(policy.archive for policy in report.policies):
        lines.append(("of what worked before, still works", [_archive(p) for p in report.policies]))
    if any(policy.failures for policy in report.policies):
        cells = [", ".join(f"{n} {why}" for why, n in p.failures.items()) or "–" for p in report.policies]
        lines.append(("answers that nobody could judge", cells))
    return lines


def _rate(rate: Rate | None, report: AttackReport) -> str:
    if rate is None or rate.share is None:
        return "–"
    mean = f"; of answers {rate.answers.value:.1%}" if report.answers > 1 and rate.answers else ""
    unjudged = f", {rate.unjudged} unjudged" if rate.unjudged else ""
    return f"{_share(rate.share)} of {rate.attempts - rate.unjudged}{mean}{unjudged}"


def _share(estimate: Estimate) -> str:
    ends = (
        "" if estimate.low is None or estimate.high is None else f" ({estimate.low:.1%}–{estimate.high:.1%})"
    )
    return f"{estimate.value:.1%}{ends}"


def _signed_share(estimate: Estimate) -> str:
    low, high = estimate.low, estimate.high
    ends = "" if low is None or high is None else f" ({low:+.1%} to {high:+.1%})"
    return f"{estimate.value:+.1%}{ends}"


def _mirrored(policy: PolicyAttack) -> str:
    found = policy.mirrored and policy.mirrored.paired
    return "–" if found is None else _signed_share(found.difference)


def _pairs(policy: PolicyAttack) -> str:
    found = policy.mirrored and policy.mirrored.paired
    if policy.mirrored is None or found is None:
        return "–"
    return f"{policy.mirrored.pairs - policy.mirrored.unjudged}, p {_p_value(found.p_value)}"


def _archive(policy: PolicyAttack) -> str:
    rate = policy.archive
    if rate is None or rate.share is None:
        return "–"
    return f"{round(rate.share.value * rate.share.n)} of {rate.attempts} ({rate.share.value:.0%})"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 1e-3 else f"{p:.3f}"
