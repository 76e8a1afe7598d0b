"""Iterative methods that make their own rows: generate, score, select, train, and again.

Rejection sampling: Touvron et al. 2023, arXiv:2307.09288, section 3.2.3. All of them: ``algorithms.py``. A
round trains by SFT or preference optimisation. It is whole when ``checkpoints/round-N.json`` is there with
the hashes of its files. That is written last, so a round that was killed before goes on by the same command
behind the parts that were drawn, to the same answers, since their seed is the round's own.

The rows of self-play fine-tuning: the demonstration against the newest model's own answer.

Chen et al. 2024, arXiv:2401.01335: with y the demonstration and y' ~ π_t an answer of the opponent, which is
the model of the round before, a round minimises

    E [−log σ(λ log π(y|x)/π_t(y|x) − λ log π(y'|x)/π_t(y'|x))],

which is DPO with β = λ and the opponent as its reference. Where y' is y the loss is constant: such rows are
left out.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, plain_text
from plaudit.data.write import write_records
from plaudit.engine import run_folder
from plaudit.engine.distributed import Ranks, process_group
from plaudit.engine.run_folder import RunFolder
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json
from plaudit.methods.config import ReferenceSettings, RunConfig, SftConfig
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS, LoopAlgorithm
from plaudit.methods.iterative.config import (
    SELF,
    LoopConfig,
    LoopSettings,
    preference_settings,
    resolve_settings,
)
from plaudit.methods.iterative.measuring import is_measured, measure_round, measured_marker, measured_round
from plaudit.methods.iterative.rounds import (
    LoopRound,
    PromptSource,
    RoundFigures,
    ScoredAnswer,
    drawn_answers,
    figures_as_json,
    generation_note,
    load_prompts,
    loop_round,
    prompts_of_round,
    read_answers,
    round_sampler,
    select_rows,
    training_rows,
)
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.config import preference_config_type
from plaudit.methods.preference.run import preference
from plaudit.methods.run import open_folder, record_lineage
from plaudit.methods.supervised.run import sft
from plaudit.models.load import has_weights
from plaudit.rewards.base import Reward
from plaudit.rewards.kinds import FEEDBACK
from plaudit.rewards.registry import resolve_reward
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.prompts import EncodedPrompt
from plaudit.wings import offered


def read_demonstrations(config: PromptSource) -> dict[str, str]:
    """The demonstration of each row of the prompts' file, by the row's origin."""
    reading = read_records(
        config.prompts, format=config.format, threshold=config.rows.threshold, options=config.read_options
    )
    rows = [row for row in reading.records if isinstance(row, Demonstration)]
    if len(rows) < len(reading.records):
        other = next(row for row in reading.records if not isinstance(row, Demonstration))
        raise UserError(
            f"{config.prompts}: {len(reading.records) - len(rows)} of {len(reading.records)} rows are no "
            f"demonstrations ({other.origin} is a {type(other).__name__.lower()}). spin prefers what a "
            "person wrote to the model's own answer, so each row needs a prompt and a completion"
        )
    return {row.origin: _words_of(row) for row in rows}


def against_demonstrations(
    prompts: Sequence[EncodedPrompt],
    groups: Sequence[Sequence[ScoredAnswer]],
    demonstrations: Mapping[str, str],
) -> list[tuple[ScoredAnswer, ...]]:
    """For each prompt the demonstration with score 1, then the model's answers with 0.
    An answer that is its demonstration has no score, so it makes no row."""
    return [
        _scored(demonstrations[prompt.origin], group) for prompt, group in zip(prompts, groups, strict=True)
    ]


def own_figures(figures: RoundFigures, groups: Sequence[Sequence[ScoredAnswer]]) -> RoundFigures:
    """A round's figures without the demonstrations among its answers, whose scores say nothing."""
    answers = [answer for group in groups for answer in group[1:]]
    same = sum(answer.score is None for answer in answers)
    return replace(
        figures, answers=len(answers), unjudged=0, mean=None, chosen=None, rejected=None, same=same
    )


