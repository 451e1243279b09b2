"""What every protocol must keep to, and what must not change an outcome."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties, tiny_protocol, tiny_queries

from fedrank.core.errors import AnswerError, ConfigError
from fedrank.core.kernels import weighted_sum, weighted_sum_kernel
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.protocol import Party
from fedrank.core.rng import party_key, perturbation
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.privacy.piecewise import Piecewise
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.foltr_es import TryPerturbation
from fedrank_zoo.foltr_cma import FoltrCMA
from fedrank_zoo.foltr_es_2019 import FoltrES2019
from fedrank_zoo.foltr_nes import FoltrNES

VARIANTS = {
    "linear": {},
    "mlp": {"ranker": "mlp"},
    "jax": {"kernels": False},
    "plain": {"antithetic": False, "p": 0.5},
    "random ties": {"ties": "random", "kernels": False},
    "as published": {"kind": FoltrES2019},
    "private": {"mechanism": "piecewise", "p": 1.0, "piecewise": Piecewise(1.0, 1, 2)},
    "natural": {"kind": FoltrNES, "kernels": False},
    "cma": {"kind": FoltrCMA, "covariance": "full", "kernels": False},
}


#: Variants that compile longer.
_SLOW = ("natural", "cma")


@pytest.fixture(
    params=[pytest.param(v, marks=pytest.mark.slow if v in _SLOW else ()) for v in VARIANTS], scope="module"
)
def protocol(request):
    return tiny_protocol(**{"p": 0.75, **VARIANTS[request.param]})


def advance(protocol, devices=5, rounds=3, seeds=(0, 1), **simulator):
    parties = tiny_parties(protocol, devices)
    simulation = Simulator(protocol, **simulator)
    keys = run_keys(seeds)
    states, own = simulation.start(keys, parties)
    return simulation.advance(keys, states, parties.shared, own, 0, rounds)


@functools.cache
def answers(protocol):
    """Four parties' answers to the first request in round 2, together and one by one: two programs a protocol."""
    parties = tiny_parties(protocol, 4)
    (exchange,) = protocol.exchanges
    request, key = exchange.ask(protocol.init(jax.random.key(0))), jax.random.key(9)

    def answer(own, number):
        return exchange.answer(request, Party(parties.shared, own), party_key(key, 2, number))[1]

    together = jax.jit(jax.vmap(answer))(parties.own, jnp.arange(4, dtype=jnp.uint32))
    one = jax.jit(answer)
    alone = [one(jax.tree.map(lambda leaf, n=n: leaf[n], parties.own), jnp.uint32(n)) for n in range(4)]
    return request, together, alone


def test_messages_have_no_axis_of_raw_data(protocol):
    for exchange in protocol.exchanges:
        for layout in (exchange.request, exchange.reply):
            assert all(axis in PUBLIC_AXES for field in layout.fields for axis, _ in field.axes)
            assert layout.nbytes == sum(row["bytes"] for row in layout.describe())


def test_what_is_asked_and_answered_fits_its_layout(protocol):
    (exchange,) = protocol.exchanges
    request, _, (_, reply, *_) = answers(protocol)
    for layout, message in ((exchange.request, request), (exchange.reply, reply)):
        back = layout.decode(layout.encode(message))
        for field in layout.fields:
            np.testing.assert_array_equal(getattr(back, field.name), np.asarray(getattr(message, field.name)))


def test_the_server_learns_the_same_from_decoded_replies(protocol):
    """What came over the wire is told as what was simulated: no type of the wire may change a sum."""
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    names = [field.name for field in exchange.reply.fields]
    columns = {
        "seed": [3, 4, 5, 6],
        "plus": [100, 0, 2520, 1260],
        "minus": [2520, 5040, 0, 1260],
        "report": [0, 2, 1, 2],
    }
    sent = [
        exchange.reply.message(
            **{n: np.uint32(columns[n][i]) if n == "seed" else np.int32(columns[n][i]) for n in names}
        )
        for i in range(4)
    ]
    received = [exchange.reply.decode(exchange.reply.encode(message)) for message in sent]
    tell = jax.jit(exchange.tell)
    told = [
        tell(
            state, jax.tree.map(lambda *leaves: jnp.stack(list(map(jnp.asarray, leaves))), *replies), jnp.ones(4, bool)
        )
        for replies in (sent, received)
    ]
    np.testing.assert_array_equal(told[0].weights, told[1].weights)
    assert np.abs(told[0].weights).max() > 0


