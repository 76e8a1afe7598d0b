"""Any algorithm measured against π*, and all claims checked, as tables for eyes and one JSON file.

``check_claims()`` checks all claims, ``prove`` measures a loss of one's own:

    row = PreferenceAlgorithm(loss=mine, beta=0.1)
    print(prove(row).words)
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from jaxtyping import Float
from rich import box
from rich.table import Table
from torch import Tensor

from examples.proofs import exact
from examples.proofs.claim import (
    Measurement,
    ProofSetup,
    converged_algorithm,
    converged_policy,
    expected_feedback,
    measure_claim,
    proof_setup,
)
from examples.proofs.claims.data import DATA_CLAIMS
from examples.proofs.claims.estimators import BIASED, UNBIASED
from examples.proofs.claims.optimum import BEST_OF_N, CLOSED_FORM_CLAIMS, KL_CLAIMS
from examples.proofs.claims.policy import ASCENTS, POLICY_CLAIMS
from examples.proofs.claims.preference import ABSOLUTE, TWO_ANSWER_CLAIMS
from examples.proofs.claims.staleness import OFF_POLICY_CLAIMS
from examples.proofs.exact import kl
from examples.proofs.learn import PreferenceLossRow, largest_gradient, learning_problem
from plaudit.errors import UserError
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS

ESTIMATORS = (*UNBIASED, *BIASED, *OFF_POLICY_CLAIMS, *KL_CLAIMS, *ASCENTS)
CLAIMS = (
    *CLOSED_FORM_CLAIMS,
    *TWO_ANSWER_CLAIMS,
    *ABSOLUTE,
    *DATA_CLAIMS,
    *POLICY_CLAIMS,
    *ESTIMATORS,
    *BEST_OF_N,
)
TOPICS = tuple(dict.fromkeys(claim.name for claim in CLAIMS if claim.name not in PREFERENCE_ALGORITHMS))
NAMES = (*PREFERENCE_ALGORITHMS, *TOPICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a row comes to on exact preferences, beside the optimum π* ∝ π_ref exp(r / β)."""

    name: str
    beta: float
    slope: float
    """Largest entry of the expected loss's gradient by the logits at π*; 0: π* is a place to rest."""
    distance: float
    """Total variation between what was learnt and π*, for the worst prompt."""
    kl: float
    """KL(π ‖ π_ref) of what was learnt, in nats, mean of the prompts."""
    reward: float
    lost: float
    """J(π*) − J(π): what is missing of the objective E r − β KL."""

    @property
    def is_stationary(self) -> bool:
        """Whether the loss has no slope at π*."""
        return self.slope <= 1e-8

    @property
    def reaches_optimum(self) -> bool:
        """Whether π* is where the loss has no slope, and where learning ends."""
        return self.is_stationary and self.distance <= 1e-4

    @property
    def sentence(self) -> str:
        end = f"learning ends {self.distance:.1e} from π* (total variation), {self.lost:.1e} short of its J"
        if self.reaches_optimum:
            return f"{self.name} reaches π*: slope there {self.slope:.1e}; {end}."
        if self.is_stationary:
            return f"{self.name} could rest at π* (slope {self.slope:.1e}) and does not get there: {end}."
        return f"{self.name} does not rest at π* (slope {self.slope:.1e}): {end}."


def prove(
    row: PreferenceLossRow | str,
    *,
    language: exact.Language | None = None,
    beta: float | None = None,
    name: str = "this loss",
) -> Proof:
    """The row, or the algorithm of that name at β (0.5 if not told), in the language (seed 0 if not told).

    >>> prove("dpo").reaches_optimum, prove("ipo").reaches_optimum
    (True, False)
    """
    if isinstance(row, str):
        setup = proof_setup(beta=0.5 if beta is None else beta)
        return prove_algorithm(row, setup if language is None else replace(setup, language=language))
    if beta is not None:
        raise UserError("beta is said twice: a row has its own; make the row with the β that you mean")
    if not row.beta > 0:
        raise UserError(f"the row's beta is {row.beta:g}: π* needs a β above 0, the one of your loss")
    language = exact.make_language() if language is None else language
    return _proof(name, row, language, converged_policy(row, language))


def prove_algorithm(name: str, setup: ProofSetup) -> Proof:
    row = setup.row(name)
    # ORPO has no β: its log-odds are the reward itself.
    return _proof(name, replace(row, beta=setup.beta), setup.language, converged_algorithm(setup, name))


def check_claims(names: Sequence[str] = NAMES, setup: ProofSetup | None = None) -> Iterator[Measurement]:
    """The claims of these algorithms and topics, one after another as they are measured.

    >>> all(found.holds for found in check_claims(["wpo"]))
    True
    """
    setup = proof_setup() if setup is None else setup
    for claim in CLAIMS:
        if claim.name in names:
            yield measure_claim(claim, setup)


def _proof(
    name: str, row: PreferenceLossRow, language: exact.Language, logp_PY: Float[Tensor, "P Y"]
) -> Proof:
    star_PY = exact.optimum(language, row.beta)
    return Proof(
        name=name,
        beta=row.beta,
        slope=largest_gradient(learning_problem(row, expected_feedback(row, language), language), star_PY),
        distance=exact.total_variation(logp_PY, star_PY),
        kl=kl(logp_PY, language.ref_logp_PY).mean().item(),
        reward=exact.mean_reward(logp_PY, language),
        lost=exact.objective(star_PY, language, row.beta) - exact.objective(logp_PY, language, row.beta),
    )


def proof_table(proofs: Sequence[Proof]) -> Table:
    """A line for each row: what it comes to, beside π*."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for head in ("slope at π*", "distance", "KL", "E r", "J lost"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("π*", no_wrap=True)
    for proof in proofs:
        figures = (f"{proof.slope:.0e}", f"{proof.distance:.0e}", f"{proof.kl:.2f}", f"{proof.reward:.2f}")
        table.add_row(proof.name, *figures, f"{proof.lost:.0e}", "reached" if proof.reaches_optimum else "–")
    return table


def claim_table(measurements: Sequence[Measurement]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("claim")
    for head in ("expected", "measured"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for measurement in measurements:
        claim, verdict = measurement.claim, "holds" if measurement.holds else "FAILS"
        table.add_row(claim.name, claim.sentence, claim.expected, f"{measurement.value:.1e}", verdict)
    return table


def proofs_as_dict(
    proofs: Sequence[Proof], measurements: Sequence[Measurement], *, seed: int, beta: float
) -> dict[str, Any]:
    return {
        "seed": seed,
        "beta": beta,
        "holds": all(measurement.holds for measurement in measurements),
        "proofs": [asdict(proof) | {"reaches": proof.reaches_optimum} for proof in proofs],
        "claims": [_claim_as_dict(measurement) for measurement in measurements],
    }


def _claim_as_dict(measurement: Measurement) -> dict[str, Any]:
    bounds = {"low": measurement.claim.low, "high": measurement.claim.high}
    return {
        "name": measurement.claim.name,
        "claim": measurement.claim.sentence,
        # JSON has no infinity: a side without a bound is left out.
        **{side: bound for side, bound in bounds.items() if math.isfinite(bound)},
        "measured": measurement.value if math.isfinite(measurement.value) else None,
        "holds": measurement.holds,
    }
