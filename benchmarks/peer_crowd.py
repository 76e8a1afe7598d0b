"""What crowd-kit, krippendorff, evalica and scikit-learn say of votes; run by the peers' own Python.

``make bench-peer`` makes their environment. A question is a list of ``[method, what it needs]`` as JSON on
the standard input; the answers are printed behind ``ANSWERS``.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

LABELS = ("0", "1", "2")
"""First, second and tie."""
LEVELS = ("nominal", "ordinal", "interval")
"""How Krippendorff's α may compare values."""
Rows = Sequence[Sequence[int]]
"""Task, worker and label of each vote."""


def _peer(name: str) -> Any:
    # It is in the peers' environment only.
    return importlib.import_module(name)


def _votes(rows: Rows) -> pd.DataFrame:
    # As text: with numbers for labels MACE fails under pandas 3.
    text = [[str(cell) for cell in row] for row in rows]
    return pd.DataFrame(text, columns=pd.Index(["task", "worker", "label"]))


def _truth(found: Any, rows: Rows) -> list[list[float]]:
    """The chances of each label of each task, the tasks by their numbers."""
    tasks = [str(task) for task in sorted({row[0] for row in rows})]
    return found.reindex(index=tasks, columns=LABELS).fillna(0.0).to_numpy().tolist()


def majority(rows: Rows) -> dict[str, Any]:
    """The share of votes for each label."""
    model = _peer("crowdkit.aggregation").MajorityVote()
    return {"truth": _truth(model.fit_predict_proba(_votes(rows)), rows), "skill": {}}


def one_coin(rows: Rows) -> dict[str, Any]:
    """Dawid and Skene with one skill a worker."""
    votes = _votes(rows)
    model = _peer("crowdkit.aggregation").OneCoinDawidSkene(n_iter=2000, tol=1e-14).fit(votes)
    # Its chances are of the skills one step before those that it reports; these are of the ones reported.
    fitted = model._e_step(votes, model.priors_, model.errors_)
    skill = {name: float(value) for name, value in model.skills_.items()}
    priors = {name: float(value) for name, value in model.priors_.items()}
    return {
        "truth": _truth(model.probas_, rows),
        "fitted": _truth(fitted, rows),
        "skill": skill,
        "priors": priors,
    }


def dawid_skene(rows: Rows) -> dict[str, Any]:
    """Dawid and Skene with a table of errors for each worker; skill is the chance of being right."""
    model = _peer("crowdkit.aggregation").DawidSkene(n_iter=200).fit(_votes(rows))
    skill = dict.fromkeys({str(row[1]) for row in rows}, 0.0)
    for (worker, label), errors in model.errors_.iterrows():
        skill[worker] += float(errors.get(label, 0.0) * model.priors_.get(label, 0.0))
    return {"truth": _truth(model.probas_, rows), "skill": skill}


def mace(rows: Rows, method: str = "vb") -> dict[str, Any]:
    """MACE, by default with crowd-kit's priors."""
    votes = _votes(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _peer("crowdkit.aggregation").MACE(n_restarts=10, n_iter=50, method=method, random_state=0)
        model.fit(votes)
    workers = [*pd.factorize(votes["worker"])[1]]
    labels = [*pd.factorize(votes["label"])[1]]
    return {
        "truth": _truth(model.probas_, rows),
        "skill": dict(zip(workers, model.spamming_[:, 1].tolist(), strict=True)),
        "clicks": dict(zip(workers, model.spamming_[:, 0].tolist(), strict=True)),
        "habit": {
            worker: dict(zip(labels, row, strict=True))
            for worker, row in zip(workers, model.thetas_.tolist(), strict=True)
        },
    }


def mace_em(rows: Rows) -> dict[str, Any]:
    """MACE without priors."""
    return mace(rows, method="em")


def mmsr(rows: Rows) -> dict[str, Any]:
    """Matrix mean-subsequence-reduced: skills by a robust factorisation, then weighted votes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _peer("crowdkit.aggregation").MMSR(random_state=0)
        scores = model.fit_predict_score(_votes(rows))
    skill = {name: float(value) for name, value in model.skills_.items()}
    return {"truth": _truth(scores.div(scores.sum(axis=1), axis=0), rows), "skill": skill}


def alpha(table: Sequence[Sequence[float | None]]) -> dict[str, list[float]]:
    """Krippendorff's α by level: rows are people, columns what they labelled, null where nothing."""
    values = np.array([[np.nan if cell is None else cell for cell in row] for row in table], dtype=float)
    by_krippendorff, by_evalica = _peer("krippendorff").alpha, _peer("evalica").alpha
    return {
        "krippendorff": [float(by_krippendorff(values, level_of_measurement=level)) for level in LEVELS],
        "evalica": [float(by_evalica(pd.DataFrame(values), level).alpha) for level in LEVELS],
    }


def percent(pair: Sequence[Sequence[int]]) -> float:
    """The share of two people's labels that are the same."""
    return float(_peer("sklearn.metrics").accuracy_score(*pair))


METHODS: Mapping[str, Callable[[Any], Any]] = {
    "majority": majority,
    "one-coin": one_coin,
    "Dawid–Skene": dawid_skene,
    "MACE": mace,
    "MACE, no priors": mace_em,
    "MMSR": mmsr,
    "alpha": alpha,
    "percent": percent,
}
"""What may be asked."""

if __name__ == "__main__":
    print("ANSWERS" + json.dumps([METHODS[name](given) for name, given in json.load(sys.stdin)]))
