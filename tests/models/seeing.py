"""A tiny model that sees, with its processor, and plain pictures to show it."""

from pathlib import Path
from typing import Any

import torch
import transformers as library
from PIL import Image

from tests.engine.toy import make_model

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for p in m['content'] %}{{ '<image>' if p['type'] == 'image' else p['text'] }}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_seeing(folder: Path) -> Path:
    """A LLaVA with two layers here and there, in a folder."""
    make_model(folder / "words")
    tokenizer = library.AutoTokenizer.from_pretrained(folder / "words")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    size: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    how: dict[str, Any] = {"vision_feature_select_strategy": "full"}
    ends: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 2}
    tower = library.SiglipVisionConfig(hidden_size=24, image_size=32, patch_size=8, **size)
    language = library.LlamaConfig(hidden_size=32, vocab_size=len(tokenizer), **ends, **size)
    image = tokenizer.convert_tokens_to_ids("<image>")
    parts: dict[str, Any] = {"vision_config": tower, "text_config": language, "image_token_id": image}
    torch.manual_seed(0)
    model = library.LlavaForConditionalGeneration(
        library.LlavaConfig(**parts, vision_feature_layer=-1, **how)
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder)
    images = library.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    how |= {"chat_template": _TEMPLATE}
    library.LlavaProcessor(images, tokenizer, patch_size=8, **how).save_pretrained(folder)
    return folder


def picture(path: Path, colour: str, size: tuple[int, int] = (40, 30), **saved: Any) -> Path:
    Image.new("RGB", size, colour).save(path, **saved)
    return path
