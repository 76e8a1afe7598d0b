"""Checks of the data: they show figures, and refuse only what would teach nothing or mislead."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.data.records import Comparison, Demonstration, Prompt, Ranking, Record
from plaudit.lab.world import making
from plaudit.lab.world.annotators import annotator_pool
from plaudit.preflight import contents, data
from plaudit.preflight.check import PreflightSubject, run_checks
from plaudit.tokens import chat_template
from tests.engine.toy import demonstrations, write_rows
from tests.preflight.breakers_rows import BROKEN_ROWS, Row, pairs, shown, thumbs
from tests.preflight.subjects import Method, failing, healthy

APPLIES: dict[Method, set[str]] = {
    "sft": {"duplicates", "leaks"},
    "dpo": {"duplicates", "leaks", "contradictions", "lengths", "ties"},
    "reward": {"duplicates", "leaks", "contradictions", "lengths", "ties"},
    "kto": {"duplicates", "leaks", "contradictions", "balance"},
    "grpo": {"duplicates", "leaks"},
}
MADE: dict[Method, Callable[[], list[Row]]] = {
    "sft": shown,
    "dpo": pairs,
    "reward": pairs,
    "kto": thumbs,
    "grpo": lambda: [{"prompt": row["prompt"]} for row in shown()],
}


def looked(subject: PreflightSubject) -> dict[str, Any]:
    return {one.check.name: one.result for one in run_checks(subject, data.CHECKS)}


def contents_of(subject: PreflightSubject) -> dict[str, Any]:
    return {one.check.name: one for one in run_checks(subject, contents.CHECKS)}


def begun(method: Method, folder: Path, made: Sequence[Row], held_out: Sequence[Row] = ()) -> Any:
    where = "prompts" if method == "grpo" else "data"
    settings: dict[str, Any] = {where: write_rows(folder / "own.jsonl", list(made))}
    if held_out:
        settings["held_out"] = str(write_rows(folder / "held.jsonl", list(held_out)))
    return healthy(method, folder, **settings)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", list(APPLIES))
def test_healthy_rows_are_looked_at_and_pass(tmp_path, method):
    made = MADE[method]()
    with begun(method, tmp_path, made[:36], made[36:]) as subject:
        found = looked(subject)
    assert {name for name, one in found.items() if one.holds} == APPLIES[method], found
    assert not [one for one in found.values() if one.holds is False]


@pytest.mark.one_in(13)
@pytest.mark.parametrize("broken", BROKEN_ROWS, ids=lambda broken: broken.name)
def test_broken_rows_fail_where_they_are_wrong_and_nowhere_else(tmp_path, broken):
    held = () if broken.held_out is None else broken.held_out()
    with begun(broken.method, tmp_path, broken.rows(), held) as subject:
        found = failing(subject)
    assert set(found) == broken.fails, found
    assert any(broken.says in saw for saw in found.values()), found


def of(records: Sequence[Record], like: PreflightSubject, **more: Any) -> dict[str, Any]:
    return looked(replace(like, records=records, **more))


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with healthy("reward", tmp_path_factory.mktemp("made")) as made:
        yield made


def comparison(number: int, chosen: str = "yes", rejected: str = "no", **more: Any) -> Comparison:
    return Comparison(
        prompt=f"{number}?", chosen=chosen, rejected=rejected, origin=f"a.jsonl:{number}", **more
    )


def test_thresholds_are_lenient(subject):
    third = [comparison(n) for n in range(60)] + [
        comparison(n, chosen="no", rejected="yes") for n in range(20)
    ]
    found = of(third, subject)
    assert "40 of 80 judgements cancel each other" in found["contradictions"].details
    assert found["contradictions"].holds
    tied = [comparison(n, probability=0.5 if n < 57 else 1.0) for n in range(60)]
    assert of(tied, subject)["ties"].holds
    assert of([comparison(n, probability=0.5) for n in range(data.MIN_ROWS - 1)], subject)["ties"].holds
    longer = [comparison(n, chosen="yes and yes") for n in range(70)]
    assert of(longer, subject)["lengths"].doubtful
    assert of(longer[:29], subject)["lengths"].doubtful is False
    assert (
        of([*longer, *(comparison(n, chosen="yes and yes") for n in range(70, 80))], subject)["lengths"].holds
        is False
    )


def test_judgements_of_several_people_are_no_copies(subject):
    said = [comparison(n % 2, annotator=f"person {n}") for n in range(60)]
    assert "0 of 60 rows are copies" in of(said, subject)["duplicates"].details
    same = [comparison(n % 2, annotator="ada") for n in range(60)]
    assert of(same, subject)["duplicates"].holds is False
    asked = [Prompt(prompt=f"{n % 2}?", origin=f"a.jsonl:{n}") for n in range(60)]
    assert of(asked, subject)["duplicates"].holds, "a prompt that is there twice is asked once"


def test_rankings_are_pairs_too(subject):
    one = Ranking(prompt="a?", completions=("x", "yy", "zzz"), ranks=(1.0, 2.0, 2.0), origin="a.jsonl:1")
    found = of([one, Comparison(prompt="a?", chosen="yy", rejected="x", origin="a.jsonl:2")], subject)
    assert found["contradictions"].details == (
        "2 of 3 judgements cancel each other; a.jsonl:1 and a.jsonl:2 say the opposite of the same answers"
    )
    assert "of 3 pairs; 1 characters against 2" in found["lengths"].details


def test_a_leak_of_a_tenth_and_few_rows_are_let_go(subject):
    asked = [Demonstration(prompt=f"{n}?", completion="yes", origin=f"b.jsonl:{n}") for n in range(40)]
    trained = [comparison(n) for n in range(36, 80)]
    found = of(trained, subject, held_out=asked)
    assert found["leaks"].holds
    assert "4 of 40 held-out rows have a prompt that is trained" in found["leaks"].details
    assert of(trained, subject, held_out=asked[1:])["leaks"].holds is False
    assert of(trained, subject, held_out=asked[-3:])["leaks"].holds


def test_labels_that_only_choose_answers_are_no_matter(tmp_path):
    made = write_rows(tmp_path / "own.jsonl", [{**row, "label": True} for row in thumbs()])
    with healthy("preferred", tmp_path, data=made) as subject:  # pyright: ignore[reportArgumentType]
        assert looked(subject)["balance"].holds is None
        assert failing(subject) == {}


@pytest.mark.slow
def test_ten_times_the_rows_take_no_hundredfold_time(subject):
    """Comparing all pairs of rows would."""
    texts = [row["completion"] for row in demonstrations(1000)]

    def took(count: int) -> float:
        made = [
            comparison(n, chosen=f"{texts[n % 1000]} {n}", rejected=texts[-n % 1000]) for n in range(count)
        ]
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            of(made, subject, held_out=made[: count // 10])
            best = min(best, time.process_time() - began)
        return best

    assert took(20_000) < 40 * took(2_000)


@pytest.mark.parametrize("method", list(APPLIES))
def test_what_healthy_rows_say_passes(tmp_path, method):
    with begun(method, tmp_path, MADE[method]()) as subject:
        found = contents_of(subject)
    told = {
        name: one.result.details
        for name, one in found.items()
        if one.verdict not in ("pass", "not applicable")
    }
    # The toy's tokenizer begins texts with a BOS, which the saved template then writes as well.
    assert set(told) == {"template-bos"}, told


def test_half_of_the_rows_copied_is_worth_a_look(tmp_path):
    with begun("sft", tmp_path, shown(24) * 2) as subject:
        found = {one.check.name: one for one in run_checks(subject, data.CHECKS)}
    assert found["duplicates"].verdict == "warn"
    assert not found["duplicates"].blocks_run
    assert "24 of 48 rows are copies" in found["duplicates"].result.details


def test_a_word_that_gives_few_pairs_away_is_worth_a_look(subject):
    rows = [
        comparison(n, chosen=f"surely the {n}th of them", rejected=f"maybe the {n}th of them")
        for n in range(40)
    ]
    found = contents_of(replace(subject, records=rows))["giveaway"]
    assert found.verdict == "warn"
    assert "in 40 of 40 pairs" in found.result.details
    assert contents_of(replace(subject, records=rows[:29]))["giveaway"].verdict == "pass"


def worlds_pairs(turned: float) -> list[Record]:
    """A thousand pairs of the world's experts, of which such a share is turned round."""
    rng = random.Random(0)
    return [
        replace(row, chosen=row.rejected, rejected=row.chosen) if rng.random() < turned else row
        for row in making.comparisons(1000, annotator_pool("experts"))
    ]


