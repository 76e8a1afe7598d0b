"""Training with pictures through the command, and mDPO against a computation of its own."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import logsigmoid

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.methods.preference.algorithms import mdpo
from plaudit.methods.preference.objective import PreferenceMicrobatch, ScoringModels, pair_objective
from plaudit.models.load import load_model
from plaudit.models.policy import ModelReference, Policy
from plaudit.pictures.rows import with_part_of_pictures
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import encode_record, make_encoder
from plaudit.tokens.preferences import encode_judged
from tests.engine.test_exact_resume import during_a_save, same
from tests.engine.toy_command import Command, finish, outcome
from tests.pictures.folders import make_folder, pair, write_pairs


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder("llava", tmp_path_factory.mktemp("llava") / "model")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("rows"))


def train(method: str, model: Path, rows: Path, out: Path, *more: object) -> dict[str, Any]:
    asks = method in ("grpo", "ppo")
    words = ("--model", model, "--prompts" if asks else "--data", rows, "--out", out, "--held-out", 0)
    quick = ("--sample.rows", 0, "--device", "cpu", *(("--rounds", 1) if asks else ("--steps", 2)))
    assert main(list(map(str, ("train", method, *words, *quick, *more)))) == 0
    return json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])


def test_the_tower_learns_unless_it_is_frozen_and_plain_transformers_loads_it(llava, rows, tmp_path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    before = AutoModelForImageTextToText.from_pretrained(llava).state_dict()
    for name, freeze in (("all", ()), ("part", ("--freeze", "tower", "projector"))):
        train("dpo", llava, rows, tmp_path / name, "--learning-rate", 0.01, *freeze)
        after = AutoModelForImageTextToText.from_pretrained(tmp_path / name / "model").state_dict()
        moved = {key for key, weight in after.items() if not torch.equal(weight, before[key])}
        assert any("language_model" in key for key in moved)
        assert any("vision_tower" in key for key in moved) == (name == "all")
        assert any("projector" in key for key in moved) == (name == "all")
    assert AutoProcessor.from_pretrained(tmp_path / "all" / "model").image_token == "<image>"


@pytest.mark.parametrize("method", ["reward", "grpo"])
def test_rewards_and_groups_learn_of_pictures(method, llava, rows, tmp_path):
    more = ("--reward", "length:1-3", "--draw.max-tokens", 4) if method == "grpo" else ()
    assert math.isfinite(train(method, llava, rows, tmp_path / "run", *more)["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("own", [("--lora.rank", 2), ("--freeze", "tower", "--dtype", "bfloat16")])
def test_a_run_that_is_killed_goes_on_to_the_bit(llava, rows, tmp_path, own):
    again = ("train", "mdpo", "--model", llava, "--data", rows, "--steps", 6, "--batch-size", 2)
    again += ("--held-out", 0, "--save-every", 2, "--sample.rows", 1, "--device", "cpu", *own, "--out")
    finish(*again, tmp_path / "whole")
    killed = Command((*again, tmp_path / "run")).kill_when(during_a_save(tmp_path / "run", after=1))
    assert killed.code == -signal.SIGKILL
    finish(*again, tmp_path / "run")
    same(tmp_path / "run", outcome(tmp_path / "whole"))


def test_checks_say_when_pictures_are_not_seen_or_their_places_are_others(llava, rows, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    from plaudit.preflight.checks import CHECKS

    assert {"picture-places", "picture-seen"} <= CHECKS.keys()
    blind = make_folder("llava", tmp_path / "blind")
    weights = load_file(blind / "model.safetensors")
    next(weight for name, weight in weights.items() if name.endswith("projector.linear_2.weight")).zero_()
    save_file(weights, blind / "model.safetensors", metadata={"format": "pt"})
    # A picture that is one row of features too short for what the template is told.
    other = make_folder("llava", tmp_path / "other")
    settings = json.loads((other / "processor_config.json").read_text())
    (other / "processor_config.json").write_text(json.dumps({**settings, "patch_size": 16}))
    for folder, failing in (
        (blind, "picture-seen: with another"),
        (other, "the processor's files of another"),
    ):
        words = [
            "train",
            "dpo",
            "--model",
            folder,
            "--data",
            rows,
            "--device",
            "cpu",
            "--out",
            tmp_path / "run",
        ]
        assert main(list(map(str, words))) == 2
        assert failing in capsys.readouterr().err


def test_mdpo_is_dpo_with_a_picture_of_its_own_and_an_anchor(llava, rows):
    encoder = make_encoder(llava)
    policy, reference = (
        Policy(load_model(llava, dtype=torch.float64, device=torch.device("cpu")), layout="right")
        for _ in "ab"
    )
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).double())
    algorithm = mdpo(beta=0.3, crop=0.1, anchor=0.2)
    records: Any = read_records(rows).records
    judged = encode_judged(records, encoder, 512, crop=0.1).examples
    assert [row.changed is not None for row in judged] == [True] * 5 + [False]

    def delta(example: Any) -> torch.Tensor:
        batch = batch_of([example])
        return (policy.score(batch).logp_NT - reference.score(batch).logp_NT.detach()).sum(1)

    expected = 0.0
    for record in records:
        chosen, rejected = delta(encode_record(record, encoder))
        terms = [0.3 * (chosen - rejected), 0.3 * chosen - 0.2]
        if record.prompt[0].content[0].kind == "image":
            prompt = with_part_of_pictures(record.prompt, 0.1)
            [changed] = delta(encoder.encode(prompt, (record.chosen,)))
            terms.append(0.3 * (chosen - changed))
        expected = expected - sum(logsigmoid(term) for term in terms)
    objective = pair_objective(algorithm, ScoringModels(policy=policy, reference=ModelReference(reference)))
    found = objective(PreferenceMicrobatch(judged=tuple(judged), total_rows=len(judged))).loss * len(judged)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    gradients = [
        torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True) for loss in (found, expected)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=0)


def test_a_model_that_sees_learns_of_words_alone_too(llava, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(pair(words=f"{n} dogs?")) for n in range(4)))
    assert math.isfinite(
        train("dpo", llava, tmp_path / "rows.jsonl", tmp_path / "run", "--allow", "base-loss")["loss"]
    )
