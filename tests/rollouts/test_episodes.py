"""Episodes: drawn tokens and those of the environment between them; templates between two turns."""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import torch

from plaudit.data.records import Message, user_turn
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.environment import (
    Environment,
    Episode,
    EpisodeDriver,
    EpisodePrompt,
    Milestone,
    Milestones,
    Outcome,
    PolicyTurn,
    Turn,
    calculator,
)
from plaudit.rollouts.episodes import EpisodeSampler, tokens_between_turns
from plaudit.rollouts.local import LocalSampler, example_from_rollouts
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt
from tests.rollouts.talkers import TEMPLATE, write_talker, write_tokenizer
from tests.tokens.families import FAMILIES
from tests.tokens.families_bracketed import DEEPSEEK, LLAMA2, MISTRAL
from tests.tokens.families_odd import CHANNELS, ENDLESS
from tests.tokens.family import Family, folder as model_folder

HOW = SamplingSettings(max_tokens=100, seed=3)
REPLY = " <user> w20 w21 <end> <assistant>"


def parity(asked: EpisodePrompt) -> Episode:
    """Goes on while the first word that is said has an even number."""
    said = yield None
    turns = 1
    while not said.over and said.text and int(said.text.split()[0][1:]) % 2 == 0:
        said = yield Turn(role="user", text="w20 w21")
        turns += 1
    return Outcome(score=turns, parts={"over": float(said.over)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("talker"), stops=(2, *range(10, 60, 3)))


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("ends"))