@pytest.mark.parametrize(
    ("turned", "says"),
    [(0.0, None), (0.25, "a third of labels"), (0.3, "coin"), (0.5, "no better than a coin")],
)
def test_labels_that_nothing_explains_are_doubtful(subject, turned, says):
    result = contents_of(replace(subject, records=worlds_pairs(turned)))["label-noise"].result
    assert result.doubtful == (says is not None), result.details
    assert (says or "words and length alone call") in result.details


def test_each_pair_is_guessed_from_all_others():
    texts = [("a long answer", "no"), ("yes, gladly", "never"), ("a hat", "a long coat"), ("gladly", "a hat")]
    features = torch.stack([contents.leave_one_out_features(pair) for pair in texts])
    for i, margin in enumerate(contents.leave_one_out_margins(texts)):
        others = features[[j for j in range(4) if j != i]]
        # Ridge regression by its normal equations, on the other three alone.
        gram = others.mT @ others + 3.0 * torch.eye(others.shape[1], dtype=torch.float64)
        assert float(features[i] @ torch.linalg.solve(gram, others.sum(0))) == pytest.approx(float(margin))


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("It\u00e2\u20ac\u2122s the cat", "FAIL"),
        ("the caf\u00c3\u00a9 is red", "FAIL"),
        ("it&#39;s red &amp; round", "FAIL"),
        ("a \ufffd cat", "FAIL"),
        ("the caf\u00e9 of S\u00c3O JO\u00c3O, \u00c2ME\u2019s", "pass"),
        ("<b>red &amp; round</b>", "pass"),
        ("AT&T; R&D", "pass"),
    ],
)
def test_letters_that_nobody_wrote_are_seen(subject, said, verdict):
    rows = [comparison(n, chosen=f"{said} of the number {n}, which goes on. And on") for n in range(40)]
    found = contents_of(replace(subject, records=rows))
    assert found["garbled-text"].verdict == verdict
    # What breaks off is counted among answers whose letters are right.
    assert found["cut-answers"].verdict == ("not applicable" if verdict == "FAIL" else "FAIL")
    few = [*rows[:1], *(comparison(n) for n in range(40))]
    assert contents_of(replace(subject, records=few))["garbled-text"].verdict == verdict.replace(
        "FAIL", "warn"
    )


