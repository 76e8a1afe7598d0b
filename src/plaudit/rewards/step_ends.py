"""Where the steps of an answer end among its drawn tokens; text is never turned into tokens again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.rewards.step_pay import lines_of
from plaudit.rollouts.sampling import Rollout


def step_ends(rollout: Rollout, encoder: Encoder) -> tuple[int, ...]:
    """For each line of the answer that holds a word the place of its last token.

    It is the first token with which all that was drawn so far spells the line to its end, blanks aside; so
    a token that holds a line's end and more belongs to the line that it ends, and a character of several
    tokens is there with the last of them. The last line ends with the answer, its end of turn included.
    """
    lines, last = lines_of(rollout.answer.text), len(rollout.ids) - 1
    ends: list[int] = []
    before = ""
    for line in lines[:-1]:
        before += _squeezed(line)
        ends.append(_first(rollout.ids, before, encoder, ends[-1] if ends else 0))
    return (*ends, last) if lines else ()


def _first(ids: Sequence[int], wanted: str, encoder: Encoder, start: int) -> int:
    """The first place from ``start`` on with which the tokens spell what is wanted."""

    def spells(place: int) -> bool:
        text = encoder.info.tokenizer.decode(
            list(ids[: place + 1]), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return _squeezed(str(text)).startswith(wanted)

    found = bisect_left(range(len(ids)), True, lo=start, key=spells)
    if found == len(ids):
        raise UserError(
            f"the step that ends with {wanted[-30:]!r} is not found among the tokens that were drawn: this "
            "tokenizer spells tokens otherwise when more of them follow; leave out --process.pay"
        )
    return found


def _squeezed(text: str) -> str:
    return "".join(text.split())
