"""Prompts to generate from, as tokens, with what a reward needs to score their completions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from plaudit.data.records import Demonstration, Prompt, Record, Task, Text, answer_to, pictures, plain_text
from plaudit.errors import UserError
from plaudit.tokens.batch import Extra, Extras, prompt_id
from plaudit.tokens.chat_template import check_turns
from plaudit.tokens.encode import EncodedRows, Encoder, RefusedRow
from plaudit.tokens.rendering import EndlessTemplateError

REPEATED_PROMPT = "a prompt that an earlier row has too is asked only once"
PLAIN_TEXT_PROMPT = (
    "a prompt in plain text is asked as a user's turn, since the model has a chat template; rewards that are "
    "rules are shown the text"
)
"""Said of rows whose strings become turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPrompt:
    text: Text
    prompt: tuple[int, ...]
    reference_answer: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    origin: str = ""
    extras: Extras = field(default_factory=dict[str, Extra], hash=False)
    _id: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The content hash of what the model is shown: `Example.prompt_id` of its rollouts."""
        if self._id is None:
            object.__setattr__(self, "_id", prompt_id(self.prompt, self.extras))
        assert self._id is not None
        return self._id

    @property
    def prompt_id(self) -> str:
        """As `id`, by the name that rows with completions have for it."""
        return self.id

    @property
    def shown(self) -> "tuple[int, ...] | EncodedPrompt":
        """What a sampler is given: the tokens, or the prompt itself where it shows more than tokens."""
        return self if self.extras else self.prompt

    def task(self, answers: Iterable[tuple[str, bool]]) -> Task:
        """What a reward is asked: answers, and whether each ended by itself; of a conversation, as turns."""
        given_answers = tuple(answers)
        return Task(
            prompt=self.text,
            answers=tuple(answer_to(self.text, text) for text, _ in given_answers),
            ended=tuple(ended for _, ended in given_answers),
            reference_answer=self.reference_answer,
            metadata=self.metadata,
        )


def encode_prompt_records(
    records: Iterable[Record], encoder: Encoder, longest: int
) -> EncodedRows[EncodedPrompt]:
    """The prompts of records of any kind, each once; ``longest`` leaves room for an answer."""
    prompts: dict[str, EncodedPrompt] = {}
    refused: list[RefusedRow] = []
    repeated = 0
    for record in records:
        try:
            prompt = replace(
                encode_prompt(record.prompt, encoder),
                reference_answer=reference_answer(record),
                metadata=record.metadata if isinstance(record, Prompt) else {},
                origin=record.origin,
            )
        except EndlessTemplateError:
            raise
        except UserError as error:
            refused.append(RefusedRow(origin=record.origin, reason=str(error)))
            continue
        if len(prompt.prompt) > longest:
            reason = (
                f"the prompt has {len(prompt.prompt):,} tokens, and with room for an answer there is space "
                f"for {longest:,}; shorten it, or let answers be shorter"
            )
            refused.append(RefusedRow(origin=record.origin, reason=reason))
        # By content hash: equal tokens beside another picture are another prompt.
        elif prompt.id in prompts:
            repeated += 1
        else:
            prompts[prompt.id] = prompt
    plain_count = encoder.asks_in_turns * sum(isinstance(prompt.text, str) for prompt in prompts.values())
    notes = Counter({REPEATED_PROMPT: repeated, PLAIN_TEXT_PROMPT: plain_count})
    notes.update(note for prompt in prompts.values() if (note := encoder.control_note(prompt.text)))
    # The unary plus leaves out what was counted zero times.
    return EncodedRows(examples=tuple(prompts.values()), refused=tuple(refused), notes=+notes)


def encode_prompt(prompt: Text, encoder: Encoder) -> EncodedPrompt:
    """A prompt as the model is shown it, as a user's turn where it has a template.
    A prompt to which there is nothing to answer is refused."""
    chat_format, turns = encoder.chat_format, encoder.prompt_as_turns(prompt)
    last = turns if isinstance(turns, str) else plain_text(turns[-1:])
    if not last.strip() and not pictures(turns[-1:]):
        raise UserError("the prompt is empty; write at least one word")
    if not isinstance(turns, str) and turns[-1].role not in ("user", "tool"):
        raise UserError(
            f"the conversation ends with a turn of the {turns[-1].role}, so there is nothing to answer; "
            "let it end with the user's"
        )
    if not isinstance(turns, str) and chat_format is not None:
        # Said when rows are read: at sampling time a lost system turn would just give odd answers.
        check_turns(chat_format.template, turns)
    ids = encoder.encode_prompt(turns)
    return EncodedPrompt(text=prompt, prompt=ids, extras=encoder.placed(ids, encoder.prompt_extras(turns)))


def reference_answer(record: Record) -> str | None:
    """What a rule holds answers against, where the row has it; of a demonstration its result alone."""
    return record.answer if isinstance(record, Prompt | Demonstration) else None
