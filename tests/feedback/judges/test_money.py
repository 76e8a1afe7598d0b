"""What judging costs: an estimate first, a cap that stops cleanly, and nothing paid for twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import outcomes
from plaudit.errors import UserError
from plaudit.feedback.judges.money import CapReachedError, Prices, Purse, parse_prices
from plaudit.lab.world import making
from plaudit.lab.world.minds import Mind
from tests.feedback.judges.judges import completion, delimiters, judge, pair, question
from tests.rewards.server import serving

TASKS = making.answer_tasks(60, answers=2, split="train", seed=4)
PRICES = Prices(prompt=10.0, reply=30.0)


def test_the_estimate_comes_first_and_is_no_less_than_what_it_costs(tmp_path):
    with MindServer([Mind(price="10/30")]) as server:
        purse = Purse()
        asked = judge(server.url, tmp_path, model="world", how="letter", prices=PRICES, purse=purse)
        estimate = asked.estimate(TASKS)
        assert server.counts.requests == 0
        outcomes(asked, TASKS, 0)
        assert estimate.cost is not None
        assert estimate.questions == server.counts.requests
        assert purse.spent == pytest.approx(server.counts.price)
        assert purse.spent <= estimate.cost
        after = asked.estimate(TASKS)
        assert (after.questions, after.cached, after.prompt_tokens) == (
            estimate.questions,
            estimate.questions,
            0,
        )
        assert after.cost == pytest.approx(purse.spent)


def test_a_cap_stops_cleanly_and_a_higher_one_goes_on_without_paying_twice(tmp_path):
    with MindServer([Mind(price="10/30")]) as server:

        def run(cap: float) -> Purse:
            purse = Purse(cap)
            outcomes(
                judge(server.url, tmp_path, model="world", how="letter", prices=PRICES, purse=purse), TASKS, 0
            )
            return purse

        with pytest.raises(CapReachedError, match=r"the cap of 0.05 is reached.*goes on with a higher cap"):
            run(0.05)
        assert 0.03 < server.counts.price <= 0.05
        before = server.counts.requests
        with pytest.raises(CapReachedError):
            run(0.05)
        assert server.counts.requests == before
        assert run(1.0).spent == pytest.approx(server.counts.price)
        assert server.counts.to_json()["replied_twice"] == 0


def test_a_cap_without_prices_is_refused_before_anything_is_asked(tmp_path):
    with MindServer([Mind()]) as server:
        with pytest.raises(UserError, match="its prices are not known"):
            judge(server.url, tmp_path, model="world", purse=Purse(5.0))
        assert server.counts.requests == 0
    with pytest.raises(UserError, match="above 0"):
        Purse(0.0)
    with pytest.raises(UserError, match=r"0.15/0.6"):
        parse_prices("$5")


def test_where_the_server_does_not_count_tokens_their_number_is_estimated(tmp_path):
    with serving(lambda body, n: completion("A")) as server:
        purse = Purse()
        asked = judge(server.url, tmp_path, how="letter", draws=1, prices=PRICES, purse=purse)
        outcomes(asked, [pair("Mice.", "Tea.")], 0)
        assert purse.spent > 0
        assert purse.tokens > 100


def test_all_that_is_put_aside_is_given_back_by_however_many_threads():
    purse = Purse(1.0)

    def work(who: int) -> None:
        for n in range(200):
            purse.reserve(0.001)
            purse.pay(f"{who}/{n}", 0.0001, 1)
            purse.settle(0.001)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert purse.spent == pytest.approx(0.16)
    purse.reserve(0.83)


PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from plaudit.data.judging import outcomes
from plaudit.lab.world import making
from tests.feedback.judges.judges import judge
tasks = making.answer_tasks(150, answers=2, split="train", seed=4)
found = outcomes(judge(sys.argv[1], Path(sys.argv[2]), model="world", how="letter"), tasks, 0)
print(len(found))
"""


def test_a_killed_run_goes_on_and_asks_nothing_twice(tmp_path):
    """Counted on the server: but for what was under way at the kill, every question is replied to once."""
    command = [sys.executable, "-c", PROGRAM]
    with MindServer([Mind(delay=0.02)]) as server:
        words = [*command, server.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for _ in range(3):
            started = server.counts.requests
            process = subprocess.Popen(words, env=environment)
            while server.counts.requests < started + 40 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        whole = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert whole.stdout.strip() == "150"
        counts = server.counts.to_json()
        stored = len(list(Path(tmp_path).rglob("*.json")))
    assert stored == counts["questions"]
    # Eight requests are under way at once.
    assert counts["replied_twice"] <= 3 * 8


@pytest.mark.parametrize("how", ["letter", "points", "reasons", "verdict"])
@pytest.mark.parametrize("takes_logprobs", [True, False])
def test_what_a_task_cost_is_counted_however_it_was_asked(tmp_path, how, takes_logprobs):
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        if "logprobs" in body and not takes_logprobs:
            return 400, b'{"error": {"message": "logprobs is not supported"}}'
        if how == "points":
            return completion("4", logprobs=None)
        if how == "letter":
            return completion("A", logprobs=None)
        opened, closed = delimiters(question(body))
        return completion(f"So: {opened}A{closed}", logprobs=None)

    with serving(reply) as server:
        purse = Purse()
        asked = judge(server.url, tmp_path, how=how, draws=2, prices=PRICES, purse=purse)
        task = pair("Mice.", "Tea.")
        outcomes(asked, [task], 0)
    tokens, price = asked.spent(task)
    assert tokens == purse.tokens
    assert price == pytest.approx(purse.spent)
