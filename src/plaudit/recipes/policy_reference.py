"""The policy that a new one is held near, or only measured against: asked at every round."""

from __future__ import annotations

from functools import partial

from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.models.reference import Beneath, Beside
from plaudit.recipes.learner import Start
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.policies import load_frozen
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.references import EVERY, SHARE, Prepared, nobody
from plaudit.training.companion import Follower
from plaudit.training.lineage import hash_path


def reference_of(config: PolicyConfig, policy: Policy, start: Start, *, needed: bool) -> Prepared:
    """The reference of a policy that is loaded and still whole; ``needed`` by the loss or the reward."""
    settings = config.reference
    if settings.kind == "precomputed":
        raise UserError("reference.kind precomputed: answers are new at every round; use live, or average")
    if settings.kind == "none":
        if needed:
            raise UserError(
                "reference.kind none: this algorithm holds the policy near its reference; add "
                "--policy.divergence none to do without"
            )
        return nobody()
    folder = settings.model or config.model
    same = folder == config.model or hash_path(folder) == hash_path(config.model)
    products = partial(arithmetic, start.numbers, start.ranks.device)
    temperature = config.draw.temperature
    if same and config.lora.rank and settings.kind != "average":
        note = "reference: the model beneath the adapters, so there is no second one in memory"
        beneath = Beneath(policy, products, temperature=temperature)
        return Prepared(reference=beneath, same=True, notes=(note,), live=True)
    frozen = load_frozen(folder, policy)
    place(frozen, config, start.ranks)
    beside = Beside(frozen, products, temperature=temperature)
    if settings.kind != "average":
        note = f"reference: {folder}, beside the policy in memory"
        return Prepared(reference=beside, same=same, notes=(note,), live=True)
    if config.lora.rank:
        raise UserError(
            "reference.kind average follows all weights of the policy, and LoRA trains only adapters: leave "
            "out --lora.rank, or take another kind of reference"
        )
    every, share = settings.every or EVERY, settings.share or SHARE
    how = "becomes the policy" if share == 1 else f"moves {share:g} of the way towards the policy"
    return Prepared(
        reference=beside,
        same=same,
        notes=(f"reference: beside the policy in memory; every {every} steps it {how}",),
        companions={"reference": Follower(frozen, of=policy, every=every, share=share)},
        live=True,
    )
