"""A protocol of somebody else, in the 30 lines that the documentation of protocols shows."""

import inspect
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core import protocol as protocols
from fedrank.core.errors import ConfigError
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Array, Layout, f4, field, message, u2, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol, SingleExchangeProtocol
from fedrank.engine.simulator import Simulator, run_keys

SHOWN = textwrap.dedent(inspect.getdoc(protocols).split("no more than this::\n")[1])
LINES = [line for line in SHOWN.splitlines() if line.strip()]
TRUE = np.array([1.0, -2.0, 0.5], np.float32)


@pytest.fixture(scope="module")
def fedavg():
    namespace = {"__name__": "somebody_elses_package"}
    exec(compile(SHOWN, "fedavg.py", "exec"), namespace)
    return namespace["FedAvg"]()


def regression(parties=4, rows=20):
    """Parties with rows of their own of one noiseless linear regression."""
    features = np.random.default_rng(5).normal(size=(parties, rows, 3)).astype(np.float32)
    return Party(None, (jnp.asarray(features), jnp.asarray(features @ TRUE)))


def test_the_shown_protocol_has_at_most_30_lines():
    assert 20 < len(LINES) <= 30


def test_it_runs_and_finds_the_weights(fedavg):
    parties, keys = regression(), run_keys([0, 1])
    simulator = Simulator(fedavg)
    states, own = simulator.start(keys, parties)
    states, _, _ = simulator.advance(keys, states, parties.shared, own, 0, 200)
    np.testing.assert_allclose(fedavg.weights(states), np.tile(TRUE, (2, 1)), atol=1e-4)


def test_one_round_is_the_mean_weighted_by_rows_of_who_was_heard(fedavg):
    (exchange,) = fedavg.exchanges
    replies = exchange.reply.message(jnp.asarray([[1.0, 0, 0], [0, 3.0, 0], [9.0, 9, 9]]), jnp.uint32([1, 3, 5]))
    told = exchange.tell(jnp.zeros(3), replies, jnp.asarray([True, True, False]))
    np.testing.assert_allclose(told, [0.25, 2.25, 0])
    np.testing.assert_array_equal(exchange.tell(jnp.ones(3), replies, jnp.zeros(3, bool)), np.ones(3))


def test_debug_mode_gives_what_the_compiled_program_gives(fedavg):
    parties, keys = regression(parties=2), run_keys([0])
    ends = []
    for debug in (False, True):
        simulator = Simulator(fedavg, debug=debug)
        states, own = simulator.start(keys, parties)
        ends.append(fedavg.weights(simulator.advance(keys, states, parties.shared, own, 0, 2)[0]))
    np.testing.assert_allclose(*ends, rtol=1e-5)


def test_ledger_and_account_need_no_further_line(fedavg):
    ledger = Ledger()
    for sender in ("server", "parties"):
        ledger.record(0, fedavg.name, fedavg.request if sender == "server" else fedavg.reply, sender=sender, messages=4)
    assert [(e.message, e.bytes_each) for e in ledger] == [("Model", 13), ("Trained", 17)]
    promise = fedavg.account(10, 1e-6)
    assert isinstance(promise, PrivacyReport) and promise.epsilon_round == np.inf
    assert promise.details["rounds"] == 10 and promise.not_covered and promise.words


# ------------------------------------------------------------------------------------- what makes protocols short


@message(kind=1)
class Question:
    weights: Array = field(f4["parameters"], "the model")


@message(kind=2)
class Count:
    rows: Array = field(u4, "number of rows")


@message(kind=3)
class SmallCount:
    rows: Array = field(u2, "number of rows", largest="most_rows")


class Settings(Protocol):
    name = "counting"

    def __init__(self, size, small):
        self.sizes, self.small = {"parameters": size, "most_rows": 40, "something_else": 0}, small

    @property
    def exchanges(self):
        return (Ask(self),)

    def init(self, key):
        return jnp.zeros(self.sizes["parameters"])

    def weights(self, state):
        return state


class Ask(Exchange, request=Question):
    name = "ask"

    def __init__(self, settings):
        self.settings = settings

    @property
    def reply(self):
        return self.layout(SmallCount if self.settings.small else Count)

    def ask(self, state):
        return Question(state)

    def respond(self, request, party, draws):
        assert draws == ()
        return party, self.reply.message(party.own)

    def tell(self, state, replies, arrived):
        return state + replies.rows.sum()


@pytest.mark.parametrize(("size", "small", "nbytes"), [(3, True, (13, 3)), (7, False, (29, 5))])
def test_an_exchange_takes_sizes_from_its_protocol(size, small, nbytes):
    (exchange,) = Settings(size, small).exchanges
    assert (exchange.request.nbytes, exchange.reply.nbytes) == nbytes
    assert exchange.request == Layout(Question, parameters=size)
    assert exchange.reply.fields[0].largest == (40 if small else None)
    _, reply = exchange.answer(exchange.ask(jnp.zeros(size)), Party(None, jnp.int32(40)), jax.random.key(0))
    assert int(reply.rows) == int(exchange.reply.decode(exchange.reply.encode(reply)).rows) == 40
    assert exchange.draw_from_os() == ()


def test_a_size_that_nobody_gives_is_named():
    exchange = Ask(Settings(3, True))
    exchange.settings.sizes = {"most_rows": 40}
    assert exchange.reply.nbytes == 3
    with pytest.raises(ConfigError, match=r"Question\.weights.*parameters"):
        _ = exchange.request


def test_what_a_simulated_party_draws_a_real_one_must_draw_too():
    for draws in ({"draw": lambda self, key: key}, {"draw_from_os": lambda self: 0}):
        with pytest.raises(ConfigError, match="draw_from_os"):
            type("Half", (Ask,), draws)
    type("Whole", (Ask,), {"draw": lambda self, key: key, "draw_from_os": lambda self: 0})


def test_members_without_a_default_are_asked_for():
    class Lacking(SingleExchangeProtocol, request=Question, reply=Question):
        """Nothing else."""

    with pytest.raises(TypeError, match="abstract"):
        Lacking()


def test_messages_that_nobody_named_are_asked_for():
    class Unnamed(Ask):
        request, reply = Exchange.request, Exchange.reply

    for side in ("request", "reply"):
        with pytest.raises(ConfigError, match=rf"class Unnamed\(…, {side}=…\)"):
            getattr(Unnamed(Settings(3, True)), side)


@pytest.mark.parametrize(
    ("arguments", "members", "says"),
    [
        ({}, {"reply": Count}, r"class Bad\(…, reply=Count\)"),
        ({"reply": int}, {}, "no message"),
    ],
)
def test_messages_are_named_where_a_class_begins(arguments, members, says):
    with pytest.raises(ConfigError, match=says):
        type("Bad", (Exchange,), members, **arguments)
