"""Stable Diffusion's shape, tiny and random: loaded by diffusers, trained by the same losses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from plaudit.cli.main import main

diffusers = pytest.importorskip("diffusers")


def tiny_pipeline(folder: Path) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=12)
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53, "max_position_embeddings": 12}
    text = CLIPTextModel(CLIPTextConfig(vocab_size=54, **sizes, **ends))
    blocks = {"block_out_channels": (32, 32), "layers_per_block": 1}
    downs, ups = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, cross_attention_dim=32, down_block_types=downs, up_block_types=ups, **blocks
    )
    kinds = {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
    vae = diffusers.AutoencoderKL(latent_channels=4, **kinds, **blocks)
    return diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sft", "dpo", "ddpo"])
def test_a_pipeline_learns_in_its_unet_and_stays_a_pipeline(verb: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    start, out, rows = tmp_path / "pipeline", tmp_path / "out", tmp_path / "pairs.jsonl"
    tiny_pipeline(tmp_path).save_pretrained(start)
    for name, colour in (("red", (220, 0, 0)), ("blue", (0, 0, 220))):
        Image.new("RGB", (20, 16), colour).save(tmp_path / f"{name}.png")
    rows.write_text('{"prompt": "all red", "chosen": "red.png", "rejected": "blue.png"}\n' * 2)
    (tmp_path / "red.py").write_text(
        "def red(captions, pictures):\n    return [p[0].float().mean() for p in pictures]\n"
    )
    words = ["--data", rows, "--out", out, "--model", start, "--steps", 2, "--device", "cpu"]
    words += (
        ["--reward", f"{tmp_path}/red.py:red", "--group-size", 2, "--draw-steps", 3] if verb == "ddpo" else []
    )
    assert main(["diffusion", verb, *map(str, words)]) == 0
    for part in ("unet", "vae", "text_encoder"):
        [before], [after] = ((at / part).glob("*.safetensors") for at in (start, out / "model"))
        weights = load_file(after)
        same = all(torch.equal(weight, weights[name]) for name, weight in load_file(before).items())
        assert same == (part != "unet")
    pipeline = diffusers.DiffusionPipeline.from_pretrained(out / "model", use_safetensors=True)
    assert type(pipeline).__name__ == "StableDiffusionPipeline"
