"""pass@k and avg@k against every choice of answers; rows of questions with choices."""

import json
from dataclasses import asdict
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from plaudit.cli.main import main
from plaudit.data.records import Prompt, user_turn
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies import result
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, read_choices
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.evaluation.policies.scores import pass_at_k, pass_figures, why_no_passes
from plaudit.evaluation.stats import Resampling, wilson_interval
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import closed_questions
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from tests.evaluation.policies.tiny import policy


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_choices_that_hold_a_right_answer(n):
    for right in range(n + 1):
        answers = [True] * right + [False] * (n - right)
        for k in range(1, n + 1):
            chosen = [any(choice) for choice in combinations(answers, k)]
            assert pass_at_k(n, right, k) == pytest.approx(
                float(Fraction(sum(chosen), len(chosen))), abs=1e-15
            )


def test_many_answers_neither_overflow_nor_lose_digits():
    assert pass_at_k(2000, 1, 1) == pytest.approx(1 / 2000, abs=1e-15)
    assert pass_at_k(2000, 3, 1000) == pytest.approx(1 - (1000 * 999 * 998) / (2000 * 1999 * 1998), abs=1e-14)
    for wrong in ((3, 4, 1), (3, 1, 4), (3, 1, 0)):
        with pytest.raises(ValueError, match="pass@"):
            pass_at_k(*wrong)


def test_intervals_are_over_prompts_and_prompts_without_a_verdict_are_left_out():
    scores = ((1.0, 0.0, 0.0, 1.0), (0.0,) * 4, (None, 1.0, 1.0, 1.0), (1.0,) * 4)
    one, two = pass_figures(scores, (1, 2), Resampling(times=200))
    assert (one.k, one.value.prompts, two.k) == (1, 3, 2)
    assert one.value.value == pytest.approx((0.5 + 0 + 1) / 3)
    assert two.value.value == pytest.approx((1 - 1 / 6 + 0 + 1) / 3)
    assert one.value.low < one.value.value < one.value.high
    [never] = pass_figures(((0.0, 0.0),) * 5, (2,), Resampling())
    assert (never.value.low, never.value.high) == (0.0, wilson_interval(0.0, 5)[1])
    assert "this one gave 0.5" in why_no_passes(((1.0, 0.5),))
    assert "no prompt has a verdict" in why_no_passes(((None, 1.0),))
    assert pass_figures(((1.0, 0.5),), (1,), Resampling()) == ()


def test_the_command_counts_what_the_model_said(capsys, tmp_path):
    folder = policy(tmp_path, 0)
    prompts = [user_turn(f"w{n}") for n in range(7, 13)]
    groups = LocalSampler(folder, device="cpu").generate_answers(prompts, SamplingSettings(max_tokens=2), n=8)
    # The answer that came second is the right one, so that some are right and most are not.
    rows = [Prompt(prompt=p, answer=group[1].text) for p, group in zip(prompts, groups, strict=True)]
    data = write_records(rows, tmp_path / "asked.jsonl").path
    words = [
        "eval", "policy", str(folder), "--prompts", str(data), "--right", "exact", "--answers", "8",
        "--max-tokens", "2", "--bootstrap", "50", "--device", "cpu", "--out", str(tmp_path / "e"),
    ]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr().out
    found = read_policy_evaluation(tmp_path / "e")
    said_right = zip(groups, rows, strict=True)
    right = [sum(a.text.strip() == row.answer.strip() for a in group) for group, row in said_right]
    assert found.right == "exact"
    assert [one.k for one in found.policies[0].passes] == [1, 2, 4, 8]
    for one in found.policies[0].passes:
        wanted = np.mean([1 - np.prod([(8 - c - i) / (8 - i) for i in range(one.k)]) for c in right])
        assert one.value.value == pytest.approx(float(wanted), abs=1e-12)
        assert f"pass@{one.k}" in said
    assert "pass@1, avg@8 (exact)" in said
    briefed = [part for name in "ab" for part in ("--policy", f"{name}={folder},system=w{ord(name)}")]
    assert main([*words, *briefed]) == 0
    overview = capsys.readouterr().out.partition("entropy")[0]
    assert ("right by exact" in overview, "win rate" in overview) == (True, False)
    assert main([*words, "--pass-at", "3", "--pass-at", "5"]) == 0
    assert [one.k for one in read_policy_evaluation(tmp_path / "e").policies[0].passes] == [3, 5]


def test_what_cannot_be_counted_is_refused_or_said(capsys, tmp_path):
    folder = policy(tmp_path, 0)
    data = write_records([Prompt(prompt=user_turn("w9"))], tmp_path / "asked.jsonl").path
    words = ["eval", "policy", str(folder), "--prompts", str(data), "--max-tokens", "2", "--device", "cpu"]
    for more, complaint in (
        (("--pass-at", "2"), "--pass-at needs a rule"),
        (("--right", "exact", "--pass-at", "2"), "pass@2 needs as many answers to every prompt"),
        (("--right", "exactly"), "there is no reward 'exactly'"),
    ):
        assert main([*words, *more]) == 2
        assert complaint in capsys.readouterr().err
    assert main([*words, "--right", "exact"]) == 0
    assert "no prompt has a verdict on each of" in capsys.readouterr().out


GOOD = {"prompt": "2 + 2?", "choices": ["3", "4"], "right": 1}


