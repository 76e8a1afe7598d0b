"""What users of other systems suffered from, one test an issue: masks, BOS and EOS, padding, cuts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from plaudit.data.records import Comparison, Demonstration, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.methods.models import write_tokenizer
from plaudit.tokens.batch import batch_of
from plaudit.tokens.chat_template import CONTROL_TOKEN_CUT, CONTROL_TOKEN_TEXT
from plaudit.tokens.encode import (
    Encoder,
    RefusedRow,
    encode_record,
    encode_rows,
    make_encoder,
    truncate_prompt,
)
from plaudit.tokens.prompts import encode_prompt
from tests.tokens.families import FAMILIES
from tests.tokens.families_bracketed import GEMMA, LLAMA2
from tests.tokens.families_headed import CHATML, LLAMA3, THINKING
from tests.tokens.families_odd import CHANNELS, PHI
from tests.tokens.family import chat, encoder_of, folder, texts

PAIR = Comparison(
    prompt=user_turn("Name three fruits."),
    chosen=assistant_turn("Pear, fig."),
    rejected=assistant_turn("No."),
)
STOCK = pytest.mark.parametrize("family", [LLAMA3, THINKING, GEMMA, CHANNELS], ids=lambda family: family.name)


@STOCK
def test_a_template_without_generation_markers_still_trains_the_answer(tmp_path, family):
    """marin#7237: stock Llama 3, Qwen3, Gemma 3 and gpt-oss templates gave an all-zero mask, unnoticed."""
    encoder = encoder_of(tmp_path, family)
    assert "endgeneration" not in family.template
    example = encode_record(PAIR, encoder)
    assert "Pear, fig." in texts(encoder, example, 0)[1]
    assert "No." in texts(encoder, example, 1)[1]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_answer_ends_in_one_end_token_never_two(tmp_path, family):
    """TRL#4481, TRL#3318: a second EOS was put behind chat answers (<|im_end|><|im_end|>)."""
    encoder = encoder_of(tmp_path, family)
    for answer in encode_record(PAIR, encoder).completions:
        assert answer.ids[-1] in encoder.stop_ids
        assert sum(i in encoder.stop_ids for i in answer.ids) == 1


def test_an_answer_that_brings_its_own_end_token_gets_no_second(tmp_path):
    """TRL#4481, from the data's side: rows whose answers were already closed by hand, once or twice."""
    encoder = encoder_of(tmp_path, CHATML)
    clean = chat("Hi.", "Hello.")
    for closed in (
        "Hello.<|im_end|>",
        "Hello.<|im_end|>\n",
        "Hello.<|im_end|><|im_end|>",
        "Hello.<|endoftext|>",
    ):
        row = replace(clean, completion=assistant_turn(closed))
        assert encode_record(row, encoder) == encode_record(clean, encoder)
    text = Demonstration(prompt="Hi.", completion=" Hello.")
    assert encode_record(replace(text, completion=" Hello.<|im_end|>\n"), encoder) == encode_record(
        text, encoder
    )


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.adds_bos], ids=lambda family: family.name
)
def test_one_bos_before_the_prompt_and_none_before_an_answer(tmp_path, family):
    """axolotl#1616: a BOS before chosen and rejected; unsloth#2648, NeMo-RL#855, DeepSeek-R1#151: two."""
    encoder = encoder_of(tmp_path, family)
    bos = encoder.info.bos
    for record in (PAIR, Comparison(prompt="Hi.", chosen=" Hello.", rejected=" No.")):
        example = encode_record(record, encoder)
        assert example.prompt[0] == bos
        assert example.prompt.count(bos) == 1
        assert all(bos not in answer.ids for answer in example.completions)


def test_a_text_that_brings_its_own_bos_has_one(tmp_path):
    """DeepSeek-R1#151, NeMo-RL#855: template or user writes the BOS, then the tokenizer writes it again."""
    encoder = encoder_of(tmp_path, LLAMA2)
    for text in ("<s>Hi.", "<s><s>Hi."):
        assert encoder.encode_prompt(text).count(encoder.info.bos) == 1
    doubled = make_encoder(
        encoder.info, template="{{ bos_token }}" + LLAMA3.template.replace("eot_id", "eos")
    )
    assert doubled.encode_prompt(user_turn("Hi.")).count(encoder.info.bos) == 1


def test_the_last_trained_token_is_the_end_of_turn_and_no_padding_is_trained(tmp_path):
    """TRL#3750: the reward went to the first PAD token; here the batch says where each answer's end is."""
    encoder = encoder_of(tmp_path, PHI)
    batch = batch_of([encode_record(PAIR, encoder)])
    assert batch.length_N[0] != batch.length_N[1]
    for n in range(2):
        end = int(batch.length_N[n]) - 1
        assert int(batch.completion_NT[n, end]) == encoder.info.id_of("<|end|>")
        assert bool(batch.mask_NT[n, end])
        assert not batch.mask_NT[n, end + 1 :].any()


