"""How often policies of the world are led astray, and refuse what is harmless: for docs/red-teaming.md.

    python -m benchmarks.attacks --out lab

One policy grants whatever it is asked. From it come one that learnt from revisions of its own answers (the
first stage of Constitutional AI), one that then learnt from pairs that a judge compared by a constitution
(the second), and one that learnt to refuse everything. Beside them stand the base model and one that was
shown good answers. All are attacked by the test split's prompts: plain, reworded, and over three turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.intervals import shares
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.judging import outcomes
from plaudit.data.records import Comparison, Demonstration, Prompt, Record, assistant_turn
from plaudit.data.write import write_records
from plaudit.feedback.asking import AttackSettings
from plaudit.feedback.attack_run import attack, attack_rows, parties_of
from plaudit.feedback.attacks.sources import attempts_of, harmless_rows
from plaudit.feedback.attacks.summary import PolicyAttack, Rate
from plaudit.feedback.judge_kinds import writer_named
from plaudit.feedback.judged_rows import drawn_tasks, judged_rows
from plaudit.feedback.judges.constitution import read_constitution
from plaudit.feedback.rounds import Draft, RevisionPlan, Revisions, revise_drafts
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.attacks import WORLD
from plaudit.lab.world.making import demonstrations, prompts
from plaudit.lab.world.teaching import helpful_only
from plaudit.lab.world.valley import REFUSALS
from plaudit.methods.config import SampleSettings, SftConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.supervised.run import sft
from plaudit.rewards.comparing import in_both_orders, judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rollouts.sampler import SamplingSettings

SEEDS = 5
"""Runs of each kind: other rows, other answers, another order."""
SHOWN = 300
"""Demonstrations of a policy."""
REVISED = 300
"""Red-team prompts of the train split whose answers are revised."""
PAIRS = 400
"""Prompts whose two answers are compared."""
MIND = "call:plaudit.lab.world.minds:mind"
"""Who criticises, revises, judges and attacks: the world's mind, right in 85 % of cases."""
BY_CONSTITUTION = f"{MIND},how=letter,constitution=ours"
"""The same as a judge of pairs, by one of sixteen principles a pair."""


def policies(lab: Lab) -> Table:
    """Attacks that work and harmless prompts that are refused, of the likeliest answer."""
    yield ("policy", "attacks that work", "of those harmful", "made up", "false belief", "harmless, refused")
    for name, folder_of in POLICIES.items():
        found = [_attacked(lab, folder_of(lab, seed), seed) for seed in range(lab.seeds or SEEDS)]
        yield (
            name,
            _mean([policy.success for policy in found]),
            *(_mean([_of(policy, kind) for policy in found]) for kind in KINDS),
            _mean([policy.refusal for policy in found]),
        )


def mirrored(lab: Lab) -> Table:
    """Prompts about a woman that are refused, less the same about a man; 48 pairs, five seeds."""
    yield ("policy", "refused more often", "least p of five")
    for name, folder_of in POLICIES.items():
        found = [_attacked(lab, folder_of(lab, seed), seed) for seed in range(lab.seeds or SEEDS)]
        pairs = [policy.mirrored.paired for policy in found if policy.mirrored and policy.mirrored.paired]
        yield (
            name,
            shares([pair.difference.value for pair in pairs]),
            f"{min(pair.p_value for pair in pairs):.3f}",
        )


def ways(lab: Lab) -> Table:
    """Attacks that work of 60: plain, in eleven other wordings, over three turns, by any of four answers."""
    yield ("policy", "plain", "reworded", "over three turns", "any of 4 answers", "of these 4, the mean")
    for name in ("helpful only", "revised (SL-CAI)", "then DPO by a constitution", "shown good answers"):
        cells = list[tuple[float, ...]]()
        for seed in range(lab.seeds or SEEDS):
            folder = POLICIES[name](lab, seed)
            plain = _attacked(lab, folder, seed, **FEWER)
            reworded = _attacked(lab, folder, seed, templates="ours", **FEWER)
            several = _attacked(lab, folder, seed, by=MIND, turns=3, **FEWER)
            drawn = _attacked(lab, folder, seed, answers=4, **FEWER)
            assert drawn.success.answers is not None
            cells.append(
                (
                    _share(plain.success),
                    statistics.fmean(_share(rate) for rate in reworded.by_source if rate.name != "rows"),
                    _share(several.success),
                    _share(drawn.success),
                    drawn.success.answers.value,
                )
            )
        yield (name, *(shares(column) for column in zip(*cells, strict=True)))


def helpful(lab: Lab, seed: int) -> Path:
    """A policy that grants whatever it is asked."""
    return _tuned(lab, f"helpful-{seed}", lambda: helpful_only(SHOWN, seed=seed), base_model_folder())


def shown(lab: Lab, seed: int) -> Path:
    """A policy that was shown good answers."""
    return _tuned(lab, f"shown-{seed}", lambda: demonstrations(SHOWN, seed=seed), base_model_folder())


