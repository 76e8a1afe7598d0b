"""What is written is read again as it was; what TRL cannot say is named."""

import gzip
import json
import resource
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.data.read import read_records
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Part,
    Prompt,
    Ranking,
    Rating,
    Steps,
    ToolCall,
    assistant_turn,
)
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.files.atomic import AtomicFile

# The type checker looks at a random element of each tuple, also of those that strategies build.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FILLED = TEXT.filter(str.strip)
NUMBER = st.floats(-1e6, 1e6)
NAME = st.none() | FILLED
WHO = st.fixed_dictionaries({"annotator": NAME, "group": NAME, "category": NAME, "origin": FILLED})
PARTS = st.tuples(
    st.builds(Part, kind=st.just("text"), text=FILLED),
    # Of rows, so whole paths: others are named from the folder of their file.
    st.builds(Part, kind=st.just("image"), source=FILLED.map(lambda name: f"data:image/png;base64,{name}")),
)


def turn(role):
    return st.builds(Message, role=st.just(role), content=FILLED | PARTS)


JSON = st.dictionaries(FILLED, st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT), max_size=3)


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


CALLS = st.tuples(st.builds(ToolCall, name=FILLED, arguments=JSON.map(as_json), id=st.just("a") | st.none()))
SCHEMA = st.builds(lambda name: {"type": "function", "function": {"name": name, "strict": True}}, FILLED)
CALLING = st.builds(Message, role=st.just("assistant"), content=TEXT, tool_calls=CALLS)
RESULT = st.builds(
    Message, role=st.just("tool"), content=TEXT, tool_call_id=st.just("a") | st.none(), name=NAME
)
TOOLS = st.builds(
    Message, role=st.just("tools"), content=st.lists(SCHEMA, min_size=1, max_size=2).map(as_json)
)
ASKED = (
    st.tuples(turn("user"))
    | st.tuples(turn("system"), turn("user"))
    | st.tuples(TOOLS, turn("user"), CALLING, RESULT)
)
SAID = st.tuples(turn("assistant")) | st.tuples(CALLING, RESULT, turn("assistant")) | st.tuples(CALLING)
KIND = st.sampled_from([(FILLED, FILLED), (ASKED, SAID)])


def both(kind):
    """A prompt and two different answers of one kind."""
    prompt, reply = kind
    return st.tuples(prompt, st.lists(reply, min_size=2, max_size=4, unique=True))


SIDES = KIND.flatmap(both)


@st.composite
def demonstrations(draw):
    prompt, replies = draw(SIDES)
    return Demonstration(prompt=prompt, completion=replies[0], **draw(WHO))


@st.composite
def comparisons(draw):
    prompt, (chosen, rejected, *_) = draw(SIDES)
    tie = draw(st.booleans())
    chance = 0.5 if tie else draw(st.none() | st.floats(0, 1))
    return Comparison(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        strength=0.0 if tie else draw(st.none() | NUMBER.filter(bool)),
        margin=draw(st.none() | NUMBER),
        probability=chance,
        **draw(WHO),
    )


@st.composite
def rankings(draw):
    prompt, replies = draw(SIDES)
    ranks = draw(st.lists(NUMBER, min_size=len(replies), max_size=len(replies)))
    return Ranking(prompt=prompt, completions=tuple(replies), ranks=tuple(ranks), **draw(WHO))


@st.composite
def ratings(draw):
    prompt, replies = draw(SIDES)
    thumb = draw(st.booleans())
    score = draw(st.sampled_from([0.0, 1.0]) if thumb else NUMBER)
    return Rating(
        prompt=prompt, completion=replies[0], score=score, aspect=draw(NAME), thumb=thumb, **draw(WHO)
    )


@st.composite
def steps(draw, label=NUMBER):
    solution = draw(st.lists(FILLED, min_size=1, max_size=4))
    labels = draw(st.lists(label, min_size=len(solution), max_size=len(solution)))
    return Steps(prompt=draw(FILLED | ASKED), steps=tuple(solution), labels=tuple(labels), **draw(WHO))


PROMPTS = st.builds(Prompt, prompt=FILLED | ASKED, answer=NAME, metadata=JSON, origin=FILLED)
RECORDS = demonstrations() | comparisons() | rankings() | ratings() | steps() | PROMPTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from(["jsonl", "jsonl.gz"]))
@settings(max_examples=150, deadline=None)
def test_plaudit_rows_come_back_exactly(folder, records, end):
    written = write_records(records, folder / f"rows.{end}")
    assert (written.rows, dict(written.lost)) == (len(records), {})
    assert read_records(written.path).records == tuple(records)


