"""Instructions that programs check: by hand, beside their published checkers, and what makes no verdict."""

import json
from pathlib import Path

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.evaluation.policies.scores import instruction_figures
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.registry import resolve_reward
from plaudit.rewards.verifiable.instructions import InstructionReward
from tests.evaluation.policies.tiny import policy
from tests.rewards.asked import asked

ROWS = yaml.safe_load(Path(__file__).with_name("instructions.yaml").read_text("utf-8"))
HELD = {"holds": (True, True), "loosely": (False, True), "fails": (False, False)}
BY_HAND = [
    (row, [(answer, held) for how, held in HELD.items() for answer in row.get(how, ())])
    for row in ROWS["by_hand"]
]


def instructed(*answers, of):
    kinds, kwargs = [row["kind"] for row in of], [row["about"] for row in of]
    return asked(*answers, facts={"key": 7, "instruction_id_list": kinds, "kwargs": kwargs})


def test_kinds_are_judged_as_by_hand():
    tasks = [instructed(*(answer for answer, _ in answers), of=[row]) for row, answers in BY_HAND]
    for (row, answers), said in zip(BY_HAND, InstructionReward().verdicts(tasks), strict=True):
        assert said == tuple(((row["kind"], *held),) for _, held in answers)


@pytest.mark.slow
def test_verdicts_are_those_of_the_published_checkers(monkeypatch):
    import nltk

    monkeypatch.setattr(nltk, "download", lambda *_, **__: True)
    from if_verifiable import IFEvalSample, evaluate_output_for_sample

    of = [row for row, _ in BY_HAND if not row["kind"].startswith("format:")]
    answers = [answer for _, answers in BY_HAND for answer, _ in answers]
    [said] = InstructionReward().verdicts([instructed(*answers, of=of)])
    sample = IFEvalSample(1, "?", [row["kind"] for row in of], [row["about"] for row in of])
    for answer, verdict in zip(answers, said, strict=True):
        results, _ = evaluate_output_for_sample("ifeval", sample, answer)
        assert tuple((r.instruction_id, r.strict_pass, r.loose_pass) for r in results) == verdict


def test_the_share_or_all_strictly_or_loosely():
    of = [ROWS["by_hand"][0], {"kind": "keywords:existence", "about": {"keywords": ["two"]}}]
    [said] = InstructionReward().verdicts([instructed("one two", "1, 2", "Yes, here:\none two", "", of=of)])
    for word, scores in (
        ("instructions", [1, 0, 0.5, 0]),
        ("instructions:loose", [1, 0, 1, 0]),
        ("instructions:all", [1, 0, 0, 0]),
        ("instructions:all,loose", [1, 0, 1, 0]),
    ):
        reward = resolve_reward(word)
        assert (reward.name, [reward.score(v, all_hold=reward.all_hold) for v in said]) == (word, scores)


@pytest.mark.slow
def test_what_has_no_verdict_is_named_and_all_others_have_theirs(monkeypatch, tmp_path):
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    tasks = [instructed("a" * 60 + "!", of=[row]) for row in ROWS["no_verdict"]]
    huge = instructed("[" * 100_000, "x" * 2_000_000 + ",", "\ud83d\ude00 \ud83d", of=[ROWS["by_hand"][0]])
    reward = InstructionReward(seconds=0.3)
    assert reward.scores([*tasks, huge, asked("a")]) == (*((None,),) * 5, (1.0, 0.0, 1.0), (None,))
    reasons = [row["why"] for row in ROWS["no_verdict"]] + ["the row has no instructions"]
    assert all(why in reason for why, reason in zip(reasons, reward.refused, strict=True))


def test_the_four_accuracies_of_six_answers():
    figures, kinds = instruction_figures(ROWS["six_answers"], Resampling(times=50))
    four = [2 / 6, 4 / 6, 5 / 9, 7 / 9]
    assert [figure.value.value for figure in figures] == pytest.approx([*four, sum(four) / 4])
    held = {kind.name: (kind.value.value, kind.value.n) for kind in kinds}
    assert held == {"k0": (1 / 2, 6), "k1": (2 / 3, 3)}


@pytest.mark.slow
def test_the_command_prints_them(capsys, tmp_path):
    data = tmp_path / "asked.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS["asked"]))
    words = ["eval", "policy", str(policy(tmp_path, 0)), "--prompts", str(data), "--right", "instructions"]
    assert main([*words, "--max-tokens", "2", "--device", "cpu", "--out", str(tmp_path / "e")]) == 0
    said = capsys.readouterr().out
    for line in ("prompt-level strict", "instruction-level loose", "strictly, by kind", "│ punctuation:no_"):
        assert line in said
    assert "instructions: 1 × there is no checker of 'no:such', first in 10" in said
    [figures] = read_policy_evaluation(tmp_path / "e").policies
    assert [figure.value.value for figure in figures.instructions] == pytest.approx([2 / 3] * 5)
