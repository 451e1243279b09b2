"""Attacks on platforms that send sums over users, and the most that any attacker can find.

**Being there.** An attacker who knows all else decides between two messages that are ‖d‖ apart under noise of standard
deviation σ. True less false positives of the best test are 2 Φ(‖d‖ / 2σ) − 1, the total variation of two normal
distributions, which is the Gaussian mechanism's δ at ε = 0 (Balle and Wang, ICML 2018, Theorem 8). Differential privacy
bounds the same number by (e^ε − 1 + 2 δ) / (e^ε + 1), whatever the mechanism and the attacker (Kairouz, Oh and
Viswanath, ICML 2015).

**A number.** Of y, linear in what a user adds up to a rest, the best linear guess from a noisy c explains
cov(y, c) (cov(c) + σ²)⁻¹ cov(c, y) of its variance: a linear channel with Gaussian noise.

The messages are made by the protocol's own exchanges, for what users added to the sums before each of them, with noise
that is handed in. So attackers see all that messages hold, and need no field's name.

**Who sees what.** The coordinator reads what each platform sends that sends any: in every release a vector of sums over
its explorers, and once how long the vectors were of those by whom the clip was found. A platform is told the model of
every release, and knows what it sent itself.

**What is looked for.** One user's engagement: the mean logarithm of the engagement of all clicks of a stay, at the
other platform. One user's being there: which of two stays was among those that were added up, when the attacker knows
both. And what is meant to be seen: the mean logarithm over all of A's explorers, off the model that B is lent.

**What is known.** Nothing of the others; or what every other explorer added at every platform, which is taken off: no
attacker can know more. A user is attacked who was there before the first release, so that all messages after it may
tell; in each attack the others and the noise are drawn anew. Regressions are fitted on half of the users, whose
engagement the attacker is supposed to know, and judged on the other half.

**A trial.** Sums over the stays by which a plan is tested are read by the coordinator, and the verdict that follows
from them by all. A stay of the first look is attacked; which arm served it follows from its name, and is known.

Users of later releases are those of one history, with the models of that history: what is done with what has crossed
tells no more than what has crossed. The messages are made by the protocol's own exchanges.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Key, Shaped

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import settings_of
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.native import map_trees
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold_words, run_words, split
from fedrank.core.trees import Json, nest
from fedrank.engine.settings import defaults, from_dict
from fedrank.engine.variations import read_value
from fedrank.slates.build import experiment_of
from fedrank.slates.sums import CoordinatorState, SummedSlates, Trial
from fedrank.slates.sums.learner import STEPS, PlatformState
from fedrank.slates.sums.stays import StayRounds
from fedrank_zoo.slate_attacks.leak import Leak, accuracy, interval, linear_guesser
from fedrank_zoo.slate_attacks.settings import SlateAttack


def gaussian_advantage(distance: Float[np.ndarray, " pairs"], sigma: float) -> Float[np.ndarray, " pairs"]:
    """True less false positives of the best test of which of two vectors was sent.

    Args:
        distance: Their distance.
        sigma: Standard deviation of the noise on each coordinate; 0: none.

    >>> gaussian_advantage(np.array([0.0, 2.0]), 1.0).round(4).tolist()
    [0.0, 0.6827]
    """
    from scipy.special import erf

    distance = np.asarray(distance, np.float64)
    return erf(distance / (sigma * math.sqrt(8.0))) if sigma > 0 else (distance > 0).astype(np.float64)


def private_advantage(epsilon: float | None, delta: float = 0.0) -> float:
    """The most that (ε, δ)-differential privacy allows of true less false positives; 1 without any.

    >>> round(private_advantage(2.0), 4), private_advantage(None)
    (0.7616, 1.0)
    """
    return 1.0 if epsilon is None else min(1.0, math.tanh(epsilon / 2) + 2.0 * delta / (math.exp(epsilon) + 1.0))


def channel_r2(sent: Float[np.ndarray, "users numbers"], wanted: Float[np.ndarray, " users"], sigma: float) -> float:
    """R² of the best linear guess of a number from vectors with noise, adjusted for the numbers that are fitted.

    Args:
        sent: The vectors, without noise.
        wanted: The number of each user.
        sigma: Standard deviation of the noise on each coordinate; 0: none.

    Returns:
        R², adjusted as usual by the effective number of fitted weights, and at least 0; 0 if the number is constant.
    """
    c, y = sent - sent.mean(axis=0), wanted - wanted.mean()
    if not y.any() or not c.any():
        return 0.0
    users = len(y)
    # In the directions of what varies: singular values of c, and of y its part along each.
    left, spread, _ = np.linalg.svd(c / math.sqrt(users), full_matrices=False)
    kept = spread > 1e-9 * spread[0]
    variance, along = spread[kept] ** 2, left[:, kept].T @ y / math.sqrt(users)
    passed = variance / (variance + sigma**2)
    r2 = float(passed @ along**2 / (y @ y / users))
    fitted = float(passed.sum())
    return max(0.0, 1.0 - (1.0 - r2) * (users - 1) / max(1.0, users - 1 - fitted))


class Parties(NamedTuple):
    """Coordinator and platforms between two messages.

    Attributes:
        state: What the coordinator has.
        own: What each platform has, leaves [K, ...].
    """

    state: CoordinatorState
    own: PlatformState


class Seen(NamedTuple):
    """Messages of an exchange, leaves [K, ...]; zeros where a platform was not asked.

    Attributes:
        request: What each platform was sent.
        reply: What each answered.
    """

    request: PyTree
    reply: PyTree

    @property
    def coordinator(self) -> list[Shaped[Array, "..."]]:
        """Values that the coordinator reads from others."""
        return jax.tree.leaves(self.reply)

    def platform(self, number: int) -> list[Shaped[Array, "..."]]:
        """Values that a platform is sent and sends.

        Args:
            number: Number of the platform, from 0.
        """
        return [leaf[number] for leaf in jax.tree.leaves((self.request, self.reply))]


def first_parties(protocol: SummedSlates) -> Parties:
    """Coordinator and platforms before the first user."""
    numbers = jnp.arange(protocol.world.platforms)
    return Parties(protocol.init(None), jax.vmap(lambda number: protocol.platform(None, number))(numbers))


def due(protocol: SummedSlates, number: int) -> list[Exchange]:
    """The exchanges of a round in which something crosses.

    Args:
        protocol: The protocol.
        number: Number of the round.
    """
    return [exchange for exchange in protocol.exchanges if not exchange.silent and exchange.due(number)]


def play_round(
    protocol: SummedSlates,
    before: Parties,
    number: int,
    draws: list[PyTree],
    *,
    sums: Int[Array, "platforms statistics"] | int = 0,
    norms: Int[Array, "platforms bins"] | int = 0,
) -> tuple[Parties, list[Seen]]:
    """The messages of a round, after its users.

    Args:
        protocol: The protocol.
        before: Coordinator and platforms before.
        number: Number of the round.
        draws: Noise of each exchange that is due, leaves [K, ...].
        sums: What the users of this release added to each platform's sums, in steps.
        norms: What those by whom the clip is found added to each platform's counts.

    Returns:
        Coordinator and platforms afterwards, and what each exchange shows.
    """
    k = protocol.world.platforms
    # The round's users have been served, which coordinator and platforms have counted.
    state, own = before.state._replace(round=jnp.uint32(number + 1)), before.own
    own = own._replace(sums=own.sums + sums, norms=own.norms + norms)
    seen = []
    for exchange, noise in zip(due(protocol, number), draws, strict=True):
        request = exchange.ask(state)
        axis = 0 if exchange.personal else None
        party, reply = jax.vmap(exchange.respond, in_axes=(axis, 0, 0))(request, Party(None, own), noise)
        asked = exchange.asked(state, k)
        asked = jnp.ones(k, bool) if asked is None else jnp.asarray(asked)
        own = _where(asked, party.own, own)
        reply = _where(asked, reply, jax.tree.map(jnp.zeros_like, reply))
        state = exchange.tell(state, reply, asked)
        if not exchange.personal:
            request = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, *jnp.shape(leaf))), request)
        seen.append(Seen(_where(asked, request, jax.tree.map(jnp.zeros_like, request)), reply))
    return Parties(state, own), seen


def _where(asked: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(asked.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)


def drawn(protocol: SummedSlates, number: int, key: Key[Array, ""]) -> list[PyTree]:
    """Simulated noise of a round's messages: for each exchange that is due, leaves [K, ...].

    Args:
        protocol: The protocol.
        number: Number of the round.
        key: Consumed.
    """
    k, exchanges = protocol.world.platforms, due(protocol, number)
    keys = [jax.random.split(one, k) for one in jax.random.split(key, max(1, len(exchanges)))]
    return [jax.vmap(exchange.draw)(keys[place]) for place, exchange in enumerate(exchanges)]


class Stays(NamedTuple):
    """Whole stays of users.

    Attributes:
        sums: What each adds to the sums of a platform, clipped, in steps.
        norms: What each adds to its counts of norms; zeros of all but those by whom the clip is found.
        logs: Mean logarithm of the engagement of its clicks there; 0 where nothing was clicked.
        known: What the platform sees of it without any message: the mean of the satisfaction that it observes, and of
            its second half; with feedback also the logarithm of engagement, and what it adds to the sums.
    """

    sums: Int[np.ndarray, "users platforms statistics"]
    norms: Int[np.ndarray, "users platforms bins"]
    logs: Float[np.ndarray, "users platforms"]
    known: Float[np.ndarray, "users platforms features"]


def stays(protocol: SummedSlates, before: Parties, first: int, key: Key[Array, ""], users: int) -> Stays:
    """Play users one by one, each as the only one since the last release.

    Args:
        protocol: The protocol.
        before: Coordinator and platforms before these users; the platforms' clip and model count.
        first: Number of their first round, which says whether the clip is found by them or sums are made of them.
        key: Consumed.
        users: How many.
    """
    # What users do does not depend on noise that is drawn later: one program for all ε.
    quiet = replace(protocol, sharing=replace(protocol.sharing, epsilon=None))
    sums, norms, observed, engagement = map(np.asarray, _play_stays(quiet, before, first, jax.random.split(key, users)))
    clicked = engagement > 0
    logs = np.where(clicked, np.log(np.where(clicked, engagement, 1.0)), 0.0).sum(1) / np.maximum(clicked.sum(1), 1)
    feedback = np.asarray(protocol.feedback)
    half = observed.shape[1] // 2
    seen = [observed.mean(1), observed[:, half:].mean(1), np.where(feedback, logs, 0.0)]
    known = np.concatenate([np.stack(seen, axis=2), sums, norms], axis=2).astype(np.float64)
    return Stays(sums, norms, logs.astype(np.float64), known)


@partial(jit, quick=True, static_argnums=0)
def _play_stays(
    protocol: SummedSlates, before: Parties, first: Int[Array, ""] | int, keys: Key[Array, " users"]
) -> tuple[Any, ...]:
    show: Exchange = next(one for one in protocol.exchanges if one.environment is not None)
    visits, k, rounds = show.environment, protocol.world.platforms, protocol.world.rounds_per_episode
    assert visits is not None  # there is one

    def of_user(key):
        begin, later = jax.random.split(key)
        own = before.own._replace(rounds=jnp.full(k, first, jnp.int32))
        scene, own = visits.begin(begin, own)

        def one_round(carry, given):
            scene, own = carry
            key, number = given
            drawing, acting = jax.random.split(key)
            draws = jax.vmap(show.draw)(jax.random.split(drawing, k))
            request = show.ask(before.state._replace(round=number.astype(jnp.uint32)))
            party, _ = jax.vmap(show.respond, in_axes=(None, 0, 0))(request, Party(None, own), draws)
            observed = own.view.observed
            scene, own, seen = visits.happen(scene, party.own, acting, number)
            return (scene, own), (observed, seen["engagement"])

        numbers = first + jnp.arange(rounds)
        (_, own), shown = jax.lax.scan(one_round, (scene, own), (jax.random.split(later, rounds), numbers))
        return own.sums - before.own.sums, own.norms - before.own.norms, *shown

    return jax.vmap(of_user)(keys)


_COORDINATOR = "coordinator"
#: What attackers use: nothing that was sent; all messages; these less what all others added, which they know.
OWN, ALONE, ALL_KNOWN = "what it knows itself, no message", "all messages", "all messages, all others known"
_TOGETHER = "the same and what it knows itself"
_APART = "the same, stays as unlike as the clip allows"
#: What is looked for: a user's engagement at A, at B, and so on; whether a user was there; what is meant to be seen.
ENGAGEMENT, THERE = "a user's engagement at {}", "which of two users was there"
_LENT = "mean engagement of all users at platform A", "the model it is lent"


class Release(NamedTuple):
    """The users before a message about them, in one history of a run.

    Attributes:
        before: Coordinator and platforms before these users.
        number: The round that the messages come after.
        users: How many there are.
        pool: Users like them, of whom they are drawn.
    """

    before: Parties
    number: int
    users: int
    pool: Stays


# -- the protocols ------------------------------------------------------------------------------------------------


def sums_protocol(
    mode: str, settings: SlateAttack, epsilon: float | None = None, *, trial: bool = False
) -> SummedSlates:
    """A protocol to attack.

    Args:
        mode: Its name.
        settings: Sizes of the world, and settings of the protocol by name.
        epsilon: ε of a user's whole stay; None: no noise.
        trial: With the trial that the settings have; else without one, for attacks on explorers.

    Raises:
        ConfigError: There is no such setting, a value is not allowed, or nothing crosses.
    """
    listed = {name for name, value, _ in settings_of(defaults(mode)) if isinstance(value, tuple)}
    given: dict[str, Json] = {
        "world.candidates": settings.candidates,
        "world.slate": settings.slate,
        "world.platforms": settings.platforms,
        "rounds": 10**6,  # as many as explorers may need
    }
    if any(name == "slates.trial" for name, *_ in settings_of(defaults(mode))):
        given["slates.evidence"] = 0  # the worst case: every model is handed out
    if settings.time_budget is not None:
        given["world.time_budget"] = settings.time_budget
    for text in settings.set:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--set must be NAME=VALUE, such as world.preset=tension, got {text!r}.")
        if name in ("protocol", "sharing.epsilon"):
            said = "--modes" if name == "protocol" else "--release-epsilons"
            raise ConfigError(f"--set {text}: {name} is what {said} says; leave it out.")
        values = [read_value(one) for one in value.split(",")]
        given[name] = values if name in listed else read_value(value)
    if epsilon is not None:
        given["sharing.epsilon"] = epsilon
    if not trial and "slates.evidence" in given:
        given["slates.trial"] = 0  # a stay is in one sum of a platform, of explorers or of a trial
    protocol: Any = experiment_of(from_dict({**nest(given), "protocol": mode}).resolved()).protocol
    if protocol.secure_sum:
        raise ConfigError(
            "--set sharing.secure_sum=true: attackers here read the sums of each platform, which a secure sum hides "
            "from the coordinator; its noise is the same. Leave it out."
        )
    return protocol


# -- a run --------------------------------------------------------------------------------------------------------


def history(protocol: SummedSlates, key: Key[Array, ""], pool: int) -> Iterator[Release]:
    """One run, release by release: first, if there are any, the users by whom the clip is found.

    Args:
        protocol: The protocol.
        key: Consumed.
        pool: Users to play for each release.
    """
    learner, first, at = protocol.learner, 0, first_parties(protocol)
    groups = [(learner.bound_round, learner.bounders)] if learner.bounders else []
    groups += list(zip(learner.release_rounds, learner.explorers, strict=True))
    for place, (number, users) in enumerate(groups):
        playing, noise, choosing = jax.random.split(jax.random.fold_in(key, place), 3)
        found = stays(protocol, at, first, playing, pool)
        yield Release(at, number, users, found)
        if place + 1 == len(groups):
            return
        these = np.asarray(jax.random.choice(choosing, pool, (users,)))
        sums, norms = (jnp.asarray(leaf[these].sum(0)) for leaf in (found.sums, found.norms))
        at, first = _after(protocol, number, at, sums, norms, noise), number + 1


def _later(protocol: SummedSlates, number: int, at: Parties, sums: Array, norms: Array, key: Key[Array, ""]) -> Parties:
    return play_round(protocol, at, number, drawn(protocol, number, key), sums=sums, norms=norms)[0]


_after = jit(_later, quick=True, static_argnums=(0, 1))


@partial(jit, quick=True, static_argnums=(0, 1))
def _messages(
    protocol: SummedSlates,
    numbers: tuple[int, ...],
    before: Parties,
    sums: Int[Array, "runs releases platforms statistics"],
    norms: Int[Array, "runs releases platforms bins"],
    keys: Key[Array, " runs"],
    noisy: Int[Array, ""],
) -> list[Seen]:
    """The messages of several releases, leaves [runs, K, ...]; ``noisy`` is 0 for none of the noise."""

    def of_run(given):
        sums, norms, key = given
        at, seen = before, []
        for place, number in enumerate(numbers):
            draws = drawn(protocol, number, jax.random.fold_in(key, place))
            draws = jax.tree.map(lambda leaf: leaf * noisy.astype(leaf.dtype), draws)
            at, more = play_round(protocol, at, number, draws, sums=sums[place], norms=norms[place])
            seen += more
        return seen

    # One after another: XLA's threads were seen to wait for each other in hundreds of small systems solved at once.
    return jax.lax.map(of_run, (sums, norms, keys))


# -- what an attacker has -----------------------------------------------------------------------------------------


class Views(NamedTuple):
    """Numbers that one attacker reads, a row for each attack: only those that the attacked user may have changed.

    Attributes:
        seen: The messages, with noise, of a run with the user.
        swapped: The same messages of a run with another user in their place.
        base: What they were without that user and without noise.
        user: What they were with the user, without noise.
        other: What they were with the other, without noise.
    """

    seen: Float[np.ndarray, "attacks numbers"]
    swapped: Float[np.ndarray, "attacks numbers"]
    base: Float[np.ndarray, "attacks numbers"]
    user: Float[np.ndarray, "attacks numbers"]
    other: Float[np.ndarray, "attacks numbers"]


class Attacks(NamedTuple):
    """Users under attack, and what was sent.

    Attributes:
        users: The attacked users.
        others: Those in whose place they might have been.
        logs: Mean logarithm of the engagement of all users of each attack's first release, [attacks, K].
        coordinator: What it reads.
        platforms: What each platform reads.
    """

    users: Stays
    others: Stays
    logs: Float[np.ndarray, "attacks platforms"]
    coordinator: Views
    platforms: tuple[Views, ...]


def attacks(
    protocol: SummedSlates, releases: list[Release], key: Key[Array, ""], users: Stays, others: Stays
) -> Attacks:
    """Send everything once for each attacked user, among other users and under fresh noise.

    Args:
        protocol: The protocol.
        releases: The attacked release and all after it; of the pool of the first, the attacked take no part.
        key: Consumed.
        users: The attacked users.
        others: As many others, one for each.
    """
    rows = len(users.logs)
    seed, noise, again = jax.random.split(key, 3)
    random = np.random.default_rng(np.asarray(jax.random.key_data(seed)))
    added = {"sums": [], "norms": []}
    logs = users.logs.copy()
    for place, one in enumerate(releases):
        number, half = one.users - (place == 0), len(one.pool.logs) // 2
        # How often each user of the pool is among the others of an attack; those of the first half are attacked.
        counts = random.multinomial(number, np.full(len(one.pool.logs) - half, 1 / (len(one.pool.logs) - half)), rows)
        for name in added:
            of_each = getattr(one.pool, name)[half:]
            flat = counts @ of_each.reshape(len(of_each), -1)
            added[name].append(flat.reshape(rows, *of_each.shape[1:]))
        if place == 0:
            logs = (logs + counts @ one.pool.logs[half:]) / one.users
    totals = {name: np.stack(each, axis=1) for name, each in added.items()}
    numbers = tuple(one.number for one in releases)

    def sent(more: Stays | None, key: Key[Array, ""], noisy: bool) -> list[np.ndarray]:
        now = {name: total.copy() for name, total in totals.items()}
        if more is not None:
            for name in now:
                now[name][:, 0] += getattr(more, name)
        args = (jnp.asarray(now["sums"], jnp.int32), jnp.asarray(now["norms"], jnp.int32))
        seen = _messages(protocol, numbers, releases[0].before, *args, jax.random.split(key, rows), jnp.int32(noisy))
        return _read(seen, rows, protocol.world.platforms)

    runs = [sent(users, noise, True), sent(others, again, True)]
    runs += [sent(more, noise, False) for more in (None, users, others)]
    found = [_views(*each) for each in zip(*runs, strict=True)]
    return Attacks(users, others, logs, found[0], tuple(found[1:]))


def _read(seen: list[Seen], rows: int, platforms: int) -> list[np.ndarray]:
    """Numbers that the coordinator and then each platform reads, float64 [runs, numbers]."""

    def concatenate(leaves: list[Any]) -> np.ndarray:
        flat = [np.asarray(leaf, np.float64).reshape(rows, -1) for leaf in leaves]
        return np.concatenate([np.zeros((rows, 0)), *flat], axis=1)

    coordinator = concatenate([leaf for one in seen for leaf in jax.tree.leaves(one.reply)])
    each = [
        concatenate([leaf[:, place] for one in seen for leaf in jax.tree.leaves((one.request, one.reply))])
        for place in range(platforms)
    ]
    return [coordinator, *each]


def _views(seen: np.ndarray, swapped: np.ndarray, base: np.ndarray, user: np.ndarray, other: np.ndarray) -> Views:
    kept = (user != base).any(axis=0) | (other != base).any(axis=0)
    return Views(*(one[:, kept] for one in (seen, swapped, base, user, other)))


# -- attackers ----------------------------------------------------------------------------------------------------


def guess_accuracy(
    features: Float[np.ndarray, "users numbers"], wanted: Float[np.ndarray, " users"]
) -> dict[str, float]:
    """Accuracy of a guessed number: least squares on the first half of the users, judged on the second."""
    half = len(wanted) // 2
    mean = float(wanted[:half].mean())
    guesses = np.full(len(wanted) - half, mean)
    if features.shape[1]:
        guesses = linear_guesser(features[:half], wanted[:half])(features[half:])
    found = accuracy(wanted[half:], guesses, mean)
    return {"r2": found.r2, "error": found.error, "blind": found.blind}


def advantage(views: Views, *, known: bool) -> float:
    """True less false positives of the test whether the user was there, or the other in their place.

    The likelihood ratio of two normal distributions: both messages as they would be without noise, and the spread about
    them, which the attacker knows from simulations.

    Args:
        views: What the attacker reads.
        known: It knows what all others added; else no more than their mean and spread.
    """
    if not views.seen.shape[1]:
        return 0.0
    apart = views.user - views.other
    middle = (views.user + views.other) / 2
    if known:
        rest = np.concatenate([views.seen - views.user, views.swapped - views.other])
    else:
        mean = (views.seen.mean(0) + views.swapped.mean(0)) / 2
        middle = middle - views.base + mean - (middle - views.base).mean(0)
        rest = np.concatenate([views.seen, views.swapped]) - mean
    spread = np.cov(rest, rowvar=False).reshape(rest.shape[1], -1)
    # Fewer runs than a matrix of this size takes: part of what lies beside its diagonal is chance.
    chance = min(1.0, rest.shape[1] / len(rest))
    spread = (1 - chance) * spread + chance * np.diag(np.diag(spread))
    scale = np.sqrt(np.diag(spread) + 1e-12 * np.maximum((apart**2).mean(0), 1e-30))
    inverse = np.linalg.inv(spread / np.outer(scale, scale) + 1e-9 * np.eye(len(scale)))
    weights = (apart / scale) @ inverse
    found = [np.mean(np.sum(weights * (one - middle) / scale, axis=1) > 0) for one in (views.seen, views.swapped)]
    return float(found[0] - found[1])


#: Measures by attacker, secret and means.
Found = dict[tuple[str, str, str], dict[str, float]]


def attack_run(protocol: SummedSlates, seed: int, targets: int) -> Found:
    """One run and all attacks on it: measures by attacker, secret and means.

    Args:
        protocol: The protocol.
        seed: Seed of the run.
        targets: Users to attack, at least 8.
    """
    key = jax.random.key(seed)
    releases = list(history(protocol, jax.random.fold_in(key, 0), 2 * targets))
    bounded = bool(protocol.learner.bounders)
    found = _on_explorers(protocol, releases[bounded:], jax.random.fold_in(key, 1), targets)
    if bounded:
        found |= _on_bounders(protocol, releases[:1], jax.random.fold_in(key, 2), targets)
    return found


def _pairs(release: Release, targets: int) -> tuple[Stays, Stays]:
    """The attacked users, and others in whose place they might have been."""
    users = Stays(*(leaf[:targets] for leaf in release.pool))
    return users, Stays(*(np.roll(leaf, 1, axis=0) for leaf in users))


def _on_explorers(protocol: SummedSlates, releases: list[Release], key: Key[Array, ""], targets: int) -> Found:
    last = protocol.world.platforms - 1
    names = [f"platform {one}" for one in string.ascii_uppercase[: last + 1]]
    sigma, bound = protocol.sigma or 0.0, private_advantage(protocol.epsilon, protocol.delta)
    users, others = _pairs(releases[0], targets)
    told = attacks(protocol, releases, jax.random.fold_in(key, 0), users, others)
    asked = np.asarray(protocol.senders)
    pool = releases[0].pool
    out: Found = {}
    for attacker, victim in ((last, 0), (0, last)):
        views, wanted = told.platforms[attacker], users.logs[:, victim]
        who, what = names[attacker], ENGAGEMENT.format(names[victim])
        known = users.known[:, attacker]
        out[who, what, OWN] = guess_accuracy(known, wanted)
        out[who, what, ALONE] = guess_accuracy(views.seen, wanted)
        out[who, what, ALL_KNOWN] = guess_accuracy(views.seen - views.base, wanted)
        together = np.concatenate([known, views.seen - views.base], axis=1)
        out[who, what, _TOGETHER] = guess_accuracy(together, wanted)
    for victim in (0, last):
        what = ENGAGEMENT.format(names[victim])
        views, wanted = told.coordinator, users.logs[:, victim]
        out[_COORDINATOR, what, ALONE] = guess_accuracy(views.seen, wanted)
        sent = pool.sums[:, asked].reshape(len(pool.logs), -1).astype(np.float64)
        most = {"ceiling": channel_r2(sent, pool.logs[:, victim], sigma)}
        out[_COORDINATOR, what, ALL_KNOWN] = guess_accuracy(views.seen - views.base, wanted) | most
    what, ceiling = THERE, _ceiling(users.sums[:, asked], others.sums[:, asked], sigma)
    for who, views in ((_COORDINATOR, told.coordinator), (names[last], told.platforms[last])):
        for means, all_known in ((ALONE, False), (ALL_KNOWN, True)):
            most = {"ceiling": ceiling} if all_known and who == _COORDINATOR else {}
            out[who, what, means] = {"advantage": advantage(views, known=all_known), "bound": bound} | most
        if who == _COORDINATOR:
            far, near = _extremes(users, asked)
            views = attacks(protocol, releases, jax.random.fold_in(key, 1), far, near).coordinator
            most = {"ceiling": _ceiling(far.sums[:, asked], near.sums[:, asked], sigma)}
            out[who, what, _APART] = {"advantage": advantage(views, known=True), "bound": bound} | most
    out[(names[last], *_LENT)] = guess_accuracy(told.platforms[last].seen, told.logs[:, 0])
    return out


def _on_bounders(protocol: SummedSlates, releases: list[Release], key: Key[Array, ""], targets: int) -> Found:
    """The same of a user by whom the clip is found: of their stay the bin of a norm crosses."""
    sigma, bound = protocol.bound_sigma or 0.0, private_advantage(protocol.epsilon, protocol.delta)
    users, others = _pairs(releases[0], targets)
    told = attacks(protocol, releases, key, users, others).coordinator
    asked, pool = np.asarray(protocol.feedback), releases[0].pool
    what = f"{ENGAGEMENT.format('platform A')}, by whom the clip is found"
    sent = pool.norms[:, asked].reshape(len(pool.logs), -1).astype(np.float64)
    most = {"ceiling": channel_r2(sent, pool.logs[:, 0], sigma)}
    found: Found = {(_COORDINATOR, what, ALL_KNOWN): guess_accuracy(told.seen - told.base, users.logs[:, 0]) | most}
    most = {"ceiling": _ceiling(users.norms[:, asked], others.norms[:, asked], sigma), "bound": bound}
    what = f"{THERE}, by whom the clip is found"
    found[_COORDINATOR, what, ALL_KNOWN] = {"advantage": advantage(told, known=True)} | most
    return found


def _ceiling(one: Int[np.ndarray, "users *numbers"], other: Int[np.ndarray, "users *numbers"], sigma: float) -> float:
    """Mean advantage of the best test of which of two vectors was added."""
    distance = np.linalg.norm((one - other).reshape(len(one), -1).astype(np.float64), axis=1)
    return float(gaussian_advantage(distance, sigma).mean())


def _extremes(users: Stays, asked: np.ndarray) -> tuple[Stays, Stays]:
    """Users who add as much as the clip allows at each platform that sends sums, and users who add the opposite."""
    most = np.zeros_like(users.sums)
    most[:, asked, 0] = STEPS
    return users._replace(sums=most), users._replace(sums=-most)


#: Stays of a trial that are played have one of so many numbers, from which their arms follow.
_NUMBERS = 20
#: Fold of a run's key for these stays and the noise of messages.
_TRIAL = 0xFFFFFFEE
_IN_TRIAL = "{}, in a trial"


class TrialStays(NamedTuple):
    """Stays of a trial, and the coordinator before its first sums.

    Attributes:
        sums: What each adds to the sums of a platform, in steps.
        engagement: That of the whole stay.
        server: The coordinator.
    """

    sums: Int[np.ndarray, "users platforms numbers"]
    engagement: Float[np.ndarray, "users platforms"]
    server: CoordinatorState


def play_trial(protocol: SummedSlates, seed: int, users: int) -> TrialStays:
    """Play a run's explorers, and then stays of its trial, each as the only one.

    Args:
        protocol: The protocol, with a trial.
        seed: Seed of the run.
        users: Stays to play.
    """
    learner, simulator, stay = protocol.learner, StayRounds(protocol), protocol.world.rounds_per_episode
    keys, begins = simulator.keys([seed]), learner.release_rounds[-1] + 1
    states, own = simulator.begin(keys, Party(None, None))
    states, own, _ = simulator.advance(keys, states, None, own, 0, begins)
    numbers, sums, engagement = max(1, min(_NUMBERS, learner.trial[0] - 1)), [], []
    each = -(-users // numbers)
    server, own = map_trees(lambda leaf: np.broadcast_to(leaf, (each, *leaf.shape[1:])), (states[0], own))
    for number in range(numbers):
        mine = split(fold_words(keys[0], _TRIAL, number), each)
        scene = simulator.begin(mine, Party(None, None))[0][1]
        here = own._replace(view=learner.first_view(own, scene.observed, scene.documents))
        _, after, seen = simulator.advance(mine, (server, scene), None, here, begins + number * stay, stay)
        sums.append(after.tested)
        engagement.append(seen["world"]["engagement"].sum(axis=0, dtype=np.float64))
    state = map_trees(lambda leaf: leaf[0], server)._replace(round=np.uint32(learner.look_rounds[0] + 1))
    return TrialStays(np.concatenate(sums)[:users], np.concatenate(engagement)[:users], state)


def attack_trial(protocol: SummedSlates, seed: int, targets: int) -> Found:
    """Attacks on stays of a run's trial, by what crosses after the first look.

    Args:
        protocol: The protocol, with a trial.
        seed: Seed of the run.
        targets: Stays to attack, at least 8.
    """
    found = play_trial(protocol, seed, 2 * targets)
    exchange = next(one for one in protocol.exchanges if isinstance(one, Trial))
    sees, k = np.asarray(protocol.feedback), protocol.world.platforms
    own, rng = protocol.platform(None, np.arange(k, dtype=np.int32)), np.random.default_rng(seed)
    each = found.sums[targets:].reshape(targets, -1)
    counts = rng.multinomial(protocol.learner.trial[0] - 1, np.full(targets, 1 / targets), targets)
    rest = (counts @ each).reshape(targets, k, -1)

    def views(*pair: np.ndarray) -> tuple[Views, Views]:
        """What the coordinator reads of the platforms with feedback, and the verdict that all are told."""
        runs = []
        for place, (added, noisy) in enumerate(((pair[0], 1), (pair[1], 1), (0, 0), (pair[0], 0), (pair[1], 0))):
            read, told = [], []
            for row, total in enumerate((rest + added).astype(np.int32)):
                sent = np.zeros_like(total)
                for at in np.flatnonzero(sees).tolist():
                    noise = map_trees(
                        lambda leaf, noisy=noisy: leaf * np.int32(noisy),
                        exchange.draw(fold_words(run_words([seed])[0], _TRIAL, place, row, at)),
                    )
                    mine = map_trees(lambda leaf, at=at: leaf[at], own)._replace(tested=total[at])
                    sent[at] = exchange.respond(exchange.ask(found.server), Party(None, mine), noise)[1].sums
                read.append(sent[sees].ravel())
                told.append(protocol.verdict(exchange.tell(found.server, exchange.reply.message(sent), sees)))
            runs.append((np.array(read, np.float64), np.array(told, np.float64)))
        return tuple(_views(*one) for one in zip(*runs, strict=True))  # type: ignore[return-value] - two of them

    users, others = found.sums[:targets], np.roll(found.sums[:targets], 1, axis=0)
    coordinator, verdict = views(users, others)
    victim, last = int(np.argmax(sees)), f"platform {string.ascii_uppercase[k - 1]}"
    what = _IN_TRIAL.format(ENGAGEMENT.format(f"platform {string.ascii_uppercase[victim]}"))
    there, wanted = _IN_TRIAL.format(THERE), found.engagement[:, victim]
    sigma, bound = protocol.trial_sigma or 0.0, private_advantage(protocol.epsilon, protocol.delta)
    far = np.zeros_like(users)
    far[:, sees, 0] = STEPS
    apart = views(far, -far)[0]
    flat = found.sums[:, sees].reshape(2 * targets, -1).astype(np.float64)
    # A verdict moves one way or the other by the arm of the stay.
    served = users[:, victim, :9:3] != 0
    by_arm = ((verdict.seen - verdict.base)[:, None] * served[:, :, None]).reshape(targets, -1)
    out: Found = {
        (_COORDINATOR, what, ALONE): guess_accuracy(coordinator.seen, wanted[:targets]),
        (_COORDINATOR, what, ALL_KNOWN): guess_accuracy(coordinator.seen - coordinator.base, wanted[:targets])
        | {"ceiling": channel_r2(flat, wanted, sigma)},
        (last, what, ALL_KNOWN): guess_accuracy(by_arm, wanted[:targets]),
    }
    ceiling = _ceiling(users[:, sees], others[:, sees], sigma)
    for who, means, seen, most in (
        (_COORDINATOR, ALONE, coordinator, {}),
        (_COORDINATOR, ALL_KNOWN, coordinator, {"ceiling": ceiling}),
        (_COORDINATOR, _APART, apart, {"ceiling": _ceiling(far[:, sees], -far[:, sees], sigma)}),
        (last, ALL_KNOWN, verdict, {}),
    ):
        out[who, there, means] = {"advantage": advantage(seen, known=means != ALONE), "bound": bound} | most
    return out


def attack_sums(
    mode: str,
    protocol: SummedSlates,
    tested: SummedSlates,
    settings: SlateAttack,
    said: Callable[[str], None],
) -> list[Leak]:
    """All attacks on one protocol, with intervals over seeds.

    Args:
        mode: How the findings call it.
        protocol: The protocol, without a trial.
        tested: The same with its trial, if it has one.
        settings: Seeds and users.
        said: Called with a line of progress.
    """
    each = []
    for place in range(settings.seeds):
        said(f"{mode}: seed {place + 1} of {settings.seeds}")
        each.append(attack_run(protocol, settings.seed + place, settings.targets))
        if tested.learner.trial:
            each[-1] |= attack_trial(tested, settings.seed + place, settings.targets)
    found = []
    for (attacker, secret, means), measures in each[0].items():
        over_seeds = {name: interval([one[attacker, secret, means][name] for one in each]) for name in measures}
        found.append(Leak(mode, attacker, secret, means, over_seeds))
    return found