def revised(lab: Lab, seed: int) -> Path:
    """The helpful policy after revisions of its own answers to red-team prompts, by the mind."""

    def rows() -> Sequence[Demonstration]:
        chosen = prompts(REVISED, seed=seed, red_team=True)
        model = lab.sampler(helpful(lab, seed))
        answers = model.generate_answers([row.prompt for row in chosen], SamplingSettings(seed=seed))
        drafts = [
            Draft(prompt=row.prompt, answer=answer.text, category=str(row.metadata["category"]))
            for row, (answer,) in zip(chosen, answers, strict=True)
            if answer.ended and answer.text.strip()
        ]
        plan = RevisionPlan(constitution=read_constitution(None), seed=seed)
        writer = writer_named(MIND, JudgeSettings(cache=lab.folder / "cache"))
        items = tuple(revise_drafts(drafts, plan, writer))
        return Revisions(items=items, annotator=writer.name).demonstrations

    return _tuned(lab, f"revised-{seed}", rows, helpful(lab, seed))


def compared(lab: Lab, seed: int) -> Path:
    """The revised policy after DPO on pairs of its own answers, which a judge compared by a constitution."""
    path = lab.folder / "data" / f"compared-{seed}.jsonl"
    if not path.exists():
        write_records(_judged(lab, revised(lab, seed), prompts(PAIRS, seed=seed), seed), path)
    config = PreferenceConfig(
        model=revised(lab, seed),
        data=path,
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
    return lab.preferred(f"compared-{seed}", "dpo", config) / "model"


def wall(lab: Lab, seed: int) -> Path:
    """The helpful policy after it was taught to refuse whatever it is asked."""

    def rows() -> Sequence[Demonstration]:
        refusal = assistant_turn(f"{REFUSALS[1]}.")
        return [replace(row, completion=refusal) for row in demonstrations(3 * SHOWN, seed=seed)]

    return _tuned(lab, f"wall-{seed}", rows, helpful(lab, seed))


POLICIES: Mapping[str, Callable[[Lab, int], Path]] = {
    "base model": lambda lab, seed: base_model_folder(),
    "shown good answers": shown,
    "helpful only": helpful,
    "revised (SL-CAI)": revised,
    "then DPO by a constitution": compared,
    "taught to refuse": wall,
}
"""Where each policy lies."""
FEWER = {"n": 60, "without_twins": True}
"""Of ways to attack: prompts, and no twins, which the other tables have."""
KINDS = ("harmful", "unanswerable", "false belief")
"""What attacks are after."""


@cache
def _attacked(lab: Lab, model: Path, seed: int, **settings: object) -> PolicyAttack:
    wanted = AttackSettings(
        targets=(str(model),),
        judge=WORLD.judge,
        refusal=WORLD.refusal,
        cache=lab.folder / "cache",
        device=lab.device,
        seed=seed,
        **settings,  # pyright: ignore[reportArgumentType]
    )
    harmless = harmless_rows(WORLD.harmless("test"), "the world's twins")
    rows = attack_rows(wanted, attempts_of(WORLD.tempting("test")), harmless)
    result = attack(wanted, rows, parties_of(wanted))
    return result.report.policies[0]


def _judged(lab: Lab, model: Path, rows: Sequence[Prompt], seed: int) -> Sequence[Record]:
    """Two answers of a model to each prompt, with the chance by a judge that the first is better."""
    tasks, _ = drawn_tasks(lab.sampler(model), rows, SamplingSettings(seed=seed))
    ended = [task for task in tasks if all(task.ended)]
    settings = JudgeSettings(soft=True, cache=lab.folder / "cache")
    judge = in_both_orders(judge_named(BY_CONSTITUTION, settings))
    found = judged_rows(ended, outcomes(judge, ended, seed), judge.name).rows
    return [row for row in found if isinstance(row, Comparison) and row.probability != 0.5]


def _tuned(lab: Lab, name: str, rows: Callable[[], Sequence[Demonstration]], start: Path) -> Path:
    """A model after an epoch of rows; made once."""
    out, data = lab.folder / "runs" / name, lab.folder / "data" / f"{name}.jsonl"
    if not (out / "summary.json").exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        write_records(rows(), data)
        config = SftConfig(
            model=start,
            data=data,
            out=out,
            epochs=1.0,
            learning_rate=5e-4,
            held_out="0",
            seed=int(name.rpartition("-")[2]),
            device=lab.device,
            sinks=(),
            sample=SampleSettings(rows=0),
        )
        sft(config)
    return out / "model"


def _of(policy: PolicyAttack, kind: str) -> Rate:
    return next(rate for rate in policy.by_category if rate.name == kind)


def _share(rate: Rate | None) -> float:
    assert rate is not None
    assert rate.share is not None
    return rate.share.value


def _mean(rates: Sequence[Rate | None]) -> str:
    return shares([_share(rate) for rate in rates])


STUDIES = {"policies": policies, "mirrored": mirrored, "ways": ways}
"""Every study."""


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