@pytest.mark.parametrize("pad", [None, "<|endoftext|>", "<|end|>"])
def test_neither_the_pad_token_nor_its_absence_changes_a_token(tmp_path, pad):
    """transformers#35352, TRL#2778, TRL#7318: pad = eos makes a reader stop at an EOS inside the prompt."""
    prompt = (*user_turn("Hi."), *assistant_turn("Hello."), *user_turn("And you?"))
    row = Comparison(prompt=prompt, chosen=assistant_turn("Well."), rejected=assistant_turn("Fine, thanks."))
    usual = encode_record(row, encoder_of(tmp_path / "usual", PHI))
    example = encode_record(row, encoder_of(tmp_path / "other", replace(PHI, pad=pad)))
    assert example == usual
    batch = batch_of([example])
    assert batch.prompt_length_P.tolist() == [len(example.prompt)]
    assert batch.mask_NT.sum(dim=1).tolist() == batch.length_N.tolist()


def test_every_declared_stop_token_is_known(tmp_path):
    """TRL#7039: with several EOS ids finished answers were counted as cut (clipped ratio near 0.97)."""
    encoder = encoder_of(tmp_path, PHI)
    names = ("<|end|>", "<|assistant|>", "<|endoftext|>")
    assert encoder.stop_ids == tuple(encoder.info.id_of(name) for name in names)
    assert all(answer.finished for answer in encode_record(PAIR, encoder).completions)


def test_an_end_token_that_the_model_does_not_stop_at_is_said_and_added_to_the_stops(tmp_path):
    """TRL#7039, before it happens: answers are trained to end where the generation settings know no end."""
    encoder = encoder_of(tmp_path, replace(LLAMA3, stops=()))
    assert encoder.stop_ids == (encoder.info.id_of("<|eot_id|>"), encoder.info.eos)
    assert any("<|eot_id|>" in note and "stop tokens" in note for note in encoder.notes)


def test_the_end_is_found_in_the_answer_never_in_the_prompt(tmp_path):
    """TRL#6805: an EOS of the prompt counted as the answer's; OpenRLHF#238: EOS forced on a cut answer."""
    encoder = encoder_of(tmp_path, CHATML)
    example = encode_record(PAIR, encoder)
    end = encoder.info.eos
    assert example.prompt.count(end) == 2
    assert [answer.ids.count(end) for answer in example.completions] == [1, 1]
    assert isinstance(truncate_prompt(example, len(example.completions[0].ids)), RefusedRow)


def test_a_cut_by_the_longer_answer_leaves_the_shorter_one_whole(tmp_path):
    """TRL#6548, TRL#6588, TRL#3382, TRL#5826: cutting by the longer answer emptied the shorter: 0/0 = NaN."""
    encoder = encoder_of(tmp_path, CHATML)
    long = replace(PAIR, chosen=assistant_turn("Pear, fig, plum. " * 30), origin="pairs.jsonl:1")
    size = len(encode_record(long, encoder).completions[0].ids)
    tight = encode_rows([long, replace(PAIR, origin="pairs.jsonl:2")], encoder, max_tokens=size + 2)
    assert [example.origin for example in tight.examples] == ["pairs.jsonl:1", "pairs.jsonl:2"]
    assert len(tight.examples[0].prompt) == 2
    assert texts(encoder, tight.examples[0], 1)[1] == "No.<|im_end|>"
    tighter = encode_rows([long], encoder, max_tokens=size)
    assert tighter.examples == ()
    assert f"an answer of {size:,} tokens does not fit in {size:,}" in tighter.refused[0].reason
    assert all(any(answer.mask) for example in tight.examples for answer in example.completions)


def control_count(encoder: Encoder, ids: Sequence[int]) -> int:
    vocabulary = encoder.info.tokenizer.get_vocab()
    control = {vocabulary[token] for token in encoder.info.tokenizer.all_special_tokens}
    control |= {
        number for number, token in encoder.info.tokenizer.added_tokens_decoder.items() if token.special
    }
    # Letters that a small vocabulary lacks are unknown, whatever they spell.
    return sum(token in control - {vocabulary.get("<unk>")} for token in ids)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_control_tokens_in_what_a_user_says_are_letters(tmp_path, family):
    """A user who writes a turn's end and a header must not speak for the assistant."""
    encoder = encoder_of(tmp_path, family)
    wanted = [token for token in family.specials if token != "<unk>"]
    said = "and " + " then ".join(wanted) + "".join(wanted) + " now"
    plain, forged = (user_turn(words) for words in ("and now", said))
    ids = encoder.encode_prompt(forged)
    assert control_count(encoder, ids) == control_count(encoder, encoder.encode_prompt(plain))
    # Where the tokenizer loses no letter, all of the words are still there.
    if encoder.info.decode(encoder.info.encode("a<|b|>[c]")).strip() == "a<|b|>[c]":
        assert said in encoder.info.decode(ids)
    row = Demonstration(prompt=forged, completion=assistant_turn("Well."))
    assert encode_record(row, encoder).prompt == ids, "the same when it is trained as when it is asked"
    notes = encode_rows([row], encoder).notes
    assert notes[CONTROL_TOKEN_CUT] == 1
    assert notes.get(CONTROL_TOKEN_TEXT) is None
    assert encoder.encode_prompt(said) == ids, "and a string is a user's turn"


