"""FedSlate against its equations, written again in NumPy: networks, losses, gradients and optimisers.

Equation numbers are those of Deng et al., arXiv 2409.14872. Gradients are central differences of the whole
composite, local network through Ω to the loss, in double precision and in one place, as if nothing had been split.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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
    B,
    K,
    N,
    adam,
    asked,
    choices,
    count,
    exchange,
    f64,
    features,
    greedy,
    huber,
    kaleness,
    learnt,
    looked_up,
    omega,
    one,
    played,
    published,
    q_local,
    remembered,
    same,
    settings,
    slates,
    slope,
    worth,
)

from fedrank.slates.fedslate.learner import SlateQ
from fedrank_zoo.fedslate_2024.faults import Fault
from fedrank_zoo.fedslate_2024.learner import PublishedSlateQ

LAST = LEARNS[-1]


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
            found = jax.tree.map(lambda x, at=places: np.asarray(x)[:, at], told.own.replay)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-5), found, looked_up(number, ages_))
        assert np.asarray(told.own.ages).tolist() == [ages.tolist()] * K
    assert number + 1 > MEMORY
    ends = [r for r in range(ROUNDS) if played()[r].over]
    assert ends == [EPISODE - 1, 2 * EPISODE - 1]


def test_a_batch_may_be_of_any_moment_that_has_a_next_one_and_of_no_other():
    e, state = exchange("batch"), played()[-1].state

    @jax.jit
    def ages(keys, round_):
        return jax.vmap(lambda key: e.ask(state._replace(key=key, round=round_)).ages)(keys)

    keys = jax.random.split(jax.random.key(0), 400)
    for round_ in (B + 2, MEMORY, 30 * MEMORY):
        found = np.asarray(ages(keys, jnp.uint32(round_)))
        assert all(len(set(row)) == B for row in found.tolist())
        counts = np.bincount(found.reshape(-1))
        assert len(counts) == min(round_, MEMORY)  # the oldest is as many rounds old, less one
        assert counts[0] == 0
        expected = 400 * B / (len(counts) - 1)
        assert np.all(np.abs(counts[1:] - expected) < 5 * expected**0.5)


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
    e = exchange("targets", published(faults=(Fault.ONLINE_OTHERS,)))
    told = jax.jit(lambda state: e.ask(state).values)(state)
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
        # What B was told came from another program than what A learnt: the last digit may differ.
        np.testing.assert_allclose(learnt[1], before_of_b(number), rtol=3e-7)
        told = h.told["compare 1"].request.choice
        np.testing.assert_array_equal(h.told["compare 1"].own.choice[1], told)
        np.testing.assert_allclose(told, learnt[0], rtol=3e-7)
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


def test_omega_moves_once_a_platform_and_batch_and_a_local_network_once_a_batch():
    for batches, number in enumerate(LEARNS, 1):
        end = played()[number + 1]
        assert count(end.state.optimiser) == K * batches
        assert count(end.own.optimiser) == [batches] * K
        assert not same(*(played()[number].told[f"compare {p}"].state.weights for p in range(K)))


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


@pytest.mark.slow
def test_where_targets_move_the_gradient_of_b_passes_through_them_too():
    """The published code: y is of B's online values at the moment itself, and its loss is differentiated by those.

    With its choice model, too, in which no click is an option: slates' probabilities do not add up to 1.
    """
    protocol = published(faults=(Fault.ONLINE_OTHERS, Fault.MOVING_TARGETS), choice="published")
    h = played()[LAST]
    ages = np.asarray(h.told["batch"].request.ages, int)
    own, state = h.told["batch"].own, h.told["batch"].state._replace(more=jnp.zeros((K, B, N)))
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


def test_a_round_without_a_click_teaches_a_platform_that_sees_clicks_nothing():
    """Equation 14 is about what was clicked: of such rounds the loss is 0, whatever the last candidate's value is."""
    h = played()[LEARNS[0]]
    moments = looked_up(LEARNS[0], np.asarray(h.told["batch"].request.ages, int))
    then = jax.tree.map(jnp.asarray, one(moments, 0))
    values, targets = jnp.linspace(-1.0, 1.0, B * N).reshape(B, N), jnp.full(B, 0.5)
    choice = jnp.asarray(f64(h.told["targets"].own.choice)[0], jnp.float32)

    def found(item):
        rows = then._replace(item=jnp.asarray(item, then.item.dtype))
        return float(slates().learner.loss(values, rows, targets, choice, jnp.asarray(True)))

    clicked = np.arange(B) % N
    each = huber(np.asarray(values, np.float64)[np.arange(B), clicked] - 0.5)
    assert found(clicked) == pytest.approx(np.mean(each), rel=1e-5)
    some = np.where(np.arange(B) % 2 == 0, clicked, -1)
    assert found(some) == pytest.approx(np.mean(np.where(some >= 0, each, 0.0)), rel=1e-5)
    assert found(np.full(B, -1)) == 0.0


def test_a_platform_without_feedback_does_not_look_at_what_users_did():
    """B is told of ten times the engagement and of other clicks in every round: not one bit changes anywhere."""
    honest, misheard = played(), played((False, True))
    for a, b in zip(honest, misheard, strict=True):
        assert same((a.state, a.own, a.told), (b.state, b.own, b.told))
    replay = one(honest[-1].own, 1).replay
    assert not np.any(replay.engagement)
    assert np.all(replay.item == -1)
    assert np.all(replay.slot == SLATE)
    assert not any(np.any(h.own.mean[1]) or np.any(h.own.view.engaged[1]) for h in honest)


def test_a_platform_with_feedback_does():
    honest, misheard = played(), played((True, False))
    assert not same(honest[1].own, misheard[1].own)
    assert not same(honest[-1].state.weights, misheard[-1].state.weights)
    for r in range(LEARNS[0]):  # what B does is none of it until they learn
        assert same(one(honest[r].own, 1).replay, one(misheard[r].own, 1).replay)


def test_the_agents_choice_models_are_the_users_own_a_learnt_one_and_the_published_one():
    k, observed = np.array([0.1, 0.5, 0.9, 0.3, 0.7]), 0.62
    items, user = jnp.asarray((k[:, None] - 0.5) * 12**0.5), jnp.asarray([10 * (observed - 0.5), 0, 0, 0])
    taught = jnp.asarray([-1.5, 0.4], jnp.float32)
    models = [SlateQ(settings(choice=choice)) for choice in ("true", "learned")]
    models.append(PublishedSlateQ(published(choice="published").slates))
    found = jax.jit(lambda *args: [one.choice_scores(*args) for one in models])(
        taught, user.astype(jnp.float32), items.astype(jnp.float32)
    )
    v = {
        one.settings.choice: np.append(np.asarray(scores), float(none))
        for one, (scores, none) in zip(models, found, strict=True)
    }
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


def test_nonsense_that_a_platform_sends_leaves_everybody_else_finite():
    for liar in range(K):
        for nonsense in [np.nan, np.inf, -3e38]:
            state, own = before_learning()
            told, after = learnt(state, own, sent=[nonsense if p == liar else 0.0 for p in range(K)])
            assert finite((told.weights, told.optimiser, told.choice))
            assert finite(one(after, 1 - liar))


def finite(tree):
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))
