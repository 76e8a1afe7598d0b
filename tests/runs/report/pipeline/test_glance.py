"""The page's first look says what was measured, and no more, of a policy that no result has picked."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.evaluation.policies import result
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.pipeline.answers import drawn_questions
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from plaudit.runs.report.pipeline.glance import opening_sentence
from plaudit.runs.report.pipeline.page import write_folder_report, write_report, write_summary
from tests.runs.report.pipeline.pipelines import FOUND, contest, share, shown, write_pipeline
from tests.runs.report.read_page import read_page

BASE, SFT, _, _, PPO = FOUND.policies


def sentence(folder: Path, found: result.PolicyEvaluation) -> str:
    """What is read at first of an evaluation that lies in a folder by itself, as the page has it too."""
    result.write_policy_evaluation(found, folder / "found")
    first = opening_sentence(read_pipeline_folder(folder / "found"))
    lede = read_page(write_folder_report(folder / "found")).words["p"][1].replace("\xa0", " ")
    assert lede == (first or "There is no figure by which the policies could be ranked.")
    return first


def without_truth(*policies: result.PolicyFigures) -> tuple[result.PolicyFigures, ...]:
    return tuple(replace(one, gold=None, by_category=()) for one in policies)


def test_it_says_who_by_how_much_how_sure_and_on_what(tmp_path):
    assert sentence(tmp_path, FOUND) == (
        "ppo answers better than sft: its win rate by the judge “gold” is 66 % on 400 prompts (95 %: 63 to "
        "70 %), a tie counting half, and its answers are worth 0.80 where those of base were worth 0.31."
    )


def test_the_policy_is_the_last_that_is_named_and_not_the_highest(tmp_path):
    found = replace(FOUND, policies=(*FOUND.policies[:2], PPO, *FOUND.policies[2:4]))
    assert sentence(tmp_path, found).startswith("grpo answers better than sft: its win rate")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (
            share(0.5),
            "Whether ppo answers better than sft is not decided: its win rate by true worth is 50.0 %",
        ),
        (
            share(0.52),
            "Whether ppo answers better than sft is not decided: its win rate by true worth is 52 %",
        ),
        (share(0.54, 0.039), "ppo answers better than sft: its win rate by true worth is 54.0 %"),
        (share(0.3), "ppo answers worse than sft: its win rate by true worth is 30 %"),
        (
            Estimate(value=1.0, low=None, high=None, n=1, prompts=1),
            "Whether ppo answers better than sft is not decided by so little: its win rate by true worth is "
            "100 % on 1 prompt, a tie",
        ),
    ],
)
def test_what_is_not_decided_is_called_so(raw, words, tmp_path):
    found = replace(FOUND, gold="gold", contests=(contest("ppo", 0.6, raw=raw),))
    assert sentence(tmp_path, found).startswith(words)


def test_worths_whose_intervals_overlap_are_not_told_as_a_gain(tmp_path):
    found = replace(FOUND, policies=(SFT, replace(PPO, gold=share(0.71, 0.03))))
    assert sentence(tmp_path, found).endswith(
        "and its answers are worth 0.71 and those of sft 0.70, with intervals that overlap."
    )


@pytest.mark.parametrize(
    ("judge", "reward", "words"),
    [
        ("openai:http://h/v1#m", "reward", "by the judge “openai:http://h/v1#m” is 66 %"),
        ("reward", "reward", "by the learnt reward “reward” is 66 %"),
    ],
)
def test_without_a_truth_the_judge_is_named_and_nothing_is_worth_anything(judge, reward, words, tmp_path):
    policies = without_truth(*FOUND.policies)
    won = (contest("ppo", 0.77, judge=judge),)
    text = sentence(tmp_path, replace(FOUND, gold=None, reward=reward, policies=policies, contests=won))
    assert words in text
    assert "worth" not in text
    page = read_page(tmp_path / "found" / "report.html")
    assert any(
        "sft, before: 33.8 % (30.3 to 37.3); ppo, after: 66.2 %" in words for words in page.words["desc"]
    )


def test_a_policy_without_another_has_its_worth_and_no_picture(tmp_path):
    found = replace(FOUND, policies=(SFT,), contests=(), ratings=())
    assert sentence(tmp_path, found) == (
        "sft's answers to 400 prompts are worth 0.70 (95 %: 0.67 to 0.73); no other policy was evaluated "
        "beside it."
    )
    page = read_page(tmp_path / "found" / "report.html")
    assert "questions" not in page.values("section", "aria-labelledby")
    assert not any(" before" in words for words in page.words["desc"])


def test_nothing_is_said_where_nobody_judged(tmp_path):
    found = replace(FOUND, gold=None, policies=without_truth(SFT, PPO), contests=(), ratings=())
    assert sentence(tmp_path, found) == ""


def test_a_reference_that_is_named_last_is_what_came_of_those_before_it(tmp_path):
    found = replace(FOUND, policies=(BASE, SFT), contests=(contest("base", 0.12),), ratings=())
    assert sentence(tmp_path, found).startswith(
        "sft answers better than base: its win rate by the judge “gold” is 73 % on 400 prompts"
    )


def test_the_rows_own_answers_are_nothing_that_was_learnt(tmp_path):
    found = replace(FOUND, policies=(SFT, PPO, replace(SFT, name="written", model="written")))
    assert sentence(tmp_path, found).startswith("ppo answers better than sft")


def rows(folder: Path, stage: str, *records: Mapping[str, Any]) -> None:
    made = folder / "stages" / stage
    (made / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    seal = json.loads((made / "stage.json").read_text())
    (made / "stage.json").write_text(json.dumps({**seal, "outputs": {"rows.jsonl": "0f" * 32}}))


def pair(prompt: str) -> dict[str, str]:
    return {"kind": "comparison", "prompt": prompt, "chosen": "Yes.", "rejected": "No."}


def test_a_pipeline_says_what_was_learnt_from_since_the_reference_and_that_prompts_are_unseen(tmp_path):
    asked = [row.prompt for row in FOUND.shown]
    folder = write_pipeline(tmp_path / "valley", replace(FOUND, all_answers=FOUND.shown))
    told = {"kind": "demonstration", "prompt": "Who?", "completion": "Ada."}
    rows(folder, "demonstrations", told, told)
    rows(folder, "comparisons", *[pair(f"What is {n}?") for n in range(3)])
    rows(folder, "prompts", {"kind": "prompt", "prompt": "Where?"})
    pipeline = read_pipeline_folder(folder)
    assert opening_sentence(pipeline).startswith(
        "After training with 3 comparisons, ppo answers better than sft"
    )
    assert "on 400 unseen prompts" in opening_sentence(pipeline)
    write_summary(pipeline)
    assert json.loads((folder / "summary.json").read_text())["sentence"] == opening_sentence(pipeline)
    rows(folder, "comparisons", *map(pair, asked[:1]))
    assert "on 400 prompts" in opening_sentence(read_pipeline_folder(folder))
    # What cannot be read any more is not called unseen.
    (folder / "stages" / "comparisons" / "rows.jsonl").unlink()
    assert "on 400 prompts" in opening_sentence(read_pipeline_folder(folder))


def test_a_pipeline_without_an_evaluation_has_no_such_sentence(tmp_path):
    folder = write_pipeline(tmp_path / "half", stages=4)
    assert opening_sentence(read_pipeline_folder(folder)) == ""
    assert "4 of 10 stages have ended" in read_page(write_report(folder)).sections["head"]


def asked(number: int, worth: float, category: str | None, text: str = "") -> result.PromptAnswers:
    """A prompt to which sft's answer is worth ½ and ppo's so much."""
    row = shown(number)
    sft, ppo = (next(one for one in row.answers if one.policy == name) for name in ("sft", "ppo"))
    answers = (replace(sft, gold=0.5), replace(ppo, gold=worth, text=text or ppo.text))
    return replace(row, category=category, answers=answers)


def drawn(*answered: result.PromptAnswers) -> list[result.PromptAnswers]:
    return drawn_questions(replace(FOUND, all_answers=answered), before="sft", after="ppo")[1]


def test_questions_are_of_different_categories_in_an_order_of_their_own_a_loss_among_them():
    better = [asked(n, 1.0, f"kind {n % 5}") for n in range(40)]
    worse = [asked(n, 0.0, f"kind {n % 5}") for n in range(40)]
    assert [row.prompt for row in drawn(*better)] == [row.prompt for row in drawn(*reversed(worse))]
    assert len({row.category for row in drawn(*better)}) == 4
    assert len(drawn(*[asked(n, 1.0, None) for n in range(9)])) == 4
    for place in range(40):
        answered = [asked(n, 0.0 if n == place else 1.0, "fact") for n in range(40)]
        assert any(row.answers[1].gold == 0.0 for row in drawn(*answered))


def test_only_questions_with_unlike_answers_are_drawn_and_the_others_are_counted():
    same = [replace(asked(n, 0.5, "fact", shown(n).answers[1].text)) for n in range(10)]
    sentence, _ = drawn_questions(
        replace(FOUND, all_answers=(*same, asked(10, 1.0, "fact"))), before="sft", after="ppo"
    )
    assert sentence == (
        "On 1 of 11 prompts ppo and sft say different things: ppo's answer is better on 1, worse on 0 and as "
        "good on 0. Here: 1 prompt of these, drawn by a hash of their words and spread over categories."
    )
    assert drawn_questions(replace(FOUND, all_answers=tuple(same)), before="sft", after="ppo") == ("", [])


def test_a_judges_verdict_stands_beside_an_answer_of_unknown_worth_and_a_long_one_is_folded(tmp_path):
    def judged(row: result.PromptAnswers, verdict: float) -> result.PromptAnswers:
        sft, ppo = (replace(answer, gold=None) for answer in row.answers)
        return replace(row, answers=(sft, replace(ppo, verdict=verdict, text="word " * 200)))

    answers = (judged(asked(1, 1.0, "fact"), 0.9), judged(asked(2, 1.0, "list"), 0.2))
    sentence(tmp_path, replace(FOUND, gold=None, policies=without_truth(SFT, PPO), all_answers=answers))
    page = read_page(tmp_path / "found" / "report.html")
    words = page.sections["Questions"].replace("\xa0", " ")
    assert "ppo ▲ better" in words
    assert "ppo ▼ worse" in words
    assert "20.0 % preferred" in words
    # 48 words of 5 letters with their spaces, less the last space, are 239 of 1,000 characters.
    assert "word … 761 more characters" in words
    assert page.values("details", "class").count("long") == 2
