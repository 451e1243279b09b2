"""What R's pROC says of two AUCs, kept: DeLong's test. ``kept/from_r.R`` made ``kept/from_r.json``."""

import json
from pathlib import Path

import numpy as np
from lifelines.datasets import load_lung

from fedrank.silos.sceptic.auc import auc, difference

R = json.loads(Path(__file__).with_name("kept").joinpath("from_r.json").read_text())


def test_delong_of_proc():
    frame = load_lung()[["time", "status", "age", "sex", "ph.ecog"]].astype(float)
    parts = [frame[np.arange(len(frame)) % 4 == k] for k in range(4)]
    frame = np.concatenate([p.dropna()[["status", "ph.ecog", "age"]].to_numpy() for p in parts])
    y, first, second = frame.T
    theirs, a, b, apart = R["auc"], auc(first, y), auc(second, y), difference(first, second, y)
    got = [a.value, a.error**2, b.value, b.error**2, apart.value / apart.error, apart.p]
    expected = [theirs[name] for name in ("first", "first_var", "second", "second_var", "z", "p")]
    np.testing.assert_allclose(got, expected, rtol=1e-10)
