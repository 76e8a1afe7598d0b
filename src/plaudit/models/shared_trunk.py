"""One frozen language model in memory; policy, reward, value and reference are adapters on it, or none.

h_role = layers(W + ΔW_role), ΔW_role = (α/r) B A (LoRA: Hu et al. 2021, arXiv:2106.09685); the reference is
ΔW = 0 (the Hydra of Santacroce et al. 2023, arXiv:2309.00754).

Nothing is switched on or off. Every role has a tree of modules of its own, and all trees hold the very same
frozen tensors, so a role costs its adapter, its head and some kilobytes. Roles may be between their forward
and backward pass at the same time, a layer that is computed again for the backward pass (activation
checkpointing) meets the adapter that it met before, and an exception has nothing to leave behind.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn
from transformers import PreTrainedModel

from plaudit.batches.pack import Layout
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.models.adapters import merged, save_adapter, with_lora
from plaudit.models.files import LOADING_FAULTS, save_model
from plaudit.models.pad_token import give_padding, padding_for
from plaudit.models.policy import Policy
from plaudit.models.reward import Normalisation, Pooling, RewardModel
from plaudit.models.reward_files import FreshHead, classifier_around, draw_head, save_reward_model
from plaudit.models.settings import LoraSettings

Kind = Literal["policy", "scorer"]
"""What a role does: it gives log-probs, or one number for a completion or token."""

STANDARD: Mapping[str, Kind] = {"policy": "policy", "reward": "scorer", "value": "scorer"}
"""The roles of reinforcement learning from feedback, beside the reference."""

ROLE_FACTS = "plaudit_role.json"
"""The file beside an adapter that says what it is the adapter of."""

ADAPTER = "adapter_model.safetensors"
"""The file in which PEFT keeps an adapter."""


class SharedTrunk(nn.Module):
    """A frozen causal language model, and the roles that share its weights."""

    def __init__(
        self,
        model: nn.Module,
        settings: LoraSettings | None = None,
        *,
        roles: Mapping[str, Kind] = STANDARD,
        head: FreshHead | None = None,
        layout: Layout = "packed",
        attention: str | None = None,
    ):
        """Take over a model that is already on its device, and give each role a fresh adapter.

        Without settings there is no role yet: ``add`` and ``load`` bring them.
        """
        super().__init__()
        if not isinstance(model, PreTrainedModel) or hasattr(model, "peft_config"):
            raise UserError(
                "the shared trunk is a plain model: merge its adapter first, or load it as a role"
            )
        model.requires_grad_(False)
        self.reference = Policy(model, layout=layout, attention=attention)
        self.roles = nn.ModuleDict()
        for name, kind in roles.items() if settings is not None else ():
            self.add(name, kind, settings or LoraSettings(), head)

    @property
    def policy(self) -> Policy:
        """The role of this name, which gives log-probs and can be sampled."""
        return self._as("policy", Policy)

    @property
    def reward(self) -> RewardModel:
        """The role of this name, read by ``rewards``."""
        return self._as("reward", RewardModel)

    @property
    def value(self) -> RewardModel:
        """The role of this name, read by ``values(batch, at="before")``."""
        return self._as("value", RewardModel)

    def __getitem__(self, name: str) -> Policy | RewardModel:
        """Any role by its name."""
        if name not in self.roles:
            there = ", ".join(self.roles) or "none"
            raise UserError(f"the shared trunk has no role named {name!r}; there are: {there}")
        role: Any = self.roles[name]
        return role

    def add(
        self, name: str, kind: Kind, settings: LoraSettings, head: FreshHead | None = None
    ) -> Policy | RewardModel:
        """One more role, with a fresh adapter that changes nothing yet; a scorer's head is drawn."""
        if settings.rank == 0:
            raise UserError("lora.rank is 0, but roles on a shared trunk differ by their adapters alone")
        head = head or FreshHead()
        plain = self._plain_tree(name, kind, head)
        return self._seat(name, with_lora(plain, settings), head.pooling, Normalisation())

    def begin_as(self, name: str, other: str) -> None:
        """Give a role the numbers of another: a value that begins as the reward (Ouyang et al. 2022)."""
        mine, theirs = self[name], self[other]
        to, by = (dict(role.named_parameters()) for role in (mine, theirs))
        if {key: p.shape for key, p in to.items()} != {key: p.shape for key, p in by.items()}:
            raise UserError(f"the roles {name!r} and {other!r} differ in kind, rank or adapted layers")
        for key, parameter in to.items():
            if parameter.requires_grad:
                parameter.data.copy_(by[key].data)
        if isinstance(mine, RewardModel) and isinstance(theirs, RewardModel):
            mine.pooling, mine.normalisation = theirs.pooling, theirs.normalisation

    def use_layout(self, layout: Layout) -> None:
        """Lay the batches of every role out like this from now on."""
        self.reference.use_layout(layout)
        for name in self.roles:
            self[name].use_layout(layout)

    def save(self, name: str, folder: Path) -> None:
        """The role's adapter, with a scorer's head, as a PEFT folder that ``load`` reads back."""
        role = self[name]
        save_adapter(role.model, folder)
        facts: dict[str, Any] = {"kind": "policy"}
        if isinstance(role, RewardModel):
            facts = {"kind": "scorer", "pooling": role.pooling, **asdict(role.normalisation)}
        (folder / ROLE_FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def load(self, name: str, folder: Path) -> Policy | RewardModel:
        """A role from a folder that ``save`` wrote; a PEFT folder from elsewhere is a policy."""
        kind, pooling, normalisation = _facts_of(folder / ROLE_FACTS)
        plain = self._plain_tree(name, kind, FreshHead(pooling=pooling))
        return self._seat(name, _with_saved(plain, folder), pooling, normalisation)

    def save_merged(self, name: str, folder: Path, *, template_of: Path, encoder: Encoder) -> None:
        """The role as an ordinary model folder: a language model's, or a sequence classifier's.

        ``template_of`` is the folder that the trunk began with. The weights are there twice meanwhile.
        """
        role = self[name]
        if isinstance(role, RewardModel):
            whole = role.merged()
            give_padding(whole.base, padding_for(encoder))
            save_reward_model(whole, folder, template_of=template_of, encoder=encoder)
            return
        alone = Policy(merged(role.model), layout="right", attention=role.trunk.plain_attention)
        with alone.as_plain_model() as plain:
            save_model(plain, folder, template_of=template_of, stop_ids=encoder.stop_ids)
        tokenizer = copy.deepcopy(encoder.info.tokenizer)
        tokenizer.chat_template = encoder.template
        tokenizer.save_pretrained(folder)

    def _plain_tree(self, name: str, kind: Kind, head: FreshHead) -> PreTrainedModel:
        """What an adapter is laid on: the language model once more, or a classifier around its layers."""
        _refuse_a_name(name, taken=[*self.roles])
        tree = _tree_of(self.reference.base)
        if kind == "policy":
            return tree
        classifier = classifier_around(tree)
        draw_head(classifier.score, head)
        classifier.score.to(self.reference.device)
        return classifier.eval()

    def _seat(self, name: str, adapted: Any, pooling: Pooling, normalisation: Normalisation) -> Any:
        _merge_only_copies(adapted)
        like = self.reference.trunk
        how: dict[str, Any] = {"layout": like.layout, "attention": like.plain_attention}
        if adapted.get_base_model().get_output_embeddings() is not None:
            self.roles[name] = Policy(adapted, **how)
        else:
            self.roles[name] = RewardModel(adapted, pooling=pooling, normalisation=normalisation, **how)
        return self.roles[name]

    def _as(self, name: str, kind: Any) -> Any:
        role = self[name]
        if not isinstance(role, kind):
            raise UserError(f"the role {name!r} is a {type(role).__name__}, not a {kind.__name__}")
        return role


def _tree_of(model: PreTrainedModel) -> PreTrainedModel:
    """The same modules once more, around the very same tensors."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _merge_only_copies(adapted: Any) -> None:
    """PEFT adds an adapter into the weights in place, and would change every other role with them."""
    adapted.base_model.merge_and_unload = partial(_merged_copy, adapted)
    adapted.base_model.merge_adapter = _refuse_to_merge


def _merged_copy(adapted: Any) -> Any:
    own = copy.deepcopy(adapted)
    del own.base_model.merge_and_unload, own.base_model.merge_adapter
    return own.merge_and_unload()


def _refuse_to_merge(*_: object, **__: object) -> None:
    raise UserError(
        "merging in place would change all roles of the shared trunk: use SharedTrunk.save_merged"
    )


def _with_saved(plain: PreTrainedModel, folder: Path) -> Any:
    """The adapter of a folder, ready to learn on; a number that the folder lacks is an error."""
    from peft import PeftModel

    if not (folder / ADAPTER).is_file():
        raise UserError(f"{folder}: no adapter of a role, {ADAPTER} is missing")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        warnings.filterwarnings("error", message="Found missing adapter keys", category=UserWarning)
        try:
            return PeftModel.from_pretrained(plain, folder, is_trainable=True, autocast_adapter_dtype=False)
        except KeyError as error:
            raise UserError(f"{folder}: the adapter does not fit this model: {error} is missing") from error
        except (*LOADING_FAULTS, UserWarning) as error:
            first = str(error).strip().splitlines()[0]
            raise UserError(f"{folder}: the adapter does not fit this model: {first}") from error


def _facts_of(path: Path) -> tuple[Kind, Pooling, Normalisation]:
    if not path.is_file():
        return "policy", "last", Normalisation()
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        kind, pooling = facts["kind"], facts.get("pooling", "last")
        if kind not in get_args(Kind) or pooling not in get_args(Pooling):
            raise ValueError(f"kind {kind!r}, pooling {pooling!r}")
        level = Normalisation(offset=float(facts.get("offset", 0)), scale=float(facts.get("scale", 1)))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not the facts of a role, it should be as it was saved: {error}") from error
    return kind, pooling, level


def _refuse_a_name(name: str, taken: list[str]) -> None:
    if name in taken:
        raise UserError(f"the shared trunk already has a role named {name!r}; choose another name")
    if not name.isidentifier() or name == "reference" or hasattr(nn.ModuleDict, name):
        raise UserError(f"a role cannot be named {name!r}: take a word of letters, such as reward or helpful")