@pytest.mark.slow
@given(
    st.one_of(
        *(
            st.lists(kind.filter(lambda record: isinstance(record.prompt, str)), min_size=1, max_size=4)
            for kind in (demonstrations(), comparisons(), rankings(), ratings(), steps(), PROMPTS)
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_plaudit_texts_come_back_exactly_from_parquet(folder, records):
    written = write_records(records, folder / "rows.parquet")
    assert read_records(written.path).records == tuple(records)


def test_conversations_come_back_from_parquet(tmp_path):
    talk = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    records = (Demonstration(prompt=talk, completion=assistant_turn("Ho"), origin="a:1"),)
    assert read_records(write_records(records, tmp_path / "a.parquet").path).records == records


CALLED = (
    Message(role="tools", content='[{"type": "function", "function": {"name": "f", "strict": true}}]'),
    Message(role="user", content="Hi"),
)
IN_WORDS = st.tuples(CALLING, RESULT, turn("assistant")).filter(
    lambda turns: all(isinstance(turn.content, str) for turn in turns)
)


@given(st.lists(IN_WORDS, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_calls_come_back_exactly_from_parquet(folder, talks):
    records = tuple(Demonstration(prompt=CALLED, completion=talk, origin="a:1") for talk in talks)
    for layout in ("plaudit", "trl"):
        written = write_records(records, folder / "calls.parquet", layout=layout)
        back = [replace(record, origin="a:1") for record in read_records(written.path).records]
        assert tuple(back) == records


@pytest.mark.slow
@given(
    comparisons().filter(lambda pair: pair.probability is None or pair.probability > 0.5)
    | demonstrations()
    | ratings().filter(lambda rating: rating.thumb and rating.aspect is None)
    | steps(st.sampled_from([0.0, 1.0])).filter(lambda solution: isinstance(solution.prompt, str))
)
@settings(max_examples=80, deadline=None)
def test_trl_rows_come_back_but_for_their_origin(folder, record):
    written = write_records([record], folder / "trl.jsonl", layout="trl")
    (back,) = read_records(written.path).records
    assert back == type(record)(
        **{name: getattr(record, name) for name in record.__slots__ if name != "origin"}, origin="trl.jsonl:1"
    )


def test_a_ranking_becomes_pairs_that_remember_their_group(tmp_path):
    ranking = Ranking(prompt="p", completions=("a", "b", "c"), ranks=(1.0, 2.0, 2.0), category="fruit")
    written = write_records([ranking], tmp_path / "trl.jsonl", layout="trl")
    rows = [json.loads(line) for line in written.path.read_text().splitlines()]
    assert [(row["chosen"], row["rejected"], row["group_id"], row["category"]) for row in rows] == [
        ("a", "b", "ranking-1", "fruit"),
        ("a", "c", "ranking-1", "fruit"),
    ]
    assert dict(written.lost) == {
        "rankings split into pairs that TRL weighs one by one (group_id keeps what belongs together)": 1,
        "pairs left out: tied, or twice the same answer": 1,
    }


LOST = [
    (Comparison(prompt="p", chosen="a", rejected="b", probability=0.5), "a TRL preference cannot be a tie"),
    (Comparison(prompt="p", chosen="a", rejected="b", probability=0.2), "the likelier one"),
    (Rating(prompt="p", completion="a", score=3.0), "a TRL label is a thumb"),
    (Steps(prompt="p", steps=("a",), labels=(0.5,)), "never neutral"),
]


@pytest.mark.parametrize(("record", "says"), LOST)
def test_what_trl_cannot_say_is_named_and_nothing_false_is_written(tmp_path, record, says):
    with pytest.raises(UserError, match=f"nothing to write .*{says}"):
        write_records([record], tmp_path / "trl.jsonl", layout="trl")
    assert list(tmp_path.iterdir()) == []


ASK, TOLD = Prompt(prompt="p"), Demonstration(prompt="p", completion="c")
UNCOUNTED = Rating(prompt="p", completion="c", score=float("nan"), origin="a:1")
UNWRITABLE = [
    ([ASK, TOLD], "a.jsonl", {"layout": "trl"}, "the records are prompts and demonstrations"),
    ([ASK, Prompt(prompt=CALLED[1:])], "a.parquet", {}, "a Parquet column has one type"),
    ([UNCOUNTED], "a.jsonl", {}, "a:1: cannot be written as JSON"),
    ([ASK], "a.csv", {}, "cannot tell rows by the ending"),
    ([ASK], "a.jsonl", {"layout": "TRL"}, "unknown layout 'TRL'"),
    ([ASK], "nowhere/a.jsonl", {}, "no such folder"),
    ([ASK], "folder.jsonl", {}, "name a file in it"),
]


@pytest.mark.parametrize(("records", "name", "more", "says"), UNWRITABLE)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, records, name, more, says):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match=says):
        write_records(records, tmp_path / name, **more)
    assert [child.name for child in tmp_path.iterdir()] == ["folder.jsonl"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_records([Prompt(prompt="old")], path)

    def records():
        yield Prompt(prompt="new")
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        write_records(records(), path)
    assert [child.name for child in tmp_path.iterdir()] == ["rows.jsonl"]
    assert read_records(path).records[0].prompt == "old"


def test_what_a_killed_writer_left_is_removed_by_the_next_and_a_living_one_is_left_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    alive, killed = AtomicFile(path), AtomicFile(path)
    # As a process's end does, the lock goes and the file stays.
    killed.stream.close()
    write_records([Prompt(prompt="p")], path)
    assert len([*tmp_path.iterdir()]) == 2
    alive.commit()
    assert [child.name for child in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    """A limit on the size of files stands in for the disk."""
    program = (
        "import sys; from plaudit.data import write_records; from plaudit.data.records import Prompt\n"
        "write_records([Prompt(prompt='x' * 100000)] * 50, sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "rows.jsonl")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "could not be written: the file would be larger than is allowed" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_the_same_records_give_the_same_bytes(tmp_path):
    records = [Prompt(prompt="p", metadata={"b": 1, "a": 2})]
    one, two = (write_records(records, tmp_path / f"{i}.jsonl.gz").path.read_bytes() for i in "12")
    assert one == two
    assert json.loads(gzip.decompress(one))["metadata"] == {"b": 1, "a": 2}
