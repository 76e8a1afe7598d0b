"""The same rows from every kind of file, and files that are not what they seem."""

import csv
import gzip
import json
from contextlib import suppress
from functools import partial

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from plaudit.data.files import raw_rows
from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import open_rows, read_records
from plaudit.data.records import Comparison, Prompt, assistant_turn, user_turn
from plaudit.data.write import write_records
from plaudit.errors import UserError
from tests.data.rows import CORK, STONE, USER, write

PAIR = {"prompt": "What sinks?", "chosen": "A stone.", "rejected": "A cork.", "margin": 0.5}
TALK = {"prompt": [USER], "chosen": STONE, "rejected": CORK}

zipped = partial(gzip.compress, mtime=0)
zstd = partial(pyarrow.compress, codec="zstd", asbytes=True)


def pair(origin):
    return Comparison(prompt="What sinks?", chosen="A stone.", rejected="A cork.", margin=0.5, origin=origin)


def as_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(v) if isinstance(v, list) else v for v in row.values())
    return path


def squeezed(path, rows, by=zipped):
    path.write_bytes(by("\n".join(map(json.dumps, rows)).encode()))
    return path


def as_parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def as_arrow(path, rows, new=pyarrow.ipc.new_stream):
    table = pyarrow.Table.from_pylist(rows)
    with new(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def as_folder(path, rows):
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


WRITERS = {
    "pairs.jsonl": lambda path, rows: write(path, *rows),
    "pairs.jsonl.gz": squeezed,
    "pairs.json": lambda path, rows: write(path, json.dumps(rows, indent=1)),
    "held.json": lambda path, rows: write(path, {"version": 2, "data": rows}),
    "lines.json": lambda path, rows: write(path, *rows),
    "pairs.tsv": lambda path, rows: as_csv(path, rows, "\t"),
    "pairs.csv": as_csv,
    "semicolons.csv": partial(as_csv, delimiter=";"),
    "pairs.parquet": as_parquet,
    "pairs.arrow": as_arrow,
    "indexed.arrow": partial(as_arrow, new=pyarrow.ipc.new_file),
    "pairs.jsonl.zst": partial(squeezed, by=zstd),
    "folder": as_folder,
}


@pytest.mark.parametrize("name", WRITERS)
def test_rows_are_the_same_from_every_file(tmp_path, name):
    reading = read_records(WRITERS[name](tmp_path / name, [PAIR, PAIR]))
    lines = (2, 3) if name.endswith((".csv", ".tsv")) else (1, 2)
    assert reading.records == tuple(pair(f"{name}:{line}") for line in lines)
    (record,) = read_records(WRITERS[name](tmp_path / f"talk-{name}", [TALK])).records
    assert record.prompt == user_turn("What sinks?")
    assert record.rejected == assistant_turn("A cork.")


def test_datasets_keep_their_row_numbers_and_a_streaming_one_is_read_as_it_is_asked_for():
    asked = []

    def rows():
        for i in range(10_000):
            asked.append(i)
            yield {"prompt": f"What is {i}?"}

    first = next(open_rows(datasets.IterableDataset.from_generator(rows)).rows)
    assert first.records[0].origin == "dataset:1"
    assert len(asked) < 100
    reading = read_records(datasets.Dataset.from_list([PAIR, PAIR]))
    assert reading.records == (pair("dataset:1"), pair("dataset:2"))


def test_several_splits_have_to_be_chosen_from(tmp_path):
    splits = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list([PAIR]), "test": datasets.Dataset.from_list([PAIR] * 2)}
    )
    splits.save_to_disk(str(tmp_path / "both"))
    for source in (splits, tmp_path / "both"):
        with pytest.raises(UserError, match=r"several splits \(train, test\)"):
            read_records(source)
        with pytest.raises(UserError, match="no split 'valid'; it has train, test"):
            read_records(source, options=ReadOptions(split="valid"))
        assert read_records(source, options=ReadOptions(split="test")).rows == 2
    assert read_records(tmp_path / "both" / "test").rows == 2


def test_a_long_file_is_not_read_ahead(tmp_path):
    source = write(tmp_path / "rows.jsonl", *[{"prompt": f"What is {i}?"} for i in range(1000)], "broken")
    assert next(raw_rows(source)).value == {"prompt": "What is 0?"}
    reading = read_records(source)
    assert (reading.rows, reading.problems[0].origin) == (1001, "rows.jsonl:1001")


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    assert [record.origin for record in read_records(source).records] == ["rows.jsonl:1", "rows.jsonl:3"]


