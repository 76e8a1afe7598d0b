"""Rounds are pulled: from the policy itself, or whoever hands them on."""

from collections.abc import Iterator
from itertools import islice

from plaudit.engine.loop import BatchRows
from plaudit.methods.policy.batch import Round
from plaudit.methods.policy.iterations import RolloutRounds, RolloutSource, policy_updates
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch
from tests.methods.policy.pieces import scene


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
