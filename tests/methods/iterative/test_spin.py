"""Self-play: the demonstration against the model's own answer, held near the opponent."""

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.toy import Toy, demonstrations, write_rows
from tests.engine.toy_command import Command, finish, plaudit, refused
from tests.methods.iterative.test_loop_runs import command, lines, may_be_learnt, settings, text

pytestmark = pytest.mark.slow

BETA = 0.4
OWN = ("--loop.rounds", 2, "--loop.answers", 2, "--preference.beta", BETA)


@pytest.fixture(scope="module")
def toy(speaker: Toy) -> Toy:
    return Toy(model=speaker.model, data=speaker.data.with_name("demonstrations.jsonl"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spin")


@pytest.fixture(scope="module")
def held_out(home: Path) -> Path:
    rows = [
        {
            "kind": "comparison",
            "prompt": row["prompt"],
            "chosen": row["completion"],
            "rejected": "two old dogs.",
        }
        for row in demonstrations(5)
    ]
    return write_rows(home / "pairs.jsonl", rows)


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, home: Path, held_out: Path) -> Path:
    out = home / "undisturbed"
    finish(*command("spin", toy, out, *OWN, "--held-out", held_out))
    return out


def test_rows_are_each_demonstration_against_each_of_the_newest_models_other_answers(toy, undisturbed):
    written = {f"{toy.data}:{n}": row["completion"] for n, row in enumerate(lines(toy.data), 1)}
    figures = lines(undisturbed / "rounds.jsonl")
    for number, one in enumerate(figures, 1):
        folder = undisturbed / "rounds" / str(number)
        expected: list[tuple[str, str, str]] = []
        same = 0
        for row in lines(folder / "answers.jsonl"):
            wanted = next(text for origin, text in written.items() if origin.endswith(row["origin"]))
            same += sum(answer["text"].strip() == wanted.strip() for answer in row["answers"])
            expected += [
                (row["origin"], wanted, answer["text"])
                for answer in row["answers"]
                if may_be_learnt(answer) and answer["text"].strip() != wanted.strip()
            ]
        rows = lines(folder / "rows.jsonl")
        assert [(row["origin"], text(row["chosen"]), text(row["rejected"])) for row in rows] == expected
        assert one["same"] == same
        assert one["answers"] == 2 * len(written)
        assert "mean" not in one
        assert "unjudged" not in one or one["unjudged"] == 0
    assert settings(undisturbed, 2)["model"] == str(undisturbed / "rounds" / "1" / "run" / "model")
    assert settings(undisturbed, 2)["reference"]["model"] is None, "the opponent is what the round begins as"


def answer_logp(folder: Path, prompt: str, answer: str) -> float:
    """Log P of an answer with the end of its turn, by transformers alone and in float64."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    turns = [{"role": "user", "content": prompt}]
    shown = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    first = len(tokenizer(shown, add_special_tokens=False)["input_ids"])
    ids = tokenizer(f"{shown}{answer}<|im_end|>", add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        logp = model(**ids).logits[0].log_softmax(-1)
    tokens = ids["input_ids"][0]
    return sum(float(logp[n - 1, tokens[n]]) for n in range(first, len(tokens)))


def test_the_loss_is_the_papers(undisturbed: Path, held_out: Path) -> None:
    """E log(1 + exp(−(λ log π(y|x)/π_t(y|x) − λ log π(y'|x)/π_t(y'|x)))), π_t of the round before."""
    rounds = undisturbed / "rounds"
    newest, opponent = rounds / "2" / "run" / "model", rounds / "1" / "run" / "model"
    losses: list[float] = []
    for row in lines(held_out):
        gains = [
            answer_logp(newest, row["prompt"], row[side]) - answer_logp(opponent, row["prompt"], row[side])
            for side in ("chosen", "rejected")
        ]
        losses.append(math.log1p(math.exp(-BETA * (gains[0] - gains[1]))))
    last = json.loads((rounds / "2" / "run" / "summary.json").read_text("utf-8"))["last"]
    assert last["held_out/loss"] == pytest.approx(sum(losses) / len(losses), abs=2e-5)
    assert abs(last["held_out/loss"] - math.log(2)) > 1e-3, "it has moved away from the opponent"


def test_a_demonstration_gains_on_what_the_model_said_before(undisturbed: Path) -> None:
    def lead(folder: Path) -> float:
        """How much likelier demonstrations are than the opponent's answers, in nats."""
        rows = lines(undisturbed / "rounds" / "2" / "rows.jsonl")[:6]
        return sum(
            answer_logp(folder, text(row["prompt"]), text(row["chosen"]))
            - answer_logp(folder, text(row["prompt"]), text(row["rejected"]))
            for row in rows
        )

    assert lead(undisturbed / "model") > lead(undisturbed / "rounds" / "1" / "run" / "model") + 1


def test_a_killed_loop_ends_with_the_same_bits(toy, held_out, undisturbed, tmp_path):
    out = tmp_path / "loop"
    again = command("spin", toy, out, *OWN, "--held-out", held_out)
    moments = ("rounds/1/answers.jsonl", "rounds/1/run/summary.json", "rounds/2/rows.jsonl")
    assert -signal.SIGKILL in [Command(again).kill_when((out / moment).exists).code for moment in moments]
    finish(*again)
    names = [f"rounds/{n}/{what}.jsonl" for n in (1, 2) for what in ("answers", "rows")]
    names += [f"model/{path.name}" for path in (out / "model").iterdir()]
    for name in (*names, "rounds.jsonl"):
        assert (out / name).read_bytes() == (undisturbed / name).read_bytes(), name


def refused_spin(toy: Toy, out: Path, data: Path, *more: object) -> str:
    return refused(*command("spin", Toy(model=toy.model, data=data), out, *more))


def test_without_demonstrations_and_with_a_reward_it_is_refused(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = refused_spin(toy, out, toy.data.with_name("prompts.jsonl"))
    assert "16 of 16 rows are no demonstrations" in said
    assert "prompts.jsonl:1 is a prompt" in said
    assert not (out / "rounds" / "1" / "answers.jsonl").exists()
    assert "--reward" in refused_spin(toy, tmp_path / "reward", toy.data, "--reward", "length:1-7")
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "content": "the cat."},
        {"role": "user", "content": "?"},
    ]
    rows = [{"prompt": [{"role": "user", "content": "a cat?"}], "completion": [*turns, turns[0]]}]
    several = write_rows(tmp_path / "turns.jsonl", rows)
    assert "the demonstration has 3 turns" in refused_spin(toy, tmp_path / "turns", several)


def test_a_model_that_says_what_is_demonstrated_has_nothing_left_to_learn(toy: Toy, tmp_path: Path) -> None:
    """Its own likeliest answers as demonstrations: every answer is the demonstration."""
    first = tmp_path / "first"
    greedy = ("--loop.rounds", 1, "--loop.answers", 1, "--sampling.temperature", 0)
    assert plaudit(*command("spin", toy, first, *greedy, "--steps", 1)).code == 0
    own = [
        {"prompt": row["prompt"], "completion": row["answers"][0]["text"]}
        for row in lines(first / "rounds" / "1" / "answers.jsonl")
        if row["answers"][0]["ended"] and row["answers"][0]["text"].strip()
    ]
    said = refused_spin(toy, tmp_path / "out", write_rows(tmp_path / "own.jsonl", own), *greedy)
    assert "every answer is its demonstration" in said
