"""The top of the page: name, state, the run in one sentence, the figures that matter most, the curves.

The foot of the page: what went in, the settings, and the commands that go on from here.

Charts of held-out reward and judge against √KL from the reference.

A reward that is gamed goes on rising where the judge falls (Gao et al. 2022, arXiv:2210.10760).

The samples and notes sections of the report.

A whole run in words, as a person would say it.

report.html: a run on one page; written at its end, and again by `plaudit report`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from plaudit.engine.lineage import Lineage
from plaudit.engine.metric_docs import METRIC_DOCS
from plaudit.files import atomic
from plaudit.report.charts.axes import Span
from plaudit.report.charts.lines import BandChart, BandLine, band_chart, curve_figures
from plaudit.report.html import (
    Html,
    document,
    element,
    figure_card,
    folded,
    quoted_text,
    read_stylesheet,
    section,
    shortened,
    text_column,
)
from plaudit.report.run.data import Exchange, MetricColumn, MetricHistory, Note, RunData, read_run_data
from plaudit.report.words import Number, counted, duration, number_text, percent, timestamp_text

_MAX_CONFIG_CHARACTERS = 50_000
_HASH_LENGTH = 12


def lineage_section(origin: Lineage | None) -> Html:
    """What went in, by hash and version."""
    title = "Where it comes from"
    if origin is None:
        return section(title, "origins", element("p", {}, "The run ended before it wrote lineage.json."))
    caption = "Contents by the first characters of their sha256; point at one for all, or see lineage.json."
    rows = [
        element("tr", {}, element("th", {"scope": "row"}, name), element("td", {}, value))
        for name, value in _lineage_rows(origin)
    ]
    table = element("table", {}, element("caption", {}, caption), element("tbody", {}, *rows))
    return section(title, "origins", table)


def settings_section(config: str) -> Html:
    """config.yaml, folded."""
    text = element("pre", {}, element("code", {}, shortened(config, _MAX_CONFIG_CHARACTERS)))
    return section("Settings", "settings", folded("config.yaml, every setting as it was resolved", text))


def commands_section(run_data: RunData, command: str) -> Html:
    """How to go on with the run, and how to use what it has made."""
    config = shlex.quote(str(run_data.path / "config.yaml"))
    if run_data.finished:
        new_folder = shlex.quote(f"{run_data.path}-again")
        parts = [
            _command_block(
                "To run it again in another folder:", f"{command} --config {config} --out {new_folder}"
            )
        ]
    else:
        parts = [_command_block("To go on where it stopped:", f"{command} --config {config}")]
    if run_data.model_kind != "none":
        parts.append(_command_block("To use the model in Python:", _loading_code(run_data)))
    where = "Paths are as they were when this page was written: run commands from the same place."
    return section("Going on", "going-on", *parts, element("p", {"class": "quiet"}, where))


def _command_block(purpose: str, text: str) -> Html:
    return element("div", {}, element("p", {}, purpose), element("pre", {}, element("code", {}, text)))


def _loading_code(run_data: RunData) -> str:
    library, kind = ("peft", "AutoPeftModelForCausalLM")
    if run_data.model_kind == "model":
        library, kind = ("transformers", "AutoModelForCausalLM")
    folder = repr(str(run_data.path / "model"))
    return (
        f"from {library} import {kind}\n"
        "from transformers import AutoTokenizer\n\n"
        f"model = {kind}.from_pretrained({folder})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({folder})"
    )


def _lineage_rows(origin: Lineage) -> Iterator[tuple[str, str]]:
    for name, digest in origin.data.items():
        yield f"data: {name}", short_hash(digest)
    for name in ("model", "template", "tokenizer"):
        digest = getattr(origin, name)
        if digest is not None:
            yield {"model": "base model"}.get(name, name), short_hash(digest)
    yield "seed", str(origin.seed)
    yield "plaudit", version_text(origin.code)
    yield "libraries", ", ".join(f"{name} {version}" for name, version in origin.libraries.items())
    yield "machine", ", ".join(f"{name} {value}" for name, value in origin.machine.items())


def version_text(code: Mapping[str, object]) -> str:
    """The version of plaudit that was used, with its commit where that is known."""
    commit = code.get("commit")
    if not commit:
        return f"version {code.get('plaudit')}"
    changed = ", with files that differed from it" if code.get("changed") else ""
    return f"version {code.get('plaudit')}, commit {str(commit)[:_HASH_LENGTH]}{changed}"


def short_hash(digest: str) -> Html:
    """The beginning of a hash; the whole of it for those who point at it."""
    return element("code", {"title": digest}, f"{digest[:_HASH_LENGTH]}…")


_SCORE_LABELS = {
    "held_out/reward": ("Reward along √KL", "reward", "what teaches"),
    "held_out/judge": ("Judge along √KL", "judge", "who never teaches"),
}


def reward_against_kl(history: MetricHistory) -> Iterator[Html]:
    """A chart for each score of held-out prompts; none where there is no reference, or a single look.

    Where a judge looked on, a line stands at the look that it liked best: from there on the reward is gamed.
    """
    root_kl = history.columns.get("held_out/kl_root")
    best = None if root_kl is None else _best_by_judge(root_kl, history.columns.get("held_out/judge"))
    for name, (title, label, note) in _SCORE_LABELS.items():
        scores = history.columns.get(name)
        if root_kl is not None and scores is not None and (points := _kl_points(root_kl, scores)):
            chart = BandChart(lines=(BandLine(label=label, points=points),), vertical_line=best)
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
    if len(points) < 2:
        return ()
    return tuple((root, Span(value=value)) for root, value in points)


_MAX_EXCHANGES = 12
_MAX_CHARACTERS = 1000
_MAX_NOTES = 100
# As runs of rewards write their samples: a reward or a rank, two spaces, the answer on one line.
_SCORED_LINE = re.compile(r"([+-]\d+\.\d\d|\d+(?:\.\d+)?\.)  (.*)")


def samples_section(exchanges: tuple[Exchange, ...]) -> Html:
    """What the model said, or what it gave to answers, beside what the data say."""
    is_scored = bool(exchanges) and all(_scored_lines(exchange.last[1]) for exchange in exchanges)
    title = "How the model scored" if is_scored else "What the model said"
    if not exchanges:
        return section(title, "samples", element("p", {}, "The model was not asked anything."))
    articles = [
        _exchange_article(number, exchange)
        for number, exchange in enumerate(exchanges[:_MAX_EXCHANGES], start=1)
    ]
    hidden = len(exchanges) - len(articles)
    more = element("p", {"class": "quiet"}, f"{counted(hidden, 'more prompt')} in samples.jsonl.")
    return section(title, "samples", *articles, *([more] if hidden else []))


def notes_section(run_notes: tuple[Note, ...]) -> Html:
    """Remarks and warnings, the latest hundred."""
    if not run_notes:
        return section("Notes", "notes", element("p", {}, "None."))
    items = [_note_item(note) for note in run_notes[-_MAX_NOTES:]]
    hidden = len(run_notes) - len(items)
    before = element("p", {"class": "quiet"}, f"{counted(hidden, 'earlier note')} in notes.jsonl.")
    return section("Notes", "notes", *([before] if hidden else []), element("ul", {"class": "notes"}, *items))


def _exchange_article(number: int, exchange: Exchange) -> Html:
    (first, first_text), (last, last_text) = exchange.first, exchange.last
    sides = [] if first == last else [text_column(f"At step {first:,}", _sample_text(first_text), "before")]
    sides.append(text_column(f"At step {last:,}", _sample_text(last_text), "now"))
    if exchange.expected is not None:
        sides.append(text_column("In the data", _sample_text(exchange.expected), "expected"))
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, f"Prompt {number}"),
        quoted_text(exchange.prompt, _MAX_CHARACTERS),
        element("div", {"class": "sides"}, *sides),
    )


def _sample_text(text: str) -> Html:
    """A text as it is; answers that are judged in two columns, so that no judgement hides in the words."""
    scored = _scored_lines(text)
    if not scored:
        return quoted_text(text, _MAX_CHARACTERS)
    rows: list[Html] = []
    for judgement, answer in scored:
        answer_item = element("dd", {}, quoted_text(answer, _MAX_CHARACTERS))
        rows += [element("dt", {}, judgement.replace("-", "−")), answer_item]
    return element("dl", {"class": "judged"}, *rows)


def _scored_lines(text: str) -> list[tuple[str, str]]:
    """Judgements and answers, where every line is one of each; nothing otherwise.

    >>> _scored_lines("+1.34  Yes.\\n-0.20  No."), _scored_lines("Yes.")
    ([('+1.34', 'Yes.'), ('-0.20', 'No.')], [])
    """
    matches = [_SCORED_LINE.fullmatch(line) for line in text.split("\n")]
    return [(one[1], one[2]) for one in matches if one] if all(matches) else []


def _note_item(note: Note) -> Html:
    where = "" if note.step is None else f"after step {note.step:,}" if note.step else "before the first step"
    times = f"{note.times:,} times" if note.times > 1 else ""
    details = ", ".join(part for part in (where, times) if part)
    about = [element("span", {"class": "quiet"}, f" ({details})")] if details else []
    return element("li", {}, shortened(note.text, _MAX_CHARACTERS), *about)


_OUTCOME_METRICS = {
    "held_out/judge": "the judge's score of held-out answers",
    "held_out/reward": "held-out reward",
    "held_out/loss": "held-out loss",
}
"""What a run is judged by: the first of these that it has."""


def run_sentence(history: MetricHistory, *, finished: bool) -> str:
    """The run in one sentence."""
    if not history.step:
        return "No step has been taken."
    taken = counted(history.step, "step")
    if not finished and history.step < history.steps:
        taken = f"{history.step:,} of {counted(history.steps, 'step')} so far,"
    return f"{taken} over {_epochs_text(history)}{_rows_text(history)}{_outcome_text(history)}."


def _epochs_text(history: MetricHistory) -> str:
    count_text = f"{history.epoch:.1f}" if history.epoch >= 0.1 else f"{history.epoch:.2g}"
    return f"{count_text} {'epoch' if count_text == '1.0' else 'epochs'}"


def _rows_text(history: MetricHistory) -> str:
    rows_trained = history.total("rows")
    # A prompt whose answers are gone through several times is a row of each of these steps.
    if not rows_trained or "reward" in history.columns:
        return ""
    rows_per_epoch = rows_trained / history.epoch if history.epoch else 0.0
    # Steps that were left out, or taken up half-way, make the quotient something else than a count of rows.
    if rows_per_epoch >= 1 and abs(rows_per_epoch - round(rows_per_epoch)) < 1e-6 * rows_per_epoch:
        return f" of {counted(round(rows_per_epoch), 'row')}"
    return f", {counted(rows_trained, 'row')} in all"


def _outcome_text(history: MetricHistory) -> str:
    for name, label in _OUTCOME_METRICS.items():
        column = history.columns.get(name)
        if column is not None:
            return f"; {label} {_held_out_text(column)}"
    column = history.columns.get("loss")
    if column is None:
        return ""
    if len(column.values) == 1:
        return f"; its loss was {number_text(column.last)}"
    count = max(1, min(50, len(column.values) // 10))
    change = _change_text(_mean(column.values[:count]), _mean(column.values[-count:]))
    ends = "first and last step" if count == 1 else f"means of the first and the last {count} steps"
    return f"; training loss {change} ({ends})"


def _held_out_text(column: MetricColumn) -> str:
    if len(column.values) == 1:
        return f"was {number_text(column.last)} at step {column.steps[0]:,}"
    change = _change_text(column.values[0], column.last)
    best = column.best
    if best is None or number_text(best[1]) == number_text(column.last):
        return change
    return f"{change}, with its best, {number_text(best[1])}, at step {best[0]:,}"


def _change_text(before: Number, after: Number) -> str:
    if math.isnan(before) or math.isnan(after):
        return f"went from {number_text(before)} to {number_text(after)}"
    if number_text(before) == number_text(after):
        return f"stayed at {number_text(after)}"
    return f"{'fell' if after < before else 'rose'} from {number_text(before)} to {number_text(after)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_HEADLINE_METRICS: tuple[tuple[str, str, Callable[[Number], str]], ...] = (
    ("held_out/judge", "Held-out judge", number_text),
    ("held_out/reward", "Held-out reward", number_text),
    ("held_out/kl", "KL from the reference", number_text),
    ("held_out/loss", "Held-out loss", number_text),
    ("held_out/accuracy", "Held-out accuracy", percent),
    ("held_out/error", "Held-out error", number_text),
    ("held_out/perplexity", "Held-out perplexity", number_text),
    ("held_out/token_accuracy", "Held-out token accuracy", percent),
    ("loss", "Training loss", number_text),
    ("token_accuracy", "Training token accuracy", percent),
    ("accuracy", "Training accuracy", percent),
)
_MEANINGS = {doc.name: doc.what for doc in METRIC_DOCS}
_HOW_TO_READ = (
    "One point a step; point at a curve for its values. Where a run is long, the lowest and the highest "
    "value of each stretch are drawn, so no spike is lost. A red mark on the lower axis is a value that was "
    "not a finite number."
)


def header_section(run_data: RunData) -> Html:
    """The header: name, state, the run in one sentence, and its headline metrics."""
    kind, state = ("finished", "Finished") if run_data.finished else ("open", "Not finished")
    parts: list[str] = [element("b", {"class": kind}, state)]
    if run_data.last_change is not None:
        time = element(
            "time",
            {"datetime": run_data.last_change.isoformat(timespec="seconds")},
            timestamp_text(run_data.last_change),
        )
        parts += [" on " if run_data.finished else " · last figures of ", time]
    if run_data.notes:
        parts += [" · ", element("a", {"href": "#notes"}, counted(len(run_data.notes), "note"))]
    cards = element("dl", {"class": "cards"}, *_metric_cards(run_data.history))
    return element(
        "header",
        {},
        element("h1", {}, run_data.name),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, run_sentence(run_data.history, finished=run_data.finished)),
        *([cards] if run_data.history.columns else []),
    )


def curves_section(history: MetricHistory) -> Html:
    """The curves, and every figure as a table for those who want numbers."""
    if not history.columns:
        return section("Curves", "curves", element("p", {}, "There is nothing to draw yet."))
    return section(
        "Curves",
        "curves",
        element(
            "div",
            {"class": "curves"},
            curve_figures(history),
            *reward_against_kl(history),
            element("p", {"class": "how"}, _HOW_TO_READ),
        ),
        folded("Every figure as a number", _metric_table(history)),
    )


def _metric_cards(history: MetricHistory) -> Iterator[Html]:
    columns = history.columns
    for name, label, write in _HEADLINE_METRICS:
        if name in columns:
            yield figure_card(label, write(columns[name].last), _best_note(columns[name], write))
    seconds, tokens = history.total("timing/seconds"), history.total("tokens")
    if seconds:
        speed = f"{number_text(tokens / seconds)} tokens per second" if tokens else ""
        yield figure_card("Time in steps", duration(seconds), speed)
    if tokens:
        rows = history.total("rows")
        yield figure_card("Tokens", f"{tokens:,.0f}", f"in {counted(rows, 'row')}" if rows else "")
    if "timing/memory_mib" in columns and (most := columns["timing/memory_mib"].highest) is not None:
        yield figure_card("Most memory", f"{most:,.0f} MiB")


def _best_note(column: MetricColumn, write: Callable[[Number], str]) -> str:
    if column.best is None or len(column.values) == 1:
        return ""
    step, value = column.best
    if write(value) == write(column.last):
        return "its best"
    return f"best {write(value)} at step {step:,}"


def _metric_table(history: MetricHistory) -> Html:
    names = ("figure", "first", "last", "lowest", "highest")
    header = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in names))
    rows = [_metric_table_row(column) for column in history.columns.values()]
    return element("table", {"class": "numbers"}, element("thead", {}, header), element("tbody", {}, *rows))


def _metric_table_row(column: MetricColumn) -> Html:
    name: list[str] = [element("code", {}, column.name)]
    if column.name in _MEANINGS:
        name.append(element("p", {"class": "meaning"}, _MEANINGS[column.name]))
    values = (column.values[0], column.last, column.lowest, column.highest)
    write = "{:,.0f}".format if all(map(float.is_integer, column.values)) else number_text
    cells = [element("td", {}, "–" if value is None else write(value)) for value in values]
    return element("tr", {}, element("th", {"scope": "row"}, *name), *cells)


def write_report(run: Path, *, command: str = "plaudit train sft") -> Path:
    """Writes ``report.html`` from what lies in the run folder, finished or not; returns where it is.

    ``command`` is what the run was started with; the page shows it with the run's own config.
    """
    run_data = read_run_data(run)
    path = run / "report.html"
    atomic.write_text(path, report_html(run_data, command))
    return path


def report_html(run_data: RunData, command: str) -> str:
    """The HTML of the whole page."""
    main = element(
        "main",
        {},
        header_section(run_data),
        curves_section(run_data.history),
        samples_section(run_data.exchanges),
        notes_section(run_data.notes),
        lineage_section(run_data.lineage),
        settings_section(run_data.config),
        commands_section(run_data, command),
    )
    style = read_stylesheet("plaudit.report.charts", "charts.css") + read_stylesheet(
        "plaudit.report.run", "run.css"
    )
    return document(run_data.name, main, style=style)
