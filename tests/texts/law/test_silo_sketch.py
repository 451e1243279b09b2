"""Training of CS-F-LTR in the simulator against Algorithm 3 in plain loops of NumPy, given the same batches."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.rng import party_key
from fedrank.engine import runner
from fedrank.engine import simulator as rounds_of
from fedrank.engine.run import Interrupted, resume_experiment, run_experiment
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.texts.config import Training
from fedrank.texts.graded import GradedLearner
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI, SketchRows

FEATURES, GRADES, SILOS, QUERIES, DOCUMENTS, FOREIGN = 3, 3, 3, 5, 4, 4
SIZE = (FEATURES + 1) * GRADES
#: Silo 2 has no document of another one.
ALONE = 2
RATE, L2, RAMP, LOCAL, BATCH, CROSS, BETA, PLUS = 0.3, 0.01, 4, 6, 5, 3, 0.8, 0.6
ROUNDS, SEED = 3, 11
EVERYBODY = Conditions()
#: Variants: the protocol, labelled rows only, true labels.
BETAS, TRUTHS = (BETA, 0.0, BETA), (False, False, True)


def _rows(seed=0):
    """Rows of three silos by lot; queries of every part, padding in between."""
    rng = np.random.default_rng(seed)
    q, d, c = (SILOS, QUERIES), (SILOS, QUERIES, DOCUMENTS), (SILOS, QUERIES, FOREIGN)
    part = np.tile(np.array([TRAIN, TEST, TRAIN, VALI, UNUSED], np.int32), (SILOS, 1))
    where, cross_where = rng.random(d) < 0.8, rng.random(c) < 0.8
    where[:, :, 0] = cross_where[:, :, 0] = True
    where[part == UNUSED], cross_where[part == UNUSED], cross_where[ALONE] = False, False, False
    places = [
        [np.flatnonzero(there[k] & (part[k] == TRAIN)[:, None]) for k in range(SILOS)] for there in (where, cross_where)
    ]

    def padded(lists):
        most = max(1, *map(len, lists))
        return np.stack([np.pad(one, (0, most - len(one))) for one in lists]).astype(np.int32)

    counts = [[len(places[0][k]), len(places[1][k]), 2] for k in range(SILOS)]
    arrays = SketchRows(
        rng.normal(size=(*d, FEATURES)).astype(np.float32),
        rng.integers(0, GRADES, d).astype(np.int32),
        where,
        part,
        rng.normal(size=(*c, FEATURES)).astype(np.float32),
        rng.integers(0, GRADES, c).astype(np.int32),
        cross_where,
        padded(places[0]),
        padded(places[1]),
        np.tile(np.array([0, 2], np.int32), (SILOS, 1)),
        np.array(counts, np.int32),
    )
    assert arrays.x.shape[:3] == (*q, DOCUMENTS)
    return SketchRows(*(leaf[None, None] for leaf in arrays))


def _protocol(learner=None, **changed):
    training = {"local_steps": LOCAL, "batch": BATCH, "cross_batch": CROSS, "beta": BETA, "ramp": RAMP}
    learner = learner or GradedLearner(FEATURES, GRADES, l2=L2, learning_rate=RATE)
    return SiloSketch(training=Training(**training | {"plus_beta": PLUS} | changed), learner=learner)


def _advance(protocol, conditions=EVERYBODY, rounds=ROUNDS):
    """States, own and what was seen, after each round; runs are the three variants of one seed."""
    simulator = Simulator(protocol, conditions=conditions, record=True)
    parties = protocol.parties(_rows(), BETAS, [0] * 3, TRUTHS)
    keys = run_keys([SEED] * 3)
    states, own = simulator.start(keys, parties, per_run=True)

    def once(states, own, number):
        return rounds_of._advance(simulator, 1, keys, states, parties.shared, own, number)

    # What Simulator.advance calls, compiled without the passes that make long runs fast.
    once, history = jax.jit(once), []
    for number in range(rounds):
        states, own, seen = once(states, own, jnp.uint32(number))
        history.append(jax.tree.map(np.asarray, (states, own, seen)))
    return history


@pytest.fixture(scope="module")
def together():
    return _advance(_protocol())


@pytest.fixture(scope="module")
def lossy():
    """Silo 1 is never heard, and silos take turns: one program for both."""
    return _advance(_protocol(serial=True), Conditions(absent=(False, True, False)), rounds=4)


class Plain:
    """Algorithm 3 in loops, double precision; only which rows make a batch comes from the program's generator."""

    def __init__(self):
        self.rows = SketchRows(*(leaf[0, 0] for leaf in _rows()))

    def words(self, number, silo, exchange):
        """A silo's chance in one exchange: keys are folded by round, party and exchange."""
        key = party_key(jax.random.key(SEED), jnp.uint32(number), jnp.uint32(silo))
        return jax.random.bits(jax.random.fold_in(key, exchange), (2,), jnp.uint32)

    def batch(self, words, step, silo, cross):
        key = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(words), jnp.uint32(step)))[int(cross)]
        there = self.rows.counts[silo, int(cross)]
        size = CROSS if cross else BATCH
        chosen = np.asarray(jax.random.randint(key, (size,), 0, jnp.int32(max(there, 1))))
        places = (self.rows.cross_rows if cross else self.rows.rows)[silo][chosen]
        return places if there else places[:0]

    def gradient(self, model, x, target):
        """Of the mean cross-entropy of a softmax: mean of x (p - y)."""
        if not len(x):
            return np.zeros(SIZE)
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        return (x.T @ (self.chances(model, x) - target) / len(x)).reshape(-1)

    def chances(self, model, x):
        logits = x @ model.reshape(FEATURES + 1, GRADES)
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def guess(self, model, silo):
        x = self.rows.cross_x[silo].reshape(-1, FEATURES)
        chances = self.chances(model, np.concatenate([x, np.ones((len(x), 1))], axis=1))
        return np.eye(GRADES)[chances.argmax(axis=1)]

    def train(self, model, silo, words, steps, guessed, beta, done):
        r = self.rows
        penalty = np.repeat([1.0] * FEATURES + [0.0], GRADES)
        for step in range(steps):
            own, cross = self.batch(words, step, silo, False), self.batch(words, step, silo, True)
            weight = beta * min(1.0, (done + step) / RAMP)
            slope = self.gradient(
                model, r.x[silo].reshape(-1, FEATURES)[own], np.eye(GRADES)[r.y[silo].reshape(-1)[own]]
            )
            slope = slope + 2 * L2 * penalty * model
            if weight and len(cross):
                slope = slope + weight * self.gradient(
                    model, r.cross_x[silo].reshape(-1, FEATURES)[cross], guessed[cross]
                )
            model = model - RATE * slope
        return model

    def play(self, beta, truth, rounds, absent=(), serial=False):
        """Local, Local+ and guesses of each silo, the labeller, and the ranker after each round."""
        nothing = np.zeros((QUERIES * FOREIGN, GRADES))
        local, plus = [], []
        for silo in range(SILOS):
            words = self.words(0, silo, 0)
            local.append(self.train(np.zeros(SIZE), silo, words, LOCAL, nothing, 0.0, 0))
            mine = self.guess(local[silo], silo)
            plus.append(self.train(local[silo], silo, words ^ jnp.uint32(0x9E3779B9), LOCAL, mine, PLUS, 0))
        heard = [silo for silo in range(SILOS) if silo not in absent]
        labeller = ranker = np.mean([local[silo] for silo in heard], axis=0)
        guessed = [
            np.eye(GRADES)[self.rows.cross_y[silo].reshape(-1)] if truth else self.guess(labeller, silo)
            for silo in range(SILOS)
        ]
        rankers = []
        for number in range(rounds):
            turn = [number % SILOS] if serial else range(SILOS)
            changes = [
                self.train(ranker, silo, self.words(number, silo, 2), 1, guessed[silo], beta, number) - ranker
                for silo in turn
                if silo in heard
            ]
            ranker = ranker + (np.mean(changes, axis=0) if changes else 0)
            rankers.append(ranker)
        return local, plus, guessed, labeller, rankers


