"""FedSlate against its equations: networks, losses, gradients and optimisers are written again here, in NumPy.

Equation numbers are those of Deng et al., arXiv 2409.14872. Gradients are central differences of the whole
composite, local network through Ω to the loss, in double precision and in one place, as if nothing had been split.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from silo_worlds import QUICK
from slate_worlds import (
    COPIES,
    DISCOUNT,
    EPISODE,
    EXPLORES,
    LEARNS,
    MEMORY,
    RATE,
    ROUNDS,
    SCALE,
    SLATE,
    WIDTH,
    B,
    K,
    N,
    asked,
    exchange,
    learnt,
    played,
    same,
    settings,
    slates,
)

from fedrank.protocols.vertical_slate_state import Exploration, Faults, Moment, choice_scores

LAST = LEARNS[-1]


# -- the same again, in NumPy ----------------------------------------------------------------------------------------


def f64(tree):
    """A pytree in double precision; integers stay."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else None), tree)


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


def mlp(weights, x, layers):
    """Linear layers with Mish between them; weights are W [inputs, outputs] row by row, then b, layer by layer."""
    for at, (before, after) in enumerate(layers):
        matrix, weights = weights[: before * after].reshape(before, after), weights[before * after :]
        x, weights = x @ matrix + weights[:after], weights[after:]
        x = mish(x) if at < len(layers) - 1 else x
    assert not len(weights)
    return x[..., 0]


def q_local(weights, user, items):
    """Q(s, i) [..., N] of users [..., F] and candidates [..., N, d]."""
    users = np.broadcast_to(user[..., None, :], (*items.shape[:-1], user.shape[-1]))
    return mlp(weights, np.concatenate([users, items], axis=-1), [(5, WIDTH), (WIDTH, 1)])


def omega(weights, own, others):
    """Ω([own ‖ others]) [..., N]."""
    means = [np.broadcast_to(x.mean(axis=-1, keepdims=True), x.shape) for x in (own, others)]
    correction = mlp(weights[:-2], np.stack([own, others, *means], axis=-1), [(4, WIDTH), (WIDTH, 1)])
    return weights[-2] * own + weights[-1] * others + correction


def kaleness(items):
    return items[..., 0] / 12**0.5 + 0.5


def choices(learnt, items):
    """v(s, i) of users who always click; β is the first of the learnt numbers."""
    return np.exp(learnt[0] * kaleness(items))


def worth(v, q, slate, none=0.0):
    """Equation 5 of one slate; ``none`` is the score of no click."""
    return np.sum(v[slate] * q[slate]) / (np.sum(v[slate]) + none)


def greedy(v, q, none=0.0):
    """Equation 8, item by item."""
    slate = []
    for _ in range(SLATE):
        free = [i for i in range(N) if i not in slate]
        slate.append(max(free, key=lambda i: worth(v, q, [*slate, i], none)))
    return slate


def huber(error):
    size = np.abs(error)
    return np.where(size <= 1, 0.5 * size**2, size - 0.5)


def slope(f, at, step=1e-5):
    """Central differences of a function of an array, in the array's shape."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        there = np.zeros(at.shape)
        there[place] = step
        found[place] = (f(at + there) - f(at - there)) / (2 * step)
    return found


def adam(gradient, weights, optimiser):
    """A step of Kingma and Ba's method, from the count and the two means that are kept."""
    count, mean, square = (np.asarray(leaf, np.float64) for leaf in optimiser[0])
    mean, square, count = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2, count + 1
    return weights - RATE * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)


def count(optimiser):
    return np.asarray(optimiser[0].count).tolist()


def one(tree, platform):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[platform], tree)


def remembered(number, ages):
    """Of each age, the number of the round it means once ``number`` is over."""
    return number - np.asarray(ages, int)


def looked_up(number, ages):
    """The moments of those ages, from what was there in those rounds and not from any memory: leaves [K, B, ...]."""
    history, rounds = played(), remembered(number, ages)
    rows = []
    for r in rounds:
        h = history[r]
        told = np.asarray([1, 0])
        rows.append(
            Moment(
                user=np.stack([features(p)[r] for p in range(K)]),
                items=(f64(h.own.view.documents)[..., None] - 0.5) * 12**0.5,
                slate=np.asarray(h.shown),
                item=np.where(told, h.turns.item, -1),
                slot=np.where(told, h.turns.slot, SLATE),
                engagement=np.where(told, f64(h.turns.engagement) / SCALE, 0.0),
                over=np.full(K, float(h.over)),
            )
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *rows)


