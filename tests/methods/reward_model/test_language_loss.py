"""The language-model loss beside a reward's: worked out by the plain language model, however a batch lies."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from plaudit.engine.distributed import Ranks, single_process
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.methods.reward_model.objective import LanguageTerm, load_language_term, microbatches_of
from plaudit.models.reward_model import FreshHead
from plaudit.tokens.preferences import JudgedRow
from tests.engine.toy import Toy
from tests.engine.toy_command import finish, refused
from tests.methods.reward_model.pieces import gradients, learnt, objective_of, rows_of_kind, same_gradients
from tests.methods.reward_model.rows import command, make_files
from tests.models.reward_zoo import CPU, fresh, start

COEF = 0.3
PREFERRED = {
    # Of what `SAID` says of the five rows; a tie prefers nothing.
    "comparisons": ((0,), (), (1,), (0,), (0,)),
    "rankings": ((0,), (1,), (1,), (), (0,)),
    "thumbs": ((0,), (), (), (0,), ()),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("start"))


def term_of(folder: Path, coef: float = COEF) -> LanguageTerm:
    term = load_language_term(folder, coef, dtype=torch.float64, device=CPU)
    assert term is not None
    return term


def plain_nll(causal: Any, head: Tensor, rows: tuple[JudgedRow, ...], kind: str) -> Tensor:
    """The mean of −log π over the preferred answers, each through the plain model by itself."""
    losses: list[Tensor] = []
    for row, preferred in zip(rows, PREFERRED[kind], strict=True):
        for number in preferred:
            answer = row.example.completions[number].ids
            hidden = causal.model(input_ids=torch.tensor([[*row.prompt, *answer]])).last_hidden_state[0]
            logp_SV = (hidden @ head.T).log_softmax(-1)
            losses += [-logp_SV[len(row.prompt) - 1 + t, token] for t, token in enumerate(answer)]
    return torch.stack(losses).mean()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("kind", PREFERRED)
def test_it_is_the_mean_over_the_preferred_answers_tokens_however_the_batch_is_divided(begun, kind, pooling):
    model = fresh(begun, FreshHead(pooling=pooling), dtype=torch.float64).train()
    rows = rows_of_kind(kind)
    plain, both = objective_of(model, rows), objective_of(model, rows, language=term_of(begun))
    whole = microbatches_of(rows, single_process(), 10_000)
    without, grads_without, _ = learnt(model, plain, whole)
    loss, grads, figures = learnt(model, both, whole)
    # The very layers of the reward model in the plain language model's place, with its own head, frozen.
    causal: Any = AutoModelForCausalLM.from_pretrained(begun, dtype=torch.float64)
    head = causal.get_output_embeddings().weight.detach().clone()
    causal.model = model.base.model
    model.zero_grad(set_to_none=True)
    with model.as_plain_model():
        nll = plain_nll(causal, head, rows, kind)
        (COEF * nll).backward()
    by_hand = gradients(model)
    assert figures["nll"] == pytest.approx(nll.item(), rel=1e-10)
    assert figures["loss"] == pytest.approx(without, rel=1e-12)
    assert loss == pytest.approx(without + COEF * nll.item(), rel=1e-10)
    added = {name: grad + by_hand.get(name, 0.0) for name, grad in grads_without.items()}
    same_gradients(grads, added, atol=1e-10)
    ranks = [Ranks(rank=rank, world_size=2, device=CPU) for rank in (0, 1)]
    for pieces in (
        microbatches_of(rows, single_process(), 40),
        [piece for rank in ranks for piece in microbatches_of(rows, rank, 40)],
        whole[0].rows(),
    ):
        found, divided, said = learnt(model, both, pieces)
        assert found == pytest.approx(loss, rel=1e-10)
        assert said["nll"] == pytest.approx(figures["nll"], rel=1e-10)
        same_gradients(divided, grads, atol=1e-10)


def test_layout_changes_nothing(begun: Path) -> None:
    model, rows = fresh(begun, dtype=torch.float64).train(), rows_of_kind("rankings")
    whole = microbatches_of(rows, single_process(), 10_000)
    _, packed, _ = learnt(model, objective_of(model, rows, language=term_of(begun)), whole)
    for layout in ("left", "right"):
        model.use_layout(layout)
        _, padded, _ = learnt(model, objective_of(model, rows, language=term_of(begun)), whole)
        same_gradients(padded, packed, atol=1e-10)


def test_rows_that_prefer_nothing_add_nothing(begun: Path) -> None:
    model = fresh(begun, dtype=torch.float64).train()
    rows = rows_of_kind("comparisons")
    [tied] = microbatches_of(rows[1:2], single_process(), 10_000)
    plain, both = objective_of(model, rows), objective_of(model, rows, language=term_of(begun))
    assert both(tied).loss.item() == plain(tied).loss.item()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, dict[str, Path]]:
    return make_files(tmp_path_factory.mktemp("toy"), rows=40)


@pytest.mark.slow
def test_a_model_that_learns_with_it_still_knows_how_to_write(files, tmp_path):
    toy, data = files
    nll: dict[float, float] = {}
    for coef in (1e-9, 1.0):
        out = tmp_path / str(coef)
        more = ("--reward.nll-coef", coef, "--steps", 12, "--sample.rows", 0)
        done = finish(*command(toy.model, data["comparisons"], out, *more))
        assert f"beside it {coef:g} × −log π per token of the preferred answers" in done.err
        nll[coef] = json.loads((out / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["held_out/nll"]
    assert nll[1.0] < nll[1e-9] - 0.2


@pytest.mark.slow
def test_where_it_means_nothing_it_is_refused(files: tuple[Toy, dict[str, Path]], tmp_path: Path) -> None:
    toy, data = files
    staged = ("--pretraining.data", data["thumbs"])
    for kind, more, why in (
        (
            "ratings",
            (),
            "reward.nll_coef is not part of regression: leave it out, or choose among bradley-te",
        ),
        ("comparisons", staged, "reward.nll_coef with --pretraining.data: the first stage hands on a reward"),
    ):
        said = refused(*command(toy.model, data[kind], tmp_path / kind, "--reward.nll-coef", 0.1, *more))
        assert why in said
    with pytest.raises(ValueError, match="nll_coef must be a number from 0 on, not -1"):
        RewardSettings(nll_coef=-1)
