"""What comes back in Python: tables of figures, training runs, and models that answer."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plaudit.config import did_you_mean
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.wings import offered

if TYPE_CHECKING:
    from plaudit.data.records import Message, Text
    from plaudit.models.policy import Policy
    from plaudit.rewards.base import Reward
    from plaudit.rollouts.sampler import SamplingSettings


class Table(list[dict[str, Any]]):
    """Rows with the same columns: a list of dicts that prints as a table and goes to pandas and Arrow.

    >>> print(Table([{"step": 1, "loss": 0.693147}, {"step": 2, "loss": 0.5}]))
    step  loss
    1     0.6931
    2     0.5
    """

    @classmethod
    def of(cls, records: Sequence[Any]) -> Table:
        """A row for each record, with its numbers and texts; an estimate takes a column for each end too.

        ``plaudit.Table.of(plaudit.evaluate({"a": a, "b": b}, data=rows).contests).to_pandas()``
        """
        return cls(dict(_record_cells(record)) for record in records)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self for name in row))

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none.

        >>> Table([{"loss": 0.5, "held_out/loss": 0.6}, {"loss": 0.4}]).column("held_out/loss")
        [0.6, None]
        """
        if name not in self.columns:
            raise UserError(f"there is no column {name}{did_you_mean(name, self.columns)}")
        return [row.get(name) for row in self]

    def select(self, *names: str) -> Table:
        """The table with these columns only."""
        columns = {name: self.column(name) for name in names}
        return Table({name: values[at] for name, values in columns.items()} for at in range(len(self)))

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return _import_library("pandas", "to_pandas").DataFrame(list(self), columns=self.columns)

    def to_arrow(self) -> Any:
        """The table as an Arrow table."""
        columns = {name: self.column(name) for name in self.columns}
        return _import_library("pyarrow", "to_arrow").table(columns)

    def _cells(self) -> list[list[str]]:
        names = self.columns
        return [names, *([_cell(row.get(name)) for name in names] for row in self)]

    def __str__(self) -> str:
        """The table as text, with aligned columns."""
        widths = [max(map(len, column)) for column in zip(*self._cells(), strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in self._cells()
        )
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th", *["td"] * len(self)], self._cells(), strict=True)
        ]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _record_cells(record: Any) -> Iterator[tuple[str, object]]:
    from plaudit.evaluation.stats import Estimate

    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Estimate):
            yield from ((field.name, value.value), (f"{field.name}_low", value.low))
            yield f"{field.name}_high", value.high
        elif isinstance(value, str | int | float):
            yield field.name, value


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _import_library(name: str, method: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{method} needs {name}: pip install {name}") from error


class LanguageModel:
    """A model that answers.

    Example: ``plaudit.load("runs/dpo").chat("Name three fruits.", temperature=0)``
    """

    def __init__(self, folder: Path, *, device: str = "auto") -> None:
        """Load a folder, also of a run; ``device`` is auto (a GPU where there is one), cpu or cuda."""
        from plaudit.rewards.load import model_folder
        from plaudit.rollouts.local import LocalSampler

        self.folder = model_folder(Path(folder))
        self._sampler = LocalSampler(self.folder, device=device)

    def __repr__(self) -> str:
        return f"<LanguageModel {self.folder}: .chat(question), .sample(prompts, n=4)>"

    @property
    def policy(self) -> Policy:
        """The model as training sees it: ``policy.score(batch).logp_NT``."""
        return self._sampler.policy

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer, of transformers."""
        return self._sampler.encoder.info.tokenizer

    def chat(
        self,
        message: str | Sequence[Any],
        *,
        system: str | None = None,
        tools: Sequence[Any] | str = (),
        **sampling: Any,
    ) -> str:
        """The answer to a question, or to a conversation that ends with one.

        message: a text, or turns as dicts with role and content.
        tools: the schemas of functions that it may call, or their JSON.
        sampling: temperature, top_k, top_p, min_p, max_tokens (256), stop, seed.
        """
        from plaudit.data.records import Message, with_opening

        turns = _turns(message, tools)
        if system is not None:
            turns = with_opening((Message(role="system", content=system),), turns)
        [[answer]] = self._sampler.generate_answers([turns], _sampling({"max_tokens": 256, **sampling}))
        return answer.text

    def sample(self, prompts: str | Sequence[Any], *, n: int = 1, **sampling: Any) -> list[list[str]]:
        """``n`` answers to each prompt: to a text or several, or to conversations.

        sampling: temperature, top_k, top_p, min_p, max_tokens (64), stop, seed.
        """
        if not isinstance(prompts, Iterable):
            raise UserError(f"prompts are a text or a list of texts, not {type(prompts).__name__}")
        several = [prompts] if isinstance(prompts, str) else list(prompts)
        texts: list[Text] = [text if isinstance(text, str) else _turns(text) for text in several]
        groups = self._sampler.generate_answers(texts, _sampling(sampling), n=n)
        return [[answer.text for answer in group] for group in groups]


def _turns(message: str | Sequence[Any], tools: Sequence[Any] | str = ()) -> tuple[Message, ...]:
    from plaudit.data.read import read_records
    from plaudit.data.records import Prompt, text_to_json, user_turn

    if isinstance(message, str):
        if not tools:
            return user_turn(message)
        message = [{"role": "user", "content": message}]
    if not isinstance(message, Sequence):
        raise UserError(f"a conversation is a text or a list of turns, not {type(message).__name__}")
    if not message or not isinstance(message[0], Mapping):
        if not tools:
            return cast("tuple[Message, ...]", tuple(message))
        message = cast("list[Any]", text_to_json(cast("tuple[Message, ...]", tuple(message))))
    # Through the reader of rows: roles and contents are checked there.
    [record] = read_records(
        [{"prompt": list(message), "tools": tools}], format="trl-prompt", threshold=0
    ).records
    assert isinstance(record, Prompt)
    return cast("tuple[Message, ...]", record.prompt)


def _sampling(settings: Mapping[str, Any]) -> SamplingSettings:
    from plaudit.rollouts.sampler import SamplingSettings

    known = [field.name for field in fields(SamplingSettings)]
    for name in settings:
        if name not in known:
            raise UserError(f"{name} is no setting of sampling{did_you_mean(name, known)}")
    stop = settings.get("stop", ())
    return SamplingSettings(**{**settings, "stop": (stop,) if isinstance(stop, str) else tuple(stop)})


def score(reward: Any, prompt: Any, answers: Sequence[str]) -> tuple[float | None, ...]:
    """What a reward says of answers to a prompt, a text or turns; None where it has no verdict.

    ``plaudit.score("runs/reward", "What does the owl eat?", ["Mice.", "Bark."])``
    """
    from plaudit.data.records import Task, assistant_turn

    if isinstance(answers, str):
        raise UserError("plaudit.score: answers is a list of texts, also where there is one: [answer]")
    asker = load_any_reward(reward.folder if isinstance(reward, TrainingResult) else reward, "auto", "auto")
    # As turns, prompt and answers alike: a reward that was learnt from conversations reads no other kind.
    task = Task(
        prompt=_turns(prompt), answers=tuple(map(assistant_turn, answers)), ended=(True,) * len(answers)
    )
    return asker.scores([task])[0]


@dataclass(frozen=True, slots=True)
class Charts:
    """Curves of a run, drawn as on its page: a notebook shows them.

    Example: ``plaudit.train("dpo", model="base", data="pairs.jsonl", out="runs/dpo").charts``
    """

    html: str
    """The page that holds them."""
    height: int
    """How many pixels of a notebook they are given."""

    def _repr_html_(self) -> str:
        """The charts as notebooks show them: a page of its own in a frame, which lets nothing be loaded."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="" title="curves of a run" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training run left in its folder.

    Example: ``plaudit.train("dpo", model="base", data="pairs.jsonl", out="runs/dpo").metrics``
    """

    folder: Path
    """The run folder; ``plaudit.TrainingResult(Path("runs/dpo"))`` opens one that was trained before."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", existing_folder(self.folder))

    @property
    def metrics(self) -> Table:
        """A row for each step: loss, rewards, KL and whatever else the method reports (docs/metrics.md)."""
        from plaudit.engine.sinks.files import read_reports

        return Table({"step": report.step, **report.flattened()} for report in read_reports(self.folder))

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its last and best figures, and its notes: summary.json."""
        return json.loads((self.folder / "summary.json").read_text("utf-8"))

    @property
    def model_folder(self) -> Path:
        """The model, as a Hugging Face folder."""
        from plaudit.rewards.load import model_folder

        return model_folder(self.folder)

    @property
    def report(self) -> Path:
        """The page of the run."""
        return self.folder / "report.html"

    @property
    def charts(self) -> Charts:
        """Its curves."""
        page, figures = offered("curves_page")(self.folder)
        # Two figures stand side by side in a notebook's column.
        return Charts(html=page, height=120 + 290 * ((figures + 1) // 2))

    def _repr_html_(self) -> str:
        return self.charts._repr_html_()

    def __repr__(self) -> str:
        done = "no step yet" if not self.metrics else f"{self.metrics[-1]['step']} steps"
        return f"<TrainingResult {self.folder}, {done}: .metrics, .charts, .load(), .generate(prompts)>"

    def load(self, *, device: str = "auto") -> LanguageModel | Reward:
        """What was trained: a `LanguageModel`, or a `Reward` where answers are scored."""
        return load(self.folder, device=device)

    def generate(self, prompts: str | Sequence[Any], **settings: Any) -> list[list[str]]:
        """Answers of what was trained, as `LanguageModel.sample` draws them; it is loaded for each call."""
        model = self.load()
        if not isinstance(model, LanguageModel):
            raise UserError(f"{self.folder}: a reward writes no answers; plaudit.score asks it")
        return model.sample(prompts, **settings)


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: there is no such folder; name the one that was out=")
    return Path(folder)


def load(model: Any, *, device: str = "auto") -> LanguageModel | Reward:
    """A model to talk to, or a reward: of its folder, or of a run.

    ``plaudit.load("runs/dpo").chat("Name three fruits.")``
    """
    if isinstance(model, TrainingResult):
        model = model.folder
    if is_reward(model):
        return load_any_reward(model, device, "auto")
    if not isinstance(model, str | os.PathLike):
        raise UserError(f"plaudit.load: a folder, org/name of the hub or a run, not {type(model).__name__}")
    return LanguageModel(hub.local_path(model, "model"), device=device)


def is_reward(model: Any) -> bool:
    """Whether a model scores answers: a reward's folder, the words of a rule or a function, or a `Reward`."""
    if not isinstance(model, str | os.PathLike):
        return hasattr(model, "scores")
    folder = hub.local_path(model, "model")
    if not folder.exists():
        # What is no folder is a rule ("length:1-20") or a function ("mine.py:name"): both have a colon.
        return ":" in str(model)
    from plaudit.rewards.load import check_reward

    try:
        check_reward(folder)
    except UserError:
        return False
    return True


def load_any_reward(model: Any, device: str, dtype: str) -> Reward:
    if not isinstance(model, str | os.PathLike):
        return model
    from plaudit.rewards.registry import resolve_reward

    return resolve_reward(os.fspath(model), device=device, dtype=dtype)
