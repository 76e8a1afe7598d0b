"""Model folders as they reach a user: torn, half copied, edited, of another kind, or made to do harm."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from plaudit.models.adapters import save_adapter, with_lora
from plaudit.models.settings import LoraSettings
from tests.models.zoo import build
from tests.rollouts.talkers import write_tokenizer

Damage = Callable[[Path], object]
"""What is done to a sound model folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    damage: Damage
    """What is done to a sound folder."""
    says: str
    """A pattern of the sentence."""
    weights: bool = False
    """Whether it is the weights that are damaged, which a plan does not read."""


def edit(file: str = "config.json", **changes: object) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def write(file: str, content: str | bytes) -> Damage:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data)


def remove(file: str) -> Damage:
    return lambda folder: (folder / file).unlink()


def tear(file: str, share: float = 0.5) -> Damage:
    """The first part of a file, as after a copy that was broken off."""
    return lambda folder: os.truncate(folder / file, int((folder / file).stat().st_size * share))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def renamed(tensors: dict[str, torch.Tensor]) -> None:
    """Weights as another model calls its own."""
    for name in [*tensors]:
        tensors[f"other.{name}"] = tensors.pop(name)


def as_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("weights")


def instead(file: str, make: Callable[[Path], object]) -> Damage:
    """Something that is no plain file in a file's place, such as a pipe, whose reader waits for ever."""

    def damage(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return damage


def in_shards(change: Damage) -> Damage:
    """Weights of several files, of which one is then damaged."""

    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        build("llama").save_pretrained(folder, max_shard_size="4KB")
        change(folder)

    return damage


def second(change: Callable[[Path], object]) -> Damage:
    return lambda folder: change(next(folder.glob("model-00002*")))


def shard_named(name: str) -> Damage:
    """An index whose first weight lies in a file of this name."""

    def damage(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        shutil.copy(folder / index["weight_map"]["model.norm.weight"], folder.parent / "outside.safetensors")
        index["weight_map"]["model.norm.weight"] = name
        path.write_text(json.dumps(index))

    return damage


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def adapter(change: dict[str, Any] | None = None) -> Damage:
    """A folder of PEFT's in the model's place; the model lies beside it."""

    def damage(folder: Path) -> None:
        base = folder.rename(folder.with_name("base"))
        model = build("llama")
        model.name_or_path = model.config._name_or_path = str(base)
        save_adapter(with_lora(model, LoraSettings(rank=2)), folder)
        write_tokenizer(folder)
        if change is not None:
            edit("adapter_config.json", **change)(folder)

    return damage


def fewer_embeddings(folder: Path) -> None:
    """A tokenizer that knows more words than the model."""
    write_tokenizer(folder, words=90)


def one_value(name: str, value: float) -> Damage:
    """A weight of which one number is this."""
    return weights(lambda tensors: tensors[name].view(-1)[3:4].fill_(value))


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def link(file: str, target: str) -> Damage:
    return instead(file, lambda path: path.symlink_to(target))


def both(*damages: Damage) -> Damage:
    return lambda folder: [damage(folder) for damage in damages]


WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LAYER = "model.layers.1.mlp.up_proj.weight"
_LOOPS = [f"{{% for {name} in range(90000) %}}" for name in "abc"]
ENDLESS = "".join(_LOOPS) + "{% endfor %}" * len(_LOOPS)
DOUBLING = (
    "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}"
)
RECURSIVE = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
SHADOWING = "{% set range = namespace %}" + ENDLESS.replace("range(90000)", "'x' * 90000")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
KERNEL = "kernels-community/flash-attn"


def _folder(says: str, damage: Damage) -> Damaged:
    return Damaged(damage=damage, says=says)


def _config(says: str, **changes: object) -> Damaged:
    return _folder(rf"config\.json: .*{says}", edit(**changes))


def _generation(says: str, **changes: object) -> Damaged:
    return _folder(rf"generation_config\.json: .*{says}", edit("generation_config.json", **changes))


def _torn(says: str, damage: Damage) -> Damaged:
    return Damaged(damage=damage, says=says, weights=True)


def _template(says: str, source: str) -> Damaged:
    return _folder(rf"model: the chat template .*{says}", write("chat_template.jinja", source))


FOLDERS = {
    "a file": _folder("model: this is a file; --model takes", as_a_file),
    "nothing in it": _folder(
        r"config\.json is missing \(it holds nothing\)", lambda f: (shutil.rmtree(f), f.mkdir())
    ),
    "no config": _folder(r"config\.json is missing \(it holds chat", remove("config.json")),
    "an adapter of an unknown kind": _folder(
        "an adapter of type 'MAGIC', and only LORA can be merged", adapter({"peft_type": "MAGIC"})
    ),
    "an adapter of a lost base": _folder(
        "its base model cannot be had", adapter({"base_model_name_or_path": "gone/away"})
    ),
    "an adapter of no base": _folder(
        "does not say on which model the adapter stands", adapter({"base_model_name_or_path": None})
    ),
    "a torn adapter": _folder(
        r"adapter_config\.json: not valid JSON", both(adapter(), tear("adapter_config.json"))
    ),
    "an adapter of an endless pattern": _folder(
        r"adapter_config\.json: the pattern .* for ever", adapter({"target_modules": r"(\w|\.|\w\w)*!"})
    ),
    "an adapter of brackets": _folder(
        "thousands of brackets", both(adapter(), write("adapter_config.json", nested(100_000)))
    ),
    "a pipe for a config": _folder(r"config\.json: this is a pipe or", instead("config.json", os.mkfifo)),
    "a pipe for a tokenizer": _folder(
        r"tokenizer\.json: this is a pipe", instead("tokenizer.json", os.mkfifo)
    ),
    "endless weights": _folder(r"model\.safetensors: this is a pipe or a device", link(WHOLE, "/dev/zero")),
}

JSON = {
    f"{name}, {what}": _folder(rf"{re.escape(name)}: .*{says}", change(name))
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    for what, says, change in (
        ("empty", "not valid JSON", partial(write, content="")),
        ("in UTF-16", "not valid JSON", partial(write, content="{}".encode("utf-16"))),
        ("torn", "not valid JSON: (Unterminated|Expecting)", tear),
        ("a list", "a JSON list and not an", partial(write, content="[1]")),
        ("of brackets", "thousands of brackets", partial(write, content=nested(100_000))),
    )
}

_STRANGE = ((float("inf"), "Infinity"), (float("nan"), "NaN"), (-1e-5, "-1e-05"), (1e300, r"1e\+300"))
CONFIGS = {
    "a config of other bytes": _folder(
        r"config\.json: not valid JSON: 'utf-8'", write("config.json", b'{"model_type": "\xff"}')
    ),
    "a config that is a folder": _folder("cannot be read .Is a dir", instead("config.json", Path.mkdir)),
    "a config that links to itself": _folder(
        r"config\.json: the file cannot be read|no language model lies here|there is no such file",
        link("config.json", "config.json"),
    ),
    "a key twice": _folder(
        "the key 'model_type' is there twice",
        write("config.json", '{"model_type": "llama", "model_type": "gpt2"}'),
    ),
    "a million layers": _config("num_hidden_layers is 1000000, and", num_hidden_layers=1_000_000),
    "layers below zero": _config("num_hidden_layers is -2, and", num_hidden_layers=-2),
    "no layer": _config("num_hidden_layers is 0, and", num_hidden_layers=0),
    "true layers": _config("num_hidden_layers is true, and", num_hidden_layers=True),
    "a huge size": _config("hidden_size is 1000000000000, and", hidden_size=10**12),
    "a size beyond any integer": _config("hidden_size is 1000000000000000", hidden_size=10**30),
    "a size in words": _config('hidden_size is "sixteen", and', hidden_size="sixteen"),
    "a broken size": _config("hidden_size is 16.5, and", hidden_size=16.5),
    "a size of null": _folder("'hidden_size' expected int", edit(hidden_size=None)),
    "a huge vocabulary": _config("vocab_size is 1000000000000000, and", vocab_size=10**15),
    "no vocabulary": _config("vocab_size is 0, and", vocab_size=0),
    "a vocabulary below zero": _config("vocab_size is -5, and", vocab_size=-5),
    "no heads": _config("num_attention_heads is 0, and", num_attention_heads=0),
    "heads that do not divide": _folder("not a multiple", edit(num_attention_heads=3)),
    "no positions": _config("max_position_embeddings is 0, and", max_position_embeddings=0),
    "positions in words": _config('max_position_embeddings is "long"', max_position_embeddings="long"),
    **{
        f"{name} of {value:g}": _config(f"{name} is {shown}, and it is a number", **{name: value})
        for name, value, shown in (
            *(("rms_norm_eps", value, shown) for value, shown in _STRANGE),
            *(("rope_theta", value, shown) for value, shown in _STRANGE),
            ("initializer_range", float("inf"), "Infinity"),
            ("query_pre_attn_scalar", 0, "0"),
        )
    },
    "an endless rotation": _config("rope_theta is NaN", rope_parameters={"rope_theta": float("nan")}),
    "an unknown activation": _folder("'wiggle' is not known", edit(hidden_act="wiggle")),
    "an unknown rotation": _folder(
        "'made-up' is not known", edit(rope_scaling={"rope_type": "made-up", "factor": 2.0})
    ),
    "unknown numbers": _folder("model: .*'float7'", edit(dtype="float7")),
    "no family": _config("its model_type is None", model_type=None),
    "an unknown family": _config("its model_type is 'llamaa', which transformers", model_type="llamaa"),
    "a family of pictures": _config("'vit', of which transformers makes no", model_type="vit"),
    "a list of families": _config(r"its model_type is \['llama'\]", model_type=["llama"]),
    "code of its own": _config("needs its own code", model_type="own", auto_map={"AutoConfig": "x.Y"}),
    "kernels of the hub": _config("never runs code that a model names", _attn_implementation=KERNEL),
    "kernels under another name": _config("never runs code", _attn_implementation_internal=KERNEL),
    "kernels of a part": _config("never runs code", vision_config={"_attn_implementation": KERNEL}),
    "kernels by a list": _config("never runs code", _attn_implementation=["a/b"]),
    "kernels by a switch": _config("never runs code", use_kernels=True),
    "an unknown attention": _folder('"swift". is not support', edit(_attn_implementation="swift")),
    "GPTQ": _config(r"quantised \(gptq\)", quantization_config={"quant_method": "gptq", "bits": 4}),
    "AWQ": _config(r"quantised \(awq\)", quantization_config={"quant_method": "awq", "bits": 4}),
    "four bits": _config(
        r"quantised \(bitsandbytes\)", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": 1}
    ),
    "quantised in words": _config(r"quantised \(yes\)", quantization_config="yes"),
    "an end out of range": _generation("eos_token_id is 1000000, and the model.s tok", eos_token_id=10**6),
    "an end below zero": _generation("eos_token_id is -4, and", eos_token_id=-4),
    "an end in words": _generation('eos_token_id is "<end>", and', eos_token_id="<end>"),
    "an end beyond any integer": _generation("eos_token_id is 1000", eos_token_id=[2, 10**30]),
    "a config's end out of range": _config("eos_token_id is 61, and", eos_token_id=61),
    "a padding out of range": _config("pad_token_id is 61, and .* 0 to 60", pad_token_id=61),
    "a padding below zero": _config("pad_token_id is -1, and", pad_token_id=-1),
}

WEIGHTS = {
    "no weights": _torn(r"no \*\.safetensors file", remove(WHOLE)),
    "weights in a pickle": _torn("does not open pickled weights", pickled),
    "empty weights": _torn(r"model\.safetensors: no safetensors file", write(WHOLE, "")),
    "torn weights": _torn(r"it has 12,788 bytes and should have 25,576", tear(WHOLE)),
    "torn in the header": _torn("no safetensors file, or one that was cut", tear(WHOLE, 0.01)),
    "noise": _torn("no safetensors file", write(WHOLE, b"\xff" * 4000)),
    "a header of noise": _torn("no safetensors header", write(WHOLE, b"\x09" + b"\0" * 16)),
    "a header of lists": _torn("no safetensors header", write(WHOLE, (2).to_bytes(8, "little") + b"[]")),
    "weights that are a folder": _torn("no file that could be read", instead(WHOLE, Path.mkdir)),
    "a pointer": _torn("a pointer of git-lfs", write(WHOLE, POINTER)),
    "a link to nothing": _torn("no file that could be read", link(WHOLE, "blob")),
    "a missing shard": _torn("it names model-00002.*not in the folder", in_shards(second(Path.unlink))),
    "a torn shard": _torn(
        r"model-00002.*no safetensors file", in_shards(second(lambda path: os.truncate(path, 50)))
    ),
    "a shard elsewhere": _torn("it names '../outside", in_shards(shard_named("../outside.safetensors"))),
    "a shard of the system": _torn("it names '/etc/passwd'", in_shards(shard_named("/etc/passwd"))),
    "a shard in a pickle": _torn(r"it names 'x\.bin'", in_shards(shard_named("x.bin"))),
    "a torn index": _torn("index.json: not valid JSON", in_shards(tear(INDEX))),
    "an index of nothing": _torn("no weight_map", in_shards(edit(INDEX, weight_map={}))),
    "an index of a list": _torn("no weight_map", in_shards(edit(INDEX, weight_map=[1]))),
    "no index": _torn("neither model.safetensors nor", in_shards(remove(INDEX))),
    "NaN": _torn(rf"1 of 384 numbers of {LAYER} are NaN or infinite", one_value(LAYER, float("nan"))),
    "infinity": _torn(r"1 of 976 numbers of lm_head", one_value("lm_head.weight", float("inf"))),
    "a missing weight": _torn(rf"{LAYER} is missing", weights(lambda t: t.pop(LAYER))),
    "a shape": _torn("is 3×5 and should", weights(lambda t: t.update({LAYER: torch.ones(3, 5)}))),
    "other names": _torn(r"is missing.* and \d+ more; they would start at random", weights(renamed)),
    "a number": _torn("is one number and should", weights(lambda t: t.update({LAYER: torch.tensor(1.0)}))),
    "whole numbers": _torn(
        "kept as I8: these weights are quantised",
        weights(lambda t: t.update({LAYER: torch.ones(24, 16, dtype=torch.int8)})),
    ),
    "fewer layers than weights": _torn(r"the files hold model\.layers\.1.* fewer", edit(num_hidden_layers=1)),
    "more layers than weights": _torn("they do not belong together", edit(num_hidden_layers=60)),
    "a larger vocabulary": _torn("weights, and the files hold 5,872", edit(vocab_size=400)),
    "a smaller vocabulary": _torn("should be 40×16|the model knows 40", edit(vocab_size=40)),
}
"""What lies in the files of weights, and whether it is what config.json describes."""

TOKENIZERS = {
    "no tokenizer": _folder(
        "model: the tokenizer cannot be loaded",
        both(remove("tokenizer.json"), remove("tokenizer_config.json")),
    ),
    "a tokenizer of an endless pattern": _folder(
        r"tokenizer\.json: the pattern .* for ever",
        edit(
            "tokenizer.json",
            normalizer={"type": "Replace", "pattern": {"Regex": "(?:.|.)*[^\\s\\S]"}, "content": "x"},
        ),
    ),
    "a tokenizer without its model": _folder(
        "model: the tokenizer cannot be loaded", edit("tokenizer.json", model={"type": "Magic"})
    ),
    "a class that is a number": _folder(
        "model: the tokenizer cannot be loaded", edit("tokenizer_config.json", tokenizer_class=7)
    ),
    "an end that is a number": _folder(
        "model: the tokenizer cannot be loaded", edit("tokenizer_config.json", eos_token=5)
    ),
    "more tokens than embeddings": _folder(
        "model: the tokenizer does not fit the model: 'w89' is token 89", fewer_embeddings
    ),
}

TEMPLATES = {
    "a template that is not closed": _template("Unexpected end of template", "{% for m in messages %}"),
    "a template that divides by zero": _template("division by zero", "{{ 1/0 }}"),
    "a template that refuses all": _template("not me", "{{ raise_exception('not me') }}"),
    "a template of unknown things": _template("no attribute 'wiggle'", "{{ messages[0].content.wiggle.x }}"),
    "a template of endless loops": _template("comes to no end", ENDLESS),
    "a template that hides its loops": _template("comes to no end", SHADOWING),
    "a template of huge numbers": _template("more than 20,000,000", "{{ 10**(10**9) }}"),
    "a template of huge texts": _template("more than 20,000,000", "{{ 'x' * 10**11 }}"),
    **{
        f"a template of huge texts by {words}": _template("more than 20,000,000", f"{{{{ {words} }}}}")
        for words in (
            *("'x'.ljust(10**11)", "'a'|indent(width=10**10)", "'%.999999999f'|format(1)"),
            *("messages|tojson(indent=10**9)", "([['x']*9999]*9999)|string", "messages|sum(start=[])"),
            *("('a'*10**6).replace('a', 'b'*10**6)", "(['a']*10**6)|join('b'*10**6)"),
            *("'{:>9999999999}'.format(1)", "('a'*10**6).translate({97: 'b'*10**6})"),
        )
    },
    "a template of many texts": _template(
        "more than 20,000,000", "{% for i in range(999) %}{{ 'x' * 10**7 }}{% endfor %}"
    ),
    "a template of many slices": _template("No filter named 'slice'", "{{ messages|slice(10**9)|list }}"),
    "a template that doubles": _template("more than 20,000,000", DOUBLING),
    "a template without a ground": _template("it goes too deep", RECURSIVE),
    "a template of brackets": _template("it goes too deep", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
    "a template that reads files": _template("no loader", "{% include '/etc/passwd' %}"),
    "a template that reaches out": _template("is unsafe", "{{ ''.__class__.__mro__ }}"),
    "a template that changes turns": _template("is unsafe", "{{ messages.append(1) }}"),
    "a template of other bytes": _folder(
        "model: the tokenizer cannot be loaded", write("chat_template.jinja", b"\xff\xfe{{")
    ),
}
"""Chat templates, which are programs of strangers."""

DAMAGED = FOLDERS | JSON | CONFIGS | WEIGHTS | TOKENIZERS | TEMPLATES
