"""Exchanges that are due in some rounds and ask some parties: what the simulator does with them.

The protocol here counts. Every party is asked by its turn, says a number of its own and remembers how often it was
asked, so that a plain Python loop knows everything that must come out.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import tiny_parties, tiny_protocol

from fedrank.core.messages import Array, field, message, u4
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.engine.simulator import Conditions, Simulator, run_keys, selective

PARTIES, ROUNDS, RUNS = 7, 6, 2
EVERY = 2


@message(kind=1)
class Number:
    number: Array = field(u4, "a number")


class Tally(NamedTuple):
    round: Any
    seed: Any
    turn: Any
    opening: Any
    all: Any


class Own(NamedTuple):
    number: Any
    asked: Any


@dataclass(frozen=True)
class Say(Exchange, request=Number, reply=Number):
    """Asks one or two parties by turn; ``"first"``: everybody in round 0; ``"odd"``: one party in odd rounds."""

    when: str = "turn"
    bound: int | None = None

    @property
    def name(self):  # type: ignore[override]
        return self.when

    def due(self, number):
        return {"first": number == 0, "odd": number % EVERY == 1, "turn": True}[self.when]

    def asked(self, state, parties):
        if self.when == "first":
            return None
        every, turn = jnp.arange(parties), (state.round + state.seed) % parties
        if self.when == "odd":
            return every == turn
        return (every == turn) | (every == (2 * turn) % parties)

    def max_asked(self, parties):
        return parties if self.bound is None else self.bound

    def ask(self, state):
        return Number(state.round)

    def draw(self, key):
        return jax.random.key_data(key)[1] % jnp.uint32(1000)

    def draw_from_os(self):
        return jnp.uint32(0)

    def respond(self, request, party, draws):
        own = party.own
        said = own.number * party.shared + request.number * jnp.uint32(100_000) + draws
        return Party(party.shared, Own(own.number, own.asked + jnp.uint32(1))), Number(said)

    def tell(self, state, replies, arrived):
        heard = jnp.sum(jnp.where(arrived, replies.number, jnp.uint32(0)))
        name = {"first": "opening", "odd": "turn", "turn": "all"}[self.when]
        state = state._replace(**{name: getattr(state, name) + heard})
        return state._replace(round=state.round + 1) if self.when == "turn" else state


@dataclass(frozen=True)
class Counting(Protocol):
    bound: int | None = None
    name: str = dataclasses.field(default="counting", compare=False)

    @property
    def exchanges(self):
        one = None if self.bound is None else 1
        return Say("first"), Say("odd", one), Say("turn", self.bound)

    def init(self, key):
        zero = jnp.uint32(0)
        return Tally(zero, jax.random.bits(key, (), jnp.uint32) % jnp.uint32(50), zero, zero, zero)

    def weights(self, state):
        return state.all

    def watch(self, state):
        return {"sum": state.all, "opening": state.opening}

    def account(self, rounds, delta):
        raise AssertionError("not asked for here")


def parties(per_run=False):
    shape = (RUNS, PARTIES) if per_run else (PARTIES,)
    numbers = jnp.arange(1, np.prod(shape) + 1, dtype=jnp.uint32).reshape(shape)
    return Party(jnp.uint32(1000), Own(numbers, jnp.zeros(shape, jnp.uint32)))


@partial(jax.jit, static_argnums=0)
def _quickly(simulator, *arguments):
    return simulator.advance(*arguments, 0, ROUNDS)


@cache
def advanced(simulator, per_run=False):
    """States before and after, ``own``, and what was seen; of debug mode in two halves."""
    keys, there = run_keys([3, 8]), parties(per_run)
    first, own = simulator.start(keys, there, per_run=per_run)
    if not simulator.debug:
        return first, *jax.tree.map(np.asarray, _quickly(simulator, keys, first, there.shared, own))
    states, half, halves = first, ROUNDS // 2, []
    for number in (0, half):
        states, own, seen = simulator.advance(keys, states, there.shared, own, number, half)
        halves.append(seen)
    return first, states, own, jax.tree.map(lambda *parts: np.concatenate(parts), *halves)


def asked_in(state_seed, number):
    """Who is asked in which exchange of a round."""
    turn = (number + int(state_seed)) % PARTIES
    return [
        set(range(PARTIES)) if number == 0 else set(),
        {turn} if number % EVERY == 1 else set(),
        {turn, 2 * turn % PARTIES},
    ]


def same(first, second):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), first, second)


PLAIN = Simulator(Counting(), record=True)
GATHERS = Simulator(Counting(bound=3), chunk=2)
TROUBLE = Simulator(Counting(bound=2), conditions=Conditions(dropout=0.4, late=1.0, delay=2), record=True)


def test_everybody_who_is_asked_answers_once_and_nobody_else():
    first, _, own, _ = advanced(PLAIN)
    for run in range(RUNS):
        wanted = np.zeros(PARTIES, int)
        for number in range(ROUNDS):
            for who in asked_in(first.seed[run], number):
                wanted[list(who)] += 1
        np.testing.assert_array_equal(own.asked[run], wanted)


def test_what_crossed_is_counted_by_exchange():
    first, _, _, seen = advanced(PLAIN)
    for run in range(RUNS):
        wanted = [[len(who) for who in asked_in(first.seed[run], number)] for number in range(ROUNDS)]
        np.testing.assert_array_equal(seen["crossed"][:, run, :, 0], wanted)
        np.testing.assert_array_equal(seen["crossed"][:, run, :, 1], wanted)


def test_the_server_hears_exactly_the_replies_of_those_who_were_asked():
    first, states, _, seen = advanced(PLAIN)
    for run in range(RUNS):
        sums = np.zeros(3, np.int64)
        for number in range(ROUNDS):
            for index, who in enumerate(asked_in(first.seed[run], number)):
                said = seen["replies"][index].number[number, run]
                for party in who:  # its own number, the round, and its chance
                    assert said[party] // 1000 == (party + 1) + 100 * number
                sums[index] += said[sorted(who)].sum()
        np.testing.assert_array_equal([states.opening[run], states.turn[run], states.all[run]], sums)
        assert seen["watched"]["sum"][-1, run] == sums[2] and seen["watched"]["opening"][0, run] == sums[0]


def test_every_exchange_has_a_chance_of_its_own():
    _, _, _, seen = advanced(PLAIN)
    chances = [said.number[number] % 1000 for said in seen["replies"] for number in (0, 1) if said.number[number].any()]
    assert all((a != b).any() for a, b in itertools.combinations(chances, 2))


@pytest.mark.parametrize(
    "other", [GATHERS, Simulator(Counting(), debug=True)], ids=["gathered in chunks", "debug mode"]
)
def test_how_the_parties_are_mapped_changes_nothing(other):
    *plain, seen = advanced(PLAIN)
    *result, others = advanced(other)
    same(result, plain)
    same(others, {name: seen[name] for name in others})


def test_debug_mode_loses_delays_and_records_the_same_replies():
    *plain, seen = advanced(TROUBLE)
    *result, others = advanced(dataclasses.replace(TROUBLE, debug=True))
    same(result, plain)
    same(others, seen)


def test_parties_may_have_other_data_in_each_run():
    first, states, own, _ = advanced(GATHERS, per_run=True)
    _, shared_states, shared_own, _ = advanced(PLAIN)
    same(own.asked, shared_own.asked)
    np.testing.assert_array_equal(own.number[1], np.arange(PARTIES + 1, 2 * PARTIES + 1))
    assert states.all[0] == shared_states.all[0]
    extra = sum(len(asked_in(first.seed[1], number)[2]) for number in range(ROUNDS)) * PARTIES * 1000
    assert int(states.all[1]) - int(shared_states.all[1]) == extra


def test_who_was_not_heard_was_asked_but_did_not_reply():
    (first, _), states, own, seen = advanced(TROUBLE)
    there, states = seen["arrived"], TROUBLE.server(states)
    for run in range(RUNS):
        total = 0
        for number in range(ROUNDS):
            for index, who in enumerate(asked_in(first.seed[run], number)):
                heard = [party for party in sorted(who) if there[number, run, party]]
                assert seen["crossed"][number, run, index].tolist() == [len(who), len(heard)]
                if index == 2:
                    total += seen["replies"][2].number[number, run, heard].sum()
        assert states.all[run] == total
    assert not there.all()
    same(own.asked, advanced(PLAIN)[2].asked)


def test_late_replies_are_to_the_question_of_some_rounds_ago():
    (first, _), _, _, seen = advanced(TROUBLE)
    for run in range(RUNS):
        for number in range(ROUNDS):
            for party in asked_in(first.seed[run], number)[2]:
                assert seen["replies"][2].number[number, run, party] // 100_000 == max(number - 2, 0)


def test_a_protocol_that_asks_everybody_in_every_round_counts_nothing():
    protocol = tiny_protocol()
    assert not selective(protocol) and selective(Counting())
    party, simulator = tiny_parties(protocol, 3), Simulator(protocol)
    keys = run_keys([0])
    states, own = simulator.start(keys, party)
    shapes = jax.eval_shape(lambda *rest: simulator.advance(*rest, 0, 2), keys, states, party.shared, own)[2]
    assert "crossed" not in shapes and "watched" not in shapes and shapes
