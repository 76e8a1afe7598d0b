"""Two ranks learn of pictures what one process learns, also where one of them has words alone."""

import pytest

from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import Trained, check_as_one
from tests.pictures.folders import make_folder, write_pairs

pytestmark = pytest.mark.slow
STEPS = ("--steps", 4, "--batch-size", 3)
DRAWN = ("--reward", "length:1-3", "--draw.max-tokens", 4, "--rounds", 2, "--group-size", 2)
METHODS = {"mdpo": STEPS, "reward": STEPS, "grpo": DRAWN}
# Qwen's rotations are made in float32 whatever the model's: what is drawn and what is scored differ by 1e-8.
TOLERANCES = {"llava": 1e-9, "qwen3_vl": 1e-3}


@pytest.fixture(scope="module", params=TOLERANCES)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    model, rows = make_folder(request.param, folder / "model"), write_pairs(folder)
    quick = ("--held-out", 0, "--sample.rows", 0, "--device", "cpu", "--dtype", "float64")

    def plan(*ways: str) -> dict[str, Run]:
        runs = {}
        for method, way in ((method, way) for method in METHODS for way in ways):
            data, name = "--prompts" if method == "grpo" else "--data", f"{method} {way}".strip()
            words = ("train", method, "--model", model, data, rows, "--out", folder / name, *quick)
            words += ("--learning-rate", 0.01, *METHODS[method], *["--shard"][: way == "shard"])
            runs[name] = Run(arguments=tuple(map(str, words)), environment={})
        return runs

    alone, together = run_all(plan(""), folder, ranks=1), run_all(plan("data", "shard"), folder, ranks=2)
    return Trained(folder=folder, alone=alone, together=together)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["data", "shard"])
def test_two_ranks_learn_of_pictures_what_one_process_learns(trained: Trained, method: str, way: str) -> None:
    tolerance = next(TOLERANCES[name] for name in TOLERANCES if trained.folder.name.startswith(name))
    check_as_one(trained, method, way, tolerance if method == "grpo" else 1e-9, samples=False)
