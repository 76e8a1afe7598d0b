"""What ``plaudit train rlhf`` refuses, before anything is drawn where that can be known."""

from pathlib import Path

import pytest

from plaudit.methods.iterative.config import RlhfConfig
from plaudit.methods.iterative.rlhf import policy_config, reward_config, rlhf_round
from tests.engine.toy import Toy
from tests.methods.iterative.rlhf_runs import make_place, refused


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_place(tmp_path_factory.mktemp("rlhf"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--comparisons", "lenght:1-7"), "no reward 'lenght:1-7'"),
        (("--comparisons", "people", "--loop.noise", 1), "people have their own"),
        (("--comparisons", "openai:http://127.0.0.1:1/v1"), "name the model behind a #"),
        (("--comparisons", "openai:http://127.0.0.1:1/v1#m", "--loop.noise", 1), "leave the noise out"),
        (("--loop.noise", 1), "fuller compares by itself; leave the noise out"),
        (("--loop.noise", -1), "loop.noise must be a number from 0 on"),
        (("--loop.teach", "dpo"), "give a row of policy optimisation"),
        (("--loop.answers", 1), "loop.answers must be at least 2"),
        (("--loop.rounds", 0), "loop.rounds must be at least 1"),
        (("--rounds", 3), "unknown option --rounds; did you mean --loop.rounds?"),
        (("--policy.clip-low", 0.1), "clip_low"),
        (("--lora.rank", 2, "--lora.dropout", 0.1), "two passes are compared"),
        (("--reward-run.reward.loss", "regression"), "regression does not learn from comparisons"),
        (("--reward-run.reward.rows", "ratings"), "this loop has comparisons"),
        (("--reward-run.held-out", 1), "reward_run.held_out must be from 0"),
        (("--reward-run.start", "newest", "--reward-run.ensemble.members", 2), "an ensemble is several"),
        (("--max-length", 24), "leaves no room for a prompt"),
        (("--loop.data", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--loop.choose", "certain"), "loop.most how many: give both"),
        (("--loop.choose", "best", "--loop.most", 4), "choose best: expected one of random, d-optimal"),
        (("--loop.choose", "bald", "--loop.most", 4), "compares the members of an ensemble"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_drawn(toy, tmp_path, more, words):
    went = refused(toy, tmp_path / "run", *more)
    assert words in went.words
    assert not went.part(1, "answers.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("silent",), "nothing was said of any pair"),
        (("odd",), "it gave 0.7; say first, second or tie"),
        (("fuller", "--draw.max-tokens", 1), "no prompt has two answers that differ and came to an end"),
        (
            ("fuller", "--reward-run.held-out", 0.999999),
            "comparisons are held out; set --reward-run.held-out lower",
        ),
    ],
)
def test_what_came_to_nothing_is_told(toy: Toy, tmp_path: Path, more: tuple[object, ...], words: str) -> None:
    by, *own = more
    went = refused(toy, tmp_path / "run", "--comparisons", f"{toy.data.parent / 'mine.py'}:{by}", *own)
    assert words in went.words
    assert went.part(1, "answers.jsonl").exists(), "what was drawn can be looked at"


def test_names_of_fields_are_of_the_users_file_and_of_no_round(tmp_path: Path) -> None:
    words = {"model": tmp_path, "out": tmp_path / "run", "prompts": tmp_path / "p.jsonl"}
    config = RlhfConfig(**words, comparisons="people", columns=("prompt=ask",), leave_out=("note",))
    first = rlhf_round(config, 1)
    for made in (policy_config(config, first), reward_config(config, first)):
        assert (made.columns, made.leave_out, made.format) == ((), (), "plaudit")
