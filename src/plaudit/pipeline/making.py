"""What each kind of stage does: rows, training, combinations, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.pipeline.kind_settings import CombineSettings, RowsSettings
from plaudit.pipeline.work import Made, Work, on_the_line
from plaudit.training import exact_json
from plaudit.world.wanted import WantedRows, write_wanted


def make(work: Work) -> Made:
    """The work of a stage, by its kind."""
    if work.stage.kind.trains:
        return train(work)
    from plaudit.pipeline.evaluating import evaluate, judge_reward

    makers: Mapping[str, Callable[[Work], Made]] = {
        "world-rows": world_rows,
        "rows": own_rows,
        "combine": combine,
        "evaluate": evaluate,
        "judge-reward": judge_reward,
    }
    return makers[work.stage.kind.name](work)


def train(work: Work) -> Made:
    """A training run, begun or gone on with."""
    from plaudit.recipes.checking import LOOKED
    from plaudit.recipes.methods import run_method

    config, name = work.config(), work.stage.kind.name
    run_method(name, config)
    runs = _runs(config.out)
    said = [sentence for run in runs for sentence in _said(run, config.out)]
    looked = {one["name"]: one for run in runs for one in _read(run / LOOKED).get("checks", [])}
    return Made(
        said=tuple(dict.fromkeys(said)),
        command=on_the_line("plaudit train", name, config=config.out / "config.yaml"),
        checks=tuple(looked.values()),
    )


def world_rows(work: Work) -> Made:
    """Rows of the embedded world."""
    wanted: WantedRows = work.config()
    path = work.here / "rows.jsonl"
    said = wanted.sentence(write_wanted(wanted, path))
    options = {
        "n": wanted.n,
        "annotators": wanted.annotators,
        "asked": wanted.asked,
        "model": wanted.model,
        "split": wanted.split,
        "category": [*wanted.category],
        "answers": wanted.answers,
        "seed": wanted.seed,
    }
    return Made(said=(said,), command=on_the_line("plaudit world make", wanted.make, out=path, **options))


def own_rows(work: Work) -> Made:
    """A file of any layout, checked, in plaudit's own."""
    from plaudit.records.preferred import preferred
    from plaudit.sources import read_records, write_records
    from plaudit.sources.layouts import ReadOptions

    told: RowsSettings = work.config()
    reading = read_records(
        told.data,
        format=told.format,
        threshold=told.threshold,
        quarantine=work.here / "quarantine.jsonl",
        options=ReadOptions(ties=told.ties, split=told.split),
    )
    said = [f"{count} × {reason} left out" for reason, count in reading.left_out.items()]
    if reading.quarantine is not None:
        said.append(
            f"{len(reading.problems)} of {reading.rows} rows are bad; they are in {reading.quarantine}"
        )
    records = reading.records
    if told.preferred:
        records = tuple(liked for record in records if (liked := preferred(record)) is not None)
        said.append(f"{len(reading.records) - len(records)} of {len(reading.records)} records prefer nothing")
    written = write_records(_some(records, told), work.here / "rows.jsonl")
    options = {
        "format": told.format,
        "threshold": told.threshold,
        "split": told.split,
        "ties": told.ties,
        "preferred": told.preferred or None,
    }
    command = on_the_line("plaudit data convert", str(told.data), str(written.path), **options)
    return Made(said=(f"{written.rows} rows", reading.sentence, *said), command=command)


def combine(work: Work) -> Made:
    """One reward of others, or of policies."""
    from plaudit.rewards.combine import save_combination
    from plaudit.rewards.folder import check_reward
    from plaudit.rewards.manners import Combination

    told: CombineSettings = work.config()
    if told.policy is not None:
        return _implicit(work, told, told.policy)
    assert told.how != "implicit", "refused when the settings were made"
    members = [Path(member) for member in told.members]
    for member in members:
        check_reward(member)
    k = 1.0 if told.how == "cautious" and told.k is None else told.k
    normal = None
    if told.normalise is not None:
        from plaudit.rewards.one_unit import in_one_unit

        normal = in_one_unit(members, told.normalise)
    combination = Combination(how=told.how, weights=told.weights or None, k=k, normal=normal)
    save_combination(work.here, members, combination)
    options = {
        "how": told.how,
        "weights": [*told.weights],
        "k": k,
        "normalise": told.normalise,
        "out": work.here,
    }
    called = ", ".join(work.called(word) for word in work.stage.inputs["members"])
    return Made(
        said=(f"{told.how} of {called}",),
        command=on_the_line("plaudit combine rewards", *told.members, **options),
    )


def _implicit(work: Work, told: CombineSettings, policy: Path) -> Made:
    from plaudit.rewards.combine import Policies, save_implicit
    from plaudit.rewards.folder import check_policies

    beta = 0.1 if told.beta is None else told.beta
    facts = Policies(policy=policy, reference=told.reference, beta=beta)
    check_policies(facts)
    save_implicit(work.here, facts)
    names = [work.called(work.stage.inputs[one][0]) for one in ("policy", "reference") if getattr(told, one)]
    likely = "how likely" if told.reference is None else "how much likelier"
    said = f"{beta:g} times {likely} {' than '.join((f'{names[0]} finds an answer', *names[1:]))}"
    options = {"policy": policy, "reference": told.reference, "beta": beta, "out": work.here}
    return Made(said=(said,), command=on_the_line("plaudit combine implicit", **options))


def _some(records: tuple[Any, ...], told: RowsSettings) -> tuple[Any, ...]:
    """Some of them by chance, in the order of the file."""
    import random

    if told.n is None or told.n >= len(records):
        return records
    places = sorted(random.Random(f"rows {told.seed}").sample(range(len(records)), told.n))
    return tuple(records[place] for place in places)


def _runs(out: Path) -> list[Path]:
    """The run, or those that it is made of: members of an ensemble, rounds of a loop."""
    found = [path.parent for path in sorted(out.rglob("summary.json")) if "checkpoints" not in path.parts]
    return [out] if out in found else found


def _said(run: Path, out: Path) -> list[str]:
    """What a run has come to, and what it says of itself."""
    summary = _read(run / "summary.json")
    last = summary.get("last", {})
    names = ("held_out/judge", "held_out/reward", "held_out/accuracy", "held_out/loss", "loss")
    known = [f"{name.replace('held_out/', 'held-out ')} {last[name]:.3f}" for name in names if last.get(name)]
    part = "" if run == out else f"{run.relative_to(out)}: "
    figures = [f"{part}{summary['step']} steps: {', '.join(known)}"] if known and "step" in summary else []
    return [*figures, *summary.get("notes", [])]


def _read(path: Path) -> dict[str, Any]:
    """A file that a run has written; nothing where it writes none."""
    if not path.exists():
        return {}
    try:
        return exact_json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
