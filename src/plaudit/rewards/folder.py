"""A reward by its folder, whatever lies there: a run, a reward model, a combination, two policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast, get_args

import torch
from transformers import AutoConfig

from plaudit.batches.template import make_encoder
from plaudit.errors import UserError
from plaudit.models.device import device_of
from plaudit.models.files import Arithmetic, architectures, is_reward_folder, load_model, precision
from plaudit.models.group_preference import CONFIG, load_group_preference
from plaudit.models.policy import Policy
from plaudit.models.proof import choose_layout
from plaudit.models.reward import RewardModel
from plaudit.models.reward_files import load_reward_model, refuse_other_tokenizer
from plaudit.records.feedback import Comparison
from plaudit.rewards.combine import COMBINED, Members, Policies, Process, Taste, read_combination
from plaudit.rewards.ensemble import CombinedReward
from plaudit.rewards.group import GroupReward
from plaudit.rewards.implicit import ImplicitReward
from plaudit.rewards.learned import LearnedReward
from plaudit.rewards.reward import Reward
from plaudit.rewards.steps import StepReward
from plaudit.rewards.worded import load_worded
from plaudit.rewards.worded_facts import WORDED_FACTS
from plaudit.sources.read import read_records

_OTHER_THINGS = {
    CONFIG: "this tells how groups differ, and a reward needs some comparisons of one of them beside it: "
    "plaudit combine group RUN --model DIR --context FILE",
    "adapter_config.json": "this is an adapter alone; give the run's folder, whose model/ has it merged",
}
"""What lies in a folder by this file, where that is no reward."""
_Model = TypeVar("_Model", RewardModel, Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where models go, and in which numbers.

    Example: ``_Place(device=torch.device("cpu"), dtype=torch.float32)``
    """

    device: torch.device
    dtype: torch.dtype


def load_reward(path: Path, *, device: str = "auto", dtype: str = "auto") -> Reward:
    """The reward of a folder: of a run, a reward model (plaudit's or another's), a judge in words, several.

    ``dtype`` is that of the weights and of all products: auto is bfloat16 on a GPU and float32 on a CPU. The
    reward is called what the folder is called; a run's ``model`` folder is called what the run is.
    """
    if dtype not in get_args(Arithmetic):
        raise UserError(f"dtype {dtype!r}: use {', '.join(get_args(Arithmetic))}")
    where = device_of(device)
    place = _Place(device=where, dtype=precision(cast("Arithmetic", dtype), where).products)
    return _load(path, place, ())


def _load(path: Path, place: _Place, trail: tuple[Path, ...]) -> Reward:
    here = path.resolve()
    if here in trail:
        raise UserError(f"{path}: this reward is made of itself, by way of {trail[-1]}; mend its {COMBINED}")
    if not (path / COMBINED).is_file():
        return load_worded(path, place.device, place.dtype) if _worded(path) else _learned(path, place)
    match facts := read_combination(path):
        case Members():
            members = tuple(_load(folder, place, (*trail, here)) for folder in facts.folders)
            return CombinedReward(name=_name(path), members=members, combination=facts.combination)
        case Policies():
            return _implicit(path, facts, place)
        case Process():
            model = _learned(facts.model, place, name=_name(path))
            return StepReward(model=model, reading=facts.reading)
        case Taste():
            return _taste(path, facts, place)


def check_reward(path: Path) -> None:
    """Complain about a folder that `load_reward` would not take, as far as shows without its weights."""
    if not (path / COMBINED).is_file():
        if not _worded(path):
            _scorer_folder(path)
        return
    match facts := read_combination(path):
        case Members():
            for folder in facts.folders:
                check_reward(folder)
        case Policies():
            check_policies(facts)
        case Process():
            _scorer_folder(facts.model)
        case Taste():
            check_taste(facts)


def models_of(path: Path) -> tuple[Path, ...]:
    """The folders of all models that a reward's folder loads; one that is there twice is loaded twice."""
    if not (path / COMBINED).is_file():
        return (model_folder(path),)
    match facts := read_combination(path):
        case Members():
            return tuple(found for folder in facts.folders for found in models_of(folder))
        case Policies():
            return tuple(model_folder(folder) for folder in facts.folders)
        case Process():
            return (model_folder(facts.model),)
        case Taste():
            return (model_folder(facts.embedder),)


