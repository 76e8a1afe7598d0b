"""A word in front says how good the answer is; after training the model answers by the word."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from plaudit.data import records, transforms
from plaudit.data.transforms import (
    ControlSettings,
    preferred_only,
    prepend_to_prompt,
    quantile_levels,
    with_context,
    with_control_words,
)
from plaudit.engine.distributed import single_process
from plaudit.engine.step import Stepper, take_step
from plaudit.errors import UserError
from plaudit.methods.supervised.objective import likelihood_objective, microbatches_of
from plaudit.models.policy import Policy
from plaudit.tokens.encode import encode_rows, make_encoder
from tests.tokens.families_headed import CHATML
from tests.tokens.family import folder

LEVELS = ControlSettings(style="levels", levels=3)


def pair(**facts):
    return records.Comparison(prompt="p", chosen="a", rejected="b", origin="f:1", **facts)


def ratings(*scores, **facts):
    return [records.Rating(prompt="p", completion=f"c{score}", score=score, **facts) for score in scores]


def thumbs(*scores, **facts):
    return ratings(*scores, thumb=True, **facts)


def said(lesson):
    return [(row.prompt, row.completion) for row in lesson.demonstrations]


def test_of_a_comparison_the_likelier_is_good_and_the_other_bad():
    lesson = with_control_words([pair()])
    assert said(lesson) == [("GOOD\n\np", "a"), ("BAD\n\np", "b")]
    assert lesson.word_counts == {"BAD": 1, "GOOD": 1}
    assert lesson.best_word == "GOOD"
    assert said(with_control_words([pair(probability=0.2)])) == [("GOOD\n\np", "b"), ("BAD\n\np", "a")]


@pytest.mark.parametrize("facts", [{"probability": 0.5}, {"strength": 0.0}])
def test_a_tie_is_left_out_and_counted(facts):
    lesson = with_control_words([pair(), pair(**facts)])
    assert len(lesson.demonstrations) == 2
    assert lesson.reason_counts == {transforms.TIE: 1}
    assert lesson.left_out[0].origin == "f:1"


def test_thumbs_speak_for_themselves_and_points_do_not():
    lesson = with_control_words([*thumbs(1.0, 0.0), *ratings(4.0)])
    assert said(lesson) == [("GOOD\n\np", "c1.0"), ("BAD\n\np", "c0.0")]
    assert lesson.reason_counts == {transforms.SCALE_SCORE: 1}


def test_of_a_ranking_the_ends_count():
    ranking = records.Ranking(prompt="p", completions=("a", "b", "c", "d"), ranks=(2.0, 1.0, 3.0, 1.0))
    lesson = with_control_words(
        [ranking, records.Ranking(prompt="p", completions=("a", "b"), ranks=(1.0, 1.0))]
    )
    assert said(lesson) == [("GOOD\n\np", "b"), ("BAD\n\np", "c"), ("GOOD\n\np", "d")]
    assert lesson.reason_counts == {transforms.MIDDLE_RANK: 1, transforms.TIE: 1}


def test_what_nobody_judged_is_left_out_and_counted():
    rows = [
        records.Demonstration(prompt="p", completion="c"),
        records.Steps(prompt="p", steps=("s",), labels=(1.0,)),
        records.Prompt(prompt="p"),
    ]
    assert with_control_words([pair(), *rows]).reason_counts == {transforms.UNJUDGED: 3}


def test_who_said_it_and_where_stay_with_the_answer():
    good, bad = with_control_words([pair(annotator="ada", group="g", category="fact")]).demonstrations
    for row in (good, bad):
        assert (row.annotator, row.group, row.category, row.origin) == ("ada", "g", "fact", "f:1")


def test_rows_without_any_use_or_with_one_word_alone_are_refused():
    with pytest.raises(UserError, match=f"no row can carry a control word .2 × {transforms.SCALE_SCORE}"):
        with_control_words(ratings(1.0, 2.0))
    with pytest.raises(UserError, match=f"1 × {transforms.UNSCORED}"):
        with_control_words([pair()], LEVELS)
    with pytest.raises(UserError, match="nothing was left out"):
        with_control_words([])
    with pytest.raises(UserError, match="all 2 answers that can be used are GOOD"):
        with_control_words(thumbs(1.0, 1.0))
    with pytest.raises(UserError, match=r"all 3 answers that can be used are <reward_0>"):
        with_control_words(ratings(4.0, 4.0, 4.0), LEVELS)


def test_levels_are_parts_of_equal_size():
    lesson = with_control_words(ratings(6.0, 1.0, 5.0, 2.0, 4.0, 3.0), LEVELS)
    assert [row.prompt.split()[0] for row in lesson.demonstrations] == [
        *("<reward_2>", "<reward_0>", "<reward_2>", "<reward_0>", "<reward_1>", "<reward_1>")
    ]
    assert lesson.word_counts == {"<reward_0>": 2, "<reward_1>": 2, "<reward_2>": 2}
    assert lesson.best_word == "<reward_2>"


def test_fewer_scores_than_levels_have_a_level_each_and_it_is_said():
    lesson = with_control_words(ratings(*[1.0] * 98, 2.0, 3.0), ControlSettings(style="levels"))
    assert lesson.word_counts == {"<reward_0>": 98, "<reward_1>": 1, "<reward_2>": 1}
    assert lesson.notes[1] == "5 levels were asked for; the scores make 3"
    assert "'<reward_2>'" in lesson.notes[0]


@pytest.mark.parametrize("levels", [2, 3, 5, 10])
def test_equal_scores_share_a_level_and_levels_have_no_gaps(levels):
    generator = torch.Generator().manual_seed(levels)
    for _ in range(50):
        scores = torch.randn(40, generator=generator).mul(2).round().tolist()
        level = quantile_levels(scores, levels)
        assert set(level) == set(scores)
        assert sorted(set(level.values())) == list(range(max(level.values()) + 1))
        assert max(level.values()) < levels
        ordered = [level[score] for score in sorted(scores)]
        assert ordered == sorted(ordered)


def test_scores_that_cannot_be_compared_are_not_put_in_one_order():
    rows = [*ratings(1.0, 2.0, aspect="clarity"), *ratings(3.0, 4.0, aspect="truth")]
    with pytest.raises(UserError, match=r"of clarity, truth: choose one with control.aspect"):
        with_control_words(rows, LEVELS)
    lesson = with_control_words(rows, ControlSettings(style="levels", aspect="truth"))
    assert [row.completion for row in lesson.demonstrations] == ["c3.0", "c4.0"]
    assert lesson.reason_counts == {transforms.OTHER_ASPECT: 2}
    with pytest.raises(UserError, match="of clarity, the answer as a whole"):
        with_control_words([*thumbs(1.0, aspect="clarity"), *thumbs(0.0)])
    with pytest.raises(UserError, match="g:2: thumbs and scores on a scale are mixed"):
        with_control_words([*ratings(1.0, 5.0), *thumbs(1.0, origin="g:2")], LEVELS)
    assert with_control_words(thumbs(1.0, 0.0), LEVELS).word_counts == {"<reward_0>": 1, "<reward_1>": 1}


def test_a_score_that_is_no_number_is_left_out():
    lesson = with_control_words(ratings(float("nan"), 1.0, 2.0, float("inf")), LEVELS)
    assert lesson.reason_counts == {transforms.NOT_FINITE: 2}


@pytest.mark.parametrize("facts", [{"good": "X", "bad": "X "}, {"good": " "}, {"levels": 1}])
def test_settings_that_say_nothing_are_refused(facts):
    with pytest.raises(UserError, match=r"control\."):
        ControlSettings(**facts)


def test_preferred_only_counts_what_it_leaves_out():
    lesson = preferred_only(
        [pair(), pair(probability=0.5), *thumbs(0.0), *ratings(3.0), records.Prompt(prompt="p")]
    )
    assert said(lesson) == [("p", "a")]
    assert lesson.best_word is None
    assert sum(lesson.reason_counts.values()) == 4
    assert lesson.reason_counts[transforms.TIE] == lesson.reason_counts[transforms.UNJUDGED] == 1


def told(content):
    return records.Message(role="system", content=content)


def asked(content):
    return records.Message(role="user", content=content)


HI, PICTURE = asked("Hi."), (records.Part(kind="image", source="a.png"),)
PLACED = [
    ((HI,), "system", (told("C"), HI)),
    ((told("S"), HI), "system", (told("C\n\nS"), HI)),
    ((HI,), "user", (asked("C\n\nHi."),)),
    ((told("S"), HI, HI), "user", (told("S"), asked("C\n\nHi."), HI)),
    ((asked(PICTURE),), "user", (asked((records.Part(kind="text", text="C\n\n"), *PICTURE)),)),
    ((), "user", (asked("C"),)),
    ((told("S"),), "user", (told("S"), asked("C"))),
    ("Hi.", "system", "C\n\nHi."),
    ("", "user", "C\n\n"),
]


@pytest.mark.parametrize(("prompt", "place", "expected"), PLACED)
def test_words_go_in_front(prompt, place, expected):
    assert prepend_to_prompt(prompt, "C", place) == expected


def test_a_context_leaves_the_answer_as_it_is():
    record = records.Demonstration(prompt="p", completion="c", annotator="ada", origin="f:1")
    assert with_context(record, "Be kind.") == replace(record, prompt="Be kind.\n\np")
    with pytest.raises(UserError, match="the context is empty"):
        with_context(record, " \n")


def fine_tuned(demonstrations, encoder):
    """A tiny model that has learnt the demonstrations."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(encoder.info.tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    policy = Policy(LlamaForCausalLM(config))
    stepper = Stepper(
        module=policy,
        optimizer=torch.optim.AdamW(policy.parameters()),
        objective=likelihood_objective(policy),
        clip=1.0,
        ranks=single_process(),
    )
    examples = encode_rows(demonstrations, encoder).examples
    for _ in range(60):
        assert take_step(stepper, microbatches_of(examples, single_process(), 4096), 1e-2).fault is None
    return policy


def reply(policy, encoder, prompt):
    ids = torch.tensor([encoder.encode_prompt(prompt)])
    with policy.as_plain_model() as model:
        said = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=12,
            eos_token_id=list(encoder.stop_ids),
            pad_token_id=encoder.stop_ids[0],
        )
    return encoder.info.decode(said[0, ids.shape[1] :].tolist())


ANSWERS = {"Hi.": ("Hello.", "And you?"), "How are you?": ("Fine, thanks.", "plum")}


def test_after_training_the_model_answers_by_the_word(tmp_path):
    encoder = make_encoder(folder(tmp_path, CHATML))
    lesson = with_control_words(
        records.Comparison(
            prompt=records.user_turn(question),
            chosen=records.assistant_turn(good),
            rejected=records.assistant_turn(bad),
        )
        for question, (good, bad) in ANSWERS.items()
    )
    policy = fine_tuned(lesson.demonstrations, encoder)
    for question, (good, bad) in ANSWERS.items():
        for word, expected in ((lesson.best_word, good), ("BAD", bad)):
            prompt = prepend_to_prompt(records.user_turn(question), word)
            assert reply(policy, encoder, prompt) == expected + "<|im_end|>"
