"""Mathematical equivalence, on answers as people and models write them; and what must not hang it."""

from __future__ import annotations

import time

import pytest

from plaudit.rewards.verifiable.math import equivalent

SAME = [
    ("1/2", "0.5"),
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac{2}{4}", r"\frac12"),
    (r"\frac1{2}", "1/2"),
    (r"1\frac{1}{2}", "1.5"),
    (r"-1\frac{1}{2}", "-1.5"),
    (r"5-1\frac{1}{2}", "3.5"),
    (r"3 \div 1\frac{1}{2}", "2"),
    (r"2^1\frac{1}{2}", "1"),
    (r"-\frac{3}{4}", "-0.75"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\sqrt2", "2^{1/2}"),
    (r"\sqrt[3]{27}", "3"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    ("√2", "sqrt(2)"),
    (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
    ("(-8)^{1/3}", "-2"),
    (r"2 \cdot 3", "6"),
    (r"2 \times 3^2", "18"),
    ("2**3", "8"),
    ("-2^2", "-4"),
    ("2^{-1}", "0.5"),
    ("2^3^2", "512"),
    ("1,234,567", "1234567"),
    ("1{,}234", "1234"),
    ("1.50", "1.5"),
    ("1.5e3", "1500"),
    (r"50\%", "1/2"),
    ("5!", "120"),
    ("|-3|", "3"),
    (r"\left|x-1\right|", "|1-x|"),
    (r"\pi", "π"),
    (r"2\pi r", r"r \cdot \pi + \pi r"),
    (r"\sin^2 x + \cos^2 x", "1"),
    (r"\sin(2x)", r"2\sin x\cos x"),
    (r"\sin 2x \cos x", r"\cos(x)\sin(2x)"),
    ("sin x cos x", "cos x sin x"),
    (r"\sin\sqrt{x}", r"\sin(x^{1/2})"),
    (r"\tan x", r"\frac{\sin x}{\cos x}"),
    (r"\ln(e^2)", "2"),
    (r"\log_2 8", "3"),
    (r"\log 100", "2"),
    (r"\ln 8", r"3\ln 2"),
    ("e^{x+1}", "e e^x"),
    ("(x+1)^2", "x^2+2x+1"),
    ("2(x+3)", "2x+6"),
    ("(x-1)(x+1)", "x^2-1"),
    ("x_1 + x_2", "x_{2}+x_{1}"),
    ("ab", "ba"),
    (r"\alpha+\beta", r"\beta+\alpha"),
    ("x=3", "3"),
    ("3", "x = 3"),
    ("y = 2x + 1", "2x - y + 1 = 0"),
    ("x > 3", "3 < x"),
    (r"x \leq 3", "2x ≤ 6"),
    ("(1, 2)", r"\left(1, \frac{4}{2}\right)"),
    (r"\{1, 2\}", r"\{2, 1\}"),
    ("{1,2}", r"\{1,2\}"),
    ("1, 2", "2 and 1"),
    ("x = 1 or x = 2", r"\{1, 2\}"),
    (r"\pm 3", "3, -3"),
    (r"1 \pm \sqrt{2}", r"1-\sqrt{2}, 1+\sqrt{2}"),
    ("[0, 1)", r"[0,\frac{2}{2})"),
    (r"(-\infty, 3]", r"(-\infty,3]"),
    (r"(0,1)\cup(2,3)", r"(2,3)\cup(0,1)"),
    ("((1,2),(3,4))", "((1,2),(3,4))"),
    ("5 cm", "5"),
    (r"5\text{ cm}", "5"),
    ("$5$", "5"),
    (r"90^\circ", "90"),
    ("90°", "90"),
    ("4.", "4"),
    ("9^(9^9)", "9^(9^9)"),
    ("10⁴ - x²", "10000 - x^2"),
    ("10⁻²", "0.01"),
    ("e^{-100}", r"\frac{1}{e^{60}e^{40}}"),
    (r"\sin\pi", "0"),
    (r"\sqrt{3+2\sqrt2}-\sqrt2-1", "0"),
    ("x = e^{-100}", "x = e^{-60}e^{-40}"),
    ("x = 2x - 3", "3 = x"),
    ("½", "1/2"),
    ("1½", "1.5"),
    ("1 1/2", "3/2"),
    ("-1 1/2", "-1.5"),
    ("\\$5.00", "5"),
    ("\\$5", "5 dollars"),
    ("1\\,000", "1000"),
    ("1,\\!000", "1000"),
    ("1 000 000", "10^6"),
    ("1\u202f000", "1000"),
    ("1{,}000{,}000", "1000000"),
    ("0.\\overline{3}", "1/3"),
    ("0.1\\overline{6}", "1/6"),
    ("2.\\overline{12}", "\\frac{70}{33}"),
    ("0.\\bar3", "1/3"),
    ("0.\\dot{3}", "1/3"),
    ("1.\\overline{9}", "2"),
    ("\\binom52", "10"),
    ("\\binom{5}{2}", "10"),
    ("\\dbinom{10}{3}", "120"),
    ("\\tbinom{4}{2}", "6"),
    ("{5 \\choose 2}", "10"),
    ("\\binom{n}{2}", "n(n-1)/2"),
    ("\\binom{40}{20}", "137846528820"),
    ("3\\times10^8 m/s", "300000000 m/s"),
    ("3\\times10^8 m/s", "3e8"),
    ("3\\times 10^8\\text{ m/s}", "3*10^8 m/s"),
    ("5 cm^2", "5"),
    ("5\\text{ cm}^2", "5 cm^2"),
    ("5 cm²", "5 square centimeters"),
    ("12 sq. ft.", "12 ft^2"),
    ("5 km", "5000 m"),
    ("5 km", "5 kilometers"),
    ("90 min", "1.5 hours"),
    ("2 ft", "24 inches"),
    ("1 L", "1000 mL"),
    ("5\\text{ m}", "5 m"),
    ("9.8 m/s^2", "9.8\\text{ m/s}^2"),
    ("60 km/h", "60 km per hour"),
    ("36 km/h", "10 m/s"),
    ("60 mph", "60 miles per hour"),
    ("18\\pi \\text{ square units}", "18\\pi"),
    ("\\frac12\\text{ hours}", "30 minutes"),
    ("\\frac{1}{2}\\text{ hour}", "0.5"),
    ("12 apples", "12"),
    ("12 apples", "12 fruits"),
    ("90 degrees", "90^\\circ"),
    ("50 percent", "50\\%"),
    ("50%", "50"),
    ("50%", "0.5"),
    ("\\sin 30^\\circ", "1/2"),
    ("\\cos(60°)", "0.5"),
    ("\\tan 45^{\\circ}", "1"),
    ("5 m", "5m"),
    ("2m/s", "2m/s"),
    ("100 cents", "1 dollar"),
    ("5 kg", "5000 g"),
    ("1\\frac12", "3/2"),
    ("2\\tfrac{1}{4}", "9/4"),
    ("3⅓", "10/3"),
    ("\\$1{,}234.50", "1234.5"),
    ("12\\text{ inches}", "1 foot"),
    ("7 units^2", "7"),
    ("2 hours", "120 min"),
    ("5\\,\\text{cm}", "5 cm"),
    ("\\text{5 cm}", "5 cm"),
    ("\\frac{3}{4}\\text{ of an hour}", "3/4"),
    ("10 cm by 5", "10 cm by 5"),
    ("2\\mathrm{e}", "2e"),
    ("€5", "5 euros"),
    ("£5", "5"),
    ("5 ft.", "5 feet"),
    ("3 days", "72 hours"),
    ("1 week", "7 days"),
]
OTHER = [
    ("1/3", "0.333"),
    ("0.33333333333", "1/3"),
    ("1.414", r"\sqrt{2}"),
    ("3.14159", r"\pi"),
    ("2", "3"),
    ("x", "y"),
    ("x+1", "x-1"),
    ("x^2", "x^3"),
    ("|x|", "x"),
    ("(1,2)", "(2,1)"),
    ("[0,1]", "(0,1)"),
    ("1,2", "1,2,3"),
    ("1,1", "1,2"),
    (r"\{1,1,2\}", r"\{1,2,2\}"),
    ("x=3", "x=4"),
    ("x=3", "x>3"),
    ("x>3", "x<3"),
    ("y=2x", "y=2x+1"),
    (r"\sin x", r"\cos x"),
    ("1/0", "1"),
    ("", "1"),
    ("no idea", "1"),
    ("__import__('os').system('true')", "1"),
    ("(((1", "1"),
    ("1)", "1"),
    ("9^9", "9^8"),
    ("9^(9^9)", "9^(9^8)"),
    (r"-1\frac{1}{2}", "-0.5"),
    ("10²", "102"),
    ("⁴", "4"),
    # Infinite, or divided by what rounding left of 0: no value, which equals nothing.
    ("0^{-1/2}", "7"),
    ("0^{-1/2}", "0^{-1/2} + 1"),
    (r"(\sqrt2-\sqrt2)^{-1}", "7"),
    (r"\frac{1}{0^{-1/2}}", "0"),
    (r"\frac{1}{\sin\pi}", "7"),
    # However small they are.
    ("e^{-100}", "e^{-200}"),
    ("0", "e^{-100}"),
    (r"\sqrt2-\sqrt2", "e^{-100}"),
    ("e^{-9^{12}}", "0"),
    ("x = 0", "x = e^{-100}"),
    ("5 km", "5 cm"),
    ("5 km", "5000 cm"),
    ("5 m", "5"),
    ("5 cm", "5 cm^2"),
    ("5 kg", "5 m"),
    ("½", "1/3"),
    ("1 1/2", "1/2"),
    ("1\\,000", "1"),
    ("0.\\overline{3}", "0.3"),
    ("0.\\overline{3}", "0.333"),
    ("\\binom52", "5/2"),
    ("\\binom52", "20"),
    ("50%", "5"),
    ("50% ", "0.05"),
    ("m/s", "s/m"),
    ("5 m/s", "5 km/h"),
    ("5 dollars", "5 cents"),
    ("2 hours", "2 minutes"),
    ("5 in", "5 ft"),
    ("\\sin 30", "1/2"),
    ("1 000", "1,0"),
    ("3m", "3"),
    ("2 m/s", "2 m/s^2"),
    ("10 miles per hour", "10 km/h"),
    ("1, 000", "1000"),
    ("5 min", "5 m"),
    ("(1 cm, 2)", "(1, 3)"),
    ("5 apples", "6 apples"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same(one: str, other: str) -> None:
    assert equivalent(one, other) is True
    assert equivalent(other, one) is True


@pytest.mark.parametrize(("answer", "truth"), OTHER)
def test_not_the_same(answer: str, truth: str) -> None:
    assert equivalent(answer, truth) is False


@pytest.mark.parametrize("answer", [".", "1 + .", ". 5", "1..2", "..", r"\sqrt.", "7 .", "x^."])
def test_a_dot_alone_is_no_number(answer: str) -> None:
    assert equivalent(answer, "12") is False


@pytest.mark.parametrize(
    ("answer", "number"),
    [("12 sq. ft.", "12"), ("3.5 km", "3.5"), ("1,200 US dollars", "1200")],
)
def test_a_unit_may_have_several_words(answer: str, number: str) -> None:
    assert equivalent(answer, number) is True


@pytest.mark.parametrize("truth", [r"\int_0^1 f", "[1, 2", r"\begin{cases} 1 \end{cases}", "?"])
def test_a_truth_that_cannot_be_read_gives_no_verdict(truth: str) -> None:
    assert equivalent("1", truth) is None


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
