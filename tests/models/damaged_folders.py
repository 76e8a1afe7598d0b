"""Model folders as they reach a user: torn, half copied, edited by hand, of another kind, or made to do harm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.models.zoo import build
from tests.rollouts.talkers import write_tokenizer

Damage = Callable[[Path], object]
"""What is done to a sound model folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A damage, and what every command has to say about it.

    Example: ``Damaged(damage=remove("tokenizer.json"), says="tokenizer.json")``
    """

    damage: Damage
    """What is done to a sound folder."""
    says: str
    """A pattern of the sentence."""
    about: str = "model"
    """Which part it hits: the model, its tokenizer, its weights (a plan reads none) or its template."""


def edit(file: str = "config.json", **changes: object) -> Damage:
    """Other settings in a file of JSON."""

    def damage(folder: Path) -> None:
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def write(file: str, content: str | bytes) -> Damage:
    """Another content of a file, or a file that was not there."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data)


def remove(file: str) -> Damage:
    """A file less."""
    return lambda folder: (folder / file).unlink()


def tear(file: str, share: float = 0.5) -> Damage:
    """The first part of a file, as after a copy that was broken off."""
    return lambda folder: os.truncate(folder / file, int((folder / file).stat().st_size * share))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Other weights."""

    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def as_a_file(folder: Path) -> None:
    """A file in the folder's place."""
    shutil.rmtree(folder)
    folder.write_text("weights")


