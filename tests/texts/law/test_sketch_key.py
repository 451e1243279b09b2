"""Silos agree on a secret that the relaying server does not have, and notice what a server changes."""

import re

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.texts.sketch.key import KEY, SEALED, Agreement, fingerprint


def roster(keys, silos):
    """What a server sends first: the public keys by number, zeros for silos that are gone."""
    return np.concatenate([keys.get(silo, np.zeros(KEY, np.uint8)) for silo in range(silos)])


def relay(sealed, silos):
    """What a server passes on to each silo: the contributions that the others sealed for it."""
    nothing = np.zeros((silos, SEALED), np.uint8)
    parts = [sealed[silo].reshape(silos, SEALED) if silo in sealed else nothing for silo in range(silos)]
    return {silo: np.concatenate([part[silo] for part in parts]) for silo in range(silos)}


def agree(silos=4, gone_before=(), gone_after=(), stored=False):
    """An agreement through an honest server: who finished → secret; and all that the server saw."""

    def kept(parties):
        return {n: Agreement.from_state(p.state()) for n, p in parties.items()} if stored else parties

    parties = {n: Agreement(silos, n) for n in range(silos) if n not in gone_before}
    keys = roster({n: p.public for n, p in parties.items()}, silos)
    parties = kept(parties)
    sealed = {n: p.contribute(keys) for n, p in parties.items() if n not in gone_after}
    parties = kept({n: parties[n] for n in sealed})
    delivered = relay(sealed, silos)
    return {n: p.secret(delivered[n]) for n, p in parties.items()}, (keys, sealed)


def test_all_who_stay_have_one_secret():
    for before, after in [((), ()), ((1,), ()), ((), (0,)), ((3,), (1,))]:
        for stored in [False, True]:
            secrets_, _ = agree(4, before, after, stored)
            assert set(secrets_) == set(range(4)) - {*before, *after}
            assert len(set(secrets_.values())) == 1
            assert all(len(secret) == 32 for secret in secrets_.values())


def test_every_agreement_has_another_secret_and_every_contribution_counts():
    assert len({agree(2)[0][0] for _ in range(5)}) == 5
    parties = [Agreement(3, n) for n in range(3)]
    keys = roster({n: p.public for n, p in enumerate(parties)}, 3)
    sealed = {n: p.contribute(keys) for n, p in enumerate(parties)}
    whole = parties[0].secret(relay(sealed, 3)[0])
    assert whole != parties[0].secret(relay({0: sealed[0], 1: sealed[1]}, 3)[0])


def test_nothing_of_the_secret_or_a_contribution_passes_the_server_in_the_clear():
    parties = [Agreement(3, n) for n in range(3)]
    keys = roster({n: p.public for n, p in enumerate(parties)}, 3)
    sealed = {n: p.contribute(keys) for n, p in enumerate(parties)}
    secret = parties[0].secret(relay(sealed, 3)[0])
    seen = keys.tobytes() + b"".join(octets.tobytes() for octets in sealed.values())
    hidden = [secret, *(p.state()[name].tobytes() for p in parties for name in ("contribution", "private"))]
    assert all(part not in seen for part in hidden)
    # One contribution sealed for two silos looks different, and its own place is empty.
    pieces = sealed[0].reshape(3, SEALED)
    assert not pieces[0].any() and (pieces[1] != pieces[2]).any()


def test_a_step_may_be_repeated_and_a_process_may_end_between_messages():
    first, second = Agreement(2, 0), Agreement(2, 1)
    keys = roster({0: first.public, 1: second.public}, 2)
    state = first.state()
    assert all(array.dtype == np.uint8 and array.ndim == 1 for array in state.values())
    revived = Agreement.from_state({name: array.copy() for name, array in state.items()})
    assert np.array_equal(revived.contribute(keys), first.contribute(keys))
    delivered = relay({0: first.contribute(keys), 1: second.contribute(keys)}, 2)
    assert first.members == (0, 1) and Agreement(2, 0).members == ()
    assert Agreement.from_state(first.state()).secret(delivered[0]) == second.secret(delivered[1])


def test_a_server_that_swaps_keys_learns_all_and_fingerprints_tell():
    """The attack of the docstring, carried out: the server sits between silo 0 and silo 1."""
    victims = [Agreement(2, n) for n in range(2)]
    fakes = [Agreement(2, 1 - n) for n in range(2)]  # fakes[n] poses as the other one towards victim n
    rosters = [roster({n: victims[n].public, 1 - n: fakes[n].public}, 2) for n in range(2)]
    sealed = [victims[n].contribute(rosters[n]) for n in range(2)]
    # It passes on what the victims drew themselves, so that the contributions are the same on both sides.
    fakes = [
        Agreement.from_state(fakes[n].state() | {"contribution": victims[1 - n].state()["contribution"]})
        for n in range(2)
    ]
    forged = [fakes[n].contribute(rosters[n]) for n in range(2)]
    known = [fakes[n].secret(relay({n: sealed[n]}, 2)[1 - n]) for n in range(2)]
    secrets_ = [victims[n].secret(relay({1 - n: forged[n]}, 2)[n]) for n in range(2)]
    assert known == secrets_, "the server has both secrets: this is what is not prevented"
    assert secrets_[0] != secrets_[1]
    assert fingerprint(secrets_[0]) != fingerprint(secrets_[1])


