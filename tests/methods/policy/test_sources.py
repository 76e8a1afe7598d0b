"""Rounds are pulled: from the policy itself, a process that has its weights, or whoever hands them on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from plaudit.engine.loop import BatchRows
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.iterations import RolloutRounds, RolloutSource, policy_updates
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from tests.engine.toy_command import outcome
from tests.methods.policy.commands import Place, go, make_place, well
from tests.methods.policy.pieces import scene

SHORT = ("--rounds", 3, "--evaluate-every", 2, "--group-size", 4, "--update-epochs", 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("sources"))


@pytest.mark.slow
def test_a_run_whose_answers_come_from_another_process_has_the_same_weights(place: Place) -> None:
    local, process = (
        well(place, "grpo", f"from-{sampler}", *SHORT, "--sampler", sampler)
        for sampler in ("local", "process")
    )
    one, other = outcome(local.run), outcome(process.run)
    assert one.weights == other.weights
    assert one.metrics == other.metrics
    assert one.samples == other.samples


def test_what_a_process_does_not_know_is_refused(place: Place) -> None:
    for name, more, said in [
        ("grpo", ("--lora.rank", 2), "does not know adapters"),
        ("nash-md", (), "does not know the mixture of policy and reference"),
    ]:
        went = go(place, name, f"refused-{name}", *SHORT[:2], "--sampler", "process", *more)
        assert went.code == 2
        assert said in went.said


class Handed:
    """Rounds that were made before, handed on one by one: what a queue would do."""

    def __init__(self, made: list[Round | None], rounds: RolloutRounds) -> None:
        self._made, self._rounds = made, rounds
        self.updates_per_round = rounds.updates_per_round

    def rounds(self, first: int, batch_rows: BatchRows) -> Iterator[Round | None]:
        del batch_rows
        yield from self._made[first - 1 :]

    def microbatches(self, step: int, policy_round: Round | None) -> list[AnyMicrobatch]:
        return list(self._rounds.microbatches(step, policy_round))


def test_the_loop_pulls_a_round_and_takes_its_steps() -> None:
    rounds = scene("grpo").rounds
    inner = rounds.updates_per_round
    [made] = islice(rounds.rounds(1, lambda _: range(3)), 1)
    assert made is not None
    source: RolloutSource = Handed([made, None, made], rounds)
    assert isinstance(source, RolloutSource)
    assert isinstance(rounds, RolloutSource)
    steps = list(policy_updates(source, 1, lambda _: ()))
    assert len(steps) == 3 * inner
    assert [bool(pieces) for pieces in steps] == [True] * inner + [False] * inner + [True] * inner
    # From the middle of a round on, the steps are those that are left of it.
    later = list(policy_updates(source, 2, lambda _: ()))
    assert len(later) == 3 * inner - 1
    for whole, resumed in zip(steps[1:], later, strict=True):
        assert [places(piece) for piece in whole] == [places(piece) for piece in resumed]


def places(piece: AnyMicrobatch) -> tuple[int, ...]:
    assert isinstance(piece, PolicyMicrobatch)
    return tuple(place.group for place in piece.groups)
