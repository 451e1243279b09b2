"""Platforms of a few numbers, in threads or called directly, for tests of what is deployed."""

import contextlib
import json
import math
import threading

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.rng import party_key
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import KeyValueStore, PlatformFolder
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.rounds import Coordinator, Peer, Silence, _asked_of, _tell
from fedrank.deploy.platforms.service import ListenAt, platform_servers
from fedrank.deploy.platforms.terms import RefusedError, Terms, respond
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import WORLD

ROUNDS, BATCH, MEMORY = 8, 2, 7
#: Learning after rounds 3, 5 and 7, copies after 3 and 7, a new user every third round.
SETTINGS = {
    "protocol": "vertical-slate",
    "rounds": ROUNDS,
    "seed": 3,
    "world": {"candidates": 3, "slate": 2, "time_budget": 6},
    "slates": {
        **{"batch": BATCH, "memory": MEMORY, "burn_in": 3, "learn_every": 2, "copy_every": 4, "explore": 0.4},
        **{"local_widths": [3], "head": "linear", "decay": 0.9},
    },
}
LOOK, RECOMMEND, BATCHES, TARGETS, COMPARE_A, STEP_A, COMPARE_B, STEP_B = range(8)


def terms(**changes):
    """Terms of the settings above; ``changes`` are of whole tables."""
    return Terms.of(from_dict({**SETTINGS, **changes}))


def a_platform(folder, index=0, *, seeded=True, of=None):
    """A platform whose file is in ``folder``; a second one there goes on where the first was."""
    agreed = of or terms()
    return Platform(agreed, index, KeyValueStore(folder / f"{index}.db", f"platform {index}"), seeded=seeded)


def question(platform, place, **values):
    """The bytes of a question."""
    layout = platform.terms.exchanges[place].request
    return layout.encode(layout.message(**{name: np.asarray(value) for name, value in values.items()}))


@contextlib.contextmanager
def served(folder, agreed, index, **options):
    """A platform with both its servers in a thread; yields its folder."""
    home, ready, trouble = PlatformFolder(folder), threading.Event(), []
    at = ListenAt(**{"patience": math.inf, **options})
    running = []

    def run():
        try:
            with platform_servers(home, agreed, index, at, seeded=True) as servers:
                running.append(servers)
                servers.run(lambda urls: (home.write_urls(dict(coordinator=urls[0], application=urls[1])), ready.set()))
        except Exception as error:
            trouble.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    if trouble:
        raise trouble[0]
    try:
        yield home
    finally:
        running[0].stop()
        thread.join()


class Direct(Peer):
    """A platform without a network, and its users: they come when it is looked at, and act before it learns.

    Attributes:
        asked: (round, place) of every question that reached it.
        away: Decides of (round, place) whether the question is lost.
        deaf: Decides of (round, place) whether the reply is lost.
    """

    def __init__(self, platform):
        self.platform, self.asked = platform, []
        self.away = self.deaf = lambda number, place: False

    def exchange(self, number, place, body, patience):
        """As a peer."""
        if self.away(number, place):
            return Silence("away")
        self.asked.append((number, place))
        p, s = self.platform, self.platform.terms.protocol
        try:
            acted = place == BATCHES or (place == LOOK and number > p.round)
            if acted and p.lived < p.round and p.stage.value == "shown":
                p.outcome(p.round, *((p.round % 2, 10.0 + p.round) if s.feedback[p.index] else ()))
            if place == LOOK and number > p.round:
                rng = np.random.default_rng([number, 5])
                p.visit(number, rng.random(s.world.candidates).tolist(), float(rng.random()), number % 3 == 0)
            reply = p.answer(number, place, body)
        except RefusedError as error:
            return Silence(error.reason, error.more.get("round"))
        return Silence("away") if self.deaf(number, place) else reply

    def missing(self, number, patience):
        """As a peer."""
        return self.platform.missing(number)


def coordinated(folder, *, of=None):
    """A coordinator of direct platforms, and these."""
    agreed = of or terms()
    peers = [Direct(a_platform(folder, index, of=agreed)) for index in range(agreed.platforms)]
    return Coordinator(agreed, peers, KeyValueStore(folder / "coordinator.db", "coordinator"), seeded=True), peers


def as_simulated(agreed, rounds):
    """What crosses according to the protocol's own functions in a plain loop, with a simulator's chance.

    Returns {(round, place, platform): (question, reply)} in bytes, the coordinator's state, what the platforms have,
    and engagement [rounds, K].
    """
    protocol, k = agreed.protocol, agreed.platforms
    key = jax.random.key(agreed.config.seed)
    state = agreed.coordinator_state(seeded=True)
    own = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(agreed.platform_own(index, seeded=True) for index in range(k))
    )
    visits = next(e.environment for e in protocol.exchanges if e.environment is not None)
    scene, own = jax.jit(visits.begin)(jax.random.fold_in(key, WORLD), own)
    happen, crossed, engagement = jax.jit(visits.happen), {}, []
    for number in range(rounds):
        for place, exchange in enumerate(protocol.exchanges):
            if exchange.due(number):
                asked = exchange.asked(state, k)
                asked = np.ones(k, bool) if asked is None else np.asarray(asked)
                request, replies = _asked_of(exchange, state), [exchange.reply.decode(_zeros(exchange.reply))] * k
                for index in np.flatnonzero(asked).tolist():
                    mine = jax.tree.map(lambda leaf, index=index: leaf[index], own)
                    put = jax.tree.map(lambda leaf, index=index: leaf[index], request) if exchange.personal else request
                    draws = exchange.draw(jax.random.fold_in(party_key(key, number, index), place))
                    sent = exchange.request.encode(put)
                    mine, replies[index] = agreed.compute(respond, exchange, exchange.request.decode(sent), mine, draws)
                    own = jax.tree.map(lambda all_, one, index=index: all_.at[index].set(one), own, mine)
                    if not exchange.silent:
                        crossed[number, place, index] = sent, exchange.reply.encode(replies[index])
                replies = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *replies)
                state = _tell(exchange, state, replies, jnp.asarray(asked))
            if exchange.environment is not None:
                scene, own, lived = happen(scene, own, party_key(key, number, WORLD), jnp.uint32(number))
                engagement.append(np.asarray(lived["engagement"]))
    return crossed, state, own, np.stack(engagement)


def same(layout, one, other):
    """Whether two messages are the same: whole numbers exactly, others but for their last bits."""
    one, other = layout.decode(one), layout.decode(other)
    for field in layout.fields:
        a, b = getattr(one, field.name), getattr(other, field.name)
        if not (np.allclose(a, b, rtol=1e-5, atol=1e-6) if field.dtype == "f4" else np.array_equal(a, b)):
            return False
    return True


def _zeros(layout):
    return bytes([1 << 5 | layout.kind]) + bytes(layout.nbytes - 1)


def answering(replies):
    """A peer over a client that gives these responses, one after the other, and the last for ever."""
    agreed = terms()

    class Client(PersistentClient):
        checked = False

        def ask(self, method, path, body=None, *, limit=65_536):
            if not self.checked:
                self.checked = True
                self.on_connect()
            if path == "/v1/platform":
                return response(200, {"platform": 0, "terms": agreed.fingerprint, "seeded": True})
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            return reply if not isinstance(reply, Exception) else (_ for _ in ()).throw(reply)

    return Peer(agreed, 0, Client("http://127.0.0.1:1", "a-token-of-tests"), seeded=True, stop=threading.Event())


def response(status, said, reason=""):
    return ClientResponse(status, json.dumps(said).encode(), reason=reason)
