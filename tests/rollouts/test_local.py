"""The decoding loop says what transformers' own says, whoever shares the batch."""

from pathlib import Path
from typing import Any

import pytest
import torch

from plaudit.data.records import Message, user_turn
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Answer, SamplingSettings
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import make_model
from tests.models.zoo import EAGER, RECURRENT, SDPA
from tests.rollouts.talkers import answered, word, write_talker

STOPS = (2, *range(7, 61, 6))
GREEDY = SamplingSettings(temperature=0, max_tokens=24)
PROMPTS = ("w7", "w9 w40 w31 w50 w18 w22 w7 w8 w12", "w30 w31", "w60 w12 w44 w19 w20", "w21", "w33 w8 w9")


def sampler_on(device: torch.device, folder: Path, dtype: torch.dtype = torch.float32) -> LocalSampler:
    """The sampler of a folder in these numbers: in 16 bits, as a GPU has it, others may be the likeliest."""
    policy = Policy(load_model(folder, dtype=dtype, device=device), layout="right")
    return LocalSampler.from_policy(policy, make_encoder(folder))


def said_by_generate(
    device: torch.device, folder: Path, prompts: tuple[str, ...], tokens: int
) -> list[Answer]:
    encoder = make_encoder(folder)
    asked = [encoder.encode_prompt(user_turn(prompt)) for prompt in prompts]
    longest = max(map(len, asked))
    ids = torch.tensor([[0] * (longest - len(one)) + list(one) for one in asked], device=device)
    real = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in asked], device=device)
    model: Any = load_model(folder, dtype=torch.float32, device=device)
    made = model.generate(
        input_ids=ids,
        attention_mask=real,
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=list(STOPS),
        pad_token_id=0,
    )[:, longest:].tolist()
    answers: list[Answer] = []
    for row in made:
        end = next((t for t, token in enumerate(row) if token in STOPS), None)
        words = " ".join(word(token) for token in row[:end] if token > 5)
        answers.append(Answer(text=words, tokens=tokens if end is None else end + 1, ended=end is not None))
    return answers


# Whatever tokenizer lies in a folder of Qwen2, transformers makes one of Qwen2's own kind of it.
@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", sorted({*SDPA, *EAGER} - {"qwen2"}))
def test_greedy_answers_are_those_of_generate_token_for_token(device, tmp_path, name):
    folder = write_talker(tmp_path, name, stops=STOPS)
    wanted = said_by_generate(device, folder, PROMPTS, 24)
    assert len({answer.text for answer in wanted}) > 1
    assert [one for [one] in sampler_on(device, folder).generate_answers(PROMPTS, GREEDY)] == wanted


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_does_not_depend_on_who_shares_its_batch(device, tmp_path, name, temperature):
    # A GPU's products of few rows and of many round differently: in float64 no draw is that close.
    dtype = torch.float32 if device.type == "cpu" else torch.float64
    sampler = sampler_on(device, write_talker(tmp_path, name, stops=STOPS), dtype)
    settings = SamplingSettings(temperature=temperature, top_p=0.9, max_tokens=24, seed=5)
    together = sampler.generate_answers(PROMPTS, settings, n=2)
    assert len({answer.tokens for answers in together for answer in answers}) > 1
    assert together == [sampler.generate_answers([prompt], settings, n=2)[0] for prompt in PROMPTS]
    assert together[::-1] == sampler.generate_answers(PROMPTS[::-1], settings, n=2)
    assert [answers[:1] for answers in together] == sampler.generate_answers(PROMPTS, settings)


@pytest.mark.parametrize("name", sorted(RECURRENT))
def test_drawn_tokens_are_as_likely_as_a_plain_pass_says_of_each_row_alone(tmp_path, name):
    sampler = LocalSampler(write_talker(tmp_path, name, stops=STOPS))
    groups = answered(sampler, PROMPTS, SamplingSettings(max_tokens=12, seed=1), n=2)
    assert len({len(rollout.ids) for rollouts in groups for rollout in rollouts}) > 1
    for rollout in (rollout for rollouts in groups for rollout in rollouts):
        drawn = torch.tensor(rollout.ids)
        with torch.no_grad(), sampler.policy.as_plain_model() as plain:
            logits = plain(torch.tensor([[*rollout.prompt, *rollout.ids]]), use_cache=False).logits[0]
        logp = logits[-len(drawn) - 1 : -1].log_softmax(-1).gather(1, drawn[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(rollout.whole_logp), logp, rtol=0, atol=1e-4)


def test_more_answers_than_one_batch_holds_are_all_there_and_in_order(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path, stops=STOPS))
    settings = SamplingSettings(max_tokens=5)
    answers = sampler.generate_answers(PROMPTS, settings, n=30)
    assert [len(of) for of in answers] == [30] * len(PROMPTS)
    assert answers[3] == sampler.generate_answers([PROMPTS[3]], settings, n=30)[0]


