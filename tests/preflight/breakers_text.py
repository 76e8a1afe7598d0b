"""Ways to break text and tokens: encoders, samplers, cuts and batches that are wrong by a little."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.data.records import Text
from plaudit.methods import run
from plaudit.preflight.check import PreflightSubject
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings, TokenIds
from plaudit.tokens import microbatch
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.encode import EncodedRow, Encoder, RefusedRow, make_encoder
from plaudit.tokens.microbatch import ForwardInputs, Layout
from tests.engine.toy import demonstrations, write_rows
from tests.preflight.subjects import Method, healthy, make_model_with_bos

ASSISTANT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"  # How the toy's template asks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    name: str
    fails: frozenset[str]
    says: str
    method: Method = "sft"
    encoder: Callable[[Encoder], Encoder] = lambda encoder: encoder
    template: str | None = None
    tokens: tuple[str, ...] = ()
    rows: Sequence[dict[str, Any]] = ()
    patches: tuple[tuple[Any, str, Any], ...] = ()
    subject: Callable[[PreflightSubject], PreflightSubject] = lambda subject: subject
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


@contextmanager
def begun(broken: Broken, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreflightSubject]:
    model = make_model_with_bos(folder / "base")
    edit(model, broken.template, broken.tokens)
    more = {"data": write_rows(folder / "own.jsonl", list(broken.rows))} if broken.rows else {}
    monkeypatch.setattr(run, "make_encoder", lambda *a, **k: broken.encoder(make_encoder(*a, **k)))
    for where, name, what in broken.patches:
        monkeypatch.setattr(where, name, what)
    with healthy(broken.method, folder, model=model, **more, **broken.settings) as subject:
        yield broken.subject(subject)


def edit(model: Path, template: str | None, added: Sequence[str] = ()) -> None:
    """Another template, and tokens that are no special ones, in a model's own files."""
    path = model / "tokenizer.json"
    written = json.loads(path.read_text("utf-8"))
    if added:
        # The last token that was added is not used by any template here; its number stays in the embedding.
        spare = max(written["added_tokens"], key=lambda token: token["id"])
        written["added_tokens"] += [
            {**spare, "id": spare["id"] + 1 + n, "content": text, "special": False}
            for n, text in enumerate(added)
        ]
        path.write_text(json.dumps(written), "utf-8")
        _enlarge(model, len(added))
    if template is not None:
        (model / "chat_template.jinja").write_text(template, "utf-8")


def _enlarge(model: Path, by: int) -> None:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model)
    size = loaded.get_input_embeddings().weight.shape[0]
    loaded.resize_token_embeddings(size + by, mean_resizing=False)
    loaded.save_pretrained(model)


def altered(change: Callable[[Example, Encoder], Example]) -> Callable[[Encoder], Encoder]:
    """An encoder that goes wrong in its last step."""

    class Altered(Encoder):
        def encode_with_notes(
            self, prompt: Text, completions: Sequence[Text], origin: str = ""
        ) -> EncodedRow:
            encoded = Encoder.encode_with_notes(self, prompt, completions, origin)
            return replace(encoded, example=change(encoded.example, self))

    return lambda one: Altered(info=one.info, chat_format=one.chat_format, turns=one.turns, notes=one.notes)


def answers(change: Callable[[Completion, Encoder], Completion]) -> Callable[[Encoder], Encoder]:
    """An encoder that makes something else of every answer."""
    return altered(
        lambda example, encoder: replace(
            example, completions=tuple(change(one, encoder) for one in example.completions)
        )
    )


def moved(trained: bool) -> Callable[[Encoder], Encoder]:
    """The prompt's last token as the answer's first."""

    def change(example: Example, encoder: Encoder) -> Example:
        del encoder
        said = tuple(
            Completion(ids=(example.prompt[-1], *one.ids), mask=(trained, *one.mask), finished=True)
            for one in example.completions
        )
        return replace(example, prompt=example.prompt[:-1], completions=said)

    return altered(change)


