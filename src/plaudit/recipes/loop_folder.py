"""The folder of a loop: which rounds are whole, and the same command going on where it was stopped.

A round is whole when ``checkpoints/round-N.json`` is there with the hashes of its files. It is written last,
so a round that was killed before is drawn again, to the same answers, since their seed is the round's own.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from plaudit.batches.template import make_encoder
from plaudit.errors import UserError
from plaudit.recipes.config import MAY_CHANGE_ON_RESUME, RunConfig
from plaudit.recipes.loop_config import LoopConfig, LoopSettings
from plaudit.recipes.loop_draws import draw, questions, read_answers, share_of, write_answers
from plaudit.recipes.loop_rounds import Round, as_line, chosen, rows_of
from plaudit.recipes.loop_table import LoopFacts
from plaudit.recipes.run import plain_settings
from plaudit.rewards.named import reward_named
from plaudit.rollouts.local import LocalSampler
from plaudit.sources.write import write_records
from plaudit.training import durable, exact_json, lineage
from plaudit.training.parallel import Ranks
from plaudit.training.runfolder import RunFolder, open_run
from plaudit.training.sinks.console import ConsoleSink


@contextmanager
def opened(config: RunConfig, ranks: Ranks) -> Iterator[RunFolder | None]:
    """The folder, held by the first rank alone; other settings than it has are refused."""
    if not ranks.first:
        yield None
        return
    plain = plain_settings(config)
    may_change = {name for name in MAY_CHANGE_ON_RESUME if name.split(".")[0] in plain and name != "out"}
    with open_run(config.out, config=plain, may_change=may_change) as folder:
        yield folder


def ready(facts: LoopFacts, how: LoopSettings, config: LoopConfig, one: Round, folder: RunFolder) -> None:
    """Draw, score, choose and write down, where that has not been done; and say what came of it."""
    mark, console = _mark(folder, one.number), ConsoleSink(quiet=True)
    if one.number == 1:
        for note in (*folder.notes, *traced(facts.name, config, (config.reward,), folder)):
            console.note(note)
    assert how.rounds is not None
    marks = [_mark(folder, number) for number in range(1, how.rounds + 1)]
    if mark.exists():
        refuse_changed((one.answers, one.rows), mark, one.number)
        write_figures(folder, marks)
        return
    durable.make_folder(one.folder)
    durable.clear_leftovers(one.folder)
    encoder = make_encoder(config.model)
    reward = reward_named(config.reward)
    asked, notes = questions(config, encoder, folder.path)
    asked = share_of(asked, how.prompts, one.drawn, config.seed)
    if one.drawn == one.number:
        assert how.answers is not None
        for note in (*(notes if one.number == 1 else ()), _begin(one, how, len(asked))):
            console.note(note)
        sampler = LocalSampler(one.speaker, device=config.device)
        settings = replace(config.sampling, seed=_seed(config, one))
        write_answers(one.answers, list(draw(asked, sampler, reward, settings, how.answers)))
    groups = read_answers(one.answers)
    picks, figures = chosen(facts, how, one, groups, config.seed)
    write_records(rows_of(asked, groups, picks, chats=encoder.manner is not None), one.rows)
    seal(mark, (one.answers, one.rows), as_line(figures))
    write_figures(folder, marks)
    console.note(figures.sentence)


def is_taught(run: Path, ranks: Ranks) -> bool:
    """Whether its model is there; the first rank looks for all."""
    there = (run / "summary.json").exists() and _has_weights(run / "model")
    return bool(ranks.every([float(there)])[0][0])


def is_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether everything is there already, which is then said; the last round's model is written last."""
    done = bool(ranks.every([float(_has_weights(config.out / "model"))])[0][0])
    if done and ranks.first:
        words = "this loop is finished; nothing was done. Another one needs another --out"
        ConsoleSink(quiet=True).note(f"{config.out}: {words}")
    return done


def finish(folder: RunFolder, source: Path) -> None:
    """The last round's model, in the loop's own folder."""
    needed = sum(path.stat().st_size for path in source.iterdir())
    with durable.folder(folder.model, needed=needed) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)


def seal(mark: Path, files: Sequence[Path], figures: Mapping[str, Any]) -> None:
    """Write down that a part of a round is whole: its figures, and what its files are."""
    hashes = {path.name: lineage.hash_path(path) for path in files}
    durable.write_json(mark, {"files": hashes, "figures": figures})


def refuse_changed(files: Sequence[Path], mark: Path, number: int) -> None:
    """What was drawn and chosen is what the next rounds rest on."""
    hashes = _read(mark)["files"]
    for path in files:
        if not path.exists() or lineage.hash_path(path) != hashes[path.name]:
            raise UserError(
                f"{path}: it is not as round {number} has left it; restore it, or start another loop "
                "with `--out` elsewhere"
            )


def figures_at(mark: Path) -> Mapping[str, Any]:
    """What `seal` was given."""
    return _read(mark)["figures"]


def write_figures(folder: RunFolder, marks: Sequence[Path]) -> None:
    """A line for each round that is whole, also of one that was killed before it was written."""
    lines = [exact_json.dumps(figures_at(mark)) + "\n" for mark in marks if mark.exists()]
    durable.write_text(folder.path / "rounds.jsonl", "".join(lines))


def traced(method: str, config: RunConfig, words: Sequence[str], folder: RunFolder) -> tuple[str, ...]:
    """Write where everything came from; on resume, refuse when it has changed.

    Words that name a folder, or a function in a file, count with what lies there.
    """
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    named = [Path(one) for word in words for one in (word, word.rpartition(":")[0] or word)]
    now = lineage.gather(
        method=method,
        data=[config.data, *held_out, *(path for path in dict.fromkeys(named) if path.exists())],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=make_encoder(config.model).template,
    )
    if folder.resumed and folder.lineage.exists():
        return lineage.compare(lineage.read(folder.lineage), now)
    lineage.write(folder.lineage, now)
    return ()


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _mark(folder: RunFolder, number: int) -> Path:
    return folder.checkpoints / f"round-{number}.json"


def _read(path: Path) -> dict[str, dict[str, object]]:
    return exact_json.loads(path.read_bytes())


def _begin(one: Round, how: LoopSettings, prompts: int) -> str:
    return (
        f"round {one.number}: drawing {how.answers} answers to each of {prompts} prompts from {one.speaker}"
    )


def _seed(config: LoopConfig, one: Round) -> int:
    """Other numbers in each round; the same in it whenever it is drawn."""
    return random.Random(f"{config.seed}/{config.sampling.seed}/round/{one.number}").getrandbits(32)
