"""Multinomial logistic regression from sums of silos against statsmodels on all rows."""

import json

import numpy as np
import pytest
import statsmodels.api as sm

from fedrank.cli.main import call
from fedrank.core.errors import DataError
from fedrank.silos.glm.multinomial import fit_multinomial

LEVELS = ("none", "some", "much")


def silos(seed=0, rows=(90, 60, 120)):
    rng, out = np.random.default_rng(seed), []
    beta = np.array([[0.5, 0.8, -0.4], [-0.3, -0.5, 0.9]])
    for n in rows:
        x = rng.standard_normal((n, 2)) * [1, 50] + [0, 1000]
        u = np.column_stack([np.ones(n), (x - [0, 1000]) / [1, 50]])
        share = np.exp(np.column_stack([np.zeros(n), u @ beta.T]))
        share /= share.sum(axis=1, keepdims=True)
        out.append((x, (rng.random(n)[:, None] > share.cumsum(axis=1)).sum(axis=1).astype(float)))
    return out


def pooled(parts):
    return sm.add_constant(np.concatenate([x for x, _ in parts])), np.concatenate([y for _, y in parts])


@pytest.mark.parametrize("secure", [False, True])
def test_it_is_that_of_all_rows_at_one_place(secure):
    parts = silos()
    x, y = pooled(parts)
    scale = np.array([1.0, 1.0, 1e-3])  # statsmodels' Newton needs columns of one size
    theirs = sm.MNLogit(y, x * scale).fit(method="newton", tol=1e-14, maxiter=100, disp=0)
    ours = fit_multinomial(parts, LEVELS, secure=secure)
    np.testing.assert_allclose(ours.estimate, theirs.params.T * scale, rtol=1e-8)
    np.testing.assert_allclose(ours.error, theirs.bse.T * scale, rtol=1e-8)
    np.testing.assert_allclose(ours.p, theirs.pvalues.T, rtol=1e-6)
    np.testing.assert_allclose(ours.interval()[0], theirs.conf_int()[..., 0] * scale, rtol=1e-7)
    assert ours.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)
    assert ours.converged and not ours.notes() and sum(ours.counts) == 270 == sum(ours.rows)


def test_a_level_that_is_separated_is_named_and_gaps_and_twins_are_counted():
    parts = silos(1)
    parts[0][0][3, 0] = np.nan
    parts = [(np.column_stack([x, 2 * x[:, 0], y == 2]), y) for x, y in parts]
    made = fit_multinomial(parts, LEVELS, ("a", "b", "twin", "tells"))
    assert made.aliased == ("twin",) and made.left_out == (1, 0, 0)
    assert any(said.startswith("tells (much)") for said in made.separated)
    assert made.as_json()["coefficients"][-1]["error"] is None
    with pytest.raises(DataError, match="level"):
        fit_multinomial([(x, np.minimum(y, 1)) for x, y in silos(2)], LEVELS)


def test_the_command_reads_levels_in_their_order(tmp_path, capsys):
    path, lines = tmp_path / "t.csv", ["silo,a,b,grade"]
    for number, (x, y) in enumerate(silos()):
        lines += [f"s{number},{a},{b},{int(k) * 5}" for (a, b), k in zip(x.tolist(), y, strict=True)]
    path.write_text("\n".join([*lines, "s0,1,1000,99"]))
    command = ["silos", "glm", str(path), "--family", "multinomial", "--label", "grade", "--missing", "99"]
    assert call([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["against"] == "0" and list(told["levels"]) == ["0", "5", "10"]
    ours = fit_multinomial([(np.float32(x).astype(float), y) for x, y in silos()], LEVELS)
    got = [one["estimate"] for one in told["coefficients"]]
    np.testing.assert_allclose(got, ours.estimate.ravel(), rtol=1e-6)
    assert call(command) == 0 and "Log-odds against 0" in capsys.readouterr().out
    assert call([*command, "--firth"]) == 1 and "no --penalty" in capsys.readouterr().err
    assert call(["silos", "glm", str(path), "--family", "multinomial", "--label", "silo", "--silo", "grade"]) in (0, 1)
