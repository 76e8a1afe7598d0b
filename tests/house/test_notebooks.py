"""The notebooks of examples run from their first cell to their last, as a user runs them."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


@pytest.mark.slow
@pytest.mark.cases(quick=("own-reward-grpo",))
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel is a process of its own beside the other tests: one thread is its share.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] in ("execute_result", "display_data")
    ]
    assert any("<iframe" in data.get("text/html", "") for data in shown), "a run shows its curves"
    assert any("<progress" in data.get("text/html", "") for data in shown), "and a bar while it runs"
    assert not any((tmp_path / "runs").glob("*/quarantine*"))
