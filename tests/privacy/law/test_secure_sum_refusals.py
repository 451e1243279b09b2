"""A secure sum: no key seals twice, half of the holders are too few, and whoever refused takes no further part."""

import dataclasses

import numpy as np
import pytest
from secure_sums import Session

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.privacy.secure_sum import crypto
from fedrank.privacy.secure_sum.messages import Terms


def test_every_text_is_sealed_under_a_key_of_its_own(monkeypatch):
    """The nonce is always zero, so one key for both directions of a pair would be a pad that is used twice."""
    keys = []
    seal = crypto.seal

    def noted(key, text, context):
        keys.append(key)
        return seal(key, text, context)

    monkeypatch.setattr(crypto, "seal", noted)
    Session(parties=5, until="deliveries")
    assert len(keys) == 5 * 4
    assert len(set(keys)) == len(keys)


def test_the_threshold_is_more_than_half_of_the_holders():
    """With half of them, two halves that are told different things would give away both secrets of a party."""
    for neighbours, half in [(1, 1), (3, 2), (5, 3), (4, 2)]:
        with pytest.raises(ConfigError, match="more than half"):
            Terms(1, neighbours, half)
        assert Terms(1, neighbours, half + 1).threshold == half + 1


def changed(octets):
    other = np.array(octets)
    other[0] ^= 1
    return other


def test_a_party_that_refused_shares_which_were_changed_does_not_unmask():
    session = Session(until="deliveries")
    false = dataclasses.replace(session.deliveries[0], sealed=changed(session.deliveries[0].sealed))
    with pytest.raises(SecureSumError, match="changed"):
        session.parties[0].mask(false, session.vectors[0])
    masked = [p.mask(session.deliveries[p.number], session.vectors[p.number]) for p in session.parties[1:]]
    request = session.server.unmask_requests(masked)[1]
    with pytest.raises(SecureSumError):
        session.parties[0].unmask(request)


def test_a_party_that_refused_another_session_does_not_go_on_in_its_own():
    session = Session(until="rosters")
    roster = session.rosters[0]
    with pytest.raises(SecureSumError, match="session"):
        session.parties[0].share(dataclasses.replace(roster, session=changed(roster.session)))
    with pytest.raises(SecureSumError):
        session.parties[0].share(roster)
