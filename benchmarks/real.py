"""Studies on a pretrained model and on prompts and problems that others made; docs/real-model.md tells them.

    python -m benchmarks.real --out lab --seeds 3                   # from the hub
    python -m benchmarks.real --out lab --seeds 3 --sources DIR     # or from DIR, what lies there

`DIR/HuggingFaceTB/SmolLM2-135M-Instruct` is a model's folder, `DIR/google/IFEval` one with a file of rows.
Begun again, a study goes on. Intervals are 95 %, over prompts.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.lab import Lab
from benchmarks.preference import ratio_difference
from benchmarks.studies import Table, run_studies
from benchmarks.turns import PEER, ROOT, Command, in_turn, ours, theirs
from benchmarks.work import PAIRS, REFERENCE
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, Prompt, Task, plain_text, turns_of
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files import hub
from plaudit.rewards.registry import resolve_reward
from plaudit.rewards.verifiable.instructions import InstructionReward, InstructionVerdicts

CONFIGS = ROOT / "examples" / "pipelines" / "smollm2"
PEER_ROUNDS = 20
"""Of GRPO, on either side."""
PEER_STEPS, PEER_ROWS, PEER_LENGTH = 5, 4, 512
"""Of SFT and DPO: steps of a run, rows of a step, tokens of the longest row."""
QUOTATION = "startend:quotation"
"""The held-out kind that answers in quotes satisfy without a thought."""
SHORTCUTS: Mapping[str, Callable[[str], bool]] = {
    "answers of fewer than 20 words": lambda text: len(text.split()) < 20,
    "answers in double quotes as a whole": lambda text: text[:1] == '"' == text[-1:],
}
"""What earns by saying little."""
Held = Callable[[InstructionVerdicts], Sequence[bool]]
"""What is counted of an answer: whether all of its instructions hold, or each of some kinds."""


def instructions(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO by checkable instructions: IFEval before and after, and kinds that no prompt of training had."""
    document = document_of("instructions")
    unseen = frozenset(next(iter(document["stages"]))["prompts"]["without"])
    counted: Mapping[str, Held] = {
        "prompt level, strict": lambda held: [all(strict for _, strict, _ in held)],
        "kinds that were rewarded": lambda held: [strict for kind, strict, _ in held if kind not in unseen],
        "kinds that were held out": lambda held: [strict for kind, strict, _ in held if kind in unseen],
        f"of these without {QUOTATION}": lambda held: [
            strict for kind, strict, _ in held if kind in unseen - {QUOTATION}
        ],
    }
    yield "seed", "IFEval", "before, %", "after, %", "difference, points"
    for seed in range(lab.seeds or 1):
        folder, _ = lab.piped("instructions", seed, document, changes)
        stages = folder / "stages"
        queried = {
            plain_text(row.prompt): row for row in _prompts(hub.local_path("google/IFEval", "dataset"))
        }
        trained = {plain_text(row.prompt) for row in _prompts(stages / "prompts" / "rows.jsonl")}
        assert not trained & queried.keys(), "prompts of the test were trained on"
        path = stages / "ifeval" / "answers.jsonl"
        before, after = _verdicts(path, queried)
        for name, held in counted.items():
            yield str(seed), name, *_compared(before, after, held)
        yield from ((str(seed), *cells, "") for cells in _shortcuts(path, (before, after)))


def _shortcuts(
    path: Path, verdicts: Sequence[Mapping[str, InstructionVerdicts]]
) -> Iterator[tuple[str, ...]]:
    """Of each policy's answers the shares that say little, and what is right of ended and cut ones."""
    answers: dict[str, list[Any]] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        answers.setdefault(row["policy"], []).append(row)
    for name, shows in SHORTCUTS.items():
        yield name, *(_percent(shows(row["text"].strip()) for row in rows) for rows in answers.values())
    for name, ended in {"of answers that end": True, "of answers that are cut": False}.items():
        shares = (
            _percent(
                all(strict for _, strict, _ in held[row["prompt"]])
                for row in rows
                if row["ended"] == ended and row["prompt"] in held
            )
            for held, rows in zip(verdicts, answers.values(), strict=True)
        )
        yield f"prompt level, strict, {name}", *shares


