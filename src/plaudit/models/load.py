"""Hugging Face folders in and out, on the device that a user means.

Weights are safetensors only, and no code from a folder is ever run.
"""

import copy
import json
import math
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from plaudit.errors import UserError
from plaudit.files.hub import ADAPTER_FOLDER
from plaudit.files.model_folder import (
    PROCESSOR_FILES,
    WeightPlaces,
    check_model_folder,
    check_weight_files,
    read_json_object,
    sees_pictures,
)
from plaudit.models.adapters import LOADING_FAULTS, first_lines, merge_adapters, with_adapter
from plaudit.models.attention import has_soft_caps
from plaudit.models.backbone import register_classifier
from plaudit.tokens.tokenizer import known_architecture, quiet_library


def device_of(name: str) -> torch.device:
    """auto takes a GPU where there is one; auto and cuda without a number mean the GPU of this process."""
    gpu_count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    process = int(os.environ.get("LOCAL_RANK", "0"))
    # cuDNN's attention makes a plan for each new length, and almost every segment of a batch has a new one.
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    if name == "auto":
        return torch.device("cuda", process) if gpu_count else torch.device("cpu")
    unknown = UserError(f"device {name!r}: use auto, cpu, cuda, or one of several as cuda:1")
    try:
        requested = torch.device(name)
    except RuntimeError as error:
        raise unknown from error
    if requested.type not in ("cpu", "cuda"):
        raise unknown
    if requested.type == "cpu":
        return torch.device("cpu")
    if not gpu_count:
        raise UserError(f"device {name} was asked for, but torch sees no CUDA device: use --device cpu")
    gpu = torch.device("cuda", process if requested.index is None else requested.index)
    if gpu.index >= gpu_count:
        raise UserError(f"there is no {gpu}: torch sees {gpu_count} GPUs. Start at most one process for each")
    return gpu


DtypeName = Literal["auto", "float32", "bfloat16", "float64"]
"""Names of the numbers that matrix products are made in."""

REWARD_FILE = "plaudit_reward.json"
"""The file that makes a folder a reward model of plaudit's."""

# transformers takes `tie_weights` off its class while it builds a model; two threads that give it back out
# of order would leave every later model of the process untied.
ONE_MODEL_AT_A_TIME = threading.Lock()
"""Held by whoever lets transformers make a model."""


@contextmanager
def loading(folder: Path, fails: str) -> Iterator[None]:
    """While this lasts a fault of the libraries is a sentence about the folder, and the only one."""
    try:
        with ONE_MODEL_AT_A_TIME, quiet_library():
            yield
    except UserError:
        raise
    except LOADING_FAULTS as error:
        raise UserError(
            f"{folder}: {fails}: {first_lines(error)}; if config.json is as it was, copy the model again"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """In which numbers weights are kept and products are made.
    Example: bfloat16 is ``Precision(weights=torch.float32, products=torch.bfloat16)``: small updates would
    vanish in bfloat16 weights."""

    weights: torch.dtype
    products: torch.dtype

    @property
    def mixed(self) -> bool:
        """True when products are made in fewer digits than weights are kept in."""
        return self.weights != self.products


def precision(name: str, device: torch.device) -> Precision:
    """The numbers behind a name; auto is float32 on a CPU and bfloat16 on a GPU that has it."""
    if name not in get_args(DtypeName):
        raise UserError(f"dtype {name!r}: use {', '.join(get_args(DtypeName))}")
    # A plan asks for a GPU of another machine.
    here = device.type == "cuda" and torch.cuda.is_available()
    half = device.type == "cuda" and (not here or torch.cuda.is_bf16_supported(including_emulation=False))
    if name == "auto":
        name = "bfloat16" if half else "float32"
    if name == "bfloat16" and device.type == "cuda" and not half:
        raise UserError(f"--dtype bfloat16: {device} computes in it by emulation only; use --dtype float32")
    weights = torch.float64 if name == "float64" else torch.float32
    return Precision(weights=weights, products=getattr(torch, name))


def load_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, merge: bool = True
) -> PreTrainedModel:
    """The causal language model of a folder, every weight present, dropout off.

    An adapter on its base (`hub.local_path`) is merged into it, or with ``merge`` off left out.
    """
    if is_reward_folder(folder):
        raise UserError(
            f"{folder}: this is a reward model: it scores answers and cannot write any; "
            "give the folder of a language model"
        )
    model = load_as(language_kind(folder), folder, dtype=dtype, device=device)
    if merge and (folder / ADAPTER_FOLDER).is_dir():
        merged = merge_adapters(with_adapter(model, folder / ADAPTER_FOLDER))
        # Merged, the base's weights are as PEFT has left them: frozen.
        return merged.requires_grad_(True)
    return model


def language_kind(folder: Path) -> Any:
    """The class of transformers that makes a folder's model: one that sees, or one of words alone."""
    kind = str(check_model_folder(folder).get("model_type"))
    seeing: Any = AutoModelForImageTextToText._model_mapping
    sees = kind in CONFIG_MAPPING and CONFIG_MAPPING[kind] in seeing and sees_pictures(folder)
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def is_reward_folder(folder: Path) -> bool:
    """Whether the folder says that it holds a scorer in place of a language model."""
    return (folder / REWARD_FILE).is_file() or any(
        name.endswith("ForSequenceClassification") for name in architectures(folder)
    )


