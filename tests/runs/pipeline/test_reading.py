"""A config is checked as a whole before anything runs; what is wrong is told with line and stage."""

from pathlib import Path
from typing import Any

import pytest

from plaudit.errors import UserError
from plaudit.methods.registry import METHODS, TABLES
from plaudit.runs.pipeline.read import DEFAULT_CONFIG, pipeline_yaml, read_pipeline
from plaudit.runs.pipeline.stages import stage_kinds
from plaudit.runs.pipeline.status import PRIOR_SECONDS, expected_seconds, seconds_left
from tests.runs.pipeline.places import stages, write_config


def complaint(place: Path, told: dict[str, Any], *, changes: tuple[str, ...] = (), **head: object) -> str:
    with pytest.raises(UserError) as error:
        read_pipeline(write_config(place, told, **head), changes=changes)
    return " ".join(str(error.value).split())


def test_every_method_of_train_is_a_kind_of_stage():
    trained = {name for name, kind in stage_kinds().items() if kind.trains}
    assert trained == {*METHODS, *(name for table in TABLES for name in table.rows)}
    assert {name for name, kind in stage_kinds().items() if kind.produces == "reward"} == {
        *("reward", "text-reward", "ranker", "critic", "combine")
    }


def test_the_shipped_pipeline_reads():
    found = read_pipeline(DEFAULT_CONFIG)
    assert found.stage("ppo").needs == ("sft", "prompts", "reward")
    assert found.with_dependents({"reward"}) == {"reward", "grpo", "ppo", "reward-judged", "evaluation"}
    assert all(stage.values["seed",] == 0 for stage in found.stages if ("seed",) in stage.values)


def test_rounds_can_be_written_out():
    found = read_pipeline(Path(__file__).parents[3] / "examples" / "pipelines" / "rounds.yaml")
    assert found.stage("reward-2").inputs["data"] == ("$first", "$second")
    assert found.stage("second").needs == ("policy-1",)
    assert found.stage("policy-2").inputs["reference.model"] == ("$sft",)


def test_what_is_written_down_reads_back_as_the_same(place, tmp_path):
    found = read_pipeline(write_config(place, stages(place)), seed=3)
    again = tmp_path / "again.yaml"
    again.write_text(pipeline_yaml(found), "utf-8")
    assert pipeline_yaml(read_pipeline(again)) == pipeline_yaml(found)
    values = {stage.name: stage.values for stage in found.stages}
    assert {stage.name: stage.values for stage in read_pipeline(again).stages} == values
    assert values["sft"]["seed",] == 3


def test_names_may_have_hyphens_dots_or_groups(place):
    told = stages(place)
    told["policy"] |= {
        "kl-coef": 0.25,
        "learning-rate": "1e-3",
        "optimizer": {"weight-decay": 0.1},
        "optimizer.clip": 0.5,
    }
    del told["policy"]["learning_rate"]
    config = read_pipeline(write_config(place, told)).stage("policy").config({})
    optimizer = config.optimizer
    assert (config.kl_coef, config.learning_rate) == (0.25, 0.001)
    assert (optimizer.weight_decay, optimizer.clip) == (0.1, 0.5)
    assert config.draw.max_tokens == 8


def test_the_command_line_beats_the_file(place):
    path = write_config(place, stages(place))
    found = read_pipeline(path, changes=["policy.draw.max-tokens=5", "sft.steps=7", "jobs=2"], jobs=3)
    assert found.stage("policy").config({}).draw.max_tokens == 5
    assert found.stage("sft").config({}).steps == 7
    assert found.jobs == 3


def test_a_stage_may_have_several_files_of_rows(place):
    told = stages(place)
    told["reward"]["data"] = ["$pairs", str(place / "more.jsonl")]
    found = read_pipeline(write_config(place, told)).stage("reward")
    assert found.inputs["data"] == ("$pairs", str(place / "more.jsonl"))
    assert found.needs == ("sft", "pairs")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("sft", {"do": "stf"}, "stage sft: there is no kind of stage 'stf'; did you mean sft?"),
    ("sft", {"do": None}, "say what it does"),
    ("sft", {"lerning_rate": 1.0}, "unknown key lerning_rate; did you mean learning_rate?"),
    ("policy", {"kl_cof": 1.0}, "unknown key kl_cof; did you mean kl_coef?"),
    ("sft", {"steps": "many"}, "steps: expected a whole number or none, got 'many'"),
    ("sft", {"steps": 0}, "steps must be at least 1"),
    ("sft", {"data": "$demo"}, "data: there is no stage $demo; did you mean demos?"),
    ("sft", {"data": "$pairs"}, "data: $pairs comes later; a stage reads what stands above it"),
    ("sft", {"model": "$sft"}, "model: $sft is this stage itself"),
    ("sft", {"model": "$demos"}, "model: $demos gives rows, and this takes model or reward"),
    ("reward", {"data": "$sft"}, "data: $sft gives a model, and this takes rows"),
    ("policy", {"reward": "$sft"}, "reward: $sft gives a model, and this takes reward"),
    ("policy", {"reward": "nubmer"}, "there is no reward 'nubmer'. Did you mean number?"),
    ("sft", {"data": "nowhere.jsonl"}, "data: nowhere.jsonl: there is no such file or folder"),
    ("sft", {"out": "there"}, "out: the pipeline says where a run lies"),
    ("sft", {"format": "$demos"}, "format: takes no stage's result"),
    ("sft", {"model": ["$model", "$model"]}, "only rows can be several"),
    ("sft", {"weight": 0}, "weight is a number above 0"),
    ("demos", {"data": None}, "data: expected a path, got None"),
]


