"""What any answer about a scene is truly worth: its claims are parsed and held against the graph.

A thing that is named takes up one of the scene's things of its shape, with what it says of colour, size and
place right or wrong; where none is left it is invented. So CHAIR (Rohrbach et al. 2018, arXiv:1809.02156) can
be counted from any answer, not from descriptions alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.pictures.world.questions import EQUAL, MISSING, NOTHING, NUMBERS, Question, matching
from plaudit.pictures.world.scenes import COLOURS, DIGITS, PLACES, SHAPES, SIZES, WORDS, Scene, Thing

AIM_SHARE, DESCRIBED_SHARE = 0.7, 0.5
"""What answering the question counts for, and describing all that there is; truth counts for the rest."""
INVENTED_COST = 4
"""As many wrong claims as a thing with its colour, size and place makes."""
EVASION_WORTH = 0.15
CUT_OFF = 0.5
"""What is left of the worth of an answer that did not end by itself."""
WORDS_CLOSED, WORDS_A_THING = 24, 14
"""Words that cost nothing: of an answer, and of a description for each thing, the sign and the whole."""
WORD_COST, MOST_LENGTH_COST = 0.01, 0.2


def _any(values: Sequence[str]) -> str:
    return "|".join(sorted(values, key=len, reverse=True))


_SIZE, _COLOUR, _SHAPE = (_any([*names]) for names in (SIZES, COLOURS, SHAPES))
_PLACE = rf"(?:,?\s+(?:(?:is|are)\s+)?(?:written\s+)?(?P<place>{_any(PLACES)}))?"
_MENTION = re.compile(
    rf"(?:\b(?P<det>no|any|an?|the|{_any(NUMBERS[1:])}|more|many|another)\s+)?"
    rf"(?:\b(?P<size>{_SIZE})\s+)?(?:\b(?P<colour>{_COLOUR})\s+)?\b(?P<noun>{_SHAPE}|thing)s?\b"
    rf"(?:\s+(?:is|are)\s+(?P<denied>not\s+)?(?:an?\s+)?(?P<told>{_SIZE}|{_COLOUR}|{_SHAPE})\b)?{_PLACE}"
)
_SIGN = re.compile(rf"\b(?:word|digit)\s+(?P<text>\w+)(?:\s+is)?{_PLACE}")
_EMPTY = re.compile(rf"\bnothing\b(?:\s+is)?\s+(?:(?P<place>{_any(PLACES)})|(?P<written>written))")
_DENIAL = re.compile(r"(?:\b(?:not|without|neither|nor|cannot|never)|n't)\s+(?:(?!and\b|but\b)\w+\s+){0,2}$")
_COMPARED = re.compile(r"\b(?:as|than)\s+$")
_SENTENCE = re.compile(r"[.!?\n]+")
_UNSURE = re.compile(r"\b(?:cannot|can't|not sure|do not know|don't know)\b")
_ALIKE = re.compile(r"\b(?:as many|equal|equally|same|alike|both)\b")
_NUMERALS = {**{str(n): word for n, word in enumerate(NUMBERS)}, "none": "no", "zero": "no", "nothing": "no"}
_SLOTS: Mapping[str, str] = {
    "count": _any([*NUMBERS, *_NUMERALS]),
    "colour": _any([*COLOURS]),
    "shape": _any(SHAPES),
    "size": _any([*SIZES]),
    "where": _any(PLACES),
    "read": _any([*WORDS, *DIGITS, NOTHING]),
}
"""By the kind of question, what its answer may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """The worth of an answer, with what it is made of."""

    score: float
    """From 0 to 1."""
    overlooked: float
    """The score that it seems to have to somebody who does not see what is invented in it."""
    aim: float
    """How far it gives what was wanted: 0 or 1, of descriptions a share of all that there is."""
    right: int
    """Claims that are true."""
    wrong: int
    """Claims that are false, about what is there."""
    invented: int
    """Things, words and digits that it names and that are not there."""
    missed: int
    """Of descriptions, the things that they leave out."""
    mentioned: int
    """Things, words and digits that it names."""
    words: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A thing as an answer has it; None where it says nothing of it."""

    shape: str | None
    colour: str | None
    size: str | None
    place: str | None
    definite: bool
    denied: tuple[str, ...] = ()

    def facts(self, thing: Thing) -> list[bool]:
        """For each thing that is said of it, whether it is true of that one."""
        parts = ("shape", "colour", "size", "place")
        said = [(part, getattr(self, part)) for part in parts if getattr(self, part) is not None]
        true = [(getattr(thing, part) == value) != (value in self.denied) for part, value in said]
        return true or [True]

    def could_be(self, thing: Thing) -> bool:
        """Whether it can be meant: by its shape, or of a mere thing by its colour."""
        if self.shape is None or self.shape in self.denied:
            return self.colour is None or thing.colour == self.colour or self.shape is not None
        return thing.shape == self.shape


class _Reading:
    """The claims of a text, counted against a scene."""

    def __init__(self, text: str, scene: Scene) -> None:
        self.scene, self.right, self.wrong, self.invented, self.mentioned = scene, 0, 0, 0, 0
        self.told: dict[Thing, float] = {}
        self.sign_told = False
        mentions = list[_Mention]()
        for match in _MENTION.finditer(text):
            before = text[: match.start()]
            if match["det"] in ("more", "many") or _COMPARED.search(before):
                continue
            noun = _noun(match)
            if match["det"] in ("no", "any") or _DENIAL.search(before):
                self._count(not self._there(noun, match["place"]))
            elif match["det"] in NUMBERS:
                self._number(noun, NUMBERS.index(match["det"]), match["noun"])
            else:
                mentions.append(_mention(match))
        self._match(mentions)
        self._read_sign(text)

    def _count(self, true: bool) -> None:
        self.right, self.wrong = self.right + true, self.wrong + (not true)

    def _there(self, noun: str, place: str | None) -> bool:
        return any(place in (None, thing.place) for thing in matching(self.scene, noun))

    def _number(self, noun: str, n: int, shape: str) -> None:
        self._count(len(matching(self.scene, noun)) == n)
        self.mentioned += 1
        self.invented += not matching(self.scene, shape)

    def _match(self, mentions: Sequence[_Mention]) -> None:
        """The most fitting pairs first; a thing is taken up once, but the definite may be any one's."""
        pairs = [
            (sum(facts) / len(facts), len(facts), -m, -t)
            for m, mention in enumerate(mentions)
            for t, thing in enumerate(self.scene.things)
            if mention.could_be(thing) and (facts := mention.facts(thing))
        ]
        settled, taken = set[int](), set[int]()
        for *_, m, t in sorted(pairs, reverse=True):
            mention, thing = mentions[-m], self.scene.things[-t]
            if m in settled or (t in taken and not mention.definite):
                continue
            settled.add(m)
            taken |= set() if mention.definite else {t}
            facts = mention.facts(thing)
            for true in facts:
                self._count(true)
            self.told[thing] = max(self.told.get(thing, 0.0), sum(facts) / 4)
        self.mentioned += len(mentions)
        self.invented += len(mentions) - len(settled)

    def _read_sign(self, text: str) -> None:
        sign, things = self.scene.sign, {thing.place for thing in self.scene.things}
        for match in _SIGN.finditer(text):
            self.mentioned += 1
            if sign is None:
                self.invented += 1
                continue
            self._count(match["text"] == sign.text)
            self.sign_told |= match["text"] == sign.text
            if match["place"]:
                self._count(match["place"] == PLACES[sign.cell])
        for match in _EMPTY.finditer(text):
            if match["written"]:
                self._count(sign is None)
            elif match["place"]:
                self._count(match["place"] not in {*things, *([PLACES[sign.cell]] if sign else [])})

    @property
    def described(self) -> float:
        """The share of all that there is to say which was said rightly."""
        whole = [self.told.get(thing, 0.0) for thing in self.scene.things]
        whole += [float(self.sign_told)] if self.scene.sign else []
        return sum(whole) / len(whole)


