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

from markupsafe import Markup

from plaudit.engine.metric_docs import METRIC_DOCS
from plaudit.engine.run_folder import Lineage
from plaudit.files import atomic
from plaudit.runs.report.charts.axes import Span
from plaudit.runs.report.charts.lines import BandChart, BandLine, band_chart, curve_figures
from plaudit.runs.report.figures import NO_VALUE, Card
from plaudit.runs.report.page import render
from plaudit.runs.report.run.data import Exchange, MetricColumn, MetricHistory, RunData, read_run_data
from plaudit.runs.report.words import Number, counted, duration, number_text, percent

_MAX_EXCHANGES = 12
_MAX_CHARACTERS = 1000
_MAX_NOTES = 100
# As runs of rewards write their samples: a reward or a rank, two spaces, the answer on one line.
_SCORED_LINE = re.compile(r"([+-]\d+\.\d\d|\d+(?:\.\d+)?\.)  (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledText:
    """One of the texts under a prompt.

    Example: ``SampledText(label="At step 90", kind="now", text="A pear.")``
    """

    label: str
    """What the text is: prompt, first answer, last answer."""
    kind: str
    """How it stands there: ``before``, ``now`` or ``expected``."""
    text: str

    @property
    def scored(self) -> list[tuple[str, str]]:
        """Judgements and answers, where every line is one of each; nothing otherwise.

        >>> SampledText(label="", kind="now", text="+1.34  Yes.\\n-0.20  No.").scored
        [('+1.34', 'Yes.'), ('-0.20', 'No.')]
        """
        matches = [_SCORED_LINE.fullmatch(line) for line in self.text.split("\n")]
        return [(match[1], match[2]) for match in matches if match] if all(matches) else []


def write_report(run: Path, *, command: str = "plaudit train sft") -> Path:
    """Writes ``report.html`` from what lies in the run folder, finished or not; returns where it is.

    ``command`` is what the run was started with; the page shows it with the run's own config.
    """
    run_data = read_run_data(run)
    path = run / "report.html"
    atomic.write_text(path, report_html(run_data, command))
    return path


def report_html(run_data: RunData, command: str) -> str:
    history, exchanges = run_data.history, run_data.exchanges
    shown_exchanges = [(row.prompt, _sampled_texts(row)) for row in exchanges[:_MAX_EXCHANGES]]
    notes = run_data.notes[-_MAX_NOTES:]
    return render(
        "run",
        run=run_data,
        sentence=run_sentence(history, finished=run_data.finished),
        cards=[*_metric_cards(history)],
        charts=[curve_figures(history), *reward_against_kl(history)],
        metrics=[_metric_row(column) for column in history.columns.values()],
        is_scored=bool(exchanges) and all(_last_text(exchange).scored for exchange in exchanges),
        exchanges=shown_exchanges,
        hidden_exchanges=len(exchanges) - len(shown_exchanges),
        notes=notes,
        hidden_notes=len(run_data.notes) - len(notes),
        lineage=[] if run_data.lineage is None else [*_lineage_rows(run_data.lineage)],
        commands=[*_commands(run_data, command)],
        max_characters=_MAX_CHARACTERS,
    )


def curves_page(run: Path) -> tuple[str, int]:
    """A page with the curves of a run alone, and how many there are: what notebooks show."""
    run_data = read_run_data(run)
    sentence = run_sentence(run_data.history, finished=run_data.finished)
    charts = [curve_figures(run_data.history), *reward_against_kl(run_data.history)]
    page = render("curves", title=run_data.name, sentence=sentence, charts=charts)
    return page, page.count("<figure")


def _sampled_texts(exchange: Exchange) -> list[SampledText]:
    """The first completion, the last one and the one in the data, as far as there are such."""
    (first, first_text), (last, _) = exchange.first, exchange.last
    texts = [SampledText(label=f"At step {first:,}", kind="before", text=first_text)] if first != last else []
    texts.append(_last_text(exchange))
    if exchange.expected is not None:
        texts.append(SampledText(label="In the data", kind="expected", text=exchange.expected))
    return texts


def _last_text(exchange: Exchange) -> SampledText:
    step, text = exchange.last
    return SampledText(label=f"At step {step:,}", kind="now", text=text)


def _commands(run_data: RunData, command: str) -> Iterator[tuple[str, str]]:
    """How to go on with the run, and how to use what it has made."""
    config = shlex.quote(str(run_data.path / "config.yaml"))
    if run_data.finished:
        new_folder = shlex.quote(f"{run_data.path}-again")
        yield "To run it again in another folder:", f"{command} --config {config} --out {new_folder}"
    else:
        yield "To go on where it stopped:", f"{command} --config {config}"
    if run_data.model_kind != "none":
        yield "To use the model in Python:", _loading_code(run_data)


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


def _lineage_rows(origin: Lineage) -> Iterator[tuple[str, str, str]]:
    """What went in by name: in words, or else by its hash."""
    for name, digest in origin.data.items():
        yield f"data: {name}", "", digest
    for name in ("model", "template", "tokenizer"):
        digest = getattr(origin, name)
        if digest is not None:
            yield {"model": "base model"}.get(name, name), "", digest
    yield "seed", str(origin.seed), ""
    yield "plaudit", version_text(origin.code), ""
    yield "libraries", ", ".join(f"{name} {version}" for name, version in origin.libraries.items()), ""
    yield "machine", ", ".join(f"{name} {value}" for name, value in origin.machine.items()), ""


def version_text(code: Mapping[str, object]) -> str:
    """The version of plaudit that was used, with its commit where that is known."""
    commit = code.get("commit")
    if not commit:
        return f"version {code.get('plaudit')}"
    changed = ", with files that differed from it" if code.get("changed") else ""
    return f"version {code.get('plaudit')}, commit {str(commit)[:12]}{changed}"


_SCORE_LABELS = {
    "held_out/reward": ("Reward along √KL", "reward", "what teaches"),
    "held_out/judge": ("Judge along √KL", "judge", "who never teaches"),
}


def reward_against_kl(history: MetricHistory) -> Iterator[Markup]:
    """A chart for each score of held-out prompts; none where there is no reference, or a single look.

    Where a judge looked on, a line stands at the look that it liked best: from there on the reward is gamed.
    """
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
    if len(points) < 2:
        return ()
    return tuple((root, Span(value=value)) for root, value in points)


_OUTCOME_METRICS = {
    "held_out/judge": "the judge's score of held-out answers",
    "held_out/reward": "held-out reward",
    "held_out/loss": "held-out loss",
}
"""What a run is judged by: the first of these that it has."""


def run_sentence(history: MetricHistory, *, finished: bool) -> str:
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
    # Means over some steps at either end: two single steps are too noisy to compare.
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
    ("held_out/mae", "Held-out error", number_text),
    ("held_out/perplexity", "Held-out perplexity", number_text),
    ("held_out/token_accuracy", "Held-out token accuracy", percent),
    ("loss", "Training loss", number_text),
    ("token_accuracy", "Training token accuracy", percent),
    ("accuracy", "Training accuracy", percent),
)
_MEANINGS = {doc.name: doc.what for doc in METRIC_DOCS}


