"""A reward by its folder, whatever lies there: a run, a reward model, a combination, two policies.

A language model's folder is one of three rewards:

- text reward: log P(good) − log P(bad), the log-odds of the word for a good answer (Zhang et al. 2024,
  arXiv:2408.15240);
- ranker: the chance that one answer is better than another;
- critic: points that follow from a critique that the model writes first (`CritiqueReward`).

Rewards that are to be weighed against each other are brought to one unit on the answers of a file.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from transformers import AutoConfig

from plaudit.data.generative_judging import GenerativeRewardSettings, PairwiseRankerSettings, pointwise_prompt
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Task, answers_of
from plaudit.errors import UserError
from plaudit.files.model_folder import explain_unfinished_run
from plaudit.models.group_preference import CONFIG_FILE, load_group_preference
from plaudit.models.load import architectures, device_of, is_reward_folder, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.reward_model import Normalisation, RewardModel, load_reward_model, refuse_other_tokenizer
from plaudit.models.verify import choose_kernels, choose_layout
from plaudit.rewards.base import Reward, TaskScores
from plaudit.rewards.combine.aggregate import CombinedReward, fit_normalisations
from plaudit.rewards.combine.manifest import (
    COMBINED_FILE,
    CombinationManifest,
    GroupManifest,
    ImplicitManifest,
    ProcessManifest,
    read_manifest,
)
from plaudit.rewards.learned.group import GroupReward
from plaudit.rewards.learned.process import StepReward
from plaudit.rewards.learned.scalar import ImplicitReward, LearnedReward
from plaudit.rewards.llm import generative
from plaudit.rewards.llm.generative import CritiqueReward
from plaudit.rewards.llm.pairwise import PairwiseRanker
from plaudit.rollouts.local import LocalSampler
from plaudit.tokens.encode import AnsweredRecord, make_encoder


class GenerativeReward(generative.RewardInWords):
    def __init__(self, model: generative.LanguageJudgeModel) -> None:
        """Take a language judge that was trained with the settings of a generative reward."""
        settings = model.spec.settings
        assert isinstance(settings, GenerativeRewardSettings)
        self._model, self._settings = model, settings

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """log P(good) − log P(bad) of every answer; None where the model cannot be shown it whole."""
        return self._score_answers(tasks, lambda logps: logps[0] - logps[1])

    def probabilities(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """P(good) / (P(good) + P(bad)) of every answer: σ of the score."""
        return self._score_answers(tasks, lambda logps: generative.reply_probabilities(logps)[0])

    def _score_answers(
        self, tasks: Sequence[Task], score: Callable[[Sequence[float]], float]
    ) -> tuple[TaskScores, ...]:
        form = self._model.form
        questions = [
            pointwise_prompt(self._settings, form, task.prompt, answer)
            for task in tasks
            for answer in task.answers
        ]
        replies = iter(self._model.logps(questions))
        return tuple(
            tuple(None if (logps := next(replies)) is None else score(logps) for _ in task.answers)
            for task in tasks
        )


def load_language_judge(
    folder: Path, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> GenerativeReward | PairwiseRanker | CritiqueReward:
    """The reward of a folder that holds worded.json: a model folder, or a run folder with one in it.
    It is called what the folder is called; a run's ``model`` folder is called what the run is."""
    path = model_folder(folder)
    spec = generative.read_language_judge_spec(path)
    target = device_of(device) if isinstance(device, str) else device
    products = precision(dtype, target).products if isinstance(dtype, str) else dtype
    policy = _load_policy(path, target, products)
    model = generative.LanguageJudgeModel(_reward_name(path), policy, make_encoder(path), spec)
    if isinstance(spec.settings, GenerativeRewardSettings):
        return GenerativeReward(model)
    if isinstance(spec.settings, PairwiseRankerSettings):
        return PairwiseRanker(model)
    return CritiqueReward(model, LocalSampler(path, device=str(target)))


_NOT_REWARD_FILES = {
    CONFIG_FILE: "this tells how groups differ, and a reward needs some comparisons of one of them beside "
    "it: plaudit combine group RUN --model DIR --context FILE",
    "adapter_config.json": "this is an adapter alone; give the run's folder, whose model/ has it merged",
}
"""Files that mark a folder as something other than a reward, and what to do about each."""
_Model = TypeVar("_Model", RewardModel, Policy)