def test_csv_rows_have_the_line_on_which_they_begin(tmp_path):
    source = tmp_path / "rows.csv"
    source.write_text('prompt,completion\n"two\nlines",yes\n,plain\nq,\none cell\n2,4\n', encoding="utf-8")
    reading = read_records(source, threshold=0.6)
    assert [(r.origin, r.prompt, r.completion) for r in reading.records] == [
        ("rows.csv:2", "two\nlines", "yes"),
        ("rows.csv:7", "2", "4"),
    ]
    assert [problem.message for problem in reading.problems] == [
        "rows.csv:4: field prompt: expected a value, found an empty cell",
        "rows.csv:5: field completion: expected a value, found an empty cell",
        "rows.csv:6: expected 2 cells, found 1",
    ]


def test_csv_and_parquet_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"prompt,completion\nq,caf\xe9\nq,a\n")
    data = pyarrow.array([b"fine", b"caf\xe9"]).cast(pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": data}), tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        (problem,) = read_records(tmp_path / name, threshold=0.5).problems
        assert problem.message == f"{name}:2: expected text in UTF-8, found byte 0xe9"


def test_a_csv_quote_that_never_closes_is_a_bad_row(tmp_path):
    source = tmp_path / "rows.csv"
    source.write_text('prompt,completion\nq,a\nq,"never closed\nq,a\n', encoding="utf-8")
    reading = read_records(source, threshold=0.5)
    assert (len(reading.records), reading.problems[0].origin) == (1, "rows.csv:3")


def test_long_documents_fit_into_csv_cells(tmp_path):
    source = as_csv(tmp_path / "rows.csv", [{"text": "long " * 100_000}])
    assert len(read_records(source).records[0].completion) == 500_000


def test_large_csv_and_parquet_rows_are_named(tmp_path):
    rows = [{"text": "short"}, {"text": "x" * 5000}]
    for source in (as_csv(tmp_path / "rows.csv", rows), as_parquet(tmp_path / "rows.parquet", rows)):
        reading = read_records(source, threshold=0.5, options=ReadOptions(row_limit=1000))
        assert [problem.kind for problem in reading.problems] == ["row too large"]


UNREADABLE = [
    ("pairs.jsonl", b"", "the file is empty"),
    ("pairs.jsonl", b"\n\n", "no row in it"),
    ("pairs.jsonl", b"nonsense\n", "none of the first 1 rows can be read. The first: pairs.jsonl:1"),
    ("pairs.jsonl", '{"prompt": "a"}'.encode("utf-16"), "is in UTF-16"),
    ("pairs.jsonl.gz", zipped(b'{"prompt": "a"}\n' * 9)[:-9], "compressed file is damaged"),
    ("pairs.jsonl.gz", b'{"prompt": "a"}\n', "compressed file is damaged"),
    ("pairs.jsonl.zst", b'{"prompt": "a"}\n', "compressed file is damaged"),
    ("pairs.jsonl.zst", zstd(b'{"prompt": "a"}\n' * 9)[:-3], "compressed file is damaged"),
    ("pairs.jsonl.zst", zstd(b"x" * 60_000_000), "unzips to more than 16 MiB, 200 times its own size"),
    ("pairs.arrow", b"ARROW1 and then nothing", "not a table of Arrow, or a damaged one"),
    ("pairs.jsonl.gz", zipped(b"x" * 60_000_000), "unzips to more than 16 MiB, 200 times its own size"),
    ("pairs.jsonl.gz", zipped(b"\n" * 60_000_000), "1,000,000 blank lines in a row"),
    ("pairs.json.gz", zipped(b" " * 60_000_000), "unzips to more than 16 MiB, 200 times its own size"),
    ("pairs.jsonl", b'[{"prompt": "a"}, {"prompt": "b"}]', r"holds a JSON list .* call it pairs\.json$"),
    ("pairs.jsonl", b'[\n {"prompt": "a"}\n]', r"holds a JSON list .* call it pairs\.json$"),
    ("pairs.json", b"[" * 100_000, "thousands of brackets in each other"),
    ("pairs.json", b'{"a": 1', "not JSON"),
    ("pairs.json", b'[{"a": "caf\xe9"}]', "is not UTF-8"),
    ("pairs.json", b'{"train": [{"a": 1}], "test": [{"a": 1}]}', r"has 2 lists of objects \(train, test\)"),
    ("pairs.json", b"3", "expected a list of rows, found 3"),
    ("pairs.parquet", b"PAR1 not really", "not a Parquet file"),
    ("pairs.csv", b"a,a\n1,2\n", "more than once"),
    ("pairs.txt", b"a", "cannot tell rows by the ending '.txt'"),
    ("pairs.jsnl", b"a", r"did you mean \.json"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "content", "says"), UNREADABLE)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        read_records(tmp_path / name)


def test_one_bad_row_of_a_whole_json_file_is_put_aside(tmp_path):
    text = json.dumps([PAIR] * 3)
    for change, says in {
        '"prompt": "other", "prompt"': "expected each key once, found the key 'prompt' is there twice",
        '"size": [{"deep": NaN}], "prompt"': "expected finite numbers, found NaN",
    }.items():
        path = write(tmp_path / "pairs.json", text.replace('"prompt"', change, 1))
        reading = read_records(path, threshold=0.5)
        assert [problem.message for problem in reading.problems] == [f"pairs.json:1: {says}"]
        assert len(reading.records) == 2


def test_damaged_parquet_is_rows_or_a_sentence(tmp_path):
    """Bytes turned round, raised, set to a huge length, and files cut: no traceback, whatever was hit."""
    path = as_parquet(tmp_path / "rows.parquet", [PAIR | {"chosen": f"Stone {n}."} for n in range(20)])
    whole = path.read_bytes()
    huge = b"\xff\xff\xff\x7f"
    read = 0
    # An eighth of some nine hundred faults, all of which were tried once.
    for place in range(0, len(whole), max(1, len(whole) // 28)):
        before, byte, after = whole[:place], whole[place], whole[place + 1 :]
        for damaged in (
            before + bytes([byte ^ 255]) + after,
            before + bytes([(byte + 1) % 256]) + after,
            (before + huge + whole[place + 4 :])[: len(whole)],
            before,
        ):
            path.write_bytes(damaged)
            with suppress(UserError):
                assert read_records(path, threshold=1.0).rows <= 20
                read += 1
    assert 8 < read < 90


def test_a_damaged_folder_of_datasets_is_said(tmp_path):
    path = as_folder(tmp_path / "saved", [PAIR] * 3)
    table = next(path.glob("*.arrow"))
    table.write_bytes(table.read_bytes()[:50])
    with pytest.raises(UserError, match=r"saved: a damaged folder of datasets \(.*\); save it again"):
        read_records(path)


def test_what_json_cannot_hold_and_what_is_no_object_are_bad_rows():
    itself: dict[object, object] = dict(PAIR)
    itself["again"] = itself
    reading = read_records([PAIR, itself, PAIR | {(1, 2): 3}, "text", PAIR], threshold=0.6)
    assert [problem.origin for problem in reading.problems] == ["rows:2", "rows:3", "rows:4"]
    assert reading.problems[2].message == 'rows:4: expected a JSON object, found "text"'


def test_a_missing_file_names_its_neighbour(tmp_path):
    write(tmp_path / "pairs.jsonl", PAIR)
    with pytest.raises(UserError, match=r"no such file; did you mean .*pairs\.jsonl\?"):
        read_records(tmp_path / "pears.jsonl")
    with pytest.raises(UserError, match="no folder"):
        read_records(tmp_path / "nowhere" / "pairs.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(UserError, match=r"loop\.jsonl: no such file, only a link to what is not there"):
        read_records(tmp_path / "loop.jsonl")
    with pytest.raises(UserError, match=r"no name of a file \(File name too long\)"):
        read_records("a" * 5000 + ".jsonl")


def test_a_folder_of_something_else_lists_what_is_in_it(tmp_path):
    write(tmp_path / "pairs.jsonl", PAIR)
    assert len(read_records(tmp_path).records) == 1, "of one file it is that file's"
    (tmp_path / "pairs.jsonl").rename(tmp_path / "pairs.txt")
    with pytest.raises(UserError, match=r"it holds pairs\.txt"):
        read_records(tmp_path)


def clone(folder, *names):
    """A data set's repository as git leaves it."""
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    (folder / ".gitattributes").write_text("*.parquet filter=lfs\n", encoding="utf-8")
    for number, name in enumerate(names):
        write_records([Prompt(prompt=f"{number}?")], folder / "data" / name)
    return folder


def test_a_clone_of_parquet_shards_is_read_in_their_order(tmp_path):
    one = clone(tmp_path / "one", "train-00000-of-00002.parquet", "train-00001-of-00002.parquet")
    assert [record.prompt for record in read_records(one).records] == ["0?", "1?"]
    two = clone(tmp_path / "two", "train-00000-of-00001.parquet", "test-00000-of-00001.parquet")
    with pytest.raises(UserError, match=r"several splits \(test, train\)"):
        read_records(two)
    assert read_records(two, options=ReadOptions(split="test")).records[0].prompt == "1?"
    with pytest.raises(UserError, match="no split 'dev'"):
        read_records(two, options=ReadOptions(split="dev"))
    pointer = one / "data" / "train-00000-of-00002.parquet"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "utf-8")
    with pytest.raises(UserError, match="git lfs pull"):
        read_records(one)


CONFIGS = """---
configs:
- config_name: helpful
  data_files:
  - split: train
    path: data/h*.jsonl
  - split: test
    path: data/t.jsonl
- config_name: honest
  data_files: data/o.jsonl
---
"""


def test_a_clone_has_the_splits_that_its_readme_names(tmp_path):
    folder = clone(tmp_path / "several", "h1.jsonl", "h2.jsonl", "t.jsonl", "o.jsonl", "unnamed.jsonl")
    (folder / "README.md").write_text(CONFIGS, encoding="utf-8")
    read = {
        split: [record.prompt for record in read_records(folder, options=ReadOptions(split=split)).records]
        for split in ("helpful/train", "helpful/test", "honest/train")
    }
    assert read == {"helpful/train": ["0?", "1?"], "helpful/test": ["2?"], "honest/train": ["3?"]}
    with pytest.raises(UserError, match=r"several splits \(helpful/train, helpful/test, honest/train\)"):
        read_records(folder)
    (folder / "README.md").write_text(
        CONFIGS.split("- config_name: honest", maxsplit=1)[0] + "---\n", encoding="utf-8"
    )
    assert len(read_records(folder, options=ReadOptions(split="train")).records) == 2
    (folder / "README.md").write_text("---\nconfigs: 5\n---\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"configs: in its README\.md lists no files"):
        read_records(folder)


ALPACA = {"ask": "What sinks?", "reply": "A stone.", "good": "no"}
TALK_ROWS = {"talk": [{"speaker": "me", "text": "What sinks?"}, {"speaker": "it", "text": "A stone."}]}
SETS = {
    "flat": {
        "file_name": "flat.json",
        "columns": {"prompt": "ask", "query": "", "response": "reply", "kto_tag": "good"},
    },
    "talk": {
        "file_name": "talk.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "talk"},
        "tags": {"role_tag": "speaker", "content_tag": "text", "user_tag": "me", "assistant_tag": "it"},
    },
    "pairs": {
        "file_name": "pairs.json",
        "formatting": "sharegpt",
        "ranking": True,
        "columns": {"messages": "turns", "chosen": "chosen", "rejected": "rejected"},
    },
    "documents": {"file_name": "documents.jsonl", "columns": {"prompt": "words"}},
    "far": {"hf_hub_url": "org/name"},
    "odd": {"file_name": "flat.json", "formatting": "openai", "tags": {}},
    "keys": {"file_name": "talk.jsonl", "formatting": "sharegpt", "tags": {"role_tag": "by"}},
}


def test_a_list_of_data_sets_says_what_the_fields_of_each_are(tmp_path):
    write(tmp_path / "dataset_info.json", SETS)
    write(tmp_path / "flat.json", json.dumps([ALPACA]))
    write(tmp_path / "talk.jsonl", TALK_ROWS)
    sides = {"chosen": {"from": "gpt", "value": "A stone."}, "rejected": {"from": "gpt", "value": "A cork."}}
    write(
        tmp_path / "pairs.json", json.dumps([{"turns": [{"from": "human", "value": "What sinks?"}], **sides}])
    )
    write(tmp_path / "documents.jsonl", {"words": "Stones sink."})
    asked, sinks = user_turn("What sinks?"), assistant_turn("A stone.")
    for source in (tmp_path, tmp_path / "dataset_info.json"):

        def read(name, source=source):
            (record,) = read_records(source, options=ReadOptions(split=name)).records
            return record

        assert (read("flat").prompt, read("flat").completion, read("flat").score) == (asked, sinks, 0.0)
        assert (read("talk").prompt, read("talk").completion) == (asked, sinks)
        assert (read("pairs").prompt, read("pairs").chosen) == (asked, sinks)
        assert read("documents").completion == "Stones sink."
        for name, says in (
            (None, r"several data sets; say which with --split .*: flat, talk"),
            ("tall", "no data set 'tall'"),
            ("far", r"far lies elsewhere \(org/name\)"),
            ("odd", "formatting 'openai'; alpaca and sharegpt are read"),
            ("keys", "role_tag 'by'; turns are read with one of from, role, speaker"),
        ):
            with pytest.raises(UserError, match=says):
                read_records(source, options=ReadOptions(split=name))
