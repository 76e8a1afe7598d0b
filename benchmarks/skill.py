"""Who is right about pairs, by labels of a crowd in which some do not read: plaudit and crowd-kit.

python -m benchmarks.skill           ten crowds: twelve of the world's or eight, with two who click the first
                                     answer, one who clicks at random, one who clicks in turn
python -m benchmarks.skill --save    and keeps the table in RESULTS.md
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.intervals import half_width
from plaudit.collect.quality.skill import FIRST, SECOND, TIE, Votes, fit_skill
from plaudit.data.judging import Task
from plaudit.lab.world.annotators import TRUE_ANNOTATOR, Annotator, annotator_pool
from plaudit.lab.world.making import answer_tasks

TITLE = "Skill and consensus against crowd-kit"
"""The heading of its table."""
ROOT = Path(__file__).resolve().parents[1]
PEER = Path(os.environ.get("PLAUDIT_CROWD_PYTHON", ROOT / ".peers/crowd/bin/python"))
"""The environment of crowd-kit, krippendorff and scikit-learn."""
PEERS = ("majority", "one-coin", "Dawid–Skene", "MACE", "MMSR")
"""The methods of crowd-kit that are compared."""
SPAMMERS = ("clicks the first", "clicks the first", "clicks at random", "clicks in turn")
"""Those who do not read."""
SEEDS = tuple(range(10))
"""Of the crowds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """A crowd's votes on pairs of which it is known which answer is better.

    Example: ``crowd(0).votes.people``
    """

    votes: Votes
    """What was said."""
    better_U: np.ndarray
    """FIRST or SECOND, and TIE where the answers are worth the same."""
    honest: int
    """How many people read; the others come behind them."""

    @property
    def rows(self) -> list[list[int]]:
        """Task, worker and label, as the peers take them: the order in which answers were shown is undone."""
        columns = (self.votes.pair_B, self.votes.person_B, self.votes.choice_B)
        return np.stack(columns, axis=1).tolist()


def crowd(seed: int, *, pairs: int = 300, overlap: int = 3, honest: int = 12) -> Crowd:
    """The votes of some of the world's crowd and of those who do not read, each pair by three of all."""
    rng = random.Random(f"skill {seed}")
    tasks = answer_tasks(pairs, answers=2, split="test", seed=seed)
    people: list[Annotator | str] = [*annotator_pool("crowd")[:honest], *SPAMMERS]
    given = dict[int, int]()
    rows = list[tuple[int, int, int, bool]]()
    for pair, task in enumerate(tasks):
        # As the store does it: the first order is drawn, and whoever comes next sees the reverse.
        swapped = rng.random() < 0.5
        for person in rng.sample(range(len(people)), overlap):
            shown = _shown(people[person], task, swapped=swapped, before=given.get(person), rng=rng)
            given[person] = shown
            rows.append((pair, person, shown if shown == TIE or not swapped else 1 - shown, swapped))
            swapped = not swapped
    table = np.array(rows)
    votes = Votes(
        pair_B=table[:, 0],
        person_B=table[:, 1],
        choice_B=table[:, 2],
        swapped_B=table[:, 3].astype(bool),
        pairs=pairs,
        people=len(people),
    )
    return Crowd(votes=votes, better_U=np.array([_better(task) for task in tasks]), honest=honest)


def _shown(
    person: Annotator | str, task: Task, *, swapped: bool, before: int | None, rng: random.Random
) -> int:
    """What a person clicks, in the order in which the answers are shown."""
    if isinstance(person, Annotator):
        turned = replace(task, answers=task.answers[::-1], ended=task.ended[::-1]) if swapped else task
        first, second = (mark.rank for mark in person.verdict(turned, rng.randrange(10**9)).marks)
        return TIE if first == second else FIRST if first < second else SECOND
    if person == "clicks at random":
        return rng.randrange(2)
    return 1 - before if person == "clicks in turn" and before is not None else FIRST


def _better(task: Task) -> int:
    first, second = TRUE_ANNOTATOR.win_probabilities(task)
    return TIE if first == second else FIRST if first > second else SECOND


def right_share(truth_UK: np.ndarray, better_U: np.ndarray) -> float:
    """How often the answer for which more speaks is the better one; where as much speaks for both, half."""
    lead_U = np.round(truth_UK[:, FIRST] - truth_UK[:, SECOND], 9)[better_U != TIE]
    right_U = (lead_U > 0) == (better_U[better_U != TIE] == FIRST)
    return float(np.where(lead_U == 0, 0.5, right_U).mean())


