"""The model of engagement that platforms fit together: linear least squares on the logarithm of engagement.

Engagement is log-normal and its coefficient of variation is 1.3, so that logarithms need far fewer users than
engagement itself. With f the features of a click and y the logarithm, least squares are θ = (Σ f fᵀ)⁻¹ Σ f y. What
platforms show while they explore is drawn by a rule that all know, so that E f fᵀ, the *design*, is the same at all and
tells of no user: it is computed once by simulation, and Σ f fᵀ need not cross. Features are whitened by it, W f with
W E f fᵀ Wᵀ = 1: the constant, what the item says beside it, and what the trace says beside both. The trace's weight,
on which it depends whether users are spared, thus follows from one whitened number alone.

Where users may choose otherwise than platforms believe, the design that was met is another one. Then Σ (f̃ f̃ᵀ − 1) of
whitened features f̃ can cross as well, with the same noise: how far the design that was met is from the one that was
expected.

**Platforms.** A constant and the item's weight are about items and the same everywhere. The trace's weight is about
users, who may forgive one platform more than another. What one platform finds of it is x_k with variance 1 / w_k; a
platform that has found nothing has w_k = 0. Taken as one of a family, the weights of which have mean μ and variance τ²
(random effects; DerSimonian and Laird, Controlled Clinical Trials 1986)::

    τ² = max(0, (Σ w (x − x̄)² − (n − 1)) / (Σ w − Σ w² / Σ w)),    x̄ = Σ w x / Σ w
    μ = Σ v x / Σ v,                                               v = w / (1 + w τ²)
    weight of k = (1 − B) x_k + B μ,                               B = 1 / (1 + w_k τ²)

So platforms that differ by no more than chance share one weight, those that differ by far keep their own, and one that
has found nothing is lent the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from fedrank.core.arrays import AnyArray, module_of, take
from fedrank.slates.sums.learner import expected_item, item_feature, next_taste, taste_slate
from fedrank.slates.world.satisfaction import Satisfaction

#: Features of a click: a constant, the trace, the item; and which of them are the trace and the item.
FEATURES, TRACE, ITEM = 3, 1, 2
#: The first of them, the constant and the trace, are of the past: what is observed before a click depends on no other.
PAST = 2
#: The satisfaction that is neither good nor bad.
NEUTRAL = 0.5
#: Least standard deviation of the noise on what is observed of satisfaction by which deviations from neutral are
#: divided; it is that of Choc and Kale.
_LEAST_NOISE = 0.1
#: Order in which features are whitened: each is what it says beside those before it.
_ORDER = (0, ITEM, TRACE)
#: Factors of what crosses, by whitened feature: of sums of log-engagement, and of sums of satisfaction. Of each user a
#: vector crosses that is shortened to the clip, and noise is in proportion to the clip: numbers on which a plan hardly
#: depends (the constants) are made small, so that vectors are shorter.
OF_ENGAGEMENT = np.array([0.3, 1.0, 1.0], np.float32)
_OF_SATISFACTION = np.array([0.1, 1.0], np.float32)
#: Users that the design is the mean of.
_USERS = 500
#: Where Σ (f̃ f̃ᵀ − 1) stands in the upper triangle of its matrix.
_UPPER = np.triu_indices(FEATURES)
#: Numbers of that triangle, and where each entry of the matrix stands in it.
TRIANGLE = len(_UPPER[0])
_PLACES = np.zeros((FEATURES, FEATURES), np.int64)
_PLACES[_UPPER] = _PLACES.T[_UPPER] = np.arange(TRIANGLE)
#: Factor of those numbers, so that they are about as large as Σ f̃ y, and the clip is about both.
_SCALE = 0.1
#: Added to the diagonal of the design that was met, so that noise does not make it singular.
_RIDGE = 0.02


def features(trace: Float[AnyArray, "*shape"], item: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape features"]:
    """Features of a click.

    Args:
        trace: Fading sum of what the user clicked here before; negative after items of a high feature.
        item: The feature of what is clicked, in [−1, 1].
    """
    xp = module_of(trace, item)
    return xp.stack([xp.ones_like(item), trace / 2, item], axis=-1)


def whitening(
    world: Satisfaction, fade: float, hold: float, feedback: bool = True
) -> Float32[np.ndarray, "features features"]:
    """W of the design, from simulated clicks of users who choose as the world's do; no engagement takes part.

    Args:
        world: The users.
        fade: Factor of the trace a round.
        hold: As of :func:`~fedrank.slates.sums.learner.next_taste`.
        feedback: Features are of what is clicked; if not, of what is expected to be, in every round.
    """
    random, rounds = np.random.default_rng(0), world.rounds_per_episode
    documents = random.random((rounds, _USERS, world.candidates), np.float32)
    uniform = random.random((rounds, _USERS, 3), np.float32)
    trace, taste, squares = np.zeros(_USERS, np.float32), np.zeros(_USERS, np.float32), np.zeros((FEATURES, FEATURES))
    for lists, draws in zip(documents, uniform, strict=True):
        taste = next_taste(taste, draws[:, :2], hold)
        shown = take(lists, taste_slate(taste, lists, world.slate))
        if feedback:
            slot = np.asarray(world.choice.choose(world.appeal(shown), draws[:, 2]))
            clicked = slot < world.slate
            item = np.where(clicked, item_feature(take(shown, np.minimum(slot, world.slate - 1)[:, None])[:, 0]), 0.0)
        else:
            clicked, item = np.ones(_USERS, bool), np.asarray(expected_item(world, shown))
        f = features(trace, item)[clicked].astype(np.float64)
        squares += f.T @ f / (rounds * _USERS)
        trace = (fade * trace - item).astype(np.float32)
    squares = (squares + 1e-6 * np.eye(FEATURES))[np.ix_(_ORDER, _ORDER)]
    return np.linalg.inv(np.linalg.cholesky(squares))[:, np.argsort(_ORDER)].astype(np.float32)


def past_whitening(whiten: Float32[np.ndarray, "features features"]) -> Float32[np.ndarray, "past past"]:
    """W of the constant and the trace alone, from that of all features."""
    back = np.linalg.inv(whiten.astype(np.float64))
    return np.linalg.inv(np.linalg.cholesky((back @ back.T)[:PAST, :PAST])).astype(np.float32)


def inverse_of_past(inverse: Float[AnyArray, "features features"]) -> Float[AnyArray, "past past"]:
    """(E f fᵀ)⁻¹ of the constant and the trace alone, from that of all features."""
    xp = module_of(inverse)
    return xp.linalg.inv(xp.linalg.inv(inverse)[:PAST, :PAST])


def of_satisfaction(noise: float) -> Float32[np.ndarray, " past"]:
    """Factors of what crosses of satisfaction, by whitened feature: noise that is observed shortens no vector.

    Args:
        noise: Standard deviation of the noise on what is observed.
    """
    return _OF_SATISFACTION / np.float32(max(noise, _LEAST_NOISE))


def outer_triangle(f: Float[AnyArray, "*#clicks features"]) -> Float[AnyArray, "*#clicks triangle"]:
    """Upper triangle of f̃ f̃ᵀ − 1, scaled; ``f`` is whitened.

    It is 0 in a round without a click, as in the design that is expected.
    """
    return _SCALE * (f[..., :, None] * f[..., None, :] - np.eye(FEATURES, dtype=np.float32))[..., *_UPPER]


def inverse_design(
    sums: Float[AnyArray, " triangle"], rounds: Float[AnyArray, ""], whiten: Float32[np.ndarray, "features features"]
) -> Float[AnyArray, "features features"]:
    """(E f fᵀ)⁻¹ of features as they are: of the design that was met, or else of the one that is expected.

    Args:
        sums: The sum of :func:`outer_triangle` over all rounds; empty where it does not cross.
        rounds: Rounds behind it.
        whiten: W.
    """
    xp = module_of(sums, rounds)
    white = xp.asarray(whiten)
    if not len(sums):
        return white.T @ white
    symmetric = (sums / xp.maximum(rounds, 1.0) / _SCALE)[_PLACES]
    design = symmetric + (1.0 + _RIDGE) * xp.eye(FEATURES, dtype=xp.float32)
    return white.T @ xp.linalg.solve(design, white)


def fit_weights(
    sums: Float[AnyArray, " features"],
    rounds: Float[AnyArray, ""],
    inverse: Float[AnyArray, "features features"],
    whiten: Float32[np.ndarray, "features features"],
) -> Float[AnyArray, " features"]:
    """Weights of least squares from Σ f̃ y over users and platforms, of all features or of those of the past.

    Args:
        sums: Σ f̃ y.
        rounds: Rounds behind them.
        inverse: As :func:`inverse_design` or :func:`inverse_of_past` has it.
        whiten: W.
    """
    back = np.linalg.inv(whiten.astype(np.float64)).astype(np.float32)  # f of f̃
    xp = module_of(inverse, sums, rounds)
    return inverse @ (xp.asarray(back) @ (sums / xp.maximum(rounds, 1.0)))


def error_of_trace(
    clicks: Float[AnyArray, ""],
    whiten: Float32[np.ndarray, "features features"],
    spread: float,
    noise: Float[AnyArray, " features"],
    weight: int = TRACE,
) -> Float[AnyArray, ""]:
    """The standard error of a weight, by default the trace's, with the design that is expected: public numbers only.

    Args:
        clicks: Rounds behind the sums.
        whiten: W.
        spread: Standard deviation of the logarithm of engagement, given the features.
        noise: Standard deviation of the noise on the sum of each whitened feature; of all or of those of the past.
        weight: Which feature's.
    """
    of_means = spread**2 / clicks + (noise / clicks) ** 2
    xp = module_of(of_means)
    return xp.sqrt(xp.asarray(whiten[:, weight] ** 2) @ xp.asarray(of_means, xp.float32))


def with_trace(
    weights: Float[AnyArray, " features"], trace: Float[AnyArray, ""], inverse: Float[AnyArray, "features features"]
) -> Float[AnyArray, " features"]:
    """Weights of least squares where the trace's is known from elsewhere: the others', given that one.

    Args:
        weights: Of all features.
        trace: The trace's weight.
        inverse: As :func:`inverse_design` has it.
    """
    return weights + (trace - weights[TRACE]) * inverse[:, TRACE] / inverse[TRACE, TRACE]


def with_observed(
    trace: Float[AnyArray, ""],
    precision: Float[AnyArray, ""],
    satisfaction: Float[AnyArray, " past"],
    error: Float[AnyArray, ""],
    log_engagement: Float[AnyArray, ""],
) -> tuple[Float[AnyArray, ""], Float[AnyArray, ""]]:
    """The trace's weight in the logarithm of engagement, by what engagement and what satisfaction say of it.

    The logarithm of engagement is proportional to satisfaction where engagement is scaled with it; so is what the trace
    does to it. The mean is weighted by precision. Where what is observed is on average no satisfaction, which lies
    strictly between 0 and 1, engagement alone counts.

    Args:
        trace: The trace's weight in the logarithm of engagement.
        precision: One over its variance; 0 where no engagement was seen.
        satisfaction: Weights of the satisfaction's deviation from neutral.
        error: Standard error of the trace's.
        log_engagement: The mean logarithm of engagement.

    Returns:
        The weight and its precision.
    """
    xp = module_of(trace, precision, satisfaction)
    mean = NEUTRAL + satisfaction[0]
    seen = (mean > 0.01) & (mean < 0.99)
    factor = log_engagement / xp.where(seen, mean, xp.float32(1))
    # What is observed without an error is no more certain than this: squares of precisions have to be numbers.
    other = xp.where(seen, 1.0 / xp.maximum((factor * error) ** 2, 1e-12), xp.float32(0))
    share = other / xp.maximum(precision + other, 1e-30)
    return (1 - share) * trace + share * factor * satisfaction[TRACE], precision + other


#: Numbers of a model beside the platforms' weights of the trace: the constant and the item's weight.
SHARED = 2


class Models(NamedTuple):
    """Weights of (1, trace / 2, item) in the logarithm of engagement, as one platform plans by them.

    Attributes:
        own: Its own.
        others: The other platforms', the trace's weight their mean; its own where there are no others.
    """

    own: Float[AnyArray, "*#users features"]
    others: Float[AnyArray, "*#users features"]


def models_at(model: Float[AnyArray, "*#users parameters"], number: Int[AnyArray, "*#users"]) -> Models:
    """The models of a platform.

    Args:
        model: Constant, item's weight, and the trace's weight at each platform.
        number: Number of the platform.
    """
    xp = module_of(model, number)
    constant, item, traces = model[..., 0], model[..., 1], model[..., SHARED:]
    own, platforms = take(traces, number[..., None])[..., 0], traces.shape[-1]
    others = (traces.sum(axis=-1) - own) / (platforms - 1) if platforms > 1 else own
    return Models(*(xp.stack([constant, trace, item], axis=-1) for trace in (own, others)))


def visible_share(world: Satisfaction, fade: float, number: int) -> float:
    """Share of the effect of a click on the next engagement of the platform that it sees in its next observation.

    Between a click and the next one at the same platform all others act, and the past fades at each; what is observed
    may be older.

    Args:
        world: In which order platforms act, and whether what they observe is as old as the round.
        fade: Factor of the trace a round.
        number: Number of the platform.

    Returns:
        What the click does to engagement by what it does to the observation, in [0, 1].
    """
    k = world.platforms
    tick = fade ** (1.0 / k)
    # What is left when the round is over, and when the platform acts in the next one.
    places = range(k) if world.turns == "shuffled" else (number,)
    over, acts = (sum(tick**after for after in of) / len(places) for of in ([k - 1 - p for p in places], places))
    if not world.fresh:
        return over * acts
    return acts


def random_effects(
    found: Float[AnyArray, " platforms"], precision: Float[AnyArray, " platforms"], differ: bool
) -> tuple[Float[AnyArray, " platforms"], Float[AnyArray, " platforms"]]:
    """Each platform's number, from the findings of all.

    Args:
        found: x.
        precision: w: one over the variance of each; 0 for a platform that has found nothing. One is above 0.
        differ: Whether platforms may differ; if not, τ² is 0.

    Returns:
        The numbers, and the standard error of each, with τ² taken as known.
    """
    xp = module_of(found, precision)
    total = xp.maximum(xp.sum(precision), 1e-30)
    between = xp.float32(0.0)
    if differ:
        squares = xp.vdot(precision, (found - xp.vdot(precision, found) / total) ** 2)
        spare = total - xp.vdot(precision, precision) / total
        more = squares - (xp.sum(precision > 0) - 1)
        between = xp.maximum(more, 0.0) / xp.maximum(spare, 1e-30)
        between = xp.where(xp.sum(precision > 0) > 1, between, xp.float32(0))
    to_mean = 1.0 / (1.0 + precision * between)
    weights = precision * to_mean
    of_mean = 1.0 / xp.maximum(xp.sum(weights), 1e-30)
    mean = xp.vdot(weights, found) * of_mean
    # What is not known of each by itself, and what is not known of the mean that it is moved to.
    error = xp.sqrt(between * to_mean + to_mean**2 * of_mean)
    return found + to_mean * (mean - found), error
