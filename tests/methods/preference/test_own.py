"""A row of one's own through the public function; notes about rows; references of short runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor
from torch.nn.functional import logsigmoid

import plaudit
from plaudit.errors import UserError
from plaudit.files.stored import LazyRows
from plaudit.losses.preference import CompletionLogps, no_reference_link
from plaudit.methods.config import ReferenceSettings, SampleSettings
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.config import PreferenceConfig, preference_config_type
from plaudit.methods.preference.data import data_diagnostics
from plaudit.methods.preference.row import BatchContext, PreferenceAlgorithm, UnpairedAlgorithm
from plaudit.methods.reference import settled_reference
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.preferences import JudgedRow, Judgement, PairLabel, RankingLabel, RatingLabel
from tests.methods.reward_model.rows import make_files


def mine(chosen: CompletionLogps, rejected: CompletionLogps, known: BatchContext) -> Tensor:
    return -logsigmoid(0.1 * (chosen.delta_B - rejected.delta_B))


def good_or_bad(said: CompletionLogps, label_B: Tensor, known: BatchContext) -> Tensor:
    return -logsigmoid((2 * label_B - 1) * said.delta_B)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    toy, files = make_files(tmp_path_factory.mktemp("own"), rows=24)
    return toy.model, files


def config(files: tuple[Path, dict[str, Path]], kind: str, out: Path) -> PreferenceConfig:
    return PreferenceConfig(
        model=files[0],
        data=files[1][kind],
        out=out,
        steps=4,
        batch_size=4,
        learning_rate=1e-2,
        device="cpu",
        sinks=(),
        sample=SampleSettings(rows=0),
        reference=ReferenceSettings(cache=out.parent / "cache"),
    )


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


def test_a_loss_of_ones_own_trains_like_the_one_it_copies(files, tmp_path):
    plaudit.preference(
        PreferenceAlgorithm(loss=mine, beta=0.1), config(files, "comparisons", tmp_path / "own")
    )
    plaudit.preference("dpo", config(files, "comparisons", tmp_path / "dpo"))
    own, dpo = losses(tmp_path / "own"), losses(tmp_path / "dpo")
    assert own == pytest.approx(dpo, abs=1e-6)
    assert own[-1] < own[0]


def test_a_row_of_ones_own_may_learn_from_thumbs_without_a_reference(files, tmp_path):
    row = UnpairedAlgorithm(loss=good_or_bad, beta=1.0, link=no_reference_link)
    told = replace(config(files, "thumbs", tmp_path / "own"), reference=ReferenceSettings())
    summary = plaudit.preference(row, told)
    assert summary is not None
    assert summary.last["reward_chosen"] < 0
    assert "kl" not in summary.last, "there is nothing to be distant from"
    assert not (tmp_path / "cache").exists()


def test_settings_beside_a_row_of_ones_own_are_refused(files, tmp_path):
    told = config(files, "comparisons", tmp_path / "own")
    settled = preference_config_type("dpo")(model=told.model, data=told.data, out=told.out, beta=0.3)
    with pytest.raises(UserError, match="its cells already"):
        plaudit.preference(PreferenceAlgorithm(loss=mine, beta=0.1), settled)
    assert not told.out.exists()


def judged(said: Judgement, *lengths: int, number: int = 0) -> JudgedRow:
    completions = tuple(
        Completion(ids=(7,) * length, mask=(True,) * length, finished=True) for length in lengths
    )
    return JudgedRow(example=Example(prompt=(number + 1,), completions=completions), judgement=said)


def pair(chosen: int, rejected: int) -> JudgedRow:
    return judged(PairLabel(probability=1.0, margin=0.0), chosen, rejected)


def thumb(up: bool) -> JudgedRow:
    return judged(RatingLabel(score=float(up), thumb=True), 3)


def test_longer_preferred_answers_are_said():
    (said,) = data_diagnostics([pair(30, 20), pair(40, 30)], preference_algorithm("dpo"))
    assert "have 35 tokens on average and the others 25" in said
    assert "r-dpo" in said


@pytest.mark.parametrize(
    "rows",
    [
        [pair(24, 20)],
        [pair(20, 30)],
        [judged(PairLabel(probability=0.5, margin=0.0), 90, 10)],
        [judged(RankingLabel(ranks=(1.0, 2.0)), 11, 10)],
    ],
    ids=["a little longer", "shorter", "a tie", "a ranking"],
)
def test_nothing_is_said_where_length_tells_nothing(rows):
    assert data_diagnostics(rows, preference_algorithm("dpo")) == ()


def test_a_row_that_charges_for_length_is_not_told_of_it():
    assert data_diagnostics([pair(30, 20)], preference_algorithm("r-dpo")) == ()


@pytest.mark.parametrize(
    ("up", "down", "way"), [(10, 40, "--desirable-weight 4.7"), (40, 10, "--undesirable-weight 3.4")]
)
def test_thumbs_out_of_balance_are_said_with_the_weight_that_mends_it(up, down, way):
    rows = [thumb(True)] * up + [thumb(False)] * down
    (said,) = data_diagnostics(rows, preference_algorithm("kto"))
    assert said.endswith(way)
    name, weight = way.removeprefix("--").replace("-", "_").split()
    assert data_diagnostics(rows, preference_algorithm("kto", **{name: float(weight)})) == ()


def test_thumbs_in_balance_are_fine_and_thumbs_of_one_kind_teach_nothing_else():
    assert data_diagnostics([thumb(True)] * 11 + [thumb(False)] * 10, preference_algorithm("bco")) == ()
    (said,) = data_diagnostics([thumb(False)] * 3, preference_algorithm("bco"))
    assert said.startswith("all 3 answers are bad")


@pytest.mark.parametrize(("steps", "kind"), [(None, "auto"), (10, "live"), (60, "auto")])
def test_a_run_of_few_steps_asks_the_reference_at_each(files, tmp_path, steps, kind):
    told = config(files, "comparisons", tmp_path / "short")
    some = PreferenceConfig(model=told.model, data=told.data, out=told.out, steps=steps, batch_size=4)
    assert settled_reference(some, range(240)).reference.kind == kind
    assert settled_reference(some, LazyRows(str, range(240))).reference.kind == "live"
