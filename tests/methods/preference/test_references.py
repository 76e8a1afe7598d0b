"""What a policy is compared with: computed once and kept, beside it, beneath its adapters, or following."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.methods import reference
from plaudit.methods.preference.config import StageSettings
from plaudit.methods.preference.data import rows_of_part
from plaudit.models.adapters import with_lora
from plaudit.models.policy import AdapterOffReference, ModelReference, Policy
from plaudit.models.settings import LoraSettings
from plaudit.tokens.batch import Completion, Example, batch_of
from tests.engine.toy import Toy, make_model
from tests.methods.preference.test_runs import command, lines, make_opinions, weights
from tests.models.zoo import build, examples

EXACT = ("--steps", 4, "--dtype", "float64", "--learning-rate", 0.003, "--sample.rows", 0)
SHORT = ("--steps", 3, "--sample.rows", 0, "--evaluate-every", 9)


class Place:
    def __init__(self, folder: Path, said: Callable[[], str]) -> None:
        self.toy, self.files = make_opinions(folder, rows=24)
        self.other = Toy(model=folder / "other", data=self.toy.data)
        make_model(self.other.model, seed=1)
        self.kept = folder / "kept"
        self._folder, self._said = folder, said

    def run(self, out: str, *more: object, name: str = "dpo", toy: Toy | None = None) -> str:
        self._said()
        words = command(name, toy or self.toy, self.files["certain"], self._folder / out, *more)
        code = main([*map(str, words)])
        said = self._said()
        assert code == 0, said
        return said

    def folder(self, out: str) -> Path:
        return self._folder / out

    def entries(self) -> set[str]:
        return {path.name for path in self.kept.iterdir()}


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, lambda: capsys.readouterr().err)


def near(one: Path, other: Path, tolerance: float) -> None:
    for found, wanted in zip(lines(one), lines(other), strict=True):
        assert found == pytest.approx(wanted, rel=tolerance, abs=tolerance)
    own, expected = weights(one), weights(other)
    for key, weight in expected.items():
        torch.testing.assert_close(own[key], weight, rtol=10 * tolerance, atol=10 * tolerance, msg=key)


def alike(one: Path, other: Path) -> bool:
    own, expected = weights(one), weights(other)
    return own.keys() == expected.keys() and all(torch.equal(own[key], expected[key]) for key in own)


@pytest.mark.parametrize("adapters", [(), ("--lora.rank", 2)])
def test_computed_before_beside_and_beneath_are_one_reference(place, adapters):
    """Float64, but norms of transformers pass through float32 and round by where numbers lie."""
    place.run("kept run", *EXACT, *adapters)
    said = place.run("live run", *EXACT, *adapters, "--reference.kind", "live")
    assert ("the model beneath the adapters" if adapters else "beside the policy in memory") in said
    near(place.folder("live run"), place.folder("kept run"), 1e-6)


def test_adapters_are_left_as_they_were_after_a_look_beneath_them() -> None:
    policy = Policy(with_lora(build("llama"), LoraSettings(rank=2))).train()
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            weight.add_(0.1 if "lora_B" in name else 0)
    rows = examples()
    batch = batch_of(rows)
    before = {name: p.requires_grad for name, p in policy.named_parameters()}
    adapted = policy.score(batch).logp_NT
    beneath = AdapterOffReference(policy).logp(rows, batch)
    assert {name: p.requires_grad for name, p in policy.named_parameters()} == before
    assert set(before.values()) == {True, False}
    assert policy.training
    assert not beneath.requires_grad
    torch.testing.assert_close(policy.score(batch).logp_NT, adapted)
    plain = ModelReference(Policy(build("llama"))).logp(rows, batch)
    torch.testing.assert_close(beneath, plain, rtol=1e-5, atol=1e-5)
    assert float((adapted.detach() - plain).abs().max()) > 0.01
    adapted.sum().backward()
    assert all(p.grad is not None for p in policy.parameters() if p.requires_grad)


def test_what_was_computed_is_found_by_the_next_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = place.run("first", *SHORT)
    (entry,) = place.entries()
    assert f"answers computed once and kept in {place.kept / entry}" in first

    def never(*_: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(reference, "compute_reference_logps", never)
    assert f"reference: log-probs found in {place.kept / entry}" in place.run("second", *SHORT)
    assert alike(place.folder("first"), place.folder("second"))
    assert lines(place.folder("first")) == lines(place.folder("second"))


@pytest.mark.slow
def test_another_epoch_rate_or_algorithm_needs_no_other_log_probs(place: Place) -> None:
    place.run("first", *SHORT)
    for out, name, more in (("rate", "dpo", ("--learning-rate", 0.1)), ("ipo", "ipo", ("--epochs", 2))):
        assert "log-probs found in" in place.run(out, *SHORT, *more, name=name)
    assert len(place.entries()) == 1


def test_a_short_run_asks_at_each_step_and_a_longer_one_before(place: Place) -> None:
    """Where most rows would be computed for nothing."""
    auto = ("--reference.kind", "auto", "--held-out", 0, "--sample.rows", 0)
    assert "beside the policy in memory" in place.run("short", *auto, "--steps", 1)
    assert "answers computed once and kept in" in place.run("long", *auto, "--steps", 3)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("what", ["model", "rows", "numbers", "length"])
def test_whatever_log_probs_are_made_of_has_other_ones(place: Place, what: str) -> None:
    place.run("first", *SHORT)
    more: dict[str, tuple[object, ...]] = {
        "rows": ("--data", place.files["rankings"]),
        "numbers": ("--dtype", "float64"),
        "length": ("--max-length", 16),
    }
    toy = place.other if what == "model" else None
    assert "computed once and kept" in place.run("second", *SHORT, *more.get(what, ()), toy=toy)
    assert len(place.entries()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["a byte", "cut short", "no facts", "no values", "facts of nothing"])
def test_damaged_log_probs_are_said_and_made_again(place: Place, damage: str) -> None:
    place.run("first", *SHORT)
    (entry,) = place.kept.iterdir()
    values, facts = entry / reference.LOGP_FILE, entry / reference.FACTS_FILE
    content = values.read_bytes()
    if damage == "a byte":
        values.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "cut short":
        values.write_bytes(content[:-8])
    elif damage == "facts of nothing":
        facts.write_text("[]")
    else:
        (facts if damage == "no facts" else values).unlink()
    said = place.run("second", *SHORT)
    assert f"{values}: the kept log-probs cannot be used (" in said
    assert "they were computed again" in said
    assert values.read_bytes() == content
    assert alike(place.folder("first"), place.folder("second"))
    assert "log-probs found in" in place.run("third", *SHORT)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(place: Place) -> None:
    place.run("first", *SHORT)
    (place.kept.parent / "letter").write_text("Dear plaudit")
    said = place.run("second", *SHORT, "--reference.cache", place.kept.parent / "letter" / "kept")
    assert "they could not be kept for another run: " in said
    assert alike(place.folder("first"), place.folder("second"))


def part(run: Path, step: int, name: str) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / f"{name}.safetensors")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("share", [0.25, 0.6, 1.0])
def test_a_reference_that_follows_moves_its_share_of_the_way_when_it_is_time(place, share):
    often = ("--reference.every", 2, "--reference.share", share, "--save-every", 1, "--keep.last", 9)
    said = place.run("run", *EXACT, "--steps", 5, "--reference.kind", "average", *often, name="tr-dpo")
    how = "it becomes the policy" if share == 1 else f"it moves {share:g} of the way towards the policy"
    assert f"every 2 steps {how}" in said
    now = load_file(place.toy.model / "model.safetensors")
    before = {f"model.{name}": weight.double() for name, weight in now.items()}
    for step in range(1, 6):
        policy, found = (part(place.folder("run"), step, name) for name in ("model", "reference"))
        assert found.keys() == policy.keys()
        for name, weight in found.items():
            wanted = (1 - share) * before[name] + share * policy[name] if step % 2 == 0 else before[name]
            exact = share == 1 or step % 2
            torch.testing.assert_close(
                weight, wanted, rtol=0, atol=0 if exact else 1e-14, msg=f"{name}, {step}"
            )
        before = found


def test_the_loss_is_measured_from_where_the_reference_has_moved_to(place: Place) -> None:
    """A copy at every step: all that is left of the distance is one step's."""
    copy = ("--reference.kind", "average", "--reference.every", 1, "--reference.share", 1)
    place.run("run", *SHORT, *copy, "--steps", 4)
    for line in lines(place.folder("run")):
        assert line["loss"] == pytest.approx(math.log(2), abs=1e-5)
        assert line["kl"] == pytest.approx(0, abs=1e-5)


