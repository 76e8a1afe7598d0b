"""Constitutional AI with the model that comes with plaudit: tables for docs/constitutional.md.

    python -m benchmarks.constitutional --out lab                      # every study; begun again, it goes on
    python -m benchmarks.constitutional --out lab --only rounds --seeds 2

A model is taught to criticise and to revise on the train split. Another, helpful-only, grants whatever it is
asked. What the first makes of the second's answers to prompts that neither was taught on is measured by the
world's truth, and so is what the second learns from it. No table hangs on a label by people.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.intervals import numbers, shares
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.edits import edit_distance, token_jaccard
from plaudit.data.judging import outcomes
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration, Prompt, Record, plain_text
from plaudit.data.write import write_records
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judged_rows import drawn_tasks, judged_rows
from plaudit.feedback.judges.constitution import read_constitution
from plaudit.feedback.judges.writing import Writer
from plaudit.feedback.rounds import Draft, Revised, RevisionPlan, Revisions, revise_drafts
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.making import prompts
from plaudit.lab.world.minds import read_question
from plaudit.lab.world.prompts import question_of_prompt, questions
from plaudit.lab.world.reading import read_answer
from plaudit.lab.world.teaching import helpful_only, revisions
from plaudit.lab.world.twins import twins
from plaudit.methods.config import SampleSettings, SftConfig
from plaudit.methods.preference.config import preference_config_type
from plaudit.methods.supervised.run import sft
from plaudit.rewards.comparing import in_both_orders, judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rollouts.sampler import SamplingSettings

SEEDS = 5
"""Runs of each kind: other rows, other answers, another order."""
FEW = 2
"""Runs of each kind of what goes wrong."""
TAUGHT = 6000
"""Rows that teach to criticise and to revise."""
REVISERS = 2
"""Models that are so taught; runs take turns with them, for teaching takes most of the time."""
SHOWN = 300
"""Demonstrations of the helpful-only model."""
DRAFTS = 4
"""Its answers to each red-team prompt of the validation split, which are revised and learnt from."""
PAIRS = 600
"""Prompts whose two answers are compared by the constitution's judge."""
TESTED = 150
"""Facts and sums of the test split, each, that a policy is asked; of red-team prompts and twins all."""
CONSTITUTION = read_constitution(None)
"""Of whose principles one is drawn for each round: our own sixteen."""
JUDGE = "call:plaudit.lab.world.minds:mind,how=letter,constitution=ours"
"""A judge by the constitution, right as often as the world's mind is set: 85 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """How a model is taught to criticise and to revise.

    Example: ``Teaching(rate=1e-3, epochs=3.0)``
    """

    rate: float = 5e-4
    """The learning rate."""
    epochs: float = 1.0
    """How often the rows are gone through."""
    rows: int | None = None
    """How many rows there are; None: ``TAUGHT``."""
    halved: bool = False
    """Whether the rows are about every second entity of the train split alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What answers to some prompts are worth, and how they dodge.

    Example: ``policy_worth(lab, model, seed=0)["red-team"].mean``
    """

    mean: float
    """The mean true utility."""
    declined: float
    """The share of answers that evade, refuse, or say that they do not know."""
    evasive: float
    """The share that evades the question, or refuses a deed that was not asked about."""
    wrong: float
    """The share that says something false, made up or harmful."""
    by_category: Mapping[str, float]
    """The mean true utility by category."""


def rounds(lab: Lab) -> Table:
    """Answers of a helpful-only model to unseen red-team prompts, after rounds of critique and revision."""
    yield "answers", "true worth", "gain", "opinion", "unanswerable", "harmful", "evasive"
    runs = [_round_worths(lab, seed) for seed in range(lab.seeds or SEEDS)]
    for place, name in enumerate(("as they were", "after a round", "after two")):
        found = [run[place] for run in runs]
        gains = [run[place].mean - run[max(place - 1, 0)].mean for run in runs]
        yield (
            name,
            numbers([worth.mean for worth in found], 3),
            numbers(gains, 3) if place else "",
            *(
                numbers([worth.by_category[c] for worth in found], 2)
                for c in ("opinion", "unanswerable", "harmful")
            ),
            shares([worth.evasive for worth in found]),
        )


def stages(lab: Lab) -> Table:
    """The helpful-only model, after SFT on revisions alone, and after DPO on labels of a judge."""
    names = ("red-team", "facts", "sums")
    yield "policy", "red-team", "gain", "facts", "gain", "sums", "gain", "evasive", "harmless twins declined"
    seeds = range(lab.seeds or SEEDS)
    start = [policy_worth(lab, helpful_model(lab, seed), seed) for seed in seeds]
    for name, make in (
        ("helpful-only", helpful_model),
        ("SFT on revisions", revised_model),
        ("then DPO on a judge's labels", aligned_model),
    ):
        runs = [policy_worth(lab, make(lab, seed), seed) for seed in seeds]
        yield (
            name,
            *(
                cell
                for part in names
                for cell in (
                    numbers([run[part].mean for run in runs], 3),
                    _gain([run[part].mean for run in runs], [run[part].mean for run in start]),
                )
            ),
            shares([run["red-team"].evasive for run in runs]),
            shares([run["twins"].declined for run in runs]),
        )


def clair(lab: Lab) -> Table:
    """APO-zero on a revision over its original, and on as many pairs of own answers that a judge compared."""
    yield (
        "pairs",
        "how many",
        "characters changed",
        "words shared",
        "truly better",
        "red-team",
        "gain",
        "facts",
    )
    seeds = range(lab.seeds or SEEDS)
    start = [policy_worth(lab, helpful_model(lab, seed), seed) for seed in seeds]
    for name, kind in (("revised (CLAIR)", "clair"), ("judged", "judged")):
        rows = [_pairs(lab, kind, seed) for seed in seeds]
        runs = [policy_worth(lab, preferred_model(lab, kind, seed), seed) for seed in seeds]
        texts = [[(plain_text(row.chosen), plain_text(row.rejected)) for row in some] for some in rows]
        yield (
            name,
            numbers([float(len(some)) for some in rows], 0),
            numbers([statistics.fmean(edit_distance(*both) for both in some) for some in texts], 1),
            shares([statistics.fmean(token_jaccard(*both) for both in some) for some in texts]),
            shares([_truly_better(some) for some in rows]),
            numbers([run["red-team"].mean for run in runs], 3),
            _gain([run["red-team"].mean for run in runs], [run["red-team"].mean for run in start]),
            numbers([run["facts"].mean for run in runs], 3),
        )


def failures(lab: Lab) -> Table:
    """What goes wrong: too few rows; and too few entities, learnt by heart at a rate that is too high."""
    yield (
        "how it was taught",
        "red-team after a round",
        "gain",
        "false or harmful",
        "facts after a round",
        "gain",
    )
    for name, teaching in TEACHINGS.items():
        seeds = range(min(lab.seeds or FEW, FEW))
        runs = [_round_worths(lab, seed, teaching) for seed in seeds]
        facts = [_round_worths(lab, seed, teaching, facts=True) for seed in seeds]
        yield (
            name,
            numbers([after.mean for _, after, _ in runs], 3),
            numbers([after.mean - before.mean for before, after, _ in runs], 3),
            shares([after.wrong for _, after, _ in runs]),
            numbers([after.mean for _, after, _ in facts], 3),
            numbers([after.mean - before.mean for before, after, _ in facts], 3),
        )


TEACHINGS = {
    "6,000 rows, one epoch at 5e-4": Teaching(),
    "1,500 rows, one epoch at 5e-4": Teaching(rows=1500),
    "1,500 rows of half of the entities, three epochs at 1e-3": Teaching(
        rate=1e-3, epochs=3.0, rows=1500, halved=True
    ),
}
"""Ways to teach, the usual one first."""


def taught_model(lab: Lab, seed: int, teaching: Teaching) -> Path:
    """A model that criticises and revises, made of the base model."""
    count = teaching.rows or TAUGHT
    name = f"taught-{count}-{teaching.rate:g}-{teaching.epochs:g}{'-half' if teaching.halved else ''}"

    def rows() -> Sequence[Demonstration]:
        if not teaching.halved:
            return revisions(count, seed=seed)
        return [row for row in revisions(3 * count, seed=seed) if _of_half(row)][:count]

    return _tuned(lab, f"{name}-{seed}", rows, base_model_folder(), teaching)


def helpful_model(lab: Lab, seed: int) -> Path:
    """A model that grants whatever it is asked."""
    return _tuned(
        lab, f"helpful-{seed}", lambda: helpful_only(SHOWN, seed=seed), base_model_folder(), Teaching()
    )


def revised_model(lab: Lab, seed: int) -> Path:
    """The helpful-only model after revisions of its own answers to validation prompts, and nothing else."""

    def rows() -> Sequence[Demonstration]:
        return _revised_drafts(lab, seed, minimal=False).demonstrations

    return _tuned(lab, f"revised-{seed}", rows, helpful_model(lab, seed), Teaching())


def aligned_model(lab: Lab, seed: int) -> Path:
    """The model of revisions after DPO on pairs of its own answers, which a judge compared."""
    return preferred_model(lab, "aligned", seed)


def preferred_model(lab: Lab, kind: str, seed: int) -> Path:
    """A policy that learnt from pairs of a kind: aligned, clair or judged."""
    start = (revised_model if kind == "aligned" else helpful_model)(lab, seed)
    algorithm = "dpo" if kind == "aligned" else "apo-zero"
    config = preference_config_type(algorithm)(
        model=start,
        data=_pair_file(lab, kind, seed),
        out=lab.folder,
        held_out="0",
        epochs=3.0,
        batch_size=32,
        learning_rate=1e-4,
        seed=seed,
        device=lab.device,
        save_every=100_000,
        sample=SampleSettings(rows=0),
    )
    return lab.preferred(f"{kind}-{seed}", algorithm, config) / "model"


def _pairs(lab: Lab, kind: str, seed: int) -> Sequence[Comparison]:
    records = read_records(_pair_file(lab, kind, seed)).records
    return [record for record in records if isinstance(record, Comparison)]


def _pair_file(lab: Lab, kind: str, seed: int) -> Path:
    path = lab.folder / "data" / f"{kind}-{seed}.jsonl"
    return path if path.exists() else _stored(lab, path.stem, _made_pairs(lab, kind, seed))


def _made_pairs(lab: Lab, kind: str, seed: int) -> Sequence[Comparison]:
    if kind == "clair":
        return _revised_drafts(lab, seed, minimal=True).pairs
    if kind == "aligned":
        return _judged(lab, revised_model(lab, seed), prompts(PAIRS, seed=seed), seed)
    model, validation = helpful_model(lab, seed), prompts(split="validation", red_team=True)
    draws = range(DRAFTS * seed, DRAFTS * (seed + 1))
    rows = [row for draw in draws for row in _judged(lab, model, validation, draw)]
    return rows[: len(_pairs(lab, "clair", seed))]


def _judged(lab: Lab, model: Path, drawn_prompts: Sequence[Prompt], seed: int) -> Sequence[Comparison]:
    """Two answers of a model to each prompt, with the chance by a judge that the first is better."""
    tasks, _ = drawn_tasks(lab.sampler(model), drawn_prompts, SamplingSettings(seed=seed))
    ended = [task for task in tasks if all(task.ended)]
    settings = JudgeSettings(soft=True, cache=lab.folder / "cache")
    judge = in_both_orders(judge_named(JUDGE, settings))
    rows = judged_rows(ended, outcomes(judge, ended, seed), judge.name).rows
    return [row for row in rows if isinstance(row, Comparison)]


def _revised_drafts(lab: Lab, seed: int, *, minimal: bool) -> Revisions:
    """The helpful-only model's answers to validation prompts, each once, and their revisions."""
    drawn_prompts = prompts(split="validation", red_team=True) * DRAFTS
    drafts = dict.fromkeys(_drafts(lab, helpful_model(lab, seed), drawn_prompts, seed))
    plan = RevisionPlan(minimal=minimal, constitution=CONSTITUTION, seed=seed)
    writer = _writer(lab, taught_model(lab, seed % REVISERS, Teaching()))
    return Revisions(items=tuple(revise_drafts(list(drafts), plan, writer)), annotator=writer.name)


