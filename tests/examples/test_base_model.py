"""The base model of the world is built again by an example."""

import pytest

from examples.base_model.__main__ import main


@pytest.mark.slow
def test_it_is_built_from_the_corpus_by_one_command_that_goes_on(tmp_path, capsys):
    out = tmp_path / "built"
    command = ["--out", str(out), "--epochs", "0.02"]
    assert main(command) == 0
    assert capsys.readouterr().out.strip().endswith(f"{out / 'run' / 'model'}: the base model")
    assert len((out / "corpus.jsonl").read_text("utf-8").splitlines()) > 10_000
    before = (out / "run" / "model" / "model.safetensors").read_bytes()
    assert main(command) == 0
    assert (out / "run" / "model" / "model.safetensors").read_bytes() == before
    (out / "blank" / "model.safetensors").unlink()
    (out / "corpus.jsonl").unlink()
    assert main(command) == 0
    assert (out / "run" / "model" / "model.safetensors").read_bytes() == before
    assert main([*command, "--seed", "1"]) == 2
    assert "seed: 0 → 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_base_model_that_reads_nothing_is_refused(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "built"), "--epochs", "0"]) == 2
    assert "epochs must be a number above 0, not 0.0" in capsys.readouterr().err
