"""Iterative methods that make their own rows: generate, score, select, train, and again.

Rejection sampling: Touvron et al. 2023, arXiv:2307.09288, section 3.2.3. All of them: ``algorithms.py``. A
round trains by SFT or preference optimisation. It is whole when ``checkpoints/round-N.json`` is there with
the hashes of its files. That is written last, so a round that was killed before is drawn again by the same
command, to the same answers, since their seed is the round's own.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from plaudit.data.write import write_records
from plaudit.engine import run_folder
from plaudit.engine.distributed import Ranks, process_group
from plaudit.engine.run_folder import RunFolder, open_run_folder
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.methods.config import MAY_CHANGE_ON_RESUME, RunConfig, SftConfig
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS, LoopAlgorithm
from plaudit.methods.iterative.config import LoopConfig, LoopSettings, preference_settings, resolve_settings
from plaudit.methods.iterative.rounds import (
    LoopRound,
    figures_as_json,
    generate_and_score,
    load_prompts,
    loop_round,
    prompts_of_round,
    read_answers,
    select_rows,
    training_rows,
    write_answers,
)
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.config import ReferenceSettings, preference_config_type
from plaudit.methods.preference.run import preference
from plaudit.methods.run import plain_settings
from plaudit.methods.supervised.run import sft
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.build import sampler_of_folder
from plaudit.tokens.encode import make_encoder


@contextmanager
def open_loop_folder(config: RunConfig, ranks: Ranks) -> Iterator[RunFolder | None]:
    """The folder of an iterative run, opened by the first rank alone; changed settings are refused."""
    if not ranks.is_first:
        yield None
        return
    settings = plain_settings(config)
    # Not `out`: configs of the rounds name models below it, and could not be resumed elsewhere.
    may_change = {name for name in MAY_CHANGE_ON_RESUME if name.split(".")[0] in settings and name != "out"}
    with open_run_folder(config.out, config=settings, may_change=may_change) as folder:
        yield folder


def generate_and_select(
    facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig, this_round: LoopRound, folder: RunFolder
) -> None:
    """Generate, score, select and write a round's rows, where not done yet; prints its figures."""
    marker, console = _marker_file(folder, this_round.number), ConsoleSink(quiet=True)
    if this_round.number == 1:
        for note in (*folder.notes, *record_lineage(facts.name, config, (config.reward,), folder)):
            console.note(note)
    assert settings.rounds is not None
    markers = [_marker_file(folder, number) for number in range(1, settings.rounds + 1)]
    # The figures are written again: the loop may have been killed right after the marker.
    if marker.exists():
        refuse_changed_files((this_round.answers, this_round.rows), marker, this_round.number)
        write_round_figures(folder, markers)
        return
    atomic.make_folder(this_round.folder)
    atomic.remove_leftovers(this_round.folder)
    encoder = make_encoder(config.model)
    reward = resolve_reward(config.reward, device=config.device)
    prompts, notes = load_prompts(config, encoder, folder.path)
    prompts = prompts_of_round(prompts, settings.prompts, this_round.generated_in, config.seed)
    if this_round.generated_in == this_round.number:
        assert settings.answers is not None
        for note in (
            *(notes if this_round.number == 1 else ()),
            _generation_note(this_round, settings, len(prompts)),
        ):
            console.note(note)
        sampler = sampler_of_folder(this_round.generator, device=config.device)
        sampling = replace(config.sampling, seed=_round_seed(config, this_round))
        write_answers(
            this_round.answers, list(generate_and_score(prompts, sampler, reward, sampling, settings.answers))
        )
    groups = read_answers(this_round.answers)
    picks, figures = select_rows(facts, settings, this_round, groups, config.seed)
    write_records(training_rows(prompts, groups, picks, chats=encoder.asks_in_turns), this_round.rows)
    write_marker(marker, (this_round.answers, this_round.rows), figures_as_json(figures))
    write_round_figures(folder, markers)
    console.note(figures.sentence)


def is_trained(run: Path, ranks: Ranks) -> bool:
    """Whether the training run in this folder is finished; the first rank checks for all."""
    complete = (run / "summary.json").exists() and _has_weights(run / "model")
    return bool(ranks.all_gather([float(complete)])[0][0])


def is_loop_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether the final model is there, which is then printed; the first rank checks for all."""
    finished = bool(ranks.all_gather([float(_has_weights(config.out / "model"))])[0][0])
    if finished and ranks.is_first:
        note = "this loop is finished; nothing was done. Another one needs another --out"
        ConsoleSink(quiet=True).note(f"{config.out}: {note}")
    return finished


def copy_final_model(folder: RunFolder, source: Path) -> None:
    """Copy the last round's model into the folder of the whole run."""
    # Asked of the disk before the copy: a full one fails at once, and not gigabytes later.
    needed = sum(path.stat().st_size for path in source.iterdir())
    with atomic.atomic_folder(folder.model, needed=needed) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)


def write_marker(marker: Path, files: Sequence[Path], figures: Mapping[str, Any]) -> None:
    """Mark a part of a round as complete: write its figures and the hashes of its files. Called last."""
    hashes = {path.name: run_folder.hash_path(path) for path in files}
    atomic.write_json(marker, {"files": hashes, "figures": figures})


