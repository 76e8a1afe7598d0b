"""Episodes: a policy and an environment in turns, as one completion whose mask is True where the policy drew.

What the policy said stays as the tokens that were drawn, its thinking included; only what stands between two
of its turns is made of text. Every turn reads the conversation from its beginning again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plaudit.data.records import Message, Text, plain_text, turns_of
from plaudit.errors import UserError, located
from plaudit.rollouts.environment import (
    Environment,
    EpisodeDriver,
    EpisodePrompt,
    FinishedEpisode,
    Outcome,
    PolicyTurn,
    Turn,
)
from plaudit.rollouts.sampler import Answer, GenerationRequest, Rollout, SamplingSettings, TurnSampler
from plaudit.tokens.chat_template import check_turns, control_token_after
from plaudit.tokens.encode import Encoder
from plaudit.tokens.prompts import EncodedPrompt
from plaudit.tokens.rendering import ChatTemplate, unused_word

MAX_TURNS = 8
"""Turns of the policy in an episode, where nobody says how many."""


@dataclass(slots=True)
class _ActiveEpisode:
    prompt: EncodedPrompt
    driver: EpisodeDriver
    request: GenerationRequest
    """Its first turn, with room for the whole episode."""
    version: int
    ids: list[int] = field(default_factory=list[int])
    mask: list[bool] = field(default_factory=list[bool])
    logp: list[float] = field(default_factory=list[float])
    whole_logp: list[float] = field(default_factory=list[float])
    turns: list[Turn] = field(default_factory=list[Turn])
    policy_turns: int = 0
    ended: bool = False
    outcome: Outcome | None = None

    @property
    def remaining_tokens(self) -> int:
        """How many tokens are left for both sides."""
        return self.request.max_new_tokens - len(self.ids)

    def add_policy_turn(self, rollout: Rollout) -> None:
        self.ids += rollout.ids
        self.mask += [True] * len(rollout.ids)
        self.logp += rollout.logp
        self.whole_logp += rollout.whole_logp
        self.turns.append(Turn(role="assistant", text=rollout.answer.text))
        self.policy_turns, self.ended = self.policy_turns + 1, rollout.answer.ended

    def add_environment_turn(self, turn: Turn, ids: Sequence[int]) -> None:
        """Append a turn of the environment, with the template's text around it."""
        self.ids += ids
        self.mask += [False] * len(ids)
        # Nothing was drawn: 0 leaves the episode's log-prob that of the policy's own tokens.
        self.logp += [0.0] * len(ids)
        self.whole_logp += [0.0] * len(ids)
        self.turns.append(turn)

    def rollout(self) -> Rollout:
        """The episode that is over; its answer are the words of the policy's last turn."""
        assert self.outcome is not None
        policy_texts = [turn.text for turn in self.turns if turn.role == "assistant"]
        return Rollout(
            prompt=self.request.prompt,
            ids=tuple(self.ids),
            logp=tuple(self.logp),
            whole_logp=tuple(self.whole_logp),
            answer=Answer(text=policy_texts[-1], tokens=sum(self.mask), ended=self.ended),
            mask=tuple(self.mask),
            played=FinishedEpisode(outcome=self.outcome, turns=tuple(self.turns)),
            version=self.version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSampler:
    sampler: TurnSampler
    encoder: Encoder
    """Writes what stands between two turns of the policy."""
    environment: Environment
    name: str
    """What the environment is called in errors."""
    turns: int = MAX_TURNS

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise UserError(f"an episode needs 1 turn or more, not {self.turns}")
        if self.encoder.chat_format is None:
            raise UserError(
                f"{self.name}: the model's tokenizer has no chat template, so there are no turns that an "
                "environment could answer; use a model that has one"
            )

    def refresh(self) -> None:
        self.sampler.refresh()

    def play(
        self, prompts: Sequence[EncodedPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        """For every question ``n`` episodes, side by side; ``max_tokens`` is the room of a whole episode."""
        requests = self.sampler.requests_for([prompt.shown for prompt in prompts], settings, n)
        episodes: list[_ActiveEpisode] = []
        for place, request in enumerate(requests):
            prompt = prompts[place // n]
            episode_prompt = EpisodePrompt(
                prompt=prompt.text,
                reference_answer=prompt.reference_answer,
                metadata=prompt.metadata,
                origin=prompt.origin,
            )
            driver = EpisodeDriver(self.name, self.environment, episode_prompt)
            episodes.append(_ActiveEpisode(prompt, driver, request, self.sampler.version))
        while active := [episode for episode in episodes if episode.outcome is None]:
            for item, rollout in zip(active, self._next_turns(active, settings), strict=True):
                item.add_policy_turn(rollout)
                self._environment_turn(item)
        rollouts = [episode.rollout() for episode in episodes]
        return [rollouts[p * n : (p + 1) * n] for p in range(len(prompts))]

    def _next_turns(self, active: Sequence[_ActiveEpisode], settings: SamplingSettings) -> list[Rollout]:
        # `sample` stays and the prompt grows, so that each turn has random numbers of its own.
        requests = [
            replace(
                episode.request,
                prompt=(*episode.request.prompt, *episode.ids),
                max_new_tokens=episode.remaining_tokens,
            )
            for episode in active
        ]
        return self.sampler.generate_requests(requests, settings)

    def _environment_turn(self, episode: _ActiveEpisode) -> None:
        # A turn that was cut has no end of turn behind which anybody could answer.
        is_over = episode.policy_turns == self.turns or not episode.remaining_tokens or not episode.ended
        reply = episode.driver.send(
            PolicyTurn(text=episode.turns[-1].text, ended=episode.ended, over=is_over)
        )
        if isinstance(reply, Turn):
            ids = self._tokens_between(episode, reply)
            # Less, not equal: at least one token has to be left for the policy's next turn.
            if len(ids) < episode.remaining_tokens:
                episode.add_environment_turn(reply, ids)
                return
            episode.ended = False
            reply = episode.driver.send(PolicyTurn(text="", ended=False, over=True))
        assert isinstance(reply, Outcome)
        episode.outcome = reply

    def _tokens_between(self, episode: _ActiveEpisode, turn: Turn) -> tuple[int, ...]:
        closed = episode.ids[-1] in self.encoder.stop_ids
        with located(episode.driver.where):
            return tokens_between_turns(
                self.encoder, episode.prompt.text, (*episode.turns, turn), closed=closed
            )


def tokens_between_turns(
    encoder: Encoder, prompt: Text, turns: Sequence[Turn], *, closed: bool
) -> tuple[int, ...]:
    """The tokens from the policy's last words to its next ones: its end of turn, the last of these turns.
    ``closed``: whether the token that ends its turn was drawn, so that it is left out here. A template that
    would write what stands before otherwise is refused: the conversation would not be what it answers."""
    assert encoder.chat_format is not None
    control_tokens = [token for token in encoder.chat_format.specials if token in turns[-1].text]
    if control_tokens:
        raise UserError(
            f"the environment's turn holds the text of a control token ({control_tokens[0]}), which the "
            "model would read as that token; take it out"
        )
    before, after = _render_between(encoder.chat_format.template, prompt, turns)
    text = control_token_after(after, encoder.chat_format.specials)
    ending = -1 if text is None else encoder.info.id_of(text)
    if ending not in encoder.stop_ids:
        raise UserError(
            "the chat template writes no token that ends an earlier answer, so turns of an episode could not "
            f"be told apart (it goes on with {after[:40]!r}); give a template that ends every answer"
        )
    # In the whole text, since some tokenizers begin a text otherwise than they go on with it.
    ids = encoder.info.encode(before + after)
    # Ends of earlier turns are counted off; the wanted one is the first behind them.
    earlier = encoder.info.encode(before).count(ending)
    places = [place for place, token in enumerate(ids) if token == ending]
    if len(places) <= earlier:
        raise UserError(
            f"the tokenizer does not keep {text!r} as one token of its own; mark it as a special token in "
            "the tokenizer's files"
        )
    return ids[places[earlier] + closed :]


def _render_between(template: ChatTemplate, prompt: Text, turns: Sequence[Turn]) -> tuple[str, str]:
    """The text up to the policy's last words and behind them, with a mark in place of all its words."""
    # The policy's turns are never rendered again: their tokens stay, and a strange word holds their place.
    mark = unused_word(plain_text(prompt) + "".join(turn.text for turn in turns))
    opening = turns_of(prompt)
    messages = [
        Message(role=turn.role, content=mark if turn.role == "assistant" else turn.text) for turn in turns
    ]
    conversation = (*opening, *messages)
    is_reordered = not check_turns(template, conversation)
    # Both with the policy's turn opened: the second goes on exactly where its last turn began.
    prompt_text, full_text = (
        template.render(conversation[:-2], ask=True),
        template.render(conversation, ask=True),
    )
    # A blank before its first word is the policy's own to write, as it is in training.
    if (
        is_reordered
        or not full_text.startswith(prompt_text)
        or not full_text[len(prompt_text) :].lstrip().startswith(mark)
    ):
        raise UserError(
            "the chat template rewrites what stands before a turn once the conversation goes on, so the "
            "policy would learn from a conversation that it never saw; give a template that leaves earlier "
            "turns as they are"
        )
    if _renders_like_assistant(template, conversation, full_text):
        raise UserError(
            f"the chat template knows no role {turns[-1].role!r} and writes such a turn as if the policy had "
            "said it; yield Turn(role='user', …), or give a template that knows tools"
        )
    after = full_text[len(prompt_text) :].partition(mark)[2]
    return full_text.removesuffix(after), after


def _renders_like_assistant(template: ChatTemplate, conversation: Sequence[Message], text: str) -> bool:
    """Whether the template writes the last turn as it would write the assistant's."""
    try:
        other = template.render((*conversation[:-1], replace(conversation[-1], role="assistant")), ask=True)
    except UserError:
        # It takes no two turns of the assistant in a row, so this was none.
        return False
    return other == text
