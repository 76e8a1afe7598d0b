"""One conversation through TRL's packaged training templates: where the masks agree, and where not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from plaudit.batches.template import Encoder, encode_record, make_encoder
from plaudit.errors import UserError
from plaudit.records.feedback import Demonstration
from plaudit.records.messages import assistant_says, user_says
from tests.batches.families import CHATML, DEEPSEEK, GEMMA, LLAMA3, PHI, Family, folder

ROOT = Path(__file__).parents[2]
PEER = Path(os.environ.get("PLAUDIT_PEER_PYTHON", ROOT / ".peers/trl/bin/python"))
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER.exists(), reason=f"no peer environment at {PEER}"),
]
ASKED: tuple[tuple[str, Family], ...] = (
    ("qwen2_5", CHATML),
    ("qwen3", CHATML),
    ("llama3", LLAMA3),
    ("gemma", GEMMA),
    ("phi3", PHI),
    ("deepseekv3", DEEPSEEK),
)
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
TALK = (*user_says("Hi."), *assistant_says("Hello."), *user_says("And you?"), *assistant_says("Well."))


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory):
    where = tmp_path_factory.mktemp("peer")
    messages = [{"role": turn.role, "content": turn.content} for turn in TALK]
    asked = [[name, str(folder(where / name, family)), messages] for name, family in ASKED]
    run = subprocess.run(
        [str(PEER), str(Path(__file__).with_name("peer_masks.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    answers = json.loads(run.stdout.partition("ANSWERS")[2])
    return {name: (where, *answer) for (name, where, _), answer in zip(asked, answers, strict=True)}


def trained(ids: list[int], mask: list[int] | list[bool], encoder: Encoder) -> str:
    return encoder.info.decode([i for i, on in zip(ids, mask, strict=True) if on])


@pytest.mark.parametrize("name", AGREED)
def test_the_tokens_agree_and_so_do_the_masks_but_for_what_no_model_should_say(peer, name: str) -> None:
    where, template, ids, mask = peer[name]
    encoder = make_encoder(where, template=template)
    example = encode_record(Demonstration(prompt=TALK[:1], completion=TALK[1:]), encoder)
    (answer,) = example.completions
    ours = [*example.prompt, *answer.ids]
    assert ours == ids[: len(ours)]
    expected, theirs = AGREED[name]
    assert trained(list(answer.ids), list(answer.mask), encoder) == expected
    assert trained(ids, mask, encoder) == theirs


def test_a_question_that_opens_the_thinking_is_refused_here_and_trained_without_it_there(peer) -> None:
    where, template, ids, mask = peer["deepseekv3"]
    encoder = make_encoder(where, template=template)
    assert encoder.info.decode(encoder.encode_prompt(TALK[:1])).endswith("<think>\n")
    assert "<think>" not in trained(ids, mask, encoder)
    with pytest.raises(UserError, match="'<think>': the model would learn to answer where it should think"):
        encode_record(Demonstration(prompt=TALK[:1], completion=TALK[1:2]), encoder)
