"""From Python: settings, algorithms of every form and rows as they are; what comes back; what is refused."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoTokenizer

import plaudit
from plaudit.engine.sinks.console import NotebookBar, in_notebook
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.result import Slice
from plaudit.given import blend_word, hold, plain_setting
from tests.engine.toy import make_model

WORDS = [{"prompt": f"{n}", "completion": "a word"} for n in range(6)]
PAIRS = [
    {"prompt": prompt, "chosen": f"{prompt} is a good question.", "rejected": "No."}
    for prompt in ("one", "two", "three", "four", "five", "six")
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "base"
    make_model(folder)
    return folder


@pytest.fixture
def given(base: Path) -> dict[str, Any]:
    return {"model": base, "data": PAIRS, "steps": 2, "batch_size": 3, "device": "cpu", "sinks": ()}


def figures(run: plaudit.TrainingResult) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if "timing" not in name} for row in run.metrics]


def steep(beta: float = 0.1, sharpness: float = 2.0) -> plaudit.PreferenceAlgorithm:
    """−s log σ(βh).

    sharpness: s, how steep the loss is.
    """

    def loss(chosen: Any, rejected: Any, context: Any) -> torch.Tensor:
        del context
        return -sharpness * logsigmoid(beta * (chosen.delta_B - rejected.delta_B))

    return plaudit.PreferenceAlgorithm(loss=loss, beta=beta)


def test_a_name_a_function_and_what_it_makes_are_one_algorithm(given: Any, tmp_path: Path) -> None:
    by_name = plaudit.train("dpo", out=tmp_path / "name", beta=0.2, **given)
    by_function = plaudit.train(plaudit.dpo, out=tmp_path / "function", beta=0.2, **given)
    by_record = plaudit.train(plaudit.dpo(beta=0.2), out=tmp_path / "record", **given)
    assert figures(by_name) == figures(by_function) == figures(by_record)
    assert "beta: 0.2" in (by_function.folder / "config.yaml").read_text("utf-8")


def test_a_loss_of_ones_own_is_trained(given: Any, tmp_path: Path) -> None:
    run = plaudit.train(steep, sharpness=3.0, out=tmp_path / "steep", **given)
    assert run.metrics[0]["loss"] == pytest.approx(3 * math.log(2), abs=1e-5)
    assert run.summary["step"] == 2
    assert run.report.exists()
    model = run.load(device="cpu")
    assert isinstance(model, plaudit.LanguageModel)
    assert isinstance(model.policy, plaudit.Policy)


def paired(loss: Any) -> plaudit.PreferenceAlgorithm:
    return plaudit.PreferenceAlgorithm(loss=loss, beta=0.1, name="mine")


def ranked(loss: Any) -> plaudit.PreferenceAlgorithm:
    return plaudit.PreferenceAlgorithm.of_rankings(loss, beta=0.1, name="mine")


def thumbs(loss: Any) -> plaudit.UnpairedAlgorithm:
    return plaudit.UnpairedAlgorithm(loss=loss, beta=0.1, name="mine")


def policy(**cell: Any) -> plaudit.PolicyAlgorithm:
    return replace(plaudit.grpo(group_size=4), **cell, name="mine")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            ranked(lambda delta, rank, mask: delta),
            r"gave \((\d), 2\) of delta_PK .* tensor \(\1,\), a number",
        ),
        (ranked(lambda delta, rank, mask: rank[:, 0]), "of delta_PK .* without a gradient"),
        (thumbs(lambda answers, label_N, context: label_N.mean()), r"gave \(\) of answers.delta_B \(\d+,\)"),
        (thumbs(lambda answers, label_N, context: label_N), "of answers.delta_B .* without a gradient"),
        (paired(lambda chosen, rejected, context: chosen.delta_B.mean()), r"gave \(\) of chosen.delta_B \("),
        (paired(lambda chosen, rejected, context: None), "gave NoneType of chosen.delta_B"),
        (
            paired(lambda chosen, rejected, context: chosen.delta_B.detach()),
            "without a gradient, .* from chosen",
        ),
        (
            policy(surrogate=lambda inputs: inputs.ratio_NT.mean()),
            r"gave \(\) of logp_NT \((.*?)\), .* \(\1\)",
        ),
        (policy(surrogate=lambda inputs: -inputs.advantage_NT), "of logp_NT .* without a gradient"),
        (policy(advantage=lambda inputs: inputs.score_N), r"gave \(12,\) of score_N .* tensor \(12, \d+\)"),
        (policy(reduction=lambda loss, mask, counts: loss.sum(-1)), r"gave \(\d+,\) of loss_NT .* \(\), one"),
    ],
)
def test_what_nothing_can_be_learnt_from_is_refused(given: Any, tmp_path: Path, own: Any, words: str) -> None:
    rewarded = {"reward": "length:1-20"} if isinstance(own, plaudit.PolicyAlgorithm) else {}
    with pytest.raises(UserError, match=f"mine: its .* {words}"):
        plaudit.train(own, out=tmp_path / "run", **given, **rewarded)


def test_a_loss_that_takes_something_else_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"mine: its loss is called as f\(chosen, rejected, context\): too many"
    ):
        paired(lambda chosen, rejected: chosen)


def test_functions_are_told_of_steps_and_looks_and_may_end_the_run(given: Any, tmp_path: Path) -> None:
    steps: list[int] = []
    looks: list[float] = []
    plaudit.train(
        "dpo",
        out=tmp_path / "run",
        on_step=lambda step, metrics: steps.append(step),
        on_evaluate=lambda step, metrics: looks.append(metrics["held_out/loss"]),
        **{**given, "held_out": 0.4, "evaluate_every": 2},
    )
    assert (steps, len(looks)) == ([1, 2], 1)

    def stop(step: int, metrics: Mapping[str, float]) -> None:
        raise ValueError(f"{metrics['loss']:.1f} is enough")

    with pytest.raises(UserError, match="on_step, stop, step 1: it raised ValueError"):
        plaudit.train("dpo", out=tmp_path / "other", on_step=stop, **given)


def test_a_run_stands_for_its_model_and_answers(given: Any, tmp_path: Path) -> None:
    first = plaudit.train("sft", out=tmp_path / "sft", **{**given, "data": WORDS})
    assert "2 steps: .metrics" in repr(first)
    plaudit.train("dpo", out=tmp_path / "dpo", **{**given, "model": str(first.folder)})
    [[answer]] = first.generate("one?", max_tokens=3, temperature=0)
    assert answer == plaudit.LanguageModel(first.folder).sample("one?", max_tokens=3, temperature=0)[0][0]


def test_an_algorithm_in_a_file_and_groups_as_dicts_and_records(given: Any, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "import plaudit\n\ndef mine(beta: float = 0.1):\n"
        '    """−log σ(βh)."""\n    return plaudit.dpo(beta=beta)\n'
    )
    first = plaudit.train(f"{own}:mine", out=tmp_path / "a", beta=0.3, optimizer={"clip": 0.5}, **given)
    record = plaudit.OptimizerSettings(clip=0.5)
    second = plaudit.train("dpo", out=tmp_path / "b", beta=0.3, optimizer=record, **given)
    assert figures(first) == figures(second)


def test_records_are_rows_and_lie_beside_the_run(given: Any, tmp_path: Path) -> None:
    records = [
        plaudit.Comparison(prompt=r["prompt"], chosen=r["chosen"], rejected=r["rejected"]) for r in PAIRS
    ]
    run = plaudit.train("reward", out=tmp_path / "reward", **{**given, "data": records})
    assert len((tmp_path / "reward.data.jsonl").read_text("utf-8").splitlines()) == len(PAIRS)
    assert isinstance(run.load(device="cpu"), plaudit.Reward)
    found = plaudit.evaluate(run, data=PAIRS, bootstrap=20, device="cpu")
    assert isinstance(found, plaudit.RewardEvaluation)
    assert found.pairs == len(PAIRS)


@pytest.mark.slow
def test_policies_are_compared_by_names_of_ones_choice(base: Path) -> None:
    found = plaudit.evaluate(
        {"one": base, "two": base}, data=PAIRS, judges=["length:1-20"], n=2, max_tokens=4, bootstrap=20
    )
    assert isinstance(found, plaudit.PolicyEvaluation)
    assert [policy.name for policy in found.policies] == ["one", "two"]


def test_prompts_are_data_of_a_policy_run(given: Any, tmp_path: Path) -> None:
    settings = {"group_size": 2, "draw": {"max_tokens": 4}, "reward": "length:1-20", "check": False}
    run = plaudit.train("grpo", out=tmp_path / "grpo", **{**given, **settings})
    assert [row["step"] for row in run.metrics] == [1, 2]


def test_a_table_is_a_list_of_dicts_with_columns() -> None:
    table = plaudit.Table([{"step": 1, "loss": 0.69314}, {"step": 2, "loss": 0.5, "held_out/loss": 0.6}])
    assert table.columns == ["step", "loss", "held_out/loss"]
    assert table.select("held_out/loss") == [{"held_out/loss": None}, {"held_out/loss": 0.6}]
    assert str(table).splitlines() == ["step  loss    held_out/loss", "1     0.6931", "2     0.5     0.6"]
    assert table._repr_html_().startswith("<table><tr><th>step</th><th>loss</th>")
    assert "&lt;b&gt;" in plaudit.Table([{"<b>": 1}])._repr_html_()
    arrow = pytest.importorskip("pyarrow")
    assert isinstance(table.to_arrow(), arrow.Table)
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.to_pandas(), pandas.DataFrame)


def test_rows_are_taken_as_libraries_have_them(tmp_path: Path) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    expected = [row["chosen"] for row in PAIRS]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    frame = pandas.DataFrame([*PAIRS[:-1], {**PAIRS[-1], "rating": 3.0}])
    split = datasets.Dataset.from_list(PAIRS)
    rows = iter(PAIRS)
    for given in (str(file), file, PAIRS, rows, frame, arrow.Table.from_pylist(PAIRS), split):
        found = plaudit.load_rows(given)
        assert [row.chosen for row in found if isinstance(row, plaudit.Comparison)] == expected
    with pytest.raises(UserError, match="give a list of rows, or one of these by its name"):
        plaudit.load_rows(datasets.DatasetDict(train=split, test=split))
    with pytest.raises(UserError, match="not int"):
        plaudit.load_rows(3)  # pyright: ignore[reportArgumentType]


def test_rows_that_are_left_out_are_told() -> None:
    rows = [{"prompt": str(n), "chosen": "yes", "rejected": "no"} for n in range(200)]
    with pytest.warns(UserWarning, match="1 of 201 rows were left out; rows:201"):
        assert len(plaudit.load_rows([*rows, {"prompt": "x", "chosen": 3, "rejected": "no"}])) == 200


def test_a_value_that_no_file_can_hold_is_named(given: Any, tmp_path: Path) -> None:
    rows = [*PAIRS, {**PAIRS[0], "chosen": object()}]
    with pytest.raises(UserError, match="data: row 7 cannot be written: a object is no text"):
        plaudit.train("dpo", out=tmp_path / "run", **{**given, "data": rows})


def ends_well(answer: str, prompt: object) -> float:
    """A reward of a notebook's."""
    del prompt
    return float(len(answer))


