"""Folders of tiny models that can be asked: one word a token, so that an answer's words are its tokens."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from plaudit.data.records import Text
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from tests.models.zoo import VOCABULARY, build

CONTROL = ("<pad>", "<s>", "<end>", "<user>", "<assistant>", "<system>")
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def word(number: int) -> str:
    return [*CONTROL, *(f"w{w}" for w in range(len(CONTROL), VOCABULARY))][number]


def write_tokenizer(folder: Path, *, chats: bool = True, words: int = VOCABULARY) -> None:
    vocabulary = {word(w): w for w in range(min(words, VOCABULARY))}
    vocabulary |= {f"w{w}": w for w in range(VOCABULARY, words)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="w9"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<end>", additional_special_tokens=list(CONTROL)
    )
    tokenizer.chat_template = TEMPLATE if chats else None
    tokenizer.save_pretrained(folder)


def write_talker(
    folder: Path,
    name: str = "llama",
    *,
    chats: bool = True,
    stops: Sequence[int] = (2,),
    seed: int = 0,
    endless: bool = False,
) -> Path:
    """A model of the zoo with random weights that ends its turn at any of ``stops``.

    An endless one, if greedy, never does, and its context is as good as endless too.
    """
    model = build(name, seed=seed)
    model.generation_config.eos_token_id = list(stops)
    if endless:
        model.get_parameter("lm_head.weight").data[list(stops)] = 0
        model.config.max_position_embeddings = 1_000_000
    model.save_pretrained(folder)
    write_tokenizer(folder, chats=chats)
    return folder


def answered(
    sampler: LocalSampler, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
) -> list[list[Rollout]]:
    return sampler.generate([sampler.encode(prompt) for prompt in prompts], settings, n=n)
