"""Policies of the world from end to end: figures, contests, files, the command and what it refuses."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.data.records import Prompt
from plaudit.data.write import write_records
from plaudit.errors import UserError
from plaudit.evaluation.policies.evaluate import EvaluationSettings, Scorers, evaluate_policies
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings
from plaudit.evaluation.policies.judge import load_judge
from plaudit.evaluation.policies.result import PolicyEvaluation, read_policy_evaluation
from plaudit.evaluation.stats import Resampling
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import exam_prompts, gold_reward
from plaudit.rollouts.sampler import SamplingSettings
from tests.commands import commands
from tests.evaluation.policies.tiny import policy
from tests.feedback.judges.judges import honest
from tests.models.reward_zoo import saved
from tests.rewards.server import serving

said, complaint = commands("eval", "policy", quick=("--device", "cpu"))

ASKED = exam_prompts(24)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """The base model, and two copies of it that were knocked about, one more than the other."""
    where = tmp_path_factory.mktemp("models")
    found = {"base": base_model_folder()}
    for name, noise in (("shaken", 0.03), ("broken", 0.3)):
        found[name] = shutil.copytree(base_model_folder(), where / name)
        chance = torch.Generator().manual_seed(0)
        weights = load_file(found[name] / "model.safetensors")
        for key, value in weights.items():
            whole = value.float()
            whole += noise * whole.std() * torch.randn(value.shape, generator=chance)
            weights[key] = whole.to(value.dtype)
        save_file(weights, found[name] / "model.safetensors", metadata={"format": "pt"})
    return found


@pytest.fixture(scope="module")
def reward(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("model"), base_model_folder())[0]


@pytest.fixture(scope="module")
def found(models, reward) -> PolicyEvaluation:
    gold = gold_reward()
    from plaudit.rewards.load import load_reward

    learnt = load_reward(reward, device="cpu")
    known = {"gold": gold, str(reward): learnt}
    drawing = GenerationSettings(sampling=SamplingSettings(max_tokens=32), answers=2, device="cpu")
    return evaluate_policies(
        models,
        ASKED,
        Scorers(
            gold=gold, reward=learnt, judges={word: load_judge(word, known) for word in ("gold", str(reward))}
        ),
        EvaluationSettings(drawing=drawing, resampling=Resampling(times=100), shown=5, best_of=4),
    )


@pytest.mark.slow
def test_a_model_that_was_broken_is_worse_further_away_and_loses(found):
    base, shaken, broken = found.policies
    assert base.gold.value > broken.gold.value
    assert (base.kl.value, base.kl.high) == (0, 0)
    assert 0 < shaken.kl.value < broken.kl.value
    assert broken.entropy.value > base.entropy.value
    assert broken.kl.value == pytest.approx(broken.kl_token.value * broken.length.value)
    by_gold = {one.policy: one for one in found.contests if one.judge == "gold"}
    assert set(by_gold) == {"shaken", "broken"}
    assert by_gold["broken"].lost > by_gold["broken"].won
    assert by_gold["broken"].p_value < 0.05
    assert by_gold["broken"].won + by_gold["broken"].tied + by_gold["broken"].lost == 48
    assert by_gold["broken"].consistency is None
    assert {one.against for one in found.contests} == {"base"}
    rated = {one.name: one.elo for one in found.ratings}
    assert rated["broken"] == min(rated.values())
    assert sum(rated.values()) == pytest.approx(3000)


@pytest.mark.slow
def test_every_figure_is_that_of_the_answers_that_are_kept(found):
    assert len(found.all_answers) == 48
    said = [one for shown in found.all_answers for one in shown.answers if one.policy == "shaken"]
    shaken = found.policies[1]
    for figure, values in (
        (shaken.gold, [one.gold for one in said]),
        (shaken.reward, [one.reward for one in said]),
        (shaken.length, [one.tokens for one in said]),
        (shaken.kl, [one.kl for one in said]),
        (shaken.finished, [one.ended for one in said]),
    ):
        assert figure.value == pytest.approx(math.fsum(values) / len(values))
        assert (figure.n, figure.prompts) == (48, 24)
    assert sum(part.value.n for part in shaken.by_category) == 48
    verdicts = [one.verdict for one in said]
    by_gold = next(one for one in found.contests if (one.policy, one.judge) == ("shaken", "gold"))
    assert math.fsum(verdicts) / len(verdicts) == pytest.approx(by_gold.raw.value)
    base = [one for shown in found.all_answers for one in shown.answers if one.policy == "base"]
    assert {one.verdict for one in base} == {None}
    for mine, theirs in zip(said, base, strict=True):
        assert mine.verdict == 0.5 + 0.5 * ((mine.gold > theirs.gold) - (mine.gold < theirs.gold))
    assert all(one in found.all_answers for one in found.shown)
    assert len(found.shown) == 5
    assert found.best_of.points[-1].n == 4
    assert found.best_of.points[0].kl == 0


def test_what_a_reader_has_to_know_is_said(found, reward):
    notes = " ".join(found.notes)
    assert "24 prompts are few" in notes
    assert "reward judges by a learnt reward" in notes
    assert "reward errs as all judges do" in notes
    assert "reward is of the same family of models as base, shaken, broken" in notes
    assert (found.gold, found.reward, found.reference) == ("gold", "reward", "base")
    assert found.sampling == "temperature 1, at most 32 tokens"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures_and_the_order_of_policies_none(models):
    drawing = GenerationSettings(sampling=SamplingSettings(max_tokens=16), device="cpu")
    settings = EvaluationSettings(drawing=drawing, against=("base",), resampling=Resampling(times=50))
    two = {name: models[name] for name in ("base", "shaken")}
    one = evaluate_policies(two, ASKED[:8], settings=settings)
    other = evaluate_policies(dict(reversed(two.items())), ASKED[:8], settings=settings)
    assert one == evaluate_policies(two, ASKED[:8], settings=settings)
    assert {each.name: each for each in one.policies} == {each.name: each for each in other.policies}
    assert (one.contests, one.gold, one.policies[0].gold, one.best_of) == ((), None, None, None)
    assert "nobody compared answers" in " ".join(one.notes)
    assert "nobody knows the true worth" in " ".join(one.notes)


@pytest.mark.slow
def test_truncated_answers_have_no_kl_and_another_tokenizer_has_none(models, tmp_path):
    plain = [EvaluationPrompt(prompt=one.prompt) for one in ASKED[:4]]
    cut = GenerationSettings(sampling=SamplingSettings(max_tokens=8, top_p=0.5), device="cpu")
    two = {name: models[name] for name in ("base", "shaken")}
    found = evaluate_policies(two, plain, settings=EvaluationSettings(drawing=cut))
    assert [one.kl for one in found.policies] == [None, None]
    assert "no KL and no entropy: answers were drawn with temperature 1, top-p 0.5" in " ".join(found.notes)
    whole = replace(cut, sampling=SamplingSettings(max_tokens=8))
    other = {"base": models["base"], "other": policy(tmp_path, 0)}
    found = evaluate_policies(other, plain, settings=EvaluationSettings(drawing=whole))
    assert [one.kl is None for one in found.policies] == [False, True]
    assert "no KL of other from base: their tokenizers differ" in " ".join(found.notes)
    warm = replace(whole, sampling=SamplingSettings(max_tokens=8, temperature=0.5))
    found = evaluate_policies(two, plain, settings=EvaluationSettings(drawing=warm))
    assert found.policies[1].kl is not None
    assert "at temperature 0.5" in " ".join(found.notes)


QUICK = ("--max-tokens", 16, "--bootstrap", 50)


@pytest.mark.slow
def test_the_command_prints_tables_and_writes_what_it_found(capsys, models, tmp_path):
    text = said(
        capsys, *models.values(), "--world", "--n", 16, "--against", f"{models['base']}/",
        "--against", "shaken",
        "--out", tmp_path / "e", *QUICK,
    )  # fmt: skip
    found = read_policy_evaluation(tmp_path / "e")
    assert [one.name for one in found.policies] == ["base", "shaken", "broken"]
    met = [(one.policy, one.against) for one in found.contests]
    assert met == [("shaken", "base"), ("broken", "base"), ("broken", "shaken")]
    assert "16 prompts, 1 answer of each policy to each: temperature 1, at most 16 tokens" in text
    assert "In short, win rate by gold" in text
    assert "Against base, by gold" in text
    for contest in found.contests:
        assert f"{contest.won} / {contest.tied} / {contest.lost}" in text
    assert f"{found.policies[2].kl.value:.2f} ({found.policies[2].kl.low:.2f}" in text


@pytest.mark.slow
def test_prompts_of_a_file_and_what_was_lost_since_the_reference(capsys, models, tmp_path):
    rows = [
        Prompt(prompt=one.prompt, answer=one.reference_answer)
        for one in exam_prompts(24)
        if one.reference_answer is not None
    ]
    data = write_records(rows, tmp_path / "facts.jsonl").path
    text = said(
        capsys, models["base"], models["broken"], "--prompts", data, "--judge", "length:1-5", "--n", 6,
        "--tax", f"{data}:exact", "--out", tmp_path / "e", *QUICK,
    )  # fmt: skip
    assert "│ true worth" not in text
    assert "length, tokens" in text
    assert "Against base, by length:1-5" in text
    assert "facts (exact)" in text
    [tax] = json.loads((tmp_path / "e" / "tax.json").read_text("utf-8"))
    assert (tax["policy"], tax["against"], tax["change"]["n"]) == ("broken", "base", len(rows))
    assert read_policy_evaluation(tmp_path / "e").prompts == 6


@pytest.mark.slow
def test_a_judge_on_a_server_is_asked_once_for_two_commands(capsys, models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(honest) as server:
        judge = f"openai:{server.url.removesuffix('/score')}/v1#mouse-lover"
        words = (models["base"], models["broken"], "--world", "--n", 8, "--judge", judge, *QUICK)
        text = said(capsys, *words)
        asked = len(server.asked)
        assert 0 < asked <= 16
        assert said(capsys, *words) == text
        assert len(server.asked) == asked
    assert "Against base, by mouse-lover" in text
    assert "both orders agree" in text
    assert len(list((tmp_path / "cache" / "plaudit" / "judged").rglob("*.json"))) == asked


def test_what_cannot_be_evaluated_is_refused_before_anything_is_loaded(capsys, models, reward, tmp_path):
    base = models["base"]
    for run, left in (("empty", ()), ("begun", ("checkpoints",))):
        for name in (run, *(f"{run}/{part}" for part in left)):
            (tmp_path / name).mkdir()
    for words, arguments in (
        ("either --world", (base,)),
        ("no language model lies here", (tmp_path / "empty", "--world")),
        ("this run has learnt nothing yet", (tmp_path / "begun", "--world")),
        ("either --world", (base, "--world", "--prompts", "x.jsonl")),
        ("no such folder", (tmp_path / "none", "--world")),
        ("this is a reward model", (reward, "--world")),
        ("name each once", (base, base, "--world")),
        ("no policy is called 'sft'", (base, "--world", "--against", "sft")),
        ("where the true worth is known", (base, "--prompts", "x.jsonl", "--judge", "gold")),
        ("--best-of needs a reward", (base, "--world", "--best-of", 4)),
        ("give a file and a rule", (base, "--world", "--tax", "sums.jsonl")),
        ("name them with --tasks", (base, "--world", "--tasks-folder", tmp_path)),
        ("cannot be imported", (base, "--world", "--judge", "no_such_module:f")),
        ("there is no 'exam'; choose from", (base, "--world", "--split", "exam")),
        ("fewer than 999999", (base, "--world", "--n", 999999)),
        ("all 2 answers to a prompt are the same", (base, "--world", "--temperature", 0, "--answers", 2)),
        (
            "there is nothing to choose",
            (base, "--world", "--temperature", 0, "--best-of", 4, "--reward", reward),
        ),
    ):
        assert words in complaint(capsys, *arguments)


def test_questions_are_asked_once_each():
    with pytest.raises(UserError, match="a prompt is there twice"):
        evaluate_policies({"base": base_model_folder()}, [ASKED[0], ASKED[0]])
