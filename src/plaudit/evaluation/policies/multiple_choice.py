"""Questions with a closed set of answers, and the log-prob that a policy gives to each choice.

A row is ``{"prompt": …, "choices": ["…", "…"], "right": 0}``: what is asked, all answers, and the place of
the right one from 0. The prompt is a text or a conversation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plaudit.data.fields import BadRowError, Node
from plaudit.data.files import raw_rows
from plaudit.data.formats.layout import optional_category
from plaudit.data.records import Text, answer_to, plain_text
from plaudit.data.turns import read_prompt
from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import ChoiceLogprobs
from plaudit.evaluation.policies.kl import score_examples
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder

_FIELDS = ("prompt", "choices", "right", "category")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceQuestion:
    """A multiple-choice question: a prompt, all its answers, and which of them is right."""

    prompt: Text
    choices: tuple[str, ...]
    right: int
    category: str | None = None
    origin: str = ""


def read_choices(path: Path) -> tuple[ChoiceQuestion, ...]:
    """The questions of a file; the first row that is not one ends it, with what to do."""
    questions: list[ChoiceQuestion] = []
    for raw in raw_rows(path):
        if raw.problem is not None:
            raise UserError(raw.problem.message)
        try:
            questions.append(_parse_question(Node(value=raw.value, cells=raw.cells), raw.origin))
        except BadRowError as error:
            raise UserError(
                f'{error.problem_at(raw.origin).message}; a row is {{"prompt": …, "choices": ["…", "…"], '
                '"right": 0}'
            ) from error
    if not questions:
        raise UserError(f"{path}: it holds no question; a row has a prompt, choices and right")
    return tuple(questions)


class EncodedChoices:
    """Questions as tokens, made once for all policies that are asked the same through the same tokenizer."""

    def __init__(self) -> None:
        self._encoded: list[tuple[Encoder, Sequence[ChoiceQuestion], list[Example]]] = []

    def examples(self, questions: Sequence[ChoiceQuestion], encoder: Encoder) -> list[Example]:
        for other, encoded, examples in self._encoded:
            if encoded == questions and _encode_alike(other, encoder):
                return examples
        examples = [_encode_question(question, encoder) for question in questions]
        self._encoded.append((encoder, questions, examples))
        return examples


def _encode_alike(first: Encoder, second: Encoder) -> bool:
    settings = _written_out(first)
    if settings is None or settings != _written_out(second):
        return False
    chat = second.chat_format
    if chat is not None and first.chat_format is not None:
        chat = replace(chat, template=first.chat_format.template)
    # All that is not the tokenizer's or the template's own: control tokens, ends, who reads pictures.
    others = (replace(second.info, tokenizer=first.info.tokenizer), chat, *_settings(second))
    return others == (first.info, first.chat_format, *_settings(first))


def _settings(encoder: Encoder) -> tuple[object, ...]:
    return encoder.turns, encoder.text, encoder.read_extras


def _written_out(encoder: Encoder) -> tuple[str, str] | None:
    backend, chat = getattr(encoder.info.tokenizer, "backend_tokenizer", None), encoder.chat_format
    return None if backend is None else (backend.to_str(), "" if chat is None else repr(chat.template))


def score_choices(
    name: str,
    policy: Policy,
    encoder: Encoder,
    questions: Sequence[ChoiceQuestion],
    *,
    temperature: int | float = 1.0,
    encoded: EncodedChoices | None = None,
) -> tuple[ChoiceLogprobs, ...]:
    """One policy's log-probs of every choice; the choices of one prompt share its computation."""
    examples = (encoded or EncodedChoices()).examples(questions, encoder)
    return tuple(
        ChoiceLogprobs(
            policy=name,
            prompt=plain_text(question.prompt),
            category=question.category,
            choices=question.choices,
            logp=tuple(score.logp for score in scores),
            right=question.right,
        )
        for question, scores in zip(
            questions, score_examples(policy, examples, temperature=temperature, entropy=False), strict=True
        )
    )


def _encode_question(closed_question: ChoiceQuestion, encoder: Encoder) -> Example:
    """As it is asked when it is sampled: a text is a user's turn wherever the model has a chat template."""
    answers = [answer_to(closed_question.prompt, choice) for choice in closed_question.choices]
    return encoder.encode(closed_question.prompt, answers, closed_question.origin)


def _parse_question(row: Node, origin: str) -> ChoiceQuestion:
    unknown_field = next((name for name in row.fields() if name not in _FIELDS), None)
    if unknown_field is not None:
        expected = f"only {', '.join(_FIELDS)}"
        raise BadRowError("wrong value", unknown_field, expected=expected, found="this field")
    prompt = read_prompt(row.get("prompt"))
    choices = tuple(_parse_choice(node) for node in row.get("choices").items())
    if len(choices) < 2:
        raise BadRowError(
            "too few answers", "choices", expected="2 answers or more", found=f"{len(choices)} of them"
        )
    repeated = next((choice for choice in choices if choices.count(choice) > 1), None)
    if repeated is not None:
        raise BadRowError("wrong value", "choices", expected="different answers", found=f"{repeated!r} twice")
    right = _parse_right_index(row.get("right"), len(choices))
    category = optional_category(row, "category")
    return ChoiceQuestion(prompt=prompt, choices=choices, right=right, category=category, origin=origin)


def _parse_choice(node: Node) -> str:
    text = node.text()
    if not text.strip():
        raise node.error("empty side", "an answer")
    return text


def _parse_right_index(node: Node, count: int) -> int:
    index = node.number()
    # JSON may write 1.0 for 1, which is a place; 1.5 is none.
    if index != int(index) or not 0 <= index < count:
        raise node.error("wrong value", f"the place of the right answer, from 0 to {count - 1}")
    return int(index)
