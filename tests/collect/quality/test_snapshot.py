"""Snapshots: the same figures as of the store, nobody's reasons, plain Parquet, and what is refused."""

import errno
import json
from contextlib import closing
from unittest.mock import Mock

import pytest
from pyarrow import parquet

from plaudit.cli.main import main
from plaudit.collect import columns
from plaudit.collect.columns import read_snapshot, write_snapshot
from plaudit.collect.people import set_standing
from plaudit.collect.quality import agreement
from plaudit.collect.quality.report import quality, report_of
from plaudit.errors import UserError
from plaudit.evaluation.stats import Resampling
from tests.collect.desks import Desk, pair_body
from tests.collect.quality.test_agreement import random_table, values_of

KINDS = {
    "pair": {"strength": -1, "why": "my cousin wrote it"},
    "rank": {"groups": [[1], [0, 2]]},
    "rate": {"points": {"overall": [3, 4]}, "thumbs": [True, None], "why": "my cousin"},
    "write": {"answer": "Words", "why": "my cousin"},
}


def labelled(where, kind="pair") -> Desk:
    """Nine labels by three people, some of pairs on an item whose answer is known."""
    answers = {"pair": "ab", "rank": "abc", "rate": "ab", "write": ""}[kind]
    bodies = [{"prompt": f"Q{n}", "candidates": [{"text": f"{n} {a}"} for a in answers]} for n in range(4)]
    gold = [pair_body(9, gold={"better": 0})] if kind == "pair" else []
    desk = Desk(where, tasks=[*bodies, *gold], ask=kind, overlap=3, most=3)
    for person in desk.people(3):
        for number in range(3):
            changed = {"strength": number - 1 or 2} if kind == "pair" else {}
            desk.submit(person, desk.lease(person), f"{person}{number}", {**KINDS[kind], **changed})
    return desk


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_tells_what_the_store_tells_and_no_reasons(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(columns, "_TASKS", columns._TASKS.limit(2))
    out = tmp_path / "labels.parquet"
    with closing(labelled(tmp_path / "labels.db", kind).store) as store:
        store.write(set_standing, "p", "a2", "suspended", reason="random", actor="o1")
        head, count = write_snapshot(store, "p", out)
        assert report_of(*read_snapshot(out)) == quality(store, "p")
    rows = parquet.read_table(out).to_pylist()
    assert (len(rows), count, head.seq) == (9, 9, read_snapshot(out)[0].seq)
    assert sum(row["excluded"] for row in rows) == 3
    assert not any(word in str(rows) for word in ("cousin", "person 0"))


def test_the_command_writes_one_and_tells_agreement_alone(tmp_path, capsys):
    where, out = str(tmp_path / "labels.db"), str(tmp_path / "labels.parquet")
    with closing(labelled(where).store) as store:
        whole = quality(store, "p")
    assert main(["collect", "snapshot", "--store", where, "--out", out]) == 0
    for source in (where, out):
        capsys.readouterr()
        assert main(["collect", "quality", "--store", source, "--agreement", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["agreement"][0]["alpha"]["value"] == whole.agreement[0].alpha.value
        assert (printed["labels"], printed["annotators"]) == (whole.labels, [])
    assert main(["collect", "quality", "--store", out, "--project", "q"]) == 2
    (tmp_path / "folder.parquet").mkdir()
    for name, words in (("x.csv", ".parquet"), ("folder.parquet", "a folder"), ("no/x.parquet", "no such")):
        assert main(["collect", "snapshot", "--store", where, "--out", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


def test_what_is_no_snapshot_is_refused_and_a_fault_leaves_what_was_there(tmp_path, monkeypatch):
    desk, out = labelled(tmp_path / "labels.db"), tmp_path / "labels.parquet"
    write_snapshot(desk.store, "p", out)
    whole, table = out.read_bytes(), parquet.read_table(out)
    damaged = [b"", whole[:-9], whole.replace(b"\x28\xb5\x2f\xfd", bytes(4))]
    for number, head in enumerate((b"{}", b"[]", b'{"version": 99}', b'{"version": 1}')):
        parquet.write_table(table.replace_schema_metadata({b"plaudit.labels": head}), tmp_path / str(number))
        damaged.append((tmp_path / str(number)).read_bytes())
    for data in damaged:
        out.write_bytes(data)
        with pytest.raises(UserError, match=r"labels.parquet: not a snapshot .* `plaudit collect snapshot`"):
            read_snapshot(out)
    with pytest.raises(UserError, match="no such file"):
        read_snapshot(tmp_path / "none.parquet")
    out.write_bytes(whole)
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")
        patch.setattr(parquet.ParquetWriter, "write_table", Mock(side_effect=full))
        with pytest.raises(UserError, match="the disk is full"):
            write_snapshot(desk.store, "p", out)
    assert (out.read_bytes(), [*tmp_path.glob(".*partial")]) == (whole, [])
    desk.store.close()
    with closing(Desk(tmp_path / "new.db").store) as store, pytest.raises(UserError, match="no labels yet"):
        write_snapshot(store, "p", tmp_path / "none.parquet")


def test_many_kinds_of_prompts_are_drawn_as_few_are(monkeypatch):
    values = values_of(random_table(5, people=3, units=300))
    few = agreement.agreements(values, Resampling(times=2000)).alpha
    monkeypatch.setattr(agreement, "MOST_KINDS", 0)
    many = agreement.agreements(values, Resampling(times=2000)).alpha
    assert (few.value, [few.low, few.high]) == (many.value, pytest.approx([many.low, many.high], abs=0.012))
