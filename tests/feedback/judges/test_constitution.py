"""Principles of a file: what is drawn for a task, by which law, and what a file may not say."""

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from plaudit.errors import UserError
from plaudit.feedback.judges.constitution import (
    Constitution,
    Principle,
    constitution_named,
    read_constitution,
)

TEXTS = {"choose": "The better one is better.", "critique": "Look for it.", "revise": "Mend it."}


def principle(name: str, weight: float = 1.0, *categories: str) -> Principle:
    return Principle(id=name, weight=weight, categories=categories, **TEXTS)


def constitution(*weights: float) -> Constitution:
    return Constitution(
        name="test", principles=tuple(principle(f"p{n}", weight) for n, weight in enumerate(weights))
    )


def test_our_own_has_sixteen_principles_and_each_text_is_one_of_a_kind():
    ours = constitution_named("ours")
    assert ours == read_constitution(None)
    assert len(ours.principles) == 16
    texts = [getattr(p, name) for p in ours.principles for name in ("id", "choose", "critique", "revise")]
    assert len(set(texts)) == len(texts) == 64
    assert all(text == text.strip() and text[-1] == "." for text in texts if " " in text)


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=9),
    st.text(),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_a_draw_hangs_on_the_key_alone_and_repeats_nothing(weights, key, count, random):
    file = constitution(*weights)
    shuffled = list(file.principles)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = file.drawn(key, count=count)
    assert len({p.id for p in found}) == len(found) == min(count, len(weights))
    assert replace(file, principles=tuple(shuffled)).drawn(key, count=count) == found
    assert file.drawn(key, count=count + 1)[:count] == found


@settings(max_examples=40)
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=6), st.text())
def test_whoever_is_not_drawn_changes_nothing_by_leaving(weights, key):
    file = constitution(*weights)
    [first] = file.drawn(key)
    for other in file.principles:
        if other != first:
            left = tuple(p for p in file.principles if p != other)
            assert replace(file, principles=left).drawn(key) == (first,)


def test_pairs_come_as_often_as_their_weights_say():
    """The exact law of drawing two without putting back, against 20,000 keys, each within five deviations."""
    weights = (1.0, 2.0, 3.0, 6.0)
    file, n = constitution(*weights), 20_000
    found = Counter(tuple(p.id for p in file.drawn(f"task {key}", count=2)) for key in range(n))
    for first, second in permutations(range(4), 2):
        share = weights[first] / 12 * weights[second] / (12 - weights[first])
        assert abs(found[f"p{first}", f"p{second}"] / n - share) < 5 * math.sqrt(share * (1 - share) / n)


def test_principles_of_other_categories_are_left_out():
    principles = (principle("any"), principle("danger", 5.0, "harmful"), principle("sums", 5.0, "sum"))
    file = Constitution(name="own.yaml", principles=principles)
    drawn = {
        category: {p.id for key in range(50) for p in file.drawn(str(key), category=category, count=3)}
        for category in ("harmful", "sum", "fact", None)
    }
    assert drawn == {"harmful": {"any", "danger"}, "sum": {"any", "sums"}, "fact": {"any"}, None: {"any"}}


def test_a_category_without_a_principle_is_named():
    file = Constitution(name="own.yaml", principles=(principle("danger", 1.0, "harmful"),))
    with pytest.raises(UserError, match=r"own\.yaml: no principle fits the category 'sum'"):
        file.drawn("key", category="sum")
    with pytest.raises(UserError, match="no principle fits rows without a category"):
        file.drawn("key")


def test_the_version_is_of_what_is_there_and_not_of_its_place(tmp_path):
    rows = [{"id": name, **TEXTS, "weight": 2} for name in ("a", "b")]
    versions = set[str]()
    for name, content in (
        ("one", rows),
        ("two", rows[::-1]),
        ("three", [*rows[:1], {**rows[1], "weight": 3}]),
    ):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        versions.add(read_constitution(tmp_path / f"{name}.yaml").version)
    assert len(versions) == 2


def test_a_text_may_be_broken_over_lines(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "- id: a\n  choose: |\n    The better one\n    is better.\n  critique: Look.\n  revise: Mend.\n"
    )
    assert read_constitution(path).principles[0].choose == "The better one is better."


GOOD = {"id": "calm", **TEXTS}
FAULTS = {
    "revise is missing": [{name: text for name, text in GOOD.items() if name != "revise"}],
    r"principle 2 \(calm\): choose is ' ': expected words": [{**GOOD, "id": "b"}, {**GOOD, "choose": " "}],
    "nothing is called 'critic'; did you mean critique": [{**GOOD, "critic": "x"}],
    r"principle 2: id 'calm' is that of principle 1 too": [GOOD, GOOD],
    "weight is 0: expected a number above 0": [{**GOOD, "weight": 0}],
    "weight is True": [{**GOOD, "weight": True}],
    "weight is inf": [{**GOOD, "weight": math.inf}],
    "categories is 'harmful': expected a list": [{**GOOD, "categories": "harmful"}],
    r"categories is \[3\]: expected a list of words": [{**GOOD, "categories": [3]}],
    "id is 7: expected words": [{**GOOD, "id": 7}],
    "principle 1: expected id, choose": ["be good"],
    "expected a list of principles": [],
    "expected a list of principles, each with": {"principles": [GOOD]},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_file_entry_and_field(fault, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(FAULTS[fault]))
    with pytest.raises(UserError, match=fault) as found:
        read_constitution(path)
    assert str(found.value).startswith(str(path))


@pytest.mark.parametrize("text", ["- id: [", "\x00", "- &a [*a]"])
def test_what_is_no_yaml_of_principles_is_refused(text, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"own\.yaml"):
        read_constitution(path)
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read as a constitution"):
        read_constitution(tmp_path / "none.yaml")
