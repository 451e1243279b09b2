"""Settings of a hub that exclude one another: each row of the table stops the start, and neither setting does alone."""

import pytest
from hubs import trial_settings

from fedrank.core.errors import ConfigError
from fedrank.deploy.log.note import WITNESS, Signer
from fedrank.deploy.terms import EXCLUSIONS

WITNESSES = (f"https://w.example {Signer('w.example/1', WITNESS, bytes(32)).key}",)
#: What makes each case, with what it needs by itself.
MADE = {
    "tokens = 0": {},
    "batch": {"tokens": 2, "batch": 5},
    "checks": {"checks": 0.1},
    "mechanism = laplace": {"mechanism": "laplace", "epsilon": 2.0},
    "interleaved": {"mechanism": "piecewise", "epsilon": 1.0, "interleaved": True},
    "a mechanism other than piecewise": {"mechanism": "randomised-response", "epsilon": None},
    "collect": {"collect": True},
}
PAIRS = [(row.first.words, other.words) for row in EXCLUSIONS for other in row.others]


def settings(*cases):
    return {"n_features": 5, **{key: value for case in cases for key, value in MADE[case].items()}}


def test_the_table_is_whole():
    assert len(EXCLUSIONS) == 3 and len(PAIRS) == len(set(PAIRS)) == 4
    assert {word for pair in PAIRS for word in pair} == set(MADE)


def test_what_excludes_one_another_stops_the_start_and_says_both():
    for first, other in PAIRS:
        both = settings(first, other) if other != "tokens = 0" else {"n_features": 5, "batch": 5}
        with pytest.raises(ConfigError) as error:
            trial_settings(**both)
        assert first in str(error.value) and other in str(error.value)
        for alone in (first, other):
            trial_settings(**settings(alone))


def test_every_protection_can_be_had_at_once():
    made = trial_settings(
        n_features=5,
        tokens=7,
        least_sales=100,
        batch=50,
        due=0.5,
        drawn_seeds=True,
        checks=0.1,
        round_seconds=60.0,
        participations=8,
        attestation=("webauthn",),
        witnesses=WITNESSES,
    )
    assert made.mechanism == "piecewise" and made.epsilon == 1.0 and made.interleaved and made.terms().draws


def test_witnesses_need_a_log():
    with pytest.raises(ConfigError, match="log = no"):
        trial_settings(n_features=5, witnesses=WITNESSES, log="no")
