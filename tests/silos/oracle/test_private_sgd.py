"""DP-SGD: gradients row by row, noise, and an account against calculations of other origin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from short_settings import run_of

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import Unit
from fedrank.core.streams import run_words, split
from fedrank.silos.config import RecordPrivacy, Silos
from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.network import TabularNetwork
from fedrank.silos.records.account import run_account
from fedrank.silos.records.private_sgd import (
    SIGMA,
    Draws,
    NoisyJudgements,
    PrivateSgd,
    noise_multiplier,
    os_noise,
    room,
    sgd_epsilon,
    simulated_noise,
)
from fedrank_zoo.local_only import LocalOnly

NETWORK = TabularNetwork(4, (3,), "layer")
ROWS = 9
CLIP = 0.95


KEY = run_words([3])


def silo(n=ROWS, seed=0):
    """One silo: leading axis [1]."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((ROWS, 4)) * 3, (rng.random(ROWS) < 0.5).astype(float)
    x[n:], y[n:] = 1e9, 1
    return Rows(x[None].astype(np.float32), y[None].astype(np.float32), np.array([n], np.int32))


def made(**settings):
    settings = {"epochs": 1, "batch": 4, "learning_rate": 0.5, "clip": CLIP, "epsilon": 3.0} | settings
    return private(NETWORK, **settings).for_rows({ROWS, 7})


def private(network, clip=1.0, epsilon=8.0, delta=1e-6, **settings):
    return PrivateSgd(network, privacy=RecordPrivacy(epsilon=epsilon, delta=delta, clip=clip), **settings)


def loss_of_one_row(theta, x, y):
    """By hand: no batch, no mask."""
    w1, b1, g, s, w2, b2 = jnp.split(theta, np.cumsum([12, 3, 3, 3, 6]))
    h = x @ w1.reshape(4, 3) + b1
    h = (h - h.mean()) / jnp.sqrt(h.var() + 1e-5) * g + s
    logits = jnp.maximum(h, 0) @ w2.reshape(3, 2) + b2
    return jax.nn.logsumexp(logits) - logits[y.astype(int)]


_BY_HAND = jax.jit(jax.grad(loss_of_one_row))


@pytest.mark.parametrize(("n", "batch"), [(ROWS, 4), (7, 4), (7, 9)])
def test_a_step_is_the_sum_of_clipped_gradients_of_rows_one_by_one(n, batch):
    sgd, rows = made(batch=batch, weight_decay=0.2), silo(n)
    theta = NETWORK.initial(KEY)
    draws = sgd.draw(run_words([1]), sgd.rng_shape(ROWS))
    draws = Draws(draws.batches, np.zeros_like(draws.noise))
    q = min(1.0, batch / n)
    wanted, lengths, sizes = theta[0].astype(float), [], []
    for bits in draws.batches[0][: -(-n // min(batch, n))]:
        total, chosen = np.zeros(NETWORK.trainable), [i for i in range(n) if q == 1 or bits[i] < q * 2**32]
        for i in chosen:
            gradient = np.asarray(_BY_HAND(jnp.asarray(wanted, jnp.float32), rows.x[0, i], rows.y[0, i]), float)
            lengths.append(np.linalg.norm(gradient))
            total += gradient * min(1, CLIP / lengths[-1])
        sizes.append(len(chosen))
        wanted = wanted - 0.5 * (total / (q * n) + 0.2 * wanted)
    np.testing.assert_allclose(sgd.train(theta, rows, draws)[0], wanted, rtol=2e-4, atol=2e-4)
    assert min(lengths) < CLIP < max(lengths) and (batch == 9 or len(set(sizes)) > 1 or n == 7)


def test_no_record_moves_a_step_further_than_the_noise_is_made_for():
    """Whatever stands in a row, with rounding: at most σ/z each way, for opposite gradients."""
    sgd, rng = made(batch=9), np.random.default_rng(0)
    theta = NETWORK.initial(run_words([0]))
    none = Draws(np.zeros((1, 1, ROWS), np.uint32), np.zeros((1, 1, NETWORK.trainable), np.int32))
    z = dict(sgd.multipliers)[ROWS]
    # With σ of the noise z C the sum moves by η z C / n for each σ of noise: what the update moves in that unit.
    one = Draws(none.batches, none.noise.copy())
    one.noise[0, 0, 0] = SIGMA
    sigma = np.abs(sgd.train(theta, silo(), one) - sgd.train(theta, silo(), none)).max()
    far = 0.0
    for scale in (1e-3, 1.0, 1e3, 1e30, np.inf):
        out = []
        for sign in (-1, 1):
            rows = silo()
            with np.errstate(invalid="ignore", over="ignore"):
                rows.x[0, 2] = rng.standard_normal(4) * sign * scale
            rows.y[0, 2] = sign > 0
            out.append(sgd.train(theta, rows, none))
        assert np.isfinite(out).all()
        far = max(far, float(np.linalg.norm(out[0] - out[1])) / sigma)
    assert 0.9 < far * z <= 2 * 1.0001


@pytest.mark.parametrize("noise", [os_noise, lambda shape: simulated_noise(run_words([0])[0], shape)])
def test_noise_has_the_deviation_it_should_have(noise):
    drawn = np.asarray(noise((200, 200)), float) / SIGMA
    count = drawn.size
    assert abs(drawn.mean()) < 4 / count**0.5
    low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], count) / count
    assert low < (drawn**2).mean() < high
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-4
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 5 / count**0.5


