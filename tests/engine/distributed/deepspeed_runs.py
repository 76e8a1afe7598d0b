"""Runs the commands of ``FOLDER/groups.json`` on ranks, in the Python that has DeepSpeed."""

import json
import os
import shutil
import sys
from pathlib import Path

from tests.engine.distributed import runs


def main(folder: Path) -> None:
    # Many short messages, each of which waits for both ranks: slow where they share a busy machine.
    runs.PATIENCE = 1800.0
    # Imported while ranks are in a group DeepSpeed keeps that one, and transformers imports it when it saves.
    os.environ["DS_ACCELERATOR"] = "cpu"
    server = runs.warm_server()
    server.set_forkserver_preload(["tests.engine.toy_warm", "deepspeed"])
    runs.warm_server = lambda: server
    for group in json.loads((folder / "groups.json").read_text()):
        for name, begun in group["goes_on"].items():
            half_of(folder / begun, folder / name)
        plan = {
            name: runs.Run(arguments=(*words, "--out", str(folder / name)), environment={})
            for name, words in group["commands"].items()
        }
        for name, said in runs.run_all(plan, folder, ranks=group["ranks"]).items():
            print(name, flush=True)
            assert not any(one.code for one in said), (name, said)
            # A process alone ends its own group while its model, which DeepSpeed has touched, is still there.
            assert group["ranks"] == 1 or not any(one.left for one in said), (name, said)


def half_of(begun: Path, folder: Path) -> None:
    """A copy of a run as it was at its first checkpoint of the two that it has."""
    shutil.copytree(begun, folder)
    shutil.rmtree(folder / "model")
    (folder / "summary.json").unlink()
    first, *later = sorted((folder / "checkpoints").glob("step-*"))
    assert later, first
    (folder / "checkpoints" / "latest").write_text(first.name)
    for checkpoint in later:
        shutil.rmtree(checkpoint)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