def load_reward(path: Path, *, device: str = "auto", dtype: str = "auto") -> Reward:
    """The reward of a folder: of a run, a reward model (plaudit's or another's), a judge in words, several.

    ``dtype`` is that of the weights and of all products: auto is bfloat16 on a GPU and float32 on a CPU. The
    reward is called what the folder is called; a run's ``model`` folder is called what the run is.
    """
    target = device_of(device)
    return _load_folder(path, target, precision(dtype, target).products, ())


def _load_folder(path: Path, device: torch.device, dtype: torch.dtype, ancestors: tuple[Path, ...]) -> Reward:
    resolved = path.resolve()
    if resolved in ancestors:
        raise UserError(
            f"{path}: this reward is made of itself, by way of {ancestors[-1]}; mend its {COMBINED_FILE}"
        )
    if not (path / COMBINED_FILE).is_file():
        if _is_language_judge(path):
            return load_language_judge(path, device, dtype)
        return _load_learned(path, device, dtype)
    match manifest := read_manifest(path):
        case CombinationManifest():
            members = tuple(
                _load_folder(folder, device, dtype, (*ancestors, resolved)) for folder in manifest.folders
            )
            return CombinedReward(name=_reward_name(path), members=members, combination=manifest.combination)
        case ImplicitManifest():
            check_implicit(manifest)
            policy = _load_policy(manifest.policy, device, dtype)
            reference = (
                None if manifest.reference is None else _load_policy(manifest.reference, device, dtype)
            )
            encoder = make_encoder(model_folder(manifest.policy))
            return ImplicitReward(_reward_name(path), policy, reference, encoder, beta=manifest.beta)
        case ProcessManifest():
            model = _load_learned(manifest.model, device, dtype, name=_reward_name(path))
            return StepReward(model=model, reading=manifest.reading)
        case GroupManifest():
            comparisons, folder = check_group(manifest), model_folder(manifest.embedder)
            module = load_group_preference(model_folder(manifest.module), device=device)
            embedder = _load_policy(folder, device, dtype)
            return GroupReward(_reward_name(path), module, embedder, make_encoder(folder), comparisons)


def check_reward(path: Path) -> None:
    """Complain about a folder that `load_reward` would not take, as far as shows without its weights."""
    if not (path / COMBINED_FILE).is_file():
        if not _is_language_judge(path):
            _reward_model_folder(path)
        return
    match manifest := read_manifest(path):
        case CombinationManifest():
            for folder in manifest.folders:
                check_reward(folder)
        case ImplicitManifest():
            check_implicit(manifest)
        case ProcessManifest():
            _reward_model_folder(manifest.model)
        case GroupManifest():
            check_group(manifest)


def loaded_model_folders(path: Path) -> tuple[Path, ...]:
    """The folders of all models that a reward's folder loads; one that is there twice is loaded twice."""
    if not (path / COMBINED_FILE).is_file():
        return (model_folder(path),)
    match manifest := read_manifest(path):
        case CombinationManifest():
            return tuple(model for folder in manifest.folders for model in loaded_model_folders(folder))
        case GroupManifest():
            return (model_folder(manifest.embedder),)
        case ImplicitManifest() | ProcessManifest():
            return tuple(map(model_folder, manifest.folders))


def check_implicit(manifest: ImplicitManifest) -> None:
    """Complain about folders that make no implicit reward: no language models, other tokens."""
    for path in manifest.folders:
        folder = model_folder(path)
        if is_reward_folder(folder):
            raise UserError(f"{path}: this is a reward model; the implicit reward is that of language models")
        if not architectures(folder):
            raise UserError(f"{path}: {_explain_no_reward(path, folder)}")
    if manifest.reference is not None:
        # A ratio of two log-probs means something over the same tokens only.
        refuse_other_tokenizer(
            model_folder(manifest.reference), make_encoder(model_folder(manifest.policy)).info
        )


