"""What a chat template does, found out by rendering two tiny conversations before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plaudit.batches.render import ChatTemplate
from plaudit.batches.script import Ending, Manner, special_after
from plaudit.batches.tokenizer import TokenizerInfo
from plaudit.errors import UserError
from plaudit.records.messages import Message, assistant_says, user_says

GETS_BOS = (
    "the tokenizer begins plain text with {bos!r} but the template does not: "
    "it was put in front of the template, which is saved with the model"
)
"""Said when the template got its BOS from plaudit."""
ENDLESS = (
    "the template writes nothing after a last answer; {end!r} is added, so that the model learns to stop"
)
"""Said when the template has no end for a last answer."""
UNDECLARED = (
    "answers end in {end!r}, which is not among the model's stop tokens ({stops}): save the model with it, "
    "or it will not stop there"
)
"""Said when sampling would run past the end that is trained."""
MARKERS = "the template's generation markers leave out {missing!r}, which is trained nevertheless"
"""Said when the template's own markers would train too little."""

_ASKED = user_says("plauditAsks")
_ANSWER = "plauditAnswers"


def manner_of(
    info: TokenizerInfo, source: str, variables: Mapping[str, object]
) -> tuple[Manner, tuple[str, ...]]:
    """How the model's conversations are written, and what is worth knowing about it."""
    template = ChatTemplate(source=source, variables={**info.tokenizer.special_tokens_map, **variables})
    notes: list[str] = []
    bos = info.tokenizer.bos_token
    if info.adds_bos and not template.render(_ASKED, ask=True).startswith(str(bos)):
        template = replace(template, source="{{- bos_token }}" + source)
        notes.append(GETS_BOS.format(bos=bos))
    ending = _ending(info, template)
    if not ending.by_template:
        notes.append(ENDLESS.format(end=ending.text))
    names = tuple(str(info.tokenizer.convert_ids_to_tokens(stop)) for stop in info.stops)
    if ending.id not in info.stops:
        notes.append(UNDECLARED.format(end=ending.text, stops=", ".join(names) or "none"))
    manner = Manner(template=template, ending=ending, stops=names, specials=info.specials)
    return manner, (*notes, *_marker_note(manner))


def _ending(info: TokenizerInfo, template: ChatTemplate) -> Ending:
    """The token after a last answer; else the stop token after an earlier one; else the tokenizer's EOS."""
    closing = special_after(_after(template, ()), info.specials)
    if closing is not None:
        return Ending(id=info.id_of(closing), text=closing, by_template=True)
    earlier = special_after(_after(template, _ASKED), info.specials)
    if earlier is not None and info.id_of(earlier) in info.stops:
        return Ending(id=info.id_of(earlier), text=earlier, by_template=False)
    if not info.stops:
        raise UserError(
            "neither the chat template nor the tokenizer has a token that ends an answer, so the model "
            "could never stop; set eos_token in tokenizer_config.json, or use a template that ends answers"
        )
    stop = info.stops[0] if info.eos is None else info.eos
    return Ending(id=stop, text=str(info.tokenizer.convert_ids_to_tokens(stop)), by_template=False)


def _after(template: ChatTemplate, more: tuple[Message, ...]) -> str:
    text = template.render((*_ASKED, *assistant_says(_ANSWER), *more), ask=False)
    if text.count(_ANSWER) != 1:
        raise UserError(
            "the chat template does not write an assistant's words exactly once; give another template"
        )
    return text.partition(_ANSWER)[2]


def _marker_note(manner: Manner) -> tuple[str, ...]:
    """What the template's own generation markers miss of an answer and its end."""
    if "endgeneration" not in manner.template.source:
        return ()
    messages = (*_ASKED, *assistant_says(_ANSWER))
    full = manner.template.render(messages, ask=False)
    theirs = "".join(full[start:end] for start, end in manner.template.marked_spans(messages))
    wanted = (_ANSWER, manner.ending.text) if manner.ending.by_template else (_ANSWER,)
    missing = "".join(text for text in wanted if text not in theirs).replace(_ANSWER, "the answer")
    return (MARKERS.format(missing=missing),) if missing else ()
