"""A secure sum against the plain sum, and against everything that must be refused.

Keys and masks come from the operating system, so that no run is like another: what is tested by chance is tested at a
level that a correct sum misses once in 10⁹ runs.
"""

import hashlib
import hmac
import secrets
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from secure_sums import Session, plain_sum, secure_sum, words

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.privacy.secure_sum import crypto
from fedrank.privacy.secure_sum.messages import Terms, message_sizes
from fedrank.privacy.secure_sum.party import Party, pair_mask, rows, to_array, to_bytes
from fedrank.privacy.secure_sum.server import Server, circulant

CHANCE = 1e-9


def test_the_sum_is_the_plain_sum():
    for parties, threshold, neighbours in [
        (2, 2, None),
        (3, 2, None),
        (7, 4, None),
        (7, 7, None),
        (9, 3, 4),
        (9, 5, 6),
    ]:
        vectors = words(parties, 17)
        outcome = secure_sum(vectors, threshold, neighbours=neighbours)
        assert outcome.total.dtype == np.uint32
        assert outcome.total.tolist() == plain_sum(vectors, range(parties))
        assert outcome.survivors == tuple(range(parties))


def test_who_drops_out_before_masking_is_left_out_and_nobody_else():
    for before_sharing, before_masking, after_masking in [
        ((6,), (), ()),
        ((), (0,), ()),
        ((), (), (3,)),
        ((), (2, 5, 6), ()),
        ((), (), (1, 4, 6)),
        ((0,), (3,), (5,)),
        ((2, 3), (), (0,)),
    ]:
        vectors = words(7, 5)
        outcome = secure_sum(
            vectors,
            4,
            dropped_before_sharing=before_sharing,
            dropped_before_masking=before_masking,
            dropped_after_masking=after_masking,
        )
        survivors = [i for i in range(7) if i not in (*before_sharing, *before_masking)]
        assert outcome.survivors == tuple(survivors)
        assert outcome.total.tolist() == plain_sum(vectors, survivors)


def test_drop_outs_in_a_sparse_graph():
    vectors = words(14, 3)
    for _ in range(5):  # who is whose neighbour is drawn anew
        outcome = secure_sum(
            vectors, 4, neighbours=6, dropped_before_sharing=[1], dropped_before_masking=[8], dropped_after_masking=[13]
        )
        assert outcome.total.tolist() == plain_sum(vectors, outcome.survivors)
        assert outcome.survivors == (0, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)


def test_bytes_are_those_of_the_messages():
    k, d = 6, 11
    outcome = secure_sum(
        words(9, d),
        4,
        neighbours=k,
        dropped_before_sharing=[0],
        dropped_before_masking=[4],
        dropped_after_masking=[8],
    )
    # One byte a header, 16 a session, 4 a party's number, 32 a key or share, 64 + 16 two sealed shares, 1 a mark.
    up = [1 + 16 + 4 + 64, 1 + 16 + 4 + 32 + 80 * k, 1 + 16 + 4 + 4 * d, 1 + 16 + 4 + 32 + 32 * k]
    down = [1 + 16, 1 + 16 + (4 + 64) * k, 1 + 16 + (1 + 80) * k, 1 + 16 + k]
    steps = {0: 1, 4: 2, 8: 3}
    assert outcome.bytes_up.tolist() == [sum(up[: steps.get(i, 4)]) for i in range(9)]
    # Whoever drops out was still sent what it no longer answered, but for what comes after a silence.
    assert outcome.bytes_down.tolist() == [sum(down[: steps.get(i, 4)]) for i in range(9)]
    layouts = message_sizes(d, k)
    assert [step.reply.nbytes for step in layouts] == up and [step.request.nbytes for step in layouts] == down
    kinds = [layout.kind for step in layouts for layout in (step.request, step.reply)]
    assert len(set(kinds)) == 8