@pytest.mark.slow
def test_a_reward_is_a_function_an_object_or_a_run(given: Any, tmp_path: Path) -> None:
    short = {**given, "group_size": 2, "draw": {"max_tokens": 4}, "check": False}
    run = plaudit.train("grpo", out=tmp_path / "grpo", reward=ends_well, **short)
    assert run.metrics.column("reward")[0] > 0
    # The same call finds its run finished; another function is another setting.
    assert plaudit.train("grpo", out=tmp_path / "grpo", reward=ends_well, **short).folder == run.folder
    with pytest.raises(UserError, match="reward"):
        plaudit.train("grpo", out=tmp_path / "grpo", reward=lambda answer: 1.0, **short)
    whole = plaudit.FunctionReward(name="long", function=lambda prompt, answer: float(len(answer)))
    assert plaudit.train("grpo", out=tmp_path / "object", reward=whole, **short).summary["step"] == 2
    learnt = plaudit.train("reward", out=tmp_path / "reward", **{**given, "data": PAIRS})
    assert plaudit.train("grpo", out=tmp_path / "scored", reward=learnt, **short).summary["step"] == 2
    # Several, by weights, and prompts held out as rows.
    assert blend_word([ends_well], None, tmp_path / "one") == plain_setting(ends_well, "reward")
    both = {"reward": [ends_well, "length:1-3"], "reward_weights": [3, 1], "held_out": PAIRS[:2]}
    mixed = plaudit.train("grpo", out=tmp_path / "mixed", **{**short, **both})
    assert json.loads((tmp_path / "mixed.reward.json").read_text("utf-8"))[0]["weight"] == 0.75
    assert mixed.metrics.column("held_out/reward")


