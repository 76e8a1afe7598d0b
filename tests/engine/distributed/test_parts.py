"""Each rank reads its own part of a model, and together they have what one that is loaded whole has."""

from pathlib import Path

import pytest
import torch

from plaudit.errors import UserError
from plaudit.files.hub import ADAPTER_FOLDER
from plaudit.methods.parts import numberless_model
from tests.engine.distributed import parts_on_ranks
from tests.engine.distributed.launch import run
from tests.engine.toy import make_toy
from tests.models.damaged_folders import edit
from tests.models.zoo import ZOO, build

TIED = ("cohere", "gpt2")
WHOLE = ("falcon_h1", "gemma", "gemma2", "gemma3", "gptneox", "granite_hybrid", "mixtral", "qwen3_next")
"""Their files name something otherwise, or they have more than weights and angles: loaded whole."""
QUICK = ("cohere", "gemma", "llama")


@pytest.mark.cases(quick=("quick",))
@pytest.mark.parametrize("names", [pytest.param(QUICK, id="quick"), pytest.param(ZOO, id="all")])
def test_what_ranks_read_by_parts_is_the_model(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        build(name).save_pretrained(tmp_path / "zoo" / name, max_shard_size="20KB")
    build("llama").save_pretrained(tmp_path / "zoo" / "zz")
    done = run(parts_on_ranks.__file__, tmp_path / "zoo", make_toy(tmp_path / "toy").model, cwd=tmp_path)
    assert done.code == 0, done.err
    kind = {**dict.fromkeys(names, "parts"), **dict.fromkeys(TIED, "tied"), **dict.fromkeys(WHOLE, "whole")}
    first, *lines = done.out.splitlines()
    assert first == "reward parts"
    assert lines[: len(names)] == [f"{name} {kind[name]}" for name in sorted(names)]
    [refused] = [line for line in lines if line.startswith("rank")]
    assert "lm_head.weight are NaN or infinite" in refused


def test_what_is_merged_or_does_not_fit_its_config_is_not_read_by_parts(tmp_path: Path) -> None:
    build("llama").save_pretrained(tmp_path)
    assert numberless_model(tmp_path, torch.float32) is not None
    (tmp_path / ADAPTER_FOLDER).mkdir()
    assert numberless_model(tmp_path, torch.float32) is None
    edit(num_hidden_layers=1)(tmp_path)
    (tmp_path / ADAPTER_FOLDER).rmdir()
    with pytest.raises(UserError, match="it says fewer layers than there are"):
        numberless_model(tmp_path, torch.float32)
