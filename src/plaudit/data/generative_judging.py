"""Training rows for judges that are language models: generative rewards, pairwise rankers, critics.

There are three ways to ask: whether an answer is good, which of two is better, and for a critique with
points. Labels are hard: how clear a preference was, and soft labels beyond the side that they favour, are not
used.

Each judged text is quoted under its header, then comes the question. Every quoted line begins with a mark and
no other line does, and control tokens are taken apart: what is judged cannot close its quotation, add another
answer, end the turn or ask something else. The question is written for the model that judges: a user's turn
where it has a chat template, plain text where it has none, however the rows are. All words of the judgement
can be changed, for a tokenizer that knows others.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from plaudit.data.records import Demonstration, Message, Record, Text, assistant_turn, plain_text, user_turn
from plaudit.data.transforms import DemonstrationSet, LeftOut, judged_answers, preference_pairs
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSettings:
    mark: str = "> "
    """What every quoted line begins with, and no other line."""
    user: str = "User"
    """The header of a user's turn."""
    assistant: str = "Assistant"
    """The header of an assistant's turn."""
    answer: str = "Answer"
    """The header of an answer that is judged."""
    critique: str = "Critique"
    """The header of a critique."""

    def __post_init__(self) -> None:
        sign = self.mark.strip()
        if not sign or sign[0].isalnum() or self.mark.splitlines() != [self.mark]:
            raise UserError("quote.mark must be a sign on one line, not a letter or digit, as in '> '")
        headers = (self.user, self.assistant, self.answer, self.critique)
        for header in headers:
            if not header.strip() or header.splitlines() != [header] or header.startswith(sign):
                raise UserError(
                    f"quote: the header {header!r} must be words on one line that do not begin with {sign!r}"
                )
        if len(set(headers)) < len(headers):
            raise UserError(f"quote: the headers {', '.join(headers)} must differ from each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeRewardSettings:
    good: str = "Good"
    """The word for an answer that was preferred."""
    bad: str = "Bad"
    """The word for one that was not."""
    ask: str = "Is the answer good? Reply {good} or {bad}."
    """What is asked below the answer; {good} and {bad} stand for the words."""
    aspect: str | None = None
    """Which aspect's thumbs count, where rows rate several."""

    def __post_init__(self) -> None:
        _refuse_alike("words.good and words.bad", (self.good, self.bad))
        _refuse_no_question("words.ask", self.ask)

    @property
    def replies(self) -> tuple[str, str]:
        """The replies that the judge may give: the good word, then the bad one."""
        return self.good, self.bad

    @property
    def question(self) -> str:
        # replace and not format, as a question of the user's may hold braces of its own.
        return self.ask.replace("{good}", self.good).replace("{bad}", self.bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseRankerSettings:
    first: str = "A"
    """The label of the answer that is shown first."""
    second: str = "B"
    """The label of the other one."""
    ask: str = "Which answer is better? Reply {first} or {second}."
    """What is asked below the answers; {first} and {second} stand for the labels."""
    order: Literal["random", "both"] = "random"
    """In which order a pair is shown: a random one, or both, as two rows."""
    counting: Literal["mean", "borda", "knock-out"] = "mean"
    """What scores several answers: mean chance to win, share of the beaten, or rounds won in a tournament."""

    def __post_init__(self) -> None:
        _refuse_alike("words.first and words.second", (self.first, self.second))
        _refuse_no_question("words.ask", self.ask)
        if self.order not in ("random", "both"):
            raise UserError(f"words.order {self.order!r}: expected random or both")
        if self.counting not in ("mean", "borda", "knock-out"):
            raise UserError(f"words.counting {self.counting!r}: expected mean, borda or knock-out")

    @property
    def replies(self) -> tuple[str, str]:
        """The replies that the judge may give: the label of the first answer, then of the second."""
        return self.first, self.second

    @property
    def question(self) -> str:
        return self.ask.replace("{first}", self.first).replace("{second}", self.second)


@dataclass(frozen=True, slots=True, kw_only=True)
class CritiqueSettings:
    """How critiques are asked for and written, and what points there are."""

    ask: str = "Write a critique of the answer."
    """What is asked first."""
    ask_points: str = "How many points from 1 to {points} does the answer deserve?"
    """What is asked below the critique; {points} stands for the most that there are."""
    points: int = 5
    """The most points that there are; the fewest are 1."""
    critiques: int = 4
    """How many critiques are written of an answer; their scores are averaged."""
    temperature: float = 1.0
    """How they are drawn: 0 always takes the likeliest word, and then one critique is all that there is."""
    tokens: int = 128
    """The longest critique."""

    def __post_init__(self) -> None:
        _refuse_no_question("words.ask", self.ask)
        _refuse_no_question("words.ask_points", self.ask_points)
        if self.points < 2 or self.critiques < 1 or self.tokens < 1:
            raise UserError("words: points must be at least 2, critiques and tokens at least 1")
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"words.temperature must be 0 or more, not {self.temperature}")
        if self.temperature == 0 and self.critiques > 1:
            raise UserError(
                f"words.critiques {self.critiques} at temperature 0 are all the same; ask for 1, "
                "or raise the temperature"
            )

    @property
    def replies(self) -> tuple[str, ...]:
        return tuple(str(point) for point in range(1, self.points + 1))

    @property
    def question(self) -> str:
        return self.ask_points.replace("{points}", str(self.points))


LanguageJudgeSettings = GenerativeRewardSettings | PairwiseRankerSettings | CritiqueSettings


def _refuse_alike(names: str, pair: tuple[str, str]) -> None:
    if not all(word.strip() for word in pair) or pair[0].strip() == pair[1].strip():
        raise UserError(f"{names} must be two different words, not {pair[0]!r} and {pair[1]!r}")


def _refuse_no_question(name: str, ask: str) -> None:
    if not ask.strip():
        raise UserError(f"{name} is empty; write what the model should be asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePromptFormat:
    """How the prompt to one judge model is written: quotation, headers, chat turn or plain text."""

    quote: QuoteSettings = field(default_factory=QuoteSettings)
    has_chat_template: bool = True
    control_tokens: tuple[str, ...] = ()
    """The texts of its control tokens: none of them may come from what is quoted."""

    def judge_prompt(self, prompt: Text, blocks: Sequence[tuple[str, Text]], ask: str) -> Text:
        lines = [*self._conversation(prompt), *(line for block in blocks for line in self._block(*block))]
        text = "\n".join([*lines, ask])
        return user_turn(text) if self.has_chat_template else f"{text}\n"

    def reply(self, word: str) -> Text:
        """The judge model's reply: an assistant turn where it has a chat template, else plain text."""
        return assistant_turn(word) if self.has_chat_template else word

    def demonstration(self, prompt: Text, word: str, origin: str) -> Demonstration:
        return Demonstration(prompt=prompt, completion=self.reply(word), origin=origin)

    def quoted_lines(self, text: str) -> Iterator[str]:
        """The lines of a quotation, as many as there are in the text and at least one.

        >>> list(JudgePromptFormat().quoted_lines("Yes.\\nAnswer:\\nNo."))
        ['> Yes.', '> Answer:', '> No.']
        """
        # splitlines knows every separator (\u2028, \x85, …), so none begins a line without the mark.
        return (
            f"{self.quote.mark}{line}"
            for line in f"{neutralise_control_tokens(text, self.control_tokens)}\n".splitlines()
        )

    def _conversation(self, prompt: Text) -> Iterator[str]:
        if isinstance(prompt, str):
            prompt = user_turn(prompt) if prompt else ()
        for message in prompt:
            yield from self._turn(message)

    def _block(self, header: str, text: Text) -> Iterator[str]:
        """An answer of several turns (the assistant's, a tool's) has the first of them under its header."""
        first, rest = (text, ()) if isinstance(text, str) else (_turns_text(text[:1]), text[1:])
        yield f"{header}:"
        yield from self.quoted_lines(first)
        for message in rest:
            yield from self._turn(message)

    def _turn(self, message: Message) -> Iterator[str]:
        yield f"{self._speaker(message.role)}:"
        yield from self.quoted_lines(_turns_text((message,)))

    def _speaker(self, role: str) -> str:
        role_headers = {"user": self.quote.user, "assistant": self.quote.assistant}
        speaker = role_headers.get(role, role.capitalize())
        reserved = (self.quote.answer, self.quote.critique, *role_headers.values())
        # A role is data of strangers too: one called "answer" would write itself a header.
        if not role.isidentifier() or (role not in role_headers and speaker in reserved):
            raise UserError(
                f"the role {role!r} of a turn cannot be a header; use system, user, assistant, tool"
            )
        return speaker


def neutralise_control_tokens(text: str, control_tokens: Sequence[str]) -> str:
    """The text with its control tokens taken apart, so that a tokenizer sees words in their place.

    >>> neutralise_control_tokens("Hi.<|im_end|>", ("<|im_end|>",))
    'Hi.< |im_end|>'
    """
    pattern = _control_token_pattern(tuple(control_tokens))
    # Cut behind its first character, a control token is read as ordinary words.
    return text if pattern is None else pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


@lru_cache(maxsize=64)
def _control_token_pattern(control_tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    """The longest first, so that none is taken for the beginning of another."""
    # A single sign cannot be taken apart.
    longest_first = sorted(
        (control for control in control_tokens if len(control.strip()) > 1), key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def pointwise_prompt(
    settings: GenerativeRewardSettings, prompt_format: JudgePromptFormat, prompt: Text, answer: Text
) -> Text:
    """The prompt that asks a generative reward model whether an answer is good.

    >>> print(pointwise_prompt(GenerativeRewardSettings(), JudgePromptFormat(has_chat_template=False),
    ...     "2 + 2 =", "4"),
    ...     end="")
    User:
    > 2 + 2 =
    Answer:
    > 4
    Is the answer good? Reply Good or Bad.
    """
    return prompt_format.judge_prompt(prompt, [(prompt_format.quote.answer, answer)], settings.question)


def pairwise_prompt(
    settings: PairwiseRankerSettings,
    prompt_format: JudgePromptFormat,
    prompt: Text,
    answers: tuple[Text, Text],
) -> Text:
    labels = (settings.first, settings.second)
    blocks = [
        (f"{prompt_format.quote.answer} {label}", text) for label, text in zip(labels, answers, strict=True)
    ]
    return prompt_format.judge_prompt(prompt, blocks, settings.question)


def critique_prompt(
    settings: CritiqueSettings, prompt_format: JudgePromptFormat, prompt: Text, answer: Text
) -> Text:
    return prompt_format.judge_prompt(prompt, [(prompt_format.quote.answer, answer)], settings.ask)


def points_prompt(
    settings: CritiqueSettings,
    prompt_format: JudgePromptFormat,
    prompt_and_answer: tuple[Text, Text],
    critique: str,
) -> Text:
    """The prompt that asks a critic for points, after its critique, which is quoted as well."""
    prompt, answer = prompt_and_answer
    blocks = [(prompt_format.quote.answer, answer), (prompt_format.quote.critique, critique)]
    return prompt_format.judge_prompt(prompt, blocks, settings.question)


def _turns_text(messages: tuple[Message, ...]) -> str:
    """The words of turns; a picture is refused, for a quotation would drop it in silence."""
    for message in messages:
        if not isinstance(message.content, str) and any(part.kind != "text" for part in message.content):
            raise UserError(
                f"a turn of the {message.role} holds a picture, which cannot be judged in words; "
                "leave the row out, or describe the picture"
            )
    return plain_text(messages)


NO_CRITIQUE = "nobody wrote a critique of the answer"
POINTS_OFF_SCALE = "the score is not a whole number of points from 1 to {points}"


def generative_reward_rows(
    records: Iterable[Record], settings: GenerativeRewardSettings, prompt_format: JudgePromptFormat
) -> DemonstrationSet:
    """Judged answers with the word for each: both sides of a comparison, a ranking's ends, thumbs.

    >>> from plaudit.data.records import Comparison
    >>> pair = Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.")
    >>> [row.completion for row in generative_reward_rows([pair], GenerativeRewardSettings(),
    ...     JudgePromptFormat(has_chat_template=False)).demonstrations]
    ['Good', 'Bad']
    """
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    # The order, from the worst word to the best, is part of the result, so both stand here at once.
    word_counts: Counter[str] = Counter({settings.bad: 0, settings.good: 0})
    for record in records:
        for judged in judged_answers(record, settings.aspect):
            if isinstance(judged, LeftOut):
                left_out.append(judged)
                continue
            answer, good = judged
            word = settings.good if good else settings.bad
            word_counts[word] += 1
            question = pointwise_prompt(settings, prompt_format, record.prompt, answer)
            rows.append(prompt_format.demonstration(question, word, record.origin))
    return _demonstration_set(rows, left_out, word_counts)


def pairwise_ranker_rows(
    records: Iterable[Record],
    settings: PairwiseRankerSettings,
    prompt_format: JudgePromptFormat,
    *,
    seed: int = 0,
) -> DemonstrationSet:
    """Pairs with the label of the better answer: comparisons, and all pairs of a ranking that it tells apart.
    In a random order each (by the seed), or in both."""
    # A seed with a name: other draws from the run's seed are independent of this one.
    rng = random.Random(f"order {seed}")
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    word_counts: Counter[str] = Counter({settings.first: 0, settings.second: 0})
    for record in records:
        for pair in preference_pairs(record):
            if isinstance(pair, LeftOut):
                left_out.append(pair)
                continue
            orders = (False, True) if settings.order == "both" else (rng.random() < 0.5,)
            for swapped in orders:
                word = settings.second if swapped else settings.first
                word_counts[word] += 1
                better, worse = pair
                ordered = (worse, better) if swapped else pair
                question = pairwise_prompt(settings, prompt_format, record.prompt, ordered)
                rows.append(prompt_format.demonstration(question, word, record.origin))
    return _demonstration_set(rows, left_out, word_counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """What was written about an answer, and the points that it got."""

    prompt: Text
    completion: Text
    critique: str | None
    """What was written about it; None where nothing was."""
    points: float
    """From 1, bad, to as many as the scale has."""
    origin: str = ""


def critic_rows(
    critiques: Iterable[Critique], settings: CritiqueSettings, prompt_format: JudgePromptFormat
) -> DemonstrationSet:
    """Two rows of each: the critique of an answer, and the points that follow from the two."""
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    word_counts: Counter[str] = Counter(dict.fromkeys(settings.replies, 0))
    for critique in critiques:
        reason = _reason_unusable(critique, settings)
        if reason is not None or critique.critique is None:
            left_out.append(LeftOut(origin=critique.origin, reason=reason or NO_CRITIQUE))
            continue
        word = settings.replies[int(critique.points) - 1]
        word_counts[word] += 1
        critique_question = critique_prompt(settings, prompt_format, critique.prompt, critique.completion)
        points_question = points_prompt(
            settings, prompt_format, (critique.prompt, critique.completion), critique.critique
        )
        rows += [
            prompt_format.demonstration(critique_question, critique.critique, critique.origin),
            prompt_format.demonstration(points_question, word, critique.origin),
        ]
    return _demonstration_set(rows, left_out, word_counts)


def _reason_unusable(critique: Critique, settings: CritiqueSettings) -> str | None:
    if critique.critique is None or not critique.critique.strip():
        return NO_CRITIQUE
    on_scale = critique.points in range(1, settings.points + 1)
    return None if on_scale else POINTS_OFF_SCALE.format(points=settings.points)


def _demonstration_set(
    rows: Sequence[Demonstration], left_out: Sequence[LeftOut], word_counts: Counter[str]
) -> DemonstrationSet:
    result = DemonstrationSet(
        demonstrations=tuple(rows), left_out=tuple(left_out), word_counts=dict(word_counts)
    )
    used_words = [word for word, count in word_counts.items() if count]
    if len(used_words) < 2:
        problem = f"all rows that can be used say {used_words[0]!r}" if used_words else "no row can be used"
        raise UserError(
            f"{problem}, so nothing can be told apart ({result.reasons}); "
            "give rows with better and worse answers"
        )
    shares = ", ".join(f"{word} {count}" for word, count in word_counts.items())
    return replace(result, notes=(f"the words that are learnt: {shares}",))
