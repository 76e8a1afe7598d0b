"""Checks of text and tokens hold on healthy rows of every family of templates, and each fault is named."""

from dataclasses import replace
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from plaudit.data.records import Comparison, Demonstration, Message, assistant_turn, user_turn
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.preflight import contents, prompts, tokenization
from plaudit.preflight.check import Finding, PreflightSubject, run_checks
from plaudit.tokens.encode import encode_rows, make_encoder
from tests.engine.toy import TEMPLATE, demonstrations, make_model, write_rows
from tests.preflight.breakers_text import begun, conversations, edit
from tests.preflight.broken_text import BROKEN
from tests.preflight.subjects import failing, healthy, make_model_with_bos
from tests.tokens.families import FAMILIES
from tests.tokens.families_bracketed import GEMMA
from tests.tokens.families_headed import CHATML
from tests.tokens.families_odd import DROPS
from tests.tokens.family import folder

MINE = (*tokenization.CHECKS, *prompts.CHECKS)
SYSTEM = (Message(role="system", content="Be brief."),)
HISTORY = (*user_turn("Hi."), *assistant_turn("Hello."), *user_turn("And you?"))
UNLEARNT = Message(role="assistant", content="Hello.", trained=False)
NOT_OF_POLICIES = {"mask", "truncation"}


@pytest.mark.parametrize("method", ["sft", "preferred", "reward", "dpo", "kto", "grpo"])
def test_healthy_runs_are_looked_at_and_pass(tmp_path, method):
    made = "dpo" if method == "preferred" else method
    with healthy(made, tmp_path) as subject:
        found = {one.check.name: one.result for one in run_checks(subject, MINE)}
    skipped = NOT_OF_POLICIES if method == "grpo" else set()
    assert {name for name, one in found.items() if one.holds is None} == skipped
    assert all(one.holds for name, one in found.items() if name not in skipped), found


@pytest.mark.one_in(28)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_fails_and_nothing_else_does(tmp_path, monkeypatch, broken):
    with begun(broken, tmp_path, monkeypatch) as subject:
        found = failing(subject)
    assert set(found) == broken.fails, found
    lines = [f"{name}: {saw}" for name, saw in found.items()]
    assert any(broken.says in line for line in lines), lines


