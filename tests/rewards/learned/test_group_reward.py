"""The taste of a group as a reward: the comparisons that are shown decide what is preferred."""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Text, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.lab.world import base_model_folder
from plaudit.models.group_preference import CONFIG_FILE, GroupContext, load_group_preference
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rewards.base import TaskScores
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import save_combination, save_manifest
from plaudit.rewards.learned.group import SINGLE_ANSWER, GroupReward
from plaudit.rewards.load import check_reward, load_reward
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import make_toy, write_rows
from tests.methods.reward_model.group_rows import comparisons, pair
from tests.rewards.learned.group_zoo import asked, learn, reward_of, right, scorer, task, taste_of
from tests.rewards.scorers import apart, known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run ``groups``, and ``few.jsonl`` beside it."""
    return learn(tmp_path_factory.mktemp("learnt"))


def test_five_comparisons_of_a_group_tell_what_it_prefers(learnt, tmp_path):
    """And two groups of opposite tastes, asked about the same answers, disagree."""
    accuracies: list[float] = []
    for name, opposite in (("long", "short"), ("flattered", "plain"), ("listed", "spoken")):
        tasks = asked(name, 40)
        accuracies.append(right(reward_of(learnt, tmp_path / name, f"{name}-9").scores(tasks)))
        accuracies.append(1 - right(reward_of(learnt, tmp_path / opposite, f"{opposite}-9").scores(tasks)))
    assert sum(accuracies) / len(accuracies) > 0.8, accuracies
    assert min(accuracies) > 0.6, accuracies


def test_the_reward_is_what_the_module_says_of_the_answers_beside_the_context(learnt, tmp_path):
    """By hand: mean states of each answer read alone, less their mean, each answer a target of its own."""
    encoder, module = make_encoder(base_model_folder()), load_group_preference(learnt / "groups" / "model")
    model = load_model(base_model_folder(), dtype=torch.float32, device=torch.device("cpu")).eval()

    def seen(prompt: Text, answers: Sequence[Text]) -> torch.Tensor:
        rows = []
        for answer in answers:
            example = encoder.encode(prompt, [answer])
            ids = torch.tensor([[*example.prompt, *example.completions[0].ids]])
            with torch.no_grad():
                states = model(ids, output_hidden_states=True).hidden_states[-1][0]
            rows.append(states[len(example.prompt) :].mean(0))
        return torch.stack(rows) - torch.stack(rows).mean(0)

    shown = [
        record
        for record in read_records(learnt / "few.jsonl").records
        if isinstance(record, Comparison) and record.group == "long-9"
    ]
    points = [seen(one.prompt, (one.chosen, one.rejected)) for one in shown]
    context = GroupContext(
        embedding_EMH=torch.cat(points)[None],
        preference_EM=torch.tensor([[1.0, -1.0] * len(shown)]),
        mask_EM=torch.ones(1, 2 * len(shown), dtype=torch.bool),
    )
    tasks = [*asked("long", 2), task("Name four colours.", "Red.", "Blue, red and white.", "I do not know.")]
    with torch.no_grad():
        wanted = [
            tuple(module(context, seen(one.prompt, one.answers)[None]).score_EN[0].tolist()) for one in tasks
        ]
    assert apart(reward_of(learnt, tmp_path / "long", "long-9").scores(tasks), wanted) < 1e-4


def test_a_task_is_judged_as_if_it_were_the_only_one(learnt, tmp_path):
    reward = reward_of(learnt, tmp_path / "long", "long-9")
    both = [*asked("long", 3), *asked("hedged", 3), task("Name four flowers.", "Roses.", "Roses.", "Tulips.")]
    together = reward.scores(both)
    assert apart(together, [reward.scores([one])[0] for one in both]) < 1e-5
    assert together == reward.scores(both), "nothing is left to chance"
    turned = [replace(one, answers=one.answers[::-1]) for one in both]
    assert apart(together, [row[::-1] for row in reward.scores(turned)]) < 1e-4
    assert known(together[-1][0]) == pytest.approx(known(together[-1][1]), abs=1e-5)


def test_the_order_of_the_context_says_nothing_and_a_doubt_says_less(learnt):
    encoder, module = make_encoder(base_model_folder()), load_group_preference(learnt / "groups" / "model")
    embedder = Policy(load_model(base_model_folder(), dtype=torch.float32, device=torch.device("cpu"))).eval()
    rows = comparisons(["long-9"], 6, seed=2)
    shown = [
        Comparison(
            prompt=user_turn(row["prompt"][0]["content"]),
            chosen=assistant_turn(row["chosen"][0]["content"]),
            rejected=assistant_turn(row["rejected"][0]["content"]),
        )
        for row in rows
    ]
    tasks = asked("long", 20)

    def scores(context: Sequence[Comparison]) -> tuple[TaskScores, ...]:
        return GroupReward("long", module, embedder, encoder, context).scores(tasks)

    sure = scores(shown)
    assert apart(scores(shown[::-1]), sure) < 1e-4
    turned = [replace(one, chosen=one.rejected, rejected=one.chosen, probability=0.0) for one in shown]
    assert apart(scores(turned), sure) < 1e-4, "the first with chance 0 is the second with chance 1"
    opposite = [replace(one, probability=0.0) for one in shown]
    assert right(sure) > 0.7
    assert right(scores(opposite)) < 0.3
    margins = [sum(known(a) - known(b) for a, b in rows) for rows in (sure, scores([]))]
    assert margins[0] > margins[1] + 20 * 0.5, "without a context no answer is much better than another"


def test_an_answer_alone_has_no_verdict_and_an_unreadable_one_spoils_no_other(learnt, tmp_path):
    reward = reward_of(learnt, tmp_path / "long", "long-9")
    two = task("Name four colours.", "Red.", "Blue, red, white and black.")
    alone, endless = task("Name four colours.", "Red."), "red " * 2000
    three = task("Name four colours.", "Red.", endless, "Blue, red, white and black.")
    rows = reward.scores([alone, two, three, task("Name four colours.", "Red.", endless)])
    assert rows[0] == (None,)
    assert rows[2][1] is None
    assert apart([(rows[2][0], rows[2][2])], [rows[1]]) < 1e-5
    assert rows[3] == (None, None)
    reasons = dict(reward.refused)
    assert reasons.pop(SINGLE_ANSWER) == 2
    ((reason, count),) = reasons.items()
    assert count == 2
    assert "does not fit in" in reason


def test_answers_that_must_give_way_are_cut_and_not_read_beyond_the_model(learnt, tmp_path):
    """The prompt loses its beginning, as in training, and the words that are left decide."""
    most = load_model(
        base_model_folder(), dtype=torch.float32, device=torch.device("cpu")
    ).config.max_position_embeddings
    reward = reward_of(learnt, tmp_path / "long", "long-9")
    answers = ("Red.", "Blue, red, white and black.")
    long, longer = (task(f"{'red ' * n}Name four colours.", *answers) for n in (2 * most, 3 * most))
    assert apart(reward.scores([long]), reward.scores([longer])) < 1e-5
    assert reward.refused == {}


def test_all_comparisons_of_the_file_count_where_no_group_is_named(learnt, tmp_path):
    tasks = asked("long", 4)
    every = reward_of(learnt, tmp_path / "every", None).scores(tasks)
    assert apart(every, reward_of(learnt, tmp_path / "one", "long-9").scores(tasks)) > 0.1


def test_a_taste_moves_with_what_lies_beside_it_and_combines_like_any_reward(learnt, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(learnt / "groups", home / "groups")
    shutil.copy(learnt / "few.jsonl", home / "few.jsonl")
    save_manifest(home / "long", taste_of(home, "long-9"))
    facts = json.loads((home / "long" / "combined.json").read_text())
    assert (facts["module"], facts["context"], facts["group"]) == ("../groups", "../few.jsonl", "long-9")
    home.rename(tmp_path / "moved")
    check_reward(tmp_path / "moved" / "long")
    tasks = asked("long", 4)
    scores = load_reward(tmp_path / "moved" / "long", device="cpu").scores(tasks)
    assert scores == reward_of(learnt, tmp_path / "long", "long-9").scores(tasks)
    both = Combination(how="weighted", weights=(1, 1))
    save_combination(tmp_path / "both", [tmp_path / "long", tmp_path / "moved" / "long"], both)
    summed = load_reward(tmp_path / "both", device="cpu").scores(tasks)
    assert apart(summed, [tuple(2 * known(score) for score in row) for row in scores]) < 1e-5


def run(*words: object) -> int:
    return main([str(word) for word in words])


def combine(learnt: Path, out: Path, *more: object) -> int:
    """``more`` beats what is here."""
    own = ("--model", base_model_folder(), "--context", learnt / "few.jsonl", "--out", out)
    return run("combine", "group", learnt / "groups", *own, *more)


def test_the_command_makes_a_reward_that_can_be_evaluated(learnt, tmp_path, capsys):
    out = tmp_path / "long"
    assert combine(learnt, out, "--group", "long-9") == 0
    assert f"{out}: the taste that 5 comparisons tell of" in capsys.readouterr().out
    chance = random.Random("evaluated")
    rows = []
    for number in range(60):
        chosen, rejected = pair("colours", "long", chance)
        said = {"prompt": f"Name four colours, {number}.", "chosen": chosen, "rejected": rejected}
        rows.append({"kind": "comparison", **said})
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    assert run("eval", "reward", out, "--data", data, "--device", "cpu", "--out", tmp_path / "told") == 0
    (one,) = json.loads((tmp_path / "told" / "summary.json").read_text())["evaluations"]
    assert one["accuracy"]["value"] > 0.75
    assert (one["pairs"], one["missing"]) == (60, 0)
    assert "long" in capsys.readouterr().out


def test_what_makes_no_taste_is_said_and_nothing_written(learnt, tmp_path, capsys):
    out, plain = tmp_path / "out", write_rows(tmp_path / "asked.jsonl", [{"prompt": "a?", "completion": "b"}])
    cases: list[tuple[tuple[object, ...], str]] = [
        (("--group", "nobody"), "no comparison by the group 'nobody', so nothing is known of the group"),
        (("--context", plain), "asked.jsonl: no comparison, so nothing is known of the group"),
        (("--context", tmp_path / "nowhere.jsonl"), "nowhere.jsonl"),
        (("--model", tmp_path / "nowhere"), "nowhere: no language model"),
        (("--model", learnt / "groups"), "groups: no language model"),
        (("--model", scorer(tmp_path / "scorer")), "no language model; give the one that the module"),
    ]
    for more, says in cases:
        assert combine(learnt, out, *more) == 2
        assert says in capsys.readouterr().err
        assert not out.exists()
    base = base_model_folder()
    assert run("combine", "group", base, "--model", base, "--context", plain, "--out", out) == 2
    assert "no group preference module lies here; plaudit train group makes one" in capsys.readouterr().err


def test_a_model_of_another_size_is_not_the_one_that_it_was_trained_beside(learnt, tmp_path, capsys):
    """The command says so too, before anything is asked."""
    toy = make_toy(tmp_path / "toy").model
    size = load_group_preference(learnt / "groups" / "model").config.embedding
    says = f"its states have 32 numbers and the module was trained on {size}: this is not the model"
    save_manifest(tmp_path / "other", replace(taste_of(learnt, "long-9"), embedder=toy))
    with pytest.raises(UserError, match=says):
        load_reward(tmp_path / "other", device="cpu")
    assert combine(learnt, tmp_path / "out", "--model", toy) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_group_run_alone_is_no_reward_and_the_way_to_one_is_told(learnt):
    for folder in (learnt / "groups", learnt / "groups" / "model"):
        with pytest.raises(
            UserError, match="needs some comparisons of one of them beside it: plaudit combine"
        ):
            load_reward(folder, device="cpu")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"group": 7}, "7 is not the name of a group"),
        ({"context": 7}, "7 is not a path"),
        ({"context": None}, "context is missing; group needs it"),
        ({"grup": "long-9"}, "group knows no grup"),
        ({"module": "../nowhere"}, "nowhere, and there is no such folder"),
        ({"context": "../nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
def test_a_damaged_taste_is_named(learnt, tmp_path, change, says):
    path = save_manifest(tmp_path / "long", taste_of(learnt, "long-9"))
    facts = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({name: value for name, value in facts.items() if value is not None}))
    for ask in (load_reward, check_reward):
        with pytest.raises(UserError, match=says):
            ask(path.parent)


def test_a_damaged_module_is_named(learnt, tmp_path):
    shutil.copytree(learnt / "groups" / "model", tmp_path / "module")
    save_manifest(tmp_path / "long", replace(taste_of(learnt, "long-9"), module=tmp_path / "module"))
    facts = json.loads((tmp_path / "module" / CONFIG_FILE).read_text())
    (tmp_path / "module" / CONFIG_FILE).write_text(json.dumps({**facts, "width": 64}))
    with pytest.raises(UserError, match="no group preference module as it was saved"):
        load_reward(tmp_path / "long", device="cpu")
