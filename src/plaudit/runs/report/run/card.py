"""The model card of a run: what it was made from and how, its figures, and what to doubt.

Every word of it comes from the files of the run, and from an evaluation where one is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from plaudit.engine.run_folder import flat_settings
from plaudit.errors import UserError
from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures, read_policy_evaluation
from plaudit.files import exact_json, hub
from plaudit.models.load import is_reward_folder
from plaudit.runs.report.parts import say
from plaudit.runs.report.pipeline.findings import policy_warnings
from plaudit.runs.report.run.data import RunData, read_run_data
from plaudit.runs.report.run.page import run_sentence
from plaudit.runs.report.words import number_text

_OF_THIS_MACHINE = ("out", "device", "sinks", "reference.cache")
_SHOWN_FIGURES = ("loss", "accuracy", "margin", "reward", "judge", "kl")


def model_card(run: Path, repo: str, *, licence: str, evaluation: Path | None = None) -> str:
    """README.md of a repository that this run's model is put into."""
    data = read_run_data(run)
    settings = flat_settings(yaml.safe_load(data.config))
    base, sentence = _name(settings.get("model")), run_sentence(data.history, finished=data.finished)
    command = (
        f"plaudit eval reward {repo} --data pairs.jsonl"
        if is_reward_folder(run / "model")
        else f"plaudit chat --model {repo}"
    )
    sections = [
        f"# {repo.rpartition('/')[2]}",
        say("card.opening", base=base, method=_method(data), sentence=sentence),
        *_measured(run, evaluation),
        _section("Figures of the run", [*_figure_rows(data)], "| figure | last | best |\n|---|---|---|"),
        _section("What to doubt", [*_doubts(run, data, evaluation)], ""),
        _section("Made from", [*_origins(data, settings)], ""),
        _section("Settings", [*_setting_rows(settings)], "| setting | value |\n|---|---|"),
        f"## Use\n\n```bash\n{command}\n```",
    ]
    front = yaml.safe_dump(_front(run, data, settings, licence), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(section for section in sections if section) + "\n"


def _front(run: Path, data: RunData, settings: Mapping[str, Any], licence: str) -> dict[str, Any]:
    """What the hub reads: licence, origins, what the model is for."""
    names = {key: str(value).partition("@")[0] for key, value in settings.items() if _is_hub_name(value)}
    task = "text-classification" if is_reward_folder(run / "model") else "text-generation"
    front: dict[str, Any] = {"license": licence, "library_name": "transformers", "pipeline_tag": task}
    front["tags"] = ["plaudit", _method(data)]
    if "model" in names:
        front["base_model"] = names["model"]
    data_sets = sorted({names[key] for key in ("data", "prompts", "held_out") if key in names})
    return front | ({"datasets": data_sets} if data_sets else {})


def _is_hub_name(value: object) -> bool:
    return isinstance(value, str) and hub.is_commit_name(value)


def _method(data: RunData) -> str:
    return (data.lineage.method if data.lineage else "") or "plaudit"


def _name(value: object) -> str:
    """A model or rows by name; of a path of this machine only the last part says something elsewhere."""
    return str(value) if _is_hub_name(value) else f"`{PurePath(str(value)).name}`"


def _section(title: str, lines: Sequence[str], head: str) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {title}", "", *([head] if head else []), *lines])


def _figure_rows(data: RunData) -> Iterator[str]:
    for name, column in data.history.columns.items():
        if name.split("/")[-1] in _SHOWN_FIGURES and (name.startswith("held_out/") or "/" not in name):
            best = "" if column.best is None else f"{number_text(column.best[1])} (step {column.best[0]:,})"
            yield f"| {name} | {number_text(column.last)} | {best} |"


def _measured(run: Path, evaluation: Path | None) -> Iterator[str]:
    if evaluation is None:
        return
    found = read_policy_evaluation(evaluation)
    policy = _policy_of(run, found, evaluation)
    rows = [
        say("card.win_rate", contest=contest)
        for contest in found.contests
        if contest.policy == policy.name and contest.raw is not None
    ]
    head = "| against | judge | preferred | 95 % interval, % | prompts |\n|---|---|---|---|---|"
    yield _section("Win rates", rows, head)
    yield say("card.length", found=found, policy=policy)


def _policy_of(run: Path, found: PolicyEvaluation, evaluation: Path) -> PolicyFigures:
    folders = {run.resolve(), (run / "model").resolve()}
    for policy in found.policies:
        if Path(policy.model).resolve() in folders:
            return policy
    names = ", ".join(policy.model for policy in found.policies)
    raise UserError(f"--evaluation {evaluation}: {run} is none of its policies, which are {names}")


def _doubts(run: Path, data: RunData, evaluation: Path | None) -> Iterator[str]:
    """Remarks of the run after its first step, checks that failed, warnings of the evaluation."""
    if evaluation is None:
        yield f"- {say('card.not_compared')}"
    for note in data.notes:
        if note.step != 0:
            yield f"- {note.text}{f' ({note.details})' if note.details else ''}"
    yield from _failed_checks(run / "checks.json")
    for warning in () if evaluation is None else policy_warnings(read_policy_evaluation(evaluation)):
        yield f"- {warning.about}: {warning.finding}. {warning.reason}"


def _failed_checks(path: Path) -> Iterator[str]:
    if not path.is_file():
        yield f"- {say('card.unchecked')}"
        return
    for check in exact_json.loads(path.read_bytes())["checks"]:
        if check["verdict"] not in ("pass", "not applicable"):
            yield f"- check {check['name']} ({check['verdict']}): {check['finding']}"


def _origins(data: RunData, settings: Mapping[str, Any]) -> Iterator[str]:
    lineage = data.lineage
    yield f"- base model: {_name(settings.get('model'))}"
    if lineage is None:
        return
    yield f"  (sha256 of its files {lineage.model})"
    for path, digest in lineage.data.items():
        yield f"- data: {_name(path)} (sha256 {digest})"
    yield f"- seed {lineage.seed}, plaudit {lineage.code.get('plaudit')}"
    yield "- " + ", ".join(f"{name} {version}" for name, version in lineage.libraries.items())


def _setting_rows(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if key not in _OF_THIS_MACHINE and value not in (None, [], ()):
            shown = _name(value) if isinstance(value, str) and "/" in value else f"`{value}`"
            yield f"| {key} | {shown} |"
