"""Rows of equal tokens that show different pictures are never merged, cached, replayed or drawn as one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.data.records import Comparison, Message, Part, Prompt, Text
from plaudit.engine.distributed import Ranks
from plaudit.methods import reference
from plaudit.methods.data import hold_out
from plaudit.methods.policy.batch import ExperienceTensors, PassRateCurriculum, ReplayBuffer, Round
from plaudit.methods.policy.collect import ScoredGroup
from plaudit.methods.preference.config import StageSettings
from plaudit.methods.preference.data import mismatched_examples, rows_of_part
from plaudit.methods.supervised.objective import SupervisedMicrobatch, likelihood_objective
from plaudit.models.load import load_model, precision
from plaudit.models.policy import ModelReference, Policy
from plaudit.preflight.check import PreflightSubject
from plaudit.preflight.data import check_duplicates, check_leaks
from plaudit.rollouts.drawing import uniform_numbers
from plaudit.rollouts.local import LocalSampler, example_from_rollouts
from plaudit.rollouts.sampler import Answer, Rollout, SamplingSettings, generation_requests
from plaudit.tokens.batch import Completion, Example, Extra, Extras, batch_of
from plaudit.tokens.encode import Encoder, RefusedRow, make_encoder, truncate_prompt
from plaudit.tokens.preferences import JudgedRow, PairLabel
from plaudit.tokens.prompts import REPEATED_PROMPT, EncodedPrompt, encode_prompt_records
from tests.engine.distributed.runs import Run, run_all
from tests.engine.toy import RARE, make_toy, write_rows
from tests.models.pictured import PICTURE, PIXELS, pictured, register

READER = f'''
import torch
from dataclasses import replace
from plaudit.data.records import pictures
from plaudit.tokens.batch import Extra
from tests.models.pictured import register

# In a rank, which is a process of its own, nobody else has.
register()


def words(message):
    if isinstance(message.content, str):
        return message
    parts = ("{RARE}" if part.kind == "image" else part.text for part in message.content)
    return replace(message, content="".join(parts))


def read(prompt):
    """A picture is a number here, and stands where the rare sign does."""
    if isinstance(prompt, str) or not pictures(prompt):
        return prompt, {{}}
    value = torch.tensor([[float(source)] * {PIXELS} for source in pictures(prompt)])
    return tuple(map(words, prompt)), {{"pixel_values": Extra(value=value, axis="item")}}
'''


def answer(*ids: int) -> Completion:
    return Completion(ids=ids, mask=(True,) * len(ids), finished=True)


def shows(value: float) -> Extras:
    return {"pixel_values": Extra(value=torch.full((1, PIXELS), value), axis="item")}


def row(value: float, *completions: Completion, origin: str = "") -> Example:
    return Example(prompt=(1, PICTURE, 4), completions=completions, extras=shows(value), origin=origin)


def question(value: float) -> EncodedPrompt:
    return EncodedPrompt(text="What?", prompt=(1, PICTURE, 4), extras=shows(value), origin=str(value))


def judged(example: Example) -> JudgedRow:
    return JudgedRow(example=example, judgement=PairLabel(probability=1.0, margin=0.0))


def turn(picture: str) -> tuple[Message, ...]:
    parts = (Part(kind="image", source=picture), Part(kind="text", text=" what sat?"))
    return (Message(role="user", content=parts),)


def alone() -> Ranks:
    return Ranks(rank=0, world_size=1, device=torch.device("cpu"))


def group(asked: EncodedPrompt, score: float) -> ScoredGroup:
    answer = Answer(text="w5", tokens=2, ended=True)
    rollout = Rollout(
        prompt=asked.prompt, ids=(5, 2), logp=(-0.1, -0.3), whole_logp=(-0.1, -0.3), answer=answer
    )
    return ScoredGroup(prompt=asked, rollouts=(rollout,), scores=(score,))


class TestReferenceCache:
    def test_each_row_has_its_own_log_probs(self, tmp_path: Path) -> None:
        rows = [row(value, answer(5, 6), answer(7, 2)) for value in (1.0, -1.0, 1.0)]
        live = ModelReference(Policy(pictured()).eval())
        source = reference.ReferenceSource(model_hash="0", precision=precision("auto", torch.device("cpu")))
        cached, _ = reference.cached_reference(live, rows, source, alone(), cache=tmp_path, tokens_at_once=64)
        batch = batch_of(rows)
        expected_NT = live.logp(rows, batch)
        torch.testing.assert_close(cached.logp(rows, batch), expected_NT)
        assert len(cached.span_by_id) == 4, "the third row is the first one again"
        assert not torch.allclose(expected_NT[0], expected_NT[2], atol=1e-2)

    def test_another_picture_is_another_entry_on_disk(self, tmp_path: Path) -> None:
        live = ModelReference(Policy(pictured()).eval())
        source = reference.ReferenceSource(model_hash="0", precision=precision("auto", torch.device("cpu")))
        notes = [
            reference.cached_reference(
                live, [row(value, answer(5, 6))], source, alone(), cache=tmp_path, tokens_at_once=64
            )[1]
            for value in (1.0, -1.0, 1.0)
        ]
        assert len(list(tmp_path.iterdir())) == 2
        assert ["found in" in note for note in notes] == [False, False, True]

    def test_a_completion_that_is_trained_elsewhere_is_another_one(self, tmp_path: Path) -> None:
        masks = (True, True), (False, True)
        rows = [
            Example(prompt=(1, 4), completions=(Completion(ids=(5, 6), mask=mask, finished=True),))
            for mask in reversed(masks)
        ]
        live = ModelReference(Policy(pictured()).eval())
        source = reference.ReferenceSource(model_hash="0", precision=precision("auto", torch.device("cpu")))
        cached, _ = reference.cached_reference(live, rows, source, alone(), cache=tmp_path, tokens_at_once=64)
        torch.testing.assert_close(cached.logp(rows, batch_of(rows)), live.logp(rows, batch_of(rows)))
        muted = [replace(rows[1], completions=(Completion(ids=(5, 6), mask=(False,) * 2, finished=True),))]
        assert not cached.logp(muted, batch_of(muted)).any()


@settings(max_examples=30, deadline=None)
@given(
    shown=st.lists(st.sampled_from([1.0, -1.0, 0.5, 2.0]), min_size=2, max_size=10),
    share=st.sampled_from([0.2, 0.5]),
    seed=st.integers(0, 3),
)
def test_rows_are_held_out_and_parted_by_what_they_show(shown: list[float], share: float, seed: int) -> None:
    rows = [row(value, answer(5, 6), origin=str(n)) for n, value in enumerate(shown)]
    train, held_out = ([rows[n] for n in part] for part in hold_out(rows, share, seed))
    assert sorted(map(str, range(len(rows)))) == sorted(one.origin for one in (*train, *held_out))
    pictures_of = [{one.extras["pixel_values"] for one in part} for part in (train, held_out)]
    assert not pictures_of[0] & pictures_of[1]
    assert len(pictures_of[1]) == min(-int(-share * len(set(shown)) // 1), len(set(shown)) - 1)
    if len(set(shown)) > 1:
        parts = [rows_of_part(rows, StageSettings(parts=2, part=part)) for part in (0, 1)]
        assert sum(map(len, parts)) == len(rows)
        assert not {one.prompt_id for one in parts[0]} & {one.prompt_id for one in parts[1]}


def test_curriculum_and_replay_know_prompts_apart() -> None:
    questions = [question(1.0), question(-1.0)]
    curriculum = PassRateCurriculum(questions, pass_score=0.5, seed=0)
    curriculum.record_scores([group(questions[0], 1.0), group(questions[1], 0.0)])
    assert curriculum.tensors()["rate"].tolist() == [1.0, 0.0]
    one, other = (ReplayBuffer(questions, share=0.5, window=9, seed=0) for _ in range(2))
    one.sample_groups([group(questions[1], 0.25), group(questions[0], 0.75)], 1)
    other.load_tensors(one.tensors())
    replayed = other.sample_groups([group(questions[0], 0.0)] * 2, 2)
    assert {(one.scores[0], one.prompt.origin) for one in replayed} == {(0.25, "-1.0"), (0.75, "1.0")}
    for again in replayed:
        assert example_from_rollouts(again.prompt, again.rollouts).prompt_id == again.prompt.id


def test_a_round_in_a_checkpoint_keeps_what_its_rows_show() -> None:
    examples = tuple(row(value, answer(5, 6), origin=str(value)) for value in (1.0, -1.0))
    empty_NT = torch.zeros(2, 2)
    tensors = ExperienceTensors(
        **dict.fromkeys(
            ("old_logp_NT", "ref_logp_NT", "advantage_NT", "value_NT", "return_NT", "weight_NT"), empty_NT
        )
    )
    kept = Round(number=1, examples=examples, experience=tensors, metrics=(), max_tokens=2)
    restored = Round.from_tensors(kept.tensors())
    assert [one.id for one in restored.examples] == [one.id for one in examples]
    assert restored.examples == examples


def test_an_answer_to_the_same_words_with_another_picture_is_a_mismatched_one() -> None:
    rows = [judged(row(value, answer(5, 6), answer(7, 2), origin=str(value))) for value in (1.0, -1.0)]
    found = mismatched_examples(rows, rows, seed=0)
    assert [one.extras for one in found.values()] == [one.example.extras for one in rows]
    assert len(found) == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    register()
    made = tmp_path_factory.mktemp("pictured")
    toy = make_toy(made)
    tokenizer = make_encoder(toy.model).info.tokenizer
    (place,) = tokenizer(RARE, add_special_tokens=False)["input_ids"]
    size = {"vocab_size": len(tokenizer), "hidden_size": 32, "picture_token": place}
    model = pictured(**size, max_position_embeddings=256, pad_token_id=0, bos_token_id=None, eos_token_id=2)
    model.save_pretrained(toy.model)
    (made / "reader.py").write_text(READER)
    return made


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    space: dict[str, Any] = {}
    exec(READER, space)
    return make_encoder(folder / "base", read_extras=space["read"])


def test_prompts_with_other_pictures_are_other_prompts(encoder: Encoder) -> None:
    records = [Prompt(prompt=turn(picture), origin=picture) for picture in ("1.0", "-1.0", "1.0")]
    encoded = encode_prompt_records(records, encoder, 64)
    assert [one.origin for one in encoded.examples] == ["1.0", "-1.0"]
    assert len({one.prompt for one in encoded.examples}) == 1
    assert encoded.notes[REPEATED_PROMPT] == 1


def test_copies_and_leaks_look_at_pictures(encoder: Encoder) -> None:
    def rows(shown: Sequence[str]) -> list[Comparison]:
        return [
            Comparison(prompt=turn(one), chosen=said("the cat."), rejected=said("a mat."), origin=one)
            for one in shown
        ]

    def said(text: str) -> Text:
        return (Message(role="assistant", content=text),)

    trained, held_out = rows([f"{n}.0" for n in range(40)]), rows([f"{n}.5" for n in range(40)])
    subject = PreflightSubject(encoder=encoder, records=trained, held_out=held_out, trained=(), max_length=64)
    assert check_leaks(subject).holds is True
    assert check_duplicates(subject).holds is True
    assert check_leaks(replace(subject, held_out=trained)).holds is False


def test_a_prompt_that_shows_something_is_never_cut() -> None:
    refused = truncate_prompt(row(1.0, answer(5, 6), origin="a:1"), 4)
    assert isinstance(refused, RefusedRow)
    assert "shows pixel_values is never cut" in refused.reason


def test_random_numbers_are_of_tokens_and_pictures() -> None:
    settings = SamplingSettings(seed=3)
    plain, one, other = (
        uniform_numbers(settings, (1, 5), 0, 9, extras) for extras in ({}, shows(1.0), shows(2.0))
    )
    assert torch.equal(plain, uniform_numbers(settings, (1, 5), 0, 9))
    assert torch.equal(one, uniform_numbers(settings, (1, 5), 0, 9, shows(1.0)))
    assert not torch.equal(one, other)
    assert not torch.equal(one, plain)


def test_answers_to_a_prompt_are_counted_by_what_it_shows() -> None:
    asked = [question(1.0).shown, question(-1.0).shown, question(1.0).shown, (1, PICTURE, 4)]
    requests = generation_requests(asked, SamplingSettings(max_tokens=9), 2, max_positions=8)
    assert [request.sample for request in requests] == [0, 1, 0, 1, 2, 3, 0, 1]
    assert [request.prompt_id for request in requests[::2]] == [
        *(question(value).id for value in (1.0, -1.0, 1.0)),
        replace(question(1.0), extras={}).id,
    ]
    assert {request.max_new_tokens for request in requests} == {5}


# Of three side by side, the answers to the second picture join those to the first.
@pytest.mark.parametrize("batch_size", [64, 3])
@pytest.mark.parametrize("cached", [False, True])
def test_answers_are_drawn_of_each_picture_and_scored_as_drawn(folder, encoder, cached, batch_size):
    policy = Policy(load_model(folder / "base", dtype=torch.float32, device=torch.device("cpu"))).eval()
    sampler = LocalSampler.from_policy(policy, encoder)
    sampler._engine = replace(sampler._engine, batch_size=batch_size)
    if cached:
        from plaudit.models.decode import CachedDecoder

        sampler._engine = replace(sampler._engine, decoder=CachedDecoder)
    asked = [turn("1.0"), turn("-1.0"), turn("1.0")]
    groups = sampler.generate(
        [sampler.encode(one) for one in asked], SamplingSettings(max_tokens=6, seed=1), n=2
    )
    assert len({rollout.ids for rollouts in groups for rollout in rollouts}) == 6
    questions = encode_prompt_records([Prompt(prompt=one) for one in asked[:2]], encoder, 64).examples
    batch = batch_of([example_from_rollouts(*pair) for pair in zip(questions, groups[:2], strict=True)])
    logp_NT = policy.score(batch).logp_NT
    drawn = [rollout.whole_logp for rollouts in groups[:2] for rollout in rollouts]
    for logp_T, whole_logp in zip(logp_NT, drawn, strict=True):
        torch.testing.assert_close(logp_T[: len(whole_logp)], torch.tensor(whole_logp), rtol=1e-3, atol=1e-4)


def test_shares_of_ranks_have_the_gradient_of_the_whole_batch() -> None:
    rows = tuple(row(value, answer(5, 6), answer(7, 2)) for value in (1.0, -1.0, 0.5, 2.0, -2.0))
    policy = Policy(pictured())
    objective = likelihood_objective(policy)

    def gradient(microbatches: Sequence[SupervisedMicrobatch]) -> torch.Tensor:
        policy.zero_grad()
        for microbatch in microbatches:
            objective(microbatch).loss.backward()
        weight: Any = policy.get_parameter("model.model.see.weight").grad
        return weight.clone()

    whole = SupervisedMicrobatch(examples=rows, total_tokens=20)
    expected = gradient([whole])
    shares = whole.shares(2, 16)
    assert len(shares) == 2
    assert len(shares[0]) > 1
    for pieces in ([piece for own in shares for piece in own], whole.rows()):
        torch.testing.assert_close(gradient(pieces), expected, rtol=1e-4, atol=1e-5)
    assert expected.abs().max() > 1e-3


def told(picture: str, word: str) -> dict[str, Any]:
    content = [{"type": "image", "image": picture}, {"type": "text", "text": " what sat?"}]
    return {
        "prompt": [{"role": "user", "content": content}],
        "completion": [{"role": "assistant", "content": word}],
    }


def words(folder: Path, name: str, data: Path, out: Path, *more: object) -> tuple[str, ...]:
    given = ("train", name, "--model", folder / "base", "--data", data, "--out", out, "--device", "cpu")
    usual = ("--extras", f"{folder / 'reader.py'}:read", "--learning-rate", 0.01, "--held-out", 0)
    return tuple(map(str, (*given, *usual, *more)))


def command(folder: Path, name: str, data: Path, out: Path, *more: object) -> int:
    return main(words(folder, name, data, out, *more))


PIECES = ("--memory.tokens-at-once", 60)


@pytest.mark.slow
def test_sft_learns_what_each_picture_shows(folder: Path, encoder: Encoder, tmp_path: Path) -> None:
    """Of the words alone nobody could do better than one half."""
    rows = [told(*pair) for pair in (("1.0", "red mat."), ("-1.0", "old dogs.")) for _ in range(4)]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    more = ("--steps", 25, "--batch-size", 8, "--learning-rate", 0.03, *PIECES)
    assert command(folder, "sft", data, tmp_path / "run", *more) == 0
    model = load_model(tmp_path / "run" / "model", dtype=torch.float32, device=torch.device("cpu"))
    policy = Policy(model).eval()
    answers = [(Message(role="assistant", content=word),) for word in ("red mat.", "old dogs.")]
    examples = [encoder.encode(turn(picture), answers) for picture in ("1.0", "-1.0")]
    right, wrong, wrong_too, right_too = policy.score(batch_of(examples)).logp_NT.sum(-1).exp().tolist()
    assert min(right, right_too) > 0.8
    assert max(wrong, wrong_too) < 0.1


def opposite_preferences(path: Path) -> Path:
    """The same words with opposite preferences, told apart by their picture alone."""
    rows = [
        {
            "prompt": told(picture, "")["prompt"],
            "chosen": told(picture, good)["completion"],
            "rejected": told(picture, bad)["completion"],
        }
        for picture, good, bad in (("1.0", "red mat.", "old dogs."), ("-1.0", "old dogs.", "red mat."))
        for _ in range(4)
    ]
    return write_rows(path, rows)


@pytest.mark.slow
def test_dpo_prefers_by_the_picture(folder: Path, tmp_path: Path) -> None:
    """With one reference or one key for both nothing is learnt."""
    data = opposite_preferences(tmp_path / "rows.jsonl")
    kept = tmp_path / "kept"
    more = ("--steps", 20, "--batch-size", 8, "--sample.rows", 0, "--reference.cache", kept, *PIECES)
    assert command(folder, "dpo", data, tmp_path / "run", *more, "--allow", "contradictions") == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["accuracy"] == 1.0
    assert last["margin"] > 0.5
    assert len(list(kept.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", [(), ("--shard",)], ids=["data", "shard"])
def test_two_ranks_learn_what_one_learns_of_pictures(folder, tmp_path, way):
    data = opposite_preferences(tmp_path / "rows.jsonl")
    more = ("--steps", 3, "--batch-size", 5, "--sample.rows", 0, "--dtype", "float64", *PIECES)
    allowed = ("--allow", "contradictions")

    def trained(out: str, ranks: int, *settings: object) -> dict[str, torch.Tensor]:
        kept = ("--reference.cache", tmp_path / f"kept-{out}")
        arguments = words(folder, "dpo", data, tmp_path / out, *more, *kept, *allowed, *settings)
        done = run_all({out: Run(arguments=arguments, environment={})}, tmp_path, ranks=ranks)[out]
        assert [said.code for said in done] == [0] * ranks, done[0].err
        return load_file(tmp_path / out / "model" / "model.safetensors")

    expected, found = trained("one", 1), trained("two", 2, *way)
    base = load_file(folder / "base" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-9, atol=1e-9, msg=name)
    seen = next(name for name in expected if name.endswith("see.weight"))
    assert not torch.allclose(expected[seen], base[seen].to(expected[seen].dtype), atol=1e-3)
