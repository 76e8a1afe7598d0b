"""Runs over pictures through the command: what rows become, what is learnt, and what is refused."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.pictures.diffusion import data, models
from plaudit.pictures.diffusion.objective import PictureBatch
from plaudit.pictures.world.scenes import caption, first_scenes, render
from plaudit.pictures.world.seen import fidelity

pytest.importorskip("diffusers")
NEW = ["--new.size", "8", "--new.patch", "4", "--new.width", "32", "--new.layers", "1"]
REWARD = "def red(captions, pictures):\n    return [float(p[0].float().mean() - p[2].float().mean()) for p in pictures]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red and blue squares with captions, pairs of them, and a model of a few steps."""
    at = tmp_path_factory.mktemp("diffusion")
    for name, colour in (("red", (220, 0, 0)), ("blue", (0, 0, 220))):
        Image.new("RGB", (8, 8), colour).save(at / f"{name}.png")
    write(
        at / "drawn.jsonl",
        [{"prompt": f"all {name}", "picture": f"{name}.png"} for name in ("red", "blue")] * 4,
    )
    pairs = [{"prompt": "all red", "chosen": "red.png", "rejected": "blue.png"}]
    write(
        at / "pairs.jsonl", [*pairs, {"prompt": "all blue", "chosen": "blue.png", "rejected": "red.png"}] * 2
    )
    (at / "red.py").write_text(REWARD)
    assert plaudit("sft", at / "sft", at / "drawn.jsonl", *NEW, "--steps", "4") == 0
    return at


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plaudit(verb: str, out: Path, rows: Path, *more: Any) -> int:
    words = ["--data", rows, "--out", out, "--device", "cpu", "--seed", 1, *more]
    return main(["diffusion", verb, *map(str, words)])


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "timing"} for line in lines]


RED, BLUE = "red.png", "blue.png"
RAW = {
    "own": {"prompt": "p", "chosen": RED, "rejected": BLUE},
    "pick-a-pic": {
        "caption": "p",
        "jpg_0": BLUE,
        "jpg_1": RED,
        "label_0": 0,
        "label_1": 1.0,
        "are_different": True,
    },
    "hpsv2": {"prompt": "p", "image_path": [BLUE, RED], "human_preference": [0, 1]},
    "tie": {"caption": "p", "jpg_0": RED, "jpg_1": BLUE, "label_0": 0.5, "label_1": 0.5},
    "not different": {
        "caption": "p",
        "jpg_0": RED,
        "jpg_1": BLUE,
        "label_0": 1,
        "label_1": 0,
        "are_different": False,
    },
    "same pixels": {"prompt": "p", "chosen": RED, "rejected": "again.png"},
    "thumb": {"prompt": "p", "picture": BLUE, "label": False},
    "plain": {"prompt": "p", "picture": RED},
}


@pytest.mark.parametrize(
    ("name", "pairs", "ties", "thumbs", "pictures"),
    [
        *((name, ["rb"], ["rb 1"], ["r1", "b0"], ["r"]) for name in ("own", "pick-a-pic", "hpsv2")),
        ("tie", [], ["rb 0.5"], [], []),
        *((name, [], [], [], []) for name in ("not different", "same pixels")),
        ("thumb", None, None, ["b0"], []),
        ("plain", None, None, None, ["r"]),
    ],
)
def test_each_layout_becomes_what_a_way_to_learn_reads(
    folder: Path, name: str, pairs: Any, ties: Any, thumbs: Any, pictures: Any
) -> None:
    Image.open(folder / RED).save(folder / "again.png")
    rows = write(
        folder / "one.jsonl", [RAW[name], {"prompt": "left", "chosen": BLUE, "rejected": RED, "label": 1}]
    )
    forms = {
        "pairs": (pairs, lambda row: "".join(Path(p).name[0] for p in row.pictures)),
        "pairs and ties": (
            ties,
            lambda row: f"{''.join(Path(p).name[0] for p in row.pictures)} {row.label:g}",
        ),
        "thumbs": (thumbs, lambda row: f"{Path(row.pictures[0]).name[0]}{row.label:g}"),
        "pictures": (pictures, lambda row: Path(row.pictures[0]).name[0]),
    }
    for reads, (wanted, form) in forms.items():
        read, notes = data.read_rows(rows, reads, threshold=0.5)
        assert [form(row) for row in read if row.caption == "p"] == (wanted or []), reads
        assert any("bad rows" in note for note in notes) == (wanted is None)
        assert any("left out:" in note for note in notes) == (not wanted), reads


def test_bad_rows_are_named_and_counted_and_too_many_refused(folder: Path) -> None:
    (folder / "cut.png").write_bytes((folder / RED).read_bytes()[:40])
    good = {"prompt": "p", "chosen": RED, "rejected": BLUE}
    bad = [{**good, "rejected": "cut.png"}, {**good, "prompt": " "}, {**good, "chosen": 7}, {"prompt": "p"}]
    rows = write(folder / "bad.jsonl", [good, *bad])
    read, notes = data.read_rows(rows, "pairs", threshold=0.8)
    assert len(read) == 1
    for part in (
        "4 bad rows",
        "bad.jsonl:2: the picture",
        "cut.png",
        "bad.jsonl:3: a caption",
        "chosen should be",
    ):
        assert part in notes[-1]
    with pytest.raises(UserError, match="threshold 0.1"):
        data.read_rows(rows, "pairs", threshold=0.1)


