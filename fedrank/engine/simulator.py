"""Rounds of any protocol as one compiled program: scan over rounds, map over seeds, chunks of parties mapped at once.

The program is the loop of :mod:`fedrank.core.protocol`, vectorised. A chunk bounds the memory and changes nothing else:
a party's key depends on the run, the round and the party's number only.

Between ``answer`` and ``tell`` stands what a server has to live with (:class:`Conditions`): replies that never arrive,
replies to a question of some rounds ago, and replies that attackers send.

A protocol's setup is simulated on the host, party after party, every message written down, by the same ``ask``,
``respond`` and ``tell`` as in a deployment; a deployed party draws from its operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Integer, Key, Shaped, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, AnyInt, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import AnswerError, ConfigError
from fedrank.core.lazy import jax, jit, jnp, register_waiting, require_jax
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Layout
from fedrank.core.protocol import Environment, Exchange, Party, Protocol
from fedrank.core.rng import ATTACK, FATE, INIT, WORLD, party_key
from fedrank.core.streams import run_words, wrap_keys
from fedrank.engine.attackers import Conditions
from fedrank.engine.rounds import Rounds

#: Parties × seeds answering at once, unless told otherwise. 4,096 × 2 rankers of 480 weights are 16 MB.
DEFAULT_CHUNK = 4096


class SimState(NamedTuple):
    """The state of a simulator where parties meet in a world (:class:`fedrank.core.protocol.Environment`).

    Attributes:
        server: The server's state, with past questions beside it where replies are late.
        world: The world's.
    """

    server: Any
    world: PyTree


def run_keys(seeds: Sequence[int] | range | Integer[AnyArray, " runs"]) -> Key[Array, " runs"]:
    """One typed key for each seed.

    Args:
        seeds: Integers [runs].
    """
    return wrap_keys(run_words(np.asarray(seeds).tolist()))


def selective(protocol: Protocol) -> bool:
    """True if an exchange is silent or may leave out parties or rounds, so that messages have to be counted."""
    plain = (Exchange.due, Exchange.asked)
    return any(e.silent or (type(e).due, type(e).asked) != plain for e in protocol.exchanges)


@dataclass(frozen=True, eq=False)
class _Answered:
    """One exchange of one round: the parties that are asked answer, and the server is told their replies."""

    simulator: Simulator
    exchange: Exchange
    index: int
    key: Key[Array, ""]
    shared: PyTree
    number: AnyInt
    late: Bool[Array, " parties"]
    arrived: Bool[Array, " parties"]
    attack: Key[Array, ""]
    past: PyTree

    def __call__(
        self, state: PyTree, own: PyTree, request: PyTree | None
    ) -> tuple[PyTree, PyTree, PyTree, Int32[Array, " 2"]]:
        """The server's new state, what the parties keep, their replies [parties, ...], and the counts of messages.

        Without a request, the server asks here.
        Replies are there where the simulator records them, else (). The counts are int32 [2]: how many requests and
        replies crossed.
        """
        s, exchange, parties = self.simulator, self.exchange, leading(own)
        request = exchange.ask(state) if request is None else request
        asked = exchange.asked(state, parties)
        arrived = self.arrived if asked is None else self.arrived & asked
        own, replies = self._replies(own, request, asked)
        if s.conditions.attack is not None:
            mine = jax.random.fold_in(self.attack, self.index)
            attackers = jnp.asarray(np.asarray(s.conditions.attackers))
            replies = s.conditions.attack.tamper(mine, request, replies, attackers, s.protocol)
        count = jnp.stack([jnp.int32(parties) if asked is None else jnp.sum(asked), jnp.sum(arrived)])
        count = jnp.zeros_like(count) if exchange.silent else count
        kept = replies if s.record else ()
        return exchange.tell(state, replies, arrived), own, kept, count.astype(jnp.int32)

    def not_due(
        self, state: PyTree, own: PyTree, request: PyTree | None
    ) -> tuple[PyTree, PyTree, PyTree, Int32[Array, " 2"]]:
        """The result of a round in which the exchange does not take place: nothing changes and nothing crosses."""
        if not self.simulator.record:
            return state, own, (), jnp.zeros(2, jnp.int32)

        def reply() -> PyTree:
            question = self.exchange.ask(state) if request is None else request
            return self._answer(question, _of_party(own, 0), jnp.uint32(0), self.late[0])[1]

        nothing = _silence(reply, leading(own))
        return state, own, nothing, jnp.zeros(2, jnp.int32)

    def _replies(self, own: PyTree, request: PyTree, asked: Bool[AnyArray, " parties"] | None) -> tuple[PyTree, PyTree]:
        parties, chunk = leading(own), self.simulator.chunk
        if self.simulator.debug:
            return self._one_by_one(own, request, np.ones(parties, bool) if asked is None else np.asarray(asked))
        most = min(parties, self.exchange.max_asked(parties))
        if asked is None or most == parties:
            after, replies = in_chunks(partial(self._answers, request), own, self.late, chunk)
            if asked is not None:  # who was not asked did nothing
                after = jax.tree.map(lambda new, old: jnp.where(_beside(asked, new), new, old), after, own)
            return after, replies
        (who,) = jnp.nonzero(asked, size=most, fill_value=parties)
        mine = jax.tree.map(lambda leaf: jnp.take(leaf, who, axis=0, mode="clip"), own)
        late = jnp.take(self.late, who, mode="clip")
        after, replies = in_chunks(partial(self._answers, request), mine, late, chunk, who.astype(jnp.uint32))

        def put(into, rows):
            return into.at[who].set(rows, mode="drop")

        def keep(into, before, rows):  # what an answer leaves as it was, such as a large memory, is not written again
            return into if rows is before else put(into, rows)

        empty = jax.tree.map(lambda leaf: jnp.zeros((parties, *leaf.shape[1:]), leaf.dtype), replies)
        return jax.tree.map(keep, own, mine, after), jax.tree.map(put, empty, replies)

    def _answers(
        self, request: PyTree, own: PyTree, numbers: UInt32[Array, " chunk"], late: Bool[Array, " chunk"]
    ) -> tuple[PyTree, PyTree]:
        return jax.vmap(partial(self._answer, request))(own, numbers, late)

    def _one_by_one(self, own: PyTree, request: PyTree, asked: Bool[np.ndarray, " parties"]) -> tuple[PyTree, PyTree]:
        """The same without a map, so that an error names its party and has the arguments of its answer."""
        after, replies = [], []
        for party, there in enumerate(asked):
            arguments = (request, _of_party(own, party), jnp.uint32(party), self.late[party])
            mine, reply = self._answer(*arguments) if there else (arguments[1], None)
            after.append(mine)
            replies.append(_silence(lambda of=arguments: self._answer(*of)[1]) if reply is None else reply)
        return _stack_trees(after), _stack_trees(replies)

    def _answer(self, request: PyTree, own: PyTree, party: AnyInt, late: Bool[AnyArray, ""]) -> tuple[PyTree, PyTree]:
        """The new state of one party, and its reply.

        Raises:
            AnswerError: Its answer failed while parties answer one by one.
        """
        question = request
        if self.past is not None:  # the oldest of the questions that are kept
            question = jax.tree.map(lambda now, old: jnp.where(late, old[0], now), request, self.past[self.index])
        if self.exchange.personal:
            question = _of_party(question, party)
        arguments = (question, Party(self.shared, own), self.simulator._key(self.key, self.number, party, self.index))
        if not self.simulator.debug:
            after, reply = self.exchange.answer(*arguments)
            return after.own, reply
        try:
            after, reply = self.exchange.answer(*arguments)
        except Exception as error:
            raise AnswerError(self.exchange.name, int(party), int(self.number), error, arguments) from error
        return after.own, reply


def _of_party(tree: PyTree, party: AnyInt) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[party], tree)


def _silence(reply: Callable[[], PyTree], *axes: int) -> PyTree:
    """Zeros in the shape of a reply, behind further axes; the reply itself is not computed."""
    return jax.tree.map(lambda leaf: jnp.zeros((*axes, *leaf.shape), leaf.dtype), jax.eval_shape(reply))


def _beside(flags: Bool[AnyArray, " parties"], leaf: Shaped[Array, "parties ..."]) -> Bool[AnyArray, "parties ..."]:
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - flags.ndim))


@dataclass(frozen=True)
class Simulator(Rounds):
    """Runs any protocol over all its parties, with JAX.

    Attributes:
        protocol: The protocol.
        chunk: Parties that answer at once.
        debug: Without jit and one party after another, so that a failing answer can be inspected.
        conditions: What happens to replies on their way.
        why: The setting or object that takes JAX, for messages to the user.
        record: Keep every reply, as a log of the server has them.
    """

    protocol: Protocol
    chunk: int = DEFAULT_CHUNK
    debug: bool = False
    conditions: Conditions = field(default_factory=Conditions)
    record: bool = False
    why: str = ""

    backend = "jax"

    def __post_init__(self):
        if self.chunk < 1:
            raise ConfigError(f"chunk must be at least 1, got {self.chunk}.")
        require_jax(self.why or "The simulator in JAX")
        register_waiting()  # messages of a protocol that was imported without JAX

    @property
    def world(self) -> Environment | None:
        """The environment that acts on the parties in a round; None if there is none."""
        found = [e.environment for e in self.protocol.exchanges if e.environment is not None]
        if len(found) > 1:
            raise ConfigError(f"parties meet after one exchange of a round, not after {len(found)}.")
        return found[0] if found else None

    @override
    def keys(self, seeds: Sequence[int]) -> Key[Array, " runs"]:
        return run_keys(seeds)

    @override
    def begin(self, keys: Key[Array, " runs"], parties: Party) -> tuple[PyTree, PyTree]:
        return self.start(keys, parties)

    def start(
        self,
        keys: Key[Array, " runs"],
        parties: Party,
        *,
        per_run: bool = False,
        begin: Callable[..., PyTree] | None = None,
        each: Sequence[PyTree] = (),
    ) -> tuple[PyTree, PyTree]:
        """Server states and parties' own states before the first round, one a run.

        Args:
            keys: Typed keys [runs].
            parties: All parties; leaves of ``own`` are [parties, ...].
            per_run: Leaves of ``own`` are [runs, parties, ...] already: parties that have other data in each run.
            begin: Makes a run's first state from its key and its part of ``each``, instead of the protocol's ``init``:
                for settings that differ from run to run.
            each: Pytrees of arrays [runs, ...], the further arguments of ``begin``.

        Returns:
            States with leading axis [runs], and ``own`` with leading axes [runs, parties]. Where replies are late, a
            state has the questions of the last rounds beside it.

        Raises:
            ConfigError: There are not as many parties as the conditions name.
        """
        there = jax.tree.leaves(parties.own)[0].shape[1 if per_run else 0]
        for what, named in (("to attack", self.conditions.attackers), ("to be absent", self.conditions.absent)):
            if named and len(named) != there:
                raise ConfigError(f"{len(named)} parties are said {what} or not, but there are {there}.")
        begin = begin or self.protocol.init
        states = jax.vmap(lambda key, *own: self._first(begin(jax.random.fold_in(key, INIT), *own)))(keys, *each)
        runs, own = keys.shape[0], parties.own
        if not per_run:
            own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (runs, *jnp.shape(leaf))), own)
        if self.world is not None:
            worlds, own = jax.vmap(self.world.begin)(jax.vmap(partial(jax.random.fold_in, data=WORLD))(keys), own)
            states = SimState(states, worlds)
        return states, own

    @override
    def advance(
        self, keys: Key[Array, " runs"], states: PyTree, shared: PyTree, own: PyTree, first_round: int, rounds: int
    ) -> tuple[PyTree, PyTree, dict[str, Any]]:
        """Simulate a number of rounds of all runs.

        Args:
            keys: Typed keys [runs].
            states: Server states [runs, ...].
            shared: What all parties hold in common.
            own: What each has for itself, [runs, parties, ...].
            first_round: Number of the first of these rounds.
            rounds: How many.

        Returns:
            New states, new ``own``, and the parties' mean experience: name -> float32 [rounds, runs]. Beside it
            ``"watched"``, what the protocol's :meth:`~fedrank.core.protocol.Protocol.watch` has to say, and
            ``"world"``, what its parties' environment showed, leaves [rounds, runs, ...]; and, of a :func:`selective`
            protocol, ``"crossed"``: int32 [rounds, runs, exchanges, 2], how many requests and replies crossed. With
            ``record`` there is also ``"replies"``: those of each exchange, and ``"arrived"``, with leading axes
            [rounds, runs, parties].
        """
        if self.debug:
            return self._advance_debug(keys, states, shared, own, first_round, rounds)
        advance = _advance_quick if self.protocol.quick else _advance_wide if self.protocol.wide else _advance
        return advance(self, rounds, keys, states, shared, own, np.uint32(first_round))

    @override
    def server(self, states: PyTree) -> PyTree:
        states = states.server if isinstance(states, SimState) else states
        return states[0] if self.conditions.late else states

    @override
    def models(self, states: PyTree) -> PyTree:
        return self.on_host(jax.vmap(self.protocol.weights)(self.server(states)))

    @override
    def on_host(self, tree: PyTree) -> PyTree:
        return jax.device_get(tree)

    def _first(self, state: PyTree) -> PyTree:
        if not self.conditions.late:
            return state
        asked = tuple(exchange.ask(state) for exchange in self.protocol.exchanges)
        past = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.conditions.delay, *jnp.shape(leaf))), asked)
        return state, past

    def _key(self, key: Key[Array, ""], number: AnyInt, party: AnyInt, exchange: int) -> Key[Array, ""]:
        """A party's key in a round; where there are several exchanges, each has its own key."""
        mine = party_key(key, number, party)
        return mine if len(self.protocol.exchanges) == 1 else jax.random.fold_in(mine, exchange)

    def _round(
        self, key: Key[Array, ""], state: PyTree, shared: PyTree, own: PyTree, number: AnyInt
    ) -> tuple[PyTree, PyTree, dict]:
        c, parties = self.conditions, leading(own)
        # What nothing depends on is not even traced.
        fate = party_key(key, number, FATE) if c.dropout or c.late else key
        attack = key if c.attack is None else party_key(key, number, ATTACK)
        arrived = ~jax.random.bernoulli(fate, c.dropout, (parties,)) if c.dropout else jnp.ones(parties, bool)
        if c.absent:
            arrived = arrived & ~jnp.asarray(np.asarray(c.absent))
        late = jnp.zeros(parties, bool)
        if c.late:
            late = jax.random.bernoulli(jax.random.fold_in(fate, 1), c.late, (parties,))
        past = world = None
        if isinstance(state, SimState):
            state, world = state
        if c.late:
            state, past = state
        asked, kept, crossed, lived = [], [], [], {}
        for index, exchange in enumerate(self.protocol.exchanges):
            answered = _Answered(self, exchange, index, key, shared, number, late, arrived, attack, past)
            due = exchange.due(number)
            # What a round in which the exchange is not due need not compute stands inside the condition.
            request = exchange.ask(state) if due is True or c.late else None
            asked.append(request)
            if due is True:
                state, own, replies, count = answered(state, own, request)
            else:
                state, own, replies, count = jax.lax.cond(due, answered, answered.not_due, state, own, request)
            kept.append(replies)
            crossed.append(count)
            if exchange.environment is not None:
                world, own, lived = exchange.environment.happen(world, own, party_key(key, number, WORLD), number)
        if c.late:
            newest = jax.tree.map(lambda old, now: jnp.concatenate([old[1:], now[None]]), past, tuple(asked))
        seen = self._seen(state, shared, own, jnp.stack(crossed), lived)
        if c.late:
            state = state, newest
        if world is not None:
            state = SimState(state, world)
        return state, own, {**seen, "replies": tuple(kept), "arrived": arrived} if self.record else seen

    def _seen(self, state: PyTree, shared: PyTree, own: PyTree, crossed: jax.Array, lived: dict) -> dict[str, Any]:
        """Metrics of a finished round."""
        experience = jax.vmap(lambda own: self.protocol.experience(Party(shared, own)))(own)
        seen: dict[str, Any] = jax.tree.map(jnp.mean, experience)
        if watched := self.protocol.watch(state):
            seen["watched"] = watched
        if lived:
            seen["world"] = lived
        return {**seen, "crossed": crossed} if selective(self.protocol) else seen

    def _advance_debug(self, keys, states, shared, own, first_round, rounds):
        history: list[PyTree] = []
        with jax.disable_jit():
            for number in range(first_round, first_round + rounds):
                row = []
                for run in range(keys.shape[0]):
                    state = jax.tree.map(lambda leaf, run=run: leaf[run], states)
                    mine = jax.tree.map(lambda leaf, run=run: leaf[run], own)
                    state, mine, seen = self._round(keys[run], state, shared, mine, jnp.uint32(number))
                    states = jax.tree.map(lambda all_, one, run=run: all_.at[run].set(one), states, state)
                    own = jax.tree.map(lambda all_, one, run=run: all_.at[run].set(one), own, mine)
                    row.append(seen)
                history.append(_stack_trees(row))
        return states, own, _stack_trees(history) if history else {}