def test_noise_of_a_step_is_z_times_the_longest_gradient():
    sgd, rows = made(batch=9), silo()
    theta = NETWORK.initial(run_words([0]))
    draws = sgd.draw(split(run_words([5])[0], 400), sgd.rng_shape(ROWS))
    out = sgd.train(theta.repeat(400, 0), Rows(*(leaf.repeat(400, 0) for leaf in rows)), draws)
    z = dict(sgd.multipliers)[ROWS]
    # η/n times z C, and a little for rounding, that is less than a part in a hundred here.
    assert out.std(axis=0).mean() == pytest.approx(0.5 / ROWS * z * CLIP, rel=0.02)


def gaussian_delta(distance, epsilon):
    """δ of two normal distributions of deviation 1 so far apart (Balle and Wang, ICML 2018, Theorem 8)."""
    cdf = stats.norm.cdf
    return cdf(distance / 2 - epsilon / distance) - np.exp(epsilon) * cdf(-distance / 2 - epsilon / distance)


@pytest.mark.parametrize(("z", "steps"), [(5.0, 1), (20.0, 30), (60.0, 96)])
def test_without_sampling_the_account_is_gaussian_noise_in_closed_form(z, steps):
    """Steps of the Gaussian mechanism are one with a distance √T times as large; the other record is 2 C away."""
    delta = 1e-5
    wanted = optimize.brentq(lambda e: gaussian_delta(2 / z * steps**0.5, e) - delta, 0, 60)
    assert wanted <= sgd_epsilon(z, 1.0, steps, delta) <= wanted * 1.02 + 2e-3


@pytest.mark.parametrize(("z", "q"), [(1.5, 0.1), (4.0, 0.5)])
def test_with_sampling_one_step_is_the_integral_of_the_mixtures(z, q):
    def density(x, side):
        return (1 - q) * stats.norm.pdf(x, 0, z) + q * stats.norm.pdf(x, side, z)

    epsilon = sgd_epsilon(z, q, 1, 1e-3)
    (delta, _) = integrate.quad(
        lambda x: max(0.0, density(x, 1) - np.exp(epsilon) * density(x, -1)), -12 * z, 12 * z, limit=500, epsabs=1e-9
    )
    assert 0.95e-3 < delta <= 1e-3


def test_many_sampled_steps_agree_with_renyi_divergences_by_quadrature():
    """Rényi divergence of one step by numerical integration, times the steps, to ε (Mironov 2017): never much below."""
    z, q, steps, delta = 3.0, 0.05, 500, 1e-5
    x = np.linspace(-40, 40, 4001)
    p, o = ((1 - q) * stats.norm.pdf(x, 0, z) + q * stats.norm.pdf(x, side, z) for side in (1, -1))
    orders = np.arange(1.5, 40, 0.5)
    renyi = [np.log(np.sum(np.exp(a * np.log(p) + (1 - a) * np.log(o))) * (x[1] - x[0])) / (a - 1) for a in orders]
    bound = min(
        steps * r + np.log((a - 1) / a) - (np.log(delta) + np.log(a)) / (a - 1)
        for a, r in zip(orders, renyi, strict=True)
    )
    assert 0.8 * bound < sgd_epsilon(z, q, steps, delta) < bound


def test_the_noise_is_the_least_for_its_epsilon_and_a_batch_has_room():
    z = noise_multiplier(0.1, 300, 2.0, 1e-6)
    assert sgd_epsilon(z, 0.1, 300, 1e-6) <= 2.0 < sgd_epsilon(z / 1.005, 0.1, 300, 1e-6)
    width = room(200, 0.08, 1000, 8.0, 1e-6)
    chance = 1000 * stats.binom.sf(width, 200, 0.08) * (1 + np.e**8)
    assert chance <= 1e-8 < 1000 * stats.binom.sf(width - 1, 200, 0.08) * (1 + np.e**8)
    assert room(20, 1.0, 10, 1.0, 1e-6) == 20