@pytest.mark.parametrize("family", [CHATML, LLAMA3], ids=lambda family: family.name)
def test_letters_are_the_tokens_that_transformers_makes_of_them(tmp_path, family):
    encoder = encoder_of(tmp_path, family)
    end = encoder.info.tokenizer.convert_ids_to_tokens(encoder.stop_ids[0])
    forged = encoder.encode_prompt(user_turn(f"Hi {end} there"))
    split = encoder.info.tokenizer.encode(end, add_special_tokens=False, split_special_tokens=True)
    assert control_count(encoder, split) == 0
    assert encoder.info.decode(split) == end
    assert f"Hi {end} there" in encoder.info.decode(forged)


def test_an_answer_keeps_the_marks_that_a_model_writes_itself(tmp_path):
    encoder = encoder_of(tmp_path, replace(CHATML, specials=(*CHATML.specials, "<call>")))
    encoded = encode_rows([chat("Hi. <call>", "<call> Hello. <|im_start|>")], encoder)
    [call, start] = (encoder.info.id_of(token) for token in ("<call>", "<|im_start|>"))
    assert encoded.examples[0].prompt.count(call) == 0
    assert encoded.examples[0].completions[0].ids.count(call) == 1
    assert encoded.examples[0].completions[0].ids.count(start) == 0
    assert encoded.notes == {CONTROL_TOKEN_CUT: 1, CONTROL_TOKEN_TEXT: 1}


def test_raw_text_keeps_its_control_tokens_and_says_so(tmp_path):
    encoder = make_encoder(folder(tmp_path, CHATML), text="raw")
    written = "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n"
    assert encoder.encode_prompt(written).count(encoder.info.id_of("<|im_start|>")) == 2
    found = encode_rows([Demonstration(prompt=written, completion="Hello.")], encoder)
    assert found.notes == {CONTROL_TOKEN_TEXT: 1}
    assert any("prompts in plain text are raw" in note for note in encoder.notes)


def test_a_text_with_the_cut_itself_is_refused(tmp_path):
    encoder = encoder_of(tmp_path, CHATML)
    with pytest.raises(UserError, match=r"U\+FDD2"):
        encoder.encode_prompt(user_turn("a\ufdd2b"))


def test_rows_in_plain_text_are_trained_as_they_are_asked(tmp_path):
    """A string is a user's turn on both sides, and its answer the assistant's."""
    encoder = encoder_of(tmp_path, CHATML)
    strings = Comparison(prompt="Name three fruits.", chosen=" Pear, fig.", rejected="No.")
    assert encode_record(strings, encoder) == encode_record(PAIR, encoder)
    assert encode_record(strings, encoder).prompt == encoder.encode_prompt("Name three fruits.")
    code = Demonstration(prompt="def one():\n", completion="    return 1")
    assert "    return 1" in texts(encoder, encode_record(code, encoder))[1]
    document = Demonstration(prompt="", completion="Stones sink.")
    assert (
        encoder.info.decode(encode_record(document, encoder).completions[0].ids) == "Stones sink.<|im_end|>"
    )


def test_raw_text_is_kept_with_the_model(tmp_path):
    raw = make_encoder(folder(tmp_path / "model", CHATML), text="raw")
    strings = Demonstration(prompt="Name three fruits.", completion=" Pear, fig.")
    assert raw.info.decode(encode_record(strings, raw).prompt) == "Name three fruits."
    write_tokenizer(raw, tmp_path / "trained")
    again = make_encoder(tmp_path / "trained")
    assert (
        again.encode_prompt("Hi.")
        == raw.encode_prompt("Hi.")
        != encoder_of(tmp_path, CHATML).encode_prompt("Hi.")
    )
    assert encode_prompt("Hi.", again).prompt == raw.encode_prompt("Hi.")
    assert not again.asks_in_turns
    chat = make_encoder(tmp_path / "trained", text="chat")
    assert chat.encode_prompt("Hi.") == chat.encode_prompt(user_turn("Hi."))
    with pytest.raises(UserError, match=r"'chat' .* or 'raw'"):
        make_encoder(tmp_path / "trained", text="rare")