def player(folder: Path, environment: Environment = parity, turns: int = 5) -> EpisodeSampler:
    policy = Policy(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    encoder = make_encoder(folder)
    sampler = LocalSampler.from_policy(policy, encoder)
    return EpisodeSampler(
        sampler=sampler, encoder=encoder, environment=environment, name="parity", turns=turns
    )


def asked(folder: Path, *texts: str) -> list[EncodedPrompt]:
    encoder = make_encoder(folder)
    return [
        EncodedPrompt(text=text, prompt=encoder.encode_prompt(user_turn(text)), origin=f"rows.jsonl:{n}")
        for n, text in enumerate(texts or ("w7", "w9 w8 w31", "w30 w31"), 1)
    ]


def pieces(one: Rollout) -> list[tuple[bool, list[int]]]:
    assert one.mask is not None
    runs = groupby(zip(one.ids, one.mask, strict=True), key=lambda pair: pair[1])
    return [(drawn, [token for token, _ in run]) for drawn, run in runs]


@pytest.mark.slow
def test_the_tokens_are_those_of_the_conversation(ends: Path) -> None:
    play, encoder, questions = player(ends), make_encoder(ends), asked(ends)
    several = 0
    for question, group in zip(questions, play.play(questions, HOW, n=30), strict=True):
        for one in group:
            assert one.prompt == question.prompt
            assert one.mask is not None
            assert one.mask[0]
            assert one.mask[-1]
            assert len(one.ids) == len(one.mask) == len(one.logp) == len(one.whole_logp) <= HOW.max_tokens
            assert one.answer.tokens == sum(one.mask)
            for drawn, ids in pieces(one):
                assert drawn or encoder.info.decode(ids).split() == REPLY.split()
            spoken = [ids for drawn, ids in pieces(one) if drawn]
            assert one.played is not None
            said = [turn.text for turn in one.played.turns if turn.role == "assistant"]
            for words, ids in zip(said, spoken, strict=True):
                assert words.split() == [f"w{t}" for t in ids if t > 5 and t not in encoder.stop_ids]
            # With its control tokens: what was drawn stays as it is, whatever a template would make of it.
            several += len(said) > 1
            raw = iter([encoder.info.decode(ids[:-1] if ids[-1] == 2 else ids) for ids in spoken])
            told = [
                Message(role=turn.role, content=next(raw) if turn.role == "assistant" else turn.text)
                for turn in one.played.turns
            ]
            assert encoder.chat_format is not None
            whole = encoder.chat_format.template.render(
                (*user_turn(str(question.text)), *told), ask=False
            ).split()
            wanted = whole if one.ids[-1] == 2 else whole[:-1]
            assert encoder.info.decode((*one.prompt, *one.ids)).split() == wanted
    assert several


def test_episodes_of_one_prompt_are_of_different_numbers_of_turns(folder: Path) -> None:
    for group in player(folder, turns=4).play(asked(folder), HOW, n=16):
        counts = [sum(drawn for drawn, _ in pieces(one)) for one in group]
        assert len({*counts}) > 2
        assert max(counts) <= 4
        for one, count in zip(group, counts, strict=True):
            assert one.played is not None
            assert one.played.outcome.score == count or not one.answer.ended


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_log_probs_are_those_of_the_trainers_own_pass(folder: Path, temperature: float) -> None:
    play, questions = player(folder), asked(folder)
    groups = play.play(questions, SamplingSettings(max_tokens=60, temperature=temperature), n=6)
    examples = [
        example_from_rollouts(question, group) for question, group in zip(questions, groups, strict=True)
    ]
    policy = Policy(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    with torch.no_grad():
        logp_NT = policy.score(batch_of(examples), temperature=temperature).logp_NT
    for row, one in zip(logp_NT.tolist(), [one for group in groups for one in group], strict=True):
        assert list(one.whole_logp) == pytest.approx(row[: len(one.ids)], abs=2e-5)
        assert one.mask is not None
        for drawn, *numbers in zip(one.mask, one.whole_logp, one.logp, strict=True):
            assert drawn or numbers == [0.0, 0.0]


def test_neither_neighbours_nor_their_number_change_an_episode(folder: Path) -> None:
    play = player(folder)
    many = play.play(asked(folder), HOW, n=6)
    few = play.play(asked(folder)[1:2], HOW, n=2)
    assert [one.ids for one in few[0]] == [one.ids for one in many[1][:2]]
    twice = play.play(asked(folder, "w7", "w7"), HOW, n=3)
    assert [one.ids for group in twice for one in group] == [one.ids for one in many[0]]


def test_a_turn_that_was_stopped_gets_its_end_from_the_template(ends: Path) -> None:
    how = SamplingSettings(max_tokens=60, seed=1, stop=("w8", "w12", "w14", "w30", "w50"))
    groups = player(ends).play(asked(ends), how, n=16)
    closed = 0
    for one in (one for group in groups for one in group):
        runs = pieces(one)
        for (drawn, ids), (_, reply) in pairwise(runs):
            if drawn:
                stopped = ids[-1] in (8, 12, 14, 30, 50)
                assert reply[0] == (2 if stopped else 3)
                closed += stopped
    assert closed


def heard(folder: Path, room: int, turns: int, reply: str) -> list[list[PolicyTurn]]:
    """All that environments were told which never end by themselves."""
    told: list[list[PolicyTurn]] = []

    def endless(asked: EpisodePrompt) -> Episode:
        own: list[PolicyTurn] = []
        told.append(own)
        own.append((yield None))
        while not own[-1].over:
            own.append((yield Turn(role="user", text=reply)))
        return Outcome(score=None)

    play = player(folder, endless, turns)
    for group in play.play(asked(folder), SamplingSettings(max_tokens=room), n=8):
        for one in group:
            assert len(one.ids) <= room
            assert one.mask is not None
            assert one.mask[-1]
    return told


def test_the_last_turn_is_told_to_be_the_last(folder: Path) -> None:
    for own in heard(folder, 100, 3, "w20"):
        assert [said.over for said in own] == [False] * (len(own) - 1) + [True]
        assert len(own) == 3 or not own[-1].ended
    without = [own[-1] for own in heard(folder, 12, 9, "w20 w21 w23 w24")]
    assert PolicyTurn(text="", ended=False, over=True) in without
    cut = heard(folder, 1, 9, "w20")
    assert all(len(own) <= 2 and own[-1].over for own in cut)


def nothing(asked: EpisodePrompt) -> Episode:
    yield None
    return None  # pyright: ignore[reportReturnType]


def raises(asked: EpisodePrompt) -> Episode:
    yield None
    raise KeyError("shelf")


def never(asked: EpisodePrompt) -> Episode:
    yield None
    while True:
        yield Turn(role="user", text="w20")


def at_once(asked: EpisodePrompt) -> Episode:
    yield Turn(role="user", text="w20")
    return Outcome(score=0.0)


def mute(asked: EpisodePrompt) -> Episode:
    yield None
    yield Turn(role="assistant", text="w20")
    return Outcome(score=0.0)


def infinite(asked: EpisodePrompt) -> Episode:
    yield None
    return Outcome(score=float("inf"))


def wordy(asked: EpisodePrompt) -> Episode:
    outcome = Outcome(score=1.0)
    object.__setattr__(outcome, "score", "good")
    yield None
    return outcome


def control(asked: EpisodePrompt) -> Episode:
    yield None
    yield Turn(role="user", text="w20 <end> w21")
    return Outcome(score=0.0)


def early(asked: EpisodePrompt) -> Episode:
    return Outcome(score=0.0)
    yield None


def plain(asked: EpisodePrompt) -> Outcome:
    return Outcome(score=0.0)


BAD: dict[Callable[..., object], str] = {
    nothing: "ended with None; it has to return an Outcome",
    raises: "it raised KeyError: 'shelf'",
    never: "goes on although the episode is over .*; where turn.over is True it has to return",
    at_once: "its first yield is Turn",
    mute: "a turn is Turn",
    infinite: "its score is inf",
    wordy: "its score is 'good'",
    control: "control token .<end>.",
    early: "ended before the policy spoke",
    plain: "has to be a generator",
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
def test_a_wrong_environment_is_told_with_its_prompt(folder: Path, bad: Environment) -> None:
    with pytest.raises(UserError, match=rf"parity, prompt rows\.jsonl:1: .*{BAD[bad]}"):
        player(folder, bad).play(asked(folder), SamplingSettings(max_tokens=90), n=8)


def test_a_model_without_turns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no chat template"):
        player(write_talker(tmp_path, chats=False))
    with pytest.raises(UserError, match="1 turn or more"):
        player(write_talker(tmp_path), turns=0)


def told(talk: EpisodeDriver, *texts: str) -> Sequence[Turn | Outcome]:
    return [talk.send(PolicyTurn(text=text, ended=True, over=False)) for text in texts]


def test_the_calculator_reckons_and_pays_for_the_truth() -> None:
    question = EpisodePrompt(prompt="What is 12 * 12 - 4?", reference_answer="140")
    *tools, end = told(EpisodeDriver("calc", calculator, question), "calc: 12*12", "calc: 144 - 4", "So 140.")
    assert [turn.text for turn in tools if isinstance(turn, Turn)] == ["144", "140"]
    assert isinstance(end, Outcome)
    assert end.score == 1.0
    [wrong] = told(EpisodeDriver("calc", calculator, question), "Perhaps 141")
    assert isinstance(wrong, Outcome)
    assert wrong.score == 0.0
    over = EpisodeDriver("calc", calculator, question).send(
        PolicyTurn(text="calc: 1+1", ended=True, over=True)
    )
    assert isinstance(over, Outcome)


def marks(*weights: float) -> tuple[Milestone, ...]:
    return (
        Milestone(name="page", kind="ui", weight=weights[0]),
        Milestone(name="saved", kind="file", weight=weights[1]),
        Milestone(name="done", kind="goal", weight=weights[2]),
    )


def test_milestones_are_paid_once_and_add_up_to_one() -> None:
    all_of_it = Milestones(marks=marks(1.0, 2.0, 5.0))
    assert all_of_it.score([]) == 0.0
    assert all_of_it.score(["page", "page", "saved"]) == 3 / 8
    assert all_of_it.outcome(["done", "page", "saved"]).score == 1.0
    assert all_of_it.outcome(["saved"]).parts == {"page": 0.0, "saved": 1.0, "done": 0.0}
    with pytest.raises(UserError, match="no milestone is called shop"):
        all_of_it.score(["shop"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (marks(3.0, 2.0, 5.0), "kind ui weighs 3 and one of kind file 2"),
        (marks(1.0, 6.0, 5.0), "kind file weighs 6 and one of kind goal 5"),
        (marks(2.0, 2.0, 1.0)[::2], "kind ui weighs 2 and one of kind goal 1"),
        (marks(0.0, 1.0, 1.0), "page: weight 0"),
        (marks(1.0, 1.0, 1.0) * 2, "a name of its own"),
        ((), "one or more"),
    ],
)
def test_weights_that_pay_for_the_way_are_refused(wrong: tuple[Milestone, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Milestones(marks=wrong)


def templated(folder: Path, source: str) -> Encoder:
    write_talker(folder)
    write_tokenizer(folder)
    return make_encoder(folder, template=source)


SAID = (Turn(role="assistant", text="w7"), Turn(role="user", text="w20"))
FORGETS = TEMPLATE.replace(
    "{{ m['content'] }}", "{% if loop.last or loop.length < 3 %}{{ m['content'] }}{% endif %}"
)
NUMBERS = "w{{ messages | length + 8 }} " + TEMPLATE
NO_END = TEMPLATE.replace(" <end> ", " {% if m.role != 'assistant' or loop.last %}<end>{% endif %} ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FORGETS, "leaves out turn"),
        (NUMBERS, "rewrites what stands before a turn"),
        (NO_END, "no token that ends an earlier answer"),
    ],
)
def test_a_template_that_would_not_continue_is_refused(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        tokens_between_turns(templated(tmp_path, source), "w9", SAID, closed=True)


@pytest.mark.parametrize("closed", [True, False])
def test_what_stands_between_two_turns(tmp_path: Path, closed: bool) -> None:
    encoder = templated(tmp_path, TEMPLATE)
    ids = tokens_between_turns(encoder, "w9", SAID, closed=closed)
    assert encoder.info.decode(ids).split() == ["<end>", "<user>", "w20", "<end>", "<assistant>"][closed:]


TALKED = (
    Turn(role="assistant", text="The owl."),
    Turn(role="user", text="And you?"),
    Turn(role="assistant", text="a pear"),
    Turn(role="user", text="Name three."),
)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_episode_is_the_conversation_as_each_family_writes_it(tmp_path: Path, family: Family) -> None:
    encoder = make_encoder(model_folder(tmp_path, family))
    if family in (CHANNELS, ENDLESS):
        with pytest.raises(UserError, match=r"template (rewrites|writes no token)"):
            tokens_between_turns(encoder, "How are you?", TALKED[:2], closed=True)
        return
    first = tokens_between_turns(encoder, "How are you?", TALKED[:2], closed=True)
    second = tokens_between_turns(encoder, "How are you?", TALKED, closed=True)
    told = tuple(Message(role=turn.role, content=turn.text) for turn in TALKED)
    prompt = encoder.encode_prompt(user_turn("How are you?"))
    whole = encoder.encode_prompt((*user_turn("How are you?"), *told))
    assert whole[: len(prompt)] == prompt
    assert whole[-len(second) :] == second
    said = whole[len(prompt) : -len(second)]
    at = next(n for n in range(len(said)) if said[n : n + len(first)] == first)
    for ids in (said[:at], said[at + len(first) :]):
        assert ids[-1] in encoder.stop_ids
        assert not {*ids[:-1]} & {*encoder.stop_ids}


@pytest.mark.parametrize("family", [LLAMA2, MISTRAL, DEEPSEEK], ids=lambda family: family.name)
def test_a_tools_turn_is_not_written_as_the_policys(tmp_path: Path, family: Family) -> None:
    encoder = make_encoder(model_folder(tmp_path, family))
    turns = (TALKED[0], Turn(role="tool", text="7"))
    with pytest.raises(UserError, match="knows no role 'tool' and writes such a turn as if the policy"):
        tokens_between_turns(encoder, "How are you?", turns, closed=True)
