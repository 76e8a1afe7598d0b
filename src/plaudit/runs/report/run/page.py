"""report.html: a run on one page; written at its end, and again by `plaudit report`.

The page says the whole run in a sentence, shows the figures that matter most, curves, samples and notes,
and where all of it comes from. Held-out reward and judge are drawn against √KL from the reference: a reward
that is gamed goes on rising where the judge falls (Gao et al. 2022, arXiv:2210.10760).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from markupsafe import Markup

from plaudit.engine.run_folder import Lineage
from plaudit.engine.step_report import metric_docs
from plaudit.runs.report import parts, parts as html
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart, curve_figures
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.run.data import (
    Delivery,
    Exchange,
    MetricColumn,
    MetricHistory,
    Note as RunNote,
    RunData,
    read_run_data,
)
from plaudit.runs.report.words import Number, counted, duration, number_text, percent, shortened

_MAX_EXCHANGES = 12
_MAX_CHARACTERS = 1000
_MAX_NOTES = 100
# As runs of rewards write their samples: a reward or a rank, two spaces, the answer on one line.
_SCORED_LINE = re.compile(r"([+-]\d+\.\d\d|\d+(?:\.\d+)?\.)  (.*)")


def write_report(run: Path, *, command: str = "plaudit train sft") -> Path:
    """Writes ``report.html`` from what lies in the run folder, finished or not; returns where it is.
    ``command`` is what the run was started with; the page shows it with the run's own config."""
    return write_page(report_html(read_run_data(run), command), run / "report.html")


def report_html(run_data: RunData, command: str) -> str:
    history, notes = run_data.history, run_data.notes
    links = [("#notes", counted(len(notes), "note"))] if notes else []
    word, text = ("Finished", " on ") if run_data.finished else ("Not finished", " · last figures of ")
    if run_data.last_change is None:
        text = ""
    head: list[html.Part] = [
        html.State(word, run_data.finished, text, run_data.last_change, links),
        html.Text(run_sentence(history, finished=run_data.finished), "lede"),
        *([html.Cards([*_metric_cards(history)])] if history.columns else []),
    ]
    sections = [
        html.Section("Curves", "curves", _curves_parts(history)),
        _samples_section(run_data.exchanges),
        *_servers_section(run_data.deliveries, run_data.history),
        html.Section("Notes", "notes", [*_notes_parts(notes)]),
        html.Section("Lineage", "origins", [_lineage_part(run_data.lineage)]),
        html.Section(
            "Settings", "settings", [html.Folded(html.say("run.config"), [html.Code(run_data.config)])]
        ),
        html.Section(
            "Going on",
            "going-on",
            [*_commands(run_data, command), html.Text(html.say("again.paths"), "quiet")],
        ),
    ]
    return render(
        html.Page(
            title=run_data.name, heading=run_data.name, head=head, sections=sections, styles=("charts", "run")
        )
    )


def _servers_section(deliveries: Sequence[Delivery], history: MetricHistory) -> Iterator[html.Section]:
    if not deliveries:
        return
    later = deliveries[1:] or deliveries
    sentence = html.say(
        "run.servers",
        count=len(deliveries),
        first=f"{deliveries[0].bytes / 2**20:,.1f}",
        later=f"{median(delivery.bytes for delivery in later) / 2**20:,.1f}",
        seconds=number_text(median(delivery.seconds for delivery in later)),
        gap=f"{max(delivery.gap for delivery in deliveries):.1g}",
        distinguished=sum(delivery.distinguished > 0 for delivery in deliveries),
        fewest=f"{min(delivery.servers for delivery in deliveries):.0f}",
        most=f"{max(delivery.servers for delivery in deliveries):.0f}",
    )
    seconds, drawn, waited = (history.total(f"timing/{name}seconds") for name in ("", "draw_", "wait_"))
    shares = {"learnt": seconds - waited, "waited": waited, "drawn": drawn}
    lag = history.columns.get("rollout_lag")
    ahead = [html.say("run.ahead", lag=int(lag.highest))] if lag is not None and lag.highest else []
    times = html.say("run.shares", **{name: share / max(seconds, 1e-9) for name, share in shares.items()})
    yield html.Section("Servers", "servers", [html.Text(" ".join([sentence, *ahead, times]))])