def test_a_run_is_counted_with_its_first_training_and_the_silo_that_has_least():
    sgd = made(trainings=6, epsilon=2.0)
    report = run_account(sgd, 5, 1e-6, pretrain=True, judged=3.0)
    assert report.epsilon(Unit.RECORD) == 3.0 and 1.9 < report.epsilon(Unit.RECORD, scope="training rows") <= 2.0
    assert run_account(sgd, 2, 1e-6, pretrain=True).epsilon(Unit.RECORD) < 1.6
    assert run_account(sgd, 0, 1e-6, pretrain=True).epsilon(Unit.RECORD) == 0.0


def test_what_a_target_tells_has_the_epsilon_of_gaussian_noise():
    noise, rng = NoisyJudgements(4.0, 1e-6, 60), np.random.default_rng(0)
    rows = silo(7)
    rarer = min(int(rows.y[0, :7].sum()), 7 - int(rows.y[0, :7].sum()))
    values = np.full((1, 4000), 0.5, np.float32)
    noisy = noise.add_noise(values, rows, np.rint(SIGMA / 50 * rng.standard_normal((1, 4000))).astype(np.int32))
    sigma = noisy.std() * 50
    # 60 AUCs, each moved by 1/rarer at most.
    apart = 60**0.5 / rarer / sigma
    assert gaussian_delta(apart, 4.0) < 1e-6 < gaussian_delta(apart * 1.2, 4.0)
    assert noise.spent(60, 1e-6) == pytest.approx(4.0, rel=1e-4) and noise.spent(15, 1e-6) < 2.0
    for move in (0, 40):
        told = [
            noise.add_noise(np.array([[value]], np.float32), rows, np.array([[move]], np.int32))[0, 0]
            for value in (np.nan, 0.5)
        ]
        assert told[0] == told[1], "an AUC of rows of one label is one half, with noise"


def test_wrong_settings_are_refused():
    for settings, said in [
        ({"epsilon": 0.0}, "above 0"),
        ({"delta": 0.5}, "below 0.1"),
        ({"clip": 0.0}, "clip"),
        ({"trainings": 0}, "trainings"),
        ({"network": TabularNetwork(4, (3,), "batch")}, "layer"),
        ({"network": TabularNetwork(4, (3000, 3000), "none"), "epsilon": 1.0, "trainings": 100}, "too large"),
    ]:
        network = settings.pop("network", NETWORK)
        with pytest.raises(ConfigError, match=said):
            private(network, **settings).for_rows({ROWS})


@pytest.mark.parametrize(
    ("silos", "said"), [({"stratified": True, "train": 0.5}, "stratified"), ({"first_look": True}, "first_look")]
)
def test_a_run_refuses_what_would_tell_of_records_without_noise(silos, said):
    with pytest.raises(ConfigError, match=said):
        run_of("fedavg", privacy=RecordPrivacy(epsilon=1.0), silos=Silos(**silos)).resolved()


def test_another_training_has_no_epsilon():
    sgd = made()
    with pytest.raises(ConfigError, match="fedavg"):
        sgd.train(NETWORK.initial(KEY), silo(), sgd.draw(KEY, (1, ROWS)), sgd.descent)


def test_a_row_whose_score_is_no_number_moves_an_auc_by_one_row():
    """A weight that overflows on one row alone: without the remedy that row decides whether there is an AUC."""
    network = TabularNetwork(1, (1,), "none")
    protocol = LocalOnly(PrivateSgd(network, epochs=1), 1, 6)
    x = np.array([[-1.0], [-0.5], [0.5], [1.0], [0.2], [1.9]], np.float32)
    y = np.array([0, 1, 0, 1, 0, 1], np.float32)
    model = np.zeros(network.size, np.float32)
    model[0] = 2e38

    def measured(rows):
        held = Rows(rows[None, None], y[None, None], np.array([[len(y)]], np.int32))
        return float(protocol.performance(model[None, None], protocol.parties(SiloArrays(*(held,) * 3)))[0, 0])

    with np.errstate(all="ignore"):
        assert not np.isfinite(network.scores(model, x)).all()
    other = x.copy()
    other[5] = 0.1
    assert np.isfinite(measured(x)) and abs(measured(x) - measured(other)) <= 1 / 3 + 1e-6
