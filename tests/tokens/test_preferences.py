"""Judged rows become tokens: answers in their order, what was said of them, and where each step ends."""

import math
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from plaudit.data.records import Comparison, Message, Ranking, Rating, Steps, Text, assistant_turn
from plaudit.lab.world import base_model_folder
from plaudit.tokens import preferences
from plaudit.tokens.encode import PROMPT_TRUNCATED, Encoder, make_encoder
from plaudit.tokens.tokenizer import tokenizer_info
from tests.tokens.families import FAMILIES
from tests.tokens.families_bracketed import LLAMA2
from tests.tokens.families_headed import CHATML
from tests.tokens.family import Family, folder

SOLUTION = ("Hello.", "2 + 2 = 4, and 3 + 4 = 7.", "Fine, thanks")
ASKED: dict[str, Text] = {
    "plain text": "How are you? ",
    "conversation": (Message(role="user", content="How are you?"),),
}
MERGES = [(")", "."), (".", "Ċ"), ("Ċ", "("), ("x", "Ċ"), ("xĊ", "y"), ("Ġ", "2")]


@cache
def merging(first: tuple[str, str]) -> Encoder:
    """Bytes, some of which are joined over the line's end; ``first`` goes before all other joins."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [first, *(pair for pair in MERGES if pair != first)]
    words = ["</s>", *alphabet, *("".join(pair) for pair in merges)]
    built = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    return make_encoder(tokenizer_info(PreTrainedTokenizerFast(tokenizer_object=built, eos_token="</s>")))


@cache
def encoder(family: Family = CHATML) -> Encoder:
    return make_encoder(folder(Path(mkdtemp()), family))


@cache
def worlds() -> Encoder:
    return make_encoder(base_model_folder())


def row_of(
    record: preferences.JudgedRecord, by: Encoder, max_tokens: int | None = None
) -> preferences.JudgedRow:
    encoding = preferences.encode_judged([record], by, max_tokens)
    assert encoding.refused == ()
    (row,) = encoding.examples
    return row


def solved(prompt: Text, steps: tuple[str, ...]) -> Steps:
    return Steps(prompt=prompt, steps=steps, labels=(1.0,) * len(steps), origin="s.jsonl:4")


def squeezed(text: str) -> str:
    return "".join(text.split())


def lies_at_the_first_token_that_holds_it(record: Steps, by: Encoder, row: preferences.JudgedRow) -> None:
    """Decoding up to each end gives back the solution so far; one token less does not."""
    assert isinstance(row.judgement, preferences.StepLabels)
    ids = row.example.completions[0].ids
    assert len(row.judgement.ends) == len(record.steps)
    for number, end in enumerate(row.judgement.ends, start=1):
        wanted = squeezed("\n".join(record.steps[:number]))
        assert wanted in squeezed(by.info.decode(ids[: end + 1]))
        assert wanted not in squeezed(by.info.decode(ids[:end]))


@pytest.mark.parametrize("asked", ASKED)
def test_answers_keep_their_order_and_what_was_said_of_them(asked):
    by, prompt = encoder(), ASKED[asked]

    def says(words: str) -> Text:
        return words if asked == "plain text" else assistant_turn(words)

    pair = Comparison(prompt=prompt, chosen=says("Well."), rejected=says("Hi."), origin="a:1")
    completions = (says("Hi."), says("Hello."), says("Well."))
    ranked = Ranking(prompt=prompt, completions=completions, ranks=(2.0, 1.0, 2.0), origin="a:2")
    rated = Rating(prompt=prompt, completion=says("Hi."), score=-1.5, origin="a:3")
    thumb = Rating(prompt=prompt, completion=says("Hi."), score=1.0, thumb=True, origin="a:4")
    rows = preferences.encode_judged([pair, ranked, rated, thumb], by).examples

    assert [row.judgement for row in rows] == [
        preferences.PairLabel(probability=1.0, margin=0.0),
        preferences.RankingLabel(ranks=(2.0, 1.0, 2.0)),
        preferences.RatingLabel(score=-1.5, thumb=False),
        preferences.RatingLabel(score=1.0, thumb=True),
    ]
    assert [row.origin for row in rows] == ["a:1", "a:2", "a:3", "a:4"]
    told = [[by.info.decode(answer.ids) for answer in row.example.completions] for row in rows]
    words = [[text.split("<|")[0].strip() for text in texts] for texts in told]
    assert words == [["Well.", "Hi."], ["Hi.", "Hello.", "Well."], ["Hi."], ["Hi."]]
    assert all(row.prompt == by.encode_prompt(prompt) for row in rows)


@pytest.mark.parametrize(("chance", "margin"), [(None, None), (0.5, 1.0), (0.25, None), (0.0, -2.0)])
def test_a_chance_and_a_margin_are_kept(chance, margin):
    pair = Comparison(
        prompt="How are you? ", chosen="Well.", rejected="Hi.", probability=chance, margin=margin
    )
    said = row_of(pair, encoder()).judgement
    assert said == preferences.PairLabel(probability=1.0 if chance is None else chance, margin=margin or 0.0)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_step_ends_where_its_last_character_is_in_every_family(family, asked):
    by, record = encoder(family), solved(ASKED[asked], SOLUTION)
    encoding = preferences.encode_judged([record], by)
    if encoding.refused:
        # Some templates cannot write this conversation at all; then no answer to it can be written either.
        plain = Rating(prompt=record.prompt, completion=assistant_turn("\n".join(SOLUTION)), score=1.0)
        assert asked == "conversation"
        assert preferences.encode_judged([plain], by).refused
        return
    (row,) = encoding.examples
    lies_at_the_first_token_that_holds_it(record, by, row)
    if family.kind == "words":
        assert row.judgement == preferences.StepLabels(ends=(1, 14, 17), labels=(1.0, 1.0, 1.0))


def test_a_blank_that_the_template_writes_behind_an_answer_is_no_part_of_a_step():
    by = encoder(LLAMA2)
    row = row_of(solved(ASKED["conversation"], ("Hello.", "Fine.")), by)
    assert isinstance(row.judgement, preferences.StepLabels)
    ids = row.example.completions[0].ids
    assert [by.info.decode(ids[end : end + 1])[-1:] for end in row.judgement.ends] == [".", "."]
    assert row.judgement.ends[-1] < len(ids) - 2


@pytest.mark.parametrize("first", MERGES[:3], ids=["marks", "line ends", "line beginnings"])
def test_it_is_the_same_character_however_it_is_joined_with_the_line_end(first):
    """By a tokenizer's own offsets: ``").\\n("`` is cut in three ways, and otherwise at the text's end."""
    by, steps = merging(first), ("(2).", "(22).", "2")
    row = row_of(solved("2? ", steps), by)
    assert isinstance(row.judgement, preferences.StepLabels)
    text = "2? " + "\n".join(steps)
    offsets = by.info.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ids = row.example.completions[0].ids
    before = len(offsets) - (len(ids) - 1)
    places = [len("2? " + "\n".join(steps[:number])) - 1 for number in (1, 2, 3)]
    wanted = [next(t for t, (_, end) in enumerate(offsets) if end > place) - before for place in places]
    assert [*row.judgement.ends] == wanted


def test_the_worlds_tokenizer_ends_steps_at_their_last_word():
    row = row_of(solved(ASKED["conversation"], ("two red apples", "no pears are red.")), worlds())
    assert isinstance(row.judgement, preferences.StepLabels)
    ids = row.example.completions[0].ids
    assert [worlds().info.decode(ids[end : end + 1]) for end in row.judgement.ends] == ["apples", "."]


STEPS = st.lists(
    st.text(alphabet="xy.)(2é ", min_size=1, max_size=5).filter(lambda text: text.strip() == text),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, first=st.sampled_from(MERGES), chat=st.booleans())
def test_the_tokens_up_to_each_end_decode_to_the_solution_so_far(steps, first, chat):
    by = encoder(LLAMA2) if chat else merging(first)
    record = solved(ASKED["conversation"] if chat else "2? ", tuple(steps))
    encoding = preferences.encode_judged([record], by)
    for row in encoding.examples:
        lies_at_the_first_token_that_holds_it(record, by, row)
        assert isinstance(row.judgement, preferences.StepLabels)
        assert sorted(set(row.judgement.ends)) == [*row.judgement.ends]
    for refused in encoding.refused:
        # Only "x", a line's end and "y" are ever one token.
        assert "has no token of its own" in refused.reason
        joined = "\n".join(steps)
        assert "x\ny" in joined
        assert not chat


def test_a_prompt_that_is_cut_moves_no_end():
    by, steps = encoder(), ("Hello.", "And you?")
    long = solved("The quick brown fox jumps over the lazy dog. How are you? ", steps)
    whole = row_of(long, by)
    encoding = preferences.encode_judged([long], by, len(whole.example.completions[0].ids) + 3)
    (short,) = encoding.examples
    assert len(short.prompt) == 3 < len(whole.prompt)
    assert short.prompt == whole.prompt[-3:]
    assert short.judgement == whole.judgement
    assert short.example.completions == whole.example.completions
    assert encoding.notes[PROMPT_TRUNCATED] == 1


REFUSED: dict[str, tuple[preferences.JudgedRecord, str]] = {
    "a ranking of one": (
        Ranking(prompt="How? ", completions=("Hi.",), ranks=(1.0,), origin="r.jsonl:7"),
        "orders nothing; leave it out",
    ),
    "a score that is no number": (
        Rating(prompt="How? ", completion="Hi.", score=math.nan, origin="r.jsonl:7"),
        "the score is nan, not a number; leave it out",
    ),
    "a chance above 1": (
        Comparison(prompt="How? ", chosen="Hi.", rejected="No.", probability=1.5, origin="r.jsonl:7"),
        "a probability of 1.5; it is a number from 0 to 1",
    ),
    "a chance that is no number": (
        Comparison(prompt="How? ", chosen="Hi.", rejected="No.", probability=math.nan, origin="r.jsonl:7"),
        "it is a number from 0 to 1",
    ),
    "a label below 0": (
        Steps(prompt="How? ", steps=("Hi.",), labels=(-1.0,), origin="r.jsonl:7"),
        "a label of -1.0; it is a number from 0 to 1",
    ),
    "a step of blanks": (
        Steps(prompt="How? ", steps=("Hi.", "  "), labels=(1.0, 0.0), origin="r.jsonl:7"),
        "step 2 ('  ') has no token of its own",
    ),
    "an answer that does not fit": (
        Rating(prompt="How? ", completion="Fine, thanks. " * 20, score=1.0, origin="r.jsonl:7"),
        "does not fit in 60 beside its prompt",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_used_is_refused_by_name_and_the_rest_is_kept(what):
    bad, why = REFUSED[what]
    good = Rating(prompt="How? ", completion="Well.", score=2.0, origin="r.jsonl:8")
    encoding = preferences.encode_judged([good, bad, good], encoder(), 60)
    assert [row.judgement for row in encoding.examples] == [
        preferences.RatingLabel(score=2.0, thumb=False)
    ] * 2
    (refused,) = encoding.refused
    assert refused.origin == "r.jsonl:7"
    assert why in refused.reason


def test_a_step_that_shares_its_only_token_with_the_one_before_is_refused():
    (refused,) = preferences.encode_judged([solved("2? ", ("x", "y", "2"))], merging(("x", "Ċ"))).refused
    assert "s.jsonl:4: step 2 ('y') has no token of its own" in refused.reason
    assert "join it with its neighbour" in refused.reason


def test_a_muted_row_is_the_same_but_for_counting():
    row = row_of(solved("2? ", ("x", "2")), merging(MERGES[0]))
    silent = preferences.muted(row)
    assert (row.counts, silent.counts) == (True, False)
    assert (silent.example, silent.judgement, silent.tokens, silent.prompt) == (
        row.example,
        row.judgement,
        row.tokens,
        row.prompt,
    )
