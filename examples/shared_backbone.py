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
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn
from transformers import PreTrainedModel

from plaudit.errors import UserError
from plaudit.models.adapters import merge_adapters, save_adapter, with_adapter, with_lora
from plaudit.models.load import save_model
from plaudit.models.padding import padding_for, set_padding
from plaudit.models.policy import Policy
from plaudit.models.reward_model import (
    FreshHead,
    Normalisation,
    Pooling,
    RewardModel,
    classifier_around,
    init_head,
    save_reward_model,
)
from plaudit.models.settings import LoraSettings
from plaudit.tokens.encode import Encoder
from plaudit.tokens.microbatch import Layout

RoleKind = Literal["policy", "scorer"]
"""What a role does: it gives log-probs, or one number for a completion or token."""

STANDARD_ROLES: Mapping[str, RoleKind] = {"policy": "policy", "reward": "scorer", "value": "scorer"}
"""The roles of reinforcement learning from feedback, beside the reference."""

ROLE_FILE = "plaudit_role.json"
"""The file beside an adapter that says what it is the adapter of."""

ADAPTER_FILE = "adapter_model.safetensors"
"""The file in which PEFT keeps an adapter."""


class SharedBackbone(nn.Module):
    """A frozen causal language model, and the roles that share its weights."""

    def __init__(
        self,
        model: nn.Module,
        settings: LoraSettings | None = None,
        *,
        roles: Mapping[str, RoleKind] = STANDARD_ROLES,
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
                "the shared backbone is a plain model: merge its adapter first, or load it as a role"
            )
        # Before adapters exist: all roles share these very
        # tensors, and none may collect gradients on them.
        model.requires_grad_(False)
        self.reference = Policy(model, layout=layout, attention=attention)
        self.roles = nn.ModuleDict()
        for name, kind in roles.items() if settings is not None else ():
            self.add(name, kind, settings or LoraSettings(), head)

    @property
    def policy(self) -> Policy:
        """The role named ``policy``, which gives log-probs and can be sampled."""
        return self._typed_role("policy", Policy)

    @property
    def reward(self) -> RewardModel:
        """The role named ``reward``, read by ``rewards``."""
        return self._typed_role("reward", RewardModel)

    @property
    def value(self) -> RewardModel:
        """The role named ``value``, read by ``values(batch, at="before")``."""
        return self._typed_role("value", RewardModel)

    def __getitem__(self, name: str) -> Policy | RewardModel:
        """Any role by its name."""
        if name not in self.roles:
            role_names = ", ".join(self.roles) or "none"
            raise UserError(f"the shared backbone has no role named {name!r}; there are: {role_names}")
        role: Any = self.roles[name]
        return role

    def add(
        self, name: str, kind: RoleKind, settings: LoraSettings, head: FreshHead | None = None
    ) -> Policy | RewardModel:
        """One more role, with a fresh adapter that changes nothing yet; a scorer's head is drawn."""
        if settings.rank == 0:
            raise UserError("lora.rank is 0, but roles on a shared backbone differ by their adapters alone")
        if settings.base == "4bit":
            raise UserError("lora.base 4bit: roles on a shared backbone are merged into it: leave it out")
        head = head or FreshHead()
        if head.layer is not None:
            raise UserError("roles on a shared backbone have all of its layers: leave out the head's layer")
        plain = self._plain_model(name, kind, head)
        return self._register_role(name, with_lora(plain, settings), head.pooling, Normalisation())

    def copy_role(self, name: str, other: str) -> None:
        """Give a role the numbers of another: a value that begins as the reward (Ouyang et al. 2022)."""
        target, source = self[name], self[other]
        targets, sources = (dict(role.named_parameters()) for role in (target, source))
        if {key: p.shape for key, p in targets.items()} != {key: p.shape for key, p in sources.items()}:
            raise UserError(f"the roles {name!r} and {other!r} differ in kind, rank or adapted layers")
        for key, parameter in targets.items():
            # Only adapters and heads: everything else is one tensor that both roles hold already.
            if parameter.requires_grad:
                parameter.data.copy_(sources[key].data)
        if isinstance(target, RewardModel) and isinstance(source, RewardModel):
            target.pooling, target.normalisation = source.pooling, source.normalisation

    def use_layout(self, layout: Layout) -> None:
        """Lay the batches of every role out like this from now on."""
        self.reference.use_layout(layout)
        for name in self.roles:
            self[name].use_layout(layout)

    def save(self, name: str, folder: Path) -> None:
        """The role's adapter, with a scorer's head, as a PEFT folder that ``load`` reads back."""
        role = self[name]
        save_adapter(role.model, folder)
        fields: dict[str, Any] = {"kind": "policy"}
        if isinstance(role, RewardModel):
            fields = {"kind": "scorer", "pooling": role.pooling, **asdict(role.normalisation)}
        (folder / ROLE_FILE).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")

    def load(self, name: str, folder: Path) -> Policy | RewardModel:
        """A role from a folder that ``save`` wrote; a PEFT folder from elsewhere is a policy."""
        kind, pooling, normalisation = _read_role_file(folder / ROLE_FILE)
        plain = self._plain_model(name, kind, FreshHead(pooling=pooling))
        return self._register_role(name, _load_adapter(plain, folder), pooling, normalisation)

    def save_merged(self, name: str, folder: Path, *, template_of: Path, encoder: Encoder) -> None:
        """The role as an ordinary model folder: a language model's, or a sequence classifier's.

        ``template_of`` is the folder that the backbone began with. The weights are there twice meanwhile.
        """
        role = self[name]
        if isinstance(role, RewardModel):
            merged_model = role.merged()
            set_padding(merged_model.base, padding_for(encoder))
            save_reward_model(merged_model, folder, template_of=template_of, encoder=encoder)
            return
        merged_policy = Policy(
            merge_adapters(role.model), layout="right", attention=role.backbone.plain_attention
        )
        with merged_policy.as_plain_model() as plain:
            save_model(plain, folder, template_of=template_of, stop_ids=encoder.stop_ids)
        tokenizer = copy.deepcopy(encoder.info.tokenizer)
        tokenizer.chat_template = encoder.template
        tokenizer.save_pretrained(folder)

    def _plain_model(self, name: str, kind: RoleKind, head: FreshHead) -> PreTrainedModel:
        """What an adapter is laid on: the language model once more, or a classifier around its layers."""
        _refuse_role_name(name, used_names=[*self.roles])
        # PEFT replaces modules in place, so each role needs modules
        # of its own around the shared tensors.
        tree = _copy_sharing_tensors(self.reference.base)
        if kind == "policy":
            return tree
        classifier = classifier_around(tree)
        init_head(classifier.score, head)
        classifier.score.to(self.reference.device)
        return classifier.eval()

    def _register_role(self, name: str, adapted: Any, pooling: Pooling, normalisation: Normalisation) -> Any:
        _merge_only_copies(adapted)
        backbone = self.reference.backbone
        options: dict[str, Any] = {"layout": backbone.layout, "attention": backbone.plain_attention}
        if adapted.get_base_model().get_output_embeddings() is not None:
            self.roles[name] = Policy(adapted, **options)
        else:
            self.roles[name] = RewardModel(adapted, pooling=pooling, normalisation=normalisation, **options)
        return self.roles[name]

    def _typed_role(self, name: str, kind: Any) -> Any:
        role = self[name]
        if not isinstance(role, kind):
            raise UserError(f"the role {name!r} is a {type(role).__name__}, not a {kind.__name__}")
        return role