def _scored(demonstration: str, group: Sequence[ScoredAnswer]) -> tuple[ScoredAnswer, ...]:
    # Blanks at the ends make no difference that anyone could learn.
    words = demonstration.strip()
    scored = [replace(answer, score=None if answer.text.strip() == words else 0.0) for answer in group]
    return (ScoredAnswer(text=demonstration, tokens=0, ended=True, score=1.0), *scored)


def _words_of(row: Demonstration) -> str:
    if not isinstance(row.completion, str) and len(row.completion) > 1:
        raise UserError(
            f"{row.origin}: the demonstration has {len(row.completion)} turns, and the model answers with "
            "one; leave such rows out"
        )
    return plain_text(row.completion)


UNMEASURED = (
    "nothing is measured of the rounds, so nothing shows when the model's own judgement leads it astray: "
    "give --loop.people, comparisons by people, or --loop.held-out-judge with --loop.held-out-prompts"
)


def open_loop_folder(config: RunConfig, ranks: Ranks) -> AbstractContextManager[RunFolder | None]:
    """The folder of an iterative run, opened by the first rank alone; changed settings are refused."""
    # Not `out`: configs of the rounds name models below it, and could not be resumed elsewhere.
    return open_folder(config, ranks, fixed=frozenset({"out"}))


def generate_and_select(
    facts: LoopAlgorithm,
    settings: LoopSettings,
    config: LoopConfig,
    this_round: LoopRound,
    folder: RunFolder | None,
    ranks: Ranks,
) -> None:
    """Generate, score, select and write a round's rows, where not done yet; prints its figures.
    Every rank must come; all of them draw, and the first one, which has the folder, does the rest."""
    if this_round.number == 1:
        _begin(facts, settings, config, folder, ranks)
    marker = None if folder is None else _marker_file(folder, this_round.number)
    # The figures are written again: the loop may have been killed right after the marker.
    if ranks.first_says(marker is not None and marker.exists()):
        if folder is not None and marker is not None:
            refuse_changed_files((this_round.answers, this_round.rows), marker, this_round.number)
            _write_figures(settings, folder)
        return
    if folder is not None:
        # By one rank: a later one would take what the first is writing for left over.
        atomic.make_folder(this_round.folder)
        atomic.remove_leftovers(this_round.folder)
    encoder = make_encoder(config.model)
    with _reward_of_round(facts, config, this_round, str(ranks.device)) as reward:
        prompts, notes = load_prompts(config, encoder, folder and folder.path)
        prompts = prompts_of_round(prompts, settings.prompts, this_round.generated_in, config.seed)
        if this_round.generated_in == this_round.number:
            notes = notes if this_round.number == 1 else []
            _draw(settings, config, this_round, prompts, reward, notes, ranks)
    if folder is None or marker is None:
        return
    groups = read_answers(this_round.answers)
    with_demonstrations = facts.scored_by == "demonstrations"
    if with_demonstrations:
        groups = against_demonstrations(prompts, groups, read_demonstrations(config))
    picks, figures = select_rows(facts, settings, this_round, groups, config.seed)
    figures = own_figures(figures, groups) if with_demonstrations else figures
    write_records(training_rows(prompts, groups, picks, chats=encoder.asks_in_turns), this_round.rows)
    write_marker(marker, (this_round.answers, this_round.rows), figures_as_json(figures))
    _write_figures(settings, folder)
    ConsoleSink(quiet=True).note(figures.sentence)


def _begin(
    facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig, folder: RunFolder | None, ranks: Ranks
) -> None:
    console = ConsoleSink(quiet=True)
    if folder is not None:
        for note in (*folder.notes, *loop_lineage(facts.name, config, _input_words(config), folder)):
            console.note(note)
    if facts.scored_by == "itself":
        offered("refuse_mute_judge", of=FEEDBACK)(config.reward, config.model)
    if facts.scored_by == "demonstrations":
        read_demonstrations(config)
    # The start is measured first: a judge that cannot be asked must not cost a round.
    if is_measured(settings):
        measure_and_mark(settings, config, folder, 0, ranks)
    elif facts.scored_by == "itself" and ranks.is_first:
        console.note(UNMEASURED)


