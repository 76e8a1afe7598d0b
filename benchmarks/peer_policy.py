"""One run of TRL's GRPOTrainer or PPOTrainer on a work folder, in its environment; prints a line of JSON.

Models, prompts, their order in GRPO, lengths, temperature and rate are those of our side. ``--variant`` picks
the settings: ``default`` changes nothing but the arithmetic (float32 on both sides) and the order of prompts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import datasets
import torch
import transformers

from benchmarks.measure import MIB, Report, Watch, read_all
from benchmarks.peer_trl import ATTENTION, ON_GPU, RATE, Clock, versions
from benchmarks.work import PROMPTS, REFERENCE, REWARD, SAMPLED, SAMPLES, sevens

BETA = {"grpo": 0.0, "grpo-kl": 0.04}
"""How dear the distance from the reference is; PPO has its own default, which is ours too."""
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "plain": {"gradient_checkpointing": False},
    "accumulating": {"gradient_checkpointing": False, "accumulate": True},
    "small": {"accumulate": True},
    "gpu": ON_GPU,
    "continuous": {"gradient_checkpointing": False, "use_transformers_continuous_batching": True},
}
"""TRL's own options; ``accumulate`` is eight answers at a time and as many as make up the step."""
AT_ONCE = 8
"""TRL's default of ``per_device_train_batch_size``."""


def trainer_for(work: Path, given: argparse.Namespace, watch: Watch) -> Any:
    """A trainer on the folder's models and prompts."""
    rows = datasets.load_dataset("json", data_files=str(work / (SAMPLED if given.agree else PROMPTS)))
    return (_ppo if given.method == "ppo" else _grpo)(work, given, rows["train"], [Clock(watch)])


def _load(folder: Path, kind: str = "AutoModelForCausalLM", attention: str | None = None) -> Any:
    load = getattr(transformers, kind).from_pretrained
    return load(folder, dtype=torch.float32, attn_implementation=attention)


def _common(given: argparse.Namespace, answers: int) -> dict[str, object]:
    """The settings of both trainers: what is compared, and silence."""
    variant = dict(VARIANTS[given.variant])
    pieces = answers // AT_ONCE if variant.pop("accumulate", False) and answers > AT_ONCE else 1
    return {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": answers // pieces,
        "gradient_accumulation_steps": pieces,
        "learning_rate": RATE,
        "temperature": 1.0,
        "bf16": given.dtype == "bfloat16",
        "use_cpu": given.device == "cpu",
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        **variant,
    }


def _grpo(work: Path, given: argparse.Namespace, rows: Any, callbacks: Sequence[Any]) -> Any:
    trl: Any = importlib.import_module("trl")  # It is in the peers' environments only.
    settings = trl.GRPOConfig(
        **_common(given, given.batch * given.answers),
        max_steps=given.steps,
        num_generations=given.answers,
        max_completion_length=given.completion,
        beta=BETA[given.method],
        shuffle_dataset=False,
    )

    def reward(completions: Sequence[str], **_: object) -> list[float]:
        return [sevens(answer) for answer in completions]

    trainer = trl.GRPOTrainer(
        _load(work / "model", attention=ATTENTION if given.variant == "gpu" else None),
        reward_funcs=reward,
        args=settings,
        train_dataset=rows,
        processing_class=transformers.AutoTokenizer.from_pretrained(work / "model"),
        callbacks=callbacks,
    )
    if trainer.ref_model is not None:
        # It loads the folder that the policy is from; the reference has other weights.
        trainer.ref_model.load_state_dict(_load(work / REFERENCE).state_dict())
    return trainer


def _ppo(work: Path, given: argparse.Namespace, rows: Any, callbacks: Sequence[Any]) -> Any:
    module: Any = importlib.import_module("trl.experimental.ppo")
    tokenizer = transformers.AutoTokenizer.from_pretrained(work / "model")
    prompts = rows.map(
        lambda row: {"input_ids": tokenizer(row["prompt"]).input_ids}, remove_columns=rows.column_names
    )
    settings = module.PPOConfig(
        **_common(given, given.batch),
        total_episodes=given.batch * given.steps,
        response_length=given.completion,
        num_ppo_epochs=1 if given.agree else 4,
        # Else it draws further answers between steps, to look at.
        num_sample_generations=0,
    )
    scorer = partial(_load, work / REWARD, "AutoModelForSequenceClassification")
    return module.PPOTrainer(
        args=settings,
        processing_class=tokenizer,
        model=_load(work / "model"),
        ref_model=_load(work / REFERENCE),
        reward_model=scorer(),
        value_model=scorer(),
        train_dataset=prompts,
        eval_dataset=prompts.select(range(1)),
        callbacks=callbacks,
    )