def _copy_sharing_tensors(model: PreTrainedModel) -> PreTrainedModel:
    """The same modules once more, around the very same tensors."""
    # deepcopy asks this memo first: a tensor that is "copied
    # already" is handed out as it is, ties included.
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _merge_only_copies(adapted: Any) -> None:
    """PEFT adds an adapter into the weights in place, and would change every other role with them."""
    adapted.base_model.merge_and_unload = partial(_merged_copy, adapted)
    adapted.base_model.merge_adapter = _refuse_to_merge


def _merged_copy(adapted: Any) -> Any:
    adapted_copy = copy.deepcopy(adapted)
    # The copy carries the override as well, which would call itself for ever.
    del adapted_copy.base_model.merge_and_unload, adapted_copy.base_model.merge_adapter
    return adapted_copy.merge_and_unload()


def _refuse_to_merge(*_: object, **__: object) -> None:
    raise UserError(
        "merging in place would change all roles of the shared backbone: use SharedBackbone.save_merged"
    )


def _load_adapter(plain: PreTrainedModel, folder: Path) -> Any:
    """The adapter of a folder, ready to learn on; a number that the folder lacks is an error."""
    if not (folder / ADAPTER_FILE).is_file():
        raise UserError(f"{folder}: no adapter of a role, {ADAPTER_FILE} is missing")
    return with_adapter(plain, folder)


def _read_role_file(path: Path) -> tuple[RoleKind, Pooling, Normalisation]:
    if not path.is_file():
        return "policy", "last", Normalisation()
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        kind, pooling = fields["kind"], fields.get("pooling", "last")
        if kind not in get_args(RoleKind) or pooling not in get_args(Pooling):
            raise ValueError(f"kind {kind!r}, pooling {pooling!r}")
        normalisation = Normalisation(
            offset=float(fields.get("offset", 0)), scale=float(fields.get("scale", 1))
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not the facts of a role, it should be as it was saved: {error}") from error
    return kind, pooling, normalisation


def _refuse_role_name(name: str, used_names: list[str]) -> None:
    if name in used_names:
        raise UserError(f"the shared backbone already has a role named {name!r}; choose another name")
    # A ModuleDict keeps modules among its attributes: a role named "keys" would collide with a method.
    if not name.isidentifier() or name == "reference" or hasattr(nn.ModuleDict, name):
        raise UserError(f"a role cannot be named {name!r}: take a word of letters, such as reward or helpful")
