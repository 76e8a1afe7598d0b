"""Group runs through the command: a few comparisons of a group that was never trained tell of its others."""

import json
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.data.write import write_records
from plaudit.lab.world import base_model_folder, making
from plaudit.lab.world.annotators import annotator_pool
from tests.engine.distributed.runs import Run, run_all
from tests.engine.distributed.test_same_numbers import apart, lines
from tests.engine.test_exact_resume import during_a_save, when_steps_are_done
from tests.engine.toy import Toy, write_rows
from tests.engine.toy_command import Command, finish, outcome
from tests.methods.reward_model.group_rows import TASTES, Row, make_file, named
from tests.methods.reward_model.rows import judged

pytestmark = pytest.mark.slow

SMALL = ("--group.width", 16, "--group.layers", 1, "--group.most", 6, "--group.targets", 6)


def train(model: Path, data: Path, out: Path, *more: object) -> list[str]:
    words = ["train", "group", "--model", model, "--data", data, "--out", out, "--device", "cpu", *more]
    return [str(word) for word in words]


def short(toy: Toy, data: Path, out: Path, *more: object) -> list[str]:
    own = ("--steps", 10, "--batch-size", 4, "--evaluate-every", 3, "--save-every", 2)
    return train(toy.model, data, out, *own, *SMALL, *more)


def dogs(groups: Mapping[str, int]) -> list[Row]:
    """So many comparisons of each group; every other group likes what the others do not."""
    rows = judged("comparisons", sum(groups.values()))
    names = [name for name, count in groups.items() for _ in range(count)]
    likes = {name: number % 2 == 0 for number, name in enumerate(groups)}
    turned = {"chosen": "rejected", "rejected": "chosen"}
    return [
        {
            **(row if likes[name] else {turned.get(key, key): value for key, value in row.items()}),
            "group": name,
        }
        for name, row in zip(names, rows, strict=True)
    ]


FOUR = {"north": 9, "south": 7, "east": 8, "west": 6}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data") / "groups.jsonl", dogs(FOUR))


def finished(*words: object) -> str:
    return finish(*words).err


def test_a_few_comparisons_of_an_unseen_group_tell_what_else_it_prefers(tmp_path: Path) -> None:
    """Of 32 groups that each care for one thing, one of each taste is never trained."""
    rows = make_file(tmp_path / "tastes.jsonl", named(4), 24)
    unseen = [f"{taste}-3" for taste in TASTES]
    more = ("--steps", 120, "--learning-rate", 0.003, "--evaluate-every", 60, "--save-every", 120)
    shape = ("--group.width", 32, "--group.layers", 2, "--group.most", 12, "--group.targets", 12)
    said = finished(
        *train(base_model_folder(), rows, tmp_path / "run", *more, *shape, "--group.held-out", *unseen)
    )
    assert "learns from 24 groups: certain-0, certain-1" in said
    assert f"tell of the rest: {', '.join(sorted(unseen))}" in said
    last = lines(tmp_path / "run")[-1]
    assert last["held_out/accuracy"] > 0.8, last
    assert last["held_out/accuracy_unseen"] < 0.65, "without a context nobody can tell"
    assert last["held_out/accuracy"] > last["held_out/accuracy_unseen"] + 0.2, last
    assert last["held_out/loss"] < 0.45 < math.log(2)
    assert {path.name for path in (tmp_path / "run" / "model").iterdir()} == {
        "model.safetensors",
        "plaudit_group.json",
    }


def test_the_villages_of_the_world_are_learnt(tmp_path: Path) -> None:
    data = write_records(making.comparisons(60, annotator_pool("villages")), tmp_path / "pairs.jsonl").path
    more = ("--steps", 40, "--held-out", 0, "--learning-rate", 0.003, *SMALL)
    said = finished(*train(base_model_folder(), data, tmp_path / "run", *more))
    assert "learns from 3 groups: Bowbury, Listham, Shortford" in said
    found = lines(tmp_path / "run")
    assert (
        math.fsum(line["loss"] for line in found[-5:]) < math.fsum(line["loss"] for line in found[:5]) - 0.5
    )
    assert "held_out/loss" not in found[-1]


def test_ten_epochs_ask_in_ten_times_as_many_episodes_as_there_are_comparisons(toy, data, tmp_path):
    """With one group of four held out by its name; and a share of the groups is held out by chance."""
    own = ("--group.held-out", "west", "--batch-size", 8, *SMALL)
    finished(*train(toy.model, data, tmp_path / "named", *own))
    found = lines(tmp_path / "named")
    assert len(found) == 10 * math.ceil((9 + 7 + 8) / 8)
    assert found[-1]["epoch"] == 10
    assert {line["rows"] for line in found} == {8}
    assert max(line["tokens"] for line in found) <= 8 * 12
    said = finished(*train(toy.model, data, tmp_path / "share", "--held-out", 0.4, "--steps", 1, *SMALL))
    assert "learns from 2 groups: " in said


