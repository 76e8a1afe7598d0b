"""The simulator of rounds: closed forms, what can only be faster, and the signs of published rows."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulator.faults import FaultPlan, daly, expected_share, mean_share, young
from benchmarks.simulator.published import Assumptions, predictions
from benchmarks.simulator.rounds import Outcome, Schedule, simulate
from benchmarks.simulator.scale import MODES, Fleet
from benchmarks.simulator.servers import H100, LLAMA_8B, AnswerLengths, Engine, Server
from benchmarks.simulator.trainers import Trainers

SCHEDULE = Schedule(servers=2, groups=16, group_size=4, slots=64)
SERVER = Server(model=LLAMA_8B, device=H100, engine=Engine(memory_share=0.6), gpus=1)
EQUAL = [np.full(64, 100.0)] * 8
LENGTHS = AnswerLengths(mean=800, cap=4000)
UNEQUAL = [LENGTHS.draw(np.random.default_rng(number), 64) for number in range(8)]
FAULTS = FaultPlan(mean_seconds=36000, interval=1500, stall=30, restart=600)


def run(schedule: Schedule, learn: float, rounds=EQUAL) -> Outcome:
    # A step of a server takes 0.02 seconds, so a round of equal answers 2.
    return simulate(schedule, lambda *_: 0.02, lambda lengths_N: learn / 64 * len(lengths_N), rounds)


@pytest.mark.parametrize(
    ("changes", "learn", "seconds"),
    [
        ({"sync_seconds": 0.5, "rest_seconds": 0.25}, 3.0, 2 + 3 + 0.5 + 0.25),
        ({"ahead": 1}, 3.0, 3),
        ({"ahead": 1}, 0.5, 2),
        ({"in_flight": True}, 3.0, 2 + 3),
        ({"slots": 8, "pieces": 4}, 4.0, 8 + 1),
    ],
)
def test_equal_answers_take_what_the_formula_says(changes: dict[str, float], learn: float, seconds: float):
    assert run(replace(SCHEDULE, **changes), learn).step_seconds == pytest.approx(seconds)


def test_events_come_to_the_time_of_the_sorted_lengths_and_a_second_round_ahead_evens_them_out():
    seconds = [SERVER.draw_seconds(lengths_N, 50) for lengths_N in UNEQUAL[2:]]
    outcome = simulate(replace(SCHEDULE, servers=1, prompt=50), SERVER.step_seconds, lambda _: 0.0, UNEQUAL)
    assert (outcome.step_seconds, outcome.servers_idle) == pytest.approx((np.mean(seconds), 0), abs=1e-6)
    rounds = [np.full(64, length) for length in (100.0, 300.0) * 4]
    seconds = [run(replace(SCHEDULE, ahead=ahead), 4.0, rounds).step_seconds for ahead in (0, 1, 2)]
    assert seconds == pytest.approx([4 + 4, 5, 4])


@pytest.mark.parametrize("changes", [{}, {"pieces": 4}, {"ahead": 1}, {"ahead": 1, "in_flight": True}])
def test_more_servers_are_never_slower_and_failures_never_faster(changes: dict[str, float]):
    schedule = replace(SCHEDULE, slots=8, **changes)
    seconds = [run(replace(schedule, servers=n), 4.0, UNEQUAL).step_seconds for n in (1, 2, 4, 8)]
    assert seconds == sorted(seconds, reverse=True)
    failing = replace(schedule, mean_hours=0.05, restart_seconds=60)
    assert run(failing, 4.0, UNEQUAL) == run(failing, 4.0, UNEQUAL)
    assert run(failing, 4.0, UNEQUAL).step_seconds > run(schedule, 4.0, UNEQUAL).step_seconds


def test_lengths_have_their_mean_with_the_cut_and_trainers_wait_for_the_busiest():
    lengths_N = LENGTHS.draw(np.random.default_rng(0), 40000)
    assert (lengths_N.mean(), lengths_N.max()) == (pytest.approx(800, rel=0.02), 4000)
    assert Trainers(gpus=2).gpu_tokens(np.array([10.0, 1, 1, 1]), 0) == 11
    assert Trainers(gpus=4, stages=4, pack=100).gpu_tokens(np.full(8, 100.0), 0) == 100 * (8 + 3) / 4


def test_effective_time_is_that_of_the_formula_and_best_where_young_and_daly_say():
    assert mean_share(replace(FAULTS, mean_seconds=np.inf, stall=0)) == 1
    share = pytest.approx(expected_share(FAULTS), abs=0.005)
    assert mean_share(replace(FAULTS, repeated=0.5)) > mean_share(FAULTS) == share
    best = max(range(300, 4000, 5), key=lambda every: expected_share(replace(FAULTS, interval=every)))
    assert (daly(FAULTS), young(FAULTS)) == (pytest.approx(best, rel=0.01), pytest.approx(best, rel=0.05))


def test_every_published_row_is_as_it_was_and_drawing_ahead_the_quickest_at_eight_gpus():
    rows = predictions(Assumptions(rounds=4))
    assert [row.name for row in rows if not row.has_sign] == []
    slower = [row.name for row in rows if row.seconds > row.before]
    assert slower == ["NeMo-RL Qwen3-30B-A3B, 16 GB200, one round ahead", "verl 32, in turn"]
    plans = [Fleet(8, LLAMA_8B, Engine(memory_share=0.6)).best(mode) for mode in MODES]
    assert [plan.mode for plan in sorted(plans, key=lambda plan: -plan.outcome.step_seconds)] == list(MODES)