def test_tr_dpo_can_be_told_how_often_its_reference_moves(place: Place) -> None:
    """Its reference is one that follows, so nobody has to say so twice."""
    assert "every 2 steps" in place.run("run", *SHORT, "--reference.every", 2, name="tr-dpo")


@pytest.mark.slow
def test_data_in_parts_are_learnt_one_after_another(place: Place) -> None:
    said = place.run("run", *SHORT, "--stages.parts", 3, "--held-out", 0, name="sdpo")
    assert said.count("before the first step policy and reference agree") == 3
    runs = [place.folder("run") / "parts" / "0", place.folder("run") / "parts" / "1", place.folder("run")]
    starts = [place.toy.model, *(run / "model" for run in runs[:2])]
    for run, model in zip(runs, starts, strict=True):
        assert yaml.safe_load((run / "config.yaml").read_text())["model"] == str(model)
        assert lines(run)[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    origins = [json.loads((run / "lineage.json").read_text()) for run in runs]
    assert len({json.dumps(origin.get("model")) for origin in origins}) == 3


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_prompts_are_divided_among_parts_without_loss(parts: int) -> None:
    answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    rows = [Example(prompt=(n % 7 + 1,), completions=(answer,), origin=f"rows:{n}") for n in range(20)]
    found = [rows_of_part(rows, StageSettings(parts=parts, part=n)) for n in range(parts)]
    assert sorted(row.origin for part in found for row in part) == sorted(row.origin for row in rows)
    prompts = [{row.prompt for row in part} for part in found]
    assert all(prompts)
    assert sum(map(len, prompts)) == 7


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["precomputed", "live"])
def test_another_model_can_be_the_reference_and_nothing_is_asked_of_the_first_loss(place, kind):
    said = place.run("run", *SHORT, "--reference.kind", kind, "--reference.model", place.other.model)
    assert "the reference is another model: before the first step the loss is" in said
    assert lines(place.folder("run"))[0]["kl"] > 0.01


def test_the_same_model_under_another_name_is_the_same_reference(place: Place) -> None:
    twin = place.toy.model.parent / "twin"
    make_model(twin)
    assert "policy and reference agree" in place.run("run", *SHORT, "--reference.model", twin)
    assert lines(place.folder("run"))[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
