"""A model folder, looked at by its files alone: what no library may be handed, or would end in a traceback.

Sizes, token numbers and the names of files are bounded here, before anything is built or read from them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.files.exact_json import object_of_pairs

_CONFIG, _GENERATION = "config.json", "generation_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"

_LIMITS = {
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"): 1024,
    ("num_attention_heads", "n_head", "n_heads", "num_key_value_heads", "num_heads"): 1 << 16,
    ("num_experts", "num_local_experts", "n_routed_experts"): 1 << 14,
    ("hidden_size", "n_embd", "d_model", "intermediate_size", "n_inner", "head_dim"): 1 << 22,
    ("vocab_size",): 1 << 26,
    ("max_position_embeddings", "n_positions"): 1 << 40,
}
"""The largest size of each kind: some ten times that of any model there is. A model of a million layers would
take hours to build before anything could be said of it."""
_NONE_OF_IT = {"num_experts", "num_local_experts", "n_routed_experts"}
"""Sizes that may be 0."""
_TOKEN_NUMBERS = ("eos_token_id", "pad_token_id")
_FLOATS = {"F64", "F32", "F16", "BF16"}

_SLIGHT = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps")
"""What is added to a variance: from 0 to 1."""
_ABOVE_ZERO = (
    *("rope_theta", "rotary_emb_base", "rope_local_base_freq", "factor", "partial_rotary_factor"),
    *("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale"),
    *("logits_scaling", "attention_multiplier", "embedding_multiplier"),
)
"""What is divided by, raised to a power, or would make all scores alike."""
_MOST = 1e12
"""A number of a config beyond this is no model's: what is divided by it vanishes without a word."""


def read_json_object(path: Path) -> dict[str, Any]:
    refuse_special_file(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=object_of_pairs)
    except OSError as error:
        raise UserError(f"{path}: the file cannot be read ({error.strerror}); see to it") from error
    except RecursionError as error:
        raise UserError(f"{path}: not valid JSON: thousands of brackets in each other{_AGAIN}") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}{_AGAIN}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: this is a JSON {type(value).__name__} and not an object{_AGAIN}")
    return value


def refuse_special_file(path: Path) -> None:
    """Complain about a pipe or a device, which could be waited for and read for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: this is a pipe or a device and no file; put a file in its place")


_AGAIN = "; repair the file, or copy the model again"


def check_model_folder(folder: Path) -> dict[str, Any]:
    """The config of a model folder; complains about one that could not be loaded, or should not be."""
    refuse_other_folder(folder)
    path = folder / _CONFIG
    if not path.exists() and not path.is_symlink():
        contents = ", ".join(sorted(entry.name for entry in folder.iterdir())[:6]) or "nothing"
        raise UserError(f"{folder}: not a model folder, config.json is missing (it holds {contents})")
    config = read_json_object(path)
    for part in _parts(config):
        _refuse_quantised(path, part)
        _refuse_fetched_code(path, part)
        _check_sizes(path, part)
    _check_numbers(path, config)
    for file in (path, folder / _GENERATION):
        if file.is_file():
            _check_token_numbers(file, read_json_object(file), vocabulary_size(config))
    return config


def refuse_other_folder(folder: Path) -> None:
    """Complain about what is no folder, about a run's folder, and about one that holds an adapter alone."""
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "no such folder"
        raise UserError(f"{folder}: {what}; --model takes a Hugging Face model folder")
    for entry in folder.iterdir():
        refuse_special_file(entry)
    if (folder / _CONFIG).exists():
        return
    if (folder / "model" / _CONFIG).is_file():
        raise UserError(f"{folder}: this is a run's folder; its model lies in {folder / 'model'}: give that")
    if (folder / "adapter_config.json").is_file():
        raise UserError(f"{folder}: {_describe_adapter(folder)}")
    if unfinished := explain_unfinished_run(folder):
        raise UserError(f"{folder}: {unfinished}")


def explain_unfinished_run(folder: Path) -> str | None:
    """Why a run's folder holds no model, and what to do about it; None for one that is no run's."""
    checkpoints = folder / "checkpoints"
    if not checkpoints.is_dir() and not (folder / "config.yaml").is_file():
        return None
    if checkpoints.is_dir() and any(not path.name.startswith(".") for path in checkpoints.iterdir()):
        return "this run has no model/ yet: it has not finished; the same command goes on with it"
    return (
        "this run has learnt nothing yet: it was refused, or ended before its first checkpoint; start its "
        "command again, and it says why"
    )


