"""``plaudit sample`` from end to end."""

import json
from pathlib import Path

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, Message, assistant_turn, plain_text, user_turn
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from tests.rollouts.talkers import write_talker

SHORT = ("--max-tokens", "5")
BEST_OF = ("--reward", "exact", "--best-of")
PAIRS = (("w7", "w9"), ("w7", "w10"), ("w12", "w9"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [str(write_talker(folder / name, seed=seed)) for seed, name in enumerate(("one", "two"))]


def said(capsys, *arguments: str) -> str:
    assert main(["sample", *arguments]) == 0
    return capsys.readouterr().out


def complaint(capsys, *arguments: str) -> str:
    assert main(["sample", *arguments]) == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    return heard.err


def test_three_answers_are_numbered_and_cut_ones_marked(models, capsys):
    lines = said(capsys, "--model", models[0], "--prompt", "w7 w8", *SHORT).splitlines()
    [wanted] = LocalSampler(Path(models[0])).generate_answers(["w7 w8"], SamplingSettings(max_tokens=5), n=3)
    assert not any(answer.ended for answer in wanted)
    assert lines == [
        "> w7 w8",
        *(f"{i}  {a.text} … (cut after 5 tokens)" for i, a in enumerate(wanted, start=1)),
        "",
    ]


@pytest.mark.slow
def test_an_answer_that_ended_by_itself_is_not_marked(models, capsys):
    text = said(capsys, "--model", models[0], "--prompt", "w8", "--max-tokens", "120", "--n", "40")
    answers = text.splitlines()[1:-1]
    cut = [line for line in answers if "(cut after " in line]
    assert len(answers) == 40
    assert 0 < len(cut) < 40


def test_the_same_seed_prints_the_same_and_streaming_too(models, capsys):
    asked = ("--model", models[0], "--prompt", "w7", "--prompt", "w9", *SHORT)
    first = said(capsys, *asked, "--seed", "4", "--n", "2")
    assert said(capsys, *asked, "--seed", "4", "--n", "2") == first
    assert said(capsys, *asked, "--seed", "5", "--n", "2") != first
    streamed = said(capsys, *asked, "--seed", "4", "--n", "1").splitlines()
    assert [line for line in streamed if line] == [
        line.removeprefix("1  ") for line in first.splitlines() if line.startswith(("> ", "1  "))
    ]


def test_at_temperature_0_there_is_one_answer(models, capsys):
    [[wanted]] = LocalSampler(Path(models[0])).generate_answers(
        ["w7"], SamplingSettings(temperature=0, max_tokens=5)
    )
    text = said(capsys, "--model", models[0], "--prompt", "w7", "--temperature", "0", *SHORT)
    assert text == f"> w7\n{wanted.text} … (cut after 5 tokens)\n\n"


def test_two_models_stand_side_by_side(models, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    text = said(capsys, "--model", models[0], "--model", models[1], "--prompt", "w7", "--n", "2", *SHORT)
    settings = SamplingSettings(max_tokens=5)
    one, two = (LocalSampler(Path(model)).generate_answers(["w7"], settings, n=2)[0] for model in models)
    lines = text.splitlines()
    assert lines[0] == "> w7"
    assert lines[1].split() == ["one", "two"]
    for left, right in zip(one, two, strict=True):
        assert any(line.find(left.text) < line.find(right.text) and left.text in line for line in lines)


def test_prompts_come_from_any_rows_each_once(models, capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    pairs = [{"prompt": prompt, "chosen": "w8", "rejected": word} for prompt, word in PAIRS]
    rows.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    out = tmp_path / "answers.jsonl"
    text = said(capsys, "--model", models[0], "--data", str(rows), "--n", "2", "--out", str(out), *SHORT)
    assert [line for line in text.splitlines() if line.startswith("> ")] == ["> w7", "> w12"]
    assert text.endswith(f"{out}: 4 answers\n")


@pytest.mark.parametrize("more", [(), ("--best-of", "2", "--reward", "length:1-7")])
def test_fields_of_other_names_are_asked_under_ours(models, capsys, tmp_path, more):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"ask": "w7", "chosen": "w8 w9", "rejected": "w9", "note": "w1 w2 w3 w4"}\n')
    asked = ("--model", models[0], "--data", str(rows), *more, *SHORT)
    assert "--leave-out note" in complaint(capsys, *asked)
    text = said(capsys, *asked, "--columns", "prompt=ask", "--leave-out", "note")
    assert text.splitlines()[0] == "> w7"


@pytest.mark.slow
def test_what_is_written_is_what_was_said(models, tmp_path, capsys):
    out = tmp_path / "answers.jsonl"
    asked = ("--prompt", "w7", "--prompt", "w9", "--n", "2", "--seed", "3", "--max-tokens", "60")
    said(capsys, "--model", models[0], "--model", models[1], *asked, "--out", str(out))
    settings = SamplingSettings(max_tokens=60, seed=3)
    samplers = [LocalSampler(Path(model)) for model in models]
    wanted = [
        {"prompt": prompt, "completion": a.text, "model": model, "seed": 3, "ended": a.ended}
        for prompt in ("w7", "w9")
        for model, sampler in zip(models, samplers, strict=True)
        for a in sampler.generate_answers([prompt], settings, n=2)[0]
    ]
    assert [json.loads(line) for line in out.read_text().splitlines()] == wanted
    assert list(tmp_path.iterdir()) == [out]


def test_written_conversations_can_be_read_again_as_rows(models, tmp_path, capsys):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    turns = (*user_turn("w9"), Message(role="assistant", content="w8"), *user_turn("w10"))
    plain = [{"role": turn.role, "content": turn.content} for turn in turns]
    rows.write_text(json.dumps({"prompt": plain}) + "\n")
    text = said(capsys, "--model", models[0], "--data", str(rows), "--out", str(out), "--n", "1", *SHORT)
    assert text.startswith("> user: w9\n> assistant: w8\n> user: w10\n")
    [record] = read_records(out).records
    [[answer]] = LocalSampler(Path(models[0])).generate_answers([turns], SamplingSettings(max_tokens=5))
    said_back = assistant_turn(answer.text)
    assert record == Demonstration(prompt=turns, completion=said_back, origin="answers.jsonl:1")


def test_bad_rows_are_named_when_they_are_left_out(models, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "w7"}\n' * 150 + '{"prompt": ""}\n')
    assert main(["sample", "--model", models[0], "--data", str(rows), "--n", "1", *SHORT]) == 0
    heard = capsys.readouterr()
    assert heard.err.startswith("plaudit: left out: rows.jsonl:151: ")
    assert heard.out.count("> ") == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "nothing is asked; give --prompt TEXT, or --data FILE"),
        (["--prompt", ""], "--prompt: the prompt is empty"),
        (["--prompt", "w8", "--prompt", "w9 " * 200], "--prompt: the prompt has 203 tokens"),
        (["--prompt", "w8", "--n", "0"], "--n 0: expected 1"),
        (["--prompt", "w8", "--n", "2", "--temperature", "0"], "--n 2: at temperature 0 all answers"),
        (["--prompt", "w8", "--temperature", "-1"], "temperature -1.0"),
        (["--prompt", "w8", "--seed", "x"], "--seed: expected a whole number, got 'x'"),
        (["--prompt", "w8", "--out", "answers.csv"], "ending '.csv'"),
        (["--prompt", "w8", "--out", "nowhere/a.jsonl"], "no such folder as nowhere"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--prompt", "w8", "--device", "gpu"], "device 'gpu'"),
        (["--prompt", "w8", "--modle", "x"], "unknown option --modle; did you mean --model?"),
        (["--prompt", "w8", "--stop", ""], "an empty string would end every answer"),
        *(
            (["--prompt", "w8", *asked], words)
            for asked, words in (
                (["--best-of", "4"], "--best-of needs --reward WORD"),
                (["--reward", "exact"], "--reward needs --best-of N"),
                ([*BEST_OF, "1"], "--best-of 1: expected 2 answers or more"),
                ([*BEST_OF, "4", "--n", "2"], "leave --n out"),
                ([*BEST_OF, "4", "--temperature", "0"], "at temperature 0 all answers"),
                (["--best-of", "4", "--reward", "exactly"], "no reward 'exactly'. Did you mean exact?"),
                (["--best-of", "4", "--reward", "openai:http://h/v1#m"], "As a reward it is judge:openai:"),
            )
        ),
    ],
)
def test_bad_input_is_refused_in_words(models, capsys, tmp_path, monkeypatch, asked, words):
    monkeypatch.chdir(tmp_path)
    assert words in complaint(capsys, "--model", models[0], *asked)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_model_and_one_given_twice_are_refused(models, capsys, tmp_path):
    assert "config.json is missing" in complaint(capsys, "--model", str(tmp_path), "--prompt", "w8")
    assert "no such folder" in complaint(capsys, "--model", str(tmp_path / "x"), "--prompt", "w8")
    twice = complaint(capsys, "--model", models[0], "--model", models[0], "--prompt", "w8")
    assert "is given 2 times" in twice


def test_a_bad_prompt_among_rows_is_named_before_any_answer(models, capsys, tmp_path):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    rows.write_text(json.dumps({"prompt": "w7"}) + "\n" + json.dumps({"prompt": "w9 " * 200}) + "\n")
    words = complaint(capsys, "--model", models[0], "--data", str(rows), "--out", str(out))
    assert words.startswith("plaudit: rows.jsonl:2: the prompt has 203 tokens")
    assert not out.exists()


@pytest.mark.slow
def test_every_way_to_leave_tokens_out_reaches_the_sampler(models, capsys):
    asked = ("--model", models[0], "--prompt", "w7", "--max-tokens", "30", "--n", "6", "--seed", "4")
    ways: tuple[tuple[tuple[str, ...], dict[str, object]], ...] = (
        (("--top-k", "3"), {"top_k": 3}),
        (("--top-p", "0.3"), {"top_p": 0.3}),
        (("--min-p", "0.4"), {"min_p": 0.4}),
        (("--stop", "w5", "--stop", "w33"), {"stop": ("w5", "w33")}),
    )
    sampler = LocalSampler(Path(models[0]))
    heard: set[str] = set()
    for words, fields in ways:
        [wanted] = sampler.generate_answers(["w7"], SamplingSettings(max_tokens=30, seed=4, **fields), n=6)
        text = said(capsys, *asked, *words)
        assert all(answer.text in text for answer in wanted)
        heard.add(text)
    assert len(heard) == len(ways)


def longer(answer) -> float:
    """Different for nearly all answers: the numbers of their words, added up."""
    return float(sum(int(word[1:]) for word in plain_text(answer).split()))


def picky(prompt, answer) -> float | None:
    """Knows nothing of w9, and has only two scores elsewhere."""
    return None if "w9" in plain_text(prompt) else float(longer(answer) > 60)


HERE = "tests.cli.test_sample_command"


def test_best_of_n_is_the_answer_that_the_reward_scores_highest(models, capsys, tmp_path):
    out = tmp_path / "best.jsonl"
    asked = ("--prompt", "w7", "--prompt", "w9", "--best-of", "6", "--reward", f"{HERE}:longer")
    text = said(capsys, "--model", models[0], *asked, "--out", str(out), *SHORT)
    groups = LocalSampler(Path(models[0])).generate_answers(["w7", "w9"], SamplingSettings(max_tokens=5), n=6)
    wanted = [max(group, key=lambda answer: longer(answer.text)) for group in groups]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["completion"] for row in rows] == [answer.text for answer in wanted]
    assert [row["best_of_score"] for row in rows] == [longer(answer.text) for answer in wanted]
    for answer in wanted:
        assert (
            f"{answer.text} … (cut after 5 tokens) (score {longer(answer.text):.4g}, the best of 6)" in text
        )
    # What was chosen is an answer to learn from, and no rating.
    assert [type(record) for record in read_records(out).records] == [Demonstration, Demonstration]


