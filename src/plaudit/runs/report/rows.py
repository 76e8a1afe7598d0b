"""A page of rows: what was asked and about which pictures, and each answer with what was said of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from plaudit.data.records import Ranking, Rating, Record, Steps, Text, pictures, plain_text
from plaudit.data.write import record_kind, record_texts
from plaudit.errors import UserError
from plaudit.files.pictures import redrawn_url
from plaudit.runs.report.page import render, write_page
from plaudit.runs.report.parts import Answer, Exchange, Page, Samples, Section, Text as Paragraph
from plaudit.runs.report.words import counted, number_text

LONGEST_SIDE = 256
"""Pixels of a picture on the page."""


def write_rows_page(name: str, sentence: str, records: Sequence[Record], path: Path) -> Path:
    """The page of these rows of a file, with the sentence that says how it was read; returns where it is."""
    rows = Section("Rows", "rows", [Samples([_exchange(record) for record in records], max_length=4000)])
    title = f"{name}, the first {counted(len(records), 'record')}"
    page = Page(title=title, heading=title, head=[Paragraph(sentence)], sections=[rows])
    return write_page(render(page), path)


def _exchange(record: Record) -> Exchange:
    (_, prompt), *answers = record_texts(record)
    urls, faults = list[str](), list[str]()
    for source in (source for _, text in record_texts(record) for source in pictures(text)):
        try:
            urls.append(redrawn_url(source, LONGEST_SIDE))
        except UserError as error:
            faults.append(str(error))
    judged = zip(answers, _judgements(record) or [""] * len(answers), strict=True)
    return Exchange(
        prompt="\n".join(_lines(prompt)),
        answers=[
            Answer(
                label=label, kind="now" if label == "chosen" else "", text=plain_text(text), scores=judgement
            )
            for (label, text), judgement in judged
        ],
        title=record.origin or "",
        detail="; ".join([record_kind(record), *faults]),
        pictures=urls,
    )


def _judgements(record: Record) -> list[str]:
    """What was said of each answer, beside which of two was chosen."""
    match record:
        case Rating():
            return [f"score {number_text(record.score)}"]
        case Ranking():
            return [f"rank {number_text(rank)}" for rank in record.ranks]
        case Steps():
            return [f"label {number_text(label)}" for label in record.labels]
        case _:
            return []


def _lines(prompt: Text) -> Iterator[str]:
    if isinstance(prompt, str) or len(prompt) == 1:
        yield plain_text(prompt)
        return
    for turn in prompt:
        yield f"{turn.role}: {plain_text((turn,))}"