def _draw(
    settings: LoopSettings,
    config: LoopConfig,
    this_round: LoopRound,
    prompts: Sequence[EncodedPrompt],
    reward: Reward | None,
    notes: Sequence[str],
    ranks: Ranks,
) -> None:
    assert settings.answers is not None
    note = generation_note(this_round.number, settings.answers, len(prompts), this_round.generator)
    name_of_round = f"{config.seed}/{config.sampling.seed}/round/{this_round.number}"
    sampling = replace(config.sampling, seed=random.Random(name_of_round).getrandbits(32))
    path, n = this_round.answers, settings.answers
    with round_sampler(this_round.generator, config, ranks, path.parent, (*notes, note)) as (sampler, tell):
        list(drawn_answers(path, prompts, sampler, reward, sampling, n, ranks, tell))


def measure_and_mark(
    settings: LoopSettings, config: LoopConfig, folder: RunFolder | None, number: int, ranks: Ranks
) -> None:
    """Measure a round's model, where not done yet, and write its figures; every rank must come."""
    marker = None if folder is None else measured_marker(folder, number)
    done = ranks.first_says(marker is not None and marker.exists())
    measured = None if done else measure_round(settings, config, folder, number, ranks)
    if folder is None or marker is None:
        return
    if measured is None:
        this_round = measured_round(config, number)
        answers = [this_round.answers] if this_round.answers.exists() else []
        refuse_changed_files([this_round.values, *answers], marker, number)
    else:
        write_marker(marker, *measured)
    _write_figures(settings, folder)


def _write_figures(settings: LoopSettings, folder: RunFolder) -> None:
    assert settings.rounds is not None
    numbers = range(settings.rounds + 1)
    write_round_figures(folder, [(_marker_file(folder, n), measured_marker(folder, n)) for n in numbers])


def _reward_of_round(
    facts: LoopAlgorithm, config: LoopConfig, this_round: LoopRound, device: str
) -> AbstractContextManager[Reward | None]:
    if facts.scored_by == "demonstrations":
        return nullcontext(None)
    if facts.scored_by == "itself":
        return offered("self_judge", of=FEEDBACK)(config.reward, this_round.generator, device)
    return nullcontext(resolve_reward(config.reward, device=device))


def _input_words(config: LoopConfig) -> tuple[str, ...]:
    loop_inputs = (config.loop.people, config.loop.held_out_judge, config.loop.held_out_prompts)
    words = [config.reward, *(str(word) for word in loop_inputs if word is not None)]
    if config.reward.partition(",")[0] == SELF:
        # A rubric of one's own is part of what is asked.
        words += (setting.partition("=")[2] for setting in config.reward.split(",")[1:])
    return tuple(word for word in words if word)


def is_trained(run: Path, ranks: Ranks) -> bool:
    """Whether the training run in this folder is finished; the first rank checks for all."""
    return ranks.first_says((run / "summary.json").exists() and has_weights(run / "model"))