def curves_page(run: Path) -> tuple[str, int]:
    data = read_run_data(run)
    sentence = f": {run_sentence(data.history, finished=data.finished)}"
    head = [html.Text(sentence, about=data.name), html.Charts(_charts(data.history))]
    page = render(html.Page(title=data.name, heading="", head=head, sections=[], styles=("charts", "run")))
    return page, page.count("<figure")


def _charts(history: MetricHistory) -> list[Markup]:
    return [curve_figures(history), *reward_against_kl(history)]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The part of a page that has every figure of a run, with what it means and its values."""

    rows: Sequence[tuple[str, str, Sequence[str]]]


def _curves_parts(history: MetricHistory) -> list[html.Part]:
    if not history.columns:
        return [html.Text(html.say("run.nothing_to_draw"))]
    numbers = Metrics([_metric_row(column) for column in history.columns.values()])
    return [
        html.Charts(_charts(history), html.say("run.curves_guide")),
        html.Folded(html.say("run.numbers"), [numbers]),
    ]


def _metric_row(column: MetricColumn) -> tuple[str, str, list[str]]:
    values = (column.values[0], column.last, column.lowest, column.highest)
    write = "{:,.0f}".format if all(map(float.is_integer, column.values)) else number_text
    texts = [html.NO_VALUE if value is None else write(value) for value in values]
    doc = metric_docs().get(column.name)
    return column.name, doc.what if doc else "", texts


def _samples_section(exchanges: Sequence[Exchange]) -> html.Section:
    """Of each prompt the first completion, the last one and the one in the data, as far as there are such."""
    samples = [
        parts.Exchange(prompt=row.prompt, answers=[*_answers(row)], title=f"Prompt {number}")
        for number, row in enumerate(exchanges[:_MAX_EXCHANGES], start=1)
    ]
    hidden = len(exchanges) - len(samples)
    first = [html.Samples(samples) if samples else html.Text(html.say("run.unasked"))]
    more = [html.Text(html.say("run.more_prompts", count=hidden), "quiet")] if hidden else []
    is_scored = bool(exchanges) and all(_judged(exchange.last[1]) for exchange in exchanges)
    title = "How the model scored" if is_scored else "What the model said"
    return html.Section(title, "samples", [*first, *more])


def _answers(exchange: Exchange) -> Iterator[html.Answer]:
    (first, first_text), (last, last_text) = exchange.first, exchange.last
    if first != last:
        yield _answer(f"At step {first:,}", "before", first_text)
    yield _answer(f"At step {last:,}", "now", last_text)
    if exchange.expected is not None:
        yield _answer("In the data", "expected", exchange.expected)


def _answer(label: str, kind: str, text: str) -> html.Answer:
    return html.Answer(label=label, kind=kind, text=text, judged=_judged(text))


def _judged(text: str) -> list[tuple[str, str]]:
    """Judgements and answers, where every line is one of each; nothing otherwise.

    >>> _judged("+1.34  Yes.\\n-0.20  No."), _judged("Yes.")
    ([('+1.34', 'Yes.'), ('-0.20', 'No.')], [])
    """
    matches = [_SCORED_LINE.fullmatch(line) for line in text.split("\n")]
    return [(match[1], match[2]) for match in matches if match] if all(matches) else []


def _notes_parts(notes: Sequence[RunNote]) -> Iterator[html.Part]:
    latest = notes[-_MAX_NOTES:]
    if len(notes) > len(latest):
        yield html.Text(html.say("run.earlier_notes", count=len(notes) - len(latest)), "quiet")
    yield html.Notes([*map(_note, latest)]) if latest else html.Text(html.say("run.no_notes"))


def _note(note: RunNote) -> html.Note:
    return html.Note(shortened(note.text, _MAX_CHARACTERS), quiet=f"({note.details})" if note.details else "")


def _commands(run_data: RunData, command: str) -> Iterator[html.Command]:
    config = shlex.quote(str(run_data.path / "config.yaml"))
    if run_data.finished:
        new_folder = shlex.quote(f"{run_data.path}-again")
        yield html.Command(html.say("run.again"), f"{command} --config {config} --out {new_folder}")
    else:
        yield html.Command(html.say("run.go_on"), f"{command} --config {config}")
    if run_data.model_kind != "none":
        library, kind = ("peft", "AutoPeftModelForCausalLM")
        if run_data.model_kind == "model":
            library, kind = ("transformers", "AutoModelForCausalLM")
        folder = repr(str(run_data.path / "model"))
        code = html.say("run.loading", library=library, kind=kind, folder=folder)
        yield html.Command(html.say("run.in_python"), code)


def _lineage_part(lineage: Lineage | None) -> html.Part:
    if lineage is None:
        return html.Text(html.say("run.no_lineage"))
    return html.Origins([*_origins(lineage)], html.say("run.hashes"))


def _origins(lineage: Lineage) -> Iterator[html.Origin]:
    """What went in by name: in words, or else by its hash."""
    for name, digest in lineage.data.items():
        yield html.Origin(f"data: {name}", digest=digest)
    for name in ("model", "template", "tokenizer"):
        digest = getattr(lineage, name)
        if digest is not None:
            yield html.Origin("base model" if name == "model" else name, digest=digest)
    yield html.Origin("seed", str(lineage.seed))
    yield html.Origin("plaudit", version_text(lineage.code))
    for name in ("libraries", "machine"):
        yield html.Origin(name, ", ".join(f"{key} {value}" for key, value in getattr(lineage, name).items()))


def version_text(code: Mapping[str, object]) -> str:
    """The version of plaudit that was used, with its commit where that is known."""
    commit = code.get("commit")
    name = "version" if not commit else "changed_commit" if code.get("changed") else "commit"
    return html.say(f"run.{name}", version=code.get("plaudit"), commit=str(commit)[:12])


_SCORE_LABELS = {
    "held_out/reward": ("Reward along √KL", "reward", "what teaches"),
    "held_out/judge": ("Judge along √KL", "judge", "who never teaches"),
}


def reward_against_kl(history: MetricHistory) -> Iterator[Markup]:
    """A chart for each score of held-out prompts; none where there is no reference, or a single look. Where a
    judge looked on, a line stands at the look that it liked best: from there on the reward is gamed."""
    root_kl = history.columns.get("held_out/sqrt_kl")
    best = None if root_kl is None else _best_by_judge(root_kl, history.columns.get("held_out/judge"))
    for name, (title, label, note) in _SCORE_LABELS.items():
        scores = history.columns.get(name)
        if root_kl is not None and scores is not None and (points := _kl_points(root_kl, scores)):
            chart = BandChart(
                lines=(BandLine(label=label, points=points, directed=True),), vertical_line=best
            )
            yield band_chart(title, "mean of held-out answers", chart, note=note)


def _best_by_judge(root_kl: MetricColumn, judge: MetricColumn | None) -> tuple[float, str] | None:
    if judge is None or judge.best is None:
        return None
    kl_at_best = dict(zip(root_kl.steps, root_kl.values, strict=True)).get(judge.best[0], math.nan)
    return (kl_at_best, "best by the judge") if math.isfinite(kl_at_best) else None


def _kl_points(root_kl: MetricColumn, scores: MetricColumn) -> tuple[tuple[float, Span], ...]:
    """The points in the order of evaluations, also where the KL went back; fewer than two are no line."""
    kl_at_step = dict(zip(root_kl.steps, root_kl.values, strict=True))
    points = [
        (kl_at_step[step], value)
        for step, value in zip(scores.steps, scores.values, strict=True)
        if math.isfinite(value) and math.isfinite(kl_at_step.get(step, math.nan))
    ]
    return () if len(points) < 2 else tuple((root, Span(value=value)) for root, value in points)


def run_sentence(history: MetricHistory, *, finished: bool) -> str:
    if not history.step:
        return html.say("run.no_step")
    so_far = "_so_far" if not finished and history.step < history.steps else ""
    taken = html.say(f"run.taken{so_far}", step=history.step, steps=history.steps)
    epochs = f"{history.epoch:.1f}" if history.epoch >= 0.1 else f"{history.epoch:.2g}"
    epochs = f"{epochs} {'epoch' if epochs == '1.0' else 'epochs'}"
    return html.say(
        "run.whole", taken=taken, epochs=epochs, rows=_rows_text(history), outcome=_outcome_text(history)
    )


def _rows_text(history: MetricHistory) -> str:
    rows_trained = history.total("rows")
    # A prompt whose answers are gone through several times is a row of each of these steps.
    if not rows_trained or "reward" in history.columns:
        return ""
    rows_per_epoch = rows_trained / history.epoch if history.epoch else 0.0
    # Steps that were left out, or taken up half-way, make the quotient something else than a count of rows.
    if rows_per_epoch >= 1 and abs(rows_per_epoch - round(rows_per_epoch)) < 1e-6 * rows_per_epoch:
        return html.say("run.rows", rows=round(rows_per_epoch))
    return html.say("run.rows_in_all", rows=rows_trained)


_OUTCOME_METRICS = ("held_out/judge", "held_out/reward", "held_out/loss")


def _outcome_text(history: MetricHistory) -> str:
    for name in _OUTCOME_METRICS:
        if name in history.columns:
            change = _held_out_text(history.columns[name])
            return html.say("run.outcome", label=html.say(f"run.outcomes.{name}"), change=change)
    # The loss of a policy's own answers is a surrogate, near 0 by design: their reward says how it went.
    name = "reward" if "reward" in history.columns else "loss"
    column = history.columns.get(name)
    if column is None:
        return ""
    label = html.say(f"run.outcomes.{name}")
    if len(column.values) == 1:
        return html.say("run.only_step", label=label, value=column.last)
    # Means over some steps at either end: two single steps are too noisy to compare.
    count = max(1, min(50, len(column.values) // 10))
    change = _change_text(fmean(column.values[:count]), fmean(column.values[-count:]))
    ends = html.say("run.first_and_last") if count == 1 else html.say("run.means", count=count)
    return html.say("run.steps", label=label, change=change, ends=ends)


def _held_out_text(column: MetricColumn) -> str:
    if len(column.values) == 1:
        return html.say("run.was", value=column.last, step=column.steps[0])
    change = _change_text(column.values[0], column.last)
    best = column.best
    if best is None or number_text(best[1]) == number_text(column.last):
        return change
    return html.say("run.with_best", change=change, best=best[1], step=best[0])


def _change_text(before: Number, after: Number) -> str:
    if math.isnan(before) or math.isnan(after):
        return html.say("run.went", before=before, after=after)
    if number_text(before) == number_text(after):
        return html.say("run.stayed", value=after)
    return html.say("run.fell" if after < before else "run.rose", before=before, after=after)


_HEADLINE_METRICS = (
    *(f"held_out/{name}" for name in ("judge", "reward", "kl", "loss", "accuracy", "mae", "perplexity")),
    *("held_out/token_accuracy", "loss", "token_accuracy", "accuracy"),
)


def _metric_cards(history: MetricHistory) -> Iterator[html.Card]:
    columns = history.columns
    for name in _HEADLINE_METRICS:
        if name in columns:
            write = percent if name.endswith("accuracy") else number_text
            last, more = write(columns[name].last), _best_note(columns[name], write)
            yield html.Card(label=html.say(f"run.cards.{name}"), value=last, more=more)
    seconds, tokens = history.total("timing/seconds"), history.total("tokens")
    if seconds:
        speed = html.say("run.speed", speed=tokens / seconds) if tokens else ""
        yield html.Card(label="Time in steps", value=duration(seconds), more=speed)
    if tokens:
        rows = history.total("rows")
        yield html.Card(
            label="Tokens", value=f"{tokens:,.0f}", more=f"in {counted(rows, 'row')}" if rows else ""
        )
    if "timing/memory_mib" in columns and (most := columns["timing/memory_mib"].highest) is not None:
        yield html.Card(label="Most memory", value=f"{most:,.0f} MiB")


def _best_note(column: MetricColumn, write: Callable[[Number], str]) -> str:
    if column.best is None or len(column.values) == 1:
        return ""
    step, value = column.best
    if write(value) == write(column.last):
        return html.say("run.best")
    return html.say("run.best_at", value=write(value), step=step)
