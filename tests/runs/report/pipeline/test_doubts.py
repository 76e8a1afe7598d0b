"""Each warning comes where its threshold is crossed, and not before; where nothing is wrong, none comes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plaudit.evaluation.policies.result import (
    Contest,
    PolicyEvaluation,
    PolicyFigures,
    write_policy_evaluation,
)
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from plaudit.runs.report.pipeline.findings import (
    best_policy_summary,
    interval_verdict,
    policy_warnings,
    report_warnings,
)
from tests.runs.report.pipeline.pipelines import FOUND, contest, policy, share, trust, write_pipeline

SFT, PPO = policy("sft", 0.70, 0.0), policy("ppo", 0.80, 0.33)


def two(ppo: PolicyFigures = PPO, won: Contest | None = None, **changes: Any) -> PolicyEvaluation:
    contests = (won or contest("ppo", 0.77),)
    return replace(FOUND, policies=(SFT, ppo), contests=contests, ratings=(), **changes)


def said(found: PolicyEvaluation) -> str:
    return "\n".join(f"{one.about}: {one.finding}. {one.reason}" for one in policy_warnings(found))


def diversity(value: float) -> PolicyFigures:
    return replace(PPO, diversity=replace(PPO.diversity, distinct_2=value))


def test_nothing_is_doubted_where_all_is_well():
    assert said(two()) == ""


def likely(value: float) -> Estimate:
    return Estimate(value=value, low=value - 0.05, high=value + 0.05, n=9, prompts=9)


def of_ppo(name: str) -> Callable[[float], PolicyEvaluation]:
    return lambda value: two(replace(PPO, **{name: share(value)}))


def won(name: str, figure: Callable[[float], Any] = share) -> Callable[[float], PolicyEvaluation]:
    return lambda value: two(won=contest("ppo", 0.8, **{name: figure(value)}))


@pytest.mark.parametrize(
    ("found", "before", "after", "what"),
    [
        (of_ppo("length"), 13.1, 13.2, "13.2 tokens, sft's 10.5"),
        (of_ppo("length"), 8.41, 8.39, "8.39 tokens"),
        (lambda value: two(diversity(value)), 0.367, 0.366, "36.6 % are unlike, of sft's 55.0 %"),
        (of_ppo("kl"), 10.0, 10.1, "10.1 nats an answer from sft"),
        (of_ppo("finished"), 0.9, 0.89, "only 89.0 %"),
        (won("raw", likely), 0.56, 0.54, "it wins 54.0 % against sft (49.0 to 59.0)"),
        (won("length_controlled"), 0.55, 0.53, "at equal length it would win 53.0 %"),
        (
            lambda number: two(won=contest("ppo", 0.8, unjudged=number, reasons={"refused": number})),
            *(21, 22, "22 of 422 pairs have no verdict (22 refused)"),
        ),
        (won("consistency"), 0.8, 0.79, "agree in only 79.0 %"),
        (lambda number: two(prompts=number), 100, 99, "there were only 99"),
        (
            lambda value: two(replace(PPO, gold=share(value, 0.03))),
            *(0.64, 0.63, "reward rose from 0 to 0.804 and its true worth fell from 0.700 to 0.630"),
        ),
    ],
)
def test_a_threshold_is_crossed(found, before, after, what):
    assert what not in said(found(before))
    assert what in said(found(after))


def test_a_calibration_error_that_grew_for_sure_is_named():
    start = replace(SFT, calibration=trust(0.03))

    def grown(low: float) -> str:
        change = Estimate(value=0.09, low=low, high=0.16, n=200, prompts=200)
        policies = (start, replace(PPO, calibration=trust(0.12, change)))
        return said(replace(two(), policies=policies))

    assert "ppo: its calibration error is 0.120, sft's is 0.03: 0.09 more (0.02 to 0.160)" in grown(0.02)
    assert "It is 90.0 % sure where 78.0 % are right." in grown(0.02)
    assert "calibration" not in grown(-0.01)
    as_sure = replace(trust(0.12, share(0.09, 0.02)), surplus_change=share(0.0, 0.02))
    assert "calibration" not in said(replace(two(), policies=(start, replace(PPO, calibration=as_sure))))
    assert "calibration" not in said(two(replace(PPO, calibration=trust(0.12, share(0.09)))))


def test_a_part_that_fell_is_named_and_the_others_are_not():
    parts = (replace(PPO.by_category[0], value=share(0.4, 0.05)), *PPO.by_category[1:])
    assert "its worth fell on fact (0.780 to 0.400)" in said(two(replace(PPO, by_category=parts)))


def test_what_the_reference_was_made_from_is_not_accused_and_the_others_are_looked_at():
    assert all(one.about not in ("base", "gold on base") for one in policy_warnings(FOUND))
    found = replace(two(replace(PPO, kl=share(20.0))), policies=(replace(PPO, kl=share(20.0)), SFT))
    assert "20.0 nats" in said(found)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.51, 0.6, "better"),
        (0.5, 0.6, "open"),
        (0.4, 0.5, "open"),
        (0.3, 0.49, "worse"),
        (None, None, "unknown"),
    ],
)
def test_an_interval_says_who_is_better_only_where_it_leaves_out_one_half(low, high, word):
    assert interval_verdict(Estimate(value=0.5, low=low, high=high, n=9, prompts=9)) == word


def test_the_finding_says_whether_it_may_be_chance():
    sure, open_ = best_policy_summary(two()), best_policy_summary(two(won=contest("ppo", 0.51)))
    assert sure.startswith("ppo answers better than sft. ppo's answers are worth 0.800 (0.770 to 0.830)")
    assert "those of sft 0.700" in sure
    assert open_.startswith("That ppo is better than sft cannot be said.")
    assert best_policy_summary(two(won=contest("ppo", 0.2))).startswith(
        "Nothing is better than sft: ppo answers worse."
    )
    # Three whose intervals overlap: all are better than the reference, and none is called the best.
    assert best_policy_summary(FOUND).startswith(
        "ppo, dpo and grpo answer better than sft. These prompts do not show which of them is best."
    )


def test_what_may_overturn_the_finding_stands_in_it():
    gamed = two(replace(PPO, gold=share(0.63, 0.03)))
    text = best_policy_summary(gamed, policy_warnings(gamed))
    assert "But ppo: its learnt reward rose from 0 to 0.804 and its true worth fell" in text
    longer = two(replace(PPO, length=share(13.2)))
    assert "But" not in best_policy_summary(longer, policy_warnings(longer))


def test_a_judge_that_was_optimised_is_no_evidence():
    blind = replace(two(), gold=None, reward="gold")
    assert "wins are counted by the learnt reward alone" in said(blind)
    assert "learnt reward alone" in best_policy_summary(blind, policy_warnings(blind))
    assert "learnt reward alone" not in said(replace(blind, reward="other"))


def test_prompts_that_were_trained_on_are_told(tmp_path):
    folder = write_pipeline(tmp_path / "valley")
    found = read_pipeline_folder(folder).evaluation
    assert found is not None
    # The figures alone are written there: answers, as an evaluation leaves them, are added.
    found = replace(found, all_answers=found.shown)
    write_policy_evaluation(found, folder / "stages" / "evaluation")
    asked = [row.prompt for row in found.all_answers][:5]

    def doubts(prompts: list[str]) -> str:
        rows = "".join(
            json.dumps({"prompt": one, "chosen": "Yes.", "rejected": "No."}) + "\n" for one in prompts
        )
        made = folder / "stages" / "comparisons"
        (made / "rows.jsonl").write_text(rows)
        stage = json.loads((made / "stage.json").read_text())
        (made / "stage.json").write_text(json.dumps({**stage, "outputs": {"rows.jsonl": "0f" * 32}}))
        return "\n".join(one.finding for one in report_warnings(read_pipeline_folder(folder)))

    assert "were trained on" not in doubts(["Something else?"])
    whole = len({row.prompt for row in found.all_answers})
    assert f"5 of the {whole} prompts of the evaluation were trained on" in doubts(asked)


def test_without_a_truth_the_wins_decide():
    blind = replace(
        FOUND, gold=None, policies=tuple(replace(one, gold=None, by_category=()) for one in FOUND.policies)
    )
    assert best_policy_summary(blind) == (
        "ppo and dpo answer better than sft. These prompts do not show which of them is best. By gold ppo "
        "wins 66.2 % (62.7 to 69.7) of the prompts against sft, a tie counting half."
    )
    assert (
        best_policy_summary(replace(blind, contests=()))
        == "There is no figure by which the policies could be ranked."
    )


def test_what_a_run_remarks_while_it_learns_is_a_doubt_and_what_it_says_before_is_not(tmp_path):
    folder = write_pipeline(tmp_path / "valley", stages=2)
    gamed = f"the reward is being gamed{': it rises while the judge falls' * 20}"
    lines = [{"step": 0, "note": "15 rows are held out"}, {"step": 7, "note": f"{gamed}."}]
    notes = folder / "stages" / "sft" / "run" / "notes.jsonl"
    notes.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (doubt,) = report_warnings(read_pipeline_folder(folder))
    assert (doubt.about, doubt.finding) == ("sft", gamed)
    assert doubt.reason == "Noted by the run itself after step 7."


def test_stages_of_unlike_code_are_doubted(tmp_path):
    folder = write_pipeline(tmp_path / "valley", stages=2)
    path = folder / "stages" / "sft" / "stage.json"
    path.write_text(path.read_text().replace("f856f57", "0000000"))
    (doubt,) = report_warnings(read_pipeline_folder(folder))
    assert doubt.finding == "they were made by 2 versions of the code"
