"""The archive of what ever worked: whole lines, no conversation twice, damage named by its line."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plaudit.data.read import read_records
from plaudit.data.records import Message, Prompt, user_turn
from plaudit.errors import UserError
from plaudit.feedback.attacks.attempt import Attempt, Worked, add_to_archive, read_archive


def worked(words: str, **more: object) -> Worked:
    attempt = Attempt(turns=user_turn(words), category="harmful", source="rows", **more)  # pyright: ignore
    return Worked(
        attempt=attempt, policy="sft", policy_hash="9f", judge="j harm-1", when="2026-01-01Z", answer="Drill."
    )


def test_what_worked_is_there_once_and_comes_back_whole(tmp_path: Path):
    path = tmp_path / "found" / "archive.jsonl"
    turns = (*user_turn("Hi"), Message(role="assistant", content="Ho"), *user_turn("Und ß?"))
    long = Worked(
        attempt=Attempt(turns=turns, category="made up", source="story", goal="Hi", unit="u"),
        policy="dpo",
        policy_hash="77",
        judge="j",
        when="now",
        answer="\ud800 half a pair",
    )
    assert add_to_archive(path, [worked("a"), long, worked("a")]) == 2
    assert add_to_archive(path, [worked("b"), worked("a")]) == 1
    assert [entry.attempt.words for entry in read_archive(path)] == ["a", "Hi\nHo\nUnd ß?", "b"]
    assert read_archive(path)[1] == long


def test_an_archive_is_a_file_of_prompts_for_every_other_command_and_no_file_an_empty_one(tmp_path: Path):
    add_to_archive(tmp_path / "a.jsonl", [worked("a"), worked("b")])
    rows = read_records(tmp_path / "a.jsonl").records
    assert all(isinstance(row, Prompt) for row in rows)
    assert [row.metadata["policy"] for row in rows if isinstance(row, Prompt)] == ["sft", "sft"]
    assert read_archive(tmp_path / "none.jsonl") == ()


def test_commands_that_add_at_once_lose_and_double_nothing(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: add_to_archive(path, [worked(str(n % 10)), worked("same")]), range(40)))
    words = [entry.attempt.words for entry in read_archive(path)]
    assert sorted(words) == sorted({*map(str, range(10)), "same"})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"kind": "prompt", "prompt": [{"role": "us', "damaged"),
        ('{"prompt": [{"role": "user", "content": "a"}]}', "there is no 'metadata'"),
        (
            '{"prompt": [{"role": "user", "content": "a"}], "metadata": {"category": "x"}}',
            "there is no 'source'",
        ),
        ('{"prompt": 3, "metadata": {}}', "expected a list"),
        ("[1]", "damaged"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_added(tmp_path: Path, line, why):
    path = tmp_path / "a.jsonl"
    add_to_archive(path, [worked("a")])
    with path.open("a") as file:
        file.write(f"{line}\n")
    before = path.read_bytes()
    with pytest.raises(
        UserError, match=rf"a.jsonl:2: this line of the archive is damaged .*{why}|a.jsonl:2.*{why}"
    ):
        add_to_archive(path, [worked("b")])
    assert path.read_bytes() == before
