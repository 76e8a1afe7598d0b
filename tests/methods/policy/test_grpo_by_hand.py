"""The page does what it says: its step is GRPO's, worked out another way, and its trainer's."""

import copy
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples.by_hand.grpo import GrpoSettings, grpo_by_hand
from plaudit.data.judging import Task
from plaudit.data.records import Prompt, plain_text
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rewards.base import FunctionReward, TaskScores
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import Encoder, make_encoder
from tests.methods.by_hand import WIDER
from tests.methods.policy.commands import make_place, well
from tests.rollouts.talkers import answered, write_talker

PROMPTS = [Prompt(prompt=f"w{number}") for number in range(7, 19)]
SHORT = SamplingSettings(max_tokens=8)


def said_w33(prompt: object, answer: object) -> float:
    return float(plain_text(str(answer)).split().count("w33"))


W33 = FunctionReward(name="w33", function=said_w33)


class Silent:
    """No verdict on every other answer, or on any."""

    name = "silent"

    def __init__(self, *, wholly: bool) -> None:
        self.wholly = wholly

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(
            tuple(None if self.wholly or n % 2 else float(len(str(a))) for n, a in enumerate(task.answers))
            for task in tasks
        )


def parts(folder: Path, dtype: torch.dtype = torch.float32) -> tuple[Policy, Policy, Encoder]:
    model = load_model(folder, dtype=dtype, device=torch.device("cpu"))
    return Policy(model), Policy(copy.deepcopy(model)), make_encoder(folder)


def plain_logps(policy: Policy, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
    """Log-probs of one answer from the model's own logits."""
    with policy.as_plain_model() as plain:
        logits = plain(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 : -1].log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]


@pytest.mark.parametrize("inner", [1, 3])
def test_a_step_is_that_of_the_paper_worked_out_answer_by_answer(tmp_path: Path, inner: int) -> None:
    folder = write_talker(tmp_path)
    mine, reference, encoder = parts(folder, torch.float64)
    other, _, _ = parts(folder, torch.float64)
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(0.9)
    how = GrpoSettings(steps=1, prompts=3, group=4, inner=inner, learning_rate=0.02, beta=0.3, sampling=SHORT)
    [told] = grpo_by_hand(mine, reference, encoder, PROMPTS, W33, how)
    chosen = torch.randperm(len(PROMPTS), generator=torch.Generator().manual_seed(0))[:3]
    asked = [PROMPTS[p].prompt for p in chosen]
    groups = answered(LocalSampler.from_policy(other, encoder), asked, SHORT, n=4)
    score = [[said_w33("", one.answer.text) for one in group] for group in groups]
    assert told == pytest.approx(statistics.fmean(own for row in score for own in row))
    assert any(len({*row}) > 1 for row in score), "scores that are all alike would teach nothing"
    drawn = [
        (one, row, row[k]) for group, row in zip(groups, score, strict=True) for k, one in enumerate(group)
    ]
    old = [plain_logps(other, one.prompt, one.ids).detach() for one, _, _ in drawn]
    held = [plain_logps(reference, one.prompt, one.ids).detach() for one, _, _ in drawn]
    optimizer = torch.optim.AdamW(other.parameters(), lr=0.02, weight_decay=0.0)
    for _ in range(inner):
        for (one, row, own), old_T, held_T in zip(drawn, old, held, strict=True):
            logp_T = plain_logps(other, one.prompt, one.ids)
            advantage = (own - statistics.fmean(row)) / (statistics.stdev(row) + 1e-4)
            ratio_T = (logp_T - old_T).exp()
            bound_T = torch.minimum(ratio_T * advantage, ratio_T.clamp(0.8, 1.2) * advantage)
            kl_T = (held_T - logp_T).exp() - (held_T - logp_T) - 1
            ((-bound_T + 0.3 * kl_T).mean() / len(drawn)).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for (name, weight), same in zip(mine.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(
            weight, same, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_answers_without_a_verdict_are_left_out_and_not_called_bad(tmp_path: Path) -> None:
    policy, reference, encoder = parts(write_talker(tmp_path))
    [told] = grpo_by_hand(
        policy, reference, encoder, PROMPTS, Silent(wholly=False), GrpoSettings(steps=1, sampling=SHORT)
    )
    assert told > 5
    with pytest.raises(UserError, match="silent has a verdict on none"):
        list(grpo_by_hand(policy, reference, encoder, PROMPTS, Silent(wholly=True), GrpoSettings(steps=1)))


def test_settings_that_would_teach_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="stands above nobody"):
        GrpoSettings(group=1)
    with pytest.raises(UserError, match="tokens left out"):
        GrpoSettings(sampling=SamplingSettings(top_p=0.9))


@pytest.mark.parametrize("inner", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_page_and_the_trainer_make_the_same_policy(device, tmp_path, inner):
    """The page is worked through on the CPU, wherever the trainer is: the answers too are the same ones."""
    place = make_place(tmp_path)
    policy, reference, encoder = parts(place.model, torch.float64)
    rows = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text("utf-8").splitlines()]
    prompts = [Prompt(prompt=row["prompt"]) for row in rows]
    # Round n of a run with seed 0 draws with seed n; the page's step n with its own seed + n, from 0.
    sampling = SamplingSettings(max_tokens=6, seed=1)
    how = GrpoSettings(
        steps=3, prompts=len(prompts), group=4, inner=inner, learning_rate=0.005, sampling=sampling
    )
    scores = list(grpo_by_hand(policy, reference, encoder, prompts, W33, how))
    went = well(
        *(place, "grpo", "out", "--batch-size", len(prompts), "--held-out", 0, "--rounds", 3),
        *("--group-size", 4, "--update-epochs", inner, "--optimizer.schedule", "constant"),
        *("--dtype", "float64", "--sample.rows", 0, "--device", device.type),
    )
    assert went.figures("reward")[::inner] == pytest.approx(scores)
    trained = load_model(went.run / "model", dtype=torch.float64, device=torch.device("cpu"))
    for (name, found), wanted in zip(trained.named_parameters(), policy.parameters(), strict=True):
        # The page keeps scores in float32.
        assert float((found - wanted).detach().abs().max()) < 1e-6 * WIDER[device.type], name
