"""Many rows: read on all cores, kept for the next run, on disk where they are more than memory holds."""

import errno
import math
import os
import shutil
import signal
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import (
    RECORD_CLASSES,
    Comparison,
    Demonstration,
    Message,
    Part,
    Prompt,
    Ranking,
    ToolCall,
    assistant_turn,
    user_turn,
)
from plaudit.engine import loop
from plaudit.errors import UserError
from plaudit.files.stored import LazyRows, RowWriter, UnstorableError, stored_rows
from plaudit.methods import data, shelf
from plaudit.methods.config import RowSettings, RunConfig, SftConfig
from plaudit.methods.data import Rows, load_rows
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.data import preference_encoder
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.data import encode_judged_rows
from plaudit.methods.supervised.run import encode_demonstrations
from plaudit.tokens import parallel
from plaudit.tokens.batch import Completion, Example, Extra
from plaudit.tokens.encode import EncodedRows, encode_rows, make_encoder
from plaudit.tokens.parallel import RowProgress, Workshop
from plaudit.tokens.preferences import ROW_CLASSES, JudgedRow, PairLabel, StepLabels, encode_judged
from tests.engine.toy import Toy, demonstrations, make_toy, write_rows

MANY = 2100


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("many"), rows=MANY)


def workshop(folder: Path, workers: int) -> Workshop:
    folder.mkdir()
    progress = RowProgress("rows", shown=False)
    return Workshop(folder=folder, classes=ROW_CLASSES, workers=workers, progress=progress, on_disk=True)


def config(toy: Toy, out: Path, **more: object) -> SftConfig:
    return SftConfig(**{"model": toy.model, "data": toy.data, "out": out, "device": "cpu", **more})


def loaded(asked: RunConfig, recipe=encode_demonstrations) -> Rows:
    return load_rows(asked, make_encoder(asked.model), recipe, asked.out)


# Rows on disk are the rows that were put there.

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
TURNS = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant"]),
        content=TEXTS | st.tuples(st.builds(Part, kind=st.just("text"), text=TEXTS)),
        trained=st.booleans(),
        reasoning=st.none() | TEXTS,
        tool_calls=st.just(()) | st.tuples(st.builds(ToolCall, name=TEXTS, arguments=TEXTS)),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
ASKED = TEXTS | TURNS
RECORDS = (
    st.builds(Demonstration, prompt=ASKED, completion=ASKED, origin=TEXTS, category=st.none() | TEXTS)
    | st.builds(Comparison, prompt=ASKED, chosen=ASKED, rejected=ASKED, margin=st.none() | st.floats())
    | st.builds(Ranking, prompt=ASKED, completions=st.tuples(TEXTS, TURNS), ranks=st.just((1.0, 2.5)))
    | st.builds(Prompt, prompt=ASKED, metadata=st.dictionaries(TEXTS, st.lists(st.integers() | TEXTS)))
)
TOKENS = st.lists(st.integers(0, 2**31), min_size=1, max_size=9).map(tuple)
ANSWERS = TOKENS.flatmap(
    lambda ids: st.builds(
        Completion,
        ids=st.just(ids),
        mask=st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)).map(tuple),
        finished=st.booleans(),
    )
)
EXAMPLES = st.builds(
    Example, prompt=TOKENS, completions=st.lists(ANSWERS, max_size=3).map(tuple), origin=TEXTS
)
JUDGED = st.builds(
    JudgedRow,
    example=EXAMPLES,
    judgement=st.builds(PairLabel, probability=st.floats(0, 1), margin=st.floats(-9, 9))
    | st.builds(StepLabels, ends=TOKENS, labels=st.just((1.0, 0.0))),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS | EXAMPLES | JUDGED, max_size=6))
def test_rows_come_back_as_they_were_put_away(tmp_path_factory, rows) -> None:
    stem = tmp_path_factory.mktemp("rows") / "some"
    with RowWriter(stem) as writer:
        for row in rows:
            writer.add(row)
    found = stored_rows(stem, RECORD_CLASSES | ROW_CLASSES)
    # By their words: a number that is none is not equal to itself.
    assert repr(list(found)) == repr(rows)
    assert repr(list(found.select(range(len(rows) - 1, -1, -1)))) == repr(rows[::-1])


def test_what_no_json_holds_is_not_put_away(tmp_path) -> None:
    import torch

    shown = Extra(value=torch.zeros(1, 2), axis="item")
    with RowWriter(tmp_path / "rows") as writer, pytest.raises(UnstorableError):
        writer.add(Example(prompt=(1,), completions=(), extras={"pixels": shown}))