def features(platform):
    """What a platform's network is told of the user at the beginning of each round, [ROUNDS + 1, 4].

    The satisfaction that it sees, smoothed too, what was consumed and how engaging it was; a platform without feedback
    goes by what its own choice model expects of its slates. All begin anew with a user.
    """
    found, smooth, consumed, engaged = [], 0.0, 0.0, 0.0
    for r, h in enumerate(played()):
        observed = float(h.scene.observed[platform]) - 0.5
        if r and not played()[r - 1].over:
            before = played()[r - 1]
            k = f64(before.scene.documents)[platform]
            slate = np.asarray(before.shown)[platform]
            if platform == 0:
                eaten, paid = k[int(before.turns.item[0])], float(before.turns.engagement[0]) / SCALE - 1
            else:
                # Its choice model when the round was lived: what the last batch before it taught.
                v = np.exp(float(before.own.choice[platform][0]) * k[slate])
                eaten, paid = np.sum(v * k[slate]) / np.sum(v), 0.0
            smooth, engaged = 0.81 * smooth + 0.19 * observed, 0.81 * engaged + 0.19 * paid
            consumed = 0.81 * consumed + eaten - 0.5
        else:
            smooth, consumed, engaged = 0.0, 0.0, 0.0
        found.append([10 * observed, 10 * smooth, consumed, engaged])
    return np.asarray(found)


# -- acting ----------------------------------------------------------------------------------------------------------


def test_platforms_act_by_omega_of_their_own_values_first_and_the_others_second():
    for r in (0, LAST):
        h = played()[r]
        local, sent = f64(h.own.weights), f64(h.told["look"].replies.values)
        items = (f64(h.scene.documents)[..., None] - 0.5) * 12**0.5
        for p in range(K):
            np.testing.assert_allclose(sent[p], q_local(local[p], features(p)[r], items[p]), rtol=1e-4, atol=1e-5)
            joint = omega(f64(h.state.weights), sent[p], sent[1 - p])
            np.testing.assert_allclose(h.told["recommend"].request.values[p], joint, rtol=1e-4, atol=1e-5)
    assert np.abs(omega(f64(h.state.weights), sent[1], sent[0]) - joint).max() == 0
    assert np.abs(omega(f64(h.state.weights), sent[0], sent[1]) - joint).max() > 1e-3


def test_slates_are_greedy_by_the_federated_values_or_random_by_a_coin_of_each_platform():
    e, explored = exchange("recommend"), []
    for r in range(ROUNDS):
        h, key = played()[r], jax.random.fold_in(jax.random.key(3), r)
        for p in range(K):
            coin = e.draw(jax.random.fold_in(jax.random.fold_in(key, p), 1))
            q = f64(h.told["recommend"].request.values)[p]
            best = greedy(np.exp(float(h.own.choice[p][0]) * f64(h.scene.documents)[p]), q)
            explored.append(bool(coin.explores < EXPLORES))
            random = np.argsort(-np.asarray(coin.order))[:SLATE].tolist()
            assert np.asarray(h.shown[p]).tolist() == (random if explored[-1] else best)
    assert 0 < sum(explored) < ROUNDS * K
    assert any(explored[i] != explored[i + 1] for i in range(0, ROUNDS * K, K))  # not one coin for both