def refuse_changed_files(files: Sequence[Path], marker: Path, number: int) -> None:
    """Raise where a file of a complete round is not as it was: later rounds rest on it."""
    hashes = _read_marker(marker)["files"]
    for path in files:
        if not path.exists() or run_folder.hash_path(path) != hashes[path.name]:
            raise UserError(
                f"{path}: it is not as round {number} has left it; restore it, or start another loop "
                "with `--out` elsewhere"
            )


def read_figures(marker: Path) -> Mapping[str, Any]:
    """The figures that ``write_marker`` has written."""
    return _read_marker(marker)["figures"]


def write_round_figures(folder: RunFolder, markers: Sequence[Path]) -> None:
    """Rewrite ``rounds.jsonl`` from the markers, so that no complete round lacks its line."""
    lines = [exact_json.dumps(read_figures(mark)) + "\n" for mark in markers if mark.exists()]
    atomic.write_text(folder.path / "rounds.jsonl", "".join(lines))


def record_lineage(
    method: str, config: RunConfig, words: Sequence[str], folder: RunFolder
) -> tuple[str, ...]:
    """Write the hashes of all inputs; on resume, refuse a run whose inputs have changed.

    Words that name a folder, or a function in a file, count with what lies there.
    """
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    # file.py:name counts by its file; what is no path, as a rule's name, is passed over below.
    candidates = [Path(name) for word in words for name in (word, word.rpartition(":")[0] or word)]
    current = run_folder.gather_lineage(
        method=method,
        data=[config.data, *held_out, *(path for path in dict.fromkeys(candidates) if path.exists())],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=make_encoder(config.model).template,
    )
    if folder.resumed and folder.lineage.exists():
        return run_folder.compare_lineages(run_folder.read_lineage(folder.lineage), current)
    run_folder.write_lineage(folder.lineage, current)
    return run_folder.changed_exports(current)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _marker_file(folder: RunFolder, number: int) -> Path:
    return folder.checkpoints / f"round-{number}.json"


def _read_marker(path: Path) -> dict[str, dict[str, object]]:
    return exact_json.loads(path.read_bytes())


def _generation_note(this_round: LoopRound, settings: LoopSettings, prompts: int) -> str:
    return (
        f"round {this_round.number}: drawing {settings.answers} answers to each of {prompts} prompts "
        f"from {this_round.generator}"
    )


def _round_seed(config: LoopConfig, this_round: LoopRound) -> int:
    """The seed of a round's generation: its own, and the same whenever the round begins again."""
    return random.Random(f"{config.seed}/{config.sampling.seed}/round/{this_round.number}").getrandbits(32)


FIELDS_OF_FILE = ("format", "columns", "leave_out")
"""Settings that are about the file of the command, and not about the rows that a round writes."""
_ROUND_FIELDS = ("model", "data", "out", *FIELDS_OF_FILE)


def refuse_unused_preference_settings(
    facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig
) -> None:
    """Raise for preference settings that the round's algorithm does not have."""
    if facts.pairs:
        preference_algorithm(settings.teach or facts.trainer, **preference_settings(config))


def train_round(
    facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig, this_round: LoopRound
) -> None:
    """Train on the rows of a round, or resume that training."""
    fields_of_run: dict[str, Any] = {
        field.name: getattr(config, field.name)
        for field in fields(RunConfig)
        if field.name not in _ROUND_FIELDS
    }
    fields_of_run |= {
        "model": this_round.model,
        "data": this_round.rows,
        "out": this_round.run,
        "format": "plaudit",
    }
    if not facts.pairs:
        sft(SftConfig(**fields_of_run))
        return
    algorithm = settings.teach or facts.trainer
    reference = (
        _reference_settings(settings, config, this_round)
        if "reference" in preference_algorithm(algorithm).needs
        else ReferenceSettings()
    )
    config_type = preference_config_type(algorithm)
    preference(algorithm, config_type(**fields_of_run, **preference_settings(config), reference=reference))


def _reference_settings(
    settings: LoopSettings, config: LoopConfig, this_round: LoopRound
) -> ReferenceSettings:
    """The round's reference: the model that it trains, or the command's; cached in its folder."""
    start_differs = settings.reference == "start" and this_round.model != config.model
    # The cache lies with the round, for no other run will ever score these answers.
    return ReferenceSettings(
        model=config.model if start_differs else None, cache=this_round.folder / "reference"
    )


def loop(name: str, config: LoopConfig) -> Path | None:
    """Run all rounds; returns the model's folder on the first rank, None where nothing was left to do."""
    facts = ITERATIVE_ALGORITHMS[name]
    settings = resolve_settings(facts, config)
    refuse_unused_preference_settings(facts, settings, config)
    assert settings.rounds is not None
    rounds = [loop_round(facts, settings, config, number) for number in range(1, settings.rounds + 1)]
    for this_round in rounds:
        with process_group(config.device) as ranks, open_loop_folder(config, ranks) as folder:
            if folder is not None:
                generate_and_select(facts, settings, config, this_round, folder)
            if is_loop_finished(config, ranks):
                return None
            trained = is_trained(this_round.run, ranks)
        if not trained:
            train_round(facts, settings, config, this_round)
    with process_group(config.device) as ranks, open_loop_folder(config, ranks) as folder:
        if folder is not None:
            copy_final_model(folder, rounds[-1].run / "model")
        ranks.barrier()
    return config.out / "model" if ranks.is_first else None