def sums(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO by the number, on sums and differences of two-digit numbers: what is right of eight answers."""
    yield from _answered(lab, "sums", changes, {"additions": " + ", "differences": " - "})


def own_answers(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """Rejection sampling, pairs and thumbs of the model's own answers, as many as GRPO draws."""
    yield from _answered(lab, "own-answers", changes)


def gsm8k(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GSM8K: fine-tuning on its answers, rejection sampling beside it, and GRPO by the number after it."""
    yield from _answered(lab, "gsm8k", changes)


def comparisons(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """A reward of people's comparisons on pairs held out, and PPO by it, judged by another reward."""
    yield "seed", "what", "figure"
    for seed in range(lab.seeds or 1):
        folder, _ = lab.piped("comparisons", seed, document_of("comparisons"), changes)
        [worth] = json.loads((folder / "stages" / "worth" / "summary.json").read_text("utf-8"))["evaluations"]
        yield from ((str(seed), *cells) for cells in _worth(worth))
        path = folder / "stages" / "evaluation" / "policies.json"
        evaluation = json.loads(path.read_text("utf-8"))
        for contest in evaluation["contests"]:
            for counted, words in (
                ("raw", "won by the judge, %"),
                ("length_controlled", "at equal length, %"),
            ):
                name = f"{contest['policy']} against {contest['against']}: {words}"
                yield str(seed), name, _text(Estimate(**contest[counted]))
        for policy in evaluation["policies"]:
            for name in ("reward", "length", "kl"):
                if policy[name] is not None:
                    yield str(seed), f"{policy['name']}: {name}", _number(Estimate(**policy[name]))


def _worth(worth: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How good a reward is on pairs held out: how often right, how sure of itself, how drawn to the short."""
    yield f"{worth['pairs']} pairs held out: right, %", _text(Estimate(**worth["accuracy"]))
    for name in ("log_loss", "brier", "ece_mass"):
        yield f"calibration: {name}", f"{worth['calibration'][name]:.3f}"
    length = next(probe for probe in worth["probes"]["features"] if probe["name"] == "length")
    for who in ("model", "annotators"):
        low, value, high = sorted(1 / ratio for ratio in length[who].values())
        name = f"odds of the shorter answer, of one {length['unit']}: {who}"
        yield name, f"{value:.1f} ({low:.1f} to {high:.1f})"


FORGETTING_PROMPTS, FORGETTING_TOKENS, QUESTIONS = 100, 256, 300


def forgetting(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """What each run lost on what it was not trained for: instructions, sums, plain English."""
    del changes
    start = hub.local_path("HuggingFaceTB/SmolLM2-135M-Instruct", "model")
    runs = {
        f"{stage} ({name})": lab.folder / name / "0" / "stages" / stage / "run" / "model"
        for name, stages in {
            "sums": ("grpo",),
            "instructions": ("grpo",),
            "gsm8k": ("sft", "grpo"),
            "comparisons": ("ppo",),
        }.items()
        for stage in stages
    }
    models = {"the start": start} | {name: path for name, path in runs.items() if path.exists()}
    yield "trained by", "IFEval, prompt level, strict, %", "sums right, %", "perplexity of questions"
    common = {
        "do": "evaluate",
        "policy": [f"{name}={path}" for name, path in models.items()],
        "temperature": 0,
        "dtype": "bfloat16",
    }
    ifeval = {"prompts": "google/IFEval", "right": "instructions", "n": FORGETTING_PROMPTS}
    sums = {"prompts": str(CONFIGS / "sums-test.jsonl"), "right": "number", "n": 300, "max-tokens": 16}
    document = {
        "name": "smollm2-forgetting",
        "stages": [
            {"ifeval": {**common, **ifeval, "max-tokens": FORGETTING_TOKENS}},
            {"sums": {**common, **sums}},
        ],
    }
    folder, _ = lab.piped("forgetting", 0, document)
    shares = [
        [Estimate(**policy["passes"][0]["value"]) for policy in _policies(folder, stage)]
        for stage in ("ifeval", "sums")
    ]
    for (name, path), *both in zip(models.items(), *shares, strict=True):
        yield name, *map(_text, both), f"{_perplexity(path):.2f}"


def _perplexity(model: Path) -> float:
    """Of GSM8K's test questions, people's plain English, a token."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = read_records(hub.local_path("openai/gsm8k:main/test", "dataset")).records[:QUESTIONS]
    total, tokens = 0.0, 0
    for row in rows:
        ids = torch.tensor([tokenizer(plain_text(row.prompt))["input_ids"]])
        with torch.no_grad():
            loss = policy(input_ids=ids, labels=ids).loss
        total, tokens = total + float(loss) * (ids.numel() - 1), tokens + ids.numel() - 1
    return math.exp(total / tokens)


def next_to_trl(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """GRPO on sums beside TRL's, both in float32 with TRL's schedule: time, memory, and what each learnt."""
    yield "seed", "side", "s / step", "MiB", "reward, steps 1–5", "the last 5", "right, %", "one of 8, %"
    schedule = {"schedule": "linear", "warmup": 0, "floor": 0}
    same = [f"grpo.optimizer.{name}={value}" for name, value in schedule.items()]
    same += ["grpo.dtype=float32", f"grpo.rounds={PEER_ROUNDS}"]
    document = document_of("sums")
    for seed in range(lab.seeds or 1):
        peer = _peer_model(lab, seed)
        document["stages"][-1]["sums"]["policies"] = ["$model", "$grpo", str(peer)]
        folder, _ = lab.piped("next-to-trl", seed, document, [*same, *changes])
        stages = folder / "stages"
        _, *shares = [[row["value"] for row in policy["passes"]] for policy in _policies(folder, "sums")]
        runs = {"plaudit": stages / "grpo" / "run", "TRL 1.16": peer.parent}
        for (side, run), right in zip(runs.items(), shares, strict=True):
            steps = [*map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())]
            costs = [step.get("timing", step) for step in steps]
            seconds = median(cost["seconds"] for cost in costs[1:])
            memory = max(cost["memory_mib"] for cost in costs)
            first, last = (fmean(step["reward"] for step in part) for part in (steps[:5], steps[-5:]))
            cells = f"{seconds:.1f}", f"{memory:,.0f}", f"{first:.2f}", f"{last:.2f}"
            yield str(seed), side, *cells, *(_text(Estimate(**share)) for share in right)


def steps_next_to_trl(lab: Lab, changes: Sequence[str] = ()) -> Table:
    """Steps of SFT (GSM8K's answers) and of DPO (people's pairs) beside TRL's, in float32, in turn."""
    del changes
    yield "method", "side", "s / step", "slower than ours", "MiB above base", "loss of step 1"
    work = lab.folder / "steps-next-to-trl"
    differ = _write_steps(work)
    given = argparse.Namespace(steps=PEER_STEPS, threads=torch.get_num_threads(), device="cpu", rounds=2)
    batch = ("--batch", str(PEER_ROWS))
    for method, own in (("sft", ours("ours")), ("dpo", ours("our_preference", "--method", "dpo"))):
        peers = {
            f"TRL 1.16, {name}": (*theirs(method, *batch), "--variant", name) for name in ("default", "plain")
        }
        words = {"plaudit": (*own, *batch), **peers}
        sides = in_turn([Command(name=name, words=text) for name, text in words.items()], work, given)
        for side in sides:
            if side.failure is not None:
                raise SystemExit(f"{method}, {side.name}: {side.failure}")
            times = f"{side.seconds:.2f}", f"{side.seconds / sides[0].seconds:.2f}"
            yield method, side.name, *times, f"{side.above_base_mib:,.0f}", f"{side.first_loss:.5f}"
    difference, count = differ
    yield "dpo", f"log π − log π_ref of {count} answers", "", "", "", f"differ by at most {difference:.1g}"


def _write_steps(work: Path) -> tuple[float, int]:
    """A folder with the model, a reference a little off, demonstrations and pairs, all written out as text.

    The difference between both sides' log-ratios of the answers, and how many there are.
    """
    model = hub.local_path("HuggingFaceTB/SmolLM2-135M-Instruct", "model")
    shutil.rmtree(work, ignore_errors=True)
    # Written out with the template, so that neither side renders anything.
    tokenizer = AutoTokenizer.from_pretrained(model)
    for name in ("model", REFERENCE):
        shutil.copytree(model, work / name, ignore=shutil.ignore_patterns("chat_template*"))
    weights: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    weights.get_decoder().norm.weight.data *= 0.98
    weights.save_pretrained(work / REFERENCE)
    for file, word, sides in (
        ("rows.jsonl", "openai/gsm8k:main/train", ("completion",)),
        (PAIRS, "Anthropic/hh-rlhf:harmless-base/train", ("chosen", "rejected")),
    ):
        lines: list[str] = []
        for record in read_records(hub.local_path(word, "dataset")).records:
            turns = [{"role": turn.role, "content": plain_text((turn,))} for turn in turns_of(record.prompt)]
            prompt = str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
            texts = {side: plain_text(getattr(record, side)) for side in sides}
            longest = max(len(tokenizer(prompt + text)["input_ids"]) for text in texts.values())
            if longest <= PEER_LENGTH:
                lines.append(json.dumps({"prompt": prompt, **texts}))
            if len(lines) == PEER_STEPS * PEER_ROWS:
                break
        (work / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ratio_difference(work, torch.get_num_threads())


def _peer_model(lab: Lab, seed: int) -> Path:
    """What TRL makes of the same model and problems, in the environment of ``make bench-peer``."""
    out = lab.folder / "next-to-trl" / f"trl-{seed}"
    if not (out / "model").exists():
        shutil.rmtree(out, ignore_errors=True)
        model = hub.local_path("HuggingFaceTB/SmolLM2-135M-Instruct", "model").absolute()
        words = [model, CONFIGS / "sums-train.jsonl", out, "--steps", str(PEER_ROUNDS), "--seed", str(seed)]
        subprocess.run([PEER, "-m", "benchmarks.peer_real", *words], cwd=ROOT, check=True)
    return out / "model"


def _policies(folder: Path, stage: str) -> list[Any]:
    return json.loads((folder / "stages" / stage / "policies.json").read_text("utf-8"))["policies"]


def _answered(
    lab: Lab, name: str, changes: Sequence[str], parts: Mapping[str, str] = MappingProxyType({})
) -> Table:
    """How each policy of a pipeline answers what no one was trained on; ``parts`` are known by a word."""
    head = ("seed", "policy", "right, %", "one of 8, %", "ended, %", "tokens", "nats from the start")
    yield *head, *(f"{part}, %" for part in parts), "a number alone, %"
    document = document_of(name)
    [(stage, settings)] = document["stages"][-1].items()
    for seed in range(lab.seeds or 1):
        folder, _ = lab.piped(name, seed, document, changes)
        for policy in _policies(folder, stage):
            passed = [Estimate(**row["value"]) for row in policy["passes"]]
            ended, length, kl = (Estimate(**policy[at]) for at in ("finished", "length", "kl"))
            shares = map(_text, (*passed, ended))
            cells = (*shares, f"{length.value:.1f}", f"{kl.value:.1f}")
            rows = hub.local_path(settings["prompts"], "dataset")
            counted = _counted(folder / "stages" / stage, policy["name"], rows, parts.values())
            yield str(seed), policy["name"], *cells, *counted


def _counted(folder: Path, policy: str, problems: Path, parts: Iterable[str]) -> Iterator[str]:
    """Of a policy's answers the share right in each part, and of all the share that is a number alone."""
    rows = read_records(problems).records
    truth = {plain_text(row.prompt): row.answer for row in rows if isinstance(row, Prompt | Demonstration)}
    lines = (folder / "answers.jsonl").read_text("utf-8").splitlines()
    answers = [row for row in map(json.loads, lines) if row["policy"] == policy]
    queries = [
        Task(
            prompt=row["prompt"],
            answers=(row["text"],),
            ended=(row["ended"],),
            reference_answer=truth[row["prompt"]],
        )
        for row in answers
    ]
    scores = [score for (score,) in resolve_reward("number").scores(queries)]
    for part in parts:
        found = [score or 0.0 for score, row in zip(scores, answers, strict=True) if part in row["prompt"]]
        yield _percent(found)
    yield _percent(bool(re.fullmatch(r"-?\d+\.?", row["text"].strip())) for row in answers)


def document_of(name: str) -> Any:
    """A config that is shipped; its files lie beside it, wherever the hub's may."""
    text = (CONFIGS / f"{name}.yaml").read_text("utf-8")
    return yaml.safe_load(text.replace("examples/pipelines/smollm2", str(CONFIGS)))


def _prompts(path: Path) -> Iterator[Prompt]:
    return (row for row in read_records(path).records if isinstance(row, Prompt))


def _verdicts(path: Path, queried: Mapping[str, Prompt]) -> list[Mapping[str, InstructionVerdicts]]:
    """Of each policy, in the order of the file, what holds of its answer to each prompt."""
    tasks: dict[str, list[Task]] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        facts = queried[row["prompt"]].metadata
        task = Task(prompt=row["prompt"], answers=(row["text"],), ended=(True,), metadata=facts)
        tasks.setdefault(row["policy"], []).append(task)
    checkers = InstructionReward()
    return [
        {
            plain_text(task.prompt): verdict
            for task, (verdict,) in zip(row, checkers.verdicts(row), strict=True)
            if verdict is not None
        }
        for row in tasks.values()
    ]


def _compared(
    before: Mapping[str, InstructionVerdicts], after: Mapping[str, InstructionVerdicts], held: Held
) -> tuple[str, str, str]:
    """Both shares and their difference, instruction by instruction, with prompts drawn anew."""
    pairs = [
        (at, *both)
        for at, prompt in enumerate(sorted(before.keys() & after.keys()))
        for both in zip(held(before[prompt]), held(after[prompt]), strict=True)
    ]
    prompt_B, before_B, after_B = np.array(pairs, dtype=float).T
    at_B, resampling = prompt_B.astype(int), Resampling()
    first, second = (bootstrap_mean(held_B, at_B, resampling) for held_B in (before_B, after_B))
    difference = bootstrap_mean(after_B - before_B, at_B, resampling, share=False)
    return _text(first), _text(second), _text(difference, sign="+")


def _percent(shares: Iterable[float]) -> str:
    counted = [*shares]
    return f"{100 * fmean(counted):.1f}" if counted else "–"


def _number(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _text(estimate: Estimate, sign: str = "") -> str:
    assert estimate.low is not None
    assert estimate.high is not None
    value, low, high = (f"{100 * end:{sign}.1f}" for end in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high})"


STUDIES = {
    "instructions": instructions,
    "sums": sums,
    "own-answers": own_answers,
    "gsm8k": gsm8k,
    "comparisons": comparisons,
    "forgetting": forgetting,
    "next-to-trl": next_to_trl,
    "steps-next-to-trl": steps_next_to_trl,
}

if __name__ == "__main__":
    run_studies(__doc__, STUDIES, changed=True)
