"""Episodes: a policy and an environment in turns, as one completion whose mask is True where the policy drew.

What the policy said stays as the tokens that were drawn, its thinking included; only what stands between two
of its turns is made of text. Every turn reads the conversation from its beginning again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plaudit.batches.question import Question
from plaudit.batches.render import ChatTemplate, check_roles, mark_for
from plaudit.batches.script import special_after
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.records.messages import Message, Text, user_says, words
from plaudit.rollouts.drawing import chances
from plaudit.rollouts.engine import Wanted
from plaudit.rollouts.environment import Asked, Environment, Outcome, Played, Said, Talk, Turn
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import Answer, Rollout, SamplingSettings

TURNS = 8
"""Turns of the policy in an episode, where nobody says how many."""


@dataclass(slots=True)
class _Playing:
    """An episode so far."""

    question: Question
    talk: Talk
    wanted: Wanted
    """Its first turn, with room for the whole episode."""
    draw: int
    """Which episode of its prompt it is."""
    ids: list[int] = field(default_factory=list[int])
    mask: list[bool] = field(default_factory=list[bool])
    logp: list[float] = field(default_factory=list[float])
    whole_logp: list[float] = field(default_factory=list[float])
    turns: list[Turn] = field(default_factory=list[Turn])
    spoken: int = 0
    ended: bool = False
    outcome: Outcome | None = None

    @property
    def room(self) -> int:
        """How many tokens there is room for, whoever writes them."""
        return self.wanted.room - len(self.ids)

    def hears(self, drawn: Rollout) -> None:
        """A turn of the policy."""
        self.ids += drawn.ids
        self.mask += [True] * len(drawn.ids)
        self.logp += drawn.logp
        self.whole_logp += drawn.whole_logp
        self.turns.append(Turn(role="assistant", text=drawn.answer.text))
        self.spoken, self.ended = self.spoken + 1, drawn.answer.ended

    def shows(self, turn: Turn, ids: Sequence[int]) -> None:
        """A turn of the environment, and all that is written around it."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logp += [0.0] * len(ids)
        self.whole_logp += [0.0] * len(ids)
        self.turns.append(turn)

    def rollout(self) -> Rollout:
        """The episode that is over; its answer are the words of the policy's last turn."""
        assert self.outcome is not None
        said = [turn.text for turn in self.turns if turn.role == "assistant"]
        return Rollout(
            prompt=self.wanted.prompt,
            ids=tuple(self.ids),
            logp=tuple(self.logp),
            whole_logp=tuple(self.whole_logp),
            answer=Answer(text=said[-1], tokens=sum(self.mask), ended=self.ended),
            mask=tuple(self.mask),
            played=Played(outcome=self.outcome, turns=tuple(self.turns)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSampler:
    """Plays episodes with the policy of a sampler.

    Example: ``EpisodeSampler(sampler=sampler, environment=calculator, name="calc").play(asked, how)``
    """

    sampler: LocalSampler
    """Who speaks."""
    environment: Environment
    """Who answers."""
    name: str
    """What the environment is called in errors."""
    turns: int = TURNS
    """The most turns of the policy."""

    def __post_init__(self) -> None:
        """Refuse a model that knows no turns."""
        if self.turns < 1:
            raise UserError(f"an episode needs 1 turn or more, not {self.turns}")
        if not self.sampler.chats:
            raise UserError(
                f"{self.name}: the model's tokenizer has no chat template, so there are no turns that an "
                "environment could answer; use a model that has one"
            )

    def play(
        self, questions: Sequence[Question], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every question ``n`` episodes, side by side; ``max_tokens`` is the room of a whole episode."""
        playing = self._begun(questions, settings, n)
        while active := [one for one in playing if one.outcome is None]:
            for one, drawn in zip(active, self._next_turns(active, settings), strict=True):
                one.hears(drawn)
                self._answer(one)
        rollouts = [one.rollout() for one in playing]
        return [rollouts[p * n : (p + 1) * n] for p in range(len(questions))]

    def _begun(self, questions: Sequence[Question], settings: SamplingSettings, n: int) -> list[_Playing]:
        wanted = self.sampler.wanted([question.text for question in questions], settings, n)
        begun: list[_Playing] = []
        drawn: Counter[tuple[int, ...]] = Counter()
        for place, first in enumerate(wanted):
            question = questions[place // n]
            asked = Asked(
                prompt=question.text, truth=question.truth, facts=question.facts, origin=question.origin
            )
            talk = Talk(self.name, self.environment, asked)
            begun.append(_Playing(question, talk, first, drawn[first.prompt]))
            drawn[first.prompt] += 1
        return begun

    def _next_turns(self, active: Sequence[_Playing], settings: SamplingSettings) -> list[Rollout]:
        wanted: list[Wanted] = []
        for one in active:
            shown = (*one.wanted.prompt, *one.ids)
            chance_T = chances(settings, shown, one.draw, one.room) if one.ids else one.wanted.chance_T
            wanted.append(Wanted(prompt=shown, behind=(), chance_T=chance_T))
        return self.sampler.drawn(wanted, settings)

    def _answer(self, one: _Playing) -> None:
        """The environment's turn: what it yields is written behind what stands there, or it is over."""
        over = one.spoken == self.turns or not one.room or not one.ended
        answer = one.talk.hear(Said(text=one.turns[-1].text, ended=one.ended, over=over))
        if isinstance(answer, Turn):
            ids = self._between(one, answer)
            if len(ids) < one.room:
                one.shows(answer, ids)
                return
            one.ended = False
            answer = one.talk.hear(Said(text="", ended=False, over=True))
        assert isinstance(answer, Outcome)
        one.outcome = answer

    def _between(self, one: _Playing, turn: Turn) -> tuple[int, ...]:
        encoder = self.sampler.encoder
        closed = one.ids[-1] in encoder.stop_ids
        try:
            return between(encoder, one.question.text, (*one.turns, turn), closed=closed)
        except UserError as error:
            raise UserError(f"{one.talk.where}: {error}") from error


def between(encoder: Encoder, prompt: Text, turns: Sequence[Turn], *, closed: bool) -> tuple[int, ...]:
    """The tokens from the policy's last words to its next ones: its end of turn, the last of these turns.

    ``closed``: whether the token that ends its turn was drawn, so that it is left out here. A template that
    would write what stands before otherwise is refused: the conversation would not be what it answers.
    """
    assert encoder.manner is not None
    control = [token for token in encoder.manner.specials if token in turns[-1].text]
    if control:
        raise UserError(
            f"the environment's turn holds the text of a control token ({control[0]}), which the model would "
            "read as that token; take it out"
        )
    before, after = _rendered(encoder.manner.template, prompt, turns)
    text = special_after(after, encoder.manner.specials)
    ending = -1 if text is None else encoder.info.id_of(text)
    if ending not in encoder.stop_ids:
        raise UserError(
            "the chat template writes no token that ends an earlier answer, so turns of an episode could not "
            f"be told apart (it goes on with {after[:40]!r}); give a template that ends every answer"
        )
    # In the whole text, since some tokenizers begin a text otherwise than they go on with it.
    whole = encoder.info.encode(before + after)
    earlier = encoder.info.encode(before).count(ending)
    places = [place for place, token in enumerate(whole) if token == ending]
    if len(places) <= earlier:
        raise UserError(
            f"the tokenizer does not keep {text!r} as one token of its own; mark it as a special token in "
            "the tokenizer's files"
        )
    return whole[places[earlier] + closed :]


def _rendered(template: ChatTemplate, prompt: Text, turns: Sequence[Turn]) -> tuple[str, str]:
    """The text up to the policy's last words and behind them, with a mark in place of all its words."""
    mark = mark_for(words(prompt) + "".join(turn.text for turn in turns))
    opening = user_says(prompt) if isinstance(prompt, str) else prompt
    told = [
        Message(role=turn.role, content=mark if turn.role == "assistant" else turn.text) for turn in turns
    ]
    whole = (*opening, *told)
    moved = not check_roles(template, tuple(message.role for message in whole))
    asked, now = template.render(whole[:-2], ask=True), template.render(whole, ask=True)
    # A blank before its first word is the policy's own to write, as it is in training.
    if moved or not now.startswith(asked) or not now[len(asked) :].lstrip().startswith(mark):
        raise UserError(
            "the chat template rewrites what stands before a turn once the conversation goes on, so the "
            "policy would learn from a conversation that it never saw; give a template that leaves earlier "
            "turns as they are"
        )
    if _like_its_own(template, whole, now):
        raise UserError(
            f"the chat template knows no role {turns[-1].role!r} and writes such a turn as if the policy had "
            "said it; yield Turn(role='user', …), or give a template that knows tools"
        )
    after = now[len(asked) :].partition(mark)[2]
    return now.removesuffix(after), after


def _like_its_own(template: ChatTemplate, whole: Sequence[Message], text: str) -> bool:
    """Whether the last turn is written as one of the assistant would be."""
    try:
        other = template.render((*whole[:-1], replace(whole[-1], role="assistant")), ask=True)
    except UserError:
        # It takes no two turns of the assistant in a row, so this was none.
        return False
    return other == text
