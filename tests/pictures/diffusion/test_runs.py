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
from plaudit.pictures.world.facts import fidelity
from plaudit.pictures.world.scenes import caption, first_scenes, render

pytest.importorskip("diffusers")
NEW = ["--new.size", 8, "--new.patch", 4, "--new.width", 32, "--new.layers", 1]
RED, BLUE = "red.png", "blue.png"
PAIR = {"prompt": "p", "chosen": RED, "rejected": BLUE}
REWARD = "def red(captions, pictures):\n    return [float(p[0].float().mean()) for p in pictures]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red and blue squares with captions, pairs of them, and a model of a few steps."""
    at = tmp_path_factory.mktemp("diffusion")
    for name, colour in ((RED, (220, 0, 0)), (BLUE, (0, 0, 220)), ("again.png", (220, 0, 0))):
        Image.new("RGB", (10, 8), colour).save(at / name)
    (at / "cut.png").write_bytes((at / RED).read_bytes()[:40])
    (at / "red.py").write_text(REWARD)
    write(
        at / "drawn.jsonl",
        *[{"prompt": f"all {name}", "picture": f"{name}.png"} for name in ("red", "blue")] * 4,
    )
    write(at / "pairs.jsonl", *[PAIR, {"prompt": "all blue", "chosen": BLUE, "rejected": RED}] * 2)
    write(at / "same.jsonl", {**PAIR, "rejected": "again.png"})
    assert plaudit("sft", at / "sft", at / "drawn.jsonl", *NEW, "--steps", "4") == 0
    return at


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plaudit(verb: str, out: Path, rows: Path, *more: Any) -> int:
    words = ["--data", rows, "--out", out, "--device", "cpu", "--seed", 1, *more]
    return main(["diffusion", verb, *map(str, words)])


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "timing"} for line in lines]


PICK = {"caption": "p", "jpg_0": BLUE, "jpg_1": RED, "label_0": 0, "label_1": 1.0, "are_different": True}
LEFT_OUT = ([], [], [], [])


@pytest.mark.parametrize(
    ("row", "pairs", "ties", "thumbs", "pictures"),
    [
        (PAIR, ["rb1"], ["rb1"], ["r1", "b0"], ["r1"]),
        (PICK, ["rb1"], ["rb1"], ["r1", "b0"], ["r1"]),
        (
            {"prompt": "p", "image_path": [BLUE, RED], "human_preference": [0, 1]},
            ["rb1"],
            ["rb1"],
            ["r1", "b0"],
            ["r1"],
        ),
        ({**PICK, "label_0": 0.5, "label_1": 0.5}, [], ["br0.5"], [], []),
        ({**PICK, "are_different": False}, *LEFT_OUT),
        ({**PAIR, "rejected": "again.png"}, *LEFT_OUT),
        ({"prompt": "p", "picture": BLUE, "label": False}, None, None, ["b0"], []),
        ({"prompt": "p", "picture": RED}, None, None, None, ["r1"]),
    ],
)
def test_each_layout_becomes_what_a_way_to_learn_reads(
    folder: Path, row: Any, pairs: Any, ties: Any, thumbs: Any, pictures: Any
) -> None:
    rows = write(folder / "first.jsonl", row, {"prompt": "other", "chosen": BLUE, "rejected": RED})
    wanted = {"pairs": pairs, "pairs and ties": ties, "thumbs": thumbs, "pictures": pictures}
    for reads, forms in wanted.items():
        read, notes = data.read_rows(rows, reads, threshold=0.5)
        letters = [
            ("".join(Path(x).name[0] for x in row.pictures), row) for row in read if row.caption == "p"
        ]
        assert [f"{text}{row.label:g}" for text, row in letters] == (forms or []), reads
        assert any("bad rows" in note for note in notes) == (forms is None)
        assert any("left out" in note for note in notes) == (not forms), reads


def test_bad_rows_are_named_and_counted_and_too_many_refused(folder: Path) -> None:
    bad = [{**PAIR, "rejected": "cut.png"}, {**PAIR, "prompt": " "}, {**PAIR, "chosen": 7}, {"prompt": "p"}]
    rows = write(folder / "bad.jsonl", PAIR, *bad)
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
    with pytest.raises(UserError, match=r"threshold 0\.1"):
        data.read_rows(rows, "pairs", threshold=0.1)


METHODS = {
    "sft": ("drawn.jsonl", NEW),
    "dpo": ("pairs.jsonl", ["--beta", 50]),
    "kto": ("pairs.jsonl", ["--beta", 50, "--at-once", 2]),
    "ddpo": ("drawn.jsonl", ["--group-size", 2, "--draw-steps", 3, "--batch-size", 2, "--clip", 0.1]),
    "reward": ("pairs.jsonl", ["--new.size", 8, "--new.width", 32]),
}
AT_FIRST = {"dpo": ("loss", np.log(2)), "kto": ("loss", 0.5), "ddpo": ("ratio", 1.0)}
"""On its first step a policy is its reference, and a round is learnt from by the policy that drew it."""


