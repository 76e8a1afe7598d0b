"""``plaudit chat``: piped, and in a terminal with its keys."""

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.records import Message, assistant_turn, user_turn
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Answer, SamplingSettings
from tests.cli.test_sample_command import longer
from tests.rollouts.talkers import TEMPLATE, write_talker

CUT = " … (cut after 4 tokens)"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [str(write_talker(folder / name, seed=seed)) for seed, name in enumerate(("one", "two"))]


@pytest.fixture
def chat(monkeypatch, capsys):
    def run(text: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["chat", "--max-tokens", "4", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def answer(model: str, turns: tuple[Message, ...], seed: int = 0) -> Answer:
    settings = SamplingSettings(max_tokens=4, seed=seed)
    [[one]] = LocalSampler(Path(model)).generate_answers([turns], settings)
    assert not one.ended, "the test wants answers that are cut"
    return one


def test_a_conversation_remembers_what_was_said(models, chat):
    first = answer(models[0], user_turn("w7"))
    talk = (*user_turn("w7"), *assistant_turn(first.text), *user_turn("w8"))
    second = answer(models[0], talk, seed=1)
    assert second.text != answer(models[0], user_turn("w8"), seed=1).text
    assert chat("w7\nw8\n", "--model", models[0]) == [
        f"You are talking to {models[0]}; /help says what else can be done.",
        "> w7",
        f"{first.text}{CUT}",
        "",
        "> w8",
        f"{second.text}{CUT}",
        "",
    ]


def test_two_models_each_remember_their_own_words(models, chat):
    lines = chat("w7\nw8\n", "--model", models[0], "--model", models[1])
    firsts = [answer(model, user_turn("w7")) for model in models]
    assert firsts[0].text != firsts[1].text
    seconds = [
        answer(model, (*user_turn("w7"), *assistant_turn(first.text), *user_turn("w8")), seed=1)
        for model, first in zip(models, firsts, strict=True)
    ]
    expected = [f"You are talking to {models[0]} and {models[1]}; /help says what else can be done."]
    for question, answers in (("w7", firsts), ("w8", seconds)):
        expected.append(f"> {question}")
        for model, one in zip(models, answers, strict=True):
            expected += [f"{model}:", f"{one.text}{CUT}"]
        expected.append("")
    assert lines == expected


@pytest.mark.slow
def test_new_forgets_everything_and_undo_the_last_question(models, chat):
    asked = ("--model", models[0])
    alone = answer(models[0], user_turn("w8"), seed=1).text
    assert f"{alone}{CUT}" in chat("w7\n/new\nw8\n", *asked)
    assert f"{alone}{CUT}" in chat("w7\n/undo\nw8\n", *asked)
    assert f"{alone}{CUT}" not in chat("w7\nw8\n", *asked)
    first = answer(models[0], user_turn("w7"))
    third = answer(models[0], (*user_turn("w7"), *assistant_turn(first.text), *user_turn("w8")), seed=2)
    assert f"{third.text}{CUT}" in chat("w7\nw9\n/undo\nw8\n", *asked)
    assert chat("/undo\n", *asked)[-1] == "Nothing has been said yet."
    assert chat("w7\n/new\n/undo\n", *asked)[-1] == "Nothing has been said yet."


def test_a_question_asked_again_gets_another_answer(models, chat):
    lines = chat("w7\n/undo\nw7\n", "--model", models[0])
    assert lines[2] == f"{answer(models[0], user_turn('w7')).text}{CUT}"
    assert lines[7] == f"{answer(models[0], user_turn('w7'), seed=1).text}{CUT}"
    assert lines[2] != lines[7]


def test_system_words_open_every_conversation(models, chat):
    opened = (Message(role="system", content="w30"), *user_turn("w7"))
    wanted = answer(models[0], opened)
    assert wanted.text != answer(models[0], user_turn("w7")).text
    lines = chat("w7\n", "--model", models[0], "--system", "w30")
    assert lines[2] == f"{wanted.text}{CUT}"
    again = answer(models[0], opened, seed=1)
    assert f"{again.text}{CUT}" in chat("w9\n/new\nw7\n", "--model", models[0], "--system", "w30")


def test_commands_are_explained_empty_lines_ask_nothing_and_the_end_needs_no_line_end(models, chat):
    lines = chat("/help\n/hlep\n/quit\nw7\n", "--model", models[0])
    assert [line.split()[0] for line in lines[2:6]] == ["/new", "/undo", "/help", "/quit"]
    assert lines[6:] == ["> /hlep", "There is no /hlep; did you mean /help?", "> /quit"]
    lines = chat("\n   \nw7", "--model", models[0])
    assert lines[-2] == f"{answer(models[0], user_turn('w7')).text}{CUT}"
    assert len(lines) == 6


def test_a_question_that_is_too_long_ends_nothing(models, chat, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("w9 " * 200 + "\nw7\n"))
    assert main(["chat", "--max-tokens", "4", "--model", models[0]]) == 0
    heard = capsys.readouterr()
    assert heard.err.startswith("plaudit: the prompt has 203 tokens")
    assert f"{answer(models[0], user_turn('w7'), seed=1).text}{CUT}" in heard.out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--system", " "), "--system is empty"),
        (("--temperature", "-2"), "temperature -2.0"),
        (("--prompt", "w7"), "unknown option --prompt"),
    ],
)
def test_bad_input_is_refused_in_words(models, capsys, more, complaint):
    assert main(["chat", "--model", models[0], *more]) == 2
    assert complaint in capsys.readouterr().err


