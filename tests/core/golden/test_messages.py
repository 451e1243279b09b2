"""The wire form, byte by byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import tiny_protocol

from fedrank.core.errors import ConfigError, WireError
from fedrank.ranking.on_device import PlainReply, Reply, Request

TRY = tiny_protocol().exchanges[0]
PLAIN = tiny_protocol(antithetic=False).exchanges[0]


def test_an_antithetic_reply_is_nine_bytes():
    # version 1 in the upper three bits, kind 2 below: 0x22; then the seed and the two sums, least byte first.
    message = Reply(np.uint32(0x01020304), np.int32(5040), np.int32(252))
    assert TRY.reply.encode(message).hex(" ") == "22 04 03 02 01 b0 13 fc 00"
    assert TRY.reply.nbytes == 9


def test_a_plain_reply_is_seven_bytes():
    assert PLAIN.reply.encode(PlainReply(np.uint32(7), np.int32(2520))).hex(" ") == "23 07 00 00 00 d8 09"


def test_a_request_is_round_and_weights():
    message = Request(np.uint32(258), np.array([0, 1, -2, 0.5, 0], np.float32))
    expected = "21 02 01 00 00" + " 00 00 00 00" + " 00 00 80 3f" + " 00 00 00 c0" + " 00 00 00 3f" + " 00 00 00 00"
    assert TRY.request.encode(message).hex(" ") == expected


def test_no_reply_exceeds_twelve_bytes():
    for interactions, each in [(4, 2), (52, 26), (54, 27), (2048, 1024)]:
        layout = tiny_protocol(interactions=interactions).exchanges[0].reply
        # MaxRR's largest value is 2520 units: 26 of them fit into 16 bits, 27 do not.
        assert layout.nbytes == (9 if each * 2520 < 65536 else 11) <= 12


def test_a_sum_that_may_not_fit_is_refused_beforehand():
    with pytest.raises(ConfigError, match="24 bits"):
        tiny_protocol(interactions=2 * 6658)  # 6658 · 2520 ≥ 2²⁴


@given(st.integers(0, 2**32 - 1), st.integers(0, 5040), st.integers(0, 5040))
def test_decode_inverts_encode(seed, plus, minus):
    data = TRY.reply.encode(Reply(np.uint32(seed), np.uint32(plus), np.uint32(minus)))
    back = TRY.reply.decode(data)
    assert (int(back.seed), int(back.plus), int(back.minus)) == (seed, plus, minus)


@given(st.binary(max_size=20))
def test_any_bytes_decode_or_raise_a_wire_error(data):
    try:
        message = TRY.reply.decode(data)
    except WireError:
        return
    assert TRY.reply.encode(message) == data


def test_what_is_wrong_with_bytes_is_said():
    for data, says in [
        ("22 04 03 02 01 b0 13 fc", "9 bytes, got 8"),
        ("42 04 03 02 01 b0 13 fc 00", "version 2"),
        ("23 04 03 02 01 b0 13 fc 00", "kind 3"),
        ("22 04 03 02 01 b1 13 fc 00", r"plus must be in 0..5040, got 5041"),  # two values of at most 2520 units
    ]:
        with pytest.raises(WireError, match=says):
            TRY.reply.decode(bytes.fromhex(data))


def test_weights_that_are_not_finite_are_refused():
    good = TRY.request.encode(Request(np.uint32(0), np.zeros(5, np.float32)))
    with pytest.raises(WireError):
        TRY.request.decode(good[:5] + b"\x00\x00\xc0\x7f" + good[9:])
    with pytest.raises(WireError):
        TRY.request.encode(Request(np.uint32(0), np.full(5, np.inf, np.float32)))


@pytest.mark.parametrize(
    "message", [Reply(np.uint32(0), np.int32(5041), np.int32(0)), Reply(np.uint32(0), np.int32(-1), np.int32(0))]
)
def test_a_number_that_does_not_fit_is_refused(message):
    with pytest.raises(WireError, match="plus"):
        TRY.reply.encode(message)


def test_many_messages_are_their_bytes_one_after_the_other():
    layout = TRY.reply
    one_by_one = [
        layout.message(seed=np.uint32(seed), plus=np.int32(plus), minus=np.int32(minus))
        for seed, plus, minus in ((0, 0, 5040), (2**32 - 1, 2520, 0), (7, 1, 2))
    ]
    data = b"".join(map(layout.encode, one_by_one))
    together = layout.decode_all(data)
    for name in ("seed", "plus", "minus"):
        np.testing.assert_array_equal(getattr(together, name), [getattr(one, name) for one in one_by_one])
        assert getattr(together, name).dtype == getattr(one_by_one[0], name).dtype
    assert layout.encode_all(together, (3,)) == data
    assert layout.decode_all(b"").seed.shape == (0,)
    weights = TRY.request
    two = weights.message(round=np.uint32([1, 2]), weights=np.arange(2 * TRY.request.fields[1].shape[0]).reshape(2, -1))
    again = weights.decode_all(weights.encode_all(two, (2,)))
    np.testing.assert_array_equal(again.weights, two.weights)
    assert weights.encode_all(two, (2,))[: weights.nbytes] == weights.encode(
        weights.message(two.round[0], two.weights[0])
    )


def test_one_wrong_message_among_many_is_refused():
    for spoil in [lambda d: d[:-1], lambda d: d[:9] + b"\x00" + d[10:], lambda d: d[:14] + b"\xff\xff" + d[16:]]:
        layout = TRY.reply
        good = layout.encode_all(layout.message(np.uint32([1, 2]), np.int32([3, 4]), np.int32([5, 6])), (2,))
        with pytest.raises(WireError):
            layout.decode_all(spoil(good))
