"""Minds of known quality behind a server: judges, critics, revisers and attackers whose faults are set.

A mind reads the very questions that any model would be sent, knows what answers are truly worth, and errs as
often, and in the ways, that its settings say. So what plaudit measures of a judge can be compared with what
was set. Every draw is a hash of the seed, the mind and what is asked: the same question has the same reply,
whatever was asked before it, by how many at once.

Of a pair, a share ``place`` is decided by which answer is shown first, a share ``length`` by which is longer,
and the rest by a reading that is right with chance c. c is drawn for each pair, evenly around ``accuracy``,
and what the mind states is σ(sureness · logit c): at sureness 1 it is calibrated.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from plaudit.config import did_you_mean
from plaudit.errors import UserError
from plaudit.lab.world.attacks import harm_in, refusal_in
from plaudit.lab.world.gold import Gold, judge_answer
from plaudit.lab.world.prompts import question_of_prompt, questions
from plaudit.lab.world.questions import Fact, Question
from plaudit.lab.world.speaking import answer_in_style
from plaudit.lab.world.teaching import RIGHT_SENTENCE, critique_of

INDIFFERENCE = 0.02
SURE_MOST = 0.999
STATED_WIDTH = 0.2
"""How far a pair's chance may lie from the accuracy at most."""
TokenStyle = Literal["plain", "spaced", "piece", "bold"]
"""How a letter is written: A, a blank before it, the mark ▁ before its token, or **A** as in Markdown."""
TOKEN_STYLES: tuple[TokenStyle, ...] = get_args(TokenStyle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """How good a mind is, and how its server behaves."""

    name: str = "world"
    """The model's name on the server; draws hang on it."""
    accuracy: float = 0.85
    """How often a reading finds the better answer, the right points, the true critique, the best revision."""
    place: float = 0.0
    """The share of pairs in which the answer shown first wins whatever it says; below 0 the second."""
    length: float = 0.0
    """The share of pairs in which the longer answer wins whatever it says; below 0 the shorter."""
    sureness: float = 1.0
    """What the log-odds that it states are multiplied by: 1 is calibrated, 2 is much too sure."""
    refusals: float = 0.0
    """The share of questions that it refuses; of a pair in both orders."""
    unreadable: float = 0.0
    """The share of questions to which the reply says nothing in the form that was asked for."""
    faults: float = 0.0
    """The share of requests that fail on the way: by status 429, 500, 503, or cut short, or not at all."""
    delay: float = 0.0
    """Seconds before a reply, half of it to one and a half times."""
    logprobs: bool = True
    tokens: TokenStyle = "plain"
    price: str = "0/0"
    """What a million tokens cost, of the question and of the reply."""
    family: str = ""
    """Minds of one family read a pair alike, so that they err together; empty: each by itself."""
    seed: int = 0

    def __post_init__(self) -> None:
        shares = {name: getattr(self, name) for name in ("accuracy", "refusals", "unreadable", "faults")}
        wrong = [f"{name} {x}: expected a share from 0 to 1" for name, x in shares.items() if not 0 <= x <= 1]
        if not self.name or not re.fullmatch(r"[\w.:/-]+", self.name):
            wrong.append("a name is letters, digits and - _ . : /")
        if not abs(self.place) + abs(self.length) <= 1:
            wrong.append(f"place {self.place}, length {self.length}: sizes of shares, together at most 1")
        if not 0 < self.sureness < 100:
            wrong.append(f"sureness {self.sureness}: expected a number above 0 and below 100")
        if not 0 <= self.delay < 3600:
            wrong.append(f"delay {self.delay}: expected seconds, 0 or more")
        if self.tokens not in TOKEN_STYLES:
            wrong.append(f"tokens {self.tokens!r}: expected one of {', '.join(TOKEN_STYLES)}")
        if not re.fullmatch(r"\d+(\.\d+)?(/\d+(\.\d+)?)?", self.price):
            wrong.append(
                f"price {self.price!r}: expected that of a million tokens, asked/replied, as in 0.15/0.6"
            )
        for fault in wrong:
            raise UserError(f"mind {self.name}: {fault}")

    def __call__(
        self,
        question: str,
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        seed: int | None = None,
        words: Sequence[str] = (),
    ) -> dict[str, object]:
        """The reply to a question in this process, as a function behind ``call:`` gives it.
        Nothing fails on the way and nothing is waited for: faults, delays and spellings are of a server.

        >>> Mind()("What is this?")["text"]
        'What am I to say?'
        """
        reply = shortened(reply_to(self, question, temperature=temperature, draw=seed), max_tokens)
        odds = {word: share for word, share in reply.odds.items() if word in words}
        known = {"odds": odds} if odds and self.logprobs else {}
        return {"text": reply.text, "refused": reply.refused, "cut": reply.cut, **known}

    @property
    def spread(self) -> float:
        """How far a pair's chance to be read rightly may lie from the accuracy."""
        sure = max(self.accuracy, 1 - self.accuracy)
        return min(sure - 0.5, max(SURE_MOST - sure, 0.0), STATED_WIDTH)

    @property
    def prices(self) -> tuple[float, float]:
        first, _, other = self.price.partition("/")
        return float(first), float(other or first)

    def stated(self, level: float) -> float:
        """The chance that is stated of a reading that is right with this chance.

        >>> round(Mind(sureness=2.0).stated(0.8), 3)
        0.941
        """
        sure = min(max(level, 1 - level), SURE_MOST)
        return _sigmoid(self.sureness * math.log(sure / (1 - sure)))

    def calibration_error(self, steps: int = 1000) -> float:
        """The expected calibration error that is set: the mean of |stated − right| over readings.

        >>> Mind().calibration_error(), round(Mind(sureness=2.0, accuracy=0.8).calibration_error(), 3)
        (0.0, 0.109)
        """
        levels = [self._level((step + 0.5) / steps) for step in range(steps)]
        return round(math.fsum(abs(self.stated(level) - level) for level in levels) / steps, 12)

    def draw(self, *words: object, shared: bool = False) -> float:
        """A number from 0 to 1 that hangs on these words alone; ``shared`` is the same for a whole family."""
        who = self.family if shared and self.family else self.name
        text = "\0".join([str(self.seed), who, *map(str, words)])
        return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:7]) / 2**56

    def first_probability(self, parsed: ParsedQuestion) -> float:
        """The chance, as it is stated, that Answer A is better than Answer B."""
        first, second = parsed.blocks["Answer A"], parsed.blocks["Answer B"]
        key = (parsed.prompt, *sorted((first, second)))
        stated = self.stated(self._level(self.draw("level", *key, shared=True)))
        habit = self.draw("habit", *key)
        if habit < abs(self.place):
            return stated if self.place > 0 else 1 - stated
        longer = len(first.split()) - len(second.split())
        if habit < abs(self.place) + abs(self.length) and longer:
            return stated if (longer > 0) == (self.length > 0) else 1 - stated
        gap = _gold(parsed.prompt, first).utility - _gold(parsed.prompt, second).utility
        if abs(gap) < INDIFFERENCE:
            return 0.5
        is_right = self.reads_rightly("level", *key)
        return stated if (gap > 0) == is_right else 1 - stated

    def reads_rightly(self, *key: object) -> bool:
        return self.draw("right", *key, shared=True) < self._level(self.draw(*key, shared=True))

    def _level(self, share: float) -> float:
        return self.accuracy + self.spread * (2 * share - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuestion:
    """A question as a reader of its text finds it: quoted lines under headers, and what is asked below."""

    prompt: str
    blocks: Mapping[str, str]
    ask: str

    @property
    def key(self) -> tuple[str, ...]:
        """What is asked, without the number that is drawn for each call."""
        ask = re.sub(r"(</?verdict-)[0-9a-f]*>", r"\1>", self.ask)
        return (self.prompt, *(f"{name}:{text}" for name, text in self.blocks.items()), ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class MindReply:
    text: str
    odds: Mapping[str, float] = field(default_factory=dict[str, float])
    """The chance of each word that could stand where the deciding one stands; none where none decides."""
    refused: bool = False
    cut: bool = False


_TOKEN = re.compile(r"\s*[^\W_]+|\s*[\W_]", re.ASCII)
_SPEAKERS = ("System", "User", "Assistant", "Tool")


def read_question(text: str) -> ParsedQuestion:
    """The parts of a question, as a model that keeps to the rules reads it.

    >>> found = read_question("Judge.\\n\\nUser:\\n> Hi\\nAnswer A:\\n> Yo\\n> User:\\nReply with A or B.")
    >>> found.prompt, dict(found.blocks), found.ask
    ('Hi', {'Answer A': 'Yo\\nUser:'}, 'Reply with A or B.')
    """
    turns, blocks, ask = list[list[str]](), dict[str, list[str]](), list[str]()
    header, target = "", list[str]()
    for line in text.splitlines():
        if not line.startswith("> "):
            header = line
            ask.append(line)
            continue
        # A quotation begins where the line above it is a header.
        if ask:
            target = list[str]()
            name = header.removesuffix(":")
            if name in _SPEAKERS:
                turns.append(target)
            else:
                blocks[name] = target
        target.append(line[2:])
        ask = []
    return ParsedQuestion(
        prompt="\n".join("\n".join(turn) for turn in turns),
        blocks={name: "\n".join(lines) for name, lines in blocks.items()},
        ask="\n".join(ask).strip(),
    )


def reply_to(mind: Mind, text: str, *, temperature: float, draw: object) -> MindReply:
    """What a mind replies to a question; ``draw`` tells one draw at a temperature above 0 from another."""
    parsed = read_question(text)
    form = next((form for pattern, form in _FORMS if re.search(pattern, parsed.ask, re.MULTILINE)), None)
    if form is None:
        return MindReply(text="What am I to say?")
    pair = ("refuse", parsed.prompt, *sorted(parsed.blocks.values()))
    if mind.draw(*pair) < mind.refusals:
        return MindReply(text="", refused=True)
    if mind.draw("unreadable", *parsed.key) < mind.unreadable:
        return _unreadable(mind, parsed)
    try:
        return form(mind, parsed, lambda odds: _chosen(mind, parsed, odds, temperature, draw))
    except UserError:
        return MindReply(text="I do not know the place that this is about.")


def tokens_of(text: str) -> list[str]:
    """The tokens of a mind's reply: words with the blank before them, and signs."""
    return _TOKEN.findall(text)


def shortened(reply: MindReply, most: int | None) -> MindReply:
    """A reply of at most so many tokens, which breaks off where it has more.

    >>> shortened(MindReply(text="Mice, I think."), 3)
    MindReply(text='Mice, I', odds={}, refused=False, cut=True)
    """
    tokens = tokens_of(reply.text)
    if most is None or len(tokens) <= most:
        return reply
    return replace(reply, text="".join(tokens[:most]), cut=True)


def _unreadable(mind: Mind, parsed: ParsedQuestion) -> MindReply:
    """One of the ways in which models miss the form."""
    ways = (
        MindReply(text=""),
        MindReply(text="Both answers have something for them, and it depends on what one is after."),
        MindReply(text="<verdict>A</verdict>"),
        MindReply(text="# Comparison\n\n| answer | points |\n|---|---|\n| A | 7 |\n| B | 8 |\n"),
        MindReply(text="Let me think about it. First of all", cut=True),
    )
    return ways[int(mind.draw("way", *parsed.key) * len(ways))]


_VERDICT_LINE = re.compile(r"^(<verdict-[0-9a-f]*>)WORD(</verdict-[0-9a-f]*>)$", re.MULTILINE)
Choose = Callable[[Mapping[str, float]], str]
"""From the chances of words to the one that is said."""


def _chosen(
    mind: Mind, parsed: ParsedQuestion, odds: Mapping[str, float], temperature: float, draw: object
) -> str:
    if temperature <= 0:
        # Of equally likely words not always the first, which would be a liking for its place.
        return max(odds, key=lambda word: (odds[word], mind.draw("even", word, *parsed.key)))
    weights = {word: share ** (1 / temperature) for word, share in odds.items()}
    left = mind.draw("draw", draw, *parsed.key) * sum(weights.values())
    for word, weight in weights.items():
        left -= weight
        if left < 0:
            return word
    return next(reversed(weights))


def _letter(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    first = mind.first_probability(parsed)
    odds = {"A": first, "B": 1 - first}
    return MindReply(text=choose(odds), odds=odds)


def _verdict(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    first = mind.first_probability(parsed)
    may_tie = "tie where" in parsed.ask
    odds = {"A": first, "B": 1 - first}
    word = "tie" if may_tie and first == 0.5 else choose(odds)
    shown = _VERDICT_LINE.search(parsed.ask)
    assert shown is not None
    reasons = [f"Answer {name}: {_critique(parsed, f'Answer {name}')}" for name in ("A", "B")]
    return MindReply(text="\n".join([*reasons, f"{shown[1]}{word}{shown[2]}"]), odds=odds)


def _points(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    """The points of a reader who sees the truth, or of a reading that is wrong by one or two."""
    shown = re.search(r"from 1 to (\d+)", parsed.ask)
    assert shown is not None
    most = int(shown[1])
    true = 1 + round((most - 1) * _gold(parsed.prompt, parsed.blocks["Answer"]).utility)
    level = mind.stated(mind._level(mind.draw("points", *parsed.key, shared=True)))
    middle = true
    if not mind.reads_rightly("points", *parsed.key):
        off = 1 + int(2 * mind.draw("off", *parsed.key))
        middle = true + off if true + off <= most and mind.draw("side", *parsed.key) < 0.5 else true - off
        middle = middle if middle >= 1 else min(true + off, most)
    odds = {str(n): (1 - level) / (most - 1) for n in range(1, most + 1)} | {str(middle): level}
    if (ends := _VERDICT_LINE.search(parsed.ask)) is None:
        return MindReply(text=choose(odds), odds=odds)
    return MindReply(text=f"{_critique(parsed, 'Answer')}\n{ends[1]}{choose(odds)}{ends[2]}", odds=odds)


def _correct(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    right = RIGHT_SENTENCE in _critique(parsed, "Answer")
    return _yes_or_no(mind, parsed, choose, right=right, what="correct")


def _harm(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    question = question_of_prompt(parsed.blocks.get("Goal", parsed.prompt))
    return _yes_or_no(mind, parsed, choose, right=bool(harm_in(question, parsed.blocks["Answer"])))


def _refusal(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    question = question_of_prompt(parsed.blocks.get("Goal", parsed.prompt))
    return _yes_or_no(mind, parsed, choose, right=refusal_in(question, parsed.blocks["Answer"]))


def _yes_or_no(
    mind: Mind, parsed: ParsedQuestion, choose: Choose, *, right: bool, what: str = "yes"
) -> MindReply:
    stated = mind.stated(mind._level(mind.draw(what, *parsed.key, shared=True)))
    yes = stated if right == mind.reads_rightly(what, *parsed.key) else 1 - stated
    odds = {"Yes": yes, "No": 1 - yes}
    return MindReply(text=choose(odds), odds=odds)


def _criticise(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    """The true critique; read wrongly, praise of a bad answer or a fault that a right one does not have."""
    true = _critique(parsed, "Answer")
    if mind.reads_rightly("critique", *parsed.key):
        return MindReply(text=true)
    return MindReply(text="It is wrong." if RIGHT_SENTENCE in true else RIGHT_SENTENCE)


def _revise(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    """The best answer; read wrongly, the answer as it was, or one in a bad style."""
    question = question_of_prompt(parsed.prompt)
    if mind.reads_rightly("revision", *parsed.key):
        return MindReply(text=question.best)
    if mind.draw("as it was", *parsed.key) < 0.5:
        return MindReply(text=parsed.blocks["Answer"])
    style = ("inventing", "wrong", "evasive")[int(3 * mind.draw("style", *parsed.key))]
    rng = random.Random(str(mind.draw("words", *parsed.key)))
    return MindReply(text=answer_in_style(question, style, rng))


def _attack(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    """A prompt of the world that tempts; read wrongly, one that does not."""
    shown = {*parsed.blocks.values()}
    tempting = mind.reads_rightly("attack", *parsed.key)
    fitting = [_words(question) for question in _single_turns() if _tempts(question) == tempting]
    fresh = [words for words in fitting if words not in shown]
    return MindReply(text=fresh[int(mind.draw("which", *parsed.key) * len(fresh))])


def _pursue(mind: Mind, parsed: ParsedQuestion, choose: Choose) -> MindReply:
    """The same wish in words that were not tried yet; read wrongly, something that tempts to nothing."""
    goal = question_of_prompt(parsed.blocks["Goal"])
    tempting = mind.reads_rightly("pursue", *parsed.key)
    others = [
        _words(question)
        for question in _single_turns()
        if _tempts(question) == tempting and (question.aim == goal.aim or not tempting)
    ]
    fresh = [words for words in others if words not in parsed.prompt] or [_words(goal)]
    return MindReply(text=fresh[int(mind.draw("which", *parsed.key) * len(fresh))])


_FORMS: Sequence[tuple[str, Callable[[Mind, ParsedQuestion, Choose], MindReply]]] = (
    (r"\bfrom 1 to \d+\b", _points),
    (_VERDICT_LINE.pattern, _verdict),
    (r"\bA or B\b", _letter),
    (r"\b[Dd]id the answer do what it must not\b", _harm),
    (r"\b[Dd]id the answer decline\b", _refusal),
    (r"\bYes or No\b", _correct),
    (r"\bcritique\b", _criticise),
    (r"\b(anew|rewrite|revis)", _revise),
    (r"\bmessage of a user\b", _attack),
    (r"\bnext message of the user\b", _pursue),
)
"""What is asked for, by words that anybody would ask with; the first that fits."""


def parse_mind(word: str, base: Mind) -> Mind:
    """A mind by its word, ``name,accuracy=0.7,place=0.3``; whatever is not named is as in the base.

    >>> parse_mind("small,accuracy=0.7", Mind(seed=3)).accuracy
    0.7
    """
    name, *settings = word.split(",")
    values: dict[str, Any] = {part.name: getattr(base, part.name) for part in fields(Mind)}
    values["name"] = name
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key not in values or key == "name":
            hint = did_you_mean(key, values) or f"; there is {', '.join(sorted({*values} - {'name'}))}"
            raise UserError(f"--mind {word}: there is no {key!r}{hint}")
        values[key] = _converted(word, key, value, type(values[key]))
    return Mind(**values)


def _converted(word: str, key: str, value: str, kind: type) -> object:
    if kind is bool:
        if value not in ("yes", "no"):
            raise UserError(f"--mind {word}: {key} is {value!r}, expected yes or no")
        return value == "yes"
    try:
        return kind(value)
    except ValueError as error:
        raise UserError(f"--mind {word}: {key} is {value!r}, expected a number") from error


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))


def _critique(parsed: ParsedQuestion, block: str) -> str:
    return critique_of(parsed.prompt, parsed.blocks[block])


# Both orders of a pair show the same answers, and reading one takes most of a reply's time.
@lru_cache(maxsize=50_000)
def _gold(prompt: str, answer: str) -> Gold:
    return judge_answer(question_of_prompt(prompt), answer)


@lru_cache(maxsize=1)
def _single_turns() -> tuple[Question, ...]:
    return tuple(question for question in questions() if len(question.messages) == 1)


def _words(question: Question) -> str:
    return str(question.messages[0].content)


def _tempts(question: Question) -> bool:
    aim = question.aim
    is_misled = isinstance(aim, Fact) and aim.belief not in (None, aim.truth)
    return is_misled or question.category in ("harmful", "unanswerable")


mind = Mind()
"""A mind as it is where nothing is set: the model of ``call:plaudit.lab.world.minds:mind``."""
