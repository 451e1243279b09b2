"""The study that ``kept/studies.R`` made, cut into silos, and analyses run over them."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedrank.silos.studies.protocol import Rows, run

KEPT = Path(__file__).parents[1] / "silos" / "oracle" / "kept"
R = json.loads((KEPT / "studies.json").read_text())
DATA = {name: np.array(values, float) for name, values in R["data"].items()}
COUNT = len(DATA["age"])
NAMES = ("(intercept)", "age", "dose", "arm")
#: The design, scaled, and the map to the columns' own units.
DESIGN = np.column_stack([np.ones(COUNT), (DATA["age"] - 60) / 40, (DATA["dose"] - 2) / 2, DATA["arm"]])
OWN = np.array([[1, -60 / 40, -1, 0], [0, 1 / 40, 0, 0], [0, 0, 1 / 2, 0], [0, 0, 0, 1]])
CLUSTER = DATA["cluster"].astype(int)


def cut(rows, ends=(1, 40, 90)):
    """Rows of silos of different sizes, the first with one row."""
    limits = [0, *ends, len(rows.y)]
    return [Rows(*(column[a:b] for column in rows)) for a, b in pairwise(limits)]


def cut_by_cluster(rows):
    """Rows of three silos, each cluster within one."""
    order = np.argsort(rows.cluster, kind="stable")
    ends = np.cumsum(np.bincount(rows.cluster))[[0, 4]]
    return cut(Rows(*(column[order] for column in rows)), ends)


def run_over(analysis, answer, silos):
    """Result of an analysis, and the numbers of an answer of each round, which all silos share."""
    sizes = []

    def carry(ask):
        answers = {f"silo {k}": answer(ask, [rows]) for k, rows in enumerate(silos)}
        [size] = {len(one) for one in answers.values()}
        sizes.append(size)
        return answers

    return run(analysis, carry), sizes


def close(ours, theirs, rtol=1e-8):
    """Compare numbers; a covariance by the errors of its row and column."""
    theirs = np.asarray(theirs, float)
    atol = 0.0
    if theirs.ndim == 2 and theirs.shape[0] == theirs.shape[1]:
        errors = np.sqrt(np.diag(theirs))
        ours, theirs, atol = ours / np.outer(errors, errors), theirs / np.outer(errors, errors), rtol
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
