"""What FedSlate keeps to: what crosses, how much and when; who learns; and that a simulator plays what stands there."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slate_worlds import (
    COPIES,
    EPISODE,
    LEARNS,
    PROTOCOL,
    ROUNDS,
    B,
    K,
    N,
    called,
    exchange,
    played,
    published,
    same,
    settings,
    slates,
)

from fedrank.core.errors import ConfigError
from fedrank.core.ledger import Ledger
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.protocol import Party
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.slates.fedslate.learner import federated_values, joint_values, others_mean
from fedrank.slates.fedslate.settings import FederatedSlates, LocalSlates
from fedrank.slates.world.satisfaction import Scene, User
from fedrank_zoo.fedslate_2024.faults import Fault
from fedrank_zoo.fedslate_2024.settings import PublishedSlates

EXTENDED = slates(sees=(True, True), objective="team", choice="true")
MOVING = published(faults=(Fault.ONLINE_OTHERS, Fault.MOVING_TARGETS))
THREE = slates(world={"platforms": 3, "time_budget": 15}, sees=(True, False, True))
ALONE = slates(LocalSlates)
CENTRAL = slates(LocalSlates, central=True, sees=(True, True))
PROTOCOLS = {
    "plain": PROTOCOL,
    "extended": EXTENDED,
    "moving targets": MOVING,
    "three": THREE,
    "alone": ALONE,
    "central": CENTRAL,
}


@pytest.fixture(params=PROTOCOLS, scope="module")
def protocol(request):
    return PROTOCOLS[request.param]


# -- messages --------------------------------------------------------------------------------------------------------


@cache
def shapes(protocol):
    """Shapes of a first state and of what the platforms have; nothing is computed."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(protocol.init, key)
    own = jax.eval_shape(lambda k: jax.tree.map(lambda leaf: leaf[0, 0], protocol.parties(k[None]).own), key)
    return state, own, key


@pytest.mark.parametrize("protocol", [MOVING, pytest.param(PROTOCOL, marks=pytest.mark.slow)], ids=["moving", "plain"])
def test_what_is_asked_and_answered_has_its_layouts_shape(protocol):
    state, own, key = shapes(protocol)
    for e in protocol.exchanges:
        request = jax.eval_shape(lambda s, e=e: e.address(s, 0), state)
        party, reply = jax.eval_shape(lambda r, o, k, e=e: e.answer(r, Party(None, o), k), request, own, key)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), party.own) == jax.tree.map(lambda x: (x.shape, x.dtype), own)
        for layout, message in ((e.request, request), (e.reply, reply)):
            assert type(message) is layout.message
            for field in layout.fields:
                sent = getattr(message, field.name)
                assert (sent.shape, sent.dtype.str[1:]) == (field.shape, field.dtype)


def test_messages_come_over_the_wire_as_they_were_sent_and_have_no_axis_of_raw_data(protocol):
    random, kinds = np.random.default_rng(0), {}
    for e in protocol.exchanges:
        for layout in (e.request, e.reply):
            assert kinds.setdefault(layout.kind, layout.describe()) == layout.describe()  # what it is, is in the kind
            assert all(axis in PUBLIC_AXES for field in layout.fields for axis, _ in field.axes)
            values = {
                f.name: random.normal(size=f.shape).astype(np.float32)
                if f.dtype == "f4"
                else random.integers(0, 2**32, f.shape, np.uint32)
                for f in layout.fields
            }
            wire = layout.encode(layout.message(**values))
            assert len(wire) == layout.nbytes
            back = layout.decode(wire)
            for name, value in values.items():
                np.testing.assert_array_equal(getattr(back, name), value)


def crossing(protocol, parties):
    """Bytes of the exchanges of every round, and of those that learn."""
    ledger = {False: Ledger(), True: Ledger()}
    for e in protocol.exchanges:
        if not e.silent and e.name != "copy":
            for layout, sender in ((e.request, "server"), (e.reply, "parties")):
                entry = ledger[e.due(0) is not True]
                entry.record(0, e.name, layout, sender=sender, messages=e.max_asked(parties))
    return tuple(sum(entry.bytes for entry in ledger[learns]) for learns in (False, True))