def test_a_model_without_a_chat_template_cannot_talk(tmp_path, capsys):
    folder = write_talker(tmp_path, chats=False)
    assert main(["chat", "--model", str(folder)]) == 2
    assert f"plaudit: {folder}: its tokenizer has no chat template" in capsys.readouterr().err


def test_system_words_that_a_template_drops_are_refused_before_the_first_question(tmp_path, capsys):
    folder = write_talker(tmp_path)
    source = TEMPLATE.replace("in messages %}", "in messages if m['role'] != 'system' %}")
    (folder / "chat_template.jinja").write_text(source)
    assert main(["chat", "--model", str(folder), "--system", "w9"]) == 2
    assert "leaves out turn 1, the system turn" in capsys.readouterr().err


INSIDE = (
    "import os, sys; os.login_tty(0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'plaudit', *sys.argv[1:]])"
)
"""The command, with its standard input as the terminal that Ctrl-C and Ctrl-D come from."""


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", INSIDE, *arguments], stdin=theirs, env=os.environ | {"TERM": "dumb"}
        )
        os.close(theirs)
        self.seen = ""

    def type(self, keys: str) -> None:
        # Between showing its prompt and waiting for keys, Python is deaf to Ctrl-C for a moment.
        time.sleep(0.3)
        os.write(self._ours, keys.encode())

    def until(self, words: str) -> str:
        latest = time.monotonic() + 60
        while words not in self.seen:
            ready, _, _ = select.select([self._ours], [], [], max(0, latest - time.monotonic()))
            assert ready, f"it never showed {words!r}: {self.seen}"
            self.seen += os.read(self._ours, 4096).decode()
        shown, _, self.seen = self.seen.partition(words)
        return shown

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(tmp_path):
    folder = write_talker(tmp_path, endless=True)
    asked = ("--model", str(folder), "--temperature", "0", "--max-tokens", "900000")
    with Terminal("chat", *asked) as terminal:
        terminal.until("> ")
        terminal.type("w9 w10\n")
        terminal.until("w9 w10\r\n")
        terminal.until(" w")
        terminal.type("\x03")
        terminal.until("… (stopped)")
        terminal.until("> ")
        terminal.type("\x03")
        terminal.until("/quit or Ctrl-D leaves")
        terminal.until("> ")
        terminal.type("/undo\n")
        terminal.until("The last question is forgotten.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.process.wait(60) == 0


def test_with_best_of_every_reply_is_the_one_that_the_reward_scores_highest(models, chat):
    turns = user_turn("w7")
    settings = SamplingSettings(max_tokens=4)
    [group] = LocalSampler(Path(models[0])).generate_answers([turns], settings, n=5)
    best = max(group, key=lambda one: longer(one.text))
    lines = chat(
        *("w7\n/undo\n", "--model", models[0], "--best-of", "5", "--reward"),
        "tests.cli.test_sample_command:longer",
    )
    assert lines[2] == f"{best.text}{CUT} (score {longer(best.text):.4g}, the best of 5)"
    assert lines[-1] == "The last question is forgotten."
    silent = chat("w7\n", "--model", models[0], "--best-of", "2", "--reward", "exact")
    assert silent[2] == "(exact has no verdict on any of 2 answers, so none is chosen)"