def _plain(answer: str) -> str:
    return " ".join(answer.lower().split())


def _noun(match: re.Match[str], *parts: str) -> str:
    words = [match[part] for part in parts or ("size", "colour", "noun")]
    return " ".join(word for word in words if word)


def _mention(match: re.Match[str]) -> _Mention:
    noun = None if match["noun"] == "thing" else match["noun"]
    said = {"shape": noun, "colour": match["colour"], "size": match["size"]}
    told, denied = match["told"], ()
    if told is not None:
        kind = "colour" if told in COLOURS else "size" if told in SIZES else "shape"
        said[kind], denied = told, (told,) if match["denied"] else ()
    # "A thing is red" and "the star" are about something that was named before, or that the question names.
    return _Mention(**said, place=match["place"], definite=match["det"] == "the", denied=denied)


def judge_answer(question: Question, answer: str, *, ended: bool = True) -> Gold:
    """The worth of an answer to a question, whatever its words."""
    text, scene = _plain(answer), question.scene
    reading, words = _Reading(text, scene), len(text.split())
    describes = question.kind == "describe"
    aim = reading.described if describes else _aim(question, text)
    right, wrong = reading.right, reading.wrong
    if not describes and aim is not None:
        right, wrong = right + int(aim), wrong + int(1 - aim)
    free = WORDS_A_THING * (len(scene.things) + 2) if describes else WORDS_CLOSED
    length_cost = min(MOST_LENGTH_COST, WORD_COST * max(0, words - free))
    share = DESCRIBED_SHARE if describes else AIM_SHARE

    def worth(aim: float, right: int, false: int) -> float:
        if not right + false:
            return EVASION_WORTH if _UNSURE.search(text) else 0.0
        worth = share * aim + (1 - share) * right / (right + false) - length_cost
        return round(max(0.0, worth) * (1 if ended else CUT_OFF), 4)

    fell_for_it = bool(question.trap) and aim == 0
    return Gold(
        score=worth(aim or 0.0, right, wrong + INVENTED_COST * reading.invented),
        overlooked=worth(1.0, right + wrong, 0) if fell_for_it else worth(aim or 0.0, right, wrong),
        aim=aim or 0.0,
        right=right,
        wrong=wrong,
        invented=reading.invented,
        missed=len(scene.things) - len(reading.told) if describes else 0,
        mentioned=reading.mentioned,
        words=words,
    )


