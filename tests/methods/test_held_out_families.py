"""What is asked about one prompt is held out together: no question of a trained prompt measures memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.methods.data import Rows, hold_out, load_rows
from plaudit.methods.supervised import run
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.encode import Encoder, make_encoder
from tests.engine.toy import write_rows

Row = dict[str, Any]
PROMPTS = 20


def prompt(number: int) -> str:
    return f"the {number:03} cats?"


def pairs() -> list[Row]:
    """Three comparisons of each prompt, far from each other in the file."""
    return [
        {"prompt": prompt(n), "chosen": f"{k} dogs sat.", "rejected": f"{k} old mats."}
        for k in range(3)
        for n in range(PROMPTS)
    ]


def rankings() -> list[Row]:
    """Four answers, of which the best and the worst, or all pairs, are asked about."""
    answers = ["two dogs.", "a dog.", "a mat.", "the red mat."]
    return [
        {"kind": "ranking", "prompt": prompt(n), "completions": answers, "ranks": [1, 2, 3, 4]}
        for n in range(PROMPTS)
    ]


def thumbs() -> list[Row]:
    return [
        {"kind": "rating", "prompt": prompt(n), "completion": f"{k} dogs.", "score": k % 2, "thumb": True}
        for k in range(3)
        for n in range(PROMPTS)
    ]


def critiques() -> list[Row]:
    """Two answers to each prompt, each with a critique: two questions an answer."""
    return [
        {"prompt": prompt(n), "completion": f"{k} dogs.", "critique": f"It says {k}.", "score": 1 + k}
        for k in range(2)
        for n in range(PROMPTS)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    method: str
    rows: Callable[[], list[Row]]
    questions: int
    """How many of each prompt."""
    more: tuple[str, ...] = ()


CASES = {
    "text-reward": Case(method="text-reward", rows=pairs, questions=6),
    "text-reward of rankings": Case(method="text-reward", rows=rankings, questions=2),
    "text-reward of thumbs": Case(method="text-reward", rows=thumbs, questions=3),
    "ranker": Case(method="ranker", rows=pairs, questions=3),
    "ranker, both orders": Case(method="ranker", rows=pairs, questions=6, more=("--words.order", "both")),
    "ranker of rankings": Case(method="ranker", rows=rankings, questions=12, more=("--words.order", "both")),
    "control": Case(method="control", rows=pairs, questions=6),
    "control of thumbs": Case(method="control", rows=thumbs, questions=3),
    "preferred": Case(method="preferred", rows=pairs, questions=3),
    "critic": Case(
        method="critic", rows=critiques, questions=4, more=("--words.points", "3", "--words.critiques", "1")
    ),
}


class Seen:
    """Stands before the reading of rows and keeps what a run was given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows: Rows[Example] | None = None
        patch.setattr(run, "load_rows", self._load)

    def _load(self, *words: Any) -> Rows[Example]:
        self.rows = load_rows(*words)
        return self.rows


def asks_about(example: Example, encoder: Encoder) -> str:
    question = encoder.info.tokenizer.decode(list(example.prompt))
    (found,) = {prompt(n) for n in range(PROMPTS) if prompt(n) in question}
    return found


@pytest.mark.one_in(9)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_no_question_about_a_trained_prompt_is_held_out(toy, tmp_path, monkeypatch, name, seed):
    case, seen = CASES[name], Seen(monkeypatch)
    data = write_rows(tmp_path / "rows.jsonl", case.rows())
    words = ("train", case.method, "--model", toy.model, "--data", data, "--out", tmp_path / "run")
    usual = ("--steps", 1, "--batch-size", 2, "--held-out", 0.25, "--device", "cpu", "--sample.rows", 0)
    assert main([str(word) for word in (*words, *usual, "--seed", seed, *case.more)]) == 0
    assert seen.rows is not None
    encoder = make_encoder(toy.model)
    trained, held_out = (
        [asks_about(example, encoder) for example in part] for part in (seen.rows.train, seen.rows.held_out)
    )
    assert not set(trained) & set(held_out)
    assert len(set(held_out)) == PROMPTS // 4, "a quarter of the prompts, not of the questions"
    assert {held_out.count(one) for one in held_out} == {case.questions}
    assert len(trained) == (PROMPTS - PROMPTS // 4) * case.questions


def test_without_families_questions_of_one_prompt_would_be_parted() -> None:
    """What the families are for: the same rows, held out by the questions alone, leak."""
    answer = (Completion(ids=(9, 2), mask=(True, True), finished=True),)
    questions = [Example(prompt=(n, k), completions=answer) for n in range(20) for k in range(6)]
    ids = {one.prompt: one.prompt_id for one in questions}
    families = {one.prompt_id: ids[one.prompt[0], 0] for one in questions}

    def leaks(*more: Any) -> int:
        train, held_out = ([questions[n] for n in part] for part in hold_out(questions, 0.25, 0, *more))
        assert len(train) + len(held_out) == len(questions)
        return len({one.prompt[0] for one in train} & {one.prompt[0] for one in held_out})

    assert leaks() > 10
    assert leaks(families) == 0
    assert hold_out(questions, 0.25, 0, families) == hold_out(questions[:], 0.25, 0, dict(families))


def test_one_family_alone_is_trained_and_a_share_of_nothing_holds_out_nothing() -> None:
    answer = (Completion(ids=(9, 2), mask=(True, True), finished=True),)
    questions = [Example(prompt=(1, k), completions=answer) for k in range(6)]
    families = {one.prompt_id: questions[0].prompt_id for one in questions}
    for share in (0.5, 0.0):
        assert [list(part) for part in hold_out(questions, share, 0, families)] == [[*range(6)], []]
    parted = hold_out([*questions, Example(prompt=(2, 0), completions=answer)], 0.5, 0, families)
    assert sorted(map(len, parted)) == [1, 6], "a prompt that no family names is one of its own"