def test_a_server_in_the_place_of_a_silo_that_is_gone_shows_among_the_members():
    silos = [Agreement(3, n) for n in range(2)]
    server = Agreement(3, 2)
    keys = roster({0: silos[0].public, 1: silos[1].public, 2: server.public}, 3)
    delivered = relay({n: p.contribute(keys) for n, p in enumerate([*silos, server])}, 3)
    found = [p.secret(delivered[n]) for n, p in enumerate([*silos, server])]
    assert len(set(found)) == 1  # fingerprints alone do not tell
    assert silos[0].members == (0, 1, 2)  # the third must be asked


def test_what_a_silo_sealed_for_another_is_refused_when_it_comes_back():
    """Each direction of a pair has a key of its own: one key for both would have one nonce for two texts."""
    silos = [Agreement(2, n) for n in range(2)]
    keys = roster({n: p.public for n, p in enumerate(silos)}, 2)
    sealed = {n: p.contribute(keys) for n, p in enumerate(silos)}
    returned = np.concatenate([np.zeros(SEALED, np.uint8), sealed[0].reshape(2, SEALED)[1]])
    with pytest.raises(SecureSumError):
        silos[0].secret(returned)


def test_what_is_changed_on_the_way_is_refused():
    silos = [Agreement(3, n) for n in range(3)]
    keys = roster({n: p.public for n, p in enumerate(silos)}, 3)
    stranger = np.frombuffer(X25519PrivateKey.generate().public_key().public_bytes_raw(), np.uint8)
    swapped = keys.copy()
    swapped[:32] = stranger
    with pytest.raises(SecureSumError, match="another key in this silo's place"):
        silos[0].contribute(swapped)
    twice = keys.copy()
    twice[32:64] = keys[64:]
    with pytest.raises(SecureSumError, match="listed twice"):
        silos[0].contribute(twice)
    alone = np.zeros(96, np.uint8)
    alone[:32] = keys[:32]
    with pytest.raises(SecureSumError, match="no other silo"):
        silos[0].contribute(alone)
    with pytest.raises(SecureSumError, match="96 bytes, got 64"):
        silos[0].contribute(keys[:64])
    with pytest.raises(SecureSumError, match="before a roster"):
        silos[0].secret(np.zeros(3 * SEALED, np.uint8))
    sealed = {n: p.contribute(keys) for n, p in enumerate(silos)}
    other = keys.copy()
    other[32:64] = stranger
    with pytest.raises(SecureSumError, match="two different rosters"):
        silos[0].contribute(other)
    delivered = relay(sealed, 3)[0].copy()
    for place in (SEALED, 2 * SEALED - 1):
        broken = delivered.copy()
        broken[place] ^= 1
        with pytest.raises(SecureSumError, match="from silo 1"):
            silos[0].secret(broken)
    crossed = delivered.reshape(3, SEALED)[[0, 2, 1]].ravel()
    with pytest.raises(SecureSumError, match="from silo 1"):
        silos[0].secret(crossed)
    with pytest.raises(SecureSumError, match="no other silo contributed"):
        silos[0].secret(np.zeros(3 * SEALED, np.uint8))
    with pytest.raises(SecureSumError, match="144 bytes"):
        silos[0].secret(delivered[:100])


def test_who_was_shown_another_roster_cannot_be_read():
    silos = [Agreement(3, n) for n in range(3)]
    keys = roster({n: p.public for n, p in enumerate(silos)}, 3)
    fewer = keys.copy()
    fewer[64:] = 0
    sealed = {0: silos[0].contribute(keys), 1: silos[1].contribute(fewer)}
    with pytest.raises(SecureSumError, match="from silo 1"):
        silos[0].secret(relay(sealed, 3)[0])
    with pytest.raises(SecureSumError, match="not on the roster"):
        silos[1].secret(np.ones(3 * SEALED, np.uint8) * (np.arange(3 * SEALED) >= 2 * SEALED))


def test_a_fingerprint_is_short_and_is_that_of_one_secret():
    found = {fingerprint(bytes([number]) * 32) for number in range(4)}
    assert len(found) == 4 and fingerprint(bytes(32)) in found
    assert all(re.fullmatch(r"([a-z2-7]{4}-){4}[a-z2-7]{4}", text) for text in found)


def test_numbers_out_of_range_and_damaged_states_are_refused():
    with pytest.raises(ConfigError, match=r"2\.\.255"):
        Agreement(1, 0)
    with pytest.raises(ConfigError, match=r"0\.\.1"):
        Agreement(2, 2)
    state = Agreement(2, 0).state()
    with pytest.raises(SecureSumError, match="lacks 'private'"):
        Agreement.from_state({name: array for name, array in state.items() if name != "private"})
    with pytest.raises(SecureSumError, match="damaged"):
        Agreement.from_state(state | {"private": state["private"][:31]})
    with pytest.raises(SecureSumError, match="damaged"):
        Agreement.from_state(state | {"keys": np.ones(3, np.uint8)})
