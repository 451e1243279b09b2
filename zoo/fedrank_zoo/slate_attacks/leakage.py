"""Information in the messages of FedSlate: for a platform, for the coordinator, and back.

A run is simulated with all its messages, recorded from the first batch on by a :class:`Wiretap`, beside the
platforms' secrets: their replay buffers, which never leave them, and which only a simulator can look at.

Who receives what, with platform α, which has feedback, and β, which shows slates to the same users::

    β            targets y = r + γ (1 − d) V(s′), one a transition: r is α's engagement, scaled
    coordinator  the same targets, what V(s′) was made of (it made it), gradients by federated values
    α            federated values of its candidates, which hold β's values

**Coordinator, clicks.** The gradient of α's loss (equation 14) by the values of a transition is other than 0 at the
clicked candidate alone. **Coordinator, engagement.** It knows y and Q̄_f(s′). Where it knows the candidates as well,
V(s′) follows (equation 8), and y − γ (1 − d) V(s′) is r to the last digit. Where α subtracts its mean engagement, it is
r less that mean, which moves from batch to batch. But transitions are drawn again: r(m) − mean(l) for many m and l
gives all r but for one number, and that is the mean engagement of α's users. Were targets hidden from it,
gradients would tell: B times the gradient is Q_f(s, clicked) − y wherever that is below 1 in size (the derivative of
Huber's loss).

**Platform β, engagement.** It is told y, and not what of it is still to come. An attacker is fitted on one half of the
users, whose engagement β is supposed to know (they told it, or it paid them to), and judged on the other half. It has
what β itself knows of each transition, what it was sent about it in all batches, and what it was sent about the next
round. A simpler attack needs no other data: engagement goes up and down with y.

Regressions are evaluated on users that they were not fitted on; there is one figure a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, Shaped
from typing_extensions import override

from fedrank.core.arrays import AnyArray, AnyInt, JaxArray, PyTree
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Environment, Exchange, Party, Protocol, Randomness
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.state import Transition
from fedrank.slates.world.best_slate import next_value
from fedrank_zoo.slate_attacks.leak import Accuracy, accuracy, linear_guesser, non_linear_guesser


class Overheard(NamedTuple):
    """Both halves of one exchange with one party.

    Attributes:
        request: What the party was asked.
        reply: What it answered.
    """

    request: PyTree
    reply: Any


@dataclass(frozen=True)
class Tapped(Exchange):
    """An exchange whose replies carry their requests.

    Attributes:
        inner: The exchange.
    """

    inner: Exchange

    name = property(lambda self: self.inner.name)  # type: ignore[assignment]
    silent = property(lambda self: self.inner.silent)  # type: ignore[assignment]
    host = property(lambda self: self.inner.host)  # type: ignore[assignment]
    personal = property(lambda self: self.inner.personal)  # type: ignore[assignment]

    @property
    @override
    def environment(self) -> Environment | None:  # type: ignore[override] - elsewhere an attribute of the class
        return self.inner.environment

    @property
    @override
    def request(self) -> Layout:
        return self.inner.request

    @property
    @override
    def reply(self) -> Layout:
        return self.inner.reply

    @override
    def ask(self, state: PyTree) -> PyTree:
        return self.inner.ask(state)

    @override
    def due(self, number: AnyInt) -> bool | Bool[AnyArray, ""]:
        return self.inner.due(number)

    @override
    def asked(self, state: PyTree, parties: int) -> Bool[AnyArray, "{parties}"] | None:
        return self.inner.asked(state, parties)

    @override
    def max_asked(self, parties: int) -> int:
        return self.inner.max_asked(parties)

    @override
    def draw(self, key: Randomness) -> PyTree:
        return self.inner.draw(key)

    @override
    def draw_from_os(self) -> PyTree:
        return self.inner.draw_from_os()

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Overheard]:
        party, reply = self.inner.respond(request, party, draws)
        return party, Overheard(request, reply)

    @override
    def tell(self, state: PyTree, replies: Overheard, arrived: Bool[AnyArray, " parties"]) -> PyTree:
        return self.inner.tell(state, replies.reply, arrived)


@dataclass(frozen=True)
class Wiretap(Protocol):
    """A protocol whose exchanges are all :class:`Tapped`: every reply is kept beside the request that it answers.

    A recording simulator keeps replies alone. Wrapped, a protocol runs as before, bit by bit: an exchange's reply is a
    pair of request and reply, which the simulator carries like any other, and the server is told the second.

    Attributes:
        inner: The protocol.
    """

    inner: Protocol

    name = property(lambda self: self.inner.name)  # type: ignore[assignment]

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(Tapped(exchange) for exchange in self.inner.exchanges)

    @override
    def init(self, key: Key[JaxArray, ""] | None) -> PyTree:
        return self.inner.init(key)

    @override
    def weights(self, state: PyTree) -> PyTree:
        return self.inner.weights(state)

    @override
    def watch(self, state: PyTree) -> dict[str, Shaped[AnyArray, "..."]]:
        return self.inner.watch(state)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return self.inner.account(rounds, delta)

    @override
    def experience(self, party: Party) -> dict[str, Shaped[AnyArray, ""]]:
        return self.inner.experience(party)


@dataclass(frozen=True)
class Records:
    """Messages and secrets of several runs, as NumPy arrays.

    Attributes:
        protocol: The protocol.
        secrets: The platforms' replay buffers, leaves [seeds, platforms, rounds, ...]: round r at place r.
        local: The platforms' Q-values as sent.
        shared: The federated Q-values as sent to each.
        transitions: The round of each transition that was learnt from.
        following: Federated target values as sent; zeros to platforms without feedback.
        targets: As sent by each platform; zeros of platforms without feedback.
        told: Targets as sent to each platform.
        compared: Federated values at the transitions as sent to each platform.
        gradient: As sent by each platform.
        choice: Parameters of choice models as sent by each platform.
    """

    protocol: FedSlate
    secrets: Transition
    local: Float[np.ndarray, "rounds seeds platforms candidates"]
    shared: Float[np.ndarray, "rounds seeds platforms candidates"]
    transitions: Int[np.ndarray, "batches seeds transitions"]
    following: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    targets: Float[np.ndarray, "batches seeds platforms transitions"]
    told: Float[np.ndarray, "batches seeds platforms transitions"]
    compared: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    gradient: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    choice: Float[np.ndarray, "batches seeds platforms 2"]

    @property
    def seeds(self) -> int:
        """Number of seeds; each is one run."""
        return self.local.shape[1]

    @property
    def episode(self) -> int:
        """Number of rounds of an episode, the stay of one user."""
        return self.protocol.slates.world.rounds_per_episode

    @property
    def scale(self) -> Any:
        """Divisor of engagement before it is learnt from."""
        return self.protocol.slates.reward_scale

    def engagement(self, platform: int) -> Float[np.ndarray, "seeds rounds"]:
        """Engagement at a platform in each round, in the world's unit; zeros without feedback."""
        return np.asarray(self.secrets.engagement[:, platform], np.float64) * self.scale


