"""A conversation through its chat template to text in pieces, and on to tokens in pieces.

What a template does is found out by rendering two tiny conversations before any row is read. The pieces of a
conversation are the prompt as it is asked, then who said what. Where an answer lies is found by rendering the
conversation twice, once with a word in the answer's place that occurs nowhere else: what stands before and
after that word is the template's doing, whatever it trims, adds or moves.

Tokenising a whole conversation may glue the prompt's last character to the answer's first. The model that
answers never sees that: it gets the prompt's tokens and goes on. So the prompt is always tokenised as it will
be asked, a true prefix, and the answer continues it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from plaudit.data.records import (
    TOOLS_ROLE,
    Message,
    ToolCall,
    assistant_turn,
    plain_text,
    split_tools,
    tool_schemas,
    user_turn,
)
from plaudit.errors import UserError
from plaudit.tokens.rendering import (
    PLACEHOLDER,
    ChatTemplate,
    map_texts,
    turn_text,
    unused_word,
    with_marked_calls,
)
from plaudit.tokens.tokenizer import TextPiece, TokenizerInfo, without_control

Turns = Literal["all", "last"]
"""Which answers of a longer conversation are trained."""

REORDERED_TURN = "the template moves a turn to another place (as it does when the model is asked)"
TRAILING_TURNS = "turns after the last answer were left out"
UNENDED_ANSWER = "an earlier answer has no token that ends it: its words are trained, its end is not"
DOUBLE_END = "an answer carried its own end-of-turn token; the template's is the only one kept"
CONTROL_TOKEN_TEXT = "an answer or a raw text holds a control token, which the model reads as that token"
"""Said of a row with control tokens that stay what they are."""
CONTROL_TOKEN_CUT = "a turn holds the text of a control token, which the model is shown as letters"

_LAST_ANSWER_ADVICE = "train only the last answer (turns='last'), or make one row of every answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    id: int
    text: str
    by_template: bool
    """Whether the template writes it behind a last answer; if not, it is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """How a model's conversations are written: its template, its end of turn, its other control tokens."""

    template: ChatTemplate
    ending: Ending
    stops: tuple[str, ...]
    specials: tuple[str, ...]
    control: tuple[str, ...] = ()
    """Those of them that are read as one token wherever they stand."""
    turn_tokens: tuple[str, ...] = ()
    """Those of these that begin and end turns: an answer's words never do."""

    def in_letters(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The turns with letters where they hold the text of a control token.
        An answer keeps those of its own (a mark of thinking, a call), for a model writes them itself."""
        return tuple(
            _turn_in_letters(message, self.turn_tokens if message.role == "assistant" else self.control)
            for message in messages
        )


def _turn_in_letters(message: Message, tokens: Sequence[str]) -> Message:
    def letters(text: str) -> str:
        return without_control(text, tokens)

    words = turn_text(message)
    return replace(
        message,
        content=map_texts(words, letters) if message.role == TOOLS_ROLE else letters(words),
        tool_calls=tuple(
            ToolCall(
                name=letters(call.name),
                arguments=map_texts(call.arguments, letters),
                id=None if call.id is None else letters(call.id),
            )
            for call in message.tool_calls
        ),
        tool_call_id=None if message.tool_call_id is None else letters(message.tool_call_id),
        name=None if message.name is None else letters(message.name),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedConversation:
    prompt: str
    pieces: tuple[TextPiece, ...]
    """The text after the prompt; the first and the last piece are trained."""
    chat: bool = False
    """Whether this is a conversation; plain text otherwise."""
    end: str | None = None
    """The token that the last piece ends with; None when none is written."""
    notes: tuple[str, ...] = ()
    """What had to be decided for this row, as notes that are counted."""


def parse_turns(name: str) -> Turns:
    match name:
        case "all" | "last":
            return name
        case _:
            raise UserError(f"turns is {name!r}; it is 'all' (every answer of a conversation) or 'last'")


def control_token_after(text: str, specials: Sequence[str]) -> str | None:
    """The control token that the text begins with, blanks aside.

    >>> control_token_after("\\n</s>[INST]", ("</s>",))
    '</s>'
    """
    return next((token for token in specials if text.lstrip().startswith(token)), None)


def render_conversation(
    chat_format: ChatFormat, prompt: Sequence[Message], completion: Sequence[Message], turns: Turns
) -> RenderedConversation:
    """The conversation as text, cut right behind the last answer's end-of-turn token."""
    messages, notes = _prepare_turns(chat_format, prompt, completion)
    # Only the row's completion is trained; earlier answers of the assistant are part of its prompt.
    turns_of_row = enumerate(messages[len(prompt) :], start=len(prompt))
    answers = [i for i, turn in turns_of_row if turn.role == "assistant" and turn.trained]
    answers = answers[-1:] if turns == "last" else answers
    if not check_turns(chat_format.template, messages):
        notes.append(REORDERED_TURN)
    prompt_text = chat_format.template.render(messages[: answers[0]], ask=True)
    full = chat_format.template.render(messages, ask=False)
    # Templates of reasoning models ask with an opened "<think>", which an answered conversation writes.
    if len(answers) == 1 and not full.startswith(prompt_text):
        full = _text_with_opened_answer(chat_format, messages, prompt_text)
    pieces: list[TextPiece] = []
    position, token = len(prompt_text), None
    for i in answers:
        start, end, token = _answer_span(chat_format, messages, i, full)
        # What lies between two answers (a user's turn, headers) is context: seen, and not trained.
        if start > position:
            pieces.append(TextPiece(text=full[position:start], trained=False))
        pieces.append(TextPiece(text=full[start:end], trained=True))
        position = end
        if token is None and i != answers[-1]:
            notes.append(UNENDED_ANSWER)
    return RenderedConversation(
        prompt=prompt_text, pieces=tuple(pieces), chat=True, end=token, notes=tuple(dict.fromkeys(notes))
    )


def without_end(words: str, tokens: Sequence[str]) -> str:
    """The words without any end-of-turn token that the row itself brought along.

    >>> without_end("Paris.</s>\\n", ("</s>",))
    'Paris.'
    """
    # Again and again: a row may have been closed twice, by its maker and by an export.
    token = next((token for token in tokens if token and words.rstrip().endswith(token)), None)
    return words if token is None else without_end(words.rstrip().removesuffix(token), tokens)


def _prepare_turns(
    chat_format: ChatFormat, prompt: Sequence[Message], completion: Sequence[Message]
) -> tuple[tuple[Message, ...], list[str]]:
    """All turns up to the last answer, as plain text, no answer with an end-of-turn token of its own."""
    roles = [message.role for message in completion]
    if not roles or roles[0] != "assistant":
        first_role = repr(roles[0]) if roles else "no turn"
        raise UserError(
            f"an answer begins with {first_role}, not with a turn of the assistant; move it to the prompt"
        )
    # Nothing after the last answer can be trained, and the model would never see it before it answers.
    answers = [i for i, message in enumerate(completion) if message.role == "assistant" and message.trained]
    if not answers:
        raise UserError("every answer has the weight 0, so nothing of the row would be trained; leave it out")
    last = answers[-1]
    notes = [TRAILING_TURNS] if last + 1 < len(roles) else []
    turns = (*prompt, *completion[: last + 1])
    messages = [replace(message, content=turn_text(message)) for message in turns]
    for i in range(len(prompt), len(messages)):
        if messages[i].role == "assistant":
            text = without_end(turn_text(messages[i]), (chat_format.ending.text, *chat_format.stops))
            if text != messages[i].content:
                messages[i] = replace(messages[i], content=text)
                notes.append(DOUBLE_END)
    in_letters = chat_format.in_letters(messages)
    if any(plain != message for plain, message in zip(in_letters, messages, strict=True)):
        notes.append(CONTROL_TOKEN_CUT)
    if any(token in plain_text((message,)) for message in in_letters for token in chat_format.control):
        notes.append(CONTROL_TOKEN_TEXT)
    return in_letters, notes


def _answer_span(
    chat_format: ChatFormat, messages: Sequence[Message], i: int, full: str
) -> tuple[int, int, str | None]:
    """Where answer ``i`` begins and ends in the whole text, and the token that ends it."""
    prompt_text = chat_format.template.render(messages[:i], ask=True)
    if not full.startswith(prompt_text):
        raise UserError(
            f"the chat template rewrites {_name_of_turn(messages, i)} or what stands before it once the "
            "conversation goes on, so the model would be trained on a prompt that it never sees; "
            f"{_LAST_ANSWER_ADVICE}"
        )
    # By a placeholder: searching for the answer's words would miss what the template trims or escapes.
    if messages[i].tool_calls:
        before, (after, token) = prompt_text, _text_after_calls(chat_format, messages, i)
    else:
        before, after = _text_around(chat_format, messages, i)
        # Longest first (as `specials` are): a token that begins like another must not be taken for it.
        token = control_token_after(after, chat_format.specials)
    if not full.endswith(after):
        raise UserError(
            f"the chat template writes what follows {_name_of_turn(messages, i)} differently for different "
            "answers"
        )
    content_end = len(full) - len(after)
    answer_start = len(before) if prompt_text.startswith(before) else len(prompt_text)
    _refuse_other_words(messages, i, full[answer_start:content_end])
    # Behind an earlier answer a control token may also be a header, or a mark that only history has.
    ends = (chat_format.ending.text, *chat_format.stops)
    if token is None or not (token in ends or i == len(messages) - 1):
        return len(prompt_text), content_end, None
    # From the prompt's end, not from the words: blanks that the template puts between are the model's.
    return len(prompt_text), full.index(token, content_end) + len(token), token


def _refuse_other_words(messages: Sequence[Message], i: int, text: str) -> None:
    # Blanks aside, since most templates strip a turn.
    written = without_whitespace(text)
    missing = [texts[0] for texts in _texts_of_answer(messages[i]) if not any(t in written for t in texts)]
    if missing:
        # From a little before where the two part, blanks aside.
        words = missing[0]
        first = max(0, next(n for n in range(len(words)) if not written.startswith(words[: n + 1])) - 8)
        raise UserError(
            f"the chat template leaves out a part of the answer in {_name_of_turn(messages, i)} (often the "
            "thinking of an earlier turn, or words beside a call), or rewrites it (replace), so it would not "
            f"be trained: {words[first : first + 40]!r} became {written[first : first + 40]!r}; "
            f"{_LAST_ANSWER_ADVICE}"
        )


def _texts_of_answer(answer: Message) -> Iterator[tuple[str, ...]]:
    """What must be written of an answer, each in the spellings that it may have, without blanks."""
    yield from ((without_whitespace(text),) for text in (turn_text(answer), answer.reasoning or ""))
    for call in answer.tool_calls:
        for text in (call.name, *_texts_within(json.loads(call.arguments))):
            escaped = (json.dumps(text, ensure_ascii=False), json.dumps(text), repr(text))
            yield tuple(map(without_whitespace, (text, *(spelling[1:-1] for spelling in escaped))))


def _texts_within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts_within(item)


def _text_after_calls(chat_format: ChatFormat, messages: Sequence[Message], i: int) -> tuple[str, str | None]:
    """What stands behind a turn of calls, from the token on that ends it, and that token."""
    mark = unused_word(plain_text(tuple(messages)))
    words = mark if turn_text(messages[i]) else ""
    marked = [*messages[:i], with_marked_calls(messages[i], words, mark), *messages[i + 1 :]]
    text = chat_format.template.render(marked, ask=False)
    # The next turn has another mark: an end behind that one would be its own.
    parted = [with_marked_calls(turn, f"{mark}Y", f"{mark}Y") for turn in messages[i + 1 : i + 2]]
    own = chat_format.template.render([*marked[: i + 1], *parted, *marked[i + 2 :]], ask=False)
    own = own.partition(f"{mark}Y")[0]
    start = own.rindex(mark) + len(mark)
    ends = (chat_format.ending.text, *chat_format.stops)
    places = {end: own.index(end, start) for end in ends if end in own[start:]}
    if places:
        token = min(places, key=lambda end: (places[end], -len(end)))
        return text[places[token] :], token
    if i + 1 < len(messages):
        raise UserError(
            f"the chat template writes no token that ends the calls of {_name_of_turn(messages, i)}, so the "
            f"model would not learn to wait for their results; {_LAST_ANSWER_ADVICE}"
        )
    last = next((token for token in chat_format.specials if text.rstrip().endswith(token)), None)
    return text[len(text.rstrip()) - len(last or "") :], last


def _name_of_turn(messages: Sequence[Message], i: int) -> str:
    """Which turn it is to those who count, to whom tools are none."""
    return f"turn {i + 1 - len(split_tools(messages)[0])}"


def _text_with_opened_answer(chat_format: ChatFormat, messages: Sequence[Message], prompt_text: str) -> str:
    """The text of an answer whose prompt already opens it, such as prompts that end in ``<think>``."""
    before, after = _text_around(chat_format, messages, len(messages) - 1)
    opening = prompt_text.removeprefix(before)
    words = turn_text(messages[-1]).lstrip()
    if not opening.strip() or not prompt_text.startswith(before):
        raise UserError(
            "the chat template asks in one way and writes the answered conversation in another (the text "
            f"that asks ends in {prompt_text[-40:]!r}), so no prompt is right for both; give a template "
            "whose question is the beginning of its answer"
        )
    if not words.startswith(opening.strip()):
        raise UserError(
            f"the chat template's question ends in {opening!r}, but the answer does not begin with "
            f"{opening.strip()!r}: the model would learn to answer where it should think; give answers with "
            "their thinking, or a template that does not open it"
        )
    if words.startswith(opening):
        return prompt_text + words.removeprefix(opening) + after
    return prompt_text + words.removeprefix(opening.strip()).lstrip() + after


def _text_around(chat_format: ChatFormat, messages: Sequence[Message], i: int) -> tuple[str, str]:
    mark = unused_word("".join(turn_text(message) for message in messages))
    marked = [*messages[:i], replace(messages[i], content=mark), *messages[i + 1 :]]
    before, separator, after = chat_format.template.render(marked, ask=False).partition(mark)
    if not separator or mark in after:
        turn = _name_of_turn(messages, i)
        raise UserError(f"the chat template does not write the words of {turn} exactly once")
    return before, after


def without_whitespace(text: str) -> str:
    return "".join(text.split())


BOS_ADDED = (
    "the tokenizer begins plain text with {bos!r} but the template does not: "
    "it was put in front of the template, which is saved with the model"
)
"""The note where plaudit put a BOS in front of the template."""
NO_FINAL_END = (
    "the template writes nothing after a last answer; {end!r} is added, so that the model learns to stop"
)
UNDECLARED_STOP = (
    "answers end in {end!r}, which is not among the model's stop tokens ({stops}): save the model with it, "
    "or it will not stop there"
)
INCOMPLETE_MARKERS = "the template's generation markers leave out {missing!r}, which is trained nevertheless"

_TRIAL_PROMPT = user_turn("plauditAsks")
_TRIAL_ANSWER = "plauditAnswers"


def chat_format_of(
    info: TokenizerInfo, source: str, variables: Mapping[str, object], picture: str | None = None
) -> tuple[ChatFormat, tuple[str, ...]]:
    """How the model's conversations are written, and what is worth knowing about it.
    ``picture`` is what a template writes for one, of a model that sees."""
    given = {**info.tokenizer.special_tokens_map, **variables}
    template = ChatTemplate(source=source, variables=given, picture=picture)
    notes: list[str] = []
    bos = info.tokenizer.bos_token
    if info.adds_bos and not template.render(_TRIAL_PROMPT, ask=True).startswith(str(bos)):
        # Trained without the BOS that it was pretrained with, a model's first tokens would all be off.
        template = replace(template, source="{{- bos_token }}" + source)
        notes.append(BOS_ADDED.format(bos=bos))
    ending = _find_ending(info, template)
    if not ending.by_template:
        notes.append(NO_FINAL_END.format(end=ending.text))
    names = tuple(str(info.tokenizer.convert_ids_to_tokens(stop)) for stop in info.stops)
    if ending.id not in info.stops:
        notes.append(UNDECLARED_STOP.format(end=ending.text, stops=", ".join(names) or "none"))
    chat_format = ChatFormat(
        template=template,
        ending=ending,
        stops=names,
        specials=info.specials,
        control=info.control,
        turn_tokens=_turn_tokens(info, template, {ending.text, *names}),
    )
    return chat_format, (*notes, *_marker_note(chat_format))


def _turn_tokens(info: TokenizerInfo, template: ChatTemplate, ends: Set[str]) -> tuple[str, ...]:
    """The control tokens that stand around turns; a mark of thinking behind a header is none of them."""
    question, turn = (template.render(_TRIAL_PROMPT, ask=ask) for ask in (True, False))
    header = question[len(turn) :] if question.startswith(turn) else ""
    first = min(
        (token for token in info.control if token in header),
        key=lambda token: (header.index(token), -len(token)),
        default=None,
    )
    bos = info.tokenizer.bos_token
    return tuple(token for token in info.control if token in turn or token in ends or token in (first, bos))


def _find_ending(info: TokenizerInfo, template: ChatTemplate) -> Ending:
    """The token after a last answer; else the stop token after an earlier one; else the tokenizer's EOS."""
    # The last answer's own end first: some templates close history in another way than the newest turn.
    closing = control_token_after(_text_after_answer(template, ()), info.specials)
    if closing is not None:
        return Ending(id=info.id_of(closing), text=closing, by_template=True)
    earlier = control_token_after(_text_after_answer(template, _TRIAL_PROMPT), info.specials)
    # Behind an earlier answer may also stand the next turn's header: only a stop token is an end.
    if earlier is not None and info.id_of(earlier) in info.stops:
        return Ending(id=info.id_of(earlier), text=earlier, by_template=False)
    if not info.stops:
        raise UserError(
            "neither the chat template nor the tokenizer has a token that ends an answer, so the model "
            "could never stop; set eos_token in tokenizer_config.json, or use a template that ends answers"
        )
    stop = info.stops[0] if info.eos is None else info.eos
    return Ending(id=stop, text=str(info.tokenizer.convert_ids_to_tokens(stop)), by_template=False)


def _text_after_answer(template: ChatTemplate, more: tuple[Message, ...]) -> str:
    text = template.render((*_TRIAL_PROMPT, *assistant_turn(_TRIAL_ANSWER), *more), ask=False)
    if text.count(_TRIAL_ANSWER) != 1:
        raise UserError(
            "the chat template does not write an assistant's words exactly once and as they are, without "
            f"filters such as lower or upper: {_TRIAL_ANSWER!r} became {text[-60:]!r}; give another template"
        )
    return text.partition(_TRIAL_ANSWER)[2]


def _marker_note(chat_format: ChatFormat) -> tuple[str, ...]:
    """What the template's own generation markers miss of an answer and its end."""
    if "endgeneration" not in chat_format.template.source:
        return ()
    messages = (*_TRIAL_PROMPT, *assistant_turn(_TRIAL_ANSWER))
    rendered = chat_format.template.render(messages, ask=False)
    marked = "".join(rendered[start:end] for start, end in chat_format.template.marked_spans(messages))
    ending = chat_format.ending
    expected = (_TRIAL_ANSWER, ending.text) if ending.by_template else (_TRIAL_ANSWER,)
    missing = "".join(text for text in expected if text not in marked).replace(_TRIAL_ANSWER, "the answer")
    return (INCOMPLETE_MARKERS.format(missing=missing),) if missing else ()


def check_turns(template: ChatTemplate, messages: Sequence[Message]) -> bool:
    """Whether every turn of such a conversation is rendered in its place; a lost one is an error.

    A template may move a turn on purpose (some put the system turn before the *last* question);
    then the answer is False. One that drops or repeats a turn would hide words from the model, and so would
    one that drops tools, calls, or words beside calls.
    """
    return _check_shapes(template, tuple(map(_shape_of, messages)))


def _shape_of(message: Message) -> Message:
    if message.role == TOOLS_ROLE:
        return message
    says = not message.tool_calls or turn_text(message)
    return replace(with_marked_calls(message, "says" if says else "", ""), reasoning=None, trained=True)


@lru_cache(maxsize=1024)
def _check_shapes(template: ChatTemplate, shapes: tuple[Message, ...]) -> bool:
    """As `check_turns`, of turns without words of their own: of many rows they are the same."""
    tools, turns = split_tools(shapes)
    # "End" keeps the mark of turn 1 from being found inside that of turn 12.
    marks = [f"{PLACEHOLDER}{i}End" for i in range(len(turns))]
    schemas = [_marked_schema(schema, n) for n, schema in enumerate(tool_schemas(shapes) or ())]
    marked = [
        *(replace(turn, content=json.dumps(schemas)) for turn in tools),
        *(
            with_marked_calls(turn, mark if turn.content else "", f"{PLACEHOLDER}{i}Call")
            for i, (turn, mark) in enumerate(zip(turns, marks, strict=True))
        ),
    ]
    text = template.render(marked, ask=False)
    if not all(schema["function"]["name"] in text for schema in schemas):
        raise UserError(
            "the chat template does not show the tools of a conversation, so the model would never know of "
            "them; give a template that knows tools, or leave the field out (--leave-out tools)"
        )
    roles = ", ".join(turn.role for turn in turns)
    places = [_place_of(turn, i, text, roles) for i, turn in enumerate(marked[len(tools) :])]
    return places == sorted(places)


def _marked_schema(schema: Any, n: int) -> dict[str, Any]:
    return {**schema, "function": {**schema["function"], "name": f"{PLACEHOLDER}{n}Tool"}}


def _place_of(turn: Message, i: int, text: str, roles: str) -> int:
    """Where a turn of marks begins in the text; one that is not there as a whole, and once, is refused."""
    where = f"turn {i + 1}, the {turn.role} turn of a conversation of {roles}"
    calls = [part for call in turn.tool_calls for part in (call.name, *json.loads(call.arguments).values())]
    if any(call not in text for call in calls):
        raise UserError(
            f"the chat template leaves out calls of {where}, so the model would never see them; give a "
            "template that knows tool calls, or write the calls into the content"
        )
    words = turn_text(turn)
    if words not in text and words.lower() in text.lower():
        raise UserError(f"the chat template changes the letters of {where}; {_AS_THEY_ARE}")
    if words not in text:
        addition = " beside its calls" if calls else ""
        raise UserError(
            f"the chat template leaves out {where}{addition}, so the model would never see its words; "
            f"{_advice(turn)}"
        )
    if words and text.count(words) > 1:
        raise UserError(f"the chat template repeats {where}; give a template that renders every turn once")
    return text.index(words or calls[0])


_AS_THEY_ARE = "give a template that writes words as they are, without filters such as lower or upper"


def _advice(turn: Message) -> str:
    if turn.tool_calls:
        return "let such a turn only call, or give a template that writes both"
    if turn.role == "system":
        return "put the system words at the start of the first user turn, or give a template that knows them"
    return f"give a template that knows the role '{turn.role}', or remove such turns"