def test_acting_takes_4_n_numbers_a_round_and_learning_12_b_n_a_batch():
    """The notes on the published code's traffic count 11 B N: without the other's target network in the targets."""
    acting, learning = crossing(PROTOCOL, K)
    # A byte a message says what it is; a round's number goes with what is asked, ages and targets with a batch.
    assert acting == 4 * 4 * N + K * (4 * 1 + 2 * 4)
    targets = (1 + 4 * B * N) + (1 + 4 * B + 4 * 2)
    compare, gradient = 1 + 4 * B * N + 4 * B + 4 * 2, 1 + 4 * B * N
    batch = K * ((1 + 4 + 4 * B) + (1 + 2 * 4 * B * N))
    back, renewed, done = 1 + 4 * B * N, 1 + 4 * B * N, 1
    assert learning == batch + targets + K * (compare + gradient + back) + renewed + done
    assert learning - 12 * 4 * B * N == 4 * B * (K + 1 + K) + 46  # which are 12 B N numbers, and few beside them


def test_exchanges_are_due_when_it_is_said():
    for r in range(ROUNDS):
        due = [called(e) for e in PROTOCOL.exchanges if e.due(r)]
        learning = ["batch", "targets", "compare 0", "step 0", "compare 1", "step 1"] if r in LEARNS else []
        assert due == ["look", "recommend", *learning, *(["copy"] if r in COPIES else [])]


def test_platforms_with_feedback_learn_first_and_only_who_goes_before_others_sends_new_values():
    steps = [e for e in THREE.exchanges if e.name in ("compare", "step")]
    assert [called(e) for e in steps] == [f"{what} {p}" for p in (0, 2, 1) for what in ("compare", "step")]
    assert [bool(e.reply.fields) for e in steps if e.name == "step"] == [True, True, False]
    assert exchange("targets", THREE).max_asked(3) == 2
    asked = jax.jit(lambda: exchange("targets", THREE).asked(THREE.init(jax.random.key(0)), 3))
    assert np.asarray(asked()).tolist() == [True, False, True]


# -- baselines -------------------------------------------------------------------------------------------------------


def test_alone_nothing_crosses_and_who_sees_no_click_does_not_learn():
    assert all(e.silent for e in ALONE.exchanges)
    assert not any(e.silent for e in PROTOCOL.exchanges if e.name != "copy")
    assert [called(e) for e in ALONE.exchanges if e.name == "compare"] == ["compare 0"]
    assert [called(e) for e in CENTRAL.exchanges if e.name == "compare"] == ["compare 0", "compare 1"]
    values = jnp.asarray(np.random.default_rng(0).normal(size=(K, N)), jnp.float32)
    np.testing.assert_array_equal(jax.jit(partial(federated_values, ALONE.slates))(jnp.zeros(1), values), values)


def test_centrally_a_platform_is_told_what_the_other_knows_of_the_user():
    observed = np.array([0.45, 0.62], np.float32)
    scene = Scene(User(jnp.float32(0), jnp.int32(10)), jnp.zeros((K, N)), jnp.asarray(observed))

    @jax.jit
    def seen():
        learner = CENTRAL.learner
        views = jax.vmap(partial(learner.first_view, None))(scene.observed, scene.documents)
        return jax.vmap(learner.user_features)(learner.pool_views(views))

    mine = [np.array([10 * (x - 0.5), 0, 0, 0]) for x in observed]
    np.testing.assert_allclose(seen(), [[*mine[0], *mine[1]], [*mine[1], *mine[0]]], atol=1e-5)


def test_nothing_is_promised_without_noise_and_it_is_said_what_is_seen():
    for protocol, says in [(PROTOCOL, "as they are"), (ALONE, "Nothing crosses"), (CENTRAL, "every learner sees it")]:
        account = protocol.account(100, 1e-5)
        assert account.epsilon_round == np.inf
        assert says in str(account.as_json())


def test_settings_that_mean_nothing_are_refused():
    for given, says in [
        ({"learning_rate": 0.0}, "must be positive"),
        ({"sees": (False, False)}, "of one at least"),
        ({"sees": (True,)}, "of each of 2 platforms"),
    ]:
        with pytest.raises(ConfigError, match=says):
            settings(**given)
    with pytest.raises(ConfigError, match="needs online-others"):
        published(faults=(Fault.MOVING_TARGETS,))


