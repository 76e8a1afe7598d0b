"""What people gave, as plain records: demonstrations, comparisons, rankings, ratings, steps, bare prompts.

Every record is one prompt and its completions, each a string or a conversation of messages. ``origin`` says
where the row came from (``pairs.jsonl:12``), so that any later complaint can name it. `record_to_dict` gives
the plain objects, ready for JSON, that plaudit's own files hold. The tools that a prompt offers are its first
turn, so they go wherever it goes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal, cast, get_args

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a message that is more than a string.

    Example: ``Part(kind="text", text="What is in this picture?")``
    """

    kind: Literal["text", "image"]
    """What the piece is."""
    text: str | None = None
    """The words, when ``kind`` is text; of a picture that is shown to a model, what it is among tokens."""
    source: str | None = None
    """The picture, when ``kind`` is image: a path, or a data URL."""
    alt: str | None = None
    """What it shows, for whoever does not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    name: str
    arguments: str
    """What it is called with: an object, as JSON."""
    id: str | None = None
    """What its result names it by, where the row has that."""


Safety = Literal["both-safe", "one-safe", "both-unsafe", "thumbs"]
"""What of flagged rows is wanted: pairs of which both answers, one or none was not reported (SafeRLHF, Dai et
al. 2023, arXiv:2310.12773), or in place of each row a thumb on how harmless every answer is."""
PICTURE = "\ufdd3"
"""What stands in the words of a turn for a picture while it becomes tokens; no text may hold it."""
UNSAFE = ("harmful", "unsafe")
"""The flags that make an answer unsafe, where nobody says which."""
TOOLS_ROLE = "tools"
"""The role of the turn, before all others, that holds the schemas of the tools as the JSON of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation.

    Example: ``Message(role="user", content="Name three fruits.")``
    """

    role: str
    """Who speaks: system, user, assistant or tool; nobody does in the turn of `TOOLS_ROLE`."""
    content: str | tuple[Part, ...]
    """The words, or the pieces."""
    reasoning: str | None = None
    """The thinking before the words, where the row keeps it apart (``reasoning_content``)."""
    trained: bool = True
    """False for a turn of the assistant that is context only (``weight: 0``)."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant calls, after its words where there are any."""
    tool_call_id: str | None = None
    """Of a tool's turn, the call that it answers."""
    name: str | None = None
    """Of a tool's turn, the function that it is the result of."""
    facts: str | None = None
    """Of a question, what is known beside it (a caption, the choices): for rewards alone."""


Text = str | tuple[Message, ...]
"""A plain string, or a conversation; the two sides of one record are of the same kind."""


def plain_text(text: Text) -> str:
    """The words of a text without its roles: for lengths, emptiness, comparison and display.

    Calls and the schemas of tools are shown too.

    >>> plain_text((Message(role="user", content="Hi"), Message(role="assistant", content="Hello")))
    'Hi\\nHello'
    >>> plain_text((Message(role="assistant", content="", tool_calls=(ToolCall(name="f", arguments="{}"),)),))
    'f({})'
    """
    if isinstance(text, str):
        return text
    return "\n".join(_message_text(message) for message in text)


def _message_text(message: Message) -> str:
    words = words_of(message)
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join([*([words] if words or not calls else []), *calls])


