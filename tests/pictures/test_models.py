"""Models that see: log-probs in every layout, of training and sampling, are those of transformers alone."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plaudit.data.read import read_records
from plaudit.errors import UserError
from plaudit.files.pictures import open_picture
from plaudit.models.attention import PackingError
from plaudit.models.backbone import language_of, token_types
from plaudit.models.decode import PagedDecoder
from plaudit.models.load import Precision, load_model
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from plaudit.preflight.tokenization import render_marks
from plaudit.rollouts.local import LocalSampler, example_from_rollouts
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.runs.planner.simulation import SimulationSetting, forward_peak
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder, encode_record, make_encoder
from plaudit.tokens.prompts import encode_prompt
from tests.pictures.folders import FAMILIES, make_folder, write_pairs


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return list(read_records(write_pairs(tmp_path_factory.mktemp("rows"))).records)


@pytest.fixture(scope="module", params=FAMILIES)
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Any]:
    folder = make_folder(request.param, tmp_path_factory.mktemp(request.param) / "model")
    return make_encoder(folder), load_model(folder, dtype=torch.float32, device=torch.device("cpu")).eval()


def by_transformers(encoder: Encoder, model: Any, record: Any) -> list[float]:
    """The log-prob of each answer, of tokens and pictures as the model's own processor makes them."""
    reader: Any = encoder.read_extras
    pictures = [open_picture(part.source) for part in record.prompt[0].content if part.kind == "image"]
    text = render_marks(encoder, reader(record.prompt)[0])
    whole = hasattr(reader.processor, "image_processor")
    found = []
    for answer in (record.chosen, record.rejected):
        words = f"{answer[0].content}<|end|>"
        shown: dict[str, Tensor] = {}
        if whole:
            made = reader.processor(
                text=text + words,
                images=[pictures] if pictures else None,
                return_tensors="pt",
                add_special_tokens=False,
            )
            ids = made.pop("input_ids")
            shown = dict(made)
        else:
            made = reader.processor(images=pictures, return_tensors="pt") if pictures else {}
            places = [int(grid.prod()) // 4 for grid in made.get("image_grid_thw", [])]
            first, *rest = text.split("<|image_pad|>")
            text_whole = first + "".join(
                "<|image_pad|>" * n + part for n, part in zip(places, rest, strict=True)
            )
            ids = torch.tensor([encoder.info.tokenizer.encode(text_whole + words, add_special_tokens=False)])
            shown = {**made, **token_types(model, ids, made)}
        count = len(encoder.info.tokenizer.encode(words, add_special_tokens=False))
        with torch.no_grad():
            logp_SV = model(input_ids=ids, **shown).logits[0].log_softmax(-1)
        found.append(float(logp_SV[-count - 1 : -1].gather(1, ids[0, -count:, None]).sum()))
    return found


def logps(policy: Policy, examples: list[Example]) -> Tensor:
    with torch.no_grad():
        return policy.score(batch_of(examples)).logp_NT.sum(1)


def test_every_layout_says_what_transformers_says(seeing: tuple[Encoder, Any], rows: list[Any]) -> None:
    encoder, model = seeing
    examples = [encode_record(row, encoder) for row in rows]
    expected = torch.tensor([logp for row in rows for logp in by_transformers(encoder, model, row)])
    layout, _ = choose_layout(Policy(model, layout="right"), "packed")
    assert layout == ("right" if model.config.model_type == "gemma3" else "packed")
    for name, share in ((layout, True), ("left", True), ("right", True), (layout, False)):
        found = logps(Policy(model, layout=name, share_prompts=share), examples)
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
    # Equal words about other pictures: it is the picture that makes the difference.
    assert (expected[0] - expected[2]).abs() > 0.05


def test_answers_are_drawn_as_they_are_scored(seeing: tuple[Encoder, Any], rows: list[Any]) -> None:
    encoder, model = seeing
    layout, _ = choose_layout(policy := Policy(model, layout="right"), "packed")
    policy.use_layout(layout)
    prompts = [encode_prompt(row.prompt, encoder) for row in rows]
    settings = SamplingSettings(max_tokens=6, seed=1)
    groups = LocalSampler.from_policy(policy, encoder).generate(
        [each.shown for each in prompts], settings, n=2
    )
    examples = [example_from_rollouts(prompt, group) for prompt, group in zip(prompts, groups, strict=True)]
    drawn = torch.tensor([sum(rollout.logp) for group in groups for rollout in group])
    torch.testing.assert_close(logps(policy, examples), drawn, atol=2e-3, rtol=0)
    if encoder.read_extras.counts_rows:
        with pytest.raises(PackingError, match="places of three numbers"):
            PagedDecoder(policy, [[3]], (1,))


def test_a_plan_says_which_pictures_it_cannot_count(seeing: tuple[Encoder, Any], rows: list[Any]) -> None:
    encoder, model = seeing
    numbers = Precision(weights=torch.float32, products=torch.float32)
    setting = SimulationSetting(device=torch.device("cpu"), numbers=numbers, uniform=False)
    policy = Policy(deepcopy(model).to("meta"), layout="right")
    assert forward_peak(policy, [encode_record(row, encoder) for row in rows], setting) > 0
    assert bool(setting.left_out) == (model.config.model_type in {"idefics3", "qwen2_5_vl", "qwen3_vl"})


def test_a_picture_goes_through_the_tower_once_for_all_answers(rows: list[Any], tmp_path: Path) -> None:
    folder = make_folder("llava", tmp_path / "model")
    model: Any = load_model(folder, dtype=torch.float32, device=torch.device("cpu"))
    seen: list[int] = []
    model.model.vision_tower.register_forward_hook(lambda _, __, output: seen.append(len(output[0])))
    logps(Policy(model, layout="packed"), [encode_record(row, make_encoder(folder)) for row in rows[:4]])
    assert seen == [4]
    assert language_of(model) is model.model.language_model


def test_rows_that_do_not_fit_are_refused_and_never_cut(rows: list[Any], tmp_path: Path) -> None:
    from plaudit.tokens.encode import encode_rows

    encoder = make_encoder(make_folder("llava", tmp_path / "model"))
    encoded = encode_rows(rows, encoder, max_tokens=16)
    assert len(encoded.examples) == 1, "the one of words"
    assert all("is never cut" in row.reason for row in encoded.refused)
    for prompt, answer in (("\ufdd3", "red"), ("Which?", "\ufdd3")):
        with pytest.raises(UserError, match="hold U"):
            encoder.encode(prompt, (answer,))


def test_models_of_words_refuse_pictures_and_models_of_no_turns_are_refused(rows, toy, tmp_path):
    folder = make_folder("llava", tmp_path / "model")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"llava"', '"paligemma"').replace('"llama"', '"gemma"'))
    with pytest.raises(UserError, match="has no turns"):
        make_encoder(folder)
    with pytest.raises(UserError, match="holds a picture, and this model takes words alone"):
        encode_record(rows[0], make_encoder(toy.model))
