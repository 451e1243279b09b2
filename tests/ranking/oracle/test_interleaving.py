"""Team drafting against brute force over all tosses, and its promise: random clicks favour neither ranker."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.metrics.online import REWARDS
from fedrank.ranking.on_device import BOTH, MINUS, PLUS, credit_clicks, draft
from fedrank.ranking.sessions.kernel import fill_draft
from fedrank.ranking.sessions.reference import draft_lists

LISTS = [
    (a, b) for n in (1, 2, 3, 4) for a in [tuple(range(n))] for b in itertools.permutations(range(n))
] + [((4, 0, 3, 1, 2, 5), (1, 0, 5, 4, 2, 3))]  # fmt: skip


def by_hand(first, second, tosses):
    """The same in other words: a pair of turns at a time, until one list is used up."""
    order, team, bit = [], [], 0
    while left := [d for d in first if d not in order]:
        other = [d for d in second if d not in order]
        if left[0] == other[0]:
            order, team, bit = [*order, left[0]], [*team, BOTH], bit + 1
            continue
        pair = [(left[0], PLUS), (other[0], MINUS)]
        for document, whose in pair if tosses[bit] else pair[::-1]:
            order, team = [*order, document], [*team, whose]
        bit += 2
    return order, team


in_jax = jax.jit(jax.vmap(draft_lists, in_axes=(None, None, None, 0)), static_argnums=2)


def test_lists_and_teams_of_all_tosses():
    for first, second in LISTS:
        n = len(first)
        orders, teams = in_jax(jnp.array(first), jnp.array(second), n, jnp.arange(2**n, dtype=jnp.uint32))
        for tosses in itertools.product((0, 1), repeat=n):
            word = sum(bit << i for i, bit in enumerate(tosses))
            expected = by_hand(first, second, tosses)
            assert tuple(a.tolist() for a in draft(np.array(first), np.array(second), n, word)) == expected
            assert (orders[word].tolist(), teams[word].tolist()) == expected
            top, team = np.empty(n, np.int32), np.empty(n, np.int32)
            fill_draft(np.array(first, np.int32), np.array(second, np.int32), n, np.uint32(word), top, team)
            assert (top.tolist(), team.tolist()) == expected


def test_clicks_that_do_not_depend_on_documents_favour_nobody():
    """Exactly: over all tosses and all clicks, whatever the probability of a click at each rank."""
    for first, second in LISTS:
        n = len(first)
        metrics = [REWARDS.get(reward)(n) for reward in ["MaxRR", "DCG", "MeanRR"]]
        for depth in range(1, n + 1):  # also where the list ends within a pair
            teams = [draft(np.array(first), np.array(second), depth, word)[1] for word in range(2**depth)]
            for pattern in range(2**depth):
                credits = [credit_clicks(pattern, team) for team in teams]
                for metric in metrics:
                    values = [[int(metric.numerators[metric.index[one]]) for one in pair] for pair in credits]
                    assert sum(plus - minus for plus, minus in values) == 0


def test_what_is_below_the_drafted_ranks_follows_the_first_ranker():
    order, team = draft(np.array([3, 1, 0, 2, 4]), np.array([4, 2, 0, 1, 3]), 2, 0)
    assert (order.tolist(), team.tolist()) == ([4, 3, 1, 0, 2], [-1, 1, 0, 0, 0])
    assert credit_clicks(0b00111, team) == (0b00110, 0b00101)