def words_of(message: Message) -> str:
    """What a turn says, without its calls."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text or "" for part in message.content if part.kind == "text")


def split_tools(turns: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    n = sum(turn.role == TOOLS_ROLE for turn in turns[:1])
    return tuple(turns[:n]), tuple(turns[n:])


def tool_schemas(turns: Sequence[Message]) -> list[object] | None:
    """The schemas of the tools that a conversation offers, as objects; None where it offers none."""
    return next((json.loads(words_of(turn)) for turn in split_tools(turns)[0]), None)


def with_opening(opening: Sequence[Message], turns: Sequence[Message]) -> tuple[Message, ...]:
    """The turns with others before them, but behind the tools."""
    tools, rest = split_tools(turns)
    return (*tools, *opening, *rest)


def pictures(text: Text) -> tuple[str, ...]:
    """Where the pictures of a text are, in order: the part of its content that `plain_text` leaves out.

    >>> pictures((Message(role="user", content=(Part(kind="image", source="owl.png"),)),))
    ('owl.png',)
    """
    return tuple(part.source or "" for part in picture_parts(text))


def picture_parts(text: Text) -> Iterator[Part]:
    """The pictures of a text, in order."""
    for message in () if isinstance(text, str) else text:
        if not isinstance(message.content, str):
            yield from (part for part in message.content if part.kind == "image")


def parts_of(turn: Message) -> tuple[Part, ...]:
    return (Part(kind="text", text=turn.content),) if isinstance(turn.content, str) else turn.content


def with_facts(turn: Message) -> Message:
    """The turn as a reward with facts reads it: before its words (Sun et al. 2023, arXiv:2309.14525)."""
    whole = (Part(kind="text", text=f"Facts: {turn.facts}\n\n"), *parts_of(turn))
    return turn if turn.facts is None else replace(turn, content=whole, facts=None)


def user_turn(content: str) -> tuple[Message, ...]:
    return (Message(role="user", content=content),)


def turns_of(text: Text) -> tuple[Message, ...]:
    """A prompt as turns: a plain string is what a user says."""
    return user_turn(text) if isinstance(text, str) else text


def assistant_turn(content: str) -> tuple[Message, ...]:
    return (Message(role="assistant", content=content),)


def answer_to(prompt: Text, words: str) -> Text:
    """Words as an answer to a prompt: a string to a string, a turn to a conversation."""
    return words if isinstance(prompt, str) else assistant_turn(words)


RANDOM = "random"
"""The method of what was drawn at random; any other one is the name of a score."""
STORE_FILE = "labels.db"
"""What a label store is called where nobody named one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Whose a fact is, how it was given, and where it stands: what all records have but prompts, behind their
    own fields. What is of answers is of the record's own, in their order (of a pair: chosen, rejected).
    """

    annotator: str | None = None
    """Who wrote or judged it, as a pseudonym."""
    group: str | None = None
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    reason: str | None = None
    """Why, in the annotator's own words."""
    seconds: float | None = None
    guidelines: str | None = None
    """The version of the guidelines, or of a judge's wording, that it was given under."""
    method: str | None = None
    """How its task was chosen: random, or by which score; None: all were taken."""
    propensity: float | None = None
    """With which chance its task was drawn."""
    places: tuple[int, ...] = ()
    """Where each answer stood among those that were shown, the first at 0."""
    flags: tuple[tuple[str, ...], ...] = ()
    """What each answer was reported for; empty where nobody was asked."""
    aspects: Mapping[str, tuple[float | None, ...]] | None = field(default=None, hash=False)
    """The points of each answer by aspect, beside the verdict."""
    origin: str = ""
    """File and row."""

    @property
    def provenance(self) -> dict[str, Any]:
        """What is of no single answer, by name, for another record of the same fact."""
        of_answers = ("places", "flags", "aspects")
        names = (part.name for part in fields(Provenance) if part.name not in of_answers)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration(Provenance):
    """An answer to learn from.

    Example: ``Demonstration(prompt="2 + 2 =", completion=" 4")``
    """

    prompt: Text
    """What was asked; an empty string for plain text without a question."""
    completion: Text
    """What was answered: a string, or turns that begin with the assistant's."""
    answer: str | None = None
    """The result alone, where the row names it (GSM8K): the reference of a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Provenance):
    """Of two answers, the one that was preferred.

    Example: ``Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.", strength=3)``
    """

    prompt: Text
    """What both answers reply to."""
    chosen: Text
    """The chosen completion."""
    rejected: Text
    """The rejected completion."""
    strength: float | None = None
    """How clear the preference was, on the annotator's own scale; 0 is a tie."""
    margin: float | None = None
    """The reward gap that the loss should ask for (Llama 2)."""
    probability: float | None = None
    """The chance that ``chosen`` is the better one; 0.5 is a tie, None means it was simply chosen."""
    both_bad: bool = False
    """Whether neither is good, whichever is the better one."""