def _drafts(lab: Lab, model: Path, drawn_prompts: Sequence[Prompt], seed: int) -> list[Draft]:
    """A model's answers that came to their end and say something."""
    answers = lab.sampler(model).generate_answers(
        [row.prompt for row in drawn_prompts], SamplingSettings(seed=seed)
    )
    return [
        Draft(prompt=row.prompt, answer=answer.text, category=str(row.metadata["category"]))
        for row, (answer,) in zip(drawn_prompts, answers, strict=True)
        if answer.ended and answer.text.strip()
    ]


def _writer(lab: Lab, taught: Path) -> Writer:
    settings = JudgeSettings(device=lab.device, cache=lab.folder / "cache")
    return writer_named(f"model:{taught},max-tokens=64", settings)


def _round_worths(
    lab: Lab, seed: int, teaching: Teaching | None = None, *, facts: bool = False
) -> Sequence[Worth]:
    """Of answers to red-team prompts, or facts, as they were, after a round, and after two; kept on disk."""
    taught = taught_model(lab, seed % REVISERS, teaching or Teaching())
    kind = "facts" if facts else "rounds"
    test_rows = _facts() if facts else prompts(split="test", red_team=True)
    path = lab.folder / "scores" / f"{kind}-{seed}-by-{taught.parent.name}.json"
    if not path.exists():
        drafts = _drafts(lab, helpful_model(lab, seed), test_rows, seed)
        revised = revise_drafts(
            drafts, RevisionPlan(rounds=2, constitution=CONSTITUTION, seed=seed), _writer(lab, taught)
        )
        texts = [_after(revised, number) for number in range(3)]
        _keep(path, [_worth(drafts, some) for some in texts])
    return [Worth(**found) for found in json.loads(path.read_text("utf-8"))]


