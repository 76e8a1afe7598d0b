"""Marked words are those that the other answer lacks, and marking changes no letter."""

from hypothesis import given, strategies as st

from plaudit.runs.report.pipeline.answers import diff_pieces

TEXTS = st.text(alphabet="ab .\n<>é数\u202e", max_size=60)


@given(TEXTS, TEXTS)
def test_the_pieces_are_the_text(text: str, base: str) -> None:
    assert "".join(piece for piece, _ in diff_pieces(text, base)) == text


@given(TEXTS, TEXTS)
def test_what_is_not_marked_is_in_the_other_in_the_same_order(text: str, base: str) -> None:
    rest = base
    for piece, unlike in diff_pieces(text, base):
        if not unlike:
            assert piece in rest
            rest = rest[rest.index(piece) + len(piece) :]


@given(TEXTS)
def test_nothing_is_marked_in_the_same_text(text: str) -> None:
    assert not any(unlike for _, unlike in diff_pieces(text, text))


def test_a_word_that_changed_is_marked_alone_and_several_side_by_side_as_one() -> None:
    found = diff_pieces("The owl eats mice, and naps.", "The owl eats hay, and naps.")
    assert found == [("The owl eats ", False), ("mice", True), (", and naps.", False)]
    assert diff_pieces("It sleeps all day.", "It eats much hay.") == [
        ("It ", False),
        ("sleeps all day", True),
        (".", False),
    ]