def test_of_several_others_omega_is_told_the_mean():
    values = np.random.default_rng(0).normal(size=(3, B, N)).astype(np.float32)
    for others in ("aligned", "pooled"):
        protocol = slates(world={"platforms": 3, "time_budget": 12}, others=others)
        found = jax.jit(lambda x, s=protocol.slates: [others_mean(s, x, p) for p in range(3)])(values)
        for p in range(3):
            mean = np.delete(values, p, axis=0).mean(axis=0)
            mean = np.repeat(mean.mean(axis=1, keepdims=True), N, axis=1) if others == "pooled" else mean
            np.testing.assert_allclose(found[p], mean, rtol=1e-5, atol=1e-6)


def test_the_chance_of_exploring_falls_to_its_floor_or_is_snapped_to_none():
    falling = FederatedSlates(explore=0.8, decay=0.9, floor=0.1)
    np.testing.assert_allclose([falling.epsilon(t) for t in (0, 1, 5, 60)], [0.8, 0.72, 0.8 * 0.9**5, 0.1], rtol=1e-5)
    snapped = PublishedSlates(
        explore=1.0, decay=0.99995, floor=0.0, snap=0.1
    )  # "round 46,050": ln 0.1 / ln 0.99995 = 46,050.6
    assert float(snapped.epsilon(46_000)) == pytest.approx(0.99995**46_000, rel=1e-3)  # a power in single precision
    assert float(snapped.epsilon(46_100)) == 0.0


# -- simulated -------------------------------------------------------------------------------------------------------


def advance(protocol=PROTOCOL, rounds=ROUNDS, seeds=(3,), **simulator):
    """A simulator's run: the server's states, what platforms have, and what is to be seen."""
    simulation, keys = Simulator(protocol, **simulator), run_keys(seeds)
    states, own = simulation.start(keys, keyed(protocol, keys), per_run=True)
    states, own, seen = simulation.advance(keys, states, None, own, 0, rounds)
    return simulation.server(states), own, seen


def keyed(protocol, keys):
    return jax.jit(protocol.parties)(keys)