def run(work: Path, given: argparse.Namespace) -> Report:
    """Train for a few steps and say what they cost."""
    watch = Watch(device=given.device)
    trainer = trainer_for(work, given, watch)
    read_all(p.detach() for p in trainer.model.parameters())
    trainer.train()
    slots = trainer.optimizer.state.values()
    state = sum(value.nbytes for own in slots for value in own.values() if isinstance(value, torch.Tensor))
    history = trainer.state.log_history
    return Report(
        who=f"TRL {version('trl')}",
        setting=f"{given.method}, {given.variant}, {given.dtype}",
        versions=versions(given.variant),
        batch=given.batch * (1 if given.method == "ppo" else given.answers),
        first_loss=_first(history, "loss", "loss/policy_avg"),
        seconds=tuple(watch.seconds),
        cpu_seconds=tuple(watch.cpu_seconds),
        base_mib=watch.resident_mib + state / MIB,
        peak_mib=watch.peak_mib,
        tokens=_drawn(history, given),
    )


def _first(history: Sequence[Mapping[str, float]], *names: str) -> float:
    return next(float(line[name]) for line in history for name in names if name in line)


def _drawn(history: Sequence[Mapping[str, float]], given: argparse.Namespace) -> int:
    """Tokens of all answers; PPO goes on behind the end-of-text token."""
    if given.method == "ppo":
        return given.steps * given.batch * given.completion
    lengths = [line["completions/mean_length"] for line in history if "completions/mean_length" in line]
    return round(sum(lengths) * given.batch * given.answers)


class Fixed:
    """Answers from the work folder in the place of drawn ones."""

    def __init__(self, work: Path):
        """Read them; prompts are known by their tokens."""
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / "model")
        lines = (work / SAMPLED).read_text(encoding="utf-8").splitlines()
        self.prompts = [tuple(tokenizer(json.loads(line)["prompt"]).input_ids) for line in lines]
        answers = json.loads((work / SAMPLES).read_text(encoding="utf-8"))
        self._answers = dict(zip(self.prompts, answers, strict=True))

    def each(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """An answer to each; a prompt that comes again gets its next one."""
        before: Counter[tuple[int, ...]] = Counter()
        found: list[list[int]] = []
        for ids in map(tuple, prompts):
            found.append(self._answers[ids][before[ids]])
            before[ids] += 1
        return found


def agreement(work: Path, given: argparse.Namespace) -> list[float]:
    """Of the fixed samples: their rewards, KL, loss of the first move, value loss."""
    given.steps = 1
    trainer, fixed = trainer_for(work, given, Watch()), Fixed(work)
    figures = (_ppo_says if given.method == "ppo" else _grpo_says)(trainer, fixed)
    history = trainer.state.log_history
    kl = 0.0 if given.method == "grpo" else _first(history, "kl", "objective/kl")
    value = _first(history, "loss/value_avg") if given.method == "ppo" else 0.0
    return [*figures, kl, _first(history, "loss", "loss/policy_avg"), value]


def _grpo_says(trainer: Any, fixed: Fixed) -> list[float]:
    """The rewards, prompt by prompt; the history has the rest."""
    found: list[float] = []
    score = trainer._calculate_rewards

    def scored(*words: Any) -> Any:
        rewards = score(*words)
        found.extend(rewards[:, 0].tolist())
        return rewards

    trainer._calculate_rewards = scored
    trainer._generate_single_turn = lambda prompts, *_: (fixed.each(prompts), None)
    trainer.train()
    return found


def _ppo_says(trainer: Any, fixed: Fixed) -> list[float]:
    """Likewise; its prompts come in an order of their own."""
    module: Any = sys.modules[type(trainer).__module__]
    found: dict[tuple[int, ...], float] = {}
    score = module.get_reward

    def scored(model: Any, texts: Any, padding: int, length: int) -> Any:
        scores = score(model, texts, padding, length)
        if model is trainer.reward_model:
            prompts = [tuple(ids) for ids in texts[:, :length].tolist()]
            found.update(zip(prompts, scores[1].tolist(), strict=True))
        return scores

    def drawn(model: Any, queries: Any, *_: object) -> tuple[Any, Any]:
        texts = torch.cat([queries, torch.tensor(fixed.each(queries.tolist()))], 1)
        return texts, model(texts).logits[:, queries.shape[1] - 1 : -1]

    module.get_reward, module.batch_generation = scored, drawn
    trainer.train()
    return [found[prompt] for prompt in fixed.prompts]


def main() -> None:
    """From the command line: .peers/trl/bin/python -m benchmarks.peer_policy FOLDER --method grpo."""
    parser = argparse.ArgumentParser(description="time TRL's GRPOTrainer or PPOTrainer on a work folder")
    parser.add_argument("work", type=Path)
    parser.add_argument("--method", choices=(*BETA, "ppo"), default="grpo")
    parser.add_argument("--batch", type=int, default=8, help="prompts of a step")
    parser.add_argument("--answers", type=int, default=8, help="to each prompt; PPO draws one")
    parser.add_argument("--completion", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--variant", choices=VARIANTS, default="default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--agree", action="store_true", help="print what is said of the fixed samples instead"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with redirect_stdout(sys.stderr):  # The trainers talk.
        line = json.dumps(agreement(given.work, given)) if given.agree else run(given.work, given).line()
    print(line)


if __name__ == "__main__":
    main()
