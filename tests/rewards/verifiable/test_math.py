"""Mathematical equivalence, on answers as people and models write them; and what must not hang it."""

import time
from pathlib import Path

import pytest

from plaudit.rewards.verifiable.math import equivalent

LINES = Path(__file__).with_name("equalities.txt").read_text("utf-8").splitlines()
SAME = [tuple(line.split(" ≡ ")) for line in LINES if " ≡ " in line]
OTHER = [tuple(line.split(" ≢ ")) for line in LINES if " ≢ " in line]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same(one: str, other: str) -> None:
    assert equivalent(one, other) is True
    assert equivalent(other, one) is True


@pytest.mark.parametrize(
    ("answer", "truth", "verdict"),
    [
        *((answer, truth, False) for answer, truth in OTHER),
        # A dot alone is no number.
        *((dots, "12", False) for dots in (".", "1 + .", ". 5", "1..2", "..", r"\sqrt.", "7 .", "x^.")),
        # A unit may have several words.
        *(("12 sq. ft.", "12", True), ("3.5 km", "3.5", True), ("1,200 US dollars", "1200", True)),
        # A truth that cannot be read gives no verdict.
        *(("1", truth, None) for truth in (r"\int_0^1 f", "[1, 2", r"\begin{cases} 1 \end{cases}", "?")),
    ],
)
def test_what_is_said_of_an_answer(answer: str, truth: str, verdict: bool | None) -> None:
    assert equivalent(answer, truth) is verdict


@pytest.mark.parametrize(
    "bomb",
    [
        "9^9^9^9^9^9",
        "9**9**9",
        "(9^9^9)!",
        "500!" * 50,
        "((((9^999)^999)^999)^999)^999",
        "+".join(["(99/7)^999"] * 40),
        "(" * 400 + "1" + ")" * 400,
        "{" * 10_000,
        "-" * 10_000 + "1",
        "-" * 401 + "1",
        "2^" * 200 + "2",
        r"\frac" * 90 + "1",
        r"\sqrt" * 80 + "2",
        "exp(exp(exp(exp(9))))",
        r"\sin(10^{300})",
        "0.1" + "1" * 400,
        "1" * 400 + "^" + "1" * 90,
        "(x+1)^999999",
        # Plain English behind a number: long words could be divided into units in 2^n ways.
        "12 dollars because each of the seven children gets the same share of what remains!",
        "12 " + "a" * 480 + "!",
        "12 " + "ab " * 150 + "1",
        "1e999",
        "a" * 400,
        ",".join("123456789" * 20),
        "1e999999999",
        r"\frac{" * 10_000 + "1" + "}{2}" * 10_000,
        "9**9**9" * 60,
        "(9!)" * 100 + "!" * 90,
        r"\begin{pmatrix}" + "1&" * 5000 + r"\end{pmatrix}",
        r"\{" + ",".join(map(str, range(100_000))) + r"\}",
        "{" * 20 + "1," * 200 + "}" * 20,
        "x^" * 200 + "x",
    ],
)
def test_nothing_hangs(bomb: str) -> None:
    begun = time.perf_counter()
    assert equivalent(bomb, "1") is False
    assert equivalent("1", bomb) in (False, None)
    assert time.perf_counter() - begun < 5


def items(item: str, *, order: int) -> str:
    """A set of twenty such items, from the first or from the last on."""
    return r"\{" + ",".join(item.replace("N", str(n)) for n in range(20)[::order]) + r"\}"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "item", ["e^{e^{x}}<N+x", "N<e^{xx^.1}", "(-x)^{.5}+e^{e^N}", "e^{e^{x}}+N", "(x+N/7)^{999}<y"]
)
def test_sets_of_hard_items_have_a_verdict_soon(item: str) -> None:
    begun = time.perf_counter()
    assert equivalent(items(item, order=1), items(item, order=-1)) in (True, False)
    assert equivalent(items(item, order=1), items(item + "+1", order=-1)) is False
    assert time.perf_counter() - begun < 10


def test_a_set_of_many_ordinary_items_is_compared_to_the_end() -> None:
    for item in ("x^2+Nx+1", r"\frac{N}{7}+\sqrt{2}", "x=N", r"\sin x+N"):
        assert equivalent(items(item, order=1), items(item, order=-1)) is True
