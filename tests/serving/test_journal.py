"""The journal of answers: nothing comes back that was not written whole, and what was is not asked again."""

import random
from pathlib import Path

import pytest

from plaudit.serving.journal import Journal, key_of, packed, unpacked
from plaudit.serving.server import DrawnTokens, Question


def question(seed: int) -> Question:
    return Question(prompt=(1, 5), answers=2, seed=seed, max_tokens=9, temperature=1.0, stop_ids=(2,))


def answers(seed: int, *, tokens: int = 40, wide: bool = False) -> list[DrawnTokens]:
    generator = random.Random(seed)
    largest = 200_000 if wide else 60_000

    def number() -> float:
        value = -generator.random() * 9
        # As a server of float32 says it, or with all digits.
        return value if wide else float.fromhex(value.hex()[:10] + "p" + value.hex().split("p")[1])

    return [
        DrawnTokens(
            ids=tuple(generator.randrange(largest) for _ in range(tokens)),
            logp=tuple(number() for _ in range(tokens)),
            ended=generator.random() < 0.5,
        )
        for _ in range(2)
    ]


@pytest.mark.parametrize(("wide", "most"), [(False, 6.5), (True, 12.5)])
def test_answers_come_back_to_the_bit_in_few_bytes_a_token(wide: bool, most: float):
    drawn = answers(3, wide=wide)
    content = packed(drawn)
    assert unpacked(content) == drawn
    assert len(content) / 80 < most
    assert unpacked(packed([DrawnTokens(ids=(70_000,), logp=(-0.0,), ended=True)]))[0].ids == (70_000,)


def test_a_torn_file_gives_what_was_whole_and_is_written_on_in_another(tmp_path: Path):
    journal = Journal(tmp_path, 0)
    journal.begin("root")
    keys = [key_of("root", question(seed)) for seed in range(5)]
    for seed, key in enumerate(keys):
        journal.write(key, answers(seed))
    journal.sync()
    journal.close()
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    size = len(content) // 5
    for cut in (0, 1, size - 1, size, size + 3, 3 * size + 10, 5 * size):
        path.write_bytes(content[:cut])
        torn = Journal(tmp_path, 0)
        found = [torn.answers_to(key) for key in keys]
        assert found == [answers(seed) if seed < cut // size else None for seed in range(5)]
    path.write_bytes(content[: 3 * size + 10])
    again = Journal(tmp_path, 0)
    again.begin("root")
    again.write(keys[4], answers(4))
    again.close()
    assert [Journal(tmp_path, 1).answers_to(key) is not None for key in keys] == [
        True,
        True,
        True,
        False,
        True,
    ]
    # A byte that has turned over hides itself and what is behind it, and nothing else.
    path.write_bytes(content[: 2 * size + 40] + b"\xff" + content[2 * size + 41 :])
    hidden = Journal(tmp_path, 0)
    assert [hidden.answers_to(key) is not None for key in keys] == [True, True, False, False, True]


def test_an_answer_belongs_to_its_weights_and_its_question():
    assert len({key_of(root, question(seed)) for root in ("a", "b") for seed in (1, 2)}) == 4


def test_what_two_checkpoints_are_behind_is_removed(tmp_path: Path):
    journal = Journal(tmp_path, 0)
    there: list[int] = []
    for version in range(6):
        journal.begin(f"root{version}")
        journal.write(key_of(f"root{version}", question(0)), answers(version))
        if version % 2:
            journal.checkpoint()
        there.append(len(list(tmp_path.iterdir())))
    journal.close()
    # At a checkpoint: those since the one before, and the one that is written to.
    assert there == [1, 2, 3, 3, 4, 3]