def record(protocol: FedSlate, seeds: Any, rounds: int, chunk: int | None = None) -> Records:
    """Run a protocol and keep all messages and secrets.

    Args:
        protocol: Platforms must remember all ``rounds``, so that every message can be set beside its secret.
        seeds: Seeds of the runs.
        rounds: R, beyond the burn-in.
        chunk: Rounds of one compiled program, a divisor of ``rounds``; bounds the memory. Default: all.

    Raises:
        ConfigError: Platforms would forget, would learn nothing, or ``chunk`` is no divisor.
    """
    s: Any = protocol.slates  # resolved
    chunk = rounds if chunk is None else chunk
    if chunk < 1 or rounds % chunk:
        raise ConfigError(f"chunks of {chunk} rounds do not make up {rounds} rounds; choose a divisor.")
    if not s.burn_in + s.learn_every <= rounds <= s.memory:
        raise ConfigError(
            f"{rounds} rounds must be at least burn_in + learn_every = {s.burn_in + s.learn_every}, so that something "
            f"is learnt, and at most memory = {s.memory}, so that nothing is forgotten."
        )
    simulator, keys = Simulator(Wiretap(protocol), record=True), run_keys(seeds)
    states, own = simulator.start(keys, protocol.parties(keys), per_run=True)
    kept: list[dict[str, np.ndarray]] = []
    for first in range(0, rounds, chunk):
        states, own, seen = simulator.advance(keys, states, None, own, first, chunk)
        kept.append(_kept(protocol, tuple(seen["replies"]), np.arange(first, first + chunk)))
    together = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
    secrets = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :, :rounds], own.replay)
    return Records(protocol=protocol, secrets=secrets, **together)