def check_group(manifest: GroupManifest) -> tuple[Comparison, ...]:
    """Complain about what makes no taste of a group; returns the comparisons that tell of it."""
    if not (model_folder(manifest.module) / CONFIG_FILE).is_file():
        raise UserError(
            f"{manifest.module}: no group preference module lies here; plaudit train group makes one"
        )
    folder = model_folder(manifest.embedder)
    if is_reward_folder(folder) or not architectures(folder):
        raise UserError(
            f"{manifest.embedder}: no language model; give the one that the module was trained beside"
        )
    size = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().hidden_size
    expected_size = load_group_preference(model_folder(manifest.module)).config.embedding
    if size != expected_size:
        raise UserError(
            f"{manifest.embedder}: its states have {size} numbers and the module was trained on "
            f"{expected_size}: this is not the model that it was trained beside"
        )
    records = read_records(manifest.context).records
    comparisons = tuple(
        record
        for record in records
        if isinstance(record, Comparison) and manifest.group in (None, record.group)
    )
    if not comparisons:
        whose = "" if manifest.group is None else f" by the group {manifest.group!r}"
        raise UserError(f"{manifest.context}: no comparison{whose}, so nothing is known of the group")
    return comparisons


def _is_language_judge(path: Path) -> bool:
    return (model_folder(path) / generative.LANGUAGE_JUDGE_FILE).is_file()


def _reward_model_folder(path: Path) -> Path:
    folder = model_folder(path)
    if not is_reward_folder(folder):
        raise UserError(f"{path}: {_explain_no_reward(path, folder)}")
    return folder


def _load_learned(
    path: Path, device: torch.device, dtype: torch.dtype, name: str | None = None
) -> LearnedReward:
    folder = _reward_model_folder(path)
    encoder = make_encoder(folder)
    model = load_reward_model(folder, dtype=dtype, device=device)
    return LearnedReward(name or _reward_name(path), verify_and_freeze(model), encoder)


def _load_policy(folder: Path, device: torch.device, dtype: torch.dtype) -> Policy:
    return verify_and_freeze(Policy(load_model(model_folder(folder), dtype=dtype, device=device)))


def model_folder(path: Path) -> Path:
    return path / "model" if any((path / "model").glob("*.json")) else path


def verify_and_freeze(model: _Model) -> _Model:
    layout, _ = choose_layout(model, "packed")
    model.use_layout(layout)
    choose_kernels(model)
    return model.requires_grad_(False).eval()


def _reward_name(path: Path) -> str:
    folder = path.resolve()
    folder = folder.parent if folder.name == "model" else folder
    # A stage of a pipeline keeps its run in run/, and is called what the stage is called.
    return folder.parent.name if (folder.parent / "stage.json").is_file() else folder.name


def _explain_no_reward(path: Path, folder: Path) -> str:
    if not path.is_dir():
        return "no such folder; give that of a run, of a reward model or of a combination"
    class_names = architectures(folder)
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in class_names):
        return (
            f"this is a language model ({class_names[0]}), not a reward model: it has no head that scores; "
            "for the "
            "implicit reward of a DPO policy use `plaudit combine implicit --policy DIR --reference DIR`"
        )
    if class_names:
        return f"this is a {class_names[0]}, and a reward model is a sequence classifier with one label"
    for name, explanation in _NOT_REWARD_FILES.items():
        if (folder / name).is_file():
            return explanation
    if unfinished := explain_unfinished_run(path):
        return unfinished
    contents = ", ".join(sorted(entry.name for entry in path.iterdir())[:6]) or "nothing"
    return f"no reward lies here: neither model/, config.json nor {COMBINED_FILE} (it holds {contents})"


def fit_reward_normalisations(
    rewards: Sequence[Path], rows: Path, *, device: str = "auto"
) -> tuple[Normalisation, ...]:
    """What gives each reward's folder the mean 0 and the standard deviation 1 on the answers of a file.
    Each was fitted with an unknown level and a unit of its own (the noise of whoever judged), so a weight of
    0.7 says little before."""
    tasks = tuple(
        Task(prompt=record.prompt, answers=answers, ended=(True,) * len(answers))
        for record in read_records(rows).records
        if isinstance(record, AnsweredRecord)
        for answers in [answers_of(record)]
    )
    if not tasks:
        raise UserError(f"{rows}: no row has an answer that could be scored")
    return fit_normalisations([load_reward(folder, device=device) for folder in rewards], tasks)
