"""What the tests of the policy trainer share: a script that is answered, a tiny policy, what it learns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import torch
import transformers as hf
from torch import Tensor, nn
from transformers import PreTrainedModel

from plaudit.engine.distributed import Ranks
from plaudit.engine.metrics import Metric, values_of
from plaudit.engine.step import ObjectiveResult
from plaudit.engine.step_report import Number
from plaudit.methods.policy.config import (
    DrawSettings,
    PolicyConfig,
    PtxSettings,
    ShapeSettings,
    policy_config_type,
)
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.methods.policy.experience import ScoringModels
from plaudit.methods.policy.iterations import RolloutRounds, policy_updates
from plaudit.methods.policy.objective import AnyMicrobatch, PolicyMicrobatch, policy_objective, ptx_loss
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.methods.policy.run import RolloutSources, make_rounds
from plaudit.methods.run import Run
from plaudit.models.load import precision
from plaudit.models.policy import ModelReference, Policy
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.prompts import EncodedPrompt
from tests.engine.toy import write_rows
from tests.methods.policy.script import LONGEST, WARM, Reader, Script, Teller, script
from tests.models.zoo import PLAIN, _keep_every_digit, build, by_loop
from tests.rollouts.talkers import write_tokenizer

EARLIER = 0.37
"""The mean score of rounds that were before."""
BONUS = 0.03
PTX = [("w10 w11", "w12 w13"), ("w20", "w21 w22 w23"), ("w30 w31 w32", "w33")]
"""Text that shall not be forgotten, a word a token."""
SINGLE = ("trpo", "reinforce", "a2c", "rloo", "remax", "nash-md")
"""Algorithms of one move a round: a natural step, or a surrogate without a ratio."""
PAIRS = ("p3o", "online-dpo", "online-ipo", "ipo-md")
"""Algorithms of two answers to a prompt."""
Layout = Literal["packed", "left", "right"]


def single(device: torch.device) -> Ranks:
    return Ranks(rank=0, world_size=1, device=device)


ALONE = single(torch.device("cpu"))


def build_critic(dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        facts: dict[str, Any] = {**PLAIN, "num_labels": 1}
        model: Any = hf.AutoModelForSequenceClassification.from_config(hf.LlamaConfig(**facts))
        model = model.to(dtype)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, dtype=dtype) * 0.2)
    if dtype == torch.float64:
        for module in model.modules():
            _keep_every_digit(module)
    return model.eval()


def move(module: nn.Module, by: float = 0.02) -> None:
    """What an optimiser might have done: the same for the same weights in the same order."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in module.parameters():
            step = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_(by * step.to(weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An algorithm with all that learns by it."""

    found: PolicyAlgorithm
    policy: Policy
    critic: RewardModel | None
    watchers: ScoringModels
    rounds: RolloutRounds
    objective: Callable[[AnyMicrobatch], ObjectiveResult]
    lines: Script

    def pieces(self, step: int = 1) -> Sequence[AnyMicrobatch]:
        return next(policy_updates(self.rounds, step, lambda _: range(len(self.lines))))

    def move(self, by: float = 0.02) -> None:
        move(self.policy, by)
        if self.critic is not None:
            move(self.critic, by)

    def second_move(self) -> list[AnyMicrobatch]:
        """That of a round (TRPO's only one), after policy and critic have moved."""
        first = self.pieces(1)
        self.move()
        return [
            replace(piece, is_first_update=False) if isinstance(piece, PolicyMicrobatch) else piece
            for piece in (self.pieces(2) if self.rounds.updates_per_round > 1 else first)
        ]


def config_of(name: str, policy: Mapping[str, object] | None = None, **more: object) -> PolicyConfig:
    here = Path("nowhere")
    answers = 2 if name in PAIRS else 3
    own: dict[str, object] = {
        "group_size": answers,
        "draw": DrawSettings(temperature=WARM, max_tokens=LONGEST),
        "shape": ShapeSettings(),
    }
    if policy is None:
        own |= {"entropy_coef": BONUS}
        own |= {} if name in SINGLE else {"update_epochs": 2, "minibatches": 2}
    if name == "ppo-ptx":
        rows = [{"prompt": prompt, "completion": f" {answer}"} for prompt, answer in PTX]
        own["ptx"] = PtxSettings(data=write_rows(Path(mkdtemp()) / "ptx.jsonl", rows))
    config_type: Any = policy_config_type(name)
    return config_type(
        model=here, prompts=here, reward="exact", out=here, **(own | dict(policy or {}) | more)
    )


@cache
def encoder() -> Encoder:
    folder = Path(mkdtemp())
    build("llama").save_pretrained(folder)
    write_tokenizer(folder, chats=False)
    return make_encoder(folder)


def again(dtype: torch.dtype, device: torch.device) -> Policy:
    return by_loop(Policy(build("llama", dtype, seed=1)), device)


standing = cache(again)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    dtype: torch.dtype = torch.float64
    layout: Layout = "packed"
    share: bool = True
    ranks: Ranks = ALONE
    tokens_at_once: int = 10_000
    stale: bool = False
    row_like: PolicyAlgorithm | None = None


def _watchers(found: PolicyAlgorithm, how: How) -> ScoringModels:
    dtype, device = how.dtype, how.ranks.device
    policy = Policy(build("llama", dtype), layout=how.layout, share_prompts=how.share).train()
    critic = None
    if "critic" in found.needs:
        critic = by_loop(RewardModel(build_critic(dtype), layout=how.layout, share_prompts=how.share), device)
    reference = ModelReference(
        (standing if how.ranks.world_size == 1 else again)(dtype, device), temperature=WARM
    )
    return ScoringModels(policy=by_loop(policy, device), reference=reference, critic=critic, temperature=WARM)


def _mixing(found: PolicyAlgorithm, lines: Script, like: Policy | None, dtype: torch.dtype) -> Teller | None:
    """Who says the script with the log-probs of the mixture, where the row asks for one."""
    share = found.mixture_coef
    if not share:
        return None
    rival = "rival" in found.needs
    return Teller(
        lines, build("llama", dtype), like=like, other=build("llama", dtype, seed=1), share=share, rival=rival
    )


def scene(name: str, **more: Any) -> Scene:
    how = How(**{one.name: more.pop(one.name) for one in fields(How) if one.name in more})
    dtype = how.dtype
    config = config_of(name, **more)
    found = configured_algorithm(name, config) if how.row_like is None else how.row_like
    lines = script(found.group_size)
    watchers = _watchers(found, how)
    policy, critic = watchers.policy, watchers.critic
    numbers = precision("float64", torch.device("cpu"))
    begin = Run(config=config, method=name, encoder=encoder(), precision=numbers, ranks=how.ranks)
    questions = tuple(
        EncodedPrompt(text=str(group), prompt=prompt, origin=f"script:{group}")
        for group, (prompt, _) in enumerate(lines)
    )
    sources = RolloutSources(
        prompts=questions,
        sampler=Teller(lines, build("llama", dtype), like=None if how.stale else policy),
        reward=Reader(lines),
        models=watchers,
        mixture_sampler=_mixing(found, lines, None if how.stale else policy, dtype),
    )
    rounds = make_rounds(found, config, begin, sources)
    rounds.experience = replace(rounds.experience, tokens_at_once=how.tokens_at_once)
    rounds.memory.mean_score, rounds.memory.score_count = EARLIER, 5
    improve = policy_objective(found, watchers, value_clip=0.2)
    remember = partial(ptx_loss, watchers, found.ptx_coef or 1.0)
    return Scene(
        found=found,
        policy=policy,
        critic=critic,
        watchers=watchers,
        rounds=rounds,
        objective=lambda piece: improve(piece) if isinstance(piece, PolicyMicrobatch) else remember(piece),
        lines=lines,
    )


Learnt = tuple[float, dict[str, Tensor], dict[str, Number]]
"""A loss, each weight's gradient and the figures."""


def learnt(one: Scene, pieces: Sequence[AnyMicrobatch]) -> Learnt:
    modules = {"policy": one.policy, **({} if one.critic is None else {"critic": one.critic})}
    loss, metrics = 0.0, list[Metric]()
    for module in modules.values():
        module.zero_grad(set_to_none=True)
    for piece in pieces:
        terms = one.objective(piece)
        terms.refuse_failed_checks()
        terms.loss.backward()
        loss += terms.loss.item()
        metrics += terms.metrics
    grads = {
        f"{part}.{name}": p.grad.clone().cpu()
        for part, module in modules.items()
        for name, p in module.named_parameters()
        if p.grad is not None
    }
    return loss, grads, values_of(metrics)


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor], within: float = 1e-9) -> None:
    """Equal to the last digits, and at all there, of policy and critic each."""
    assert found.keys() == wanted.keys()
    for part in ("policy", "critic"):
        own = {name: grad for name, grad in wanted.items() if name.startswith(part)}
        largest = max((float(grad.abs().max()) for grad in own.values()), default=1.0)
        assert largest > 1e-5, part
        for name, grad in own.items():
            torch.testing.assert_close(found[name], grad, rtol=0, atol=within * max(1.0, largest), msg=name)
