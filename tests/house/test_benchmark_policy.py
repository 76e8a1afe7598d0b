"""The benchmark of policy optimisation: our side on a tiny folder, and that both sides say the same."""

import json
from argparse import Namespace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.our_policy import METHODS, agreement, flops_of_round, measured, parse_arguments, trial_on
from benchmarks.policy import MAX_DIFFERENCE, OLD_PEER, agreement_difference, sides_of, theirs
from benchmarks.turns import PEER, numbers_from
from benchmarks.work import EOS, PROMPTS, SAMPLES, SHAPES, SPECIAL, Rows, sevens, write_policy_work
from plaudit.engine.metrics import training_flops
from plaudit.methods.policy.objective import ActorCritic
from plaudit.tokens.batch import Completion, Example
from tests.peer import RECORDED, PeerValues

COMPLETION = 12
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    rows = Rows(count=4, prompt=10, completion=COMPLETION)
    write_policy_work(folder, SHAPES["tiny"], rows, count=2)
    return folder


def told(work: Path, method: str, *words: str):
    sizes = ["--batch", "2", "--answers", "3", "--completion", str(COMPLETION), "--steps", "2"]
    return parse_arguments([str(work), "--method", method, *sizes, *words])


def test_prompts_are_of_one_length_and_fixed_answers_end_differently(work: Path):
    lines = [json.loads(line) for line in (work / PROMPTS).read_text(encoding="utf-8").splitlines()]
    assert [len(line["prompt"].split()) for line in lines] == [10] * 4
    samples = json.loads((work / SAMPLES).read_text(encoding="utf-8"))
    assert [len(group[0]) for group in samples] == [COMPLETION] * 2
    assert all(answer.index(EOS) == len(answer) - 1 for group in samples for answer in group)
    assert len({len(answer) for answer in samples[0]}) > 1


@pytest.mark.one_in(3)
@linux
@pytest.mark.parametrize("method", METHODS)
def test_our_side_reports_whole_rounds(work: Path, method: str):
    given = told(work, method)
    report = measured(trial_on(given), given)
    answers = 2 if method == "ppo" else 6
    assert report.batch == answers
    assert len(report.seconds) == len(report.cpu_seconds) == 2
    assert 0.8 * 2 * answers * COMPLETION < report.tokens <= 2 * answers * COMPLETION
    assert min(report.peak_mib, report.base_mib) > 50
    assert report.flops > 0


def test_a_round_needs_drawing_and_three_passes_for_every_move(work: Path):
    actor, size = trial_on(told(work, "grpo")).job.module, SHAPES["tiny"]
    assert isinstance(actor, ActorCritic)
    answer = Completion(ids=(7, 8, EOS), mask=(True,) * 3, finished=True)
    example = Example(prompt=(5, 6), completions=(answer, answer))
    body = size.layers * (4 * size.hidden**2 + 3 * size.hidden * size.inner)
    products = training_flops(body, size.vocabulary * size.hidden, 8, 6)
    spared = 6 * 3 * size.hidden * size.inner * 2
    move = products - spared + 6 * size.layers * size.hidden * (2 * 5**2 - 2**2)
    assert flops_of_round(actor, [example], "grpo", 1) == pytest.approx(move * 4 / 3)
    assert flops_of_round(actor, [example], "grpo-kl", 2) == pytest.approx(move * 8 / 3)


def test_fixed_answers_have_the_rewards_of_their_text(work: Path):
    given = told(work, "grpo", "--agree")
    samples = json.loads((work / SAMPLES).read_text(encoding="utf-8"))
    words = [[f"w{token - len(SPECIAL)}" for token in ids[:-1]] for own in samples for ids in own[:3]]
    *rewards, kl, loss, value = agreement(trial_on(given), given)
    assert rewards == [sevens(" ".join(answer)) for answer in words]
    # Answers of different lengths: the mean over tokens is not 0.
    assert (kl, value) == (0.0, 0.0)
    assert loss != pytest.approx(0.0, abs=1e-4)


def test_a_reference_apart_shows_in_kl_and_loss(work: Path):
    given = told(work, "grpo-kl", "--agree")
    plain = told(work, "grpo", "--agree")
    *_, kl, loss, _ = agreement(trial_on(given), given)
    *_, without, _ = agreement(trial_on(plain), plain)
    assert kl > 1e-3
    assert loss - without == pytest.approx(0.04 * kl, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_every_side_is_told_the_same_work(method: str):
    sides = sides_of(method, 64)
    assert len({side.name for side in sides}) == len(sides) > 2
    for side in sides:
        for name, value in (("--method", method), ("--batch", "8"), ("--completion", "64")):
            assert side.words[side.words.index(name) + 1] == value
        assert (side.words[0] == str(OLD_PEER)) == (method == "ppo" and side.name.startswith("TRL"))


FIXED = Rows(count=8, prompt=10, completion=COMPLETION)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixed")
    write_policy_work(folder, SHAPES["tiny"], FIXED)
    return folder


def peer_says(method: str) -> list[float]:
    """Its rewards of the fixed answers, its KL, and the losses of its first move."""
    words = ("--agree", "--method", method, "--completion", str(COMPLETION), "--threads", "1")
    with TemporaryDirectory() as where:
        write_policy_work(Path(where), SHAPES["tiny"], FIXED)
        return numbers_from(theirs(*words, where))


VALUES = {
    method: PeerValues(
        file=Path(__file__).with_name("peer_values") / f"{method}.json",
        ask=partial(peer_says, method),
        python=OLD_PEER if method == "ppo" else PEER,
    )
    for method in METHODS
}


def check_installed(method: str) -> None:
    if not VALUES[method].python.exists():
        pytest.skip("the peer's environment is missing: make bench-peer")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("method", METHODS)
def test_the_peer_has_said_the_same_of_fixed_answers(method: str, fixed: Path):
    wanted = VALUES[method].answers(RECORDED)
    given = parse_arguments([str(fixed), "--method", method, "--completion", str(COMPLETION), "--agree"])
    assert len(wanted) == (8 if method == "ppo" else 64) + 3
    assert agreement(trial_on(given), given) == pytest.approx(wanted, rel=0, abs=MAX_DIFFERENCE)


@pytest.mark.peer
@pytest.mark.parametrize("method", METHODS)
def test_the_record_is_what_the_peer_says(method: str):
    check_installed(method)
    VALUES[method].prove()


@pytest.mark.peer
@pytest.mark.parametrize("method", METHODS)
def test_the_peer_says_the_same_of_fixed_answers(method: str, fixed: Path):
    check_installed(method)
    apart, count = agreement_difference(
        fixed, method, Namespace(completion=COMPLETION, threads=1, device="cpu")
    )
    assert count == (8 if method == "ppo" else 64) + 3
    assert apart < MAX_DIFFERENCE
