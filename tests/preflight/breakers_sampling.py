"""Ways to break a sampler, each through the real one: a copy of its weights, other tokens, other settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from plaudit.methods.policy.config import DrawSettings
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.preflight.check import PreflightSubject
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, Sampler, SamplingSettings, TokenIds
from plaudit.tokens.encode import Encoder
from tests.preflight.subjects import make_model_with_bos

Groups = list[list[Rollout]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    sampler: Sampler
    told: Callable[[SamplingSettings], SamplingSettings] = lambda settings: settings
    """What it is told in place of what was asked."""
    given: Callable[[Rollout], Rollout] = lambda rollout: rollout
    """What comes of a rollout."""
    shown: Callable[[TokenIds], TokenIds] = lambda prompt: prompt
    """What the model is shown in place of a prompt."""
    alike: bool = False
    """Whether all answers to a prompt are the first one."""

    @property
    def version(self) -> int:
        return self.sampler.version

    def refresh(self) -> None:
        self.sampler.refresh()

    def generate(
        self, prompts: Sequence[TokenIds], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        shown = [self.shown(prompt) for prompt in prompts]
        groups = self.sampler.generate(shown, self.told(settings), n=1 if self.alike else n)
        return [[self.given(one) for one in group] * (n if self.alike else 1) for group in groups]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A run that is sound but for one thing."""

    name: str
    spoil: Callable[[PreflightSubject], PreflightSubject]
    """From the sound subject to the broken one."""
    fails: frozenset[str]
    """The checks that must fail, and no others."""
    says: str
    """What one of them must say."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def sharp(folder: Path) -> Path:
    """The toy with scores that differ, as those of a trained model do, and a second end of answers."""
    from transformers import AutoModelForCausalLM

    make_model_with_bos(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(8)
    model.save_pretrained(folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [2, 1]}))
    return folder


def _around(subject: PreflightSubject, **how: Any) -> PreflightSubject:
    assert subject.sampler is not None
    return replace(subject, sampler=Around(sampler=subject.sampler, **how))


def _reading(subject: PreflightSubject, encoder: Encoder) -> PreflightSubject:
    """Its sampler reads by another encoder than the run does."""
    assert subject.policy is not None
    return replace(subject, sampler=LocalSampler.from_policy(subject.policy, encoder))


def _with_stops(subject: PreflightSubject, stops: Sequence[int]) -> Encoder:
    return replace(subject.encoder, info=replace(subject.encoder.info, stops=tuple(stops)))


def _copied(subject: PreflightSubject) -> PreflightSubject:
    """The sampler has the folder's weights, in a copy of its own."""
    assert subject.policy is not None
    folder = Path(str(subject.policy.base.name_or_path))
    copy = Policy(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    return replace(subject, sampler=LocalSampler.from_policy(copy, subject.encoder))


def _retokenised(subject: PreflightSubject) -> PreflightSubject:
    """Each answer becomes text and then tokens again."""
    info = subject.encoder.info

    def again(one: Rollout) -> Rollout:
        ids = info.encode(info.decode(one.ids))
        fill = (0.0,) * max(0, len(ids) - len(one.ids))
        logp, whole = ((*row, *fill)[: len(ids)] for row in (one.logp, one.whole_logp))
        return replace(one, ids=ids, logp=logp, whole_logp=whole)

    return _around(subject, given=again)


def _forgetful(subject: PreflightSubject) -> PreflightSubject:
    """Each call has a seed of its own."""
    calls = iter(range(1000))
    return _around(subject, told=lambda settings: replace(settings, seed=next(calls)))


def _set(**values: Any) -> Callable[[PreflightSubject], PreflightSubject]:
    return lambda subject: _around(subject, told=lambda settings: replace(settings, **values))


BROKEN = (
    Broken(
        name="frozen-weights",
        spoil=_copied,
        fails=frozenset({"sampler-weights"}),
        says="it draws with weights of before",
    ),
    Broken(
        name="adapter-never-arrives",
        spoil=_copied,
        fails=frozenset({"sampler-weights"}),
        says="it draws with weights of before",
        settings={"lora": LoraSettings(rank=4)},
    ),
    Broken(
        name="truncation-untold",
        spoil=lambda subject: _around(subject, given=lambda one: replace(one, logp=one.whole_logp)),
        fails=frozenset({"sampler-logps"}),
        says="among what can be drawn",
        settings={"draw": DrawSettings(top_p=0.6)},
    ),
    Broken(
        name="truncation-ignored",
        spoil=_set(top_k=0),
        fails=frozenset({"sampler-logps", "exact-sampling"}),
        says="leaves out",
        settings={"draw": DrawSettings(top_k=5)},
    ),
    Broken(
        name="temperature-ignored",
        spoil=_set(temperature=1.0),
        fails=frozenset({"sampler-logps", "sampler-weights", "exact-sampling"}),
        says="not drawn as temperature 0.4 says",
        settings={"draw": DrawSettings(temperature=0.4)},
    ),
    Broken(
        name="made-of-text-again",
        spoil=_retokenised,
        fails=frozenset({"rollout-tokens", "sampler-logps", "sampler-weights", "exact-sampling"}),
        says="made of text",
    ),
    Broken(
        name="another-prompt",
        spoil=lambda subject: _around(subject, shown=lambda prompt: (prompt[0], *prompt)),
        fails=frozenset({"rollout-tokens", "prompt-prefix"}),
        says="other prompt tokens",
    ),
    Broken(
        name="one-end-of-two",
        spoil=lambda subject: _reading(subject, _with_stops(subject, (2,))),
        fails=frozenset({"stop-tokens"}),
        says="(1) is declared as an end",
    ),
    Broken(
        name="ended-counts-as-cut",
        spoil=lambda subject: _around(
            subject, given=lambda one: replace(one, answer=replace(one.answer, ended=False))
        ),
        fails=frozenset({"stop-tokens"}),
        says="counts as cut",
    ),
    Broken(
        name="ends-everywhere",
        spoil=lambda subject: _reading(subject, _with_stops(subject, range(300))),
        fails=frozenset({"stop-tokens"}),
        says="no end of anything",
    ),
    Broken(
        name="one-number-for-all",
        spoil=lambda subject: _around(subject, alike=True),
        fails=frozenset({"exact-sampling"}),
        says="chi-square",
    ),
    Broken(
        name="no-seed-holds",
        spoil=_forgetful,
        fails=frozenset({"exact-sampling"}),
        says="the same seed gave other answers",
    ),
    Broken(
        name="every-seed-is-one",
        spoil=_set(seed=0),
        fails=frozenset({"exact-sampling"}),
        says="another seed gave the very same",
    ),
)
"""Each by the fault that somebody had."""