def vocabulary_size(config: Mapping[str, Any]) -> int | None:
    """How many tokens a model of this config knows; None where config.json leaves it to a default."""
    sizes = [part["vocab_size"] for part in _parts(config) if isinstance(part.get("vocab_size"), int)]
    return sizes[0] if sizes else None


PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


def sees_pictures(folder: Path) -> bool:
    """Whether a folder holds a model with a tower for pictures, and what prepares them."""
    path = folder / _CONFIG
    has_processor = any((folder / name).is_file() for name in PROCESSOR_FILES)
    return has_processor and path.is_file() and "vision_config" in read_json_object(path)


WeightPlaces = Mapping[str, tuple[Path, tuple[int, ...]]]
"""By its name, in which file a weight lies and its shape."""


def check_weight_files(folder: Path) -> WeightPlaces:
    """Where a folder's weights are; complains about files that are missing, cut, elsewhere, or no floats."""
    places: dict[str, tuple[Path, tuple[int, ...]]] = {}
    for path in _weight_paths(folder):
        for name, (kind, shape) in _tensors_of(path):
            # Buffers of older models are masks and positions; weights are floats or they are quantised.
            if name.endswith("weight") and kind not in _FLOATS:
                raise UserError(
                    f"{path}: {name} is kept as {kind}: these weights are quantised, and plaudit reads "
                    "floats; give the model that was quantised"
                )
            places[name] = path, tuple(shape)
    return places


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield config
    if isinstance(text := config.get("text_config"), Mapping):
        yield text


def _describe_adapter(folder: Path) -> str:
    adapter = read_json_object(folder / "adapter_config.json")
    base = adapter.get("base_model_name_or_path") or "a base that it does not name"
    what = f"this is an adapter ({adapter.get('peft_type')} for {base}) and no whole model"
    whole = folder.parent / "model"
    if (whole / _CONFIG).is_file():
        return f"{what}; the whole one lies in {whole}: give that"
    return f"{what}; --model and plaudit.load read it with its base"


def _refuse_quantised(path: Path, config: Mapping[str, Any]) -> None:
    settings = config.get("quantization_config")
    if settings is not None:
        method = settings.get("quant_method") if isinstance(settings, Mapping) else settings
        raise UserError(
            f"{path}: the model is quantised ({method}), and plaudit trains and reads whole weights only; "
            "give the model that was quantised (its card names it)"
        )


def _refuse_fetched_code(path: Path, config: Mapping[str, Any]) -> None:
    """A name with a slash is a repository of kernels, which transformers would fetch and run."""
    for key, word in config.items():
        if isinstance(word, Mapping):
            _refuse_fetched_code(path, word)
        # Transformers 4 wrote a switch of such a name, which is true in many a folder.
        named = "_implementation" in key and word is not True and (not isinstance(word, str) or "/" in word)
        if word and (named or key in ("use_kernels", "kernel_config")):
            why = "plaudit never runs code that a model names"
            raise UserError(f"{path}: {key} is {_short(word)}: {why}; delete {key}")


def _check_sizes(path: Path, config: Mapping[str, Any]) -> None:
    for names, most in _LIMITS.items():
        for name in names:
            value, least = config.get(name), 0 if name in _NONE_OF_IT else 1
            # Some families have a size for each layer.
            for size in value if isinstance(value, list) else [value]:
                if size is not None and (type(size) is not int or not least <= size <= most):
                    raise UserError(
                        f"{path}: {name} is {_short(size)}, and it is a whole number from {least} to {most:,}"
                        f"{_AGAIN}"
                    )


def _check_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """A model would compute with any of them, and say things without sense."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            _check_numbers(path, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            least, most = (0, 1) if name in _SLIGHT else (-_MOST, _MOST)
            positive = name in _ABOVE_ZERO
            # NaN is in no range.
            if not (least <= value <= most) or (positive and value <= 0):
                expected = f"above 0, to {most:g}" if positive else f"from {least:g} to {most:g}"
                raise UserError(f"{path}: {name} is {_short(value)}, and it is a number {expected}{_AGAIN}")


_ATOMS = re.compile(r"\\[pP]\{[^}]*\}|\\[^nrt\W]|\[\^?\]?(?:\\.|\[[^\]]*\]|[^\]])*\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?<?[=!:>]|\?\w+:)?([^()]*)\)([*+]|\{\d+,\}|\{(?:\d+,)?(?:9|\d\d+)\})?")
_REPEATS = re.compile(r"[*+?]|\{\d+,")
_MOST_REPEATS = 8
"""More endless repetitions than this in one alternative of a pattern take as long as nested ones."""


def refuse_slow_pattern(path: Path, pattern: str) -> None:
    """Complain about a stranger's pattern that repeats what repeats itself: it may take for ever."""
    # Any class of letters is one letter here, and so is a group that was looked at; from within outwards.
    plain, is_slow = _ATOMS.sub(".", pattern), False
    while (group := _GROUP.search(plain)) is not None:
        starts = [alternative[:1] for alternative in group[1].split("|")]
        same = len(starts) > 1 and (len({*starts}) < len(starts) or "." in starts)
        varies = same or _REPEATS.search(group[1]) is not None
        is_slow |= varies and group[2] is not None
        loops = sum(group[1].count(sign) for sign in "*+") * ".*"
        plain = plain[: group.start()] + (loops or ".?" if varies else ".") + plain[group.end() :]
    if is_slow or any(part.count("*") + part.count("+") > _MOST_REPEATS for part in plain.split("|")):
        raise UserError(
            f"{path}: the pattern {pattern[:60]!r} repeats what repeats itself, and could take for ever; "
            "write it without that, or name each word"
        )