def _aim(question: Question, text: str) -> float | None:
    """1 where the first sentence that gives what was wanted gives the truth and nothing else, None where no
    sentence does."""
    for part in re.split(_SENTENCE, text):
        values = {*_values(question, part.strip())}
        if values:
            return float(all(_same(value, question) for value in values))
    return None


def _same(value: str, question: Question) -> bool:
    # Of a thing its size may be left out.
    return value == question.truth or (question.kind == "what" and question.truth.endswith(f" {value}"))


def _values(question: Question, part: str) -> Iterator[str]:
    """What a sentence gives for an answer to the question."""
    kind, about = question.kind, question.about
    part = re.sub(r"\bthan\b.*", "", part)
    if kind in _SLOTS:
        values = re.findall(rf"\b({_SLOTS[kind]})", part)
        yield from [_NUMERALS.get(value, value) for value in values] if kind == "count" else values
    elif kind in ("present", "missing"):
        yield from _presence(question, part)
    elif kind == "what":
        yield from (value for value in [NOTHING] if value in part)
        for match in _MENTION.finditer(part):
            yield _noun(match)
    elif _ALIKE.search(part):
        yield EQUAL
    else:
        yield from (noun for noun in about[-2:] if re.search(rf"\b{noun}s?\b", part))


def _presence(question: Question, part: str) -> Iterator[str]:
    names = [question.about[0], question.about[0].split()[-1]]
    yes, no = ("", MISSING) if question.kind == "missing" else ("yes", "no")
    if first := re.match(r"(yes|no)\b", part):
        yield yes if first[1] == "yes" else no
        return
    for match in _MENTION.finditer(part):
        if _noun(match, "colour", "noun") in names:
            denied = match["det"] in ("no", "any") or _DENIAL.search(part[: match.start()])
            yield no if denied or re.search(r"\bnot (?:there|in)\b", part[match.end() :]) else yes
    if question.kind == "missing" and re.search(rf"\b({_SLOTS['size']}|{_SLOTS['where']})\b", part):
        yield yes


def says_yes(question: Question, answer: str) -> bool:
    """Whether an answer to a question what is there says yes; what says nothing of it is no yes."""
    parts = (set(_values(question, part.strip())) for part in re.split(_SENTENCE, _plain(answer)))
    return next(("yes" in values for values in parts if values), False)


def chair(answer: str, scene: Scene) -> tuple[float, float]:
    """CHAIR_i and CHAIR_s: the share of what an answer names that is not there, and whether there is any."""
    reading = _Reading(_plain(answer), scene)
    return reading.invented / max(1, reading.mentioned), float(reading.invented > 0)
