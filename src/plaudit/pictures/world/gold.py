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
    rf"(?:\s+(?:is|are)\s+(?P<denied>not\s+)?(?:an?\s+)?(?P<predicate>{_SIZE}|{_COLOUR}|{_SHAPE})\b)?{_PLACE}"
)
_SIGN = re.compile(rf"\b(?:word|digit)\s+(?P<text>\w+)(?:\s+is)?{_PLACE}")
_EMPTY = re.compile(rf"\bnothing\b(?:\s+is)?\s+(?:(?P<place>{_any(PLACES)})|written)")
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
    """Claims that are true, without those of what is not there."""
    wrong: int
    """Claims that are false, of what is there."""
    invented: int
    """Things, words and digits that it names and that are not there."""
    missed: int
    """Of descriptions, the things that they leave out."""
    mentioned: int
    """Things, words and digits that it names."""
    words: int


@dataclass(frozen=True, slots=True)
class _Mention:
    """A thing as an answer has it: some of shape, colour, size and place, one of them perhaps denied."""

    claims: Mapping[str, str]
    definite: bool
    denied: str = ""

    def facts(self, thing: Thing) -> list[bool]:
        """For each thing that is said of it, whether it is true of that one."""
        return [
            (getattr(thing, part) == value) != (value == self.denied) for part, value in self.claims.items()
        ]

    def could_be(self, thing: Thing) -> bool:
        """Whether it can be meant: by its shape, or of a mere thing by its colour."""
        part = "colour" if self.claims.get("shape") in (None, self.denied) else "shape"
        return self.claims.get(part) in (None, self.denied, getattr(thing, part))


class _Reading:
    """The claims of a text, counted against a scene."""

    def __init__(self, text: str, scene: Scene) -> None:
        self.scene, self.right, self.wrong, self.invented, self.mentioned = scene, 0, 0, 0, 0
        self.covered: dict[Thing, float] = {}
        self.sign_read = False
        mentions, before = list[_Mention](), set[str]()
        for match in _MENTION.finditer(text):
            noun, start = _noun(match), text[: match.start()]
            # Whoever says the same again says no more; "a star and a star" are two.
            again = match["det"] not in (None, "a", "an", "another") and match[0] in before
            before.add(match[0])
            if again or match["det"] in ("more", "many") or _COMPARED.search(start):
                continue
            if match["det"] in ("no", "any") or _DENIAL.search(start):
                # A true one counts for nothing: there is no end of what is not there.
                there = matching(scene, noun)
                self.wrong += any(match["place"] in (None, thing.place) for thing in there)
            elif match["det"] in NUMBERS:
                self._count(len(matching(scene, noun)) == NUMBERS.index(match["det"]))
                self.mentioned += 1
                self.invented += not matching(scene, match["noun"])
            else:
                mentions.append(_mention(match))
        self._match(mentions)
        self._read_sign(text)

    def _count(self, true: bool) -> None:
        self.right, self.wrong = self.right + true, self.wrong + (not true)

    def _match(self, mentions: Sequence[_Mention]) -> None:
        """The most fitting pairs first; a thing is taken up once, but the definite may be any one's."""
        pairs = [
            (sum(mention.facts(thing)), -m, -t)
            for m, mention in enumerate(mentions)
            for t, thing in enumerate(self.scene.things)
            if mention.could_be(thing)
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
            self.covered[thing] = max(self.covered.get(thing, 0.0), sum(facts) / 4)
        self.mentioned += len(mentions)
        self.invented += len(mentions) - len(settled)

    def _read_sign(self, text: str) -> None:
        sign = self.scene.sign
        for match in _SIGN.finditer(text):
            self.mentioned += 1
            self.invented += sign is None
            if sign is not None:
                self._count(match["text"] == sign.text)
                self.sign_read |= match["text"] == sign.text
                if match["place"]:
                    self._count(match["place"] == PLACES[sign.cell])
        full = {thing.place for thing in self.scene.things} | ({PLACES[sign.cell], None} if sign else set())
        for match in _EMPTY.finditer(text):
            self._count(match["place"] not in full)

    @property
    def described(self) -> float:
        """The share of all that there is to say which was said rightly."""
        whole = [self.covered.get(thing, 0.0) for thing in self.scene.things]
        whole += [float(self.sign_read)] if self.scene.sign else []
        return sum(whole) / len(whole)


def _plain(answer: str) -> str:
    return " ".join(answer.lower().split())


def _noun(match: re.Match[str], *parts: str) -> str:
    words = [match[part] for part in parts or ("size", "colour", "noun")]
    return " ".join(word for word in words if word)


def _mention(match: re.Match[str]) -> _Mention:
    noun = None if match["noun"] == "thing" else match["noun"]
    claims = {"shape": noun, **{part: match[part] for part in ("colour", "size", "place")}}
    if (predicate := match["predicate"]) is not None:
        claims["colour" if predicate in COLOURS else "size" if predicate in SIZES else "shape"] = predicate
    facts = {part: value for part, value in claims.items() if value is not None}
    return _Mention(facts, match["det"] == "the", (predicate or "") if match["denied"] else "")


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
        missed=len(scene.things) - len(reading.covered) if describes else 0,
        mentioned=reading.mentioned,
        words=words,
    )


def _aim(question: Question, text: str) -> float | None:
    """1 where the first sentence that gives what was wanted gives the truth and nothing else, None where no
    sentence does."""
    for part in re.split(_SENTENCE, text):
        values = {*_values(question, part.strip())}
        if values:
            # Of what is at a place, the size may be left out.
            truths = {question.truth, question.truth.partition(" ")[2] if question.kind == "what" else ""}
            return float(values <= truths)
    return None


def _values(question: Question, part: str) -> Iterator[str]:
    """What a sentence gives for an answer to the question."""
    kind, about = question.kind, question.about
    part = re.sub(r"\bthan\b.*", "", part)
    if kind in _SLOTS:
        values = re.findall(rf"\b({_SLOTS[kind]})", part)
        yield from (_NUMERALS.get(value, str(value)) if kind == "count" else value for value in values)
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
    yes, no = ("there", MISSING) if question.kind == "missing" else ("yes", "no")
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
