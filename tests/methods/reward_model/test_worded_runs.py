"""Models learn to judge in words, through the public commands, and are given back by their folders."""

import json
from pathlib import Path
from statistics import correlation

import pytest

from plaudit.cli.main import main
from plaudit.data.generative_judging import CritiqueSettings, GenerativeRewardSettings
from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.data.write import write_records
from plaudit.engine.settings import OptimizerSettings
from plaudit.errors import UserError
from plaudit.lab.world import base_model_folder, making
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.teaching import critiques, write_critiques
from plaudit.methods.config import SampleSettings
from plaudit.methods.reward_model.config import CriticConfig, RankerConfig, TextRewardConfig
from plaudit.methods.reward_model.model import critic, ranker, text_reward
from plaudit.models.policy import Policy
from plaudit.rewards.llm.generative import LANGUAGE_JUDGE_FILE, CritiqueReward, read_language_judge_spec
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rewards.load import GenerativeReward, load_language_judge
from tests.engine.toy import make_toy, write_rows
from tests.rewards.llm.generative_world import CRITIC, QUOTE, RANKER, TEXT_REWARD

CATEGORIES = ("unanswerable", "harmful")
"""What a short run can learn: to tell a deed that is declined from one that is explained."""


def asked(n: int) -> list[Task]:
    """Pairs of answers about other people and deeds than those of the training rows."""
    return making.answer_tasks(n, answers=2, split="test", seed=1, categories=CATEGORIES)


def accuracy(rows, tasks: list[Task]) -> float:
    """How often the answer of the higher true utility has the higher score, where they differ."""
    right = []
    for row, task in zip(rows, tasks, strict=True):
        first, second = (gold_of(task.prompt, answer).utility for answer in task.answers)
        right += [(row[0] > row[1]) == (first > second)] if first != second else []
    assert len(right) > 0.8 * len(tasks)
    return sum(right) / len(right)


def settings(where: Path, data: Path, steps: int) -> dict:
    return {
        **{"model": base_model_folder(), "data": data, "out": where / "run", "held_out": "0", "sinks": ()},
        **{"steps": steps, "batch_size": 24, "learning_rate": 2e-3, "quote": QUOTE, "max_length": 400},
        **{"sample": SampleSettings(rows=0), "save_every": steps, "device": "cpu", "seed": 1},
        "optimizer": OptimizerSettings(schedule="cosine", warmup=0.05),
    }


def comparisons(where: Path, n: int) -> Path:
    rows = making.comparisons(n, annotator_pool("experts"), categories=CATEGORIES)
    return write_records(rows, where / "pairs.jsonl").path


@pytest.mark.slow
def test_a_text_reward_learns_which_answers_are_good(tmp_path):
    data = comparisons(tmp_path, 300)
    assert text_reward(TextRewardConfig(words=TEXT_REWARD, **settings(tmp_path, data, 60))) is not None
    tasks = asked(100)
    reward = load_language_judge(tmp_path / "run", "cpu", "float32")
    assert isinstance(reward, GenerativeReward)
    assert reward.name == "run"
    assert accuracy(reward.scores(tasks), tasks) >= 0.75
    untrained = GenerativeReward(_with_weights_of(base_model_folder(), reward))
    assert accuracy(untrained.scores(tasks), tasks) <= 0.65


def _with_weights_of(folder: Path, reward: GenerativeReward):
    """The same questions put to a model that has not learnt them."""
    import torch

    from plaudit.models.load import load_model
    from plaudit.rewards.llm.generative import LanguageJudgeModel
    from plaudit.tokens.encode import make_encoder

    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    return LanguageJudgeModel("untrained", Policy(model), make_encoder(folder), reward._model.spec)


@pytest.mark.slow
def test_a_ranker_learns_which_of_two_is_better_in_either_order(tmp_path):
    data = comparisons(tmp_path, 500)
    assert ranker(RankerConfig(words=RANKER, **settings(tmp_path, data, 100))) is not None
    tasks = asked(100)
    judge = load_language_judge(tmp_path / "run" / "model", "cpu")
    assert isinstance(judge, PairwiseRanker)
    assert judge.name == "run"
    assert accuracy(judge.scores(tasks), tasks) >= 0.75
    bias = judge.position_bias(tasks)
    assert bias.pairs == 100
    # Which answer it is decides more often than where it stands.
    assert bias.flipped < 0.4
    turned = [Task(prompt=one.prompt, answers=one.answers[::-1], ended=one.ended) for one in tasks[:20]]
    assert judge.win_probabilities(turned) == pytest.approx(
        [1 - chance for chance in judge.win_probabilities(tasks[:20])]
    )


@pytest.mark.slow
def test_a_critic_says_what_is_wrong_and_gives_points_that_follow_the_truth(tmp_path):
    data = tmp_path / "critiques.jsonl"
    write_critiques(critiques(400, categories=CATEGORIES), data)
    assert critic(CriticConfig(words=CRITIC, **settings(tmp_path, data, 100))) is not None
    reward = load_language_judge(tmp_path / "run", "cpu")
    assert isinstance(reward, CritiqueReward)
    tasks = asked(30)
    rows = reward.critique_scores(tasks)
    scores = [one.score for row in rows for one in row]
    gold = [gold_of(task.prompt, answer).utility for task in tasks for answer in task.answers]
    assert all(1 <= score <= 5 for score in scores)
    assert correlation(scores, gold) >= 0.6
    said = {critique for row in rows for one in row for critique in one.critiques}
    assert {"It is right.", "No one could know this."} <= said
    for row, again in zip(rows, reward.scores(tasks[:3]), strict=False):
        assert again == pytest.approx([one.score for one in row], abs=1e-3)


