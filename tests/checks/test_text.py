"""Checks of text and tokens hold on healthy rows of every family of templates, and each fault is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plaudit.batches.rows import encode_rows
from plaudit.batches.template import make_encoder
from plaudit.checks import fitting, prompts, text
from plaudit.checks.checking import look_over
from plaudit.checks.subject import Subject
from plaudit.records.feedback import Comparison, Demonstration
from plaudit.records.messages import Message, assistant_says, user_says
from plaudit.world.shipped import SHIPPED
from tests.batches.families import DROPS, FAMILIES, GEMMA, Family, folder
from tests.checks.breakers_text import Broken, begun, conversations, edit
from tests.checks.broken_text import BROKEN
from tests.checks.subjects import failing, healthy, make_model_with_bos
from tests.training.toy import TEMPLATE, demonstrations, make_model, write_rows

MINE = (*text.CHECKS, *prompts.CHECKS, *fitting.CHECKS)
SYSTEM = (Message(role="system", content="Be brief."),)
HISTORY = (*user_says("Hi."), *assistant_says("Hello."), *user_says("And you?"))
NOT_OF_POLICIES = {"mask", "room"}


@pytest.mark.parametrize("method", ["sft", "preferred", "reward", "dpo", "kto", "grpo"])
def test_healthy_runs_are_looked_at_and_pass(tmp_path: Path, method: Any) -> None:
    made = "dpo" if method == "preferred" else method
    with healthy(made, tmp_path) as subject:
        found = {one.check.name: one.result for one in look_over(subject, MINE)}
    skipped = NOT_OF_POLICIES if method == "grpo" else set()
    assert {name for name, one in found.items() if one.holds is None} == skipped
    assert all(one.holds for name, one in found.items() if name not in skipped), found


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_fails_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Broken
) -> None:
    with begun(broken, tmp_path, monkeypatch) as subject:
        found = failing(subject)
    assert set(found) == broken.fails, found
    lines = [f"{name}: {saw}" for name, saw in found.items()]
    assert any(broken.says in line for line in lines), lines


CONVERSATIONS = {
    "one turn": Demonstration(prompt=user_says("How?"), completion=assistant_says("Fine, final plum 😀.")),
    "a pair": Comparison(
        prompt=user_says("Hi."), chosen=assistant_says("Hello."), rejected=assistant_says("")
    ),
    "several answers": Demonstration(
        prompt=user_says("Hi."),
        completion=(*assistant_says("Hello."), *user_says("And you?"), *assistant_says("Well.")),
    ),
    "a history": Demonstration(prompt=HISTORY, completion=assistant_says("Well.")),
    "a system turn": Demonstration(prompt=(*SYSTEM, *HISTORY), completion=assistant_says("Hello.")),
    "an end of its own": Demonstration(prompt=user_says("Hi."), completion=assistant_says("Well.</s>")),
    "a thought": Demonstration(
        prompt=user_says("Hi."), completion=assistant_says("<think>\nfig\n</think>\n\nHello.")
    ),
    "plain text": Demonstration(prompt="Hi.", completion=" Hello."),
    "plain text without a question": Demonstration(prompt="", completion="Hello."),
}


@pytest.mark.parametrize("turns", ["all", "last"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_of_templates_passes(tmp_path: Path, family: Family, turns: str) -> None:
    encoder = make_encoder(folder(tmp_path, family), turns=turns)
    for name, record in CONVERSATIONS.items():
        encoding = encode_rows([record], encoder)
        if encoding.refused:
            assert (name, family in (GEMMA, DROPS)) == ("a system turn", True), encoding.refused
            continue
        subject = Subject(encoder=encoder, records=[record], max_length=2048, trained=encoding.examples)
        found = {one.check.name: one.result for one in look_over(subject, MINE)}
        assert not [(key, one.saw) for key, one in found.items() if one.holds is False], name
        assert all(found[name].holds for name in ("mask", "prompt-prefix", "right-end"))


def test_rows_that_a_template_refuses_are_named(tmp_path: Path) -> None:
    encoder = make_encoder(folder(tmp_path, DROPS))
    record = CONVERSATIONS["a system turn"]
    found = look_over(Subject(encoder=encoder, records=[record], max_length=64), text.CHECKS)
    assert {
        one.result.saw.partition(" the system turn")[0] for one in found if one.result.holds is False
    } == {"the chat template leaves out turn 1,"}


def test_a_pad_that_is_eos_and_rows_in_plain_text_pass(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    make_model(tmp_path / "base", family="gpt2")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "base")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path / "base")
    data = write_rows(tmp_path / "plain.jsonl", demonstrations(24))
    with healthy("sft", tmp_path, model=tmp_path / "base", data=data) as subject:
        found = {one.check.name: one.result for one in look_over(subject, MINE)}
    assert not [one.saw for one in found.values() if one.holds is False]
    assert "pad is EOS" in found["pad-not-trained"].saw
    assert "a string that this model is asked is a user's turn" in found["prompt-prefix"].saw


def test_a_template_with_two_bos_is_mended_by_the_run(tmp_path: Path) -> None:
    model = make_model_with_bos(tmp_path / "base")
    edit(model, "{{ bos_token }}{{ bos_token }}" + TEMPLATE)
    with healthy("sft", tmp_path, model=model) as subject:
        assert failing(subject) == {}


def test_what_is_trained_is_shown(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "own.jsonl", conversations(system="a red mat", history=True))
    with healthy("sft", tmp_path, data=data) as subject:
        [found] = [one.result for one in look_over(subject, text.CHECKS) if one.check.name == "mask"]
    assert found.shown is not None
    assert ">>> [cat][ and][ a]" in found.shown
    assert "[<|im_end|> END]" in found.shown
    assert "[cat and a and saw" in found.saw


def test_a_few_prompts_that_are_cut_are_counted(tmp_path: Path) -> None:
    with healthy("sft", tmp_path, max_length=36) as subject:
        [found] = [one.result for one in look_over(subject, fitting.CHECKS) if one.check.name == "room"]
    assert found.holds
    assert "could be longer than 36 tokens" in found.saw


def test_words_that_the_tokenizer_reads_otherwise_behind_the_question_are_counted() -> None:
    encoder = make_encoder(SHIPPED)
    record = Demonstration(
        prompt="How much is 2 plus 3?", completion="2 plus 3 is 5.\n5 it is.", origin="a:1"
    )
    subject = Subject(encoder=encoder, records=[record], max_length=64)
    [found] = [one.result for one in look_over(subject, text.CHECKS) if one.check.name == "mask"]
    assert found.holds, found.saw
    assert "2 of them unknown to the tokenizer" in found.saw