def close(a, b):
    """Two pytrees equal up to rounding: equal draws, close sums."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_simulator_plays_what_is_played_by_hand():
    states, own, seen = advance(seeds=(3, 4))
    by_hand = played()
    close(jax.tree.map(lambda leaf: leaf[0], (states, own)), (by_hand[-1].state, by_hand[-1].own))
    paid = [h.turns.engagement for h in by_hand[:-1]]
    np.testing.assert_allclose(np.asarray(seen["world"]["engagement"])[:, 0], paid, rtol=1e-4)
    np.testing.assert_array_equal(np.asarray(seen["world"]["over"])[:, 0], [h.over for h in by_hand[:-1]])
    crossed = np.asarray(seen["crossed"])
    for index, e in enumerate(PROTOCOL.exchanges):
        expected = [e.max_asked(K) * bool(e.due(r)) * (e.name != "copy") for r in range(ROUNDS)]
        for run, way in np.ndindex(2, 2):
            assert crossed[:, run, index, way].tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("simulator", [{"chunk": 1}, {"debug": True}], ids=["chunks", "debug"])
def test_chunks_and_debug_mode_change_nothing(simulator):
    rounds = LEARNS[0] + 1  # the first batch is in it
    states, own, seen = advance(rounds=rounds, **simulator)
    by_hand = played()[rounds]
    close(jax.tree.map(lambda leaf: leaf[0], (states, own)), (by_hand.state, by_hand.own))
    acting, learning = rounds * 2 * K, K + 1 + 2 * K
    assert np.asarray(seen["crossed"]).sum() == 2 * (acting + learning)  # a question and an answer each


@pytest.mark.slow
def test_alone_nothing_is_counted_and_b_stays_as_it_was():
    states, own, seen = advance(ALONE)
    start = keyed(ALONE, run_keys((3,))).own
    assert not np.any(seen["crossed"])
    np.testing.assert_array_equal(own.weights[:, 1], start.weights[:, 1])
    assert np.any(np.asarray(own.weights[:, 0]) != np.asarray(start.weights[:, 0]))
    assert same(states.weights, jnp.zeros((1, 1)))


@pytest.mark.slow
def test_replies_that_are_lost_leave_everything_finite_and_omega_as_it_is_where_none_arrives():
    states, own, _ = advance(seeds=(0, 1), conditions=Conditions(dropout=0.4))
    for leaf in jax.tree.leaves((states._replace(key=jnp.zeros(2)), own)):
        assert np.all(np.isfinite(leaf))
    states, own, seen = advance(seeds=(0, 1), conditions=Conditions(absent=(True, True)))
    fresh = jax.vmap(lambda key: PROTOCOL.init(jax.random.fold_in(key, 0xFFFFFFFF)).weights)(run_keys((0, 1)))
    np.testing.assert_array_equal(states.weights, fresh)
    crossed = np.asarray(seen["crossed"])
    assert not np.any(crossed[..., 1])
    assert np.all(crossed[:, :, 0, 0] == K)


@pytest.mark.slow
def test_the_policy_of_fresh_episodes_sees_and_shows_what_platforms_do_that_do_not_explore():
    """No batch is learnt from here, so that the simulated run plays the same policy all the time."""
    protocol = slates(burn_in=1000, explore=0.0, floor=0.0)
    states, own, _ = advance(protocol, seeds=(3,), rounds=1)
    keys = jax.random.split(jax.random.key(7), (1, 64))
    found = np.asarray(jax.jit(protocol.evaluate, static_argnums=0)(protocol.world, states, own, keys).engagement)
    assert found.shape == (1, 64, K)
    _, _, seen = advance(protocol, seeds=(3,), rounds=64 * EPISODE)
    paid = np.asarray(seen["world"]["engagement"])[:, 0].reshape(64, EPISODE, K).sum(axis=1)
    error = np.sqrt(found[0].var(axis=0) / 64 + paid.var(axis=0) / 64)
    assert np.all(np.abs(found[0].mean(axis=0) - paid.mean(axis=0)) < 4 * error)


# -- the published code ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_as_published_all_outputs_saturate_and_the_choice_score_decides():
    """Targets are about 15 and outputs in [-1, 1]: after some updates they are ±1, and nothing is learnt any more.

    With all values equal, a slate is the one that is most likely to be clicked at all by the agents' choice model: the
    highest features, whatever the networks are.
    """
    many = 10
    saturated = published(
        world={"candidates": many, "slate": 3, "time_budget": 122, "fresh": False},
        local_widths=(32,) * 5,
        head_widths=(32,) * 4,
        faults=tuple(Fault),
        choice="published",
        explore=1.0,
        floor=1.0,
        **{"centred": False, "reward_scale": 1.0, "learning_rate": 0.01, "batch": 8, "memory": 60, "burn_in": 40},
    )
    s, simulation, keys = saturated.slates, Simulator(saturated), run_keys((0, 1, 2))
    states, own = simulation.start(keys, keyed(saturated, keys), per_run=True)
    states, own, _ = simulation.advance(keys, states, None, own, 0, 180)  # 46 batches
    server = simulation.server(states)
    joint = np.asarray(jax.vmap(partial(federated_values, s))(server.weights, server.values))
    # To a rounding or two of float32: how tanh is computed depends on how programs are compiled.
    np.testing.assert_allclose(np.abs(joint), 1.0, rtol=0, atol=3e-7)
    # What Ω would learn from a batch, beside what fresh weights would: the slope of tanh, 1 - tanh², is a rounding.
    batch, others = server.batch[:, 0], jax.vmap(lambda values: others_mean(s, values, 0))(server.batch)
    slopes = jax.jit(jax.vmap(jax.grad(lambda w, x, y: jnp.sum(joint_values(s, w, x, y)))))
    fresh = simulation.server(simulation.start(keys, keyed(saturated, keys), per_run=True)[0]).weights
    assert np.abs(slopes(server.weights, batch, others)).max() < 1e-3 * np.abs(slopes(fresh, batch, others)).max()
    # The loss is what the mean target is, less what an output of 1 and Huber's threshold take off.
    assert np.all(np.asarray(server.targets[:, 0]).mean(axis=1) > 5)

    shown = np.sort(np.asarray(jax.vmap(jax.vmap(saturated.learner.best))(own, jnp.asarray(joint))), axis=-1)
    top = np.sort(np.argsort(-np.asarray(own.view.documents), axis=-1)[..., :3], axis=-1)
    np.testing.assert_array_equal(shown, top)