def test_best_of_n_says_ties_and_leaves_out_what_has_no_verdict(models, capsys, tmp_path):
    out = tmp_path / "best.jsonl"
    asked = ("--prompt", "w7", "--prompt", "w9", "--best-of", "8", "--reward", f"{HERE}:picky")
    words = ["sample", "--model", models[0], "--model", models[1], *asked, "--out", str(out), *SHORT]
    assert main(words) == 0
    heard = capsys.readouterr()
    [group] = LocalSampler(Path(models[0])).generate_answers(["w7"], SamplingSettings(max_tokens=5), n=8)
    scores = [picky("w7", answer.text) for answer in group]
    assert scores.count(max(scores)) > 1, "the test wants a tie"
    first = group[scores.index(max(scores))].text
    tie = f"(score {max(scores):.4g}, the best of 8; {scores.count(max(scores))} share it, and this one was"
    assert first in heard.out
    assert tie in heard.out
    assert f"({HERE}:picky has no verdict on any of 8 answers, so none is chosen)" in heard.out
    assert "left out: 2 of 4, without a verdict on any answer" in heard.err
    assert len(out.read_text().splitlines()) == 2


def test_best_of_n_asks_the_reward_with_the_answer_of_the_row(models, capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    [group] = LocalSampler(Path(models[0])).generate_answers(["w7"], SamplingSettings(max_tokens=5), n=4)
    rows.write_text(json.dumps({"prompt": "w7", "answer": group[2].text}) + "\n")
    text = said(
        capsys, "--model", models[0], "--data", str(rows), "--best-of", "4", "--reward", "exact", *SHORT
    )
    assert f"{group[2].text} … (cut after 5 tokens) (score 1, the best of 4)" in text


def test_best_of_n_without_any_verdict_writes_nothing(models, capsys, tmp_path):
    out = tmp_path / "best.jsonl"
    asked = ("--prompt", "w8", "--best-of", "2", "--reward", "exact", "--out", str(out))
    assert main(["sample", "--model", models[0], *asked, *SHORT]) == 2
    heard = capsys.readouterr().err
    assert "exact has no verdict on any answer (2 × the row has no reference answer" in heard
    assert not out.exists()
