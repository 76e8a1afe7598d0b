"""What a chat template writes between two turns of a policy: proven to go on, or refused."""

from pathlib import Path

import pytest

from plaudit.data.records import Message, user_turn
from plaudit.errors import UserError
from plaudit.rollouts.environment import Turn
from plaudit.rollouts.episodes import tokens_between_turns
from plaudit.tokens.encode import Encoder, make_encoder
from tests.rollouts.talkers import TEMPLATE, write_talker, write_tokenizer
from tests.tokens.families import FAMILIES
from tests.tokens.families_bracketed import DEEPSEEK, LLAMA2, MISTRAL
from tests.tokens.families_odd import CHANNELS, ENDLESS
from tests.tokens.family import Family, folder as model_folder


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