def honest_above(skill_J: np.ndarray, honest: int) -> float:
    """The chance that somebody who reads has the greater skill (AUC)."""
    gap = np.subtract.outer(skill_J[:honest], skill_J[honest:])
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


def ask_peers(question: Sequence[tuple[str, Any]], python: Path = PEER) -> list[Any]:
    """What the peers say, by their own Python."""
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("peer_crowd.py"))],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.partition("ANSWERS")[2])


def peer_figures(crowds: Sequence[Crowd], python: Path = PEER) -> dict[str, dict[str, list[float]]]:
    """Of each peer, how often it is right and how well it tells who reads, crowd by crowd."""
    question = [(name, found.rows) for name in PEERS for found in crowds]
    answers = iter(ask_peers(question, python))
    figures = dict[str, dict[str, list[float]]]()
    for name in PEERS:
        own = [(found, next(answers)) for found in crowds]
        figures[name] = {
            "right": [right_share(np.array(peer["truth"]), found.better_U) for found, peer in own],
            "auc": [honest_above(_skills(found, peer["skill"]), found.honest) for found, peer in own],
        }
    return figures


def _skills(found: Crowd, skill: Mapping[str, float]) -> np.ndarray:
    return np.array([skill.get(str(person), 0.0) for person in range(found.votes.people)])


def our_figures(crowds: Sequence[Crowd]) -> dict[str, list[float]]:
    """The same of plaudit's own fit."""
    fits = [(found, fit_skill(found.votes)) for found in crowds]
    return {
        "right": [right_share(fit.truth_UK, found.better_U) for found, fit in fits],
        "auc": [honest_above(fit.theta_J, found.honest) for found, fit in fits],
    }


def lead_over(
    ours: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]
) -> tuple[float, float]:
    """By how much ours is right more often than a peer, and half of the difference's interval over crowds."""
    gap = np.array(ours["right"]) - np.array(peer["right"])
    return float(gap.mean()), half_width(gap.tolist())


def table_rows(
    ours: Mapping[str, list[float]], peers: Mapping[str, Mapping[str, list[float]]]
) -> list[list[str]]:
    """The rows of the table: right, ours less this with its interval over crowds, and the AUC."""
    rows = list[list[str]]()
    for name, figures in {"plaudit": ours, **peers}.items():
        lead, half = lead_over(ours, figures)
        difference = "" if name == "plaudit" else f"{100 * lead:+.1f} ± {100 * half:.1f}"
        # Majority has no skills, so it tells nobody apart.
        auc = "" if name == "majority" else f"{np.mean(figures['auc']):.3f}, least {min(figures['auc']):.3f}"
        rows.append([name, f"{100 * np.mean(figures['right']):.1f} %", difference, auc])
    return rows


def main() -> None:
    """Measure, print, and keep the table where that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skill", description=__doc__)
    parser.add_argument("--honest", type=int, nargs="+", default=[12, 8], help="people of the world's crowd")
    parser.add_argument("--save", action="store_true", help="keep the table in RESULTS.md")
    args = parser.parse_args()
    if not PEER.exists():
        raise SystemExit(f"{PEER} is not there: make bench-peer")
    # Not above: what is measured needs no torch, and the page of results asks it for the machine.
    from benchmarks.table import machine, markdown, save_section

    parts = list[str]()
    for honest in args.honest:
        crowds = [crowd(seed, honest=honest) for seed in SEEDS]
        rows = table_rows(our_figures(crowds), peer_figures(crowds))
        head = ("method", "right on pairs", "plaudit less this, points", "readers above spammers, AUC")
        parts.append(f"### {honest} who read, {len(SPAMMERS)} who do not\n\n{markdown(head, rows)}")
        print(parts[-1], flush=True)
    if args.save:
        command = f"`python -m benchmarks.skill {' '.join(sys.argv[1:])}`"
        text = (
            f"{command}, {machine()}\n\n300 pairs of the world's test split, three labels each, "
            f"{len(SEEDS)} crowds. Of those who do not read, two click the first shown, one at random, one "
            "in turn. *Right*: the answer for which more speaks is of the higher true worth."
        )
        save_section(TITLE, "\n\n".join([text, *parts]))


if __name__ == "__main__":
    main()