# All cores make what one makes.

BAD = Comparison(
    prompt=user_turn("?"), chosen=assistant_turn("x" * 400), rejected=assistant_turn("y"), origin="bad:1"
)


def comparisons(count: int) -> list[Comparison]:
    rows = [
        Comparison(
            prompt=user_turn(row["prompt"]),
            chosen=assistant_turn(row["completion"]),
            rejected=assistant_turn(row["completion"][::-1]),
            origin=f"rows:{number}",
        )
        for number, row in enumerate(demonstrations(count))
    ]
    return [*rows[: count // 2], BAD, *rows[count // 2 :], BAD]


def plain(encoded: EncodedRows) -> tuple[object, ...]:
    return list(encoded.examples), encoded.refused, list(encoded.notes.items())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_all_cores_make_what_one_makes(toy, tmp_path, workers) -> None:
    encoder = make_encoder(toy.model)
    records = comparisons(600)
    alone = encode_judged(records, encoder, 60)
    assert len(alone.refused) == 2
    assert alone.notes
    together = encode_judged(records, replace(encoder, workshop=workshop(tmp_path / "w", workers)), 60)
    assert isinstance(together.examples, LazyRows)
    assert plain(together) == plain(alone)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fault", ["killed", "raises", "stuck"])
def test_what_a_worker_does_not_deliver_is_made_here(toy, tmp_path, monkeypatch, fault) -> None:
    """A worker that dies, fails or hangs costs time and no row."""
    records = [Demonstration(prompt=f"{n}?", completion=" a b", origin=f"rows:{n}") for n in range(700)]
    encoder = make_encoder(toy.model)
    alone, here = encode_rows(records, encoder), os.getpid()
    monkeypatch.setattr(parallel, "PATIENCE", 1.0)

    def spoilt() -> None:
        if os.getpid() == here:
            return
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raises":
            raise MemoryError
        signal.pause()

    counted = replace(encoder, on_row=spoilt, workshop=workshop(tmp_path / "w", 2))
    assert plain(encode_rows(records, counted)) == plain(alone)


def test_a_fault_in_a_worker_is_raised_here(toy, tmp_path) -> None:
    def fails() -> None:
        raise ArithmeticError("of its own")

    records = [Demonstration(prompt="a?", completion=" a b")] * 300
    encoder = replace(make_encoder(toy.model), on_row=fails, workshop=workshop(tmp_path / "w", 2))
    with pytest.raises(ArithmeticError, match="of its own"):
        encode_rows(records, replace(encoder, info=_failing(encoder.info)))


def _failing(info):
    class Broken:
        def __getattr__(self, name: str):
            raise ArithmeticError("of its own")

    return replace(info, tokenizer=Broken())


# The next run takes them as they were read.


def kept_sets(cache: Path) -> list[Path]:
    return sorted((cache / "plaudit" / "rows").glob("[0-9a-f]*"))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def never(*_, **__):
    raise AssertionError("the rows were read again")


RECIPES = {
    "sft": encode_demonstrations,
    "dpo": preference_encoder(preference_algorithm("dpo")),
    "reward": partial(encode_judged_rows, RewardSettings()),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(RECIPES))
def test_the_same_rows_are_not_read_twice(toy, tmp_path, cache, monkeypatch, capsys, kind) -> None:
    pairs = [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": f"{row['completion']} and so"}
        for row in demonstrations(MANY)
    ]
    data = toy.data if kind == "sft" else write_rows(tmp_path / "pairs.jsonl", pairs)
    asked = config(toy, tmp_path / "out", data=data)
    first = loaded(asked, RECIPES[kind])
    assert len(kept_sets(cache)) == 1
    monkeypatch.setattr("plaudit.methods.data.read_records", never)
    again = loaded(asked, RECIPES[kind])
    assert again == first
    assert isinstance(again.train, tuple)
    assert "rows as they were read before" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="read again"):
        loaded(replace(asked, rows=RowSettings(cached=False)), RECIPES[kind])
    with pytest.raises(AssertionError, match="read again"):
        loaded(asked, next(recipe for name, recipe in RECIPES.items() if name != kind))


def other_template(asked: RunConfig, tmp_path: Path) -> RunConfig:
    path = tmp_path / "own.jinja"
    path.write_text("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    return replace(asked, template=path)


def other_bytes(asked: RunConfig, tmp_path: Path) -> RunConfig:
    path = tmp_path / asked.data.name
    path.write_text(asked.data.read_text().replace("1 ", "2 ", 1))
    return replace(asked, data=path)


def renamed(asked: RunConfig, tmp_path: Path) -> RunConfig:
    path = tmp_path / "renamed.jsonl"
    path.write_bytes(asked.data.read_bytes())
    return replace(asked, data=path)


CHANGES = {
    "length": lambda asked, _: replace(asked, max_length=99),
    "raw": lambda asked, _: replace(asked, text="raw"),
    "turns": lambda asked, _: replace(asked, turns="last"),
    "columns": lambda asked, _: replace(asked, columns=("prompt=prompt",)),
    "template": other_template,
    "bytes": other_bytes,
    "name": renamed,
}


@pytest.mark.slow
@pytest.mark.cases(quick=("bytes", "template"))
@pytest.mark.parametrize("change", list(CHANGES))
def test_whatever_changes_them_they_are_read_anew(toy, tmp_path, cache, change) -> None:
    from plaudit.methods.run import encoder_for

    def read(asked: RunConfig) -> Rows:
        return load_rows(asked, encoder_for(asked), encode_demonstrations, None)

    asked = config(toy, tmp_path / "out")
    read(asked)
    read(CHANGES[change](asked, tmp_path))
    assert len(kept_sets(cache)) == 2


@pytest.mark.slow
def test_another_plaudit_reads_anew(toy, tmp_path, cache, monkeypatch) -> None:
    loaded(config(toy, tmp_path / "out"))
    monkeypatch.setattr(shelf, "_code_digest", lambda: b"another")
    loaded(config(toy, tmp_path / "out"))
    assert len(kept_sets(cache)) == 2


@pytest.mark.slow
def test_a_set_with_a_bad_row_is_told_of_each_time(toy, tmp_path, cache) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text(toy.data.read_text() + "{\n")
    for _ in range(2):
        notes = loaded(config(toy, tmp_path, data=data, batch_size=10_000)).notes
        assert any("rows are bad" in note for note in notes)
        assert any("batch_size 10000 takes all" in note for note in notes)
    assert not kept_sets(cache)


@pytest.mark.slow
@pytest.mark.cases(quick=("numbers",))
@pytest.mark.parametrize("file", ["records.jsonl", "encoded-0-1.jsonl", "numbers", ".about.json"])
def test_a_damaged_set_is_read_anew(toy, tmp_path, cache, file) -> None:
    asked = config(toy, tmp_path / "out")
    first = loaded(asked)
    [place] = kept_sets(cache)
    content = bytearray((place / file).read_bytes())
    content[len(content) // 2] ^= 1
    (place / file).write_bytes(content)
    assert loaded(asked) == first
    assert kept_sets(cache) == [place]


@pytest.mark.slow
def test_the_cache_has_a_bound_and_what_was_used_last_stays(toy, tmp_path, cache, monkeypatch) -> None:
    asked = config(toy, tmp_path / "out")
    loaded(asked)
    [first] = kept_sets(cache)
    size = sum(file.stat().st_size for file in first.iterdir())
    unfinished = first.parent / ".made-killed"
    unfinished.mkdir()
    os.utime(unfinished, (0, 0))
    monkeypatch.setattr(shelf, "CACHE_BYTES", int(1.5 * size))
    os.utime(first, (1, 1))
    loaded(replace(asked, max_length=99))
    [second] = kept_sets(cache)
    assert second != first
    assert not unfinished.exists()
    assert not list(first.parent.glob(".made-*"))


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_no_reason_not_to_train(toy, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(loaded(config(toy, tmp_path / "out")).train) > 0.9 * MANY


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize("at", ["add", "flush", "rename"])
def test_a_full_disk_keeps_nothing_and_the_rows_are_there(toy, tmp_path, cache, monkeypatch, at) -> None:
    asked = config(toy, tmp_path / "out")
    first = loaded(replace(asked, rows=RowSettings(cached=False)))
    monkeypatch.setattr(Path if at == "rename" else RowWriter, at, _full)
    assert loaded(asked) == first
    assert not kept_sets(cache)
    if at != "rename":
        with pytest.raises(UserError, match="disk is full"):
            loaded(replace(asked, rows=RowSettings(on_disk="always")))


# More rows than memory holds.


def trained(toy: Toy, out: Path, *words: object) -> dict[str, object]:
    steps = ("--steps", 3, "--batch-size", 8, "--save-every", 1, "--device", "cpu", "--sinks", "none")
    assert main([*map(str, ["train", *words, "--model", toy.model, "--out", out, *steps[:8]])]) == 0
    return load_file(out / "model" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo", "reward"])
def test_rows_on_disk_train_the_same_model(tmp_path, method) -> None:
    toy = make_toy(tmp_path / "toy", rows=64)
    pairs = [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": f"{row['completion']} and so"}
        for row in demonstrations(64)
    ]
    data = toy.data if method == "sft" else write_rows(tmp_path / "pairs.jsonl", pairs)
    live = ("--reference.kind", "live") if method == "dpo" else ()
    here = trained(toy, tmp_path / "here", method, "--data", f"{data}*2", *live)
    there = trained(toy, tmp_path / "there", method, "--data", f"{data}*2", *live, "--rows.on-disk", "always")
    assert {name: tensor.tolist() for name, tensor in here.items()} == {
        name: tensor.tolist() for name, tensor in there.items()
    }


@pytest.mark.slow
def test_a_run_from_disk_goes_on_where_it_stopped(tmp_path) -> None:
    from plaudit.methods.supervised.run import sft

    toy = make_toy(tmp_path / "toy", rows=64)
    asked = config(
        toy, tmp_path / "whole", steps=6, save_every=2, sinks=(), rows=RowSettings(on_disk="always")
    )
    sft(asked)
    halves = replace(asked, out=tmp_path / "halves")
    sft(replace(halves, steps=6))
    # As a kill between two checkpoints leaves it.
    for newer in sorted((halves.out / "checkpoints").iterdir())[1:]:
        shutil.rmtree(newer)
    shutil.rmtree(halves.out / "model")
    sft(halves)
    weights = [load_file(one.out / "model" / "model.safetensors") for one in (asked, halves)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


@pytest.mark.slow
def test_rows_on_disk_are_not_in_memory(toy, tmp_path, cache) -> None:
    long = [{**row, "completion": f"{row['completion']} " * 40} for row in demonstrations(800)]
    data = write_rows(tmp_path / "long.jsonl", long)

    def peak(on_disk: str) -> int:
        settings = RowSettings(on_disk=on_disk, cached=False)
        asked = config(toy, tmp_path / "out", data=data, rows=settings, max_length=10_000)
        encoder = make_encoder(toy.model)
        tracemalloc.start()
        try:
            rows = load_rows(asked, encoder, encode_demonstrations, None)
            assert sum(len(row.completions[0].ids) for row in rows.train) > 100_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak("always") < peak("never") / 8


def test_reading_keeps_no_record_in_memory_where_they_go_to_disk(toy, tmp_path) -> None:
    here, there = read_records(toy.data), read_records(toy.data, on_disk=tmp_path / "records")
    assert list(there.records) == list(here.records)
    assert isinstance(there.records, LazyRows)
    assert (there.counts, there.rows) == (here.counts, here.rows)


@pytest.mark.parametrize("bound", [2**20, 100])
def test_held_out_prompts_and_order_are_those_of_memory(toy, tmp_path, cache, monkeypatch, bound) -> None:
    """The many-row way from a bound on, on disk by the hashes that lie there, in memory by the rows' own."""
    for module in (data, loop):
        monkeypatch.setattr(module, "MANY_ROWS", bound)
    asked = config(toy, tmp_path / "out", held_out="0.2", max_length=64)
    parts = {
        where: loaded(replace(asked, rows=RowSettings(on_disk=where, cached=False)))
        for where in ("always", "never")
    }
    assert isinstance(parts["always"].train, LazyRows)
    assert plain_rows(parts["always"]) == plain_rows(parts["never"])
    [trained, held_out] = ({row.prompt_id for row in part} for part in plain_rows(parts["never"]))
    assert len(held_out) == math.ceil(0.2 * len(trained | held_out))
    assert not trained & held_out
    loop._shuffled_rows.cache_clear()
    orders = [loop._shuffled_rows(rows, seed, 1) for rows in (150, 150, 151) for seed in (0, 1)]
    assert [sorted(order) for order in orders] == [[*range(len(order))] for order in orders]
    assert orders[0] == orders[2] != orders[1]
    loop._shuffled_rows.cache_clear()


def plain_rows(rows: Rows) -> list[tuple[object, ...]]:
    return [tuple(rows.train), tuple(rows.held_out)]