def _kept(protocol: FedSlate, heard: tuple[Any, ...], rounds: np.ndarray) -> dict[str, np.ndarray]:
    """Of a chunk of rounds: leaves [rounds, S, K, ...] of each exchange, where it took place."""
    exchanges = dict(zip(_names(protocol), heard, strict=True))
    learnt = np.asarray(protocol.exchanges[2].due(jnp.asarray(rounds)))

    def at(leaf) -> np.ndarray:
        return np.asarray(leaf)[learnt]

    look, recommend, batch, targets = (exchanges[name] for name in ("look", "recommend", "batch", "targets"))
    ages = at(batch.request.ages)[:, :, 0].astype(np.int64)  # the same to all platforms
    of_platform = [exchanges[f"compare {p}"] for p in range(protocol.slates.platforms)]

    def stack_platforms(leaf) -> np.ndarray:
        return np.stack([at(leaf(one))[:, :, p] for p, one in enumerate(of_platform)], axis=2)

    return {
        "local": np.asarray(look.reply.values),
        "shared": np.asarray(recommend.request.values),
        "transitions": rounds[learnt][:, None, None] - ages,
        "following": at(targets.request.values),
        "targets": at(targets.reply.targets),
        "told": stack_platforms(lambda one: one.request.targets),
        "compared": stack_platforms(lambda one: one.request.values),
        "gradient": stack_platforms(lambda one: one.reply.gradient),
        "choice": at(targets.reply.choice),
    }


def _names(protocol: FedSlate) -> list[str]:
    """Name of each exchange, with the number of its platform if it has one."""
    return [
        f"{one.name} {one.platform}" if hasattr(one, "platform") else one.name  # type: ignore[attr-defined]
        for one in protocol.exchanges
    ]


#: Batches on either side whose targets give the level that one batch's are compared with: engagement has heavy tails,
#: and a mean of 32 is no level.
_AROUND = 16
#: Weight of differences between levels of subsequent batches, which matters only where batches are not connected.
_STIFF = 1e-8
#: The last part of a run, which federated values are taken from: before, networks change too much to be fitted.
_LATE = 0.25


# -- the coordinator ----------------------------------------------------------------------------------------------


def clicked_items(gradient: Float[np.ndarray, "*shape candidates"]) -> Int[np.ndarray, "*shape"]:
    """The candidate that was clicked, from the gradient of a platform with feedback; −1: none.

    It is also −1 where a platform's loss has no slope at all, which takes a target met to the last bit.
    """
    size = np.abs(gradient)
    return np.where(size.max(-1) > 0, size.argmax(-1), -1)


