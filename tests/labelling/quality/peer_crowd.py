"""What crowd-kit, krippendorff and evalica say of votes; run by the peers' own Python, see ``make bench-peer``.

A question is a list of ``[method, what it needs]``, on the standard input as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pandas as pd


def _votes(rows):
    # As text: with numbers for labels MACE fails under pandas 3.
    return pd.DataFrame([[str(cell) for cell in row] for row in rows], columns=["task", "worker", "label"])


def _probabilities(found, tasks):
    if isinstance(found, pd.Series):
        found = pd.get_dummies(found).astype(float)
    found = found.reindex(index=tasks, columns=["0", "1", "2"]).fillna(0.0)
    return found.to_numpy().tolist()


def majority(rows):
    from crowdkit.aggregation import MajorityVote

    votes = _votes(rows)
    return {"truth": _probabilities(MajorityVote().fit_predict_proba(votes), _tasks(rows))}


def one_coin(rows):
    from crowdkit.aggregation import OneCoinDawidSkene

    votes = _votes(rows)
    model = OneCoinDawidSkene(n_iter=2000, tol=1e-14).fit(votes)
    return {
        "truth": _probabilities(model.probas_, _tasks(rows)),
        "skill": {name: float(value) for name, value in model.skills_.items()},
        "priors": {name: float(value) for name, value in model.priors_.items()},
    }


def dawid_skene(rows):
    from crowdkit.aggregation import DawidSkene

    votes = _votes(rows)
    model = DawidSkene(n_iter=200).fit(votes)
    errors = model.errors_
    skill = {}
    for worker, part in errors.groupby(level=0):
        part = part.droplevel(0)
        skill[worker] = float(sum(part.loc[k, k] * model.priors_[k] for k in part.columns if k in part.index))
    return {"truth": _probabilities(model.probas_, _tasks(rows)), "skill": skill}


def mace(rows, method="vb"):
    from crowdkit.aggregation import MACE

    votes = _votes(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MACE(n_restarts=10, n_iter=50, method=method, random_state=0).fit(votes)
    names = list(pd.factorize(votes["worker"])[1])
    labels = list(pd.factorize(votes["label"])[1])
    return {
        "truth": _probabilities(model.probas_, _tasks(rows)),
        "skill": dict(zip(names, model.spamming_[:, 1].tolist(), strict=True)),
        "clicks": dict(zip(names, model.spamming_[:, 0].tolist(), strict=True)),
        "habit": {
            name: dict(zip(labels, row, strict=True))
            for name, row in zip(names, model.thetas_.tolist(), strict=True)
        },
    }


def mace_em(rows):
    return mace(rows, method="em")


def mmsr(rows):
    from crowdkit.aggregation import MMSR

    votes = _votes(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MMSR(random_state=0)
        scores = model.fit_predict_score(votes)
    return {
        "truth": _probabilities(scores.div(scores.sum(axis=1), axis=0), _tasks(rows)),
        "skill": {name: float(value) for name, value in model.skills_.items()},
    }


def alpha(table):
    """Krippendorff's α of all levels: rows are people, columns what they labelled, null where nothing."""
    import evalica
    import krippendorff

    values = np.array([[np.nan if cell is None else cell for cell in row] for row in table], dtype=float)
    levels = ("nominal", "ordinal", "interval")
    return {
        "krippendorff": [float(krippendorff.alpha(values, level_of_measurement=level)) for level in levels],
        "evalica": [float(evalica.alpha(pd.DataFrame(values), level).alpha) for level in levels],
    }


def kappa(pair):
    """Cohen's κ and the shares that it is made of, of two people."""
    from sklearn.metrics import accuracy_score, cohen_kappa_score

    return {"percent": float(accuracy_score(*pair)), "kappa": float(cohen_kappa_score(*pair))}


def auc(pair):
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*pair))


def _tasks(rows):
    return [str(task) for task in sorted({row[0] for row in rows})]


METHODS = {
    method.__name__: method
    for method in (majority, one_coin, dawid_skene, mace, mace_em, mmsr, alpha, kappa, auc)
}

if __name__ == "__main__":
    question = json.load(sys.stdin)
    print("ANSWERS" + json.dumps([METHODS[name](given) for name, given in question]))
