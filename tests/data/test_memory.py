"""A long file is read a piece at a time, and a row beyond the limit is never held as a whole."""

import json
import tracemalloc

import pytest

from plaudit.data.files import raw_rows

MEGABYTE = 1_000_000


def peak_of(source, limit):
    tracemalloc.start()
    try:
        return sum(1 for _ in raw_rows(source, limit=limit)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_twenty_megabytes_need_less_than_one(tmp_path, end):
    source = tmp_path / f"rows.{end}"
    text = "x" * 2000
    row = json.dumps({"text": text}) if end == "jsonl" else text
    source.write_text("\n".join(([] if end == "jsonl" else ["text"]) + [row] * 10_000), encoding="utf-8")
    rows, peak = peak_of(source, MEGABYTE)
    assert rows == 10_000
    assert peak < MEGABYTE


def test_a_row_of_forty_megabytes_needs_a_few(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"text": "' + "x" * 40 * MEGABYTE + '"}\n{"text": "short"}\n', encoding="utf-8")
    rows, peak = peak_of(source, MEGABYTE)
    assert rows == 2
    assert peak < 5 * MEGABYTE
