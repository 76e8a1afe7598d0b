"""Run by the peer's own Python: its trainers on rows with pictures, whole batches in their order.

Reads ``{name: {"trainer": "dpo", "model": …, "reference": …, "rows": …, "out": …, "settings": {…}}, …}`` and
prints for each the loss of every step, the norm of the first gradient, of DPO the log-probs of all answers
beforehand, and of GRPO what it drew; the model that was trained lies in ``out``.
"""

import json
import sys
from pathlib import Path

PLAIN = {"bf16": False, "use_cpu": True, "gradient_checkpointing": False}
QUIET = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
ANSWERS = {"dpo": ("chosen", "rejected"), "sft": ("completion",), "grpo": ()}
DRAWN = ("completion_ids", "completion_mask", "advantages")


def main() -> None:
    import torch

    torch.set_num_threads(1)
    print(
        "ANSWERS" + json.dumps({name: answer(**question) for name, question in json.load(sys.stdin).items()})
    )


def answer(trainer, model, reference, rows, out, settings):
    import trl  # pyright: ignore[reportMissingImports]
    from transformers import AutoProcessor

    name = trainer.upper()
    more = {"dpo": {"ref_model": loaded(reference)}, "grpo": {"reward_funcs": lengths}}.get(trainer, {})
    made = getattr(trl, f"{name}Trainer")(
        model=loaded(model),
        args=getattr(trl, f"{name}Config")(output_dir=out, **PLAIN, **QUIET, **settings),
        train_dataset=rows_of(Path(rows), ANSWERS[trainer]),
        processing_class=AutoProcessor.from_pretrained(model),
        **more,
    )
    reported = {"dpo": log_probs, "grpo": listened}.get(trainer, lambda _: [])(made)
    made.train()
    made.save_model(out)
    steps = [line for line in made.state.log_history if "loss" in line]
    return {"reported": reported, "norm": steps[0]["grad_norm"], "loss": [line["loss"] for line in steps]}


def loaded(folder):
    import torch
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)


def rows_of(path, answers):
    """The rows with their pictures in a column, as the peer wants them, and places for them in the turn."""
    from datasets import Dataset
    from PIL import Image

    made = []
    for row in map(json.loads, path.read_text().splitlines()):
        parts = row["prompt"][0]["content"]
        pictures = [Image.open(path.parent / part["image"]) for part in parts if part["type"] == "image"]
        places = [{name: part[name] for name in part if name != "image"} for part in parts]
        prompt = [{"role": "user", "content": places}]
        made.append({"images": pictures, "prompt": prompt, **{name: row[name] for name in answers}})
    return Dataset.from_list(made)


def lengths(completions, **_):
    return [float(len(answer[0]["content"])) for answer in completions]


def listened(trainer):
    """What GRPO draws once it is trained, prompt by prompt: tokens, their mask and log-probs, advantages."""
    reported, draw, score = (
        {},
        trainer._generate_and_score_completions,
        trainer._get_per_token_logps_and_entropies,
    )

    def drawing(inputs):
        drawn = draw(inputs)
        reported.update((name, drawn[name].tolist()) for name in DRAWN)
        return drawn

    def scoring(model, input_ids, *args, **kwargs):
        found = score(model, input_ids, *args, **kwargs)
        # The peer shuffles answers between drawing and moving.
        order = [ids[-found[0].shape[1] :] for ids in input_ids.tolist()]
        reported["logp"] = [found[0][order.index(ids)].tolist() for ids in reported["completion_ids"]]
        return found

    trainer._generate_and_score_completions, trainer._get_per_token_logps_and_entropies = drawing, scoring
    return reported


def log_probs(trainer):
    """Of the policy and the reference: of each row's two answers."""
    return [
        [
            [side.item() for side in trainer.compute_ref_log_probs(model, trainer.data_collator([row]))]
            for row in trainer.train_dataset
        ]
        for model in (trainer.model, trainer.ref_model)
    ]


if __name__ == "__main__":
    main()