def adapter_settings(path: Path) -> Mapping[str, Any]:
    """What an adapter says of itself; patterns that would keep PEFT for ever are refused."""
    settings = read_json_object(path)
    for name in ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern"):
        value = settings.get(name)
        for pattern in [value] if isinstance(value, str) else value or ():
            refuse_slow_pattern(path, str(pattern))
    return settings


def _check_token_numbers(path: Path, settings: Mapping[str, Any], vocabulary: int | None) -> None:
    last = "on" if vocabulary is None else f"to {vocabulary - 1:,}"
    for name in _TOKEN_NUMBERS:
        value = settings.get(name)
        for number in value if isinstance(value, list) else [value]:
            whole = type(number) is int
            if number is not None and not (whole and 0 <= number < (vocabulary or 1 << 26)):
                raise UserError(
                    f"{path}: {name} is {_short(number)}, and the model's tokens are numbered from 0 {last}; "
                    "write the number that the tokenizer has for it, or null"
                )


def _short(value: object) -> str:
    return json.dumps(value, default=str)[:40]


def _weight_paths(folder: Path) -> Iterable[Path]:
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    index = folder / _INDEX
    if not index.is_file():
        raise UserError(f"{folder}: {_no_weights(folder)}")
    places = read_json_object(index).get("weight_map")
    if not isinstance(places, Mapping) or not places:
        raise UserError(f"{index}: it has no weight_map, which says the file of each weight{_AGAIN}")
    # In the order of their names, so that the same fault is said every time.
    names = sorted({*map(str, places.values())})
    for name in names:
        if name != Path(name).name or not name.endswith(".safetensors"):
            raise UserError(f"{index}: it names {name!r}; weights are .safetensors files beside it{_AGAIN}")
        if not (folder / name).is_file():
            raise UserError(f"{index}: it names {name}, which is not in the folder; copy the model again")
    return [folder / name for name in names]


def _no_weights(folder: Path) -> str:
    parts = sorted(path.name for path in folder.glob("*.safetensors"))
    if parts and (folder / parts[0]).is_file():
        return f"it holds {parts[0]} but neither {_WEIGHTS} nor {_INDEX}, which names parts; copy it again"
    if parts:
        return f"{parts[0]} is no file that could be read (a folder, or a link to nothing); copy it again"
    return (
        "no *.safetensors file; plaudit does not open pickled weights (.bin, .pt), which can run code: "
        "convert them first"
    )


def _tensors_of(path: Path) -> Iterator[tuple[str, tuple[str, Sequence[int]]]]:
    """Name, kind and shape of each tensor of a file, whose length must be what its header says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if first == b"version ":
                raise UserError(f"{path}: a pointer of git-lfs in place of the weights; run git lfs pull")
            if len(first) < 8 or length > size - 8:
                raise UserError(f"{path}: no safetensors file, or one that was cut; copy it again")
            header = json.loads(file.read(length), object_pairs_hook=object_of_pairs)
        header.pop("__metadata__", None)
        tensors = [(name, (facts["dtype"], facts["shape"])) for name, facts in header.items()]
        wanted = 8 + length + max((facts["data_offsets"][1] for facts in header.values()), default=0)
    except OSError as error:
        raise UserError(f"{path}: the weights cannot be read ({error.strerror})") from error
    except UserError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: its header is no safetensors header ({error}); copy it again") from error
    if size != wanted:
        raise UserError(f"{path}: it has {size:,} bytes and should have {wanted:,}; copy it again")
    yield from tensors
