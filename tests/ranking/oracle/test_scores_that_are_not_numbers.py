"""Scores that are not numbers rank last in the compiled kernel, as in the reference."""

import jax
import jax.numpy as jnp
import numpy as np
from worlds import tiny_parties, tiny_protocol

from fedrank.core.protocol import Party
from fedrank.ranking.sessions.kernel import fill_top

NAN = np.float32(np.nan)


def top_of(scores, depth):
    top, score, tie = np.empty(depth, np.int32), np.empty(depth, np.float32), np.empty(depth, np.uint32)
    shown = fill_top(np.asarray(scores, np.float32), len(scores), np.uint32(0), False, top, score, tie)
    return top[:shown].tolist()


def test_the_top_ranks_of_a_list_with_scores_that_are_not_numbers():
    assert top_of([NAN, 1.0, NAN, 2.0], 4) == [3, 1, 0, 2]
    assert top_of([NAN, 1.0, 0.5, 2.0], 2) == [3, 1]
    assert top_of([NAN, NAN, -np.inf], 3) == [0, 1, 2]  # all of them last: in the order of the data


def test_a_session_with_such_scores_is_that_of_the_reference():
    """Infinite weights of both signs: most scores are ∞ − ∞."""
    replies = []
    for kernels in (True, False):
        protocol = tiny_protocol(kernels=kernels)
        (exchange,) = protocol.exchanges
        parties = tiny_parties(protocol, 6)
        request = exchange.ask(protocol.init(jax.random.key(0)))
        weights = jnp.array([jnp.inf, -jnp.inf, 1.0, 0.0, 0.0], jnp.float32)
        request = type(request)(request.round, weights)
        keys = jax.random.split(jax.random.key(1), 6)
        answer = jax.jit(jax.vmap(lambda own, key: exchange.answer(request, Party(parties.shared, own), key)[1]))  # noqa: B023
        replies.append(answer(parties.own, keys))
    for name in ("seed", "plus", "minus"):
        np.testing.assert_array_equal(getattr(replies[0], name), getattr(replies[1], name))
