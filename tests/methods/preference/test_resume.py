"""A preference run that was killed, again and again and anywhere, ends as if it had never been.

Whatever moves beside the weights goes on too: a reference that follows, BCO's mean, kept log-probs.
"""

import random
import shutil
import signal
from pathlib import Path

import pytest

from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from tests.engine.test_exact_resume import at_random, during_a_save, same
from tests.engine.toy import RARE, WORDS, Toy, make_toy, write_rows
from tests.engine.toy_command import Command, Outcome, finish, outcome
from tests.methods.preference.test_runs import command, kind_of, make_opinions
from tests.methods.reward_model.rows import judged

MANNERS: dict[str, tuple[object, ...]] = {
    "dpo": ("--reference.kind", "average", "--reference.every", 3, "--reference.share", 0.5),
    "tr-dpo": ("--reference.kind", "average", "--reference.every", 2, "--reference.share", 1),
    "bco": ("--memory.tokens-at-once", 60),
    "orpo": ("--lora.rank", 2),
}
"""What makes a run worth killing; every other algorithm runs as it is."""
Files = tuple[Toy, dict[str, Path]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_opinions(tmp_path_factory.mktemp("toy"), rows=30)


def words(files: Files, name: str, out: Path, *more: object) -> list[object]:
    toy, data = files
    return command(name, toy, data[kind_of(name)], out, *MANNERS.get(name, ()), *more)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "dpo" else [pytest.mark.slow]) for name in PREFERENCE_ALGORITHMS],
)
def test_it_is_killed_during_a_save_and_at_random(files: Files, tmp_path: Path, name: str) -> None:
    chance, out = random.Random(name), tmp_path / "run"
    finish(*words(files, name, tmp_path / "undisturbed"))
    again = words(files, name, out)
    assert Command(again).kill_when(during_a_save(out, after=1)).code == -signal.SIGKILL
    for _ in range(2):
        Command(again).kill_when(at_random(chance))
    finish(*again)
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_a_run_goes_on_though_its_kept_log_probs_are_gone(files: Files, tmp_path: Path) -> None:
    """They are those of the model that it started from, not of the one that it has become."""
    cache, out = tmp_path / "kept", tmp_path / "run"
    own = ("--reference.cache", cache)
    finish(*words(files, "ipo", tmp_path / "undisturbed", "--reference.cache", tmp_path / "other"))
    again = words(files, "ipo", out, *own)
    assert Command(again).kill_when(during_a_save(out, after=2)).code == -signal.SIGKILL
    shutil.rmtree(cache)
    finish(*again)
    assert any(cache.iterdir())
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_a_run_that_goes_on_may_keep_its_log_probs_elsewhere(files: Files, tmp_path: Path) -> None:
    """Where they lie changes nothing that is learnt; and it is what a stale cache's message says to do."""
    out, other = tmp_path / "run", tmp_path / "elsewhere"
    finish(*words(files, "ipo", tmp_path / "undisturbed"))
    killed = Command(words(files, "ipo", out)).kill_when(during_a_save(out, after=1))
    assert killed.code == -signal.SIGKILL
    finish(*words(files, "ipo", out, "--reference.cache", other))
    assert any(other.iterdir())
    same(out, outcome(tmp_path / "undisturbed"))


@pytest.mark.slow
def test_a_kill_while_log_probs_are_kept_leaves_none_that_are_half_written(files, tmp_path):
    cache, out = tmp_path / "kept", tmp_path / "run"
    again = words(files, "ipo", out, "--reference.cache", cache)
    for _ in range(2):
        Command(again).kill_when(lambda: cache.is_dir() and any(cache.iterdir()))
    finish(*again)
    finish(*words(files, "ipo", tmp_path / "undisturbed", "--reference.cache", tmp_path / "other"))
    same(out, outcome(tmp_path / "undisturbed"))
    assert len([path for path in cache.iterdir() if not path.name.startswith(".")]) == 1


@pytest.mark.slow
def test_data_in_parts_go_on_after_a_kill_in_either(files: Files, tmp_path: Path) -> None:
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "run"
    finish(*words(files, "sdpo", undisturbed))
    again = words(files, "sdpo", out)
    for killed in (out / "parts" / "0", out):
        assert Command(again).kill_when(during_a_save(killed, after=1)).code == -signal.SIGKILL
    assert (out / "parts" / "0" / "model").is_dir()
    assert not (out / "model").exists()
    finish(*again)
    for part in (".", "parts/0"):
        same(out / part, outcome(undisturbed / part))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bco", "tr-dpo"])
def test_going_back_to_a_checkpoint_takes_along_what_moves_beside_the_weights(tmp_path, name):
    """A row that is no number spoils a step of each epoch: gone back to, or only passed over, is the same."""
    toy = make_toy(tmp_path / "toy", rare="nan")
    rows = judged("thumbs" if name == "bco" else "comparisons", 24)
    answer = "completion" if name == "bco" else "chosen"
    rows[6] = {**rows[6], answer: f"{rows[6][answer]} {' '.join(WORDS)} {RARE}."}
    data = write_rows(tmp_path / "rows.jsonl", rows)
    ends: list[Outcome] = []
    for manner in ("skip", "rollback"):
        own = (*MANNERS[name], "--held-out", 0, "--safety.on-nonfinite", manner, "--save-every", 3)
        finish(*command(name, toy, data, tmp_path / manner, *own))
        ends.append(outcome(tmp_path / manner))
    passed, back = ({line["step"]: line for line in end.metrics if line.get("loss")} for end in ends)
    assert len(passed) == 8
    assert passed == back
    assert ends[0].weights == ends[1].weights
    if name == "bco":
        assert len({line["baseline"] for line in passed.values()}) > 4
