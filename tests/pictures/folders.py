"""Tiny models of the families that see, with random weights, each in a folder with its own processor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from PIL import Image
from torch import nn

from plaudit.lab.world import SHIPPED_MODEL_FOLDER

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TOWER = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
TURN = "{{ '<|' + message['role'] + '|>' }}"
PARTS = "{% for p in message['content'] %}{{ MARK if p['type'] == 'image' else p['text'] }}{% endfor %}"
TEMPLATE = (
    f"{{% for message in messages %}}{TURN}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    f"{{% else %}}{PARTS}{{% endif %}}{{{{ '<|end|>' }}}}{{% endfor %}}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def _tokenizer(*tokens: str, **named: str) -> Any:
    tokenizer = hf.AutoTokenizer.from_pretrained(SHIPPED_MODEL_FOLDER, extra_special_tokens=named)
    tokenizer.add_tokens(["\n\n", "\n", "A", "B"])
    tokenizer.add_special_tokens(
        {"additional_special_tokens": list(tokens)}, replace_extra_special_tokens=False
    )
    return tokenizer


def _text(kind: Any, tokenizer: Any, **more: Any) -> Any:
    ends = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    return kind(vocab_size=len(tokenizer), **ends, **SMALL, **more)


def _llava(next_one: bool) -> tuple[Any, Any, Any, str]:
    tokenizer = _tokenizer("<image>")
    pinpoints = {"image_grid_pinpoints": [[32, 64], [64, 32], [64, 64]]} if next_one else {}
    common: Any = {"vision_feature_select_strategy": "full"}
    config, model, processor = (
        getattr(hf, f"Llava{'Next' if next_one else ''}{name}")
        for name in ("Config", "ForConditionalGeneration", "Processor")
    )
    made = model(
        config(
            vision_config=hf.SiglipVisionConfig(**TOWER),
            text_config=_text(hf.LlamaConfig, tokenizer),
            image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
            vision_feature_layer=-1,
            **common,
            **pinpoints,
        )
    )
    crop: Any = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}, **pinpoints}
    square: Any = {"size": {"height": 32, "width": 32}}
    images = hf.LlavaNextImageProcessorPil(**crop) if next_one else hf.SiglipImageProcessorPil(**square)
    return made, processor(images, tokenizer, patch_size=8, **common), tokenizer, "<image>"


def _idefics3() -> tuple[Any, Any, Any, str]:
    grid = [f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)]
    marks = ("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    tokenizer = _tokenizer(*marks, *grid)
    config = hf.Idefics3Config(
        vision_config=TOWER,
        text_config=_text(hf.LlamaConfig, tokenizer),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    sizes: Any = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    processor = hf.Idefics3Processor(hf.Idefics3ImageProcessorPil(**sizes), tokenizer, image_seq_len=4)
    return hf.Idefics3ForConditionalGeneration(config), processor, tokenizer, "<image>"


def _qwen(third: bool) -> tuple[Any, Any, Any, str]:
    tokenizer = _tokenizer("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    marks = {
        "image": "image_pad",
        "video": "video_pad",
        "vision_start": "vision_start",
        "vision_end": "vision_end",
    }
    numbers = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{mark}|>") for name, mark in marks.items()
    }
    tower: Any = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}
    tower |= {"patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    text = _text(dict, tokenizer, rope_parameters=rope, **({"head_dim": 8} if third else {}))
    if third:
        tower |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
        model = hf.Qwen3VLForConditionalGeneration(
            hf.Qwen3VLConfig(vision_config=tower, text_config=text, **numbers)
        )
    else:
        tower |= {"window_size": 32, "fullatt_block_indexes": [1]}
        model = hf.Qwen2_5_VLForConditionalGeneration(
            hf.Qwen2_5_VLConfig(vision_config=tower, text_config=text, bos_token_id=None, **numbers)
        )
    images: Any = hf.Qwen2VLImageProcessorPil(patch_size=8, merge_size=2, min_pixels=256, max_pixels=4096)
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    return model, images, tokenizer, mark


def _gemma3() -> tuple[Any, Any, Any, str]:
    names = {"image": "image_soft_token", "boi": "start_of_image", "eoi": "end_of_image"}
    tokenizer = _tokenizer(**{f"{name}_token": f"<{mark}>" for name, mark in names.items()})
    numbers = {
        f"{name}_token_index": tokenizer.convert_tokens_to_ids(f"<{mark}>") for name, mark in names.items()
    }
    config = hf.Gemma3Config(
        vision_config=hf.SiglipVisionConfig(**TOWER),
        text_config=_text(hf.Gemma3TextConfig, tokenizer, head_dim=8),
        mm_tokens_per_image=4,
        **numbers,
    )
    images: Any = hf.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = hf.Gemma3Processor(images, tokenizer, image_seq_length=4)
    return hf.Gemma3ForConditionalGeneration(config), processor, tokenizer, "<start_of_image>"


FAMILIES: dict[str, Callable[[], tuple[Any, Any, Any, str]]] = {
    "llava": lambda: _llava(False),
    "llava_next": lambda: _llava(True),
    "idefics3": _idefics3,
    "qwen2_5_vl": lambda: _qwen(False),
    "qwen3_vl": lambda: _qwen(True),
    "gemma3": _gemma3,
}


def make_folder(family: str, folder: Path) -> Path:
    """The folder of a model whose weights are large enough that pictures matter."""
    torch.manual_seed(0)
    model, processor, tokenizer, mark = FAMILIES[family]()
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.chat_template = TEMPLATE.replace("MARK", f"'{mark}'")
    tokenizer.save_pretrained(folder)
    return folder


def picture(path: Path, colour: str, size: tuple[int, int] = (40, 30), **saved: Any) -> Path:
    """A picture of one colour, in a file."""
    Image.new("RGB", size, colour).save(path, **saved)
    return path


COLOURS = ("red", "blue", "green", "white")


def write_pictures(folder: Path) -> list[Path]:
    """Four pictures of one colour each, in two sizes."""
    sizes = [(60, 40) if n % 2 else (40, 40) for n in range(len(COLOURS))]
    return [picture(folder / f"{name}.png", name, size) for name, size in zip(COLOURS, sizes, strict=True)]


def pair(
    *names: str, words: str = "What sat?", chosen: str = "the cat", rejected: str = "two old dogs"
) -> Any:
    """A row of two answers to a question about pictures."""
    shown = [{"type": "image", "image": name} for name in names]
    return {
        "prompt": [{"role": "user", "content": [*shown, {"type": "text", "text": words}]}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
    }


def write_pairs(folder: Path) -> Path:
    """A pair about each picture, one about two of them, and one of words alone."""
    write_pictures(folder)
    rows = [*(pair(f"{colour}.png") for colour in COLOURS), pair("red.png", "blue.png"), pair()]
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path
