"""Any row, measured against π*: ``prove(row)`` for a loss of one's own, ``check()`` for all claims.

row = PreferenceRow(loss=mine, beta=0.1)
print(prove(row).words)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from plaudit.errors import UserError
from plaudit.proof.claim import Lab, Measured, at_rest, feedback, lab, measured, settled
from plaudit.proof.claims_absolute import ABSOLUTE
from plaudit.proof.claims_ascent import ASCENTS
from plaudit.proof.claims_best import BEST
from plaudit.proof.claims_biased import BIASED
from plaudit.proof.claims_data import OF_DATA
from plaudit.proof.claims_leash import LEASHES
from plaudit.proof.claims_old_answers import OF_OLD_ANSWERS
from plaudit.proof.claims_policy import OF_POLICIES
from plaudit.proof.claims_reach import REACHED
from plaudit.proof.claims_two import WANTED
from plaudit.proof.claims_unbiased import UNBIASED
from plaudit.proof.exact import kl, mean_reward, objective, optimum, total_variation
from plaudit.proof.language import Language, language
from plaudit.proof.learn import Row, slope, task
from plaudit.recipes.preference_table import PREFERENCES

ESTIMATORS = (*UNBIASED, *BIASED, *OF_OLD_ANSWERS, *LEASHES, *ASCENTS)
"""What is claimed of the estimators of policy optimisation."""
CLAIMS = (*REACHED, *WANTED, *ABSOLUTE, *OF_DATA, *OF_POLICIES, *ESTIMATORS, *BEST)
"""Everything that is claimed."""
TOPICS = tuple(dict.fromkeys(claim.name for claim in CLAIMS if claim.name not in PREFERENCES))
"""Claims that are not of one preference loss: of data, and of policy optimisation."""
NAMES = (*PREFERENCES, *TOPICS)
"""What can be proven by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a row comes to on exact preferences, beside the optimum π* ∝ π_ref exp(r / β).

    Example: ``prove("dpo").reaches``
    """

    name: str
    """The algorithm, or what a loss of one's own was called."""
    beta: float
    """β of the row and of π*."""
    slope: float
    """Largest entry of the expected loss's gradient by the logits at π*; 0: π* is a place to rest."""
    distance: float
    """Total variation between what was learnt and π*, for the worst prompt."""
    kl: float
    """KL(π ‖ π_ref) of what was learnt, in nats, mean of the prompts."""
    reward: float
    """E r of what was learnt."""
    lost: float
    """J(π*) − J(π): what is missing of the objective E r − β KL."""

    @property
    def rests(self) -> bool:
        """Whether the loss has no slope at π*."""
        return self.slope <= 1e-8

    @property
    def reaches(self) -> bool:
        """Whether π* is where the loss has no slope, and where learning ends."""
        return self.rests and self.distance <= 1e-4

    @property
    def words(self) -> str:
        """The figures in a sentence."""
        end = f"learning ends {self.distance:.1e} from π* (total variation), {self.lost:.1e} short of its J"
        if self.reaches:
            return f"{self.name} reaches π*: slope there {self.slope:.1e}; {end}."
        if self.rests:
            return f"{self.name} could rest at π* (slope {self.slope:.1e}) and does not get there: {end}."
        return f"{self.name} does not rest at π* (slope {self.slope:.1e}): {end}."


def prove(
    row: Row | str, *, spoken: Language | None = None, beta: float | None = None, name: str = "this loss"
) -> Proof:
    """The row, or the algorithm of that name at β (0.5 if not told), in the language (seed 0 if not told).

    >>> prove("dpo").reaches, prove("ipo").reaches
    (True, False)
    """
    if isinstance(row, str):
        place = replace(
            lab(beta=0.5 if beta is None else beta), **({} if spoken is None else {"spoken": spoken})
        )
        return prove_named(row, place)
    if beta is not None:
        raise UserError("beta is said twice: a row has its own; make the row with the β that you mean")
    if not row.beta > 0:
        raise UserError(f"the row's beta is {row.beta:g}: π* needs a β above 0, the one of your loss")
    spoken = language() if spoken is None else spoken
    return _proof(name, row, spoken, settled(row, spoken))


def prove_named(name: str, place: Lab) -> Proof:
    """The algorithm of that name in a lab, at the lab's β."""
    row = place.row(name)
    # ORPO has no β: its log-odds are the reward itself.
    return _proof(name, replace(row, beta=place.beta), place.spoken, at_rest(place, name))


def check(names: Sequence[str] = NAMES, place: Lab | None = None) -> Iterator[Measured]:
    """The claims of these algorithms and topics, one after another as they are measured.

    >>> all(found.holds for found in check(["wpo"]))
    True
    """
    place = lab() if place is None else place
    for claim in CLAIMS:
        if claim.name in names:
            yield measured(claim, place)


def _proof(name: str, row: Row, spoken: Language, logp_PY: Float[Tensor, "P Y"]) -> Proof:
    star_PY = optimum(spoken, row.beta)
    return Proof(
        name=name,
        beta=row.beta,
        slope=slope(task(row, feedback(row, spoken), spoken), star_PY),
        distance=total_variation(logp_PY, star_PY),
        kl=kl(logp_PY, spoken.ref_logp_PY).mean().item(),
        reward=mean_reward(logp_PY, spoken),
        lost=objective(star_PY, spoken, row.beta) - objective(logp_PY, spoken, row.beta),
    )