CONVERSATIONS = {
    "one turn": Demonstration(prompt=user_turn("How?"), completion=assistant_turn("Fine, final plum 😀.")),
    "a pair": Comparison(
        prompt=user_turn("Hi."), chosen=assistant_turn("Hello."), rejected=assistant_turn("")
    ),
    "several answers": Demonstration(
        prompt=user_turn("Hi."),
        completion=(*assistant_turn("Hello."), *user_turn("And you?"), *assistant_turn("Well.")),
    ),
    "a first answer of weight 0": Demonstration(
        prompt=user_turn("Hi."), completion=(UNLEARNT, *user_turn("And you?"), *assistant_turn("Well."))
    ),
    "a last answer of weight 0": Demonstration(
        prompt=user_turn("Hi."), completion=(*assistant_turn("Well."), *user_turn("And you?"), UNLEARNT)
    ),
    "a history": Demonstration(prompt=HISTORY, completion=assistant_turn("Well.")),
    "a system turn": Demonstration(prompt=(*SYSTEM, *HISTORY), completion=assistant_turn("Hello.")),
    "an end of its own": Demonstration(prompt=user_turn("Hi."), completion=assistant_turn("Well.</s>")),
    "a thought": Demonstration(
        prompt=user_turn("Hi."), completion=assistant_turn("<think>\nfig\n</think>\n\nHello.")
    ),
    "plain text": Demonstration(prompt="Hi.", completion=" Hello."),
    "plain text without a question": Demonstration(prompt="", completion="Hello."),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("turns", ["all", "last"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_of_templates_passes(tmp_path, family, turns):
    encoder = make_encoder(folder(tmp_path, family), turns=turns)
    for name, record in CONVERSATIONS.items():
        encoding = encode_rows([record], encoder)
        if encoding.refused:
            assert (name, family in (GEMMA, DROPS)) == ("a system turn", True), encoding.refused
            continue
        subject = PreflightSubject(
            encoder=encoder, records=[record], max_length=2048, trained=encoding.examples
        )
        found = {one.check.name: one.result for one in run_checks(subject, MINE)}
        assert not [(key, one.details) for key, one in found.items() if one.holds is False], name
        assert all(found[name].holds for name in ("mask", "prompt-prefix", "end-of-turn"))


def test_rows_that_a_template_refuses_are_named(tmp_path):
    encoder = make_encoder(folder(tmp_path, DROPS))
    record = CONVERSATIONS["a system turn"]
    found = run_checks(
        PreflightSubject(encoder=encoder, records=[record], max_length=64), tokenization.CHECKS
    )
    assert {
        one.result.details.partition(" the system turn")[0] for one in found if one.result.holds is False
    } == {"the chat template leaves out turn 1,"}


def test_a_pad_that_is_eos_and_rows_in_plain_text_pass(tmp_path):
    from transformers import AutoTokenizer

    make_model(tmp_path / "base", family="gpt2")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "base")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.bos_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path / "base")
    data = write_rows(tmp_path / "plain.jsonl", demonstrations(24))
    with healthy("sft", tmp_path, model=tmp_path / "base", data=data) as subject:
        found = {one.check.name: one.result for one in run_checks(subject, MINE)}
    assert not [one.details for one in found.values() if one.holds is False]
    assert "pad is EOS" in found["pad-not-trained"].details
    assert "prompts in plain text are a user's turns" in found["prompt-prefix"].details


def test_a_template_with_two_bos_is_mended_by_the_run(tmp_path):
    model = make_model_with_bos(tmp_path / "base")
    edit(model, "{{ bos_token }}{{ bos_token }}" + TEMPLATE)
    with healthy("sft", tmp_path, model=model) as subject:
        assert failing(subject) == {}


def test_what_is_trained_is_shown(tmp_path):
    data = write_rows(tmp_path / "own.jsonl", conversations(system="a red mat", history=True))
    with healthy("sft", tmp_path, data=data) as subject:
        [found] = [one.result for one in run_checks(subject, tokenization.CHECKS) if one.check.name == "mask"]
    assert found.rendered_rows is not None
    assert ">>> [cat][ and][ a]" in found.rendered_rows
    assert "[<|im_end|> END]" in found.rendered_rows
    assert "[cat and a and saw" in found.details


def test_a_few_prompts_that_are_cut_are_counted(tmp_path):
    with healthy("sft", tmp_path, max_length=36) as subject:
        [found] = [x.result for x in run_checks(subject, prompts.CHECKS) if x.check.name == "truncation"]
    assert found.holds
    assert "could be longer than 36 tokens" in found.details


def test_words_that_the_tokenizer_reads_otherwise_behind_the_question_are_counted():
    encoder = make_encoder(SHIPPED_MODEL_FOLDER)
    record = Demonstration(
        prompt="How much is 2 plus 3?", completion="2 plus 3 is 5.\n5 it is.", origin="a:1"
    )
    subject = PreflightSubject(encoder=encoder, records=[record], max_length=64)
    [found] = [one.result for one in run_checks(subject, tokenization.CHECKS) if one.check.name == "mask"]
    assert found.holds, found.details
    assert "1 of them unknown to the tokenizer" in found.details


def test_a_bos_that_begins_every_turn_is_a_turn_mark(tmp_path):
    """SmolLM2 calls <|im_start|> its BOS."""
    encoder = make_encoder(folder(tmp_path, replace(CHATML, bos="<|im_start|>")))
    records = [CONVERSATIONS["several answers"], CONVERSATIONS["a system turn"]]
    subject = PreflightSubject(encoder=encoder, records=records, max_length=256)
    found = {one.check.name: one.result for one in run_checks(subject, MINE)}
    assert found["one-bos"].holds, found["one-bos"].details


def test_a_tokenizer_that_puts_a_second_bos_before_rendered_text_is_seen(tmp_path):
    from transformers import AutoTokenizer

    model = folder(tmp_path, replace(CHATML, bos="<|im_start|>"))

    def template_bos() -> Finding:
        subject = PreflightSubject(encoder=make_encoder(model), records=[], max_length=256)
        [found] = [one for one in run_checks(subject, contents.CHECKS) if one.check.name == "template-bos"]
        return found

    assert template_bos().verdict == "pass"
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    begins = [("<|im_start|>", tokenizer.bos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=begins
    )
    tokenizer.save_pretrained(model)
    broken = template_bos()
    assert (broken.verdict, "add_special_tokens=False" in broken.result.details) == ("warn", True)
