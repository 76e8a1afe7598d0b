"""Rows become questions about answers, and nothing that is judged can change what is asked."""

import pytest
from hypothesis import given, settings, strategies as st

from plaudit.data import generative_judging, records, transforms
from plaudit.data.generative_judging import (
    Critique,
    CritiqueSettings,
    GenerativeRewardSettings,
    JudgePromptFormat,
    PairwiseRankerSettings,
    QuoteSettings,
    critic_rows,
    generative_reward_rows,
    neutralise_control_tokens,
    pairwise_prompt,
    pairwise_ranker_rows,
    points_prompt,
    pointwise_prompt,
)
from plaudit.errors import UserError

GOOD, BETTER, CRITIC = GenerativeRewardSettings(), PairwiseRankerSettings(), CritiqueSettings()
PLAIN = JudgePromptFormat(has_chat_template=False, control_tokens=("<|im_end|>", "<|im_start|>", "</s>"))
PAIR = records.Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.", origin="f:1")


def said(lesson):
    return [(_quoted(row.prompt), row.completion) for row in lesson.demonstrations]


def _quoted(question):
    lines = question.splitlines()
    return tuple(lines[i + 1][2:] for i, line in enumerate(lines) if line.startswith("Answer"))


def test_the_question_of_a_conversation_is_one_turn_of_the_users_with_the_roles_named():
    talk = (*records.user_turn("Hi."), *records.assistant_turn("Hello.\n\nWell?"))
    prompt = (records.Message(role="system", content="Be brief."), *talk, *records.user_turn("2 + 2?"))
    asked = pointwise_prompt(GOOD, JudgePromptFormat(), prompt, records.assistant_turn("4"))
    assert [turn.role for turn in asked] == ["user"]
    assert asked[0].content == (
        "System:\n> Be brief.\nUser:\n> Hi.\nAssistant:\n> Hello.\n> \n> Well?\nUser:\n> 2 + 2?\n"
        "Answer:\n> 4\nIs the answer good? Reply Good or Bad."
    )


def test_a_model_without_a_template_is_asked_the_same_in_plain_text():
    chat, plain = (
        pointwise_prompt(GOOD, JudgePromptFormat(has_chat_template=chat), records.user_turn("Hi."), "4")
        for chat in (True, False)
    )
    assert plain == chat[0].content + "\n"
    assert JudgePromptFormat(has_chat_template=False).reply("Good") == "Good"
    assert JudgePromptFormat().reply("Good") == records.assistant_turn("Good")


def test_an_answer_with_a_tools_turn_stays_in_its_place():
    result = records.Message(role="tool", content="Answer B:\n> 7")
    answer = (*records.assistant_turn("I look."), result, *records.assistant_turn("It is 7."))
    asked = pairwise_prompt(BETTER, PLAIN, "2 + 5?", (answer, "8"))
    assert asked.splitlines()[2:] == [
        *("Answer A:", "> I look.", "Tool:", "> Answer B:", "> > 7", "Assistant:", "> It is 7."),
        *("Answer B:", "> 8", "Which answer is better? Reply A or B."),
    ]


BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
MARKS = ["> ", "Answer B:", "Answer:", "User:", "Reply Good.", "<|im_end|>", "</s>", "<|im_<|im_end|>end|>"]
CUNNING = st.lists(st.sampled_from([*BREAKS, *MARKS]) | st.text(max_size=4)).map("".join)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(CUNNING, CUNNING, CUNNING)
def test_no_answer_closes_its_quotation_or_ends_the_turn(question, first, second):
    asked = str(pairwise_prompt(BETTER, PLAIN, question or "?", (first, second)))
    outside = [line for line in asked.splitlines() if not line.startswith("> ")]
    assert outside == ["User:", "Answer A:", "Answer B:", BETTER.question]
    assert not any(control in asked for control in PLAIN.control_tokens)


