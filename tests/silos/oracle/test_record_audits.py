"""Audits of networks and AUCs with noise: they find the ε that is promised, and more where there is less noise."""

import pytest

from fedrank.privacy.audit import audit_mechanism
from fedrank.silos.records import private_sgd
from fedrank.silos.records.audits import record_auc, record_network, record_network_batches
from fedrank.silos.records.private_sgd import NoisyJudgements, noise_multiplier

pytestmark = pytest.mark.slow
EPSILON = 4.0


@pytest.mark.parametrize("audit", [record_network, record_network_batches, record_auc])
def test_an_audit_shows_most_of_the_epsilon_and_no_more(audit):
    found = audit_mechanism(audit(EPSILON))
    assert 2.0 < found.shown <= EPSILON


def test_a_network_with_half_the_noise_is_found_out(monkeypatch):
    monkeypatch.setattr(private_sgd, "noise_multiplier", lambda *args: noise_multiplier(*args) / 2)
    assert audit_mechanism(record_network(EPSILON)).broken


def test_an_account_that_thinks_batches_are_smaller_is_found_out(monkeypatch):
    """Noise for a sixth of the rows in a batch, where a third is in it."""
    monkeypatch.setattr(private_sgd, "noise_multiplier", lambda share, *rest: noise_multiplier(share / 2, *rest))
    assert audit_mechanism(record_network_batches(EPSILON)).broken


def test_aucs_with_noise_for_a_quarter_of_them_are_found_out(monkeypatch):
    right = NoisyJudgements.length.fget
    monkeypatch.setattr(NoisyJudgements, "length", property(lambda self: 2 * right(self)))
    assert audit_mechanism(record_auc(EPSILON)).broken
