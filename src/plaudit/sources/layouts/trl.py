"""TRL's layouts, standard (texts) and conversational (messages).

https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

import json

from plaudit.records.feedback import Comparison, Demonstration, Prompt, Rating, Record, Steps
from plaudit.records.messages import Text, words
from plaudit.sources.conversation import (
    answer,
    differ,
    messages,
    not_empty,
    question,
    said,
    shared_text,
    shared_turns,
    split_prompt,
)
from plaudit.sources.layouts.layout import (
    MESSAGES,
    SAID,
    TEXT,
    TEXTS,
    TRUTH,
    TRUTHS,
    Layout,
    ReadOptions,
)
from plaudit.sources.node import About, Node, about, optional_number
from plaudit.sources.problems import BadRowError, shown

_ANSWERS = frozenset(
    ["messages", "text", "completion", "completions", "response", "responses", "output", "chosen", "rejected"]
)


def comparison(row: Node, origin: str, *, prompt: Text, chosen: Text, rejected: Text) -> Comparison:
    """A comparison with whatever the row says about its clarity and its judge; a tie must call itself one."""
    differ(chosen, rejected, "chosen, rejected")
    strength = optional_number(row, "strength")
    chance = row.maybe("probability")
    probability = None if chance is None else chance.number_between(0.0, 1.0)
    if strength == 0 and probability != 0.5:
        raise BadRowError(
            "tie as preference",
            "strength",
            expected="a strength other than 0, or probability 0.5 beside it",
            found="strength 0",
        )
    return Comparison(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        strength=strength,
        margin=optional_number(row, "margin"),
        probability=probability,
        origin=origin,
        **about(row),
    )


def _text(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    completion = not_empty(row.get("text").text(), "text")
    return (Demonstration(prompt="", completion=completion, origin=origin),)


def _messages(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    prompt, completion = split_prompt(messages(row.get("messages")), "messages")
    return (Demonstration(prompt=prompt, completion=completion, origin=origin, **about(row)),)


def _prompt(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    prompt = question(row.get("prompt"))
    if not words(prompt).strip():
        raise BadRowError("empty side", "prompt", expected="a prompt", found=shown(row.get("prompt").value))
    reference = row.maybe("answer")
    rest = {name: row.get(name).value for name in row.fields() if row.maybe(name) is not None}
    return (
        Prompt(
            prompt=prompt,
            answer=None if reference is None else _reference(reference),
            metadata={name: value for name, value in rest.items() if name not in ("prompt", "answer")},
            origin=origin,
        ),
    )


def _prompt_completion(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    prompt = _prompt_or_nothing(row)
    return (
        Demonstration(
            prompt=prompt,
            completion=answer(row.get("completion"), prompt),
            origin=origin,
            **about(row),
        ),
    )


def _preference(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    _check_scores(row)
    prompt = _prompt_or_nothing(row)
    whole = said(row.get("chosen"))
    if isinstance(prompt, str) and not isinstance(whole, str):
        return (_prompt_said_twice(row, origin, prompt),)
    chosen, rejected = (answer(row.get(side), prompt) for side in ("chosen", "rejected"))
    return (comparison(row, origin, prompt=prompt, chosen=chosen, rejected=rejected),)


def _preference_implicit(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    _check_scores(row)
    chosen, rejected = said(row.get("chosen")), said(row.get("rejected"))
    return (_split_pair(row, origin, chosen, rejected),)


def _unpaired(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    _refuse_tools(row)
    prompt = _prompt_or_nothing(row)
    return (
        Rating(
            prompt=prompt,
            completion=answer(row.get("completion"), prompt),
            score=float(row.get("label").truth()),
            thumb=True,
            origin=origin,
            **about(row),
        ),
    )


def _stepwise(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    steps = tuple(str(not_empty(item.text(), item.path)) for item in row.get("completions").items())
    labels = tuple(float(item.truth()) for item in row.get("labels").items())
    if len(steps) != len(labels):
        raise BadRowError(
            "wrong value", "labels", expected=f"{len(steps)} labels, one a step", found=f"{len(labels)}"
        )
    prompt = row.get("prompt").text()
    return (Steps(prompt=prompt, steps=steps, labels=labels, origin=origin, **about(row)),)


def _split_pair(row: Node, origin: str, chosen: Text, rejected: Text) -> Comparison:
    """Two whole texts or conversations as one comparison."""
    differ(chosen, rejected, "chosen, rejected")
    if isinstance(chosen, str) and isinstance(rejected, str):
        not_empty(chosen, "chosen")
        not_empty(rejected, "rejected")
        prompt, better, worse = shared_text(chosen, rejected)
    elif not isinstance(chosen, str) and not isinstance(rejected, str):
        prompt, better, worse = shared_turns(chosen, rejected)
    else:
        raise row.get("rejected").wrong("what chosen is: a text, or messages")
    better, worse = not_empty(better, "chosen"), not_empty(worse, "rejected")
    return comparison(row, origin, prompt=prompt, chosen=better, rejected=worse)


def _prompt_said_twice(row: Node, origin: str, prompt: str) -> Comparison:
    """Rows with a prompt as text and both answers as whole conversations that hold it again."""
    pair = _split_pair(row, origin, said(row.get("chosen")), said(row.get("rejected")))
    if prompt.strip() not in words(pair.prompt):
        raise row.get("prompt").wrong("messages, or the text that both conversations begin with")
    return pair


def _prompt_or_nothing(row: Node) -> Text:
    """The prompt; in CSV an empty cell is the empty prompt."""
    if row.cells and "prompt" in row.fields() and row.maybe("prompt") is None:
        return ""
    return question(row.get("prompt"))


def _check_scores(row: Node) -> None:
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


def _refuse_tools(row: Node) -> None:
    tools = row.maybe("tools")
    if tools is None or tools.value in ([], "", "[]"):
        return
    raise BadRowError(
        "unsupported",
        "tools",
        expected="no tool schemas, which are not put into the template yet (write them into the system turn)",
        found=shown(tools.value),
    )


def _reference(node: Node) -> str:
    """A reference answer; a number stands for its digits."""
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return json.dumps(node.value)
    return node.text()


_ABOUT = frozenset(About.__annotations__)
_TOOLS = frozenset(["tools"])
_CLARITY = frozenset(["strength", "margin", "probability", "score_chosen", "score_rejected"])

TRL_LAYOUTS = (
    Layout(
        name="trl-text",
        title="TRL language modelling, texts",
        schema={"text": TEXT},
        without=frozenset(["message_id", "parent_id"]),
        also=_TOOLS,
        parse=_text,
        gives="demonstration with an empty prompt",
    ),
    Layout(
        name="trl-messages",
        title="TRL language modelling, messages",
        schema={"messages": MESSAGES},
        without=frozenset(["chosen", "rejected"]),
        also=_ABOUT | _TOOLS,
        parse=_messages,
        gives="demonstration; the answer reaches from the first assistant turn to the last",
    ),
    Layout(
        name="trl-prompt",
        title="TRL prompt-only",
        schema={"prompt": SAID},
        without=_ANSWERS,
        also=None,
        parse=_prompt,
        gives="prompt; `answer` is the reference, other fields are metadata",
    ),
    Layout(
        name="trl-prompt-completion",
        title="TRL prompt-completion",
        schema={"prompt": SAID, "completion": SAID},
        also=_ABOUT | _TOOLS,
        parse=_prompt_completion,
        gives="demonstration",
    ),
    Layout(
        name="trl-preference",
        title="TRL preference, explicit prompt",
        schema={"prompt": SAID, "chosen": SAID, "rejected": SAID},
        also=_ABOUT | _CLARITY | _TOOLS,
        parse=_preference,
        gives="comparison, with `margin` where the row has it",
    ),
    Layout(
        name="trl-preference-implicit",
        title="TRL preference, implicit prompt",
        schema={"chosen": SAID, "rejected": SAID},
        without=frozenset(["prompt"]),
        also=_ABOUT | _CLARITY | _TOOLS,
        parse=_preference_implicit,
        gives="comparison; the prompt is what both sides begin with, in whole turns or words",
    ),
    Layout(
        name="trl-unpaired",
        title="TRL unpaired preference (KTO)",
        schema={"prompt": SAID, "completion": SAID, "label": TRUTH},
        also=_ABOUT | _TOOLS,
        parse=_unpaired,
        gives="rating (a thumb)",
        aliases=("kto", "trl-kto"),
    ),
    Layout(
        name="trl-stepwise",
        title="TRL stepwise supervision",
        schema={"prompt": TEXT, "completions": TEXTS, "labels": TRUTHS},
        also=_ABOUT,
        parse=_stepwise,
        gives="steps",
        aliases=("stepwise",),
    ),
)
"""All of TRL's."""