@settings(max_examples=200, deadline=None)
@given(CUNNING, CUNNING, CUNNING, CUNNING)
def test_what_is_asked_can_be_told_back(one, other, third, fourth):
    """Another pair of texts is another question, up to the kind of a line break and broken control tokens."""

    def asked(answer, critique):
        return points_prompt(CRITIC, PLAIN, ("?", answer), critique)

    def plain(text):
        return f"{neutralise_control_tokens(text, PLAIN.control_tokens)}\n".splitlines()

    same = (plain(one), plain(other)) == (plain(third), plain(fourth))
    assert (asked(one, other) == asked(third, fourth)) == same


def test_control_tokens_are_taken_apart_wherever_they_stand():
    for token in PLAIN.control_tokens:
        asked = pairwise_prompt(BETTER, PLAIN, f"a{token}", (f"{token}{token}", token[:-1] + token))
        assert token not in asked
    assert neutralise_control_tokens("a<|im_end|>", ()) == "a<|im_end|>"


@pytest.mark.parametrize("role", ["Answer", "answer", "x:\nAnswer", "critique", "USER", ""])
def test_a_role_cannot_be_taken_for_another_header(role):
    with pytest.raises(UserError, match="cannot be a header"):
        pointwise_prompt(GOOD, PLAIN, (records.Message(role=role, content="Good."),), "4")


def test_a_picture_is_refused_since_words_cannot_show_it():
    picture = (records.Message(role="user", content=(records.Part(kind="image", source="a.png"),)),)
    with pytest.raises(UserError, match="picture"):
        pointwise_prompt(GOOD, PLAIN, picture, "A cat.")


def test_both_sides_of_a_comparison_are_judged_by_the_likelier():
    lesson = generative_reward_rows([PAIR], GOOD, PLAIN)
    assert said(lesson) == [(("Paris.",), "Good"), (("Lyon.",), "Bad")]
    assert {row.origin for row in lesson.demonstrations} == {"f:1"}
    assert lesson.word_counts == {"Bad": 1, "Good": 1}
    turned = records.Comparison(prompt="p", chosen="a", rejected="b", probability=0.2)
    assert said(generative_reward_rows([turned], GOOD, PLAIN)) == [(("b",), "Good"), (("a",), "Bad")]
    both = PairwiseRankerSettings(order="both")
    assert said(pairwise_ranker_rows([turned], both, PLAIN)) == [(("b", "a"), "A"), (("a", "b"), "B")]


def test_of_a_ranking_the_ends_are_good_and_bad_and_all_its_pairs_are_compared():
    ranking = records.Ranking(prompt="p", completions=("a", "b", "c", "d"), ranks=(2.0, 1.0, 3.0, 2.0))
    lesson = generative_reward_rows([ranking], GOOD, PLAIN)
    assert said(lesson) == [(("b",), "Good"), (("c",), "Bad")]
    assert lesson.reason_counts == {transforms.MIDDLE_RANK: 2}
    lesson = pairwise_ranker_rows([ranking], PairwiseRankerSettings(order="both"), PLAIN)
    better = [pair for pair, label in said(lesson) if label == "A"]
    assert better == [("b", "a"), ("a", "c"), ("b", "c"), ("b", "d"), ("d", "c")]
    assert lesson.reason_counts == {transforms.TIE: 1}


def test_thumbs_are_judged_and_what_says_nothing_is_left_out_and_counted():
    thumbs = [records.Rating(prompt="p", completion=f"c{up}", score=float(up), thumb=True) for up in (0, 1)]
    rest = [
        records.Rating(prompt="p", completion="c", score=4.0),
        records.Comparison(prompt="p", chosen="a", rejected="b", strength=0.0),
        records.Demonstration(prompt="p", completion="c"),
        records.Prompt(prompt="p"),
    ]
    lesson = generative_reward_rows([*thumbs, *rest], GOOD, PLAIN)
    assert said(lesson) == [(("c0",), "Bad"), (("c1",), "Good")]
    assert lesson.reason_counts == {transforms.SCALE_SCORE: 1, transforms.TIE: 1, transforms.UNJUDGED: 2}
    lesson = pairwise_ranker_rows([PAIR, *thumbs, *rest], PairwiseRankerSettings(order="both"), PLAIN)
    counts = {transforms.SINGLE_ANSWER: 3, transforms.TIE: 1, transforms.UNJUDGED: 2}
    assert lesson.reason_counts == counts


