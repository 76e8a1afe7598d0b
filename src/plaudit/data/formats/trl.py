"""TRL's layouts, standard (texts) and conversational (messages), and plaudit's own: a ``kind`` and a record.

https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial

from plaudit.data import records
from plaudit.data.columns import with_label
from plaudit.data.fields import BadRowError, Node, is_true, optional_name, optional_number, read_json
from plaudit.data.formats import layout
from plaudit.data.formats.transcripts import parse_transcript
from plaudit.data.turns import (
    read_completion,
    read_messages,
    read_prompt,
    read_text_or_messages,
    require_not_empty,
)

_COMPLETION_FIELDS = frozenset(
    ["messages", "text", "completion", "completions", "response", "responses", "output", "chosen", "rejected"]
)


def read_comparison(
    row: Node, *, prompt: records.Text, chosen: records.Text, rejected: records.Text
) -> records.Comparison:
    """A comparison with whatever the row says about its clarity and its judge; a tie must call itself one."""
    layout.require_different(chosen, rejected, "chosen, rejected")
    strength = optional_number(row, "strength")
    probability_node = row.optional("probability")
    probability = None if probability_node is None else probability_node.number_between(0.0, 1.0)
    if strength == 0 and probability != 0.5:
        expected = "a strength other than 0, or probability 0.5 beside it"
        raise BadRowError("tie as preference", "strength", expected=expected, found="strength 0")
    return records.Comparison(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        strength=strength,
        margin=optional_number(row, "margin"),
        probability=probability,
        both_bad=is_true(row, "both_bad"),
        **layout.annotation_info(row, answers=2),
    )


def _text(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    return (records.Demonstration(prompt="", completion=require_not_empty(row.get("text").text(), "text")),)


def _messages(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    node = row.get("messages")
    prompt, completion = layout.split_prompt(read_messages(node), node.path)
    return (records.Demonstration(prompt=prompt, completion=completion, **layout.annotation_info(row)),)


def _prompt(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    prompt = read_prompt(row.get("prompt"))
    reference_answer = row.optional("answer")
    answer = None if reference_answer is None else _read_reference_answer(reference_answer)
    rest = layout.other_fields(row, "prompt", "answer", layout.TOOLS_FIELD)
    return (records.Prompt(prompt=prompt, answer=answer, metadata=rest),)


def _prompt_completion(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    prompt = read_prompt(row.get("prompt"))
    answer = read_completion(row.get("completion"), prompt)
    return (records.Demonstration(prompt=prompt, completion=answer, **layout.annotation_info(row)),)


def _preference(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    _refuse_tied_scores(row)
    prompt = read_prompt(row.get("prompt"))
    chosen_value = read_text_or_messages(row.get("chosen"))
    # UltraFeedback, binarised, has it so: a prompt in words, and both sides as whole conversations.
    if isinstance(prompt, str) and not isinstance(chosen_value, str):
        return (_repeated_prompt_pair(row, prompt),)
    chosen, rejected = (read_completion(row.get(side), prompt) for side in ("chosen", "rejected"))
    return (read_comparison(row, prompt=prompt, chosen=chosen, rejected=rejected),)


def _preference_implicit(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    _refuse_tied_scores(row)
    sides = [row.get(side) for side in ("chosen", "rejected")]
    read = parse_transcript if all(map(layout.TRANSCRIPT.matches, sides)) else read_text_or_messages
    return (_split_pair(row, *map(read, sides)),)


def _unpaired(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    return tuple(with_label(record, row, "label") for record in _prompt_completion(row, options))


def _split_pair(row: Node, chosen: records.Text, rejected: records.Text) -> records.Comparison:
    layout.require_different(chosen, rejected, "chosen, rejected")
    if isinstance(chosen, str) and isinstance(rejected, str):
        require_not_empty(chosen, "chosen")
        require_not_empty(rejected, "rejected")
        prompt, better, worse = layout.split_shared_text(chosen, rejected)
    elif not isinstance(chosen, str) and not isinstance(rejected, str):
        prompt, better, worse = layout.split_shared_turns(chosen, rejected)
    else:
        raise row.get("rejected").wrong_type_error("what chosen is: a text, or messages")
    better, worse = require_not_empty(better, "chosen"), require_not_empty(worse, "rejected")
    return read_comparison(row, prompt=prompt, chosen=better, rejected=worse)


def _repeated_prompt_pair(row: Node, prompt: str) -> records.Comparison:
    """Rows with a prompt as text and both answers as whole conversations that hold it again."""
    pair = _split_pair(row, *(read_text_or_messages(row.get(side)) for side in ("chosen", "rejected")))
    if prompt.strip() not in records.plain_text(pair.prompt):
        raise row.get("prompt").wrong_type_error("messages, or the text that both conversations begin with")
    return pair


def _refuse_tied_scores(row: Node) -> None:
    """Some exports score both sides; equal scores are a tie, and a tie is not a preference."""
    chosen, rejected = (optional_number(row, f"score_{side}") for side in ("chosen", "rejected"))
    if chosen is None or rejected is None or chosen > rejected:
        return
    raise BadRowError(
        "tie as preference" if chosen == rejected else "wrong value",
        "score_chosen",
        expected=f"more than score_rejected ({rejected:g})",
        found=f"{chosen:g}",
    )


def _read_reference_answer(node: Node) -> str:
    """A reference answer; a number stands for its digits, and a list of one for what it holds."""
    if isinstance(node.value, list) and len(node.value) == 1:
        (node,) = node.items()
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return json.dumps(node.value)
    return node.text()


_ANNOTATION_FIELDS = frozenset(layout.AnnotationInfo.__annotations__)
_STRENGTH_FIELDS = frozenset(
    ["strength", "margin", "probability", "both_bad", "score_chosen", "score_rejected"]
)

_TRL_FORMAT = partial(layout.RowFormat, is_generic=True)

TRL_FORMATS = (
    _TRL_FORMAT(
        name="trl-text",
        title="TRL language modelling, texts",
        schema={"text": layout.TEXT},
        excluded_fields=frozenset(["message_id", "parent_id", "_input_hash", "_task_hash", "instruction"]),
        parse=_text,
        produces="demonstration with an empty prompt",
    ),
    _TRL_FORMAT(
        name="trl-messages",
        title="TRL language modelling, messages",
        schema={"messages": layout.MESSAGES},
        excluded_fields=frozenset(["chosen", "rejected"]),
        optional_fields=_ANNOTATION_FIELDS,
        parse=_messages,
        produces="demonstration; the answer reaches from the first assistant turn to the last",
        takes_label=True,
    ),
    _TRL_FORMAT(
        name="trl-prompt",
        title="TRL prompt-only",
        schema={"prompt": layout.TEXT_OR_MESSAGES},
        excluded_fields=_COMPLETION_FIELDS,
        optional_fields=None,
        parse=_prompt,
        produces="prompt; `answer` is the reference, other fields are metadata",
    ),
    _TRL_FORMAT(
        name="trl-prompt-completion",
        title="TRL prompt-completion",
        schema={"prompt": layout.TEXT_OR_MESSAGES, "completion": layout.TEXT_OR_MESSAGES},
        optional_fields=_ANNOTATION_FIELDS,
        parse=_prompt_completion,
        produces="demonstration",
        takes_label=True,
    ),
    _TRL_FORMAT(
        name="trl-preference",
        title="TRL preference, explicit prompt",
        schema={
            "prompt": layout.TEXT_OR_MESSAGES,
            "chosen": layout.TEXT_OR_MESSAGES,
            "rejected": layout.TEXT_OR_MESSAGES,
        },
        optional_fields=_ANNOTATION_FIELDS | _STRENGTH_FIELDS,
        parse=_preference,
        produces="comparison, with `margin` where the row has it",
    ),
    _TRL_FORMAT(
        name="trl-preference-implicit",
        title="TRL preference, implicit prompt",
        schema={"chosen": layout.TEXT_OR_MESSAGES, "rejected": layout.TEXT_OR_MESSAGES},
        excluded_fields=frozenset(["prompt"]),
        optional_fields=_ANNOTATION_FIELDS | _STRENGTH_FIELDS,
        parse=_preference_implicit,
        produces="comparison; the prompt is what both sides begin with, in whole turns or words",
    ),
    _TRL_FORMAT(
        name="trl-unpaired",
        title="TRL unpaired preference (KTO)",
        schema={
            "prompt": layout.TEXT_OR_MESSAGES,
            "completion": layout.TEXT_OR_MESSAGES,
            "label": layout.VERDICT,
        },
        optional_fields=_ANNOTATION_FIELDS,
        parse=_unpaired,
        produces="rating (a thumb)",
        aliases=("kto", "trl-kto"),
    ),
    _TRL_FORMAT(
        name="trl-stepwise",
        title="TRL stepwise supervision",
        schema={"prompt": layout.TEXT, "completions": layout.TEXTS, "labels": layout.BOOLEANS},
        optional_fields=_ANNOTATION_FIELDS,
        parse=lambda row, options: (_steps(row, "completions", Node.boolean),),
        produces="steps",
        aliases=("stepwise",),
    ),
)


def _demonstration(row: Node) -> records.Demonstration:
    prompt, answer = _document_prompt(row), row.optional("answer")
    return records.Demonstration(
        prompt=prompt,
        completion=read_completion(row.get("completion"), prompt),
        answer=None if answer is None else answer.text(),
        **layout.annotation_info(row),
    )


def _comparison(row: Node) -> records.Comparison:
    prompt = read_prompt(row.get("prompt"))
    chosen, rejected = (read_completion(row.get(side), prompt) for side in ("chosen", "rejected"))
    return read_comparison(row, prompt=prompt, chosen=chosen, rejected=rejected)


def read_numbered_answers(row: Node, field: str = "ranks") -> records.Ranking:
    """The answers and the number of each in a field, as ranks whatever it means."""
    prompt = read_prompt(row.get("prompt"))
    completions = tuple(layout.read_response(item, prompt) for item in row.get("completions").items())
    numbers = tuple(item.number() for item in row.get(field).items())
    if len(completions) < 2:
        raise BadRowError(
            "too few answers", "completions", expected="two answers or more", found=str(len(completions))
        )
    _require_equal_count(completions, numbers, field)
    return records.Ranking(
        prompt=prompt,
        completions=completions,
        ranks=numbers,
        **layout.annotation_info(row, answers=len(completions)),
    )


def _rating(row: Node) -> records.Rating:
    prompt = read_prompt(row.get("prompt"))
    thumb, score = is_true(row, "thumb"), row.get("score").number()
    if thumb and score not in (0, 1):
        raise BadRowError("wrong value", "score", expected="0 or 1 for a thumb", found=f"{score:g}")
    return records.Rating(
        prompt=prompt,
        completion=read_completion(row.get("completion"), prompt),
        score=score,
        aspect=optional_name(row, "aspect"),
        level=optional_name(row, "level"),
        thumb=thumb,
        **layout.annotation_info(row),
    )


def _steps(row: Node, field: str = "steps", label: Callable[[Node], float] = Node.number) -> records.Steps:
    steps = tuple(str(require_not_empty(item.text(), item.path)) for item in row.get(field).items())
    labels = tuple(float(label(item)) for item in row.get("labels").items())
    if not steps:
        raise BadRowError("too few answers", field, expected="one step or more", found="none")
    _require_equal_count(steps, labels, "labels")
    prompt = read_prompt(row.get("prompt"))
    return records.Steps(prompt=prompt, steps=steps, labels=labels, **layout.annotation_info(row))


def _prompt_record(row: Node) -> records.Prompt:
    prompt = read_prompt(row.get("prompt"))
    reference_answer, metadata = row.optional("answer"), row.optional("metadata")
    answer = None if reference_answer is None else reference_answer.text()
    return records.Prompt(
        prompt=prompt, answer=answer, metadata={} if metadata is None else _metadata(metadata)
    )


_READERS: dict[str, Callable[[Node], records.Record]] = {
    "demonstration": _demonstration,
    "comparison": _comparison,
    "ranking": read_numbered_answers,
    "rating": _rating,
    "steps": _steps,
    "prompt": _prompt_record,
}


def _plaudit_row(row: Node, options: layout.ReadOptions) -> Iterable[records.Record]:
    kind = row.get("kind").text()
    if kind not in _READERS:
        raise row.get("kind").error("wrong value", f"one of {', '.join(records.RECORD_TYPES)}")
    # The row's own origin names the first source, through any number of conversions.
    return (replace(_READERS[kind](row), origin=optional_name(row, "origin") or ""),)


def _document_prompt(row: Node) -> records.Text:
    node = row.optional("prompt")
    if node is None and row.cells and "prompt" in row.fields():
        return ""
    prompt = row.get("prompt") if node is None else node
    return "" if prompt.value == "" else read_prompt(prompt)


def _require_equal_count(answers: tuple[object, ...], labels: tuple[float, ...], field: str) -> None:
    if len(answers) != len(labels):
        raise BadRowError("wrong value", field, expected=f"{len(answers)} numbers", found=str(len(labels)))


def _metadata(node: Node) -> dict[str, object]:
    value = read_json(node, "an object").value
    if not isinstance(value, dict):
        raise node.wrong_type_error("an object")
    return {str(name): item for name, item in value.items()}


KIND = layout.FieldType(
    name=f"one of {', '.join(records.RECORD_TYPES)}",
    matches=lambda node: node.value in [*records.RECORD_TYPES],
)

_RECORD_FIELDS = frozenset(part.name for record in records.RECORD_TYPES.values() for part in fields(record))

PLAUDIT_FORMATS = (
    layout.RowFormat(
        name="plaudit",
        title="plaudit's own layout",
        schema={"kind": KIND},
        optional_fields=_RECORD_FIELDS,
        parse=_plaudit_row,
        produces="any record; round trips are exact",
        is_decisive=True,
    ),
)
