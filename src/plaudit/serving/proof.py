"""Proof that a server computes with the weights that it was sent: by what it says of fixed tokens.

That a file arrived proves nothing of what is computed with it: vLLM takes an update that lacks a tensor,
moves its version on and finds that all weights match; a head that is tied stays what it was. So the policy's
own log-probs of fixed tokens are compared with the server's, after every delivery, and once for each server
with weights that were disturbed so that every tensor shows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.engine.distributed import copy_into, full_tensor
from plaudit.errors import UserError
from plaudit.models.backbone import evaluation_mode
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, Example, batch_of

SEQUENCES, LENGTH = 4, 48
"""How many fixed sequences there are, and how long they are."""
MAX_GAP = {torch.float32: 1e-3, torch.float64: 1e-3}
"""By how much log-probs of the same weights may differ on average, by the numbers they travel in."""
MAX_GAP_HALF = 0.03
SHOWS = 10
"""A tensor shows once disturbing it moves the log-probs by so many times the gap that is allowed."""
DISTURBANCES = (0.05, 0.2, 0.8, 3.2)
"""By how much of its own size a tensor is disturbed, one after the other until it shows."""
MOST_PARTS = 2000
"""Experts of one family are disturbed one by one while there are at most so many; then together."""
TELLING = 4
"""Weights are told apart once they lie so many times as far apart as a server lies from the policy."""
MOVED = (0.75, 1.25)
"""A server has followed where it has moved by this share of what the policy has."""


def max_gap(dtype: torch.dtype) -> float:
    return MAX_GAP.get(dtype, MAX_GAP_HALF)


def probes(vocabulary: int, longest: int | None) -> list[tuple[int, ...]]:
    """Sequences of random tokens, the same for everybody: also tokens that no prompt has."""
    generator = torch.Generator().manual_seed(0)
    length = LENGTH if longest is None else min(LENGTH, longest - 1)
    token_SL = torch.randint(vocabulary, (SEQUENCES, length), generator=generator)
    return [tuple(row) for row in token_SL.tolist()]


def policy_logps(policy: Policy, sequences: Sequence[tuple[int, ...]]) -> Float[Tensor, " M"]:
    """The policy's own log-probs of all tokens but the first of each; every rank of a divided one comes."""
    examples = [
        Example(
            prompt=ids[:1],
            completions=(Completion(ids=ids[1:], mask=(True,) * (len(ids) - 1), finished=False),),
        )
        for ids in sequences
    ]
    batch = batch_of(examples).to(policy.device)
    with torch.no_grad(), evaluation_mode(policy):
        return policy.score(batch).logp_NT[batch.mask_NT].double().cpu()


_Part = tuple[str, nn.Parameter, int | None]
"""A tensor by its name, or a place of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a comparison came to. Example: ``Proof(torch.float32).compare("http://…", there_M, here_M)``."""

    gap: float
    """By how much the server's log-probs differ from the policy's, on average."""
    distinguished: bool
    """Whether these weights could be told from those that it had before."""


