"""Model folders as they reach a user: torn, half copied, edited, of another kind, or made to do harm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from plaudit.models.load import save_adapter, with_lora
from plaudit.models.settings import LoraSettings
from tests.models.zoo import build
from tests.rollouts.talkers import write_tokenizer

Damage = Callable[[Path], object]
"""What is done to a sound model folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A damage, and what every command has to say about it."""

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
    """Another content of a file, or a file that was not there."""
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


def as_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("weights")


def as_directory(file: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return damage


def in_shards(change: Damage) -> Damage:
    """Weights of several files, of which one is then damaged."""

    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        build("llama").save_pretrained(folder, max_shard_size="4KB")
        change(folder)

    return damage


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
        save_adapter(with_lora(_named(base), LoraSettings(rank=2)), folder)
        write_tokenizer(folder)
        if change is not None:
            edit("adapter_config.json", **change)(folder)

    return damage


def _named(base: Path) -> PreTrainedModel:
    model = build("llama")
    model.name_or_path = model.config._name_or_path = str(base)
    return model


def fewer_embeddings(folder: Path) -> None:
    """A tokenizer that knows more words than the model."""
    write_tokenizer(folder, words=90)


def one_value(name: str, value: float) -> Damage:
    """A weight of which one number is this."""
    return weights(lambda tensors: tensors[name].view(-1)[3:4].fill_(value))


def template(source: str) -> Damage:
    return write("chat_template.jinja", source)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def link(file: str, target: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).symlink_to(target)

    return damage


def both(*damages: Damage) -> Damage:
    return lambda folder: [damage(folder) for damage in damages]


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


def _config(says: str, **changes: object) -> Damaged:
    return Damaged(damage=edit(**changes), says=rf"config\.json: .*{says}")


def _generation(says: str, **changes: object) -> Damaged:
    return Damaged(
        damage=edit("generation_config.json", **changes), says=rf"generation_config\.json: .*{says}"
    )


def _torn(says: str, damage: Damage) -> Damaged:
    return Damaged(damage=damage, says=says, weights=True)


def _template(says: str, source: str) -> Damaged:
    return Damaged(damage=template(source), says=rf"model: the chat template .*{says}")


FOLDERS = {
    "a file": Damaged(damage=as_a_file, says="model: this is a file; --model takes"),
    "nothing in it": Damaged(
        damage=lambda f: (shutil.rmtree(f), f.mkdir()), says=r"config\.json is missing \(it holds nothing\)"
    ),
    "no config": Damaged(damage=remove("config.json"), says=r"config\.json is missing \(it holds chat"),
    "an adapter of an unknown kind": Damaged(
        damage=adapter({"peft_type": "MAGIC"}), says="an adapter of type 'MAGIC', and only LORA can be merged"
    ),
    "an adapter of a lost base": Damaged(
        damage=adapter({"base_model_name_or_path": "gone/away"}), says="its base model cannot be had"
    ),
    "an adapter of no base": Damaged(
        damage=adapter({"base_model_name_or_path": None}),
        says="does not say on which model the adapter stands",
    ),
    "a torn adapter": Damaged(
        damage=both(adapter(), tear("adapter_config.json")),
        says=r"adapter_config\.json: does not say on which model",
    ),
}

CONFIGS = {
    "an empty config": Damaged(damage=write("config.json", ""), says=r"config\.json: not valid JSON"),
    "a torn config": Damaged(damage=tear("config.json"), says=r"config\.json: not valid JSON: Unterminated"),
    "a config of other bytes": Damaged(
        damage=write("config.json", b'{"model_type": "\xff"}'), says=r"config\.json: not valid JSON: 'utf-8'"
    ),
    "a config that is a list": Damaged(damage=write("config.json", "[1]"), says="a JSON list and not an"),
    "a config of brackets": Damaged(
        damage=write("config.json", nested(100_000)), says="thousands of brackets"
    ),
    "a config that is a folder": Damaged(damage=as_directory("config.json"), says="cannot be read .Is a dir"),
    "a config that links to itself": Damaged(
        damage=link("config.json", "config.json"),
        says=r"config\.json: the file cannot be read|no language model lies here",
    ),
    "a key twice": Damaged(
        damage=write("config.json", '{"model_type": "llama", "model_type": "gpt2"}'),
        says="the key 'model_type' is there twice",
    ),
    "a million layers": _config("num_hidden_layers is 1000000, and", num_hidden_layers=1_000_000),
    "layers below zero": _config("num_hidden_layers is -2, and", num_hidden_layers=-2),
    "no layer": _config("num_hidden_layers is 0, and", num_hidden_layers=0),
    "true layers": _config("num_hidden_layers is true, and", num_hidden_layers=True),
    "a huge size": _config("hidden_size is 1000000000000, and", hidden_size=10**12),
    "a size beyond any integer": _config("hidden_size is 1000000000000000", hidden_size=10**30),
    "a size in words": _config('hidden_size is "sixteen", and', hidden_size="sixteen"),
    "a broken size": _config("hidden_size is 16.5, and", hidden_size=16.5),
    "a size of null": Damaged(damage=edit(hidden_size=None), says="'hidden_size' expected int"),
    "a huge vocabulary": _config("vocab_size is 1000000000000000, and", vocab_size=10**15),
    "no vocabulary": _config("vocab_size is 0, and", vocab_size=0),
    "a vocabulary below zero": _config("vocab_size is -5, and", vocab_size=-5),
    "no heads": _config("num_attention_heads is 0, and", num_attention_heads=0),
    "heads that do not divide": Damaged(damage=edit(num_attention_heads=3), says="not a multiple"),
    "no positions": _config("max_position_embeddings is 0, and", max_position_embeddings=0),
    "positions in words": _config('max_position_embeddings is "long"', max_position_embeddings="long"),
    "an unknown activation": Damaged(damage=edit(hidden_act="wiggle"), says="'wiggle' is not known"),
    "an unknown rotation": Damaged(
        damage=edit(rope_scaling={"rope_type": "made-up", "factor": 2.0}), says="'made-up' is not known"
    ),
    "unknown numbers": Damaged(damage=edit(dtype="float7"), says="model: .*'float7'"),
    "an unknown family": _config("its model_type is 'llamaa', which transformers", model_type="llamaa"),
    "a family of pictures": _config("'vit', of which transformers makes no", model_type="vit"),
    "a list of families": _config(r"its model_type is \['llama'\]", model_type=["llama"]),
    "code of its own": _config("needs its own code", model_type="own", auto_map={"AutoConfig": "x.Y"}),
    "kernels of the hub": _config("never runs code that a model names", _attn_implementation=KERNEL),
    "kernels under another name": _config("never runs code", _attn_implementation_internal=KERNEL),
    "kernels of a part": _config("never runs code", vision_config={"_attn_implementation": KERNEL}),
    "kernels by a list": _config("never runs code", _attn_implementation=["a/b"]),
    "kernels by a switch": _config("never runs code", use_kernels=True),
    "an unknown attention": Damaged(
        damage=edit(_attn_implementation="swift"), says='"swift". is not support'
    ),
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
    "torn generation settings": Damaged(
        damage=tear("generation_config.json"), says=r"generation_config\.json: not valid JSON"
    ),
    "generation settings in a list": Damaged(
        damage=write("generation_config.json", "[]"), says=r"generation_config\.json: this is a JSON list"
    ),
}

WEIGHTS = {
    "no weights": _torn(r"no \*\.safetensors file", remove("model.safetensors")),
    "weights in a pickle": _torn("does not open pickled weights", pickled),
    "empty weights": _torn(r"model\.safetensors: no safetensors file", write("model.safetensors", "")),
    "torn weights": _torn(r"it has 12,788 bytes and should have 25,576", tear("model.safetensors")),
    "torn in the header": _torn("no safetensors file, or one that was cut", tear("model.safetensors", 0.01)),
    "noise": _torn("no safetensors file", write("model.safetensors", b"\xff" * 4000)),
    "a header of noise": _torn("no safetensors header", write("model.safetensors", b"\x09" + b"\0" * 16)),
    "a header of lists": _torn(
        "no safetensors header", write("model.safetensors", (2).to_bytes(8, "little") + b"[]")
    ),
    "weights that are a folder": _torn("no file that could be read", as_directory("model.safetensors")),
    "a pointer": _torn("a pointer of git-lfs", write("model.safetensors", POINTER)),
    "a link to nothing": _torn("no file that could be read", link("model.safetensors", "blob")),
    "a missing shard": _torn(
        "it names model-00002.*not in the folder", in_shards(lambda f: next(f.glob("model-00002*")).unlink())
    ),
    "a torn shard": _torn(
        r"model-00002.*no safetensors file",
        in_shards(lambda f: os.truncate(next(f.glob("model-00002*")), 50)),
    ),
    "a shard elsewhere": _torn("it names '../outside", in_shards(shard_named("../outside.safetensors"))),
    "a shard of the system": _torn("it names '/etc/passwd'", in_shards(shard_named("/etc/passwd"))),
    "a shard in a pickle": _torn(r"it names 'x\.bin'", in_shards(shard_named("x.bin"))),
    "a torn index": _torn("index.json: not valid JSON", in_shards(tear("model.safetensors.index.json"))),
    "an index of nothing": _torn(
        "no weight_map", in_shards(edit("model.safetensors.index.json", weight_map={}))
    ),
    "an index of a list": _torn(
        "no weight_map", in_shards(edit("model.safetensors.index.json", weight_map=[1]))
    ),
    "no index": _torn("neither model.safetensors nor", in_shards(remove("model.safetensors.index.json"))),
    "NaN": _torn(rf"1 of 384 numbers of {LAYER} are NaN or infinite", one_value(LAYER, float("nan"))),
    "infinity": _torn(r"1 of 976 numbers of lm_head", one_value("lm_head.weight", float("inf"))),
    "a missing weight": _torn(rf"{LAYER} is missing", weights(lambda t: t.pop(LAYER))),
    "a shape": _torn("is 3×5 and should", weights(lambda t: t.update({LAYER: torch.ones(3, 5)}))),
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
    "no tokenizer": Damaged(
        damage=both(remove("tokenizer.json"), remove("tokenizer_config.json")),
        says="model: the tokenizer cannot be loaded",
    ),
    "a torn tokenizer": Damaged(damage=tear("tokenizer.json"), says=r"tokenizer\.json: not valid JSON"),
    "an empty tokenizer": Damaged(damage=write("tokenizer.json", ""), says=r"tokenizer\.json: not valid"),
    "a tokenizer of a list": Damaged(
        damage=write("tokenizer.json", "[]"), says=r"tokenizer\.json: this is a"
    ),
    "a tokenizer of brackets": Damaged(
        damage=write("tokenizer.json", nested(100_000)), says=r"tokenizer\.json: .* thousands of brackets"
    ),
    "a tokenizer without its model": Damaged(
        damage=edit("tokenizer.json", model={"type": "Magic"}), says="model: the tokenizer cannot be loaded"
    ),
    "torn settings of it": Damaged(
        damage=tear("tokenizer_config.json"), says=r"tokenizer_config\.json: not valid JSON"
    ),
    "settings of it in a list": Damaged(
        damage=write("tokenizer_config.json", "[]"), says=r"tokenizer_config\.json: this is a JSON list"
    ),
    "a class that is a number": Damaged(
        damage=edit("tokenizer_config.json", tokenizer_class=7), says="model: the tokenizer cannot be loaded"
    ),
    "an end that is a number": Damaged(
        damage=edit("tokenizer_config.json", eos_token=5), says="model: the tokenizer cannot be loaded"
    ),
    "more tokens than embeddings": Damaged(
        damage=fewer_embeddings, says="model: the tokenizer does not fit the model: 'w89' is token 89"
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
    "a template of wide texts": _template("more than 20,000,000", "{{ 'x'.ljust(10**11) }}"),
    "a template that doubles": _template("more than 20,000,000", DOUBLING),
    "a template without a ground": _template("it goes too deep", RECURSIVE),
    "a template of brackets": _template("it goes too deep", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
    "a template that reads files": _template("no loader", "{% include '/etc/passwd' %}"),
    "a template that reaches out": _template("is unsafe", "{{ ''.__class__.__mro__ }}"),
    "a template that changes turns": _template("is unsafe", "{{ messages.append(1) }}"),
    "a template of other bytes": Damaged(
        damage=write("chat_template.jinja", b"\xff\xfe{{"), says="model: the tokenizer cannot be loaded"
    ),
}
"""Chat templates, which are programs of strangers."""

DAMAGED = FOLDERS | CONFIGS | WEIGHTS | TOKENIZERS | TEMPLATES
