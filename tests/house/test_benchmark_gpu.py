"""The benchmark of one GPU: every part runs on a CPU with a tiny model, and reports what it is for."""

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu, gpu_peers
from benchmarks.measure import Figure, Synchronisations, median_seconds, profiled
from benchmarks.table import RESULTS
from benchmarks.turns import PEER
from benchmarks.work import GPU_SHAPES, REFERENCE, TINY_LOADS, model_of, write_gpu_work
from plaudit.config import Setting

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
Run = Callable[..., dict[str, Figure]]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "work"
    write_gpu_work(folder, GPU_SHAPES["tiny"], TINY_LOADS, "cpu")
    return folder


@pytest.fixture
def run(work, tmp_path, monkeypatch, capsys):
    """A part's figures by name, which are those that it printed."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    def measured(part: str, *words: str, device: str = "cpu") -> dict[str, Figure]:
        file = tmp_path / f"{part}.jsonl"
        common = ["--seconds", "0.4", "--threads", "1", "--work", str(work), "--figures", str(file)]
        capsys.readouterr()
        gpu.run(gpu.parser().parse_args([part, "--device", device, *common, *words]))
        lines = file.read_text(encoding="utf-8").splitlines()
        assert lines == [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        figures = [Figure(**json.loads(line)) for line in lines]
        assert {figure.part for figure in figures} == {part}
        return {figure.name.removeprefix("tiny, "): figure for figure in figures}

    return measured


def number(figure: Figure) -> float:
    assert isinstance(figure.value, int | float)
    assert math.isfinite(figure.value)
    return float(figure.value)


@pytest.mark.parametrize("device", DEVICES)
def test_the_machine_has_ceilings(run: Run, device: str):
    figures = run("env", device=device)
    assert number(figures["products"]) > 1e-3
    assert number(figures["memory read and written"]) > 1e-4


def test_what_is_known_is_reported_before_the_clock_of_a_caller_ends_the_part(run, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu.PreparedRun, "steps", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("train", "--methods", "sft")
    lines = (tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["name"] == "tiny, sft, ready to learn after"
    assert json.loads(lines[-1])["name"] == "tiny, sft, first step"


def test_where_the_peer_is_missing_it_is_said(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.gpu_peers.PEER", Path("missing"))
    assert str(run("peers")["TRL, dpo"].value).startswith("the environment is missing")


@pytest.mark.peer
def test_the_peer_runs_by_its_settings_for_a_gpu(run: Run):
    assert PEER.exists()
    figures = run("peers", "--methods", "sft", "dpo")
    assert not [figure for figure in figures.values() if isinstance(figure.value, str)]


def test_compiling_is_passed_on_by_the_name_of_its_setting(monkeypatch: pytest.MonkeyPatch):
    found = [Setting(path=("memory", "compile"), value_type=bool, default=False, doc="")]
    monkeypatch.setattr(gpu, "all_settings", lambda _: found)
    assert gpu.compile_words("sft") == ("--memory.compile",)
    monkeypatch.setattr(gpu, "all_settings", lambda _: [])
    with pytest.raises(SystemExit, match="leave it out"):
        gpu.compile_words("sft")


@pytest.mark.parametrize(("shape", "billions"), [("0.6b", 0.596), ("1.5b", 1.544), ("7b", 7.615)])
def test_shapes_are_as_large_as_their_names_say(shape: str, billions: float):
    size = sum(p.numel() for p in model_of(GPU_SHAPES[shape], device="meta").parameters())
    assert size / 1e9 == pytest.approx(billions, rel=1e-3)


def test_the_bandwidth_floor_reads_all_weights_once(work: Path):
    given = SimpleNamespace(shape="1.5b", device="cpu")
    bench = gpu.Bench(given=given, work=work, runs=work)  # pyright: ignore[reportArgumentType]
    weights = sum(p.numel() for p in model_of(GPU_SHAPES["1.5b"], device="meta").parameters())
    assert gpu.bytes_read(bench, 0, 0.0) == pytest.approx(4 * weights, rel=1e-4)
    # Keys and values of 128 numbers for two heads in 28 layers, each of four bytes.
    assert gpu.bytes_read(bench, 3, 10.0) - gpu.bytes_read(bench, 0, 0.0) == 3 * 10 * 28 * 2 * 2 * 128 * 4


def test_the_reference_costs_no_second_file(work: Path):
    assert (work / REFERENCE).is_symlink()
    assert (work / REFERENCE / "config.json").exists()


def test_errors_are_those_of_the_head():
    inputs = gpu_peers.HeadInputs.random(rows=8, hidden=16, vocabulary=40, device="cpu")
    assert max(gpu_peers.errors_of(gpu_peers.plain, inputs)) < 1e-5
    wrong = gpu_peers.errors_of(lambda *given: 1.01 * gpu_peers.plain(*given), inputs)
    assert wrong == (pytest.approx(0.01, rel=1e-3), pytest.approx(0.01, rel=1e-3))


def test_synchronisations_are_counted_by_line():
    with Synchronisations() as waits:
        for _ in range(3):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    [(line, count)] = waits.by_line.items()
    assert line.startswith(f"{Path(__file__).name}:")
    assert count == 3


def test_a_profile_names_what_took_longest():
    kernels = profiled(lambda: torch.ones(400, 400) @ torch.ones(400, 400), "cpu")
    assert "aten::mm" in kernels.milliseconds
    assert kernels.cudnn_attentions == 0


def test_a_median_leaves_out_the_first_time():
    calls = list[int]()
    assert median_seconds(lambda: calls.append(1), "cpu", 0.0) >= 0
    assert len(calls) == 2


def test_the_page_says_what_is_measured_by_which_commands():
    """And what came of them: the figures lie beside it, and say what is still open."""
    page = RESULTS.read_text(encoding="utf-8")
    figures = [
        Figure(**json.loads(line)) for line in gpu_peers.FIGURES.read_text(encoding="utf-8").splitlines()
    ]
    assert f"## {gpu.TITLE}\n\n{gpu_peers.section(figures, gpu_peers.MEASURED)}\n" in page
    assert "Not measured yet" in gpu_peers.MEASURED
    for part, rest in gpu_peers.CALLS:
        gpu.parser().parse_args([part, "--device", "cuda", *rest.split()])
    assert all(figure in page for *_, figure in gpu_peers.PUBLISHED)


def test_collected_figures_become_tables():
    figures = [
        Figure(part="env", name="products", value=789.6543, unit="TF/s"),
        Figure(part="train", name="longest kernels", value={"mm": 1.5}, unit="ms"),
    ]
    text = gpu_peers.section(figures, "About.")
    assert "### env\n\n| what | value | unit |" in text
    assert "| products | 789.7 | TF/s |" in text
    assert "| longest kernels | mm 1.5 | ms |" in text
    assert gpu_peers.NOT_MEASURED not in text
