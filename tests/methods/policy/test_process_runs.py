"""Process rewards through the command: what is learnt, resumed, shared over ranks, refused and said."""

import json
import signal
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.methods.policy.diagnostics import diagnostics
from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import apart
from tests.engine.toy import write_rows
from tests.methods.histories import history, steadily
from tests.methods.policy.commands import Place, Went, command, go, make_place, refused, well
from tests.methods.policy.pieces import scene
from tests.methods.policy.test_resume import interrupted, same
from tests.rewards.scorers import scorer_folder

BREAKS = range(34, 44)
RULES = """
import math

def wanted(answer, steps):
    return [float("w33" in step.split()) for step in steps]

def sure(steps, answer, prompt):
    return [min(1.0, len(step.split()) / 4) for step in steps]

def half(answer, steps):
    return None if len(steps) == 1 else [float(len(step)) for step in steps]

def fewer(answer, steps):
    return [1.0] * (len(steps) + 1)

def nan(answer, steps):
    return [math.nan for step in steps]

def number(answer):
    return 1.0

def large(answer, steps):
    return [2.0 for step in steps]

def length(answer):
    return -float(len(str(answer).split()))
"""
PAID = ("--process.pay", "score", "--draw.max-tokens", 12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A model some of whose words end a line."""
    place = make_place(tmp_path_factory.mktemp("process"))
    path = place.model / "tokenizer.json"
    facts = json.loads(path.read_text("utf-8"))
    lined = {f"w{n}": f"w{n}\n" for n in BREAKS}
    facts["model"]["vocab"] = {lined.get(word, word): n for word, n in facts["model"]["vocab"].items()}
    path.write_text(json.dumps(facts), "utf-8")
    (place.folder / "steps.py").write_text(RULES, "utf-8")
    return place


def rule(place: Place, name: str) -> str:
    return f"{place.folder / 'steps.py'}:{name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pay"), [("grpo", "score"), pytest.param("ppo", "min", marks=pytest.mark.slow)]
)
def test_it_learns_from_what_is_said_of_its_steps(place: Place, name: str, pay: str) -> None:
    more = ("--group-size", 8, "--rounds", 30, "--sample.rows", 0, "--kl-coef", 0.01)
    went = well(
        place, name, f"learns {name}", *PAID, *more, "--process.pay", pay, "--reward", rule(place, "wanted")
    )
    score = went.figures("step_score")
    assert fmean(score[-4:]) > fmean(score[:4]) + 0.3
    assert went.figures("steps_mean")[0] > 1.5
    assert fmean(went.figures("step_score_min")[-4:]) > fmean(went.figures("step_score_min")[:4])


MANNERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "ppo": ("ppo", ("--process.pay", "min", "--minibatches", 2, "--update-epochs", 2, "--shape.scale")),
    "replay": ("grpo", ("--draw.replay", 0.4, "--draw.max-staleness", 2, "--update-epochs", 2)),
    "unlike": ("dapo", ("--group-size", 4, "--update-epochs", 2)),
}
SPARSE = ("--evaluate-every", 2, "--sample-every", 3, "--save-every", 100, "--rounds", 3)


def words(place: Place, manner: str, out: str) -> tuple[object, ...]:
    name, own = MANNERS[manner]
    return (place, name, f"{out} {manner}", *PAID, *SPARSE, "--reward", rule(place, "sure"), *own)


@pytest.mark.slow
@pytest.mark.parametrize(
    "manner", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("replay", "unlike"))]
)
def test_a_run_that_was_stopped_in_the_middle_of_a_round_ends_as_if_it_had_not(place, manner):
    whole = well(*words(place, manner, "whole"))  # pyright: ignore[reportArgumentType]
    inner = len(whole.lines) // 3
    run = words(place, manner, "stopped")
    for step in (2, inner + 1, 2 * inner + max(1, inner // 2)):
        with interrupted(step):
            assert go(*run).code == 128 + signal.SIGINT  # pyright: ignore[reportArgumentType]
    went = well(*run)  # pyright: ignore[reportArgumentType]
    same(went.run, whole.run)
    assert max(whole.figures("steps_mean")) > 1.5


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns(place: Place) -> None:
    def run(out: str) -> Run:
        more = ("--rounds", 2, "--batch-size", 5, "--dtype", "float64", "--evaluate-every", 1, *PAID)
        more = (*more, "--reward", rule(place, "sure"), "--group-size", 4, "--update-epochs", 2)
        return Run(arguments=tuple(command(place, "grpo", out, *more)), environment={})

    for ranks in (1, 2):
        for one in run_all({"steps": run(f"on {ranks}")}, place.folder, ranks=ranks)["steps"]:
            assert one.code == 0, one.err
    wanted, found = (Went(code=0, said="", run=place.folder / f"on {ranks}").lines for ranks in (1, 2))
    for expected, line_ in zip(wanted, found, strict=True):
        assert line_.keys() == expected.keys() >= {"steps_mean", "step_score", "step_score_min"}
        for name in expected.keys() - {"timing", "sampling_logp_diff_mean", "sampling_logp_diff_max"}:
            assert apart(line_[name], expected[name]) < 1e-7, name


@pytest.mark.slow
def test_a_process_reward_models_folder_pays_steps_and_the_outcome_is_paid_beside(place, tmp_path):
    model, steps = scorer_folder(tmp_path), tmp_path / "steps"
    assert main(["combine", "steps", str(model), "--reading", "min", "--out", str(steps)]) == 0
    asked = [{"prompt": [{"role": "user", "content": f"w{n} w{n + 1}"}]} for n in range(10, 26)]
    prompts = write_rows(tmp_path / "asked.jsonl", asked)
    more = (*PAID, "--rounds", 2, "--sample.rows", 1, "--held-out", 0.2, "--prompts", prompts)
    alone = well(place, "ppo", "by model", *more, "--process.pay", "min", "--reward", steps)
    assert all(0 < score < 1 for score in (*alone.figures("step_score"), *alone.figures("held_out/reward")))
    for reward, low in zip(alone.figures("reward"), alone.figures("step_score_min"), strict=True):
        assert reward == pytest.approx(low)
    odds = well(place, "grpo", "by odds", *more, "--process.pay", "odds", "--reward", steps)
    assert "by its odds" in odds.said
    both = well(
        place,
        "grpo",
        "beside",
        *more,
        *("--process.by", steps, "--process.weight", 0.5, "--reward", rule(place, "length")),
    )
    parts = [line_ for line_ in both.lines if f"reward/{rule(place, 'length')}" in line_]
    assert len(parts) == len(both.lines)
    for line_ in parts:
        whole = line_[f"reward/{rule(place, 'length')}"] + line_["reward/steps"]
        assert line_["reward"] == pytest.approx(whole)


@pytest.mark.slow
def test_what_has_no_verdict_is_left_out(place: Place) -> None:
    more = ("--rounds", 2, "--reward", rule(place, "half"), "--batch-size", 8)
    went = well(place, "grpo", "half", *PAID, *more)
    assert 0 < went.lines[0]["frac_no_verdict"] < 1
    assert went.lines[0]["steps_mean"] >= 2


Case = tuple[str, tuple[object, ...], tuple[str, ...]]
REFUSED: dict[str, Case] = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))[
    "process rewards"
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_paid_is_refused(place: Place, what: str) -> None:
    name, (function, *more), why = REFUSED[what]
    went = refused(place, name, what, *PAID, "--rounds", 2, "--reward", rule(place, str(function)), *more)
    for said in why:
        assert said in went.said
    assert not (went.run / "model").exists()


def test_rewards_without_steps_are_refused_with_what_has_some(place: Place, tmp_path: Path) -> None:
    model = scorer_folder(tmp_path)
    for reward, why in {
        str(model): "plaudit combine steps",
        "length:1-4": "gives no score of a step",
    }.items():
        for more in (("--reward", reward), ("--process.by", reward)):
            went = refused(place, "ppo", "no steps", *PAID, *more)
            assert why in went.said
    same_twice = rule(place, "sure")
    went = go(place, "ppo", "twice", *PAID, "--reward", same_twice, "--process.by", same_twice)
    assert "are the same" in went.said


def test_a_function_that_gives_a_list_is_told_of_the_switch(place: Place) -> None:
    went = refused(place, "ppo", "no switch", "--reward", rule(place, "sure"))
    assert "needs --process.pay" in went.said


def test_episodes_are_paid_at_their_end(place: Place) -> None:
    went = refused(place, "grpo", "episodes", *PAID, "--environment", rule(place, "sure"))
    assert "an episode of an environment is paid at its end" in went.said


@pytest.mark.slow
def test_what_adds_up_is_said_beforehand_and_when_steps_grow(place: Place) -> None:
    more = ("--rounds", 1, "--reward", rule(place, "sure"), "--sample.rows", 0)
    assert (
        "each further step that scores above 0 is worth more" in well(place, "ppo", "adds", *PAID, *more).said
    )
    assert "worth more" not in well(place, "ppo", "changes", *PAID, *more, "--process.pay", "min").said
    whole = well(place, "rloo", "whole", *PAID, *more, "--process.pay", "min").said
    assert "compares whole answers: each has the sum of its payments" in whole
    row = scene("ppo").found
    growing = history(steps_mean=steadily(2.0, 6.0), step_score=steadily(0.4, 0.5))
    [(begin, rest)] = diagnostics(row, growing, sums_step_scores=True).items()
    assert begin == "answers have more and more steps"
    assert "docs/policy.md#process-rewards" in rest
    assert diagnostics(row, growing) == {}
    slowly = history(steps_mean=steadily(2.0, 2.5), step_score=steadily(0.4, 0.5))
    assert diagnostics(row, slowly, sums_step_scores=True) == {}