def two_turns(prompt: object) -> Any:
    """How much is said in two turns."""
    del prompt
    said = yield None
    words = said.text
    if not said.over:
        words += (yield plaudit.Turn(role="user", text="And?")).text
    return plaudit.Outcome(score=float(len(words)))


def test_an_environment_is_a_function(given: Any, tmp_path: Path) -> None:
    short = {**given, "group_size": 2, "draw": {"max_tokens": 16}, "max_turns": 2, "check": False}
    run = plaudit.train("grpo", out=tmp_path / "episodes", environment=two_turns, **short)
    assert run.metrics.column("reward")[0] > 0
    assert "environment: plaudit.given:two_turns_" in (run.folder / "config.yaml").read_text("utf-8")


def test_a_judge_is_a_function(base: Path) -> None:
    whole = plaudit.FunctionReward(name="long", function=lambda prompt, answer: float(len(answer)))
    found = plaudit.evaluate(
        {"one": base, "two": base}, data=PAIRS, judges=[ends_well, whole], n=2, max_tokens=4, bootstrap=20
    )
    few = {"n": 2, "max_tokens": 4, "bootstrap": 20, "right": "length:0-50"}
    named = plaudit.evaluate(base, data=PAIRS, judges={"ends": ends_well}, **few)
    assert named.policies[0].passes[0].value.value == 1
    assert {contest.judge for contest in named.contests} <= {"ends"}
    with pytest.raises(UserError, match=r"def f\(first, second, prompt\)"):
        plaudit.evaluate(base, data=PAIRS, judges=[lambda one, two: "first"], n=2)
    assert isinstance(found, plaudit.PolicyEvaluation)
    first, second = (contest.judge for contest in found.contests)
    assert first.startswith("plaudit.given:ends_well_")
    # A reward goes by its own name.
    assert second == "long"


