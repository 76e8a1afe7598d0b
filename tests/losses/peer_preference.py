"""Run by the peer's own Python: its preference trainers on a tiny model, with what their losses saw.

Reads ``{name: [trainer, its settings], …}`` and prints, for each name, the loss, the tensor that it was
computed of (log-probs of tokens; logits, for ORPO and CPO), the gradient by it, and what else it saw.
The trainers, their settings, their model's forward pass and their losses are all the peer's own.
"""

import json
import sys
import tempfile
from functools import partial

PROMPT, WIDTH, WORDS = 2, 8, 7
LENGTHS = {"chosen": [3, 6, 2, 1, 5], "rejected": [5, 2, 2, 4, 6]}


def main() -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        answers = {name: answer(folder, trainer, settings) for name, (trainer, settings) in asked.items()}
    print("ANSWERS" + json.dumps(answers))


def answer(folder, kind, settings):
    """The loss of one trainer on the one batch."""
    import torch

    settings = dict(settings)
    dtype = getattr(torch, settings.pop("dtype", "float64"))
    beside = settings.pop("beside", 8)
    trainer = built(folder, kind, settings, dtype)
    policy = listened(trainer.model, dtype)
    reference = listened(trainer.ref_model, dtype) if kind in ("dpo", "kto") else []
    batch = {"dpo": pairs, "kto": partial(singles, beside), "orpo": sides, "cpo": sides}[kind]()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    learnt, others = policy[-1], policy[:-1] + reference[:-1]
    told = {"loss": loss.item(), "value": learnt["value"].tolist()}
    told |= {"grad": rounded(learnt["value"].grad.tolist(), 12)}
    told |= {"power": learnt["power"], "mask": masks().tolist(), "ids": token_ids().tolist()}
    told |= {"ref": [one["value"].tolist() for one in reference[-1:]]}
    told |= {"mismatched": [one["value"].sum(-1).tolist() for one in others]}
    if "use_weighting" in settings:
        told["logits"] = rounded(trainer.model(token_ids()).logits.tolist(), 8)
    return told


def rounded(numbers, places):
    """No more places than are compared, so that the record of all answers stays small."""
    return [rounded(one, places) if isinstance(one, list) else round(one, places) for one in numbers]


def built(folder, kind, settings, dtype):
    """The peer's trainer as a user has it, on two tiny models of random weights."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    trainer_of = {"dpo": DPOTrainer, "kto": KTOTrainer, "orpo": ORPOTrainer, "cpo": CPOTrainer}[kind]
    config_of = {"dpo": DPOConfig, "kto": KTOConfig, "orpo": ORPOConfig, "cpo": CPOConfig}[kind]
    args = config_of(
        output_dir=folder,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=2,
        disable_tqdm=True,
        remove_unused_columns=False,
        **settings,
    )
    rows = [{"prompt": "w1", "chosen": " w2", "rejected": " w3"}] * 2
    if kind == "kto":
        rows = [{"prompt": "w1", "completion": f" w{n}", "label": n == 2} for n in (2, 3)]
    also = {"ref_model": model(1).to(dtype)} if kind in ("dpo", "kto") else {}
    train_dataset = Dataset.from_list(rows)
    return trainer_of(
        model=model(0).to(dtype), args=args, train_dataset=train_dataset, processing_class=tokenizer(), **also
    )


def model(seed):
    """Wide random weights, so that the log-probs of tokens lie far apart."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, initializer_range=0.5, **shape, **ends)).eval()


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *(f"w{n}" for n in range(WORDS - 3))]
    bare = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<pad>"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<pad>"
    )


def listened(network, dtype):
    """What the model answers from now on, with the gradient by it kept.

    The peer's head works in single precision; what the loss is given is as precise as was asked for.
    """
    seen, forward = [], network.forward

    def listening(*args, **kwargs):
        outputs = forward(*args, **kwargs)
        name = "log_probs" if "log_probs" in outputs else "logits"
        outputs[name] = outputs[name].to(dtype)
        if outputs[name].requires_grad:
            outputs[name].retain_grad()
        power = outputs.get("log_sum_sq_probs")
        seen.append({"value": outputs[name], "power": None if power is None else power.tolist()})
        return outputs

    network.forward = listening
    return seen


def token_ids():
    """Prompts and answers, the preferred ones first, padded at the end."""
    import torch

    ids = torch.randint(3, WORDS, (10, WIDTH), generator=torch.Generator().manual_seed(7))
    return torch.where(torch.arange(WIDTH) < PROMPT + lengths()[:, None], ids, 0)


def lengths():
    import torch

    return torch.tensor(LENGTHS["chosen"] + LENGTHS["rejected"])


def masks():
    """1 for the tokens of answers."""
    import torch

    place = torch.arange(WIDTH)
    return ((place >= PROMPT) & (place < PROMPT + lengths()[:, None])).long()


def pairs():
    """The batch as the DPO trainer takes it."""
    ids = token_ids()
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "completion_mask": masks()}


def singles(beside):
    """The batch as the KTO trainer takes it, with ``beside`` answers to other prompts."""
    import torch

    batch = pairs()
    label = torch.arange(10) % 3 != 1
    return (
        batch | {f"KL_{name}": value.roll(3, 0)[:beside] for name, value in batch.items()} | {"label": label}
    )


def sides():
    """The batch as the trainers without a reference take it."""
    batch, labels = pairs(), token_ids().masked_fill(masks() == 0, -100)
    ids, attention = batch["input_ids"], batch["attention_mask"]
    return {
        f"{side}_{name}": value[part]
        for side, part in (("chosen", slice(0, 5)), ("rejected", slice(5, 10)))
        for name, value in (("input_ids", ids), ("attention_mask", attention), ("labels", labels))
    }


if __name__ == "__main__":
    main()
