"""What ppi-python says of means; run by its own Python (``make bench-peer``)."""

import importlib
import json
import sys
from typing import Any

import numpy as np


def main() -> None:
    peer: Any = importlib.import_module("ppi_py")
    question = json.load(sys.stdin)
    people, labelled, rest = (np.array(question[name]) for name in ("people", "labelled", "rest"))
    answers = list[list[float]]()
    for tuning in question["tunings"]:
        value = peer.ppi_mean_pointestimate(people, labelled, rest, lam=tuning)
        low, high = peer.ppi_mean_ci(people, labelled, rest, alpha=0.05, lam=tuning)
        answers.append([float(np.ravel(each)[0]) for each in (value, low, high)])
    print("ANSWERS", json.dumps(answers))


if __name__ == "__main__":
    main()
