"""plaudit's DPO on pictures against TRL's: in turn, each run in its own process, on the same folder.

python -m benchmarks.pictures            a LLaVA whose two answers to a question are about one picture
python -m benchmarks.pictures --save     and keeps the table in RESULTS.md
"""

import argparse
import json
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.table import Side, side_by_side
from benchmarks.turns import (
    Command,
    in_turn,
    largest_difference,
    options,
    ours,
    run_plan,
    theirs,
    without_peer,
)
from benchmarks.work import PAIRS, REFERENCE, SHAPES, model_of, tokenizer_of

TITLE = "DPO on pictures against TRL"
MAX_DIFFERENCE = 1e-3
"""Log-ratios of whole answers further apart than this are of other pictures or texts: no timing counts."""
BATCH = 4
"""Comparisons of a step."""
WORDS = 32
"""Of a question, and of each answer."""
PATCH = 16
"""Pixels of a patch, each way; each patch is a token of the prompt."""
TEMPLATE = (
    "{% for turn in messages %}{{ 'w0 ' if turn.role == 'user' else 'w1 ' }}{% if turn.content is string %}"
    "{{ turn.content }}{% else %}{% for part in turn.content %}"
    "{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}"
    "{{ '<eos>' }}{% endfor %}{% if add_generation_prompt %}{{ 'w1 ' }}{% endif %}"
)
TOWERS = {"tiny": (32, 64, 1), "mid": (224, 384, 6), "smol": (224, 768, 12)}
"""Pixels of a picture each way; width and layers of what looks at it for a language model of this shape."""


def write_pictured_work(folder: Path, shape: str, count: int) -> None:
    """Write a LLaVA, a reference with other weights, and comparisons about a picture each."""
    from PIL import Image

    pixels, generator = TOWERS[shape][0], random.Random(0)
    tokenizer: Any = tokenizer_of(SHAPES[shape])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.chat_template = TEMPLATE
    images: Any = transformers.SiglipImageProcessorPil(size={"height": pixels, "width": pixels})
    more: Any = {"patch_size": PATCH, "chat_template": TEMPLATE, "vision_feature_select_strategy": "full"}
    for seed, name in enumerate(("model", REFERENCE)):
        _model(shape, tokenizer, seed).save_pretrained(folder / name)
        transformers.LlavaProcessor(images, tokenizer, **more).save_pretrained(folder / name)

    def words() -> str:
        return " ".join(f"w{generator.randrange(SHAPES[shape].vocabulary - 3)}" for _ in range(WORDS))

    def row(n: int) -> str:
        noise = generator.randbytes(3 * pixels**2)
        Image.frombytes("RGB", (pixels, pixels), noise).save(folder / f"{n}.png")
        parts = [{"type": "image"}, {"type": "text", "text": words()}]
        answers = {side: [{"role": "assistant", "content": words()}] for side in ("chosen", "rejected")}
        return json.dumps({"images": [f"{n}.png"], "prompt": [{"role": "user", "content": parts}], **answers})

    (folder / PAIRS).write_text("".join(f"{row(n)}\n" for n in range(count)), encoding="utf-8")


def _model(shape: str, tokenizer: Any, seed: int) -> Any:
    pixels, width, layers = TOWERS[shape]
    text = model_of(SHAPES[shape]).config
    text.vocab_size = len(tokenizer)
    sizes: Any = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": width // 64, "image_size": pixels, "patch_size": PATCH}
    vision = transformers.SiglipVisionConfig(**sizes)
    torch.manual_seed(seed)
    places: Any = {"vision_feature_select_strategy": "full", "vision_feature_layer": -1}
    places |= {"image_token_id": tokenizer.convert_tokens_to_ids("<image>")}
    config = transformers.LlavaConfig(vision_config=vision, text_config=text, **places)
    return transformers.LlavaForConditionalGeneration(config)


def compare(shape: str, given: argparse.Namespace) -> tuple[str, list[Side]]:
    """One shape, with the reference beside the policy; and ours asked before, which is how a run begins."""
    batch, mine = ("--batch", str(BATCH)), ("our_preference", "--method", "dpo")
    sides = [
        Command(name="plaudit, live", words=ours(*mine, *batch)),
        Command(name="TRL, its defaults, live", words=theirs("dpo-pictures", *batch)),
        Command(
            name="TRL, its best (plain), live", words=theirs("dpo-pictures", *batch, "--variant", "plain")
        ),
        Command(name="plaudit, precomputed", words=ours(*mine, *batch, "--reference", "precomputed")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_pictured_work(work, shape, given.steps * BATCH)
        words = ("--rewards", "--threads", str(given.threads), "--device", given.device, str(work))
        difference, count = largest_difference(ours("our_preference", *words), theirs("dpo-pictures", *words))
        outcome = in_turn(sides, work, given)
    sentence = f"log π − log π_ref of {count} answers differs by at most {difference:.1g}."
    if difference > MAX_DIFFERENCE:
        outcome = without_peer(sides, outcome, sentence)
    (pixels, width, layers), size = TOWERS[shape], SHAPES[shape]
    head = (
        f"### {shape}: {size.layers} layers of {size.hidden} behind a tower of {layers} of {width}\n\n"
        f"Batches of {BATCH} comparisons, each about a picture of {(pixels // PATCH) ** 2} tokens, questions "
        f"and answers of {WORDS} words; {given.threads} threads. {sentence}"
    )
    table = side_by_side(outcome, exact=len(outcome), unit="comparisons", agreement=1e-5)
    return f"{head}\n\n{table}", outcome


def main() -> None:
    """From the command line: python -m benchmarks.pictures [--shapes mid] [--save]."""
    parser = options("compare plaudit's steps of DPO on pictures with TRL's")
    parser.set_defaults(shapes=["mid"])
    given = parser.parse_args()
    run_plan(TITLE, [partial(compare, shape, given) for shape in given.shapes], given)


if __name__ == "__main__":
    main()