def check_policies(facts: Policies) -> None:
    """Complain about folders that make no implicit reward: no language models, other tokens."""
    for path in facts.folders:
        folder = model_folder(path)
        if is_reward_folder(folder):
            raise UserError(f"{path}: this is a reward model; the implicit reward is that of language models")
        if not architectures(folder):
            raise UserError(f"{path}: {_what_it_is(path, folder)}")
    if facts.reference is not None:
        refuse_other_tokenizer(model_folder(facts.reference), make_encoder(model_folder(facts.policy)).info)


def check_taste(taste: Taste) -> tuple[Comparison, ...]:
    """Complain about what makes no taste of a group; returns the comparisons that tell of it."""
    if not (model_folder(taste.module) / CONFIG).is_file():
        raise UserError(
            f"{taste.module}: no group preference module lies here; plaudit train group makes one"
        )
    folder = model_folder(taste.embedder)
    if is_reward_folder(folder) or not architectures(folder):
        raise UserError(
            f"{taste.embedder}: no language model; give the one that the module was trained beside"
        )
    size = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().hidden_size
    wanted = load_group_preference(model_folder(taste.module)).config.embedding
    if size != wanted:
        raise UserError(
            f"{taste.embedder}: its states have {size} numbers and the module was trained on {wanted}: "
            "this is not the model that it was trained beside"
        )
    return _shown_by(taste)


def _worded(path: Path) -> bool:
    return (model_folder(path) / WORDED_FACTS).is_file()


def _scorer_folder(path: Path) -> Path:
    folder = model_folder(path)
    if not is_reward_folder(folder):
        raise UserError(f"{path}: {_what_it_is(path, folder)}")
    return folder


def _learned(path: Path, place: _Place, name: str | None = None) -> LearnedReward:
    folder = _scorer_folder(path)
    encoder = make_encoder(folder)
    model = load_reward_model(folder, dtype=place.dtype, device=place.device)
    return LearnedReward(name or _name(path), _proven(model), encoder)


def _implicit(path: Path, facts: Policies, place: _Place) -> ImplicitReward:
    check_policies(facts)
    policy = _policy(facts.policy, place)
    reference = None if facts.reference is None else _policy(facts.reference, place)
    encoder = make_encoder(model_folder(facts.policy))
    return ImplicitReward(_name(path), policy, reference, encoder, beta=facts.beta)


def _taste(path: Path, facts: Taste, place: _Place) -> GroupReward:
    shown, folder = check_taste(facts), model_folder(facts.embedder)
    module = load_group_preference(model_folder(facts.module), device=place.device)
    embedder = _policy(folder, place)
    return GroupReward(_name(path), module, embedder, make_encoder(folder), shown)


def _policy(folder: Path, place: _Place) -> Policy:
    return _proven(Policy(load_model(model_folder(folder), dtype=place.dtype, device=place.device)))


def _shown_by(taste: Taste) -> tuple[Comparison, ...]:
    """The comparisons that tell of the group."""
    records = read_records(taste.context).records
    found = tuple(one for one in records if isinstance(one, Comparison) and taste.group in (None, one.group))
    if not found:
        whose = "" if taste.group is None else f" by the group {taste.group!r}"
        raise UserError(f"{taste.context}: no comparison{whose}, so nothing is known of the group")
    return found


def model_folder(path: Path) -> Path:
    """Of a run's folder the model in it, of any other the folder itself."""
    return path / "model" if any((path / "model").glob("*.json")) else path


def _proven(model: _Model) -> _Model:
    layout, _ = choose_layout(model, "packed")
    model.use_layout(layout)
    return model.requires_grad_(False).eval()


def _name(path: Path) -> str:
    whole = path.resolve()
    whole = whole.parent if whole.name == "model" else whole
    # A stage of a pipeline keeps its run in run/, and is called what the stage is called.
    return whole.parent.name if (whole.parent / "stage.json").is_file() else whole.name


def _what_it_is(path: Path, folder: Path) -> str:
    """What was found in place of a reward, and what to do about it."""
    if not path.is_dir():
        return "no such folder; give that of a run, of a reward model or of a combination"
    named = architectures(folder)
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in named):
        return (
            f"this is a language model ({named[0]}), not a reward model: it has no head that scores; for the "
            "implicit reward of a DPO policy use `plaudit combine implicit --policy DIR --reference DIR`"
        )
    if named:
        return f"this is a {named[0]}, and a reward model is a sequence classifier with one label"
    for name, said in _OTHER_THINGS.items():
        if (folder / name).is_file():
            return said
    if (path / "checkpoints").is_dir() or (path / "config.yaml").is_file():
        return "this run has no model/ yet: it has not finished; the same command goes on with it"
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:6]) or "nothing"
    return f"no reward lies here: neither model/, config.json nor {COMBINED} (it holds {found})"
