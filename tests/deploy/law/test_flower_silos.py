"""Flower where not everybody is asked everything: a simulator's model, and nothing for a silo that is not asked."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flower_nodes import Choosing, Heard, Nodes, holding
from hypothesis import given
from hypothesis import strategies as st
from silo_worlds import bandit_of

from fedrank.core.errors import RunError, WireError
from fedrank.core.protocol import Party
from fedrank.engine.deployment import block
from fedrank.engine.native import NativeSimulator
from fedrank.engine.simulator import Conditions, Simulator
from fedrank.silos.data.reader import generate_silos
from fedrank.silos.data.splits import Sizes, split_many
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank_flower import settings as flat
from fedrank_flower.messages import Question
from fedrank_flower.rounds import Holders, Rounds

SEED, SILOS, ROUNDS = 3, 4, 3


def simulated(protocol, parties, rounds, absent=()):
    """The state after the rounds, and how many requests and replies crossed, [rounds, exchanges, 2]."""
    conditions = Conditions(absent=absent)
    batched = all(exchange.batched for exchange in protocol.exchanges)
    simulator = (
        NativeSimulator(protocol, parties, 16, conditions) if batched else Simulator(protocol, conditions=conditions)
    )
    keys = simulator.keys([SEED])
    states, own = simulator.begin(keys, parties)
    first = jax.tree.map(lambda leaf: leaf[0], states)
    states, _, seen = simulator.advance(keys, states, parties.shared, own, 0, rounds)
    return first, jax.tree.map(lambda leaf: leaf[0], states), np.asarray(seen["crossed"])[:, 0]


def over_nodes(protocol, parties, blocks, first, rounds, there=None, wrong=None, **settings):
    """The same over nodes, whose numbers in the network say nothing: the state, the log, and what each was asked."""
    nodes = {90 - 7 * i: holding(protocol, parties, numbers, SEED) for i, numbers in enumerate(blocks)}
    behaviours = {**{node: behaviour for node, (behaviour, _) in nodes.items()}, **(wrong or {})}
    network, log = Nodes(behaviours, there), Heard()
    told = flat.FlowerSettings(**{"min_available_nodes": len(blocks), **settings})
    total = jax.tree.leaves(parties.own)[0].shape[0]
    state = Rounds(protocol, total, network, told, log).run(first, 0, rounds)
    return state, log, [asked for _, asked in nodes.values()], network


def counts(log, protocol, what, rounds):
    """Of each round and exchange, 0 where there was none."""
    found = {(round_, name): number for round_, name, number in getattr(log, what)}
    return [[found.get((number, e.name), 0) for e in protocol.exchanges] for number in range(rounds)]


@pytest.mark.parametrize(
    "partitions", [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow)]
)
def test_parties_that_are_not_asked_do_nothing_wherever_they_are(partitions):
    """Nodes that answer for several parties of which some are asked; states that choose nobody."""
    protocol, parties = Choosing(), Party(None, jnp.arange(7, dtype=jnp.uint32))
    first, expected, crossed = simulated(protocol, parties, 8)
    blocks = [block(7, i, partitions) for i in range(partitions)]
    state, log, _, _ = over_nodes(protocol, parties, blocks, first, 8)
    assert int(state) == int(expected)
    assert counts(log, protocol, "replies", 8) == crossed[:, :, 1].tolist()
    assert (crossed[:, 1:, 0] < 7).all() and (crossed[:, 1, 0] == 0).any(), "some are asked, in one round nobody"
    if partitions == 7:
        assert counts(log, protocol, "requests", 8) == crossed[:, :, 0].tolist()


@pytest.fixture(scope="module")
def silos():
    """Protocol and parties; of the first one what a simulator makes of them, once."""
    arrays = split_many(generate_silos(SILOS, rows=60, features=8), [SEED], Sizes(12, 20))
    sgd = LocalSgd(TabularNetwork(8, (2,), "none"), epochs=1, batch=6)  # compiles soonest

    @functools.cache
    def made(rule="ucb", absent=(), pretrain=False, **settings):
        protocol = bandit_of(sgd, SILOS, 12, rule=rule, target=1, pretrain=pretrain, **settings)
        parties = protocol.parties(arrays)
        return protocol, parties, simulated(protocol, parties, ROUNDS, absent)

    return made


def close(state, expected):
    """All of a server's state; of silos that were not heard, what they would have said does not matter."""
    silent = jnp.broadcast_to(~expected.heard[:, None], expected.locals.shape)
    state, expected = (s._replace(locals=jnp.where(silent, 0.0, s.locals)) for s in (state, expected))
    for name, got in state._asdict().items():
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(getattr(expected, name)), strict=True):
            if jnp.issubdtype(other.dtype, jax.dtypes.prng_key):
                one, other = jax.random.key_data(one), jax.random.key_data(other)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)


