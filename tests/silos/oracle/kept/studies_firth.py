"""Writes studies_firth.json: what firthmodels says of the data of studies.json and of separated rows.

python studies_firth.py > studies_firth.json      with firthmodels 0.8.2
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from firthmodels import FirthLogisticRegression

data = json.loads(Path(__file__).with_name("studies.json").read_text())["data"]
age, dose, arm, ill = (np.array(data[name], float) for name in ("age", "dose", "arm", "ill"))
side = np.repeat([0.0, 1.0], 6)
wave = np.arange(12) % 5 / 4
step = (np.arange(15) * 7) % 15 / 5 - 1.5
turn = (np.arange(15) * 4) % 15 / 7
out = {"made_by": {"firthmodels": version("firthmodels")}}
for name, x, y in (
    ("study", np.column_stack([age, dose, arm]), ill),
    ("separated", np.column_stack([side, wave]), side),
    ("nearly", np.column_stack([step, turn]), (step > 0.1) != (np.arange(15) == 3)),
):
    y = y.astype(float)
    fit = FirthLogisticRegression(gtol=1e-7, xtol=1e-7, max_iter=1000).fit(x, y)
    fit.lrt()
    ends = fit.conf_int(method="pl", max_iter=1000, tol=1e-9)
    last = [-1, *range(x.shape[1])]  # the intercept is the last of theirs
    out[name] = {
        "x": x.tolist(),
        "y": y.tolist(),
        "estimate": [float(fit.intercept_), *fit.coef_.tolist()],
        "error": fit.bse_[last].tolist(),
        "p": fit.lrt_pvalues_[last].tolist(),
        "low": ends[last, 0].tolist(),
        "high": ends[last, 1].tolist(),
        "value": float(fit.loglik_),
    }
print(json.dumps(out))
