"""A token for padding alone, which ends nothing: a reward model is read where an answer ends.

Transformers' classifiers read the last token that is not padding; where padding is also the end of turn they
read the wrong one (transformers issue 35352).
"""

import copy
import re
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from plaudit.tokens.encode import Encoder

NEW_PAD = "<|pad|>"
"""What the token is called when the tokenizer has none that is free."""

_PAD = re.compile(r"[<\[|_]*(finetune_right_)?pad(ding)?(_id|_token)?[>\]|_]*", re.IGNORECASE)
_SPARE = re.compile(r"\W*(\w*_)?(reserved|unused)\w*\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """A tokenizer with a padding token of its own.
    Example: for a tokenizer of 61 tokens without a free one ``Padding(tokenizer=…, id=61)``."""

    tokenizer: PreTrainedTokenizerBase
    id: int


def padding_for(encoder: Encoder) -> Padding:
    """The tokenizer's own padding token if it ends nothing, else a spare special token, else a new one.
    The same tokenizer and template always get the same token."""
    # A copy: the encoder's own tokenizer must stay as it was loaded.
    tokenizer = copy.deepcopy(encoder.info.tokenizer)
    tokenizer.chat_template = encoder.template
    tokenizer.padding_side = "right"
    text = _free_token(encoder)
    if text is None:
        tokenizer.add_special_tokens({"pad_token": NEW_PAD})
    else:
        tokenizer.pad_token = text
    token_id = tokenizer.convert_tokens_to_ids(str(tokenizer.pad_token))
    assert isinstance(token_id, int)
    return Padding(tokenizer=tokenizer, id=token_id)


def set_padding(model: PreTrainedModel, padding: Padding) -> None:
    """Let the model know its padding token, with a row of zeros in the embeddings if it has none yet."""
    embedding: Any = model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    if padding.id >= rows:
        # Resizing draws numbers for rows that are zeroed below; a run's
        # own random numbers may not depend on that.
        with torch.random.fork_rng(devices=device_generators(embedding.weight.device)):
            model.resize_token_embeddings(padding.id + 1, mean_resizing=False)
    embedding = model.get_input_embeddings()
    with torch.no_grad():
        embedding.weight[rows:] = 0.0
    if getattr(embedding, "padding_idx", None) is not None:
        # PyTorch gives this row no gradient; if it stayed where it was, an end of turn would never learn.
        embedding.padding_idx = padding.id
    model.config.get_text_config().pad_token_id = padding.id


def device_generators(device: torch.device) -> list[torch.device]:
    """The devices whose random numbers a model there draws from, beside the CPU's, as `fork_rng` takes them.

    >>> device_generators(torch.device("cpu")), device_generators(torch.device("cuda", 1))
    ([], [device(type='cuda', index=1)])
    """
    return [device] if device.type == "cuda" else []


def _free_token(encoder: Encoder) -> str | None:
    info = encoder.info
    tokenizer = info.tokenizer
    unknown: Any = tokenizer.unk_token_id
    # A token that ends answers, begins texts or stands for the unknown may appear in a row: padding may not.
    used_ids = {*encoder.stop_ids, info.bos, info.eos, unknown}
    if info.pad is not None and info.pad not in used_ids:
        return str(tokenizer.pad_token)
    vocabulary = tokenizer.get_vocab()
    free = sorted(
        (text for text in info.specials if text in vocabulary and vocabulary[text] not in used_ids),
        # By number: the lowest free token, in whichever order a tokenizer lists its special ones.
        key=vocabulary.__getitem__,
    )
    pads = [text for text in free if _PAD.fullmatch(text)]
    # One that the template writes is taken, however "reserved" its name is.
    spares = [text for text in free if _SPARE.fullmatch(text) and text not in (encoder.template or "")]
    return next(iter([*pads, *spares]), None)
