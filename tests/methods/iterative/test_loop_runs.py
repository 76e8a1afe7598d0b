"""Loops through the command: every row of the table draws, chooses, trains, and leaves a policy behind."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from plaudit.engine.distributed import single_process
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.iterative.config import LoopConfig
from plaudit.methods.iterative.rounds import round_sampler
from plaudit.models.decode import CachedDecoder
from plaudit.rollouts import local
from tests.engine.toy import Toy, demonstrations, make_toy, write_rows
from tests.engine.toy_command import Done, finish, refused, sft

SHORT = "length:1-7"
"""The reward: 1 for one to seven words."""
OWN: dict[str, tuple[object, ...]] = {
    "best-of-n": ("--loop.answers", 4),
    "rejection": ("--loop.rounds", 2, "--loop.answers", 4),
    "expert": ("--loop.rounds", 2, "--loop.answers", 4),
    "rest": ("--loop.rounds", 2, "--loop.improves", 2, "--loop.answers", 4, "--loop.top", 0.5, 0.25),
    "rest-em": ("--loop.rounds", 2, "--loop.answers", 6, "--loop.keep", 2),
    "rso": ("--loop.answers", 8, "--loop.keep", 6),
    "rs-dpo": ("--loop.answers", 4, "--loop.gap", 0.5, "--loop.distinct"),
    "slic-hf": ("--loop.answers", 4),
    "iterated": ("--loop.rounds", 2, "--loop.answers", 4, "--learning-rate", 0.0005),
    "self-rewarding": ("--loop.rounds", 1, "--loop.answers", 3, "--learning-rate", 0.0005),
    "spin": ("--loop.rounds", 1, "--learning-rate", 0.0005),
}
QUIET = ("--sample.rows", 0, "--evaluate-every", 200)
GRADED = '''
def short(answer):
    """Without a verdict on dogs."""
    return None if "dogs" in answer else 1.0 / (1 + len(answer.split()))


silent, flat = lambda answer: None, lambda answer: 2.0
'''


def make_speaker(folder: Path, prompts: int = 16) -> Toy:
    toy = make_toy(folder, rows=60)
    out = folder / "sft"
    finish(*sft(toy, out, "--steps", 200, "--batch-size", 16, "--save-every", 200, *QUIET))
    config = out / "model" / "config.json"
    # Room for a judge's question, which it spells nearly letter by letter.
    roomy = {**json.loads(config.read_text("utf-8")), "max_position_embeddings": 4096}
    config.write_text(json.dumps(roomy), "utf-8")
    (folder / "mine.py").write_text(GRADED)
    asked = [{"prompt": row["prompt"]} for row in demonstrations(prompts)]
    write_rows(folder / "demonstrations.jsonl", demonstrations(prompts))
    return Toy(model=out / "model", data=write_rows(folder / "prompts.jsonl", asked))


def command(name: str, toy: Toy, out: Path, *more: object) -> list[object]:
    scored = ITERATIVE_ALGORITHMS[name].scored_by == "reward"
    reward = ("--reward", SHORT) if scored and "--reward" not in more else ()
    return [
        *("train", name, "--model", toy.model, "--prompts", toy.data, "--out", out, *reward),
        *("--steps", 6, "--batch-size", 8, "--learning-rate", 0.003, "--save-every", 3, "--sample.rows", 0),
        *("--sampling.max-tokens", 24, "--max-length", 128, "--device", "cpu", *OWN[name], *more),
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def settings(out: Path, number: int) -> dict[str, Any]:
    return yaml.safe_load((out / "rounds" / str(number) / "run" / "config.yaml").read_text("utf-8"))


class Loops:
    def __init__(self, folder: Path) -> None:
        self.toy = make_speaker(folder)
        self.folder = folder
        self._done: dict[str, Done] = {}

    def run(self, label: str, name: str, *more: object) -> Path:
        out = self.folder / label
        if label not in self._done:
            done = finish(*command(name, self.toy, out, *more))
            self._done[label] = done
        return out

    def said(self, label: str) -> Done:
        return self._done[label]

    def refused(self, label: str, name: str, *more: object) -> str:
        return refused(*command(name, self.toy, self.folder / label, *more))


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Loops:
    return Loops(tmp_path_factory.mktemp("loops"))


def test_answers_are_drawn_in_the_numbers_of_the_run_and_what_is_slow_is_said(loops, monkeypatch, capsys):
    monkeypatch.setattr(local.decode, "fastest_decoder", lambda _: (CachedDecoder, "it is of its own kind"))
    toy, ranks = loops.toy, single_process("cpu")
    config = LoopConfig(model=toy.model, prompts=toy.data, reward="", out=loops.folder, dtype="bfloat16")
    with round_sampler(toy.model, config, ranks, loops.folder) as (sampler, _):
        assert sampler.policy.backbone.compute_dtype == torch.bfloat16
    assert "sampling is slower here: it is of its own kind" in "".join(capsys.readouterr())


def text(turns: Any) -> str:
    [turn] = turns
    return turn["content"]


def may_be_learnt(answer: Any) -> bool:
    """Whether an answer of ``answers.jsonl`` ended and says something that a file of text can hold."""
    return answer["ended"] and bool(answer["text"].strip()) and "\0" not in answer["text"]


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", ITERATIVE_ALGORITHMS)
def test_every_loop_trains_on_what_it_chose(loops: Loops, name: str) -> None:
    demonstrated = ITERATIVE_ALGORITHMS[name].scored_by == "demonstrations"
    written = loops.folder / "demonstrations.jsonl"
    out = loops.run(name, name, *(("--prompts", written) if demonstrated else ()))
    figures = lines(out / "rounds.jsonl")
    assert [one["round"] for one in figures] == list(range(1, len(figures) + 1))
    for one in figures:
        folder = out / "rounds" / str(one["round"])
        answers = lines(out / "rounds" / str(one["drawn"]) / "answers.jsonl")
        rows = lines(folder / "rows.jsonl")
        assert len(rows) == one["rows"]
        assert one["answers"] == sum(len(row["answers"]) for row in answers)
        known = {row["origin"]: row for row in answers}
        for row in rows:
            scores = {a["text"]: a["score"] for a in known[row["origin"]]["answers"] if a["ended"]}
            if demonstrated:
                scores = {**dict.fromkeys(scores, 0.0), text(row["chosen"]): 1.0}
            assert row["prompt"][0]["role"] == "user", "a chat model is asked by turns"
            if ITERATIVE_ALGORITHMS[name].pairs:
                assert scores[text(row["chosen"])] > scores[text(row["rejected"])]
            elif name in ("best-of-n", "rejection"):
                assert scores[text(row["completion"])] == max(scores.values())
            else:
                assert scores[text(row["completion"])] >= one["threshold"]
        assert f"note: round {one['round']}: {one['answers']} answers" in loops.said(name).err
        assert (folder / "run" / "summary.json").exists()
        assert (folder / "run" / "checkpoints").exists() == (one is figures[-1])
    last = out / "rounds" / str(len(figures)) / "run" / "model"
    for path in last.iterdir():
        assert (out / "model" / path.name).read_bytes() == path.read_bytes()
    assert f"The model is in {out / 'model'}" in loops.said(name).out


@pytest.mark.slow
def test_rejection_comes_to_say_what_is_rewarded(loops: Loops) -> None:
    out = loops.run("long", "rejection", "--loop.rounds", 5, "--steps", 12)
    means = [one["mean"] for one in lines(out / "rounds.jsonl")]
    assert means[-1] > means[0] + 0.2
    assert {one["kl_bound"] for one in lines(out / "rounds.jsonl")} == {math.log(4) - 3 / 4}


def test_rounds_ask_as_their_model_was_trained(loops: Loops, tmp_path: Path) -> None:
    said = refused(*command("iterated", loops.toy, tmp_path / "run", "--text", "raw"))
    assert "rounds ask and train --model as its own folder says" in said


@pytest.mark.slow
def test_rest_draws_once_and_raises_its_threshold(loops: Loops) -> None:
    out = loops.run("graded", "rest", "--reward", f"{loops.folder / 'mine.py'}:short")
    assert (out / "rounds" / "1" / "answers.jsonl").exists()
    assert not (out / "rounds" / "2" / "answers.jsonl").exists()
    first, second = lines(out / "rounds.jsonl")
    assert first["threshold"] < second["threshold"]
    assert first["rows"] > second["rows"]
    assert settings(out, 2)["model"] == str(out / "rounds" / "1" / "run" / "model")


@pytest.mark.slow
def test_rest_em_trains_the_start_model_and_draws_from_the_newest(loops: Loops) -> None:
    out = loops.run("rest-em", "rest-em")
    assert settings(out, 2)["model"] == str(loops.toy.model)
    newest = out / "rounds" / "1" / "run" / "model"
    assert f"prompts from {newest}" in loops.said("rest-em").err.replace("\n", "")
    rows = lines(out / "rounds" / "1" / "rows.jsonl")
    assert max([row["origin"] for row in rows].count(row["origin"]) for row in rows) == 2


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["start", "newest"])
def test_a_round_is_held_near_the_start_or_the_newest(loops: Loops, reference: str) -> None:
    more = () if reference == "start" else ("--loop.reference", "newest")
    out = loops.run("newest" if more else "iterated", "iterated", *more)
    wanted = str(loops.toy.model) if reference == "start" else None
    assert settings(out, 2)["reference"]["model"] == wanted
    assert settings(out, 2)["model"] == str(out / "rounds" / "1" / "run" / "model")


@pytest.mark.slow
def test_any_preference_row_can_teach(loops: Loops) -> None:
    out = loops.run("ipo", "iterated", "--loop.teach", "ipo", "--preference.beta", 0.5, "--loop.rounds", 1)
    lineage = json.loads((out / "rounds" / "1" / "run" / "lineage.json").read_text("utf-8"))
    assert lineage["method"] == "ipo"
    assert settings(out, 1)["beta"] == 0.5


@pytest.mark.slow
def test_no_verdict_is_never_chosen_nor_called_bad(loops: Loops) -> None:
    out = loops.run("verdicts", "slic-hf", "--reward", f"{loops.folder / 'mine.py'}:short")
    [figures] = lines(out / "rounds.jsonl")
    assert figures["unjudged"] > 0
    said = [one for row in lines(out / "rounds" / "1" / "answers.jsonl") for one in row["answers"]]
    scores = [one["score"] for one in said if one["score"] is not None]
    assert figures["mean"] == pytest.approx(sum(scores) / len(scores))
    for row in lines(out / "rounds" / "1" / "rows.jsonl"):
        assert "dogs" not in text(row["chosen"])
        assert "dogs" not in text(row["rejected"])


@pytest.mark.slow
def test_a_cut_answer_is_never_learnt(loops: Loops) -> None:
    out = loops.run("cut", "best-of-n", "--sampling.max-tokens", 6, "--reward", "length:0-99")
    answers = lines(out / "rounds" / "1" / "answers.jsonl")
    cut = {(row["origin"], one["text"]) for row in answers for one in row["answers"] if not one["ended"]}
    [figures] = lines(out / "rounds.jsonl")
    assert figures["cut"] >= len(cut) > 0
    rows = lines(out / "rounds" / "1" / "rows.jsonl")
    assert not cut & {(row["origin"], text(row["completion"])) for row in rows}
    assert figures["none"] == len(answers) - len(rows)


@pytest.mark.slow
def test_rounds_take_other_prompts_until_all_had_their_turn(loops: Loops) -> None:
    out = loops.run("parts", "expert", "--loop.prompts", 8, "--loop.threshold", 0.0)
    asked = [{row["origin"] for row in lines(out / "rounds" / str(n) / "answers.jsonl")} for n in (1, 2)]
    assert len(asked[0] | asked[1]) == len(asked[0]) + len(asked[1]) == 16


@pytest.mark.slow
def test_of_equal_answers_only_the_first_is_kept_when_asked_for(loops: Loops) -> None:
    own = ("--loop.rounds", 1, "--loop.threshold", 0.0, "--sampling.temperature", 0.2)
    for label, more in (("all", ()), ("once", ("--loop.distinct",))):
        rows = lines(loops.run(label, "expert", *own, *more) / "rounds" / "1" / "rows.jsonl")
        pairs = [(row["origin"], text(row["completion"])) for row in rows]
        assert (len({*pairs}) == len(pairs)) == (label == "once")


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("rejection", ("--reward", "lenght:1-7"), "no reward 'lenght:1-7'"),
        ("iterated", ("--loop.answers", 1), "draw 2 or more"),
        ("rejection", ("--loop.gap", 1.0), "loop.gap: rejection has no such setting"),
        ("rso", ("--loop.beta", 0), "loop.beta must be a number above 0"),
        ("iterated", ("--loop.teach", "sft"), "give a row of the preference table"),
        ("iterated", ("--loop.teach", "simpo", "--loop.reference", "newest"), "simpo has no reference"),
        ("iterated", ("--preference.orpo-lambda", 1), "orpo_lambda"),
        ("rejection", ("--preference.beta", 1), "rejection learns answers, not pairs"),
        ("expert", ("--loop.threshold", 1, "--loop.top", 0.5), "give one of them"),
        ("rejection", ("--sampling.temperature", 0), "the same answer every time"),
        ("rejection", ("--max-length", 24), "leaves no room for a prompt"),
        ("rejection", ("--held-out", 0, "--keep.use-best"), "needs held-out rows"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_drawn(loops, name, more, words):
    label = f"refused-{name}-{'-'.join(map(str, more))}"
    assert words in loops.refused(label, name, *more)
    assert not (loops.folder / label / "rounds" / "1" / "answers.jsonl").exists()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        (
            "expert",
            ("--loop.threshold", 1.5),
            "no answer reaches the threshold 1.5; the best score seen is 1",
        ),
        ("rs-dpo", ("--loop.gap", 3), "further apart than 3; the widest gap seen is 1"),
        ("iterated", ("--reward", "flat"), "all answers to each prompt have the same score"),
        ("rejection", ("--reward", "silent"), "no verdict on any of the 64 answers"),
        ("rejection", ("--sampling.max-tokens", 1), "every one of the 64 answers that has a verdict is cut"),
    ],
)
def test_what_came_to_nothing_is_told_with_its_figures(loops, name, more, words):
    own = {"flat": f"{loops.folder / 'mine.py'}:flat", "silent": f"{loops.folder / 'mine.py'}:silent"}
    given = [own.get(str(one), one) for one in more]
    out = loops.folder / f"nothing-{name}-{more[-1]}"
    assert words in loops.refused(out.name, name, *given)
    assert (out / "rounds" / "1" / "answers.jsonl").exists(), "what was drawn can be looked at"


@pytest.mark.slow
def test_a_loop_that_has_kept_nothing_can_start_again_with_other_settings(loops: Loops) -> None:
    loops.refused("again", "expert", "--loop.threshold", 1.5)
    loops.run("again", "expert", "--steps", 1, "--loop.rounds", 1)


def test_a_file_without_prompts_is_refused(loops: Loops, tmp_path: Path) -> None:
    rows = [{"kind": "demonstration", "prompt": "", "completion": "the cat sat."}] * 2
    toy = Toy(model=loops.toy.model, data=write_rows(tmp_path / "plain.jsonl", rows))
    assert "there is no prompt to answer" in refused(*command("rejection", toy, tmp_path / "out"))


@pytest.mark.slow
def test_prompts_may_have_a_field_of_another_name(loops: Loops, tmp_path: Path) -> None:
    rows = [{"ask": row["prompt"]} for row in demonstrations(4)]
    toy = Toy(model=loops.toy.model, data=write_rows(tmp_path / "named.jsonl", rows))
    finish(*command("best-of-n", toy, tmp_path / "out", "--steps", 1, "--columns", "prompt=ask"))


@pytest.mark.slow
def test_prompts_that_cannot_be_answered_are_named(loops: Loops, tmp_path: Path) -> None:
    rows = [{"prompt": "the cat?"}, {"prompt": "the cat sat on " * 60 + "?"}]
    toy = Toy(model=loops.toy.model, data=write_rows(tmp_path / "long.jsonl", rows))
    said = refused(*command("rejection", toy, tmp_path / "out"))
    assert "1 prompts cannot be answered, above the threshold of 1.0%" in said
    assert "long.jsonl:2: the prompt has" in said
    done = finish(*command("best-of-n", toy, tmp_path / "fewer", "--rows.threshold", 0.5, "--steps", 1))
    assert "1 prompts cannot be answered" in done.err
