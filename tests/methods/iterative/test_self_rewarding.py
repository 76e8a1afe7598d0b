"""The newest model judges its own answers: its points, its pairs, what is measured of it, and the stop."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.feedback.judges.rubric import OVERALL
from plaudit.feedback.judges.wording import Question, wording_named
from plaudit.lab.world import base_model_folder
from tests.engine.distributed.runs import Run, run_all
from tests.engine.toy import Toy, demonstrations, write_rows
from tests.engine.toy_command import Command, finish, plaudit, refused
from tests.methods.iterative.test_loop_runs import command, lines, may_be_learnt, text

pytestmark = pytest.mark.slow

OWN = ("--reward", "self", "--loop.rounds", 2, "--loop.answers", 3)
FALLING = '''
def falls(answer, prompt):
    """Worth nothing once the model has learnt: a count of calls in a file is the only memory."""
    from pathlib import Path
    calls = Path(__file__).with_suffix(".calls")
    calls.write_text((calls.read_text() if calls.exists() else "") + ".")
    return 1.0 if len(calls.read_text()) <= 12 else 0.0
'''


@pytest.fixture(scope="module")
def toy(speaker: Toy, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    asked = [{"prompt": row["prompt"]} for row in demonstrations(8)]
    prompts = write_rows(tmp_path_factory.mktemp("self") / "prompts.jsonl", asked)
    return Toy(model=speaker.model, data=prompts)


@pytest.fixture(scope="module")
def watched(toy: Toy) -> tuple[object, ...]:
    """Comparisons by people, and twelve held-out prompts that a rule judges."""
    home = toy.data.parent
    rows = [
        {"prompt": row["prompt"], "chosen": "the cat sat.", "rejected": row["completion"]}
        for row in demonstrations(6)
    ]
    # What a score chose says nothing of other pairs.
    people = write_rows(home / "people.jsonl", [*rows, rows[0] | {"method": "certain"}])
    asked = [{"prompt": f"held {row['prompt']}"} for row in demonstrations(12)]
    held_out = write_rows(home / "held-out.jsonl", asked)
    return (
        *("--loop.people", people, "--loop.held-out-prompts", held_out),
        *("--loop.held-out-judge", "length:1-7"),
    )


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, watched: tuple[object, ...]) -> tuple[Path, str]:
    """A loop that nothing happened to, and what it said."""
    out = toy.data.parent / "undisturbed"
    return out, finish(*command("self-rewarding", toy, out, *OWN, *watched)).err


def own_points(folder: Path, prompt: str, answer: str) -> float:
    """Σ d P(d) over the whole replies 1 to 5, by transformers alone and in float64."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    [aspect] = OVERALL
    fill = {"aspect": aspect.name, "description": aspect.description, "points": "5"}
    question = Question(
        wording=wording_named("points"), prompt=prompt, blocks=(("Answer", answer),), fill=fill
    )
    turns = [{"role": "user", "content": question.text()}]
    shown = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    first = len(tokenizer(shown, add_special_tokens=False)["input_ids"])
    logps = []
    for digit in "12345":
        ids = tokenizer(f"{shown}{digit}<|im_end|>", add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            logits = model(**ids).logits[0].log_softmax(-1)
        tokens = ids["input_ids"][0]
        logps.append(sum(float(logits[n - 1, tokens[n]]) for n in range(first, len(tokens))))
    shares = torch.tensor(logps, dtype=torch.float64).softmax(0)
    return float(sum(n * share for n, share in enumerate(shares, 1)))


def test_each_round_is_scored_by_the_newest_model_and_pairs_are_its_best_against_its_worst(toy, undisturbed):
    out, _ = undisturbed
    for number, judge in ((1, toy.model), (2, out / "rounds" / "1" / "run" / "model")):
        expected: dict[str, tuple[str, str]] = {}
        for place, row in enumerate(lines(out / "rounds" / str(number) / "answers.jsonl")):
            if place < 2:
                one = row["answers"][0]
                assert one["score"] == pytest.approx(own_points(judge, row["prompt"], one["text"]), abs=1e-4)
            ended = [one for one in row["answers"] if may_be_learnt(one)]
            if len({one["score"] for one in ended}) > 1:
                best = max(ended, key=lambda one: one["score"])
                worst = min(ended, key=lambda one: one["score"])
                expected[row["origin"]] = (best["text"], worst["text"])
        rows = lines(out / "rounds" / str(number) / "rows.jsonl")
        found = {row["origin"]: (text(row["chosen"]), text(row["rejected"])) for row in rows}
        assert found == expected
        assert found


def test_every_round_says_what_its_model_is_worth_as_a_judge_and_by_a_held_out_judge(undisturbed):
    out, said = undisturbed
    start, *rounds = lines(out / "rounds.jsonl")
    assert [one["round"] for one in (start, *rounds)] == [0, 1, 2]
    assert "mean" not in start
    for one in (start, *rounds):
        answers = lines(out / "rounds" / str(one["round"]) / "held-out.jsonl")
        right = [float(1 <= len(row["answers"][0]["text"].split()) <= 7) for row in answers]
        assert one["held_out"] == pytest.approx(sum(right) / 12)
        assert one["people_rows"] == 6
        assert one["people_low"] <= one["people"] <= one["people_high"]
        assert one["held_out_low"] <= one["held_out"] <= one["held_out_high"]
    assert "held_out_gain" not in start
    for one in rounds:
        assert one["held_out_gain"] == pytest.approx(one["held_out"] - start["held_out"])
    for words in ("note: the start: ", "note: round 1's model: ", "note: round 2's model: "):
        assert words in said


def kept(out: Path) -> dict[str, bytes]:
    names = [f"rounds/{n}/{what}" for n in (1, 2) for what in ("answers.jsonl", "rows.jsonl")]
    names += [f"rounds/{n}/{what}" for n in (0, 1, 2) for what in ("measured.json", "held-out.jsonl")]
    names += [f"model/{path.name}" for path in (out / "model").iterdir()]
    return {name: (out / name).read_bytes() for name in (*names, "rounds.jsonl")}


def test_a_loop_that_is_killed_anywhere_ends_with_the_same_bits(toy, watched, undisturbed, tmp_path):
    out = tmp_path / "loop"
    again = command("self-rewarding", toy, out, *OWN, *watched)
    moments = (
        "rounds/0/held-out.jsonl",
        "checkpoints/round-0-measured.json",
        "rounds/1/rows.jsonl",
        "rounds/1/run/summary.json",
        "rounds/1/measured.json",
        "checkpoints/round-1-measured.json",
        "rounds/2/held-out.jsonl",
    )
    codes = [Command(again).kill_when((out / moment).exists).code for moment in moments]
    assert codes.count(-signal.SIGKILL) >= len(moments) - 2, codes
    finish(*again)
    assert kept(out) == kept(undisturbed[0])


def test_a_measure_that_was_edited_is_refused(toy: Toy, watched: tuple[object, ...], tmp_path: Path) -> None:
    out = tmp_path / "loop"
    again = command("self-rewarding", toy, out, *OWN, *watched)
    Command(again).kill_when((out / "checkpoints" / "round-0-measured.json").exists)
    values = out / "rounds" / "0" / "measured.json"
    values.write_text(values.read_text("utf-8").replace("1.0", "0.0"), "utf-8")
    assert "measured.json: it is not as round 0 has left it" in refused(*again)


@pytest.mark.parametrize("on_fall", ["stop", pytest.param("go-on", marks=pytest.mark.slow)])
def test_a_fall_ends_the_loop_with_the_best_rounds_model(toy, watched, tmp_path, on_fall):
    (tmp_path / "mine.py").write_text(FALLING)
    out = tmp_path / "loop"
    more = (*watched, "--loop.held-out-judge", f"{tmp_path / 'mine.py'}:falls", "--loop.on-fall", on_fall)
    again = command("self-rewarding", toy, out, *OWN, *more)
    said, figures = " ".join(finish(*again).err.split()), lines(out / "rounds.jsonl")
    assert figures[1]["fallen"] == ["the held-out judge"]
    assert "round 1: the held-out judge has fallen by 1.000 since the start" in said
    if on_fall == "go-on":
        assert "the loop goes on" in said
        assert (out / "rounds" / "2").exists()
        return
    assert "the loop ends here, and its model is that of the start" in said
    assert not (out / "rounds" / "2").exists()
    weights = "model.safetensors"
    assert (out / "model" / weights).read_bytes() == (toy.model / weights).read_bytes()
    assert "this loop is finished" in " ".join(plaudit(*again).err.split())


def test_two_processes_measure_once_and_end_together(toy, watched, undisturbed, tmp_path):
    words = command("self-rewarding", toy, tmp_path / "loop", *OWN, *watched)
    run = Run(arguments=tuple(map(str, words)), environment={})
    ranks = run_all({"loop": run}, tmp_path, ranks=2)["loop"]
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].err
    assert "".join(rank.err for rank in ranks).count("note: the start: ") == 1
    own, other = (home / "rounds" / "0" / "measured.json" for home in (tmp_path / "loop", undisturbed[0]))
    assert own.read_bytes() == other.read_bytes()


