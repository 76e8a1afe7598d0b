"""What cannot be trained is refused in words: rows, templates, folders, settings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config

from plaudit.data.records import Demonstration, Ranking, user_turn
from plaudit.errors import UserError
from plaudit.tokens.encode import encode_record, encode_rows, make_encoder
from plaudit.tokens.prompts import encode_prompt_records
from plaudit.tokens.tokenizer import load_tokenizer
from tests.models.damaged_folders import ENDLESS
from tests.tokens.families_headed import CHATML, MARKED
from tests.tokens.families_odd import DROPS, PHI
from tests.tokens.family import chat, folder


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Demonstration(prompt=user_turn("Hi."), completion="Hello."), "one side is plain text and the other"),
        (
            Demonstration(prompt=user_turn("Hi."), completion=user_turn("Hello.")),
            "an answer begins with 'user'",
        ),
        (Demonstration(prompt=user_turn("Hi."), completion=()), "an answer begins with no turn"),
        (Ranking(prompt="Hi.", completions=(), ranks=()), "the row has no answer"),
        (Demonstration(prompt="Hi.", completion="\ud83d"), "half a character"),
    ],
)
def test_rows_that_cannot_be_trained_are_refused_in_words(tmp_path: Path, row, words: str) -> None:
    encoder = make_encoder(folder(tmp_path, CHATML))
    encoding = encode_rows([replace(row, origin="rows.jsonl:4")], encoder)
    assert encoding.examples == ()
    assert encoding.refused[0].reason.startswith("rows.jsonl:4: ")
    assert words in encoding.refused[0].reason


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("\n{{ messages[0].nothing.at_all }}", "refuses this conversation .* in its line 2"),
        ("{% for m in messages %}{{ m.content }}\n{% endfo %}", "is no Jinja: line 2: .*endfo"),
        (CHATML.template.replace("turn.content", "(turn.content | upper)"), "as they are.*PLAUDITANSWERS"),
        (
            CHATML.template.replace(
                "turn.content", "(turn.content | lower if turn.role == 'user' else turn.content)"
            ),
            "changes the letters of turn 1, the user turn",
        ),
        (
            CHATML.template.replace("turn.content", "(turn.content | replace('lo.', 'p!'))"),
            "'Hello.' became 'Help!",
        ),
        ("{{ messages[0].content }}", "does not write an assistant's words exactly once"),
        ("{% for m in messages %}{{ m.content + m.content }}{% endfor %}", "exactly once"),
        (
            MARKED.template.replace("'<|im_start|>'", "'<' + (messages | length | string) + '>'"),
            "rewrites turn|asks in",
        ),
    ],
)
def test_a_broken_template_is_named(tmp_path: Path, template: str, words: str) -> None:
    where = folder(tmp_path, CHATML)
    row = chat("Hi.", "Hello.")
    with pytest.raises(UserError, match=words):
        encode_record(row, make_encoder(where, template=template))


def test_a_row_on_which_the_template_never_ends_ends_the_reading(tmp_path: Path) -> None:
    """Every further row would take as long; one that the template refuses is a bad row as ever."""
    row_loops = "{% if 'loop' in messages[0].content %}" + ENDLESS + "{% endif %}"
    row_fails = "{% if 'fail' in messages[0].content %}{{ 1 // 0 }}{% endif %}"
    encoder = make_encoder(folder(tmp_path, CHATML), template=row_loops + row_fails + CHATML.template)
    rows = [
        chat(words, "Hello.", origin=f"rows.jsonl:{n}")
        for n, words in enumerate(("Hi.", "Now fail.", "Ho.", "Now loop.", "He."), start=1)
    ]
    encoding = encode_rows(rows[:3], encoder)
    assert len(encoding.examples) == 2
    (refused,) = encoding.refused
    assert refused.reason.startswith("rows.jsonl:2: the chat template refuses this conversation")
    assert "division or modulo by zero" in refused.reason
    with pytest.raises(UserError, match=r"^rows\.jsonl:4: the chat template comes to no end"):
        encode_rows(rows, encoder)
    with pytest.raises(UserError, match="the chat template comes to no end"):
        encode_prompt_records(rows, encoder, 1000)


def test_a_conversation_needs_a_template(tmp_path: Path) -> None:
    where = folder(tmp_path, CHATML)
    (where / "chat_template.jinja").unlink()
    encoder = make_encoder(where)
    assert encoder.template is None
    with pytest.raises(UserError, match="has no chat template"):
        encoder.encode_prompt(user_turn("Hi."))
    assert encoder.info.decode(encoder.encode_prompt("Hi.")) == "Hi."


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_tokenizer(tmp_path / "missing")
    with pytest.raises(UserError, match=r"config\.json is missing \(it holds nothing\)"):
        load_tokenizer(tmp_path)
    where = folder(tmp_path / "model", PHI)
    (where / "generation_config.json").write_text("[1, 2", encoding="utf-8")
    with pytest.raises(UserError, match=r"generation_config\.json: not valid JSON"):
        load_tokenizer(where)


def test_code_in_the_folder_is_not_run(tmp_path: Path) -> None:
    where = folder(tmp_path, CHATML)
    settings = json.loads((where / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": [None, "trap.Trap"]}
    settings["tokenizer_class"] = "Trap"
    (where / "tokenizer_config.json").write_text(json.dumps(settings))
    (where / "trap.py").write_text("raise SystemExit('the trap was run')")
    with pytest.raises(UserError, match="code in the folder is never run"):
        load_tokenizer(where)


def test_wrong_settings_fail_when_the_encoder_is_built(tmp_path: Path) -> None:
    where = folder(tmp_path, DROPS)
    with pytest.raises(UserError, match="turns is 'first'; it is 'all'"):
        make_encoder(where, turns="first")


def test_words_that_become_no_token_are_told(tmp_path: Path) -> None:
    """transformers takes its own class for a qwen2 folder; it makes nothing of words that it lacks."""
    words = Tokenizer(WordLevel({"<eos>": 0, "<unk>": 1, "w8": 2, "w30": 3}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>").save_pretrained(tmp_path)
    Qwen2Config(vocab_size=4).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"\(Qwen2Tokenizer\) makes no token of 'w8 w30'"):
        load_tokenizer(tmp_path).encode("w8 w30")