def test_seeds_give_the_same_answers_again_and_other_seeds_others(tmp_path):
    folder = write_talker(tmp_path)
    one, two = (SamplingSettings(max_tokens=12, seed=seed) for seed in (1, 2))
    sampler = LocalSampler(folder)
    first = sampler.generate_answers(PROMPTS, one, n=3)
    assert first == LocalSampler(folder).generate_answers(PROMPTS, one, n=3)
    assert first != sampler.generate_answers(PROMPTS, two, n=3)
    assert len({answer.text for answer in first[0]}) == 3


def test_a_prompt_given_twice_gets_the_answers_that_n_would_give(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path))
    settings = SamplingSettings(max_tokens=6)
    [three] = sampler.generate_answers(["w8"], settings, n=3)
    assert [one for [one] in sampler.generate_answers(["w8", "w8", "w8"], settings)] == three


def test_a_longer_budget_goes_on_where_a_shorter_one_cut(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path))
    [[short]], [[long]] = (
        sampler.generate_answers(["w9"], SamplingSettings(max_tokens=t, seed=4)) for t in (5, 40)
    )
    assert not short.ended
    assert long.text.startswith(short.text)
    assert long.tokens > short.tokens == 5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_an_answer_stops_where_the_models_context_ends(tmp_path, name):
    sampler = LocalSampler(write_talker(tmp_path, name, stops=()))
    long = " ".join(["w9 w10"] * 60)
    together = sampler.generate_answers([long, "w7"], SamplingSettings(temperature=0, max_tokens=500))
    alone = [
        sampler.generate_answers([p], SamplingSettings(temperature=0, max_tokens=500))[0]
        for p in (long, "w7")
    ]
    assert together == alone
    shown = {prompt: 3 + len(prompt.split()) for prompt in (long, "w7")}
    for prompt, [answer] in zip(shown, together, strict=True):
        if not answer.ended:
            assert answer.tokens == 128 - shown[prompt]
    assert not together[0][0].ended


def test_a_string_is_a_users_turn_where_there_is_a_template(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path))
    as_text, as_turn = sampler.generate_answers(["w8 w9", user_turn("w8 w9")], GREEDY)
    assert sampler.has_chat_template
    assert as_text == as_turn


def test_a_string_is_gone_on_from_where_there_is_no_template(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path, chats=False))
    [[answer]] = sampler.generate_answers(["w8 w9"], SamplingSettings(temperature=0, max_tokens=3))
    assert not sampler.has_chat_template
    assert answer.text.startswith(" w"), "the blank between prompt and answer belongs to the answer"
    assert len(answer.text.split()) == 3


def test_a_conversation_is_read_whole(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path))
    last = user_turn("w30")
    talk = (*user_turn("w8 w9"), Message(role="assistant", content="w10"), *last)
    opened = (Message(role="system", content="w40"), *last)
    assert len({answer.text for [answer] in sampler.generate_answers([last, talk, opened], GREEDY)}) == 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_pieces_of_a_stream_make_the_answer(tmp_path, temperature):
    sampler = LocalSampler(write_talker(tmp_path, stops=STOPS))
    settings = SamplingSettings(temperature=temperature, max_tokens=24, seed=2)
    for prompt in PROMPTS:
        [[wanted]] = sampler.generate_answers([prompt], settings)
        pieces = list(sampler.stream(prompt, settings))
        assert "".join(pieces) == wanted.text
        assert all(pieces)
        assert len(pieces) == len(wanted.text.split())


def test_a_stream_returns_its_answer(tmp_path):
    sampler = LocalSampler(write_talker(tmp_path))
    stream = sampler.stream("w8", GREEDY)

    def listen():
        returned.append((yield from stream))

    returned: list[Answer] = []
    assert "".join(listen()) == returned[0].text
    assert [returned] == sampler.generate_answers(["w8"], GREEDY)


@pytest.mark.slow
def test_a_stream_never_shows_half_a_character(tmp_path):
    make_model(tmp_path)
    sampler = LocalSampler(tmp_path)
    texts: list[str] = []
    for seed in range(5):
        settings = SamplingSettings(max_tokens=60, seed=seed, temperature=3)
        [[wanted]] = sampler.generate_answers(["the cat"], settings)
        assert "".join(sampler.stream("the cat", settings)) == wanted.text
        texts.append(wanted.text)
    assert any(ord(c) > 127 and c != "�" for c in "".join(texts)), "no character of several tokens came"


def test_every_stop_token_ends_an_answer_and_is_not_shown(tmp_path):
    settings = SamplingSettings(max_tokens=100)

    def words(stops: tuple[int, ...]) -> tuple[set[str], float]:
        folder = write_talker(tmp_path / str(len(stops)), stops=stops)
        [answers] = LocalSampler(folder).generate_answers(["w8"], settings, n=64)
        return {w for answer in answers for w in answer.text.split()}, sum(a.ended for a in answers) / 64

    one, few_end = words((2,))
    three, most_end = words((2, 20, 30))
    assert {"w20", "w30"} <= one
    assert not three & {"w20", "w30", "<end>"}
    assert most_end > few_end
