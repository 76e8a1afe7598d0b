"""Policy runs on an easy task: after a few dozen rounds the reward has clearly risen."""

from statistics import fmean

import pytest

from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from tests.engine.toy import write_rows
from tests.methods.policy.commands import Place, make_place, well

LEARNING: dict[str, tuple[object, ...]] = {
    "ppo": ("--group-size", 4, "--kl-coef", 0.01, "--update-epochs", 2, "--value-lr-scale", 2),
    "grpo": (),
    "rloo": ("--group-size", 8, "--kl-coef", 0.01),
    "reinforce": ("--group-size", 8, "--kl-coef", 0.01),
}
HARDER: dict[str, tuple[object, ...]] = {
    name: ("--group-size", 2 if facts.defaults.get("group_size") == 2 else 8)
    for name, facts in POLICY_ALGORITHMS.items()
    if name not in LEARNING and name not in ("gspo", "grpo-plus")
}
"""All others but gspo, whose clip lets a policy move so little that this takes longer, and grpo-plus, which
leaves out the long answers that are rewarded here."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = make_place(tmp_path_factory.mktemp("learning"))
    # Text without a question. Demonstrations of other answers to the prompts themselves would say the
    # opposite of the reward, and at a coefficient of 27.8 be heard in its place.
    statements = [{"text": " ".join(f"w{n + k}" for k in range(6))} for n in range(7, 31)]
    write_rows(place.folder / "statements.jsonl", statements)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param(*one, marks=[] if one[0] == "ppo" else [pytest.mark.slow])
        for one in {**LEARNING, **HARDER}.items()
    ],
)
def test_it_learns_to_say_what_is_rewarded(place: Place, name: str, more: tuple[object, ...]) -> None:
    if name == "ppo-ptx":
        more = (*more, "--ptx.data", place.folder / "statements.jsonl")
    went = well(
        place, name, f"learn-{name}", "--rounds", 40, "--evaluate-every", 1000, *more, "--sample.rows", 0
    )
    reward = went.figures("reward")
    few = len(reward) // 8
    assert fmean(reward[-few:]) > fmean(reward[:few]) + (1 if name in LEARNING else 0.3)
    if name == "ppo-ptx":
        assert went.figures("ptx_loss")[-1] < went.figures("ptx_loss")[0] - 1


@pytest.mark.parametrize("name", ["grpo", pytest.param("grpo-plus", marks=pytest.mark.slow)])
def test_it_learns_to_be_short(place: Place, name: str) -> None:
    more = ("--rounds", 25, "--reward", place.rule("short"), "--sample.rows", 0)
    went = well(place, name, f"short-{name}", *more)
    assert fmean(went.figures("length_mean")[-3:]) < fmean(went.figures("length_mean")[:3]) - 1