def architectures(folder: Path) -> list[str]:
    """The classes that config.json names; none where there is no such file."""
    path = folder / "config.json"
    names = read_json_object(path).get("architectures") if path.exists() else None
    return [str(name) for name in names] if isinstance(names, list) else []


def load_as(auto: Any, folder: Path, *, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model of a folder as one of transformers' auto classes makes it, or an error in words.
    Dropout is set to zero since log-probs must not depend on chance; ``save_model`` writes the folder's own
    rates back."""
    _refuse_unknown_architecture(folder, auto)
    files = check_weight_files(folder)
    with loading(folder, "the model cannot be loaded"):
        config = _config_without_dropout(folder)
        refuse_other_weights(folder, _meta_model(auto, config), files)
        model, report = auto.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            # So that all mismatches are reported, and refused in our words, not the library's first one.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        _refuse_missing_weights(folder, report)
        keep_soft_caps(model)
        model = model.to(device)
    refuse_what_is_no_number(folder, model.named_parameters())
    return model


def empty_model(folder: Path, kind: Any = None, **overrides: Any) -> PreTrainedModel:
    """The model that a folder's config.json describes, with shapes and no numbers; weights need not be there.
    ``kind`` is one of transformers' auto classes, by default that of language models; ``overrides`` are put
    in place of what config.json says."""
    auto = kind or language_kind(folder)
    _refuse_unknown_architecture(folder, auto)
    with loading(folder, "no model can be made of config.json"):
        return _meta_model(auto, _config_without_dropout(folder, **overrides))


def _config_without_dropout(folder: Path, **overrides: Any) -> PreTrainedConfig:
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True, **overrides)
    # Off by configuration and not by `eval()`: training mode is still needed for checkpointing.
    _set_rates(config, dict.fromkeys(_dropouts(config), 0.0))
    return config


def _meta_model(auto: Any, config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        # A copy: building writes into a config what it decided.
        return auto.from_config(copy.deepcopy(config), dtype=torch.float32)


def has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def refuse_other_weights(folder: Path, expected: PreTrainedModel, places: WeightPlaces) -> None:
    """Before memory is taken: what is missing would be made at random, and what is too much left out."""
    wanted = expected.num_parameters()
    there = sum(math.prod(shape) for _, shape in places.values())
    if wanted > 2 * there + 1000:
        raise UserError(
            f"{folder}: config.json describes a model of {wanted:,} weights, and the files hold "
            f"{there:,}: they do not belong together; copy the model again"
        )
    names = {*expected.state_dict()}
    layers = {re.sub(r"\d+", "#", name) for name in names}
    ignored = "|".join(expected._keys_to_ignore_on_load_unexpected or ("(?!)",))
    # A layer of a kind that the model has, with a number that it has not: config.json says too few layers.
    for name in sorted(places.keys() - names):
        if re.sub(r"\d+", "#", name) in layers and not re.search(ignored, name):
            raise UserError(
                f"{folder}: the files hold {name}, for which the model of config.json has no place: "
                "it says fewer layers than there are; copy the model again"
            )


def keep_soft_caps(model: PreTrainedModel) -> None:
    """Attention written out, where a config caps its scores (Gemma 2) and transformers would not."""
    # Its 5.17 takes torch's fused attention for such a model, which has no caps, and does not say so.
    if model.config._attn_implementation == "sdpa" and has_soft_caps(model.config):
        model.set_attn_implementation("eager")


def refuse_what_is_no_number(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    # A weight that is NaN spoils every answer, and the fault would be looked for elsewhere.
    for name, weight in weights:
        # Smallest and largest see NaN as well, and need no memory beside the weights.
        if weight.numel() and not all(bound.isfinite() for bound in torch.aminmax(weight.detach())):
            bad = int((~weight.isfinite()).sum())
            raise UserError(
                f"{folder}: {bad:,} of {weight.numel():,} numbers of {name} are NaN or infinite: the file is "
                "damaged, or the run that wrote it diverged; copy the model again, or take one from before"
            )


def _refuse_missing_weights(folder: Path, report: dict[str, Any]) -> None:
    """Where a file has nothing that fits, transformers would draw weights at random."""
    faults = [f"{name} is missing" for name in sorted(report["missing_keys"])]
    faults += [
        f"{name} is {'×'.join(map(str, actual)) or 'one number'} and should be {'×'.join(map(str, expected))}"
        for name, actual, expected in sorted(report["mismatched_keys"])
    ]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise UserError(
            f"{folder}: the weights do not belong to this config.json: {', '.join(faults[:3])}{more}; "
            "they would start at random"
        )


def save_model(model: PreTrainedModel, folder: Path, *, template_of: Path, stop_ids: Sequence[int]) -> None:
    """Write weights, configuration and generation settings; the end-of-turn tokens stop generation.
    Float32 weights are written in the numbers of the folder that the model began with (`stored_dtype`)."""
    # The model's own object is borrowed and given back: it goes on being trained after an intermediate save.
    config = model.config
    original = AutoConfig.from_pretrained(template_of, trust_remote_code=False, local_files_only=True)
    # Some language models are a part of what the folder describes, and their config is that part's.
    rates = _dropouts(original if original.model_type == config.model_type else original.get_text_config())
    _set_rates(config, rates)
    attention = config._attn_implementation
    settings = model.generation_config if model.can_generate() else None
    try:
        if settings is not None:
            model.generation_config = GenerationConfig()
        model.save_pretrained(folder, safe_serialization=True)
        for name in PROCESSOR_FILES:
            if (template_of / name).is_file():
                shutil.copyfile(template_of / name, folder / name)
        _store_as(folder, template_of)
        if settings is not None:
            _write_generation_settings(folder / "generation_config.json", settings, stop_ids)
    finally:
        _set_rates(config, dict.fromkeys(rates, 0.0))
        config._attn_implementation = attention
        if settings is not None:
            model.generation_config = settings


_HALVES = {"BF16": torch.bfloat16, "F16": torch.float16}


def stored_dtype(folder: Path) -> torch.dtype | None:
    """The numbers that most of a folder's weights are stored in, where they are of 16 bits; else None."""
    sizes = Counter[str]()
    for kind, size in _stored_tensors(folder).values():
        sizes[kind] += size
    return _HALVES.get(sizes.most_common(1)[0][0]) if sizes else None


def _stored_tensors(folder: Path) -> dict[str, tuple[str, int]]:
    """The kind of numbers and how many there are of each tensor, by name; from the headers alone."""
    stored: dict[str, tuple[str, int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                part = file.get_slice(name)
                stored[name] = part.get_dtype(), math.prod(part.get_shape())
    return stored


def _store_as(folder: Path, template: Path) -> None:
    dtype = stored_dtype(template)
    if dtype is None:
        return
    # A router or a state matrix may be stored finer than the rest.
    finer = {name for name, (kind, _) in _stored_tensors(template).items() if kind not in _HALVES}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            tensors = {name: _rounded(file.get_tensor(name), dtype, name in finer) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, path, metadata={"format": "pt"})
    config = folder / "config.json"
    named = str(dtype).removeprefix("torch.")
    config.write_text(config.read_text("utf-8").replace('dtype": "float32"', f'dtype": "{named}"'), "utf-8")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        fields = json.loads(index.read_text(encoding="utf-8"))
        sizes = (size * (4 if kind == "F32" else 2) for kind, size in _stored_tensors(folder).values())
        fields["metadata"]["total_size"] = sum(sizes)
        index.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _rounded(tensor: torch.Tensor, dtype: torch.dtype, keep: bool) -> torch.Tensor:
    if keep or tensor.dtype != torch.float32:
        return tensor
    rounded = tensor.to(dtype)
    # float16 ends at 65,504.
    return rounded if rounded.isfinite().all() else tensor


def _write_generation_settings(path: Path, settings: GenerationConfig, stop_ids: Sequence[int]) -> None:
    """Write them past `save_pretrained`, and name the end-of-turn tokens."""
    # Many a released model has settings that contradict each other (a temperature, but no sampling);
    # transformers writes them back only as long as nobody has touched them, and its 5.17 not at all.
    settings.to_json_file(path, use_diff=True, keys_to_pop=["compile_config"])
    if stop_ids:
        written = json.loads(path.read_text(encoding="utf-8"))
        written["eos_token_id"] = list(stop_ids) if len(stop_ids) > 1 else stop_ids[0]
        path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n", encoding="utf-8")


_Path = tuple[str, ...]


def _dropouts(config: PreTrainedConfig) -> dict[_Path, float]:
    """Every rate above 0 by the names that lead to it; a model of several parts has a config for each."""
    rates: dict[_Path, float] = {}
    for name in config.to_dict():
        value = getattr(config, name, None)
        if isinstance(value, PreTrainedConfig):
            rates |= {(name, *path): rate for path, rate in _dropouts(value).items()}
        # GPT-2 says attn_pdrop, most others attention_dropout.
        elif ("dropout" in name or "pdrop" in name) and isinstance(value, float) and value > 0:
            rates[(name,)] = value
    return rates


def _set_rates(config: PreTrainedConfig, rates: Mapping[_Path, float]) -> None:
    for (*within, name), rate in rates.items():
        setattr(reduce(getattr, within, config), name, rate)


def _refuse_unknown_architecture(folder: Path, auto: Any) -> None:
    path = folder / "config.json"
    kind = known_architecture(path, check_model_folder(folder))
    register_classifier(CONFIG_MAPPING[kind])
    if CONFIG_MAPPING[kind] not in auto._model_mapping:
        wanted = "classifier" if auto is AutoModelForSequenceClassification else "language model"
        raise UserError(
            f"{path}: its model_type is {kind!r}, of which transformers makes no {wanted}; give another "
            "model (one that sees pictures needs its processor's files)"
        )