@pytest.mark.parametrize("verb", METHODS)
def test_a_run_that_is_killed_goes_on_to_the_bit(
    folder: Path, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, more = METHODS[verb]
    more = [*more, "--steps", 5, "--save-every", 1, "--learning-rate", 1e-3]
    more += ["--model", folder / "sft" / "model"] if verb in AT_FIRST else []
    more += ["--reward", f"{folder / 'red.py'}:red"] if verb == "ddpo" else []
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert plaudit(verb, whole, folder / rows, *more) == 0
    calls, split = [0], PictureBatch.split

    def stopped(self: PictureBatch, most: int) -> Any:
        calls[0] += 1
        # Of ddpo within the second round: its first update is saved.
        if calls[0] == 4:
            raise ConnectionAbortedError
        return split(self, most)

    with monkeypatch.context() as patch:
        patch.setattr(PictureBatch, "split", stopped)
        with pytest.raises(ConnectionAbortedError):
            plaudit(verb, killed, folder / rows, *more)
    assert plaudit(verb, killed, folder / rows, *more) == 0
    weights = [load_file(out / "model" / "model.safetensors") for out in (whole, killed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert metrics(whole) == metrics(killed)
    name, value = AT_FIRST.get(verb, ("loss", metrics(whole)[0]["loss"]))
    assert metrics(whole)[0][name] == pytest.approx(value, abs=1e-6)
    assert plaudit(verb, whole, folder / rows, *more, "--seed", 2) == 2


@pytest.mark.slow
def test_each_method_moves_a_model_to_what_is_preferred(folder: Path, tmp_path: Path) -> None:
    """It draws red as often as blue; then pairs, thumbs and a reward want red."""
    rows = write(
        folder / "both.jsonl", *[{"prompt": "p", "picture": picture} for picture in (RED, BLUE)] * 16
    )
    pairs, sft = write(folder / "wanted.jsonl", *[PAIR] * 32), tmp_path / "sft" / "model"
    new = [*NEW, "--new.width", 64, "--new.layers", 2, "--new.prediction", "flow"]
    assert plaudit("sft", tmp_path / "sft", rows, *new, "--steps", 500, "--learning-rate", 2e-3) == 0
    more = ["--model", sft, "--learning-rate", 3e-4, "--steps"]
    draws = ["--batch-size", 2, "--group-size", 16, "--draw-steps", 8, "--guidance", 1, "--clip", 0.05]
    reward = f"{folder / 'red.py'}:red"
    assert plaudit("dpo", tmp_path / "dpo", pairs, *more, 60, "--beta", 200) == 0
    assert plaudit("kto", tmp_path / "kto", pairs, *more, 60, "--beta", 200) == 0
    assert plaudit("ddpo", tmp_path / "ddpo", rows, *more, 40, *draws, "--reward", reward) == 0
    trained = [sft, *(tmp_path / verb / "model" for verb in ("dpo", "kto", "ddpo"))]
    asked = ["--model", *trained, "--each", 64, "--guidance", 1, "--rewards", reward]
    assert plaudit("eval", tmp_path, rows, *asked) == 0
    worths = json.loads((tmp_path / "eval.json").read_text())
    first, *others = (worth["rewards"][reward]["value"] for worth in worths)
    assert min(others) > first + 15


def test_pieces_change_no_gradient(folder: Path, tmp_path: Path) -> None:
    for most in (2, 64):
        more = ["--model", folder / "sft" / "model", "--steps", 2, "--beta", 50, "--at-once", most]
        assert plaudit("dpo", tmp_path / str(most), folder / "pairs.jsonl", *more) == 0
    norms = [metrics(tmp_path / str(most))[1]["grad_norm"] for most in (2, 64)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_pictures_are_drawn_judged_and_shown(folder: Path, tmp_path: Path, capsys: Any) -> None:
    model, reward = folder / "sft" / "model", f"{folder / 'red.py'}:red"
    how = ["--draw-steps", 3, "--each", 2, "--n", 2, "--model", model]
    assert plaudit("sample", tmp_path / "drawn", folder / "drawn.jsonl", *how) == 0
    read, _ = data.read_rows(tmp_path / "drawn" / "rows.jsonl", "pictures", threshold=0)
    assert [row.caption for row in read] == ["all red", "all red", "all blue", "all blue"]
    assert plaudit("eval", tmp_path, folder / "drawn.jsonl", *how, f"{model}/", "--rewards", reward) == 0
    assert "diversity" in capsys.readouterr().out
    [worth] = json.loads((tmp_path / "eval.json").read_text())
    assert worth["rewards"][reward]["n"] == 4
    page = (tmp_path / "page.html").read_text()
    assert page.count('src="data:image/png;base64,') == page.count(" for: all ") == 2


def test_a_picture_has_all_of_its_own_caption_and_little_of_anothers() -> None:
    scenes = first_scenes(30, "test", most=3, signs=0.0)
    pixels = np.stack([np.array(render(scene, 32)) for scene in scenes])
    pictures, captions = torch.from_numpy(pixels).permute(0, 3, 1, 2), [caption(scene) for scene in scenes]
    assert fidelity(captions, pictures) == [1.0] * 30
    assert np.mean(fidelity(captions, pictures.roll(1, 0))) < 0.2


@pytest.mark.parametrize(
    ("verb", "rows", "more", "complaint"),
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
def test_what_cannot_be_run_is_refused(
    folder: Path, capsys: Any, monkeypatch: Any, verb: str, rows: str, more: Any, complaint: str
) -> None:
    monkeypatch.chdir(folder)
    assert plaudit(verb, folder / "refused" / complaint[:9], folder / rows, *more) == 2
    assert complaint in capsys.readouterr().err


def test_without_diffusers_one_sentence_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    models.from_diffusers.cache_clear()
    with pytest.raises(UserError, match=r"plaudit\[diffusion\]"):
        models.from_diffusers("DiffusionPipeline")