METHODS = {
    "sft": ("drawn.jsonl", NEW),
    "dpo": ("pairs.jsonl", ["--beta", 50]),
    "kto": ("pairs.jsonl", ["--beta", 50, "--at-once", 2]),
    "ddpo": ("drawn.jsonl", ["--group-size", 2, "--draw-steps", 3, "--batch-size", 2, "--clip", 0.1]),
    "reward": ("pairs.jsonl", ["--size", 8, "--width", 32]),
}


@pytest.mark.parametrize("verb", METHODS)
def test_a_run_that_is_killed_goes_on_to_the_bit(
    folder: Path, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, more = METHODS[verb]
    more = [*more, "--steps", 5, "--save-every", 1, "--learning-rate", 1e-3]
    more += [] if verb in ("sft", "reward") else ["--model", folder / "sft" / "model"]
    more += ["--reward", f"{folder / 'red.py'}:red"] if verb == "ddpo" else []
    assert plaudit(verb, tmp_path / "whole", folder / rows, *more) == 0
    calls, split = [0], PictureBatch.split

    def killed(self: PictureBatch, most: int) -> Any:
        calls[0] += 1
        # Of the second round of ddpo, after its first update.
        if calls[0] == 4:
            raise ConnectionAbortedError
        return split(self, most)

    with monkeypatch.context() as patch, pytest.raises(ConnectionAbortedError):
        patch.setattr(PictureBatch, "split", killed)
        plaudit(verb, tmp_path / "killed", folder / rows, *more)
    assert plaudit(verb, tmp_path / "killed", folder / rows, *more) == 0
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")
    # On its first step a policy is its reference, and a round is learnt from by the policy that drew it.
    first = metrics(tmp_path / "whole")[0]
    expected = {"dpo": ("loss", np.log(2)), "kto": ("loss", 0.5), "ddpo": ("ratio", 1.0)}
    if verb in expected:
        name, value = expected[verb]
        assert first[name] == pytest.approx(value, abs=1e-6)
        assert plaudit(verb, tmp_path / "whole", folder / rows, *more, "--seed", 2) == 2
    else:
        assert metrics(tmp_path / "whole")[-1]["loss"] < first["loss"]


def test_pieces_change_no_gradient(folder: Path, tmp_path: Path) -> None:
    for most in (2, 64):
        more = ["--model", folder / "sft" / "model", "--steps", 2, "--beta", 50, "--at-once", most]
        assert plaudit("dpo", tmp_path / str(most), folder / "pairs.jsonl", *more) == 0
    norms = [metrics(tmp_path / str(most))[1]["grad_norm"] for most in (2, 64)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_pictures_are_drawn_judged_and_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, reward = folder / "sft" / "model", f"{folder / 'red.py'}:red"
    how = ["--draw-steps", 3, "--each", 2, "--n", 2]
    assert plaudit("sample", tmp_path / "drawn", folder / "drawn.jsonl", *how, "--model", model) == 0
    read, _ = data.read_rows(tmp_path / "drawn" / "rows.jsonl", "pictures", threshold=0)
    assert [row.caption for row in read] == ["all red", "all red", "all blue", "all blue"]
    rows = ["--rewards", reward, "--model", model, model.parent / "model"]
    assert plaudit("eval", tmp_path / "eval", folder / "drawn.jsonl", *how, *rows) == 0
    assert "diversity" in capsys.readouterr().out
    [worth] = json.loads((tmp_path / "eval" / "eval.json").read_text())
    assert worth["rewards"][reward]["n"] == 4
    page = (tmp_path / "eval" / "page.html").read_text()
    assert page.count('src="data:image/png;base64,') == 2
    assert "for: all red" in page


def test_a_picture_has_all_of_its_own_caption_and_little_of_anothers() -> None:
    scenes = first_scenes(30, "test", most=3, signs=0.0)
    pixels = np.stack([np.array(render(scene, 32)) for scene in scenes])
    pictures = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    captions = [caption(scene) for scene in scenes]
    assert fidelity(captions, pictures) == [1.0] * 30
    assert np.mean(fidelity(captions, pictures.roll(1, 0))) < 0.2


@pytest.mark.parametrize(
    ("verb", "rows", "more", "says"),
    [
        ("dpo", "pairs.jsonl", ["--model", "."], "a drawer of pictures is needed"),
        ("dpo", "pairs.jsonl", [], "--model is missing"),
        ("dpo", "same.jsonl", ["--model", "sft/model"], "both pictures are the same: none is left"),
        (
            "ddpo",
            "drawn.jsonl",
            ["--model", "sft/model", "--reward", "sft/model"],
            "a preference of pictures",
        ),
        ("sft", "drawn.jsonl", ["--new.size", "9"], "multiple of the patch"),
    ],
)
def test_what_cannot_be_run_is_said(
    folder: Path,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    rows: str,
    more: Any,
    says: str,
) -> None:
    monkeypatch.chdir(folder)
    write(folder / "same.jsonl", [{"prompt": "p", "chosen": RED, "rejected": RED}])
    assert plaudit(verb, tmp_path / "out", folder / rows, *more) == 2
    assert says in capsys.readouterr().err


def test_without_diffusers_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    models.from_diffusers.cache_clear()
    with pytest.raises(UserError, match=r"plaudit\[diffusion\]"):
        models.from_diffusers("DiffusionPipeline")
