"""Ends of a confidence sequence in closed form: bets against means other than zero are scaled to stay fair."""

import numpy as np
import pytest

from fedrank.silos.bandits import evidence as module
from fedrank.silos.bandits.evidence import MEANS, evidence


@pytest.mark.parametrize("level", [0.7, 0.8, 0.9])
def test_one_best_outcome_refutes_what_its_capital_refutes(level):
    """One difference of 1: capital against a mean m is 1 + λ̄ (1 − m)/(1 + m) with λ̄ = ½ the mean share staked.

    It reaches 1/level for m up to (½ − c)/(½ + c), c = 1/level − 1.
    """
    c = 1 / level - 1
    highest = (0.5 - c) / (0.5 + c)
    found = evidence([1.0], level)
    assert found.lower[0] == MEANS[highest >= MEANS][-1]
    assert found.upper[0] == 1.0
    mirrored = evidence([-1.0], level)
    assert mirrored.upper[0] == -found.lower[0] and mirrored.lower[0] == -1.0


def test_the_worst_outcome_loses_the_share_that_was_staked_whatever_the_mean():
    """Never more: capital stays positive, so that no bet is for ever lost."""
    found = module._capital(np.array([-1.0, -1.0]), np.ones(2, bool), np.array([-0.9, 0.0, 0.5, 0.99]))
    expected = [np.mean((1 - module.BETS) ** n) for n in (1, 2)]
    np.testing.assert_allclose(found, np.tile(expected, (4, 1)), rtol=1e-12)
