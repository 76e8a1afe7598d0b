"""Runs over pictures through the command: what rows become, what is learnt, and what is refused."""

import json
import sys
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from examples.diffusion import data, models
from examples.diffusion.__main__ import main
from examples.diffusion.facts import fidelity
from examples.diffusion.objective import PictureBatch
from plaudit.errors import UserError
from plaudit.pictures.world.scenes import caption, first_scenes, render

diffusers: Any = pytest.importorskip("diffusers")
NEW = ["--new.size", 8, "--new.patch", 4, "--new.width", 32, "--new.layers", 1]
RED, BLUE = "red.png", "blue.png"
PAIR = {"prompt": "p", "chosen": RED, "rejected": BLUE}
DRAWN = [{"prompt": f"all {name}", "picture": f"{name}.png"} for name in ("red", "blue")] * 4
DRAWS = ["--draw-steps", 3, "--each", 2, "--n", 2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares with captions, pairs of them, and a model of a few steps."""
    at = tmp_path_factory.mktemp("diffusion")
    write_squares(at, "pairs", *[PAIR, {"prompt": "all blue", "chosen": BLUE, "rejected": RED}] * 2)
    write_squares(at, "same", {**PAIR, "rejected": "again.png"})
    assert draw("sft", at / "sft", write_squares(at, "drawn", *DRAWN), *NEW, "--steps", "4") == 0
    return at


def write_squares(folder: Path, name: str, *rows: Any) -> Path:
    """Rows as a file of this name, with the pictures that they may name and a reward for red."""
    for picture, colour in ((RED, (220, 0, 0)), (BLUE, (0, 0, 220)), ("again.png", (220, 0, 0))):
        Image.new("RGB", (10, 8), colour).save(folder / picture)
    (folder / "cut.png").write_bytes((folder / RED).read_bytes()[:40])
    (folder / "red.py").write_text("red = lambda _, every: [float(p[0].float().mean()) for p in every]\n")
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def draw(verb: str, out: Path, rows: Path, *more: Any) -> int:
    words = [verb, "--data", rows, "--out", out, "--device", "cpu", "--seed", 1, *more]
    return main([*map(str, words)])


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name != "timing"} for line in lines]


PICK = {"caption": "p", "jpg_0": BLUE, "jpg_1": RED, "label_0": 0, "label_1": 1.0, "are_different": True}
HPS = {"prompt": "p", "image_path": [BLUE, RED], "human_preference": [0, 1]}
PREFERRED, LEFT_OUT = (["rb1"], ["rb1"], ["r1", "b0"], ["r1"]), ([], [], [], [])


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        *((row, PREFERRED) for row in (PAIR, PICK, HPS)),
        ({**PICK, "label_0": 0.5, "label_1": 0.5}, ([], ["br0.5"], [], [])),
        ({**PICK, "are_different": False}, LEFT_OUT),
        ({**PAIR, "rejected": "again.png"}, LEFT_OUT),
        ({"prompt": "p", "picture": BLUE, "label": False}, (None, None, ["b0"], [])),
        ({"prompt": "p", "picture": RED}, (None, None, None, ["r1"])),
        ({**PAIR, "rejected": "cut.png"}, (None, None, None, ["r1"])),
        ({**PAIR, "prompt": " "}, (None, None, None, None)),
    ],
)
def test_each_layout_becomes_what_a_way_to_learn_reads(tmp_path: Path, row: Any, wanted: Any) -> None:
    rows = write_squares(tmp_path, "rows", row, {"prompt": "other", "chosen": BLUE, "rejected": RED})
    for reads, forms in zip(("pairs", "pairs and ties", "thumbs", "pictures"), wanted, strict=True):
        read, notes = data.read_rows(rows, reads, threshold=0.5)
        mine = [(row.label, [Path(x).name[0] for x in row.pictures]) for row in read if row.caption == "p"]
        assert [f"{''.join(letters)}{label:g}" for label, letters in mine] == (forms or []), reads
        assert any("1 bad rows are left out: rows.jsonl:1: " in note for note in notes) == (forms is None)
        assert any("left out" in note for note in notes) == (not forms), reads
        if forms is None:
            with pytest.raises(UserError, match=r"threshold 0\.1"):
                data.read_rows(rows, reads, threshold=0.1)


METHODS: dict[str, tuple[str, list[Any]]] = {
    "sft": ("drawn", NEW),
    "dpo": ("pairs", ["--beta", 50]),
    "kto": ("pairs", ["--beta", 50, "--at-once", 2]),
    "ddpo": ("drawn", ["--group-size", 2, "--draw-steps", 3, "--batch-size", 2, "--clip", 0.1]),
    "reward": ("pairs", ["--new.size", 8, "--new.width", 32]),
    "sample": ("drawn", DRAWS),
    "eval": ("drawn", DRAWS),
}
AT_FIRST = {"dpo": ("loss", np.log(2)), "kto": ("loss", 0.5), "ddpo": ("ratio", 1.0)}
"""On its first step a policy is its reference, and a round is learnt from by the policy that drew it."""


def words_of(verb: str, folder: Path) -> tuple[Path, list[Any]]:
    (rows, more), reward = METHODS[verb], f"{folder / 'red.py'}:red"
    more = more if more is DRAWS else [*more, "--steps", 4, "--save-every", 1, "--learning-rate", 1e-3]
    more = more if verb in ("sft", "reward") else [*more, "--model", folder / "sft" / "model"]
    other = [f"{folder / 'sft' / 'model'}/"] if verb == "eval" else []
    rewards = {"ddpo": "--reward", "sample": "--rewards", "eval": "--rewards"}
    return folder / f"{rows}.jsonl", [*more, *other, *([rewards[verb], reward] if verb in rewards else [])]


@pytest.mark.parametrize("verb", METHODS)
def test_each_verb_leaves_what_it_is_for(folder: Path, verb: str, tmp_path: Path) -> None:
    rows, more = words_of(verb, folder)
    assert draw(verb, tmp_path, rows, *more) == 0
    if verb == "sample":
        read, _ = data.read_rows(tmp_path / "rows.jsonl", "pictures", threshold=0)
        assert [row.caption for row in read] == ["all red", "all red", "all blue", "all blue"]
        pairs, _ = data.read_rows(tmp_path / "pairs.jsonl", "pairs", threshold=0)
        reds = [[data.pixels_of(at, 8)[0].float().mean() for at in pair.pictures] for pair in pairs]
        assert [best > worst for best, worst in reds] == [True, True]
    elif verb == "eval":
        [worth] = json.loads((tmp_path / "eval.json").read_text())
        assert [value["n"] for value in worth["rewards"].values()] == [4]
        page = (tmp_path / "page.html").read_text()
        assert page.count('src="data:image/png;base64,') == page.count(" for: all ") == 2
    else:
        assert load_file(tmp_path / "model" / "model.safetensors")
        name, value = AT_FIRST.get(verb, ("step", 1))
        assert metrics(tmp_path)[0][name] == pytest.approx(value, abs=1e-6)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_bit(folder, tmp_path, monkeypatch):
    (rows, more), calls, split = words_of("ddpo", folder), [0], PictureBatch.split

    def stopped(self: PictureBatch, most: int) -> Any:
        calls[0] += 1
        if calls[0] == 4:  # Within the second round, of which the first update is saved.
            raise ConnectionAbortedError
        return split(self, most)

    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    assert draw("ddpo", whole, rows, *more) == 0
    with monkeypatch.context() as patch:
        patch.setattr(PictureBatch, "split", stopped)
        with pytest.raises(ConnectionAbortedError):
            draw("ddpo", killed, rows, *more)
    assert draw("ddpo", killed, rows, *more) == 0
    weights = [load_file(out / "model" / "model.safetensors") for out in (whole, killed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert metrics(whole) == metrics(killed)


def stable_diffusion(folder: Path) -> Any:
    """A pipeline of Stable Diffusion's parts, tiny and random."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    ends = [f"{letter}</w>" for letter in ascii_lowercase]
    words = [*ascii_lowercase, *ends, "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    sizes = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 2}
    marks = {"bos_token_id": 52, "eos_token_id": 53, "pad_token_id": 53, "max_position_embeddings": 12}
    blocks = {"block_out_channels": (32, 32), "layers_per_block": 1}
    downs, ups = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    kinds = {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
    unet = {"sample_size": 8, "cross_attention_dim": 32, "down_block_types": downs, "up_block_types": ups}
    return diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(latent_channels=4, **kinds, **blocks),
        text_encoder=CLIPTextModel(CLIPTextConfig(vocab_size=54, **sizes, **marks)),
        tokenizer=CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=12),
        unet=diffusers.UNet2DConditionModel(**unet, **blocks),
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        **dict.fromkeys(("safety_checker", "feature_extractor")),
        requires_safety_checker=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["dpo", "sft", "ddpo"])
def test_a_pipeline_learns_in_its_unet_alone_and_stays_a_pipeline(folder, verb, tmp_path):
    stable_diffusion(tmp_path).save_pretrained(tmp_path / "begin")
    rows, more = words_of(verb, folder)
    more = more[len(NEW) if verb == "sft" else 0 :]
    assert draw(verb, tmp_path / "run", rows, *more, "--model", tmp_path / "begin") == 0
    for part in ("unet", "vae", "text_encoder"):
        folders = (tmp_path / "begin" / part, tmp_path / "run" / "model" / part)
        before, after = (load_file(next(at.glob("*.safetensors"))) for at in folders)
        assert all(torch.equal(weight, after[name]) for name, weight in before.items()) == (part != "unet")
    again = diffusers.DiffusionPipeline.from_pretrained(tmp_path / "run" / "model", use_safetensors=True)
    assert type(again) is diffusers.StableDiffusionPipeline


def test_a_picture_has_all_of_its_own_caption_and_little_of_anothers() -> None:
    scenes = first_scenes(30, "test", most=3, signs=0.0)
    pixels = np.stack([np.array(render(scene, 32)) for scene in scenes])
    pictures, captions = torch.from_numpy(pixels).permute(0, 3, 1, 2), [caption(scene) for scene in scenes]
    assert min(fidelity(captions, pictures)) == 1
    assert np.mean(fidelity(captions, pictures.roll(1, 0))) < 0.2


@pytest.mark.parametrize(
    ("rows", "more", "complaint"),
    [
        ("pairs", ["dpo", "--model", "."], "a drawer of pictures is needed"),
        ("pairs", ["dpo"], "--model is missing"),
        ("same", ["dpo", "--model", "sft/model"], "both pictures are the same: none is left"),
        ("drawn", ["ddpo", "--model", "sft/model", "--reward", "sft/model"], "a preference of pictures"),
        ("drawn", ["sft", "--new.size", "9"], "multiple of the patch"),
    ],
)
def test_what_cannot_be_run_is_refused(folder, capsys, monkeypatch, rows, more, complaint):
    monkeypatch.chdir(folder)
    assert draw(more[0], folder / "refused" / complaint[:9], folder / f"{rows}.jsonl", *more[1:]) == 2
    assert complaint in capsys.readouterr().err


def test_without_diffusers_one_sentence_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    models.from_diffusers.cache_clear()
    with pytest.raises(UserError, match=r"plaudit\[diffusion\]"):
        models.from_diffusers("DiffusionPipeline")