class Proof:
    """What one server has said so far, and whether it has followed."""

    def __init__(self, dtype: torch.dtype) -> None:
        """``dtype`` is what weights travel in."""
        self._max_gap = max_gap(dtype)
        self._before: tuple[Tensor, Tensor] | None = None

    def compare(self, url: str, there_M: Tensor, here_M: Tensor) -> Verdict:
        """Refuse a server that does not compute with the weights of the policy. Those that it was sent last
        may hardly differ from those before. So the change of its log-probs is held against the change of the
        policy's since they were last told apart: what is wrong with both, such as rounding, is not in it."""
        gap = _mean(there_M - here_M)
        if not gap <= self._max_gap:
            raise UserError(
                f"{url} does not answer with the weights that it was sent: its log-probs of fixed tokens "
                f"differ from the policy's by {gap:.2g} nats on average (at most {self._max_gap:g}). Either "
                "some of its weights are old or missing, or it serves another model, or computes in other "
                "numbers (--dtype)"
            )
        if self._before is None:
            self._before = there_M, here_M
            return Verdict(gap=gap, distinguished=False)
        there_before_M, here_before_M = self._before
        moved_M, expected_M = there_M - there_before_M, here_M - here_before_M
        noise = max(float((there_before_M - here_before_M).square().mean().sqrt()), 1e-9)
        if float(expected_M.square().mean().sqrt()) < TELLING * noise:
            return Verdict(gap=gap, distinguished=False)
        share = float((moved_M * expected_M).sum() / expected_M.square().sum())
        if not MOVED[0] <= share <= MOVED[1]:
            raise UserError(
                f"{url} does not answer with the weights that it was sent: its log-probs of fixed tokens "
                f"have moved by {share:.0%} of what the policy's have; some of its weights are those of "
                "before"
            )
        self._before = there_M, here_M
        return Verdict(gap=gap, distinguished=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    """Weights in which every tensor shows.
    Example: ``with disturbed(policy, sequences, torch.float32) as noise: …``."""

    logp_M: Tensor
    """The policy's log-probs with all tensors disturbed at once."""
    max_gap: float
    """A server without one of these tensors is further away."""
    unseen: tuple[str, ...]
    """Tensors that change nothing that fixed tokens could show."""

    def compare(self, url: str, there_M: Tensor) -> None:
        gap = _mean(there_M - self.logp_M)
        if not gap <= self.max_gap:
            raise UserError(
                f"{url} does not compute with every tensor that it was sent: with weights that were "
                f"disturbed so that each of them shows, its log-probs of fixed tokens differ from the "
                f"policy's by {gap:.2g} nats on average (at most {self.max_gap:.2g}). A tensor does not "
                "arrive: a head that is tied, an adapter that is not merged, or an expert"
            )


@contextmanager
def disturbed(
    policy: Policy, sequences: Sequence[tuple[int, ...]], dtype: torch.dtype, *, adapters: bool = False
) -> Iterator[Disturbed]:
    """The policy with every tensor, or only ``adapters``, disturbed while the block lasts; all ranks come.
    Each is disturbed alone first, by as much as makes it show; then all at once."""
    parts = list(_adapter_parts(policy) if adapters else _parts(policy))
    with _restored(*(parameter for _, parameter, _ in parts)):
        yield _disturb_all(policy, sequences, dtype, parts)


@contextmanager
def _restored(*parameters: nn.Parameter) -> Iterator[None]:
    saved = [(parameter, parameter.detach().clone()) for parameter in dict.fromkeys(parameters)]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, values in saved:
                parameter.copy_(values)


def _disturb_all(
    policy: Policy, sequences: Sequence[tuple[int, ...]], dtype: torch.dtype, parts: Sequence[_Part]
) -> Disturbed:
    # The first matrix of an adapter shows through the second one, which starts as zeros.
    for name, parameter, place in (firsts := [part for part in parts if "lora_A" in part[0]]):
        _disturb(name, parameter, place, max(DISTURBANCES))
    parts = [part for part in parts if part not in firsts]
    calm_M = policy_logps(policy, sequences)
    wanted = SHOWS * max_gap(dtype)
    sizes: list[float] = []
    unseen: list[str] = []
    for name, parameter, place in parts:
        effect, size = 0.0, 0.0
        for size in DISTURBANCES:
            with _restored(parameter):
                _disturb(name, parameter, place, size)
                effect = _mean(policy_logps(policy, sequences) - calm_M)
            if effect >= wanted:
                break
        if effect < wanted:
            unseen.append(name)
        # Not by more than shows: what is too wild is as wild without one of its tensors.
        sizes.append(max(min(DISTURBANCES), size * min(1.0, 2 * wanted / effect)) if effect else size)
    for (name, parameter, place), size in zip(parts, sizes, strict=True):
        _disturb(name, parameter, place, size)
    return Disturbed(logp_M=policy_logps(policy, sequences), max_gap=wanted / 3, unseen=tuple(unseen))


def _parts(policy: Policy) -> Iterator[_Part]:
    # Every tensor by name, and of families of experts each of them; adapters are merged into theirs.
    named = [(name, p) for name, p in policy.base.named_parameters() if "lora_" not in name]
    families = [p.shape[0] for _, p in named if p.ndim == 3]
    one_by_one = len(named) + sum(families) <= MOST_PARTS
    for name, parameter in named:
        if parameter.ndim == 3 and one_by_one:
            yield from ((f"{name}[{place}]", parameter, place) for place in range(parameter.shape[0]))
        else:
            yield name, parameter, None


def _adapter_parts(policy: Policy) -> Iterator[_Part]:
    return ((name, p, None) for name, p in policy.base.named_parameters() if "lora_" in name)


def _disturb(name: str, parameter: nn.Parameter, place: int | None, size: float) -> None:
    # Add noise of this share of its own size to a tensor, or to one place of it; all ranks come.
    seed = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
    with torch.no_grad():
        whole = full_tensor(parameter.detach()).clone()
        part = whole if place is None else whole[place]
        # An adapter's second matrix is small, where it is not zero as at its start.
        scale = part.float().square().mean().sqrt().item() or (0.01 if "lora_B" in name else 1.0)
        noise = torch.randn(part.shape, generator=torch.Generator().manual_seed(seed))
        part += (size * scale * noise).to(part.device, part.dtype)
        copy_into(parameter, whole)


def _mean(difference_M: Tensor) -> float:
    # The mean distance; infinite where something is no number.
    return float(difference_M.abs().mean().nan_to_num(nan=float("inf")))