def as_directory(file: str) -> Damage:
    """A folder in a file's place."""

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
    """Weights that only a pickle holds."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def adapter(change: dict[str, Any] | None = None) -> Damage:
    """A folder of PEFT's in the model's place; the model lies beside it."""

    def damage(folder: Path) -> None:
        base = folder.rename(folder.with_name("base"))
        adapted: Any = get_peft_model(_named(base), LoraConfig(r=2, target_modules="all-linear"))
        adapted.save_pretrained(folder)
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
    """Another chat template."""
    return write("chat_template.jinja", source)


def nested(depth: int) -> str:
    """JSON so many lists deep."""
    return "[" * depth + "]" * depth


def unreadable(folder: Path) -> None:
    """A file that this user may not read."""
    (folder / "config.json").chmod(0)


LAYER = "model.layers.1.mlp.up_proj.weight"
ENDLESS = "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endfor %}"

DAMAGED: dict[str, Damaged] = {
    "a file": Damaged(damage=as_a_file, says="TODO"),
    "nothing": Damaged(damage=lambda f: (shutil.rmtree(f), f.mkdir()), says="TODO"),
    "no config": Damaged(damage=remove("config.json"), says="TODO"),
    "empty config": Damaged(damage=write("config.json", ""), says="TODO"),
    "torn config": Damaged(damage=tear("config.json"), says="TODO"),
    "config not utf8": Damaged(damage=write("config.json", b'{"model_type": "\xff"}'), says="TODO"),
    "config a list": Damaged(damage=write("config.json", "[1]"), says="TODO"),
    "config nested": Damaged(damage=write("config.json", nested(100_000)), says="TODO"),
    "config a folder": Damaged(damage=as_directory("config.json"), says="TODO"),
    "config twice": Damaged(
        damage=write("config.json", '{"model_type": "llama", "model_type": "gpt2"}'), says="TODO"
    ),
    "million layers": Damaged(damage=edit(num_hidden_layers=1_000_000), says="TODO"),
    "huge hidden": Damaged(damage=edit(hidden_size=10**12), says="TODO"),
    "huge vocab": Damaged(damage=edit(vocab_size=10**15), says="TODO"),
    "huge int": Damaged(damage=edit(hidden_size=10**30), says="TODO"),
    "negative layers": Damaged(damage=edit(num_hidden_layers=-2), says="TODO"),
    "no layers": Damaged(damage=edit(num_hidden_layers=0), says="TODO"),
    "zero heads": Damaged(damage=edit(num_attention_heads=0), says="TODO"),
    "zero vocab": Damaged(damage=edit(vocab_size=0), says="TODO"),
    "negative vocab": Damaged(damage=edit(vocab_size=-5), says="TODO"),
    "string hidden": Damaged(damage=edit(hidden_size="sixteen"), says="TODO"),
    "null hidden": Damaged(damage=edit(hidden_size=None), says="TODO"),
    "float hidden": Damaged(damage=edit(hidden_size=16.5), says="TODO"),
    "bool layers": Damaged(damage=edit(num_hidden_layers=True), says="TODO"),
    "odd heads": Damaged(damage=edit(num_attention_heads=3), says="TODO"),
    "head dim str": Damaged(damage=edit(head_dim="x"), says="TODO"),
    "act unknown": Damaged(damage=edit(hidden_act="wiggle"), says="TODO"),
    "rope bad": Damaged(damage=edit(rope_scaling={"rope_type": "made-up", "factor": 2.0}), says="TODO"),
    "rope str": Damaged(damage=edit(rope_scaling="yes", rope_parameters="yes"), says="TODO"),
    "layer types": Damaged(damage=edit(layer_types=["x"]), says="TODO"),
    "positions 0": Damaged(damage=edit(max_position_embeddings=0), says="TODO"),
    "positions neg": Damaged(damage=edit(max_position_embeddings=-1), says="TODO"),
    "positions str": Damaged(damage=edit(max_position_embeddings="long"), says="TODO"),
    "eps str": Damaged(damage=edit(rms_norm_eps="small"), says="TODO"),
    "eps nan": Damaged(damage=edit(rms_norm_eps=float("nan")), says="TODO"),
    "dtype unknown": Damaged(damage=edit(dtype="float7"), says="TODO"),
    "torch_dtype obj": Damaged(damage=edit(torch_dtype="os", dtype="os"), says="TODO"),
    "vocab smaller": Damaged(damage=edit(vocab_size=40), says="TODO"),
    "vocab larger": Damaged(damage=edit(vocab_size=400), says="TODO"),
    "unknown architecture": Damaged(damage=edit(model_type="llamaa"), says="TODO"),
    "not a language model": Damaged(damage=edit(model_type="vit"), says="TODO"),
    "model_type list": Damaged(damage=edit(model_type=["llama"]), says="TODO"),
    "remote code": Damaged(damage=edit(model_type="own", auto_map={"AutoConfig": "x.Y"}), says="TODO"),
    "hub kernel": Damaged(damage=edit(_attn_implementation="kernels-community/flash-attn"), says="TODO"),
    "hub kernel 2": Damaged(damage=edit(attn_implementation="kernels-community/flash-attn"), says="TODO"),
    "hub kernel 3": Damaged(
        damage=edit(_attn_implementation_internal="kernels-community/flash-attn"), says="TODO"
    ),
    "attn unknown": Damaged(damage=edit(_attn_implementation="swift"), says="TODO"),
    "attn dict": Damaged(damage=edit(_attn_implementation={"": "a/b"}), says="TODO"),
    "attn list": Damaged(damage=edit(_attn_implementation=["a/b"]), says="TODO"),
    "experts impl": Damaged(damage=edit(_experts_implementation="a/b"), says="TODO"),
    "use_kernels": Damaged(damage=edit(use_kernels=True, kernel_config={"RMSNorm": "a/b:C"}), says="TODO"),
    "gptq": Damaged(damage=edit(quantization_config={"quant_method": "gptq", "bits": 4}), says="TODO"),
    "awq": Damaged(damage=edit(quantization_config={"quant_method": "awq", "bits": 4}), says="TODO"),
    "bnb": Damaged(
        damage=edit(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}), says="TODO"
    ),
    "quant unknown": Damaged(damage=edit(quantization_config={"quant_method": "q9"}), says="TODO"),
    "quant str": Damaged(damage=edit(quantization_config="yes"), says="TODO"),
    "eos range": Damaged(damage=edit("generation_config.json", eos_token_id=10**6), says="TODO"),
    "eos neg": Damaged(damage=edit("generation_config.json", eos_token_id=-4), says="TODO"),
    "eos str": Damaged(damage=edit("generation_config.json", eos_token_id="<end>"), says="TODO"),
    "eos huge": Damaged(damage=edit("generation_config.json", eos_token_id=10**30), says="TODO"),
    "eos config range": Damaged(damage=edit(eos_token_id=10**6), says="TODO"),
    "eos config str": Damaged(damage=edit(eos_token_id="x"), says="TODO"),
    "pad range": Damaged(damage=edit(pad_token_id=10**6), says="TODO"),
    "pad neg": Damaged(damage=edit(pad_token_id=-1), says="TODO"),
    "pad str": Damaged(damage=edit(pad_token_id="<pad>"), says="TODO"),
    "bos range": Damaged(damage=edit(bos_token_id=10**6), says="TODO"),
    "bos neg": Damaged(damage=edit(bos_token_id=-7), says="TODO"),
    "generation torn": Damaged(damage=tear("generation_config.json"), says="TODO"),
    "generation list": Damaged(damage=write("generation_config.json", "[]"), says="TODO"),
    "generation not utf8": Damaged(damage=write("generation_config.json", b"\xff\xfe"), says="TODO"),
    "generation nested": Damaged(
        damage=write("generation_config.json", '{"a":' + nested(100_000) + "}"), says="TODO"
    ),
    "generation nonsense": Damaged(
        damage=edit("generation_config.json", temperature="hot", top_p=-3), says="TODO"
    ),
    "gen folder": Damaged(damage=as_directory("generation_config.json"), says="TODO"),
    "no weights": Damaged(damage=remove("model.safetensors"), says="TODO"),
    "empty weights": Damaged(damage=write("model.safetensors", ""), says="TODO"),
    "torn weights": Damaged(damage=tear("model.safetensors"), says="TODO"),
    "torn header": Damaged(damage=tear("model.safetensors", 0.01), says="TODO"),
    "garbage weights": Damaged(damage=write("model.safetensors", b"\xff" * 4000), says="TODO"),
    "header bomb": Damaged(
        damage=write("model.safetensors", (2**40).to_bytes(8, "little") + b"{}"), says="TODO"
    ),
    "weights folder": Damaged(damage=as_directory("model.safetensors"), says="TODO"),
    "lfs pointer": Damaged(
        damage=write(
            "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
        ),
        says="TODO",
    ),
    "dangling link": Damaged(
        damage=lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").symlink_to("blob")),
        says="TODO",
    ),
    "pickled": Damaged(damage=pickled, says="TODO"),
    "shard missing": Damaged(damage=in_shards(lambda f: next(f.glob("model-00002*")).unlink()), says="TODO"),
    "shard torn": Damaged(
        damage=in_shards(lambda f: os.truncate(next(f.glob("model-00002*")), 50)), says="TODO"
    ),
    "index outside": Damaged(damage=in_shards(shard_named("../outside.safetensors")), says="TODO"),
    "index absolute": Damaged(damage=in_shards(shard_named("/etc/passwd")), says="TODO"),
    "index missing": Damaged(damage=in_shards(shard_named("gone.safetensors")), says="TODO"),
    "index bin": Damaged(damage=in_shards(shard_named("x.bin")), says="TODO"),
    "index number": Damaged(damage=in_shards(shard_named(7)), says="TODO"),
    "index torn": Damaged(damage=in_shards(tear("model.safetensors.index.json")), says="TODO"),
    "index list": Damaged(damage=in_shards(write("model.safetensors.index.json", "[]")), says="TODO"),
    "index empty map": Damaged(
        damage=in_shards(edit("model.safetensors.index.json", weight_map={})), says="TODO"
    ),
    "index map list": Damaged(
        damage=in_shards(edit("model.safetensors.index.json", weight_map=[1])), says="TODO"
    ),
    "index gone": Damaged(damage=in_shards(remove("model.safetensors.index.json")), says="TODO"),
    "nan weights": Damaged(damage=one_value(LAYER, float("nan")), says="TODO"),
    "inf weights": Damaged(damage=one_value("lm_head.weight", float("inf")), says="TODO"),
    "weight missing": Damaged(damage=weights(lambda t: t.pop(LAYER)), says="TODO"),
    "weight shape": Damaged(damage=weights(lambda t: t.update({LAYER: torch.ones(3, 5)})), says="TODO"),
    "weight ints": Damaged(
        damage=weights(lambda t: t.update({LAYER: torch.ones(24, 16, dtype=torch.int8)})), says="TODO"
    ),
    "weight scalar": Damaged(damage=weights(lambda t: t.update({LAYER: torch.tensor(1.0)})), says="TODO"),
    "adapter": Damaged(damage=adapter(), says="TODO"),
    "adapter unknown": Damaged(damage=adapter({"peft_type": "MAGIC"}), says="TODO"),
    "adapter no base": Damaged(damage=adapter({"base_model_name_or_path": "gone/away"}), says="TODO"),
    "adapter null base": Damaged(damage=adapter({"base_model_name_or_path": None}), says="TODO"),
    "adapter torn": Damaged(damage=lambda f: (adapter()(f), tear("adapter_config.json")(f)), says="TODO"),
    "no tokenizer": Damaged(
        damage=lambda f: (remove("tokenizer.json")(f), remove("tokenizer_config.json")(f)), says="TODO"
    ),
    "no tokenizer.json": Damaged(damage=remove("tokenizer.json"), says="TODO"),
    "torn tokenizer": Damaged(damage=tear("tokenizer.json"), says="TODO"),
    "empty tokenizer": Damaged(damage=write("tokenizer.json", ""), says="TODO"),
    "tokenizer list": Damaged(damage=write("tokenizer.json", "[]"), says="TODO"),
    "tokenizer nested": Damaged(damage=write("tokenizer.json", nested(100_000)), says="TODO"),
    "tokenizer config torn": Damaged(damage=tear("tokenizer_config.json"), says="TODO"),
    "tokenizer config list": Damaged(damage=write("tokenizer_config.json", "[]"), says="TODO"),
    "tokenizer class": Damaged(damage=edit("tokenizer_config.json", tokenizer_class="Made"), says="TODO"),
    "tokenizer class int": Damaged(damage=edit("tokenizer_config.json", tokenizer_class=7), says="TODO"),
    "tokenizer eos obj": Damaged(damage=edit("tokenizer_config.json", eos_token=5), says="TODO"),
    "tokenizer max": Damaged(damage=edit("tokenizer_config.json", model_max_length="x"), says="TODO"),
    "tokenizer nested cfg": Damaged(damage=write("tokenizer_config.json", nested(100_000)), says="TODO"),
    "smaller embedding": Damaged(damage=fewer_embeddings, says="TODO"),
    "unreadable": Damaged(damage=unreadable, says="TODO"),
    "no template": Damaged(damage=remove("chat_template.jinja"), says="TODO", about="template"),
    "template syntax": Damaged(damage=template("{% for m in messages %}"), says="TODO", about="template"),
    "template 1/0": Damaged(damage=template("{{ 1/0 }}"), says="TODO", about="template"),
    "template raise": Damaged(
        damage=template("{{ raise_exception('not me') }}"), says="TODO", about="template"
    ),
    "template undefined": Damaged(
        damage=template("{{ messages[0].content.wiggle.waggle }}"), says="TODO", about="template"
    ),
    "template endless": Damaged(damage=template(ENDLESS), says="TODO", about="template"),
    "template pow": Damaged(damage=template("{{ 10**(10**9) }}"), says="TODO", about="template"),
    "template big": Damaged(damage=template("{{ 'x' * 10**11 }}"), says="TODO", about="template"),
    "template recursion": Damaged(
        damage=template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), says="TODO", about="template"
    ),
    "template include": Damaged(
        damage=template("{% include '/etc/passwd' %}"), says="TODO", about="template"
    ),
    "template unsafe": Damaged(
        damage=template("{{ ''.__class__.__mro__[1].__subclasses__() }}"), says="TODO", about="template"
    ),
    "template attribute": Damaged(damage=template("{{ messages.append(1) }}"), says="TODO", about="template"),
    "template not utf8": Damaged(
        damage=write("chat_template.jinja", b"\xff\xfe{{"), says="TODO", about="template"
    ),
    "template folder": Damaged(damage=as_directory("chat_template.jinja"), says="TODO", about="template"),
    "template deep": Damaged(
        damage=template("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"), says="TODO", about="template"
    ),
    "template number": Damaged(
        damage=lambda f: (
            remove("chat_template.jinja")(f),
            edit("tokenizer_config.json", chat_template=5)(f),
        ),
        says="TODO",
        about="template",
    ),
    "template sleep": Damaged(
        damage=template(
            "{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}"
        ),
        says="TODO",
        about="template",
    ),
}
