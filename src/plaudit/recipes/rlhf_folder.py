"""What a round of ``plaudit train rlhf`` draws, has compared and measures, each part whole or not at all.

``checkpoints/round-N-drawn.json``, ``round-N-compared.json`` and ``round-N.json`` say which parts are there,
with the hashes of their files. A part that was stopped begins again from the same seed, so it ends the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plaudit.batches.question import Question
from plaudit.batches.template import Encoder, make_encoder
from plaudit.errors import UserError
from plaudit.evaluation.accuracy import credit
from plaudit.evaluation.columns import columns, has_verdict
from plaudit.evaluation.pairs import scored_pairs, scores_of
from plaudit.recipes.loop_draws import AT_ONCE, questions, read_answers, share_of, write_answers
from plaudit.recipes.loop_folder import figures_at, refuse_changed, seal, traced, write_figures
from plaudit.recipes.rlhf_config import PEOPLE, RlhfConfig
from plaudit.recipes.rlhf_pairs import Pair, filled, pairs_of
from plaudit.recipes.rlhf_rounds import (
    Compared,
    Learnt,
    RlhfRound,
    as_line,
    held_out_file,
    prompts_file,
    rlhf_round,
)
from plaudit.records.feedback import Comparison, Prompt
from plaudit.records.judging import Verdict, compared
from plaudit.records.messages import assistant_says, user_says, words
from plaudit.rewards.comparing import Comparer, comparer_named
from plaudit.rewards.folder import load_reward
from plaudit.rollouts.local import LocalSampler
from plaudit.sources.layouts import ReadOptions
from plaudit.sources.read import read_records
from plaudit.sources.write import write_records
from plaudit.training import durable, exact_json
from plaudit.training.judged_answers import JudgedGroup
from plaudit.training.runfolder import RunFolder
from plaudit.training.sinks.console import ConsoleSink


def make_ready(config: RlhfConfig, one: RlhfRound, folder: RunFolder) -> None:
    """Draw and have compared, where that has not been done; what people have not filled in is waited for."""
    mark, console = _mark(folder, one, "-compared"), ConsoleSink(quiet=True)
    if one.number == 1:
        sources = [str(config.loop.data or ""), "" if config.comparisons == PEOPLE else config.comparisons]
        for note in (*folder.notes, *traced("rlhf", config, [word for word in sources if word], folder)):
            console.note(note)
    if mark.exists():
        refuse_changed(_files(config, one), mark, one.number)
        return
    comparer = None if config.comparisons == PEOPLE else comparer_named(config.comparisons, config.loop.noise)
    durable.make_folder(one.folder)
    durable.clear_leftovers(one.folder)
    encoder = make_encoder(config.model)
    given = _given(config, encoder) if config.loop.data is not None else []
    asked, notes = _prompts(config, encoder, folder)
    asked = share_of(asked, config.loop.prompts, one.number, config.seed)
    _draw(config, one, folder, asked, notes if one.number == 1 else [])
    pairs = pairs_of(asked, read_answers(one.answers), _seed(config, one))
    verdicts = filled(one.pairs, pairs) if comparer is None else _asked(comparer, pairs, _seed(config, one))
    figures = _write(config, one, _rows(pairs, verdicts), given)
    figures = replace(figures, prompts=len(asked), pairs=len(pairs), unjudged=verdicts.count(None))
    seal(mark, _files(config, one), as_line(figures))
    console.note(figures.sentence)


def close(config: RlhfConfig, one: RlhfRound, folder: RunFolder) -> None:
    """Measure what a round has learnt, and write its line."""
    mark = _mark(folder, one)
    if not mark.exists():
        figures = _measured(config, one)
        seal(mark, (), {**figures_at(_mark(folder, one, "-compared")), **as_line(figures)})
        ConsoleSink(quiet=True).note(figures.sentence)
    rounds = (rlhf_round(config, number) for number in range(1, config.loop.rounds + 1))
    write_figures(folder, [_mark(folder, other) for other in rounds])


def _measured(config: RlhfConfig, one: RlhfRound) -> Learnt:
    new = _read(one.comparisons)
    held = [row for row in new if _is_held_out(config, row)]
    last = exact_json.loads((one.policy_run / "summary.json").read_bytes())["last"]
    return Learnt(
        round=one.number,
        old_on_new=_accuracy(one.before, new, config),
        old_held_out=_accuracy(one.before, held, config),
        new_held_out=_accuracy(one.reward, held, config),
        reward=last.get("held_out/reward", last.get("reward")),
        kl=last.get("held_out/kl", last.get("kl")),
    )


def _draw(
    config: RlhfConfig, one: RlhfRound, folder: RunFolder, asked: Sequence[Question], notes: Sequence[str]
) -> None:
    mark, console, n = _mark(folder, one, "-drawn"), ConsoleSink(quiet=True), config.loop.answers
    if mark.exists():
        refuse_changed((one.answers,), mark, one.number)
        return
    begin = f"round {one.number}: drawing {n} answers to each of {len(asked)} prompts from {one.speaker}"
    for note in (*notes, begin):
        console.note(note)
    sampler = LocalSampler(one.speaker, device=config.device)
    settings = config.draw.sampling(random.Random(f"{_seed(config, one)}/drawn").getrandbits(32))
    groups: list[JudgedGroup] = []
    for start in range(0, len(asked), AT_ONCE):
        some = asked[start : start + AT_ONCE]
        said = sampler.rollouts([question.text for question in some], settings, n=n)
        groups += [
            JudgedGroup(question=question, answers=tuple(own), scores=(None,) * n)
            for question, own in zip(some, said, strict=True)
        ]
    write_answers(one.answers, groups)
    seal(mark, (one.answers,), {})


def _asked(comparer: Comparer, pairs: Sequence[Pair], seed: str) -> list[Verdict | None]:
    seeds = [random.Random(f"{seed}/pair/{pair.number}").getrandbits(32) for pair in pairs]
    return comparer.verdicts([pair.task for pair in pairs], seeds)


def _prompts(
    config: RlhfConfig, encoder: Encoder, folder: RunFolder
) -> tuple[tuple[Question, ...], list[str]]:
    """What is asked; with a chat template a plain prompt becomes the user's turn. Policy runs read a copy."""
    found, notes = questions(config, encoder, folder.path)
    asked = _by_turns(found, encoder)
    files = {prompts_file(config): asked}
    if config.held_out_share is None:
        other, more = questions(replace(config, prompts=Path(config.held_out)), encoder, folder.path)
        files[held_out_file(config)] = _by_turns(other, encoder)
        notes += more
    if not _mark(folder, rlhf_round(config, 1), "-drawn").exists():
        for path, own in files.items():
            write_records(map(_as_prompt, own), path)
    return asked, notes