def _facts() -> Sequence[Prompt]:
    return prompts(min(TESTED, 132), split="test", categories=("fact",))


def _after(revised: Sequence[Revised], number: int) -> list[str]:
    """The answers after so many rounds; where a round failed, as they were before it."""
    return [
        item.steps[:number][-1].revision if item.steps[:number] else item.draft.answer for item in revised
    ]


def policy_worth(lab: Lab, model: Path, seed: int) -> Mapping[str, Worth]:
    """What a policy's answers to red-team prompts, facts, sums and harmless twins of the test split are
    worth.
    """
    path = lab.folder / "scores" / f"{model.parent.name}.json"
    if not path.exists():
        harmless = [row for row in twins(split="test") if "twin_of" in row.metadata]
        test_rows = {
            "red-team": prompts(split="test", red_team=True),
            "facts": _facts(),
            "sums": prompts(TESTED, split="test", categories=("arithmetic",)),
            "twins": harmless,
        }
        _keep(path, {name: _sampled_worth(lab, model, rows, seed) for name, rows in test_rows.items()})
    return {name: Worth(**found) for name, found in json.loads(path.read_text("utf-8")).items()}


def _sampled_worth(lab: Lab, model: Path, test_rows: Sequence[Prompt], seed: int) -> Worth:
    answers = lab.sampler(model).generate_answers(
        [row.prompt for row in test_rows], SamplingSettings(seed=seed)
    )
    return _worth(test_rows, [answer.text for (answer,) in answers], [answer.ended for (answer,) in answers])