def preference_probability(record: Comparison) -> float:
    """The chance that ``chosen`` is the better answer; ½ is a tie.

    >>> preference_probability(Comparison(prompt="Hi", chosen="Yo", rejected="No", strength=0.0))
    0.5
    """
    if record.probability is not None:
        return float(record.probability)
    return 0.5 if record.strength == 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Provenance):
    """K answers in order.

    Example: ``Ranking(prompt="Name a fruit.", completions=("Pear.", "Fig!", "No."), ranks=(1, 1, 3))``
    """

    prompt: Text
    """What all the answers reply to."""
    completions: tuple[Text, ...]
    """The K answers, K ≥ 2."""
    ranks: tuple[float, ...]
    """The rank of each, 1 is best; equal ranks are ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Provenance):
    """One answer with a score or a thumb.

    Example: a joke with a thumb down has ``score=0.0, thumb=True``.
    """

    prompt: Text
    """The prompt that was answered."""
    completion: Text
    """The completion that is rated."""
    score: float
    """The score, higher is better; a thumb is 1.0 up, 0.0 down."""
    aspect: str | None = None
    """What was rated (helpfulness, correctness …); None is the answer as a whole."""
    level: str | None = None
    """The word that stood at the score, where the scale had words: ``Adequate``."""
    thumb: bool = False
    """True when the score is a thumb (only 0 and 1 occur), not a point on a scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Provenance):
    """A solution in steps, each with its label.

    Example: ``Steps(prompt="Solve 2x = 6.", steps=("Divide by 2.", "x = 4."), labels=(1.0, 0.0))``
    """

    prompt: Text
    """The problem."""
    steps: tuple[str, ...]
    """The steps, in order."""
    labels: tuple[float, ...]
    """One label a step: 1 right, 0 wrong; a neutral step is 0.5 or what the reader was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question without an answer: what a policy is sampled on.

    Example: ``Prompt(prompt="What is 3 + 4?", answer="7", metadata={"category": "arithmetic"})``
    """

    prompt: Text
    """The prompt."""
    answer: str | None = None
    """The reference answer, when there is one."""
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    """Whatever else the row carried."""
    origin: str = ""
    """File and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Answers to one prompt, to be judged together.

    Example: ``Task(prompt="What does the owl eat?", answers=("Mice.", "Bark."), ended=(True, True))``
    """

    prompt: Text
    """The prompt that was answered."""
    answers: tuple[Text, ...]
    """In the order in which they are shown."""
    ended: tuple[bool, ...]
    """Whether each came to an end by itself."""
    category: str | None = None
    """The kind of question, or the subset of a benchmark."""
    reference_answer: str | None = None
    """The reference answer, when there is one."""
    # Left out of the hash: a task stays usable as a key whatever its row carried.
    metadata: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    """Whatever else the prompt's row carried: unit tests, say."""

    def __post_init__(self) -> None:
        if not self.answers:
            raise UserError("a task without answers cannot be judged")
        if len(self.ended) != len(self.answers):
            answers, ended = len(self.answers), len(self.ended)
            raise UserError(f"a task of {answers} answers says of {ended} whether they ended")


Record = Demonstration | Comparison | Ranking | Rating | Steps | Prompt
"""Any fact that a row can hold."""

RECORD_TYPES: dict[str, type[Record]] = {kind.__name__.lower(): kind for kind in get_args(Record)}


RECORD_CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*RECORD_TYPES.values(), Message, Part, ToolCall)
}
"""What records are made of, as `plaudit.files.stored` puts them away."""


def chosen_by(record: Record) -> str | None:
    """The score that chose the record's task, so that it speaks for itself alone; None of all others.

    >>> chosen_by(Rating(prompt="Hi", completion="Yo", score=1, method="certain"))
    'certain'
    """
    if isinstance(record, Prompt) or record.propensity is not None or record.method == RANDOM:
        return None
    return record.method


def answers_of(record: Record) -> tuple[Text, ...]:
    """The answers that a record is about, in its order; steps and bare prompts have none."""
    match record:
        case Demonstration() | Rating():
            return (record.completion,)
        case Comparison():
            return (record.chosen, record.rejected)
        case Ranking():
            return record.completions
        case Steps() | Prompt():
            return ()


def record_kind(record: Record) -> str:
    return type(record).__name__.lower()


def record_to_dict(record: Record) -> dict[str, object]:
    """A record as an object that JSON can hold; fields at their default are left out."""
    row: dict[str, object] = {"kind": record_kind(record)}
    shared = {part.name for part in fields(Provenance)}
    for record_field in sorted(fields(record), key=lambda part: part.name in shared):
        value: object = getattr(record, record_field.name)
        factory = record_field.default_factory
        if value != (record_field.default if factory is MISSING else factory()):
            row[record_field.name] = text_to_json(value)
    return row


def tool_fields(message: Message) -> dict[str, object]:
    """The fields of a turn that say what was called, or what call it answers, as chat templates know them."""
    calls = [
        {
            **({} if call.id is None else {"id": call.id}),
            "type": "function",
            "function": {"name": call.name, "arguments": json.loads(call.arguments)},
        }
        for call in message.tool_calls
    ]
    named = {"tool_call_id": message.tool_call_id, "name": message.name}
    result = {field: value for field, value in named.items() if value is not None}
    return {"tool_calls": calls, **result} if calls else {**result}


def text_to_json(value: object) -> object:
    """A string as it is, a conversation as a list of ``{"role": …, "content": …}``.

    >>> text_to_json((Message(role="user", content="Hi"),))
    [{'role': 'user', 'content': 'Hi'}]
    """
    if isinstance(value, Message):
        turn = {"role": value.role, "content": text_to_json(value.content), **tool_fields(value)}
        more = {"reasoning_content": value.reasoning, "facts": value.facts}
        turn |= {name: words for name, words in more.items() if words is not None}
        return turn if value.trained else {**turn, "weight": 0}
    if isinstance(value, Part):
        picture = {"type": "image", "image": value.source} | ({} if value.alt is None else {"alt": value.alt})
        return {"type": "text", "text": value.text} if value.kind == "text" else picture
    if isinstance(value, tuple):
        return [text_to_json(item) for item in cast("tuple[object, ...]", value)]
    return value