@pytest.mark.parametrize(("name", "change", "says"), WRONG, ids=[str(change) for _, change, _ in WRONG])
def test_what_is_wrong_is_told_with_line_and_stage(place, name, change, says):
    told = stages(place)
    told[name] |= change
    said = complaint(place, told)
    assert says in said
    lines = (place / "toy.yaml").read_text("utf-8").splitlines()
    assert f"toy.yaml:{lines.index(f'- {name}:') + 1}: stage {name}: " in said


def test_a_stage_that_is_called_like_another_is_refused(place):
    write_config(place, {})
    text = "stages:\n- a: {do: world-rows, make: prompts}\n- a: {do: world-rows, make: prompts}\n"
    (place / "twice.yaml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"twice.yaml:3: stage a: another stage is called a"):
        read_pipeline(place / "twice.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\n", "a pipeline has a list of stages"),
        ("stags:\n- do: rows\n", "here 'stags'; did you mean stages"),
        ("model: x\ndata: y\n", "a config of one run: plaudit train METHOD --config"),
        ("[]", "a pipeline has a list of stages"),
        ("stages: sft\n", "a pipeline has a list of stages"),
        ("stages: &a [*a]\n", ":1: this value holds itself by an alias"),
        ("stages: [sft]\n", ":1: a stage is a name with its settings"),
        ("stages: [{sft: 3}]\n", ":1: stage sft: expected settings"),
        ("stages: [{model: {do: sft}}]\n", "use letters, digits, - and _, and not 'model'"),
        ("stages: [{a/b: {do: sft}}]\n", "use letters, digits, - and _"),
        ("sede: 1\nstages: [{a: {do: world-rows, make: prompts}}]\n", "unknown key sede; did you mean seed?"),
        (
            "model: nowhere\nstages: [{a: {do: world-rows, make: prompts}}]\n",
            "model: nowhere: there is no such",
        ),
        ("stages: [{a: {do: world-rows, make: comparisons, model: $model}}]\n", "add model: world"),
        ("stages: [{a: {do: world-rows, make: prompts, n: 1, n: 2}}]\n", "n is set twice"),
        ("stages: [{a: {do: world-rows, make: prompts, answers: 3}}]\n", "--answers says nothing to prompts"),
        ("stages: [{a: {do: world-rows, make: thumbs, annotators: x}}]\n", "there is no pool 'x'"),
        ("stages: {a: {do: combine, how: implicit}}\n", "how implicit needs a policy"),
        ("stages: {a: {do: combine, how: gated, members: [., .]}}\n", "how gated takes two members, gate"),
        ("stages: {a: {do: combine, members: [., .], below: 1}}\n", "below says nothing to how mean"),
        (
            "model: world\nstages: {e: {do: evaluate, policies: $model, against: $x}}\n",
            "there is no stage $x",
        ),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused(tmp_path, text, says):
    path = tmp_path / "one.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError) as error:
        read_pipeline(path)
    assert says in str(error.value)
    assert "one.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("sft.steps", "write stage.setting=value"),
        ("stf.steps=3", "there is no stage 'stf'; did you mean sft?"),
        ("sft.steps=[", "'[' is not YAML"),
    ],
)
def test_a_wrong_change_is_refused(place, change, says):
    assert says in complaint(place, stages(place), changes=(change,))


STAGES = read_pipeline(DEFAULT_CONFIG).stages
WEIGHTS = {stage.name: float(stage.weight) for stage in STAGES}


def test_weights_are_seconds_until_something_was_measured() -> None:
    assert expected_seconds(STAGES, {}, {}) == WEIGHTS
    twice = {"sft": 2 * WEIGHTS["sft"] + PRIOR_SECONDS}
    assert expected_seconds(STAGES, {}, twice)["ppo"] == pytest.approx(2 * WEIGHTS["ppo"])
    assert expected_seconds(STAGES, {"ppo": 7.0}, twice)["ppo"] == 7.0


def test_one_lane_takes_the_sum_and_many_the_longest_way_of_what_is_not_done() -> None:
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 1) == sum(WEIGHTS.values())
    way = ("demonstrations", "sft", "comparisons", "reward", "ppo", "evaluation")
    assert seconds_left(STAGES, set(), {}, WEIGHTS, 99) == sum(WEIGHTS[name] for name in way)
    two = seconds_left(STAGES, set(), {}, WEIGHTS, 2)
    assert sum(WEIGHTS[name] for name in way) <= two < sum(WEIGHTS.values())
    done = set(WEIGHTS) - {"ppo", "evaluation"}
    left = seconds_left(STAGES, done, {"ppo": WEIGHTS["ppo"] - 10}, WEIGHTS, 2)
    assert left == 10 + WEIGHTS["evaluation"]
    assert seconds_left(STAGES, done, {"ppo": 1e6}, WEIGHTS, 2) == WEIGHTS["evaluation"]
    assert seconds_left(STAGES, set(WEIGHTS), {}, WEIGHTS, 1) == 0