def _metric_cards(history: MetricHistory) -> Iterator[Card]:
    columns = history.columns
    for name, label, write in _HEADLINE_METRICS:
        if name in columns:
            yield Card(label=label, value=write(columns[name].last), more=_best_note(columns[name], write))
    seconds, tokens = history.total("timing/seconds"), history.total("tokens")
    if seconds:
        speed = f"{number_text(tokens / seconds)} tokens per second" if tokens else ""
        yield Card(label="Time in steps", value=duration(seconds), more=speed)
    if tokens:
        rows = history.total("rows")
        yield Card(label="Tokens", value=f"{tokens:,.0f}", more=f"in {counted(rows, 'row')}" if rows else "")
    if "timing/memory_mib" in columns and (most := columns["timing/memory_mib"].highest) is not None:
        yield Card(label="Most memory", value=f"{most:,.0f} MiB")


def _best_note(column: MetricColumn, write: Callable[[Number], str]) -> str:
    if column.best is None or len(column.values) == 1:
        return ""
    step, value = column.best
    if write(value) == write(column.last):
        return "its best"
    return f"best {write(value)} at step {step:,}"


def _metric_row(column: MetricColumn) -> tuple[str, str, list[str]]:
    """The name of a figure, what it means, and its first, last, lowest and highest value."""
    values = (column.values[0], column.last, column.lowest, column.highest)
    write = "{:,.0f}".format if all(map(float.is_integer, column.values)) else number_text
    texts = [NO_VALUE if value is None else write(value) for value in values]
    return column.name, _MEANINGS.get(column.name, ""), texts