def is_loop_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether the final model is there, which is then printed; the first rank checks for all."""
    finished = ranks.first_says(has_weights(config.out / "model"))
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
    return _read_marker(marker)["figures"]


def write_round_figures(folder: RunFolder, rounds: Sequence[Sequence[Path]]) -> None:
    """Rewrite ``rounds.jsonl`` from the markers of each round, so that no complete round lacks its line."""
    present = [[read_figures(mark) for mark in markers if mark.exists()] for markers in rounds]
    merged = [{name: value for part in parts for name, value in part.items()} for parts in present if parts]
    atomic.write_text(folder.path / "rounds.jsonl", "".join(exact_json.dumps(line) + "\n" for line in merged))


def loop_lineage(method: str, config: RunConfig, words: Sequence[str], folder: RunFolder) -> tuple[str, ...]:
    """`record_lineage`; words that name a folder, or a function in a file, count with what lies there."""
    # file.py:name counts by its file; what is no path, as a rule's name, is passed over below.
    candidates = [Path(name) for word in words for name in (word, word.rpartition(":")[0] or word)]
    inputs = [path for path in dict.fromkeys(candidates) if path.exists()]
    return record_lineage(method, config, inputs, make_encoder(config.model).template, folder)


def _marker_file(folder: RunFolder, number: int) -> Path:
    return folder.checkpoints / f"round-{number}.json"


def _read_marker(path: Path) -> dict[str, dict[str, object]]:
    return exact_json.loads(path.read_bytes())


FIELDS_OF_FILE = ("format", "columns", "roles", "leave_out")
"""Settings that are about the file of the command, and not about the rows that a round writes."""
_ROUND_FIELDS = ("model", "data", "out", *FIELDS_OF_FILE)


def train_round(
    facts: LoopAlgorithm, settings: LoopSettings, config: LoopConfig, this_round: LoopRound
) -> None:
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
    algorithm, reference = settings.teach or facts.trainer, ReferenceSettings()
    if "reference" in preference_algorithm(algorithm).needs:
        start_differs = settings.reference == "start" and this_round.model != config.model
        # The cache lies with the round, for no other run will ever score these answers.
        model = config.model if start_differs else None
        reference = ReferenceSettings(model=model, cache=this_round.folder / "reference")
    config_type = preference_config_type(algorithm)
    preference(algorithm, config_type(**fields_of_run, **preference_settings(config), reference=reference))


def loop(name: str, config: LoopConfig) -> Path | None:
    """Run all rounds; returns the model's folder on the first rank, None where nothing was left to do."""
    facts = ITERATIVE_ALGORITHMS[name]
    settings = resolve_settings(facts, config)
    if facts.pairs:
        preference_algorithm(settings.teach or facts.trainer, **preference_settings(config))
    assert settings.rounds is not None
    rounds = [loop_round(facts, settings, config, number) for number in range(1, settings.rounds + 1)]
    for this_round in rounds:
        with process_group(config.device) as ranks, open_loop_folder(config, ranks) as folder:
            # A round begins from models of earlier ones; checkpoints of all would fill a disk.
            for earlier in rounds[: this_round.number - 1] if ranks.is_first else ():
                shutil.rmtree(earlier.run / "checkpoints", ignore_errors=True)
            generate_and_select(facts, settings, config, this_round, folder, ranks)
            if is_loop_finished(config, ranks):
                return None
            trained = is_trained(this_round.run, ranks)
        if not trained:
            train_round(facts, settings, config, this_round)
        if is_measured(settings) and _has_fallen(settings, config, this_round.number):
            break
    with process_group(config.device) as ranks, open_loop_folder(config, ranks) as folder:
        if folder is not None:
            copy_final_model(folder, _final_model(settings, config, folder))
        ranks.barrier()
    return config.out / "model" if ranks.is_first else None


def _has_fallen(settings: LoopSettings, config: LoopConfig, number: int) -> bool:
    """Measure a round's model, and let all ranks know whether the loop ends with it."""
    with process_group(config.device) as ranks, open_loop_folder(config, ranks) as folder:
        measure_and_mark(settings, config, folder, number, ranks)
        fallen = folder is not None and bool(read_figures(measured_marker(folder, number))["fallen"])
        return ranks.first_says(fallen and settings.on_fall == "stop")


def _final_model(settings: LoopSettings, config: LoopConfig, folder: RunFolder) -> Path:
    """The last round's model; where a round has fallen and ended the loop, the best round's."""
    assert settings.rounds is not None
    trained = [n for n in range(1, settings.rounds + 1) if _marker_file(folder, n).exists()]
    marker = measured_marker(folder, trained[-1])
    figures = read_figures(marker) if marker.exists() else {}
    stops = figures.get("fallen") and settings.on_fall == "stop"
    return measured_round(config, figures["best"] if stops else trained[-1]).model