def refused_at_once(toy: Toy, out: Path, name: str, *more: object) -> str:
    said = refused(*command(name, toy, out, *more))
    assert not (out / "rounds" / "1").exists(), "nothing was drawn"
    return said


def test_what_cannot_judge_itself_is_refused_before_anything_is_drawn(toy, watched, tmp_path):
    other = ("--reward", "length:1-7")
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "method": "certain"}
    chosen = write_rows(tmp_path / "chosen.jsonl", [row])
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("`plaudit train iterated`", other),
        ("draw 2 or more", ("--reward", "self", "--loop.answers", 1)),
        ("by points or by letters", ("--reward", "self,how=verdict")),
        ("nothing is called point; did you mean points", ("--reward", "self,point=5")),
        ("points 2 to 9", ("--reward", "self,points=12")),
        ("(certain) and carries no chance", ("--reward", "self", *watched, "--loop.people", chosen)),
        ("go together", ("--reward", "self", "--loop.held-out-judge", "length:1-7")),
        (
            "8 of 8 prompts are among those of",
            ("--reward", "self", *watched, "--loop.held-out-prompts", toy.data),
        ),
    ]
    for number, (words, more) in enumerate(cases):
        assert words in refused_at_once(toy, tmp_path / str(number), "self-rewarding", *more)
    assert "only self-rewarding is judged by the newest model" in refused_at_once(
        toy, tmp_path / "r", "iterated", "--reward", "self"
    )
    assert "loop.people: iterated has no such setting" in refused_at_once(
        toy, tmp_path / "i", "iterated", *watched, *other
    )


def test_a_model_that_cannot_reply_with_its_points_is_refused_by_name(toy: Toy, tmp_path: Path) -> None:
    folder = tmp_path / "mute"
    shutil.copytree(base_model_folder(), folder)
    path = folder / "tokenizer.json"
    table = json.loads(path.read_text("utf-8"))
    table["model"]["vocab"] = {
        "▁quatre" if word == "▁4" else word: number for word, number in table["model"]["vocab"].items()
    }
    path.write_text(json.dumps(table), "utf-8")
    asked = Toy(model=folder, data=toy.data)
    said = refused_at_once(
        asked, tmp_path / "points", "self-rewarding", "--reward", "self", "--max-length", 256
    )
    assert "mute: the tokenizer does not know the word '4', so it cannot reply with the points 1 to 5" in said
    assert "`plaudit train iterated --reward judge:WORD`" in said
    letters = Toy(model=base_model_folder(), data=toy.data)
    more = ("--reward", "self,how=letter", "--max-length", 256)
    assert "cannot reply with the letters A and B" in refused_at_once(
        letters, tmp_path / "letters", "self-rewarding", *more
    )
