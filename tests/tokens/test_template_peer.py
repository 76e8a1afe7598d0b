"""One conversation through TRL's packaged training templates: where the masks agree, and where not.

What TRL says is recorded in ``peer_values/templates.json``: every run compares with it. Its templates are in
there as it distributes them, under the Apache License 2.0.
"""

import tempfile
from pathlib import Path

import pytest

from plaudit.data.records import Demonstration, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.tokens.encode import encode_record, make_encoder
from tests.peer import SOURCES, PeerValues, ask_script
from tests.tokens.families_bracketed import DEEPSEEK, GEMMA
from tests.tokens.families_headed import CHATML, LLAMA3
from tests.tokens.families_odd import PHI
from tests.tokens.family import Family, folder, texts, trained_text

ASKED: dict[str, Family] = {
    "qwen2_5": CHATML,
    "qwen3": CHATML,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "phi3": PHI,
    "deepseekv3": DEEPSEEK,
}
AGREED = {
    # template: (trained here, trained there)
    "llama3": ("Hello.<|eot_id|>Well.<|eot_id|>", "Hello.<|eot_id|>Well.<|eot_id|>"),
    # There the line ends around an answer are trained too: the first is part of the question, the
    # last comes after the model has stopped.
    "qwen2_5": ("Hello.<|im_end|>Well.<|im_end|>", "\nHello.<|im_end|>\n\nWell.<|im_end|>\n"),
    "qwen3": (
        "<think>\n\n</think>\n\nHello.<|im_end|><think>\n\n</think>\n\nWell.<|im_end|>",
        "<think>\n\n</think>\n\nHello.<|im_end|>\n<think>\n\n</think>\n\nWell.<|im_end|>\n",
    ),
    "gemma": ("Hello.<end_of_turn>Well.<end_of_turn>", "Hello.<end_of_turn>\nWell.<end_of_turn>\n"),
    # There a second end is trained behind the first.
    "phi3": ("Hello.<|end|>Well.<|end|>", "Hello.<|end|>\nWell.<|end|>\n<|endoftext|>"),
}
TALK = (*user_turn("Hi."), *assistant_turn("Hello."), *user_turn("And you?"), *assistant_turn("Well."))


def ask():
    messages = [{"role": turn.role, "content": turn.content} for turn in TALK]
    with tempfile.TemporaryDirectory() as where:
        question = [
            [name, str(folder(Path(where) / name, family)), messages] for name, family in ASKED.items()
        ]
        return dict(zip(ASKED, ask_script("tokens/peer_masks.py", question), strict=True))


VALUES = PeerValues(file=Path(__file__).with_name("peer_values") / "templates.json", ask=ask)


@pytest.fixture(scope="module", params=SOURCES)
def peer(request: pytest.FixtureRequest):
    return VALUES.answers(request.param)


@pytest.mark.peer
def test_the_record_is_what_the_peer_says():
    VALUES.prove()


@pytest.mark.parametrize("name", AGREED)
def test_the_tokens_agree_and_so_do_the_masks_but_for_what_no_model_should_say(peer, name, tmp_path):
    template, ids, mask = peer[name]
    encoder = make_encoder(folder(tmp_path, ASKED[name]), template=template)
    example = encode_record(Demonstration(prompt=TALK[:1], completion=TALK[1:]), encoder)
    (answer,) = example.completions
    ours = [*example.prompt, *answer.ids]
    assert ours == ids[: len(ours)]
    expected, theirs = AGREED[name]
    assert texts(encoder, example)[1] == expected
    assert trained_text(encoder, ids, mask) == theirs


def test_a_question_that_opens_the_thinking_is_refused_here_and_trained_without_it_there(peer, tmp_path):
    template, ids, mask = peer["deepseekv3"]
    encoder = make_encoder(folder(tmp_path, DEEPSEEK), template=template)
    assert encoder.info.decode(encoder.encode_prompt(TALK[:1])).endswith("<think>\n")
    assert "<think>" not in trained_text(encoder, ids, mask)
    with pytest.raises(UserError, match="'<think>': the model would learn to answer where it should think"):
        encode_record(Demonstration(prompt=TALK[:1], completion=TALK[1:2]), encoder)
