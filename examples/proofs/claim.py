"""A claim about an algorithm, what was measured of it, and the lab in which it is measured."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

from jaxtyping import Float
from torch import Tensor

from examples.proofs.evidence import Pairs, Thumbs, pairs, thumbs
from examples.proofs.exact import Language, make_language, two_answer_language
from examples.proofs.learn import OptimiserBudget, PreferenceLossRow, learning_problem, minimise_table
from plaudit.methods.policy.algorithms import policy_algorithm
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.row import UnpairedAlgorithm

RowFactory = Callable[..., PreferenceLossRow]
PolicyFactory = Callable[..., PolicyAlgorithm]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProofSetup:
    """The languages and algorithm tables that claims are measured with."""

    beta: float
    language: Language
    """The main language: two prompts with fifteen answers each."""
    single_prompt: Language
    """A language of one prompt: for losses with one figure for all prompts."""
    two_answers: Language
    """A language whose prompts have two answers: whatever a loss wants of a pair can be had."""
    row_factory: RowFactory = preference_algorithm
    """The table of algorithms; a test puts a wrong one here."""
    policy_factory: PolicyFactory = policy_algorithm

    def row(self, name: str, **settings: Any) -> PreferenceLossRow:
        """The algorithm at the lab's β, with other settings where they are given."""
        described = PREFERENCE_ALGORITHMS.get(name)
        defaults = {"beta": self.beta} if described is not None and "beta" in described.parameters else {}
        return self.row_factory(name, **{**defaults, **settings})


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that a number can refute: of an algorithm or a topic, and in which figure."""

    name: str
    sentence: str
    measure: Callable[[ProofSetup], float]
    _: KW_ONLY
    low: int | float = -math.inf
    high: int | float = math.inf

    @property
    def expected(self) -> str:
        """The bounds in words.

        >>> Claim(name="dpo", sentence="…", measure=lambda proof_setup: 0.0, high=1e-6).expected
        '≤ 1e-06'
        """
        bounds = (("≥", self.low), ("≤", self.high))
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    claim: Claim
    value: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within the bounds; what is not a number is not."""
        return self.claim.low <= self.value <= self.claim.high


def proof_setup(
    *,
    seed: int = 0,
    beta: float = 0.5,
    rows: RowFactory = preference_algorithm,
    policies: PolicyFactory = policy_algorithm,
) -> ProofSetup:
    return ProofSetup(
        beta=beta,
        language=make_language(seed=seed),
        single_prompt=make_language(seed=seed, prompts=1),
        two_answers=two_answer_language(seed=seed),
        row_factory=rows,
        policy_factory=policies,
    )


def measure_claim(claim: Claim, setup: ProofSetup) -> Measurement:
    """The claim, measured.

    >>> two = Claim(name="sum", sentence="one and one are two", measure=lambda proof_setup: 2.0, low=2,
    ...     high=2)
    >>> measure_claim(two, proof_setup()).holds
    True
    """
    return Measurement(claim=claim, value=float(claim.measure(setup)))


def converged_policy(
    row: PreferenceLossRow,
    language: Language,
    feedback: Pairs | Thumbs | None = None,
    *,
    baseline: float | None = None,
    start_PY: Float[Tensor, "P Y"] | None = None,
    effort: OptimiserBudget | None = None,
) -> Float[Tensor, "P Y"]:
    """log π of a table at which the row's expected loss is minimal; on all pairs (or thumbs) by default."""
    feedback = expected_feedback(row, language) if feedback is None else feedback
    return minimise_table(learning_problem(row, feedback, language, baseline), start_PY, effort)


@lru_cache(maxsize=128)
def converged_algorithm(setup: ProofSetup, name: str, **settings: Any) -> Float[Tensor, "P Y"]:
    """`converged_policy` of a named algorithm in the main language; cached, as several claims use one."""
    return converged_policy(setup.row(name, **settings), setup.language)


def expected_feedback(row: PreferenceLossRow, language: Language) -> Pairs | Thumbs:
    """The expected feedback that the row learns from, answers sampled uniformly."""
    return thumbs(language) if isinstance(row, UnpairedAlgorithm) else pairs(language)
