"""Two-stage meta-analysis equals R's metafor over the same estimates, and pools silos' own fits."""

import numpy as np
import pytest
from study_silos import DATA, DESIGN, NAMES, OWN, R, cut, run_over

from fedrank.core.errors import DataError
from fedrank.silos.studies import regression, survival
from fedrank.silos.studies.families import Logistic
from fedrank.silos.studies.meta import answer, fit, pool
from fedrank.silos.studies.protocol import Rows

ESTIMATES = {
    f"silo {k}": (y, v**0.5) for k, (y, v) in enumerate(zip(R["meta"]["y"], R["meta"]["v"], strict=True))
}  # fmt: skip


def test_pooled_estimates_equal_metafor():
    made, theirs = pool(ESTIMATES), R["meta"]["REML z"]
    ours = made.estimate, made.error, made.p, *made.interval(), made.tau2, 100 * made.i2
    names = ("estimate", "error", "p", "low", "high", "tau2", "i2")
    np.testing.assert_allclose(ours, [theirs[name] for name in names], rtol=1e-8)
    np.testing.assert_allclose(made.prediction(), theirs["ahead"], rtol=1e-8)


def test_few_or_equal_silos():
    one = pool({"a": (0.3, 0.1), "b": (np.nan, np.nan)})
    assert (one.estimate, one.error, one.without) == (pytest.approx(0.3), pytest.approx(0.1), ("b",))
    assert np.isnan(one.prediction()).all()
    alike = pool({name: (0.3, 0.1) for name in "abcd"})
    assert (alike.tau2, alike.i2) == (0.0, 0.0) and alike.error == pytest.approx(0.05)
    with pytest.raises(DataError):
        pool({"a": (np.nan, 1.0)})


def test_silos_answer_with_their_own_fits():
    """What is pooled are the silos' own fits; a silo that cannot fit its rows is named."""
    family = Logistic()
    ways = {
        "ill": (
            lambda: regression.fit(family, NAMES, own=OWN),
            lambda ask, blocks: regression.answer(family, ask, blocks),
            Rows.of(DESIGN, DATA["ill"]),
            NAMES,
        ),
        "time": (
            lambda: survival.fit_cox(NAMES[1:], own=OWN),
            survival.answer,
            Rows.of(DESIGN[:, 1:], DATA["time"], DATA["event"]),
            NAMES[1:],
        ),
    }
    for own, own_answer, rows, names in ways.values():
        silos, m = cut(rows), len(names)
        made, sizes = run_over(
            fit(names),
            lambda ask, blocks, own=own, by=own_answer, m=m: answer(own, by, m, blocks),
            silos,
        )
        alone = [run_over(own(), own_answer, [silo])[0] for silo in silos[1:]]
        assert sizes == [1 + m + m * (m + 1) // 2 + 1] and made.rounds == 1
        assert list(made.rows.values()) == [1, 39, 50, 70]
        for k, one in enumerate(made.pooled):
            given = {f"silo {j + 1}": (fit_.estimate[k], fit_.error[k]) for j, fit_ in enumerate(alone)}
            theirs = pool(given, name=names[k])
            assert one.without == ("silo 0",) and one.name == names[k]
            np.testing.assert_allclose((one.estimate, one.error), (theirs.estimate, theirs.error), rtol=1e-12)
    with pytest.raises(DataError):
        run_over(fit(NAMES), lambda ask, blocks: np.concatenate([[1.0], np.full(14, np.nan), [0.0]]), silos)