def test_masked_vectors_look_random():
    terms = Terms(20_000, 2, 2)
    server, parties = Server(terms), [Party(terms, i) for i in range(3)]
    rosters = server.rosters([p.advertise(server.invitation()) for p in parties])
    deliveries = server.deliveries([p.share(rosters[p.number]) for p in parties])
    vectors = np.stack([np.zeros(20_000), np.arange(20_000), np.full(20_000, 7)]).astype(np.uint32)
    masked = [p.mask(deliveries[p.number], vectors[p.number]).vector for p in parties]
    for vector in masked:
        counts = np.bincount(vector.astype("<u4").view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > CHANCE
    # Neither with what it hides nor with each other; ± 6 standard deviations.
    for a, b in ((masked[1], vectors[1]), (masked[0], masked[1]), (masked[1], masked[2])):
        assert abs(np.corrcoef(a.astype(float), b.astype(float))[0, 1]) < 6 / 20_000**0.5
    # Only all of them together lose their pairwise masks, and even then self masks are left.
    assert (sum(masked) != vectors.sum(axis=0, dtype=np.uint32)).mean() > 0.99


def test_a_late_vector_stays_hidden_by_its_self_mask():
    """The case that the second mask is for: a party counted as dropped out, whose vector comes after all."""
    session = Session(until="replies", absent=[2])
    late, others = session.parties[2], [0, 1, 3, 4]
    # Neighbours of i in order: party 2 stands at index 1 for parties below it, at index 2 for those above.
    shares = {i + 1: rows(session.replies[j].shares, 32)[1 if i < 2 else 2] for j, i in enumerate(others)}
    key = crypto.combine_shares(shares, 3)
    assert crypto.public_key(key) == to_bytes(session.keys[2].mask_key)  # the server does know its pairwise masks
    stripped = session.masked[2].vector
    for i in others:
        pair = pair_mask(key, to_bytes(session.keys[i].mask_key), late._session, 3)
        stripped = stripped + pair if i < 2 else stripped - pair
    assert not (stripped == session.vectors[2]).any()
    self_mask = crypto.mask(crypto.derive(late._seed, late._session, "self mask"), 3)
    assert (stripped - self_mask).tolist() == session.vectors[2].tolist()  # and nothing but the self mask hides it
    assert session.server.total(session.replies).tolist() == plain_sum(session.vectors, others)


def test_a_party_gives_one_share_of_each_and_answers_once():
    session = Session(until="requests", absent=[1])
    party, request = session.parties[0], session.requests[0]
    reply = party.unmask(request)
    given = rows(reply.shares, 32)
    for i, share in zip([1, 2, 3, 4], given, strict=True):
        key_share, seed_share = party._held[i]
        assert key_share != seed_share
        assert share == (key_share if i == 1 else seed_share)
    # The other share of each: what would let the server see a vector by itself.
    with pytest.raises(SecureSumError, match="party 0 refuses: asked to unmask out of order or a second time"):
        party.unmask(replace(request, survived=1 - request.survived))
    with pytest.raises(SecureSumError, match="second time"):
        party.unmask(request)


def test_a_server_that_lies_about_a_drop_out_gets_too_few_shares_of_one_secret():
    session = Session(parties=5, threshold=3, until="requests")
    key_shares, seed_shares = {}, {}
    for i in (0, 1, 3, 4):
        at = 1 if i < 2 else 2
        lie = np.ones(4, np.uint8)
        lie[at] = i > 1  # parties 0 and 1 hear that party 2 dropped out, parties 3 and 4 that it survived
        share = rows(session.parties[i].unmask(replace(session.requests[i], survived=lie)).shares, 32)[at]
        (seed_shares if i > 1 else key_shares)[i + 1] = share
    seed_shares[3] = to_bytes(session.parties[2].unmask(session.requests[2]).own)
    seed = crypto.combine_shares(seed_shares, 3)
    assert seed == session.parties[2]._seed
    with pytest.raises(SecureSumError, match="2 shares of a secret are there, 3 are needed"):
        crypto.combine_shares(key_shares, 3)
    # Which is why a threshold of half the holders or less does not exist.
    for threshold in (0, 1, 2, 6):
        with pytest.raises(ConfigError, match=r"must be in 3\.\.5"):
            Terms(3, 4, threshold)


def test_fewer_shares_than_the_threshold_are_not_the_secret():
    secret = bytes(range(32))
    shares = {i + 1: share for i, share in enumerate(crypto.split_secret(secret, 4, 6))}
    for chosen in ((1, 2, 3, 4), (3, 4, 5, 6), (6, 1, 4, 2)):
        assert crypto.combine_shares({i: shares[i] for i in chosen}, 4) == secret
    three = {i: shares[i] for i in (1, 3, 5)}
    with pytest.raises(SecureSumError, match="3 shares"):
        crypto.combine_shares(three, 4)
    assert crypto.combine_shares(three, 3) != secret
    again = crypto.split_secret(secret, 4, 6)
    assert shares != {i + 1: share for i, share in enumerate(again)}  # no two sharings are alike


def test_shares_of_pycryptodome_make_their_secret():
    """Shares of 2, 4, 5 and 6 that version 3.24.1 of the library made of the bytes 0 to 31, four of six needed."""
    shares = {
        2: "c06b7483ea3f78570cab72e90bd18a5699f1ed3fea0bfc92795d4ea9b177bcd1",
        4: "0649f91f8bfc7a0bee88fe1161e8e9b91c6fc0680e0aeafef817a3fc2cbd8d2b",
        5: "04bf1e182edef0e176e0ef932435fe672735b315b3d3f9705320df035300aa69",
        6: "e607b5df88fd631d3f0d60a93927803c1c05bdca10344e5fe8ef49f53eb6839a",
    }
    found = crypto.combine_shares({holder: bytes.fromhex(share) for holder, share in shares.items()}, 4)
    assert found == bytes(range(32))


def test_sharing_is_a_polynomial_over_the_field():
    """Products against long division of polynomials over GF(2); shares lie on a line through the secret."""

    def times(a, b):
        product = 0
        for bit in range(b.bit_length()):
            product ^= (a << bit) * (b >> bit & 1)
        for bit in range(255, 127, -1):
            product ^= ((1 << 128 | 0x87) << bit - 128) * (product >> bit & 1)
        return product

    words = [int.from_bytes(secrets.token_bytes(16), "big") for _ in range(8)]
    for word in (1, 2, 1 << 127, (1 << 128) - 1, *words):
        assert times(word, crypto._inverse(word)) == 1
        assert [crypto._times(word, other) for other in words] == [times(word, other) for other in words]
    secret = secrets.token_bytes(32)
    shares = crypto.split_secret(secret, 2, 3)
    for half in (slice(0, 16), slice(16, 32)):
        constant, one, two, three = (int.from_bytes(each[half], "big") for each in (secret, *shares))
        assert (two, three) == (times(one ^ constant, 2) ^ constant, times(one ^ constant, 3) ^ constant)


def test_changed_moved_and_foreign_shares_are_refused():
    def refused(change):
        session = Session(until="deliveries")
        delivery = session.deliveries[0]
        pieces = rows(delivery.sealed, 80)
        change(pieces, session)
        forged = replace(delivery, sealed=to_array(b"".join(pieces)))
        with pytest.raises(SecureSumError, match="party 0 refuses: from party 2: sealed shares were changed"):
            session.parties[0].mask(forged, session.vectors[0])
        with pytest.raises(SecureSumError, match="out of order"):  # it takes no further part
            session.parties[0].mask(delivery, session.vectors[0])

    def flip(pieces, session):
        pieces[1] = bytes([pieces[1][0] ^ 1]) + pieces[1][1:]

    def from_another_sender(pieces, session):
        pieces[1] = pieces[2]

    def for_another_receiver(pieces, session):
        pieces[1] = rows(session.sealed[2].sealed, 80)[1]

    def from_another_session(pieces, session):
        pieces[1] = rows(Session(until="deliveries").deliveries[0].sealed, 80)[1]

    for change in (flip, from_another_sender, for_another_receiver, from_another_session):
        refused(change)


def test_the_same_keys_seal_nothing_for_another_session():
    """Sealing is bound to the session's name, not only to the keys."""
    key, text = bytes(range(32)), bytes(64)
    sealed = crypto.seal(key, text, b"one session")
    assert crypto.unseal(key, sealed, b"one session") == text
    with pytest.raises(SecureSumError):
        crypto.unseal(key, sealed, b"another")


def test_false_shares_at_the_end_stop_the_sum():
    for absent, says in (((), "a share of the seed of party 0 is false"), ((0,), "mask key of party 0 is false")):
        session = Session(until="replies", absent=absent)
        shares = bytearray(to_bytes(session.replies[-1].shares))
        shares[5] ^= 1  # party 4's share of party 0's secret; some bits of byte 0 mean nothing in a key
        forged = replace(session.replies[-1], shares=to_array(bytes(shares)))
        # It is among those used: party 4 and two others.
        with pytest.raises(SecureSumError, match=says):
            session.server.total([forged, *session.replies[1:-1]])


def test_messages_of_other_sessions_strangers_and_repetitions_are_refused():
    session, other = Session(until="replies"), Session(until="replies")
    steps = (
        ("rosters", session.keys, other.keys),
        ("deliveries", session.sealed, other.sealed),
        ("unmask_requests", session.masked, other.masked),
        ("total", session.replies, other.replies),
    )
    for name, mine, theirs in steps:
        step = getattr(session.server, name)
        with pytest.raises(SecureSumError, match="of party 1 belongs to another session"):
            step([mine[0], theirs[1], *mine[2:]])
        with pytest.raises(SecureSumError, match=f"two {type(mine[0]).__name__} messages came from party 1"):
            step([*mine, mine[1]])
        if name != "rosters":
            with pytest.raises(SecureSumError, match="came from party 9, which is not or no longer in this sum"):
                step([*mine, replace(mine[1], party=np.uint32(9))])


def test_a_party_answers_in_its_own_session_only():
    for step in ["share", "mask", "unmask"]:
        until = {"share": "rosters", "mask": "deliveries", "unmask": "requests"}[step]
        session = Session(until=until)
        name = {"share": "rosters", "mask": "deliveries", "unmask": "requests"}[step]
        message = replace(getattr(session, name)[0], session=Session(until="rosters").server.invitation().session)
        extra = (session.vectors[0],) if step == "mask" else ()
        with pytest.raises(SecureSumError, match=f"party 0 refuses: asked to {step} in another session"):
            getattr(session.parties[0], step)(message, *extra)


def test_steps_come_in_order_and_once():
    session = Session(until="rosters")
    party = session.parties[0]
    with pytest.raises(SecureSumError, match="asked to advertise out of order or a second time"):
        party.advertise(session.server.invitation())
    fresh = Party(Terms(3, 4, 3), 0)
    with pytest.raises(SecureSumError, match="asked to share out of order"):
        fresh.share(session.rosters[0])


def test_rosters_with_repeated_keys_or_parties_are_refused():
    cases = {
        "seal_keys": "a public key is listed twice",
        "mask_keys": "a public key is listed twice",
        "parties": "must list 4 other parties, each once",
    }
    for name, says in cases.items():
        session = Session(until="rosters")
        wrong = np.array(getattr(session.rosters[0], name))
        wrong[0] = wrong[1]
        with pytest.raises(SecureSumError, match=says):
            session.parties[0].share(replace(session.rosters[0], **{name: wrong}))
    session = Session(until="rosters")  # its own key, handed back as somebody else's
    stolen = np.stack([session.keys[0].mask_key, *session.rosters[0].mask_keys[1:]])
    with pytest.raises(SecureSumError, match="listed twice"):
        session.parties[0].share(replace(session.rosters[0], mask_keys=stolen))


def test_a_key_that_agrees_with_everybody_on_the_same_secret_is_refused():
    with pytest.raises(SecureSumError, match="not one that X25519 can agree with"):
        crypto.agree(bytes(range(32)), bytes(32))


def test_too_few_survivors_stop_the_sum_at_each_stage():
    vectors = words(5, 2)
    with pytest.raises(SecureSumError, match=r"2 parties sent shares, 3 are needed.*No party's vector was unmasked"):
        secure_sum(vectors, 3, dropped_before_sharing=[0, 1, 2])
    with pytest.raises(SecureSumError, match="2 parties sent a vector, 3 are needed"):
        secure_sum(vectors, 3, dropped_before_masking=[0, 1, 2])
    with pytest.raises(SecureSumError, match="2 parties sent shares to unmask with, 3 are needed"):
        secure_sum(vectors, 3, dropped_after_masking=[0, 1, 2])
    for stage in ("dropped_before_sharing", "dropped_before_masking", "dropped_after_masking"):
        with pytest.raises(SecureSumError, match="0 parties"):
            secure_sum(vectors, 3, **{stage: range(5)})


def test_a_neighbourhood_can_be_too_small_although_the_cohort_is_not():
    terms = Terms(2, 2, 3)  # nobody may drop out of a neighbourhood of three
    with pytest.raises(SecureSumError, match=r"of party . and its 2 neighbours 2 sent a vector, 3 are needed"):
        secure_sum(words(8, 2), terms.threshold, neighbours=2, dropped_before_masking=[5])


def test_a_party_does_not_unmask_for_too_few():
    session = Session(until="requests")
    few = replace(session.requests[0], survived=np.array([1, 0, 0, 0], np.uint8))
    with pytest.raises(SecureSumError, match="2 of this party and its 4 neighbours survived, 3 are needed"):
        session.parties[0].unmask(few)
    session = Session(until="deliveries")
    few = replace(session.deliveries[0], present=np.array([0, 0, 1, 0], np.uint8))
    with pytest.raises(SecureSumError, match="2 of this party and its 4 neighbours sent shares, 3 are needed"):
        session.parties[0].mask(few, session.vectors[0])


def test_nobody_survives_without_having_shared():
    session = Session(until="rosters")
    sealed = [session.parties[i].share(session.rosters[i]) for i in range(4)]
    deliveries = session.server.deliveries(sealed)
    masked = [session.parties[i].mask(deliveries[i], session.vectors[i]) for i in range(4)]
    request = session.server.unmask_requests(masked)[0]
    with pytest.raises(SecureSumError, match=r"\[4\] survived, who were gone before vectors were sent"):
        session.parties[0].unmask(replace(request, survived=np.ones(4, np.uint8)))


def test_a_sum_of_one_is_refused():
    with pytest.raises(ConfigError, match="the sum over one party is that party's vector"):
        secure_sum(words(1, 3), 1)


def test_vectors_of_another_form_are_refused():
    with pytest.raises(ConfigError, match=r"must be uint32 \[2\], got int64 \[2\]"):
        secure_sum(np.ones((2, 2), np.int64), 2)
    session = Session(until="deliveries")
    with pytest.raises(ConfigError, match=r"must be uint32 \[3\], got uint32 \[4\]"):
        session.parties[0].mask(session.deliveries[0], words(1, 4)[0])


def test_the_graph_of_neighbours_is_a_ring():
    assert circulant([0, 1, 2, 3, 4, 5], 2) == {0: (1, 5), 1: (0, 2), 2: (1, 3), 3: (2, 4), 4: (3, 5), 5: (0, 4)}
    assert circulant([7, 3, 9, 1, 4], 2)[9] == (1, 3)
    for order, k in ((list(range(10)), 4), ([5, 0, 3, 1, 4, 2], 5), (list(range(7)), 6)):
        graph = circulant(order, k)
        assert all(len(set(others)) == k and party not in others for party, others in graph.items())
        assert all(party in graph[other] for party, others in graph.items() for other in others)
    for k in (0, 3, 6, 7):
        with pytest.raises(ConfigError, match="neighbours of a secure sum over 6 parties"):
            circulant(list(range(6)), k)


def test_the_ring_is_drawn_anew_for_every_sum():
    graphs = [Session(parties=12, threshold=2, neighbours=2, until="rosters").server.graph for _ in range(4)]
    assert any(graph != graphs[0] for graph in graphs[1:])  # equal by chance once in 10²²


def test_masks_are_the_published_stream():
    """RFC 8439, Appendix A.1, test vector 1: the key stream of ChaCha20 for a key and a nonce of zeros."""
    stream = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert crypto.mask(bytes(32), 8).tolist() == np.frombuffer(stream, "<u4").tolist()


def test_keys_are_derived_by_the_published_rule():
    """RFC 5869: extract with the salt, expand with the purpose."""
    secret, session = bytes(range(32)), bytes(range(16))
    extracted = hmac.new(session, secret, hashlib.sha256).digest()
    expanded = hmac.new(extracted, b"fedrank secure sum 1 seal\0ab\x01", hashlib.sha256).digest()
    assert crypto.derive(secret, session, "seal", b"a", b"b") == expanded
    assert crypto.derive(secret, session, "commitment") != crypto.derive(secret, session, "self mask")


def test_both_of_a_pair_make_the_same_mask():
    session = Session(until="rosters")
    one, two = session.parties[:2]
    keys = [to_bytes(message.mask_key) for message in session.keys]
    a = pair_mask(one._mask_key, keys[1], one._session, 5)
    assert a.tolist() == pair_mask(two._mask_key, keys[0], one._session, 5).tolist()
    assert a.tolist() != pair_mask(one._mask_key, keys[2], one._session, 5).tolist()
    assert a.tolist() != pair_mask(one._mask_key, keys[1], bytes(16), 5).tolist()