@pytest.mark.parametrize("others", ["aligned", "pooled"])
def test_of_several_others_omega_is_told_the_mean(others):
    protocol = slates(world={"platforms": 3, "time_budget": 12}, others=others)
    values = np.random.default_rng(0).normal(size=(3, B, N)).astype(np.float32)
    for p in range(3):
        mean = np.delete(values, p, axis=0).mean(axis=0)
        mean = np.repeat(mean.mean(axis=1, keepdims=True), N, axis=1) if others == "pooled" else mean
        np.testing.assert_allclose(protocol.others_of(jnp.asarray(values), p), mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(protocol.others_of(jnp.asarray(values[:, 0]), p), mean[0], rtol=1e-5, atol=1e-6)


def test_the_chance_of_exploring_falls_to_its_floor_or_is_snapped_to_none():
    falling = Exploration(0.8, 0.9, 0.1)
    np.testing.assert_allclose([falling.chance(t) for t in (0, 1, 5, 60)], [0.8, 0.72, 0.8 * 0.9**5, 0.1], rtol=1e-5)
    published = Exploration(1.0, 0.99995, 0.0, snap=0.1)  # "round 46,050": ln 0.1 / ln 0.99995 = 46,050.6
    assert float(published.chance(46_000)) == pytest.approx(0.99995**46_000, rel=1e-3)  # a power in single precision
    assert float(published.chance(46_100)) == 0.0


# -- memory ----------------------------------------------------------------------------------------------------------


def test_moments_by_age_are_what_there_was_and_two_platforms_entries_correspond():
    """In the last batch round the ring has wrapped around: 14 rounds in 12 places."""
    for number in LEARNS:
        h = played()[number]
        told = h.told["batch"]
        ages = np.asarray(told.request.ages)
        assert len(set(ages.tolist())) == B
        assert ages.min() >= 1  # the newest has no next state yet
        assert ages.max() <= min(number + 1, MEMORY) - 1
        for ages_ in (ages, np.arange(min(number + 1, MEMORY))):
            places = remembered(number, ages_) % MEMORY
            found = jax.tree.map(lambda x, at=places: np.asarray(x)[:, at], told.own.memory)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-5), found, looked_up(number, ages_))
        assert np.asarray(told.own.ages).tolist() == [ages.tolist()] * K
    assert number + 1 > MEMORY
    ends = [r for r in range(ROUNDS) if played()[r].over]
    assert ends == [EPISODE - 1, 2 * EPISODE - 1]


def test_values_in_a_batch_are_of_the_moments_and_target_networks_of_the_rounds_after_them():
    for number in (LEARNS[1], LAST):
        h = played()[number]
        told, local, target = h.told["batch"], f64(h.own.weights), f64(h.own.target)
        then, after = (looked_up(number, np.asarray(told.request.ages, int) - late) for late in (0, 1))
        for p in range(K):
            now, later = one(then, p), one(after, p)
            assert np.any(local[p] != target[p])
            np.testing.assert_allclose(
                told.replies.values[p], q_local(local[p], now.user, now.items), rtol=1e-3, atol=1e-5
            )
            np.testing.assert_allclose(
                told.replies.following[p], q_local(target[p], later.user, later.items), rtol=1e-3, atol=1e-5
            )


def test_what_is_taken_off_engagement_is_its_mean_so_far():
    paid = np.array([float(h.turns.engagement[0]) / SCALE for h in played()[:-1]])
    for r, h in enumerate(played()[1:], 1):
        np.testing.assert_allclose(h.own.mean, [paid[:r].mean(), 0.0], rtol=1e-5)


# -- learning --------------------------------------------------------------------------------------------------------


def targets_by_hand(number, joint, learnt, mean):
    """Equation 13 of A's moments, [B], given the federated target network's values one round later."""
    ages = np.asarray(played()[number].told["batch"].request.ages, int)
    then, after = one(looked_up(number, ages), 0), one(looked_up(number, ages - 1), 0)
    v = choices(learnt, after.items)
    best = np.array([worth(a, q, greedy(a, q)) for a, q in zip(v, joint, strict=True)])
    return then.engagement - mean + DISCOUNT * (1 - then.over) * best