def test_a_function_is_given_words_also_of_conversations() -> None:
    seen: list[object] = []

    def look(prompt: object, answer: object, messages: object) -> float:
        seen.extend((prompt, answer, messages))
        return 1.0

    reward = plaudit.resolve_reward(hold(look))
    turns = [{"role": "user", "content": "A duck?"}, {"role": "assistant", "content": "Yes."}]
    assert plaudit.score(reward, [*turns, {"role": "user", "content": "Why?"}], ["Because."]) == (1.0,)
    assert seen[:2] == ["A duck?\nYes.\nWhy?", "Because."]
    roles = [turn.role for turn in cast("tuple[plaudit.Message, ...]", seen[2])]
    assert roles == ["user", "assistant", "user"]
    with pytest.raises(UserError, match="answers is a list of texts"):
        plaudit.score(reward, "Hi", "Ho")


def test_a_function_of_another_process_is_asked_for_again() -> None:
    word = hold(ends_well)
    assert plaudit.resolve_reward(word).name == word
    with pytest.raises(UserError, match=r"ends_well was given to plaudit\.train in Python"):
        plaudit.resolve_reward(word[:-1] + ("1" if word.endswith("0") else "0"))


@pytest.mark.slow
def test_a_model_in_memory_is_trained_and_talks(base: Path, given: Any, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    by_folder = plaudit.train("dpo", out=tmp_path / "folder", **given)
    in_memory = {**given, "model": model, "tokenizer": tokenizer}
    by_object = plaudit.train("dpo", out=tmp_path / "object", **in_memory)
    assert figures(by_folder) == figures(by_object)
    with pytest.raises(UserError, match="needs its tokenizer"):
        plaudit.train("dpo", out=tmp_path / "none", **{**given, "model": model})
    # What was trained is a model for the next run.
    second = plaudit.train("sft", out=tmp_path / "second", **{**given, "model": by_object, "data": WORDS})
    talker = plaudit.load(second)
    assert isinstance(talker, plaudit.LanguageModel)
    asked = [{"role": "user", "content": "Hello"}]
    answer = talker.chat("Hello", max_tokens=5, temperature=0)
    assert answer == talker.chat(asked, max_tokens=5, temperature=0)
    assert [len(group) for group in talker.sample(["one", asked], n=3, max_tokens=3)] == [3, 3]
    with pytest.raises(UserError, match="no setting of sampling; did you mean temperature"):
        talker.chat("Hello", temperatur=0)
    with pytest.raises(UserError, match="a text or a list of turns, not int"):
        talker.chat(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="prompts are a text or a list of texts, not int"):
        talker.sample(3)  # pyright: ignore[reportArgumentType]


def test_estimates_become_columns_with_their_ends() -> None:
    slice_ = Slice(name="facts", accuracy=plaudit.Estimate(value=0.5, low=0.4, high=0.6, n=3, prompts=3))
    assert plaudit.Table.of([slice_]) == [
        {"name": "facts", "accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6}
    ]


def test_a_notebook_shows_curves_and_a_bar(given: Any, tmp_path: Path) -> None:
    run = plaudit.train("dpo", out=tmp_path / "run", **given)
    assert "&lt;svg" in run._repr_html_()
    assert run.charts.html.count("<figure") >= 2
    bar = NotebookBar()
    bar.add_task("run", total=4, completed=1, words="loss <1>")
    assert bar._repr_html_().startswith('<progress max="4" value="1"></progress> 1/4')
    assert "loss &lt;1&gt;" in bar._repr_html_()
    assert not in_notebook()


def loss_in_place_of_an_algorithm(chosen: Any, rejected: Any, context: Any) -> None:
    """A loss."""


def test_names_of_trl_are_answered_with_the_way_here() -> None:
    with pytest.raises(AttributeError, match=r"plaudit\.train\('dpo', model=…"):
        attrgetter("DPOTrainer")(plaudit)


PLACE: Mapping[str, Any] = {"model": "m", "data": "d", "out": "o"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plaudit.train("dpoo", out="o"), "there is no method 'dpoo'; did you mean dpo?"),
        (lambda: plaudit.train("dpo", **PLACE, betta=1), "unknown key betta; did you mean beta?"),
        (lambda: plaudit.train("dpo", **PLACE, optimizer={"clap": 1}), "did you mean optimizer.clip?"),
        (lambda: plaudit.train("dpo", **PLACE, beta=-1), "beta must be a number above 0, not -1"),
        (lambda: plaudit.train("dpo", out="o"), r"missing model, data; give it as model=…"),
        (lambda: plaudit.train(3, **PLACE), "int is no algorithm"),
        (lambda: plaudit.train(plaudit.dpo(), **PLACE, beta=0.2), "unknown key beta"),
        (lambda: plaudit.train(loss_in_place_of_an_algorithm, **PLACE), r"PreferenceAlgorithm\(loss=loss_in"),
        (lambda: plaudit.train("dpo", **{**PLACE, "data": {"a": []}}), "this is a dict of 'a'"),
        (lambda: plaudit.evaluate("length:1-20", data="d", judges=[]), "no setting of an evaluation of a"),
        (lambda: plaudit.evaluate("m", data="d", judge="x"), "did you mean judges?"),
        (lambda: plaudit.train("dpo", **{**PLACE, "data": []}), "data: there is no row in what was given"),
        (lambda: plaudit.train("dpo", **{**PLACE, "model": None}), "model: it is a folder, .* not None"),
        (
            lambda: plaudit.train("grpo", **PLACE, reward=["a", "b"], reward_weights=[1]),
            "reward_weights: 2 rewards want as many weights, not 1",
        ),
        (lambda: plaudit.train("grpo", **PLACE, reward=[]), "reward: of several give at least two"),
        (
            lambda: plaudit.train("grpo", **PLACE, reward=["a", "b"], reward_weights=[1, -1]),
            "weights of 0 or more",
        ),
        (lambda: plaudit.load(3), "plaudit.load: a folder, .* not int"),
        (lambda: plaudit.TrainingResult(Path("no/run")), "no/run: there is no such folder"),
        (lambda: plaudit.PipelineResult(Path("no/run")), "no/run: there is no such folder"),
        (lambda: plaudit.Table([{"loss": 1}]).column("los"), "no column los; did you mean loss?"),
    ],
)
def test_what_is_wrong_is_told_in_words(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()


def test_a_pipeline_runs_and_its_stages_are_results(base: Path, tmp_path: Path) -> None:
    rows, config = tmp_path / "rows.jsonl", tmp_path / "small.yaml"
    rows.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), "utf-8")
    stage = f"{{do: dpo, model: {base}, data: {rows}, steps: 2, device: cpu}}"
    config.write_text(f"name: small\nstages:\n  - dpo: {stage}\n", "utf-8")
    done = plaudit.run(config, out=tmp_path / "out", settings={"dpo.beta": 0.2})
    assert [row["step"] for row in done.training("dpo").metrics] == [1, 2]
    assert "beta: 0.2" in (done.training("dpo").folder / "config.yaml").read_text("utf-8")
    assert done.report.exists()
    assert done.evaluation is None
    with pytest.raises(UserError, match="there is no stage 'dop'; did you mean dpo"):
        done.training("dop")
    with pytest.raises(UserError, match="there is no stage 'dop'; did you mean dpo"):
        plaudit.run(config, out=tmp_path / "out", settings={"dop.beta": 0.2})