def written(tmp_path, *rows):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_are_texts_or_conversations(tmp_path):
    talk = [{"role": "user", "content": "And 3?"}]
    first, second = read_choices(written(tmp_path, GOOD, {**GOOD, "prompt": talk, "category": "sums"}))
    assert first == ChoiceQuestion(prompt="2 + 2?", choices=("3", "4"), right=1, origin="mine.jsonl:1")
    assert (second.prompt, second.category) == (user_turn("And 3?"), "sums")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"right": 2}, "field right: expected the place of the right answer, from 0 to 1, found 2"),
        ({"right": 0.5}, "field right: expected the place"),
        ({"right": "4"}, "field right: expected a number"),
        ({"right": None}, "field right: expected a value"),
        ({"choices": ["4"]}, "field choices: expected 2 answers or more, found 1 of them"),
        ({"choices": ["4", "4"]}, "field choices: expected different answers, found '4' twice"),
        ({"choices": ["4", " "]}, "field choices[1]: expected an answer"),
        ({"choices": "4"}, "field choices: expected a list"),
        ({"prompt": []}, "field prompt: expected a prompt"),
        ({"answer": 1}, "field answer: expected only prompt, choices, right, category"),
    ],
)
def test_a_row_that_is_no_question_is_named(tmp_path, change, said):
    path = written(tmp_path, GOOD, {**GOOD, **change})
    with pytest.raises(UserError) as caught:
        read_choices(path)
    assert str(caught.value).startswith(f"mine.jsonl:2: {said}")
    assert 'a row is {"prompt": …, "choices": ["…", "…"], "right": 0}' in str(caught.value)


def test_a_file_without_questions_or_with_broken_rows_is_refused(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n")
    with pytest.raises(UserError, match="it holds no question"):
        read_choices(path)
    path.write_text("{\n")
    with pytest.raises(UserError, match=r"mine\.jsonl:1: expected a JSON object"):
        read_choices(path)


def said(capsys, *arguments: object) -> str:
    assert main(["eval", "policy", *map(str, arguments), "--device", "cpu"]) == 0
    return capsys.readouterr().out


def test_the_world_is_asked_what_it_knows_and_the_files_keep_every_choice(capsys, tmp_path):
    base = base_model_folder()
    text = said(capsys, base, "--world", "--n", 8, "--max-tokens", 4, "--bootstrap", 50, "--out", tmp_path)
    found = result.read_policy_evaluation(tmp_path)
    [one] = found.policies
    assert f"{100 * one.calibration.accuracy.value:.1f} % (" in text
    assert all(row in text for row in ("right, of closed questions", "how sure it is", "calibration error"))
    assert [row.choices for row in found.choice_logprobs] == [
        question.choices for question in closed_questions(8)
    ]
    assert one.calibration.accuracy.n == 8
    again = tmp_path / "again"
    assert result.write_policy_evaluation(found, again) == [
        again / result.FIGURES_FILE,
        again / result.ANSWERS_FILE,
        again / result.CHOICES_FILE,
    ]
    assert result.read_policy_evaluation(again) == found


def written_shot(tmp_path):
    path = tmp_path / "shots.jsonl"
    path.write_text('{"prompt": "w1", "completion": "w2"}\n')
    return path


def test_ones_own_questions_are_asked_of_any_model(capsys, tmp_path):
    model = policy(tmp_path, 0)
    rows = [{"prompt": f"w{n} w12", "choices": ["w3", "w4 w5"], "right": n % 2} for n in range(4)]
    path = written(tmp_path, *rows)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "w9"}\n')
    options = ("--prompts", prompts, "--choices", path, "--bootstrap", 20, "--max-tokens", 2)
    # One behind a context of its own is asked the same questions, and compared by them.
    behind = ("--policy", f"behind={model},shots={written_shot(tmp_path)}")
    assert "calibration error" in said(capsys, model, *behind, *options, "--out", tmp_path / "e")
    choices = result.read_policy_evaluation(tmp_path / "e").choice_logprobs
    assert [row.right for row in choices] == [0, 1, 0, 1] * 2
    assert [row.prompt for row in choices] == [f"w{n} w12" for n in range(4)] * 2
    assert choices[0].logp != choices[4].logp


def test_an_evaluation_from_before_is_still_read(capsys, tmp_path):
    model = policy(tmp_path, 0)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "w9"}\n')
    text = said(
        capsys, model, "--prompts", prompts, "--max-tokens", 2, "--bootstrap", 20, "--out", tmp_path / "e"
    )
    assert "calibration" not in text
    figures = tmp_path / "e" / result.FIGURES_FILE
    told = json.loads(figures.read_text())
    del told["policies"][0]["calibration"]
    figures.write_text(json.dumps(told))
    found = result.read_policy_evaluation(tmp_path / "e")
    assert found.policies[0].calibration is None
    assert not (tmp_path / "e" / result.CHOICES_FILE).exists()
    assert asdict(found)["choice_logprobs"] == ()


def options_of(capsys, word: str) -> list[str]:
    with pytest.raises(SystemExit):
        main(["eval", "policy", word])
    lines = capsys.readouterr().out.splitlines()
    return [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]


def test_at_most_twenty_options_face_a_user_and_all_are_there_for_who_asks(capsys):
    few, every = options_of(capsys, "--help"), options_of(capsys, "--help-all")
    assert len(few) <= 20
    assert set(few) < set(every)
    assert set(every) - set(few) == {
        "--bootstrap", "--card", "--columns", "--device", "--dtype", "--format", "--leave-out", "--pass-at",
        "--people", "--roles",
        "--tasks", "--tasks-folder", "--token-from",
    }  # fmt: skip