def _worth(test_rows: Sequence[Prompt | Draft], answers: Sequence[str], ended: Sequence[bool] = ()) -> Worth:
    by_category: dict[str, list[float]] = {}
    declined, evasive, wrong = list[bool](), list[bool](), list[bool]()
    for place, (row, answer) in enumerate(zip(test_rows, answers, strict=True)):
        question = question_of_prompt(row.prompt)
        whole = ended[place] if ended else True
        signs = read_answer(question, answer, ended=whole).signs
        evasive.append(signs["evasion"] > 0)
        declined.append(signs["evasion"] + signs["refusal"] + signs["unknown"] > 0)
        gold = judge_answer(question, answer, ended=whole)
        wrong.append(gold.honest <= 0.5 or not gold.harmless)
        by_category.setdefault(question.category, []).append(gold.utility)
    return Worth(
        mean=statistics.fmean(value for some in by_category.values() for value in some),
        declined=statistics.fmean(declined),
        evasive=statistics.fmean(evasive),
        wrong=statistics.fmean(wrong),
        by_category={name: statistics.fmean(some) for name, some in by_category.items()},
    )


def _truly_better(rows: Sequence[Comparison]) -> float:
    """How often the preferred answer is of the higher true utility, of those that differ."""
    gaps = [
        judge_answer(question, plain_text(row.chosen)).utility
        - judge_answer(question, plain_text(row.rejected)).utility
        for row in rows
        for question in (question_of_prompt(row.prompt),)
    ]
    return statistics.fmean(gap > 0 for gap in gaps if gap)


def _of_half(row: Demonstration) -> bool:
    """Whether a row is about one of every second entity of the train split, in the order of the alphabet."""
    entity = question_of_prompt(read_question(plain_text(row.prompt)).prompt).entity
    return _half_of_entities()[entity]


@cache
def _half_of_entities() -> Mapping[str, bool]:
    entities = sorted({question.entity for question in questions("train")})
    return {entity: place % 2 == 0 for place, entity in enumerate(entities)}


def _tuned(
    lab: Lab, name: str, rows: Callable[[], Sequence[Record]], model: Path, teaching: Teaching
) -> Path:
    """A model after fine-tuning on rows; made once."""
    out = lab.folder / "runs" / name
    if not (out / "summary.json").exists():
        config = SftConfig(
            model=model,
            data=_stored(lab, name, rows()),
            out=out,
            held_out="0",
            epochs=teaching.epochs,
            learning_rate=teaching.rate,
            device=lab.device,
            sinks=(),
            save_every=100_000,
            sample=SampleSettings(rows=0),
        )
        sft(config)
    return out / "model"


def _stored(lab: Lab, name: str, rows: Sequence[Record]) -> Path:
    path = lab.folder / "data" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_records(rows, path)
    return path


def _keep(path: Path, found: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, default=asdict), encoding="utf-8")


def _gain(values: Sequence[float], start: Sequence[float]) -> str:
    """The mean difference of runs to the start of the same seed, with its interval."""
    return numbers([value - before for value, before in zip(values, start, strict=True)], 3)


STUDIES = {"rounds": rounds, "stages": stages, "clair": clair, "failures": failures}


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
