"""Rules that know: what is right, what is wrong, and where nothing can be said."""

import time

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.rewards.base import NO_TRUTH, Reward, refusal_counts
from plaudit.rewards.verifiable.exact import exact, length, mathematics, number, sections
from tests.rewards.asked import asked, said


@pytest.mark.parametrize("rule", [exact(), number(), mathematics()])
def test_without_a_truth_there_is_no_verdict_and_a_reason(rule: Reward) -> None:
    assert isinstance(rule, Reward)
    assert said(rule, "4", "5") == (None, None)
    assert refusal_counts(rule) == {NO_TRUTH: 2}


def test_exact_knows_no_spaces_and_no_capitals_and_a_raised_digit_is_no_plain_one() -> None:
    answers = ("Paris", " pARIS \n", "Paris.", "Lyon", "<answer>paris</answer>", r"\boxed{Paris}", "")
    assert said(exact(), *answers, truth="Paris") == (1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0)
    assert said(exact(), "10²", "2³", "１０２", truth="102") == (0.0, 0.0, 1.0)
    assert said(exact(), "10²", "102", truth="10²") == (1.0, 0.0)
    assert said(mathematics(), "10²", "102", "100", truth="10²") == (1.0, 0.0, 1.0)
    assert said(mathematics(), "2³", "10⁴", truth="23") == (0.0, 0.0)


def test_conversations_are_read_by_their_words() -> None:
    told = {"prompt": user_turn("Capital?"), "answers": (assistant_turn("Paris"),), "ended": (True,)}
    assert exact().scores([Task(**told, reference_answer="paris")]) == ((1.0,),)


@pytest.mark.parametrize(
    ("answer", "truth", "right"),
    [
        ("There are 3 boxes of 4, so 12.", "12", True),
        ("There are 3 boxes of 4, so 13.", "12", False),
        ("12 it is, not 13", "12", False),
        ("#### 1,250", "1250", True),
        ("So it is 7.\n#### 8\nDone 9", "8", True),
        (r"\boxed{12} and then 13", "12", True),
        (r"\boxed{\frac{3}{4}}", "0.75", True),
        (r"first \boxed{1}, then \boxed{\text{the number }2}", "2", True),
        ("<think>4</think><answer>5</answer>", "5", True),
        ("3/4", "0.75", True),
        ("-3", "3", False),
        ("−3", "-3", True),
        ("12%", "12", True),
        ("12%", "0.12", True),
        ("0.12", "12%", True),
        ("12%", "12%", True),
        ("0.12%", "12%", False),
        ("$1,000,000.50", "1000000.5", True),
        ("1.5e3", "1500", True),
        ("0.3333333", "1/3", True),
        ("0.333", "1/3", False),
        ("1/0", "1", False),
        ("no number", "1", False),
        ("", "1", False),
        ("7" * 30_000, "7", False),
    ],
)
def test_numbers(answer: str, truth: str, right: bool) -> None:
    assert said(number(), answer, truth=truth) == (float(right),)


def test_the_tolerance_of_numbers_can_be_chosen() -> None:
    assert said(number(0.01), "1005", "1020", truth="1000") == (1.0, 0.0)
    assert said(number(0), "0.5", "0.5000001", truth="1/2") == (1.0, 0.0)
    with pytest.raises(UserError, match="tolerance of -1"):
        number(-1)


def test_a_truth_that_cannot_be_read_needs_the_same_text_and_one_in_words_the_same_words() -> None:
    rule = number()
    assert said(rule, "4", truth="four") == (None,)
    assert refusal_counts(rule) == {"the reference answer holds no number": 1}
    rule = mathematics()
    truth = r"\begin{matrix} 1 \end{matrix}"
    assert said(rule, truth, "2", truth=truth) == (1.0, None)
    assert list(refusal_counts(rule)) == ["the reference answer cannot be read as mathematics"]
    assert said(mathematics(), "Tuesday", "Wednesday", "3", truth=r"\text{Tuesday}") == (0.0, 0.0, 0.0)
    assert said(mathematics(), r"\boxed{\text{Tuesday}}", truth=r"\text{Tuesday}") == (1.0,)


def test_mathematics_reads_the_result_wherever_it_stands() -> None:
    answers = (
        r"It is $\boxed{\frac{1}{2}}$.",
        "The answer is 0.5.",
        "First 3.\n1/2",
        "<answer>2/4</answer>",
        "2",
    )
    assert said(mathematics(), *answers, truth="1/2") == (1.0, 1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("<think>hm</think><answer>4</answer>", True),
        ("  <think>hm\nhm</think>\n\n<answer>4</answer>\n", True),
        ("<answer>4</answer><think>hm</think>", False),
        ("<think>hm</think>", False),
        ("<think></think><answer>4</answer>", False),
        ("so <think>hm</think><answer>4</answer>", False),
        ("<think>hm</think> so <answer>4</answer>", False),
        ("<think>hm</think><answer>4</answer> bye", False),
        ("<think>hm<answer>4</answer></think>", False),
        ("<think>a</think><think>b</think><answer>4</answer>", False),
        ("<think>hm</think><answer>4<answer></answer>", False),
    ],
)
def test_sections_in_order(answer: str, right: bool) -> None:
    assert said(sections(("think", "answer")), answer) == (float(right),)


def test_words_are_counted() -> None:
    assert said(length(2, 3), "one", "one two", "one  two\nthree", "a b c d") == (0.0, 1.0, 1.0, 0.0)
    with pytest.raises(UserError, match="length:5-1"):
        length(5, 1)


@pytest.mark.parametrize("tags", [(), ("a", "a"), ("a b",), ("",)])
def test_tags_have_to_be_words(tags: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="format:"):
        sections(tags)


def test_a_score_does_not_depend_on_the_tasks_beside_it() -> None:
    tasks = [asked("4", "5", truth="4"), asked("x", truth="4"), asked("1")]
    assert number().scores(tasks) == tuple(number().scores([task])[0] for task in tasks)


@pytest.mark.parametrize(
    "answer",
    ["<answer>" * 100_000, "<answer>" * 2_400 + "4", "1," * 100_000, "answer is " * 100_000, "-" * 200_000],
)
def test_marks_that_are_never_closed_cost_a_moment(answer: str) -> None:
    begun = time.perf_counter()
    for reward in (exact(), number(), mathematics(), sections(("think", "answer"))):
        assert said(reward, answer, truth="12") == (0.0,)
    assert time.perf_counter() - begun < 5
