"""The laboratory: rows, models and evaluations on the embedded world, each made once and kept in a folder."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from examples.base_model.model import build_base
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Ranking, plain_text
from plaudit.data.write import write_records
from plaudit.evaluation.reward_models.evaluate import evaluate_reward, read_reward_data
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Resampling
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.making import comparisons, demonstrations, model_answer_tasks, rankings
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.verdicts import make_comparisons, make_thumbs
from plaudit.methods.config import SampleSettings, SftConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.preference.run import preference
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.run import reward
from plaudit.methods.supervised.run import sft
from plaudit.rewards.load import load_reward
from plaudit.rollouts.local import LocalSampler
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.run import ProgressReporter, run_pipeline
from plaudit.runs.pipeline.spec import Pipeline

RATE, BATCH = 1e-3, 32
"""Learning rate and rows in a step, unless a study is about them."""
TESTED = 1000
"""Comparisons in a test file."""
SHOWN = 1500
"""Demonstrations that the starting model is fine-tuned on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A folder in which everything is made once.

    Example: ``Lab(folder=Path("lab")).trained("experts", lab.compared("experts", 2000))``
    """

    folder: Path
    """Where all of it lies."""
    device: str = "cpu"
    """Where models learn and answer."""
    seeds: int | None = None
    """Runs of each kind, of studies that have a choice; None: as many as the study names."""

    def sampler(self, model: Path) -> LocalSampler:
        """A model of the laboratory, ready to answer."""
        return LocalSampler(model, device=self.device)

    def compared(self, annotators: str, n: int, split: Split = "train", seed: int = 0) -> Path:
        """Comparisons by a pool."""
        path = self._data(f"{annotators}-{n}-{split}-{seed}")
        if not path.exists():
            write_records(comparisons(n, annotator_pool(annotators), split=split, seed=seed), path)
        return path

    def judged(self, model: Path, annotators: str, n: int, seed: int = 0) -> Path:
        """Comparisons, by a pool, of a model's own answers."""
        path = self._data(f"{annotators}-{n}-own-{model.parent.name}-{seed}")
        if not path.exists():
            tasks = model_answer_tasks(self.sampler(model), n, answers=2, seed=seed)
            write_records(make_comparisons(annotator_pool(annotators), tasks, seed), path)
        return path

    def thumbed(self, model: Path, annotators: str, n: int, seed: int = 0) -> Path:
        """Thumbs, by a pool, for a model's own answers."""
        path = self._data(f"{annotators}-{n}-thumbs-{model.parent.name}-{seed}")
        if not path.exists():
            tasks = model_answer_tasks(self.sampler(model), n, answers=1, seed=seed)
            write_records(make_thumbs(annotator_pool(annotators), tasks, seed), path)
        return path

    def preferred(self, name: str, algorithm: str, config: PreferenceConfig) -> Path:
        """A policy that has learnt from preferences; the file ``finished`` holds the seconds that it took."""
        out = self.folder / "runs" / name
        if not (out / "finished").exists():
            began = time.perf_counter()
            preference(algorithm, replace(config, out=out, sinks=()))
            (out / "finished").write_text(f"{time.perf_counter() - began:.3f}", encoding="utf-8")
        return out

    def ranked(self, annotators: str, n: int, answers: int, split: Split = "train", seed: int = 0) -> Path:
        """Rankings by a pool."""
        path = self._data(f"{annotators}-{n}x{answers}-{split}-{seed}")
        if not path.exists():
            judges = annotator_pool(annotators)
            write_records(rankings(n, judges, answers=answers, split=split, seed=seed), path)
        return path

    def flipped(self, rows: Path, share: float, seed: int = 0) -> Path:
        """The same comparisons, a share of them with chosen and rejected swapped."""
        path = self._data(f"{rows.stem}-flipped-{share}")
        generator = random.Random(seed)
        if not path.exists():
            write_records(
                [_swapped(pair) if generator.random() < share else pair for pair in _pairs(rows)], path
            )
        return path

    def in_pairs(self, rows: Path, seed: int = 0) -> Path:
        """All pairs of rankings as comparisons of their own, shuffled."""
        path = self._data(f"{rows.stem}-in-pairs")
        if not path.exists():
            found = [pair for row in read_records(rows).records for pair in _pairs_of(row)]
            random.Random(seed).shuffle(found)
            write_records(found, path)
        return path

    def held_out(self, rows: Path, tested: Path, part: float = 0.1) -> tuple[Path, Path]:
        """Rows to train on and comparisons to test on, no prompt in both."""
        retained, rest = self._data(f"{rows.stem}-kept"), self._data(f"{tested.stem}-held-out")
        if not rest.exists():
            pairs = _pairs(tested)
            prompts = sorted({plain_text(pair.prompt) for pair in pairs})
            chosen = set(random.Random(0).sample(prompts, round(part * len(prompts))))
            write_records(
                [row for row in read_records(rows).records if plain_text(row.prompt) not in chosen], retained
            )
            write_records([pair for pair in pairs if plain_text(pair.prompt) in chosen][:TESTED], rest)
        return retained, rest

    def base(self, width: int, epochs: float = 2.0) -> Path:
        """A base model of another width, which has read the corpus a little."""
        return build_base(self.folder / "bases" / str(width), epochs=epochs, width=width)

    def sft_model(self, shown: int | None = None) -> Path:
        """The base model after an epoch of demonstrations; fewer than usual leave more to be learnt."""
        some = "" if shown is None else f"-{shown}"
        data, out = self._data(f"demonstrations{some}"), self.folder / "runs" / f"sft{some}"
        if not data.exists():
            write_records(demonstrations(shown or SHOWN), data)
        silent = SampleSettings(rows=0)
        config = SftConfig(
            model=base_model_folder(),
            data=data,
            out=out,
            epochs=1.0,
            device=self.device,
            sinks=(),
            sample=silent,
        )
        if not (out / "summary.json").exists():
            sft(replace(config, learning_rate=5e-4))
        return out / "model"

    def trained(self, name: str, data: Path, config: RewardConfig | None = None) -> Path:
        """A reward model; ``config`` says what is not as usual, its model and folders are set here."""
        out = self.folder / "runs" / name
        if not (out / "finished").exists():
            reward(replace(config or self.usual(), data=data, out=out))
            (out / "finished").touch()
        return out

    def usual(self) -> RewardConfig:
        """What every study begins with."""
        return RewardConfig(
            model=self.sft_model(),
            data=self.folder,
            out=self.folder,
            held_out="0",
            learning_rate=RATE,
            batch_size=BATCH,
            device=self.device,
            sinks=(),
            save_every=10_000,
            sample=SampleSettings(rows=0),
        )

    def evaluated(self, run: Path, data: Path, *, gold: bool = False) -> RewardEvaluation:
        """The workbench's verdict on a run; ``gold`` also asks at equal worth."""
        from plaudit.lab.world.exam import add_world_knowledge

        resampling = Resampling(times=1000, seed=0)
        evidence, _ = read_reward_data(data)
        if gold:
            evidence = add_world_knowledge(evidence, answers=16, resampling=resampling)
        return evaluate_reward(load_reward(run, device=self.device), evidence, resampling).evaluation

    def piped(
        self, name: str, seed: int, document: Mapping[str, Any], changes: Sequence[str] = ()
    ) -> tuple[Path, Pipeline]:
        """The folder of a study's pipeline of one seed, run as far as it has not yet, and what ran in it.

        Nothing is shared between seeds: each may run in a process of its own, at the same time.
        """
        config = self.folder / name / f"{seed}.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
        pipeline = read_pipeline(config, changes=changes, seed=seed, device=self.device)
        reporter = ProgressReporter(message=lambda text: print(f"seed {seed}: {text}", flush=True))
        return run_pipeline(pipeline, config.with_suffix(""), reporter=reporter).path, pipeline

    def _data(self, name: str) -> Path:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        return self.folder / "data" / f"{name}.jsonl"


def _pairs(rows: Path) -> list[Comparison]:
    return [record for record in read_records(rows).records if isinstance(record, Comparison)]


def _swapped(pair: Comparison) -> Comparison:
    return replace(pair, chosen=pair.rejected, rejected=pair.chosen)


def _pairs_of(row: object) -> Sequence[Comparison]:
    assert isinstance(row, Ranking)
    places = range(len(row.ranks))
    return [
        Comparison(
            prompt=row.prompt,
            chosen=row.completions[place],
            rejected=row.completions[other],
            annotator=row.annotator,
            group=row.group,
            category=row.category,
        )
        for place in places
        for other in places
        if row.ranks[place] < row.ranks[other]
    ]