ONE_A_NODE = [range(i, i + 1) for i in range(SILOS)]
SLOW = [
    dict(rule="extreme-explore", delayed=True, pretrain=True),
    dict(rule="epsilon-greedy", arms="clusters", clusters=2, probe=True, pretrain=True),
]


@pytest.mark.parametrize("settings", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_four_silos_learn_what_a_simulator_learns(silos, settings):
    protocol, parties, (first, expected, crossed) = silos(**settings)
    state, log, asked, _ = over_nodes(protocol, parties, ONE_A_NODE, first, ROUNDS)
    close(state, expected)
    assert np.abs(np.asarray(expected.weights) - np.asarray(first.weights)).max() > 0.01, "something was learnt"
    assert counts(log, protocol, "requests", ROUNDS) == crossed[:, :, 0].tolist()
    assert counts(log, protocol, "replies", ROUNDS) == crossed[:, :, 1].tolist()
    # Each node said once who it is, and then got as many models as the ledger has.
    assert [[bool(q.request) for q in questions].count(False) for questions in asked] == [1] * SILOS
    assert sum(len(questions) - 1 for questions in asked) == crossed[:, :, 0].sum()
    assert not any(question.asked for questions in asked for question in questions), "nobody hears who else is asked"


def test_a_silo_that_fails_is_not_heard_and_not_waited_for(silos):
    """It trains and its reply is lost: no observation of its arms, and nothing is asked again because of it."""
    protocol, parties, (first, _, _) = silos()
    lost, honest = 90 - 7 * 3, holding(protocol, parties, range(3, 4), SEED)[0]
    nodes = {lost: lambda question: [None] if question.request else honest(question)}
    # After five rounds every arm had its turn.
    state, log, *_ = over_nodes(protocol, parties, ONE_A_NODE, first, 5, wrong=nodes, min_available_nodes=3)
    failed = [(tally.exchange, tally.attempt) for tallies in log.rounds for tally in tallies if tally.failed]
    assert set(failed) == {("train", 0)}, "it was to be asked, once a round"
    mine = np.flatnonzero(np.asarray(state.members)[:, 3])
    assert np.asarray(state.rows)[3] == 0 and not np.asarray(state.estimates.pulls)[mine].any()


@pytest.mark.slow
def test_a_silo_that_is_never_heard_is_that_of_a_simulator(silos):
    protocol, parties, (first, expected, _) = silos(absent=(False, False, False, True))
    honest = holding(protocol, parties, range(3, 4), SEED)[0]
    nodes = {90 - 7 * 3: lambda question: [None] if question.request else honest(question)}
    state, *_ = over_nodes(protocol, parties, ONE_A_NODE, first, ROUNDS, wrong=nodes, min_available_nodes=3)
    close(state, expected)


def test_without_the_target_a_question_to_it_is_asked_again_and_then_the_run_stops(silos):
    protocol, parties, (first, expected, _) = silos()
    behaviour, _ = holding(protocol, parties, range(1, 2), SEED)
    judge = (1, [exchange.name for exchange in protocol.exchanges].index("judge"))
    left = [judge] * 3

    def sick(question):
        if question.request and (question.round, question.exchange) in left:
            left.remove(judge)
            return [None]
        return behaviour(question)

    run = (protocol, parties, ONE_A_NODE, first, ROUNDS)
    with pytest.raises(RunError, match="round 1: no party answered 'judge', 2 times in a row"):
        over_nodes(*run, wrong={90 - 7: sick}, round_attempts=2)
    state, log, _, _ = over_nodes(*run, wrong={90 - 7: sick}, round_attempts=2)
    close(state, expected)
    assert [tally.attempt for tally in log.rounds[1]] == [0, 0, 1], "trained once, judged twice"


CHOOSING = (Choosing(), Party(None, jnp.arange(7, dtype=jnp.uint32)))


def test_who_is_not_there_is_waited_for_where_nobody_else_can_answer():
    """The node that holds parties 4 to 6 goes away, and comes back with another number."""
    protocol, parties = CHOOSING
    first, expected, _ = simulated(protocol, parties, 3)
    behaviour, asked = holding(protocol, parties, range(7), SEED)
    away = []

    def there(clock):
        if not asked:
            return [1]
        away.append(clock)
        return [2] if clock > 100 else []

    network = Nodes({1: behaviour, 2: behaviour}, there)
    state = Rounds(protocol, 7, network, flat.FlowerSettings(min_available_nodes=1), Heard()).run(first, 0, 3)
    assert int(state) == int(expected) and network.clock > 100
    assert [bool(question.request) for question in asked[:3]] == [False, False, True], "it says anew who it is"


def wrong_answers(behaviour):
    """An answer for parties that were not asked; one for a party of another node; a node of other columns."""

    def unasked(question):
        (record,) = behaviour(Question(question.round, question.exchange, question.request))
        return [record]

    def columns(question):
        (record,) = behaviour(question)
        return [record if question.request else {**record, "replies": b"other"}]

    return {"unasked": unasked, "columns": columns}


@pytest.mark.parametrize("what", ["unasked", "columns"])
def test_a_node_that_answers_out_of_turn_is_not_heard(what):
    """Its parties are as those that were never heard, in the exchanges in which it did wrong."""
    protocol, parties = CHOOSING
    blocks = [block(7, i, 2) for i in range(2)]
    first, _, _ = simulated(protocol, parties, 3)
    behaviour, _ = holding(protocol, parties, blocks[0], SEED)
    wrong = {90: wrong_answers(behaviour)[what]}  # the other node has a lower number and is looked at first
    _, log, *_ = over_nodes(protocol, parties, blocks, first, 3, wrong=wrong, min_available_nodes=1)
    tallies = [tally for round_ in log.rounds for tally in round_]
    assert any(tally.malformed for tally in tallies)
    heard = {tally.parties for tally in tallies if tally.exchange == "count"}
    assert heard == ({7} if what == "unasked" else {len(blocks[1])})


def test_who_came_first_keeps_its_parties_while_it_is_there():
    holders = Holders()
    assert holders.strangers([5, 1], 0.0) == [5, 1]
    assert holders.introduce(5, np.arange(0, 3)) and not holders.introduce(1, np.arange(2, 5))
    assert {node: block.tolist() for node, block in holders.of([1, 5]).items()} == {5: [0, 1, 2]}
    assert {node: block.tolist() for node, block in holders.of([1]).items()} == {1: [2, 3, 4]}
    holders.in_vain(7, 60.0)
    assert holders.strangers([1, 5, 7], 59.0) == [] and holders.strangers([7], 60.0) == [7]


@given(bits=st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_whom_a_question_is_for_and_back(bits):
    asked = np.array(bits)
    question = Question.from_record(Question(2, 1, b"?").to(asked).as_record())
    assert question.whom(len(bits)).tolist() == bits
    assert ("asked" in question.as_record()) == (not all(bits)), "to everybody as ever"
    if not all(bits):
        for other in (len(bits) + 8, max(1, len(bits) - 8 * (len(bits) // 8 or 1))):
            if -(-other // 8) != -(-len(bits) // 8):
                with pytest.raises(WireError, match="some of"):
                    question.whom(other)
