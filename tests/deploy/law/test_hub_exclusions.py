"""Settings of a hub that exclude one another: each row of the table stops the start, and neither setting does alone."""

import pytest

from fedrank.core.errors import ConfigError
from fedrank.deploy.exclusions import OF_HUBS, OF_TERMS
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.log.note import WITNESS, Signer

#: What makes each case, with what it needs by itself.
MADE = {
    "tokens": {"tokens": 2},
    "tokens = 0": {},
    "batch": {"tokens": 2, "batch": 5},
    "due below 1": {"due": 0.5},
    "drawn_seeds": {"drawn_seeds": True},
    "checks": {"checks": 0.1},
    "mechanism = laplace": {"mechanism": "laplace", "epsilon": 2.0},
    "interleaved": {"mechanism": "piecewise", "epsilon": 1.0, "interleaved": True},
    "a mechanism other than piecewise": {"mechanism": "randomised-response", "epsilon": None},
    "deadline = 0": {"deadline": 0.0},
    "relay": {"relay": True},
    "attestation": {"attestation": ("webauthn",)},
    "witnesses": {"witnesses": (f"https://w.example {Signer('w.example/1', WITNESS, bytes(32)).key}",)},
    "log = no": {"log": "no"},
}
PAIRS = [(row.first.words, other.words) for row in OF_HUBS for other in row.others]


def settings(*cases):
    return {"n_features": 5, **{key: value for case in cases for key, value in MADE[case].items()}}


def test_the_table_is_whole():
    assert set(OF_TERMS) < set(OF_HUBS) and len(PAIRS) == len(set(PAIRS)) == 12
    assert {word for pair in PAIRS for word in pair} == set(MADE)


def test_what_excludes_one_another_stops_the_start_and_says_both():
    for first, other in PAIRS:
        both = settings(first, other) if other != "tokens = 0" else {"n_features": 5, "batch": 5}
        with pytest.raises(ConfigError) as error:
            HubSettings(**both)
        assert first in str(error.value) and other in str(error.value)
        for alone in (first, other):
            HubSettings(**settings(alone))
