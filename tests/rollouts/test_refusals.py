"""What cannot be asked, and folders that cannot answer, are named."""

import pytest
import torch
from transformers import AutoTokenizer

from plaudit.data.records import Message, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import make_encoder
from tests.rollouts.talkers import TEMPLATE, write_talker, write_tokenizer

FEW = SamplingSettings(max_tokens=3)


@pytest.fixture(scope="module")
def talker(tmp_path_factory) -> LocalSampler:
    return LocalSampler(write_talker(tmp_path_factory.mktemp("talker")))


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ("", "the prompt is empty"),
        (" \n", "the prompt is empty"),
        ((), "the prompt is empty"),
        (user_turn(" "), "the prompt is empty"),
        (assistant_turn("w8"), "ends with a turn of the assistant"),
        ("w9 " * 125, r"has 128 tokens and the model reads 128 .* \(w9 w9 "),
    ],
)
def test_a_prompt_that_cannot_be_answered_is_refused(talker, prompt, complaint):
    with pytest.raises(UserError, match=complaint):
        talker.generate_answers(["w8", prompt], FEW)
    with pytest.raises(UserError, match=complaint):
        talker.stream(prompt, FEW)
    with pytest.raises(UserError, match=complaint):
        talker.check(prompt)


def test_the_longest_prompt_that_fits_is_answered_and_no_prompts_have_no_answers(talker):
    [[answer]] = talker.generate_answers(["w9 " * 124], FEW)
    assert answer.tokens == 1
    assert talker.generate_answers([], FEW) == []


@pytest.mark.parametrize("n", [0, -1])
def test_no_answers_cannot_be_asked_for(talker, n):
    with pytest.raises(UserError, match=f"n {n}: expected 1"):
        talker.generate_answers(["w8"], FEW, n=n)


def test_a_tokenizer_with_fewer_words_than_the_model_fits(tmp_path):
    folder = write_talker(tmp_path)
    write_tokenizer(folder, words=40)
    [answers] = LocalSampler(folder).generate_answers(["w8"], SamplingSettings(max_tokens=30), n=5)
    assert all(int(word[1:]) < 40 for answer in answers for word in answer.text.split())


def test_an_added_token_that_the_model_does_not_know_is_refused_where_it_is_used(tmp_path):
    folder = write_talker(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(folder)
    sampler = LocalSampler(folder)
    sampler.check("w8")
    with pytest.raises(UserError, match="'<new>' is token 61, and the model knows 61"):
        sampler.check("w8 <new>")


def test_a_turn_that_the_template_leaves_out_is_not_lost_in_silence(tmp_path):
    folder = write_talker(tmp_path)
    source = TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'tool' %}")
    (folder / "chat_template.jinja").write_text(source)
    sampler = LocalSampler(folder)
    with pytest.raises(UserError, match="leaves out turn 1, the tool turn"):
        sampler.check((Message(role="tool", content="w10"), *user_turn("w8")))


def test_weights_that_are_not_numbers_are_named(tmp_path):
    folder = write_talker(tmp_path)
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    model.get_parameter("lm_head.weight").data.fill_(float("nan"))
    with pytest.raises(UserError, match="scores are not numbers"):
        LocalSampler.from_policy(Policy(model), make_encoder(folder)).generate_answers(["w8"], FEW)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"temperature": -0.1}, "temperature -0.1: expected 0"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_p": 0.0}, "top_p 0.0: expected a share above 0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"top_p": float("nan")}, "top_p nan"),
        ({"max_tokens": 0}, "max_tokens 0: expected 1 or more"),
        ({"top_k": -1}, "top_k -1: expected 1 or more, or 0"),
        ({"min_p": 1.5}, "min_p 1.5: expected a share"),
        ({"min_p": float("nan")}, "min_p nan"),
        ({"stop": ("w7", "")}, "an empty string would end every answer"),
    ],
)
def test_a_value_that_cannot_be_is_refused(wrong, complaint):
    with pytest.raises(UserError, match=complaint):
        SamplingSettings(**wrong)


def test_whole_numbers_are_numbers_too():
    assert SamplingSettings(temperature=0, top_p=1).greedy
    assert not SamplingSettings().greedy