@pytest.fixture(scope="module")
def plain():
    return Plain()


@pytest.mark.parametrize("variant", range(3), ids=["guessed", "beta 0", "true labels"])
def test_rounds_are_those_of_algorithm_3(together, plain, variant):
    local, plus, guessed, labeller, rankers = plain.play(BETAS[variant], TRUTHS[variant], ROUNDS)
    for number, (states, own, _) in enumerate(together):
        np.testing.assert_allclose(states.weights[variant], rankers[number], rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(states.labeller[variant], labeller, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(own.local[variant], local, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(own.plus[variant], plus, rtol=1e-4, atol=2e-6)
        assert states.round[variant] == number + 1
        found = own.guessed[variant].reshape(SILOS, -1, GRADES)
        np.testing.assert_array_equal(found, guessed)


def test_beta_0_is_federated_sgd_on_labelled_rows_and_others_are_not(together, plain):
    """The control differs from the protocol as soon as beta has grown above 0: after the second round."""
    after = [states.weights for states, _, _ in together]
    np.testing.assert_array_equal(after[0][0], after[0][1])
    assert np.abs(after[1][0] - after[1][1]).max() > 1e-3
    assert np.abs(after[1][0] - after[1][2]).max() > 1e-3


def test_the_labeller_is_the_mean_of_the_local_models(together):
    states, own, _ = together[0]
    np.testing.assert_allclose(states.labeller, own.local.mean(axis=1), rtol=1e-5, atol=1e-7)
    assert (np.ptp(own.local, axis=1) > 0.01).any()


def test_no_round_changes_what_a_silo_learnt_alone(together):
    for name in ("local", "plus", "guessed", "beta", "truth"):
        for _, own, _ in together[1:]:
            np.testing.assert_array_equal(getattr(own, name), getattr(together[0][1], name), err_msg=name)


def test_a_silo_without_cross_pairs_learns_from_its_labels_alone(together):
    """Its steps do not depend on beta or labels: from the same ranker, the same change."""
    sent = together[0][2]["replies"][2].weights[0]  # [variants, silos, size]; the first round begins from one ranker
    np.testing.assert_array_equal(sent[0, ALONE], sent[1, ALONE])
    own = together[0][1]
    np.testing.assert_array_equal(own.local[0, ALONE].shape, (SIZE,))
    assert np.isfinite(own.plus).all()


def test_the_first_two_exchanges_take_place_once(together):
    crossed = np.stack([seen["crossed"][0, 0] for _, _, seen in together])  # [rounds, exchanges, 2]
    np.testing.assert_array_equal(crossed, [[[3, 3]] * 3] + [[[0, 0], [0, 0], [3, 3]]] * (ROUNDS - 1))


@pytest.mark.slow  # compiles another program
def test_silos_in_turn_step_one_a_round_and_a_silent_one_changes_nothing(lossy, plain):
    local, _, _, labeller, rankers = plain.play(BETA, False, 4, absent=(1,), serial=True)
    np.testing.assert_allclose(labeller, (local[0] + local[2]) / 2)
    for number, (states, own, seen) in enumerate(lossy):
        np.testing.assert_allclose(states.weights[0], rankers[number], rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(states.labeller[0], labeller, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(own.local[0], local, rtol=1e-4, atol=2e-6)
        assert seen["crossed"][0, 0, 2].tolist() == [1, 0 if number % SILOS == 1 else 1]
    np.testing.assert_array_equal(lossy[1][0].weights, lossy[0][0].weights)
    assert (lossy[2][0].weights != lossy[1][0].weights).any()


def test_in_turn_one_silo_is_asked_and_all_at_once_everybody():
    protocol = _protocol(serial=True)
    step, state = protocol.exchanges[2], protocol.init(None)
    assert step.max_asked(SILOS) == 1 and protocol.exchanges[0].asked(state, SILOS) is None
    for number in range(5):
        asked = step.asked(state._replace(round=jnp.uint32(number)), SILOS)
        assert np.flatnonzero(asked).tolist() == [number % SILOS]
    at_once = _protocol().exchanges[2]
    assert at_once.asked(state, SILOS) is None and at_once.max_asked(SILOS) == SILOS


def test_a_silo_that_is_not_heard_has_no_part_in_the_labeller():
    protocol = _protocol()
    local, state = protocol.exchanges[0], protocol.init(None)
    models = jnp.stack([jnp.full(SIZE, 1.0), jnp.full(SIZE, 1e6), jnp.full(SIZE, 3.0)])
    replies = local.reply.message(weights=models, rows=jnp.ones(SILOS, jnp.uint32))
    after = local.tell(state, replies, jnp.array([True, False, True]))
    np.testing.assert_array_equal(after.labeller, jnp.full(SIZE, 2.0))
    np.testing.assert_array_equal(after.weights, after.labeller)


@pytest.mark.slow
def test_a_listwise_batch_is_whole_lists_of_training_queries(plain):
    protocol = _protocol(learner=GradedLearner(FEATURES, GRADES, "listwise"), batch=11)
    rows = SketchRows(*(leaf[1] for leaf in plain.rows))
    grades = jnp.asarray(np.eye(GRADES)[rows.y], jnp.float32)
    rows = jax.tree.map(jnp.asarray, rows)
    batch = protocol._batch(jax.random.key(0), rows.x, grades, rows.where, rows.rows, rows, 0, 11)
    assert batch.x.shape == (11 // DOCUMENTS, DOCUMENTS, FEATURES)
    for x, y, where in zip(batch.x, batch.grades, batch.where, strict=True):
        same = [q for q in range(QUERIES) if np.array_equal(x, rows.x[q])]
        assert len(same) == 1 and rows.part[same[0]] == TRAIN
        np.testing.assert_array_equal(where, rows.where[same[0]])
        np.testing.assert_array_equal(y, grades[same[0]])


def test_a_model_that_is_no_number_counts_as_not_heard():
    protocol = _protocol()
    state = protocol.init(None)
    weights = jnp.stack([jnp.full(SIZE, 1.0), jnp.full(SIZE, jnp.nan), jnp.full(SIZE, 5.0)])
    step = protocol.exchanges[2]
    after = step.tell(state, step.reply.message(weights=weights), jnp.array([True, True, True]))
    np.testing.assert_array_equal(after.weights, jnp.full(SIZE, 3.0))
    after = step.tell(state, step.reply.message(weights=weights), jnp.array([False, True, False]))
    np.testing.assert_array_equal(after.weights, state.weights)


def test_messages_cross_and_have_public_axes_only(together):
    protocol, (states, _, seen) = _protocol(), together[0]
    for index, exchange in enumerate(protocol.exchanges):
        for layout in (exchange.request, exchange.reply):
            assert {axis for field in layout.fields for axis, _ in field.axes} <= {"parameters"} < set(PUBLIC_AXES)
        reply = jax.tree.map(lambda leaf: leaf[0, 0, 1], seen["replies"][index])
        request = exchange.ask(jax.tree.map(lambda leaf: leaf[0], states))
        for layout, message in ((exchange.request, request), (exchange.reply, reply)):
            octets = layout.encode(message)
            assert len(octets) == layout.nbytes
            back = layout.decode(octets)
            for field in layout.fields:
                np.testing.assert_array_equal(getattr(back, field.name), np.asarray(getattr(message, field.name)))


@pytest.mark.slow  # compiles another program
def test_steps_of_one_round_are_as_many_steps(plain):
    """Three steps in the second round, at one silo: SGD from the ranker it was sent, while beta goes on growing."""
    protocol = _protocol(steps=3)
    party = protocol.parties(_rows())
    me = party._replace(own=jax.tree.map(lambda leaf: leaf[0, 0], party.own))
    words = plain.words(5, 0, 2)
    step = protocol.exchanges[2]
    start = jnp.linspace(-0.5, 0.5, SIZE)
    guessed = np.eye(GRADES)[plain.rows.cross_y[0].reshape(-1)]
    me = me._replace(own=me.own._replace(guessed=jnp.asarray(guessed, jnp.float32).reshape(QUERIES, FOREIGN, GRADES)))
    _, sent = jax.jit(step.respond)(step.request.message(round=jnp.uint32(1), weights=start), me, words)
    first = np.asarray(start, float)
    wanted = plain.train(first, 0, words, 3, guessed, BETA, 3) - first
    np.testing.assert_allclose(sent.weights, wanted, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("wrong", [{"beta": -0.1}, {"local_steps": 0}, {"ramp": -1}, {"batch": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        _protocol(**wrong)


TINY = from_dict(
    {
        "protocol": "silo-sketch",
        "data": "generated",
        "rounds": 4,
        "seeds": 1,
        "texts": {"silos": 3, "depth": 8, "negatives": 2, "foreign": 4},
        "sketch": {"mode": "plain", "z": 2, "w": 64, "statistics_z": 2, "statistics_w": 512},
        "training": {"local_steps": 5, "batch": 16, "cross_batch": 16, "ramp": 2},
        "evaluation": {"every": 2, "measures": ["nDCG(dcg='exp-log2')@10"], "baselines": ["local"]},
    }
)


class _Stops(runner.Listener):
    def progress(self, beat):
        if beat.round == 2:
            os.kill(os.getpid(), 2)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same_files(tmp_path):
    whole = run_experiment(TINY, tmp_path / "whole")
    with pytest.raises(Interrupted):
        run_experiment(TINY, tmp_path / "run", listener=_Stops())
    stopped = tmp_path / "run"
    assert not (stopped / "done.json").exists()
    resume_experiment(stopped)
    for name in ("metrics.parquet", "methods.parquet", "per_query.parquet"):
        assert pl.read_parquet(stopped / name).equals(pl.read_parquet(whole / name)), name
    for name in ("gate.json", "federation.json", "ledger.jsonl", "privacy.json", "baselines.json", "messages.json"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
    weights = [(folder / "weights" / "seed0.safetensors").read_bytes() for folder in (stopped, whole)]
    assert weights[0] == weights[1]
    assert pl.read_parquet(whole / "metrics.parquet")["round"].unique().sort().to_list() == [2, 4]


@pytest.mark.slow
def test_another_seed_alone_is_that_seed_among_others(tmp_path):
    both = dataclasses.replace(TINY, seeds=2)
    second = dataclasses.replace(TINY, seed=1)
    frames = [
        pl.read_parquet(run_experiment(config, tmp_path / str(number)) / "methods.parquet").filter(pl.col("seed") == 1)
        for number, config in enumerate((both, second))
    ]
    assert len(frames[1]) > 10
    assert frames[0].drop("value").equals(frames[1].drop("value"))
    np.testing.assert_allclose(frames[0]["value"], frames[1]["value"], atol=1e-5)