def test_a_cohort_answers_as_its_parties_do_one_by_one(protocol):
    _, together, alone = answers(protocol)
    for number, reply in enumerate(alone):
        jax.tree.map(lambda a, b, n=number: np.testing.assert_array_equal(a, b[n]), reply, together)


@pytest.mark.parametrize(
    "simulator",
    [
        pytest.param({"chunk": 2, "seeds": (1,)}, id="chunks and company"),
        pytest.param({"debug": True, "seeds": (1,)}, id="debug", marks=pytest.mark.slow),
    ],
)
def test_chunks_company_and_debug_mode_change_nothing(protocol, simulator):
    """A seed runs the same beside another in one chunk, alone in chunks of two parties, and without compiled rounds."""
    states, own, seen = advance(protocol, seeds=(0, 1))
    states2, own2, seen2 = advance(protocol, **simulator)
    np.testing.assert_allclose(own.reward[1:], own2.reward, rtol=1e-6)  # equal draws, close sums
    np.testing.assert_allclose(states.weights[1:], states2.weights, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(seen["MaxRR"][:, 1:], seen2["MaxRR"], rtol=1e-6)


def test_debug_mode_says_whose_answer_failed(monkeypatch):
    protocol = tiny_protocol()
    answer = TryPerturbation.answer

    def fails(self, request, party, key):
        if int(party.own.count) == 1:
            raise RuntimeError("no such thing")
        return answer(self, request, party, key)

    monkeypatch.setattr(TryPerturbation, "answer", fails)
    parties = tiny_parties(protocol, 3)
    parties = parties._replace(own=parties.own._replace(count=jnp.asarray(parties.own.count).at[2].set(1)))
    simulation = Simulator(protocol, debug=True)
    keys = run_keys((0,))
    states, own = simulation.start(keys, parties)
    with pytest.raises(
        AnswerError, match=r"'try-perturbation' failed at party 2 in round 7: RuntimeError: no such"
    ) as error:
        simulation.advance(keys, states, parties.shared, own, 7, 1)
    assert int(error.value.arguments[1].own.count) == 1


def test_weighted_sums_agree_with_numpy():
    for messages in [1, 63, 64, 200]:
        random = np.random.default_rng(messages)
        seeds = random.integers(0, 2**32, messages, dtype=np.uint32)
        weights = np.where(random.random(messages) < 0.3, 0, random.normal(size=messages)).astype(np.float32)
        expected = sum(
            float(w) * perturbation(int(s), 7).astype(np.float64) for s, w in zip(seeds, weights, strict=True)
        )
        for implementation in (weighted_sum, weighted_sum_kernel):
            np.testing.assert_allclose(implementation(jnp.asarray(seeds), jnp.asarray(weights), 7), expected, atol=1e-4)


@pytest.mark.parametrize("kernels", [True, False])
def test_data_that_does_not_fit_is_refused(kernels):
    """Kernels do not check indices, JAX clamps them: both would learn something from the wrong numbers."""
    queries = tiny_queries()
    protocol = tiny_protocol(kernels=kernels)
    deep = QuerySet(queries.features, queries.labels + 2, queries.offsets, queries.qids)
    wide = tiny_queries(features=FEATURES + 1)
    for wrong, says in ((deep, "labels up to 4"), (wide, f"takes {FEATURES} features, the data has {FEATURES + 1}")):
        with pytest.raises(ConfigError, match=says):
            tiny_parties(protocol, 2, wrong)
    data = queries.blocks() if kernels else queries.padded()
    for queries_, first, count, says in (
        ([0], [0], [2], "beyond the list"),
        ([99], [0], [1], "up to 99"),
        ([0], [0], [0], "1 to 65,535"),
        (list(range(12)) * 6000, [0], [70_000], "1 to 65,535"),
    ):
        with pytest.raises(ConfigError, match=says):
            protocol.devices(data, Shares(*(np.asarray(a, np.int32) for a in (queries_, first, count))))
