"""Judged rows of random tokens, as unlike in length as can be."""

from collections.abc import Callable, Sequence

import torch

from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel
from tests.models.zoo import VOCABULARY


def ragged_rows(
    kind: str,
    opinions: Sequence[Judgement],
    *,
    seed: int,
    lengths: tuple[int, int],
    is_trained: Callable[[int], bool] = lambda token: True,
) -> tuple[JudgedRow, ...]:
    generator = torch.Generator().manual_seed(seed)

    def ids(least: int, most: int) -> tuple[int, ...]:
        length = int(torch.randint(least, most + 1, (1,), generator=generator))
        return tuple(torch.randint(8, VOCABULARY, (length,), generator=generator).tolist())

    def answer() -> Completion:
        own = (*ids(*lengths), 2)
        return Completion(ids=own, mask=tuple(map(is_trained, own)), finished=True)

    rows: list[JudgedRow] = []
    for number, said in enumerate(opinions, start=1):
        count = {PairLabel: 2, RankingLabel: len(getattr(said, "ranks", ()))}.get(type(said), 1)
        example = Example(
            prompt=ids(1, 6), completions=tuple(answer() for _ in range(count)), origin=f"{kind}:{number}"
        )
        rows.append(JudgedRow(example=example, judgement=said))
    return tuple(rows)