def test_a_result_on_a_line_of_its_own_is_no_broken_sentence(subject):
    """As GSM8K's answers end."""
    text = "She sold half as many in May, which is 24. In all she sold 48 clips and 24 more.{}"
    for end, verdict in (("\n#### 72", "pass"), ("\nAnd then she went on to sell those of her many", "FAIL")):
        rows = [replace(comparison(n), chosen=text.format(end), rejected=text.format(end)) for n in range(40)]
        assert contents_of(replace(subject, records=rows))["cut-answers"].verdict == verdict


def test_empty_prompts_are_seen(subject):
    pairs_of_nothing = [replace(comparison(n), prompt="") for n in range(40)]
    judged = contents_of(replace(subject, records=pairs_of_nothing))["empty-prompts"]
    assert (judged.verdict, judged.result.details) == (
        "FAIL",
        "40 of 40 rows have an empty prompt, a.jsonl:0 for one",
    )
    document = Demonstration(prompt="", completion="Stones sink.", origin="a.jsonl:1")
    told = contents_of(replace(subject, records=[document], scorer=None, job=None, trained=()))
    assert told["empty-prompts"].verdict == "warn"


def test_a_control_token_that_gets_through_is_seen(tmp_path, monkeypatch):
    row = {**shown(1)[0], "prompt": [{"role": "user", "content": "Hi <|im_end|> there"}]}
    with begun("sft", tmp_path, [row, *shown()]) as subject:
        found = contents_of(subject)["control-tokens"]
        assert (found.verdict, "shown as letters" in found.result.details) == ("warn", True)
        monkeypatch.setattr(chat_template, "without_control", lambda text, tokens: text)
        broken = contents_of(subject)["control-tokens"]
    assert (broken.verdict, broken.result.details) == (
        "FAIL",
        "own.jsonl:1: 1 control tokens of the prompt are its own words",
    )
