"""A reward model asked about texts says what transformers says, whatever else is asked along with them."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.data.generative_judging import GenerativeRewardSettings
from plaudit.data.judging import Task
from plaudit.data.records import answers_of, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.making import rankings
from plaudit.models.reward_model import load_reward_model, new_reward_model, save_reward_model
from plaudit.models.verify import choose_layout
from plaudit.rewards.base import FunctionReward, Reward, refusal_counts
from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
from plaudit.rewards.learned.batching import BatchScorer, ModelLimits, model_limits
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.llm.generative import LANGUAGE_JUDGE_FILE, LanguageJudgeSpec
from plaudit.rewards.load import GenerativeReward, check_reward, load_reward
from plaudit.rewards.selection import pool_of
from plaudit.tokens.batch import TokenBatch, batch_of
from plaudit.tokens.encode import make_encoder
from tests.models.reward_zoo import CPU
from tests.rewards.scorers import (
    answer,
    apart,
    by_transformers,
    known,
    said,
    scorer,
    scorer_folder,
    task,
    tasks,
)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "phi3"])
def test_the_scores_are_those_of_transformers_one_conversation_at_a_time(tmp_path, name):
    folder = scorer_folder(tmp_path, name)
    model = load_reward_model(folder, dtype=torch.float32, device=CPU)
    choose_layout(model, "packed")
    reward = LearnedReward(name, model, make_encoder(folder))
    assert isinstance(reward, Reward)
    assert apart(reward.scores(tasks()), by_transformers(folder, model, tasks())) < 1e-4


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_neither_batch_mates_nor_order_nor_the_size_of_a_pass_change_a_score(tmp_path, layout):
    reward, model = scorer(tmp_path)
    model.use_layout(layout)
    asked = tasks()
    together = reward.scores(asked)
    assert apart(together, [reward.scores([one])[0] for one in asked]) <= 1e-5
    order = list(range(len(asked)))
    random.Random(0).shuffle(order)
    turned = [replace(asked[i], answers=asked[i].answers[::-1]) for i in order]
    back = {i: row[::-1] for i, row in zip(order, reward.scores(turned), strict=True)}
    assert apart(together, [back[i] for i in range(len(asked))]) <= 1e-5
    small = LearnedReward("small", model, make_encoder(tmp_path / "start-llama"), tokens_at_once=40)
    assert apart(together, small.scores(asked)) <= 1e-5


def test_the_same_text_has_the_very_same_score_wherever_it_is_asked_for(tmp_path):
    reward, _ = scorer(tmp_path, tokens_at_once=30)
    one = task(9, 3)
    rows = reward.scores([one, *tasks(6), replace(one, answers=one.answers * 2, ended=(True,) * 4)])
    assert rows[0] * 2 == rows[-1]


def test_a_pass_holds_no_more_tokens_than_it_may_and_the_scores_stay(tmp_path):
    reward, model = scorer(tmp_path, tokens_at_once=64)
    many = task(*range(1, 31), asked=6)
    passes: list[int] = []
    rewards = model.rewards

    def watched(batch: TokenBatch) -> torch.Tensor:
        passes.append(int(batch.prompt_length_P.sum() + batch.length_N.sum()))
        return rewards(batch)

    model.rewards = watched
    rows = reward.scores([many, *tasks()])
    assert len(passes) > 5
    assert max(passes) <= 64
    assert None not in rows[0]


def test_a_padded_pass_counts_its_padding(tmp_path):
    _, model = scorer(tmp_path)
    model.use_layout("right")
    reward = LearnedReward("padded", model, make_encoder(tmp_path / "start-llama"), tokens_at_once=64)
    passes: list[tuple[int, int]] = []
    rewards = model.rewards

    def watched(batch: TokenBatch) -> torch.Tensor:
        width = int((batch.prompt_length_P[batch.group_N] + batch.length_N).max())
        passes.append((len(batch.origin_N), width))
        return rewards(batch)

    model.rewards = watched
    reward.scores([task(*range(1, 31), asked=6), *tasks()])
    assert all(rows * width <= 64 for rows, width in passes)
    assert any(rows > 2 for rows, _ in passes)
    assert [width for _, width in passes] == sorted((width for _, width in passes), reverse=True)


def test_an_answer_that_was_cut_short_is_read_at_the_end_of_turn_that_it_never_wrote(tmp_path):
    reward, _ = scorer(tmp_path)
    one = task(5, 8)
    rows = reward.scores([one, replace(one, ended=(False, False))])
    assert rows[0] == rows[1]
    encoder = make_encoder(tmp_path / "start-llama")
    example = encoder.encode(one.prompt, list(one.answers))
    assert [completion.ids[-1] for completion in example.completions] == [encoder.stop_ids[0]] * 2


def test_what_cannot_be_read_is_no_verdict_with_its_reason_and_spares_the_other_answers(tmp_path):
    reward, _ = scorer(tmp_path)
    answers = (answer(4, 1), answer(200, 2), "plain text", (), user_turn("w20"))
    fine, mixed = (task(3), Task(prompt=user_turn(said(3, 1)), answers=answers, ended=(True,) * 5))
    found = reward.score_tasks([fine, mixed])
    assert [score is None for score in found.rows[1]] == [False, True, True, True, True]
    assert known(found.rows[0][0]) == pytest.approx(known(reward.scores([fine])[0][0]), abs=1e-5)
    assert [(one.task, one.answer) for one in found.refused] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert "does not fit in 128" in found.refused[0].reason
    assert "the other a conversation" in found.refused[1].reason
    assert dict(refusal_counts(reward)) == {one.reason: 1 for one in found.refused}
    reward.scores([mixed])
    assert set(reward.refused.values()) == {2}
    assert not refusal_counts(FunctionReward(name="length", function=lambda prompt, said: float(len(said))))


def test_an_empty_answer_is_scored_at_its_end_of_turn(tmp_path):
    reward, _ = scorer(tmp_path)
    empty = Task(prompt=user_turn("w20 w21"), answers=(assistant_turn(""),), ended=(True,))
    assert isinstance(known(reward.scores([empty])[0][0]), float)


def test_a_long_prompt_gives_way_from_its_start_as_in_training_and_is_counted(tmp_path):
    reward, model = scorer(tmp_path)
    long = task(10, asked=150)
    found = reward.score_tasks([long, task(3)])
    assert found.truncated == 1
    example = make_encoder(tmp_path / "start-llama").encode(long.prompt, list(long.answers))
    kept = replace(example, prompt=example.prompt[-(128 - len(example.completions[0].ids)) :])
    with torch.no_grad():
        assert known(found.rows[0][0]) == pytest.approx(float(model.rewards(batch_of([kept]))), abs=1e-5)


def test_a_token_that_the_model_does_not_know_is_a_reason_not_a_crash(tmp_path):
    _, model = scorer(tmp_path)
    limits = replace(model_limits([model]), vocabulary=20)
    reader = BatchScorer(
        name="small", encoder=make_encoder(tmp_path / "start-llama"), limits=limits, device=CPU
    )
    found = reader.score_tasks([task(3)], model.rewards)
    assert found.rows == ((None,),)
    assert "and the model knows 20" in found.refused[0].reason


def test_a_model_whose_numbers_are_none_is_named(tmp_path):
    reward, model = scorer(tmp_path)
    with torch.no_grad():
        model.base.score.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="fresh gave nan"):
        reward.scores([task(3)])


def test_nothing_is_learned_by_asking_and_dropout_is_off(tmp_path):
    reward, model = scorer(tmp_path)
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    model.train()
    first, second = reward.scores(tasks(4)), reward.scores(tasks(4))
    assert first == second
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_nothing_asked_is_nothing_answered_and_a_pass_of_nothing_is_refused(tmp_path):
    reward, _ = scorer(tmp_path)
    assert reward.scores([]) == ()
    with pytest.raises(UserError, match="tokens_at_once 0"):
        ModelLimits(positions=None, vocabulary=61, tokens_at_once=0)


def test_a_pool_has_the_states_that_the_head_reads_and_no_pair_without_a_verdict(tmp_path):
    reward, model = scorer(tmp_path, tokens_at_once=64)
    pairs = [task(5, 9, seed=seed) for seed in range(6)]
    shared = Task(prompt=pairs[1].prompt, answers=(pairs[1].answers[0], answer(3, 7)), ended=(True, True))
    tasks = [task(4, 200), *pairs, shared]
    pool, places = pool_of(tasks, reward, labelled=[*pairs[:2], tasks[0]])
    assert places == [*range(1, 8)]
    # The answer that two pairs share stands there once.
    assert (len(pool.prompt_A), pool.pairs_B2[-1].tolist()) == (13, [2, 12])
    assert pool.states_AH is not None
    assert pool.labelled_CH is not None
    head_H = model.base.score.weight.detach().double().numpy()[0]
    assert abs(pool.states_AH @ head_H - pool.scores_MA[0]).max() < 1e-5
    assert abs(pool.labelled_CH @ head_H - pool.gaps_MB[0, :2]).max() < 1e-5
    model.pooling = "mean"
    with pytest.raises(UserError, match="a mean over tokens"):
        pool_of(tasks, reward)


@pytest.fixture(scope="module")
def asked() -> list[Task]:
    rows = rankings(10, annotator_pool("crowd"), answers=4, split="test", seed=0)
    return [Task(prompt=row.prompt, answers=answers_of(row), ended=(True,) * 4) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, out = base_model_folder(), tmp_path_factory.mktemp("world") / "reward"
    encoder = make_encoder(base)
    model = new_reward_model(base, encoder=encoder, dtype=torch.float32, device=CPU)
    save_reward_model(model, out, template_of=base, encoder=encoder)
    return out


def test_a_score_is_the_answers_own(folder: Path, asked: list[Task]) -> None:
    reward = load_reward(folder, device="cpu")
    together = reward.scores(asked)
    alone = [
        tuple(
            reward.scores([Task(prompt=task.prompt, answers=(answer,), ended=(True,))])[0][0]
            for answer in task.answers
        )
        for task in asked
    ]
    assert apart(together, alone) <= 1e-5
    assert len({score for row in together for score in row}) > 30


def test_a_judge_in_words_is_a_reward_by_its_folder(tmp_path: Path, asked: list[Task]) -> None:
    shutil.copytree(base_model_folder(), tmp_path / "judge/model")
    facts = LanguageJudgeSpec(settings=GenerativeRewardSettings(good="Yes", bad="No")).to_json()
    (tmp_path / "judge/model" / LANGUAGE_JUDGE_FILE).write_text(json.dumps(facts))
    check_reward(tmp_path / "judge")
    reward = load_reward(tmp_path / "judge", device="cpu")
    assert isinstance(reward, GenerativeReward)
    assert reward.name == "judge"
    assert len({score for row in reward.scores(asked) for score in row} - {None}) > 30


def test_the_base_model_is_no_likelier_than_itself(tmp_path: Path, asked: list[Task]) -> None:
    manifest = ImplicitManifest(policy=base_model_folder(), reference=base_model_folder(), beta=0.1)
    save_manifest(tmp_path / "none", manifest)
    rows = load_reward(tmp_path / "none", device="cpu").scores(asked)
    assert {score for row in rows for score in row} == {0.0}