def _stack_trees(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _advance_(simulator, rounds, keys, states, shared, own, first_round):
    one = jax.vmap(simulator._round, in_axes=(0, 0, None, 0, None), out_axes=0)

    def step(carry, number):
        states, own, seen = one(keys, *carry[:1], shared, carry[1], number)
        return (states, own), seen

    numbers = first_round + jnp.arange(rounds, dtype=jnp.uint32)
    (states, own), seen = jax.lax.scan(step, (states, own), numbers)
    return states, own, seen


_advance = jit(_advance_, static_argnums=(0, 1))
_advance_quick = jit(_advance_, quick=True, static_argnums=(0, 1))
_advance_wide = jit(_advance_, wide=True, static_argnums=(0, 1))


def leading(tree: PyTree) -> int:
    """Length of the leading axis of a pytree's leaves."""
    return jax.tree.leaves(tree)[0].shape[0]


def in_chunks(
    answers: Callable[..., tuple[PyTree, PyTree]],
    own: PyTree,
    late: Bool[Array, " parties"],
    chunk: int,
    numbers: UInt32[Array, " parties"] | None = None,
) -> tuple[PyTree, PyTree]:
    """Map ``answers`` over the parties, ``chunk`` at a time, with a smaller chunk at the end where one is left."""
    parties = leading(own)
    numbers = jnp.arange(parties, dtype=jnp.uint32) if numbers is None else numbers
    whole = parties // chunk * chunk
    if parties <= chunk:
        return answers(own, numbers, late)

    def split(leaf):
        return leaf[:whole].reshape(whole // chunk, chunk, *leaf.shape[1:])

    def join(leaf):
        return leaf.reshape(whole, *leaf.shape[2:])

    _, done = jax.lax.scan(
        lambda carry, part: (carry, answers(*part)), None, (jax.tree.map(split, own), split(numbers), split(late))
    )
    done = jax.tree.map(join, done)
    if whole == parties:
        return done
    rest = answers(jax.tree.map(lambda leaf: leaf[whole:], own), numbers[whole:], late[whole:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), done, rest)


def run_setup(
    setup: Protocol,
    parties: list[Party],
    rng: np.random.Generator,
    *,
    absent: Collection[tuple[str, int]] = (),
    through_bytes: bool = False,
) -> tuple[PyTree, list[Party], Ledger]:
    """One round of exchanges on the host.

    Args:
        setup: The protocol.
        parties: Its parties.
        rng: The simulation's chance; each party gets its own generator for each exchange.
        absent: Exchange and party that is not heard there, nor in what follows.
        through_bytes: Encode and decode every message, as a network would.

    Returns:
        The server's state, the parties with what they have for themselves now, and what crossed.

    Raises:
        FedrankError: What an exchange raises; too few parties are left, for instance.
    """
    state, parties, ledger = setup.init(None), list(parties), Ledger()
    seeds = rng.bit_generator.seed_seq.spawn(len(setup.exchanges))  # type: ignore[attr-defined]
    gone: set[int] = set()
    for exchange, seed in zip(setup.exchanges, seeds, strict=True):
        draws = [np.random.default_rng(own) for own in seed.spawn(len(parties))]
        gone |= {party for name, party in absent if name == exchange.name}
        asked = exchange.asked(state, len(parties))
        asked = np.ones(len(parties), bool) if asked is None else np.asarray(asked, bool)
        replies: list[PyTree] = [None] * len(parties)
        for number in np.flatnonzero(asked).tolist():
            request = exchange.address(state, number)
            if through_bytes:
                request = exchange.request.decode(exchange.request.encode(request))
            if number not in gone:
                parties[number], reply = exchange.respond(request, parties[number], exchange.draw(draws[number]))
                replies[number] = exchange.reply.decode(exchange.reply.encode(reply)) if through_bytes else reply
        arrived = np.array([reply is not None for reply in replies])
        ledger.record(0, exchange.name, exchange.request, sender="server", messages=int(asked.sum()))
        ledger.record(0, exchange.name, exchange.reply, sender="parties", messages=int(arrived.sum()))
        state = exchange.tell(state, stack_replies(exchange.reply, replies), arrived)
    return state, parties, ledger


def stack_replies(layout: Layout, replies: list[PyTree]) -> PyTree:
    """Replies as one message whose leaves have a leading axis of parties; zeros for who was not heard."""
    first = next((reply for reply in replies if reply is not None), None)

    def field(name: str, shape: tuple[int, ...]) -> np.ndarray:
        kind = np.asarray(getattr(first, name)).dtype if first is not None else np.dtype(np.int64)
        nothing = np.zeros(shape, kind)
        return np.stack([nothing if r is None else np.asarray(getattr(r, name), kind) for r in replies])

    return layout.message(**{f.name: field(f.name, f.shape) for f in layout.fields})