def discounted_next_value(records: Records, platform: int) -> Float[np.ndarray, "batches seeds transitions"]:
    """γ (1 − d) V(s′) of each transition, computed by an attacker who knows the candidates, in the unit of targets.

    Args:
        records: A run; read are the federated target values as sent, the parameters of the choice model as sent, and
            the candidates and users of the round after each transition.
        platform: Whose targets.
    """
    rows = np.arange(records.seeds)[None, :, None]
    later = jax.tree.map(lambda leaf: leaf[rows, platform, records.transitions + 1], records.secrets)
    over = records.secrets.over[rows, platform, records.transitions]
    learnt = np.broadcast_to(records.choice[:, :, platform, None], (*records.transitions.shape, 2))
    return np.asarray(_worth(records.protocol, records.following[:, :, platform], later, over, learnt))


@partial(jit, static_argnums=0)
def _worth(protocol: FedSlate, values: Any, later: Transition, over: Any, learnt: Any) -> Array:
    s = protocol.slates

    def one(q, later, over, learnt):
        v, none = protocol.learner.choice_scores(learnt, later.user, later.items)
        return s.discount * (1.0 - over) * next_value(s.target, v, q, none, s.world.slate, later.slate)

    each = jax.vmap(jax.vmap(jax.vmap(one)))
    return each(values, jax.tree.map(jnp.asarray, later), over, learnt)


def coordinator_targets(
    records: Records, platform: int
) -> tuple[Float[np.ndarray, "batches seeds transitions"], Bool[np.ndarray, "batches seeds transitions"]]:
    """A platform's targets from its gradients alone, and where they are exact.

    Elsewhere the value is the bound that the gradient gives: the error is at least 1 in size.
    """
    gradient = records.gradient[:, :, platform].astype(np.float64)
    at = np.maximum(clicked_items(gradient), 0)[..., None]
    error = gradient.shape[-2] * np.take_along_axis(gradient, at, -1)[..., 0]
    value = np.take_along_axis(records.compared[:, :, platform], at, -1)[..., 0]
    # Huber's derivative is the error itself up to 1; a platform's division by B and ours back cost a few last bits.
    return value - error, (np.abs(error) < 1.0 - 1e-5) & (error != 0)


def coordinator_engagement(
    records: Records, platform: int, *, candidates_known: bool = True
) -> Float[np.ndarray, "batches seeds transitions"]:
    """A platform's engagement at each transition as the coordinator recovers it, in the world's unit.

    Args:
        records: A run.
        platform: Whose. If it takes its mean engagement off, the coordinator is supposed to know the mean engagement of
            its users over the run: one number.
        candidates_known: It knows what platforms can show, and when a user leaves. If not, it takes the mean of the n
            largest values for the worth of the next slate.
    """
    s = records.protocol.slates
    if candidates_known:
        come = discounted_next_value(records, platform)
    else:
        come = s.discount * _top(records.following[:, :, platform], s.world.slate)
    found = (records.targets[:, :, platform].astype(np.float64) - come) * records.scale
    if not s.centred:
        return found
    out = np.empty_like(found)
    for seed in range(records.seeds):
        rounds = records.transitions[:, seed]
        alike = without_level(found[:, seed], rounds)
        mean = records.engagement(platform)[seed, np.unique(rounds)].mean()
        place = np.unique(rounds, return_index=True)[1]
        out[:, seed] = alike - alike.ravel()[place].mean() + mean
    return out


def without_level(
    values: Float[np.ndarray, "batches transitions"], rounds: Int[np.ndarray, "batches transitions"]
) -> Float[np.ndarray, "batches transitions"]:
    """Values of transitions from values that are lower by an unknown level in each batch.

    ``values[l, b] = x[rounds[l, b]] − level[l]`` determines x and level but for one constant, if batches are connected
    by transitions that were drawn twice. Least squares; where batches are not connected, levels change as little as
    possible.

    Args:
        values: Of each transition of each batch.
        rounds: The transitions' rounds; a batch has a transition once.

    Returns:
        x of each transition, but for the constant.
    """
    from scipy.sparse import csr_matrix

    names, place = np.unique(rounds, return_inverse=True)
    (batches, size), place = rounds.shape, place.reshape(rounds.shape)
    ones, starts = np.ones(batches * size), np.arange(batches + 1) * size
    held = csr_matrix((ones, place.ravel(), starts), shape=(batches, len(names)))
    often = np.asarray(held.sum(0)).ravel()
    # For given levels, x is the mean of values + level over batches; what is left is a system in levels alone.
    mean = np.bincount(place.ravel(), values.ravel(), len(names)) / often
    system = size * np.eye(batches) - (held.multiply(1.0 / often[None]) @ held.T).toarray()
    steps = np.diff(np.eye(batches), axis=0)
    system += _STIFF * steps.T @ steps + 1.0 / batches  # the last term chooses the number that all share
    level = np.linalg.solve(system, np.sum(mean[place] - values, axis=1))
    return (mean + held.T @ level / often)[place]