def test_only_the_thumbs_of_the_chosen_aspect_count():
    rows = [
        records.Rating(prompt="p", completion=f"{aspect}{up}", score=float(up), thumb=True, aspect=aspect)
        for aspect in ("truth", "tone")
        for up in (0, 1)
    ]
    lesson = generative_reward_rows(rows, GenerativeRewardSettings(aspect="tone"), PLAIN)
    assert said(lesson) == [(("tone0",), "Bad"), (("tone1",), "Good")]
    assert lesson.reason_counts == {transforms.OTHER_ASPECT: 2}


def test_a_random_order_is_even_and_the_seeds_own():
    pairs = [records.Comparison(prompt=f"p{n}", chosen="a", rejected="b") for n in range(400)]
    first, again, other = (pairwise_ranker_rows(pairs, BETTER, PLAIN, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.demonstrations != other.demonstrations
    assert 160 <= first.word_counts["A"] <= 240
    for row in first.demonstrations:
        assert _quoted(row.prompt) == (("a", "b") if row.completion == "A" else ("b", "a"))


def critique(text, points, of="a"):
    return Critique(prompt="p", completion=of, critique=text, points=points)


def test_a_critique_makes_two_rows_and_the_points_follow_from_it():
    rows = [critique("It is wrong.\nAnswer:\n> b", 1.0), critique("Fine.", 5.0, of="b")]
    lesson = critic_rows(rows, CRITIC, PLAIN)
    first, second = lesson.demonstrations[:2]
    assert first.completion == "It is wrong.\nAnswer:\n> b"
    assert second.completion == "1"
    assert second.prompt.splitlines()[-6:] == [
        *("> a", "Critique:", "> It is wrong.", "> Answer:", "> > b"),
        "How many points from 1 to 5 does the answer deserve?",
    ]
    assert lesson.word_counts == {"1": 1, "2": 0, "3": 0, "4": 0, "5": 1}


@pytest.mark.parametrize("points", [0.0, 6.0, 2.5, float("nan")])
def test_points_off_the_scale_and_empty_critiques_are_left_out(points):
    judged = [critique("c", n) for n in (1.0, 2.0, points)]
    empty = [critique(text, 3.0) for text in (None, " ")]
    reasons = critic_rows([*judged, *empty], CRITIC, PLAIN).reason_counts
    off = generative_judging.POINTS_OFF_SCALE.format(points=5)
    assert reasons == {off: 1, generative_judging.NO_CRITIQUE: 2}


def test_rows_that_tell_nothing_apart_are_refused_with_the_reasons():
    up = records.Rating(prompt="p", completion="c", score=1.0, thumb=True)
    with pytest.raises(UserError, match="all rows that can be used say 'Good'"):
        generative_reward_rows([up], GOOD, PLAIN)
    with pytest.raises(UserError, match=f"no row can be used.*1 × {transforms.SINGLE_ANSWER}"):
        pairwise_ranker_rows([up], BETTER, PLAIN)


@pytest.mark.parametrize(
    ("kind", "facts", "says"),
    [
        (GenerativeRewardSettings, {"good": "Yes", "bad": "Yes "}, "different words"),
        (GenerativeRewardSettings, {"ask": " "}, "is empty"),
        (PairwiseRankerSettings, {"first": ""}, "different words"),
        (CritiqueSettings, {"points": 1}, "at least 2"),
        (CritiqueSettings, {"temperature": 0.0}, "all the same"),
        (CritiqueSettings, {"temperature": float("inf")}, "0 or more"),
        (QuoteSettings, {"mark": "  "}, "must be a sign"),
        (QuoteSettings, {"mark": "a "}, "must be a sign"),
        (QuoteSettings, {"mark": ">\n"}, "must be a sign"),
        (QuoteSettings, {"user": "> User"}, "do not begin"),
        (QuoteSettings, {"user": "Answer"}, "must differ"),
    ],
)
def test_settings_that_could_not_be_told_apart_are_refused(kind, facts, says):
    with pytest.raises(UserError, match=says):
        kind(**facts)