def test_a_run_that_is_killed_ends_as_if_it_had_not_been(toy: Toy, data: Path, tmp_path: Path) -> None:
    finished(*short(toy, data, tmp_path / "undisturbed"))
    out = tmp_path / "run"
    again = short(toy, data, out)
    moments: list[Callable[[], bool]] = [during_a_save(out, after=1), when_steps_are_done(out, 7)]
    assert [Command(again).kill_when(moment).code for moment in moments] == [-signal.SIGKILL] * 2
    assert not (out / "model").exists()
    finished(*again)
    assert outcome(out) == outcome(tmp_path / "undisturbed")
    assert "this run is finished; nothing was done" in finished(*again)


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns(toy: Toy, data: Path, tmp_path: Path) -> None:
    """A batch of 3 is divided unevenly, and of one of 1 a rank has nothing."""
    exact = ("--dtype", "float64", "--steps", 5, "--evaluate-every", 2, "--optimizer.weight-decay", 0.3)
    runs = {"three": (*exact, "--batch-size", 3), "one": (*exact, "--batch-size", 1)}

    def plan(ranks: int) -> dict[str, Run]:
        return {
            name: Run(arguments=tuple(short(toy, data, tmp_path / f"{name}-{ranks}", *more)), environment={})
            for name, more in runs.items()
        }

    for ranks in (1, 2):
        for said in run_all(plan(ranks), tmp_path, ranks=ranks).values():
            assert [one.code for one in said] == [0] * ranks, said[0].err
            assert [(one.out, one.err) for one in said[1:]] == [("", "")] * (ranks - 1)
    for name in runs:
        alone, together = (tmp_path / f"{name}-{ranks}" for ranks in (1, 2))
        for expected, found in zip(lines(alone), lines(together), strict=True):
            assert max(apart(found[key], expected[key]) for key in expected) < 1e-10, (expected, found)
        own, wanted = (load_file(run / "model" / "model.safetensors") for run in (together, alone))
        for key, weight in wanted.items():
            torch.testing.assert_close(own[key], weight, rtol=1e-10, atol=1e-10, msg=key)


def test_pieces_of_any_size_embed_alike(toy: Toy, data: Path, tmp_path: Path) -> None:
    runs = {"whole": (), "pieces": ("--memory.tokens-at-once", 60), "left": ("--memory.layout", "left")}
    for name, more in runs.items():
        finished(*short(toy, data, tmp_path / name, "--dtype", "float64", *more))
    for name in ("pieces", "left"):
        for expected, found in zip(lines(tmp_path / "whole"), lines(tmp_path / name), strict=True):
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


RATED = [{"kind": "rating", "prompt": "1 a cat?", "completion": " dogs.", "score": 3, "group": "north"}]
BAD: dict[str, tuple[list[Row], tuple[object, ...], str]] = {
    "rows without groups": (
        judged("comparisons", 12),
        (),
        "data.jsonl:1: this comparison does not say which group judged; give it a `group`",
    ),
    "one row without": (
        [*dogs(FOUR), judged("comparisons", 1)[0]],
        (),
        "data.jsonl:31: this comparison does not say which group judged",
    ),
    "one group": (dogs({"north": 9}), (), "of 1 groups 0 would be learnt from"),
    "one group and none held out": (
        dogs({"north": 9}),
        ("--held-out", 0),
        "of 1 groups 1 would be learnt from, and how groups differ shows in two or more",
    ),
    "two groups and one held out": (dogs({"north": 9, "south": 9}), (), "of 2 groups 1 would be learnt from"),
    "all groups held out": (dogs(FOUR), ("--group.held-out", *FOUR), "of 4 groups 0 would be learnt from"),
    "an unknown group": (
        dogs(FOUR),
        ("--group.held-out", "west", "nowhere"),
        "group.held_out: no comparison is by nowhere; there are east, north, south, west",
    ),
    "a small group": (
        dogs({**FOUR, "tiny": 3}),
        ("--group.least", 3),
        "group.least 3: every group needs 4 comparisons, and fewer are by tiny (3)",
    ),
    "ratings": (RATED * 8, (), "data.jsonl:1: this row is a rating, and groups are learnt from comparisons"),
    "ratings among comparisons": ([*dogs(FOUR), *RATED], (), "data.jsonl:31: this row is a rating"),
    "rankings": (judged("rankings", 8), (), "data.jsonl:1: this row is a ranking"),
    "a file held out": (dogs(FOUR), ("--held-out", "rows.jsonl"), "held_out is the share of the groups"),
    "lora": (dogs(FOUR), ("--lora.rank", 2), "leave out lora, shard and compile"),
    "shard": (dogs(FOUR), ("--shard",), "leave out lora, shard and compile"),
    "samples": (dogs(FOUR), ("--sample.rows", 1), "leave out the settings of sample"),
    "a context upside down": (dogs(FOUR), ("--group.least", 7), "group.least 7, group.most 6"),
    "no targets": (dogs(FOUR), ("--group.targets", 0), "group.targets must be at least 1, not 0"),
    "heads": (dogs(FOUR), ("--group.heads", 3), "3 heads do not divide a width of 16"),
    "another measure": (dogs(FOUR), ("--keep.best", "held_out/acuracy"), "did you mean held_out/accuracy?"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", BAD)
def test_what_no_groups_can_be_learnt_from_is_refused(toy, tmp_path, capsys, case):
    rows, more, says = BAD[case]
    assert main(short(toy, write_rows(tmp_path / "data.jsonl", rows), tmp_path / "run", *more)) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run" / "model").exists()


def test_a_reward_model_embeds_nothing(toy, data, tmp_path, capsys):
    folder = tmp_path / "reward"
    folder.mkdir()
    for path in toy.model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text())
    facts["architectures"] = ["LlamaForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(facts))
    assert main(train(folder, data, tmp_path / "run")) == 2
    assert "give the folder of a language model" in capsys.readouterr().err


def test_ties_are_learnt_as_such_and_count_for_no_accuracy(toy: Toy, tmp_path: Path) -> None:
    ties = write_rows(tmp_path / "ties.jsonl", [{**row, "probability": 0.5} for row in dogs(FOUR)])
    finished(*short(toy, ties, tmp_path / "run", "--steps", 3))
    for line in lines(tmp_path / "run"):
        assert line["loss"] >= math.log(2) - 1e-6, "the loss of a tie is least where both score alike"
        assert line["accuracy"] is None