# -- a platform ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """Data of one platform about another's engagement in one run, a row for each transition that was learnt from.

    Attributes:
        rounds: The transitions' rounds.
        truth: The other's engagement.
        own: What the platform knows of the transition and the next by itself.
        sent: What it was sent about them.
        targets: The part of the targets that is the other's, averaged over batches, each less the level of targets at
            that time; in the world's unit.
    """

    rounds: Int[np.ndarray, " rows"]
    truth: Float[np.ndarray, " rows"]
    own: Float[np.ndarray, "rows own_features"]
    sent: Float[np.ndarray, "rows sent_features"]
    targets: Float[np.ndarray, " rows"]


def others_targets(records: Records, platform: int) -> Float[np.ndarray, "batches seeds transitions"]:
    """The targets that a platform is sent, less the part that it knows to be its own.

    Where all learn from the mean of their targets, the mean times K less one's own is the sum of the others'. Where a
    platform learns from its own targets, nothing is left.
    """
    s = records.protocol.slates
    told = records.told[:, :, platform].astype(np.float64)
    if not s.sees[platform]:
        return told
    return (sum(s.sees) if s.objective == "team" else 1) * told - records.targets[:, :, platform]


def evidence(
    records: Records,
    seed: int,
    attacker: int,
    victim: int,
    extra: Float[np.ndarray, "batches transitions"] | None = None,
) -> Evidence:
    """Data that ``attacker`` has about ``victim``'s engagement.

    Args:
        records: A run.
        seed: Which of its seeds, by place.
        attacker: Number of a platform.
        victim: Number of another.
        extra: Added to the targets, as noise would be.
    """
    s, n = records.protocol.slates, records.protocol.slates.world.slate
    drawn = records.transitions[:, seed]
    told = others_targets(records, attacker)[:, seed] + (0.0 if extra is None else extra)
    level = _level(told.mean(-1))[:, None]
    rounds, place, count = np.unique(drawn, return_inverse=True, return_counts=True)
    place = place.reshape(drawn.shape)

    def average_batches(values: np.ndarray) -> np.ndarray:
        return np.bincount(place.ravel(), values.ravel(), len(rounds)) / count

    def newest(values: np.ndarray) -> np.ndarray:
        out = np.zeros(len(rounds))
        out[place.ravel()] = values.ravel()  # later batches overwrite earlier ones
        return out

    top = partial(_top, n=n)
    compared, shared = records.compared[:, seed, attacker], records.shared[:, seed, attacker]
    told_about = [
        average_batches(told - level),
        newest(told - level),
        newest(told),
        newest(top(compared) - top(compared).mean()),
    ]
    told_then = [f(shared[rounds + step]) for step in (0, 1) for f in (top, partial(np.mean, axis=-1))]
    mine = jax.tree.map(lambda leaf: leaf[seed, attacker], records.secrets)
    own = [mine.user[rounds], mine.user[rounds + 1], mine.over[rounds, None]]
    own += [_summary(mine.items[rounds + step, :, 0], n) for step in (0, 1)]
    return Evidence(
        rounds=rounds,
        truth=records.engagement(victim)[seed, rounds],
        own=np.concatenate(own, axis=1).astype(np.float64),
        sent=np.stack([*told_about, *told_then], axis=1).astype(np.float64),
        targets=average_batches(told - level) * s.reward_scale,
    )


def platform_accuracy(found: Evidence, episode: int) -> dict[str, Accuracy]:
    """Accuracy with which a platform guesses another's engagement.

    Args:
        found: What it has.
        episode: Rounds of an episode.

    Returns:
        With its ``own`` data and no message (non-linear); by adding the deviations of ``targets`` to the mean
        engagement of users; and with regressions on everything, ``linear`` and ``non-linear``.
    """
    known = (found.rounds // episode) % 2 == 0  # these users' engagement the attacker knows
    truth, mean = found.truth[~known], float(found.truth[known].mean())
    judged = partial(accuracy, truth, mean=mean)
    everything = np.concatenate([found.own, found.sent], axis=1)

    def judge_fit(fit, features: np.ndarray) -> Accuracy:
        return judged(fit(features[known], found.truth[known])(features[~known]))

    return {
        "own": judge_fit(non_linear_guesser, found.own),
        "targets": judged(found.targets[~known] - found.targets[~known].mean() + mean),
        "linear": judge_fit(linear_guesser, everything),
        "non-linear": judge_fit(non_linear_guesser, everything),
    }


def values_accuracy(records: Records, seed: int, attacker: int, victim: int) -> dict[str, Accuracy]:
    """Accuracy with which a platform guesses another's Q-values from the federated values that it is sent.

    The other's value of candidate i from the values of candidate i, in the last quarter of the run.

    Returns:
        With its ``own`` data alone, and with the federated values as well, ``sent``; both fitted on half of the users.
    """
    rounds = np.arange(int((1 - _LATE) * records.local.shape[0]), records.local.shape[0])
    mine = jax.tree.map(lambda leaf: leaf[seed, attacker], records.secrets)
    own, shared, truth = (
        values.astype(np.float64)
        for values in (
            records.local[rounds, seed, attacker],
            records.shared[rounds, seed, attacker],
            records.local[rounds, seed, victim],
        )
    )
    size = own.shape[1]
    user = np.repeat(mine.user[rounds].astype(np.float64), size, axis=0)
    without = np.column_stack([user, mine.items[rounds, :, 0].ravel(), *_with_mean(own)])
    sent = np.column_stack([without, *_with_mean(shared), (shared - own).ravel()])
    known = np.repeat((rounds // records.episode) % 2 == 0, size)
    truth = truth.ravel()
    out = {}
    for name, features in (("own", without), ("sent", sent)):
        guess = non_linear_guesser(features[known], truth[known])
        out[name] = accuracy(truth[~known], guess(features[~known]), float(truth[known].mean()))
    return out


def _with_mean(
    values: Float[np.ndarray, "rounds candidates"],
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """Values, and beside each the mean of its round, a row for each round and candidate."""
    return values.ravel(), np.repeat(values.mean(1), values.shape[1])


def _top(values: Float[np.ndarray, "*shape candidates"], n: int) -> Float[np.ndarray, "*shape"]:
    """Mean of the n largest, over the last axis."""
    return np.sort(values, axis=-1)[..., -n:].mean(-1)


def _summary(kaleness: Float[np.ndarray, "rows candidates"], n: int) -> Float[np.ndarray, "rows 3"]:
    """Mean of the candidates' kaleness, of the n largest, and of the n smallest."""
    return np.stack([kaleness.mean(-1), _top(kaleness, n), -_top(-kaleness, n)], axis=1)


def _level(means: Float[np.ndarray, " batches"]) -> Float[np.ndarray, " batches"]:
    """Means of batches, smoothed over the batches around each."""
    window = np.ones(2 * _AROUND + 1)
    return np.convolve(means, window)[_AROUND:-_AROUND] / np.convolve(np.ones(len(means)), window)[_AROUND:-_AROUND]