def cut_apart(example: Example, encoder: Encoder) -> Example:
    """The same text in other tokens: the first long one of the question letter by letter."""
    info = encoder.info
    for at, token in enumerate(example.prompt):
        word = info.decode((token,))
        if len(word) > 1 and word not in info.specials:
            letters = [one for letter in word for one in info.encode(letter)]
            return replace(example, prompt=(*example.prompt[:at], *letters, *example.prompt[at + 1 :]))
    raise AssertionError("a prompt of single letters")


class Stopless(Encoder):
    """An encoder that stops at nothing but padding."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (0,)


class OtherPrompts(LocalSampler):
    """A sampler that asks without opening the answer."""

    def generate(
        self, prompts: Sequence[TokenIds], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        return super().generate([ids[:-2] for ids in prompts], settings, n=n)


def asks_otherwise(subject: PreflightSubject) -> PreflightSubject:
    assert subject.policy is not None
    return replace(subject, sampler=OtherPrompts.from_policy(subject.policy, subject.encoder))


def from_the_right(example: Example, max_tokens: int, *, bos: int | None = None) -> Example | RefusedRow:
    del bos
    room = max(1, max_tokens - len(example.prompt))
    said = tuple(
        replace(one, ids=one.ids[:room], mask=one.mask[:room], finished=len(one.ids) <= room)
        for one in example.completions
    )
    return replace(example, completions=said)


def not_at_all(example: Example, max_tokens: int, *, bos: int | None = None) -> Example | RefusedRow:
    del max_tokens, bos
    return example


def without_pads(examples: Sequence[Example]) -> TokenBatch:
    """A batch that takes every token of padding for padding: here pad is 0, as it is in the toy."""
    batch = batch_of(examples)
    return replace(batch, mask_NT=batch.mask_NT & (batch.completion_NT != 0))


def all_places(examples: Sequence[Example]) -> TokenBatch:
    batch = batch_of(examples)
    return replace(batch, mask_NT=torch.ones_like(batch.mask_NT))


def up_to_pad(examples: Sequence[Example]) -> TokenBatch:
    """A batch whose rows end at their first token of padding."""
    batch = batch_of(examples)
    ends_NT = torch.cat([batch.completion_NT == 0, torch.ones_like(batch.mask_NT[:, :1])], dim=1)
    return replace(batch, length_N=torch.minimum(ends_NT.int().argmax(1).clamp(min=1), batch.length_N))


def padded_positions(batch: TokenBatch, layout: Layout, *, share_prompts: bool = True) -> ForwardInputs:
    """A layout that counts padding on the left as words."""
    laid = arrange(batch, layout, share_prompts=share_prompts)
    if layout != "left":
        return laid
    return replace(laid, position_RS=torch.arange(laid.ids_RS.shape[1]).expand_as(laid.ids_RS))


arrange = microbatch.layout_batch


def turns_of(*said: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": words} for role, words in said]


def conversations(system: str | None = None, *, history: bool = False) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for row in demonstrations(24):
        first = [] if system is None else [("system", system)]
        before = [("user", "the old dogs?"), ("assistant", "run far.")] if history else []
        after = [] if history else [("user", "and the cat?"), ("assistant", "on a mat.")]
        made.append(
            {
                "prompt": turns_of(*first, *before, ("user", row["prompt"])),
                "completion": turns_of(("assistant", row["completion"]), *after),
            }
        )
    return made


def long_prompts() -> list[dict[str, Any]]:
    """Rows whose prompts are far longer than their answers."""
    return [
        {
            **row,
            "prompt": turns_of(("user", row["prompt"] * 6)),
            "completion": turns_of(("assistant", "red.")),
        }
        for row in demonstrations(24)
    ]


def without_last(one: Completion, encoder: Encoder) -> Completion:
    del encoder
    return replace(one, ids=one.ids[:-1], mask=one.mask[:-1])


def masked(change: Callable[[tuple[bool, ...]], tuple[bool, ...]]) -> Callable[[Encoder], Encoder]:
    return answers(lambda one, _: replace(one, mask=change(one.mask)))


def bos_of(encoder: Encoder) -> int:
    assert encoder.info.bos is not None
    return encoder.info.bos