def _by_turns(asked: Sequence[Question], encoder: Encoder) -> tuple[Question, ...]:
    return tuple(
        replace(one, text=user_says(one.text)) if isinstance(one.text, str) and encoder.manner else one
        for one in asked
    )


def _as_prompt(one: Question) -> Prompt:
    return Prompt(prompt=one.text, answer=one.truth, metadata=one.facts, origin=one.origin)


def _rows(pairs: Sequence[Pair], verdicts: Sequence[Verdict | None]) -> list[Comparison]:
    return [
        replace(compared(pair.task, verdict), origin=pair.question.origin)
        for pair, verdict in zip(pairs, verdicts, strict=True)
        if verdict is not None
    ]


def _as_turns(row: Comparison) -> Comparison:
    if not isinstance(row.prompt, str):
        return row
    chosen, rejected = (assistant_says(words(text)) for text in (row.chosen, row.rejected))
    return replace(row, prompt=user_says(row.prompt), chosen=chosen, rejected=rejected)


def _write(
    config: RlhfConfig, one: RlhfRound, new: Sequence[Comparison], given: Sequence[Comparison]
) -> Compared:
    """The new comparisons; those that are trained, and those that never are."""
    if not new:
        raise UserError(
            f"round {one.number}: nothing was said of any pair, so there is nothing to learn from"
        )
    earlier = [rlhf_round(config, number) for number in range(1, one.number)]
    so_far = [*given, *(row for other in earlier for row in _read(other.comparisons)), *new]
    goes_on = config.reward_run.start == "newest" and one.number > 1
    train = [row for row in (new if goes_on else so_far) if not _is_held_out(config, row)]
    held_out = [row for row in so_far if _is_held_out(config, row)]
    if not train:
        raise UserError(
            f"round {one.number}: all {len(held_out)} comparisons are held out; set --reward-run.held-out "
            "lower"
        )
    write_records(new, one.comparisons)
    write_records(train, one.train)
    if held_out:
        write_records(held_out, one.held_out)
    return Compared(
        round=one.number,
        prompts=0,
        pairs=0,
        ties=sum(row.probability == 0.5 for row in new),
        unjudged=0,
        train=len(train),
        held_out=sum(_is_held_out(config, row) for row in new),
    )


def _given(config: RlhfConfig, encoder: Encoder) -> list[Comparison]:
    """The comparisons that there are before the first round."""
    assert config.loop.data is not None
    options = ReadOptions(split=config.rows.split, ties=config.rows.ties)
    reading = read_records(
        config.loop.data, kinds=("comparison",), threshold=config.rows.threshold, options=options
    )
    rows = [row for row in reading.records if isinstance(row, Comparison)]
    return [_as_turns(row) for row in rows] if encoder.manner else rows


def _read(path: Path) -> list[Comparison]:
    rows = read_records(path, format="plaudit", kinds=("comparison",)).records
    return [row for row in rows if isinstance(row, Comparison)]


def _is_held_out(config: RlhfConfig, row: Comparison) -> bool:
    """By the words of the prompt alone, so that what one round holds out is trained in no other."""
    chance = random.Random(f"{config.seed}/compared/{words(row.prompt)}").random()
    return chance < config.reward_run.held_out


def _accuracy(reward: Path | None, rows: Sequence[Comparison], config: RlhfConfig) -> float | None:
    """How often a reward is right, of the rows that prefer something; half where it says the same of both."""
    told = [row for row in rows if row.probability != 0.5]
    if reward is None or not told:
        return None
    found = scored_pairs(told, scores_of(told, load_reward(reward, device=config.device)))
    known = [pair for pair in found if has_verdict(pair)]
    return float(credit(columns(known)).mean()) if known else None


def _files(config: RlhfConfig, one: RlhfRound) -> list[Path]:
    """What the comparing of a round has left."""
    people = [one.pairs] if config.comparisons == PEOPLE else []
    held_out = [one.held_out] if one.held_out.exists() else []
    return [one.answers, one.comparisons, one.train, *held_out, *people]


def _mark(folder: RunFolder, one: RlhfRound, part: str = "") -> Path:
    return folder.checkpoints / f"round-{one.number}{part}.json"


def _seed(config: RlhfConfig, one: RlhfRound) -> str:
    """Other chance in each round; the same in it whenever it begins."""
    return f"{config.seed}/round/{one.number}"