PAIRS = [
    {"prompt": f"{n} pears and figs?", "chosen": "three pears.", "rejected": f"no {'fig ' * (n % 5)}."}
    for n in range(24)
]
SHORT = ["--steps", "2", "--batch-size", "2", "--device", "cpu", "--sample.rows", "0"]


def command(method: str, where: Path, rows: list[dict], *more: str) -> int:
    toy = make_toy(where)
    data = write_rows(where / "judged.jsonl", rows)
    words = ["--model", str(toy.model), "--data", str(data), "--out", str(where / "run")]
    return main(["train", method, *words, *SHORT, *more])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["text-reward", "ranker"])
def test_the_command_writes_a_folder_that_says_how_its_model_is_asked(tmp_path, method, capsys):
    assert command(method, tmp_path, PAIRS, "--quote.mark", "| ", "--max-length", "200") == 0
    assert f"The model is in {tmp_path / 'run' / 'model'}" in capsys.readouterr().out
    facts = json.loads((tmp_path / "run" / "model" / LANGUAGE_JUDGE_FILE).read_text("utf-8"))
    assert (facts["kind"], facts["quote"]["mark"], facts["max_length"]) == (method, "| ", 200)
    assert "| {prompt}" in facts["template"][0]
    reward = load_language_judge(tmp_path / "run", "cpu")
    prompt, answers = user_turn("3 pears?"), (assistant_turn("Yes."), assistant_turn("No."))
    [row] = reward.scores([Task(prompt=prompt, answers=answers, ended=(True, True))])
    assert None not in row


def test_a_run_that_was_killed_before_its_facts_were_written_is_mended(tmp_path):
    assert command("text-reward", tmp_path, PAIRS) == 0
    facts = tmp_path / "run" / "model" / LANGUAGE_JUDGE_FILE
    before = read_language_judge_spec(facts.parent)
    facts.unlink()
    assert command("text-reward", tmp_path, PAIRS) == 0
    assert read_language_judge_spec(facts.parent) == before


def critique_rows(n: int) -> list[dict]:
    return [
        {"prompt": f"{k} figs?", "completion": f"{k}.", "critique": f"It says {k}.", "score": 1 + k % 3}
        for k in range(n)
    ]


def test_critiques_are_read_from_rows_of_any_layout_with_the_two_fields(tmp_path):
    rows = critique_rows(20)
    more = ["--words.points", "3", "--words.critiques", "2", "--words.tokens", "6", "--rows.threshold", "0"]
    assert command("critic", tmp_path / "a", rows, *more) == 0
    own = [{"kind": "rating", **row} for row in rows]
    assert command("critic", tmp_path / "b", own, *more) == 0
    # A person's reason, where one answer alone was rated.
    reasons = [{**row, "reason": row.pop("critique")} for row in map(dict, own)]
    assert command("critic", tmp_path / "c", reasons, *more) == 0
    weights = [tmp_path / name / "run" / "model" / "model.safetensors" for name in "abc"]
    assert len({path.read_bytes() for path in weights}) == 1
    reward = load_language_judge(tmp_path / "a" / "run", "cpu")
    [[one]] = reward.critique_scores([Task(prompt="2 figs?", answers=("2.",), ended=(True,))])
    assert len(one.critiques) == len(one.points) == 2
    assert 1 <= one.score <= 3


def test_rows_without_a_critique_are_left_out_and_said(tmp_path, capsys):
    rows = critique_rows(12)
    for row in rows[:5]:
        del row["critique"]
    # Of several answers it is a critique of none.
    rows[0] |= {"kind": "rating", "reason": "The other is better.", "places": [1]}
    rows[5]["score"] = 9
    assert command("critic", tmp_path, rows, "--words.points", "3") == 0
    said = capsys.readouterr().err
    assert "5 answers left out: nobody wrote a critique of the answer" in said
    assert "1 answers left out: the score is not a whole number of points from 1 to 3" in said


def test_a_critic_does_not_learn_from_comparisons(tmp_path, capsys):
    assert command("critic", tmp_path, PAIRS) == 2
    assert "judged.jsonl:1: a critic learns from rows of one answer" in capsys.readouterr().err


def test_a_held_out_file_of_the_same_name_would_mix_up_the_critiques(tmp_path):
    other = write_rows(tmp_path / "other" / "judged.jsonl", critique_rows(4))
    toy = make_toy(tmp_path)
    data = write_rows(tmp_path / "judged.jsonl", critique_rows(8))
    words = CritiqueSettings(points=3)
    config = CriticConfig(model=toy.model, data=data, out=tmp_path / "run", held_out=str(other), words=words)
    with pytest.raises(UserError, match="has the same name as other rows"):
        critic(config)


@pytest.mark.slow
def test_a_question_that_is_too_long_is_refused_and_never_cut(tmp_path, capsys):
    long = {**PAIRS[0], "prompt": "pears " * 300}
    assert command("ranker", tmp_path, [*PAIRS, long], "--max-length", "200") == 2
    assert "has more than 200 tokens; a part of it is not judged" in capsys.readouterr().err
    assert (
        command("ranker", tmp_path / "b", [*PAIRS, long], "--max-length", "200", "--rows.threshold", "0.1")
        == 0
    )


def test_words_that_the_tokenizer_does_not_know_are_refused_before_anything_is_trained(tmp_path):
    data = comparisons(tmp_path, 8)
    config = TextRewardConfig(words=GenerativeRewardSettings(), **settings(tmp_path, data, 2))
    with pytest.raises(UserError, match="does not know the word 'Good'"):
        text_reward(config)
    assert not (tmp_path / "run" / "model").exists()
