"""Templates that rewrite, refuse, open or drop: a right result or words that say what is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Part,
    Ranking,
    Rating,
    assistant_turn,
    user_turn,
)
from plaudit.errors import UserError
from plaudit.tokens.chat_template import CONTROL_TOKEN_CUT, DOUBLE_END, TRAILING_TURNS
from plaudit.tokens.encode import (
    BOUNDARY_MERGED,
    encode_record,
    encode_record_with_notes,
    encode_rows,
    make_encoder,
)
from plaudit.tokens.rendering import render_template
from tests.tokens.families_bracketed import LLAMA2, MISTRAL
from tests.tokens.families_headed import CHATML, LLAMA3, THINKING
from tests.tokens.families_odd import ENDLESS, ZEPHYR
from tests.tokens.family import Expected, Family, chat, encoder_of, texts

REASONER = Family(
    name="the question ends in <think>, history has its thinking removed (R1)",
    template="""\
{{- bos_token -}}
{%- for turn in messages -%}
{%- if turn.role == 'user' -%}{{- '<｜User｜>' + turn.content -}}
{%- else -%}{{- '<｜Assistant｜>' + turn.content.split('</think>')[-1] + eos_token -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜><think>\\n' -}}{%- endif -%}
""",
    specials=("<bos>", "<eos>", "<｜User｜>", "<｜Assistant｜>"),
    bos="<bos>",
    eos="<eos>",
    adds_bos=True,
    single=Expected(),
    all=Expected(),
    last=Expected(),
    system=Expected(),
)
TALK = (*assistant_turn("Hello."), *user_turn("And you?"), *assistant_turn("Well."))


def test_thinking_in_a_last_answer_is_trained(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, THINKING)
    thought = "<think>\nthree fruits\n</think>\n\nPear."
    example = encode_record(chat("Hi.", thought), encoder)
    assert texts(encoder, example) == (
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n",
        thought + "<|im_end|>",
    )


def test_thinking_that_the_template_strips_from_history_is_never_silently_untrained(tmp_path: Path) -> None:
    completion = (*assistant_turn("<think>\nwho\n</think>\n\nHello."), *TALK[1:])
    row = Demonstration(prompt=user_turn("Hi."), completion=completion, origin="chats.jsonl:9")
    encoder = encoder_of(tmp_path, THINKING)
    with pytest.raises(UserError, match=r"chats\.jsonl:9: .*a part of the answer in turn 2.*turns='last'"):
        encode_record(row, encoder)
    last = encode_record(row, make_encoder(encoder.info, turns="last"))
    assert texts(encoder, last)[1] == "<think>\n\n</think>\n\nWell.<|im_end|>"
    assert "who" not in texts(encoder, last)[0]


def test_thinking_can_be_turned_off_by_the_templates_own_switch(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, THINKING, variables={"enable_thinking": False})
    prompt, trained = texts(encoder, encode_record(chat("Hi.", "Hello."), encoder))
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert trained == "Hello.<|im_end|>"


@pytest.mark.parametrize(
    "answer",
    ["<think>\nhm\n</think>\n\nPear.", "<think>hm\n</think>\n\nPear.", "\n<think>\nhm\n</think>\n\nPear."],
)
def test_a_question_that_opens_the_thinking_is_continued_by_it(tmp_path: Path, answer: str) -> None:
    encoder = encoder_of(tmp_path, REASONER)
    example = encode_record(chat("Hi.", answer), encoder)
    assert texts(encoder, example) == (
        "<bos><｜User｜>Hi.<｜Assistant｜><think>\n",
        "hm\n</think>\n\nPear.<eos>",
    )
    assert example.prompt == encoder.encode_prompt(user_turn("Hi."))


def test_an_opened_thinking_with_generation_markers_still_gives_an_encoder(tmp_path: Path) -> None:
    marked = REASONER.template.replace("{%- else -%}", "{%- else -%}{%- generation -%}")
    marked = marked.replace("+ eos_token -}}{%- endif", "+ eos_token -}}{%- endgeneration -%}{%- endif")
    assert encoder_of(tmp_path, replace(REASONER, template=marked)).notes == ()


def test_a_question_that_opens_the_thinking_refuses_an_answer_without(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, REASONER)
    with pytest.raises(UserError, match="does not begin with '<think>': the model would learn to answer"):
        encode_record(chat("Hi.", "Pear."), encoder)


def test_earlier_answers_that_are_asked_otherwise_than_written_are_refused(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, REASONER)
    row = Demonstration(prompt=user_turn("Hi."), completion=TALK)
    with pytest.raises(UserError, match=r"rewrites turn 2 or what stands before it.*turns='last'"):
        encode_record(row, encoder)


def test_a_system_turn_that_moves_with_the_conversation_allows_only_the_last_answer(tmp_path: Path) -> None:
    row = Demonstration(
        prompt=(Message(role="system", content="Be brief."), *user_turn("Hi.")), completion=TALK
    )
    encoder = encoder_of(tmp_path, MISTRAL)
    with pytest.raises(UserError, match=r"rewrites turn 3 or what stands before it"):
        encode_record(row, encoder)
    last = make_encoder(encoder.info, turns="last")
    encoded = encode_record_with_notes(row, last)
    assert texts(last, encoded.example) == (
        "<s>[INST] Hi.[/INST] Hello.</s>[INST] Be brief.\n\nAnd you?[/INST]",
        " Well.</s>",
    )
    assert any("moves a turn" in note for note in encoded.notes)


def test_the_words_of_others_inside_an_answer_are_there_and_not_trained(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    tool = Message(role="tool", content="42")
    completion = (*assistant_turn("Wait."), tool, *assistant_turn("It is 42."))
    row = Demonstration(prompt=user_turn("How much?"), completion=completion)
    (answer,) = encode_record(row, encoder).completions
    assert encoder.info.decode(answer.ids) == (
        "Wait.<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\nIt is 42.<|im_end|>"
    )
    untrained = [i for i, on in zip(answer.ids, answer.mask, strict=True) if not on]
    assert encoder.info.decode(untrained) == "\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"


def test_an_end_token_inside_an_answer_does_not_end_its_mask(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    encoded = encode_record_with_notes(chat("Hi.", "a<|im_end|>b"), encoder)
    assert texts(encoder, encoded.example)[1] == "a<|im_end|>b<|im_end|>"
    # Letters and not the token: nobody who answers like this goes on behind it.
    assert encoded.example.completions[0].ids.count(encoder.info.id_of("<|im_end|>")) == 1
    assert encoded.notes == (CONTROL_TOKEN_CUT,)


def test_turns_after_the_last_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    row = Demonstration(prompt=user_turn("Hi."), completion=TALK[:1])
    encoding = encode_rows([row, replace(row, completion=TALK[:2])], encoder)
    assert encoding.examples[0] == encoding.examples[1]
    assert encoding.notes == {TRAILING_TURNS: 1}


def test_the_effective_template_makes_the_plain_library_ask_what_was_trained(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, ZEPHYR)
    tokenizer = encoder.info.tokenizer
    tokenizer.chat_template = encoder.template
    tokenizer.save_pretrained(tmp_path / "saved")
    again = make_encoder(tmp_path / "saved")
    assert again.notes == ()
    assert again.encode_prompt(user_turn("Hi.")) == encoder.encode_prompt(user_turn("Hi."))
    assert encoder.encode_prompt(user_turn("Hi."))[0] == encoder.info.bos


def test_parts_of_text_are_the_text_and_a_picture_is_refused(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    parts = Message(role="user", content=(Part(kind="text", text="Name "), Part(kind="text", text="three.")))
    assert encoder.encode_prompt((parts,)) == encoder.encode_prompt(user_turn("Name three."))
    picture = Message(role="user", content=(Part(kind="image", source="cat.png"),))
    with pytest.raises(
        UserError, match="a turn of the user holds a picture, and this model takes words alone"
    ):
        encoder.encode_prompt((picture,))


def test_every_kind_of_answered_record_gives_its_answers_in_order(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, LLAMA3)
    prompt, one, two = user_turn("Hi."), assistant_turn("Hello."), assistant_turn("No.")
    pair = encode_record(Comparison(prompt=prompt, chosen=one, rejected=two), encoder)
    ranked = encode_record(Ranking(prompt=prompt, completions=(one, two), ranks=(1.0, 2.0)), encoder)
    rated = encode_record(Rating(prompt=prompt, completion=one, score=1.0), encoder)
    assert pair == ranked
    assert rated.completions == pair.completions[:1]
    assert [texts(encoder, pair, k)[1] for k in (0, 1)] == ["Hello.<|eot_id|>", "No.<|eot_id|>"]


def test_answers_with_different_earlier_turns_have_no_common_last_prompt(tmp_path: Path) -> None:
    row = Comparison(prompt=user_turn("Hi."), chosen=TALK, rejected=assistant_turn("No."))
    encoder = encoder_of(tmp_path, CHATML)
    assert len(encode_record(row, encoder).completions) == 2
    with pytest.raises(UserError, match="the answers of this row have different prompts"):
        encode_record(row, make_encoder(encoder.info, turns="last"))


def test_plain_text_gets_the_end_token_and_an_empty_prompt_begins_like_a_document(tmp_path: Path) -> None:
    for family, first in ((ENDLESS, "<|endoftext|>"), (LLAMA2, "<s>"), (CHATML, "<|im_end|>")):
        encoder = encoder_of(tmp_path / family.name, family)
        example = encode_record(Demonstration(prompt="", completion="Hello."), encoder)
        prompt, trained = texts(encoder, example)
        assert (prompt, trained.strip()) == (first, "Hello." + family.eos)
        assert len(example.prompt) == 1


def test_a_seam_that_melts_is_kept_apart(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    row = chat("Hi.", "\n\nHello.")
    encoded = encode_record_with_notes(row, encoder)
    assert encoded.notes == (BOUNDARY_MERGED,)
    assert texts(encoder, encoded.example)[1] == "\n\nHello.<|im_end|>"
    assert encoded.example.prompt == encoder.encode_prompt(user_turn("Hi."))
    assert encode_record_with_notes(chat("Hi.", "Hello.<|im_end|>"), encoder).notes == (DOUBLE_END,)


FEATURES = """\
{%- set state = namespace(seen=0, words='') -%}
{%- macro shout(text, mark='!') -%}{{ text | upper ~ mark }}{%- endmacro -%}
{%- set facts = dict(a=1, b=[1, 2.5, none, true]) -%}
{%- for m in messages -%}
    {%- if loop.index0 == 7 %}{% break %}{% endif -%}
    {%- set state.seen = state.seen + 1 -%}
    {%- set state.words = state.words ~ ',' ~ m.role ~ loop.index -%}
    {{ shout(m.content) + shout(m.content, mark='?') * 2 }}|{{ '%s-%05.1f' % (m.role, loop.index) }}
    {%- for part in m.content.split() recursive %} <{{ part | trim | replace('a', '&') }}> {% endfor %}
    {%- if m.role == 'assistant' -%}
        {% generation %}{{ m['content'] }}\ufdd0{% endgeneration %}{% continue %}
    {%- endif -%}
    {{ messages | map(attribute='role') | unique | join(' + ') }}
    {{ 'é<&>' | tojson }} {{ facts | tojson(indent=1) }}
{% endfor -%}
{{ state.seen }}{{ state.words }}{{ tools is none }}{{ nothing_of_it }}{{ strftime_now('%Y') }}
{% for n in range(3, 0, -1) -%} {{ n ** 2 }} {{ n % 2 }} {% else %}none{% endfor %}
{% if add_generation_prompt %}{{ bos_token }}{% endif %}
"""
"""What templates are written with, each once."""


@pytest.mark.parametrize("ask", [True, False])
def test_templates_mean_what_they_mean_to_transformers(ask: bool) -> None:
    """The renderer is ours, for it is bounded; what it renders is what every other engine renders."""
    words = ("ab cd", "\ufdd1", "e. <f>", "g", "h", "a a", "j", "k", "l", "m")
    turns = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(words)]
    peer: Any = render_jinja_template
    for variables in ({"bos_token": "<s>"}, {"bos_token": "<s>", "tools": None, "facts": 3}):
        [text], _ = peer([turns], chat_template=FEATURES, add_generation_prompt=ask, **variables)
        assert render_template(FEATURES, turns, variables, add_generation_prompt=ask) == (text, ())
    plain = FEATURES.replace("\ufdd0", "")
    turns = [turn | {"content": turn["content"].replace("\ufdd1", "é")} for turn in turns]
    [text], [spans] = peer([turns], chat_template=plain, return_assistant_tokens_mask=True, bos_token="<s>")
    assert render_template(plain, turns, {"bos_token": "<s>"}, add_generation_prompt=False, marked=True) == (
        text,
        tuple(spans),
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ dict.mro() }}",
        "{{ lipsum() }}",
    ],
)
def test_templates_reach_no_further_than_in_transformers(source: str) -> None:
    with pytest.raises(TemplateError):
        render_template(source, [], {}, add_generation_prompt=False)


def test_an_answer_of_weight_0_is_read_and_not_trained(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    first = replace(TALK[0], trained=False)
    row = Demonstration(prompt=user_turn("Hi."), completion=(first, *TALK[1:]))
    prompt, answer = texts(encoder, encode_record(row, encoder))
    assert prompt.endswith("Hello.<|im_end|>\n<|im_start|>user\nAnd you?<|im_end|>\n<|im_start|>assistant\n")
    assert answer == "Well.<|im_end|>"
    # A later one is context, as the turns after the last trained answer are left out.
    later = Demonstration(prompt=user_turn("Hi."), completion=(*TALK[:2], replace(TALK[2], trained=False)))
    assert texts(encoder, encode_record(later, encoder))[1] == "Hello.<|im_end|>"
    none = Demonstration(prompt=user_turn("Hi."), completion=(first,))
    with pytest.raises(UserError, match="every answer has the weight 0"):
        encode_record(none, encoder)


def test_an_answer_of_weight_0_between_trained_ones_is_masked(tmp_path: Path) -> None:
    encoder = encoder_of(tmp_path, CHATML)
    silent = replace(assistant_turn("Hm.")[0], trained=False)
    row = Demonstration(prompt=user_turn("Hi."), completion=(*TALK[:2], silent, *user_turn("So?"), *TALK[2:]))
    example = encode_record(row, encoder)
    assert texts(encoder, example)[1] == "Hello.<|im_end|>Well.<|im_end|>"
    assert "Hm.<|im_end|>" in encoder.info.decode(example.completions[0].ids)


def test_thinking_in_a_field_of_its_own_is_trained_or_refused(tmp_path: Path) -> None:
    template = THINKING.template.replace(
        "{%- if '</think>' in turn.content -%}",
        "{%- if turn.reasoning_content -%}{%- set thought = turn.reasoning_content -%}{%- endif -%}"
        "{%- if '</think>' in turn.content -%}",
    )
    reads = replace(THINKING, template=template)
    thought = replace(assistant_turn("Well.")[0], reasoning="How are you?")
    row = Demonstration(prompt=user_turn("Hi."), completion=(thought,))
    encoder = encoder_of(tmp_path / "reads", reads)
    trained = texts(encoder, encode_record(row, encoder))[1]
    assert trained == "<think>\nHow are you?\n</think>\n\nWell.<|im_end|>"
    with pytest.raises(UserError, match=r"reasoning_content.*which this chat template does not read"):
        encode_record(row, encoder_of(tmp_path / "deaf", THINKING))
    # Thinking that the template takes out of an earlier turn would not be trained.
    longer = replace(row, completion=(thought, *TALK[1:]))
    with pytest.raises(UserError, match="leaves out a part of the answer in turn 2"):
        encode_record(longer, encoder)
