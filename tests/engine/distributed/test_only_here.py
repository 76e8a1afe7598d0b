"""What ranks say to each other is in one module, what they divide in another; there is no third one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src" / "plaudit"
HOMES = ["engine/distributed.py"]
INNOCENT = {"torch.distributed.tensor.DTensor"}
"""A type to ask for; it says nothing to anybody."""


def reaches(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def found_in(text: str) -> set[str]:
    return {
        name
        for name in reaches(ast.parse(text))
        if name.startswith(("torch.distributed", "torch.nn.parallel", "torch.multiprocessing"))
        and name not in INNOCENT
    }


@pytest.mark.slow
def test_only_one_module_talks_to_other_ranks() -> None:
    talkers = {
        str(path.relative_to(SOURCE)): names
        for path in sorted(SOURCE.rglob("*.py"))
        if (names := found_in(path.read_text("utf-8")))
    }
    assert list(talkers) == HOMES, talkers


def test_no_way_of_reaching_for_it_is_overlooked() -> None:
    assert found_in("import torch.distributed as dist")
    assert found_in("from torch import distributed")
    assert found_in("from torch.distributed import all_reduce")
    assert found_in("import torch\ntorch.distributed.barrier()")
    assert not found_in("from torch.distributed.tensor import DTensor")
