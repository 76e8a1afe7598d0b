"""The weights of a policy as a server takes them, and the folder where they are handed over.

A policy may be divided over ranks, and may have adapters: a server is sent whole matrices with these merged,
by the names of a Hugging Face folder, and a head of its own name where it is tied to the embedding; or it is
sent the adapters alone, as a PEFT folder.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from plaudit.engine.distributed import full_tensor
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.serving.weight_files import Manifest, changes, manifest_of, root_of, write_weights

DELTA_SHARE = 0.5
"""Changes are sent where they take at most this share of the bytes of the whole."""
LONGEST_CHAIN = 16
"""After so many files of changes a whole one follows, so that a server that is new has little to read."""


def served_tensors(policy: Policy, dtype: torch.dtype, *, keep: bool) -> dict[str, Tensor]:
    """All weights in these numbers on the CPU, where ``keep``; every rank of a divided policy must come."""
    base: Any = policy.base
    layers = {name: layer for name, layer in base.named_modules() if hasattr(layer, "get_delta_weight")}
    state: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, parameter in base.named_parameters(remove_duplicate=False):
            path, _, kind = name.rpartition(".")
            owner = path.removesuffix(".base_layer")
            if "lora_" in name:
                continue
            whole = full_tensor(parameter.detach())
            if kind == "weight" and owner != path and owner in layers:
                whole = whole + _change_by_adapters(layers[owner], whole)
            if keep:
                state[f"{owner}.{kind}"] = whole.to(device="cpu", dtype=dtype, copy=True)
    # As a folder names them: families of experts are one tensor here, and one for each expert there.
    return {name: tensor.contiguous() for name, tensor in revert_weight_conversion(base, state).items()}


def _change_by_adapters(layer: Any, whole: Tensor) -> Tensor:
    changed = torch.zeros_like(whole)
    for adapter in layer.active_adapters:
        changed += full_tensor(layer.get_delta_weight(adapter)).to(whole.dtype)
    return changed


def adapter_tensors(policy: Policy, dtype: torch.dtype, *, keep: bool) -> dict[str, Tensor]:
    """The adapters alone, as a PEFT folder names them; every rank of a divided policy must come."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in policy.model.named_parameters():
        if "lora_" not in name:
            continue
        whole = full_tensor(parameter.detach())
        if keep:
            key = name.replace(".default", "")
            tensors[key] = whole.to(device="cpu", dtype=dtype, copy=True).contiguous()
    return tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Weights that lie ready for servers, as the files to be read one after the other.
    Example: ``Handover(folder).write(tensors, "run-1")``."""

    version: str
    files: tuple[tuple[Path, str], ...]
    """Each with the root that the weights have behind it; the first one is whole."""
    bytes_written: int
    manifest: Manifest

    @property
    def updates(self) -> list[dict[str, str]]:
        return [{"path": str(path), "root": root} for path, root in self.files]


class Handover:
    """The folder through which weights go: two versions of them at most, and a third one for the proof."""

    def __init__(self, folder: Path, adapter: Any = None) -> None:
        """A folder that trainer and servers see under the same name; what lies in it is removed.
        ``adapter`` holds PEFT's settings of the adapters that are handed over, where only those are."""
        self.folder, self._adapter = folder, adapter
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._chain: list[tuple[Path, str]] = []
        self._last: dict[str, Tensor] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def write(self, tensors: Mapping[str, Tensor], version: str, *, aside: bool = False) -> Delivery:
        """Lay weights ready; ``aside``: whole, and nothing that later ones are changes of."""
        manifest = manifest_of(tensors)
        self._refuse_other_tensors(manifest)
        root = root_of(manifest)
        path = self.folder / f"{version}.safetensors"
        whole = sum(tensor.nbytes for tensor in tensors.values())
        changed = {} if aside or self._adapter is not None else self._changes(tensors, whole)
        size = sum(tensor.nbytes for tensor in changed.values()) if changed else whole
        if shutil.disk_usage(self.folder).free < 1.1 * size:
            raise UserError(
                f"{self.folder}: no room for {size / 2**20:,.0f} MiB of weights on their way to the servers; "
                "make room, or name another folder that they see too (--server.folder)"
            )
        if self._adapter is not None:
            path = self.folder / version / "adapter_model.safetensors"
            self._adapter.save_pretrained(path.parent)
        behind = self._chain[-1][1] if changed else None
        written = write_weights(path, changed or tensors, manifest, behind=behind)
        if aside:
            files = [(path, root)]
        else:
            files = [*(self._chain if changed else ()), (path, root)]
            # A server that is still reading an older file has it open; others are sent the new ones.
            for old, _ in set(self._chain) - set(files):
                old.unlink(missing_ok=True)
                if old.parent != self.folder:
                    shutil.rmtree(old.parent)
            self._chain, self._last = files, dict(tensors)
        return Delivery(version=version, files=tuple(files), bytes_written=written, manifest=manifest)

    def _refuse_other_tensors(self, manifest: Manifest) -> None:
        # Every delivery has the tensors of the first: a server takes one that lacks some without a word.
        shapes = {name: facts.shape for name, facts in manifest.items()}
        self._shapes = self._shapes or shapes
        if differing := sorted({*shapes.items()} ^ {*self._shapes.items()}):
            name, shape = differing[0]
            raise UserError(
                f"weights for the servers differ in their tensors from those before: {name} {shape}"
            )

    def _changes(self, tensors: Mapping[str, Tensor], whole: int) -> dict[str, Tensor]:
        # What has changed since the last ones, where that is little; else nothing.
        if not self._chain or len(self._chain) > LONGEST_CHAIN:
            return {}
        changed = changes(self._last, tensors)
        return changed if sum(tensor.nbytes for tensor in changed.values()) <= DELTA_SHARE * whole else {}

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def refuse_other_model(manifest: Manifest, stored: Mapping[str, tuple[int, ...]], url: str) -> None:
    """Refuse to send to a server whose model has other tensors; ``stored`` are the shapes of its folder."""
    shapes = {name: facts.shape for name, facts in manifest.items()}
    for name, shape in stored.items():
        if name not in shapes:
            raise UserError(f"{url} serves a model with {name}, for which this policy has no weights")
        if shapes[name] != shape:
            raise UserError(
                f"{url} serves a model whose {name} has the shape {shape}; the policy's has {shapes[name]}"
            )