def test_targets_are_equation_13_with_both_target_networks_one_round_later():
    ends = 0
    for number in LEARNS:
        h = played()[number]
        told, sent = h.told["targets"], f64(h.told["batch"].replies.following)
        joint = omega(f64(told.state.target), sent[0], sent[1])
        np.testing.assert_allclose(told.request.values[0], joint, rtol=1e-4, atol=1e-5)
        y = targets_by_hand(number, joint, f64(told.own.choice)[0], float(told.own.mean[0]))
        np.testing.assert_allclose(told.replies.targets[0], y, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(told.state.targets, np.stack([y, y]), rtol=1e-3, atol=1e-4)  # B is given A's
        assert not np.any(told.replies.targets[1])
        ends += sum(played()[r].over for r in remembered(number, h.told["batch"].request.ages))
    assert 0 < ends < B * len(LEARNS)


def test_in_the_published_code_the_others_part_of_a_target_is_of_now_and_online():
    h = played()[LAST]
    state, sent = h.told["batch"].state, h.told["batch"].replies
    e = exchange("targets", slates(faults=Faults(online_others=True)))
    told = jax.jit(e.following, compiler_options=QUICK)(state, state.following)
    joint = omega(f64(state.target), f64(sent.following)[0], f64(sent.values)[1])
    np.testing.assert_allclose(told[0], joint, rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(told - h.told["targets"].request.values)[0]).max() > 1e-3


def test_the_choice_model_climbs_its_likelihood_and_b_is_told_it():
    for number in LEARNS:
        h = played()[number]
        then = one(looked_up(number, h.told["batch"].request.ages), 0)
        k = np.take_along_axis(kaleness(then.items), then.slate, axis=1)
        before = f64(h.own.choice)[0]
        p = np.exp(before[0] * k)
        p /= p.sum(axis=1, keepdims=True)
        climbed = before[0] + 0.05 * np.mean(k[np.arange(B), then.slot] - np.sum(p * k, axis=1))
        learnt = h.told["targets"].own.choice
        np.testing.assert_allclose(learnt[0], [climbed, 0.0], rtol=1e-4, atol=1e-7)
        assert np.asarray(learnt[1]).tolist() == before_of_b(number)
        np.testing.assert_array_equal(h.told["compare 1"].own.choice[1], learnt[0])
        np.testing.assert_array_equal(h.told["compare 1"].request.choice, learnt[0])
        assert climbed != before[0]


def before_of_b(number):
    """The model that B was told in the batch before."""
    told = [n for n in LEARNS if n < number]
    return np.asarray(played()[told[-1]].told["targets"].own.choice[0]).tolist() if told else [0.0, 0.0]


def loss_of(p, joint, then, targets, learnt):
    """Equation 14 of A, 15 of B; a slate of B is the greedy one by its federated values."""
    if p == 0:
        return np.mean(huber(joint[np.arange(B), then.item] - targets))
    v = choices(learnt, then.items)
    expected = [worth(a, q, greedy(a, q)) for a, q in zip(v, joint, strict=True)]
    return np.mean(huber(np.array(expected) - targets))


@pytest.mark.parametrize("number", [LEARNS[0], LAST])
def test_split_learning_is_what_differences_of_the_whole_composite_say(number):
    """A learns, then B: of each the gradients by its own network and by Ω, others' values constant (11, 12)."""
    h = played()[number]
    ages = np.asarray(h.told["batch"].request.ages, int)
    moments, values = looked_up(number, ages), f64(h.told["batch"].replies.values)
    learnt, y = f64(h.told["targets"].own.choice)[0], f64(h.told["targets"].state.targets)
    for p in range(K):
        compare, step = h.told[f"compare {p}"], h.told[f"step {p}"]
        earlier = h.told["targets"] if p == 0 else h.told["step 0"]
        local, head = f64(earlier.own.weights)[p], f64(earlier.state.weights)
        then, others = one(moments, p), values[1 - p]

        def loss(local, head, p=p, then=then, others=others):
            joint = omega(head, q_local(local, then.user, then.items), others)
            return loss_of(p, joint, then, y[p], learnt)

        joint = omega(head, q_local(local, then.user, then.items), others)
        np.testing.assert_allclose(compare.request.values, joint, rtol=1e-3, atol=1e-5)
        by_joint = slope(lambda q, p=p, then=then: loss_of(p, q, then, y[p], learnt), joint)
        np.testing.assert_allclose(compare.replies.gradient[p], by_joint, rtol=1e-3, atol=1e-5)
        by_head, by_local = (
            slope(lambda w, local=local: loss(local, w), head),
            slope(lambda w, head=head: loss(w, head), local),
        )
        assert min(np.abs(by_head).max(), np.abs(by_local).max()) > 1e-3
        # Adam divides by a gradient's size: where that is nothing, rounding decides. Elsewhere a step is as it must be.
        for gradient, before, optimiser, found in (
            (by_head, head, earlier.state.optimiser, compare.state.weights),
            (by_local, local, one(earlier.own.optimiser, p), step.own.weights[p]),
        ):
            clear = np.abs(gradient) > 1e-4
            assert clear.sum() >= 6  # at first Ω's last layer is zeros, and what lies before it learns nothing
            np.testing.assert_allclose(
                np.asarray(found)[clear], adam(gradient, before, optimiser)[clear], rtol=1e-3, atol=RATE * 0.02
            )
            assert np.abs(np.asarray(found) - before).max() > RATE / 20
        # Nothing reaches the other platform, and Ω takes no part in a platform's own step.
        assert same(one(step.own, 1 - p), one(earlier.own, 1 - p))
        assert same(step.state.weights, compare.state.weights)
        if p == 0:  # B's values meet A's new ones
            renewed = q_local(f64(step.own.weights)[0], then.user, then.items)
            np.testing.assert_allclose(step.replies.values[0], renewed, rtol=1e-3, atol=1e-5)
            assert np.abs(renewed - values[0]).max() > 1e-3
            values = np.stack([renewed, values[1]])


def test_gradients_are_the_closed_form_and_other_than_0_where_a_click_was():
    h = played()[LAST]
    then = one(looked_up(LAST, h.told["batch"].request.ages), 0)
    compare = h.told["compare 0"]
    error = f64(compare.request.values)[np.arange(B), then.item] - f64(compare.request.targets)
    expected = np.zeros((B, N))
    expected[np.arange(B), then.item] = np.clip(error, -1, 1) / B
    np.testing.assert_allclose(compare.replies.gradient[0], expected, rtol=1e-5, atol=1e-7)


def test_omega_moves_once_a_platform_and_batch_and_a_local_network_once_a_batch():
    for batches, number in enumerate(LEARNS, 1):
        end = played()[number + 1]
        assert count(end.state.optimiser) == K * batches
        assert count(end.own.optimiser) == [batches] * K
        assert len({raw_bytes(played()[number].told[f"compare {p}"].state.weights) for p in range(K)}) == K


def raw_bytes(x):
    return np.asarray(x).tobytes()


def test_target_networks_are_copies_of_some_rounds_ago_and_change_in_no_other_round():
    for r in range(ROUNDS):
        before, after = played()[r], played()[r + 1]
        if r in COPIES:
            assert same(after.state.target, after.state.weights)
            assert same(after.own.target, after.own.weights)
        else:
            assert same(after.state.target, before.state.target)
            assert same(after.own.target, before.own.target)
        learns = r in LEARNS
        assert same(after.state.weights, before.state.weights) is not learns
        assert same(after.own.weights, before.own.weights) is not learns
    assert not same(played()[-1].state.target, played()[-1].state.weights)


def test_where_targets_move_the_gradient_of_b_passes_through_them_too():
    """The published code: y is of B's online values at the moment itself, and its loss is differentiated by those.

    With its choice model, too, in which no click is an option: slates' probabilities do not add up to 1.
    """
    protocol = slates(faults=Faults(online_others=True, moving_targets=True), choice="published")
    h = played()[LAST]
    ages = np.asarray(h.told["batch"].request.ages, int)
    own, state = h.told["batch"].own, h.told["batch"].state._replace(slopes=jnp.zeros((K, B, N)))
    told = asked(exchange("targets", protocol), state, own)  # as if A learnt nothing from the batch before B does
    found = asked(exchange("compare 1", protocol), told.state, told.own)
    then, after = (looked_up(LAST, ages - late) for late in (0, 1))
    head, bar, q, following = (f64(x) for x in (state.weights, state.target, state.batch, state.following))

    def valued(moment, joint):
        """Equation 5 of greedy slates, [B]; no click has a score of e, and a candidate of e^(observed · kaleness)."""
        v = np.exp((moment.user[:, :1] / 10 + 0.5) * kaleness(moment.items))
        return np.array([worth(a, x, greedy(a, x, np.e), np.e) for a, x in zip(v, joint, strict=True)])

    def y(values):
        worths = valued(one(after, 0), omega(bar, following[0], values))
        return one(then, 0).engagement - float(own.mean[0]) + DISCOUNT * (1 - one(then, 0).over) * worths

    def loss(values, targets):
        return np.mean(huber(valued(one(then, 1), omega(head, values, q[0])) - targets))

    np.testing.assert_allclose(told.replies.targets[0], y(q[1]), rtol=1e-3, atol=1e-4)
    still, moves = slope(lambda x: loss(x, y(q[1])), q[1]), slope(lambda x: loss(x, y(x)), q[1])
    assert np.abs(moves - still).max() > 1e-3
    np.testing.assert_allclose(found.state.gradient[1], moves, rtol=2e-3, atol=2e-5)


# -- who is told what ------------------------------------------------------------------------------------------------


def test_a_platform_without_feedback_does_not_look_at_what_users_did():
    """B is told of ten times the engagement and of other clicks in every round: not one bit changes anywhere."""
    honest, misheard = played(), played((False, True))
    for a, b in zip(honest, misheard, strict=True):
        assert same((a.state, a.own, a.told), (b.state, b.own, b.told))
    memory = one(honest[-1].own, 1).memory
    assert not np.any(memory.engagement)
    assert np.all(memory.item == -1)
    assert np.all(memory.slot == SLATE)
    assert not any(np.any(h.own.mean[1]) or np.any(h.own.view.engaged[1]) for h in honest)


def test_a_platform_with_feedback_does():
    honest, misheard = played(), played((True, False))
    assert not same(honest[1].own, misheard[1].own)
    assert not same(honest[-1].state.weights, misheard[-1].state.weights)
    for r in range(LEARNS[0]):  # what B does is none of it until they learn
        assert same(one(honest[r].own, 1).memory, one(misheard[r].own, 1).memory)


def test_the_agents_choice_models_are_the_users_own_a_learnt_one_and_the_published_one():
    k, observed = np.array([0.1, 0.5, 0.9, 0.3, 0.7]), 0.62
    items, user = jnp.asarray((k[:, None] - 0.5) * 12**0.5), jnp.asarray([10 * (observed - 0.5), 0, 0, 0])
    taught = jnp.asarray([-1.5, 0.4], jnp.float32)
    models = [settings(choice=choice) for choice in ("true", "learned", "published")]
    found = jax.jit(lambda *args: [choice_scores(s, *args) for s in models], compiler_options=QUICK)(
        taught, user.astype(jnp.float32), items.astype(jnp.float32)
    )
    v = {s.choice: np.append(np.asarray(scores), float(none)) for s, (scores, none) in zip(models, found, strict=True)}
    for choice, logits, none in (
        ("true", 1 - k, 0.0),
        ("learned", -1.5 * k, 0.0),
        ("published", observed * k, np.e),  # a logit of 1 for no click, and a taste for high kaleness
    ):
        expected = np.append(np.exp(logits), none)
        np.testing.assert_allclose(v[choice] / v[choice].sum(), expected / expected.sum(), rtol=1e-4)


# -- what may be missing ---------------------------------------------------------------------------------------------


def before_learning():
    """The states after the last round's slates have been shown."""
    h = played()[LAST]
    return h.told["recommend"].state, h.told["batch"].own


def test_nobody_learns_from_a_batch_for_which_no_platform_has_told_targets():
    state, own = before_learning()
    told, after = learnt(state, own, heard=(False, True))
    for name in ("weights", "optimiser"):
        assert same(getattr(told, name), getattr(state, name))
        assert same(getattr(after, name), getattr(own, name))
    assert same(one(after.choice, 1), one(own.choice, 1))


def test_without_b_only_a_learns():
    state, own = before_learning()
    told, after = learnt(state, own, heard=(True, False))
    assert count(told.optimiser) == count(state.optimiser) + 1
    assert not same(one(after.weights, 0), one(own.weights, 0))
    assert same(one(after.weights, 1), one(own.weights, 1))


@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -3e38])
@pytest.mark.parametrize("liar", range(K))
def test_nonsense_that_a_platform_sends_leaves_everybody_else_finite(liar, nonsense):
    state, own = before_learning()
    told, after = learnt(state, own, sent=[nonsense if p == liar else 0.0 for p in range(K)])
    assert finite((told.weights, told.optimiser, told.choice))
    assert finite(one(after, 1 - liar))


def finite(tree):
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))
