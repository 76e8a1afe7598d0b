"""Rows shown as tokens: what is trained can be seen, in colour or in brackets."""

import re
from pathlib import Path

import pytest

from plaudit.data.records import Comparison, Demonstration, Prompt, Steps, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.tokens.inspect import show_rows
from tests.tokens.families_bracketed import LLAMA2
from tests.tokens.families_headed import MARKED
from tests.tokens.families_odd import CHANNELS, WORDS
from tests.tokens.family import folder

CHAT = Demonstration(
    prompt=user_turn("Hi."),
    completion=(*assistant_turn("Hello."), *user_turn("And you?"), *assistant_turn("Well.")),
    origin="chats.jsonl:1",
)


def test_trained_tokens_stand_in_brackets_and_ends_are_named(tmp_path: Path) -> None:
    shown = show_rows([CHAT], folder(tmp_path, WORDS), colour=False)
    assert shown == (
        "prompt|tokens| then >>> an answer: [trained][tokens], others|, [END] where a turn ends\n\n"
        "chats.jsonl:1: prompt 5 tokens, answer 12 (6 trained)\n"
        "<user>| Hi| .| </s>| <assistant>|\n"
        ">>> [ Hello][ .][ </s> END] <user>| And| you| ?| </s>| <assistant>|[ Well][ .][ </s> END]"
    )


def test_line_ends_are_visible_and_what_the_template_hides_is_said(tmp_path: Path) -> None:
    shown = show_rows([CHAT], folder(tmp_path, MARKED), colour=False)
    assert "|<|im_start|>|assistant|⏎\n|" in shown
    assert (
        "note: the template's generation markers leave out '<|im_end|>', which is trained nevertheless"
        in shown
    )


def test_colour_marks_the_same_tokens_as_brackets(tmp_path: Path) -> None:
    where = folder(tmp_path, CHANNELS)
    plain = show_rows([CHAT], where, colour=False)
    body = show_rows([CHAT], where, colour=True).split("\n\n")[-1]
    green = re.findall("\x1b\\[32m(.*?)\x1b", body)
    ends = re.findall("\x1b\\[1;30;42m(.*?)\x1b", body)
    assert green == re.findall(r"\[([^\]]*?)\]", plain.split("\n\n")[-1].replace(" END]", ""))[: len(green)]
    assert ends == ["<|return|>"]
    assert "\x1b" not in plain


def test_no_terminal_means_brackets(tmp_path: Path) -> None:
    where = folder(tmp_path, MARKED)
    assert show_rows([CHAT], where) == show_rows([CHAT], where, colour=False)


def test_characters_of_several_tokens_are_shown_whole(tmp_path: Path) -> None:
    row = Comparison(prompt=user_turn("Hi."), chosen=assistant_turn("日本 😀"), rejected=assistant_turn("é"))
    shown = show_rows([row], folder(tmp_path, LLAMA2), colour=False)
    answers = shown.split(">>> ")[2:]
    joined = ["".join(re.findall(r"\[(.*?)\]", answer)) for answer in answers]
    assert joined == [" 日本 😀 </s> END", " é </s> END"]
    assert "�" not in shown


def test_nothing_in_a_row_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    row = Demonstration(prompt="\x1b[2J", completion="a\x00b\x07")
    shown = show_rows([row], folder(tmp_path, MARKED), colour=False)
    assert not set("\x1b\x00\x07") & set(shown)
    assert "\\x1b" in shown
    assert "\\x00" in shown


def test_long_rows_are_shown_in_part_and_say_so(tmp_path: Path) -> None:
    row = Demonstration(prompt="fig " * 1000, completion="pear. " * 1000)
    shown = show_rows([row], folder(tmp_path, MARKED), colour=False)
    assert re.search(r"\([\d,]+ earlier tokens are not shown\)", shown)
    assert re.search(r" \([\d,]+ tokens are not shown\) ", shown)
    assert shown.endswith("[<|im_end|> END]")


def test_bare_prompts_and_steps_show_what_is_asked(tmp_path: Path) -> None:
    where = folder(tmp_path, WORDS)
    steps = Steps(prompt="Hi", steps=("a",), labels=(1.0,), origin="steps.jsonl:1")
    shown = show_rows([Prompt(prompt=user_turn("Hi."), origin="p.jsonl:1"), steps], where, colour=False)
    assert "p.jsonl:1: 5 tokens, a bare prompt\n<user>| Hi| .| </s>| <assistant>|" in shown
    assert (
        "steps.jsonl:1: 4 tokens, a prompt; its labelled steps are not shown\n<user>| Hi| </s>| <assistant>|"
        in shown
    )


def test_a_row_that_cannot_be_tokenised_is_shown_with_its_reason_a_missing_model_named(tmp_path):
    bad = Demonstration(prompt=user_turn("Hi."), completion="Hello.", origin="chats.jsonl:2")
    shown = show_rows([bad, CHAT], folder(tmp_path, MARKED), colour=False)
    assert "cannot be tokenised: chats.jsonl:2: one side is plain text and the other a conversation" in shown
    assert "chats.jsonl:1: prompt" in shown
    with pytest.raises(UserError, match="no such folder"):
        show_rows([CHAT], tmp_path / "none")
